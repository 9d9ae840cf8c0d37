//! A worker with DS-Lite: two B4s behind one router inside, with equal inner addresses.

use crate::world::*;
use natgate_engine::{Direction, DropReason, Outcome, Side};
use natgate_gateway::ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_gateway::ipv6::{Prefix6, Settings as Ipv6Settings, Side6};
use natgate_gateway::{Settings, StaticNeighbor6};
use natgate_wire::arp;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::{Icmp, Ipv4, Ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const AFTR: &str = "2001:db8:ffff::1";
pub(crate) const B4S: [&str; 2] = ["2001:db8:b4::1", "2001:db8:b4::2"];
pub(crate) const INNER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
/// The router inside, which the configuration knows.
const ROUTER: &str = "2001:db8:1::5";
/// The next header of IPv4 in IPv6.
const IPV4: u8 = 4;

pub(crate) fn ipv6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

pub(crate) fn tunnel_settings() -> Settings {
    let mut settings = settings();
    settings.ipv6 = Ipv6Settings {
        configured: true,
        inside: Side6 {
            address: Some((ipv6("2001:db8:1::1"), 64)),
            gateway: Some(ipv6(ROUTER)),
            ..Side6::default()
        },
        dslite: Some(DsliteSettings {
            subscriber_length: 128,
            b4_change_interval: std::time::Duration::ZERO,
            address: ipv6(AFTR),
            b4: vec![Prefix6 { address: ipv6("2001:db8:b4::"), len: 48 }],
            softwire: SoftwireSettings { mtu: None, path_mtu: true },
            static_hosts: Vec::new(),
        }),
        ..Ipv6Settings::default()
    };
    let router = StaticNeighbor6 { side: Side::Inside, address: ipv6(ROUTER), mac: HOST };
    settings.router6.neighbors.push(router);
    settings
}

/// A world whose gateway uses its addresses.
fn world() -> World {
    let mut world = World::with(&tunnel_settings());
    for _ in 0..30 {
        world.pass(Duration::from_millis(100));
    }
    while world.inside.take().is_some() {}
    world
}

/// A frame from a tunnel.
pub(crate) fn tunneled(b4: &str, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(inner.len() as u16);
    header.set_next_header(IPV4);
    header.set_hop_limit(64);
    header.set_source(ipv6(b4).to_bits());
    header.set_destination(ipv6(AFTR).to_bits());
    bytes.extend(inner);
    let mut frame = vec![0; ETHERNET_LEN];
    arp::write_ethernet(
        (&mut frame[..]).try_into().expect("a header"),
        INSIDE,
        HOST,
        ethertype::IPV6,
    );
    [frame, bytes].concat()
}

/// The packets that have left inside into tunnels.
pub(crate) fn entered(world: &mut World) -> Vec<Vec<u8>> {
    world.turn();
    let frames = std::iter::from_fn(|| world.inside.take());
    let ours = frames.filter(|frame| frame[12..14] == ethertype::IPV6.to_be_bytes());
    let packets = ours.map(|frame| {
        assert_eq!(frame[..6], HOST.0);
        frame[ETHERNET_LEN..].to_vec()
    });
    packets.filter(|packet| [IPV4, 44].contains(&packet[6])).collect()
}

/// The B4 and the IPv4 packet of the only packet that has left into a tunnel.
pub(crate) fn only(world: &mut World) -> (String, Vec<u8>) {
    let packets = entered(world);
    let [packet] = &packets[..] else { panic!("{} packets", packets.len()) };
    let outer = Ipv6::new_checked(&packet[..]).expect("a packet");
    assert_eq!((outer.source(), outer.next_header()), (ipv6(AFTR).to_bits(), IPV4));
    (Ipv6Addr::from_bits(outer.destination()).to_string(), outer.payload().to_vec())
}

/// Has a host behind a tunnel ask the server; returns its external port.
fn ask(world: &mut World, b4: &str, from: u16) -> u16 {
    let question = udp((INNER, from), (REMOTE, 53), b4.as_bytes());
    assert!(world.inside.send(&tunneled(b4, &question)));
    let left = world.next_outside();
    assert!(udp_valid(&left) && left.ends_with(b4.as_bytes()));
    u16::from_be_bytes([left[20], left[21]])
}

#[test]
fn equal_inner_addresses_have_their_own_sessions() {
    let mut world = world();
    let ports = B4S.map(|b4| ask(&mut world, b4, 4000));
    assert_ne!(ports[0], ports[1]);
    for (b4, port) in B4S.into_iter().zip(ports) {
        world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"answer")));
        let (to, inner) = only(&mut world);
        assert!(udp_valid(&inner));
        assert_eq!((to.as_str(), view(&inner).destination()), (b4, INNER.to_bits()));
        assert_eq!((&inner[22..24], &inner[28..]), (&4000_u16.to_be_bytes()[..], &b"answer"[..]));
    }
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), 2);
    assert_eq!(world.packets(Direction::Inbound, Outcome::Forwarded), 2);
}

