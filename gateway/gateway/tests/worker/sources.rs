//! Packets with forged sources while real subscribers come: forged sources get half of the table
//! at most.

use crate::capture::watch;
use crate::nat64::ipv6_settings;
use crate::team::Team;
use crate::world::*;
use natgate_engine::{Direction, Match, Outcome, Prefix, Rule, RuleAction, Side};
use natgate_gateway::capture::Filter;
use natgate_gateway::{Route, Settings};
use natgate_wire::arp::{Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::net::Ipv4Addr;

const ATTACKER: Mac = Mac([2, 0, 0, 0, 6, 6]);

/// Largest number of subscribers.
const MOST: u32 = 64;

/// A router inside, and a host behind it.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const BEYOND: Ipv4Addr = Ipv4Addr::new(172, 20, 5, 5);

fn small() -> Settings {
    let mut settings = settings();
    settings.engine.limits.subscribers = Some(MOST);
    settings.routes =
        vec![Route { prefix: Prefix::new(BEYOND, 16), via: ROUTER, side: Side::Inside }];
    settings.derive_inside_routes();
    settings
}

struct FloodedWorld(World);

impl FloodedWorld {
    /// A world in which the server is a known neighbour, after a thousand forged sources.
    fn new() -> Self {
        Self::with(&small())
    }

    fn with(settings: &Settings) -> Self {
        let mut world = World::with(settings);
        world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first")));
        world.next_outside();
        let mut flooded = Self(world);
        for number in 0..1000 {
            flooded.sends(ATTACKER, Ipv4Addr::from_bits(0x0a01_0000 + number));
        }
        flooded
    }

    /// Sends a packet from a source and hardware address; returns true if it leaves outside.
    fn sends(&mut self, mac: Mac, source: Ipv4Addr) -> bool {
        self.sends_packet(mac, &udp((source, 4000), (REMOTE, 53), b"hello"))
    }

    fn sends_packet(&mut self, mac: Mac, packet: &[u8]) -> bool {
        let before = self.0.packets(Direction::Outbound, Outcome::Forwarded);
        self.0.inside.send(&ethernet(INSIDE, mac, packet));
        self.0.turn();
        self.0.packets(Direction::Outbound, Outcome::Forwarded) > before
    }

    /// Asks for the gateway by ARP, as a host does before its first packet.
    fn asks_for_gateway(&mut self, mac: Mac, source: Ipv4Addr) {
        self.0.inside.send(&question(mac, source));
        self.0.turn();
    }

    fn refused(&mut self) -> u64 {
        self.0.worker.status(self.0.now).router.sources_refused
    }

    /// ARP requests of the gateway for inside hosts; the hosts are silent.
    fn asked(&mut self) -> Vec<Vec<u8>> {
        let frames = std::iter::from_fn(|| self.0.inside.take());
        frames.filter(|frame| frame[12..14] == ethertype::ARP.to_be_bytes()).collect()
    }
}

/// A host's question for the gateway by ARP.
fn question(mac: Mac, source: Ipv4Addr) -> Vec<u8> {
    let request = Repr {
        operation: Operation::Request,
        sender_mac: mac,
        sender: source,
        target_mac: Mac::default(),
        target: OWN_INSIDE,
    };
    request.frame(Mac::BROADCAST).to_vec()
}

fn newcomer(number: u8) -> (Mac, Ipv4Addr) {
    (Mac([2, 0, 0, 0, 7, number]), Ipv4Addr::new(10, 2, 0, number))
}

#[test]
fn forged_sources_get_half_of_the_table_and_newcomers_the_rest() {
    let mut flooded = FloodedWorld::new();
    let half = u64::from(MOST) / 2 + 1;
    assert_eq!(flooded.0.packets(Direction::Outbound, Outcome::Forwarded), half);
    assert_eq!(flooded.refused(), 1001 - half);
    for number in 0..MOST as u8 / 2 - 2 {
        let (mac, source) = newcomer(number);
        flooded.asks_for_gateway(mac, source);
        assert!(flooded.sends(mac, source), "newcomer {number}");
        // The flood goes on.
        assert!(!flooded.sends(ATTACKER, Ipv4Addr::new(10, 3, 0, number)));
    }
}

#[test]
fn a_newcomer_that_has_not_asked_is_asked_for_and_admitted_then() {
    let mut flooded = FloodedWorld::new();
    flooded.asked();
    // The flood has used up the ARP requests of this second.
    flooded.0.pass(std::time::Duration::from_secs(5));
    flooded.asked();
    let (mac, source) = newcomer(1);
    assert!(!flooded.sends(mac, source));
    let asked = flooded.asked();
    let [request] = &asked[..] else { panic!("{} requests", asked.len()) };
    assert_eq!(request[ETHERNET_LEN + 24..][..4], source.octets());
    flooded.0.inside.send(&answer(request, mac));
    flooded.0.turn();
    assert!(flooded.sends(mac, source));
}

#[test]
fn only_new_sources_of_the_connected_network_are_looked_into() {
    let mut flooded = FloodedWorld::new();
    let refused = flooded.refused();
    let (mac, source) = newcomer(1);
    flooded.asks_for_gateway(mac, source);
    assert!(!flooded.sends(ATTACKER, source), "the neighbour has another hardware address");
    assert_eq!(flooded.refused(), refused + 1);
    assert!(flooded.sends(mac, source));
    // A host with a record keeps it, whatever hardware its packets come from.
    assert!(flooded.sends(ATTACKER, source) && flooded.sends(ATTACKER, SUBSCRIBER));
    // Hosts behind routers have the routers' hardware addresses.
    assert!(flooded.sends(ATTACKER, BEYOND));
    assert_eq!(flooded.refused(), refused + 1);
}

/// Packets that take no record pass, whoever sends them: those of hosts that a rule forwards
/// untranslated, for example. The gateway refuses only packets that would take one.
#[test]
fn packets_that_take_no_record_are_not_looked_into() {
    let mut settings = small();
    let remote = Match::Destination(Prefix::new(REMOTE, 32), 54);
    settings.engine.rules = vec![Rule::new(remote, RuleAction::Bypass)];
    let mut flooded = FloodedWorld::with(&settings);
    let (refused, forged) = (flooded.refused(), Ipv4Addr::new(10, 3, 0, 1));
    let before = flooded.0.packets(Direction::Outbound, Outcome::Dropped);
    let packet = udp((forged, 4000), (REMOTE, 54), b"hello");
    assert!(flooded.sends_packet(ATTACKER, &packet));
    assert_eq!(flooded.refused(), refused);
    // A refused packet is counted as dropped.
    assert!(!flooded.sends(ATTACKER, forged));
    assert_eq!(flooded.refused(), refused + 1);
    assert_eq!(flooded.0.packets(Direction::Outbound, Outcome::Dropped), before + 1);
}

/// Forged packets that come to another worker than their sender's are judged by the sender's
/// worker.
#[test]
fn forged_sources_get_half_of_each_workers_table() {
    let mut team = Team::with(&small(), 2, || 0);
    team.send_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first"));
    for number in 0..1000 {
        let source = Ipv4Addr::from_bits(0x0a01_0000 + number);
        let packet = udp((source, 4000), (REMOTE, 53), b"hello");
        team.inside.send(&ethernet(INSIDE, ATTACKER, &packet));
        team.turn();
    }
    team.turn();
    let mappings: Vec<usize> = team.mappings().iter().map(|of_one| of_one.len()).collect();
    // Each worker has half of the subscribers.
    let half = MOST as usize / 4 + 1;
    assert_eq!(mappings, [half; 2]);
    let now = team.now;
    let refused = |worker: &mut natgate_gateway::Worker| worker.status(now).router.sources_refused;
    let refused: u64 = team.workers.iter_mut().map(refused).sum();
    assert_eq!(refused + mappings.iter().sum::<usize>() as u64, 1001);
}

/// Packets of one batch that another worker hands over are judged one by one: those that come after
/// the table is half full in the middle of the batch, too.
#[test]
fn forged_sources_of_one_batch_get_half_of_each_workers_table() {
    let mut team = Team::with(&small(), 2, || 0);
    team.send_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first"));
    for number in 0..200 {
        let source = Ipv4Addr::from_bits(0x0a01_0000 + number);
        let packet = udp((source, 4000), (REMOTE, 53), b"hello");
        team.inside.send(&ethernet(INSIDE, ATTACKER, &packet));
    }
    (0..8).for_each(|_| team.turn());
    let mappings: Vec<usize> = team.mappings().iter().map(|of_one| of_one.len()).collect();
    let half = MOST as usize / 4 + 1;
    assert_eq!(mappings, [half; 2]);
}

/// Beside NAT64, a capture has each packet go alone.
#[test]
fn a_capture_changes_nothing_for_newcomers() {
    let mut settings = small();
    settings.ipv6 = ipv6_settings();
    let mut team = Team::with(&settings, 1, || 0);
    team.send_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first"));
    let send = |team: &mut Team, mac: Mac, source: Ipv4Addr| {
        let packet = udp((source, 4000), (REMOTE, 53), b"hello");
        team.inside.send(&ethernet(INSIDE, mac, &packet));
        team.turn();
        team.mappings()[0].len()
    };
    for number in 0..1000 {
        send(&mut team, ATTACKER, Ipv4Addr::from_bits(0x0a01_0000 + number));
    }
    let _capture = watch(&mut team, Filter::default());
    let before = team.mappings()[0].len();
    assert_eq!(before, MOST as usize / 2 + 1);
    let (mac, source) = newcomer(1);
    team.inside.send(&question(mac, source));
    team.turn();
    assert_eq!(send(&mut team, mac, source), before + 1, "it is admitted");
    assert_eq!(send(&mut team, ATTACKER, Ipv4Addr::new(10, 3, 0, 1)), before + 1);
    // The end of the capture would wait for the worker.
    drop(team);
}
