//! Control flows of NAT64: a client inside has IPv6, and its server outside IPv4.
//!
//! The translator and the engine take a packet from inside first. What leaves is an IPv4 packet, as
//! for every other realm, and goes through the payload framework. A packet from outside is IPv4,
//! and its flow is known from the packets of the client. Servers inside, and DNS, are not read.

use super::watched::may_have_ipv6;
use super::{AlgSettings, Arrived, Control, Ends, HostEnds, Kind, Stage};
use natgate_engine::{Engine, Side, Timestamp};
use natgate_ipv6::{HostKind, Translator};
use natgate_payload::{Endpoints, Fate, Room};
use natgate_wire::{Ipv6, protocol};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Protocol and endpoints in the headers of a packet of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends6 {
    protocol: u8,
    source: SocketAddrV6,
    destination: SocketAddrV6,
}

impl Ends6 {
    /// The ends of a whole packet, or of a first fragment, with ports.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let ip = Ipv6::new_checked(packet).ok()?;
        let walk = ip.walk().ok()?;
        let is_known = [protocol::TCP, protocol::UDP].contains(&walk.protocol);
        if !is_known || walk.fragment.is_some_and(|(_, fragment)| fragment.offset > 0) {
            return None;
        }
        let ports: [u8; 4] = packet.get(walk.transport..walk.transport + 4)?.try_into().ok()?;
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let end = |address, port| SocketAddrV6::new(Ipv6Addr::from_bits(address), port, 0, 0);
        Some(Self {
            protocol: walk.protocol,
            source: end(ip.source(), port(0)),
            destination: end(ip.destination(), port(2)),
        })
    }
}

/// The endpoints of a packet from a host with a number, before translation.
pub(super) struct Asked {
    pub(super) internal: SocketAddr,
    /// The receiver outside.
    pub(super) remote: SocketAddrV4,
    /// The receiver as the host knows it.
    pub(super) remote_inside: SocketAddr,
    /// The number of a host with an IPv4 address.
    pub(super) number: Option<Ipv4Addr>,
}

impl Stage {
    /// True if a packet from inside may be of a control flow of NAT64 or DS-Lite, and has to be
    /// given to [`Stage::edit_of_host`] when it has been translated.
    pub(crate) fn claims_of_host(&self, translator: &Translator, packet: &[u8]) -> bool {
        self.claims_ipv6(translator, packet) || self.claims_tunneled(translator, packet)
    }

    fn claims_ipv6(&self, translator: &Translator, packet: &[u8]) -> bool {
        let ends = may_have_ipv6(&self.watched, packet).then(|| Ends6::read(packet)).flatten();
        ends.is_some_and(|ends| {
            let kind =
                |settings: &AlgSettings| settings.kind(ends.protocol, ends.destination.port());
            let kind = kind(&self.settings).or_else(|| kind(&self.former));
            kind.is_some_and(|kind| kind != Kind::Dns)
                && translator.remote_of(HostKind::Nat64, *ends.destination.ip()).is_some()
        })
    }

    /// Takes a packet of a host with a number that has been translated and leaves by the outside.
    /// `ends` are those before translation.
    pub(crate) fn edit_of_host(
        &mut self,
        engine: &mut Engine,
        translator: &Translator,
        now: Timestamp,
        ends: HostEnds,
        room: &mut Room<'_>,
    ) -> Fate {
        let control = match ends {
            HostEnds::Ipv6(ends) => self.control_of_host(translator, ends, room.bytes()),
            HostEnds::Tunneled(ends) => self.control_tunneled(translator, ends, room.bytes()),
        };
        let Some(control) = control else { return Fate::Pass };
        let arrived = Arrived { now, from: Side::Inside, realm: control.endpoints.realm };
        self.edit((engine, Some(translator)), arrived, control, room)
    }

    /// The flow of a packet that has been translated.
    fn control_of_host(
        &self,
        translator: &Translator,
        ends: Ends6,
        packet: &[u8],
    ) -> Option<Control> {
        let seen = translator.remote_of(HostKind::Nat64, *ends.destination.ip())?;
        let asked = Asked {
            internal: ends.source.into(),
            remote: SocketAddrV4::new(seen, ends.destination.port()),
            remote_inside: ends.destination.into(),
            number: None,
        };
        self.control_of_numbered(translator, asked, packet)
    }

    /// The flow of a packet from a host with a number, which has been translated.
    pub(super) fn control_of_numbered(
        &self,
        translator: &Translator,
        asked: Asked,
        packet: &[u8],
    ) -> Option<Control> {
        let Asked { internal, remote, remote_inside, number } = asked;
        let Ends { protocol, source: external, destination } = Ends::read(packet)?;
        // A destination that was translated too has two names; such flows pass unread.
        if destination != remote {
            return None;
        }
        let named = self.settings.kind(protocol, remote.port());
        let known = self.payloads.find(protocol, external, remote).map(|(kind, _)| kind);
        let kind = if internal.is_ipv6() { HostKind::Nat64 } else { HostKind::Dslite };
        let realm = translator.realms().of(kind)?;
        let endpoints = Endpoints { internal, external, remote, remote_inside, realm, number };
        let named = named.or_else(|| self.further.kind(protocol, &endpoints));
        self.control(named, known, endpoints)
    }
}
