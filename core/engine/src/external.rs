//! The external side: external addresses, the state of each port (free, used, held or reserved),
//! and the mapping that a port belongs to.
//!
//! For each protocol with ports, an address has a bitmap of its free ports and an array with an
//! entry a port. An entry is empty, the mapping's slot, or, in hold-down, the next port that is
//! released at the same tick. So a port is in exactly one state at any time: free, used, held or
//! reserved.

mod change;
mod choice;
mod handover;
mod hold_down;
mod index_set;
mod linger;
mod overload;
mod ownership;
mod part;
mod pins;
mod ports;
mod rest;
mod share_choice;
mod shares;
mod spans;
mod usage;
mod whole;

use crate::BlockId;
use crate::blocks::Blocks;
use crate::calendar::{NONE, lane};
use crate::config::{Config, PoolConfig, Pooling};
use crate::endpoint::External;
use crate::prefetch::prefetch_within;
use crate::protocols::PROTOCOLS;
use crate::protocols::has_ports;
use crate::protocols::protocol_index;
use crate::random::HashKey;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use change::{Definition, Work};
pub use change::{Draining, PoolChange};
use core::net::Ipv4Addr;
pub(crate) use handover::HoldsCursor;
use index_set::Members;
use linger::Lingering;
use natgate_wire::protocol;
pub(crate) use ownership::{InUse, Release, ReleaseSearch};
use part::Part;
pub use pins::{BlockConflict, ConflictReason};
pub(crate) use pins::{Pin, PinChange, pins, report_only};
pub(crate) use ports::Draw;
use ports::{EMPTY, HELD, LAST, Parity, Ports, Range};
pub(crate) use rest::Rest;
use rest::Resting;
pub(crate) use shares::{Chosen, OwnershipSource};
use shares::{Mode, Plans};
use spans::Spans;

const PORTS: usize = 1 << 16;
const WORDS: usize = PORTS / 64;

/// Groups of an address's ports. Free ports are counted by group, even and odd.
const GROUPS: usize = 16;
const GROUP_WORDS: usize = WORDS / GROUPS;

/// Pool number of an address in no pool, and largest number of pools.
const NO_POOL: u16 = u16::MAX;
pub(crate) const MAX_POOLS: usize = 4096;

/// A pool: its addresses' indexes and its ports.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Indexes of the addresses that new mappings may have, in configured order.
    slots: Vec<u32>,
    /// The same indexes, to be searched.
    members: Members,
    ports: (u16, u16),
    /// The ports that an internal port below 1024, or another, may have.
    sides: [Range; 2],
    /// Bitmap of the ports that the pool uses.
    bits: Vec<u64>,
    mode: Mode,
    /// True if each address belongs to one host at a time. Then an address is one block.
    is_whole: bool,
    /// The place in `slots` of the address whose idle words are searched for next, on each side of
    /// port 1024.
    next_searched: [usize; 2],
}

/// State of an address besides its ports.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The pool that counts the address's ports, and the pool that the address joins as soon as it
    /// has no mapping.
    pool: u16,
    target: u16,
    /// True if none of its ports becomes free: the address drains, is foreign, leaves its pool, or
    /// is in no pool.
    is_closed: bool,
    /// True if the operator drains the address.
    is_draining: bool,
    /// True if another engine of the pair assigns the address's ports.
    is_foreign: bool,
    /// True if static mappings name the address.
    is_static: bool,
    /// True if the address is external. Otherwise the slot only waits for held ports.
    is_known: bool,
    /// Protocols for which a static mapping takes the whole address: a bit each by index, and one
    /// bit for all protocols without ports.
    kept: u8,
    /// Dynamic mappings by the place of their protocol. The last place counts protocols without
    /// ports.
    mappings: [u32; PROTOCOLS.len() + 1],
    /// Number of ports that are used or held.
    busy: u32,
    /// Number of mappings without ports that rest, if one host has the address as a whole.
    resting: u32,
}

impl Pool {
    /// Notes that `slots` has changed.
    fn note_slots(&mut self) {
        self.members = Members::of(&self.slots);
    }
}

impl Slot {
    /// Dynamic mappings of all protocols.
    fn all_mappings(&self) -> u32 {
        self.mappings.iter().sum()
    }
}

/// The bit of [`Slot::kept`] for protocols without ports.
const PORTLESS: u8 = 1 << PROTOCOLS.len();

