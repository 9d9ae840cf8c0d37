//! Explains the fate of a packet of either family: the questions of [`Translator::take`] in their
//! order, each with its answer.
//!
//! Tables are asked as a packet asks them. Conversions run on a copy of the packet, with a copy of
//! what they count. So nothing changes, and verdict, reason and addresses are those that the packet
//! would get. A random test compares them with the packet's fate right afterwards.

use crate::Prefix6;
use crate::check::check_ipv4;
use crate::complaint::{check_headers, unknown_protocol};
use crate::convert::{HEADROOM, Refusal};
use crate::ends;
use crate::errors::OWN_HOPS;
use crate::explanation::{Entry, FamilyEnd, FamilyExplanation, FamilyStep as Step};
use crate::forward::Routed;
use crate::realms::HostKind;
use crate::softwire::Outer;
use crate::translator::{Taken, Translator};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use natgate_engine::{
    Becomes, Direction, DropReason, End, Engine, Packet, Side, Step as EngineStep, Timestamp,
    Verdict,
};
use natgate_wire::{Icmp, Ipv4, Ipv6, icmp, protocol};

/// A packet that is explained, and where it came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    engine: &'a Engine,
    now: Timestamp,
    from: Side,
}

/// A copy of a packet behind headroom.
pub(crate) fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(bytes);
    buffer
}

impl Translator {
    /// Says what [`Translator::take`] would do with a packet that came in on a side now. Changes
    /// nothing, the packet included.
    pub fn explain(
        &mut self,
        engine: &Engine,
        now: Timestamp,
        from: Side,
        packet: &Packet<'_>,
        into: &mut FamilyExplanation,
    ) {
        // What the packet before has left goes first, as each packet has it.
        self.forget_last();
        into.begin(self.realms);
        let asked = Asked { engine, now, from };
        let mut buffer = copy(packet.bytes());
        let mut copy = Packet::new(&mut buffer, HEADROOM).in_realm(packet.realm());
        match packet.bytes().first().map(|first| first >> 4) {
            Some(6) => self.explain_ipv6(asked, &mut copy, into),
            _ => self.explain_ipv4(asked, &mut copy, into),
        }
    }

    fn explain_ipv6(
        &mut self,
        asked: Asked<'_>,
        packet: &mut Packet<'_>,
        into: &mut FamilyExplanation,
    ) {
        let from = asked.from;
        let checked = self.check(packet);
        ends::read(packet.bytes(), false).into_iter().for_each(|step| into.note(step));
        let ends = match checked {
            Ok(ends) => ends,
            Err(refusal) => return self.refused(from, refusal, into),
        };
        if self.loops(from, ends) {
            into.note(Step::Loops(Ipv6Addr::from_bits(ends.0)));
            return self.refused(from, DropReason::SpoofedSource.into(), into);
        }
        if from == Side::Inside && self.is_aftr(ends.1) {
            return self.explain_dslite(asked, packet, into);
        }
        let by = (asked.engine, asked.now);
        if from == Side::Inside && self.explain_softwire(by, packet, ends, into) {
            return;
        }
        if self.is_local(from, ends.1) {
            into.note(Step::Local);
            let answers = self.is_answering(from, ends.1) && self.sends_errors(from);
            return local(packet, (from, answers), into);
        }
        if from == Side::Inside && self.nat64.as_ref().is_some_and(|nat64| nat64.claims(ends.1)) {
            return self.explain_nat64(asked, packet, ends, into);
        }
        if self.claims_siit(from, ends.1) {
            self.note_siit_ipv6(ends, into);
            let taken = self.try_siit(packet);
            self.settled(from, packet, taken, into);
        } else if from == Side::Outside && self.claims_clat(ends.1) {
            self.note_clat_ipv6(ends, into);
            let converter = self.clat.clone();
            let taken = self.clat_to_ipv4(packet);
            self.clat = converter;
            self.settled(from, packet, taken, into);
        } else {
            self.explain_routed(asked, packet, ends, into);
        }
    }

