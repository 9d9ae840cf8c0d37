//! Reports of the groups that the router listens to (MLD version 2, RFC 3810), for switches that
//! forward a group only to its listeners.
//!
//! Without the reports such a switch keeps solicitations for the router's addresses from the
//! router. The router reports when it begins to listen, and when a router asks.

use natgate_wire::{Icmpv6, Ipv6, ipv6, nd, protocol};
use std::net::Ipv6Addr;

/// Receivers of reports: all routers that know MLD version 2.
const RECEIVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Type of a query.
const QUERY: u8 = 130;

/// Type of a report.
const REPORT: u8 = 143;

/// Length of a query of version 1, bytes.
const QUERY_LEN: usize = 24;

/// Length of a report without records, bytes.
const REPORT_LEN: usize = 8;

/// Hop-by-hop options: a router alert about MLD (RFC 2711), and padding.
const ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];

/// Kind of a record: the reason of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A router has asked: the router listens to all sources.
    Asked = 2,
    /// The router begins to listen.
    Begins = 4,
}

/// Hardware address of the receivers.
pub(super) fn receivers() -> natgate_wire::arp::Mac {
    nd::group_mac(RECEIVERS)
}

/// True if a packet is a valid query (RFC 3810 section 5.1.14).
pub(super) fn is_query(packet: &[u8]) -> bool {
    let Ok(header) = Ipv6::new_checked(packet) else { return false };
    let Ok(walk) = header.walk() else { return false };
    let message = &packet[walk.transport..header.total_len()];
    header.hop_limit() == 1
        && Ipv6Addr::from_bits(header.source()).is_unicast_link_local()
        && header.next_header() == ipv6::next::HOP_BY_HOP
        && (walk.protocol, walk.fragment) == (protocol::ICMPV6, None)
        && message.len() >= QUERY_LEN
        && Icmpv6::new_checked(message).is_some_and(|query| {
            query.kind() == QUERY && query.checksum_valid(header.source(), header.destination())
        })
}

/// Writes a report of groups. Without a source the router has no link-local address yet.
pub(super) fn report(groups: &[Ipv6Addr], reason: Reason, source: Option<Ipv6Addr>) -> Vec<u8> {
    let mut packet = vec![0; ipv6::HEADER_LEN];
    packet.extend(ALERT);
    let at = packet.len();
    packet.resize(at + REPORT_LEN, 0);
    packet[at + 6..].copy_from_slice(&(groups.len() as u16).to_be_bytes());
    for group in groups {
        packet.extend([reason as u8, 0, 0, 0]);
        packet.extend(group.octets());
    }
    let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED).to_bits();
    let len = packet.len() - ipv6::HEADER_LEN;
    let mut header = Ipv6::init(&mut packet[..]);
    header.set_payload_len(len as u16);
    header.set_next_header(ipv6::next::HOP_BY_HOP);
    header.set_hop_limit(1);
    header.set_source(source);
    header.set_destination(RECEIVERS.to_bits());
    if let Some(mut message) = Icmpv6::new_checked(&mut packet[at..]) {
        message.set_kind(REPORT);
        message.fill_checksum(source, RECEIVERS.to_bits());
    }
    packet
}
