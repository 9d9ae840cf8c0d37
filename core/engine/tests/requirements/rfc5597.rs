//! RFC 5597, NAT for DCCP: each requirement is shown by packets.

use crate::common::*;
use natgate_engine::{Allocation, Behavior, Config, DropReason, Side, Verdict};
use natgate_wire::{Ipv4, checksum, protocol};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

const INNER: &str = "10.0.0.5:4000";
/// A remote endpoint to which no host has sent.
const STRANGER: &str = "192.0.2.77:9999";
/// The RFC's least timeouts, seconds.
const ESTABLISHED: f64 = 7440.0;
const TRANSITORY: f64 = 240.0;
const SERVICE_CODE: [u8; 4] = *b"voip";

/// Packet types (RFC 4340 section 5.1, RFC 5596 section 2.2.1).
const REQUEST: u8 = 0;
const RESPONSE: u8 = 1;
const DATA: u8 = 2;
const ACK: u8 = 3;
const DATA_ACK: u8 = 4;
const CLOSE_REQUEST: u8 = 5;
const CLOSE: u8 = 6;
const RESET: u8 = 7;
const SYNC: u8 = 8;
const SYNC_ACK: u8 = 9;
const LISTEN: u8 = 10;

/// A packet with a checksum over all of it.
fn dccp(source: &str, destination: &str, kind: u8) -> Vec<u8> {
    dccp_with(source, destination, kind, 0, b"data")
}

/// A packet with this checksum coverage: 0 is all, 1 the header, each further step four bytes of
/// data.
fn dccp_with(source: &str, destination: &str, kind: u8, coverage: u8, data: &[u8]) -> Vec<u8> {
    let (from, to) = (endpoint(source), endpoint(destination));
    let mut header = vec![0; 16];
    header[..2].copy_from_slice(&from.1.to_be_bytes());
    header[2..4].copy_from_slice(&to.1.to_be_bytes());
    header[5] = coverage;
    // Long sequence numbers, which all packets except data and acknowledgements must have.
    header[8] = kind << 1 | 1;
    header[10..16].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    match kind {
        REQUEST | LISTEN => header.extend(SERVICE_CODE),
        RESPONSE | RESET => header.extend([&[0; 8][..], &SERVICE_CODE].concat()),
        DATA => {}
        _ => header.extend([0, 0, 6, 5, 4, 3, 2, 1]),
    }
    header[4] = (header.len() / 4) as u8;
    let mut payload = [&header[..], data].concat();
    let sum = covered_sum(from.0, to.0, &payload);
    payload[6..8].copy_from_slice(&(!sum).to_be_bytes());
    ip(protocol::DCCP, from.0, to.0, &payload)
}

/// The folded sum over the bytes that a DCCP packet's coverage names, and the pseudo header.
fn covered_sum(source: u32, destination: u32, payload: &[u8]) -> u16 {
    let covered = match payload[5] & 0xf {
        0 => payload.len(),
        coverage => usize::from(payload[4]) * 4 + (usize::from(coverage) - 1) * 4,
    };
    let length = payload.len() as u16;
    let pseudo = checksum::pseudo_header(source, destination, protocol::DCCP, length);
    checksum::fold(checksum::sum(&payload[..covered.min(payload.len())], pseudo))
}

/// A packet's endpoints. The checksum over its coverage must be right.
fn dccp_ends(bytes: &[u8]) -> (String, String) {
    let packet = Ipv4::new_checked(bytes).unwrap();
    assert!(packet.checksum_valid(), "IP checksum");
    let (source, destination) = (packet.source(), packet.destination());
    assert_eq!(covered_sum(source, destination, packet.payload()), 0xffff, "DCCP checksum");
    let end = |address, at: usize| {
        let port = u16::from_be_bytes([packet.payload()[at], packet.payload()[at + 1]]);
        format!("{}:{port}", Ipv4Addr::from_bits(address))
    };
    (end(source, 0), end(destination, 2))
}

impl Lab {
    fn dccp_out(&mut self, bytes: &[u8]) -> String {
        dccp_ends(&self.out(bytes)).0
    }

