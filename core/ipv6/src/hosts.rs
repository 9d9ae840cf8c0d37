//! Hosts inside of NAT64 or behind the tunnels of DS-Lite, and the number of each: the address
//! that stands for the host in the engine. A host behind a tunnel is the tunnel's end, which is the
//! subscriber, and an inner IPv4 address.
//!
//! A number is a subscriber's number and, in the lower bits, the host's number within the
//! subscriber. A subscriber is a prefix. A subscriber has at most 256 numbers, so one prefix never
//! fills the table. Numbers lie between 1.0.0.0 and 126.255.255.255, because the engine refuses
//! other addresses as martian. If several translators share the work, the places of subscribers go
//! round among them: so a number tells its translator, and no two hosts have one number.
//!
//! A host keeps its number while the engine has a mapping of it. A host without a mapping loses
//! its number in a sweep, unless it is the host of a static mapping: [`Hosts::sweep`] looks at all
//! of the engine's mappings of the realm, some in each call, and then frees every host that it
//! neither found nor heard of meanwhile. A subscriber that still has blocks of ports keeps its last
//! host. A host that the engine refused at its first packet loses its number at once.

pub(crate) mod carried;
mod ends;
mod foretell;
mod kept;
mod refused;
mod sweep;

use crate::keyed::{Index, hash};
use crate::share::Share;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ends::Ends;
use kept::Kept;
pub(crate) use kept::{first_numbers, no_number};
use natgate_engine::{DropReason, HashKey, MappingInfo, Prefix};
use sweep::Stage;

/// Most bits that tell hosts of one subscriber apart.
pub(crate) const MOST_HOST_BITS: u8 = 8;
/// The first number.
const FIRST: u32 = 1 << 24;
/// One more than the last number.
const END: u32 = 127 << 24;
/// Subscribers that have hosts at a time, unless the configuration says how many; as in the engine.
pub(crate) const SUBSCRIBERS: usize = 1 << 16;
/// Hosts that there is room for, for each subscriber.
const HOSTS_EACH: usize = 16;
/// Mappings, and hosts, that a call of [`Hosts::sweep`] looks at.
const STEP: usize = 256;
const NONE: u32 = u32::MAX;
/// No host has this number.
const FREE: u32 = 0;
/// The inner address of a host without a tunnel. No host has this address.
const NO_INNER: u32 = 0;

/// Nanoseconds of a time's unit: 2 to the power of this.
const UNIT: u32 = 31;

/// A host with a number. Two hosts fill a line of memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Host {
    /// The address; behind a tunnel, the prefix of the tunnel's end that is the subscriber.
    address: u128,
    /// The IPv4 address behind a tunnel; [`NO_INNER`]: there is no tunnel. In a free entry, the
    /// next free entry.
    inner: u32,
    /// The number; [`FREE`]: the entry is free.
    number: u32,
    /// Time of the last packet, [`UNIT`]s, rounded down.
    seen: u32,
    /// The latest sweep that found a mapping of the host.
    found: u32,
}

const _: () = assert!(size_of::<Host>() == 32);

impl Host {
    /// A time after the last packet, nanoseconds; not long after.
    fn silent_from(&self) -> u64 {
        (u64::from(self.seen) + 1) << UNIT
    }
}

/// A time in [`UNIT`]s, rounded down.
fn units(time: u64) -> u32 {
    (time >> UNIT).min(u64::from(u32::MAX)) as u32
}

/// A subscriber with hosts.
#[derive(Clone, Copy, Debug)]
struct Subscriber {
    /// The prefix, without its lower bits.
    prefix: u128,
    /// A bit for each number that is taken.
    taken: [u64; 4],
    /// The next free entry, in a free entry.
    next: u32,
}

impl Subscriber {
    fn is_empty(&self) -> bool {
        self.taken == [0; 4]
    }

    /// The lowest number of a host that is free; numbers have so many bits.
    fn lowest_free(&self, host_bits: u8) -> Option<u32> {
        let word = self.taken.iter().position(|word| *word != u64::MAX)?;
        let within = word as u32 * 64 + self.taken[word].trailing_ones();
        (within >> host_bits == 0).then_some(within)
    }
}

