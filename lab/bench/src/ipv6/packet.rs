//! UDP packets of both families with the same payload, in buffers with the headroom that a
//! conversion to IPv6 needs. The packet of IPv4 fills the smallest Ethernet frame.

use crate::frame::{self, End, Frame};
use natgate_engine::Packet;
use natgate_ipv6::convert::HEADROOM;
use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::{Ipv4, Ipv6, Udp, ipv4, ipv6, protocol, udp};

/// Length of the UDP datagram, bytes.
const DATAGRAM: usize = frame::LEN - ipv4::HEADER_LEN;
/// Length of the packet of IPv6, bytes.
const LEN_IPV6: usize = ipv6::HEADER_LEN + DATAGRAM;

/// Next header of IPv4 in IPv6.
const IPV4_IN_IPV6: u8 = 4;
/// Length of the packet in a tunnel, bytes.
const LEN_TUNNELED: usize = ipv6::HEADER_LEN + frame::LEN;

/// An endpoint of IPv6: address and port.
pub(crate) type End6 = (u128, u16);

/// Source and destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Ipv4(End, End),
    Ipv6(End6, End6),
    /// Both ends of the tunnel, and those of the IPv4 packet in it.
    Tunneled((u128, u128), (End, End)),
}

/// Offset of the number in a datagram, bytes.
const NUMBER: usize = 8;

impl Ends {
    /// Reads the ends of a datagram, and its number; `None`: it is damaged.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, u64)> {
        let Ok(header) = Ipv6::new_checked(bytes) else {
            let header = Ipv4::new_checked(bytes).ok()?;
            let pseudo =
                |len| pseudo_header(header.source(), header.destination(), header.protocol(), len);
            let payload = header.payload();
            let (from, to, number) = read_datagram(payload, pseudo(payload.len() as u16))?;
            let ends = Self::Ipv4((header.source(), from), (header.destination(), to));
            return header.checksum_valid().then_some((ends, number));
        };
        let (outer, payload) = ((header.source(), header.destination()), header.payload());
        if header.next_header() == IPV4_IN_IPV6 {
            return match Self::read(payload)? {
                (Self::Ipv4(from, to), number) => Some((Self::Tunneled(outer, (from, to)), number)),
                _ => None,
            };
        }
        let pseudo = pseudo_header_v6(outer.0, outer.1, header.next_header(), payload.len() as u32);
        let (from, to, number) = read_datagram(payload, pseudo)?;
        Some((Self::Ipv6((outer.0, from), (outer.1, to)), number))
    }

    /// The ends of an answer.
    pub(crate) fn reversed(self) -> Self {
        match self {
            Self::Ipv4(from, to) => Self::Ipv4(to, from),
            Self::Ipv6(from, to) => Self::Ipv6(to, from),
            Self::Tunneled(outer, (from, to)) => Self::Tunneled((outer.1, outer.0), (to, from)),
        }
    }
}

/// Ports and number of a datagram with a valid checksum.
fn read_datagram(payload: &[u8], pseudo: u32) -> Option<(u16, u16, u64)> {
    let datagram = Udp::new_checked(payload)?;
    let number = u64::from_be_bytes(*payload.get(NUMBER..)?.first_chunk()?);
    let is_valid = fold(sum(payload, pseudo)) == u16::MAX;
    is_valid.then_some((datagram.source_port(), datagram.destination_port(), number))
}

/// An aligned buffer for one packet behind headroom.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Buffer([u8; 192]);

impl Buffer {
    pub(crate) const EMPTY: Self = Self([0; 192]);

    /// Writes a datagram.
    pub(super) fn write(&mut self, ends: Ends) {
        self.write_numbered(ends, 0);
    }

    /// Writes a datagram with a number.
    pub(crate) fn write_numbered(&mut self, ends: Ends, number: u64) {
        match ends {
            Ends::Ipv4(source, destination) => {
                self.write_ipv4(HEADROOM, (source, destination), number);
            }
            Ends::Ipv6(source, destination) => self.write_ipv6(source, destination, number),
            Ends::Tunneled((source, destination), inner) => {
                let mut header = Ipv6::init(&mut self.0[HEADROOM..][..ipv6::HEADER_LEN]);
                header.set_payload_len(frame::LEN as u16);
                header.set_next_header(IPV4_IN_IPV6);
                header.set_hop_limit(64);
                header.set_source(source);
                header.set_destination(destination);
                self.write_ipv4(HEADROOM + ipv6::HEADER_LEN, inner, number);
            }
        }
    }

    /// Writes a datagram over IPv4 at an offset.
    fn write_ipv4(&mut self, at: usize, (source, destination): (End, End), number: u64) {
        let mut frame = Frame([0; 64]);
        frame::numbered(&mut frame, source, destination, number);
        self.0[at..][..frame::LEN].copy_from_slice(&frame.0[..frame::LEN]);
    }

    /// Writes a datagram over IPv6.
    fn write_ipv6(&mut self, source: End6, destination: End6, number: u64) {
        let bytes = &mut self.0[HEADROOM..][..LEN_IPV6];
        bytes.fill(0);
        let mut packet = Ipv6::init(&mut *bytes);
        packet.set_payload_len(DATAGRAM as u16);
        packet.set_next_header(protocol::UDP);
        packet.set_hop_limit(64);
        packet.set_source(source.0);
        packet.set_destination(destination.0);
        let datagram = packet.payload_mut();
        datagram[..2].copy_from_slice(&source.1.to_be_bytes());
        datagram[2..4].copy_from_slice(&destination.1.to_be_bytes());
        datagram[4..6].copy_from_slice(&(DATAGRAM as u16).to_be_bytes());
        datagram[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes());
        let pseudo = pseudo_header_v6(source.0, destination.0, protocol::UDP, DATAGRAM as u32);
        // 0 would say that there is no checksum, which IPv6 does not permit.
        let checksum = match !fold(sum(datagram, pseudo)) {
            0 => u16::MAX,
            checksum => checksum,
        };
        datagram[udp::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The packet that was written last.
    pub(crate) fn packet(&mut self) -> Packet<'_> {
        let len = match (self.0[HEADROOM] >> 4, self.0[HEADROOM + ipv6::NEXT_HEADER]) {
            (6, IPV4_IN_IPV6) => LEN_TUNNELED,
            (6, _) => LEN_IPV6,
            _ => frame::LEN,
        };
        Packet::new(&mut self.0[..HEADROOM + len], HEADROOM)
    }

    /// The source of the IPv4 packet at the end of the first `len` bytes of the packet.
    pub(super) fn source_ipv4(&self, len: usize) -> End {
        let bytes = &self.0[HEADROOM + len - frame::LEN..];
        let [a, b, c, d] = [12, 13, 14, 15].map(|at| bytes[at]);
        (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([bytes[20], bytes[21]]))
    }
}
