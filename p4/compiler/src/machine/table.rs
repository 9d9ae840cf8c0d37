//! Tables in operation: entries, look-up, and expiry.

use super::execute::{Listed, MILLISECOND, Store};
use crate::ir::{Match, MatchKind, Table};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Interval of the ticks on which entries expire, nanoseconds.
pub(crate) const TICK: u64 = 125_000_000;

/// End of a timer that starts now and runs for `timeout` milliseconds. It expires on a tick, never
/// early.
#[inline]
pub(crate) fn until(now: u64, timeout: u32) -> u64 {
    now.saturating_add(u64::from(timeout) * MILLISECOND)
}

/// Tick on which a timer expires.
pub(crate) fn deadline(until: u64) -> u64 {
    until.div_ceil(TICK).saturating_mul(TICK)
}

/// Latest tick of timers. Exactly the timers that end by then have expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick(u64);

impl Tick {
    /// Latest tick at a time.
    #[inline]
    pub(crate) fn at(now: u64) -> Self {
        Self(now - now % TICK)
    }

    /// True if a timer that ends at `until` has not expired.
    #[inline]
    pub(crate) fn is_before(self, until: u64) -> bool {
        self.0 < until
    }
}

/// An entry in a table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Index into the table's actions.
    pub(super) action: usize,
    pub(super) args: Vec<u128>,
    /// Priority: the highest of several matching ternary entries wins.
    pub(super) priority: u32,
    /// Time of expiry, nanoseconds; `None` without a timer.
    pub(super) deadline: Option<u64>,
    /// Timeout of the timer, milliseconds.
    pub(super) timeout: u32,
    /// True if a packet added the entry.
    pub(super) is_learnt: bool,
}

impl Entry {
    /// Creates an entry that stays.
    pub(super) fn new(action: usize, args: Vec<u128>, priority: u32) -> Self {
        Self { action, args, priority, deadline: None, timeout: 0, is_learnt: false }
    }

    /// Restarts the timer.
    pub(super) fn restart(&mut self, now: u64) {
        self.deadline = Some(deadline(until(now, self.timeout)));
    }
}

/// Entries of a table.
#[derive(Clone, Debug)]
pub(super) struct Entries<'p> {
    table: &'p Table,
    all: BTreeMap<Vec<Match>, Entry>,
    /// Index into the table's actions, and arguments.
    pub(super) default: (usize, Vec<u128>),
}

impl<'p> Entries<'p> {
    pub(super) fn new(table: &'p Table) -> Self {
        Self { table, all: BTreeMap::new(), default: table.default.clone() }
    }

    /// Adds or replaces an entry; returns true if there was room.
    pub(super) fn put(&mut self, now: u64, keys: Vec<Match>, entry: Entry) -> bool {
        if self.all.len() >= self.table.size && !self.all.contains_key(&keys) {
            self.all.retain(|_, entry| !is_over(entry, now));
            if self.all.len() >= self.table.size {
                return false;
            }
        }
        self.all.insert(keys, entry);
        true
    }

    pub(super) fn get_mut(&mut self, keys: &[Match]) -> Option<&mut Entry> {
        self.all.get_mut(keys)
    }

    /// Entry that matches key values, and its keys.
    pub(super) fn find(&self, now: u64, values: &[u128]) -> Option<(&Vec<Match>, &Entry)> {
        if self.table.keys.iter().all(|key| key.kind == MatchKind::Exact) {
            let pairs = self.table.keys.iter().zip(values);
            let keys = pairs.map(|(key, value)| Match { value: *value, mask: key.expr.ty.mask() });
            let found = self.all.get_key_value(&keys.collect::<Vec<_>>())?;
            return (!is_over(found.1, now)).then_some(found);
        }
        let matching = self.all.iter().filter(|(keys, entry)| {
            let mut pairs = keys.iter().zip(values);
            !is_over(entry, now) && pairs.all(|(asked, value)| value & asked.mask == asked.value)
        });
        // The first of equals wins: `max_by_key` takes the last, so the iteration is reversed.
        let rank = |(keys, entry): &(&Vec<Match>, &Entry)| {
            (prefix_length(self.table, keys), entry.priority)
        };
        let all = matching.collect::<Vec<_>>();
        all.into_iter().rev().max_by_key(rank)
    }
}

impl Store for Entries<'_> {
    fn insert(
        &mut self,
        now: u64,
        keys: &[Match],
        action: usize,
        args: &[u128],
        priority: u32,
    ) -> bool {
        self.put(now, keys.to_vec(), Entry::new(action, args.to_vec(), priority))
    }

    fn remove(&mut self, keys: &[Match]) -> bool {
        self.all.remove(keys).is_some()
    }

    fn count(&self, now: u64) -> usize {
        self.all.values().filter(|entry| !is_over(entry, now)).count()
    }

    fn list(&self, now: u64) -> Vec<Listed> {
        self.page(now, None, usize::MAX)
    }

    fn get(&self, now: u64, keys: &[Match]) -> Option<Listed> {
        let (keys, entry) = self.all.get_key_value(keys)?;
        (!is_over(entry, now)).then(|| listed(keys, entry))
    }

    fn page(&self, now: u64, after: Option<&[Match]>, most: usize) -> Vec<Listed> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.all.range::<[Match], _>((start, Bound::Unbounded));
        let there = all.filter(|(_, entry)| !is_over(entry, now)).take(most);
        there.map(|(keys, entry)| listed(keys, entry)).collect()
    }

    fn clear(&mut self) {
        self.all.clear();
    }

    fn default(&self) -> (usize, Vec<u128>) {
        self.default.clone()
    }

    fn set_default(&mut self, action: usize, args: &[u128]) {
        self.default = (action, args.to_vec());
    }
}

fn listed(keys: &[Match], entry: &Entry) -> Listed {
    Listed {
        keys: keys.to_vec(),
        action: entry.action,
        args: entry.args.clone(),
        priority: entry.priority,
        is_learnt: entry.is_learnt,
        deadline: entry.deadline,
    }
}

fn is_over(entry: &Entry, now: u64) -> bool {
    entry.deadline.is_some_and(|deadline| now >= deadline)
}

fn prefix_length(table: &Table, keys: &[Match]) -> u32 {
    let pairs = table.keys.iter().zip(keys);
    pairs
        .filter(|(key, _)| key.kind == MatchKind::Lpm)
        .map(|(_, asked)| asked.mask.count_ones())
        .sum()
}
