//! A gateway between two cables in memory and in virtual time: frames in, frames out.

use natgate_engine::{
    AddressRange, Change as StateChange, Config, Direction, DropReason, Event, Outcome, PoolConfig,
    Prefix, Side, SideConfig, Timestamp,
};
use natgate_gateway::{Backend, Observer, Settings, SideSettings, Status, Worker};
use natgate_io::memory::{self, QUEUE, Wire};
use natgate_io::{Change, Device, LinkInfo};
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::checksum;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::{ICMP, UDP};
use natgate_wire::{Icmp, Ipv4, Udp};
use std::net::Ipv4Addr;
use std::time::Duration;

const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const HOST: Mac = Mac([2, 0, 0, 0, 1, 5]);
const SERVER: Mac = Mac([2, 0, 0, 0, 2, 9]);

const OWN_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SUBSCRIBER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn side(address: Ipv4Addr, len: u8) -> (SideSettings, SideConfig) {
    let settings = SideSettings {
        device: format!("{address}"),
        backend: Backend::AfPacket,
        address: Some((address, len)),
        gateway: None,
        mtu: 1500,
    };
    let network = Some(Prefix::new(address, len));
    (settings, SideConfig { address: Some(address), network, mtu: None })
}

fn settings() -> Settings {
    let (inside, engine_inside) = side(OWN_INSIDE, 8);
    let (outside, engine_outside) = side(OWN_OUTSIDE, 24);
    let range = AddressRange { first: EXTERNAL, last: EXTERNAL };
    let pool = PoolConfig { name: "default".into(), addresses: vec![range], ports: (1024, 65535) };
    let engine = Config {
        inside: engine_inside,
        outside: engine_outside,
        pools: vec![pool],
        ..Config::default()
    };
    Settings { engine, inside, outside, routes: Vec::new() }
}

/// What the gateway tells.
#[derive(Debug, Default)]
struct Told {
    events: Vec<Event>,
    links: Vec<(Side, bool)>,
}

impl Observer for Told {
    fn event(&mut self, event: &Event) {
        self.events.push(*event);
    }

    fn link(&mut self, side: Side, link: &LinkInfo, _: &Change) {
        self.links.push((side, link.up));
    }

    fn status(&mut self, _: &Status<'_>) {}

    fn idle(&mut self) {}
}

/// A gateway, both its cables, and hosts that answer ARP on them.
struct World {
    worker: Worker,
    inside: Wire,
    outside: Wire,
    now: Timestamp,
    told: Told,
}

impl World {
    fn new() -> Self {
        let (inside_device, inside) = memory::pair("in", INSIDE);
        let (outside_device, outside) = memory::pair("out", OUTSIDE);
        let devices: [Box<dyn Device>; 2] = [Box::new(inside_device), Box::new(outside_device)];
        let now = Timestamp(1_000_000_000_000);
        let worker =
            Worker::new(&settings(), [7; 32], devices, now).expect("the settings are right");
        Self { worker, inside, outside, now, told: Told::default() }
    }

    /// A gateway whose neighbours are known: the hosts have spoken through it.
    fn acquainted() -> (Self, u16) {
        let mut world = Self::new();
        world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first")));
        let packet = world.next_outside();
        let port = Udp::new_checked(view(&packet).payload()).expect("UDP").source_port();
        world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"reply")));
        world.next_inside();
        (world, port)
    }

    fn turn(&mut self) {
        self.worker.turn(self.now, &mut self.told);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.turn();
    }

    /// The next IP packet that leaves outside, the server there answering ARP.
    fn next_outside(&mut self) -> Vec<u8> {
        self.next(|world| &world.outside, SERVER)
    }

    /// The next IP packet that leaves inside, the subscriber there answering ARP.
    fn next_inside(&mut self) -> Vec<u8> {
        self.next(|world| &world.inside, HOST)
    }

    fn next(&mut self, wire: impl Fn(&Self) -> &Wire, host: Mac) -> Vec<u8> {
        for _ in 0..4 {
            self.turn();
            while let Some(frame) = wire(self).take() {
                let (_, _, kind) = arp::read_ethernet(&frame).expect("a frame");
                if kind == ethertype::IPV4 {
                    assert_eq!(arp::read_ethernet(&frame).map(|(to, ..)| to), Some(host));
                    return frame[ETHERNET_LEN..].to_vec();
                }
                wire(self).send(&answer(&frame, host));
            }
        }
        panic!("no packet came out");
    }

    fn drops(&mut self, reason: DropReason) -> u64 {
        self.worker.status(self.now).counters.drops[reason as usize]
    }

    fn packets(&mut self, direction: Direction, outcome: Outcome) -> u64 {
        self.worker.status(self.now).counters.packets[direction as usize][outcome as usize]
    }
}

