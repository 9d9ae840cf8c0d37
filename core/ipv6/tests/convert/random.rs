//! Random packets: compared with the model, there and back, and bytes without any sense. Each
//! case is made from one number, which a failure shows.

use crate::rng::Rng;
use crate::support::*;
use natgate_engine::Packet;
use natgate_ipv6::convert::{ConvertSettings, Converter, Cut, Hops, UdpChecksumZero};
use natgate_model::families::{self, Translated};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6};
use proptest::prelude::*;

/// Length of the transport header up to the end of its checksum, bytes.
fn least_len(protocol: u8) -> usize {
    match protocol {
        1 | 58 => 4,
        _ => checksum_at(protocol).map_or(0, |at| at + 2),
    }
}

impl Rng {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let zeros = self.chance(8);
        (0..len).map(|_| if zeros { 0 } else { self.next() as u8 }).collect()
    }

    fn len(&mut self) -> usize {
        let most = self.one_of(&[8, 40, 200, 1300, 1600, 4000]);
        self.below(most)
    }

    fn settings(&mut self) -> ConvertSettings {
        use UdpChecksumZero::{Compute, Drop, Forward};
        ConvertSettings {
            lowest_mtu: self.one_of(&[1280, 1280, 1400, 1500]),
            mtu_ipv6: self.one_of(&[1280, 1500, 1500, 9000]),
            mtu_ipv4: self.one_of(&[68, 576, 1280, 1500, 1500, 9000, 65_535]),
            udp_checksum_zero: self.one_of(&[Compute, Compute, Drop, Forward]),
            traffic_class: self.one_of(&[None, None, Some(0)]),
            service: self.one_of(&[None, None, Some(0x10)]),
            hops: self.one_of(&[Hops::Decrement, Hops::Keep]),
        }
    }

    fn protocol(&mut self, icmp: u8) -> u8 {
        let any = self.next() as u8;
        self.one_of(&[6, 6, 17, 17, 17, 33, 136, icmp, icmp, icmp, 47, 50, 132, any])
    }

    /// A transport header and payload for a protocol, without checksum.
    fn payload(&mut self, protocol: u8) -> Vec<u8> {
        let len = self.len();
        let mut payload = self.bytes(len);
        if protocol == 17 && len >= 8 && !self.chance(8) {
            payload[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        }
        if matches!(protocol, 1 | 58) && len >= 2 {
            let echo: &[u8] = if protocol == 1 { &[8, 0] } else { &[128, 129] };
            // Without sense, but no error.
            payload[0] = if self.chance(8) { payload[0] | 0xf0 } else { self.one_of(echo) };
        }
        payload
    }

    fn address(&mut self) -> u32 {
        let any = self.next() as u32;
        self.one_of(&[CLIENT, SERVER, ROUTER, 0, u32::MAX, any, any])
    }

    /// An IPv4 packet that is no ICMP error, with correct checksums if it is not a fragment.
    fn four(&mut self) -> Four {
        let protocol = self.protocol(1);
        let payload = self.payload(protocol);
        let (source, destination) = (self.address(), self.address());
        let wide_enough = payload.len() >= least_len(protocol);
        let payload =
            if wide_enough { seal4(protocol, source, destination, payload) } else { payload };
        let any = self.next() as u16;
        let options = self.below(4) * self.below(2) * 4;
        let mut packet = Four {
            service: self.next() as u8,
            identification: self.next() as u16,
            fragment_field: self.one_of(&[0, 0, 0x4000, 0x4000, 0x2000, 0x2010, any & 0x7fff]),
            ttl: self.one_of(&[0, 1, 2, 64, 255]),
            source,
            destination,
            options: self.bytes(options),
            ..Four::new(protocol, payload)
        };
        if protocol == 17 && packet.payload.len() >= 8 && self.chance(4) {
            packet.payload[6..8].fill(0);
        }
        packet
    }

    /// An IPv6 packet that is no ICMPv6 error, with correct checksums if it is not a fragment.
    fn six(&mut self) -> Six {
        let protocol = self.protocol(58);
        let payload = self.payload(protocol);
        let any = u128::from(self.next()) << 64 | u128::from(self.next());
        let (source, destination) = (embed(self.address()), embed(self.address()));
        let source = if self.chance(20) { any } else { source };
        let wide_enough = payload.len() >= least_len(protocol);
        let payload =
            if wide_enough { seal6(protocol, source, destination, payload) } else { payload };
        let extensions = self.below(4) * self.below(2);
        let extensions =
            (0..extensions).map(|_| (self.one_of(&[0, 43, 60]), 8 + 8 * self.below(3))).collect();
        let fragment = Fragment {
            next_header: protocol,
            offset: self.one_of(&[0, 0, 8, 1480, 65_528]),
            more: self.chance(2),
            identification: self.next() as u32,
        };
        Six {
            traffic_class: self.next() as u8,
            flow_label: self.next() as u32 & 0xf_ffff,
            hop_limit: self.one_of(&[0, 1, 2, 64, 255]),
            source,
            destination,
            extensions,
            fragment: self.chance(3).then_some(fragment),
            ..Six::new(protocol, payload)
        }
    }

    /// A quotation, perhaps with an extension structure, and the length field for it.
    fn quotation(&mut self, mut quoted: Vec<u8>, unit: usize) -> (Vec<u8>, u8) {
        let kept = self.one_of(&[20, 28, 40, 48, 56, 100, 128, 500, 5000]);
        quoted.truncate(kept);
        if !self.chance(3) {
            return (quoted, if self.chance(20) { self.next() as u8 } else { 0 });
        }
        if !self.chance(4) && quoted.len() < 128 {
            quoted.resize(128, 0);
        }
        quoted.truncate(255 * unit);
        quoted.resize(quoted.len().next_multiple_of(unit), 0);
        let length = (quoted.len() / unit) as u8;
        let extension = self.one_of(&[4, 12, 64, 700]);
        quoted.extend(self.bytes(extension));
        (quoted, length)
    }

    /// An IPv4 packet, a third of them ICMP errors.
    fn any_four(&mut self) -> Vec<u8> {
        let packet = self.four();
        if !self.chance(3) {
            return packet.bytes();
        }
        let (body, length) = self.quotation(packet.bytes(), 4);
        let kind = self.one_of(&[3, 3, 3, 4, 5, 11, 12, 12]);
        let mtu = self.one_of(&[0, 576, 1300, 1480, 1500, 65_535]);
        let pointer = self.below(24) as u32;
        let word = if kind == 12 { pointer << 24 } else { mtu } | u32::from(length) << 16;
        let message = icmp(kind, self.below(17) as u8, word, &body);
        let (source, destination) = (self.address(), self.address());
        Four { source, destination, fragment_field: 0, ..Four::new(1, message) }.bytes()
    }

    /// An IPv6 packet, a third of them ICMPv6 errors.
    fn any_six(&mut self) -> Vec<u8> {
        let packet = self.six();
        if !self.chance(3) {
            return packet.bytes();
        }
        let (body, length) = self.quotation(packet.bytes(), 8);
        let kind = self.one_of(&[1, 1, 2, 3, 4, 4, 5]);
        let (length, word) = match kind {
            2 => (0, self.one_of(&[0, 100, 1280, 1400, 1500, 9000, u32::MAX])),
            4 => (0, self.below(42) as u32),
            _ => (length, 0),
        };
        let source = if self.chance(4) { STRANGER } else { embed(self.address()) };
        let ends = (source, embed(self.address()));
        let word = word | u32::from(length) << 24;
        let message = icmp6(ends, kind, self.below(7) as u8, word, &body);
        Six { source: ends.0, destination: ends.1, ..Six::new(58, message) }.bytes()
    }

    /// Changes a few bytes. The header checksum of an IPv4 packet mostly stays right.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(4) * self.below(2) {
            let within = self.one_of(&[20, 48, 100, 5000]).min(bytes.len());
            let at = self.below(within);
            bytes[at] = self.one_of(&[0, 1, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x80]);
        }
        if self.chance(10) {
            let len = self.below(bytes.len() + 1);
            bytes.truncate(len);
        }
        if self.chance(10) {
            let more = self.below(40);
            bytes.extend(self.bytes(more));
        }
        if !self.chance(10)
            && let Ok(mut header) = Ipv4::new_header_checked(&mut bytes[..])
        {
            header.fill_checksum();
        }
    }
}

