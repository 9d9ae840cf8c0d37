//! Realms: subscribers with one address on several VLANs, and on a device of their own.

use super::world::{
    EXTERNAL, HOST, INSIDE, OUTSIDE, OWN_INSIDE, REMOTE, RecordingObserver, SERVER, SUBSCRIBER,
    World, answer, echo_request, ethernet, settings, side, to_outside, udp, view,
};
use natgate_engine::{DropReason, RealmConfig, Side, Timestamp};
use natgate_gateway::{
    CommandError, Commander, Link, Prepared, RealmSettings, Reconfigured, Route, Settings,
    SideSettings, Worker, commands,
};
use natgate_io::Device;
use natgate_io::memory::{self, Wire};
use natgate_wire::Udp;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

const FAR: Mac = Mac([2, 0, 0, 0, 3, 7]);

/// Realm 1 is VLAN 100, realm 2 VLAN 200, and realm 3 a device; all have the addresses of realm 0.
fn with_realms() -> Settings {
    let mut settings = settings();
    let (inside, engine) = side(OWN_INSIDE, 8);
    let device = settings.inside.device.clone();
    for (name, device, vlan) in
        [("one", &device[..], Some(100)), ("two", &device, Some(200)), ("three", "other", None)]
    {
        settings.engine.realms.push(RealmConfig {
            name: name.into(),
            inside: engine.clone(),
            subscribers: settings.engine.subscribers.clone(),
            ..RealmConfig::default()
        });
        let inside = SideSettings { device: device.into(), ..inside.clone() };
        settings.realms.push(RealmSettings {
            name: name.into(),
            inside,
            vlan,
            routes: Vec::new(),
            neighbors: Vec::new(),
        });
    }
    settings
}

/// Settings without one of the realms.
fn without(mut settings: Settings, name: &str) -> Settings {
    settings.engine.realms.retain(|realm| realm.name != name);
    settings.realms.retain(|realm| realm.name != name);
    settings
}

/// A gateway that takes commands, and its settings in force.
struct Commanded {
    world: World,
    commander: Option<Commander>,
    in_force: Settings,
    _wake: UnixStream,
}

impl Commanded {
    fn new(settings: &Settings) -> (Self, Wire) {
        let (wake, waker) = UnixStream::pair().expect("a pair of sockets");
        wake.set_nonblocking(true).expect("it can be set");
        let (commander, commands) = commands(waker);
        let (mut world, other) = world(settings);
        world.worker.obey(commands);
        let (in_force, commander) = (settings.clone(), Some(commander));
        (Self { world, commander, in_force, _wake: wake }, other)
    }

    /// Puts other settings in force, as the control plane does. A new device is `device`.
    fn reload(
        &mut self,
        new: Settings,
        device: Option<Box<dyn Device>>,
    ) -> Result<Reconfigured, CommandError> {
        let commander = self.commander.take().expect("nobody else gives commands");
        let in_force = self.in_force.clone();
        let asked = thread::spawn(move || {
            let device = Cell::new(device);
            let numbered = commander.numbered().expect("the gateway answers");
            let mut prepared =
                Prepared::new(&in_force, numbered, new).expect("the settings are right");
            let open = |name: &str| {
                let device = device.take().ok_or(format!("{name} is not expected"));
                device.map(|device| vec![device])
            };
            prepared.open(open).expect("the device is there");
            let settings = prepared.settings().clone();
            let done = commander.reconfigure(prepared);
            (commander, settings, done)
        });
        while !asked.is_finished() {
            self.world.turn();
        }
        let (commander, settings, done) = asked.join().expect("it goes on to the end");
        self.commander = Some(commander);
        if done.is_ok() {
            self.in_force = settings;
        }
        done
    }

    /// External port of a packet that a VLAN's subscriber sends.
    fn port(&mut self, vlan: u16) -> u16 {
        let frame = ethernet(INSIDE, HOST, &udp((SUBSCRIBER, 4000), (REMOTE, 53), b"out"));
        self.world.inside.send(&tagged(vlan, &frame));
        source_port(&self.world.next_outside())
    }

    /// VLAN on which an answer to a port arrives.
    fn answer(&mut self, port: u16) -> Option<u16> {
        let packet = udp((REMOTE, 53), (EXTERNAL, port), b"back");
        self.world.outside.send(&to_outside(&packet));
        let wire = self.world.inside.clone();
        next(&mut self.world, &wire, HOST).0
    }

