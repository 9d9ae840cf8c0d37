//! Blocks of ports and their owners. They tell the owner of a port without a mapping.
//!
//! Blocks that pools have assigned are passed over in the order of their places. Ranges of
//! deterministic pools follow by arithmetic; they are told for all subscribers of the pool, whether
//! or not they have mappings, in the order configured. Of a pool that is gone from the
//! configuration the ranges in use are told. Subscribers that a filter leaves out are
//! skipped at once. A port of one external address is looked up.

use super::{Cursor, Filter, Sought, Stage};
use crate::Engine;
use crate::external::InUse;
use crate::host::Host;
use crate::time::Timestamp;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Entries of ports in one cache line. Counting this many costs as much as looking at a slot.
const PORTS_A_SLOT: usize = 16;

/// Reason of a block's ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The pool assigned it when the subscriber needed a port.
    Assigned,
    /// A static mapping has a port of the block: the block is never released.
    Static,
    /// The block follows from the subscriber's address (RFC 7422).
    Deterministic,
}

impl BlockKind {
    /// The kind's name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Assigned => "block",
            Self::Static => "static",
            Self::Deterministic => "deterministic",
        }
    }
}

/// A block of ports that a subscriber has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Number of the block's pool, in the engine's numbering.
    pub pool: usize,
    /// The external address.
    pub external: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
    /// Number of the subscriber's realm.
    pub realm: u16,
    /// The subscriber.
    pub subscriber: Ipv4Addr,
    /// Reason of the ownership.
    pub kind: BlockKind,
    /// Ports that mappings have: TCP, UDP, ICMP, DCCP.
    pub used: [u32; 4],
    /// Ports in hold-down: TCP, UDP, ICMP, DCCP.
    pub held: [u32; 4],
    /// Time of the assignment, rounded down to a tick; `None`: not known.
    pub since: Option<Timestamp>,
    /// Time of the release unless a port is taken before; `None`: ports are used or held, or the
    /// block is never released.
    pub expires: Option<Timestamp>,
}

impl BlockInfo {
    /// True if a mapping has a port of the block, or a port of the block is in hold-down.
    fn is_in_use(&self) -> bool {
        self.used.iter().chain(&self.held).any(|&count| count > 0)
    }
}

impl Engine {
    /// Looks at `most` places at most for blocks of subscribers, until the list is full. Returns
    /// true if all places have been looked at. The filter's protocol and remote endpoint do not
    /// count; an external port selects the block that contains it.
    pub fn scan_blocks(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        found: &mut Vec<BlockInfo>,
    ) -> bool {
        let Some(sought) = self.sought(filter) else {
            cursor.stage = Stage::Done;
            return true;
        };
        let mut budget = most;
        if matches!(cursor.stage, Stage::Start) {
            cursor.stage = Stage::Slots(0);
            if let Some((index, port)) = sought.index().zip(sought.port) {
                let info = self.block_with(index, port);
                found.extend(info.filter(|info| self.is_block_sought(info, &sought)));
                cursor.stage = Stage::Done;
            }
        }
        self.pass_over_blocks(cursor, &mut budget, &sought, found);
        self.pass_over_shares(cursor, &mut budget, &sought, found);
        matches!(cursor.stage, Stage::Done)
    }

    fn pass_over_blocks(
        &self,
        cursor: &mut Cursor,
        budget: &mut usize,
        sought: &Sought,
        found: &mut Vec<BlockInfo>,
    ) {
        let Stage::Slots(mut block) = cursor.stage else { return };
        while *budget > 0 && found.len() < found.capacity() {
            let Some(owned) = self.external.owned_block(block) else {
                cursor.stage = Stage::Shares { pool: 0, number: 0 };
                return;
            };
            *budget -= 1;
            if let Some((host, index, ports)) = owned
                && sought.has_host(host)
                && self.has_external(index, sought)
                && has_port(sought, ports)
            {
                found.push(self.describe_block(block, host, (index, ports)));
                *budget = budget.saturating_sub(cost(ports));
            }
            block += 1;
        }
        cursor.stage = Stage::Slots(block);
    }

