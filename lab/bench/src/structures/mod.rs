//! The lookup structures that a software NAT could have, compared as Plotnikov's thesis does: the
//! same NAT around each, random sessions made and answered, cycles a packet against how many there
//! are, and against threads.
//!
//! A structure is a file and an implementation of [`Structure`]; `nat` is the NAT around it,
//! `traffic` the packets, `experiment` and `threads` the measurements, `paper` what the thesis
//! found, `page` and `claims` the report. `README.md` beside them says what came out.

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

/// Packets of a batch.
const BATCH: usize = 32;

/// The paper's larger modulus.
const LARGEST_MODULUS: usize = 1 << 24;

/// Sessions of the paper's target: a class-B network with 1000 ports a node.
const TARGET_SESSIONS: u64 = 65_536_000;

/// Finds the record of a session, or makes one.
trait Structure {
    /// Into how many steps its memory accesses fall that [`Structure::prefetch`] can ask for ahead;
    /// 0: it has none.
    const STAGES: usize = 0;

    /// A structure for so many sessions and no more.
    fn with_capacity(sessions: usize) -> Self;

    /// Asks for the memory of one step; the steps before have arrived.
    fn prefetch(&self, _key: Key, _stage: usize) {}

    /// The external endpoint of a session, which is `make`'s if the session is new; its time is
    /// now.
    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External;
}

/// Buckets of the paper's tables for so many sessions: up to one a session.
fn modulus(sessions: usize) -> usize {
    sessions.next_power_of_two().min(LARGEST_MODULUS)
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of sessions, ascending.
    pub sessions: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Sessions that the threads share.
    pub thread_sessions: u64,
    /// How long one structure is measured at one number of sessions, if it is that quick.
    pub time: Duration,
    /// Repetitions at least.
    pub runs: usize,
    /// A structure stops where one repetition would take longer than this.
    pub patience: Duration,
    /// A structure stops where it would take more memory than this, bytes, or than four fifths of
    /// what is available.
    pub memory: u64,
}

impl Plan {
    /// Everything, to the paper's target.
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

    /// A few seconds of it.
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

/// Measures, and reports as `structures`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let mut report = Report::new("structures", "Lookup structures of a NAT (S1)", command);
    // Others use the machine's memory too, so not all that is free is ours.
    let memory = plan.memory.min(report.machine().available_bytes / 5 * 4);
    let plan = &Plan { memory, ..plan.clone() };
    let bar = progress(experiment::steps(plan) + threads::steps(plan));
    let sizes = experiment::measure(plan, &bar);
    let threads = threads::measure(plan, &bar);
    bar.finish_and_clear();
    report::write(&mut report, &sizes, &threads);
    report
}
