//! The views of IPv6 and ICMPv6: any bytes, the smallest case of each refusal, chains of extension
//! headers, and the checksum with its pseudo header.

use natgate_wire::checksum::{fold, pseudo_header_v6, sum};
use natgate_wire::ipv6::{Fragment, Ipv6Error, MOST_HEADERS, Walk, WalkError, next};
use natgate_wire::{Icmpv6, Ipv6, icmpv6, ipv6, protocol};
use proptest::prelude::*;

const SOURCE: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const DESTINATION: u128 = 0x2001_0db8_ffff_0000_0000_0000_0000_0002;

/// A packet with this next header and payload.
fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    bytes.extend_from_slice(payload);
    let mut packet = Ipv6::init(&mut bytes[..]);
    packet.set_payload_len(payload.len() as u16);
    packet.set_next_header(next_header);
    packet.set_hop_limit(64);
    packet.set_source(SOURCE);
    packet.set_destination(DESTINATION);
    bytes
}

/// An options or routing header of `len` bytes.
fn extension(next_header: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[..2].copy_from_slice(&[next_header, (len / 8 - 1) as u8]);
    bytes
}

fn fragment_header(fragment: Fragment) -> Vec<u8> {
    let mut bytes = vec![0xee; ipv6::FRAGMENT_LEN];
    fragment.write(&mut bytes);
    bytes
}

fn walk(bytes: &[u8]) -> Result<Walk, WalkError> {
    Ipv6::new_checked(bytes).expect("a whole packet").walk()
}

#[test]
fn fields_are_where_rfc_8200_puts_them() {
    let mut bytes = packet(17, &[1, 2, 3]);
    let mut packet = Ipv6::new_checked(&mut bytes[..]).unwrap();
    packet.set_traffic_class(0xa5);
    packet.set_flow_label(0xffff_2345);
    assert_eq!(packet.traffic_class(), 0xa5);
    assert_eq!(packet.flow_label(), 0xf_2345);
    packet.set_flow_label(0x1_2345);
    assert_eq!((packet.traffic_class(), packet.flow_label()), (0xa5, 0x1_2345));
    packet.set_traffic_class(0x5a);
    assert_eq!((packet.traffic_class(), packet.flow_label()), (0x5a, 0x1_2345));
    assert_eq!((packet.payload_len(), packet.total_len()), (3, 43));
    assert_eq!((packet.next_header(), packet.hop_limit()), (17, 64));
    assert_eq!((packet.source(), packet.destination()), (SOURCE, DESTINATION));
    assert_eq!(packet.payload(), [1, 2, 3]);
    packet.payload_mut().fill(9);
    assert_eq!(bytes[..8], [0x65, 0xa1, 0x23, 0x45, 0, 3, 17, 64]);
    assert_eq!(bytes[8..24], SOURCE.to_be_bytes());
    assert_eq!(bytes[24..], [&DESTINATION.to_be_bytes()[..], &[9, 9, 9]].concat());
}

#[test]
fn the_smallest_case_of_each_refusal() {
    let whole = packet(17, &[1, 2, 3]);
    assert_eq!(Ipv6::new_checked(&[][..]).unwrap_err(), Ipv6Error::Length);
    assert_eq!(Ipv6::new_checked(&[0x45][..]).unwrap_err(), Ipv6Error::Version);
    assert_eq!(Ipv6::new_checked(&whole[..39]).unwrap_err(), Ipv6Error::Length);
    assert_eq!(Ipv6::new_checked(&whole[..42]).unwrap_err(), Ipv6Error::Length);
    assert_eq!(Ipv6::new_header_checked(&whole[..39]).unwrap_err(), Ipv6Error::Length);
    assert_eq!(Ipv6::new_header_checked(&whole[..42]).unwrap().payload(), [1, 2]);
    let longer = [&whole[..], &[4]].concat();
    assert_eq!(Ipv6::new_checked(&longer[..]).unwrap().payload(), [1, 2, 3]);
}

#[test]
fn a_jumbogram_reads_as_an_empty_packet() {
    let mut bytes = packet(next::HOP_BY_HOP, &extension(17, 8));
    bytes[42..46].copy_from_slice(&[0xc2, 4, 0, 1]);
    bytes[4..6].fill(0);
    let packet = Ipv6::new_checked(&bytes[..]).unwrap();
    assert_eq!((packet.total_len(), packet.payload().len()), (40, 0));
    assert_eq!(packet.walk(), Err(WalkError::Truncated));
}

#[test]
fn a_walk_without_extension_headers_ends_at_once() {
    for protocol in [6, 17, 50, next::AUTHENTICATION, next::NONE, next::MOBILITY, 253] {
        let walk = walk(&packet(protocol, &[])).unwrap();
        let expected = Walk {
            protocol,
            transport: 40,
            named_at: ipv6::NEXT_HEADER,
            fragment: None,
            segments_left: None,
        };
        assert_eq!(walk, expected);
    }
}

