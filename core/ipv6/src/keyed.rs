//! An index from a keyed hash to entries of an array: open addressing with linear probing. The
//! memory is taken once. The key is a secret, so nobody can choose addresses that collide.

use alloc::vec;
use alloc::vec::Vec;
use natgate_engine::{HashKey, prefetch};

/// The hash of a value.
#[inline]
pub(crate) fn hash(key: HashKey, value: u128) -> u64 {
    key.hash(value as u64, (value >> 64) as u64)
}

/// An index over the places of an array. The array has the keys, and the caller compares them.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// Places plus one; 0: nothing.
    slots: Vec<u32>,
    mask: usize,
}

impl Index {
    /// An index with room for `most` places.
    pub(crate) fn new(most: usize) -> Self {
        let count = Self::slots(most);
        Self { slots: vec![0; count], mask: count - 1 }
    }

    /// Bytes of an index with room for `most` places.
    pub(crate) fn memory(most: usize) -> u64 {
        (Self::slots(most) * size_of::<u32>()) as u64
    }

    fn slots(most: usize) -> usize {
        (most.max(4) * 2).next_power_of_two()
    }

    /// Finds the place with a hash for which `is_it` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = hash as usize & self.mask;
        while let Some(place) = self.slots[at].checked_sub(1) {
            if is_it(place) {
                return Some(place);
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    /// Starts to fetch the slot of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.slots, hash as usize & self.mask);
    }

    /// The place that the slot of a hash has, most likely that of the hash.
    #[inline]
    pub(crate) fn likely_place(&self, hash: u64) -> Option<usize> {
        self.slots[hash as usize & self.mask].checked_sub(1).map(|place| place as usize)
    }

    /// Starts to fetch the place that the slot of a hash has.
    #[inline]
    pub(crate) fn prefetch_place<T>(&self, hash: u64, places: &[T]) {
        if let Some(place) = self.likely_place(hash) {
            prefetch(places, place);
        }
    }

    /// Adds a place that is not there yet.
    ///
    /// # Panics
    /// When there is no room.
    pub(crate) fn insert(&mut self, hash: u64, place: u32) {
        let mut at = hash as usize & self.mask;
        for _ in 0..self.slots.len() {
            if self.slots[at] == 0 {
                self.slots[at] = place + 1;
                return;
            }
            at = (at + 1) & self.mask;
        }
        panic!("the index has room for its places");
    }

    /// Removes a place. `hash_of` gives the hash of every place in the index.
    pub(crate) fn remove(&mut self, hash: u64, place: u32, hash_of: impl Fn(u32) -> u64) {
        let mut hole = hash as usize & self.mask;
        while self.slots[hole] != place + 1 {
            if self.slots[hole] == 0 {
                return;
            }
            hole = (hole + 1) & self.mask;
        }
        // Later entries move up, unless they would come before their own start.
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let Some(next) = self.slots[at].checked_sub(1) else { break };
            let start = hash_of(next) as usize & self.mask;
            let from_start = at.wrapping_sub(start) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_start >= from_hole {
                self.slots[hole] = next + 1;
                hole = at;
            }
        }
        self.slots[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn an_index_agrees_with_an_ordinary_map() {
        // A poor hash, so that entries collide.
        let hash = |place: u32| u64::from(place % 7);
        let mut index = Index::new(64);
        let mut plain = BTreeMap::new();
        let mut state = 1_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = (state >> 16) % 64;
            if plain.remove(&place).is_some() {
                index.remove(hash(place), place, hash);
            } else {
                plain.insert(place, ());
                index.insert(hash(place), place);
            }
            for place in 0..64 {
                let found = index.find(hash(place), |it| it == place);
                assert_eq!(found.is_some(), plain.contains_key(&place));
            }
        }
    }

    #[test]
    fn hashes_depend_on_every_part_of_seed_and_value() {
        let hash_by = |seed, purpose, value| hash(HashKey::from_seed(seed, purpose), value);
        let hash = |seed, value| hash_by(seed, 0, value);
        let plain = hash([1; 32], 5);
        for byte in 0..32 {
            let mut seed = [1; 32];
            seed[byte] ^= 4;
            assert_ne!(hash(seed, 5), plain, "byte {byte}");
        }
        for bit in 0..128 {
            assert_ne!(hash([1; 32], 5 ^ 1 << bit), plain, "bit {bit}");
        }
        assert_ne!(hash_by([1; 32], 1, 5), plain);
    }
}
