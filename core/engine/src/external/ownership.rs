//! Ownership of external ports that have an owner without a mapping: blocks, shares that
//! follow by arithmetic, and ports in hold-down with the tick of their release.
//!
//! Nothing here changes anything, and nothing here is asked by packets.

use super::{EMPTY, ExternalPorts, HELD, LAST, NONE, Ports, Range, lane};
use crate::blocks::Tenure;
use crate::deterministic::Plan;
use crate::endpoint::External;
use crate::protocols::PROTOCOLS;

/// Ports of a range by protocol, in the order of [`PROTOCOLS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    /// Ports that a mapping has.
    pub(crate) used: [u32; PROTOCOLS.len()],
    /// Ports in hold-down.
    pub(crate) held: [u32; PROTOCOLS.len()],
}

/// Where a search for the release of a held port goes on: a tick, and the next port of its list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseSearch {
    tick: u32,
    /// [`NONE`]: the list of this tick has been looked through.
    next: u32,
}

impl ReleaseSearch {
    /// From the tick after this one on.
    pub(crate) fn after(tick: u32) -> Self {
        Self { tick, next: NONE }
    }
}

/// What a search for the release of a held port has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The port is released at this tick.
    At(u32),
    /// The lists have changed under the search: the port is held, the tick is not known.
    Unknown,
    /// There is more to look through.
    Unfinished,
}

impl ExternalPorts {
    /// Notes since when a subscriber has a block.
    pub(crate) fn note_assigned(&mut self, block: u32, tick: u32) {
        self.blocks.note_since(block, tick);
    }

    /// The block that a port of an address is in, if its pool has blocks.
    pub(crate) fn block_at(&self, index: u32, port: u16) -> Option<u32> {
        self.blocks.find(self.pool_of(index), index, port)
    }

    /// How long the owner of a block has it.
    pub(crate) fn tenure(&self, block: u32) -> Tenure {
        self.blocks.tenure(block)
    }

    /// How many pools are known.
    pub(crate) fn count_pools(&self) -> usize {
        self.pools.len()
    }

    /// The plan of a deterministic pool.
    pub(crate) fn plan(&self, pool: usize) -> Option<&Plan> {
        self.plans.get(pool)
    }

    /// How many ports of an address, first to last, mappings have and how many are held.
    pub(crate) fn in_use(&self, index: u32, (first, last): (u16, u16)) -> InUse {
        let mut in_use = InUse::default();
        if self.slots[index as usize].busy == 0 {
            return in_use;
        }
        let counts = in_use.used.iter_mut().zip(&mut in_use.held);
        for (ports, (used, held)) in self.ports.iter().zip(counts) {
            *held = ports.held_within(index, Range { first, last });
            let entries = Ports::entry(index, first)..=Ports::entry(index, last);
            let taken = ports.owner[entries].iter().filter(|&&owner| owner != EMPTY).count();
            *used = taken as u32 - *held;
        }
        in_use
    }

    /// Whether a port of an address is in hold-down; the protocol is given by its place.
    pub(crate) fn is_held(&self, protocol: usize, index: u32, port: u16) -> bool {
        self.ports[protocol].owner[Ports::entry(index, port)] & HELD != 0
    }

    /// Looks for the tick at which a held port is released; the protocol is given by its place.
    /// Each port that is passed, and each tick, counts one.
    pub(crate) fn find_release(
        &self,
        protocol: usize,
        External { index, port }: External,
        search: &mut ReleaseSearch,
        budget: &mut usize,
    ) -> Release {
        let (ports, sought) = (&self.ports[protocol], Ports::entry(index, port) as u32);
        while *budget > 0 {
            *budget -= 1;
            if search.next == NONE {
                let Some(tick) = ports.holds.next(search.tick + 1) else { return Release::Unknown };
                let next = ports.holds.heads(tick)[lane(sought)];
                *search = ReleaseSearch { tick, next };
                continue;
            }
            if search.next == sought {
                return Release::At(search.tick);
            }
            let owner = ports.owner[search.next as usize];
            let next = match owner & HELD != 0 {
                true => owner & !HELD,
                // A static mapping has the port since.
                false => match self.evicted.get(&(protocol, search.next)) {
                    Some(&next) => next,
                    None => return Release::Unknown,
                },
            };
            search.next = if next == LAST { NONE } else { next };
        }
        Release::Unfinished
    }
}
