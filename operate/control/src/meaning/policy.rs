//! The meaning of classes, thresholds, and timeouts by port and by rule, as text and as data.

use super::PerProtocol;
use super::text::{grouped, list, plural};
use crate::config::{DEFAULT_REALM, show_duration, show_prefix};
use natgate_engine::{Class, Config, PortTimeout, Prefix, TimeoutSet};
use natgate_gateway::RuleAlgs;
use serde::Serialize;
use std::fmt::{self, Formatter};

/// Most classes, and timeouts by port, that are listed.
const MOST: usize = 20;

/// The meaning of one class of subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassMeaning {
    /// Name of the class.
    pub name: String,
    /// Realm of the subscribers; `None`: all realms.
    pub realm: Option<String>,
    /// Prefixes of the subscribers.
    pub subscribers: Vec<String>,
    /// Number of addresses in the prefixes.
    pub addresses: u64,
    /// Limits of each subscriber: the limits of the class, else the common ones.
    pub each: Allowance,
    /// Most sessions of a mapping.
    pub sessions_per_mapping: u16,
    /// Limits of all subscribers of the class together.
    pub together: Totals,
}

/// Limits of one subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// Mappings.
    pub mappings: PerProtocol,
    /// Sessions; `None`: no limit.
    pub sessions: Option<u32>,
    /// New mappings a second.
    pub new_mappings_per_second: u32,
    /// Percentages of these limits that cause an event.
    pub thresholds: Vec<u8>,
}

/// Limits of all subscribers of a class together; `None`: no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// TCP mappings.
    pub tcp: Option<u32>,
    /// UDP mappings.
    pub udp: Option<u32>,
    /// All other mappings.
    pub icmp: Option<u32>,
    /// Sessions.
    pub sessions: Option<u32>,
    /// New mappings a second.
    pub new_mappings_per_second: Option<u32>,
    /// Percentages of these limits that cause an event.
    pub thresholds: Vec<u8>,
}

impl ClassMeaning {
    pub(super) fn new(config: &Config, class: &Class) -> Self {
        let Class { name, subscribers, realm, limits, total } = class;
        let common = &config.limits;
        let size = |prefix: &Prefix| u64::from(prefix.last() - prefix.first()) + 1;
        let mappings = [
            (limits.tcp_ports, common.tcp_ports),
            (limits.udp_ports, common.udp_ports),
            (limits.icmp_ports, common.icmp_ports),
        ];
        let [tcp, udp, icmp] = mappings.map(|(own, common)| own.unwrap_or(common).into());
        let name_of = |realm: u16| match usize::from(realm).checked_sub(1) {
            Some(place) => config.realms[place].name.clone(),
            None => DEFAULT_REALM.into(),
        };
        Self {
            name: name.clone(),
            realm: realm.filter(|_| !config.realms.is_empty()).map(name_of),
            subscribers: subscribers.iter().map(|prefix| show_prefix(*prefix)).collect(),
            addresses: subscribers.iter().map(size).sum(),
            each: Allowance {
                mappings: PerProtocol { tcp, udp, icmp },
                sessions: limits.sessions_per_subscriber.or(common.sessions_per_subscriber),
                new_mappings_per_second: limits
                    .new_mappings_per_second
                    .unwrap_or(common.new_mappings_per_second),
                thresholds: limits.thresholds.as_ref().unwrap_or(&common.thresholds).clone(),
            },
            sessions_per_mapping: limits
                .sessions_per_mapping
                .unwrap_or(common.sessions_per_mapping),
            together: Totals {
                tcp: total.tcp_ports,
                udp: total.udp_ports,
                icmp: total.icmp_ports,
                sessions: total.sessions,
                new_mappings_per_second: total.new_mappings_per_second,
                thresholds: total.thresholds.clone(),
            },
        }
    }

    fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, subscribers, each, together, .. } = self;
        let addresses = plural(self.addresses, "address", "addresses");
        let prefixes: Vec<&str> = subscribers.iter().map(String::as_str).collect();
        let prefixes = list(&prefixes, str::to_owned);
        let whose = self.realm.as_ref().map_or(String::new(), |realm| format!(" of {realm}"));
        writeln!(f, "  class {name}: {addresses}, {prefixes}{whose}")?;
        let PerProtocol { tcp, udp, icmp } = each.mappings;
        let [tcp, udp, icmp] = [tcp, udp, icmp].map(grouped);
        writeln!(f, "    a subscriber: {tcp} TCP, {udp} UDP and {icmp} ICMP mappings")?;
        let rate = grouped(each.new_mappings_per_second.into());
        writeln!(f, "    a subscriber: {rate} new mappings a second")?;
        sessions_of("    a subscriber", each.sessions, f)?;
        writeln!(
            f,
            "    a mapping: {}",
            plural(self.sessions_per_mapping.into(), "session", "sessions")
        )?;
        thresholds("    a subscriber", &each.thresholds, f)?;
        let all = [
            (together.tcp, "TCP mappings"),
            (together.udp, "UDP mappings"),
            (together.icmp, "ICMP mappings"),
            (together.sessions, "sessions"),
            (together.new_mappings_per_second, "new mappings a second"),
        ];
        let said = all.iter().filter_map(|(limit, what)| Some((limit.as_ref()?, what)));
        let said: Vec<String> =
            said.map(|(limit, what)| format!("{} {what}", grouped(u64::from(*limit)))).collect();
        if !said.is_empty() {
            writeln!(f, "    together: {}", said.join(", "))?;
        }
        thresholds("    together", &together.thresholds, f)
    }
}

/// Writes the lines of all classes.
pub(super) fn classes(classes: &[ClassMeaning], f: &mut Formatter<'_>) -> fmt::Result {
    for class in classes.iter().take(MOST) {
        class.text(f)?;
    }
    match classes.len().saturating_sub(MOST) {
        0 => Ok(()),
        more => writeln!(f, "  and {} more", plural(more as u64, "class", "classes")),
    }
}

/// Writes the limit of sessions, if any.
pub(super) fn sessions_of(who: &str, limit: Option<u32>, f: &mut Formatter<'_>) -> fmt::Result {
    match limit {
        Some(limit) => writeln!(f, "{who}: {}", plural(limit.into(), "session", "sessions")),
        None => Ok(()),
    }
}

/// Writes the thresholds, if any.
pub(super) fn thresholds(who: &str, percents: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    if percents.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = percents.iter().map(|percent| format!("{percent} %")).collect();
    let damping = natgate_engine::Thresholds::DAMPING;
    let shown = shown.join(", ");
    writeln!(f, "{who}: an event at {shown}, and again after {damping} points less")
}

/// Writes a line for each timeout by port.
pub(super) fn port_timeouts(config: &Config, f: &mut Formatter<'_>) -> fmt::Result {
    for PortTimeout { protocol, ports: (first, last), idle } in
        config.port_timeouts.iter().take(MOST)
    {
        let protocol = match protocol {
            6 => "TCP established",
            17 => "UDP",
            _ => "DCCP established",
        };
        let idle = show_duration(*idle);
        match first == last {
            true => writeln!(f, "  {protocol} to port {first} {idle}")?,
            false => writeln!(f, "  {protocol} to ports {first}-{last} {idle}")?,
        }
    }
    match config.port_timeouts.len().saturating_sub(MOST) {
        0 => Ok(()),
        more => writeln!(f, "  and {} more of ports", plural(more as u64, "timeout", "timeouts")),
    }
}

/// Formats the timeouts of a rule.
pub(super) fn rule_timeouts(config: &Config, number: u8) -> String {
    let place = usize::from(number).checked_sub(1);
    let Some(set) = place.and_then(|place| config.timeout_sets.get(place)) else {
        return String::new();
    };
    let TimeoutSet { udp, tcp_established, tcp_opening, tcp_closing, icmp, other } = set;
    let all = [
        (udp, "UDP"),
        (tcp_established, "TCP established"),
        (tcp_opening, "TCP opening"),
        (tcp_closing, "TCP closing"),
        (icmp, "ICMP"),
        (other, "other protocols"),
    ];
    let said = all.iter().filter_map(|(time, what)| Some((time.as_ref()?, what)));
    said.map(|(time, what)| format!(", {what} {}", show_duration(*time))).collect()
}

/// The application-level gateways of a rule's mark, behind a comma.
pub(super) fn rule_algs(mark: u16) -> String {
    let Some(algs) = RuleAlgs::of_mark(mark) else { return String::new() };
    let names: Vec<_> = algs.names().collect();
    match names.is_empty() {
        true => ", no application-level gateway".to_owned(),
        false => format!(", application-level gateways: {}", names.join(", ")),
    }
}
