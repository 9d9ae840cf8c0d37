//! PPTP and H.323 of clients behind B4s of DS-Lite. Two B4s have hosts with one inner address.
//! These hosts use the same ports and Call IDs.

// The messages of the framework's own tests.
#[path = "../../../../core/payload/tests/common/h323.rs"]
#[allow(dead_code, reason = "the tests use a part")]
mod messages;

use super::algs_in_tunnels::*;
use super::world::*;
use messages::{CONNECT_H245, DETERMINATION, OPEN, OPEN_ACK, SETUP_H245};
use natgate_engine::{Direction, Outcome, Side};
use natgate_gateway::{AlgKind, Settings};
use natgate_wire::Ipv4;
use std::net::SocketAddrV4;

const GRE: u8 = 47;
const BOTH: [&str; 2] = [B4, OTHER_B4];

/// Packets so far, and what leaves for a further one.
struct World {
    settings: Settings,
    packets: Vec<Came>,
}

impl World {
    fn new(kind: AlgKind) -> Self {
        Self { settings: settings_of(kind), packets: Vec::new() }
    }

    fn send(&mut self, side: Side, packet: Vec<u8>) -> Vec<Sent> {
        self.packets.push((side, 1.0, packet));
        run(&self.settings, &self.packets).sent.pop().expect("a result")
    }

    /// What the host in a tunnel of a B4 receives for a packet from outside: the inner packet.
    fn arrives(&mut self, b4: &str, packet: Vec<u8>) -> Vec<u8> {
        let sent = self.send(Side::Outside, packet);
        let came = single(&sent, Side::Inside);
        assert_eq!(ends6(came), ends(AFTR, b4));
        assert_eq!(ends4(&came[40..]).1, INNER);
        check(&came[40..]);
        came[40..].to_vec()
    }

    /// What leaves for a packet in a tunnel.
    fn leaves(&mut self, packet: Vec<u8>) -> Vec<u8> {
        let sent = self.send(Side::Inside, packet);
        single(&sent, Side::Outside).to_vec()
    }
}

/// A connection between a host behind a B4 and the server: their ports, the external port, and the
/// next numbers of both.
struct Connection {
    b4: &'static str,
    ports: (u16, u16),
    external: u16,
    sent: [u32; 2],
}

impl Connection {
    fn segment(&self, from: Side, flags: u8, data: &[u8]) -> Vec<u8> {
        let (own, server) = self.ports;
        let numbers = (self.sent[from as usize], self.sent[from.other() as usize]);
        let numbers = if flags & ACK == 0 { (numbers.0, 0) } else { numbers };
        let ports = if from == Side::Inside { (own, server) } else { (server, self.external) };
        let bytes = [&segment(ports, numbers, flags, "")[..], data].concat();
        match from {
            Side::Inside => in_tunnel(self.b4, &bytes),
            Side::Outside => ip4(SERVER, EXTERNAL, TCP, &bytes),
        }
    }

    /// Has a side say something; returns what the other one hears.
    fn say(&mut self, world: &mut World, from: Side, flags: u8, data: &[u8]) -> Vec<u8> {
        let packet = self.segment(from, flags, data);
        self.sent[from as usize] += (data.len() + usize::from(flags & SYN != 0)) as u32;
        let heard = match from {
            Side::Inside => world.leaves(packet),
            Side::Outside => world.arrives(self.b4, packet),
        };
        if from == Side::Inside {
            self.external = port(&heard, 0);
        }
        heard[40..].to_vec()
    }

    /// Opens a connection from a side.
    fn open(world: &mut World, by: Side, b4: &'static str, ports: (u16, u16), to: u16) -> Self {
        let mut one = Self { b4, ports, external: to, sent: [1000, 5000] };
        for (from, flags) in [(by, SYN), (by.other(), SYN | ACK), (by, ACK)] {
            one.say(world, from, flags, b"");
        }
        one
    }
}

/// A control message of PPTP of a type and a length, with words from the first number on.
fn message(kind: u16, len: u16, words: &[u16]) -> Vec<u8> {
    let mut bytes = [len, 1, 0x1a2b, 0x3c4d, kind, 0].map(u16::to_be_bytes).concat();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(len.into(), 0);
    bytes
}

/// A packet of enhanced GRE to the host with a Call ID.
fn gre(call: u16) -> Vec<u8> {
    let mut payload = [0x3081, 0x880b, 8, call].map(u16::to_be_bytes).concat();
    payload.extend([0, 0, 0, 1, 0, 0, 0, 1, 0xff, 3, 0xc0, 0x21, 1, 2, 3, 4]);
    payload
}

