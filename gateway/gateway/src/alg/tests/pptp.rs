//! PPTP with a real engine: control connections, and both ways of their calls.

mod numbers;
mod subscribers;
mod tunnel_packets;

use super::*;
use crate::alg::calls;
use natgate_engine::{Cursor, Filter};
use natgate_wire::{Icmp, icmp};
use std::collections::BTreeSet;

const PAC: &str = "198.51.100.2:1723";
const POOL: &str = "203.0.113.1";
const FIN: u8 = 1;
const RST: u8 = 4;

/// A world in which PPTP alone is on, with a server inside.
fn world() -> World {
    let mut settings = AlgSettings::default();
    settings.set(Kind::Pptp, vec![1723]);
    World::of(&settings, 1723, "203.0.113.9:1723".parse().unwrap())
}

fn address(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

/// A packet of enhanced GRE with a key, a sequence number, an acknowledgment and data.
fn gre(from: &str, to: &str, call: u16) -> Vec<u8> {
    let mut payload = [0x3081, 0x880b, 4, call].map(u16::to_be_bytes).concat();
    payload.extend([0, 0, 0, 1, 0, 0, 0, 1, 0xff, 3, 0xc0, 0x21]);
    let ends = [from, to].map(|end| SocketAddrV4::new(address(end), 0));
    let mut bytes = packet(ends[0], ends[1], protocol::GRE, 16, &payload);
    bytes[36..38].copy_from_slice(&[0xff, 3]);
    bytes
}

/// Addresses and Call ID of a packet of enhanced GRE. The rest of the packet is as it was sent.
fn ends(bytes: &[u8]) -> (Ipv4Addr, Ipv4Addr, u16) {
    let ip = Ipv4::new_checked(bytes).expect("a packet");
    assert!(ip.checksum_valid());
    assert_eq!((ip.protocol(), ip.ttl(), usize::from(ip.total_len())), (47, 63, bytes.len()));
    let expected = [&[0x30, 0x81, 0x88, 0x0b, 0, 4], &bytes[26..28]].concat();
    assert_eq!(bytes[20..28], expected);
    assert_eq!(bytes[28..], [0, 0, 0, 1, 0, 0, 0, 1, 0xff, 3, 0xc0, 0x21]);
    let call = u16::from_be_bytes([bytes[26], bytes[27]]);
    (ip.source().into(), ip.destination().into(), call)
}

fn message(kind: u16, len: u16, words: &[u16]) -> Vec<u8> {
    let mut bytes = [len, 1, 0x1a2b, 0x3c4d, kind, 0].map(u16::to_be_bytes).concat();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(len.into(), 0);
    bytes
}

/// A control connection, with the next numbers of both hosts.
struct Control {
    /// Ends of the host inside and of the remote host as each sees them.
    inside: (SocketAddrV4, SocketAddrV4),
    outside: (SocketAddrV4, SocketAddrV4),
    sent: [u32; 2],
}

impl Control {
    fn segment(&self, from: Side, flags: u8, data: &[u8]) -> Vec<u8> {
        let (own, other) = if from == Side::Inside { self.inside } else { self.outside };
        let [number, acknowledged] = [from, from.other()].map(|side| self.sent[side as usize]);
        let mut tcp = [own.port().to_be_bytes(), other.port().to_be_bytes()].concat();
        tcp.extend(number.to_be_bytes());
        tcp.extend(if flags & ACK != 0 { acknowledged } else { 0 }.to_be_bytes());
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(data);
        packet(own, other, protocol::TCP, 16, &tcp)
    }

    /// Opens a connection of a client inside.
    fn open(world: &mut World, client: &str) -> Self {
        let (own, server) = (end(client), end(PAC));
        let mut control = Self { inside: (own, server), outside: (server, own), sent: [100, 500] };
        let syn = control.segment(Side::Inside, SYN, &[]);
        let (external, _, _) = world.pass(Side::Inside, &syn);
        control.outside.1 = external;
        control.shake(world, Side::Outside);
        control
    }

    /// Opens a connection to the server inside.
    fn open_to_server(world: &mut World, client: &str) -> Self {
        let (own, far) = (end("10.0.0.80:1723"), end(client));
        let mut control =
            Self { inside: (own, far), outside: (far, end("203.0.113.9:1723")), sent: [500, 100] };
        let syn = control.segment(Side::Outside, SYN, &[]);
        assert_eq!(world.pass(Side::Outside, &syn).1, own);
        control.shake(world, Side::Inside);
        control
    }

    /// The rest of the handshake.
    fn shake(&mut self, world: &mut World, server: Side) {
        self.sent[server.other() as usize] += 1;
        let answer = self.segment(server, SYN | ACK, &[]);
        world.send(server, &answer);
        self.sent[server as usize] += 1;
        let last = self.segment(server.other(), ACK, &[]);
        world.send(server.other(), &last);
    }

    /// Has a host send bytes; returns what the other one receives.
    fn say(&mut self, world: &mut World, from: Side, bytes: &[u8]) -> Vec<u8> {
        let segment = self.segment(from, ACK, bytes);
        self.sent[from as usize] += bytes.len() as u32;
        let out = world.send(from, &segment);
        let [(to, heard)] = &out[..] else { panic!("{} packets leave", out.len()) };
        assert_eq!((*to, heard.len()), (from.other(), segment.len()));
        heard[40..].to_vec()
    }

    /// A client inside places a call with its own Call ID; the remote host has another one. Returns
    /// the external one.
    fn call(&mut self, world: &mut World, own: u16, peer: u16) -> u16 {
        let heard = self.say(world, Side::Inside, &message(7, 168, &[own, 1]));
        let outer = u16::from_be_bytes([heard[12], heard[13]]);
        assert_eq!(heard, message(7, 168, &[outer, 1]));
        let reply = message(8, 32, &[peer, outer, 0x100]);
        let heard = self.say(world, Side::Outside, &reply);
        assert_eq!(heard, message(8, 32, &[peer, own, 0x100]));
        outer
    }
}

impl World {
    /// The only packet of enhanced GRE that leaves for one.
    fn carry(&mut self, from: Side, bytes: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, u16)> {
        let out = self.send(from, bytes);
        assert!(out.len() < 2 && out.iter().all(|(to, _)| *to == from.other()));
        out.first().map(|(_, bytes)| ends(bytes))
    }

    fn refused(&self, reason: natgate_payload::Reason) -> u64 {
        let mut counters = self.stage.counters();
        counters.find(|(kind, _)| *kind == Kind::Pptp).unwrap().1.refused[reason as usize]
    }

    fn pass_time(&mut self, seconds: u64) {
        self.now = Timestamp(self.now.0 + seconds * 1_000_000_000);
        self.stage.sweep(&mut self.engine, self.now);
    }
}

/// An ICMP error about a packet.
fn error(from: &str, to: &str, about: &[u8]) -> Vec<u8> {
    let mut message = vec![icmp::kind::UNREACHABLE, 4, 0, 0, 0, 0, 5, 0];
    message.extend(&about[..28]);
    Icmp::new_checked(&mut message[..]).unwrap().fill_checksum();
    let ends = [from, to].map(|end| SocketAddrV4::new(address(end), 0));
    let sum = [message[2], message[3]];
    let mut bytes = packet(ends[0], ends[1], protocol::ICMP, 2, &message);
    bytes[22..24].copy_from_slice(&sum);
    bytes
}

/// Three fragments of a packet of a tunnel.
fn pieces(whole: &[u8], identification: u16) -> [Vec<u8>; 3] {
    let payload = [&whole[20..], &[7; 28]].concat();
    [(0, 16, 0x2000), (16, 32, 0x2000 | 2), (32, 48, 4)].map(|(first, last, field)| {
        let mut bytes = [&whole[..20], &payload[first..last]].concat();
        let mut ip = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
        ip.set_total_len((20 + last - first) as u16);
        ip.set_identification(identification);
        ip.set_fragment_field(field);
        ip.fill_checksum();
        bytes
    })
}

#[test]
fn packets_of_a_call_go_both_ways() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let open = world.stage.open(&mut world.engine, None, world.now);
    assert_eq!((open.len(), open[0].made.internal.port, open[0].made.protocol), (1, 7, 47));
    let made = world.stage.poll_expectation().unwrap();
    assert_eq!(made, open[0].made);
    assert_eq!((made.external.address, made.external.port), (address(POOL), outer));
    let out = world.carry(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9000));
    assert_eq!(out, Some((address(POOL), address("198.51.100.2"), 9000)));
    let back = gre("198.51.100.2", POOL, outer);
    let inside = Some((address("198.51.100.2"), address("10.0.0.5"), 7));
    assert_eq!(world.carry(Side::Outside, &back), inside);
    assert!(world.stage.open(&mut world.engine, None, world.now).is_empty());
    let counters = world.losses.correct(world.engine.counters());
    // Five segments each way of the connection or less, and one packet of the call.
    assert_eq!(counters.packets[0][0] + counters.packets[1][0], 3 + 2 + 2);
    // Bytes behind the packet's length do not leave.
    let longer = [back, vec![0; 6]].concat();
    assert_eq!(world.carry(Side::Outside, &longer), inside);
}

