//! Epochs: mark the mappings that have been checked against the present configuration.
//!
//! A reconfiguration begins an epoch. Each mapping is checked once in an epoch, when a packet needs
//! the mapping or when the sweep reaches it.

use super::{EPOCH, Epoch, Table};

impl Table {
    /// The present epoch.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Begins another epoch, in which no mapping has been checked. All must have been checked in
    /// this one.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch.0 ^= EPOCH;
    }

    /// True if a mapping has been checked in the present epoch.
    #[inline(always)]
    pub(crate) fn is_asked(&self, slot: u32) -> bool {
        self.mapping(slot).flags & EPOCH == self.epoch.0
    }

    /// Notes that a mapping has been checked.
    pub(crate) fn set_asked(&mut self, slot: u32) {
        let mapping = self.mapping_mut(slot);
        mapping.flags ^= EPOCH;
    }

    /// True if a slot has a mapping that has not been checked in the present epoch.
    pub(crate) fn is_unasked(&self, slot: u32) -> bool {
        self.mapping(slot).is_live() && !self.is_asked(slot)
    }
}
