//! Conversion of the vectors' notation to packets. vectors/README.md explains the notation.
//!
//! Lengths and checksums are correct unless a word changes them. An address in brackets makes a
//! packet of IPv6.

#[path = "write6.rs"]
mod six;

pub(crate) use six::{ICMPV6_KINDS, PROTOCOLS6};

use crate::words::{Result, Words, number};
use natgate_wire::{Ipv4, checksum, protocol};
use std::net::Ipv4Addr;

/// Names of ICMP types.
pub(crate) const ICMP_KINDS: [(&str, u8); 9] = [
    ("echo-reply", 0),
    ("unreachable", 3),
    ("quench", 4),
    ("redirect", 5),
    ("echo", 8),
    ("exceeded", 11),
    ("problem", 12),
    ("timestamp", 13),
    ("timestamp-reply", 14),
];

/// Letters of TCP flags, from the lowest bit.
pub(crate) const TCP_FLAGS: &str = "FSRPAUEC";

/// Names of protocols; others have numbers.
pub(crate) const PROTOCOLS: [(&str, u8); 7] = [
    ("icmp", protocol::ICMP),
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("dccp", protocol::DCCP),
    ("gre", protocol::GRE),
    ("esp", protocol::ESP),
    ("sctp", protocol::SCTP),
];

/// Window of TCP segments without one in the text.
pub(crate) const WINDOW: u16 = 1000;
/// TTL of packets without one in the text.
pub(crate) const TTL: u8 = 64;

/// An address and an optional port.
type End = (u32, Option<u16>);

/// Builds the packet of a description.
pub(crate) fn packet(words: &mut Words) -> Result<Vec<u8>> {
    let name = words.next("a protocol")?;
    if name == "raw" {
        return crate::words::hex(&words.next("the bytes of a raw packet")?);
    }
    let source = words.next("a source")?;
    if source.starts_with('[') {
        return six::packet(&name, &source, words);
    }
    let protocol = named(&name, &PROTOCOLS)?;
    let source = end(&source)?;
    if words.next(">")? != ">" {
        return Err("between source and destination stands >".into());
    }
    let destination = end(&words.next("a destination")?)?;
    let ports = [source.1, destination.1];
    let fragment = words.text("frag").map(|range| Fragment::new(&range)).transpose()?;
    let later = fragment.is_some_and(|fragment| fragment.from > 0);
    // Without ports or a type there is no transport header: the packet is a fragment or cut short.
    let headless = match protocol {
        protocol::TCP | protocol::UDP => later || ports == [None, None],
        protocol::ICMP => later || words.has("hex") && !has_kind(words),
        _ => later,
    };
    let summed = !headless && !words.has("rest");
    let payload = match protocol {
        _ if headless => words.data()?,
        protocol::UDP => udp(words, ports)?,
        protocol::TCP => tcp(words, ports)?,
        protocol::ICMP => icmp(words, &ICMP_KINDS)?,
        _ => words.data()?,
    };
    let mut whole = Whole { protocol, source: source.0, destination: destination.0, payload };
    if summed {
        whole.sum_up(words)?;
    }
    let packet = whole.packet(words, fragment)?;
    finished(packet, words)
}

/// The number of a protocol.
fn named(name: &str, names: &[(&str, u8)]) -> Result<u8> {
    let named = names.iter().find(|(known, _)| *known == name);
    named.map_or_else(|| number(name), |(_, protocol)| Ok(*protocol))
}

/// Cuts a packet, or adds bytes behind it. No word may remain.
fn finished(mut packet: Vec<u8>, words: &mut Words) -> Result<Vec<u8>> {
    if let Some(cut) = words.number::<u16>("cut")? {
        packet.truncate(cut.into());
    }
    packet.extend(words.hex("more")?.unwrap_or_default());
    words.end()?;
    Ok(packet)
}

fn has_kind(words: &Words) -> bool {
    let named = |(name, _): &(&str, u8)| words.plain.iter().any(|word| word == name);
    words.has("type") || ICMP_KINDS.iter().any(named)
}

/// `10.0.0.5:4000`, or an address alone.
fn end(text: &str) -> Result<End> {
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, Some(number(port)?)),
        None => (text, None),
    };
    let address: Ipv4Addr = address.parse().map_err(|error| format!("{address}: {error}"))?;
    Ok((address.to_bits(), port))
}

/// Range of a datagram in a fragment.
#[derive(Clone, Copy)]
struct Fragment {
    from: u16,
    to: u16,
    more: bool,
}

impl Fragment {
    /// Parses `24..40`, with a plus if more fragments follow.
    fn new(range: &str) -> Result<Self> {
        let ends = range.trim_end_matches('+').split_once("..");
        let (from, to) = ends.ok_or("a part is written such as 0..24")?;
        Ok(Self { from: number(from)?, to: number(to)?, more: range.ends_with('+') })
    }
}

/// Ports of source and destination.
type Ports = [Option<u16>; 2];

fn port_bytes([source, destination]: Ports) -> Result<Vec<u8>> {
    let port = |port: Option<u16>| port.ok_or("a port is missing");
    Ok([port(source)?.to_be_bytes(), port(destination)?.to_be_bytes()].concat())
}

fn udp(words: &mut Words, ports: Ports) -> Result<Vec<u8>> {
    let data = words.data()?;
    let length: u16 = words.number("ulen")?.unwrap_or(8 + data.len() as u16);
    Ok([&port_bytes(ports)?[..], &length.to_be_bytes(), &[0, 0], &data].concat())
}

