//! Descriptions of packets: `udp 10.0.0.5:4000 > 192.0.2.1:53`, or bytes in hexadecimal, with
//! options after them.

use natgate_engine::{Config, Side};
use natgate_gateway::{Link, Probe};
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN, ethertype};
use natgate_wire::tcp::flags;
use natgate_wire::{Ipv4, icmp, ipv4, protocol, tcp, udp};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
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
                if let Some(end) = [source, destination].into_iter().find(|end| is_ipv6(end)) {
                    return Err(format!("{end} is IPv6; trace explains IPv4 packets only"));
                }
                PacketOptions::read(rest)?.with_ends(protocol, source, destination)
            }
            _ => Err(format!(
                "{text:?} is no packet; write protocol, source, > and destination, {EXAMPLE}"
            )),
        }
    }
}

/// True for an address of IPv6, with or without a port.
fn is_ipv6(end: &str) -> bool {
    end.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok() || end.parse::<SocketAddrV6>().is_ok()
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
        if packet[0] >> 4 != 4 {
            return Err(
                "the bytes are neither an IPv4 packet, which begins with 4, nor an Ethernet frame \
                        with one; nothing else is translated"
                    .to_owned(),
            );
        }
        Ok(PacketDescription { packet, from: self.from, realm: self.realm })
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
        let least = (ipv4::HEADER_LEN + header) as u16;
        let length = self.length.unwrap_or(least);
        if length < least {
            return Err(format!(
                "length {length} is too short; {name} takes at least {least} bytes"
            ));
        }
        let mut bytes = vec![0; usize::from(length)];
        let mut ip = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
        ip.set_total_len(length);
        ip.set_ttl(self.ttl.unwrap_or(64));
        ip.set_protocol(number);
        ip.set_source(source.0.to_bits());
        ip.set_destination(destination.0.to_bits());
        ip.fill_checksum();
        if self.dont_fragment {
            set_dont_fragment(&mut bytes);
        }
        self.write_transport(number, [source.1, destination.1], &mut bytes[ipv4::HEADER_LEN..]);
        Ok(PacketDescription { packet: bytes, from: self.from, realm: self.realm })
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

/// The length of the link header, if the bytes are an Ethernet frame with IPv4.
fn link_header(bytes: &[u8]) -> Option<usize> {
    let kind = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let is_ipv4 = |at: usize| bytes.get(at).is_some_and(|first| first >> 4 == 4);
    let tagged = ETHERNET_LEN + VLAN_LEN;
    match kind(ETHERNET_LEN - 2)? {
        ethertype::IPV4 if is_ipv4(ETHERNET_LEN) => Some(ETHERNET_LEN),
        0x8100 if kind(tagged - 2) == Some(ethertype::IPV4) && is_ipv4(tagged) => Some(tagged),
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
             ttl N, length N, id N, reply, df, from inside, from outside or realm NAME"
        )),
    };
    word.split(['+', ',', '-']).try_fold(0, |all, name| Ok(all | flag(name)?))
}

fn end(text: &str, has_port: bool) -> Result<(Ipv4Addr, u16), String> {
    let (address, port) = match text.split_once(':') {
        Some((_, _)) if !has_port => {
            return Err(format!(
                "{text}: icmp has no ports; write the address alone, and id N behind"
            ));
        }
        Some((address, port)) => (address, number("port", port)?),
        None if has_port => {
            return Err(format!("{text} lacks a port; write {text}:PORT"));
        }
        None => (text, 0),
    };
    let address = address.parse();
    let address = address.map_err(|_| {
        format!("{text} is no IPv4 address{}", if has_port { " and port" } else { "" })
    })?;
    Ok((address, port))
}

