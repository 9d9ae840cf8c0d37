//! Whole addresses in a pair: an address leads to one host at both nodes, from its first mapping to
//! the end of its hold-down.

mod common;

use common::*;
use natgate_engine::{
    AddressRange, Allocation, Config, Copied, CopyChange, DropReason, PoolConfig, Side,
    StaticMapping,
};
use natgate_wire::protocol::{DCCP, GRE};

const A: &str = "203.0.113.1";
const B: &str = "203.0.113.2";
const PEER: &str = "198.51.100.7";

fn whole() -> Config {
    let of_pool = pool(A, B, Allocation::ALL_PORTS);
    let pools = vec![PoolConfig { allocation: Some(Allocation::Address), ..of_pool }];
    Config { pools, ..config() }
}

/// A node of a pair that owns one of the two addresses.
fn node(config: &Config, own: &str) -> Lab {
    let mut lab = Lab::new(config);
    lab.engine.join_pair();
    for address in [A, B] {
        lab.engine.set_duty(range(address), if own == address { OWNER } else { PARTNER });
    }
    lab
}

fn gre(source: &str) -> Vec<u8> {
    let [from, to] = [source, PEER].map(|end| endpoint(end).0);
    ip(GRE, from, to, &[0, 0, 0x88, 0x0b, 1, 2, 3, 4])
}

fn udp_of(host: u8) -> Vec<u8> {
    udp(&format!("10.0.0.{host}:4000"), REMOTE)
}

fn is_full(lab: &mut Lab, packet: &[u8]) -> bool {
    lab.refused(Side::Inside, packet) == DropReason::PoolExhausted
}

#[test]
fn a_copied_address_is_its_hosts_after_a_take_over() {
    // Of GRE alone, too: an address stands for protocols without ports.
    for first in [udp_of(5), gre("10.0.0.5")] {
        let (mut a, mut b) = (node(&whole(), A), node(&whole(), B));
        a.out(&first);
        let mut copies = begin(&a, &mut b);
        let (copied, _) = follow(&mut a, &mut b, &mut copies);
        assert!(matches!(copied[..], [Copied::Made(_)]), "{copied:?}");
        // Another host has the address of the other node.
        assert_eq!(b.external_of(&udp_of(6)), format!("{B}:4000"));
        assert!(is_full(&mut b, &udp_of(7)));
        b.engine.set_duty(range(A), OWNER);
        assert!(is_full(&mut b, &udp_of(7)), "the address has a host");
        assert_eq!(b.external_of(&udp("10.0.0.5:4001", REMOTE)), format!("{A}:4001"));
        assert_eq!(ends(&b.out(&gre("10.0.0.5"))).0, A);
    }
}

#[test]
fn an_address_is_in_use_until_the_partner_has_forgotten_its_last_mapping() {
    for (packet, other) in [(udp_of(5), udp_of(6)), (gre("10.0.0.5"), gre("10.0.0.6"))] {
        let (mut a, mut b) = (node(&whole(), A), node(&whole(), B));
        a.out(&packet);
        let mut copies = begin(&a, &mut b);
        follow(&mut a, &mut b, &mut copies);
        a.wait_s(5_000.0);
        assert_eq!((a.engine.mappings().count(), a.engine.resting()), (0, 1));
        assert!(is_full(&mut a, &other), "the partner has a copy");
        let (_, ended) = follow(&mut a, &mut b, &mut copies);
        assert_eq!(b.engine.mappings().count(), 0);
        ended.into_iter().for_each(|port| a.engine.end_rest(port));
        assert_eq!(a.engine.resting(), 0);
        a.wait_s(115.0);
        assert!(is_full(&mut a, &other), "the hold-down of the address begins then");
        a.wait_s(10.0);
        assert!(ends(&a.out(&other)).0.starts_with(A));
        // The new host's record takes the address from the former one at the partner.
        let (copied, _) = follow(&mut a, &mut b, &mut copies);
        assert!(matches!(copied[..], [Copied::Made(_)]), "{copied:?}");
        b.engine.set_duty(range(A), OWNER);
        assert!(ends(&b.out(&udp_of(6))).0.starts_with(A));
    }
}

