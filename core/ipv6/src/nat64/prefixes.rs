//! The prefixes by which hosts reach remote addresses, if there are several.
//!
//! A record has a host, a remote address, and the place of a prefix other than the first one. A
//! record stays as long as a session of the host with the address: no record gives way to another.
//! When there are twice as many records as the last sweep has left, or more than sessions are
//! possible, a sweep over the engine's sessions finds the records without one. A packet whose
//! record would find no room must be refused.

use crate::Prefix6;
use crate::keyed::Index;
use crate::settings::Nat64Settings;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{Config, Cursor, Engine, Filter, HashKey};

/// Slots of mappings, sessions and records that one call of a sweep looks at.
const STEP: usize = 256;
/// Records up to which there is no sweep.
const FEW: usize = 1 << 12;
/// No record.
const NONE: u32 = u32::MAX;
/// Records that packets may make between the question for room and their note: those of a batch.
const RESERVE: usize = Engine::MAX_BATCH;

/// The prefix by which a host of NAT64 reaches a remote address, as one process hands it over to
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedPath {
    /// The host.
    pub host: Ipv6Addr,
    /// The remote address.
    pub remote: Ipv4Addr,
    /// The prefix.
    pub prefix: Prefix6,
}

/// A prefix by which a host reaches a remote address.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Lower and upper half of the host's address.
    host: [u64; 2],
    /// The remote address; in a free record, the next free one.
    remote: u32,
    /// Place of the prefix; 0: the record is free.
    prefix: u8,
    /// Equal to the table's value if the present sweep has found a session.
    found: bool,
}

const _: () = assert!(size_of::<Record>() == 24);

/// The stage of a sweep.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Idle,
    /// The sweep looks at the engine's sessions.
    Sessions(Cursor),
    /// The sweep looks at the records from this one on.
    Records(usize),
}

/// The prefixes by which hosts reach remote addresses. Without a record it is the first one.
#[derive(Clone, Debug)]
pub(super) struct Prefixes {
    key: HashKey,
    is_off: bool,
    /// Most sessions that there may be.
    sessions: usize,
    /// A sweep begins when there are more records.
    due: usize,
    /// Most records.
    most: usize,
    records: Vec<Record>,
    free: u32,
    used: usize,
    index: Index,
    stage: Stage,
    /// Alternates with each sweep.
    found: bool,
}

/// Most records beside an engine that has at most so many sessions.
fn room(sessions: usize) -> usize {
    sessions + sessions / 4 + 2 * RESERVE
}

/// Both halves of an address.
fn halves(host: u128) -> [u64; 2] {
    [host as u64, (host >> 64) as u64]
}

impl Nat64Settings {
    /// Bytes of the table of prefixes by which hosts reach remote addresses.
    pub(crate) fn prefixes_memory(&self, config: &Config) -> u64 {
        let several = self.prefixes.len() > 1;
        if several { Prefixes::memory(config.session_room() as usize) } else { 0 }
    }
}

impl Prefixes {
    /// A table beside an engine that has at most so many sessions; `None`: there is one prefix.
    pub(super) fn new(sessions: Option<usize>, seed: [u8; 32]) -> Self {
        let most = sessions.map_or(0, room);
        Self {
            key: HashKey::from_seed(seed, 0x7072_6566),
            is_off: sessions.is_none(),
            sessions: sessions.unwrap_or(0),
            due: FEW.min(sessions.unwrap_or(0)),
            most,
            records: Vec::with_capacity(most),
            free: NONE,
            used: 0,
            index: Index::new(most),
            stage: Stage::Idle,
            found: false,
        }
    }

    /// Bytes of a table beside an engine that has at most so many sessions.
    pub(super) fn memory(sessions: usize) -> u64 {
        let most = room(sessions);
        (most * size_of::<Record>()) as u64 + Index::memory(most)
    }

    /// True if there is one prefix only.
    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    fn hash(&self, host: [u64; 2], remote: u32) -> u64 {
        self.key.hash(self.key.hash(host[0], host[1]), remote.into())
    }

    /// Place of the record of a host and a remote address.
    #[inline]
    fn place(&self, host: u128, remote: u32) -> Option<u32> {
        let host = halves(host);
        self.index.find(self.hash(host, remote), |at| {
            let record = &self.records[at as usize];
            (record.host, record.remote) == (host, remote)
        })
    }

    /// Place of the prefix by which a host reaches a remote address.
    #[inline]
    pub(super) fn find(&self, host: u128, remote: u32) -> usize {
        if self.used == 0 {
            return 0;
        }
        self.place(host, remote).map_or(0, |at| self.records[at as usize].prefix.into())
    }

