//! Packets by hand, and a replay of them.

use natgate_engine::{
    AddressRange, Config, Counters, Direction, DropReason, Event, Outcome, PoolConfig, Prefix,
    Side, SideConfig,
};
use natgate_gateway::ipv6::{
    EamEntry, Hairpin, Nat64Settings, NonGlobal, Pref64, Prefix6, Settings as Ipv6Settings, Side6,
    SiitSettings, Translator,
};
use natgate_gateway::replay::{Flush, Input, Observer, replay};
use natgate_gateway::{Settings, SideSettings};
use natgate_io::pcap::{Capture, Interface, Item, LinkType, Writer};
use natgate_wire::checksum::{self, pseudo_header, pseudo_header_v6};
use natgate_wire::{Ipv4, Ipv6, ipv6};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const OWN_INSIDE: &str = "2001:db8::1";
pub(crate) const OWN_OUTSIDE: &str = "2001:db8:ffff::1";
pub(crate) const OWN_IPV4: &str = "192.0.2.254";

pub(crate) fn v6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap_or_else(|_| panic!("{text}")).to_bits()
}

pub(crate) fn v4(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap_or_else(|_| panic!("{text}")).to_bits()
}

pub(crate) fn pref64(text: &str) -> Pref64 {
    let (address, len) = text.split_once('/').unwrap();
    Pref64::new(prefix6(address, len.parse().unwrap())).unwrap()
}

pub(crate) fn prefix6(address: &str, len: u8) -> Prefix6 {
    Prefix6 { address: address.parse().unwrap(), len }
}

/// The address that embeds an IPv4 one.
pub(crate) fn embedded(prefix: &str, address: &str) -> String {
    pref64(prefix).embed(address.parse().unwrap()).to_string()
}

/// Both sides with addresses of both families; one pool; no table.
pub(crate) fn settings() -> Settings {
    let outside: Ipv4Addr = OWN_IPV4.parse().unwrap();
    let engine = Config {
        outside: SideConfig {
            address: Some(outside),
            network: Some(Prefix::new(outside, 24)),
            mtu: Some(1500),
            ..SideConfig::default()
        },
        inside: SideConfig { mtu: Some(1500), ..SideConfig::default() },
        pools: vec![PoolConfig {
            name: String::from("default"),
            addresses: vec![AddressRange {
                first: Ipv4Addr::new(203, 0, 113, 1),
                last: Ipv4Addr::new(203, 0, 113, 1),
            }],
            ..PoolConfig::default()
        }],
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8)],
        ..Config::default()
    };
    let mut settings = Settings::new(engine, SideSettings::new("in"), SideSettings::new("out"));
    let side = |own: &str| Side6 { address: Some((own.parse().unwrap(), 64)), ..Side6::default() };
    settings.ipv6 = Ipv6Settings {
        configured: true,
        inside: side(OWN_INSIDE),
        outside: side(OWN_OUTSIDE),
        ..Ipv6Settings::default()
    };
    settings
}

pub(crate) fn with_nat64(prefixes: &[&str]) -> Settings {
    let mut settings = settings();
    settings.ipv6.nat64 = Some(Nat64Settings {
        prefixes: prefixes.iter().map(|prefix| pref64(prefix)).collect(),
        subscribers: Vec::new(),
        subscriber_length: 64,
        non_global: NonGlobal::Refuse,
        static_hosts: Vec::new(),
    });
    settings
}

/// Changes the MTU of the outside.
pub(crate) fn set_outside_mtu(settings: &mut Settings, mtu: u16) {
    settings.engine.outside.mtu = Some(mtu);
    settings.ipv6.outside.mtu = mtu;
}

pub(crate) fn siit(prefixes: &[&str], maps: &[(&str, u8, &str, u8)]) -> SiitSettings {
    let map = |&(ipv6, len6, ipv4, len4): &(&str, u8, &str, u8)| EamEntry {
        ipv6: prefix6(ipv6, len6),
        ipv4: Prefix::new(ipv4.parse().unwrap(), len4),
    };
    SiitSettings {
        prefixes: prefixes.iter().map(|prefix| pref64(prefix)).collect(),
        maps: maps.iter().map(map).collect(),
        icmp_source_ipv4: Vec::new(),
        icmp_source_ipv6: Vec::new(),
        hairpin: Hairpin::Intrinsic,
        non_global: NonGlobal::Refuse,
    }
}

/// An IPv6 packet of a transport protocol, whose checksum is filled in.
pub(crate) fn ip6(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    let (source, destination) = (v6(source), v6(destination));
    let start = pseudo_header_v6(source, destination, protocol, payload.len() as u32);
    fill(&mut payload, protocol, start);
    raw6(source, destination, protocol, &payload)
}

