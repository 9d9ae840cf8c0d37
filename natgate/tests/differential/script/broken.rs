//! Damaged packets.

use natgate_wire::protocol;

use super::{Author, Kind, ROUTER_INSIDE, ROUTER_OUTSIDE, Story};
use crate::packets::{ACK, Body, FIN, PSH, Packet, RST, SYN, URG, fix_header, fragments};

/// Writes one story of each kind.
pub(super) fn write(author: &mut Author) {
    no_connection(author);
    odd_flags(author);
    wrong_checksums(author);
    bad_lengths(author);
    bad_headers(author);
    odd_icmp(author);
    errors_about_nothing(author);
    bad_fragments(author);
}

fn no_connection(author: &mut Author) {
    for flags in [ACK, ACK | PSH, SYN | ACK, FIN | ACK, RST, RST | ACK] {
        let mut story = author.story(protocol::TCP);
        let packet = Packet::tcp(story.internal, story.remote, flags, (5, 6));
        story.outbound("TCP without connection", Kind::MidStream, vec![packet.bytes()]);
        author.tell(story);
    }
}

fn odd_flags(author: &mut Author) {
    for flags in [0, SYN | FIN, SYN | RST, FIN | PSH | URG, SYN | FIN | RST | ACK] {
        let mut story = author.story(protocol::TCP);
        let packet = Packet::tcp(story.internal, story.remote, flags, (5, 0));
        story.outbound("TCP with odd flags", Kind::OddFlags, vec![packet.bytes()]);
        author.tell(story);
    }
}

/// A story with a mapping.
fn begun(author: &mut Author, number: u8) -> Story {
    let mut story = author.story(number);
    let packet = match number {
        protocol::TCP => Packet::tcp(story.internal, story.remote, SYN, (9, 0)),
        protocol::UDP => story.question(&mut author.chance),
        _ => Packet::query(story.internal.0, story.remote.0, 8, story.internal.1),
    };
    story.outbound("a packet out", Kind::Ordinary, vec![packet.bytes()]);
    story
}

fn wrong_checksums(author: &mut Author) {
    for number in [protocol::UDP, protocol::TCP, protocol::ICMP] {
        let at = match number {
            protocol::UDP => 26,
            protocol::TCP => 36,
            _ => 22,
        };
        let by = 1 + author.chance.below(0xfe) as u8;
        let spoil = move |mut bytes: Vec<u8>| {
            bytes[at] ^= by;
            bytes
        };
        let mut story = begun(author, number);
        let (internal, remote) = (story.internal, story.remote);
        let out = match number {
            protocol::UDP => Packet::udp(internal, remote, b"wrong"),
            protocol::TCP => Packet::tcp(internal, remote, SYN, (9, 0)),
            _ => Packet::query(internal.0, remote.0, 8, internal.1),
        };
        story.outbound("wrong checksum out", Kind::WrongChecksum, vec![spoil(out.bytes())]);
        story.inbound("wrong checksum in", Kind::WrongChecksum, move |external| {
            let packet = match number {
                protocol::UDP => Packet::udp(remote, external, b"wrong"),
                protocol::TCP => Packet::tcp(remote, external, SYN | ACK, (77, 10)),
                _ => Packet::query(remote.0, external.0, 0, external.1),
            };
            spoil(packet.bytes())
        });
        author.tell(story);
    }
}

fn bad_lengths(author: &mut Author) {
    let udp = |length: u16| {
        move |bytes: &mut Vec<u8>| bytes[24..26].copy_from_slice(&length.to_be_bytes())
    };
    let offset = |words: u8| move |bytes: &mut Vec<u8>| bytes[32] = words << 4;
    let cut = |length: u16| {
        move |bytes: &mut Vec<u8>| {
            bytes.truncate(usize::from(length));
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            fix_header(bytes);
        }
    };
    let mut spoil = |number, name, spoil: &dyn Fn(&mut Vec<u8>)| {
        let mut story = author.story(number);
        let packet = match number {
            protocol::UDP => Packet::udp(story.internal, story.remote, &[7; 30]),
            protocol::TCP => Packet::tcp(story.internal, story.remote, SYN, (9, 0)),
            _ => Packet::query(story.internal.0, story.remote.0, 8, story.internal.1),
        };
        let mut bytes = packet.bytes();
        spoil(&mut bytes);
        story.outbound(name, Kind::BadLength, vec![bytes]);
        author.tell(story);
    };
    spoil(protocol::UDP, "UDP length too small", &udp(7));
    spoil(protocol::UDP, "UDP length too large", &udp(39));
    spoil(protocol::UDP, "UDP header cut", &cut(27));
    spoil(protocol::TCP, "TCP data offset too small", &offset(4));
    spoil(protocol::TCP, "TCP data offset too large", &offset(6));
    spoil(protocol::TCP, "TCP header cut", &cut(39));
    spoil(protocol::ICMP, "ICMP header cut", &cut(27));
}

