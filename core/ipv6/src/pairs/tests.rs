//! Tests of packets through pairs of prefixes.

use super::*;
use crate::Nptv6;
use alloc::string::ToString;
use alloc::vec;
use natgate_wire::Icmpv6;
use proptest::prelude::*;

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn prefix(text: &str) -> Prefix6 {
    let (text, len) = text.split_once('/').expect("a prefix");
    Prefix6 { address: address(text), len: len.parse().expect("a length") }
}

fn pair(internal: &str, external: &str) -> Nptv6Settings {
    let pair = Nptv6::new(prefix(internal), prefix(external)).expect("a pair");
    Nptv6Settings { pair, icmp_errors: true }
}

/// Two pairs: of 48 bits, and of 56.
fn pairs() -> Pairs {
    let long = pair("fd77:1:1:100::/56", "2001:db8:7:700::/56");
    Pairs::new(&[pair("fd01:203:405::/48", "2001:db8:1::/48"), long]).expect("a table")
}

/// An ICMPv6 message in a packet, with its checksum.
fn message(source: Ipv6Addr, destination: Ipv6Addr, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes.extend_from_slice(body);
    let mut packet = Ipv6::init(&mut bytes[..]);
    packet.set_payload_len(8 + body.len() as u16);
    packet.set_next_header(protocol::ICMPV6);
    packet.set_hop_limit(64);
    packet.set_source(source.into());
    packet.set_destination(destination.into());
    bytes[40] = kind;
    let mut message = Icmpv6::new_checked(&mut bytes[40..]).expect("a message");
    message.fill_checksum(source.into(), destination.into());
    bytes
}

fn echo(source: &str, destination: &str) -> Vec<u8> {
    message(address(source), address(destination), icmpv6::kind::ECHO_REQUEST, b"body")
}

/// Source and destination; the checksum must be right.
#[track_caller]
fn ends(bytes: &[u8]) -> (Ipv6Addr, Ipv6Addr) {
    let packet = Ipv6::new_checked(bytes).expect("a packet");
    let message = Icmpv6::new_checked(packet.payload()).expect("a message");
    assert!(message.checksum_valid(packet.source(), packet.destination()), "a wrong checksum");
    (packet.source().into(), packet.destination().into())
}

const HOST: &str = "fd01:203:405:1::1234";
const HOST_OUTSIDE: &str = "2001:db8:1:d550::1234";
const PEER: &str = "2001:db8:ffff::9";

#[test]
fn a_packet_goes_out_and_its_answer_comes_in() {
    let pairs = pairs();
    let mut out = echo(HOST, PEER);
    assert_eq!(pairs.from_inside(&mut out), Some(Ok(Way::Across)));
    assert_eq!(ends(&out), (address(HOST_OUTSIDE), address(PEER)));
    let mut back = echo(PEER, HOST_OUTSIDE);
    assert_eq!(pairs.from_outside(&mut back), Some(Ok(Way::Across)));
    assert_eq!(ends(&back), (address(PEER), address(HOST)));
}

#[test]
fn packets_that_no_pair_concerns_are_left_alone() {
    let pairs = pairs();
    let untouched = |mut bytes: Vec<u8>, is_inside: bool| {
        let before = bytes.clone();
        let way = match is_inside {
            true => pairs.from_inside(&mut bytes),
            false => pairs.from_outside(&mut bytes),
        };
        assert_eq!((way, bytes), (None, before));
    };
    untouched(echo("2001:db8:9::1", PEER), true);
    untouched(echo(PEER, "2001:db8:9::1"), false);
    // An internal prefix is not known outside.
    untouched(echo(PEER, HOST), false);
    untouched(echo(HOST, PEER)[..30].to_vec(), true);
    untouched(Vec::new(), false);
    assert!(Pairs::default().is_empty() && !pairs.is_empty());
}

// RFC 6296 section 4.3.
#[test]
fn a_packet_to_an_external_address_turns_back_inside() {
    let pairs = pairs();
    let inner = "fd77:1:1:105::7";
    let mut bytes = echo(inner, PEER);
    assert_eq!(pairs.from_inside(&mut bytes), Some(Ok(Way::Across)));
    let outer = ends(&bytes).0;
    assert!(prefix("2001:db8:7:700::/56").contains(outer));
    let mut bytes = message(address(HOST), outer, icmpv6::kind::ECHO_REQUEST, b"");
    assert_eq!(pairs.from_inside(&mut bytes), Some(Ok(Way::Back)));
    assert_eq!(ends(&bytes), (address(HOST_OUTSIDE), address(inner)));
}

