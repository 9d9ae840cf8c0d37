//! The router for IPv6 in virtual time: asking for neighbours, packets that wait, giving up,
//! answers to solicitations, own addresses.

mod advertise;
mod floods;
mod listener;
mod own_addresses;
mod undelivered;

use super::*;
use crate::settings6::{Route6, StaticNeighbor6};
use natgate_engine::{Direction, Outcome, Side};
use natgate_io::HEADROOM;
use natgate_ipv6::{Prefix6, Side6};
use natgate_wire::nd::{Advertisement, Message, Solicitation};
use natgate_wire::{Icmpv6, icmpv6, protocol};
use std::time::Duration;

const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OUTSIDE_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const HOST: Mac = Mac([2, 0, 0, 0, 1, 5]);
const UPSTREAM: Mac = Mac([2, 0, 0, 0, 2, 54]);
const OTHER: Mac = Mac([2, 0, 0, 0, 3, 3]);

const IN: Link = Link::inside(0);
const OUT: Link = Link::OUTSIDE;

const OUTBOUND: Origin =
    Origin { direction: Direction::Outbound, outcome: Outcome::Forwarded, len: 48 };

fn ip(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn at(millis: u64) -> Timestamp {
    Timestamp(1_000_000_000_000).plus(Duration::from_millis(millis))
}

fn prefix(text: &str, len: u8) -> Prefix6 {
    Prefix6 { address: ip(text), len }
}

/// 2001:db8:1::1/64 inside, 2001:db8:2::1/64 outside with a gateway and a further route.
fn settings() -> Settings {
    let mut settings = crate::router::settings_of_tests();
    let side = |address, gateway: Option<&str>| Side6 {
        address: Some((ip(address), 64)),
        gateway: gateway.map(ip),
        ..Side6::default()
    };
    settings.ipv6.configured = true;
    settings.ipv6.inside = side("2001:db8:1::1", None);
    settings.ipv6.outside = side("2001:db8:2::1", Some("fe80::54"));
    let via = ip("2001:db8:2::53");
    let route = Route6 { prefix: prefix("2001:db8:3::", 48), via, side: Side::Outside };
    settings.router6.routes.push(route);
    settings
}

/// A router before its first work.
fn new(settings: &Settings) -> Router6 {
    let router = Router6::new(settings, &[INSIDE, OUTSIDE_MAC]).expect("the settings are right");
    router.expect("the settings are about IPv6")
}

/// A router that has its addresses.
fn router_of(settings: &Settings) -> Router6 {
    let mut router = new(settings);
    router.advance(at(0).before());
    router.advance(at(0));
    take(&mut router);
    router
}

fn router() -> Router6 {
    router_of(&settings())
}

trait Before {
    /// A second before.
    fn before(self) -> Self;
}

impl Before for Timestamp {
    fn before(self) -> Self {
        Self(self.0 - 1_000_000_000)
    }
}

/// A UDP packet of 48 bytes.
fn packet(source: &str, destination: &str) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    let mut view = Ipv6::init(&mut bytes[..]);
    view.set_payload_len(8);
    view.set_next_header(protocol::UDP);
    view.set_hop_limit(64);
    view.set_source(ip(source).to_bits());
    view.set_destination(ip(destination).to_bits());
    bytes
}

/// Sends a packet; returns the frame if it is ready.
fn send_packet(router: &mut Router6, now: Timestamp, link: Link, packet: &[u8]) -> (Fate, Vec<u8>) {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(packet);
    let end = buffer.len();
    let mut frame = Frame::of(&mut buffer, HEADROOM, end);
    let fate = router.send(now, link, &mut frame, Some(OUTBOUND));
    (fate, frame.bytes().to_vec())
}

fn send(router: &mut Router6, now: Timestamp, link: Link, to: &str) -> (Fate, Vec<u8>) {
    send_packet(router, now, link, &packet("2001:db8:1::5", to))
}

