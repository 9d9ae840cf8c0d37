//! The external side: which addresses there are, which of their ports are free, used, held or
//! reserved, and which mapping a port belongs to.
//!
//! For each of the protocols with ports an address has a bitmap of its free ports and an array with
//! an entry a port: nothing, the mapping's slot, or, in hold-down, the next port that is released
//! at the same tick. So free, used, held and reserved ports are told apart at any time, and no port
//! is ever in two states.

mod change;
mod handover;
mod overload;
mod ownership;
mod part;
mod ports;
mod shares;
mod spans;

use crate::blocks::Blocks;
use crate::calendar::{NONE, lane};
use crate::config::{Config, PoolConfig, Pooling};
use crate::endpoint::External;
use crate::parse::has_ports;
use crate::prefetch::prefetch;
use crate::random::{Generator, HashKey};
use crate::{AddressUsage, PoolUsage};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use change::{Definition, Work};
pub use change::{Draining, PoolChange};
use core::net::Ipv4Addr;
pub(crate) use handover::HoldsCursor;
use natgate_wire::protocol;
pub(crate) use ownership::{InUse, Release, ReleaseSearch};
use part::Part;
pub(crate) use ports::Draw;
use ports::{EMPTY, HELD, LAST, Parity, Ports, Range};
pub(crate) use shares::{Chosen, OwnershipSource};
use shares::{Mode, Plans};
use spans::Spans;

const PORTS: usize = 1 << 16;
const WORDS: usize = PORTS / 64;

/// Groups of an address's ports whose free ones are counted, even and odd.
const GROUPS: usize = 16;
const GROUP_WORDS: usize = WORDS / GROUPS;

/// Most external addresses: an address's index and a port share 31 bits, all ones of which mean
/// something else.
pub(crate) const MAX_ADDRESSES: usize = (1 << 15) - 1;

/// The pool of an address that is of none, and most pools.
const NO_POOL: u16 = u16::MAX;
pub(crate) const MAX_POOLS: usize = 4096;

/// A pool: its addresses' indexes and its ports.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// The addresses that new mappings may have, in configured order.
    slots: Vec<u32>,
    ports: (u16, u16),
    /// A bit a port that is used.
    bits: Vec<u64>,
    mode: Mode,
}

/// What there is to say of an address, besides its ports.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The pool that its ports are counted with, and the one that it is to be of as soon as it has
    /// no mapping, if that is another.
    pool: u16,
    target: u16,
    /// Whether none of its ports becomes free: it drains, leaves its pool, or is of none.
    is_closed: bool,
    /// Whether the operator has it drained.
    is_draining: bool,
    /// Whether static mappings name it.
    is_static: bool,
    /// Whether it is external: else the slot only waits for ports that are held.
    is_known: bool,
    /// Protocols that a static mapping takes as a whole: a bit each by index, and one for all that
    /// have no ports.
    kept: u8,
    /// Dynamic mappings by the place of their protocol; the last place is for all without ports.
    mappings: [u32; PROTOCOLS.len() + 1],
    /// Ports that somebody has or that are held.
    busy: u32,
}

impl Slot {
    /// Dynamic mappings of all protocols.
    fn all_mappings(&self) -> u32 {
        self.mappings.iter().sum()
    }
}

/// The bit of [`Slot::kept`] for protocols without ports.
const PORTLESS: u8 = 1 << PROTOCOLS.len();

/// What a new mapping asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) pool: usize,
    pub(crate) protocol: u8,
    pub(crate) internal_port: u16,
    /// The index of the address that the subscriber's other mappings of the pool have.
    pub(crate) paired: Option<u32>,
    /// The index of the one address that it is to be, whatever the pooling behavior.
    pub(crate) fixed: Option<u32>,
}

/// All external addresses and ports.
#[derive(Clone, Debug)]
pub(crate) struct ExternalPorts {
    spans: Spans,
    /// By index.
    addresses: Vec<u32>,
    slots: Vec<Slot>,
    /// Indexes below those that nothing has any more.
    unused: Vec<u32>,
    /// Indexes of addresses that are external no longer, but have ports that are held.
    waiting: u32,
    /// How many addresses there may be.
    room: usize,
    /// The first address of the first pool.
    first: u32,
    pools: Vec<Pool>,
    ports: [Ports; PROTOCOLS.len()],
    blocks: Blocks,
    plans: Plans,
    part: Part,
    pooling: Pooling,
    parity: bool,
    /// Ports in hold-down, and how many there may be.
    held: u32,
    most_held: u32,
    /// Ports, by the place of their protocol and their own, that were held when a static mapping
    /// came for them: the next one that is released with each.
    evicted: BTreeMap<(usize, u32), u32>,
    work: Work,
}

