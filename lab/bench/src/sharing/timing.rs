//! Threads with each design, in turns. One thread alone, with a table of all sessions, is what the
//! others are compared with.

use super::meter::Unmetered;
use super::traffic::Traffic;
use super::worker::{Design, TICK, Team, Worker};
use super::{Load, Plan, ROUND};
use crate::clock;
use crate::spread::Spread;
use indicatif::ProgressBar;
use serde::Serialize;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Rounds of one measurement of a subject; a turn measures every subject once.
const TURN: usize = 8;
/// Lowest number of turns.
const TURNS: usize = 5;

/// Speed of a design; millions of packets a second of all threads.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Timed {
    pub(super) sessions: u64,
    pub(super) load: Load,
    pub(super) design: Design,
    pub(super) threads: usize,
    /// Established sessions, by wall time.
    pub(super) mpps: Spread,
    /// Established sessions, by the threads' processor time.
    pub(super) mpps_by_processor: Spread,
    /// `mpps` divided by that of one thread alone in the same turn.
    pub(super) times: Spread,
    /// New sessions, millions a second by wall time.
    pub(super) creates: f64,
}

/// Steps of the progress bar.
pub(super) fn steps(plan: &Plan) -> u64 {
    (plan.sessions.len() * Load::ALL.len()) as u64
}

/// Measures all designs.
pub(super) fn measure(plan: &Plan, bar: &ProgressBar) -> Vec<Timed> {
    let mut all = Vec::new();
    for &sessions in &plan.sessions {
        bar.set_message(format!("{sessions} sessions"));
        let mut subjects = subjects(plan, sessions);
        for load in Load::ALL {
            all.extend(alternate(plan, sessions, load, &mut subjects));
            bar.inc(1);
        }
    }
    all
}

/// A gateway with its sessions.
struct Subject {
    team: Team,
    workers: Vec<Worker>,
    traffic: Traffic,
    creates: f64,
}

/// One thread alone, then each design with each number of threads.
fn subjects(plan: &Plan, sessions: u64) -> Vec<Subject> {
    let more = plan.threads.iter().filter(|&&threads| threads > 1);
    let more = more.flat_map(|&threads| Design::ALL.map(|design| (design, threads)));
    let all = std::iter::once((Design::Steered, 1)).chain(more);
    all.map(|(design, threads)| Subject::new(design, threads, sessions)).collect()
}

impl Subject {
    fn new(design: Design, threads: usize, sessions: u64) -> Self {
        let team = Team::new(design, threads, sessions as usize);
        let (workers, traffic) = (team.workers(TICK), Traffic::new(&team, sessions));
        let mut subject = Self { team, workers, traffic, creates: 0.0 };
        let most = (0..threads).map(|worker| subject.traffic.count(worker)).max().unwrap_or(0);
        let mut seconds = 0.0;
        for first in (0..most).step_by(ROUND) {
            let done = subject.run(1, &|traffic, worker| {
                traffic.begin(worker, first..first + ROUND);
            });
            seconds += done.iter().map(|done| done.wall).fold(0.0, f64::max);
        }
        let made = subject.traffic.learn(&subject.team);
        assert_eq!(made as u64, sessions, "{design:?}: every session is made once");
        subject.creates = sessions as f64 / seconds / 1e6;
        subject
    }

    /// Runs all workers for some rounds.
    fn run(&mut self, rounds: usize, fill: &Fill<'_>) -> Vec<Done> {
        let Self { team, workers, traffic, .. } = self;
        let (team, traffic) = (&*team, &*traffic);
        let common =
            &Common { barrier: Barrier::new(workers.len()), finished: AtomicUsize::new(0) };
        let done = thread::scope(|scope| {
            let start = |worker| {
                scope.spawn(move || {
                    work(team, worker, rounds, common, |worker| fill(traffic, worker))
                })
            };
            let threads: Vec<_> = workers.iter_mut().map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("a worker ends")).collect()
        });
        assert!(workers.iter().all(|worker| worker.refused == 0), "no packet is refused");
        done
    }
}

/// Gives a worker the packets of a round.
type Fill<'a> = dyn Fn(&Traffic, &mut Worker) + Sync + 'a;

/// Packets of a worker in one run, and their time in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    packets: f64,
    wall: f64,
    cpu: f64,
}

/// Shared by the threads of one run.
struct Common {
    barrier: Barrier,
    /// Workers whose packets are done, of all rounds so far.
    finished: AtomicUsize,
}

fn work(
    team: &Team,
    worker: &mut Worker,
    rounds: usize,
    common: &Common,
    mut fill: impl FnMut(&mut Worker),
) -> Done {
    let mut done = Done::default();
    for round in 1..=rounds {
        fill(worker);
        done.packets += worker.received.len() as f64;
        common.barrier.wait();
        let (begin, cpu) = (Instant::now(), clock::now());
        let mut is_finished = false;
        while common.finished.load(Ordering::Relaxed) < round * team.workers {
            worker.turn(team, &mut Unmetered);
            if worker.is_done() && !is_finished {
                is_finished = true;
                common.finished.fetch_add(1, Ordering::Relaxed);
            }
        }
        done.wall += begin.elapsed().as_secs_f64();
        done.cpu += (clock::now() - cpu) as f64 / 1e9;
        common.barrier.wait();
    }
    done
}

/// Measures the subjects in turns.
fn alternate(plan: &Plan, sessions: u64, load: Load, subjects: &mut [Subject]) -> Vec<Timed> {
    let begun = Instant::now();
    let mut turns: Vec<Vec<[f64; 2]>> = Vec::new();
    while begun.elapsed() < plan.time || turns.len() < TURNS {
        let turn = |subject: &mut Subject| {
            let done = subject.run(TURN, &|traffic, worker| {
                traffic.fill(worker, load);
            });
            let mpps = |time: fn(&Done) -> f64| {
                done.iter().map(|done| done.packets / time(done) / 1e6).sum::<f64>()
            };
            [mpps(|done| done.wall), mpps(|done| done.cpu)]
        };
        turns.push(subjects.iter_mut().map(turn).collect());
    }
    let spread =
        |of: &dyn Fn(&Vec<[f64; 2]>) -> f64| Spread::of(&turns.iter().map(of).collect::<Vec<_>>());
    let row = |(at, subject): (usize, &Subject)| Timed {
        sessions,
        load,
        design: subject.team.design,
        threads: subject.team.workers,
        mpps: spread(&|turn| turn[at][0]),
        mpps_by_processor: spread(&|turn| turn[at][1]),
        times: spread(&|turn| turn[at][0] / turn[0][0]),
        creates: subject.creates,
    };
    subjects.iter().enumerate().map(row).collect()
}
