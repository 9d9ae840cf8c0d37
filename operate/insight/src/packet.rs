//! Descriptions of packets: `udp 10.0.0.5:4000 > 192.0.2.1:53`, or bytes in hexadecimal, with
//! options after them. Packets have IPv4, IPv6, or IPv4 in a tunnel.

mod origin;

use natgate_engine::Side;
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN, ethertype};
use natgate_wire::tcp::flags;
use natgate_wire::{Icmpv6, Ipv4, Ipv6, icmp, icmpv6, ipv4, ipv6, protocol, tcp, udp};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Examples of descriptions, for error messages.
pub const EXAMPLE: &str = "such as `udp 10.0.0.5:4000 > 192.0.2.1:53`, \
     `tcp 10.0.0.5:4000 > 192.0.2.1:80 syn` or `icmp 10.0.0.5 > 192.0.2.1 id 7`";

/// Shortest packet in hexadecimal: an IPv4 header.
const LEAST_DIGITS: usize = 2 * ipv4::HEADER_LEN;

/// A packet by its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketDescription {
    /// The IP packet.
    pub packet: Vec<u8>,
    /// The side that the packet comes in by, if the description names one.
    pub from: Option<Side>,
    /// The name of the realm that the packet comes from, if the description names one.
    pub realm: Option<String>,
    /// The tunnel that the packet comes in, if the description names one.
    pub tunnel: Option<TunnelEnds>,
}

/// The ends of the tunnel that an IPv4 packet comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelEnds {
    /// The customer's end.
    pub b4: Ipv6Addr,
    /// The gateway's end; `None`: the configuration has it.
    pub aftr: Option<Ipv6Addr>,
}

/// The options of a description, after its endpoints.
#[derive(Debug, Default)]
struct PacketOptions {
    ttl: Option<u8>,
    length: Option<u16>,
    id: Option<u16>,
    dont_fragment: bool,
    flags: u8,
    reply: bool,
    from: Option<Side>,
    realm: Option<String>,
    b4: Option<Ipv6Addr>,
    aftr: Option<Ipv6Addr>,
}

impl FromStr for PacketDescription {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_hex =
            |word: &&&str| word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
        let digits: String = words
            .iter()
            .take_while(is_hex)
            .flat_map(|word| word.chars())
            .filter(|c| *c != ':')
            .collect();
        if digits.len() >= LEAST_DIGITS {
            let options = PacketOptions::read(&words[words.iter().take_while(is_hex).count()..])?;
            return options.with_bytes(&digits);
        }
        match words[..] {
            [protocol, source, ">", destination, ref rest @ ..] => {
                PacketOptions::read(rest)?.with_ends(protocol, source, destination)
            }
            _ => Err(format!(
                "{text:?} is no packet; write protocol, source, > and destination, {EXAMPLE}"
            )),
        }
    }
}

