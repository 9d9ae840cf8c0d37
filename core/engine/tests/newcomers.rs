//! New hosts in a crowded table of subscribers: the engine leaves their packets to the caller.

mod common;

use common::*;
use natgate_engine::{Config, Packet, Side, Verdict};

/// A guarded engine with three of four possible subscribers.
fn crowded() -> Lab {
    let base = config();
    let limits = natgate_engine::Limits { subscribers: Some(4), ..base.limits.clone() };
    let mut lab = Lab::new(&Config { limits, ..base });
    lab.engine.guard_newcomers();
    for host in 2..=4 {
        lab.out(&udp(&format!("10.0.0.{host}:4000"), REMOTE));
    }
    lab
}

const NEWCOMER: &str = "10.0.0.9:4000";

#[test]
fn a_new_hosts_packet_is_left_alone_and_taken_if_the_caller_says_so() {
    let mut lab = crowded();
    let packet = udp(NEWCOMER, REMOTE);
    let before = format!("{:?}", lab.engine.counters());
    for _ in 0..2 {
        assert_eq!(lab.pass(Side::Inside, &packet), (Verdict::Held, packet.clone()));
    }
    assert_eq!(format!("{:?}", lab.engine.counters()), before, "it is not counted");
    let mut bytes = packet.clone();
    let mut admitted = Packet::new(&mut bytes, 0);
    assert!(lab.engine.awaits_admission(&admitted));
    let verdict = lab.engine.process_admitted(lab.now, &mut admitted);
    assert_eq!(verdict, Verdict::Forward(Side::Outside));
    assert_ne!(bytes, packet);
    // The host is a subscriber now, and the next host is none.
    lab.out(&packet);
    lab.out(&udp("10.0.0.9:4001", REMOTE));
    assert_eq!(lab.pass(Side::Inside, &udp("10.0.0.10:4000", REMOTE)).0, Verdict::Held);
}

#[test]
fn hosts_with_mappings_and_packets_without_records_are_not_asked_about() {
    let mut lab = crowded();
    lab.out(&udp("10.0.0.2:4000", REMOTE));
    lab.out(&udp("10.0.0.2:4001", REMOTE));
    let ping = ping("10.0.0.9", &INSIDE.to_string(), 7);
    assert_eq!(lab.pass(Side::Inside, &ping).0, Verdict::Reply(Side::Inside));
    // A segment that begins nothing would make no subscriber.
    let stray = tcp(NEWCOMER, REMOTE, "A", 1, 1);
    assert!(matches!(lab.pass(Side::Inside, &stray).0, Verdict::Drop(_)));
    // A fragment behind the first waits for it, and for nobody else.
    let mut later = udp(NEWCOMER, REMOTE);
    later[7] = 1;
    assert!(!lab.engine.awaits_admission(&Packet::new(&mut later, 0)));
}

#[test]
fn an_engine_without_a_guard_takes_all() {
    let base = config();
    let limits = natgate_engine::Limits { subscribers: Some(4), ..base.limits.clone() };
    let mut lab = Lab::new(&Config { limits, ..base });
    for host in 2..=5 {
        lab.out(&udp(&format!("10.0.0.{host}:4000"), REMOTE));
    }
}
