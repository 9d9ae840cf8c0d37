//! Ordinary stories of a translator, and packets of strangers.

use std::net::Ipv4Addr;

use natgate_wire::protocol;

use super::{
    Author, Kind, ROUTER_INSIDE, ROUTER_OUTSIDE, Story, TCP_SERVICE, UDP_SERVICE, neighbor, vary,
};
use crate::packets::{ACK, Body, Endpoint, FIN, PSH, Packet, RST, SYN, fragments};

/// A stranger: an outside host that no internal host has sent a packet to.
const STRANGER: Endpoint = (Ipv4Addr::new(198, 51, 100, 150), 4444);

/// Writes one story of each kind.
pub(super) fn write(author: &mut Author) {
    udp(author);
    udp_without_checksum(author);
    tcp(author);
    tcp_reset(author);
    tcp_both_call(author);
    queries(author);
    errors_from_outside(author);
    errors_from_inside(author);
    strangers(author);
    contended(author);
    services(author);
    fragmented(author);
    other_protocols(author);
}

fn udp(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    for _ in 0..3 {
        let length = author.chance.below(1300);
        let data = author.chance.bytes(length);
        let packet = story.question(&mut author.chance).with_data(&data);
        story.outbound("UDP out", Kind::Ordinary, vec![packet.bytes()]);
        let (remote, data) = (story.remote, author.chance.bytes(length / 2));
        let varied = vary(Packet::udp(remote, remote, &data), &mut author.chance);
        story.inbound("UDP in", Kind::Ordinary, move |external| {
            let mut packet = varied.clone();
            packet.destination = external.0;
            packet.body = Body::Udp { ports: (remote.1, external.1), data: data.clone() };
            packet.bytes()
        });
    }
    // Bytes beyond the total length, as in short Ethernet frames.
    let mut padded = Packet::udp(story.internal, story.remote, b"ab").bytes();
    padded.extend([0xee; 16]);
    story.outbound("UDP out with padding", Kind::Ordinary, vec![padded]);
    author.tell(story);
}

fn udp_without_checksum(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    let without = |mut bytes: Vec<u8>| {
        bytes[26..28].fill(0);
        bytes
    };
    let packet = story.question(&mut author.chance).with_data(b"unchecked").bytes();
    story.outbound("UDP out without checksum", Kind::Ordinary, vec![without(packet)]);
    let remote = story.remote;
    story.inbound("UDP in without checksum", Kind::Ordinary, move |external| {
        without(Packet::udp(remote, external, b"unchecked").bytes())
    });
    author.tell(story);
}

/// A TCP connection in progress: the next sequence numbers of both ends.
struct Connection {
    out: u32,
    back: u32,
}

impl Connection {
    /// Opens a connection.
    fn open(author: &mut Author, story: &mut Story) -> Self {
        let (out, back) = (author.chance.next() as u32, author.chance.next() as u32);
        let mut connection = Self { out, back };
        connection.send(author, story, SYN, &[]);
        connection.receive(story, SYN | ACK, &[]);
        connection.send(author, story, ACK, &[]);
        connection
    }

    fn send(&mut self, author: &mut Author, story: &mut Story, flags: u8, data: &[u8]) {
        let acknowledged = if flags & ACK != 0 { self.back } else { 0 };
        let packet = Packet::tcp(story.internal, story.remote, flags, (self.out, acknowledged));
        let packet = vary(packet, &mut author.chance).with_data(data);
        story.outbound("TCP out", Kind::Ordinary, vec![packet.bytes()]);
        self.out = self.out.wrapping_add(length(flags, data));
    }

    fn receive(&mut self, story: &mut Story, flags: u8, data: &[u8]) {
        let numbers = (self.back, if flags & ACK != 0 { self.out } else { 0 });
        let (remote, data) = (story.remote, data.to_vec());
        self.back = self.back.wrapping_add(length(flags, &data));
        story.inbound("TCP in", Kind::Ordinary, move |external| {
            Packet::tcp(remote, external, flags, numbers).with_data(&data).bytes()
        });
    }
}

