//! The quick way against the complete way: random packets, most of them plain, go through two equal
//! translators without state. One takes batches, in which packets may go the quick way; the other
//! takes packet by packet on the complete way. Fates, bytes, counters and own packets must be the
//! same.
//!
//! NATGATE_SEED sets the first case; a failing case prints its number.

#[path = "common/prefixes.rs"]
mod prefixes;
#[path = "common/rng.rs"]
mod rng;

use natgate_engine::{
    AddressRange, Config, Counters, Engine, Packet, PoolConfig, Prefix, Side, SideConfig, Timestamp,
};
use natgate_ipv6::convert::HEADROOM;
use natgate_ipv6::softwire::{
    Binding, BindingTable, DomainCounters, DsliteSettings, Lw4o6Settings, MapMode, MapParameters,
    MapRule, MapSettings, PortSets, SoftwireSettings,
};
use natgate_ipv6::{
    ClatSettings, ERROR_ROOM, EamEntry, Fate, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6,
    Nptv6Settings, Pairs, Pref64, Prefix6, Settings, Side6, SiitSettings, Translator,
};
use natgate_wire::{Ipv4, Ipv6, protocol};
use prefixes::{address, pref64, prefix};
use rng::Rng;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

const CASES: u64 = 400;
const PACKETS: usize = 120;
const START: Timestamp = Timestamp(1_000_000_000_000);
/// Packets in a batch at most.
const BATCH: usize = 7;
const OWN4: u32 = 0xcb00_71fe;
const EXTERNAL: u32 = 0xcb00_7101;
const OWN6: [&str; 2] = ["2001:db8:aaaa::1", "2001:db8:bbbb::1"];

/// Prefixes of SIIT: all lengths.
fn embeddings() -> [Pref64; 7] {
    [
        pref64("2001:db8:100::", 40),
        pref64("64:ff9b::", 96),
        pref64("2001:d00::", 32),
        pref64("2001:db8:122::", 48),
        pref64("2001:db8:123:300::", 56),
        pref64("2001:db8:124:4::", 64),
        pref64("2001:db8:125:4::", 96),
    ]
}

fn maps() -> [EamEntry; 4] {
    let map = |ipv6, len6, ipv4: [u8; 4], len4| EamEntry {
        ipv6: prefix(ipv6, len6),
        ipv4: Prefix::new(ipv4.into(), len4),
    };
    [
        map("2001:db8:e::", 120, [192, 0, 2, 0], 24),
        map("2001:db8:e::7", 128, [198, 51, 100, 7], 32),
        map("2001:db8:f::", 64, [10, 0, 0, 0], 8),
        map("2001:db8:e:1::", 124, [192, 0, 2, 16], 28),
    ]
}

/// Pairs of prefixes: internal and external, the length of both.
const PAIRS: [(&str, &str, u8, u8); 6] = [
    ("fd01:203:405::", "2001:db8:1::", 48, 48),
    ("fd01:203:500::", "2001:db8:2::", 40, 48),
    ("fd01:203:606:600::", "2001:db8:3:300::", 56, 56),
    ("fd01:203:607:7::", "2001:db8:4::", 64, 60),
    ("fd01:203:608:8:100::", "2001:db8:5:5:200::", 80, 80),
    ("fd02::", "2001:db9::", 32, 32),
];

