//! The report: a table for each driver, number of cores, number of entries and way; the ratio of
//! Rust's time to natgate's; and plots with the paper's figures.

use super::{DEVICES, ENGINE, Failed, MEMORY, NATGATE, Results, Row, Way};
use crate::engine::grouped;
use crate::program::With;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use serde::Serialize;

const INTRODUCTION: &str = "\
The same Ethernet frames, UDP flows drawn at random, through each: the NAT in P4 as Rust, \
interpreted, and by
DPDK's SWX where natgate was built with DPDK, and natgate, all with Ethernet, translation, routes \
and neighbours. Nanoseconds of processor time a packet, and in
parentheses cycles of the time-stamp counter; medians. In memory the subjects have their turns in \
every round, there
is no network, and what the devices alone take is in every other figure but the translator's, \
which gets bare IP
packets of one length; several cores have each everything of its own and share the flows. By a \
driver each has its
turn between two cables, at the highest rate at which at most 1 % is lost; the kernel's threads \
that take frames from
the cables count, and in parentheses are million packets a second of wall time, too. Several \
workers of a driver have
a queue of both devices each, and share the two processors with the tester; those of P4 take turns \
with one program.";

/// Target: highest ratio of P4 as Rust to natgate in time.
const WANTED: f64 = 1.5;
/// Target: packets a second of one core with DPDK's SWX in memory, millions.
const WANTED_SWX: f64 = 4.0;

/// Shortest frame, bytes, with which the paper's DPDK reaches the rate of its link of 10 Gbit/s:
/// 4.52 million packets a second.
const PAPER_FRAME: u16 = 256;

/// All subjects, in the order of tables and plots.
const SUBJECTS: [&str; 6] =
    [NATGATE, With::Rust.name(), With::Swx.name(), With::Interpreter.name(), ENGINE, DEVICES];

/// Rows of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    driver: &'static str,
    cores: u16,
    entries: u32,
    way: Way,
}

impl Group {
    fn of(row: &Row) -> Self {
        let place = row.place;
        Self { driver: place.driver, cores: place.cores, entries: place.entries, way: place.way }
    }

    /// Driver and number of cores or workers, in words.
    fn bed(self) -> String {
        let (driver, what) = match self.driver {
            MEMORY => ("in memory".to_owned(), "cores"),
            driver => (format!("by {driver}"), "workers"),
        };
        if self.cores == 1 { driver } else { format!("{driver}, {} {what}", self.cores) }
    }
}

/// Ratio of P4 as Rust to natgate.
#[derive(Clone, Debug, Serialize)]
struct Ratio {
    driver: &'static str,
    cores: u16,
    way: Way,
    entries: u32,
    frame: u16,
    ratio: f64,
}

pub(super) fn write(mut report: Report, results: &Results) -> Report {
    #[derive(Serialize)]
    struct Data<'r> {
        cycles_per_ns: f64,
        wanted_ratio: f64,
        wanted_swx_mpps: f64,
        ratios: &'r [Ratio],
        rows: &'r [Row],
        failed: &'r [Failed],
    }
    let Results { rows, failed, cycles_per_ns } = results;
    let ratios = ratios(rows);
    report.data(&Data {
        cycles_per_ns: *cycles_per_ns,
        wanted_ratio: WANTED,
        wanted_swx_mpps: WANTED_SWX,
        ratios: &ratios,
        rows,
        failed,
    });
    report.text(INTRODUCTION);
    report.text(format!(
        "P4 as Rust is wanted within {WANTED} times what natgate takes: it is in {} of {} rows.",
        ratios.iter().filter(|ratio| ratio.ratio <= WANTED).count(),
        ratios.len()
    ));
    let by_swx = |row: &&Row| row.place.driver == MEMORY && row.place.subject == With::Swx.name();
    let rates: Vec<f64> =
        rows.iter().filter(by_swx).map(|row| row.mpps / f64::from(row.place.cores)).collect();
    if !rates.is_empty() {
        report.text(format!(
            "SWX is wanted to forward {WANTED_SWX} million packets a second of a core in memory: \
             it does in {} of {} rows.",
            rates.iter().filter(|rate| **rate >= WANTED_SWX).count(),
            rates.len()
        ));
    }
    for group in groups(rows) {
        let (bed, entries) = (capital(&group.bed()), grouped(group.entries.into()));
        report.text(format!("## {bed}, {entries} entries, {}", name(group.way)));
        report.table(table(rows, &ratios, group));
    }
    plots(rows).into_iter().for_each(|plot| report.plot(plot));
    if !failed.is_empty() {
        report.text("## What could not be measured");
        report.table(failures(failed));
    }
    report
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Upload => "upload",
        Way::Download => "download",
    }
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    first.to_ascii_uppercase() + rest
}

/// Removes repetitions and keeps the order.
fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    all.for_each(|one| {
        if !unique.contains(&one) {
            unique.push(one);
        }
    });
    unique
}

fn groups(rows: &[Row]) -> Vec<Group> {
    unique(rows.iter().map(Group::of))
}

fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let of = |row: &&Row| row.place.subject == With::Rust.name();
    let ratio = |row: &Row| {
        let place = row.place;
        let mut wanted = place;
        wanted.subject = NATGATE;
        let natgate = rows.iter().find(|other| other.place == wanted)?;
        Some(Ratio {
            driver: place.driver,
            cores: place.cores,
            way: place.way,
            entries: place.entries,
            frame: place.frame,
            ratio: row.ns.median / natgate.ns.median,
        })
    };
    rows.iter().filter(of).filter_map(ratio).collect()
}

fn table(rows: &[Row], ratios: &[Ratio], group: Group) -> Table {
    let own: Vec<&Row> = rows.iter().filter(|row| Group::of(row) == group).collect();
    let mut frames = unique(own.iter().map(|row| row.place.frame));
    frames.sort_unstable();
    let header = frames.iter().map(u16::to_string);
    let mut table = Table::new(["bytes".to_owned()].into_iter().chain(header));
    for subject in SUBJECTS {
        let cell = |frame: &u16| {
            let is_it = |row: &&&Row| (row.place.subject, row.place.frame) == (subject, *frame);
            own.iter().find(is_it).map(|row| cell(row))
        };
        let cells: Vec<Option<String>> = frames.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(Option::unwrap_or_default);
            table.push([subject.to_owned()].into_iter().chain(cells));
        }
    }
    let cell = |frame: &u16| {
        let is_it = |ratio: &&Ratio| {
            (ratio.driver, ratio.cores, ratio.entries, ratio.way, ratio.frame)
                == (group.driver, group.cores, group.entries, group.way, *frame)
        };
        let results = ratios.iter().find(is_it);
        results.map_or(String::new(), |ratio| format!("{:.2}", ratio.ratio))
    };
    table.push(["P4 as Rust by natgate".to_owned()].into_iter().chain(frames.iter().map(cell)));
    table
}

fn cell(row: &Row) -> String {
    let (ns, cycles) = (row.ns.median, row.cycles);
    match &row.live {
        Some(live) => format!("{ns:.0} ({cycles:.0}; {:.2})", live.wall_pps / 1e6),
        None => format!("{ns:.1} ({cycles:.0})"),
    }
}

/// Plots of packets a second by the frame's length, with the fewest and the most entries: one for
/// each driver, number of cores and way.
fn plots(rows: &[Row]) -> Vec<Plot> {
    let beds = groups(rows).into_iter().map(|group| (group.driver, group.cores, group.way));
    unique(beds).into_iter().map(|bed| plot(rows, bed)).collect()
}

fn plot(rows: &[Row], bed: (&'static str, u16, Way)) -> Plot {
    let (driver, cores, way) = bed;
    let own: Vec<&Row> = rows
        .iter()
        .filter(|row| (row.place.driver, row.place.cores, row.place.way) == bed)
        .collect();
    let sizes = || own.iter().map(|row| row.place.entries);
    let ends = unique(sizes().min().into_iter().chain(sizes().max()));
    let mut series = vec![paper(&own)];
    for entries in ends {
        for subject in SUBJECTS.into_iter().filter(|subject| *subject != ENGINE) {
            let is_it = |row: &&&Row| (row.place.subject, row.place.entries) == (subject, entries);
            let point = |row: &&Row| (f64::from(row.place.frame), row.mpps);
            let points: Vec<_> = own.iter().filter(is_it).map(point).collect();
            if !points.is_empty() {
                let name = format!("{subject}, {} entries", grouped(entries.into()));
                series.push(Series::new(&name, Style::Line, points));
            }
        }
    }
    let group = Group { driver, cores, entries: 0, way };
    Plot {
        name: format!("{driver}-{cores}-{}", name(way)),
        title: format!("{}, {}", capital(&group.bed()), name(way)),
        x: Axis::linear("frame, bytes"),
        y: Axis::log("million packets a second of processor time"),
        series,
    }
}

/// Rate of the paper's link at the measured lengths from which the paper reached it.
fn paper(rows: &[&Row]) -> Series {
    let mut frames = unique(rows.iter().map(|row| row.place.frame).chain([PAPER_FRAME]));
    frames.retain(|frame| *frame >= PAPER_FRAME);
    frames.sort_unstable();
    // A preamble and a gap lie between frames, 20 bytes together.
    let point = |frame: u16| (f64::from(frame), 10e3 / 8.0 / f64::from(frame + 20));
    let points = frames.into_iter().map(point).collect();
    Series::new("the paper: DPDK, 100 entries, 10 Gbit/s", Style::Points, points)
}

fn failures(failed: &[Failed]) -> Table {
    let mut table = Table::new(["driver", "cores", "subject", "entries", "why"]);
    for Failed { driver, cores, subject, entries, why } in failed {
        table.push([
            (*driver).to_owned(),
            cores.to_string(),
            (*subject).to_owned(),
            grouped((*entries).into()),
            why.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_link_carries_what_the_paper_says() {
        let series = paper(&[]);
        assert_eq!(series.points.len(), 1);
        assert!((series.points[0].1 - 4.52).abs() < 0.02, "{:?}", series.points);
    }
}
