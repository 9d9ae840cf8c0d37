//! How a worker that runs short of ports gets some from another: it asks one after the other, who gives
//! a stretch of ports that nobody has, if it has plenty itself. So that no packet waits for it, a worker
//! asks before it has run out.

use super::partition::Partition;
use natgate_engine::{Allocation, Engine, Timestamp};
use std::net::Ipv4Addr;
use std::ops::Range;
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

/// What one worker tells another.
#[derive(Debug)]
enum Note {
    /// `from` is short of ports of a pool.
    Want { from: usize, pool: usize },
    /// These are yours now.
    Gift(Ipv4Addr, Range<usize>),
    /// There is nothing to spare.
    Nothing,
}

/// A worker's part in that.
#[derive(Debug)]
pub(super) struct Broker {
    number: usize,
    notes: Receiver<Note>,
    others: Vec<SyncSender<Note>>,
    /// When to look again.
    next: Timestamp,
    /// What was asked for: the pool, and how many others remain to be asked.
    asked: Option<(usize, usize)>,
    /// When each pool may be asked for again.
    pauses: Vec<Timestamp>,
}

/// What has changed hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trade {
    /// Ports that came.
    pub(super) borrowed: u64,
    /// Ports that went.
    pub(super) lent: u64,
}

/// The brokers of so many workers.
pub(super) fn brokers(workers: usize) -> Vec<Broker> {
    // Everybody asks for one thing at a time, and is answered by one note.
    let ends = (0..workers).map(|_| sync_channel(2 * workers));
    let (others, notes): (Vec<_>, Vec<_>) = ends.unzip();
    let broker = |(number, notes)| Broker {
        number,
        notes,
        others: others.clone(),
        next: Timestamp(0),
        asked: None,
        pauses: Vec::new(),
    };
    notes.into_iter().enumerate().map(broker).collect()
}

impl Broker {
    /// Answers the others, and looks whether something is short; to be called each turn.
    pub(super) fn turn(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        partition: &Partition,
    ) -> Trade {
        let mut trade = Trade::default();
        while let Ok(note) = self.notes.try_recv() {
            match note {
                Note::Want { from, pool } => {
                    trade.lent += self.lend(from, pool, engine, partition);
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

    /// Asks for ports of a pool that is short, unless something was asked for.
    fn look(&mut self, now: Timestamp, engine: &Engine) {
        let pools = engine.config().pools.len();
        self.pauses.resize(pools, Timestamp(0));
        if self.asked.is_some() {
            return;
        }
        let workers = self.others.len();
        let is_short = |pool: &usize| {
            now >= self.pauses[*pool] && engine.free_ports(*pool) < least(engine, *pool, workers)
        };
        if let Some(pool) = (0..pools).find(is_short) {
            self.asked = Some((pool, workers));
            self.ask_another(now);
        }
    }

    fn ask_another(&mut self, now: Timestamp) {
        let Some((pool, left)) = self.asked.take() else { return };
        if left <= 1 {
            self.pauses[pool] = now.plus(PAUSE);
            return;
        }
        let workers = self.others.len();
        let whom = (self.number + workers - left + 1) % workers;
        // It has room; should it be gone, somebody else is asked after the pause.
        if self.others[whom].try_send(Note::Want { from: self.number, pool }).is_ok() {
            self.asked = Some((pool, left - 1));
        } else {
            self.pauses[pool] = now.plus(PAUSE);
        }
    }

    /// Gives ports of a pool to another, if there are plenty; returns how many.
    fn lend(&self, to: usize, pool: usize, engine: &mut Engine, partition: &Partition) -> u64 {
        let is_known = pool < engine.config().pools.len();
        let plenty = || engine.free_ports(pool) > 2 * least(engine, pool, self.others.len());
        let given =
            if is_known && plenty() { engine.cede(pool, None, MOST_WORDS) } else { None };
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
        let _ = self.others[to].try_send(note);
        ports
    }
}

/// Free ports of a pool below which one of so many workers is short.
fn least(engine: &Engine, pool: usize, workers: usize) -> u32 {
    let config = engine.config();
    let pool = &config.pools[pool];
    if matches!(config.allocation_of(pool), Allocation::Deterministic(_)) {
        return 0;
    }
    let ports = u32::from(pool.ports.1 - pool.ports.0).saturating_add(1);
    let share = ports.saturating_mul(pool.count() as u32) / workers as u32;
    LEAST_FREE.max(share / LEAST_PART).min(share)
}
