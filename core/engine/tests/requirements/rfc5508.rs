//! RFC 5508: ICMP through a NAT, and ICMP messages that the NAT originates (`rfc5508/own.rs`).

mod own;

use crate::common::*;
use crate::exchange::*;
use natgate_engine::{Config, DropReason, SessionInfo, Side, StaticMapping, Verdict};
use natgate_wire::{Icmp, Ipv4, protocol};
use std::net::Ipv4Addr;
use std::time::Duration;

fn identifier(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[24], packet[25]])
}

/// A query of a type, with the bytes that the type has after its identifier.
fn query(kind: u8, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let rest = if kind == 13 { &[0x5a; 12][..] } else { &b"0123456789"[..] };
    icmp(HOST, REMOTE_HOST, kind, 0, &[&[high, low, 0, 1], rest].concat())
}

// ---- queries ----

//= test rfc5508#REQ-1
#[test]
fn req_1_queries_and_their_answers_pass() {
    for (request, reply) in [(8, 0), (13, 14)] {
        let mut lab = Lab::new(&config());
        let sent = query(request, 77);
        let left = lab.out(&sent);
        assert_eq!(ends(&left), (EXTERNAL.into(), REMOTE_HOST.into()));
        assert_eq!((left[20], &left[26..]), (request, &sent[26..]), "all but the identifier stays");
        let came = icmp(REMOTE_HOST, EXTERNAL, reply, 0, &left[24..]);
        let received = lab.inward(&came);
        assert_eq!(ends(&received), (REMOTE_HOST.into(), HOST.into()));
        assert_eq!((received[20], &received[24..]), (reply, &sent[24..]));
    }
}

//= test rfc5508#REQ-1a
#[test]
fn req_1a_a_query_identifier_is_mapped_alike_for_all_remotes() {
    let mut lab = Lab::new(&config());
    let remotes = [REMOTE_HOST, "192.0.2.77", "198.18.0.1"];
    let left: Vec<u16> =
        remotes.iter().map(|to| identifier(&lab.out(&ping(HOST, to, 77)))).collect();
    assert_eq!(left, [left[0]; 3]);
    assert_ne!(identifier(&lab.out(&ping(HOST, REMOTE_HOST, 78))), left[0]);
    assert_ne!(identifier(&lab.out(&ping("10.0.0.6", REMOTE_HOST, 77))), left[0]);
}

/// Returns true if the NAT admits a reply `after` seconds after the query.
fn reply_passes(config: &Config, after: f64) -> bool {
    let mut lab = Lab::new(config);
    let left = lab.out(&ping(HOST, REMOTE_HOST, 77));
    lab.wait_s(after);
    let reply = icmp(REMOTE_HOST, EXTERNAL, 0, 0, &left[24..]);
    match lab.pass(Side::Outside, &reply).0 {
        Verdict::Forward(Side::Inside) => true,
        verdict => {
            assert_eq!(verdict, Verdict::Drop(DropReason::NoMapping));
            false
        }
    }
}

//= test rfc5508#REQ-2
#[test]
fn req_2_a_query_session_lives_for_a_minute() {
    for (after, passes) in [(1.0, true), (59.9, true), (59.999, true), (60.2, false)] {
        assert_eq!(reply_passes(&config(), after), passes, "after {after} s");
    }
    let mut lab = Lab::new(&config());
    let left = lab.out(&ping(HOST, REMOTE_HOST, 77));
    for _ in 0..3 {
        lab.wait_s(59.0);
        lab.inward(&icmp(REMOTE_HOST, EXTERNAL, 0, 0, &left[24..]));
        lab.wait_s(59.0);
        assert_eq!(lab.out(&ping(HOST, REMOTE_HOST, 77)), left);
    }
}

//= test rfc5508#REQ-2a
//= test rfc6146#section-3.5.3-configurable
//= test rfc6146#section-3.5.3-inbound
#[test]
fn req_2a_the_query_timer_can_be_set() {
    let mut longer = config();
    longer.timeouts.icmp = Duration::from_secs(90);
    for (after, passes) in [(60.2, true), (89.999, true), (90.2, false)] {
        assert_eq!(reply_passes(&longer, after), passes, "after {after} s");
    }
}

// ---- errors: checks ----

