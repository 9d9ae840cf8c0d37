//! H.323 of clients behind B4s of DS-Lite. Two B4s have hosts with one inner address, which use the
//! same ports.

// The messages of the framework's own tests.
#[path = "../../../../core/payload/tests/common/h323.rs"]
#[allow(dead_code, reason = "the tests use a part")]
mod messages;

use super::algs_in_tunnels::*;
use super::world::*;
use messages::{CONNECT_H245, DETERMINATION, OPEN, OPEN_ACK, SETUP_H245};
use natgate_engine::Side;
use natgate_gateway::{AlgKind, Settings};
use std::net::SocketAddrV4;

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
