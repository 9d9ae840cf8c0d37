//! Checks of rules against each other and against the pools: unknown pools and addresses, rules
//! with the same match, rules that never apply.
//!
//! There may be a million rules, so no check compares all pairs.

use super::dnat_checks;
use super::draft::{ActionDraft, Draft, RuleDraft, Targets};
use super::problem::Report;
use natgate_engine::{Allocation, RuleSet};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Most rules without effect that are named one by one.
const MOST_NAMED: usize = 20;

/// Reports rules that disagree.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    let targets = draft.targets();
    for rule in &draft.rules {
        target_is_there(rule, &targets, draft, report);
    }
    let names = draft.realm_names();
    let mut by_realm: Vec<Vec<&RuleDraft>> = vec![Vec::new(); draft.realms.len() + 1];
    for rule in &draft.rules {
        if let Some(realm) = names.of(&rule.realm) {
            by_realm[usize::from(realm)].push(rule);
        }
    }
    for (realm, rules) in (0..).zip(by_realm) {
        no_two_match_the_same(&rules, report);
        priorities_are_few(&rules, report);
        dnat_checks::check(draft, realm, &rules, report);
        let (dnats, others): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| is_dnat(rule));
        every_rule_applies(others, report);
        every_rule_applies(dnats, report);
    }
}

fn is_dnat(rule: &RuleDraft) -> bool {
    matches!(rule.action, ActionDraft::Dnat(_))
}

fn target_is_there(rule: &RuleDraft, targets: &Targets<'_>, draft: &Draft, report: &Report<'_>) {
    let (address, pool) = match &rule.action {
        ActionDraft::Snat(pool) => (None, Some(pool)),
        ActionDraft::SnatTo(address, pool) => (Some(address), pool.as_ref()),
        _ => return,
    };
    let index = pool.and_then(|pool| targets.pool(&pool.value));
    if let (Some(pool), None) = (pool, index) {
        let names: Vec<String> =
            draft.pools.iter().map(|pool| format!("\"{}\"", pool.name.value)).collect();
        let message = format!("there is no pool {:?}", pool.value);
        let remedy = format!("write one of {}", names.join(", "));
        report.missing(&pool.place, format!("{message}; {remedy}"));
        return;
    }
    let Some(address) = address else { return };
    let shown = address.value;
    match (targets.pool_of(shown), index) {
        (None, _) => {
            let message = format!("{shown} is in no pool; write an address of one");
            report.missing(&address.place, message);
        }
        (Some(its), Some(index)) if its != index => {
            let (its, named) = (&draft.pools[its].name.value, &draft.pools[index].name.value);
            let message = format!("{shown} is in pool \"{its}\" and not in \"{named}\"");
            report.wrong(&address.place, format!("{message}; write an address of that pool"));
        }
        (Some(its), _) => {
            let pool = &draft.pools[its];
            if !matches!(draft.allocation(pool), Allocation::Random | Allocation::Preserve) {
                let name = &pool.name.value;
                let message = format!("{shown} is in pool \"{name}\", whose ports are shared out");
                let remedy = "write an address of a pool whose allocation is random or preserve";
                report.wrong(&address.place, format!("{message}; {remedy}"));
            }
        }
    }
}

fn no_two_match_the_same(rules: &[&RuleDraft], report: &Report<'_>) {
    // The engine searches rules of kind dnat separately from all others.
    let mut seen = HashMap::new();
    for rule in rules {
        let key = (is_dnat(rule), rule.looks_at(), rule.priority.value);
        let place = &rule.matches.place;
        if let Some(line) = seen.insert(key, report.line(place.offset)) {
            let message = format!("is what the rule in line {line} matches; keep one of the two");
            report.wrong(place, format!("{message}, or give one another priority"));
        }
    }
}

/// Reports the first rule that exceeds the limit.
fn priorities_are_few(rules: &[&RuleDraft], report: &Report<'_>) {
    let mut seen = BTreeSet::new();
    for rule in rules {
        let most = RuleSet::MOST_PRIORITIES;
        if seen.insert(rule.priority.value) && seen.len() > most {
            let message = format!("is one more different priority; at most {most} are possible");
            report.wrong(&rule.priority.place, message);
            return;
        }
    }
}

/// A prefix that contains the current one, and the rule of highest priority for it or a wider
/// prefix.
#[derive(Clone, Copy)]
struct Wider<'a> {
    last: u32,
    rule: &'a RuleDraft,
}

