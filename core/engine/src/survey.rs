//! Surveys of the tables while packets flow: one part each call, with a cursor for the next call.
//!
//! The caller brings the list to fill. A survey never makes the list longer than its capacity.
//! Entries that are made or removed during a survey may be missing; entries that stay are found
//! once. A survey of an external endpoint looks up its port, and a survey of a subscriber without
//! entries looks at nothing. Other surveys pass over the slots in memory order, which is fast.
//! [`Engine::scan_endpoints`] passes over external endpoints in order.

mod blocks;
mod clear;
mod filter;
mod held;

use crate::Engine;
use crate::host::Host;
use crate::protocols::{PROTOCOLS, has_ports, protocol_index};
use crate::table::SessionRef;
use crate::{Endpoint, MappingInfo, Prefix, SessionInfo};
use alloc::vec::Vec;
pub use blocks::{BlockInfo, BlockKind};
use core::net::Ipv4Addr;
pub use filter::Filter;
use filter::Sought;
pub use held::HeldPort;
use natgate_wire::protocol;

/// Position of a survey between two calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    stage: Stage,
    /// The next session of the mapping in `stage`.
    session: Option<(u32, SessionRef)>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Start,
    /// Mappings of one external endpoint, from this place in [`PROTOCOLS`] on.
    Endpoint {
        index: u32,
        port: u16,
        place: usize,
    },
    /// All slots from this one on.
    Slots(u32),
    /// Mappings with a port, in the order of their external endpoints, from this one on.
    Ordered(AtEndpoint),
    /// The deterministic pools from this one on, and of it the subscribers from this number on.
    Shares {
        pool: usize,
        number: u32,
    },
    /// Ports in hold-down, from this place in [`PROTOCOLS`] on.
    Held(held::Search),
    Done,
}

/// A protocol, by its place in [`IN_ORDER`], an address and a port, which may be one beyond the
/// last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct AtEndpoint {
    place: usize,
    address: u32,
    port: u32,
}

/// The protocols that have ports, in the order of their numbers.
const IN_ORDER: [u8; PROTOCOLS.len()] =
    [protocol::ICMP, protocol::TCP, protocol::UDP, protocol::DCCP];

impl Cursor {
    /// A cursor before the mapping of an external endpoint, or before the next mapping, for
    /// [`Engine::scan_endpoints`].
    pub fn at_endpoint(protocol: u8, external: Endpoint) -> Self {
        let place = IN_ORDER.iter().position(|one| *one >= protocol).unwrap_or(IN_ORDER.len());
        let at = match IN_ORDER.get(place) {
            Some(one) if *one == protocol => AtEndpoint {
                place,
                address: external.address.to_bits(),
                port: external.port.into(),
            },
            _ => AtEndpoint { place, address: 0, port: 0 },
        };
        Self { stage: Stage::Ordered(at), session: None }
    }
}

/// A mapping that was found by its external endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByEndpoint(pub MappingInfo);

/// A subscriber that has mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberInfo {
    /// Number of the subscriber's realm.
    pub realm: u16,
    /// The subscriber's address.
    pub address: Ipv4Addr,
    /// Mappings of TCP, of UDP, of all other protocols.
    pub mappings: [u32; 3],
    /// Number of sessions.
    pub sessions: u32,
    /// True until a remote endpoint answers one of the subscriber's packets.
    pub is_unanswered: bool,
    /// The external address of the subscriber's pair, in the pool of its first mapping.
    pub external: Option<Ipv4Addr>,
}

/// Use of an external address of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressUsage {
    /// The address.
    pub address: Ipv4Addr,
    /// Number of the address's pool, in the engine's numbering.
    pub pool: usize,
    /// Dynamic mappings of the address.
    pub mappings: u32,
    /// Subscribers that are paired with the address.
    pub subscribers: u32,
    /// Ports that a new mapping may take: of TCP, UDP, ICMP and DCCP.
    pub free: [u32; 4],
    /// Dynamic mappings with a port: of TCP, UDP, ICMP and DCCP.
    pub used: [u32; 4],
    /// Ports in hold-down.
    pub held: [u32; 4],
    /// Blocks with an owner, and assignable blocks; `None`: the pool has no blocks.
    pub blocks: Option<[u32; 2]>,
    /// True if the address gives out no ports any more.
    pub draining: bool,
}