#[test]
fn a_quoted_packet_is_translated_with_the_error() {
    let pairs = pairs();
    let router = address("2001:db8:ffff::fe");
    let quoted = |source, destination| echo(source, destination);
    // A router outside quotes what it got from the host.
    let too_big = icmpv6::kind::PACKET_TOO_BIG;
    let mut bytes = message(router, address(HOST_OUTSIDE), too_big, &quoted(HOST_OUTSIDE, PEER));
    assert_eq!(pairs.from_outside(&mut bytes), Some(Ok(Way::Across)));
    assert_eq!(ends(&bytes), (router, address(HOST)));
    assert_eq!(ends(&bytes[48..]), (address(HOST), address(PEER)));
    // The host quotes what it got from the peer.
    let unreachable = icmpv6::kind::UNREACHABLE;
    let mut bytes = message(address(HOST), address(PEER), unreachable, &quoted(PEER, HOST));
    assert_eq!(pairs.from_inside(&mut bytes), Some(Ok(Way::Across)));
    assert_eq!(ends(&bytes), (address(HOST_OUTSIDE), address(PEER)));
    assert_eq!(ends(&bytes[48..]), (address(PEER), address(HOST_OUTSIDE)));
    // A router inside quotes it, and has an address that needs no translation.
    let mut bytes = message(router, address(PEER), unreachable, &quoted(PEER, HOST));
    assert_eq!(pairs.from_inside(&mut bytes), Some(Ok(Way::Across)));
    assert_eq!(ends(&bytes), (router, address(PEER)));
    assert_eq!(ends(&bytes[48..]).1, address(HOST_OUTSIDE));
}

#[test]
fn an_error_that_turns_back_quotes_the_packet_as_it_was_sent() {
    let pairs = pairs();
    let (sender, receiver) = (HOST, "fd01:203:405:2::5");
    let mut probe = echo(receiver, PEER);
    assert_eq!(pairs.from_inside(&mut probe), Some(Ok(Way::Across)));
    let receiver_outside = ends(&probe).0;
    let request = icmpv6::kind::ECHO_REQUEST;
    let mut sent = message(address(sender), receiver_outside, request, b"");
    let as_sent = sent.clone();
    assert_eq!(pairs.from_inside(&mut sent), Some(Ok(Way::Back)));
    let unreachable = icmpv6::kind::UNREACHABLE;
    let mut error = message(address(receiver), address(HOST_OUTSIDE), unreachable, &sent);
    assert_eq!(pairs.from_inside(&mut error), Some(Ok(Way::Back)));
    assert_eq!(ends(&error), (receiver_outside, address(sender)));
    assert_eq!(error[48..], as_sent);
}

#[test]
fn queries_and_later_fragments_quote_nothing() {
    let pairs = pairs();
    let quotation = echo(HOST_OUTSIDE, PEER);
    let mut query = message(address(PEER), address(HOST_OUTSIDE), 128, &quotation);
    assert_eq!(pairs.from_outside(&mut query), Some(Ok(Way::Across)));
    assert_eq!(query[48..], quotation);
    // The bytes of a later fragment look like an error.
    let error = message(address(PEER), address(HOST_OUTSIDE), 1, &quotation);
    for (offset, is_translated) in [(0, true), (8, false)] {
        let mut bytes = error[..40].to_vec();
        bytes.extend_from_slice(&[protocol::ICMPV6, 0, 0, offset, 0, 0, 0, 1]);
        bytes.extend_from_slice(&error[40..]);
        let mut packet = Ipv6::new_header_checked(&mut bytes[..]).expect("a header");
        packet.set_next_header(natgate_wire::ipv6::next::FRAGMENT);
        packet.set_payload_len((error.len() - 40 + 8) as u16);
        assert_eq!(pairs.from_outside(&mut bytes), Some(Ok(Way::Across)));
        assert_eq!(bytes[56..] != quotation[..], is_translated, "offset {offset}");
    }
}

//= test rfc6296#section-3.2-unmapped
//= test rfc6296#section-3.7-zero
//= test rfc6296#section-3.7-error
#[test]
fn addresses_without_a_translation_are_refused_and_the_packet_stays() {
    let cases = [
        ("fd01:203:405:ffff::1", PEER, true, ErrorMessage::PROHIBITED_IPV6),
        ("fd77:1:1:105::", PEER, true, ErrorMessage::erroneous_field(8)),
        ("fd77:1:1:105:ffff:ffff:ffff:ffff", PEER, true, ErrorMessage::erroneous_field(8)),
        (HOST, "2001:db8:7:705::", true, ErrorMessage::erroneous_field(24)),
        (PEER, "2001:db8:7:705::", false, ErrorMessage::erroneous_field(24)),
    ];
    let loud = pairs();
    let quiet = |one: &Nptv6Settings| Nptv6Settings { icmp_errors: false, ..*one };
    let quiet: Vec<Nptv6Settings> = loud.pairs.iter().map(quiet).collect();
    let quiet = Pairs::new(&quiet).expect("a table");
    let reason = DropReason::Untranslatable;
    for (source, destination, is_inside, error) in cases {
        for (pairs, expected) in
            [(&loud, Refusal::with(reason, error)), (&quiet, Refusal::silent(reason))]
        {
            let mut bytes = echo(source, destination);
            let found = match is_inside {
                true => pairs.from_inside(&mut bytes),
                false => pairs.from_outside(&mut bytes),
            };
            assert_eq!(found, Some(Err(expected)), "{source} > {destination}");
            assert_eq!(bytes, echo(source, destination));
        }
    }
    // The internal prefix is the longer one: other external subnets have no counterpart.
    let pairs = Pairs::new(&[pair("fd00:0:0:100::/56", "2001:db8:1::/48")]).expect("a table");
    let error = ErrorMessage::new(icmpv6::kind::UNREACHABLE, 0, 0);
    let found = pairs.from_outside(&mut echo(PEER, "2001:db8:1:100::1"));
    assert_eq!(found, Some(Err(Refusal::with(reason, error))));
}

