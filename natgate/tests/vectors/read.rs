//! Conversion of packets to the vectors' notation. [`crate::write`] converts the text back to equal
//! bytes. Checksums are computed again here, and only wrong or missing ones are mentioned.

#[path = "read6.rs"]
mod six;

use crate::words::FILLER;
use crate::write::{ICMP_KINDS, PROTOCOLS, TCP_FLAGS, TTL, WINDOW};
use natgate_wire::{Icmp, Ipv4, Tcp, Udp, checksum, icmp, protocol};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Longest data that is shown as text, bytes.
const LONGEST_TEXT: usize = 48;

/// Description of a packet; more text may follow it.
pub(crate) fn packet(bytes: &[u8]) -> String {
    match Ipv4::new_header_checked(bytes) {
        Ok(packet) => describe(&packet, bytes),
        Err(_) => six::packet(bytes).unwrap_or_else(|| format!("raw {}", hex(bytes))),
    }
}

fn describe(packet: &Ipv4<&[u8]>, bytes: &[u8]) -> String {
    let number = packet.protocol();
    let named = PROTOCOLS.iter().find(|(_, protocol)| *protocol == number);
    let name = named.map_or_else(|| number.to_string(), |(name, _)| (*name).into());
    let ends = [packet.source(), packet.destination()].map(Ipv4Addr::from_bits);
    let all_there = usize::from(packet.total_len()) <= bytes.len();
    let is_fragment = packet.more_fragments() || packet.fragment_offset() > 0;
    let (ports, rest) = transport(packet, all_there && !is_fragment);
    let mut line = match ports {
        Some([source, destination]) => {
            format!("{name} {}:{source} > {}:{destination}", ends[0], ends[1])
        }
        None => format!("{name} {} > {}", ends[0], ends[1]),
    };
    line += &rest;
    line += &header(packet, bytes);
    if !all_there {
        let _ = write!(line, " len={} cut={}", packet.total_len(), bytes.len());
    } else if bytes.len() > packet.total_len().into() {
        let _ = write!(line, " more={}", hex(&bytes[packet.total_len().into()..]));
    }
    line
}

/// Unusual values in the IP header.
fn header(packet: &Ipv4<&[u8]>, bytes: &[u8]) -> String {
    let mut line = String::new();
    if packet.ttl() != TTL {
        let _ = write!(line, " ttl={}", packet.ttl());
    }
    if bytes[1] != 0 {
        let _ = write!(line, " tos={:#04x}", bytes[1]);
    }
    if packet.identification() != 0 {
        let _ = write!(line, " ip-id={}", packet.identification());
    }
    if packet.dont_fragment() {
        line += " df";
    }
    let (from, more) = (packet.fragment_offset(), packet.more_fragments());
    if from > 0 || more {
        let to = from + packet.payload().len();
        let _ = write!(line, " frag={from}..{to}{}", if more { "+" } else { "" });
    }
    if !packet.options().is_empty() {
        let _ = write!(line, " opts={}", hex(packet.options()));
    }
    match checksum::fold(checksum::sum(&bytes[..packet.header_len()], 0)) {
        0xffff => {}
        wrong_by => {
            let _ = write!(line, " ipsum=+{wrong_by:#06x}");
        }
    }
    line
}

/// Ports, if there are any, and the content of the transport header and data.
fn transport(packet: &Ipv4<&[u8]>, whole: bool) -> (Option<[u16; 2]>, String) {
    let payload = packet.payload();
    if packet.fragment_offset() > 0 {
        return (None, data(payload));
    }
    let (source, destination) = (packet.source(), packet.destination());
    let pseudo =
        |len: usize| checksum::pseudo_header(source, destination, packet.protocol(), len as u16);
    let sums = Sums { whole, pseudo: &pseudo };
    match packet.protocol() {
        protocol::UDP => udp(payload, &sums),
        protocol::TCP => tcp(payload, &sums),
        protocol::ICMP => (None, icmp_message(payload, &Sums { pseudo: &|_| 0, ..sums }, &ICMP)),
        _ => (None, data(payload)),
    }
}

/// Verification of transport checksums.
struct Sums<'s> {
    /// True if all bytes are there.
    whole: bool,
    /// Sum of the pseudo header, by the length of the message.
    pseudo: &'s dyn Fn(usize) -> u32,
}

impl Sums<'_> {
    /// Describes by how much a checksum is wrong, if it is.
    fn wrong(&self, bytes: &[u8]) -> String {
        match checksum::fold(checksum::sum(bytes, (self.pseudo)(bytes.len()))) {
            0xffff => String::new(),
            wrong_by => format!(" sum=+{wrong_by:#06x}"),
        }
    }
}