/// A host behind each B4 places a call with the Call ID 7, and the server has `peers`. Returns the
/// external Call IDs.
fn calls(world: &mut World, peers: [u16; 2]) -> [u16; 2] {
    let mut outers = [0; 2];
    for (at, b4) in BOTH.into_iter().enumerate() {
        let mut control = Connection::open(world, Side::Inside, b4, (4000, 1723), 0);
        let heard = control.say(world, Side::Inside, ACK, &message(7, 168, &[7, 1]));
        let outer = u16::from_be_bytes([heard[12], heard[13]]);
        assert_eq!(heard, message(7, 168, &[outer, 1]));
        let reply = |own: u16| message(8, 32, &[peers[at], own, 0x100]);
        assert_eq!(control.say(world, Side::Outside, ACK, &reply(outer)), reply(7));
        outers[at] = outer;
    }
    assert_ne!(outers[0], outers[1]);
    outers
}

#[test]
fn calls_of_one_inner_address_behind_two_b4s_do_not_meet() {
    let mut world = World::new(AlgKind::Pptp);
    let outers = calls(&mut world, [9000, 9000]);
    for (b4, outer) in BOTH.into_iter().zip(outers) {
        let left = world.leaves(in_tunnel_by(GRE, b4, &gre(9000)));
        assert_eq!((ends4(&left), &left[20..]), (ends(EXTERNAL, SERVER), &gre(9000)[..]));
        let came = world.arrives(b4, ip4(SERVER, EXTERNAL, GRE, &gre(outer)));
        assert_eq!((ends4(&came), &came[20..]), (ends(SERVER, INNER), &gre(7)[..]));
    }
    // Other hosts, and other numbers, have no call.
    for (from, call) in [("198.51.100.8", outers[0]), (SERVER, outers[0] ^ outers[1])] {
        let other = ip4(from, EXTERNAL, GRE, &gre(call));
        assert!(world.send(Side::Outside, other).is_empty(), "{from} {call}");
    }
    world.packets.truncate(world.packets.len() - 2);
    // Each packet is counted once, with the bytes that came.
    let outcomes = run(&world.settings, &world.packets);
    for (side, direction) in
        [(Side::Inside, Direction::Outbound), (Side::Outside, Direction::Inbound)]
    {
        let came: Vec<u64> = world
            .packets
            .iter()
            .filter(|(from, ..)| *from == side)
            .map(|(_, _, bytes)| bytes.len() as u64)
            .collect();
        let counted = outcomes.count(direction, Outcome::Forwarded);
        let sum: u64 = came.iter().sum();
        assert_eq!(counted, (came.len() as u64, sum), "{direction:?}");
    }
    assert_eq!(outcomes.dropped(), []);
}

#[test]
fn errors_about_calls_find_their_tunnels() {
    let mut world = World::new(AlgKind::Pptp);
    let outers = calls(&mut world, [9000, 9001]);
    for (at, b4) in BOTH.into_iter().enumerate() {
        let peer = 9000 + at as u16;
        // A router outside has dropped a packet of the host.
        let quoted = ip4(EXTERNAL, SERVER, GRE, &gre(peer));
        let about = ip4("198.51.100.99", EXTERNAL, ICMP, &error(3, 1, 0, &quoted));
        let came = world.arrives(b4, about);
        assert_eq!(ends4(&came[28..]), ends(INNER, SERVER));
        assert_eq!(came[48..], gre(peer));
        // The host has dropped a packet of the server.
        let quoted = ip4(SERVER, INNER, GRE, &gre(7));
        let left = world.leaves(in_tunnel_by(ICMP, b4, &error(3, 2, 0, &quoted)));
        assert_eq!(
            (ends4(&left), ends4(&left[28..])),
            (ends(EXTERNAL, SERVER), ends(SERVER, EXTERNAL))
        );
        assert_eq!(left[48..], gre(outers[at]));
    }
}

/// A fragment of a datagram of 24 bytes of payload.
fn fragment(packet: &[u8], is_first: bool) -> Vec<u8> {
    let part = if is_first { &packet[20..36] } else { &packet[36..] };
    let mut bytes = [&packet[..20], part].concat();
    let len = bytes.len() as u16;
    let mut ip = Ipv4::new_header_checked(&mut bytes[..]).expect("a header");
    ip.set_total_len(len);
    ip.set_identification(77);
    ip.set_fragment_field(if is_first { 0x2000 } else { 2 });
    ip.fill_checksum();
    bytes
}

#[test]
fn later_fragments_follow_the_call_of_their_host() {
    let mut world = World::new(AlgKind::Pptp);
    calls(&mut world, [9000, 9000]);
    let mut identifications = Vec::new();
    let whole = ip4(INNER, SERVER, GRE, &gre(9000));
    for is_first in [true, false] {
        for b4 in BOTH {
            let left = world.leaves(raw6(v6(b4), v6(AFTR), 4, &fragment(&whole, is_first)));
            assert_eq!(ends4(&left), ends(EXTERNAL, SERVER));
            assert_eq!(left[20..], fragment(&whole, is_first)[20..]);
            identifications.push(u16::from_be_bytes([left[4], left[5]]));
        }
    }
    let [one, other, then, last] = identifications[..] else { panic!("four fragments") };
    assert_eq!((one, other), (then, last));
    assert_ne!(one, other);
}

