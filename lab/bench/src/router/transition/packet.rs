//! Frames of the tester: UDP over IPv4, over IPv6, or over IPv4 in a tunnel of IPv6. The payload
//! begins with a number, the identifying tag of RFC 8219 section 7.2; the rest of it is zero.
//!
//! Only the head of a frame exists in memory. The bytes behind it are zero and add nothing to a
//! checksum, so a head is enough to check all checksums of a long frame.

use crate::frame::End;
use crate::ipv6::Ends;
use natgate_wire::arp::{Mac, write_ethernet};
use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::{Ipv4, Ipv6, ipv4, ipv6, protocol, udp};

/// Bytes of a head. All headers and the number fit.
pub(super) const HEAD: usize = 96;
/// Bytes of a frame's check sequence, which is not in memory.
pub(super) const CHECK: u16 = 4;
/// Next header of IPv4 in IPv6.
const IPV4_IN_IPV6: u8 = 4;
/// "Don't fragment" in the fragment field: no translator cuts the packet.
const DONT_FRAGMENT: u16 = 0x4000;
const UDP_HEADER: usize = 8;
const NUMBER: usize = 8;

/// Bytes that a frame has besides its UDP payload.
pub(super) fn overhead(ends: &Ends) -> u16 {
    let headers = match ends {
        Ends::Ipv4(..) => ipv4::HEADER_LEN,
        Ends::Ipv6(..) => ipv6::HEADER_LEN,
        Ends::Tunneled(..) => ipv6::HEADER_LEN + ipv4::HEADER_LEN,
    };
    (ETHERNET_LEN + headers + UDP_HEADER) as u16 + CHECK
}

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    bytes: [u8; HEAD],
    /// Bytes of the frame without its check sequence.
    pub(super) len: u16,
    /// Offset of the UDP header.
    udp: u8,
}

