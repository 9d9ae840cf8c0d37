//! Epochs: which mappings a new configuration has judged already.
//!
//! A reconfiguration begins an epoch. Each mapping is judged once in it, when a packet needs the
//! mapping or when the sweep reaches it.

use super::{EPOCH, Epoch, Table};

impl Table {
    /// The present epoch.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Begins another epoch, in which no mapping has been asked: all must have been in this one.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch.0 ^= EPOCH;
    }

    /// Whether a mapping has been asked in the present epoch.
    #[inline(always)]
    pub(crate) fn is_asked(&self, slot: u32) -> bool {
        self.mapping(slot).flags & EPOCH == self.epoch.0
    }

    /// Notes that a mapping has been asked.
    pub(crate) fn set_asked(&mut self, slot: u32) {
        let mapping = self.mapping_mut(slot);
        mapping.flags ^= EPOCH;
    }

    /// Whether a slot has a mapping that has not been asked in the present epoch.
    pub(crate) fn is_unasked(&self, slot: u32) -> bool {
        self.mapping(slot).is_live() && !self.is_asked(slot)
    }
}
