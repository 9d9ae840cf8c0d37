//! Conversion of the vectors' notation to packets of IPv6. The addresses are in brackets.
//!
//! The only extension header is that of a fragment, by `frag` or `part`.

use super::{Fragment, PROTOCOLS, Ports, TTL, finished, icmp, named, part_of, put_sum, tcp, udp};
use crate::words::{Result, Words, number};
use natgate_wire::{Ipv6, checksum, ipv6, protocol};
use std::net::Ipv6Addr;

/// Names of ICMPv6 types.
pub(crate) const ICMPV6_KINDS: [(&str, u8); 6] = [
    ("unreachable", 1),
    ("too-big", 2),
    ("exceeded", 3),
    ("problem", 4),
    ("echo", 128),
    ("echo-reply", 129),
];

/// IPv4 in IPv6.
pub(crate) const IPV4: u8 = 4;

/// Names of protocols that IPv6 carries; others have numbers.
pub(crate) const PROTOCOLS6: [(&str, u8); 8] = [
    ("icmp6", protocol::ICMPV6),
    ("ipip", IPV4),
    PROTOCOLS[1],
    PROTOCOLS[2],
    PROTOCOLS[3],
    PROTOCOLS[4],
    PROTOCOLS[5],
    PROTOCOLS[6],
];

/// Builds the packet of a description, behind its source.
pub(super) fn packet(name: &str, source: &str, words: &mut Words) -> Result<Vec<u8>> {
    let protocol = named(name, &PROTOCOLS6)?;
    let (source, source_port) = end(source)?;
    if words.next(">")? != ">" {
        return Err("between source and destination stands >".into());
    }
    let (destination, destination_port) = end(&words.next("a destination")?)?;
    let mut fragment = words.text("frag").map(|range| Fragment::new(&range)).transpose()?;
    let ports = [source_port, destination_port];
    let is_later = fragment.is_some_and(|fragment| fragment.from > 0);
    // Without ports or a type there is no transport header to sum up.
    let is_cut = words.has("rest") || protocol == protocol::ICMPV6 && !has_kind(words);
    let mut payload = payload(protocol, ports, is_later, words)?;
    let len = payload.len() as u32;
    let pseudo = checksum::pseudo_header_v6(source, destination, protocol, len);
    let at = match protocol {
        _ if is_later || is_cut => None,
        protocol::UDP if ports != [None, None] => Some(6),
        protocol::TCP if ports != [None, None] => Some(16),
        protocol::ICMPV6 => Some(2),
        _ => None,
    };
    if let Some(at) = at {
        put_sum(words, &mut payload, (at, protocol), pseudo)?;
    }
    let payload = part_of(words, &payload, &mut fragment)?;
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    let mut next_header = protocol;
    if let Some(fragment) = fragment {
        let identification = words.number("ip-id")?.unwrap_or(0);
        let mut header = [0; ipv6::FRAGMENT_LEN];
        let (offset, more) = (fragment.from.into(), fragment.more);
        ipv6::Fragment { next_header, offset, more, identification }.write(&mut header);
        bytes.extend(header);
        next_header = ipv6::next::FRAGMENT;
    }
    bytes.extend(payload);
    let payload_len = (bytes.len() - ipv6::HEADER_LEN) as u16;
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(words.number("len")?.unwrap_or(payload_len));
    header.set_next_header(next_header);
    header.set_traffic_class(words.number("class")?.unwrap_or(0));
    header.set_flow_label(words.number("flow")?.unwrap_or(0));
    header.set_hop_limit(words.number("hops")?.unwrap_or(TTL));
    header.set_source(source);
    header.set_destination(destination);
    finished(bytes, words)
}

fn payload(protocol: u8, ports: Ports, is_later: bool, words: &mut Words) -> Result<Vec<u8>> {
    match (protocol, words.inner.take()) {
        _ if is_later => words.data(),
        (protocol::UDP | protocol::TCP, _) if ports == [None, None] => words.data(),
        (protocol::UDP, _) => udp(words, ports),
        (protocol::TCP, _) => tcp(words, ports),
        (IPV4, Some(mut inner)) => super::packet(&mut inner),
        (protocol::ICMPV6, inner) if has_kind(words) => {
            words.inner = inner;
            icmp(words, &ICMPV6_KINDS)
        }
        _ => words.data(),
    }
}

fn has_kind(words: &Words) -> bool {
    let is_named = |(name, _): &(&str, u8)| words.plain.iter().any(|word| word == name);
    words.has("type") || ICMPV6_KINDS.iter().any(is_named)
}

/// `[2001:db8::5]:4000`, or an address alone, in brackets, too.
fn end(text: &str) -> Result<(u128, Option<u16>)> {
    let rest = text.strip_prefix('[').ok_or("an address of IPv6 is in brackets")?;
    let (address, port) = rest.split_once(']').ok_or("a [ without ]")?;
    let address: Ipv6Addr = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let port = match port {
        "" => None,
        port => Some(number(port.strip_prefix(':').ok_or("between ] and a port stands :")?)?),
    };
    Ok((address.to_bits(), port))
}
