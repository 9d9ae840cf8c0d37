//! Packets of both families for random ways, and the comparison of what arrives.

use super::Sender;
use crate::header6::with_header6;
use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6};

const UDP: u8 = 17;
/// Bytes of a datagram, and of its first fragment.
const DATAGRAM: usize = 48;
const FIRST: usize = 24;

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Datagram,
    /// An echo reply. Its identifier is the port of both ends.
    Echo,
    /// "Port unreachable" about a datagram to the sender.
    Error,
    /// A datagram in two fragments; true: the first one comes first.
    Parts(bool),
}

/// A packet's way by addresses of IPv4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The start inside; none: the packet comes from outside.
    pub(crate) sender: Option<Sender>,
    pub(crate) message: Message,
    pub(crate) from: (u32, u16),
    pub(crate) to: (u32, u16),
}

impl Way {
    /// The IPv4 address of the sender.
    pub(crate) fn source(&self) -> u32 {
        self.from.0
    }
}

/// Fills in a checksum, where the pseudo header gives a start.
fn fill(bytes: &mut [u8], at: usize, start: u32) {
    bytes[at..at + 2].fill(0);
    let total = !fold(sum(bytes, start));
    bytes[at..at + 2].copy_from_slice(&total.to_be_bytes());
}

fn datagram(from: u16, to: u16) -> Vec<u8> {
    let fields = [from, to, DATAGRAM as u16, 0].map(u16::to_be_bytes).concat();
    let data = (0..DATAGRAM - 8).map(|number| number as u8);
    fields.into_iter().chain(data).collect()
}

fn header4(ends: (u32, u32), protocol: u8, identification: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(20 + payload.len() as u16);
    header.set_ttl(64);
    header.set_protocol(protocol);
    header.set_identification(identification);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    header.fill_checksum();
    bytes.extend(payload);
    bytes
}

/// An ICMP message: a fixed part, the identifier of an echo message, and the rest.
fn icmp(kind: u8, code: u8, identifier: u16, rest: &[u8]) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    [&[kind, code, 0, 0, high, low, 0, 0][..], rest].concat()
}

/// The IPv4 packet of a way.
pub(crate) fn packet4(way: &Way, identification: u16) -> Vec<u8> {
    let (ends, mut payload) = ((way.from.0, way.to.0), Vec::new());
    let protocol = match way.message {
        Message::Datagram | Message::Parts(_) => UDP,
        Message::Echo | Message::Error => 1,
    };
    match way.message {
        Message::Datagram | Message::Parts(_) => {
            payload = datagram(way.from.1, way.to.1);
            fill(&mut payload, 6, pseudo_header(ends.0, ends.1, UDP, DATAGRAM as u16));
        }
        Message::Echo => payload.extend(icmp(0, 0, way.from.1, &[9; 8])),
        Message::Error => {
            let about = header4((ends.1, ends.0), UDP, 5, &datagram(way.to.1, way.from.1));
            payload.extend(icmp(3, 3, 0, &about[..28]));
        }
    }
    if protocol == 1 {
        fill(&mut payload, 2, 0);
    }
    header4(ends, protocol, identification, &payload)
}

/// The IPv6 packet of a way between two addresses.
pub(crate) fn packet6(ends: (u128, u128), way: &Way) -> Vec<u8> {
    let (protocol, mut payload) = match way.message {
        Message::Datagram | Message::Parts(_) => (UDP, datagram(way.from.1, way.to.1)),
        Message::Echo => (58, icmp(129, 0, way.from.1, &[9; 8])),
        Message::Error => {
            let about = with_header6((ends.1, ends.0), UDP, &datagram(way.to.1, way.from.1));
            (58, icmp(1, 4, 0, &about))
        }
    };
    let at = if protocol == UDP { 6 } else { 2 };
    let start = pseudo_header_v6(ends.0, ends.1, protocol, payload.len() as u32);
    fill(&mut payload, at, start);
    with_header6(ends, protocol, &payload)
}

