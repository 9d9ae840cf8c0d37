//! Certificates that change while the link is in use.

use super::rig::{Authority, Ends, Rig, assert_views_arrive, connected, until, until_true};
use crate::Link;
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Sends numbered messages until `change` has led to another connection. All must arrive, and the
/// link must never seem interrupted.
fn without_a_loss([a, b]: [&Link; 2], change: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let since = [a, b].map(|link| link.status().connected_since);
    let connections = [a, b].map(|link| link.status().connections);
    thread::scope(|scope| {
        let ends = Ends(&is_over);
        let sender = scope.spawn(|| {
            let mut number = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                assert!(a.send(number.to_le_bytes().to_vec()), "message {number}");
                number += 1;
                thread::sleep(Duration::from_millis(1));
            }
            number
        });
        let mut received = BTreeSet::new();
        let mut take = || received.extend(std::iter::from_fn(|| b.receive()));
        change();
        until_true("another connection", || {
            take();
            let now = [a, b].map(|link| link.status().connections);
            now[0] > connections[0] && now[1] > connections[1]
        });
        assert_views_arrive(a, b, b"by the new connection");
        assert_views_arrive(b, a, b"by the new connection, too");
        drop(ends);
        let sent = sender.join().expect("it ends");
        until_true("all messages", || {
            received.extend(std::iter::from_fn(|| b.receive()));
            received.len() == sent as usize
        });
    });
    assert_eq!([a, b].map(|link| link.status().connected_since), since);
    assert_eq!(a.status().certificate_error, None);
}

#[test]
fn a_changed_certificate_of_either_node_is_used_without_an_interruption() {
    let (rig, [a, b]) = connected();
    for (node, link) in [("a", &a), ("b", &b)] {
        without_a_loss([&a, &b], || {
            rig.write(node, &rig.authority, 2098);
            link.reload_certificates();
        });
    }
    until_true("the end of the replaced connections", || {
        let status = a.status();
        status.connected_since.is_some() && status.refused == 0
    });
}

#[test]
fn changed_files_are_noticed_without_a_request() {
    let (rig, [a, b]) = connected();
    without_a_loss([&a, &b], || rig.write("b", &rig.authority, 2098));
}

#[test]
fn the_same_files_open_no_connection() {
    let (rig, [a, b]) = connected();
    let file = rig.file("a", "pem");
    fs::write(&file, fs::read(&file).unwrap()).unwrap();
    a.reload_certificates();
    fs::write(rig.file("b", "key"), "no key").unwrap();
    b.reload_certificates();
    until_true("an error", || b.status().certificate_error.is_some());
    assert_views_arrive(&a, &b, b"as before");
    assert_eq!((a.status().connections, b.status().connections), (1, 1));
}

#[test]
fn unusable_files_change_nothing_until_they_are_mended() {
    let (rig, [a, b]) = connected();
    let key = fs::read(rig.file("a", "key")).unwrap();
    rig.write("a", &rig.authority, 2098);
    let new_key = fs::read(rig.file("a", "key")).unwrap();
    fs::write(rig.file("a", "key"), key).unwrap();
    a.reload_certificates();
    // A file may be read while the test writes it: then another error comes first.
    let is_it = |error: &String| error.contains("do not belong together");
    until("the error", || a.status().certificate_error.filter(is_it));
    assert_views_arrive(&a, &b, b"the former certificate");
    without_a_loss([&a, &b], || fs::write(rig.file("a", "key"), new_key).unwrap());
}

#[test]
fn another_authority_takes_the_place_of_the_first() {
    let (rig, [a, b]) = connected();
    let other = Authority::new();
    let both = [&rig.authority, &other];
    without_a_loss([&a, &b], || rig.trust("a", &both));
    without_a_loss([&a, &b], || rig.trust("b", &both));
    for node in ["a", "b"] {
        without_a_loss([&a, &b], || {
            // The file of authorities is written again, with the first alone, and mended.
            rig.write(node, &other, 2099);
            rig.trust(node, &both);
        });
    }
    without_a_loss([&a, &b], || rig.trust("b", &[&other]));
    assert_eq!(b.status().certificate_error, None);
}

#[test]
fn a_connection_stays_in_use_while_the_next_one_is_refused() {
    let (rig, [a, b]) = connected();
    rig.write("a", &Authority::new(), 2099);
    a.reload_certificates();
    until_true("a refusal", || a.status().refused > 0 && b.status().refused > 0);
    assert_views_arrive(&a, &b, b"by the first connection");
    without_a_loss([&a, &b], || rig.write("a", &rig.authority, 2099));
}

#[test]
fn a_rig_makes_different_certificates() {
    let rig = Rig::new();
    assert_ne!(rig.authority.sign("a", 2099), rig.authority.sign("a", 2099));
}
