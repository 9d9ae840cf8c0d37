//! Classes of subscribers, thresholds, and timeouts by port and by rule: reading, and checks
//! against each other, the common limits and the pools.

use super::draft::{Draft, RuleDraft};
use super::problem::{Located, Place, Report};
use super::reader::{Section, Value};
use super::realms::{self, RealmName};
use super::sections::{IDLE, bounded, read_duration, read_name};
use super::values::{self, overlaps_prefix, show_duration, show_prefix};
use natgate_engine::{
    Class, ClassLimits, Pooling, PortTimeout, Prefix, Thresholds, TimeoutSet, Totals,
};
use natgate_wire::protocol;
use std::collections::HashMap;
use std::time::Duration;

const ICMP: &str = "ICMP";
const MOST_A_SECOND: u64 = 1_000_000_000;
const ALL: u64 = u32::MAX as u64;

/// A class of subscribers.
pub(super) struct ClassDraft {
    place: Place,
    name: Located<String>,
    subscribers: Vec<Located<Prefix>>,
    /// The realm of the class; `None`: all realms.
    pub(super) realm: RealmName,
    limits: ClassLimits,
    /// The place of the class's quota, or where it would be.
    pub(super) quota_place: Place,
    total: TotalDraft,
}

/// Limits of all subscribers of a class together.
struct TotalDraft {
    total: Totals,
    /// Limits by name, with their places.
    numbers: Vec<(&'static str, Located<u32>)>,
    thresholds: Option<Place>,
}

/// A timeout by remote port.
pub(super) struct TimeoutDraft {
    place: Place,
    timeout: PortTimeout,
}

// ---- reading ----

/// Reads percentages of a limit.
pub(super) fn read_thresholds(section: &Section<'_>) -> Option<Located<Vec<u8>>> {
    let value = section.get("thresholds")?;
    let (least, most) = (*Thresholds::BOUNDS.start(), *Thresholds::BOUNDS.end());
    let items = value.items("an array of percentages, such as [80, 95]")?;
    if items.len() > Thresholds::MOST {
        let many = Thresholds::MOST;
        value.wrong(format!("has {} percentages; at most {many} are possible", items.len()));
        return None;
    }
    let mut all: Vec<u8> = Vec::new();
    for item in &items {
        let percent = item.integer(u64::from(least)..=u64::from(most))? as u8;
        if let Some(before) = all.last().filter(|before| **before >= percent) {
            item.wrong(format!("{percent} comes after {before}; write them ascending, each once"));
            return None;
        }
        all.push(percent);
    }
    Some(Located { value: all, place: value.place })
}

/// Reads a class.
pub(super) fn read_class(section: &Section<'_>) -> Option<ClassDraft> {
    let name = section.require("name", "\"business\"").and_then(|value| read_name(&value));
    let listed = section.require("subscribers", "[\"10.1.0.0/16\"]").and_then(|value| {
        let entries = value.items("an array of prefixes")?;
        if entries.is_empty() {
            value.wrong("names nobody; write inside prefixes such as [\"10.1.0.0/16\"]");
        }
        let prefix = |entry: &Value<'_>| entry.parsed("a prefix", values::prefix);
        Some(entries.iter().filter_map(prefix).collect::<Vec<_>>())
    });
    let limits = section.section("limits", "class.limits");
    let total = section.section("total", "class.total");
    if section.get("limits").is_none() && section.get("total").is_none() {
        let message = "says nothing of its subscribers; write limits = { ... } or total = { ... }";
        section.report.missing(&section.place, message);
    }
    let quota = limits.section("ports_per_subscriber", "class.limits.ports_per_subscriber");
    Some(ClassDraft {
        place: section.place.clone(),
        name: name?,
        subscribers: listed?,
        limits: read_class_limits(&limits, &quota),
        quota_place: quota.place,
        total: read_total(&total),
        realm: realms::read_whose(section).ok()?,
    })
}

fn read_class_limits(limits: &Section<'_>, quota: &Section<'_>) -> ClassLimits {
    let of_mapping = bounded(limits, "sessions_per_mapping", 1, u64::from(u16::MAX));
    ClassLimits {
        tcp_ports: bounded(quota, "tcp", 1, ALL),
        udp_ports: bounded(quota, "udp", 1, ALL),
        icmp_ports: bounded(quota, "icmp", 1, ALL),
        sessions_per_subscriber: bounded(limits, "sessions_per_subscriber", 1, ALL),
        sessions_per_mapping: of_mapping.and_then(|number| u16::try_from(number).ok()),
        new_mappings_per_second: bounded(limits, "new_mappings_per_second", 1, MOST_A_SECOND),
        thresholds: read_thresholds(limits).map(|thresholds| thresholds.value),
    }
}

fn read_total(section: &Section<'_>) -> TotalDraft {
    let ports = section.section("ports", "class.total.ports");
    let mut numbers = Vec::new();
    let mut number = |section: &Section<'_>, what, key, most| {
        let value = bounded(section, key, 1, most)?;
        let place = section.get(key)?.place;
        numbers.push((what, Located { value, place }));
        Some(value)
    };
    let mut total = Totals {
        tcp_ports: number(&ports, "TCP", "tcp", ALL),
        udp_ports: number(&ports, "UDP", "udp", ALL),
        icmp_ports: number(&ports, ICMP, "icmp", ALL),
        sessions: number(section, "sessions", "sessions", ALL),
        new_mappings_per_second: number(section, "rate", "new_mappings_per_second", MOST_A_SECOND),
        thresholds: Vec::new(),
    };
    let thresholds = read_thresholds(section);
    let place = thresholds.as_ref().map(|thresholds| thresholds.place.clone());
    total.thresholds = thresholds.map(|thresholds| thresholds.value).unwrap_or_default();
    TotalDraft { total, numbers, thresholds: place }
}

