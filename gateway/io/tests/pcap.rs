//! Captures: every encoding is read, damage is reported at its offset, and this crate and another
//! implementation can read written captures.
//!
//! [`Ng`] and [`Classic`] below build captures field by field in either byte order, so that the
//! code under test does not produce its own test data, except in tests of the writer.

use natgate_io::pcap::{Capture, Interface, Item, LinkType, ReadError, Record, Writer};
use proptest::prelude::*;
use std::io::{self, Read};

/// A pcapng that is being built, and the offset of each of its blocks.
struct Ng {
    big: bool,
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Ng {
    fn new(big: bool) -> Self {
        Self { big, bytes: Vec::new(), starts: Vec::new() }.section()
    }

    fn u16(&self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32s(&self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|&value| self.u32(value)).collect()
    }

    fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let body = padded(body);
        self.starts.push(self.bytes.len());
        let len = self.u32(12 + body.len() as u32);
        let block = [&self.u32(kind)[..], &len, &body, &len].concat();
        self.bytes.extend(block);
        self
    }

    fn section(self) -> Self {
        let version = [self.u16(1), self.u16(0)].concat();
        let body = [&self.u32(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link: u16, snaplen: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = [&self.u16(link)[..], &[0; 2], &self.u32(snaplen)].concat();
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(padded(value));
        }
        self.block(1, &body)
    }

    fn packet(self, interface: u32, units: u64, frame: &[u8]) -> Self {
        let len = frame.len() as u32;
        let fields = self.u32s(&[interface, (units >> 32) as u32, units as u32, len, len + 1]);
        self.block(6, &[&fields, frame].concat())
    }

    fn obsolete_packet(self, interface: u16, units: u32, frame: &[u8]) -> Self {
        let len = frame.len() as u32;
        let fields = self.u32s(&[0, units, len, len]);
        let body = [&self.u16(interface)[..], &[0xff; 2], &fields, frame].concat();
        self.block(2, &body)
    }

    fn simple_packet(self, original_len: u32, frame: &[u8]) -> Self {
        let body = [&self.u32(original_len)[..], frame].concat();
        self.block(3, &body)
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A classic pcap with these (seconds, fraction, frame).
fn classic(big: bool, magic: u32, link: u32, records: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let u32 = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let version = if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut bytes = [&u32(magic)[..], &version, &[0; 8], &u32(65535), &u32(link)].concat();
    for (seconds, fraction, frame) in records {
        let len = frame.len() as u32;
        for field in [*seconds, *fraction, len, len] {
            bytes.extend(u32(field));
        }
        bytes.extend(*frame);
    }
    bytes
}

type Packets = Vec<(Record, Vec<u8>)>;

/// All items of a capture, and the end of the reading.
fn read(input: impl Read) -> (Packets, Vec<Interface>, Result<(), ReadError>) {
    let mut capture = Capture::new(input);
    let (mut packets, mut interfaces) = (Vec::new(), Vec::new());
    loop {
        match capture.next_item() {
            Ok(Some(Item::Section)) => assert!(capture.interfaces().is_empty()),
            Ok(Some(Item::Interface(index))) => {
                interfaces.push(capture.interfaces()[index].clone());
            }
            Ok(Some(Item::Packet(record))) => packets.push((record, capture.frame().to_vec())),
            Ok(None) => return (packets, interfaces, Ok(())),
            Err(error) => return (packets, interfaces, Err(error)),
        }
    }
}

fn damage(input: &[u8]) -> (usize, u64, String) {
    match read(input) {
        (packets, _, Err(ReadError::Damaged { offset, what })) => (packets.len(), offset, what),
        (_, _, end) => panic!("ended with {end:?}"),
    }
}

#[test]
fn pcapng_of_both_byte_orders() {
    for big in [false, true] {
        let file = Ng::new(big)
            .interface(1, 100, &[(2, b"inside"), (9, &[9])])
            .block(0x0bad, b"of no interest")
            .interface(113, 0, &[(3, b"a comment"), (0, &[])])
            .packet(1, 1_700_000_000_000_001, b"abcde")
            .packet(0, 1_700_000_000_000_000_002, b"")
            .obsolete_packet(1, 7, b"xyz");
        let (packets, interfaces, end) = read(&file.bytes[..]);
        end.unwrap();
        let inside =
            Interface { name: Some(b"inside".to_vec()), link: LinkType::ETHERNET, snaplen: 100 };
        let outside = Interface { name: None, link: LinkType::COOKED, snaplen: 0 };
        assert_eq!(interfaces, [inside, outside]);
        let record = |interface, time, original_len| Record { interface, time, original_len };
        assert_eq!(
            packets,
            [
                (record(1, 1_700_000_000_000_001_000, 6), b"abcde".to_vec()),
                (record(0, 1_700_000_000_000_000_002, 1), b"".to_vec()),
                (record(1, 7000, 3), b"xyz".to_vec()),
            ]
        );
    }
}

#[test]
fn the_offset_of_times_has_the_files_byte_order() {
    for big in [false, true] {
        let offset = if big { 5_i64.to_be_bytes() } else { 5_i64.to_le_bytes() };
        let file =
            Ng::new(big).interface(101, 0, &[(14, &offset), (9, &[0x80 | 1])]).packet(0, 3, b"");
        assert_eq!(read(&file.bytes[..]).0[0].0.time, 6_500_000_000);
    }
}

#[test]
fn simple_packets_are_the_first_interfaces() {
    let file = Ng::new(false)
        .interface(101, 6, &[])
        .interface(101, 0, &[])
        .packet(1, 9, b"")
        .simple_packet(5, b"abcde")
        .simple_packet(50, b"abcdef");
    let (packets, _, end) = read(&file.bytes[..]);
    end.unwrap();
    let record = |original_len| Record { interface: 0, time: 9000, original_len };
    assert_eq!(packets[1], (record(5), b"abcde".to_vec()));
    assert_eq!(packets[2], (record(50), b"abcdef".to_vec()));
}

#[test]
fn sections_follow_each_other_in_any_byte_order() {
    let mut file = Ng::new(false).interface(101, 0, &[]).packet(0, 1, b"one");
    let second = Ng::new(true).interface(228, 0, &[]).packet(0, 2, b"two");
    file.bytes.extend(second.bytes);
    let (packets, interfaces, end) = read(&file.bytes[..]);
    end.unwrap();
    assert_eq!(packets.iter().map(|(r, _)| r.time).collect::<Vec<_>>(), [1000, 2000]);
    assert_eq!(interfaces[1].link, LinkType::IPV4);

    let mut file = Ng::new(false).interface(101, 0, &[]).section().packet(0, 1, b"").bytes;
    let (_, offset, what) = damage(&file);
    assert_eq!(offset, 28 + 20 + 28);
    assert!(what.contains("0 are described"), "{what}");
    file.truncate(28 + 20);
    assert!(read(&file[..]).2.is_ok());
}

#[test]
fn classic_of_both_byte_orders_and_resolutions() {
    for big in [false, true] {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            // The upper half of the link type announces a frame check sequence.
            let file = classic(big, magic, 0x2400_0001, &[(7, 8, b"abc"), (9, 0, b"")]);
            let (packets, interfaces, end) = read(&file[..]);
            end.unwrap();
            let link = LinkType::ETHERNET;
            assert_eq!(interfaces, [Interface { name: None, link, snaplen: 65535 }]);
            let record = |time, original_len| Record { interface: 0, time, original_len };
            assert_eq!(
                packets,
                [
                    (record(7_000_000_000 + 8 * unit, 3), b"abc".to_vec()),
                    (record(9_000_000_000, 0), vec![]),
                ]
            );
        }
    }
}

/// For every truncation of a file: the whole packets are returned, and the damage is at the first
/// block that is not whole.
#[test]
fn every_truncation_is_found_where_it_is() {
    let ng = Ng::new(true)
        .interface(1, 0, &[(9, &[6])])
        .packet(0, 1, b"abcde")
        .block(5, &[0; 9])
        .packet(0, 2, b"fghijklm");
    let ng_packets = [ng.starts[3], ng.bytes.len()];
    let old = classic(false, 0xa1b2_c3d4, 1, &[(1, 0, b"abcde"), (2, 0, b"fgh")]);
    let old_starts = vec![0, 24, 24 + 21];
    let old_packets = [24 + 21, old.len()];
    for (bytes, starts, packets) in
        [(&ng.bytes, &ng.starts, ng_packets), (&old, &old_starts, old_packets)]
    {
        for len in 0..=bytes.len() {
            let whole = packets.iter().filter(|&&end| end <= len).count();
            if len == bytes.len() || starts[1..].contains(&len) {
                let (found, _, end) = read(&bytes[..len]);
                assert!(end.is_ok() && found.len() == whole);
            } else {
                let start = starts.iter().rfind(|&&start| start <= len).unwrap();
                let (found, offset, _) = damage(&bytes[..len]);
                assert_eq!((found, offset), (whole, *start as u64), "cut after {len}");
            }
        }
    }
}

#[test]
fn contradictions_are_found_where_they_are() {
    let good = || Ng::new(false).interface(1, 0, &[]).packet(0, 1, b"abc");
    let start = good().bytes.len();
    let patched = |at: usize, value: u32| {
        let mut file = good().packet(0, 2, b"defg").packet(0, 3, b"");
        file.bytes[start + at..][..4].copy_from_slice(&value.to_le_bytes());
        damage(&file.bytes)
    };
    for (at, value, expected) in [
        (4, 0, "length is 0"),
        (4, 8, "length is 8"),
        (4, 37, "length is 37"),
        (4, u32::MAX, "length is 4294967295"),
        (4, 1 << 24, "the file ends after"),
        (32, 40, "36 before and 40 after"),
        (8, 1, "interface 1, but 1 are described"),
        (20, 5, "5 bytes is in a block with 4"),
        (20, u32::MAX, "is in a block with 4"),
    ] {
        let (packets, offset, what) = patched(at, value);
        assert_eq!((packets, offset), (1, start as u64), "{what}");
        assert!(what.contains(expected), "{what}");
    }
    for (next, expected) in [
        (good().simple_packet(9, b"1234"), "9 bytes is in a block with 4"),
        (good().block(6, &[0; 16]), "shorter than 32"),
        (good().block(3, &[]), "shorter than 16"),
        (good().block(1, &[1, 0, 0, 0]), "shorter than 20"),
        (good().block(0x0a0d_0d0a, &[0; 16]), "byte order"),
        (good().block(0x0a0d_0d0a, &[0x4d, 0x3c, 0x2b, 0x1a]), "shorter than 28"),
        (good().interface(1, 0, &[(9, &[6, 6])]), "option 9"),
        (good().block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 9, 0]), "option 2"),
    ] {
        let (packets, offset, what) = damage(&next.bytes);
        assert_eq!((packets, offset), (1, start as u64), "{what}");
        assert!(what.contains(expected), "{what}");
    }
    assert_eq!(damage(b"").1, 0);
    assert_eq!(damage(b"neither pcap nor pcapng").1, 0);
}

