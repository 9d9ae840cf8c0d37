//! Steering: the division of packets among workers that share a link.
//!
//! A group of devices, one for each worker, serves one link. A [`Steering`] tells a back end which
//! worker owns a packet; a back end that supports it delivers the packet there. That is an
//! optimisation: a worker hands packets of other workers over. So a back end without steering, or
//! with a part of it, is slower and no less right. A frame that is neither IPv4 nor IPv6, such as
//! ARP, goes to worker 0.
//!
//! [`Steering::worker`] is the definition; the filter for packet sockets agrees with it.

mod filter;

use natgate_wire::ipv6;
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN, ethertype};
use natgate_wire::protocol::{DCCP, ICMP, SCTP, TCP, UDP};
use std::net::Ipv4Addr;

pub(crate) use filter::assemble;

/// Most stretches of addresses in a filter of the kernel. Addresses of further stretches go to
/// worker 0 there.
pub const MOST_STRETCHES: usize = 400;

/// Rule that gives the worker of a packet on one side of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The end of the packet that counts.
    pub by: By,
    /// First bits of an IPv6 address that count: of the source inside, of the destination outside.
    /// Packets of one such prefix belong to one worker.
    pub prefix_len: u8,
    /// IPv6 packets of which other bits count; only with [`By::Source`].
    pub exception: Option<Exception>,
}

/// IPv6 packets to one address, of whose sources other bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Destination of the packets.
    pub destination: u128,
    /// First bits of the source that count.
    pub prefix_len: u8,
}

/// The end of a packet by which it is steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The inside: packets belong to the worker of their source address, see [`worker_of_source`].
    Source,
    /// The outside: packets belong to the worker of their destination address, or of a slice of its
    /// ports. The first stretch that contains an address counts; other addresses belong to worker
    /// 0.
    Destination(Vec<Stretch>),
}

/// Consecutive external addresses that are divided in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address.
    pub last: Ipv4Addr,
    /// Method of the division.
    pub share: Share,
}

/// Method by which external addresses are divided among workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Each address belongs to one worker, by its index among all addresses. `place` is the index
    /// of the stretch's first address; the others follow.
    Whole {
        /// Index of the first address.
        place: u32,
    },
    /// The ports of each address are cut into slices, one for each worker in order. The last worker
    /// has the remainder; packets without one of these ports belong to worker 0. For ICMP queries
    /// the identifier counts, for ICMP errors the source port of the quoted packet. Of a datagram
    /// in fragments only the first has ports; the others belong to worker 0.
    Slices {
        /// First port of worker 0.
        first: u16,
        /// Ports of each slice; not zero.
        len: u16,
    },
}

/// Worker, of `count`, that owns packets from this inside address.
pub fn worker_of_source(source: Ipv4Addr, count: usize) -> usize {
    (source.to_bits().wrapping_mul(SCATTER) >> SCATTER_SHIFT) as usize % count
}

/// Fibonacci hashing: neighbouring addresses go to different workers.
const SCATTER: u32 = 0x9e37_79b1;
const SCATTER_SHIFT: u32 = 24;

impl Share {
    /// Slices of equal length of these ports, for `count` workers.
    ///
    /// # Panics
    /// If there are no ports or no workers.
    pub fn slices(first: u16, last: u16, count: usize) -> Self {
        assert!(first <= last && count > 0);
        let len = (usize::from(last - first) + 1) / count;
        Self::Slices { first, len: len.clamp(1, usize::from(u16::MAX)) as u16 }
    }

    /// Worker, of `count`, that owns a port of the address at `offset` from the stretch's first
    /// address. `None` stands for packets without a port.
    pub fn worker(self, offset: u32, port: Option<u16>, count: usize) -> usize {
        match self {
            Self::Whole { place } => place.wrapping_add(offset) as usize % count,
            Self::Slices { first, len } => {
                let place = port.and_then(|port| port.checked_sub(first));
                place.map_or(0, |place| usize::from(place / len.max(1)).min(count - 1))
            }
        }
    }
}

impl Steering {
    /// Worker, of `count`, that owns a packet; the packet begins with its IPv4 header. A packet
    /// that is cut off, or has no owner, belongs to worker 0.
    ///
    /// # Panics
    /// If there are no workers.
    pub fn worker(&self, packet: &[u8], count: usize) -> usize {
        assert!(count > 0);
        let worker = match &self.by {
            By::Source => {
                address(packet, SOURCE).map(|source| worker_of_source(source.into(), count))
            }
            By::Destination(stretches) => address(packet, DESTINATION).and_then(|address| {
                let (offset, share) = find(stretches, address)?;
                Some(share.worker(offset, port(packet), count))
            }),
        };
        worker.unwrap_or(0)
    }