fn settings(rng: &mut Rng) -> Settings {
    let side = |rng: &mut Rng, own: &str| Side6 {
        address: rng.chance(2).then(|| (address(own).into(), 64)),
        gateway: None,
        mtu: rng.one_of(&[1280, 1500]),
        icmp_errors: !rng.chance(4),
    };
    let mut settings = Settings {
        configured: true,
        inside: side(rng, OWN6[0]),
        outside: side(rng, OWN6[1]),
        forwarding: !rng.chance(4),
        ..Settings::default()
    };
    if rng.chance(30) {
        settings.filter = Filter::OutboundOnly;
    }
    let non_global = rng.one_of(&[NonGlobal::Refuse, NonGlobal::Translate]);
    settings.conversion.traffic_class = rng.one_of(&[None, None, Some(0), Some(0xbb)]);
    settings.conversion.service = rng.one_of(&[None, None, Some(9)]);
    settings.conversion.lowest_mtu = rng.one_of(&[1280, 1400]);
    if rng.chance(2) {
        let first = rng.below(7);
        let mut prefixes = embeddings()[first..].to_vec();
        prefixes.truncate(rng.below(4));
        let maps = if rng.chance(2) { maps().to_vec() } else { Vec::new() };
        settings.siit = Some(SiitSettings {
            prefixes,
            maps,
            icmp_source_ipv4: Vec::new(),
            icmp_source_ipv6: Vec::new(),
            hairpin: rng.one_of(&[Hairpin::Intrinsic, Hairpin::Simple, Hairpin::Off]),
            non_global,
        });
    }
    settings.nptv6 = pairs(rng);
    if rng.chance(3) {
        settings.nat64 = Some(Nat64Settings {
            prefixes: vec![pref64("2001:db8:6400::", 96)],
            subscribers: Vec::new(),
            subscriber_length: 64,
            non_global,
            static_hosts: Vec::new(),
        });
    }
    if rng.chance(2) {
        // Softwires alone, mostly.
        if !rng.chance(3) {
            (settings.siit, settings.nat64, settings.nptv6) = (None, None, Vec::new());
        }
        add_softwires(rng, &mut settings);
    }
    if settings.siit.is_none() && settings.lw4o6.is_none() && rng.chance(8) {
        settings.clat = Some(ClatSettings {
            prefix: pref64("64:ff9b::", 96),
            source: pref64("2001:db8:aaaa:1::", 96),
            subscribers: vec![Prefix::new([10, 0, 0, 0].into(), 8)],
        });
    }
    settings
}

/// Some pairs of prefixes.
fn pairs(rng: &mut Rng) -> Vec<Nptv6Settings> {
    let pairs = &PAIRS[rng.below(PAIRS.len() + 1)..];
    let pair = |&(internal, external, len, other): &(&str, &str, u8, u8)| Nptv6Settings {
        pair: Nptv6::new(prefix(internal, len), prefix(external, other)).expect("a pair"),
        icmp_errors: true,
    };
    pairs.iter().take(rng.below(5)).map(pair).collect()
}

fn config(rng: &mut Rng) -> Config {
    let external = Ipv4Addr::from_bits(EXTERNAL);
    let mut config = Config {
        outside: SideConfig {
            address: Some(Ipv4Addr::from_bits(OWN4)),
            mtu: Some(rng.one_of(&[1280, 1500])),
            ..SideConfig::default()
        },
        pools: vec![PoolConfig {
            addresses: vec![AddressRange { first: external, last: external }],
            ports: (1024, 65_535),
            ..PoolConfig::default()
        }],
        ..Config::default()
    };
    config.inside.network = rng.chance(3).then(|| Prefix::new([8, 8, 0, 64].into(), 26));
    config.tcp_mss = rng.one_of(&[None, None, Some(1300)]);
    config.limits.icmp_errors_per_second = 1_000_000;
    config
}

/// An IPv4 address: of a map, of the gateway, martian, private or any other.
fn ipv4(rng: &mut Rng) -> u32 {
    let any = rng.next() as u32;
    if !rng.chance(3) {
        return rng.one_of(&[0x0808_0000 | any & 0xff, 0x0900_0000 | any & 0xff_ffff]);
    }
    let of_map = 0xc000_0200 | any & 0x1f;
    let near = rng.one_of(&[0x0a00_0000, 0xc0a8_0000, 0xa9fd_0000, 0xa9fe_0000, 0x7f00_0000]);
    let shared = rng.one_of(&SHARED) | any & 0xf;
    let known = rng.one_of(&[OWN4, EXTERNAL, 0xc633_6407, 0xe000_0001, 0, u32::MAX, 0x0808_0808]);
    rng.one_of(&[any, of_map, of_map, shared, near | any & 0xff, known, 0x0808_0000 | any & 0xff])
}

/// Addresses of networks that are connected, of NAT64, of the CLAT, and of tunnels.
const NEAR: [&str; 8] = [
    "2001:db8:aaaa::77",
    "2001:db8:bbbb::77",
    "2001:db8:6400::808:808",
    "2001:db8:6400::a00:1",
    "2001:db8:aaaa:1::a00:5",
    "2001:db8:b4::1",
    "2001:db8:ffff::2",
    "2001:db8:ffff::3",
];

