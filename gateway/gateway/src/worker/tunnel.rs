//! A worker's packets in the tunnel of a pair: those of slices whose owner is there go to the
//! owner, and those that come are taken as if they had come by a device.

use super::Worker;
use super::stages::{Packets, Stages, transmitters};
use crate::fleet::{Arrival, Fleet, PassedPacket, Tunnel};
use crate::link::Link;
use crate::team::{Kind, Way};
use natgate_engine::{Config, Direction, Engine, NumberedSender, Serving, Side, Timestamp};
use natgate_io::{BATCH, Frame, HEADROOM, Transmit};
use natgate_ipv6::{HostKind, Requester, Translator};
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::{Ipv4, Ipv6, icmpv6, ipv6, protocol};
use std::net::{Ipv4Addr, Ipv6Addr};

impl Worker {
    /// Takes packets that have come by the tunnel, a batch at most. Returns their number.
    pub(super) fn take_passed(&mut self, now: Timestamp, fleet: &mut Fleet) -> usize {
        let Self { stages, devices, .. } = self;
        let mut taken = 0;
        let mut here: [Vec<(Vec<u8>, u16)>; 2] = Default::default();
        while taken < BATCH
            && let Some(passed) = fleet.next_passed(now)
        {
            taken += 1;
            let Some(arrival) = stages.sort_passed(now, &passed) else {
                fleet.refuse_passed();
                continue;
            };
            match arrival {
                Sorted::Here(side, realm) => {
                    let mut buffer = with_headroom(passed.packet());
                    stages.name_no_source((side, realm), &mut buffer, HEADROOM);
                    here[side as usize].push((buffer, realm));
                }
                Sorted::Turned(realm) => {
                    let buffer = with_headroom(passed.packet());
                    stages.take_turned(now, (buffer, realm), &mut transmitters(devices));
                }
                Sorted::Elsewhere => {}
            }
        }
        for (side, buffers) in [Side::Inside, Side::Outside].into_iter().zip(&mut here) {
            if buffers.is_empty() {
                continue;
            }
            let mut packets = Packets::new();
            for (buffer, realm) in buffers {
                let end = buffer.len();
                packets.push(Frame::of(buffer, HEADROOM, end), *realm);
            }
            stages.carry_here(now, side, &mut packets, &mut transmitters(devices));
        }
        taken
    }
}

/// Place of a packet that has come by the tunnel.
enum Sorted {
    /// This worker, which takes it from a side and a realm.
    Here(Side, u16),
    /// This worker, and the packet has turned round; its sender is of this realm.
    Turned(u16),
    /// Another worker has it, or it is lost.
    Elsewhere,
}

fn with_headroom(packet: &[u8]) -> Vec<u8> {
    [&[0; HEADROOM], packet].concat()
}

impl Stages {
    /// Passes on those packets of a batch that came in on a side and are of a slice whose owner is
    /// there. The others stay in the batch.
    #[inline(never)]
    pub(super) fn pass_on(&mut self, now: Timestamp, from: Side, packets: &mut Packets<'_>) {
        let Some(mut tunnel) = self.tunnel.take() else { return };
        if tunnel.is_open(now) {
            packets.frames.retain(|frame| {
                let Some(slice) = self.slice_of(&tunnel, (now, from), frame) else { return true };
                let realm = frame.realm();
                let arrival = match from {
                    Side::Inside => Arrival::Inside(name_of(self.engine.config(), realm)),
                    Side::Outside => Arrival::Outside,
                };
                !tunnel.pass(slice, arrival, frame.bytes())
            });
        }
        self.tunnel = Some(tunnel);
    }

    /// The slice of a packet that is to be passed on.
    fn slice_of(
        &mut self,
        tunnel: &Tunnel,
        (now, from): (Timestamp, Side),
        frame: &mut Frame<'_>,
    ) -> Option<u16> {
        if from == Side::Outside {
            return slice_to(&self.engine, tunnel, now, frame.bytes());
        }
        let serving = self.serving(frame);
        let slice = tunnel.slice_of(serving, now)?;
        // A rule by port is not seen before all fragments are there.
        if Ipv4::new_checked(frame.bytes()).is_ok_and(|packet| packet.is_fragment())
            && !tunnel.has_other_all(self.engine.rules(frame.realm()).pools_by_port(), now)
        {
            return None;
        }
        // The caller decides about a host that would be a new subscriber here as well.
        let is_new = matches!(serving, Serving::Any(_));
        let is_barred =
            is_new && self.engine.guards(frame.realm()) && !self.is_admitted(now, frame);
        (!is_barred).then_some(slice)
    }

