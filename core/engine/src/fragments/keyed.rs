//! Records up to a given number, found by their keys. Room for all is reserved at the start. Memory
//! that was never used was never touched, so it takes no pages of real memory.

use crate::index::Index;
use crate::random::HashKey;
use alloc::vec::Vec;

/// A key as two words for the hash.
pub(super) trait Words: Copy + Eq {
    fn words(self) -> (u64, u64);
}

#[derive(Clone, Debug)]
pub(super) struct Keyed<K, V> {
    index: Index,
    hash_key: HashKey,
    capacity: usize,
    keys: Vec<K>,
    values: Vec<V>,
    /// Slots that were in use and are free now.
    free: Vec<u32>,
}

impl<K: Words, V> Keyed<K, V> {
    pub(super) fn new(capacity: usize, hash_key: HashKey) -> Self {
        Self {
            index: Index::new(capacity),
            hash_key,
            capacity,
            keys: Vec::with_capacity(capacity),
            values: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
        }
    }

    pub(super) fn memory(capacity: usize) -> u64 {
        let slot = size_of::<K>() + size_of::<V>() + size_of::<u32>();
        Index::memory(capacity) + (capacity * slot) as u64
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    fn hash(&self, key: K) -> u64 {
        let (a, b) = key.words();
        self.hash_key.hash(a, b)
    }

    pub(super) fn find(&self, key: K) -> Option<u32> {
        self.index.find(self.hash(key), |slot| self.keys[slot as usize] == key)
    }

    /// Adds a key that is not present. `None`: there is no room.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.keys[slot as usize] = key;
                self.values[slot as usize] = value;
                slot
            }
            None if self.keys.len() < self.capacity => {
                self.keys.push(key);
                self.values.push(value);
                self.keys.len() as u32 - 1
            }
            None => return None,
        };
        self.index.insert(self.hash(key), slot);
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.index.remove(self.hash(self.key(slot)), slot);
        self.free.push(slot);
    }

    pub(super) fn key(&self, slot: u32) -> K {
        self.keys[slot as usize]
    }
}

impl<K, V> core::ops::Index<u32> for Keyed<K, V> {
    type Output = V;

    fn index(&self, slot: u32) -> &V {
        &self.values[slot as usize]
    }
}

impl<K, V> core::ops::IndexMut<u32> for Keyed<K, V> {
    fn index_mut(&mut self, slot: u32) -> &mut V {
        &mut self.values[slot as usize]
    }
}
