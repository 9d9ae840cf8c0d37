//! The translator's everyday behaviour: each promise is shown by one short scene.

mod common;

use common::*;
use natgate_engine::{Behavior, Change, Config, DropReason, Pooling, Side, Verdict};

#[test]
fn udp_goes_out_and_its_reply_comes_back() {
    let mut lab = Lab::new(&config());
    let sent = udp("10.0.0.5:4000", REMOTE);
    let (source, destination) = ends(&lab.out(&sent));
    assert!(source.starts_with("203.0.113.1:") && destination == REMOTE);
    let port: u16 = source.split_once(':').unwrap().1.parse().unwrap();
    assert_eq!(port % 2, 0, "parity is kept");
    let reply = lab.inward(&udp(REMOTE, &source));
    assert_eq!(ends(&reply), (REMOTE.into(), "10.0.0.5:4000".into()));
    assert_eq!(reply[8], 63, "the TTL goes down by one");
    assert_eq!(lab.created().len(), 1);
}

#[test]
fn endpoint_independent_mapping_and_filtering_are_the_default() {
    let mut lab = Lab::new(&config());
    let one = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let two = lab.external_of(&udp("10.0.0.5:4000", "192.0.2.9:53"));
    assert_eq!(one, two);
    lab.inward(&udp("198.51.100.99:9", &one));
    assert_eq!(lab.engine.sessions().count(), 3);
    assert_eq!(lab.engine.mappings().count(), 1);
}

#[test]
fn dependent_mappings_differ_by_remote() {
    for (mapping, other, same) in [
        (Behavior::AddressDependent, "192.0.2.9:80", "198.51.100.7:81"),
        (Behavior::AddressAndPortDependent, "198.51.100.7:81", "198.51.100.7:80"),
    ] {
        let mut lab = Lab::new(&Config { mapping, ..config() });
        let one = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
        assert_ne!(lab.external_of(&udp("10.0.0.5:4000", other)), one);
        assert_eq!(lab.external_of(&udp("10.0.0.5:4000", same)), one);
    }
}

//= test rfc4787#REQ-8a
//= test rfc5382#REQ-3a
#[test]
fn filters_admit_whom_they_say() {
    let cases = [
        (Behavior::EndpointIndependent, true, true),
        (Behavior::AddressDependent, true, false),
        (Behavior::AddressAndPortDependent, false, false),
    ];
    for (filtering, same_address, other_address) in cases {
        let mut lab = Lab::new(&Config { filtering, ..config() });
        let external = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
        lab.inward(&udp(REMOTE, &external));
        for (remote, admitted) in
            [("198.51.100.7:81", same_address), ("192.0.2.9:80", other_address)]
        {
            let (verdict, _) = lab.pass(Side::Outside, &udp(remote, &external));
            let expected = if admitted {
                Verdict::Forward(Side::Inside)
            } else {
                Verdict::Drop(DropReason::Filtered)
            };
            assert_eq!(verdict, expected, "{filtering:?} {remote}");
        }
    }
}

#[test]
fn mappings_go_after_their_timeout_and_their_ports_are_held() {
    let mut lab = Lab::new(&Config {
        pools: vec![pool("203.0.113.1", "203.0.113.1", (4000, 4000))],
        ..config()
    });
    lab.out(&udp("10.0.0.5:4000", REMOTE));
    lab.wait_s(299.9);
    assert!(lab.removed().is_empty());
    lab.wait_s(0.3);
    assert_eq!(lab.removed().len(), 1);
    let usage = lab.engine.pool_usage(0, 17);
    assert_eq!((usage.free, usage.used, usage.held), (0, 0, 1));
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.6:4000", REMOTE)), DropReason::PoolExhausted);
    lab.wait_s(120.2);
    lab.out(&udp("10.0.0.6:4000", REMOTE));
}

