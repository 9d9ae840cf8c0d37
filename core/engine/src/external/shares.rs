//! Pools that share ports out: blocks of ports that are assigned on demand, or ports that follow
//! from the subscriber's address (sections 5.18 to 5.38 of the specification). This file connects
//! them with addresses and mappings. `blocks` knows the owners of blocks, `deterministic` the
//! owners of ports by arithmetic.

use super::index_set::IndexSet;
use super::prefetch_within;
use super::{Draw, ExternalPorts, NO_POOL, Pool, Ports, Range, WORDS, Wish, owner_in};
use crate::BlockId;
use crate::blocks::{Blocking, Blocks, HIGH, LOW};
use crate::config::{Allocation, BlockConfig, Config, PoolConfig, Pooling};
use crate::deterministic::Plan;
use crate::endpoint::External;
use crate::host::{Grouping, Host};
use crate::limits::Filled;
use crate::protocols::{PROTOCOLS, has_ports, protocol_index};
use crate::random::{Generator, HashKey};
use crate::time::{TICK, nanos};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;

/// Way to choose a pool's ports.
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
            // An address is one block.
            Allocation::Block(_) | Allocation::Address => Self::Block,
            Allocation::Deterministic(_) => Self::Deterministic,
        }
    }
}

/// Source from which the owner of an external endpoint is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnershipSource {
    /// Events of the mapping.
    Mapping,
    /// Events of the block.
    Block,
    /// Arithmetic.
    Plan,
}

/// An external endpoint for a new mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) external: External,
    /// The block that is to be assigned for it.
    pub(crate) block: Option<u32>,
}

/// The deterministic pools.
#[derive(Clone, Debug)]
pub(super) struct Plans {
    plans: Vec<Option<Plan>>,
    /// Free dynamic ports by protocol, of each address and of each pool.
    pub(super) free: Vec<[u32; PROTOCOLS.len()]>,
    pub(super) pool_free: Vec<[u32; PROTOCOLS.len()]>,
    /// Addresses with a free dynamic port, by protocol.
    pub(super) some_free: [IndexSet; PROTOCOLS.len()],
}

impl Plans {
    pub(super) fn new(addresses: usize) -> Self {
        let zero = [0; PROTOCOLS.len()];
        Self {
            plans: Vec::new(),
            free: vec![zero; addresses],
            pool_free: Vec::new(),
            some_free: PROTOCOLS.map(|_| IndexSet::new(addresses)),
        }
    }

    /// Sets the plan of a pool.
    pub(super) fn set(&mut self, pool: usize, plan: Option<Plan>) {
        if self.plans.len() <= pool {
            self.plans.resize(pool + 1, None);
            self.pool_free.resize(pool + 1, [0; PROTOCOLS.len()]);
        }
        self.plans[pool] = plan;
    }

    pub(super) fn get(&self, pool: usize) -> Option<&Plan> {
        self.plans.get(pool)?.as_ref()
    }

    /// Number of known pools.
    pub(super) fn count_pools(&self) -> usize {
        self.plans.len()
    }

    fn is_dynamic(&self, pool: usize, port: u16) -> bool {
        self.get(pool).and_then(Plan::dynamic).is_some_and(|(first, _)| port >= first)
    }

    fn count(&mut self, pool: usize, index: u32, protocol: usize, is_free: bool) {
        for free in [&mut self.free[index as usize][protocol], &mut self.pool_free[pool][protocol]]
        {
            *free = if is_free { *free + 1 } else { *free - 1 };
        }
        self.some_free[protocol].set(index, self.free[index as usize][protocol] > 0);
    }
}

/// Blocks that an address of a pool is cut into.
pub(super) fn cut(config: &Config, pool: &PoolConfig) -> Option<(Blocking, u16, u32)> {
    match config.allocation_of(pool) {
        Allocation::Block(block) => {
            let blocking = Blocking::new(pool.ports, block.size);
            Some((blocking, block.max_per_subscriber, ticks(block.release_after)))
        }
        Allocation::Address => Some((Blocking::whole(), 1, ticks(config.timeouts.hold_down))),
        _ => None,
    }
}

fn ticks(time: Duration) -> u32 {
    nanos(time).div_ceil(nanos(TICK)) as u32
}

/// Largest number of blocks an address that there is room for: the largest number of any pool, or
/// the number of blocks of the default size if no pool has blocks.
fn stride(config: &Config) -> u32 {
    let usual = Blocking::new((1024, u16::MAX), BlockConfig::default().size).count();
    let cuts = config.pools.iter().filter_map(|pool| cut(config, pool));
    cuts.map(|(blocking, ..)| blocking.count()).max().unwrap_or(usual)
}