    fn explain_ipv4(
        &mut self,
        asked: Asked<'_>,
        packet: &mut Packet<'_>,
        into: &mut FamilyExplanation,
    ) {
        let from = asked.from;
        let header = Ipv4::new_checked(packet.bytes());
        let Ok((source, destination, len)) =
            header.map(|header| (header.source(), header.destination(), header.total_len()))
        else {
            return self.explain_engine(asked, packet, into);
        };
        let ends = (source, destination);
        let is_softwires =
            from == Side::Outside && self.claims_softwire_ipv4(ends) && !self.is_engines(ends.1);
        if !is_softwires && !self.claims_ipv4(from, packet.realm(), ends) {
            let is_odd =
                Ipv4::new_checked(packet.bytes()).is_ok_and(|header| self.may_amend(from, &header));
            let amended = if is_odd { self.amend(asked.engine, asked.now, packet) } else { Ok(()) };
            return match amended {
                Ok(()) => self.explain_engine(asked, packet, into),
                Err(refusal) => self.refused(from, refusal, into),
            };
        }
        packet.truncate(len.into());
        ends::read(packet.bytes(), false).into_iter().for_each(|step| into.note(step));
        if let Err(reason) = check_ipv4(packet.bytes(), ends) {
            return self.refused(from, reason.into(), into);
        }
        if is_softwires {
            return self.explain_to_tunnel(packet, into);
        }
        let taken = match from {
            Side::Outside => {
                self.note_siit_ipv4(ends, into);
                self.siit_to_ipv6(packet)
            }
            Side::Inside => {
                self.note_clat_ipv4(ends, into);
                self.clat_to_ipv6(packet)
            }
        };
        self.settled(from, packet, taken, into);
    }

    /// The packet is refused as it came.
    pub(crate) fn refused(&self, from: Side, refusal: Refusal, into: &mut FamilyExplanation) {
        let ipv6 =
            matches!(into.steps().first(), Some(Step::Read { source, .. }) if is_ipv6(source));
        into.refuse(from, refusal, (ipv6, self.sends_errors(from)));
    }

    /// The result of a packet that the engine does not see.
    fn settled(&self, from: Side, packet: &Packet<'_>, taken: Taken, into: &mut FamilyExplanation) {
        match taken {
            Ok((direction, side, cut)) => {
                if direction == Direction::Hairpin {
                    into.note(Step::Turns);
                }
                let fate = (Verdict::Forward(side), direction);
                into.send(fate, ends::becomes(packet.bytes()), cut);
            }
            Err(refusal) => self.refused(from, refusal, into),
        }
    }

    // ---- stateless translation and routing ----

    /// Translates a packet as SIIT does, with a copy of what a translation counts.
    fn try_siit(&mut self, packet: &mut Packet<'_>) -> Taken {
        let kept = self.siit.as_ref().map(|siit| siit.counts());
        let taken = self.siit_to_ipv4(packet);
        if let (Some(siit), Some(kept)) = (&mut self.siit, kept) {
            siit.restore(kept);
        }
        taken
    }

    fn note_siit_ipv6(&self, (source, destination): (u128, u128), into: &mut FamilyExplanation) {
        let Some(siit) = &self.siit else { return };
        for address in [source, destination].map(Ipv6Addr::from_bits) {
            let found = siit.entry_of_ipv6(address);
            note_translated(address.into(), found.map(|(by, to)| (by, to.into())), into);
        }
    }

    fn note_siit_ipv4(&self, (source, destination): (u32, u32), into: &mut FamilyExplanation) {
        let Some(siit) = &self.siit else { return };
        for (address, maps) in [(source, !siit.is_simple()), (destination, true)] {
            let address = Ipv4Addr::from_bits(address);
            let found = siit.entry_of_ipv4(address, maps);
            note_translated(address.into(), found.map(|(by, to)| (by, to.into())), into);
        }
    }

    fn note_clat_ipv6(&self, (source, destination): (u128, u128), into: &mut FamilyExplanation) {
        let Some(clat) = &self.settings.clat else { return };
        for (address, prefix) in [(source, clat.prefix), (destination, clat.source)] {
            let address = Ipv6Addr::from_bits(address);
            let found = prefix.extract(address).map(|to| (Entry::Prefix(prefix), to.into()));
            note_translated(address.into(), found, into);
        }
    }