/// The protocols that have ports, by their index.
pub(crate) const PROTOCOLS: [u8; 4] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

/// Index of a protocol that has ports.
pub(crate) fn protocol_index(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP => 2,
        protocol::DCCP => 3,
        _ => unreachable!("protocol {protocol} has no ports"),
    }
}

impl ExternalPorts {
    /// All pools' ports free, with room for so many addresses; `hold` is the hold-down in ticks.
    pub(crate) fn new(config: &Config, room: usize, hold: u32, key: HashKey) -> Self {
        let addresses = config.count_addresses();
        let mut external = Self {
            spans: Spans::new(room),
            addresses: Vec::with_capacity(room),
            slots: Vec::with_capacity(room),
            unused: Vec::with_capacity(room),
            waiting: 0,
            room,
            first: 0,
            pools: Vec::new(),
            ports: PROTOCOLS.map(|protocol| {
                // TCP connections are tracked (RFC 6888 REQ-8, exception A).
                let after_use = if protocol == protocol::TCP { 0 } else { hold };
                Ports::new(addresses, room, after_use)
            }),
            held: 0,
            most_held: config.limits.held_ports.unwrap_or(u32::MAX),
            evicted: BTreeMap::new(),
            blocks: shares::blocks(config, room, key),
            plans: Plans::new(room),
            part: Part::default(),
            pooling: config.pooling,
            parity: config.port_parity,
            work: Work::new(room),
        };
        for (number, pool) in config.pools.iter().enumerate() {
            external.define(number, Definition::new(config, pool));
            external.fill(number, pool);
        }
        for address in config.fixed_addresses().map(Ipv4Addr::to_bits) {
            let index = external.index(address).unwrap_or_else(|| external.enter(address));
            external.slots[index as usize].is_static = true;
        }
        external.first = change::first_address(config);
        external
    }

    /// Gives a pool its addresses, which are those of no other.
    fn fill(&mut self, number: usize, pool: &PoolConfig) {
        for address in pool.each_address() {
            let index = self.enter(address.to_bits());
            let slot = &mut self.slots[index as usize];
            slot.is_draining = pool.is_draining(address);
            slot.target = number as u16;
            if !slot.is_draining {
                self.pools[number].slots.push(index);
            }
            self.join(index);
            for protocol in 0..PROTOCOLS.len() {
                self.renew(index, protocol);
            }
        }
    }

    /// Bytes that this many addresses take, those of the configuration's pools among them; room for
    /// more is not touched until they come.
    pub(crate) fn memory(config: &Config, addresses: usize) -> u64 {
        (addresses * PROTOCOLS.len() * (WORDS * 8 + GROUPS * 4 + PORTS * 4)) as u64
            + Self::memory_of_shares(config)
    }

    /// The index of an external address.
    #[inline]
    pub(crate) fn index(&self, address: u32) -> Option<u32> {
        self.spans.index(address)
    }

    /// Whether an address may be external: it lies between the first and the last that are.
    #[inline(always)]
    pub(crate) fn may_have(&self, address: u32) -> bool {
        self.spans.may_have(address)
    }

    /// The address with this index.
    pub(crate) fn address(&self, index: u32) -> u32 {
        self.addresses[index as usize]
    }

    /// The first address of the first pool.
    pub(crate) fn first_address(&self) -> u32 {
        self.first
    }

    /// Whether a pool has an address.
    pub(crate) fn has(&self, pool: usize, address: Ipv4Addr) -> bool {
        let index = self.index(address.to_bits());
        index.is_some_and(|index| usize::from(self.slots[index as usize].target) == pool)
    }

    /// Whether an address gives out ports of a pool.
    pub(crate) fn is_open(&self, index: u32, pool: usize) -> bool {
        let slot = &self.slots[index as usize];
        !slot.is_closed && usize::from(slot.pool) == pool
    }

    /// The place of a port of an address among all ports of a protocol.
    #[inline(always)]
    pub(crate) fn entry(index: u32, port: u16) -> usize {
        Ports::entry(index, port)
    }

    /// The ports of TCP or UDP.
    #[inline(always)]
    fn tcp_or_udp(&self, protocol: u8) -> &Ports {
        &self.ports[usize::from(protocol == protocol::UDP)]
    }

