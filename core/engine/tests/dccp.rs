//! DCCP: ports and checksum are translated, connections are timed, and no server waits for an
//! answer that the filter forbids (RFC 5597).

mod common;

use common::*;
use natgate_engine::{Config, DropReason, Side};
use natgate_wire::dccp::kind::*;

const INTERNAL: &str = "10.0.0.5:4000";

fn external(bytes: &[u8]) -> String {
    ends(bytes).0
}

#[test]
fn ports_are_translated_and_the_rest_stays() {
    let mut lab = Lab::new(&config());
    let request = dccp(INTERNAL, REMOTE, REQUEST);
    let out = lab.out(&request);
    assert_ne!(external(&out), INTERNAL);
    // Data offset and coverage; type, sequence number and service code.
    assert_eq!(out[24..26], request[24..26]);
    assert_eq!(out[28..], request[28..]);
    let back = lab.inward(&dccp(REMOTE, &external(&out), RESPONSE));
    assert_eq!(ends(&back), (REMOTE.into(), INTERNAL.into()));
    assert_eq!(external(&lab.out(&dccp(INTERNAL, "198.51.100.8:9", REQUEST))), external(&out));
    assert_ne!(external(&lab.out(&dccp("10.0.0.6:4000", REMOTE, REQUEST))), external(&out));
}

#[test]
fn connections_are_opened_by_either_side_or_both() {
    let mut lab = Lab::new(&config());
    assert_eq!(lab.refused(Side::Inside, &dccp(INTERNAL, REMOTE, DATA)), DropReason::TcpNotSyn);
    // A server inside says that it listens, and the request is let in (RFC 5596).
    let at = external(&lab.out(&dccp(INTERNAL, REMOTE, LISTEN)));
    lab.inward(&dccp(REMOTE, &at, REQUEST));
    lab.out(&dccp(INTERNAL, REMOTE, RESPONSE));
    lab.wait_s(124.0 * 60.0 - 1.0);
    lab.inward(&dccp(REMOTE, &at, DATA_ACK));
    let states: Vec<_> = lab.engine.sessions().map(|session| session.state).collect();
    assert_eq!(states, ["established"]);
}

#[test]
fn idle_connections_go_after_their_state_s_timeout() {
    let minutes = |n: f64| n * 60.0;
    for (ending, lives) in [
        (DATA, minutes(128.0)),
        (CLOSE, minutes(4.0)),
        (RESET, minutes(4.0)),
        (CLOSE_REQUEST, minutes(4.0)),
    ] {
        for from_inside in [true, false] {
            let mut lab = Lab::new(&config());
            let at = external(&lab.out(&dccp(INTERNAL, REMOTE, REQUEST)));
            lab.inward(&dccp(REMOTE, &at, RESPONSE));
            if from_inside {
                lab.out(&dccp(INTERNAL, REMOTE, ending));
            } else {
                lab.inward(&dccp(REMOTE, &at, ending));
            }
            lab.wait_s(lives - 1.0);
            assert_eq!(lab.engine.mappings().count(), 1, "type {ending}");
            lab.wait_s(2.0);
            assert_eq!(lab.engine.mappings().count(), 0, "type {ending}");
        }
    }
}

/// A forged end of a connection only shortens its idle time until the next packet of the
/// connection.
#[test]
fn traffic_revives_a_connection_that_was_said_to_end() {
    let mut lab = Lab::new(&config());
    let at = external(&lab.out(&dccp(INTERNAL, REMOTE, REQUEST)));
    lab.inward(&dccp(REMOTE, &at, RESPONSE));
    lab.inward(&dccp(REMOTE, &at, RESET));
    lab.wait_s(200.0);
    lab.out(&dccp(INTERNAL, REMOTE, DATA_ACK));
    lab.wait_s(124.0 * 60.0 - 1.0);
    assert_eq!(lab.engine.mappings().count(), 1);
}

#[test]
fn an_unsolicited_listen_is_answered_after_six_seconds_unless_explained() {
    for explained in [false, true] {
        let mut lab = Lab::new(&Config {
            filtering: natgate_engine::Behavior::AddressAndPortDependent,
            ..config()
        });
        let at = external(&lab.out(&dccp(INTERNAL, "198.51.100.9:9", REQUEST)));
        for kind in [LISTEN, SYNC] {
            assert_eq!(lab.refused(Side::Outside, &dccp(REMOTE, &at, kind)), DropReason::Filtered);
        }
        lab.wait_s(5.9);
        assert!(lab.sent.is_empty());
        if explained {
            lab.out(&dccp(INTERNAL, REMOTE, REQUEST));
        }
        lab.wait_s(1.0);
        let kinds: Vec<_> = lab.sent.iter().map(|(_, _, bytes)| (bytes[20], bytes[21])).collect();
        assert_eq!(kinds, if explained { vec![] } else { vec![(3, 3)] });
    }
}

#[test]
fn subscribers_reach_each_other() {
    let mut lab = Lab::new(&config());
    let at = external(&lab.out(&dccp("10.0.0.6:5000", REMOTE, REQUEST)));
    let (_, bytes) = lab.pass(Side::Inside, &dccp(INTERNAL, &at, REQUEST));
    let (source, destination) = ends(&bytes);
    assert_eq!(destination, "10.0.0.6:5000");
    assert!(source.starts_with("203.0.113.1:"), "{source}");
}

#[test]
fn icmp_errors_about_it_are_translated_and_end_nothing() {
    let mut lab = Lab::new(&config());
    let out = lab.out(&dccp(INTERNAL, REMOTE, REQUEST));
    let error = error("198.51.100.1", "203.0.113.1", 3, 3, &out[..28]);
    let inward = lab.inward(&error);
    assert_eq!(ends(&inward).1, "10.0.0.5");
    assert_eq!(inward[28 + 12..28 + 16], [10, 0, 0, 5]);
    assert_eq!(inward[28 + 20..28 + 22], 4000_u16.to_be_bytes());
    assert_eq!(inward[48 + 6..48 + 8], dccp(INTERNAL, REMOTE, REQUEST)[26..28]);
    assert_eq!(lab.engine.mappings().count(), 1);
}

#[test]
fn headers_that_contradict_themselves_are_dropped() {
    let mut lab = Lab::new(&config());
    let whole = dccp(INTERNAL, REMOTE, REQUEST);
    for (offset, reason) in [(2, DropReason::BadLength), (7, DropReason::BadLength)] {
        let mut bad = whole.clone();
        bad[24] = offset;
        assert_eq!(lab.refused(Side::Inside, &bad), reason);
    }
    let short = ip(33, endpoint(INTERNAL).0, endpoint(REMOTE).0, &whole[20..31]);
    assert_eq!(lab.refused(Side::Inside, &short), DropReason::BadLength);
}