/// A packet in a tunnel.
pub(crate) fn tunneled(ends: (u128, u128), inner: &[u8]) -> Vec<u8> {
    with_header6(ends, 4, inner)
}

/// The two fragments of a datagram, in their order.
pub(crate) fn fragments(whole: &[u8], identification: u16, is_first_first: bool) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = [(0, FIRST), (FIRST, DATAGRAM)]
        .into_iter()
        .map(|(from, to)| part(whole, identification, from, to))
        .collect();
    if !is_first_first {
        parts.reverse();
    }
    parts
}

fn part(whole: &[u8], identification: u16, from: usize, to: usize) -> Vec<u8> {
    let more = to < DATAGRAM;
    if whole[0] >> 4 == 4 {
        let payload = &whole[20 + from..20 + to];
        let header = Ipv4::new_checked(whole).expect("a packet");
        let ends = (header.source(), header.destination());
        let mut bytes = header4(ends, UDP, identification, payload);
        let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
        header.set_fragment_field((from / 8) as u16 | u16::from(more) << 13);
        header.fill_checksum();
        return bytes;
    }
    let header = Ipv6::new_checked(whole).expect("a packet");
    let mut payload = vec![0; 8];
    let identification = identification.into();
    Fragment { next_header: UDP, offset: from, more, identification }.write(&mut payload);
    payload.extend(&whole[40 + from..40 + to]);
    with_header6((header.source(), header.destination()), 44, &payload)
}

/// True for an error of the gateway's own, which has one of its addresses or a tunnel's end as its
/// source.
pub(crate) fn is_own_error(bytes: &[u8]) -> bool {
    match bytes[0] >> 4 {
        6 => bytes[6] == 58 && bytes[40..42] == [1, 5],
        _ => false,
    }
}

/// Ends, protocol and hop limit of a packet; offset and content of its fragment.
fn open(bytes: &[u8]) -> ([u128; 2], u8, u8, usize, &[u8]) {
    if bytes[0] >> 4 == 4 {
        let header = Ipv4::new_checked(bytes).expect("a packet of IPv4");
        assert!(header.checksum_valid());
        let ends = [header.source(), header.destination()].map(u128::from);
        let offset = header.fragment_offset();
        return (ends, header.protocol(), header.ttl(), offset, &bytes[20..]);
    }
    let header = Ipv6::new_checked(bytes).expect("a packet of IPv6");
    let ends = [header.source(), header.destination()];
    match bytes[6] {
        44 => {
            let fragment = Fragment::read(&bytes[40..]).expect("a fragment header");
            (ends, fragment.next_header, bytes[7], fragment.offset, &bytes[48..])
        }
        protocol => (ends, protocol, bytes[7], 0, &bytes[40..]),
    }
}

/// Checks that what arrived is what was sent, a hop later.
pub(crate) fn same(way: &Way, sent: &[u8], arrived: &[Vec<u8>]) {
    let (ends, protocol, _, _, content) = open(sent);
    let mut joined = vec![0; content.len()];
    for bytes in arrived {
        let (found, of, hops, offset, part) = open(bytes);
        assert_eq!((found, of, hops), (ends, protocol, 63), "{way:?}");
        if way.message == Message::Error {
            return error(way, part, content, ends);
        }
        joined[offset..offset + part.len()].copy_from_slice(part);
    }
    assert_eq!(joined, content, "{way:?}");
}

/// Compares an error with the one that was sent. Fields of the quoted header that a translation
/// makes anew may differ.
fn error(way: &Way, found: &[u8], sent: &[u8], ends: [u128; 2]) {
    assert_eq!(found[..2], sent[..2], "{way:?}");
    let is_four = found[8] >> 4 == 4;
    let start =
        if is_four { 0 } else { pseudo_header_v6(ends[0], ends[1], 58, found.len() as u32) };
    assert_eq!(fold(sum(found, start)), 0xffff, "{way:?}");
    // Addresses and ports of the quoted packet.
    let range = if is_four { 20..32 } else { 16..52 };
    assert_eq!(found[range.clone()], sent[range], "{way:?}");
}