//= test rfc5508#REQ-3
#[test]
fn req_3_an_error_with_a_wrong_checksum_is_dropped_silently() {
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            let good = exchange.error(place, (3, 1), &exchange.about(place));
            let mut wrong = good.clone();
            wrong[22] ^= 0x20;
            let reason = silently(&mut exchange.lab, place.side(), &wrong);
            assert_eq!(reason, DropReason::IcmpBadChecksum, "{protocol} {place:?}");
            exchange.forward(place, &good);
        }
    }
}

//= test rfc5508#REQ-3a
#[test]
fn req_3a_a_wrong_embedded_header_checksum_drops_the_error_silently() {
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            let mut about = exchange.about(place);
            about[10] ^= 0x20;
            let wrong = exchange.error(place, (11, 0), &about);
            ends(&wrong);
            let reason = silently(&mut exchange.lab, place.side(), &wrong);
            assert_eq!(reason, DropReason::IcmpBadChecksum, "{protocol} {place:?}");
        }
    }
}

//= test rfc5508#REQ-3b
#[test]
fn req_3b_embedded_options_are_passed_over() {
    // Router alert; record route with room for nine; padding to the longest header.
    let record_route = [&[7, 39, 4][..], &[0; 36], &[0]].concat();
    for options in [&[148, 4, 0, 0][..], &record_route, &[1; 40]] {
        for protocol in PROTOCOLS {
            for place in Place::ALL {
                let shape = |packet: &[u8]| with_options(packet, options);
                let mut exchange = Exchange::shaped(&config(), protocol, shape);
                let about = exchange.about(place);
                let error = exchange.error(place, (3, 1), &about);
                let told = exchange.forward(place, &error);
                ends(&told);
                assert_eq!(told[28..], exchange.original(place), "{protocol} {place:?}");
            }
        }
    }
}

//= test rfc5508#REQ-3c
#[test]
fn req_3c_a_wrong_embedded_transport_checksum_is_no_reason_to_drop() {
    let checksum_at = |protocol| match protocol {
        protocol::UDP | protocol::DCCP => 26,
        protocol::TCP => 36,
        _ => 22,
    };
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let at = checksum_at(protocol);
            // The packet was damaged on its way to the sender of the error.
            let mut exchange = Exchange::new(protocol);
            let (mut about, mut original) = (exchange.about(place), exchange.original(place));
            about[at] ^= 0x10;
            let error = exchange.error(place, (3, 3), &about);
            let told = exchange.forward(place, &error);
            ends(&told);
            // The embedded checksum is still wrong by the same amount; all other bytes are right.
            assert_ne!(told[28 + at..][..2], original[at..][..2], "{protocol} {place:?}");
            original[at..at + 2].copy_from_slice(&told[28 + at..][..2]);
            assert_eq!(told[28..], original);
        }
    }
}

/// An extension structure: one object of an unassigned class and type (RFC 4884 section 7).
fn extension() -> Vec<u8> {
    let mut bytes = vec![0x20, 0, 0, 0, 0, 8, 201, 1, 0xde, 0xad, 0xbe, 0xef];
    let sum = natgate_wire::checksum::checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

//= test rfc5508#REQ-3d
#[test]
fn req_3d_padding_and_extensions_are_no_part_of_the_embedded_packet() {
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            let about = exchange.about(place);
            // The whole packet, and a fragment that ends before TCP's checksum.
            let cases = [
                (about.clone(), exchange.original(place)),
                (shortest_fragment(&about), shortest_fragment(&exchange.original(place))),
            ];
            for (about, original) in cases {
                let len = about.len();
                let mut quoted = about;
                quoted.resize(128, 0);
                quoted.extend(extension());
                let to = source(&quoted);
                // The sixth byte has the quotation's length in words.
                let error = error_with((place.address(), &to), (11, 0), [0, 32, 0, 0], &quoted);
                let told = exchange.forward(place, &error);
                ends(&told);
                assert_eq!(told[28..28 + len], original, "{protocol} {place:?}");
                assert_eq!(told[28 + len..], quoted[len..], "{protocol} {place:?}");
            }
        }
    }
}

