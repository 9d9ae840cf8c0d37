//! Pools that share ports out (specification, sections 5.18 to 5.38): blocks that are assigned to
//! subscribers, and ports that follow from their addresses.

use crate::allocation::addresses;
use crate::points::DecisionPoints as _;
use crate::tick;
use crate::{Host, Key, Mapping, Model, has_ports};
use natgate_engine::{
    Allocation, BlockConfig, BlockId, Change, Config, DeterministicConfig, DropReason, Endpoint,
    MappingKind, PoolConfig, Pooling, TICK, Timestamp,
};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A block with an owner. Its first endpoint is the key in the map.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(super) subscriber: Host,
    /// True if the block has a forwarded port (5.27).
    pub(super) pinned: bool,
    /// Time since which no port of the block has been used or held, and how long the block then
    /// stays (14.4).
    pub(super) empty_since: Option<(Timestamp, Duration)>,
}

/// Size of a block that is a whole address (5.58).
const WHOLE: u16 = u16::MAX;

/// The blocks of a pool, if it has any. A whole address is one block (5.58).
pub(super) fn blocks_in(config: &Config, pool: &PoolConfig) -> Option<BlockConfig> {
    match config.allocation_of(pool) {
        Allocation::Block(block) => Some(block.clone()),
        Allocation::Address => Some(BlockConfig {
            size: WHOLE,
            max_per_subscriber: 1,
            release_after: config.timeouts.hold_down, // 5.63
        }),
        _ => None,
    }
}

/// The first ports of an address's blocks (5.18).
pub(super) fn first_ports(pool: &PoolConfig, block: &BlockConfig) -> Vec<u16> {
    if block.size == WHOLE {
        return vec![1];
    }
    let (first, last) = (u32::from(pool.ports.0), u32::from(pool.ports.1));
    let size = u32::from(block.size);
    let side = |from: u32, to: u32| {
        (from..=to).step_by(size as usize).filter(move |start| start + size - 1 <= to)
    };
    side(first, last.min(1023)).chain(side(first.max(1024), last)).map(|port| port as u16).collect()
}

pub(super) fn is_in(end: Endpoint, start: Endpoint, block: &BlockConfig) -> bool {
    let ports = u32::from(start.port)..u32::from(start.port) + u32::from(block.size);
    let is_whole = block.size == WHOLE; // Port 0 stands for protocols without ports.
    end.address == start.address && (is_whole || ports.contains(&u32::from(end.port)))
}

/// The division of 5.31: ports of each subscriber, subscribers of each address.
struct Division {
    ports: u64,
    subscribers: u64,
}

fn division(pool: &PoolConfig, plan: &DeterministicConfig) -> Division {
    let u = u64::from(pool.ports.1 - pool.ports.0) + 1 - u64::from(plan.dynamic_ports);
    let n: u64 = plan.subscribers.iter().map(|p| u64::from(p.last() - p.first()) + 1).sum();
    match plan.ports_per_subscriber {
        Some(r) => Division { ports: r.into(), subscribers: u / u64::from(r) },
        None => {
            let k = n.div_ceil(addresses(pool).count() as u64);
            Division { ports: u / k, subscribers: k }
        }
    }
}

/// Number of a pool's ports that mappings can have, over all addresses.
pub(super) fn usable_ports(config: &Config, pool: &PoolConfig) -> usize {
    let count = addresses(pool).count();
    let Allocation::Deterministic(plan) = config.allocation_of(pool) else {
        return count * (usize::from(pool.ports.1 - pool.ports.0) + 1);
    };
    let hosts = plan.subscribers.iter().map(|p| u64::from(p.last() - p.first()) + 1);
    let hosts: u64 = hosts.sum();
    let Division { ports, subscribers } = division(pool, plan);
    let from = u64::from(pool.ports.0) + ports * subscribers;
    let dynamic = if plan.dynamic_ports > 0 { u64::from(pool.ports.1) + 1 - from } else { 0 };
    (hosts * ports) as usize + count * dynamic as usize
}

