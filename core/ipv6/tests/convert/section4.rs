//! RFC 7915 section 4, IPv4 to IPv6. The name of a test begins with the section.

use crate::support::*;
use natgate_engine::DropReason as R;
use natgate_ipv6::convert::{ConvertSettings, ErrorMessage, Hops, Place, UdpChecksumZero};
use natgate_wire::{Ipv6, ipv6};

const KEEP: ConvertSettings = ConvertSettings {
    lowest_mtu: 1280,
    mtu_ipv6: 1500,
    mtu_ipv4: 1500,
    udp_checksum_zero: UdpChecksumZero::Compute,
    traffic_class: None,
    service: None,
    hops: Hops::Keep,
};

fn with(settings: ConvertSettings, bytes: &[u8]) -> Done {
    to_ipv6_with(settings, bytes, &mut ByPrefix::default())
}

/// The IPv6 form of `four(protocol, len)` after one hop.
fn expected(protocol: u8, len: usize) -> Vec<u8> {
    Six { hop_limit: 63, ..six(protocol, len) }.bytes()
}

//= test rfc7915#section-4-no-header
//= test rfc7915#section-4.1-next-header
//= test rfc7915#section-4.5-update
//= test rfc7915#section-4.5-forward
#[test]
fn section_4_1_fields_of_an_unfragmented_packet() {
    for protocol in [6, 17, 33, 136, 47, 50, 51, 132, 253] {
        for len in [20, 21, 1000] {
            let done = whole(to_ipv6(&four(protocol, len).bytes()));
            same(&format!("{protocol} {len}"), &done, &expected(protocol, len));
        }
    }
}

//= test rfc7915#section-4.1-traffic-class
#[test]
fn section_4_1_the_flow_label_is_zero_and_the_traffic_class_is_copied_or_set() {
    let bytes = Four { service: 0xb9, ..four(17, 30) }.bytes();
    let done = whole(to_ipv6(&bytes));
    assert_eq!(done[..4], [0x6b, 0x90, 0, 0]);
    let done = whole(with(ConvertSettings { traffic_class: Some(0), ..KEEP }, &bytes));
    assert_eq!(done[..4], [0x60, 0, 0, 0]);
}

#[test]
fn section_4_1_bytes_behind_the_total_length_go() {
    let mut bytes = four(17, 30).bytes();
    bytes.extend([9; 16]);
    same("padding", &whole(to_ipv6(&bytes)), &expected(17, 30));
}

//= test rfc7915#section-4.1-hop-limit
#[test]
fn section_4_1_the_hop_limit_is_checked_where_it_is_decremented() {
    for ttl in [0, 1] {
        let bytes = Four { ttl, ..four(17, 30) }.bytes();
        let error = Some(ErrorMessage::new(11, 0, 0));
        assert_eq!(refused(to_ipv6(&bytes)), (R::TtlExceeded, error));
        assert_eq!(whole(with(KEEP, &bytes))[7], ttl);
    }
    let bytes = Four { ttl: 2, ..four(17, 30) }.bytes();
    assert_eq!(whole(to_ipv6(&bytes))[7], 1);
}

//= test rfc7915#section-4.1-df
#[test]
fn section_4_1_a_packet_with_df_that_is_too_big_is_answered() {
    for (len, fragment_field, refusal) in [
        (1460, 0x4000, None),
        (1461, 0x4000, Some(1480)),
        (1461, 0x6000, Some(1472)),
        (1453, 0x4001, Some(1472)),
        (1452, 0x6000, None),
    ] {
        let bytes = Four { fragment_field, ..four(17, len) }.bytes();
        match refusal {
            None => drop(whole(to_ipv6(&bytes))),
            // A later fragment is answered by nothing (RFC 1812 section 4.3.2.7).
            Some(_) if fragment_field & 0x1fff != 0 => {
                assert_eq!(refused(to_ipv6(&bytes)), (R::TooBig, None));
            }
            Some(mtu) => {
                let error = Some(ErrorMessage::new(3, 4, mtu));
                assert_eq!(refused(to_ipv6(&bytes)), (R::TooBig, error), "{len}");
            }
        }
    }
}

