//! Settings of the operator: static mappings, rules, limits, pooling, ports.

mod common;

use common::*;
use natgate_engine::{
    Allocation, Behavior, Change, Config, DropReason, Limits, Match, Pooling, Prefix, Rule,
    RuleAction, Side, StaticMapping, Verdict,
};
use natgate_wire::protocol;
use std::net::Ipv4Addr;

fn static_mapping(protocol: Option<u8>, internal: &str, external: &str) -> StaticMapping {
    let part = |text: &str| {
        let (address, port) = endpoint(text);
        (Ipv4Addr::from_bits(address), text.contains(':').then_some(port))
    };
    StaticMapping {
        protocol,
        internal: part(internal),
        external: part(external),
        ..StaticMapping::default()
    }
}

#[test]
fn a_static_port_admits_anybody_and_serves_all_remotes() {
    for mapping in [Behavior::EndpointIndependent, Behavior::AddressAndPortDependent] {
        let mut lab = Lab::new(&Config {
            mapping,
            filtering: Behavior::AddressAndPortDependent,
            statics: vec![static_mapping(
                Some(protocol::TCP),
                "172.31.0.80:8080",
                "203.0.113.1:2080",
            )],
            ..config()
        });
        let inward = lab.inward(&tcp(REMOTE, "203.0.113.1:2080", "S", 1, 0));
        assert_eq!(ends(&inward), (REMOTE.into(), "172.31.0.80:8080".into()));
        let out = lab.out(&tcp("172.31.0.80:8080", REMOTE, "SA", 7, 2));
        assert_eq!(ends(&out).0, "203.0.113.1:2080");
        let own = lab.external_of(&tcp("172.31.0.80:8080", "192.0.2.77:5", "S", 7, 0));
        assert_eq!(own, "203.0.113.1:2080");
        lab.wait_s(100_000.0);
        assert_eq!(lab.engine.sessions().count(), 0);
        assert_eq!(lab.engine.mappings().count(), 1);
        assert!(lab.events.is_empty());
    }
}

#[test]
fn a_static_address_maps_every_port_and_protocol() {
    let mut lab = Lab::new(&Config {
        statics: vec![static_mapping(None, "10.0.0.80", "198.18.0.80")],
        ..config()
    });
    let inward = lab.inward(&tcp(REMOTE, "198.18.0.80:22", "S", 1, 0));
    assert_eq!(ends(&inward).1, "10.0.0.80:22");
    assert_eq!(lab.external_of(&udp("10.0.0.80:53", REMOTE)), "198.18.0.80:53");
    let esp = |from: &str, to: &str| ip(50, endpoint(from).0, endpoint(to).0, &[9; 40]);
    assert_eq!(ends(&lab.inward(&esp("198.51.100.7", "198.18.0.80"))).1, "10.0.0.80");
    assert_eq!(ends(&lab.out(&esp("10.0.0.80", "198.51.100.8"))).0, "198.18.0.80");
    assert_eq!(lab.engine.mappings().count(), 4);
    lab.wait_s(100_000.0);
    assert_eq!(lab.engine.mappings().count(), 0);
    assert!(lab.events.is_empty());
}

#[test]
fn a_static_port_is_kept_from_dynamic_use() {
    let mut lab = Lab::new(&Config {
        pools: vec![pool("203.0.113.1", "203.0.113.1", (5000, 5001))],
        statics: vec![static_mapping(None, "10.0.0.80:1", "203.0.113.1:5000")],
        port_parity: false,
        ..config()
    });
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), "203.0.113.1:5001");
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.6:4000", REMOTE)), DropReason::PoolExhausted);
    let usage = lab.engine.pool_usage(0, protocol::UDP);
    assert_eq!((usage.free, usage.used, usage.reserved), (0, 1, 1));
}

#[test]
fn bypass_holds_both_ways_without_state() {
    let prefix = Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24);
    let mut lab = Lab::new(&Config {
        rules: vec![Rule::new(Match::Destination(prefix, 0), RuleAction::Bypass)],
        ..config()
    });
    assert_eq!(
        ends(&lab.out(&udp("8.8.8.8:4000", REMOTE))),
        ("8.8.8.8:4000".into(), REMOTE.into())
    );
    let back = lab.inward(&udp(REMOTE, "10.0.0.5:4000"));
    assert_eq!((ends(&back).1.as_str(), back[8]), ("10.0.0.5:4000", 63));
    assert_eq!(lab.refused(Side::Outside, &udp("192.0.2.9:1", "10.0.0.5:1")), DropReason::NotForUs);
    assert_eq!(lab.engine.mappings().count(), 0);
}

