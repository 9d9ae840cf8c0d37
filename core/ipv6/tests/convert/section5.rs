//! RFC 7915 section 5, IPv6 to IPv4. The name of a test begins with the section.

use crate::support::*;
use natgate_engine::DropReason as R;
use natgate_ipv6::convert::{ConvertSettings, ErrorMessage, Hops, Place};
use natgate_wire::ipv4;
use natgate_wire::{Ipv4, Ipv6};

fn keep() -> ConvertSettings {
    ConvertSettings { hops: Hops::Keep, ..ConvertSettings::default() }
}

fn with(settings: ConvertSettings, bytes: &[u8]) -> Done {
    to_ipv4_with(settings, bytes, &mut ByPrefix::default())
}

/// The identification of a packet, which no test can know.
fn identification(bytes: &[u8]) -> u16 {
    Ipv4::new_checked(bytes).unwrap().identification()
}

/// Asserts that a packet is converted to `wanted`, with an identification of its own.
#[track_caller]
fn becomes(name: &str, done: Done, mut wanted: Four) {
    let done = whole(done);
    wanted.identification = identification(&done);
    same(name, &done, &wanted.bytes());
}

/// The IPv4 form of `six(protocol, len)` after one hop.
fn expected(protocol: u8, len: usize) -> Four {
    let fragment_field = if len + 20 <= 1260 { 0 } else { 0x4000 };
    Four { fragment_field, ttl: 63, ..four(protocol, len) }
}

//= test rfc7915#section-5-df-clear
//= test rfc7915#section-5-df-set
//= test rfc7915#section-5.5-forward
#[test]
fn section_5_1_fields_of_an_unfragmented_packet() {
    for protocol in [6, 17, 33, 136, 47, 50, 51, 59, 132, 135, 253] {
        for len in [20, 21, 1000, 1240, 1241, 1480] {
            let done = to_ipv4(&six(protocol, len).bytes());
            becomes(&format!("{protocol} {len}"), done, expected(protocol, len));
        }
    }
}

//= test rfc7915#section-5.1-tos
#[test]
fn section_5_1_the_service_is_copied_or_set_and_the_flow_label_lost() {
    let bytes = Six { traffic_class: 0xb9, flow_label: 0xf_ffff, ..six(17, 30) }.bytes();
    becomes("copied", to_ipv4(&bytes), Four { service: 0xb9, ..expected(17, 30) });
    let settings = ConvertSettings { service: Some(0x10), ..ConvertSettings::default() };
    becomes("set", with(settings, &bytes), Four { service: 0x10, ..expected(17, 30) });
}

#[test]
fn section_5_1_bytes_behind_the_payload_length_go() {
    let mut bytes = six(17, 30).bytes();
    bytes.extend([9; 16]);
    becomes("padding", to_ipv4(&bytes), expected(17, 30));
}

#[test]
fn section_5_1_identifications_come_from_a_generator() {
    let mut converter = natgate_ipv6::convert::Converter::new(keep(), [9; 32]);
    let mut next = |len| {
        let mut buffer = six(17, len).bytes();
        let mut packet = natgate_engine::Packet::new(&mut buffer, 0);
        converter.to_ipv4(&mut packet, &mut ByPrefix::default()).unwrap();
        identification(packet.bytes())
    };
    let first = next(30);
    assert_eq!([next(30), next(1480)], [first.wrapping_add(1), first.wrapping_add(2)]);
}

//= test rfc7915#section-5.1-ttl
#[test]
fn section_5_1_the_ttl_is_checked_where_it_is_decremented() {
    for hop_limit in [0, 1] {
        let bytes = Six { hop_limit, ..six(17, 30) }.bytes();
        let error = Some(ErrorMessage::new(3, 0, 0));
        assert_eq!(refused(to_ipv4(&bytes)), (R::TtlExceeded, error));
        assert_eq!(whole(with(keep(), &bytes))[8], hop_limit);
    }
}

