//! A host of H.323 inside and a real engine: connections of H.245 at any ports are read, and media
//! come in.

// The messages of the framework's own tests.
#[path = "../../../../../core/payload/tests/common/h323.rs"]
#[allow(dead_code, reason = "the tests use a part")]
mod messages;

use super::*;
use messages::{
    CONNECT_H245, DETERMINATION, OPEN, OPEN_ACK, OPEN_VIDEO, REGISTRATION, SETUP_H245,
    UNREGISTRATION, bytes,
};
use natgate_engine::Endpoint;

const CALLER: &str = "10.0.0.5:40000";
const CALLED: &str = "198.51.100.2:1720";
const STRANGER: &str = "198.51.100.3:1720";

fn world() -> World {
    let mut settings = AlgSettings::default();
    settings.set(Kind::H323, AlgSettings::usual_ports(Kind::H323).to_vec());
    World::of(&settings, 1721, end("203.0.113.1:1721"))
}

/// A connection: the ends of the host inside and of the other one, inside and outside, and the next
/// number of each side.
struct Connection {
    internal: SocketAddrV4,
    external: SocketAddrV4,
    remote: SocketAddrV4,
    sent: [u32; 2],
}

impl Connection {
    /// The ends of the connection as a side has them: its own, and the other's.
    fn ends(&self, from: Side) -> (SocketAddrV4, SocketAddrV4) {
        match from {
            Side::Inside => (self.internal, self.remote),
            Side::Outside => (self.remote, self.external),
        }
    }

    fn segment(&self, from: Side, flags: u8, data: &[u8]) -> Vec<u8> {
        let (own, other) = self.ends(from);
        let mut tcp = [own.port().to_be_bytes(), other.port().to_be_bytes()].concat();
        tcp.extend(self.sent[from as usize].to_be_bytes());
        let seen = self.sent[from.other() as usize];
        tcp.extend((if flags & ACK == 0 { 0 } else { seen }).to_be_bytes());
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(data);
        packet(own, other, protocol::TCP, 16, &tcp)
    }

    /// Opens a connection from a side.
    fn open(world: &mut World, by: Side, internal: &str, external: &str, remote: &str) -> Self {
        let [internal, external, remote] = [internal, external, remote].map(end);
        let mut one = Self { internal, external, remote, sent: [100, 500] };
        let (source, destination, _) = world.pass(by, &one.segment(by, SYN, b""));
        match by {
            Side::Inside => one.external = source,
            Side::Outside => assert_eq!(destination, internal),
        }
        one.sent[by as usize] += 1;
        world.pass(by.other(), &one.segment(by.other(), SYN | ACK, b""));
        one.sent[by.other() as usize] += 1;
        world.pass(by, &one.segment(by, ACK, b""));
        one
    }

    /// Has a side say a message; returns what leaves.
    fn say(&mut self, world: &mut World, from: Side, data: &[u8]) -> Vec<u8> {
        let out = world.send(from, &self.segment(from, ACK, data));
        self.sent[from as usize] += data.len() as u32;
        assert_eq!(out.len(), 1);
        out[0].1[40..].to_vec()
    }
}

/// The endpoint in the last six octets.
fn last(message: &[u8]) -> SocketAddrV4 {
    let six = &message[message.len() - 6..];
    SocketAddrV4::new(
        Ipv4Addr::new(six[0], six[1], six[2], six[3]),
        u16::from_be_bytes([six[4], six[5]]),
    )
}

/// Where a datagram from outside goes.
fn reaches(world: &mut World, from: &str, to: SocketAddrV4) -> Option<SocketAddrV4> {
    let from = end(from);
    let mut udp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    udp.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    let out = world.send(Side::Outside, &packet(from, to, protocol::UDP, 6, &udp));
    out.first().map(|(_, bytes)| Ends::read(bytes).expect("ends").destination)
}

/// The host opens a logical channel on a connection of H.245: its media come in.
fn channel_opens(world: &mut World, control: &mut Connection) {
    let first = bytes(DETERMINATION);
    assert_eq!(control.say(world, Side::Inside, &first), first);
    let heard = control.say(world, Side::Inside, &bytes(OPEN_ACK));
    let media = last(&heard);
    assert_eq!((*media.ip(), media.port() % 2), (Ipv4Addr::new(203, 0, 113, 1), 1), "{heard:x?}");
    assert_eq!(reaches(world, "198.51.100.2:6001", media), Some(end("10.0.0.5:5001")));
    // The other host's channel limits the media to its address.
    let other = messages::with(OPEN, &[("10.0.0.5:5001", "198.51.100.2:6001")]);
    assert_eq!(control.say(world, Side::Outside, &other), other);
    assert_eq!(reaches(world, "198.51.100.3:6001", media), None);
}