    fn note_clat_ipv4(&self, (source, destination): (u32, u32), into: &mut FamilyExplanation) {
        let Some(clat) = &self.settings.clat else { return };
        for (address, prefix) in [(source, clat.source), (destination, clat.prefix)] {
            let address = Ipv4Addr::from_bits(address);
            let to = prefix.embed(address).into();
            note_translated(address.into(), Some((Entry::Prefix(prefix), to)), into);
        }
    }

    fn explain_routed(
        &self,
        Asked { now, from, .. }: Asked<'_>,
        packet: &mut Packet<'_>,
        (source, destination): (u128, u128),
        into: &mut FamilyExplanation,
    ) {
        if from == Side::Outside && self.is_translated(destination) {
            into.note(Step::Inward(Ipv6Addr::from_bits(destination)));
        } else {
            self.note_pairs(from, (source, destination), into);
        }
        let taken = self.route(from, packet).and_then(|Routed { source, to, .. }| {
            let permitted = self.foretell_filter(now, from, source, packet.bytes())?;
            if let Some(permitted) = permitted {
                into.note(Step::Filter(permitted));
            }
            match (permitted, from) {
                (Some(false), Side::Inside) => Err(DropReason::SessionTableFull.into()),
                (Some(false), Side::Outside) => Err(DropReason::Filtered.into()),
                _ => Ok((Direction::forwarded(from, to), to, None)),
            }
        });
        self.settled(from, packet, taken, into);
    }

    /// Notes the pairs of prefixes that concern a packet.
    fn note_pairs(&self, from: Side, ends: (u128, u128), into: &mut FamilyExplanation) {
        let turns = self.turns(from, ends.1);
        let (source, destination) = (Ipv6Addr::from_bits(ends.0), Ipv6Addr::from_bits(ends.1));
        let outward = from == Side::Inside && self.pairs.is_internal(source);
        let inward = turns || from == Side::Outside && self.pairs.is_external(destination);
        if !outward && !inward {
            into.note(Step::Routed(self.settings.forwarding));
        }
        for (address, is_outward) in outward
            .then_some((source, true))
            .into_iter()
            .chain(inward.then_some((destination, false)))
        {
            let Some(pair) = self.pairs.pair_of(address).map(|one| one.pair) else { continue };
            let by = Entry::Pair(pair.internal(), pair.external());
            let to = if is_outward { pair.outbound(address) } else { pair.inbound(address) };
            let to = to.and_then(Result::ok);
            note_translated(address.into(), to.map(|to| (by, to.into())), into);
        }
    }

    // ---- packets that the engine translates ----

    fn explain_nat64(
        &mut self,
        asked: Asked<'_>,
        packet: &mut Packet<'_>,
        (source, destination): (u128, u128),
        into: &mut FamilyExplanation,
    ) {
        if let Some(nat64) = &self.nat64 {
            let host = Ipv6Addr::from_bits(source);
            if let Some((prefix, remote)) = nat64.prefix_of(destination) {
                into.note(Step::Nat64 { prefix, remote });
            }
            let is_subscriber = nat64.is_subscriber(source);
            into.note(Step::Subscriber(HostKind::Nat64, is_subscriber));
            if is_subscriber {
                let prefix = nat64.hosts.prefix_of(source);
                let len = nat64.hosts.subscriber_length();
                let subscriber = Prefix6 { address: Ipv6Addr::from_bits(prefix), len };
                let is_new = nat64.hosts.number(source).is_none();
                into.note(Step::Sender { host, inner: None, subscriber, is_new });
            }
        }
        match self.foretell_number(source, packet) {
            Ok(sender) => {
                let host = Ipv6Addr::from_bits(source).into();
                into.hosts.extend(sender.map(|number| (packet.realm(), number, host)));
                self.explain_engine(asked, packet, into);
            }
            Err(refusal) => {
                let refusal = self.with_answer(HostKind::Nat64, refusal);
                self.refused(Side::Inside, refusal, into);
            }
        }
    }

