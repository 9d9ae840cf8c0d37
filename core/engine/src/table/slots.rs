//! A store of slots with room that is reserved at the start.
//!
//! The slots that were freed last are in a short list and are taken first: their lines may still be
//! in the caches, and the next slots to take are known ahead. All other free slots have a bit each
//! (`free`). A slot that was never used is taken last, so memory that was never needed is never
//! touched.

use super::free::FreeBits;
use crate::index::PAGE;
use crate::prefetch::prefetch_within;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Free slots that are prefetched before they are taken.
const AHEAD: usize = 8;

/// Free slots in the short list: some batches of mappings that end together.
const LISTED: usize = 512;

/// Slots that were never used and come to the list together.
const FRESH: usize = 32;

/// A store of slots. Room for all is reserved at the start. A slot that was never used was never
/// touched.
#[derive(Clone, Debug)]
pub(super) struct Slots<T> {
    pub(super) slots: Vec<T>,
    capacity: usize,
    /// Free slots that are taken first, the last one before the others; the first `len` are valid.
    listed: Box<[u32; LISTED]>,
    len: usize,
    /// Slots that were used, are free, and are not in the list.
    others: FreeBits,
}

impl<T: Default> Slots<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            capacity,
            listed: Box::new([0; LISTED]),
            len: 0,
            others: FreeBits::new(capacity),
        }
    }

    /// Bytes that `capacity` slots take.
    pub(super) fn memory(capacity: usize) -> usize {
        capacity * size_of::<T>() + FreeBits::memory(capacity) + LISTED * size_of::<u32>()
    }

    /// Touches every page that has not been used yet.
    pub(super) fn populate(&mut self) {
        let unused = self.slots.spare_capacity_mut();
        for slot in unused.iter_mut().step_by(PAGE / size_of::<T>()) {
            slot.write(T::default());
        }
        self.others.populate();
    }

    /// Prefetches the slots that are taken next.
    #[inline]
    pub(super) fn prefetch_free(&self) {
        for &slot in self.listed[..self.len].iter().rev().take(AHEAD) {
            prefetch_within(&self.slots, slot as usize);
        }
    }

    /// True if a slot is free.
    pub(super) fn has_room(&self) -> bool {
        self.len > 0 || !self.others.is_empty() || self.slots.len() < self.capacity
    }

    /// Takes a slot.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u32> {
        let Some(&slot) = self.listed.get(self.len.wrapping_sub(1)) else {
            return self.take_other();
        };
        self.len -= 1;
        if let Some(&later) = self.listed.get(self.len.wrapping_sub(AHEAD)) {
            prefetch_within(&self.slots, later as usize);
        }
        Some(slot)
    }

    /// [`Slots::take`] while the list is empty: fills it from the bits, or with slots that were
    /// never used.
    #[inline(never)]
    fn take_other(&mut self) -> Option<u32> {
        if let Some((first, mut bits)) = self.others.take_word() {
            while bits != 0 {
                let bit = bits.ilog2();
                bits ^= 1 << bit;
                self.listed[self.len] = first + bit;
                self.len += 1;
            }
        } else {
            let unused = self.slots.len()..self.capacity.min(self.slots.len() + FRESH);
            self.slots.resize_with(unused.end, T::default);
            for slot in unused.rev() {
                self.listed[self.len] = slot as u32;
                self.len += 1;
            }
        }
        self.len = self.len.checked_sub(1)?;
        Some(self.listed[self.len])
    }

    /// Gives a slot back. `freed` is its new content.
    #[inline(always)]
    pub(super) fn give(&mut self, slot: u32, freed: T) {
        self.slots[slot as usize] = freed;
        match self.listed.get_mut(self.len) {
            Some(place) => {
                *place = slot;
                self.len += 1;
            }
            None => self.give_beyond(slot),
        }
    }

    /// [`Slots::give`] while the list is full: moves its older half to the bits.
    #[inline(never)]
    fn give_beyond(&mut self, slot: u32) {
        const HALF: usize = LISTED / 2;
        for &older in &self.listed[..HALF] {
            self.others.add(older);
        }
        self.listed.copy_within(HALF.., 0);
        self.listed[HALF] = slot;
        self.len = HALF + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        /// Many slots come and go at once, so that the list is filled and shortened.
        #[test]
        fn every_slot_has_one_owner_and_none_is_lost(
            capacity in 1_usize..3000,
            turns in proptest::collection::vec((any::<bool>(), 1_usize..1500, any::<u32>()), 1..12),
        ) {
            let mut slots: Slots<u8> = Slots::new(capacity);
            let mut used: BTreeSet<u32> = BTreeSet::new();
            for (takes, count, seed) in turns {
                for turn in 0..count as u32 {
                    prop_assert_eq!(slots.has_room(), used.len() < capacity);
                    if takes {
                        let Some(slot) = slots.take() else {
                            prop_assert_eq!(used.len(), capacity);
                            break;
                        };
                        prop_assert!((slot as usize) < capacity && used.insert(slot));
                    } else {
                        let from = seed.wrapping_mul(turn) % capacity as u32;
                        let next = used.range(from..).next().or(used.first()).copied();
                        let Some(slot) = next else { break };
                        used.remove(&slot);
                        slots.give(slot, 0);
                    }
                }
            }
            let left = core::iter::from_fn(|| slots.take()).count();
            prop_assert_eq!(left, capacity - used.len());
        }
    }
}
