//! A gateway between two cables in memory, hosts that answer ARP on them, and a clock that the test
//! sets.
//!
//! Inside is 10.0.0.0/8 with the hardware of one subscriber, outside 192.0.2.0/24 with that of one
//! server. The one external address is 203.0.113.1. A test writes frames to a cable and reads the
//! frames that come out of the other.

use natgate_engine::{
    AddressRange, Config, Direction, DropReason, Event, Outcome, PoolConfig, Prefix, Side,
    SideConfig, Timestamp,
};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{AlgExpectation, Observer, Settings, SideSettings, Status, Worker};
use natgate_io::memory::{self, Wire};
use natgate_io::{Change, Device, LinkInfo};
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::checksum;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::{ICMP, UDP};
use natgate_wire::{Ipv4, Udp};
use std::net::Ipv4Addr;
use std::time::Duration;

pub(crate) const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);
pub(crate) const HOST: Mac = Mac([2, 0, 0, 0, 1, 5]);
pub(crate) const SERVER: Mac = Mac([2, 0, 0, 0, 2, 9]);

pub(crate) const OWN_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const OWN_OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const SUBSCRIBER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
pub(crate) const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
pub(crate) const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

pub(crate) fn side(address: Ipv4Addr, len: u8) -> (SideSettings, SideConfig) {
    let settings =
        SideSettings { address: Some((address, len)), ..SideSettings::new(address.to_string()) };
    let network = Some(Prefix::new(address, len));
    (settings, SideConfig { address: Some(address), network, ..SideConfig::default() })
}

pub(crate) fn settings() -> Settings {
    let (inside, engine_inside) = side(OWN_INSIDE, 8);
    let (outside, engine_outside) = side(OWN_OUTSIDE, 24);
    let range = AddressRange { first: EXTERNAL, last: EXTERNAL };
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![range],
        ports: (1024, 65535),
        ..PoolConfig::default()
    };
    let engine = Config {
        inside: engine_inside,
        outside: engine_outside,
        pools: vec![pool],
        ..Config::default()
    };
    Settings::new(engine, inside, outside)
}

/// Reports of the gateway.
#[derive(Debug, Default)]
pub(crate) struct RecordingObserver {
    pub(crate) events: Vec<Event>,
    pub(crate) links: Vec<(Side, bool)>,
    pub(crate) expectations: Vec<(AlgExpectation, Option<HostName>)>,
}

impl Observer for RecordingObserver {
    fn event(&mut self, event: &Event) {
        self.events.push(*event);
    }

    fn expectation(&mut self, made: &AlgExpectation, host: Option<&HostName>) {
        self.expectations.push((*made, host.copied()));
    }

    fn link(&mut self, side: Side, link: &LinkInfo, _: &Change) {
        self.links.push((side, link.up));
    }

    fn status(&mut self, _: &Status<'_>) {}

    fn idle(&mut self) {}
}

/// A gateway, both its cables, and hosts that answer ARP on them.
pub(crate) struct World {
    pub(crate) worker: Worker,
    pub(crate) inside: Wire,
    pub(crate) outside: Wire,
    pub(crate) now: Timestamp,
    pub(crate) observer: RecordingObserver,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&settings())
    }

    /// A world with these settings of the gateway.
    pub(crate) fn with(settings: &Settings) -> Self {
        let (inside_device, inside) = memory::pair("in", INSIDE);
        let (outside_device, outside) = memory::pair("out", OUTSIDE);
        let devices: [Box<dyn Device>; 2] = [Box::new(inside_device), Box::new(outside_device)];
        let now = Timestamp(1_000_000_000_000);
        let worker = Worker::new(settings, [7; 32], devices, now).expect("the settings are right");
        Self { worker, inside, outside, now, observer: RecordingObserver::default() }
    }

    /// A world whose gateway uses its addresses, which have been tried on the links.
    pub(crate) fn with_addresses(settings: &Settings) -> Self {
        let mut world = Self::with(settings);
        for _ in 0..30 {
            world.pass(Duration::from_millis(100));
        }
        while world.inside.take().is_some() {}
        world
    }

    /// A world whose neighbours are known, because they have sent packets; also the external port.
    pub(crate) fn acquainted() -> (Self, u16) {
        Self::acquainted_with(&settings())
    }

    /// A world with these settings whose neighbours are known; also the external port.
    pub(crate) fn acquainted_with(settings: &Settings) -> (Self, u16) {
        let mut world = Self::with(settings);
        world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first")));
        let packet = world.next_outside();
        let port = Udp::new_checked(view(&packet).payload()).expect("UDP").source_port();
        world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"reply")));
        world.next_inside();
        (world, port)
    }

    pub(crate) fn turn(&mut self) {
        self.worker.turn(self.now, &mut self.observer);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.turn();
    }

    /// Next IP packet that leaves outside. The server there answers ARP.
    pub(crate) fn next_outside(&mut self) -> Vec<u8> {
        self.next(|world| &world.outside, SERVER)
    }

    /// Next IP packet that leaves inside. The subscriber there answers ARP.
    pub(crate) fn next_inside(&mut self) -> Vec<u8> {
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

    pub(crate) fn drops(&mut self, reason: DropReason) -> u64 {
        self.worker.status(self.now).counters.drops[reason as usize]
    }

    pub(crate) fn packets(&mut self, direction: Direction, outcome: Outcome) -> u64 {
        self.worker.status(self.now).counters.packets[direction as usize][outcome as usize]
    }
}

/// Answer of a host to an ARP request.
pub(crate) fn answer(frame: &[u8], host: Mac) -> Vec<u8> {
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

pub(crate) fn ethernet(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    let mut header = [0; ETHERNET_LEN];
    arp::write_ethernet(&mut header, to, from, ethertype::IPV4);
    [&header, packet].concat()
}

pub(crate) fn to_inside(packet: &[u8]) -> Vec<u8> {
    ethernet(INSIDE, HOST, packet)
}

pub(crate) fn to_outside(packet: &[u8]) -> Vec<u8> {
    ethernet(OUTSIDE, SERVER, packet)
}

pub(crate) fn view(packet: &[u8]) -> Ipv4<&[u8]> {
    Ipv4::new_checked(packet).expect("an IPv4 packet")
}

pub(crate) fn ip(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
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

pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
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

pub(crate) fn echo_request(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0, 77, 0, 1];
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(ICMP, from, to, &message)
}

pub(crate) fn udp_valid(packet: &[u8]) -> bool {
    let packet = view(packet);
    let payload = packet.payload();
    let pseudo =
        checksum::pseudo_header(packet.source(), packet.destination(), UDP, payload.len() as u16);
    packet.checksum_valid() && checksum::fold(checksum::sum(payload, pseudo)) == 0xffff
}