/// Hosts and their numbers.
#[derive(Clone, Debug)]
pub struct Hosts {
    key: HashKey,
    subscriber_length: u8,
    host_bits: u8,
    share: Share,
    most_subscribers: usize,
    most_hosts: usize,
    hosts: Vec<Host>,
    subscribers: Vec<Subscriber>,
    free_host: u32,
    free_subscriber: u32,
    used_hosts: usize,
    used_subscribers: usize,
    by_address: Index,
    by_number: Index,
    by_prefix: Index,
    sweep: u32,
    stage: Stage,
    /// Time of the start of the sweep, nanoseconds.
    swept: u64,
    /// Times that a host was refused for want of room since the last sweep.
    refusals: u32,
    /// True if the host of the last number is new.
    is_new: bool,
    /// New hosts whose packets the engine has refused.
    turned_away: Vec<u32>,
    mappings: Vec<MappingInfo>,
    kept: Kept,
    /// Ends of tunnels; `None`: the end is the subscriber, or there are no tunnels.
    ends: Option<Ends>,
}

/// The place among all subscribers of one that is at a place of its translator's own.
fn place_in_all(share: Share, at: u32) -> u32 {
    at.wrapping_mul(share.of.into()).wrapping_add(share.place.into())
}

/// The place among all subscribers of the one that a number is of.
pub(crate) fn place_of(number: u32, host_bits: u8) -> u32 {
    number.wrapping_sub(FIRST) >> host_bits
}

/// The prefix of an address that is its subscriber.
pub(crate) fn prefix_of(address: u128, subscriber_length: u8) -> u128 {
    match subscriber_length {
        0 => 0,
        length => address & (u128::MAX << (128 - u32::from(length))),
    }
}

/// Most subscribers and most hosts of a translator.
fn room(host_bits: u8, most_subscribers: usize, share: Share) -> (usize, usize) {
    let numbers = ((END - FIRST) >> host_bits) as usize / usize::from(share.of.max(1));
    let subscribers = most_subscribers.clamp(1, numbers);
    // Few subscribers may have all of their hosts.
    let hosts = (subscribers * HOSTS_EACH.min(1 << host_bits)).max(1 << host_bits);
    (subscribers, hosts)
}

impl Hosts {
    /// Makes an empty table of a translator. Subscribers are prefixes of `subscriber_length` bits,
    /// 1 to 128; at most `most_subscribers` have hosts at a time. The seed keys the hash.
    pub fn new(
        subscriber_length: u8,
        most_subscribers: usize,
        share: Share,
        seed: [u8; 32],
    ) -> Self {
        let host_bits = Self::host_bits(subscriber_length);
        Self::with_bits((subscriber_length, host_bits), most_subscribers, share, seed)
    }

    /// Makes an empty table of hosts behind tunnels. A subscriber is a prefix of so many bits, has
    /// one tunnel at a time, and at most 256 hosts. `interval` is the least time between two
    /// changes of its address, nanoseconds.
    pub(crate) fn of_tunnels(
        (subscriber_length, interval): (u8, u64),
        most_tunnels: usize,
        share: Share,
        seed: [u8; 32],
    ) -> Self {
        let table = Self::with_bits((subscriber_length, MOST_HOST_BITS), most_tunnels, share, seed);
        let ends = (subscriber_length < 128).then(|| Ends::new(interval));
        Self { ends, ..table }
    }

    fn with_bits(
        (subscriber_length, host_bits): (u8, u8),
        most_subscribers: usize,
        share: Share,
        seed: [u8; 32],
    ) -> Self {
        let (most_subscribers, most_hosts) = room(host_bits, most_subscribers, share);
        Self {
            key: HashKey::from_seed(seed, 0x686f_7374),
            subscriber_length,
            host_bits,
            share,
            most_subscribers,
            most_hosts,
            hosts: Vec::with_capacity(most_hosts),
            subscribers: Vec::with_capacity(most_subscribers),
            free_host: NONE,
            free_subscriber: NONE,
            used_hosts: 0,
            used_subscribers: 0,
            by_address: Index::new(most_hosts),
            by_number: Index::new(most_hosts),
            by_prefix: Index::new(most_subscribers),
            sweep: 1,
            stage: Stage::Idle(0),
            swept: 0,
            refusals: 0,
            is_new: false,
            turned_away: Vec::new(),
            mappings: Vec::with_capacity(STEP),
            kept: Kept::default(),
            ends: None,
        }
    }

    /// Bytes of the table of a translator, with numbers of hosts of so many bits.
    pub(crate) fn memory(host_bits: u8, most_subscribers: usize, share: Share) -> u64 {
        let (subscribers, hosts) = room(host_bits, most_subscribers, share);
        let entries = subscribers * size_of::<Subscriber>() + hosts * size_of::<Host>();
        entries as u64 + 2 * Index::memory(hosts) + Index::memory(subscribers)
    }