impl PacketOptions {
    fn read(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = |what: &str| {
                words.next().ok_or_else(|| format!("{word} lacks its value; write {word} {what}"))
            };
            match word {
                "ttl" => options.ttl = Some(number("ttl", value("N")?)?),
                "b4" => options.b4 = Some(tunnel_end("b4", value("ADDRESS")?)?),
                "aftr" => options.aftr = Some(tunnel_end("aftr", value("ADDRESS")?)?),
                "length" => options.length = Some(number("length", value("N")?)?),
                "id" => options.id = Some(number("id", value("N")?)?),
                "df" => options.dont_fragment = true,
                "reply" => options.reply = true,
                "realm" => options.realm = Some(value("NAME")?.to_owned()),
                "from" => {
                    options.from = Some(match value("inside or from outside")? {
                        "inside" => Side::Inside,
                        "outside" => Side::Outside,
                        other => {
                            return Err(format!("from {other}: write from inside or from outside"));
                        }
                    });
                }
                _ => options.flags |= flags_of(word)?,
            }
        }
        Ok(options)
    }

    fn with_bytes(self, digits: &str) -> Result<PacketDescription, String> {
        if self.ttl.is_some() || self.length.is_some() || self.id.is_some() || self.flags != 0 {
            let message = "a packet in hexadecimal has its fields already; after it write only \
                           from inside, from outside or realm NAME";
            return Err(message.to_owned());
        }
        if !digits.len().is_multiple_of(2) {
            return Err(format!(
                "{} hexadecimal digits are no whole bytes; add or take one",
                digits.len()
            ));
        }
        let byte = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).unwrap_or_default();
            u8::from_str_radix(text, 16).unwrap_or_default()
        };
        let bytes: Vec<u8> = digits.as_bytes().chunks(2).map(byte).collect();
        let packet = match link_header(&bytes) {
            Some(len) => bytes[len..].to_vec(),
            None => bytes,
        };
        match packet[0] >> 4 {
            4 => {}
            6 if packet.len() >= ipv6::HEADER_LEN => {}
            6 => {
                let (len, header) = (packet.len(), ipv6::HEADER_LEN);
                return Err(format!("{len} bytes are no IPv6 packet; its header has {header}"));
            }
            _ => {
                let message = "the bytes are neither an IP packet, which begins with 4 or 6, nor \
                               an Ethernet frame with one; nothing else is translated";
                return Err(message.to_owned());
            }
        }
        self.with_packet(packet)
    }

    /// The packet with what the options say about its way.
    fn with_packet(self, packet: Vec<u8>) -> Result<PacketDescription, String> {
        let Self { from, realm, b4, aftr, .. } = self;
        let tunnel = match (b4, aftr, packet[0] >> 4) {
            (None, None, _) => None,
            (None, Some(_), _) => {
                return Err("aftr names one end of a tunnel; write the other with b4".to_owned());
            }
            (Some(_), _, 6) => {
                return Err("only IPv4 packets come in a tunnel; leave b4 and aftr out".to_owned());
            }
            (Some(b4), aftr, _) => Some(TunnelEnds { b4, aftr }),
        };
        Ok(PacketDescription { packet, from, realm, tunnel })
    }

    fn with_ends(
        self,
        name: &str,
        source: &str,
        destination: &str,
    ) -> Result<PacketDescription, String> {
        let (number, header) = match name {
            "udp" => (protocol::UDP, udp::HEADER_LEN),
            "tcp" => (protocol::TCP, tcp::HEADER_LEN),
            "icmp" => (protocol::ICMP, icmp::HEADER_LEN),
            _ => {
                return Err(format!(
                    "{name:?} is none of udp, tcp and icmp; write one of these, or the packet in \
                     hexadecimal"
                ));
            }
        };
        if self.flags != 0 && number != protocol::TCP {
            return Err(format!(
                "{name} has no flags; only tcp takes syn, ack, fin, rst, psh and urg"
            ));
        }
        if (self.id.is_some() || self.reply) && number != protocol::ICMP {
            return Err(format!("{name} has no id and no reply; these are of icmp"));
        }
        let has_ports = number != protocol::ICMP;
        let (source, destination) = (end(source, has_ports)?, end(destination, has_ports)?);
        let fixed = match (source.0, destination.0) {
            (IpAddr::V4(_), IpAddr::V4(_)) => ipv4::HEADER_LEN,
            (IpAddr::V6(_), IpAddr::V6(_)) => ipv6::HEADER_LEN,
            (one, other) => {
                return Err(format!("{one} and {other} are of two families; a packet has one"));
            }
        };
        let least = (fixed + header) as u16;
        let length = self.length.unwrap_or(least);
        if length < least {
            return Err(format!(
                "length {length} is too short; {name} takes at least {least} bytes"
            ));
        }
        let mut bytes = vec![0; usize::from(length)];
        self.write_transport(number, [source.1, destination.1], &mut bytes[fixed..]);
        match (source.0, destination.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                self.write_ipv4(number, [from.to_bits(), to.to_bits()], &mut bytes);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                if self.dont_fragment {
                    return Err("no router fragments IPv6; leave df out".to_owned());
                }
                self.write_ipv6(number, [from.to_bits(), to.to_bits()], &mut bytes);
            }
            _ => {}
        }
        self.with_packet(bytes)
    }

    fn write_ipv4(&self, number: u8, ends: [u32; 2], bytes: &mut [u8]) {
        let length = bytes.len() as u16;
        let mut ip = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
        ip.set_total_len(length);
        ip.set_ttl(self.ttl.unwrap_or(64));
        ip.set_protocol(number);
        ip.set_source(ends[0]);
        ip.set_destination(ends[1]);
        ip.fill_checksum();
        if self.dont_fragment {
            set_dont_fragment(bytes);
        }
    }

    /// Writes the fixed header, and has an echo message be one of ICMPv6.
    fn write_ipv6(&self, number: u8, ends: [u128; 2], bytes: &mut [u8]) {
        let is_echo = number == protocol::ICMP;
        let length = (bytes.len() - ipv6::HEADER_LEN) as u16;
        let mut ip = Ipv6::init(&mut bytes[..]);
        ip.set_payload_len(length);
        ip.set_next_header(if is_echo { protocol::ICMPV6 } else { number });
        ip.set_hop_limit(self.ttl.unwrap_or(64));
        ip.set_source(ends[0]);
        ip.set_destination(ends[1]);
        let echo = Icmpv6::new_checked(&mut bytes[ipv6::HEADER_LEN..]).filter(|_| is_echo);
        if let Some(mut message) = echo {
            message.set_kind(match self.reply {
                true => icmpv6::kind::ECHO_REPLY,
                false => icmpv6::kind::ECHO_REQUEST,
            });
            message.fill_checksum(ends[0], ends[1]);
        }
    }

    fn write_transport(&self, number: u8, ports: [u16; 2], transport: &mut [u8]) {
        if number != protocol::ICMP {
            transport[..2].copy_from_slice(&ports[0].to_be_bytes());
            transport[2..4].copy_from_slice(&ports[1].to_be_bytes());
        }
        let len = transport.len() as u16;
        match number {
            protocol::UDP => transport[4..6].copy_from_slice(&len.to_be_bytes()),
            protocol::TCP => {
                transport[12] = ((tcp::HEADER_LEN / 4) as u8) << 4;
                transport[13] = if self.flags == 0 { flags::SYN } else { self.flags };
                transport[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
            }
            _ => {
                let request =
                    if self.reply { icmp::kind::ECHO_REPLY } else { icmp::kind::ECHO_REQUEST };
                transport[0] = request;
                transport[4..6].copy_from_slice(&self.id.unwrap_or(1).to_be_bytes());
                let sum = checksum(transport);
                transport[2..4].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}

/// Sets the bit in the header of a packet, and corrects its checksum.
fn set_dont_fragment(bytes: &mut [u8]) {
    bytes[6] |= 0x40;
    bytes[10..12].fill(0);
    let sum = checksum(&bytes[..ipv4::HEADER_LEN]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The length of the link header, if the bytes are an Ethernet frame with IP.
fn link_header(bytes: &[u8]) -> Option<usize> {
    let kind = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let is_ip = |kind: u16, at: usize| {
        let version = bytes.get(at).map(|first| first >> 4);
        (kind, version) == (ethertype::IPV4, Some(4))
            || (kind, version) == (ethertype::IPV6, Some(6))
    };
    let tagged = ETHERNET_LEN + VLAN_LEN;
    match kind(ETHERNET_LEN - 2)? {
        0x8100 if is_ip(kind(tagged - 2)?, tagged) => Some(tagged),
        kind if is_ip(kind, ETHERNET_LEN) => Some(ETHERNET_LEN),
        _ => None,
    }
}

fn number<N: FromStr>(what: &str, text: &str) -> Result<N, String> {
    let most = match size_of::<N>() {
        1 => u16::from(u8::MAX),
        _ => u16::MAX,
    };
    text.parse().map_err(|_| format!("{what} {text}: write a number from 0 to {most}"))
}

fn flags_of(word: &str) -> Result<u8, String> {
    let flag = |name: &str| match name {
        "syn" => Ok(flags::SYN),
        "ack" => Ok(flags::ACK),
        "fin" => Ok(flags::FIN),
        "rst" => Ok(flags::RST),
        "psh" => Ok(flags::PSH),
        "urg" => Ok(0x20),
        _ => Err(format!(
            "{name:?} says nothing of a packet; write flags of tcp (syn, ack, fin, rst, psh, urg), \
             ttl N, length N, id N, reply, df, from inside, from outside, realm NAME or \
             b4 ADDRESS"
        )),
    };
    word.split(['+', ',', '-']).try_fold(0, |all, name| Ok(all | flag(name)?))
}

fn tunnel_end(word: &str, text: &str) -> Result<Ipv6Addr, String> {
    text.parse().map_err(|_| format!("{word} {text}: write the IPv6 address of a tunnel's end"))
}

fn end(text: &str, has_port: bool) -> Result<(IpAddr, u16), String> {
    let is_bare = text.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok();
    let parts = match is_bare {
        true => None,
        false => text.rsplit_once(':'),
    };
    let (address, port) = match parts {
        Some((_, _)) if !has_port => {
            return Err(format!(
                "{text}: icmp has no ports; write the address alone, and id N behind"
            ));
        }
        Some((address, port)) => (address, number("port", port)?),
        None if has_port && is_bare => {
            let address = text.trim_matches(['[', ']']);
            return Err(format!("{text} lacks a port; write [{address}]:PORT"));
        }
        None if has_port => {
            return Err(format!("{text} lacks a port; write {text}:PORT"));
        }
        None => (text, 0),
    };
    let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = match (inner, is_bare || has_port) {
        (Some(inner), true) => inner.parse::<Ipv6Addr>().map(IpAddr::V6).ok(),
        (None, true) if has_port => address.parse::<std::net::Ipv4Addr>().map(IpAddr::V4).ok(),
        _ => address.parse().ok(),
    };
    let wrong = || format!("{text} is no IP address{}", if has_port { " and port" } else { "" });
    Ok((parsed.ok_or_else(wrong)?, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::Config;
    use natgate_gateway::ipv6::Settings;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn none() -> Settings {
        Settings::default()
    }

    fn read(text: &str) -> PacketDescription {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_packet_has_what_was_said() {
        let PacketDescription { packet, from, realm, .. } = read(
            "tcp 10.0.0.5:4000 > 192.0.2.1:80 syn+ack ttl 7 length 100 df from outside realm a",
        );
        let ip = Ipv4::new_checked(&packet[..]).unwrap();
        assert!(ip.checksum_valid() && ip.dont_fragment());
        assert_eq!((ip.ttl(), ip.total_len(), ip.protocol()), (7, 100, protocol::TCP));
        assert_eq!(Ipv4Addr::from_bits(ip.source()).to_string(), "10.0.0.5");
        assert_eq!(packet[20..24], [0x0f, 0xa0, 0, 80]);
        assert_eq!((packet[33], from), (flags::SYN | flags::ACK, Some(Side::Outside)));
        assert_eq!(realm.as_deref(), Some("a"));
        assert_eq!(read("tcp 10.0.0.5:4000 > 192.0.2.1:80").packet[33], flags::SYN);
        let ping = read("icmp 10.0.0.5 > 192.0.2.1 id 7").packet;
        assert_eq!((ping[20], &ping[24..26], checksum(&ping[20..])), (8, &[0, 7][..], 0));
    }

    #[test]
    fn a_packet_of_ipv6_has_what_was_said() {
        let ends = "[2001:db8::5]:4000 > [64:ff9b::1]:80";
        let syn = read(&format!("tcp {ends} ttl 7 length 80")).packet;
        let ip = Ipv6::new_checked(&syn[..]).unwrap();
        assert_eq!((ip.hop_limit(), ip.total_len(), ip.next_header()), (7, 80, protocol::TCP));
        assert_eq!(Ipv6Addr::from_bits(ip.source()).to_string(), "2001:db8::5");
        assert_eq!((&syn[40..44], syn[53]), (&[0x0f, 0xa0, 0, 80][..], flags::SYN));
        let ping = read("icmp 2001:db8::5 > [64:ff9b::1] id 7 reply").packet;
        let ip = Ipv6::new_checked(&ping[..]).unwrap();
        let message = Icmpv6::new_checked(ip.payload()).unwrap();
        assert!(message.checksum_valid(ip.source(), ip.destination()));
        assert_eq!((message.kind(), &ping[44..46]), (129, &[0, 7][..]));
    }

    #[test]
    fn a_packet_in_a_tunnel_has_its_outer_header() {
        let inside = "udp 192.168.1.2:4000 > 192.0.2.1:53 b4 2001:db8:b4::1";
        let error = read(inside).probe(&Config::default(), &none()).unwrap_err();
        assert!(error.contains("no tunnel to 2001:db8:b4::1"), "{error}");
        let described = read(&format!("{inside} aftr 2001:db8:ffff::1"));
        let inner = described.packet.clone();
        let probe = described.probe(&Config::default(), &none()).unwrap();
        let outer = Ipv6::new_checked(&probe.packet[..]).unwrap();
        assert_eq!((outer.next_header(), outer.payload()), (4, &inner[..]));
        assert_eq!(Ipv6Addr::from_bits(outer.destination()).to_string(), "2001:db8:ffff::1");
        assert_eq!(probe.link.side, Side::Inside);
    }

    #[test]
    fn bytes_are_a_packet_or_a_frame() {
        let packet = read("udp 10.0.0.5:4000 > 192.0.2.1:53").packet;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let frame = [&[2; 12][..], &[8, 0], &packet].concat();
        let tagged = [&[2; 12][..], &[0x81, 0, 0, 7, 8, 0], &packet].concat();
        let packet6 = read("udp [2001:db8::5]:4000 > [64:ff9b::1]:53").packet;
        let frame6 = [&[2; 12][..], &[0x86, 0xdd], &packet6].concat();
        assert_eq!(read(&hex(&frame6)).packet, packet6);
        for bytes in [packet.clone(), frame, tagged] {
            let description = read(&format!("{} from inside", hex(&bytes)));
            assert_eq!(
                (description.packet, description.from),
                (packet.clone(), Some(Side::Inside))
            );
        }
        let spaced: Vec<String> = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(read(&spaced.join(" ")).packet, packet);
    }

    #[test]
    fn what_is_wrong_is_said_with_a_remedy() {
        let cases = [
            ("", "write protocol, source"),
            ("udp 10.0.0.5:4000 192.0.2.1:53", "write protocol, source"),
            ("gre 10.0.0.5 > 192.0.2.1", "none of udp, tcp and icmp"),
            ("udp 10.0.0.5 > 192.0.2.1:53", "write 10.0.0.5:PORT"),
            ("udp 2001:db8::5 > [64:ff9b::1]:53", "write [2001:db8::5]:PORT"),
            ("udp [2001:db8::5]:4 > [64:ff9b::1]:53 df", "no router fragments IPv6"),
            ("udp [2001:db8::5]:4 > [64:ff9b::1]:53 b4 ::1", "leave b4 and aftr out"),
            ("udp [2001:db8::5]:4 > [64:ff9b::1]:53 length 20", "at least 48 bytes"),
            ("icmp 10.0.0.5 > 2001:db8::1", "of two families"),
            ("icmp [2001:db8::5]:1 > 2001:db8::1", "write the address alone"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 b4 10.0.0.1", "the IPv6 address of a tunnel's end"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 aftr ::1", "write the other with b4"),
            ("udp 10.0.0.5:70000 > 192.0.2.1:53", "a number from 0 to 65535"),
            ("udp 10.0.0.500:1 > 192.0.2.1:53", "no IP address"),
            ("icmp 10.0.0.5:1 > 192.0.2.1", "write the address alone"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 syn", "udp has no flags"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 id 4", "these are of icmp"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 ttl", "write ttl N"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 ttl 256", "a number from 0 to 255"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 length 9", "at least 28 bytes"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 from above", "from inside or from outside"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 twice", "says nothing of a packet"),
            ("7000000000000000000000000000000000000000000000000000", "neither an IP packet"),
            ("6000000000000000000000000000000000000000000000000000", "26 bytes are no IPv6 packet"),
            ("450000000000000000000000000000000000000", "none of"),
            ("45000000000000000000000000000000000000000", "no whole bytes"),
            ("4500000000000000000000000000000000000000 ttl 3", "has its fields already"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<PacketDescription>().err().unwrap_or_default();
            let expected = if expected == "none of" { "write protocol, source" } else { expected };
            assert!(error.contains(expected), "{text}: {error}");
        }
        let unknown =
            read("udp 10.0.0.5:1 > 192.0.2.1:53 realm b").probe(&Config::default(), &none());
        assert!(unknown.unwrap_err().contains("there are: default"));
    }

    #[test]
    fn the_side_is_told_from_the_source() {
        let config = Config::default();
        let side = |text: &str| read(text).probe(&config, &none()).unwrap().link.side;
        assert_eq!(side("udp 10.0.0.5:1 > 192.0.2.1:53"), Side::Inside);
        assert_eq!(side("udp 192.0.2.1:53 > 10.0.0.5:1"), Side::Outside);
        assert_eq!(side("udp 192.0.2.1:53 > 10.0.0.5:1 from inside"), Side::Inside);
    }

    proptest! {
        /// Every text is a packet or an error, and every packet can be explained.
        #[test]
        fn nothing_that_is_written_panics(
            text in "((udp|tcp|icmp|[0-9a-f]{0,90}|>|ttl|b4|::5|10\\.0\\.0\\.5(:9)?|[ -~]{0,9}) )\
             {0,9}",
        ) {
            if let Ok(description) = text.parse::<PacketDescription>() {
                prop_assert!(description.packet.len() >= ipv4::HEADER_LEN);
                let _ = description.probe(&Config::default(), &none());
            }
        }
    }
}
