//! Whole addresses in a pair: an address has one host at both nodes.

use super::*;

const A11: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 11);

/// Addresses of three hosts that node a has given them.
fn taken(pair: &mut Pair) -> Vec<External> {
    let flows: Vec<_> = [5, 6, 7].map(|host| pair.a().send((host, 9)).expect("sent")).to_vec();
    assert!(flows.iter().all(|(_, port)| *port == 9), "ports stay");
    assert_eq!(pair.a().send((8, 9)), None, "all addresses of a have hosts");
    flows
}

#[test]
fn hosts_keep_their_addresses_in_a_take_over_and_back() {
    let mut pair = Pair::with(Allotment::Whole);
    let flows = taken(&mut pair);
    pair.run(3.0);
    assert!(pair.status_is_whole());
    pair.end_a_with_guardian();
    pair.run(1.0);
    for (host, flow) in (5..).zip(&flows) {
        assert_eq!(pair.b().send((host, 9)).as_ref(), Some(flow));
    }
    pair.run(130.0);
    for (host, flow) in (5..).zip(&flows) {
        assert_eq!(pair.b().send((host, 10)), Some((flow.0, 10)), "the address is the host's");
    }
    pair.restart_a();
    pair.run(5.0);
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
    pair.run(2.0);
    assert_eq!(pair.a().status().slices[0].role, "owner");
    for (host, flow) in (5..).zip(&flows) {
        assert_eq!(pair.a().send((host, 11)), Some((flow.0, 11)));
    }
    pair.check();
}

/// The partner has never seen the mappings: they were TCP connections that nobody answered.
#[test]
fn an_address_in_its_hold_down_moves() {
    let mut pair = Pair::with(Allotment::Whole);
    let addresses = [5, 6, 7].map(|host| pair.a().send_segment((host, 9), SYN).expect("sent").0);
    assert!(addresses.contains(&A11));
    pair.run(260.0);
    assert_eq!(pair.a().engine.mappings().count(), 0);
    assert_eq!(pair.a().send((8, 9)), None, "the hold-down goes on");
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(2.0);
    assert!(pair.b().status().slices[0].assigns);
    // Node b has three addresses of its own.
    let sent = |pair: &mut Pair| -> Vec<_> {
        (20..26).filter_map(|host| pair.b().send((host, 9))).collect()
    };
    let new = sent(&mut pair);
    assert!(new.iter().all(|(address, _)| !addresses.contains(address)), "{new:?}");
    pair.run(125.0);
    assert_eq!(sent(&mut pair).len(), 6, "the hold-down is over");
}

#[test]
fn an_address_is_nobody_elses_while_the_partner_has_a_copy() {
    let mut pair = Pair::with(Allotment::Whole);
    let flows = taken(&mut pair);
    pair.run(3.0);
    pair.wire().is_cut = true;
    pair.run(1_000.0);
    assert_eq!(pair.a().engine.mappings().count(), 0);
    assert_eq!(pair.a().send((8, 9)), None, "b forwards the former hosts' packets");
    assert_eq!(pair.b().send((5, 9)), Some(flows[0]));
    pair.wire().is_cut = false;
    pair.run(5.0);
    assert_eq!(pair.a().send((8, 9)), None, "the hold-down begins");
    pair.run(125.0);
    assert!(pair.a().send((8, 9)).is_some());
    assert!(pair.status_is_whole());
}
