//! Control flows of hosts with numbers, and those behind B4s of DS-Lite: a client inside.
//!
//! As with NAT64, the translator and the engine take a packet from inside first, and what leaves
//! goes through the payload framework. The client's endpoint is the inner one, which its messages
//! name. The engine knows the host by a number, which the tunnel and the inner address give. A
//! packet from outside tells no tunnel: there the mapping of the flow gives the number. Packets of
//! calls of PPTP leave their tunnel without the engine, which knows no call.

use super::nat64::Asked;
use super::{AlgSettings, Control, Ends, Ends6, Kind, Stage, gre, seconds, tunnels};
use natgate_engine::{Endpoint, Engine, MappingId, Side, Timestamp};
use natgate_ipv6::{HostKind, Requester, Translator};
use natgate_payload::{Endpoints, NewFlow};
use natgate_wire::ipv6;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

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

/// The internal host of a control flow, as the engine knows it.
#[derive(Clone, Copy)]
pub(super) enum Host<'t> {
    /// The realm has no numbers: the engine knows the address as it is.
    Unnumbered,
    /// The host's own address, and its number if it has one, with the translator.
    Numbered(&'t Translator, IpAddr, Option<Ipv4Addr>),
    /// The host that has the mapping of a flow of this IP protocol.
    OfFlow(&'t Translator, u8, Endpoints),
    /// The host cannot be told.
    Unknown,
}

impl<'t> Host<'t> {
    /// The host of a flow, by a packet from one side.
    pub(super) fn of(
        (engine, translator): (&Engine, Option<&'t Translator>),
        from: Side,
        Control { endpoints, .. }: &Control,
        packet: &[u8],
    ) -> Self {
        if matches!(Self::without(engine, endpoints.realm), Self::Unnumbered) {
            return Self::Unnumbered;
        }
        let (Some(translator), Some(ends)) = (translator, Ends::read(packet)) else {
            return Self::Unknown;
        };
        let own = endpoints.internal.ip();
        let number = match (from, own) {
            (Side::Outside, _) => return Self::OfFlow(translator, ends.protocol, *endpoints),
            (Side::Inside, IpAddr::V6(host)) => number_of(translator, Requester::Ipv6(host)),
            (Side::Inside, IpAddr::V4(_)) => endpoints.number,
        };
        Self::Numbered(translator, own, number)
    }

    /// A host of a realm, for which there is no translator.
    pub(super) fn without(engine: &Engine, realm: u16) -> Self {
        let realm = usize::from(realm).checked_sub(1);
        let config = realm.and_then(|realm| engine.config().realms.get(realm));
        let is_numbered = config.is_some_and(|realm| realm.host_bits.is_some());
        if is_numbered { Self::Unknown } else { Self::Unnumbered }
    }

    /// The address or the number by which the configuration knows a host that the flow's host knows
    /// by an address. `None`: there is none.
    pub(super) fn known_beside(self, flow: &Endpoints, address: Ipv4Addr) -> Option<Ipv4Addr> {
        match self {
            Self::Unnumbered => Some(address),
            Self::Numbered(translator, ..) | Self::OfFlow(translator, ..) => {
                translator.number_beside(flow.number?, address)
            }
            Self::Unknown => None,
        }
    }

    /// The inverse of [`Host::known_beside`].
    pub(super) fn address_beside(self, flow: &Endpoints, known: Ipv4Addr) -> Option<Ipv4Addr> {
        match self {
            Self::Unnumbered => Some(known),
            Self::Numbered(translator, ..) | Self::OfFlow(translator, ..) => {
                translator.inner_beside(flow.number?, known)
            }
            Self::Unknown => None,
        }
    }

    /// An internal endpoint of the host as the engine knows it. `None`: it is another host's, or
    /// the host cannot be told.
    pub(super) fn in_engine(self, engine: &Engine, internal: SocketAddr) -> Option<SocketAddrV4> {
        let number = match (self, internal) {
            (Self::Unnumbered, SocketAddr::V4(internal)) => return Some(internal),
            (Self::Numbered(_, own, number), _) if internal.ip() == own => number,
            (Self::OfFlow(translator, protocol, flow), _)
                if internal.ip() == flow.internal.ip() =>
            {
                owner(engine, translator, protocol, &flow)
            }
            _ => None,
        };
        number.map(|number| SocketAddrV4::new(number, internal.port()))
    }

    /// The address of a remote host in the other family.
    pub(super) fn across(self, flow: &Endpoints, address: IpAddr) -> Option<IpAddr> {
        let (Self::Numbered(translator, ..) | Self::OfFlow(translator, ..)) = self else {
            return None;
        };
        match (flow.remote_inside.ip(), address) {
            (IpAddr::V6(_), IpAddr::V6(remote)) => {
                translator.remote_of(HostKind::Nat64, remote).map(IpAddr::V4)
            }
            (IpAddr::V6(beside), IpAddr::V4(remote)) => {
                translator.known_beside(beside, remote).map(IpAddr::V6)
            }
            (IpAddr::V4(_), _) => None,
        }
    }
}

/// Number of a host now.
fn number_of(translator: &Translator, host: Requester) -> Option<Ipv4Addr> {
    translator.number_of(host).map(|(_, number)| number)
}

/// Number of the host that has the mapping of a flow now. A packet from outside tells no tunnel,
/// and a number may have become another host's. So the mapping's host must have the number and the
/// internal endpoint of the flow. If hosts share the external port, the flow's remote endpoint
/// tells which mapping is meant.
fn owner(
    engine: &Engine,
    translator: &Translator,
    protocol: u8,
    flow: &Endpoints,
) -> Option<Ipv4Addr> {
    let end = |end: SocketAddrV4| Endpoint { address: *end.ip(), port: end.port() };
    let (external, remote) = (end(flow.external), end(flow.remote));
    let mapping = engine.mapping_towards(protocol, external, remote)?;
    let MappingId { internal, realm, .. } = mapping;
    let is_flow = (internal.port, realm) == (flow.internal.port(), flow.realm);
    let host = translator.host(realm, internal.address)?.address?;
    let is_host = IpAddr::V6(host).to_canonical() == flow.internal.ip().to_canonical();
    let has_number = flow.number.is_none_or(|number| number == internal.address);
    (is_flow && is_host && has_number).then_some(internal.address)
}

impl Stage {
    /// True if a packet from inside may be of a control flow, or of a call of PPTP, in a tunnel.
    pub(super) fn claims_tunneled(&self, translator: &Translator, packet: &[u8]) -> bool {
        let may_have = |inner: &[u8]| self.watched.may_have(inner) || self.has_pieces();
        let is_tunneled = packet.get(ipv6::NEXT_HEADER) == Some(&IPV4)
            && packet.get(ipv6::HEADER_LEN..).is_some_and(may_have);
        if !is_tunneled {
            return false;
        }
        match HostEnds::read(translator, packet) {
            Some(HostEnds::Tunneled(ends)) => self.claims_ends(translator, ends),
            Some(HostEnds::Ipv6(_)) => false,
            None => {
                let inner = translator.tunneled_packet(packet);
                inner.is_some_and(|(_, inner)| self.may_have_call(inner))
            }
        }
    }

    /// True if a packet with these ends may be of a control flow.
    fn claims_ends(
        &self,
        translator: &Translator,
        TunneledEnds { b4, inner }: TunneledEnds,
    ) -> bool {
        let kind = |settings: &AlgSettings| settings.kind(inner.protocol, inner.destination.port());
        let has_kind = kind(&self.settings).or_else(|| kind(&self.former)).is_some();
        if has_kind || !self.former.is_off() || self.is_message(Side::Inside, inner) {
            return true;
        }
        let host = || number_of(translator, Requester::Tunneled { b4, inner: *inner.source.ip() });
        !self.further.is_empty()
            && host().is_some_and(|number| {
                let source = SocketAddrV4::new(number, inner.source.port());
                self.further.may_have(Ends { source, ..inner })
            })
    }

    /// True if a packet from inside is of a call of PPTP, in a tunnel that it may leave.
    pub(crate) fn has_tunneled_call(
        &self,
        (engine, translator): (&Engine, &Translator),
        now: Timestamp,
        packet: &[u8],
    ) -> bool {
        let of_call = || {
            let (b4, inner) = translator.tunneled_packet(packet)?;
            let named = gre::read(inner)?;
            let host = Requester::Tunneled { b4, inner: named.host().into() };
            let (realm, number) = translator.number_of(host)?;
            let named = named.of_host(number.to_bits());
            self.call_of(seconds(now), (Side::Inside, realm), named)?;
            Some(gre::may_pass(inner, tunnels::mtu_beyond(engine, Side::Inside, realm)))
        };
        of_call().unwrap_or(false)
    }

    /// The flow of a packet from a tunnel that has been translated.
    pub(super) fn control_tunneled(
        &self,
        translator: &Translator,
        TunneledEnds { b4, inner }: TunneledEnds,
        packet: &[u8],
    ) -> Option<Control> {
        let Ends { source, destination: remote, .. } = inner;
        let host = Requester::Tunneled { b4, inner: *source.ip() };
        let number = Some(number_of(translator, host)?);
        let (internal, remote_inside) = (source.into(), remote.into());
        let asked = Asked { internal, remote, remote_inside, number };
        if !self.is_message(Side::Inside, inner) {
            return self.control_of_numbered(translator, asked, packet);
        }
        let realm = translator.realms().of(HostKind::Dslite)?;
        let external = Ends::read(packet)?.source;
        let endpoints = Endpoints { internal, external, remote, remote_inside, realm, number };
        Some(Control { kind: Kind::Dns, endpoints, new_flow: NewFlow::Read })
    }
}