/// The blocks of `addresses` addresses.
pub(super) fn blocks(config: &Config, addresses: usize, key: HashKey) -> Blocks {
    Blocks::new(addresses, stride(config), ticks(BlockConfig::LONGEST), key)
        .grouped(Grouping::new(config))
}

impl ExternalPorts {
    /// True if a subscriber of a realm has a block.
    pub(crate) fn has_blocks_of(&self, realm: u16) -> bool {
        self.blocks.has_any_of(realm)
    }

    /// True if a subscriber has a block of a pool, also one that gives out no ports here.
    pub(crate) fn owns_block(&self, pool: usize, host: Host) -> bool {
        self.blocks.of(host, pool).next().is_some()
    }

    /// The ports of an address of a pool that may be given out, as ranges, first to last. The
    /// ranges include ports that the pool excludes.
    pub(super) fn usable(&self, number: usize, index: u32) -> [Option<(u16, u16)>; 2] {
        let Some(Pool { ports, mode, .. }) = self.pools.get(number) else {
            return [None; 2];
        };
        match (mode, self.plans.get(number)) {
            (Mode::Deterministic, Some(plan)) => [plan.shared(self.address(index)), plan.dynamic()],
            (Mode::Block, _) => [LOW, HIGH].map(|side| self.blocks.ports_of_side(number, side)),
            _ => [Some(*ports), None],
        }
    }

    /// Counts the free ports in an address's blocks, or its free dynamic ports.
    pub(super) fn count_shares(&mut self, index: u32, protocol: usize) {
        let slot = self.slots[index as usize];
        let (number, ports) = (usize::from(slot.pool), &self.ports[protocol]);
        let count = |(first, last)| ports.count_within(index, Range { first, last });
        match self.pools.get(number).map(|pool| pool.mode) {
            Some(Mode::Block) => {
                let is_open = !slot.is_closed;
                let part = &self.part;
                // A block belongs to one subscriber, so all its ports must belong to one engine.
                let free = |ports| if part.has_all(index, ports) { count(ports) as u16 } else { 0 };
                self.blocks.renew(index, protocol, is_open, free);
            }
            Some(Mode::Deterministic) => {
                let free = self.plans.get(number).and_then(Plan::dynamic).map_or(0, count);
                let before = &mut self.plans.free[index as usize][protocol];
                let all = &mut self.plans.pool_free[number][protocol];
                *all = *all + free - core::mem::replace(before, free);
                self.plans.some_free[protocol].set(index, free > 0);
            }
            _ => {}
        }
    }

    /// Moves an address to its new pool. The address has no mappings.
    pub(super) fn join(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let before = usize::from(core::mem::replace(&mut slot.pool, slot.target));
        slot.is_closed = slot.is_draining || slot.is_foreign || slot.pool == NO_POOL;
        let (pool, is_busy, resting) = (usize::from(slot.pool), slot.busy > 0, slot.resting);
        self.ports.iter_mut().for_each(|ports| ports.move_held(index, before, pool));
        if self.pools.get(pool).is_some_and(|pool| pool.mode == Mode::Block) {
            let ports = &self.ports;
            let is_whole = self.pools[pool].is_whole;
            let resting = if is_whole { resting } else { 0 };
            self.blocks.attach(index, pool, |(first, last)| {
                // Port 0 may stand for a whole address.
                let first = if is_whole { 0 } else { first };
                let held = |ports: &Ports| ports.held_within(index, Range { first, last });
                resting + if is_busy { ports.iter().map(held).sum() } else { 0 }
            });
            self.pin_joined(index);
        }
    }

    /// Bytes that shares take.
    pub(super) fn memory_of_shares(config: &Config) -> u64 {
        let has_blocks = |pool: &&PoolConfig| cut(config, pool).is_some();
        let addresses = config.pools.iter().filter(has_blocks).map(PoolConfig::count).sum();
        Blocks::memory(addresses, stride(config))
    }

    /// True if a subscriber may get any port of a pool.
    pub(crate) fn is_shared(&self, pool: usize) -> bool {
        matches!(self.pools[pool].mode, Mode::Random | Mode::Preserve)
    }

    /// True if a pool shares ports out.
    #[inline(always)]
    pub(crate) fn has_shares(&self) -> bool {
        self.shares
    }

    /// Notes whether a pool shares ports out, after a pool has changed.
    pub(super) fn note_shares(&mut self) {
        self.shares = (0..self.pools.len()).any(|pool| !self.is_shared(pool));
    }