    /// The address that serves a packet from inside.
    fn serving(&self, frame: &Frame<'_>) -> Serving {
        let Self { engine, families, .. } = self;
        let Some(families) = families else { return engine.serving_outbound(frame) };
        let translator = &families.translator;
        match frame.bytes().first().map(|first| first >> 4) {
            Some(6) => serving_ipv6(engine, translator, frame.bytes()),
            _ if translator.claims(Side::Inside, frame.realm(), frame.bytes()) => Serving::Nothing,
            _ => engine.serving_outbound(frame),
        }
    }

    /// Passes a packet on that turns round, whose sender's endpoint is translated, if its receiver
    /// is of a slice whose owner is there. Returns true if so.
    pub(super) fn pass_turned(&mut self, now: Timestamp, realm: u16, packet: &[u8]) -> bool {
        let Self { engine, tunnel: Some(tunnel), .. } = self else { return false };
        let slice = slice_to(engine, tunnel, now, packet);
        let name = name_of(engine.config(), realm);
        slice.is_some_and(|slice| tunnel.pass(slice, Arrival::Turned(name), packet))
    }

    /// Passes an IPv4 packet from outside on before its worker is searched for: a later fragment
    /// would wait for its first one, which may have come to the owner. Returns true if so.
    pub(super) fn pass_inbound(&mut self, now: Timestamp, packet: &[u8]) -> bool {
        let Self { engine, tunnel: Some(tunnel), .. } = self else { return false };
        let slice = slice_to(engine, tunnel, now, packet);
        slice.is_some_and(|slice| tunnel.pass(slice, Arrival::Outside, packet))
    }

    /// Writes a header before a packet that has come by the tunnel, of a station that is nobody's.
    /// So no neighbour entry vouches for a new host of the link's network.
    pub(super) fn name_no_source(
        &self,
        (side, realm): (Side, u16),
        buffer: &mut [u8],
        start: usize,
    ) {
        let own = self.router.mac(Link::new(side, realm));
        let mut header = [0; ETHERNET_LEN];
        arp::write_ethernet(&mut header, own, Mac::default(), ethertype::IPV4);
        if let Some(room) = start.checked_sub(ETHERNET_LEN) {
            buffer[room..start].copy_from_slice(&header);
        }
    }

    /// Finds the worker of a packet that has come by the tunnel. `None`: this node has no such
    /// realm, or no such family.
    fn sort_passed(&mut self, now: Timestamp, passed: &PassedPacket) -> Option<Sorted> {
        let packet = passed.packet();
        let config = self.engine.config();
        let (link, is_turned) = match passed.arrival() {
            Arrival::Inside(name) => (Link::inside(realm_of(config, name)?), false),
            Arrival::Outside => (Link::OUTSIDE, false),
            Arrival::Turned(name) => (Link::inside(realm_of(config, name)?), true),
        };
        let is_ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
        if is_ipv6 && (link != Link::inside(0) || is_turned || self.families.is_none()) {
            return None;
        }
        let kind = if is_turned { Kind::Turned(link.realm) } else { Kind::Passed(link) };
        let way = match &mut self.team {
            None => Way::Here,
            Some(team) if is_ipv6 => team.dispatch_ipv6(kind, packet),
            Some(team) => {
                let tools = (&mut self.engine, self.algs.as_deref());
                team.dispatch(now, tools, kind, packet)
            }
        };
        let direction = match link.side {
            _ if is_turned => Direction::Hairpin,
            side => Direction::forwarded(side, side.other()),
        };
        Some(match self.has_come(way, direction, packet.len()) {
            false => Sorted::Elsewhere,
            true if is_turned => Sorted::Turned(link.realm),
            true => Sorted::Here(link.side, link.realm),
        })
    }