#[test]
fn a_walk_skips_options_and_routing_headers() {
    let payload = [
        extension(next::DESTINATION, 8),
        extension(next::ROUTING, 24),
        extension(next::DESTINATION, 16),
        extension(6, 8),
        vec![1; 20],
    ]
    .concat();
    let walk = walk(&packet(next::HOP_BY_HOP, &payload)).unwrap();
    assert_eq!((walk.protocol, walk.transport, walk.named_at), (6, 96, 88));
    assert_eq!((walk.fragment, walk.segments_left), (None, None));
}

#[test]
fn segments_left_are_found_in_the_first_routing_header_that_has_them() {
    let mut payload = [
        extension(next::ROUTING, 8),
        extension(next::ROUTING, 8),
        extension(next::ROUTING, 8),
        extension(6, 8),
    ]
    .concat();
    payload[11] = 1;
    payload[19] = 2;
    // The byte at the same place of another header is no segments left field.
    payload[27] = 0;
    let first = walk(&packet(next::ROUTING, &payload)).unwrap();
    assert_eq!((first.segments_left, first.transport), (Some(40 + 11), 72));
    let mut options = extension(6, 8);
    options[3] = 7;
    assert_eq!(walk(&packet(next::DESTINATION, &options)).unwrap().segments_left, None);
}

#[test]
fn a_walk_is_bounded() {
    let chain = |n: usize| {
        let mut payload = extension(next::DESTINATION, 8).repeat(n - 1);
        payload.extend(extension(17, 8));
        packet(next::DESTINATION, &payload)
    };
    let walked = walk(&chain(MOST_HEADERS)).unwrap();
    assert_eq!((walked.protocol, walked.transport), (17, 40 + 8 * MOST_HEADERS));
    assert_eq!(walk(&chain(MOST_HEADERS + 1)), Err(WalkError::TooMany));
}

#[test]
fn a_walk_ends_with_the_packet() {
    // No byte of the extension header, its first byte, all but its last byte.
    for len in [0, 1, 15] {
        let payload = &extension(17, 16)[..len];
        assert_eq!(walk(&packet(next::HOP_BY_HOP, payload)), Err(WalkError::Truncated), "{len}");
    }
    for len in [0, 7] {
        let payload = &[17; 8][..len];
        assert_eq!(walk(&packet(next::FRAGMENT, payload)), Err(WalkError::Truncated), "{len}");
    }
    // The bytes behind the packet are not its own.
    let mut bytes = packet(next::HOP_BY_HOP, &extension(17, 16));
    bytes[5] = 8;
    assert_eq!(walk(&bytes), Err(WalkError::Truncated));
    let mut bytes = packet(next::HOP_BY_HOP, &extension(17, 16));
    bytes[41] = 255;
    assert_eq!(walk(&bytes), Err(WalkError::Truncated));
}

