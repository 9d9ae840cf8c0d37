//! A bench of the program's own gateway, in simulated time.
//!
//! The whole gateway is there, router and ARP included, between two queues in memory. Time stands
//! still while it works, and jumps to what is due next while everybody waits: two hours take no
//! longer than the packets in them.

use crate::bench::Bench;
use natgate_engine::{Event, Side, Timestamp};
use natgate_gateway::{Observer, Settings, Status, Worker, WorkerError};
use natgate_io::memory::{self, Wire};
use natgate_io::{Change, Device, LinkInfo};
use natgate_wire::arp::Mac;
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
    worker: Worker,
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
        let (inside, inside_wire) = memory::pair("inside", MACS[0][0]);
        let (outside, outside_wire) = memory::pair("outside", MACS[0][1]);
        let now = Timestamp(BEGIN);
        let devices: [Box<dyn Device>; 2] = [Box::new(inside), Box::new(outside)];
        let worker = Worker::new(settings, seed, devices, now)?;
        let mtus = [Side::Inside, Side::Outside].map(|side| usize::from(settings.side(side).mtu));
        Ok(Self { worker, wires: [inside_wire, outside_wire], mtus, now })
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
        self.worker.turn(self.now, &mut Nobody);
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
            let next = self.worker.next_deadline().max(Timestamp(self.now.0 + 1));
            self.now = next.min(until);
            self.worker.turn(self.now, &mut Nobody);
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