/// Output of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Out {
    /// A message: link, receiver's hardware address, source, destination, message.
    Message(Link, Mac, Ipv6Addr, Ipv6Addr, Message),
    /// A packet: link, receiver's hardware address, destination.
    Packet(Link, Mac, Ipv6Addr),
}

/// All output that waits, without reports of groups.
fn take(router: &mut Router6) -> Vec<Out> {
    let mut all = Vec::new();
    while let Some((link, frame, _)) = router.poll_transmit() {
        let (mac, source, kind) = arp::read_ethernet(&frame).expect("a frame");
        let own = if link == IN { INSIDE } else { OUTSIDE_MAC };
        assert_eq!((source, kind), (own, ethertype::IPV6));
        let bytes = &frame[ETHERNET_LEN..];
        let header = Ipv6::new_checked(bytes).expect("a packet");
        let [from, to] = [header.source(), header.destination()].map(Ipv6Addr::from_bits);
        if to == ip("ff02::16") {
            continue;
        }
        all.push(match nd::read(bytes) {
            Ok(message) => Out::Message(link, mac, from, to, message),
            Err(_) => Out::Packet(link, mac, to),
        });
    }
    all
}

/// The question for a neighbour, to its group.
fn question(link: Link, target: &str) -> Out {
    let own = if link == IN { INSIDE } else { OUTSIDE_MAC };
    let group = nd::solicited_node(ip(target));
    let message = Message::NeighborSolicitation { target: ip(target), mac: Some(own) };
    Out::Message(link, nd::group_mac(group), nd::link_local(own), group, message)
}

/// The question for a neighbour, to its hardware.
fn probe(link: Link, target: &str, mac: Mac) -> Out {
    let own = if link == IN { INSIDE } else { OUTSIDE_MAC };
    let message = Message::NeighborSolicitation { target: ip(target), mac: Some(own) };
    Out::Message(link, mac, nd::link_local(own), ip(target), message)
}

fn said(target: &str, mac: Mac) -> Advertisement {
    let target = ip(target);
    Advertisement { target, mac: Some(mac), router: false, solicited: true, replaces: true }
}

/// Lets the router hear an advertisement on a link.
fn hear(router: &mut Router6, now: Timestamp, link: Link, said: Advertisement) {
    let own = if link == IN { INSIDE } else { OUTSIDE_MAC };
    let to = if said.solicited { nd::link_local(own) } else { nd::ALL_NODES };
    let packet = said.packet(said.target, to);
    let sender = said.mac.unwrap_or(OTHER);
    assert_eq!(router.receive(now, link, sender, &packet), Received::Discovery);
}

/// Lets the router receive a solicitation of a host.
fn solicit(router: &mut Router6, now: Timestamp, link: Link, source: (&str, Mac), target: &str) {
    let question = Solicitation { target: ip(target), mac: source.1 };
    let question = question.packet(Some(ip(source.0)), nd::solicited_node(ip(target)));
    assert_eq!(router.receive(now, link, source.1, question.bytes()), Received::Discovery);
}

fn state(router: &Router6, link: Link, address: &str) -> Option<NeighborState6> {
    let list = router.neighbors(link);
    list.iter().find(|one| one.address == ip(address)).map(|one| one.state)
}

/// A router that knows its gateway outside.
fn acquainted() -> Router6 {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), OUT, "2001:db8:99::1").0, Fate::Kept);
    hear(&mut router, at(10), OUT, said("fe80::54", UPSTREAM));
    take(&mut router);
    router
}

#[test]
fn without_ipv6_there_is_no_router() {
    let settings = crate::router::settings_of_tests();
    assert!(Router6::new(&settings, &[INSIDE, OUTSIDE_MAC]).expect("right").is_none());
}

