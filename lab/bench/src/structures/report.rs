//! The report: tables and plots with the thesis's figures beside this project's, and the thesis's
//! statements beside the results.

use super::claims::{Claim, reference};
use super::experiment::{Size, Sizes};
use super::kind::Variant;
use super::threads::Threaded;
use super::{BATCH, claims, paper};
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use serde::Serialize;

/// Conversion of nanoseconds of processor time to cycles of the time-stamp counter.
#[derive(Clone, Copy)]
pub(super) struct Cycles(f64);

impl Cycles {
    pub(super) fn of(self, nanoseconds: f64) -> f64 {
        nanoseconds * self.0
    }
}

/// Writes the whole report.
pub(super) fn write(report: &mut Report, sizes: &Sizes, threads: &[Threaded]) {
    #[derive(Serialize)]
    struct Data<'a> {
        batch: usize,
        cycles_per_ns: f64,
        #[serde(flatten)]
        sizes: &'a Sizes,
        threads: &'a [Threaded],
        claims: Vec<Claim>,
    }
    let cycles = Cycles(report.machine().cycles_per_ns());
    let claims = claims::compare(sizes, threads, cycles);
    report.text(INTRODUCTION);
    report.table(claims::table(&claims));
    report.text(claims::order(sizes));
    report.text(PAPERS_WAY);
    report.plot(papers_plot(sizes, cycles));
    report.table(by_sessions(sizes, cycles, |size| size.paper_ns.spread.median));
    report.plot(mpps_plot(sizes));
    report.text(ESTABLISHED);
    report.plot(cycles_plot("found", "Established, uniform", sizes, cycles, at_its_best, |size| {
        size.found_ns.spread.median
    }));
    report.table(by_sessions(sizes, cycles, |size| size.found_ns.spread.median));
    report.plot(cycles_plot("zipf", "Established, Zipf", sizes, cycles, at_its_best, |size| {
        size.zipf_ns.spread.median
    }));
    report.table(by_sessions(sizes, cycles, |size| size.zipf_ns.spread.median));
    report.text(DETAIL);
    report.table(detail(sizes, cycles));
    for stop in &sizes.stopped {
        let (name, sessions) = (&stop.structure, stop.sessions);
        report.text(format!("- {name}: not at {sessions} sessions: {}", stop.reason));
    }
    report.text(THREADS);
    report.plot(threads_plot(threads));
    report.table(threads_table(threads));
    let cycles_per_ns = cycles.0;
    report.data(&Data { batch: BATCH, cycles_per_ns, sizes, threads, claims });
}

const INTRODUCTION: &str = "\
Cycles are those of the time-stamp counter, made from the processor time of the measuring thread;
medians over the repetitions. `batched`: what a batch of 32 packets needs is fetched together. How \
it
is measured, and where that differs from the thesis, is in lab/bench/src/structures/README.md.

## The thesis's statements";

const PAPERS_WAY: &str = "\
## Cycles a packet, the thesis's way

Every session is made by a packet out and answered by a packet in: half of what both take.";

const ESTABLISHED: &str = "\
## Cycles a packet out of an established session

Beyond the thesis: sessions drawn at random, every one equally often, then by Zipf's law.";

const DETAIL: &str = "\
## All figures at one size

Cycles; mean and standard deviation are those of the thesis's figure.";

const THREADS: &str = "\
## Threads

Millions of packets a second of all threads together, by processor time and by the clock on the \
wall.
All but the shared table share nothing.";

/// Table with a row for each structure and a column for each number of sessions.
fn by_sessions(sizes: &Sizes, cycles: Cycles, figure: impl Fn(&Size) -> f64) -> Table {
    let mut columns: Vec<u64> = sizes.sizes.iter().map(|size| size.sessions).collect();
    columns.dedup();
    let header = columns.iter().map(u64::to_string);
    let mut table = Table::new(std::iter::once("cycles at sessions".to_string()).chain(header));
    for name in names(sizes) {
        let cell = |&sessions: &u64| {
            let mut all = sizes.sizes.iter();
            let size = all.find(|size| size.structure == name && size.sessions == sessions);
            size.map_or(String::new(), |size| format!("{:.0}", cycles.of(figure(size))))
        };
        table.push(std::iter::once(name.clone()).chain(columns.iter().map(cell)));
    }
    table
}

fn detail(sizes: &Sizes, cycles: Cycles) -> Table {
    let at = reference(sizes);
    let mut table = Table::new([
        format!("{at} sessions").as_str(),
        "new",
        "answer",
        "thesis's mean",
        "deviation",
        "established",
        "Zipf",
        "bytes a session",
        "runs",
    ]);
    for size in sizes.sizes.iter().filter(|size| size.sessions == at) {
        let bytes = size.bytes_per_session.map_or(String::new(), |bytes| format!("{bytes:.0}"));
        let figure = |nanoseconds| format!("{:.0}", cycles.of(nanoseconds));
        table.push([
            size.structure.clone(),
            figure(size.create_ns.spread.median),
            figure(size.answer_ns.spread.median),
            figure(size.paper_ns.mean),
            figure(size.paper_ns.deviation),
            figure(size.found_ns.spread.median),
            figure(size.zipf_ns.spread.median),
            bytes,
            size.paper_ns.spread.runs.to_string(),
        ]);
    }
    table
}

