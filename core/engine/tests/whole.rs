//! Pools that give out whole addresses (sections 5.58 to 5.66 of the specification; RFC 2663
//! section 4.1.1).

mod common;

use common::*;
use natgate_engine::{
    AddressRange, Allocation, Behavior, BlockId, Change, Config, DropReason, Engine, PoolChange,
    PoolConfig, Pooling, Side, StaticMapping, Timestamp, Verdict,
};
use natgate_wire::protocol::{GRE, ICMP, TCP, UDP};
use std::time::Duration;

const OTHER: &str = "198.51.100.9:53";

/// A configuration with one pool of whole addresses.
fn whole(first: &str, last: &str) -> Config {
    let of_pool = pool(first, last, Allocation::ALL_PORTS);
    let allocation = Some(Allocation::Address);
    Config { pools: vec![PoolConfig { allocation, ..of_pool }], ..config() }
}

fn gre(source: &str, destination: &str) -> Vec<u8> {
    ip(GRE, endpoint(source).0, endpoint(destination).0, &[0, 0, 0x88, 0x0b, 1, 2, 3, 4])
}

impl Lab {
    fn blocks(&mut self) -> (Vec<BlockId>, Vec<BlockId>) {
        let (mut assigned, mut released) = (Vec::new(), Vec::new());
        self.events.retain(|event| match event.change {
            Change::BlockAssigned(id) => {
                assigned.push(id);
                false
            }
            Change::BlockReleased(id) => {
                released.push(id);
                false
            }
            _ => true,
        });
        (assigned, released)
    }
}

#[test]
fn ports_stay_and_hosts_have_addresses_of_their_own() {
    for pooling in [Pooling::Paired, Pooling::SoftPaired, Pooling::Arbitrary] {
        let mut lab = Lab::new(&Config { pooling, ..whole("203.0.113.1", "203.0.113.2") });
        let first = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
        let address = address_of(&first).to_owned();
        assert_eq!(first, format!("{address}:4000"));
        for port in [1, 53, 1023, 1024, 65_535] {
            let inner = format!("10.0.0.5:{port}");
            let outer = format!("{address}:{port}");
            assert_eq!(lab.external_of(&tcp(&inner, REMOTE, "S", 1, 0)), outer);
            assert_eq!(lab.external_of(&udp(&inner, OTHER)), outer);
        }
        assert_eq!(lab.external_of(&gre("10.0.0.5", "192.0.2.9")), address);
        let second = lab.external_of(&udp("10.0.0.6:4000", REMOTE));
        assert_ne!(address_of(&second), address);
        assert!(second.ends_with(":4000"));
        let (assigned, released) = lab.blocks();
        assert_eq!((assigned.len(), released.len()), (2, 0));
        assert_eq!(assigned[0].ports, (1, 65_535));
        assert_eq!(assigned[0].external.to_string(), address);
        assert!(lab.created().is_empty());
    }
}

#[test]
fn a_third_host_waits_until_an_address_is_free() {
    let mut lab = Lab::new(&whole("203.0.113.1", "203.0.113.2"));
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    // A protocol without ports takes an address, too.
    let by_gre = lab.external_of(&gre("10.0.0.6", "192.0.2.9"));
    for packet in [udp("10.0.0.7:1", REMOTE), gre("10.0.0.7", "192.0.2.9")] {
        assert_eq!(lab.refused(Side::Inside, &packet), DropReason::PoolExhausted);
    }
    lab.blocks();
    // UDP ends after five minutes, other protocols earlier; then comes the hold-down.
    lab.wait_s(60.0);
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    lab.wait_s(290.0);
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    lab.wait_s(130.0);
    let (_, released) = lab.blocks();
    assert_eq!(released.len(), 1);
    assert_eq!(released[0].external.to_string(), by_gre);
    let third = lab.external_of(&udp("10.0.0.7:4000", REMOTE));
    assert_eq!(address_of(&third), by_gre);
}

/// A pool of 16 addresses of which unanswered subscribers keep none.
fn sixteen() -> Lab {
    let mut config = whole("203.0.113.1", "203.0.113.16");
    config.limits.unanswered_kept = 0;
    Lab::new(&config)
}

