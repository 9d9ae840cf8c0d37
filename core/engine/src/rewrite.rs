//! The last stage: puts new endpoints into a packet, and updates every checksum over them by the
//! change (RFC 1624). A wrong checksum stays wrong by the same amount.

use crate::endpoint::AddressPort;
use crate::parse::{Embedded, Headers, Kind, checksum_offset};
use natgate_wire::checksum::{fold, sum};
use natgate_wire::{Delta, Ipv4, Tcp, protocol};

/// New endpoints for a packet. `None`: the endpoint stays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rewrite {
    pub(crate) source: Option<AddressPort>,
    pub(crate) destination: Option<AddressPort>,
}

//= rfc4787#REQ-10
//= rfc5382#REQ-6
//= rfc5597#REQ-6
//= rfc5597#REQ-12
//= rfc5597#REQ-13
/// Decrements the TTL and writes the new endpoints.
pub(crate) fn apply(bytes: &mut [u8], headers: &Headers, rewrite: Rewrite) {
    let addresses = apply_addresses(bytes, headers, rewrite);
    let transport = &mut bytes[usize::from(headers.header_len)..];
    match headers.kind {
        Kind::Tcp | Kind::Udp | Kind::Dccp => {
            let mut delta = addresses;
            if let Some(AddressPort { port, .. }) = rewrite.source {
                delta = replace_u16(transport, 0, port, delta);
            }
            if let Some(AddressPort { port, .. }) = rewrite.destination {
                delta = replace_u16(transport, 2, port, delta);
            }
            let _ = update_checksum(transport, headers.protocol, delta);
        }
        Kind::IcmpQuery { .. } => {
            // The identifier of a hairpinned query is translated twice. The second translation
            // counts.
            if let Some(AddressPort { port: identifier, .. }) =
                rewrite.destination.or(rewrite.source)
            {
                let delta = replace_u16(transport, 4, identifier, Delta::NONE);
                let _ = update_u16(transport, 2, delta);
                if transport.iter().all(|&byte| byte == 0) {
                    // RFC 1624 has one exception: the checksum of zeros only is not zero.
                    transport[2..4].fill(0xff);
                }
            }
        }
        Kind::Portless => {
            let _ = update_checksum(transport, headers.protocol, addresses);
        }
        Kind::IcmpError | Kind::IcmpOther | Kind::LaterFragment => {}
    }
}

/// Decrements the TTL of a packet that is forwarded untranslated. Nothing after the IP header
/// changes.
pub(crate) fn apply_transit(bytes: &mut [u8], headers: &Headers) {
    let _ = apply_addresses(bytes, headers, Rewrite::default());
}

/// Does the part of [`apply`] in the IP header. Returns the change of the addresses.
fn apply_addresses(bytes: &mut [u8], headers: &Headers, rewrite: Rewrite) -> Delta {
    let mut packet = Ipv4::new_checked(bytes).expect("a parsed packet stays one");
    let mut delta = Delta::NONE;
    if let Some(AddressPort { address, .. }) = rewrite.source {
        delta = delta.replace_u32(headers.source.address, address);
        packet.set_source(address);
    }
    if let Some(AddressPort { address, .. }) = rewrite.destination {
        delta = delta.replace_u32(headers.destination.address, address);
        packet.set_destination(address);
    }
    //= rfc1812#section-5.3.1-decrement
    let ttl = headers.ttl.saturating_sub(1);
    packet.set_ttl(ttl);
    let protocol = u16::from(headers.protocol);
    let (old, new) = (u16::from(headers.ttl) << 8 | protocol, u16::from(ttl) << 8 | protocol);
    //= rfc1812#section-4.2.2.5-incremental
    //= rfc1812#section-5.2.5
    //= rfc1812#section-5.3.3.3-unchanged
    //= rfc6864#section-4.3-clear
    packet.update_checksum(delta.replace_u16(old, new));
    delta
}

