//! The explanation of a packet's fate: the decision of the complete way (`decide.rs`) with a
//! recorder that keeps its steps. The plan is not carried out. Nothing changes, so the engine is
//! borrowed for reading alone, and a caller may ask as often as it likes.
//!
//! A plan leaves two questions open until it is carried out; an explanation asks the tables
//! instead: the fate of a fragment other than the first, and whether the first gets an
//! identification. An explanation has no random values, because later ones may differ. A random
//! test compares the verdict with the verdict of [`Engine::process`] for an equal packet right
//! afterwards.
//!
//! An [`Explanation`] has its room before the decision begins; explaining allocates nothing.

use super::decide::{Decision, Recorder};
use super::plan::{Act, Plan, Unsettled};
use super::{Engine, Fate};
use crate::endpoint::AddressPort;
use crate::fragments::{Fragment, Later};
use crate::limits::{LimitOwner, Standing};
use crate::packet::{Direction, Packet, Side, Verdict, direction_from};
use crate::parse::{Headers, Kind, parse, parse_turned};
use crate::rules::Ruling;
use crate::{Behavior, DropReason, Endpoint, MappingId, Timestamp};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Reason for an external address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChoice {
    /// A rule gives the address.
    Rule,
    /// The subscriber's other mappings of the pool have it.
    Paired,
    /// The subscriber's ports are there, by its address or by its blocks.
    Share,
    /// A static mapping says it.
    Static,
    /// The address would be drawn at random.
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
        /// Its kind, in a word or two.
        what: &'static str,
        /// Endpoint of the sender.
        source: End,
        /// Endpoint of the receiver.
        destination: End,
    },
    /// A configuration has just come into force and has not checked every mapping: a mapping that
    /// is named here may go.
    Unsettled,
    /// The packet comes from a realm, by its number.
    Realm(u16),
    /// The packet is addressed to the gateway itself.
    Local,
    /// The rule for a packet between these endpoints.
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
    /// True if the packet's source is a subscriber.
    Subscriber(bool),
    /// The packet's destination is an external address: it turns round.
    Hairpin(Ipv4Addr),
    /// The packet's destination is behind a router of its own realm: it goes there untranslated.
    Inside(Ipv4Addr),
    /// The packet's destination is an external address of the gateway's.
    External(Ipv4Addr),
    /// The check of the packet's time to live and size.
    Transit {
        /// Time to live that it comes with.
        ttl: u8,
        /// Its length, bytes.
        len: u16,
        /// Longest packet of the next link, bytes.
        mtu: u16,
        /// True if the packet may not be fragmented.
        dont_fragment: bool,
    },
    /// The packet is a fragment.
    Fragment {
        /// True if the fragment is the first of its datagram.
        first: bool,
    },
    /// The fragments of its datagram go to where the first went.
    AsFirst,
    /// The mapping that the packet goes by.
    Mapping {
        /// The mapping.
        id: MappingId,
        /// Sessions that it has.
        sessions: u32,
        /// Time at which its longest session ends; `None`: never.
        expires: Option<Timestamp>,
    },
    /// No mapping fits the packet.
    NoMapping,
    /// The session that it belongs to.
    Session {
        /// Remote endpoint.
        remote: Endpoint,
        /// Its state.
        state: &'static str,
        /// The state after this packet.
        next: &'static str,
        /// Time at which the session ends unless refreshed.
        expires: Timestamp,
    },
    /// The mapping has no session with this remote endpoint.
    NoSession(Endpoint),
    /// True if a packet of this kind may begin a session.
    Opens(bool),
    /// The filter's answer for a packet that belongs to no session.
    Filter {
        /// The filtering behavior.
        behavior: Behavior,
        /// True if the mapping is static: its own setting says if it admits the packet.
        is_static: bool,
        /// True if a host has requested the mapping: the request says which remote endpoints it
        /// admits.
        is_asked_for: bool,
        /// True if the packet is let in.
        admitted: bool,
    },
    /// The packet would open a connection in the place of a closed session, and the server of that
    /// session takes no new ones: the session would end.
    Reopened,
    /// One of several servers would get the packet.
    Service,
    /// The static mapping of a whole address holds.
    Whole(Ipv4Addr),
    /// A host has the whole address while it has mappings.
    Owner(Ipv4Addr),
    /// An ICMP error, and the packet that it is about.
    About {
        /// The protocol of that packet.
        protocol: u8,
        /// Its source.
        source: Endpoint,
        /// Its destination.
        destination: Endpoint,
    },
    /// A limit that is checked.
    Standing {
        /// Owner of the limit.
        whose: LimitOwner,
        /// The limit and the amount in use.
        standing: Standing,
        /// True if the limit permits the packet.
        permits: bool,
    },
    /// The pool that a new mapping would be of, by the engine's number, and its free ports.
    Pool {
        /// Number of the pool.
        pool: usize,
        /// Ports that are free for the protocol; `None`: the protocol has none.
        free: Option<u32>,
    },
    /// The external address of a new mapping.
    Address {
        /// Reason for the address.
        why: AddressChoice,
        /// The address; `None`: it would be drawn.
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
        /// True if the error comes six seconds later, unless the connection has come about.
        late: bool,
    },
}