/// Length of a segment in sequence numbers.
fn length(flags: u8, data: &[u8]) -> u32 {
    data.len() as u32 + u32::from(flags & (SYN | FIN) != 0)
}

fn tcp(author: &mut Author) {
    let mut story = author.story(protocol::TCP);
    let mut connection = Connection::open(author, &mut story);
    for _ in 0..2 {
        let length = 1 + author.chance.below(1200);
        let data = author.chance.bytes(length);
        connection.send(author, &mut story, ACK | PSH, &data);
        connection.receive(&mut story, ACK | PSH, &data[..length / 2 + 1]);
    }
    out_of_window(author, &mut story, &connection);
    if author.chance.below(2) == 0 {
        connection.send(author, &mut story, FIN | ACK, &[]);
        connection.receive(&mut story, FIN | ACK, &[]);
        connection.send(author, &mut story, ACK, &[]);
    } else {
        connection.receive(&mut story, FIN | ACK, &[]);
        connection.send(author, &mut story, FIN | ACK, &[]);
        connection.receive(&mut story, ACK, &[]);
    }
    author.tell(story);
}

/// Segments far beyond every window.
fn out_of_window(author: &mut Author, story: &mut Story, connection: &Connection) {
    let far = 0x4000_0000 + author.chance.below(0x1000_0000) as u32;
    let numbers = (connection.out.wrapping_add(far), connection.back);
    let packet = Packet::tcp(story.internal, story.remote, ACK, numbers).with_data(b"far");
    story.outbound("TCP out of window", Kind::OutOfWindow, vec![packet.bytes()]);
    let (remote, numbers) = (story.remote, (connection.back.wrapping_add(far), connection.out));
    story.inbound("TCP in out of window", Kind::OutOfWindow, move |external| {
        Packet::tcp(remote, external, ACK, numbers).with_data(b"far").bytes()
    });
}

fn tcp_reset(author: &mut Author) {
    let mut story = author.story(protocol::TCP);
    let mut connection = Connection::open(author, &mut story);
    if author.chance.below(2) == 0 {
        connection.send(author, &mut story, RST | ACK, &[]);
    } else {
        connection.receive(&mut story, RST | ACK, &[]);
    }
    author.tell(story);
}

/// Simultaneous open (RFC 9293 section 3.5).
fn tcp_both_call(author: &mut Author) {
    let mut story = author.story(protocol::TCP);
    let mut connection =
        Connection { out: author.chance.next() as u32, back: author.chance.next() as u32 };
    let before = (connection.out, connection.back);
    connection.send(author, &mut story, SYN, &[]);
    connection.receive(&mut story, SYN, &[]);
    let after = (connection.out, connection.back);
    connection.out = before.0;
    connection.send(author, &mut story, SYN | ACK, &[]);
    connection.back = before.1;
    connection.receive(&mut story, SYN | ACK, &[]);
    assert_eq!((connection.out, connection.back), after);
    connection.send(author, &mut story, ACK | PSH, b"met");
    connection.receive(&mut story, ACK | PSH, b"met too");
    author.tell(story);
}

fn queries(author: &mut Author) {
    for (ask, answer) in [(8, 0), (13, 14)] {
        let mut story = author.story(protocol::ICMP);
        story.remote.1 = 0;
        let ((host, identifier), (remote, _)) = (story.internal, story.remote);
        for _ in 0..2 {
            let packet = vary(Packet::query(host, remote, ask, identifier), &mut author.chance);
            story.outbound("ICMP query out", Kind::Ordinary, vec![packet.bytes()]);
            story.inbound("ICMP reply in", Kind::Ordinary, move |external| {
                Packet::query(remote, external.0, answer, external.1).bytes()
            });
        }
        author.tell(story);
    }
}

/// ICMP errors of routers and of the destination.
const ERRORS: [(u8, u8); 10] =
    [(3, 0), (3, 1), (3, 3), (3, 4), (3, 9), (3, 13), (11, 0), (11, 1), (12, 0), (3, 2)];

