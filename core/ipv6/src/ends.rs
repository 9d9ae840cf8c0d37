//! The ends of a packet of either family, for explanations.

use crate::explanation::{FamilyBecomes, FamilyEnd, FamilyStep};
use crate::softwire::Tunnel;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use natgate_wire::{Ipv4, Ipv6, icmp, icmpv6, ipv6, protocol};

/// Next header of IPv4 in IPv6.
const IPV4_IN_IPV6: u8 = 4;

/// The headers of a packet that an explanation shows.
struct Headers {
    ends: (IpAddr, IpAddr),
    protocol: u8,
    hops: u8,
    len: usize,
    /// Offset of the transport header; `None`: the packet is a later fragment.
    transport: Option<usize>,
    dont_fragment: bool,
}

fn headers(bytes: &[u8]) -> Option<Headers> {
    if bytes.first()? >> 4 == 6 {
        let header = Ipv6::new_checked(bytes).ok()?;
        let address = |address: u128| IpAddr::V6(Ipv6Addr::from_bits(address));
        let walk = header.walk().ok();
        let is_later =
            |walk: &ipv6::Walk| walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0);
        return Some(Headers {
            ends: (address(header.source()), address(header.destination())),
            protocol: walk.as_ref().map_or(header.next_header(), |walk| walk.protocol),
            hops: header.hop_limit(),
            len: header.total_len(),
            transport: walk.filter(|walk| !is_later(walk)).map(|walk| walk.transport),
            dont_fragment: true,
        });
    }
    let header = Ipv4::new_checked(bytes).ok()?;
    let address = |address: u32| IpAddr::V4(Ipv4Addr::from_bits(address));
    Some(Headers {
        ends: (address(header.source()), address(header.destination())),
        protocol: header.protocol(),
        hops: header.ttl(),
        len: header.total_len().into(),
        transport: (header.fragment_offset() == 0).then(|| header.header_len()),
        dont_fragment: header.dont_fragment(),
    })
}

/// The ports of a packet; of a query, its identifier.
fn ports(bytes: &[u8], headers: &Headers) -> [Option<u16>; 2] {
    let Some(transport) = headers.transport.and_then(|at| bytes.get(at..headers.len)) else {
        return [None; 2];
    };
    let word = |at: usize| Some(u16::from_be_bytes([*transport.get(at)?, *transport.get(at + 1)?]));
    let kind = transport.first().copied().unwrap_or_default();
    match headers.protocol {
        protocol::TCP | protocol::UDP | protocol::DCCP | protocol::UDP_LITE | protocol::SCTP => {
            [word(0), word(2)]
        }
        protocol::ICMP if !icmp::is_error(kind) => [word(4); 2],
        protocol::ICMPV6
            if matches!(kind, icmpv6::kind::ECHO_REQUEST | icmpv6::kind::ECHO_REPLY) =>
        {
            [word(4); 2]
        }
        _ => [None; 2],
    }
}

fn both(bytes: &[u8], headers: &Headers) -> (FamilyEnd, FamilyEnd) {
    let [from, to] = ports(bytes, headers);
    let end = |address, port| FamilyEnd { address: Some(address), port };
    (end(headers.ends.0, from), end(headers.ends.1, to))
}

/// The step that names the ends of a packet.
pub(crate) fn read(bytes: &[u8], tunneled: bool) -> Option<FamilyStep> {
    let headers = headers(bytes)?;
    let (source, destination) = both(bytes, &headers);
    let Headers { protocol, hops, len, .. } = headers;
    Some(FamilyStep::Read { protocol, source, destination, hops, len, tunneled })
}

/// The packet as it leaves.
pub(crate) fn becomes(bytes: &[u8]) -> Option<FamilyBecomes> {
    let outer = headers(bytes)?;
    let (mut ends, mut tunnel) = (both(bytes, &outer), None);
    let inner = outer.transport.and_then(|at| bytes.get(at..));
    if let (IpAddr::V6(br), IpAddr::V6(customer), IPV4_IN_IPV6, Some(inner)) =
        (outer.ends.0, outer.ends.1, outer.protocol, inner)
        && let Some(headers) = headers(inner)
    {
        ends = both(inner, &headers);
        tunnel = Some(Tunnel { br: br.to_bits(), customer: customer.to_bits() });
    }
    let Headers { len, dont_fragment, .. } = outer;
    let (source, destination) = ends;
    Some(FamilyBecomes { source, destination, tunnel, realm: 0, len, cut: None, dont_fragment })
}