#[test]
fn tcp_needs_a_syn_and_closes_after_both_fins() {
    let mut lab = Lab::new(&config());
    let inner = "10.0.0.5:4000";
    assert_eq!(lab.refused(Side::Inside, &tcp(inner, REMOTE, "A", 1, 1)), DropReason::TcpNotSyn);
    let outer = lab.external_of(&tcp(inner, REMOTE, "S", 100, 0));
    lab.inward(&tcp(REMOTE, &outer, "SA", 500, 101));
    lab.out(&tcp(inner, REMOTE, "A", 101, 501));
    assert_eq!(lab.engine.sessions().next().unwrap().state, "established");
    lab.out(&tcp(inner, REMOTE, "FA", 101, 501));
    lab.inward(&tcp(REMOTE, &outer, "FA", 501, 102));
    assert_eq!(lab.engine.sessions().next().unwrap().state, "closed");
    lab.out(&tcp(inner, REMOTE, "A", 102, 502));
    lab.wait_s(240.2);
    assert_eq!(lab.removed().len(), 1);
}

#[test]
fn only_a_reset_in_the_window_moves_the_state() {
    let mut lab = Lab::new(&config());
    let inner = "10.0.0.5:4000";
    let outer = lab.external_of(&tcp(inner, REMOTE, "S", 100, 0));
    lab.inward(&tcp(REMOTE, &outer, "SA", 500, 101));
    lab.out(&tcp(inner, REMOTE, "A", 101, 501));
    for sequence in [500, 501 + 1000, 501_u32.wrapping_sub(1 << 31), 90_000] {
        lab.inward(&tcp(REMOTE, &outer, "R", sequence, 0));
        assert_eq!(lab.engine.sessions().next().unwrap().state, "established", "{sequence}");
    }
    lab.inward(&tcp(REMOTE, &outer, "R", 501, 0));
    assert_eq!(lab.engine.sessions().next().unwrap().state, "transitory");
    lab.out(&tcp(inner, REMOTE, "A", 101, 501));
    assert_eq!(lab.engine.sessions().next().unwrap().state, "established");
}

#[test]
fn ping_and_traceroute_work() {
    let mut lab = Lab::new(&config());
    let out = lab.out(&ping("10.0.0.5", "198.51.100.7", 77));
    let identifier = u16::from_be_bytes([out[24], out[25]]);
    let reply = icmp("198.51.100.7", "203.0.113.1", 0, 0, &out[24..]);
    let reply = lab.inward(&reply);
    assert_eq!(ends(&reply).1, "10.0.0.5");
    assert_eq!(reply[24..26], 77_u16.to_be_bytes());
    assert!(identifier >= 1024);

    let mut probe = udp("10.0.0.5:4000", REMOTE);
    set_ttl(&mut probe, 1);
    assert_eq!(lab.refused(Side::Inside, &probe), DropReason::TtlExceeded);
    let (_, side, own) = lab.sent.pop().unwrap();
    assert_eq!((side, ends(&own)), (Side::Inside, ("10.0.0.1".into(), "10.0.0.5".into())));
    assert_eq!((own[20], own[21], &own[28..]), (11, 0, &probe[..]));

    let sent = lab.out(&udp("10.0.0.5:4000", REMOTE));
    let told = lab.inward(&error("192.0.2.1", "203.0.113.1", 11, 0, &sent));
    assert_eq!(ends(&told), ("192.0.2.1".into(), "10.0.0.5".into()));
    assert_eq!(ends(&told[28..]), ("10.0.0.5:4000".into(), REMOTE.into()));
}

#[test]
fn errors_from_inside_leave_with_the_external_address() {
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let received = lab.inward(&udp(REMOTE, &external));
    let told = lab.out(&error("10.0.0.9", "198.51.100.7", 3, 3, &received));
    assert_eq!(ends(&told), ("203.0.113.1".into(), "198.51.100.7".into()));
    assert_eq!(ends(&told[28..]), (REMOTE.into(), external));
}