/// The first fragment of a packet, of eight bytes.
fn shortest_fragment(packet: &[u8]) -> Vec<u8> {
    let mut fragment = packet[..28].to_vec();
    fragment[2..4].copy_from_slice(&28_u16.to_be_bytes());
    with_fragment_field(&fragment, 7, 0x2000)
}

// ---- errors from outside ----

//= test rfc5508#REQ-4
#[test]
fn req_4_an_error_from_outside_about_nothing_is_dropped_silently() {
    for protocol in PROTOCOLS {
        for place in [Place::Remote, Place::OutsideRouter] {
            let mut exchange = Exchange::new(protocol);
            let about = exchange.about(place);
            let id_at = if protocol == protocol::ICMP { 25 } else { 21 };
            let mut other_port = about.clone();
            other_port[id_at] ^= 1;
            let mut other_remote = about.clone();
            other_remote[19] ^= 1;
            fill_header_checksum(&mut other_remote);
            for about in [other_port, other_remote] {
                let stray = exchange.error(place, (3, 1), &about);
                let reason = silently(&mut exchange.lab, Side::Outside, &stray);
                assert_eq!(reason, DropReason::IcmpNoSession, "{protocol} {place:?}");
            }
            // The mapping times out, and the error then quotes no session.
            let error = exchange.error(place, (3, 1), &about);
            exchange.forward(place, &error);
            exchange.lab.wait_s(10_000.0);
            let reason = silently(&mut exchange.lab, Side::Outside, &error);
            assert_eq!(reason, DropReason::IcmpNoSession, "{protocol} {place:?}");
        }
    }
}

//= test rfc5508#REQ-4a
#[test]
fn req_4a_an_error_from_outside_quotes_the_packet_as_the_subscriber_sent_it() {
    quotes_the_original(&[Place::Remote, Place::OutsideRouter]);
}

//= test rfc5508#REQ-5a
#[test]
fn req_5a_an_error_from_inside_quotes_the_packet_as_the_remote_sent_it() {
    quotes_the_original(&[Place::Host, Place::InsideRouter]);
}

fn quotes_the_original(places: &[Place]) {
    for protocol in PROTOCOLS {
        for &place in places {
            let mut exchange = Exchange::new(protocol);
            let (about, original) = (exchange.about(place), exchange.original(place));
            ends(&original);
            // From the header and eight bytes (RFC 792) to all of the packet.
            for len in 28..=about.len() {
                let error = exchange.error(place, (11, 0), &about[..len]);
                let told = exchange.forward(place, &error);
                ends(&told);
                let mut expected = original[..len].to_vec();
                if protocol == protocol::TCP && len == 37 {
                    // Half a checksum cannot be updated.
                    expected[36] = about[36];
                }
                assert_eq!(told[28..], expected, "{protocol} {place:?} {len} bytes");
            }
        }
    }
}

//= test rfc5508#REQ-4b
#[test]
fn req_4b_type_and_code_of_an_error_from_outside_stay() {
    type_and_code_stay(&[Place::Remote, Place::OutsideRouter]);
}

//= test rfc5508#REQ-5b
#[test]
fn req_5b_type_and_code_of_an_error_from_inside_stay() {
    type_and_code_stay(&[Place::Host, Place::InsideRouter]);
}

fn type_and_code_stay(places: &[Place]) {
    for protocol in PROTOCOLS {
        for &place in places {
            let mut exchange = Exchange::new(protocol);
            for (kind, code) in ERRORS {
                let error = exchange.error(place, (kind, code), &exchange.about(place));
                let told = exchange.forward(place, &error);
                ends(&told);
                assert_eq!((told[20], told[21]), (kind, code), "{protocol} {place:?}");
            }
        }
    }
}

//= test rfc5508#REQ-4c
#[test]
fn req_4c_an_error_from_outside_goes_to_whom_it_quotes() {
    for protocol in PROTOCOLS {
        for place in [Place::Remote, Place::OutsideRouter] {
            let mut exchange = Exchange::new(protocol);
            let error = exchange.error(place, (3, 1), &exchange.about(place));
            let told = exchange.forward(place, &error);
            assert_eq!(ends(&told), (place.address().into(), source(&told[28..])));
            assert_eq!(ends(&told).1, HOST, "{protocol} {place:?}");
        }
    }
}

// ---- errors from inside ----

