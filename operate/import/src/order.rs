//! Order of rules: in other translators the first match wins, in natgate the highest priority and
//! then the longest prefix.
//!
//! A rule that would lose to a later one by its prefix gets a higher priority than the later one. A
//! rule behind another that matches all its packets is left out, because it never applied.

use crate::plan::{Kind, Plan, Rule};

/// Number of different priorities in natgate.
const MOST_PRIORITIES: i32 = 16;

/// Most rules whose order is examined; more pairs would take too long.
const MOST_ORDERED: usize = 5_000;

pub(crate) fn settle(plan: &mut Plan) {
    let mut all = std::mem::take(&mut plan.rules);
    all.sort_by_key(|rule| rule.place);
    if all.len() > MOST_ORDERED {
        let origin = all[MOST_ORDERED].origin.clone();
        let message = format!(
            "and what follows: of more than {MOST_ORDERED} rules the first are imported, since the \
             order of all decides; put prefixes together first"
        );
        plan.lost(&origin, message);
    }
    let (destinations, others): (Vec<Rule>, Vec<Rule>) =
        all.into_iter().take(MOST_ORDERED).partition(|rule| matches!(rule.kind, Kind::Dnat(..)));
    // Rules for destinations are searched separately.
    for group in [others, destinations] {
        let reached = reached(plan, group);
        let ranked = ranked(plan, reached);
        plan.rules.extend(ranked);
    }
    plan.rules.sort_by_key(|rule| rule.place);
}

/// Rules that are not behind another that matches all their packets.
fn reached(plan: &mut Plan, rules: Vec<Rule>) -> Vec<Rule> {
    let mut kept: Vec<Rule> = Vec::new();
    for rule in rules {
        match kept.iter().find(|earlier| earlier.covers(&rule)) {
            Some(earlier) => {
                let (line, origin) = (earlier.origin.line, rule.origin.clone());
                match earlier.kind == rule.kind {
                    _ if line == origin.line => {}
                    true => {
                        plan.differs(&origin, format!("is left out: line {line} does that already"))
                    }
                    false => {
                        let message =
                            format!("never applies: line {line} matches all that it does");
                        plan.without(&origin, message);
                    }
                }
            }
            None => kept.push(rule),
        }
    }
    kept
}

/// Assigns priorities.
fn ranked(plan: &mut Plan, mut rules: Vec<Rule>) -> Vec<Rule> {
    let mut levels = vec![0; rules.len()];
    for place in (0..rules.len()).rev() {
        let above = (place + 1..rules.len()).filter(|later| rules[place].meets(&rules[*later]));
        let above = above.map(|later| levels[later] + i32::from(!rules[place].wins(&rules[later])));
        levels[place] = above.max().unwrap_or(0);
    }
    for (rule, level) in rules.iter_mut().zip(&levels) {
        rule.priority = *level;
    }
    let (kept, lost): (Vec<Rule>, Vec<Rule>) =
        rules.into_iter().partition(|rule| rule.priority < MOST_PRIORITIES);
    for rule in lost {
        let message =
            format!("would need a priority more than the {MOST_PRIORITIES} that natgate has");
        match rule.kind {
            Kind::Dnat(..) => plan.without(&rule.origin, message),
            Kind::Snat(_) | Kind::Address(_) | Kind::Bypass | Kind::Drop => {
                plan.lost(&rule.origin, message);
            }
        }
    }
    kept
}

impl Rule {
    /// True if the rule matches all packets that another matches.
    fn covers(&self, other: &Self) -> bool {
        self.is_source == other.is_source
            && self.prefix.contains(other.prefix)
            && (self.port == 0 || self.port == other.port)
    }

    /// True if a packet may match both rules.
    fn meets(&self, other: &Self) -> bool {
        self.is_source != other.is_source
            || self.prefix.overlaps(other.prefix)
                && (self.port == 0 || other.port == 0 || self.port == other.port)
    }

    /// True if the rule wins over another of the same priority: by the longer prefix, the exact
    /// port, the source.
    fn wins(&self, other: &Self) -> bool {
        let rank = |rule: &Self| (rule.prefix.len(), rule.port != 0, rule.is_source);
        rank(self) > rank(other)
    }
}
