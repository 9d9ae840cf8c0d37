//! A gateway's state, handed over to another process: what is asked of a worker that goes, and what
//! one that comes takes. How the two processes speak is not known here.

use crate::command::{CommandError, Commander};
use crate::router::Router;
use crate::wiring::{Devices, LinkMap};
use crate::{Clock, Link, Settings, Worker, WorkerError};
use natgate_engine::{
    AddressRange, Engine, Export, Exported, Restoration, RestoreError, Restored, Timestamp,
};
use natgate_io::Batch;
use natgate_wire::arp::Mac;
use std::net::Ipv4Addr;
use std::sync::mpsc::Receiver;

/// Mappings that a worker looks at in one turn for it: some ten microseconds.
const A_TURN: u32 = 256;

/// Bytes after which what has been written goes on its way.
const ENOUGH: usize = 1 << 20;

/// Frames that are thrown away at most in one go.
const MOST_STALE: usize = 1 << 16;

/// An export under way, with room for what is written next; who asks for it makes it.
#[derive(Debug)]
pub struct Writing {
    /// How far it is.
    pub export: Export,
    /// Records.
    pub out: Vec<u8>,
}

impl Writing {
    /// Of an engine with a configuration.
    pub fn new(config: &natgate_engine::Config) -> Self {
        Self { export: Export::new(config), out: Self::room() }
    }

    /// Room for records.
    pub fn room() -> Vec<u8> {
        Vec::with_capacity(Export::ROOM + ENOUGH)
    }

    /// Does a turn's share; whether it is to go back, and if so whether the pass is over. A worker
    /// that does nothing else fills the room.
    pub(crate) fn turn(&mut self, engine: &Engine, is_halted: bool) -> Option<bool> {
        let budget = if is_halted { u32::MAX } else { A_TURN };
        match engine.export(&mut self.export, &mut self.out, budget) {
            Exported::Done => Some(true),
            Exported::Full => Some(false),
            Exported::More => (self.out.len() >= ENOUGH).then_some(false),
        }
    }
}

/// Somebody on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownNeighbor {
    /// The link.
    pub link: Link,
    /// Its address there.
    pub address: Ipv4Addr,
    /// Its hardware address.
    pub mac: Mac,
}

/// Who has what among several workers: for each of the buckets of subscribers the worker that has
/// it, and a bit for each that may still have some of them; for each external address whose its
/// ports are, by runs of words of 64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// By bucket.
    pub buckets: Vec<(u8, u64)>,
    /// Address; how many words, and whose they are.
    pub addresses: Vec<(u32, Vec<(u16, u8)>)>,
}

/// What a gateway leaves that takes no packets any more, besides what its translators have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legacy {
    /// Who is known on its links.
    pub known: Vec<KnownNeighbor>,
    /// Of each worker, since when hosts have lost no mapping that they had asked for.
    pub epochs: Vec<Timestamp>,
    /// The external addresses.
    pub addresses: Vec<AddressRange>,
    /// Who has what, if there are several workers.
    pub division: Option<Division>,
}

impl Legacy {
    /// What all of several workers leave.
    fn of_all(all: Vec<Self>) -> Self {
        let mut sum = Self::default();
        for (number, one) in all.into_iter().enumerate() {
            for known in one.known {
                if !sum.known.contains(&known) {
                    sum.known.push(known);
                }
            }
            sum.epochs.extend(one.epochs);
            if number == 0 {
                (sum.addresses, sum.division) = (one.addresses, one.division);
            }
        }
        sum
    }
}

/// Devices that are to take the place of others; afterwards those others.
#[derive(Debug)]
pub(crate) struct Exchange(pub(crate) Devices);

impl Exchange {
    /// Puts them in their places; unless there are as many as before, nothing changes.
    pub(crate) fn turn(&mut self, router: &mut Router, cables: &LinkMap, devices: &mut Devices) {
        if self.0.len() != devices.len() {
            return;
        }
        std::mem::swap(&mut self.0, devices);
        for (place, device) in devices.iter().enumerate() {
            let mac = device.link().mac;
            for link in
                cables.links(place).filter(|&link| mac != router.mac(link)).collect::<Vec<_>>()
            {
                router.relink(link, mac);
            }
        }
    }
}

/// What is written comes by this, with whether the pass is over.
pub type Written = Receiver<(Box<Writing>, bool)>;

