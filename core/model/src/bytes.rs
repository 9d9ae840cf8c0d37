//! The bytes of a packet in the model: its two endpoints, and the replacement of one of them.
//!
//! The engine updates checksums by differences. The model instead recomputes a checksum over all
//! available bytes, so that the ones' complement sum stays the same. So a right checksum stays
//! right, and a wrong one stays wrong by the same amount. An incomplete packet, as ICMP errors
//! embed it, needs no special rule.

use natgate_engine::{DropReason, Endpoint, Side};
use natgate_wire::ipv4::{Ipv4Error, Options, scan_options};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP, UDP_LITE};
use natgate_wire::{Dccp, Icmp, Ipv4, Tcp, Udp, checksum, icmp};

/// The IPv4 header of checked bytes.
pub(crate) fn ip(bytes: &[u8]) -> Ipv4<&[u8]> {
    Ipv4::new_header_checked(bytes).expect("checked when it came in")
}

/// The ICMP type of an ICMP packet.
pub(crate) fn icmp_kind(bytes: &[u8]) -> Option<u8> {
    let ip = ip(bytes);
    if ip.protocol() == ICMP { Some(Icmp::new_checked(ip.payload())?.kind()) } else { None }
}

/// True if a packet is an ICMP error (3.18).
pub(crate) fn is_icmp_error(bytes: &[u8]) -> bool {
    matches!(icmp_kind(bytes), Some(3 | 4 | 11 | 12))
}

/// True if a packet is an echo request with the right checksum.
pub(crate) fn is_ping(bytes: &[u8]) -> bool {
    icmp_kind(bytes) == Some(icmp::kind::ECHO_REQUEST)
        && Icmp::new_checked(ip(bytes).payload()).is_some_and(|icmp| icmp.checksum_valid())
}

/// Checks every packet (specification, section 2), and cuts off the bytes after its end.
/// `names_host`: the source stands for a host of NAT64, and may equal the destination.
pub(crate) fn check(bytes: &mut Vec<u8>, names_host: bool) -> Result<(), DropReason> {
    let ip = match Ipv4::new_checked(&bytes[..]) {
        Ok(ip) => ip,
        Err(Ipv4Error::Version) => return Err(DropReason::NotIpv4), // 2.1
        Err(Ipv4Error::Length) => return Err(DropReason::BadLength),
    };
    if !ip.checksum_valid() {
        return Err(DropReason::BadHeaderChecksum); // 2.4
    }
    match scan_options(ip.options()) {
        Options::Plain => {}
        Options::SourceRoute => return Err(DropReason::SourceRoute),
        Options::Malformed => return Err(DropReason::BadOptions),
    }
    if is_martian(ip.source()) {
        return Err(DropReason::MartianSource); // 2.6
    }
    if is_martian(ip.destination()) {
        return Err(DropReason::MartianDestination);
    }
    if ip.source() == ip.destination() && !names_host {
        return Err(DropReason::Land);
    }
    assert!(!ip.more_fragments() && ip.fragment_offset() == 0, "the model knows no fragments");
    let payload = ip.payload();
    let whole = match ip.protocol() {
        TCP => Tcp::new_checked(payload).is_some(), // 2.9
        UDP => Udp::new_checked(payload)
            .is_some_and(|udp| (8..=payload.len()).contains(&usize::from(udp.length()))),
        ICMP => payload.len() >= 8,
        DCCP => Dccp::new_checked(payload).is_some(),
        _ => true,
    };
    if !whole {
        return Err(DropReason::BadLength);
    }
    let len = usize::from(ip.total_len());
    bytes.truncate(len);
    Ok(())
}

/// 2.6: addresses that no packet may have.
pub(crate) fn is_martian(address: u32) -> bool {
    matches!(address >> 24, 0 | 127 | 224..=255) || address >> 16 == 169 << 8 | 254
}

/// The endpoints of a packet from a side: the near one, which is translated, and the remote one.
/// The near port of an ICMP query is its identifier, and its remote port is 0 (3.21). Both ports
/// are 0 for protocols without ports (5.15).
pub(crate) fn ends(bytes: &[u8], from: Side) -> (Endpoint, Endpoint) {
    let ip = ip(bytes);
    let word = |at| u16::from_be_bytes([ip.payload()[at], ip.payload()[at + 1]]);
    let (source, destination) = match (ip.protocol(), from) {
        (TCP | UDP | DCCP, _) => (word(0), word(2)),
        (ICMP, Side::Inside) => (word(4), 0),
        (ICMP, Side::Outside) => (0, word(4)),
        _ => (0, 0),
    };
    let source = Endpoint::new(ip.source(), source);
    let destination = Endpoint::new(ip.destination(), destination);
    match from {
        Side::Inside => (source, destination),
        Side::Outside => (destination, source),
    }
}

/// Replaces the near endpoint of a packet.
pub(crate) fn set_near(bytes: &mut [u8], from: Side, near: Endpoint) {
    put_near(bytes, from, near);
    // The right checksum of a message of zeros alone is 0xffff (RFC 1624 section 3).
    let header_len = ip(bytes).header_len();
    if ip(bytes).protocol() == ICMP && ip(bytes).payload().iter().all(|byte| *byte == 0) {
        bytes[header_len + 2..header_len + 4].fill(0xff);
    }
}

