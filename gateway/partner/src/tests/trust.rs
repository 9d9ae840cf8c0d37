//! Nodes that do not know each other: names, authorities, times and versions that do not match.

use super::rig::{Authority, NOBODY, Rig, assert_views_arrive, start, until, wait_for_connection};
use crate::link::{Tuning, start_tuned};
use crate::{Link, LinkStatus};

/// Starts the links of two nodes whose files are there. Neither uses the other.
fn refused(rig: &Rig, listener: (&str, &str), dialer: (&str, &str)) -> [LinkStatus; 2] {
    let b = start(&rig.settings(listener.0, listener.1, NOBODY.parse().unwrap()));
    let a = start(&rig.settings(dialer.0, dialer.1, b.local_address()));
    let status = |link: &Link| {
        until("a refusal", || Some(link.status()).filter(|status| status.refused > 1))
    };
    let [a, b] = [status(&a), status(&b)];
    for status in [&a, &b] {
        assert_eq!((status.connections, status.connected_since), (0, None));
        assert!(status.last_failure.is_some());
    }
    [a, b]
}

fn reason(status: &LinkStatus) -> &str {
    status.last_refusal.as_deref().expect("there was one")
}

#[test]
fn a_node_of_another_name_is_refused_by_the_node_that_listens() {
    let rig = Rig::new();
    ["a", "b"].iter().for_each(|node| rig.write(node, &rig.authority, 2099));
    rig.write("ax", &rig.authority, 2099);
    let [dialer, listener] = refused(&rig, ("b", "a"), ("ax", "b"));
    assert!(reason(&listener).contains("not valid for name \"a\""), "{listener:?}");
    assert!(reason(&dialer).contains("the other side refuses this node"), "{dialer:?}");
}

#[test]
fn a_node_of_another_name_is_refused_by_the_node_that_dials() {
    let rig = Rig::new();
    ["a", "c"].iter().for_each(|node| rig.write(node, &rig.authority, 2099));
    let [dialer, listener] = refused(&rig, ("c", "a"), ("a", "b"));
    assert!(reason(&dialer).contains("not valid for name \"b\""), "{dialer:?}");
    assert!(reason(&listener).contains("the other side refuses this node"), "{listener:?}");
}

#[test]
fn a_certificate_of_another_authority_is_refused_by_both() {
    let (rig, other) = (Rig::new(), Authority::new());
    rig.write("a", &other, 2099);
    rig.write("b", &rig.authority, 2099);
    let [_, listener] = refused(&rig, ("b", "a"), ("a", "b"));
    assert!(reason(&listener).contains("UnknownIssuer"), "{listener:?}");
    rig.write("a", &rig.authority, 2099);
    rig.write("b", &other, 2099);
    let [dialer, _] = refused(&rig, ("b", "a"), ("a", "b"));
    assert!(reason(&dialer).contains("UnknownIssuer"), "{dialer:?}");
}

#[test]
fn an_expired_certificate_is_refused_by_both() {
    let rig = Rig::new();
    rig.write("a", &rig.authority, 2021);
    rig.write("b", &rig.authority, 2099);
    let [dialer, listener] = refused(&rig, ("b", "a"), ("a", "b"));
    assert!(reason(&listener).contains("expired"), "{listener:?}");
    assert!(reason(&dialer).contains("CertificateExpired"), "{dialer:?}");
    rig.write("a", &rig.authority, 2099);
    rig.write("b", &rig.authority, 2021);
    let [dialer, listener] = refused(&rig, ("b", "a"), ("a", "b"));
    assert!(reason(&dialer).contains("expired"), "{dialer:?}");
    assert!(reason(&listener).contains("CertificateExpired"), "{listener:?}");
}

#[test]
fn the_greatest_common_version_is_used() {
    let rig = Rig::new();
    let start = |node: &str, partner, address, versions: &[u16]| {
        rig.write(node, &rig.authority, 2099);
        let tuning = Tuning { versions: versions.to_vec(), ..Tuning::default() };
        start_tuned(&rig.settings(node, partner, address), tuning).expect("a link")
    };
    let b = start("b", "a", NOBODY.parse().unwrap(), &[3, 2, 1]);
    let a = start("a", "b", b.local_address(), &[5, 2, 1]);
    wait_for_connection(&a);
    assert_eq!((a.status().version, b.status().version), (Some(2), Some(2)));
    a.stop();
    let a = start("a", "b", b.local_address(), &[5, 4]);
    until("a refusal", || Some(()).filter(|()| a.status().refused > 0 && b.status().refused > 0));
    assert_eq!(a.status().connections, 0);
    assert!(reason(&a.status()).contains("NoApplicationProtocol"), "{:?}", a.status());
    a.stop();
    let a = start("a", "b", b.local_address(), &[1]);
    assert_views_arrive(&a, &b, b"the old version");
    assert_eq!(b.status().version, Some(1));
}
