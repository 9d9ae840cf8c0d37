//! IPv6 packets of the suite's hosts, with construction and description.
//!
//! A [`Packet6`] has its extension headers in order; [`Packet6::bytes`] links and encodes them. The
//! payload of UDP and TCP is that of [`Packet`], with the checksum of IPv6. This module does not
//! know the function of a translator.

use crate::packet::{Packet, Segment};
use natgate_wire::checksum::{fold, pseudo_header_v6, sum};
use natgate_wire::icmpv6::is_error;
use natgate_wire::ipv6::{FRAGMENT_LEN, Fragment, HEADER_LEN, Walk, next};
use natgate_wire::protocol::{ICMP, ICMPV6, TCP, UDP};
use natgate_wire::{Icmpv6, Ipv6, Tcp, icmp, icmpv6};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

/// An endpoint of an IPv6 address.
pub(crate) fn end6(address: Ipv6Addr, port: u16) -> SocketAddrV6 {
    SocketAddrV6::new(address, port, 0, 0)
}

/// An IPv6 packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet6 {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    pub(crate) class: u8,
    /// Extension headers with their types; the first byte of each is filled in later.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    pub(crate) payload: Vec<u8>,
}

impl Packet6 {
    /// A packet of any protocol.
    pub(crate) fn new(protocol: u8, source: Ipv6Addr, to: Ipv6Addr, payload: Vec<u8>) -> Self {
        Self {
            source,
            destination: to,
            protocol,
            hop_limit: 64,
            class: 0,
            extensions: Vec::new(),
            payload,
        }
    }

    /// A packet with the payload of one of IPv4; an echo message becomes one of ICMPv6.
    pub(crate) fn like(packet: Packet, source: Ipv6Addr, to: Ipv6Addr) -> Self {
        let mut payload = packet.payload;
        let protocol = if packet.protocol == ICMP { ICMPV6 } else { packet.protocol };
        if protocol == ICMPV6 {
            payload[0] = match payload[0] {
                icmp::kind::ECHO_REQUEST => icmpv6::kind::ECHO_REQUEST,
                icmp::kind::ECHO_REPLY => icmpv6::kind::ECHO_REPLY,
                kind => kind,
            };
        }
        Self::new(protocol, source, to, payload).summed()
    }

    /// A UDP datagram.
    pub(crate) fn udp(from: SocketAddrV6, to: SocketAddrV6, data: &[u8]) -> Self {
        let (source, destination) = nowhere(from, to);
        Self::like(Packet::udp(source, destination, data), *from.ip(), *to.ip())
    }

    /// A TCP segment; a SYN announces its maximum segment size.
    pub(crate) fn tcp(from: SocketAddrV6, to: SocketAddrV6, segment: Segment<'_>) -> Self {
        let (source, destination) = nowhere(from, to);
        Self::like(Packet::tcp(source, destination, segment), *from.ip(), *to.ip())
    }

    /// An ICMPv6 query or reply of this type.
    pub(crate) fn query(
        kind: u8,
        from: Ipv6Addr,
        to: Ipv6Addr,
        identifier: u16,
        data: &[u8],
    ) -> Self {
        let [high, low] = identifier.to_be_bytes();
        Self::icmp(from, to, (kind, 0), [high, low, 0, 1], data)
    }

    /// Any ICMPv6 message: type and code, the word behind the checksum, the remaining bytes.
    pub(crate) fn icmp(
        from: Ipv6Addr,
        to: Ipv6Addr,
        (kind, code): (u8, u8),
        word: [u8; 4],
        body: &[u8],
    ) -> Self {
        let payload = [&[kind, code, 0, 0], &word[..], body].concat();
        Self::new(ICMPV6, from, to, payload).summed()
    }

    /// Sets the hop limit.
    pub(crate) fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = hop_limit;
        self
    }

    /// Sets the traffic class.
    pub(crate) fn class(mut self, class: u8) -> Self {
        self.class = class;
        self
    }

    /// Adds an extension header behind the others.
    pub(crate) fn extension(mut self, kind: u8, bytes: &[u8]) -> Self {
        self.extensions.push((kind, bytes.to_vec()));
        self
    }

    /// Computes the checksum of the payload.
    fn summed(mut self) -> Self {
        let at = match self.protocol {
            TCP => 16,
            UDP => 6,
            ICMPV6 => 2,
            _ => return self,
        };
        self.payload[at..at + 2].fill(0);
        let ends = (self.source, self.destination, self.protocol);
        let sum = match !total(ends, &self.payload) {
            0 if self.protocol == UDP => 0xffff,
            sum => sum,
        };
        self.payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self
    }

    /// Bytes of the packet.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let kinds = self.extensions.iter().map(|(kind, _)| *kind);
        let mut following = kinds.chain([self.protocol]);
        let first = following.next().unwrap_or(self.protocol);
        let mut bytes = vec![0; HEADER_LEN];
        for ((_, extension), next) in self.extensions.iter().zip(following) {
            let at = bytes.len();
            bytes.extend(extension);
            bytes[at] = next;
        }
        bytes.extend(&self.payload);
        let len = bytes.len() - HEADER_LEN;
        let mut view = Ipv6::init(&mut bytes[..]);
        view.set_traffic_class(self.class);
        view.set_payload_len(len as u16);
        view.set_next_header(first);
        view.set_hop_limit(self.hop_limit);
        view.set_source(self.source.to_bits());
        view.set_destination(self.destination.to_bits());
        bytes
    }

    /// Fragments of the packet with `len` bytes of payload, a multiple of eight, in order.
    pub(crate) fn fragments(&self, len: usize, identification: u32) -> Vec<Self> {
        let count = self.payload.len().div_ceil(len);
        let cut = |(number, part): (usize, &[u8])| {
            let (offset, more) = (number * len, number + 1 < count);
            let mut header = [0; FRAGMENT_LEN];
            Fragment { next_header: self.protocol, offset, more, identification }
                .write(&mut header);
            Self { payload: part.to_vec(), ..self.clone() }.extension(next::FRAGMENT, &header)
        };
        self.payload.chunks(len).enumerate().map(cut).collect()
    }
}

