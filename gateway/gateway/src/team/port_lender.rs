//! Trade of ports between workers. A worker that runs short of ports asks the others one after the
//! other. A worker that has plenty gives a run of ports that no mapping uses. A worker asks before
//! it has run out, so that no packet waits.
//!
//! Several workers may have parts of one block of ports: a reload has changed the blocks, or a
//! process of an earlier version has handed over such parts. Then no worker gives the block to a
//! subscriber. The worker with its first word asks for the others. Words go in this one way, so the
//! trade ends.
//!
//! An address that one host has as a whole cannot be halved. So a worker keeps its last free one,
//! but not from a worker that has none and has just refused a host. That worker keeps it for a
//! while, so that it does not go to and fro when both have such hosts.

use super::exchange::Waker;
use super::partition::Partition;
use crate::limits::MOST_WORKERS;
use natgate_engine::{Allocation, Blocking, Config, Engine, PoolConfig, Timestamp};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Interval at which a worker checks whether it is short of ports.
const INTERVAL: Duration = Duration::from_millis(10);

/// Pause after all other workers had none to give.
const PAUSE: Duration = Duration::from_secs(1);

/// Time after a refused host in which a worker asks for the last free address of another one. An
/// engine notes a refusal in a second.
const WANTED: Duration = Duration::from_secs(2);

/// Ports from 1024 on of a whole address, which engines count.
const WHOLE_ADDRESS: u32 = u16::MAX as u32 - 1023;

/// Most words of 64 ports that change hands at once, so that the transfer delays no packet, unless
/// a block has more.
const MOST_WORDS: usize = 16;

/// A worker is short of ports below this number, or below this part of its share of a pool.
const LEAST_FREE: u32 = 256;
const LEAST_PART: u32 = 16;

/// Ports that may be short, on one side of port 1024: the sides do not replace each other (RFC 4787
/// REQ-3). Nor do addresses, where a pool's few addresses are cut into slices and subscribers stay
/// with their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PortKind {
    pool: usize,
    address: Option<Ipv4Addr>,
    is_low: bool,
}