/// The ports of a subscriber by arithmetic (5.32).
fn own_ports(
    pool: &PoolConfig,
    plan: &DeterministicConfig,
    (realm, subscriber): Host,
) -> Option<Vec<Endpoint>> {
    if realm != plan.realm {
        return None; // 15.16
    }
    let all = plan.subscribers.iter().flat_map(|prefix| prefix.first()..=prefix.last());
    let number = all.into_iter().position(|address| address == subscriber.to_bits())? as u64;
    let Division { ports, subscribers } = division(pool, plan);
    let address = addresses(pool).nth((number / subscribers) as usize)?;
    let first = u64::from(pool.ports.0) + number % subscribers * ports;
    Some((first..first + ports).map(|port| Endpoint { address, port: port as u16 }).collect())
}

/// True if a port is dynamic: its address gives it to any subscriber on demand (5.33).
fn is_dynamic(pool: &PoolConfig, plan: &DeterministicConfig, port: u16) -> bool {
    let Division { ports, subscribers } = division(pool, plan);
    plan.dynamic_ports > 0 && u64::from(port) >= u64::from(pool.ports.0) + ports * subscribers
}

/// The ports of a pool that subscribers may get; `None`: all (5.18, 5.30).
pub(crate) fn given(config: &Config, pool: &PoolConfig) -> Option<BTreeSet<Endpoint>> {
    if pool.addresses.is_empty() {
        return None; // The pool is gone (5.47).
    }
    let all = |address| (pool.ports.0..=pool.ports.1).map(move |port| Endpoint { address, port });
    match config.allocation_of(pool) {
        Allocation::Random | Allocation::Preserve | Allocation::Address => None,
        Allocation::Block(block) => {
            let firsts = first_ports(pool, block);
            let in_block = |end: &Endpoint| {
                firsts.iter().any(|port| is_in(*end, Endpoint { port: *port, ..*end }, block))
            };
            Some(addresses(pool).flat_map(all).filter(in_block).collect())
        }
        Allocation::Deterministic(plan) => {
            let own = plan.subscribers.iter().flat_map(|prefix| prefix.first()..=prefix.last());
            let own =
                own.filter_map(|one| own_ports(pool, plan, (plan.realm, Ipv4Addr::from_bits(one))));
            let dynamic = addresses(pool).flat_map(all);
            let dynamic = dynamic.filter(|end| is_dynamic(pool, plan, end.port));
            Some(own.flatten().chain(dynamic).collect())
        }
    }
}

impl Model {
    fn allocation(&self, pool: usize) -> &Allocation {
        self.config.allocation_of(&self.config.pools[pool])
    }

    /// True if a pool gives its ports to single subscribers.
    pub(crate) fn is_shared_out(&self, pool: usize) -> bool {
        !matches!(self.allocation(pool), Allocation::Random | Allocation::Preserve)
    }

    /// True if a subscriber of a realm has a block.
    pub(crate) fn blocks_of_realm(&self, realm: u16) -> bool {
        self.chapters.blocks.values().any(|block| block.subscriber.0 == realm)
    }

    /// True if a pool has blocks.
    pub fn has_blocks(&self) -> bool {
        (0..self.config.pools.len()).any(|pool| self.blocks_in(pool).is_some())
    }

    /// The blocks of a pool, if it has any.
    pub(super) fn blocks_in(&self, pool: usize) -> Option<BlockConfig> {
        blocks_in(&self.config, &self.config.pools[pool])
    }

    /// True if a pool gives out whole addresses (5.58).
    pub(super) fn is_whole(&self, pool: usize) -> bool {
        *self.allocation(pool) == Allocation::Address
    }

    /// First endpoints of a subscriber's blocks of a pool.
    fn blocks_of(&self, subscriber: Host, pool: usize) -> Vec<Endpoint> {
        let of = self.chapters.blocks.iter().filter(|(start, block)| {
            block.subscriber == subscriber && self.gives_out_ports(start.address, pool)
        });
        of.map(|(start, _)| *start).collect()
    }

    /// The address of a subscriber in a pool before any mapping (5.25, 5.35).
    fn address_of_shares(&self, subscriber: Host, pool: usize) -> Option<Ipv4Addr> {
        match self.allocation(pool) {
            Allocation::Block(_) | Allocation::Address
                if self.config.pooling == Pooling::Paired =>
            {
                self.blocks_of(subscriber, pool).first().map(|start| start.address)
            }
            Allocation::Deterministic(plan) => {
                let own = own_ports(&self.config.pools[pool], plan, subscriber)?;
                own.first().map(|end| end.address)
            }
            _ => None,
        }
    }

