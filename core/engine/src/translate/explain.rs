//! What would happen to a packet, and why: the complete way walked without taking it. Nothing is
//! changed, so the engine is borrowed for reading alone, and who asks may ask as often as he likes.
//!
//! The walk (`explain/walk.rs` and the files beside it) asks the same questions in the same order
//! as the complete way, of the same functions wherever those only read, and notes each answer as a
//! [`Step`]. A random test compares its verdict with what [`Engine::process`] says of the same
//! packet right afterwards. Where the complete way draws at random, the walk draws with a copy of
//! the generator: so it knows whether something is found. What would be drawn is not told, for by
//! then it may be another.
//!
//! An [`Explanation`] has its room before the walk begins; explaining allocates nothing.

mod errors;
mod flow;
mod twice;
mod walk;

use super::Engine;
use crate::endpoint::AddressPort;
use crate::limits::LimitOwner;
use crate::limits::Standing;
use crate::packet::{Direction, Packet, Side, Verdict};
use crate::parse::{Headers, Kind, parse};
use crate::rules::Ruling;
use crate::{Behavior, Endpoint, MappingId, Timestamp};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use walk::Walk;

/// Why an external address is the one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChoice {
    /// A rule says it.
    Rule,
    /// The subscriber's other mappings of the pool have it.
    Paired,
    /// The subscriber's ports are there, by its address or by its blocks.
    Share,
    /// A static mapping says it.
    Static,
    /// It would be drawn.
    Drawn,
}

impl AddressChoice {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Paired => "paired",
            Self::Share => "share",
            Self::Static => "static",
            Self::Drawn => "drawn",
        }
    }
}

/// An endpoint, as far as it is known: what would be drawn is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The address.
    pub address: Option<Ipv4Addr>,
    /// The port, or a query's identifier.
    pub port: Option<u16>,
}

/// Something that is asked on a packet's way, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The headers can be read.
    Read {
        /// The protocol.
        protocol: u8,
        /// What it is, in a word or two.
        what: &'static str,
        /// From whom.
        source: End,
        /// To whom.
        destination: End,
    },
    /// A configuration has just come into force and not every mapping has been asked whether it may
    /// stay: one that is told here may go.
    Unsettled,
    /// It comes from a realm, by its number.
    Realm(u16),
    /// It is addressed to the gateway itself.
    Local,
    /// What the rules say of a packet between these endpoints.
    Rule {
        /// The realm whose rules these are.
        realm: u16,
        /// Internal endpoint; port 0 where rules see none.
        inner: Endpoint,
        /// Remote endpoint.
        outer: Endpoint,
        /// The best rule's word; `None`: no rule holds.
        ruling: Option<Ruling>,
    },
    /// A rule or a session sends it to another destination.
    Aimed(Endpoint),
    /// Whether its source is a subscriber.
    Subscriber(bool),
    /// Its destination is an external address: it turns round.
    Hairpin(Ipv4Addr),
    /// Its destination is behind a router of its own realm: it goes there untranslated.
    Inside(Ipv4Addr),
    /// Its destination is an external address of the gateway's.
    External(Ipv4Addr),
    /// It goes by its time to live and its size.
    Transit {
        /// Time to live that it comes with.
        ttl: u8,
        /// Its length, bytes.
        len: u16,
        /// What the next link takes, bytes.
        mtu: u16,
        /// Whether it may not be fragmented.
        dont_fragment: bool,
    },
    /// It is a fragment; whether the first.
    Fragment {
        /// Whether it is the first of its datagram.
        first: bool,
    },
    /// The fragments of its datagram go to where the first went.
    AsFirst,
    /// The mapping that it goes by.
    Mapping {
        /// Which.
        id: MappingId,
        /// Sessions that it has.
        sessions: u32,
        /// When its longest session goes; `None`: never.
        expires: Option<Timestamp>,
    },
    /// No mapping is there that it could go by.
    NoMapping,
    /// The session that it belongs to.
    Session {
        /// Remote endpoint.
        remote: Endpoint,
        /// Its state.
        state: &'static str,
        /// The state after this packet.
        next: &'static str,
        /// When it goes unless refreshed.
        expires: Timestamp,
    },
    /// The mapping has no session with this remote endpoint.
    NoSession(Endpoint),
    /// Whether a packet of its kind may begin a session.
    Opens(bool),
    /// Whether a packet that belongs to no session is let in.
    Filter {
        /// The filtering behavior.
        behavior: Behavior,
        /// Whether the mapping is a static one, which has its own word.
        is_static: bool,
        /// Whether its host has asked for the mapping, and so for whom it is.
        is_asked_for: bool,
        /// Whether it is let in.
        admitted: bool,
    },
    /// One of several servers would get it.
    Service,
    /// The static mapping of a whole address holds.
    Whole(Ipv4Addr),
    /// An ICMP error, and the packet that it is about.
    About {
        /// The protocol of that packet.
        protocol: u8,
        /// Its source.
        source: Endpoint,
        /// Its destination.
        destination: Endpoint,
    },
    /// Something that is limited.
    Standing {
        /// Whose limit it is.
        whose: LimitOwner,
        /// How things are.
        standing: Standing,
        /// Whether it permits the packet.
        permits: bool,
    },
    /// The pool that a new mapping would be of, by the engine's number, and its free ports.
    Pool {
        /// Which.
        pool: usize,
        /// Ports that are free for the protocol; `None`: the protocol has none.
        free: Option<u32>,
    },
    /// The external address of a new mapping.
    Address {
        /// Why it is that.
        why: AddressChoice,
        /// Which, unless it would be drawn.
        address: Option<Ipv4Addr>,
    },
    /// A block of ports would be assigned.
    Block,
    /// A port that is in use would be shared.
    Overload,
    /// Something is scarce: unanswered subscribers would give way before the packet is looked at.
    Reclaim,
    /// The external port of a new mapping; `None`: it would be drawn.
    Port(Option<u16>),
    /// A session would be made.
    NewSession {
        /// Remote endpoint.
        remote: Endpoint,
        /// Its state.
        state: &'static str,
    },
    /// A timer would start; nanoseconds.
    Timer(u64),
    /// No timer would start anew.
    NotRefreshed,
    /// The sender would get an ICMP error, unless the rate of these forbids it.
    Answer {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
        /// Whether that comes six seconds later, unless the connection has come about.
        late: bool,
    },
}

