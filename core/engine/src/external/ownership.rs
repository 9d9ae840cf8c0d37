//! Ownership of external ports that have an owner without a mapping: blocks, shares that follow by
//! arithmetic, and ports in hold-down with the tick of their release.
//!
//! These functions change nothing, and the path of packets does not call them.

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

/// State of a search for the release of a held port: a tick, and the next port of its list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseSearch {
    tick: u32,
    /// [`NONE`]: the list of this tick is finished.
    next: u32,
}

impl ReleaseSearch {
    /// Starts the search at the tick after `tick`.
    pub(crate) fn after(tick: u32) -> Self {
        Self { tick, next: NONE }
    }
}

/// Result of a search for the release of a held port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The port is released at this tick.
    At(u32),
    /// The lists have changed during the search: the port is held, and the tick is not known.
    Unknown,
    /// The search is not finished.
    Unfinished,
}

impl ExternalPorts {
    /// Notes the tick since which a subscriber has a block.
    pub(crate) fn note_assigned(&mut self, block: u32, tick: u32) {
        self.blocks.note_since(block, tick);
    }

    /// The block that contains a port of an address, if the pool has blocks.
    pub(crate) fn block_at(&self, index: u32, port: u16) -> Option<u32> {
        self.blocks.find(self.pool_of(index), index, port)
    }

    /// Time since which the owner has a block.
    pub(crate) fn tenure(&self, block: u32) -> Tenure {
        self.blocks.tenure(block)
    }

    /// Number of known pools.
    pub(crate) fn count_pools(&self) -> usize {
        self.pools.len()
    }

    /// The plan of a deterministic pool.
    pub(crate) fn plan(&self, pool: usize) -> Option<&Plan> {
        self.plans.get(pool)
    }

    /// True if a mapping has a port of an address, or a port of the address is in hold-down.
    pub(crate) fn is_busy(&self, index: u32) -> bool {
        self.slots[index as usize].busy > 0
    }

    /// Numbers of ports of an address, from first to last, that mappings have and that are held.
    pub(crate) fn in_use(&self, index: u32, (first, last): (u16, u16)) -> InUse {
        let mut in_use = InUse::default();
        if !self.is_busy(index) {
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

    /// True if a port of an address is in hold-down; `protocol` is the protocol's place.
    pub(crate) fn is_held(&self, protocol: usize, index: u32, port: u16) -> bool {
        self.ports[protocol].owner[Ports::entry(index, port)] & HELD != 0
    }

    /// Searches for the tick at which a held port is released; `protocol` is the protocol's place.
    /// Each port and each tick on the way takes one from `budget`.
    pub(crate) fn find_release(
        &self,
        protocol: usize,
        External { index, port }: External,
        search: &mut ReleaseSearch,
        budget: &mut usize,
    ) -> Release {
        let (ports, sought) = (&self.ports[protocol], Ports::entry(index, port) as u32);
        if let Some(lingering) = self.lingering(protocol, sought) {
            return lingering.until.map_or(Release::Unknown, Release::At);
        }
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
            let lingering = self.lingering(protocol, search.next);
            let next = match (lingering, owner & HELD != 0) {
                (Some(lingering), _) => lingering.next,
                (None, true) => owner & !HELD,
                // A static mapping has taken the port since.
                (None, false) => match self.evicted.get(&(protocol, search.next)) {
                    Some(&next) => next,
                    None => return Release::Unknown,
                },
            };
            search.next = if next == LAST { NONE } else { next };
        }
        Release::Unfinished
    }
}
