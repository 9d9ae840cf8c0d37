//! RFC 1812: duties of any router for the packets that it forwards, and ICMP messages that it makes
//! (`rfc1812/own_icmp.rs`), as far as they concern a box with two sides and no routing protocol.

mod own_icmp;

use crate::common::*;
use crate::exchange::*;
use natgate_engine::{
    Config, Counters, Direction, DropReason, Match, Outcome, Prefix, Rule, RuleAction, Side,
    SideConfig, Verdict,
};
use natgate_wire::{Ipv4, protocol};
use std::net::Ipv4Addr;

const OWN: [(Side, &str, &str); 2] =
    [(Side::Inside, HOST, "10.0.0.1"), (Side::Outside, "192.0.2.9", "192.0.2.254")];

fn view(bytes: &[u8]) -> Ipv4<&[u8]> {
    Ipv4::new_checked(bytes).unwrap()
}

/// The exchanges of all protocols, with both packets changed. Returns the packets before and after.
fn both_ways(shape: impl Fn(&[u8]) -> Vec<u8>) -> Vec<[Vec<u8>; 2]> {
    let pairs = PROTOCOLS.map(|protocol| {
        let exchange = Exchange::shaped(&config(), protocol, &shape);
        [[exchange.sent, exchange.left], [exchange.came, exchange.received]]
    });
    pairs.into_iter().flatten().collect()
}

/// The ICMP errors that have been sent.
fn errors(lab: &mut Lab) -> Vec<Vec<u8>> {
    lab.sent.drain(..).map(|(_, _, bytes)| bytes).collect()
}

/// The ICMP error about a packet whose TTL ends here.
fn expired(cause: &[u8]) -> Vec<u8> {
    let mut lab = Lab::new(&config());
    let cause = with_ttl(cause, 1);
    assert_eq!(lab.refused(Side::Inside, &cause), DropReason::TtlExceeded);
    let [told] = &errors(&mut lab)[..] else { panic!("one error") };
    ends(told);
    told.clone()
}

/// The two fragments of a datagram.
fn halves(datagram: &[u8], flags: u16) -> [Vec<u8>; 2] {
    let middle = 20 + (datagram.len() - 20) / 16 * 8;
    let part = |payload: &[u8], field| {
        let mut bytes = [&datagram[..20], payload].concat();
        let total_len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
        with_fragment_field(&bytes, 7, flags | field)
    };
    [part(&datagram[20..middle], 0x2000), part(&datagram[middle..], (middle as u16 - 20) / 8)]
}

fn with_ends(bytes: &[u8], source: Option<&str>, destination: Option<&str>) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let mut packet = Ipv4::new_checked(&mut changed[..]).unwrap();
    if let Some(source) = source {
        packet.set_source(endpoint(source).0);
    }
    if let Some(destination) = destination {
        packet.set_destination(endpoint(destination).0);
    }
    packet.fill_checksum();
    changed
}

/// Addresses that name no single host anywhere.
const NOBODY: [&str; 14] = [
    "0.0.0.0",
    "0.0.0.5",
    "0.255.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.0.1",
    "169.254.255.254",
    "224.0.0.1",
    "224.0.0.251",
    "239.255.255.255",
    "240.0.0.1",
    "250.1.2.3",
    "255.255.255.254",
    "255.255.255.255",
];

const EXTERNAL_UDP: &str = "203.0.113.1:1023";

// ---- options ----

//= test rfc1812#section-4.2.2.1-stream
//= test rfc1812#section-4.2.2.6
//= test rfc1812#section-5.3.13.1
//= test rfc1812#section-5.3.13.3
#[test]
fn section_5_3_13_options_that_mean_nothing_here_pass_unchanged() {
    for options in [
        // Stream identifier, router alert, an unknown option and class, no-operation, end of list.
        &[136, 4, 0, 7][..],
        &[148, 4, 0, 0],
        &[30, 6, 1, 2, 3, 4, 0, 0],
        &[0xfe, 2, 1, 1],
        &[1, 1, 1, 1],
        &[0, 0xff, 0xff, 0xff],
    ] {
        for [before, after] in both_ways(|packet| with_options(packet, options)) {
            let header_len = 20 + options.len();
            assert_eq!(after[20..header_len], before[20..header_len], "{options:?}");
            assert_eq!(view(&after).header_len(), header_len);
        }
        for (side, from, to) in OWN {
            let request = with_options(&ping(from, to, 7), options);
            let mut lab = Lab::new(&config());
            assert_eq!(lab.pass(side, &request).0, Verdict::Reply(side), "{options:?}");
        }
    }
}

// ---- reserved bits, type of service ----

//= test rfc1812#section-4.2.2.3-received
//= test rfc1812#section-5.2.5
#[test]
fn section_5_2_5_reserved_bits_pass_unchanged() {
    const RESERVED_FLAG: u16 = 0x8000;
    for flags in [0, DONT_FRAGMENT] {
        let shape =
            |packet: &[u8]| with_service(&with_fragment_field(packet, 7, RESERVED_FLAG | flags), 1);
        for [before, after] in both_ways(shape) {
            assert_eq!((before[1], after[1]), (1, 1));
            assert_eq!(after[6..8], before[6..8]);
        }
    }
}

