//! Rules that translate destinations: a search by destination and port for the new destination, and
//! a search back for the source of packets from a prefix that a rule translates to.
//!
//! Both searches use tries like all rules. An answer means a target: an address, the low bits of
//! the original address that stay, and a port. Rules of one rank with the same target share it, so
//! that a million prefixes cost little more than their tries.

use super::build::{Entry, looks_at, number_answers, write_end};
use super::trie::Builder;
use super::{Roots, RuleSet};
use crate::ConfigError;
use crate::config::{Prefix, Rule, RuleAction};
use crate::endpoint::AddressPort;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Rank of a rule.
const fn rank(priority: u32, len: u32, exact_port: bool) -> u32 {
    (priority * 33 + len) * 2 + exact_port as u32
}

/// Result of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    base: u32,
    /// Mask of the address bits that stay.
    kept: u32,
    /// The new port; 0: the port stays.
    port: u16,
}

impl Target {
    /// Translates an address to the address at the same offset in `prefix`.
    fn prefix(prefix: Prefix) -> Self {
        Self { base: prefix.first(), kept: prefix.last() - prefix.first(), port: 0 }
    }

    fn of(self, AddressPort { address, port }: AddressPort, ports: bool) -> AddressPort {
        let port = if self.port == 0 || !ports { port } else { self.port };
        AddressPort::new(self.base | address & self.kept, port)
    }
}

/// The searches and their targets.
#[derive(Clone, Debug)]
pub(super) struct Dnats {
    forth: Way,
    back: Way,
}

/// The search in one direction: its roots, and the targets of its answers.
#[derive(Clone, Debug)]
struct Way {
    roots: Roots,
    targets: Arc<[Target]>,
}

impl Dnats {
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.forth.targets) + size_of_val(&*self.back.targets)
    }
}

impl RuleSet {
    /// Most different targets of rules that translate destinations.
    pub const MOST_TARGETS: usize = 1 << 20;

    /// True if a rule translates destinations.
    #[inline(always)]
    pub fn translates_destinations(&self) -> bool {
        !self.dnat.forth.targets.is_empty()
    }

    /// The translation of a destination (host byte order), as packets from inside have it, by the
    /// best rule. `ports`: the protocol has ports; otherwise the port is 0 and stays 0.
    pub fn destination(&self, end: AddressPort, ports: bool) -> Option<AddressPort> {
        Some(self.target(&self.dnat.forth, end)?.of(end, ports))
    }

    /// The source that the inside sees of an unsolicited packet from outside: the best rule that
    /// translates a prefix to one with this source, applied backwards.
    pub fn source(&self, end: AddressPort) -> Option<AddressPort> {
        Some(self.target(&self.dnat.back, end)?.of(end, false))
    }

    fn target(&self, way: &Way, end: AddressPort) -> Option<Target> {
        // Answer 0 means none.
        let answer = way.roots.best(&self.tries, end) as usize;
        way.targets.get(answer.wrapping_sub(1)).copied()
    }
}

/// The rules that translate destinations while tries are built.
#[derive(Default)]
pub(super) struct Targets {
    /// One entry for each rule.
    pub(super) entries: Vec<Entry>,
    numbers: Numbers,
    /// Entries of the search back, one for each rule with a prefix.
    back: Vec<Entry>,
    back_numbers: Numbers,
}

/// The different targets, numbered.
#[derive(Default)]
struct Numbers {
    all: Vec<Target>,
    numbers: BTreeMap<Target, u32>,
    /// Number of the target by entry; after the answers are numbered, by answer.
    of: Vec<u32>,
}

