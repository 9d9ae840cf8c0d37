//! Requests for mappings beside floods of forged ones, in simulated time.
//!
//! Each test floods the gateway for five seconds with ten thousand forged MAP requests a second.
//! Twenty real hosts ask once each meanwhile; at least nineteen must get their mappings.

use crate::team::Team;
use crate::world::{INSIDE, OWN_INSIDE, REMOTE, World, ethernet, settings, udp, view};
use natgate_engine::{Prefix, Side};
use natgate_gateway::{PCP_PORT, PcpSettings, Route, Settings, write_datagram};
use natgate_io::memory::Wire;
use natgate_wire::Udp;
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::UDP;
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

const FORGED_PER_MS: u32 = 10;
const SECONDS: u32 = 5;
const REAL: u32 = 20;
const ENOUGH: usize = 19;
/// A real host asks every so many milliseconds.
const SPACING: u32 = SECONDS * 1000 / REAL;

/// Network address of the hosts behind a router.
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);

const FORGER: Mac = Mac([2, 6, 6, 6, 6, 6]);

/// A pseudorandom sequence that a seed determines.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

/// A host that asks: its address, and the hardware that its frames come from.
#[derive(Clone, Copy)]
struct Host {
    address: Ipv4Addr,
    mac: Mac,
}

fn host(number: u32) -> Host {
    let address = Ipv4Addr::from_bits(0x0a00_0500 + number * 0x0101);
    Host { address, mac: Mac([2, 1, 1, 1, 1, number as u8]) }
}

fn with_pcp() -> Settings {
    let mut settings = settings();
    settings.pcp = PcpSettings { enabled: true, announce: false, ..PcpSettings::default() };
    settings.engine.limits.explicit_mappings = 50_000;
    settings
}

/// Ports of the mappings that real hosts and forgers ask for.
const REAL_PORT: u16 = 7000;
const FORGED_PORT: u16 = 7001;

/// Place of the internal port in a datagram with a response to MAP: the headers of UDP and PCP, the
/// nonce, protocol and reserved bytes are before it.
const INTERNAL_PORT: usize = 8 + 24 + 12 + 4;

/// A MAP request for a UDP port, in its frame.
fn request(host: Host, port: u16, nonce: u32) -> Vec<u8> {
    let mut payload = vec![2, 1, 0, 0];
    payload.extend(600u32.to_be_bytes());
    payload.extend(host.address.to_ipv6_mapped().octets());
    payload.extend([nonce.to_be_bytes(); 3].concat());
    payload.extend([UDP, 0, 0, 0]);
    payload.extend(port.to_be_bytes());
    payload.extend([0; 2]);
    payload.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
    let mut packet = vec![0; 28 + payload.len()];
    let ends = ((host.address, 40_000), (OWN_INSIDE, PCP_PORT));
    write_datagram(ends, 64, &payload, &mut packet);
    ethernet(INSIDE, host.mac, &packet)
}

/// A host's ARP request for the gateway's address.
fn who_has_the_gateway(host: Host) -> Vec<u8> {
    let message = Repr {
        operation: Operation::Request,
        sender_mac: host.mac,
        sender: host.address,
        target_mac: Mac::default(),
        target: OWN_INSIDE,
    };
    message.frame(Mac::BROADCAST).to_vec()
}

/// A gateway of one worker or of several, and the cable of its inside.
trait Gateway {
    fn inside(&self) -> &Wire;

    fn turn(&mut self);

    /// A millisecond passes.
    fn wait(&mut self);
}

impl Gateway for World {
    fn inside(&self) -> &Wire {
        &self.inside
    }

    fn turn(&mut self) {
        self.turn();
    }

    fn wait(&mut self) {
        self.now = self.now.plus(Duration::from_millis(1));
    }
}

impl Gateway for Team {
    fn inside(&self) -> &Wire {
        &self.inside
    }

