//! Jool's JSON: the file of an atomic configuration (`jool file handle`), NAT64 or SIIT.
//!
//! natgate translates IPv4 to IPv4. From a NAT64 configuration it can take the external addresses
//! with their ports and the timeouts. Hosts with IPv6 behind the translator need another translator
//! there.

use crate::ImportError;
use crate::address::{Ports, Range};
use crate::plan::{Origin, Plan};
use serde_json::Value;
use std::collections::BTreeMap;

/// Reason why a line about IPv6 has no equivalent.
const NO_IPV6: &str = "is about IPv6, and natgate translates IPv4 to IPv4";

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let root: Value = serde_json::from_str(text).map_err(|error| ImportError::Malformed {
        line: error.line(),
        message: format!("is no JSON ({error})"),
    })?;
    let Some(object) = root.as_object() else {
        let message = "is no object, as Jool's file has one".to_owned();
        return Err(ImportError::Malformed { line: 1, message });
    };
    let finder = Lines { text };
    let known = ["pool4", "bib", "global", "eamt", "pool6", "denylist4", "blacklist4"];
    if !known.iter().any(|key| object.contains_key(*key)) {
        return Err(ImportError::Nothing("Jool's file has pool4, bib, eamt or global"));
    }
    for (key, value) in object {
        let origin = finder.of(key, value);
        match &key[..] {
            "instance" | "framework" | "comment" => {}
            "pool4" => pools(value, &finder, plan),
            "bib" => entries(value, &finder, plan, |_| {
                "maps an IPv6 endpoint inside: write [[static]] with the host's IPv4 address, if \
                 it has one"
                    .into()
            }),
            "global" => global(value, &finder, plan),
            "eamt" => entries(value, &finder, plan, |_| {
                "maps IPv4 addresses to IPv6 ones without state (SIIT), and natgate translates \
                 IPv4 to IPv4"
                    .into()
            }),
            "denylist4" | "blacklist4" => entries(value, &finder, plan, |_| {
                "keeps addresses from SIIT; natgate translates what nat.subscribers names and \
                 nothing else"
                    .into()
            }),
            "pool6" => plan.without(&origin, NO_IPV6),
            other => plan.without(&origin, format!("`{other}` has no counterpart in natgate")),
        }
    }
    Ok(())
}

/// Finds lines in the text: values of JSON do not know their lines.
struct Lines<'a> {
    text: &'a str,
}

impl Lines<'_> {
    /// The first line with this key.
    fn of(&self, key: &str, value: &Value) -> Origin {
        let wanted = format!("\"{key}\"");
        let line = self.text.lines().position(|line| line.contains(&wanted));
        Origin::new(line.map_or(0, |line| line + 1), &format!("{wanted}: {value}"))
    }

    /// The line with the entry's first address.
    fn of_entry(&self, entry: &Value) -> Origin {
        let words = entry.as_object().into_iter().flat_map(|entry| entry.values());
        let address = words.filter_map(Value::as_str).find(|word| word.contains(['.', ':']));
        let quoted = address.map(|address| format!("\"{address}\""));
        let line =
            quoted.and_then(|quoted| self.text.lines().position(|line| line.contains(&quoted)));
        Origin::new(line.map_or(0, |line| line + 1), &entry.to_string())
    }
}

fn entries(value: &Value, finder: &Lines<'_>, plan: &mut Plan, why: impl Fn(&Value) -> String) {
    for entry in value.as_array().into_iter().flatten().take(crate::plan::MOST_ENTRIES) {
        plan.without(&finder.of_entry(entry), why(entry));
    }
}

