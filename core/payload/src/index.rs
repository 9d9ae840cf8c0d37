//! The index of flows: from protocol and endpoints to the number of a flow.
//!
//! A table of numbers with linear probing, at most half full, and a keyed hash: remote hosts choose
//! parts of the key and must not be able to make all of them collide.

use core::net::SocketAddrV4;
use natgate_engine::HashKey;

use alloc::vec;
use alloc::vec::Vec;

/// Key of a flow: the protocol, and both endpoints as seen outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64, u64);

impl Key {
    pub(crate) fn new(protocol: u8, external: SocketAddrV4, remote: SocketAddrV4) -> Self {
        let word = |end: SocketAddrV4| u64::from(end.ip().to_bits()) << 16 | u64::from(end.port());
        Self(word(external) | u64::from(protocol) << 48, word(remote))
    }
}

const FREE: u32 = u32::MAX;

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    key: HashKey,
    slots: Vec<(Key, u32)>,
}

impl Index {
    /// An index of at most `count` flows.
    pub(crate) fn new(count: u32, seed: [u8; 32]) -> Self {
        Self { key: hash_key(seed), slots: vec![(Key(0, 0), FREE); Self::len(count)] }
    }

    /// Number of places in an index of `count` flows.
    fn len(count: u32) -> usize {
        (count as usize * 2).next_power_of_two()
    }

    /// Bytes of memory of an index of `count` flows.
    pub(crate) fn memory(count: u32) -> u64 {
        (Self::len(count) * size_of::<(Key, u32)>()) as u64
    }

    /// Replaces the secret of an index without flows.
    pub(crate) fn set_seed(&mut self, seed: [u8; 32]) {
        self.key = hash_key(seed);
    }

    fn home(&self, key: Key) -> usize {
        self.key.hash(key.0, key.1) as usize & (self.slots.len() - 1)
    }

    /// The place of a key, or the free place where it would be.
    fn find(&self, key: Key) -> usize {
        let mut at = self.home(key);
        while self.slots[at].1 != FREE && self.slots[at].0 != key {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    pub(crate) fn get(&self, key: Key) -> Option<u32> {
        let number = self.slots[self.find(key)].1;
        (number != FREE).then_some(number)
    }

    pub(crate) fn insert(&mut self, key: Key, number: u32) {
        let at = self.find(key);
        self.slots[at] = (key, number);
    }

    /// Removes a key, and moves later keys of the same run into the gap.
    pub(crate) fn remove(&mut self, key: Key) {
        let mask = self.slots.len() - 1;
        let mut gap = self.find(key);
        if self.slots[gap].1 == FREE {
            return;
        }
        let mut at = (gap + 1) & mask;
        while self.slots[at].1 != FREE {
            let home = self.home(self.slots[at].0);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
            at = (at + 1) & mask;
        }
        self.slots[gap].1 = FREE;
    }
}

fn hash_key(seed: [u8; 32]) -> HashKey {
    const PURPOSE: u64 = 0x7061_796c_6f61_6473;
    HashKey::from_seed(seed, PURPOSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use core::net::Ipv4Addr;

    #[test]
    fn agrees_with_a_map() {
        let key = |n: u32| {
            let end = SocketAddrV4::new(Ipv4Addr::from_bits(n), 21);
            Key::new(6, end, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7))
        };
        let mut index = Index::new(40, [3; 32]);
        let mut map = BTreeMap::new();
        let mut random = 1_u32;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let n = (random >> 16) % 60;
            if map.contains_key(&n) || map.len() == 40 {
                map.remove(&n);
                index.remove(key(n));
            } else {
                map.insert(n, step);
                index.insert(key(n), step);
            }
            let all = (0..60).all(|n| index.get(key(n)) == map.get(&n).copied());
            assert!(all, "step {step}");
        }
    }
}