/// The packet after its translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Becomes {
    /// Its source.
    pub source: End,
    /// Its destination.
    pub destination: End,
    /// The number of the realm that it goes to, if it leaves by the inside.
    pub realm: u16,
}

/// The fate of a packet, step by step.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Its fate.
    pub verdict: Verdict,
    /// Direction under which the packet would be counted.
    pub direction: Direction,
    /// The packet after its translation, if it is not dropped.
    pub becomes: Option<Becomes>,
    /// True if random draws cannot change the verdict.
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

    /// An explanation without steps, with room for all.
    pub fn new() -> Self {
        Self {
            verdict: Verdict::Held,
            direction: Direction::Outbound,
            becomes: None,
            is_certain: true,
            steps: Vec::with_capacity(Self::MOST),
        }
    }

    /// Steps of the decision, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn begin(&mut self, direction: Direction) {
        self.steps.clear();
        (self.becomes, self.is_certain, self.direction) = (None, true, direction);
    }

    /// Two flags: true if the address, or the port, of a new mapping would be drawn at random.
    fn drawn(&self) -> (bool, bool) {
        let is_noted = |step: fn(&Step) -> bool| self.steps.iter().any(step);
        (
            is_noted(|step| matches!(step, Step::Address { address: None, .. })),
            is_noted(|step| matches!(step, Step::Port(None))),
        )
    }
}

impl Recorder for Explanation {
    const KEEPS: bool = true;

    fn note(&mut self, step: Step) {
        if self.steps.len() < Self::MOST {
            self.steps.push(step);
        }
    }

    fn doubt(&mut self) {
        self.is_certain = false;
    }
}

impl Engine {
    /// Says what [`Engine::process`] would do with a packet that came in on a side now. Changes
    /// nothing, the packet included.
    pub fn explain(&self, now: Timestamp, from: Side, packet: &Packet<'_>, into: &mut Explanation) {
        into.begin(direction_from(from));
        if self.would_reclaim(self.now.max(now.0)) {
            into.note(Step::Reclaim);
            into.doubt();
        }
        let realm = if from == Side::Inside { packet.realm() } else { 0 };
        let fate = parse(packet.bytes()).and_then(|headers| {
            let bytes = &packet.bytes()[..usize::from(headers.total_len)];
            let packet = (bytes, Headers { realm, ..headers });
            self.foretell(now, from, packet, |it| it.take(), into)
        });
        into.verdict = fate.unwrap_or_else(Verdict::Drop);
    }

    /// Says what [`Engine::process_turned`] would do with a packet now. Changes nothing, the packet
    /// included.
    pub fn explain_turned(&self, now: Timestamp, packet: &Packet<'_>, into: &mut Explanation) {
        into.begin(Direction::Hairpin);
        let fate = parse_turned(packet.bytes()).and_then(|headers| {
            let bytes = &packet.bytes()[..usize::from(headers.total_len)];
            let packet = (bytes, Headers { realm: packet.realm(), turned: true, ..headers });
            self.foretell(now, Side::Inside, packet, |it| it.take_turned(), into)
        });
        into.verdict = fate.unwrap_or_else(Verdict::Drop);
    }

