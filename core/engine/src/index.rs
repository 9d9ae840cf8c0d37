//! The hash index of every table: from a key's hash to a slot number, the key itself staying in the
//! slot. A bucket is one cache line with ten 16-bit tags and ten slot numbers, so that a lookup
//! touches one line here and one line there. An entry that finds its bucket full goes to the next;
//! each bucket counts the entries that went past it, so that a search knows when to stop and
//! removal leaves no tombstones.
//!
//! This is the place to change the lookup structure: tables see `prefetch`, `candidate`, `find`,
//! `insert` and `remove` only.

use crate::prefetch::{equal, prefetch};
use alloc::alloc::{alloc_zeroed, handle_alloc_error};
use alloc::vec::Vec;
use core::alloc::Layout;

const ENTRIES: usize = 10;

/// Bytes of the smallest page of memory.
pub(crate) const PAGE: usize = 4096;

/// Entries per hundred places when the index is as full as it was made for: beyond this share,
/// buckets overflow too often.
const LOAD_PERCENT: usize = 68;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// Low bits of the entries' hashes, never 0; 0: the place is free.
    tags: [u16; ENTRIES],
    slots: [u32; ENTRIES],
    /// Entries whose search starts here or earlier and that lie further on.
    passed: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// A bit for each place that holds this tag.
    #[inline(always)]
    fn matches(&self, tag: u16) -> u32 {
        equal(&self.tags, tag)
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
            bucket.passed = core::hint::black_box(bucket.passed);
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
        prefetch(&self.buckets, self.home(hash));
    }

    /// The slot that a lookup of `hash` will most likely look at first: to prefetch, not to trust.
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        let bucket = &self.buckets[self.home(hash)];
        let place = bucket.matches(Self::tag(hash)).trailing_zeros() as usize;
        match bucket.slots.get(place) {
            Some(&slot) => Some(slot),
            None if bucket.passed == 0 => None,
            None => self.candidate_beyond(hash),
        }
    }

    /// [`Index::candidate`] of an entry that is not in the bucket where its search begins. Of a
    /// full index, one entry in fifty is such.
    #[cold]
    #[inline(never)]
    fn candidate_beyond(&self, hash: u64) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// The slot with this hash for which `is_it` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = Self::tag(hash);
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut places = bucket.matches(tag);
            while places != 0 {
                let slot = bucket.slots[places.trailing_zeros() as usize];
                if is_it(slot) {
                    return Some(slot);
                }
                places &= places - 1;
            }
            if bucket.passed == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// Adds a slot. The caller keeps to the capacity, adds no slot twice, and few with one hash:
    /// they would stand one after the other.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        let mut at = self.home(hash);
        loop {
            let after = self.after(at);
            let bucket = &mut self.buckets[at];
            let place = bucket.matches(0).trailing_zeros() as usize;
            if place < ENTRIES {
                bucket.tags[place] = Self::tag(hash);
                bucket.slots[place] = slot;
                return;
            }
            bucket.passed += 1;
            at = after;
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
            let place = (0..ENTRIES).find(|&i| bucket.tags[i] == tag && bucket.slots[i] == slot);
            if let Some(place) = place {
                bucket.tags[place] = 0;
                return;
            }
            assert!(bucket.passed > 0, "index entry to remove is missing");
            bucket.passed -= 1;
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
            prop_assert!(index.buckets.iter().all(|b| b.passed == 0 && b.tags == [0; ENTRIES]));
        }
    }
}
