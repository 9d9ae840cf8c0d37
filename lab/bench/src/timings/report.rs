//! The report: the engine's calls by entries, the largest tables, both guests side by side with the
//! paper's ratios, and the reached targets.

use super::figures::{Figure, What};
use super::guests::{Largest, Pair};
use super::paper::{self, Compared};
use super::{Card, Internal, Results};
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use crate::spread::Spread;
use natgate_timings::{Cost, ROOM, Timing};
use serde::Serialize;

/// Target: ratio of the image's packets a second to the Linux guest's.
const PACKETS: f64 = 1.5;
/// Target: highest ratio of the image's round trip to the Linux guest's.
const ROUND_TRIP: f64 = 1.0;
/// Target: seconds to the first forwarded packet.
const FIRST_PACKET: f64 = 1.0;

/// A target and its result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Target {
    /// Card of the guests; `None` if the target does not depend on it.
    card: Option<Card>,
    what: &'static str,
    /// Lowest value, or with `at_most` the highest.
    wanted: f64,
    at_most: bool,
    /// Measured value; `None` if it was not measured.
    found: Option<f64>,
    reached: Option<bool>,
}

impl Target {
    fn new(what: &'static str, wanted: f64, at_most: bool, found: Option<f64>) -> Self {
        let found = found.filter(|found| found.is_finite());
        let is_reached = |found| if at_most { found <= wanted } else { found >= wanted };
        let reached = found.map(is_reached);
        Self { card: None, what, wanted, at_most, found, reached }
    }
}

/// Median of a measured spread.
fn measured(spread: &Spread) -> Option<f64> {
    (spread.runs > 0).then_some(spread.median)
}

/// Targets of the image, relative to the Linux guest and absolute.
pub(super) fn targets(results: &Results) -> Vec<Target> {
    let of_card = |card: Card| {
        let pair = results.guests.iter().find(|pair| pair.card == card);
        beside(pair).map(|target| Target { card: Some(card), ..target })
    };
    let smallest = results.largest.iter().min_by_key(|largest| largest.mebibytes);
    let entries = smallest.map(|largest| f64::from(largest.fill.entries));
    let table = Target::new("records in the smallest machine's table", ROOM.into(), false, entries);
    Card::ALL.into_iter().flat_map(of_card).chain([table]).collect()
}

fn beside(pair: Option<&Pair>) -> [Target; 4] {
    let figures = pair.map_or(&[][..], |pair| &pair.figures);
    let figure = |what: What| figures.iter().find(|figure| figure.what == what);
    let ratio = |what: What| figure(what).and_then(|figure| measured(&figure.ratio));
    let round_trips = figures.iter().filter(|figure| matches!(figure.what, What::RoundTrip(_)));
    let slowest = round_trips.filter_map(|figure| measured(&figure.ratio)).reduce(f64::max);
    let boot = figure(What::FirstPacket).and_then(|figure| measured(&figure.image));
    let (tcp, mixed) = (ratio(What::Tcp), ratio(What::Mixed));
    [
        Target::new("packets a second, TCP, times Linux'", PACKETS, false, tcp),
        Target::new("packets a second, 80 % TCP, times Linux'", PACKETS, false, mixed),
        Target::new("round trip, times Linux', worst size", ROUND_TRIP, true, slowest),
        Target::new("seconds to the first packet forwarded", FIRST_PACKET, true, boot),
    ]
}