//= test rfc1812#section-4.2.2.3-own
#[test]
fn section_4_2_2_3_own_packets_have_reserved_bits_clear() {
    for service in [0, 1, 0xff] {
        let told = expired(&with_service(&udp("10.0.0.5:4000", REMOTE), service));
        assert_eq!((told[1] & 1, told[6] & 0x80), (0, 0));
    }
}

//= test rfc1812#section-5.3.3.3-accept
//= test rfc1812#section-5.3.3.3-unchanged
#[test]
fn section_5_3_3_3_every_type_of_service_passes_unchanged() {
    for service in 0..=255 {
        let exchange =
            Exchange::shaped(&config(), protocol::UDP, |packet| with_service(packet, service));
        assert_eq!((exchange.left[1], exchange.received[1]), (service, service));
    }
}

//= test rfc1812#section-4.2.3.3
#[test]
fn section_4_2_3_3_own_errors_fit_the_link_that_they_leave_by() {
    for mtu in [68, 300, 575, 576, 577] {
        let mut narrow = config();
        narrow.inside.mtu = Some(mtu);
        let mut lab = Lab::new(&narrow);
        lab.refused(Side::Inside, &with_ttl(&udp_with("10.0.0.5:4000", REMOTE, &[0; 1000]), 1));
        let told = &errors(&mut lab)[0];
        ends(told);
        assert_eq!(told.len(), usize::from(mtu).min(576));
    }
}

//= test rfc1812#section-4.3.2.5
#[test]
fn section_4_3_2_5_an_error_has_the_type_of_service_of_its_cause() {
    let mut lab = Lab::new(&config());
    for service in 0..64 {
        let cause = with_service(&udp("10.0.0.5:4000", REMOTE), service << 2);
        lab.refused(Side::Inside, &with_ttl(&cause, 1));
        assert_eq!(errors(&mut lab)[0][1], service << 2);
    }
}

//= test rfc1812#section-4.3.2.5-reply
#[test]
fn section_4_3_2_5_an_echo_reply_has_the_service_and_precedence_of_its_request() {
    let mut lab = Lab::new(&config());
    for (side, from, to) in OWN {
        for service in 0..=255 {
            let (verdict, reply) = lab.pass(side, &with_service(&ping(from, to, 7), service));
            assert_eq!((verdict, reply[1]), (Verdict::Reply(side), service));
        }
    }
}

// ---- header checks ----

/// Packets that are no valid IPv4 packets, each with its reason.
fn invalid_headers(good: &[u8]) -> Vec<(Vec<u8>, DropReason)> {
    let with = |at: usize, value: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        let sum =
            natgate_wire::checksum::checksum(&[&bytes[..10], &[0, 0], &bytes[12..20]].concat());
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let mut checksum = good.to_vec();
    checksum[11] ^= 1;
    vec![
        (good[..19].to_vec(), DropReason::BadLength),
        (checksum, DropReason::BadHeaderChecksum),
        (with(0, 0x65), DropReason::NotIpv4),
        (with(0, 0x44), DropReason::BadLength),
        (with(3, 19), DropReason::BadLength),
        (with(3, good.len() as u8 + 1), DropReason::BadLength),
    ]
}

//= test rfc1812#section-4.2.2.5-verify
//= test rfc1812#section-4.3.2.7-header
//= test rfc1812#section-5.2.2
//= test rfc1812#section-5.2.2-truncated
#[test]
fn section_5_2_2_what_is_no_packet_is_dropped_silently() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    for (side, good) in [(Side::Inside, exchange.sent), (Side::Outside, exchange.came)] {
        for dying in [good.clone(), with_ttl(&good, 1)] {
            for (bytes, reason) in invalid_headers(&dying) {
                assert_eq!(silently(&mut lab, side, &bytes), reason);
            }
        }
    }
}

// ---- time to live ----

//= test rfc1812#section-5.3.1-decrement
//= test rfc1812#section-5.3.1-predict
#[test]
fn section_5_3_1_each_packet_loses_one_hop_and_lives_while_one_is_left() {
    const TTLS: [u8; 4] = [2, 3, 64, 255];
    for ttl in TTLS {
        for [_, after] in both_ways(|packet| with_ttl(packet, ttl)) {
            assert_eq!(view(&after).ttl(), ttl - 1);
        }
    }
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            let error = exchange.error(place, (3, 1), &exchange.about(place));
            for ttl in TTLS {
                let told = exchange.forward(place, &with_ttl(&error, ttl));
                assert_eq!(view(&told).ttl(), ttl - 1, "an ICMP error");
            }
        }
    }
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
    let (verdict, round) = lab.pass(Side::Inside, &with_ttl(&udp("10.0.0.5:4000", &external), 2));
    assert_eq!((verdict, view(&round).ttl()), (Verdict::Forward(Side::Inside), 1));
}

