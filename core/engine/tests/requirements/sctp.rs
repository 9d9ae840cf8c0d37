//! SCTP by address, without a requirement of an RFC. Its checksum covers no address, so only the IP
//! header of a packet changes, and its association survives.

use crate::common::*;
use crate::exchange::*;
use natgate_engine::{Config, DropReason, Pooling, Side, StaticMapping, Verdict};
use std::net::Ipv4Addr;

const SCTP: u8 = 132;
const OTHER_REMOTE: &str = "198.51.100.8";

/// A packet with a common header: ports, verification tag, the sender's checksum; and a chunk.
fn sctp(from: &str, to: &str, ports: (u16, u16)) -> Vec<u8> {
    let payload = [
        &ports.0.to_be_bytes()[..],
        &ports.1.to_be_bytes(),
        &[0xde, 0xad, 0xbe, 0xef, 0x12, 0x34, 0x56, 0x78],
        &[1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 7],
    ]
    .concat();
    ip(SCTP, endpoint(from).0, endpoint(to).0, &payload)
}

#[test]
fn an_association_passes_with_its_packets_unchanged() {
    let mut lab = Lab::new(&config());
    let sent = sctp(HOST, REMOTE_HOST, (5000, 36412));
    let left = lab.out(&sent);
    assert_eq!(ends(&left), (EXTERNAL.into(), REMOTE_HOST.into()));
    assert_eq!(left[20..], sent[20..]);
    let came = sctp(REMOTE_HOST, EXTERNAL, (36412, 5000));
    let received = lab.inward(&came);
    assert_eq!(ends(&received), (REMOTE_HOST.into(), HOST.into()));
    assert_eq!(received[20..], came[20..]);
    let created = lab.created();
    assert_eq!((created.len(), created[0].protocol), (1, SCTP));
}

#[test]
fn ports_make_no_difference() {
    let mut lab = Lab::new(&config());
    for ports in [(5000, 1), (5001, 2), (0, 0)] {
        let left = lab.out(&sctp(HOST, REMOTE_HOST, ports));
        assert_eq!(left[20..24], [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
    }
    assert_eq!(lab.engine.sessions().count(), 1);
}

#[test]
fn two_subscribers_with_one_remote_have_two_external_addresses() {
    let pools = vec![pool("203.0.113.1", "203.0.113.2", (1024, 65535))];
    let mut lab = Lab::new(&Config { pools, pooling: Pooling::Arbitrary, ..config() });
    let hosts = [HOST, "10.0.0.6"];
    let seen = hosts.map(|host| ends(&lab.out(&sctp(host, REMOTE_HOST, (1, 2)))).0);
    assert_ne!(seen[0], seen[1]);
    for (host, external) in hosts.iter().zip(&seen) {
        let received = lab.inward(&sctp(REMOTE_HOST, external, (2, 1)));
        assert_eq!(ends(&received).1, *host);
    }
    // A third host gets no address for this remote host, but an address for another remote host.
    let third = sctp("10.0.0.7", REMOTE_HOST, (1, 2));
    assert_eq!(lab.refused(Side::Inside, &third), DropReason::Ambiguous);
    lab.out(&sctp("10.0.0.7", OTHER_REMOTE, (1, 2)));
}

#[test]
fn strangers_are_not_let_in() {
    let mut lab = Lab::new(&config());
    lab.out(&sctp(HOST, REMOTE_HOST, (1, 2)));
    let stranger = sctp(OTHER_REMOTE, EXTERNAL, (2, 1));
    assert_eq!(silently(&mut lab, Side::Outside, &stranger), DropReason::NoMapping);
}

#[test]
fn a_whole_address_serves_sctp_of_any_remote() {
    let whole = StaticMapping {
        protocol: None,
        internal: (Ipv4Addr::new(10, 0, 0, 80), None),
        external: (Ipv4Addr::new(198, 18, 0, 80), None),
        ..StaticMapping::default()
    };
    let mut lab = Lab::new(&Config { statics: vec![whole], ..config() });
    let came = sctp(OTHER_REMOTE, "198.18.0.80", (7, 36412));
    let received = lab.inward(&came);
    assert_eq!((ends(&received).1.as_str(), &received[20..]), ("10.0.0.80", &came[20..]));
    let left = lab.out(&sctp("10.0.0.80", OTHER_REMOTE, (36412, 7)));
    assert_eq!(ends(&left).0, "198.18.0.80");
}

#[test]
fn subscribers_associate_by_an_external_address() {
    let whole = StaticMapping {
        protocol: None,
        internal: (Ipv4Addr::new(10, 0, 0, 80), None),
        external: (Ipv4Addr::new(198, 18, 0, 80), None),
        ..StaticMapping::default()
    };
    let mut lab = Lab::new(&Config { statics: vec![whole], ..config() });
    let sent = sctp(HOST, "198.18.0.80", (7, 36412));
    let (verdict, received) = lab.pass(Side::Inside, &sent);
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    assert_eq!(ends(&received), (EXTERNAL.into(), "10.0.0.80".into()));
    assert_eq!(received[20..], sent[20..]);
    let (verdict, back) = lab.pass(Side::Inside, &sctp("10.0.0.80", EXTERNAL, (36412, 7)));
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    assert_eq!(ends(&back), ("198.18.0.80".into(), HOST.into()));
}

#[test]
fn errors_about_sctp_reach_its_sender() {
    let mut lab = Lab::new(&config());
    let sent = sctp(HOST, REMOTE_HOST, (5000, 36412));
    let left = lab.out(&sent);
    let received = lab.inward(&sctp(REMOTE_HOST, EXTERNAL, (36412, 5000)));
    for len in [28, 32, left.len()] {
        let about = &with_ttl(&left, 1)[..len];
        let told = lab.inward(&error(OUTSIDE_ROUTER, EXTERNAL, 3, 4, about));
        assert_eq!(ends(&told), (OUTSIDE_ROUTER.into(), HOST.into()));
        assert_eq!(told[28..], with_ttl(&sent, 1)[..len]);
        let told = lab.out(&error(HOST, REMOTE_HOST, 3, 2, &received[..len]));
        assert_eq!(ends(&told), (EXTERNAL.into(), REMOTE_HOST.into()));
    }
    let other = with_ttl(&left, 1);
    let stray = error(OUTSIDE_ROUTER, EXTERNAL, 3, 2, &sctp(EXTERNAL, OTHER_REMOTE, (5000, 1)));
    assert_eq!(silently(&mut lab, Side::Outside, &stray), DropReason::IcmpNoSession);
    lab.inward(&error(OUTSIDE_ROUTER, EXTERNAL, 3, 2, &other));
}

#[test]
fn a_silent_association_is_forgotten() {
    let mut lab = Lab::new(&config());
    lab.out(&sctp(HOST, REMOTE_HOST, (1, 2)));
    lab.wait_s(299.9);
    lab.inward(&sctp(REMOTE_HOST, EXTERNAL, (2, 1)));
    lab.wait_s(299.9);
    assert!(lab.removed().is_empty());
    lab.wait_s(0.3);
    assert_eq!(lab.removed().len(), 1);
}
