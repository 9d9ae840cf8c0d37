//! A packet that came out of a translator, in a form that permits comparisons.
//!
//! A packet becomes a table of named fields. The translator's own choices are left out. In place of
//! the number of an external port the table records two facts: the port is equal to the internal
//! one or not, and it is the endpoint's earlier port or not. In place of a checksum's value the
//! table records that it is correct, or by how much it is wrong. An ICMP error also has the fields
//! of the embedded packet, under `about.`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use natgate_engine::Side;
use natgate_wire::{Icmp, Ipv4, checksum, icmp, protocol};

use crate::packets::Endpoint;
use crate::script::{EXTERNAL, Step};

/// One packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) fields: BTreeMap<String, String>,
}

/// External ports that a translator has assigned, and their internal endpoints.
#[derive(Debug, Default)]
pub(crate) struct PortHistory {
    given: Vec<PortAssignment>,
}

#[derive(Debug, PartialEq, Eq)]
struct PortAssignment {
    protocol: u8,
    internal: Endpoint,
    remote: Endpoint,
    port: u16,
}

impl PortHistory {
    /// External endpoint by which a remote endpoint reaches an internal one. Without an assignment,
    /// the one with the internal port.
    pub(crate) fn external(&self, protocol: u8, internal: Endpoint, remote: Endpoint) -> Endpoint {
        let mut given = self.of(protocol, internal).filter(|given| given.remote == remote);
        (EXTERNAL, given.next_back().map_or(internal.1, |given| given.port))
    }

    fn of(
        &self,
        protocol: u8,
        internal: Endpoint,
    ) -> impl DoubleEndedIterator<Item = &PortAssignment> {
        self.given.iter().filter(move |g| g.protocol == protocol && g.internal == internal)
    }

    fn has(&self, protocol: u8, internal: Endpoint, port: u16) -> bool {
        self.of(protocol, internal).any(|given| given.port == port)
    }

    /// Records a port; returns the comparable facts about it.
    fn learn(&mut self, protocol: u8, step: &Step, port: u16) -> String {
        let (internal, remote) = (step.internal, step.remote);
        let given = PortAssignment { protocol, internal, remote, port };
        let others =
            || self.given.iter().filter(|o| o.protocol == protocol && o.internal != internal);
        let kept = match port == internal.1 {
            true => "kept",
            false if others().any(|other| other.port == internal.1) => "taken",
            false => "another",
        };
        let before: Vec<_> = self.of(protocol, internal).map(|given| given.port).collect();
        let constant = match before.is_empty() {
            true => "first",
            false if before.iter().all(|before| *before == port) => "constant",
            false => "changed",
        };
        let shared = others().any(|other| other.port == port);
        if !self.given.contains(&given) {
            self.given.push(given);
        }
        format!("{kept} {constant} {}", if shared { "shared" } else { "alone" })
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.fields {
            write!(f, "{name}={value} ")?;
        }
        Ok(())
    }
}

impl Observation {
    /// Records a packet that left by this side in this step.
    pub(crate) fn new(
        step: &Step,
        sent: &[Vec<u8>],
        side: Side,
        bytes: &[u8],
        known: &mut PortHistory,
    ) -> Self {
        let mut seen = Self::default();
        seen.set("side", format!("{side:?}"));
        let packet = match Ipv4::new_checked(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                seen.set("broken", format!("{error:?} {bytes:02x?}"));
                return seen;
            }
        };
        let outward = side == Side::Outside && packet.source() == EXTERNAL.to_bits();
        let has_port = packet.fragment_offset() == 0 && ports_at(packet.protocol()).is_some();
        if outward && step.side == Side::Inside && has_port && step.protocol == packet.protocol() {
            let port = port(&packet, false);
            let said = known.learn(packet.protocol(), step, port);
            seen.set("port", said);
        }
        Writer { step, sent, known, seen: &mut seen }.packet("", bytes, &packet, true);
        seen
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.fields.insert(name.into(), value.into());
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.fields.remove(name);
    }
}

/// Offsets of source and destination port and of the checksum in a protocol's header.
fn ports_at(protocol: u8) -> Option<([usize; 2], usize)> {
    match protocol {
        protocol::TCP => Some(([0, 2], 16)),
        protocol::UDP | protocol::DCCP => Some(([0, 2], 6)),
        // One identifier serves for both ports.
        protocol::ICMP => Some(([4, 4], 2)),
        _ => None,
    }
}

/// Source or destination port; 0 if it is missing.
fn port(packet: &Ipv4<&[u8]>, destination: bool) -> u16 {
    let Some((at, _)) = ports_at(packet.protocol()) else { return 0 };
    let at = at[usize::from(destination)];
    packet.payload().get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Converter from bytes to fields.
struct Writer<'a> {
    step: &'a Step,
    sent: &'a [Vec<u8>],
    known: &'a PortHistory,
    seen: &'a mut Observation,
}