/// A gateway that lets packets to 198.18.0.0/15 pass untranslated.
fn with_bypass() -> Config {
    let prefix = Prefix::new(Ipv4Addr::new(198, 18, 0, 0), 15);
    let rule = Rule::new(Match::Destination(prefix, 0), RuleAction::Bypass);
    Config { rules: vec![rule], ..config() }
}

//= test rfc1812#section-4.2.2.9-zero
//= test rfc1812#section-5.2.7.3
//= test rfc1812#section-5.3.1-error
#[test]
fn section_5_3_1_a_packet_without_hops_left_is_dropped_and_its_sender_told() {
    let mut lab = Lab::new(&with_bypass());
    let external = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
    let cases = [
        (Side::Inside, udp("10.0.0.5:4000", REMOTE)),
        (Side::Inside, tcp("10.0.0.5:4000", REMOTE, "S", 1, 0)),
        (Side::Inside, ping(HOST, REMOTE_HOST, 77)),
        (Side::Inside, ip(47, endpoint(HOST).0, endpoint(REMOTE_HOST).0, b"tunnel")),
        (Side::Inside, udp("10.0.0.5:4000", &external)),
        (Side::Inside, udp("10.0.0.5:4000", "198.18.0.1:53")),
        (Side::Outside, udp(REMOTE, &external)),
        (Side::Outside, udp("198.18.0.1:53", "10.0.0.5:4000")),
    ];
    for ttl in [0, 1] {
        for (side, packet) in &cases {
            let last = with_ttl(packet, ttl);
            assert_eq!(lab.refused(*side, &last), DropReason::TtlExceeded);
            let [told] = &errors(&mut lab)[..] else { panic!("one error") };
            assert_eq!((told[20], told[21], ends(told).1), (11, 0, source(packet)));
            assert_eq!(told[28..], last);
        }
    }
}

//= test rfc1812#section-4.2.2.9-local
#[test]
fn section_4_2_2_9_who_has_arrived_needs_no_hop() {
    for config in [config(), shared_address()] {
        let mut lab = Lab::new(&config);
        let outside = config.outside.address.unwrap().to_string();
        for (side, from, to) in
            [(Side::Inside, HOST, "10.0.0.1"), (Side::Outside, "192.0.2.9", outside.as_str())]
        {
            for ttl in [0, 1] {
                let (verdict, reply) = lab.pass(side, &with_ttl(&ping(from, to, 7), ttl));
                assert_eq!(verdict, Verdict::Reply(side));
                assert!(view(&reply).ttl() > 32);
            }
        }
        assert!(lab.sent.is_empty());
    }
}

/// A gateway whose own address outside is the external address.
fn shared_address() -> Config {
    let address = Some(Ipv4Addr::new(203, 0, 113, 1));
    let network = Some(Prefix::new(Ipv4Addr::new(203, 0, 113, 0), 24));
    Config { outside: SideConfig { address, network, ..SideConfig::default() }, ..config() }
}

// ---- forwarding ----

//= test rfc1812#section-5.2.6-reassembly
#[test]
fn section_5_2_6_fragments_are_forwarded_as_they_come() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    let external = ends(&exchange.left).0;
    for (side, from, to) in [
        (Side::Inside, "10.0.0.5:4000", REMOTE),
        (Side::Outside, REMOTE, external.as_str()),
        (Side::Inside, "10.0.0.6:4000", external.as_str()),
    ] {
        for part in halves(&udp_with(from, to, &[0xa5; 800]), 0) {
            let (verdict, passed) = lab.pass(side, &part);
            assert!(matches!(verdict, Verdict::Forward(_)), "at once");
            assert_eq!((passed.len(), &passed[6..8]), (part.len(), &part[6..8]));
        }
    }
}

//= test rfc1812#section-5.3.8
#[test]
fn section_5_3_8_nobody_sends_with_an_address_of_the_gateways() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    for own in ["10.0.0.1", "192.0.2.254", EXTERNAL] {
        for (side, good) in [(Side::Inside, &exchange.sent), (Side::Outside, &exchange.came)] {
            let to = if own == EXTERNAL { Some(REMOTE_HOST) } else { None };
            let spoofed = with_ends(good, Some(own), to);
            assert_eq!(silently(&mut lab, side, &spoofed), DropReason::SpoofedSource, "{own}");
        }
    }
}

//= test rfc1812#section-4.2.2.11-counted
//= test rfc1812#section-5.3.9-counted
#[test]
fn section_5_3_9_what_is_not_forwarded_is_counted_under_its_reason() {
    let mut lab = Lab::new(&config());
    let count = |counters: &Counters, reason: DropReason| counters.drops[reason as usize];
    for (n, nobody) in NOBODY.iter().enumerate() {
        lab.pass(Side::Inside, &with_ends(&udp("10.0.0.5:4000", REMOTE), Some(nobody), None));
        lab.pass(Side::Outside, &udp(REMOTE, EXTERNAL_UDP));
        let counters = lab.engine.counters();
        assert_eq!(count(counters, DropReason::MartianSource), n as u64 + 1);
        assert_eq!(count(counters, DropReason::NoMapping), n as u64 + 1);
    }
}