/// Forged sources take all addresses with mappings without ports. They give way like others.
#[test]
fn forged_sources_of_portless_mappings_leave_newcomers_addresses() {
    let mut lab = sixteen();
    for host in 1..=16 {
        lab.out(&gre(&format!("10.0.1.{host}"), "192.0.2.9"));
    }
    let newcomer = udp("10.0.2.1:4000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &newcomer), DropReason::PoolExhausted);
    lab.wait(Duration::from_millis(250));
    lab.out(&newcomer);
    assert_eq!(lab.engine.counters().subscribers_reclaimed, 1);
}

/// A mapping without a port that gives way leaves its address free at once.
#[test]
fn a_portless_mapping_that_gives_way_frees_its_address() {
    let mut lab = sixteen();
    let first = lab.external_of(&gre("10.0.1.1", "192.0.2.9"));
    for host in 2..=16 {
        lab.out(&udp(&format!("10.0.1.{host}:4000"), REMOTE));
    }
    lab.blocks();
    lab.wait(Duration::from_millis(250));
    let second = lab.external_of(&udp("10.0.2.1:4000", REMOTE));
    assert_eq!(lab.engine.counters().subscribers_reclaimed, 1);
    let (assigned, released) = lab.blocks();
    let released: Vec<String> = released.iter().map(|id| id.external.to_string()).collect();
    assert_eq!((released.len(), assigned.len()), (1, 1));
    assert_eq!(released[0], first);
    assert_eq!(address_of(&second), first);
}

#[test]
fn a_port_is_free_for_its_host_during_the_hold_down() {
    let mut lab = Lab::new(&whole("203.0.113.1", "203.0.113.1"));
    let first = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    lab.wait_s(310.0);
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), first);
    assert_eq!(lab.blocks().1, []);
    lab.wait_s(421.0);
    assert_eq!(lab.blocks().1.len(), 1);
}

#[test]
fn any_port_is_reached_as_the_filter_says() {
    let host = "10.0.0.5:4000";
    let mut lab = Lab::new(&whole("203.0.113.1", "203.0.113.1"));
    let to = |port: u16| format!("203.0.113.1:{port}");
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, &to(4000))), DropReason::NoMapping);
    lab.external_of(&udp(host, REMOTE));
    for port in [4000, 22, 65_535] {
        let arrived = lab.inward(&udp(OTHER, &to(port)));
        assert_eq!(ends(&arrived).1, format!("10.0.0.5:{port}"));
    }
    let arrived = lab.inward(&tcp(OTHER, &to(80), "S", 1, 0));
    assert_eq!(ends(&arrived).1, "10.0.0.5:80");
    assert_eq!(lab.external_of(&tcp("10.0.0.5:80", OTHER, "SA", 1, 2)), to(80));
    assert_eq!(ends(&lab.inward(&gre("192.0.2.77", "203.0.113.1"))).1, "10.0.0.5");
    let midway = tcp(OTHER, &to(81), "A", 1, 1);
    assert_eq!(lab.refused(Side::Outside, &midway), DropReason::TcpNotSyn);
    for filtering in [Behavior::AddressDependent, Behavior::AddressAndPortDependent] {
        let mut lab = Lab::new(&Config { filtering, ..whole("203.0.113.1", "203.0.113.1") });
        lab.external_of(&udp(host, REMOTE));
        assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, &to(22))), DropReason::Filtered);
    }
}

#[test]
fn remote_endpoints_get_half_of_a_hosts_quota() {
    let mut config = whole("203.0.113.1", "203.0.113.1");
    config.limits.udp_ports = 10;
    let mut lab = Lab::new(&config);
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    for port in 1..5 {
        lab.inward(&udp(OTHER, &format!("203.0.113.1:{port}")));
    }
    let sixth = udp(OTHER, "203.0.113.1:6");
    assert_eq!(lab.refused(Side::Outside, &sixth), DropReason::PortQuota);
    for port in 11..16 {
        lab.external_of(&udp(&format!("10.0.0.5:{port}"), REMOTE));
    }
    config.limits.udp_ports = 2000;
    config.limits.new_mappings_per_second = 10;
    let mut lab = Lab::new(&config);
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let scan: Vec<Verdict> = (1..20)
        .map(|port| lab.pass(Side::Outside, &udp(OTHER, &format!("203.0.113.1:{port}"))).0)
        .collect();
    let admitted = scan.iter().filter(|fate| **fate == Verdict::Forward(Side::Inside)).count();
    assert_eq!(admitted, 4, "{scan:?}");
    lab.external_of(&udp("10.0.0.5:4001", REMOTE));
}

