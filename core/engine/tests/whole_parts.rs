//! Whole addresses at an engine that is one of a pair, and shares the work of its node with other
//! engines: which host has an address, which engine gives it out, and when it is free.

mod common;

use common::*;
use natgate_engine::{
    Allocation, Config, CopyChange, Cursor, DropReason, Duty, Endpoint, Filter, PairPort,
    PoolConfig, Side, StaticMapping,
};
use natgate_wire::protocol::{DCCP, GRE};
use std::net::Ipv4Addr;

const A: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const ALL: std::ops::Range<usize> = 0..1024;

/// The port of DCCP that is held with an address.
const MARK: (u8, u16) = (DCCP, 1);

fn whole() -> Config {
    let of_pool = pool("203.0.113.1", "203.0.113.1", Allocation::ALL_PORTS);
    let pools = vec![PoolConfig { allocation: Some(Allocation::Address), ..of_pool }];
    Config { pools, ..config() }
}

/// One engine of two of a node. It may give the address out.
fn worker(gives: bool, duty: Duty) -> Lab {
    let mut lab = Lab::new(&whole());
    lab.engine.divide((0, 2), |_, _| true);
    if gives {
        lab.engine.own(A, ALL);
    }
    lab.engine.join_pair();
    lab.engine.set_duty(range("203.0.113.1"), duty);
    lab
}

fn udp_of(host: u8) -> Vec<u8> {
    udp(&format!("10.0.0.{host}:4000"), REMOTE)
}

fn tcp_of(host: u8) -> Vec<u8> {
    tcp(&format!("10.0.0.{host}:4000"), REMOTE, "S", 1, 0)
}

fn gre(host: u8) -> Vec<u8> {
    let [from, to] = [format!("10.0.0.{host}"), "198.51.100.7".into()].map(|end| endpoint(&end).0);
    ip(GRE, from, to, &[0, 0, 0x88, 0x0b, 1, 2, 3, 4])
}

/// True if a host that has no address gets none.
fn is_refused(lab: &mut Lab, host: u8) -> bool {
    lab.refused(Side::Inside, &udp_of(host)) == DropReason::PoolExhausted
}

/// The port that stands for the address.
fn address() -> PairPort {
    let external = Endpoint { address: A, port: 0 };
    PairPort { protocol: DCCP, external, remote: Ipv4Addr::UNSPECIFIED, number: 0 }
}

/// The ports and endpoints of mappings that have ended.
fn ended(lab: &mut Lab) -> Vec<PairPort> {
    let mut changes = Vec::new();
    lab.engine.take_changes(&mut changes);
    let port = |change| match change {
        CopyChange::Ended(_, port) => Some(port),
        _ => None,
    };
    changes.into_iter().filter_map(port).collect()
}

/// Removes all mappings.
fn clear(lab: &mut Lab) {
    let mut cursor = Cursor::default();
    while !lab.engine.clear_mappings(&mut cursor, 1000, &Filter::default()).1 {}
}

/// True if the mark of the address is held.
fn is_marked(lab: &Lab) -> bool {
    let mut taken = [0; 1024];
    assert_eq!(lab.engine.taken_ports(0, MARK.0, &mut taken), Some(A));
    taken[0] >> MARK.1 & 1 != 0
}

/// The engine of the one worker of the partner, which owns the address.
fn owner() -> Lab {
    let mut lab = Lab::new(&whole());
    lab.engine.join_pair();
    lab.engine.set_duty(range("203.0.113.1"), OWNER);
    lab
}

