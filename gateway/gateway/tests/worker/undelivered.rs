//! Packets that the router cannot deliver after translation: their senders get ICMP errors about
//! the packets that they sent, and nothing is counted twice.

use crate::world::*;
use natgate_engine::{Direction, DropReason, Match, Outcome, Prefix, Rule, RuleAction, Side};
use natgate_gateway::Route;
use natgate_wire::link::ETHERNET_LEN;
use natgate_wire::protocol::ICMP;
use natgate_wire::{Icmp, Ipv4, Udp, icmp};
use std::net::Ipv4Addr;
use std::time::Duration;

/// An address without a route.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// An address of the outside's network without a station.
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
/// Another subscriber.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 6);

/// Waits until the neighbours that are asked for are given up.
fn wait_in_vain(world: &mut World) {
    world.turn();
    (0..3).for_each(|_| world.pass(Duration::from_secs(1)));
}

/// Checks the headers of an error; returns its code and the packet that it quotes.
fn read_error(error: &[u8], from: Ipv4Addr, to: Ipv4Addr) -> (u8, Vec<u8>) {
    let packet = view(error);
    assert!(packet.checksum_valid());
    assert_eq!((packet.source(), packet.destination()), (from.to_bits(), to.to_bits()));
    assert_eq!(packet.ttl(), 64);
    let message = Icmp::new_checked(packet.payload()).expect("an ICMP message");
    assert!(message.checksum_valid());
    assert_eq!(message.kind(), icmp::kind::UNREACHABLE);
    (message.code(), message.body().to_vec())
}

/// A packet as an error quotes it: as sent, but for its time to live.
fn one_hop_later(mut packet: Vec<u8>) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut packet[..]).expect("a packet");
    header.set_ttl(header.ttl() - 1);
    header.fill_checksum();
    packet
}

/// Next IP packet on a cable, if there is one. ARP is not answered.
fn packet_on(wire: &natgate_io::memory::Wire) -> Option<Vec<u8>> {
    let frames = std::iter::from_fn(|| wire.take());
    let mut packets = frames.filter(|frame| frame[12..14] == [8, 0]);
    packets.next().map(|frame| frame[ETHERNET_LEN..].to_vec())
}

//= test rfc1812#section-4.3.3.1-network
//= test rfc1812#section-4.3.2.3-identical
//= test rfc1812#section-5.2.7.1
#[test]
fn a_subscriber_learns_that_no_route_leads_there() {
    let (mut world, _) = World::acquainted();
    let sent = udp((SUBSCRIBER, 4000), (NOWHERE, 53), b"where to?");
    world.inside.send(&to_inside(&sent));
    let error = world.next_inside();
    assert_eq!(read_error(&error, OWN_INSIDE, SUBSCRIBER), (0, one_hop_later(sent)));
    assert_eq!(world.drops(DropReason::NoRoute), 1);
    // The error is the gateway's own, and no inbound packet: the reply was the only one.
    assert_eq!(world.packets(Direction::Inbound, Outcome::Forwarded), 1);
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), 1);
    assert_eq!(world.packets(Direction::Outbound, Outcome::Dropped), 1);
}

//= test rfc1812#section-4.3.3.1-host
//= test rfc1812#section-5.2.7.1-host
//= test rfc1812#section-4.3.2.2
//= test rfc1812#section-4.3.2.4
#[test]
fn a_subscriber_learns_that_nobody_is_there() {
    let (mut world, _) = World::acquainted();
    for message in [&b"first"[..], b"second"] {
        world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (NOBODY, 53), message)));
    }
    world.turn();
    assert_eq!(packet_on(&world.inside), None);
    wait_in_vain(&mut world);
    let error = packet_on(&world.inside).expect("an error");
    let sent = udp((SUBSCRIBER, 4000), (NOBODY, 53), b"first");
    assert_eq!(read_error(&error, OWN_INSIDE, SUBSCRIBER), (1, one_hop_later(sent)));
    assert_eq!(packet_on(&world.inside), None);
    assert_eq!(world.drops(DropReason::NoNeighbor), 2);
}

