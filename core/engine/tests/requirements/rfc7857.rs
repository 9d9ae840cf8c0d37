//! RFC 7857, updates of NAT requirements: each is shown by packets.

use crate::common::*;
use natgate_engine::{
    Allocation, Behavior, Config, DropReason, Pooling, Side, StaticMapping, Verdict,
};
use natgate_wire::{Icmp, Ipv4};
use std::collections::BTreeSet;
use std::time::Duration;

const INNER: &str = "10.0.0.5:4000";
const NEIGHBOR: &str = "10.0.0.6:5000";
/// A remote endpoint to which no host has sent.
const STRANGER: &str = "192.0.2.77:9999";
/// The default timeouts, seconds.
const UDP: f64 = 300.0;
const ESTABLISHED: f64 = 7440.0;
const TRANSITORY: f64 = 240.0;

fn assert_lives(lived: f64, expected: f64, of: &str) {
    let latest = expected + 0.3;
    assert!((expected..latest).contains(&lived), "{of}: {lived} s instead of {expected} s");
}

/// The segments of a connection by sender: `>` inside, `<` outside, each with flags and, if needed,
/// its sequence number. Returns the external endpoint.
fn play(lab: &mut Lab, story: &str) -> String {
    let external = lab.external_of(&tcp(INNER, REMOTE, "S", 100, 0));
    for segment in story.split_whitespace() {
        let (flags, seq) = segment[1..].split_once('@').unwrap_or((&segment[1..], ""));
        let seq = seq.parse().ok();
        let passes = match &segment[..1] {
            ">" => lab.passes(Side::Inside, &tcp(INNER, REMOTE, flags, seq.unwrap_or(101), 501)),
            _ => {
                let seq = seq.unwrap_or(if flags.contains('S') { 500 } else { 501 });
                lab.passes(Side::Outside, &tcp(REMOTE, &external, flags, seq, 101))
            }
        };
        assert!(passes, "{segment} of {story}");
    }
    external
}

/// Each edge of the figure, by the remaining life of the session without further packets. The
/// remaining life identifies the state.
//= test rfc7857#section-2
#[test]
fn section_2_connections_are_tracked_by_the_figure() {
    let idle = ESTABLISHED + TRANSITORY;
    for (story, expected) in [
        // INIT, and segments that do not lead out of it.
        ("", TRANSITORY),
        (">A >PA", TRANSITORY),
        ("<A", TRANSITORY),
        ("<RA", TRANSITORY),
        // The server's SYN establishes the connection, with or without an ACK. Idle, it becomes
        // TRANS, then goes.
        ("<SA", idle),
        ("<S", idle),
        ("<SA >A <PA", idle),
        // One FIN keeps the established timer, two start the transitory one.
        ("<SA >A >FA", ESTABLISHED),
        ("<SA >A <FA", ESTABLISHED),
        ("<SA >A >FA <A <PA", ESTABLISHED),
        ("<SA >A >FA <FA", TRANSITORY),
        ("<SA >A <FA >FA <A", TRANSITORY),
        // A RST of either side leads to TRANS, a packet with data back to ESTABLISHED.
        ("<SA >A <R", TRANSITORY),
        ("<SA >A >R", TRANSITORY),
        ("<SA >A <R >PA", idle),
        ("<SA >A >R <A", idle),
        ("<SA >A >FA <R", TRANSITORY),
    ] {
        let mut lab = Lab::new(&config());
        play(&mut lab, story);
        assert_lives(lab.lives_on(), expected, story);
    }
    // The timeout alone leads to TRANS; data still restores the connection.
    let mut lab = Lab::new(&config());
    let external = play(&mut lab, "<SA >A");
    lab.wait_s(idle - 1.0);
    lab.inward(&tcp(REMOTE, &external, "PA", 501, 101));
    assert_lives(lab.lives_on(), idle, "after TRANS");
}

//= test rfc7857#section-2.1
//= test rfc7857#section-2.1-shorter
#[test]
fn section_2_1_opening_and_closing_have_timers_of_their_own() {
    let mut set = config();
    set.timeouts.tcp_opening = Duration::from_secs(30);
    set.timeouts.tcp_closing = Duration::from_secs(500);
    for (story, expected) in [("", 30.0), ("<SA >A >FA <FA >A", 500.0), ("<SA >A <R", 500.0)] {
        let mut lab = Lab::new(&set);
        play(&mut lab, story);
        assert_lives(lab.lives_on(), expected, story);
    }
}