    fn turn(&mut self) {
        self.turn();
    }

    fn wait(&mut self) {
        self.now = self.now.plus(Duration::from_millis(1));
    }
}

/// The hosts, and how the gateway and they know each other.
struct PcpNetwork<G = World> {
    gateway: G,
    hosts: Vec<Host>,
    /// Hosts that answer ARP on the link.
    stations: Vec<Host>,
    granted: HashSet<Ipv4Addr>,
    /// True if the gateway has not heard of the hosts before they ask.
    are_new: bool,
}

impl PcpNetwork {
    /// Hosts on the link that have asked for the gateway's hardware address, as hosts do.
    fn acquainted() -> Self {
        PcpNetwork::acquainted_with(World::with(&with_pcp()))
    }

    /// Hosts behind a router, which have spoken through the gateway before.
    fn routed() -> Self {
        let router = Host { address: Ipv4Addr::new(10, 0, 0, 254), mac: Mac([2, 3, 3, 3, 3, 3]) };
        let mut settings = with_pcp();
        let prefix = Prefix::new(BEHIND, 10);
        settings.routes = vec![Route { prefix, via: router.address, side: Side::Inside }];
        let behind = |number| {
            let address = Ipv4Addr::from_bits(BEHIND.to_bits() + 0x0500 + number * 0x0101);
            Host { address, mac: router.mac }
        };
        let mut network = Self::new(World::with(&settings), (1..=REAL).map(behind).collect());
        network.stations = vec![router];
        network.gateway.inside().send(&who_has_the_gateway(router));
        for host in network.hosts.clone() {
            let packet = udp((host.address, 4000), (REMOTE, 53), b"first");
            network.gateway.inside().send(&ethernet(INSIDE, host.mac, &packet));
        }
        network.turn();
        network
    }
}

impl<G: Gateway> PcpNetwork<G> {
    fn new(gateway: G, hosts: Vec<Host>) -> Self {
        let stations = hosts.clone();
        Self { gateway, hosts, stations, granted: HashSet::new(), are_new: false }
    }

    /// Hosts on the link of a gateway that have asked for its hardware address.
    fn acquainted_with(gateway: G) -> Self {
        let mut network = Self::new(gateway, (1..=REAL).map(host).collect());
        for host in network.hosts.clone() {
            network.gateway.inside().send(&who_has_the_gateway(host));
        }
        network.turn();
        network
    }

    /// Reads what comes out: hosts answer ARP, and take answers that say success.
    fn turn(&mut self) {
        self.gateway.turn();
        while let Some(frame) = self.gateway.inside().take() {
            let (to, _, kind) = arp::read_ethernet(&frame).expect("a frame");
            if kind == ethertype::ARP {
                let asked = Arp::new_checked(&frame[ETHERNET_LEN..]).expect("ARP").repr();
                let is_asked = |host: &&Host| {
                    asked.operation == Operation::Request && host.address == asked.target
                };
                if let Some(host) = self.stations.iter().find(is_asked) {
                    self.gateway.inside().send(&crate::world::answer(&frame, host.mac));
                }
                continue;
            }
            let packet = view(&frame[ETHERNET_LEN..]);
            let udp = Udp::new_checked(packet.payload()).expect("UDP");
            let client = Ipv4Addr::from_bits(packet.destination());
            let is_his = |host: &Host| (host.address, host.mac) == (client, to);
            let code = packet.payload()[8 + 3];
            // An error has no port that it is about, and a forged request has another.
            let port = packet.payload().get(INTERNAL_PORT..INTERNAL_PORT + 2);
            let is_real = code == 0 && port == Some(&REAL_PORT.to_be_bytes());
            if udp.source_port() == PCP_PORT && is_real && self.hosts.iter().any(is_his) {
                self.granted.insert(client);
            }
        }
    }

