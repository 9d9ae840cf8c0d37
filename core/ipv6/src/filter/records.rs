//! The records of the filter: a table of fixed size, in which no sender of many ports and no forged
//! addresses keep others out.

use crate::keyed::Index;
use alloc::{vec, vec::Vec};
use natgate_engine::HashKey;
use natgate_wire::ipv6::next;
use natgate_wire::protocol;

pub(super) const SECOND: u64 = 1_000_000_000;
/// Life of a record without packets, nanoseconds: in general; of an established connection; of
/// another connection, and of another one of DCCP.
//= rfc6092#REC-12
//= rfc6092#REC-14
pub(super) const IDLE: u64 = 300 * SECOND;
//= rfc6092#REC-35
//= rfc6092#REC-40
//= rfc6092#REC-44
const ESTABLISHED: u64 = 7440 * SECOND;
const TRANSITORY: u64 = 240 * SECOND;
const TRANSITORY_DCCP: u64 = 480 * SECOND;
/// Records of which a new one may take the place of one when the table is full.
const LOOKED_AT: usize = 64;
/// Records of which a new one takes the place of one whose time is over, while the table could
/// grow. So about a quarter of its records at most are such.
const GLANCED_AT: usize = 4;
/// Records up to which a table grows without a look at others.
const FEW: usize = 1 << 16;
/// Counters of records by /64, and by address: networks that share one by chance share its count.
const COUNTERS: usize = 1 << 16;

/// An endpoint inside, of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) address: u128,
    pub(super) port: u16,
    pub(super) protocol: u8,
}

impl Key {
    /// A host that has sent something: later fragments to it may come in.
    pub(super) fn of_host(address: u128) -> Self {
        Self { address, port: 0, protocol: next::FRAGMENT }
    }
}

/// A record of an endpoint, or of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) key: Key,
    pub(super) expires: u64,
    /// True if the endpoint has a connection that both ends know.
    pub(super) is_established: bool,
    /// True if a remote host has sent a packet to the endpoint.
    pub(super) is_answered: bool,
    /// Counters of the /64 and of the address.
    counters: [u16; 2],
}

/// Records of each /64, and of each address.
#[derive(Clone, Debug)]
struct Counts([Vec<u32>; 2]);

impl Counts {
    fn of(&self, counters: [u16; 2]) -> [u32; 2] {
        let [network, address] = &self.0;
        [network[usize::from(counters[0])], address[usize::from(counters[1])]]
    }

    fn add(&mut self, counters: [u16; 2]) {
        for (counts, counter) in self.0.iter_mut().zip(counters) {
            counts[usize::from(counter)] += 1;
        }
    }

    fn subtract(&mut self, counters: [u16; 2]) {
        for (counts, counter) in self.0.iter_mut().zip(counters) {
            counts[usize::from(counter)] -= 1;
        }
    }
}

/// Records of endpoints, or of hosts.
#[derive(Clone, Debug)]
pub(super) struct Records {
    key: HashKey,
    most: usize,
    records: Vec<Record>,
    index: Index,
    counts: Counts,
    /// The first of the records that the next new one looks at.
    next: usize,
}

impl Records {
    /// Makes an empty table with room for `most` records.
    pub(super) fn new(most: usize, seed: [u8; 32]) -> Self {
        Self {
            key: HashKey::from_seed(seed, 0x6669_6c74),
            most,
            records: Vec::with_capacity(most),
            index: Index::new(most),
            counts: Counts([vec![0; COUNTERS], vec![0; COUNTERS]]),
            next: 0,
        }
    }

    /// Bytes of a table with room for `most` records.
    pub(super) fn memory(most: usize) -> u64 {
        (most * size_of::<Record>() + 2 * COUNTERS * size_of::<u32>()) as u64 + Index::memory(most)
    }

    fn hash(&self, key: &Key) -> u64 {
        hash(self.key, key)
    }

    fn find(&self, key: &Key) -> Option<u32> {
        self.index.find(self.hash(key), |at| self.records[at as usize].key == *key)
    }

    /// Place of the record of a key whose time is not over.
    pub(super) fn find_valid(&self, key: &Key, now: u64) -> Option<u32> {
        self.find(key).filter(|at| self.records[*at as usize].expires > now)
    }

