//! Reads `[[static]]`: mappings of whole addresses, ports and port ranges, in one direction or
//! both, and services with several servers.
//!
//! A faulty table is left out of the draft, so that the checks compare valid tables only.

use super::draft::{ServerDraft, StaticDraft, Targeted};
use super::health::read_health;
use super::problem::Located;
use super::reader::{Section, Value};
use super::realms;
use super::sections::is_usable;
use super::statics6;
use super::values::{self, Span};
use super::values6;
use natgate_engine::{Affinity, Begun, Server};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Reads a static mapping.
pub(super) fn read_static(section: &Section<'_>) -> Option<StaticDraft> {
    let protocols = [("tcp", Ok(TCP)), ("udp", Ok(UDP)), ("icmp", Ok(ICMP)), ("dccp", Ok(DCCP))];
    let protocol = section.get("protocol").map(|value| value.word(&protocols));
    let begun = read_direction(section);
    let target = read_target(section, begun.as_ref());
    let external =
        section.require("external", "\"203.0.113.1:80\"").and_then(|value| read_endpoint(&value));
    let (target, external) = (target?, external?);
    if !ports_agree(section, &target, &external) {
        return None;
    }
    let protocol = match protocol {
        Some(word) => Some(word?),
        None => None,
    };
    let begun = match begun {
        Some(begun) => begun.value?,
        None => Begun::Anywhere,
    };
    let realm = realms::read_whose(section).ok()?;
    Some(StaticDraft { place: section.place.clone(), realm, target, external, protocol, begun })
}

fn read_direction(section: &Section<'_>) -> Option<Located<Option<Begun>>> {
    let words = [
        ("both", Ok(Begun::Anywhere)),
        ("inbound", Ok(Begun::Outside)),
        ("outbound", Ok(Begun::Inside)),
    ];
    let value = section.get("direction")?;
    Some(Located { value: value.word(&words), place: value.place })
}

/// Reads the target of the mapping: one internal endpoint, or several servers.
fn read_target(section: &Section<'_>, begun: Option<&Located<Option<Begun>>>) -> Option<Targeted> {
    let affinity = section.get("affinity").map(|value| {
        let words = [("address", Ok(Affinity::Address)), ("none", Ok(Affinity::None))];
        (value.word(&words), value)
    });
    let Some(servers) = section.get("servers") else {
        let of_servers = affinity.map(|(_, value)| value).or_else(|| section.get("health"));
        if let Some(value) = of_servers {
            value.wrong("has no effect here; only a static mapping with servers has it");
        }
        let host = read_host(&section.require("internal", "\"10.0.0.80:8080\"")?);
        return read_softwire(section, host?);
    };
    if let Some(softwire) = section.get("softwire") {
        softwire.wrong("stands beside servers; servers are hosts without tunnels");
        return None;
    }
    if let Some(internal) = section.get("internal") {
        internal.wrong("stands beside servers; name the host there");
        return None;
    }
    if let Some(Located { value: Some(Begun::Anywhere | Begun::Inside), place }) = begun {
        let why = "what a server begins is translated as any other host's";
        section.report.wrong(place, format!("servers are \"inbound\": {why}; leave it out"));
    }
    let affinity = match affinity {
        Some((affinity, _)) => affinity?,
        None => Affinity::default(),
    };
    let (count, most) = (servers.items("an array of tables")?.len(), Server::MOST);
    if count == 0 || count > most {
        servers.wrong(format!("has {count} servers; write 1 to {most} such as {EXAMPLE}"));
        return None;
    }
    let tables = section.tables("servers", "static.servers");
    let members: Vec<ServerDraft> = tables.iter().filter_map(read_server).collect();
    let health = read_health(section).ok()?;
    if members.len() < count {
        return None;
    }
    Some(Targeted::Servers { place: servers.place, members, affinity, health })
}

/// Reads the internal endpoint of a host of either family.
fn read_host(value: &Value<'_>) -> Option<Targeted> {
    let parse = |text: &str| -> Result<Host, String> {
        match statics6::is_ipv6(text) {
            true => statics6::endpoint_range(text).map(Host::Six),
            false => values::endpoint_range(text).map(Host::Four),
        }
    };
    let Located { value: host, place } = value.parsed(ENDPOINT, parse)?;
    match host {
        Host::Four(host) => {
            is_usable(value, host.0).then_some(Targeted::Host(Located { value: host, place }))
        }
        Host::Six(host) => Some(Targeted::Host6(Located { value: host, place })),
    }
}

