//! Tables whose keys have individual masks: entries in order of rank, searched linearly.

use super::{Action, Listed, LookupResult, Match, Store};
use std::cmp::Reverse;

#[derive(Clone, Debug)]
struct Entry<A> {
    keys: Vec<Match>,
    action: A,
    priority: u32,
}

impl<A: Action> Entry<A> {
    /// Converts the entry for the control plane.
    fn listed(&self) -> Listed {
        Listed {
            keys: self.keys.clone(),
            action: self.action.number(),
            args: self.action.args(),
            priority: self.priority,
            is_learnt: false,
            deadline: None,
        }
    }
}

/// A table that is searched linearly.
#[derive(Debug)]
pub struct Scan<A> {
    entries: Vec<Entry<A>>,
    /// Index of the key with longest-prefix match, if there is one.
    prefix: Option<usize>,
    size: usize,
    default: A,
}

impl<A: Action> Scan<A> {
    /// Creates an empty table for `size` entries; `prefix` is the index of the key with
    /// longest-prefix match.
    pub fn new(prefix: Option<usize>, size: usize, default: A) -> Self {
        Self { entries: Vec::new(), prefix, size, default }
    }

    /// Looks keys up.
    pub fn find(&self, keys: &[u128]) -> LookupResult<A> {
        let fits = |entry: &&Entry<A>| {
            let mut pairs = entry.keys.iter().zip(keys);
            pairs.all(|(asked, key)| key & asked.mask == asked.value)
        };
        match self.entries.iter().find(fits) {
            Some(entry) => LookupResult { hit: true, action: entry.action },
            None => LookupResult { hit: false, action: self.default },
        }
    }

    /// Rank of an entry: the longest prefix first, then the highest priority, then the keys' order.
    fn rank<'e>(
        &self,
        keys: &'e [Match],
        priority: u32,
    ) -> (Reverse<u32>, Reverse<u32>, &'e [Match]) {
        let length = self.prefix.map_or(0, |place| keys[place].mask.count_ones());
        (Reverse(length), Reverse(priority), keys)
    }
}

impl<A: Action> Store for Scan<A> {
    fn insert(
        &mut self,
        _: u64,
        keys: &[Match],
        action: usize,
        args: &[u128],
        priority: u32,
    ) -> bool {
        let known = self.entries.iter().position(|entry| entry.keys == keys);
        if known.is_none() && self.entries.len() >= self.size {
            return false;
        }
        if let Some(place) = known {
            self.entries.remove(place);
        }
        let entry = Entry { keys: keys.to_vec(), action: A::of(action, args), priority };
        let rank = self.rank(keys, priority);
        let place = self.entries.partition_point(|one| self.rank(&one.keys, one.priority) < rank);
        self.entries.insert(place, entry);
        true
    }

    fn remove(&mut self, keys: &[Match]) -> bool {
        let place = self.entries.iter().position(|entry| entry.keys == keys);
        place.map(|place| self.entries.remove(place)).is_some()
    }

    fn count(&self, _: u64) -> usize {
        self.entries.len()
    }

    fn list(&self, _: u64) -> Vec<Listed> {
        let mut all: Vec<Listed> = self.entries.iter().map(Entry::listed).collect();
        all.sort();
        all
    }

    fn get(&self, _: u64, keys: &[Match]) -> Option<Listed> {
        self.entries.iter().find(|entry| entry.keys == keys).map(Entry::listed)
    }

    fn clear(&mut self) {
        self.entries.clear();
    }

    fn default(&self) -> (usize, Vec<u128>) {
        (self.default.number(), self.default.args())
    }

    fn set_default(&mut self, action: usize, args: &[u128]) {
        self.default = A::of(action, args);
    }
}