/// Sizes and limits of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Dynamic mappings.
    pub mappings: u64,
    /// Subscribers with mappings.
    pub subscribers: u64,
    /// Unanswered subscribers.
    pub unanswered: u64,
    /// Sessions beyond the first of each mapping.
    pub further_sessions: u64,
    /// Largest number of dynamic mappings.
    pub most_mappings: u64,
    /// Largest number of subscribers.
    pub most_subscribers: u64,
    /// Largest number of sessions beyond the first of each mapping.
    pub most_further_sessions: u64,
    /// Dynamic mappings made so far: of TCP, of UDP, of all others.
    pub made: [u64; 3],
    /// Dynamic mappings removed so far: of TCP, of UDP, of all others.
    pub gone: [u64; 3],
    /// Number of times that a host without mappings made one.
    pub subscribers_made: u64,
}

impl Totals {
    /// Adds the totals of another engine.
    pub fn add(&mut self, other: &Self) {
        self.mappings += other.mappings;
        self.subscribers += other.subscribers;
        self.unanswered += other.unanswered;
        self.further_sessions += other.further_sessions;
        self.most_mappings += other.most_mappings;
        self.most_subscribers += other.most_subscribers;
        self.most_further_sessions += other.most_further_sessions;
        for kind in 0..self.made.len() {
            self.made[kind] += other.made[kind];
            self.gone[kind] += other.gone[kind];
        }
        self.subscribers_made += other.subscribers_made;
    }
}

impl Engine {
    /// Number of mappings, subscribers and sessions, and their limits.
    pub fn totals(&self) -> Totals {
        let (mappings, further) = (self.table.filled(), self.table.further_filled());
        let subscribers = self.subscribers.filled();
        Totals {
            mappings: mappings.used as u64,
            subscribers: subscribers.used as u64,
            unanswered: self.subscribers.unanswered.subscribers().into(),
            further_sessions: further.used as u64,
            most_mappings: mappings.most as u64,
            most_subscribers: subscribers.most as u64,
            most_further_sessions: further.most as u64,
            made: self.made,
            gone: self.gone,
            subscribers_made: self.subscribers.made(),
        }
    }

    /// Looks at `most` slots at most for mappings, until the list is full. Returns true if all
    /// slots have been looked at.
    pub fn scan_mappings(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        found: &mut Vec<MappingInfo>,
    ) -> bool {
        let mut budget = most;
        while found.len() < found.capacity() {
            let Some(slot) = self.next_match(cursor, &mut budget, filter) else { break };
            let mapping = self.describe(slot);
            // The description has visited the mapping's sessions.
            budget = budget.saturating_sub(mapping.sessions as usize);
            found.push(mapping);
        }
        matches!(cursor.stage, Stage::Done)
    }

    /// Looks at `most` external ports at most for mappings, in the order of protocol number,
    /// external address and port, until the list is full. Returns true if all ports have been
    /// looked at. The list has one of the mappings that share an external endpoint, and no mappings
    /// of protocols without ports.
    pub fn scan_endpoints(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        found: &mut Vec<ByEndpoint>,
    ) -> bool {
        let mut at = match (cursor.stage, self.sought(filter)) {
            (Stage::Start, Some(_)) => AtEndpoint::default(),
            (Stage::Ordered(at), Some(_)) => at,
            _ => AtEndpoint { place: IN_ORDER.len(), ..AtEndpoint::default() },
        };
        let sought = self.sought(filter);
        let mut budget = most;
        while at.place < IN_ORDER.len() && budget > 0 && found.len() < found.capacity() {
            let Some((address, index)) = self.external.address_from(at.address) else {
                at = AtEndpoint { place: at.place + 1, address: 0, port: 0 };
                continue;
            };
            let port = if address == at.address { at.port } else { 0 };
            let protocol = IN_ORDER[at.place];
            let (next, passed, looked) = self.external.next_owned(protocol, index, port, budget);
            budget -= looked.min(budget);
            at = AtEndpoint { address, port: port + passed, ..at };
            if at.port > u32::from(u16::MAX) {
                at = match address.checked_add(1) {
                    Some(address) => AtEndpoint { address, port: 0, ..at },
                    None => AtEndpoint { place: at.place + 1, address: 0, port: 0 },
                };
            }
            let is_meant = |slot: &u32| {
                sought.as_ref().is_some_and(|sought| {
                    self.is_sought(*slot, sought) && self.has_remote(*slot, sought, &mut budget)
                })
            };
            if let Some(slot) = next.filter(is_meant) {
                let mapping = self.describe(slot);
                budget = budget.saturating_sub(mapping.sessions as usize);
                found.push(ByEndpoint(mapping));
            }
        }
        let is_done = at.place >= IN_ORDER.len();
        cursor.stage = if is_done { Stage::Done } else { Stage::Ordered(at) };
        is_done
    }