#[test]
fn each_subscriber_learns_it_of_his_own() {
    let (mut world, _) = World::acquainted();
    world.inside.send(&to_inside(&udp((OTHER, 1), (REMOTE, 53), b"find me")));
    world.next_outside();
    for from in [SUBSCRIBER, OTHER] {
        world.inside.send(&to_inside(&udp((from, 4000), (NOBODY, 53), b"hello")));
    }
    wait_in_vain(&mut world);
    let error = packet_on(&world.inside).expect("an error");
    read_error(&error, OWN_INSIDE, SUBSCRIBER);
    // The hardware address of the other subscriber is not known yet; its error waits like any
    // packet.
    assert_eq!(view(&world.next_inside()).destination(), OTHER.to_bits());
}

#[test]
fn pings_that_cannot_be_delivered_are_answered_too() {
    let (mut world, _) = World::acquainted();
    let sent = echo_request(SUBSCRIBER, NOWHERE);
    world.inside.send(&to_inside(&sent));
    let error = world.next_inside();
    assert_eq!(read_error(&error, OWN_INSIDE, SUBSCRIBER), (0, one_hop_later(sent)));
}

#[test]
fn a_remote_host_learns_that_the_subscriber_is_gone() {
    let (mut world, port) = World::acquainted();
    // The gateway asks for the subscriber in vain, and forgets it.
    (0..8).for_each(|_| world.pass(Duration::from_secs(20)));
    let sent = udp((REMOTE, 53), (EXTERNAL, port), b"are you there?");
    world.outside.send(&to_outside(&sent));
    wait_in_vain(&mut world);
    let error = world.next_outside();
    assert_eq!(read_error(&error, OWN_OUTSIDE, REMOTE), (1, one_hop_later(sent)));
    assert_eq!(world.packets(Direction::Inbound, Outcome::Dropped), 1);
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), 1);
}

#[test]
fn a_subscriber_learns_that_another_is_gone() {
    let (mut world, port) = World::acquainted();
    world.inside.send(&to_inside(&udp((OTHER, 4000), (REMOTE, 53), b"find me")));
    world.outside.take();
    world.pass(Duration::ZERO);
    let packet = packet_on(&world.outside).expect("it is known how to reach the server");
    let others = Udp::new_checked(view(&packet).payload()).expect("UDP").source_port();
    let sent = udp((SUBSCRIBER, 4000), (EXTERNAL, others), b"hairpin");
    world.inside.send(&to_inside(&sent));
    wait_in_vain(&mut world);
    let error = packet_on(&world.inside).expect("an error");
    assert_eq!(read_error(&error, OWN_INSIDE, SUBSCRIBER), (1, one_hop_later(sent)));
    assert_ne!(others, port);
    assert_eq!(world.packets(Direction::Hairpin, Outcome::Forwarded), 0);
    assert_eq!(world.packets(Direction::Hairpin, Outcome::Dropped), 1);
}

#[test]
fn untranslated_packets_are_answered_both_ways() {
    let mut settings = settings();
    let beyond = Prefix::new(NOWHERE, 24);
    let bypass = Rule::new(Match::Destination(beyond, 0), RuleAction::Bypass);
    settings.engine.rules = vec![bypass];
    let mut world = World::with(&settings);
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"find me")));
    world.next_outside();
    let sent = udp((SUBSCRIBER, 4000), (NOWHERE, 53), b"as it is");
    world.inside.send(&to_inside(&sent));
    let error = world.next_inside();
    assert_eq!(read_error(&error, OWN_INSIDE, SUBSCRIBER), (0, one_hop_later(sent)));

    // There is no route back to the sender, so neither an answer nor an error leaves.
    let stray = udp((NOWHERE, 53), (OTHER, 4000), b"as it is");
    world.outside.send(&to_outside(&stray));
    wait_in_vain(&mut world);
    assert_eq!(packet_on(&world.outside), None);
    assert_eq!(world.worker.status(world.now).own_lost, 1);
    assert_eq!(world.worker.status(world.now).router.errors_made, 2);
}

