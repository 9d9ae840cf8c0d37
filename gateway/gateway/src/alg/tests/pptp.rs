//! PPTP with a real engine: control connections, and both ways of their calls.

use super::*;
use crate::alg::calls::{self, Calls};
use crate::alg::gre as packets;
use natgate_engine::{Config, Cursor, Filter, Reconfiguration};
use natgate_payload::CallStep;
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

/// The server inside, and its external endpoint.
const SERVER_INSIDE: &str = "10.0.0.80:1723";
const SERVER_OUTSIDE: &str = "203.0.113.9:1723";

/// A control connection between two subscribers: the client's end inside and outside, and the next
/// numbers of the client and of the server.
struct Turned {
    client: (SocketAddrV4, SocketAddrV4),
    sent: [u32; 2],
}

impl Turned {
    fn segment(&self, by_client: bool, flags: u8, data: &[u8]) -> Vec<u8> {
        let (own, other) = match by_client {
            true => (self.client.0, end(SERVER_OUTSIDE)),
            false => (end(SERVER_INSIDE), self.client.1),
        };
        let outside = (other, own);
        let sent = if by_client { self.sent } else { [self.sent[1], self.sent[0]] };
        Control { inside: (own, other), outside, sent }.segment(Side::Inside, flags, data)
    }

    /// What a host hears of the other one's segment, which leaves by the side that it came from.
    fn pass(&self, world: &mut World, by_client: bool, segment: &[u8]) -> Vec<u8> {
        let out = world.send(Side::Inside, segment);
        let [(Side::Inside, heard)] = &out[..] else { panic!("{} packets leave", out.len()) };
        let ends = Ends::read(heard).expect("ends");
        let expected = match by_client {
            true => (self.client.1, end(SERVER_INSIDE)),
            false => (end(SERVER_OUTSIDE), self.client.0),
        };
        assert_eq!((ends.source, ends.destination), expected);
        let (from, to) = (ends.source.ip().to_bits(), ends.destination.ip().to_bits());
        let len = (heard.len() - 20) as u16;
        let pseudo = checksum::pseudo_header(from, to, protocol::TCP, len);
        assert_eq!(checksum::fold(checksum::sum(&heard[20..], pseudo)), 0xffff);
        assert!(Ipv4::new_checked(&heard[..]).is_ok_and(|ip| ip.checksum_valid()));
        heard[40..].to_vec()
    }

    fn open(world: &mut World, client: &str) -> Self {
        let mut turned = Self { client: (end(client), end(client)), sent: [100, 500] };
        let syn = turned.segment(true, SYN, &[]);
        let out = world.send(Side::Inside, &syn);
        turned.client.1 = Ends::read(&out[0].1).expect("ends").source;
        turned.sent[0] += 1;
        let answer = turned.segment(false, SYN | ACK, &[]);
        turned.pass(world, false, &answer);
        turned.sent[1] += 1;
        let last = turned.segment(true, ACK, &[]);
        turned.pass(world, true, &last);
        turned
    }

    fn say(&mut self, world: &mut World, by_client: bool, bytes: &[u8]) -> Vec<u8> {
        let segment = self.segment(by_client, ACK, bytes);
        self.sent[usize::from(!by_client)] += bytes.len() as u32;
        self.pass(world, by_client, &segment)
    }

    /// The client places a call; returns the external numbers of the client and of the server.
    fn call(&mut self, world: &mut World, client: u16, server: u16) -> (u16, u16) {
        let heard = self.say(world, true, &message(7, 168, &[client, 1]));
        let outer = u16::from_be_bytes([heard[12], heard[13]]);
        assert_eq!(heard, message(7, 168, &[outer, 1]));
        let heard = self.say(world, false, &message(8, 32, &[server, outer, 0x100]));
        let peer = u16::from_be_bytes([heard[12], heard[13]]);
        assert_eq!(heard, message(8, 32, &[peer, client, 0x100]));
        (outer, peer)
    }
}

