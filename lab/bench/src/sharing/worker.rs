//! Workers of one gateway, by three designs: packets come to the worker that owns their session;
//! packets come to any worker, which hands them over to the owner; packets come to any worker,
//! which translates them by a table that all workers share.
//!
//! A packet that is handed over stays in its buffer. Its descriptor goes to the owner through a
//! ring, and comes back through the ring of the other way when the packet is done. A worker
//! translates its own packets and those of others in one batch.

use super::meter::Meter;
use super::packet::{Job, translate};
use super::table::{Maker, Table, address_of, hash};
use super::{BATCH, ROUND};
use crate::frame::{Frame, destination, source};
use crate::random::Random;
use rtrb::{Consumer, Producer, RingBuffer};
use serde::Serialize;

/// First external address.
const POOL: u32 = 0xcb00_7100;
/// Sessions of an external address, on average.
const SESSIONS_PER_ADDRESS: usize = 40_000;
/// Part by which an owner's table is larger than its average share.
const SPARE: f64 = 0.25;
/// Packets that a worker translates in a tick of 125 ms: ten millions a second.
pub(super) const TICK: u64 = 1_250_000;
/// Places of a ring: there are no more descriptors than the buffers of both workers.
const PLACES: usize = 2 * ROUND;
/// Bytes of a ring's places, and of a ring with its ends, for a count of its lines. Rings lie one
/// behind the other.
const DESCRIPTORS: usize = PLACES * size_of::<Job>();
const RING: usize = DESCRIPTORS + 256;

/// Division of the work among workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Design {
    /// Each worker has a table; packets come to the worker that owns their session.
    Steered,
    /// Each worker has a table; packets come to any worker.
    HandedOver,
    /// All workers share a table; packets come to any worker.
    Shared,
}

impl Design {
    pub(super) const ALL: [Self; 3] = [Self::Steered, Self::HandedOver, Self::Shared];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Steered => "own tables, steered",
            Self::HandedOver => "own tables, handed over",
            Self::Shared => "one table",
        }
    }
}

/// The design and the tables, which all workers of a gateway use.
pub(super) struct Team {
    pub(super) design: Design,
    pub(super) workers: usize,
    /// One table, or one of each worker.
    pub(super) tables: Vec<Table>,
    /// External addresses of a table.
    addresses: u32,
}

impl Team {
    pub(super) fn new(design: Design, workers: usize, sessions: usize) -> Self {
        let tables = if design == Design::Shared { 1 } else { workers };
        let room = (sessions as f64 / tables as f64 * (1.0 + SPARE)) as usize + ROUND;
        let addresses = room.div_ceil(SESSIONS_PER_ADDRESS) as u32;
        let table = |number| Table::new(room, POOL + number as u32 * addresses, addresses);
        Self { design, workers, tables: (0..tables).map(table).collect(), addresses }
    }

    /// Worker that owns the sessions of a subscriber.
    pub(super) fn owner_of(&self, subscriber: u32) -> usize {
        let scaled = u128::from(hash((subscriber, 0))) * self.workers as u128;
        (scaled >> 64) as usize
    }

    fn owner(&self, job: &Job) -> usize {
        if job.is_inbound {
            let address = destination(&job.frame).0;
            (address.wrapping_sub(POOL) / self.addresses) as usize % self.workers
        } else {
            self.owner_of(source(&job.frame).0)
        }
    }

    fn table(&self, worker: usize) -> &Table {
        &self.tables[worker % self.tables.len()]
    }

    /// Creates the workers, and the rings between them. Each translates `tick` packets in a tick.
    pub(super) fn workers(&self, tick: u64) -> Vec<Worker> {
        let worker = |number| Worker::new(self, number, tick);
        let mut workers: Vec<Worker> = (0..self.workers).map(worker).collect();
        if self.design != Design::HandedOver {
            return workers;
        }
        for to in 0..self.workers {
            for from in 0..self.workers {
                let (producer, consumer) = RingBuffer::new(PLACES);
                let lines = Lines { base: (1 << 60) + (to * self.workers + from) * RING, next: 0 };
                workers[from].outgoing.push(Outgoing { producer, waiting: Vec::new(), lines });
                workers[to].incoming.push(Incoming { consumer, lines });
            }
        }
        workers
    }
}

/// Lines of a ring in a count, as one of its workers sees them.
#[derive(Clone, Copy)]
struct Lines {
    /// Stands for the ring's address.
    base: usize,
    /// The next place.
    next: usize,
}