/// Reads a timeout by port.
pub(super) fn read_timeout(section: &Section<'_>) -> Option<TimeoutDraft> {
    let protocols =
        [("tcp", Ok(protocol::TCP)), ("udp", Ok(protocol::UDP)), ("dccp", Ok(protocol::DCCP))];
    let protocol = section.require("protocol", "\"udp\"").and_then(|value| value.word(&protocols));
    let port = section.require("port", "53").and_then(|value| match value.is_integer() {
        true => {
            let port = value.integer(1..=65_535)? as u16;
            Some(Located { value: (port, port), place: value.place })
        }
        false => value.parsed("a port, or ports such as \"5000-5010\"", values::ports),
    });
    let idle_value = section.require("idle", "\"10s\"");
    let idle = idle_value.as_ref().and_then(|value| read_duration(value, &IDLE));
    let (protocol, port, idle) = (protocol?, port?, idle?);
    let (least, source) = match protocol {
        //= rfc4787#REQ-5a
        17 if port.value.1 < 1024 => (Duration::ZERO, ""),
        17 => (Duration::from_secs(120), "RFC 4787 REQ-5 asks for but of ports below 1024"),
        _ => (Duration::from_secs(7440), "RFC 5382 REQ-5 asks for"),
    };
    if let Some(value) = idle_value.filter(|_| idle < least) {
        let (shown, least) = (show_duration(idle), show_duration(least));
        let message = format!("{shown} is below the {least} that {source}");
        section.report.unwise(&value.place, message);
    }
    let timeout = PortTimeout { protocol, ports: port.value, idle };
    Some(TimeoutDraft { place: port.place, timeout })
}

/// Reads the timeouts of a rule.
pub(super) fn read_rule_timeouts(rule: &Section<'_>) -> Option<Box<Located<TimeoutSet>>> {
    let value = rule.get("timeouts")?;
    let section = rule.section("timeouts", "rule.timeouts");
    let time = |key| section.get(key).and_then(|value| read_duration(&value, &IDLE));
    let set = TimeoutSet {
        udp: time("udp"),
        tcp_established: time("tcp_established"),
        tcp_opening: time("tcp_opening"),
        tcp_closing: time("tcp_closing"),
        icmp: time("icmp"),
        other: time("other"),
    };
    if section.is_present() && section.is_empty() {
        value.wrong("has no timeout; write one such as { udp = \"30s\" }");
    }
    Some(Box::new(Located { value: set, place: value.place }))
}

// ---- conversion for the engine ----

impl Draft {
    /// Converts the classes.
    pub(super) fn to_classes(&self) -> Vec<Class> {
        let names = self.realm_names();
        let class = |class: &ClassDraft| Class {
            name: class.name.value.clone(),
            subscribers: class.subscribers.iter().map(|prefix| prefix.value).collect(),
            realm: class.realm.as_ref().and_then(|realm| names.get(&realm.value)),
            limits: class.limits.clone(),
            total: class.total.total.clone(),
        };
        self.classes.iter().map(class).collect()
    }

    /// Converts the timeouts by port.
    pub(super) fn to_port_timeouts(&self) -> Vec<PortTimeout> {
        self.timeouts.iter().map(|draft| draft.timeout).collect()
    }