//= test rfc1812#section-4.3.2.7-error
#[test]
fn errors_and_answers_of_the_gateways_own_make_no_errors() {
    let (mut world, _) = World::acquainted();
    // A packet of an unknown sender with TTL 1: the error about it finds no neighbour.
    let mut dying = udp((OTHER, 4000), (REMOTE, 53), b"old");
    let mut header = Ipv4::new_checked(&mut dying[..]).expect("a packet");
    header.set_ttl(1);
    header.fill_checksum();
    world.inside.send(&to_inside(&dying));
    // A ping from an address without a route: its answer finds no route.
    world.outside.send(&to_outside(&echo_request(NOWHERE, OWN_OUTSIDE)));
    wait_in_vain(&mut world);
    let status = world.worker.status(world.now);
    assert_eq!((status.router.errors_made, status.router.errors_suppressed), (0, 0));
    assert_eq!(status.own_lost, 1);
    assert_eq!(packet_on(&world.inside).or(packet_on(&world.outside)), None);
}

//= test rfc1812#section-4.3.2.8
#[test]
fn a_flood_to_nowhere_is_answered_at_a_rate() {
    let (mut world, _) = World::acquainted();
    for _ in 0..2000 {
        world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (NOWHERE, 53), b"flood")));
        world.turn();
    }
    let errors = std::iter::from_fn(|| packet_on(&world.inside)).count();
    // One requester gets a quarter of 500 a second.
    assert_eq!(errors, 125);
    let router = world.worker.status(world.now).router;
    assert_eq!((router.errors_made, router.errors_suppressed), (125, 2000 - 125));
    assert_eq!(world.drops(DropReason::NoRoute), 2000);
    assert_eq!(world.packets(Direction::Inbound, Outcome::Forwarded), 1);
}

/// A router inside, and a host behind it.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const BEYOND: Ipv4Addr = Ipv4Addr::new(172, 20, 5, 5);

fn routed_inside() -> World {
    let mut settings = settings();
    settings.routes =
        vec![Route { prefix: Prefix::new(BEYOND, 16), via: ROUTER, side: Side::Inside }];
    settings.derive_inside_routes();
    World::with(&settings)
}

#[test]
fn a_host_inside_learns_that_the_router_inside_does_not_answer() {
    let mut world = routed_inside();
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"find me")));
    world.next_outside();
    let sent = udp((SUBSCRIBER, 4000), (BEYOND, 80), b"to the branch");
    world.inside.send(&to_inside(&sent));
    wait_in_vain(&mut world);
    let error = world.next_inside();
    assert_eq!(read_error(&error, OWN_INSIDE, SUBSCRIBER), (1, one_hop_later(sent)));
    assert_eq!(world.packets(Direction::Hairpin, Outcome::Forwarded), 0);
    assert_eq!(world.drops(DropReason::NoNeighbor), 1);
}

#[test]
fn an_error_of_a_router_inside_reaches_the_host_that_it_is_about() {
    let mut world = routed_inside();
    let sent = udp((SUBSCRIBER, 4000), (BEYOND, 80), b"to the branch");
    world.inside.send(&to_inside(&sent));
    world.next_inside();
    let mut message = vec![3, 1, 0, 0, 0, 0, 0, 0];
    message.extend(one_hop_later(sent.clone()));
    Icmp::new_checked(&mut message[..]).expect("a message").fill_checksum();
    let error = ip(ICMP, Ipv4Addr::new(172, 20, 0, 1), SUBSCRIBER, &message);
    world.inside.send(&ethernet(INSIDE, SERVER, &error));
    assert_eq!(world.next_inside(), one_hop_later(error));
    // An error to another host is dropped.
    let other = ip(ICMP, Ipv4Addr::new(172, 20, 0, 1), OTHER, &message);
    world.inside.send(&ethernet(INSIDE, SERVER, &other));
    world.turn();
    assert_eq!(world.drops(DropReason::SameSide), 1);
}