/// A host's answer to an ARP request.
fn answer(frame: &[u8], host: Mac) -> Vec<u8> {
    let asked = Arp::new_checked(&frame[ETHERNET_LEN..]).expect("ARP").repr();
    assert_eq!(asked.operation, Operation::Request);
    let reply = Repr {
        operation: Operation::Reply,
        sender_mac: host,
        sender: asked.target,
        target_mac: asked.sender_mac,
        target: asked.sender,
    };
    reply.frame(asked.sender_mac).to_vec()
}

fn ethernet(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    let mut header = [0; ETHERNET_LEN];
    arp::write_ethernet(&mut header, to, from, ethertype::IPV4);
    [&header, packet].concat()
}

fn to_inside(packet: &[u8]) -> Vec<u8> {
    ethernet(INSIDE, HOST, packet)
}

fn to_outside(packet: &[u8]) -> Vec<u8> {
    ethernet(OUTSIDE, SERVER, packet)
}

fn view(packet: &[u8]) -> Ipv4<&[u8]> {
    Ipv4::new_checked(packet).expect("an IPv4 packet")
}

fn ip(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes.extend(payload);
    let len = bytes.len() as u16;
    let mut packet = Ipv4::init(&mut bytes[..], 20);
    packet.set_total_len(len);
    packet.set_ttl(64);
    packet.set_protocol(protocol);
    packet.set_source(from.to_bits());
    packet.set_destination(to.to_bits());
    packet.fill_checksum();
    bytes
}

fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let mut datagram = Vec::new();
    for field in [from.1, to.1, len, 0] {
        datagram.extend(field.to_be_bytes());
    }
    datagram.extend(payload);
    let pseudo = checksum::pseudo_header(from.0.to_bits(), to.0.to_bits(), UDP, len);
    let sum = !checksum::fold(checksum::sum(&datagram, pseudo));
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    ip(UDP, from.0, to.0, &datagram)
}

fn echo_request(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0, 77, 0, 1];
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(ICMP, from, to, &message)
}

fn udp_valid(packet: &[u8]) -> bool {
    let packet = view(packet);
    let payload = packet.payload();
    let pseudo =
        checksum::pseudo_header(packet.source(), packet.destination(), UDP, payload.len() as u16);
    packet.checksum_valid() && checksum::fold(checksum::sum(payload, pseudo)) == 0xffff
}

#[test]
fn a_packet_goes_out_translated_and_the_reply_comes_back() {
    let mut world = World::new();
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"question")));
    let sent = world.next_outside();
    assert!(udp_valid(&sent));
    let packet = view(&sent);
    assert_eq!((packet.source(), packet.destination()), (EXTERNAL.to_bits(), REMOTE.to_bits()));
    assert_eq!((packet.ttl(), &packet.payload()[8..]), (63, &b"question"[..]));
    let port = Udp::new_checked(packet.payload()).expect("UDP").source_port();

    world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"reply")));
    let got = world.next_inside();
    assert!(udp_valid(&got));
    assert_eq!(view(&got).destination(), SUBSCRIBER.to_bits());
    assert_eq!(Udp::new_checked(view(&got).payload()).expect("UDP").destination_port(), 4000);
    assert_eq!(view(&got).payload()[8..], *b"reply");

    let created = |event: &Event| matches!(event.change, StateChange::MappingCreated(_));
    assert!(world.told.events.len() == 1 && world.told.events.iter().all(created));
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), 1);
    assert_eq!(world.packets(Direction::Inbound, Outcome::Forwarded), 1);
}

