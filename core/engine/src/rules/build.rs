//! Building tries from rules: computes the best rule for every address and port.
//!
//! Rules that look at the same endpoint and port are a group. If two rules of a group contain an
//! address, the one with the greater answer is better. So the group divides the addresses into
//! stretches with one answer each. Prefixes are nested or disjoint, and are visited in order, with
//! the open ones on a stack. Each group has a trie. An array of ports leads to tries of groups with
//! a port.

use super::dnat;
use super::trie::{Builder, Ref, Stretch};
use super::{Roots, RuleSet, Ruling, Snat};
use crate::ConfigError;
use crate::config::{Match, Prefix, Rule, RuleAction};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Number of possible lengths of a prefix.
const LENGTHS: u32 = 33;
/// Number of ranks.
const RANKS: usize = rank(RuleSet::MOST_PRIORITIES as u32, 0, false, false) as usize;

/// Rank of a rule.
const fn rank(priority: u32, len: u32, exact_port: bool, by_source: bool) -> u32 {
    ((priority * LENGTHS + len) * 2 + exact_port as u32) * 2 + by_source as u32
}

/// A rule while tries are built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Sort key: endpoint, port, first address, length, priority.
    pub(super) order: u64,
    pub(super) answer: u32,
    /// Index of the rule.
    pub(super) rule: u32,
}

impl Entry {
    const LEN_SHIFT: u32 = 4;
    const FIRST_SHIFT: u32 = Self::LEN_SHIFT + 6;
    const GROUP_SHIFT: u32 = Self::FIRST_SHIFT + 32;

    /// Makes an entry. Its answer is the rank until [`number_answers`] replaces it.
    fn new(rule: u32, matches: Match, priority: u32) -> Self {
        let (prefix, port, by_source) = looks_at(matches);
        let rank = rank(priority, u32::from(prefix.len()), port != 0, by_source);
        let group = u64::from(!by_source) << 16 | u64::from(port);
        Self { order: Self::order(group, prefix, priority), answer: rank, rule }
    }

    /// The sort key of a prefix in a group.
    pub(super) fn order(group: u64, prefix: Prefix, priority: u32) -> u64 {
        group << Self::GROUP_SHIFT
            | u64::from(prefix.first()) << Self::FIRST_SHIFT
            | u64::from(prefix.len()) << Self::LEN_SHIFT
            | u64::from(priority)
    }

    /// Endpoint and port.
    fn group(&self) -> u64 {
        self.order >> Self::GROUP_SHIFT
    }

    fn first(&self) -> u32 {
        (self.order >> Self::FIRST_SHIFT) as u32
    }

    fn last(&self) -> u32 {
        let len = (self.order >> Self::LEN_SHIFT) as u32 & 63;
        self.first() | u32::MAX.checked_shr(len).unwrap_or(0)
    }
}

/// Prefix and port that a rule looks at, and true if they are the source's.
pub(super) fn looks_at(matches: Match) -> (Prefix, u16, bool) {
    match matches {
        Match::Source(prefix, port) => (prefix, port, true),
        Match::Destination(prefix, port) => (prefix, port, false),
    }
}

pub(super) fn build(rules: &[Rule]) -> Result<RuleSet, ConfigError> {
    let fail = |message: String| Err(ConfigError { message });
    if rules.len() > RuleSet::MOST_RULES {
        let most = RuleSet::MOST_RULES;
        return fail(format!("{} rules: at most {most} are possible", rules.len()));
    }
    let priorities = priorities(rules)?;
    let mut rulings = Rulings::default();
    let mut numbers = Vec::with_capacity(rules.len());
    let mut entries = Vec::with_capacity(rules.len());
    let mut targets = dnat::Targets::default();
    for (at, rule) in rules.iter().enumerate() {
        let priority = priorities.partition_point(|&lower| lower < rule.priority) as u32;
        if targets.add(at as u32, rule, priority)? {
            continue;
        }
        numbers.push(rulings.number(rule));
        entries.push(Entry::new(at as u32, rule.matches, priority));
    }
    let answers = number_answers(&mut entries, &numbers);
    targets.number_answers();
    sort(&mut entries, rules)?;
    sort(&mut targets.entries, rules)?;
    let mut tries = Builder::default();
    let destinations = entries.partition_point(|entry| entry.group() >> 16 == 0);
    let source = write_end(&mut tries, &entries[..destinations]);
    let destination = write_end(&mut tries, &entries[destinations..]);
    let dnat = targets.write(&mut tries);
    let Some(tries) = tries.finish() else {
        return fail(format!("{} rules like these take too much memory", rules.len()));
    };
    Ok(RuleSet {
        source,
        destination,
        dnat,
        tries,
        len: rules.len(),
        by_port: rules.iter().any(|rule| looks_at(rule.matches).1 != 0),
        pools_by_port: pools_by_port(rules),
        drops: rules.iter().any(|rule| rule.action == RuleAction::Drop),
        bypasses: rules.iter().any(|rule| rule.action == RuleAction::Bypass),
        rulings: answers.iter().map(|&number| rulings.all[number as usize]).collect(),
    })
}

