//! Views over arbitrary bytes: `new_checked` refuses them, or no accessor panics and each result is
//! within the bytes. Then the smallest case of each refusal.

use natgate_wire::arp::{Arp, read_ethernet};
use natgate_wire::ipv4::Ipv4Error;
use natgate_wire::link::{self, Ethernet};
use natgate_wire::{Icmp, Ipv4, Tcp, Udp, icmp};
use proptest::prelude::*;

/// Random bytes. They often start like an IPv4 header of some length.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let any_bytes = prop::collection::vec(any::<u8>(), 0..120);
    (any_bytes, prop::option::of(0x40..0x50_u8), prop::option::of(0..130_u16)).prop_map(
        |(mut bytes, first, total_len)| {
            if let (Some(first), Some(at)) = (first, bytes.first_mut()) {
                *at = first;
            }
            if let (Some(total_len), Some(at)) = (total_len, bytes.get_mut(2..4)) {
                at.copy_from_slice(&total_len.to_be_bytes());
            }
            bytes
        },
    )
}

fn read_ipv4(packet: &Ipv4<&[u8]>, available: usize) {
    let header_len = packet.header_len();
    assert!((20..=60).contains(&header_len) && header_len <= available);
    assert!(usize::from(packet.total_len()) >= header_len);
    assert_eq!(packet.options().len(), header_len - 20);
    assert!(header_len + packet.payload().len() <= available.min(packet.total_len().into()));
    assert!(packet.fragment_offset() <= 0x1fff * 8);
    let _ = (packet.identification(), packet.dont_fragment(), packet.more_fragments());
    let _ = (packet.ttl(), packet.protocol(), packet.header_checksum(), packet.checksum_valid());
    let _ = (packet.source(), packet.destination());
    let _ = natgate_wire::ipv4::scan_options(packet.options());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ipv4_of_any_bytes(mut bytes in bytes()) {
        let len = bytes.len();
        if let Ok(packet) = Ipv4::new_header_checked(&bytes[..]) {
            read_ipv4(&packet, len);
        }
        if let Ok(packet) = Ipv4::new_checked(&bytes[..]) {
            prop_assert!(Ipv4::new_header_checked(&bytes[..]).is_ok());
            prop_assert!(usize::from(packet.total_len()) <= len);
            read_ipv4(&packet, len);
        }
        if let Ok(mut packet) = Ipv4::new_header_checked(&mut bytes[..]) {
            packet.fill_checksum();
            prop_assert!(packet.checksum_valid());
            packet.payload_mut().fill(0);
            prop_assert!(packet.checksum_valid(), "the payload is not part of the header");
        }
    }

    #[test]
    fn transport_of_any_bytes(bytes in bytes()) {
        prop_assert_eq!(Udp::new_checked(&bytes[..]).is_some(), bytes.len() >= 8);
        prop_assert_eq!(Icmp::new_checked(&bytes[..]).is_some(), bytes.len() >= 8);
        if let Some(datagram) = Udp::new_checked(&bytes[..]) {
            let _ = (datagram.source_port(), datagram.destination_port());
            let _ = (datagram.length(), datagram.checksum());
        }
        if let Some(message) = Icmp::new_checked(&bytes[..]) {
            let _ = (message.kind(), message.code(), message.identifier());
            let _ = message.checksum_valid();
            prop_assert_eq!(message.body(), &bytes[8..]);
        }
        if let Some(segment) = Tcp::new_checked(&bytes[..]) {
            prop_assert!((20..=bytes.len().min(60)).contains(&segment.header_len()));
            prop_assert!(segment.window_scale().is_none_or(|shift| shift <= 14));
            let _ = (segment.source_port(), segment.destination_port(), segment.window());
            let _ = (segment.sequence(), segment.acknowledgment(), segment.flags());
        }
    }

    #[test]
    fn frames_of_any_bytes(bytes in bytes()) {
        for (found, least) in
            [(link::ethernet(&bytes), 14), (link::cooked(&bytes), 16), (link::cooked2(&bytes), 20)]
        {
            if let Some(network) = found {
                prop_assert!((least..=bytes.len()).contains(&network.offset));
                prop_assert_eq!((network.offset - least) % link::VLAN_LEN, 0);
            }
        }
        prop_assert_eq!(read_ethernet(&bytes).is_some(), bytes.len() >= 14);
        prop_assert_eq!(Ethernet::new_checked(&bytes[..]).is_some(), bytes.len() >= 14);
        if let Some(message) = Arp::new_checked(&bytes[..]) {
            let mut again = vec![0; natgate_wire::arp::LEN];
            message.repr().emit(&mut again);
            prop_assert_eq!(&again[..], &bytes[..again.len()]);
        }
    }

    /// Setters write the value that getters read, and change nothing else.
    #[test]
    fn ports_and_checksums_are_where_they_belong(bytes in bytes(), value in any::<u16>()) {
        let [high, low] = value.to_be_bytes();
        let expect = |at: usize| {
            let mut expected = bytes.clone();
            expected[at..at + 2].copy_from_slice(&[high, low]);
            expected
        };
        if bytes.len() >= 8 {
            type Set = fn(&mut Udp<&mut [u8]>, u16);
            let setters: [(Set, usize); 4] = [
                (|view, value| view.set_source_port(value), 0),
                (|view, value| view.set_destination_port(value), 2),
                (|view, value| view.set_length(value), 4),
                (|view, value| view.set_checksum(value), 6),
            ];
            for (set, at) in setters {
                let mut changed = bytes.clone();
                set(&mut Udp::new_checked(&mut changed[..]).expect("long enough"), value);
                prop_assert_eq!(&changed, &expect(at));
            }
            let mut changed = bytes.clone();
            Icmp::new_checked(&mut changed[..]).expect("long enough").set_identifier(value);
            prop_assert_eq!(&changed, &expect(4));
        }
        if Tcp::new_checked(&bytes[..]).is_some() {
            type Set = fn(&mut Tcp<&mut [u8]>, u16);
            let setters: [(Set, usize); 3] = [
                (|view, value| view.set_source_port(value), 0),
                (|view, value| view.set_destination_port(value), 2),
                (|view, value| view.set_checksum(value), 16),
            ];
            for (set, at) in setters {
                let mut changed = bytes.clone();
                set(&mut Tcp::new_checked(&mut changed[..]).expect("long enough"), value);
                prop_assert_eq!(&changed, &expect(at));
            }
        }
    }
}

