//! Reads `[[rule]]`.
//!
//! A faulty table is left out of the draft, so that the checks compare valid tables only. The
//! checks resolve names of pools later, when all pools are known.

use super::alg;
use super::draft::{ActionDraft, RuleDraft};
use super::policy;
use super::problem::Located;
use super::reader::{Section, Value};
use super::realms;
use super::values;
use natgate_engine::Match;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Snat,
    Dnat,
    Bypass,
    Drop,
}

/// Reads a rule.
pub(super) fn read_rule(section: &Section<'_>) -> Option<RuleDraft> {
    let kinds = [
        ("snat", Ok(Kind::Snat)),
        ("dnat", Ok(Kind::Dnat)),
        ("bypass", Ok(Kind::Bypass)),
        ("drop", Ok(Kind::Drop)),
    ];
    let kind = section.require("kind", "\"snat\"").and_then(|value| value.word(&kinds));
    let matches = read_match(section, kind);
    let priority = read_priority(section);
    let kind = kind?;
    refuse(section, "pool", kind != Kind::Snat, "only a rule of kind \"snat\" has it");
    refuse(section, "address", kind != Kind::Snat, "only a rule of kind \"snat\" has it");
    refuse(section, "timeouts", kind != Kind::Snat, "only a rule of kind \"snat\" has it");
    refuse(section, "alg", kind != Kind::Snat, "only a rule of kind \"snat\" has it");
    refuse(section, "to", kind != Kind::Dnat, "only a rule of kind \"dnat\" has it");
    let action = match kind {
        Kind::Snat => read_snat(section),
        Kind::Dnat => section
            .require("to", "\"192.0.2.80:8080\"")
            .and_then(|value| {
                let wanted = "an address, with or without a port, or a prefix";
                value.parsed(wanted, values::target)
            })
            .map(ActionDraft::Dnat),
        Kind::Bypass => Some(ActionDraft::Bypass),
        Kind::Drop => Some(ActionDraft::Drop),
    };
    let (timeouts, alg) = match kind {
        Kind::Snat => (policy::read_rule_timeouts(section), alg::read_rule(section)?),
        Kind::Dnat | Kind::Bypass | Kind::Drop => (None, None),
    };
    let realm = realms::read_whose(section).ok()?;
    let (matches, priority, action) = (matches?, priority?, action?);
    Some(RuleDraft { realm, matches, priority, action, timeouts, alg })
}

fn read_priority(section: &Section<'_>) -> Option<Located<i16>> {
    let Some(value) = section.get("priority") else {
        return Some(Located { value: 0, place: section.place.clone() });
    };
    let priority = value.signed(i16::MIN.into()..=i16::MAX.into())?;
    Some(Located { value: priority as i16, place: value.place })
}

/// Reads the source of translated addresses: a pool, or an address whose pool need not be named.
fn read_snat(section: &Section<'_>) -> Option<ActionDraft> {
    let name = |value: Value<'_>| value.parsed("the name of a pool", |name| Ok(name.to_owned()));
    let Some(address) = section.get("address") else {
        return section.require("pool", "\"default\"").and_then(name).map(ActionDraft::Snat);
    };
    let address = address.parsed("an address", values::address);
    let pool = match section.get("pool") {
        Some(pool) => Some(name(pool)?),
        None => None,
    };
    Some(ActionDraft::SnatTo(address?, pool))
}

/// Reads the match: one prefix, and a port of the same endpoint.
fn read_match(rule: &Section<'_>, kind: Option<Kind>) -> Option<Located<Match>> {
    rule.require("match", "{ source = \"10.1.0.0/16\" }")?;
    let section = rule.section("match", "rule.match");
    let port = match section.get("port") {
        Some(value) => value.integer(0..=65_535).and_then(|port| u16::try_from(port).ok()),
        None => Some(0),
    };
    let (source, destination) = (section.get("source"), section.get("destination"));
    if let (Some(source), true) = (&source, kind == Some(Kind::Dnat)) {
        source.wrong("means nothing to a rule of kind \"dnat\"; write destination");
        return None;
    }
    if let (Some(_), Some(destination)) = (&source, &destination) {
        destination.wrong("stands beside source; keep one of the two");
        return None;
    }
    let by_source = source.is_some();
    let Some(value) = source.or(destination) else {
        if section.is_present() {
            let either = "write source or destination = \"10.1.0.0/16\"";
            section.report.missing(&section.place, format!("names no prefix; {either}"));
        }
        return None;
    };
    let Located { value: prefix, place } = value.parsed("a prefix", values::prefix)?;
    let matches = if by_source { Match::Source } else { Match::Destination };
    Some(Located { value: matches(prefix, port?), place })
}

/// Refuses a key that has no meaning for this kind of rule.
fn refuse(section: &Section<'_>, key: &'static str, refused: bool, why: &str) {
    if let Some(value) = section.get(key).filter(|_| refused) {
        value.wrong(format!("has no effect here; {why}"));
    }
}
