//! Tables whose keys are exact: a hash table, whose entries may expire and may be added by packets.

use super::key::{Packed, full, matches, values};
use super::lines::Lines;
use super::{Action, Listed, LookupResult, Match, Store};
use crate::machine::execute::LONGEST_TIMEOUT;
use crate::machine::table::{Tick, deadline, until};
use std::collections::BinaryHeap;
use std::fmt::Debug;

/// No time.
const NEVER: u64 = u64::MAX;

/// What an entry does, and for how long. With the key it takes half a cache line, if it is as small
/// as most are.
#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    action: A,
    /// When it is over, nanoseconds; [`NEVER`]: it has no timer. It goes on the tick after that.
    until: u64,
    timer: Timer,
}

impl<A> Entry<A> {
    /// Whether it is there, by the latest tick.
    #[inline]
    fn is_there(&self, tick: Tick) -> bool {
        tick.is_before(self.until)
    }
}

/// Whether a packet has added the entry, in the highest bit; in the others, if it has a timer, its
/// silence until it goes, milliseconds, as timeouts are.
#[derive(Clone, Copy, Debug)]
struct Timer(u32);

impl Timer {
    const LEARNT: u32 = 1 << 31;

    /// That of an entry that the control plane has added.
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

/// Where an entry is; good until entries are added or removed.
pub type Place = Option<usize>;

/// A table whose keys are exact.
#[derive(Debug)]
pub struct Exact<K, A> {
    entries: Lines<K, Entry<A>>,
    widths: &'static [u32],
    size: usize,
    /// Whether entries that packets add have timers.
    expires: bool,
    default: A,
    /// The tick in which there was no room, even without those that were over: nothing more is over
    /// before the next.
    full: Option<Tick>,
}

impl<K: Packed, A: Action> Exact<K, A> {
    /// An empty table of keys of so many bits, for so many entries.
    pub fn new(widths: &'static [u32], size: usize, expires: bool, default: A) -> Self {
        Self { entries: Lines::new(), widths, size, expires, default, full: None }
    }

    /// What a key finds by the latest tick, and where its entry is, were it one that is over.
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

    /// Whether looking something up is likely to wait for memory, unless it was fetched ahead.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.entries.is_large()
    }

    /// Starts fetching what looking a key up will read.
    #[inline]
    pub fn fetch(&self, key: K) {
        self.entries.fetch(key);
    }

    /// Adds an entry for a key, or replaces its; whether there was room, and then where it is.
    pub fn add(&mut self, now: u64, key: K, action: A, timeout: u32) -> Place {
        let until = if self.expires { until(now, timeout) } else { NEVER };
        self.put(now, key, Entry { action, until, timer: Timer::learnt(timeout) })
    }

    /// Changes the timeout of an entry that packets added, milliseconds.
    #[inline]
    pub fn set_timeout(&mut self, place: Place, timeout: u32) {
        self.timed(place, |entry| entry.timer = Timer::learnt(timeout));
    }

    /// Starts the timer of an entry that packets added anew.
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
    /// An entry as the control plane has it.
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

    /// Those that there are at that time.
    fn there(&self, now: u64) -> impl Iterator<Item = &(K, Entry<A>)> {
        let tick = Tick::at(now);
        self.entries.iter().filter(move |(_, entry)| entry.is_there(tick))
    }

    /// Removes what is over; whether that was anything.
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

    /// Packed keys have the keys' order, so that one look at each finds the first.
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