/// A B4 that is none, and a host that may not send, have no calls.
#[test]
fn a_forged_tunnel_has_no_call() {
    let mut world = World::new(AlgKind::Pptp);
    calls(&mut world, [9000, 9001]);
    let data = gre(9000);
    for (b4, inner, to) in
        [("2001:db8:b5::1", INNER, SERVER), (B4, "192.168.9.9", SERVER), (B4, INNER, "0.0.0.0")]
    {
        let packet = raw6(v6(b4), v6(AFTR), 4, &ip4(inner, to, GRE, &data));
        assert!(world.send(Side::Inside, packet).is_empty(), "{b4} {inner} {to}");
    }
    // A packet whose time has ended gets its error.
    let mut old = in_tunnel_by(GRE, B4, &data);
    old[48] = 1;
    Ipv4::new_header_checked(&mut old[40..]).expect("a header").fill_checksum();
    let sent = world.send(Side::Inside, old);
    let told = single(&sent, Side::Inside);
    assert_eq!((ends6(told), told[40 + 20]), (ends(AFTR, B4), 11));
}

/// A message of H.323 with an endpoint of the host.
fn with_host(hex: &str, ports: &[u16]) -> Vec<u8> {
    let all: Vec<_> =
        ports.iter().map(|port| (format!("10.0.0.5:{port}"), format!("{INNER}:{port}"))).collect();
    let all: Vec<_> = all.iter().map(|(old, new)| (&old[..], &new[..])).collect();
    messages::with(hex, &all)
}

/// The endpoint in a message at the place that another one has in another message.
fn endpoint(heard: &[u8], said: &[u8], of: &str) -> SocketAddrV4 {
    let own = messages::octets(of);
    let at = said.windows(6).position(|six| six == own).expect("an endpoint");
    let six = &heard[at..at + 6];
    let address: [u8; 4] = six[..4].try_into().expect("four octets");
    SocketAddrV4::new(address.into(), u16::from_be_bytes([six[4], six[5]]))
}

/// The host opens a channel: its media come in.
fn media_come(world: &mut World, control: &mut Connection) {
    let said = with_host(OPEN_ACK, &[5000, 5001]);
    let heard = control.say(world, Side::Inside, ACK, &said);
    let media = endpoint(&heard, &said, &format!("{INNER}:5001"));
    assert_eq!(media.ip().to_string(), EXTERNAL);
    let datagram = ip4(SERVER, EXTERNAL, UDP, &udp(6001, media.port(), b"rtcp"));
    let came = world.arrives(control.b4, datagram);
    assert_eq!(port(&came, 2), 5001);
}

#[test]
fn connections_that_hosts_behind_two_b4s_wait_for_are_read() {
    let mut world = World::new(AlgKind::H323);
    let said = with_host(SETUP_H245, &[40_000, 41_000]);
    let mut waiting = Vec::new();
    for b4 in BOTH {
        let mut call = Connection::open(&mut world, Side::Inside, b4, (40_000, 1720), 0);
        let heard = call.say(&mut world, Side::Inside, ACK, &said);
        let end = endpoint(&heard, &said, &format!("{INNER}:41000"));
        assert_eq!(end.ip().to_string(), EXTERNAL);
        waiting.push((b4, end.port()));
    }
    assert_ne!(waiting[0].1, waiting[1].1);
    for (b4, external) in waiting {
        let knock = ip4("198.51.100.8", EXTERNAL, TCP, &tcp(40_001, external, SYN));
        assert!(world.send(Side::Outside, knock).is_empty(), "another host outside");
        world.packets.pop();
        let ports = (41_000, 40_001);
        let mut control = Connection::open(&mut world, Side::Outside, b4, ports, external);
        let first = messages::bytes(DETERMINATION);
        assert_eq!(control.say(&mut world, Side::Inside, ACK, &first), first);
        media_come(&mut world, &mut control);
    }
}

#[test]
fn a_connection_that_the_server_waits_for_is_read_for_its_host_alone() {
    let mut world = World::new(AlgKind::H323);
    let said = with_host(SETUP_H245, &[40_000, 41_000]);
    let mut call = Connection::open(&mut world, Side::Inside, B4, (40_000, 1720), 0);
    call.say(&mut world, Side::Inside, ACK, &said);
    let server = format!("{SERVER}:30000");
    let connect = messages::with(CONNECT_H245, &[("198.51.100.2:30000", &server)]);
    assert_eq!(call.say(&mut world, Side::Outside, ACK, &connect), connect);
    let open = with_host(OPEN, &[5001]);
    for (b4, is_read) in [(B4, true), (OTHER_B4, false)] {
        let mut control = Connection::open(&mut world, Side::Inside, b4, (4002, 30_000), 0);
        let first = messages::bytes(DETERMINATION);
        assert_eq!(control.say(&mut world, Side::Inside, ACK, &first), first);
        assert_eq!(control.say(&mut world, Side::Inside, ACK, &open) != open, is_read, "{b4}");
        if is_read {
            media_come(&mut world, &mut control);
        }
    }
}