#[test]
fn a_server_inside_has_calls_of_several_clients() {
    let mut world = world();
    let clients = ["198.51.100.7:1024", "198.51.100.8:1024", "198.51.100.8:1025"];
    let mut outers = BTreeSet::new();
    for (number, client) in (0..).zip(clients) {
        let mut control = Control::open_to_server(&mut world, client);
        let (own, peer) = (1 + number, 700 + number);
        let request = message(7, 168, &[peer, 1]);
        assert_eq!(control.say(&mut world, Side::Outside, &request), request);
        let heard = control.say(&mut world, Side::Inside, &message(8, 32, &[own, peer, 0x100]));
        let outer = u16::from_be_bytes([heard[12], heard[13]]);
        assert_eq!(heard, message(8, 32, &[outer, peer, 0x100]));
        assert!(outers.insert(outer));
        let host = client.split(':').next().unwrap();
        let came = world.carry(Side::Outside, &gre(host, "203.0.113.9", outer));
        assert_eq!(came, Some((address(host), address("10.0.0.80"), own)));
        let left = world.carry(Side::Inside, &gre("10.0.0.80", host, peer));
        assert_eq!(left, Some((address("203.0.113.9"), address(host), peer)));
        world.pass_time(10);
        assert!(world.carry(Side::Outside, &gre(host, "203.0.113.9", outer)).is_some());
    }
}

