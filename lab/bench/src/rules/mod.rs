//! The search for a packet's rule: Quick NAT's search (QNS) as its paper describes it, a search of
//! an ordered list, and natgate's search, with a hundred to a million rules.
//!
//! A search is a file with an implementation of [`Finder`]. `workload` has the rules and the
//! packets, `experiment` the measurements, `paper` the results of the paper, `report` the report.
//! `README.md` beside these files explains the method.

mod experiment;
mod linear;
mod natgate;
mod paper;
mod qns;
mod report;
mod workload;

use crate::report::{Report, progress};
use natgate_engine::Rule;
use std::time::Duration;

/// Packets in a batch.
const BATCH: usize = 32;

/// Highest number of rules in measurements of the linear search.
const MOST_LINEAR: u64 = 10_000;

/// Source address and port of a packet. All rules here match by them.
type Source = (u32, u16);

/// A search for the best rule.
trait Finder: Sized {
    /// True if the searches of a batch can run together.
    const BATCHED: bool = false;

    /// Builds the data structure of the rules.
    fn build(rules: &[Rule]) -> Self;

    /// Returns the pool of the best rule.
    fn find(&self, source: Source) -> Option<u32>;

    /// Returns the pools of a batch of at most [`BATCH`] sources.
    fn find_batch(&self, sources: &[Source], pools: &mut [Option<u32>]) {
        for (source, pool) in sources.iter().zip(pools) {
            *pool = self.find(*source);
        }
    }

    /// Bytes of the data structure.
    fn bytes(&self) -> u64;
}

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of rules, ascending.
    pub rules: Vec<u64>,
    /// Time of the measurement of one figure.
    pub time: Duration,
    /// Lowest number of repetitions.
    pub runs: usize,
}

impl Plan {
    /// The full measurement.
    pub fn full() -> Self {
        Self {
            rules: vec![100, 1000, 3000, 5000, 10_000, 100_000, 1_000_000],
            time: Duration::from_secs(1),
            runs: 9,
        }
    }

    /// A measurement of a few seconds.
    pub fn quick() -> Self {
        Self { rules: vec![100, 1000, 10_000], time: Duration::ZERO, runs: 3 }
    }
}

/// Measures; the report has the name `rules`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let mut report = Report::new("rules", "Finding the rule for a packet (S2)", command);
    let bar = progress(experiment::steps(plan));
    let caches = report.machine().caches.iter();
    let own = caches.filter(|cache| cache.level == 2).map(|cache| cache.bytes).max();
    let results = experiment::measure(plan, own.unwrap_or(1 << 20), &bar);
    bar.finish_and_clear();
    report::write(&mut report, &results);
    report
}