impl Lines {
    /// The lines of the next `count` places, at least one; then those behind them are the next.
    fn take(&mut self, count: usize) -> impl Iterator<Item = usize> {
        let base = self.base;
        let line = |place: usize| place * size_of::<Job>() / 64;
        let (first, last) = (line(self.next), line(self.next + count - 1));
        self.next = (self.next + count) % PLACES;
        (first..=last).map(move |line| base + line * 64 % DESCRIPTORS)
    }

    /// Address of the end that the writer moves.
    fn written(&self) -> usize {
        self.base + DESCRIPTORS
    }

    /// Address of the end that the reader moves.
    fn read(&self) -> usize {
        self.written() + 128
    }
}

/// Ring to another worker.
struct Outgoing {
    producer: Producer<Job>,
    waiting: Vec<Job>,
    lines: Lines,
}

/// Ring from another worker.
struct Incoming {
    consumer: Consumer<Job>,
    lines: Lines,
}

impl Outgoing {
    /// Writes the waiting descriptors; the reader learns of them once.
    fn flush(&mut self, meter: &mut impl Meter) {
        let count = self.waiting.len();
        if count == 0 {
            return;
        }
        let chunk = self.producer.write_chunk_uninit(count).expect("a ring has room for all");
        chunk.fill_from_iter(self.waiting.drain(..));
        self.lines.take(count).for_each(|line| meter.write(line));
        meter.write(self.lines.written());
    }
}

impl Incoming {
    fn take(&mut self, into: &mut Vec<Job>, meter: &mut impl Meter) {
        meter.read(self.lines.written());
        let count = self.consumer.slots();
        if count == 0 {
            return;
        }
        self.lines.take(count).for_each(|line| meter.read(line));
        into.extend(self.consumer.read_chunk(count).expect("so many descriptors wait"));
        meter.write(self.lines.read());
    }
}

/// A worker with its buffers.
pub(super) struct Worker {
    pub(super) number: usize,
    /// Packets that the network card has received.
    pub(super) received: Vec<Job>,
    /// Buffers without a packet that waits.
    pub(super) idle: Vec<Job>,
    /// Packets that were refused.
    pub(super) refused: usize,
    /// Random numbers of the worker's traffic.
    pub(super) random: Random,
    batch: Vec<Job>,
    maker: Maker,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    translated: u64,
    tick: u64,
    is_steered: bool,
}

impl Worker {
    fn new(team: &Team, number: usize, tick: u64) -> Self {
        let makers = team.workers / team.tables.len();
        let buffer =
            |_| Job { frame: Box::new(Frame([0; 64])), is_inbound: false, from: number as u16 };
        Self {
            number,
            received: Vec::with_capacity(ROUND),
            idle: (0..ROUND).map(buffer).collect(),
            refused: 0,
            random: Random::new(number as u64 * 0x9e37 + 5),
            batch: Vec::with_capacity(2 * ROUND),
            maker: Maker::new(team.table(number), number % makers, makers),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            translated: 0,
            tick,
            is_steered: team.design == Design::Steered,
        }
    }

    /// True if this worker's packets belong to its own sessions.
    pub(super) fn owns_what_it_gets(&self) -> bool {
        self.is_steered
    }

    /// True if all packets of this worker's network card are done.
    pub(super) fn is_done(&self) -> bool {
        self.idle.len() == ROUND
    }

    /// Does one batch of received packets, and what other workers have for this one.
    pub(super) fn turn(&mut self, team: &Team, meter: &mut impl Meter) {
        let rest = self.received.len().saturating_sub(BATCH);
        for job in self.received.drain(rest..) {
            if team.design != Design::HandedOver {
                self.batch.push(job);
                continue;
            }
            meter.read(address_of(&*job.frame));
            match team.owner(&job) {
                owner if owner == self.number => self.batch.push(job),
                owner => self.outgoing[owner].waiting.push(job),
            }
        }
        for ring in &mut self.outgoing {
            ring.flush(meter);
        }
        let own = self.batch.len();
        for ring in &mut self.incoming {
            ring.take(&mut self.batch, meter);
        }
        // Buffers that come back have no packet to translate.
        let number = self.number as u16;
        let mut at = own;
        while at < self.batch.len() {
            if self.batch[at].from == number {
                self.idle.push(self.batch.swap_remove(at));
            } else {
                at += 1;
            }
        }
        self.translated += self.batch.len() as u64;
        let now = 1 + (self.translated / self.tick) as u32;
        let table = team.table(self.number);
        self.refused += translate(table, &mut self.batch, now, &mut self.maker, meter);
        for job in self.batch.drain(..) {
            if job.from == number {
                self.idle.push(job);
            } else {
                self.outgoing[usize::from(job.from)].waiting.push(job);
            }
        }
        for ring in &mut self.outgoing {
            ring.flush(meter);
        }
    }
}
