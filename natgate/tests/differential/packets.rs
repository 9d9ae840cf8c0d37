//! Packets built from parts, with correct checksums. Tests damage the bytes afterwards.

use std::net::Ipv4Addr;

use natgate_wire::{Icmp, Ipv4, Tcp, Udp, checksum, protocol};

/// The don't-fragment flag in the field of flags and fragment offset.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
/// The more-fragments flag.
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;

/// An address and a port.
pub(crate) type Endpoint = (Ipv4Addr, u16);

/// Parts of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) tos: u8,
    pub(crate) identification: u16,
    pub(crate) flags: u16,
    pub(crate) ttl: u8,
    /// IP options; their length is a multiple of four bytes.
    pub(crate) options: Vec<u8>,
    pub(crate) body: Body,
}

/// Content behind the IP header.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Udp {
        ports: (u16, u16),
        data: Vec<u8>,
    },
    Tcp {
        ports: (u16, u16),
        flags: u8,
        sequence: u32,
        acknowledgment: u32,
        data: Vec<u8>,
    },
    /// An ICMP message; `rest` is everything behind the checksum.
    Icmp {
        kind: u8,
        code: u8,
        rest: Vec<u8>,
    },
    /// Another protocol. If an offset is named, the checksum over pseudo header and bytes is
    /// written there.
    Other {
        protocol: u8,
        bytes: Vec<u8>,
        checksum_at: Option<usize>,
    },
}

impl Packet {
    pub(crate) fn new(source: Ipv4Addr, destination: Ipv4Addr, body: Body) -> Self {
        Self {
            source,
            destination,
            tos: 0,
            identification: 0x1234,
            flags: 0,
            ttl: 64,
            options: Vec::new(),
            body,
        }
    }

    pub(crate) fn udp(from: Endpoint, to: Endpoint, data: &[u8]) -> Self {
        let body = Body::Udp { ports: (from.1, to.1), data: data.into() };
        Self::new(from.0, to.0, body)
    }

    pub(crate) fn tcp(from: Endpoint, to: Endpoint, flags: u8, numbers: (u32, u32)) -> Self {
        let (sequence, acknowledgment) = numbers;
        let ports = (from.1, to.1);
        let body = Body::Tcp { ports, flags, sequence, acknowledgment, data: Vec::new() };
        Self::new(from.0, to.0, body)
    }

    /// An ICMP query or reply; its identifier is the port of the internal end.
    pub(crate) fn query(from: Ipv4Addr, to: Ipv4Addr, kind: u8, identifier: u16) -> Self {
        let rest = [&identifier.to_be_bytes()[..], &[0, 1], &[0xab; 12]].concat();
        Self::new(from, to, Body::Icmp { kind, code: 0, rest })
    }

    /// An ICMP error about a packet; the first `length` bytes of the packet are embedded.
    pub(crate) fn error(
        from: Ipv4Addr,
        to: Ipv4Addr,
        (kind, code): (u8, u8),
        about: &[u8],
        length: usize,
    ) -> Self {
        let word = if (kind, code) == (3, 4) { [0, 0, 0x05, 0x00] } else { [0; 4] };
        let rest = [&word, &about[..length.min(about.len())]].concat();
        Self::new(from, to, Body::Icmp { kind, code, rest })
    }

    pub(crate) fn with_data(mut self, bytes: &[u8]) -> Self {
        match &mut self.body {
            Body::Udp { data, .. } | Body::Tcp { data, .. } => *data = bytes.into(),
            _ => unreachable!("only UDP and TCP have data"),
        }
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let (number, mut payload, checksum_at) = self.payload();
        if let Some(at) = checksum_at {
            let length = payload.len() as u16;
            let (source, destination) = (self.source.to_bits(), self.destination.to_bits());
            let pseudo = checksum::pseudo_header(source, destination, number, length);
            let value = match !checksum::fold(checksum::sum(&payload, pseudo)) {
                0 if number == protocol::UDP => 0xffff,
                value => value,
            };
            payload[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        let mut bytes = vec![0; header_len + payload.len()];
        let total_len = bytes.len() as u16;
        let mut packet = Ipv4::init(&mut bytes[..], header_len);
        packet.set_total_len(total_len);
        packet.set_identification(self.identification);
        packet.set_fragment_field(self.flags);
        packet.set_ttl(self.ttl);
        packet.set_protocol(number);
        packet.set_source(self.source.to_bits());
        packet.set_destination(self.destination.to_bits());
        packet.payload_mut().copy_from_slice(&payload);
        bytes[1] = self.tos;
        bytes[20..header_len].copy_from_slice(&self.options);
        fix_header(&mut bytes);
        bytes
    }

    /// Protocol, bytes, and the offset of a checksum over the pseudo header.
    fn payload(&self) -> (u8, Vec<u8>, Option<usize>) {
        match &self.body {
            Body::Udp { ports, data } => {
                let mut bytes = [&[0; 8], &data[..]].concat();
                let length = bytes.len() as u16;
                let mut header = Udp::new_checked(&mut bytes[..]).expect("eight bytes are there");
                header.set_source_port(ports.0);
                header.set_destination_port(ports.1);
                header.set_length(length);
                (protocol::UDP, bytes, Some(6))
            }
            Body::Tcp { ports, flags, sequence, acknowledgment, data } => {
                let mut bytes = [&[0; 20], &data[..]].concat();
                bytes[4..8].copy_from_slice(&sequence.to_be_bytes());
                bytes[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
                bytes[12..14].copy_from_slice(&[5 << 4, *flags]);
                bytes[14..16].copy_from_slice(&20_000_u16.to_be_bytes());
                let mut header = Tcp::new_checked(&mut bytes[..]).expect("the header is there");
                header.set_source_port(ports.0);
                header.set_destination_port(ports.1);
                (protocol::TCP, bytes, Some(16))
            }
            Body::Icmp { kind, code, rest } => {
                let mut bytes = [&[*kind, *code, 0, 0], &rest[..]].concat();
                if let Some(mut icmp) = Icmp::new_checked(&mut bytes[..]) {
                    icmp.fill_checksum();
                }
                (protocol::ICMP, bytes, None)
            }
            Body::Other { protocol, bytes, checksum_at } => {
                (*protocol, bytes.clone(), *checksum_at)
            }
        }
    }
}

/// Corrects the header checksum.
pub(crate) fn fix_header(bytes: &mut [u8]) {
    Ipv4::new_header_checked(bytes).expect("an IPv4 header").fill_checksum();
}

/// Cuts a packet without options into fragments of `size` bytes of payload, a multiple of eight.
pub(crate) fn fragments(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    assert!(size.is_multiple_of(8) && packet[0] == 0x45);
    let (header, payload) = packet.split_at(20);
    let count = payload.chunks(size).len();
    let cut = |(number, chunk): (usize, &[u8])| {
        let mut bytes = [header, chunk].concat();
        let more = if number + 1 < count { MORE_FRAGMENTS } else { 0 };
        let total_len = bytes.len() as u16;
        let mut fragment = Ipv4::new_header_checked(&mut bytes[..]).expect("the same header");
        fragment.set_total_len(total_len);
        fragment.set_fragment_field((number * size / 8) as u16 | more);
        fix_header(&mut bytes);
        bytes
    };
    payload.chunks(size).enumerate().map(cut).collect()
}
