//! The report of the experiment: times by translation and direction, memory, the sweep, targets.

use super::rig::SWEEP_STEP;
use super::{Hosts64, Results, Size};
use crate::engine::{ROUND, grouped};
use crate::report::{Report, Table};
use crate::spread::Spread;
use serde::Serialize;

/// Highest ratio of a packet's time to NAT44's, by translation.
const RATIOS: [(&str, f64); 9] = [
    ("NAT64", 1.5),
    ("SIIT", 0.8),
    ("SIIT with 1,000 maps", 0.8),
    ("NPTv6", 0.8),
    ("DS-Lite", 1.5),
    ("lw4o6", 1.0),
    ("lw4o6, 10,000 changes a second", 1.0),
    ("MAP-E", 0.8),
    ("MAP-T", 0.8),
];
/// Most bytes that a session of NAT64 takes more than one of NAT44.
const MORE_BYTES: f64 = 8.0;
/// Most bytes of a host.
const HOST_BYTES: f64 = 64.0;

/// A target of the project, which is an upper bound.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Target {
    /// The figure.
    what: String,
    /// Number of sessions; `None`: it does not depend on them.
    sessions: Option<u64>,
    /// The bound.
    wanted: f64,
    /// The measured value.
    found: f64,
    /// True if the value is within the bound.
    reached: bool,
}

/// The targets with their measured values.
pub(super) fn targets(sizes: &[Size], hosts: &Hosts64) -> Vec<Target> {
    let target = |what: String, sessions, wanted: f64, found: f64| Target {
        what,
        sessions,
        wanted,
        found,
        reached: found <= wanted,
    };
    let mut targets = Vec::new();
    for size in sizes {
        for row in &size.rows {
            let bound = RATIOS.iter().find(|(mode, _)| *mode == row.mode);
            if let Some((_, wanted)) = bound {
                let what = format!("time of {}, {}, to NAT44's", row.mode, row.way);
                targets.push(target(what, Some(size.sessions), *wanted, row.to_nat44.median));
            }
        }
        let what = "bytes a session of NAT64 more than NAT44's, without hosts".to_owned();
        let found = size.memory.more_bytes_per_session;
        targets.push(target(what, Some(size.sessions), MORE_BYTES, found));
    }
    for (what, found) in [
        ("bytes a host, one for each subscriber", hosts.one_each_bytes),
        ("bytes a host, the table full", hosts.full_bytes),
    ] {
        targets.push(target(what.to_owned(), None, HOST_BYTES, found));
    }
    targets
}

/// Writes the whole report.
pub(super) fn write(report: &mut Report, results: &Results) {
    report.data(results);
    report.text(format!(
        "UDP sessions, batches of {}, one thread. Times are processor time of a packet, medians \
         over rounds of {} packets at random over the sessions; the rows take turns. A packet has \
         46 bytes over IPv4, 66 over IPv6 and 86 in a tunnel. Ratios are medians of each round's \
         ratio to NAT44 in the same direction. The limit is one random line of memory.",
        results.batch,
        grouped(ROUND as u64),
    ));
    for size in &results.sizes {
        let (sessions, hosts) = (grouped(size.sessions), grouped(size.hosts));
        report.text(format!("## {sessions} sessions of {hosts} hosts"));
        report.table(times(size));
        sweep(size, report);
    }
    report.text(
        "## Memory\n\nGrowth of the resident memory. NAT64 has a table of hosts beside the \
         engine's tables; the difference is without it.",
    );
    report.table(memory(&results.sizes));
    let hosts = &results.hosts;
    report.text(format!(
        "The table of hosts for {} subscribers takes {:.1} bytes a host if every subscriber has \
         one host, and {:.1} if it is full, with 16 hosts for every subscriber.",
        grouped(hosts.subscribers),
        hosts.one_each_bytes,
        hosts.full_bytes,
    ));
    report.text("## Targets");
    report.table(target_table(&results.targets));
}

fn range(spread: &Spread, digits: usize) -> String {
    format!("{:.digits$} to {:.digits$}", spread.p10, spread.p90)
}

fn times(size: &Size) -> Table {
    let header = ["", "ns", "p10 to p90, ns", "to NAT44", "p10 to p90", "M/s"];
    let mut table = Table::new(header);
    let mut push = |name: String, ns: &Spread, ratio: Option<&Spread>| {
        let median = ns.median;
        let [to, around] = ratio.map_or([String::new(), String::new()], |ratio| {
            [format!("{:.2}", ratio.median), range(ratio, 2)]
        });
        let (ns, rate) = (range(ns, 1), format!("{:.1}", 1e3 / median));
        table.push([name, format!("{median:.1}"), ns, to, around, rate]);
    };
    push("limit: one line of memory".to_owned(), &size.limit_ns, None);
    for row in &size.rows {
        push(format!("{}, {}", row.mode, row.way), &row.ns, Some(&row.to_nat44));
    }
    for (mode, ns) in ["NAT44", "NAT64"].iter().zip(&size.create_ns) {
        push(format!("{mode}, new session"), ns, None);
    }
    table
}

fn sweep(size: &Size, report: &mut Report) {
    report.text(format!(
        "Once a minute a sweep looks at the mappings of NAT64, {SWEEP_STEP} in each call. A call \
         takes {:.1} microseconds, and each packet that the translator takes makes one: at least \
         {} calls.",
        size.sweep_call_ns / 1e3,
        grouped(size.sweep_calls),
    ));
}

fn memory(sizes: &[Size]) -> Table {
    let header = ["sessions", "NAT44, bytes each", "NAT64, bytes each", "more without hosts"];
    let mut table = Table::new(header);
    for size in sizes {
        let memory = &size.memory;
        let figures = [
            memory.nat44_bytes_per_session,
            memory.nat64_bytes_per_session,
            memory.more_bytes_per_session,
        ];
        let cells = figures.map(|bytes| format!("{bytes:.1}"));
        table.push(std::iter::once(grouped(size.sessions)).chain(cells));
    }
    table
}

fn target_table(targets: &[Target]) -> Table {
    let mut table = Table::new(["", "sessions", "at most", "found", "reached"]);
    for target in targets {
        table.push([
            target.what.clone(),
            target.sessions.map_or(String::new(), grouped),
            target.wanted.to_string(),
            format!("{:.2}", target.found),
            if target.reached { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}
