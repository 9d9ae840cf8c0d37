//! Prediction of the translator's choices: external ports (RFC 6056), query identifiers, and the
//! identifications of fragments (RFC 7739). An attacker that sees 100,000 choices must not predict
//! the next better than by chance.

use crate::common::*;
use crate::statistics::Figures;
use crate::world::*;
use natgate_engine::{Allocation, Config};
use natgate_wire::Ipv4;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const ALLOCATIONS: usize = 100_000;
const FIRST: u16 = 1024;
/// Number of the pool's ports.
const RANGE: u32 = 65_536 - FIRST as u32;

/// Mappings live a second and leave no hold-down, so that new ones always find ports.
fn quick() -> Config {
    let mut config = config();
    config.timeouts.udp = Duration::from_secs(1);
    config.timeouts.icmp = Duration::from_secs(1);
    config.timeouts.tcp_opening = Duration::from_secs(1);
    config.timeouts.hold_down = Duration::ZERO;
    config.limits.new_mappings_per_second = 1_000_000;
    config
}

/// The external ports of new mappings, 500 a second. `next` makes each mapping's packet.
fn allocate(config: &Config, seed: u8, mut next: impl FnMut(usize) -> Vec<u8>) -> Vec<u16> {
    let mut lab = Lab::seeded(config, seed);
    let mut ports = Vec::new();
    while ports.len() < ALLOCATIONS {
        for _ in 0..500 {
            lab.out(&next(ports.len()));
            let created = lab.created();
            assert_eq!(created.len(), 1, "each packet makes a mapping");
            ports.push(created[0].external.port);
        }
        lab.wait_s(1.2);
        lab.events.clear();
    }
    ports
}

fn endpoint_of(n: usize, port: usize) -> String {
    format!("10.{}.{}.{}:{port}", 100 + n / 65_536, n / 256 % 256, n % 256)
}

/// Prints the figures and asserts that they are those of chance.
fn unpredictable(name: &str, numbers: &[u32], range: u32) {
    let figures = Figures::of(numbers, range, 256);
    println!(
        "{name}: chi-square {:.0} ({:.0} to {:.0}), of steps {:.0}; correlation {:.4} (at most \
         {:.4}); guessed {} of {} (at most {:.0})",
        figures.buckets.value,
        figures.buckets.least,
        figures.buckets.most,
        figures.steps.value,
        figures.correlation.value,
        figures.correlation.most,
        figures.guessed.value,
        numbers.len(),
        figures.guessed.most,
    );
    assert!(figures.all_hold(), "{name}: {figures:?}");
}

fn offsets(ports: &[u16]) -> Vec<u32> {
    ports.iter().map(|&port| u32::from(port - FIRST)).collect()
}

/// Ports of one parity, numbered without gaps.
fn halves(ports: &[u16], parity: u16) -> Vec<u32> {
    assert!(ports.iter().all(|port| port % 2 == parity), "parity is kept");
    ports.iter().map(|&port| u32::from(port - FIRST) / 2).collect()
}

#[test]
fn tcp_ports_are_not_to_be_guessed() {
    for seed in [1, 2] {
        let ports = allocate(&quick(), seed, |n| tcp(&endpoint_of(n, 4000), REMOTE, "S", 1, 0));
        unpredictable("tcp", &offsets(&ports), RANGE);
    }
}

#[test]
fn udp_ports_are_not_to_be_guessed_with_parity_or_without() {
    for parity in [0, 1] {
        let ports =
            allocate(&quick(), 10 + parity as u8, |n| udp(&endpoint_of(n, 4000 + parity), REMOTE));
        unpredictable("udp, parity", &halves(&ports, parity as u16), RANGE / 2);
    }
    let config = Config { port_parity: false, ..quick() };
    let ports = allocate(&config, 4, |n| udp(&endpoint_of(n, 4000), REMOTE));
    unpredictable("udp", &offsets(&ports), RANGE);
}

#[test]
fn query_identifiers_are_not_to_be_guessed() {
    let host = |n: usize| endpoint_of(n, 0).replace(":0", "");
    let identifiers = allocate(&quick(), 5, |n| ping(&host(n), "198.51.100.7", 7));
    unpredictable("icmp", &offsets(&identifiers), RANGE);
}

/// One subscriber alone uses one port after the other, as an attacker that probes would.
#[test]
fn a_subscribers_own_ports_tell_nothing_about_the_next() {
    let ports =
        allocate(&quick(), 6, |n| tcp(&format!("10.0.0.66:{}", n % 60_000), REMOTE, "S", 1, 0));
    unpredictable("tcp, one subscriber", &offsets(&ports), RANGE);
}