    /// 5.25, 5.35: the address that a subscriber is paired with. `paired` is the address by its
    /// mappings alone.
    pub(crate) fn pair_of_shares(
        &self,
        host: Host,
        pool: usize,
        paired: Option<Ipv4Addr>,
    ) -> Option<Ipv4Addr> {
        let own = self.address_of_shares(host, pool);
        match self.allocation(pool) {
            Allocation::Deterministic(_) => own.or(paired),
            _ => paired.or(own),
        }
    }

    /// Every external endpoint that is open for a mapping of a pool that shares ports out; never
    /// empty.
    pub(crate) fn shares_open(
        &self,
        key: Key,
        pool: usize,
        paired: Option<Ipv4Addr>,
    ) -> Result<Vec<Endpoint>, DropReason> {
        match self.allocation(pool) {
            Allocation::Block(block) => self.open_in_blocks(key, pool, paired, block),
            Allocation::Address => self.open_at_addresses(key, pool),
            Allocation::Deterministic(plan) => self.open_by_plan(key, pool, paired, plan),
            _ => Ok(Vec::new()),
        }
    }

    /// The subscriber's own ports, if the pool shares ports out: its computed share, or the ports
    /// of its blocks.
    pub(crate) fn own_ports(&self, subscriber: Host, pool: usize) -> Option<Vec<Endpoint>> {
        match self.allocation(pool) {
            Allocation::Random | Allocation::Preserve => None,
            Allocation::Deterministic(plan) => {
                Some(own_ports(&self.config.pools[pool], plan, subscriber).unwrap_or_default())
            }
            Allocation::Block(_) | Allocation::Address => {
                let block = self.blocks_in(pool)?;
                let starts = self.blocks_of(subscriber, pool).into_iter();
                let ports = |start: Endpoint| {
                    (start.port..=start.port + (block.size - 1))
                        .map(move |port| Endpoint { port, ..start })
                };
                Some(starts.flat_map(ports).collect())
            }
        }
    }

    /// Limits free ports of an address to the subscriber's own ports, or else to dynamic ports, if
    /// the pool shares ports out.
    pub(crate) fn own_of(&self, key: Key, pool: usize, free: Vec<Endpoint>) -> Vec<Endpoint> {
        let Some(own) = self.own_ports(key.host(), pool) else { return free };
        let (own, others): (Vec<Endpoint>, Vec<Endpoint>) =
            free.into_iter().partition(|end| own.contains(end));
        match self.allocation(pool) {
            Allocation::Deterministic(plan) if own.is_empty() => {
                let dynamic = |end: &Endpoint| is_dynamic(&self.config.pools[pool], plan, end.port);
                others.into_iter().filter(dynamic).collect()
            }
            _ => own,
        }
    }

    /// 5.18 and 5.23: the endpoints that are open in blocks.
    fn open_in_blocks(
        &self,
        key: Key,
        pool: usize,
        paired: Option<Ipv4Addr>,
        block: &BlockConfig,
    ) -> Result<Vec<Endpoint>, DropReason> {
        let free_in = |start: Endpoint| {
            let free = self.free_ports(key, pool, start.address).into_iter();
            free.filter(move |end| is_in(*end, start, block))
        };
        let own = self.blocks_of(key.host(), pool);
        let mut free: Vec<Endpoint> = own.iter().flat_map(|start| free_in(*start)).collect();
        let near = |end: &Endpoint| Some(end.address) == paired;
        let soft = self.config.pooling == Pooling::SoftPaired;
        if soft && free.iter().any(near) {
            free.retain(near);
        }
        if !free.is_empty() {
            return Ok(self.keep_parity(key, free));
        }
        if own.len() >= usize::from(block.max_per_subscriber) {
            return Err(DropReason::PortQuota);
        }
        let nobodys = |start: &Endpoint| {
            !self.chapters.blocks.contains_key(start)
                && !self.held.keys().any(|(_, end)| is_in(*end, *start, block))
        };
        let mut open = Vec::new();
        for address in self.open_addresses(pool) {
            let free = self.free_ports(key, pool, address);
            for port in first_ports(&self.config.pools[pool], block) {
                let start = Endpoint { address, port };
                let from = free.partition_point(|end| end.port < port);
                let of_block = free[from..].iter().take_while(|end| is_in(**end, start, block));
                let of_block: Vec<Endpoint> = of_block.copied().collect();
                if !of_block.is_empty() && nobodys(&start) {
                    open.extend(self.keep_parity(key, of_block));
                }
            }
        }
        let binding = match self.config.pooling {
            Pooling::Paired => paired.is_some(),
            Pooling::SoftPaired => open.iter().any(near),
            Pooling::Arbitrary => false,
        };
        if binding {
            open.retain(near);
        }
        if open.is_empty() { Err(DropReason::PoolExhausted) } else { Ok(open) }
    }

