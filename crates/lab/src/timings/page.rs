//! The report: the engine's calls by entries, both guests side by side with the paper's ratios, and
//! which targets are reached.

use super::guests::{IMAGE, LINUX};
use super::paper::{self, Compared};
use super::{Internal, Results, Row};
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use natgate_timings::{Cost, Timing};
use serde::Serialize;

/// How many times the Linux guest's packets a second the image is to forward.
const PACKETS: f64 = 1.5;
/// How many times the Linux guest's round trip it may take at most.
const ROUND_TRIP: f64 = 1.0;
/// Seconds after which it is to have forwarded a packet.
const FIRST_PACKET: f64 = 1.0;

/// What is to be reached, and whether it is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Target {
    what: &'static str,
    /// At least so much; `at_most`: at most.
    wanted: f64,
    at_most: bool,
    /// `None`: not measured.
    found: Option<f64>,
    reached: Option<bool>,
}

impl Target {
    fn new(what: &'static str, wanted: f64, at_most: bool, found: Option<f64>) -> Self {
        let found = found.filter(|found| found.is_finite());
        let is_reached = |found| if at_most { found <= wanted } else { found >= wanted };
        Self { what, wanted, at_most, found, reached: found.map(is_reached) }
    }
}

/// The image's row and the Linux guest's.
fn pair(rows: &[Row]) -> Option<(&Row, &Row)> {
    let row = |name| rows.iter().find(|row| row.guest == name);
    Some((row(IMAGE)?, row(LINUX)?))
}

/// What the image is to reach beside the Linux guest.
pub(super) fn targets(rows: &[Row]) -> Vec<Target> {
    let pair = pair(rows).filter(|(image, linux)| {
        // Otherwise no turn of one of them went to its end.
        [image, linux].iter().all(|row| row.mixed_pps.runs > 0)
    });
    let of = |figure: fn(&Row) -> f64| pair.map(|(image, linux)| figure(image) / figure(linux));
    let slowest = pair.and_then(|(image, linux)| {
        let both = image.round_trips.iter().zip(&linux.round_trips);
        both.map(|(image, linux)| image.us.median / linux.us.median).reduce(f64::max)
    });
    let boot = pair.map(|(image, _)| image.first_packet_s.median);
    let tcp = of(|row| row.tcp_pps.median);
    let mixed = of(|row| row.mixed_pps.median);
    vec![
        Target::new("packets a second, TCP, times Linux'", PACKETS, false, tcp),
        Target::new("packets a second, 80 % TCP, times Linux'", PACKETS, false, mixed),
        Target::new("round trip, times Linux', worst size", ROUND_TRIP, true, slowest),
        Target::new("seconds to the first packet forwarded", FIRST_PACKET, true, boot),
    ]
}

pub(super) fn page(mut report: Report, results: &Results) -> Report {
    report.data(results);
    report.text(
        "The paper is Tsetse, Wijesinha, Karne and Loukili's of 2012: a NAT without an operating \
         system on a PC of that time, beside Linux with iptables on the same.",
    );
    internal(&mut report, &results.internal);
    if !results.guests.is_empty() {
        guests(&mut report, results);
    }
    if !results.failed.is_empty() {
        report.text("## What could not be measured");
        report.text(results.failed.iter().map(|why| format!("- {why}\n")).collect::<String>());
    }
    report
}

