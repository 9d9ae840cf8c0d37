//! How a worker that runs short of ports gets some from another: it asks one after the other, who
//! gives a stretch of ports that nobody has, if it has plenty itself. So that no packet waits for
//! it, a worker asks before it has run out.

use super::exchange::Waker;
use super::partition::Partition;
use crate::limits::MOST_WORKERS;
use natgate_engine::{Allocation, Config, Engine, PoolConfig, Timestamp};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How often a worker looks whether it is short of ports.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long nobody is asked again when nobody had any.
const PAUSE: Duration = Duration::from_secs(1);

/// Words of 64 ports that change hands at once, at most: what that takes is felt by nobody.
const MOST_WORDS: usize = 16;

/// A worker is short of ports below this many, or this part of its share of a pool.
const LEAST_FREE: u32 = 256;
const LEAST_PART: u32 = 16;

/// Ports that may be short, on a side of port 1024: the sides do not make up for each other (RFC
/// 4787 REQ-3). Nor do addresses, where a pool's few are cut into slices and subscribers stay with
/// theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PortKind {
    pool: usize,
    address: Option<Ipv4Addr>,
    is_low: bool,
}

impl PortKind {
    /// All that there are among so many workers.
    fn all(config: &Config, workers: usize) -> Vec<Self> {
        let of_pool = |(number, pool): (usize, &PoolConfig)| -> Vec<Self> {
            if matches!(config.allocation_of(pool), Allocation::Deterministic(_)) {
                return Vec::new();
            }
            let each: Vec<Option<Ipv4Addr>> = match pool.count() < workers {
                true => pool.each_address().map(Some).collect(),
                false => vec![None],
            };
            let goods =
                |address| [false, true].map(|is_low| Self { pool: number, address, is_low });
            each.into_iter().flat_map(goods).collect()
        };
        config.pools.iter().enumerate().flat_map(of_pool).collect()
    }

    /// How many of them are free.
    fn free(self, engine: &Engine) -> u32 {
        match self.address {
            Some(address) => engine.free_ports_of(address, self.is_low),
            None => engine.free_ports(self.pool, self.is_low),
        }
    }

    /// Free ports below which one of so many workers is short.
    fn least(self, config: &Config, workers: usize) -> u32 {
        let Some(pool) = config.pools.get(self.pool) else { return 0 };
        let (first, last) = (u32::from(pool.ports.0), u32::from(pool.ports.1));
        let (first, last) =
            if self.is_low { (first, last.min(1023)) } else { (first.max(1024), last) };
        let ports = (last + 1).saturating_sub(first);
        let addresses = if self.address.is_some() { 1 } else { pool.count() as u32 };
        let share = ports.saturating_mul(addresses) / workers as u32;
        LEAST_FREE.min(share / 4).max(share / LEAST_PART)
    }
}

/// What one worker tells another.
#[derive(Debug)]
pub(super) enum Note {
    /// `from` is short of ports.
    Want { from: usize, goods: PortKind },
    /// These are yours now.
    Gift(Ipv4Addr, Range<usize>),
    /// There is nothing to spare.
    Nothing,
}

/// A worker's part in that.
#[derive(Debug)]
pub(super) struct PortLender {
    number: usize,
    notes: Receiver<Note>,
    others: Vec<Mailbox>,
    /// When to look again.
    next: Timestamp,
    /// What was asked for, and how many others remain to be asked.
    asked: Option<(PortKind, usize)>,
    /// What there is to look after, and when it may be asked for again.
    goods: Vec<(PortKind, Timestamp)>,
}

/// What has changed hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trade {
    /// Ports that came.
    pub(super) borrowed: u64,
    /// Ports that went.
    pub(super) lent: u64,
}

/// The brokers of workers that are woken so.
pub(super) fn brokers(wakers: &[Arc<Waker>]) -> Vec<PortLender> {
    let workers = wakers.len();
    // Everybody asks for one thing at a time, and is answered by one note.
    let ends = (0..workers).map(|_| sync_channel(2 * MOST_WORKERS));
    let (senders, notes): (Vec<_>, Vec<_>) = ends.unzip();
    let others: Vec<_> = senders.into_iter().zip(wakers.iter().cloned()).collect();
    let broker = |(number, notes)| PortLender {
        number,
        notes,
        others: others.clone(),
        next: Timestamp(0),
        asked: None,
        goods: Vec::new(),
    };
    notes.into_iter().enumerate().map(broker).collect()
}