impl Targets {
    /// Adds a rule if it translates destinations; `at` is the rule's index.
    pub(super) fn add(&mut self, at: u32, rule: &Rule, priority: u32) -> Result<bool, ConfigError> {
        let fail = |message: String| Err(ConfigError { message });
        let (prefix, port, by_source) = looks_at(rule.matches);
        let target = match rule.action {
            RuleAction::Dnat(address, to) => {
                Target { base: address.to_bits(), kept: 0, port: to.unwrap_or(0) }
            }
            RuleAction::DnatPrefix(to) if to.len() == prefix.len() => Target::prefix(to),
            RuleAction::DnatPrefix(to) => {
                return fail(format!(
                    "rule {at}, counted from 0, translates a /{} to a /{}: give prefixes of one \
                     length",
                    prefix.len(),
                    to.len()
                ));
            }
            _ => return Ok(false),
        };
        if by_source {
            return fail(format!(
                "rule {at}, counted from 0, translates destinations: it must match one"
            ));
        }
        let entry = |prefix: Prefix| {
            let answer = rank(priority, u32::from(prefix.len()), port != 0);
            Entry { order: Entry::order(port.into(), prefix, priority), answer, rule: at }
        };
        self.numbers.add(target)?;
        self.entries.push(entry(prefix));
        if let RuleAction::DnatPrefix(to) = rule.action {
            self.back_numbers.add(Target::prefix(prefix))?;
            self.back.push(entry(to));
        }
        Ok(true)
    }

    /// Numbers the answers. The entries must be in the order of their addition.
    pub(super) fn number_answers(&mut self) {
        self.numbers.of = number_answers(&mut self.entries, &self.numbers.of);
        self.back_numbers.of = number_answers(&mut self.back, &self.back_numbers.of);
    }

    /// Writes the tries. The entries must be sorted. If two rules of equal rank lead to one prefix,
    /// the search back uses the first.
    pub(super) fn write(mut self, tries: &mut Builder) -> Dnats {
        self.back.sort_unstable_by_key(|entry| (entry.order, entry.rule));
        self.back.dedup_by_key(|entry| entry.order);
        let mut way = |entries: &[Entry], numbers: Numbers| Way {
            roots: write_end(tries, entries),
            targets: numbers.of.iter().map(|&number| numbers.all[number as usize]).collect(),
        };
        Dnats { forth: way(&self.entries, self.numbers), back: way(&self.back, self.back_numbers) }
    }
}