    /// Number of bits that tell the hosts of a subscriber apart
    /// ([`RealmConfig::host_bits`](natgate_engine::RealmConfig::host_bits)).
    pub fn host_bits(subscriber_length: u8) -> u8 {
        (128 - subscriber_length.min(128)).min(MOST_HOST_BITS)
    }

    /// Number of hosts, and number of subscribers.
    pub fn counts(&self) -> (usize, usize) {
        (self.used_hosts, self.used_subscribers)
    }

    /// Most subscribers that may have hosts.
    pub(crate) fn most_subscribers(&self) -> usize {
        self.most_subscribers
    }

    /// Length of the prefix that is a subscriber, bits.
    pub(crate) fn subscriber_length(&self) -> u8 {
        self.subscriber_length
    }

    /// The prefix of an address that is its subscriber.
    pub fn prefix_of(&self, address: u128) -> u128 {
        prefix_of(address, self.subscriber_length)
    }

    /// The host within its subscriber that has a number.
    fn within(&self, number: u32) -> usize {
        (number.wrapping_sub(FIRST) & ((1 << self.host_bits) - 1)) as usize
    }

    /// The place of the subscriber with a number; `None`: the number is another translator's.
    fn subscriber_of(&self, number: u32) -> Option<usize> {
        let (place, of) = (u32::from(self.share.place), u32::from(self.share.of));
        let all = place_of(number, self.host_bits);
        (all % of == place).then_some((all / of) as usize)
    }

    /// The number of a host within the subscriber at a place.
    fn number_of(&self, subscriber: u32, within: u32) -> u32 {
        FIRST + (place_in_all(self.share, subscriber) << self.host_bits) + within
    }

    fn find_host(&self, address: u128, inner: u32) -> Option<u32> {
        let address = self.key_of(address, inner);
        self.find_hashed((address, inner), hash_of(self.key, address, inner))
    }

    /// Finds a host by its address, the inner address, and their hash.
    #[inline]
    fn find_hashed(&self, (address, inner): (u128, u32), hash: u64) -> Option<u32> {
        let is_it = |at: u32| {
            let host = &self.hosts[at as usize];
            host.address == address && host.inner == inner
        };
        self.by_address.find(hash, is_it)
    }

    #[inline]
    fn find_number(&self, number: u32) -> Option<u32> {
        let is_it = |at: u32| self.hosts[at as usize].number == number;
        self.by_number.find(self.hash_of_number(number), is_it)
    }

    #[inline]
    fn hash_of_number(&self, number: u32) -> u64 {
        self.key.hash(number.into(), 0)
    }

    /// The hash of a host without a tunnel. The host's place in the index is fetched.
    #[inline]
    pub(crate) fn approach(&self, address: u128) -> u64 {
        let hash = hash_of(self.key, address, NO_INNER);
        self.by_address.prefetch(hash);
        hash
    }

    /// As [`Hosts::approach`], for a host behind a tunnel.
    #[inline]
    pub(crate) fn approach_behind(&self, tunnel: u128, inner: u32) -> u64 {
        let hash = hash_of(self.key, self.key_of(tunnel, inner), inner);
        self.by_address.prefetch(hash);
        hash
    }

    /// Fetches the host with a hash that [`Hosts::approach`] returned a while ago.
    #[inline]
    pub(crate) fn fetch(&self, hash: u64) {
        self.by_address.prefetch_place(hash, &self.hosts);
    }

    /// The hash of a number, whose place in the index is fetched.
    #[inline]
    pub(crate) fn approach_number(&self, number: u32) -> u64 {
        let hash = self.hash_of_number(number);
        self.by_number.prefetch(hash);
        hash
    }

    /// Fetches the host with a hash that [`Hosts::approach_number`] returned a while ago.
    #[inline]
    pub(crate) fn fetch_number(&self, hash: u64) {
        self.by_number.prefetch_place(hash, &self.hosts);
    }

    /// The address of the host with a number whose hash is known.
    #[inline]
    pub(crate) fn address_hashed(&self, number: u32, hash: u64) -> Option<u128> {
        let is_it = |at: u32| self.hosts[at as usize].number == number;
        let at = self.by_number.find(hash, is_it)?;
        Some(self.hosts[at as usize].address)
    }

    fn find_subscriber(&self, prefix: u128) -> Option<u32> {
        let is_it = |at: u32| self.subscribers[at as usize].prefix == prefix;
        self.by_prefix.find(hash(self.key, prefix), is_it)
    }

    /// The number of a host that has one.
    pub fn number(&self, address: u128) -> Option<Ipv4Addr> {
        self.number_behind(address, NO_INNER)
    }