impl PacketDescription {
    /// The packet with the link that it comes in by. If the description names no side, packets with
    /// the source address of a subscriber or of an inside network come from inside.
    ///
    /// # Errors A sentence if there is no such realm.
    pub fn probe(self, config: &Config) -> Result<Probe, String> {
        let Self { packet, from, realm } = self;
        let source = u32::from_be_bytes([packet[12], packet[13], packet[14], packet[15]]);
        let realm = match realm.as_deref() {
            None => 0,
            Some(name) => realm_of(config, name)?,
        };
        let inside = |realm: u16| {
            let network = config.inside_of(realm).network;
            let subscribers = config.subscribers_of(realm).iter();
            subscribers.chain(&network).any(|prefix| prefix.contains(source))
        };
        let from = from.unwrap_or_else(|| match inside(realm) {
            true => Side::Inside,
            false => Side::Outside,
        });
        Ok(Probe { link: Link::new(from, realm), packet })
    }
}

/// The number of a realm; number 0 is called `default`.
fn realm_of(config: &Config, name: &str) -> Result<u16, String> {
    let further = config.realms.iter().position(|realm| !realm.gone && realm.name == name);
    match further {
        Some(place) => Ok(place as u16 + 1),
        None if name == "default" => Ok(0),
        None => {
            let names =
                config.realms.iter().filter(|realm| !realm.gone).map(|realm| &realm.name[..]);
            let names: Vec<&str> = std::iter::once("default").chain(names).collect();
            Err(format!("there is no realm {name}; there are: {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> PacketDescription {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_packet_has_what_was_said() {
        let PacketDescription { packet, from, realm } = read(
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
    fn bytes_are_a_packet_or_a_frame() {
        let packet = read("udp 10.0.0.5:4000 > 192.0.2.1:53").packet;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let frame = [&[2; 12][..], &[8, 0], &packet].concat();
        let tagged = [&[2; 12][..], &[0x81, 0, 0, 7, 8, 0], &packet].concat();
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
            ("udp [2001:db8::5]:4000 > [64:ff9b::1]:53", "trace explains IPv4 packets only"),
            ("icmp 10.0.0.5 > 2001:db8::1", "2001:db8::1 is IPv6"),
            ("udp 10.0.0.5:70000 > 192.0.2.1:53", "a number from 0 to 65535"),
            ("udp 10.0.0.500:1 > 192.0.2.1:53", "no IPv4 address"),
            ("icmp 10.0.0.5:1 > 192.0.2.1", "write the address alone"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 syn", "udp has no flags"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 id 4", "these are of icmp"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 ttl", "write ttl N"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 ttl 256", "a number from 0 to 255"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 length 9", "at least 28 bytes"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 from above", "from inside or from outside"),
            ("udp 10.0.0.5:1 > 192.0.2.1:53 twice", "says nothing of a packet"),
            ("6000000000000000000000000000000000000000000000000000", "neither an IPv4 packet"),
            ("450000000000000000000000000000000000000", "none of"),
            ("45000000000000000000000000000000000000000", "no whole bytes"),
            ("4500000000000000000000000000000000000000 ttl 3", "has its fields already"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<PacketDescription>().err().unwrap_or_default();
            let expected = if expected == "none of" { "write protocol, source" } else { expected };
            assert!(error.contains(expected), "{text}: {error}");
        }
        let unknown = read("udp 10.0.0.5:1 > 192.0.2.1:53 realm b").probe(&Config::default());
        assert!(unknown.unwrap_err().contains("there are: default"));
    }

    #[test]
    fn the_side_is_told_from_the_source() {
        let config = Config::default();
        let side = |text: &str| read(text).probe(&config).unwrap().link.side;
        assert_eq!(side("udp 10.0.0.5:1 > 192.0.2.1:53"), Side::Inside);
        assert_eq!(side("udp 192.0.2.1:53 > 10.0.0.5:1"), Side::Outside);
        assert_eq!(side("udp 192.0.2.1:53 > 10.0.0.5:1 from inside"), Side::Inside);
    }

    proptest! {
        /// Every text is a packet or an error, and every packet can be explained.
        #[test]
        fn nothing_that_is_written_panics(
            text in "((udp|tcp|icmp|[0-9a-f]{0,60}|>|ttl|df|10\\.0\\.0\\.5(:9)?|[ -~]{0,9}) ){0,9}",
        ) {
            if let Ok(description) = text.parse::<PacketDescription>() {
                prop_assert!(description.packet.len() >= ipv4::HEADER_LEN);
                let _ = description.probe(&Config::default());
            }
        }
    }
}
