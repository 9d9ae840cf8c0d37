//! The report: a table for each test, the thesis's figures beside natgate's, and a plot of the
//! delays.

use super::{Added, Delay, Part, Results, paper};
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use crate::spread::Spread;

/// Target: highest additional delay of 99 of 100 packets at half the load, microseconds.
const ADDED_P99: f64 = 20.0;

pub(super) fn write(mut report: Report, parts: &[Part], results: &Results) -> Report {
    report.data(results);
    report.text(format!(
        "natgate by {}, between cables (veth); one processor for the tester, one for natgate. \
         Trials of {} s; {} repetitions, in which all subjects have their turns. Without NAT is \
         the same program with a rule that has everything pass. The thesis is Chugh's of 2003, on \
         a router of that time.",
        results.back_end, results.trial_seconds, results.repetitions
    ));
    for part in parts {
        match part {
            Part::Transit => transit(&mut report, results),
            Part::Delay => {
                delay(&mut report, results);
                memory(&mut report, results);
            }
            Part::Throughput => throughput(&mut report, results),
            Part::Latency => latency(&mut report, results),
            Part::Processor => processor(&mut report, results),
            Part::Creation => creation(&mut report, results),
        }
    }
    if !results.failed.is_empty() {
        report.text("## What could not be measured");
        report.text(results.failed.iter().map(|why| format!("- {why}\n")).collect::<String>());
    }
    report
}

fn percentiles(delay: &Delay) -> [String; 4] {
    [delay.p50, delay.p99, delay.p999, delay.max].map(|us| format!("{us:.1}"))
}

/// Median with the 10th and the 90th percentile.
fn spread(spread: &Spread, text: impl Fn(f64) -> String) -> String {
    let [median, p10, p90] = [spread.median, spread.p10, spread.p90].map(text);
    format!("{median} ({p10} to {p90})")
}

fn transit(report: &mut Report, results: &Results) {
    report.text(
        "## Delay in one process\n\nNanoseconds from the time when a frame of 64 bytes is ready \
         on the inside to the time when it has left on the outside, by the processor's counter on \
         both ends. The devices are in memory: no cable, no kernel. One packet at a time, of \
         entries at random. Medians of the repetitions, in parentheses 10 % to 90 % of them. \
         Added: the median less that without NAT in the same repetition.",
    );
    let mut table = Table::new(["entries", "p50, ns", "p99, ns", "added, ns"]);
    for row in &results.transit {
        let cell = |value: &Spread| spread(value, |ns| format!("{ns:.0}"));
        let cells = [cell(&row.p50), cell(&row.p99), cell(&row.added)];
        table.push([grouped(row.entries.into())].into_iter().chain(cells));
    }
    report.table(table);
}

fn delay(report: &mut Report, results: &Results) {
    report.text(
        "## Delay\n\nMicroseconds from sending to receiving, at 10,000 packets a second, by the \
         number of entries; 0: without NAT. Medians of the repetitions, in parentheses 10 % to \
         90 % of them; p99 to lost: of the repetition with the median p50. Added: the median less \
         that without NAT in the same repetition.",
    );
    let mut table =
        Table::new(["entries", "frames", "p50", "p99", "p99.9", "max", "added", "lost"]);
    for row in &results.delay {
        let [_, others @ ..] = percentiles(&row.delay);
        let first = [
            grouped(row.entries.into()),
            row.frames.clone(),
            spread(&row.p50, |us| format!("{us:.1}")),
        ];
        let last = [spread(&row.added, |us| format!("{us:+.1}")), row.delay.lost.to_string()];
        table.push(first.into_iter().chain(others).chain(last));
    }
    report.table(table);
    let mut table =
        Table::new(["thesis: frames", "without NAT, us", "20,000 entries, us", "added"]);
    for (frames, without, with) in paper::DELAY_MS {
        let us = [without * 1e3, with * 1e3, (with - without) * 1e3].map(|us| format!("{us:.2}"));
        table.push([frames.to_owned()].into_iter().chain(us));
    }
    report.table(table);
    let series = results.delay.iter().filter(|row| row.frames == "64").map(|row| {
        let name = match row.entries {
            0 => "without NAT".to_owned(),
            entries => format!("{} entries", grouped(entries.into())),
        };
        Series::new(&name, Style::Line, row.delay.curve.clone())
    });
    report.plot(Plot {
        name: "delay".into(),
        title: "64 bytes: packets that took longer".into(),
        x: Axis::log("microseconds"),
        y: Axis::log("share of the packets"),
        series: series.collect(),
    });
}

fn throughput(report: &mut Report, results: &Results) {
    report.text(
        "## Throughput\n\nHighest rates, 1,000 packets a second, by what may be lost (RFC 2544; \
         0.1 % is the thesis's; 0.5 % is FD.io's PDR), each by a search of its own to 3 %. Medians \
         of half as many repetitions, in parentheses 10 % to 90 % of them. A pause of the machine \
         that the receive ring does not bridge is a loss; least is lost where the machine is not \
         shared. The change is by NAT at 0.1 %, within a repetition.",
    );
    let mut table = Table::new(["NAT", "frames", "none", "0.1 %", "0.5 %", "change", ""]);
    for row in &results.throughput {
        let cell = |rates: &Spread| spread(rates, |rate| format!("{:.0}", rate / 1e3));
        let rates =
            [cell(&row.none_lost), cell(&row.lost_0_1_percent), cell(&row.lost_0_5_percent)];
        let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
        let change = if row.nat { spread(&row.to_bypass, percent) } else { String::new() };
        let limit = if row.tester_limited { "the tester's limit" } else { "" };
        let first = [if row.nat { "yes" } else { "no" }.to_owned(), row.frames.clone()];
        table.push(first.into_iter().chain(rates).chain([change, limit.to_owned()]));
    }
    report.table(table);
    report.text(format!(
        "The thesis: {:.0} % at 64 bytes with 1,000 entries.",
        paper::THROUGHPUT_CHANGE * 100.0
    ));
}

