//! Addresses that two engines share: who assigns their ports, and ports that rest after the end of
//! their mapping, until the other engine has forgotten it.
//!
//! A resting port counts as held, and is in no list of a tick of release. When its rest ends, it
//! gets into such a list for the hold-down, or is free. A port that will be free is returning; so
//! is a block in which only returning ports are used or held. The numbers of returning ports and
//! blocks tell how much a pool will get back without a further mapping's end.

use super::{EMPTY, ExternalPorts, HELD, LAST, Mode, NO_POOL};
use crate::calendar::lane;
use crate::endpoint::External;
use crate::protocols::{PROTOCOLS, protocol_index};
use crate::{AddressRange, BlockId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// State of a port after its mapping, or after its rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The port is in hold-down, if the ports of its protocol have one.
    HoldDown,
    /// The port is free at once.
    Free,
}

/// Number of things of which a pool may have too few: ports by the place of their protocol, and
/// blocks in the place after that.
const THINGS: usize = PROTOCOLS.len() + 1;

/// A block with returning ports.
#[derive(Clone, Copy, Debug, Default)]
struct Returning {
    ports: u32,
    /// The pool to which the block returns, if nothing else is used or held in the block, as of the
    /// last end of a mapping. The block may be of another pool since.
    returns_to: Option<usize>,
}

/// A port that rests.
#[derive(Clone, Copy, Debug)]
struct RestingPort {
    after: Rest,
    /// The pool that it returns to, and its block.
    returns_to: Option<(usize, Option<u32>)>,
}

/// Ports of ended mappings that another engine may have a copy of.
#[derive(Clone, Debug, Default)]
pub(super) struct Resting {
    /// By the place of the protocol and the port's entry.
    ports: BTreeMap<(usize, u32), RestingPort>,
    /// Blocks with returning ports.
    blocks: BTreeMap<u32, Returning>,
    /// Blocks to which mappings without a port return that rest, by index of the address.
    portless: BTreeMap<u32, Vec<u32>>,
    /// Numbers of returning things of each pool, without blocks that are returning in part.
    of_pools: Vec<[u32; THINGS]>,
}

impl Resting {
    fn of_pool(&mut self, pool: usize) -> &mut [u32; THINGS] {
        if self.of_pools.len() <= pool {
            self.of_pools.resize(pool + 1, [0; THINGS]);
        }
        &mut self.of_pools[pool]
    }

