//! Random bytes as packets of both families at the translator of IPv6, with NAT64, SIIT, NPTv6 and
//! the filter, with DS-Lite, lw4o6, MAP-E and MAP-T, or with a CLAT, and as messages of Neighbor
//! Discovery: nothing panics, and each packet that leaves is whole. Text is also read as bindings
//! of lw4o6: a refusal names lines that there are.
//!
//! The first byte of the input chooses the tables. Then come packets, each after three bytes: its
//! side, its family and its tunnel, and its length. Headers get a right version and length, because
//! most packets would be dropped for these alone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use natgate_control::config::parse_bindings;
use natgate_engine::{AddressRange, Config, Engine, Packet, PoolConfig, Side, Timestamp};
use natgate_ipv6::convert::HEADROOM;
use natgate_ipv6::softwire::{
    Binding, BindingTable, DsliteSettings, Lw4o6Settings, MapMode, MapParameters, MapRule,
    MapSettings, PortSets, SoftwireSettings,
};
use natgate_ipv6::{
    ClatSettings, EamEntry, Fate, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6, Nptv6Settings,
    Pref64, Prefix6, Settings, Side6, SiitSettings, Translator,
};
use natgate_wire::{Ipv4, Ipv6, ipv6, nd};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Longest packet of the input, and longest packet that leaves.
const LONGEST: usize = 2048;
const ROOM: usize = 1 << 17;
/// Bytes before packets of the engine's own.
const BEFORE: usize = natgate_ipv6::ERROR_ROOM;
/// The next header of IPv4 in IPv6.
const IPV4: u8 = 4;
const SECOND: u64 = 1_000_000_000;

fn prefix(text: &str, len: u8) -> Prefix6 {
    Prefix6 { address: text.parse().expect("an address"), len }
}

fn pref64(text: &str) -> Pref64 {
    Pref64::new(prefix(text, 96)).expect("a prefix of RFC 6052")
}

