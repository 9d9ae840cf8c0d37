//! Random bytes as packets of both families at the translator of IPv6, with NAT64, SIIT, NPTv6 and
//! the filter, and as messages of Neighbor Discovery: nothing panics, and each packet that leaves
//! is whole.
//!
//! The input is packets, each after three bytes: its side and family, and its length. The header
//! gets a right version and length, because most packets would be dropped for these alone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use natgate_engine::{AddressRange, Config, Engine, Packet, PoolConfig, Side, Timestamp};
use natgate_ipv6::convert::HEADROOM;
use natgate_ipv6::{
    EamEntry, Fate, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6, Nptv6Settings, Pref64,
    Prefix6, Settings, Side6, SiitSettings, Translator,
};
use natgate_wire::{Ipv4, Ipv6, nd};
use std::net::{Ipv4Addr, Ipv6Addr};

const LONGEST: usize = 2048;
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

/// Addresses that tables claim: a random address would reach none of them.
const SIX: [&str; 8] = [
    "2001:db8:1::5",
    "64:ff9b::c633:640a",
    "2001:db8:64::c633:640a",
    "2001:db8:3::7",
    "fd00:1::5",
    "2001:db8:9::5",
    "2001:db8:2::5",
    "2001:db8:1::1",
];
const FOUR: [[u8; 4]; 4] = [[203, 0, 113, 1], [198, 51, 100, 10], [192, 0, 2, 7], [10, 0, 0, 5]];

/// Gives a packet a header that is not dropped at once.
fn dress(kind: u8, packet: &mut [u8]) {
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
    let external = Ipv4Addr::new(203, 0, 113, 1);
    let addresses = vec![AddressRange { first: external, last: external }];
    let pool = PoolConfig { addresses, ..PoolConfig::default() };
    let mut config = Config { pools: vec![pool], ..Config::default() };
    config.limits.mappings = Some(64);
    config.outside.address = Some(Ipv4Addr::new(203, 0, 113, 254));
    let translator = Translator::new(&settings(), &mut config, [1; 32]).expect("good settings");
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
        let mut made = [0; LONGEST];
        while engine.poll_transmit(&mut made).is_some() {}
        while let Some((_, len)) = translator.poll_transmit(&mut made) {
            check(&made[..len]);
        }
        translator.sweep(&engine, now);
        now = now.plus(std::time::Duration::from_millis(u64::from(*kind) * 50));
    }
});