//= test rfc4861#section-7.2.2-queue
//= test rfc4861#section-7.2.2-option
#[test]
fn a_packet_waits_until_its_neighbour_has_answered() {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), OUT, "2001:db8:99::1").0, Fate::Kept);
    assert_eq!(send(&mut router, at(1), OUT, "2001:db8:98::1").0, Fate::Kept);
    assert_eq!(take(&mut router), [question(OUT, "fe80::54")]);
    hear(&mut router, at(10), OUT, said("fe80::54", UPSTREAM));
    let packet = |to| Out::Packet(OUT, UPSTREAM, ip(to));
    assert_eq!(take(&mut router), [packet("2001:db8:99::1"), packet("2001:db8:98::1")]);
    let (fate, frame) = send(&mut router, at(11), OUT, "2001:db8:97::1");
    assert_eq!(fate, Fate::Ready);
    let header = Some((UPSTREAM, OUTSIDE_MAC, ethertype::IPV6));
    assert_eq!(arp::read_ethernet(&frame), header);
    assert_eq!(frame[ETHERNET_LEN..], packet_of("2001:db8:97::1"));
    assert_eq!(router.losses().own(), 0);
}

fn packet_of(to: &str) -> Vec<u8> {
    packet("2001:db8:1::5", to)
}

#[test]
fn the_longest_prefix_tells_the_neighbour() {
    let mut router = router();
    for (link, to, neighbour) in [
        (OUT, "2001:db8:3::7", "2001:db8:2::53"),
        (OUT, "2001:db8:2::7", "2001:db8:2::7"),
        (OUT, "2001:db8:4::7", "fe80::54"),
        (IN, "2001:db8:1::7", "2001:db8:1::7"),
    ] {
        assert_eq!(send(&mut router, at(0), link, to).0, Fate::Kept, "{to}");
        assert_eq!(take(&mut router), [question(link, neighbour)], "{to}");
    }
    assert_eq!(send(&mut router, at(0), IN, "2001:db8:99::1").0, Fate::Lost);
    assert_eq!(send(&mut router, at(0), Link::inside(1), "2001:db8:99::1").0, Fate::Lost);
}

//= test rfc4861#section-7.3.3
//= test rfc4861#section-7.3.3-delay
#[test]
fn a_neighbour_is_reachable_then_stale_then_probed() {
    let mut router = acquainted();
    let gateway = |router: &Router6| state(router, OUT, "fe80::54");
    assert_eq!(gateway(&router), Some(NeighborState6::Reachable));
    router.advance(at(30_010));
    assert_eq!(gateway(&router), Some(NeighborState6::Stale));
    assert_eq!(take(&mut router), []);
    // The first packet to a stale neighbour is sent at once.
    assert_eq!(send(&mut router, at(31_000), OUT, "2001:db8:99::1").0, Fate::Ready);
    assert_eq!(gateway(&router), Some(NeighborState6::Delay));
    assert_eq!(router.next_deadline(), Some(at(36_000)));
    router.advance(at(36_000));
    assert_eq!(gateway(&router), Some(NeighborState6::Probe));
    assert_eq!(take(&mut router), [probe(OUT, "fe80::54", UPSTREAM)]);
    hear(&mut router, at(36_001), OUT, said("fe80::54", UPSTREAM));
    assert_eq!(gateway(&router), Some(NeighborState6::Reachable));
}

//= test rfc4861#section-7.3.3-delete
//= test rfc4861#section-7.3.3-rate
#[test]
fn a_neighbour_that_answers_no_probe_is_forgotten() {
    let mut router = acquainted();
    router.advance(at(30_010));
    assert_eq!(send(&mut router, at(31_000), OUT, "2001:db8:99::1").0, Fate::Ready);
    for probes in 0..3 {
        router.advance(at(36_000 + probes * 1000));
        assert_eq!(take(&mut router), [probe(OUT, "fe80::54", UPSTREAM)]);
        assert_eq!(send(&mut router, at(36_000), OUT, "2001:db8:99::1").0, Fate::Ready);
    }
    router.advance(at(39_000));
    assert_eq!(state(&router, OUT, "fe80::54"), None);
    assert_eq!(router.counters().neighbors_lost, 1);
    assert_eq!(send(&mut router, at(39_000), OUT, "2001:db8:99::1").0, Fate::Kept);
    assert_eq!(take(&mut router), [question(OUT, "fe80::54")]);
}