/// How one worker writes to another.
pub(super) type Mailbox = (SyncSender<Note>, Arc<Waker>);

/// The broker of a worker that joins others, and where they write to it.
pub(super) fn join(mut others: Vec<Mailbox>, own: &Arc<Waker>) -> (PortLender, Mailbox) {
    let number = others.len();
    let (sender, notes) = sync_channel(2 * MOST_WORKERS);
    let mailbox = (sender, Arc::clone(own));
    others.push(mailbox.clone());
    let broker =
        PortLender { number, notes, others, next: Timestamp(0), asked: None, goods: Vec::new() };
    (broker, mailbox)
}

impl PortLender {
    /// Where the others are written to, and this worker is.
    pub(super) fn mailboxes(&self) -> Vec<Mailbox> {
        self.others.clone()
    }

    /// Takes a newcomer in.
    pub(super) fn welcome(&mut self, mailbox: Mailbox) {
        self.others.push(mailbox);
    }

    /// Answers the others, and looks whether something is short; to be called each turn.
    pub(super) fn turn(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        partition: &Partition,
    ) -> Trade {
        let mut trade = Trade::default();
        let is_noted = self.others[self.number].1.take_note();
        while is_noted && let Ok(note) = self.notes.try_recv() {
            match note {
                Note::Want { from, goods } => {
                    trade.lent += self.lend(from, goods, engine, partition);
                }
                Note::Gift(address, words) => {
                    trade.borrowed += 64 * words.len() as u64;
                    engine.own(address, words);
                    self.asked = None;
                }
                Note::Nothing => self.ask_another(now),
            }
        }
        if now >= self.next {
            self.next = now.plus(INTERVAL);
            self.look(now, engine);
        }
        trade
    }

    /// Looks after these pools from now on.
    pub(super) fn look_after(&mut self, config: &Config) {
        let all = PortKind::all(config, self.others.len());
        self.goods = all.into_iter().map(|goods| (goods, Timestamp(0))).collect();
    }

    /// Asks for ports that are short, unless something was asked for.
    fn look(&mut self, now: Timestamp, engine: &Engine) {
        if self.asked.is_some() {
            return;
        }
        let (config, workers) = (engine.config(), self.others.len());
        let is_short = |(goods, pause): &&(PortKind, Timestamp)| {
            now >= *pause && goods.free(engine) < goods.least(config, workers)
        };
        if let Some(&(goods, _)) = self.goods.iter().find(is_short) {
            self.asked = Some((goods, workers));
            self.ask_another(now);
        }
    }

    fn ask_another(&mut self, now: Timestamp) {
        let Some((goods, left)) = self.asked.take() else { return };
        let workers = self.others.len();
        if left > 1 {
            let whom = (self.number + workers - left + 1) % workers;
            // It has room; should it be gone, somebody else is asked after the pause.
            if self.tell(whom, Note::Want { from: self.number, goods }) {
                self.asked = Some((goods, left - 1));
                return;
            }
        }
        if let Some((_, pause)) = self.goods.iter_mut().find(|(known, _)| *known == goods) {
            *pause = now.plus(PAUSE);
        }
    }

    /// Gives ports to another, if there are plenty; returns how many.
    fn lend(&self, to: usize, goods: PortKind, engine: &mut Engine, partition: &Partition) -> u64 {
        let PortKind { pool, address, is_low } = goods;
        let is_known = pool < engine.config().pools.len();
        let plenty = goods.free(engine) > 2 * goods.least(engine.config(), self.others.len());
        let most = if is_low { 1 } else { MOST_WORDS };
        let given =
            if is_known && plenty { engine.cede(pool, address, is_low, most) } else { None };
        let (note, ports) = match given {
            Some((address, words)) => {
                // From now on packets for them go there, though nobody has them yet.
                partition.give(address, words.clone(), to);
                let ports = 64 * words.len() as u64;
                (Note::Gift(address, words), ports)
            }
            None => (Note::Nothing, 0),
        };
        // Who asked waits for it.
        self.tell(to, note);
        ports
    }

    /// Tells another something; `false`: it is gone.
    fn tell(&self, whom: usize, note: Note) -> bool {
        let (sender, waker) = &self.others[whom];
        let told = sender.try_send(note).is_ok();
        waker.note();
        told
    }
}
