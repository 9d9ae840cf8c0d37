//! Two translators that face each other with both sides: a packet that leaves one by a side enters
//! the other by the same side. The hop limit ends a packet, and the one error about it.

use crate::packets::*;
use crate::prefixes::{address, pref64};
use crate::world::{Went, World, nat64, siit};
use natgate_engine::{DropReason, Side, StaticMapping};
use natgate_ipv6::{Settings, StaticHost};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

const HOST: &str = "2001:db8:a::5";
/// Hop limits of the packets that are let into a ring.
const LIMITS: [u8; 5] = [1, 2, 3, 64, 255];

/// Packets until nothing moves any more.
#[derive(Debug, Default, PartialEq)]
struct Toll {
    forwarded: usize,
    errors: usize,
    mappings: usize,
    drops: Vec<DropReason>,
}

/// Lets a packet into the ring at the inside of the first translator.
fn circulate(ring: &mut [World; 2], packet: Vec<u8>) -> Toll {
    let mut toll = Toll::default();
    let mut under_way = VecDeque::from([(0, Side::Inside, packet)]);
    while let Some((at, from, bytes)) = under_way.pop_front() {
        assert!(toll.forwarded < 10_000, "it does not end");
        match ring[at].take(from, &bytes) {
            Went::To(side, bytes, cut) => {
                assert_eq!(cut, None);
                toll.forwarded += 1;
                under_way.push_back((1 - at, side, bytes));
            }
            Went::Dropped(reason) => toll.drops.push(reason),
            Went::Held => unreachable!("no packet is a fragment"),
        }
        while let Some((side, bytes)) = ring[at].own() {
            toll.errors += 1;
            under_way.push_back((1 - at, side, bytes));
        }
    }
    toll.mappings = ring.iter().map(|world| world.engine.mappings().count()).sum();
    toll
}

/// Circulates a packet of each hop limit, and checks that it dies of the limit with one error.
/// `mappings` is the number of mappings after so many steps.
fn dies(ring: impl Fn() -> [World; 2], ends: Ends<'_>, mappings: impl Fn(usize) -> usize) {
    for payload in [(UDP, udp((5000, 53), 20)), (ICMPV6, echo(128, 53)), (TCP, syn((5000, 53), 9))]
    {
        for limit in LIMITS {
            let packet = with_hops(six(ends, payload.0, &payload.1), limit);
            let toll = circulate(&mut ring(), packet);
            println!("protocol {}, hop limit {limit}: {toll:?}", payload.0);
            let steps = usize::from(limit) - 1;
            assert_eq!((toll.errors, toll.mappings), (1, mappings(steps)));
            assert_eq!(toll.drops[0], DropReason::TtlExceeded);
            // An error has a hop limit of its own.
            assert!((steps..=steps + 255).contains(&toll.forwarded));
        }
    }
}

#[test]
fn between_stateless_translators_with_one_prefix_a_packet_dies_of_its_hop_limit() {
    let net = pref64("2001:db8:64::", 96);
    let one = || World::new(siit(net, &[]));
    let ends = ("2001:db8:64::c000:201", "2001:db8:64::c633:6407");
    dies(|| [one(), one()], ends, |_| 0);
}

/// The second translator's map leads a destination outside back to the first one's prefix.
#[test]
fn between_nat64_and_a_stateless_translator_a_packet_dies_of_its_hop_limit() {
    let first = || World::new(nat64(pref64("64:ff9b::", 96)));
    let maps = [("64:ff9b::c633:6407", "198.51.100.7")];
    let second = || World::new(siit(pref64("2001:db8:64::", 96), &maps));
    let ends = (HOST, "64:ff9b::c633:6407");
    // Every second step is one of NAT64, and its source is new to it.
    dies(|| [first(), second()], ends, |steps| steps.div_ceil(2));
}

/// A NAT64 whose static mappings lead from an external endpoint to an address of IPv6.
fn with_static(net: &str, external: [u8; 4], host: &str) -> World {
    let hosts = StaticHost::first(&[address(host).into()], 64, 1);
    let number = hosts[0].number;
    let mut settings: Settings = nat64(pref64(net, 96));
    settings.nat64.as_mut().expect("NAT64").static_hosts = hosts;
    World::with(settings, |config| {
        let external = Ipv4Addr::from(external);
        config.pools[0].addresses[0].first = external;
        config.pools[0].addresses[0].last = external;
        config.statics = [(6, 53), (17, 53), (1, 53)]
            .map(|(protocol, port)| StaticMapping {
                realm: 1,
                protocol: Some(protocol),
                internal: (number, Some(port)),
                external: (external, Some(port)),
                ..StaticMapping::default()
            })
            .to_vec();
    })
}

/// The second NAT64 has a static mapping to an address in the first one's prefix.
#[test]
fn between_two_nat64_a_packet_dies_of_its_hop_limit() {
    let first = || World::new(nat64(pref64("64:ff9b::", 96)));
    let second = || with_static("2001:db8:64::", [203, 0, 113, 9], "64:ff9b::cb00:7109");
    let statics = second().engine.mappings().count();
    for limit in LIMITS {
        let packet = six((HOST, "64:ff9b::cb00:7109"), UDP, &udp((5000, 53), 20));
        let toll = circulate(&mut [first(), second()], with_hops(packet, limit));
        println!("hop limit {limit}: {toll:?}");
        let steps = usize::from(limit) - 1;
        assert_eq!((toll.errors, toll.mappings - statics), (1, steps.div_ceil(2)));
        assert_eq!(toll.drops[0], DropReason::TtlExceeded);
        assert!((steps..=steps + 255).contains(&toll.forwarded));
    }
}

/// With one prefix, a packet does not even go round once: its source is in the prefix.
#[test]
fn between_two_nat64_with_one_prefix_a_packet_stops_at_once() {
    let first = World::new(nat64(pref64("64:ff9b::", 96)));
    let second = with_static("64:ff9b::", [203, 0, 113, 9], "2001:db8:b::5");
    let mut ring = [first, second];
    let packet = six((HOST, "64:ff9b::cb00:7109"), UDP, &udp((5000, 53), 20));
    let left = ring[0].pass(Side::Inside, Side::Outside, &packet);
    let entered = ring[1].pass(Side::Outside, Side::Inside, &left);
    assert_eq!(ends(&entered), pair(("64:ff9b::cb00:7101", "2001:db8:b::5")));
    assert_eq!(ring[0].refuse(Side::Inside, &entered), DropReason::SpoofedSource);
    assert_eq!(ring[0].own(), None);
}
