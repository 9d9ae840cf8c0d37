//! RFC 6056 section 4, which RFC 7857 section 9 requires of a NAT: external ports are
//! unpredictable.
//!
//! Counts distinguish chance from order. The seeds are fixed, so a count is the same in each run.

use crate::common::*;
use natgate_engine::{Allocation, Config};
use natgate_wire::protocol;
use std::collections::BTreeSet;

/// External ports of the mappings of `count` subscribers, in the order of creation, all from the
/// same internal port.
fn external_ports(config: &Config, seed: u8, protocol: u8, internal: u16, count: u32) -> Vec<u16> {
    let mut lab = Lab::seeded(config, seed);
    let ports = (0..count).map(|n| {
        let host = format!("10.1.{}.{}", n / 250, 1 + n % 250);
        let left = match protocol {
            protocol::UDP => lab.out(&udp(&format!("{host}:{internal}"), REMOTE)),
            protocol::TCP => lab.out(&tcp(&format!("{host}:{internal}"), REMOTE, "S", 1, 0)),
            protocol::DCCP => lab.out(&dccp(&format!("{host}:{internal}"), REMOTE, 0)),
            _ => lab.out(&ping(&host, "198.51.100.7", internal)),
        };
        let at = if protocol == protocol::ICMP { 24 } else { 20 };
        u16::from_be_bytes([left[at], left[at + 1]])
    });
    ports.collect()
}

/// Asserts that numbers spread over the whole range, and that no number predicts the next number.
fn assert_unguessable(ports: &[u16], (first, last): (u16, u16)) {
    let count = ports.len() as f64;
    let position = |port: u16| f64::from(port - first) / (f64::from(last - first) + 1.0);
    let mut boxes = [0_u32; 16];
    let mut pairs = [0_u32; 16];
    let mut steps = BTreeSet::new();
    for pair in ports.windows(2) {
        boxes[(position(pair[0]) * 16.0) as usize] += 1;
        let place = (position(pair[0]) * 4.0) as usize * 4 + (position(pair[1]) * 4.0) as usize;
        pairs[place] += 1;
        steps.insert(pair[1].wrapping_sub(pair[0]));
    }
    // Chi-square with 15 degrees of freedom: over 44 once in ten thousand times.
    let expected = (count - 1.0) / 16.0;
    for counted in [boxes, pairs] {
        let chi: f64 = counted.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
        assert!(chi < 44.0, "{chi} of {counted:?}");
    }
    assert!(steps.len() > ports.len() * 9 / 10, "{} different steps", steps.len());
}

//= test rfc6056#section-4-obfuscate
#[test]
fn section_4_external_ports_cannot_be_guessed() {
    let config = Config { port_parity: false, ..config() };
    for protocol in [protocol::UDP, protocol::TCP, protocol::DCCP, protocol::ICMP] {
        let ports = external_ports(&config, 1, protocol, 4000, 1000);
        assert_unguessable(&ports, (1024, 65535));
        assert!(ports.iter().filter(|port| **port == 4000).count() <= 1);
        // Another gateway, and another start of this one, makes other choices.
        let others = external_ports(&config, 2, protocol, 4000, 1000);
        let same = ports.iter().zip(&others).filter(|(one, other)| one == other).count();
        assert!(same <= 2, "{same} the same for another seed");
    }
}

//= test rfc6056#section-4-preserve
#[test]
fn section_4_a_preserved_port_changes_only_when_it_is_taken_and_then_to_any() {
    let config = Config { allocation: Allocation::Preserve, port_parity: false, ..config() };
    for protocol in [protocol::UDP, protocol::TCP] {
        let ports = external_ports(&config, 1, protocol, 4000, 1000);
        assert_eq!(ports[0], 4000);
        assert_unguessable(&ports[1..], (1024, 65535));
        let mut lab = Lab::new(&config);
        for port in [1024, 4000, 4001, 50_000, 65_535] {
            let inner = format!("10.0.0.5:{port}");
            let sent = match protocol {
                protocol::UDP => udp(&inner, REMOTE),
                _ => tcp(&inner, REMOTE, "S", 1, 0),
            };
            assert_eq!(lab.external_of(&sent), format!("203.0.113.1:{port}"));
        }
    }
}

//= test rfc6056#section-4-parity
#[test]
fn section_4_with_parity_kept_ports_cannot_be_guessed_either() {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        let config = Config { allocation, port_parity: true, ..config() };
        for internal in [4000, 4001] {
            let ports = external_ports(&config, 1, protocol::UDP, internal, 1000);
            assert!(ports.iter().all(|port| port % 2 == internal % 2));
            assert_unguessable(&ports[1..], (1024, 65535));
        }
    }
}

//= test rfc6056#section-4-obfuscate
#[test]
fn section_4_the_last_free_ports_cannot_be_guessed_either() {
    const FIRST: u16 = 2048;
    let pools = vec![pool("203.0.113.1", "203.0.113.1", (FIRST, FIRST + 8191))];
    let config = Config { pools, port_parity: false, ..config() };
    let ports = external_ports(&config, 1, protocol::UDP, 4000, 8192 - 128);
    let (before, last) = ports.split_at(ports.len() - 128);
    let mut free: BTreeSet<u16> = (FIRST..FIRST + 8192).collect();
    free.retain(|port| !before.contains(port));
    // An attacker that knows the free ports of a neighborhood would guess the lowest free port.
    let (mut guessed, mut guesses) = (0, 0);
    for &port in last {
        let neighbourhood = port / 64 * 64..port / 64 * 64 + 64;
        let choice: Vec<u16> = free.range(neighbourhood).copied().collect();
        if choice.len() > 1 {
            guesses += 1;
            guessed += u32::from(choice[0] == port);
        }
        assert!(free.remove(&port));
    }
    assert!(guesses > 64 && guessed * 3 < guesses * 2, "{guessed} of {guesses}");
}
