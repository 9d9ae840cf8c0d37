//! RFC 5382, NAT for TCP: each requirement is shown by segments.

use crate::common::*;
use natgate_engine::{Allocation, Behavior, Config, DropReason, Side, Verdict};
use std::collections::BTreeSet;
use std::time::Duration;

const INNER: &str = "10.0.0.5:4000";
/// A remote endpoint to which no host has sent.
const STRANGER: &str = "192.0.2.77:9999";
/// The RFC's least established timeout, seconds.
const ESTABLISHED: f64 = 7440.0;
/// The RFC's least transitory timeout, seconds.
const TRANSITORY: f64 = 240.0;

fn syn(from: &str, to: &str) -> Vec<u8> {
    tcp(from, to, "S", 100, 0)
}

/// A connection that an inside host has opened, and its external endpoint.
fn connect(config: &Config) -> (Lab, String) {
    let mut lab = Lab::new(config);
    let external = lab.external_of(&syn(INNER, REMOTE));
    lab.inward(&tcp(REMOTE, &external, "SA", 500, 101));
    lab.out(&tcp(INNER, REMOTE, "A", 101, 501));
    (lab, external)
}

/// Closes a connection: a FIN of each side, both acknowledged.
fn close(lab: &mut Lab, external: &str) {
    lab.out(&tcp(INNER, REMOTE, "FA", 101, 501));
    lab.inward(&tcp(REMOTE, external, "FA", 501, 102));
    lab.out(&tcp(INNER, REMOTE, "A", 102, 502));
}

//= test rfc5382#REQ-1
#[test]
fn req_1_one_mapping_serves_every_remote_endpoint() {
    let (mut lab, external) = connect(&config());
    for n in 1..30 {
        for remote in [format!("198.51.100.{n}:80"), format!("198.51.100.7:{}", 1000 + n)] {
            assert_eq!(lab.external_of(&syn(INNER, &remote)), external, "{remote}");
        }
    }
    assert_ne!(lab.external_of(&syn("10.0.0.5:4001", REMOTE)), external);
}

/// Flags of the segments of a connection, by sender: `>` the opener, `<` the other side.
const CONNECTIONS: [&str; 9] = [
    // The opener, the other side, or both sides at once close the connection after use.
    ">S <SA >A >PA <A <PA >A >FA <A <PA >A <FA >A",
    ">S <SA >A <FA >A >PA <A >FA <A",
    ">S <SA >A >FA <FA >A <A",
    // Each segment is sent twice, as after losses.
    ">S >S <SA <SA >A >A >PA >PA <A <A >FA >FA <A <FA <FA >A >A",
    // A FIN has data, or a FIN precedes the answer to the SYN.
    ">S <SA >PA <PA >FPA <FPA >A",
    ">S >FA <SA >A <A <FA >A",
    // A RST refuses the connection, aborts it, or aborts it with segments still in flight.
    ">S <RA",
    ">S <SA >R <A",
    ">S <SA >A >PA <RA >PA <R",
];

//= test rfc5382#REQ-2
#[test]
fn req_2_every_valid_sequence_passes_from_either_side() {
    for connection in CONNECTIONS {
        for opener in [Side::Inside, Side::Outside] {
            let mut lab = Lab::new(&config());
            // This segment creates the mapping that admits segments from outside.
            let external = lab.external_of(&syn(INNER, "192.0.2.9:1"));
            // After the close, the same ports open a new connection.
            for round in 0..2 {
                for segment in connection.split(' ') {
                    let (by_opener, flags) = (segment.starts_with('>'), &segment[1..]);
                    let (seq, ack) = if by_opener { (100, 501) } else { (500, 101) };
                    let from = if by_opener { opener } else { opener.other() };
                    let segment = match from {
                        Side::Inside => tcp(INNER, REMOTE, flags, seq, ack),
                        Side::Outside => tcp(REMOTE, &external, flags, seq, ack),
                    };
                    let (verdict, bytes) = lab.pass(from, &segment);
                    let told = format!("{flags} of {connection:?} opened {opener:?}, {round}");
                    assert_eq!(verdict, Verdict::Forward(from.other()), "{told}");
                    let expected = match from {
                        Side::Inside => (external.clone(), REMOTE.to_owned()),
                        Side::Outside => (REMOTE.to_owned(), INNER.to_owned()),
                    };
                    assert_eq!(ends(&bytes), expected, "{told}");
                    assert_eq!(bytes[24..36], segment[24..36], "nothing else changes: {told}");
                }
            }
        }
    }
}

