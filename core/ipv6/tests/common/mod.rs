//! Packets of several test programs.

use natgate_wire::Ipv4;

/// Source and destination of an IPv4 packet.
pub(crate) type Ends = ([u8; 4], [u8; 4]);

/// An IPv4 packet without options, with a type-of-service byte.
pub(crate) fn four(service: u8, ends: Ends, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(20 + payload.len() as u16);
    header.set_ttl(64);
    header.set_service(service);
    header.set_protocol(protocol);
    header.set_source(u32::from_be_bytes(ends.0));
    header.set_destination(u32::from_be_bytes(ends.1));
    header.fill_checksum();
    bytes.extend(payload);
    bytes
}
