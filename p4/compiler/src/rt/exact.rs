//! Tables with exact keys: a hash table, whose entries may expire and may be added by packets.

use super::key::{Packed, full, matches, values};
use super::lines::Lines;
use super::{Action, Listed, LookupResult, Match, Store};
use crate::machine::execute::LONGEST_TIMEOUT;
use crate::machine::table::{Tick, deadline, until};
use std::collections::BinaryHeap;
use std::fmt::Debug;

/// A time that is never reached.
const NEVER: u64 = u64::MAX;

/// Action of an entry, and its lifetime. With the key it takes half a cache line, if it is as small
/// as most are.
#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    action: A,
    /// End of the timer, nanoseconds; [`NEVER`] without a timer. The entry is removed on the tick
    /// after it.
    until: u64,
    timer: Timer,
}

impl<A> Entry<A> {
    /// True if the entry exists at the latest tick.
    #[inline]
    fn is_there(&self, tick: Tick) -> bool {
        tick.is_before(self.until)
    }
}

/// The highest bit is set if a packet has added the entry. The other bits are the timeout of its
/// timer, milliseconds, if it has one.
#[derive(Clone, Copy, Debug)]
struct Timer(u32);

impl Timer {
    const LEARNT: u32 = 1 << 31;

    /// Value for entries of the control plane.
    const NONE: Self = Self(0);

    fn learnt(timeout: u32) -> Self {
        Self(Self::LEARNT | timeout.min(LONGEST_TIMEOUT))
    }

    #[inline]
    fn timeout(self) -> u32 {
        self.0 & LONGEST_TIMEOUT
    }

    fn is_learnt(self) -> bool {
        self.0 & Self::LEARNT != 0
    }
}

/// Place of an entry; valid until entries are added or removed.
pub type Place = Option<usize>;

/// A table with exact keys.
#[derive(Debug)]
pub struct Exact<K, A> {
    entries: Lines<K, Entry<A>>,
    widths: &'static [u32],
    size: usize,
    /// True if entries that packets add have timers.
    expires: bool,
    default: A,
    /// Tick in which there was no room, even without the expired entries: none expires before the
    /// next tick.
    full: Option<Tick>,
}

impl<K: Packed, A: Action> Exact<K, A> {
    /// Creates an empty table for `size` entries with keys of these widths.
    pub fn new(widths: &'static [u32], size: usize, expires: bool, default: A) -> Self {
        Self { entries: Lines::new(), widths, size, expires, default, full: None }
    }

    /// Looks a key up at the latest tick; also returns the place of its entry, even of an expired
    /// one.
    #[inline]
    pub fn find(&self, tick: Tick, key: K) -> (LookupResult<A>, Place) {
        let found = self.entries.find(key);
        let place = found.map(|(place, _)| place);
        match found {
            Some((_, entry)) if entry.is_there(tick) => {
                (LookupResult { hit: true, action: entry.action }, place)
            }
            _ => (LookupResult { hit: false, action: self.default }, place),
        }
    }

    /// True if a look-up is likely to wait for memory, unless its line was prefetched.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.entries.is_large()
    }

    /// Starts fetching the memory that a look-up of a key reads.
    #[inline]
    pub fn fetch(&self, key: K) {
        self.entries.fetch(key);
    }

    /// Adds an entry for a key, or replaces the present one; returns its place if there was room.
    pub fn add(&mut self, now: u64, key: K, action: A, timeout: u32) -> Place {
        let until = if self.expires { until(now, timeout) } else { NEVER };
        self.put(now, key, Entry { action, until, timer: Timer::learnt(timeout) })
    }

    /// Changes the timeout of an entry that a packet added, milliseconds.
    #[inline]
    pub fn set_timeout(&mut self, place: Place, timeout: u32) {
        self.timed(place, |entry| entry.timer = Timer::learnt(timeout));
    }

    /// Restarts the timer of an entry that a packet added.
    #[inline]
    pub fn restart(&mut self, now: u64, place: Place) {
        self.timed(place, |entry| entry.until = until(now, entry.timer.timeout()));
    }

    #[inline]
    fn timed(&mut self, place: Place, change: impl FnOnce(&mut Entry<A>)) {
        if let Some(entry) = place.and_then(|place| self.entries.get_mut(place))
            && entry.until != NEVER
        {
            change(entry);
        }
    }

    #[cold]
    fn put(&mut self, now: u64, key: K, entry: Entry<A>) -> Place {
        let place = self.entries.find(key).map(|(place, _)| place);
        if let Some(own) = place.and_then(|place| self.entries.get_mut(place)) {
            *own = entry;
            return place;
        }
        if self.entries.len() >= self.size && !self.make_room(now) {
            return None;
        }
        Some(self.entries.insert(key, entry))
    }
}

