//! The external side: which addresses there are, which of their ports are free, used, held or
//! reserved, and which mapping a port belongs to.
//!
//! For each of the protocols with ports an address has a bitmap of its free ports and an array with
//! an entry a port: nothing, the mapping's slot, or, in hold-down, the next port that is released at
//! the same tick. So free, used, held and reserved ports are told apart at any time, and no port is
//! ever in two states.

mod shares;

use crate::PoolUsage;
use crate::blocks::Blocks;
use crate::calendar::{Calendar, NONE};
use crate::config::{Config, PoolConfig, Pooling};
use crate::parse::has_ports;
use crate::prefetch::prefetch;
use crate::random::{Generator, HashKey};
use crate::time::{TICK, nanos};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use natgate_wire::protocol;
pub(crate) use shares::{Chosen, Told};
use shares::{Mode, Plans};

const PORTS: usize = 1 << 16;
const WORDS: usize = PORTS / 64;

/// Most external addresses: an address's index and a port share 31 bits, all ones of which mean
/// something else.
pub(crate) const MAX_ADDRESSES: usize = (1 << 15) - 1;

/// Entry of a port that no mapping has: free, reserved or not in a pool.
const EMPTY: u32 = 0;
/// Marks a port in hold-down; the other bits are the next one released with it.
const HELD: u32 = 1 << 31;
/// The end of a list of held ports.
const LAST: u32 = HELD - 1;

/// Random draws before the free ports are counted.
const DRAWS: u32 = 8;

/// Groups of an address's ports whose free ones are counted, even and odd.
const GROUPS: usize = 16;
const GROUP_WORDS: usize = WORDS / GROUPS;
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Addresses that follow each other, and the index of the first.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    index: u32,
}

impl Span {
    /// The index of an address that is in it.
    #[inline(always)]
    fn index(&self, address: u32) -> Option<u32> {
        let offset = address.wrapping_sub(self.first);
        (offset <= self.last - self.first).then(|| self.index + offset)
    }
}

/// A pool: its addresses' indexes and its ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    first: u32,
    count: u32,
    ports: (u16, u16),
    mode: Mode,
}

/// A side of port 1024, or all ports of a pool that does not span it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    first: u16,
    last: u16,
}

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

/// The ports of one protocol over all addresses.
#[derive(Clone, Debug)]
struct Ports {
    /// A bit a free port, [`WORDS`] an address.
    free: Vec<u64>,
    /// Free ports a group, even and odd; [`GROUPS`] an address.
    groups: Vec<[u16; 2]>,
    /// Free ports an address: below 1024, and from there.
    count: Vec<[u32; 2]>,
    /// The same a pool; addresses of none count in the last.
    pool_count: Vec<[u32; 2]>,
    /// An entry a port, [`PORTS`] an address.
    owner: Vec<u32>,
    /// Ports in hold-down, by release.
    holds: Calendar,
    /// How long a port is held that a mapping gives back, ticks.
    hold: u32,
}

impl Ports {
    /// `hold` is how long ports are held that mappings give back, `reach` the longest that any is
    /// held, ticks.
    fn new(addresses: usize, pools: usize, hold: u32, reach: u32) -> Self {
        Self {
            free: vec![0; addresses * WORDS],
            groups: vec![[0; 2]; addresses * GROUPS],
            count: vec![[0; 2]; addresses],
            pool_count: vec![[0; 2]; pools + 1],
            owner: vec![EMPTY; addresses * PORTS],
            holds: Calendar::new(reach + 1),
            hold,
        }
    }

    fn is_free(&self, address: u32, port: u16) -> bool {
        self.free[address as usize * WORDS + usize::from(port) / 64] >> (port % 64) & 1 != 0
    }

    #[inline(always)]
    fn set_free(&mut self, address: u32, pool: usize, port: u16, free: bool) {
        debug_assert_ne!(self.is_free(address, port), free);
        self.free[address as usize * WORDS + usize::from(port) / 64] ^= 1 << (port % 64);
        let group = address as usize * GROUPS + usize::from(port) / (GROUP_WORDS * 64);
        let in_group = &mut self.groups[group][usize::from(port & 1)];
        *in_group = if free { *in_group + 1 } else { *in_group - 1 };
        let side = usize::from(port >= 1024);
        for count in [&mut self.count[address as usize][side], &mut self.pool_count[pool][side]] {
            if free {
                *count += 1;
            } else {
                *count -= 1;
            }
        }
    }