#[test]
fn a_thousand_hosts_with_the_same_call_id_do_not_meet() {
    let mut world = world();
    let mut calls = Vec::new();
    let mut outers = BTreeSet::new();
    for number in 0..1000_u16 {
        let host = format!("10.0.{}.{}", 1 + number / 250, 1 + number % 250);
        let mut control = Control::open(&mut world, &format!("{host}:1723"));
        let peer = 3000 + number;
        let outer = control.call(&mut world, 1, peer);
        assert!(outers.insert(outer));
        calls.push((host, peer, outer));
    }
    for (host, peer, outer) in calls {
        let back = world.carry(Side::Outside, &gre("198.51.100.2", POOL, outer));
        assert_eq!(back, Some((address("198.51.100.2"), address(&host), 1)));
        let out = world.carry(Side::Inside, &gre(&host, "198.51.100.2", peer));
        assert_eq!(out, Some((address(POOL), address("198.51.100.2"), peer)));
    }
}

#[test]
fn nobody_else_reaches_a_call() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    // Another remote host, another number, another external address, the number of the host.
    for (from, to, call) in [
        ("198.51.100.3", POOL, outer),
        ("198.51.100.2", POOL, outer ^ 1),
        ("198.51.100.2", "203.0.113.9", outer),
        ("198.51.100.2", POOL, 7),
    ] {
        assert_eq!(world.carry(Side::Outside, &gre(from, to, call)), None);
    }
    // The remote host names numbers of its own choice in every message: no call comes of it.
    for kind in 1..16 {
        control.say(&mut world, Side::Outside, &message(kind, 200, &[77, 78, 0x100]));
    }
    assert_eq!(world.carry(Side::Outside, &gre("198.51.100.2", POOL, 77)), None);
    assert_eq!(world.carry(Side::Outside, &gre("198.51.100.2", POOL, 78)), None);
}

