//! The reference model of `natgate-engine`: the NAT in ordered maps, slow and obvious. Tests
//! compare the engine with it, and it is the shortest way to learn the effects of natgate on a
//! packet.
//!
//! The core is NAPT, sessions, TCP, timers and ICMP errors. Its files are in the order of
//! SPECIFICATION.md: first checks and the bytes (`bytes`), from the inside (`outbound`), from the
//! outside (`inbound`), allocation (`allocation`) and limits (`limits`), ICMP errors that pass
//! (`icmp`), own ICMP errors (`errors`), sessions (`sessions`), TCP (`tcp`) and time (`timers`).
//! Optional features are chapters, a file each in `chapters`. A chapter acts only at the decision
//! points in `points`. Without the feature `chapters` the core is complete by itself. The chapters
//! of `families` translate between IPv4 and IPv6 (section 19), with the rest of the model behind
//! them.
//!
//! Calls: [`Model::new`], then [`Model::process`] for each packet and [`Model::advance`] as time
//! passes. Both return the other effects: events, and packets that the translator makes.
//!
//! ```
//! use natgate_engine::{Config, DropReason, Side, Timestamp, Verdict};
//! use natgate_model::Model;
//!
//! let mut model = Model::new(&Config::default(), Timestamp(0));
//! let result = model.process(Timestamp(1), Side::Inside, &[0x60; 40], None);
//! assert_eq!(result.verdict, Verdict::Drop(DropReason::NotIpv4));
//! assert!(model.advance(Timestamp(1_000_000_000), None).events.is_empty());
//! ```
//!
//! The specification leaves some choices to the engine: external address and port, and the held
//! port that is free first. The model takes the engine's choice and checks that it was open. Alone,
//! the model takes the first open choice. Fragments are not modelled.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "chapters"),
    allow(dead_code, reason = "some of the core's state and functions are there for chapters")
)]

mod allocation;
mod bytes;
#[cfg(feature = "chapters")]
mod chapters;
#[cfg(not(feature = "chapters"))]
#[path = "no_chapters.rs"]
mod chapters;
mod errors;
#[cfg(feature = "chapters")]
pub mod families;
mod icmp;
mod inbound;
mod outbound;
mod points;
mod sessions;
mod tcp;
mod timers;
mod view;

pub use allocation::{addresses, has_ports};
#[cfg(feature = "chapters")]
pub use chapters::harness::ends_from_inside;
pub use timers::{StillHeld, tick};

use bytes::{check, ends, icmp_kind, ip, keep_full};
use chapters::{MappingMarks, SessionMarks};
use natgate_engine::{
    Config, Counters, Direction, DropReason, Endpoint, Event, MappingId, MappingKind, Outcome,
    RuleAction, Side, TimeoutSet, Timestamp, Verdict,
};
use points::DecisionPoints as _;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use tcp::{Connection, Segment};

/// The reference translator.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    now: Timestamp,
    mappings: BTreeMap<Key, Mapping>,
    sessions_made: u64,
    /// Resting ports by protocol, and the end of their rest (5.9).
    held: BTreeMap<(u8, Endpoint), Timestamp>,
    /// The external address that a subscriber is paired with in a pool (5.5).
    paired: BTreeMap<(Host, usize), Ipv4Addr>,
    errors: errors::AllRates,
    counters: Counters,
    latest_event: Timestamp,
    made: Effects,
    chapters: chapters::State,
}

/// A subscriber: its realm and its address there (15.2).
pub type Host = (u16, Ipv4Addr);

/// The key by which a packet from inside finds its mapping (3.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    protocol: u8,
    realm: u16,
    internal: Endpoint,
    /// The part of the remote endpoint that the mapping behavior uses.
    remote: Option<Endpoint>,
    /// The external endpoint of a mapping that only its sessions lead to from inside (3.23).
    beside: Option<Endpoint>,
    /// Lower bits of the internal address that tell hosts of one subscriber apart: 0, except in the
    /// realm of NAT64 (19.11).
    host_bits: u8,
}

#[derive(Clone, Debug)]
struct Mapping {
    external: Endpoint,
    kind: MappingKind,
    created: Timestamp,
    /// Timeouts of the rule that made the mapping (9.11).
    timeouts: TimeoutSet,
    sessions: BTreeMap<Endpoint, Session>,
    marks: MappingMarks,
}