    /// The distinct timeout sets of rules, in order of first use.
    pub(super) fn timeout_sets(&self) -> Vec<TimeoutSet> {
        let mut sets: Vec<TimeoutSet> = Vec::new();
        for set in self.rules.iter().filter_map(|rule| rule.timeouts.as_deref()) {
            if !sets.contains(&set.value) {
                sets.push(set.value.clone());
            }
        }
        sets
    }
}

/// The number of a rule's timeout set.
pub(super) fn set_of(rule: &RuleDraft, sets: &[TimeoutSet]) -> u8 {
    let own = rule.timeouts.as_deref();
    let place = own.and_then(|own| sets.iter().position(|set| *set == own.value));
    place.map_or(0, |place| place as u8 + 1)
}

// ---- checks ----

/// Reports parts that disagree.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    names_differ(draft, report);
    no_prefix_twice(draft, report);
    classes_have_subscribers(draft, report);
    for class in &draft.classes {
        quota_fits(class, draft, report);
        totals_fit(class, draft, report);
    }
    classes_are_few(draft, report);
    ports_have_one_timeout(draft, report);
    sets_are_few(draft, report);
}

fn names_differ(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for class in &draft.classes {
        let line = report.line(class.name.place.offset);
        if let Some(line) = seen.insert(&class.name.value, line) {
            let message =
                format!("\"{}\" is the name of the class in line {line}", class.name.value);
            report.wrong(&class.name.place, format!("{message}; give each class its own"));
        }
    }
}

fn no_prefix_twice(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<(Option<&str>, Prefix), (usize, &str)> = HashMap::new();
    for class in &draft.classes {
        let realm = class.realm.as_ref().map(|realm| &realm.value[..]);
        for prefix in &class.subscribers {
            let here = (report.line(prefix.place.offset), &class.name.value[..]);
            if let Some((line, name)) = seen.insert((realm, prefix.value), here) {
                let shown = show_prefix(prefix.value);
                let message = format!("{shown} is in class \"{name}\" in line {line} already");
                report.wrong(&prefix.place, format!("{message}; name each prefix once"));
            }
        }
    }
}

/// Warns of a class prefix without subscribers. With a snat rule other hosts may be translated.
fn classes_have_subscribers(draft: &Draft, report: &Report<'_>) {
    if draft.rules.iter().any(|rule| rule.action.is_snat()) {
        return;
    }
    let names = draft.realm_names();
    for class in &draft.classes {
        // An unknown realm is reported elsewhere.
        let realms = match &class.realm {
            Some(realm) => names.get(&realm.value).into_iter().collect(),
            None => (0..=draft.realms.len() as u16).collect::<Vec<_>>(),
        };
        let whose = match class.realm.as_ref().map(|realm| &realm.value[..]) {
            None | Some(realms::DEFAULT) => "in nat.subscribers".to_owned(),
            Some(realm) => format!("a subscriber of realm {realm:?}"),
        };
        for prefix in &class.subscribers {
            let mut all = realms.iter().flat_map(|realm| draft.subscribers_of(*realm));
            if !realms.is_empty() && !all.any(|one| overlaps_prefix(one.value, prefix.value)) {
                let shown = show_prefix(prefix.value);
                let message = format!("nobody in {shown} is {whose}");
                report.unwise(&prefix.place, format!("{message}, so the class has nobody there"));
            }
        }
    }
}

/// Warns of a class quota that no subscriber can use up.
fn quota_fits(class: &ClassDraft, draft: &Draft, report: &Report<'_>) {
    if draft.config.pooling != Pooling::Paired {
        return;
    }
    let limits = &class.limits;
    for pool in &draft.pools {
        let (first, last) = pool.ports.value;
        let ports = u32::from(last - first) + 1;
        for (protocol, quota) in
            [("TCP", limits.tcp_ports), ("UDP", limits.udp_ports), (ICMP, limits.icmp_ports)]
        {
            let Some(quota) = quota.filter(|quota| *quota > ports) else { continue };
            let name = &pool.name.value;
            let message = format!("the {protocol} quota of {quota} is more than the {ports} ports");
            let why = "which is all that a subscriber gets under paired pooling";
            let message = format!("{message} of an address of pool \"{name}\", {why}");
            report.unwise(&class.quota_place, message);
        }
    }
}