/// The three calls, with the paper's figures.
fn calls(timing: &Timing) -> [(&'static str, Cost, f64); 3] {
    let [add, look_up, forward] = paper::INTERNAL_US;
    [
        ("add an entry", timing.add, add),
        ("look up", timing.look_up, look_up),
        ("forward", timing.forward, forward),
    ]
}

fn internal(report: &mut Report, all: &[Internal]) {
    report.text(
        "## Internal timings\n\nNanoseconds a call, by the processor's counter: half take at most \
         so many, and 99 of 100. Adding is the first packet of a UDP flow, from the engine's \
         getting it to its verdict: checked, entry made, translated; forwarding is a later one; \
         looking up finds the mapping that an external endpoint belongs to. The table has room for \
         100,000 entries. The image and the Linux guest run in an emulator, the Linux program does \
         not: compare these two with each other, and the program with the paper.",
    );
    let mut table = Table::new(["where", "entries", "call", "median", "p99", "paper"]);
    for Internal { place, timings } in all {
        for timing in timings {
            for (call, cost, paper_us) in calls(timing) {
                let figures = [cost.median_ns, cost.p99_ns].map(|ns| format!("{ns:.0}"));
                let [median, p99] = figures;
                let paper = grouped((paper_us * 1e3) as u64);
                let entries = grouped(timing.entries.into());
                table.push([(*place).to_owned(), entries, call.to_owned(), median, p99, paper]);
            }
        }
    }
    report.table(table);
    let mut series = Vec::new();
    for Internal { place, timings } in all {
        for call in 0..3 {
            let point = |timing: &Timing| {
                let (name, cost, _) = calls(timing)[call];
                (name, (f64::from(timing.entries), cost.median_ns))
            };
            let points: Vec<_> = timings.iter().map(point).collect();
            let name = points.first().map_or("", |(name, _)| name);
            let points = points.iter().map(|(_, at)| *at).collect();
            series.push(Series::new(&format!("{place}: {name}"), Style::Line, points));
        }
    }
    let [add, look_up, forward] = paper::INTERNAL_US.map(|us| us * 1e3);
    for (name, ns) in [("add", add), ("look up", look_up), ("forward", forward)] {
        let points = vec![(100.0, ns), (100_000.0, ns)];
        series.push(Series::new(&format!("paper: {name}"), Style::Dashed, points));
    }
    report.plot(Plot {
        name: String::new(),
        title: "What a call takes".into(),
        x: Axis::log("entries"),
        y: Axis::log("nanoseconds"),
        series,
    });
}

fn guests(report: &mut Report, results: &Results) {
    report.text(format!(
        "## Beside a Linux guest\n\nThe image, and Linux {} with an nftables masquerade, in turns, \
         each {} times: QEMU, processors emulated (TCG), one processor, 512 MiB, two virtio cards, \
         kernels of network namespaces at both ends. Emulation is slow, so only the ratios mean \
         something. Medians; of round trips also the least, which the host disturbed least.",
        results.kernel, results.rounds
    ));
    if let Some((image, linux)) = pair(&results.guests) {
        report.table(side_by_side(image, linux));
        report.text(format!(
            "Packets are counted behind the gateway, both directions together, for {} s, while 16 \
             TCP connections send segments of at most 88 bytes; mixed, UDP was {:.0} % of them \
             through the image and {:.0} % through Linux. The first packet is one of many that are \
             sent from the emulator's start on. The paper measured over links of 100 Mbit/s; its \
             throughput is at its largest segments.",
            results.seconds,
            image.udp_share * 100.0,
            linux.udp_share * 100.0
        ));
    }
    report.text("## Targets");
    report.table(target_table(&results.targets));
    let series = |of: fn(&Row) -> Vec<(f64, f64)>| {
        let rows = results.guests.iter();
        rows.map(|row| Series::new(row.guest, Style::Line, of(row))).collect()
    };
    report.plot(Plot {
        name: "round-trip".into(),
        title: "Round trip".into(),
        x: Axis::linear("bytes that the ping carries"),
        y: Axis::linear("microseconds"),
        series: series(|row| {
            let all = row.round_trips.iter();
            all.map(|found| (f64::from(found.bytes), found.us.median)).collect()
        }),
    });
    report.plot(Plot {
        name: "throughput".into(),
        title: "Throughput of 16 TCP connections".into(),
        x: Axis::linear("bytes of the largest segment"),
        y: Axis::linear("Mbit/s"),
        series: series(|row| {
            let all = row.throughput.iter();
            all.map(|found| (f64::from(found.segment), found.mbit_s.median)).collect()
        }),
    });
}

fn side_by_side(image: &Row, linux: &Row) -> Table {
    let mut table = Table::new(["", "image", "Linux", "image / Linux", "paper: bare / Linux"]);
    let mut row = |what: String, image: f64, linux: f64, paper: Option<Compared>| {
        let figures = [image, linux].map(|figure| match figure {
            figure if figure >= 1000.0 => grouped(figure as u64),
            figure => format!("{figure:.2}"),
        });
        // A turn that failed half-way has some figures and not others.
        let ratio = Some(image / linux).filter(|ratio| ratio.is_finite());
        let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let paper = paper.map_or(String::new(), |paper| format!("{:.2}", paper.ratio()));
        table.push([what].into_iter().chain(figures).chain([ratio, paper]));
    };
    let both = |figure: fn(&Row) -> f64| (figure(image), figure(linux));
    let (ours, theirs) = both(|row| row.tcp_pps.median);
    row("packets a second, TCP".into(), ours, theirs, Some(paper::TCP_PPS));
    let (ours, theirs) = both(|row| row.mixed_pps.median);
    row("packets a second, 80 % TCP, 20 % UDP".into(), ours, theirs, Some(paper::MIXED_PPS));
    for (ours, theirs) in image.round_trips.iter().zip(&linux.round_trips) {
        let what = format!("round trip with {} bytes, us", ours.bytes);
        row(what.clone(), ours.us.median, theirs.us.median, None);
        row(format!("{what}, least"), ours.us.min, theirs.us.min, None);
    }
    let (ours, theirs) = both(|row| row.connection_us.median);
    row("HTTP connection, us".into(), ours, theirs, Some(paper::CONNECTION_MS));
    let (ours, theirs) = both(|row| row.response_us.median);
    row("HTTP response, us".into(), ours, theirs, Some(paper::RESPONSE_MS));
    let last = image.throughput.last().map(|found| found.segment);
    for (ours, theirs) in image.throughput.iter().zip(&linux.throughput) {
        let what = format!("16 TCP connections, segments of {} bytes, Mbit/s", ours.segment);
        let paper = (Some(ours.segment) == last).then_some(paper::THROUGHPUT);
        row(what, ours.mbit_s.median, theirs.mbit_s.median, paper);
    }
    let (ours, theirs) = both(|row| row.first_packet_s.median);
    row("seconds to the first packet".into(), ours, theirs, None);
    table
}

fn target_table(targets: &[Target]) -> Table {
    let mut table = Table::new(["target", "wanted", "found", ""]);
    for target in targets {
        let limit = if target.at_most { "at most" } else { "at least" };
        let found = target.found.map_or("-".to_owned(), |found| format!("{found:.2}"));
        let verdict = match target.reached {
            Some(true) => "reached",
            Some(false) => "not reached",
            None => "not measured",
        };
        let wanted = format!("{limit} {:.1}", target.wanted);
        table.push([target.what, &wanted, &found, verdict]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Spread;
    use crate::timings::RoundTrip;

    fn row(guest: &'static str, figure: f64) -> Row {
        let spread = |value| Spread::of(&[value]);
        Row {
            guest,
            first_packet_s: spread(figure),
            tcp_pps: spread(1e3 / figure),
            mixed_pps: spread(1e3 / figure),
            udp_share: 0.2,
            round_trips: [64, 512]
                .map(|bytes| RoundTrip { bytes, us: spread(figure * f64::from(bytes)) })
                .into(),
            connection_us: spread(figure),
            response_us: spread(figure),
            throughput: Vec::new(),
        }
    }

    fn verdicts(rows: &[Row]) -> Vec<Option<bool>> {
        targets(rows).iter().map(|target| target.reached).collect()
    }

    #[test]
    fn targets_are_about_the_ratios_and_the_boot() {
        let (quick, slow) = (row(IMAGE, 0.5), row(LINUX, 2.0));
        assert_eq!(verdicts(&[quick.clone(), slow]), [Some(true); 4]);
        assert_eq!(verdicts(&[row(IMAGE, 2.0), row(LINUX, 0.5)]), [Some(false); 4]);
        assert_eq!(verdicts(std::slice::from_ref(&quick)), [None; 4]);
        let mut half = row(LINUX, 2.0);
        half.mixed_pps = Spread::of(&[]);
        assert_eq!(verdicts(&[quick, half]), [None; 4]);
    }

    #[test]
    fn one_slow_size_is_enough() {
        let mut image = row(IMAGE, 0.5);
        image.round_trips[1].us = Spread::of(&[5000.0]);
        assert_eq!(verdicts(&[image, row(LINUX, 2.0)])[2], Some(false));
    }
}
