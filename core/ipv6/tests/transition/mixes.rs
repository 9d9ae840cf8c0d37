//! Several tables in one gateway: plain packets that need no session take the quick way beside
//! packets that do.

use crate::packets::*;
use crate::prefixes::{pref64, prefix};
use crate::world::{World, customer, dmr, lw4o6, map, map_rule, nat64, siit};
use natgate_engine::{Packet, Side};
use natgate_ipv6::softwire::{DsliteSettings, MapMode, SoftwireSettings};
use natgate_ipv6::{Fate, Pref64, Settings};
use std::net::Ipv4Addr;
use std::time::Duration;

const ROOM: usize = 128;
const REMOTE: &str = "198.51.100.7";
const RELAY: &str = "2001:db8:fffe::1";
const B4: &str = "2001:db8:b4::1";
const AFTR: &str = "2001:db8:fffd::1";
/// Addresses of a customer of lw4o6, of one of MAP-T, and of a host of SIIT.
const SHARED: &str = "203.0.113.7";
const MAPPED: &str = "192.0.2.18";
const SINGLE: &str = "198.18.5.5";
const PORT: u16 = 1232;

fn of_nat64() -> Pref64 {
    pref64("2001:db8:64::", 96)
}

fn of_siit() -> Pref64 {
    pref64("2001:db8:65::", 96)
}

fn embedded(prefix: Pref64, ipv4: &str) -> String {
    prefix.embed(ipv4.parse::<Ipv4Addr>().expect("an address")).to_string()
}

/// lw4o6, MAP-T, NAT64, SIIT and DS-Lite together.
fn world() -> World {
    let rule = map_rule("2001:db8:8000::", "192.0.2.0", 24, MapMode::Translation(dmr()));
    let softwire = SoftwireSettings { mtu: None, path_mtu: true };
    let dslite = DsliteSettings {
        address: AFTR.parse().expect("an address"),
        b4: vec![prefix("2001:db8:d5::", 48)],
        subscriber_length: 64,
        b4_change_interval: Duration::ZERO,
        softwire,
        static_hosts: Vec::new(),
    };
    World::new(Settings {
        nat64: nat64(of_nat64()).nat64,
        siit: siit(of_siit(), &[]).siit,
        map: map(&[(rule, None)]).map,
        dslite: Some(dslite),
        ..lw4o6(SHARED, None, &[(1, B4, RELAY)])
    })
}

/// Packets of a batch that go the quick way, from its first on.
fn quick(world: &mut World, from: Side, batch: &[Vec<u8>]) -> usize {
    let mut buffers: Vec<Vec<u8>> =
        batch.iter().map(|bytes| [&[0; ROOM], &bytes[..]].concat()).collect();
    let mut packets: Vec<Packet<'_>> =
        buffers.iter_mut().map(|buffer| Packet::new(buffer, ROOM)).collect();
    let mut fates = vec![Fate::Nothing; batch.len()];
    let count = world.translator.take_first_quick(from, &mut packets, &mut fates);
    assert!(fates[..count].iter().all(|fate| matches!(fate, Fate::Send(_))));
    count
}

#[test]
fn packets_without_sessions_take_the_quick_way_beside_all_tables() {
    let mut world = world();
    let rule = map_rule("2001:db8:8000::", "192.0.2.0", 24, MapMode::Translation(dmr()));
    let inner = four((SHARED, REMOTE), UDP, &udp((PORT, 53), 20));
    let host = embedded(of_siit(), SINGLE);
    let home = customer(&rule, MAPPED, 0x34);
    let inside = [
        tunneled((B4, RELAY), &inner),
        six((&home, &embedded(dmr(), REMOTE)), UDP, &udp((PORT, 53), 20)),
        six((&host, &embedded(of_siit(), REMOTE)), UDP, &udp((PORT, 53), 20)),
        six(("2001:db8:f::5", "2001:db8:9::7"), UDP, &udp((PORT, 53), 20)),
    ];
    assert_eq!(quick(&mut world, Side::Inside, &inside), inside.len());
    let outside = [
        four((REMOTE, SHARED), UDP, &udp((53, PORT), 20)),
        four((REMOTE, MAPPED), UDP, &udp((53, PORT), 20)),
        four((REMOTE, SINGLE), UDP, &udp((53, PORT), 20)),
        six(("2001:db8:9::7", "2001:db8:f::5"), UDP, &udp((53, PORT), 20)),
    ];
    assert_eq!(quick(&mut world, Side::Outside, &outside), outside.len());
    // These need sessions, or are refused.
    let behind = four(("192.0.0.2", REMOTE), UDP, &udp((PORT, 53), 20));
    let in_nat64 = embedded(of_nat64(), SINGLE);
    for (from, other) in [
        (Side::Inside, six(("2001:db8:f::5", &in_nat64), UDP, &udp((PORT, 53), 20))),
        (Side::Inside, tunneled(("2001:db8:d5::1", AFTR), &behind)),
        (Side::Inside, tunneled((&in_nat64, RELAY), &inner)),
        (Side::Outside, tunneled((B4, RELAY), &inner)),
        (Side::Outside, six(("2001:db8:9::7", AFTR), UDP, &udp((53, PORT), 20))),
        (Side::Outside, six(("2001:db8:9::7", &embedded(dmr(), REMOTE)), UDP, &udp((5, 6), 20))),
        (Side::Outside, four((REMOTE, "203.0.113.1"), UDP, &udp((53, PORT), 20))),
    ] {
        assert_eq!(
            quick(&mut world, from, std::slice::from_ref(&other)),
            0,
            "{from:?} {other:02x?}"
        );
    }
}
