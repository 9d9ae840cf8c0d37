//! Ports that are not everybody's: pools whose subscribers have blocks of ports, assigned as they are
//! needed, or ports that follow from their address (sections 5.8 to 5.14 of the specification). Here is
//! which of them a new mapping gets; `blocks` knows whose a block is, `deterministic` whose a port.

use super::{DRAWS, External, PROTOCOLS, Parity, Pool, Ports, Range, WORDS, Wish, protocol_index};
use crate::blocks::{Blocks, HIGH, LOW};
use crate::config::{Allocation, Config, Pooling};
use crate::deterministic::Plan;
use crate::host::Host;
use crate::parse::has_ports;
use crate::random::Generator;
use crate::{BlockId, DropReason};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Ranges of at most so many words are counted at once: a draw would favour what lies at their ends.
const FEW_WORDS: usize = 16;

/// How a pool's ports are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Random,
    Preserve,
    Block,
    Deterministic,
}

impl Mode {
    pub(super) fn new(allocation: &Allocation) -> Self {
        match allocation {
            Allocation::Random => Self::Random,
            Allocation::Preserve => Self::Preserve,
            Allocation::Block(_) => Self::Block,
            Allocation::Deterministic(_) => Self::Deterministic,
        }
    }
}

/// What tells whose an external endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The events of its mapping.
    Mapping,
    /// Those of its block.
    Block,
    /// Arithmetic.
    Plan,
}

/// An external endpoint for a new mapping, and the block that was assigned for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) external: (u32, u16),
    pub(crate) assigned: Option<u32>,
}

/// The pools of which ports follow from the subscriber's address.
#[derive(Clone, Debug)]
pub(super) struct Plans {
    plans: Vec<Option<Plan>>,
    /// Dynamic ports that are free, by protocol: of an address, and of a pool.
    free: Vec<[u32; PROTOCOLS.len()]>,
    pool_free: Vec<[u32; PROTOCOLS.len()]>,
}

impl Plans {
    pub(super) fn new(config: &Config, addresses: usize) -> Self {
        let plan = |pool| match config.allocation_of(pool) {
            Allocation::Deterministic(it) => Some(Plan::new(it, pool).expect("it was validated")),
            _ => None,
        };
        let plans: Vec<Option<Plan>> = config.pools.iter().map(plan).collect();
        let addresses = if plans.iter().all(Option::is_none) { 0 } else { addresses };
        let zero = [0; PROTOCOLS.len()];
        let pools = plans.len();
        Self { plans, free: vec![zero; addresses], pool_free: vec![zero; pools] }
    }

    /// Bytes that they take, about.
    pub(super) fn memory(config: &Config) -> u64 {
        let deterministic =
            |pool| matches!(config.allocation_of(pool), Allocation::Deterministic(_));
        let addresses: usize =
            config.pools.iter().filter(|pool| deterministic(pool)).map(|pool| pool.count()).sum();
        (addresses * size_of::<[u32; PROTOCOLS.len()]>()) as u64
    }

    fn get(&self, pool: usize) -> Option<&Plan> {
        self.plans.get(pool)?.as_ref()
    }

    fn is_dynamic(&self, pool: usize, port: u16) -> bool {
        self.get(pool).and_then(Plan::dynamic).is_some_and(|(first, _)| port >= first)
    }
}

impl External {
    /// The ports of an address of a pool that may be given out, first to last.
    pub(super) fn usable(&self, number: usize, index: u32) -> [Option<(u16, u16)>; 2] {
        let Pool { first, ports, .. } = self.pools[number];
        match self.plans.get(number) {
            Some(plan) => [plan.shared(index - first), plan.dynamic()],
            None if self.blocks.has(number) => {
                [LOW, HIGH].map(|side| self.blocks.ports_of_side(number, side))
            }
            None => [Some(ports), None],
        }
    }

    /// Counts, when static mappings have taken what is theirs, the ports that are free in blocks, and
    /// the dynamic ones.
    pub(crate) fn settle(&mut self) {
        let all = &self.ports;
        self.blocks.settle(|index, (first, last)| {
            core::array::from_fn(|protocol| {
                all[protocol].count_within(index, Range { first, last }) as u16
            })
        });
        for (number, pool) in self.pools.iter().enumerate() {
            let Some((first, last)) = self.plans.get(number).and_then(Plan::dynamic) else {
                continue;
            };
            for index in pool.first..pool.first + pool.count {
                for (protocol, ports) in self.ports.iter().enumerate() {
                    let free = ports.count_within(index, Range { first, last });
                    self.plans.free[index as usize][protocol] = free;
                    self.plans.pool_free[number][protocol] += free;
                }
            }
        }
    }