    /// Frees all ports of an address that lie in one of these ranges.
    fn free_all(&mut self, address: u32, pool: usize, ranges: [Option<(u16, u16)>; 2]) {
        let words = &mut self.free[address as usize * WORDS..][..WORDS];
        for (first, last) in ranges.into_iter().flatten() {
            for (number, word) in words.iter_mut().enumerate() {
                *word |= Range { first, last }.bits(number);
            }
        }
        let groups = &mut self.groups[address as usize * GROUPS..][..GROUPS];
        for (group, words) in groups.iter_mut().zip(words.chunks(GROUP_WORDS)) {
            let count =
                |mask: u64| words.iter().map(|word| (word & mask).count_ones() as u16).sum();
            *group = [count(EVEN), count(EVEN << 1)];
        }
        let count = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum();
        let (low, high) = words.split_at(1024 / 64);
        let count: [u32; 2] = [count(low), count(high)];
        self.count[address as usize] = count;
        self.pool_count[pool] =
            [self.pool_count[pool][0] + count[0], self.pool_count[pool][1] + count[1]];
    }

    /// Enters a port that is not free among those that are released at a tick.
    fn hold_until(&mut self, address: u32, port: u16, release: u32) {
        let entry = External::entry(address, port);
        let next = self.holds.head(release);
        self.owner[entry] = HELD | if next == NONE { LAST } else { next };
        self.holds.set_head(release, entry as u32);
    }

    fn free_in(&self, address: u32, range: Range) -> u32 {
        Self::in_range(self.count[address as usize], range)
    }

    fn in_range([low, high]: [u32; 2], range: Range) -> u32 {
        (if range.first < 1024 { low } else { 0 }) + if range.last >= 1024 { high } else { 0 }
    }

    /// A free port of an address, in a range and of a parity, at random: of a word of the bitmap that
    /// is drawn; should words with such a port have become rare, each as likely as another.
    fn choose(
        &self,
        address: u32,
        range: Range,
        parity: Parity,
        generator: &mut Generator,
    ) -> Option<u16> {
        //= rfc7857#section-9
        for _ in 0..DRAWS {
            let port = self.pick(&range.draw(address, parity, generator));
            if port.is_some() {
                return port;
            }
        }
        //= rfc6888#REQ-13
        self.choose_counted(address, range, parity, generator)
    }

    /// The free port that a draw comes to, if the word has one. What is free there is in the range that
    /// was drawn from: none is beyond its pool's ports, and 1024 begins a word.
    #[inline(always)]
    fn pick(&self, draw: &Draw) -> Option<u16> {
        let bits = self.free[draw.place()] & draw.parity.mask();
        let turn = u32::from(draw.turn);
        let bit = (bits.rotate_right(turn).trailing_zeros() + turn) % 64;
        (bits != 0).then_some(draw.word * 64 + bit as u16)
    }

    /// The same by counting: which of the free ports it is to be, then where that one is. Groups that
    /// lie in the range as a whole are counted already.
    fn choose_counted(
        &self,
        address: u32,
        range: Range,
        parity: Parity,
        generator: &mut Generator,
    ) -> Option<u16> {
        let words = &self.free[address as usize * WORDS..][..WORDS];
        let mask = parity.mask();
        let bits = |word: usize| words[word] & mask & range.bits(word);
        let in_group = |group: usize| -> u32 {
            if range.has_group(group) {
                let [even, odd] = self.groups[address as usize * GROUPS + group];
                match parity {
                    Parity::Even => u32::from(even),
                    Parity::Odd => u32::from(odd),
                    Parity::Any => u32::from(even) + u32::from(odd),
                }
            } else {
                (group * GROUP_WORDS..(group + 1) * GROUP_WORDS)
                    .map(|word| bits(word).count_ones())
                    .sum()
            }
        };
        let counts: [u32; GROUPS] = core::array::from_fn(in_group);
        let all: u32 = counts.iter().sum();
        if all == 0 {
            return None;
        }
        let mut which = generator.below(all);
        let group = counts.iter().position(|&count| {
            let here = which < count;
            which -= if here { 0 } else { count };
            here
        })?;
        let mut word = group * GROUP_WORDS;
        while which >= bits(word).count_ones() {
            which -= bits(word).count_ones();
            word += 1;
        }
        let rest = (0..which).fold(bits(word), |rest, _| rest & (rest - 1));
        Some((word * 64) as u16 + rest.trailing_zeros() as u16)
    }
}