#[test]
fn another_hosts_plain_gre_does_not_take_a_call() {
    let mut world = world();
    // A mapping of GRE by address, made before the call.
    let plain = gre("10.0.0.6", "198.51.100.2", 5);
    assert_eq!(world.carry(Side::Inside, &plain).map(|(from, ..)| from), Some(address(POOL)));
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let to_call = world.carry(Side::Outside, &gre("198.51.100.2", POOL, outer));
    assert_eq!(to_call, Some((address("198.51.100.2"), address("10.0.0.5"), 7)));
    // GRE without a call is of its mapping, as without PPTP.
    let other = world.carry(Side::Outside, &gre("198.51.100.2", POOL, outer ^ 1));
    assert_eq!(other, Some((address("198.51.100.2"), address("10.0.0.6"), outer ^ 1)));
}

/// True if the call of `control` still takes packets from outside.
fn lasts(world: &mut World, outer: u16) -> bool {
    world.carry(Side::Outside, &gre("198.51.100.2", POOL, outer)).is_some()
}

#[test]
fn a_call_ends_with_its_connection_or_at_a_word() {
    type End = fn(&mut Control, &mut World, u16);
    let ends: [(&str, End); 7] = [
        ("disconnection", |control, world, _| {
            control.say(world, Side::Outside, &message(13, 148, &[9000]));
        }),
        ("disconnection that names the other end", |control, world, outer| {
            control.say(world, Side::Outside, &message(13, 148, &[outer]));
        }),
        ("refusal", |control, world, outer| {
            control.say(world, Side::Outside, &message(8, 32, &[0, outer, 0x400]));
        }),
        ("reset", |control, world, _| {
            let reset = control.segment(Side::Outside, RST | ACK, &[]);
            world.send(Side::Outside, &reset);
        }),
        ("both ends", |control, world, _| {
            for side in [Side::Inside, Side::Outside] {
                let end = control.segment(side, FIN | ACK, &[]);
                control.sent[side as usize] += 1;
                world.send(side, &end);
            }
        }),
        ("new start", |control, world, _| {
            control.say(world, Side::Inside, &message(1, 156, &[0x100]));
        }),
        ("operator", |_, world, _| {
            world.engine.clear_mappings(&mut Cursor::default(), 1000, &Filter::default());
            world.pass_time(1);
        }),
    ];
    for (name, end) in ends {
        let mut world = world();
        let mut control = Control::open(&mut world, "10.0.0.5:40000");
        let outer = control.call(&mut world, 7, 9000);
        assert!(lasts(&mut world, outer), "{name}");
        end(&mut control, &mut world, outer);
        assert!(!lasts(&mut world, outer), "{name}");
        assert!(world.stage.calls.is_empty(), "{name}");
    }
}

#[test]
fn a_call_ends_without_packets_of_its_host() {
    let ping = message(5, 16, &[0, 1]);
    let start = |world: &mut World| {
        let mut control = Control::open(world, "10.0.0.5:40000");
        let outer = control.call(world, 7, 9000);
        (control, outer)
    };
    // No packet at all.
    let mut first = world();
    let (_, outer) = start(&mut first);
    first.pass_time(u64::from(calls::OPENING) - 1);
    assert_eq!(first.stage.open(&mut first.engine, None, first.now).len(), 1);
    first.pass_time(1);
    assert!(!lasts(&mut first, outer) && first.stage.calls.is_empty());
    // Packets from outside alone keep no call, although the control connection lasts.
    let mut second = world();
    let (mut control, outer) = start(&mut second);
    second.carry(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9000));
    for _ in 0..calls::IDLE / 60 {
        assert!(lasts(&mut second, outer));
        control.say(&mut second, Side::Inside, &ping);
        second.pass_time(60);
    }
    assert!(!lasts(&mut second, outer));
    // A host that wants to end it cannot keep it with packets.
    let mut third = world();
    let (mut control, outer) = start(&mut third);
    control.say(&mut third, Side::Inside, &message(12, 16, &[7]));
    for _ in 0..6 {
        assert!(lasts(&mut third, outer));
        third.carry(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9000));
        third.pass_time(10);
    }
    assert!(!lasts(&mut third, outer));
}