#[test]
fn the_gateway_answers_ping_and_arp_on_both_sides() {
    let mut world = World::new();
    let asks = |sender, mac, target| {
        let (operation, target_mac) = (Operation::Request, Mac::default());
        let request = Repr { operation, sender_mac: mac, sender, target_mac, target };
        request.frame(Mac::BROADCAST).to_vec()
    };
    for (target, answered) in [(OWN_OUTSIDE, true), (EXTERNAL, true), (OWN_INSIDE, false)] {
        world.outside.send(&asks(REMOTE, SERVER, target));
        world.turn();
        assert_eq!(world.outside.take().is_some(), answered, "{target}");
    }
    world.inside.send(&to_inside(&echo_request(SUBSCRIBER, OWN_INSIDE)));
    let reply = world.next_inside();
    let packet = view(&reply);
    assert_eq!(
        (packet.source(), packet.destination()),
        (OWN_INSIDE.to_bits(), SUBSCRIBER.to_bits())
    );
    assert_eq!(Icmp::new_checked(packet.payload()).expect("ICMP").kind(), 0);
    world.outside.send(&to_outside(&echo_request(REMOTE, OWN_OUTSIDE)));
    assert_eq!(view(&world.next_outside()).source(), OWN_OUTSIDE.to_bits());
    assert_eq!(world.packets(Direction::Local, Outcome::Replied), 2);
}

#[test]
fn subscribers_reach_each_other_by_external_endpoints() {
    let (mut world, port) = World::acquainted();
    let other = Ipv4Addr::new(10, 0, 0, 6);
    world.inside.send(&to_inside(&udp((other, 5000), (EXTERNAL, port), b"hairpin")));
    let got = world.next_inside();
    assert!(udp_valid(&got));
    let packet = view(&got);
    assert_eq!((packet.source(), packet.destination()), (EXTERNAL.to_bits(), SUBSCRIBER.to_bits()));
    assert_eq!(world.packets(Direction::Hairpin, Outcome::Forwarded), 1);
}

#[test]
fn errors_of_the_gateways_own_reach_the_sender() {
    let (mut world, _) = World::acquainted();
    let mut dying = udp((SUBSCRIBER, 4000), (REMOTE, 53), b"old");
    let mut packet = Ipv4::new_checked(&mut dying[..]).expect("a packet");
    packet.set_ttl(1);
    packet.fill_checksum();
    world.inside.send(&to_inside(&dying));
    let error = world.next_inside();
    let packet = view(&error);
    assert_eq!(
        (packet.source(), packet.destination()),
        (OWN_INSIDE.to_bits(), SUBSCRIBER.to_bits())
    );
    assert_eq!(Icmp::new_checked(packet.payload()).expect("ICMP").kind(), 11);
    assert_eq!(world.drops(DropReason::TtlExceeded), 1);
}

#[test]
fn a_next_hop_that_never_answers_makes_a_drop_of_a_forwarded_packet() {
    let mut world = World::new();
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"lost")));
    world.turn();
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), 1);
    for _ in 0..3 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.drops(DropReason::NoNeighbor), 1);
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), 0);
    assert_eq!(world.packets(Direction::Outbound, Outcome::Dropped), 1);
}

#[test]
fn a_destination_without_a_route_makes_a_drop() {
    let mut world = World::new();
    let nowhere = Ipv4Addr::new(8, 8, 8, 8);
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (nowhere, 53), b"lost")));
    world.turn();
    assert_eq!(world.drops(DropReason::NoRoute), 1);
}

#[test]
fn a_full_device_makes_drops() {
    let (mut world, _) = World::acquainted();
    for number in 0..QUEUE + 10 {
        let payload = number.to_be_bytes();
        world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), &payload)));
        world.turn();
    }
    assert_eq!(world.drops(DropReason::TransmitFull), 10);
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), QUEUE as u64 + 1);
}

