//! Requests as they come in packets, and packets with answers.

use natgate_ipv6::Requester;
use natgate_ipv6::softwire::TunneledRequest;
use natgate_pcp::{LONGEST, SERVER_PORT};
use natgate_wire::{Ipv4, Ipv6, Udp, checksum, ipv6, protocol, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Bytes of the headers of IPv6 and UDP.
const HEADERS_IPV6: usize = ipv6::HEADER_LEN + udp::HEADER_LEN;
/// Bytes of a request that are kept: enough to see that a request is too long.
const KEPT: usize = LONGEST + 4;
const DONT_FRAGMENT: u16 = 0x4000;
/// Next header of an IPv4 packet in a tunnel.
const IPV4_IN_IPV6: u8 = 4;
/// TTL of answers.
const TTL: u8 = 64;

/// Class of an admitted request. Another worker that gets the request keeps it in the same class,
/// so that a forger gains nothing by a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestClass {
    /// True if the sender is known ([`Sender::is_known`](super::Sender)).
    pub(crate) is_known: bool,
    /// The group of senders that takes turns with other groups.
    pub(crate) group: u8,
}

/// The tunnel of DS-Lite that a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTunnel {
    /// The far end: the subscriber.
    pub(crate) b4: Ipv6Addr,
    /// The gateway's end.
    end: Ipv6Addr,
}

/// A request, and the address for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// Realm that the request came from.
    pub(crate) realm: u16,
    /// Endpoint of the sender.
    pub(crate) client: (IpAddr, u16),
    /// Address of the gateway that was asked, of the same family.
    pub(crate) asked: IpAddr,
    /// The tunnel that the request came through.
    pub(crate) tunnel: Option<RequestTunnel>,
    /// True if this worker is known to own the host that the request is about.
    pub(crate) is_here: bool,
    /// Class to which the receiving worker admitted the request.
    pub(crate) class: RequestClass,
    len: usize,
    bytes: [u8; KEPT],
}

impl Datagram {
    /// Reads the request in a packet from a realm, if the packet is a request to address `own`.
    pub(crate) fn read(realm: u16, packet: &[u8], own: Option<Ipv4Addr>) -> Option<Self> {
        let ip = Ipv4::new_checked(packet).ok()?;
        let (source, destination) = (ip.source(), ip.destination());
        //= rfc6886#section-3.3-inside
        let to_us = own.is_some_and(|own| own.to_bits() == destination);
        if !to_us || ip.is_fragment() || ip.protocol() != protocol::UDP {
            return None;
        }
        let (client, asked) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
        Self::read_udp(realm, ip.payload(), (client.into(), asked.into()), |datagram, checksum| {
            checksum == 0 || sum((source, destination), datagram) == 0
        })
    }

    /// Reads the request in an IPv6 packet, if the packet is a request to an own address.
    pub(crate) fn read_ipv6(packet: &[u8], is_own: impl FnOnce(Ipv6Addr) -> bool) -> Option<Self> {
        let ip = Ipv6::new_checked(packet).ok()?;
        let (source, destination) = (ip.source(), ip.destination());
        let asked = Ipv6Addr::from_bits(destination);
        let walk = ip.walk().ok().filter(|_| is_own(asked))?;
        let is_whole = walk.fragment.is_none() && walk.segments_left.is_none();
        if !is_whole || walk.protocol != protocol::UDP {
            return None;
        }
        let bytes = packet.get(walk.transport..ip.total_len())?;
        let ends = (Ipv6Addr::from_bits(source).into(), asked.into());
        Self::read_udp(0, bytes, ends, |datagram, checksum| {
            checksum != 0 && sum_ipv6((source, destination), datagram) == 0
        })
    }

    /// Reads the request that a host behind a tunnel sent. Its realm is that of no link.
    pub(crate) fn read_tunneled(request: &TunneledRequest<'_>) -> Option<Self> {
        let TunneledRequest { b4, end, asked, packet } = *request;
        let datagram = Self::read(0, packet, Some(asked))?;
        Some(Self { tunnel: Some(RequestTunnel { b4, end }), ..datagram })
    }

