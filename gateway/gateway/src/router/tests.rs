//! The router in virtual time: asking for neighbours, packets that wait, giving up, and answers to
//! ARP requests.

mod claims;
mod floods;
mod twins;
mod undelivered;

use super::resolution::Received;
use super::sought::MOST_SOUGHT;
use super::*;
use crate::{LearnSettings, Route, SideSettings};
use natgate_engine::{AddressRange, Config, Direction, Outcome, PoolConfig, Prefix, StaticMapping};
use natgate_io::HEADROOM;
use natgate_wire::link::ethertype;
use natgate_wire::{Ipv4, arp};
use std::collections::BTreeSet;
use std::time::Duration;

const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const HOST: Mac = Mac([2, 0, 0, 0, 1, 5]);
const UPSTREAM: Mac = Mac([2, 0, 0, 0, 2, 54]);

fn ip(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

fn at(millis: u64) -> Timestamp {
    Timestamp(1_000_000_000_000).plus(Duration::from_millis(millis))
}

fn prefix(address: &str, len: u8) -> Prefix {
    Prefix::new(ip(address), len)
}

/// 10.0.0.1/8 inside, 192.0.2.1/24 outside with a gateway; a pool and a static mapping elsewhere.
pub(crate) fn settings() -> Settings {
    let side = |device: &str, address, len, gateway: Option<&str>| SideSettings {
        address: Some((ip(address), len)),
        gateway: gateway.map(ip),
        ..SideSettings::new(device)
    };
    let range = AddressRange { first: ip("203.0.113.16"), last: ip("203.0.113.31") };
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![range],
        ports: (1024, 65535),
        ..PoolConfig::default()
    };
    let fixed = StaticMapping {
        protocol: Some(6),
        internal: (ip("10.0.0.80"), Some(80)),
        external: (ip("198.51.100.7"), Some(80)),
        ..StaticMapping::default()
    };
    let engine = Config { pools: vec![pool], statics: vec![fixed], ..Config::default() };
    let inside = side("in", "10.0.0.1", 8, None);
    let outside = side("out", "192.0.2.1", 24, Some("192.0.2.254"));
    let route =
        Route { prefix: prefix("198.18.0.0", 15), via: ip("192.0.2.253"), side: Side::Outside };
    Settings { routes: vec![route], ..Settings::new(engine, inside, outside) }
}

fn router() -> Router {
    Router::new(&settings(), &[INSIDE, OUTSIDE]).expect("the settings are right")
}

/// An IPv4 packet of `len` bytes.
fn packet(destination: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut view = Ipv4::init(&mut bytes[..], 20);
    view.set_total_len(len as u16);
    view.set_destination(ip(destination).to_bits());
    view.fill_checksum();
    bytes
}

const OUTBOUND: Origin =
    Origin { direction: Direction::Outbound, outcome: Outcome::Forwarded, len: 40 };

/// Configured and learnt routes have routers.
#[test]
fn a_router_outside_is_known_as_long_as_its_hardware_address_is() {
    let mut router = router();
    assert!(!router.finds_router(at(0), &[], false));
    router.introduce(at(0), Link::OUTSIDE, ip("192.0.2.9"), HOST);
    router.introduce(at(0), Link::inside(0), ip("192.0.2.254"), HOST);
    assert!(!router.finds_router(at(0), &[], false), "a host, and one inside");
    assert_eq!(router.counters().arp_asked, 0, "none has been silent");
    let route = Route { prefix: prefix("8.0.0.0", 8), via: ip("192.0.2.7"), side: Side::Outside };
    let (learnt, _) = LearntRoutes::new([None, Some(prefix("192.0.2.0", 24))], [route]);
    router.learn(Arc::new(learnt));
    router.introduce(at(0), Link::OUTSIDE, ip("192.0.2.7"), HOST);
    assert!(router.finds_router(at(0), &[ip("192.0.2.254")], true));
    assert!(!router.finds_router(at(0), &[ip("192.0.2.7")], true), "it is silent");
    assert_eq!(router.counters().arp_asked, 2, "the two others are asked for");
    let answer = reply(("192.0.2.254", UPSTREAM), ("192.0.2.1", OUTSIDE));
    router.receive_arp(at(0), Link::OUTSIDE, &answer);
    assert!(router.finds_router(at(0), &[ip("192.0.2.7")], true));
    router.learn(Arc::default());
    router.relink(Link::OUTSIDE, OUTSIDE);
    assert!(!router.finds_router(at(0), &[], false));
}

