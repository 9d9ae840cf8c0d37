//! A hash table with open addressing: a look-up reads one line of memory, and the key alone
//! determines which, so that it can be prefetched.
//!
//! Each line has two entries. An entry whose line is full goes to the next one with room. All
//! places between an entry and the line of its key are taken, so a search ends at the first free
//! place. Removal preserves that: it moves entries from behind into the gap.

use super::key::{Packed, Secret};
use natgate_hugepages::prefetch;

/// Entries of a line.
const WAYS: usize = 2;

/// Most entries in eight places: longer searches would cost more than the memory.
const MOST_OF_EIGHT: usize = 5;

/// Number of lines up to which a search starts at the first one: that is cheaper than computing the
/// start.
const FEW: usize = 4;

/// Size from which a table does not stay in a processor's own caches, bytes. Below it, prefetching
/// costs more than waiting for the shared cache.
const LARGE: usize = 1 << 20;

/// Bytes of a full table for `entries` entries of `each` bytes, key included.
pub(crate) fn memory(entries: usize, each: usize) -> u64 {
    let lines = (entries * 8).div_ceil(WAYS * MOST_OF_EIGHT).next_power_of_two();
    lines as u64 * (WAYS * each).next_multiple_of(64) as u64
}

/// A cache line, if entries have at most 32 bytes; otherwise several consecutive ones.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line<K, V>([Option<(K, V)>; WAYS]);

/// The table.
#[derive(Debug)]
pub(super) struct Lines<K, V> {
    /// Lines; their number is a power of two.
    lines: Vec<Line<K, V>>,
    len: usize,
    secret: Secret,
}

impl<K: Packed, V: Copy> Lines<K, V> {
    /// Creates an empty table. It grows with its content: few entries lie close together, which is
    /// worth more than to avoid the cost of growing.
    pub(super) fn new() -> Self {
        Self { lines: free(1), len: 0, secret: Secret::draw() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if a look-up is likely to wait for memory, unless its line was prefetched.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.lines.len() * size_of::<Line<K, V>>() > LARGE
    }

    /// Starts fetching the memory that a look-up of a key reads.
    #[inline]
    pub(super) fn fetch(&self, key: K) {
        let Some(line) = self.lines.get(self.home(key)) else { return };
        prefetch(&line.0, 0);
        if size_of::<Line<K, V>>() > size_of::<Line<u64, ()>>() {
            prefetch(&line.0, 1);
        }
    }

    /// Finds a key's entry: its place and its value.
    #[inline]
    pub(super) fn find(&self, key: K) -> Option<(usize, &V)> {
        let mut at = self.home(key);
        loop {
            for (way, place) in self.lines[at].0.iter().enumerate() {
                match place {
                    Some((own, value)) if *own == key => return Some((at * WAYS + way, value)),
                    Some(_) => {}
                    None => return None,
                }
            }
            at = (at + 1) & (self.lines.len() - 1);
        }
    }

    /// Entry at a place.
    fn get(&self, place: usize) -> Option<&(K, V)> {
        self.lines.get(place / WAYS)?.0[place % WAYS].as_ref()
    }

    /// Value at a place.
    #[inline]
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut V> {
        self.lines.get_mut(place / WAYS)?.0[place % WAYS].as_mut().map(|(_, value)| value)
    }

    /// Adds an entry for a new key; returns its place.
    pub(super) fn insert(&mut self, key: K, value: V) -> usize {
        if (self.len + 1) * 8 > self.lines.len() * WAYS * MOST_OF_EIGHT {
            self.renew(self.lines.len() * 2, |_| true);
        }
        self.len += 1;
        let mut place = self.home(key) * WAYS;
        while self.get(place).is_some() {
            place = self.behind(place);
        }
        self.put(place, Some((key, value)));
        place
    }

    /// Removes the entry at a place.
    pub(super) fn remove(&mut self, place: usize) {
        let (mut gap, mut place, all) = (place, place, self.lines.len() * WAYS - 1);
        self.len -= 1;
        loop {
            place = self.behind(place);
            let Some(entry) = self.get(place).copied() else { break };
            let home = self.home(entry.0) * WAYS;
            if place.wrapping_sub(home) & all >= place.wrapping_sub(gap) & all {
                self.put(gap, Some(entry));
                gap = place;
            }
        }
        self.put(gap, None);
    }

    /// Removes entries for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.renew(self.lines.len(), keep);
    }