    /// Tells the ranges that subscribers have by arithmetic, in the order of their numbers.
    fn pass_over_shares(
        &self,
        cursor: &mut Cursor,
        budget: &mut usize,
        sought: &Sought,
        found: &mut Vec<BlockInfo>,
    ) {
        let Stage::Shares { mut pool, mut number } = cursor.stage else { return };
        let pools = self.external.count_pools();
        let (subscribers, external) = (sought.subscribers(), self.external_sought(sought));
        while pool < pools && *budget > 0 && found.len() < found.capacity() {
            *budget -= 1;
            let plan = self.external.plan(pool).filter(|plan| sought.has_realm(plan.realm()));
            let next = plan.and_then(|plan| {
                let (at, subscriber) = plan.next_subscriber(number, subscribers, external)?;
                Some((at, Host::new(plan.realm(), subscriber.to_bits())))
            });
            let Some((at, host)) = next else {
                (pool, number) = (pool + 1, 0);
                continue;
            };
            number = at + 1;
            let Some((index, ports)) = self.share_of(pool, host) else { continue };
            if self.external.is_busy(index) {
                *budget = budget.saturating_sub(cost(ports));
            }
            let info = self.describe_range(host, (index, ports), BlockKind::Deterministic);
            let is_there = self.is_in_force(pool) || info.is_in_use();
            found.extend(Some(info).filter(|i| is_there && self.is_block_sought(i, sought)));
        }
        cursor.stage = if pool >= pools { Stage::Done } else { Stage::Shares { pool, number } };
    }

    /// The block of a subscriber that contains a port of an external address.
    fn block_with(&self, index: u32, port: u16) -> Option<BlockInfo> {
        if let Some(block) = self.external.block_at(index, port) {
            let (host, index, ports) = self.external.owned_block(block)??;
            return Some(self.describe_block(block, host, (index, ports)));
        }
        let pool = self.external.pool_of(index);
        let plan = self.external.plan(pool)?;
        let subscriber = plan.reverse(Ipv4Addr::from_bits(self.external.address(index)), port)?;
        let host = Host::new(plan.realm(), subscriber.to_bits());
        let share = self.share_of(pool, host)?;
        let info = self.describe_range(host, share, BlockKind::Deterministic);
        (self.is_in_force(pool) || info.is_in_use()).then_some(info)
    }

    fn describe_block(&self, block: u32, host: Host, place: (u32, (u16, u16))) -> BlockInfo {
        let tenure = self.external.tenure(block);
        let time = |tick: u32| Timestamp(self.time_of(tick));
        let kind = if tenure.is_pinned { BlockKind::Static } else { BlockKind::Assigned };
        BlockInfo {
            since: tenure.since.map(time),
            expires: tenure.due.map(time),
            ..self.describe_range(host, place, kind)
        }
    }

    /// The external address, by its index, and the ports that a subscriber has of a deterministic
    /// pool. `None`: the address has gone to another pool, too.
    fn share_of(&self, pool: usize, host: Host) -> Option<(u32, (u16, u16))> {
        let (external, ports) = self.external.plan(pool)?.forward(host.ip())?;
        let index = self.external.index(external.to_bits())?;
        (self.external.pool_of(index) == pool).then_some((index, ports))
    }

    /// False for a pool that is gone from the configuration. Its mappings may remain.
    fn is_in_force(&self, pool: usize) -> bool {
        self.config.pools.get(pool).is_some_and(|pool| !pool.addresses.is_empty())
    }

    fn describe_range(
        &self,
        host: Host,
        (index, ports): (u32, (u16, u16)),
        kind: BlockKind,
    ) -> BlockInfo {
        let InUse { used, held } = self.external.in_use(index, ports);
        BlockInfo {
            pool: self.external.pool_of(index),
            external: Ipv4Addr::from_bits(self.external.address(index)),
            ports,
            realm: host.realm(),
            subscriber: host.ip(),
            kind,
            used,
            held,
            since: None,
            expires: None,
        }
    }

    fn is_block_sought(&self, info: &BlockInfo, sought: &Sought) -> bool {
        let index = self.external.index(info.external.to_bits());
        sought.has_host(Host::new(info.realm, info.subscriber.to_bits()))
            && index.is_some_and(|index| self.has_external(index, sought))
            && has_port(sought, info.ports)
    }
}

fn has_port(sought: &Sought, (first, last): (u16, u16)) -> bool {
    sought.port.is_none_or(|port| (first..=last).contains(&port))
}

/// Cost of counting the ports of a block, in slots looked at.
fn cost((first, last): (u16, u16)) -> usize {
    let ports = usize::from(last - first) + 1;
    (ports * crate::protocols::PROTOCOLS.len()).div_ceil(PORTS_A_SLOT)
}