/// Requirements of a new mapping for its external endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) pool: usize,
    pub(crate) protocol: u8,
    pub(crate) internal_port: u16,
    /// Index of the address of the subscriber's other mappings of the pool.
    pub(crate) paired: Option<u32>,
    /// Index of the required address, for any pooling behavior.
    pub(crate) fixed: Option<u32>,
}

/// All external addresses and ports.
#[derive(Clone, Debug)]
pub(crate) struct ExternalPorts {
    spans: Spans,
    /// Addresses by index.
    addresses: Vec<u32>,
    slots: Vec<Slot>,
    /// Indexes below `slots.len()` that are free again.
    unused: Vec<u32>,
    /// Number of addresses that are external no longer and still have held ports.
    waiting: u32,
    /// Largest number of addresses.
    room: usize,
    /// The first address of the first pool.
    first: u32,
    pools: Vec<Pool>,
    /// True if a pool shares its ports out.
    shares: bool,
    ports: [Ports; PROTOCOLS.len()],
    blocks: Blocks,
    plans: Plans,
    part: Part,
    pooling: Pooling,
    parity: bool,
    /// Ports in hold-down, and their largest number. A port that rests is not in hold-down yet.
    held: u32,
    most_held: u32,
    /// Held ports that a static mapping took: the place of the protocol and the port's entry, with
    /// the next port that is released at the same tick.
    evicted: BTreeMap<(usize, u32), u32>,
    /// Entries of ports that left their hold-down early and are still in its list: the place of the
    /// protocol and the port's entry.
    lingering: BTreeMap<(usize, u32), Lingering>,
    resting: Resting,
    /// True if the addresses are shared with another engine.
    is_of_pair: bool,
    /// Blocks of forwarded ports, and such blocks that are pinned and not reported yet.
    pins: Vec<Pin>,
    pinned_later: Vec<BlockId>,
    work: Work,
}

impl ExternalPorts {
    /// Makes all ports of all pools free, with room for `room` addresses. `hold` is the hold-down
    /// in ticks.
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
            shares: false,
            ports: PROTOCOLS.map(|protocol| {
                // TCP connections are tracked (RFC 6888 REQ-8, exception A).
                let after_use = if protocol == protocol::TCP { 0 } else { hold };
                Ports::new(addresses, room, after_use)
            }),
            held: 0,
            most_held: config.limits.held_ports.unwrap_or(u32::MAX),
            evicted: BTreeMap::new(),
            lingering: BTreeMap::new(),
            resting: Resting::default(),
            is_of_pair: false,
            pins: Vec::new(),
            pinned_later: Vec::new(),
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

