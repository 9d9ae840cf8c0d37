//! Tables whose keys are exact: a hash table, whose entries may expire and may be added by packets.

use super::key::{Packed, Secret, full, matches, values};
use super::{Action, Found, Listed, Match, Store};
use crate::machine::table::{TICK, deadline};
use hashbrown::HashTable;
use std::collections::BinaryHeap;
use std::fmt::Debug;

/// No time.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<K, A> {
    key: K,
    action: A,
    /// When it goes, nanoseconds.
    deadline: u64,
    /// Its silence until then, nanoseconds; [`NEVER`]: the control plane's, it has no timer.
    timeout: u64,
    /// Whether a packet added it.
    is_learnt: bool,
}

/// Where an entry is; good until entries are added or removed.
pub type Place = Option<usize>;

/// A table whose keys are exact.
#[derive(Debug)]
pub struct Exact<K, A> {
    entries: HashTable<Entry<K, A>>,
    widths: &'static [u32],
    size: usize,
    /// Whether entries that packets add have timers.
    expires: bool,
    default: A,
    secret: Secret,
    /// The tick in which there was no room, even without those that were over: nothing more is over before
    /// the next.
    full: Option<u64>,
}

impl<K: Packed, A: Action> Exact<K, A> {
    /// An empty table of keys of so many bits, for so many entries.
    pub fn new(widths: &'static [u32], size: usize, expires: bool, default: A) -> Self {
        // It grows with what is in it: few entries lie close together, which is worth more than that none of them
        // ever waits for a larger table.
        let entries = HashTable::new();
        Self { entries, widths, size, expires, default, secret: Secret::draw(), full: None }
    }

    /// What a key finds, and where its entry is, were it one that is over.
    #[inline]
    pub fn find(&self, now: u64, key: K) -> (Found<A>, Place) {
        let place = self.entries.find_bucket_index(key.mixed(self.secret), |one| one.key == key);
        match place.and_then(|place| self.entries.get_bucket(place)) {
            Some(entry) if now < entry.deadline => {
                (Found { hit: true, action: entry.action }, place)
            }
            _ => (Found { hit: false, action: self.default }, place),
        }
    }

    /// Adds an entry for a key, or replaces its; whether there was room, and then where it is.
    pub fn add(&mut self, now: u64, key: K, action: A, timeout: u64) -> Place {
        let (deadline, timeout) = match self.expires {
            true => (deadline(now, timeout), timeout),
            false => (NEVER, NEVER),
        };
        self.put(now, Entry { key, action, deadline, timeout, is_learnt: true })
    }

    /// Changes the timeout of an entry that packets added.
    #[inline]
    pub fn set_timeout(&mut self, place: Place, timeout: u64) {
        self.timed(place, |entry| entry.timeout = timeout);
    }

    /// Starts the timer of an entry that packets added anew.
    #[inline]
    pub fn restart(&mut self, now: u64, place: Place) {
        self.timed(place, |entry| entry.deadline = deadline(now, entry.timeout));
    }

    #[inline]
    fn timed(&mut self, place: Place, change: impl FnOnce(&mut Entry<K, A>)) {
        if let Some(entry) = place.and_then(|place| self.entries.get_bucket_mut(place))
            && entry.timeout != NEVER
        {
            change(entry);
        }
    }

    #[cold]
    fn put(&mut self, now: u64, entry: Entry<K, A>) -> Place {
        let (secret, key) = (self.secret, entry.key);
        let hash = key.mixed(secret);
        let place = self.entries.find_bucket_index(hash, |one| one.key == key);
        if let Some(own) = place.and_then(|place| self.entries.get_bucket_mut(place)) {
            *own = entry;
            return place;
        }
        if self.entries.len() >= self.size && !self.make_room(now) {
            return None;
        }
        let placed = self.entries.insert_unique(hash, entry, |one| one.key.mixed(secret));
        Some(placed.bucket_index())
    }
}

impl<K: Packed, A: Action> Exact<K, A> {
    /// An entry as the control plane has it.
    fn listed(&self, entry: &Entry<K, A>) -> Listed {
        Listed {
            keys: matches(self.widths, entry.key, full(self.widths)),
            action: entry.action.number(),
            args: entry.action.args(),
            priority: 0,
            is_learnt: entry.is_learnt,
            deadline: Some(entry.deadline).filter(|deadline| *deadline != NEVER),
        }
    }

    /// Removes what is over; whether that was anything.
    fn make_room(&mut self, now: u64) -> bool {
        let tick = Some(now / TICK);
        if self.full != tick {
            self.entries.retain(|one| now < one.deadline);
            self.full = tick.filter(|_| self.entries.len() >= self.size);
        }
        self.entries.len() < self.size
    }
}

impl<K: Packed, A: Action> Store for Exact<K, A> {
    fn insert(&mut self, now: u64, keys: &[Match], action: usize, args: &[u128], _: u32) -> bool {
        let (key, action) = (values(self.widths, keys), A::of(action, args));
        let entry = Entry { key, action, deadline: NEVER, timeout: NEVER, is_learnt: false };
        self.put(now, entry).is_some()
    }

    fn remove(&mut self, keys: &[Match]) -> bool {
        let key: K = values(self.widths, keys);
        let found = self.entries.find_entry(key.mixed(self.secret), |one| one.key == key);
        found.map(|entry| entry.remove()).is_ok()
    }

    fn count(&self, now: u64) -> usize {
        self.entries.iter().filter(|entry| now < entry.deadline).count()
    }

    fn list(&self, now: u64) -> Vec<Listed> {
        let there = self.entries.iter().filter(|entry| now < entry.deadline);
        let mut all: Vec<Listed> = there.map(|entry| self.listed(entry)).collect();
        all.sort();
        all
    }

    fn get(&self, now: u64, keys: &[Match]) -> Option<Listed> {
        let key: K = values(self.widths, keys);
        let found = self.entries.find(key.mixed(self.secret), |one| one.key == key);
        found.filter(|entry| now < entry.deadline).map(|entry| self.listed(entry))
    }

    /// Packed keys have the keys' order, so that one look at each finds the first.
    fn page(&self, now: u64, after: Option<&[Match]>, most: usize) -> Vec<Listed> {
        let after: Option<K> = after.map(|keys| values(self.widths, keys));
        let is_wanted = |entry: &&Entry<K, A>| {
            now < entry.deadline && after.is_none_or(|after| entry.key > after)
        };
        let mut first: BinaryHeap<K> = BinaryHeap::new();
        for Entry { key, .. } in self.entries.iter().filter(is_wanted) {
            if first.len() < most {
                first.push(*key);
            } else if let Some(mut last) = first.peek_mut()
                && *key < *last
            {
                *last = *key;
            }
        }
        let found = |key: &K| self.entries.find(key.mixed(self.secret), |one| one.key == *key);
        let first = first.into_sorted_vec();
        first.iter().filter_map(found).map(|entry| self.listed(entry)).collect()
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.full = None;
    }

    fn default(&self) -> (usize, Vec<u128>) {
        (self.default.number(), self.default.args())
    }

    fn set_default(&mut self, action: usize, args: &[u128]) {
        self.default = A::of(action, args);
    }
}