//= test rfc7915#section-5.1-extension
#[test]
fn section_5_1_extension_headers_are_skipped() {
    for extensions in [
        vec![(0, 8)],
        vec![(43, 24)],
        vec![(60, 16)],
        vec![(0, 8), (60, 8), (43, 24), (60, 2048)],
        vec![(60, 8); 8],
    ] {
        let bytes = Six { extensions, ..six(6, 40) }.bytes();
        becomes("skipped", to_ipv4(&bytes), expected(6, 40));
    }
    let bytes = Six { extensions: vec![(60, 8); 9], ..six(6, 40) }.bytes();
    assert_eq!(refused(to_ipv4(&bytes)), (R::ExtensionHeaders, None));
    let mut bytes = Six { extensions: vec![(60, 8)], ..six(6, 40) }.bytes();
    bytes[41] = 200;
    assert_eq!(refused(to_ipv4(&bytes)), (R::ExtensionHeaders, None));
}

//= test rfc7915#section-5.1-segments
//= test rfc7915#section-5.1-segments-error
#[test]
fn section_5_1_segments_left_are_answered_with_their_place() {
    let mut bytes = Six { extensions: vec![(0, 16), (43, 24)], ..six(6, 40) }.bytes();
    bytes[40 + 16 + 3] = 1;
    let error = Some(ErrorMessage::new(4, 0, 59));
    assert_eq!(refused(to_ipv4(&bytes)), (R::SegmentsLeft, error));
}

#[test]
fn section_5_1_broken_headers_are_refused() {
    assert_eq!(refused(to_ipv4(&six(17, 30).bytes()[..69])).0, R::BadLength);
    assert_eq!(refused(to_ipv4(&four(17, 30).bytes())).0, R::NotIpv4);
    assert_eq!(refused(to_ipv4(&Six::new(6, vec![1; 17]).bytes())).0, R::BadLength);
}

//= test rfc7915#section-5.1.1-total-length
//= test rfc7915#section-5.1.1-offset
#[test]
fn section_5_1_1_fragments_keep_offset_flag_and_low_identification() {
    for (offset, more, field) in [(0, true, 0x2000), (1480, true, 0x20b9), (1480, false, 0x00b9)] {
        for extensions in [vec![], vec![(0, 8), (43, 8)]] {
            let payload = seal6(6, embed(CLIENT), embed(SERVER), raw(6, 48));
            let packet = Six::new(6, payload.clone()).fragment(offset, more, 0xdead_1234);
            let changed = seal4(6, CLIENT, SERVER, payload.clone());
            let payload = if offset == 0 { changed } else { payload };
            let wanted = Four { fragment_field: field, ttl: 63, ..Four::new(6, payload) };
            let done = whole(to_ipv4(&Six { extensions, ..packet }.bytes()));
            same("fragment", &done, &wanted.bytes());
        }
    }
}

#[test]
fn section_5_1_1_atomic_fragments_are_like_fragments() {
    let bytes = six(6, 1400).fragment(0, false, 0xffff_1234).bytes();
    let wanted = Four { fragment_field: 0, ttl: 63, ..four(6, 1400) }.bytes();
    same("atomic", &whole(to_ipv4(&bytes)), &wanted);
    let ends = (embed(CLIENT), embed(SERVER));
    let echo = Six::new(58, icmp6(ends, 128, 0, 7, b"atom")).fragment(0, false, 0x1234);
    let wanted = Four { fragment_field: 0, ttl: 63, ..Four::new(1, icmp(8, 0, 7, b"atom")) };
    same("echo", &whole(to_ipv4(&echo.bytes())), &wanted.bytes());
}

//= test rfc7915#section-5.1.1-extension
#[test]
fn section_5_1_1_extension_headers_behind_a_fragment_header_are_refused() {
    for next_header in [0, 43, 44, 51, 60, 135, 139, 140] {
        for (offset, more) in [(0, true), (0, false), (8, false)] {
            let bytes = Six::new(next_header, vec![0; 64]).fragment(offset, more, 1).bytes();
            assert_eq!(refused(to_ipv4(&bytes)), (R::ExtensionHeaders, None), "{next_header}");
        }
    }
    assert!(to_ipv4(&six(50, 64).fragment(0, true, 1).bytes()).is_ok(), "ESP");
}