    fn dccp_in(&mut self, bytes: &[u8]) -> String {
        dccp_ends(&self.inward(bytes)).1
    }
}

/// A connection that an inside host has opened, and its external endpoint.
fn connect(config: &Config) -> (Lab, String) {
    let mut lab = Lab::new(config);
    let external = lab.dccp_out(&dccp(INNER, REMOTE, REQUEST));
    lab.dccp_in(&dccp(REMOTE, &external, RESPONSE));
    lab.dccp_out(&dccp(INNER, REMOTE, ACK));
    (lab, external)
}

//= test rfc5597#REQ-1
#[test]
fn req_1_one_mapping_serves_every_remote_endpoint() {
    let (mut lab, external) = connect(&config());
    for n in 1..30 {
        for remote in [format!("198.51.100.{n}:80"), format!("198.51.100.7:{}", 1000 + n)] {
            assert_eq!(lab.dccp_out(&dccp(INNER, &remote, REQUEST)), external, "{remote}");
        }
    }
    assert_ne!(lab.dccp_out(&dccp("10.0.0.5:4001", REMOTE, REQUEST)), external);
}

/// Packet types of a connection, each with true if the opener sends it.
const CONNECTIONS: [&[(bool, u8)]; 5] = [
    // After use, the client, the server's request, or a reset of either side closes the connection.
    &[(true, REQUEST), (false, RESPONSE), (true, ACK), (true, DATA), (false, DATA_ACK)],
    &[(true, REQUEST), (false, RESPONSE), (true, DATA_ACK), (true, CLOSE), (false, RESET)],
    &[
        (true, REQUEST),
        (false, RESPONSE),
        (true, ACK),
        (false, CLOSE_REQUEST),
        (true, CLOSE),
        (false, RESET),
    ],
    // With losses, and with sequence numbers that must be synchronised.
    &[
        (true, REQUEST),
        (true, REQUEST),
        (false, RESPONSE),
        (false, RESPONSE),
        (true, ACK),
        (false, SYNC),
        (true, SYNC_ACK),
        (true, DATA),
        (false, ACK),
        (false, RESET),
    ],
    &[(true, REQUEST), (false, RESET)],
];

//= test rfc5597#REQ-2
#[test]
fn req_2_every_valid_sequence_passes_from_either_side() {
    for connection in CONNECTIONS {
        for opener in [Side::Inside, Side::Outside] {
            let mut lab = Lab::new(&config());
            // This packet creates the mapping that admits packets from outside.
            let external = lab.dccp_out(&dccp(INNER, "192.0.2.9:1", REQUEST));
            // The same ports open a new connection.
            for _ in 0..2 {
                for &(by_opener, kind) in connection {
                    let from = if by_opener { opener } else { opener.other() };
                    let packet = match from {
                        Side::Inside => dccp(INNER, REMOTE, kind),
                        Side::Outside => dccp(REMOTE, &external, kind),
                    };
                    let (verdict, bytes) = lab.pass(from, &packet);
                    let told = format!("type {kind} of {connection:?} opened {opener:?}");
                    assert_eq!(verdict, Verdict::Forward(from.other()), "{told}");
                    let expected = match from {
                        Side::Inside => (external.clone(), REMOTE.to_owned()),
                        Side::Outside => (REMOTE.to_owned(), INNER.to_owned()),
                    };
                    assert_eq!(dccp_ends(&bytes), expected, "{told}");
                    assert_eq!(bytes[28..], packet[28..], "nothing else changes: {told}");
                }
            }
        }
    }
}

