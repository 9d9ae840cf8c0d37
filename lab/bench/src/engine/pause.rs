//! The longest wait of one batch while very many mappings expire within one second.
//!
//! The mappings are created within a second and left idle. Older mappings continue to send. From
//! the idle timeout on, virtual time passes like processor time. Each batch's turn (let time pass,
//! process, take the events) is measured until the last idle mapping is removed.
//!
//! The measurement runs several times, with equal packets at equal virtual times, so that a turn
//! does the same work in each run. Its time is the least of all runs. The kernel and the machine
//! below it interrupt other turns in each run, and a thread's processor time contains many of these
//! interruptions.

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

/// Runs of the measurement.
const RUNS: usize = 4;

const SECOND: u64 = 1_000_000_000;

/// Batches while mappings expire; the times are microseconds of one batch, the least of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Pause {
    /// Mappings that expired within a second.
    pub expiring: u64,
    /// Packets of a batch.
    pub batch: usize,
    /// Batches from the first expiry to the last.
    pub batches: usize,
    /// Runs.
    pub runs: usize,
    /// Largest number of mappings that ended in one batch's turn.
    pub most_ended: u64,
    /// Longest batch.
    pub longest_us: f64,
    /// Longest batch of one run alone, interruptions by the machine included: median of the runs.
    pub longest_of_run_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Median.
    pub median_us: f64,
    /// Longest batch of up to two thousand batches without expiry.
    pub quiet_longest_us: f64,
    /// Median of the batches without expiry.
    pub quiet_median_us: f64,
}

/// A batch's turn.
struct Turn {
    /// Processor time, nanoseconds: the least of the runs so far.
    time: u64,
    /// Virtual time that passes with the turn, nanoseconds.
    step: u64,
    /// Mappings that ended.
    ended: u64,
}

/// Measures with `idle` idle mappings, created within a second.
pub(super) fn measure(plan: &Plan, idle: u64) -> Pause {
    let active = ACTIVE.min(idle);
    let plan = &Plan { sessions: active + idle, tcp: false, ..plan.clone() };
    let mut turns = Vec::new();
    let runs = (0..RUNS).map(|_| run(plan, (active, idle), &mut turns));
    let mut longest: Vec<f64> = runs.collect();
    let first = turns.iter().position(|turn| turn.ended > 0).expect("mappings have expired");
    let us = |turns: &[Turn]| -> Vec<f64> { turns.iter().map(|turn| micros(turn.time)).collect() };
    let (mut quiet, mut busy) = (us(&turns[..QUIET]), us(&turns[first..]));
    Pause {
        expiring: idle,
        batch: plan.batch,
        batches: busy.len(),
        runs: RUNS,
        most_ended: turns.iter().map(|turn| turn.ended).max().unwrap_or(0),
        longest_us: percentile(&mut busy, 1.0),
        longest_of_run_us: percentile(&mut longest, 0.5),
        p999_us: percentile(&mut busy, 0.999),
        median_us: percentile(&mut busy, 0.5),
        quiet_longest_us: percentile(&mut quiet, 1.0),
        quiet_median_us: percentile(&mut quiet, 0.5),
    }
}

/// Runs the measurement once. The first run writes `turns`, every other run repeats them and lowers
/// their times. Returns the time of this run's longest turn while mappings expire, microseconds.
fn run(plan: &Plan, (active, idle): (u64, u64), turns: &mut Vec<Turn>) -> f64 {
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
    let mut longest = 0;
    for number in 0.. {
        let before = bench.removed;
        let time = turn(&mut bench, active);
        let ended = bench.removed - before;
        if number == turns.len() {
            let waits = number >= QUIET && bench.removed == 0;
            let step = if waits { time + SECOND / 1000 } else { time };
            turns.push(Turn { time, step, ended });
        }
        let turn = &mut turns[number];
        assert_eq!(turn.ended, ended, "equal turns do equal work");
        assert!(number >= QUIET || ended == 0, "the mappings are there until their time is up");
        turn.time = turn.time.min(time);
        bench.now += turn.step;
        longest = if bench.removed > 0 { time.max(longest) } else { 0 };
        if bench.removed >= idle {
            break;
        }
        assert!(bench.now < last + 10 * SECOND, "the idle mappings expire");
    }
    assert_eq!(bench.removed, idle, "those that are in use stay");
    micros(longest)
}

/// Runs one batch of the active sessions; returns nanoseconds.
fn turn(bench: &mut Bench, active: u64) -> u64 {
    let batch = bench.batch();
    bench.prepare(Mode::Outbound, batch, 0..active);
    let start = clock::now();
    bench.process(0..batch, Mode::Outbound);
    clock::now() - start
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