#[test]
fn subscribers_reach_each_other_through_external_endpoints() {
    let mut lab = Lab::new(&config());
    let a = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let b = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
    let (verdict, bytes) = lab.pass(Side::Inside, &udp("10.0.0.5:4000", &b));
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    assert_eq!(ends(&bytes), (a.clone(), "10.0.0.6:5000".into()));
    let (_, told) =
        lab.pass(Side::Inside, &error("10.0.0.6", &a[..a.find(':').unwrap()], 3, 3, &bytes));
    assert_eq!(ends(&told), ("203.0.113.1".into(), "10.0.0.5".into()));
    assert_eq!(ends(&told[28..]), ("10.0.0.5:4000".into(), b));
}

#[test]
fn an_unsolicited_syn_is_answered_after_six_seconds() {
    let mut lab = Lab::new(&config());
    let syn = tcp(REMOTE, "203.0.113.1:2000", "S", 1, 0);
    let start = lab.now;
    assert_eq!(lab.refused(Side::Outside, &syn), DropReason::NoMapping);
    lab.wait_s(5.9);
    assert!(lab.sent.is_empty());
    lab.wait_s(0.3);
    let (time, side, bytes) = lab.sent.pop().unwrap();
    assert!((6000..=6125).contains(&time.since(start).as_millis()));
    assert_eq!((side, bytes[20], bytes[21]), (Side::Outside, 3, 3));
    assert_eq!(ends(&bytes), ("203.0.113.1".into(), "198.51.100.7".into()));
    assert_eq!(bytes[28..], syn);
}

#[test]
fn quota_rate_and_exhaustion_are_told_by_host_unreachable() {
    let mut limited = config();
    limited.limits.udp_ports = 2;
    let mut lab = Lab::new(&limited);
    for port in 1..=2 {
        lab.out(&udp(&format!("10.0.0.5:{port}"), REMOTE));
    }
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:9", REMOTE)), DropReason::PortQuota);
    let (_, _, bytes) = lab.sent.pop().unwrap();
    assert_eq!((bytes[20], bytes[21]), (3, 1));
    assert_eq!(lab.events.len(), 3);
    lab.out(&tcp("10.0.0.5:9", REMOTE, "S", 1, 0));
    lab.out(&udp("10.0.0.6:9", REMOTE));
}

#[test]
fn all_of_a_pool_is_used_and_nothing_twice() {
    for pooling in [Pooling::Paired, Pooling::Arbitrary] {
        let mut lab = Lab::new(&Config {
            pooling,
            pools: vec![pool("203.0.113.1", "203.0.113.4", (2000, 2031))],
            ..config()
        });
        let mut seen = std::collections::BTreeSet::new();
        let mut refused = 0;
        for subscriber in 0..200 {
            let (verdict, bytes) =
                lab.pass(Side::Inside, &udp(&format!("10.0.0.{}:4000", 10 + subscriber), REMOTE));
            match verdict {
                Verdict::Forward(_) => assert!(seen.insert(ends(&bytes).0)),
                verdict => {
                    assert_eq!(verdict, Verdict::Drop(DropReason::PoolExhausted));
                    refused += 1;
                }
            }
        }
        assert_eq!((seen.len(), refused), (128, 72));
    }
}

#[test]
fn protocols_without_ports_go_by_address() {
    let mut lab = Lab::new(&config());
    let gre = |from: &str, to: &str| ip(47, endpoint(from).0, endpoint(to).0, b"tunnel");
    assert_eq!(ends(&lab.out(&gre("10.0.0.5", "198.51.100.7"))).0, "203.0.113.1");
    assert_eq!(ends(&lab.inward(&gre("198.51.100.7", "203.0.113.1"))).1, "10.0.0.5");
    assert_eq!(lab.refused(Side::Inside, &gre("10.0.0.6", "198.51.100.7")), DropReason::Ambiguous);
    assert_eq!(ends(&lab.out(&gre("10.0.0.6", "198.51.100.8"))).0, "203.0.113.1");
    assert_eq!(
        lab.refused(Side::Outside, &gre("198.51.100.9", "203.0.113.1")),
        DropReason::NoMapping
    );
}

