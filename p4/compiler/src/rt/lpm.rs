//! Tables with one key matched by its longest prefix, and others that are exact: a hash table for
//! each prefix length.

use super::key::{Packed, masks, matches, values};
use super::lines::Lines;
use super::{Action, Listed, LookupResult, Match, Store};
use std::ops::BitAnd;

/// Entries whose prefixes have one length.
#[derive(Debug)]
struct Group<K, A> {
    /// Number of mask bits of all keys.
    bits: u32,
    mask: K,
    entries: Lines<K, A>,
}

/// A table with longest-prefix match.
#[derive(Debug)]
pub struct Lpm<K, A> {
    /// Groups, the longest prefix first.
    groups: Vec<Group<K, A>>,
    widths: &'static [u32],
    size: usize,
    default: A,
}

impl<K: Packed + BitAnd<Output = K>, A: Action> Lpm<K, A> {
    /// Creates an empty table for `size` entries with keys of these widths.
    pub fn new(widths: &'static [u32], size: usize, default: A) -> Self {
        Self { groups: Vec::new(), widths, size, default }
    }

    /// Looks a key up.
    #[inline]
    pub fn find(&self, key: K) -> LookupResult<A> {
        for group in &self.groups {
            if let Some((_, action)) = group.entries.find(key & group.mask) {
                return LookupResult { hit: true, action: *action };
            }
        }
        LookupResult { hit: false, action: self.default }
    }

    /// Converts an entry for the control plane.
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

    /// Group of entries with these masks, and their packed key.
    fn place(&self, keys: &[Match]) -> (Result<usize, usize>, K, u32) {
        let bits: u32 = keys.iter().map(|key| key.mask.count_ones()).sum();
        let place = self.groups.binary_search_by(|group| bits.cmp(&group.bits));
        (place, values(self.widths, keys), bits)
    }
}

impl<K: Packed + BitAnd<Output = K>, A: Action> Store for Lpm<K, A> {
    fn insert(&mut self, _: u64, keys: &[Match], action: usize, args: &[u128], _: u32) -> bool {
        let (place, key, bits) = self.place(keys);
        let action = A::of(action, args);
        if let Ok(place) = place {
            let entries = &mut self.groups[place].entries;
            let own = entries.find(key).map(|(own, _)| own);
            if let Some(own) = own.and_then(|own| entries.get_mut(own)) {
                *own = action;
                return true;
            }
        }
        if self.len() >= self.size {
            return false;
        }
        let place = place.unwrap_or_else(|place| {
            let mask = masks(self.widths, keys);
            self.groups.insert(place, Group { bits, mask, entries: Lines::new() });
            place
        });
        self.groups[place].entries.insert(key, action);
        true
    }

    fn remove(&mut self, keys: &[Match]) -> bool {
        let (Ok(place), key, _) = self.place(keys) else { return false };
        let entries = &mut self.groups[place].entries;
        let Some((own, _)) = entries.find(key) else { return false };
        entries.remove(own);
        if entries.len() == 0 {
            self.groups.remove(place);
        }
        true
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
        let (_, action) = group.entries.find(key)?;
        Some(self.listed(group.mask, key, action))
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
