//! Checks of rules that translate destinations: where the packets go, and whether other rules leave
//! any packets to them.
//!
//! A rule that translates a destination to itself is an exception from a wider rule and needs no
//! check. There may be a million rules, so everything that a rule is compared with is sorted first.

use super::draft::{ActionDraft, Draft, RuleDraft, SideDraft, StaticDraft, Targets};
use super::problem::{Located, Place, Report};
use super::values::{self, DnatTo, show_prefix, show_range};
use natgate_engine::{AddressRange, Prefix, RuleSet};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;

/// A rule that translates destinations: the rule, the prefix and port that it matches, its target.
struct Dnat<'d> {
    rule: &'d RuleDraft,
    prefix: Prefix,
    port: u16,
    to: &'d Located<DnatTo>,
}

impl Dnat<'_> {
    /// True if the rule leaves destinations unchanged.
    fn is_exception(&self) -> bool {
        match self.to.value {
            DnatTo::Prefix(to) => to == self.prefix,
            DnatTo::Endpoint(address, port) => {
                Prefix::new(address, 32) == self.prefix && port.is_none_or(|port| port == self.port)
            }
        }
    }
}

/// The parts of the configuration that destinations are compared with.
struct Surroundings<'d> {
    draft: &'d Draft,
    /// The inside where the packets enter.
    inside: &'d SideDraft,
    pools: Targets<'d>,
    /// Static mappings by external address.
    statics: BTreeMap<Ipv4Addr, Vec<&'d StaticDraft>>,
}

/// Reports rules that cannot work.
pub(super) fn check(draft: &Draft, realm: u16, rules: &[&RuleDraft], report: &Report<'_>) {
    let dnats: Vec<Dnat<'_>> = rules.iter().copied().filter_map(dnat).collect();
    if dnats.is_empty() {
        return;
    }
    let mut statics: BTreeMap<Ipv4Addr, Vec<&StaticDraft>> = BTreeMap::new();
    for mapping in &draft.statics {
        statics.entry(mapping.external.value.0).or_default().push(mapping);
    }
    let inside = draft.inside_of(realm);
    let around = Surroundings { draft, inside, pools: draft.targets(), statics };
    for dnat in dnats.iter().filter(|dnat| !dnat.is_exception()) {
        match dnat.to.value {
            DnatTo::Endpoint(address, port) => around.to_endpoint(dnat, address, port, report),
            DnatTo::Prefix(to) => around.to_prefix(dnat, to, report),
        }
    }
    way_back_is_one(&dnats, report);
    targets_are_not_too_many(&dnats, report);
    some_are_left(rules, &dnats, report);
}

fn dnat(rule: &RuleDraft) -> Option<Dnat<'_>> {
    let ActionDraft::Dnat(to) = &rule.action else { return None };
    let (_, prefix, port) = rule.looks_at();
    Some(Dnat { rule, prefix, port, to })
}

impl Surroundings<'_> {
    /// Checks a rule that sends all matching packets to one host. The host must be outside, or
    /// inside behind a static mapping.
    fn to_endpoint(
        &self,
        dnat: &Dnat<'_>,
        address: Ipv4Addr,
        port: Option<u16>,
        report: &Report<'_>,
    ) {
        let (draft, place) = (self.draft, &dnat.to.place);
        let whole = AddressRange { first: address, last: address };
        let remedy = "write a host's address outside";
        let mut sides = [self.inside, &draft.outside].into_iter();
        let network = self.inside.network().filter(|network| network.contains(address.into()));
        let arrives_at = port.or(Some(dnat.port).filter(|port| *port != 0));
        if let Some(class) = values::unusable(whole) {
            report.wrong(place, format!("{address} is in {class}, which no host has; {remedy}"));
        } else if self.is_static(address, arrives_at) {
            hairpins(draft, place, report);
        } else if let Some(pool) = self.pools.pool_of(address) {
            let name = &draft.pools[pool].name.value;
            let message =
                format!("{address} is in pool \"{name}\", and no [[static]] mapping has it");
            report.wrong(place, format!("{message} for this port; write the external of one"));
        } else if let Some(side) = sides.find(|side| side.own() == Some(address)) {
            let message = format!("{address} is {}.address, the gateway itself", side.name());
            report.wrong(place, format!("{message}, which answers only ping there; {remedy}"));
        } else if let Some(network) = network {
            let network = show_prefix(network);
            let name = self.inside.name();
            let message = format!("{address} is in {network}, the network of {name}.address");
            let remedy = "give it a [[static]] mapping and write its external endpoint";
            report.wrong(place, format!("{message}, but packets go outside; {remedy}"));
        }
        if let (Some(port), 0) = (port, dnat.port) {
            let message = format!("sends packets for every port to port {port}");
            let remedy = "write match.port, or leave the port out here";
            report.unwise(place, format!("{message}; {remedy}"));
        }
    }

    /// True if a static mapping has this external endpoint. Without a port, any port of the address
    /// is enough.
    fn is_static(&self, address: Ipv4Addr, port: Option<u16>) -> bool {
        self.statics.get(&address).into_iter().flatten().any(|mapping| {
            let (_, its) = mapping.external.value;
            let has = |port: u16| its.is_none_or(|its| (its.first..=its.last).contains(&port));
            port.is_none_or(has)
        })
    }

    /// Checks a rule that translates address by address to a prefix of the same length.
    fn to_prefix(&self, dnat: &Dnat<'_>, to: Prefix, report: &Report<'_>) {
        let (draft, place) = (self.draft, &dnat.to.place);
        let range = AddressRange { first: to.first().into(), last: to.last().into() };
        let shown = show_prefix(to);
        if to.len() != dnat.prefix.len() {
            let (from, wanted) = (show_prefix(dnat.prefix), dnat.prefix.len());
            let (one, other) = (count(dnat.prefix), count(to));
            let message = format!("{shown} has {other} addresses, and {from} has {one}");
            let right = show_prefix(Prefix::new(range.first, wanted));
            report.wrong(place, format!("{message}; write a /{wanted} such as \"{right}\""));
            return;
        }
        if let Some(class) = values::unusable(range) {
            let message = format!("{shown} overlaps {class}, which no host has");
            report.wrong(place, format!("{message}; write unicast"));
        }
        if let Some((external, pool)) = self.pools.overlapping(to) {
            let (other, name) = (show_range(external), &draft.pools[pool].name.value);
            let message = format!("{shown} overlaps {other} of pool \"{name}\"");
            report.wrong(place, format!("{message}; write a prefix without external addresses"));
        }
        if let Some((address, fixed)) = self.statics.range(range.first..=range.last).next() {
            let line = fixed.first().map_or(0, |fixed| report.line(fixed.place.offset));
            let message = format!("{shown} contains {address}");
            let why = format!("the external address of the static mapping in line {line}");
            report.wrong(place, format!("{message}, {why}; write a prefix without it"));
        }
        for side in [self.inside, &draft.outside] {
            if let Some(own) = side.own().filter(|own| to.contains((*own).into())) {
                let seen = dnat.prefix.first() + (u32::from(own) - to.first());
                let message = format!("{shown} contains {}.address", side.name());
                let seen = format!("nobody can be reached as {}", Ipv4Addr::from(seen));
                report.unwise(place, format!("{message} ({own}), so {seen}"));
            }
        }
    }
}