    /// Visits `most` sessions at most of the mappings that [`Engine::scan_mappings`] finds. Tells
    /// the internal address of each, and the remote address as seen inside. No session is missed
    /// that is there from the first call to the last. A session may be visited twice.
    pub fn scan_remotes(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        mut visit: impl FnMut(Ipv4Addr, Ipv4Addr),
    ) -> bool {
        let mut budget = most;
        let mut at = self.resume(cursor, filter).and_then(|(slot, next)| Some((slot, next?)));
        while budget > 0 {
            let next = self.next_latest(cursor, at.take(), &mut budget, filter);
            let Some((slot, session)) = next else { break };
            let internal = self.table.mapping(slot).internal().host.ip();
            let remote = self.seen(slot, self.table.session(session).remote());
            visit(internal, Ipv4Addr::from_bits(remote.address));
            budget = budget.saturating_sub(1);
            at = self.table.session_before(slot, session).map(|before| (slot, before));
        }
        cursor.session = at;
        matches!((cursor.stage, at), (Stage::Done, None))
    }

    /// [`Engine::scan_mappings`] for sessions, each with its mapping.
    pub fn scan_sessions(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        found: &mut Vec<(SessionInfo, MappingInfo)>,
    ) -> bool {
        let mut budget = most;
        let mut of: Option<(u32, MappingInfo)> = None;
        while found.len() < found.capacity() {
            let Some((slot, session)) = self.next_session(cursor, &mut budget, filter) else {
                break;
            };
            let mapping = match of {
                Some((known, mapping)) if known == slot => mapping,
                _ => {
                    let mapping = self.describe(slot);
                    budget = budget.saturating_sub(mapping.sessions as usize);
                    mapping
                }
            };
            of = Some((slot, mapping));
            found.push((self.describe_session(slot, mapping.id, session), mapping));
        }
        matches!((cursor.stage, cursor.session), (Stage::Done, None))
    }

    /// Looks at `most` records at most for subscribers that have mappings. The filter's realm,
    /// subscriber and external address count; the external address is the address of the
    /// subscriber's pair.
    pub fn scan_subscribers(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        found: &mut Vec<SubscriberInfo>,
    ) -> bool {
        let mut budget = most;
        let mut next = match cursor.stage {
            Stage::Start => 0,
            Stage::Slots(next) => next,
            _ => return true,
        };
        let end = self.subscribers.extent();
        let host = self.sought_host(filter).filter(|_| next == 0);
        if let Some(host) = host {
            let record = self.subscribers.find(host);
            let info = record.and_then(|at| self.describe_subscriber(at));
            found.extend(info.filter(|info| fits_subscriber(filter, info)));
            next = end;
        }
        while next < end && budget > 0 && found.len() < found.capacity() {
            let info = self.describe_subscriber(next);
            found.extend(info.filter(|info| fits_subscriber(filter, info)));
            (next, budget) = (next + 1, budget - 1);
        }
        cursor.stage = if next < end { Stage::Slots(next) } else { Stage::Done };
        next >= end
    }