    /// Explains an IPv6 packet to the gateway's end of the tunnels of DS-Lite.
    fn explain_dslite(
        &mut self,
        asked: Asked<'_>,
        packet: &mut Packet<'_>,
        into: &mut FamilyExplanation,
    ) {
        let b4 = Ipv6::new_checked(packet.bytes()).map_or(0, |header| header.source());
        match self.explain_outer((asked.engine, asked.now), packet, into) {
            Outer::Told => {}
            Outer::Reported => into.is_certain = false,
            Outer::Inner(sender) => {
                into.hosts.extend(sender.map(|(number, inner)| (packet.realm(), number, inner)));
                // What turns round to the subscriber goes to where this packet moves it.
                let moves = sender.and_then(|(number, _)| {
                    let hosts = self.tunneled_hosts_mut()?;
                    Some((number.to_bits(), hosts.exchange_end(number.to_bits(), b4)?))
                });
                self.explain_engine(asked, packet, into);
                if let (Some((number, former)), Some(hosts)) = (moves, self.tunneled_hosts_mut()) {
                    hosts.exchange_end(number, former);
                }
            }
        }
    }

    /// Has the engine explain an IPv4 packet, from a host with a number in the host's realm. A
    /// packet to a host with a number is converted.
    fn explain_engine(
        &mut self,
        Asked { engine, now, from }: Asked<'_>,
        packet: &mut Packet<'_>,
        into: &mut FamilyExplanation,
    ) {
        // An error is of no sender.
        let sender = into.hosts.first().map(|(realm, number, _)| (*realm, *number));
        engine.explain(now, from, packet, &mut into.engine);
        into.note(Step::Engine);
        self.name_hosts(packet.realm(), into);
        let (verdict, direction) = (into.engine.verdict, into.engine.direction);
        into.is_certain &= into.engine.is_certain;
        (into.verdict, into.direction) = (verdict, direction);
        let Some(becomes) = into.engine.becomes else { return };
        let to_host =
            matches!(verdict, Verdict::Forward(Side::Inside) | Verdict::Reply(Side::Inside))
                && self.realms.has(becomes.realm);
        let hops = matches!(verdict, Verdict::Forward(_));
        let Some(mut bytes) = translated(packet.bytes(), (from, &becomes), hops) else { return };
        if !to_host {
            into.becomes = ends::becomes(&bytes);
            if let Some(packet) = &mut into.becomes {
                packet.realm = becomes.realm;
                leave_open(&becomes, [&mut packet.source, &mut packet.destination]);
            }
            return;
        }
        let receiver = becomes.destination.address;
        let name = receiver.and_then(|number| self.host(becomes.realm, number));
        if let Some(name) = name {
            into.note(Step::Receiver(name));
        }
        bytes.splice(..0, [0; HEADROOM]);
        let mut packet = Packet::new(&mut bytes, HEADROOM);
        match self.try_to_host(becomes.realm, &mut packet) {
            Ok(cut) => {
                into.send((verdict, direction), ends::becomes(packet.bytes()), cut);
                if let Some(packet) = &mut into.becomes {
                    let mut rest = FamilyEnd { address: None, port: None };
                    leave_open(&becomes, [&mut packet.source, &mut rest]);
                }
                if sender.is_some() && receiver.map(|number| (becomes.realm, number)) == sender {
                    into.answer_by_own_prefix();
                }
            }
            Err(reason) => into.drop(direction, reason),
        }
    }

    /// Names the hosts whose numbers are in the engine's explanation of a packet from a realm.
    fn name_hosts(&self, from: u16, into: &mut FamilyExplanation) {
        if self.realms.is_empty() {
            return;
        }
        let step = |step: &EngineStep| match step {
            EngineStep::Mapping { id, .. } => Some((id.realm, id.internal.address)),
            EngineStep::About { destination, .. } => Some((from, destination.address)),
            _ => None,
        };
        let mut numbers: Vec<(u16, Ipv4Addr)> =
            into.engine.steps().iter().filter_map(step).collect();
        let becomes = into.engine.becomes;
        numbers.extend(
            becomes.and_then(|becomes| Some((becomes.realm, becomes.destination.address?))),
        );
        for (realm, number) in numbers {
            let is_known = into.hosts.iter().any(|(of, known, _)| (*of, *known) == (realm, number));
            let name = self.host(realm, number).and_then(|name| name.address);
            if let (false, Some(address)) = (is_known, name) {
                into.hosts.push((realm, number, address.to_canonical()));
            }
        }
    }
}

