//! The memory of the prefixes by which hosts reach remote addresses.

use alloc::vec;
use alloc::vec::Vec;
use natgate_engine::HashKey;

/// Sets of the memory of prefixes, and entries of a set.
const SETS: usize = 1 << 14;
const WAYS: usize = 4;

/// The prefixes by which hosts reach remote addresses: a cache of fixed size. An entry that is not
/// there means the first prefix.
#[derive(Clone, Debug)]
pub(super) struct Prefixes {
    key: HashKey,
    /// Hash of the host, remote address, number of the prefix plus one; 0: a free entry.
    sets: Vec<[(u32, u32, u8); WAYS]>,
}

impl Prefixes {
    pub(super) fn new(several: bool, seed: [u8; 32]) -> Self {
        let sets = if several { SETS } else { 0 };
        Self { key: HashKey::from_seed(seed, 0x7072_6566), sets: vec![[(0, 0, 0); WAYS]; sets] }
    }

    /// True if there is one prefix only.
    pub(super) fn is_off(&self) -> bool {
        self.sets.is_empty()
    }

    /// The place of a set, and the hash of the host in it.
    fn place(&self, host: u128, remote: u32) -> (usize, u32) {
        let host = self.key.hash(host as u64, (host >> 64) as u64);
        (self.key.hash(host, remote.into()) as usize % SETS, host as u32)
    }

    pub(super) fn find(&self, host: u128, remote: u32) -> usize {
        if self.is_off() {
            return 0;
        }
        let (place, host) = self.place(host, remote);
        let set = &self.sets[place];
        let found = set.iter().find(|entry| (entry.0, entry.1) == (host, remote) && entry.2 > 0);
        found.map_or(0, |entry| usize::from(entry.2) - 1)
    }

    /// Notes a prefix. The entry that was noted last is first in its set; the last one gives way.
    pub(super) fn note(&mut self, host: u128, remote: u32, prefix: usize) {
        if self.is_off() {
            return;
        }
        let (at, host) = self.place(host, remote);
        let set = &mut self.sets[at];
        let found = set.iter().position(|entry| (entry.0, entry.1) == (host, remote));
        let place = match (found, prefix) {
            (None, 0) => return,
            (Some(place), _) => place,
            (None, _) => WAYS - 1,
        };
        set[..=place].rotate_right(1);
        set[0] = (host, remote, prefix as u8 + 1);
    }
}