    /// Bytes that shares take.
    pub(super) fn memory_of_shares(config: &Config) -> u64 {
        Blocks::memory(config) + Plans::memory(config)
    }

    /// Whether a subscriber may get any port of a pool, whoever has others near it.
    pub(crate) fn is_shared(&self, pool: usize) -> bool {
        matches!(self.pools[pool].mode, Mode::Random | Mode::Preserve)
    }

    /// Notes that a free port is used or held.
    #[inline]
    pub(super) fn note_taken(&mut self, protocol: u8, index: u32, pool: usize, port: u16) {
        let protocol = protocol_index(protocol);
        match self.pools.get(pool).map(|pool| pool.mode) {
            Some(Mode::Block) => self.blocks.taken(pool, index, protocol, port),
            Some(Mode::Deterministic) if self.plans.is_dynamic(pool, port) => {
                self.plans.free[index as usize][protocol] -= 1;
                self.plans.pool_free[pool][protocol] -= 1;
            }
            _ => {}
        }
    }

    /// Notes that a port is free again, at a tick; the protocol is given by its place.
    #[inline]
    pub(super) fn note_freed(
        &mut self,
        protocol: usize,
        index: u32,
        pool: usize,
        port: u16,
        tick: u32,
    ) {
        match self.pools.get(pool).map(|pool| pool.mode) {
            Some(Mode::Block) => self.blocks.freed(pool, index, protocol, port, tick),
            Some(Mode::Deterministic) if self.plans.is_dynamic(pool, port) => {
                self.plans.free[index as usize][protocol] += 1;
                self.plans.pool_free[pool][protocol] += 1;
            }
            _ => {}
        }
    }

    /// Takes one block that is due at a tick from its subscriber.
    pub(crate) fn release_block(&mut self, tick: u32) -> Option<BlockId> {
        let (block, owner) = self.blocks.release(tick)?;
        Some(self.name_block(block, owner))
    }

    /// A block as events name it.
    pub(crate) fn block(&self, block: u32) -> BlockId {
        self.name_block(block, self.blocks.owner(block))
    }

    fn name_block(&self, block: u32, subscriber: Host) -> BlockId {
        let (index, ports) = self.blocks.place_of(block);
        let external = Ipv4Addr::from_bits(self.address(index));
        BlockId { realm: subscriber.realm(), subscriber: subscriber.ip(), external, ports }
    }

    /// What tells whose an external endpoint is.
    pub(crate) fn told(&self, protocol: u8, index: u32, port: u16) -> Told {
        let pool = self.pool_of(index);
        match self.pools.get(pool).map(|pool| pool.mode) {
            //= rfc6888#REQ-14
            Some(Mode::Block) if has_ports(protocol) => Told::Block,
            //= rfc7422#section-2-log
            Some(Mode::Deterministic) if has_ports(protocol) => {
                if self.plans.is_dynamic(pool, port) { Told::Mapping } else { Told::Plan }
            }
            _ => Told::Mapping,
        }
    }

    /// The index of the address that a subscriber's mappings of a pool have, or should have, if
    /// `paired` is what those that there are have.
    pub(crate) fn pairing(
        &self,
        pool: usize,
        subscriber: Host,
        paired: Option<u32>,
    ) -> Option<u32> {
        match self.pools[pool].mode {
            Mode::Random | Mode::Preserve => paired,
            Mode::Block if self.pooling == Pooling::Paired => {
                paired.or_else(|| Some(self.blocks.owned(subscriber, pool)?.address))
            }
            Mode::Block => paired,
            Mode::Deterministic => {
                self.share_of(pool, subscriber).map(|(index, _)| index).or(paired)
            }
        }
    }