pub(crate) fn raw6(source: u128, destination: u128, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40 + payload.len()];
    bytes[40..].copy_from_slice(payload);
    let mut packet = Ipv6::init(&mut bytes[..]);
    packet.set_payload_len(payload.len() as u16);
    packet.set_next_header(protocol);
    packet.set_hop_limit(64);
    packet.set_source(source);
    packet.set_destination(destination);
    bytes
}

pub(crate) fn ip4(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    let (source, destination) = (v4(source), v4(destination));
    let start = match protocol {
        ICMP => 0,
        _ => pseudo_header(source, destination, protocol, payload.len() as u16),
    };
    fill(&mut payload, protocol, start);
    let mut bytes = vec![0; 20 + payload.len()];
    bytes[20..].copy_from_slice(&payload);
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::init(&mut bytes[..], 20);
    packet.set_total_len(total_len);
    packet.set_ttl(64);
    packet.set_protocol(protocol);
    packet.set_source(source);
    packet.set_destination(destination);
    packet.fill_checksum();
    bytes
}

fn fill(payload: &mut [u8], protocol: u8, start: u32) {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return,
    };
    if payload.len() >= at + 2 {
        payload[at..at + 2].fill(0);
        let sum = !checksum::fold(checksum::sum(payload, start));
        payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

pub(crate) fn udp(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    let len = (8 + data.len()) as u16;
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &len.to_be_bytes(), &[0, 0], data].concat()
}

pub(crate) fn tcp(from: u16, to: u16, flags: u8) -> Vec<u8> {
    let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0x10, 0, 0, 0, 0, 0];
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &rest].concat()
}

/// A segment with numbers, flags and data.
pub(crate) fn segment(ports: (u16, u16), numbers: (u32, u32), flags: u8, data: &str) -> Vec<u8> {
    let mut bytes = tcp(ports.0, ports.1, flags);
    bytes[4..8].copy_from_slice(&numbers.0.to_be_bytes());
    bytes[8..12].copy_from_slice(&numbers.1.to_be_bytes());
    bytes.extend(data.as_bytes());
    bytes
}

/// An echo message of a type, with identifier and data.
pub(crate) fn echo(kind: u8, identifier: u16, data: &[u8]) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    [&[kind, 0, 0, 0, high, low, 0, 1][..], data].concat()
}

/// An ICMP or ICMPv6 error that quotes a packet.
pub(crate) fn error(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0][..], &word.to_be_bytes(), quoted].concat()
}

/// The fragments of an IPv6 packet of a transport protocol, each of `size` bytes of payload.
pub(crate) fn fragments6(packet: &[u8], identification: u32, size: usize) -> Vec<Vec<u8>> {
    let header = Ipv6::new_checked(packet).unwrap();
    let (source, destination, next) = (header.source(), header.destination(), header.next_header());
    let parts: Vec<&[u8]> = header.payload().chunks(size).collect();
    let mut offset = 0;
    let mut all = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let more = number + 1 < parts.len();
        let mut payload = vec![0; 8];
        let fragment = ipv6::Fragment { next_header: next, offset, more, identification };
        fragment.write(&mut payload);
        payload.extend_from_slice(part);
        all.push(raw6(source, destination, ipv6::next::FRAGMENT, &payload));
        offset += part.len();
    }
    all
}

/// A packet that left: its side, and its bytes.
pub(crate) type Sent = (Side, Vec<u8>);

/// The results of a replay.
pub(crate) struct Outcomes {
    pub(crate) sent: Vec<Vec<Sent>>,
    pub(crate) events: Vec<Event>,
    /// The names of hosts and subscribers that events are about.
    pub(crate) counters: Counters,
}

impl Outcomes {
    pub(crate) fn dropped(&self) -> Vec<DropReason> {
        let all = DropReason::ALL.iter().copied();
        all.filter(|reason| self.counters.drops[*reason as usize] > 0).collect()
    }

    pub(crate) fn count(&self, direction: Direction, outcome: Outcome) -> (u64, u64) {
        let (way, outcome) = (direction as usize, outcome as usize);
        (self.counters.packets[way][outcome], self.counters.bytes[way][outcome])
    }
}

struct Events(Vec<Event>);