/// With `preserve` a taken port is replaced by a random one.
#[test]
fn where_preserving_is_not_possible_ports_are_not_to_be_guessed() {
    let mut config = Config { allocation: Allocation::Preserve, ..quick() };
    config.timeouts.tcp_established = Duration::from_secs(100_000);
    let mut lab = Lab::seeded(&config, 7);
    // The first host has port 4000 and keeps it. All others want it.
    let holder = lab.external_of(&tcp("10.0.0.5:4000", REMOTE, "S", 100, 0));
    assert_eq!(holder, "203.0.113.1:4000");
    lab.inward(&tcp(REMOTE, &holder, "SA", 500, 101));
    let mut ports = Vec::new();
    while ports.len() < ALLOCATIONS {
        lab.created();
        for _ in 0..500 {
            lab.out(&tcp(&endpoint_of(70_000 + ports.len(), 4000), REMOTE, "S", 1, 0));
            ports.push(lab.created()[0].external.port);
        }
        lab.wait_s(1.2);
        lab.events.clear();
    }
    assert!(!ports.contains(&4000));
    unpredictable("tcp, preserve contended", &offsets(&ports), RANGE);
}

/// The last ports of an address: a word of the bitmap is drawn and one of its free ports is taken.
/// So ports that are alone in their word are drawn a little more often than others.
#[test]
fn the_last_ports_are_not_to_be_guessed_either() {
    const LEFT: usize = 500;
    const DRAWS: usize = 20_000;
    let mut config = quick();
    config.limits.tcp_ports = 100_000;
    config.timeouts.tcp_established = Duration::from_secs(100_000);
    let mut lab = Lab::seeded(&config, 8);
    for n in 0..RANGE as usize - LEFT {
        let internal = format!("10.99.{}.5:{}", n / 60_000, 1024 + n % 60_000);
        let external = lab.external_of(&tcp(&internal, REMOTE, "S", 1, 0));
        lab.inward(&tcp(REMOTE, &external, "SA", 1, 2));
    }
    assert_eq!(lab.engine.pool_usage(0, 6).free, LEFT as u64);
    let mut drawn = BTreeMap::new();
    lab.events.clear();
    for n in 0..DRAWS {
        lab.out(&tcp(&endpoint_of(n, 4000), REMOTE, "S", 1, 0));
        *drawn.entry(lab.created()[0].external.port).or_insert(0_usize) += 1;
        lab.wait_s(1.2);
        lab.removed();
    }
    let likeliest = drawn.values().max().unwrap();
    println!(
        "{} of {LEFT} free ports drawn in {DRAWS}; the likeliest {likeliest} times, once in {}",
        drawn.len(),
        DRAWS / likeliest
    );
    assert!(drawn.len() > LEFT * 9 / 10 && *likeliest < DRAWS / 100);
}

/// Identifications after fragmentation show neither the sender's counter nor an order of their own.
/// There are sixteen external addresses, each with a sequence of its own.
#[test]
fn identifications_of_fragments_are_not_to_be_guessed() {
    let pools = vec![pool("203.0.113.1", "203.0.113.16", (1024, 65_535))];
    let mut lab = Lab::seeded(&Config { pools, ..config() }, 9);
    let mut by_address: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for n in 0..ALLOCATIONS {
        let datagram = udp_with(&endpoint_of(n % 1024, 4000), REMOTE, &[7; 100]);
        // The senders count up, as many hosts do.
        let out = lab.out(&part(&datagram, (n / 1024) as u16, 0, 48));
        let header = Ipv4::new_checked(&out[..]).unwrap();
        let identification = u32::from(header.identification());
        by_address.entry(header.source()).or_default().push(identification);
        let later = lab.out(&part(&datagram, (n / 1024) as u16, 48, 108));
        let later = Ipv4::new_checked(&later[..]).unwrap().identification();
        assert_eq!(u32::from(later), identification);
        lab.wait(Duration::from_micros(250));
    }
    assert_eq!(by_address.len(), 16);
    for (address, identifications) in &by_address {
        let different: BTreeSet<_> = identifications.iter().collect();
        assert_eq!(different.len(), identifications.len(), "{address:x}: none twice in 30 s");
    }
    unpredictable(
        "identifications",
        &by_address.into_values().flatten().collect::<Vec<_>>(),
        65_536,
    );
}