    /// Numbers of the realms in the status.
    fn realms(&mut self) -> Vec<u16> {
        let now = self.world.now;
        self.world.worker.status(now).realms.iter().map(|(realm, _)| *realm).collect()
    }
}

/// A world with a third cable.
fn world(settings: &Settings) -> (World, Wire) {
    let (inside_device, inside) = memory::pair("in", INSIDE);
    let (outside_device, outside) = memory::pair("out", OUTSIDE);
    let (other_device, other) = memory::pair("other", FAR);
    let devices: [Box<dyn Device>; 3] =
        [Box::new(inside_device), Box::new(outside_device), Box::new(other_device)];
    let now = Timestamp(1_000_000_000_000);
    let worker = Worker::new(settings, [7; 32], devices, now).expect("the settings are right");
    (World { worker, inside, outside, now, observer: RecordingObserver::default() }, other)
}

/// Adds a tag to a frame.
fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let [high, low] = vlan.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

/// VLAN of a frame, and the frame without its tag.
fn untagged(frame: &[u8]) -> (Option<u16>, Vec<u8>) {
    match frame[12..14] {
        [0x81, 0] => {
            let vlan = u16::from_be_bytes([frame[14], frame[15]]);
            (Some(vlan), [&frame[..12], &frame[16..]].concat())
        }
        _ => (None, frame.to_vec()),
    }
}

/// Next packet on a cable and its VLAN. The host there answers ARP in its VLAN.
fn next(world: &mut World, wire: &Wire, host: Mac) -> (Option<u16>, Vec<u8>) {
    for _ in 0..4 {
        world.turn();
        while let Some(frame) = wire.take() {
            let (vlan, frame) = untagged(&frame);
            let (to, _, kind) = arp::read_ethernet(&frame).expect("a frame");
            if kind == ethertype::IPV4 {
                assert_eq!(to, host);
                return (vlan, frame[ETHERNET_LEN..].to_vec());
            }
            let reply = answer(&frame, host);
            wire.send(&vlan.map_or(reply.clone(), |vlan| tagged(vlan, &reply)));
        }
    }
    panic!("no packet came out");
}

fn source_port(packet: &[u8]) -> u16 {
    Udp::new_checked(view(packet).payload()).expect("UDP").source_port()
}

#[test]
fn one_address_on_three_links_is_three_subscribers() {
    let (mut world, other) = world(&with_realms());
    let packet = udp((SUBSCRIBER, 4000), (REMOTE, 53), b"out");
    let frame = ethernet(INSIDE, HOST, &packet);
    world.inside.send(&frame);
    world.inside.send(&tagged(100, &frame));
    world.inside.send(&tagged(200, &frame));
    other.send(&ethernet(FAR, HOST, &packet));
    let mut ports = Vec::new();
    for _ in 0..4 {
        ports.push(source_port(&world.next_outside()));
    }
    let mut expected = Vec::new();
    for _ in 0..2 {
        // The first answers cause an ARP request for the subscriber on each link; the second find
        // it there.
        for (number, port) in ports.iter().enumerate() {
            let packet = udp((REMOTE, 53), (EXTERNAL, *port), &[number as u8]);
            world.outside.send(&to_outside(&packet));
            let wire = if number == 3 { other.clone() } else { world.inside.clone() };
            let (vlan, packet) = next(&mut world, &wire, HOST);
            assert_eq!(view(&packet).destination(), SUBSCRIBER.to_bits());
            assert_eq!(packet.last(), Some(&(number as u8)));
            expected.push(vlan);
        }
    }
    let vlans = [None, Some(100), Some(200), None];
    assert_eq!(expected, [vlans, vlans].concat());
    let status = world.worker.status(world.now);
    let known = |neighbors: &[natgate_gateway::router::NeighborInfo]| {
        neighbors.iter().map(|neighbor| neighbor.address).collect::<Vec<_>>()
    };
    assert_eq!(known(&status.sides[0].neighbors), [SUBSCRIBER]);
    for (_, realm) in &status.realms {
        assert_eq!(known(&realm.neighbors), [SUBSCRIBER]);
    }
    assert_eq!(status.realms[2].1.link.name, "other");
}

