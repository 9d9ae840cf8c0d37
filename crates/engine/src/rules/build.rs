//! Working out what to do with every packet: from rules to tries.
//!
//! Rules that look at the same end and port are a group. In a group the better of two rules that
//! hold an address is the one with the greater answer, so the group divides the addresses into
//! stretches with one answer each: prefixes lie within each other or apart, and are gone through in
//! order with those that are open on a stack. Each group has a trie; those with a port are reached by
//! an array of ports.

use super::search::RULING_BITS;
use super::trie::{Builder, Ref, Stretch};
use super::{Roots, RuleSet, Ruling, Snat};
use crate::ConfigError;
use crate::config::{Match, Prefix, Rule, RuleAction};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Lengths that a prefix may have.
const LENGTHS: u32 = 33;
// The best rank fits its bits.
const _: () =
    assert!((rank(RuleSet::MOST_PRIORITIES as u32 - 1, 32, true, true) << RULING_BITS) >> 31 == 0);

/// How good a rule is, more than 0.
const fn rank(priority: u32, len: u32, exact_port: bool, by_source: bool) -> u32 {
    1 + ((priority * LENGTHS + len) * 2 + exact_port as u32) * 2 + by_source as u32
}

/// A rule on its way into a map.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// In the order in which rules are gone through: end, port, first address, length, priority.
    order: u64,
    answer: u32,
    /// The rule's place among those given.
    rule: u32,
}

impl Entry {
    const LEN_SHIFT: u32 = 4;
    const FIRST_SHIFT: u32 = Self::LEN_SHIFT + 6;
    const GROUP_SHIFT: u32 = Self::FIRST_SHIFT + 32;

    fn new(rule: u32, matches: Match, priority: u32, ruling: u32) -> Self {
        let (prefix, port, by_source) = looks_at(matches);
        let len = u32::from(prefix.len());
        let group = u64::from(!by_source) << 16 | u64::from(port);
        let order = group << Self::GROUP_SHIFT
            | u64::from(prefix.first()) << Self::FIRST_SHIFT
            | u64::from(len) << Self::LEN_SHIFT
            | u64::from(priority);
        let answer = rank(priority, len, port != 0, by_source) << RULING_BITS | ruling;
        Self { order, answer, rule }
    }

    /// End and port.
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

/// Prefix and port that a rule looks at, and whether they are the source's.
fn looks_at(matches: Match) -> (Prefix, u16, bool) {
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
    let mut rulings = Rulings::new();
    let mut entries = Vec::with_capacity(rules.len());
    for (at, rule) in rules.iter().enumerate() {
        let priority = priorities.partition_point(|&lower| lower < rule.priority) as u32;
        let ruling = rulings.number(rule)?;
        entries.push(Entry::new(at as u32, rule.matches, priority, ruling));
    }
    entries.sort_unstable_by_key(|entry| entry.order);
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].order == pair[1].order) {
        let [one, other] = [pair[0].rule.min(pair[1].rule), pair[0].rule.max(pair[1].rule)];
        let what = describe(&rules[one as usize]);
        return fail(format!(
            "rules {one} and {other}, counted from 0, both match {what}: keep one of them, or give \
             one another priority"
        ));
    }
    let mut tries = Builder::default();
    let destinations = entries.partition_point(|entry| entry.group() >> 16 == 0);
    let source = write_end(&mut tries, &entries[..destinations]);
    let destination = write_end(&mut tries, &entries[destinations..]);
    let Some(tries) = tries.finish() else {
        return fail(format!("{} rules like these take too much memory", rules.len()));
    };
    Ok(RuleSet {
        source,
        destination,
        tries,
        len: rules.len(),
        by_port: rules.iter().any(|rule| looks_at(rule.matches).1 != 0),
        drops: rules.iter().any(|rule| rule.action == RuleAction::Drop),
        bypasses: rules.iter().any(|rule| rule.action == RuleAction::Bypass),
        rulings: rulings.all.into(),
    })
}

/// The priorities that there are, ascending.
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

/// The different rulings, numbered.
struct Rulings {
    all: Vec<Ruling>,
    snats: BTreeMap<Snat, u32>,
}

impl Rulings {
    const BYPASS: u32 = 0;
    const DROP: u32 = 1;

    fn new() -> Self {
        Self { all: Vec::from([Ruling::Bypass, Ruling::Drop]), snats: BTreeMap::new() }
    }

    fn number(&mut self, rule: &Rule) -> Result<u32, ConfigError> {
        let timeouts = rule.timeouts;
        let snat = match rule.action {
            RuleAction::Bypass => return Ok(Self::BYPASS),
            RuleAction::Drop => return Ok(Self::DROP),
            RuleAction::Snat(pool) => Snat { pool, address: None, timeouts },
            RuleAction::SnatTo(pool, address) => Snat { pool, address: Some(address), timeouts },
            RuleAction::Dnat(..) => {
                let message = "dnat rules are not in this version: use a [[static]] mapping";
                return Err(ConfigError { message: message.into() });
            }
        };
        if let Some(number) = self.snats.get(&snat) {
            return Ok(*number);
        }
        let number = self.all.len() as u32;
        if number >> RULING_BITS != 0 {
            let message = format!("rules name more than {} different pools and addresses", number);
            return Err(ConfigError { message });
        }
        self.all.push(Ruling::Snat(snat));
        self.snats.insert(snat, number);
        Ok(number)
    }
}

/// The tries of all groups of one end; the group of any port comes first.
fn write_end(tries: &mut Builder, entries: &[Entry]) -> Roots {
    let mut roots = Roots::default();
    let mut ports = Vec::new();
    let mut stretches = Stretches::default();
    for group in entries.chunk_by(|one, other| one.group() == other.group()) {
        stretches.fill(group);
        match group[0].group() as u16 {
            0 => roots.any_port = tries.write_root(&stretches.all),
            port => ports.push((port, tries.write(&stretches.all, 0, 32))),
        }
    }
    roots.by_port = tries.write_ports(&ports);
    roots
}

/// The stretches of addresses of a group with their answers, by their last address.
#[derive(Default)]
struct Stretches {
    all: Vec<Stretch>,
    /// The prefixes that hold the present address: their last, and the best answer so far.
    open: Vec<(u32, u32)>,
    /// The first address that no stretch has yet.
    next: u64,
}

impl Stretches {
    fn fill(&mut self, group: &[Entry]) {
        self.all.clear();
        self.next = 0;
        self.open.push((u32::MAX, 0));
        for entry in group {
            let first = entry.first();
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
            self.open.push((entry.last(), outer.max(entry.answer)));
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