#[test]
fn fragment_headers_are_read_and_written() {
    let fragment =
        Fragment { next_header: 17, offset: 1232, more: true, identification: 0xdead_beef };
    let bytes = fragment_header(fragment);
    assert_eq!(bytes, [17, 0, 0x04, 0xd1, 0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(Fragment::read(&bytes), Some(fragment));
    assert_eq!(Fragment::read(&bytes[..7]), None);
    // Reserved bits are ignored.
    assert_eq!(Fragment::read(&[17, 9, 0x04, 0xd7, 0xde, 0xad, 0xbe, 0xef]), Some(fragment));
    assert!(!fragment.is_atomic());
    assert!(Fragment { offset: 0, more: false, ..fragment }.is_atomic());
    assert!(!Fragment { offset: 0, ..fragment }.is_atomic());
}

#[test]
fn a_walk_enters_the_first_fragment_and_stops_at_later_ones() {
    let first =
        Fragment { next_header: next::DESTINATION, offset: 0, more: true, identification: 7 };
    let payload =
        [extension(next::FRAGMENT, 8), fragment_header(first), extension(17, 8), vec![0; 8]]
            .concat();
    let walked = walk(&packet(next::HOP_BY_HOP, &payload)).unwrap();
    assert_eq!((walked.protocol, walked.transport, walked.named_at), (17, 64, 56));
    assert_eq!(walked.fragment, Some((48, first)));
    assert!(walked.extension_after_fragment());

    let later = Fragment { offset: 8, ..first };
    let walked = walk(&packet(next::FRAGMENT, &fragment_header(later))).unwrap();
    assert_eq!((walked.protocol, walked.transport, walked.named_at), (next::DESTINATION, 48, 40));
    assert!(walked.extension_after_fragment());

    let udp = Fragment { next_header: 17, ..first };
    let esp = Fragment { next_header: protocol::ESP, ..first };
    for fragment in [udp, esp] {
        let walked = walk(&packet(next::FRAGMENT, &fragment_header(fragment))).unwrap();
        assert!(!walked.extension_after_fragment());
    }
}

#[test]
fn icmpv6_fields_are_where_rfc_4443_puts_them() {
    let mut bytes = vec![0; 11];
    assert!(Icmpv6::new_checked(&bytes[..7]).is_none());
    let mut message = Icmpv6::new_checked(&mut bytes[..]).unwrap();
    message.set_kind(icmpv6::kind::PACKET_TOO_BIG);
    message.set_code(3);
    message.set_checksum(0x1234);
    message.set_word(0x0001_05dc);
    message.body_mut().fill(5);
    assert_eq!((message.kind(), message.code(), message.checksum()), (2, 3, 0x1234));
    assert_eq!((message.word(), message.identifier(), message.body()), (0x105dc, 1, &[5; 3][..]));
    message.set_identifier(0x8899);
    assert_eq!(bytes, [2, 3, 0x12, 0x34, 0x88, 0x99, 5, 0xdc, 5, 5, 5]);
}

#[test]
fn only_two_kinds_have_the_length_of_rfc_4884() {
    let mut bytes = [0; 8];
    for kind in 0..=255 {
        bytes[0] = kind;
        bytes[4] = 16;
        let expected = matches!(kind, 1 | 3).then_some(128);
        assert_eq!(Icmpv6::new_checked(&bytes).unwrap().original_len(), expected);
        bytes[4] = 0;
        assert_eq!(Icmpv6::new_checked(&bytes).unwrap().original_len(), None);
        assert_eq!(icmpv6::is_error(kind), kind < 128);
    }
}

#[test]
fn the_pseudo_header_of_ipv6_counts_all_of_its_fields() {
    let all = pseudo_header_v6(u128::MAX, u128::MAX, 255, u32::MAX);
    assert_eq!(fold(all), 255);
    let sum_of = |source, destination, protocol, length| {
        fold(pseudo_header_v6(source, destination, protocol, length))
    };
    assert_eq!(sum_of(1, 0, 0, 0), 1);
    assert_eq!(sum_of(0, 1 << 112, 0, 0), 1);
    assert_eq!(sum_of(0, 0, 58, 0), 58);
    assert_eq!(sum_of(0, 0, 0, 0x0001_0000), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ipv6_of_any_bytes(
        mut bytes in prop::collection::vec(any::<u8>(), 0..160),
        version in any::<bool>(),
        next_header in prop::sample::select(vec![0_u8, 43, 44, 60, 17, 58]),
        payload_len in 0..140_u16,
    ) {
        if version && bytes.len() > 7 {
            bytes[0] = 0x60 | bytes[0] & 0x0f;
            bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
            bytes[6] = next_header;
        }
        let len = bytes.len();
        if let Ok(packet) = Ipv6::new_header_checked(&bytes[..]) {
            prop_assert!(40 + packet.payload().len() <= len.min(packet.total_len()));
            let _ = (packet.traffic_class(), packet.flow_label(), packet.hop_limit());
            let _ = (packet.source(), packet.destination());
            if let Ok(walk) = packet.walk() {
                prop_assert!(walk.transport <= len.min(packet.total_len()));
                prop_assert_eq!(bytes[walk.named_at], walk.protocol);
                prop_assert!(walk.transport <= 40 + MOST_HEADERS * 2048);
            }
        }
        if let Ok(packet) = Ipv6::new_checked(&bytes[..]) {
            prop_assert_eq!(packet.payload().len(), usize::from(packet.payload_len()));
        }
    }

    #[test]
    fn icmpv6_checksums_cover_message_and_addresses(
        mut bytes in prop::collection::vec(any::<u8>(), 8..90),
        source: u128,
        destination: u128,
        flip in any::<prop::sample::Index>(),
    ) {
        let mut message = Icmpv6::new_checked(&mut bytes[..]).unwrap();
        message.fill_checksum(source, destination);
        prop_assert!(message.checksum_valid(source, destination));
        prop_assert!(!message.checksum_valid(source ^ 1, destination));
        prop_assert!(!message.checksum_valid(source, destination ^ 1 << 64));
        // By the definition of RFC 8200 section 8.1.
        let mut whole = [source.to_be_bytes(), destination.to_be_bytes()].concat();
        whole.extend((bytes.len() as u32).to_be_bytes());
        whole.extend([0, 0, 0, 58]);
        whole.extend(&bytes);
        prop_assert_eq!(fold(sum(&whole, 0)), 0xffff);
        let at = flip.index(bytes.len());
        bytes[at] ^= 0x10;
        prop_assert!(!Icmpv6::new_checked(&bytes[..]).unwrap().checksum_valid(source, destination));
    }
}