#[test]
fn own_addresses_answer_ping() {
    let mut lab = Lab::new(&config());
    let (verdict, bytes) = lab.pass(Side::Inside, &ping("10.0.0.5", "10.0.0.1", 7));
    assert_eq!(verdict, Verdict::Reply(Side::Inside));
    assert_eq!(ends(&bytes), ("10.0.0.1".into(), "10.0.0.5".into()));
    let (verdict, _) = lab.pass(Side::Outside, &ping("192.0.2.9", "192.0.2.254", 7));
    assert_eq!(verdict, Verdict::Reply(Side::Outside));
    assert_eq!(
        lab.refused(Side::Outside, &tcp("192.0.2.9:5", "192.0.2.254:22", "S", 1, 0)),
        DropReason::LocalUnsupported
    );
}

#[test]
fn time_may_jump_by_decades() {
    let mut lab = Lab::new(&config());
    for _ in 0..3 {
        lab.out(&udp("10.0.0.5:4000", REMOTE));
        let made = lab.now;
        lab.wait_s(1_700_000_000.0);
        let event = lab.events.pop().unwrap();
        let lived = event.time.since(made).as_millis();
        assert!((300_000..=300_125).contains(&lived), "{lived} ms");
        assert_eq!(lab.removed().len() + lab.events.len(), 1);
        lab.events.clear();
    }
}

#[test]
fn no_error_is_made_about_an_error() {
    let mut lab = Lab::new(&config());
    for kind in [3, 4, 5, 11, 12] {
        let mut packet =
            error("10.0.0.5", "198.51.100.7", kind, 0, &udp("1.2.3.4:5", "10.0.0.5:6"));
        set_ttl(&mut packet, 1);
        assert_eq!(lab.refused(Side::Inside, &packet), DropReason::TtlExceeded);
    }
    assert!(lab.sent.is_empty());
}

#[test]
fn what_follows_an_embedded_packet_stays() {
    let mut lab = Lab::new(&config());
    let sent = lab.out(&tcp("10.0.0.5:4000", REMOTE, "S", 1, 0));
    let mut about = sent[..28].to_vec();
    about[2..4].copy_from_slice(&28_u16.to_be_bytes());
    fill_header_checksum(&mut about);
    about.extend_from_slice(b"extension of this error");
    let told = lab.inward(&error("192.0.2.1", "203.0.113.1", 11, 0, &about));
    assert_eq!(told[56..], *b"extension of this error");
    assert_eq!(ends(&told).1, "10.0.0.5");
}

//= test rfc6888#REQ-12
#[test]
fn sessions_are_told_if_that_is_asked_for() {
    for session_events in [false, true] {
        let mut lab = Lab::new(&Config { session_events, ..config() });
        lab.out(&udp("10.0.0.5:4000", REMOTE));
        lab.out(&udp("10.0.0.5:4000", "192.0.2.9:53"));
        lab.out(&udp("10.0.0.5:4000", REMOTE));
        lab.wait_s(400.0);
        let told: Vec<String> = lab
            .events
            .iter()
            .map(|event| match event.change {
                Change::MappingCreated(_) => "mapping".to_owned(),
                Change::MappingRemoved(_) => "no mapping".to_owned(),
                Change::SessionCreated(id) => {
                    format!("to {}:{}", id.remote.address, id.remote.port)
                }
                Change::SessionRemoved(id) => format!("no longer {}", id.remote.address),
                other => panic!("{other:?}"),
            })
            .collect();
        let remote = REMOTE.split_once(':').unwrap().0;
        let (first, last) = (format!("to {REMOTE}"), format!("no longer {remote}"));
        let mut expected: Vec<&str> = vec!["mapping", "no mapping"];
        if session_events {
            expected = vec![
                "mapping",
                &first,
                "to 192.0.2.9:53",
                "no longer 192.0.2.9",
                &last,
                "no mapping",
            ];
        }
        let mut sorted = told.clone();
        sorted.sort();
        expected.sort_unstable();
        assert_eq!(sorted, expected, "{told:?}");
        assert_eq!(told.first().map(String::as_str), Some("mapping"));
        assert_eq!(told.last().map(String::as_str), Some("no mapping"));
    }
}