fn errors_from_outside(author: &mut Author) {
    for number in [protocol::UDP, protocol::TCP, protocol::ICMP] {
        let mut story = author.story(number);
        if number == protocol::ICMP {
            story.remote.1 = 0;
        }
        let about = {
            let remote = story.remote;
            move |from: Endpoint, ttl| {
                let mut packet = first_packet(number, from, remote);
                packet.ttl = ttl;
                packet.bytes()
            }
        };
        story.outbound("out, before an error", Kind::Ordinary, vec![about(story.internal, 64)]);
        for _ in 0..3 {
            let error = author.chance.pick(&ERRORS);
            let length = author.chance.pick(&[28, 32, 48, 548]);
            let from = author.chance.pick(&[ROUTER_OUTSIDE, story.remote.0]);
            story.inbound("ICMP error in", Kind::Ordinary, move |external| {
                Packet::error(from, external.0, error, &about(external, 61), length).bytes()
            });
        }
        let extension = [0x20, 0, 0xb3, 0x1f, 0, 8, 1, 1, 0, 0, 0x11, 0x22];
        story.inbound("ICMP error in with extension", Kind::Ordinary, move |external| {
            let mut quoted = about(external, 61);
            quoted.resize(128, 0);
            quoted.extend(extension);
            let mut error = Packet::error(ROUTER_OUTSIDE, external.0, (11, 0), &quoted, 1000);
            if let Body::Icmp { rest, .. } = &mut error.body {
                // RFC 4884: the length of the quoted packet, in words.
                rest[1] = 128 / 4;
            }
            error.bytes()
        });
        author.tell(story);
    }
}

fn errors_from_inside(author: &mut Author) {
    for number in [protocol::UDP, protocol::TCP, protocol::ICMP] {
        let mut story = author.story(number);
        if number == protocol::ICMP {
            story.remote.1 = 0;
        }
        let packet = first_packet(number, story.internal, story.remote);
        story.outbound("out, before an answer", Kind::Ordinary, vec![packet.bytes()]);
        let (internal, remote) = (story.internal, story.remote);
        story.inbound("in, before an error", Kind::Ordinary, move |external| {
            answer(number, remote, external).bytes()
        });
        for _ in 0..3 {
            let error = author.chance.pick(&ERRORS);
            let from = author.chance.pick(&[ROUTER_INSIDE, internal.0]);
            let length = author.chance.pick(&[28, 32, 48, 548]);
            let about = answer(number, remote, internal).bytes();
            let error = Packet::error(from, remote.0, error, &about, length).bytes();
            story.outbound("ICMP error out", Kind::Ordinary, vec![error]);
        }
        author.tell(story);
    }
}

/// First packet, which makes a mapping.
fn first_packet(number: u8, from: Endpoint, to: Endpoint) -> Packet {
    match number {
        protocol::UDP => Packet::udp(from, to, &[0x55; 40]),
        protocol::TCP => Packet::tcp(from, to, SYN, (0x1000, 0)),
        _ => Packet::query(from.0, to.0, 8, from.1),
    }
}

/// Packet in the reverse direction.
fn answer(number: u8, from: Endpoint, to: Endpoint) -> Packet {
    match number {
        protocol::UDP => Packet::udp(from, to, &[0x66; 40]),
        protocol::TCP => Packet::tcp(from, to, SYN | ACK, (0x2000, 0x1001)),
        _ => Packet::query(from.0, to.0, 0, to.1),
    }
}