#[test]
fn a_connection_that_the_host_waits_for_is_read() {
    let mut world = world();
    let mut call = Connection::open(&mut world, Side::Inside, CALLER, "0.0.0.0:0", CALLED);
    let heard = call.say(&mut world, Side::Inside, &bytes(SETUP_H245));
    let own = messages::octets("10.0.0.5:41000");
    let at = bytes(SETUP_H245).windows(6).position(|six| six == own).expect("an endpoint");
    let control = last(&heard[..at + 6]);
    // A stranger cannot connect.
    let stranger = Connection {
        internal: end("10.0.0.5:41000"),
        external: control,
        remote: end(STRANGER),
        sent: [1, 1],
    };
    assert_eq!(world.send(Side::Outside, &stranger.segment(Side::Outside, SYN, b"")), []);
    let external = control.to_string();
    let (internal, remote) = ("10.0.0.5:41000", "198.51.100.2:40001");
    let mut control = Connection::open(&mut world, Side::Outside, internal, &external, remote);
    channel_opens(&mut world, &mut control);
}

#[test]
fn a_connection_that_the_other_host_waits_for_is_read() {
    let mut world = world();
    let mut call = Connection::open(&mut world, Side::Inside, CALLER, "0.0.0.0:0", CALLED);
    let connect = bytes(CONNECT_H245);
    assert_eq!(call.say(&mut world, Side::Outside, &connect), connect);
    let (internal, remote) = ("10.0.0.5:40002", "198.51.100.2:30000");
    let mut control = Connection::open(&mut world, Side::Inside, internal, "0.0.0.0:0", remote);
    channel_opens(&mut world, &mut control);
    // It is read as long as it lasts, and no new one behind the time.
    world.now = Timestamp(world.now.0 + 200_000_000_000);
    let now = world.now;
    world.stage.sweep(&mut world.engine, now);
    assert_ne!(control.say(&mut world, Side::Inside, &bytes(OPEN_VIDEO)), bytes(OPEN_VIDEO));
    // Another host's connection to the same server is not.
    let mut other =
        Connection::open(&mut world, Side::Inside, "10.0.0.6:40002", "0.0.0.0:0", remote);
    let open = messages::with(OPEN, &[("10.0.0.5:5001", "10.0.0.6:5001")]);
    assert_eq!(other.say(&mut world, Side::Inside, &open), open);
}

/// Another process reads a connection of H.245 that has begun, and one that has not.
#[test]
fn connections_of_h245_go_over_to_another_process() {
    let mut world = world();
    let mut call = Connection::open(&mut world, Side::Inside, CALLER, "0.0.0.0:0", CALLED);
    let said = bytes(SETUP_H245);
    let heard = call.say(&mut world, Side::Inside, &said);
    let at = said.windows(6).position(|six| six == messages::octets("10.0.0.5:41000"));
    let waiting = last(&heard[..at.expect("an endpoint") + 6]).to_string();
    call.say(&mut world, Side::Outside, &bytes(CONNECT_H245));
    let (internal, remote) = ("10.0.0.5:40002", "198.51.100.2:30000");
    let mut begun = Connection::open(&mut world, Side::Inside, internal, "0.0.0.0:0", remote);
    let first = bytes(DETERMINATION);
    assert_eq!(begun.say(&mut world, Side::Inside, &first), first);
    let saved = world.stage.saved_flows(world.engine.config(), natgate_ipv6::HostRealms::NONE);
    let mut heir = self::world().stage;
    heir.restore_flows((&mut world.engine, world.now), &saved, natgate_ipv6::HostRealms::NONE);
    assert_eq!(heir.payloads.flows(), 2);
    world.stage = heir;
    assert_ne!(begun.say(&mut world, Side::Inside, &bytes(OPEN_VIDEO)), bytes(OPEN_VIDEO));
    let (internal, remote) = ("10.0.0.5:41000", "198.51.100.2:40001");
    let mut other = Connection::open(&mut world, Side::Outside, internal, &waiting, remote);
    channel_opens(&mut world, &mut other);
}

#[test]
fn connections_of_h245_stay_read_when_the_protocol_is_turned_off() {
    let mut world = world();
    let mut call = Connection::open(&mut world, Side::Inside, CALLER, "0.0.0.0:0", CALLED);
    call.say(&mut world, Side::Inside, &bytes(SETUP_H245));
    call.say(&mut world, Side::Outside, &bytes(CONNECT_H245));
    let (internal, remote) = ("10.0.0.5:40002", "198.51.100.2:30000");
    let mut begun = Connection::open(&mut world, Side::Inside, internal, "0.0.0.0:0", remote);
    begun.say(&mut world, Side::Inside, &bytes(DETERMINATION));
    world.stage.renew(&AlgSettings::default(), world.engine.config());
    assert_ne!(begun.say(&mut world, Side::Inside, &bytes(OPEN_VIDEO)), bytes(OPEN_VIDEO));
}