/// An IPv6 address: one that embeds an IPv4 address, of a map, of a pair, of the gateway, martian,
/// link-local or any other, and sometimes with a bit changed.
fn ipv6(rng: &mut Rng, settings: &Settings) -> u128 {
    let pairs = &settings.nptv6[..];
    let own = settings.siit.as_ref().map_or(&[][..], |siit| &siit.prefixes);
    let low = u128::from(rng.next());
    if rng.chance(9) {
        return address(rng.one_of(&NEAR));
    }
    let found = match rng.below(12) {
        0..5 => {
            let all = embeddings();
            let is_foreign = own.is_empty() || rng.chance(5);
            let prefix = rng.one_of(if is_foreign { &all } else { own });
            prefix.embed(Ipv4Addr::from_bits(ipv4(rng))).to_bits()
        }
        5 => {
            let map = rng.one_of(&maps());
            map.ipv6.first().to_bits() | low & 0xff
        }
        6..9 if !pairs.is_empty() => {
            let one = rng.one_of(pairs).pair;
            let prefix = if rng.chance(2) { one.internal() } else { one.external() };
            let subnet = rng.one_of(&[0, 0xffff, 7, 0xff]) << 64;
            let host = rng.one_of(&[low, 0, 1, u128::from(u64::MAX), 0xffff << 48, low >> 9]);
            prefix.first().to_bits() | subnet | host
        }
        6..10 => {
            let known =
                ["::", "::1", "::5", "fe80::1", "febf::1", "ff02::1", "::ffff:8.8.8.8", "fec0::1"];
            address(rng.one_of(&known))
        }
        10 => address(rng.one_of(&OWN6)),
        _ => rng.one_of(&[0x2001_0db8_0009_u128 << 80, 0xfd01_u128 << 112]) | low,
    };
    if rng.chance(20) { found ^ 1 << rng.below(128) } else { found }
}

/// The IPv4 addresses of customers: those of bindings, and those of rules of both kinds.
const SHARED: [u32; 5] = [0xc000_0200, 0xc633_6400, 0xcb00_7200, 0xcb00_7300, 0xcb00_7400];

/// Bindings of an address range, some with another end of the tunnel at the gateway.
fn bindings(rng: &mut Rng, relay: Ipv6Addr) -> Arc<BindingTable> {
    let sets = PortSets::new(rng.one_of(&[0, 6]), rng.one_of(&[0, 4])).expect("10 bits");
    let b4 = |number: u32| match number {
        // Ends that no packet may come from.
        3 => address(OWN6[1]),
        4 => relay.to_bits(),
        5 => address("fe80::7"),
        _ => address("2001:db8:b4::1") + u128::from(number),
    };
    let other = address("2001:db8:ffff::4").into();
    let binding = |number: u32| Binding {
        ipv4: Ipv4Addr::from_bits(SHARED[0] + number / sets.count()),
        sets,
        psid: (number % sets.count()) as u16,
        b4: b4(number).into(),
        br: if number % 3 == 1 { other } else { relay },
    };
    let first = rng.below(60) as u32;
    let bindings: Vec<Binding> = (first..100).map(binding).collect();
    Arc::new(BindingTable::new(&bindings, relay, 1).expect("a table"))
}

/// A rule of MAP.
fn rule(
    ((ipv6, len6), (ipv4, len4)): ((u128, u8), (u32, u8)),
    (ea_length, psid_offset, psid): (u8, u8, Option<(u8, u16)>),
    mode: MapMode,
) -> MapRule {
    let ipv6 = Prefix6 { address: ipv6.into(), len: len6 };
    let ipv4 = Prefix::new(Ipv4Addr::from_bits(ipv4), len4);
    let parameters = MapParameters { ipv6, ipv4, ea_length, psid_offset, psid, mode };
    MapRule::new(parameters).expect("a rule")
}