/// Lowers the maximum segment size of a SYN to `limit`. A SYN without the option, or with a lower
/// value, does not change (RFC 9293 section 3.7.1).
pub(crate) fn lower_mss(segment: &mut [u8], limit: u16) {
    let header = Tcp::new_prefix_checked(&*segment).and_then(|header| header.max_segment_size());
    let Some((at, _)) = header.filter(|&(_, announced)| announced > limit) else { return };
    // A checksum adds 16-bit words, so a value at an odd place changes two of them.
    let start = at & !1;
    let end = (at + 3) & !1;
    if end > segment.len() {
        return;
    }
    let words = |segment: &[u8]| sum(&segment[start..end], 0);
    let old = words(segment);
    segment[at..at + 2].copy_from_slice(&limit.to_be_bytes());
    let delta = Delta::NONE.replace_u16(fold(old), fold(words(segment)));
    let _ = update_checksum(segment, protocol::TCP, delta);
}

/// Writes new endpoints into the packet that an ICMP error embeds, and updates the ICMP checksum.
pub(crate) fn apply_embedded(message: &mut [u8], embedded: &Embedded, rewrite: Rewrite) {
    //= rfc5508#REQ-4a
    //= rfc5508#REQ-5a
    //= rfc4884#section-6-original
    let header = &mut message[embedded.at..embedded.transport];
    let mut addresses = Delta::NONE;
    if let Some(AddressPort { address, .. }) = rewrite.source {
        addresses = replace_u32(header, 12, address, addresses);
    }
    if let Some(AddressPort { address, .. }) = rewrite.destination {
        addresses = replace_u32(header, 16, address, addresses);
    }
    let mut outer = addresses.and(update_u16(header, 10, addresses));
    let transport = &mut message[embedded.transport..embedded.end];
    let mut ports = Delta::NONE;
    let covered = match embedded.protocol {
        protocol::ICMP => {
            if let Some(AddressPort { port: identifier, .. }) =
                rewrite.source.or(rewrite.destination)
            {
                ports = replace_u16(transport, 4, identifier, ports);
            }
            outer = outer.and(ports).and(update_u16(transport, 2, ports));
            None
        }
        protocol::TCP | protocol::UDP | protocol::DCCP => {
            if let Some(AddressPort { port, .. }) = rewrite.source {
                ports = replace_u16(transport, 0, port, ports);
            }
            if let Some(AddressPort { port, .. }) = rewrite.destination {
                ports = replace_u16(transport, 2, port, ports);
            }
            outer = outer.and(ports);
            Some(addresses.and(ports))
        }
        _ => Some(addresses),
    };
    if let Some(delta) = covered {
        outer = outer.and(update_checksum(transport, embedded.protocol, delta));
    }
    //= rfc5508#REQ-4b
    //= rfc5508#REQ-5b
    //= rfc5508#section-7.1.2
    //= rfc4884#section-6-length
    let _ = update_u16(message, 2, outer);
}

//= rfc5597#REQ-11
/// Updates a transport checksum, if the packet has one. Returns the change of a checksum over this
/// field. UDP's zero (no checksum) stays, and checksums of UDP and UDP-Lite never become zero.
fn update_checksum(transport: &mut [u8], protocol: u8, delta: Delta) -> Delta {
    let Some(at) = checksum_offset(protocol).filter(|at| at + 2 <= transport.len()) else {
        return Delta::NONE;
    };
    let old = get_u16(transport, at);
    let new = match (protocol, old, delta.apply(old)) {
        (protocol::UDP, 0, _) => 0,
        (protocol::UDP | protocol::UDP_LITE, _, 0) => 0xffff,
        (_, _, new) => new,
    };
    replace_u16(transport, at, new, Delta::NONE)
}

/// Updates a checksum field. Returns the change of the field itself.
fn update_u16(bytes: &mut [u8], at: usize, delta: Delta) -> Delta {
    let new = delta.apply(get_u16(bytes, at));
    replace_u16(bytes, at, new, Delta::NONE)
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a field at an even offset. Returns the delta with the replacement added.
fn replace_u16(bytes: &mut [u8], at: usize, new: u16, delta: Delta) -> Delta {
    let delta = delta.replace_u16(get_u16(bytes, at), new);
    bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    delta
}

fn replace_u32(bytes: &mut [u8], at: usize, new: u32, delta: Delta) -> Delta {
    let delta = replace_u16(bytes, at, (new >> 16) as u16, delta);
    replace_u16(bytes, at + 2, new as u16, delta)
}