#[test]
fn hosts_reach_each_other_by_their_addresses() {
    let mut lab = Lab::new(&whole("203.0.113.1", "203.0.113.2"));
    let first = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let second = lab.external_of(&udp("10.0.0.6:4000", REMOTE));
    let to = format!("{}:77", address_of(&second));
    let (verdict, bytes) = lab.pass(Side::Inside, &udp("10.0.0.5:4000", &to));
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    assert_eq!(ends(&bytes), (first, "10.0.0.6:77".into()));
}

#[test]
fn pings_keep_their_identifiers_and_zero_has_another() {
    let mut lab = Lab::new(&whole("203.0.113.1", "203.0.113.1"));
    let identifier = |bytes: &[u8]| u16::from_be_bytes([bytes[24], bytes[25]]);
    assert_eq!(identifier(&lab.out(&ping("10.0.0.5", "192.0.2.1", 7))), 7);
    assert_ne!(identifier(&lab.out(&ping("10.0.0.5", "192.0.2.1", 0))), 0);
    let protocols = [ICMP, UDP, TCP];
    let free = protocols.map(|protocol| lab.engine.pool_usage(0, protocol).free);
    assert_eq!(free, [65_533, 65_535, 65_535]);
}

#[test]
fn an_address_that_drains_leaves_and_its_host_moves() {
    let mut config = whole("203.0.113.1", "203.0.113.2");
    let mut lab = Lab::new(&config);
    let first = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let address = address_of(&first).parse().unwrap();
    config.pools[0].draining = vec![AddressRange { first: address, last: address }];
    let change = PoolChange::new(lab.engine.config(), &config).unwrap();
    lab.engine.change_pools(change).unwrap();
    lab.wait_s(1.0);
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), first);
    let moved = lab.external_of(&udp("10.0.0.5:4001", REMOTE));
    assert_ne!(address_of(&moved), address_of(&first));
    let inward = udp(OTHER, &format!("{}:22", address_of(&first)));
    assert_eq!(lab.refused(Side::Outside, &inward), DropReason::Filtered);
    // The host uses port 4000 at its former address.
    let inward = udp(OTHER, &format!("{}:4000", address_of(&moved)));
    assert_eq!(lab.refused(Side::Outside, &inward), DropReason::Filtered);
}

#[test]
fn contradictions_are_refused() {
    let refused = |change: &dyn Fn(&mut Config), says: &str| {
        let mut config = whole("203.0.113.1", "203.0.113.2");
        change(&mut config);
        let error = Engine::new(&config, [0; 32], Timestamp(0)).expect_err("a contradiction");
        assert!(error.message.contains(says), "{}", error.message);
    };
    refused(&|config| config.pools[0].ports = (1024, 65_535), "has ports 1 to 65535");
    refused(&|config| config.pools[0].excluded_ports = vec![(80, 80)], "has ports 1 to 65535");
    refused(&|config| config.pools[0].overloading = true, "overloaded");
    refused(&|config| config.mapping = Behavior::AddressDependent, "endpoint-independent");
    let part = StaticMapping {
        protocol: Some(TCP),
        internal: ("10.0.0.80".parse().unwrap(), Some(80)),
        external: ("203.0.113.1".parse().unwrap(), Some(80)),
        ..StaticMapping::default()
    };
    refused(&|config| config.statics = vec![part], "a part of 203.0.113.1");
}

#[test]
fn an_address_with_a_static_mapping_is_nobody_elses() {
    let mut config = whole("203.0.113.1", "203.0.113.2");
    config.statics = vec![StaticMapping {
        internal: ("10.0.0.80".parse().unwrap(), None),
        external: ("203.0.113.1".parse().unwrap(), None),
        ..StaticMapping::default()
    }];
    let mut lab = Lab::new(&config);
    assert_eq!(lab.external_of(&udp("10.0.0.5:9", REMOTE)), "203.0.113.2:9");
    let none = lab.refused(Side::Inside, &udp("10.0.0.6:9", REMOTE));
    assert_eq!(none, DropReason::PoolExhausted);
    assert_eq!(lab.external_of(&udp("10.0.0.80:9", REMOTE)), "203.0.113.1:9");
    lab.wait(Duration::from_secs(1));
}
