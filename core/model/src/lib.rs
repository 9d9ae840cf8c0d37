//! The same NAT as `natgate-engine`, slow and obvious, in ordered maps: what the engine is compared
//! with, and the shortest way to learn what natgate does with a packet.
//!
//! It follows SPECIFICATION.md section by section and says so in comments: what is looked at first
//! (`bytes`), the way from the inside and from the outside (this file), allocation and limits
//! (`allocation`, `classes`, `shares`), sessions and connections (`sessions`, `tcp`), destinations
//! (`twice`), what happens by itself (`timers`),
//! ICMP errors of its own (`errors`). Nothing is fast: what one map holds is not repeated in
//! another but searched for.
//!
//! Choices that the specification leaves to the engine (external address and port, which held port
//! is free first) are given to the model, which checks that they were open; alone it takes the
//! first. Fragments are not modelled.

#![forbid(unsafe_code)]

mod allocation;
mod bytes;
mod classes;
mod errors;
mod explicit;
mod harness;
mod lookup;
mod overload;
mod pools;
mod realms;
mod reclaim;
mod reconfigure;
mod services;
mod sessions;
mod shares;
mod tcp;
mod timers;
mod twice;
mod view;

pub use allocation::addresses;
use allocation::most_mappings;
use bytes::{
    Segment, check, check_error, ends, icmp_kind, ip, is_ping, keep_full, lower_mss, lower_ttl,
    set_embedded, set_embedded_far, set_far, set_near, set_outer_far,
};
use classes::{LimitOwner, ThresholdState};
use errors::ErrorRates;
pub use harness::ends_from_inside;
use natgate_engine::{
    Behavior, Change, Config, Counters, Direction, DropReason, Endpoint, Event, MappingId,
    MappingKind, Outcome, RuleAction, Side, TimeoutSet, Timestamp, Verdict,
};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use natgate_wire::{Icmp, Ipv4, icmp};
use services::Fixed;
use shares::Block;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use tcp::Connection;
pub use timers::{StillHeld, tick};

/// The reference translator.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    /// Static mappings and servers.
    fixed: Vec<Fixed>,
    /// By service and remote address, the server that new sessions go to.
    bound: BTreeMap<(u8, Endpoint, Ipv4Addr), Endpoint>,
    /// Choices of the engine's between servers (see [`Model::hint_servers`]).
    hint: services::Hint,
    now: Timestamp,
    started: Timestamp,
    mappings: BTreeMap<Key, Mapping>,
    sessions_made: u64,
    /// Whether one has been made that is seen as another than it is (13): else none need be looked
    /// for.
    has_twice: bool,
    held: BTreeMap<(u8, Endpoint), Timestamp>,
    /// Ports that would be held had not a static mapping come for them (14.5).
    evicted: BTreeMap<(u8, Endpoint), Timestamp>,
    syns: Vec<Syn>,
    paired: BTreeMap<(Host, usize), Ipv4Addr>,
    /// Blocks of ports that subscribers have, by where they begin.
    blocks: BTreeMap<Endpoint, Block>,
    /// Addresses that have left their pools but for their mappings and blocks, and those pools
    /// (5.19).
    left: BTreeMap<Ipv4Addr, usize>,
    /// Dynamic mappings that there is room for.
    room: usize,
    /// Of each pool the ports that somebody may get, if they are not all.
    given: Vec<Option<BTreeSet<Endpoint>>>,
    mapping_rate: BTreeMap<LimitOwner, u64>,
    /// Subscribers that nobody has answered (18.1), and the latest number given to one or to a
    /// mapping.
    unanswered: BTreeMap<Host, reclaim::Waiting>,
    numbers: u64,
    /// Further sessions that there is room for: settled at the start (14.7).
    further_room: usize,
    /// Holds that there is room for, as well.
    holds_room: usize,
    errors: ErrorRates,
    quota_reported: BTreeMap<LimitOwner, Option<Timestamp>>,
    /// Thresholds that were told.
    told_of: BTreeMap<LimitOwner, ThresholdState>,
    exhaustion_reported: BTreeMap<usize, Option<Timestamp>>,
    counters: Counters,
    /// The time of the latest event.
    told: Timestamp,
    made: Effects,
}

/// A subscriber: its realm and its address there (15.1).
pub type Host = (u16, Ipv4Addr);

/// What a mapping is looked up by from the inside (3.8); of `remote` as much as the mapping
/// behavior looks at counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    protocol: u8,
    realm: u16,
    internal: Endpoint,
    remote: Option<Endpoint>,
    /// Of a mapping that is found from inside by its sessions alone (3.8a): its external endpoint.
    beside: Option<Endpoint>,
}