/// The host sends a message of RAS to its gatekeeper. Returns what leaves.
fn tells_gatekeeper(world: &mut World, message: &[u8]) -> Vec<u8> {
    let (own, gatekeeper) = (end("10.0.0.5:1719"), end("198.51.100.2:1719"));
    let mut udp = [own.port().to_be_bytes(), gatekeeper.port().to_be_bytes()].concat();
    udp.extend((8 + message.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(message);
    let out = world.send(Side::Inside, &packet(own, gatekeeper, protocol::UDP, 6, &udp));
    out[0].1[28..].to_vec()
}

/// The host registers: its external endpoint for calls.
fn registers(world: &mut World) -> SocketAddrV4 {
    let message = bytes(REGISTRATION);
    let heard = tells_gatekeeper(world, &message);
    let at = message.windows(6).position(|six| six == messages::octets("10.0.0.5:1720"));
    last(&heard[..at.expect("an endpoint") + 6])
}

/// A request ends what it has registered: no further connection to its port is read.
#[test]
fn the_port_of_a_host_that_unregisters_is_not_read() {
    let mut world = world();
    let calls = registers(&mut world);
    let is_read = |world: &World| world.stage.further.has_server(protocol::TCP, calls);
    assert!(is_read(&world));
    tells_gatekeeper(&mut world, &bytes(UNREGISTRATION));
    world.now = Timestamp(world.now.0 + 1_000_000_000);
    let now = world.now;
    world.stage.sweep(&mut world.engine, now);
    assert!(!is_read(&world));
}

#[test]
fn a_registered_host_is_called_and_its_call_is_read() {
    let mut world = world();
    let calls = registers(&mut world);
    assert_eq!(*calls.ip(), Ipv4Addr::new(203, 0, 113, 1));
    let external = calls.to_string();
    let mut call =
        Connection::open(&mut world, Side::Outside, "10.0.0.5:1720", &external, "198.51.100.2:9");
    let said = messages::with(
        SETUP_H245,
        &[("198.51.100.2:1720", &external), ("10.0.0.5:41000", "198.51.100.2:41000")],
    );
    let heard = call.say(&mut world, Side::Outside, &said);
    let known = messages::octets("10.0.0.5:1720");
    assert!(heard.windows(6).any(|six| six == known), "{heard:x?}");
}

/// A world whose engine is that of a node of a pair.
fn paired() -> World {
    let (mut world, first) = (world(), Ipv4Addr::new(203, 0, 113, 1));
    world.stage.join_pair();
    let range = AddressRange { first, last: first };
    world.stage.set_part(0, &[range], Part::Alone, [None, None]);
    world
}

/// A server outside without a place, and its connection, are left out. The rest is copied.
#[test]
fn a_record_is_copied_without_the_servers_that_have_no_place() {
    let (mut world, mut heir) = (paired(), paired().stage);
    let mut call = Connection::open(&mut world, Side::Inside, CALLER, "0.0.0.0:0", CALLED);
    call.say(&mut world, Side::Outside, &bytes(CONNECT_H245));
    let (internal, remote) = ("10.0.0.5:40002", "198.51.100.2:30000");
    let control = Connection::open(&mut world, Side::Inside, internal, "0.0.0.0:0", remote);
    heir.fill_servers(*end(internal).ip());
    for (external, flows) in [(call.external, 1), (control.external, 0)] {
        let ends = Endpoint { address: *external.ip(), port: external.port() };
        let key = world.engine.copy_key(protocol::TCP, ends).expect("a mapping");
        let facts = world.engine.copy_facts(key).expect("a mapping");
        let (mut record, before) = (b"mapping".to_vec(), heir.flows());
        let mapping = ((protocol::TCP, ends, internal_of(&facts)), false);
        world.stage.add_flows(world.now, mapping, (0, 5), &mut record).expect("it goes along");
        let (_, told) = divide(&record).expect("a whole record");
        let mapping = (protocol::TCP, ends, facts);
        assert!(heir.copy_flows(&mut world.engine, world.now, mapping, told));
        assert_eq!(heir.flows() - before, flows);
    }
    assert!(!heir.further.is_client(*end(internal).ip(), end(remote), 0));
    let refused = heir.payloads.counters(Kind::H323).refused;
    assert_eq!(refused[natgate_payload::Reason::NoFlow as usize], 2);
}

/// A host has registered at an address of each node. This node reads calls by its own.
#[test]
fn a_copied_registration_does_not_end_that_of_this_nodes_own_address() {
    let (mut world, mut partner) = (paired(), paired());
    let own = registers(&mut world);
    let known = registers(&mut partner);
    let ends = Endpoint { address: *known.ip(), port: known.port() };
    let key = partner.engine.copy_key(protocol::TCP, ends).expect("a mapping");
    let facts = partner.engine.copy_facts(key).expect("a mapping");
    let mapping = ((protocol::TCP, ends, internal_of(&facts)), false);
    let mut record = b"mapping".to_vec();
    partner.stage.add_flows(world.now, mapping, (0, 5), &mut record).expect("it goes along");
    let (_, told) = divide(&record).expect("a whole record");
    let address = Ipv4Addr::new(203, 0, 113, 2);
    let mapping = (protocol::TCP, Endpoint { address, ..ends }, facts);
    let copied = SocketAddrV4::new(address, ends.port);
    let first = *own.ip();
    let range = AddressRange { first, last: first };
    for (part, reads) in [(Part::Alone, own), (Part::Owner, own), (Part::Partner, copied)] {
        world.stage.set_part(0, &[range], part, [None, None]);
        assert!(world.stage.copy_flows(&mut world.engine, world.now, mapping, told));
        let known = [own, copied].map(|end| world.stage.further.has_server(protocol::TCP, end));
        assert_eq!(known, [reads == own, reads == copied], "{part:?}");
    }
}

/// The record of a mapping, for the partner of a pair, is taken as a whole or not at all.
#[test]
fn no_damaged_record_of_a_mapping_is_taken() {
    let (mut world, mut heir) = (paired(), paired().stage);
    let mut call = Connection::open(&mut world, Side::Inside, CALLER, "0.0.0.0:0", CALLED);
    let said = bytes(SETUP_H245);
    let heard = call.say(&mut world, Side::Inside, &said);
    let own = messages::octets("10.0.0.5:41000");
    let at = said.windows(6).position(|six| six == own).expect("an endpoint");
    let waits = last(&heard[..at + 6]);
    call.say(&mut world, Side::Outside, &bytes(CONNECT_H245));
    for (external, flows) in [(waits, 0), (call.external, 1)] {
        let ends = Endpoint { address: *external.ip(), port: external.port() };
        let key = world.engine.copy_key(protocol::TCP, ends).expect("a mapping");
        let facts = world.engine.copy_facts(key).expect("a mapping");
        let mapping = (protocol::TCP, ends, internal_of(&facts));
        let print = |stage: &Stage| {
            let mut record = b"mapping".to_vec();
            let print = stage.add_flows(world.now, (mapping, false), (0, 5), &mut record);
            (print.expect("it goes along"), record)
        };
        let (wanted, record) = print(&world.stage);
        let (_, told) = divide(&record).expect("a whole record");
        let (of_flows, told) = told.expect("a server that a message has named");
        let config = world.engine.config().clone();
        let (engine, now) = (&mut world.engine, world.now);
        let mut takes = |heir: &mut Stage, told: &[u8]| {
            let mapping = (protocol::TCP, ends, facts);
            heir.copy_flows(engine, now, mapping, Some((of_flows, told)))
        };
        assert!(takes(&mut heir, told) && takes(&mut heir, told), "as often as it comes");
        assert_eq!((print_with(5, Some((of_flows, told))), heir.flows()), (wanted, flows));
        for len in 0..told.len() {
            assert!(!takes(&mut heir, &told[..len]), "{len} bytes");
            assert_eq!(heir.flows(), 0);
        }
        for at in 0..told.len() {
            for bit in [1, 0x80] {
                let mut other = told.to_vec();
                other[at] ^= bit;
                if takes(&mut heir, &other) {
                    // Times may be others.
                    let mut record = b"mapping".to_vec();
                    let print = heir.add_flows(now, (mapping, false), (0, 5), &mut record);
                    assert_eq!(print, Some(wanted), "byte {at}");
                }
            }
        }
        assert!(takes(&mut heir, told));
        // A partner with other gateways takes nothing.
        let mut settings = AlgSettings::default();
        settings.set(Kind::Ftp, vec![21]);
        heir.renew(&settings, &config);
        assert!(!takes(&mut heir, told));
        settings.set(Kind::H323, AlgSettings::usual_ports(Kind::H323).to_vec());
        heir.renew(&settings, &config);
    }
}