//= test rfc7915#section-5.1.1-cut
#[test]
fn section_5_1_1_what_ipv6_need_not_shorten_is_cut_in_ipv4() {
    let settings = ConvertSettings { mtu_ipv4: 600, ..keep() };
    let packet = six(17, 1240);
    let (bytes, how) = with(settings, &packet.bytes()).unwrap();
    let how = how.expect("too large");
    assert_eq!(how.limit, 600);
    let fragments = cut(&bytes, how);
    let mut payload: Vec<u8> = Vec::new();
    for (at, fragment) in fragments.iter().enumerate() {
        let header = Ipv4::new_checked(&fragment[..]).unwrap();
        assert!(header.checksum_valid() && fragment.len() <= 600);
        assert_eq!(usize::from(header.total_len()), fragment.len());
        assert_eq!(header.identification(), identification(&bytes));
        assert_eq!(header.fragment_offset(), payload.len());
        assert_eq!(header.more_fragments(), at + 1 < fragments.len());
        assert!(!header.dont_fragment());
        payload.extend(header.payload());
    }
    assert_eq!(payload, four(17, 1240).payload);
    assert_eq!(fragments[0].len(), 20 + 576);
    // A fragment keeps its offset, and its last piece the flag.
    let packet = Six::new(50, raw(50, 1200)).fragment(800, true, 5);
    let (bytes, how) = with(settings, &packet.bytes()).unwrap();
    let last = cut(&bytes, how.unwrap()).pop().unwrap();
    let header = Ipv4::new_checked(&last[..]).unwrap();
    assert_eq!((header.fragment_offset(), header.more_fragments()), (800 + 1152, true));
}

#[test]
fn section_5_1_a_packet_that_is_too_big_is_answered() {
    for (mtu_ipv4, mtu) in [(1400, 1420), (1261, 1281), (1260, 1280), (576, 1280)] {
        let settings = ConvertSettings { mtu_ipv4, ..keep() };
        let error = Some(ErrorMessage::new(2, 0, mtu));
        assert_eq!(refused(with(settings, &six(6, 1400).bytes())), (R::TooBig, error));
    }
    let settings = ConvertSettings { mtu_ipv4: 1420, ..keep() };
    assert!(with(settings, &six(6, 1400).bytes()).is_ok());
    assert!(with(settings, &six(6, 1401).bytes()).is_err());
    // IPv6 packets may be longer than any IPv4 packet.
    let settings = ConvertSettings { mtu_ipv4: 65_535, ..keep() };
    assert!(with(settings, &six(6, 65_515).bytes()).is_ok());
    assert_eq!(refused(with(settings, &six(6, 65_516).bytes())).0, R::TooBig);
    let fragment = Six::new(6, raw(6, 65_520)).fragment(0, true, 1);
    assert_eq!(refused(with(settings, &fragment.bytes())), (R::FragmentTooLong, None));
}