#[derive(Clone, Debug)]
struct Mapping {
    /// Counts up from mapping to mapping of subscribers.
    number: u64,
    external: Endpoint,
    kind: MappingKind,
    /// Of a static mapping with ports: it needs no sessions.
    permanent: bool,
    created: Timestamp,
    /// What the rule says that it was made by (9.6).
    timeouts: TimeoutSet,
    sessions: BTreeMap<Endpoint, Session>,
    /// The remote endpoint of the session that is no further one (3.10), while there is such.
    first: Option<Endpoint>,
    /// What hosts have asked to be kept of it (16).
    holds: explicit::Holds,
}

#[derive(Clone, Debug)]
struct Session {
    /// Counts up from session to session.
    number: u64,
    /// The remote endpoint as seen from inside (13).
    seen: Endpoint,
    /// The side that the packet which made it came from.
    made_from: Side,
    /// When its time runs out, not yet moved to a tick.
    expires: Timestamp,
    connection: Connection,
    /// An unanswered subscriber has begun it, and nobody has answered (18.2).
    is_unanswered: bool,
    packets_out: u64,
    packets_in: u64,
}

/// An unsolicited SYN, or DCCP's like, that will be answered (4.7).
#[derive(Clone, Debug)]
struct Syn {
    due: Timestamp,
    protocol: u8,
    external: Endpoint,
    remote: Endpoint,
    back_to: (Side, u16),
    quote: Vec<u8>,
}

/// A packet that the translator makes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// When it was made.
    pub time: Timestamp,
    /// The side to send it by.
    pub side: Side,
    /// The realm to send it to, if by the inside.
    pub realm: u16,
    /// Its bytes; the identification, which the specification leaves open, is zero.
    pub bytes: Vec<u8>,
}

/// What a call brings about besides verdicts.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Events, in order of time.
    pub events: Vec<Event>,
    /// Packets, in order of time.
    pub transmits: Vec<Transmit>,
    /// A choice of the engine's that was not open, and what was.
    pub illegal: Option<String>,
}

/// What should become of a packet.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Its fate.
    pub verdict: Verdict,
    /// Its bytes, unless it is dropped.
    pub bytes: Vec<u8>,
    /// The realm that it goes to, if it leaves by the inside.
    pub realm: u16,
    /// What else happens.
    pub made: Effects,
}

/// A packet on its way through.
struct Packet {
    from: Side,
    /// The realm that it comes from, if from inside.
    realm: u16,
    /// The realm that it goes to, if it leaves by the inside.
    exit: u16,
    direction: Direction,
    received: Vec<u8>,
    bytes: Vec<u8>,
    choice: Option<Endpoint>,
    /// The remote end as seen from inside.
    seen: Endpoint,
    /// Whether its destination is another outside (13.1).
    aimed: bool,
}

impl Key {
    /// Whose it is.
    fn host(&self) -> Host {
        (self.realm, self.internal.address)
    }
}

impl Packet {
    fn protocol(&self) -> u8 {
        ip(&self.received).protocol()
    }

    /// A SYN without ACK, RST and FIN, or what counts as such of DCCP (9.5).
    fn is_syn(&self) -> bool {
        Segment::of(&self.received).is_some_and(Segment::syn)
    }
}

type Fate = Result<Verdict, DropReason>;

/// Whether a protocol has ports, or identifiers that serve as such.
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | ICMP | DCCP)
}

impl Model {
    /// A translator that starts empty.
    pub fn new(config: &Config, now: Timestamp) -> Self {
        let mut model = Self {
            config: config.clone(),
            fixed: services::fixed(config),
            bound: BTreeMap::new(),
            hint: services::Hint::default(),
            now,
            started: now,
            mappings: BTreeMap::new(),
            sessions_made: 0,
            has_twice: false,
            held: BTreeMap::new(),
            evicted: BTreeMap::new(),
            syns: Vec::new(),
            paired: BTreeMap::new(),
            blocks: BTreeMap::new(),
            left: BTreeMap::new(),
            room: most_mappings(config),
            given: config.pools.iter().map(|pool| shares::given(config, pool)).collect(),
            mapping_rate: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            numbers: 0,
            further_room: 0,
            holds_room: config.limits.explicit_mappings as usize,
            errors: ErrorRates::default(),
            quota_reported: BTreeMap::new(),
            told_of: BTreeMap::new(),
            exhaustion_reported: BTreeMap::new(),
            counters: Counters::default(),
            told: Timestamp(0),
            made: Effects::default(),
        };
        model.make_statics();
        model.pin_blocks();
        model.further_room = model.room_for_further();
        model
    }