/// Of a move: the partner has not seen mappings that ended early.
#[test]
fn an_address_without_mappings_is_held_at_the_next_owner() {
    let (mut a, mut b) = (node(&whole(), A), node(&whole(), B));
    assert!(!a.engine.is_given_whole(0));
    a.out(&tcp("10.0.0.5:4000", REMOTE, "S", 1, 0));
    a.wait_s(250.0);
    let mut changes = Vec::new();
    a.engine.take_changes(&mut changes);
    for change in changes {
        if let CopyChange::Ended(_, port) = change {
            a.engine.end_rest(port);
        }
    }
    assert_eq!(a.engine.mappings().count(), 0);
    assert!(a.engine.is_given_whole(0), "its hold-down goes on");
    let mut ports = [0; 1024];
    ports[0] = 2;
    assert!(b.engine.hold_ports(A.parse().unwrap(), DCCP, &ports));
    b.external_of(&udp_of(6));
    b.engine.set_duty(range(A), OWNER);
    assert!(is_full(&mut b, &udp_of(7)));
    b.wait_s(125.0);
    assert_eq!(b.external_of(&udp_of(7)), format!("{A}:4000"));
}

/// Unanswered hosts that use protocols without ports: what gives way counts as free while it rests.
#[test]
fn addresses_that_gave_way_are_free_when_the_partner_has_forgotten_them() {
    let mut config = whole();
    config.limits.unanswered_kept = 0;
    config.pools[0].addresses =
        vec![AddressRange { last: "203.0.113.64".parse().unwrap(), ..range(A) }];
    let mut a = Lab::new(&config);
    a.engine.join_pair();
    a.engine.set_duty(config.pools[0].addresses[0], OWNER);
    for host in 1..=64 {
        a.out(&gre(&format!("10.1.0.{host}")));
    }
    assert!(is_full(&mut a, &gre("10.2.0.1")));
    a.wait_s(0.25);
    for _ in 0..3 {
        while a.engine.reclaim(a.now) {}
        assert!(is_full(&mut a, &gre("10.2.0.1")), "all rest");
        a.wait_s(0.25);
    }
    let gone = a.engine.counters().mappings_reclaimed;
    assert!((1..10).contains(&gone), "{gone}");
    let mut changes = Vec::new();
    a.engine.take_changes(&mut changes);
    for change in changes {
        if let CopyChange::Ended(_, port) = change {
            a.engine.end_rest(port);
        }
    }
    a.out(&gre("10.2.0.1"));
}

/// Packets of one flow may come to either node, which both have the static mapping.
#[test]
fn mappings_of_a_static_address_that_both_nodes_made_become_one() {
    let statics = vec![StaticMapping {
        external: (A.parse().unwrap(), None),
        internal: ([10, 0, 0, 9].into(), None),
        protocol: None,
        ..StaticMapping::default()
    }];
    let pools = vec![pool(A, B, (1024, 65_535))];
    let config = Config { pools, statics, ..config() };
    let (mut a, mut b) = (node(&config, A), node(&config, B));
    for lab in [&mut a, &mut b] {
        assert_eq!(lab.external_of(&udp("10.0.0.9:53", REMOTE)), format!("{A}:53"));
    }
    let mut copies = begin(&a, &mut b);
    let (copied, _) = follow(&mut a, &mut b, &mut copies);
    assert!(matches!(copied[..], [Copied::Made(_)]), "{copied:?}");
    assert_eq!(b.engine.mappings().count(), 1);
    // The partner hears of the end, and no port rests for it.
    a.wait_s(5_000.0);
    b.wait_s(5_000.0);
    assert_eq!((a.engine.mappings().count(), b.engine.mappings().count()), (0, 1));
    let (copied, ended) = follow(&mut a, &mut b, &mut copies);
    assert_eq!((copied.len(), ended.len(), a.engine.resting()), (0, 0, 0));
    assert_eq!(b.engine.mappings().count(), 0);
    assert_eq!(a.external_of(&udp("10.0.0.9:53", REMOTE)), format!("{A}:53"));
}
