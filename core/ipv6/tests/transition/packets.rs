//! Packets of both families, from the texts of their addresses.

use crate::common;
use crate::header6::with_header6;
use crate::prefixes::address;
use natgate_wire::checksum::{checksum, fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;
const IPV4: u8 = 4;

/// Source and destination, as texts.
pub(crate) type Ends<'t> = (&'t str, &'t str);

fn v4(text: &str) -> [u8; 4] {
    text.parse::<Ipv4Addr>().expect("an address").octets()
}

/// Fills in the checksum of a transport header.
fn fill(payload: &mut [u8], protocol: u8, start: u32) {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return,
    };
    payload[at..at + 2].fill(0);
    let total = match !fold(sum(payload, start)) {
        // Zero would mean "no checksum" (RFC 768).
        0 if protocol == UDP => u16::MAX,
        total => total,
    };
    payload[at..at + 2].copy_from_slice(&total.to_be_bytes());
}

/// An IPv4 packet of a transport protocol.
pub(crate) fn four(ends: Ends<'_>, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (mut payload, both) = (payload.to_vec(), (v4(ends.0), v4(ends.1)));
    let [source, destination] = [both.0, both.1].map(u32::from_be_bytes);
    let start = match protocol {
        ICMP => 0,
        _ => pseudo_header(source, destination, protocol, payload.len() as u16),
    };
    fill(&mut payload, protocol, start);
    common::four(0, both, protocol, &payload)
}

/// An IPv6 packet of a transport protocol.
pub(crate) fn six(ends: Ends<'_>, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (mut payload, both) = (payload.to_vec(), (address(ends.0), address(ends.1)));
    let start = pseudo_header_v6(both.0, both.1, protocol, payload.len() as u32);
    fill(&mut payload, protocol, start);
    with_header6(both, protocol, &payload)
}

/// An IPv4 packet in a tunnel.
pub(crate) fn tunneled(ends: Ends<'_>, inner: &[u8]) -> Vec<u8> {
    six(ends, IPV4, inner)
}

/// A datagram with so many bytes of data.
pub(crate) fn udp(ports: (u16, u16), data: usize) -> Vec<u8> {
    let len = (8 + data) as u16;
    let [source, destination, len] = [ports.0, ports.1, len].map(u16::to_be_bytes);
    let mut bytes = [source, destination, len, [0, 0]].concat();
    bytes.resize(8 + data, 7);
    bytes
}

/// A SYN that announces a maximum segment size.
pub(crate) fn syn(ports: (u16, u16), size: u16) -> Vec<u8> {
    let [source, destination, size] = [ports.0, ports.1, size].map(u16::to_be_bytes);
    let fixed = [0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0x10, 0, 0, 0, 0, 0, 2, 4];
    [&source[..], &destination, &fixed, &size].concat()
}

/// An echo message: its type, and its identifier.
pub(crate) fn echo(kind: u8, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    vec![kind, 0, 0, 0, high, low, 0, 1, 9, 9, 9, 9]
}

/// An ICMP or ICMPv6 error about a packet: type, code, and the word with an MTU.
pub(crate) fn error(kind: u8, code: u8, word: usize, about: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0][..], &(word as u32).to_be_bytes(), about].concat()
}

/// The packet with another hop limit, or TTL.
pub(crate) fn with_hops(mut bytes: Vec<u8>, hops: u8) -> Vec<u8> {
    if bytes[0] >> 4 == 6 {
        bytes[7] = hops;
        return bytes;
    }
    let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    header.set_ttl(hops);
    header.fill_checksum();
    bytes
}

/// The packet with another identification and fragment field (flags and offset).
pub(crate) fn with_field(mut bytes: Vec<u8>, identification: u16, field: u16) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    header.set_identification(identification);
    header.set_fragment_field(field);
    header.fill_checksum();
    bytes
}

/// A part of an IPv6 packet as a fragment: all bytes of the payload from one offset to another.
pub(crate) fn part6(whole: &[u8], identification: u32, (from, to): (usize, usize)) -> Vec<u8> {
    let payload = &whole[40..];
    let more = to < payload.len();
    let fragment = Fragment { next_header: whole[6], offset: from, more, identification };
    let mut bytes = whole[..40].to_vec();
    bytes.resize(48, 0);
    fragment.write(&mut bytes[40..]);
    bytes.extend(&payload[from..to]);
    bytes[6] = 44;
    let len = (bytes.len() - 40) as u16;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Source and destination of a packet, as texts.
pub(crate) fn ends(bytes: &[u8]) -> (String, String) {
    if bytes[0] >> 4 == 6 {
        let header = Ipv6::new_header_checked(bytes).expect("a packet of IPv6");
        let [source, destination] = [header.source(), header.destination()];
        return (
            Ipv6Addr::from_bits(source).to_string(),
            Ipv6Addr::from_bits(destination).to_string(),
        );
    }
    let header = Ipv4::new_header_checked(bytes).expect("a packet of IPv4");
    let [source, destination] = [header.source(), header.destination()];
    (Ipv4Addr::from_bits(source).to_string(), Ipv4Addr::from_bits(destination).to_string())
}

/// The two ends, as owned texts.
pub(crate) fn pair(ends: Ends<'_>) -> (String, String) {
    (ends.0.to_owned(), ends.1.to_owned())
}

/// The port, or the identifier, at an offset of the transport header.
pub(crate) fn port(bytes: &[u8], at: usize) -> u16 {
    let at = at + if bytes[0] >> 4 == 6 { 40 } else { 20 };
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Checks all checksums of a packet that is no fragment.
pub(crate) fn check(bytes: &[u8]) {
    let (start, protocol, payload) = match bytes[0] >> 4 {
        6 => {
            let header = Ipv6::new_checked(bytes).expect("a packet of IPv6");
            let (protocol, len) = (header.next_header(), bytes.len() as u32 - 40);
            let start = pseudo_header_v6(header.source(), header.destination(), protocol, len);
            (start, protocol, &bytes[40..])
        }
        _ => {
            let header = Ipv4::new_checked(bytes).expect("a packet of IPv4");
            assert!(header.checksum_valid());
            let (protocol, len) = (header.protocol(), bytes.len() as u16 - 20);
            let start = pseudo_header(header.source(), header.destination(), protocol, len);
            (if protocol == ICMP { 0 } else { start }, protocol, &bytes[20..])
        }
    };
    match protocol {
        IPV4 => check(payload),
        _ if start == 0 => assert_eq!(checksum(payload), 0),
        _ => assert_eq!(fold(sum(payload, start)), 0xffff, "{bytes:02x?}"),
    }
}