pub(super) fn write(mut report: Report, results: &Results) -> Report {
    report.data(results);
    report.text(
        "The paper is Tsetse, Wijesinha, Karne and Loukili's of 2012: a NAT without an operating \
         system on a PC of that time, beside Linux with iptables on the same.",
    );
    internal(&mut report, &results.internal);
    if !results.largest.is_empty() {
        largest(&mut report, &results.largest);
    }
    for pair in &results.guests {
        beside_linux(&mut report, pair, results);
    }
    if !results.guests.is_empty() {
        report.text("## Targets");
        report.table(target_table(&results.targets));
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

fn largest(report: &mut Report, all: &[Largest]) {
    report.text(
        "## The largest table\n\nThe image on machines with so much memory: as many records as \
         three quarters of what is free hold, all of them in use at once, each made by the first \
         packet of a flow; then packets of these flows.",
    );
    let head = ["MiB", "records", "bytes each", "add, ns", "forward, ns", "forward, p99"];
    let mut table = Table::new(head);
    for Largest { mebibytes, fill } in all {
        let each = fill.table / u64::from(fill.entries);
        let times = [fill.add.median_ns, fill.forward.median_ns, fill.forward.p99_ns];
        let times = times.map(|ns| format!("{ns:.0}"));
        let sizes = [u64::from(*mebibytes), fill.entries.into(), each].map(grouped);
        table.push(sizes.into_iter().chain(times));
    }
    report.table(table);
}

fn beside_linux(report: &mut Report, pair: &Pair, results: &Results) {
    let card = pair.card.device();
    report.text(format!(
        "## Beside a Linux guest: {card}\n\nThe image, and Linux {} with an nftables masquerade: \
         QEMU, processors emulated (TCG), one processor, 512 MiB, two {card} cards, kernels of \
         network namespaces at both ends. Both are booted {} times; then one stands still while \
         the other is measured at one thing, and the other way round, so that what else the host \
         does is shared. Emulation is slow, so only the ratios mean something: the median of those \
         of neighbouring measurements, the least and the largest beside it. All else are medians.",
        pair.kernel, results.rounds
    ));
    report.table(side_by_side(&pair.figures));
    report.text(format!(
        "Packets are counted behind the gateway, both directions together, for {} s, while 16 TCP \
         connections send segments of at most 88 bytes. The first packet is one of many that are \
         sent from the emulator's start on. The paper measured over links of 100 Mbit/s; its \
         throughput is at its largest segments.",
        results.seconds
    ));
    let series = |of: fn(What) -> Option<u16>| {
        let line = |name, value: fn(&Figure) -> f64| {
            let points = pair.figures.iter().filter_map(|figure| {
                of(figure.what).map(|bytes| (f64::from(bytes), value(figure)))
            });
            Series::new(name, Style::Line, points.collect())
        };
        let image = line("natgate image", |figure| figure.image.median);
        vec![image, line("Linux guest", |figure| figure.linux.median)]
    };
    report.plot(Plot {
        name: format!("{card}-round-trip"),
        title: format!("Round trip, {card}"),
        x: Axis::linear("bytes that the ping carries"),
        y: Axis::linear("microseconds"),
        series: series(|what| match what {
            What::RoundTrip(bytes) => Some(bytes),
            _ => None,
        }),
    });
    report.plot(Plot {
        name: format!("{card}-throughput"),
        title: format!("Throughput of 16 TCP connections, {card}"),
        x: Axis::linear("bytes of the largest segment"),
        y: Axis::linear("Mbit/s"),
        series: series(|what| match what {
            What::Throughput(segment) => Some(segment),
            _ => None,
        }),
    });
}

fn side_by_side(figures: &[Figure]) -> Table {
    let head = ["", "image", "Linux", "image / Linux", "least", "largest", "paper: bare / Linux"];
    let mut table = Table::new(head);
    let cell = |value: Option<f64>| match value {
        Some(value) if value >= 1000.0 => grouped(value as u64),
        Some(value) => format!("{value:.2}"),
        // A round that failed half-way lacks some figures.
        None => "-".to_owned(),
    };
    for Figure { what, image, linux, ratio } in figures {
        let ratios = [ratio.median, ratio.min, ratio.max];
        let ratios = ratios.map(|one| cell((ratio.runs > 0).then_some(one)));
        let paper = what.paper().as_ref().map(Compared::ratio);
        let paper = paper.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let both = [cell(measured(image)), cell(measured(linux))];
        table.push([what.text()].into_iter().chain(both).chain(ratios).chain([paper]));
    }
    table
}

fn target_table(targets: &[Target]) -> Table {
    let mut table = Table::new(["cards", "target", "wanted", "found", ""]);
    for target in targets {
        let limit = if target.at_most { "at most" } else { "at least" };
        let number = |number: f64| match number {
            number if number >= 1000.0 => grouped(number as u64),
            number => format!("{number:.2}"),
        };
        let found = target.found.map_or("-".to_owned(), number);
        let verdict = match target.reached {
            Some(true) => "reached",
            Some(false) => "not reached",
            None => "not measured",
        };
        let wanted = format!("{limit} {}", number(target.wanted));
        let card = target.card.map_or("", Card::device);
        table.push([card, target.what, &wanted, &found, verdict]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timings::figures::Samples;
    use natgate_timings::Fill;

    /// Both guests with one kind of card. The image's rates are `times` times Linux', and its round
    /// trips the reverse.
    fn pair(card: Card, times: f64) -> Pair {
        let mut samples = Samples::default();
        samples.add(What::FirstPacket, &[1.0 / times], &[1.0]);
        samples.add(What::Tcp, &[1e3 * times], &[1e3]);
        samples.add(What::Mixed, &[1e3 * times], &[1e3]);
        for bytes in [64, 512] {
            samples.add(What::RoundTrip(bytes), &[1.0 / times], &[1.0]);
        }
        Pair { card, kernel: "6.1".into(), figures: samples.figures() }
    }

    fn results(guests: Vec<Pair>, entries: u32) -> Results {
        let cost = Cost { median_ns: 1.0, p99_ns: 2.0, calls: 3 };
        let fill = Fill { memory: 9, table: 8, entries, add: cost, forward: cost };
        Results {
            rounds: 1,
            seconds: 1,
            internal: Vec::new(),
            largest: vec![Largest { mebibytes: 512, fill }],
            guests,
            targets: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn verdicts(results: &Results) -> Vec<Option<bool>> {
        targets(results).iter().map(|target| target.reached).collect()
    }

    #[test]
    fn targets_are_about_the_ratios_the_boot_and_the_table() {
        let all = [(Card::VirtioNet, 2.0), (Card::E1000, 0.5), (Card::E1000e, 2.0)];
        let all = all.map(|(card, times)| pair(card, times));
        let found = verdicts(&results(all.to_vec(), ROOM));
        let expected = [[Some(true); 4], [Some(false); 4], [Some(true); 4]].concat();
        assert_eq!(found, [&expected[..], &[Some(true)]].concat());
        let found = verdicts(&results(all[1..2].to_vec(), ROOM - 1));
        let missing = [None; 4];
        assert_eq!(found, [&missing[..], &[Some(false); 4], &missing, &[Some(false)]].concat());
    }

    #[test]
    fn one_slow_size_is_enough() {
        let mut samples = Samples::default();
        samples.add(What::RoundTrip(64), &[1.0], &[2.0]);
        samples.add(What::RoundTrip(512), &[3.0], &[2.0]);
        let figures = samples.figures();
        let pair = Pair { card: Card::VirtioNet, kernel: "6.1".into(), figures };
        assert_eq!(verdicts(&results(vec![pair], ROOM))[..4], [None, None, Some(false), None]);
    }
}
