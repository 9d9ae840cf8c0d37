//! The report: speed of one and two threads, and lines that move between up to 16 cores.

use super::counting::Counted;
use super::timing::Timed;
use super::worker::Design;
use super::{BATCH, Load, POPULAR, Plan};
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use serde::Serialize;

const INTRODUCTION: &str = "\
A plain NAT in three designs. Own tables, steered: each worker has a table, and a packet comes to \
the worker
that owns its session. Own tables, handed over: a packet comes to any worker, which gives its \
descriptor to
the owner. One table: a packet comes to any worker, which translates it by a lock-free table of all
workers, as Quick NAT does. How it is measured, and what the plain NAT lacks, is in
lab/bench/src/sharing/README.md.

## Speed

Millions of packets a second of established sessions, half of them inbound; medians. `times`:
the speed divided by that of one thread alone, with one table of all sessions, in the same turn; the
median of these ratios. The runs vary much: see `10 % to 90 %`.";

const LINES: &str = "\
## Lines between cores

Cache lines a packet, counted. Fetched: from memory or from the cache that all cores share. From \
others: from
the cache of the core that wrote the line. Taken away: writes that first remove the line from other
cores' caches. The last two are messages between cores. A packet itself is one fetched line.";

/// Writes the whole report.
pub(super) fn write(report: &mut Report, plan: &Plan, timed: &[Timed], counted: &[Counted]) {
    #[derive(Serialize)]
    struct Data<'a> {
        batch: usize,
        popular: usize,
        counted_sessions: u64,
        timed: &'a [Timed],
        counted: &'a [Counted],
    }
    report.text(INTRODUCTION);
    report.table(speeds(timed));
    report.text(LINES);
    report.text(format!("{} sessions, established:", plan.counted_sessions));
    report.table(lines(counted));
    report.text("New sessions:");
    report.table(new_lines(counted));
    report.plot(plot(counted));
    let counted_sessions = plan.counted_sessions;
    report.data(&Data { batch: BATCH, popular: POPULAR, counted_sessions, timed, counted });
}

fn speeds(timed: &[Timed]) -> Table {
    let mut table = Table::new([
        "sessions",
        "load",
        "design",
        "threads",
        "Mpps",
        "10 % to 90 %",
        "by processor time",
        "times",
        "new sessions, M/s",
    ]);
    for row in timed {
        table.push([
            row.sessions.to_string(),
            row.load.name().into(),
            row.design.name().into(),
            row.threads.to_string(),
            format!("{:.1}", row.mpps.median),
            format!("{:.1} to {:.1}", row.mpps.p10, row.mpps.p90),
            format!("{:.1}", row.mpps_by_processor.median),
            format!("{:.2}", row.times.median),
            format!("{:.1}", row.creates),
        ]);
    }
    table
}

fn lines(counted: &[Counted]) -> Table {
    let head = ["cores", "load", "design", "fetched", "from others", "taken away", "between cores"];
    let mut table = Table::new(head);
    for row in counted {
        let moved = row.established;
        let figures = [moved.fetched, moved.from_others, moved.taken_away, moved.between_cores()];
        let names = [row.cores.to_string(), row.load.name().into(), row.design.name().into()];
        table.push(names.into_iter().chain(figures.map(|figure| format!("{figure:.2}"))));
    }
    table
}

fn new_lines(counted: &[Counted]) -> Table {
    let mut table =
        Table::new(["cores", "design", "fetched", "from others", "taken away", "between cores"]);
    for row in counted.iter().filter(|row| row.load == Load::Even) {
        let moved = row.create;
        let figures = [moved.fetched, moved.from_others, moved.taken_away, moved.between_cores()];
        let names = [row.cores.to_string(), row.design.name().into()];
        table.push(names.into_iter().chain(figures.map(|figure| format!("{figure:.2}"))));
    }
    table
}

fn plot(counted: &[Counted]) -> Plot {
    let line = |(design, load): (Design, Load)| {
        let rows = counted.iter().filter(|row| (row.design, row.load) == (design, load));
        let points = rows.map(|row| (row.cores as f64, row.established.between_cores())).collect();
        Series::new(&format!("{}, {}", design.name(), load.name()), Style::Line, points)
    };
    let all = Design::ALL.into_iter().flat_map(|design| Load::ALL.map(|load| (design, load)));
    Plot {
        name: String::new(),
        title: "Lines between cores, a packet".into(),
        x: Axis::log("cores"),
        y: Axis::linear("lines a packet"),
        series: all.map(line).collect(),
    }
}