/// Two peers that know each other's external endpoints open a connection at once, through the
/// strictest filter. A peer that receives a SYN-ACK before it sends its own SYN-ACK only sends an
/// acknowledgment.
//= test rfc5382#REQ-2a
//= test rfc6146#section-3.5.2.2-simultaneous
#[test]
fn req_2a_both_ends_may_open_at_once() {
    for filtering in [Behavior::EndpointIndependent, Behavior::AddressAndPortDependent] {
        for last in ["SA", "A"] {
            let mut lab = Lab::new(&Config { filtering, ..config() });
            let external = lab.external_of(&syn(INNER, REMOTE));
            let inward = lab.inward(&syn(REMOTE, &external));
            assert_eq!(ends(&inward), (REMOTE.into(), INNER.into()));
            lab.out(&tcp(INNER, REMOTE, "SA", 100, 101));
            lab.inward(&tcp(REMOTE, &external, last, 100, 101));
            lab.out(&tcp(INNER, REMOTE, "A", 101, 101));
            // The connection is established: no shorter timer ends it.
            lab.wait_s(ESTABLISHED - 1.0);
            lab.inward(&tcp(REMOTE, &external, "PA", 101, 101));
            lab.out(&tcp(INNER, REMOTE, "A", 101, 101));
        }
    }
}

//= test rfc5382#REQ-3
#[test]
fn req_3_strangers_are_admitted_unless_strictness_is_asked_for() {
    let (mut lab, external) = connect(&config());
    for remote in ["198.51.100.7:81", STRANGER] {
        assert_eq!(ends(&lab.inward(&syn(remote, &external))), (remote.into(), INNER.into()));
        lab.out(&tcp(INNER, remote, "SA", 7, 101));
        lab.inward(&tcp(remote, &external, "A", 101, 8));
    }
    let filtering = Behavior::AddressDependent;
    let (mut lab, external) = connect(&Config { filtering, ..config() });
    lab.inward(&syn("198.51.100.7:81", &external));
    assert_eq!(lab.refused(Side::Outside, &syn(STRANGER, &external)), DropReason::Filtered);
}

//= test rfc5382#REQ-3b
#[test]
fn req_3b_tcp_may_be_filtered_otherwise_than_udp() {
    for (filtering, filtering_tcp) in [
        (Behavior::EndpointIndependent, Behavior::AddressDependent),
        (Behavior::AddressDependent, Behavior::EndpointIndependent),
    ] {
        let filtering_tcp = Some(filtering_tcp);
        let (mut lab, by_tcp) = connect(&Config { filtering, filtering_tcp, ..config() });
        let by_udp = lab.external_of(&udp(INNER, REMOTE));
        let strict_for_tcp = filtering == Behavior::EndpointIndependent;
        let segment = syn(STRANGER, &by_tcp);
        assert_eq!(lab.passes(Side::Outside, &segment), !strict_for_tcp);
        assert_eq!(lab.passes(Side::Outside, &udp(STRANGER, &by_udp)), strict_for_tcp);
    }
}

/// Cases of a refused SYN: by the filter, and because there is no mapping.
fn unsolicited() -> Vec<(Lab, Vec<u8>, DropReason)> {
    let filtering = Behavior::AddressAndPortDependent;
    let (lab, external) = connect(&Config { filtering, ..config() });
    vec![
        (lab, syn(STRANGER, &external), DropReason::Filtered),
        (Lab::new(&config()), syn(STRANGER, "203.0.113.1:4000"), DropReason::NoMapping),
    ]
}

