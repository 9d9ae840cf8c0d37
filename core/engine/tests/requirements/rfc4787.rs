//! RFC 4787, NAT for UDP: each requirement is shown by packets.

use crate::common::*;
use natgate_engine::{Allocation, Behavior, Config, DropReason, Pooling, Side};
use std::collections::BTreeSet;

const INNER: &str = "10.0.0.5:4000";
/// A remote endpoint to which no host has sent.
const STRANGER: &str = "192.0.2.77:9999";

/// A configuration with these ports, first to last, of one address.
fn ports(first: u16, last: u16) -> Config {
    Config { pools: vec![pool("203.0.113.1", "203.0.113.1", (first, last))], ..config() }
}

//= test rfc4787#REQ-1
//= test rfc6146#section-5.2-mapping
#[test]
fn req_1_one_mapping_serves_every_remote_endpoint() {
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp(INNER, REMOTE));
    for n in 1..30 {
        for remote in [format!("198.51.100.{n}:53"), format!("198.51.100.7:{}", 1000 + n)] {
            assert_eq!(lab.external_of(&udp(INNER, &remote)), external, "{remote}");
        }
        lab.wait_s(10.0);
    }
    let other = lab.external_of(&udp("10.0.0.5:4001", REMOTE));
    assert_ne!(other, external);
    assert_eq!(lab.created().len(), 2);
}

//= test rfc4787#REQ-2
//= test rfc6146#section-3.5.1.1-address
#[test]
fn req_2_all_mappings_of_a_host_have_one_external_address() {
    let pools = vec![pool("203.0.113.1", "203.0.113.16", (1024, 65535))];
    let mut lab = Lab::new(&Config { pools, ..config() });
    let mut used = BTreeSet::new();
    for host in 10..60 {
        let mut addresses = BTreeSet::new();
        for port in 4000..4010 {
            let remote = format!("198.51.100.{host}:{port}");
            let inner = format!("10.0.0.{host}:{port}");
            addresses.insert(address_of(&lab.external_of(&udp(&inner, &remote))).to_owned());
        }
        assert_eq!(addresses.len(), 1, "host {host} is seen by {addresses:?}");
        used.append(&mut addresses);
    }
    assert!(used.len() > 8, "the pool is used: {used:?}");
}

//= test rfc4787#REQ-3
//= test rfc6146#section-3.5.1.1-unique
#[test]
fn req_3_no_external_endpoint_is_shared() {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        let mut lab = Lab::new(&Config { allocation, ..ports(2000, 2031) });
        let mut seen = BTreeSet::new();
        // All hosts send from the same port, each to another remote endpoint, which would permit
        // sharing.
        for host in 10..42 {
            let inner = format!("10.0.0.{host}:2000");
            let external = lab.external_of(&udp(&inner, &format!("198.51.100.{host}:53")));
            assert!(seen.insert(external), "{inner} shares its external endpoint");
        }
        let late = udp("10.0.0.99:2000", "198.51.100.99:53");
        assert_eq!(lab.refused(Side::Inside, &late), DropReason::PoolExhausted);
    }
}

//= test rfc4787#REQ-3a
//= test rfc6146#section-3.5.1.1-well-known
//= test rfc6146#section-3.5.1.1-high
#[test]
fn req_3a_ports_stay_on_their_side_of_1024() {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        let mut lab = Lab::new(&Config { allocation, ..ports(512, 2000) });
        for n in 0..200 {
            let low = lab.external_of(&udp(&format!("10.0.0.5:{}", 1023 - n), REMOTE));
            assert!((512..1024).contains(&port_of(&low)), "{low}");
            let high = lab.external_of(&udp(&format!("10.0.0.6:{}", 1024 + n), REMOTE));
            assert!((1024..=2000).contains(&port_of(&high)), "{high}");
        }
    }
}

//= test rfc4787#REQ-4
//= test rfc6146#section-3.5.1.1-parity
#[test]
fn req_4_ports_keep_their_parity() {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        let mut lab = Lab::new(&Config { allocation, ..config() });
        for host in 10..14 {
            for port in 4000..4100 {
                let external = lab.external_of(&udp(&format!("10.0.0.{host}:{port}"), REMOTE));
                assert_eq!(port_of(&external) % 2, port % 2, "{external} for {port}");
            }
        }
    }
}

