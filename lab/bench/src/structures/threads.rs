//! Several threads. Threads that share nothing have a NAT each, with their part of the sessions and
//! of the external endpoints, as in the paper. Threads with Quick NAT's design share one table.
//! There each thread answers and continues the sessions of another thread.
//!
//! The phases begin together. Throughput is counted by processor time (as with a core for each
//! thread) and by wall time (with the available part of the cores).

use super::Plan;
use super::kind::{Kind, Variant};
use super::nat::{Nat, Translator, returns};
use super::shared::Shared;
use super::traffic::{Elapsed, Traffic, Tuple};
use super::{Structure, TARGET_SESSIONS};
use crate::frame::End;
use crate::random::Random;
use crate::spread::Spread;
use indicatif::ProgressBar;
use serde::Serialize;
use std::sync::{Barrier, OnceLock};
use std::thread;

/// Number of repetitions.
const RUNS: usize = 3;

/// A structure with one number of threads; millions of packets a second, medians.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Threaded {
    /// Name of the structure.
    pub(super) structure: String,
    /// Kind of the structure, and use of batches.
    #[serde(flatten)]
    pub(super) variant: Variant,
    /// Number of threads.
    pub(super) threads: usize,
    /// Sessions of all threads together.
    pub(super) sessions: u64,
    /// Method of the paper, outbound and back, by processor time.
    pub(super) paper_mpps: f64,
    /// Established sessions, by processor time.
    pub(super) found_mpps: f64,
    /// Method of the paper, by wall time.
    pub(super) paper_mpps_wall: f64,
    /// Established sessions, by wall time.
    pub(super) found_mpps_wall: f64,
}

/// Measured variants. The linear array takes too long.
fn variants() -> impl Iterator<Item = Variant> {
    Variant::all().into_iter().filter(|variant| variant.kind != Kind::Linear)
}

/// Steps of the progress bar.
pub(super) fn steps(plan: &Plan) -> u64 {
    (plan.threads.len() * variants().count()) as u64
}

/// Measures all variants.
pub(super) fn measure(plan: &Plan, bar: &ProgressBar) -> Vec<Threaded> {
    let sessions = plan.thread_sessions.min(TARGET_SESSIONS);
    let tuples = Tuple::random(sessions, &mut Random::new(6));
    let mut all = Vec::new();
    for variant in variants() {
        for &threads in &plan.threads {
            bar.set_message(format!("{}, {threads} threads", variant.name()));
            all.push(repeat(variant, threads, &tuples));
            bar.inc(1);
        }
    }
    all
}

fn repeat(variant: Variant, threads: usize, tuples: &[Tuple]) -> Threaded {
    let runs: Vec<Vec<Phases>> = (0..RUNS).map(|_| run(variant, threads, tuples)).collect();
    let mpps = |phase: fn(&Phases) -> Elapsed, clock: fn(Elapsed) -> f64| {
        let thread = |phases: &Phases| 1e3 * phase(phases).packets as f64 / clock(phase(phases));
        let run = |run: &Vec<Phases>| run.iter().map(thread).sum::<f64>();
        Spread::of(&runs.iter().map(run).collect::<Vec<_>>()).median
    };
    let (cpu, wall) = (|elapsed: Elapsed| elapsed.cpu, |elapsed: Elapsed| elapsed.wall);
    Threaded {
        structure: variant.name(),
        variant,
        threads,
        sessions: tuples.len() as u64,
        paper_mpps: mpps(|phases| phases.paper, cpu),
        found_mpps: mpps(|phases| phases.found, cpu),
        paper_mpps_wall: mpps(|phases| phases.paper, wall),
        found_mpps_wall: mpps(|phases| phases.found, wall),
    }
}

/// Times of one thread's packets.
struct Phases {
    paper: Elapsed,
    found: Elapsed,
}

/// State that the threads of a run share.
struct Common<'a> {
    /// Sessions of each thread.
    parts: Vec<&'a [Tuple]>,
    /// External endpoints of each part.
    externals: Vec<OnceLock<Vec<End>>>,
    barrier: Barrier,
}

fn run(variant: Variant, threads: usize, tuples: &[Tuple]) -> Vec<Phases> {
    let common = &Common {
        parts: tuples.chunks(tuples.len().div_ceil(threads)).collect(),
        externals: vec![OnceLock::new(); threads],
        barrier: Barrier::new(threads),
    };
    assert_eq!(common.parts.len(), threads, "more threads than sessions");
    if variant.kind != Kind::Shared {
        return together(threads, |at| {
            common.work(&mut *variant.build(common.parts[at].len()), at, at)
        });
    }
    let (table, returns) = (Shared::with_capacity(tuples.len()), returns(tuples.len()));
    let starts = |at: usize| common.parts[..at].iter().map(|part| part.len() as u32).sum::<u32>();
    let nat = |at| {
        Nat::sharing(table.clone(), returns.clone(), starts(at)..starts(at + 1), variant.batched)
    };
    together(threads, |at| common.work(&mut nat(at), at, (at + 1) % threads))
}

/// Runs the threads; returns the results of each.
fn together(threads: usize, work: impl Fn(usize) -> Phases + Sync) -> Vec<Phases> {
    let work = &work;
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|at| scope.spawn(move || work(at))).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread ends")).collect()
    })
}

impl Common<'_> {
    /// Creates the sessions of part `own`, then uses the sessions of part `other`.
    fn work(&self, nat: &mut dyn Translator, own: usize, other: usize) -> Phases {
        let mut traffic = Traffic::new();
        self.barrier.wait();
        let (created, externals) = traffic.create(nat, self.parts[own]);
        self.externals[own].set(externals).expect("each part is made once");
        self.barrier.wait();
        let (tuples, externals) = (self.parts[other], self.externals[other].wait());
        let answered = traffic.answer(nat, tuples, externals);
        self.barrier.wait();
        let found = traffic.find(nat, tuples, externals);
        Phases { paper: created + answered, found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_structure_works_in_threads() {
        let tuples = Tuple::random(5001, &mut Random::new(8));
        for variant in variants() {
            let phases = run(variant, 3, &tuples);
            let packets: usize = phases.iter().map(|phases| phases.paper.packets).sum();
            assert_eq!(packets, 2 * 5001, "{}", variant.name());
        }
    }
}