#[test]
fn a_message_in_two_segments_reaches_the_other_subscriber() {
    let mut world = world();
    let mut control = Turned::open(&mut world, "10.0.0.5:40000");
    let whole = message(7, 168, &[7, 1]);
    let first = control.segment(true, ACK, &whole[..12]);
    control.sent[0] += 12;
    // The framework keeps the beginning, and acknowledges it to the client.
    let out = world.send(Side::Inside, &first);
    let [(Side::Inside, heard)] = &out[..] else { panic!("{} packets leave", out.len()) };
    let ends = Ends::read(heard).expect("ends");
    assert_eq!((ends.source, ends.destination), (end(SERVER_OUTSIDE), control.client.0));
    assert_eq!(heard.len(), 40);
    let rest = control.segment(true, ACK, &whole[12..]);
    let mut said = Vec::new();
    for (to, heard) in world.send(Side::Inside, &rest) {
        let ends = Ends::read(&heard).expect("ends");
        assert_eq!((to, ends.destination), (Side::Inside, end(SERVER_INSIDE)));
        said.extend_from_slice(&heard[40..]);
    }
    let outer = u16::from_be_bytes([said[12], said[13]]);
    assert_eq!(said, message(7, 168, &[outer, 1]));
}

/// Addresses and Call ID of the packet that comes back to the inside for one of a host.
fn turned_back(world: &mut World, bytes: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, u16)> {
    let out = world.send(Side::Inside, bytes);
    assert!(out.len() < 2 && out.iter().all(|(to, _)| *to == Side::Inside), "{out:?}");
    out.first().map(|(_, bytes)| ends(bytes))
}

#[test]
fn two_subscribers_have_calls_with_each_other() {
    let mut world = world();
    let inside = address("10.0.0.80");
    // Both clients have one Call ID, and the server another one for each.
    for (client, server) in [("10.0.0.5", 21), ("10.0.0.6", 22)] {
        let mut control = Turned::open(&mut world, &format!("{client}:40000"));
        let (outer, peer) = control.call(&mut world, 7, server);
        let client_outside = control.client.1.ip().to_string();
        let there = turned_back(&mut world, &gre(client, "203.0.113.9", peer));
        assert_eq!(there, Some((address(&client_outside), inside, server)));
        let back = turned_back(&mut world, &gre("10.0.0.80", &client_outside, outer));
        assert_eq!(back, Some((address("203.0.113.9"), address(client), 7)));
        // The same is explained.
        let arrived = Arrived { now: world.now, from: Side::Inside, realm: 0 };
        let bytes = gre(client, "203.0.113.9", peer);
        let (told, _) = world.stage.explain_call(&world.engine, arrived, &bytes).expect("a call");
        let becomes = told.becomes.expect("a packet that leaves");
        assert_eq!(
            (told.verdict, becomes.destination.address),
            (Verdict::Forward(Side::Inside), Some(inside),)
        );
        // An error about a packet of the client reaches the client.
        let delivered = gre(&client_outside, "10.0.0.80", server);
        let about = error("10.0.0.80", &client_outside, &delivered);
        let out = world.send(Side::Inside, &about);
        let [(Side::Inside, heard)] = &out[..] else { panic!("{} packets leave", out.len()) };
        let ip = Ipv4::new_checked(&heard[..]).expect("a packet");
        assert_eq!(Ipv4Addr::from(ip.destination()), address(client));
        assert_eq!(Ipv4Addr::from(ip.source()), address("203.0.113.9"));
        let quoted = &heard[28..];
        assert_eq!(quoted[12..20], bytes[12..20], "what the client has sent");
        assert_eq!(quoted[26..28], peer.to_be_bytes());
        // Fragments follow the first one.
        for piece in pieces(&bytes, 77) {
            let out = world.send(Side::Inside, &piece);
            let [(Side::Inside, heard)] = &out[..] else { panic!("{} packets leave", out.len()) };
            let ip = Ipv4::new_checked(&heard[..]).expect("a packet");
            assert_eq!((Ipv4Addr::from(ip.destination()), ip.ttl()), (inside, 63));
        }
        world.stage.calls.check();
        // Nobody outside has these numbers.
        assert_eq!(world.carry(Side::Outside, &gre("198.51.100.2", "203.0.113.9", peer)), None);
        let forged = gre(&client_outside, "203.0.113.9", peer);
        assert_eq!(world.carry(Side::Outside, &forged), None);
        for piece in pieces(&forged, 78) {
            assert_eq!(world.send(Side::Outside, &piece), []);
        }
        world.pass_time(10);
        assert!(turned_back(&mut world, &gre(client, "203.0.113.9", peer)).is_some());
        // The end of the server's call, which the client does not know, is counted for the
        // client's packets.
        let dropped = |world: &World| {
            let counters = world.losses.correct(world.engine.counters());
            counters.drops[natgate_engine::DropReason::Filtered as usize]
        };
        let before = dropped(&world);
        let flows = world.stage.payloads.each().map(|(_, _, ends)| ends);
        let of_server = |ends: &Endpoints| ends.remote == control.client.1;
        let flow = flows.into_iter().find(of_server).expect("the flow of the server");
        world.stage.calls.end_flow(&flow);
        assert_eq!(turned_back(&mut world, &gre(client, "203.0.113.9", peer)), None);
        assert_eq!(dropped(&world), before + 1);
        // The client ends its call.
        let heard = control.say(&mut world, true, &message(12, 16, &[7]));
        assert_eq!(heard, message(12, 16, &[outer]));
    }
}