#[test]
fn a_rule_chooses_the_pool_and_each_pool_has_its_pair() {
    let mut second = pool("203.0.113.64", "203.0.113.95", (1024, 65535));
    second.name = "second".into();
    let prefix = Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24);
    let rule = Rule::new(Match::Destination(prefix, 0), RuleAction::Snat(1));
    let mut lab = Lab::new(&Config {
        pools: vec![pool("203.0.113.1", "203.0.113.32", (1024, 65535)), second],
        rules: vec![rule],
        ..config()
    });
    let address = |external: String| external.split_once(':').unwrap().0.to_string();
    let mut pairs = std::collections::BTreeSet::new();
    for port in 1..50 {
        let inner = format!("10.0.0.5:{port}");
        pairs.insert(address(lab.external_of(&udp(&inner, "192.0.2.9:53"))));
        pairs.insert(address(lab.external_of(&udp(&format!("10.0.0.5:{}", port + 100), REMOTE))));
    }
    assert_eq!(pairs.len(), 2, "{pairs:?}");
    lab.wait_s(600.0);
    assert_eq!(lab.removed().len(), 98);
}

#[test]
fn a_subscriber_counts_once_whatever_pools_it_uses() {
    let mut second = pool("203.0.113.64", "203.0.113.64", (1024, 65535));
    second.name = "second".into();
    let prefix = Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24);
    let rule = Rule::new(Match::Destination(prefix, 0), RuleAction::Snat(1));
    let mut lab = Lab::new(&Config {
        pools: vec![pool("203.0.113.1", "203.0.113.1", (1024, 65535)), second],
        rules: vec![rule],
        limits: Limits { subscribers: Some(1), ..Limits::default() },
        ..config()
    });
    lab.external_of(&udp("10.0.0.5:1", "192.0.2.9:53"));
    let refused = lab.refused(Side::Inside, &udp("10.0.0.6:1", "192.0.2.9:53"));
    assert_eq!(refused, DropReason::MappingTableFull);
    lab.external_of(&udp("10.0.0.5:2", REMOTE));
    let refused = lab.refused(Side::Inside, &udp("10.0.0.6:2", REMOTE));
    assert_eq!(refused, DropReason::MappingTableFull);
}

#[test]
fn soft_pairing_moves_on_when_an_address_is_full() {
    for (pooling, addresses) in [(Pooling::SoftPaired, 2), (Pooling::Paired, 1)] {
        let mut lab = Lab::new(&Config {
            pooling,
            pools: vec![pool("203.0.113.1", "203.0.113.2", (2000, 2009))],
            ..config()
        });
        let mut seen = std::collections::BTreeSet::new();
        for port in 0..20 {
            let (verdict, bytes) = lab
                .pass(Side::Inside, &tcp(&format!("10.0.0.5:{}", 3000 + port), REMOTE, "S", 1, 0));
            if verdict == Verdict::Forward(Side::Outside) {
                seen.insert(ends(&bytes).0.split_once(':').unwrap().0.to_string());
            }
        }
        assert_eq!(seen.len(), addresses, "{pooling:?}");
    }
}

#[test]
fn preserving_keeps_the_port_until_it_is_taken() {
    let mut lab = Lab::new(&Config { allocation: Allocation::Preserve, ..config() });
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), "203.0.113.1:4000");
    let other = lab.external_of(&udp("10.0.0.6:4000", REMOTE));
    assert_ne!(other, "203.0.113.1:4000");
}

#[test]
fn ports_keep_their_side_of_1024() {
    let mut lab = Lab::new(&Config {
        pools: vec![pool("203.0.113.1", "203.0.113.1", (1000, 1100))],
        port_parity: false,
        ..config()
    });
    let port = |external: String| external.split_once(':').unwrap().1.parse::<u16>().unwrap();
    for n in 0..24 {
        let low = port(lab.external_of(&udp(&format!("10.0.0.5:{}", 500 + n), REMOTE)));
        assert!((1000..1024).contains(&low));
        let high = port(lab.external_of(&udp(&format!("10.0.0.5:{}", 5000 + n), REMOTE)));
        assert!((1024..=1100).contains(&high));
    }
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:900", REMOTE)), DropReason::PoolExhausted);
    lab.out(&udp("10.0.0.5:9000", REMOTE));
}