//= test rfc4787#REQ-5
//= test rfc6146#section-3.5.1-least
#[test]
fn req_5_a_mapping_lives_two_minutes_whatever_others_do() {
    let mut lab = Lab::new(&ports(2000, 2015));
    let external = lab.external_of(&udp(INNER, REMOTE));
    // An unanswered host may be forged, and gives way.
    lab.inward(&udp(REMOTE, &external));
    // Other hosts continuously request more ports than the pool has.
    for round in 0..120 {
        for host in 10..40 {
            let _ =
                lab.pass(Side::Inside, &udp(&format!("10.0.0.{host}:{}", 5000 + round), REMOTE));
        }
        lab.wait_s(1.0);
    }
    assert!(lab.events.len() > 16, "the pool was exhausted");
    let inward = lab.inward(&udp(REMOTE, &external));
    assert_eq!(ends(&inward).1, INNER);
}

//= test rfc4787#REQ-5b
#[test]
fn req_5b_the_timer_can_be_set() {
    for seconds in [130, 600] {
        let mut set = config();
        set.timeouts.udp = std::time::Duration::from_secs(seconds);
        let mut lab = Lab::new(&set);
        lab.out(&udp(INNER, REMOTE));
        let lived = lab.lives_on() - seconds as f64;
        assert!((0.0..0.2).contains(&lived), "{lived} s longer than the {seconds} s that were set");
    }
}

//= test rfc4787#REQ-5c
//= test rfc6146#section-3.5.1-default
#[test]
fn req_5c_the_timer_is_five_minutes_unless_set() {
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp(INNER, REMOTE));
    lab.wait_s(299.9);
    let inward = lab.inward(&udp(STRANGER, &external));
    assert_eq!(ends(&inward).1, INNER);
    let mut lab = Lab::new(&config());
    lab.out(&udp(INNER, REMOTE));
    assert!(lab.lives_on() >= 300.0);
}

//= test rfc4787#REQ-6
#[test]
fn req_6_outbound_packets_restart_the_timer() {
    for remote in [REMOTE, STRANGER] {
        let mut lab = Lab::new(&Config { inbound_refresh: false, ..config() });
        let external = lab.external_of(&udp(INNER, REMOTE));
        for _ in 0..5 {
            lab.wait_s(290.0);
            assert_eq!(lab.external_of(&udp(INNER, remote)), external, "the mapping is the same");
        }
        lab.wait_s(290.0);
        lab.inward(&udp(remote, &external));
        assert_eq!(lab.created().len(), 1);
    }
}

//= test rfc4787#REQ-6a
#[test]
fn req_6a_inbound_packets_restart_the_timer_if_so_set() {
    for (inbound_refresh, expected) in [(true, 590.0), (false, 300.0)] {
        let mut lab = Lab::new(&Config { inbound_refresh, ..config() });
        let external = lab.external_of(&udp(INNER, REMOTE));
        lab.wait_s(290.0);
        lab.inward(&udp(REMOTE, &external));
        let lived = 290.0 + lab.lives_on();
        assert!((expected..expected + 0.2).contains(&lived), "{lived} s instead of {expected} s");
    }
}

//= test rfc4787#REQ-8
//= test rfc6146#section-3.5.1-filtering
#[test]
fn req_8_strangers_are_admitted_unless_strictness_is_asked_for() {
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp(INNER, REMOTE));
    for remote in [REMOTE, "198.51.100.7:81", STRANGER] {
        assert_eq!(ends(&lab.inward(&udp(remote, &external))), (remote.into(), INNER.into()));
    }
    let mut lab = Lab::new(&Config { filtering: Behavior::AddressDependent, ..config() });
    let external = lab.external_of(&udp(INNER, REMOTE));
    for remote in [REMOTE, "198.51.100.7:81"] {
        assert_eq!(ends(&lab.inward(&udp(remote, &external))), (remote.into(), INNER.into()));
    }
    assert_eq!(lab.refused(Side::Outside, &udp(STRANGER, &external)), DropReason::Filtered);
    // One packet from inside to the address is sufficient.
    lab.out(&udp(INNER, "192.0.2.77:1"));
    lab.inward(&udp(STRANGER, &external));
}

//= test rfc4787#REQ-9
//= test rfc4787#REQ-9a
#[test]
fn req_9_hosts_meet_by_their_external_endpoints() {
    for filtering in [Behavior::EndpointIndependent, Behavior::AddressDependent] {
        let mut lab = Lab::new(&Config { filtering, ..config() });
        let a = lab.external_of(&udp(INNER, REMOTE));
        let b = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
        // Each host sends first, as to a remote host outside, so that a strict filter admits the
        // other host.
        let _ = lab.pass(Side::Inside, &udp("10.0.0.6:5000", &a));
        let there = lab.hairpin(&udp_with(INNER, &b, b"hello, neighbour"));
        assert_eq!(ends(&there), (a.clone(), "10.0.0.6:5000".into()), "REQ-9a: external source");
        assert_eq!(there[28..], *b"hello, neighbour");
        let back = lab.hairpin(&udp("10.0.0.6:5000", &a));
        assert_eq!(ends(&back), (b, INNER.into()));
    }
}