    /// As [`Self::worker`], for an IPv6 packet.
    pub fn worker_ipv6(&self, packet: &[u8], count: usize) -> usize {
        let mut prefix = 0;
        let mut prefix_len = self.prefix_len;
        if let Some(exception) = self.exception {
            let bytes = packet.get(DESTINATION_IPV6..).and_then(|bytes| bytes.first_chunk());
            match bytes.copied().map(u128::from_be_bytes) {
                Some(destination) if destination == exception.destination => {
                    prefix_len = exception.prefix_len;
                }
                Some(_) => {}
                None => return 0,
            }
        }
        for (place, mask) in masks(prefix_len).into_iter().enumerate() {
            let word = match mask {
                0 => 0,
                mask => match address(packet, self.at_ipv6() + 4 * place) {
                    Some(word) => word & mask,
                    None => return 0,
                },
            };
            prefix = prefix << 32 | u128::from(word);
        }
        ipv6::bucket(prefix) % count
    }

    /// Offset of the IPv6 address that counts.
    fn at_ipv6(&self) -> usize {
        match self.by {
            By::Source => SOURCE_IPV6,
            By::Destination(_) => DESTINATION_IPV6,
        }
    }

    /// Like [`Self::worker`], for an Ethernet frame, perhaps with a VLAN tag.
    pub fn worker_of_frame(&self, frame: &[u8], count: usize) -> usize {
        let kind = |at: usize| short(frame, at - 2);
        let (kind, packet) = match kind(ETHERNET_LEN) {
            Some(ethertype::VLAN) => (kind(ETHERNET_LEN + VLAN_LEN), ETHERNET_LEN + VLAN_LEN),
            kind => (kind, ETHERNET_LEN),
        };
        let packet = frame.get(packet..).unwrap_or_default();
        match kind {
            Some(ethertype::IPV4) => self.worker(packet, count),
            Some(ethertype::IPV6) => self.worker_ipv6(packet, count),
            _ => 0,
        }
    }
}

/// Offsets of fields of an IPv4 header.
const FRAGMENT: usize = 6;
const PROTOCOL: usize = 9;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
/// Offsets of the addresses in an IPv6 header.
const SOURCE_IPV6: usize = 8;
const DESTINATION_IPV6: usize = 24;
/// Bits of the fragment field that are zero in whole datagrams and first fragments.
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// Offsets of the ports in a transport header, and of the identifier in an ICMP query.
const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 2;
const IDENTIFIER: usize = 4;
/// Length of an ICMP error's header, before the quoted packet.
const ICMP_LEN: usize = 8;
/// Protocols with ports; all have them in the same place.
const WITH_PORTS: [u8; 4] = [TCP, UDP, DCCP, SCTP];
/// ICMP messages with an identifier: echo, timestamp, information, and the answers.
const QUERIES: [u8; 6] = [0, 8, 13, 14, 15, 16];
/// ICMP messages that quote a packet.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// Offset of an address in its stretch, and the division there.
fn find(stretches: &[Stretch], address: u32) -> Option<(u32, Share)> {
    let within = |one: &&Stretch| (one.first.to_bits()..=one.last.to_bits()).contains(&address);
    let stretch = stretches.iter().find(within)?;
    Some((address - stretch.first.to_bits(), stretch.share))
}

/// External port of a packet that comes in on the outside.
fn port(packet: &[u8]) -> Option<u16> {
    if short(packet, FRAGMENT)? & FRAGMENT_OFFSET != 0 {
        return None;
    }
    let transport = header_len(packet, 0)?;
    match *packet.get(PROTOCOL)? {
        ICMP => {}
        protocol if WITH_PORTS.contains(&protocol) => {
            return short(packet, transport + DESTINATION_PORT);
        }
        _ => return None,
    }
    let kind = *packet.get(transport)?;
    if QUERIES.contains(&kind) {
        return short(packet, transport + IDENTIFIER);
    }
    if !ERRORS.contains(&kind) {
        return None;
    }
    let quoted = transport + ICMP_LEN;
    let protocol = *packet.get(quoted + PROTOCOL)?;
    let transport = quoted + header_len(packet, quoted)?;
    match protocol {
        ICMP => short(packet, transport + IDENTIFIER),
        protocol if WITH_PORTS.contains(&protocol) => short(packet, transport + SOURCE_PORT),
        _ => None,
    }
}

/// The bits of each word of an IPv6 address that are in a prefix.
fn masks(prefix_len: u8) -> [u32; 4] {
    let bits = |place: u32| (u32::from(prefix_len).saturating_sub(32 * place)).min(32);
    [0, 1, 2, 3].map(|place| u32::MAX.checked_shl(32 - bits(place)).unwrap_or(0))
}

fn header_len(packet: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(packet.get(at)? & 0xf) * 4)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn address(packet: &[u8], at: usize) -> Option<u32> {
    packet.get(at..at + 4)?.first_chunk().copied().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests;
