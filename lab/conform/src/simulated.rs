//! A bench of the program's own gateway, in simulated time.
//!
//! The bench has the whole gateway, including router and ARP, between two queues in memory. Time
//! stands still while the gateway works, and jumps to the next deadline while all tests wait. So
//! two hours take only as long as their packets. Devices of realms exist, too, without hosts at the
//! other end of their cables.

use crate::bench::Bench;
use natgate_engine::{Side, Timestamp};
use natgate_gateway::{Settings, Worker, WorkerError, team};
use natgate_io::memory::{self, MemoryDevice, Wire};
use natgate_io::{Change, Device, LinkInfo, Receive, Statistics, Transmit};
use natgate_wire::arp::Mac;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Hardware addresses of the hosts, inside and outside.
const HOSTS: [Mac; 2] = [Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 1, 2])];

/// Hardware address of one of the gateway's devices, by its place among them.
fn mac_of(place: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, place as u8 + 1])
}

/// Begin of simulated time, nanoseconds since 1970: 2020-01-01.
const BEGIN: u64 = 1_577_836_800_000_000_000;

/// The gateway and its two cables.
pub struct Simulated {
    /// One worker, or several that get frames in turn, without regard to the owner.
    workers: Vec<Worker>,
    /// Sockets that wake the workers; the simulation does not wait for them.
    _wakes: Vec<UnixStream>,
    /// One queue for each device: inside, outside, then the devices of realms.
    wires: Vec<Wire>,
    mtus: [usize; 2],
    now: Timestamp,
}

impl Simulated {
    /// Creates a gateway with these settings; the seed determines its random choices.
    ///
    /// # Errors
    /// [`WorkerError`] if the settings contradict each other.
    pub fn new(settings: &Settings, seed: [u8; 32]) -> Result<Self, WorkerError> {
        let count = settings.workers.count;
        let names = settings.devices();
        let turn = Arc::new(AtomicUsize::new(0));
        // Devices of each worker, in the order of their places.
        let mut devices: Vec<Vec<Box<dyn Device>>> = (0..count).map(|_| Vec::new()).collect();
        let mut wires = Vec::new();
        for (place, name) in names.into_iter().enumerate() {
            let turn = Arc::clone(&turn);
            let next = move |_: &[u8]| turn.fetch_add(1, Ordering::Relaxed) % count;
            let (group, wire) = memory::group(name, mac_of(place), count, next);
            for (own, device) in devices.iter_mut().zip(group) {
                own.push(Box::new(AnyMtu::new(device)));
            }
            wires.push(wire);
        }
        let now = Timestamp(BEGIN);
        let mut devices = devices.into_iter();
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
        Ok(Self { workers, _wakes: wakes, wires, mtus, now })
    }

    /// Lets all workers do all due work.
    fn work(&mut self) {
        /// Handing over ends after a few rounds.
        const MOST_ROUNDS: usize = 16;
        for _ in 0..MOST_ROUNDS {
            let turns = self.workers.iter_mut().map(|worker| worker.turn(self.now, &mut ()));
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
        HOSTS[side as usize]
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
            // A deadline that stays due must not stop the clock.
            let due = self.workers.iter().map(Worker::next_deadline).min().unwrap_or(until);
            self.now = due.max(Timestamp(self.now.0 + 1)).min(until);
            self.work();
        }
    }
}

/// A device for packets of any length. Configurations determine MTUs, and cables do not.
#[derive(Debug)]
struct AnyMtu {
    device: MemoryDevice,
    link: LinkInfo,
}

impl AnyMtu {
    fn new(device: MemoryDevice) -> Self {
        let link = LinkInfo { mtu: u32::from(u16::MAX), ..device.link().clone() };
        Self { device, link }
    }
}

impl Device for AnyMtu {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        self.device.split()
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        self.device.statistics()
    }

    fn maintain(&mut self) -> Option<Change> {
        let change = self.device.maintain();
        self.link.up = self.device.link().up;
        change
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.device.readiness()
    }
}
