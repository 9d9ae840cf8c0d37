//! The hash index of every table: from a key's hash to a slot number, the key itself staying in the
//! slot. A bucket is one cache line with ten 16-bit tags and ten slot numbers, so that a lookup
//! touches one line here and one line there. One comparison looks at all ten tags. An entry that
//! finds its bucket full goes to the next; each bucket counts the entries that went past it, so
//! that a search knows when to stop and removal leaves no tombstones.
//!
//! This is the place to change the lookup structure: tables see `prefetch`, `candidate`, `find`,
//! `insert` and `remove` only.

use crate::prefetch::{Line, equal, prefetch_within};
use alloc::alloc::{alloc_zeroed, handle_alloc_error};
use alloc::vec::Vec;
use core::alloc::Layout;

const ENTRIES: usize = 10;

/// Bytes of the smallest page of memory.
pub(crate) const PAGE: usize = 4096;

/// Entries per hundred places when the index is as full as it was made for. One entry in sixteen
/// then lies beyond its first bucket, and lookups follow it there. Beyond this share, buckets
/// overflow too often.
const LOAD_PERCENT: usize = 80;

/// A line of ten tags, one count and ten slot numbers, in this order. The tags are the low bits of
/// the entries' hashes, never 0; a tag 0 marks a free place. The count is that of the entries whose
/// search starts here or earlier and that lie further on.
#[derive(Clone, Copy, Debug)]
struct Bucket(Line);

/// Places of the count and of the slot numbers in the line.
const PASSED: usize = ENTRIES;
const SLOTS: usize = PASSED + 2;

const _: () = assert!(size_of::<Bucket>() == 64 && SLOTS + 2 * ENTRIES == Line::NUMBERS);

impl Bucket {
    /// A bit for each place that holds this tag. Bits from [`ENTRIES`] on are not of places.
    #[inline(always)]
    fn matches(&self, tag: u16) -> Matches {
        Matches(equal(&self.0, tag) | 1 << ENTRIES)
    }

    /// A number of 32 bits that takes the place of two.
    #[inline(always)]
    fn double(&self, at: usize) -> u32 {
        u32::from(self.0.0[at]) | u32::from(self.0.0[at + 1]) << 16
    }

    #[inline(always)]
    fn set_double(&mut self, at: usize, number: u32) {
        self.0.0[at] = number as u16;
        self.0.0[at + 1] = (number >> 16) as u16;
    }

    #[inline(always)]
    fn passed(&self) -> u32 {
        self.double(PASSED)
    }

    #[inline(always)]
    fn set_passed(&mut self, passed: u32) {
        self.set_double(PASSED, passed);
    }

    #[inline(always)]
    fn slot(&self, place: usize) -> u32 {
        self.double(SLOTS + 2 * place)
    }

    #[inline(always)]
    fn put(&mut self, place: usize, tag: u16, slot: u32) {
        self.0.0[place] = tag;
        self.set_double(SLOTS + 2 * place, slot);
    }

    #[inline(always)]
    fn clear(&mut self, place: usize) {
        self.0.0[place] = 0;
    }
}

/// Places of a bucket, as bits. The bit after the last place ends the search for a bit.
struct Matches(u32);

impl Matches {
    /// The first place.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        let place = self.0.trailing_zeros() as usize;
        (place < ENTRIES).then_some(place)
    }
}

impl Iterator for Matches {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let first = self.first()?;
        self.0 &= self.0 - 1;
        Some(first)
    }
}

/// Empty buckets, in memory that nothing has touched: what is never used takes no pages.
#[allow(unsafe_code)]
fn zeroed(count: usize) -> Vec<Bucket> {
    let layout = Layout::array::<Bucket>(count).expect("a table that fits in memory");
    // SAFETY: there is at least one bucket, so the layout is not empty; the block is allocated for
    // exactly this layout; a bucket is integers, of which all zeros are valid values.
    unsafe {
        let block = alloc_zeroed(layout);
        if block.is_null() {
            handle_alloc_error(layout);
        }
        Vec::from_raw_parts(block.cast(), count, count)
    }
}

/// A hash index over slot numbers.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    buckets: Vec<Bucket>,
}

