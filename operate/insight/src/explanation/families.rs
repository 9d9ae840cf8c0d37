//! Steps of an explanation about IPv6 and translation between the families.

use super::softwires::{of_softwires, tunnel_ends};
use super::{Names, both, said, side};
use natgate_engine::{Endpoint, Step, Verdict};
use natgate_gateway::Link;
use natgate_gateway::ipv6::{
    Entry, FamilyBecomes, FamilyEnd, FamilyExplanation, FamilyStep, HostKind, HostName, Waits,
};
use natgate_gateway::router6::Onward6;
use natgate_logs::protocol;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// Protocols of IPv6 that have no name as protocols of IPv4: IPv4 in a tunnel, and ICMPv6.
const IPV4: u8 = 4;
const ICMPV6: u8 = 58;

/// The sentence of a fate that IPv4 does not have.
pub(super) fn sentence(told: &FamilyExplanation) -> Option<String> {
    let waits = |step: &FamilyStep| matches!(step, FamilyStep::Waits(Waits::Outer));
    match told.verdict {
        Verdict::Reply(_) if told.becomes.is_none() => {
            Some("the gateway itself would take note of it".to_owned())
        }
        Verdict::Held if told.steps().iter().any(waits) => {
            Some("it would wait for the other fragments of the packet in the tunnel".to_owned())
        }
        _ => None,
    }
}

/// The ends of the packet that would leave.
pub(super) fn ends(becomes: &FamilyBecomes) -> Value {
    let FamilyBecomes { source, destination, tunnel, .. } = becomes;
    let mut ends = json!({ "source": end(*source), "destination": end(*destination) });
    if let Some(tunnel) = tunnel {
        ends["tunnel"] = tunnel_ends(*tunnel);
    }
    ends
}

fn end(FamilyEnd { address, port }: FamilyEnd) -> String {
    match (address, port) {
        (None, Some(port)) => format!("DRAWN:{port}"),
        (None, None) => "DRAWN".to_owned(),
        (Some(IpAddr::V6(address)), Some(port)) => format!("[{address}]:{port}"),
        (Some(address), Some(port)) => format!("{address}:{port}"),
        (Some(address), None) => address.to_string(),
    }
}

fn protocol_name(number: u8) -> String {
    match number {
        IPV4 => "ipv4".to_owned(),
        ICMPV6 => "icmpv6".to_owned(),
        _ => protocol(number),
    }
}

/// The next hop of a packet that leaves as IPv6.
pub(super) fn onward(link: Link, onward: Onward6) -> Value {
    let by = side(link.side);
    let Onward6::Hop { address, mac, state, mtu, passes } = onward else {
        let text = format!(
            "by the {by}: no route leads there, so it is dropped (no_route) and its sender gets \
             ICMPv6 1/0"
        );
        return json!({ "step": "route", "next_hop": null, "neighbor": null, "text": text });
    };
    let (mac, state) = (mac.map(|mac| mac.to_string()), state.map(|state| state.name()));
    let known = match (&mac, state) {
        (Some(mac), Some(state)) => format!("at {mac} ({state})"),
        _ => "with an unknown hardware address, which neighbor discovery would find".to_owned(),
    };
    let size = match passes {
        true => String::new(),
        false => format!("; the packet does not fit the link, which carries {mtu} (too_big)"),
    };
    json!({
        "step": "route",
        "next_hop": address.to_string(),
        "neighbor": mac,
        "state": state,
        "mtu": mtu,
        "fits": passes,
        "text": format!("by the {by}: next hop {address}, {known}{size}"),
    })
}