    /// The number of a host behind a tunnel that has one.
    pub(crate) fn number_behind(&self, tunnel: u128, inner: u32) -> Option<Ipv4Addr> {
        let at = self.find_host(tunnel, inner)?;
        Some(Ipv4Addr::from_bits(self.hosts[at as usize].number))
    }

    /// The host with a number.
    pub fn address(&self, number: Ipv4Addr) -> Option<u128> {
        let at = self.find_number(number.to_bits())?;
        Some(self.hosts[at as usize].address)
    }

    /// Tunnel and inner address of the host with a number.
    pub(crate) fn behind(&self, number: u32) -> Option<(u128, u32)> {
        let host = &self.hosts[self.find_number(number)? as usize];
        Some((self.end_of(number, host.address), host.inner))
    }

    /// The prefix and its length of the subscriber with a number of any of its possible hosts. A
    /// subscriber without hosts is known until another one takes its place.
    pub fn subscriber(&self, number: Ipv4Addr) -> Option<(u128, u8)> {
        let subscriber = self.subscribers.get(self.subscriber_of(number.to_bits())?)?;
        Some((subscriber.prefix, self.subscriber_length))
    }

    /// Numbers of the hosts in a prefix that is one address or a subscriber, if there are any.
    pub fn numbers(&self, prefix: u128, len: u8) -> Option<Prefix> {
        let is_tunnel = len == 128 && self.ends.is_some();
        let (prefix, len) = match is_tunnel {
            true => (self.prefix_of(prefix), self.subscriber_length),
            false => (prefix, len),
        };
        if len == 128 && self.subscriber_length != 128 {
            return self.number(prefix).map(|number| Prefix::new(number, 32));
        }
        let subscriber = self.find_subscriber(prefix).filter(|_| len == self.subscriber_length)?;
        let first = self.number_of(subscriber, 0);
        Some(Prefix::new(Ipv4Addr::from_bits(first), 32 - self.host_bits))
    }

    /// The number of a host that sends a packet now. A host without a number gets one.
    ///
    /// # Errors
    /// [`DropReason::PortQuota`] when its subscriber has as many hosts as possible,
    /// [`DropReason::MappingTableFull`] when the table is full.
    pub fn intern(&mut self, address: u128, now: u64) -> Result<Ipv4Addr, DropReason> {
        self.intern_behind(address, NO_INNER, now)
    }

    /// As [`Hosts::intern`], for a host behind a tunnel.
    pub(crate) fn intern_behind(
        &mut self,
        address: u128,
        inner: u32,
        now: u64,
    ) -> Result<Ipv4Addr, DropReason> {
        let address = self.key_of(address, inner);
        let hash = hash_of(self.key, address, inner);
        self.intern_hashed((address, inner), hash, now).map(Ipv4Addr::from_bits)
    }

    /// As [`Hosts::intern`], for a host without a tunnel whose hash is known.
    #[inline(always)]
    pub(crate) fn intern_approached(
        &mut self,
        address: u128,
        hash: u64,
        now: u64,
    ) -> Result<u32, DropReason> {
        self.intern_hashed((address, NO_INNER), hash, now)
    }

    /// The number of a host behind a tunnel that has one, by its hash. The host has sent at a time,
    /// nanoseconds.
    #[inline(always)]
    pub(crate) fn known_behind(
        &mut self,
        tunnel: u128,
        inner: u32,
        hash: u64,
        now: u64,
    ) -> Option<u32> {
        let at = self.find_hashed((self.key_of(tunnel, inner), inner), hash)?;
        self.is_new = false;
        let host = &mut self.hosts[at as usize];
        host.seen = host.seen.max(units(now));
        Some(host.number)
    }

    #[inline(always)]
    fn intern_hashed(
        &mut self,
        (address, inner): (u128, u32),
        hash: u64,
        now: u64,
    ) -> Result<u32, DropReason> {
        let found = self.find_hashed((address, inner), hash);
        self.is_new = found.is_none();
        let at = match found {
            Some(at) => at,
            None => self.add(address, inner)?,
        };
        let host = &mut self.hosts[at as usize];
        host.seen = host.seen.max(units(now));
        Ok(host.number)
    }

    /// The number of a host whose mapping another gateway has, and whether the host is new.
    ///
    /// # Errors
    /// As for [`Hosts::intern`].
    pub(crate) fn intern_copied(
        &mut self,
        (address, inner): (u128, u32),
        now: u64,
    ) -> Result<(Ipv4Addr, bool), DropReason> {
        // A host that was refused before must not keep a number that is about to be freed.
        self.forget_refused();
        let number = self.intern_behind(address, inner, now);
        // No packet has come that the engine may refuse.
        let is_new = core::mem::take(&mut self.is_new);
        Ok((number?, is_new))
    }