//= test rfc4787#REQ-10
#[test]
fn req_10_what_udp_carries_is_not_altered() {
    let message = b"INVITE sip:bob@198.51.100.7 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.5:5060\r\n\
        Contact: <sip:alice@10.0.0.5:5060>\r\n\r\nc=IN IP4 10.0.0.5\r\nm=audio 49170 RTP/AVP 0\r\n";
    let mut lab = Lab::new(&config());
    // Some gateways change SIP, TFTP, RTSP, H.323 registration and IKE.
    for port in [5060, 69, 554, 1719, 500] {
        let (inner, remote) = (format!("10.0.0.5:{port}"), format!("198.51.100.7:{port}"));
        let out = lab.out(&udp_with(&inner, &remote, message));
        assert_eq!(out[28..], *message);
        let inward = lab.inward(&udp_with(&remote, &ends(&out).0, message));
        assert_eq!(inward[28..], *message);
    }
    assert_eq!(lab.engine.mappings().count(), 5, "nothing is opened for what the text names");
}

/// The RFC warns of a NAT that changes its behavior when two hosts use the same internal port.
//= test rfc4787#REQ-11
#[test]
fn req_11_behavior_is_the_same_under_all_conditions() {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        let mut small = Config { allocation, ..ports(4000, 4015) };
        small.limits.extra_sessions = Some(1000);
        let mut lab = Lab::new(&small);
        let mut remotes = (1..1000).map(|n| format!("198.51.{}.{}:53", n / 200, 1 + n % 200));
        let mut fresh = || remotes.next().unwrap();
        let mut externals = Vec::new();
        // The first host gets its internal port, the other hosts do not. The last host gets the
        // last free port.
        for host in 10..26 {
            let inner = format!("10.0.0.{host}:4000");
            externals.push((inner.clone(), lab.external_of(&udp(&inner, REMOTE))));
            for (inner, external) in &externals {
                assert_eq!(lab.external_of(&udp(inner, &fresh())), *external, "mapping");
                assert_eq!(ends(&lab.inward(&udp(&fresh(), external))).1, *inner, "filtering");
            }
            lab.wait_s(15.0);
        }
    }
}

/// Sends errors of every type and code, about packets of the mapping, from both sides.
//= test rfc4787#REQ-12
#[test]
fn req_12_no_icmp_message_ends_a_mapping() {
    for kind in 0..=255 {
        let mut lab = Lab::new(&config());
        let sent = lab.out(&udp(INNER, REMOTE));
        let external = ends(&sent).0;
        let received = lab.inward(&udp(REMOTE, &external));
        for code in 0..16 {
            let told = error("198.51.100.7", "203.0.113.1", kind, code, &sent);
            let _ = lab.pass(Side::Outside, &told);
            let told = error("10.0.0.5", "198.51.100.7", kind, code, &received);
            let _ = lab.pass(Side::Inside, &told);
        }
        lab.wait_s(299.0);
        let inward = lab.inward(&udp(STRANGER, &external));
        assert_eq!(ends(&inward).1, INNER, "after ICMP type {kind}");
    }
}

//= test rfc4787#REQ-12a
#[test]
fn req_12a_icmp_messages_are_heard_from_anywhere() {
    for filtering in [Behavior::EndpointIndependent, Behavior::AddressAndPortDependent] {
        let mut lab = Lab::new(&Config { filtering, ..config() });
        let sent = lab.out(&udp(INNER, REMOTE));
        // Routers on the path may have any address, also private addresses.
        for router in ["198.51.100.7", "192.0.2.1", "10.9.9.9", "172.16.5.5", "100.64.0.1"] {
            let told = lab.inward(&error(router, "203.0.113.1", 11, 0, &sent));
            assert_eq!(ends(&told), (router.into(), "10.0.0.5".into()));
        }
    }
}

//= test rfc4787#REQ-12b
#[test]
fn req_12b_destination_unreachable_is_translated() {
    let mut lab = Lab::new(&config());
    let sent = lab.out(&udp(INNER, REMOTE));
    for code in 0..16 {
        let told = lab.inward(&error("192.0.2.1", "203.0.113.1", 3, code, &sent));
        assert_eq!((told[20], told[21]), (3, code));
        assert_eq!(ends(&told), ("192.0.2.1".into(), "10.0.0.5".into()));
        assert_eq!(ends(&told[28..]), (INNER.into(), REMOTE.into()), "what it is about");
    }
}

