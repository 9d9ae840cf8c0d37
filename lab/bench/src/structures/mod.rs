//! Possible lookup structures of a software NAT, compared by the method of Plotnikov's thesis. Each
//! has the same NAT around it. Random sessions are created and answered. The results are cycles a
//! packet by the number of sessions and by the number of threads.
//!
//! A structure is a file with an implementation of [`Structure`]. `nat` is the NAT around it,
//! `traffic` has the packets, `experiment` and `threads` the measurements, `paper` the results of
//! the thesis, `report` and `claims` the report. `README.md` beside these files has the results.

mod binary;
mod btree;
mod claims;
mod cuckoo;
mod experiment;
mod header;
mod kind;
mod linear;
mod lines;
mod list;
mod nat;
mod natgate;
mod paper;
mod radix;
mod record;
mod redblack;
mod report;
mod shared;
mod swiss;
mod threads;
mod traffic;
mod trees;

use crate::report::{Report, progress};
use record::{External, Key};
use std::time::Duration;

/// Packets in a batch.
const BATCH: usize = 32;

/// The paper's larger modulus.
const LARGEST_MODULUS: usize = 1 << 24;

/// Sessions of the paper's target: a class-B network with 1000 ports for each node.
const TARGET_SESSIONS: u64 = 65_536_000;

/// A table that finds or creates the record of a session.
trait Structure {
    /// Number of steps of memory accesses that [`Structure::prefetch`] can fetch ahead; 0 if there
    /// are none.
    const STAGES: usize = 0;

    /// Creates a structure for at most `sessions` sessions.
    fn with_capacity(sessions: usize) -> Self;

    /// Prefetches the memory of one step. The memory of earlier steps has arrived.
    fn prefetch(&self, _key: Key, _stage: usize) {}

    /// Returns the external endpoint of a session and sets the session's time to `now`. A new
    /// session gets the endpoint of `make`.
    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External;
}

/// Buckets of the paper's tables for `sessions` sessions: up to one for each session.
fn modulus(sessions: usize) -> usize {
    sessions.next_power_of_two().min(LARGEST_MODULUS)
}

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of sessions, ascending.
    pub sessions: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Sessions that the threads share.
    pub thread_sessions: u64,
    /// Time of the measurement of one structure at one number of sessions, if the structure is fast
    /// enough.
    pub time: Duration,
    /// Lowest number of repetitions.
    pub runs: usize,
    /// Longest repetition. A structure stops at the size that would take longer.
    pub patience: Duration,
    /// Most memory of a structure, bytes. A structure stops at the size that would take more, or
    /// more than four fifths of the available memory.
    pub memory: u64,
}

impl Plan {
    /// The full measurement, up to the paper's target.
    pub fn full() -> Self {
        let sessions = [500, 1000, 2000, 4000, 8000, 16_000, 64_000, 256_000];
        let more = [1_000_000, 4_000_000, 16_000_000, TARGET_SESSIONS];
        Self {
            sessions: sessions.into_iter().chain(more).collect(),
            threads: (0..).map(|power| 1 << power).take_while(|&n| n <= processors()).collect(),
            thread_sessions: 4_000_000,
            time: Duration::from_secs(2),
            runs: 3,
            patience: Duration::from_secs(60),
            memory: 14 << 30,
        }
    }

    /// A measurement of a few seconds.
    pub fn quick() -> Self {
        Self {
            sessions: vec![500, 2000, 16_000],
            threads: vec![1, 2],
            thread_sessions: 16_000,
            time: Duration::from_millis(20),
            runs: 2,
            patience: Duration::from_millis(500),
            ..Self::full()
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Measures; the report has the name `structures`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let mut report = Report::new("structures", "Lookup structures of a NAT (S1)", command);
    // Other programs need memory, too, so the measurement leaves a part free.
    let memory = plan.memory.min(report.machine().available_bytes / 5 * 4);
    let plan = &Plan { memory, ..plan.clone() };
    let bar = progress(experiment::steps(plan) + threads::steps(plan));
    let sizes = experiment::measure(plan, &bar);
    let threads = threads::measure(plan, &bar);
    bar.finish_and_clear();
    report::write(&mut report, &sizes, &threads);
    report
}
