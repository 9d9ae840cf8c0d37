//! Random settings, and random traffic of both families through them.

use crate::header6::with_header6;
use crate::prefixes::{address, pref64, prefix};
use crate::rng::Rng;
use crate::world::Seen;
use natgate_engine::{AddressRange, Allocation, Config, PoolConfig, Prefix, Side, SideConfig};
use natgate_ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_ipv6::{
    EamEntry, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6, Nptv6Settings, Settings, Side6,
    SiitSettings,
};
use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6};
use std::net::Ipv4Addr;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const ICMP: u8 = 1;
const IPV4: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// The external address, and the gateway's own address beside it.
const EXTERNAL: [u8; 4] = [203, 0, 113, 1];
const OWN4: [u8; 4] = [203, 0, 113, 254];
const REMOTES: [[u8; 4]; 3] = [[8, 8, 8, 8], [8, 8, 4, 4], [198, 51, 100, 7]];
const OWN6: &str = "2001:db8:aaaa::1";
const AFTR: &str = "2001:db8:ffff::1";
/// The network of hosts inside; it is not that of all hosts that send.
const HOMES: u128 = 0x2001_0db8_f000_0000_u128 << 64;
/// Hosts of NAT64, and subscribers of DS-Lite, each with ports of its own.
const HOSTS: usize = 14;
/// The first port of the first host, and ports of each.
const PORTS: (usize, usize) = (2000, 40);
/// Packets that left and are remembered.
const REMEMBERED: usize = 60;

/// Settings of a case, and its packets.
pub(crate) struct Traffic {
    pub(crate) settings: Settings,
    pub(crate) config: Config,
    /// True if packets turn round. Then a run may keep a new host until the next sweep whose packet
    /// the engine has refused: there is room for all hosts.
    pub(crate) turns: bool,
    rng: Rng,
    /// Packets that left, with the side that they left by.
    left: Vec<(Side, Vec<u8>)>,
}

impl Traffic {
    pub(crate) fn new(case: u64) -> Self {
        let mut rng = Rng(case);
        let turns = rng.chance(2);
        let config = config(&mut rng, turns);
        let settings = settings(&mut rng, turns);
        Self { settings, config, turns, rng, left: Vec::new() }
    }

    /// True if there are NAT64 and DS-Lite.
    pub(crate) fn has_both(&self) -> bool {
        self.settings.nat64.is_some() && self.settings.dslite.is_some()
    }

    /// A batch of packets that come in on a side.
    pub(crate) fn batch(&mut self) -> (Side, Vec<Vec<u8>>) {
        let side = self.rng.one_of(&[Side::Inside, Side::Inside, Side::Outside]);
        let count = 1 + self.rng.below(40);
        let mut packets: Vec<Vec<u8>> = Vec::new();
        for _ in 0..count {
            let packet = match self.rng.below(16) {
                0 if !packets.is_empty() => Some(packets[self.rng.below(packets.len())].clone()),
                1..7 => self.about_left(side),
                _ => None,
            };
            let packet = packet.unwrap_or_else(|| self.fresh(side));
            packets.push(self.broken(packet));
        }
        (side, packets)
    }

    /// Nanoseconds to the next batch.
    pub(crate) fn pause(&mut self) -> u64 {
        let seconds = self.rng.one_of(&[0, 0, 0, 0, 1, 5, 30, 70, 400]);
        seconds * SECOND + self.rng.next() % 1000
    }

    /// Remembers packets that left.
    pub(crate) fn learn(&mut self, seen: &Seen) {
        let left = seen.packets.iter().flatten();
        self.left.extend(left.map(|(departure, bytes)| (departure.side, bytes.clone())));
        let old = self.left.len().saturating_sub(REMEMBERED);
        self.left.drain(..old);
    }