/// Pools of the rules that look at a port.
fn pools_by_port(rules: &[Rule]) -> Arc<[usize]> {
    let pool = |rule: &Rule| match rule.action {
        RuleAction::Snat(pool) | RuleAction::SnatTo(pool, _) => Some(pool),
        _ => None,
    };
    let by_port = rules.iter().filter(|rule| looks_at(rule.matches).1 != 0);
    let pools: BTreeSet<usize> = by_port.filter_map(pool).collect();
    pools.into_iter().collect()
}

/// Sorts the entries. No two may match the same with the same priority.
fn sort(entries: &mut [Entry], rules: &[Rule]) -> Result<(), ConfigError> {
    entries.sort_unstable_by_key(|entry| entry.order);
    let Some(pair) = entries.windows(2).find(|pair| pair[0].order == pair[1].order) else {
        return Ok(());
    };
    let [one, other] = [pair[0].rule.min(pair[1].rule), pair[0].rule.max(pair[1].rule)];
    let what = describe(&rules[one as usize]);
    let message = format!(
        "rules {one} and {other}, counted from 0, both match {what}: keep one of them, or give one \
         another priority"
    );
    Err(ConfigError { message })
}

/// The different priorities, ascending.
fn priorities(rules: &[Rule]) -> Result<Vec<i16>, ConfigError> {
    let mut all: Vec<i16> = Vec::new();
    for rule in rules {
        if let Err(at) = all.binary_search(&rule.priority) {
            all.insert(at, rule.priority);
        }
        if all.len() > RuleSet::MOST_PRIORITIES {
            let most = RuleSet::MOST_PRIORITIES;
            let message = format!("rules have more than {most} different priorities");
            return Err(ConfigError { message });
        }
    }
    Ok(all)
}

fn describe(rule: &Rule) -> String {
    let (prefix, port, by_source) = looks_at(rule.matches);
    let end = if by_source { "source" } else { "destination" };
    let (first, len) = (Ipv4Addr::from_bits(prefix.first()), prefix.len());
    let priority = rule.priority;
    let port = if port == 0 { String::new() } else { format!(" port {port}") };
    format!("{end} {first}/{len}{port} with priority {priority}")
}

/// Numbers the answers of entries from 1 on by rank, so that the greater answer is better. Entries
/// share an answer if they have the same rank and the same ruling. `numbers` has each entry's
/// ruling. Returns the ruling of each answer.
pub(super) fn number_answers(entries: &mut [Entry], numbers: &[u32]) -> Vec<u32> {
    // Position of each rank's entries.
    let mut places = vec![0_usize; RANKS + 1];
    entries.iter().for_each(|entry| places[entry.answer as usize + 1] += 1);
    (1..=RANKS).for_each(|rank| places[rank] += places[rank - 1]);
    let mut by_rank = vec![0_u32; entries.len()];
    for (at, entry) in entries.iter().enumerate() {
        let place = &mut places[entry.answer as usize];
        by_rank[*place] = at as u32;
        *place += 1;
    }
    let mut answers = Vec::new();
    // The last answer for each ruling, and its rank.
    let most = numbers.iter().max().map_or(0, |&number| number as usize + 1);
    let mut last = vec![(0_u32, 0_u32); most];
    for at in by_rank {
        let (entry, number) = (&mut entries[at as usize], numbers[at as usize]);
        let last = &mut last[number as usize];
        if last.0 == 0 || last.1 != entry.answer {
            answers.push(number);
            *last = (answers.len() as u32, entry.answer);
        }
        entry.answer = last.0;
    }
    answers
}