impl<K: Packed, A: Action> Exact<K, A> {
    /// Converts an entry for the control plane.
    fn listed(&self, key: K, entry: &Entry<A>) -> Listed {
        Listed {
            keys: matches(self.widths, key, full(self.widths)),
            action: entry.action.number(),
            args: entry.action.args(),
            priority: 0,
            is_learnt: entry.timer.is_learnt(),
            deadline: Some(entry.until).filter(|until| *until != NEVER).map(deadline),
        }
    }

    /// Entries at a time.
    fn there(&self, now: u64) -> impl Iterator<Item = &(K, Entry<A>)> {
        let tick = Tick::at(now);
        self.entries.iter().filter(move |(_, entry)| entry.is_there(tick))
    }

    /// Removes expired entries; returns true if there were any.
    fn make_room(&mut self, now: u64) -> bool {
        let tick = Tick::at(now);
        if self.full != Some(tick) {
            self.entries.retain(|one| one.is_there(tick));
            self.full = Some(tick).filter(|_| self.entries.len() >= self.size);
        }
        self.entries.len() < self.size
    }
}

impl<K: Packed, A: Action> Store for Exact<K, A> {
    fn insert(&mut self, now: u64, keys: &[Match], action: usize, args: &[u128], _: u32) -> bool {
        let (key, action) = (values(self.widths, keys), A::of(action, args));
        let entry = Entry { action, until: NEVER, timer: Timer::NONE };
        self.put(now, key, entry).is_some()
    }

    fn remove(&mut self, keys: &[Match]) -> bool {
        let place = self.entries.find(values(self.widths, keys)).map(|(place, _)| place);
        place.map(|place| self.entries.remove(place)).is_some()
    }

    fn count(&self, now: u64) -> usize {
        self.there(now).count()
    }

    fn list(&self, now: u64) -> Vec<Listed> {
        let mut all: Vec<Listed> =
            self.there(now).map(|(key, entry)| self.listed(*key, entry)).collect();
        all.sort();
        all
    }

    fn get(&self, now: u64, keys: &[Match]) -> Option<Listed> {
        let key: K = values(self.widths, keys);
        let (_, entry) = self.entries.find(key)?;
        entry.is_there(Tick::at(now)).then(|| self.listed(key, entry))
    }

    /// Packed keys have the order of the keys, so that a single scan finds the first ones.
    fn page(&self, now: u64, after: Option<&[Match]>, most: usize) -> Vec<Listed> {
        let after: Option<K> = after.map(|keys| values(self.widths, keys));
        let is_wanted = |(key, _): &&(K, Entry<A>)| after.is_none_or(|after| *key > after);
        let mut first: BinaryHeap<K> = BinaryHeap::new();
        for (key, _) in self.there(now).filter(is_wanted) {
            if first.len() < most {
                first.push(*key);
            } else if let Some(mut last) = first.peek_mut()
                && *key < *last
            {
                *last = *key;
            }
        }
        let listed = |key: &K| self.entries.find(*key).map(|(_, entry)| self.listed(*key, entry));
        first.into_sorted_vec().iter().filter_map(listed).collect()
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
