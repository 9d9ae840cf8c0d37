//! Lines that move between caches, for more cores than the machine has. One thread plays all
//! workers in turns, and the counted caches see every access to memory that workers share.

use super::meter::{Caches, Moved};
use super::table::address_of;
use super::traffic::Traffic;
use super::worker::{Design, Team, Worker};
use super::{Load, Plan, ROUND};
use indicatif::ProgressBar;
use serde::Serialize;

/// Packets that a worker translates in a tick: fewer than in a measurement of time, so that a short
/// count has several ticks. Lines are written more often than with real times.
const COUNTED_TICK: u64 = 4 * ROUND as u64;

/// Lines a packet.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Counted {
    pub(super) design: Design,
    pub(super) cores: usize,
    pub(super) load: Load,
    pub(super) established: Moved,
    /// New sessions. They are made before either load begins, so both rows have the same figures.
    pub(super) create: Moved,
}

/// Steps of the progress bar.
pub(super) fn steps(plan: &Plan) -> u64 {
    (plan.cores.len() * Design::ALL.len()) as u64
}

/// Counts for all designs and numbers of cores.
pub(super) fn measure(plan: &Plan, bar: &ProgressBar) -> Vec<Counted> {
    let mut all = Vec::new();
    for &cores in &plan.cores {
        for design in Design::ALL {
            bar.set_message(format!("lines of {cores} cores"));
            all.extend(count(plan, design, cores));
            bar.inc(1);
        }
    }
    all
}

fn count(plan: &Plan, design: Design, cores: usize) -> Vec<Counted> {
    let sessions = plan.counted_sessions;
    let team = Team::new(design, cores, sessions as usize);
    let (mut workers, mut traffic) = (team.workers(COUNTED_TICK), Traffic::new(&team, sessions));
    let mut caches = Caches::new(cores);
    let most = (0..cores).map(|worker| traffic.count(worker)).max().unwrap_or(0);
    for first in (0..most).step_by(ROUND) {
        for worker in &mut workers {
            traffic.begin(worker, first..first + ROUND);
        }
        finish(&team, &mut workers, &mut caches);
    }
    let create = std::mem::take(&mut caches.moved).each(sessions as usize);
    assert_eq!(traffic.learn(&team) as u64, sessions, "{design:?}: every session is made once");
    let mut established = |load| {
        // The first half of the rounds brings the caches into the state of this load.
        for round in 0..2 * plan.counted_rounds {
            if round == plan.counted_rounds {
                caches.moved = Moved::default();
            }
            for worker in &mut workers {
                traffic.fill(worker, load);
            }
            finish(&team, &mut workers, &mut caches);
        }
        std::mem::take(&mut caches.moved).each(plan.counted_rounds * cores * ROUND)
    };
    let row = |load| Counted { design, cores, load, established: established(load), create };
    let all = Load::ALL.map(row);
    assert!(workers.iter().all(|worker| worker.refused == 0), "no packet is refused");
    all.into()
}

/// Lets all workers translate what they received.
fn finish(team: &Team, workers: &mut [Worker], caches: &mut Caches) {
    for worker in &mut *workers {
        for job in &worker.received {
            caches.receive(address_of(&*job.frame));
        }
    }
    while !workers.iter().all(Worker::is_done) {
        for worker in &mut *workers {
            caches.run_on(worker.number);
            worker.turn(team, caches);
        }
    }
}
