//! The translator between the families, with the engine behind it, and the model of both.
//!
//! [`FamilyPair::take`] gives a packet to both and compares every packet that leaves, own errors,
//! events and counters. Counters tell the reason of a drop.

use crate::Divergence;
use crate::changes::is_taken;
use crate::same::{Hex, by_time, legal, same, same_lists, without_free_fields};
use natgate_engine::{
    Config, Counters, DropReason, Endpoint, Engine, Packet, SessionInfo, Side, Timestamp,
};
use natgate_ipv6::convert::{Cut, HEADROOM};
use natgate_ipv6::{ERROR_ROOM, Fate, HostKind, Nptv6Settings, Pairs, Settings, Translator};
use natgate_model::families::{Families, Host, Taken};
use natgate_model::{Effects, Transmit, tick};
use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::ipv6::{Walk, next::FRAGMENT};
use natgate_wire::protocol::{ICMP, ICMPV6, TCP, UDP};
use natgate_wire::{Ipv4, Ipv6};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The next header of IPv4 in IPv6.
const IPV4: u8 = 4;

/// Translator and engine, and the model, in lock-step.
#[derive(Debug)]
pub struct FamilyPair {
    /// The engine.
    pub engine: Engine,
    /// The translator between the families.
    pub translator: Translator,
    /// The model.
    pub model: Families,
    /// True if the translator takes packets in runs, of one packet each: the model is asked about
    /// each packet.
    in_runs: bool,
    /// The gateway's end of the tunnels of DS-Lite.
    aftr: Option<[u8; 16]>,
    buffer: Vec<u8>,
}

/// A packet that left, and its side.
pub type Left = (Side, Vec<u8>);

/// Effects of translator and engine.
#[derive(Debug, Default)]
pub(crate) struct Did {
    /// Side, realm, and true for an answer.
    departure: Option<(Side, u16, bool)>,
    /// The packet that left, or its fragments.
    packets: Vec<Vec<u8>>,
    made: Effects,
    errors: Vec<Transmit>,
}

