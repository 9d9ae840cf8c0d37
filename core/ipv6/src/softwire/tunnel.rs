//! The outer header of a tunnel: IPv4 in IPv6, RFC 2473.
//!
//! The header is written into the bytes before the packet. The type of service is the traffic class
//! (RFC 2983), and congestion marks of the way through the tunnel come out of it (RFC 6040).

use super::bindings::Tunnel;
use natgate_engine::{DropReason, Packet};
use natgate_wire::{Delta, Ipv4, ipv6, protocol, tcp};

/// Next header of IPv4 in IPv6.
pub(crate) const IPV4: u8 = 4;
/// Hop limit of outer headers (RFC 2473 section 6.3).
pub(crate) const HOP_LIMIT: u8 = 64;
/// Bits of explicit congestion notification.
const ECN: u8 = 0b11;
const CONGESTION: u8 = 0b11;
/// Offsets in the IPv4 header: type of service with its word, TTL with its word.
const SERVICE: usize = 0;
const TTL: usize = 8;

/// Writes the outer header before a packet.
///
/// # Panics
/// When there are fewer than 40 bytes before the packet.
#[inline]
pub(crate) fn encapsulate(packet: &mut Packet<'_>, tunnel: Tunnel, traffic_class: u8) {
    let len = packet.len();
    packet.set_start(packet.start() - ipv6::HEADER_LEN);
    let header = &mut packet.bytes_mut()[..ipv6::HEADER_LEN];
    let first = 6 << 28 | u32::from(traffic_class) << 20;
    header[..4].copy_from_slice(&first.to_be_bytes());
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    header[6] = IPV4;
    header[7] = HOP_LIMIT;
    header[8..24].copy_from_slice(&tunnel.br.to_be_bytes());
    header[24..40].copy_from_slice(&tunnel.customer.to_be_bytes());
}

/// The type of service of a packet that leaves a tunnel, RFC 6040 section 4.2.
///
/// # Errors
/// The outer header says that the path is congested, and the sender of the packet would not learn
/// it.
#[inline]
pub(crate) fn service_behind(inner: u8, outer: u8) -> Result<u8, DropReason> {
    let (own, mark) = (inner & ECN, outer & ECN);
    match (own, mark) {
        (0, CONGESTION) => Err(DropReason::EcnCongestion),
        (0, _) => Ok(inner),
        (_, CONGESTION) => Ok(inner | CONGESTION),
        (0b10, 0b01) => Ok(inner & !ECN | 0b01),
        _ => Ok(inner),
    }
}

/// Changes the TTL and the type of service of an IPv4 packet.
#[inline]
pub(crate) fn set_hop(bytes: &mut [u8], ttl: u8, service: u8) {
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let old = (word(bytes, SERVICE), word(bytes, TTL));
    bytes[SERVICE + 1] = service;
    bytes[TTL] = ttl;
    let new = (word(bytes, SERVICE), word(bytes, TTL));
    let delta = Delta::NONE.replace_u16(old.0, new.0).replace_u16(old.1, new.1);
    if let Ok(mut header) = Ipv4::new_header_checked(bytes) {
        header.update_checksum(delta);
    }
}

/// Lowers the maximum segment size that a SYN announces.
pub(crate) fn lower_mss(bytes: &mut [u8], limit: u16) {
    let Ok(header) = Ipv4::new_checked(&*bytes) else { return };
    if header.protocol() != protocol::TCP || header.fragment_offset() != 0 {
        return;
    }
    let at = header.header_len();
    let Some(segment) = natgate_wire::Tcp::new_prefix_checked(header.payload()) else { return };
    let (is_syn, checksum) = (segment.flags() & tcp::flags::SYN != 0, segment.checksum());
    let Some((option, size)) = segment.max_segment_size().filter(|_| is_syn) else { return };
    if size <= limit {
        return;
    }
    let odd = option % 2 == 1;
    bytes[at + option..][..2].copy_from_slice(&limit.to_be_bytes());
    // A value at an odd offset lies across two words, so its bytes change places.
    let swap = |value: u16| if odd { value.swap_bytes() } else { value };
    let new = Delta::NONE.replace_u16(swap(size), swap(limit)).apply(checksum);
    bytes[at + tcp::CHECKSUM..][..2].copy_from_slice(&new.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use natgate_wire::checksum::checksum;

    //= test rfc7596#section-6.2-class
    #[test]
    fn congestion_comes_out_of_a_tunnel() {
        for inner in 0..4_u8 {
            for outer in 0..4_u8 {
                let class = 0xb8;
                let expected = match (inner, outer) {
                    (0, 3) => Err(DropReason::EcnCongestion),
                    (0, _) => Ok(class),
                    (_, 3) | (3, _) => Ok(class | 3),
                    (2, 1) => Ok(class | 1),
                    (inner, _) => Ok(class | inner),
                };
                assert_eq!(service_behind(class | inner, 0x20 | outer), expected);
            }
        }
    }

    #[test]
    fn an_outer_header_stands_before_the_packet() {
        let mut buffer = vec![0; 48 + 20];
        let mut packet = Packet::new(&mut buffer, 48);
        let mut header = Ipv4::init(packet.bytes_mut(), 20);
        header.set_total_len(20);
        header.set_ttl(9);
        header.fill_checksum();
        set_hop(packet.bytes_mut(), 8, 0xb9);
        assert_eq!(checksum(packet.bytes()), 0);
        encapsulate(&mut packet, Tunnel { br: 7, customer: 9 }, 0xb9);
        let outer = natgate_wire::Ipv6::new_checked(packet.bytes()).expect("a packet");
        assert_eq!((outer.source(), outer.destination()), (7, 9));
        assert_eq!((outer.traffic_class(), outer.hop_limit(), outer.next_header()), (0xb9, 64, 4));
        let inner = Ipv4::new_checked(outer.payload()).expect("a packet");
        assert_eq!((inner.ttl(), inner.service()), (8, 0xb9));
    }

    #[test]
    fn a_segment_size_is_lowered_wherever_its_option_is() {
        for padding in 0..3 {
            let len = 28;
            let mut bytes = vec![0; 20 + len];
            let mut header = Ipv4::init(&mut bytes[..], 20);
            header.set_total_len(20 + len as u16);
            header.set_protocol(protocol::TCP);
            let segment = &mut bytes[20..];
            (segment[12], segment[13]) = (7 << 4, tcp::flags::SYN);
            segment[20..20 + padding].fill(1);
            segment[20 + padding..][..4].copy_from_slice(&[2, 4, 5, 0xb4]);
            let sum = checksum(segment);
            segment[16..18].copy_from_slice(&sum.to_be_bytes());
            lower_mss(&mut bytes, 1500);
            assert_eq!(bytes[20 + 20 + padding..][..4], [2, 4, 5, 0xb4]);
            lower_mss(&mut bytes, 1420);
            assert_eq!(bytes[20 + 20 + padding..][..4], [2, 4, 5, 0x8c]);
            assert_eq!(checksum(&bytes[20..]), 0, "padding of {padding}");
        }
    }
}
