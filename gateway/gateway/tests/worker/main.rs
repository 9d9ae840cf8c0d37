//! A gateway between two cables in memory and in virtual time: frames in, frames out.

mod capture;
mod fragments;
mod mtu;
mod nat64;
mod pair;
mod pcp;
mod pptp;
mod realms;
mod reload;
mod sources;
mod team;
mod tunnel_requests;
mod tunnels;
mod undelivered;
mod world;

use natgate_engine::{Change as StateChange, Direction, DropReason, Event, Outcome, Side};
use natgate_io::memory::QUEUE;
use natgate_wire::arp::{Mac, Operation, Repr};
use natgate_wire::link::ethertype;
use natgate_wire::{Icmp, Ipv4, Udp};
use std::net::Ipv4Addr;
use std::time::Duration;
use world::*;

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
    assert!(world.observer.events.len() == 1 && world.observer.events.iter().all(created));
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

//= test rfc1812#section-4.3.2.7-link
//= test rfc1812#section-5.3.4-forward
//= test rfc1812#section-5.3.4-discard
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
    assert_eq!(world.observer.links, [(Side::Outside, false), (Side::Outside, true)]);
    world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"again")));
    assert_eq!(view(&world.next_inside()).payload()[8..], *b"again");
}

#[test]
fn mappings_expire_with_time_alone() {
    let (mut world, _) = World::acquainted();
    let mut turns = 0;
    while world.observer.events.len() < 2 {
        // The loop of a worker sleeps until something is due, too.
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
    assert!(matches!(world.observer.events[1].change, StateChange::MappingRemoved(_)));
    let lived = world.observer.events[1].time.since(world.observer.events[0].time);
    assert!((300..=301).contains(&lived.as_secs()), "{lived:?}");
}