//= test rfc5382#REQ-4
#[test]
fn req_4_an_unsolicited_syn_is_not_answered_for_six_seconds() {
    for (mut lab, syn, reason) in unsolicited() {
        assert_eq!(lab.refused(Side::Outside, &syn), reason);
        for _ in 0..59 {
            lab.wait_s(0.1);
            // The sender repeats the SYN, with the same result.
            assert_eq!(lab.refused(Side::Outside, &syn), reason);
        }
        lab.wait_s(0.099);
        assert_eq!(lab.sent.len(), 0, "nothing has left within 5.999 s");
    }
}

//= test rfc5382#REQ-4-outbound
#[test]
fn req_4_outbound_a_syn_from_inside_silences_the_answer() {
    // A mapping exists, and its filter rejects the SYN. The inside host then opens the connection.
    let filtering = Behavior::AddressAndPortDependent;
    let mut lab = Lab::new(&Config { filtering, ..config() });
    let external = lab.external_of(&syn(INNER, "192.0.2.9:1"));
    assert_eq!(lab.refused(Side::Outside, &syn(REMOTE, &external)), DropReason::Filtered);
    lab.wait_s(5.9);
    lab.out(&syn(INNER, REMOTE));
    lab.wait_s(60.0);
    assert_eq!(lab.sent.len(), 0);

    // No mapping exists. The inside host then opens a connection from the port of the SYN.
    let mut lab = Lab::new(&Config { allocation: Allocation::Preserve, ..config() });
    let early = syn(REMOTE, "203.0.113.1:4000");
    assert_eq!(lab.refused(Side::Outside, &early), DropReason::NoMapping);
    lab.wait_s(3.0);
    assert_eq!(lab.external_of(&syn(INNER, REMOTE)), "203.0.113.1:4000");
    lab.wait_s(60.0);
    assert_eq!(lab.sent.len(), 0);

    // Another connection of the same endpoint does not prevent the answer.
    assert_eq!(lab.refused(Side::Outside, &syn(REMOTE, "203.0.113.1:2")), DropReason::NoMapping);
    lab.out(&syn("10.0.0.6:4001", REMOTE));
    lab.wait_s(60.0);
    assert_eq!(lab.sent.len(), 1);
}

//= test rfc5382#REQ-4-answer
#[test]
fn req_4_answer_the_syn_is_answered_after_six_seconds() {
    for (mut lab, syn, reason) in unsolicited() {
        let start = lab.now;
        assert_eq!(lab.refused(Side::Outside, &syn), reason);
        lab.wait_s(7.0);
        let (time, side, told) = lab.sent.pop().expect("an answer");
        assert_eq!((lab.sent.len(), side), (0, Side::Outside));
        assert!(time.since(start) >= Duration::from_secs(6), "{:?}", time.since(start));
        assert_eq!((told[20], told[21], &told[28..]), (3, 3, &syn[..]));
        assert_eq!(ends(&told), ("203.0.113.1".into(), "192.0.2.77".into()));
    }
}

//= test rfc5382#REQ-4a
#[test]
fn req_4a_the_answer_can_be_forbidden() {
    let silent = Config { answer_unsolicited_syn: false, ..config() };
    let strict = Config { filtering: Behavior::AddressAndPortDependent, ..silent.clone() };
    for config in [silent, strict] {
        let (mut lab, external) = connect(&config);
        let nowhere = syn(STRANGER, "203.0.113.1:4000");
        assert_eq!(lab.refused(Side::Outside, &nowhere), DropReason::NoMapping);
        let _ = lab.pass(Side::Outside, &syn(STRANGER, &external));
        lab.wait_s(600.0);
        assert_eq!(lab.sent.len(), 0);
    }
}