/// Routers come and go with learnt routes. Otherwise the configuration has them, and packets may
/// still wait for one that a reload has removed.
#[test]
fn a_silent_router_counts_while_a_route_may_lead_to_it() {
    for learns in [false, true] {
        let mut before = settings();
        before.kernel.learn = learns.then_some(LearnSettings { table: 254 });
        let mut router = Router::new(&before, &[INSIDE, OUTSIDE]).expect("the settings are right");
        let silence = |router: &mut Router, from: u64| {
            (0..100).for_each(|turn| router.advance(at(from + 100 * turn)));
            router.take_silent()
        };
        assert_eq!(send(&mut router, at(0), Side::Outside, "198.18.0.1").0, Fate::Kept);
        assert_eq!(silence(&mut router, 0), [ip("192.0.2.253")]);
        assert_eq!(send(&mut router, at(10_000), Side::Outside, "198.18.0.1").0, Fate::Kept);
        let after = Settings { routes: Vec::new(), ..before.clone() };
        let renewal = Renewal::new(&before, &after).expect("the settings are right");
        router.renew(renewal, |_| OUTSIDE);
        assert!(router.may_be_hop(ip("192.0.2.254")));
        assert_eq!(router.may_be_hop(ip("192.0.2.253")), learns);
        assert_eq!(silence(&mut router, 10_000).len(), usize::from(learns));
    }
}

/// There may be more than are asked for at once.
#[test]
fn routers_outside_are_asked_for_in_turn() {
    let mut router = router();
    let route = |last: u8| {
        let via = Ipv4Addr::new(192, 0, 2, last);
        Route { prefix: Prefix::new(Ipv4Addr::new(8, last, 0, 0), 16), via, side: Side::Outside }
    };
    let networks = [None, Some(prefix("192.0.2.0", 24))];
    let (learnt, _) = LearntRoutes::new(networks, (100..140).map(route));
    router.learn(Arc::new(learnt));
    let mut asked = BTreeSet::new();
    for turn in 0..100 {
        let now = at(100 * turn);
        router.advance(now);
        assert!(!router.finds_router(now, &[], true));
        let before = asked.len();
        asked.extend(outputs(&mut router).into_iter().filter_map(|out| match out {
            Out::Arp(_, _, message) => Some(message.target),
            Out::Packet(..) => None,
        }));
        assert!(asked.len() <= before + MOST_SOUGHT);
        let rounds = now.since(at(0)).as_secs() as usize / 3 + 1;
        assert!(asked.len() <= rounds * MOST_SOUGHT, "{} in {rounds} rounds", asked.len());
    }
    assert_eq!(asked.len(), 42, "with the configured ones");
}

/// Sends a packet of 40 bytes; returns the frame if it is ready.
fn send(router: &mut Router, now: Timestamp, side: Side, to: &str) -> (Fate, Vec<u8>) {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(packet(to, 40));
    let end = buffer.len();
    let mut frame = Frame::of(&mut buffer, HEADROOM, end);
    let fate = router.send(now, side, &mut frame, Some(OUTBOUND));
    (fate, frame.bytes().to_vec())
}

fn arp(operation: Operation, sender: (&str, Mac), target: (&str, Mac)) -> Repr {
    Repr {
        operation,
        sender_mac: sender.1,
        sender: ip(sender.0),
        target_mac: target.1,
        target: ip(target.0),
    }
}

fn request(sender: (&str, Mac), target: &str) -> Vec<u8> {
    arp(Operation::Request, sender, (target, Mac::default())).frame(Mac::BROADCAST).to_vec()
}

fn reply(sender: (&str, Mac), target: (&str, Mac)) -> Vec<u8> {
    arp(Operation::Reply, sender, target).frame(target.1).to_vec()
}