    /// An answer to a packet that left by a side, or an error about it.
    fn about_left(&mut self, side: Side) -> Option<Vec<u8>> {
        let all: Vec<&Vec<u8>> =
            self.left.iter().filter(|(to, _)| *to == side).map(|(_, bytes)| bytes).collect();
        if all.is_empty() {
            return None;
        }
        let packet = all[self.rng.below(all.len())].clone();
        Some(match self.rng.below(5) {
            0 if packet[0] >> 4 == 6 => error6(&packet),
            0 => error4(&packet),
            _ => answer(&packet),
        })
    }

    /// A packet from a side without a history.
    fn fresh(&mut self, side: Side) -> Vec<u8> {
        let hosts = self.hosts();
        let rng = &mut self.rng;
        match (side, rng.below(20)) {
            (Side::Outside, 0..14) => {
                let remote = rng.one_of(&REMOTES);
                let to = rng.one_of(&[EXTERNAL, EXTERNAL, EXTERNAL, OWN4, [192, 0, 2, 7]]);
                let port = (PORTS.0 + rng.below(hosts * PORTS.1)) as u16;
                four(rng, (remote, to), (53, port))
            }
            (Side::Outside, _) => {
                let to = ["2001:db8:1::5", "2001:db8:f000::1", OWN6, "64:ff9b::808:808"];
                let to = address(rng.one_of(&to));
                six(rng, (address("2001:db8:9::9"), to), (53, 2000))
            }
            (_, 0..2) => {
                let source = [10, 0, 0, 1 + rng.below(2) as u8];
                let remote =
                    rng.one_of(&[REMOTES[0], if self.turns { EXTERNAL } else { REMOTES[1] }]);
                let port =
                    PORTS.0 + (2 * HOSTS + usize::from(source[3])) * PORTS.1 + rng.below(PORTS.1);
                four(rng, (source, remote), (port as u16, 53))
            }
            (_, 2..6) => self.other_family(),
            _ => self.numbered(),
        }
    }

    /// Hosts of NAT64 and subscribers of DS-Lite.
    fn hosts(&self) -> usize {
        if self.has_both() { 2 * HOSTS } else { HOSTS }
    }

    /// A packet from inside that NAT64 or DS-Lite has nothing to do with.
    fn other_family(&mut self) -> Vec<u8> {
        let rng = &mut self.rng;
        let sources = ["fd01:203:405::5", "2001:db8:e::7", "2001:db8:f000::1", "::1"];
        let to = [
            "2001:db8:9::9",
            "2001:db8:1::5",
            "2001:db8:64::808:808",
            OWN6,
            "ff02::1",
            "2001:db8:e::7",
        ];
        let ends = (address(rng.one_of(&sources)), address(rng.one_of(&to)));
        six(rng, ends, (5000, 53))
    }

    /// A packet from a host inside to a remote host of IPv4.
    fn numbered(&mut self) -> Vec<u8> {
        let hosts = self.hosts();
        let rng = &mut self.rng;
        let host = rng.below(HOSTS);
        let nat64 = self.settings.nat64.as_ref();
        let nat64 = nat64.filter(|_| self.settings.dslite.is_none() || rng.chance(2));
        let first = if nat64.is_some() { 0 } else { hosts - HOSTS };
        let port = (PORTS.0 + (first + host) * PORTS.1 + rng.below(PORTS.1)) as u16;
        let last = if self.turns { EXTERNAL } else { REMOTES[0] };
        let remote = rng.one_of(&[REMOTES[0], REMOTES[1], REMOTES[2], last]);
        let to = match remote {
            EXTERNAL => (PORTS.0 + rng.below(hosts * PORTS.1)) as u16,
            _ => rng.one_of(&[53, 80]),
        };
        // Three hosts in each network.
        let home = HOMES | ((host / 3) as u128) << 64;
        let host = home | (host as u128 % 3 + 1);
        let Some(nat64) = nat64 else {
            let inner = four(rng, ([192, 168, 0, 1 + port as u8 % 3], remote), (port, to));
            return tunneled(rng, (home | 1, address(AFTR)), &inner);
        };
        let prefix = nat64.prefixes[rng.below(nat64.prefixes.len())];
        let remote = if rng.chance(40) { [127, 0, 0, 1] } else { remote };
        let source = match rng.below(60) {
            0 => prefix.embed(Ipv4Addr::from(remote)).to_bits() ^ 1,
            1 => address("2001:db8:bad::1"),
            _ => host,
        };
        six(rng, (source, prefix.embed(Ipv4Addr::from(remote)).to_bits()), (port, to))
    }

