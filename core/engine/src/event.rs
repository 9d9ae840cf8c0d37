//! Reports of the engine besides packets: changes of its state, in order of time.

use crate::Timestamp;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::net::Ipv4Addr;

/// An address and a port (or ICMP query identifier; 0 where the protocol has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// An endpoint of an address in host byte order.
    pub const fn new(address: u32, port: u16) -> Self {
        Self { address: Ipv4Addr::from_bits(address), port }
    }
}

/// Origin of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// By a subscriber's packet.
    Dynamic,
    /// By the operator.
    Static,
    /// By a subscriber's packet, with a port that the subscriber's address tells (RFC 7422).
    Deterministic,
    /// A subscriber's host has asked for it, by PCP or NAT-PMP, and its time has not run out.
    Pcp,
}

impl MappingKind {
    /// Its name in JSON and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Static => "static",
            Self::Deterministic => "deterministic",
            Self::Pcp => "pcp",
        }
    }
}

/// A mapping as events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappingId {
    /// IP protocol number.
    pub protocol: u8,
    /// Number of the realm that the internal endpoint is in.
    pub realm: u16,
    /// Internal endpoint; realm and address are the subscriber.
    pub internal: Endpoint,
    /// External endpoint.
    pub external: Endpoint,
    /// Origin of the mapping.
    pub kind: MappingKind,
}

/// A session as events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    /// Its mapping.
    pub mapping: MappingId,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// The remote endpoint as inside hosts see it.
    pub remote_inside: Endpoint,
}

/// A block of ports and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    /// Number of the subscriber's realm.
    pub realm: u16,
    /// The subscriber.
    pub subscriber: Ipv4Addr,
    /// The external address.
    pub external: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
}

/// The resource of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// TCP mappings, or ports.
    Tcp,
    /// UDP mappings, or ports.
    Udp,
    /// ICMP query mappings and whatever else counts against their quota; of a pool, identifiers.
    Icmp,
    /// DCCP ports of a pool.
    Dccp,
    /// Sessions.
    Sessions,
    /// Blocks of a pool.
    Blocks,
}

impl Resource {
    /// Its name in JSON and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Dccp => "dccp",
            Self::Sessions => "sessions",
            Self::Blocks => "blocks",
        }
    }
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    //= rfc6888#REQ-12
    /// A mapping was made.
    MappingCreated(MappingId),
    /// A mapping went.
    MappingRemoved(MappingId),
    /// A session began; told if [`Config::session_events`](crate::Config::session_events) asks for
    /// it, in every mode of allocation.
    SessionCreated(SessionId),
    /// A session ended.
    SessionRemoved(SessionId),
    //= rfc6888#REQ-14
    /// A subscriber was assigned a block of ports: mappings in it raise nothing.
    BlockAssigned(BlockId),
    /// A subscriber has a block no longer.
    BlockReleased(BlockId),
    /// A subscriber that has mappings was refused another by its port quota or rate; at most one a
    /// second while it has any.
    QuotaReached {
        /// Number of the subscriber's realm.
        realm: u16,
        /// The subscriber.
        subscriber: Ipv4Addr,
        /// IP protocol number.
        protocol: u8,
    },
    /// A subscriber was refused a mapping by what its class may have in all; at most one a second
    /// and class.
    ClassQuotaReached {
        /// Index of the class.
        class: usize,
        /// IP protocol number.
        protocol: u8,
    },
    /// A subscriber has come to a threshold of a limit of its own; at most one a minute while it
    /// has mappings.
    ThresholdReached {
        /// The subscriber's realm.
        realm: u16,
        /// The subscriber.
        subscriber: Ipv4Addr,
        /// The resource that has reached the threshold.
        resource: Resource,
        /// The threshold, percent of the limit.
        percent: u8,
    },
    /// The subscribers of a class have come to a threshold of what they may have in all; at most
    /// one a minute and class.
    ClassThresholdReached {
        /// Index of the class.
        class: usize,
        /// The resource that has reached the threshold.
        resource: Resource,
        /// The threshold, percent of the limit.
        percent: u8,
    },
    /// A pool's use has come to a threshold; at most one a minute and pool.
    PoolThresholdReached {
        /// Index of the pool.
        pool: usize,
        /// The resource: ports for a protocol, or blocks.
        resource: Resource,
        /// The threshold, percent of what there is.
        percent: u8,
    },
    /// No port was free; at most one a second and pool.
    PoolExhausted {
        /// Index of the pool.
        pool: usize,
        /// IP protocol number.
        protocol: u8,
    },
}