impl Writer<'_> {
    fn set(&mut self, under: &str, name: &str, value: impl Into<String>) {
        self.seen.set(&format!("{under}{name}"), value);
    }

    /// Writes the fields of a packet, or of the beginning of one.
    fn packet(&mut self, under: &str, bytes: &[u8], packet: &Ipv4<&[u8]>, whole: bool) {
        self.set(under, "tos", format!("{:02x}", bytes[1]));
        self.header(under, packet);
        let payload = packet.payload();
        let complete = usize::from(packet.total_len()) == packet.header_len() + payload.len();
        let fragment = packet.more_fragments() || packet.fragment_offset() > 0;
        if packet.fragment_offset() > 0 {
            return self.set(under, "payload", hex(payload));
        }
        let kind = payload.first().copied().unwrap_or_default();
        match packet.protocol() {
            protocol::ICMP if icmp::is_error(kind) && whole => self.error(under, packet),
            number if ports_at(number).is_some() => {
                self.transport(under, packet, complete && !fragment);
            }
            _ => self.set(under, "payload", hex(payload)),
        }
    }

    fn header(&mut self, under: &str, packet: &Ipv4<&[u8]>) {
        for (name, address) in [("from", packet.source()), ("to", packet.destination())] {
            let address = Ipv4Addr::from_bits(address);
            let external = address == EXTERNAL;
            self.set(under, name, if external { "external".into() } else { address.to_string() });
        }
        // A translator's own packets have identifications of the translator.
        let same = |sent: &Vec<u8>| sent.get(4..6) == Some(&packet.identification().to_be_bytes());
        let id = if self.sent.iter().any(same) { "kept" } else { "new" };
        self.set(under, "id", id);
        self.set(under, "ttl", packet.ttl().to_string());
        self.set(under, "protocol", packet.protocol().to_string());
        self.set(under, "length", packet.total_len().to_string());
        let flag = |set: bool, name| if set { name } else { "" };
        let (df, mf) = (packet.dont_fragment(), packet.more_fragments());
        let flags = format!("{}{}{}", flag(df, "DF "), flag(mf, "MF "), packet.fragment_offset());
        self.set(under, "fragment", flags);
        self.set(under, "options", hex(packet.options()));
        let right = if packet.checksum_valid() { "right" } else { "wrong" };
        self.set(under, "header", right);
    }

    /// Writes ports or identifier, checksum, and the rest.
    fn transport(&mut self, under: &str, packet: &Ipv4<&[u8]>, complete: bool) {
        let number = packet.protocol();
        let (at, checksum_at) = ports_at(number).expect("a protocol with ports");
        let mut bytes = packet.payload().to_vec();
        if bytes.len() < 8 {
            return self.set(under, "payload", hex(&bytes));
        }
        if complete || bytes.len() >= checksum_at + 2 {
            let checksum = checksum_of(packet, &bytes, checksum_at, complete);
            self.set(under, "checksum", checksum);
        }
        let (kind, code) = (bytes[0], bytes[1]);
        for (name, destination) in [("source", false), ("destination", true)] {
            let port = port(packet, destination);
            let address = if destination { packet.destination() } else { packet.source() };
            let query = number == protocol::ICMP;
            let external = address == EXTERNAL.to_bits()
                && self.known.has(number, self.step.internal, port)
                && (!query || matches!(kind, 0 | 14) == destination);
            let value = if external { "mapped".into() } else { port.to_string() };
            self.set(under, name, value);
            let at = at[usize::from(destination)];
            bytes[at..at + 2].fill(0);
        }
        if number == protocol::ICMP {
            self.set(under, "type", format!("{kind}/{code}"));
            // Either end may be external; one of the two fields shows it.
            let (source, destination) = (self.get(under, "source"), self.get(under, "destination"));
            let mapped = [source, destination].contains(&"mapped".to_owned());
            let identifier = if mapped { "mapped".into() } else { port(packet, false).to_string() };
            self.set(under, "identifier", identifier);
            self.seen.remove(&format!("{under}source"));
            self.seen.remove(&format!("{under}destination"));
        }
        if bytes.len() >= checksum_at + 2 {
            bytes[checksum_at..checksum_at + 2].fill(0);
        }
        self.set(under, "payload", hex(&bytes));
    }

    fn get(&self, under: &str, name: &str) -> String {
        self.seen.get(&format!("{under}{name}")).to_owned()
    }

    fn error(&mut self, under: &str, packet: &Ipv4<&[u8]>) {
        let bytes = packet.payload();
        let icmp = Icmp::new_checked(bytes).expect("an error has eight bytes");
        self.set(under, "type", format!("{}/{}", icmp.kind(), icmp.code()));
        self.set(under, "word", hex(&bytes[4..8]));
        self.set(under, "checksum", if icmp.checksum_valid() { "right" } else { "wrong" });
        match Ipv4::new_header_checked(&bytes[8..]) {
            Ok(about) => {
                self.packet("about.", &bytes[8..], &about, false);
                let end = about.header_len() + about.payload().len();
                self.set("about.", "beyond", hex(&bytes[8 + end..]));
            }
            Err(_) => self.set(under, "payload", hex(&bytes[8..])),
        }
    }
}

/// Returns that the checksum is correct, or by how much it is wrong. For an incomplete packet it
/// returns the checksum with addresses and ports of zero, because nothing more is known.
fn checksum_of(packet: &Ipv4<&[u8]>, bytes: &[u8], at: usize, complete: bool) -> String {
    let value = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let number = packet.protocol();
    if number == protocol::UDP && value == 0 {
        return "none".into();
    }
    let (source, destination) = (packet.source(), packet.destination());
    let pseudo = match number {
        protocol::ICMP => 0,
        _ => checksum::pseudo_header(source, destination, number, bytes.len() as u16),
    };
    if complete {
        return match checksum::fold(checksum::sum(bytes, pseudo)) {
            0xffff => "right".into(),
            other => format!("wrong by {:04x}", !other),
        };
    }
    let mut ends = checksum::pseudo_header(source, destination, 0, 0);
    if number == protocol::ICMP {
        ends = checksum::sum(&bytes[4..6], 0);
    } else {
        ends = checksum::sum(&bytes[..4], ends);
    }
    // Adding covered words removes them from the complement.
    let rest = checksum::fold(u32::from(value) + u32::from(checksum::fold(ends)));
    format!("{:04x} without its ends", if rest == 0xffff { 0 } else { rest })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