    /// Floods, while the hosts ask once each; returns how many got what they asked for.
    fn flood(mut self, mut forged: impl FnMut(&mut Random) -> Vec<u8>) -> usize {
        let mut random = Random(7);
        for ms in 0..SECONDS * 1000 {
            for _ in 0..FORGED_PER_MS {
                self.gateway.inside().send(&forged(&mut random));
            }
            if ms % SPACING == SPACING / 2 {
                let host = self.hosts[(ms / SPACING) as usize];
                if self.are_new {
                    self.gateway.inside().send(&who_has_the_gateway(host));
                }
                self.gateway.inside().send(&request(host, REAL_PORT, ms));
            }
            self.gateway.wait();
            self.turn();
        }
        (0..500).for_each(|_| {
            self.gateway.wait();
            self.turn();
        });
        self.granted.len()
    }
}

/// Any address of the subscribers.
fn anybody(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | random.next() & 0x00ff_ffff)
}

fn forge(address: Ipv4Addr, from: Mac, random: &mut Random) -> Vec<u8> {
    request(Host { address, mac: from }, FORGED_PORT, random.next())
}

#[test]
fn requests_are_answered_beside_a_flood_from_forged_addresses() {
    let answered = PcpNetwork::acquainted().flood(|random| forge(anybody(random), FORGER, random));
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}

#[test]
fn requests_are_answered_beside_a_flood_from_forged_hardware() {
    let answered = PcpNetwork::acquainted().flood(|random| {
        let [a, b, c, d] = random.next().to_be_bytes();
        forge(anybody(random), Mac([2, 7, a, b, c, d]), random)
    });
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}

#[test]
fn requests_are_answered_beside_a_flood_in_their_own_name() {
    let answered = PcpNetwork::acquainted().flood(|random| {
        let victim = host(random.next() % REAL + 1);
        forge(victim.address, FORGER, random)
    });
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}

#[test]
fn requests_that_workers_hand_over_are_answered_beside_a_flood_in_their_own_name() {
    // All frames come to the first worker; half of the hosts are the second worker's.
    let network = PcpNetwork::acquainted_with(Team::with(&with_pcp(), 2, || 0));
    let answered = network.flood(|random| {
        let victim = host(random.next() % REAL + 1);
        forge(victim.address, FORGER, random)
    });
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}

#[test]
fn requests_are_answered_beside_a_flood_from_neighbors_that_were_claimed_by_arp() {
    let mut count = 0;
    let answered = PcpNetwork::acquainted().flood(|random| {
        count += 1;
        let claimed = Ipv4Addr::from_bits(0x0ac8_0000 + count / 2 % 10_000);
        match count % 2 {
            0 => who_has_the_gateway(Host { address: claimed, mac: FORGER }),
            _ => forge(claimed, FORGER, random),
        }
    });
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}

#[test]
fn new_hosts_are_answered_beside_a_flood_from_forged_addresses_and_hardware() {
    // As hosts do, each asks for the gateway's hardware address before its first request.
    let mut network = PcpNetwork::new(World::with(&with_pcp()), (1..=REAL).map(host).collect());
    network.are_new = true;
    let answered = network.flood(|random| {
        let [a, b, c, d] = random.next().to_be_bytes();
        forge(anybody(random), Mac([2, 7, a, b, c, d]), random)
    });
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}

#[test]
fn subscribers_behind_a_router_are_answered_beside_a_flood_from_a_station_on_the_link() {
    let answered = PcpNetwork::routed().flood(|random| forge(anybody(random), FORGER, random));
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}

#[test]
fn subscribers_behind_a_router_are_answered_beside_a_flood_from_behind_it() {
    let network = PcpNetwork::routed();
    let router = network.stations[0].mac;
    let answered = network.flood(|random| {
        let address = BEHIND.to_bits() | random.next() & 0x003f_ffff;
        forge(Ipv4Addr::from_bits(address), router, random)
    });
    assert!(answered >= ENOUGH, "{answered} of {REAL}");
}