/// Which ports will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Parity {
    Even,
    Odd,
    Any,
}

impl Parity {
    /// The ports of a word that have it.
    fn mask(self) -> u64 {
        [EVEN, EVEN << 1, u64::MAX][self as usize]
    }
}

/// A word of an address's bitmap, which of its ports will do, and where the search begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    address: u32,
    word: u16,
    turn: u8,
    parity: Parity,
}

impl Draw {
    /// The index of the address.
    pub(crate) fn index(&self) -> u32 {
        self.address
    }

    fn place(&self) -> usize {
        self.address as usize * WORDS + usize::from(self.word)
    }
}

impl Range {
    /// Draws a word of the bitmap, and where in it a free port is looked for first.
    #[inline]
    fn draw(self, address: u32, parity: Parity, generator: &mut Generator) -> Draw {
        let (first, last) = (self.first / 64, self.last / 64);
        let random = generator.next_u64();
        //= rfc6056#section-4-obfuscate
        //= rfc6056#section-4-parity
        //= rfc6888#REQ-15
        let words = u64::from(last - first) + 1;
        let word = first + (((random >> 32) * words) >> 32) as u16;
        Draw { address, word, turn: random as u8 % 64, parity }
    }

    /// The ports of a bitmap's word that are in the range.
    fn bits(self, word: usize) -> u64 {
        let below = |port: usize| match port.saturating_sub(word * 64) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        below(usize::from(self.last) + 1) & !below(usize::from(self.first))
    }

    /// Whether all ports of a group that a pool may have are in the range.
    fn has_group(self, group: usize) -> bool {
        let first = group * GROUP_WORDS * 64;
        // Beyond its ends a pool has nothing; within, only the border at 1024 divides a group.
        self.last >= 1024 && (first > 0 || self.first < 1024)
    }
}

/// All external addresses and ports.
#[derive(Clone, Debug)]
pub(crate) struct External {
    /// The first span, and those beyond it: sorted, disjoint.
    span: Span,
    spans: Vec<Span>,
    /// The least and the greatest address.
    bounds: (u32, u32),
    addresses: Vec<u32>,
    pools: Vec<Pool>,
    ports: [Ports; PROTOCOLS.len()],
    blocks: Blocks,
    plans: Plans,
    pooling: Pooling,
    parity: bool,
    /// Addresses whose protocols without ports a static mapping takes.
    whole: Vec<bool>,
    /// Ports in hold-down, and how many there may be.
    held: u32,
    most_held: u32,
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

impl External {
    /// All pools' ports free; `hold` is the hold-down in ticks. When static mappings have taken theirs,
    /// [`External::settle`] is called.
    pub(crate) fn new(config: &Config, hold: u32, key: HashKey) -> Self {
        let addresses = external_addresses(config);
        let mut first = 0;
        let pool = |pool: &PoolConfig| {
            let count = pool.addresses.iter().map(|range| range.count() as u32).sum();
            let ports = (pool.ports.0.max(1), pool.ports.1);
            let mode = Mode::new(config.allocation_of(pool));
            let pool = Pool { first, count, ports, mode };
            first += count;
            pool
        };
        let pools = config.pools.iter().map(pool).collect();
        let count = addresses.len();
        let mut spans = spans(&addresses);
        let mut external = Self {
            bounds: (
                addresses.iter().copied().min().unwrap_or(u32::MAX),
                addresses.iter().copied().max().unwrap_or(0),
            ),
            span: spans.remove(0),
            spans,
            addresses,
            ports: PROTOCOLS.map(|protocol| {
                // TCP connections are tracked (RFC 6888 REQ-8, exception A).
                let after_use = if protocol == protocol::TCP { 0 } else { hold };
                Ports::new(count, config.pools.len(), after_use, hold)
            }),
            held: 0,
            most_held: config.limits.held_ports.unwrap_or(u32::MAX),
            pools,
            blocks: Blocks::new(config, count, key, |time| {
                nanos(time).div_ceil(nanos(TICK)) as u32
            }),
            plans: Plans::new(config, count),
            pooling: config.pooling,
            parity: config.port_parity,
            whole: vec![false; count],
        };
        external.free_pools();
        external
    }