//= test rfc7857#section-2.1-default
#[test]
fn section_2_1_default_both_are_four_minutes_unless_set() {
    for story in ["", "<SA >A >FA <FA >A", "<SA >A <R"] {
        let mut lab = Lab::new(&config());
        let external = play(&mut lab, story);
        lab.wait_s(TRANSITORY - 0.1);
        assert!(lab.passes(Side::Outside, &tcp(REMOTE, &external, "SA", 501, 102)), "{story}");
    }
}

//= test rfc7857#section-2.2
#[test]
fn section_2_2_resets_are_translated() {
    for story in ["", "<SA >A", "<SA >A >FA", "<SA >A >FA <FA", "<SA >A <R", "<SA >A >R"] {
        for sequence in [501, 0, 1 << 31] {
            let mut lab = Lab::new(&config());
            let external = play(&mut lab, story);
            let inward = lab.inward(&tcp(REMOTE, &external, "RA", sequence, 101));
            assert_eq!(ends(&inward), (REMOTE.into(), INNER.into()), "after {story:?}");
            let out = lab.out(&tcp(INNER, REMOTE, "R", sequence, 0));
            assert_eq!(ends(&out), (external, REMOTE.into()), "after {story:?}");
            assert_eq!(out[33], 4, "a RST and no more");
        }
    }
}

//= test rfc7857#section-2.2-wait
#[test]
fn section_2_2_wait_the_session_outlives_a_reset() {
    for story in ["<SA >A <R", "<SA >A >R"] {
        let mut lab = Lab::new(&config());
        let external = play(&mut lab, story);
        // The RST was lost behind the translator: the host that did not receive the RST continues.
        lab.wait_s(TRANSITORY - 1.0);
        lab.inward(&tcp(REMOTE, &external, "PA", 501, 101));
        lab.wait_s(ESTABLISHED - 1.0);
        lab.out(&tcp(INNER, REMOTE, "PA", 101, 501));

        let mut lab = Lab::new(&config());
        play(&mut lab, story);
        assert_lives(lab.lives_on(), TRANSITORY, story);
    }
    // An attacker off the path shortens nothing by a RST that the connection would not accept.
    let mut lab = Lab::new(&config());
    play(&mut lab, "<SA >A <R@500 <R@90000 >R@90 >R@2147483749");
    assert_lives(lab.lives_on(), ESTABLISHED + TRANSITORY, "after RSTs out of the window");
}

/// Opens more mappings than one address of a pool of two has ports.
fn overflow(pooling: Pooling, packet: impl Fn(&str) -> Vec<u8>) -> (BTreeSet<String>, usize) {
    let pools = vec![pool("203.0.113.1", "203.0.113.2", (2000, 2009))];
    let mut lab = Lab::new(&Config { pooling, pools, ..config() });
    let (mut addresses, mut refused) = (BTreeSet::new(), 0);
    for port in 3000..3015 {
        match lab.pass(Side::Inside, &packet(&format!("10.0.0.5:{port}"))) {
            (Verdict::Forward(_), bytes) => {
                addresses.insert(address_of(&ends(&bytes).0).to_owned());
            }
            (verdict, _) => {
                assert_eq!(verdict, Verdict::Drop(DropReason::PoolExhausted));
                refused += 1;
            }
        }
    }
    // The other address has ports for other subscribers.
    lab.out(&packet("10.0.0.6:3000"));
    (addresses, refused)
}

//= test rfc7857#section-4
#[test]
fn section_4_beyond_its_pair_a_subscriber_is_refused() {
    let (addresses, refused) = overflow(Pooling::Paired, |inner| udp(inner, REMOTE));
    assert_eq!((addresses.len(), refused), (1, 5));
}

//= test rfc7857#section-4-soft
#[test]
fn section_4_soft_or_goes_on_with_another_address() {
    let (addresses, refused) = overflow(Pooling::SoftPaired, |inner| udp(inner, REMOTE));
    assert_eq!((addresses.len(), refused), (2, 0));
}