impl Index {
    /// An index for at most `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { buckets: zeroed(Self::buckets(capacity)) }
    }

    /// Bytes that an index for `capacity` entries takes.
    pub(crate) fn memory(capacity: usize) -> u64 {
        (Self::buckets(capacity) * size_of::<Bucket>()) as u64
    }

    /// Touches every page of it.
    pub(crate) fn populate(&mut self) {
        for bucket in self.buckets.iter_mut().step_by(PAGE / size_of::<Bucket>()) {
            bucket.set_passed(core::hint::black_box(bucket.passed()));
        }
    }

    fn buckets(capacity: usize) -> usize {
        (capacity * 100).div_ceil(ENTRIES * LOAD_PERCENT) + 1
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        hash as u16 | 1
    }

    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// Fetches the bucket that a lookup of `hash` will start with.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch_within(&self.buckets, self.home(hash));
    }

    /// The slot that a lookup of `hash` will most likely look at first: to prefetch, not to trust.
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        let at = self.home(hash);
        let bucket = &self.buckets[at];
        match bucket.matches(Self::tag(hash)).first() {
            Some(place) => Some(bucket.slot(place)),
            None if bucket.passed() == 0 => None,
            None => self.candidate_beyond(at, Self::tag(hash)),
        }
    }

    /// [`Index::candidate`] of an entry that is not in the bucket where its search begins.
    #[cold]
    #[inline(never)]
    fn candidate_beyond(&self, mut at: usize, tag: u16) -> Option<u32> {
        for _ in 1..self.buckets.len() {
            at = self.after(at);
            let bucket = &self.buckets[at];
            if let Some(place) = bucket.matches(tag).first() {
                return Some(bucket.slot(place));
            }
            if bucket.passed() == 0 {
                return None;
            }
        }
        None
    }

    /// The slot with this hash for which `is_it` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = Self::tag(hash);
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            for place in bucket.matches(tag) {
                let slot = bucket.slot(place);
                if is_it(slot) {
                    return Some(slot);
                }
            }
            if bucket.passed() == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// Adds a slot. The caller keeps to the capacity, adds no slot twice, and few with one hash:
    /// they would stand one after the other.
    #[inline(always)]
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        let at = self.home(hash);
        let bucket = &mut self.buckets[at];
        match bucket.matches(0).first() {
            Some(place) => bucket.put(place, Self::tag(hash), slot),
            None => self.insert_beyond(at, Self::tag(hash), slot),
        }
    }

    /// [`Index::insert`] of an entry whose bucket is full.
    #[cold]
    #[inline(never)]
    fn insert_beyond(&mut self, mut at: usize, tag: u16, slot: u32) {
        loop {
            let passed = &mut self.buckets[at];
            passed.set_passed(passed.passed() + 1);
            at = self.after(at);
            let bucket = &mut self.buckets[at];
            if let Some(place) = bucket.matches(0).first() {
                bucket.put(place, tag, slot);
                return;
            }
        }
    }

    /// Removes a slot that was added with this hash.
    ///
    /// # Panics
    /// When it was not: the table is broken.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        let tag = Self::tag(hash);
        let mut at = self.home(hash);
        loop {
            let after = self.after(at);
            let bucket = &mut self.buckets[at];
            if let Some(place) = bucket.matches(tag).find(|&place| bucket.slot(place) == slot) {
                bucket.clear(place);
                return;
            }
            assert!(bucket.passed() > 0, "index entry to remove is missing");
            bucket.set_passed(bucket.passed() - 1);
            at = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// Against a map, with hashes so alike that buckets overflow and wrap around.
        #[test]
        fn behaves_as_a_map(
            ops in proptest::collection::vec((0_u32..60, 0_u64..4, any::<bool>()), 1..300),
        ) {
            let mut index = Index::new(60);
            let mut map = BTreeMap::new();
            for (slot, high, add) in ops {
                let hash = (high << 62) | 0x7;
                if add && !map.contains_key(&slot) {
                    index.insert(hash, slot);
                    map.insert(slot, hash);
                } else if !add && let Some(hash) = map.remove(&slot) {
                    index.remove(hash, slot);
                }
                for (&slot, &hash) in &map {
                    prop_assert_eq!(index.find(hash, |s| s == slot), Some(slot));
                    // All entries have one tag, so the first one found is a candidate of each.
                    prop_assert!(index.candidate(hash).is_some());
                }
                for slot in 0..60 {
                    let found = (0..4).any(|h| index.find((h << 62) | 7, |s| s == slot).is_some());
                    prop_assert_eq!(found, map.contains_key(&slot));
                }
            }
            for (slot, hash) in map {
                index.remove(hash, slot);
            }
            let is_empty = |b: &Bucket| b.passed() == 0 && b.0.0[..ENTRIES] == [0; ENTRIES];
            prop_assert!(index.buckets.iter().all(is_empty));
        }
    }
}