#[test]
fn the_rate_of_new_mappings_is_a_bucket_of_one_second() {
    let mut limited = config();
    limited.limits.new_mappings_per_second = 10;
    let mut lab = Lab::new(&limited);
    let mut next = 1;
    let mut burst = |lab: &mut Lab| {
        let mut made = 0;
        for _ in 0..20 {
            next += 1;
            let (verdict, _) = lab.pass(Side::Inside, &udp(&format!("10.0.0.5:{next}"), REMOTE));
            made += u32::from(verdict == Verdict::Forward(Side::Outside));
        }
        made
    };
    assert_eq!(burst(&mut lab), 10);
    lab.wait_s(0.5);
    assert_eq!(burst(&mut lab), 5);
    lab.wait_s(10.0);
    assert_eq!(burst(&mut lab), 10);
    let quotas = lab.events.iter().filter(|e| matches!(e.change, Change::QuotaReached { .. }));
    assert_eq!(quotas.count(), 2, "at most one a second");
}

#[test]
fn a_session_too_many_is_dropped_in_either_direction() {
    let mut limited = config();
    limited.limits.sessions_per_mapping = 2;
    let mut lab = Lab::new(&limited);
    let external = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    lab.out(&udp("10.0.0.5:4000", "192.0.2.9:1"));
    let third = udp("10.0.0.5:4000", "192.0.2.9:2");
    assert_eq!(lab.refused(Side::Inside, &third), DropReason::SessionLimit);
    let third = udp("192.0.2.9:2", &external);
    assert_eq!(lab.refused(Side::Outside, &third), DropReason::SessionLimit);
    lab.out(&udp("10.0.0.5:4000", REMOTE));
}

#[test]
fn a_full_table_refuses_and_evicts_nobody() {
    let mut limited = config();
    limited.limits.mappings = Some(2);
    limited.limits.extra_sessions = Some(1);
    let mut lab = Lab::new(&limited);
    lab.out(&udp("10.0.0.5:1", REMOTE));
    lab.out(&udp("10.0.0.6:1", REMOTE));
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.7:1", REMOTE)), DropReason::MappingTableFull);
    lab.out(&udp("10.0.0.5:1", "192.0.2.9:1"));
    assert_eq!(
        lab.refused(Side::Inside, &udp("10.0.0.6:1", "192.0.2.9:1")),
        DropReason::SessionTableFull
    );
    lab.wait_s(301.0);
    lab.out(&udp("10.0.0.7:1", REMOTE));
}

#[test]
fn large_packets_that_may_not_be_fragmented_are_told_the_mtu() {
    let mut small = config();
    small.outside.mtu = Some(600);
    let mut lab = Lab::new(&small);
    let mut large = udp_with("10.0.0.5:4000", REMOTE, &[1; 700]);
    large[6] = 0x40;
    fill_header_checksum(&mut large);
    assert_eq!(lab.refused(Side::Inside, &large), DropReason::TooBig);
    let (_, _, error) = lab.sent.pop().unwrap();
    assert_eq!((error[20], error[21], error.len()), (3, 4, 576));
    assert_eq!(error[26..28], 600_u16.to_be_bytes());
    assert_eq!(lab.engine.mappings().count(), 0);
}

#[test]
fn there_is_room_for_so_many_subscribers() {
    let mut limited = config();
    limited.limits.subscribers = Some(2);
    let mut lab = Lab::new(&limited);
    lab.out(&udp("10.0.0.5:1", REMOTE));
    lab.out(&udp("10.0.0.6:1", REMOTE));
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.7:1", REMOTE)), DropReason::MappingTableFull);
    lab.out(&udp("10.0.0.5:2", REMOTE));
    lab.wait_s(301.0);
    lab.out(&udp("10.0.0.7:1", REMOTE));
}

/// Subscribers that come at once, as after a power cut, are spread over the addresses by their
/// number. A spread by their first ports would give some addresses many more than others.
#[test]
fn subscribers_are_spread_over_the_addresses() {
    let pools = vec![pool("203.0.113.1", "203.0.113.16", (1024, 65535))];
    let mut lab = Lab::new(&Config { pools, ..config() });
    let mut tenants = std::collections::BTreeMap::new();
    for round in 0..4 {
        for subscriber in 0..1600 {
            let source =
                format!("10.1.{}.{}:{}", subscriber / 250, subscriber % 250 + 1, round + 5000);
            let packet = udp(&source, REMOTE);
            let external = lab.external_of(&packet);
            let (address, _) = external.split_once(':').unwrap();
            *tenants.entry(address.to_owned()).or_insert(0) += u32::from(round == 3);
        }
    }
    assert_eq!(tenants.len(), 16);
    assert!(tenants.values().all(|&n| (97..=103).contains(&n)), "{tenants:?}");
}