/// Changes the configuration while calls go on.
fn reload(world: &mut World, change: impl FnOnce(&mut Config)) {
    let mut config = world.engine.config().clone();
    change(&mut config);
    let new = Reconfiguration::new(world.engine.config(), &config);
    let mut new = new.expect("a good configuration");
    world.engine.prepare_configuration(&mut new).expect("it is not refused");
    while !world.engine.is_prepared() {
        world.engine.advance(world.now);
    }
    world.engine.reconfigure(new);
}

#[test]
fn a_reload_ends_and_permits_calls_of_two_subscribers() {
    let mut world = world();
    let mut control = Turned::open(&mut world, "10.0.0.5:40000");
    let (outer, peer) = control.call(&mut world, 7, 21);
    let client_outside = control.client.1.ip().to_string();
    let there = gre("10.0.0.5", "203.0.113.9", peer);
    let back = gre("10.0.0.80", &client_outside, outer);
    for is_on in [true, false, true] {
        reload(&mut world, |config| config.hairpinning = is_on);
        for bytes in [&there, &back] {
            assert_eq!(turned_back(&mut world, bytes).is_some(), is_on);
            let arrived = Arrived { now: world.now, from: Side::Inside, realm: 0 };
            let explained = world.stage.explain_call(&world.engine, arrived, bytes);
            assert_eq!(explained.is_some(), is_on);
        }
    }
    let drops = world.losses.correct(world.engine.counters()).drops;
    assert_eq!(drops[natgate_engine::DropReason::HairpinDisabled as usize], 2);
}

