//! ARP for IPv4 over Ethernet (RFC 826), and Ethernet hardware addresses.
//!
//! [`Arp`] reads the 28 bytes after an Ethernet header, [`Repr`] writes them. Other hardware or
//! protocol types are not supported, because nothing here translates them. The router decides which
//! messages to believe and to answer.

use crate::link::{ETHERNET_LEN, ethertype};
use crate::{get_u16, get_u32, put_u16, put_u32};
use core::fmt;
use core::net::Ipv4Addr;

/// Length of an ARP message for IPv4 over Ethernet, bytes.
pub const LEN: usize = 28;

/// Length of an Ethernet frame with an ARP message, bytes. Devices pad shorter frames to their
/// least length.
pub const FRAME_LEN: usize = ETHERNET_LEN + LEN;

/// An Ethernet hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True if the address names one station: it is not a group and not all zeros.
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::default()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Destination, source and EtherType of an untagged Ethernet frame. `None`: the frame is shorter
/// than its header.
pub fn read_ethernet(frame: &[u8]) -> Option<(Mac, Mac, u16)> {
    let (header, _) = frame.split_first_chunk::<ETHERNET_LEN>()?;
    Some((mac_at(header, 0), mac_at(header, 6), get_u16(header, 12)))
}

/// Writes an Ethernet header without tags.
pub fn write_ethernet(
    header: &mut [u8; ETHERNET_LEN],
    destination: Mac,
    source: Mac,
    ethertype: u16,
) {
    header[..6].copy_from_slice(&destination.0);
    header[6..12].copy_from_slice(&source.0);
    put_u16(header, 12, ethertype);
}

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The sender asks for the hardware address of the target address.
    Request,
    /// The sender has the sender address.
    Reply,
}

const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// A view of an ARP message for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<T>(T);

impl<T: AsRef<[u8]>> Arp<T> {
    /// Wraps the bytes after the Ethernet header; more may follow the message. `None`: the bytes
    /// are too few, or the message is not a request or reply about IPv4 over Ethernet.
    pub fn new_checked(bytes: T) -> Option<Self> {
        const ETHERNET: u16 = 1;
        let data = bytes.as_ref();
        let readable = data.len() >= LEN
            && get_u16(data, 0) == ETHERNET
            && get_u16(data, 2) == ethertype::IPV4
            && data[4..6] == [6, 4]
            && matches!(get_u16(data, 6), REQUEST | REPLY);
        readable.then_some(Self(bytes))
    }

    /// The message as a value.
    pub fn repr(&self) -> Repr {
        let data = self.0.as_ref();
        Repr {
            operation: match get_u16(data, 6) {
                REQUEST => Operation::Request,
                _ => Operation::Reply,
            },
            sender_mac: mac_at(data, 8),
            sender: Ipv4Addr::from_bits(get_u32(data, 14)),
            target_mac: mac_at(data, 18),
            target: Ipv4Addr::from_bits(get_u32(data, 24)),
        }
    }
}

/// An ARP message for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Purpose of the message.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: Mac,
    /// The sender's address; 0.0.0.0 in a probe (RFC 5227 section 2.1.1).
    pub sender: Ipv4Addr,
    /// The target's hardware address; meaningless in a request.
    pub target_mac: Mac,
    /// The target's address.
    pub target: Ipv4Addr,
}

impl Repr {
    /// Writes an Ethernet frame that carries the message from its sender to `destination`.
    pub fn frame(&self, destination: Mac) -> [u8; FRAME_LEN] {
        let mut frame = [0; FRAME_LEN];
        let (header, message) = frame.split_at_mut(ETHERNET_LEN);
        if let Ok(header) = header.try_into() {
            write_ethernet(header, destination, self.sender_mac, ethertype::ARP);
        }
        self.emit(message);
        frame
    }

    /// Writes the message to the front of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is shorter than [`LEN`].
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&[0, 1, 0x08, 0, 6, 4, 0, 0]);
        let operation = match self.operation {
            Operation::Request => REQUEST,
            Operation::Reply => REPLY,
        };
        put_u16(bytes, 6, operation);
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        put_u32(bytes, 14, self.sender.to_bits());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        put_u32(bytes, 24, self.target.to_bits());
    }
}

/// Reads a hardware address.
fn mac_at(bytes: &[u8], at: usize) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes[at..at + 6]);
    Mac(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST_BYTES: [u8; LEN] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 5, 10, 0, 0, 5, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1];

    const REQUEST_REPR: Repr = Repr {
        operation: Operation::Request,
        sender_mac: Mac([2, 0, 0, 0, 0, 5]),
        sender: Ipv4Addr::new(10, 0, 0, 5),
        target_mac: Mac([0; 6]),
        target: Ipv4Addr::new(10, 0, 0, 1),
    };

    #[test]
    fn reads_what_rfc_826_lays_out() {
        assert_eq!(Arp::new_checked(&REQUEST_BYTES).expect("readable").repr(), REQUEST_REPR);
    }

    #[test]
    fn writes_what_it_reads() {
        let mut bytes = [0xaa; LEN];
        REQUEST_REPR.emit(&mut bytes);
        assert_eq!(bytes, REQUEST_BYTES);
        let reply = Repr { operation: Operation::Reply, ..REQUEST_REPR };
        reply.emit(&mut bytes);
        assert_eq!(Arp::new_checked(bytes).expect("readable").repr(), reply);
    }

    #[test]
    fn refuses_every_truncation_and_other_kinds() {
        for len in 0..LEN {
            assert!(Arp::new_checked(&REQUEST_BYTES[..len]).is_none(), "{len} bytes");
        }
        // Hardware type, protocol type, both lengths, operation.
        for at in [0, 1, 2, 3, 4, 5, 6, 7] {
            let mut bytes = REQUEST_BYTES;
            bytes[at] ^= 0x80;
            assert!(Arp::new_checked(bytes).is_none(), "byte {at}");
        }
    }

    #[test]
    fn frames_carry_the_message() {
        let frame = REQUEST_REPR.frame(Mac::BROADCAST);
        let expected = (Mac::BROADCAST, REQUEST_REPR.sender_mac, ethertype::ARP);
        assert_eq!(read_ethernet(&frame), Some(expected));
        assert_eq!(frame[ETHERNET_LEN..], REQUEST_BYTES);
        assert_eq!(read_ethernet(&frame[..ETHERNET_LEN - 1]), None);
    }

    #[test]
    fn stations_are_neither_groups_nor_nobody() {
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_station());
        assert!(!Mac::BROADCAST.is_station());
        assert!(!Mac([1, 0, 0x5e, 0, 0, 1]).is_station());
        assert!(!Mac::default().is_station());
    }
}