#[test]
fn a_number_may_be_used_anew() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let first = control.call(&mut world, 7, 9000);
    control.say(&mut world, Side::Inside, &message(12, 16, &[7]));
    // The same number again before the disconnection: the external one stays.
    assert_eq!(control.call(&mut world, 7, 9001), first);
    assert!(world.carry(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9001)).is_some());
    control.say(&mut world, Side::Outside, &message(13, 148, &[9001]));
    let second = control.call(&mut world, 7, 9002);
    assert!(lasts(&mut world, second));
    // A second connection of the host with the same number has a call of its own.
    let mut other = Control::open(&mut world, "10.0.0.5:40001");
    let third = other.call(&mut world, 7, 9003);
    assert!(third != second && lasts(&mut world, second) && lasts(&mut world, third));
}

#[test]
fn a_subscriber_has_a_limited_number_of_calls() {
    let mut world = world();
    let mut made = 0;
    for port in 0..12 {
        let mut control = Control::open(&mut world, &format!("10.0.0.5:{}", 40_000 + port));
        for own in 0..64 {
            let heard = control.say(&mut world, Side::Inside, &message(7, 168, &[own, 1]));
            made += usize::from(heard[12..14] != own.to_be_bytes());
        }
    }
    assert_eq!(made, calls::MOST_OF_HOST);
    assert_eq!(world.refused(natgate_payload::Reason::NoPort), 12 * 64 - made as u64);
    // Other subscribers have room.
    let mut control = Control::open(&mut world, "10.0.0.6:40000");
    let outer = control.call(&mut world, 7, 9000);
    assert!(lasts(&mut world, outer));
}

#[test]
fn calls_and_their_indexes_end_together() {
    let mut world = world();
    for round in 0..3_u16 {
        let mut control = Control::open(&mut world, &format!("10.0.0.5:{}", 40_000 + round));
        for own in 0..50 {
            world.now = Timestamp(world.now.0 + 1_000_000_000);
            control.call(&mut world, own, own + round);
        }
        let reset = control.segment(Side::Inside, RST | ACK, &[]);
        world.send(Side::Inside, &reset);
        assert_eq!(world.stage.calls.entries(), [0; 5]);
    }
}

/// Calls go on in another process, whose control connections go on, too.
#[test]
fn calls_go_over_to_another_process() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outers = [7, 8].map(|own| control.call(&mut world, own, 9000 + own));
    assert!(world.carry(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9007)).is_some());
    let saved = world.stage.saved_flows(world.engine.config(), natgate_ipv6::HostRealms::NONE);
    let mut heir = self::world().stage;
    heir.restore_flows((&mut world.engine, world.now), &saved, natgate_ipv6::HostRealms::NONE);
    heir.calls.check();
    world.stage = heir;
    // A call without a packet is still expected.
    let open = world.stage.open(&mut world.engine, None, world.now);
    assert_eq!(open.iter().map(|one| one.made.internal.port).collect::<Vec<_>>(), [8]);
    for (own, outer) in [7, 8].into_iter().zip(outers) {
        let back = world.carry(Side::Outside, &gre("198.51.100.2", POOL, outer));
        assert_eq!(back, Some((address("198.51.100.2"), address("10.0.0.5"), own)));
        let left = world.carry(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9000 + own));
        assert_eq!(left, Some((address(POOL), address("198.51.100.2"), 9000 + own)));
    }
    world.pass_time(10);
    control.call(&mut world, 9, 9009);
    let news = control.say(&mut world, Side::Outside, &message(15, 24, &[outers[0]]));
    assert_eq!(news, message(15, 24, &[7]));
    control.say(&mut world, Side::Outside, &message(13, 148, &[9008]));
    assert_eq!(world.stage.calls.entries()[0], 2);
    // The protocol is off in the next process.
    let saved = world.stage.saved_flows(world.engine.config(), natgate_ipv6::HostRealms::NONE);
    let mut without = Stage::off(4, [1; 32]);
    without.restore_flows((&mut world.engine, world.now), &saved, natgate_ipv6::HostRealms::NONE);
    assert_eq!((without.calls.entries()[0], without.payloads.flows()), (0, 0));
}