//= test rfc5382#REQ-5
//= test rfc6146#section-3.5.2-least
//= test rfc6146#section-3.5.2-default
#[test]
fn req_5_an_idle_connection_lives_two_hours_and_four_minutes() {
    let (mut lab, external) = connect(&config());
    for from in [Side::Outside, Side::Inside, Side::Outside] {
        lab.wait_s(ESTABLISHED - 0.1);
        let segment = match from {
            Side::Inside => tcp(INNER, REMOTE, "PA", 101, 501),
            Side::Outside => tcp(REMOTE, &external, "PA", 501, 101),
        };
        assert!(lab.passes(from, &segment), "from {from:?}");
    }
    assert!(lab.lives_on() >= ESTABLISHED);
    // Only one side has closed the connection: the connection is still established.
    let (mut lab, external) = connect(&config());
    lab.out(&tcp(INNER, REMOTE, "FA", 101, 501));
    lab.wait_s(ESTABLISHED - 0.1);
    lab.inward(&tcp(REMOTE, &external, "PA", 501, 102));
}

//= test rfc5382#REQ-5-transitory
#[test]
fn req_5_transitory_connections_that_open_or_close_live_four_minutes() {
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&syn(INNER, REMOTE));
    lab.wait_s(TRANSITORY - 0.1);
    lab.inward(&tcp(REMOTE, &external, "SA", 500, 101));

    let (mut lab, external) = connect(&config());
    lab.inward(&syn(STRANGER, &external));
    close(&mut lab, &external);
    lab.wait_s(TRANSITORY - 0.2);
    lab.out(&tcp(INNER, STRANGER, "SA", 1, 101));
    lab.inward(&tcp(REMOTE, &external, "FA", 501, 102));
    lab.out(&tcp(INNER, REMOTE, "A", 102, 502));

    let (mut lab, external) = connect(&config());
    lab.inward(&tcp(REMOTE, &external, "R", 501, 0));
    lab.wait_s(TRANSITORY - 0.1);
    lab.out(&tcp(INNER, REMOTE, "PA", 101, 501));
}

//= test rfc5382#REQ-5a
#[test]
fn req_5a_the_timers_can_be_set() {
    let mut set = config();
    set.timeouts.tcp_established = Duration::from_secs(10_000);
    set.timeouts.tcp_opening = Duration::from_secs(300);
    set.timeouts.tcp_closing = Duration::from_secs(500);
    let is = |lived: f64, expected: f64| {
        assert!((expected..expected + 0.3).contains(&lived), "{lived} s instead of {expected} s");
    };
    let mut lab = Lab::new(&set);
    lab.out(&syn(INNER, REMOTE));
    is(lab.lives_on(), 300.0);
    let (mut lab, external) = connect(&set);
    close(&mut lab, &external);
    is(lab.lives_on(), 500.0);
    let (mut lab, _) = connect(&set);
    is(lab.lives_on(), 10_500.0);
}

//= test rfc5382#REQ-6
#[test]
fn req_6_what_tcp_carries_is_not_altered() {
    let text = b"EPRT |1|10.0.0.5|6275|\r\nPORT 10,0,0,5,24,131\r\n227 Entering Passive Mode \
        (10,0,0,5,24,131)\r\nVia: SIP/2.0/TCP 10.0.0.5:5060\r\n";
    let mut lab = Lab::new(&config());
    // Some gateways change FTP, SIP, PPTP, RTSP and H.323.
    for port in [21, 5060, 1723, 554, 1720] {
        let (inner, remote) = (format!("10.0.0.5:{port}"), format!("198.51.100.7:{port}"));
        let external = lab.external_of(&syn(&inner, &remote));
        lab.inward(&tcp(&remote, &external, "SA", 0, 101));
        let out = lab.out(&tcp_with(&inner, &remote, "PA", text));
        assert_eq!((ends(&out).0, &out[40..]), (external.clone(), &text[..]));
        let inward = lab.inward(&tcp_with(&remote, &external, "PA", text));
        assert_eq!((ends(&inward).1, &inward[40..]), (inner, &text[..]));
    }
    assert_eq!(lab.engine.mappings().count(), 5, "nothing is opened for what the text names");
}

//= test rfc5382#REQ-7
//= test rfc6146#section-3.5.2.3-unique
#[test]
fn req_7_no_external_endpoint_is_shared() {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        let pools = vec![pool("203.0.113.1", "203.0.113.1", (2000, 2031))];
        let mut lab = Lab::new(&Config { allocation, pools, ..config() });
        let mut seen = BTreeSet::new();
        for host in 10..42 {
            let inner = format!("10.0.0.{host}:2000");
            let external = lab.external_of(&syn(&inner, &format!("198.51.100.{host}:80")));
            assert!(seen.insert(external), "{inner} shares its external endpoint");
        }
        let late = syn("10.0.0.99:2000", "198.51.100.99:80");
        assert_eq!(lab.refused(Side::Inside, &late), DropReason::PoolExhausted);
    }
}