/// Endpoints of IPv4 with these ports; the addresses do not matter.
fn nowhere(from: SocketAddrV6, to: SocketAddrV6) -> (SocketAddrV4, SocketAddrV4) {
    let end = |end: SocketAddrV6| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, end.port());
    (end(from), end(to))
}

/// Sum over the pseudo header and a message, including the present checksum: all ones if the
/// checksum is correct.
fn total((source, destination, protocol): (Ipv6Addr, Ipv6Addr, u8), message: &[u8]) -> u16 {
    let (source, destination) = (source.to_bits(), destination.to_bits());
    let len = message.len() as u32;
    fold(sum(message, pseudo_header_v6(source, destination, protocol, len)))
}

/// A received packet with its time.
#[derive(Clone, Debug)]
pub(crate) struct Received6 {
    /// Time of reception, by the bench's clock.
    pub(crate) at: Duration,
    /// The IP packet, without bytes behind its length.
    pub(crate) bytes: Vec<u8>,
    walk: Walk,
}

impl Received6 {
    /// The packet in received bytes, if it is complete.
    pub(crate) fn new(at: Duration, bytes: &[u8]) -> Option<Self> {
        let packet = Ipv6::new_checked(bytes).ok()?;
        let (walk, len) = (packet.walk().ok()?, packet.total_len());
        Some(Self { at, bytes: bytes[..len].to_vec(), walk })
    }

    /// Header of the packet.
    pub(crate) fn ip(&self) -> Ipv6<&[u8]> {
        Ipv6::new_checked(&self.bytes[..]).expect("it was whole when it came")
    }

    /// Type of the transport header.
    pub(crate) fn protocol(&self) -> u8 {
        self.walk.protocol
    }

    /// Fragment header, if there is one.
    pub(crate) fn fragment(&self) -> Option<Fragment> {
        self.walk.fragment.map(|(_, fragment)| fragment)
    }

    /// Bytes behind the headers of IPv6.
    pub(crate) fn transport(&self) -> &[u8] {
        &self.bytes[self.walk.transport..]
    }

    /// Data behind an 8-byte transport header, or the data of a TCP segment.
    pub(crate) fn data(&self) -> &[u8] {
        let transport = self.transport();
        let header_len = match self.protocol() {
            TCP => Tcp::new_checked(transport).map_or(transport.len(), |tcp| tcp.header_len()),
            _ => 8,
        };
        transport.get(header_len..).unwrap_or_default()
    }

    /// Source endpoint. The port of an ICMPv6 query is its identifier; without ports it is 0.
    pub(crate) fn source(&self) -> SocketAddrV6 {
        endpoints6(&self.bytes).0
    }

    /// Destination endpoint.
    pub(crate) fn destination(&self) -> SocketAddrV6 {
        endpoints6(&self.bytes).1
    }

    /// The ICMPv6 message, if the packet is one.
    pub(crate) fn icmp(&self) -> Option<Icmpv6<&[u8]>> {
        (self.protocol() == ICMPV6).then(|| Icmpv6::new_checked(self.transport())).flatten()
    }

    /// Type and code, if the packet is an ICMPv6 error.
    pub(crate) fn error(&self) -> Option<(u8, u8)> {
        let icmp = self.icmp()?;
        is_error(icmp.kind()).then(|| (icmp.kind(), icmp.code()))
    }

    /// Quoted bytes of an ICMPv6 error.
    pub(crate) fn quoted(&self) -> &[u8] {
        self.transport().get(8..).unwrap_or_default()
    }

    /// Returns true if the transport checksum is correct, or if the packet is a fragment or of
    /// another protocol.
    pub(crate) fn valid(&self) -> bool {
        let protocol = self.protocol();
        let is_known = matches!(protocol, TCP | UDP | ICMPV6) && self.fragment().is_none();
        let field = self.transport().get(6..8);
        let has_none = protocol == UDP && field.is_some_and(|sum| sum == [0, 0]);
        let ends = (*self.source().ip(), *self.destination().ip(), protocol);
        !is_known || !has_none && total(ends, self.transport()) == 0xffff
    }
}