    /// The host with a number, if the request is about one: `host` as the request names it.
    pub(crate) fn numbered(&self, host: IpAddr) -> Option<Requester> {
        match (host, self.tunnel) {
            (IpAddr::V6(host), None) => Some(Requester::Ipv6(host)),
            // A client in a tunnel speaks for hosts behind it alone.
            (IpAddr::V6(_), Some(_)) => None,
            (IpAddr::V4(inner), Some(tunnel)) => Some(Requester::Tunneled { b4: tunnel.b4, inner }),
            (IpAddr::V4(_), None) => None,
        }
    }

    /// Reads the request in a UDP datagram from `client` to `asked`. `is_intact` gets the datagram
    /// and its checksum.
    fn read_udp(
        realm: u16,
        bytes: &[u8],
        (client, asked): (IpAddr, IpAddr),
        is_intact: impl FnOnce(&[u8], u16) -> bool,
    ) -> Option<Self> {
        let udp = Udp::new_checked(bytes)?;
        if udp.destination_port() != SERVER_PORT || udp.source_port() == 0 {
            return None;
        }
        let datagram = bytes.get(..usize::from(udp.length()))?;
        let payload = datagram.get(8..).filter(|_| is_intact(datagram, udp.checksum()))?;
        let len = payload.len().min(KEPT);
        let mut bytes = [0; KEPT];
        bytes[..len].copy_from_slice(&payload[..len]);
        let (client, class) = ((client, udp.source_port()), RequestClass::default());
        Some(Self { realm, client, asked, tunnel: None, is_here: false, class, len, bytes })
    }

