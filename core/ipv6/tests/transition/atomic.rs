//! Atomic fragments: IPv6 packets that are whole and have a fragment header nevertheless. Each goes
//! on alone, whatever waits under its identification (RFC 6946 section 4).

use crate::packets::*;
use crate::prefixes::pref64;
use crate::world::{Went, World, customer, dmr, lw4o6, map, map_rule, nat64, siit};
use natgate_engine::Side;
use natgate_ipv6::softwire::MapMode;
use natgate_wire::Ipv4;

const HOST: &str = "2001:db8:a::5";
const REMOTE: &str = "198.51.100.7";
const IDENTIFICATION: u32 = 0x1234_5678;

/// The atomic fragment of a packet.
fn atomic(whole: &[u8]) -> Vec<u8> {
    part6(whole, IDENTIFICATION, (0, whole.len() - 40))
}

/// A translation of each kind, with a host that may send port 1232, and the address that stands for
/// the remote host.
fn translations() -> Vec<(&'static str, World, String, String)> {
    let well_known = pref64("64:ff9b::", 96);
    let rule = map_rule("2001:db8::", "192.0.2.0", 24, MapMode::Translation(dmr()));
    let remote = |net: natgate_ipv6::Pref64| net.embed(REMOTE.parse().unwrap()).to_string();
    vec![
        ("NAT64", World::new(nat64(well_known)), HOST.into(), remote(well_known)),
        (
            "SIIT",
            World::new(siit(well_known, &[(HOST, "192.0.2.1")])),
            HOST.into(),
            remote(well_known),
        ),
        (
            "MAP-T",
            World::new(map(&[(rule, None)])),
            customer(&rule, "192.0.2.18", 0x34),
            remote(dmr()),
        ),
    ]
}

#[test]
fn an_atomic_fragment_becomes_a_whole_packet_that_may_be_cut() {
    for (name, mut world, host, remote) in translations() {
        for (protocol, payload) in
            [(UDP, udp((1232, 53), 20)), (TCP, syn((1232, 53), 9)), (ICMPV6, echo(128, 1232))]
        {
            let whole = six((&host, &remote), protocol, &payload);
            let plain = world.pass(Side::Inside, Side::Outside, &whole);
            let left = world.pass(Side::Inside, Side::Outside, &atomic(&whole));
            check(&left);
            let header = Ipv4::new_checked(&left[..]).expect("a packet of IPv4");
            assert_eq!(header.identification(), IDENTIFICATION as u16, "{name} {protocol}");
            assert!(!header.dont_fragment() && !header.more_fragments());
            assert_eq!(header.fragment_offset(), 0);
            // All else is as without the header.
            assert_eq!(left[20..], plain[20..], "{name} {protocol}");
            assert_eq!((left.len(), ends(&left)), (plain.len(), ends(&plain)));
        }
    }
}

#[test]
fn an_atomic_fragment_does_not_meet_fragments_of_its_identification() {
    for (name, mut world, host, remote) in translations() {
        let whole = six((&host, &remote), UDP, &udp((1232, 53), 100));
        let [first, later] = [(0, 48), (48, 108)].map(|part| part6(&whole, IDENTIFICATION, part));
        let waits = name != "SIIT";
        if waits {
            assert_eq!(world.take(Side::Inside, &later), Went::Held, "{name}");
        }
        let other = six((&host, &remote), UDP, &udp((1232, 80), 20));
        let left = world.pass(Side::Inside, Side::Outside, &atomic(&other));
        assert_eq!((port(&left, 2), world.own()), (80, None), "{name}");
        let left = world.pass(Side::Inside, Side::Outside, &first);
        assert_eq!(port(&left, 2), 53, "{name}");
        let released = match waits {
            true => world.own().expect("the fragment that waited").1,
            false => world.pass(Side::Inside, Side::Outside, &later),
        };
        let header = Ipv4::new_checked(&released[..]).expect("a packet of IPv4");
        assert_eq!((header.fragment_offset(), header.more_fragments()), (48, false), "{name}");
        assert_eq!(released[20..], whole[88..], "{name}");
    }
}

/// A fragment header in a tunnel's outer packet.
#[test]
fn an_atomic_fragment_leaves_its_tunnel_at_once() {
    let (b4, relay) = ("2001:db8:b4::1", "2001:db8:ffff::2");
    let mut world = World::new(lw4o6("203.0.113.7", None, &[(1, b4, relay)]));
    let inner = four(("203.0.113.7", REMOTE), UDP, &udp((1500, 53), 100));
    let whole = tunneled((b4, relay), &inner);
    let [first, last] = [(0, 64), (64, 128)].map(|part| part6(&whole, IDENTIFICATION, part));
    assert_eq!(world.take(Side::Inside, &last), Went::Held);
    let left = world.pass(Side::Inside, Side::Outside, &atomic(&whole));
    assert_eq!((&left, world.own()), (&with_hops(inner.clone(), 63), None));
    assert_eq!(world.take(Side::Inside, &first), Went::Held);
    assert_eq!(world.own(), Some((Side::Outside, with_hops(inner, 63))));
}