/// The checksums 0xffff and 0 are wrong by the same amount. RFC 1624's sum keeps 0xffff if the only
/// change is an identifier of 0xffff to 0. This function does the same for a translated ICMP query,
/// or for a query that an error embeds.
pub(crate) fn keep_full(before: &[u8], after: &mut [u8]) {
    let Ok(ip) = Ipv4::new_header_checked(&*after) else { return };
    if ip.protocol() != ICMP || ip.payload().len() < 8 {
        return;
    }
    let at = ip.header_len();
    let word = |bytes: &[u8], off| u16::from_be_bytes([bytes[at + off], bytes[at + off + 1]]);
    let was_full = word(before, 2) == 0xffff && word(before, 4) == 0xffff;
    match before[at] {
        0 | 8 | 13 | 14 if was_full && word(after, 4) == 0 => after[at + 2..at + 4].fill(0xff),
        3 | 4 | 11 | 12 => keep_full(&before[at + 8..], &mut after[at + 8..]),
        _ => {}
    }
}

/// Replaces the near endpoint of a packet that may be incomplete.
fn put_near(bytes: &mut [u8], from: Side, near: Endpoint) {
    let (protocol, header_len) = (ip(bytes).protocol(), ip(bytes).header_len());
    rewrite(bytes, |bytes| {
        let port_at = match (protocol, from) {
            (TCP | UDP | DCCP, Side::Inside) => Some(header_len),
            (TCP | UDP | DCCP, Side::Outside) => Some(header_len + 2),
            (ICMP, _) => Some(header_len + 4),
            _ => None,
        };
        if let Some(at) = port_at {
            bytes[at..at + 2].copy_from_slice(&near.port.to_be_bytes());
        }
        set_address(bytes, from, near.address.to_bits());
    });
}

/// Replaces the near address alone. The caller updates checksums.
pub(crate) fn set_address(bytes: &mut [u8], from: Side, address: u32) {
    let at = if from == Side::Inside { 12 } else { 16 };
    bytes[at..at + 4].copy_from_slice(&address.to_be_bytes());
}

/// In an ICMP error from a side, replaces the near endpoint of the embedded packet, which went the
/// other way, and the error's own near address (6.7).
pub(crate) fn set_embedded(bytes: &mut [u8], from: Side, near: Endpoint) {
    let body = ip(bytes).header_len() + 8;
    rewrite(bytes, |bytes| {
        put_near(&mut bytes[body..], from.other(), near);
        set_address(bytes, from, near.address.to_bits());
    });
}

/// Decrements the time to live.
pub(crate) fn lower_ttl(bytes: &mut [u8]) {
    bytes[8] -= 1;
    fill_header_checksum(bytes);
}

/// Changes a packet, and makes its checksums right again, or as wrong as before.
pub(crate) fn rewrite(bytes: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let field = checksum_field(bytes);
    let before = covered_sum(bytes);
    change(bytes);
    if let Some(at) = field {
        bytes[at..at + 2].fill(0);
        let value = match (before + 0xffff - covered_sum(bytes)) % 0xffff {
            0 if matches!(ip(bytes).protocol(), UDP | UDP_LITE) => 0xffff, // 0 means none
            value => value,
        };
        bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
    }
    fill_header_checksum(bytes);
}

pub(crate) fn fill_header_checksum(bytes: &mut [u8]) {
    Ipv4::new_header_checked(bytes).expect("checked when it came in").fill_checksum();
}

/// Offset of the transport checksum. `None`: there is none, or it is cut off.
fn checksum_field(bytes: &[u8]) -> Option<usize> {
    let ip = ip(bytes);
    let at = match ip.protocol() {
        TCP => 16,
        UDP | UDP_LITE | DCCP => 6,
        ICMP => 2,
        _ => return None,
    };
    let field = ip.payload().get(at..at + 2)?;
    let absent = ip.protocol() == UDP && field == [0, 0];
    (!absent).then_some(ip.header_len() + at)
}

/// The sum of all bytes that the transport checksum covers, modulo 65535: the payload and, except
/// for ICMP, the addresses. (Protocol and length are covered too, but never change.)
fn covered_sum(bytes: &[u8]) -> u32 {
    let ip = ip(bytes);
    let pseudo = if ip.protocol() == ICMP { &[] } else { &bytes[12..20] };
    u32::from(checksum::fold(checksum::sum(ip.payload(), checksum::sum(pseudo, 0)))) % 0xffff
}

/// Checks the packet that an ICMP error embeds (6.1).
pub(crate) fn check_error(bytes: &[u8]) -> Result<(), DropReason> {
    let ip = ip(bytes);
    let icmp = Icmp::new_checked(ip.payload()).ok_or(DropReason::BadLength)?;
    if !icmp.checksum_valid() {
        return Err(DropReason::IcmpBadChecksum);
    }
    let embedded =
        Ipv4::new_header_checked(icmp.body()).map_err(|_| DropReason::IcmpBadEmbedded)?;
    if !embedded.checksum_valid() {
        return Err(DropReason::IcmpBadChecksum);
    }
    match scan_options(embedded.options()) {
        Options::Plain => {}
        Options::SourceRoute => return Err(DropReason::SourceRoute),
        Options::Malformed => return Err(DropReason::IcmpBadEmbedded),
    }
    if embedded.fragment_offset() > 0 {
        return Err(DropReason::IcmpBadEmbedded);
    }
    let payload = embedded.payload();
    let readable = match embedded.protocol() {
        TCP | UDP | DCCP => payload.len() >= 8,
        ICMP => payload.len() >= 8 && matches!(payload[0], 0 | 8 | 13 | 14),
        _ => true,
    };
    if readable { Ok(()) } else { Err(DropReason::IcmpBadEmbedded) }
}