#[test]
fn frames_that_are_not_for_the_gateway_are_not_translated() {
    let (mut world, _) = World::acquainted();
    let packet = udp((SUBSCRIBER, 4000), (REMOTE, 53), b"x");
    for to in [Mac::BROADCAST, HOST, Mac([1, 0, 0x5e, 0, 0, 1])] {
        world.inside.send(&ethernet(to, HOST, &packet));
    }
    let mut ipv6 = ethernet(INSIDE, HOST, &[0x60; 40]);
    ipv6[12..14].copy_from_slice(&ethertype::IPV6.to_be_bytes());
    world.inside.send(&ipv6);
    let mut tagged = to_inside(&packet);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    world.inside.send(&tagged);
    world.inside.send(&[1, 2, 3]);
    world.inside.send(&[]);
    world.turn();
    assert_eq!(world.outside.take(), None);
    assert_eq!(world.worker.status(world.now).not_addressed, 3);
    assert_eq!(world.drops(DropReason::NotIpv4), 4);
}

#[test]
fn padding_after_the_packet_is_cut_off() {
    let (mut world, _) = World::acquainted();
    let packet = udp((SUBSCRIBER, 4000), (REMOTE, 53), b"x");
    let mut frame = to_inside(&packet);
    frame.resize(60, 0xee);
    world.inside.send(&frame);
    assert_eq!(world.next_outside().len(), packet.len());
}

#[test]
fn full_batches_pass_whole_and_in_order() {
    let (mut world, _) = World::acquainted();
    for number in 0..200_u32 {
        let payload = number.to_be_bytes();
        world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), &payload)));
    }
    (0..4).for_each(|_| world.turn());
    let sent: Vec<_> = std::iter::from_fn(|| world.outside.take())
        .map(|frame| u32::from_be_bytes(frame[42..46].try_into().expect("four bytes")))
        .collect();
    assert_eq!(sent, (0..200).collect::<Vec<_>>());
}

#[test]
fn a_link_that_was_down_is_used_again_and_mappings_stay() {
    let (mut world, port) = World::acquainted();
    world.outside.set_up(false);
    world.pass(Duration::from_secs(1));
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"lost")));
    world.turn();
    assert_eq!(world.drops(DropReason::TransmitFull), 1);
    world.outside.set_up(true);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.told.links, [(Side::Outside, false), (Side::Outside, true)]);
    world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"again")));
    assert_eq!(view(&world.next_inside()).payload()[8..], *b"again");
}

#[test]
fn mappings_expire_with_time_alone() {
    let (mut world, _) = World::acquainted();
    let mut turns = 0;
    while world.told.events.len() < 2 {
        // As the loop does: sleep until something is due.
        let deadline = world.worker.next_deadline();
        assert!(deadline > world.now, "the loop would spin");
        world.now = deadline;
        world.turn();
        while let Some(frame) = world.outside.take() {
            world.outside.send(&answer(&frame, SERVER));
        }
        turns += 1;
        assert!(turns < 5000, "the mapping never went");
    }
    assert!(matches!(world.told.events[1].change, StateChange::MappingRemoved(_)));
    let lived = world.told.events[1].time.since(world.told.events[0].time);
    assert!((300..=301).contains(&lived.as_secs()), "{lived:?}");
}

#[test]
fn a_device_that_carries_less_than_configured_is_refused() {
    let mut settings = settings();
    settings.outside.mtu = 9000;
    let device = |name, mac| -> Box<dyn Device> { Box::new(memory::pair(name, mac).0) };
    let devices = [device("in", INSIDE), device("out", OUTSIDE)];
    let Err(error) = Worker::new(&settings, [0; 32], devices, Timestamp(0)) else {
        panic!("accepted");
    };
    assert!(error.to_string().starts_with("outside.mtu is 9000, but device \"out\" carries 1500"));
}
