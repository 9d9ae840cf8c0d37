//! A store of slots with room that is reserved at the start.
//!
//! A freed slot is taken again before a slot that was never used. Memory that was never needed is
//! therefore never touched.

use crate::index::PAGE;
use crate::prefetch::prefetch_within;
use alloc::vec::Vec;

/// Free slots that are prefetched before they are taken.
const AHEAD: usize = 8;

/// A store of slots. Room for all is reserved at the start. A slot that was never used was never
/// touched.
#[derive(Clone, Debug)]
pub(super) struct Slots<T> {
    pub(super) slots: Vec<T>,
    capacity: usize,
    /// Slots that were used and are free. They are kept apart, so that the next slots to take are
    /// known ahead.
    free: Vec<u32>,
}

impl<T: Default> Slots<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let (slots, free) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        Self { slots, capacity, free }
    }

    /// Bytes that `capacity` slots take.
    pub(super) fn memory(capacity: usize) -> usize {
        capacity * (size_of::<T>() + size_of::<u32>())
    }

    /// Touches every page that has not been used yet.
    pub(super) fn populate(&mut self) {
        let unused = self.slots.spare_capacity_mut();
        for slot in unused.iter_mut().step_by(PAGE / size_of::<T>()) {
            slot.write(T::default());
        }
        let unused = self.free.spare_capacity_mut();
        for free in unused.iter_mut().step_by(PAGE / size_of::<u32>()) {
            free.write(0);
        }
    }

    /// Prefetches the slots that are taken next.
    #[inline]
    pub(super) fn prefetch_free(&self) {
        for &slot in self.free.iter().rev().take(AHEAD) {
            prefetch_within(&self.slots, slot as usize);
        }
    }

    /// True if a slot is free.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.capacity
    }

    /// Takes a slot.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            if let Some(later) = self.free.last_chunk::<{ AHEAD }>() {
                prefetch_within(&self.slots, later[0] as usize);
            }
            return Some(slot);
        }
        let slot = self.slots.len();
        (slot < self.capacity).then(|| {
            self.slots.push(T::default());
            slot as u32
        })
    }

    /// Gives a slot back. `freed` is its new content.
    pub(super) fn give(&mut self, slot: u32, freed: T) {
        self.slots[slot as usize] = freed;
        self.free.push(slot);
    }
}
