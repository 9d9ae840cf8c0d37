//! Protocols by number: protocols with ports, and the places of protocols in arrays of counts.

use natgate_wire::protocol;

/// True if a protocol has ports, or identifiers that serve as ports.
#[inline(always)]
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP | protocol::ICMP | protocol::DCCP)
}

/// The protocols that have ports, by their index.
pub(crate) const PROTOCOLS: [u8; 4] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

/// Index of a protocol that has ports.
pub(crate) fn protocol_index(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP => 2,
        protocol::DCCP => 3,
        _ => unreachable!("protocol {protocol} has no ports"),
    }
}

/// Place of a protocol in counts of mappings: TCP, UDP, ICMP, DCCP, all others.
pub(crate) fn place_of(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP => 2,
        protocol::DCCP => 3,
        _ => 4,
    }
}

/// Place of the quota that a protocol's mappings count against.
pub(crate) fn quota_class(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        _ => 2,
    }
}
