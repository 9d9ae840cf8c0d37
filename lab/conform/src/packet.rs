//! Packets of the suite's hosts, with construction and description.
//!
//! A [`Packet`] is a value with every field that a requirement mentions. [`Packet::bytes`] encodes
//! it and computes its checksums. A test damages the bytes afterwards. This module does not know
//! the function of a translator.

use natgate_wire::icmp::is_error;
use natgate_wire::ipv4::HEADER_LEN;
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use natgate_wire::tcp::flags;
use natgate_wire::{Icmp, Ipv4, Tcp, checksum};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// The flag that forbids fragmenting, in the field that it shares with the fragment offset.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;

/// The flag that announces more fragments.
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;

/// An IPv4 packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) identification: u16,
    /// Flags and fragment offset as one field.
    pub(crate) fragment: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Content of a TCP segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment<'a> {
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) data: &'a [u8],
}

/// DCCP packet types (RFC 4340 section 5.1, RFC 5596).
pub(crate) mod dccp {
    pub(crate) const REQUEST: u8 = 0;
    pub(crate) const RESPONSE: u8 = 1;
    pub(crate) const ACK: u8 = 3;
    pub(crate) const DATA_ACK: u8 = 4;
    pub(crate) const CLOSE: u8 = 6;
    pub(crate) const RESET: u8 = 7;
    pub(crate) const LISTEN: u8 = 10;

    /// Length of the generic header with long sequence numbers, bytes.
    pub(crate) const HEADER_LEN: usize = 16;
    /// Offset of the checksum in it.
    pub(crate) const CHECKSUM: usize = 6;
    /// Service code of the suite.
    pub(crate) const SERVICE: [u8; 4] = *b"NATG";
}

impl Packet {
    /// A packet of any protocol.
    pub(crate) fn new(protocol: u8, source: Ipv4Addr, to: Ipv4Addr, payload: Vec<u8>) -> Self {
        Self {
            source,
            destination: to,
            protocol,
            ttl: 64,
            tos: 0,
            identification: 0x4e47,
            fragment: 0,
            options: Vec::new(),
            payload,
        }
    }