    /// The record at a place.
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Record {
        &mut self.records[at as usize]
    }

    /// The record of a key, which is made if there is none; `None`: there is no room.
    pub(super) fn make(&mut self, key: Key, now: u64) -> Option<&mut Record> {
        let at = self.find(&key).or_else(|| self.add(key, now))?;
        Some(self.get_mut(at))
    }

    /// True if there is a record of a key, or room for one; changes nothing.
    pub(super) fn has_room(&self, key: &Key, now: u64) -> bool {
        let is_known = self.records.len() < self.most || self.find(key).is_some();
        is_known || self.replaceable(self.counters(key.address), now).is_some()
    }

    fn add(&mut self, key: Key, now: u64) -> Option<u32> {
        let counters = self.counters(key.address);
        let record =
            Record { key, expires: 0, is_established: false, is_answered: false, counters };
        let has_room = self.records.len() < self.most;
        let at = if has_room { self.expired(now) } else { self.replaceable(counters, now) };
        let looked_at = if has_room { GLANCED_AT } else { LOOKED_AT };
        self.next = (self.next + looked_at) % self.records.len().max(1);
        let at = if has_room && at.is_none() {
            self.records.push(record);
            self.records.len() - 1
        } else {
            let at = at?;
            let old = self.records[at];
            let (secret, records) = (self.key, &self.records);
            let hash_of = |other: u32| hash(secret, &records[other as usize].key);
            self.index.remove(hash_of(at as u32), at as u32, hash_of);
            self.counts.subtract(old.counters);
            self.records[at] = record;
            at
        };
        self.counts.add(counters);
        self.index.insert(self.hash(&key), at as u32);
        Some(at as u32)
    }

    /// The counters of the /64 and of the address.
    fn counters(&self, address: u128) -> [u16; 2] {
        [address >> 64, address].map(|part| crate::keyed::hash(self.key, part) as u16)
    }

    /// Places of so many records that the next new one looks at.
    fn places(&self, looked_at: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (count, first) = (self.records.len(), self.next);
        (0..looked_at.min(count)).map(move |step| (first + step) % count)
    }

    /// A record whose time is over, if the table should not grow.
    fn expired(&self, now: u64) -> Option<usize> {
        let looked_at = if self.records.len() < FEW { 0 } else { GLANCED_AT };
        self.places(looked_at).find(|at| self.records[*at].expires <= now)
    }

    /// The record of a full table whose place a new one takes.
    fn replaceable(&self, new: [u16; 2], now: u64) -> Option<usize> {
        let (places, records) = (self.places(LOOKED_AT), &self.records);
        if let Some(at) = places.clone().find(|at| records[*at].expires <= now) {
            return Some(at);
        }
        let unanswered = places.clone().filter(|at| !records[*at].is_answered);
        if let Some(at) = unanswered.min_by_key(|at| last_packet(&records[*at])) {
            return Some(at);
        }
        let at = places.max_by_key(|at| self.counts.of(records[*at].counters))?;
        let [most, most_of_address] = self.counts.of(records[at].counters);
        let [own, own_of_address] = self.counts.of(new);
        let is_larger = most > own + 1;
        let is_same = records[at].counters[0] == new[0];
        (is_larger || is_same && most_of_address > own_of_address + 1).then_some(at)
    }
}

fn hash(secret: HashKey, key: &Key) -> u64 {
    let rest = u64::from(key.port) << 8 | u64::from(key.protocol);
    crate::keyed::hash(secret, key.address ^ u128::from(secret.hash(rest, 0)))
}

/// Life of a record without packets, nanoseconds.
pub(super) fn idle(record: &Record) -> u64 {
    match (record.key.protocol, record.is_established) {
        (protocol::TCP | protocol::SCTP | protocol::DCCP, true) => ESTABLISHED,
        (protocol::TCP | protocol::SCTP, false) => TRANSITORY,
        (protocol::DCCP, false) => TRANSITORY_DCCP,
        _ => IDLE,
    }
}

/// Time of the last packet of a record.
fn last_packet(record: &Record) -> u64 {
    record.expires - idle(record)
}