#[test]
fn a_stale_neighbour_without_use_is_forgotten() {
    let mut router = acquainted();
    router.advance(at(30_010));
    router.advance(at(630_009));
    assert_eq!(state(&router, OUT, "fe80::54"), Some(NeighborState6::Stale));
    router.advance(at(630_010));
    assert_eq!((state(&router, OUT, "fe80::54"), router.next_deadline()), (None, None));
}

//= test rfc4861#section-7.2.5
//= test rfc4861#section-7.2.5-incomplete
//= test rfc4861#section-7.3.1
#[test]
fn an_advertisement_changes_known_neighbours_only() {
    let mut router = acquainted();
    hear(&mut router, at(20), OUT, said("2001:db8:2::77", OTHER));
    assert_eq!(state(&router, OUT, "2001:db8:2::77"), None);
    // An unanswered question needs a hardware address.
    send(&mut router, at(20), OUT, "2001:db8:2::7");
    take(&mut router);
    hear(&mut router, at(21), OUT, Advertisement { mac: None, ..said("2001:db8:2::7", OTHER) });
    assert_eq!(state(&router, OUT, "2001:db8:2::7"), Some(NeighborState6::Incomplete));
    // An unsolicited one answers the question, and proves nothing.
    let unsolicited = Advertisement { solicited: false, ..said("2001:db8:2::7", OTHER) };
    hear(&mut router, at(22), OUT, unsolicited);
    assert_eq!(take(&mut router), [Out::Packet(OUT, OTHER, ip("2001:db8:2::7"))]);
    assert_eq!(state(&router, OUT, "2001:db8:2::7"), Some(NeighborState6::Delay));
}

//= test rfc4861#section-7.2.5-override
//= test rfc4861#section-7.2.5-update
#[test]
fn only_an_advertisement_that_overrides_changes_a_hardware_address() {
    let mut router = acquainted();
    let mac = |router: &Router6| router.neighbors(OUT)[0].mac;
    let proxy = Advertisement { replaces: false, ..said("fe80::54", OTHER) };
    hear(&mut router, at(20), OUT, proxy);
    let stale = (Some(UPSTREAM), Some(NeighborState6::Stale));
    assert_eq!((mac(&router), state(&router, OUT, "fe80::54")), stale);
    hear(&mut router, at(21), OUT, proxy);
    assert_eq!((mac(&router), state(&router, OUT, "fe80::54")), stale);
    assert_eq!(router.counters().neighbor_changes, 0);
    let unsolicited = Advertisement { solicited: false, ..said("fe80::54", OTHER) };
    hear(&mut router, at(22), OUT, unsolicited);
    let stale = (Some(OTHER), Some(NeighborState6::Stale));
    assert_eq!((mac(&router), state(&router, OUT, "fe80::54")), stale);
    hear(&mut router, at(23), OUT, said("fe80::54", UPSTREAM));
    let reachable = (Some(UPSTREAM), Some(NeighborState6::Reachable));
    assert_eq!((mac(&router), state(&router, OUT, "fe80::54")), reachable);
    assert_eq!(router.counters().neighbor_changes, 2);
}

