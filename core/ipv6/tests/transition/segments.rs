//! The maximum segment size that a SYN announces: what fits the link, or the domain's narrower way,
//! behind the headers that a packet of the other end gets.

use crate::packets::*;
use crate::world::{World, customer, dmr, lw4o6, map, map_rule};
use natgate_engine::{Config, Side};
use natgate_ipv6::Settings;
use natgate_ipv6::softwire::MapMode;

const REMOTE: &str = "198.51.100.7";
const B4: &str = "2001:db8:b4::1";
const RELAY: &str = "2001:db8:fffe::2";

/// The size that a packet announces, which has a SYN with this option alone.
fn announced(bytes: &[u8]) -> u16 {
    check(bytes);
    let segment = &bytes[bytes.len() - 24..];
    assert_eq!((segment[13], &segment[20..22]), (2, &[2, 4][..]));
    u16::from_be_bytes([segment[22], segment[23]])
}

fn clamped(settings: Settings) -> World {
    World::with(settings, |config: &mut Config| config.tcp_mss = Some(65_495))
}

/// Sizes out of and into a domain of MAP-T, whose packets have 60 bytes of headers.
#[test]
fn a_syn_of_map_t_announces_what_fits_behind_headers_of_ipv6() {
    let rule = map_rule("2001:db8::", "192.0.2.0", 24, MapMode::Translation(dmr()));
    let host = customer(&rule, "192.0.2.18", 0x34);
    let remote = dmr().embed(REMOTE.parse().expect("an address")).to_string();
    for (mtu, expected) in [(None, 1440), (Some(1300), 1240), (Some(1280), 1220)] {
        let mut world = clamped(map(&[(rule, mtu)]));
        for size in [65_495, 1460, expected + 1, expected, expected - 1, 500] {
            let packet = six((&host, &remote), TCP, &syn((1232, 80), size));
            let left = world.pass(Side::Inside, Side::Outside, &packet);
            assert_eq!(announced(&left), size.min(expected), "{size} out of {mtu:?}");
            let packet = four((REMOTE, "192.0.2.18"), TCP, &syn((80, 1232), size));
            let entered = world.pass(Side::Outside, Side::Inside, &packet);
            assert_eq!(announced(&entered), size.min(expected), "{size} into {mtu:?}");
        }
    }
    // A smaller limit wins, and without any limit the size stays.
    let packet = four((REMOTE, "192.0.2.18"), TCP, &syn((80, 1232), 1460));
    for (limit, expected) in [(Some(1000), 1000), (None, 1460)] {
        let mut world = World::with(map(&[(rule, None)]), |config| config.tcp_mss = limit);
        let entered = world.pass(Side::Outside, Side::Inside, &packet);
        assert_eq!(announced(&entered), expected);
    }
}

/// A tunnel has 80 bytes of headers.
#[test]
fn a_syn_of_a_tunnel_announces_what_fits_behind_both_headers() {
    let shared = "203.0.113.7";
    for (mtu, expected) in [(None, 1420), (Some(1300), 1220)] {
        let mut world = clamped(lw4o6(shared, mtu, &[(1, B4, RELAY)]));
        let packet = tunneled((B4, RELAY), &four((shared, REMOTE), TCP, &syn((1500, 80), 1460)));
        let left = world.pass(Side::Inside, Side::Outside, &packet);
        assert_eq!(announced(&left), expected, "out of {mtu:?}");
        let packet = four((REMOTE, shared), TCP, &syn((80, 1500), 1460));
        let entered = world.pass(Side::Outside, Side::Inside, &packet);
        assert_eq!(announced(&entered), expected, "into {mtu:?}");
    }
}

/// Between two customers, the narrower way counts.
#[test]
fn a_syn_that_turns_round_announces_what_fits_both_domains() {
    let one = map_rule("2001:db8::", "192.0.2.0", 24, MapMode::Translation(dmr()));
    let other = map_rule("2001:db9::", "192.0.3.0", 24, MapMode::Translation(dmr()));
    let hosts = [customer(&one, "192.0.2.18", 0x34), customer(&other, "192.0.3.18", 0x34)];
    let seen = ["192.0.2.18", "192.0.3.18"]
        .map(|ipv4| dmr().embed(ipv4.parse().expect("an address")).to_string());
    for (mtus, expected) in [
        ((None, None), 1440),
        ((Some(1300), None), 1240),
        ((None, Some(1300)), 1240),
        ((Some(1300), Some(1280)), 1220),
    ] {
        let mut world = clamped(map(&[(one, mtus.0), (other, mtus.1)]));
        let packet = six((&hosts[0], &seen[1]), TCP, &syn((1232, 1233), 1460));
        let turned = world.pass(Side::Inside, Side::Inside, &packet);
        assert_eq!(ends(&turned), pair((&seen[0], &hosts[1])));
        assert_eq!(announced(&turned), expected, "{mtus:?}");
    }
}