/// A packet that turns round does not leave by the outside: the link of its receiver counts.
#[test]
fn a_packet_between_two_subscribers_fits_the_link_inside() {
    let long = |peer: u16, len: usize| {
        let mut bytes = gre("10.0.0.5", "203.0.113.9", peer);
        bytes.resize(len, 7);
        let mut ip = Ipv4::new_header_checked(&mut bytes[..]).expect("a packet");
        ip.set_total_len(len as u16);
        ip.set_fragment_field(0x4000);
        ip.fill_checksum();
        bytes
    };
    for (inside, outside, fits) in [(1500, 600, 1500), (600, 1500, 600)] {
        let mut world = world();
        let mut config = world.engine.config().clone();
        (config.inside.mtu, config.outside.mtu) = (Some(inside), Some(outside));
        world.engine = Engine::new(&config, [7; 32], world.now).expect("a valid configuration");
        let mut control = Turned::open(&mut world, "10.0.0.5:40000");
        let (_, peer) = control.call(&mut world, 7, 21);
        for len in [fits, fits + 1] {
            let left = world.send(Side::Inside, &long(peer, len));
            let is_whole = left.first().is_some_and(|(_, bytes)| bytes.len() == len);
            assert_eq!(is_whole, len == fits, "{len} bytes inside {inside}, outside {outside}");
        }
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

#[test]
fn errors_about_packets_of_a_call_reach_their_host() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let out = world.send(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9000)).remove(0).1;
    let back = world.send(Side::Outside, &gre("198.51.100.2", POOL, outer)).remove(0).1;
    let check = |told: &[(Side, Vec<u8>)], ends: [&str; 2], quoted: [&str; 2], call: u16| {
        let [(_, bytes)] = told else { panic!("{} packets leave", told.len()) };
        let ip = Ipv4::new_checked(&bytes[..]).unwrap();
        assert!(ip.checksum_valid() && Icmp::new_checked(ip.payload()).unwrap().checksum_valid());
        assert_eq!([ip.source(), ip.destination()].map(Ipv4Addr::from), ends.map(address));
        let about = Ipv4::new_header_checked(&ip.payload()[8..]).unwrap();
        assert!(about.checksum_valid());
        assert_eq!([about.source(), about.destination()].map(Ipv4Addr::from), quoted.map(address));
        assert_eq!(ip.payload()[34..36], call.to_be_bytes());
    };
    let (router, host, pac) = ("192.0.2.1", "10.0.0.5", "198.51.100.2");
    let told = world.send(Side::Outside, &error(router, POOL, &out));
    check(&told, [router, host], [host, pac], 9000);
    let told = world.send(Side::Inside, &error("10.0.0.1", pac, &back));
    check(&told, [POOL, pac], [pac, POOL], outer);
    // Errors about other packets, and to others, are of no call.
    assert_eq!(world.send(Side::Outside, &error(router, "203.0.113.9", &out)), []);
    assert_eq!(world.send(Side::Outside, &error(router, POOL, &gre(POOL, pac, 1))), []);
    // If two hosts could have sent the packet, none is told.
    let mut other = Control::open(&mut world, "10.0.0.6:40000");
    other.call(&mut world, 7, 9000);
    assert_eq!(world.send(Side::Outside, &error(router, POOL, &out)), []);
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
fn packets_of_a_call_are_explained() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let explain = |world: &World, from: Side, bytes: &[u8]| {
        let arrived = Arrived { now: world.now, from, realm: 0 };
        world.stage.explain_call(&world.engine, arrived, bytes)
    };
    let back = gre("198.51.100.2", POOL, outer);
    let (told, payload) = explain(&world, Side::Outside, &back).unwrap();
    assert_eq!(told.verdict, Verdict::Forward(Side::Inside));
    assert_eq!(told.becomes.unwrap().destination.address, Some(address("10.0.0.5")));
    let [edit] = &payload.edits[..] else { panic!("{payload:?}") };
    assert_eq!((&edit.old[..], &edit.new[..]), (&outer.to_be_bytes()[..], &[0, 7][..]));
    assert_eq!((payload.kind, payload.flow), (Kind::Pptp, FlowState::Call));
    let out = gre("10.0.0.5", "198.51.100.2", 9000);
    let (told, payload) = explain(&world, Side::Inside, &out).unwrap();
    assert_eq!(told.becomes.unwrap().source.address, Some(address(POOL)));
    assert_eq!(payload.edits, []);
    assert!(explain(&world, Side::Outside, &gre("198.51.100.2", POOL, outer ^ 1)).is_none());
    // Nothing has changed.
    assert_eq!(world.stage.open(&mut world.engine, None, world.now).len(), 1);
}