    /// Looks at `most` external addresses at most for addresses that are counted with a pool. The
    /// filter's external address counts.
    pub fn scan_addresses(
        &self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
        found: &mut Vec<AddressUsage>,
    ) -> bool {
        let mut next = match cursor.stage {
            Stage::Start => 0,
            Stage::Slots(next) => next,
            _ => return true,
        };
        let end = self.external.count_addresses() as u32;
        let mut budget = most;
        while next < end && budget > 0 && found.len() < found.capacity() {
            let tenants = self.subscribers.tenants().get(next as usize).copied();
            let usage = self.external.address_usage(next, tenants.unwrap_or_default());
            let fits = |usage: &AddressUsage| {
                filter.external.is_none_or(|prefix| prefix.contains(usage.address.to_bits()))
            };
            found.extend(usage.filter(fits));
            (next, budget) = (next + 1, budget - 1);
        }
        cursor.stage = if next < end { Stage::Slots(next) } else { Stage::Done };
        next >= end
    }

    /// Number of dynamic mappings made so far.
    pub fn mappings_made(&self) -> u64 {
        self.made.iter().sum()
    }

    /// Number of dynamic mappings with an address of a pool: of TCP, UDP, ICMP, DCCP and others.
    pub fn pool_used(&self, pool: usize) -> [u64; 5] {
        self.used[pool]
    }

    /// Number of a pool's ports that a new mapping may take, by protocol: TCP, UDP, ICMP and DCCP;
    /// and number of assignable blocks, if the pool has blocks.
    pub fn pool_free(&self, pool: usize) -> ([u32; 4], Option<u32>) {
        let free = core::array::from_fn(|protocol| self.external.free_of(pool, protocol));
        let blocks = self.external.has_blocks(pool);
        (free, blocks.then(|| self.external.free_of(pool, PROTOCOLS.len())))
    }

    /// Number of a pool's ports in hold-down: of TCP, UDP, ICMP and DCCP.
    pub fn pool_held(&self, pool: usize) -> [u32; 4] {
        self.external.held_of(pool)
    }

    fn describe_subscriber(&self, record: u32) -> Option<SubscriberInfo> {
        let (host, has, paired) = self.subscribers.present(record)?;
        Some(SubscriberInfo {
            realm: host.realm(),
            address: host.ip(),
            mappings: has.mappings,
            sessions: has.sessions(),
            is_unanswered: self.subscribers.is_unanswered(record),
            external: paired.map(|index| Ipv4Addr::from_bits(self.external.address(index))),
        })
    }

    /// The next slot with a mapping that the filter accepts.
    fn next_match(&self, cursor: &mut Cursor, budget: &mut usize, filter: &Filter) -> Option<u32> {
        let Some(sought) = self.sought(filter) else {
            cursor.stage = Stage::Done;
            return None;
        };
        loop {
            match &mut cursor.stage {
                Stage::Start => cursor.stage = self.first_stage(&sought),
                Stage::Endpoint { place, .. } if *place == PROTOCOLS.len() => {
                    cursor.stage = Stage::Done;
                }
                Stage::Endpoint { index, port, place } => {
                    let owner = self.external.owner(PROTOCOLS[*place], *index, *port);
                    *place += 1;
                    *budget = budget.saturating_sub(1);
                    let owner = owner.filter(|&slot| self.is_sought(slot, &sought));
                    if let Some(slot) = owner.filter(|&slot| self.has_remote(slot, &sought, budget))
                    {
                        return Some(slot);
                    }
                }
                Stage::Slots(next) => {
                    let end = self.table.extent();
                    let until = end.min(next.saturating_add(*budget as u32));
                    let slot = (*next..until).find(|&slot| self.is_sought(slot, &sought));
                    let passed = slot.map_or(until, |slot| slot + 1);
                    *budget -= (passed.max(*next) - *next) as usize;
                    *next = passed;
                    if slot.is_none() && *next >= end {
                        cursor.stage = Stage::Done;
                        return None;
                    }
                    let slot = slot.filter(|&slot| self.has_remote(slot, &sought, budget));
                    if slot.is_some() || *budget == 0 {
                        return slot;
                    }
                }
                // Positions of other scans do not continue here.
                _ => return None,
            }
        }
    }