fn strangers(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    story.inbound("UDP without mapping", Kind::Uninvited, |external| {
        Packet::udp(STRANGER, external, b"hello?").bytes()
    });
    let packet = story.question(&mut author.chance).bytes();
    story.outbound("UDP out", Kind::Ordinary, vec![packet]);
    story.inbound("UDP from a stranger", Kind::Uninvited, |external| {
        Packet::udp(STRANGER, external, b"hello?").bytes()
    });
    let other_port = (story.remote.0, 5555);
    story.inbound("UDP from another port", Kind::Uninvited, move |external| {
        Packet::udp(other_port, external, b"hello?").bytes()
    });
    author.tell(story);

    let mut story = author.story(protocol::TCP);
    let remote = story.remote;
    for (name, kind, flags) in [
        ("SYN without mapping", Kind::UninvitedSyn, SYN),
        ("ACK without mapping", Kind::Uninvited, ACK),
        ("RST without mapping", Kind::Uninvited, RST),
        ("SYN ACK without mapping", Kind::Uninvited, SYN | ACK),
    ] {
        story.inbound(name, kind, move |external| {
            Packet::tcp(remote, external, flags, (77, 88)).bytes()
        });
    }
    author.tell(story);

    let mut story = author.story(protocol::ICMP);
    let remote = story.remote.0;
    story.inbound("ping of the external address", Kind::Ping, move |external| {
        Packet::query(remote, external.0, 8, 0x6666).bytes()
    });
    story.inbound("ICMP reply without mapping", Kind::Ordinary, move |external| {
        Packet::query(remote, external.0, 0, 0x6667).bytes()
    });
    author.tell(story);
}

/// Two subscribers use one port to equal remote endpoints, in different orders.
fn contended(author: &mut Author) {
    for [first_of_one, first_of_two, then_of_two, then_of_one] in [[0, 0, 1, 1], [0, 1, 0, 1]] {
        let mut story = author.story(protocol::UDP);
        // Linux has few alternative ports below 1024.
        story.internal.1 += 30_000;
        let one = story.internal;
        let two = (neighbor(one.0), one.1);
        let remotes = [story.remote, (Ipv4Addr::new(198, 51, 100, 77), story.remote.1)];
        for (internal, remote, name) in [
            (one, first_of_one, "one has the port"),
            (two, first_of_two, "two wants it"),
            (two, then_of_two, "two goes on to another remote endpoint"),
            (one, then_of_one, "one goes on to another remote endpoint"),
        ] {
            let remote = remotes[remote];
            (story.internal, story.remote) = (internal, remote);
            let packet = Packet::udp(internal, remote, b"contended").bytes();
            story.outbound(name, Kind::Contended, vec![packet]);
            story.inbound("an answer finds the right one", Kind::Ordinary, move |external| {
                Packet::udp(remote, external, b"answer").bytes()
            });
        }
        author.tell(story);
    }
}

/// An outside host calls an internal service, and an internal router sends an error about it.
fn services(author: &mut Author) {
    for (number, [internal, external]) in
        [(protocol::TCP, TCP_SERVICE), (protocol::UDP, UDP_SERVICE)]
    {
        let mut story = author.story(number);
        story.internal = internal;
        let remote = story.remote;
        story.inbound("a call for a service", Kind::Ordinary, move |_| {
            first_packet(number, remote, external).bytes()
        });
        let packet = answer(number, internal, remote).bytes();
        story.outbound("the service answers", Kind::Ordinary, vec![packet]);
        let error = author.chance.pick(&ERRORS);
        let about = first_packet(number, remote, internal).bytes();
        let error = Packet::error(ROUTER_INSIDE, remote.0, error, &about, 48).bytes();
        story.outbound("ICMP error about the call", Kind::Ordinary, vec![error]);
        let error = author.chance.pick(&ERRORS);
        story.inbound("ICMP error about the answer", Kind::Ordinary, move |_| {
            let about = answer(number, external, remote).bytes();
            Packet::error(ROUTER_OUTSIDE, external.0, error, &about, 48).bytes()
        });
        author.tell(story);
    }
}

