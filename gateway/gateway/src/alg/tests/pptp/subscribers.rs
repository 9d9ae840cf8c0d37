//! Calls between two subscribers: packets turn round behind the gateway.

use super::*;
use natgate_engine::{Config, Reconfiguration};

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