impl Names<'_> {
    /// The steps of a packet that the translator of both families takes.
    pub(super) fn family_steps(&self, told: &FamilyExplanation) -> Vec<Value> {
        let mut steps = Vec::new();
        let knows_sender = self.is_from_host();
        for step in told.steps() {
            if *step != FamilyStep::Engine {
                steps.push(self.family_step(step));
                continue;
            }
            let is_new = |step: &&Step| {
                let says_sender =
                    matches!(step, Step::Read { .. } | Step::Realm(_) | Step::Subscriber(_));
                !(knows_sender && says_sender)
            };
            let of_engine = told.engine.steps().iter().filter(is_new);
            steps.extend(of_engine.map(|step| self.step(step)));
        }
        steps
    }

    /// True if a host with a number has sent the packet: its steps stand before the engine's.
    pub(super) fn is_from_host(&self) -> bool {
        let is_read = |step: &FamilyStep| matches!(step, FamilyStep::Read { .. });
        self.families.is_some_and(|told| told.steps().iter().any(is_read))
    }

    /// True if hosts of a realm have numbers.
    pub(super) fn is_of_hosts(&self, realm: u16) -> bool {
        self.families.is_some_and(|told| told.realms.has(realm))
    }

    /// An internal endpoint of a host with a number, in a realm. Without a realm, the packet's.
    pub(super) fn host(&self, realm: Option<u16>, endpoint: Endpoint) -> String {
        let hosts = self.families.map(|told| &told.hosts[..]).unwrap_or_default();
        let is_its = |(of, number, _): &&(u16, Ipv4Addr, IpAddr)| {
            *number == endpoint.address && realm.is_none_or(|realm| realm == *of)
        };
        match hosts.iter().find(is_its) {
            Some((.., name)) => end(FamilyEnd { address: Some(*name), port: Some(endpoint.port) }),
            None => both(endpoint),
        }
    }

    fn family_step(&self, step: &FamilyStep) -> Value {
        match *step {
            FamilyStep::Read { .. } => read(step),
            FamilyStep::Local => {
                said("local", "it is addressed to the gateway itself, which answers only ping")
            }
            FamilyStep::Loops(source) => json!({
                "step": "loops",
                "source": source.to_string(),
                "text": format!(
                    "its source {source} is in a prefix of [nat64]: it could turn round for ever"
                ),
            }),
            FamilyStep::Nat64 { prefix, remote } => {
                let has = match remote {
                    Some(remote) => format!("; it embeds {remote}"),
                    None => "; no IPv4 address is in it".to_owned(),
                };
                json!({
                    "step": "nat64",
                    "prefix": prefix.to_string(),
                    "remote": remote.map(|remote| remote.to_string()),
                    "text": format!("prefix {prefix} of [nat64] has its destination{has}"),
                })
            }
            FamilyStep::Subscriber(kind, is) => subscriber(kind, is),
            FamilyStep::Inner(..) | FamilyStep::Sender { .. } => sender(step),
            FamilyStep::Receiver(host) => receiver(host),
            FamilyStep::Size { len, cut } => {
                let cut_to = cut.map_or(String::new(), |cut| {
                    format!(", which is too large: it is cut into fragments of at most {cut}")
                });
                let text = format!("it leaves with {len} bytes{cut_to}");
                json!({ "step": "size", "length": len, "cut": cut, "text": text })
            }
            FamilyStep::Answer { ipv6, kind, code } => {
                let icmp = if ipv6 { "ICMPv6" } else { "ICMP" };
                json!({
                    "step": "answer",
                    "icmp_type": kind,
                    "icmp_code": code,
                    "ipv6": ipv6,
                    "late": false,
                    "text": format!(
                        "its sender gets {icmp} {kind}/{code}, if the rate of errors permits it"
                    ),
                })
            }
            _ => of_tables(step),
        }
    }
}

fn subscriber(kind: HostKind, is: bool) -> Value {
    let (source, key) = match kind {
        HostKind::Dslite => ("the tunnel's end", "dslite.b4"),
        HostKind::Nat64 => ("its source", "nat64.subscribers"),
    };
    let text = match is {
        true => format!("{source} is a subscriber ({key})"),
        false => format!("{source} is no subscriber: {key} does not have it"),
    };
    json!({ "step": "subscriber", "subscriber": is, "text": text })
}

fn read(step: &FamilyStep) -> Value {
    let FamilyStep::Read { protocol, source, destination, hops, len, tunneled } = *step else {
        return Value::Null;
    };
    let (name, from, to) = (protocol_name(protocol), end(source), end(destination));
    let inner = if tunneled { "in it: " } else { "" };
    json!({
        "step": if tunneled { "inner" } else { "read" },
        "protocol": name,
        "source": from,
        "destination": to,
        "hops": hops,
        "length": len,
        "text": format!("{inner}{name} {from} > {to}, hop limit {hops}, {len} bytes"),
    })
}

