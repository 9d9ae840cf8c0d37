//! Decisions of a translator as a router: time to live, size, options, invalid addresses, and
//! packets to the translator itself.

use std::net::Ipv4Addr;

use natgate_engine::Side;
use natgate_wire::protocol;

use super::{Author, EXTERNAL, INSIDE, Kind, neighbor};
use crate::observation::PortHistory;
use crate::packets::{DONT_FRAGMENT, Packet, SYN};

/// Writes one story of each kind.
pub(super) fn write(author: &mut Author) {
    expired(author);
    too_big(author);
    options(author);
    martians(author);
    own_addresses(author);
    gateway(author);
    hairpin(author);
}

fn expired(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    let length = author.chance.below(1000);
    let data = author.chance.bytes(length);
    for (name, ttl) in [("TTL 1 out", 1), ("TTL 0 out", 0)] {
        let mut packet = story.question(&mut author.chance).with_data(&data);
        packet.ttl = ttl;
        story.outbound(name, Kind::OwnError, vec![packet.bytes()]);
    }
    let packet = story.question(&mut author.chance);
    story.outbound("UDP out", Kind::Ordinary, vec![packet.bytes()]);
    let remote = story.remote;
    for (name, ttl) in [("TTL 1 in", 1), ("TTL 0 in", 0)] {
        let data = data.clone();
        story.inbound(name, Kind::OwnError, move |external| {
            let mut packet = Packet::udp(remote, external, &data);
            packet.ttl = ttl;
            packet.bytes()
        });
    }
    author.tell(story);

    // No ICMP error is sent about an ICMP error or about a later fragment.
    let mut story = author.story(protocol::UDP);
    let about = Packet::udp(story.remote, story.internal, b"about").bytes();
    let mut error = Packet::error(story.internal.0, story.remote.0, (3, 3), &about, 33);
    error.ttl = 1;
    story.outbound("ICMP error with TTL 1 out", Kind::Ordinary, vec![error.bytes()]);
    let mut fragment = Packet::udp(story.internal, story.remote, &[1; 64]);
    fragment.ttl = 1;
    fragment.flags = 100;
    story.outbound("later fragment with TTL 1 out", Kind::BadFragments, vec![fragment.bytes()]);
    author.tell(story);
}

fn too_big(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    let length = 1373 + author.chance.below(100);
    let data = author.chance.bytes(length);
    let mut packet = Packet::udp(story.internal, story.remote, &data);
    packet.flags = DONT_FRAGMENT;
    story.outbound("too big and not to be cut", Kind::OwnError, vec![packet.bytes()]);
    packet.flags = 0;
    story.outbound("too big", Kind::Cut, vec![packet.bytes()]);
    author.tell(story);
}

