//! The report: a table for each number of mappings and way, a plot of packets by processor time,
//! and the reached targets.

use super::{Results, Row, workers};
use crate::bed::Price;
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use crate::spread::Spread;
use serde::Serialize;

/// A target of the project, and its result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Target {
    what: String,
    wanted: f64,
    /// Measured value; `None` if it was not measured.
    found: Option<f64>,
    reached: Option<bool>,
}

const MASQUERADE: &str = "Linux masquerade";
const XDP: &str = "natgate af-xdp";
const MILLION: u32 = 1_000_000;

pub(super) fn write(mut report: Report, results: &Results) -> Report {
    report.data(results);
    report.text(format!(
        "UDP flows drawn at random, all alike, each with a mapping of its own, at the highest rate \
         at which usually at most 1 % is lost, for {} s, {} times; medians. The tester has one \
         processor and what is measured another. Packets a second of processor time count all done \
         with a packet from the cable's end on: threads of the program, and the kernel's threads \
         of the two devices. Where what is measured was busy for less than its whole processor, \
         it slept between packets.",
        results.seconds, results.rounds
    ));
    report.text("## Targets");
    report.table(target_table(&results.targets));
    for (mappings, way) in groups(&results.rows) {
        let rows: Vec<&Row> = results
            .rows
            .iter()
            .filter(|row| row.case.mappings == mappings && row.case.way == way)
            .collect();
        report.text(format!("## {} mappings, {way}", grouped(mappings.into())));
        report.text("Million packets a second of processor time (of wall time; busy).");
        report.table(table(&rows));
    }
    for plot in plots(&results.rows) {
        report.plot(plot);
    }
    if !results.workers.is_empty() {
        report.text("## Workers");
        report.text(
            "The gateway's own loop with everything but a network, over devices that make their \
             packets themselves: one worker, then several, each on a processor of its own, turn \
             by turn over as many mappings together. Million packets a second of wall time, \
             medians. The ratio is the median of the rounds' ratios, so it may differ from that of \
             the medians; in parentheses the ratio by the threads' processor time. Sharing \
             nothing: the ratio for as many gateways with one worker each, the machine's limit.",
        );
        report.table(worker_table(&results.workers));
    }
    if !results.fast_path.is_empty() {
        report.text("## The fast path's table");
        report.text(
            "What the prototype's hash table takes, two entries a flow; and the program by itself, \
             over one packet again and again.",
        );
        report.table(price_table(&results.fast_path));
    }
    if !results.failed.is_empty() {
        report.text("## What could not be measured");
        let mut table = Table::new(["subject", "mappings", "why"]);
        for failed in &results.failed {
            table.push([
                named(&failed.subject, failed.workers),
                grouped(failed.mappings.into()),
                failed.why.clone(),
            ]);
        }
        report.table(table);
    }
    report
}

