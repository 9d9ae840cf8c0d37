//! The ends and the protocol of a packet, as filters of captures see them. A packet in a tunnel has
//! the ends of the tunnel, too.

use natgate_ipv6::Prefix6;
use natgate_wire::{Icmp, Ipv4, Ipv6, icmp, icmpv6, protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Next header of IPv4 in IPv6.
const IPV4_IN_IPV6: u8 = 4;
/// Offset of the quoted packet in an ICMP error, bytes.
const QUOTED: usize = 8;

/// An address of either family, and its port if the packet shows one. IPv4 addresses are mapped
/// into IPv6 (RFC 4291 section 2.5.5.2).
pub(super) type End = (Ipv6Addr, Option<u16>);

/// A prefix of either family, as filters have it.
pub fn prefix(address: IpAddr, len: u8) -> Prefix6 {
    match address {
        IpAddr::V4(address) => Prefix6 { address: address.to_ipv6_mapped(), len: 96 + len },
        IpAddr::V6(address) => Prefix6 { address, len },
    }
}

/// Endpoints and protocol of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Face {
    /// The protocol; ICMPv6 is ICMP.
    pub(super) protocol: u8,
    pub(super) source: End,
    pub(super) destination: End,
    /// Source and destination of the tunnel that the packet is in.
    pub(super) tunnel: Option<(Ipv6Addr, Ipv6Addr)>,
}

/// The headers of a packet.
struct Headers<'p> {
    ends: (Ipv6Addr, Ipv6Addr),
    protocol: u8,
    /// The transport header; `None`: the packet is a fragment other than the first.
    transport: Option<&'p [u8]>,
}

impl<'p> Headers<'p> {
    fn read(bytes: &'p [u8]) -> Option<Self> {
        if bytes.first()? >> 4 == 6 {
            let header = Ipv6::new_header_checked(bytes).ok()?;
            let walk = header.walk().ok()?;
            let is_later = walk.fragment.is_some_and(|(_, fragment)| fragment.offset > 0);
            let (from, to) = (header.source(), header.destination());
            return Some(Self {
                ends: (Ipv6Addr::from_bits(from), Ipv6Addr::from_bits(to)),
                protocol: walk.protocol,
                transport: bytes.get(walk.transport..).filter(|_| !is_later),
            });
        }
        let header = Ipv4::new_header_checked(bytes).ok()?;
        let transport = bytes.get(header.header_len()..)?;
        let mapped = |address| Ipv4Addr::from_bits(address).to_ipv6_mapped();
        Some(Self {
            ends: (mapped(header.source()), mapped(header.destination())),
            protocol: header.protocol(),
            transport: (header.fragment_offset() == 0).then_some(transport),
        })
    }

    /// True if the packet is an ICMP error.
    fn is_error(&self) -> bool {
        let kind = self.transport.and_then(|bytes| bytes.first());
        kind.is_some_and(|kind| match self.protocol {
            protocol::ICMP => icmp::is_error(*kind),
            protocol::ICMPV6 => icmpv6::is_error(*kind),
            _ => false,
        })
    }

    /// Source and destination port; of a query, its identifier.
    fn ports(&self) -> (Option<u16>, Option<u16>) {
        let Some(transport) = self.transport else { return (None, None) };
        let number = |at: usize| {
            let bytes = transport.get(at..at + 2)?;
            Some(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        match self.protocol {
            protocol::TCP | protocol::UDP | protocol::DCCP => (number(0), number(2)),
            protocol::ICMP if Icmp::new_checked(transport).is_none() => (None, None),
            protocol::ICMP | protocol::ICMPV6 if !self.is_error() => (number(4), number(4)),
            _ => (None, None),
        }
    }
}

/// The IPv4 packet in a packet of a tunnel.
fn inner<'p>(headers: &Headers<'p>) -> Option<&'p [u8]> {
    let inner = headers.transport.filter(|_| headers.protocol == IPV4_IN_IPV6)?;
    (inner.first()? >> 4 == 4).then_some(inner)
}

impl Face {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let headers = Headers::read(bytes)?;
        if let Some(inner) = inner(&headers) {
            return Some(Self { tunnel: Some(headers.ends), ..Self::of(inner)? });
        }
        let (from, to) = headers.ports();
        let protocol = match headers.protocol {
            protocol::ICMPV6 => protocol::ICMP,
            other => other,
        };
        let (source, destination) = ((headers.ends.0, from), (headers.ends.1, to));
        Some(Self { protocol, source, destination, tunnel: None })
    }

    /// Reads the packet that an ICMP error quotes.
    pub(super) fn quoted(bytes: &[u8]) -> Option<Self> {
        let headers = Headers::read(bytes)?;
        if headers.protocol == IPV4_IN_IPV6 {
            return inner(&headers).and_then(Self::quoted);
        }
        let quoted = headers.transport.filter(|_| headers.is_error())?.get(QUOTED..)?;
        Self::of(quoted)
    }

    /// The source, and the end of the tunnel that the packet comes from.
    pub(super) fn senders(&self) -> impl Iterator<Item = End> {
        std::iter::once(self.source).chain(self.tunnel.map(|(from, _)| (from, None)))
    }

    /// The destination, and the end of the tunnel that the packet goes to.
    pub(super) fn receivers(&self) -> impl Iterator<Item = End> {
        std::iter::once(self.destination).chain(self.tunnel.map(|(_, to)| (to, None)))
    }

    /// True if two packets are of one family, and neither is in a tunnel.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let is_ipv4 = |face: &Self| face.source.0.to_ipv4_mapped().is_some();
        is_ipv4(self) == is_ipv4(other) && self.tunnel.is_none() && other.tunnel.is_none()
    }
}

/// True if a packet is a fragment.
pub(super) fn is_fragment(bytes: &[u8]) -> bool {
    match Ipv6::new_header_checked(bytes) {
        Ok(header) if bytes[0] >> 4 == 6 => header
            .walk()
            .is_ok_and(|walk| walk.fragment.is_some_and(|(_, fragment)| !fragment.is_atomic())),
        _ => Ipv4::new_header_checked(bytes).is_ok_and(|packet| packet.is_fragment()),
    }
}

/// True if any of `ends` is in the wanted prefix and has the wanted port.
pub(super) fn is_in(ends: &[End], wanted: Option<(Prefix6, Option<u16>)>) -> bool {
    wanted.is_none_or(|(prefix, port)| {
        ends.iter().any(|(address, own)| {
            prefix.contains(*address) && port.is_none_or(|port| *own == Some(port))
        })
    })
}
