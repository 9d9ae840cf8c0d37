//! Compares the search with a walk through all rules, and tests the refusal of sets of rules.

use super::*;
use crate::config::{Match, Prefix, RuleAction};
use crate::endpoint::AddressPort;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

type End = AddressPort;

fn prefix(address: u32, len: u8) -> Prefix {
    Prefix::new(Ipv4Addr::from_bits(address), len)
}

fn pool(pool: usize) -> Option<Ruling> {
    Some(Ruling::Snat(Snat::of_pool(pool)))
}

/// The simple twin: a look at every rule.
fn linear(rules: &[Rule], inner: End, outer: End) -> Option<Ruling> {
    let fits = rules.iter().filter_map(|rule| {
        let (prefix, port, AddressPort { address, port: its }, by_source) = match rule.matches {
            Match::Source(prefix, port) => (prefix, port, inner, true),
            Match::Destination(prefix, port) => (prefix, port, outer, false),
        };
        let fits = prefix.contains(address) && (port == 0 || port == its);
        fits.then_some(((rule.priority, prefix.len(), port != 0, by_source), &rule.action))
    });
    fits.max_by_key(|(rank, _)| *rank).map(|(_, action)| match *action {
        RuleAction::Bypass => Ruling::Bypass,
        RuleAction::Drop => Ruling::Drop,
        RuleAction::Snat(pool) => Ruling::Snat(Snat::of_pool(pool)),
        RuleAction::SnatTo(pool, address) => {
            Ruling::Snat(Snat { address: Some(address), ..Snat::of_pool(pool) })
        }
        RuleAction::Dnat(..) | RuleAction::DnatPrefix(_) => unreachable!("none is made"),
    })
}

/// Removes rules that match the same with the same priority.
fn distinct(mut rules: Vec<Rule>) -> Vec<Rule> {
    let mut seen = BTreeSet::new();
    rules.retain(|rule| {
        let (prefix, port, by_source) = match rule.matches {
            Match::Source(prefix, port) => (prefix, port, true),
            Match::Destination(prefix, port) => (prefix, port, false),
        };
        seen.insert((prefix.first(), prefix.len(), port, by_source, rule.priority))
    });
    rules
}

/// Addresses in few slices, where prefixes nest.
fn address() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => (0_u32..3, 0_u32..4, 0_u32..8).prop_map(|(a, b, c)| a << 30 | b << 15 | c),
        2 => (0_u32..0x2_0000).prop_map(|low| 0x0a00_0000 | low),
        1 => any::<u32>(),
        1 => prop::sample::select(vec![0, u32::MAX, 0xffff, 0x1_0000, 0xffff_0000]),
    ]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![4 => Just(0_u16), 4 => 1_u16..4, 1 => Just(u16::MAX), 1 => any::<u16>()]
}

fn end() -> impl Strategy<Value = End> {
    (address(), port()).prop_map(|(address, port)| End::new(address, port))
}

fn rule() -> impl Strategy<Value = Rule> {
    let len = prop_oneof![3 => 0_u8..=32, 2 => Just(32_u8), 1 => 14_u8..18];
    let priority = prop_oneof![3 => Just(0_i16), 1 => -2_i16..3];
    let action = prop_oneof![
        Just(RuleAction::Bypass),
        Just(RuleAction::Drop),
        (0_usize..5).prop_map(RuleAction::Snat),
        (0_usize..2, 1_u32..4)
            .prop_map(|(pool, host)| RuleAction::SnatTo(pool, Ipv4Addr::from_bits(host))),
    ];
    (any::<bool>(), address(), len, port(), priority, action).prop_map(
        |(by_source, address, len, port, priority, action)| {
            let matches = if by_source { Match::Source } else { Match::Destination };
            Rule { priority, ..Rule::new(matches(prefix(address, len), port), action) }
        },
    )
}