//= test rfc7915#section-5.2-type
//= test rfc7915#section-5.2-checksum
#[test]
fn section_5_2_informational_messages() {
    let ends = (embed(CLIENT), embed(SERVER));
    for (kind, translated) in [(128, 8), (129, 0)] {
        let bytes = Six::new(58, icmp6(ends, kind, 0, 0x0007_0001, b"payload")).bytes();
        let message = icmp(translated, 0, 0x0007_0001, b"payload");
        let wanted = Four { fragment_field: 0, ttl: 63, ..Four::new(1, message) };
        becomes("echo", to_ipv4(&bytes), wanted);
    }
    // The checksum of zeros only.
    let bytes = Six::new(58, icmp6(ends, 129, 0, 0, &[0; 5])).bytes();
    let done = whole(to_ipv4(&bytes));
    assert_eq!(done[20..], [0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for kind in 130..=255 {
        let bytes = Six::new(58, icmp6(ends, kind, 0, 0, b"payload")).bytes();
        assert_eq!(refused(to_ipv4(&bytes)), (R::IcmpUnsupported, None), "{kind}");
    }
    assert_eq!(refused(to_ipv4(&Six::new(58, vec![128; 7]).bytes())).0, R::BadLength);
}

#[test]
fn section_5_2_fragmented_messages_do_not_pass() {
    for (offset, more) in [(0, true), (8, true), (8, false)] {
        for kind in [1, 128] {
            let bytes = Six::new(58, vec![kind; 24]).fragment(offset, more, 1).bytes();
            assert_eq!(refused(to_ipv4(&bytes)), (R::FragmentedIcmp, None));
        }
    }
}

/// A packet of the client's that came to grief in the IPv6 network, in both forms.
fn quoted(len: usize) -> (Vec<u8>, Vec<u8>) {
    let new = Four { identification: 0, ttl: 64, ..expected(17, len) };
    (six(17, len).bytes(), new.bytes())
}

fn error(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Four {
    Four { ttl: 63, fragment_field: 0, ..error4(kind, code, word, quoted) }
}

//= test rfc7915#section-5.2-type
//= test rfc7915#section-5.2-checksum
#[test]
fn section_5_2_types_codes_and_second_words_of_errors() {
    let (old, new) = quoted(20);
    let mut cases = vec![
        ((1, 0, 0), Some((3, 1, 0))),
        ((1, 1, 0), Some((3, 10, 0))),
        ((1, 2, 0), Some((3, 1, 0))),
        ((1, 3, 0), Some((3, 1, 0))),
        ((1, 4, 0), Some((3, 3, 0))),
        ((1, 5, 0), None),
        ((1, 6, 0), None),
        ((2, 0, 1420), Some((3, 4, 1400))),
        ((2, 9, 1280), Some((3, 4, 1260))),
        ((2, 0, 9000), Some((3, 4, 1480))),
        ((2, 0, u32::MAX), Some((3, 4, 1480))),
        ((2, 0, 1), Some((3, 4, 0))),
        ((3, 0, 0), Some((11, 0, 0))),
        ((3, 1, 0), Some((11, 1, 0))),
        ((4, 1, 6), Some((3, 2, 0))),
        ((4, 2, 40), None),
        ((4, 3, 0), None),
        ((5, 0, 0), None),
        ((100, 0, 0), None),
        ((127, 0, 0), None),
    ];
    let pointers = [(0, 0), (1, 1), (4, 2), (5, 2), (6, 9), (7, 8), (8, 12), (23, 12), (24, 16)];
    cases.extend(pointers.map(|(from, to)| ((4, 0, from), Some((12, 0, to << 24)))));
    cases.push(((4, 0, 39), Some((12, 0, 16 << 24))));
    cases.extend([2, 3, 40, 256, 1 << 24].map(|from| ((4, 0, from), None)));
    for ((kind, code, word), translated) in cases {
        let done = to_ipv4(&error6(kind, code, word, &old).bytes());
        match translated {
            None => assert_eq!(refused(done), (R::IcmpUnsupported, None), "{kind} {code} {word}"),
            Some((to_kind, to_code, to_word)) => {
                let wanted = error(to_kind, to_code, to_word, &new);
                becomes(&format!("{kind} {code} {word:x}"), done, wanted);
            }
        }
    }
}

//= test rfc7915#section-5.2-mtu
#[test]
fn section_5_2_an_mtu_counts_a_fragment_header_in_the_quoted_packet() {
    let old = six(17, 24).fragment(0, true, 0x9999_1234).bytes();
    let new = Four { fragment_field: 0x2000, ..four(17, 24) }.bytes();
    becomes("mtu", to_ipv4(&error6(2, 0, 1428, &old).bytes()), error(3, 4, 1400, &new));
    let settings = ConvertSettings { mtu_ipv4: 1300, ..ConvertSettings::default() };
    let done = with(settings, &error6(2, 0, 1428, &quoted(20).0).bytes());
    becomes("IPv4's", done, error(3, 4, 1300, &quoted(20).1));
}

//= test rfc7915#section-5.2-extension
#[test]
fn section_5_2_extensions_move_and_their_length_is_adjusted() {
    let extension = [0x20, 0, 0x12, 0x34, 0, 8, 1, 1, 9, 9, 9, 9];
    for (padded, new_padded) in [(128, 128), (160, 140), (400, 380)] {
        let (mut old, mut new) = quoted(padded - 40);
        old.extend(extension);
        new.resize(new_padded, 0);
        new.extend(extension);
        let length = (padded / 8) as u32;
        for (kind, code, to_kind, to_code) in [(3, 0, 11, 0), (1, 4, 3, 3)] {
            let done = to_ipv4(&error6(kind, code, length << 24, &old).bytes());
            let words = (new_padded / 4) as u32;
            becomes("extension", done, error(to_kind, to_code, words << 16, &new));
        }
    }
    // A length beyond the message is none.
    let (old, new) = quoted(20);
    becomes("beyond", to_ipv4(&error6(3, 0, 200 << 24, &old).bytes()), error(11, 0, 0, &new));
}

#[test]
fn section_5_2_an_error_is_cut_to_what_ipv4_hosts_must_accept() {
    let (old, new) = quoted(1192);
    let done = to_ipv4(&error6(3, 0, 0, &old).bytes());
    becomes("cut", done, error(11, 0, 0, &new[..548]));
    let extension = [0x20, 0, 0x12, 0x34, 0, 8, 1, 1, 9, 9, 9, 9];
    let old = [&old[..1200], &extension].concat();
    let new = [&new[..536], &extension].concat();
    becomes("cut", to_ipv4(&error6(3, 0, 150 << 24, &old).bytes()), error(11, 0, 134 << 16, &new));
}

//= test rfc7915#section-5.2-quoted
//= test rfc7915#section-5.3-inner
//= test rfc7915#section-5.3-length
#[test]
fn section_5_3_quoted_packets_are_translated_like_others() {
    for kept in [40, 48, 60] {
        let (old, new) = quoted(20);
        let done = to_ipv4(&error6(3, 0, 0, &old[..kept]).bytes());
        becomes("kept", done, error(11, 0, 0, &new[..kept - 20]));
    }
    let old = Six { hop_limit: 1, extensions: vec![(0, 8), (60, 16)], ..six(6, 40) }.bytes();
    let new = Four { ttl: 1, identification: 0, ..expected(6, 40) }.bytes();
    becomes("headers", to_ipv4(&error6(3, 0, 0, &old).bytes()), error(11, 0, 0, &new));
    let ends = (embed(CLIENT), embed(SERVER));
    let old = Six::new(58, icmp6(ends, 128, 0, 77, b"abcde")).bytes();
    let new =
        Four { fragment_field: 0, identification: 0, ..Four::new(1, icmp(8, 0, 77, b"abcde")) };
    becomes("echo", to_ipv4(&error6(1, 0, 0, &old).bytes()), error(3, 1, 0, &new.bytes()));
    let (old, new) = quoted(1460);
    assert_ne!(new[6] & 0x40, 0, "DF of a quoted packet depends on its length");
    let done = to_ipv4(&error6(2, 0, 1400, &old[..80]).bytes());
    becomes("long", done, error(3, 4, 1380, &new[..60]));
}

#[test]
fn section_5_3_quoted_fragments_lose_the_fragment_header() {
    for (offset, more, field) in [(0, true, 0x2000), (1480, true, 0x20b9), (1480, false, 0x00b9)] {
        let payload = seal6(6, embed(CLIENT), embed(SERVER), raw(6, 48));
        let old = Six::new(6, payload.clone()).fragment(offset, more, 0xdead_1234).bytes();
        let changed = seal4(6, CLIENT, SERVER, payload.clone());
        let payload = if offset == 0 { changed } else { payload };
        let new = Four { fragment_field: field, ..Four::new(6, payload) }.bytes();
        becomes("fragment", to_ipv4(&error6(3, 1, 0, &old).bytes()), error(11, 1, 0, &new));
    }
}

//= test rfc7915#section-5.3-depth
#[test]
fn section_5_3_more_embedded_headers_are_refused() {
    let inner = error6(1, 0, 0, &quoted(20).0).bytes();
    let bytes = error6(3, 0, 0, &inner).bytes();
    assert_eq!(refused(to_ipv4(&bytes)), (R::IcmpBadEmbedded, None));
    let behind = Six::new(60, vec![0; 16]).fragment(0, true, 1).bytes();
    let torn = Six { extensions: vec![(60, 64)], ..six(17, 20) }.bytes();
    for quote in [&[][..], &[0x60; 39], &quoted(20).1, &behind, &torn[..90]] {
        let bytes = error6(3, 0, 0, quote).bytes();
        assert_eq!(refused(to_ipv4(&bytes)), (R::IcmpBadEmbedded, None));
    }
}

#[test]
fn section_5_3_a_router_without_ipv4_address_gets_one() {
    let (old, new) = quoted(20);
    let ends = (STRANGER, embed(CLIENT));
    let payload = icmp6(ends, 3, 0, 0, &old);
    let packet = Six { source: ends.0, destination: ends.1, ..Six::new(58, payload) };
    let wanted = Four { source: ERROR_SOURCE, ..error(11, 0, 0, &new) };
    becomes("router", to_ipv4(&packet.bytes()), wanted);
    let mut addresses = ByPrefix::default();
    to_ipv4_with(keep(), &packet.bytes(), &mut addresses).unwrap();
    to_ipv4_with(keep(), &six(17, 20).bytes(), &mut addresses).unwrap();
    assert_eq!(addresses.places, [Place::Error, Place::Quoted, Place::Packet]);
}

#[test]
fn section_5_2_a_damaged_error_is_refused() {
    let mut packet = error6(3, 0, 0, &quoted(20).0);
    packet.payload[30] ^= 4;
    assert_eq!(refused(to_ipv4(&packet.bytes())), (R::IcmpBadChecksum, None));
}

//= test rfc7915#section-5.4-error
#[test]
fn section_5_4_errors_answer_no_error_and_the_prohibition_no_icmpv6() {
    let stranger = Six { source: STRANGER, ..six(17, 20) };
    let prohibited = Some(ErrorMessage::new(1, 1, 0));
    assert_eq!(refused(to_ipv4(&stranger.bytes())), (R::Untranslatable, prohibited));
    let ends = (STRANGER, embed(SERVER));
    let echo = Six { source: STRANGER, ..Six::new(58, icmp6(ends, 128, 0, 7, b"ping")) };
    assert_eq!(refused(to_ipv4(&echo.bytes())), (R::Untranslatable, None));
    let echo = Six { hop_limit: 1, ..Six::new(58, icmp6(ends, 128, 0, 7, b"ping")) };
    assert!(refused(to_ipv4(&echo.bytes())).1.is_some(), "traceroute sees the translator");
    let error = Six { hop_limit: 1, ..error6(3, 0, 0, &quoted(20).0) };
    assert_eq!(refused(to_ipv4(&error.bytes())), (R::TtlExceeded, None));
}

//= test rfc7915#section-5-checksum
//= test rfc7915#section-5.5-update
#[test]
fn section_5_5_checksums_change_by_the_addresses() {
    let mut packet = six(6, 40);
    packet.payload[30] ^= 1;
    let mut wanted = expected(6, 40);
    wanted.payload[30] ^= 1;
    becomes("a wrong checksum stays wrong", to_ipv4(&packet.bytes()), wanted);
    // RFC 6936: IPv6 UDP without checksum is IPv4 UDP without checksum.
    let mut packet = six(17, 40);
    packet.payload[6..8].fill(0);
    let done = whole(to_ipv4(&packet.bytes()));
    assert_eq!(done[ipv4::HEADER_LEN..], packet.payload);
    let short = Six::new(6, raw(6, 16)).fragment(0, true, 1).bytes();
    assert_eq!(refused(to_ipv4(&short)), (R::FragmentTiny, None));
}

#[test]
fn section_5_1_the_longest_possible_headers_leave_the_packet_readable() {
    let mut bytes = Six { extensions: vec![(60, 2048); 8], ..six(17, 20) }.bytes();
    assert!(Ipv6::new_checked(&bytes[..]).is_ok());
    becomes("long", to_ipv4(&bytes), expected(17, 20));
    bytes.truncate(bytes.len() - 1);
    assert_eq!(refused(to_ipv4(&bytes)).0, R::BadLength);
}