    fn free_pools(&mut self) {
        for (number, pool) in self.pools.clone().into_iter().enumerate() {
            for address in pool.first..pool.first + pool.count {
                let usable = self.usable(number, address);
                for ports in &mut self.ports {
                    ports.free_all(address, number, usable);
                }
            }
        }
    }

    /// Bytes that this many addresses take, those of the configuration's pools among them.
    pub(crate) fn memory(config: &Config, addresses: usize) -> u64 {
        (addresses * PROTOCOLS.len() * (WORDS * 8 + GROUPS * 4 + PORTS * 4)) as u64
            + Self::memory_of_shares(config)
    }

    /// The index of an external address.
    #[inline]
    pub(crate) fn index(&self, address: u32) -> Option<u32> {
        // Most often there is one span only.
        self.span.index(address).or_else(|| {
            let next = self.spans.partition_point(|span| span.last < address);
            self.spans.get(next)?.index(address)
        })
    }

    /// Whether an address may be external: it lies between the first and the last that are.
    #[inline(always)]
    pub(crate) fn may_have(&self, address: u32) -> bool {
        (self.bounds.0..=self.bounds.1).contains(&address)
    }

    /// The address with this index.
    pub(crate) fn address(&self, index: u32) -> u32 {
        self.addresses[index as usize]
    }

    /// Whether a pool has an address.
    pub(crate) fn has(&self, pool: usize, address: Ipv4Addr) -> bool {
        self.index(address.to_bits()).is_some_and(|index| self.pool_of(index) == pool)
    }

    /// The place of a port of an address among all ports of a protocol.
    #[inline(always)]
    pub(crate) fn entry(index: u32, port: u16) -> usize {
        index as usize * PORTS + usize::from(port)
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
    ) -> Option<(u32, u16)> {
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
        Some((index, self.choose_port(index, wish, range, generator)?))
    }

    /// The better of two random addresses; if neither has a free port, the next that has. While both
    /// have plenty of ports, the one with fewer subscribers is better, for they will want more; else
    /// the one with more free ports.
    fn choose_address(
        &self,
        wish: Wish,
        range: Range,
        tenants: &[u32],
        generator: &mut Generator,
    ) -> Option<u32> {
        let pool = self.pools[wish.pool];
        let ports = &self.ports[protocol_index(wish.protocol)];
        if Ports::in_range(ports.pool_count[wish.pool], range) == 0 {
            return None;
        }
        let free = |offset: u32| ports.free_in(pool.first + offset, range);
        let tenants = |offset: u32| tenants[(pool.first + offset) as usize];
        let (a, b) = (generator.below(pool.count), generator.below(pool.count));
        let plenty = (u32::from(range.last) - u32::from(range.first)) / 4;
        let by_tenants = self.pooling != Pooling::Arbitrary
            && free(a).min(free(b)) > plenty
            && tenants(a) != tenants(b);
        let a_is_better = if by_tenants { tenants(a) < tenants(b) } else { free(a) >= free(b) };
        let better = if a_is_better { a } else { b };
        (better..pool.count)
            .chain(0..better)
            .find(|&offset| free(offset) > 0)
            .map(|offset| pool.first + offset)
    }