fn groups(rows: &[Row]) -> Vec<(u32, &'static str)> {
    let mut groups: Vec<(u32, &'static str)> = Vec::new();
    for row in rows {
        let group = (row.case.mappings, row.case.way);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

fn unique<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut unique = Vec::new();
    for value in values {
        if !unique.contains(&value) {
            unique.push(value);
        }
    }
    unique
}

fn named(subject: &str, workers: u16) -> String {
    if workers == 1 { subject.to_owned() } else { format!("{subject}, {workers} workers") }
}

fn table(rows: &[&Row]) -> Table {
    let frames = unique(rows.iter().map(|row| row.case.frames.as_str()));
    let mut table = Table::new(["subject"].into_iter().chain(frames.iter().copied()));
    let names: Vec<String> =
        rows.iter().map(|row| named(&row.case.subject, row.case.workers)).collect();
    for name in unique(names.iter().map(String::as_str)) {
        let cell = |frame: &&str| {
            let found = rows
                .iter()
                .zip(&names)
                .find(|(row, named)| row.case.frames == **frame && named.as_str() == name);
            found.map_or(String::new(), |(row, _)| {
                format!(
                    "{:.2} ({:.2}; {:.0} %)",
                    row.cpu_pps.median / 1e6,
                    row.wall_pps.median / 1e6,
                    row.busy * 100.0
                )
            })
        };
        table.push([name.to_owned()].into_iter().chain(frames.iter().map(cell)));
    }
    table
}

fn worker_table(rows: &[workers::Row]) -> Table {
    let mut table = Table::new([
        "workers",
        "mappings",
        "packets come to",
        "one",
        "all",
        "ratio",
        "sharing nothing",
    ]);
    for row in rows {
        let mpps = |spread: Spread| format!("{:.2}", spread.median / 1e6);
        let (times, by_processor) = (row.times.median, row.times_by_processor.median);
        table.push([
            row.workers.to_string(),
            grouped(row.mappings.into()),
            if row.steered { "whose they are" } else { "anyone" }.to_owned(),
            mpps(row.one_pps),
            mpps(row.all_pps),
            format!("{times:.2} ({by_processor:.2})"),
            format!("{:.2}", row.apart_times.median),
        ]);
    }
    table
}

fn price_table(prices: &[Price]) -> Table {
    let mut table = Table::new([
        "flows",
        "bytes a flow",
        "put an entry, ns",
        "read its time, ns",
        "run: found, ns",
        "run: missed, ns",
    ]);
    for price in prices {
        let Price { insert_ns, read_ns, found_ns, missed_ns, .. } = *price;
        let times = [price.bytes_per_flow, insert_ns, read_ns, found_ns, missed_ns];
        let flows = grouped(price.flows.into());
        table.push([flows].into_iter().chain(times.map(|time| format!("{time:.0}"))));
    }
    table
}

/// Plots of packets a second of processor time by length of frame, outbound, with the most
/// mappings.
fn plots(rows: &[Row]) -> Vec<Plot> {
    let Some(most) = rows.iter().map(|row| row.case.mappings).max() else { return Vec::new() };
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.case.mappings == most && row.case.way == rows[0].case.way)
        .collect();
    let series = unique(rows.iter().map(|row| row.case.subject.as_str())).into_iter().map(|name| {
        let own = rows.iter().filter(|row| row.case.subject == name && row.case.workers == 1);
        let points =
            own.filter_map(|row| Some((row.case.frames.parse().ok()?, row.cpu_pps.median / 1e6)));
        Series::new(name, Style::Line, points.collect())
    });
    let series: Vec<Series> = series.collect();
    vec![Plot {
        name: String::new(),
        title: format!("Packets by processor time, {} mappings", grouped(most.into())),
        x: Axis::log("frame, bytes"),
        y: Axis::linear("million packets a processor-second"),
        series,
    }]
}

fn target_table(targets: &[Target]) -> Table {
    let mut table = Table::new(["target", "wanted", "found", ""]);
    for target in targets {
        table.push([
            target.what.clone(),
            format!("{:.2}", target.wanted),
            target.found.map_or("-".into(), |found| format!("{found:.2}")),
            match target.reached {
                Some(true) => "reached",
                Some(false) => "not reached",
                None => "not measured",
            }
            .to_owned(),
        ]);
    }
    table
}

/// Targets of the project with the measured values.
pub(super) fn targets(rows: &[Row], workers: &[workers::Row]) -> Vec<Target> {
    let rate = |subject: &str, mappings: u32, frames: &str, way: &str| {
        let found = rows.iter().find(|row| {
            let case = &row.case;
            (case.subject.as_str(), case.workers) == (subject, 1)
                && (case.mappings, case.frames.as_str(), case.way) == (mappings, frames, way)
        });
        found.map(|row| row.cpu_pps.median)
    };
    let ratio = |over: &str, under: &str| {
        Some(rate(over, MILLION, "64", "up")? / rate(under, MILLION, "64", "up")?)
    };
    let least = rows
        .iter()
        .filter(|row| row.case.subject == XDP && row.case.workers == 1)
        .filter_map(|row| {
            let case = &row.case;
            let other = rate(MASQUERADE, case.mappings, &case.frames, case.way)?;
            Some(row.cpu_pps.median / other)
        })
        .reduce(f64::min);
    let two = workers.iter().find(|row| row.is_of(2, MILLION)).map(|row| row.times.median);
    let memif = rate("natgate dpdk", MILLION, "64", "up").map(|rate| rate / 1e6);
    let xdp_io = ratio(XDP, "af-xdp forwarder");
    let target = |what: &str, wanted: f64, found: Option<f64>| Target {
        what: what.to_owned(),
        wanted,
        found,
        reached: found.map(|found| found >= wanted),
    };
    vec![
        target(
            "AF_XDP over masquerade, by processor time, 64 bytes, 1 M mappings, up",
            1.5,
            ratio(XDP, MASQUERADE),
        ),
        target("the same at any size, way and number of mappings, at least", 1.0, least),
        target("AF_XDP over its forwarder that does not translate, 64 bytes, 1 M", 0.8, xdp_io),
        target("DPDK over memif, 64 bytes, 1 M mappings, Mpps a core", 4.0, memif),
        target("two workers over one, 1 M mappings, without a network, by wall time", 1.8, two),
    ]
}