//= test rfc4787#REQ-13
#[test]
fn req_13_too_long_a_packet_that_may_not_be_fragmented_is_told_so() {
    let mut small = config();
    small.outside.mtu = Some(1400);
    let mut lab = Lab::new(&small);
    let fits = with_fragment_field(&udp_with(INNER, REMOTE, &[7; 1372]), 9, DONT_FRAGMENT);
    lab.out(&fits);
    let long = with_fragment_field(&udp_with(INNER, REMOTE, &[7; 1373]), 9, DONT_FRAGMENT);
    assert_eq!(lab.refused(Side::Inside, &long), DropReason::TooBig);
    let (_, side, told) = lab.sent.pop().expect("an answer");
    assert_eq!((side, told[20], told[21]), (Side::Inside, 3, 4));
    assert_eq!(ends(&told), ("10.0.0.1".into(), "10.0.0.5".into()));
    assert_eq!(told[26..28], 1400_u16.to_be_bytes(), "the MTU of the next hop (RFC 1191)");
    assert_eq!(told[28..], long[..told.len() - 28], "as it was sent");
}

/// Sends the fragments in an order. Returns the fragments that left, with held fragments.
fn pass_fragments(lab: &mut Lab, from: Side, parts: &[Vec<u8>], order: [usize; 3]) -> Vec<Vec<u8>> {
    let mut left = Vec::new();
    for n in order {
        let (verdict, bytes) = lab.pass(from, &parts[n]);
        if verdict == natgate_engine::Verdict::Forward(from.other()) {
            left.push(bytes);
        }
        left.extend(lab.sent.drain(..).map(|(_, _, bytes)| bytes));
    }
    left
}

//= test rfc4787#REQ-14
#[test]
fn req_14_fragments_pass_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut lab = Lab::new(&config());
        let data: Vec<u8> = (0..3000_u32).map(|n| (n % 251) as u8).collect();
        let parts = cut(&udp_with(INNER, REMOTE, &data), 77, 1400);
        let left = pass_fragments(&mut lab, Side::Inside, &parts, order);
        assert_eq!(left.len(), 3, "{order:?}");
        let whole = join(&left);
        let (external, remote) = ends(&whole);
        assert_eq!((remote.as_str(), &whole[28..]), (REMOTE, &data[..]), "{order:?}");
        let parts = cut(&udp_with(REMOTE, &external, &data), 78, 1400);
        let whole = join(&pass_fragments(&mut lab, Side::Outside, &parts, order));
        assert_eq!((ends(&whole).1.as_str(), &whole[28..]), (INNER, &data[..]), "{order:?}");
    }
}

//= test rfc4787#REQ-14a
#[test]
fn req_14a_floods_of_fragments_harm_no_others() {
    for pooling in [Pooling::Paired, Pooling::Arbitrary] {
        let mut small = Config { pooling, ..config() };
        small.limits.fragment_memory = 1 << 20;
        let mut lab = Lab::new(&small);
        let external = lab.external_of(&udp(INNER, REMOTE));
        for n in 0..20_000_u32 {
            // The flood has later fragments only, of many datagrams and sources, on both sides.
            let inner = format!("10.0.{}.{}:1", n % 50, 10 + n % 200);
            let parts = cut(&udp_with(&inner, REMOTE, &[1; 64]), n as u16, 32);
            let _ = lab.pass(Side::Inside, &parts[1]);
            let remote = format!("198.51.{}.{}:1", n % 50, 10 + n % 200);
            let parts = cut(&udp_with(&remote, &external, &[1; 64]), n as u16, 32);
            let _ = lab.pass(Side::Outside, &parts[2]);
        }
        assert!(lab.engine.counters().drops[DropReason::FragmentLimit as usize] > 10_000);
        lab.inward(&udp(REMOTE, &external));
        lab.out(&udp("10.0.0.6:4000", REMOTE));
        for (from, datagram) in [
            (Side::Inside, udp_with(INNER, REMOTE, &[2; 3000])),
            (Side::Outside, udp_with(REMOTE, &external, &[2; 3000])),
        ] {
            let parts = cut(&datagram, 99, 1400);
            let left = pass_fragments(&mut lab, from, &parts, [0, 1, 2]);
            assert_eq!(join(&left)[28..], [2; 3000]);
        }
    }
}
