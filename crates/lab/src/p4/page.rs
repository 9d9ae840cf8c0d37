//! The report: a table for each number of entries and way, what Rust takes of what natgate takes, and plots.

use super::{DEVICES, ENGINE, INTERPRETED, NATGATE, RUST, Row, Way};
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use serde::Serialize;

const INTRODUCTION: &str = "\
The same Ethernet frames, UDP flows drawn at random, through each: the NAT in P4 interpreted, the same as Rust, and
natgate, all three with Ethernet, translation, routes and neighbours, one after the other in every round; one
processor, no network. Nanoseconds of the thread's processor time a packet, and cycles of the time-stamp counter;
medians. What the devices alone take is in every other figure but the translator's, which gets bare IP packets of
one length.";

/// What P4 as Rust should take at most of what natgate takes.
const WANTED: f64 = 1.5;

/// What the paper states: packets, millions a second, by DPDK from 256 bytes on, limited by a 10 Gbit/s link.
const PAPER: (f64, f64) = (256.0, 4.52);

/// P4 as Rust by natgate.
#[derive(Clone, Debug, Serialize)]
struct Ratio {
    way: Way,
    entries: u32,
    frame: u16,
    ratio: f64,
}

pub(super) fn write(report: &mut Report, rows: &[Row], cycles_per_ns: f64) {
    #[derive(Serialize)]
    struct Data<'r> {
        cycles_per_ns: f64,
        wanted_ratio: f64,
        ratios: &'r [Ratio],
        rows: &'r [Row],
    }
    let ratios = ratios(rows);
    report.data(&Data { cycles_per_ns, wanted_ratio: WANTED, ratios: &ratios, rows });
    report.text(INTRODUCTION);
    for (entries, way) in groups(rows) {
        let heading = format!("## {} entries, {}", grouped(entries.into()), name(way));
        report.text(heading);
        report.text("Nanoseconds a packet (cycles), by the frame's length.");
        report.table(table(rows, &ratios, entries, way));
    }
    report.text(format!(
        "P4 as Rust is wanted within {WANTED} times what natgate takes: it is in {} of {} rows.",
        ratios.iter().filter(|ratio| ratio.ratio <= WANTED).count(),
        ratios.len()
    ));
    for (entries, way) in groups(rows) {
        report.plot(plot(rows, entries, way));
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Upload => "upload",
        Way::Download => "download",
    }
}

fn groups(rows: &[Row]) -> Vec<(u32, Way)> {
    let mut groups = Vec::new();
    for row in rows {
        if !groups.contains(&(row.entries, row.way)) {
            groups.push((row.entries, row.way));
        }
    }
    groups
}

fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let of = |row: &&Row| row.subject == RUST;
    let ratio = |row: &Row| {
        let beside = |other: &&Row| {
            (other.subject, other.way, other.entries, other.frame)
                == (NATGATE, row.way, row.entries, row.frame)
        };
        let natgate = rows.iter().find(beside)?;
        let ratio = row.ns.median / natgate.ns.median;
        Some(Ratio { way: row.way, entries: row.entries, frame: row.frame, ratio })
    };
    rows.iter().filter(of).filter_map(ratio).collect()
}

fn table(rows: &[Row], ratios: &[Ratio], entries: u32, way: Way) -> Table {
    let own = |row: &&Row| (row.entries, row.way) == (entries, way);
    let mut frames: Vec<u16> = rows.iter().filter(own).map(|row| row.frame).collect();
    frames.sort_unstable();
    frames.dedup();
    let header = frames.iter().map(u16::to_string);
    let mut table = Table::new(std::iter::once(String::new()).chain(header));
    for subject in [NATGATE, RUST, INTERPRETED, ENGINE, DEVICES] {
        let cells: Vec<String> = frames
            .iter()
            .filter_map(|frame| {
                let is_it = |row: &&Row| row.subject == subject && row.frame == *frame;
                let row = rows.iter().filter(own).find(is_it)?;
                Some(format!("{:.1} ({:.0})", row.ns.median, row.cycles))
            })
            .collect();
        if !cells.is_empty() {
            table.push(std::iter::once(subject.to_owned()).chain(cells));
        }
    }
    let cells = ratios.iter().filter(|ratio| (ratio.entries, ratio.way) == (entries, way));
    let cells = cells.map(|ratio| format!("{:.2}", ratio.ratio));
    table.push(std::iter::once("P4 as Rust by natgate".to_owned()).chain(cells));
    table
}

/// Packets a second by the frame's length.
fn plot(rows: &[Row], entries: u32, way: Way) -> Plot {
    let series = |subject: &'static str| {
        let own = |row: &&Row| (row.subject, row.entries, row.way) == (subject, entries, way);
        let point = |row: &Row| (f64::from(row.frame), 1e3 / row.ns.median);
        Series::new(subject, Style::Line, rows.iter().filter(own).map(point).collect())
    };
    let paper = Series::new("the paper: DPDK, 10 Gbit/s", Style::Points, vec![PAPER]);
    let subjects = [NATGATE, RUST, INTERPRETED].map(series);
    Plot {
        name: format!("{entries}-{}", name(way)),
        title: format!("{} entries, {}", grouped(entries.into()), name(way)),
        x: Axis::linear("frame, bytes"),
        y: Axis::log("million packets a second of one processor, without a network"),
        series: subjects.into_iter().filter(|one| !one.points.is_empty()).chain([paper]).collect(),
    }
}