//= test rfc7857#section-4-tcp
#[test]
fn section_4_tcp_pairing_holds_for_tcp() {
    let (addresses, refused) = overflow(Pooling::Paired, |inner| tcp(inner, REMOTE, "S", 1, 0));
    assert_eq!((addresses.len(), refused), (1, 5));
    // One address serves all protocols of a subscriber.
    let pools = vec![pool("203.0.113.1", "203.0.113.16", (1024, 65535))];
    for seed in 0..10 {
        let mut lab = Lab::seeded(&Config { pools: pools.clone(), ..config() }, seed);
        let by_tcp = lab.external_of(&tcp(INNER, REMOTE, "S", 1, 0));
        let by_udp = lab.external_of(&udp(INNER, REMOTE));
        let by_ping = ends(&lab.out(&ping("10.0.0.5", "198.51.100.7", 7))).0;
        assert_eq!(address_of(&by_tcp), address_of(&by_udp));
        assert_eq!(address_of(&by_tcp), by_ping);
    }
}

//= test rfc7857#section-5
//= test rfc7857#section-5-default
#[test]
fn section_5_a_mapping_is_for_one_protocol() {
    let mut lab = Lab::new(&config());
    let by_tcp = lab.external_of(&tcp(INNER, REMOTE, "S", 1, 0));
    let by_udp = lab.external_of(&udp(INNER, REMOTE));
    assert_ne!(by_tcp, by_udp, "two endpoints that only chance would make equal");
    let protocols: Vec<u8> = lab.created().iter().map(|id| id.protocol).collect();
    assert_eq!(protocols, [6, 17]);
    // The mappings expire.
    lab.wait_s(UDP + 1.0);
    assert_eq!(lab.removed().len(), 2);
    assert_ne!(lab.external_of(&udp(INNER, REMOTE)), by_udp, "its port is in hold-down");
}

//= test rfc7857#section-6
//= test rfc7857#section-6-default
#[test]
fn section_6_a_filter_is_for_one_protocol() {
    let mut lab = Lab::new(&config());
    let by_tcp = lab.external_of(&tcp(INNER, REMOTE, "S", 1, 0));
    let by_udp = lab.external_of(&udp(INNER, REMOTE));
    lab.inward(&udp(STRANGER, &by_udp));
    lab.inward(&tcp(STRANGER, &by_tcp, "S", 1, 0));
    for remote in [REMOTE, STRANGER] {
        assert_eq!(lab.refused(Side::Outside, &udp(remote, &by_tcp)), DropReason::NoMapping);
        let syn = tcp(remote, &by_udp, "S", 1, 0);
        assert_eq!(lab.refused(Side::Outside, &syn), DropReason::NoMapping);
    }
}

/// Lifetime of a mapping that receives only rejected packets, one every ten seconds.
fn besieged(config: &Config, mine: &[u8], refused: impl Fn(u32, &str) -> Vec<u8>) -> f64 {
    let mut lab = Lab::new(config);
    let start = lab.now;
    let external = lab.external_of(mine);
    for n in 1..100 {
        lab.wait_s(10.0);
        if lab.engine.mappings().count() == 0 {
            return lab.events.last().unwrap().time.since(start).as_secs_f64();
        }
        let (verdict, _) = lab.pass(Side::Outside, &refused(n, &external));
        assert!(matches!(verdict, Verdict::Drop(_)), "{verdict:?}");
    }
    panic!("the mapping lives on");
}

/// Policies that reject packets to a mapping. Other inbound packets refresh the mapping.
fn policies() -> [Config; 3] {
    let mut one_session = Config { inbound_refresh: true, ..config() };
    one_session.limits.sessions_per_mapping = 1;
    let filtered = |filtering| Config { filtering, inbound_refresh: true, ..config() };
    [one_session, filtered(Behavior::AddressDependent), filtered(Behavior::AddressAndPortDependent)]
}

//= test rfc7857#section-7
#[test]
fn section_7_refused_packets_keep_no_mapping_alive() {
    for policy in policies() {
        let lived = besieged(&policy, &udp(INNER, REMOTE), |n, external| {
            udp(&format!("192.0.2.{n}:53"), external)
        });
        assert_lives(lived, UDP, "by UDP");
    }
}

