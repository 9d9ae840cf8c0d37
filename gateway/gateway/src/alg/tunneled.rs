//! Control flows of hosts behind B4s of DS-Lite: FTP from a client inside.
//!
//! As with NAT64, the translator and the engine take a packet from inside first, and what leaves
//! goes through the payload framework. The client's endpoint is the inner one, which its messages
//! name. The engine knows the host by a number, which the tunnel and the inner address give. A
//! packet from outside tells no tunnel, so nothing is expected or withdrawn because of it.

use super::nat64::Asked;
use super::{AlgSettings, Control, Ends, Ends6, Kind, Stage};
use natgate_engine::Engine;
use natgate_ipv6::{Requester, Translator};
use natgate_wire::ipv6;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4};

/// Next header of an IPv4 packet in a tunnel.
const IPV4: u8 = 4;

/// Endpoints of a packet from a host with a number, before translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostEnds {
    /// The host is one of NAT64.
    Ipv6(Ends6),
    /// The host is behind a B4.
    Tunneled(TunneledEnds),
}

/// The B4 that a host is behind, and the endpoints of the inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunneledEnds {
    b4: Ipv6Addr,
    inner: Ends,
}

impl HostEnds {
    /// The ends of a whole packet, or of a first fragment, with ports.
    pub(crate) fn read(translator: &Translator, packet: &[u8]) -> Option<Self> {
        match translator.tunneled_packet(packet) {
            Some((b4, inner)) => {
                Ends::read(inner).map(|inner| Self::Tunneled(TunneledEnds { b4, inner }))
            }
            None => Ends6::read(packet).map(Self::Ipv6),
        }
    }
}

/// The hosts with numbers that a flow's internal endpoint may be one of.
#[derive(Clone, Copy)]
pub(super) enum Hosts<'t> {
    /// The realm has no numbers: the engine knows the endpoint as it is.
    Unnumbered,
    /// Hosts of IPv6, if the translator is at hand.
    Ipv6(Option<&'t Translator>),
    /// Hosts behind a B4.
    Behind(&'t Translator, Ipv6Addr),
}

impl<'t> Hosts<'t> {
    /// The hosts that a flow of a realm may be of. `b4`: the tunnel of the packet.
    pub(super) fn of(
        engine: &Engine,
        translator: Option<&'t Translator>,
        realm: u16,
        b4: Option<Ipv6Addr>,
    ) -> Self {
        let realm = usize::from(realm).checked_sub(1);
        let config = realm.and_then(|realm| engine.config().realms.get(realm));
        match (config.is_some_and(|realm| realm.host_bits.is_some()), translator.zip(b4)) {
            (false, _) => Self::Unnumbered,
            (true, Some((translator, b4))) => Self::Behind(translator, b4),
            (true, None) => Self::Ipv6(translator),
        }
    }

    /// An internal endpoint as the engine knows it. `None`: the host has no number, or cannot be
    /// told.
    pub(super) fn in_engine(self, internal: SocketAddr) -> Option<SocketAddrV4> {
        let (translator, host) = match (self, internal) {
            (Self::Unnumbered, SocketAddr::V4(internal)) => return Some(internal),
            (Self::Ipv6(translator), SocketAddr::V6(host)) => {
                (translator?, Requester::Ipv6(*host.ip()))
            }
            (Self::Behind(translator, b4), SocketAddr::V4(inner)) => {
                (translator, Requester::Tunneled { b4, inner: *inner.ip() })
            }
            _ => return None,
        };
        let (_, number) = translator.number_of(host)?;
        Some(SocketAddrV4::new(number, internal.port()))
    }
}

impl Stage {
    /// True if a packet from inside may be of a control flow in a tunnel.
    pub(super) fn claims_tunneled(&self, translator: &Translator, packet: &[u8]) -> bool {
        let may_have = packet.get(ipv6::NEXT_HEADER) == Some(&IPV4)
            && packet.get(ipv6::HEADER_LEN..).is_some_and(|inner| self.watched.may_have(inner));
        let ends = may_have.then(|| HostEnds::read(translator, packet)).flatten();
        let Some(HostEnds::Tunneled(TunneledEnds { inner, .. })) = ends else { return false };
        let kind = |settings: &AlgSettings| settings.kind(inner.protocol, inner.destination.port());
        kind(&self.settings).or_else(|| kind(&self.former)) == Some(Kind::Ftp)
    }

    /// The flow of a packet from a tunnel that has been translated.
    pub(super) fn control_tunneled(
        &self,
        translator: &Translator,
        TunneledEnds { b4, inner }: TunneledEnds,
        packet: &[u8],
    ) -> Option<Control> {
        let remote = inner.destination;
        let asked = Asked { internal: inner.source.into(), remote, remote_inside: remote.into() };
        let control = self.control_of_numbered(translator, asked, packet)?;
        (control.kind == Kind::Ftp).then_some(Control { b4: Some(b4), ..control })
    }
}