/// An echo request to the gateway itself is answered. `answers`: errors are sent.
pub(crate) fn local(
    packet: &mut Packet<'_>,
    (from, answers): (Side, bool),
    into: &mut FamilyExplanation,
) {
    let checked = check_headers(packet.bytes());
    if checked.is_ok() && crate::answer_echo(packet.bytes_mut()) {
        let fate = (Verdict::Reply(from), Direction::Local);
        return into.send(fate, ends::becomes(packet.bytes()), None);
    }
    let refusal = checked.err().unwrap_or_else(|| unknown_protocol(packet.bytes()));
    into.drop(Direction::Local, refusal.reason);
    if let Some(message) = refusal.error.filter(|_| answers) {
        into.answer(true, message);
    }
}

fn is_ipv6(end: &FamilyEnd) -> bool {
    matches!(end.address, Some(IpAddr::V6(_)))
}

/// Notes the entry that gives an address another one.
fn note_translated(from: IpAddr, found: Option<(Entry, IpAddr)>, into: &mut FamilyExplanation) {
    into.note(match found {
        Some((by, to)) => Step::Translated { from, to, by },
        None => Step::Untranslated(from),
    });
}

/// Leaves open what the engine would draw.
fn leave_open(becomes: &Becomes, ends: [&mut FamilyEnd; 2]) {
    for (end, drawn) in ends.into_iter().zip([becomes.source, becomes.destination]) {
        end.address = end.address.filter(|_| drawn.address.is_some());
        end.port = end.port.filter(|_| drawn.port.is_some());
    }
}

/// An IPv4 packet with the ends that the engine gives it; what would be drawn stays as it is.
/// `hops`: true if its time to live decreases, else it is an answer of the gateway.
fn translated(bytes: &[u8], (from, becomes): (Side, &Becomes), hops: bool) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let mut header = Ipv4::new_checked(&mut bytes[..]).ok()?;
    let len = usize::from(header.total_len());
    let ttl = if hops { header.ttl().saturating_sub(1) } else { OWN_HOPS };
    header.set_ttl(ttl);
    let address = |end: End, old: u32| end.address.map_or(old, Ipv4Addr::to_bits);
    let (source, destination) = (header.source(), header.destination());
    header.set_source(address(becomes.source, source));
    header.set_destination(address(becomes.destination, destination));
    header.fill_checksum();
    let (number, is_later) = (header.protocol(), header.fragment_offset() != 0);
    let start = header.header_len();
    bytes.truncate(len);
    let transport = &mut bytes[start..];
    let mut put = |at: usize, port: Option<u16>| {
        if let (Some(field), Some(port)) = (transport.get_mut(at..at + 2), port) {
            field.copy_from_slice(&port.to_be_bytes());
        }
    };
    match number {
        _ if is_later => {}
        protocol::TCP | protocol::UDP | protocol::DCCP => {
            put(0, becomes.source.port);
            put(2, becomes.destination.port);
        }
        protocol::ICMP => translate_message(transport, from, becomes),
        _ => {}
    }
    Some(bytes)
}

/// An ICMP message with the ends that the engine gives it. The packet that an error quotes went the
/// other way.
fn translate_message(bytes: &mut [u8], from: Side, becomes: &Becomes) {
    let Some(mut message) = Icmp::new_checked(bytes) else { return };
    if icmp::is_error(message.kind()) {
        let destination = becomes.destination.address;
        if let (Ok(mut quoted), Some(receiver)) =
            (Ipv4::new_header_checked(message.body_mut()), destination)
        {
            quoted.set_source(receiver.to_bits());
            if let (Side::Inside, Some(sender)) = (from, becomes.source.address) {
                quoted.set_destination(sender.to_bits());
            }
            quoted.fill_checksum();
        }
    } else if let Some(identifier) = becomes.destination.port.or(becomes.source.port) {
        message.set_identifier(identifier);
        if becomes.source == becomes.destination {
            return;
        }
    }
    message.fill_checksum();
}
