//! Addresses that bindings share, so that an address of a customer is told from one outside.

use super::{Binding, hash};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Each shared address in its high half, and the number of its bindings in the low half; 0: free.
///
/// An address without bindings keeps its place, for the next one. Any number of threads may read
/// while one changes.
pub(super) struct SharedAddresses {
    places: Vec<AtomicU64>,
    /// Places in use.
    used: AtomicUsize,
}

impl SharedAddresses {
    /// Room for twice as many addresses as these bindings share.
    pub(super) fn room_for(bindings: &[Binding]) -> Self {
        let shared = bindings.iter().filter(|binding| !binding.sets.is_whole());
        let mut addresses: Vec<u32> = shared.map(|binding| binding.ipv4.to_bits()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let places = addresses.len() * 2 + 16;
        let places = (0..places).map(|_| AtomicU64::new(0)).collect();
        Self { places, used: AtomicUsize::new(0) }
    }

    /// Memory, bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.places[..])
    }

    /// The place of an address, or a free place for it, and the content. `None`: there is no room.
    #[inline]
    fn search(&self, ipv4: u32) -> Option<(&AtomicU64, u64)> {
        let count = self.places.len();
        let first = ((u128::from(hash(u64::from(ipv4) << 32)) * count as u128) >> 64) as usize;
        (0..count).find_map(|step| {
            let place = &self.places[(first + step) % count];
            let content = place.load(Ordering::Acquire);
            (content == 0 || (content >> 32) as u32 == ipv4).then_some((place, content))
        })
    }

    /// True if a binding has an address.
    #[inline]
    pub(super) fn has(&self, ipv4: u32) -> bool {
        self.search(ipv4).is_some_and(|(_, content)| content as u32 != 0)
    }

    /// Counts a new binding of an address; `false`: there is no room.
    pub(super) fn add(&self, ipv4: u32) -> bool {
        let Some((place, content)) = self.search(ipv4) else { return false };
        if content == 0 {
            // A search for an address that is not there ends at a free place, soon.
            let used = self.used.load(Ordering::Relaxed) + 1;
            if used > self.places.len() / 4 * 3 {
                return false;
            }
            self.used.store(used, Ordering::Relaxed);
        }
        let bindings = content as u32 + 1;
        place.store(u64::from(ipv4) << 32 | u64::from(bindings), Ordering::Release);
        true
    }

    /// Counts a removed binding of an address.
    pub(super) fn remove(&self, ipv4: u32) {
        if let Some((place, content)) = self.search(ipv4)
            && content as u32 != 0
        {
            place.store(content - 1, Ordering::Release);
        }
    }
}