//= test rfc5508#REQ-5
#[test]
fn req_5_an_error_from_inside_about_nothing_is_dropped_silently() {
    for protocol in PROTOCOLS {
        for place in [Place::Host, Place::InsideRouter] {
            let mut exchange = Exchange::new(protocol);
            let about = exchange.about(place);
            let id_at = if protocol == protocol::ICMP { 25 } else { 23 };
            let mut other_port = about.clone();
            other_port[id_at] ^= 1;
            let mut other_host = about.clone();
            other_host[19] ^= 1;
            fill_header_checksum(&mut other_host);
            for about in [other_port, other_host] {
                let stray = exchange.error(place, (3, 1), &about);
                let reason = silently(&mut exchange.lab, Side::Inside, &stray);
                assert_eq!(reason, DropReason::IcmpNoSession, "{protocol} {place:?}");
            }
            let error = exchange.error(place, (3, 1), &about);
            exchange.forward(place, &error);
            exchange.lab.wait_s(10_000.0);
            let reason = silently(&mut exchange.lab, Side::Inside, &error);
            assert_eq!(reason, DropReason::IcmpNoSession, "{protocol} {place:?}");
        }
    }
}

//= test rfc5508#REQ-5
#[test]
fn req_5_routers_inside_need_not_be_subscribers() {
    // Routers without addresses (RFC 7600), and routers with addresses of the operator.
    for router in ["192.0.0.8", "198.51.100.99"] {
        for protocol in PROTOCOLS {
            let mut exchange = Exchange::new(protocol);
            let about = exchange.about(Place::InsideRouter);
            let told = exchange.lab.out(&error(router, REMOTE_HOST, 3, 4, &about));
            assert_eq!(ends(&told), (EXTERNAL.into(), REMOTE_HOST.into()));
            assert_eq!(told[28..], exchange.original(Place::InsideRouter));
            // The NAT drops other errors.
            let stray = error(router, REMOTE_HOST, 3, 4, &udp(REMOTE, "10.0.0.77:4000"));
            let (verdict, _) = exchange.lab.pass(Side::Inside, &stray);
            assert!(matches!(verdict, Verdict::Drop(_)));
        }
    }
}

//= test rfc5508#REQ-5c
#[test]
fn req_5c_an_error_from_inside_leaves_with_an_external_address() {
    for protocol in PROTOCOLS {
        for place in [Place::Host, Place::InsideRouter] {
            let mut exchange = Exchange::new(protocol);
            let error = exchange.error(place, (3, 3), &exchange.about(place));
            let told = exchange.forward(place, &error);
            assert_eq!(ends(&told), (EXTERNAL.into(), REMOTE_HOST.into()), "{protocol} {place:?}");
        }
    }
    // A host with a whole mapped address has that address, as in Basic NAT.
    let mut lab = Lab::new(&with_whole_addresses());
    let received = lab.inward(&udp(REMOTE, "198.18.0.80:53"));
    let told = lab.out(&error("10.0.0.80", REMOTE_HOST, 3, 3, &received));
    assert_eq!(ends(&told), ("198.18.0.80".into(), REMOTE_HOST.into()));
}

/// Two hosts whose whole addresses are mapped.
fn with_whole_addresses() -> Config {
    let whole = |host: u8| StaticMapping {
        protocol: None,
        internal: (Ipv4Addr::new(10, 0, 0, host), None),
        external: (Ipv4Addr::new(198, 18, 0, host), None),
        ..StaticMapping::default()
    };
    Config { statics: vec![whole(80), whole(81)], ..config() }
}

// ---- errors and sessions ----

fn sessions(lab: &Lab) -> Vec<SessionInfo> {
    lab.engine.sessions().collect()
}

//= test rfc5508#REQ-6
#[test]
fn req_6_errors_neither_refresh_nor_end_a_session() {
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            let before = sessions(&exchange.lab);
            let goes = before[0].expires;
            for error in ERRORS {
                exchange.lab.wait_s(2.5);
                let error = exchange.error(place, error, &exchange.about(place));
                exchange.forward(place, &error);
                assert_eq!(sessions(&exchange.lab), before, "{protocol} {place:?} {error:?}");
            }
            if protocol == protocol::ICMP {
                // The session lasted until its timeout, and no longer.
                exchange.lab.now = goes;
                exchange.lab.wait(Duration::ZERO);
                assert_eq!(exchange.lab.removed().len(), 1);
            }
        }
    }
}