//= test rfc5382#REQ-8
//= test rfc5382#REQ-8a
#[test]
fn req_8_hosts_connect_by_their_external_endpoints() {
    let neighbor = "10.0.0.6:5000";
    let mut lab = Lab::new(&config());
    let a = lab.external_of(&syn(INNER, REMOTE));
    let b = lab.external_of(&syn(neighbor, REMOTE));
    let there = |lab: &mut Lab, flags, seq, ack| {
        let arrived = lab.hairpin(&tcp(INNER, &b, flags, seq, ack));
        assert_eq!(ends(&arrived), (a.clone(), neighbor.into()), "REQ-8a: external source");
    };
    let back = |lab: &mut Lab, flags, seq, ack| {
        let arrived = lab.hairpin(&tcp(neighbor, &a, flags, seq, ack));
        assert_eq!(ends(&arrived), (b.clone(), INNER.into()), "REQ-8a: external source");
    };
    there(&mut lab, "S", 100, 0);
    back(&mut lab, "SA", 500, 101);
    there(&mut lab, "A", 101, 501);
    lab.wait_s(ESTABLISHED - 1.0);
    there(&mut lab, "PA", 101, 501);
    back(&mut lab, "FA", 501, 102);
    there(&mut lab, "FA", 102, 502);
    back(&mut lab, "A", 502, 103);
}

//= test rfc5382#REQ-9
#[test]
fn req_9_destination_unreachable_is_translated() {
    let mut lab = Lab::new(&config());
    let sent = lab.out(&syn(INNER, REMOTE));
    for code in 0..16 {
        let told = lab.inward(&error("192.0.2.1", "203.0.113.1", 3, code, &sent));
        assert_eq!((told[20], told[21]), (3, code));
        assert_eq!(ends(&told), ("192.0.2.1".into(), "10.0.0.5".into()));
        assert_eq!(ends(&told[28..]), (INNER.into(), REMOTE.into()), "what it is about");
        // Most routers quote no more than eight bytes of TCP.
        let told = lab.inward(&error("192.0.2.1", "203.0.113.1", 3, code, &sent[..28]));
        assert_eq!(told[40..44], "10.0.0.5".parse::<std::net::Ipv4Addr>().unwrap().octets());
        assert_eq!(told[48..50], 4000_u16.to_be_bytes());
    }
}

/// Sends errors of every type and code, about segments of the connection, from both sides, at each
/// stage.
//= test rfc5382#REQ-10
#[test]
fn req_10_no_icmp_message_ends_a_connection() {
    for kind in 0..=255 {
        let mut lab = Lab::new(&config());
        let torment = |lab: &mut Lab, sent: &[u8], received: &[u8]| {
            for code in 0..16 {
                let told = error("198.51.100.7", "203.0.113.1", kind, code, sent);
                let _ = lab.pass(Side::Outside, &told);
                let told = error("10.0.0.5", "198.51.100.7", kind, code, received);
                let _ = lab.pass(Side::Inside, &told);
            }
        };
        let sent = lab.out(&syn(INNER, REMOTE));
        let external = ends(&sent).0;
        torment(&mut lab, &sent, &syn(REMOTE, INNER));
        lab.wait_s(TRANSITORY - 1.0);
        let received = lab.inward(&tcp(REMOTE, &external, "SA", 500, 101));
        let sent = lab.out(&tcp(INNER, REMOTE, "A", 101, 501));
        torment(&mut lab, &sent, &received);
        lab.wait_s(ESTABLISHED - 1.0);
        let inward = lab.inward(&tcp(REMOTE, &external, "PA", 501, 101));
        assert_eq!(ends(&inward).1, INNER, "after ICMP type {kind}");
    }
}
