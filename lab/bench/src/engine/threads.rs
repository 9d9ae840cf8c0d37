//! Several threads, each with an engine of its own and its share of the sessions. They share only
//! the machine's memory.
//!
//! Turns alternate: one thread runs alone over its share, then all run at once. Throughput is
//! counted by each thread's processor time, which shows the result of a machine with a core for
//! each thread. It is also counted by wall time. On a machine with other users the wall time shows
//! the part of the machine that was left.

use super::bench::{Bench, Elapsed, Mode};
use super::{Plan, ROUNDS};
use crate::spread::Spread;
use serde::Serialize;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Rounds of a thread in a turn.
const TURN: usize = 4;

/// Several threads compared with one.
#[derive(Clone, Debug, Serialize)]
pub struct Threads {
    /// Number of threads.
    pub threads: usize,
    /// Sessions of each thread.
    pub sessions_each: u64,
    /// Packets a second of one thread running alone, by its processor time, millions.
    pub alone_mpps: f64,
    /// Packets a second of all threads together, by their processor time, millions.
    pub together_mpps: f64,
    /// `together_mpps` divided by `alone_mpps`.
    pub ratio: f64,
    /// Ratio of the throughputs by wall time.
    pub ratio_wall: f64,
}

/// Measures established sessions; half of the batches go each way.
pub(super) fn measure(plan: &Plan, threads: usize) -> Threads {
    let plan = &Plan { sessions: (plan.sessions / threads as u64).max(1), ..plan.clone() };
    let (barrier, stop) = (&Barrier::new(threads), &AtomicBool::new(false));
    let times: Vec<[Vec<Elapsed>; 2]> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|at| scope.spawn(move || work(plan, barrier, stop, at == 0)))
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a thread ends")).collect()
    });
    let mpps = |times: &[Elapsed], by: fn(&Elapsed) -> f64| {
        1e3 / Spread::of(&times.iter().map(by).collect::<Vec<_>>()).median
    };
    let alone = |by| mpps(&times[0][0], by);
    let together = |by| times.iter().map(|[_, together]| mpps(together, by)).sum::<f64>();
    let (cpu, wall) = (|time: &Elapsed| time.cpu, |time: &Elapsed| time.wall);
    Threads {
        threads,
        sessions_each: plan.sessions,
        alone_mpps: alone(cpu),
        together_mpps: together(cpu),
        ratio: together(cpu) / alone(cpu),
        ratio_wall: together(wall) / alone(wall),
    }
}

/// Work of one thread: the time of its packets while the first thread ran alone, and while all ran.
fn work(plan: &Plan, barrier: &Barrier, stop: &AtomicBool, first: bool) -> [Vec<Elapsed>; 2] {
    let mut bench = Bench::new(plan);
    bench.fill(|_| ());
    bench.answer();
    let begun = Instant::now();
    let [mut alone, mut together] = [const { Vec::new() }; 2];
    loop {
        let enough = begun.elapsed() >= plan.time && together.len() >= ROUNDS * TURN;
        if first && enough {
            stop.store(true, Ordering::Relaxed);
        }
        barrier.wait();
        if stop.load(Ordering::Relaxed) {
            return [alone, together];
        }
        if first {
            alone.extend((0..TURN).map(|_| bench.round(Mode::Mixed)));
        }
        barrier.wait();
        together.extend((0..TURN).map(|_| bench.round(Mode::Mixed)));
    }
}