    /// 5.59 to 5.62: the endpoints that are open at whole addresses.
    fn open_at_addresses(&self, key: Key, pool: usize) -> Result<Vec<Endpoint>, DropReason> {
        if let Some(own) = self.blocks_of(key.host(), pool).first() {
            let open = self.open_at_own(key, pool, own.address);
            return if open.is_empty() { Err(DropReason::PortQuota) } else { Ok(open) };
        }
        let is_free = |address: &Ipv4Addr| {
            let is_there = |end: Endpoint| end.address == *address;
            !self.chapters.blocks.keys().copied().any(is_there)
                && !self.held.keys().any(|(_, end)| is_there(*end))
                && !self.has_static_external(address.to_bits())
        };
        let addresses: Vec<Ipv4Addr> = self.open_addresses(pool).filter(is_free).collect();
        let open = addresses.into_iter().flat_map(|address| self.open_at_own(key, pool, address));
        let open: Vec<Endpoint> = open.collect();
        if open.is_empty() { Err(DropReason::PoolExhausted) } else { Ok(open) }
    }

    /// 5.60: the internal port if it is free, otherwise any free port.
    fn open_at_own(&self, key: Key, pool: usize, address: Ipv4Addr) -> Vec<Endpoint> {
        if !has_ports(key.protocol) {
            return vec![Endpoint { address, port: 0 }];
        }
        let wanted = Endpoint { address, port: key.internal.port };
        if self.is_free_at_own(key.protocol, pool, wanted) {
            return vec![wanted];
        }
        self.keep_parity(key, self.free_ports(key, pool, address))
    }

    /// True if a port of a whole address is free.
    fn is_free_at_own(&self, protocol: u8, pool: usize, end: Endpoint) -> bool {
        let mut used = self.mappings.iter().map(|(key, mapping)| (key.protocol, mapping.external));
        end.port != 0
            && self.gives_out(pool, protocol, end)
            && !self.held.contains_key(&(protocol, end))
            && !used.any(|one| one == (protocol, end))
    }

    /// 5.64: the mapping of a port without one, if the host that has the address admits the packet.
    /// `None`: no host uses the address.
    pub(crate) fn key_at_owner(
        &mut self,
        protocol: u8,
        end: Endpoint,
        remote: Endpoint,
    ) -> Option<(Key, usize)> {
        let pool = self.pool_of(end.address.to_bits()).filter(|&pool| self.is_whole(pool))?;
        let mut blocks = self.chapters.blocks.iter();
        let (start, block) = blocks.find(|(start, _)| start.address == end.address)?;
        let (start, (realm, address)) = (*start, block.subscriber);
        let internal = Endpoint { address, port: end.port };
        let key = self.key_of(protocol, realm, internal, remote);
        self.is_busy(start).then_some((key, pool))
    }

    /// 5.64: true if a port without a mapping admits a packet, apart from the filtering behavior.
    pub(crate) fn may_map_at_owner(&self, key: Key, pool: usize, end: Endpoint) -> bool {
        let is_free = match has_ports(key.protocol) {
            true => self.is_free_at_own(key.protocol, pool, end),
            false => true,
        };
        is_free
            && self.gives_out_ports(end.address, pool)
            && !self.mappings.contains_key(&key)
            && !self.has_whole_static(key)
            && self.config.inbound_refresh
    }

    /// True if packets of a host leave by a static mapping of a whole address.
    fn has_whole_static(&self, Key { protocol, realm, internal, .. }: Key) -> bool {
        let found = self.static_external(protocol, realm, internal);
        found.is_some_and(|(fixed, _)| fixed.external.1.is_none())
    }