#[test]
fn the_gateway_is_there_in_every_realm() {
    let (mut world, _) = world(&with_realms());
    for vlan in [100, 200] {
        let ping = ethernet(INSIDE, HOST, &echo_request(SUBSCRIBER, OWN_INSIDE));
        world.inside.send(&tagged(vlan, &ping));
        let wire = world.inside.clone();
        let (seen, packet) = next(&mut world, &wire, HOST);
        assert_eq!(seen, Some(vlan));
        assert_eq!(view(&packet).source(), OWN_INSIDE.to_bits());
    }
}

#[test]
fn a_frame_of_no_realm_is_dropped() {
    let (mut world, _) = world(&with_realms());
    let frame = ethernet(INSIDE, HOST, &udp((SUBSCRIBER, 4000), (REMOTE, 53), b"out"));
    world.inside.send(&tagged(300, &frame));
    world.turn();
    assert_eq!(world.drops(DropReason::UnknownRealm), 1);
    assert!(world.outside.take().is_none());
}

#[test]
fn what_cannot_be_delivered_is_told_in_its_realm() {
    let (mut world, _) = world(&with_realms());
    // No host outside answers ARP; then the sender gets an error, in its VLAN.
    let nobody = Ipv4Addr::new(192, 0, 2, 77);
    let frame = ethernet(INSIDE, HOST, &udp((SUBSCRIBER, 4000), (nobody, 53), b"out"));
    world.inside.send(&tagged(200, &frame));
    world.turn();
    for _ in 0..4 {
        world.pass(Duration::from_secs(1));
    }
    let wire = world.inside.clone();
    let (vlan, packet) = next(&mut world, &wire, HOST);
    assert_eq!((vlan, packet[20], packet[21]), (Some(200), 3, 1));
    assert_eq!(view(&packet).source(), OWN_INSIDE.to_bits());
}

#[test]
fn routes_are_each_realms_own() {
    let mut settings = with_realms();
    let router = Ipv4Addr::new(10, 0, 0, 254);
    let beyond = Ipv4Addr::new(172, 16, 0, 5);
    let prefix = natgate_engine::Prefix::new(beyond, 24);
    settings.realms[0].routes = vec![Route { prefix, via: router, side: Side::Inside }];
    let (mut world, _) = world(&settings);
    let frame = ethernet(INSIDE, HOST, &udp((beyond, 4000), (REMOTE, 53), b"out"));
    let wire = world.inside.clone();
    world.inside.send(&tagged(100, &frame));
    let port = source_port(&world.next_outside());
    world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"back")));
    assert_eq!(next(&mut world, &wire, SERVER).0, Some(100));
    assert!(
        world.worker.status(world.now).realms[0].1.neighbors.iter().any(|n| n.address == router)
    );
    world.inside.send(&tagged(200, &frame));
    let port = source_port(&world.next_outside());
    world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"back")));
    world.turn();
    assert_eq!(world.drops(DropReason::NoRoute), 1);
}

#[test]
fn realms_come_and_go_while_packets_flow() {
    let one = || without(with_realms(), "three");
    let (mut gateway, _) = Commanded::new(&with_realms());
    let ports = [100, 200].map(|vlan| gateway.port(vlan));
    assert_eq!(gateway.realms(), [1, 2, 3]);
    // A device that is no longer needed is removed, and so is a VLAN.
    let done = gateway.reload(without(one(), "one"), None).expect("it is put in force");
    assert_eq!((done.stayed, done.went), (1, [1, 0, 0, 0]));
    assert_eq!((gateway.realms(), gateway.world.worker.devices().len()), (vec![2], 2));
    assert_eq!(gateway.answer(ports[1]), Some(200));
    assert_eq!(gateway.port(200), ports[1]);
    let frame = ethernet(INSIDE, HOST, &udp((SUBSCRIBER, 4000), (REMOTE, 53), b"out"));
    gateway.world.inside.send(&tagged(100, &frame));
    gateway.world.turn();
    assert_eq!(gateway.world.drops(DropReason::UnknownRealm), 1);
    // A new realm comes before the present one, and has a VLAN at once.
    let mut new = without(one(), "one");
    let mut four = one();
    (four.engine.realms[0].name, four.realms[0].name) = ("four".into(), "four".into());
    new.engine.realms.insert(0, four.engine.realms[0].clone());
    new.realms.insert(0, RealmSettings { vlan: Some(400), ..four.realms[0].clone() });
    let done = gateway.reload(new.clone(), None).expect("it is put in force");
    assert_eq!((done.stayed, done.went), (1, [0; 4]));
    // The gateway's address is announced to neighbours.
    let announced: Vec<Option<u16>> = std::iter::from_fn(|| gateway.world.inside.take())
        .map(|frame| untagged(&frame).0)
        .collect();
    assert_eq!(announced, [Some(400)]);
    assert_eq!(gateway.realms(), [2, 4]);
    let port = gateway.port(400);
    assert_ne!(port, ports[1]);
    assert_eq!([gateway.answer(port), gateway.answer(ports[1])], [Some(400), Some(200)]);
    // A realm moves to another VLAN, with its mappings.
    new.realms[1].vlan = Some(201);
    let done = gateway.reload(new, None).expect("it is put in force");
    assert_eq!((done.stayed, done.went), (2, [0; 4]));
    assert_eq!(gateway.answer(ports[1]), Some(201));
    assert_eq!(gateway.port(201), ports[1]);
}