    // ---- choice and state of own ports ----

    /// Prefetches the data that tells the subscriber's ports of a pool.
    pub(crate) fn approach_share(&self, pool: usize, subscriber: Host, protocol: u8) {
        if self.pools[pool].mode == Mode::Block {
            self.blocks.prefetch(subscriber, pool);
        } else if let Some((index, range)) = self.share_of(pool, subscriber) {
            self.prefetch_free(protocol, index, range);
        }
    }

    /// Prefetches the free ports of the block that the subscriber most likely uses next.
    pub(crate) fn approach_block(&self, pool: usize, subscriber: Host, protocol: u8) {
        if self.pools[pool].mode == Mode::Block
            && let Some((index, (first, last))) = self.blocks.approach(subscriber, pool)
        {
            self.prefetch_free(protocol, index, Range { first, last });
        }
    }

    fn prefetch_free(&self, protocol: u8, index: u32, range: Range) {
        /// Words of the bitmap in a cache line.
        const LINE: usize = 8;
        let place = |port: u16| index as usize * WORDS + usize::from(port / 64);
        let free = &self.ports[protocol_index(protocol)].free;
        // In a large share most ports are free, and the first lines are enough.
        for place in (place(range.first)..=place(range.last)).step_by(LINE).take(4) {
            prefetch_within(free, place);
        }
        prefetch_within(free, place(range.last));
    }