/// A server behind the translator sends DCCP-Listen, so that the filter admits the client's
/// request. A client behind the translator sends its request before the server's packet arrives.
/// Both packets pass through the strictest filter.
//= test rfc5597#REQ-2-simultaneous
#[test]
fn req_2_simultaneous_both_ends_may_open_at_once() {
    for (out, inward, out_again, back) in
        [(LISTEN, REQUEST, RESPONSE, ACK), (REQUEST, LISTEN, REQUEST, RESPONSE)]
    {
        let filtering = Behavior::AddressAndPortDependent;
        let mut lab = Lab::new(&Config { filtering, ..config() });
        let external = lab.dccp_out(&dccp(INNER, REMOTE, out));
        assert_eq!(lab.dccp_in(&dccp(REMOTE, &external, inward)), INNER);
        assert_eq!(lab.dccp_out(&dccp(INNER, REMOTE, out_again)), external);
        assert_eq!(lab.dccp_in(&dccp(REMOTE, &external, back)), INNER);
        lab.wait_s(ESTABLISHED - 1.0);
        assert_eq!(lab.dccp_in(&dccp(REMOTE, &external, DATA)), INNER);
    }
}

//= test rfc5597#REQ-3
#[test]
fn req_3_strangers_are_admitted_unless_strictness_is_asked_for() {
    let (mut lab, external) = connect(&config());
    for remote in ["198.51.100.7:81", STRANGER] {
        assert_eq!(lab.dccp_in(&dccp(remote, &external, REQUEST)), INNER);
        assert_eq!(lab.dccp_out(&dccp(INNER, remote, RESPONSE)), external);
    }
    let filtering = Behavior::AddressDependent;
    let (mut lab, external) = connect(&Config { filtering, ..config() });
    lab.dccp_in(&dccp("198.51.100.7:81", &external, REQUEST));
    let stranger = dccp(STRANGER, &external, REQUEST);
    assert_eq!(lab.refused(Side::Outside, &stranger), DropReason::Filtered);
}

//= test rfc5597#REQ-3-configurable
//= test rfc5597#REQ-3-independent
#[test]
fn req_3_independent_dccp_may_be_filtered_otherwise_than_udp() {
    for (filtering, filtering_tcp) in [
        (Behavior::EndpointIndependent, Behavior::AddressDependent),
        (Behavior::AddressDependent, Behavior::EndpointIndependent),
    ] {
        let filtering_tcp = Some(filtering_tcp);
        let (mut lab, by_dccp) = connect(&Config { filtering, filtering_tcp, ..config() });
        let by_udp = lab.external_of(&udp(INNER, REMOTE));
        let strict_for_dccp = filtering == Behavior::EndpointIndependent;
        let request = dccp(STRANGER, &by_dccp, REQUEST);
        assert_eq!(lab.passes(Side::Outside, &request), !strict_for_dccp);
        assert_eq!(lab.passes(Side::Outside, &udp(STRANGER, &by_udp)), strict_for_dccp);
    }
}

/// Refused packets: by a filter, and because there is no mapping.
fn unsolicited(kind: u8) -> Vec<(Lab, Vec<u8>)> {
    let filtering = Behavior::AddressAndPortDependent;
    let (lab, external) = connect(&Config { filtering, ..config() });
    vec![
        (lab, dccp(STRANGER, &external, kind)),
        (Lab::new(&config()), dccp(STRANGER, "203.0.113.1:4000", kind)),
    ]
}

//= test rfc5597#REQ-4
#[test]
fn req_4_what_nobody_asked_for_is_not_answered_for_six_seconds() {
    for kind in [LISTEN, SYNC, REQUEST] {
        for (mut lab, packet) in unsolicited(kind) {
            lab.refused(Side::Outside, &packet);
            for _ in 0..59 {
                lab.wait_s(0.1);
                lab.refused(Side::Outside, &packet);
            }
            lab.wait_s(0.099);
            assert_eq!(lab.sent.len(), 0, "nothing has left within 5.999 s");
        }
    }
}

//= test rfc5597#REQ-4-outbound
#[test]
fn req_4_outbound_a_request_from_inside_silences_the_answer() {
    let mut lab = Lab::new(&Config { allocation: Allocation::Preserve, ..config() });
    lab.refused(Side::Outside, &dccp(REMOTE, "203.0.113.1:4000", LISTEN));
    lab.wait_s(3.0);
    assert_eq!(lab.dccp_out(&dccp(INNER, REMOTE, REQUEST)), "203.0.113.1:4000");
    lab.wait_s(60.0);
    assert_eq!(lab.sent.len(), 0);
    // Another connection of the same endpoint does not prevent the answer, nor does a TCP
    // connection.
    lab.refused(Side::Outside, &dccp(REMOTE, "203.0.113.1:4001", LISTEN));
    lab.out(&tcp("10.0.0.5:4001", REMOTE, "S", 1, 0));
    lab.wait_s(60.0);
    assert_eq!(lab.sent.len(), 1);
}