fn tcp(words: &mut Words, ports: Ports) -> Result<Vec<u8>> {
    let mut flags = 0;
    let letters = words.plain.iter().position(|word| word.chars().all(|c| TCP_FLAGS.contains(c)));
    if let Some(at) = letters {
        let word = words.plain.remove(at);
        flags = word.chars().filter_map(|c| TCP_FLAGS.find(c)).fold(0, |bits, at| bits | 1 << at);
    }
    let sequence: u32 = words.number("seq")?.unwrap_or(0);
    if let Some(rest) = words.hex("rest")? {
        // A header that ends early, as ICMP errors may embed it, or one with a wrong length.
        return Ok([&port_bytes(ports)?[..], &sequence.to_be_bytes(), &rest].concat());
    }
    let acknowledgment: u32 = words.number("ack")?.unwrap_or(0);
    let window: u16 = words.number("win")?.unwrap_or(WINDOW);
    let mut options = words.hex("topts")?.unwrap_or_default();
    if let Some(shift) = words.number::<u8>("wscale")? {
        options.extend([1, 3, 3, shift]);
    }
    let offset: u8 = words.number("off")?.unwrap_or(5 + (options.len() / 4) as u8);
    Ok([
        &port_bytes(ports)?[..],
        &sequence.to_be_bytes(),
        &acknowledgment.to_be_bytes(),
        &[offset << 4, flags],
        &window.to_be_bytes(),
        &[0; 4],
        &options,
        &words.data()?,
    ]
    .concat())
}

fn icmp(words: &mut Words, kinds: &[(&str, u8)]) -> Result<Vec<u8>> {
    let named = kinds.iter().find(|(name, _)| words.flag(name)).map(|(_, kind)| *kind);
    let kind = match named {
        Some(kind) => kind,
        None => words.number("type")?.ok_or("an ICMP type is missing")?,
    };
    let code: u8 = words.number("code")?.unwrap_or(0);
    let high: u16 = words.number("ident")?.unwrap_or(0);
    let low = match words.number::<u16>("n")? {
        Some(low) => low,
        None => words.number("mtu")?.unwrap_or(0),
    };
    let body = match words.inner.take() {
        Some(mut inner) => packet(&mut inner)?,
        None => words.data()?,
    };
    Ok([&[kind, code, 0, 0][..], &high.to_be_bytes(), &low.to_be_bytes(), &body].concat())
}

/// A datagram, or the existing part of it.
struct Whole {
    protocol: u8,
    source: u32,
    destination: u32,
    payload: Vec<u8>,
}

impl Whole {
    /// Writes the transport checksum according to `sum`.
    fn sum_up(&mut self, words: &mut Words) -> Result<()> {
        let at = match self.protocol {
            protocol::UDP => 6,
            protocol::TCP => 16,
            protocol::ICMP => 2,
            _ => return Ok(()),
        };
        let (length, protocol) = (self.payload.len() as u16, self.protocol);
        let pseudo = match protocol {
            protocol::ICMP => 0,
            _ => checksum::pseudo_header(self.source, self.destination, protocol, length),
        };
        put_sum(words, &mut self.payload, (at, protocol), pseudo)
    }

    /// The packet, or the fragment that `part` names, with its header.
    fn packet(&self, words: &mut Words, mut fragment: Option<Fragment>) -> Result<Vec<u8>> {
        let payload = part_of(words, &self.payload, &mut fragment)?;
        let mut options = words.hex("opts")?.unwrap_or_default();
        options.resize(options.len().next_multiple_of(4), 0);
        let header_len = 20 + options.len();
        let mut bytes = [&vec![0; header_len][..], payload].concat();
        let total_len = words.number("len")?.unwrap_or(bytes.len() as u16);
        let tos: u8 = words.number("tos")?.unwrap_or(0);
        let mut packet = Ipv4::init(&mut bytes[..], header_len);
        packet.set_total_len(total_len);
        packet.set_identification(words.number("ip-id")?.unwrap_or(0));
        let place = fragment.map_or(0, |part| (part.from / 8) | (u16::from(part.more) << 13));
        packet.set_fragment_field(place | (u16::from(words.flag("df")) << 14));
        packet.set_ttl(words.number("ttl")?.unwrap_or(TTL));
        packet.set_protocol(self.protocol);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        bytes[1] = tos;
        bytes[20..header_len].copy_from_slice(&options);
        let sum = checksum::checksum(&bytes[..header_len]);
        let sum = off_by(sum, words.number("ipsum")?.unwrap_or(0));
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        Ok(bytes)
    }
}

/// The part of a payload that `part` names, which makes a fragment, or the whole payload.
fn part_of<'p>(
    words: &mut Words,
    payload: &'p [u8],
    fragment: &mut Option<Fragment>,
) -> Result<&'p [u8]> {
    let Some(part) = words.text("part") else { return Ok(payload) };
    let part = Fragment::new(&part)?;
    let more = usize::from(part.to) < payload.len();
    *fragment = Some(Fragment { more, ..part });
    Ok(payload.get(part.from.into()..part.to.into()).ok_or("no such part")?)
}

/// Writes the transport checksum according to `sum`, at its place for a protocol.
fn put_sum(
    words: &mut Words,
    payload: &mut [u8],
    (at, protocol): (usize, u8),
    pseudo: u32,
) -> Result<()> {
    let right = match !checksum::fold(checksum::sum(payload, pseudo)) {
        0 if protocol == protocol::UDP => 0xffff,
        sum => sum,
    };
    let sum = match words.text("sum").as_deref() {
        None => right,
        Some("none") => 0,
        Some(by) if by.starts_with('+') => off_by(right, number(by)?),
        Some(value) => number(value)?,
    };
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// A checksum that is wrong by an amount, in ones' complement.
fn off_by(right: u16, by: u16) -> u16 {
    checksum::fold(u32::from(right) + u32::from(by))
}