#[test]
fn what_is_for_the_kernel_is_told_by_its_address_and_counted() {
    let mut settings = settings();
    settings.kernel.management = [Some(vec![ip("10.0.0.2")]), Some(vec![ip("192.0.2.3")])];
    let mut router = Router::new(&settings, &[INSIDE, OUTSIDE]).expect("the settings are right");
    let (inside, outside) = (Link::inside(0), Link::OUTSIDE);
    for (link, to, expected) in [
        (inside, "10.0.0.2", true),
        (outside, "192.0.2.3", true),
        (inside, "192.0.2.3", false),
        (outside, "10.0.0.2", false),
        (inside, "10.0.0.1", false),
        (inside, "198.51.100.7", false),
    ] {
        assert_eq!(router.is_for_the_kernel(link, &packet(to, 40)), expected, "{to}");
    }
    // A packet too short for an address is not for the kernel.
    assert!(!router.is_for_the_kernel(inside, &packet("10.0.0.2", 40)[..19]));
    assert_eq!(router.counters().left_to_the_kernel, 2);
    let mut router = self::router();
    assert!(!router.is_for_the_kernel(inside, &packet("10.0.0.2", 40)));
}

fn upstream_reply() -> Vec<u8> {
    reply(("192.0.2.254", UPSTREAM), ("192.0.2.1", OUTSIDE))
}

/// Output of the router: ARP messages with their receiver, and packets with their neighbour.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Arp(Side, Mac, Repr),
    Packet(Side, Mac, Ipv4Addr),
}

fn outputs(router: &mut Router) -> Vec<Out> {
    let frames: Vec<_> = std::iter::from_fn(|| router.poll_transmit()).collect();
    frames
        .into_iter()
        .map(|(link, frame, _)| (link.side, frame))
        .map(|(side, frame)| match Received::read(&frame) {
            Some(arp) => Out::Arp(side, arp.destination, arp.message),
            None => {
                let (to, from, kind) = arp::read_ethernet(&frame).expect("a frame");
                assert_eq!((from, kind), (router.mac(side), ethertype::IPV4));
                Out::Packet(side, to, destination(&frame[14..]).expect("a packet"))
            }
        })
        .collect()
}

/// ARP request for the outside's gateway.
fn question(to: Mac) -> Out {
    let from = ("192.0.2.1", OUTSIDE);
    Out::Arp(Side::Outside, to, arp(Operation::Request, from, ("192.0.2.254", Mac::default())))
}

/// A router that has known the outside's gateway since time 0.
fn acquainted() -> Router {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), Side::Outside, "8.8.8.8").0, Fate::Kept);
    router.receive_arp(at(0), Side::Outside, &upstream_reply());
    assert_eq!(outputs(&mut router).len(), 2);
    router
}

fn lost(router: &Router, reason: DropReason) -> u64 {
    router.losses().correct(&Default::default()).drops[reason as usize]
}

//= test rfc1812#section-3.3.2-queue
#[test]
fn the_first_packet_waits_until_its_next_hop_has_answered() {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), Side::Outside, "8.8.8.8").0, Fate::Kept);
    assert_eq!(send(&mut router, at(1), Side::Outside, "9.9.9.9").0, Fate::Kept);
    assert_eq!(outputs(&mut router), [question(Mac::BROADCAST)]);
    router.receive_arp(at(2), Side::Outside, &upstream_reply());
    let packet = |to| Out::Packet(Side::Outside, UPSTREAM, ip(to));
    assert_eq!(outputs(&mut router), [packet("8.8.8.8"), packet("9.9.9.9")]);

    let (fate, frame) = send(&mut router, at(3), Side::Outside, "8.8.8.8");
    assert_eq!(fate, Fate::Ready);
    assert_eq!(arp::read_ethernet(&frame), Some((UPSTREAM, OUTSIDE, ethertype::IPV4)));
    assert_eq!(frame[14..], packet_bytes("8.8.8.8"));
    assert_eq!(*router.losses(), Losses::default());
}