/// lw4o6 and MAP, each or both.
fn add_softwires(rng: &mut Rng, settings: &mut Settings) {
    let path_mtu = rng.chance(2);
    let softwire = SoftwireSettings { mtu: rng.one_of(&[None, Some(1400)]), path_mtu };
    let relay = address(rng.one_of(&[OWN6[0], "2001:db8:ffff::2"])).into();
    if rng.chance(2) {
        settings.lw4o6 = Some(Lw4o6Settings {
            address: relay,
            bindings: bindings(rng, relay),
            hairpinning: rng.chance(2),
            icmp_errors: rng.chance(2),
            inbound_icmp: rng.chance(2),
            softwire,
        });
    }
    let relay = MapMode::Encapsulation(address("2001:db8:ffff::3").into());
    let other = MapMode::Translation(pref64("2001:db8:777::", 64));
    let dmr = if rng.chance(2) { embeddings()[1] } else { rng.one_of(&embeddings()) };
    let wide = |ipv6: &str, place: usize| ((address(ipv6), 40), (SHARED[place], 24));
    let mut rules = Vec::new();
    if rng.chance(2) {
        rules.push(rule(wide("2001:db8:8000::", 1), (12, 6, None), relay));
    }
    if rng.chance(2) {
        let mode = MapMode::Translation(dmr);
        rules.push(rule(wide("2001:db8:9000::", 2), (12, rng.one_of(&[0, 6]), None), mode));
    }
    if rng.chance(2) {
        rules.push(rule(wide("2001:db8:a000::", 3), (12, 4, None), other));
    }
    if rng.chance(3) {
        // Rules of one customer each, which share an address.
        for psid in [2, 5, 9] {
            let ipv6 = address("2001:db8:c000::") | u128::from(psid) << 64;
            let prefixes = ((ipv6, 64), (SHARED[4] | 1, 32));
            let mode = rng.one_of(&[relay, other]);
            rules.push(rule(prefixes, (0, 6, Some((4, psid))), mode));
        }
    }
    settings.map = rules.into_iter().map(|rule| MapSettings { rule, softwire }).collect();
    if rng.chance(6) {
        settings.nat64 = None;
        let address = address("2001:db8:ffff::9").into();
        let (b4, static_hosts) = (Vec::new(), Vec::new());
        settings.dslite = Some(DsliteSettings {
            address,
            b4,
            subscriber_length: 128,
            b4_change_interval: Duration::ZERO,
            softwire,
            static_hosts,
        });
    }
}

/// A packet from a customer of a softwire, mostly from the right end of the tunnel.
fn from_customer(rng: &mut Rng, settings: &Settings) -> Option<Vec<u8>> {
    let (source, port) = (rng.one_of(&SHARED) | rng.next() as u32 & 0xf, rng.next() as u16);
    let destination = ipv4(rng);
    let of_binding = settings.lw4o6.as_ref().and_then(|one| one.bindings.find(source, port));
    let (mut customer, end) = if let Some(tunnel) = of_binding {
        (tunnel.customer, Some(tunnel.br))
    } else {
        let has = |map: &&MapSettings| map.rule.parameters().ipv4.contains(source);
        let rule = settings.map.iter().find(has)?.rule;
        let psid = rule.psid_of(port)?;
        let customer = rule.customer(Ipv4Addr::from_bits(source), psid).address.to_bits();
        match rule.parameters().mode {
            MapMode::Encapsulation(br) => (customer, Some(br.to_bits())),
            MapMode::Translation(dmr) => {
                let is_astray = rng.chance(8);
                let dmr = if is_astray { pref64("2001:db8:777::", 64) } else { dmr };
                let remote = dmr.embed(Ipv4Addr::from_bits(destination)).to_bits();
                let customer = if rng.chance(20) { customer ^ 1 } else { customer };
                let (next, mut payload) = payload(rng);
                with_port(rng, &mut payload, port);
                return Some(six(rng, (customer, remote), next, &payload));
            }
        }
    };
    let inner = four(rng, (source, destination), Some(port));
    if rng.chance(20) {
        customer ^= 1 << rng.below(64);
    }
    let mut end = end?;
    if rng.chance(6) {
        end = address(rng.one_of(&["2001:db8:ffff::2", "2001:db8:ffff::3", "2001:db8:ffff::4"]));
    }
    Some(six(rng, (customer, end), 4, &inner))
}

/// Puts a source port before a payload's rest, mostly.
fn with_port(rng: &mut Rng, payload: &mut [u8], port: u16) {
    if payload.len() >= 2 && !rng.chance(6) {
        payload[..2].copy_from_slice(&port.to_be_bytes());
    }
}