fn memory(report: &mut Report, results: &Results) {
    report.text(
        "## Memory\n\nWhat the program has resident. Room for all entries is taken at the start; \
         an entry's bytes are those with entries, less those of the smallest, by the entries.",
    );
    let mut table = Table::new(["entries", "before, MiB", "with them, MiB", "bytes an entry"]);
    let least = results.memory.iter().map(|row| row.before).min().unwrap_or(0);
    for row in &results.memory {
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let each = row.with.saturating_sub(least) as f64 / f64::from(row.entries);
        // Pages are too large to show the memory of a few entries.
        let each = if row.entries < 20_000 { String::new() } else { format!("{each:.0}") };
        table.push([grouped(row.entries.into()), mib(row.before), mib(row.with), each]);
    }
    table.push([
        "thesis: 1 to 1,000".to_owned(),
        String::new(),
        String::new(),
        paper::BYTES_PER_ENTRY.to_string(),
    ]);
    report.table(table);
}

fn processor(report: &mut Report, results: &Results) {
    report.text(
        "## Processor time\n\nNanoseconds a packet, what the kernel does for natgate's devices \
         included, at the highest rate at which at most 1 % is lost (in parentheses, 1,000 packets \
         a second).",
    );
    let mut frames: Vec<&str> = Vec::new();
    for row in &results.processor {
        if !frames.contains(&row.frames.as_str()) {
            frames.push(&row.frames);
        }
    }
    let mut table = Table::new(["entries"].into_iter().chain(frames.iter().copied()));
    let mut entries: Vec<u32> = results.processor.iter().map(|row| row.entries).collect();
    entries.dedup();
    for entries in entries {
        let rows = results.processor.iter().filter(|row| row.entries == entries);
        let cells = rows.map(|row| format!("{:.0} ({:.0})", row.ns_per_packet, row.pps / 1e3));
        table.push([grouped(entries.into())].into_iter().chain(cells));
    }
    report.table(table);
    let [low, high] = paper::PROCESSOR.map(|share| share * 100.0);
    report.text(format!(
        "The thesis: its processor was in use for {low:.0} to {high:.0} % at 64 bytes, by entries."
    ));
}

fn creation(report: &mut Report, results: &Results) {
    report.text("## Entries made\n\nHighest rate at which no new entry's packet is lost.");
    let mut table = Table::new(["entries that there are", "new entries a second", ""]);
    for row in &results.creation {
        let rate = grouped(row.rate as u64);
        let limit = if row.tester_limited { "the tester's limit" } else { "" };
        table.push([grouped(row.entries.into()), rate, limit.to_owned()]);
    }
    report.table(table);
}

fn latency(report: &mut Report, results: &Results) {
    report.text(
        "## Latency under load\n\nMicroseconds at shares of the highest rate without loss with \
         NAT, and at the same rates without NAT; 64-byte frames. Both take turns, and each turn is \
         measured in slices of a fifth of a trial; of these, the one with the median 99th \
         percentile. Least: the 99th percentile that a tenth of the slices stay below, such as the \
         machine disturbs little. Spread: how much that of every other turn differs from that of \
         those between; what is less cannot be told. Where the tester cannot keep the rate, its \
         own queue is in the figures.",
    );
    let mut table = Table::new([
        "NAT",
        "load",
        "kpps",
        "p50",
        "p99",
        "p99.9",
        "max",
        "least p99",
        "spread",
        "tester",
    ]);
    for row in &results.latency {
        let first = [
            if row.nat { "yes" } else { "no" }.to_owned(),
            format!("{:.0} %", row.share * 100.0),
            format!("{:.0}", row.pps / 1e3),
        ];
        let pace = if row.delay.kept_pace { "kept pace" } else { "fell behind" };
        let least = [row.least_p99, row.spread].map(|us| format!("{us:.1}"));
        let cells = first.into_iter().chain(percentiles(&row.delay));
        table.push(cells.chain(least).chain([pace.to_owned()]));
    }
    report.table(table);
    let (found, verdict) = match results.added_p99_us {
        Some(Added { added, spread }) => {
            let verdict = match added {
                _ if spread >= ADDED_P99 || added <= -ADDED_P99 => "cannot be told here",
                _ if added < ADDED_P99 => "reached",
                _ => "not reached",
            };
            (format!("{added:.1} us, spread {spread:.1} us"), verdict)
        }
        None => ("-".to_owned(), "not measured"),
    };
    report.table(Table::new(["target", "wanted", "found", ""]).row([
        "least p99 added by NAT at half load".to_owned(),
        format!("below {ADDED_P99:.0} us"),
        found,
        verdict.to_owned(),
    ]));
}