    #[inline(never)]
    fn add(&mut self, address: u128, inner: u32) -> Result<u32, DropReason> {
        if self.used_hosts >= self.most_hosts {
            self.refusals = self.refusals.saturating_add(1);
            return Err(DropReason::MappingTableFull);
        }
        let prefix = self.prefix_of(address);
        let subscriber = match self.find_subscriber(prefix) {
            Some(subscriber) => subscriber,
            None => self.add_subscriber(prefix)?,
        };
        let Some(within) = self.take_number(subscriber) else {
            self.refusals = self.refusals.saturating_add(1);
            return Err(DropReason::PortQuota);
        };
        let number = self.number_of(subscriber, within);
        Ok(self.insert(Host { address, inner, number, seen: 0, found: 0 }))
    }

    /// Puts a host, whose number is taken, into the table. Returns its place.
    fn insert(&mut self, host: Host) -> u32 {
        let at = if self.free_host == NONE {
            self.hosts.push(host);
            self.hosts.len() as u32 - 1
        } else {
            let at = self.free_host;
            self.free_host = core::mem::replace(&mut self.hosts[at as usize], host).inner;
            at
        };
        self.used_hosts += 1;
        self.by_address.insert(hash_of(self.key, host.address, host.inner), at);
        self.by_number.insert(self.hash_of_number(host.number), at);
        at
    }

    fn add_subscriber(&mut self, prefix: u128) -> Result<u32, DropReason> {
        if self.used_subscribers >= self.most_subscribers {
            self.refusals = self.refusals.saturating_add(1);
            return Err(DropReason::MappingTableFull);
        }
        let new = Subscriber { prefix, taken: [0; 4], next: NONE };
        let at = if self.free_subscriber == NONE {
            self.subscribers.push(new);
            self.subscribers.len() as u32 - 1
        } else {
            let at = self.free_subscriber;
            let freed = core::mem::replace(&mut self.subscribers[at as usize], new);
            self.free_subscriber = freed.next;
            at
        };
        self.note_subscriber(prefix, at);
        Ok(at)
    }

    /// Counts a new subscriber, and has it found at its place.
    fn note_subscriber(&mut self, prefix: u128, at: u32) {
        self.used_subscribers += 1;
        self.forget_end(at);
        self.by_prefix.insert(hash(self.key, prefix), at);
    }

    /// Takes the lowest free number of a subscriber.
    fn take_number(&mut self, subscriber: u32) -> Option<u32> {
        let subscriber = &mut self.subscribers[subscriber as usize];
        let within = subscriber.lowest_free(self.host_bits)?;
        subscriber.taken[within as usize / 64] |= 1 << (within % 64);
        Some(within)
    }

    fn free(&mut self, at: u32) {
        let host = self.hosts[at as usize];
        let (key, hosts) = (self.key, &self.hosts);
        let by_address = |host: &Host| hash_of(key, host.address, host.inner);
        self.by_address.remove(by_address(&host), at, |other| by_address(&hosts[other as usize]));
        let by_number = |host: &Host| key.hash(host.number.into(), 0);
        self.by_number.remove(by_number(&host), at, |other| by_number(&hosts[other as usize]));
        let within = self.within(host.number);
        if let Some(place) = self.subscriber_of(host.number) {
            let subscriber = &mut self.subscribers[place];
            subscriber.taken[within / 64] &= !(1 << (within % 64));
            if subscriber.is_empty() {
                self.free_subscriber(place as u32);
            }
        }
        self.hosts[at as usize] = Host { number: FREE, inner: self.free_host, ..host };
        self.free_host = at;
        self.used_hosts -= 1;
    }

    fn free_subscriber(&mut self, at: u32) {
        let prefix = self.subscribers[at as usize].prefix;
        let (key, subscribers) = (self.key, &self.subscribers);
        self.by_prefix
            .remove(hash(key, prefix), at, |other| hash(key, subscribers[other as usize].prefix));
        self.subscribers[at as usize].next = self.free_subscriber;
        self.free_subscriber = at;
        self.used_subscribers -= 1;
    }
}

/// The hash of a host. Tunnel and inner address count apart, so that no two hosts cancel out.
fn hash_of(key: HashKey, address: u128, inner: u32) -> u64 {
    let outer = hash(key, address);
    match inner {
        NO_INNER => outer,
        inner => key.hash(outer, inner.into()),
    }
}