/// Warns of totals that cannot be reached, or that one subscriber can use up.
fn totals_fit(class: &ClassDraft, draft: &Draft, report: &Report<'_>) {
    let (own, common) = (&class.limits, &draft.config.limits);
    let ports = |pool: &super::draft::PoolDraft| {
        let (first, last) = pool.ports.value;
        let addresses: u64 = pool.ranges.iter().map(|range| range.value.count() as u64).sum();
        addresses * (u64::from(last - first) + 1)
    };
    let there_are: u64 = draft.pools.iter().map(ports).sum();
    let each = |what| match what {
        "TCP" => Some(own.tcp_ports.unwrap_or(common.tcp_ports)),
        "UDP" => Some(own.udp_ports.unwrap_or(common.udp_ports)),
        ICMP => Some(own.icmp_ports.unwrap_or(common.icmp_ports)),
        "sessions" => own.sessions_per_subscriber.or(common.sessions_per_subscriber),
        _ => Some(own.new_mappings_per_second.unwrap_or(common.new_mappings_per_second)),
    };
    for (what, total) in &class.total.numbers {
        let (all, of_ports) = (total.value, matches!(*what, "TCP" | "UDP" | ICMP));
        if of_ports && u64::from(all) > there_are {
            let message = format!("{all} {what} ports are more than the {there_are}");
            report.unwise(&total.place, format!("{message} that all pools have"));
        }
        if let Some(each) = each(what).filter(|each| *each > all) {
            let name = match *what {
                "sessions" => "sessions",
                "rate" => "new mappings a second",
                _ => "ports",
            };
            let message = format!("{all} {name} for all are fewer than the {each}");
            let why = "so that one alone can use them up";
            report.unwise(&total.place, format!("{message} that one may have, {why}"));
        }
    }
    if let Some(place) = class.total.thresholds.as_ref().filter(|_| class.total.numbers.is_empty())
    {
        report.wrong(place, "has no effect: the total has no limit; write one, or leave this out");
    }
}

/// Reports the first class that exceeds the limit.
fn classes_are_few(draft: &Draft, report: &Report<'_>) {
    if let Some(class) = draft.classes.get(Class::MOST) {
        let message = format!("is one class more than the {} that are possible", Class::MOST);
        report.wrong(&class.place, message);
    }
    if let Some(timeout) = draft.timeouts.get(PortTimeout::MOST) {
        let most = PortTimeout::MOST;
        report.wrong(&timeout.place, format!("is one more than the {most} that are possible"));
    }
}

/// Reports the later of two timeouts for one port.
fn ports_have_one_timeout(draft: &Draft, report: &Report<'_>) {
    for (number, later) in draft.timeouts.iter().enumerate().take(PortTimeout::MOST) {
        let PortTimeout { protocol, ports: (first, last), .. } = later.timeout;
        let clash = draft.timeouts[..number].iter().find(|earlier| {
            let its = earlier.timeout.ports;
            earlier.timeout.protocol == protocol && its.0 <= last && first <= its.1
        });
        if let Some(earlier) = clash {
            let port = first.max(earlier.timeout.ports.0);
            let line = report.line(earlier.place.offset);
            let message = format!("port {port} has a timeout in line {line} already");
            report.wrong(&later.place, format!("{message}; give each port one"));
        }
    }
}

/// Reports the first rule that exceeds the limit of distinct sets. Warns at the first rule of each
/// unwise set.
fn sets_are_few(draft: &Draft, report: &Report<'_>) {
    let mut sets: Vec<&TimeoutSet> = Vec::new();
    for set in draft.rules.iter().filter_map(|rule| rule.timeouts.as_deref()) {
        if sets.contains(&&set.value) {
            continue;
        }
        if sets.len() == TimeoutSet::MOST {
            let most = TimeoutSet::MOST;
            let message = format!("is set {} of different timeouts", most + 1);
            let remedy = "let rules have the same ones";
            report.wrong(&set.place, format!("{message}; at most {most} are possible, {remedy}"));
            return;
        }
        sets.push(&set.value);
        set_is_wise(set, report);
    }
}

fn set_is_wise(set: &Located<TimeoutSet>, report: &Report<'_>) {
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let TimeoutSet { udp, tcp_established, tcp_opening, tcp_closing, icmp, .. } = set.value;
    for (key, time, least, source) in [
        ("udp", udp, minutes(2), "RFC 4787 REQ-5"),
        ("tcp_established", tcp_established, minutes(124), "RFC 5382 REQ-5"),
        ("tcp_opening", tcp_opening, minutes(4), "RFC 7857 section 2.1"),
        ("tcp_closing", tcp_closing, minutes(4), "RFC 7857 section 2.1"),
        ("icmp", icmp, minutes(1), "RFC 5508 REQ-2"),
    ] {
        if let Some(time) = time.filter(|time| *time < least) {
            let place = Place { key: format!("{}.{key}", set.place.key), ..set.place.clone() };
            let (shown, least) = (show_duration(time), show_duration(least));
            let message = format!("{shown} is below the {least} that {source} asks for");
            report.unwise(&place, message);
        }
    }
}