//= test rfc7915#section-4-mtu
//= test rfc7915#section-4-threshold
//= test rfc7915#section-4.1-cut
//= test rfc7915#section-4.1-threshold
#[test]
fn section_4_1_a_packet_without_df_is_cut_to_lowest_ipv6_mtu() {
    let plain = |len| Four { fragment_field: 0, ..four(17, len) }.bytes();
    // No fragment header for packets that fit.
    same("fits", &whole(to_ipv6(&plain(1240))), &expected(17, 1240));
    for (lowest_mtu, mtu_ipv6, limit) in
        [(1280, 1500, 1280), (1400, 1500, 1400), (1500, 1280, 1280)]
    {
        let settings = ConvertSettings { lowest_mtu, mtu_ipv6, ..KEEP };
        let (bytes, how) = with(settings, &plain(3000)).unwrap();
        let how = how.expect("too large");
        assert_eq!(how.limit, limit);
        let fragments = cut(&bytes, how);
        let mut payload: Vec<u8> = Vec::new();
        for (at, fragment) in fragments.iter().enumerate() {
            assert!(fragment.len() <= limit);
            let packet = Ipv6::new_checked(&fragment[..]).unwrap();
            assert_eq!(packet.total_len(), fragment.len());
            let walk = packet.walk().unwrap();
            let (_, header) = walk.fragment.expect("a fragment header");
            assert_eq!((header.next_header, header.identification), (17, 0x1234));
            assert_eq!((header.offset, header.more), (payload.len(), at + 1 < fragments.len()));
            assert_eq!(packet.hop_limit(), 64);
            payload.extend(&fragment[walk.transport..]);
        }
        assert_eq!(payload, six(17, 3000).payload);
        assert_eq!(fragments[0].len(), (limit - 48) / 8 * 8 + 48, "as few fragments as possible");
    }
}

#[test]
fn section_4_1_a_fragment_that_is_too_large_is_cut_further() {
    let packet = Four { fragment_field: 0x2000 | 185, ..Four::new(17, raw(50, 1448)) };
    let (bytes, how) = to_ipv6(&packet.bytes()).unwrap();
    let fragments = cut(&bytes, how.expect("too large"));
    let headers: Vec<_> = fragments
        .iter()
        .map(|bytes| Ipv6::new_checked(&bytes[..]).unwrap().walk().unwrap().fragment.unwrap().1)
        .map(|header| (header.offset, header.more, header.identification))
        .collect();
    assert_eq!(headers, [(1480, true, 0x1234), (1480 + 1232, true, 0x1234)]);
    let last = Four { fragment_field: 185, ..packet };
    let (bytes, how) = to_ipv6(&last.bytes()).unwrap();
    let fragments = cut(&bytes, how.unwrap());
    let last = Ipv6::new_checked(&fragments[1][..]).unwrap().walk().unwrap().fragment.unwrap().1;
    assert!(!last.more);
}

//= test rfc7915#section-4.1-fragment-next-header
#[test]
fn section_4_1_fragments_get_a_fragment_header() {
    for (field, offset, more) in [(0x2000, 0, true), (0x20b9, 1480, true), (0x00b9, 1480, false)] {
        let payload = seal4(6, CLIENT, SERVER, raw(6, 48));
        let bytes = Four { fragment_field: field, ..Four::new(6, payload.clone()) }.bytes();
        let changed = seal6(6, embed(CLIENT), embed(SERVER), payload.clone());
        // Only the first fragment has a checksum to update.
        let payload = if offset == 0 { changed } else { payload };
        let wanted = Six { hop_limit: 63, ..Six::new(6, payload).fragment(offset, more, 0x1234) };
        same(&format!("{field:x}"), &whole(to_ipv6(&bytes)), &wanted.bytes());
    }
}

//= test rfc7915#section-4.1-options
//= test rfc7915#section-4.1-source-route
//= test rfc7915#section-4.1-source-route-error
#[test]
fn section_4_1_options_are_ignored_except_an_unexpired_source_route() {
    for options in [vec![1, 1, 1, 0], vec![7, 7, 4, 0, 0, 0, 0], vec![131, 7, 8, 1, 2, 3, 4]] {
        let bytes = Four { options, ..four(17, 30) }.bytes();
        same("ignored", &whole(to_ipv6(&bytes)), &expected(17, 30));
    }
    for kind in [131, 137] {
        let options = vec![1, kind, 7, 4, 1, 2, 3, 4];
        let bytes = Four { options, ..four(17, 30) }.bytes();
        let error = Some(ErrorMessage::new(3, 5, 0));
        assert_eq!(refused(to_ipv6(&bytes)), (R::SourceRoute, error));
    }
    let mut wide = four(17, 30);
    wide.options = vec![1; 40];
    same("forty bytes", &whole(to_ipv6(&wide.bytes())), &expected(17, 30));
}

