//! Sessions of a team of workers, and packets of them.

use super::packet::{Job, write};
use super::table::Session;
use super::worker::{Design, Team, Worker};
use super::{Load, POPULAR, ROUND};
use crate::random::Shuffle;
use std::ops::Range;

const INSIDE: u32 = 0x0a00_0001;
const OUTSIDE: u32 = 0xc612_0001;

/// All sessions, and those that come to each worker.
pub(super) struct Traffic {
    subscribers: u64,
    sessions: Vec<Session>,
    /// For each worker the sessions whose packets come to it, in random order.
    of_worker: Vec<Vec<u32>>,
}

impl Traffic {
    /// Creates the sessions that a team will have; their external endpoints are not known yet.
    pub(super) fn new(team: &Team, sessions: u64) -> Self {
        let subscribers = crate::engine::subscribers(sessions);
        let session = |number: u64| Session {
            internal: (
                INSIDE + (number % subscribers) as u32,
                1024 + (number / subscribers) as u16,
            ),
            remote: (OUTSIDE + (number % 60_013) as u32, 443),
            ..Session::default()
        };
        let all: Vec<Session> = (0..sessions).map(session).collect();
        let order = Shuffle::new(sessions);
        let mut of_worker = vec![Vec::new(); team.workers];
        for place in 0..sessions {
            let number = order.at(place);
            let worker = match team.design {
                Design::Steered => team.owner_of(all[number as usize].internal.0),
                Design::HandedOver | Design::Shared => (place % team.workers as u64) as usize,
            };
            of_worker[worker].push(number as u32);
        }
        Self { subscribers, sessions: all, of_worker }
    }

    /// Number of sessions whose first packet comes to a worker.
    pub(super) fn count(&self, worker: usize) -> usize {
        self.of_worker[worker].len()
    }

    /// A worker receives the first packets of the sessions at these places.
    pub(super) fn begin(&self, worker: &mut Worker, places: Range<usize>) {
        let of_worker = &self.of_worker[worker.number];
        for &number in
            &of_worker[places.start.min(of_worker.len())..places.end.min(of_worker.len())]
        {
            self.receive(worker, number, false);
        }
    }

    /// Learns the external endpoints; returns the number of sessions in the tables.
    pub(super) fn learn(&mut self, team: &Team) -> usize {
        let mut count = 0;
        for (internal, external) in team.tables.iter().flat_map(|table| table.sessions()) {
            let subscriber = u64::from(internal.0 - INSIDE);
            let number = subscriber + self.subscribers * u64::from(internal.1 - 1024);
            self.sessions[number as usize].external = external;
            count += 1;
        }
        count
    }

    /// A worker receives a round of packets, half of them inbound.
    pub(super) fn fill(&self, worker: &mut Worker, load: Load) {
        // A worker that owns sessions gets the packets of its own.
        let any = worker.random.below(self.of_worker.len() as u64) as usize;
        for place in 0..ROUND {
            let of_worker = match worker.owns_what_it_gets() {
                true => &self.of_worker[worker.number],
                false => &self.of_worker[(any + place) % self.of_worker.len()],
            };
            let popular = (POPULAR / self.of_worker.len()).clamp(1, of_worker.len());
            let among = match load {
                Load::Popular if worker.random.below(2) == 0 => popular,
                Load::Popular | Load::Even => of_worker.len(),
            };
            let number = of_worker[worker.random.below(among as u64) as usize];
            self.receive(worker, number, place % 2 == 1);
        }
    }

    fn receive(&self, worker: &mut Worker, number: u32, is_inbound: bool) {
        let mut job: Job = worker.idle.pop().expect("a round has so many buffers");
        write(&mut job, self.sessions[number as usize], is_inbound);
        worker.received.push(job);
    }
}