    /// Fetches the entry of a port of TCP or UDP.
    #[inline(always)]
    pub(crate) fn prefetch(&self, protocol: u8, entry: usize) {
        prefetch(&self.tcp_or_udp(protocol).owner, entry);
    }

    /// Fetches the entry of an external port, if its protocol has ports.
    #[inline]
    pub(crate) fn fetch_owner(&self, protocol: u8, External { index, port }: External) {
        if has_ports(protocol) {
            prefetch(&self.ports[protocol_index(protocol)].owner, Self::entry(index, port));
        }
    }

    /// The slot of the mapping that has the port of this entry, of TCP or UDP.
    #[inline(always)]
    pub(crate) fn owner_at(&self, protocol: u8, entry: usize) -> Option<u32> {
        owner_in(self.tcp_or_udp(protocol).owner[entry])
    }

    /// The slot of the mapping that has this port.
    #[inline]
    pub(crate) fn owner(&self, protocol: u8, index: u32, port: u16) -> Option<u32> {
        owner_in(self.ports[protocol_index(protocol)].owner[Self::entry(index, port)])
    }

    /// The ports of a pool that an internal port may have: on its side of 1024 if the pool has both
    /// and the protocol is not ICMP, whose identifiers mean nothing.
    fn range(&self, pool: usize, protocol: u8, internal_port: u16) -> Range {
        let (first, last) = self.pools[pool].ports;
        //= rfc4787#REQ-3a
        if protocol == protocol::ICMP || first >= 1024 || last < 1024 {
            Range { first, last }
        } else if internal_port < 1024 {
            Range { first, last: 1023 }
        } else {
            Range { first: 1024, last }
        }
    }

    /// Chooses a free external address and port for a new mapping: (index, port).
    /// `tenants` says how many subscribers are paired with each address.
    pub(crate) fn choose(
        &self,
        wish: Wish,
        tenants: &[u32],
        generator: &mut Generator,
    ) -> Option<External> {
        let range = self.range(wish.pool, wish.protocol, wish.internal_port);
        let ports = &self.ports[protocol_index(wish.protocol)];
        let index = match (self.pooling, wish.fixed.or(wish.paired)) {
            // A rule has chosen.
            (_, Some(index)) if wish.fixed.is_some() => index,
            //= rfc4787#REQ-2
            //= rfc7857#section-4
            //= rfc7857#section-4-tcp
            (Pooling::Paired, Some(index)) => index,
            //= rfc7857#section-4-soft
            (Pooling::SoftPaired, Some(index)) if ports.free_in(index, range) > 0 => index,
            _ => self.choose_address(wish, range, tenants, generator)?,
        };
        Some(External::new(index, self.choose_port(index, wish, range, generator)?))
    }

    /// The better of two random addresses; if neither has a free port, the next that has. While
    /// both have plenty of ports, the one with fewer subscribers is better, for they will want
    /// more; else the one with more free ports.
    fn choose_address(
        &self,
        wish: Wish,
        range: Range,
        tenants: &[u32],
        generator: &mut Generator,
    ) -> Option<u32> {
        let slots = &self.pools[wish.pool].slots;
        let ports = &self.ports[protocol_index(wish.protocol)];
        if Ports::in_range(ports.pool_count[wish.pool], range) == 0 {
            return None;
        }
        let free = |place: u32| ports.free_in(slots[place as usize], range);
        let tenants = |place: u32| tenants[slots[place as usize] as usize];
        let plenty = (u32::from(range.last) - u32::from(range.first)) / 4;
        let is_better = |a: u32, b: u32| {
            let by_tenants = self.pooling != Pooling::Arbitrary
                && free(a).min(free(b)) > plenty
                && tenants(a) != tenants(b);
            if by_tenants { tenants(a) < tenants(b) } else { free(a) >= free(b) }
        };
        let mut places = generator.better_of_two(slots.len() as u32, is_better);
        places.find(|&place| free(place) > 0).map(|place| slots[place as usize])
    }