impl Commander {
    /// Says whether another process could go on as the workers divide their work: not if some have
    /// joined since the start, and hosts that are mapped for good have stayed with others.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn can_be_succeeded(&self) -> Result<bool, CommandError> {
        Ok(self.numbered()?.partition().is_none_or(|partition| partition.division().is_some()))
    }

    /// Begins to have a worker write what is next; packets go on meanwhile, unless it is halted.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn write(&self, worker: usize, writing: Box<Writing>) -> Result<Written, CommandError> {
        self.begin_writing(worker, writing)
    }

    /// Has a gateway take no packets any more; tells what else there is to go on with. What it has
    /// been given has been sent, and what it had to tell has been told.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn halt(&self) -> Result<Legacy, CommandError> {
        self.halt_all().map(Legacy::of_all)
    }

    /// Has it go on as if nothing had been.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn resume(&self) -> Result<(), CommandError> {
        self.resume_all()
    }

    /// Gives workers other devices, one list for each; returns those that they had.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn exchange_devices(&self, devices: Vec<Devices>) -> Result<Vec<Devices>, CommandError> {
        let all = self.exchange_all(devices.into_iter().map(Exchange).collect())?;
        Ok(all.into_iter().map(|exchange| exchange.0).collect())
    }
}

impl Worker {
    /// Does nothing but what it is told, for another process is about to take over.
    pub(crate) fn stand_still(&mut self, now: Timestamp) {
        if let Some(reply) = self.halting() {
            // Who does not wait for it has gone.
            let _ = reply.send(self.legacy());
        }
        self.obey_standing(now);
    }

    /// Begins to take over another's state; nothing has passed through this one yet.
    pub fn begin_restoration(&self) -> Restoration {
        Restoration::new(self.engine())
    }

    /// Takes what the other has written.
    ///
    /// # Errors
    /// [`RestoreError`]: the worker is not to be used.
    pub fn restore(
        &mut self,
        restoration: &mut Restoration,
        records: &[u8],
    ) -> Result<(), RestoreError> {
        self.engine_mut().restore(restoration, records)
    }

    /// Has what the other had, among several: to be done with each worker before the last records
    /// come. `None`: that does not fit.
    pub fn adopt(&mut self, division: Option<&Division>) -> Option<()> {
        self.adopt_division(division)
    }

    /// Puts what was taken in force.
    ///
    /// # Errors
    /// [`RestoreError`]: the worker is not to be used.
    pub fn finish_restoration(
        &mut self,
        restoration: &mut Restoration,
    ) -> Result<Restored, RestoreError> {
        self.engine_mut().finish_restoration(restoration)
    }

    /// Goes on with what else the other has left; `number`: which of its workers this one follows.
    pub fn go_on(&mut self, now: Timestamp, number: usize, legacy: &Legacy) {
        for known in &legacy.known {
            self.router_mut().introduce(now, known.link, known.address, known.mac);
        }
        if let Some(&epoch) = legacy.epochs.get(number) {
            self.go_on_since(epoch, &legacy.addresses, now);
        }
    }

    /// Gives it other devices, in the order of [`Settings::devices`].
    ///
    /// # Errors
    /// [`WorkerError`] when they carry less than the settings say.
    ///
    /// # Panics
    /// When there are not as many as before.
    pub fn set_devices(
        &mut self,
        settings: &Settings,
        devices: Devices,
    ) -> Result<(), WorkerError> {
        assert_eq!(devices.len(), self.devices().len());
        LinkMap::new(settings).check(settings, devices.iter().map(|device| device.link()))?;
        self.exchange(Exchange(devices));
        Ok(())
    }

    /// Throws away frames that have come in: another has had them.
    pub fn discard_frames(&mut self) {
        for device in self.devices_mut() {
            let mut left = MOST_STALE;
            loop {
                let mut batch = Batch::new();
                device.split().0.receive(&mut batch);
                if batch.is_empty() || left == 0 {
                    break;
                }
                left = left.saturating_sub(batch.len());
            }
        }
    }
}

impl Clock {
    /// What another process on this machine needs to have the same time: this clock's, and that of
    /// the kernel's steady clock, nanoseconds.
    pub fn reading(&self) -> (Timestamp, u64) {
        (self.now(), steady())
    }

    /// A clock that goes on with another's.
    pub fn like(reading: (Timestamp, u64)) -> Self {
        let (time, read) = reading;
        let passed = std::time::Duration::from_nanos(steady().saturating_sub(read));
        Self::at(time.plus(passed))
    }
}

/// The kernel's steady clock, nanoseconds.
fn steady() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