fn packet_bytes(to: &str) -> Vec<u8> {
    packet(to, 40)
}

#[test]
fn packets_go_by_connected_network_route_and_gateway_of_their_side() {
    let mut router = router();
    let mut asked_for = |side, to| {
        assert_eq!(send(&mut router, at(0), side, to).0, Fate::Kept);
        match &outputs(&mut router)[..] {
            [Out::Arp(asked, Mac::BROADCAST, message)] if *asked == side => message.target,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asked_for(Side::Inside, "10.20.30.40"), ip("10.20.30.40"));
    assert_eq!(asked_for(Side::Outside, "192.0.2.9"), ip("192.0.2.9"));
    assert_eq!(asked_for(Side::Outside, "198.19.255.255"), ip("192.0.2.253"));
    assert_eq!(asked_for(Side::Outside, "8.8.8.8"), ip("192.0.2.254"));
}

#[test]
fn packets_without_a_route_are_lost() {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), Side::Inside, "11.0.0.1").0, Fate::Lost);
    assert_eq!(send(&mut router, at(0), Side::Outside, "192.0.2.255").0, Fate::Lost);
    assert_eq!(lost(&router, DropReason::NoRoute), 2);
    assert_eq!(outputs(&mut router), []);
}

//= test rfc1812#section-3.3.2
#[test]
fn a_neighbor_that_does_not_answer_is_asked_three_times_and_given_up() {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), Side::Outside, "8.8.8.8").0, Fate::Kept);
    assert_eq!(outputs(&mut router), [question(Mac::BROADCAST)]);
    for second in 1..=2 {
        assert_eq!(router.next_deadline(), Some(at(second * 1000)));
        router.advance(at(second * 1000 - 1));
        assert_eq!(outputs(&mut router), []);
        router.advance(at(second * 1000));
        assert_eq!(outputs(&mut router), [question(Mac::BROADCAST)]);
    }
    router.advance(at(2999));
    assert_eq!(lost(&router, DropReason::NoNeighbor), 0);
    router.advance(at(3000));
    assert_eq!(outputs(&mut router), []);
    assert_eq!(lost(&router, DropReason::NoNeighbor), 1);
    assert_eq!(router.counters().neighbors_lost, 1);
    assert!(router.neighbors(Side::Outside).is_empty());
    assert_eq!(router.next_deadline(), None);
    // A late answer is ignored; the next packet asks again.
    router.receive_arp(at(3001), Side::Outside, &upstream_reply());
    assert_eq!(send(&mut router, at(3002), Side::Outside, "8.8.8.8").0, Fate::Kept);
    assert_eq!(outputs(&mut router), [question(Mac::BROADCAST)]);
}

#[test]
fn a_neighbor_in_use_is_asked_again_and_used_meanwhile() {
    let mut router = acquainted();
    assert_eq!(send(&mut router, at(30_000), Side::Outside, "8.8.8.8").0, Fate::Ready);
    router.advance(at(59_999));
    assert_eq!(outputs(&mut router), []);
    router.advance(at(60_000));
    assert_eq!(outputs(&mut router), [question(UPSTREAM)]);
    assert_eq!(send(&mut router, at(60_001), Side::Outside, "8.8.8.8").0, Fate::Ready);
    router.receive_arp(at(60_002), Side::Outside, &upstream_reply());
    assert_eq!(router.next_deadline(), Some(at(120_002)));
}

#[test]
fn a_known_neighbor_that_stops_answering_is_dropped() {
    let mut router = acquainted();
    let mut now = 60_000;
    for whom in [UPSTREAM, UPSTREAM, Mac::BROADCAST] {
        assert_eq!(send(&mut router, at(now - 1), Side::Outside, "8.8.8.8").0, Fate::Ready);
        router.advance(at(now));
        assert_eq!(outputs(&mut router), [question(whom)]);
        now += 1000;
    }
    router.advance(at(now));
    assert!(router.neighbors(Side::Outside).is_empty());
    assert_eq!(send(&mut router, at(now), Side::Outside, "8.8.8.8").0, Fate::Kept);
}

