//! Requests as they come in packets, and packets with answers.

use natgate_pcp::{LONGEST, SERVER_PORT};
use natgate_wire::{Ipv4, Udp, checksum, protocol};
use std::net::Ipv4Addr;

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Bytes of a request that are kept: enough to see that a request is too long.
const KEPT: usize = LONGEST + 4;
const DONT_FRAGMENT: u16 = 0x4000;
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

/// A request, and the address for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// Realm that the request came from.
    pub(crate) realm: u16,
    /// Endpoint of the sender.
    pub(crate) client: (Ipv4Addr, u16),
    /// Address of the gateway that was asked.
    pub(crate) asked: Ipv4Addr,
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
        let is_whole = !ip.more_fragments() && ip.fragment_offset() == 0;
        if !to_us || !is_whole || ip.protocol() != protocol::UDP {
            return None;
        }
        let udp = Udp::new_checked(ip.payload())?;
        if udp.destination_port() != SERVER_PORT || udp.source_port() == 0 {
            return None;
        }
        let datagram = ip.payload().get(..usize::from(udp.length()))?;
        let is_intact = udp.checksum() == 0 || sum((source, destination), datagram) == 0;
        let payload = datagram.get(8..).filter(|_| is_intact)?;
        let len = payload.len().min(KEPT);
        let mut bytes = [0; KEPT];
        bytes[..len].copy_from_slice(&payload[..len]);
        let client = (Ipv4Addr::from_bits(source), udp.source_port());
        let asked = Ipv4Addr::from_bits(destination);
        Some(Self {
            realm,
            client,
            asked,
            is_here: false,
            class: RequestClass::default(),
            len,
            bytes,
        })
    }

    /// Bytes of the request.
    pub(crate) fn request(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Writes the packet of the request to the front of a buffer, for another worker; returns its
    /// length.
    pub(crate) fn packet(&self, into: &mut [u8]) -> usize {
        let (client, port) = self.client;
        let len = write(((client, port), (self.asked, SERVER_PORT)), TTL, self.request(), into);
        // Bytes do not change between workers, so the checksum is left out.
        into[26..28].fill(0);
        len
    }

    /// Writes the packet with an answer to the front of a buffer; returns its length.
    pub(crate) fn reply(&self, answer: &[u8], into: &mut [u8]) -> usize {
        write(((self.asked, SERVER_PORT), self.client), TTL, answer, into)
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
    datagram[..2].copy_from_slice(&from_port.to_be_bytes());
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    datagram[6..8].fill(0);
    datagram[8..].copy_from_slice(payload);
    let sum = match sum((source, destination), datagram) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    len
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
        assert_eq!((datagram.realm, datagram.client, datagram.asked), (3, CLIENT, OWN));
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
        let len = datagram.packet(&mut handed);
        let again = Datagram::read(3, &handed[..len], Some(OWN)).unwrap();
        assert_eq!((again.client, again.request()), (CLIENT, datagram.request()));
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