    /// Chooses an external address for a mapping that takes no port: the first from a random one on
    /// that the pooling behavior permits and of which `is_free` holds, or the one that is wished
    /// for.
    pub(crate) fn choose_portless(
        &self,
        wish: &Wish,
        generator: &mut Generator,
        is_free: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let &Wish { pool, paired, fixed, .. } = wish;
        let fits = |index: &u32| {
            let slot = &self.slots[*index as usize];
            let is_open = !slot.is_closed && usize::from(slot.pool) == pool;
            is_open && slot.kept & PORTLESS == 0 && is_free(*index)
        };
        if fixed.is_some() {
            return fixed.filter(fits);
        }
        if self.pooling != Pooling::Arbitrary && paired.is_some() {
            let index = paired.filter(fits);
            if index.is_some() || self.pooling == Pooling::Paired {
                return index;
            }
        }
        // Answers come to the engine that gives out the address's ports.
        let is_deterministic = self.pools[pool].mode == Mode::Deterministic;
        let answers_come = |index: &u32| is_deterministic || self.part.has_any(*index);
        let slots = &self.pools[pool].slots;
        let start = generator.below(slots.len() as u32) as usize;
        let (before, after) = slots.split_at_checked(start)?;
        after.iter().chain(before).copied().find(|index| answers_come(index) && fits(index))
    }

    /// Whether a port is free, whoever may have it.
    pub(crate) fn is_free(&self, protocol: u8, index: u32, port: u16) -> bool {
        self.ports[protocol_index(protocol)].is_free(index, port)
    }

