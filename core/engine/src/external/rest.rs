//! Addresses that two engines share: who assigns their ports, and ports that rest after the end of
//! their mapping, until the other engine has forgotten it.
//!
//! A resting port is in the lists of held ports. When it is due there, it is held again, unless its
//! rest has ended and the hold-down since then is over.

use super::{EMPTY, ExternalPorts, NO_POOL};
use crate::AddressRange;
use crate::endpoint::External;
use crate::protocols::protocol_index;
use alloc::vec::Vec;

/// Ticks after which a port that rests is looked at again.
const AGAIN: u32 = 8;

impl ExternalPorts {
    /// Sets whether the addresses of a range give out ports of their pools.
    pub(crate) fn set_assigning(&mut self, range: AddressRange, assigns: bool) {
        let mut changed = Vec::new();
        for address in range.each() {
            let Some(index) = self.index(address.to_bits()) else { continue };
            let slot = &mut self.slots[index as usize];
            let is_at_home = slot.pool != NO_POOL && slot.pool == slot.target;
            if !is_at_home || slot.is_closed != assigns {
                continue;
            }
            (slot.is_draining, slot.is_closed) = (!assigns, !assigns);
            changed.push(index);
        }
        changed.sort_unstable();
        for number in 0..self.pools.len() {
            let is_its = |index: &u32| usize::from(self.slots[*index as usize].pool) == number;
            let its: Vec<u32> = changed.iter().copied().filter(is_its).collect();
            if its.is_empty() {
                continue;
            }
            let slots = &mut self.pools[number].slots;
            match assigns {
                true => slots.extend(&its),
                false => slots.retain(|index| its.binary_search(index).is_err()),
            }
        }
        changed.into_iter().for_each(|index| self.renew_all(index));
    }

    /// True if an address gives out ports.
    pub(crate) fn assigns(&self, index: u32) -> bool {
        !self.slots[index as usize].is_closed
    }

    /// Takes a port from its mapping. The port rests, at least until tick `until`.
    pub(crate) fn rest(&mut self, protocol: u8, External { index, port }: External, until: u32) {
        let place = protocol_index(protocol);
        self.ports[place].hold_until(index, port, until);
        self.count_held(place, index, true);
        self.resting.insert((place, Self::entry(index, port) as u32), None);
    }

    /// Ends the rest of a port. It is held until tick `until` if its protocol has a hold-down.
    pub(crate) fn end_rest(&mut self, protocol: u8, index: u32, port: u16, until: u32) {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port) as u32);
        let until = if self.ports[place].hold == 0 { 0 } else { until };
        if let Some(rest) = self.resting.get_mut(&(place, entry)) {
            *rest = Some(until);
        }
    }

    /// Number of ports that rest.
    pub(crate) fn resting(&self) -> usize {
        self.resting.values().filter(|until| until.is_none()).count()
    }

    /// The tick until which a held port that is due stays held. `None`: it becomes free.
    #[inline(always)]
    pub(super) fn rests_until(&mut self, port: (usize, u32), tick: u32) -> Option<u32> {
        if self.resting.is_empty() {
            return None;
        }
        match self.resting.get(&port)? {
            None => Some(tick + AGAIN),
            Some(until) if *until > tick => Some(*until),
            Some(_) => {
                self.resting.remove(&port);
                None
            }
        }
    }

    /// A port is held no longer, because a mapping has it again.
    pub(super) fn forget_rest(&mut self, place: usize, entry: usize) {
        if !self.resting.is_empty() {
            debug_assert_eq!(self.ports[place].owner[entry], EMPTY);
            self.resting.remove(&(place, entry as u32));
        }
    }
}
