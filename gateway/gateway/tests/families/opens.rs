//! Connections of TCP through NAT64 that both ends open at once: their SYNs cross (RFC 6146 section
//! 3.5.2.2, RFC 9293 section 3.5).

use super::world::*;
use natgate_engine::{Behavior, Direction, DropReason, Outcome, Side};
use natgate_gateway::Settings;
use natgate_wire::Icmp;

const HOST: &str = "2001:db8:1::5";
const OTHER: &str = "2001:db8:2::6";
const REMOTE: &str = "198.51.100.7";
const MAPPED: &str = "64:ff9b::c633:6407";
const EXTERNAL: &str = "203.0.113.1";
/// The external address as hosts see it.
const SEEN: &str = "64:ff9b::cb00:7101";
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Seconds that an established connection lives without segments, at least (RFC 5382 REQ-5), and
/// one that is being opened.
const ESTABLISHED: f64 = 7440.0;
const TRANSITORY: f64 = 240.0;
/// Seconds for which an answer to a SYN from outside waits (RFC 5382 REQ-4).
const INCOMING_SYN: f64 = 6.0;

fn filtering(filtering: Behavior) -> Settings {
    let mut settings = with_nat64(&["64:ff9b::/96"]);
    settings.engine.filtering = filtering;
    settings
}

/// A segment from the host to the remote host.
fn out(at: f64, flags: u8, numbers: (u32, u32)) -> Came {
    (Side::Inside, at, ip6(HOST, MAPPED, TCP, &segment((4000, 80), numbers, flags, "")))
}

/// A segment from the remote host to an external port.
fn back(at: f64, external: u16, flags: u8, numbers: (u32, u32)) -> Came {
    (Side::Outside, at, ip4(REMOTE, EXTERNAL, TCP, &segment((80, external), numbers, flags, "")))
}

/// The external port of the host's segments.
fn external_port(settings: &Settings) -> u16 {
    let (_, _, bytes) = out(1.0, SYN, (100, 0));
    port(single(&one(settings, Side::Inside, &bytes), Side::Outside), 0)
}

/// Checks that all packets passed, and the ends of each.
#[track_caller]
fn all_pass(settings: &Settings, came: &[Came]) -> Outcomes {
    let outcomes = run(settings, came);
    for (number, sent) in outcomes.sent.iter().enumerate() {
        let from = came[number].0;
        let bytes = single(sent, from.other());
        let (found, expected) = match from {
            Side::Inside => (ends4(bytes), ends(EXTERNAL, REMOTE)),
            Side::Outside => (ends6(bytes), ends(MAPPED, HOST)),
        };
        assert_eq!(found, expected, "segment {number}");
    }
    outcomes
}

/// Each end answers the other's SYN with SYN and ACK. An end that gets this answer before it sends
/// its own only acknowledges.
#[test]
fn syns_that_cross_establish_a_connection() {
    for behavior in [Behavior::EndpointIndependent, Behavior::AddressAndPortDependent] {
        let settings = filtering(behavior);
        let external = external_port(&settings);
        for last in [SYN | ACK, ACK] {
            let mut came = vec![
                out(1.0, SYN, (100, 0)),
                back(1.1, external, SYN, (500, 0)),
                out(1.2, SYN | ACK, (100, 501)),
                back(1.3, external, last, (500, 101)),
                out(1.4, ACK, (101, 501)),
            ];
            all_pass(&settings, &came);
            // No shorter timer ends the connection.
            came.push(back(ESTABLISHED, external, ACK, (501, 101)));
            came.push(out(ESTABLISHED + 1.0, ACK, (101, 501)));
            let outcomes = all_pass(&settings, &came);
            assert_eq!(outcomes.dropped(), []);
        }
    }
}

/// The two SYNs alone take the session to its established state.
#[test]
fn two_syns_are_enough() {
    let settings = filtering(Behavior::AddressAndPortDependent);
    let external = external_port(&settings);
    let late = 1.1 + TRANSITORY * 2.0;
    let syns = [out(1.0, SYN, (100, 0)), back(1.1, external, SYN, (500, 0))];
    let came = [&syns[..], &[back(late, external, ACK, (501, 101))]].concat();
    all_pass(&settings, &came);
    // One SYN and its repetition are not.
    let came = [out(1.0, SYN, (100, 0)), out(1.1, SYN, (100, 0))];
    let came = [&came[..], &[back(late, external, SYN | ACK, (500, 101))]].concat();
    let outcomes = run(&settings, &came);
    assert_eq!(outcomes.sent[2], []);
}

