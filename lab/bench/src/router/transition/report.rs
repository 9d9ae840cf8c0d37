//! The report: throughput of all technologies, then delays and losses of each, and plots.

use super::{Results, Row, SHARES, Summary, Technology};
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};

pub(super) fn write(mut report: Report, results: &Results) -> Report {
    report.data(results);
    introduce(&mut report, results);
    throughput(&mut report, results);
    for technology in Technology::ALL {
        let rows = rows_of(results, technology);
        if !rows.is_empty() {
            let (name, setup) = (technology.name(), technology.setup());
            report.text(format!("## {name}: {setup}"));
            report.table(latency(&rows));
            report.table(variation(&rows));
            report.table(loss(&rows));
        }
    }
    report.plot(plot("throughput", "Highest rate without loss, both sides", results, |row| {
        ("1,000 frames a second", row.throughput.median / 1e3)
    }));
    report.plot(plot("latency", "Typical latency at that rate", results, |row| {
        ("microseconds", row.typical_latency_us.median)
    }));
    if !results.failed.is_empty() {
        report.text("## What could not be measured");
        report.text(results.failed.iter().map(|why| format!("- {why}\n")).collect::<String>());
    }
    report
}

fn rows_of(results: &Results, technology: Technology) -> Vec<&Row> {
    results.rows.iter().filter(|row| row.technology == technology.key()).collect()
}

fn introduce(report: &mut Report, results: &Results) {
    report.text(format!(
        "RFC 8219's procedures for natgate's workers, each with router, translators and engine, \
         one processor for each gateway. UDP from both sides at once; {} flows a technology and \
         {} of native IPv6, pseudo-random addresses and ports (RFC 4814). The tester checks the \
         addresses, ports, lengths and checksums of every frame that leaves. {} repetitions, in \
         which all technologies have their turns: medians, and 1st to 99th percentile.",
        grouped(results.flows.into()),
        grouped(results.flows.into()),
        results.repetitions,
    ));
    report.text(format!(
        "**Media.** Virtual links of {:.0} Gbit/s Ethernet in memory, in virtual time: a turn of \
         a gateway lasts as long as its processor time. What network cards, drivers and buses \
         cost is not in these figures. A receive ring has {} frames, and only a full ring loses \
         frames. With real links a physical tester sends the frames and takes the times.",
        results.line_bits_per_second / 1e9,
        grouped(results.ring as u64),
    ));
    report.text(format!(
        "**Where it differs from the RFC.** A stream lasts {} s of virtual time, not 60 s or \
         120 s, and has at least {} frames of each side, twice the ring by the precision of the \
         search: so each gateway's ring hides at most half the precision. Near the capacity \
         delays include the wait in such a ring. Of each side, 500 frames of the second half are \
         tagged. One stream gives latency and both variations of delay. Loss is measured once. \
         The two gateways of 464XLAT take turns on one processor of the machine, so they share \
         its caches. natgate has no B4: with encapsulation the tester is the far end of the \
         tunnels, as in section 4.2's note. Routes and neighbors are static.",
        results.trial_seconds,
        grouped(results.least_frames),
    ));
    report.text(
        "**Sizes.** With single translation a size is that of the IPv6 frame; the IPv4 frame has \
         20 bytes less. With double translation and with encapsulation it is that of the \
         tester's IPv4 frame, which has 20 or 40 bytes more as IPv6. Native IPv6 frames have the \
         same UDP payload. Rates are of both sides together. The line rate is appendix A's, for \
         the widest link.",
    );
}

/// Name of a row: size, and the share of foreground traffic if there is other traffic.
fn label(row: &Row) -> String {
    match row.foreground_percent {
        100 => row.frame.to_string(),
        share => format!("{}, {share} %", row.frame),
    }
}

/// The sizes and shares that at least one technology has. 64 stands for the smallest frame.
fn cases(results: &Results) -> Vec<(u16, u8)> {
    let mut cases: Vec<(u16, u8)> = results.rows.iter().map(key).collect();
    cases.sort_by_key(|(size, share)| (std::cmp::Reverse(*share), *size));
    cases.dedup();
    cases
}

fn key(row: &Row) -> (u16, u8) {
    let smallest = row.frame == super::SMALLEST_IPV6;
    (if smallest { super::SIZES[0] } else { row.frame }, row.foreground_percent)
}

