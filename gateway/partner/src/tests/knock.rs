//! The node that listens knocks, and the other dials at once.

use super::rig::{NOBODY, Rig, assert_views_arrive, start, until_true, wait_for_connection};
use crate::Settings;
use crate::link::{Tuning, start_tuned};
use std::net::UdpSocket;
use std::time::Duration;

/// Longer than any test waits.
const NEVER: Duration = Duration::from_secs(3600);

/// An address that is free at this time.
fn free_address() -> std::net::SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_node_that_starts_ends_the_pause_of_the_node_that_dials() {
    let rig = Rig::new();
    rig.write("a", &rig.authority, 2099);
    rig.write("b", &rig.authority, 2099);
    let listen = free_address();
    let tuning = Tuning { redial: (NEVER, NEVER), ..Tuning::default() };
    let a = start_tuned(&rig.settings("a", "b", listen), tuning).expect("a link");
    until_true("the first attempt", || a.status().last_failure.is_some());
    let address = a.local_address();
    let b = start(&Settings { listen, ..rig.settings("b", "a", address) });
    [&a, &b].into_iter().for_each(wait_for_connection);
    assert_views_arrive(&a, &b, b"the link works");
    assert_eq!([&a, &b].map(|link| link.status().refused), [0, 0]);
}

#[test]
fn a_knock_with_another_name_has_no_effect() {
    let rig = Rig::new();
    rig.write("a", &rig.authority, 2099);
    rig.write("c", &rig.authority, 2099);
    let tuning = Tuning { redial: (NEVER, NEVER), ..Tuning::default() };
    let a = start_tuned(&rig.settings("a", "b", NOBODY.parse().unwrap()), tuning).expect("a link");
    until_true("the first attempt", || a.status().last_failure.is_some());
    let _stranger = start(&rig.settings("c", "a", a.local_address()));
    until_true("the refusal", || a.status().refused > 0);
    assert_eq!(a.status().connections, 0);
}