impl Head {
    /// The head of a received frame.
    pub(super) fn of(frame: &[u8]) -> Self {
        let mut bytes = [0; HEAD];
        let len = frame.len().min(HEAD);
        bytes[..len].copy_from_slice(&frame[..len]);
        Self { bytes, len: frame.len() as u16, udp: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8; HEAD] {
        &self.bytes
    }

    /// Writes a frame with so many bytes of UDP payload, at least eight, and the number 0.
    pub(super) fn new(to: Mac, from: Mac, ends: &Ends, payload: u16) -> Self {
        let datagram = UDP_HEADER as u16 + payload;
        let mut bytes = [0; HEAD];
        let (kind, udp) = match *ends {
            Ends::Ipv4(source, destination) => {
                write_ipv4(&mut bytes[ETHERNET_LEN..], source, destination, datagram);
                (ethertype::IPV4, ETHERNET_LEN + ipv4::HEADER_LEN)
            }
            Ends::Ipv6((source, from), (destination, to)) => {
                let ends = (source, destination);
                write_ipv6(&mut bytes[ETHERNET_LEN..], ends, protocol::UDP, datagram);
                let pseudo = pseudo_header_v6(source, destination, protocol::UDP, datagram.into());
                let udp = ETHERNET_LEN + ipv6::HEADER_LEN;
                write_udp(&mut bytes[udp..], (from, to), datagram, pseudo);
                (ethertype::IPV6, udp)
            }
            Ends::Tunneled(outer, (source, destination)) => {
                let inner = ETHERNET_LEN + ipv6::HEADER_LEN;
                let len = ipv4::HEADER_LEN as u16 + datagram;
                write_ipv6(&mut bytes[ETHERNET_LEN..], outer, IPV4_IN_IPV6, len);
                write_ipv4(&mut bytes[inner..], source, destination, datagram);
                (ethertype::IPV6, inner + ipv4::HEADER_LEN)
            }
        };
        if let Some(header) = bytes.first_chunk_mut() {
            write_ethernet(header, to, from, kind);
        }
        Self { bytes, len: overhead(ends) - CHECK + payload, udp: udp as u8 }
    }

    /// The frame with a number, from one that has the number 0.
    pub(super) fn with_number(&self, number: u64) -> Self {
        let mut head = *self;
        let (number, udp) = (number.to_be_bytes(), usize::from(self.udp));
        head.bytes[udp + UDP_HEADER..][..NUMBER].copy_from_slice(&number);
        let at = udp + udp::CHECKSUM;
        let before = !u16::from_be_bytes([head.bytes[at], head.bytes[at + 1]]);
        set_checksum(&mut head.bytes[at..], sum(&number, before.into()));
        head
    }

    /// Ends and number; `None` if a length or a checksum is wrong, or if the frame goes to another
    /// station.
    pub(super) fn read(&self, station: Mac) -> Option<(Ends, u64)> {
        let end = HEAD.min(self.len.into());
        let (header, packet) = self.bytes[..end].split_at_checked(ETHERNET_LEN)?;
        let len = usize::from(self.len) - ETHERNET_LEN;
        if header[..6] != station.0 {
            return None;
        }
        match u16::from_be_bytes([header[12], header[13]]) {
            ethertype::IPV4 => {
                let (source, destination, number) = read_ipv4(packet, len)?;
                Some((Ends::Ipv4(source, destination), number))
            }
            ethertype::IPV6 => read_ipv6(packet, len),
            _ => None,
        }
    }
}

fn write_ipv4(bytes: &mut [u8], source: End, destination: End, datagram: u16) {
    let mut packet = Ipv4::init(&mut *bytes, ipv4::HEADER_LEN);
    packet.set_total_len(ipv4::HEADER_LEN as u16 + datagram);
    packet.set_fragment_field(DONT_FRAGMENT);
    packet.set_ttl(64);
    packet.set_protocol(protocol::UDP);
    packet.set_source(source.0);
    packet.set_destination(destination.0);
    packet.fill_checksum();
    let pseudo = pseudo_header(source.0, destination.0, protocol::UDP, datagram);
    write_udp(&mut bytes[ipv4::HEADER_LEN..], (source.1, destination.1), datagram, pseudo);
}

fn write_ipv6(bytes: &mut [u8], (source, destination): (u128, u128), next: u8, payload: u16) {
    let mut packet = Ipv6::init(bytes);
    packet.set_payload_len(payload);
    packet.set_next_header(next);
    packet.set_hop_limit(64);
    packet.set_source(source);
    packet.set_destination(destination);
}

fn write_udp(bytes: &mut [u8], (from, to): (u16, u16), datagram: u16, pseudo: u32) {
    for (place, word) in bytes.chunks_exact_mut(2).zip([from, to, datagram]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    let total = sum(&bytes[..UDP_HEADER], pseudo);
    set_checksum(&mut bytes[udp::CHECKSUM..], total);
}

/// Writes the checksum of a sum. UDP has no checksum 0: the other zero of one's complement stands
/// for it.
fn set_checksum(bytes: &mut [u8], total: u32) {
    let checksum = match !fold(total) {
        0 => u16::MAX,
        checksum => checksum,
    };
    bytes[..2].copy_from_slice(&checksum.to_be_bytes());
}

/// Reads the head of an IPv4 packet of `len` bytes.
fn read_ipv4(bytes: &[u8], len: usize) -> Option<(End, End, u64)> {
    let header = Ipv4::new_header_checked(bytes).ok()?;
    let is_whole = header.header_len() == ipv4::HEADER_LEN
        && usize::from(header.total_len()) == len
        && header.checksum_valid()
        && header.protocol() == protocol::UDP
        && !header.is_fragment();
    let datagram = len.checked_sub(ipv4::HEADER_LEN).filter(|_| is_whole)?;
    let (source, destination) = (header.source(), header.destination());
    let pseudo = pseudo_header(source, destination, protocol::UDP, datagram as u16);
    let (from, to, number) = read_udp(bytes.get(ipv4::HEADER_LEN..)?, datagram, pseudo)?;
    Some(((source, from), (destination, to), number))
}

/// Reads the head of an IPv6 packet of `len` bytes.
fn read_ipv6(bytes: &[u8], len: usize) -> Option<(Ends, u64)> {
    let header = Ipv6::new_header_checked(bytes).ok()?;
    let payload = usize::from(header.payload_len());
    let rest = bytes.get(ipv6::HEADER_LEN..).filter(|_| ipv6::HEADER_LEN + payload == len)?;
    let (source, destination) = (header.source(), header.destination());
    match header.next_header() {
        IPV4_IN_IPV6 => {
            let (from, to, number) = read_ipv4(rest, payload)?;
            Some((Ends::Tunneled((source, destination), (from, to)), number))
        }
        protocol::UDP => {
            let pseudo = pseudo_header_v6(source, destination, protocol::UDP, payload as u32);
            let (from, to, number) = read_udp(rest, payload, pseudo)?;
            Some((Ends::Ipv6((source, from), (destination, to)), number))
        }
        _ => None,
    }
}

/// Reads the head of a datagram of `len` bytes: both ports and the number.
fn read_udp(bytes: &[u8], len: usize, pseudo: u32) -> Option<(u16, u16, u64)> {
    let word = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let number = u64::from_be_bytes(*bytes.get(UDP_HEADER..)?.first_chunk()?);
    let is_whole = usize::from(word(4)?) == len && word(udp::CHECKSUM)? != 0;
    let is_valid = is_whole && fold(sum(bytes, pseudo)) == u16::MAX;
    is_valid.then_some((word(0)?, word(2)?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATION: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn all() -> [Ends; 3] {
        let (near, far) = ((0xc612_4001, 5000), (0xc613_0007, 53));
        let wide = |(address, port): End| (0x2001_0002_u128 << 96 | u128::from(address), port);
        let (b4, aftr) = (wide(near).0, wide(far).0);
        [
            Ends::Ipv4(near, far),
            Ends::Ipv6(wide(near), wide(far)),
            Ends::Tunneled((b4, aftr), (near, far)),
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        for ends in all() {
            for payload in [18, 100, 9000] {
                let head = Head::new(STATION, Mac([2; 6]), &ends, payload);
                assert_eq!(head.len + CHECK, overhead(&ends) + payload);
                for number in [0, 1, 0xffff, u64::MAX, 0x0123_4567_89ab_cdef] {
                    let head = head.with_number(number);
                    assert_eq!(head.read(STATION), Some((ends, number)));
                }
            }
        }
        let smallest = all().map(|ends| overhead(&ends) + 18);
        assert_eq!(smallest, [64, 84, 104]);
    }

    #[test]
    fn damage_is_noticed() {
        for ends in all() {
            let head = Head::new(STATION, Mac([2; 6]), &ends, 18).with_number(7);
            assert_eq!(head.read(Mac([2; 6])), None);
            let headers = usize::from(overhead(&ends) - CHECK);
            // Routers may change traffic class, flow label and hop limit of IPv6.
            let is_free = |place: usize| matches!(place - ETHERNET_LEN, 1..4 | 7);
            let is_ipv4 = matches!(ends, Ends::Ipv4(..));
            let places = ETHERNET_LEN..headers + NUMBER;
            for place in places.filter(|place| is_ipv4 || !is_free(*place)) {
                let mut damaged = head;
                damaged.bytes[place] ^= 0x11;
                let read = damaged.read(STATION);
                assert_ne!(read, Some((ends, 7)), "byte {place} of {ends:?}");
            }
            let longer = Head { len: head.len + 1, ..head };
            assert_eq!(longer.read(STATION), None);
        }
    }
}