#[test]
fn an_address_goes_to_another_engine_when_nothing_of_it_is_used_or_rests() {
    for packet in [udp_of(5), tcp_of(5), gre(5)] {
        let mut lab = worker(true, OWNER);
        lab.out(&packet);
        assert!(lab.engine.uses_address(A));
        assert_eq!(lab.engine.cede_block(A, ALL), None, "a mapping has it");
        lab.engine.set_duty(range("203.0.113.1"), PARTNER);
        clear(&mut lab);
        let rests = ended(&mut lab);
        assert_eq!((rests.len(), told(&mut lab)), (1, (vec![5], vec![5])));
        assert!(lab.engine.uses_address(A));
        assert_eq!(lab.engine.cede_block(A, ALL), None, "it rests");
        rests.into_iter().for_each(|port| lab.engine.end_rest(port));
        assert!(!lab.engine.uses_address(A));
        assert_eq!(lab.engine.cede_block(A, 0..1023), None, "a part of it");
        assert_eq!(lab.engine.cede_block(A, ALL), Some(vec![MARK]));
        assert!(!lab.engine.owns(A, 0) && !lab.engine.owns(A, 1023));
        assert!(is_marked(&lab), "until the other engine holds it");
    }
}

#[test]
fn a_copied_address_gives_out_nothing_before_the_engine_has_it() {
    for first in [udp_of(5), gre(5)] {
        let (mut of_owner, mut lab) = (owner(), worker(false, PARTNER));
        of_owner.out(&first);
        let mut copies = begin(&of_owner, &mut lab);
        follow(&mut of_owner, &mut lab, &mut copies);
        assert_eq!(told(&mut lab), (vec![5], vec![]));
        lab.engine.set_duty(range("203.0.113.1"), OWNER);
        let further = udp("10.0.0.5:4001", REMOTE);
        assert_eq!(lab.refused(Side::Inside, &further), DropReason::PoolExhausted);
        assert!(is_refused(&mut lab, 6));
        lab.engine.own_block(A, ALL, &[MARK]);
        assert_eq!(lab.external_of(&further), "203.0.113.1:4001");
        assert!(is_refused(&mut lab, 6));
        assert!(lab.engine.owns(A, 0) && lab.engine.owns(A, 1023));
    }
}

/// The engine of the host does not give the address out.
#[test]
fn a_copied_address_is_released_with_its_last_mapping() {
    let (mut of_owner, mut lab) = (owner(), worker(false, PARTNER));
    [udp_of(5), tcp_of(5), gre(5)].iter().for_each(|packet| drop(of_owner.out(packet)));
    let mut copies = begin(&of_owner, &mut lab);
    follow(&mut of_owner, &mut lab, &mut copies);
    assert_eq!((lab.engine.mappings().count(), told(&mut lab)), (3, (vec![5], vec![])));
    of_owner.wait_s(1_000.0);
    follow(&mut of_owner, &mut lab, &mut copies);
    assert_eq!(lab.engine.mappings().count(), 0);
    assert_eq!(told(&mut lab), (vec![], vec![5]));
    assert!(!lab.engine.uses_address(A));
}

/// The hold-down begins, although the engine has got the address since the last mapping ended.
#[test]
fn an_address_without_a_host_is_held_after_its_last_rest() {
    for packet in [udp_of(5), tcp_of(5), gre(5)] {
        let (mut of_owner, mut lab) = (owner(), worker(false, PARTNER));
        of_owner.out(&packet);
        let mut copies = begin(&of_owner, &mut lab);
        follow(&mut of_owner, &mut lab, &mut copies);
        clear(&mut lab);
        let rests = ended(&mut lab);
        assert_eq!(told(&mut lab), (vec![5], vec![5]));
        lab.engine.own_block(A, ALL, &[]);
        lab.engine.set_duty(range("203.0.113.1"), OWNER);
        lab.wait_s(200.0);
        assert!(is_refused(&mut lab, 6), "the partner has a copy");
        rests.into_iter().for_each(|port| lab.engine.end_rest(port));
        lab.wait_s(115.0);
        assert!(is_refused(&mut lab, 6), "the hold-down goes on");
        lab.wait_s(10.0);
        assert_eq!(lab.external_of(&udp_of(6)), "203.0.113.1:4000");
    }
}