#[test]
fn pairs_that_overlap_are_refused_with_the_common_prefix() {
    let first = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let cases = [
        (
            pair("fd01:203::/32", "2001:db8:2::/48"),
            "fd01:203::/32 and fd01:203:405::/48 of an earlier pair have fd01:203:405::/48 in \
             common",
        ),
        (
            pair("fd02::/48", "2001:db8:1:8000::/49"),
            "2001:db8:1:8000::/49 and 2001:db8:1::/48 of an earlier pair have \
             2001:db8:1:8000::/49 in common",
        ),
        (
            pair("2001:db8:1:1::/64", "2001:db8:2::/48"),
            "2001:db8:1:1::/64 and 2001:db8:1::/48 of an earlier pair have 2001:db8:1:1::/64 in \
             common",
        ),
    ];
    for (second, expected) in cases {
        let found = Pairs::new(&[first, second]).expect_err("an overlap");
        assert_eq!((found.earlier.0, found.later.0), (0, 1));
        assert_eq!(found.to_string(), expected);
    }
    assert_eq!(overlap(&[first, pair("fd02::/48", "2001:db8:2::/48")]), None);
}

/// Pairs of prefixes that lie close together, so that some overlap.
fn some_pairs() -> impl Strategy<Value = Vec<Nptv6Settings>> {
    let prefix = || {
        (any::<u128>(), 4_u8..=64).prop_map(|(bits, len)| Prefix6 {
            address: Ipv6Addr::from_bits(bits & 0xff00_00ff_ffff << 80),
            len,
        })
    };
    let one = (prefix(), prefix()).prop_filter_map("no pair", |(internal, external)| {
        let pair = Nptv6::new(internal, external).ok()?;
        Some(Nptv6Settings { pair, icmp_errors: true })
    });
    prop::collection::vec(one, 0..6)
}

proptest! {
    #[test]
    fn the_table_is_what_looking_at_all_pairs_finds(pairs in some_pairs(), any in any::<u128>()) {
        let prefixes = || pairs.iter().enumerate().flat_map(|(place, one)| {
            [(place, one.pair.internal()), (place, one.pair.external())]
        });
        let overlaps = prefixes()
            .any(|a| prefixes().any(|b| a.0 != b.0 && a.1.overlaps(b.1)));
        let Ok(table) = Pairs::new(&pairs) else {
            prop_assert!(overlaps);
            return Ok(());
        };
        prop_assert!(!overlaps);
        let ends = prefixes().flat_map(|(_, prefix)| [prefix.first(), prefix.last()]);
        let near = ends.map(Ipv6Addr::to_bits);
        let near = near.flat_map(|end| [end.wrapping_sub(1), end, end.wrapping_add(1)]);
        for address in near.chain([any]).map(Ipv6Addr::from_bits) {
            let internal = pairs.iter().find_map(|one| one.pair.outbound(address));
            let external = pairs.iter().find_map(|one| one.pair.inbound(address));
            let found = table.outward(address, SOURCE).map(Result::ok);
            prop_assert_eq!(found, internal.map(Result::ok));
            let found = table.inward(address, SOURCE).map(Result::ok);
            prop_assert_eq!(found, external.map(Result::ok));
        }
    }

    #[test]
    fn any_bytes_are_taken(mut bytes in prop::collection::vec(any::<u8>(), 0..160), of in 0..4_u8) {
        // Most bytes have a version and addresses of the pairs, and a quotation.
        if let (Some(first), 1..) = (bytes.first_mut(), of) {
            *first = 0x60;
        }
        if of > 1 && bytes.len() >= 48 {
            let len = bytes.len() - 40;
            bytes[4..7].copy_from_slice(&[0, len as u8, if of == 2 { 44 } else { 58 }]);
            bytes[8..24].copy_from_slice(&address(HOST).octets());
            bytes[24..40].copy_from_slice(&address(HOST_OUTSIDE).octets());
        }
        let (mut inside, mut outside) = (bytes.clone(), bytes.clone());
        if !matches!(pairs().from_inside(&mut inside), Some(Ok(_))) {
            prop_assert_eq!(&inside, &bytes);
        }
        if !matches!(pairs().from_outside(&mut outside), Some(Ok(_))) {
            prop_assert_eq!(&outside, &bytes);
        }
    }
}