    pub(super) fn clear(&mut self) {
        (self.lines, self.len) = (free(1), 0);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.lines.iter().flat_map(|line| line.0.iter().flatten())
    }

    /// Line of a key.
    #[inline]
    fn home(&self, key: K) -> usize {
        match self.lines.len() <= FEW {
            true => 0,
            false => key.mixed(self.secret) as usize & (self.lines.len() - 1),
        }
    }

    fn behind(&self, place: usize) -> usize {
        (place + 1) & (self.lines.len() * WAYS - 1)
    }

    fn put(&mut self, place: usize, entry: Option<(K, V)>) {
        self.lines[place / WAYS].0[place % WAYS] = entry;
    }

    /// Replaces the lines by `count` new ones with the kept entries.
    fn renew(&mut self, count: usize, keep: impl Fn(&V) -> bool) {
        let lines = std::mem::replace(&mut self.lines, free(count));
        self.len = 0;
        let entries = lines.into_iter().flat_map(|line| line.0).flatten();
        for (key, value) in entries.filter(|(_, value)| keep(value)) {
            self.insert(key, value);
        }
    }
}

/// Creates `count` lines without entries.
fn free<K: Packed, V: Copy>(count: usize) -> Vec<Line<K, V>> {
    vec![Line([None; WAYS]); count]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u32),
        Remove(u64),
        Retain(u32),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            60 => (0..200_u64, any::<u32>()).prop_map(|(key, value)| Step::Put(key, value)),
            30 => (0..200_u64).prop_map(Step::Remove),
            2 => any::<u32>().prop_map(Step::Retain),
            1 => Just(Step::Clear),
        ]
    }

    fn place(lines: &Lines<u64, u32>, key: u64) -> Option<usize> {
        lines.find(key).map(|(place, _)| place)
    }

    fn take(lines: &mut Lines<u64, u32>, map: &mut BTreeMap<u64, u32>, step: &Step) {
        match *step {
            Step::Put(key, value) => {
                let known = place(lines, key);
                assert_eq!(map.insert(key, value).is_some(), known.is_some());
                let place = known.unwrap_or_else(|| lines.insert(key, value));
                *lines.get_mut(place).expect("it is there") = value;
            }
            Step::Remove(key) => {
                let known = place(lines, key);
                assert_eq!(map.remove(&key).is_some(), known.is_some());
                known.into_iter().for_each(|place| lines.remove(place));
            }
            Step::Retain(least) => {
                map.retain(|_, value| *value >= least);
                lines.retain(|value| *value >= least);
            }
            Step::Clear => {
                map.clear();
                lines.clear();
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec(step(), 1..400)) {
            let (mut lines, mut map) = (Lines::new(), BTreeMap::new());
            for step in &steps {
                take(&mut lines, &mut map, step);
                prop_assert_eq!(lines.len(), map.len());
            }
            for key in 0..200 {
                let found = lines.find(key);
                prop_assert_eq!(found.map(|(_, value)| value), map.get(&key));
                let entry = found.and_then(|(place, _)| lines.get(place));
                prop_assert_eq!(entry.map(|(own, _)| *own), found.map(|_| key));
            }
            let all: BTreeMap<u64, u32> = lines.iter().copied().collect();
            prop_assert_eq!(all, map);
        }
    }

    #[test]
    fn a_full_table_takes_what_it_is_said_to() {
        for entries in [1, 5, 6, 640, 641, 1000] {
            let mut lines = Lines::new();
            for key in 0..entries as u64 {
                lines.insert(key, [0_u8; 16]);
            }
            let bytes = size_of_val(&*lines.lines) as u64;
            assert_eq!(memory(entries, 32), bytes, "{entries}");
        }
    }

    #[test]
    fn two_entries_as_the_nat_has_them_are_a_line_of_memory() {
        /// An action with an address, a port and another number.
        #[derive(Clone, Copy, Debug)]
        #[expect(dead_code, reason = "its size counts")]
        enum Action {
            To { address: u32, port: u16 },
            Nothing,
        }
        assert_eq!(size_of::<Line<u64, (u64, Action, u32)>>(), 64);
    }
}