#[derive(Clone, Debug)]
struct Session {
    /// Increases from session to session.
    number: u64,
    /// The remote endpoint as seen from inside (13).
    seen: Endpoint,
    /// The side of the packet that made the session.
    made_from: Side,
    /// End of the session's time, not yet moved to a tick.
    expires: Timestamp,
    connection: Connection,
    packets_out: u64,
    packets_in: u64,
    marks: SessionMarks,
}

/// A packet that the translator makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Time of its making.
    pub time: Timestamp,
    /// The side to send it by.
    pub side: Side,
    /// The realm to send it to, if by the inside.
    pub realm: u16,
    /// The packet's bytes. The identification is zero, because the specification leaves it open.
    pub bytes: Vec<u8>,
}

/// Effects of a call besides verdicts.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Events, in order of time.
    pub events: Vec<Event>,
    /// Packets, in order of time.
    pub transmits: Vec<Transmit>,
    /// A choice of the engine that was not open, with the open ones.
    pub illegal: Option<String>,
}

/// The expected result for a packet.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The verdict about the packet.
    pub verdict: Verdict,
    /// The packet's bytes, unless it is dropped.
    pub bytes: Vec<u8>,
    /// The realm that the packet goes to, if it leaves by the inside.
    pub realm: u16,
    /// Events and packets that the translator makes.
    pub made: Effects,
}

/// A packet in the translator.
struct Packet {
    from: Side,
    /// The realm that the packet comes from, if from inside.
    realm: u16,
    /// The realm that the packet goes to, if it leaves by the inside.
    exit: u16,
    direction: Direction,
    received: Vec<u8>,
    bytes: Vec<u8>,
    /// The external endpoint of the mapping that the engine made for the packet.
    choice: Option<Endpoint>,
    /// The remote endpoint as seen from inside.
    seen: Endpoint,
    /// True if its destination has another name outside (13.1).
    aimed: bool,
    /// The rule for the packet (3.5).
    rule: Option<RuleAction>,
}

impl Key {
    /// The subscriber: the first possible one of its hosts.
    fn host(&self) -> Host {
        let mask = u32::MAX << self.host_bits;
        (self.realm, Ipv4Addr::from_bits(self.internal.address.to_bits() & mask))
    }
}

impl Packet {
    fn protocol(&self) -> u8 {
        ip(&self.received).protocol()
    }

    /// True for a SYN without ACK, RST and FIN, or the equivalent of DCCP (9.10).
    fn is_syn(&self) -> bool {
        Segment::of(&self.received).is_some_and(Segment::syn)
    }

    /// Source and destination address of the packet now.
    fn addresses(&self) -> (u32, u32) {
        (ip(&self.bytes).source(), ip(&self.bytes).destination())
    }
}

type Fate = Result<Verdict, DropReason>;

impl Model {
    /// Makes an empty translator.
    pub fn new(config: &Config, now: Timestamp) -> Self {
        let mut model = Self {
            config: config.clone(),
            now,
            mappings: BTreeMap::new(),
            sessions_made: 0,
            held: BTreeMap::new(),
            paired: BTreeMap::new(),
            errors: errors::AllRates::default(),
            counters: Counters::default(),
            latest_event: Timestamp(0),
            made: Effects::default(),
            chapters: chapters::State::new(config, now),
        };
        model.begin();
        model
    }

    /// The expected result for one packet from a side, in a batch of its own. `choice` is the
    /// external endpoint of the mapping that the engine made for the packet, if any.
    pub fn process(
        &mut self,
        now: Timestamp,
        from: Side,
        bytes: &[u8],
        choice: Option<Endpoint>,
    ) -> Expected {
        self.process_in(now, from, 0, bytes, choice)
    }