    /// Takes a packet through all stages that turned round at the other node.
    fn take_turned(
        &mut self,
        now: Timestamp,
        (mut buffer, realm): (Vec<u8>, u16),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let end = buffer.len();
        let mut packets = Packets::one(Frame::of(&mut buffer, HEADROOM, end), realm);
        self.carry_turned(now, &mut packets, transmitters);
    }
}

/// The slice that a packet goes to, if its packets go to the other node now.
fn slice_to(engine: &Engine, tunnel: &Tunnel, now: Timestamp, packet: &[u8]) -> Option<u16> {
    tunnel.slice_with(engine.external_destination(packet)?, now)
}

/// Name of a realm; empty for realm 0.
fn name_of(config: &Config, realm: u16) -> &str {
    let place = usize::from(realm).checked_sub(1);
    place.and_then(|place| config.realms.get(place)).map_or("", |realm| &realm.name)
}

/// The realm with a name.
fn realm_of(config: &Config, name: &str) -> Option<u16> {
    if name.is_empty() {
        return Some(0);
    }
    let mut realms = (1..).zip(&config.realms);
    let found = realms.find(|(_, realm)| realm.name == name).map(|(number, _)| number);
    found.filter(|number| config.has_realm(*number))
}

/// The address that serves an IPv6 packet from inside.
fn serving_ipv6(engine: &Engine, translator: &Translator, packet: &[u8]) -> Serving {
    let realms = translator.realms();
    if let Some((b4, inner)) = translator.tunneled_packet(packet) {
        let (Some(realm), Ok(header)) = (realms.of(HostKind::Dslite), Ipv4::new_checked(inner))
        else {
            return Serving::Nothing;
        };
        let inner_source = Ipv4Addr::from_bits(header.source());
        let requester = Requester::Tunneled { b4, inner: inner_source };
        let Some((_, number)) = translator.number_of(requester) else {
            return new_host(engine, realm, translator.translates_for(requester));
        };
        return engine.serving_tunneled(inner, (realm, number));
    }
    let (Some(realm), Ok(header)) = (realms.of(HostKind::Nat64), Ipv6::new_checked(packet)) else {
        return Serving::Nothing;
    };
    let remote = Ipv6Addr::from_bits(header.destination());
    let Some(remote) = translator.remote_of(HostKind::Nat64, remote) else {
        return Serving::Nothing;
    };
    let requester = Requester::Ipv6(Ipv6Addr::from_bits(header.source()));
    let Some((_, number)) = translator.number_of(requester) else {
        return new_host(engine, realm, translator.translates_for(requester));
    };
    let ports = ports_of(packet);
    engine.serving_numbered(NumberedSender {
        host: (realm, Some(number)),
        port: ports.map(|(protocol, internal, _)| (protocol, internal)),
        remote: (remote, ports.map_or(0, |(.., remote)| remote)),
    })
}

/// The address that serves a host without a number.
fn new_host(engine: &Engine, realm: u16, is_subscriber: bool) -> Serving {
    let sender =
        NumberedSender { host: (realm, None), port: None, remote: (Ipv4Addr::UNSPECIFIED, 0) };
    if is_subscriber { engine.serving_numbered(sender) } else { Serving::Nothing }
}

/// Protocol of IPv4, port and remote port of a plain IPv6 packet. A query has an identifier in
/// place of the port.
fn ports_of(packet: &[u8]) -> Option<(u8, u16, u16)> {
    let next = *packet.get(ipv6::NEXT_HEADER)?;
    let payload = packet.get(ipv6::HEADER_LEN..)?;
    let word = |at: usize| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    match next {
        protocol::TCP | protocol::UDP => Some((next, word(0)?, word(2)?)),
        protocol::ICMPV6 => {
            use icmpv6::kind::{ECHO_REPLY, ECHO_REQUEST};
            let is_query = matches!(*payload.first()?, ECHO_REQUEST | ECHO_REPLY);
            is_query.then_some((protocol::ICMP, word(4)?, 0))
        }
        _ => None,
    }
}