/// What a packet would become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Becomes {
    /// Its source.
    pub source: End,
    /// Its destination.
    pub destination: End,
    /// The number of the realm that it goes to, if it leaves by the inside.
    pub realm: u16,
}

/// What would happen to a packet, step by step.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Its fate.
    pub verdict: Verdict,
    /// What it would be counted as.
    pub direction: Direction,
    /// What it would become, if it lives.
    pub becomes: Option<Becomes>,
    /// Whether the verdict is what it is whatever would be drawn.
    pub is_certain: bool,
    steps: Vec<Step>,
}

impl Default for Explanation {
    fn default() -> Self {
        Self::new()
    }
}

impl Explanation {
    /// Most steps; a packet's way has fewer.
    pub const MOST: usize = 64;

    /// One without a step, that has room for all.
    pub fn new() -> Self {
        Self {
            verdict: Verdict::Held,
            direction: Direction::Outbound,
            becomes: None,
            is_certain: true,
            steps: Vec::with_capacity(Self::MOST),
        }
    }

    /// What was asked, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn note(&mut self, step: Step) {
        if self.steps.len() < Self::MOST {
            self.steps.push(step);
        }
    }
}

impl Engine {
    /// Says what [`Engine::process`] would do with a packet that came in on a side now. Changes
    /// nothing, the packet included.
    pub fn explain(&self, now: Timestamp, from: Side, packet: &Packet<'_>, into: &mut Explanation) {
        into.steps.clear();
        (into.becomes, into.is_certain) = (None, true);
        if self.would_reclaim(self.now.max(now.0)) {
            into.steps.push(Step::Reclaim);
            into.is_certain = false;
        }
        into.direction = crate::packet::direction_from(from);
        let realm = if from == Side::Inside { packet.realm() } else { 0 };
        let fate = parse(packet.bytes()).and_then(|headers| {
            let bytes = &packet.bytes()[..usize::from(headers.total_len)];
            let headers = Headers { realm, ..headers };
            Walk::new(self, now, bytes, headers, into).take(from)
        });
        into.verdict = fate.unwrap_or_else(Verdict::Drop);
    }

    /// The same of [`Engine::process_turned`].
    pub fn explain_turned(&self, now: Timestamp, packet: &Packet<'_>, into: &mut Explanation) {
        into.steps.clear();
        (into.becomes, into.is_certain) = (None, true);
        into.direction = Direction::Hairpin;
        let fate = crate::parse::parse_turned(packet.bytes()).and_then(|headers| {
            let bytes = &packet.bytes()[..usize::from(headers.total_len)];
            let headers = Headers { realm: packet.realm(), turned: true, ..headers };
            Walk::new(self, now, bytes, headers, into).take_turned()
        });
        into.verdict = fate.unwrap_or_else(Verdict::Drop);
    }
}

/// An endpoint in host byte order, known.
fn endpoint(AddressPort { address, port }: AddressPort) -> Endpoint {
    Endpoint::new(address, port)
}

/// What a packet is, in a word or two.
const fn what(kind: Kind) -> &'static str {
    match kind {
        Kind::Tcp => "tcp",
        Kind::Udp => "udp",
        Kind::Dccp => "dccp",
        Kind::IcmpQuery { request: true } => "icmp query",
        Kind::IcmpQuery { request: false } => "icmp reply",
        Kind::IcmpError => "icmp error",
        Kind::IcmpOther => "icmp of a type that is not translated",
        Kind::Portless => "protocol without ports",
        Kind::LaterFragment => "fragment without ports",
    }
}

/// An endpoint of a packet of a kind, as far as it has a port.
fn end(kind: Kind, AddressPort { address, port }: AddressPort) -> End {
    let has_port = matches!(kind, Kind::Tcp | Kind::Udp | Kind::Dccp | Kind::IcmpQuery { .. });
    End { address: Some(Ipv4Addr::from_bits(address)), port: has_port.then_some(port) }
}
