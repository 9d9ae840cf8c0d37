//! Epochs: mark the mappings that have been checked against the present configuration.
//!
//! A reconfiguration begins an epoch. Each mapping is checked once in an epoch, when a packet needs
//! the mapping or when the sweep reaches it.

use super::{DOUBTED, EPOCH, Epoch, Mapping, TWICE, Table};

impl Mapping {
    /// A word that is 0 if packets of a protocol that belong to the first session may take the
    /// quick way in this epoch.
    #[inline(always)]
    pub(crate) fn doubts(&self, epoch: Epoch, protocol: u8) -> u64 {
        const JUDGED: u16 = u16::from_le_bytes([0xff, EPOCH | DOUBTED | TWICE]);
        let own = u16::from_le_bytes([self.protocol, self.flags]);
        u64::from((own ^ u16::from_le_bytes([protocol, epoch.0])) & JUDGED)
    }
}

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
