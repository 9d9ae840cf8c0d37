//! A quick answer for addresses that certainly are nobody's.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// A bit for each first half of IPv4 addresses that has been added.
#[derive(Debug)]
pub(super) struct FirstHalves(Vec<AtomicU64>);

impl FirstHalves {
    /// No half.
    pub(super) fn none() -> Self {
        Self((0..(1 << 16) / 64).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds the first halves of the addresses from `first` to `last`.
    pub(super) fn add(&self, first: u32, last: u32) {
        for half in first >> 16..=last >> 16 {
            self.0[half as usize / 64].fetch_or(1 << (half % 64), Ordering::Relaxed);
        }
    }

    /// False if certainly no such address has been added.
    #[inline(always)]
    pub(super) fn may_have(&self, ipv4: u32) -> bool {
        let half = ipv4 >> 16;
        let bits = self.0.get(half as usize / 64);
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) >> (half % 64) & 1 == 1)
    }
}

impl Clone for FirstHalves {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|bits| AtomicU64::new(bits.load(Ordering::Relaxed))).collect())
    }
}