/// Asserts that a conversion and the model agree.
fn agree(done: Done, model: Translated, bytes: &[u8], settings: &ConvertSettings) {
    let done = done.map(|(bytes, cut)| (bytes, cut.map(|cut| (cut.limit, cut.identification))));
    let of_model = |limit: families::Limit| (limit.len, limit.identification);
    match (done, model.map(|(bytes, limit)| (bytes, limit.map(of_model)))) {
        (Ok((left, how)), Ok((right, models))) => {
            same(&format!("{settings:?}\n{bytes:02x?}"), &left, &right);
            assert_eq!(how, models, "{settings:?}");
        }
        (Err(left), Err(right)) => assert_eq!(left, right, "{settings:?}\n{bytes:02x?}"),
        (left, right) => panic!("{left:02x?} or {right:02x?}\n{settings:?}\n{bytes:02x?}"),
    }
}

/// Clears the identification that the model leaves open.
fn without_identification(done: Done, source: &[u8]) -> Done {
    let own = Ipv6::new_checked(source)
        .is_ok_and(|packet| packet.walk().is_ok_and(|walk| walk.fragment.is_some()));
    done.map(|(mut bytes, cut)| {
        if !own {
            let mut header = Ipv4::new_checked(&mut bytes[..]).expect("an IPv4 packet");
            assert!(header.checksum_valid());
            header.set_identification(0);
            header.fill_checksum();
        }
        // IPv4 packets have their identification in the header.
        (bytes, cut.map(|cut| Cut { identification: 0, ..cut }))
    })
}