/// A protocol and a payload.
fn payload(rng: &mut Rng) -> (u8, Vec<u8>) {
    let protocol = match rng.below(12) {
        0..6 => protocol::UDP,
        6..11 => protocol::TCP,
        _ => rng.one_of(&[protocol::ICMP, protocol::ICMPV6, 50]),
    };
    let odd = [0, 7, 8, 19, 20, 1220, 1232, 1240, 1260, 1360, 1440, 1460, 1480];
    let len = if rng.chance(3) { rng.one_of(&odd) } else { rng.one_of(&[20, 26, 300]) };
    let mut payload: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
    if rng.chance(30) && len > 7 {
        payload[6..8].fill(0);
    }
    if protocol == protocol::TCP && len >= 24 && rng.chance(2) {
        // A SYN with a segment size.
        payload[12..14].copy_from_slice(&[0x60, 2]);
        payload[20..24].copy_from_slice(&[2, 4, 5, 0xb4]);
    }
    (protocol, payload)
}

fn hops(rng: &mut Rng) -> u8 {
    if rng.chance(5) { rng.one_of(&[0, 1, 2, 255]) } else { 64 }
}

fn four(rng: &mut Rng, (source, destination): (u32, u32), port: Option<u16>) -> Vec<u8> {
    let (protocol, mut payload) = payload(rng);
    if let Some(port) = port {
        with_port(rng, &mut payload, port);
    }
    let mut bytes = vec![0; 20];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_service(if rng.chance(3) { rng.one_of(&[1, 2, 3]) } else { rng.one_of(&[0, 0xb8]) });
    header.set_total_len((20 + payload.len()) as u16);
    header.set_identification(rng.next() as u16);
    header.set_fragment_field(if rng.chance(6) {
        rng.one_of(&[0x2000, 9, 0x8000])
    } else {
        rng.one_of(&[0, 0x4000])
    });
    header.set_ttl(hops(rng));
    header.set_protocol(protocol);
    header.set_source(source);
    header.set_destination(destination);
    header.fill_checksum();
    bytes.extend(payload);
    bytes
}

fn six(rng: &mut Rng, ends: (u128, u128), next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_traffic_class(if rng.chance(3) {
        rng.one_of(&[1, 2, 3])
    } else {
        rng.one_of(&[0, 0xb8])
    });
    header.set_payload_len(payload.len() as u16);
    header.set_next_header(next);
    header.set_hop_limit(hops(rng));
    header.set_source(ends.0);
    header.set_destination(if rng.chance(40) { ends.0 } else { ends.1 });
    bytes.extend(payload);
    bytes
}

/// A packet that is plain, or nearly so.
fn packet(rng: &mut Rng, settings: &Settings, side: Side) -> Vec<u8> {
    let is_inside = side == Side::Inside;
    let is_customers = is_inside && !rng.chance(3);
    let found = if is_customers { from_customer(rng, settings) } else { None };
    let is_ipv4 = if is_inside { rng.chance(8) } else { !rng.chance(3) };
    let mut bytes = match found {
        Some(bytes) => bytes,
        None if is_ipv4 => {
            let mut ends = (ipv4(rng), ipv4(rng));
            if rng.chance(2) {
                ends.1 = rng.one_of(&SHARED) | ends.1 & 0x5;
            }
            if rng.chance(25) {
                ends.0 = ends.1;
            }
            four(rng, ends, None)
        }
        None => {
            let ends = (ipv6(rng, settings), ipv6(rng, settings));
            let (protocol, payload) = payload(rng);
            six(rng, ends, protocol, &payload)
        }
    };
    match rng.below(40) {
        0 => bytes.extend([9; 5]),
        1 => bytes.truncate(rng.below(bytes.len())),
        2 => {
            let at = rng.below(bytes.len().min(68));
            bytes[at] ^= 1 << rng.below(8);
        }
        _ => {}
    }
    bytes
}

struct World {
    engine: Engine,
    translator: Translator,
    /// Packets that went the quick way.
    quick: usize,
}

