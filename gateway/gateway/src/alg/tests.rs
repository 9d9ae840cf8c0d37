//! A client or server of FTP inside and a real engine: what leaves, and who may come in.

use super::*;
use natgate_engine::{
    AddressRange, Begun, Match, PoolConfig, Prefix, Rule, RuleAction, RuleSet, StaticMapping,
};
use natgate_payload::{FlowState, Place};
use natgate_wire::checksum;
use std::time::Duration;

const ACK: u8 = 16;
const SYN: u8 = 2;

struct World {
    engine: Engine,
    stage: Stage,
    losses: Losses,
    now: Timestamp,
}

/// A segment in short.
#[derive(Clone, Copy)]
struct Short<'d> {
    from: &'static str,
    to: &'static str,
    numbers: (u32, u32),
    flags: u8,
    data: &'d str,
}

fn end(text: &str) -> SocketAddrV4 {
    text.parse().expect("an endpoint")
}

fn segment(short: Short<'_>) -> Vec<u8> {
    let (from, to) = (end(short.from), end(short.to));
    let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    tcp.extend(short.numbers.0.to_be_bytes());
    tcp.extend(short.numbers.1.to_be_bytes());
    tcp.extend([0x50, short.flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(short.data.bytes());
    packet(from, to, protocol::TCP, 16, &tcp)
}

fn packet(
    from: SocketAddrV4,
    to: SocketAddrV4,
    number: u8,
    sum_at: usize,
    transport: &[u8],
) -> Vec<u8> {
    let len = transport.len() as u16;
    let mut bytes = vec![0; 20 + transport.len()];
    let mut ip = Ipv4::init(&mut bytes[..], 20);
    ip.set_total_len(20 + len);
    ip.set_ttl(64);
    ip.set_protocol(number);
    ip.set_source(from.ip().to_bits());
    ip.set_destination(to.ip().to_bits());
    ip.payload_mut().copy_from_slice(transport);
    ip.fill_checksum();
    let pseudo = checksum::pseudo_header(from.ip().to_bits(), to.ip().to_bits(), number, len);
    let sum = !checksum::fold(checksum::sum(transport, pseudo));
    bytes[20 + sum_at..22 + sum_at].copy_from_slice(&sum.to_be_bytes());
    bytes
}

impl World {
    fn new() -> Self {
        let mut settings = AlgSettings::default();
        for kind in Kind::ALL {
            settings.set(kind, AlgSettings::usual_ports(kind).to_vec());
        }
        Self::of(&settings, 21, "203.0.113.1:2121".parse().unwrap())
    }

    /// A world with one external address and a server inside: its port, its external endpoint.
    fn of(settings: &AlgSettings, port: u16, server: SocketAddrV4) -> Self {
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: external, last: external }];
        let statics = vec![StaticMapping {
            realm: 0,
            protocol: Some(protocol::TCP),
            internal: (Ipv4Addr::new(10, 0, 0, 80), Some(port)),
            external: (*server.ip(), Some(server.port())),
            begun: Begun::Anywhere,
        }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let mut config = Config { pools, statics, ..Config::default() };
        settings.reserve(&mut config.limits);
        let now = Timestamp(1_000_000_000_000);
        let engine = Engine::new(&config, [7; 32], now).expect("a valid configuration");
        let mut stage = Stage::new(settings, &config, [7; 32]).expect("protocols are on");
        stage.stop_engine(true);
        Self { engine, stage, losses: Losses::default(), now }
    }

    /// Lets the engine take a packet. `None`: it stops, because the packet is of a control flow.
    fn until_control(&mut self, arrived: Arrived, room: &mut Room<'_>) -> Option<Taken> {
        let Arrived { now, from, realm } = arrived;
        let Self { engine, stage, .. } = self;
        stage.tell_ports(engine);
        let has_stop = stage.has_stop(from, room.bytes());
        let mut packets = [Packet::new(room.bytes_mut(), 0).in_realm(realm)];
        let mut verdicts = [Verdict::Held];
        let is_control = |packet: &[u8]| stage.claims(from, packet);
        let count = engine.process_to_control(now, from, &mut packets, &mut verdicts, &is_control);
        assert!(count == 0 || !has_stop, "the engine stops at every packet of a known port");
        let ([packet], [verdict]) = (packets, verdicts);
        let (realm, len) = (packet.realm(), packet.len());
        room.set_len(len);
        (count == 1).then_some(Taken::Decided(verdict, realm))
    }

    /// What leaves for a packet: the side and the packet of each.
    fn send(&mut self, from: Side, bytes: &[u8]) -> Vec<(Side, Vec<u8>)> {
        while self.engine.advance(self.now) {}
        let mut buffer = vec![0; 4096];
        buffer[..bytes.len()].copy_from_slice(bytes);
        let mut room = Room::new(&mut buffer, bytes.len());
        let arrived = Arrived { now: self.now, from, realm: 0 };
        let taken = match self.until_control(arrived, &mut room) {
            Some(taken) => taken,
            None => self.stage.take((&mut self.engine, None), arrived, &mut room, &mut self.losses),
        };
        let mut out = vec![];
        if let Taken::Decided(Verdict::Forward(to), _) = taken {
            out.push((to, room.bytes().to_vec()));
        }
        let now = self.now;
        while let Some((to, _, len)) =
            self.stage.poll_transmit(&mut self.engine, now, &mut buffer, &mut self.losses)
        {
            out.push((to, buffer[..len].to_vec()));
        }
        out
    }

    /// The only packet that leaves, by the other side: its ends and its data.
    fn pass(&mut self, from: Side, bytes: &[u8]) -> (SocketAddrV4, SocketAddrV4, String) {
        let mut out = self.send(from, bytes);
        assert_eq!(out.len(), 1, "{} packets leave", out.len());
        let (to, bytes) = out.remove(0);
        assert_eq!(to, from.other());
        let ends = Ends::read(&bytes).expect("ends");
        let data = String::from_utf8_lossy(&bytes[40.min(bytes.len())..]).into_owned();
        (ends.source, ends.destination, data)
    }
}

const CLIENT: &str = "10.0.0.5:40000";
const SERVER: &str = "198.51.100.2:21";

/// A world with a client inside that the server has greeted, and the client's external endpoint.
fn greeted() -> (World, &'static str) {
    greet(World::new())
}

fn greet(mut world: World) -> (World, &'static str) {
    let syn = Short { from: CLIENT, to: SERVER, numbers: (100, 0), flags: SYN, data: "" };
    let (external, _, _) = world.pass(Side::Inside, &segment(syn));
    let external: &'static str = Box::leak(external.to_string().into_boxed_str());
    let syn = Short { from: SERVER, to: external, numbers: (500, 101), flags: SYN | ACK, data: "" };
    world.pass(Side::Outside, &segment(syn));
    let greeting = Short { numbers: (501, 101), flags: ACK, data: "220 ready\r\n", ..syn };
    world.pass(Side::Outside, &segment(greeting));
    (world, external)
}

#[test]
fn an_active_client_is_reached_by_its_server_alone() {
    let (mut world, external) = greeted();
    let text = "PORT 10,0,0,5,200,13\r\n";
    let port = Short { from: CLIENT, to: SERVER, numbers: (101, 512), flags: ACK, data: text };
    let (_, _, heard) = world.pass(Side::Inside, &segment(port));
    let numbers: Vec<u16> =
        heard.trim_end()[5..].split(',').map(|part| part.parse().expect("a number")).collect();
    assert_eq!(numbers[..4], [203, 0, 113, 1], "{heard}");
    let data = format!("203.0.113.1:{}", numbers[4] * 256 + numbers[5]);
    let data: &'static str = Box::leak(data.into_boxed_str());
    // Another host finds no way, the server finds the client.
    let stranger =
        Short { from: "198.51.100.3:20", to: data, numbers: (1, 0), flags: SYN, data: "" };
    assert_eq!(world.send(Side::Outside, &segment(stranger)), []);
    let (_, to, _) =
        world.pass(Side::Outside, &segment(Short { from: "198.51.100.2:20", ..stranger }));
    assert_eq!(to, end("10.0.0.5:51213"));
    // The server acknowledges what it got; the client hears its own numbers.
    let ack = 101 + heard.len() as u32;
    let reply =
        Short { from: SERVER, to: external, numbers: (512, ack), flags: ACK, data: "200 ok\r\n" };
    let out = world.send(Side::Outside, &segment(reply));
    assert_eq!(out.len(), 1);
    let number = u32::from_be_bytes(out[0].1[28..32].try_into().expect("four bytes"));
    assert_eq!(number, 101 + text.len() as u32);
    let mut counters = world.stage.counters();
    assert!(counters.any(|(kind, of)| kind == Kind::Ftp && of.expectations == 1));
    drop(counters);
    let made = world.stage.poll_expectation().expect("an expectation");
    let ends = [made.internal, made.external].map(|end| format!("{}:{}", end.address, end.port));
    assert_eq!(ends, ["10.0.0.5:51213", data]);
    assert_eq!((made.kind, made.remote), (Kind::Ftp, Some(*end(SERVER).ip())));
    assert_eq!(world.stage.poll_expectation(), None);
}

/// An expectation takes a port of its subscriber, which gets none beyond its limit. Others have
/// their own limit.
#[test]
fn expectations_count_against_the_limit_of_their_subscriber() {
    let mut world = World::new();
    let mut config = world.engine.config().clone();
    config.limits.tcp_ports = 3;
    world.engine = Engine::new(&config, [7; 32], world.now).expect("a valid configuration");
    let (mut world, _) = greet(world);
    let mut number = 101;
    for (count, last) in (0..).zip(["13", "14", "15", "13"]) {
        let text = format!("PORT 10,0,0,5,200,{last}\r\n");
        let data: &'static str = Box::leak(text.clone().into_boxed_str());
        let port = Short { from: CLIENT, to: SERVER, numbers: (number, 512), flags: ACK, data };
        number += text.len() as u32;
        let (_, _, heard) = world.pass(Side::Inside, &segment(port));
        // The connection and two expectations have the ports; the first one is there already.
        assert_eq!(heard == text, count == 2, "{heard}");
    }
    let mut counters = world.stage.counters();
    let ftp = counters.find(|(kind, _)| *kind == Kind::Ftp).expect("FTP is on").1;
    let no_port = ftp.refused[natgate_payload::Reason::NoPort as usize];
    assert_eq!((ftp.expectations, no_port), (3, 1));
    drop(counters);
    let other = Short { from: "10.0.0.6:1", to: SERVER, numbers: (1, 0), flags: SYN, data: "" };
    assert_eq!(world.send(Side::Inside, &segment(other)).len(), 1);
}

#[test]
fn without_a_flow_the_expectation_ends() {
    let (mut world, _) = greeted();
    let text = "PORT 10,0,0,5,200,13\r\n";
    let port = Short { from: CLIENT, to: SERVER, numbers: (101, 512), flags: ACK, data: text };
    world.pass(Side::Inside, &segment(port));
    let external = world.stage.poll_expectation().expect("an expectation").external;
    world.now = Timestamp(world.now.0 + 62_000_000_000);
    let to = format!("{}:{}", external.address, external.port);
    let to = Box::leak(to.into_boxed_str());
    let late = Short { from: "198.51.100.2:20", to, numbers: (1, 0), flags: SYN, data: "" };
    assert_eq!(world.send(Side::Outside, &segment(late)), []);
}

#[test]
fn parts_of_a_command_are_kept_and_counted_once() {
    let (mut world, external) = greeted();
    let part =
        Short { from: CLIENT, to: SERVER, numbers: (101, 512), flags: ACK, data: "PORT 10,0" };
    let out = world.send(Side::Inside, &segment(part));
    // No byte leaves: the client's acknowledgment of the greeting goes to the server, and one of
    // the part to the client.
    let ends: Vec<_> = out
        .iter()
        .map(|(to, bytes)| (*to, bytes.len(), Ends::read(bytes).map(|ends| ends.destination)))
        .collect();
    assert_eq!(
        ends,
        [(Side::Outside, 40, Some(end(SERVER))), (Side::Inside, 40, Some(end(CLIENT)))]
    );
    let rest = Short { numbers: (110, 512), data: ",0,5,200,13\r\n", ..part };
    let (_, _, heard) = world.pass(Side::Inside, &segment(rest));
    assert!(heard.starts_with("PORT 203,0,113,1,"), "{heard}");
    // A part of a reply.
    let half = Short { from: SERVER, to: external, numbers: (512, 101), flags: ACK, data: "200" };
    world.send(Side::Outside, &segment(half));
    let counters = world.losses.correct(world.engine.counters());
    assert_eq!(counters.packets.iter().flatten().sum::<u64>(), 6);
}

#[test]
fn a_server_inside_is_known_by_its_static_mapping() {
    let mut world = World::new();
    let remote = "198.51.100.2:40000";
    let syn =
        Short { from: remote, to: "203.0.113.1:2121", numbers: (500, 0), flags: SYN, data: "" };
    world.pass(Side::Outside, &segment(syn));
    let answer =
        Short { from: "10.0.0.80:21", to: remote, numbers: (100, 501), flags: SYN | ACK, data: "" };
    world.pass(Side::Inside, &segment(answer));
    let text = "220 ready\r\n227 Entering Passive Mode (10,0,0,80,4,1)\r\n";
    let reply = Short { numbers: (101, 501), flags: ACK, data: text, ..answer };
    let (from, _, heard) = world.pass(Side::Inside, &segment(reply));
    assert_eq!(from, end("203.0.113.1:2121"));
    assert!(heard.starts_with("220 ready\r\n227 Entering Passive Mode (203,0,113,1,"), "{heard}");
    let external = world.stage.poll_expectation().expect("an expectation").external;
    let to = format!("{}:{}", external.address, external.port);
    let to = Box::leak(to.into_boxed_str());
    let data = Short { from: "198.51.100.2:40001", to, numbers: (1, 0), flags: SYN, data: "" };
    assert_eq!(world.pass(Side::Outside, &segment(data)).1, end("10.0.0.80:1025"));
}

fn datagram(from: SocketAddrV4, to: SocketAddrV4, text: &str) -> Vec<u8> {
    let mut udp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    udp.extend((8 + text.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(text.bytes());
    packet(from, to, protocol::UDP, 6, &udp)
}

#[test]
fn media_get_two_ports_that_follow_each_other() {
    let mut world = World::new();
    let client = "10.0.0.5:5060";
    let body = "v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4000 RTP/AVP 0\r\n";
    let text = format!(
        "INVITE sip:b@c SIP/2.0\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let bytes = datagram(end(client), end("198.51.100.2:5060"), &text);
    world.send(Side::Inside, &bytes);
    let external = world.stage.poll_expectation().expect("an expectation").external;
    assert_eq!(external.port % 2, 0);
    let second = world.stage.poll_expectation().expect("an expectation for RTCP");
    assert_eq!((second.external.port, second.internal.port), (external.port + 1, 4001));
    // Both may begin, until their time has passed.
    let open = world.stage.open(&mut world.engine, None, world.now);
    assert_eq!(open.iter().filter(|one| one.made.internal.port / 2 == 2000).count(), 2);
    for (above, port) in [(0, 4000), (1, 4001)] {
        let to = SocketAddrV4::new(external.address, external.port + above);
        let from = end("192.0.2.77:7000");
        let bytes = datagram(from, to, "");
        assert_eq!(world.pass(Side::Outside, &bytes).1, end(&format!("10.0.0.5:{port}")));
    }
}

/// A telephone that is called may send from its ports before it answers. Then they have external
/// ports that do not follow each other.
#[test]
fn media_that_have_begun_before_the_answer_keep_their_ports() {
    let mut world = World::new();
    let begun = ["10.0.0.5:4000", "10.0.0.5:4001"].map(|own| {
        let bytes = datagram(end(own), end("198.51.100.9:7000"), "0123456789ab");
        world.pass(Side::Inside, &bytes).0.port()
    });
    assert_ne!(begun[0] + 1, begun[1], "another seed is needed");
    let body = "v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4000 RTP/AVP 0\r\n";
    let text = format!(
        "SIP/2.0 200 OK\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..2 {
        let bytes = datagram(end("10.0.0.5:5060"), end("198.51.100.2:5060"), &text);
        let (_, _, heard) = world.pass(Side::Inside, &bytes);
        let [media, control] = begun;
        let wanted = format!("m=audio {media} RTP/AVP 0\r\na=rtcp:{control}\r\n");
        assert!(heard.ends_with(&wanted), "{heard}");
        for (own, external) in [4000, 4001].into_iter().zip(begun) {
            let made = world.stage.poll_expectation().expect("an expectation");
            assert_eq!((made.internal.port, made.external.port), (own, external));
        }
    }
    let counters = world.stage.counters().find(|(kind, _)| *kind == Kind::Sip);
    assert_eq!(counters.expect("SIP is on").1.refused.iter().sum::<u64>(), 0);
}

#[test]
fn a_message_that_grows_past_the_link_may_be_cut() {
    let message = |len: usize| {
        let head = "REGISTER sip:c SIP/2.0\r\nContact: <sip:a@10.0.0.5>\r\nContent-Length: ";
        let body = "x".repeat(len - head.len() - 8);
        let text = format!("{head}{:04}\r\n\r\n{}", body.len(), body);
        let mut bytes = datagram(end("10.0.0.5:5060"), end("198.51.100.2:5060"), &text);
        let mut ip = Ipv4::new_checked(&mut bytes[..]).unwrap();
        ip.set_fragment_field(0x4000);
        ip.fill_checksum();
        bytes
    };
    for (len, may_be_cut) in [(1400, false), (1470, true)] {
        let mut world = World::new();
        let bytes = message(len);
        let (side, left) = world.send(Side::Inside, &bytes).remove(0);
        assert!(side == Side::Outside && left.len() > bytes.len(), "the contact is longer");
        let ip = Ipv4::new_checked(&left[..]).unwrap();
        assert!(ip.checksum_valid());
        assert_eq!(!ip.dont_fragment(), may_be_cut, "{} bytes", left.len());
    }
}

#[test]
fn an_answer_limits_who_may_send_media() {
    let mut world = World::new();
    let (client, server) = (end("10.0.0.5:5060"), end("198.51.100.2:5060"));
    let described = |line: &str, address: &str| {
        let body = format!("v=0\r\nc=IN IP4 {address}\r\nm=audio 4000 RTP/AVP 0\r\n");
        let len = body.len();
        format!("{line}\r\nc: application/sdp\r\ni: 1\r\nl: {len}\r\n\r\n{body}")
    };
    let offer = described("INVITE sip:b@c SIP/2.0", "10.0.0.5");
    let (external, ..) = world.pass(Side::Inside, &datagram(client, server, &offer));
    let expected: Vec<_> = std::iter::from_fn(|| world.stage.poll_expectation()).collect();
    assert_eq!(expected.iter().map(|one| one.remote).collect::<Vec<_>>(), [None, None]);
    let media = |above: u16| {
        let first = expected[0].external;
        SocketAddrV4::new(first.address, first.port + above)
    };
    world.now = world.now.plus(Duration::from_secs(9));
    let answer = described("SIP/2.0 200 OK", "198.51.100.61");
    world.pass(Side::Outside, &datagram(server, external, &answer));
    let limited: Vec<_> = std::iter::from_fn(|| world.stage.poll_expectation()).collect();
    let remote = Some(Ipv4Addr::new(198, 51, 100, 61));
    for (one, before) in limited.iter().zip(&expected) {
        assert_eq!((one.remote, one.external), (remote, before.external));
    }
    assert_eq!(limited.len(), 2);
    let open = world.stage.open(&mut world.engine, None, world.now);
    assert!(open.iter().all(|one| one.made.remote == remote && one.left.as_secs() == 171));
    assert_eq!(open.len(), 2);
    for above in [0, 1] {
        let stranger = datagram(end("198.51.100.99:9000"), media(above), "");
        let out = world.send(Side::Outside, &stranger);
        assert!(out.is_empty(), "media of a stranger");
        let other = datagram(end("198.51.100.61:9000"), media(above), "");
        world.pass(Side::Outside, &other);
    }
}

#[test]
fn the_end_of_a_registration_ends_its_hold() {
    let mut world = World::new();
    let (client, server) = (end("10.0.0.5:5060"), end("198.51.100.2:5060"));
    let register = |seconds: u16| {
        let contact = format!("m: <sip:u@10.0.0.5:5060>;expires={seconds}");
        let head = "t: <sip:u@a>\r\ni: c\r\nCSeq: 1 REGISTER";
        format!("REGISTER a SIP/2.0\r\n{head}\r\n{contact}\r\n\r\n")
    };
    let (external, ..) = world.pass(Side::Inside, &datagram(client, server, &register(3600)));
    world.now = world.now.plus(Duration::from_secs(1000));
    let asked = datagram(server, external, "OPTIONS a SIP/2.0\r\n\r\n");
    world.pass(Side::Outside, &asked);
    world.pass(Side::Inside, &datagram(client, server, &register(0)));
    assert_eq!(world.stage.open(&mut world.engine, None, world.now).len(), 1);
    let granted = "SIP/2.0 200 OK\r\nt: <sip:u@a>\r\ni: c\r\nCSeq: 1 REGISTER\r\n\r\n";
    world.pass(Side::Outside, &datagram(server, external, granted));
    assert_eq!(world.stage.open(&mut world.engine, None, world.now), []);
    world.pass(Side::Outside, &asked);
    world.now = world.now.plus(Duration::from_secs(1000));
    assert!(world.send(Side::Outside, &asked).is_empty());
}

/// Two flows of one telephone register one contact.
#[test]
fn a_refusal_on_one_flow_leaves_the_hold_of_another() {
    let mut world = World::new();
    let server = end("198.51.100.2:5060");
    let register = |user: &str, seconds: u16| {
        let contact = format!("m: <sip:u@10.0.0.5:5070>;expires={seconds}");
        let head = format!("t: <sip:{user}@a>\r\ni: c\r\nCSeq: 1 REGISTER");
        format!("REGISTER a SIP/2.0\r\n{head}\r\n{contact}\r\n\r\n")
    };
    let answer = |user: &str, status: &str| {
        format!("SIP/2.0 {status}\r\nt: <sip:{user}@a>\r\ni: c\r\nCSeq: 1 REGISTER\r\n\r\n")
    };
    let left = |world: &mut World| -> Vec<u64> {
        let open = world.stage.open(&mut world.engine, None, world.now);
        let of_contact = open.iter().filter(|one| one.made.internal.port == 5070);
        of_contact.map(|one| one.left.as_secs()).collect()
    };
    let (one, other) = (end("10.0.0.5:5060"), end("10.0.0.5:5061"));
    let (external, ..) = world.pass(Side::Inside, &datagram(one, server, &register("u", 600)));
    world.pass(Side::Outside, &datagram(server, external, &answer("u", "200 OK")));
    assert_eq!(left(&mut world), [600]);
    // The other flow asks for less, then for more, and is refused.
    for seconds in [60, 3600] {
        let (external, ..) =
            world.pass(Side::Inside, &datagram(other, server, &register("v", seconds)));
        assert_eq!(left(&mut world), [600.max(u64::from(seconds))]);
        // A message that comes again.
        let options = "OPTIONS a SIP/2.0\r\nv: SIP/2.0/UDP 10.0.0.5:5070\r\n\r\n";
        world.pass(Side::Inside, &datagram(other, server, options));
        let refused = answer("v", "401 Unauthorized");
        world.pass(Side::Outside, &datagram(server, external, &refused));
        assert_eq!(left(&mut world), [600]);
    }
    world.pass(Side::Inside, &datagram(one, server, &register("u", 0)));
    assert_eq!(left(&mut world), [600], "the other flow has asked since");
}

#[test]
fn a_flow_with_another_external_port_is_another_keeper() {
    let number = |internal: &str, external: &str, remote: &str| {
        let (internal, remote) = (end(internal).into(), end(remote));
        let (external, remote_inside) = (end(external), remote.into());
        let (realm, number) = (0, None);
        let flow = Endpoints { internal, external, remote, remote_inside, realm, number };
        super::ports::number(&flow)
    };
    let (internal, external, remote) = ("10.0.0.5:5060", "203.0.113.1:2000", "198.51.100.2:5060");
    let own = number(internal, external, remote);
    assert_ne!(own, number(internal, "203.0.113.1:2001", remote));
    assert_ne!(own, number("10.0.0.5:5061", external, remote));
    assert_ne!(own, number(internal, external, "198.51.100.2:5061"));
}

/// The media of one flow have the port that another one has registered.
#[test]
fn media_do_not_take_the_port_of_a_registration() {
    let server = end("198.51.100.2:5060");
    let mut world = World::new();
    let contact = "m: <sip:u@10.0.0.5:5070>;expires=3600";
    let asked = format!("REGISTER a SIP/2.0\r\ni: c\r\nCSeq: 1 REGISTER\r\n{contact}\r\n\r\n");
    world.pass(Side::Inside, &datagram(end("10.0.0.5:5060"), server, &asked));
    let left = |world: &mut World| -> Vec<u64> {
        let open = world.stage.open(&mut world.engine, None, world.now);
        let of_contact = open.iter().filter(|one| one.made.internal.port == 5070);
        of_contact.map(|one| one.left.as_secs()).collect()
    };
    assert_eq!(left(&mut world), [3600]);
    let body = "c=IN IP4 10.0.0.5\r\nm=audio 5070 RTP/AVP 0\r\n";
    let offer = format!("INVITE a SIP/2.0\r\ni: d\r\nc: application/sdp\r\n\r\n{body}");
    world.pass(Side::Inside, &datagram(end("10.0.0.5:5061"), server, &offer));
    assert_eq!(left(&mut world), [3600]);
    let internal = natgate_engine::Endpoint { address: [10, 0, 0, 5].into(), port: 5070 };
    assert_eq!(world.engine.admits_requested(protocol::UDP, 0, internal, None), None);
}

//= test rfc4787#REQ-10a
#[test]
fn nothing_is_on_unless_it_is_named() {
    let config = Config::default();
    assert!(Stage::new(&AlgSettings::default(), &config, [0; 32]).is_none());
    let mut settings = AlgSettings::default();
    settings.set(Kind::Ftp, vec![21, 2121]);
    assert_eq!(settings.kind(protocol::TCP, 2121), Some(Kind::Ftp));
    assert_eq!(settings.kind(protocol::UDP, 21), None);
    settings.set(Kind::Ftp, vec![]);
    assert!(settings.is_off());
}

#[test]
fn each_worker_takes_memory_for_its_control_flows() {
    let mut settings = AlgSettings::default();
    settings.set_flows(1 << 20);
    assert_eq!(settings.memory(8), 0, "no protocol is on");
    settings.set(Kind::Sip, vec![5060]);
    let one = settings.memory(1);
    // Places of 260 bytes at least, an index twice as large, and the buffers.
    assert!((320 << 20..380 << 20).contains(&one), "{one}");
    assert_eq!((settings.memory(8), settings.memory(0)), (8 * one, one));
    settings.set_flows(64);
    let least = settings.memory(1);
    assert!((28 << 20..32 << 20).contains(&least), "{least}");
}

impl World {
    /// The explanation of a packet by engine and stage.
    fn explain(&mut self, from: Side, bytes: &[u8]) -> Option<natgate_payload::Explanation> {
        let mut explanation = natgate_engine::Explanation::new();
        let mut copy = bytes.to_vec();
        self.engine.explain(self.now, from, &Packet::new(&mut copy, 0), &mut explanation);
        let arrived = Arrived { now: self.now, from, realm: 0 };
        self.stage.explain(&self.engine, arrived, bytes, &explanation)
    }
}

#[test]
fn a_payload_is_explained_and_nothing_changes() {
    let (mut world, external) = greeted();
    let text = "PORT 10,0,0,5,200,13\r\n";
    let port = Short { from: CLIENT, to: SERVER, numbers: (101, 512), flags: ACK, data: text };
    for _ in 0..2 {
        let told = world.explain(Side::Inside, &segment(port)).expect("a control flow");
        assert_eq!((told.flow, told.place), (FlowState::Known, Some(Place::Next)));
        assert_eq!(told.edits.len(), 1);
        assert_eq!(told.edits[0].new, b"203,0,113,1,0,0");
        assert_eq!(told.opened[0].expectation.internal, "10.0.0.5:51213".parse().unwrap());
        assert_eq!(told.refused, []);
    }
    // A connection that was not read from its start, and what comes back on it.
    let other = Short { from: "10.0.0.5:40009", numbers: (7, 9), ..port };
    let told = world.explain(Side::Inside, &segment(Short { flags: SYN, data: "", ..other }));
    assert_eq!(told.map(|told| told.flow), Some(FlowState::Begins));
    let reply = Short { from: SERVER, to: external, numbers: (512, 101), flags: ACK, data: "200" };
    let told = world.explain(Side::Outside, &segment(reply)).expect("a control flow");
    assert_eq!((told.waiting, told.edits.len()), (3, 0));
    // Nothing was taken.
    assert!(world.pass(Side::Inside, &segment(port)).2.starts_with("PORT 203,0,113,1,"));
    let stranger = Short { from: "198.51.100.3:80", ..reply };
    assert_eq!(world.explain(Side::Outside, &segment(stranger)), None);
}

/// FTP with servers at this port.
fn ftp_at(port: u16) -> AlgSettings {
    let mut settings = AlgSettings::default();
    settings.set(Kind::Ftp, vec![port]);
    settings
}

/// Opens a connection of a client inside to a server that greets, and sends PORT. Returns what
/// leaves.
fn port_of(world: &mut World, from: &'static str, to: &'static str) -> String {
    let syn = Short { from, to, numbers: (100, 0), flags: SYN, data: "" };
    let (external, _, _) = world.pass(Side::Inside, &segment(syn));
    let external: &'static str = Box::leak(external.to_string().into_boxed_str());
    let answer = Short { from: to, to: external, numbers: (500, 101), flags: SYN | ACK, data: "" };
    world.pass(Side::Outside, &segment(answer));
    let greeting = Short { numbers: (501, 101), flags: ACK, data: "220 ready\r\n", ..answer };
    world.pass(Side::Outside, &segment(greeting));
    let text = "USER a\r\nPORT 10,0,0,5,200,13\r\n";
    let port = Short { numbers: (101, 512), flags: ACK, data: text, ..syn };
    world.pass(Side::Inside, &segment(port)).2
}

const READ: &str = "USER a\r\nPORT 203,0,113,1,";
const UNREAD: &str = "USER a\r\nPORT 10,0,0,5,";

#[test]
fn a_flow_stays_its_protocols_when_the_settings_change() {
    let mut others = ftp_at(2100);
    others.set(Kind::Irc, vec![21]);
    for (settings, at_21, at_2100) in [
        (AlgSettings::default(), UNREAD, UNREAD),
        (ftp_at(2100), UNREAD, READ),
        (others, UNREAD, READ),
    ] {
        let (mut world, external) = greeted();
        world.stage.renew(&settings, world.engine.config());
        let text = "PORT 10,0,0,5,200,13\r\n";
        let port = Short { from: CLIENT, to: SERVER, numbers: (101, 512), flags: ACK, data: text };
        let (_, _, heard) = world.pass(Side::Inside, &segment(port));
        assert!(heard.starts_with("PORT 203,0,113,1,"), "{heard}");
        let ack = 101 + heard.len() as u32;
        let reply = Short { from: SERVER, to: external, numbers: (512, ack), flags: ACK, data: "" };
        let out = world.send(Side::Outside, &segment(reply));
        assert_eq!(out[0].1[28..32], (101 + text.len() as u32).to_be_bytes());
        let heard = port_of(&mut world, "10.0.0.5:40001", SERVER);
        assert!(heard.starts_with(at_21), "{settings:?}: {heard}");
        let heard = port_of(&mut world, "10.0.0.5:40002", "198.51.100.2:2100");
        assert!(heard.starts_with(at_2100), "{settings:?}: {heard}");
        // The former port is forgotten with its last flow.
        assert!(!world.stage.former.is_off() && !world.stage.is_over());
        for _ in 0..8192 / 64 {
            let later = Timestamp(world.now.0 + 8_000_000_000_000);
            world.stage.sweep(&mut world.engine, later);
        }
        assert!(world.stage.former.is_off());
        assert!(world.stage.poll_expectation().is_some());
        while world.stage.poll_expectation().is_some() {}
        assert_eq!(world.stage.is_over(), settings.is_off());
    }
}

#[test]
fn a_closed_connection_does_not_begin_again_without_its_gateway() {
    let (mut world, external) = greeted();
    world.stage.renew(&AlgSettings::default(), world.engine.config());
    let reset = Short { from: SERVER, to: external, numbers: (512, 101), flags: 4, data: "" };
    world.send(Side::Outside, &segment(reset));
    let heard = port_of(&mut world, CLIENT, SERVER);
    assert!(heard.starts_with(UNREAD), "{heard}");
    world.stage.end_former();
    assert!(world.stage.former.is_off() && world.stage.payloads.flows() == 0);
}

#[test]
fn a_server_inside_stays_read_until_its_connection_ends() {
    let mut world = World::new();
    let remote = "198.51.100.2:40000";
    let syn =
        Short { from: remote, to: "203.0.113.1:2121", numbers: (500, 0), flags: SYN, data: "" };
    world.pass(Side::Outside, &segment(syn));
    world.stage.renew(&AlgSettings::default(), world.engine.config());
    let answer =
        Short { from: "10.0.0.80:21", to: remote, numbers: (100, 501), flags: SYN | ACK, data: "" };
    world.pass(Side::Inside, &segment(answer));
    let text = "220 ready\r\n227 Entering Passive Mode (10,0,0,80,4,1)\r\n";
    let reply = Short { numbers: (101, 501), flags: ACK, data: text, ..answer };
    let (_, _, heard) = world.pass(Side::Inside, &segment(reply));
    assert!(heard.starts_with("220 ready\r\n227 Entering Passive Mode (203,0,113,1,"), "{heard}");
    let ack = 101 + heard.len() as u32;
    let back = Short { numbers: (501, ack), flags: ACK, data: "NOOP\r\n", ..syn };
    let out = world.send(Side::Outside, &segment(back));
    assert_eq!(out[0].1[28..32], (101 + text.len() as u32).to_be_bytes());
}

#[test]
fn watched_ports_are_those_of_all_flows() {
    let (mut world, external) = greeted();
    let ends = [CLIENT, SERVER, external, "10.0.0.80:21", "203.0.113.1:2121", "10.0.0.6:53"];
    let ports = [21, 69, 2121, 5060, 40_000, 53, 80, 1];
    for is_changed in [false, true] {
        if is_changed {
            world.stage.renew(&ftp_at(53), world.engine.config());
        }
        let mut claimed = 0;
        for (from, to) in ends.iter().flat_map(|from| ends.iter().map(move |to| (from, to))) {
            for (source, destination) in
                ports.iter().flat_map(|one| ports.iter().map(move |other| (*one, *other)))
            {
                let [mut from, mut to] = [end(from), end(to)];
                if source != 1 {
                    from.set_port(source);
                }
                if destination != 1 {
                    to.set_port(destination);
                }
                for number in [protocol::TCP, protocol::UDP] {
                    let bytes = packet(
                        from,
                        to,
                        number,
                        16,
                        &[&from.port().to_be_bytes()[..], &to.port().to_be_bytes(), &[0; 16]]
                            .concat(),
                    );
                    for side in [Side::Inside, Side::Outside] {
                        // While a flow of former settings lasts, a packet from inside with a
                        // watched port may be of it.
                        let is_watched = world.stage.watched.may_have(&bytes);
                        let is_former = is_changed && side == Side::Inside;
                        let is_of =
                            world.stage.has_flow(side, &bytes) && (is_watched || !is_former);
                        assert_eq!(world.stage.claims(side, &bytes), is_of, "{from} > {to}");
                        claimed += usize::from(is_of);
                    }
                }
            }
        }
        assert!(claimed > 100, "{claimed}");
    }
    assert!(!world.stage.claims(Side::Inside, &[]) && !world.stage.claims(Side::Inside, &[0x45]));
}

#[test]
fn gateways_are_set_aside_and_taken_again() {
    let config = Config::default();
    let (mut aside, mut on) = (Aside::new([7; 32]), None);
    let off = AlgSettings::default();
    assert!(aside.renew(&mut on, None, &off, &config).is_none() && on.is_none());
    let spare = aside.renew(&mut on, Some(Algs::spare(&ftp_at(21))), &ftp_at(21), &config);
    assert!(spare.is_none());
    let counted = |on: &Option<Box<Algs>>| -> Vec<Kind> {
        on.iter().flat_map(|algs| algs.counters()).map(|(kind, _)| kind).collect()
    };
    assert_eq!(counted(&on), [Kind::Ftp]);
    aside.put(&mut on);
    assert!(on.is_some(), "it is on");
    aside.renew(&mut on, None, &off, &config);
    aside.put(&mut on);
    assert!(on.is_none());
    // The ones that were set aside are taken before new ones.
    let spare = aside.renew(&mut on, Some(Algs::spare(&ftp_at(21))), &ftp_at(21), &config);
    assert!(spare.is_some() && on.is_some());
}

#[test]
fn a_worker_has_room_for_as_many_flows_as_the_settings_say() {
    let mut settings = ftp_at(21);
    settings.set_flows(3);
    let mut world = World::of(&settings, 21, "203.0.113.1:2121".parse().unwrap());
    for client in 0..5 {
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 5), 40_000 + client);
        let from = Box::leak(from.to_string().into_boxed_str());
        let syn = Short { from, to: SERVER, numbers: (1, 0), flags: SYN, data: "" };
        assert_eq!(world.send(Side::Inside, &segment(syn)).len(), 1);
    }
    assert_eq!(world.stage.payloads.flows(), 3);
    let counters = world.stage.counters().find(|(kind, _)| *kind == Kind::Ftp).expect("it is on");
    assert_eq!(counters.1.refused[natgate_payload::Reason::NoFlow as usize], 2);
    assert_eq!(Algs::spare(&settings).stage.payloads.flows(), 0);
}

/// Rules for a client inside and for all servers outside, which name these protocols.
fn rules(client: Option<&[Kind]>, servers: Option<&[Kind]>) -> RuleSet {
    let rule = |matches, kinds: Option<&[Kind]>| Rule {
        mark: kinds.map_or(0, |kinds| RuleAlgs::of(kinds.iter().copied()).mark()),
        ..Rule::new(matches, RuleAction::Snat(0))
    };
    let own = Prefix::new(Ipv4Addr::new(10, 0, 0, 5), 32);
    let all = Prefix::new(Ipv4Addr::UNSPECIFIED, 0);
    let rules = [rule(Match::Source(own, 0), client), rule(Match::Destination(all, 21), servers)];
    RuleSet::new(&rules).expect("rules")
}

#[test]
fn the_best_rule_of_a_flow_says_which_protocols_take_it() {
    let (ftp, sip) = (Some(&[Kind::Ftp][..]), Some(&[Kind::Sip][..]));
    let left_out = |world: &World| {
        world.stage.payloads.counters(Kind::Ftp).refused[natgate_payload::Reason::Rule as usize]
    };
    for (client, servers, heard, count) in [
        (None, sip, READ, 0),
        (ftp, sip, READ, 0),
        (sip, ftp, UNREAD, 1),
        (Some(&[][..]), None, UNREAD, 1),
    ] {
        let mut world = World::new();
        world.engine.replace_rules(rules(client, servers)).expect("rules that fit");
        let told = port_of(&mut world, CLIENT, SERVER);
        assert!(told.starts_with(heard), "{client:?} {servers:?}: {told}");
        assert_eq!(left_out(&world), count);
        let syn = Short { from: "10.0.0.5:7", to: SERVER, numbers: (1, 0), flags: SYN, data: "" };
        let told = world.explain(Side::Inside, &segment(syn)).expect("a control flow");
        let is_read = told.flow == FlowState::Begins && told.refused.is_empty();
        let is_left_out = told.flow == FlowState::LeftOut && told.refused.len() == 1;
        assert!(if count == 0 { is_read } else { is_left_out }, "{told:?}");
    }
}

#[test]
fn a_known_flow_stays_its_protocols_when_a_rule_leaves_it_out() {
    let (mut world, _) = greeted();
    world.engine.replace_rules(rules(Some(&[]), None)).expect("rules that fit");
    let text = "PORT 10,0,0,5,200,13\r\n";
    let port = Short { from: CLIENT, to: SERVER, numbers: (101, 512), flags: ACK, data: text };
    assert!(world.pass(Side::Inside, &segment(port)).2.starts_with("PORT 203,0,113,1,"));
    assert!(port_of(&mut world, "10.0.0.5:40001", SERVER).starts_with(UNREAD));
}

#[test]
fn a_rule_of_a_server_inside_holds_for_its_clients() {
    for (kinds, count) in [(&[Kind::Ftp][..], 1), (&[], 0)] {
        let mut world = World::new();
        let server = Match::Source(Prefix::new(Ipv4Addr::new(10, 0, 0, 80), 32), 21);
        let mark = RuleAlgs::of(kinds.iter().copied()).mark();
        let rule = Rule { mark, ..Rule::new(server, RuleAction::Snat(0)) };
        world.engine.replace_rules(RuleSet::new(&[rule]).expect("a rule")).expect("it fits");
        let (from, to) = ("198.51.100.2:40000", "203.0.113.1:2121");
        let syn = Short { from, to, numbers: (500, 0), flags: SYN, data: "" };
        world.pass(Side::Outside, &segment(syn));
        assert_eq!(world.stage.payloads.flows(), count, "{kinds:?}");
    }
}

#[test]
fn addresses_have_counterparts_in_their_realm() {
    let world = World::new();
    let fixed = |realm, internal: [u8; 4], external: [u8; 4], ports| {
        let (own, other) = match ports {
            true => (Some(80), Some(8080)),
            false => (None, None),
        };
        let (internal, external) = ((internal.into(), own), (external.into(), other));
        StaticMapping { realm, internal, external, ..StaticMapping::default() }
    };
    let statics = vec![
        fixed(0, [10, 0, 0, 1], [203, 0, 113, 1], false),
        fixed(1, [10, 0, 0, 1], [203, 0, 113, 2], false),
        fixed(0, [10, 0, 0, 2], [203, 0, 113, 3], true),
        fixed(0, [10, 0, 0, 3], [203, 0, 113, 3], true),
        fixed(0, [10, 0, 0, 4], [203, 0, 113, 3], true),
        fixed(0, [10, 0, 0, 4], [203, 0, 113, 4], true),
    ];
    let mut settings = AlgSettings::default();
    let config = Config { statics, ..Config::default() };
    let off = Addresses::of(&config, &settings);
    settings.set(Kind::Dns, vec![53]);
    let on = Addresses::of(&config, &settings);
    let find = |all: &Addresses, realm, from, address: [u8; 4]| {
        let end = end("10.0.0.9:53");
        // Rules are asked in a realm that exists.
        let flow = Endpoints { realm, ..endpoints(0, end, end, end) };
        let found = all.counterpart((&world.engine, Host::Unnumbered), &flow, from, address.into());
        found.map(|found| (found.address.octets(), found.is_one_to_one))
    };
    let (inside, outside) = (Side::Inside, Side::Outside);
    assert_eq!(find(&off, 0, inside, [10, 0, 0, 1]), None);
    assert_eq!(find(&on, 0, inside, [10, 0, 0, 1]), Some(([203, 0, 113, 1], true)));
    assert_eq!(find(&on, 1, inside, [10, 0, 0, 1]), Some(([203, 0, 113, 2], true)));
    assert_eq!(find(&on, 0, outside, [203, 0, 113, 1]), Some(([10, 0, 0, 1], true)));
    // Another realm's address says nothing here.
    assert_eq!(find(&on, 1, outside, [203, 0, 113, 1]), None);
    assert_eq!(find(&on, 0, inside, [10, 0, 0, 2]), Some(([203, 0, 113, 3], false)));
    assert_eq!(find(&on, 0, inside, [10, 0, 0, 4]), None);
    assert_eq!(find(&on, 0, outside, [203, 0, 113, 3]), None);
    assert_eq!(find(&on, 0, inside, [192, 0, 2, 1]), None);
}

mod h323;
mod pptp;
mod realms;
