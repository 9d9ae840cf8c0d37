//! Packets of both families: written from their ends, and checked.

use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::{Ipv4, Ipv6, protocol};

/// Next header of ICMPv6.
pub(crate) const ICMPV6: u8 = 58;

/// What a packet carries; its addresses are elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Udp,
    /// With these flags.
    Tcp(u8),
    Echo,
    EchoReply,
}

/// A packet. ICMP has the identifier in the place of both ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    pub(crate) ports: (u16, u16),
    pub(crate) hops: u8,
    pub(crate) class: u8,
    /// Bytes of data.
    pub(crate) data: usize,
}

impl Packet {
    pub(crate) fn new(kind: Kind, from: u16, to: u16) -> Self {
        Self { kind, ports: (from, to), hops: 64, class: 0, data: 11 }
    }

    fn protocol(self) -> u8 {
        match self.kind {
            Kind::Udp => protocol::UDP,
            Kind::Tcp(_) => protocol::TCP,
            Kind::Echo | Kind::EchoReply => protocol::ICMP,
        }
    }

    /// The transport header and data; the checksum is that of a pseudo header's sum.
    fn payload(self, pseudo: impl Fn(usize) -> u32, echo: [u8; 2]) -> Vec<u8> {
        let (from, to) = (self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes());
        let (mut bytes, at) = match self.kind {
            Kind::Udp => {
                let len = ((8 + self.data) as u16).to_be_bytes();
                ([from, to, len, [0; 2]].concat(), 6)
            }
            Kind::Tcp(flags) => {
                let rest = [0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0x10, 0, 0, 0, 0, 0];
                ([&from[..], &to, &rest].concat(), 16)
            }
            Kind::Echo | Kind::EchoReply => {
                let kind = echo[usize::from(self.kind == Kind::EchoReply)];
                ([&[kind, 0, 0, 0][..], &from, &[0, 9]].concat(), 2)
            }
        };
        bytes.extend((0..self.data).map(|place| place as u8 ^ 0x5a));
        let checksum = !fold(sum(&bytes, pseudo(bytes.len())));
        let zero = self.kind == Kind::Udp && checksum == 0;
        let checksum = if zero { u16::MAX } else { checksum };
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    pub(crate) fn ipv6(self, source: u128, destination: u128) -> Vec<u8> {
        let next = match self.protocol() {
            protocol::ICMP => ICMPV6,
            other => other,
        };
        let pseudo = |len| pseudo_header_v6(source, destination, next, len as u32);
        let payload = self.payload(pseudo, [128, 129]);
        raw_ipv6(source, destination, (next, self.hops, self.class), &payload)
    }

    /// An identification is needed only where the packet may be fragmented.
    pub(crate) fn ipv4(self, source: u32, destination: u32, identification: u16) -> Vec<u8> {
        let protocol = self.protocol();
        let pseudo = |len| match protocol {
            protocol::ICMP => 0,
            _ => pseudo_header(source, destination, protocol, len as u16),
        };
        let payload = self.payload(pseudo, [8, 0]);
        let mut bytes = vec![0; 20 + payload.len()];
        bytes[20..].copy_from_slice(&payload);
        let len = bytes.len() as u16;
        let mut packet = Ipv4::init(&mut bytes[..], 20);
        packet.set_service(self.class);
        packet.set_total_len(len);
        packet.set_identification(identification);
        packet.set_fragment_field(if len > 1260 { 0x4000 } else { 0 });
        packet.set_ttl(self.hops);
        packet.set_protocol(protocol);
        packet.set_source(source);
        packet.set_destination(destination);
        packet.fill_checksum();
        bytes
    }
}

pub(crate) fn raw_ipv6(
    source: u128,
    destination: u128,
    (next, hops, class): (u8, u8, u8),
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 40 + payload.len()];
    bytes[40..].copy_from_slice(payload);
    let mut packet = Ipv6::init(&mut bytes[..]);
    packet.set_traffic_class(class);
    packet.set_payload_len(payload.len() as u16);
    packet.set_next_header(next);
    packet.set_hop_limit(hops);
    packet.set_source(source);
    packet.set_destination(destination);
    bytes
}

/// True if the lengths and checksums of a packet are right.
pub(crate) fn is_right(bytes: &[u8]) -> bool {
    if let Ok(packet) = Ipv6::new_checked(bytes) {
        let (source, destination) = (packet.source(), packet.destination());
        let payload = packet.payload();
        let len = payload.len() as u32;
        let pseudo = pseudo_header_v6(source, destination, packet.next_header(), len);
        return packet.total_len() == bytes.len() && fold(sum(payload, pseudo)) == u16::MAX;
    }
    let Ok(packet) = Ipv4::new_checked(bytes) else { return false };
    let payload = packet.payload();
    let pseudo = match packet.protocol() {
        protocol::ICMP => 0,
        other => pseudo_header(packet.source(), packet.destination(), other, payload.len() as u16),
    };
    let is_whole = usize::from(packet.total_len()) == bytes.len() && packet.checksum_valid();
    is_whole && fold(sum(payload, pseudo)) == u16::MAX
}