#[test]
fn section_4_1_what_would_become_an_extension_header_does_not_pass() {
    for protocol in [0, 43, 44, 60] {
        assert_eq!(refused(to_ipv6(&four(protocol, 40).bytes())), (R::Untranslatable, None));
    }
}

#[test]
fn section_4_1_broken_headers_are_refused() {
    let good = four(17, 30).bytes();
    let mut bad = good.clone();
    bad[10] ^= 1;
    assert_eq!(refused(to_ipv6(&bad)).0, R::BadHeaderChecksum);
    assert_eq!(refused(to_ipv6(&good[..49])).0, R::BadLength);
    assert_eq!(refused(to_ipv6(&six(17, 30).bytes())).0, R::NotIpv4);
    assert_eq!(refused(to_ipv6(&Four::new(6, vec![1; 17]).bytes())).0, R::BadLength);
}

//= test rfc7915#section-4.2-type
//= test rfc7915#section-4.2-igmp
//= test rfc7915#section-4.2-igmp-routing
#[test]
fn section_4_2_queries() {
    for (kind, translated) in [(8, Some(128)), (0, Some(129))] {
        let bytes = Four::new(1, icmp(kind, 0, 0x0007_0001, b"payload")).bytes();
        let ends = (embed(CLIENT), embed(SERVER));
        let message = icmp6(ends, translated.unwrap(), 0, 0x0007_0001, b"payload");
        let wanted = Six { hop_limit: 63, ..Six::new(58, message) }.bytes();
        same("echo", &whole(to_ipv6(&bytes)), &wanted);
    }
    for kind in (1..=255).filter(|kind| ![3, 4, 5, 8, 11, 12].contains(kind)) {
        let bytes = Four::new(1, icmp(kind, 0, 0, b"payload")).bytes();
        assert_eq!(refused(to_ipv6(&bytes)), (R::IcmpUnsupported, None), "{kind}");
    }
    assert_eq!(refused(to_ipv6(&four(2, 8).bytes())), (R::Untranslatable, None), "IGMP");
    assert_eq!(refused(to_ipv6(&Four::new(1, vec![8; 7]).bytes())).0, R::BadLength);
}

#[test]
fn section_4_2_fragmented_messages_do_not_pass() {
    for field in [0x2000, 0x2010, 0x0010] {
        let message = icmp(8, 0, 1, &[1; 16]);
        let bytes = Four { fragment_field: field, ..Four::new(1, message) }.bytes();
        assert_eq!(refused(to_ipv6(&bytes)), (R::FragmentedIcmp, None));
    }
}

/// A packet of the client's that came to grief in the IPv4 network, in both forms.
fn quoted(len: usize) -> (Vec<u8>, Vec<u8>) {
    (four(17, len).bytes(), six(17, len).bytes())
}

//= test rfc7915#section-4.2-type
//= test rfc7915#section-4.2-mtu
#[test]
fn section_4_2_types_codes_and_second_words_of_errors() {
    let (old, new) = quoted(20);
    // Type, code and word of ICMP, then those of ICMPv6.
    let mut cases = vec![
        ((3, 2, 0), Some((4, 1, 6))),
        ((3, 3, 0), Some((1, 4, 0))),
        ((3, 4, 1400), Some((2, 0, 1420))),
        ((3, 4, 1260), Some((2, 0, 1280))),
        ((3, 4, 576), Some((2, 0, 1280))),
        ((3, 4, 9000), Some((2, 0, 1500))),
        ((3, 4, 0xabcd_0000 | 1400), Some((2, 0, 1420))),
        ((3, 14, 0), None),
        ((3, 16, 0), None),
        ((3, 255, 0), None),
        ((4, 0, 0), None),
        ((5, 0, 0), None),
        ((5, 1, 0), None),
        ((11, 0, 0), Some((3, 0, 0))),
        ((11, 1, 0), Some((3, 1, 0))),
        ((12, 1, 0), None),
        ((12, 3, 0), None),
    ];
    cases.extend([0, 1, 5, 6, 7, 8, 11, 12].map(|code| ((3, code, 0), Some((1, 0, 0)))));
    cases.extend([9, 10, 13, 15].map(|code| ((3, code, 0), Some((1, 1, 0)))));
    let pointers = [(0, 0), (1, 1), (2, 4), (3, 4), (8, 7), (9, 6), (12, 8), (15, 8), (16, 24)];
    for code in [0, 2] {
        cases.extend(pointers.map(|(from, to)| ((12, code, from << 24), Some((4, 0, to)))));
        cases.push(((12, code, 19 << 24), Some((4, 0, 24))));
        cases.extend([4, 5, 6, 7, 10, 11, 20, 255].map(|from| ((12, code, from << 24), None)));
    }
    for ((kind, code, word), translated) in cases {
        let done = to_ipv6(&error4(kind, code, word, &old).bytes());
        match translated {
            None => assert_eq!(refused(done), (R::IcmpUnsupported, None), "{kind} {code} {word}"),
            Some((to_kind, to_code, to_word)) => {
                let wanted = Six { hop_limit: 63, ..error6(to_kind, to_code, to_word, &new) };
                same(&format!("{kind} {code} {word:x}"), &whole(done), &wanted.bytes());
            }
        }
    }
}

