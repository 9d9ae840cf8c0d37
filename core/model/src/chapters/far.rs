//! Replacement of the far endpoint of a packet, for some features (specification, section 13), and
//! of the maximum segment size (4.25).

use crate::bytes::{ends, fill_header_checksum, ip, rewrite, set_address};
use natgate_engine::{Endpoint, Side};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use natgate_wire::{Tcp, tcp::flags};
use std::net::Ipv4Addr;

/// Replaces the far endpoint of a packet that may be incomplete. An identifier belongs to the near
/// endpoint.
pub(crate) fn set_far(bytes: &mut [u8], from: Side, far: Endpoint) {
    let (protocol, header_len) = (ip(bytes).protocol(), ip(bytes).header_len());
    if protocol == ICMP {
        // ICMP's checksum covers no address, and stays the same bit for bit.
        set_address(bytes, from.other(), far.address.to_bits());
        return fill_header_checksum(bytes);
    }
    rewrite(bytes, |bytes| {
        if matches!(protocol, TCP | UDP | DCCP) {
            let at = header_len + if from == Side::Inside { 2 } else { 0 };
            bytes[at..at + 2].copy_from_slice(&far.port.to_be_bytes());
        }
        set_address(bytes, from.other(), far.address.to_bits());
    });
}

/// Replaces the far address of an ICMP error.
pub(crate) fn set_outer_far(bytes: &mut [u8], from: Side, far: Ipv4Addr) {
    rewrite(bytes, |bytes| set_address(bytes, from.other(), far.to_bits()));
}

/// In an ICMP error from a side, replaces the far endpoint of the embedded packet.
pub(crate) fn set_embedded_far(bytes: &mut [u8], from: Side, far: Endpoint) {
    let body = ip(bytes).header_len() + 8;
    rewrite(bytes, |bytes| set_far(&mut bytes[body..], from.other(), far));
}

/// 4.25: lowers the maximum segment size in a segment with SYN.
pub(crate) fn lower_mss(bytes: &mut [u8], limit: u16) {
    let ip = ip(bytes);
    let tcp = if ip.protocol() == TCP { Tcp::new_checked(ip.payload()) } else { None };
    let announced = tcp.filter(|tcp| tcp.flags() & flags::SYN != 0);
    let announced = announced.and_then(|tcp| tcp.max_segment_size());
    if let Some((at, _)) = announced.filter(|(_, size)| *size > limit) {
        let at = ip.header_len() + at;
        rewrite(bytes, |bytes| bytes[at..at + 2].copy_from_slice(&limit.to_be_bytes()));
    }
}

/// In a translated ICMP error from a side, replaces the far endpoint of the embedded packet, and
/// the error's source.
pub(crate) fn set_error_far(bytes: &mut [u8], from: Side, far: Endpoint, source: Option<Ipv4Addr>) {
    let embedded = &bytes[ip(bytes).header_len() + 8..];
    if ends(embedded, from.other()).1 != far {
        set_embedded_far(bytes, from, far);
    }
    if let Some(source) = source.filter(|source| source.to_bits() != ip(bytes).source()) {
        set_outer_far(bytes, from, source);
    }
}
