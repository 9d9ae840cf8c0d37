//! What classes, thresholds, and timeouts by port and by rule mean, in words.

use super::text::{grouped, list, plural};
use crate::config::{DEFAULT_REALM, show_duration, show_prefix};
use natgate_engine::{Class, Config, PortTimeout, Prefix, TimeoutSet};
use std::fmt::{self, Formatter};

/// Classes, and timeouts of ports, that are said one by one.
const MOST: usize = 20;

/// A line for each thing that holds for some subscribers only.
pub(super) fn classes(config: &Config, f: &mut Formatter<'_>) -> fmt::Result {
    for class in config.classes.iter().take(MOST) {
        self::class(config, class, f)?;
    }
    match config.classes.len().saturating_sub(MOST) {
        0 => Ok(()),
        more => writeln!(f, "  and {} more", plural(more as u64, "class", "classes")),
    }
}

fn class(config: &Config, class: &Class, f: &mut Formatter<'_>) -> fmt::Result {
    let Class { name, subscribers, realm, limits, total } = class;
    let common = &config.limits;
    let size = |prefix: &Prefix| u64::from(prefix.last() - prefix.first()) + 1;
    let addresses = plural(subscribers.iter().map(size).sum(), "address", "addresses");
    let prefixes = list(subscribers, show_prefix);
    let whose = match realm.and_then(|realm| usize::from(realm).checked_sub(1)) {
        Some(place) => format!(" of {}", config.realms[place].name),
        None if realm.is_some() && !config.realms.is_empty() => format!(" of {DEFAULT_REALM}"),
        None => String::new(),
    };
    writeln!(f, "  class {name}: {addresses}, {prefixes}{whose}")?;
    let number = |own: Option<u32>, common: u32| grouped(own.unwrap_or(common).into());
    let (tcp, udp) =
        (number(limits.tcp_ports, common.tcp_ports), number(limits.udp_ports, common.udp_ports));
    let icmp = number(limits.icmp_ports, common.icmp_ports);
    writeln!(f, "    a subscriber: {tcp} TCP, {udp} UDP and {icmp} ICMP mappings")?;
    let rate = number(limits.new_mappings_per_second, common.new_mappings_per_second);
    writeln!(f, "    a subscriber: {rate} new mappings a second")?;
    let sessions = limits.sessions_per_subscriber.or(common.sessions_per_subscriber);
    sessions_of("    a subscriber", sessions, f)?;
    let of_mapping = limits.sessions_per_mapping.unwrap_or(common.sessions_per_mapping);
    writeln!(f, "    a mapping: {} sessions", grouped(of_mapping.into()))?;
    let own = limits.thresholds.as_ref().unwrap_or(&common.thresholds);
    thresholds("    a subscriber", own, f)?;
    let all = [
        (total.tcp_ports, "TCP mappings"),
        (total.udp_ports, "UDP mappings"),
        (total.icmp_ports, "ICMP mappings"),
        (total.sessions, "sessions"),
        (total.new_mappings_per_second, "new mappings a second"),
    ];
    let said = all.iter().filter_map(|(limit, what)| Some((limit.as_ref()?, what)));
    let said: Vec<String> =
        said.map(|(limit, what)| format!("{} {what}", grouped(u64::from(*limit)))).collect();
    if !said.is_empty() {
        writeln!(f, "    together: {}", said.join(", "))?;
    }
    thresholds("    together", &total.thresholds, f)
}

/// How many sessions somebody may have, if that is limited.
pub(super) fn sessions_of(who: &str, limit: Option<u32>, f: &mut Formatter<'_>) -> fmt::Result {
    match limit {
        Some(limit) => writeln!(f, "{who}: {} sessions", grouped(limit.into())),
        None => Ok(()),
    }
}

/// At what use of a limit there is an event.
pub(super) fn thresholds(who: &str, percents: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    if percents.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = percents.iter().map(|percent| format!("{percent} %")).collect();
    let damping = natgate_engine::Thresholds::DAMPING;
    let shown = shown.join(", ");
    writeln!(f, "{who}: an event at {shown}, and again after {damping} points less")
}

/// A line for each timeout of ports.
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

/// The timeouts of a rule, after what else it does.
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
