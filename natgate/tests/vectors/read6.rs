//! Conversion of IPv6 packets to the vectors' notation. A packet with another extension header than
//! that of a fragment has no notation.

use super::{IcmpFamily, Sums, data, hex, icmp_message, tcp, udp};
use crate::write::{ICMPV6_KINDS, PROTOCOLS6, TTL};
use natgate_wire::{Ipv4, Ipv6, checksum, icmpv6, ipv6, protocol};
use std::fmt::Write;
use std::net::Ipv6Addr;

const ICMPV6: IcmpFamily =
    IcmpFamily { kinds: &ICMPV6_KINDS, is_error: icmpv6::is_error, embedded: packet };

/// Description of a packet of IPv6; more text may follow it.
pub(super) fn packet(bytes: &[u8]) -> Option<String> {
    let header = Ipv6::new_header_checked(bytes).ok()?;
    let walk = header.walk().ok()?;
    let fragment = walk.fragment.map(|(_, fragment)| fragment);
    let headers = ipv6::HEADER_LEN + if fragment.is_some() { ipv6::FRAGMENT_LEN } else { 0 };
    if walk.transport != headers {
        return None;
    }
    let all_there = header.total_len() <= bytes.len();
    let payload = bytes.get(headers..header.total_len().min(bytes.len()))?;
    let number = walk.protocol;
    let named = PROTOCOLS6.iter().find(|(_, protocol)| *protocol == number);
    let name = named.map_or_else(|| number.to_string(), |(name, _)| (*name).into());
    let is_part = fragment.is_some_and(|fragment| fragment.offset > 0 || fragment.more);
    let is_later = fragment.is_some_and(|fragment| fragment.offset > 0);
    let (source, destination) = (header.source(), header.destination());
    let pseudo = |len: usize| checksum::pseudo_header_v6(source, destination, number, len as u32);
    let sums = Sums { whole: all_there && !is_part, pseudo: &pseudo };
    let (ports, rest) = match number {
        _ if is_later => (None, data(payload)),
        protocol::UDP => udp(payload, &sums),
        protocol::TCP => tcp(payload, &sums),
        protocol::ICMPV6 => (None, icmp_message(payload, &sums, &ICMPV6)),
        4 if Ipv4::new_header_checked(payload).is_ok() => {
            (None, format!(" {{ {} }}", super::packet(payload)))
        }
        _ => (None, data(payload)),
    };
    let ends = [source, destination].map(Ipv6Addr::from_bits);
    let mut line = match ports {
        Some([from, to]) => format!("{name} [{}]:{from} > [{}]:{to}", ends[0], ends[1]),
        None => format!("{name} [{}] > [{}]", ends[0], ends[1]),
    };
    line += &rest;
    if header.hop_limit() != TTL {
        let _ = write!(line, " hops={}", header.hop_limit());
    }
    if header.traffic_class() != 0 {
        let _ = write!(line, " class={:#04x}", header.traffic_class());
    }
    if header.flow_label() != 0 {
        let _ = write!(line, " flow={:#07x}", header.flow_label());
    }
    if let Some(fragment) = fragment {
        let (from, to) = (fragment.offset, fragment.offset + payload.len());
        let more = if fragment.more { "+" } else { "" };
        let _ = write!(line, " ip-id={:#x} frag={from}..{to}{more}", fragment.identification);
    }
    if !all_there {
        let _ = write!(line, " len={} cut={}", header.payload_len(), bytes.len());
    } else if bytes.len() > header.total_len() {
        let _ = write!(line, " more={}", hex(&bytes[header.total_len()..]));
    }
    Some(line)
}