    /// Makes the static mappings with ports that there are not yet.
    pub(crate) fn make_statics(&mut self) {
        for fixed in self.fixed.clone() {
            let (Some(inside), Some(outside)) = (fixed.internal.1, fixed.external.1) else {
                continue;
            };
            let internal = Endpoint { address: fixed.internal.0, port: inside };
            let external = Endpoint { address: fixed.external.0, port: outside };
            for protocol in [TCP, UDP, ICMP, DCCP] {
                if fixed.is_for(protocol) {
                    let key = self.fixed(&fixed, protocol, internal, external, None);
                    self.mappings.get_mut(&key).expect("just made").permanent = true;
                }
            }
        }
    }

    /// What should become of one packet from a side, in a batch of its own. `choice` is the
    /// external endpoint that the engine gave to the mapping that it made for the packet, if any.
    pub fn process(
        &mut self,
        now: Timestamp,
        from: Side,
        bytes: &[u8],
        choice: Option<Endpoint>,
    ) -> Expected {
        self.process_in(now, from, 0, bytes, choice)
    }

    /// The same of one that comes from a realm, if from inside.
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
        let direction = if from == Side::Inside { Direction::Outbound } else { Direction::Inbound };
        let received = bytes.to_vec();
        let realm = if from == Side::Inside { realm } else { 0 };
        let mut packet = Packet {
            from,
            realm,
            exit: realm,
            direction,
            received,
            bytes: Vec::new(),
            choice,
            seen: Endpoint::new(0, 0),
            aimed: false,
        };
        let fate = self.fate(&mut packet);
        let len = packet.received.len();
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
        self.counters.count(packet.direction, outcome, len);
        let verdict = fate.unwrap_or_else(Verdict::Drop);
        let (bytes, realm) = (packet.bytes, packet.exit);
        Expected { verdict, bytes, realm, made: std::mem::take(&mut self.made) }
    }

    fn fate(&mut self, packet: &mut Packet) -> Fate {
        check(&mut packet.received)?; // section 2
        packet.bytes.clone_from(&packet.received);
        if !self.config.has_realm(packet.realm) {
            return Err(DropReason::UnknownRealm); // 15.1
        }
        if self.is_broadcast(packet, ip(&packet.bytes).source()) {
            return Err(DropReason::MartianSource); // 2.3
        }
        if self.is_broadcast(packet, ip(&packet.bytes).destination()) {
            return Err(DropReason::MartianDestination);
        }
        match packet.from {
            Side::Inside => self.way_out(packet),
            Side::Outside => self.way_in(packet),
        }
    }

    /// Section 3.
    fn way_out(&mut self, packet: &mut Packet) -> Fate {
        let (source, destination) = (ip(&packet.bytes).source(), ip(&packet.bytes).destination());
        let realm = packet.realm;
        if self.is_own(realm, source) || self.is_external(source) {
            return Err(DropReason::SpoofedSource); // 3.1
        }
        let rule = self.rule(packet, realm).cloned();
        if !matches!(rule, Some(RuleAction::Bypass | RuleAction::Drop)) {
            self.aim(packet); // 13.1
        }
        if self.is_own(realm, destination) && !self.is_external(destination) && !packet.aimed {
            return self.local(packet); // 3.2
        }
        if rule == Some(RuleAction::Drop) {
            return Err(DropReason::Rule); // 3.3
        }
        if rule == Some(RuleAction::Bypass) {
            self.hop(packet, self.outside_mtu())?; // 3.3
            lower_ttl(&mut packet.bytes);
            return Ok(Verdict::Forward(Side::Outside));
        }
        let stays = !packet.aimed
            && !self.is_external(destination)
            && self.is_routed_inside(realm, destination);
        if stays || self.is_error_that_stays(packet, realm) {
            packet.direction = Direction::Hairpin; // 3.3b
            packet.exit = realm;
            self.hop(packet, self.inside_mtu(realm))?;
            lower_ttl(&mut packet.bytes);
            return Ok(Verdict::Forward(Side::Inside));
        }
        let host: Host = (realm, source.into());
        if !self.config.subscribers_of(realm).iter().any(|prefix| prefix.contains(source))
            && !self.fixed.iter().any(|fixed| (fixed.realm, fixed.internal.0) == host)
            && rule.is_none()
            && !matches!(icmp_kind(&packet.bytes), Some(3 | 4 | 11 | 12))
        {
            return Err(DropReason::NotSubscriber); // 3.4
        }
        self.check_aim(packet)?; // 13.2
        let destination = ip(&packet.bytes).destination();
        let mut exit = Side::Outside;
        if self.is_external(destination) {
            packet.direction = Direction::Hairpin; // 3.5
            exit = Side::Inside;
            if !self.config.hairpinning {
                return Err(DropReason::HairpinDisabled);
            }
        } else if !packet.aimed && self.is_inside(realm, destination) {
            return Err(DropReason::SameSide);
        }
        let mtu = match exit {
            Side::Inside => self.hairpin_mtu(realm),
            Side::Outside => self.outside_mtu(),
        };
        self.hop(packet, mtu)?; // 3.6
        match icmp_kind(&packet.bytes) {
            Some(3 | 4 | 11 | 12) => self.error(packet)?, // 3.7
            None | Some(0 | 8 | 13 | 14) => {
                self.outbound(packet, rule)?;
                if packet.direction == Direction::Hairpin
                    && let reply @ Verdict::Reply(_) = self.inbound(packet)?
                {
                    return Ok(reply);
                }
                self.counters.portless += u64::from(!has_ports(packet.protocol()));
            }
            _ => return Err(DropReason::IcmpUnsupported),
        }
        lower_ttl(&mut packet.bytes);
        Ok(Verdict::Forward(exit))
    }

    /// Section 4.
    fn way_in(&mut self, packet: &mut Packet) -> Fate {
        let (source, destination) = (ip(&packet.bytes).source(), ip(&packet.bytes).destination());
        let plain = !self.config.has_realms();
        if self.is_external(source)
            || self.is_outside_own(source)
            || plain && self.is_own(0, source)
        {
            return Err(DropReason::SpoofedSource); // 4.1
        }
        if !self.is_external(destination) {
            if self.is_outside_own(destination) {
                return self.local(packet); // 4.2
            }
            let decides = |one: &&RuleAction| matches!(one, RuleAction::Bypass | RuleAction::Drop);
            let rule = |realm| Some((realm, self.rule(packet, realm).filter(decides)?));
            match self.config.realms_in_order().find_map(rule) {
                Some((realm, RuleAction::Bypass)) => packet.exit = realm, // 15.3
                Some(_) => return Err(DropReason::Rule),
                None => return Err(DropReason::NotForUs),
            }
            self.may_pass(packet.exit, source, destination)?;
            self.hop(packet, self.inside_mtu(packet.exit))?;
            lower_ttl(&mut packet.bytes);
            return Ok(Verdict::Forward(Side::Inside));
        }
        let seen = self.source_seen(packet); // 13.4
        let is_remote = match icmp_kind(&packet.bytes) {
            None | Some(0 | 8 | 13 | 14) => seen == ends(&packet.bytes, Side::Outside).1,
            _ => seen.address.to_bits() == source,
        };
        if plain && is_remote && self.is_inside(0, source) {
            return Err(DropReason::SpoofedSource); // 4.2a
        }
        packet.seen = seen;
        match icmp_kind(&packet.bytes) {
            Some(3 | 4 | 11 | 12) => {
                self.error(packet)?; // 4.3
                self.hop(packet, self.inside_mtu(packet.exit))?;
            }
            None | Some(0 | 8 | 13 | 14) => {
                if let reply @ Verdict::Reply(_) = self.inbound(packet)? {
                    return Ok(reply);
                }
                self.counters.portless += u64::from(!has_ports(packet.protocol()));
            }
            _ => return Err(DropReason::IcmpUnsupported),
        }
        lower_ttl(&mut packet.bytes);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Sections 3.8 to 3.11.
    fn outbound(
        &mut self,
        packet: &mut Packet,
        rule: Option<RuleAction>,
    ) -> Result<(), DropReason> {
        let protocol = packet.protocol();
        let (internal, remote) = ends(&packet.bytes, Side::Inside);
        let mut key = self.key_of_internal(protocol, packet.realm, internal, remote);
        if !self.mappings.contains_key(&key) {
            if self.is_midstream(packet) {
                return Err(DropReason::TcpNotSyn); // 3.9
            }
            self.room_to_see(remote, packet.seen)?; // 13.3
            if matches!(icmp_kind(&packet.bytes), Some(0 | 14)) {
                return Err(DropReason::NoMapping);
            }
            key = self.create(packet, key, rule, remote)?;
        } else if let Some(session) = self.mappings[&key].sessions.get(&remote) {
            if session.seen != packet.seen {
                return Err(DropReason::Ambiguous); // 13.3
            }
        } else {
            if self.is_midstream(packet) {
                return Err(DropReason::TcpNotSyn); // 3.10
            }
            self.room_to_see(remote, packet.seen)?; // 13.3
            if let Err(reason) = self.room_for_session(key, remote, Side::Inside) {
                if reason == DropReason::MappingTableFull {
                    self.refuse(packet); // 3.9
                }
                return Err(reason);
            }
        }
        self.touch(key, (remote, packet.seen), Side::Inside, Segment::of(&packet.bytes));
        set_near(&mut packet.bytes, Side::Inside, self.mappings[&key].external); // 3.11
        self.clamp(packet);
        Ok(())
    }

    /// Sections 4.4 to 4.8, and the second half of a hairpin (7.1).
    fn inbound(&mut self, packet: &mut Packet) -> Fate {
        let (external, remote) = ends(&packet.bytes, Side::Outside);
        let Some(key) = self.by_external(packet.protocol(), external, remote) else {
            let own = match packet.direction {
                Direction::Hairpin => {
                    self.is_own(packet.realm, external.address.to_bits()) && !packet.aimed // 7.1
                }
                _ => self.is_outside_own(external.address.to_bits()),
            };
            if own && is_ping(&packet.received) {
                return self.local(packet); // 4.4
            }
            self.remember(packet, external, remote);
            return Err(DropReason::NoMapping);
        };
        let known = self.mappings[&key].sessions.contains_key(&remote);
        let seen_anew = match packet.direction {
            Direction::Hairpin => remote, // 13.5
            _ => packet.seen,
        };
        let key = match known {
            true => key,
            false => match self.server_for(key, external, (remote, seen_anew)) {
                Some(key) => key,
                None => {
                    self.remember(packet, external, remote);
                    return Err(DropReason::Filtered); // 4.4b
                }
            },
        };
        let mapping = &self.mappings[&key];
        if !known && mapping.kind != MappingKind::Static && key.beside.is_some() {
            self.remember(packet, external, remote);
            return Err(DropReason::Filtered); // 5.21
        }
        let seen = match mapping.sessions.get(&remote) {
            Some(session) => session.seen,
            None => seen_anew,
        };
        self.enter_realm(packet, key.realm, known, seen == remote)?; // 15.4
        if self.is_dropped(key, seen) {
            return Err(DropReason::Rule); // 4.4a
        }
        let mapping = &self.mappings[&key];
        if !known {
            let own_filter = match packet.protocol() {
                TCP | DCCP => self.config.filtering_tcp,
                _ => None,
            };
            let admitted = match own_filter.unwrap_or(self.config.filtering) {
                _ if mapping.kind == MappingKind::Static => !self.is_outbound_only(key, external),
                _ if let Some(hold) = mapping.holds.get(&None) => hold.admits(seen), // 16.4
                Behavior::EndpointIndependent => true,
                Behavior::AddressDependent => {
                    mapping.sessions.keys().any(|end| end.address == remote.address)
                }
                Behavior::AddressAndPortDependent => false,
            };
            if !admitted {
                self.remember(packet, external, remote);
                return Err(DropReason::Filtered); // 4.5
            }
            if self.is_midstream(packet) {
                return Err(DropReason::TcpNotSyn);
            }
            self.may_be_seen(key, remote, seen)?; // 13.4
        }
        if packet.direction != Direction::Hairpin {
            self.hop(packet, self.inside_mtu(key.realm))?; // 4.6
        }
        if !known {
            self.room_for_session(key, remote, Side::Outside)?;
        }
        self.touch(key, (remote, seen), Side::Outside, Segment::of(&packet.bytes));
        set_near(&mut packet.bytes, Side::Outside, key.internal); // 4.8
        if seen != remote {
            set_far(&mut packet.bytes, Side::Outside, seen); // 13.4
        }
        self.clamp(packet);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// 4.9, of a translated packet.
    fn clamp(&self, packet: &mut Packet) {
        if let Some(limit) = self.config.tcp_mss {
            lower_mss(&mut packet.bytes, limit);
        }
    }

    /// Section 6: an ICMP error.
    fn error(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        check_error(&packet.bytes)?; // 6.1
        self.translate_error(packet, packet.from)?;
        if packet.direction == Direction::Hairpin {
            self.translate_error(packet, Side::Outside)?; // 6.5
        }
        Ok(())
    }

    /// Sections 6.2 and 6.3. The embedded packet had gone the other way.
    fn translate_error(&mut self, packet: &mut Packet, from: Side) -> Result<(), DropReason> {
        let embedded = &packet.bytes[ip(&packet.bytes).header_len() + 8..];
        let protocol = ip(embedded).protocol();
        let (near, far) = ends(embedded, from.other());
        let remote = match from {
            Side::Inside => {
                self.seen_as_another(protocol, packet.realm, near, far).unwrap_or(far) // 13.6
            }
            Side::Outside => far,
        };
        let key = match from {
            Side::Inside => Some(self.key_of_internal(protocol, packet.realm, near, remote)),
            Side::Outside => self.by_external(protocol, near, remote),
        };
        let key = key.ok_or(DropReason::IcmpNoSession)?;
        let mapping = self.mappings.get(&key).ok_or(DropReason::IcmpNoSession)?;
        let session = mapping.sessions.get(&remote).ok_or(DropReason::IcmpNoSession)?;
        if from == Side::Inside {
            if session.seen != far {
                return Err(DropReason::IcmpNoSession);
            }
            set_embedded(&mut packet.bytes, from, mapping.external);
            if remote != far {
                set_embedded_far(&mut packet.bytes, from, remote);
            }
            return Ok(());
        }
        let seen = session.seen;
        let sender = match packet.direction {
            Direction::Hairpin => seen.address,
            _ => packet.seen.address,
        };
        let as_is = sender.to_bits() == ip(&packet.bytes).source();
        self.enter_realm(packet, key.realm, true, as_is)?;
        if self.is_error_dropped(sender, key, seen) {
            return Err(DropReason::Rule);
        }
        set_embedded(&mut packet.bytes, from, key.internal);
        if seen != remote {
            set_embedded_far(&mut packet.bytes, from, seen);
        }
        if ip(&packet.bytes).source() != sender.to_bits() {
            set_outer_far(&mut packet.bytes, from, sender);
        }
        Ok(())
    }

    /// Section 3.2: a packet to the gateway itself.
    fn local(&mut self, packet: &mut Packet) -> Fate {
        packet.direction = Direction::Local;
        packet.bytes.clone_from(&packet.received);
        if !is_ping(&packet.received) {
            return Err(DropReason::LocalUnsupported);
        }
        let (source, destination) = (ip(&packet.bytes).source(), ip(&packet.bytes).destination());
        let mut reply = Ipv4::new_checked(&mut packet.bytes[..]).expect("checked when it came in");
        reply.set_source(destination);
        reply.set_destination(source);
        reply.set_ttl(64);
        reply.fill_checksum();
        let mut icmp = Icmp::new_checked(reply.payload_mut()).expect("checked when it came in");
        icmp.set_kind(icmp::kind::ECHO_REPLY);
        icmp.fill_checksum();
        Ok(Verdict::Reply(packet.from))
    }

    /// Section 3.6: whether a packet can go one hop further, over a link of this MTU.
    fn hop(&mut self, packet: &Packet, mtu: u16) -> Result<(), DropReason> {
        let ip = ip(&packet.received);
        if ip.ttl() <= 1 {
            self.answer(packet, (icmp::kind::TIME_EXCEEDED, 0, 0));
            return Err(DropReason::TtlExceeded);
        }
        if ip.dont_fragment() && ip.total_len() > mtu {
            self.answer(packet, (icmp::kind::UNREACHABLE, 4, mtu));
            return Err(DropReason::TooBig);
        }
        Ok(())
    }

    /// Whether a packet is of TCP or DCCP and cannot begin a session (3.9, 3.10, 4.5).
    fn is_midstream(&self, packet: &Packet) -> bool {
        Segment::of(&packet.received).is_some_and(|segment| {
            if self.config.tcp_pickup { segment.rst() } else { !segment.syn() }
        })
    }

    /// Time never goes back (1.1).
    fn see(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    fn raise(&mut self, time: Timestamp, change: Change) {
        self.told = self.told.max(time); // 10
        self.made.events.push(Event { time: self.told, change });
    }
}

impl Mapping {
    fn id(&self, key: Key) -> MappingId {
        MappingId {
            realm: key.realm,
            protocol: key.protocol,
            internal: key.internal,
            external: self.external,
            kind: match self.holds.is_empty() {
                true => self.kind,
                false => MappingKind::Pcp, // 16.1
            },
        }
    }
}