impl PortKind {
    /// All kinds of ports of a configuration with `workers` workers.
    fn all(config: &Config, workers: usize) -> Vec<Self> {
        let of_pool = |(number, pool): (usize, &PoolConfig)| -> Vec<Self> {
            if matches!(config.allocation_of(pool), Allocation::Deterministic(_)) {
                return Vec::new();
            }
            if *config.allocation_of(pool) == Allocation::Address {
                // Addresses change hands as a whole.
                return vec![Self { pool: number, address: None, is_low: false }];
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

    /// Number of free ports of this kind.
    fn free(self, engine: &Engine) -> u32 {
        match self.address {
            Some(address) => engine.free_ports_of(address, self.is_low),
            None => engine.free_ports(self.pool, self.is_low),
        }
    }

    /// True if the engines may give out such ports. Those of the partner's slices of a pair, and of
    /// addresses that drain, are of no use.
    fn is_given_out(self, engine: &Engine) -> bool {
        match self.address {
            Some(address) => engine.assigns(address),
            None => engine.has_open_address(self.pool),
        }
    }

    /// Number of free ports below which one of `workers` workers is short. With blocks it is that
    /// of two blocks at least, or of one if each worker has few blocks.
    fn least(self, config: &Config, workers: usize) -> u32 {
        let Some(pool) = config.pools.get(self.pool) else { return 0 };
        let (first, last) = (u32::from(pool.ports.0), u32::from(pool.ports.1));
        let (first, last) =
            if self.is_low { (first, last.min(1023)) } else { (first.max(1024), last) };
        let ports = (last + 1).saturating_sub(first);
        let addresses = if self.address.is_some() { 1 } else { pool.count() as u32 };
        let share = ports.saturating_mul(addresses) / workers as u32;
        let part = share / LEAST_PART;
        match self.words_of_block(config) {
            None => LEAST_FREE.min(share / 4).max(part),
            // There is nothing to be had.
            Some(0) => 0,
            Some(words) => {
                let block = 64 * words as u32;
                LEAST_FREE.max(2 * block).min(share / 4).max(part).max(block)
            }
        }
    }

    /// Number of free ports from which one of `workers` workers gives some away. A worker without a
    /// block (`has_none`) gets one from each that keeps another, and a whole address from any.
    fn plenty(self, config: &Config, workers: usize, has_none: bool) -> u32 {
        if self.is_whole(config) {
            let enough = (2 * self.least(config, workers)).max(2 * WHOLE_ADDRESS);
            return if has_none { WHOLE_ADDRESS } else { enough };
        }
        match self.words_of_block(config).filter(|_| has_none) {
            Some(words) => (2 * 64 * words as u32).max(1),
            None => (2 * self.least(config, workers)).max(1),
        }
    }

    /// Words that one of `workers` workers gives away at most, with so many `free` ports: half of
    /// those that it does not need, in whole blocks. So it does not ask for them at once.
    fn most_words(self, config: &Config, workers: usize, free: u32) -> usize {
        let block = self.words_of_block(config);
        let most = if self.is_low && block.is_none() { 1 } else { MOST_WORDS };
        let spare = free.saturating_sub(self.least(config, workers)) as usize / 2 / 64;
        let together = block.unwrap_or(1).max(1);
        (spare.min(most) / together * together).max(together)
    }

    /// True if the pool gives out whole addresses.
    fn is_whole(self, config: &Config) -> bool {
        let pool = config.pools.get(self.pool);
        pool.is_some_and(|pool| *config.allocation_of(pool) == Allocation::Address)
    }

    /// True if a worker with so many `free` ports has no block for a host, or has no address and
    /// has refused a host.
    fn has_none(self, engine: &Engine, free: u32, now: Timestamp) -> bool {
        let config = engine.config();
        let has_refused = || {
            let last = engine.last_exhausted(self.pool);
            last.is_some_and(|last| now.since(last) < WANTED)
        };
        free == 0
            && match self.is_whole(config) {
                true => has_refused(),
                false => self.words_of_block(config).is_some(),
            }
    }

    /// Words that have a whole block. `None`: the pool has no blocks.
    fn words_of_block(self, config: &Config) -> Option<usize> {
        let pool = config.pools.get(self.pool)?;
        let Allocation::Block(block) = config.allocation_of(pool) else { return None };
        let blocking = Blocking::new(pool.ports, block.size);
        Some(blocking.words_of_block(self.is_low) as usize)
    }
}

/// A message between workers.
#[derive(Debug)]
pub(super) enum Note {
    /// `from` is short of ports, or has no block or address for a host.
    Want { from: usize, goods: PortKind, has_none: bool },
    /// `from` has the first word of the block that these words belong to.
    WantRest { from: usize, address: Ipv4Addr, words: Range<usize> },
    /// The receiver owns these ports now.
    Gift(Ipv4Addr, Range<usize>),
    /// The sender has no ports to spare.
    Nothing,
}

/// An open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Ports that are short, true if this worker has none for a host, and the number of workers
    /// still to be asked.
    Ports(PortKind, bool, usize),
    /// Words of a block.
    Rest,
}

/// A kind of ports that a worker checks.
#[derive(Debug)]
struct Goods {
    kind: PortKind,
    /// Times from which it may be asked for again: by a worker that is short, and by one that has
    /// none for a host.
    pauses: [Timestamp; 2],
    /// Time until which the last whole address stays here.
    stays: Timestamp,
}

/// One worker's part in the trade.
#[derive(Debug)]
pub(super) struct PortLender {
    number: usize,
    notes: Receiver<Note>,
    others: Vec<Mailbox>,
    /// Time of the next check.
    next: Timestamp,
    asked: Option<Request>,
    /// True if the last check was for blocks of which this worker has a part.
    was_for_blocks: bool,
    /// Time from which the rest of a block may be asked for, after a refusal.
    next_rest: Timestamp,
    /// Kinds of ports to check.
    goods: Vec<Goods>,
    /// Place of the kind that is checked first, so that each has its turn.
    next_kind: usize,
}

/// Numbers of ports that changed hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trade {
    /// Ports received.
    pub(super) borrowed: u64,
    /// Ports given away.
    pub(super) lent: u64,
}

/// Creates the lenders of a team of workers with these wakers.
pub(super) fn port_lenders(wakers: &[Arc<Waker>]) -> Vec<PortLender> {
    let workers = wakers.len();
    // Each worker asks for one kind at a time, and gets one note as an answer.
    let ends = (0..workers).map(|_| sync_channel(2 * MOST_WORKERS));
    let (senders, notes): (Vec<_>, Vec<_>) = ends.unzip();
    let others: Vec<_> = senders.into_iter().zip(wakers.iter().cloned()).collect();
    let lender = |(number, notes)| new_lender(number, notes, others.clone());
    notes.into_iter().enumerate().map(lender).collect()
}

fn new_lender(number: usize, notes: Receiver<Note>, others: Vec<Mailbox>) -> PortLender {
    PortLender {
        number,
        notes,
        others,
        next: Timestamp(0),
        asked: None,
        was_for_blocks: false,
        next_rest: Timestamp(0),
        goods: Vec::new(),
        next_kind: 0,
    }
}

/// Sender of notes to one worker.
pub(super) type Mailbox = (SyncSender<Note>, Arc<Waker>);

/// Creates the lender of a worker that joins, and the mailbox of its notes.
pub(super) fn join(mut others: Vec<Mailbox>, own: &Arc<Waker>) -> (PortLender, Mailbox) {
    let number = others.len();
    let (sender, notes) = sync_channel(2 * MOST_WORKERS);
    let mailbox = (sender, Arc::clone(own));
    others.push(mailbox.clone());
    (new_lender(number, notes, others), mailbox)
}

impl PortLender {
    /// Mailboxes of all workers, this one included.
    pub(super) fn mailboxes(&self) -> Vec<Mailbox> {
        self.others.clone()
    }