    /// A UDP datagram.
    pub(crate) fn udp(from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> Self {
        let mut bytes = ports(from, to);
        bytes.extend(((8 + data.len()) as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(data);
        let mut packet = Self::new(UDP, *from.ip(), *to.ip(), bytes);
        let sum = packet.transport_checksum(packet.payload.len());
        packet.payload[6..8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
        packet
    }

    /// A TCP segment; a SYN announces its maximum segment size.
    pub(crate) fn tcp(from: SocketAddrV4, to: SocketAddrV4, segment: Segment<'_>) -> Self {
        let options: &[u8] =
            if segment.flags & flags::SYN != 0 { &[2, 4, 0x05, 0xb4] } else { &[] };
        let mut bytes = ports(from, to);
        bytes.extend(segment.sequence.to_be_bytes());
        bytes.extend(segment.acknowledgment.to_be_bytes());
        bytes.extend([((20 + options.len()) * 4) as u8, segment.flags, 0x40, 0, 0, 0, 0, 0]);
        bytes.extend(options);
        bytes.extend(segment.data);
        let mut packet = Self::new(TCP, *from.ip(), *to.ip(), bytes);
        let sum = packet.transport_checksum(packet.payload.len());
        packet.payload[16..18].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// An ICMP query or reply of this type.
    pub(crate) fn query(
        kind: u8,
        from: Ipv4Addr,
        to: Ipv4Addr,
        identifier: u16,
        data: &[u8],
    ) -> Self {
        let [high, low] = identifier.to_be_bytes();
        Self::icmp(from, to, kind, 0, [high, low, 0, 1], data)
    }

    /// An ICMP error about a packet, with these quoted bytes.
    pub(crate) fn error(
        from: Ipv4Addr,
        to: Ipv4Addr,
        (kind, code): (u8, u8),
        quoted: &[u8],
    ) -> Self {
        Self::icmp(from, to, kind, code, [0; 4], quoted)
    }

    /// Any ICMP message: type, code, the word behind the checksum, the remaining bytes.
    pub(crate) fn icmp(
        from: Ipv4Addr,
        to: Ipv4Addr,
        kind: u8,
        code: u8,
        word: [u8; 4],
        body: &[u8],
    ) -> Self {
        let mut bytes = [&[kind, code, 0, 0], &word[..], body].concat();
        let sum = checksum::checksum(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        Self::new(ICMP, from, to, bytes)
    }

    /// A DCCP packet with long sequence numbers; requests and listens have the service code.
    pub(crate) fn dccp(from: SocketAddrV4, to: SocketAddrV4, kind: u8, data: &[u8]) -> Self {
        let after: &[u8] = match kind {
            dccp::REQUEST | dccp::LISTEN => &dccp::SERVICE,
            // An acknowledgment number, then the service code.
            dccp::RESPONSE => &[0, 0, 0, 0, 0, 0, 0, 7, b'N', b'A', b'T', b'G'],
            // An acknowledgment number, then reset code and data.
            dccp::RESET => &[0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0],
            _ => &[0, 0, 0, 0, 0, 0, 0, 7],
        };
        let mut bytes = ports(from, to);
        let words = ((dccp::HEADER_LEN + after.len()) / 4) as u8;
        // Checksum coverage 1: header and options only.
        bytes.extend([words, 0x01, 0, 0, kind << 1 | 1, 0, 0, 0, 0, 0, 0, 9]);
        bytes.extend(after);
        let covered = bytes.len();
        bytes.extend(data);
        let mut packet = Self::new(DCCP, *from.ip(), *to.ip(), bytes);
        let sum = packet.transport_checksum(covered);
        packet.payload[dccp::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// Sets the time to live.
    pub(crate) fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the type of service.
    pub(crate) fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// Sets the identification.
    pub(crate) fn identification(mut self, identification: u16) -> Self {
        self.identification = identification;
        self
    }

    /// Sets the options; their length must be a multiple of four.
    pub(crate) fn options(mut self, options: &[u8]) -> Self {
        self.options = options.to_vec();
        self
    }

    /// Forbids fragmentation.
    pub(crate) fn whole(mut self) -> Self {
        self.fragment |= DONT_FRAGMENT;
        self
    }

    /// Returns true if a received packet may be this one in translated form: it has the same
    /// protocol and the same kind within it. An answer of the translator or of another host has
    /// another kind.
    pub(crate) fn may_be(&self, came: &Received) -> bool {
        let kind = |protocol: u8, payload: &[u8]| match protocol {
            ICMP if payload.first().is_some_and(|kind| is_error(*kind)) => Some(u8::MAX),
            ICMP => payload.first().copied(),
            TCP => payload.get(13).copied(),
            DCCP => payload.get(8).copied(),
            _ => None,
        };
        let protocol = came.ip().protocol();
        protocol == self.protocol && kind(protocol, came.payload()) == kind(protocol, &self.payload)
    }

    /// Bytes of the packet.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let header_len = HEADER_LEN + self.options.len();
        let mut bytes = vec![0; header_len + self.payload.len()];
        let total_len = bytes.len() as u16;
        let mut view = Ipv4::init(&mut bytes[..], header_len);
        view.set_total_len(total_len);
        view.set_identification(self.identification);
        view.set_fragment_field(self.fragment);
        view.set_ttl(self.ttl);
        view.set_protocol(self.protocol);
        view.set_source(self.source.to_bits());
        view.set_destination(self.destination.to_bits());
        bytes[1] = self.tos;
        bytes[HEADER_LEN..header_len].copy_from_slice(&self.options);
        bytes[header_len..].copy_from_slice(&self.payload);
        fill_header_checksum(&mut bytes);
        bytes
    }

    /// Fragments of the packet with `len` bytes of payload, a multiple of eight, in order.
    pub(crate) fn fragments(&self, len: usize) -> Vec<Self> {
        let count = self.payload.len().div_ceil(len);
        let cut = |(number, part): (usize, &[u8])| {
            let more = if number + 1 < count { MORE_FRAGMENTS } else { 0 };
            let fragment = more | (number * len / 8) as u16;
            Self { fragment, payload: part.to_vec(), ..self.clone() }
        };
        self.payload.chunks(len).enumerate().map(cut).collect()
    }

    /// Checksum over the pseudo header and the first `covered` bytes of the payload, including the
    /// present checksum field.
    fn transport_checksum(&self, covered: usize) -> u16 {
        transport_checksum((self.source, self.destination, self.protocol), &self.payload, covered)
    }
}

/// Computes a packet's header checksum again after a change of the header.
pub(crate) fn fill_header_checksum(bytes: &mut [u8]) {
    let header_len = usize::from(bytes[0] & 0x0f) * 4;
    bytes[10..12].fill(0);
    let end = header_len.clamp(HEADER_LEN, bytes.len());
    let sum = checksum::checksum(&bytes[..end]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn transport_checksum(
    (source, destination, protocol): (Ipv4Addr, Ipv4Addr, u8),
    payload: &[u8],
    covered: usize,
) -> u16 {
    let length = payload.len() as u16;
    let pseudo = checksum::pseudo_header(source.to_bits(), destination.to_bits(), protocol, length);
    !checksum::fold(checksum::sum(&payload[..covered], pseudo))
}

/// Returns true if the checksum of the packet's transport header is correct, or if the packet has
/// none or is a fragment.
pub(crate) fn transport_valid(bytes: &[u8]) -> bool {
    let Ok(view) = Ipv4::new_checked(bytes) else { return false };
    if view.fragment_offset() != 0 || view.more_fragments() {
        return true;
    }
    let payload = view.payload();
    let covered = match view.protocol() {
        TCP => payload.len(),
        UDP if payload.get(6..8).is_none_or(|sum| sum == [0, 0]) => return true,
        UDP => payload.len(),
        DCCP if payload.len() >= dccp::HEADER_LEN => dccp_covered(payload),
        ICMP => return checksum::checksum(payload) == 0,
        _ => return true,
    };
    let addresses = (Ipv4Addr::from_bits(view.source()), Ipv4Addr::from_bits(view.destination()));
    transport_checksum((addresses.0, addresses.1, view.protocol()), payload, covered) == 0
}

/// Bytes that a DCCP checksum covers (RFC 4340 section 9.2).
fn dccp_covered(payload: &[u8]) -> usize {
    let header = usize::from(payload[4]) * 4;
    match usize::from(payload[5] & 0x0f) {
        0 => payload.len(),
        words => (header + (words - 1) * 4).min(payload.len()),
    }
}

fn ports(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    [from.port().to_be_bytes(), to.port().to_be_bytes()].concat()
}

/// A received packet with its time.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Time of reception, by the bench's clock.
    pub(crate) at: Duration,
    /// The IP packet, without bytes behind its total length.
    pub(crate) bytes: Vec<u8>,
}

impl Received {
    /// The packet in received bytes, if it is complete.
    pub(crate) fn new(at: Duration, bytes: &[u8]) -> Option<Self> {
        let len = Ipv4::new_checked(bytes).ok()?.total_len();
        Some(Self { at, bytes: bytes[..usize::from(len)].to_vec() })
    }

    /// Header of the packet.
    pub(crate) fn ip(&self) -> Ipv4<&[u8]> {
        Ipv4::new_checked(&self.bytes[..]).expect("it was whole when it came")
    }

    /// Bytes behind the header.
    pub(crate) fn payload(&self) -> &[u8] {
        let header_len = self.ip().header_len();
        &self.bytes[header_len..]
    }

    /// Data behind an 8-byte transport header, or the data of a TCP segment.
    pub(crate) fn data(&self) -> &[u8] {
        let payload = self.payload();
        let header_len = match self.ip().protocol() {
            TCP => Tcp::new_checked(payload).map_or(payload.len(), |tcp| tcp.header_len()),
            DCCP => payload.get(4).map_or(0, |words| usize::from(*words) * 4),
            _ => 8,
        };
        payload.get(header_len..).unwrap_or_default()
    }

    /// Source endpoint. The port of an ICMP query is its identifier; without ports it is 0.
    pub(crate) fn source(&self) -> SocketAddrV4 {
        let (source, _) = endpoints(&self.bytes);
        source
    }

    /// Destination endpoint.
    pub(crate) fn destination(&self) -> SocketAddrV4 {
        let (_, destination) = endpoints(&self.bytes);
        destination
    }

    /// Type and code, if the packet is an ICMP error.
    pub(crate) fn error(&self) -> Option<(u8, u8)> {
        let icmp = self.icmp()?;
        is_error(icmp.kind()).then(|| (icmp.kind(), icmp.code()))
    }

    /// The ICMP message, if the packet is one.
    pub(crate) fn icmp(&self) -> Option<Icmp<&[u8]>> {
        (self.ip().protocol() == ICMP).then(|| Icmp::new_checked(self.payload())).flatten()
    }

    /// Quoted bytes of an ICMP error.
    pub(crate) fn quoted(&self) -> &[u8] {
        self.payload().get(8..).unwrap_or_default()
    }

    /// Returns true if header and transport checksum are correct.
    pub(crate) fn valid(&self) -> bool {
        self.ip().checksum_valid() && transport_valid(&self.bytes)
    }
}

/// Source and destination of a packet with at least the header and eight bytes; unspecified if
/// bytes are missing.
pub(crate) fn endpoints(bytes: &[u8]) -> (SocketAddrV4, SocketAddrV4) {
    let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let Ok(view) = Ipv4::new_header_checked(bytes) else { return (nobody, nobody) };
    let payload = view.payload();
    let port = |at: usize| {
        payload.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let (from, to) = match view.protocol() {
        _ if view.fragment_offset() != 0 => (0, 0),
        TCP | UDP | DCCP => (port(0), port(2)),
        ICMP if payload.first().is_some_and(|kind| !is_error(*kind)) => (port(4), port(4)),
        _ => (0, 0),
    };
    let address = Ipv4Addr::from_bits;
    (
        SocketAddrV4::new(address(view.source()), from),
        SocketAddrV4::new(address(view.destination()), to),
    )
}

/// One line about a packet, for people.
pub(crate) fn describe(bytes: &[u8]) -> String {
    let Ok(view) = Ipv4::new_header_checked(bytes) else {
        return format!("{} bytes that are no IPv4 packet", bytes.len());
    };
    let (source, destination) = endpoints(bytes);
    let (from, to) = (source.ip(), destination.ip());
    let payload = view.payload();
    let fragment = view.fragment_offset() != 0 || view.more_fragments();
    let mut text = match view.protocol() {
        _ if view.fragment_offset() != 0 => format!("protocol {} {from} > {to}", view.protocol()),
        TCP => {
            let sign = Tcp::new_prefix_checked(payload)
                .map_or(String::new(), |tcp| flag_names(tcp.flags()));
            format!("TCP {sign}{source} > {destination}")
        }
        UDP => format!("UDP {source} > {destination}"),
        DCCP => format!("DCCP {source} > {destination}"),
        ICMP => describe_icmp(payload, *from, *to),
        protocol => format!("protocol {protocol} {from} > {to}"),
    };
    if fragment {
        let more = if view.more_fragments() { ", more to follow" } else { ", the last" };
        let _ = write!(text, ", fragment at byte {}{more}", view.fragment_offset());
    }
    if view.ttl() < 3 {
        let _ = write!(text, ", TTL {}", view.ttl());
    }
    let _ = write!(text, ", {} bytes", view.total_len());
    text
}

fn describe_icmp(payload: &[u8], from: Ipv4Addr, to: Ipv4Addr) -> String {
    let Some(icmp) = Icmp::new_checked(payload) else { return format!("ICMP {from} > {to}") };
    let (kind, code) = (icmp.kind(), icmp.code());
    if is_error(kind) {
        format!("ICMP {kind}/{code} {from} > {to} about [{}]", describe(icmp.body()))
    } else {
        format!("ICMP {kind}/{code} {from} > {to} identifier {}", icmp.identifier())
    }
}

fn flag_names(bits: u8) -> String {
    let names =
        [(flags::SYN, "SYN"), (flags::FIN, "FIN"), (flags::RST, "RST"), (flags::ACK, "ACK")];
    let set: Vec<_> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { String::new() } else { format!("{} ", set.join("-")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 5), 4000);
    const B: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 53);

    #[test]
    fn what_is_built_is_right_and_reads_back() {
        let syn = Segment { flags: flags::SYN, sequence: 7, ..Segment::default() };
        let built = [
            Packet::udp(A, B, b"odd"),
            Packet::tcp(A, B, syn),
            Packet::dccp(A, B, dccp::REQUEST, b"data"),
            Packet::query(8, *A.ip(), *B.ip(), 4000, b"ping"),
        ];
        for packet in built {
            let received = Received::new(Duration::ZERO, &packet.options(&[1; 4]).bytes()).unwrap();
            assert!(received.valid(), "{}", describe(&received.bytes));
            assert_eq!((received.source().ip(), received.source().port()), (A.ip(), 4000));
            let mut broken = received.bytes.clone();
            broken[25] ^= 1;
            assert!(!transport_valid(&broken), "{}", describe(&broken));
        }
    }

    #[test]
    fn fragments_make_up_the_packet() {
        let whole = Packet::udp(A, B, &[7; 100]);
        let parts = whole.fragments(48);
        assert_eq!(parts.len(), 3);
        assert_eq!(
            parts.iter().flat_map(|part| part.payload.clone()).collect::<Vec<_>>(),
            whole.payload
        );
        let fields: Vec<_> = parts.iter().map(|part| part.fragment).collect();
        assert_eq!(fields, [MORE_FRAGMENTS, MORE_FRAGMENTS | 6, 12]);
    }

    #[test]
    fn a_line_says_what_matters() {
        let quoted = Packet::udp(A, B, b"").bytes();
        let error = Packet::error(*B.ip(), *A.ip(), (3, 3), &quoted).bytes();
        assert_eq!(
            describe(&error),
            "ICMP 3/3 192.0.2.1 > 10.0.0.5 about \
             [UDP 10.0.0.5:4000 > 192.0.2.1:53, 28 bytes], 56 bytes"
        );
        assert_eq!(describe(&[0x60]), "1 bytes that are no IPv4 packet");
    }
}