impl World {
    fn new(settings: &Settings, config: &Config) -> Self {
        let mut config = config.clone();
        let translator = Translator::new(settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        Self { engine, translator, quick: 0 }
    }

    /// Takes packets together, or one by one on the complete way. Returns fates and bytes.
    fn take(&mut self, side: Side, batch: &[Vec<u8>], together: bool) -> Vec<(Fate, Vec<u8>)> {
        let Self { engine, translator, .. } = self;
        let mut buffers: Vec<Vec<u8>> =
            batch.iter().map(|bytes| [&[0xa5; HEADROOM], &bytes[..]].concat()).collect();
        let mut packets: Vec<Packet<'_>> =
            buffers.iter_mut().map(|buffer| Packet::new(buffer, HEADROOM)).collect();
        let mut fates = Vec::new();
        if together {
            let mut first = [Fate::Nothing; BATCH];
            let count = translator.take_first_quick(side, &mut packets, &mut first);
            fates.extend(&first[..count]);
            self.quick += count;
        }
        while together && fates.len() < packets.len() {
            let mut some = [Fate::Nothing; BATCH];
            let count = translator.take_some(
                engine,
                START,
                side,
                &mut packets[fates.len()..],
                &mut some[..],
            );
            fates.extend(&some[..count]);
        }
        if !together {
            let take = |packet| translator.take(engine, START, side, packet);
            fates = packets.iter_mut().map(take).collect();
        }
        // The bytes of a packet that does not leave are nobody's.
        let left = |(fate, packet): (Fate, &Packet<'_>)| match fate {
            Fate::Send(_) => (fate, packet.bytes().to_vec()),
            _ => (fate, Vec::new()),
        };
        fates.into_iter().zip(&packets).map(left).collect()
    }

    fn own(&mut self) -> Vec<(Side, Vec<u8>)> {
        let mut buffer = vec![0; ERROR_ROOM + 2000];
        let mut own = Vec::new();
        while let Some((side, len)) = self.translator.poll_transmit(&mut buffer) {
            own.push((side, buffer[..len].to_vec()));
        }
        own
    }

    fn counters(&self) -> ([Counters; 2], Vec<DomainCounters>) {
        let counters = [self.engine.counters().clone(), self.translator.counters()];
        (counters, self.translator.domain_counters().to_vec())
    }
}

/// Another configuration of the engine, other bindings, or other pairs of prefixes come into force
/// in both worlds.
fn change(rng: &mut Rng, settings: &mut Settings, config: &Config, worlds: [&mut World; 2]) {
    let mut other = config.clone();
    let own = [None, Some(OWN4), Some(0x0808_0008), Some(SHARED[0] | 1)];
    other.outside.address = rng.one_of(&own).map(Ipv4Addr::from_bits);
    other.tcp_mss = rng.one_of(&[None, Some(1300)]);
    let relay = address(rng.one_of(&["2001:db8:ffff::2", "2001:db8:ffff::5"])).into();
    let bindings = bindings(rng, relay);
    let is_exchange = rng.chance(2);
    let has_other_pairs = settings.nat64.is_none() && rng.chance(2);
    if has_other_pairs {
        settings.nptv6 = pairs(rng);
    }
    for World { translator, .. } in worlds {
        match is_exchange {
            true => drop(translator.exchange_bindings(Arc::clone(&bindings))),
            false => translator.renew(&other),
        }
        if has_other_pairs {
            translator.exchange_pairs(Pairs::new(&settings.nptv6).expect("no overlap"));
        }
    }
}

/// Compares both ways in one case; returns the number of packets that went the quick way.
fn compare(case: u64) -> usize {
    let mut rng = Rng(case);
    let (mut settings, config) = (settings(&mut rng), config(&mut rng));
    let (mut quick, mut complete) =
        (World::new(&settings, &config), World::new(&settings, &config));
    let mut count = 0;
    while count < PACKETS {
        if rng.chance(10) {
            change(&mut rng, &mut settings, &config, [&mut quick, &mut complete]);
        }
        let side = rng.one_of(&[Side::Inside, Side::Outside]);
        let some = 1 + rng.below(BATCH);
        let batch: Vec<Vec<u8>> = (0..some).map(|_| packet(&mut rng, &settings, side)).collect();
        let found = quick.take(side, &batch, true);
        let expected = complete.take(side, &batch, false);
        for ((bytes, found), expected) in batch.iter().zip(&found).zip(&expected) {
            assert!(
                found == expected,
                "case {case}: {settings:?}\nfrom {side:?}: {bytes:02x?}\n\
                 quick: {found:02x?}\ncomplete: {expected:02x?}"
            );
        }
        assert_eq!(quick.counters(), complete.counters(), "case {case}: counters");
        assert_eq!(quick.own(), complete.own(), "case {case}: own packets");
        count += some;
    }
    quick.quick
}

#[test]
fn the_quick_way_does_what_the_complete_way_does() {
    let first = std::env::var("NATGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = first.unwrap_or(0);
    let quick: usize = (first..first + CASES).map(compare).sum();
    let all = CASES as usize * PACKETS;
    assert!(quick * 40 > all, "{quick} of {all} packets went the quick way: too few");
}