fn throughput(report: &mut Report, results: &Results) {
    report.text(
        "## Throughput (section 7.1)\n\n1,000 frames a second without loss, by binary search, and \
         the 1st to 99th percentile. A share in percent: that much of the traffic is for the \
         technology, the rest is native IPv6. *: the line rate.",
    );
    let shown: Vec<Technology> = Technology::ALL
        .into_iter()
        .filter(|technology| !rows_of(results, *technology).is_empty())
        .collect();
    let names = shown.iter().map(|technology| technology.name().to_owned());
    let mut table = Table::new(std::iter::once("frame, bytes".to_owned()).chain(names));
    for (size, share) in cases(results) {
        let size_name = match size {
            64 => "64 (IPv6: 84)".to_owned(),
            size => size.to_string(),
        };
        let name = match share {
            100 => size_name,
            share => format!("{size_name}, {share} %"),
        };
        let cell = |technology: &Technology| {
            let rows = rows_of(results, *technology);
            let row = rows.into_iter().find(|row| key(row) == (size, share));
            row.map_or(String::new(), |row| {
                let mark = if row.line_limited { " *" } else { "" };
                format!("{}{mark}", spread(&row.throughput, |rate| format!("{:.0}", rate / 1e3)))
            })
        };
        table.push(std::iter::once(name).chain(shown.iter().map(cell)));
    }
    report.table(table);
}

/// Median with the 1st and the 99th percentile; empty without values.
fn spread(summary: &Summary, text: impl Fn(f64) -> String) -> String {
    if summary.runs == 0 {
        return String::new();
    }
    let [median, p1, p99] = [summary.median, summary.p1, summary.p99].map(text);
    format!("{median} ({p1} to {p99})")
}

fn latency(rows: &[&Row]) -> Table {
    let mut table = Table::new([
        "frame, bytes",
        "inside, outside",
        "1,000 frames/s",
        "typical latency, us",
        "worst-case latency, us",
        "lost",
        "wrong",
    ]);
    for row in rows {
        let us = |value: f64| format!("{value:.2}");
        let [inside, outside] = row.frame_at;
        table.push([
            label(row),
            format!("{inside}, {outside}"),
            format!("{:.0}", row.throughput.median / 1e3),
            spread(&row.typical_latency_us, us),
            spread(&row.worst_latency_us, us),
            if row.typical_latency_us.runs == 0 { String::new() } else { row.lost.to_string() },
            row.wrong.to_string(),
        ]);
    }
    table
}

fn variation(rows: &[&Row]) -> Table {
    let mut table = Table::new([
        "frame, bytes",
        "1,000 frames/s",
        "PDV, ms",
        "IPDV, ms: least",
        "median",
        "largest",
    ]);
    for row in rows {
        let ms = |us: f64| format!("{:.4}", us / 1e3);
        let rate = format!("{:.0}", row.throughput.median / 1e3);
        let first = [label(row), rate, spread(&row.pdv_us, ms)];
        let has_delays = row.pdv_us.runs > 0;
        let steps = row.ipdv_us.map(|us| if has_delays { ms(us) } else { String::new() });
        table.push(first.into_iter().chain(steps));
    }
    table
}

fn loss(rows: &[&Row]) -> Table {
    let offered: Vec<u32> = (10..=100).rev().step_by(10).collect();
    let of = |percent: &u32| format!("lost at {percent} %");
    let header = ["frame, bytes".to_owned(), "line rate, 1,000 frames/s".to_owned()];
    let mut table = Table::new(header.into_iter().chain(offered.iter().map(of)));
    for row in rows {
        let cell = |percent: &u32| {
            let found = row.loss.iter().find(|loss| loss.offered_percent == *percent);
            found.map_or(String::new(), |loss| match loss.lost_percent {
                0.0 => "0".to_owned(),
                lost => format!("{lost:.1} %"),
            })
        };
        let first = [label(row), format!("{:.0}", row.line_rate / 1e3)];
        table.push(first.into_iter().chain(offered.iter().map(cell)));
    }
    table
}

fn plot(name: &str, title: &str, results: &Results, value: fn(&Row) -> (&str, f64)) -> Plot {
    let series = Technology::ALL.into_iter().filter_map(|technology| {
        let rows = rows_of(results, technology);
        let rows = rows.into_iter().filter(|row| row.foreground_percent == SHARES[0]);
        let points = rows.map(|row| (f64::from(row.frame), value(row).1));
        // No rate without loss: nothing on an axis of logarithms.
        let points: Vec<_> = points.filter(|(_, value)| *value > 0.0).collect();
        (!points.is_empty()).then(|| Series::new(technology.name(), Style::Line, points))
    });
    let unit = results.rows.first().map_or("", |row| value(row).0);
    Plot {
        name: name.into(),
        title: title.into(),
        x: Axis::log("bytes of a frame"),
        y: Axis::log(unit),
        series: series.collect(),
    }
}