    /// Decides about a packet, keeps the steps, and says what carrying the plan out would come to.
    fn foretell(
        &self,
        now: Timestamp,
        from: Side,
        (bytes, mut headers): (&[u8], Headers),
        decide: impl FnOnce(&mut Decision<'_, Explanation>) -> Result<(), Unsettled>,
        into: &mut Explanation,
    ) -> Fate {
        let (now, draws) = (self.now.max(now.0), &mut None);
        let mut plan = Plan::new(into.direction, headers.realm);
        let mut decision = Decision {
            engine: self,
            now,
            bytes,
            headers: &mut headers,
            from,
            draws,
            recorder: into,
            plan: &mut plan,
        };
        let mut decided = decide(&mut decision);
        if let Act::Turn(by, index) = decision.plan.act {
            // The session of the sender may be a condition of the decision about the receiver.
            decision.recorder.is_certain &= !by.makes_session();
            decided = decision.take_turning(index, self.external_by(&by));
        }
        assert!(decided.is_ok(), "an explanation takes as it is what a reload left undone");
        into.direction = plan.direction;
        let verdict = plan.fate?;
        if let Act::Later(fragment) = plan.act {
            return self.foretell_later(&fragment, (bytes.len(), headers.kind), into);
        }
        let ends = self.ends(&headers, &plan.act, into.drawn());
        if plan.first.is_some() {
            self.foretell_identification(now, &headers, &ends, into)?;
        }
        into.becomes = Some(ends.becomes(headers.kind, plan.leaving));
        Ok(verdict)
    }

    /// The fate of a fragment other than the first, of this length in bytes.
    fn foretell_later(
        &self,
        fragment: &Fragment,
        (len, kind): (usize, Kind),
        into: &mut Explanation,
    ) -> Fate {
        let later = self.fragments.try_later(fragment, len);
        let verdict = self.fate_of_later(&later)?;
        if let Later::Apply(rewrite) = later {
            into.note(Step::AsFirst);
            into.direction = rewrite.direction;
            let end = |address| AddressPort::new(address, 0);
            let (source, destination) = (end(rewrite.source), end(rewrite.destination));
            let ends = Ends { source, destination, drawn: (false, false) };
            into.becomes = Some(ends.becomes(kind, rewrite.realm));
        }
        Ok(verdict)
    }

    /// Checks that a first fragment would get an identification of its external address's own.
    fn foretell_identification(
        &self,
        now: u64,
        headers: &Headers,
        ends: &Ends,
        into: &mut Explanation,
    ) -> Result<(), DropReason> {
        let index = self.external.index(ends.source.address).filter(|_| !headers.turned);
        let Some(index) = index else { return Ok(()) };
        into.is_certain &= !ends.drawn.0;
        let address = self.external.place_of_address(index);
        let host = headers.source.address;
        match self.identifications.has_next_for(Timestamp(now), address, host) {
            true => Ok(()),
            false => Err(DropReason::FragmentLimit),
        }
    }

    /// The ends of a packet after an act; `drawn`: true if the address, or the port, of its new
    /// source would be drawn at random.
    fn ends(&self, headers: &Headers, act: &Act, drawn: (bool, bool)) -> Ends {
        let Headers { source, destination, .. } = *headers;
        let query = matches!(headers.kind, Kind::IcmpQuery { .. });
        let is_drawn = match act {
            Act::Send(_) => true,
            Act::Receive { arrival, .. } => arrival.new_source().is_none(),
            _ => false,
        };
        let mut drawn = if is_drawn { drawn } else { (false, false) };
        let (source, destination) = match act {
            Act::Nothing | Act::Forward | Act::Later(_) | Act::Turn(..) => (source, destination),
            Act::Echo => (destination, source),
            Act::Send(by) => {
                let source = self.external_by(by);
                let mut destination = headers.new_destination(source.port).unwrap_or(destination);
                if query {
                    destination.port = source.port;
                }
                (source, destination)
            }
            Act::Receive { by, source: new_source, .. } => {
                let destination = self.internal_by(by);
                let mut source = new_source.unwrap_or(source);
                if query {
                    // Both ends have the identifier; the receiver's counts.
                    (source.port, drawn.1) = (destination.port, false);
                }
                (source, destination)
            }
            Act::Error { outer, .. } => {
                (outer.source.unwrap_or(source), outer.destination.unwrap_or(destination))
            }
        };
        Ends { source, destination, drawn }
    }
}

/// The ends of a packet as it would go on.
#[derive(Clone, Copy, Debug)]
struct Ends {
    source: AddressPort,
    destination: AddressPort,
    /// Two flags: true if the source's address, or its port, would be drawn at random.
    drawn: (bool, bool),
}

impl Ends {
    /// The translated packet of this kind; `realm` is its realm if it leaves by the inside.
    fn becomes(&self, kind: Kind, realm: u16) -> Becomes {
        let (address_drawn, port_drawn) = self.drawn;
        let known = end(kind, self.source);
        let source = End {
            address: known.address.filter(|_| !address_drawn),
            port: known.port.filter(|_| !port_drawn),
        };
        let known = end(kind, self.destination);
        // A query has its identifier once.
        let is_drawn = port_drawn && matches!(kind, Kind::IcmpQuery { .. });
        let destination = End { port: known.port.filter(|_| !is_drawn), ..known };
        Becomes { source, destination, realm }
    }
}

/// An endpoint in host byte order, known.
pub(super) fn endpoint(AddressPort { address, port }: AddressPort) -> Endpoint {
    Endpoint::new(address, port)
}

/// The kind of a packet, in a word or two.
pub(super) const fn what(kind: Kind) -> &'static str {
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
pub(super) fn end(kind: Kind, AddressPort { address, port }: AddressPort) -> End {
    let has_port = matches!(kind, Kind::Tcp | Kind::Udp | Kind::Dccp | Kind::IcmpQuery { .. });
    End { address: Some(Ipv4Addr::from_bits(address)), port: has_port.then_some(port) }
}