    /// The mapping that the last call has left in the middle, if the filter still accepts it, and
    /// its session to go on with: the next one towards the session in the mapping's own line. If
    /// that one has gone, it is the latest again, so no session is passed over.
    fn resume(&self, cursor: &mut Cursor, filter: &Filter) -> Option<(u32, Option<SessionRef>)> {
        let (slot, session) = cursor.session.take()?;
        if !self.is_sought(slot, &self.sought(filter)?) {
            return None;
        }
        let is_there = self.table.is_of(session, slot);
        Some((slot, if is_there { Some(session) } else { self.table.last_session(slot) }))
    }

    /// The session to go on with: `at`, or the latest session of the next mapping that the filter
    /// accepts.
    fn next_latest(
        &self,
        cursor: &mut Cursor,
        at: Option<(u32, SessionRef)>,
        budget: &mut usize,
        filter: &Filter,
    ) -> Option<(u32, SessionRef)> {
        if at.is_some() {
            return at;
        }
        loop {
            let slot = self.next_match(cursor, budget, filter)?;
            // A static mapping may have no session.
            if let Some(session) = self.table.last_session(slot) {
                return Some((slot, session));
            }
        }
    }

    /// The next session that the filter accepts, with its mapping's slot.
    fn next_session(
        &self,
        cursor: &mut Cursor,
        budget: &mut usize,
        filter: &Filter,
    ) -> Option<(u32, SessionRef)> {
        let Some(sought) = self.sought(filter) else {
            *cursor = Cursor { stage: Stage::Done, session: None };
            return None;
        };
        loop {
            // The session may have been removed since the last call, and its slot may have another
            // session.
            let is_there = |&(slot, session): &(u32, SessionRef)| {
                self.is_sought(slot, &sought) && self.table.is_of(session, slot)
            };
            if let Some((slot, session)) = cursor.session.take().filter(is_there) {
                let next = self.table.session_after(slot, session);
                cursor.session = next.map(|next| (slot, next));
                *budget = budget.saturating_sub(1);
                if self.is_remote_sought(session, &sought) {
                    return Some((slot, session));
                }
                if *budget == 0 {
                    return None;
                }
                continue;
            }
            let slot = self.next_match(cursor, budget, filter)?;
            cursor.session = self.table.sessions(slot).next().map(|session| (slot, session));
        }
    }

    /// Start of a survey: at an external endpoint, if the filter gives one; at the end, if the
    /// filter's subscriber has no entries.
    fn first_stage(&self, sought: &Sought) -> Stage {
        let has_nothing = |host: Host| {
            self.subscribers.find(host).is_none() && self.static_hosts.binary_search(&host).is_err()
        };
        // Former static mappings are removed once all mappings have been checked.
        if self.sweep.is_done() && sought.host().is_some_and(has_nothing) {
            return Stage::Done;
        }
        let Some((index, port)) = sought.index().zip(sought.port.filter(|&port| port != 0)) else {
            return Stage::Slots(0);
        };
        // The port's owner is only one of several mappings that share the port.
        let is_one = |protocol: &u8| {
            let owner = self.external.owner(*protocol, index, port);
            owner.is_none_or(|slot| {
                !self.table.mapping(slot).shares_external() && !self.rings.has(slot)
            })
        };
        match sought.protocol {
            Some(protocol) if !has_ports(protocol) => Stage::Slots(0),
            Some(protocol) if is_one(&protocol) => {
                let place = protocol_index(protocol);
                Stage::Endpoint { index, port, place }
            }
            None if PROTOCOLS.iter().all(is_one) => Stage::Endpoint { index, port, place: 0 },
            _ => Stage::Slots(0),
        }
    }
}

fn fits_subscriber(filter: &Filter, info: &SubscriberInfo) -> bool {
    let has = |prefix: Prefix, address: Ipv4Addr| prefix.contains(address.to_bits());
    filter.realm.is_none_or(|realm| realm == info.realm)
        && filter.subscriber.is_none_or(|prefix| has(prefix, info.address))
        && filter
            .external
            .is_none_or(|prefix| info.external.is_some_and(|address| has(prefix, address)))
}