    /// The one address of a pool that gives out ports, if there are no others.
    pub(crate) fn only_address(&self, pool: usize) -> Option<u32> {
        match self.pools[pool].slots[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The pool that an address is of; of none: one beyond the last.
    #[inline(always)]
    pub(crate) fn pool_of(&self, index: u32) -> usize {
        usize::from(self.slots[index as usize].pool)
    }

    fn choose_port(
        &self,
        index: u32,
        wish: Wish,
        range: Range,
        generator: &mut Generator,
    ) -> Option<u16> {
        let ports = &self.ports[protocol_index(wish.protocol)];
        //= rfc7857#section-9-preserve
        //= rfc6056#section-4-preserve
        if self.pools[wish.pool].mode == Mode::Preserve
            && (range.first..=range.last).contains(&wish.internal_port)
            && ports.is_free(index, wish.internal_port)
        {
            return Some(wish.internal_port);
        }
        if ports.free_in(index, range) == 0 {
            return None;
        }
        self.parity(&wish).or_any(|parity| ports.choose(index, range, parity, generator))
    }

    /// Gives a port, free or reserved, to a mapping.
    #[inline]
    pub(crate) fn take(&mut self, protocol: u8, index: u32, port: u16, slot: u32) {
        let pool = self.pool_of(index);
        let ports = &mut self.ports[protocol_index(protocol)];
        if ports.is_free(index, port) {
            ports.set_free(index, pool, port, false);
            self.note_taken(protocol, index, pool, port);
        }
        self.slots[index as usize].busy += 1;
        let ports = &mut self.ports[protocol_index(protocol)];
        let entry = &mut ports.owner[Self::entry(index, port)];
        //= rfc4787#REQ-3
        //= rfc5382#REQ-7
        //= rfc5597#REQ-7
        debug_assert_eq!(*entry, EMPTY, "external port has an owner already");
        *entry = slot + 1;
    }

    /// Counts a dynamic mapping of an address; `place` is its protocol's.
    #[inline(always)]
    pub(crate) fn count(&mut self, index: u32, place: usize) {
        self.slots[index as usize].mappings[place] += 1;
    }

    /// Counts a dynamic mapping of an address that ends; `place` is its protocol's.
    pub(crate) fn uncount(&mut self, index: u32, place: usize) {
        let slot = &mut self.slots[index as usize];
        slot.mappings[place] -= 1;
        if slot.pool != slot.target && slot.all_mappings() == 0 {
            self.work.moves(index);
        }
    }

    /// Draws for a TCP or UDP flow of a subscriber that has an address, or for which a rule chose
    /// one, and fetches what says which ports are free there: for [`External::drawn`]. `None`: this
    /// is not how ports are chosen.
    #[inline(always)]
    pub(crate) fn draw(&self, wish: Wish, generator: &mut Generator) -> Option<Draw> {
        let paired = || wish.paired.filter(|_| self.pooling != Pooling::Arbitrary);
        let index = wish.fixed.or_else(paired)?;
        let range = self.range(wish.pool, wish.protocol, wish.internal_port);
        let kept = (range.first..=range.last).contains(&wish.internal_port);
        let draw = match self.pools[wish.pool].mode {
            Mode::Preserve if kept => Draw::exactly(index, wish.internal_port),
            Mode::Random | Mode::Preserve => range.draw(index, self.parity(&wish), generator),
            Mode::Block | Mode::Deterministic => return None,
        };
        prefetch(&self.tcp_or_udp(wish.protocol).free, draw.place());
        Some(draw)
    }

    /// Fetches the entry of the port that a draw comes to.
    #[inline(always)]
    pub(crate) fn prefetch_drawn(&self, protocol: u8, draw: &Draw) {
        let ports = self.tcp_or_udp(protocol);
        if let Some(port) = ports.pick(draw) {
            prefetch(&ports.owner, Self::entry(draw.address, port));
        }
    }

    /// The external endpoint that a draw comes to, if there is one: (index, port).
    #[inline(always)]
    pub(crate) fn drawn(&self, protocol: u8, draw: &Draw) -> Option<External> {
        let port = self.tcp_or_udp(protocol).pick(draw)?;
        Some(External::new(draw.address, port))
    }

    /// Whether a new mapping keeps its internal port where that is free.
    pub(crate) fn keeps(&self, wish: &Wish) -> bool {
        self.pools[wish.pool].mode == Mode::Preserve
    }

    fn parity(&self, wish: &Wish) -> Parity {
        //= rfc4787#REQ-4
        //= rfc7857#section-8
        match (self.parity && wish.protocol == protocol::UDP, wish.internal_port & 1) {
            (false, _) => Parity::Any,
            (true, 0) => Parity::Even,
            (true, _) => Parity::Odd,
        }
    }

    /// Keeps a port from being chosen.
    #[inline]
    pub(crate) fn reserve(&mut self, protocol: u8, index: u32, port: u16) {
        let pool = self.pool_of(index);
        let ports = &mut self.ports[protocol_index(protocol)];
        if ports.is_free(index, port) {
            ports.set_free(index, pool, port, false);
            self.note_kept(protocol_index(protocol), index, port, false);
        }
    }

    /// Keeps all ports of an address from being chosen, of one protocol or of all.
    pub(crate) fn reserve_address(&mut self, index: u32, only: Option<u8>) {
        let slot = &mut self.slots[index as usize];
        if only.is_none_or(|protocol| !has_ports(protocol)) {
            slot.kept |= PORTLESS;
        }
        for (place, protocol) in PROTOCOLS.into_iter().enumerate() {
            if only.is_none_or(|only| protocol == only) {
                self.slots[index as usize].kept |= 1 << place;
                self.renew(index, place);
            }
        }
    }

    /// Gives the port of a mapping that goes to another that has it, too.
    pub(crate) fn hand_over(&mut self, protocol: u8, index: u32, port: u16, slot: u32) {
        self.ports[protocol_index(protocol)].owner[Self::entry(index, port)] = slot + 1;
    }

    /// Takes a reserved port from its mapping; it stays reserved.
    pub(crate) fn disown(&mut self, protocol: u8, index: u32, port: u16) {
        self.ports[protocol_index(protocol)].owner[Self::entry(index, port)] = EMPTY;
        let slot = &mut self.slots[index as usize];
        slot.busy -= 1;
        if slot.busy == 0 && !slot.is_known {
            self.waiting -= 1;
            self.unused.push(index);
        }
    }

    /// Takes a port from its mapping: it is free at once, or at tick `release` if the protocol's
    /// ports are held down. Should too many be held, the one that has been for longest is free.
    pub(crate) fn give(&mut self, protocol: u8, index: u32, port: u16, release: u32, now: u32) {
        let place = protocol_index(protocol);
        let ports = &mut self.ports[place];
        //= rfc6888#REQ-8a
        if ports.hold == 0 || self.most_held == 0 {
            self.give_at_once(protocol, index, port, now);
            return;
        }
        //= rfc6888#REQ-8
        ports.hold_until(index, port, release);
        self.count_held(place, index, true);
        //= rfc6888#REQ-8-configurable
        self.limit_held(now);
    }

    /// Takes a port from its mapping: it is free at once.
    pub(crate) fn give_at_once(&mut self, protocol: u8, index: u32, port: u16, now: u32) {
        let place = protocol_index(protocol);
        self.ports[place].owner[Self::entry(index, port)] = EMPTY;
        self.put_back(place, index, port, now + 1);
    }

    /// Counts a port more, or less, that is held; the protocol is given by its place.
    #[inline]
    fn count_held(&mut self, protocol: usize, index: u32, is_more: bool) {
        self.held = if is_more { self.held + 1 } else { self.held - 1 };
        let pool = self.pool_of(index);
        self.ports[protocol].count_held(index, pool, is_more);
    }

    /// Frees those of the held ports that are due first while there are too many.
    fn limit_held(&mut self, now: u32) {
        while self.held > self.most_held
            && let Some(tick) = self.next_release(now)
            && let Some(port) = self.due(tick, 0)
        {
            self.release(port, tick, now + 1);
        }
    }

    /// Frees a port that was used or held, if its address still gives it out, at a tick; the
    /// protocol is given by its place.
    fn put_back(&mut self, protocol: usize, index: u32, port: u16, tick: u32) {
        let slot = &mut self.slots[index as usize];
        slot.busy -= 1;
        let (pool, is_gone) = (usize::from(slot.pool), slot.busy == 0 && !slot.is_known);
        let is_free = self.gives_out(protocol, index, port);
        if is_free {
            self.ports[protocol].set_free(index, pool, port, true);
        }
        self.note_freed(protocol, index, port, is_free, tick);
        if is_gone {
            self.waiting -= 1;
            self.unused.push(index);
        }
    }

    /// Whether a port of an address may be given out when nobody has it; the protocol is given by
    /// its place.
    #[inline]
    fn gives_out(&self, protocol: usize, index: u32, port: u16) -> bool {
        let slot = &self.slots[index as usize];
        if slot.is_closed || slot.kept >> protocol & 1 != 0 {
            return false;
        }
        let pool = &self.pools[usize::from(slot.pool)];
        let is_in = |range: Option<(u16, u16)>| {
            range.is_some_and(|(first, last)| (first..=last).contains(&port))
        };
        let [mut usable, further] = self.usable(usize::from(slot.pool), index).map(is_in);
        if pool.mode != Mode::Deterministic {
            usable |= further;
            usable &= self.part.has(index, port);
        } else {
            usable |= further && self.part.has(index, port);
        }
        usable && pool.bits[usize::from(port) / 64] >> (port % 64) & 1 != 0
    }

    /// The ports of an address that may be given out when nobody has them, by words; the protocol
    /// is given by its place.
    fn given_out(&self, index: u32, protocol: usize) -> impl Iterator<Item = u64> + '_ {
        let slot = &self.slots[index as usize];
        let shut = slot.is_closed || slot.kept >> protocol & 1 != 0;
        let pool = self.pools.get(usize::from(slot.pool)).filter(|_| !shut);
        let usable = self.usable(usize::from(slot.pool), index);
        let usable = usable.map(|range| range.map(|(first, last)| Range { first, last }));
        (0..WORDS).map(move |word| {
            let Some(pool) = pool else { return 0 };
            let own = self.part.mask(index, word);
            let [first, further] = usable.map(|range| range.map_or(0, |range| range.bits(word)));
            let first = if pool.mode == Mode::Deterministic { first } else { first & own };
            pool.bits[word] & (first | further & own)
        })
    }

    /// Makes the ports of an address free that it gives out and nobody has, and no others; the
    /// protocol is given by its place.
    fn renew(&mut self, index: u32, protocol: usize) {
        let mut bits = [0; WORDS];
        bits.iter_mut().zip(self.given_out(index, protocol)).for_each(|(bits, all)| *bits = all);
        let slot = &self.slots[index as usize];
        let pool = usize::from(slot.pool);
        let pool = (pool < self.pools.len()).then_some(pool);
        self.ports[protocol].renew(index, pool, slot.busy > 0, &bits);
        self.count_shares(index, protocol);
    }

    /// Holds a port of a pool until tick `release`, if nobody has it, no static mapping keeps it,
    /// and room is left for one that is held.
    pub(crate) fn hold(&mut self, protocol: u8, index: u32, port: u16, release: u32) {
        let (place, slot) = (protocol_index(protocol), &mut self.slots[index as usize]);
        let number = usize::from(slot.pool);
        let Some(pool) = self.pools.get(number).filter(|_| self.held < self.most_held) else {
            return;
        };
        let ports = &mut self.ports[place];
        if slot.kept >> place & 1 != 0
            || !(pool.ports.0..=pool.ports.1).contains(&port)
            || ports.owner[Self::entry(index, port)] != EMPTY
        {
            return;
        }
        slot.busy += 1;
        ports.hold_until(index, port, release);
        self.count_held(place, index, true);
        let ports = &mut self.ports[place];
        if ports.is_free(index, port) {
            ports.set_free(index, number, port, false);
            self.note_taken(protocol, index, number, port);
        } else {
            self.blocks.held(number, index, port);
        }
    }

    /// Holds ports for so many ticks from now on that mappings give back.
    pub(crate) fn set_hold(&mut self, hold: u32) {
        for (ports, protocol) in self.ports.iter_mut().zip(PROTOCOLS) {
            ports.hold = if protocol == protocol::TCP { 0 } else { hold };
        }
    }

    /// Chooses endpoints for new mappings by these behaviors from now on.
    pub(crate) fn set_choice(&mut self, pooling: Pooling, parity: bool) {
        self.pooling = pooling;
        self.parity = parity;
    }

    /// The first tick after `now` at which a port or a block is released.
    pub(crate) fn next_tick(&self, now: u32) -> Option<u32> {
        match self.next_release(now) {
            Some(tick) if tick == now + 1 => Some(tick),
            tick => tick.into_iter().chain(self.blocks.next_tick(now)).min(),
        }
    }

    /// The first tick after `now` at which a port is released.
    fn next_release(&self, now: u32) -> Option<u32> {
        let mut first = None;
        for ports in &self.ports {
            match ports.holds.next(now + 1) {
                Some(tick) if tick == now + 1 => return Some(tick),
                Some(tick) => first = Some(first.map_or(tick, |first: u32| first.min(tick))),
                None => {}
            }
        }
        first
    }

    /// A port that is released at a tick, of the first of its lists from this one on: the place of
    /// its protocol, and its own among that one's ports.
    pub(crate) fn due(&self, tick: u32, from: usize) -> Option<(usize, u32)> {
        let mut heads = self.ports.iter().map(|ports| ports.holds.head(tick, from)).enumerate();
        heads.find(|&(_, entry)| entry != NONE)
    }

    /// Fetches what will be touched when a port is released that is due, if it still is; the one
    /// that is due after it.
    pub(crate) fn fetch_due(&self, (protocol, entry): (usize, u32)) -> Option<(usize, u32)> {
        let ports = &self.ports[protocol];
        let owner = ports.owner[entry as usize];
        if owner & HELD == 0 {
            return None;
        }
        prefetch(&ports.free, entry as usize / 64);
        let next = Some(owner & !HELD).filter(|&next| next != LAST)?;
        prefetch(&ports.owner, next as usize);
        Some((protocol, next))
    }

    /// Frees the first of the ports that are due at a tick, at another one, which may be before it.
    pub(crate) fn release(&mut self, port: (usize, u32), tick: u32, at: u32) {
        let (protocol, entry) = port;
        let ports = &mut self.ports[protocol];
        let owner = &mut ports.owner[entry as usize];
        let is_held = *owner & HELD != 0;
        // A static mapping may have it since.
        let evicted = if is_held { None } else { self.evicted.remove(&port) };
        let next = evicted.unwrap_or(*owner & !HELD);
        ports.holds.set_head(tick, lane(entry), if next == LAST { NONE } else { next });
        if !is_held {
            return;
        }
        *owner = EMPTY;
        self.count_held(protocol, entry / PORTS as u32, false);
        self.put_back(protocol, entry / PORTS as u32, entry as u16, at);
    }

    /// Writes a bit for each port of an address that is used or held, of a pool's by static
    /// mappings too; `None`: there are not so many addresses.
    pub(crate) fn taken(&self, index: u32, protocol: u8, into: &mut [u64]) -> Option<u32> {
        let address = *self.addresses.get(index as usize)?;
        let slot = &self.slots[index as usize];
        let is_of_pool = usize::from(slot.pool) < self.pools.len();
        let (place, ports) = (protocol_index(protocol), &self.ports[protocol_index(protocol)]);
        let free = &ports.free[index as usize * WORDS..][..WORDS];
        let owners = ports.owner[index as usize * PORTS..][..PORTS].chunks(64);
        // What is not free where ports are given out, somebody has. Elsewhere that says nothing.
        let words = self.given_out(index, place).zip(free).zip(owners);
        for (taken, ((given_out, free), owners)) in into.iter_mut().zip(words) {
            *taken = !free & given_out;
            if given_out != u64::MAX && slot.busy > 0 {
                let is_taken = |&owner: &u32| match is_of_pool {
                    true => owner != EMPTY,
                    false => owner & HELD != 0,
                };
                let bit = |(bit, owner)| u64::from(is_taken(owner)) << bit;
                *taken |= owners.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
            }
        }
        Some(address)
    }

    /// How many ports of a pool are free, by the place of their protocol; after these, blocks.
    pub(crate) fn free_of(&self, pool: usize, thing: usize) -> u32 {
        match self.ports.get(thing) {
            Some(ports) => ports.pool_count[pool].iter().sum(),
            None => self.blocks.nobodys(pool),
        }
    }

    /// How many ports of a pool are held, by the place of their protocol.
    pub(crate) fn held_of(&self, pool: usize) -> [u32; PROTOCOLS.len()] {
        core::array::from_fn(|protocol| self.ports[protocol].pool_held[pool])
    }

    /// The first external address that is not before this one, and its index.
    pub(crate) fn address_from(&self, address: u32) -> Option<(u32, u32)> {
        self.spans.from(address)
    }

    /// The mapping, by its slot, that has the first port of an address from this one on that any
    /// has; how many ports were passed, and how many of them, no more than `most`, had to be looked
    /// at.
    pub(crate) fn next_owned(
        &self,
        protocol: u8,
        index: u32,
        from: u32,
        most: usize,
    ) -> (Option<u32>, u32, usize) {
        let left = PORTS - from as usize;
        if self.slots[index as usize].busy == 0 {
            return (None, left as u32, 1);
        }
        let start = index as usize * PORTS + from as usize;
        let owners = &self.ports[protocol_index(protocol)].owner[start..][..left.min(most)];
        let mut slots = owners.iter().map(|&owner| owner_in(owner));
        match slots.position(|slot| slot.is_some()) {
            Some(at) => (owner_in(owners[at]), at as u32 + 1, at + 1),
            None => (None, owners.len() as u32, owners.len()),
        }
    }

    /// What is used of an address, if it is counted with a pool; so many subscribers are paired
    /// with it.
    pub(crate) fn address_usage(&self, index: u32, subscribers: u32) -> Option<AddressUsage> {
        let slot = &self.slots[index as usize];
        (usize::from(slot.pool) < self.pools.len()).then(|| AddressUsage {
            address: Ipv4Addr::from_bits(self.address(index)),
            pool: usize::from(slot.pool),
            mappings: slot.all_mappings(),
            subscribers,
            used: core::array::from_fn(|protocol| slot.mappings[protocol]),
            free: PROTOCOLS.map(|protocol| {
                let ports = &self.ports[protocol_index(protocol)];
                ports.free_on_side(index, true) + ports.free_on_side(index, false)
            }),
            held: core::array::from_fn(|protocol| self.ports[protocol].held_of(index)),
            blocks: self.blocks.of_address(index),
            draining: slot.is_draining || slot.pool != slot.target,
        })
    }

    /// Whether a pool's ports are given out in blocks.
    pub(crate) fn has_blocks(&self, pool: usize) -> bool {
        self.blocks.has(pool)
    }

    /// What a pool holds; `used` and `reserved` are told apart by who asks `is_static`.
    pub(crate) fn usage(
        &self,
        pool: usize,
        protocol: u8,
        is_static: impl Fn(u32) -> bool,
    ) -> PoolUsage {
        let (low, high) = self.pools[pool].ports;
        let ports = &self.ports[protocol_index(protocol)];
        let mut usage = PoolUsage::default();
        let addresses = 0..self.slots.len() as u32;
        for index in addresses.filter(|&index| self.pool_of(index) == pool) {
            for port in low..=high {
                let owner = ports.owner[Self::entry(index, port)];
                let state = match owner {
                    EMPTY if ports.is_free(index, port) => &mut usage.free,
                    EMPTY => &mut usage.reserved,
                    _ if owner & HELD != 0 => &mut usage.held,
                    _ if is_static(owner - 1) => &mut usage.reserved,
                    _ => &mut usage.used,
                };
                *state += 1;
            }
        }
        usage
    }
}

/// The slot that a port's entry names.
#[inline(always)]
fn owner_in(entry: u32) -> Option<u32> {
    match entry {
        EMPTY => None,
        entry if entry & HELD != 0 => None,
        entry => Some(entry - 1),
    }
}

/// All external addresses of a configuration: the pools', then those that only static mappings
/// name.
pub(crate) fn external_addresses(config: &Config) -> Vec<u32> {
    let ranges = config.pools.iter().flat_map(|pool| &pool.addresses);
    let mut addresses: Vec<u32> =
        ranges.flat_map(|range| range.first.to_bits()..=range.last.to_bits()).collect();
    let mut known: BTreeSet<u32> = addresses.iter().copied().collect();
    let others = config.fixed_addresses().map(Ipv4Addr::to_bits);
    addresses.extend(others.filter(|&address| known.insert(address)));
    addresses
}