/// A header of `words` 32-bit words with total length `total_len`, in `len` bytes.
fn header(version: u8, words: u8, total_len: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    if let Some(first) = bytes.first_mut() {
        *first = version << 4 | words;
    }
    if let Some(field) = bytes.get_mut(2..4) {
        field.copy_from_slice(&total_len.to_be_bytes());
    }
    bytes
}

#[test]
fn ipv4_headers_that_lie_are_refused() {
    use Ipv4Error::{Length, Version};
    let cases = [
        ("no bytes", header(4, 5, 20, 0), Err(Length)),
        ("version 6", header(6, 5, 20, 40), Err(Version)),
        ("version 5, and too short", header(5, 5, 20, 1), Err(Version)),
        ("19 bytes", header(4, 5, 20, 19), Err(Length)),
        ("four words", header(4, 4, 20, 40), Err(Length)),
        ("options beyond the bytes", header(4, 15, 60, 59), Err(Length)),
        ("total length below the header", header(4, 6, 23, 40), Err(Length)),
        ("total length beyond the bytes", header(4, 5, 41, 40), Err(Length)),
        ("header alone", header(4, 5, 20, 20), Ok(())),
        ("longest header", header(4, 15, 60, 60), Ok(())),
        ("bytes that follow", header(4, 5, 20, 1500), Ok(())),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(Ipv4::new_checked(&bytes[..]).map(drop), expected, "{name}");
    }
    // A packet in an ICMP error may be cut after the header, not before.
    assert!(Ipv4::new_header_checked(&header(4, 5, 1500, 20)[..]).is_ok());
    assert_eq!(Ipv4::new_header_checked(&header(4, 5, 1500, 19)[..]).unwrap_err(), Length);
}

#[test]
fn fields_of_a_header_are_where_rfc_791_has_them() {
    let bytes = [
        0x46, 0x00, 0x00, 0x1a, 0x12, 0x34, 0x60, 0x02, 0x40, 0x11, 0xab, 0xcd, 10, 0, 0, 5, 192,
        0, 2, 9, 1, 1, 1, 0, 0xaa, 0xbb, 0xcc,
    ];
    let packet = Ipv4::new_checked(&bytes[..]).expect("readable");
    assert_eq!((packet.header_len(), packet.total_len()), (24, 26));
    assert_eq!(packet.identification(), 0x1234);
    assert!(packet.dont_fragment() && packet.more_fragments());
    assert_eq!(packet.fragment_offset(), 16);
    assert_eq!((packet.ttl(), packet.protocol(), packet.header_checksum()), (64, 17, 0xabcd));
    assert_eq!((packet.source(), packet.destination()), (0x0a00_0005, 0xc000_0209));
    assert_eq!((packet.options(), packet.payload()), (&[1, 1, 1, 0][..], &[0xaa, 0xbb][..]));
}

#[test]
fn tcp_data_offsets_are_checked() {
    for (words, len, readable) in
        [(5, 20, true), (5, 19, false), (4, 40, false), (6, 23, false), (15, 60, true)]
    {
        let mut bytes = vec![0; len];
        bytes[12] = words << 4;
        assert_eq!(Tcp::new_checked(&bytes[..]).is_some(), readable, "{words} words in {len}");
    }
    assert!(Tcp::new_checked(&[][..]).is_none());
}

#[test]
fn icmp_errors_are_five_types() {
    let errors: Vec<u8> = (0..=255).filter(|&kind| icmp::is_error(kind)).collect();
    assert_eq!(errors, [3, 4, 5, 11, 12]);
}
