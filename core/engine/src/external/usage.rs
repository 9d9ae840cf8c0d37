//! The use of external addresses and pools, counted for surveys and reports.

use super::{EMPTY, ExternalPorts, HELD, PORTS, WORDS, owner_in};
use crate::protocols::{PROTOCOLS, protocol_index};
use crate::{AddressUsage, PoolUsage};
use core::net::Ipv4Addr;

impl ExternalPorts {
    /// Writes a bit for each taken port of an address: used ports, held ports and, in a pool, ports
    /// of static mappings. `None`: there is no such address.
    pub(crate) fn taken(&self, index: u32, protocol: u8, into: &mut [u64]) -> Option<u32> {
        let address = *self.addresses.get(index as usize)?;
        let slot = &self.slots[index as usize];
        let is_of_pool = usize::from(slot.pool) < self.pools.len();
        let (place, ports) = (protocol_index(protocol), &self.ports[protocol_index(protocol)]);
        let free = &ports.free[index as usize * WORDS..][..WORDS];
        let owners = ports.owner[index as usize * PORTS..][..PORTS].chunks(64);
        // A port that is not free is taken, if its address gives it out. Other ports need a look at
        // their owner.
        let words = self.given_out(index, place, 0..WORDS).zip(free).zip(owners);
        for (taken, ((given_out, free), owners)) in into.iter_mut().zip(words) {
            *taken = !free & given_out;
            if given_out != u64::MAX && slot.busy > 0 {
                let is_taken = |&owner: &u32| match is_of_pool {
                    true => owner != EMPTY,
                    false => owner & HELD != 0,
                };
                let bit = |(bit, owner)| u64::from(is_taken(owner)) << bit;
                *taken |= owners.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
            }
        }
        Some(address)
    }

    /// Number of free ports of a pool; `thing` is the place of the protocol. The next place means
    /// blocks.
    pub(crate) fn free_of(&self, pool: usize, thing: usize) -> u32 {
        match self.ports.get(thing) {
            Some(ports) => ports.pool_count[pool].iter().sum(),
            None => self.blocks.nobodys(pool),
        }
    }

    /// Number of held ports of a pool, by the place of their protocol.
    pub(crate) fn held_of(&self, pool: usize) -> [u32; PROTOCOLS.len()] {
        core::array::from_fn(|protocol| self.ports[protocol].pool_held[pool])
    }

    /// Finds the next port of an address, from `from` on, that a mapping has. Returns the mapping's
    /// slot, the number of ports passed, and the number of entries looked at (at most `most`).
    pub(crate) fn next_owned(
        &self,
        protocol: u8,
        index: u32,
        from: u32,
        most: usize,
    ) -> (Option<u32>, u32, usize) {
        let left = PORTS - from as usize;
        if self.slots[index as usize].busy == 0 {
            return (None, left as u32, 1);
        }
        let start = index as usize * PORTS + from as usize;
        let owners = &self.ports[protocol_index(protocol)].owner[start..][..left.min(most)];
        let mut slots = owners.iter().map(|&owner| owner_in(owner));
        match slots.position(|slot| slot.is_some()) {
            Some(at) => (owner_in(owners[at]), at as u32 + 1, at + 1),
            None => (None, owners.len() as u32, owners.len()),
        }
    }

    /// The use of an address, if it is counted with a pool. `subscribers` are paired with the
    /// address.
    pub(crate) fn address_usage(&self, index: u32, subscribers: u32) -> Option<AddressUsage> {
        let slot = &self.slots[index as usize];
        (usize::from(slot.pool) < self.pools.len()).then(|| AddressUsage {
            address: Ipv4Addr::from_bits(self.address(index)),
            pool: usize::from(slot.pool),
            mappings: slot.all_mappings(),
            subscribers,
            used: core::array::from_fn(|protocol| slot.mappings[protocol]),
            free: PROTOCOLS.map(|protocol| {
                let ports = &self.ports[protocol_index(protocol)];
                ports.free_on_side(index, true) + ports.free_on_side(index, false)
            }),
            held: core::array::from_fn(|protocol| self.ports[protocol].held_of(index)),
            blocks: self.blocks.of_address(index),
            draining: slot.is_draining || slot.pool != slot.target,
        })
    }

    /// The use of a pool. `is_static` tells reserved ports of static mappings from used ports.
    pub(crate) fn usage(
        &self,
        pool: usize,
        protocol: u8,
        is_static: impl Fn(u32) -> bool,
    ) -> PoolUsage {
        let (low, high) = self.pools[pool].ports;
        let ports = &self.ports[protocol_index(protocol)];
        let mut usage = PoolUsage::default();
        let addresses = 0..self.slots.len() as u32;
        for index in addresses.filter(|&index| self.pool_of(index) == pool) {
            for port in low..=high {
                let owner = ports.owner[Self::entry(index, port)];
                let state = match owner {
                    EMPTY if ports.is_free(index, port) => &mut usage.free,
                    EMPTY => &mut usage.reserved,
                    _ if owner & HELD != 0 => &mut usage.held,
                    _ if is_static(owner - 1) => &mut usage.reserved,
                    _ => &mut usage.used,
                };
                *state += 1;
            }
        }
        usage
    }
}
