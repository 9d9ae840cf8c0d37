//! The counts for people and for programs, and the changes since earlier counts.

use super::Count;
use crate::report::{Report, Table};
use serde_json::{Map, Value, json};
use std::fmt;

/// A larger change of the instructions is worth a note, percent.
const NOTABLE: f64 = 5.0;

/// Instructions of a path, before and now.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The path.
    pub path: &'static str,
    /// Instructions a packet before.
    pub before: f64,
    /// Instructions a packet now.
    pub now: f64,
}

impl Change {
    /// The change, percent.
    pub fn percent(&self) -> f64 {
        (self.now / self.before - 1.0) * 100.0
    }

    /// Returns true if the change is so much worse that a developer should look at it.
    pub fn is_alarming(&self) -> bool {
        self.percent() > NOTABLE
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, now, .. } = self;
        let path = self.path.replace('_', " ");
        write!(f, "{path}: {before:.1} -> {now:.1} instructions, {:+.1} %", self.percent())?;
        match self.is_alarming() {
            true => write!(f, "   <<<<<< MORE THAN {NOTABLE} % SLOWER: IS THAT WANTED? >>>>>>"),
            false => Ok(()),
        }
    }
}

/// Changes since a report of this benchmark, given as its JSON; paths that the report lacks are
/// left out.
pub fn against(counts: &[Count], earlier: &Value) -> Vec<Change> {
    let change = |count: &Count| {
        let before = earlier["paths"][count.path]["instructions"].as_f64()?;
        Some(Change { path: count.path, before, now: count.instructions })
    };
    counts.iter().filter_map(change).collect()
}

/// Table of the counts.
pub fn table(counts: &[Count]) -> Table {
    let mut table = Table::new(["path", "instructions", "memory accesses", "cold lines"]);
    for count in counts {
        table.push([
            count.path.replace('_', " "),
            format!("{:.1}", count.instructions),
            format!("{:.1}", count.accesses),
            format!("{:.2}", count.lines),
        ]);
    }
    table
}

/// Report for the repository; later runs are compared with it.
pub fn page(counts: &[Count], command: &str) -> Report {
    let mut report = Report::new("instructions", "Instructions a packet", command);
    report.text(
        "Counted by valgrind's callgrind over 8,192 packets a path, in batches of 64, with 131,072 \
         sessions in the table. A packet out or in belongs to a session at random; `create` makes \
         a new one; `expire` is everything that the end of a mapping costs, its port's release \
         from hold-down included. Cold lines are misses of a simulated last cache of 512 KiB, \
         which holds a batch and little of the table. What is counted is the gateway's turn: let \
         time pass, process a batch, take the events. `gateway` is what a whole gateway does \
         around its engine: 100 sessions, frames of 64 bytes, devices in memory whose own work \
         is left out. `alg` is what all application-level gateways together add for packets that \
         are of none of their protocols. `sip` is a whole message of SIP of a hundred hosts, in \
         UDP through such a gateway: a registration, its answer, and a call that offers audio.",
    );
    report.table(table(counts));
    let paths: Map<String, Value> =
        counts.iter().map(|count| (count.path.into(), json!(count))).collect();
    report.data(&json!({ "paths": paths }));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_in_percent() {
        let count = |path, instructions| Count { path, instructions, accesses: 1.0, lines: 2.0 };
        let earlier = page(&[count("create_udp", 400.0), count("outbound_udp", 100.0)], "x").json();
        let changes = against(&[count("create_udp", 424.0), count("new", 1.0)], &earlier);
        assert_eq!(changes.len(), 1);
        let said = changes[0].to_string();
        assert!(said.contains("400.0 -> 424.0 instructions, +6.0 %   <<<"), "{said}");
        assert!((changes[0].percent() - 6.0).abs() < 1e-9 && changes[0].is_alarming());
    }
}
