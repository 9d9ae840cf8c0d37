//! Ports that are overloaded when none is free (RFC 7857 section 3).

mod common;

use common::*;
use natgate_engine::{
    Allocation, BlockConfig, Change, Config, DropReason, Endpoint, PoolConfig, Side, StaticMapping,
};
use natgate_wire::protocol;

const OTHER: &str = "198.51.100.8:80";

/// One port of one address.
fn one_port() -> Config {
    let pool = PoolConfig { overloading: true, ..pool("203.0.113.1", "203.0.113.1", (5000, 5000)) };
    Config { pools: vec![pool], ..config() }
}

//= test rfc7857#section-3
#[test]
fn who_finds_no_port_shares_one_towards_another_remote() {
    let mut lab = Lab::new(&one_port());
    let shared = "203.0.113.1:5000";
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), shared);
    assert_eq!(lab.external_of(&udp("10.0.0.6:4000", OTHER)), shared);
    // The remote endpoints of replies tell the mappings apart.
    assert_eq!(ends(&lab.inward(&udp(REMOTE, shared))).1, "10.0.0.5:4000");
    assert_eq!(ends(&lab.inward(&udp(OTHER, shared))).1, "10.0.0.6:4000");
    assert_eq!(lab.external_of(&udp("10.0.0.6:4000", OTHER)), shared);
    let owner = |remote: &str| {
        let [external, remote] = [shared, remote].map(|text| {
            let end: std::net::SocketAddrV4 = text.parse().unwrap();
            Endpoint { address: *end.ip(), port: end.port() }
        });
        let mapping = lab.engine.mapping_towards(protocol::UDP, external, remote);
        mapping.map(|id| id.internal.address.to_string())
    };
    for (remote, host) in [(REMOTE, "10.0.0.5"), (OTHER, "10.0.0.6"), ("192.0.2.77:9", "10.0.0.5")]
    {
        assert_eq!(owner(remote).as_deref(), Some(host), "{remote}");
    }
    // The first mapping admits any remote endpoint as before. No two mappings have a session with
    // the same remote endpoint.
    assert_eq!(ends(&lab.inward(&udp("192.0.2.77:9", shared))).1, "10.0.0.5:4000");
    let taken = lab.refused(Side::Inside, &udp("10.0.0.7:4000", OTHER));
    assert_eq!(taken, DropReason::PoolExhausted);
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:4000", OTHER)), DropReason::Ambiguous);
    let usage = lab.engine.pool_usage(0, protocol::UDP);
    assert_eq!((usage.free, usage.used), (0, 1));
    // A query has no remote port, so it cannot share.
    lab.out(&ping("10.0.0.5", "198.51.100.7", 1));
    let query = ping("10.0.0.6", "198.51.100.8", 1);
    assert_eq!(lab.refused(Side::Inside, &query), DropReason::PoolExhausted);
}

#[test]
fn errors_find_their_way_through_a_shared_port() {
    let mut lab = Lab::new(&one_port());
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let sent = lab.out(&udp("10.0.0.6:4000", OTHER));
    let inward = lab.inward(&error("198.51.100.8", "203.0.113.1", 3, 3, &sent));
    assert_eq!(ends(&inward).1, "10.0.0.6");
    let received = lab.inward(&udp(OTHER, "203.0.113.1:5000"));
    let outward = lab.out(&error("10.0.0.6", "198.51.100.8", 3, 3, &received));
    assert_eq!(ends(&outward), ("203.0.113.1".into(), "198.51.100.8".into()));
}

#[test]
fn a_shared_port_is_free_when_the_last_has_gone() {
    let mut lab = Lab::new(&one_port());
    let shared = "203.0.113.1:5000";
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    lab.wait_s(200.0);
    lab.external_of(&udp("10.0.0.6:4000", OTHER));
    // The first mapping goes after 300 s, the other 200 s later.
    lab.wait_s(200.0);
    assert_eq!(lab.engine.mappings().count(), 1);
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, shared)), DropReason::Filtered);
    assert_eq!(ends(&lab.inward(&udp(OTHER, shared))).1, "10.0.0.6:4000");
    assert_eq!(lab.engine.pool_usage(0, protocol::UDP).used, 1);
    lab.wait_s(301.0);
    let usage = lab.engine.pool_usage(0, protocol::UDP);
    assert_eq!((usage.used, usage.held), (0, 1));
    lab.wait_s(121.0);
    assert_eq!(lab.engine.pool_usage(0, protocol::UDP).free, 1);
    let changes = lab.events.iter().map(|event| event.change);
    let made = changes.clone().filter(|change| matches!(change, Change::MappingCreated(_)));
    let gone = changes.filter(|change| matches!(change, Change::MappingRemoved(_)));
    assert_eq!((made.count(), gone.count()), (2, 2));
}

#[test]
fn ports_of_static_mappings_and_of_others_blocks_are_not_shared() {
    let mut fixed = StaticMapping::default();
    (fixed.internal.0, fixed.internal.1) = ("10.0.0.80".parse().unwrap(), Some(80));
    (fixed.external.0, fixed.external.1) = ("203.0.113.1".parse().unwrap(), Some(5000));
    let mut lab = Lab::new(&Config { statics: vec![fixed], ..one_port() });
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:1", REMOTE)), DropReason::PoolExhausted);

    let block = BlockConfig { size: 16, max_per_subscriber: 1, ..BlockConfig::default() };
    let pool = PoolConfig {
        overloading: true,
        allocation: Some(Allocation::Block(block)),
        ..pool("203.0.113.1", "203.0.113.1", (5000, 5015))
    };
    let mut lab = Lab::new(&Config { pools: vec![pool], ..config() });
    for port in 0..16 {
        lab.external_of(&udp(&format!("10.0.0.5:{}", 4000 + port), REMOTE));
    }
    lab.external_of(&udp("10.0.0.5:5000", OTHER));
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:5001", REMOTE)), DropReason::PortQuota);
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.6:1", OTHER)), DropReason::PoolExhausted);
}

/// A pool of few ports serves many flows, and all ports come back.
#[test]
fn a_pool_that_was_overloaded_leaks_nothing() {
    let pool = PoolConfig { overloading: true, ..pool("203.0.113.1", "203.0.113.2", (5000, 5007)) };
    let mut lab = Lab::new(&Config { pools: vec![pool], ..config() });
    for round in 0..3 {
        for flow in 0..300_u16 {
            let remote = format!("198.51.100.{}:{}", 1 + flow % 200, 1000 + flow);
            let packet = match flow % 3 {
                0 => tcp(&format!("10.0.1.{}:{}", flow % 100, 2000 + flow), &remote, "S", 1, 0),
                _ => udp(&format!("10.0.1.{}:{}", flow % 100, 2000 + flow), &remote),
            };
            lab.out(&packet);
        }
        assert_eq!(lab.engine.mappings().count(), 300, "round {round}");
        lab.wait_s(300.0 + 121.0);
        assert_eq!(lab.engine.mappings().count(), 0);
        for protocol in [protocol::TCP, protocol::UDP] {
            assert_eq!(lab.engine.pool_usage(0, protocol).free, 16);
        }
    }
}