#[test]
fn a_neighbor_that_is_not_used_is_forgotten() {
    let mut router = acquainted();
    // The packet that waited counts as a use.
    router.advance(at(60_000));
    assert_eq!(outputs(&mut router), [question(UPSTREAM)]);
    router.receive_arp(at(60_001), Side::Outside, &upstream_reply());
    router.advance(at(120_001));
    assert_eq!(outputs(&mut router), []);
    assert!(router.neighbors(Side::Outside).is_empty());
    assert_eq!(router.counters().neighbors_lost, 0);
}

#[test]
fn answers_that_nobody_asked_for_are_not_believed() {
    let mut router = acquainted();
    let thief = Mac([2, 6, 6, 6, 6, 6]);
    let claim = reply(("192.0.2.254", thief), ("192.0.2.1", OUTSIDE));
    router.receive_arp(at(1000), Side::Outside, &claim);
    let stranger = reply(("192.0.2.77", thief), ("192.0.2.1", OUTSIDE));
    router.receive_arp(at(1000), Side::Outside, &stranger);
    let neighbors = router.neighbors(Side::Outside);
    assert_eq!(neighbors.len(), 1);
    assert_eq!(neighbors[0].mac, Some(UPSTREAM));
}

#[test]
fn who_is_asked_for_is_found_by_its_own_request() {
    let mut router = router();
    assert_eq!(send(&mut router, at(1001), Side::Inside, "10.0.0.5").0, Fate::Kept);
    router.receive_arp(at(1002), Side::Inside, &request(("10.0.0.5", HOST), "10.0.0.9"));
    let sent = outputs(&mut router);
    assert!(sent.contains(&Out::Packet(Side::Inside, HOST, ip("10.0.0.5"))), "{sent:?}");
}

#[test]
fn requests_for_our_addresses_are_answered_on_their_side() {
    let mut router = router();
    let mut answer = |side, sender: &str, target: &str| {
        router.receive_arp(at(0), side, &request((sender, HOST), target));
        outputs(&mut router)
    };
    let says = |side, mac, target, sender| {
        [Out::Arp(side, HOST, arp(Operation::Reply, (target, mac), (sender, HOST)))]
    };
    let inside = says(Side::Inside, INSIDE, "10.0.0.1", "10.0.0.5");
    assert_eq!(answer(Side::Inside, "10.0.0.5", "10.0.0.1"), inside);
    for external in ["192.0.2.1", "203.0.113.16", "203.0.113.31", "198.51.100.7"] {
        let outside = says(Side::Outside, OUTSIDE, external, "192.0.2.9");
        assert_eq!(answer(Side::Outside, "192.0.2.9", external), outside, "{external}");
        assert_eq!(answer(Side::Inside, "10.0.0.5", external), [], "{external} inside");
    }
    for other in ["192.0.2.2", "203.0.113.15", "203.0.113.32", "10.0.0.1", "198.51.100.8"] {
        assert_eq!(answer(Side::Outside, "192.0.2.9", other), [], "{other}");
    }
    // A probe: a host asks whether the address is taken.
    let taken = says(Side::Outside, OUTSIDE, "192.0.2.1", "0.0.0.0");
    assert_eq!(answer(Side::Outside, "0.0.0.0", "192.0.2.1"), taken);
    assert_eq!(router.counters().arp_answered, 6);
}

#[test]
fn who_claims_our_address_is_neither_answered_nor_believed() {
    let mut router = router();
    for external in ["192.0.2.1", "203.0.113.20"] {
        router.receive_arp(at(0), Side::Outside, &request((external, HOST), external));
        router.receive_arp(at(0), Side::Outside, &request((external, HOST), "192.0.2.1"));
        router.receive_arp(at(0), Side::Outside, &reply((external, HOST), ("192.0.2.9", OUTSIDE)));
    }
    assert_eq!(outputs(&mut router), []);
    assert_eq!(router.counters().arp_conflicts, 6);
}