//= test rfc4861#section-6.2.6-host
//= test rfc4861#section-7.2.3-router
#[test]
fn an_advertisement_tells_whether_its_sender_is_a_router() {
    let mut router = acquainted();
    assert!(!router.neighbors(OUT)[0].router);
    hear(&mut router, at(20), OUT, Advertisement { router: true, ..said("fe80::54", UPSTREAM) });
    assert!(router.neighbors(OUT)[0].router);
    // A solicitation does not tell.
    solicit(&mut router, at(21), OUT, ("fe80::54", OTHER), "2001:db8:2::1");
    assert!(router.neighbors(OUT)[0].router);
    // A router solicitation comes from a host.
    let mut solicitation = vec![0; 48];
    let kind = icmpv6::kind::ROUTER_SOLICITATION;
    nd::finish(&mut solicitation, kind, (ip("fe80::54"), nd::ALL_ROUTERS));
    assert_eq!(router.receive(at(22), OUT, OTHER, &solicitation), Received::Discovery);
    assert!(!router.neighbors(OUT)[0].router);
}

//= test rfc4861#section-7.2
#[test]
fn a_solicitation_without_a_hardware_address_is_answered_and_teaches_nothing() {
    let mut router = router();
    let mut question = vec![0; 64];
    question[48..].copy_from_slice(&ip("2001:db8:1::1").octets());
    let ends = (ip("2001:db8:1::5"), ip("2001:db8:1::1"));
    nd::finish(&mut question, icmpv6::kind::NEIGHBOR_SOLICITATION, ends);
    assert_eq!(router.receive(at(0), IN, HOST, &question), Received::Discovery);
    let out = take(&mut router);
    assert!(matches!(out[..], [Out::Message(IN, HOST, ..)]), "{out:?}");
    assert_eq!(router.neighbors(IN), []);
}

//= test rfc4861#section-8.2-update
#[test]
fn messages_of_other_routers_change_nothing() {
    let mut router = acquainted();
    let before = router.neighbors(OUT);
    for (kind, len) in [(icmpv6::kind::ROUTER_ADVERTISEMENT, 56), (icmpv6::kind::REDIRECT, 80)] {
        let mut message = vec![0; len];
        if len == 80 {
            // A better next hop, for a destination.
            message[48..64].copy_from_slice(&ip("fe80::99").octets());
            message[64..].copy_from_slice(&ip("2001:db8:99::1").octets());
        }
        nd::finish(&mut message, kind, (ip("fe80::54"), nd::link_local(OUTSIDE_MAC)));
        assert_eq!(router.receive(at(20), OUT, UPSTREAM, &message), Received::Discovery);
    }
    assert_eq!(router.counters().discovery_invalid, 0);
    assert_eq!(router.neighbors(OUT), before);
    let (fate, frame) = send(&mut router, at(21), OUT, "2001:db8:99::1");
    let to = arp::read_ethernet(&frame).map(|(to, ..)| to);
    assert_eq!((fate, to), (Fate::Ready, Some(UPSTREAM)));
}

//= test rfc4861#section-7.2.2-source
#[test]
fn a_question_for_the_receiver_of_an_own_packet_comes_from_its_source() {
    let mut router = router();
    let reply = packet("2001:db8:1::1", "2001:db8:1::5");
    assert_eq!(send_packet(&mut router, at(0), IN, &reply).0, Fate::Kept);
    let out = take(&mut router);
    let [Out::Message(_, _, source, ..)] = out[..] else { panic!("{out:?}") };
    assert_eq!(source, ip("2001:db8:1::1"));
}