#[test]
fn fragments_follow_the_first_one() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let (host, pac) = ("10.0.0.5", "198.51.100.2");
    let way = |world: &mut World, from: Side, sent: &[u8]| {
        let out = world.send(from, sent);
        let [(_, bytes)] = &out[..] else { return None };
        let ip = Ipv4::new_checked(&bytes[..]).unwrap();
        assert!(ip.checksum_valid() && ip.ttl() == 63);
        assert_eq!(bytes[28..], sent[28..]);
        Some(([ip.source(), ip.destination()].map(Ipv4Addr::from), ip.identification()))
    };
    let mut drawn = BTreeSet::new();
    for round in 0..20 {
        let sent = pieces(&gre(host, pac, 9000), 5);
        let left = sent.map(|sent| way(&mut world, Side::Inside, &sent).unwrap());
        assert!(left.iter().all(|one| *one == left[0] && one.0 == [POOL, pac].map(address)));
        assert!(drawn.insert(left[0].1), "an identification of its own");
        let [first, second, third] = pieces(&gre(pac, POOL, outer), 100 + round);
        for sent in [&first, &third, &second] {
            let came = way(&mut world, Side::Outside, sent);
            assert_eq!(came, Some(([pac, host].map(address), 100 + round)));
        }
    }
    // Fragments of other datagrams, of another host, and of too old ones have no call.
    let [_, second, _] = pieces(&gre(pac, POOL, outer), 99);
    assert_eq!(way(&mut world, Side::Outside, &second), None);
    let [_, second, _] = pieces(&gre("198.51.100.3", POOL, outer), 119);
    assert_eq!(way(&mut world, Side::Outside, &second), None);
    let [_, second, _] = pieces(&gre(pac, POOL, outer), 119);
    assert!(way(&mut world, Side::Outside, &second).is_some());
    // Each call remembers a few datagrams.
    assert_eq!(world.stage.calls.entries()[4], 8);
    world.pass_time(3);
    assert_eq!(way(&mut world, Side::Outside, &second), None);
    assert_eq!(world.stage.calls.entries()[4], 0);
}

#[test]
fn packets_that_cannot_travel_on_are_answered_by_the_engine() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    control.call(&mut world, 7, 9000);
    let sent = gre("10.0.0.5", "198.51.100.2", 9000);
    let change = |at: usize, value: u8, len: usize| {
        let mut bytes = sent.clone();
        bytes.resize(len, 0);
        bytes[at] = value;
        let mut ip = Ipv4::new_checked(&mut bytes[..]).unwrap();
        ip.set_total_len(len as u16);
        ip.fill_checksum();
        bytes
    };
    for (at, value, len) in [(8, 1, 40), (6, 0x40, 1501)] {
        let taken = world.send(Side::Inside, &change(at, value, len));
        assert_eq!(taken, [], "byte {at}");
    }
    let drops = &world.engine.counters().drops;
    assert_eq!(drops[natgate_engine::DropReason::TtlExceeded as usize], 1);
    assert_eq!(drops[natgate_engine::DropReason::TooBig as usize], 1);
    // A wrong checksum of the header.
    let mut wrong = sent.clone();
    wrong[10] ^= 1;
    assert_eq!(world.send(Side::Inside, &wrong), []);
}

#[test]
fn workers_draw_from_numbers_of_their_own() {
    let flow = endpoints(0, end("10.0.0.5:40000"), end("203.0.113.1:50000"), end(PAC));
    // A worker that joins draws from no number that others may have.
    for number in [0, 1, 2, 40, 63] {
        let mut calls = Calls::new([number as u8; 32]);
        for own in 0..calls::MOST_OF_HOST as u16 - 1 {
            let outer = calls.open(Timestamp(0), (number, 0), &flow, own).unwrap();
            assert_ne!(outer, 0);
            assert_eq!(calls::likely_worker(outer), usize::from(number));
        }
    }
}