//= test rfc7857#section-7-tcp
#[test]
fn section_7_tcp_refused_segments_keep_no_mapping_alive() {
    for policy in policies() {
        for flags in ["S", "SA", "A", "R"] {
            let lived = besieged(&policy, &tcp(INNER, REMOTE, "S", 1, 0), |n, external| {
                tcp(&format!("192.0.2.{n}:80"), external, flags, 1, 1)
            });
            assert_lives(lived, TRANSITORY, flags);
        }
    }
}

//= test rfc7857#section-7.1
#[test]
fn section_7_1_refusals_of_the_inside_keep_no_mapping_alive() {
    // A remote host sends, and the host has closed the port.
    let mut lab = Lab::new(&Config { inbound_refresh: false, ..config() });
    let external = lab.external_of(&udp(INNER, REMOTE));
    for _ in 0..29 {
        lab.wait_s(10.0);
        let received = lab.inward(&udp(REMOTE, &external));
        lab.out(&error("10.0.0.5", "198.51.100.7", 3, 3, &received));
    }
    assert_lives(290.0 + lab.lives_on(), UDP, "with ICMP errors");

    // A remote host tries to connect to a port that does not listen. The SYN creates a session of
    // its own.
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&tcp(INNER, REMOTE, "S", 1, 0));
    lab.wait_s(200.0);
    lab.inward(&tcp(STRANGER, &external, "S", 7, 0));
    for _ in 0..23 {
        lab.out(&tcp(INNER, STRANGER, "RA", 0, 8));
        lab.wait_s(10.0);
    }
    assert_lives(230.0 + lab.lives_on(), TRANSITORY, "with RSTs to a stranger");

    // The host has no state of the connection any more.
    let mut lab = Lab::new(&config());
    play(&mut lab, "<SA >A");
    for _ in 0..24 {
        lab.out(&tcp(INNER, REMOTE, "R", 101, 0));
        lab.wait_s(9.0);
    }
    assert_lives(216.0 + lab.lives_on(), TRANSITORY, "with RSTs of a connection");
}

//= test rfc7857#section-8
#[test]
fn section_8_parity_can_be_turned_off() {
    let mut lab = Lab::new(&Config { port_parity: false, ..config() });
    let odd = (0..64).filter(|n| {
        let external = lab.external_of(&udp(&format!("10.0.0.5:{}", 4000 + 2 * n), REMOTE));
        port_of(&external) % 2 == 1
    });
    assert!((10..54).contains(&odd.count()), "about half of the ports are odd");
}

/// Ports of successive mappings are unpredictable to an observer: spread over the range, in steps
/// that do not repeat, and different with another seed.
fn assert_unpredictable(config: &Config, inner: impl Fn(usize) -> String) {
    let sequence = |seed| {
        let mut lab = Lab::seeded(config, seed);
        let port = |n| port_of(&lab.external_of(&udp(&inner(n), REMOTE)));
        (0..256).map(port).collect::<Vec<u16>>()
    };
    let ports = sequence(1);
    for eighth in 0..8 {
        let range = 1024 + eighth * 8064..1024 + (eighth + 1) * 8064;
        let inside = ports.iter().filter(|&&port| range.contains(&u32::from(port))).count();
        assert!(inside > 8, "{inside} of 256 ports in {range:?}");
    }
    let steps: BTreeSet<u16> = ports.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 240, "{} different steps of 255", steps.len());
    let other = sequence(2);
    let same = ports.iter().zip(&other).filter(|(a, b)| a == b).count();
    assert!(same < 5, "{same} ports do not depend on the seed");
}

//= test rfc7857#section-9
#[test]
fn section_9_ports_cannot_be_guessed() {
    let config = Config { port_parity: false, ..config() };
    assert_unpredictable(&config, |n| format!("10.0.0.5:{}", 4000 + n));
    assert_unpredictable(&config, |n| format!("10.0.1.{n}:4000"));
}

//= test rfc7857#section-9-preserve
#[test]
fn section_9_preserve_only_a_port_that_is_taken_is_replaced() {
    let preserve = Config { allocation: Allocation::Preserve, port_parity: false, ..config() };
    let mut lab = Lab::new(&preserve);
    for port in 4000..4200 {
        assert_eq!(port_of(&lab.external_of(&udp(&format!("10.0.0.5:{port}"), REMOTE))), port);
    }
    // All hosts send from the same port, and the first host gets that port.
    let mut taken = Lab::new(&preserve);
    assert_eq!(taken.external_of(&udp("10.0.9.9:4000", REMOTE)), "203.0.113.1:4000");
    assert_unpredictable(&preserve, |n| format!("10.0.1.{n}:4000"));
}