impl FamilyPair {
    /// Makes both, empty.
    ///
    /// # Errors
    /// When the settings or the configuration are refused.
    pub fn new(
        settings: &Settings,
        config: &Config,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Result<Self, Divergence> {
        let mut config = config.clone();
        let translator = Translator::new(settings, &mut config, seed)?;
        let translator = translator.ok_or("the settings have nothing about IPv6")?;
        let engine = Engine::new(&config, seed, now)
            .map_err(|error| format!("the engine refused the configuration: {}", error.message))?;
        let model = Families::new(settings, &config, now);
        let aftr = settings.dslite.as_ref().map(|dslite| dslite.address.octets());
        let (in_runs, buffer) = (seed[0].is_multiple_of(2), vec![0; ERROR_ROOM + 65_535]);
        Ok(Self { engine, translator, model, in_runs, aftr, buffer })
    }

    /// The counters of translator and engine together.
    fn counters(&self) -> Counters {
        let (mut sum, others) = (self.engine.counters().clone(), self.translator.counters());
        let ways = sum.packets.iter_mut().chain(&mut sum.bytes).flatten();
        let other_ways = others.packets.iter().chain(&others.bytes).flatten();
        for (count, other) in ways.zip(other_ways) {
            *count = count.wrapping_add(*other);
        }
        for (count, other) in sum.drops.iter_mut().zip(&others.drops) {
            *count = count.wrapping_add(*other);
        }
        sum.generated += others.generated;
        sum.errors_suppressed += others.errors_suppressed;
        sum
    }

    /// False for a fragment that the translator of IPv4 would take, which the model does not know.
    pub fn is_modelled(&self, from: Side, bytes: &[u8]) -> bool {
        self.model.is_modelled(from, bytes)
    }

    /// Exchanges the pairs of prefixes of NPTv6 in both.
    ///
    /// # Errors
    /// When prefixes of two pairs overlap.
    pub fn exchange_pairs(&mut self, pairs: &[Nptv6Settings]) -> Result<(), Divergence> {
        let table = Pairs::new(pairs).map_err(|overlap| overlap.to_string())?;
        self.translator.exchange_pairs(table);
        self.model.exchange_pairs(pairs.to_vec());
        Ok(())
    }

    /// Lets time pass for both.
    ///
    /// # Errors
    /// When the results differ.
    pub fn advance(&mut self, now: Timestamp) -> Result<(), Divergence> {
        let mut did = Did::default();
        while self.engine.advance(now) {
            self.drain(&mut did)?;
        }
        self.drain(&mut did)?;
        self.translator.sweep(&self.engine, now);
        let own = self.poll_own(now);
        did.made.transmits.extend(own);
        let engine = &self.engine;
        let still_held = |protocol, end| is_taken(engine, protocol, end);
        let expected = self.model.advance(now, Some(&still_held));
        legal("ports held", &expected)?;
        if !self.has_hosts() {
            same("events of advance", &by_time(&did.made.events), &by_time(&expected.events))?;
        }
        same("packets of advance", &did.made.transmits, &expected.transmits)?;
        same_counters(&self.counters(), &self.model.counters())
    }

    /// Gives a packet to both. Returns the packets that left: the packet, or its fragments, and
    /// packets that the gateway made.
    ///
    /// # Errors
    /// When the results differ.
    pub fn take(
        &mut self,
        now: Timestamp,
        from: Side,
        bytes: &[u8],
    ) -> Result<Vec<Left>, Divergence> {
        self.translator.sweep(&self.engine, now);
        let translator = &self.translator;
        let counts = |realm, host| is_known(translator, realm, host);
        if let Some(host) = self.model.forget_hosts(counts) {
            return Err(format!("{host:x?} has a mapping, and the translator does not know it"));
        }
        let did = self.run(now, from, bytes)?;
        let choice = self.choice();
        let expected = self.model.take(now, from, bytes, choice);
        self.compare(from, bytes, &did, &expected)
            .map_err(|wrong| format!("packet from {from:?} {:?}: {wrong}", Hex(bytes)))?;
        let side = did.departure.map_or(from, |(side, ..)| side);
        let passed = did.packets.into_iter().map(|bytes| (side, bytes));
        let made = did.errors.into_iter().chain(did.made.transmits);
        Ok(passed.chain(made.map(|one| (one.side, one.bytes))).collect())
    }

    /// The external endpoint that the engine chose for a mapping that a packet made, if any: both
    /// had the same sessions before. A hairpinned packet to a static mapping may make two.
    fn choice(&self) -> Option<Endpoint> {
        let (model, statics) = (&self.model.ipv4, &self.engine.config().statics);
        let is_chosen = |session: &SessionInfo| {
            let Endpoint { address, port } = session.mapping.external;
            let is_of = |(own, only): (Ipv4Addr, Option<u16>)| {
                own == address && only.is_none_or(|only| only == port)
            };
            !model.has_mapping(session) && !statics.iter().any(|one| is_of(one.external))
        };
        self.sessions().find(is_chosen).map(|session| session.mapping.external)
    }

    /// True if there is NAT64 or DS-Lite. Then events name hosts by numbers, and the model by
    /// others.
    fn has_hosts(&self) -> bool {
        !self.translator.realms().is_empty()
    }

    /// The engine's sessions, with the model's addresses for hosts of NAT64 and DS-Lite.
    fn sessions(&self) -> impl Iterator<Item = SessionInfo> {
        self.engine.sessions().map(|mut session| {
            let id = &mut session.mapping;
            if self.translator.realms().has(id.realm) {
                let host = host_with(&self.translator, id.realm, id.internal.address);
                let place = host.and_then(|host| self.model.place_of(id.realm, host));
                id.internal.address = place.unwrap_or(Ipv4Addr::UNSPECIFIED);
            }
            session
        })
    }

    /// Compares the sessions, and checks that no two hosts share an external endpoint.
    ///
    /// # Errors
    /// When the states differ.
    pub fn check_state(&self) -> Result<(), Divergence> {
        let order = |session: &SessionInfo| {
            let id = session.mapping;
            (id.protocol, id.realm, id.internal, id.external, session.remote)
        };
        let mut sessions: Vec<SessionInfo> = self.sessions().collect();
        for session in &mut sessions {
            session.expires = tick(session.expires);
        }
        let mut expected = self.model.ipv4.sessions();
        sessions.sort_by_key(order);
        expected.sort_by_key(order);
        same_lists("sessions", &sessions, &expected)?;
        let mut owners = BTreeMap::new();
        for id in sessions.iter().map(|session| session.mapping) {
            let has_ports = natgate_model::has_ports(id.protocol);
            let end = (id.protocol, id.external);
            let owner = *owners.entry(end).or_insert((id.realm, id.internal));
            if has_ports && owner != (id.realm, id.internal) {
                return Err(format!("{owner:?} and {id:?} share an external endpoint"));
            }
        }
        Ok(())
    }

    fn compare(
        &self,
        from: Side,
        bytes: &[u8],
        did: &Did,
        expected: &Taken,
    ) -> Result<(), Divergence> {
        legal("external endpoint", &expected.made)?;
        same_counters(&self.counters(), &self.model.counters())?;
        let departure = expected.departure.as_ref();
        let fate = departure.map(|one| (one.side, one.realm, one.answers));
        same("fate", &did.departure, &fate)?;
        let wanted = departure.map_or(&[][..], |one| &one.packets);
        same("number of packets", &did.packets.len(), &wanted.len())?;
        let packets = self.without_tunnel_identification(&did.packets)?;
        for (packet, wanted) in packets.iter().zip(wanted) {
            let packet = without_chosen_identification(self.aftr, bytes, packet)?;
            same("bytes", &Hex(&packet), &Hex(wanted))?;
            if is_right(bytes) && did.packets.len() == 1 && !is_right(&packet) {
                return Err(format!("a right checksum became wrong: {:?}", Hex(&packet)));
            }
        }
        let own = [&expected.released[..], &expected.errors].concat();
        same("released packets and own errors", &did.errors, &own)?;
        if !self.has_hosts() {
            same("events", &did.made.events, &expected.made.events)?;
        }
        same("own packets", &did.made.transmits, &expected.made.transmits)?;
        let is_answered = !expected.errors.is_empty() && did.departure.is_some();
        let is_astray = expected.errors.iter().any(|error| error.side != from);
        match is_answered || is_astray {
            true => Err("an error about a packet that passed, or to the other side".into()),
            false => Ok(()),
        }
    }

    /// Packets that left, without the identification that the translator chose for the fragments of
    /// a packet in a tunnel.
    fn without_tunnel_identification(
        &self,
        packets: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>, Divergence> {
        let mut packets = packets.to_vec();
        let mut chosen = None;
        for bytes in packets.iter_mut().filter(|bytes| self.is_in_tunnel(bytes)) {
            if bytes[6] != FRAGMENT {
                continue;
            }
            let field = &mut bytes[44..48];
            let own = field.to_vec();
            field.fill(0);
            if *chosen.get_or_insert_with(|| own.clone()) != own {
                return Err("fragments of a packet have several identifications".into());
            }
        }
        Ok(packets)
    }

    /// True if the gateway sends a packet into a tunnel.
    fn is_in_tunnel(&self, bytes: &[u8]) -> bool {
        let aftr = self.aftr.as_ref();
        aftr.is_some_and(|aftr| bytes.len() > 48 && bytes[0] >> 4 == 6 && bytes[8..24] == *aftr)
    }

    fn run(&mut self, now: Timestamp, from: Side, bytes: &[u8]) -> Result<Did, Divergence> {
        let mut did = Did::default();
        let mut buffer = vec![0xa5; HEADROOM];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let Self { engine, translator, .. } = self;
        let fate = match self.in_runs {
            true => {
                let (packets, mut fates) = (std::slice::from_mut(&mut packet), [Fate::Nothing]);
                same(
                    "length of a run",
                    &translator.take_some(engine, now, from, packets, &mut fates),
                    &1,
                )?;
                fates[0]
            }
            false => translator.take(engine, now, from, &mut packet),
        };
        if let Fate::Send(departure) = fate {
            let realm = match packet.bytes()[0] >> 4 {
                4 if departure.side == Side::Inside => departure.realm,
                _ => 0,
            };
            did.departure = Some((departure.side, realm, departure.answers));
            did.packets = fragments(departure.cut, packet.bytes());
        }
        self.drain(&mut did)?;
        did.errors = self.poll_own(now);
        let queued: Vec<Vec<u8>> = did.errors.iter().map(|one| one.bytes.clone()).collect();
        for (one, bytes) in did.errors.iter_mut().zip(self.without_tunnel_identification(&queued)?)
        {
            one.bytes = bytes;
        }
        self.translator.sweep(&self.engine, now);
        Ok(did)
    }

    /// Takes the translator's own packets.
    fn poll_own(&mut self, now: Timestamp) -> Vec<Transmit> {
        let mut own = Vec::new();
        while let Some((side, len)) = self.translator.poll_transmit(&mut self.buffer) {
            let bytes = self.buffer[..len].to_vec();
            own.push(Transmit { time: now, side, realm: 0, bytes });
        }
        own
    }

    /// Takes the engine's events and packets.
    pub(crate) fn drain(&mut self, did: &mut Did) -> Result<(), Divergence> {
        while let Some(event) = self.engine.poll_event() {
            did.made.events.push(event);
        }
        let room = ERROR_ROOM;
        while let Some((time, side, len)) = self.engine.poll_transmit(&mut self.buffer[room..]) {
            let realm = self.engine.transmit_realm();
            let bytes = without_free_fields(&self.buffer[room..room + len])?;
            if side == Side::Outside || !self.translator.realms().has(realm) {
                did.made.transmits.push(Transmit { time, side, realm, bytes });
                continue;
            }
            let mut packet = Packet::new(&mut self.buffer[..room + len], room);
            if self.translator.convert_own_to_host(realm, &mut packet).is_ok() {
                let bytes = packet.bytes().to_vec();
                did.made.transmits.push(Transmit { time, side, realm: 0, bytes });
            }
        }
        Ok(())
    }
}

/// True if the translator knows a host of a realm.
pub(crate) fn is_known(translator: &Translator, realm: u16, (subscriber, host): Host) -> bool {
    let number = match translator.realms().kind(realm) {
        Some(HostKind::Nat64) => {
            translator.hosts(HostKind::Nat64).and_then(|hosts| hosts.number(host))
        }
        Some(HostKind::Dslite) => translator.number_behind(subscriber.into(), (host as u32).into()),
        None => None,
    };
    number.is_some()
}

/// The host with a number, as the model names it.
fn host_with(translator: &Translator, realm: u16, number: Ipv4Addr) -> Option<Host> {
    let name = translator.host(realm, number)?;
    let host = match name.inner() {
        Some(inner) => inner.to_bits().into(),
        None => name.address?.to_bits(),
    };
    Some((name.prefix.to_bits(), host))
}

/// True if the checksum of a whole packet of TCP, UDP with a checksum, or an echo message is right,
/// in a tunnel or outside.
fn is_right(bytes: &[u8]) -> bool {
    let (protocol, start, transport) = if let Ok(packet) = Ipv6::new_checked(bytes) {
        let Ok(walk) = packet.walk() else { return false };
        if walk.protocol == IPV4 && walk.fragment.is_none() {
            return is_right(&bytes[walk.transport..packet.total_len()]);
        }
        let transport = &bytes[walk.transport..packet.total_len()];
        let ends = (packet.source(), packet.destination());
        let start = pseudo_header_v6(ends.0, ends.1, walk.protocol, transport.len() as u32);
        let is_whole = walk.fragment.is_none() && walk.segments_left.is_none();
        (walk.protocol, start, is_whole.then_some(transport))
    } else if let Ok(packet) = Ipv4::new_checked(bytes) {
        let is_whole = packet.fragment_offset() == 0 && !packet.more_fragments();
        let len = packet.total_len() - packet.header_len() as u16;
        let (source, destination) = (packet.source(), packet.destination());
        let start = match packet.protocol() {
            ICMP => 0,
            protocol => pseudo_header(source, destination, protocol, len),
        };
        let payload = &bytes[packet.header_len()..usize::from(packet.total_len())];
        (packet.protocol(), start, is_whole.then_some(payload))
    } else {
        return false;
    };
    let is_echo = |kind: u8| matches!(kind, 0 | 8 | 128 | 129);
    let is_foreign = protocol == if bytes[0] >> 4 == 6 { ICMP } else { ICMPV6 };
    transport.is_some_and(|transport| {
        let is_of = match protocol {
            TCP => transport.len() >= 20,
            UDP => transport.len() >= 8 && transport[6..8] != [0, 0] && is_udp_whole(transport),
            ICMP | ICMPV6 => !is_foreign && transport.len() >= 8 && is_echo(transport[0]),
            _ => false,
        };
        is_of && fold(sum(transport, start)) == 0xffff
    })
}

/// True if the length of a UDP datagram is that of the packet.
fn is_udp_whole(transport: &[u8]) -> bool {
    usize::from(u16::from_be_bytes([transport[4], transport[5]])) == transport.len()
}

fn fragments(cut: Option<Cut>, bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(cut) = cut else { return vec![bytes.to_vec()] };
    let mut fragments = cut.fragments(bytes);
    let mut buffer = vec![0; cut.limit];
    let next = || fragments.write_next(&mut buffer).map(|len| buffer[..len].to_vec());
    std::iter::from_fn(next).collect()
}

/// A packet that left, without the identification that the translator chose: that of an IPv4 packet
/// which came as IPv6 without a fragment header, and in no tunnel that ends at `aftr`. The packet
/// may have entered such a tunnel, and be cut there.
fn without_chosen_identification(
    aftr: Option<[u8; 16]>,
    came: &[u8],
    left: &[u8],
) -> Result<Vec<u8>, Divergence> {
    let mut left = left.to_vec();
    let has_own = match Ipv6::new_checked(came) {
        Ok(came) => {
            let is_to_aftr = aftr == Some(came.destination().to_be_bytes());
            let is_own =
                |walk: Walk| walk.fragment.is_some() || walk.protocol == IPV4 && is_to_aftr;
            came.walk().is_ok_and(is_own)
        }
        Err(_) => true,
    };
    let at = match Ipv6::new_checked(&left[..]) {
        Ok(outer) if aftr == Some(outer.source().to_be_bytes()) => match outer.walk() {
            Ok(walk) if walk.fragment.is_none_or(|(_, fragment)| fragment.offset == 0) => {
                walk.transport
            }
            _ => return Ok(left),
        },
        _ => 0,
    };
    if let Ok(mut header) = Ipv4::new_header_checked(&mut left[at..])
        && !has_own
    {
        if !header.checksum_valid() {
            return Err("a wrong header checksum".into());
        }
        header.set_identification(0);
        header.fill_checksum();
    }
    Ok(left)
}

fn same_counters(left: &Counters, right: &Counters) -> Result<(), Divergence> {
    let drops = |counters: &Counters| -> Vec<(DropReason, u64)> {
        let all = DropReason::ALL.iter().map(|reason| (*reason, counters.drops[*reason as usize]));
        all.filter(|(_, count)| *count > 0).collect()
    };
    same("reasons of drops", &drops(left), &drops(right))?;
    same("counters", left, right)
}