    /// Breaks a packet now and then.
    fn broken(&mut self, mut packet: Vec<u8>) -> Vec<u8> {
        match self.rng.below(120) {
            0 => {
                let at = self.rng.below(packet.len());
                packet[at] ^= 1 << self.rng.below(8);
            }
            1 => packet.truncate(1 + self.rng.below(packet.len())),
            2 => packet.extend([7; 9]),
            3 if packet[0] >> 4 == 6 && packet.len() > 7 => packet[7] = 1,
            _ => {}
        }
        packet
    }
}

fn config(rng: &mut Rng, turns: bool) -> Config {
    let external = Ipv4Addr::from(EXTERNAL);
    let pool = PoolConfig {
        addresses: vec![AddressRange { first: external, last: external }],
        ports: (1024, 65_535),
        ..PoolConfig::default()
    };
    let mut config = Config {
        inside: SideConfig { mtu: Some(1500), silent: rng.chance(6), ..SideConfig::default() },
        outside: SideConfig {
            address: Some(Ipv4Addr::from(OWN4)),
            mtu: Some(rng.one_of(&[1400, 1500])),
            ..SideConfig::default()
        },
        pools: vec![pool],
        allocation: Allocation::Preserve,
        session_events: rng.chance(2),
        ..Config::default()
    };
    config.timeouts.hold_down = Duration::ZERO;
    // Own errors are limited by the numbers of hosts, which are left open.
    config.limits.icmp_errors_per_second = 1_000_000;
    config.limits.subscribers = Some(if turns { 100 } else { rng.one_of(&[2, 4, 100]) });
    config.limits.udp_ports = rng.one_of(&[2, 20, 1000]);
    config.limits.tcp_ports = rng.one_of(&[0, 20, 1000]);
    config.limits.sessions_per_mapping = rng.one_of(&[1, 64]);
    config
}

fn settings(rng: &mut Rng, turns: bool) -> Settings {
    let pair = Nptv6::new(prefix("fd01:203:405::", 48), prefix("2001:db8:1::", 48));
    let pair = pair.expect("the prefixes do not overlap");
    let side = |own: Option<&str>| Side6 {
        address: own.map(|own| (address(own).into(), 64)),
        gateway: None,
        mtu: 1500,
        icmp_errors: true,
    };
    let mut settings = Settings {
        configured: true,
        inside: side((!rng.chance(4)).then_some(OWN6)),
        outside: side(None),
        filter: rng.one_of(&[Filter::None, Filter::OutboundOnly]),
        siit: rng.chance(2).then(siit),
        nptv6: vec![Nptv6Settings { pair, icmp_errors: true }],
        ..Settings::default()
    };
    let (has_dslite, has_both) = (rng.chance(3), rng.chance(2));
    if has_dslite {
        settings.dslite = Some(DsliteSettings {
            subscriber_length: if rng.chance(5) { rng.one_of(&[64, 48]) } else { 128 },
            b4_change_interval: Duration::from_secs(rng.one_of(&[0, 60])),
            address: address(AFTR).into(),
            b4: vec![prefix("2001:db8:f000::", 48)],
            softwire: SoftwireSettings { mtu: None, path_mtu: false },
            static_hosts: Vec::new(),
        });
        if !has_both {
            return settings;
        }
    }
    let well_known = pref64("64:ff9b::", 96);
    let others = [pref64("2001:db8:122:300::", 56), pref64("2001:db8:200::", 40)];
    settings.nat64 = Some(Nat64Settings {
        prefixes: match rng.chance(2) {
            true => vec![well_known],
            false => vec![well_known, others[0], others[1]],
        },
        subscribers: rng.one_of(&[&[][..], &[prefix("2001:db8:f000::", 36)]]).to_vec(),
        subscriber_length: rng.one_of(&[48, 64, if turns { 64 } else { 127 }, 128]),
        non_global: rng.one_of(&[NonGlobal::Refuse, NonGlobal::Translate]),
        static_hosts: Vec::new(),
    });
    settings
}