//= test rfc1812#section-3.3.2-group
//= test rfc1812#section-5.3.4-send
#[test]
fn messages_that_nobody_may_send_are_ignored() {
    let mut router = acquainted();
    let ours = request(("192.0.2.9", OUTSIDE), "192.0.2.1");
    let group = request(("192.0.2.9", Mac([1, 0, 0, 0, 0, 1])), "192.0.2.1");
    let mut elsewhere = request(("192.0.2.9", HOST), "192.0.2.1");
    elsewhere[..6].copy_from_slice(&HOST.0);
    let cut = &request(("192.0.2.9", HOST), "192.0.2.1")[..41];
    for frame in [&ours[..], &group, &elsewhere, cut, &[]] {
        router.receive_arp(at(0), Side::Outside, frame);
    }
    assert_eq!(outputs(&mut router), []);
    assert_eq!(router.counters().arp_ignored, 5);
}

#[test]
fn packets_that_wait_are_bounded_for_each_neighbor_and_in_all() {
    let mut router = router();
    for number in 0..MOST_HELD {
        assert_eq!(send(&mut router, at(0), Side::Outside, "8.8.8.8").0, Fate::Kept, "{number}");
    }
    assert_eq!(send(&mut router, at(0), Side::Outside, "8.8.8.8").0, Fate::Lost);
    let mut kept = MOST_HELD;
    for number in 0..2 * MOST_HELD_IN_ALL / MOST_HELD {
        let to = format!("10.1.1.{number}");
        for _ in 0..MOST_HELD {
            if send(&mut router, at(0), Side::Inside, &to).0 == Fate::Kept {
                kept += 1;
            }
        }
    }
    assert_eq!(kept, MOST_HELD_IN_ALL);
    // A packet without room to wait has asked for its neighbour, too; giving up makes room again.
    assert_eq!(router.neighbors(Side::Inside).len(), 128);
    (0..4).for_each(|second| router.advance(at(second * 1000)));
    assert_eq!(lost(&router, DropReason::NoNeighbor), 128 * 16 + 17);
    assert_eq!(send(&mut router, at(4000), Side::Outside, "8.8.8.8").0, Fate::Kept);
}

/// Internal address number `n`.
fn nth(n: usize) -> String {
    Ipv4Addr::from_bits(ip("10.1.0.0").to_bits() + n as u32).to_string()
}

#[test]
fn new_neighbors_are_bounded_a_second() {
    let mut router = router();
    for number in 0..MOST_NEW_PER_SECOND as usize + 20 {
        send(&mut router, at(0), Side::Inside, &nth(number + 1));
    }
    assert_eq!(router.counters().arp_asked, u64::from(MOST_NEW_PER_SECOND));
    assert_eq!(router.counters().neighbors_refused, 20);
    // Neighbours in the same prefix of 24 bits wait; those in another prefix have a share of their
    // own.
    assert_eq!(send(&mut router, at(999), Side::Inside, &nth(1010)).0, Fate::Lost);
    let share = usize::from(SHARE_PER_SECOND);
    let asked = |router: &Router| router.counters().arp_asked as usize;
    (0..share + 5).for_each(|n| drop(send(&mut router, at(999), Side::Inside, &nth(5000 + n))));
    assert_eq!(asked(&router), MOST_NEW_PER_SECOND as usize + share);
    send(&mut router, at(1000), Side::Inside, &nth(1010));
    assert_eq!(asked(&router), MOST_NEW_PER_SECOND as usize + share + 1);
}

/// A router with room for few neighbours.
pub(super) fn small() -> Router {
    let settings = Settings { neighbors_limit: Some(FEWEST_NEIGHBORS), ..settings() };
    Router::new(&settings, &[INSIDE, OUTSIDE]).expect("the settings are right")
}