/// Converts a packet that came through a translation back. Asserts that its checksum is right.
fn assert_valid_six(bytes: &[u8]) {
    let packet = Ipv6::new_checked(bytes).expect("an IPv6 packet");
    let walk = packet.walk().expect("headers");
    if walk.fragment.is_none() {
        let sealed = seal6(
            walk.protocol,
            packet.source(),
            packet.destination(),
            bytes[walk.transport..].to_vec(),
        );
        same("checksum", &bytes[walk.transport..], &sealed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn to_ipv6_is_what_the_model_says(seed: u64) {
        let mut rng = Rng(seed);
        let settings = rng.settings();
        let mut bytes = rng.any_four();
        rng.mutate(&mut bytes);
        let done = to_ipv6_with(settings, &bytes, &mut ByPrefix::default());
        let model = families::to_ipv6(&bytes, &settings, &mut ByPrefix::default());
        agree(done, model, &bytes, &settings);
    }

    #[test]
    fn to_ipv4_is_what_the_model_says(seed: u64) {
        let mut rng = Rng(seed);
        let settings = rng.settings();
        let mut bytes = rng.any_six();
        rng.mutate(&mut bytes);
        let done = to_ipv4_with(settings, &bytes, &mut ByPrefix::default());
        let done = without_identification(done, &bytes);
        let model = families::to_ipv4(&bytes, &settings, &mut ByPrefix::default());
        agree(done, model, &bytes, &settings);
    }

    /// From IPv4 to IPv6 and back a packet loses its options and its trailer, and a packet that is
    /// no fragment its identification and DF. A fragment loses DF.
    #[test]
    fn ipv4_comes_back(seed: u64) {
        let mut rng = Rng(seed);
        let settings = ConvertSettings {
            mtu_ipv6: 65_535,
            mtu_ipv4: 65_535,
            lowest_mtu: 65_535,
            hops: Hops::Keep,
            ..ConvertSettings::default()
        };
        let packet = rng.four();
        let there = to_ipv6_with(settings, &packet.bytes(), &mut ByPrefix::default());
        let Ok((there, None)) = there else { return Ok(()) };
        // The number of ICMPv6, or of an extension header behind a fragment header, does not pass.
        let fragment = packet.fragment_field & 0x3fff != 0;
        match packet.protocol {
            58 => return Ok(()),
            51 | 135 | 139 | 140 if fragment => return Ok(()),
            _ => {}
        }
        let back = to_ipv4_with(settings, &there, &mut ByPrefix::default());
        let mut back = whole(back);
        let fragment_field = match packet.fragment_field & 0x3fff {
            0 if packet.payload.len() > 1240 => 0x4000,
            field => field,
        };
        let identification = match packet.fragment_field & 0x3fff {
            0 => Ipv4::new_checked(&back[..]).unwrap().identification(),
            _ => packet.identification,
        };
        let mut wanted = Four {
            options: Vec::new(),
            fragment_field,
            identification,
            ..packet.clone()
        }
        .bytes();
        if packet.protocol == 17 && packet.payload.len() >= 8 && packet.payload[6..8] == [0, 0] {
            // The checksum was computed on the way.
            for bytes in [&mut back, &mut wanted] {
                bytes[26..28].fill(0);
            }
        }
        same(&format!("{packet:02x?}"), &back, &wanted);
    }

    /// From IPv6 to IPv4 and back a packet loses its flow label, extension headers and the upper
    /// half of its identification.
    #[test]
    fn ipv6_comes_back(seed: u64) {
        let mut rng = Rng(seed);
        let settings = ConvertSettings {
            mtu_ipv6: 65_535,
            mtu_ipv4: 65_535,
            lowest_mtu: 65_535,
            udp_checksum_zero: UdpChecksumZero::Forward,
            hops: Hops::Keep,
            ..ConvertSettings::default()
        };
        let packet = rng.six();
        let there = to_ipv4_with(settings, &packet.bytes(), &mut ByPrefix::default());
        let Ok((there, None)) = there else { return Ok(()) };
        let refused = matches!(packet.next_header, 1 | 2 | 0 | 43 | 44 | 60);
        if refused || packet.destination as u32 >> 24 == 10 {
            return Ok(());
        }
        let back = whole(to_ipv6_with(settings, &there, &mut ByPrefix::default()));
        let fragment = packet.fragment.filter(|fragment| !fragment.is_atomic()).map(|fragment| {
            Fragment { identification: fragment.identification & 0xffff, ..fragment }
        });
        let wanted = Six { flow_label: 0, extensions: Vec::new(), fragment, ..packet.clone() };
        same(&format!("{packet:02x?}"), &back, &wanted.bytes());
        if packet.payload.len() >= least_len(packet.next_header) && packet.next_header != 17 {
            assert_valid_six(&back);
        }
    }

    /// The fragments of a packet, put together again, are the packet.
    #[test]
    fn fragments_add_up(seed: u64) {
        let mut rng = Rng(seed);
        let settings = rng.settings();
        let bytes = Four { fragment_field: 0, ..rng.four() }.bytes();
        if let Ok((whole, Some(how))) = to_ipv6_with(settings, &bytes, &mut ByPrefix::default()) {
            let mut payload: Vec<u8> = Vec::new();
            for fragment in cut(&whole, how) {
                let walk = Ipv6::new_checked(&fragment[..]).unwrap().walk().unwrap();
                let (_, header) = walk.fragment.expect("a fragment header");
                assert_eq!(header.offset, payload.len());
                assert!(fragment.len() <= how.limit);
                payload.extend(&fragment[walk.transport..]);
            }
            same("payload", &payload, &whole[40..]);
        }
    }

    /// No bytes cause a panic, whatever the buffer looks like.
    #[test]
    fn bytes_without_sense_do_no_harm(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        start in 28..100_usize,
        seed: u64,
    ) {
        let mut rng = Rng(seed);
        let mut converter = Converter::new(rng.settings(), [1; 32]);
        if let Some(first) = bytes.first_mut().filter(|_| !rng.chance(8)) {
            *first = rng.one_of(&[0x45, 0x46, 0x4f, 0x60, 0x6f]);
        }
        if bytes.len() >= 60 {
            let len = bytes.len() as u16;
            let six = bytes[0] >> 4 == 6;
            let (at, len) = if six { (4, len - 40) } else { (2, len) };
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
            bytes[if six { 6 } else { 9 }] = rng.one_of(&[1, 58, 6, 17, 44, 43, 0, 60]);
            if let Ok(mut header) = Ipv4::new_header_checked(&mut bytes[..]) {
                header.fill_checksum();
            }
        }
        let mut buffer = vec![0; start];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, start);
        let _ = converter.to_ipv6(&mut packet, &mut ByPrefix::default());
        let mut packet = Packet::new(&mut buffer, start);
        let _ = converter.to_ipv4(&mut packet, &mut ByPrefix::default());
    }
}

/// With the least headroom too an ICMP error is converted, or refused, without harm.
#[test]
fn the_least_headroom_is_enough() {
    for seed in 0..20_000 {
        let mut rng = Rng(seed);
        let bytes = rng.any_four();
        let converter = Converter::new(ConvertSettings::default(), [1; 32]);
        let mut buffer = vec![0; 28];
        buffer.extend(&bytes);
        let mut packet = Packet::new(&mut buffer, 28);
        if converter.to_ipv6(&mut packet, &mut ByPrefix::default()).is_ok() {
            let packet = Ipv6::new_checked(packet.bytes()).expect("an IPv6 packet");
            assert!(packet.walk().is_ok(), "seed {seed}");
        }
    }
}