/// Warns of rules whose packets are all taken by other rules. `all` has rules that the engine
/// searches together.
fn every_rule_applies(mut all: Vec<&RuleDraft>, report: &Report<'_>) {
    all.sort_by_key(|rule| {
        let (by_source, prefix, port) = rule.looks_at();
        (by_source, prefix.first(), prefix.len(), port, Reverse(rule.priority.value))
    });
    // Rules that match every packet, by destination and by source.
    let everything = [false, true].map(|end| {
        let matches_all = |rule: &&&RuleDraft| {
            let (by_source, prefix, port) = rule.looks_at();
            by_source == end && prefix.is_empty() && port == 0
        };
        all.iter().filter(matches_all).max_by_key(|rule| rule.priority.value).copied()
    });
    // By end and port: the prefixes that contain the current one, widest first.
    let mut open: HashMap<(bool, u16), Vec<Wider<'_>>> = HashMap::new();
    let mut never = Vec::new();
    let winners = winners(&all);
    for rule in all {
        let (by_source, prefix, port) = rule.looks_at();
        let mut before = |port| -> Option<&RuleDraft> {
            let open = open.get_mut(&(by_source, port))?;
            while open.last().is_some_and(|wider| wider.last < prefix.first()) {
                open.pop();
            }
            open.last().map(|wider| wider.rule)
        };
        let wider = [before(0), before(port)].into_iter().flatten();
        let same_end = wider.max_by_key(|rule| rule.priority.value);
        let best = same_end.filter(|wider| wider.priority.value > rule.priority.value);
        let other_end = everything[usize::from(!by_source)].filter(|other| {
            let tie = prefix.is_empty() && port == 0 && !by_source;
            (other.priority.value, tie) > (rule.priority.value, false)
        });
        let taker = best.or(other_end);
        if taker.is_some() || !winners.contains(&rule.matches.place.offset) {
            never.push((rule, taker));
        }
        let own = open.entry((by_source, port)).or_default();
        let wider = own.last().map(|wider| wider.rule);
        let better = wider.filter(|wider| wider.priority.value >= rule.priority.value);
        own.push(Wider { rule: better.unwrap_or(rule), last: prefix.last() });
    }
    never.sort_by_key(|(rule, _)| rule.matches.place.offset);
    for (rule, taker) in never.iter().take(MOST_NAMED) {
        let message = match taker {
            Some(taker) => {
                let line = report.line(taker.matches.place.offset);
                format!("the rule in line {line} matches all that it does, and comes before it")
            }
            None => "rules with longer prefixes or higher priority match all that it does".into(),
        };
        report.unwise(&rule.matches.place, format!("never applies: {message}"));
    }
    if let Some((rule, _)) = never.get(MOST_NAMED) {
        let more = never.len() - MOST_NAMED;
        let message = format!("never applies either, nor do others: {more} rules in all from here");
        report.unwise(&rule.matches.place, message);
    }
}

/// The places of rules that are the best of their end and port for some address. Within such a
/// group prefixes are nested or disjoint, so a sweep in order keeps the open ones on a stack.
fn winners(all: &[&RuleDraft]) -> HashSet<usize> {
    let mut groups: HashMap<(bool, u16), Vec<&RuleDraft>> = HashMap::new();
    for rule in all {
        let (by_source, _, port) = rule.looks_at();
        groups.entry((by_source, port)).or_default().push(rule);
    }
    let mut winners = HashSet::new();
    for group in groups.values_mut() {
        // Among rules with the same prefix the one of highest priority comes last.
        group.sort_by_key(|rule| {
            let (_, prefix, _) = rule.looks_at();
            (prefix.first(), prefix.len(), rule.priority.value)
        });
        let mut sweep = Sweep { next: 0, winners: &mut winners };
        let mut open: Vec<Wider<'_>> = Vec::new();
        for rule in group.iter() {
            let (_, prefix, _) = rule.looks_at();
            while let Some(wider) = open.pop_if(|wider| wider.last < prefix.first()) {
                sweep.until(wider.last.into(), wider.rule);
            }
            match open.last() {
                Some(wider) if prefix.first() > 0 => {
                    sweep.until(u64::from(prefix.first()) - 1, wider.rule);
                }
                _ => sweep.next = sweep.next.max(prefix.first().into()),
            }
            let wider = open.last().map(|wider| wider.rule);
            let better = wider.filter(|wider| wider.priority.value > rule.priority.value);
            open.push(Wider { rule: better.unwrap_or(rule), last: prefix.last() });
        }
        while let Some(wider) = open.pop() {
            sweep.until(wider.last.into(), wider.rule);
        }
    }
    winners
}

/// A sweep over all addresses in order.
struct Sweep<'w> {
    next: u64,
    winners: &'w mut HashSet<usize>,
}

impl Sweep<'_> {
    /// Marks `winner` as the best rule up to `last`.
    fn until(&mut self, last: u64, winner: &RuleDraft) {
        if last >= self.next {
            self.next = last + 1;
            self.winners.insert(winner.matches.place.offset);
        }
    }
}