#[test]
fn a_guarded_address_is_given_to_nobody_and_held_afterwards() {
    let mut lab = worker(true, PARTNER);
    assert!(lab.engine.guard(address()));
    assert!(!lab.engine.uses_address(A), "by itself");
    lab.engine.set_duty(range("203.0.113.1"), OWNER);
    assert!(is_refused(&mut lab, 6));
    assert_eq!(lab.engine.cede(0, None, false, 16), None, "it is not lent");
    assert_eq!(lab.engine.cede_block(A, ALL), None);
    lab.wait_s(500.0);
    assert!(is_refused(&mut lab, 6));
    lab.engine.end_rest(address());
    assert!(is_marked(&lab));
    lab.wait_s(115.0);
    assert!(is_refused(&mut lab, 6), "the hold-down goes on");
    assert_eq!(lab.engine.cede(0, None, false, 16), None);
    lab.wait_s(10.0);
    assert!(!is_marked(&lab));
    assert_eq!(lab.engine.free_ports(0, false), 65_535 - 1023);
    assert_eq!(lab.engine.cede(0, None, false, 16), Some((A, ALL)));
    lab.engine.own(A, ALL);
    assert_eq!(lab.external_of(&udp_of(6)), "203.0.113.1:4000");
}

/// The host in the hold-down of its address may get another one, but nobody gets that address.
#[test]
fn an_address_in_hold_down_is_held_when_the_engine_ceases_to_give_it_out() {
    for packet in [udp_of(5), tcp_of(5), gre(5)] {
        let mut lab = worker(true, OWNER);
        lab.out(&packet);
        clear(&mut lab);
        ended(&mut lab).into_iter().for_each(|port| lab.engine.end_rest(port));
        lab.wait_s(60.0);
        assert_eq!(told(&mut lab), (vec![5], vec![]));
        assert!(!is_marked(&lab));
        lab.engine.set_duty(range("203.0.113.1"), PARTNER);
        assert!(lab.engine.leave_blocks(A).is_some(), "there is room for its events");
        assert_eq!(told(&mut lab), (vec![], vec![5]));
        assert!(is_marked(&lab), "the next owner hears of it");
        lab.engine.set_duty(range("203.0.113.1"), OWNER);
        assert!(is_refused(&mut lab, 6));
        lab.wait_s(125.0);
        assert_eq!(lab.external_of(&udp_of(6)), "203.0.113.1:4000");
    }
}

/// An engine alone, or one without a partner, does as before: the host has the address until the
/// end of the hold-down.
#[test]
fn an_engine_that_gives_an_address_out_leaves_it_with_its_host() {
    for is_of_pair in [false, true] {
        let mut lab = Lab::new(&whole());
        lab.engine.divide((0, 2), |_, _| true);
        lab.engine.own(A, ALL);
        if is_of_pair {
            lab.engine.join_pair();
            lab.engine.set_duty(range("203.0.113.1"), OWNER);
        }
        for packet in [udp_of(5), gre(5)] {
            lab.out(&packet);
            clear(&mut lab);
            ended(&mut lab).into_iter().for_each(|port| lab.engine.end_rest(port));
        }
        lab.wait_s(110.0);
        assert_eq!(told(&mut lab), (vec![5], vec![]));
        assert!(is_refused(&mut lab, 6) && !is_marked(&lab));
        lab.wait_s(15.0);
        assert_eq!(told(&mut lab), (vec![], vec![5]));
        assert_eq!(lab.external_of(&udp_of(6)), "203.0.113.1:4000");
    }
}