    /// Takes one of the blocks to which mappings without a port of an address return.
    fn take_portless(&mut self, index: u32) -> Option<u32> {
        let blocks = self.portless.get_mut(&index)?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.portless.remove(&index);
        }
        block
    }
}

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

    /// Takes a port from its mapping. The port rests; `after` is its state after the rest.
    pub(crate) fn rest(&mut self, protocol: u8, External { index, port }: External, after: Rest) {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        self.ports[place].owner[entry] = HELD | LAST;
        self.count_held(place, index, true);
        // The limit is that of ports in hold-down.
        self.held -= 1;
        let returns = after == Rest::Free && self.gives_out(place, index, port);
        let returns_to = returns.then(|| {
            let pool = self.pool_of(index);
            (pool, self.blocks.find(pool, index, port))
        });
        let (rests, key) = (RestingPort { after, returns_to }, (place, entry as u32));
        self.resting.ports.insert(key, rests);
        if let Some((pool, block)) = returns_to {
            self.resting.of_pool(pool)[place] += 1;
            self.return_block(pool, block);
        }
    }

    /// Counts a returning port more in its block, if it has one.
    fn return_block(&mut self, pool: usize, block: Option<u32>) {
        let Some(block) = block else { return };
        let returning = self.resting.blocks.entry(block).or_default();
        returning.ports += 1;
        if returning.returns_to.is_none() && self.blocks.has_busy(block, returning.ports) {
            returning.returns_to = Some(pool);
            self.resting.of_pool(pool)[PROTOCOLS.len()] += 1;
        }
    }

    /// Ends the rest of a port, if it rests. Returns its state after the rest.
    pub(super) fn leave_rest(&mut self, place: usize, entry: usize) -> Option<Rest> {
        let RestingPort { after, returns_to } =
            self.resting.ports.remove(&(place, entry as u32))?;
        if let Some((pool, block)) = returns_to {
            self.resting.of_pool(pool)[place] -= 1;
            self.leave_block(block);
        }
        Some(after)
    }

    /// Counts a returning port less in its block, if it has one.
    fn leave_block(&mut self, block: Option<u32>) {
        if let Some(block) = block
            && let Some(returning) = self.resting.blocks.get_mut(&block)
        {
            returning.ports -= 1;
            if returning.ports == 0 {
                let returns_to = returning.returns_to;
                self.resting.blocks.remove(&block);
                if let Some(pool) = returns_to {
                    self.resting.of_pool(pool)[PROTOCOLS.len()] -= 1;
                }
            }
        }
    }

    /// A mapping without a port has ended at an address. If a host has the whole address, it is in
    /// use until [`ExternalPorts::end_rest_portless`]. Returns its state after the rest then.
    pub(crate) fn rest_portless(&mut self, index: u32, after: Rest) -> Option<Rest> {
        let block = self.shares.then(|| self.whole_block(index)).flatten()?;
        // As with ports, an address returns only if it gives out something.
        let after = if self.assigns(index) { after } else { Rest::HoldDown };
        if after == Rest::Free {
            self.return_block(self.pool_of(index), Some(block));
            self.resting.portless.entry(index).or_default().push(block);
        }
        self.slots[index as usize].resting += 1;
        Some(after)
    }

    /// Ends the rest of a mapping without a port at a whole address, at tick `now`. If no host has
    /// the address, it is held until tick `until`. Returns the address if it is free at once.
    pub(crate) fn end_rest_portless(
        &mut self,
        index: u32,
        after: Rest,
        [now, until]: [u32; 2],
    ) -> Option<BlockId> {
        if after == Rest::Free {
            let block = self.resting.take_portless(index);
            self.leave_block(block);
        }
        // An address that has gone and come again counts no earlier rest.
        let resting = &mut self.slots[index as usize].resting;
        *resting = resting.checked_sub(1)?;
        self.end_portless(index, now + 1);
        if after == Rest::Free {
            return self.release_empty(index, 0);
        }
        self.hold_whole(index, [now, until]);
        None
    }

    /// True if something of an address rests after a mapping.
    pub(crate) fn has_resting(&self, index: u32) -> bool {
        let of_protocol = |place| {
            let (first, last) = (Self::entry(index, 1), Self::entry(index, u16::MAX));
            self.resting.ports.range((place, first as u32)..=(place, last as u32))
        };
        self.slots[index as usize].resting > 0
            || (0..PROTOCOLS.len()).any(|place| of_protocol(place).next().is_some())
    }

    /// Number of returning ports of a pool; `thing` is the place of the protocol. The next place
    /// means blocks.
    pub(crate) fn returning(&self, pool: usize, thing: usize) -> u32 {
        self.resting.of_pools.get(pool).map_or(0, |of_pool| of_pool[thing])
    }

    /// Lets a port rest that no mapping here has, at tick `now`. Returns false if a mapping has it.
    pub(crate) fn guard(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        now: u32,
    ) -> bool {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        if self.is_resting(place, entry) {
            return true;
        }
        self.unhold(protocol, index, port, now);
        if self.ports[place].owner[entry] != EMPTY {
            return false;
        }
        let number = self.pool_of(index);
        self.slots[index as usize].busy += 1;
        match self.ports[place].take_free(index, number, port) {
            true => self.note_taken(place, index, number, port),
            false => self.blocks.held(number, index, port),
        }
        self.rest(protocol, External { index, port }, Rest::HoldDown);
        true
    }

    /// Ends the rest of a port at tick `now`. The port is held until tick `until` if it has a
    /// hold-down, and so is a whole address that no host has. Returns the block that is released,
    /// if the block of a port that is free at once is empty.
    pub(crate) fn end_rest(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        until: u32,
        now: u32,
    ) -> Option<BlockId> {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        let after = self.leave_rest(place, entry)?;
        let is_free = after == Rest::Free || until <= now || !self.has_hold_down_at(place, index);
        // A static mapping may have taken the port since.
        if self.evicted.contains_key(&(place, entry as u32)) {
            match is_free {
                true => _ = self.evicted.remove(&(place, entry as u32)),
                false => self.hold_evicted(place, entry, until),
            }
            return None;
        }
        self.held += 1;
        if !is_free {
            self.hold_until(place, index, port, until);
            self.limit_held(now);
            return None;
        }
        self.free_held(place, entry, now + 1);
        match after {
            Rest::HoldDown => {
                self.hold_whole(index, [now, until]);
                None
            }
            Rest::Free => self.release_empty(index, port),
        }
    }

    /// Begins the hold-down of a port that a static mapping has: it is held for the rest of the
    /// time after the mapping.
    fn hold_evicted(&mut self, place: usize, entry: usize, until: u32) {
        let key = (place, entry as u32);
        if let Some(lingering) = self.lingering.get_mut(&key) {
            lingering.until = Some(until);
            return;
        }
        // `NONE` without its uppermost bit is `LAST`.
        let next = self.ports[place].holds.push(until, lane(key.1), key.1) & !HELD;
        self.evicted.insert(key, next);
    }

    /// True if a port rests.
    pub(crate) fn rests_at(&self, protocol: u8, External { index, port }: External) -> bool {
        self.is_resting(protocol_index(protocol), Self::entry(index, port))
    }

    /// True if the port of an entry rests; `place` is the place of the protocol.
    pub(super) fn is_resting(&self, place: usize, entry: usize) -> bool {
        self.resting.ports.contains_key(&(place, entry as u32))
    }

    /// Number of ports that rest.
    pub(crate) fn resting(&self) -> usize {
        self.resting.ports.len()
    }
}