fn options(author: &mut Author) {
    const OPTIONS: [(&str, &[u8]); 8] = [
        ("no operation", &[1, 1, 1, 0]),
        ("router alert", &[148, 4, 0, 0]),
        ("security", &[130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("unknown option", &[0x9e, 4, 1, 2]),
        ("record route", &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("timestamp", &[68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("loose source route", &[131, 7, 4, 198, 51, 100, 9, 0]),
        ("option that is too long", &[7, 40, 4, 0]),
    ];
    for (name, option) in OPTIONS {
        let mut story = author.story(protocol::UDP);
        let mut packet = story.question(&mut author.chance);
        packet.options = option.into();
        story.outbound(name, Kind::Options, vec![packet.bytes()]);
        author.tell(story);
    }
}

fn martians(author: &mut Author) {
    for address in [[0, 1, 2, 3], [169, 254, 0, 9], [240, 0, 0, 1]] {
        strange(author, address.into(), ["reserved source", "reserved destination"]);
    }
    for address in [[127, 0, 0, 1], [224, 0, 0, 9], [255, 255, 255, 255]] {
        strange(author, address.into(), ["source that nobody has", "destination that nobody has"]);
    }
    let mut story = author.story(protocol::UDP);
    let packet = Packet::udp(story.remote, story.remote, b"to itself");
    story.outbound("source equals destination", Kind::Martian, vec![packet.bytes()]);
    author.tell(story);

    let mut story = author.story(protocol::UDP);
    let foreign = (Ipv4Addr::new(198, 18, 0, 1 + author.chance.below(200) as u8), story.internal.1);
    story.internal = foreign;
    let packet = Packet::udp(foreign, story.remote, b"no subscriber");
    story.outbound("source that is no subscriber's", Kind::Foreign, vec![packet.bytes()]);
    author.tell(story);
}

/// Packets from and to an address, both from inside, and then packets from it on the outside.
fn strange(author: &mut Author, address: Ipv4Addr, [from, to]: [&'static str; 2]) {
    let mut story = author.story(protocol::UDP);
    let internal = story.internal;
    story.internal.0 = address;
    let packet = Packet::udp(story.internal, story.remote, b"from nowhere");
    story.outbound(from, Kind::Martian, vec![packet.bytes()]);
    (story.internal, story.remote) = (internal, (address, 53));
    let packet = Packet::udp(internal, story.remote, b"to nowhere");
    story.outbound(to, Kind::Martian, vec![packet.bytes()]);
    story.inbound(from, Kind::Martian, move |external| {
        Packet::udp((address, 53), external, b"from nowhere").bytes()
    });
    author.tell(story);
}

fn own_addresses(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    for own in [INSIDE, EXTERNAL] {
        let packet = Packet::udp((own, story.internal.1), story.remote, b"it is me");
        story.outbound("the translator's own source", Kind::Spoofed, vec![packet.bytes()]);
        story.inbound(
            "the translator's own source, from outside",
            Kind::Spoofed,
            move |external| Packet::udp((own, 53), external, b"it is me").bytes(),
        );
    }
    let neighbor = neighbor(story.internal.0);
    story.inbound("an inside source, from outside", Kind::Spoofed, move |external| {
        Packet::udp((neighbor, 53), external, b"I am inside").bytes()
    });
    author.tell(story);
}

fn gateway(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    let host = story.internal;
    let ping = Packet::query(host.0, INSIDE, 8, 0x7777);
    story.outbound("ping of the translator", Kind::Ping, vec![ping.bytes()]);
    let ping = Packet::query(host.0, EXTERNAL, 8, 0x7778);
    story.outbound("ping of its outside from inside", Kind::PingAcross, vec![ping.bytes()]);
    let packet = Packet::udp(host, (INSIDE, 9), b"anybody?");
    story.outbound("UDP for the translator", Kind::ToGateway, vec![packet.bytes()]);
    let packet = Packet::tcp(host, (INSIDE, 9), SYN, (1, 0));
    story.outbound("TCP for the translator", Kind::ToGateway, vec![packet.bytes()]);
    let packet = Packet::udp(host, (neighbor(host.0), 9), b"neighbor");
    story.outbound("UDP from inside to inside", Kind::SameSide, vec![packet.bytes()]);
    author.tell(story);
}

/// One subscriber calls another by its external endpoint, after both have sent to each other.
fn hairpin(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    let (caller, remote) = (story.internal, story.remote);
    let called = (neighbor(caller.0), caller.1 + 20_000);
    for internal in [called, caller] {
        story.internal = internal;
        let packet = Packet::udp(internal, remote, b"here I am");
        story.outbound("UDP out", Kind::Ordinary, vec![packet.bytes()]);
    }
    for (from, to) in [(caller, called), (called, caller), (caller, called)] {
        story.internal = from;
        let packets = move |known: &PortHistory| {
            let external = known.external(protocol::UDP, to, remote);
            vec![Packet::udp(from, external, b"hairpin").bytes()]
        };
        story.push("UDP to an external endpoint", Kind::Hairpin, Side::Inside, Box::new(packets));
    }
    author.tell(story);
}
