//! Shows passing frames, one line a frame: `12.000000345 inside in 98 IPv4 udp 10.0.0.5:4000 >
//! 198.51.100.7:53`.

use super::{Watcher, Way};
use natgate_wire::arp::{self, Arp, Operation};
use natgate_wire::icmp::Icmp;
use natgate_wire::ipv4::Ipv4;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::{ICMP, TCP, UDP};
use std::fmt;
use std::io::Write;
use std::net::Ipv4Addr;

/// Shows the frames of one device or several.
pub struct Tracer<W> {
    output: W,
    names: Vec<String>,
}

impl<W> fmt::Debug for Tracer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("names", &self.names).finish_non_exhaustive()
    }
}

impl<W: Write> Tracer<W> {
    /// Writes lines to `output`. A device is known by its index among `names`.
    pub fn new(output: W, names: &[&str]) -> Self {
        Self { output, names: names.iter().map(|&name| name.to_owned()).collect() }
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.output
    }
}

impl<W: Write + Send> Watcher for Tracer<W> {
    fn frame(&mut self, port: u32, way: Way, time: u64, frame: &[u8]) {
        let name = self.names.get(port as usize).map_or("?", String::as_str);
        let way = match way {
            Way::In => "in",
            Way::Out => "out",
        };
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        let (len, what) = (frame.len(), What(frame));
        // If the output is closed, frames still pass.
        let _ = writeln!(self.output, "{seconds}.{rest:09} {name} {way} {len} {what}");
    }
}

/// A frame, shown in a few words.
struct What<'a>(&'a [u8]);

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((to, from, kind)) = arp::read_ethernet(self.0) else {
            return f.write_str("too short for Ethernet");
        };
        let packet = &self.0[ETHERNET_LEN..];
        match kind {
            ethertype::ARP => match Arp::new_checked(packet).map(|arp| arp.repr()) {
                Some(arp) if arp.operation == Operation::Request => {
                    write!(f, "ARP who has {}? tell {}", arp.target, arp.sender)
                }
                Some(arp) => write!(f, "ARP {} is at {}", arp.sender, arp.sender_mac),
                None => f.write_str("ARP, damaged"),
            },
            ethertype::IPV4 => match Ipv4::new_checked(packet) {
                Ok(packet) => ipv4(f, &packet),
                Err(_) => f.write_str("IPv4, damaged"),
            },
            _ => write!(f, "{from} > {to} EtherType {kind:#06x}"),
        }
    }
}

fn ipv4(f: &mut fmt::Formatter<'_>, packet: &Ipv4<&[u8]>) -> fmt::Result {
    let (source, destination) =
        (Ipv4Addr::from_bits(packet.source()), Ipv4Addr::from_bits(packet.destination()));
    let payload = packet.payload();
    if packet.fragment_offset() > 0 {
        let (protocol, offset) = (packet.protocol(), packet.fragment_offset());
        return write!(
            f,
            "IPv4 {source} > {destination} protocol {protocol} from byte {offset} on"
        );
    }
    let name = match packet.protocol() {
        TCP => "tcp",
        UDP => "udp",
        ICMP => {
            let Some(message) = Icmp::new_checked(payload) else {
                return write!(f, "IPv4 icmp {source} > {destination}, damaged");
            };
            let (kind, code) = (message.kind(), message.code());
            return write!(f, "IPv4 icmp {kind}/{code} {source} > {destination}");
        }
        other => return write!(f, "IPv4 {source} > {destination} protocol {other}"),
    };
    match payload {
        [a, b, c, d, ..] => {
            let (from, to) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            write!(f, "IPv4 {name} {source}:{from} > {destination}:{to}")
        }
        _ => write!(f, "IPv4 {name} {source} > {destination}, damaged"),
    }
}
