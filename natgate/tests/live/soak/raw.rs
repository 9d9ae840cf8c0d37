//! Packets that no ordinary socket sends, sent by raw sockets: complete packets, fragments in any
//! order, forged packets. No sender expects an answer.

use natgate_wire::{Ipv4, checksum, ipv4, udp};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Sends IP packets with headers of this test. The kernel fills in checksum and length.
pub(super) struct Raw(Socket);

impl Raw {
    /// Opens a socket in the namespace of the thread.
    pub(super) fn open() -> Self {
        const IPPROTO_RAW: i32 = 255;
        let socket = Self::of(IPPROTO_RAW);
        socket.set_broadcast(true).unwrap();
        Self(socket)
    }

    /// A raw socket for packets of one protocol, in the namespace of the thread.
    pub(super) fn of(protocol: i32) -> Socket {
        let protocol = Some(Protocol::from(protocol));
        Socket::new(Domain::IPV4, Type::from(libc::SOCK_RAW), protocol).unwrap()
    }

    /// Sends a packet; a full queue may refuse it.
    pub(super) fn send(&self, packet: &[u8]) {
        let octets: [u8; 4] = packet[16..20].try_into().unwrap();
        let to = SocketAddrV4::new(Ipv4Addr::from(octets), 0);
        let _ = self.0.send_to(packet, &SockAddr::from(to));
    }
}

/// Fields of an IPv4 header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) protocol: u8,
    pub(super) ttl: u8,
    pub(super) identification: u16,
}

impl Header {
    /// Header of an ordinary packet.
    pub(super) fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8) -> Self {
        Self { source, destination, protocol, ttl: 64, identification: 0 }
    }

    /// A complete packet.
    pub(super) fn packet(self, payload: &[u8]) -> Vec<u8> {
        self.piece(payload, 0, false)
    }

    /// The payload in fragments of `len` bytes, a multiple of eight.
    pub(super) fn pieces(self, payload: &[u8], len: usize) -> Vec<Vec<u8>> {
        let last = payload.len().div_ceil(len) - 1;
        let pieces = payload.chunks(len).enumerate();
        pieces.map(|(place, bytes)| self.piece(bytes, place * len, place < last)).collect()
    }

    fn piece(self, payload: &[u8], offset: usize, more: bool) -> Vec<u8> {
        const MORE_FRAGMENTS: u16 = 0x2000;
        let mut bytes = vec![0; ipv4::HEADER_LEN];
        let mut header = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
        header.set_total_len((ipv4::HEADER_LEN + payload.len()) as u16);
        header.set_identification(self.identification);
        header.set_fragment_field((offset / 8) as u16 | if more { MORE_FRAGMENTS } else { 0 });
        header.set_ttl(self.ttl);
        header.set_protocol(self.protocol);
        header.set_source(self.source.to_bits());
        header.set_destination(self.destination.to_bits());
        header.fill_checksum();
        bytes.extend(payload);
        bytes
    }
}

/// A UDP datagram without its IP header; no checksum.
pub(super) fn datagram(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = (udp::HEADER_LEN + payload.len()) as u16;
    let header = [from, to, len, 0].map(u16::to_be_bytes);
    [header.as_flattened(), payload].concat()
}

/// A SYN without its IP header.
pub(super) fn syn([source, destination]: [Ipv4Addr; 2], from: u16, to: u16) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0x20, 0, 0, 0, 0, 0]);
    let (source, destination) = (source.to_bits(), destination.to_bits());
    let pseudo = checksum::pseudo_header(source, destination, 6, bytes.len() as u16);
    let sum = !checksum::fold(checksum::sum(&bytes, pseudo));
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// An ICMP message without its IP header, with four bytes behind type, code and checksum.
pub(super) fn icmp(kind: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], &rest[..], body].concat();
    let sum = checksum::checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}
