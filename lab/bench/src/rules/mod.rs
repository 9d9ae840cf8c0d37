//! Finding the rule for a packet: Quick NAT's search (QNS) as its paper describes it, a walk
//! through an ordered list, and natgate's, over numbers of rules from a hundred to a million.
//!
//! A way to search is a file and an implementation of [`Finder`]; `workload` has the rules and the
//! packets, `experiment` the measurements, `paper` what the paper found, `page` the report.
//! `README.md` beside them says how it is measured.

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

/// Packets of a batch.
const BATCH: usize = 32;

/// Largest number of rules that a walk through all of them is measured with.
const MOST_LINEAR: u64 = 10_000;

/// Source address and port of a packet, by which all rules here go.
type Source = (u32, u16);

/// A way to find the best rule.
trait Finder: Sized {
    /// Whether a batch can be searched for together.
    const BATCHED: bool = false;

    /// Takes the rules in.
    fn build(rules: &[Rule]) -> Self;

    /// The pool that the best rule names.
    fn find(&self, source: Source) -> Option<u32>;

    /// The same for a batch, at most [`BATCH`] of them.
    fn find_batch(&self, sources: &[Source], pools: &mut [Option<u32>]) {
        for (source, pool) in sources.iter().zip(pools) {
            *pool = self.find(*source);
        }
    }

    /// Bytes that the rules take in it.
    fn bytes(&self) -> u64;
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of rules, ascending.
    pub rules: Vec<u64>,
    /// How long one figure is measured.
    pub time: Duration,
    /// Repetitions at least.
    pub runs: usize,
}

impl Plan {
    /// Everything.
    pub fn full() -> Self {
        Self {
            rules: vec![100, 1000, 3000, 5000, 10_000, 100_000, 1_000_000],
            time: Duration::from_secs(1),
            runs: 9,
        }
    }

    /// A few seconds of it.
    pub fn quick() -> Self {
        Self { rules: vec![100, 1000, 10_000], time: Duration::ZERO, runs: 3 }
    }
}

/// Measures, and reports as `rules`.
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