impl Observer for Events {
    fn event(&mut self, event: &Event, _: Option<&Translator>) -> io::Result<()> {
        self.0.push(*event);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A packet that comes in: its side, its time in seconds, its bytes.
pub(crate) type Came = (Side, f64, Vec<u8>);

/// Replays packets. The results of each are what leaves after it and before the next one.
pub(crate) fn run(settings: &Settings, packets: &[Came]) -> Outcomes {
    run_links(settings, LinkType::RAW, &[], packets)
}

pub(crate) fn run_links(
    settings: &Settings,
    link: LinkType,
    header: &[u8],
    packets: &[Came],
) -> Outcomes {
    let mut capture = Vec::new();
    let interface = || Interface { name: None, link, snaplen: 0 };
    let mut writer = Writer::new(&mut capture, &[interface(), interface()]).unwrap();
    for (number, (side, seconds, bytes)) in packets.iter().enumerate() {
        // A nanosecond more each, so that results are told apart by their times.
        let time = (seconds * 1e9) as u64 + number as u64;
        writer.packet(*side as u32, time, header, bytes).unwrap();
    }
    let mut output = Vec::new();
    let mut events = Events(Vec::new());
    let input = Input::single(Capture::new(&capture[..]));
    let report = replay(settings, [9; 32], input, &mut output, &mut events, Flush::AtEnd);
    report.end.unwrap();
    let mut sent = vec![Vec::new(); packets.len()];
    let mut capture = Capture::new(&output[..]);
    while let Some(item) = capture.next_item().unwrap() {
        if let Item::Packet(record) = item {
            let number = packets
                .iter()
                .enumerate()
                .rev()
                .find(|(number, came)| (came.1 * 1e9) as u64 + *number as u64 <= record.time);
            let side = [Side::Inside, Side::Outside][record.interface];
            sent[number.unwrap().0].push((side, capture.frame().to_vec()));
        }
    }
    Outcomes { sent, events: events.0, counters: report.counters }
}

/// Replays one packet.
pub(crate) fn one(settings: &Settings, side: Side, packet: &[u8]) -> Vec<Sent> {
    run(settings, &[(side, 1.0, packet.to_vec())]).sent.remove(0)
}

/// The only packet that left, which must have left by `side`.
pub(crate) fn single(sent: &[Sent], side: Side) -> &[u8] {
    let [(to, bytes)] = sent else { panic!("{} packets left: {sent:02x?}", sent.len()) };
    assert_eq!(*to, side);
    check(bytes);
    bytes
}

/// Checks the checksums of a packet that is no fragment.
pub(crate) fn check(bytes: &[u8]) {
    let (start, protocol, payload): (u32, u8, &[u8]) = match bytes[0] >> 4 {
        4 => {
            let packet = Ipv4::new_checked(bytes).unwrap();
            assert!(packet.checksum_valid());
            assert_eq!(usize::from(packet.total_len()), bytes.len());
            if packet.more_fragments() || packet.fragment_offset() > 0 {
                return;
            }
            let protocol = packet.protocol();
            let len = bytes.len() - packet.header_len();
            let start = match protocol {
                ICMP => 0,
                _ => pseudo_header(packet.source(), packet.destination(), protocol, len as u16),
            };
            (start, protocol, &bytes[packet.header_len()..])
        }
        _ => {
            let packet = Ipv6::new_checked(bytes).unwrap();
            assert_eq!(packet.total_len(), bytes.len());
            let walk = packet.walk().unwrap();
            if walk.fragment.is_some() {
                return;
            }
            let payload = &bytes[walk.transport..];
            let (source, destination) = (packet.source(), packet.destination());
            let len = payload.len() as u32;
            (pseudo_header_v6(source, destination, walk.protocol, len), walk.protocol, payload)
        }
    };
    if matches!(protocol, TCP | UDP | ICMP | ICMPV6) {
        assert_eq!(checksum::fold(checksum::sum(payload, start)), 0xffff, "{bytes:02x?}");
    }
}

pub(crate) fn ends6(bytes: &[u8]) -> (String, String) {
    let packet = Ipv6::new_header_checked(bytes).unwrap();
    let text = |address| Ipv6Addr::from_bits(address).to_string();
    (text(packet.source()), text(packet.destination()))
}

pub(crate) fn ends4(bytes: &[u8]) -> (String, String) {
    let packet = Ipv4::new_header_checked(bytes).unwrap();
    let text = |address| Ipv4Addr::from_bits(address).to_string();
    (text(packet.source()), text(packet.destination()))
}

pub(crate) fn ends(source: &str, destination: &str) -> (String, String) {
    (source.to_owned(), destination.to_owned())
}

/// The port at an offset of the transport header.
pub(crate) fn port(bytes: &[u8], at: usize) -> u16 {
    let header = if bytes[0] >> 4 == 4 { 20 } else { 40 };
    u16::from_be_bytes([bytes[header + at], bytes[header + at + 1]])
}