//= test rfc4861#section-7.2.3-entry
//= test rfc4861#section-7.2.3-stale
//= test rfc4861#section-7.2.4-option
//= test rfc4861#section-7.2.4-router
//= test rfc4861#section-7.2.4-override
//= test rfc4861#section-7.2.4-solicited
#[test]
fn a_solicitation_is_answered_and_its_sender_learnt() {
    let mut router = router();
    solicit(&mut router, at(0), IN, ("2001:db8:1::5", HOST), "2001:db8:1::1");
    let target = ip("2001:db8:1::1");
    let answer =
        Advertisement { target, mac: Some(INSIDE), router: true, solicited: true, replaces: true };
    let message = Message::NeighborAdvertisement(answer);
    let expected = Out::Message(IN, HOST, target, ip("2001:db8:1::5"), message);
    assert_eq!(take(&mut router), [expected]);
    assert_eq!(state(&router, IN, "2001:db8:1::5"), Some(NeighborState6::Stale));
    assert_eq!(send(&mut router, at(1), IN, "2001:db8:1::5").0, Fate::Ready);
    // Other hardware makes the neighbour stale again.
    solicit(&mut router, at(2), IN, ("2001:db8:1::5", OTHER), "2001:db8:1::1");
    assert_eq!(state(&router, IN, "2001:db8:1::5"), Some(NeighborState6::Stale));
    assert_eq!((router.neighbors(IN)[0].mac, router.counters().neighbor_changes), (Some(OTHER), 1));
}

//= test rfc4861#section-7.2.3
#[test]
fn a_solicitation_for_others_or_from_elsewhere_is_not_believed() {
    let mut router = router();
    solicit(&mut router, at(0), IN, ("2001:db8:1::5", HOST), "2001:db8:1::2");
    solicit(&mut router, at(0), IN, ("2001:db8:1::5", HOST), "2001:db8:2::1");
    assert_eq!((take(&mut router), router.neighbors(IN)), (vec![], vec![]));
    // A source of another network is answered and not learnt.
    solicit(&mut router, at(0), IN, ("2001:db8:9::5", HOST), "2001:db8:1::1");
    assert_eq!((take(&mut router).len(), router.neighbors(IN)), (1, vec![]));
    // The router's own address as the source is a conflict.
    solicit(&mut router, at(0), IN, ("2001:db8:1::1", OTHER), "2001:db8:1::1");
    assert_eq!((take(&mut router), router.counters().address_conflicts), (vec![], 1));
}

#[test]
fn a_solicitation_of_a_neighbour_that_is_asked_for_releases_its_packets() {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), IN, "2001:db8:1::5").0, Fate::Kept);
    take(&mut router);
    solicit(&mut router, at(1), IN, ("2001:db8:1::5", HOST), "2001:db8:1::1");
    let out = take(&mut router);
    assert_eq!(out[0], Out::Packet(IN, HOST, ip("2001:db8:1::5")));
    assert_eq!(state(&router, IN, "2001:db8:1::5"), Some(NeighborState6::Delay));
}

#[test]
fn static_neighbours_are_neither_asked_nor_changed() {
    let mut settings = settings();
    let fixed = StaticNeighbor6 { side: Side::Outside, address: ip("fe80::54"), mac: UPSTREAM };
    settings.router6.neighbors.push(fixed);
    let mut router = router_of(&settings);
    assert_eq!(send(&mut router, at(0), OUT, "2001:db8:99::1").0, Fate::Ready);
    hear(&mut router, at(1), OUT, said("fe80::54", OTHER));
    solicit(&mut router, at(1), OUT, ("fe80::54", OTHER), "2001:db8:2::1");
    take(&mut router);
    router.advance(at(10_000_000));
    let listed = (router.neighbors(OUT)[0].mac, router.neighbors(OUT)[0].state);
    assert_eq!(listed, (Some(UPSTREAM), NeighborState6::Static));
    assert_eq!((take(&mut router), router.next_deadline()), (vec![], None));
    router.relink(OUT, OUTSIDE_MAC);
    assert_eq!(router.neighbors(OUT).len(), 1, "it stays when the link returns");
}