/// The different rulings, numbered.
#[derive(Default)]
struct Rulings {
    all: Vec<Ruling>,
    /// Numbers of bypass and drop, and of translations.
    plain: [Option<u32>; 2],
    snats: BTreeMap<Snat, u32>,
}

impl Rulings {
    fn number(&mut self, rule: &Rule) -> u32 {
        let next = self.all.len() as u32;
        let Rule { timeouts, mark, .. } = *rule;
        let (ruling, number) = match rule.action {
            RuleAction::Bypass => (Ruling::Bypass, self.plain[0].get_or_insert(next)),
            RuleAction::Drop => (Ruling::Drop, self.plain[1].get_or_insert(next)),
            RuleAction::Snat(pool) => self.snat(Snat { timeouts, mark, ..Snat::of_pool(pool) }),
            RuleAction::SnatTo(pool, address) => {
                self.snat(Snat { pool, address: Some(address), timeouts, mark })
            }
            RuleAction::Dnat(..) | RuleAction::DnatPrefix(_) => {
                unreachable!("rules that translate destinations are searched for apart")
            }
        };
        let number = *number;
        if number == next {
            self.all.push(ruling);
        }
        number
    }

    fn snat(&mut self, snat: Snat) -> (Ruling, &mut u32) {
        let next = self.all.len() as u32;
        (Ruling::Snat(snat), self.snats.entry(snat).or_insert(next))
    }
}

/// Writes the tries of all groups of one endpoint. The group of any port comes first.
pub(super) fn write_end(tries: &mut Builder, entries: &[Entry]) -> Roots {
    let (any_port, by_port) =
        entries.split_at(entries.partition_point(|entry| entry.group() as u16 == 0));
    let mut stretches = Stretches::default();
    let mut roots = Roots::default();
    if let Some((first, last)) = bounds(any_port) {
        let base = Builder::base(first);
        stretches.fill(any_port, base);
        roots.any_port = Some(tries.write_addresses(&stretches.all, base, last - base));
    }
    if let Some((first, last)) = bounds(by_port) {
        let base = Builder::base_of_ports(first, last);
        let last = last - base;
        let mut ports = Vec::new();
        for group in by_port.chunk_by(|one, other| one.group() == other.group()) {
            stretches.fill(group, base);
            ports.push((group[0].group() as u16, tries.write_port(&stretches.all, last)));
        }
        roots.by_port = tries.write_ports(&ports, base, last);
    }
    roots
}

/// The first and the last address that one of these rules looks at.
fn bounds(entries: &[Entry]) -> Option<(u32, u32)> {
    let first = entries.iter().map(Entry::first).min()?;
    Some((first, entries.iter().map(Entry::last).max()?))
}

/// The stretches of addresses of a group with their answers, by their last address.
#[derive(Default)]
struct Stretches {
    all: Vec<Stretch>,
    /// The open prefixes, which contain the present address: the last address of each, and the best
    /// answer so far.
    open: Vec<(u32, u32)>,
    /// The first address without a stretch.
    next: u64,
}

impl Stretches {
    /// Computes the stretches of a group. Addresses count from `base`, which is not above the
    /// group's first address.
    fn fill(&mut self, group: &[Entry], base: u32) {
        self.all.clear();
        self.next = 0;
        self.open.push((u32::MAX, 0));
        for entry in group {
            let first = entry.first() - base;
            while let Some(&(last, answer)) = self.open.last()
                && last < first
            {
                self.put(last, answer);
                self.open.pop();
            }
            let outer = self.open.last().map_or(0, |open| open.1);
            if first > 0 {
                self.put(first - 1, outer);
            }
            self.open.push((entry.last() - base, outer.max(entry.answer)));
        }
        while let Some((last, answer)) = self.open.pop() {
            self.put(last, answer);
        }
    }

    /// Gives an answer to the addresses up to `last` that have none.
    fn put(&mut self, last: u32, answer: u32) {
        if u64::from(last) < self.next {
            return;
        }
        self.next = u64::from(last) + 1;
        let answer = Ref::answer(answer);
        match self.all.last_mut() {
            Some((end, same)) if *same == answer => *end = last,
            _ => self.all.push((last, answer)),
        }
    }
}