    /// [`Model::process`] for a packet from a realm, if it comes from inside.
    pub fn process_in(
        &mut self,
        now: Timestamp,
        from: Side,
        realm: u16,
        bytes: &[u8],
        choice: Option<Endpoint>,
    ) -> Expected {
        self.counters.clock_backwards += u64::from(now < self.now); // 1.1
        self.see(now);
        let (direction, realm) = match from {
            Side::Inside => (Direction::Outbound, realm),
            Side::Outside => (Direction::Inbound, 0),
        };
        let mut packet = Packet {
            from,
            realm,
            exit: realm,
            direction,
            received: bytes.to_vec(),
            bytes: Vec::new(),
            choice,
            seen: Endpoint::new(0, 0),
            aimed: false,
            rule: None,
        };
        let fate = self.fate(&mut packet);
        let outcome = match fate {
            Ok(Verdict::Reply(_)) => Outcome::Replied,
            Ok(_) => {
                keep_full(&packet.received, &mut packet.bytes);
                Outcome::Forwarded
            }
            Err(reason) => {
                self.counters.drops[reason as usize] += 1;
                Outcome::Dropped
            }
        };
        self.counters.count(packet.direction, outcome, packet.received.len());
        let verdict = fate.unwrap_or_else(Verdict::Drop);
        let (bytes, realm) = (packet.bytes, packet.exit);
        Expected { verdict, bytes, realm, made: std::mem::take(&mut self.made) }
    }

    /// Decides by section 2, then by 3 or 4.
    fn fate(&mut self, packet: &mut Packet) -> Fate {
        let names_host = packet.from == Side::Inside && self.host_bits(packet.realm).is_some();
        check(&mut packet.received, names_host)?;
        packet.bytes.clone_from(&packet.received);
        self.check_realm(packet)?;
        let (source, destination) = packet.addresses();
        if !names_host && self.is_broadcast(packet, source) {
            return Err(DropReason::MartianSource); // 2.6
        }
        if self.is_broadcast(packet, destination) {
            return Err(DropReason::MartianDestination);
        }
        packet.seen = match icmp_kind(&packet.bytes) {
            None | Some(0 | 8 | 13 | 14) => ends(&packet.bytes, packet.from).1,
            _ => Endpoint::new(source, 0),
        };
        match packet.from {
            Side::Inside => self.way_out(packet),
            Side::Outside => self.way_in(packet),
        }
    }

    /// Time never goes back (1.1).
    fn see(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Raises an event. Events are in order of time (10).
    fn raise(&mut self, time: Timestamp, change: natgate_engine::Change) {
        self.latest_event = self.latest_event.max(time);
        self.made.events.push(Event { time: self.latest_event, change });
    }

    /// Mappings of subscribers: all except static ones.
    fn dynamic(&self) -> impl Iterator<Item = (&Key, &Mapping)> {
        self.mappings.iter().filter(|(_, mapping)| mapping.kind != MappingKind::Static)
    }

    /// Lower bits that tell hosts of one subscriber apart, in the realm of NAT64. Addresses there
    /// only name hosts (19.11).
    fn host_bits(&self, realm: u16) -> Option<u8> {
        let place = usize::from(realm).checked_sub(1)?;
        self.config.realms.get(place)?.host_bits
    }

    /// True if an address is the gateway's own, seen from a realm.
    fn is_own(&self, realm: u16, address: u32) -> bool {
        let inside = self.config.inside_of(realm).address;
        inside.is_some_and(|own| own.to_bits() == address) || self.is_outside_own(address)
    }

    fn is_outside_own(&self, address: u32) -> bool {
        self.config.outside.address.is_some_and(|own| own.to_bits() == address)
    }

    fn is_external(&self, address: u32) -> bool {
        self.pool_with(address).is_some() || self.has_static_external(address)
    }

    /// True if an address is in the inside's own network.
    fn is_inside(&self, realm: u16, address: u32) -> bool {
        self.config.inside_of(realm).network.is_some_and(|network| network.contains(address))
    }

    /// 2.8: true if an address means all hosts of a connected network.
    fn is_broadcast(&self, packet: &Packet, address: u32) -> bool {
        let inside = self.knows_realm(packet).then(|| self.config.inside_of(packet.realm));
        let sides = inside.into_iter().chain([&self.config.outside]);
        let mut networks = sides.filter_map(|side| side.network);
        networks.any(|net| net.len() <= 30 && [net.first(), net.last()].contains(&address))
            && !self.is_external(address)
    }
}

impl Mapping {
    fn id(&self, key: Key) -> MappingId {
        MappingId {
            realm: key.realm,
            protocol: key.protocol,
            internal: key.internal,
            external: self.external,
            kind: self.marks.kind_of(self.kind),
        }
    }
}