//= test rfc5597#REQ-4-answer
#[test]
fn req_4_answer_a_listen_is_answered_after_six_seconds() {
    for (mut lab, packet) in unsolicited(LISTEN) {
        let start = lab.now;
        lab.refused(Side::Outside, &packet);
        lab.wait_s(7.0);
        let (time, side, told) = lab.sent.pop().expect("an answer");
        assert!(time.since(start) >= Duration::from_secs(6));
        assert_eq!((side, told[20], told[21], &told[28..]), (Side::Outside, 3, 3, &packet[..]));
        assert_eq!(ends(&told), ("203.0.113.1".into(), "192.0.2.77".into()));
    }
}

//= test rfc5597#REQ-5
#[test]
fn req_5_an_idle_connection_lives_124_minutes() {
    let (mut lab, external) = connect(&config());
    lab.wait_s(ESTABLISHED - 0.1);
    assert_eq!(lab.dccp_in(&dccp(REMOTE, &external, DATA)), INNER);
    lab.wait_s(ESTABLISHED - 0.1);
    assert_eq!(lab.dccp_out(&dccp(INNER, REMOTE, SYNC)), external);
}

//= test rfc5597#REQ-5-transitory
#[test]
fn req_5_transitory_a_connection_that_closes_lives_four_minutes() {
    for (from, kind) in
        [(Side::Outside, CLOSE_REQUEST), (Side::Outside, CLOSE), (Side::Inside, CLOSE)]
    {
        let (mut lab, external) = connect(&config());
        let packet = match from {
            Side::Inside => dccp(INNER, REMOTE, kind),
            Side::Outside => dccp(REMOTE, &external, kind),
        };
        assert!(lab.passes(from, &packet));
        lab.wait_s(TRANSITORY - 0.1);
        assert_eq!(lab.dccp_out(&dccp(INNER, REMOTE, RESET)), external);
        assert_eq!(lab.dccp_in(&dccp(REMOTE, &external, RESET)), INNER);
    }
}

//= test rfc5597#REQ-6
#[test]
fn req_6_what_dccp_carries_is_not_altered() {
    let text = b"Via: SIP/2.0/DCCP 10.0.0.5:5060\r\nc=IN IP4 10.0.0.5\r\n";
    for port in [5060, 554, 1720, 5004] {
        let (inner, remote) = (format!("10.0.0.5:{port}"), format!("198.51.100.7:{port}"));
        let mut lab = Lab::new(&config());
        let external = lab.dccp_out(&dccp(&inner, &remote, REQUEST));
        let packet = lab.out(&dccp_with(&inner, &remote, DATA, 0, text));
        assert_eq!(packet[packet.len() - text.len()..], *text);
        let packet = lab.inward(&dccp_with(&remote, &external, DATA, 0, text));
        assert_eq!(packet[packet.len() - text.len()..], *text);
        assert_eq!(lab.engine.mappings().count(), 1);
    }
}

//= test rfc5597#REQ-7
#[test]
fn req_7_no_external_endpoint_is_shared() {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        let pools = vec![pool("203.0.113.1", "203.0.113.1", (2000, 2031))];
        let mut lab = Lab::new(&Config { allocation, pools, ..config() });
        let mut seen = BTreeSet::new();
        for host in 10..42 {
            let (inner, remote) = (format!("10.0.0.{host}:2000"), format!("198.51.100.{host}:80"));
            let external = lab.dccp_out(&dccp(&inner, &remote, REQUEST));
            assert!(seen.insert(external), "{inner} shares its external endpoint");
        }
        let late = dccp("10.0.0.99:2000", "198.51.100.99:80", REQUEST);
        assert_eq!(lab.refused(Side::Inside, &late), DropReason::PoolExhausted);
    }
}