    /// Bytes of the request.
    pub(crate) fn request(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Writes the packet of a request of IPv4 to the front of a buffer, for another worker; returns
    /// its length. `None`: the request is of IPv6, which has one worker, or came through a tunnel,
    /// all of whose hosts have this worker.
    pub(crate) fn packet(&self, into: &mut [u8]) -> Option<usize> {
        if self.tunnel.is_some() {
            return None;
        }
        let ((IpAddr::V4(client), port), IpAddr::V4(asked)) = (self.client, self.asked) else {
            return None;
        };
        let len = write(((client, port), (asked, SERVER_PORT)), TTL, self.request(), into);
        // Bytes do not change between workers, so the checksum is left out.
        into[26..28].fill(0);
        Some(len)
    }

    /// Writes the packet with an answer to the front of a buffer; returns its length.
    pub(crate) fn reply(&self, answer: &[u8], into: &mut [u8]) -> usize {
        let Some(tunnel) = self.tunnel else { return self.reply_directly(answer, into) };
        let inner = &mut into[ipv6::HEADER_LEN..];
        let len = self.reply_directly(answer, inner);
        write_outer(tunnel, len, into);
        ipv6::HEADER_LEN + len
    }

    fn reply_directly(&self, answer: &[u8], into: &mut [u8]) -> usize {
        match (self.asked, self.client) {
            (IpAddr::V4(asked), (IpAddr::V4(client), port)) => {
                write(((asked, SERVER_PORT), (client, port)), TTL, answer, into)
            }
            (IpAddr::V6(asked), (IpAddr::V6(client), port)) => {
                write_ipv6(((asked, SERVER_PORT), (client, port)), TTL, answer, into)
            }
            _ => 0,
        }
    }
}

/// Writes a packet with a UDP datagram between two endpoints to the front of a buffer. Returns its
/// length, 28 bytes more than the payload.
///
/// # Panics
/// If the packet does not fit the buffer or is longer than 65,535 bytes.
pub fn write(
    ((from, from_port), (to, port)): ((Ipv4Addr, u16), (Ipv4Addr, u16)),
    ttl: u8,
    payload: &[u8],
    into: &mut [u8],
) -> usize {
    let len = HEADERS + payload.len();
    let into = &mut into[..len];
    let (source, destination) = (from.to_bits(), to.to_bits());
    let mut ip = Ipv4::init(&mut into[..], 20);
    ip.set_total_len(u16::try_from(len).expect("a packet has no more bytes"));
    ip.set_fragment_field(DONT_FRAGMENT);
    ip.set_ttl(ttl);
    ip.set_protocol(protocol::UDP);
    ip.set_source(source);
    ip.set_destination(destination);
    ip.fill_checksum();
    let datagram = &mut into[20..];
    write_udp((from_port, port), payload, datagram);
    let sum = sum((source, destination), datagram);
    set_checksum(datagram, sum);
    len
}

/// Writes an IPv6 packet with a UDP datagram between two endpoints to the front of a buffer.
/// Returns its length, 48 bytes more than the payload.
///
/// # Panics
/// If the packet does not fit the buffer or its payload is longer than 65,527 bytes.
pub fn write_ipv6(
    ((from, from_port), (to, port)): ((Ipv6Addr, u16), (Ipv6Addr, u16)),
    hop_limit: u8,
    payload: &[u8],
    into: &mut [u8],
) -> usize {
    let len = HEADERS_IPV6 + payload.len();
    let into = &mut into[..len];
    let (source, destination) = (from.to_bits(), to.to_bits());
    let mut ip = Ipv6::init(&mut into[..]);
    let payload_len = u16::try_from(8 + payload.len()).expect("a packet has no more bytes");
    ip.set_payload_len(payload_len);
    ip.set_next_header(protocol::UDP);
    ip.set_hop_limit(hop_limit);
    ip.set_source(source);
    ip.set_destination(destination);
    let datagram = &mut into[ipv6::HEADER_LEN..];
    write_udp((from_port, port), payload, datagram);
    let sum = sum_ipv6((source, destination), datagram);
    set_checksum(datagram, sum);
    len
}

/// Writes the header of a packet with an IPv4 packet of `len` bytes to the far end of a tunnel.
fn write_outer(tunnel: RequestTunnel, len: usize, into: &mut [u8]) {
    let mut header = Ipv6::init(&mut into[..ipv6::HEADER_LEN]);
    header.set_payload_len(len as u16);
    header.set_next_header(IPV4_IN_IPV6);
    header.set_hop_limit(TTL);
    header.set_source(tunnel.end.to_bits());
    header.set_destination(tunnel.b4.to_bits());
}

/// Writes a datagram without a checksum.
fn write_udp((from, to): (u16, u16), payload: &[u8], datagram: &mut [u8]) {
    datagram[..2].copy_from_slice(&from.to_be_bytes());
    datagram[2..4].copy_from_slice(&to.to_be_bytes());
    datagram[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    datagram[6..8].fill(0);
    datagram[8..].copy_from_slice(payload);
}

fn set_checksum(datagram: &mut [u8], sum: u16) {
    let sum = if sum == 0 { 0xffff } else { sum };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// As [`sum`], between addresses of IPv6.
fn sum_ipv6((source, destination): (u128, u128), datagram: &[u8]) -> u16 {
    let len = datagram.len() as u32;
    let start = checksum::pseudo_header_v6(source, destination, protocol::UDP, len);
    !checksum::fold(checksum::sum(datagram, start))
}

/// Checksum of a datagram; zero for a datagram with a correct checksum.
fn sum((source, destination): (u32, u32), datagram: &[u8]) -> u16 {
    let len = datagram.len() as u16;
    let start = checksum::pseudo_header(source, destination, protocol::UDP, len);
    !checksum::fold(checksum::sum(datagram, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 5), 40_000);

    fn request(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 1500];
        let len = write((CLIENT, (OWN, SERVER_PORT)), 64, payload, &mut bytes);
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn a_request_is_read_and_answered() {
        let datagram = Datagram::read(3, &request(b"hello"), Some(OWN)).unwrap();
        let client = (IpAddr::from(CLIENT.0), CLIENT.1);
        assert_eq!((datagram.realm, datagram.client, datagram.asked), (3, client, OWN.into()));
        assert_eq!(datagram.request(), b"hello");
        let mut bytes = [0; 100];
        let len = datagram.reply(b"yes", &mut bytes);
        let ip = Ipv4::new_checked(&bytes[..len]).unwrap();
        assert!(ip.checksum_valid());
        assert_eq!((ip.source(), ip.destination()), (OWN.to_bits(), CLIENT.0.to_bits()));
        assert_eq!(bytes[20..26], [0x14, 0xe7, 0x9c, 0x40, 0, 11]);
        assert_eq!(sum((ip.source(), ip.destination()), &bytes[20..len]), 0);
        // Another worker reads the packet that was handed over.
        let mut handed = [0; 1500];
        let len = datagram.packet(&mut handed).unwrap();
        let again = Datagram::read(3, &handed[..len], Some(OWN)).unwrap();
        assert_eq!((again.client, again.request()), (client, datagram.request()));
    }

    #[test]
    fn a_request_by_ipv6_is_read_and_answered() {
        let [own, client] = ["2001:db8::1", "2001:db8::5"].map(|text| text.parse().unwrap());
        let is_own = |address| address == own;
        let mut packet = [0; 100];
        let ends = ((client, 40_000), (own, SERVER_PORT));
        let len = write_ipv6(ends, 64, b"hello", &mut packet);
        let packet = &packet[..len];
        let datagram = Datagram::read_ipv6(packet, is_own).unwrap();
        let ends = ((IpAddr::from(client), 40_000), IpAddr::from(own));
        assert_eq!((datagram.client, datagram.asked), ends);
        assert_eq!((datagram.request(), datagram.packet(&mut [0; 100])), (&b"hello"[..], None));
        let mut reply = [0; 100];
        let len = datagram.reply(b"yes", &mut reply);
        let ip = Ipv6::new_checked(&reply[..len]).unwrap();
        assert_eq!((ip.source(), ip.destination()), (own.to_bits(), client.to_bits()));
        assert_eq!(reply[40..46], [0x14, 0xe7, 0x9c, 0x40, 0, 11]);
        assert_eq!(sum_ipv6((ip.source(), ip.destination()), ip.payload()), 0);
        let with = |at: usize, value: u8| {
            let mut bytes = packet.to_vec();
            bytes[at] = value;
            Datagram::read_ipv6(&bytes, is_own)
        };
        assert!(with(39, 9).is_none() && with(6, 6).is_none() && with(43, 1).is_none());
        assert!(with(50, 1).is_none() && with(46, 0).is_none() && with(45, 200).is_none());
        // In a fragment, or with a route that is not used up.
        for (next, rest) in [(44, [17, 0, 0, 1, 0, 0, 0, 9]), (43, [17, 0, 0, 1, 0, 0, 0, 0])] {
            let mut bytes = [&packet[..40], &rest, &packet[40..]].concat();
            (bytes[6], bytes[5]) = (next, bytes[5] + 8);
            assert!(Datagram::read_ipv6(&bytes, is_own).is_none(), "{next}");
        }
    }

    //= test rfc6886#section-3.3-inside
    #[test]
    fn what_is_no_request_to_us() {
        let good = request(b"hello");
        let other = Some(Ipv4Addr::new(192, 0, 2, 1));
        assert!(Datagram::read(0, &good, other).is_none(), "to another address of ours");
        assert!(Datagram::read(0, &good, None).is_none());
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Datagram::read(0, &bytes, Some(OWN))
        };
        assert!(with(6, 0x20).is_none(), "a fragment");
        assert!(with(9, 6).is_none(), "TCP");
        assert!(with(23, 1).is_none(), "another port");
        assert!(with(30, 1).is_none(), "damaged on the way");
        assert!(Datagram::read(0, &good[..27], Some(OWN)).is_none());
        let mut long = good.clone();
        long[25] = 200;
        assert!(Datagram::read(0, &long, Some(OWN)).is_none(), "longer than its packet");
        let long = Datagram::read(0, &request(&[7; 1300]), Some(OWN)).unwrap();
        assert_eq!(long.request().len(), 1104, "enough to see that it is too long");
    }
}