#[test]
fn customers_reach_each_other_and_the_gateway_in_their_tunnels() {
    let mut world = world();
    let ports = B4S.map(|b4| ask(&mut world, b4, 4000));
    let turning = udp((INNER, 4000), (EXTERNAL, ports[1]), b"hello");
    world.inside.send(&tunneled(B4S[0], &turning));
    let (to, inner) = only(&mut world);
    assert_eq!((to.as_str(), view(&inner).source()), (B4S[1], EXTERNAL.to_bits()));
    assert_eq!(inner[20..22], ports[0].to_be_bytes());
    let own = Ipv4Addr::new(192, 0, 0, 1);
    world.inside.send(&tunneled(B4S[0], &echo_request(INNER, own)));
    let (to, inner) = only(&mut world);
    assert_eq!((to.as_str(), inner[20]), (B4S[0], 0));
    assert_eq!(view(&inner).source(), own.to_bits());
    // An error of the engine's own.
    let mut last = udp((INNER, 4000), (REMOTE, 53), b"hello");
    let mut header = Ipv4::new_checked(&mut last[..]).expect("a packet");
    header.set_ttl(1);
    header.fill_checksum();
    world.inside.send(&tunneled(B4S[0], &last));
    let (to, inner) = only(&mut world);
    let packet = view(&inner);
    let error = Icmp::new_checked(packet.payload()).expect("a message");
    assert_eq!((to.as_str(), error.kind(), error.code()), (B4S[0], 11, 0));
    assert_eq!(error.body(), last);
    assert_eq!(world.drops(DropReason::NoRoute), 0);
    assert_eq!(world.packets(Direction::Hairpin, Outcome::Forwarded), 1);
    assert_eq!(world.packets(Direction::Local, Outcome::Replied), 1);
}

#[test]
fn what_is_too_long_leaves_in_fragments_and_comes_in_fragments() {
    let mut world = world();
    let port = ask(&mut world, B4S[0], 4000);
    let answer = udp((REMOTE, 53), (EXTERNAL, port), &[9; 1460]);
    world.outside.send(&to_outside(&answer));
    let pieces = entered(&mut world);
    assert_eq!(pieces.len(), 2);
    assert!(pieces.iter().all(|piece| piece.len() <= 1500 && piece[6] == 44));
    let inner = [&pieces[0][48..], &pieces[1][48..]].concat();
    assert_eq!(inner[28..], answer[28..]);
    assert!(udp_valid(&inner));
    // The same packet from the other end, cut at another place.
    let question = udp((INNER, 4000), (REMOTE, 53), &[8; 1460]);
    for (from, to) in [(0, 800), (800, question.len())] {
        let field = (from as u16 | u16::from(to < question.len())).to_be_bytes();
        let header = [IPV4, 0, field[0], field[1], 0, 0, 0, 9];
        let mut frame = tunneled(B4S[0], &[&header[..], &question[from..to]].concat());
        frame[ETHERNET_LEN + 6] = 44;
        world.inside.send(&frame);
    }
    let left = world.next_outside();
    assert_eq!(left[28..], question[28..]);
    assert!(udp_valid(&left));
}

#[test]
fn a_link_that_becomes_narrower_makes_tunnels_narrower() {
    let mut world = world();
    let port = ask(&mut world, B4S[0], 4000);
    world.inside.set_mtu(1400);
    for _ in 0..2 {
        world.pass(Duration::from_millis(1100));
    }
    let answer = to_outside(&udp((REMOTE, 53), (EXTERNAL, port), &[9; 1420]));
    let lens = (0..4).map(|_| {
        world.outside.send(&answer);
        let pieces = entered(&mut world);
        pieces.iter().map(Vec::len).max()
    });
    let lens: Vec<_> = lens.collect();
    assert!(lens.iter().flatten().all(|len| *len <= 1400), "{lens:?}");
    assert!(lens.last().is_some_and(Option::is_some), "a black hole: {lens:?}");
}

#[test]
fn a_forged_end_of_a_tunnel_leaves_nothing() {
    let mut world = world();
    let question = udp((INNER, 4000), (REMOTE, 53), b"question");
    world.inside.send(&tunneled("2001:db8:b5::1", &question));
    assert!(entered(&mut world).is_empty() && world.outside.take().is_none());
    assert_eq!(world.drops(DropReason::SoftwireSource), 1);
    assert_eq!(world.observer.events, []);
}