//= test rfc5597#REQ-8
#[test]
fn req_8_hosts_connect_by_their_external_endpoints() {
    let neighbor = "10.0.0.6:5000";
    let mut lab = Lab::new(&config());
    let a = lab.dccp_out(&dccp(INNER, REMOTE, REQUEST));
    let b = lab.dccp_out(&dccp(neighbor, REMOTE, REQUEST));
    for (there, back) in [(REQUEST, RESPONSE), (ACK, DATA_ACK), (CLOSE, RESET)] {
        let arrived = lab.hairpin(&dccp(INNER, &b, there));
        assert_eq!(dccp_ends(&arrived), (a.clone(), neighbor.into()));
        let arrived = lab.hairpin(&dccp(neighbor, &a, back));
        assert_eq!(dccp_ends(&arrived), (b.clone(), INNER.into()));
    }
}

//= test rfc5597#REQ-9
#[test]
fn req_9_destination_unreachable_is_translated() {
    let mut lab = Lab::new(&config());
    let sent = lab.out(&dccp(INNER, REMOTE, REQUEST));
    for code in 0..16 {
        let told = lab.inward(&error("192.0.2.1", "203.0.113.1", 3, code, &sent));
        assert_eq!((told[20], told[21]), (3, code));
        assert_eq!(ends(&told), ("192.0.2.1".into(), "10.0.0.5".into()));
        assert_eq!(dccp_ends(&told[28..]), (INNER.into(), REMOTE.into()), "what it is about");
        // Most routers quote at most eight bytes of the packet.
        let told = lab.inward(&error("192.0.2.1", "203.0.113.1", 3, code, &sent[..28]));
        assert_eq!(told[48..50], 4000_u16.to_be_bytes());
    }
}

//= test rfc5597#REQ-10
#[test]
fn req_10_no_icmp_message_ends_a_connection() {
    for kind in 0..=255 {
        let (mut lab, external) = connect(&config());
        let received = lab.inward(&dccp(REMOTE, &external, DATA));
        let sent = lab.out(&dccp(INNER, REMOTE, ACK));
        for code in 0..16 {
            let told = error("198.51.100.7", "203.0.113.1", kind, code, &sent);
            let _ = lab.pass(Side::Outside, &told);
            let told = error("10.0.0.5", "198.51.100.7", kind, code, &received);
            let _ = lab.pass(Side::Inside, &told);
        }
        lab.wait_s(ESTABLISHED - 1.0);
        let inward = dccp(REMOTE, &external, DATA);
        assert_eq!(lab.dccp_in(&inward), INNER, "after ICMP type {kind}");
    }
}

/// Every coverage, with data lengths that end inside and outside the coverage, both ways and
/// hairpinned. [`dccp_ends`] checks the checksum.
//= test rfc5597#REQ-11
//= test rfc5597#REQ-12
//= test rfc5597#REQ-13
#[test]
fn req_11_to_13_checksums_stay_right_and_nothing_else_changes() {
    for coverage in 0..16 {
        for length in [0, 1, 2, 7, 60, 61, 1000] {
            let (mut lab, external) = connect(&config());
            let data: Vec<u8> = (0..length).map(|n| (n * 37 % 256) as u8).collect();
            let b = lab.dccp_out(&dccp("10.0.0.6:5000", REMOTE, REQUEST));
            for kind in [REQUEST, RESPONSE, DATA, RESET] {
                let sent = dccp_with(INNER, REMOTE, kind, coverage, &data);
                let there = lab.out(&sent);
                let came = dccp_with(REMOTE, &external, kind, coverage, &data);
                let here = lab.inward(&came);
                let turned = lab.hairpin(&dccp_with(INNER, &b, kind, coverage, &data));
                for (before, after) in [(&sent, there), (&came, here), (&sent, turned)] {
                    dccp_ends(&after);
                    assert_eq!(after[25], coverage, "REQ-12: coverage");
                    assert_eq!(after[28..], before[28..], "REQ-13: service code, and all else");
                }
            }
        }
    }
}