#[test]
fn a_worker_whose_numbers_are_used_up_makes_no_call() {
    let made = |worker: u16| {
        let (mut calls, mut made) = (Calls::new([1; 32]), 0);
        for host in 0..5 {
            let client = format!("10.0.0.{host}:40000");
            let flow = endpoints(0, end(&client), end("203.0.113.1:50000"), end(PAC));
            for own in 0..500 {
                let call = calls.open(Timestamp(0), (worker, 0), &flow, own);
                made += usize::from(call.is_some());
            }
        }
        made
    };
    // 512 numbers of one class; the first worker has many more.
    assert_eq!((made(9), made(0)), (512, 2500));
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

/// Hosts behind several B4s have one address, and choose one Call ID.
#[test]
fn hosts_with_numbers_have_calls_of_their_own() {
    let mut calls = Calls::new([5; 32]);
    let flow = |host: u32| {
        let external = SocketAddrV4::new(address(POOL), 50_000 + host as u16);
        let number = Some(Ipv4Addr::from_bits(0x0100_0000 + host));
        Endpoints { number, ..endpoints(2, end("10.0.0.9:4000"), external, end(PAC)) }
    };
    let mut outers = BTreeSet::new();
    // Two subscribers with two hosts each.
    for host in [0, 1, 256, 257] {
        let outer = calls.open(Timestamp(0), (0, 8), &flow(host), 7).expect("a call");
        assert!(outers.insert(outer));
        calls.step(1, &flow(host), CallStep::Peer { internal: 7, peer: 9000 });
        assert_eq!(calls.external(&flow(host), 7), Some(outer));
        let data = |source: Ipv4Addr| packets::Tunnel {
            source: source.to_bits(),
            destination: end(PAC).ip().to_bits(),
            call: 9000,
        };
        let number = flow(host).number.expect("a number");
        let found = calls.of_outbound(1, 2, data(number)).map(|call| call.outer);
        assert_eq!(found, Some(outer));
        assert_eq!(calls.of_outbound(1, 2, data(address("10.0.0.9"))), None);
        calls.check();
    }
    // Hosts of one subscriber share its room.
    let made = (100..900)
        .filter(|own| calls.open(Timestamp(0), (0, 8), &flow(u32::from(*own) % 2), *own).is_some());
    assert_eq!(made.count(), calls::MOST_OF_HOST - 2);
    assert!(calls.open(Timestamp(0), (0, 8), &flow(256), 999).is_some());
    calls.end_flow(&flow(256));
    assert!(calls.external(&flow(257), 7).is_some() && calls.external(&flow(256), 7).is_none());
    calls.check();
}

/// Random steps of some hosts with few numbers: the indexes stay those of the calls.
#[test]
fn random_steps_keep_the_indexes() {
    let first = std::env::var("NATGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in first..first + 100_u64 {
        let mut state = seed;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut calls = Calls::new([3; 32]);
        let mut now = 1000;
        for _ in 0..400 {
            let [host, port, server] = [below(3), below(2), below(2)];
            let ends = [
                format!("10.0.0.{host}:{}", 4000 + port),
                format!("203.0.113.1:{}", 5000 + 10 * host + port + 100 * below(2)),
                format!("198.51.100.{server}:1723"),
            ];
            let [own, external, remote] = ends.map(|text| end(&text));
            let mut flow = endpoints(0, own, external, remote);
            flow.number = [None, Some(Ipv4Addr::new(1, 0, 0, host as u8))][below(2) as usize];
            let [id, peer] = [below(4) as u16, below(4) as u16];
            let time = Timestamp(u64::from(now) * 1_000_000_000);
            let datagram = packets::Datagram {
                source: remote.ip().to_bits(),
                destination: external.ip().to_bits(),
                identification: peer,
            };
            match below(9) {
                0..3 => _ = calls.open(time, (0, 8), &flow, id),
                3 => _ = calls.step(now, &flow, CallStep::Peer { internal: id, peer }),
                4 => _ = calls.step(now, &flow, CallStep::End(id)),
                5 => _ = calls.step(now, &flow, CallStep::Clear(id)),
                6 if below(8) == 0 => _ = calls.step(now, &flow, CallStep::Restart),
                7 => {
                    let call = calls.waiting(now).next().copied();
                    call.inspect(|call| calls.note_first(now + 2, call, (None, datagram), None));
                }
                _ => {
                    now += below(40) as u32;
                    calls.sweep(now, |_| true);
                }
            }
            calls.check();
        }
        assert!(calls.entries()[0] > 0, "NATGATE_SEED={seed}");
    }
}