/// The sessions of a static mapping come and go, or are there, when a reload takes it away.
#[test]
fn an_address_is_free_after_copies_of_its_static_mapping() {
    let statics = vec![StaticMapping {
        external: (A, None),
        internal: ([10, 0, 0, 9].into(), None),
        protocol: None,
        ..StaticMapping::default()
    }];
    let config = Config { statics, ..whole() };
    let node = |duty, is_divided| {
        let mut lab = Lab::new(&config);
        if is_divided {
            lab.engine.divide((0, 2), |_, _| true);
            lab.engine.own(A, ALL);
        }
        lab.engine.join_pair();
        lab.engine.set_duty(range("203.0.113.1"), duty);
        lab
    };
    for (is_divided, are_there) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut a, mut b) = (node(OWNER, false), node(PARTNER, is_divided));
        let mut copies = begin(&a, &mut b);
        for packet in [udp_of(9), tcp_of(9), gre(9)] {
            a.out(&packet);
        }
        follow(&mut a, &mut b, &mut copies);
        assert_eq!(b.engine.mappings().count(), 3);
        if !are_there {
            a.wait_s(1_000.0);
            follow(&mut a, &mut b, &mut copies);
            assert_eq!(b.engine.mappings().count(), 0);
        }
        b.engine.set_duty(range("203.0.113.1"), OWNER);
        reload(&mut b, &whole());
        b.wait_s(1.0);
        let free = b.engine.free_ports(0, false);
        assert_eq!(free, 65_535 - 1023, "divided: {is_divided}, there: {are_there}");
        assert_eq!(b.external_of(&udp_of(6)), "203.0.113.1:4000");
    }
}

/// A mapping without a port gave way to others and rests. Its address moves to another pool.
#[test]
fn an_address_that_gave_way_returns_to_the_pool_that_it_had() {
    let mut config = whole();
    config.limits.unanswered_kept = 0;
    let mut lab = Lab::new(&config);
    lab.engine.divide((0, 2), |_, _| true);
    lab.engine.own(A, ALL);
    lab.engine.join_pair();
    lab.engine.set_duty(range("203.0.113.1"), OWNER);
    lab.out(&gre(5));
    lab.wait_s(0.25);
    while lab.engine.reclaim(lab.now) {}
    assert_eq!(lab.engine.counters().mappings_reclaimed, 1);
    let rests = ended(&mut lab);
    assert_eq!(rests.len(), 1);
    lab.out(&udp_of(5));
    let other = PoolConfig { name: "other".into(), ..config.pools[0].clone() };
    let mut moved = config.clone();
    moved.pools[0].addresses = vec![range("203.0.113.2")];
    moved.pools.push(other);
    reload(&mut lab, &moved);
    clear(&mut lab);
    assert_eq!((lab.engine.mappings().count(), told(&mut lab)), (0, (vec![5], vec![5])));
    rests.into_iter().chain(ended(&mut lab)).for_each(|port| lab.engine.end_rest(port));
    lab.wait_s(125.0);
    assert_eq!(lab.engine.free_ports(1, false), 65_535 - 1023);
}

/// No mapping has the port that stands for the address, so the guard outlives the static mapping.
#[test]
fn an_address_of_a_static_mapping_can_be_guarded_until_a_reload_takes_it_away() {
    let statics = vec![StaticMapping {
        external: (A, None),
        internal: ([10, 0, 0, 9].into(), None),
        protocol: None,
        ..StaticMapping::default()
    }];
    let mut lab = Lab::new(&Config { statics, ..whole() });
    lab.engine.divide((0, 2), |_, _| true);
    lab.engine.own(A, ALL);
    lab.engine.join_pair();
    lab.engine.set_duty(range("203.0.113.1"), OWNER);
    for is_guarded in [false, true] {
        let from_0 = dccp("10.0.0.9:0", REMOTE, 0);
        assert_eq!(lab.refused(Side::Inside, &from_0), DropReason::NoMapping, "{is_guarded}");
        lab.out(&dccp("10.0.0.9:5000", REMOTE, 0));
        assert!(lab.engine.guard(address()));
    }
    reload(&mut lab, &whole());
    clear(&mut lab);
    lab.wait_s(500.0);
    assert!(is_refused(&mut lab, 6), "it is guarded");
    lab.engine.end_rest(address());
    lab.wait_s(125.0);
    assert_eq!(lab.external_of(&udp_of(6)), "203.0.113.1:4000");
}