    /// Chooses an external address for a mapping that takes no port: the first from a random one on
    /// that the pooling behavior permits and of which `is_free` holds, or the one that is wished for.
    pub(crate) fn choose_portless(
        &self,
        wish: &Wish,
        generator: &mut Generator,
        is_free: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let &Wish { pool, paired, fixed, .. } = wish;
        let Pool { first, count, .. } = self.pools[pool];
        let fits = |index: &u32| !self.whole[*index as usize] && is_free(*index);
        if fixed.is_some() {
            return fixed.filter(fits);
        }
        if self.pooling != Pooling::Arbitrary && paired.is_some() {
            let index = paired.filter(fits);
            if index.is_some() || self.pooling == Pooling::Paired {
                return index;
            }
        }
        let start = generator.below(count);
        (start..count).chain(0..start).map(|offset| first + offset).find(fits)
    }

    /// The pool that an address is of; of none: one beyond the last.
    pub(crate) fn pool_of(&self, index: u32) -> usize {
        pool_of(&self.pools, index)
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
        //= rfc7857#section-9-parity
        ports
            .choose(index, range, self.parity(&wish), generator)
            .or_else(|| ports.choose(index, range, Parity::Any, generator))
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
        let ports = &mut self.ports[protocol_index(protocol)];
        let entry = &mut ports.owner[Self::entry(index, port)];
        //= rfc4787#REQ-3
        //= rfc5382#REQ-7
        //= rfc5597#REQ-7
        debug_assert_eq!(*entry, EMPTY, "external port has an owner already");
        *entry = slot + 1;
    }

    /// Draws for a TCP or UDP flow of a subscriber that has an address, and fetches what says which
    /// ports are free there: for [`External::drawn`]. `None`: this is not how ports are chosen.
    #[inline(always)]
    pub(crate) fn draw(&self, wish: Wish, generator: &mut Generator) -> Option<Draw> {
        let index = wish.paired?;
        if self.pooling == Pooling::Arbitrary || self.pools[wish.pool].mode != Mode::Random {
            return None;
        }
        let range = self.range(wish.pool, wish.protocol, wish.internal_port);
        let draw = range.draw(index, self.parity(&wish), generator);
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
    pub(crate) fn drawn(&self, protocol: u8, draw: &Draw) -> Option<(u32, u16)> {
        let port = self.tcp_or_udp(protocol).pick(draw)?;
        Some((draw.address, port))
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
        }
    }

    /// Keeps all ports of an address from being chosen, of one protocol or of all.
    pub(crate) fn reserve_address(&mut self, index: u32, only: Option<u8>) {
        self.whole[index as usize] |= only.is_none_or(|protocol| !has_ports(protocol));
        for protocol in PROTOCOLS.into_iter().filter(|&p| only.is_none_or(|only| p == only)) {
            for port in 0..=u16::MAX {
                self.reserve(protocol, index, port);
            }
        }
    }

    /// Takes a reserved port from its mapping; it stays reserved.
    pub(crate) fn disown(&mut self, protocol: u8, index: u32, port: u16) {
        self.ports[protocol_index(protocol)].owner[Self::entry(index, port)] = EMPTY;
    }

    /// Takes a port from its mapping: it is free at once, or at tick `release` if the protocol's
    /// ports are held down. Should too many be held, the one that has been for longest is free.
    pub(crate) fn give(&mut self, protocol: u8, index: u32, port: u16, release: u32, now: u32) {
        let pool = self.pool_of(index);
        let ports = &mut self.ports[protocol_index(protocol)];
        //= rfc6888#REQ-8a
        if ports.hold == 0 || self.most_held == 0 {
            ports.owner[Self::entry(index, port)] = EMPTY;
            ports.set_free(index, pool, port, true);
            self.note_freed(protocol_index(protocol), index, pool, port, now + 1);
            return;
        }
        //= rfc6888#REQ-8
        ports.hold_until(index, port, release);
        self.held += 1;
        //= rfc6888#REQ-8-configurable
        if self.held > self.most_held
            && let Some(tick) = self.next_release(now)
        {
            self.release_at(tick, now + 1);
        }
    }

    /// Holds a port until tick `release`, if it is free and room is left for one that is held.
    pub(crate) fn hold(&mut self, protocol: u8, index: u32, port: u16, release: u32) {
        let ports = &mut self.ports[protocol_index(protocol)];
        if self.held < self.most_held && ports.is_free(index, port) {
            let pool = pool_of(&self.pools, index);
            ports.set_free(index, pool, port, false);
            ports.hold_until(index, port, release);
            self.held += 1;
            self.note_taken(protocol, index, pool, port);
        }
    }