impl Change {
    /// Realm and address of the host or the subscriber that the change is about.
    pub fn subject(&self) -> Option<(u16, Ipv4Addr)> {
        match self {
            Self::MappingCreated(id) | Self::MappingRemoved(id) => {
                Some((id.realm, id.internal.address))
            }
            Self::SessionCreated(id) | Self::SessionRemoved(id) => {
                Some((id.mapping.realm, id.mapping.internal.address))
            }
            Self::BlockAssigned(id) | Self::BlockReleased(id) => Some((id.realm, id.subscriber)),
            Self::QuotaReached { realm, subscriber, .. }
            | Self::ThresholdReached { realm, subscriber, .. } => Some((*realm, *subscriber)),
            Self::ClassQuotaReached { .. }
            | Self::ClassThresholdReached { .. }
            | Self::PoolThresholdReached { .. }
            | Self::PoolExhausted { .. } => None,
        }
    }
}

/// A change and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the change.
    pub time: Timestamp,
    /// The change.
    pub change: Change,
}

/// Events that wait to be polled; a ring. An event is written where it stays: one made elsewhere
/// and copied would wait for every write before it that misses the cache.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    ring: Box<[Event; Self::ROOM]>,
    /// Place of the oldest event; then the number of events.
    first: usize,
    len: usize,
    /// Time of the latest event.
    latest: Timestamp,
    /// Events that found no room and must not be lost, oldest first. The ring is full meanwhile.
    beyond: VecDeque<Event>,
    /// True while no event may be lost.
    keeps_all: bool,
}

impl Events {
    /// Largest number of events that wait.
    pub(crate) const ROOM: usize = 2048;

    pub(crate) fn new() -> Self {
        let nothing = Change::PoolExhausted { pool: 0, protocol: 0 };
        let ring = vec![Event { time: Timestamp(0), change: nothing }; Self::ROOM];
        let ring = ring.into_boxed_slice().try_into().expect("the ring has its length");
        let (latest, beyond) = (Timestamp(0), VecDeque::new());
        Self { ring, first: 0, len: 0, latest, beyond, keeps_all: false }
    }

    /// Says whether events beyond [`Events::ROOM`] are kept, too, from now on.
    pub(crate) fn keep_all(&mut self, keeps_all: bool) {
        self.keeps_all = keeps_all;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an event, no earlier than the one before it; `false`: there is no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, time: Timestamp, change: Change) -> bool {
        let room = self.len < Self::ROOM;
        if room {
            self.latest = self.latest.max(time);
            self.ring[(self.first + self.len) % Self::ROOM] = Event { time: self.latest, change };
            self.len += 1;
        }
        room || self.push_beyond(time, change)
    }

    #[cold]
    fn push_beyond(&mut self, time: Timestamp, change: Change) -> bool {
        if self.keeps_all {
            self.latest = self.latest.max(time);
            self.beyond.push_back(Event { time: self.latest, change });
        }
        self.keeps_all
    }

    /// Takes the oldest event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        if self.len == 0 {
            return None;
        }
        let event = self.ring[self.first % Self::ROOM];
        self.len -= 1;
        // An empty ring begins anew: the next events take lines that are in the caches.
        self.first = if self.len == 0 { 0 } else { (self.first + 1) % Self::ROOM };
        if let Some(next) = self.beyond.pop_front() {
            self.ring[(self.first + self.len) % Self::ROOM] = next;
            self.len += 1;
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_must_not_be_lost_come_after_the_others_in_order() {
        let mut events = Events::new();
        let change = |number| Change::PoolExhausted { pool: number, protocol: 0 };
        let full = Events::ROOM;
        (0..full).for_each(|number| assert!(events.push(Timestamp(number as u64), change(number))));
        assert!(!events.push(Timestamp(0), change(full)), "it is lost");
        events.keep_all(true);
        (full..full + 100).for_each(|number| assert!(events.push(Timestamp(0), change(number))));
        events.keep_all(false);
        assert!(!events.push(Timestamp(0), change(0)), "it is lost");
        for number in 0..full + 100 {
            assert_eq!(events.pop().map(|event| event.change), Some(change(number)));
        }
        assert_eq!(events.pop(), None);
        assert!(events.push(Timestamp(0), change(7)));
        assert_eq!(events.pop().map(|event| event.change), Some(change(7)));
    }
}
