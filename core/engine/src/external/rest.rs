//! Addresses that two engines share: who assigns their ports, and ports that rest after the end of
//! their mapping, until the other engine has forgotten it.
//!
//! A resting port counts as held, and is in no list of a tick of release. When its rest ends, it
//! gets into such a list for the hold-down, or is free.

use super::{EMPTY, ExternalPorts, HELD, LAST, Mode, NO_POOL};
use crate::AddressRange;
use crate::endpoint::External;
use crate::protocols::protocol_index;
use alloc::vec::Vec;

impl ExternalPorts {
    /// Shares all addresses with another engine: none gives out ports before
    /// [`ExternalPorts::set_assigning`], those that come later neither.
    pub(crate) fn join_pair(&mut self) {
        self.is_of_pair = true;
        self.set_foreign(0..self.slots.len() as u32, true);
    }

    /// Sets whether the addresses of a range give out ports of their pools.
    pub(crate) fn set_assigning(&mut self, range: AddressRange, assigns: bool) {
        let indexes: Vec<u32> =
            range.each().filter_map(|address| self.index(address.to_bits())).collect();
        self.set_foreign(indexes, !assigns);
    }

    fn set_foreign(&mut self, indexes: impl IntoIterator<Item = u32>, is_foreign: bool) {
        let mut changed = Vec::new();
        for index in indexes {
            let slot = &mut self.slots[index as usize];
            if core::mem::replace(&mut slot.is_foreign, is_foreign) == is_foreign {
                continue;
            }
            changed.push(index);
            if slot.pool != NO_POOL && slot.pool == slot.target {
                slot.is_closed = slot.is_draining || is_foreign;
                self.renew_all(index);
            }
        }
        if changed.is_empty() {
            return;
        }
        changed.sort_unstable();
        // The place of an address in a deterministic pool is a part of the arithmetic.
        let pools = self.pools.iter_mut().enumerate();
        for (number, pool) in pools.filter(|(_, pool)| pool.mode != Mode::Deterministic) {
            let is_its = |index: &u32| {
                let slot = &self.slots[*index as usize];
                usize::from(slot.target) == number && !slot.is_draining
            };
            let before = pool.slots.len();
            match is_foreign {
                true => pool.slots.retain(|index| changed.binary_search(index).is_err()),
                false => pool.slots.extend(changed.iter().copied().filter(is_its)),
            }
            if pool.slots.len() != before {
                pool.note_slots();
            }
        }
    }

    /// True if an address gives out ports.
    pub(crate) fn assigns(&self, index: u32) -> bool {
        !self.slots[index as usize].is_closed
    }

    /// Takes a port from its mapping. The port rests.
    pub(crate) fn rest(&mut self, protocol: u8, External { index, port }: External) {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        self.ports[place].owner[entry] = HELD | LAST;
        self.count_held(place, index, true);
        // The limit is that of ports in hold-down.
        self.held -= 1;
        self.resting.insert((place, entry as u32));
    }

    /// Lets a port rest that no mapping here has, at tick `now`. Returns false if a mapping has it.
    pub(crate) fn guard(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        now: u32,
    ) -> bool {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        if self.resting.contains(&(place, entry as u32)) {
            return true;
        }
        self.unhold(protocol, index, port, now);
        if self.ports[place].owner[entry] != EMPTY {
            return false;
        }
        let number = self.pool_of(index);
        self.slots[index as usize].busy += 1;
        if self.ports[place].take_free(index, number, port) {
            self.note_taken(place, index, number, port);
        }
        self.rest(protocol, External { index, port });
        true
    }

    /// Ends the rest of a port at tick `now`. The port is held until tick `until` if its protocol
    /// has a hold-down.
    pub(crate) fn end_rest(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        until: u32,
        now: u32,
    ) {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        // A static mapping may have taken the port since.
        if !self.resting.remove(&(place, entry as u32))
            || self.evicted.remove(&(place, entry as u32)).is_some()
        {
            return;
        }
        self.held += 1;
        if self.ports[place].hold == 0 || self.most_held == 0 || until <= now {
            self.free_held(place, entry, now + 1);
        } else {
            self.hold_until(place, index, port, until);
            self.limit_held(now);
        }
    }

    /// True if a port rests.
    pub(crate) fn rests_at(&self, protocol: u8, External { index, port }: External) -> bool {
        self.resting.contains(&(protocol_index(protocol), Self::entry(index, port) as u32))
    }

    /// Number of ports that rest.
    pub(crate) fn resting(&self) -> usize {
        self.resting.len()
    }
}