fn fragmented(author: &mut Author) {
    let mut story = author.story(protocol::UDP);
    for name in ["fragments out", "fragments out, later ones first"] {
        let data = author.chance.bytes(3000);
        let mut packet = Packet::udp(story.internal, story.remote, &data);
        packet.identification = author.chance.next() as u16;
        let mut pieces = fragments(&packet.bytes(), 1240);
        if name.ends_with("first") {
            pieces.reverse();
        }
        story.outbound(name, Kind::Fragments, pieces);
        let (remote, internal) = (story.remote, story.internal);
        let identification = author.chance.next() as u16;
        let back = name.ends_with("first");
        let packets = move |known: &crate::observation::PortHistory| {
            let external = known.external(protocol::UDP, internal, remote);
            let mut packet = Packet::udp(remote, external, &data);
            packet.identification = identification;
            let mut pieces = fragments(&packet.bytes(), 1240);
            if back {
                pieces.reverse();
            }
            pieces
        };
        let name = if back { "fragments in, later ones first" } else { "fragments in" };
        story.push(name, Kind::Fragments, natgate_engine::Side::Outside, Box::new(packets));
    }
    author.tell(story);
}

/// Protocols that are translated by address, or whose ports have no competitor.
fn other_protocols(author: &mut Author) {
    const ESP: [u8; 16] = [0, 0, 0x11, 0x22, 0, 0, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5];
    const GRE: [u8; 12] = [0, 0, 8, 0, 0x45, 0, 0, 0, 1, 2, 3, 4];
    for (number, bytes) in [(protocol::ESP, &ESP[..]), (protocol::GRE, &GRE), (253, &[9; 40])] {
        exchange(author, number, move |_, _| bytes.to_vec(), None, Kind::Ordinary);
    }
    exchange(author, protocol::SCTP, sctp, None, Kind::Ordinary);
    let dccp = |from: u16, to: u16| {
        // Request or Response, long sequence numbers, a data offset of seven words.
        let kind = if to >= 7000 { 0x01 } else { 0x03 };
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        [&ports[..], &[7, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 9], &[0; 8], &[1, 2, 3, 4]].concat()
    };
    exchange(author, protocol::DCCP, dccp, Some(6), Kind::Dccp);
    let udp_lite = |from: u16, to: u16| {
        // A coverage of 0 stands for the whole packet.
        [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 0, 0, 0], &[7; 30]].concat()
    };
    exchange(author, protocol::UDP_LITE, udp_lite, Some(6), Kind::UdpLite);
}

/// Exchanges one packet each way; `make` gets the source port and the destination port.
fn exchange(
    author: &mut Author,
    number: u8,
    make: impl Fn(u16, u16) -> Vec<u8>,
    checksum_at: Option<usize>,
    kind: Kind,
) {
    let mut story = author.story(number);
    // The translation is by address alone, so no other story may have this protocol and remote
    // address.
    story.remote.0 = Ipv4Addr::from_bits(0xcb00_7100 + u32::from(author.remotes - 7000));
    let (internal, remote) = (story.internal, story.remote);
    let body = |bytes| Body::Other { protocol: number, bytes, checksum_at };
    let packet = Packet::new(internal.0, remote.0, body(make(internal.1, remote.1)));
    story.outbound("other protocol out", kind, vec![packet.bytes()]);
    let packet = Packet::new(remote.0, remote.0, body(make(remote.1, internal.1)));
    story.inbound("other protocol in", kind, move |external| {
        let mut packet = packet.clone();
        packet.destination = external.0;
        packet.bytes()
    });
    author.tell(story);
}

/// An SCTP packet with an INIT chunk from inside, or with an INIT ACK back: the begin of an
/// association (RFC 9260 section 3.3.2).
fn sctp(from: u16, to: u16) -> Vec<u8> {
    const INIT: u8 = 1;
    const INIT_ACK: u8 = 2;
    // Remote ports are above 7000, internal ones below.
    let (chunk, tag) = if to >= 7000 { (INIT, 0) } else { (INIT_ACK, 0x1111_1111_u32) };
    let mut bytes =
        [&from.to_be_bytes()[..], &to.to_be_bytes(), &tag.to_be_bytes(), &[0; 4]].concat();
    bytes.extend([chunk, 0, 0, 20]);
    bytes.extend(0x1111_1111_u32.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let checksum = crc32c(&bytes);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The checksum of SCTP (RFC 9260 appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
        crc
    })
}
