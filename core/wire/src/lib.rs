//! Bytes to headers and back: IPv4, IPv6, TCP, UDP, DCCP, ICMP, ICMPv6, Ethernet with VLAN tags,
//! Linux cooked, ARP, Neighbor Discovery, and the Internet checksum.
//!
//! A view such as [`Ipv4`] wraps a byte slice and names its fields. `new_checked` is the only
//! fallible step; after it no accessor can go out of bounds. A [`Frame`] is the buffer that packets
//! travel in. This crate contains no translation.
//!
//! ```
//! use natgate_wire::{Ipv4, Udp, protocol};
//!
//! let mut packet = Ipv4::init([0; 28], 20);
//! packet.set_total_len(28);
//! packet.set_protocol(protocol::UDP);
//! packet.set_source(0x0a00_0001);
//! packet.fill_checksum();
//! let mut datagram = Udp::new_checked(packet.payload_mut()).expect("the header fits");
//! datagram.set_source_port(5353);
//! assert!(packet.checksum_valid());
//! assert_eq!(packet.payload()[..2], 5353_u16.to_be_bytes());
//! ```

#![no_std]
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod dccp;
mod frame;
pub mod icmp;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
mod lease;
pub mod link;
pub mod nd;
pub mod protocol;
pub mod tcp;
pub mod udp;

pub use checksum::Delta;
pub use dccp::Dccp;
pub use frame::{Frame, REALMS};
pub use icmp::Icmp;
pub use icmpv6::Icmpv6;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use lease::{Lease, Pool, TakenOver};
pub use tcp::Tcp;
pub use udp::Udp;

/// Reads a big-endian 16-bit field.
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a big-endian 32-bit field.
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a big-endian 16-bit field.
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian 32-bit field.
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
