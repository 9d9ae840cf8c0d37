//! Pools that give out whole addresses (sections 5.58 to 5.66 of the specification): a host has an
//! external address of its own while it has mappings, and its ports stay (RFC 2663 section 4.1.1).
//!
//! An address is one block of ports, which also stands for protocols without ports. So assignment,
//! release, events, hand-over and the search for an owner are those of blocks. This file has the
//! differences.

use super::shares::Chosen;
use super::{ExternalPorts, HELD, Range, WORDS, Wish};
use crate::DropReason;
use crate::blocks::HIGH;
use crate::config::Allocation;
use crate::endpoint::External;
use crate::host::Host;
use crate::protocols::protocol_index;
use crate::random::Generator;
use natgate_wire::protocol::DCCP;

/// The port, of DCCP, that is held while a whole address is.
const MARK: u16 = 1;

impl ExternalPorts {
    /// True if a pool gives out whole addresses.
    #[inline]
    pub(crate) fn is_whole(&self, pool: usize) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.is_whole)
    }

    /// The block that is a whole address, if its pool gives out whole addresses.
    pub(super) fn whole_block(&self, index: u32) -> Option<u32> {
        let pool = self.pool_of(index);
        if self.is_whole(pool) { self.blocks.find(pool, index, 0) } else { None }
    }

    /// True if a host has a whole address, used or not.
    pub(crate) fn has_whole_owner(&self, index: u32) -> bool {
        let is_known = self.shares && (index as usize) < self.addresses.len();
        let block = is_known.then(|| self.whole_block(index)).flatten();
        block.is_some_and(|block| self.blocks.owner_of(block).is_some())
    }

    /// The host that has a whole address and uses it.
    pub(crate) fn host_of_whole(&self, index: u32) -> Option<Host> {
        if self.shares { self.blocks.owner_in_use(self.whole_block(index)?) } else { None }
    }

    /// A free port of the host's own address, if the host has an address that gives out ports.
    pub(super) fn choose_at_own(
        &self,
        wish: Wish,
        host: Host,
        generator: &mut Generator,
    ) -> Option<External> {
        let protocol = protocol_index(wish.protocol);
        let mut own = self.blocks.of(host, wish.pool);
        let block = own.find(|&block| self.blocks.free(block, protocol) > 0)?;
        let (index, _) = self.blocks.place_of(block);
        Some(External::new(index, self.port_of_own(index, wish, generator)?))
    }

    /// The internal port if it is free at an address, otherwise any free port.
    pub(super) fn port_of_own(
        &self,
        index: u32,
        wish: Wish,
        generator: &mut Generator,
    ) -> Option<u16> {
        if self.ports[protocol_index(wish.protocol)].is_free(index, wish.internal_port) {
            return Some(wish.internal_port);
        }
        let (first, last) = Allocation::ALL_PORTS;
        self.choose_within(index, Range { first, last }, wish, generator)
    }

    /// Draws an address that no host has and that has free ports of a protocol.
    pub(super) fn draw_whole(
        &self,
        pool: usize,
        protocol: usize,
        generator: &mut Generator,
    ) -> Option<u32> {
        self.blocks.draw_anywhere(pool, HIGH, protocol, generator, |_| true)
    }

    /// Chooses the external address of a mapping without a port: the host's own address, or one
    /// that no host has.
    pub(crate) fn choose_whole_portless(
        &self,
        wish: Wish,
        host: Host,
        generator: &mut Generator,
    ) -> Result<Chosen, DropReason> {
        /// Any protocol with ports: of an address, either all ports are given out or none.
        const ANY: usize = 0;
        let mut own = self.blocks.of(host, wish.pool);
        let chosen = match own.find(|&block| self.blocks.free(block, ANY) > 0) {
            Some(block) => (block, None),
            None => {
                let drawn = self.draw_whole(wish.pool, ANY, generator);
                let drawn = drawn.ok_or(DropReason::PoolExhausted)?;
                (drawn, Some(drawn))
            }
        };
        let (index, _) = self.blocks.place_of(chosen.0);
        Ok(Chosen { external: External::new(index, 0), block: chosen.1 })
    }

    /// Notes a new mapping without a port of an address.
    pub(crate) fn begin_portless(&mut self, index: u32) {
        if self.shares
            && let Some(block) = self.whole_block(index)
        {
            self.blocks.begin_portless(block);
        }
    }

    /// Notes the end of a mapping without a port of an address, at tick `ended`.
    pub(crate) fn end_portless(&mut self, index: u32, ended: u32) {
        if self.shares
            && let Some(block) = self.whole_block(index)
        {
            self.blocks.end_portless(block, self.pool_of(index), ended);
        }
    }

    /// Gives up an address of a pool that no host has and that is not in use. All its ports go, as
    /// words of 64.
    pub(super) fn cede_whole(&mut self, pool: usize) -> Option<(u32, core::ops::Range<usize>)> {
        let is_idle = |index: &&u32| self.blocks.of_address(**index) == Some([0, 1]);
        let index = *self.pools[pool].slots.iter().find(is_idle)?;
        self.pass_on(index, 0..WORDS, false);
        Some((index, 0..WORDS))
    }

    /// Number of ports from 1024 on of a pool's addresses that no host has.
    pub(super) fn free_of_whole(&self, pool: usize) -> u32 {
        self.blocks.nobodys(pool).saturating_mul(u32::from(u16::MAX) - 1023)
    }

    /// Holds a whole address until a tick, if no host has it: one of its ports is held, so no host
    /// gets the address before. `now` is the present tick. An engine that does not share the work
    /// leaves the address with its last host meanwhile.
    pub(crate) fn hold_whole(&mut self, index: u32, [now, until]: [u32; 2]) {
        if !self.is_of_pair || !self.part.is_divided() || !self.slots[index as usize].is_known {
            return;
        }
        let nobodys =
            self.whole_block(index).filter(|block| self.blocks.owner_of(*block).is_none());
        if nobodys.is_none() || until <= now || self.most_held == 0 {
            return;
        }
        let (place, entry) = (protocol_index(DCCP), Self::entry(index, MARK));
        if self.ports[place].owner[entry] & HELD != 0 && !self.is_resting(place, entry) {
            self.unhold(DCCP, index, MARK, now);
        }
        self.hold_all(index, &[(DCCP, MARK)], [now, until]);
    }

    /// True if dynamic mappings have an address.
    pub(crate) fn has_mappings(&self, index: u32) -> bool {
        self.slots[index as usize].all_mappings() > 0
    }

    /// True if the address gives out mappings without ports, and for protocols with ports if the
    /// port is free.
    pub(crate) fn is_free_whole(&self, protocol: u8, index: u32, port: u16) -> bool {
        let is_open = !self.slots[index as usize].is_closed && self.part.has_any(index);
        is_open && (!crate::protocols::has_ports(protocol) || self.is_free(protocol, index, port))
    }
}