// ---- hairpin ----

//= test rfc5508#REQ-7
#[test]
fn req_7_hosts_with_whole_addresses_ping_each_other_by_them() {
    let mut lab = Lab::new(&with_whole_addresses());
    let turn = |lab: &mut Lab, packet: &[u8]| {
        let (verdict, bytes) = lab.pass(Side::Inside, packet);
        assert_eq!(verdict, Verdict::Forward(Side::Inside));
        bytes
    };
    // From a host with a whole mapped address, and from a host that shares its external address.
    for (from, seen_as) in [("10.0.0.80", "198.18.0.80"), (HOST, EXTERNAL)] {
        let sent = ping(from, "198.18.0.81", 77);
        let received = turn(&mut lab, &sent);
        assert_eq!(ends(&received), (seen_as.into(), "10.0.0.81".into()));
        assert_eq!(received[26..], sent[26..]);
        let reply = icmp("10.0.0.81", seen_as, 0, 0, &received[24..]);
        let back = turn(&mut lab, &reply);
        assert_eq!(ends(&back), ("198.18.0.81".into(), from.into()));
        assert_eq!(back[24..], sent[24..]);
    }
}

/// A packet that a subscriber sent to another by its external endpoint: as sent, and as received.
struct Hairpin {
    lab: Lab,
    sent: Vec<u8>,
    received: Vec<u8>,
    sender: &'static str,
    receiver: &'static str,
    /// The external addresses of both.
    external: (String, String),
}

impl Hairpin {
    fn new(protocol: u8) -> Self {
        // Two external addresses, so that the sender's and the receiver's cannot be confused.
        let pools = vec![pool("203.0.113.1", "203.0.113.64", (1024, 65535))];
        let mut lab = Lab::new(&Config { pools, ..with_whole_addresses() });
        let sent = match protocol {
            protocol::UDP => {
                let to = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
                udp("10.0.0.5:4000", &to)
            }
            protocol::TCP => {
                let to = lab.external_of(&tcp("10.0.0.6:5000", REMOTE, "S", 1, 0));
                tcp("10.0.0.5:4000", &to, "S", 1, 0)
            }
            protocol::DCCP => {
                let to = lab.external_of(&dccp("10.0.0.6:5000", REMOTE, 0));
                dccp("10.0.0.5:4000", &to, 0)
            }
            // A shared address does not identify the receiver of a query; a mapped address does.
            _ => ping(HOST, "198.18.0.81", 77),
        };
        let (verdict, received) = lab.pass(Side::Inside, &sent);
        assert_eq!(verdict, Verdict::Forward(Side::Inside));
        let receiver = if protocol == protocol::ICMP { "10.0.0.81" } else { "10.0.0.6" };
        let to = Ipv4::new_checked(&sent[..]).unwrap().destination();
        let external = (source(&received), Ipv4Addr::from_bits(to).to_string());
        assert_ne!(external.0, external.1);
        Self { lab, sent, received, sender: HOST, receiver, external }
    }
}

//= test rfc5508#REQ-7
//= test rfc5508#REQ-7a
#[test]
fn req_7a_a_hairpinned_error_goes_to_whom_it_quotes() {
    for protocol in PROTOCOLS {
        for from_router in [false, true] {
            let mut hairpin = Hairpin::new(protocol);
            for (kind, code) in ERRORS {
                let from = if from_router { INSIDE_ROUTER } else { hairpin.receiver };
                let about = with_ttl(&hairpin.received, 1);
                let error = error(from, &hairpin.external.0, kind, code, &about);
                let (verdict, told) = hairpin.lab.pass(Side::Inside, &error);
                assert_eq!(verdict, Verdict::Forward(Side::Inside), "{protocol}");
                assert_eq!(ends(&told), (hairpin.external.1.clone(), hairpin.sender.into()));
                assert_eq!((told[20], told[21]), (kind, code));
                assert_eq!(told[28..], with_ttl(&hairpin.sent, 1), "{protocol}");
                assert_eq!(source(&told[28..]), ends(&told).1);
            }
        }
    }
}