    /// 5.35 and 5.36: the endpoints that are open by arithmetic.
    fn open_by_plan(
        &self,
        key: Key,
        number: usize,
        paired: Option<Ipv4Addr>,
        plan: &DeterministicConfig,
    ) -> Result<Vec<Endpoint>, DropReason> {
        let pool = &self.config.pools[number];
        let own = own_ports(pool, plan, key.host());
        if let Some(own) = &own {
            let address = own.first().map(|end| end.address);
            let address = address.filter(|address| self.gives_out_ports(*address, number));
            let free = address.map(|address| self.free_ports(key, number, address));
            let mut free = free.unwrap_or_default();
            free.retain(|end| own.contains(end));
            if !free.is_empty() {
                return Ok(self.keep_parity(key, free));
            }
        }
        if plan.dynamic_ports == 0 {
            let reason =
                if own.is_some() { DropReason::PortQuota } else { DropReason::PoolExhausted };
            return Err(reason);
        }
        let mut open: Vec<Endpoint> = self
            .open_addresses(number)
            .flat_map(|address| {
                let mut free = self.free_ports(key, number, address);
                free.retain(|end| is_dynamic(pool, plan, end.port));
                self.keep_parity(key, free)
            })
            .collect();
        let near = |end: &Endpoint| Some(end.address) == paired;
        let binding = match self.config.pooling {
            Pooling::Paired => paired.is_some(),
            Pooling::SoftPaired => open.iter().any(near),
            Pooling::Arbitrary => false,
        };
        if binding {
            open.retain(near);
        }
        if open.is_empty() { Err(DropReason::PoolExhausted) } else { Ok(open) }
    }

    /// 5.30: the kind of a mapping with this external endpoint.
    pub(crate) fn kind_of(&self, key: Key, pool: usize, external: Endpoint) -> MappingKind {
        match self.allocation(pool) {
            Allocation::Deterministic(plan)
                if has_ports(key.protocol)
                    && !is_dynamic(&self.config.pools[pool], plan, external.port) =>
            {
                MappingKind::Deterministic
            }
            _ => MappingKind::Dynamic,
        }
    }

    /// 5.37: true if a mapping raises events.
    pub(crate) fn raises_events(&self, key: Key, mapping: &Mapping) -> bool {
        let pool = self.pool_of(mapping.external.address.to_bits());
        let in_block = pool.is_some_and(|pool| match self.allocation(pool) {
            Allocation::Block(_) => has_ports(key.protocol),
            Allocation::Address => true, // 5.65
            _ => false,
        });
        !in_block && mapping.kind == MappingKind::Dynamic
    }

    pub(crate) fn block_of(&self, end: Endpoint) -> Option<(Endpoint, BlockConfig)> {
        let pool = self.pool_of(end.address.to_bits())?;
        let block = self.blocks_in(pool)?;
        let firsts = first_ports(&self.config.pools[pool], &block);
        let mut starts = firsts.into_iter().map(|port| Endpoint { port, ..end });
        starts.find(|start| is_in(end, *start, &block)).map(|start| (start, block))
    }

    pub(super) fn block_id(&self, start: Endpoint, (realm, subscriber): Host) -> BlockId {
        let (_, block) = self.block_of(start).expect("a block begins here");
        let last = start.port + (block.size - 1);
        BlockId { realm, subscriber, external: start.address, ports: (start.port, last) }
    }

    /// 5.24: notes that a subscriber's mapping has got a port, and assigns its block if the block
    /// had no owner. Returns true if a block was assigned.
    pub(crate) fn use_block(&mut self, subscriber: Host, end: Endpoint) -> bool {
        let Some((start, _)) = self.block_of(end) else { return false };
        if let Some(block) = self.chapters.blocks.get_mut(&start) {
            block.empty_since = None;
            return false;
        }
        self.chapters.blocks.insert(start, Block { subscriber, pinned: false, empty_since: None });
        self.raise(self.now, Change::BlockAssigned(self.block_id(start, subscriber)));
        true
    }