#[test]
fn a_realm_brings_a_device_and_is_refused_one_that_carries_less() {
    let small = || without(with_realms(), "three");
    let (mut gateway, _) = Commanded::new(&with_realms());
    gateway.reload(small(), None).expect("it is put in force");
    let (device, other) = memory::pair("other", FAR);
    let mut long = with_realms();
    long.realms[2].inside.mtu = 9000;
    long.engine.realms[2].inside.mtu = Some(9000);
    let refused = gateway.reload(long, Some(Box::new(device))).expect_err("it is refused");
    let message = refused.to_string();
    assert!(message.contains("realm[2]") && message.contains("\"other\""), "{message}");
    assert_eq!(gateway.world.worker.devices().len(), 2);
    drop(other);
    let (device, other) = memory::pair("other", FAR);
    gateway.reload(with_realms(), Some(Box::new(device))).expect("it is put in force");
    let frame = ethernet(FAR, HOST, &udp((SUBSCRIBER, 4000), (REMOTE, 53), b"out"));
    other.send(&frame);
    let port = source_port(&gateway.world.next_outside());
    let packet = udp((REMOTE, 53), (EXTERNAL, port), b"back");
    gateway.world.outside.send(&to_outside(&packet));
    assert_eq!(next(&mut gateway.world, &other, HOST).0, None);
}

#[test]
fn routes_and_the_next_hop_of_a_realm_change_and_its_neighbors_stay_known() {
    let (mut gateway, _) = Commanded::new(&with_realms());
    let beyond = Ipv4Addr::new(172, 16, 0, 5);
    let router = Ipv4Addr::new(10, 0, 0, 254);
    let known = gateway.port(100);
    assert_eq!(gateway.answer(known), Some(100));
    let frame = ethernet(INSIDE, HOST, &udp((beyond, 4000), (REMOTE, 53), b"out"));
    gateway.world.inside.send(&tagged(100, &frame));
    let port = source_port(&gateway.world.next_outside());
    let back = to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"back"));
    gateway.world.outside.send(&back);
    gateway.world.turn();
    assert_eq!(gateway.world.drops(DropReason::NoRoute), 1);
    let mut routed = with_realms();
    let prefix = natgate_engine::Prefix::new(beyond, 24);
    routed.realms[0].routes = vec![Route { prefix, via: router, side: Side::Inside }];
    gateway.reload(routed, None).expect("it is put in force");
    gateway.world.outside.send(&back);
    let wire = gateway.world.inside.clone();
    assert_eq!(next(&mut gateway.world, &wire, SERVER).0, Some(100));
    let now = gateway.world.now;
    let neighbors = &gateway.world.worker.status(now).realms[0].1.neighbors;
    let addresses: Vec<Ipv4Addr> = neighbors.iter().map(|one| one.address).collect();
    assert_eq!(addresses, [SUBSCRIBER, router]);
}

#[test]
fn names_of_links() {
    assert_eq!(Link::from(Side::Inside), Link::inside(0));
    assert_eq!(Link::new(Side::Outside, 7), Link::OUTSIDE);
}
