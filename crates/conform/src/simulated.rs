//! A bench of the program's own gateway, in simulated time.
//!
//! The whole gateway is there, router and ARP included, between two queues in memory. Time stands
//! still while it works, and jumps to what is due next while everybody waits: two hours take no
//! longer than the packets in them.

use crate::bench::Bench;
use natgate_engine::{Event, Side, Timestamp};
use natgate_gateway::{Observer, Settings, Status, Worker, WorkerError, team};
use natgate_io::memory::{self, Wire};
use natgate_io::{Change, Device, LinkInfo};
use natgate_wire::arp::Mac;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The gateway's hardware addresses, inside and outside, and then the hosts'.
const MACS: [[Mac; 2]; 2] = [
    [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])],
    [Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 1, 2])],
];

/// When simulated time begins, nanoseconds since 1970: 2020-01-01.
const BEGIN: u64 = 1_577_836_800_000_000_000;

/// The gateway and its two cables.
pub struct Simulated {
    /// One, or several that get frames in turn, whosever they are.
    workers: Vec<Worker>,
    /// What wakes them, which nothing here waits for.
    _wakes: Vec<UnixStream>,
    /// `[inside, outside]`.
    wires: [Wire; 2],
    mtus: [usize; 2],
    now: Timestamp,
}

impl Simulated {
    /// A gateway with these settings; the seed decides what it chooses at random.
    ///
    /// # Errors
    /// [`WorkerError`] when the settings contradict themselves.
    pub fn new(settings: &Settings, seed: [u8; 32]) -> Result<Self, WorkerError> {
        let count = settings.workers.count;
        let turn = Arc::new(AtomicUsize::new(0));
        let [(insides, inside_wire), (outsides, outside_wire)] =
            [("inside", MACS[0][0]), ("outside", MACS[0][1])].map(|(name, mac)| {
                let turn = Arc::clone(&turn);
                let next = move |_: &[u8]| turn.fetch_add(1, Ordering::Relaxed) % count;
                memory::group(name, mac, count, next)
            });
        let now = Timestamp(BEGIN);
        let devices = insides.into_iter().zip(outsides);
        let mut devices = devices.map(|(inside, outside)| -> [Box<dyn Device>; 2] {
            [Box::new(inside), Box::new(outside)]
        });
        let (mut workers, mut wakes) = (Vec::new(), Vec::new());
        if count == 1 {
            let devices = devices.next().expect("one worker's devices");
            workers.push(Worker::new(settings, seed, devices, now)?);
        } else {
            let pairs: io::Result<Vec<_>> = (0..count).map(|_| UnixStream::pair()).collect();
            let (ends, wakers) = pairs.map_err(WorkerError::Wake)?.into_iter().unzip();
            wakes = ends;
            for (number, (member, devices)) in
                team(settings, wakers).into_iter().zip(devices).enumerate()
            {
                let seed = seed.map(|byte| byte.wrapping_add(number as u8));
                workers.push(Worker::of_team(settings, seed, devices, member, now)?);
            }
        }
        let mtus = [Side::Inside, Side::Outside].map(|side| usize::from(settings.side(side).mtu));
        Ok(Self { workers, _wakes: wakes, wires: [inside_wire, outside_wire], mtus, now })
    }

    /// Lets all workers do what there is to do.
    fn work(&mut self) {
        /// What is handed over comes to an end.
        const MOST_ROUNDS: usize = 16;
        for _ in 0..MOST_ROUNDS {
            let turns = self.workers.iter_mut().map(|worker| worker.turn(self.now, &mut Nobody));
            if turns.sum::<usize>() == 0 || self.workers.len() == 1 {
                break;
            }
        }
    }

    fn take(&mut self) -> Option<(Side, Vec<u8>)> {
        let sides = [Side::Inside, Side::Outside];
        sides.into_iter().find_map(|side| Some((side, self.wires[side as usize].take()?)))
    }
}

impl Bench for Simulated {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.0 - BEGIN)
    }

    fn mac(&self, side: Side) -> Mac {
        MACS[1][side as usize]
    }

    fn mtu(&self, side: Side) -> usize {
        self.mtus[side as usize]
    }

    fn send(&mut self, side: Side, frame: &[u8]) {
        self.wires[side as usize].send(frame);
        self.work();
    }

    fn receive(&mut self, until: Duration) -> Option<(Side, Vec<u8>)> {
        let until = Timestamp(BEGIN).plus(until);
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            if self.now >= until {
                return None;
            }
            // Something that stays due must not stop the clock.
            let due = self.workers.iter().map(Worker::next_deadline).min().unwrap_or(until);
            self.now = due.max(Timestamp(self.now.0 + 1)).min(until);
            self.work();
        }
    }
}

/// Nobody listens to what the gateway tells.
struct Nobody;

impl Observer for Nobody {
    fn event(&mut self, _: &Event) {}
    fn link(&mut self, _: Side, _: &LinkInfo, _: &Change) {}
    fn status(&mut self, _: &Status<'_>) {}
    fn idle(&mut self) {}
}