#[test]
fn contradictions_in_classic_files() {
    let mut bytes = classic(true, 0xa1b2_c3d4, 1, &[(1, 0, b"abc"), (2, 0, b"def")]);
    bytes[24 + 19 + 8] = 0xff;
    let (packets, offset, what) = damage(&bytes);
    assert_eq!((packets, offset), (1, 24 + 19));
    assert!(what.contains("longer than"), "{what}");
    bytes[5] = 3;
    assert_eq!(damage(&bytes).1, 0);
}

#[test]
fn unknown_link_types_are_told_from_damage() {
    let file = Ng::new(false).interface(1, 0, &[]).interface(105, 0, &[]);
    match read(&file.bytes[..]).2 {
        Err(ReadError::Unsupported { offset, what }) => {
            assert_eq!(offset, 28 + 20);
            assert!(what.contains("link type 105 is not supported"), "{what}");
        }
        end => panic!("ended with {end:?}"),
    }
    let file = classic(false, 0xa1b2_c3d4, 147, &[]);
    assert!(matches!(read(&file[..]).2, Err(ReadError::Unsupported { offset: 0, .. })));
    for number in [1, 12, 14, 101, 113, 228, 229, 276] {
        assert_eq!(LinkType::from_number(number).unwrap().number(), number);
    }
}