fn threads_table(threads: &[Threaded]) -> Table {
    let mut table = Table::new([
        "structure",
        "threads",
        "thesis's way",
        "on the wall",
        "established",
        "on the wall",
    ]);
    for one in threads {
        let figure = |mpps: f64| format!("{mpps:.2}");
        table.push([
            one.structure.clone(),
            one.threads.to_string(),
            figure(one.paper_mpps),
            figure(one.paper_mpps_wall),
            figure(one.found_mpps),
            figure(one.found_mpps_wall),
        ]);
    }
    table
}

/// Names of the measured structures, in order.
fn names(sizes: &Sizes) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for size in &sizes.sizes {
        if !names.contains(&size.structure) {
            names.push(size.structure.clone());
        }
    }
    names
}

/// One series for each structure of one kind of plot.
fn series(sizes: &Sizes, shown: impl Fn(Variant) -> bool, y: impl Fn(&Size) -> f64) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for size in sizes.sizes.iter().filter(|size| shown(size.variant)) {
        let point = (size.sessions as f64, y(size));
        match all.iter_mut().find(|series| series.name == size.structure) {
            Some(series) => series.points.push(point),
            None => all.push(Series::new(&size.structure, Style::Line, vec![point])),
        }
    }
    all
}

/// Returns true if every packet is processed alone, as in the thesis.
fn alone(variant: Variant) -> bool {
    !variant.batched
}

/// Returns true for the fastest variant of a structure: with batches, if the structure has them.
fn at_its_best(variant: Variant) -> bool {
    variant.batched || !variant.kind.is_batched()
}

/// A constant value over all sizes.
fn level(name: &str, sizes: &Sizes, value: f64) -> Series {
    let sessions = || sizes.sizes.iter().map(|size| size.sessions);
    let ends = [sessions().min(), sessions().max()];
    let points = ends.into_iter().flatten().map(|sessions| (sessions as f64, value)).collect();
    Series::new(name, Style::Dashed, points)
}

fn cycles_plot(
    name: &str,
    title: &str,
    sizes: &Sizes,
    cycles: Cycles,
    shown: fn(Variant) -> bool,
    figure: impl Fn(&Size) -> f64,
) -> Plot {
    let mut series = series(sizes, shown, |size| cycles.of(figure(size)));
    series.push(level("budget: 436 cycles", sizes, paper::BUDGET_CYCLES));
    Plot {
        name: name.into(),
        title: title.into(),
        x: Axis::log("sessions"),
        y: Axis::log("cycles a packet"),
        series,
    }
}

fn papers_plot(sizes: &Sizes, cycles: Cycles) -> Plot {
    let title = "A new session and its answer, cycles a packet";
    let mut plot = cycles_plot("", title, sizes, cycles, alone, |size| size.paper_ns.spread.median);
    plot.series.extend([
        Series::new("thesis: linear array", Style::Points, paper::linear_cycles()),
        level("thesis: binary tree", sizes, paper::binary_cycles()),
        level("thesis: red-black tree", sizes, paper::red_black_cycles()),
        level("thesis: hash table", sizes, paper::hash_cycles()),
        level("thesis: headers only", sizes, paper::headers_cycles()),
    ]);
    plot
}

fn mpps_plot(sizes: &Sizes) -> Plot {
    let mut series = series(sizes, at_its_best, |size| 1e3 / size.paper_ns.spread.median);
    series.extend([
        level("target: 5.5 Mpps", sizes, paper::TARGET_MPPS),
        level("thesis: final design", sizes, paper::result_mpps()),
        level("thesis: headers only", sizes, paper::HEADERS_MPPS),
    ]);
    Plot {
        name: "mpps".into(),
        title: "A new session and its answer, millions of packets a second".into(),
        x: Axis::log("sessions"),
        y: Axis::log("Mpps, one thread"),
        series,
    }
}

fn threads_plot(threads: &[Threaded]) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for one in threads.iter().filter(|one| at_its_best(one.variant)) {
        let point = (one.threads as f64, one.paper_mpps);
        match series.iter_mut().find(|series| series.name == one.structure) {
            Some(series) => series.points.push(point),
            None => series.push(Series::new(&one.structure, Style::Line, vec![point])),
        }
    }
    Plot {
        name: "threads".into(),
        title: "Threads: a new session and its answer".into(),
        x: Axis::linear("threads"),
        y: Axis::linear("Mpps by processor time"),
        series,
    }
}