    /// 5.39: number of a pool's blocks that are owned or held, and number of all its blocks.
    pub(crate) fn use_of_blocks(&self, number: usize) -> Option<(u64, u64)> {
        let block = self.blocks_in(number)?;
        let pool = &self.config.pools[number];
        let firsts = first_ports(pool, &block);
        let starts = self
            .open_addresses(number)
            .flat_map(|address| firsts.iter().map(move |&port| Endpoint { address, port }));
        let to_be_had = |start: &Endpoint| {
            let mut ends = (start.port..=start.port + (block.size - 1))
                .map(|port| Endpoint { port, ..*start });
            ends.any(|end| {
                let all = [TCP, UDP, ICMP, DCCP];
                let is_free = |protocol| self.static_internals(protocol, end).is_empty();
                pool.uses_port(end.port) && all.into_iter().any(is_free)
            })
        };
        let starts: Vec<Endpoint> = starts.filter(to_be_had).collect();
        let is_used = |start: &&Endpoint| {
            self.chapters.blocks.contains_key(start)
                || self.held.keys().any(|(_, end)| is_in(*end, **start, &block))
        };
        Some((starts.iter().filter(is_used).count() as u64, starts.len() as u64))
    }

    /// 5.28: the time of release of a block that is empty now.
    fn release_of(&self, start: Endpoint, block: &Block) -> Option<Timestamp> {
        debug_assert!(self.block_of(start).is_some(), "a block begins here");
        block.empty_since.map(|(since, stays)| tick(since.plus(stays)))
    }

    /// The time of the next release of a block.
    pub(crate) fn next_block(&self) -> Option<Timestamp> {
        self.chapters
            .blocks
            .iter()
            .filter_map(|(start, block)| self.release_of(*start, block))
            .min()
    }

    /// 5.28: notes the empty blocks, and releases blocks that were empty for long enough.
    pub(crate) fn release_blocks(&mut self, time: Timestamp) {
        self.note_empty(time);
        for start in self.chapters.blocks.keys().copied().collect::<Vec<_>>() {
            let block = self.chapters.blocks[&start].clone();
            if self.release_of(start, &block).is_some_and(|due| due <= time) {
                self.chapters.blocks.remove(&start);
                self.raise(time, Change::BlockReleased(self.block_id(start, block.subscriber)));
            }
        }
    }

    /// 18.6: releases the block of a port, if there is one and it is empty.
    pub(crate) fn release_empty(&mut self, end: Endpoint) {
        let Some((start, _)) = self.block_of(end) else { return };
        let Some(block) = self.chapters.blocks.get(&start).filter(|block| !block.pinned) else {
            return;
        };
        if !self.is_busy(start) {
            let id = self.block_id(start, block.subscriber);
            self.chapters.blocks.remove(&start);
            self.raise(self.now, Change::BlockReleased(id));
        }
    }

    /// True if a port of a block is used or held.
    pub(super) fn is_busy(&self, start: Endpoint) -> bool {
        let (_, config) = self.block_of(start).expect("a block begins here");
        let counts = |key: &Key| has_ports(key.protocol) || config.size == WHOLE; // 5.61
        let used = self
            .dynamic()
            .any(|(key, mapping)| counts(key) && is_in(mapping.external, start, &config));
        used || self.held.keys().any(|(_, end)| is_in(*end, start, &config))
    }

    /// Notes the empty blocks after mappings have gone between two ticks.
    pub(crate) fn note_empty_since_next_tick(&mut self) {
        let tick = TICK.as_nanos() as u64;
        self.note_empty(Timestamp((self.now.0 / tick + 1) * tick));
    }

    /// Notes the empty blocks. Blocks that were not empty before are empty since `since`.
    pub(crate) fn note_empty(&mut self, since: Timestamp) {
        for start in self.chapters.blocks.keys().copied().collect::<Vec<_>>() {
            let busy = self.is_busy(start);
            let (_, config) = self.block_of(start).expect("a block begins here");
            let block = self.chapters.blocks.get_mut(&start).expect("just seen");
            block.empty_since = match busy || block.pinned {
                true => None,
                false => block.empty_since.or(Some((since, config.release_after))),
            };
        }
    }

    /// For each block the part of its state that matters from now on.
    pub(crate) fn blocks_ahead(
        &self,
        ahead: impl Fn(Timestamp) -> u64,
    ) -> Vec<(Endpoint, Host, Option<u64>)> {
        let of = |(start, block): (&Endpoint, &Block)| {
            (*start, block.subscriber, self.release_of(*start, block).map(&ahead))
        };
        self.chapters.blocks.iter().map(of).collect()
    }
}