/// An input that returns one byte at a time, and would block after the last.
struct Trickle<'b>(&'b [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {
            [] => Err(io::Error::new(io::ErrorKind::WouldBlock, "nothing more for now")),
            [first, rest @ ..] => {
                buffer[0] = *first;
                self.0 = rest;
                Ok(1)
            }
        }
    }
}

#[test]
fn hands_over_a_packet_with_its_last_byte() {
    let ng = Ng::new(false).interface(1, 0, &[]).packet(0, 1, b"abcde").bytes;
    let old = classic(false, 0xa1b2_c3d4, 1, &[(1, 0, b"abcde")]);
    for bytes in [ng, old] {
        let (packets, interfaces, end) = read(Trickle(&bytes));
        assert_eq!((packets.len(), interfaces.len()), (1, 1));
        assert!(matches!(end, Err(ReadError::Io(_))));
    }
}

#[test]
fn finds_the_network_packet() {
    use natgate_wire::link::{Network, ethertype::*};
    let at = |link: LinkType, frame: &[u8]| link.locate(frame);
    let bare = |ethertype| Some(Network { ethertype, offset: 0 });
    assert_eq!(at(LinkType::RAW, &[0x45]), bare(IPV4));
    assert_eq!(at(LinkType::RAW, &[0x60]), bare(IPV6));
    assert_eq!(at(LinkType::RAW, &[]), None);
    assert_eq!(at(LinkType::IPV4, &[]), bare(IPV4));
    assert_eq!(at(LinkType::IPV6, &[0x45]), bare(IPV6));
    let frame = [&[0; 12][..], &[8, 0, 8, 0, 8, 0, 0, 0]].concat();
    assert_eq!(at(LinkType::ETHERNET, &frame), Some(Network { ethertype: IPV4, offset: 14 }));
    assert_eq!(at(LinkType::COOKED, &frame), Some(Network { ethertype: IPV4, offset: 16 }));
    assert_eq!(at(LinkType::COOKED2, &frame), Some(Network { ethertype: 0, offset: 20 }));
}

