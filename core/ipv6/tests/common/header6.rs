//! The header of an IPv6 packet.

use natgate_wire::Ipv6;

/// A packet between two addresses with a payload of a protocol, and a hop limit of 64.
pub(crate) fn with_header6(ends: (u128, u128), protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(payload.len() as u16);
    header.set_next_header(protocol);
    header.set_hop_limit(64);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    bytes.extend(payload);
    bytes
}