/// Converts external addresses: there is an entry for each protocol, and for each range of ports.
fn pools(value: &Value, finder: &Lines<'_>, plan: &mut Plan) {
    let mut known: BTreeMap<Range, (Option<Ports>, Origin)> = BTreeMap::new();
    for entry in value.as_array().into_iter().flatten().take(crate::plan::MOST_ENTRIES) {
        let origin = finder.of_entry(entry);
        let Some(range) = entry["prefix"].as_str().and_then(Range::parse) else {
            plan.lost(&origin, "has no prefix of IPv4 addresses");
            continue;
        };
        if !range.is_usable() {
            plan.lost(&origin, format!("{range} are no addresses that hosts can have"));
            continue;
        }
        if entry["mark"].as_u64().is_some_and(|mark| mark != 0) {
            plan.differs(
                &origin,
                "is for marked packets only; natgate chooses pools by source or \
                 destination ([[rule]])",
            );
        }
        if !entry["max iterations"].is_null() {
            plan.without(&origin, "\"max iterations\" bounds a search that natgate does not make");
        }
        let ports = match entry["port range"].as_str() {
            // ICMP identifiers begin at 0, which natgate does not assign.
            Some(text) => match Ports::parse(
                &text.replacen("0-", "1-", usize::from(text.starts_with("0-"))),
                '-',
            ) {
                Some(ports) => Some(ports),
                None => {
                    plan.without(&origin, format!("{text:?} are no ports"));
                    continue;
                }
            },
            // The default of Jool.
            None => Some(Ports { first: 1024, last: 65_535 }),
        };
        match known.get_mut(&range) {
            Some((one, _)) if *one == ports => {}
            Some((one, _)) => {
                let first = one.map(|ports| ports.to_string()).unwrap_or_default();
                let message = format!(
                    "a pool's ports serve all protocols: {first} stays, of the line that came first"
                );
                plan.differs(&origin, message);
            }
            None => drop(known.insert(range, (ports, origin))),
        }
    }
    let mut by_ports: BTreeMap<Option<Ports>, (Vec<Range>, Origin)> = BTreeMap::new();
    for (range, (ports, origin)) in known {
        by_ports.entry(ports).or_insert_with(|| (Vec::new(), origin)).0.push(range);
    }
    for (ports, (ranges, origin)) in by_ports {
        plan.pool(&ranges, ports, &origin);
    }
}

/// Converts the keys that natgate has, too.
fn global(value: &Value, finder: &Lines<'_>, plan: &mut Plan) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let origin = finder.of(key, value);
        let timeout = match &key[..] {
            "udp-timeout" => Some("udp"),
            "icmp-timeout" => Some("icmp"),
            "tcp-est-timeout" => Some("tcp_established"),
            "tcp-trans-timeout" => Some("tcp_closing"),
            _ => None,
        };
        if let Some(name) = timeout {
            match seconds(value) {
                Some(time) if (1..=30 * 86_400).contains(&time) => {
                    plan.timeouts.insert(name, format!("\"{time}s\""));
                    if name == "tcp_closing" {
                        plan.timeouts.insert("tcp_opening", format!("\"{time}s\""));
                    }
                }
                _ => plan.without(&origin, "is no time between a second and 30 days"),
            }
            continue;
        }
        match (&key[..], value) {
            ("address-dependent-filtering", Value::Bool(true)) => {
                plan.nat.insert("filtering", "\"address-dependent\"".into());
            }
            (
                "address-dependent-filtering" | "drop-externally-initiated-tcp" | "comment",
                Value::Bool(false),
            ) => {}
            ("comment", _) => {}
            ("manually-enabled", Value::Bool(true)) => {}
            ("drop-externally-initiated-tcp", Value::Bool(true)) => {
                plan.nat.insert("filtering_tcp", "\"address-and-port-dependent\"".into());
            }
            (
                "maximum-simultaneous-opens"
                | "ss-max-queued-packets"
                | "f-args"
                | "handle-rst-during-fin-rcv",
                _,
            ) => {
                plan.without(&origin, "is settled in natgate (SPECIFICATION.md says how)");
            }
            (key, _)
                if key.contains('6') || key.contains("eam") || key.contains("traffic-class") =>
            {
                plan.without(&origin, NO_IPV6);
            }
            (key, _) => plan.without(&origin, format!("`{key}` has no counterpart in natgate")),
        }
    }
}

/// Reads seconds, or `H:MM:SS` with a fraction.
fn seconds(value: &Value) -> Option<u64> {
    if let Some(seconds) = value.as_u64() {
        return Some(seconds);
    }
    let text = value.as_str()?.split('.').next()?;
    text.split(':')
        .try_fold(0_u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))
}