fn interface(name: Option<&[u8]>, link: LinkType) -> Interface {
    Interface { name: name.map(<[u8]>::to_vec), link, snaplen: 262_144 }
}

/// Another implementation reads the files of the writer.
#[test]
fn others_read_what_is_written() {
    use pcap_parser::pcapng::{Block, parse_block_le};
    let interfaces = [interface(Some(b"inside"), LinkType::RAW), interface(None, LinkType::COOKED)];
    let mut writer = Writer::new(Vec::new(), &interfaces).unwrap();
    writer.packet(1, 0x0123_4567_89ab_cdef, b"head", b"and tail").unwrap();
    writer.packet(0, 1, b"", b"abc").unwrap();
    let bytes = writer.into_inner();

    let (rest, block) = parse_block_le(&bytes).unwrap();
    assert!(matches!(block, Block::SectionHeader(header) if header.section_len == -1));
    let (rest, block) = parse_block_le(rest).unwrap();
    let Block::InterfaceDescription(inside) = block else { panic!("{block:?}") };
    assert_eq!(inside.if_name().unwrap().unwrap(), "inside");
    assert_eq!((inside.linktype.0, inside.snaplen, inside.if_tsresol), (101, 262_144, 9));
    let (rest, block) = parse_block_le(rest).unwrap();
    assert!(matches!(block, Block::InterfaceDescription(other) if other.linktype.0 == 113));
    let (rest, block) = parse_block_le(rest).unwrap();
    let Block::EnhancedPacket(packet) = block else { panic!("{block:?}") };
    assert_eq!((packet.ts_high, packet.ts_low), (0x0123_4567, 0x89ab_cdef));
    assert_eq!((packet.if_id, packet.caplen, packet.origlen), (1, 12, 12));
    assert_eq!(packet.data, b"headand tail");
    let (rest, block) = parse_block_le(rest).unwrap();
    assert!(matches!(block, Block::EnhancedPacket(packet) if packet.data == b"abc\0"));
    assert!(rest.is_empty());
}

type Written = (u32, u64, Vec<u8>, Vec<u8>);

fn written() -> impl Strategy<Value = Vec<Written>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::vec((0..2_u32, any::<u64>(), bytes(), bytes()), 0..10)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(packets in written(), name in any::<Option<[u8; 5]>>()) {
        let interfaces = [
            interface(name.as_ref().map(|name| &name[..]), LinkType::ETHERNET),
            interface(None, LinkType::COOKED2),
        ];
        let mut writer = Writer::new(Vec::new(), &interfaces).unwrap();
        for (interface, time, link_header, packet) in &packets {
            writer.packet(*interface, *time, link_header, packet).unwrap();
        }
        let (found, described, end) = read(&writer.into_inner()[..]);
        prop_assert!(end.is_ok());
        prop_assert_eq!(described, interfaces);
        let expected: Vec<_> = packets
            .into_iter()
            .map(|(interface, time, link_header, packet)| {
                let frame = [link_header, packet].concat();
                let original_len = frame.len() as u32;
                (Record { interface: interface as usize, time, original_len }, frame)
            })
            .collect();
        prop_assert_eq!(found, expected);
    }

    /// Reading any bytes ends without a panic. Most inputs begin as a capture does, or are one with
    /// a few bytes changed; otherwise the reading would end at once.
    #[test]
    fn nothing_makes_it_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        big: bool,
    ) {
        let ng = Ng::new(big)
            .interface(1, 9, &[(2, b"eth0"), (9, &[0x83]), (14, &[1; 8])])
            .packet(0, 1, b"abc")
            .simple_packet(3, b"abc")
            .bytes;
        let old = classic(big, 0xa1b2_c3d4, 1, &[(1, 0, b"abc")]);
        for base in [ng, old, Vec::new()] {
            let mut bytes = [base, noise.clone()].concat();
            for (index, value) in &changes {
                if !bytes.is_empty() {
                    let at = index.index(bytes.len());
                    bytes[at] = *value;
                }
            }
            let (_, _, end) = read(&bytes[..]);
            if let Err(ReadError::Damaged { offset, .. }) = end {
                prop_assert!(offset <= bytes.len() as u64);
            }
        }
    }
}