/// Steps about the sender of a packet that the engine translates.
fn sender(step: &FamilyStep) -> Value {
    match *step {
        FamilyStep::Inner(inner, may_send) => {
            let text = match may_send {
                true => format!("hosts in tunnels may have the inner address {inner}"),
                false => format!(
                    "the inner address {inner} may not send: it is neither in nat.subscribers nor \
                     in 192.0.0.2 to 192.0.0.6, or it is 192.0.0.0, 192.0.0.1 or 192.0.0.7"
                ),
            };
            let inner = inner.to_string();
            json!({ "step": "inner_address", "address": inner, "permits": may_send, "text": text })
        }
        FamilyStep::Sender { host, inner, subscriber, is_new } => {
            let subscriber = match inner {
                Some(_) => subscriber.address.to_string(),
                None => subscriber.to_string(),
            };
            let name = inner.map_or(host.to_string(), |inner| inner.to_string());
            let known = match is_new {
                true => "which has no mapping yet",
                false => "which is known",
            };
            json!({
                "step": "host",
                "host": name,
                "subscriber": subscriber,
                "new": is_new,
                "text": format!("it is of host {name} of subscriber {subscriber}, {known}"),
            })
        }
        _ => Value::Null,
    }
}

fn receiver(host: HostName) -> Value {
    let subscriber = match host.len {
        128 => host.prefix.to_string(),
        len => format!("{}/{len}", host.prefix),
    };
    let name = host.address.map_or(subscriber.clone(), |name| name.to_canonical().to_string());
    json!({
        "step": "receiver",
        "host": name,
        "subscriber": subscriber,
        "text": format!("host {name} of subscriber {subscriber} gets it"),
    })
}

/// Steps about stateless tables and the router.
fn of_tables(step: &FamilyStep) -> Value {
    match *step {
        FamilyStep::Translated { from, to, by } => translated(from, to, by),
        FamilyStep::Untranslated(address) => json!({
            "step": "untranslated",
            "address": address.to_string(),
            "text": format!("no entry of the tables has {address}"),
        }),
        FamilyStep::Routed(forwarding) => {
            let text = match forwarding {
                true => "no table translates it: it is routed",
                false => "no table translates it, and ipv6.forwarding = false",
            };
            json!({ "step": "routed", "forwarding": forwarding, "text": text })
        }
        FamilyStep::Inward(destination) => json!({
            "step": "inward",
            "destination": destination.to_string(),
            "text": format!(
                "its destination {destination} is in a prefix of [nat64] or [siit], which only the \
                 inside may use"
            ),
        }),
        FamilyStep::Turns => said("turns", "its destination is inside: it turns round (hairpin)"),
        FamilyStep::Filter(permits) => {
            let result = if permits { "lets it pass" } else { "does not let it pass" };
            json!({
                "step": "filter",
                "filtering": "outbound-only",
                "admitted": permits,
                "text": format!("ipv6.filter = \"outbound-only\" {result}"),
            })
        }
        FamilyStep::Later => {
            said("fragment", "it is a fragment; only the first fragment of its datagram has ports")
        }
        FamilyStep::Waits(Waits::Port) => {
            said("waits", "its port is not known, because the first fragment has not come")
        }
        FamilyStep::Waits(Waits::Outer) => {
            said("waits", "it is a fragment of a packet in a tunnel, which is put together")
        }
        _ => of_softwires(step),
    }
}

fn translated(from: IpAddr, to: IpAddr, by: Entry) -> Value {
    let (table, entry) = match by {
        Entry::Map(map) => {
            let ipv4 = Ipv4Addr::from_bits(map.ipv4.first());
            ("map", format!("{} = {ipv4}/{}", map.ipv6, map.ipv4.len()))
        }
        Entry::Prefix(prefix) => ("prefix", prefix.to_string()),
        Entry::Pair(internal, external) => ("nptv6", format!("{internal} = {external}")),
    };
    json!({
        "step": "translated",
        "from": from.to_string(),
        "to": to.to_string(),
        "table": table,
        "entry": entry,
        "text": format!("{from} becomes {to} by {table} {entry}"),
    })
}