fn siit() -> SiitSettings {
    let ipv4 = Prefix::new([192, 0, 2, 7].into(), 32);
    SiitSettings {
        prefixes: Vec::new(),
        maps: vec![
            EamEntry { ipv6: prefix("2001:db8:e::7", 128), ipv4 },
            EamEntry {
                ipv6: prefix("2001:db8:64::", 96),
                ipv4: Prefix::new([0, 0, 0, 0].into(), 0),
            },
        ],
        icmp_source_ipv4: Vec::new(),
        icmp_source_ipv6: Vec::new(),
        hairpin: Hairpin::Intrinsic,
        non_global: NonGlobal::Translate,
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Fills in a transport checksum over a pseudo header with this sum.
fn seal(protocol: u8, pseudo: u32, payload: &mut [u8]) {
    let at = match protocol {
        ICMP | ICMPV6 => 2,
        TCP => 16,
        UDP => 6,
        _ => return,
    };
    if payload.len() >= at + 2 {
        put(payload, at, 0);
        let value = match !fold(sum(payload, pseudo)) {
            0 if protocol == UDP => 0xffff,
            value => value,
        };
        put(payload, at, value);
    }
}

/// A transport header with these ports, and a payload.
fn transport(rng: &mut Rng, icmp: u8, ports: (u16, u16)) -> (u8, Vec<u8>) {
    let protocol = rng.one_of(&[UDP, UDP, UDP, TCP, TCP, icmp]);
    let len = rng.one_of(&[0, 1, 30, 30, 200, 1200, 1260, 1390, 1500]);
    let mut bytes: Vec<u8> = (0..20 + len).map(|_| rng.next() as u8).collect();
    put(&mut bytes, 0, ports.0);
    put(&mut bytes, 2, ports.1);
    match protocol {
        UDP => {
            let len = bytes.len() as u16;
            put(&mut bytes, 4, len);
        }
        TCP => (bytes[12], bytes[13]) = (0x50, rng.one_of(&[2, 2, 16, 16, 17, 4])),
        _ => {
            (bytes[0], bytes[1]) = (if icmp == ICMP { 8 } else { 128 }, 0);
            put(&mut bytes, 4, ports.0);
        }
    }
    (protocol, bytes)
}

/// An IPv4 packet.
fn four(rng: &mut Rng, (source, destination): ([u8; 4], [u8; 4]), ports: (u16, u16)) -> Vec<u8> {
    let (protocol, mut payload) = transport(rng, ICMP, ports);
    let ends = (u32::from_be_bytes(source), u32::from_be_bytes(destination));
    seal4(protocol, ends, &mut payload);
    if protocol == UDP && rng.chance(12) {
        put(&mut payload, 6, 0);
    }
    let field = rng.one_of(&[0, 0, 0, 0, 0x4000, 0x4000, 0x2000]);
    header4(ends, (protocol, field), &payload)
}

fn seal4(protocol: u8, ends: (u32, u32), payload: &mut [u8]) {
    let pseudo = match protocol {
        ICMP => 0,
        _ => pseudo_header(ends.0, ends.1, protocol, payload.len() as u16),
    };
    seal(protocol, pseudo, payload);
}

fn header4(ends: (u32, u32), (protocol, field): (u8, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len((20 + payload.len()) as u16);
    header.set_identification(payload.len() as u16);
    header.set_fragment_field(field);
    header.set_ttl(64);
    header.set_protocol(protocol);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    header.fill_checksum();
    bytes.extend(payload);
    bytes
}

/// An IPv6 packet.
fn six(rng: &mut Rng, ends: (u128, u128), ports: (u16, u16)) -> Vec<u8> {
    let (protocol, mut payload) = transport(rng, ICMPV6, ports);
    seal6(protocol, ends, &mut payload);
    if protocol == UDP && rng.chance(20) {
        put(&mut payload, 6, 0);
    }
    let mut next = protocol;
    if rng.chance(12) {
        let mut header = [0; 8];
        let (offset, more) = rng.one_of(&[(0, true), (64, false), (0, false)]);
        Fragment { next_header: next, offset, more, identification: 7 }.write(&mut header);
        payload = [&header[..], &payload].concat();
        next = 44;
    }
    if rng.chance(20) {
        payload = [&[next, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat();
        next = 60;
    }
    header6(ends, (next, rng.next() as u8), &payload)
}

fn seal6(protocol: u8, ends: (u128, u128), payload: &mut [u8]) {
    seal(protocol, pseudo_header_v6(ends.0, ends.1, protocol, payload.len() as u32), payload);
}

fn header6(ends: (u128, u128), (next, class): (u8, u8), payload: &[u8]) -> Vec<u8> {
    let mut bytes = with_header6(ends, next, payload);
    Ipv6::new_checked(&mut bytes[..]).expect("a whole packet").set_traffic_class(class);
    bytes
}

/// An IPv4 packet in a tunnel, now and then in fragments or with bytes behind it.
fn tunneled(rng: &mut Rng, ends: (u128, u128), inner: &[u8]) -> Vec<u8> {
    if rng.chance(12) {
        let mut header = [0; 8];
        Fragment { next_header: IPV4, offset: 0, more: true, identification: 9 }.write(&mut header);
        return header6(ends, (44, 0), &[&header[..], &inner[..16]].concat());
    }
    let behind = if rng.chance(12) { &[9; 3][..] } else { &[] };
    header6(ends, (IPV4, 0), &[inner, behind].concat())
}

/// The answer to a packet: its ends exchanged.
fn answer(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let is_six = bytes[0] >> 4 == 6;
    let (first, len) = if is_six { (8, 16) } else { (12, 4) };
    for at in first..first + len {
        bytes.swap(at, at + len);
    }
    let (protocol, at) = if is_six { (bytes[6], 40) } else { (bytes[9], 20) };
    bytes[if is_six { 7 } else { 8 }] = 64;
    if bytes.len() < at + 8 {
        return bytes;
    }
    match protocol {
        TCP | UDP => {
            let ports = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            bytes[at..at + 4].copy_from_slice(&[ports[2], ports[3], ports[0], ports[1]]);
        }
        ICMP if bytes[at] == 8 => bytes[at] = 0,
        ICMPV6 if bytes[at] == 128 => bytes[at] = 129,
        _ => {}
    }
    let (head, payload) = bytes.split_at_mut(at);
    if let Ok(header) = Ipv6::new_header_checked(&*head) {
        seal6(protocol, (header.source(), header.destination()), payload);
    } else if let Ok(mut header) = Ipv4::new_header_checked(head) {
        let ends = (header.source(), header.destination());
        header.fill_checksum();
        seal4(protocol, ends, payload);
    }
    bytes
}

/// An error from the receiver of a packet to its sender.
fn error6(about: &[u8]) -> Vec<u8> {
    let header = Ipv6::new_header_checked(about).expect("a packet that left");
    let ends = (header.destination(), header.source());
    let quoted = &about[..about.len().min(200)];
    let mut message = [&[1, 4, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    seal6(ICMPV6, ends, &mut message);
    header6(ends, (ICMPV6, 0), &message)
}

fn error4(about: &[u8]) -> Vec<u8> {
    let header = Ipv4::new_header_checked(about).expect("a packet that left");
    let ends = (header.destination(), header.source());
    let quoted = &about[..about.len().min(100)];
    let mut message = [&[3, 3, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    seal4(ICMP, ends, &mut message);
    header4(ends, (ICMP, 0), &message)
}