fn settings() -> Settings {
    let side = |address: &str| Side6 {
        address: Some((address.parse().expect("an address"), 64)),
        ..Side6::default()
    };
    let pair = Nptv6::new(prefix("fd00:1::", 48), prefix("2001:db8:9::", 48));
    let map = EamEntry {
        ipv6: prefix("2001:db8:3::", 120),
        ipv4: natgate_engine::Prefix::new(Ipv4Addr::new(192, 0, 2, 0), 24),
    };
    Settings {
        configured: true,
        inside: side("2001:db8:1::1"),
        outside: side("2001:db8:2::1"),
        filter: Filter::OutboundOnly,
        nat64: Some(Nat64Settings {
            prefixes: vec![pref64("64:ff9b::")],
            subscribers: Vec::new(),
            subscriber_length: 64,
            non_global: NonGlobal::Translate,
            static_hosts: Vec::new(),
        }),
        siit: Some(SiitSettings {
            prefixes: vec![pref64("2001:db8:64::")],
            maps: vec![map],
            icmp_source_ipv4: Vec::new(),
            icmp_source_ipv6: Vec::new(),
            hairpin: Hairpin::Intrinsic,
            non_global: NonGlobal::Translate,
        }),
        nptv6: vec![Nptv6Settings { pair: pair.expect("a pair"), icmp_errors: true }],
        ..Settings::default()
    }
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// A rule whose customers share addresses.
fn map(ipv6: &str, ipv4: [u8; 4], mode: MapMode) -> MapSettings {
    let rule = MapRule::new(MapParameters {
        ipv6: prefix(ipv6, 40),
        ipv4: natgate_engine::Prefix::new(ipv4.into(), 24),
        ea_length: 16,
        psid_offset: 6,
        psid: None,
        mode,
    });
    MapSettings { rule: rule.expect("a rule"), softwire: SOFTWIRE }
}

const SOFTWIRE: SoftwireSettings = SoftwireSettings { mtu: Some(1400), path_mtu: true };

/// Settings with all kinds of tunnels.
fn softwires() -> Settings {
    let end = address("2001:db8:ffff::2");
    let sets = PortSets::new(0, 4).expect("4 bits");
    let binding = |psid: u16| Binding {
        ipv4: Ipv4Addr::new(198, 51, 100, 10),
        sets,
        psid,
        b4: address("2001:db8:b4::1"),
        br: end,
    };
    let bindings = [binding(0), binding(1), binding(15)];
    let bindings = BindingTable::new(&bindings, end, 1).expect("bindings that agree");
    let dmr = Pref64::new(prefix("2001:db8:fffe::", 64)).expect("a prefix of RFC 6052");
    Settings {
        siit: None,
        dslite: Some(DsliteSettings {
            subscriber_length: 128,
            b4_change_interval: std::time::Duration::ZERO,
            address: address("2001:db8:ffff::1"),
            b4: vec![prefix("2001:db8:b4::", 48)],
            softwire: SOFTWIRE,
            static_hosts: Vec::new(),
        }),
        lw4o6: Some(Lw4o6Settings {
            address: end,
            bindings: Arc::new(bindings),
            hairpinning: true,
            icmp_errors: true,
            inbound_icmp: true,
            softwire: SOFTWIRE,
        }),
        map: vec![
            map(
                "2001:db8:8000::",
                [192, 0, 2, 0],
                MapMode::Encapsulation(address("2001:db8:ffff::3")),
            ),
            map("2001:db8:9000::", [192, 0, 3, 0], MapMode::Translation(dmr)),
        ],
        ..settings()
    }
}

/// Settings of a customer's side of 464XLAT.
fn clat() -> Settings {
    let subscribers = vec![natgate_engine::Prefix::new(Ipv4Addr::new(192, 168, 0, 0), 16)];
    let source = pref64("2001:db8:c::");
    let clat = ClatSettings { prefix: pref64("64:ff9b::"), source, subscribers };
    Settings { nat64: None, siit: None, clat: Some(clat), ..settings() }
}

/// Reads text as bindings.
fn read_bindings(text: &str) {
    let Err(problems) = parse_bindings(text, "bindings", Ipv6Addr::LOCALHOST) else { return };
    let lines = 1..=text.lines().count();
    assert!(!problems.is_empty());
    assert!(problems.iter().all(|one| one.line.is_some_and(|line| lines.contains(&line))));
}

/// Addresses that tables claim: a random address would reach none of them.
const SIX: [&str; 18] = [
    "2001:db8:1::5",
    "64:ff9b::c633:640a",
    "2001:db8:64::c633:640a",
    "2001:db8:3::7",
    "fd00:1::5",
    "2001:db8:9::5",
    "2001:db8:2::5",
    "2001:db8:1::1",
    "2001:db8:ffff::1",
    "2001:db8:ffff::2",
    "2001:db8:ffff::3",
    "2001:db8:b4::1",
    "2001:db8:b4::2",
    "2001:db8:8007:1200:0:c000:207:12",
    "2001:db8:9007:1200:0:c000:307:12",
    "2001:db8:fffe:0:c6:3364:a00::",
    "2001:db8:c::c0a8:102",
    "64:ff9b::c000:207",
];
const FOUR: [[u8; 4]; 8] = [
    [203, 0, 113, 1],
    [198, 51, 100, 10],
    [192, 0, 2, 7],
    [10, 0, 0, 5],
    [192, 168, 1, 2],
    [192, 0, 3, 7],
    [192, 0, 0, 1],
    [9, 9, 9, 9],
];

/// Gives a packet headers that are not dropped at once: one, or those of a tunnel, or of a fragment
/// in a tunnel.
fn dress(kind: u8, packet: &mut [u8]) {
    dress_outer(kind, packet);
    if kind & 6 != 6 || packet.len() < 48 {
        return;
    }
    packet[6] = IPV4;
    if kind & 8 == 0 {
        return dress_outer(0, &mut packet[40..]);
    }
    packet[6] = ipv6::next::FRAGMENT;
    (packet[40], packet[41]) = (IPV4, 0);
    packet[44..47].fill(0);
    if packet[42] == 0 && packet[43] & !1 == 0 {
        dress_outer(0, &mut packet[48..]);
    }
}

fn dress_outer(kind: u8, packet: &mut [u8]) {
    let len = packet.len();
    if kind & 2 != 0 && len >= 40 {
        packet[0] = 0x60 | packet[0] & 15;
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        for (at, number) in [(8, packet[8]), (24, packet[24])] {
            if let Some(text) = SIX.get(usize::from(number)) {
                let address: Ipv6Addr = text.parse().expect("an address");
                packet[at..at + 16].copy_from_slice(&address.octets());
            }
        }
    } else if len >= 20 {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        for (at, number) in [(12, packet[12]), (16, packet[16])] {
            if let Some(address) = FOUR.get(usize::from(number)) {
                packet[at..at + 4].copy_from_slice(address);
            }
        }
        if let Some(mut header) = Ipv4::new_checked(packet).ok() {
            header.fill_checksum();
        }
    }
}

/// A packet that leaves has the length that its header says.
fn check(packet: &[u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(6) => {
            let header = Ipv6::new_checked(packet).expect("a packet of IPv6");
            assert_eq!(header.total_len(), packet.len());
        }
        _ => {
            let header = Ipv4::new_checked(packet).expect("a packet of IPv4");
            assert_eq!(usize::from(header.total_len()), packet.len());
            assert!(header.checksum_valid());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = nd::read(data);
    if let Ok(text) = std::str::from_utf8(data) {
        read_bindings(text);
    }
    let external = Ipv4Addr::new(203, 0, 113, 1);
    let addresses = vec![AddressRange { first: external, last: external }];
    let pool = PoolConfig { addresses, ..PoolConfig::default() };
    let mut config = Config { pools: vec![pool], ..Config::default() };
    config.limits.mappings = Some(64);
    config.limits.subscribers = Some(64);
    config.limits.fragment_memory = 1 << 16;
    config.outside.address = Some(Ipv4Addr::new(203, 0, 113, 254));
    let [tables, data @ ..] = data else { return };
    let settings = match tables % 3 {
        0 => settings(),
        1 => softwires(),
        _ => clat(),
    };
    let translator = Translator::new(&settings, &mut config, [1; 32]).expect("good settings");
    let mut translator = translator.expect("settings of IPv6");
    let mut now = Timestamp(SECOND);
    let mut engine = Engine::new(&config, [1; 32], now).expect("a good configuration");
    let mut rest = data;
    while let [kind, high, low, others @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])) % LONGEST;
        let (bytes, others) = others.split_at(len.min(others.len()));
        rest = others;
        let mut buffer = [&[0; HEADROOM][..], bytes].concat();
        dress(*kind, &mut buffer[HEADROOM..]);
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let from = if kind & 1 == 0 { Side::Inside } else { Side::Outside };
        if let Fate::Send(departure) = translator.take(&mut engine, now, from, &mut packet) {
            check(packet.bytes());
            if let Some(cut) = departure.cut {
                let mut fragments = cut.fragments(packet.bytes());
                let mut fragment = vec![0; cut.limit];
                while let Some(len) = fragments.write_next(&mut fragment) {
                    check(&fragment[..len]);
                }
            }
        }
        while engine.poll_event().is_some() {}
        let mut made = vec![0; ROOM];
        while let Some((_, side, len)) = engine.poll_transmit(&mut made[BEFORE..]) {
            let mut packet = Packet::new(&mut made[..BEFORE + len], BEFORE);
            let realm = engine.transmit_realm();
            let to_host = side == Side::Inside && translator.realms().has(realm);
            if !to_host || translator.convert_own_to_host(realm, &mut packet).is_ok() {
                check(packet.bytes());
            }
        }
        while let Some((_, len)) = translator.poll_transmit(&mut made) {
            check(&made[..len]);
        }
        translator.sweep(&engine, now);
        now = now.plus(std::time::Duration::from_millis(u64::from(*kind) * 50));
    }
});