    /// Gives a pool its addresses. No other pool has these addresses.
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
            self.renew_all(index);
        }
        self.pools[number].note_slots();
    }

    /// Bytes that `addresses` addresses take, with the pools of the configuration. Room for more is
    /// not touched until addresses come.
    pub(crate) fn memory(config: &Config, addresses: usize) -> u64 {
        (addresses * PROTOCOLS.len() * (WORDS * 8 + GROUPS * 4 + PORTS * 4)) as u64
            + Self::memory_of_shares(config)
    }

    /// The index of an external address.
    #[inline]
    pub(crate) fn index(&self, address: u32) -> Option<u32> {
        self.spans.index(address)
    }

    /// True if an address is external.
    #[inline(always)]
    pub(crate) fn has_address(&self, address: u32) -> bool {
        self.spans.may_have(address) && self.spans.index(address).is_some()
    }

    /// The address with this index.
    pub(crate) fn address(&self, index: u32) -> u32 {
        self.addresses[index as usize]
    }

    /// The first address of the first pool.
    pub(crate) fn first_address(&self) -> u32 {
        self.first
    }

    /// True if a pool has an address.
    pub(crate) fn has(&self, pool: usize, address: Ipv4Addr) -> bool {
        let index = self.index(address.to_bits());
        index.is_some_and(|index| usize::from(self.slots[index as usize].target) == pool)
    }

    /// True if an address gives out ports of a pool.
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

    /// Prefetches the entry of a port of TCP or UDP.
    #[inline(always)]
    pub(crate) fn prefetch(&self, protocol: u8, entry: usize) {
        prefetch_within(&self.tcp_or_udp(protocol).owner, entry);
    }

    /// Prefetches the entry of an external port, if the protocol has ports.
    #[inline]
    pub(crate) fn fetch_owner(&self, protocol: u8, External { index, port }: External) {
        if has_ports(protocol) {
            let owners = &self.ports[protocol_index(protocol)].owner;
            prefetch_within(owners, Self::entry(index, port));
        }
    }

    /// Prefetches what the copy of a mapping needs of an external port, if the protocol has ports.
    pub(crate) fn fetch_to_restore(&self, protocol: u8, external: External) {
        self.fetch_owner(protocol, external);
        if has_ports(protocol) {
            let ports = &self.ports[protocol_index(protocol)];
            ports.prefetch_free(external.index, external.port);
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

    /// True if a port is free.
    pub(crate) fn is_free(&self, protocol: u8, index: u32, port: u16) -> bool {
        self.ports[protocol_index(protocol)].is_free(index, port)
    }

    /// The pool of an address. An address in no pool gives a number beyond the last pool.
    #[inline(always)]
    pub(crate) fn pool_of(&self, index: u32) -> usize {
        usize::from(self.slots[index as usize].pool)
    }

    /// Gives a port, free or reserved, to a mapping.
    #[inline(always)]
    pub(crate) fn take(&mut self, protocol: u8, index: u32, port: u16, slot: u32) {
        let of_address = &mut self.slots[index as usize];
        of_address.busy += 1;
        let pool = usize::from(of_address.pool);
        let place = protocol_index(protocol);
        let ports = &mut self.ports[place];
        let entry = &mut ports.owner[Self::entry(index, port)];
        //= rfc4787#REQ-3
        //= rfc5382#REQ-7
        //= rfc5597#REQ-7
        //= rfc6146#section-3.5.1.1-unique
        //= rfc6146#section-3.5.2.3-unique
        debug_assert_eq!(*entry, EMPTY, "external port has an owner already");
        *entry = slot + 1;
        if ports.take_free(index, pool, port) {
            self.note_taken(place, index, pool, port);
        }
    }

    /// Counts a new dynamic mapping of an address; `place` is the place of its protocol. Returns
    /// the number of the address's pool.
    #[inline(always)]
    pub(crate) fn count(&mut self, index: u32, place: usize) -> usize {
        let slot = &mut self.slots[index as usize];
        slot.mappings[place] += 1;
        usize::from(slot.pool)
    }

    /// Counts the end of a dynamic mapping of an address; `place` is the place of its protocol.
    /// Returns the number of the address's pool.
    #[inline]
    pub(crate) fn uncount(&mut self, index: u32, place: usize) -> usize {
        let slot = &mut self.slots[index as usize];
        slot.mappings[place] -= 1;
        if slot.pool != slot.target && slot.all_mappings() == 0 {
            self.work.moves(index);
        }
        usize::from(slot.pool)
    }

    /// Reserves a port: new mappings do not choose it.
    #[inline]
    pub(crate) fn reserve(&mut self, protocol: u8, index: u32, port: u16) {
        let pool = self.pool_of(index);
        let ports = &mut self.ports[protocol_index(protocol)];
        if ports.take_free(index, pool, port) {
            self.note_kept(protocol_index(protocol), index, port, false);
        }
    }

    /// Reserves all ports of an address, for one protocol or for all.
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

    /// Gives the port of a removed mapping to another mapping that shares the port.
    pub(crate) fn hand_over(&mut self, protocol: u8, index: u32, port: u16, slot: u32) {
        self.ports[protocol_index(protocol)].owner[Self::entry(index, port)] = slot + 1;
    }

    /// Takes a reserved port from its mapping. The port stays reserved.
    pub(crate) fn disown(&mut self, protocol: u8, index: u32, port: u16) {
        self.ports[protocol_index(protocol)].owner[Self::entry(index, port)] = EMPTY;
        let slot = &mut self.slots[index as usize];
        slot.busy -= 1;
        if slot.busy == 0 && !slot.is_known {
            self.waiting -= 1;
            self.unused.push(index);
        }
    }

    /// Sets the pooling behavior and the parity behavior of later choices.
    pub(crate) fn set_choice(&mut self, pooling: Pooling, parity: bool) {
        self.pooling = pooling;
        self.parity = parity;
    }

    /// The first external address from `address` on, and its index.
    pub(crate) fn address_from(&self, address: u32) -> Option<(u32, u32)> {
        self.spans.from(address)
    }

    /// True if a pool's ports are given out in blocks.
    pub(crate) fn has_blocks(&self, pool: usize) -> bool {
        self.blocks.has(pool)
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
