//! Tables with one key that goes by its longest prefix, and others that are exact: a hash table for each length
//! that there is.

use super::key::{Packed, Secret, masks, matches, values};
use super::{Action, Found, Listed, Match, Store};
use hashbrown::HashTable;
use std::ops::BitAnd;

/// Entries whose prefixes have one length.
#[derive(Debug)]
struct Group<K, A> {
    /// Bits that matter, of all keys.
    bits: u32,
    mask: K,
    entries: HashTable<(K, A)>,
}

/// A table by longest prefix.
#[derive(Debug)]
pub struct Lpm<K, A> {
    /// The longest first.
    groups: Vec<Group<K, A>>,
    widths: &'static [u32],
    size: usize,
    default: A,
    secret: Secret,
}

impl<K: Packed + BitAnd<Output = K>, A: Action> Lpm<K, A> {
    /// An empty table of keys of so many bits, for so many entries.
    pub fn new(widths: &'static [u32], size: usize, default: A) -> Self {
        Self { groups: Vec::new(), widths, size, default, secret: Secret::draw() }
    }

    /// What a key finds.
    #[inline]
    pub fn find(&self, key: K) -> Found<A> {
        for group in &self.groups {
            let key = key & group.mask;
            let found = group.entries.find(key.mixed(self.secret), |one| one.0 == key);
            if let Some((_, action)) = found {
                return Found { hit: true, action: *action };
            }
        }
        Found { hit: false, action: self.default }
    }

    /// An entry as the control plane has it.
    fn listed(&self, mask: K, key: K, action: &A) -> Listed {
        Listed {
            keys: matches(self.widths, key, mask),
            action: action.number(),
            args: action.args(),
            priority: 0,
            is_learnt: false,
            deadline: None,
        }
    }

    fn len(&self) -> usize {
        self.groups.iter().map(|group| group.entries.len()).sum()
    }

    /// The group of entries that ask this, and what its key is.
    fn place(&self, keys: &[Match]) -> (Result<usize, usize>, K, u32) {
        let bits: u32 = keys.iter().map(|key| key.mask.count_ones()).sum();
        let place = self.groups.binary_search_by(|group| bits.cmp(&group.bits));
        (place, values(self.widths, keys), bits)
    }
}

impl<K: Packed + BitAnd<Output = K>, A: Action> Store for Lpm<K, A> {
    fn insert(&mut self, _: u64, keys: &[Match], action: usize, args: &[u128], _: u32) -> bool {
        let (place, key, bits) = self.place(keys);
        let (secret, action) = (self.secret, A::of(action, args));
        let (hash, is_full) = (key.mixed(secret), self.len() >= self.size);
        if let Ok(place) = place
            && let Some(own) = self.groups[place].entries.find_mut(hash, |one| one.0 == key)
        {
            own.1 = action;
            return true;
        }
        if is_full {
            return false;
        }
        let place = place.unwrap_or_else(|place| {
            let mask = masks(self.widths, keys);
            self.groups.insert(place, Group { bits, mask, entries: HashTable::new() });
            place
        });
        let group = &mut self.groups[place].entries;
        group.insert_unique(hash, (key, action), |one| one.0.mixed(secret));
        true
    }

    fn remove(&mut self, keys: &[Match]) -> bool {
        let (Ok(place), key, _) = self.place(keys) else { return false };
        let hash = key.mixed(self.secret);
        let group = &mut self.groups[place].entries;
        let is_gone = group.find_entry(hash, |one| one.0 == key).map(|one| one.remove()).is_ok();
        if group.is_empty() {
            self.groups.remove(place);
        }
        is_gone
    }

    fn count(&self, _: u64) -> usize {
        self.len()
    }

    fn list(&self, _: u64) -> Vec<Listed> {
        let all = self.groups.iter().flat_map(|group| {
            let listed = |(key, action): &(K, A)| self.listed(group.mask, *key, action);
            group.entries.iter().map(listed).collect::<Vec<_>>()
        });
        let mut all: Vec<Listed> = all.collect();
        all.sort();
        all
    }

    fn get(&self, _: u64, keys: &[Match]) -> Option<Listed> {
        let (place, key, _) = self.place(keys);
        let group = &self.groups[place.ok()?];
        let found = group.entries.find(key.mixed(self.secret), |one| one.0 == key);
        found.map(|(key, action)| self.listed(group.mask, *key, action))
    }

    fn clear(&mut self) {
        self.groups.clear();
    }

    fn default(&self) -> (usize, Vec<u128>) {
        (self.default.number(), self.default.args())
    }

    fn set_default(&mut self, action: usize, args: &[u128]) {
        self.default = A::of(action, args);
    }
}