/// Reads the B4 that a host is behind, if there is one.
fn read_softwire(section: &Section<'_>, host: Targeted) -> Option<Targeted> {
    let Some(value) = section.get("softwire") else { return Some(host) };
    let b4 = value.parsed("the IPv6 address of a B4", values6::routed_address6)?;
    match host {
        Targeted::Host(internal) => Some(Targeted::Tunneled { b4, internal }),
        _ => {
            value.wrong("stands beside a host of IPv6; hosts behind a B4 have IPv4 addresses");
            None
        }
    }
}

/// An endpoint of one of the two families.
enum Host {
    Four((Ipv4Addr, Option<Span>)),
    Six((Ipv6Addr, Option<Span>)),
}

const ENDPOINT: &str = "an address, with or without a port or a range of ports";

const EXAMPLE: &str = "{ internal = \"10.0.0.80:8080\" }";

fn read_server(section: &Section<'_>) -> Option<ServerDraft> {
    let endpoint = |value: Value<'_>| value.parsed("an address with a port", values::endpoint);
    let value = section.require("internal", "\"10.0.0.80:8080\"")?;
    let Located { value: (address, port), place } = endpoint(value.clone())?;
    let Some(port) = port else {
        value.wrong(format!("{address} has no port; write one such as \"{address}:8080\""));
        return None;
    };
    if !is_usable(&value, address) {
        return None;
    }
    let weight = match section.get("weight") {
        Some(value) => value.integer(0..=u64::from(u16::MAX))? as u16,
        None => 1,
    };
    let draining = match section.get("drain") {
        Some(value) => value.boolean()?,
        None => false,
    };
    let backup = match section.get("backup") {
        Some(value) => value.boolean()?,
        None => false,
    };
    let internal = Located { value: (address, port), place };
    Some(ServerDraft { internal, weight, draining, backup })
}

fn read_endpoint(value: &Value<'_>) -> Option<Located<(Ipv4Addr, Option<Span>)>> {
    let endpoint = value.parsed(ENDPOINT, values::endpoint_range)?;
    is_usable(value, endpoint.value.0).then_some(endpoint)
}

/// Checks that both ends have the same number of ports.
fn ports_agree(
    section: &Section<'_>,
    target: &Targeted,
    external: &Located<(Ipv4Addr, Option<Span>)>,
) -> bool {
    let wrong = |message: String| {
        section.report.wrong(&external.place, message);
        false
    };
    let outer = external.value.1;
    match target {
        Targeted::Servers { .. } => match outer {
            Some(span) if span.count() == 1 => true,
            Some(span) => {
                let count = span.count();
                wrong(format!("has {count} ports; servers share one, so write one table for each"))
            }
            None => wrong("has no port; servers share one, so write \"ADDRESS:PORT\"".to_owned()),
        },
        Targeted::Host(Located { value: (_, inner), .. }) => spans_agree((*inner, outer), wrong),
        Targeted::Host6(Located { value: (_, inner), .. }) => spans_agree((*inner, outer), wrong),
        Targeted::Tunneled { internal, .. } => spans_agree((internal.value.1, outer), wrong),
    }
}

/// Checks that the ports of one host and its external ports are as many.
fn spans_agree(
    (inner, outer): (Option<Span>, Option<Span>),
    wrong: impl Fn(String) -> bool,
) -> bool {
    match (inner, outer) {
        (None, None) => true,
        (Some(inner), Some(outer)) if inner.count() == outer.count() => true,
        (Some(inner), Some(outer)) => {
            let (inner_count, outer_count) = (inner.count(), outer.count());
            let last = u32::from(outer.first) + inner_count - 1;
            let remedy = match last {
                0..=65_535 => format!("ports {}-{last} would fit", outer.first),
                _ => "give both equally many".to_owned(),
            };
            let (inner, outer) = (inner.show(), outer.show());
            wrong(format!(
                "{outer} are {outer_count} ports, internal {inner} are {inner_count}; {remedy}"
            ))
        }
        _ => {
            let message = "one endpoint has a port and the other has none";
            wrong(format!("{message}; give both a port, or neither"))
        }
    }
}