    /// Draws one of the subscriber's own ports, if one is free. [`ExternalPorts::drawn`] reads the
    /// draw. `wish.paired` comes from [`ExternalPorts::pairing`].
    pub(crate) fn draw_share(
        &self,
        wish: Wish,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Option<Draw> {
        let External { index, port } = match self.pools[wish.pool].mode {
            Mode::Block => {
                let range = self.range(wish.pool, wish.protocol, wish.internal_port);
                self.choose_in_own(wish, range, subscriber, generator)?
            }
            Mode::Deterministic => {
                let (index, range) = self.share_of(wish.pool, subscriber)?;
                External::new(index, self.choose_within(index, range, wish, generator)?)
            }
            Mode::Random | Mode::Preserve => return None,
        };
        Some(Draw::exactly(index, port))
    }

    /// Notes that a free port is used or held now.
    /// `protocol` is the protocol's place.
    #[inline(always)]
    pub(super) fn note_taken(&mut self, protocol: usize, index: u32, pool: usize, port: u16) {
        if self.shares {
            self.note_share_taken(protocol, index, pool, port);
        }
    }

    #[inline(never)]
    fn note_share_taken(&mut self, protocol: usize, index: u32, pool: usize, port: u16) {
        match self.pools.get(pool).map(|pool| pool.mode) {
            Some(Mode::Block) => self.blocks.taken(pool, index, protocol, port),
            Some(Mode::Deterministic) if self.plans.is_dynamic(pool, port) => {
                self.plans.count(pool, index, protocol, false);
            }
            _ => {}
        }
    }

    /// Notes that a port has no owner again, at a tick; `is_free` is true if the port is free.
    /// `protocol` is the protocol's place.
    #[inline(always)]
    pub(super) fn note_freed(
        &mut self,
        protocol: usize,
        index: u32,
        port: u16,
        is_free: bool,
        tick: u32,
    ) {
        if self.shares {
            self.note_share_freed(protocol, index, port, is_free, tick);
        }
    }

    #[inline(never)]
    fn note_share_freed(
        &mut self,
        protocol: usize,
        index: u32,
        port: u16,
        is_free: bool,
        tick: u32,
    ) {
        let pool = self.pool_of(index);
        match self.pools.get(pool).map(|pool| pool.mode) {
            Some(Mode::Block) => {
                let is_free = is_free && self.has_whole_block(pool, index, port);
                self.blocks.freed(pool, index, (protocol, port), is_free, tick);
            }
            Some(Mode::Deterministic) if is_free && self.plans.is_dynamic(pool, port) => {
                self.plans.count(pool, index, protocol, true);
            }
            _ => {}
        }
    }

    /// Notes that a port without an owner is reserved (`is_free` is false), or is free again.
    /// `protocol` is the protocol's place.
    pub(super) fn note_kept(&mut self, protocol: usize, index: u32, port: u16, is_free: bool) {
        let pool = self.pool_of(index);
        match self.pools.get(pool).map(|pool| pool.mode) {
            Some(Mode::Block) if self.has_whole_block(pool, index, port) => {
                self.blocks.kept(pool, index, (protocol, port), is_free);
            }
            Some(Mode::Deterministic) if self.plans.is_dynamic(pool, port) => {
                self.plans.count(pool, index, protocol, is_free);
            }
            _ => {}
        }
    }

    /// True if all ports of the block of a port are this engine's own. A block that it has in part
    /// counts no free port.
    fn has_whole_block(&self, pool: usize, index: u32, port: u16) -> bool {
        let is_own = |block: u32| self.part.has_all(index, self.blocks.place_of(block).1);
        !self.part.is_divided() || self.blocks.find(pool, index, port).is_none_or(is_own)
    }

    /// True if new mappings may have ports of an address of a pool.
    pub(crate) fn has_open(&self, pool: usize) -> bool {
        !self.pools[pool].slots.is_empty()
    }

    /// Number of blocks of a pool with mappings of unanswered subscribers.
    pub(crate) fn unanswered_blocks(&self, pool: usize) -> u32 {
        self.blocks.unanswered(pool)
    }

    /// Counts a mapping of an unanswered subscriber more, or less, in the block of its port.
    #[cold]
    pub(crate) fn count_unanswered(&mut self, External { index, port }: External, is_more: bool) {
        let block = self.blocks.find(self.pool_of(index), index, port);
        match block {
            Some(block) if is_more => self.blocks.add_unanswered(block),
            Some(block) => self.blocks.remove_unanswered(block),
            None => {}
        }
    }

    /// Counts no mapping of a subscriber's blocks of a pool any more as one of an unanswered
    /// subscriber.
    pub(crate) fn answer_blocks(&mut self, pool: usize, subscriber: Host) {
        if self.blocks.has(pool) {
            let mut next = self.blocks.of(subscriber, pool).next();
            while let Some(block) = next {
                self.blocks.answer(block);
                next = self.blocks.next_of(block);
            }
        }
    }

    /// Takes one block that is due at a tick from its subscriber.
    pub(crate) fn release_block(&mut self, tick: u32) -> Option<BlockId> {
        let released = self.blocks.release(tick)?;
        Some(self.note_released(released))
    }

    /// Takes the block of a port from its subscriber, if the port is in a block and the block is
    /// empty.
    pub(crate) fn release_empty(&mut self, index: u32, port: u16) -> Option<BlockId> {
        let released = self.blocks.release_empty(self.pool_of(index), index, port)?;
        Some(self.note_released(released))
    }

    /// Takes the block of a port from its subscriber, if no mapping here has a port of the block,
    /// or is of the whole address. Held ports stay held. The block of a forwarded port stays.
    pub(crate) fn take_unused(&mut self, External { index, port }: External) -> Option<BlockId> {
        let pool = self.pool_of(index);
        let block = self.blocks.find(pool, index, port)?;
        self.blocks.owner_of(block)?;
        // The address as a whole may have mappings without ports.
        let is_used = match self.is_whole(pool) {
            true => self.blocks.tenure(block).is_pinned || self.has_mappings(index),
            false => {
                !self.blocks.is_empty(block)
                    && (self.blocks.tenure(block).is_pinned || self.has_mapping_in(index, block))
            }
        };
        (!is_used).then(|| self.take_block(block))
    }

    /// True if a mapping has a port of a block of an address.
    fn has_mapping_in(&self, index: u32, block: u32) -> bool {
        let (_, (first, last)) = self.blocks.place_of(block);
        let entries = Self::entry(index, first)..=Self::entry(index, last);
        let mut owners = self.ports.iter().flat_map(|ports| &ports.owner[entries.clone()]);
        owners.any(|&owner| owner_in(owner).is_some())
    }

    /// As [`ExternalPorts::take_unused`], if this engine is one of several of a pair and does not
    /// give out the block.
    pub(crate) fn leave_unused(&mut self, external: External) -> Option<BlockId> {
        if !self.shares || !self.is_of_pair || !self.part.is_divided() {
            return None;
        }
        let block = self.block_at(external.index, external.port)?;
        if self.gives_block(block) { None } else { self.take_unused(external) }
    }

    /// True if a subscriber has a block.
    pub(crate) fn has_assigned_blocks(&self) -> bool {
        self.blocks.has_any()
    }

    /// True if a subscriber has a block of an address.
    pub(crate) fn has_assigned_blocks_of(&self, index: u32) -> bool {
        !self.blocks.are_nobodys(index)
    }

    /// The first port of each block of an address that a subscriber has, and the number of ports
    /// that [`ExternalPorts::leave_unused`] reads: those of a block in which some are used or held,
    /// but none of a whole address.
    pub(crate) fn owned_blocks(&self, index: u32) -> Vec<(u16, usize)> {
        let pool = self.pool_of(index);
        let is_whole = self.is_whole(pool);
        let owned = self.blocks.ports_of(index).filter_map(|(first, last)| {
            let block = self.blocks.find(pool, index, first)?;
            self.blocks.owner_of(block)?;
            let reads = !is_whole && !self.blocks.is_empty(block);
            Some((first, if reads { usize::from(last - first) + 1 } else { 0 }))
        });
        owned.collect()
    }

    /// Takes a block from its subscriber.
    pub(super) fn take_block(&mut self, block: u32) -> BlockId {
        let released = self.blocks.take_back(block);
        self.note_released(released)
    }

    fn note_released(&mut self, (block, owner): (u32, Host)) -> BlockId {
        let (index, _) = self.blocks.place_of(block);
        let slot = &self.slots[index as usize];
        if slot.pool != slot.target && slot.all_mappings() == 0 && self.blocks.are_nobodys(index) {
            self.work.moves(index);
        }
        self.name_block(block, owner)
    }

    /// True if the ports of a pool's subscribers follow from their addresses.
    pub(crate) fn is_deterministic(&self, pool: usize) -> bool {
        self.pools[pool].mode == Mode::Deterministic
    }

    /// The identity of a block in events.
    pub(crate) fn block(&self, block: u32) -> BlockId {
        self.name_block(block, self.blocks.owner(block))
    }

    fn name_block(&self, block: u32, subscriber: Host) -> BlockId {
        let (index, ports) = self.blocks.place_of(block);
        let external = Ipv4Addr::from_bits(self.address(index));
        BlockId { realm: subscriber.realm(), subscriber: subscriber.ip(), external, ports }
    }

    /// Source from which the owner of an external endpoint is known.
    #[inline(always)]
    pub(crate) fn told(&self, protocol: u8, index: u32, port: u16) -> OwnershipSource {
        if self.shares { self.share_told(protocol, index, port) } else { OwnershipSource::Mapping }
    }

    fn share_told(&self, protocol: u8, index: u32, port: u16) -> OwnershipSource {
        let pool = self.pool_of(index);
        match self.pools.get(pool).map(|pool| pool.mode) {
            //= rfc6888#REQ-14
            Some(Mode::Block) if has_ports(protocol) || self.is_whole(pool) => {
                OwnershipSource::Block
            }
            //= rfc7422#section-2-log
            Some(Mode::Deterministic) if has_ports(protocol) => {
                if self.plans.is_dynamic(pool, port) {
                    OwnershipSource::Mapping
                } else {
                    OwnershipSource::Plan
                }
            }
            _ => OwnershipSource::Mapping,
        }
    }

    /// The index of the address for a subscriber's mappings of a pool. `paired` is the address of
    /// its present mappings.
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

    /// True if a subscriber's next mapping of a pool has another address than that of the present
    /// ones, which has this index: it gives out no ports any more, and others of the pool do.
    pub(crate) fn leaves(&self, pool: usize, index: u32) -> bool {
        let Pool { mode, slots, .. } = &self.pools[pool];
        // In a deterministic pool the address is the subscriber's own.
        *mode != Mode::Deterministic
            && !self.is_open(index, pool)
            && slots.iter().any(|&other| self.is_open(other, pool))
    }

    /// Number of blocks that a subscriber has in a pool of blocks, and largest number. A copied
    /// block whose ports another engine gives out does not count: the subscriber gets another one.
    pub(crate) fn blocks_of(&self, pool: usize, subscriber: Host) -> Filled<u16> {
        let used = match self.is_of_pair && self.part.is_divided() {
            true => {
                let own = self.blocks.of(subscriber, pool).filter(|block| self.gives_block(*block));
                own.count() as u16
            }
            false => self.blocks.owned(subscriber, pool).map_or(0, |owned| owned.blocks),
        };
        Filled { used, most: self.blocks.max(pool) }
    }

    /// True if this engine gives out the ports of a block.
    pub(super) fn gives_block(&self, block: u32) -> bool {
        let (index, ports) = self.blocks.place_of(block);
        !self.slots[index as usize].is_closed && self.part.has_all(index, ports)
    }

    // ---- arithmetic ----

    /// The index of a subscriber's address and its own ports, if it has any.
    pub(super) fn share_of(&self, pool: usize, subscriber: Host) -> Option<(u32, Range)> {
        let plan = self.plans.get(pool).filter(|plan| plan.realm() == subscriber.realm())?;
        let (number, (first, last)) = plan.share_of(subscriber.address())?;
        let index = *self.pools[pool].slots.get(number as usize)?;
        Some((index, Range { first, last }))
    }
}