/// The remote host's SYN comes first, to an endpoint that the host has used with another remote
/// host.
#[test]
fn a_syn_from_outside_may_come_first() {
    let elsewhere = |at| {
        let bytes = ip6(HOST, "64:ff9b::c633:6409", TCP, &tcp(4000, 80, SYN));
        (Side::Inside, at, bytes)
    };
    let settings = filtering(Behavior::EndpointIndependent);
    let external = external_port(&settings);
    let mut came = vec![
        elsewhere(1.0),
        back(2.0, external, SYN, (500, 0)),
        out(2.1, SYN, (100, 0)),
        back(2.2, external, SYN | ACK, (500, 101)),
        out(2.3, SYN | ACK, (100, 501)),
        back(ESTABLISHED, external, ACK, (501, 101)),
    ];
    let outcomes = run(&settings, &came);
    for (number, sent) in outcomes.sent.iter().enumerate() {
        single(sent, came[number].0.other());
    }

    // With a strict filter the first SYN is lost. The host's own SYN opens the way for the
    // repetition, and no error tells the remote host to give up.
    let settings = filtering(Behavior::AddressAndPortDependent);
    came.truncate(3);
    came.push(back(3.0, external, SYN, (500, 0)));
    came.push(out(3.1, SYN | ACK, (100, 501)));
    came.push(back(3.2, external, SYN | ACK, (500, 101)));
    came.push(back(ESTABLISHED, external, ACK, (501, 101)));
    let outcomes = run(&settings, &came);
    for (number, sent) in outcomes.sent.iter().enumerate() {
        if number == 1 {
            assert_eq!(*sent, [], "the filter stops it");
            continue;
        }
        single(sent, came[number].0.other());
    }
    assert_eq!(outcomes.dropped(), [DropReason::Filtered]);

    // Without a SYN of the host, the sender is told after six seconds.
    let came = [
        elsewhere(1.0),
        back(2.0, external, SYN, (500, 0)),
        elsewhere(2.0 + INCOMING_SYN - 0.1),
        elsewhere(2.0 + INCOMING_SYN + 2.0),
    ];
    let outcomes = run(&settings, &came);
    assert_eq!(outcomes.sent[1], []);
    let told: Vec<&Sent> =
        outcomes.sent.iter().flatten().filter(|(_, sent)| sent[9] == 1).collect();
    let [(Side::Outside, told)] = &told[..] else { panic!("{} errors", told.len()) };
    let message = Icmp::new_checked(&told[20..]).unwrap();
    assert_eq!((ends4(told).1.as_str(), message.kind(), message.code()), (REMOTE, 3, 3));
    assert_eq!(ends4(message.body()), ends(REMOTE, EXTERNAL));
}

/// Both ends are hosts of the gateway, and each knows the other's external endpoint.
#[test]
fn syns_of_two_hosts_of_the_gateway_cross() {
    for behavior in [Behavior::EndpointIndependent, Behavior::AddressAndPortDependent] {
        let settings = filtering(behavior);
        let from = |at, host: &str, to: &str, ports, flags, numbers| {
            (Side::Inside, at, ip6(host, to, TCP, &segment(ports, numbers, flags, "")))
        };
        let mut came = vec![
            from(1.0, HOST, MAPPED, (4000, 80), SYN, (1, 0)),
            from(1.1, OTHER, MAPPED, (5000, 80), SYN, (1, 0)),
        ];
        let outcomes = run(&settings, &came);
        let [one, other] = [0, 1].map(|at| port(single(&outcomes.sent[at], Side::Outside), 0));
        let ours = |at, flags, numbers| from(at, HOST, SEEN, (4000, other), flags, numbers);
        let theirs = |at, flags, numbers| from(at, OTHER, SEEN, (5000, one), flags, numbers);
        came.extend([
            ours(2.0, SYN, (100, 0)),
            theirs(2.0, SYN, (500, 0)),
            ours(2.1, SYN, (100, 0)),
            theirs(2.2, SYN | ACK, (500, 101)),
            ours(2.3, SYN | ACK, (100, 501)),
            theirs(ESTABLISHED, ACK, (501, 101)),
            ours(ESTABLISHED + 1.0, ACK, (101, 501)),
        ]);
        let outcomes = run(&settings, &came);
        // A strict filter stops the first of the two SYNs, and its repetition passes.
        let is_strict = behavior != Behavior::EndpointIndependent;
        for (number, sent) in outcomes.sent.iter().enumerate().skip(2) {
            if number == 2 && is_strict {
                assert_eq!(*sent, []);
                continue;
            }
            let bytes = single(sent, Side::Inside);
            let is_theirs = came[number].2[40..42] == 5000_u16.to_be_bytes();
            let (to, ports) = if is_theirs { (HOST, (other, 4000)) } else { (OTHER, (one, 5000)) };
            assert_eq!(ends6(bytes), ends(SEEN, to), "segment {number}");
            assert_eq!((port(bytes, 0), port(bytes, 2)), ports, "segment {number}");
        }
        let passed = 7 - u64::from(is_strict);
        assert_eq!(outcomes.count(Direction::Hairpin, Outcome::Forwarded).0, passed);
    }
}