impl Numbers {
    /// Adds the target of one more entry.
    fn add(&mut self, target: Target) -> Result<(), ConfigError> {
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(target).or_insert(next);
        self.of.push(number);
        if number < next {
            return Ok(());
        }
        self.all.push(target);
        if self.all.len() > RuleSet::MOST_TARGETS {
            let message = format!("dnat rules have more than {next} different targets");
            return Err(ConfigError { message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Match;
    use alloc::collections::BTreeSet;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn prefix(address: u32, len: u8) -> Prefix {
        Prefix::new(Ipv4Addr::from_bits(address), len)
    }

    /// The simple twin: translation by one rule, forward or back, if the rule matches.
    fn plainly(rule: &Rule, back: bool, end: AddressPort, ports: bool) -> Option<AddressPort> {
        let (prefix, port, _) = looks_at(rule.matches);
        let (from, to, to_port) = match rule.action {
            RuleAction::DnatPrefix(to) if back => (to, prefix.first(), None),
            RuleAction::DnatPrefix(to) => (prefix, to.first(), None),
            RuleAction::Dnat(to, port) if !back => (prefix, to.to_bits(), port),
            _ => return None,
        };
        let place = match rule.action {
            RuleAction::DnatPrefix(_) => end.address.wrapping_sub(from.first()),
            _ => 0,
        };
        let matches = from.contains(end.address) && (port == 0 || port == end.port);
        matches.then(|| {
            AddressPort::new(to.wrapping_add(place), to_port.filter(|_| ports).unwrap_or(end.port))
        })
    }

    fn linear(rules: &[Rule], back: bool, end: AddressPort, ports: bool) -> Option<AddressPort> {
        let mut best = None;
        for rule in rules {
            let (prefix, port, _) = looks_at(rule.matches);
            let rank = (rule.priority, prefix.len(), port != 0);
            let is_better = best.is_none_or(|(before, _)| rank > before);
            if let Some(to) = plainly(rule, back, end, ports).filter(|_| is_better) {
                best = Some((rank, to));
            }
        }
        best.map(|(_, to)| to)
    }

    fn address() -> impl Strategy<Value = u32> {
        prop_oneof![
            4 => (0_u32..3, 0_u32..4, 0_u32..8).prop_map(|(a, b, c)| a << 30 | b << 15 | c),
            1 => any::<u32>(),
        ]
    }

    fn rules() -> impl Strategy<Value = Vec<Rule>> {
        let port = prop_oneof![1 => Just(0_u16), 1 => 1_u16..3];
        let to_port = prop::option::of(1_u16..9);
        let one = (address(), 0_u8..=32, port, -1_i16..2, any::<bool>(), address(), to_port);
        let rule = one.prop_map(|(address, len, port, priority, whole, to, to_port)| {
            let action = match whole {
                true => RuleAction::DnatPrefix(prefix(to, len)),
                false => RuleAction::Dnat(Ipv4Addr::from_bits(to), to_port),
            };
            let matches = Match::Destination(prefix(address, len), port);
            Rule { priority, ..Rule::new(matches, action) }
        });
        prop::collection::vec(rule, 0..40).prop_map(|mut rules| {
            let mut seen = BTreeSet::new();
            rules.retain(|rule| {
                let (prefix, port, _) = looks_at(rule.matches);
                seen.insert((prefix.first(), prefix.len(), port, rule.priority))
            });
            rules
        })
    }

    proptest! {
        #[test]
        fn the_best_rule_is_found_both_ways(
            rules in rules(),
            ends in prop::collection::vec((address(), 0_u16..4, any::<bool>()), 1..40),
        ) {
            let set = RuleSet::new(&rules).map_err(|error| TestCaseError::fail(error.message))?;
            prop_assert_eq!(set.translates_destinations(), !rules.is_empty());
            let edges = rules.iter().flat_map(|rule| {
                let (prefix, port, _) = looks_at(rule.matches);
                let to = match rule.action {
                    RuleAction::DnatPrefix(to) => to,
                    _ => prefix,
                };
                [prefix.first(), prefix.last(), to.first(), to.last(), to.last().wrapping_add(1)]
                    .map(|address| (address, port, true))
            });
            for (address, port, ports) in edges.chain(ends) {
                let end = AddressPort::new(address, port);
                prop_assert_eq!(set.destination(end, ports), linear(&rules, false, end, ports));
                prop_assert_eq!(set.source(end), linear(&rules, true, end, ports));
            }
        }
    }

    #[test]
    fn a_source_or_a_prefix_of_another_length_is_refused() {
        let error = |matches: fn(Prefix, u16) -> Match, len| {
            let action = RuleAction::DnatPrefix(prefix(0x0a00_0000, len));
            let rule = Rule::new(matches(prefix(0xac10_0000, 16), 0), action);
            RuleSet::new(&[rule]).map(drop).map_err(|error| error.message)
        };
        assert_eq!(error(Match::Destination, 16), Ok(()));
        let message =
            "rule 0, counted from 0, translates a /16 to a /24: give prefixes of one length";
        assert_eq!(error(Match::Destination, 24), Err(message.into()));
        let message = "rule 0, counted from 0, translates destinations: it must match one";
        assert_eq!(error(Match::Source, 16), Err(message.into()));
    }

    #[test]
    fn both_kinds_of_rules_may_match_the_same() {
        let matches = Match::Destination(prefix(0x0a00_0000, 8), 53);
        let dnat = Rule::new(matches, RuleAction::Dnat(Ipv4Addr::new(192, 0, 2, 53), None));
        let drop = Rule::new(matches, RuleAction::Drop);
        let set = RuleSet::new(&[dnat.clone(), drop]).unwrap();
        assert_eq!(
            set.destination(AddressPort::new(0x0a01_0203, 53), true),
            Some(AddressPort::new(0xc000_0235, 53))
        );
        assert!(set.drops() && set.by_port());
        let error = RuleSet::new(&[dnat.clone(), dnat]).unwrap_err();
        assert!(error.message.starts_with("rules 0 and 1, counted from 0, both match destination"));
    }

    /// Each rule has a target of its own.
    #[test]
    fn many_different_targets() {
        let rule = |number: u32| {
            let matches = Match::Destination(prefix(number << 4, 32), 53);
            Rule::new(matches, RuleAction::Dnat(Ipv4Addr::from_bits(!number), Some(5353)))
        };
        let set = RuleSet::new(&(0..100_000).map(rule).collect::<Vec<_>>()).unwrap();
        for number in [0, 1, 77_777, 99_999] {
            let found = set.destination(AddressPort::new(number << 4, 53), true);
            assert_eq!(found, Some(AddressPort::new(!number, 5353)));
            assert_eq!(set.destination(AddressPort::new(number << 4, 54), true), None);
        }
        assert!(set.memory() < (1 << 20) + 100_000 * 60, "{}", set.memory());
    }
}