/// Packets that no router may forward (RFC 1812 section 5.2.2).
fn bad_headers(author: &mut Author) {
    let mut spoil = |name, spoil: &dyn Fn(&mut Vec<u8>)| {
        let mut story = author.story(protocol::UDP);
        let mut bytes = Packet::udp(story.internal, story.remote, &[7; 30]).bytes();
        spoil(&mut bytes);
        story.outbound(name, Kind::Ordinary, vec![bytes]);
        author.tell(story);
    };
    spoil("header checksum wrong", &|bytes| bytes[10] ^= 0x40);
    spoil("another version", &|bytes| bytes[0] = 0x55);
    spoil("header too short", &|bytes| bytes[0] = 0x44);
    spoil("header longer than the packet", &|bytes| {
        bytes.truncate(40);
        bytes[2..4].copy_from_slice(&[0, 40]);
        bytes[0] = 0x4f;
    });
    spoil("total length too large", &|bytes| {
        bytes[2..4].copy_from_slice(&[0, 59]);
        fix_header_of(bytes);
    });
    spoil("total length too small", &|bytes| {
        bytes[2..4].copy_from_slice(&[0, 19]);
        fix_header_of(bytes);
    });
}

/// Corrects the checksum even if the lengths are wrong.
fn fix_header_of(bytes: &mut [u8]) {
    bytes[10..12].fill(0);
    let checksum = natgate_wire::checksum::checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn odd_icmp(author: &mut Author) {
    for kind in [4, 5, 9, 10, 15, 17, 30, 42, 200] {
        let mut story = author.story(protocol::ICMP);
        story.remote.1 = 0;
        let (internal, remote) = (story.internal, story.remote);
        let body = move |identifier: u16| {
            let rest = [&identifier.to_be_bytes()[..], &[0, 1], &[0; 28]].concat();
            Body::Icmp { kind, code: 0, rest }
        };
        let packet = Packet::new(internal.0, remote.0, body(internal.1));
        story.outbound("odd ICMP out", Kind::OddIcmp, vec![packet.bytes()]);
        story.inbound("odd ICMP in", Kind::OddIcmp, move |external| {
            Packet::new(remote.0, external.0, body(external.1)).bytes()
        });
        author.tell(story);
    }
    for kind in [0, 14] {
        let mut story = author.story(protocol::ICMP);
        let packet = Packet::query(story.internal.0, story.remote.0, kind, story.internal.1);
        story.outbound("ICMP reply out", Kind::UninvitedReply, vec![packet.bytes()]);
        author.tell(story);
    }
}

fn errors_about_nothing(author: &mut Author) {
    for number in [protocol::UDP, protocol::TCP, protocol::ICMP] {
        let mut story = author.story(number);
        let (internal, remote) = (story.internal, story.remote);
        let make = move |from, to| match number {
            protocol::UDP => Packet::udp(from, to, &[3; 40]),
            protocol::TCP => Packet::tcp(from, to, ACK, (1, 2)),
            _ => Packet::query(from.0, to.0, 8, from.1),
        };
        let about = make(remote, internal).bytes();
        let error = Packet::error(ROUTER_INSIDE, remote.0, (3, 1), &about, 48);
        story.outbound("ICMP error out about nothing", Kind::UnknownError, vec![error.bytes()]);
        story.inbound("ICMP error in about nothing", Kind::UnknownError, move |external| {
            let about = make(external, remote).bytes();
            Packet::error(ROUTER_OUTSIDE, external.0, (3, 1), &about, 48).bytes()
        });
        author.tell(story);
    }
    // Errors about a session that must not be trusted.
    for (name, at) in
        [("ICMP error in, checksum wrong", 22), ("ICMP error in, embedded header wrong", 38)]
    {
        let mut story = begun(author, protocol::UDP);
        let remote = story.remote;
        story.inbound(name, Kind::UnknownError, move |external| {
            let about = Packet::udp(external, remote, &[3; 40]).bytes();
            let mut error = Packet::error(ROUTER_OUTSIDE, external.0, (3, 1), &about, 48).bytes();
            error[at] ^= 0x10;
            if at > 28 {
                natgate_wire::Icmp::new_checked(&mut error[20..]).unwrap().fill_checksum();
            }
            error
        });
        author.tell(story);
    }
}

fn bad_fragments(author: &mut Author) {
    let pieces = |author: &mut Author, story: &Story| {
        let data = author.chance.bytes(2400);
        let mut packet = Packet::udp(story.internal, story.remote, &data);
        packet.identification = author.chance.next() as u16;
        fragments(&packet.bytes(), 800)
    };
    let mut story = author.story(protocol::UDP);
    let mut overlapping = pieces(author, &story);
    overlapping[1][7] -= 10;
    fix_header(&mut overlapping[1]);
    story.outbound("overlapping fragments", Kind::BadFragments, overlapping);
    author.tell(story);

    let mut story = author.story(protocol::UDP);
    let mut incomplete = pieces(author, &story);
    incomplete.remove(1);
    story.outbound("a fragment is missing", Kind::BadFragments, incomplete);
    author.tell(story);

    let mut story = author.story(protocol::UDP);
    let mut headless = pieces(author, &story);
    headless.remove(0);
    story.outbound("the first fragment is missing", Kind::BadFragments, headless);
    author.tell(story);

    let mut story = author.story(protocol::UDP);
    let mut repeated = pieces(author, &story);
    repeated.insert(1, repeated[1].clone());
    story.outbound("a fragment comes twice", Kind::BadFragments, repeated);
    author.tell(story);

    let mut story = author.story(protocol::TCP);
    let packet = Packet::tcp(story.internal, story.remote, SYN, (9, 0));
    story.outbound("a tiny first fragment", Kind::BadFragments, fragments(&packet.bytes(), 8));
    author.tell(story);
}