    /// Adds a newcomer.
    pub(super) fn welcome(&mut self, mailbox: Mailbox) {
        self.others.push(mailbox);
    }

    /// Answers the other workers, and checks whether ports are short. Call it each turn.
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
                Note::Want { from, goods, has_none } => {
                    trade.lent += self.lend(now, (from, has_none), goods, engine, partition);
                }
                Note::WantRest { from, address, words } => {
                    let is_given = engine.cede_rest(address, words.clone());
                    let given = is_given.then_some((address, words));
                    trade.lent += self.answer(from, given, partition);
                }
                Note::Gift(address, words) => {
                    trade.borrowed += 64 * words.len() as u64;
                    // A reload may have come first. It has given the words to the engine, and this
                    // worker may have given them away since.
                    for words in partition.owned_of(self.number, address, &words) {
                        engine.own(address, words);
                    }
                    if let Some(Request::Ports(kind, true, _)) = self.asked.take()
                        && kind.is_whole(engine.config())
                        && let Some(goods) = self.goods.iter_mut().find(|goods| goods.kind == kind)
                    {
                        goods.stays = now.plus(PAUSE);
                    }
                }
                Note::Nothing => {
                    if self.asked == Some(Request::Rest) {
                        self.next_rest = now.plus(PAUSE);
                    }
                    self.ask_another(now);
                }
            }
        }
        if now >= self.next {
            self.next = now.plus(INTERVAL);
            self.look(now, engine, partition);
        }
        trade
    }

    /// Words that are on their way to this worker.
    #[cfg(test)]
    pub(super) fn gifts(&self) -> Vec<(Ipv4Addr, Range<usize>)> {
        let mut gifts = Vec::new();
        let notes: Vec<Note> = self.notes.try_iter().collect();
        for note in notes {
            if let Note::Gift(address, words) = &note {
                gifts.push((*address, words.clone()));
            }
            self.others[self.number].0.try_send(note).expect("it had room");
        }
        gifts
    }

    /// Checks the pools of this configuration from now on.
    pub(super) fn look_after(&mut self, config: &Config) {
        let all = PortKind::all(config, self.others.len());
        let goods = |kind| Goods { kind, pauses: [Timestamp(0); 2], stays: Timestamp(0) };
        self.goods = all.into_iter().map(goods).collect();
    }

    /// Asks for the rest of a block, or for ports that are short, unless a request is open.
    fn look(&mut self, now: Timestamp, engine: &mut Engine, partition: &Partition) {
        if self.asked.is_some() {
            return;
        }
        // Neither of the two keeps the other from its turn.
        self.was_for_blocks = !self.was_for_blocks;
        let is_due = self.was_for_blocks && now >= self.next_rest;
        if !is_due || !self.ask_for_rest(engine, partition) {
            self.ask_for_ports(now, engine);
        }
    }

    /// Asks for words of a block of which this worker has the first ones. Returns false if it has
    /// found no such block.
    fn ask_for_rest(&mut self, engine: &mut Engine, partition: &Partition) -> bool {
        let Some((address, words)) = engine.next_split_block() else { return false };
        let port = (words.start * 64) as u16;
        let giver = partition.giver_of(address, port);
        // The words may be on their way to this worker.
        let Some(whom) = giver.filter(|giver| *giver != self.number) else { return false };
        let words = partition.own_words(whom, (address, port), words);
        let is_asked = self.tell(whom, Note::WantRest { from: self.number, address, words });
        self.asked = is_asked.then_some(Request::Rest);
        is_asked
    }

    fn ask_for_ports(&mut self, now: Timestamp, engine: &Engine) {
        let (config, workers, kinds) = (engine.config(), self.others.len(), self.goods.len());
        for place in (self.next_kind..kinds).chain(0..self.next_kind.min(kinds)) {
            let Goods { kind, pauses, .. } = &mut self.goods[place];
            let free = kind.free(engine);
            let has_none = kind.has_none(engine, free, now);
            let is_due = now >= pauses[usize::from(has_none)];
            if !is_due || free >= kind.least(config, workers) {
                continue;
            }
            if !kind.is_given_out(engine) {
                *pauses = [now.plus(PAUSE); 2];
                continue;
            }
            self.asked = Some(Request::Ports(*kind, has_none, workers));
            self.next_kind = place + 1;
            self.ask_another(now);
            return;
        }
    }

    fn ask_another(&mut self, now: Timestamp) {
        let Some(Request::Ports(goods, has_none, left)) = self.asked.take() else { return };
        let workers = self.others.len();
        if left > 1 {
            let whom = (self.number + workers - left + 1) % workers;
            // The mailbox has room. If that worker is gone, another one is asked after the pause.
            if self.tell(whom, Note::Want { from: self.number, goods, has_none }) {
                self.asked = Some(Request::Ports(goods, has_none, left - 1));
                return;
            }
        }
        if let Some(known) = self.goods.iter_mut().find(|known| known.kind == goods) {
            known.pauses[usize::from(has_none)] = now.plus(PAUSE);
        }
    }

    /// Gives ports to another worker, if there are plenty; returns their number.
    fn lend(
        &self,
        now: Timestamp,
        (to, has_none): (usize, bool),
        goods: PortKind,
        engine: &mut Engine,
        partition: &Partition,
    ) -> u64 {
        let PortKind { pool, address, is_low } = goods;
        let is_known = pool < engine.config().pools.len();
        let (free, workers) = (goods.free(engine), self.others.len());
        let stays = self.goods.iter().any(|known| known.kind == goods && now < known.stays);
        let kept = if stays { 2 * WHOLE_ADDRESS } else { 0 };
        let plenty = free >= goods.plenty(engine.config(), workers, has_none).max(kept);
        let most = goods.most_words(engine.config(), workers, free);
        let given =
            if is_known && plenty { engine.cede(pool, address, is_low, most) } else { None };
        self.answer(to, given, partition)
    }

    /// Tells another worker of the words that its request has brought. Returns the number of their
    /// ports.
    fn answer(
        &self,
        to: usize,
        given: Option<(Ipv4Addr, Range<usize>)>,
        partition: &Partition,
    ) -> u64 {
        let (note, ports) = match given {
            Some((address, words)) => {
                // From now on packets to these ports go there, although no mapping uses them yet.
                partition.give(address, words.clone(), to);
                let ports = 64 * words.len() as u64;
                (Note::Gift(address, words), ports)
            }
            None => (Note::Nothing, 0),
        };
        // The worker that asked waits for the note.
        self.tell(to, note);
        ports
    }

    /// Sends a note to another worker. Returns `false` if that worker is gone.
    fn tell(&self, whom: usize, note: Note) -> bool {
        let (sender, waker) = &self.others[whom];
        let told = sender.try_send(note).is_ok();
        waker.note();
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::router::settings_of_tests;
    use natgate_engine::{
        AddressRange, BlockConfig, Duty, Endpoint, Packet, PairPort, Side, Verdict,
    };
    use natgate_wire::Ipv4;
    use natgate_wire::protocol::UDP;
    use std::os::unix::net::UnixStream;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    /// The words of ports of the pool.
    const ALL: Range<usize> = 32..44;

    /// A pool of one address.
    fn pool(address: Ipv4Addr, ports: (u16, u16), allocation: Allocation) -> PoolConfig {
        let addresses = vec![AddressRange { first: address, last: address }];
        let allocation = Some(allocation);
        PoolConfig { addresses, ports, allocation, ..PoolConfig::default() }
    }

    /// Workers that share addresses.
    struct Team {
        partition: Partition,
        workers: Vec<(Engine, PortLender)>,
        now: Timestamp,
        /// The words with ports of the pool.
        all: Range<usize>,
    }

    impl Team {
        /// Workers that have these words.
        fn new(allocation: Allocation, words: &[Range<usize>]) -> Self {
            let ports = (64 * ALL.start as u16, 64 * ALL.end as u16 - 1);
            Self::with(allocation, ports, words)
        }

        /// Workers that have these words of a pool with some ports.
        fn with(allocation: Allocation, ports: (u16, u16), words: &[Range<usize>]) -> Self {
            let mut team = Self::of_pools(vec![pool(ADDRESS, ports, allocation)], words.len());
            team.all = usize::from(ports.0) / 64..usize::from(ports.1) / 64 + 1;
            for (worker, words) in words.iter().enumerate() {
                team.give(ADDRESS, words.clone(), worker);
            }
            team
        }

        /// Workers whose engines have no ports yet.
        fn of_pools(pools: Vec<PoolConfig>, count: usize) -> Self {
            let config = Config { pools, ..Config::default() };
            let settings = Settings { engine: config, ..settings_of_tests() };
            let partition = Partition::of(&settings, count, None);
            let waker = |_| Waker::new(UnixStream::pair().expect("a pair of sockets").0);
            let wakers: Vec<_> = (0..count).map(waker).collect();
            let worker = |mut lender: PortLender| {
                let config = &settings.engine;
                let mut engine = Engine::new(config, [7; 32], Timestamp(0)).expect("it is right");
                engine.divide((lender.number as u16, count as u16), |_, _| true);
                lender.look_after(config);
                (engine, lender)
            };
            let workers = port_lenders(&wakers).into_iter().map(worker).collect();
            Self { partition, workers, now: Timestamp(0), all: ALL }
        }

        /// Gives words of an address to a worker.
        fn give(&mut self, address: Ipv4Addr, words: Range<usize>, worker: usize) {
            self.partition.give(address, words.clone(), worker);
            self.workers[worker].0.own(address, words);
        }

        /// Workers that have these words of a pool with blocks of some size, one for a subscriber.
        fn of_blocks(size: u16, ports: (u16, u16), words: &[Range<usize>]) -> Self {
            let release_after = Duration::from_secs(60);
            let block = BlockConfig { size, max_per_subscriber: 1, release_after };
            Self::with(Allocation::Block(block), ports, words)
        }

        /// Turns of all workers. At each step a block is with one worker, or on its way to one.
        fn trade_blocks(&mut self, size: u16) {
            let words = usize::from(size).div_ceil(64);
            for _ in 0..1000 {
                for worker in 0..self.workers.len() {
                    self.turn(worker);
                    let givers = self.givers();
                    let is_whole = |block: &[Vec<usize>]| block.iter().all(|one| *one == block[0]);
                    assert!(givers.chunks(words).all(is_whole), "size {size}: {givers:?}");
                }
                self.now = self.now.plus(INTERVAL);
            }
            let givers = self.givers();
            assert!(givers.iter().all(|givers| givers.len() == 1), "size {size}: {givers:?}");
        }

        /// A turn of a worker. Returns the number of ports that it has lent.
        fn turn(&mut self, worker: usize) -> u64 {
            let (engine, lender) = &mut self.workers[worker];
            lender.turn(self.now, engine, &self.partition).lent
        }

        /// The workers that give out each word.
        fn givers(&self) -> Vec<Vec<usize>> {
            let engines = || self.workers.iter().map(|(engine, _)| engine).enumerate();
            let of_word = |word| {
                let givers = engines().filter(|(_, engine)| engine.owns(ADDRESS, word));
                givers.map(|(number, _)| number).collect()
            };
            self.all.clone().map(of_word).collect()
        }

        /// Number of words of each worker.
        fn counts(&self) -> Vec<usize> {
            let givers = self.givers().concat();
            let count = |worker| givers.iter().filter(|giver| **giver == worker).count();
            (0..self.workers.len()).map(count).collect()
        }
    }

    #[test]
    fn a_worker_that_lends_ports_keeps_enough_and_the_trade_ends() {
        for words in [[32..36, 36..36, 36..44], [32..44, 44..44, 44..44], [32..38, 38..44, 44..44]]
        {
            let mut team = Team::new(Allocation::Random, &words);
            let mut lent = Vec::new();
            for _ in 0..1000 {
                let of_turn: u64 = (0..3).map(|worker| team.turn(worker)).sum();
                lent.push(of_turn);
                team.now = team.now.plus(INTERVAL);
            }
            assert!(team.givers().iter().all(|givers| givers.len() == 1));
            assert_eq!(lent[500..].iter().sum::<u64>(), 0, "{words:?}: the trade goes on");
            let counts = team.counts();
            assert!(counts.iter().all(|count| *count > 0), "{words:?}: {counts:?}");
        }
    }

    #[test]
    fn blocks_change_hands_as_a_whole() {
        let mut team = Team::of_blocks(256, (2048, 2815), &[32..44, 44..44]);
        team.trade_blocks(256);
        assert_eq!(team.counts(), [8, 4]);
        let mut team = Team::of_blocks(256, (2048, 2815), &[32..44, 44..44, 44..44]);
        team.trade_blocks(256);
        assert_eq!(team.counts(), [4, 4, 4]);
    }

    /// A port that is held, or rests, in the first word of a worker's first block leaves the other
    /// words of the block free.
    #[test]
    fn a_block_in_use_in_part_stays_whole() {
        // Blocks of all sizes up to half of the pool.
        for size in (4..=11).map(|power| 1_u16 << power) {
            for is_guarded in [false, true] {
                for workers in [2, 3] {
                    let words = [32..96, 96..96, 96..96];
                    let mut team = Team::of_blocks(size, (2048, 6143), &words[..workers]);
                    let (engine, _) = &mut team.workers[0];
                    let external = Endpoint { address: ADDRESS, port: 2050 };
                    let remote = Ipv4Addr::UNSPECIFIED;
                    let port = PairPort { protocol: UDP, external, remote, number: 0 };
                    let mut bits = [0; 1024];
                    bits[32] = 1 << 2;
                    match is_guarded {
                        true => assert!(engine.guard(port)),
                        false => assert!(engine.hold_ports(ADDRESS, UDP, &bits)),
                    }
                    team.trade_blocks(size);
                    assert_eq!(team.givers()[0], [0], "size {size}: it keeps that block");
                    let counts = team.counts();
                    let others = counts[1..].iter().all(|count| *count > 0);
                    assert!(others || size > 1024, "size {size}: {counts:?}");
                }
            }
        }
    }

    /// Blocks below port 1024 have more than a word, too.
    #[test]
    fn blocks_below_port_1024_change_hands_as_a_whole() {
        let mut team = Team::of_blocks(256, (512, 1535), &[8..24, 24..24]);
        team.trade_blocks(256);
        assert_eq!(team.counts(), [8, 8]);
        let free = |team: &Team, worker: usize| {
            [true, false].map(|is_low| team.workers[worker].0.free_ports(0, is_low))
        };
        assert_eq!([free(&team, 0), free(&team, 1)], [[256; 2]; 2]);
    }

    /// A pool whose first port is within a word has blocks that begin and end within words. A cut
    /// takes a block from all workers, but each gift has whole ones.
    #[test]
    fn a_gift_of_blocks_that_overlap_words_in_part_has_a_whole_one() {
        for size in (4..=9).map(|power| 1_u16 << power) {
            let ports = (2056, 2056 + 12 * size.max(64) - 1);
            let end = usize::from(ports.1) / 64 + 1;
            let mut team = Team::of_blocks(size, ports, &[32..end, end..end]);
            let mut lent = Vec::new();
            for _ in 0..1000 {
                lent.push(team.turn(0) + team.turn(1));
                team.now = team.now.plus(INTERVAL);
            }
            assert_eq!(lent[500..].iter().sum::<u64>(), 0, "size {size}: the trade goes on");
            for (host, (engine, _)) in (0..).zip(&mut team.workers) {
                assert!(assigns_block(engine, team.now, host), "size {size}");
            }
        }
    }

    /// All blocks of a worker have subscribers, and almost all of their ports are free.
    #[test]
    fn a_worker_without_a_block_for_a_new_subscriber_borrows_some() {
        let mut team = Team::of_blocks(256, (2048, 5119), &[32..44, 44..80]);
        let now = team.now;
        let assigned = |team: &mut Team, worker: usize, hosts: Range<u32>| {
            let engine = &mut team.workers[worker].0;
            hosts.filter(|host| assigns_block(engine, now, *host)).count()
        };
        assert_eq!(assigned(&mut team, 0, 0..4), 3, "the blocks of the worker");
        team.trade_blocks(256);
        let count = team.counts()[0];
        assert!(count > 12, "{count}");
        assert_eq!(assigned(&mut team, 0, 4..5), 1, "a borrowed block");
        // The other worker's blocks are those of its subscribers now.
        assert!(assigned(&mut team, 1, 100..120) > 3);
        let counts = team.counts();
        assigned(&mut team, 0, 5..25);
        team.trade_blocks(256);
        assert_eq!(team.counts(), counts, "it has none to spare");
    }

    /// Workers with a pool of whole addresses; the first worker has all of them.
    fn of_addresses(addresses: u8, workers: usize) -> Team {
        let last = Ipv4Addr::from_bits(ADDRESS.to_bits() + u32::from(addresses) - 1);
        let range = AddressRange { first: ADDRESS, last };
        let of_pool = pool(ADDRESS, Allocation::ALL_PORTS, Allocation::Address);
        let of_pool = PoolConfig { addresses: vec![range], ..of_pool };
        let mut team = Team::of_pools(vec![of_pool], workers);
        range.each().for_each(|address| team.give(address, 0..1024, 0));
        team
    }

    /// Turns of all workers for some time. Returns the number of lent addresses, and the number of
    /// free addresses of each worker at the end.
    fn trade_addresses(team: &mut Team, time: Duration) -> (u64, Vec<u32>) {
        let (end, mut lent) = (team.now.plus(time), 0);
        while team.now < end {
            lent += (0..team.workers.len()).map(|worker| team.turn(worker)).sum::<u64>();
            team.now = team.now.plus(INTERVAL);
        }
        let engines = team.workers.iter().map(|(engine, _)| engine);
        (lent / 65_536, engines.map(|engine| engine.free_ports(0, false) / WHOLE_ADDRESS).collect())
    }

    /// An address on its way between workers is of no use to any host.
    #[test]
    fn the_last_free_address_stays_with_its_worker_until_another_one_refuses_a_host() {
        for (workers, addresses) in [(2, 1), (2, 2), (2, 3), (4, 1), (4, 3)] {
            let mut team = of_addresses(addresses, workers);
            let (_, before) = trade_addresses(&mut team, 5 * PAUSE);
            let (lent, free) = trade_addresses(&mut team, 5 * PAUSE);
            assert_eq!((lent, &free), (0, &before), "{workers} workers: the trade goes on");
            assert_eq!(free.iter().sum::<u32>(), u32::from(addresses), "{workers} workers");
            let last = workers - 1;
            for host in 0..u32::from(addresses) {
                let is_assigned = |team: &mut Team| {
                    let now = team.now;
                    assigns_block(&mut team.workers[last].0, now, host)
                };
                if !is_assigned(&mut team) {
                    trade_addresses(&mut team, 10 * INTERVAL);
                    assert!(is_assigned(&mut team), "{workers} workers: host {host}");
                }
            }
        }
    }

    /// Hosts of both workers want the one address, and give up.
    #[test]
    fn an_address_that_several_workers_want_rests_with_each() {
        let mut team = of_addresses(1, 2);
        let mut turns = [0; 2];
        for turn in 0..1000 {
            for (worker, turns) in turns.iter_mut().enumerate() {
                let engine = &mut team.workers[worker].0;
                match engine.owns(ADDRESS, 0) {
                    true => *turns += 1,
                    false => assert!(!assigns_block(engine, team.now, turn)),
                }
                team.turn(worker);
            }
            team.now = team.now.plus(INTERVAL);
        }
        assert!(turns.iter().all(|turns| (300..700).contains(turns)), "{turns:?}");
        assert!(turns.iter().sum::<u32>() > 900, "{turns:?}: it is on its way too often");
    }

    /// A worker that has few blocks left keeps them, but not from one that has none.
    #[test]
    fn a_worker_without_a_block_gets_one_from_a_worker_with_two() {
        let mut team = Team::of_blocks(256, (2048, 8191), &[32..36, 36..128]);
        let now = team.now;
        let assigned = |team: &mut Team, worker: usize, hosts: Range<u32>| {
            let engine = &mut team.workers[worker].0;
            hosts.filter(|host| assigns_block(engine, now, *host)).count()
        };
        let free = |team: &Team| {
            let free = team.workers.iter().map(|(engine, _)| engine.free_ports(0, false) / 256);
            free.collect::<Vec<u32>>()
        };
        assert_eq!(assigned(&mut team, 1, 100..120), 20);
        assert_eq!(free(&team), [1, 3]);
        team.trade_blocks(256);
        assert_eq!(free(&team), [1, 3], "one block is left");
        for (host, left) in (0..).zip([[1, 2], [1, 1], [0, 1]]) {
            assert_eq!(assigned(&mut team, 0, host..host + 1), 1);
            // It may have asked a moment ago, when it still had one.
            team.turn(0);
            team.turn(1);
            team.turn(0);
            team.now = team.now.plus(INTERVAL);
            team.turn(0);
            team.turn(1);
            team.turn(0);
            assert_eq!(free(&team), left);
            team.trade_blocks(256);
            assert_eq!(free(&team), left, "the trade goes on");
        }
    }

    /// Sends a datagram of a host without a block. Returns true if it gets one.
    fn assigns_block(engine: &mut Engine, now: Timestamp, host: u32) -> bool {
        let mut bytes = [0; 28];
        let mut header = Ipv4::init(&mut bytes[..], 20);
        header.set_total_len(28);
        header.set_ttl(64);
        header.set_protocol(UDP);
        header.set_source(0x6440_0001 + host);
        header.set_destination(0xc633_6407);
        header.fill_checksum();
        bytes[20..26].copy_from_slice(&[0x10, 0, 0, 80, 0, 8]);
        let mut packets = [Packet::new(&mut bytes, 0)];
        let mut verdicts = [Verdict::Held];
        engine.process(now, Side::Inside, &mut packets, &mut verdicts);
        matches!(verdicts[0], Verdict::Forward(_))
    }

    /// A reload gives words to the engine that are on their way, and the worker lends them before
    /// it hears that it has got them.
    #[test]
    fn words_that_a_worker_has_lent_are_not_its_own_when_it_hears_of_them() {
        let mut team = Team::new(Allocation::Random, &[32..32, 32..44, 44..44]);
        team.turn(0);
        team.turn(2);
        assert_eq!(team.turn(1), 5 * 64, "the first worker has asked");
        let (engine, lender) = &mut team.workers[0];
        for (address, words) in team.partition.owned(lender.number) {
            engine.own(address, words);
        }
        assert_eq!(team.turn(0), 2 * 64, "the third worker has asked before");
        team.turn(2);
        let givers = team.givers();
        assert!(givers.iter().all(|givers| givers.len() == 1), "{givers:?}");
        assert_eq!(team.counts(), [3, 7, 2]);
    }

    /// Kinds of ports that no worker has, one after the other, and at last one that another has.
    #[test]
    fn each_kind_of_ports_is_asked_for_although_others_are_always_short() {
        let address = |last| Ipv4Addr::new(203, 0, 113, last);
        let pools = |last: u8| PoolConfig {
            name: last.to_string(),
            ..pool(address(last), (2048, 2815), Allocation::Random)
        };
        let mut team = Team::of_pools((1..=14).map(pools).collect(), 2);
        team.give(address(14), ALL, 1);
        // A worker checks its ports ten times in the pause of a kind.
        for _ in 0..30 {
            team.turn(0);
            team.turn(1);
            team.now = team.now.plus(PAUSE / 10);
        }
        assert!(team.workers[0].0.free_ports_of(address(14), false) > 0);
    }

    #[test]
    fn a_worker_asks_for_no_ports_that_its_node_does_not_give_out() {
        let blocks = BlockConfig::default();
        for allocation in [Allocation::Random, Allocation::Block(blocks)] {
            let mut team = Team::new(allocation, &[32..44, 44..44]);
            let (engine, lender) = &mut team.workers[1];
            engine.join_pair();
            lender.look(team.now, engine, &team.partition);
            assert_eq!(lender.asked, None, "the partner gives them out");
            engine.set_duty(
                AddressRange { first: ADDRESS, last: ADDRESS },
                Duty { assigns: true, keeps: false, owns: true },
            );
            lender.look(team.now.plus(PAUSE), engine, &team.partition);
            assert!(lender.asked.is_some());
        }
    }

    /// A reload has changed the blocks, or they were handed over by another process.
    #[test]
    fn the_parts_of_a_block_come_together_at_the_worker_with_the_first() {
        for words in [
            [32..34, 34..44, 44..44],
            [32..33, 33..34, 34..44],
            [34..38, 32..34, 38..44],
            [33..44, 32..33, 44..44],
        ] {
            let mut team = Team::of_blocks(256, (2048, 2815), &words);
            let (giver, mut held) = (team.givers()[2][0], [0; 1024]);
            held[34] = 1;
            assert!(team.workers[giver].0.hold_ports(ADDRESS, UDP, &held));
            for _ in 0..100 {
                for worker in 0..3 {
                    team.turn(worker);
                }
                team.now = team.now.plus(INTERVAL);
            }
            let is_split = |team: &Team| {
                let of_block = |block: &[Vec<usize>]| block.iter().any(|one| *one != block[0]);
                team.givers().chunks(4).map(of_block).collect::<Vec<bool>>()
            };
            // A held port keeps its word from other workers.
            assert_eq!(is_split(&team), [true, false, false], "{words:?}");
            let until = team.now.plus(Duration::from_secs(3600));
            team.workers.iter_mut().for_each(|(engine, _)| while engine.advance(until) {});
            let mut lent = Vec::new();
            for _ in 0..1000 {
                lent.push((0..3).map(|worker| team.turn(worker)).sum::<u64>());
                team.now = team.now.plus(INTERVAL);
            }
            assert_eq!(is_split(&team), [false; 3], "{words:?}");
            assert_eq!(lent[500..].iter().sum::<u64>(), 0, "{words:?}: the trade goes on");
        }
    }
}
