//! The longest wait of one batch while very many mappings expire within one second.
//!
//! The mappings are created within a second and left idle. Older mappings continue to send. From
//! the idle timeout on, virtual time passes like processor time. Each batch's turn (let time pass,
//! process, take the events) is measured until the last idle mapping is removed.

use super::Plan;
use super::bench::{Bench, Mode};
use crate::clock;
use crate::spread::percentile;
use natgate_engine::Timeouts;
use serde::Serialize;

/// Number of active sessions.
const ACTIVE: u64 = 65_536;

/// Batches before the first expiry, for comparison.
const QUIET: usize = 2_000;

const SECOND: u64 = 1_000_000_000;

/// Batches while mappings expire; the times are microseconds of one batch.
#[derive(Clone, Debug, Serialize)]
pub struct Pause {
    /// Mappings that expired within a second.
    pub expiring: u64,
    /// Packets of a batch.
    pub batch: usize,
    /// Batches from the first expiry to the last.
    pub batches: usize,
    /// Longest batch.
    pub longest_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Median.
    pub median_us: f64,
    /// Longest batch of up to two thousand batches without expiry.
    pub quiet_longest_us: f64,
    /// Median of the batches without expiry.
    pub quiet_median_us: f64,
}

/// Measures with `idle` idle mappings, created within a second.
pub(super) fn measure(plan: &Plan, idle: u64) -> Pause {
    let active = ACTIVE.min(idle);
    let plan = &Plan { sessions: active + idle, tcp: false, ..plan.clone() };
    let mut bench = Bench::new(plan);
    bench.spacing = SECOND / plan.sessions;
    bench.fill(|_| ());
    bench.spacing = 1;
    let timeout = Timeouts::default().udp.as_nanos() as u64;
    let last = bench.now + timeout;

    // The mappings that were created first stay.
    bench.now = last - timeout / 2;
    bench.refresh(0..active);
    bench.now = last - 3 * SECOND;
    // Timers of a limited range are checked again now. The measurement must not contain this work.
    bench.settle();
    let mut quiet: Vec<f64> = (0..QUIET).map(|_| turn(&mut bench, active)).collect();
    assert_eq!(bench.removed, 0, "the idle mappings are there until their time is up");

    let mut busy = Vec::new();
    while bench.removed < idle {
        let time = turn(&mut bench, active);
        if bench.removed > 0 {
            busy.push(time);
        } else {
            bench.now += SECOND / 1000;
        }
        assert!(bench.now < last + 10 * SECOND, "the idle mappings expire");
    }
    assert_eq!(bench.removed, idle, "those that are in use stay");
    Pause {
        expiring: idle,
        batch: plan.batch,
        batches: busy.len(),
        longest_us: percentile(&mut busy, 1.0),
        p999_us: percentile(&mut busy, 0.999),
        median_us: percentile(&mut busy, 0.5),
        quiet_longest_us: percentile(&mut quiet, 1.0),
        quiet_median_us: percentile(&mut quiet, 0.5),
    }
}

/// Runs one batch of the active sessions; returns microseconds.
fn turn(bench: &mut Bench, active: u64) -> f64 {
    let batch = bench.batch();
    bench.prepare(Mode::Outbound, batch, 0..active);
    let start = clock::now();
    bench.process(0..batch, Mode::Outbound);
    let time = clock::now() - start;
    bench.now += time;
    time as f64 / 1e3
}