//= test rfc7857#section-9-parity
#[test]
fn section_9_parity_ports_of_a_parity_cannot_be_guessed() {
    for parity in 0..2 {
        let inner = |n| format!("10.0.0.5:{}", 4000 + 2 * n + parity);
        assert_unpredictable(&config(), inner);
        let mut lab = Lab::new(&config());
        for n in 0..256 {
            assert_eq!(usize::from(port_of(&lab.external_of(&udp(&inner(n), REMOTE))) % 2), parity);
        }
    }
}

fn identification(packet: &[u8]) -> u16 {
    Ipv4::new_checked(packet).unwrap().identification()
}

/// All hosts number their datagrams alike, and send them to one server.
//= test rfc7857#section-10
#[test]
fn section_10_fragments_of_different_hosts_are_not_taken_for_one_datagram() {
    let mut lab = Lab::new(&config());
    let mut seen = BTreeSet::new();
    for host in 10..110 {
        let datagram = udp_with(&format!("10.0.0.{host}:4000"), REMOTE, &[host; 2000]);
        let out: Vec<_> = cut(&datagram, 7, 1000).iter().map(|part| lab.out(part)).collect();
        let own: BTreeSet<u16> = out.iter().map(|part| identification(part)).collect();
        assert_eq!(own.len(), 1, "the fragments of one datagram stay together");
        assert!(seen.insert(own), "an identification is used twice within a second");
        assert_eq!(join(&out)[28..], [host; 2000]);
    }
}

//= test rfc7857#section-11
#[test]
fn section_11_a_query_mapping_goes_with_its_last_session() {
    let mut lab = Lab::new(&config());
    lab.out(&ping("10.0.0.5", "198.51.100.7", 7));
    lab.wait_s(30.0);
    lab.out(&ping("10.0.0.5", "198.51.100.8", 7));
    assert_eq!(lab.engine.mappings().count(), 1);
    assert_lives(lab.lives_on(), 60.0, "after the last query");
}

//= test rfc7857#section-12
#[test]
fn section_12_queries_reach_a_mapped_address_from_inside() {
    let whole = StaticMapping {
        protocol: None,
        internal: ("10.0.0.80".parse().unwrap(), None),
        external: ("203.0.113.9".parse().unwrap(), None),
        ..StaticMapping::default()
    };
    let mut lab = Lab::new(&Config { statics: vec![whole], ..config() });
    let arrived = lab.hairpin(&ping("10.0.0.5", "203.0.113.9", 7));
    assert_eq!(ends(&arrived), ("203.0.113.1".into(), "10.0.0.80".into()));
    let reply = icmp("10.0.0.80", "203.0.113.1", 0, 0, &arrived[24..]);
    let arrived = lab.hairpin(&reply);
    assert_eq!(ends(&arrived), ("203.0.113.9".into(), "10.0.0.5".into()));
    let message = Icmp::new_checked(&arrived[20..]).unwrap();
    assert_eq!((message.kind(), message.identifier()), (0, 7));
}

//= test rfc7857#section-12-error
#[test]
fn section_12_error_errors_about_hairpinned_packets_arrive() {
    let mut lab = Lab::new(&config());
    let a = lab.external_of(&udp(INNER, REMOTE));
    let b = lab.external_of(&udp(NEIGHBOR, REMOTE));
    let received = lab.hairpin(&udp(INNER, &b));
    // An error from the host itself, and from a router before it.
    for (teller, kind, code) in [("10.0.0.6", 3, 3), ("10.0.0.9", 11, 0), ("10.0.0.9", 3, 4)] {
        let told = lab.hairpin(&error(teller, address_of(&a), kind, code, &received));
        assert_eq!((told[20], told[21]), (kind, code));
        assert_eq!(ends(&told), (address_of(&b).into(), "10.0.0.5".into()));
        assert_eq!(ends(&told[28..]), (INNER.into(), b.clone()), "as its sender knows it");
    }
}