/// Compares around every edge of a rule, and at the given endpoints.
fn compare(rules: &[Rule], ends: &[(End, End)]) -> Result<(), TestCaseError> {
    let set = RuleSet::new(rules).map_err(|error| TestCaseError::fail(error.message))?;
    prop_assert_eq!(set.len(), rules.len());
    let check = |inner: End, outer: End| {
        let wanted = linear(rules, inner, outer);
        prop_assert_eq!(set.find(inner, outer), wanted, "inner {:?}, outer {:?}", inner, outer);
        Ok(())
    };
    for (at, rule) in rules.iter().enumerate().take(200) {
        let (Match::Source(prefix, port) | Match::Destination(prefix, port)) = rule.matches;
        let (other, _) = ends[at % ends.len()];
        for address in [
            prefix.first().wrapping_sub(1),
            prefix.first(),
            prefix.last(),
            prefix.last().wrapping_add(1),
        ] {
            for port in [port, port.wrapping_add(1)] {
                check(AddressPort::new(address, port), other)?;
                check(other, AddressPort::new(address, port))?;
            }
        }
    }
    ends.iter().try_for_each(|&(inner, outer)| check(inner, outer))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_best_rule_is_found(
        rules in prop::collection::vec(rule(), 0..60),
        ends in prop::collection::vec((end(), end()), 1..40),
    ) {
        compare(&distinct(rules), &ends)?;
    }

    #[test]
    fn a_batch_of_searches_finds_what_single_ones_find(
        rules in prop::collection::vec(rule(), 0..60),
        ends in prop::collection::vec((end(), end()), 1..80),
    ) {
        let rules = distinct(rules);
        let set = RuleSet::new(&rules).map_err(|error| TestCaseError::fail(error.message))?;
        let mut batch = RuleBatch::new();
        for some in ends.chunks(RuleBatch::MOST) {
            batch.clear();
            for &(inner, outer) in some {
                batch.add(&set, inner, outer);
            }
            while batch.step(&set) {}
            for (packet, &(inner, outer)) in some.iter().enumerate() {
                prop_assert_eq!(batch.ruling(&set, packet), set.find(inner, outer));
            }
        }
    }
}

proptest! {
    // Large sets.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Many rules in one slice, or over all, so that maps have indexes, or are arrays.
    #[test]
    fn the_best_of_many_rules_is_found(
        count in prop::sample::select(vec![5_u32, 6, 11, 180, 182, 400, 6_000, 9_000]),
        spacing in prop::sample::select(vec![2_u32, 5, 0x1_0000, 0x1_0001]),
        port in prop::sample::select(vec![0_u16, 7]),
        more in prop::collection::vec(rule(), 0..20),
        ends in prop::collection::vec((end(), end()), 1..20),
        places in prop::collection::vec(any::<u32>(), 1..40),
    ) {
        let host = |number: u32| 0x0a00_0000_u32.wrapping_add(number.wrapping_mul(spacing));
        let one = |number: u32| {
            let action = RuleAction::Snat((number % 7) as usize);
            Rule::new(Match::Destination(prefix(host(number), 32), port), action)
        };
        let rules: Vec<Rule> = (0..count).map(one).chain(more).collect();
        let mut ends = ends;
        for place in places {
            let address = host(place % (count + 1)).wrapping_add(place >> 31);
            ends.push((AddressPort::new(1, 1), AddressPort::new(address, port)));
        }
        compare(&distinct(rules), &ends)?;
    }

    /// Rules for many ports, so that the map of ports has indexes, or is an array.
    #[test]
    fn the_best_of_rules_for_many_ports_is_found(
        count in prop::sample::select(vec![4_u16, 5, 6, 170, 400, 6_000, 30_000, u16::MAX]),
        step in 1_u16..3,
        ports in prop::collection::vec(any::<u16>(), 1..60),
    ) {
        let count = count / step;
        let one = |number: u16| {
            let len = (number % 33) as u8;
            let matches = Match::Source(prefix(0x0a01_0203, len), 1 + number * step);
            Rule::new(matches, RuleAction::Snat(usize::from(number)))
        };
        let rules: Vec<Rule> = (0..count).map(one).collect();
        let set = RuleSet::new(&rules).map_err(|error| TestCaseError::fail(error.message))?;
        for port in ports.into_iter().chain([0, 1, 2, count, u16::MAX]) {
            for address in [0x0a01_0203, 0x0a01_0202, 0x0b00_0000] {
                let inner = End::new(address, port);
                let found = set.find(inner, End::default());
                prop_assert_eq!(found, linear(&rules, inner, End::default()));
            }
        }
    }
}