#[test]
fn neighbors_are_bounded_and_the_oldest_that_never_answered_goes_first() {
    let mut router = small();
    // Fill the table with neighbours that have answered, but two.
    for number in 0..FEWEST_NEIGHBORS {
        let now = at(number as u64 * 2);
        let address = nth(number + 1);
        assert_eq!(send(&mut router, now, Side::Inside, &address).0, Fate::Kept);
        if !(FEWEST_NEIGHBORS - 4..FEWEST_NEIGHBORS - 2).contains(&number) {
            let answer = reply((&address, HOST), ("10.0.0.1", INSIDE));
            router.receive_arp(now, Side::Inside, &answer);
        }
        outputs(&mut router);
    }
    let now = at(FEWEST_NEIGHBORS as u64 * 2);
    let known = |address: &str, router: &mut Router| {
        router.neighbors(Side::Inside).iter().any(|n| n.address == ip(address))
    };
    let (older, newer) = (nth(FEWEST_NEIGHBORS - 3), nth(FEWEST_NEIGHBORS - 2));
    assert!(known(&older, &mut router) && known(&newer, &mut router));
    assert_eq!(send(&mut router, now, Side::Inside, "10.9.9.1").0, Fate::Kept);
    assert!(!known(&older, &mut router) && known(&newer, &mut router));
    assert_eq!(lost(&router, DropReason::NoNeighbor), 1);
    // Two more: they replace the other silent neighbour and the first newcomer, not one that has
    // answered.
    assert_eq!(send(&mut router, now, Side::Inside, "10.9.9.2").0, Fate::Kept);
    assert_eq!(send(&mut router, now, Side::Inside, "10.9.9.3").0, Fate::Kept);
    assert!(!known(&newer, &mut router) && !known("10.9.9.1", &mut router));
    assert!(known(&nth(1), &mut router));
    assert_eq!(router.neighbors(Side::Inside).len(), FEWEST_NEIGHBORS);
}

#[test]
fn a_full_table_of_known_neighbors_gives_up_the_one_known_the_longest() {
    let mut router = small();
    for number in 0..FEWEST_NEIGHBORS {
        let now = at(number as u64 * 2);
        let address = nth(number + 1);
        assert_eq!(send(&mut router, now, Side::Inside, &address).0, Fate::Kept);
        let answer = reply((&address, HOST), ("10.0.0.1", INSIDE));
        router.receive_arp(now, Side::Inside, &answer);
    }
    send(&mut router, at(10_000), Side::Inside, "10.9.9.1");
    let neighbors = router.neighbors(Side::Inside);
    assert_eq!(neighbors.len(), FEWEST_NEIGHBORS);
    assert!(neighbors.iter().all(|neighbor| neighbor.address != ip(&nth(1))));
}

#[test]
fn another_link_means_asking_and_announcing_afresh() {
    let mut router = acquainted();
    assert_eq!(send(&mut router, at(1), Side::Outside, "192.0.2.9").0, Fate::Kept);
    outputs(&mut router);
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    router.relink(Side::Outside, mac);
    let announced: Vec<_> = outputs(&mut router)
        .into_iter()
        .map(|out| match out {
            Out::Arp(Side::Outside, Mac::BROADCAST, message) => {
                let (operation, target) =
                    (Operation::Request, (&*message.target.to_string(), Mac::default()));
                assert_eq!(message, arp(operation, (target.0, mac), target));
                message.target
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(announced.len(), 18);
    assert!(
        ["192.0.2.1", "198.51.100.7", "203.0.113.31"].iter().all(|a| announced.contains(&ip(a)))
    );
    assert_eq!(lost(&router, DropReason::NoNeighbor), 1);
    assert_eq!(send(&mut router, at(2), Side::Outside, "8.8.8.8").0, Fate::Kept);
    match &outputs(&mut router)[..] {
        [Out::Arp(Side::Outside, Mac::BROADCAST, message)] => assert_eq!(message.sender_mac, mac),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_that_lead_nowhere_are_refused_by_name() {
    let error = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        Router::new(&settings, &[INSIDE, OUTSIDE]).expect_err("the settings are wrong").to_string()
    };
    let text = error(&|settings| settings.inside.address = None);
    assert!(text.starts_with("inside.address is missing"), "{text}");
    let text = error(&|settings| settings.outside.gateway = Some(ip("192.0.3.254")));
    assert!(text.starts_with("outside.gateway 192.0.3.254 is not"), "{text}");
    let text = error(&|settings| settings.routes[0].via = ip("192.0.2.255"));
    assert!(text.starts_with("route[0].via 192.0.2.255 is not"), "{text}");
}
