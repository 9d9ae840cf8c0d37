//! Ports that new mappings do not get for a while: after use, and after a restart; and their
//! number.

mod common;

use common::*;
use natgate_engine::{Config, DropReason, Side};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::net::Ipv4Addr;

const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn few_ports() -> Config {
    Config { pools: vec![pool("203.0.113.1", "203.0.113.1", (2000, 2003))], ..config() }
}

fn taken(lab: &Lab, protocol: u8) -> Vec<u16> {
    let mut words = [0; 1024];
    let address = lab.engine.taken_ports(0, protocol, &mut words);
    assert_eq!(address, Some(EXTERNAL));
    assert_eq!(lab.engine.taken_ports(1, protocol, &mut [0; 1024]), None);
    (0..=u16::MAX).filter(|&port| words[usize::from(port / 64)] >> (port % 64) & 1 != 0).collect()
}

fn bits(ports: &[u16]) -> Vec<u64> {
    let mut words = vec![0; 1024];
    for port in ports {
        words[usize::from(port / 64)] |= 1 << (port % 64);
    }
    words
}

#[test]
fn taken_ports_are_those_in_use_and_in_hold_down() {
    let mut lab = Lab::new(&few_ports());
    assert!(taken(&lab, UDP).is_empty());
    for port in [2, 4] {
        lab.out(&udp(&format!("10.0.0.5:{port}"), REMOTE));
    }
    let ports = taken(&lab, UDP);
    assert_eq!(ports, [2000, 2002]);
    lab.wait_s(301.0);
    assert_eq!(lab.engine.mappings().count(), 0);
    assert_eq!(taken(&lab, UDP), ports);
    lab.wait_s(120.0);
    assert!(taken(&lab, UDP).is_empty() && taken(&lab, TCP).is_empty());
}

//= test rfc6888#REQ-8
//= test rfc6888#REQ-8-restart
#[test]
fn ports_that_were_taken_before_a_restart_are_held_after_it() {
    for (protocol, probe) in [
        (TCP, tcp("10.0.0.5:2", REMOTE, "S", 1, 0)),
        (UDP, udp("10.0.0.5:2", REMOTE)),
        (ICMP, ping("10.0.0.5", "198.51.100.7", 2)),
        (DCCP, dccp("10.0.0.5:2", REMOTE, 0)),
    ] {
        let mut lab = Lab::new(&few_ports());
        // Ports in no pool, or of an address that is not external, are not held.
        lab.engine.hold_ports(EXTERNAL, protocol, &bits(&[5, 2000, 2001, 2002, 2003, 65535]));
        lab.engine.hold_ports(Ipv4Addr::new(9, 9, 9, 9), protocol, &bits(&[2000]));
        assert_eq!(lab.engine.pool_usage(0, protocol).held, 4);
        assert_eq!(lab.refused(Side::Inside, &probe), DropReason::PoolExhausted);
        lab.wait_s(119.0);
        assert_eq!(lab.refused(Side::Inside, &probe), DropReason::PoolExhausted);
        lab.wait_s(1.0);
        lab.out(&probe);
        assert_eq!(lab.engine.pool_usage(0, protocol).free, 3);
    }
}

#[test]
fn a_port_in_use_is_not_held_over() {
    let mut lab = Lab::new(&few_ports());
    lab.out(&udp("10.0.0.5:2", REMOTE));
    lab.engine.hold_ports(EXTERNAL, UDP, &bits(&[2000, 2001, 2002, 2003]));
    assert_eq!(lab.engine.pool_usage(0, UDP).held, 3);
    lab.wait_s(121.0);
    assert_eq!((lab.engine.pool_usage(0, UDP).held, lab.engine.pool_usage(0, UDP).used), (0, 1));
}

#[test]
fn without_hold_down_nothing_is_held() {
    let mut none = few_ports();
    none.timeouts.hold_down = std::time::Duration::ZERO;
    let mut lab = Lab::new(&none);
    lab.engine.hold_ports(EXTERNAL, UDP, &bits(&[2000, 2001, 2002, 2003]));
    lab.out(&udp("10.0.0.5:2", REMOTE));
}

/// RFC 6888 REQ-8 requires a configurable number of held ports: beyond it, the oldest becomes free.
//= test rfc6888#REQ-8
//= test rfc6888#REQ-8-configurable
#[test]
fn the_number_of_held_ports_has_a_limit() {
    for (limit, expected) in [(None, 4), (Some(3), 3), (Some(1), 1), (Some(0), 0)] {
        let mut limited = few_ports();
        limited.limits.held_ports = limit;
        let mut lab = Lab::new(&limited);
        let mut first = 0;
        for round in 0..4 {
            let at = lab.external_of(&udp(&format!("10.0.0.5:{round}"), REMOTE));
            first = if round == 0 { endpoint(&at).1 } else { first };
            lab.wait_s(1.0);
        }
        lab.wait_s(301.0);
        assert_eq!(lab.engine.pool_usage(0, UDP).held, expected);
        if let Some(1..=3) = limit {
            assert!(!taken(&lab, UDP).contains(&first), "the oldest is free");
        }
        lab.wait_s(121.0);
        assert_eq!(lab.engine.pool_usage(0, UDP).free, 4);
    }
}