//= test rfc7915#section-4.2-plateau
#[test]
fn section_4_2_plateaus_stand_in_for_an_mtu_of_zero() {
    let wide = ConvertSettings { mtu_ipv6: 65_535, mtu_ipv4: 65_515, ..KEEP };
    for (total_len, mtu) in [
        (65_535, 32_020),
        (32_001, 32_020),
        (32_000, 17_934),
        (9000, 8186),
        (4353, 4372),
        (2003, 2022),
        (2002, 1512),
        (1493, 1512),
        (1492, 1280),
        (600, 1280),
    ] {
        let mut old = quoted(20).0;
        old[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
        let done = whole(with(wide, &error4(3, 4, 0, &old).bytes()));
        assert_eq!(Ipv6::new_checked(&done[..]).unwrap().payload()[4..8], u32::to_be_bytes(mtu));
    }
}

//= test rfc7915#section-4.2-mtu
//= test rfc7915#section-4.2-mtu-least
#[test]
fn section_4_2_the_mtus_of_both_sides_bound_an_mtu() {
    let mtu = |mtu_ipv6, mtu_ipv4, told| {
        let settings = ConvertSettings { mtu_ipv6, mtu_ipv4, ..KEEP };
        let done = whole(with(settings, &error4(3, 4, told, &quoted(20).0).bytes()));
        u32::from_be_bytes(done[44..48].try_into().unwrap())
    };
    assert_eq!(mtu(1500, 1500, 1490), 1500);
    assert_eq!(mtu(9000, 1500, 8000), 1520);
    assert_eq!(mtu(9000, 9000, 8000), 8020);
    assert_eq!(mtu(1280, 9000, 8000), 1280);
}

//= test rfc7915#section-4.2-extension
#[test]
fn section_4_2_extensions_move_and_their_length_is_adjusted() {
    let extension = [0x20, 0, 0x12, 0x34, 0, 8, 1, 1, 9, 9, 9, 9];
    for (padded, new_padded) in [(128, 152), (132, 152), (136, 160)] {
        let (mut body, mut new_body) = quoted(padded - 20);
        new_body.resize(new_padded, 0);
        body.extend(extension);
        new_body.extend(extension);
        let words = (padded / 4) as u32;
        for (kind, code, to_kind, to_code) in [(11, 0, 3, 0), (3, 3, 1, 4)] {
            let done = whole(to_ipv6(&error4(kind, code, words << 16, &body).bytes()));
            let length = (new_padded / 8) as u32;
            let wanted = error6(to_kind, to_code, length << 24, &new_body);
            same("extension", &done, &Six { hop_limit: 63, ..wanted }.bytes());
        }
        // "Packet too big" and "parameter problem" have no length field in ICMPv6.
        let done = whole(to_ipv6(&error4(3, 4, words << 16 | 1400, &body).bytes()));
        let without = &new_body[..new_body.len() - 12];
        let shown = Ipv6::new_checked(&done[..]).unwrap().payload()[8..].to_vec();
        assert!(without.starts_with(&shown), "the quotation stays, the extension goes");
    }
}

#[test]
fn section_4_2_a_length_beyond_the_message_is_none() {
    let (old, new) = quoted(20);
    let done = whole(to_ipv6(&error4(11, 0, 200 << 16, &old).bytes()));
    same("length", &done, &Six { hop_limit: 63, ..error6(3, 0, 0, &new) }.bytes());
}

//= test rfc7915#section-4.2-extension-cut
#[test]
fn section_4_2_an_error_is_cut_to_the_smallest_mtu() {
    let (old, new) = quoted(1400);
    let done = whole(with(KEEP, &error4(11, 0, 0, &old).bytes()));
    assert_eq!(done.len(), ipv6::MIN_MTU);
    same("cut", &done, &error6(3, 0, 0, &new[..1232]).bytes());
    // A quotation shorter than RFC 4884 permits leaves no room for its extension.
    let short = [&old[..20], &[0x20, 0, 0x12, 0x34]].concat();
    let done = whole(with(KEEP, &error4(11, 0, 5 << 16, &short).bytes()));
    same("short", &done, &error6(3, 0, 0, &new[..40]).bytes());
    // The extension stays, and the quotation is cut to a multiple of eight.
    let extension = [0x20, 0, 0x12, 0x34, 0, 8, 1, 1, 9, 9, 9, 9];
    let body = [&old[..1020], &extension].concat();
    let done = whole(with(KEEP, &error4(11, 0, 255 << 16, &body).bytes()));
    let mut wanted = new[..1040].to_vec();
    wanted.extend(extension);
    same("cut", &done, &error6(3, 0, 130 << 24, &wanted).bytes());
}

//= test rfc7915#section-4.2-quoted
//= test rfc7915#section-4.3-inner
//= test rfc7915#section-4.3-length
#[test]
fn section_4_3_quoted_packets_are_translated_like_others() {
    // Header only; eight bytes; the whole; options; a TTL that is not decremented.
    for kept in [20, 28, 40] {
        let (old, new) = quoted(20);
        let done = whole(to_ipv6(&error4(11, 0, 0, &old[..kept]).bytes()));
        let quote = if kept == 20 { new[..40].to_vec() } else { new[..kept + 20].to_vec() };
        same("kept", &done, &Six { hop_limit: 63, ..error6(3, 0, 0, &quote) }.bytes());
    }
    let old = Four { ttl: 1, options: vec![131, 7, 4, 1, 2, 3, 4], ..four(6, 40) }.bytes();
    let new = Six { hop_limit: 1, ..six(6, 40) }.bytes();
    let done = whole(to_ipv6(&error4(11, 0, 0, &old).bytes()));
    same("options", &done, &Six { hop_limit: 63, ..error6(3, 0, 0, &new) }.bytes());
    let old = Four::new(1, icmp(8, 0, 77, b"abcde")).bytes();
    let new = Six::new(58, icmp6((embed(CLIENT), embed(SERVER)), 128, 0, 77, b"abcde")).bytes();
    let done = whole(to_ipv6(&error4(3, 1, 0, &old).bytes()));
    same("echo", &done, &Six { hop_limit: 63, ..error6(1, 0, 0, &new) }.bytes());
}

#[test]
fn section_4_3_quoted_fragments_get_a_fragment_header() {
    for (field, offset, more) in [(0x2000, 0, true), (0x20b9, 1480, true), (0x00b9, 1480, false)] {
        let payload = seal4(6, CLIENT, SERVER, raw(6, 48));
        let old = Four { fragment_field: field, ..Four::new(6, payload.clone()) }.bytes();
        let changed = seal6(6, embed(CLIENT), embed(SERVER), payload.clone());
        let payload = if offset == 0 { changed } else { payload };
        let new = Six::new(6, payload).fragment(offset, more, 0x1234).bytes();
        let done = whole(to_ipv6(&error4(11, 1, 0, &old).bytes()));
        same("fragment", &done, &Six { hop_limit: 63, ..error6(3, 1, 0, &new) }.bytes());
    }
}

//= test rfc7915#section-4.3-depth
#[test]
fn section_4_3_more_embedded_headers_are_refused() {
    let inner = error4(3, 1, 0, &quoted(20).0).bytes();
    let bytes = error4(11, 0, 0, &inner).bytes();
    assert_eq!(refused(to_ipv6(&bytes)), (R::IcmpBadEmbedded, None));
    for quote in [&[][..], &[0x45; 19], &[0x65; 40], &quoted(20).1] {
        let bytes = error4(11, 0, 0, quote).bytes();
        assert_eq!(refused(to_ipv6(&bytes)), (R::IcmpBadEmbedded, None));
    }
}

#[test]
fn section_4_3_addresses_are_asked_with_their_place() {
    let mut addresses = ByPrefix::default();
    let settings = ConvertSettings::default();
    to_ipv6_with(settings, &error4(11, 0, 0, &quoted(20).0).bytes(), &mut addresses).unwrap();
    to_ipv6_with(settings, &four(17, 20).bytes(), &mut addresses).unwrap();
    assert_eq!(addresses.places, [Place::Error, Place::Quoted, Place::Packet]);
}

#[test]
fn section_4_2_a_damaged_error_is_refused() {
    let mut packet = error4(11, 0, 0, &quoted(20).0);
    packet.payload[30] ^= 4;
    assert_eq!(refused(to_ipv6(&packet.bytes())), (R::IcmpBadChecksum, None));
}

#[test]
fn section_4_4_errors_answer_no_error() {
    let to_nowhere = Four { destination: 0x0a00_0001, ..four(17, 20) };
    let error = Some(ErrorMessage::new(3, 13, 0));
    assert_eq!(refused(to_ipv6(&to_nowhere.bytes())), (R::Untranslatable, error));
    let packet = Four { destination: 0x0a00_0001, ..error4(3, 1, 0, &quoted(20).0) };
    assert_eq!(refused(to_ipv6(&packet.bytes())), (R::Untranslatable, None));
    let packet = Four { ttl: 1, ..error4(3, 1, 0, &quoted(20).0) };
    assert_eq!(refused(to_ipv6(&packet.bytes())), (R::TtlExceeded, None));
    let packet = Four { ttl: 1, ..Four::new(1, icmp(8, 0, 0, &[])) };
    assert!(refused(to_ipv6(&packet.bytes())).1.is_some());
    let quoted = Four { destination: 0x0a00_0001, ..four(17, 20) }.bytes();
    let bytes = error4(3, 1, 0, &quoted).bytes();
    assert_eq!(refused(to_ipv6(&bytes)), (R::Untranslatable, None));
}

//= test rfc7915#section-4.5-zero
#[test]
fn section_4_5_udp_without_checksum() {
    let setting = |udp_checksum_zero| ConvertSettings { udp_checksum_zero, ..KEEP };
    let (compute, drop) = (setting(UdpChecksumZero::Compute), setting(UdpChecksumZero::Drop));
    let forward = setting(UdpChecksumZero::Forward);
    let mut packet = four(17, 41);
    packet.payload[6..8].fill(0);
    let bytes = packet.bytes();
    same("compute", &whole(with(compute, &bytes)), &six(17, 41).bytes());
    assert_eq!(refused(with(drop, &bytes)), (R::UdpChecksumZero, None));
    let done = whole(with(forward, &bytes));
    assert_eq!(done[40..], packet.payload);
    // The first fragment cannot be computed. A later one has no checksum.
    let first = Four { fragment_field: 0x2000, ..packet.clone() }.bytes();
    assert_eq!(refused(with(compute, &first)), (R::UdpChecksumZero, None));
    assert!(with(forward, &first).is_ok());
    let later = Four { fragment_field: 0x0010, ..packet.clone() }.bytes();
    assert!(with(drop, &later).is_ok());
    // The length of the datagram decides what is summed up.
    packet.payload[5] = 33;
    let done = whole(with(compute, &packet.bytes()));
    let mut datagram = packet.payload[..33].to_vec();
    datagram = seal6(17, embed(CLIENT), embed(SERVER), datagram);
    assert_eq!(done[40..73], datagram);
    for len in [0, 7, 42] {
        packet.payload[5] = len;
        assert_eq!(refused(with(compute, &packet.bytes())).0, R::BadLength);
    }
}

//= test rfc7915#section-4.5-update
#[test]
fn section_4_5_wrong_checksums_stay_wrong() {
    let mut packet = four(6, 40);
    packet.payload[30] ^= 1;
    let mut wanted = six(6, 40);
    wanted.payload[30] ^= 1;
    let wanted = Six { hop_limit: 63, ..wanted }.bytes();
    same("wrong", &whole(to_ipv6(&packet.bytes())), &wanted);
}

//= test rfc7915#section-4.5-zero-first
//= test rfc6146#section-3.4-zero-discard
#[test]
fn section_4_5_a_first_fragment_without_its_checksum_is_refused() {
    let payload = raw(6, 16);
    let bytes = Four { fragment_field: 0x2000, ..Four::new(6, payload) }.bytes();
    assert_eq!(refused(to_ipv6(&bytes)), (R::FragmentTiny, None));
}