    /// Chooses a free external endpoint of those that a subscriber may have; `wish.paired` as
    /// [`External::pairing`] says.
    pub(crate) fn choose_share(
        &mut self,
        wish: Wish,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Result<Chosen, DropReason> {
        if self.pools[wish.pool].mode == Mode::Block {
            return self.choose_in_blocks(wish, subscriber, generator);
        }
        let external = self.choose_by_plan(wish, subscriber, generator)?;
        Ok(Chosen { external, assigned: None })
    }

    // ---- blocks ----

    fn choose_in_blocks(
        &mut self,
        wish: Wish,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Result<Chosen, DropReason> {
        let range = self.range(wish.pool, wish.protocol, wish.internal_port);
        if let Some(external) = self.choose_in_own(wish, range, subscriber, generator) {
            return Ok(Chosen { external, assigned: None });
        }
        let owned = self.blocks.owned(subscriber, wish.pool);
        if owned.is_some_and(|owned| owned.blocks >= self.blocks.max(wish.pool)) {
            return Err(DropReason::PortQuota);
        }
        let block = self.draw_block(wish, range, generator).ok_or(DropReason::PoolExhausted)?;
        //= rfc6888#REQ-14
        self.blocks.assign(block, subscriber);
        let (index, (first, last)) = self.blocks.place_of(block);
        let port = self.choose_within(index, Range { first, last }, wish, generator);
        let port = port.expect("a block with a free port was drawn");
        Ok(Chosen { external: (index, port), assigned: Some(block) })
    }

    /// A port of the blocks that the subscriber has: of each as likely as it has free ones.
    fn choose_in_own(
        &self,
        wish: Wish,
        range: Range,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Option<(u32, u16)> {
        let protocol = protocol_index(wish.protocol);
        let fits = move |&(_, (first, last)): &(u32, (u16, u16))| {
            range.first <= last && first <= range.last
        };
        let free = |block: u32| self.blocks.free(block, protocol);
        let own = self.blocks.of(subscriber, wish.pool).filter(|&block| free(block) > 0);
        let own = own.filter(|&block| fits(&self.blocks.place_of(block)));
        let near = |block: &u32| Some(self.blocks.place_of(*block).0) == wish.paired;
        let preferred =
            self.pooling == Pooling::SoftPaired && own.clone().any(|block| near(&block));
        let own = own.filter(|block| !preferred || near(block));
        let all: u32 = own.clone().map(free).sum();
        if all == 0 {
            return None;
        }
        let mut which = generator.below(all);
        let place = own.clone().position(|block| {
            let here = which < free(block);
            which -= if here { 0 } else { free(block) };
            here
        })?;
        let mut turned = own.clone().skip(place).chain(own.take(place)).map(|block| {
            let (index, (first, last)) = self.blocks.place_of(block);
            (index, Range { first, last })
        });
        let first = turned.clone().next()?;
        let ports = &self.ports[protocol];
        let parity = self.parity(&wish);
        let kept = turned.find_map(|(index, range)| {
            Some((index, ports.choose_within(index, range, parity, generator)?))
        });
        kept.or_else(|| {
            let (index, range) = first;
            Some((index, ports.choose_within(index, range, Parity::Any, generator)?))
        })
    }

    /// A block that nobody has, for a subscriber whose own are full.
    fn draw_block(&self, wish: Wish, range: Range, generator: &mut Generator) -> Option<u32> {
        let protocol = protocol_index(wish.protocol);
        let ports = &self.ports[protocol];
        let permitted = |&side: &usize| {
            let (first, last) = if side == LOW { (0, 1023) } else { (1024, u16::MAX) };
            range.first <= last && first <= range.last && self.blocks.has_side(wish.pool, side)
        };
        // Who may have either has more use for a block of the upper side.
        let sides = [HIGH, LOW];
        if self.pooling != Pooling::Arbitrary
            && let Some(index) = wish.paired
        {
            let mut sides = sides.iter().filter(|side| permitted(side));
            let block = sides
                .find_map(|&side| self.blocks.draw(wish.pool, index, side, protocol, generator));
            if block.is_some() || self.pooling == Pooling::Paired {
                return block;
            }
        }
        sides.iter().filter(|side| permitted(side)).find_map(|&side| {
            let has_port = |index| ports.free_in(index, range) > 0;
            self.blocks.draw_anywhere(wish.pool, side, protocol, generator, has_port)
        })
    }

    // ---- arithmetic ----

    /// The index of a subscriber's address and its ports, if it has any of its own.
    fn share_of(&self, pool: usize, subscriber: Host) -> Option<(u32, Range)> {
        let plan = self.plans.get(pool).filter(|plan| plan.realm() == subscriber.realm())?;
        let (number, (first, last)) = plan.share_of(subscriber.address())?;
        Some((self.pools[pool].first + number, Range { first, last }))
    }

    fn choose_by_plan(
        &self,
        wish: Wish,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Result<(u32, u16), DropReason> {
        let own = self.share_of(wish.pool, subscriber);
        //= rfc7422#section-2-own
        //= rfc7422#section-2-icmp
        if let Some((index, range)) = own
            && let Some(port) = self.choose_within(index, range, wish, generator)
        {
            return Ok((index, port));
        }
        let Some((first, last)) = self.plans.get(wish.pool).and_then(Plan::dynamic) else {
            let used_up = own.is_some();
            return Err(if used_up { DropReason::PortQuota } else { DropReason::PoolExhausted });
        };
        //= rfc7422#section-2-dynamic
        let index =
            self.choose_dynamic_address(wish, generator).ok_or(DropReason::PoolExhausted)?;
        let port = self.choose_within(index, Range { first, last }, wish, generator);
        Ok((index, port.ok_or(DropReason::PoolExhausted)?))
    }

    /// The address whose dynamic ports a mapping gets one of: as pairing has it, else the better of two
    /// at random, or the next that has a free one.
    fn choose_dynamic_address(&self, wish: Wish, generator: &mut Generator) -> Option<u32> {
        let protocol = protocol_index(wish.protocol);
        let free = |index: u32| self.plans.free[index as usize][protocol];
        match (self.pooling, wish.paired) {
            (Pooling::Paired, Some(index)) => return Some(index),
            (Pooling::SoftPaired, Some(index)) if free(index) > 0 => return Some(index),
            _ => {}
        }
        let Pool { first, count, .. } = self.pools[wish.pool];
        if self.plans.pool_free[wish.pool][protocol] == 0 {
            return None;
        }
        let (a, b) = (generator.below(count), generator.below(count));
        let better = if free(first + a) >= free(first + b) { a } else { b };
        (better..count).chain(0..better).map(|offset| first + offset).find(|&at| free(at) > 0)
    }

    // ---- a port of a range ----

    fn choose_within(
        &self,
        index: u32,
        range: Range,
        wish: Wish,
        generator: &mut Generator,
    ) -> Option<u16> {
        let ports = &self.ports[protocol_index(wish.protocol)];
        ports
            .choose_within(index, range, self.parity(&wish), generator)
            .or_else(|| ports.choose_within(index, range, Parity::Any, generator))
    }
}

impl Ports {
    /// How many ports of a range of an address are free.
    fn count_within(&self, address: u32, range: Range) -> u32 {
        let words = usize::from(range.first / 64)..=usize::from(range.last / 64);
        let free = &self.free[address as usize * WORDS..][..WORDS];
        words.map(|word| (free[word] & range.bits(word)).count_ones()).sum()
    }

    /// A free port of a range that may be small, of a parity, at random.
    fn choose_within(
        &self,
        address: u32,
        range: Range,
        parity: Parity,
        generator: &mut Generator,
    ) -> Option<u16> {
        let words = usize::from(range.first / 64)..=usize::from(range.last / 64);
        //= rfc7422#section-2-random
        if words.end() - words.start() >= FEW_WORDS {
            for _ in 0..DRAWS {
                // The range may end within a word.
                let port = self.pick(&range.draw(address, parity, generator));
                if port.is_some_and(|port| (range.first..=range.last).contains(&port)) {
                    return port;
                }
            }
        }
        let free = &self.free[address as usize * WORDS..][..WORDS];
        let mask = parity.mask();
        let bits = |word: usize| free[word] & mask & range.bits(word);
        let all: u32 = words.clone().map(|word| bits(word).count_ones()).sum();
        if all == 0 {
            return None;
        }
        let mut which = generator.below(all);
        let word = words.into_iter().find(|&word| {
            let here = which < bits(word).count_ones();
            which -= if here { 0 } else { bits(word).count_ones() };
            here
        })?;
        let rest = (0..which).fold(bits(word), |rest, _| rest & (rest - 1));
        Some((word * 64) as u16 + rest.trailing_zeros() as u16)
    }
}