/// Source and destination of a packet; unspecified if bytes are missing.
pub(crate) fn endpoints6(bytes: &[u8]) -> (SocketAddrV6, SocketAddrV6) {
    let nobody = end6(Ipv6Addr::UNSPECIFIED, 0);
    let Ok(view) = Ipv6::new_header_checked(bytes) else { return (nobody, nobody) };
    let address = Ipv6Addr::from_bits;
    let addresses = (address(view.source()), address(view.destination()));
    let Ok(walk) = view.walk() else { return (end6(addresses.0, 0), end6(addresses.1, 0)) };
    let transport = bytes.get(walk.transport..).unwrap_or_default();
    let port = |at: usize| {
        transport.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let is_later = walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0);
    let (from, to) = match walk.protocol {
        _ if is_later => (0, 0),
        TCP | UDP => (port(0), port(2)),
        ICMPV6 if transport.first().is_some_and(|kind| !is_error(*kind)) => (port(4), port(4)),
        _ => (0, 0),
    };
    (end6(addresses.0, from), end6(addresses.1, to))
}

/// One line about a packet, for people.
pub(crate) fn describe6(bytes: &[u8]) -> String {
    let Ok(view) = Ipv6::new_header_checked(bytes) else {
        return format!("{} bytes that are no IPv6 packet", bytes.len());
    };
    let (source, destination) = endpoints6(bytes);
    let (from, to) = (source.ip(), destination.ip());
    let Ok(walk) = view.walk() else { return format!("cut short, {from} > {to}") };
    let transport = bytes.get(walk.transport..).unwrap_or_default();
    let mut text = match walk.protocol {
        _ if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) => {
            format!("protocol {} {from} > {to}", walk.protocol)
        }
        TCP => format!("TCP {source} > {destination}"),
        UDP => format!("UDP {source} > {destination}"),
        ICMPV6 => match Icmpv6::new_checked(transport) {
            Some(icmp) if is_error(icmp.kind()) => {
                let (kind, code) = (icmp.kind(), icmp.code());
                format!("ICMPv6 {kind}/{code} {from} > {to} about [{}]", describe6(icmp.body()))
            }
            Some(icmp) => {
                let (kind, code) = (icmp.kind(), icmp.code());
                format!("ICMPv6 {kind}/{code} {from} > {to} identifier {}", icmp.identifier())
            }
            None => format!("ICMPv6 {from} > {to}"),
        },
        protocol => format!("protocol {protocol} {from} > {to}"),
    };
    if let Some((_, fragment)) = walk.fragment {
        let more = if fragment.more { ", more to follow" } else { ", the last" };
        let _ = write!(text, ", fragment at byte {}{more}", fragment.offset);
    }
    if view.hop_limit() < 3 {
        let _ = write!(text, ", hop limit {}", view.hop_limit());
    }
    let _ = write!(text, ", {} bytes", view.total_len());
    text
}

/// The protocol of IPv4 that has the place of one of IPv6.
pub(crate) fn protocol4(protocol: u8) -> u8 {
    if protocol == ICMPV6 { ICMP } else { protocol }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_wire::tcp::flags::SYN;

    fn ends() -> (SocketAddrV6, SocketAddrV6) {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        (end6(address("2001:db8::5"), 4000), end6(address("64:ff9b::c000:201"), 53))
    }

    #[test]
    fn what_is_built_is_right_and_reads_back() {
        let (from, to) = ends();
        let syn = Segment { flags: SYN, sequence: 7, ..Segment::default() };
        for packet in [
            Packet6::udp(from, to, b"odd"),
            Packet6::tcp(from, to, syn),
            Packet6::query(128, *from.ip(), *to.ip(), 4000, b"ping"),
        ] {
            let packet = packet.extension(next::DESTINATION, &[0, 0, 1, 4, 0, 0, 0, 0]);
            let received = Received6::new(Duration::ZERO, &packet.bytes()).unwrap();
            assert!(received.valid(), "{}", describe6(&received.bytes));
            assert_eq!(received.source(), from);
            let mut broken = received.bytes.clone();
            *broken.last_mut().unwrap() ^= 1;
            assert!(!Received6::new(Duration::ZERO, &broken).unwrap().valid());
        }
    }

    #[test]
    fn fragments_make_up_the_packet() {
        let (from, to) = ends();
        let whole = Packet6::udp(from, to, &[7; 100]);
        let parts = whole.fragments(48, 9);
        let read = |part: &Packet6| Received6::new(Duration::ZERO, &part.bytes()).unwrap();
        let received: Vec<Received6> = parts.iter().map(read).collect();
        let joined: Vec<u8> = received.iter().flat_map(|part| part.transport().to_vec()).collect();
        assert_eq!(joined, whole.payload);
        let fields = received.iter().filter_map(Received6::fragment);
        let fields: Vec<_> = fields.map(|one| (one.offset, one.more)).collect();
        assert_eq!(fields, [(0, true), (48, true), (96, false)]);
        assert_eq!(
            describe6(&received[2].bytes),
            "protocol 17 2001:db8::5 > 64:ff9b::c000:201, fragment at byte 96, the last, 60 bytes"
        );
    }
}