/// ICMP of a family.
struct IcmpFamily {
    kinds: &'static [(&'static str, u8)],
    is_error: fn(u8) -> bool,
    /// Description of the packet that an error embeds.
    embedded: fn(&[u8]) -> Option<String>,
}

const ICMP: IcmpFamily = IcmpFamily {
    kinds: &ICMP_KINDS,
    is_error: icmp::is_error,
    embedded: |body| Ipv4::new_header_checked(body).is_ok().then(|| packet(body)),
};

fn udp(payload: &[u8], sums: &Sums<'_>) -> (Option<[u16; 2]>, String) {
    let Some(datagram) = Udp::new_checked(payload) else { return (None, data(payload)) };
    let mut line = data(&payload[8..]);
    let fits = usize::from(datagram.length()) <= payload.len() && datagram.length() >= 8;
    if usize::from(datagram.length()) != payload.len() {
        let _ = write!(line, " ulen={}", datagram.length());
    }
    line += &match datagram.checksum() {
        0 => " sum=none".into(),
        _ if sums.whole && fits => sums.wrong(&payload[..datagram.length().into()]),
        sum => format!(" sum={sum:#06x}"),
    };
    (Some([datagram.source_port(), datagram.destination_port()]), line)
}

fn tcp(payload: &[u8], sums: &Sums<'_>) -> (Option<[u16; 2]>, String) {
    let Some(segment) = Tcp::new_checked(payload) else {
        // An ICMP error may quote only the ports and the sequence number.
        let Some(ports) = Udp::new_checked(payload) else { return (None, data(payload)) };
        let sequence = u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]);
        let mut line = format!(" seq={sequence}");
        if payload.len() > 8 {
            let _ = write!(line, " rest={}", hex(&payload[8..]));
        }
        return (Some([ports.source_port(), ports.destination_port()]), line);
    };
    let flags: String = TCP_FLAGS
        .chars()
        .enumerate()
        .filter(|(bit, _)| segment.flags() & 1 << bit != 0)
        .map(|(_, letter)| letter)
        .collect();
    let mut line = if flags.is_empty() { String::new() } else { format!(" {flags}") };
    let _ = write!(line, " seq={}", segment.sequence());
    if segment.acknowledgment() != 0 {
        let _ = write!(line, " ack={}", segment.acknowledgment());
    }
    if segment.window() != WINDOW {
        let _ = write!(line, " win={}", segment.window());
    }
    match &payload[20..segment.header_len()] {
        [] => {}
        [1, 3, 3, shift] => {
            let _ = write!(line, " wscale={shift}");
        }
        options => {
            let _ = write!(line, " topts={}", hex(options));
        }
    }
    line += &data(&payload[segment.header_len()..]);
    line += &match segment.checksum() {
        _ if sums.whole => sums.wrong(payload),
        sum => format!(" sum={sum:#06x}"),
    };
    (Some([segment.source_port(), segment.destination_port()]), line)
}

fn icmp_message(payload: &[u8], sums: &Sums<'_>, family: &IcmpFamily) -> String {
    let Some(message) = Icmp::new_checked(payload) else { return data(payload) };
    let kind = message.kind();
    let named = family.kinds.iter().find(|(_, number)| *number == kind);
    let mut line = named.map_or_else(|| format!(" type={kind}"), |(name, _)| format!(" {name}"));
    let is_error = (family.is_error)(kind);
    if message.code() != 0 || is_error {
        let _ = write!(line, " code={}", message.code());
    }
    let low = u16::from_be_bytes([payload[6], payload[7]]);
    if message.identifier() != 0 || !is_error {
        let _ = write!(line, " ident={}", message.identifier());
    }
    match low {
        0 if is_error => {}
        low if is_error => {
            let _ = write!(line, " mtu={low}");
        }
        low => {
            let _ = write!(line, " n={low}");
        }
    }
    match (family.embedded)(message.body()).filter(|_| is_error) {
        Some(embedded) => {
            let _ = write!(line, " {{ {embedded} }}");
        }
        None => line += &data(message.body()),
    }
    match sums.whole {
        true => line += &sums.wrong(payload),
        false => {
            let _ = write!(line, " sum={:#06x}", message.checksum());
        }
    }
    line
}

fn data(bytes: &[u8]) -> String {
    let plain = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'"';
    if bytes.is_empty() {
        String::new()
    } else if bytes.len() > LONGEST_TEXT && bytes.iter().all(|byte| *byte == FILLER) {
        format!(" bytes={}", bytes.len())
    } else if bytes.len() <= LONGEST_TEXT && bytes.iter().all(plain) {
        format!(" \"{}\"", String::from_utf8_lossy(bytes))
    } else {
        format!(" hex={}", hex(bytes))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