    /// True if the prefix by which a host is about to reach a remote address can be noted.
    #[inline]
    pub(super) fn may_note(&self, host: u128, remote: u32, prefix: usize) -> bool {
        prefix == 0 || self.used + RESERVE < self.most || self.place(host, remote).is_some()
    }

    /// Notes the prefix by which a host reaches a remote address. Without room nothing is noted:
    /// [`Prefixes::may_note`] must be asked first.
    pub(super) fn note(&mut self, host: u128, remote: u32, prefix: usize) {
        if self.is_off || prefix == 0 && self.used == 0 {
            return;
        }
        match (self.place(host, remote), prefix) {
            (Some(at), 0) => self.remove(at),
            (Some(at), _) => {
                let record = &mut self.records[at as usize];
                (record.prefix, record.found) = (prefix as u8, self.found);
            }
            (None, 0) => {}
            (None, _) => self.add(halves(host), remote, prefix as u8),
        }
    }

    /// Hosts, remote addresses, and the places of the prefixes between them.
    pub(super) fn all(&self) -> impl Iterator<Item = (u128, u32, usize)> {
        let used = self.records.iter().filter(|record| record.prefix != 0);
        used.map(|record| {
            let [low, high] = record.host.map(u128::from);
            (high << 64 | low, record.remote, record.prefix.into())
        })
    }

    fn add(&mut self, host: [u64; 2], remote: u32, prefix: u8) {
        let record = Record { host, remote, prefix, found: self.found };
        let at = match self.free {
            NONE if self.records.len() == self.most => return,
            NONE => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
            at => {
                self.free = self.records[at as usize].remote;
                self.records[at as usize] = record;
                at
            }
        };
        self.used += 1;
        self.index.insert(self.hash(host, remote), at);
    }

    fn remove(&mut self, at: u32) {
        let (key, records) = (self.key, &self.records);
        let hash_of = |at: u32| {
            let Record { host, remote, .. } = records[at as usize];
            key.hash(key.hash(host[0], host[1]), remote.into())
        };
        self.index.remove(hash_of(at), at, hash_of);
        let record = &mut self.records[at as usize];
        (record.prefix, record.remote) = (0, self.free);
        self.free = at;
        self.used -= 1;
    }

    /// Looks at some sessions of the engine's realm, or at some records; frees records without a
    /// session. `host_of` says which host has a number. Call it with every batch of packets.
    pub(super) fn sweep(
        &mut self,
        engine: &Engine,
        realm: u16,
        host_of: impl Fn(Ipv4Addr) -> Option<u128>,
    ) {
        match self.stage {
            Stage::Idle if self.used <= self.due => {}
            Stage::Idle => {
                self.found = !self.found;
                self.stage = Stage::Sessions(Cursor::default());
            }
            Stage::Sessions(mut cursor) => {
                let filter = Filter { realm: Some(realm), ..Filter::default() };
                let is_done = engine.scan_remotes(&mut cursor, STEP, &filter, |number, remote| {
                    let found = host_of(number).and_then(|host| self.place(host, remote.to_bits()));
                    if let Some(at) = found {
                        self.records[at as usize].found = self.found;
                    }
                });
                self.stage = if is_done { Stage::Records(0) } else { Stage::Sessions(cursor) };
            }
            Stage::Records(from) => {
                let to = (from + STEP).min(self.records.len());
                for at in from..to {
                    let record = &self.records[at];
                    if record.prefix != 0 && record.found != self.found {
                        self.remove(at as u32);
                    }
                }
                let is_done = to == self.records.len();
                self.stage = if is_done { Stage::Idle } else { Stage::Records(to) };
                if is_done {
                    self.due = (2 * self.used + FEW).min(self.sessions);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_displaces_another_and_a_full_table_says_so() {
        let mut prefixes = Prefixes::new(Some(1000), [3; 32]);
        let mut noted = 0;
        while prefixes.may_note(noted, 7, 1) {
            prefixes.note(noted, 7, 1 + noted as usize % 3);
            noted += 1;
        }
        assert_eq!(noted as usize, 1250 + RESERVE);
        for host in 0..noted {
            assert_eq!(prefixes.find(host, 7), 1 + host as usize % 3, "{host}");
            assert_eq!(prefixes.find(host, 8), 0, "{host}");
        }
        // A known host may change its prefix, and the first prefix needs no record.
        assert!(prefixes.may_note(5, 7, 2) && prefixes.may_note(noted, 7, 0));
        prefixes.note(5, 7, 0);
        assert_eq!((prefixes.find(5, 7), prefixes.may_note(noted, 7, 1)), (0, true));
    }

    #[test]
    fn one_prefix_needs_no_table() {
        let mut prefixes = Prefixes::new(None, [3; 32]);
        prefixes.note(5, 7, 1);
        assert!(prefixes.is_off() && prefixes.find(5, 7) == 0 && prefixes.may_note(5, 7, 0));
    }
}
