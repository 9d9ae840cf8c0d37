//! Explains the fate of packets of softwires: the tunnel, the customer that the tables have, the
//! tunnel that was expected, the port set.
//!
//! The functions that take packets run on a copy of the packet. What they count is taken back.

use super::bindings::Tunnel;
use super::endpoint::{self, End, Port};
use super::from_tunnel::{Arrived, Content, admit, read_inner};
use super::icmp::TunnelError;
use super::to_tunnel::{Passed, datagram};
use super::{Answer, Located, Location, Owner, Softwires, Stopped};
use crate::convert::Refusal;
use crate::ends;
use crate::explanation::{FamilyExplanation, FamilyStep as Step, SoftwireTable, Waits};
use crate::realms::HostKind;
use crate::translator::Translator;
use crate::{Pref64, Prefix6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use natgate_engine::{Direction, DropReason, Engine, Packet, Side, Timestamp, Verdict};
use natgate_wire::{Ipv4, Ipv6};

/// What an explanation of an outer packet has come to.
pub(crate) enum Outer {
    /// All has been told.
    Told,
    /// The packet is a report that the engine translates.
    Reported,
    /// The packet in the buffer is the inner one, for the engine. Its sender has this number and
    /// address, unless the packet is an error.
    Inner(Option<(Ipv4Addr, IpAddr)>),
}

impl Softwires {
    /// The table of an owner.
    fn table(&self, owner: Owner) -> SoftwireTable {
        match owner {
            Owner::Bindings => SoftwireTable::Bindings,
            Owner::Rule(place) => {
                let rule = self.domains.rules()[place].parameters();
                SoftwireTable::Rule { place, ipv6: rule.ipv6, ipv4: rule.ipv4 }
            }
        }
    }

    /// Notes the customer that has an end of an IPv4 packet. Returns the customer.
    fn note_customer(
        &self,
        packet: &Ipv4<&[u8]>,
        end: End,
        tunnel: u128,
        into: &mut FamilyExplanation,
    ) -> Option<Located> {
        let ipv4 = match end {
            End::Source => packet.source(),
            End::Destination => packet.destination(),
        };
        let ports = || self.fragments.ports(&datagram(tunnel, packet));
        let port = match (endpoint::port(packet, end).ok()?, end) {
            (Port::Later, End::Source) => ports().map_or(Port::Later, |ports| ports.source),
            (Port::Later, End::Destination) => {
                ports().map_or(Port::Later, |ports| ports.destination)
            }
            (port, _) => port,
        };
        let number = match port {
            Port::Number(number) => Some(number),
            Port::Later | Port::Absent => None,
        };
        let address = Ipv4Addr::from_bits(ipv4);
        let is_sender = end == End::Source;
        match self.locate(ipv4, || Ok(port)).ok()? {
            Location::Customer(located) => {
                let Located { owner, tunnel } = located;
                let sets = match owner {
                    Owner::Rule(place) => self.domains.rules()[place].sets(),
                    Owner::Bindings => self.lw4o6.as_ref()?.bindings.sets(ipv4),
                };
                let psid = number.and_then(|number| sets.set_of(number)).unwrap_or(0);
                let table = self.table(owner);
                into.note(Step::Customer {
                    table,
                    ipv4: address,
                    port: number,
                    sets,
                    psid,
                    tunnel,
                    is_sender,
                });
                return Some(located);
            }
            Location::NeedsPort => into.note(Step::Later),
            Location::Unbound => into.note(Step::Unbound { ipv4: address, port: number }),
            Location::Elsewhere if is_sender => {
                into.note(Step::Unbound { ipv4: address, port: number });
            }
            Location::Elsewhere => {}
        }
        None
    }

    /// Notes the rule of MAP-T that has the sender of a packet, and its port set.
    fn note_origin(&self, bytes: &[u8], into: &mut FamilyExplanation) {
        let Ok(packet) = Ipv6::new_checked(bytes) else { return };
        let Ok(end) = endpoint::source6(&packet) else { return };
        let address = Ipv6Addr::from_bits(end.address);
        let Some(place) = self.domains.find6(end.address) else {
            return into.note(Step::Untranslated(address.into()));
        };
        let rule = self.domains.rules()[place];
        let Some((ipv4, psid)) = rule.customer_of(end.address) else {
            return into.note(Step::Untranslated(address.into()));
        };
        let port = match end.port {
            Port::Number(port) => Some(port),
            Port::Later | Port::Absent => None,
        };
        into.note(Step::Customer {
            table: self.table(Owner::Rule(place)),
            ipv4: Ipv4Addr::from_bits(ipv4),
            port,
            sets: rule.sets(),
            psid,
            tunnel: Tunnel { br: 0, customer: end.address },
            is_sender: true,
        });
        let set = port.and_then(|port| rule.psid_of(port));
        if !rule.sets().is_whole() && set != Some(psid) {
            into.note(Step::PortSet { own: psid, port, set });
        }
        if !self.domains.is_found(place, ipv4, psid) {
            self.note_longer(ipv4, port, into);
        }
    }

    /// Notes the rule with the longest prefix that has an address, and its customer.
    fn note_longer(&self, ipv4: u32, port: Option<u16>, into: &mut FamilyExplanation) {
        let Some(first) = self.domains.find(ipv4) else { return };
        let sets = self.domains.line(first).arithmetic.sets;
        let psid = if sets.is_whole() { Some(0) } else { port.and_then(|port| sets.set_of(port)) };
        let own = psid.and_then(|psid| Some((self.domains.of_customer(first, psid)?, psid)));
        let customer = own.map(|(place, psid)| {
            Ipv6Addr::from_bits(self.domains.line(place).arithmetic.address_of(ipv4, psid))
        });
        let table = self.table(Owner::Rule(own.map_or(first, |(place, _)| place)));
        into.note(Step::Longer { table, ipv4: Ipv4Addr::from_bits(ipv4), customer });
    }

    /// True if a fragment would find room.
    fn would_hold(&self, datagram: &super::fragments::Datagram, len: usize) -> bool {
        self.fragments.has_room(datagram, len)
    }
}

impl Translator {
    /// Explains an IPv6 packet from inside, if it is a softwire's without sessions.
    pub(crate) fn explain_softwire(
        &mut self,
        by: (&Engine, Timestamp),
        packet: &mut Packet<'_>,
        ends: (u128, u128),
        into: &mut FamilyExplanation,
    ) -> bool {
        let Some(softwires) = &self.softwires else { return false };
        let dmr = softwires.domains.dmr(ends.1);
        if softwires.is_tunnel_end(ends.1) {
            self.explain_outer(by, packet, into);
        } else if let Some(dmr) = dmr {
            self.explain_domain(packet, dmr, into);
        } else {
            return false;
        }
        true
    }

    /// Explains a packet to the gateway's end of a tunnel.
    pub(crate) fn explain_outer(
        &mut self,
        by: (&Engine, Timestamp),
        packet: &mut Packet<'_>,
        into: &mut FamilyExplanation,
    ) -> Outer {
        let Some(arrived) = Arrived::whole(packet.bytes()) else { return Outer::Told };
        let tunnel = Tunnel { br: arrived.ends.1, customer: arrived.ends.0 };
        let is_aftr = self.is_aftr(arrived.ends.1);
        match admit(packet.bytes()) {
            Err((direction, refusal)) => {
                into.drop(direction, refusal.reason);
                let answer = refusal.error.filter(|_| self.sends_errors(Side::Inside));
                answer.into_iter().for_each(|message| into.answer(true, message));
            }
            Ok((Content::Icmp(at), _)) => return self.explain_icmp(by, packet, at, into),
            Ok((Content::Fragment(..), _)) => {
                into.note(Step::Tunnel(tunnel));
                if is_aftr && !self.note_b4(tunnel.customer, into) {
                    into.drop(Direction::Outbound, DropReason::SoftwireSource);
                } else {
                    into.note(Step::Waits(Waits::Outer));
                    (into.is_certain, into.direction) = (false, Direction::Outbound);
                }
            }
            Ok((Content::Whole(at), _)) => {
                let arrived = Arrived { at, ..arrived };
                into.note(Step::Tunnel(tunnel));
                let inner = packet.bytes().get(at..).and_then(|inner| ends::read(inner, true));
                inner.into_iter().for_each(|step| into.note(step));
                if is_aftr {
                    return self.explain_numbering(by.1, packet, arrived, into);
                }
                self.explain_arrived(packet, arrived, into);
            }
        }
        Outer::Told
    }

    /// Explains an ICMPv6 message to the gateway's end of a tunnel.
    fn explain_icmp(
        &mut self,
        by: (&Engine, Timestamp),
        packet: &mut Packet<'_>,
        at: usize,
        into: &mut FamilyExplanation,
    ) -> Outer {
        into.note(Step::Local);
        if crate::answer_echo(packet.bytes_mut()) {
            let fate = (Verdict::Reply(Side::Inside), Direction::Local);
            into.send(fate, ends::becomes(packet.bytes()), None);
            return Outer::Told;
        }
        let is_aftr = Ipv6::new_checked(packet.bytes())
            .is_ok_and(|header| self.is_aftr(header.destination()));
        let read = match is_aftr {
            true => self.foretell_report(by, packet.bytes(), at),
            false => TunnelError::read(packet.bytes(), at).and_then(|error| {
                let softwires = self.softwires.as_ref().ok_or(DropReason::IcmpNoSession)?;
                softwires.understands(&error).then_some(true).ok_or(DropReason::IcmpNoSession)
            }),
        };
        if !matches!(read, Err(DropReason::LocalUnsupported)) {
            into.note(Step::Report(read.is_ok()));
        }
        match read {
            Err(reason) => into.drop(Direction::Local, reason),
            Ok(is_taken) => {
                (into.verdict, into.direction) = (Verdict::Reply(Side::Inside), Direction::Local);
                if !is_taken {
                    return Outer::Reported;
                }
            }
        }
        Outer::Told
    }

    /// Notes if the end of a tunnel is a B4 of DS-Lite; returns it.
    fn note_b4(&self, b4: u128, into: &mut FamilyExplanation) -> bool {
        let (is_b4, _) = self.permits_tunneled(b4, 0);
        into.note(Step::Subscriber(HostKind::Dslite, is_b4));
        is_b4
    }

    /// Explains a packet in a tunnel of DS-Lite, up to the engine.
    fn explain_numbering(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        arrived: Arrived,
        into: &mut FamilyExplanation,
    ) -> Outer {
        let b4 = arrived.ends.0;
        let inner = read_inner(&packet.bytes()[arrived.at..]).map(|inner| inner.source());
        if let (true, Ok(inner)) = (self.note_b4(b4, into), inner) {
            let address = Ipv4Addr::from_bits(inner);
            let is_error = crate::nat64::about_ipv4(&packet.bytes()[arrived.at..]).is_some();
            if !is_error {
                into.note(Step::Inner(address, self.permits_tunneled(b4, inner).1));
                let host = Ipv6Addr::from_bits(b4);
                let is_new = self.number_behind(host, address).is_none();
                let len = self.tunneled_hosts().map_or(128, |hosts| hosts.subscriber_length());
                let subscriber = Prefix6 { address: host, len };
                let subscriber = Prefix6 { address: subscriber.first(), len };
                into.note(Step::Sender { host, inner: Some(address), subscriber, is_new });
            }
        }
        if self.has_request(packet.bytes(), arrived) {
            into.drop(Direction::Local, DropReason::LocalUnsupported);
            return Outer::Told;
        }
        match self.foretell_arrived(now, packet, arrived) {
            Ok(sender) => {
                let name = sender.zip(inner.ok());
                Outer::Inner(
                    name.map(|(number, inner)| (number, Ipv4Addr::from_bits(inner).into())),
                )
            }
            Err(reason) => {
                let refusal = self.with_answer(HostKind::Dslite, reason.into());
                into.refuse(Side::Inside, refusal, (false, self.sends_errors(Side::Inside)));
                Outer::Told
            }
        }
    }

    /// Explains a packet in a tunnel of lw4o6 or MAP-E.
    fn explain_arrived(
        &mut self,
        packet: &mut Packet<'_>,
        arrived: Arrived,
        into: &mut FamilyExplanation,
    ) {
        let outside = (self.own_ipv4(), self.mtu_outside());
        let answers = self.sends_errors(Side::Inside);
        let Some(softwires) = &mut self.softwires else { return };
        if let Ok(inner) = read_inner(&packet.bytes()[arrived.at..]) {
            let sender = softwires.note_customer(&inner, End::Source, arrived.ends.0, into);
            let actual = Tunnel { br: arrived.ends.1, customer: arrived.ends.0 };
            let is_right = sender.is_none_or(|sender| sender.tunnel == actual);
            if let Some(sender) = sender {
                into.note(Step::Origin(sender.tunnel, is_right));
            }
            if sender.is_some() && is_right {
                softwires.note_customer(&inner, End::Destination, arrived.ends.0, into);
            }
        }
        let kept = softwires.counts();
        let taken = softwires.leave_tunnel(packet, arrived, outside);
        softwires.restore(kept);
        match taken {
            Ok((passed, _)) => self.passed(Side::Inside, packet, passed, into),
            Err(Stopped { reason, answer }) => {
                into.drop(Direction::Outbound, reason);
                match answer {
                    Answer::Inner(message) if answers => into.answer(false, message),
                    Answer::Outer(message) if answers => into.answer(true, message),
                    _ => {}
                }
            }
        }
    }

    /// Explains an IPv6 packet to the prefix of a default mapping rule of MAP-T.
    fn explain_domain(
        &mut self,
        packet: &mut Packet<'_>,
        dmr: Pref64,
        into: &mut FamilyExplanation,
    ) {
        let error_source = self.error_source_ipv4(Side::Outside);
        let answers = self.sends_errors(Side::Inside);
        let Some(softwires) = &mut self.softwires else { return };
        softwires.note_origin(packet.bytes(), into);
        let kept = softwires.counts();
        let taken = softwires.leave_domain(packet, dmr, error_source);
        softwires.restore(kept);
        match taken {
            Ok((passed, _)) => self.passed(Side::Inside, packet, passed, into),
            Err(refusal) => into.refuse(Side::Inside, refusal, (true, answers)),
        }
    }

    /// Explains a checked IPv4 packet from outside that is a softwire's.
    pub(crate) fn explain_to_tunnel(
        &mut self,
        packet: &mut Packet<'_>,
        into: &mut FamilyExplanation,
    ) {
        let answers = self.sends_errors(Side::Outside);
        let Some(softwires) = &mut self.softwires else { return };
        if let Ok(header) = Ipv4::new_checked(packet.bytes())
            && softwires.note_customer(&header, End::Destination, 0, into).is_none()
            && !softwires.has_address(header.destination())
        {
            let ipv4 = Ipv4Addr::from_bits(header.destination());
            into.note(Step::Unbound { ipv4, port: None });
        }
        let kept = softwires.counts();
        let taken = softwires.take_from_outside(packet);
        softwires.restore(kept);
        match taken {
            Ok(passed) => self.passed(Side::Outside, packet, passed, into),
            Err(Stopped { reason, answer }) => {
                let error = match answer {
                    Answer::Inner(message) => Some(message),
                    Answer::Outer(_) | Answer::Nothing => None,
                };
                into.refuse(Side::Outside, Refusal { reason, error }, (false, answers));
            }
        }
    }

    /// The result of a packet of a softwire that may go on.
    fn passed(
        &self,
        from: Side,
        packet: &Packet<'_>,
        passed: Passed,
        into: &mut FamilyExplanation,
    ) {
        match passed {
            Passed::Hold(datagram) => {
                let has_room = |one: &Softwires| one.would_hold(&datagram, packet.len());
                into.direction = Direction::forwarded(from, from.other());
                match self.softwires.as_ref().is_some_and(has_room) {
                    true => into.note(Step::Waits(Waits::Port)),
                    false => into.drop(into.direction, DropReason::FragmentLimit),
                }
            }
            Passed::Sent(direction, side, cut) => {
                if direction == Direction::Hairpin {
                    into.note(Step::Turns);
                }
                let fate = (Verdict::Forward(side), direction);
                into.send(fate, ends::becomes(packet.bytes()), cut);
            }
        }
    }
}