fn hairpins(draft: &Draft, place: &Place, report: &Report<'_>) {
    if !draft.config.hairpinning {
        let message = "is an external endpoint, but nat.hairpinning is off";
        report.wrong(place, format!("{message}; turn it on, or write a host's address outside"));
    }
}

fn count(prefix: Prefix) -> u64 {
    u64::from(prefix.last() - prefix.first()) + 1
}

/// Source addresses of a prefix can be translated back to one other prefix only.
fn way_back_is_one(dnats: &[Dnat<'_>], report: &Report<'_>) {
    let mut seen = HashMap::new();
    for Dnat { rule, port, to, prefix } in dnats {
        let DnatTo::Prefix(to_prefix) = to.value else { continue };
        let key = (to_prefix, port, rule.priority.value);
        let first = seen.entry(key).or_insert((report.line(to.place.offset), *prefix));
        if first.1 != *prefix {
            let (line, first) = (first.0, show_prefix(first.1));
            let message = format!("is what the rule in line {line} translates to as well");
            report
                .unwise(&to.place, format!("{message}; what comes from there is seen as {first}"));
        }
    }
}

/// Reports the first rule that exceeds the limit.
fn targets_are_not_too_many(dnats: &[Dnat<'_>], report: &Report<'_>) {
    let most = RuleSet::MOST_TARGETS;
    if dnats.len() <= most {
        return;
    }
    let mut targets = HashSet::new();
    let mut sources = HashSet::new();
    for Dnat { to, prefix, .. } in dnats {
        targets.insert(to.value);
        if let DnatTo::Prefix(_) = to.value {
            sources.insert(*prefix);
        }
        if targets.len().max(sources.len()) > most {
            let message = format!("is one more different target; at most {most} are possible");
            report.wrong(&to.place, message);
            return;
        }
    }
}

/// The precedence of a rule of another kind: its position in the order of all rules.
fn rank(rule: &RuleDraft) -> (i16, u8, bool, bool) {
    let (by_source, prefix, port) = rule.looks_at();
    (rule.priority.value, prefix.len(), port != 0, by_source)
}

/// Warns of rules whose packets are all bypassed or dropped by a rule for their destinations that
/// takes precedence over every snat rule.
fn some_are_left(rules: &[&RuleDraft], dnats: &[Dnat<'_>], report: &Report<'_>) {
    let snats = rules.iter().copied().filter(|rule| rule.action.is_snat());
    let best_snat = snats.map(rank).max();
    let takes_all = |rule: &&RuleDraft| {
        matches!(rule.action, ActionDraft::Bypass | ActionDraft::Drop)
            && !rule.looks_at().0
            && best_snat.is_none_or(|best| rank(rule) > best)
    };
    let takers: HashMap<(Prefix, u16), &RuleDraft> = rules
        .iter()
        .copied()
        .filter(takes_all)
        .map(|rule| ((rule.looks_at().1, rule.looks_at().2), rule))
        .collect();
    for Dnat { rule, prefix, port, .. } in dnats.iter().filter(|_| !takers.is_empty()) {
        // At most 33 prefixes contain a prefix.
        let wider = (0..=prefix.len()).map(|len| Prefix::new(prefix.first().into(), len));
        let taker =
            wider.flat_map(|wider| [(wider, 0), (wider, *port)]).find_map(|key| takers.get(&key));
        if let Some(taker) = taker {
            let line = report.line(taker.matches.place.offset);
            let kind = if matches!(taker.action, ActionDraft::Drop) { "drops" } else { "bypasses" };
            let message =
                format!("never applies: the rule in line {line} {kind} all that it matches");
            report.unwise(&rule.matches.place, message);
        }
    }
}