#[test]
fn packets_for_others_go_to_the_translator() {
    let mut router = router();
    let mut receive = |link, to: &str| {
        let packet = packet("2001:db8:1::5", to);
        router.receive(at(0), link, HOST, &packet)
    };
    assert_eq!(receive(IN, "2001:db8:99::1"), Received::Forward);
    assert_eq!(receive(IN, "64:ff9b::c000:201"), Received::Forward);
    assert_eq!(receive(IN, "2001:db8:1::1"), Received::Forward);
    assert_eq!(receive(IN, "2001:db8:2::1"), Received::Forward);
    for to in ["ff02::1", "ff02::fb", "ff0e::1", "fe80::77"] {
        assert_eq!(receive(IN, to), Received::Ignored, "{to}");
    }
    assert_eq!(receive(Link::inside(1), "2001:db8:99::1"), Received::Ignored);
    assert_eq!(router.counters().packets_ignored, 5);
    assert_eq!(router.receive(at(0), IN, HOST, &[0x60; 20]), Received::Forward);
}

#[test]
fn frames_to_the_groups_of_own_addresses_are_accepted() {
    let router = new(&settings());
    let group = |address| nd::group_mac(nd::solicited_node(address));
    for (link, mac, expected) in [
        (IN, INSIDE, true),
        (IN, OUTSIDE_MAC, false),
        (OUT, OUTSIDE_MAC, true),
        (IN, Mac([0x33, 0x33, 0, 0, 0, 1]), true),
        (IN, Mac([0x33, 0x33, 0, 0, 0, 2]), true),
        (IN, Mac([0x33, 0x33, 0, 0, 0, 3]), false),
        (IN, group(ip("2001:db8:1::1")), true),
        (IN, group(nd::link_local(INSIDE)), true),
        (IN, group(nd::link_local(HOST)), false),
        (Link::inside(1), INSIDE, false),
    ] {
        assert_eq!(router.accepts(link, mac), expected, "{link:?} {mac}");
    }
}

#[test]
fn a_link_without_ipv6_carries_none() {
    let mut settings = settings();
    settings.ipv6.outside = Side6::default();
    settings.router6.routes.clear();
    let mut router = router_of(&settings);
    assert_eq!(router.addresses(OUT), []);
    assert!(!router.accepts(OUT, nd::group_mac(nd::ALL_NODES)));
    let packet = packet("fe80::7", "2001:db8:1::5");
    assert_eq!(router.receive(at(0), OUT, OTHER, &packet), Received::Ignored);
    assert_eq!(send(&mut router, at(0), OUT, "fe80::7").0, Fate::Lost);
    assert_eq!((router.mtu(IN), router.mtu(OUT)), (1500, 0));
}

/// An echo request.
fn echo(source: &str, destination: &str) -> Vec<u8> {
    let (source, destination) = (ip(source).to_bits(), ip(destination).to_bits());
    let mut bytes = vec![0; 52];
    let mut view = Ipv6::init(&mut bytes[..]);
    view.set_payload_len(12);
    view.set_next_header(protocol::ICMPV6);
    view.set_hop_limit(64);
    view.set_source(source);
    view.set_destination(destination);
    let mut message = Icmpv6::new_checked(view.payload_mut()).expect("room");
    message.set_kind(icmpv6::kind::ECHO_REQUEST);
    message.set_identifier(7);
    message.fill_checksum(source, destination);
    bytes
}

#[test]
fn echo_requests_to_link_local_addresses_and_groups_are_answered() {
    let own = nd::link_local(INSIDE).to_string();
    for to in [&own[..], "ff02::1", "ff02::2"] {
        let mut router = router();
        let request = echo("fe80::5", to);
        assert_eq!(router.receive(at(0), IN, HOST, &request), Received::Taken, "{to}");
        assert_eq!(take(&mut router), [question(IN, "fe80::5")]);
        hear(&mut router, at(1), IN, said("fe80::5", HOST));
        let (_, frame, origin) = router.poll_transmit().expect("the answer");
        let reply = Ipv6::new_checked(&frame[ETHERNET_LEN..]).expect("a packet");
        let ends = [reply.source(), reply.destination()].map(Ipv6Addr::from_bits);
        assert_eq!((ends, origin), ([ip(&own), ip("fe80::5")], None));
        let message = Icmpv6::new_checked(reply.payload()).expect("a message");
        assert!(message.checksum_valid(reply.source(), reply.destination()));
        assert_eq!((message.kind(), message.identifier()), (icmpv6::kind::ECHO_REPLY, 7));
        assert_eq!(router.counters().echoes_answered, 1);
    }
    let mut router = router();
    let mut damaged = echo("fe80::5", "ff02::1");
    damaged[50] ^= 1;
    assert_eq!(router.receive(at(0), IN, HOST, &damaged), Received::Ignored);
}

