//! One table for all workers (Quick NAT) compared with a table for each: threads that are measured,
//! and lines that move between the caches of up to 16 cores, counted.
//!
//! `table` is the lock-free table, `packet` the work on a packet, `worker` the three designs,
//! `traffic` the packets, `meter` the counted caches. `timing` and `counting` are the measurements,
//! `report` writes the report. `README.md` beside these files explains the comparison.

mod counting;
mod meter;
mod packet;
mod report;
mod table;
mod timing;
mod traffic;
mod worker;

use crate::report::{Report, progress};
use serde::Serialize;
use std::time::Duration;

/// Packets that a worker takes from its network card at once.
const BATCH: usize = 64;
/// Packets of a worker in a round. A worker has as many buffers.
const ROUND: usize = 1 << 12;
/// Sessions that have half of the packets of [`Load::Popular`].
const POPULAR: usize = 64;

/// Distribution of the packets over the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Load {
    /// Every session has the same share.
    Even,
    /// Few sessions have half of them.
    Popular,
}

impl Load {
    const ALL: [Self; 2] = [Self::Even, Self::Popular];

    fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Popular => "half in 64 sessions",
        }
    }
}

/// Parameters of the comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of sessions.
    pub sessions: Vec<u64>,
    /// Numbers of threads that are measured.
    pub threads: Vec<usize>,
    /// Numbers of cores for which lines are counted, at most 16.
    pub cores: Vec<usize>,
    /// Sessions of the counts.
    pub counted_sessions: u64,
    /// Rounds of a core in a count.
    pub counted_rounds: usize,
    /// Time for each number of sessions and each load.
    pub time: Duration,
}

impl Plan {
    /// The full comparison.
    pub fn full() -> Self {
        Self {
            sessions: vec![64_000, 1_000_000, 8_000_000],
            threads: vec![1, 2],
            cores: vec![1, 2, 4, 8, 16],
            counted_sessions: 1_000_000,
            counted_rounds: 16,
            time: Duration::from_secs(10),
        }
    }

    /// A comparison of a few seconds.
    pub fn quick() -> Self {
        Self {
            sessions: vec![2000],
            cores: vec![1, 4],
            counted_sessions: 2000,
            counted_rounds: 2,
            time: Duration::ZERO,
            ..Self::full()
        }
    }

    /// Bytes of memory that the comparison takes: one thread's table and those of three designs.
    pub fn memory(&self) -> u64 {
        self.sessions.iter().max().copied().unwrap_or(0) * 600 + (1 << 28)
    }
}

/// Compares; the report has the name `sharing`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let title = "One table for all workers, or one for each (S2)";
    let mut report = Report::new("sharing", title, command);
    let bar = progress(timing::steps(plan) + counting::steps(plan));
    let timed = timing::measure(plan, &bar);
    let counted = counting::measure(plan, &bar);
    bar.finish_and_clear();
    report::write(&mut report, plan, &timed, &counted);
    report
}