    /// The first tick after `now` at which a port or a block is released.
    pub(crate) fn next_tick(&self, now: u32) -> Option<u32> {
        self.next_release(now).into_iter().chain(self.blocks.next_tick(now)).min()
    }

    /// The first tick after `now` at which a port is released.
    fn next_release(&self, now: u32) -> Option<u32> {
        self.ports.iter().filter_map(|ports| ports.holds.next(now + 1)).min()
    }

    /// Frees one port that is due at this tick; `false`: there is none.
    pub(crate) fn release(&mut self, tick: u32) -> bool {
        self.release_at(tick, tick)
    }

    /// The same at the tick `at`, for a port that is due later.
    fn release_at(&mut self, tick: u32, at: u32) -> bool {
        let pools = &self.pools;
        for (protocol, ports) in self.ports.iter_mut().enumerate() {
            let entry = ports.holds.head(tick);
            if entry == NONE {
                continue;
            }
            let next = ports.owner[entry as usize] & !HELD;
            ports.holds.set_head(tick, if next == LAST { NONE } else { next });
            ports.owner[entry as usize] = EMPTY;
            let index = entry / PORTS as u32;
            let pool = pool_of(pools, index);
            ports.set_free(index, pool, entry as u16, true);
            self.held -= 1;
            self.note_freed(protocol, index, pool, entry as u16, at);
            return true;
        }
        false
    }

    /// Writes a bit for each port of an address that is in the pool and not free; `None`: there is no
    /// such address. One that only static mappings name has none.
    pub(crate) fn taken(&self, index: u32, protocol: u8, into: &mut [u64]) -> Option<u32> {
        let address = *self.addresses.get(index as usize)?;
        into.fill(0);
        if let Some(pool) = self.pools.get(self.pool_of(index)) {
            let free = &self.ports[protocol_index(protocol)].free;
            let free = &free[index as usize * WORDS..][..WORDS];
            let (first, last) = (usize::from(pool.ports.0), usize::from(pool.ports.1));
            for (word, (taken, free)) in into.iter_mut().zip(free).enumerate() {
                let from = first.saturating_sub(word * 64).min(64);
                let to = (last + 1).saturating_sub(word * 64).min(64);
                let below = |bits: usize| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
                *taken = !free & below(to) & !below(from);
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
        let Pool { first, count, ports: (low, high), .. } = self.pools[pool];
        let ports = &self.ports[protocol_index(protocol)];
        let mut usage = PoolUsage::default();
        for index in first..first + count {
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

#[inline]
fn pool_of(pools: &[Pool], index: u32) -> usize {
    // Most often there is one pool only.
    if pools.first().is_some_and(|pool| index < pool.count) {
        return 0;
    }
    pools.partition_point(|pool| pool.first + pool.count <= index)
}

/// All external addresses in the order of their indexes: the pools', then those that only static
/// mappings name.
pub(crate) fn external_addresses(config: &Config) -> Vec<u32> {
    let ranges = config.pools.iter().flat_map(|pool| &pool.addresses);
    let mut addresses: Vec<u32> =
        ranges.flat_map(|range| range.first.to_bits()..=range.last.to_bits()).collect();
    for mapping in &config.statics {
        let address = mapping.external.0.to_bits();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The runs of consecutive addresses, sorted.
fn spans(addresses: &[u32]) -> Vec<Span> {
    let mut sorted: Vec<(u32, u32)> =
        addresses.iter().enumerate().map(|(index, &address)| (address, index as u32)).collect();
    sorted.sort_unstable();
    let mut spans: Vec<Span> = Vec::new();
    for (address, index) in sorted {
        match spans.last_mut() {
            Some(span)
                if span.last.wrapping_add(1) == address
                    && span.index + (address - span.first) == index =>
            {
                span.last = address;
            }
            _ => spans.push(Span { first: address, last: address, index }),
        }
    }
    spans
}