#[test]
fn longest_prefix_wins_then_exact_port_then_source() {
    let at = |matches: fn(Prefix, u16) -> Match, len, port, action| {
        Rule::new(matches(prefix(0x0a01_0203, len), port), action)
    };
    let rules = [
        at(Match::Source, 8, 0, RuleAction::Snat(1)),
        at(Match::Source, 16, 0, RuleAction::Snat(2)),
        at(Match::Source, 16, 80, RuleAction::Bypass),
        at(Match::Destination, 32, 53, RuleAction::Snat(3)),
        at(Match::Destination, 16, 80, RuleAction::Snat(4)),
    ];
    let set = RuleSet::new(&rules).unwrap();
    let (a, b) = (0x0a01_0001, 0x0a02_0001);
    assert_eq!(set.find(End::new(b, 5), End::new(1, 1)), pool(1));
    assert_eq!(set.find(End::new(a, 5), End::new(1, 1)), pool(2));
    assert_eq!(set.find(End::new(a, 80), End::new(1, 1)), Some(Ruling::Bypass));
    assert_eq!(set.find(End::new(a, 80), End::new(a, 80)), Some(Ruling::Bypass));
    assert_eq!(set.find(End::new(a, 80), End::new(0x0a01_0203, 53)), pool(3));
    assert_eq!(set.find(End::new(1, 80), End::new(2, 53)), None);
    assert!(set.by_port() && !set.drops() && !set.is_empty());
    assert_eq!(set.pools_by_port(), [3, 4]);
}

#[test]
fn priority_wins_over_everything() {
    let all = Match::Destination(prefix(0, 0), 0);
    let host = Match::Source(prefix(0x0a01_0203, 32), 80);
    let with = |priority| {
        let first = Rule { priority, ..Rule::new(all, RuleAction::Drop) };
        RuleSet::new(&[first, Rule::new(host, RuleAction::Snat(1))]).unwrap()
    };
    let packet = (End::new(0x0a01_0203, 80), End::new(1, 1));
    assert_eq!(with(1).find(packet.0, packet.1), Some(Ruling::Drop));
    assert_eq!(with(0).find(packet.0, packet.1), pool(1));
    assert_eq!(with(-1).find(packet.0, packet.1), pool(1));
    assert_eq!(with(-1).find(End::new(1, 1), End::new(2, 2)), Some(Ruling::Drop));
    assert!(with(0).drops());
}

#[test]
fn what_cannot_be_is_refused() {
    let matches = |host| Match::Source(prefix(host, 24), 80);
    let same = |host| Rule::new(matches(host), RuleAction::Bypass);
    let error = RuleSet::new(&[same(0x0a00_0000), same(0x0a00_0100), same(0x0a00_0001)]);
    assert_eq!(
        error.unwrap_err().message,
        "rules 0 and 2, counted from 0, both match source 10.0.0.0/24 port 80 with priority 0: \
         keep one of them, or give one another priority"
    );
    let at = |priority| Rule { priority, ..same(0x0a00_0000) };
    assert!(RuleSet::new(&(-8..8).map(at).collect::<Vec<_>>()).is_ok());
    let error = RuleSet::new(&(-8..9).map(at).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.message, "rules have more than 16 different priorities");
}

#[test]
fn memory_is_bounded_by_the_rules() {
    let empty = RuleSet::new(&[]).unwrap();
    assert_eq!(empty.find(End::new(1, 1), End::new(2, 2)), None);
    assert!(empty.is_empty() && empty.memory() < 256);
    // Each rule has a slice and a port of its own, so nothing is shared.
    let apart = |number: u32| {
        let matches = Match::Source(prefix(number << 16 | 7, 32), 1 + number as u16);
        Rule::new(matches, RuleAction::Bypass)
    };
    let set = RuleSet::new(&(0..10_000).map(apart).collect::<Vec<_>>()).unwrap();
    assert!(set.memory() < 10_000 * 100, "{}", set.memory());
    let dense = |number: u32| {
        let matches = Match::Source(prefix(0x0a00_0000 + 2 * number, 32), 0);
        Rule::new(matches, RuleAction::Bypass)
    };
    let set = RuleSet::new(&(0..10_000).map(dense).collect::<Vec<_>>()).unwrap();
    assert!(set.memory() < 10_000 * 20, "{}", set.memory());
}