#[test]
fn a_link_that_returns_asks_for_neighbours_again() {
    let mut router = acquainted();
    send(&mut router, at(20), OUT, "2001:db8:2::7");
    router.relink(OUT, OTHER);
    assert_eq!((router.neighbors(OUT), router.poll_transmit()), (vec![], None));
    let drops = router.losses().correct(&counted()).drops;
    assert_eq!(drops[DropReason::NoNeighbor as usize], 1);
    assert_eq!(router.addresses(OUT)[0], (nd::link_local(OTHER), AddressState::Tentative));
    assert_eq!((router.mac(OUT), router.next_deadline()), (OTHER, Some(Timestamp(0))));
}

/// Counters of the translator with one forwarded packet.
fn counted() -> Counters {
    let mut counters = Counters::default();
    counters.count(Direction::Outbound, Outcome::Forwarded, 48);
    counters
}

#[test]
fn a_reload_keeps_neighbours_of_the_same_network() {
    let mut router = acquainted();
    let mut other = settings();
    other.router6.routes[0].via = ip("2001:db8:2::99");
    other.ipv6.inside.address = Some((ip("2001:db8:5::1"), 64));
    router.reconfigure(&other).expect("the settings are right");
    assert_eq!(send(&mut router, at(20), OUT, "2001:db8:99::1").0, Fate::Ready);
    assert_eq!(send(&mut router, at(20), OUT, "2001:db8:3::1").0, Fate::Kept);
    assert_eq!(take(&mut router), [question(OUT, "2001:db8:2::99")]);
    let states = |router: &Router6, link| router.addresses(link).into_iter().map(|(_, one)| one);
    assert!(states(&router, OUT).all(|one| one == AddressState::Assigned));
    assert!(states(&router, IN).all(|one| one == AddressState::Tentative), "another network");
    let fixed = StaticNeighbor6 { side: Side::Outside, address: ip("2001:db8:2::99"), mac: OTHER };
    other.router6.neighbors.push(fixed);
    router.reconfigure(&other).expect("the settings are right");
    assert_eq!(take(&mut router), [Out::Packet(OUT, OTHER, ip("2001:db8:3::1"))]);
}

#[test]
fn a_next_hop_that_cannot_be_reached_is_refused() {
    let mut settings = settings();
    settings.ipv6.outside.gateway = Some(ip("2001:db8:7::1"));
    let error = Router6::new(&settings, &[INSIDE, OUTSIDE_MAC]).expect_err("unreachable");
    let expected = "outside.gateway6 2001:db8:7::1 is not a neighbour's address in outside's \
                    network 2001:db8:2::/64; the next hop must be directly connected";
    assert_eq!(error.to_string(), expected);
    let mut router = router();
    assert_eq!(router.reconfigure(&settings), Err(error));
    assert_eq!(send(&mut router, at(0), OUT, "2001:db8:99::1").0, Fate::Kept, "as before");
}

#[test]
fn the_mtu_is_the_lesser_of_device_and_configuration() {
    let mut router = router();
    assert!(router.follow_mtu(OUT, 1400) && !router.follow_mtu(OUT, 1400));
    assert_eq!(router.mtu(OUT), 1400);
    assert!(router.follow_mtu(OUT, 100));
    assert_eq!(router.mtu(OUT), 1280, "every link of IPv6 has that");
    assert!(router.follow_mtu(OUT, 9000));
    assert_eq!(router.mtu(OUT), 1500);
}
