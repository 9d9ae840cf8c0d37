//! Each step of an explanation: its name, a sentence, and the values in the sentence.
//!
//! Steps are in the order of a packet's way: what the packet is, where it goes, the mapping and the
//! session that it belongs to, state that would be made for it, and the result.

use super::{Names, behavior, both, end, said, side};
use natgate_engine::{
    AddressChoice, Endpoint, Limit, LimitOwner, MappingId, Ruling, Side, Snat, Standing, Step,
    Timestamp,
};
use natgate_gateway::Link;
use natgate_gateway::router::Onward;
use natgate_logs::protocol;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

impl Names<'_> {
    pub(super) fn step(&self, step: &Step) -> Value {
        match *step {
            Step::Read { protocol: number, what, source, destination } => json!({
                "step": "read",
                "protocol": protocol(number),
                "source": end(source),
                "destination": end(destination),
                "text": format!("{what} {} > {}", end(source), end(destination)),
            }),
            Step::Unsettled => said(
                "unsettled",
                "a new configuration has just come into force, and some mappings have not been \
                 checked yet; ask again",
            ),
            Step::Realm(realm) => json!({
                "step": "realm",
                "realm": self.realm(realm),
                "text": format!("it comes from realm {}", self.realm(realm)),
            }),
            Step::Transit { ttl, len, mtu, dont_fragment } => {
                let expires = if ttl <= 1 { ", which expires here" } else { "" };
                let whole = if dont_fragment { ", not to be fragmented" } else { "" };
                json!({
                    "step": "transit",
                    "ttl": ttl,
                    "length": len,
                    "mtu": mtu,
                    "dont_fragment": dont_fragment,
                    "text": format!(
                        "time to live {ttl}{expires}, {len} bytes; the next link carries \
                         {mtu}{whole}"
                    ),
                })
            }
            Step::Fragment { first } => {
                let text = match first {
                    true => "it is the first fragment of its datagram",
                    false => "it is a fragment; only the first fragment of its datagram has ports",
                };
                json!({ "step": "fragment", "first": first, "text": text })
            }
            Step::AsFirst => {
                said("as_first", "it goes the way of the first fragment of its datagram")
            }
            Step::About { protocol: number, source, destination } => {
                let (name, from) = (protocol(number), both(source));
                let to = match self.is_from_host() {
                    true => self.host(None, destination),
                    false => both(destination),
                };
                json!({
                    "step": "about",
                    "protocol": name,
                    "source": from,
                    "destination": to,
                    "text": format!("the error is about {name} {from} > {to}"),
                })
            }
            _ => self.way(step),
        }
    }

    /// Steps about the ends of a packet.
    fn way(&self, step: &Step) -> Value {
        match *step {
            Step::Local => {
                said("local", "it is addressed to the gateway itself, which answers only ping")
            }
            Step::Rule { realm, inner, outer, ruling } => self.ruled(realm, inner, outer, ruling),
            Step::Aimed(to) => json!({
                "step": "destination",
                "destination": both(to),
                "text": format!("its destination is translated to {}", both(to)),
            }),
            Step::Subscriber(is) => {
                let text = match is {
                    true => "its source is a subscriber (nat.subscribers)",
                    false => {
                        "its source is no subscriber: nat.subscribers does not have it, and no \
                         rule matches it"
                    }
                };
                json!({ "step": "subscriber", "subscriber": is, "text": text })
            }
            Step::Hairpin(address) => at(
                ("hairpin", "external", address),
                format!(
                    "its destination {address} is an external address: it takes the hairpin path"
                ),
            ),
            Step::Inside(address) => at(
                ("inside", "destination", address),
                format!(
                    "an inside route leads to its destination {address}: it stays inside, \
                     untranslated (nat.inside_routes)"
                ),
            ),
            Step::External(address) => at(
                ("external", "external", address),
                format!("its destination {address} is an external address of the gateway"),
            ),
            Step::Reopened => said(
                "reopened",
                "it opens a new connection where the earlier one is over, and the server of that \
                 one takes no new sessions: the session would end",
            ),
            Step::Service => {
                said("service", "several servers share the endpoint; one of them gets the packet")
            }
            Step::Whole(address) => at(
                ("static_address", "external", address),
                format!("address {address} is mapped as a whole by a static mapping"),
            ),
            Step::Owner(address) => at(
                ("own_address", "external", address),
                format!("a host has address {address} for itself: every port is its own"),
            ),
            _ => self.state(step),
        }
    }

    fn ruled(&self, realm: u16, inner: Endpoint, outer: Endpoint, ruling: Option<Ruling>) -> Value {
        let rule = ruling.and_then(|_| self.rule(realm, inner, outer));
        let says = match ruling {
            None => "no rule matches it".to_owned(),
            Some(Ruling::Bypass) => "bypass: it is not translated".to_owned(),
            Some(Ruling::Drop) => "drop".to_owned(),
            Some(Ruling::Snat(Snat { pool, address: None, .. })) => {
                format!("pool {}", self.pool(pool))
            }
            Some(Ruling::Snat(Snat { pool, address: Some(address), .. })) => {
                format!("address {address} of pool {}", self.pool(pool))
            }
        };
        let text = match &rule {
            Some((number, matches)) => format!("rule {number} ({matches}) says: {says}"),
            None if ruling.is_some() => format!("a rule determines the session: {says}"),
            None => says,
        };
        let action = match ruling {
            None => Value::Null,
            Some(Ruling::Bypass) => json!("bypass"),
            Some(Ruling::Drop) => json!("drop"),
            Some(Ruling::Snat(_)) => json!("snat"),
        };
        let number = rule.as_ref().map(|(number, _)| *number);
        let matches = rule.map(|(_, matches)| matches);
        json!({
            "step": "rule",
            "text": text,
            "rule": number,
            "match": matches,
            "action": action,
            "realm": self.realm(realm),
        })
    }

    /// Steps about the mapping and the session that a packet belongs to.
    fn state(&self, step: &Step) -> Value {
        match *step {
            Step::Mapping { id, sessions, expires } => self.mapping(id, sessions, expires),
            Step::NoMapping => said("no_mapping", "there is no mapping for it"),
            Step::Session { remote, state, next, expires } => {
                let left = self.seconds(expires);
                let becomes =
                    if state == next { String::new() } else { format!(", which becomes {next}") };
                json!({
                    "step": "session",
                    "remote": both(remote),
                    "state": state,
                    "next": next,
                    "expires_in_s": left,
                    "text": format!(
                        "session with {} in state {state}{becomes}, {left:.0} s left",
                        both(remote)
                    ),
                })
            }
            Step::NoSession(remote) => json!({
                "step": "no_session",
                "remote": both(remote),
                "text": format!("the mapping has no session with {}", both(remote)),
            }),
            Step::Opens(opens) => {
                let text = match opens {
                    true => "it may begin a connection",
                    false => "it begins no connection: only a SYN does (nat.tcp_pickup)",
                };
                json!({ "step": "opens", "opens": opens, "text": text })
            }
            Step::Filter { behavior: own, is_static, is_asked_for, admitted } => {
                let by = match (is_static, is_asked_for) {
                    (true, _) => "the static mapping",
                    (_, true) => "the host that has asked for the mapping",
                    _ => behavior(own),
                };
                let result = if admitted { "lets it in" } else { "does not let it in" };
                json!({
                    "step": "filter",
                    "filtering": behavior(own),
                    "static": is_static,
                    "asked_for": is_asked_for,
                    "admitted": admitted,
                    "text": format!("filtering ({by}) {result}"),
                })
            }
            _ => self.new_state(step),
        }
    }

    fn mapping(&self, id: MappingId, sessions: u32, expires: Option<Timestamp>) -> Value {
        let expires = expires.map(|time| self.seconds(time));
        let left = expires.map_or("stays".to_owned(), |left| format!("{left:.0} s left"));
        let (kind, external) = (id.kind.name(), both(id.external));
        let internal = match self.is_of_hosts(id.realm) {
            true => self.host(Some(id.realm), id.internal),
            false => both(id.internal),
        };
        json!({
            "step": "mapping",
            "protocol": protocol(id.protocol),
            "kind": kind,
            "internal": internal,
            "external": external,
            "sessions": sessions,
            "expires_in_s": expires,
            "text": format!("{kind} mapping {internal} = {external}, {sessions} sessions, {left}"),
        })
    }

    /// Steps about state that would be made.
    fn new_state(&self, step: &Step) -> Value {
        match *step {
            Step::Standing { whose, standing, permits } => self.limit(whose, standing, permits),
            Step::Pool { pool, free } => {
                let name = self.pool(pool);
                let ports = free.map_or(String::new(), |free| format!(", {free} ports free"));
                let text = format!("pool {name}{ports}");
                json!({ "step": "pool", "pool": name, "free": free, "text": text })
            }
            Step::Address { why, address } => new_address(why, address),
            Step::Block => said("block", "a block of ports would be assigned to the subscriber"),
            Step::Overload => {
                said("overload", "no port is free; one that is in use would be shared")
            }
            Step::Reclaim => said(
                "reclaim",
                "a resource is scarce; the oldest unanswered subscribers would give way first",
            ),
            Step::Port(port) => {
                let text = match port {
                    Some(port) => format!("port {port}, the internal one, is free"),
                    None => "the port would be drawn".to_owned(),
                };
                json!({ "step": "port", "port": port, "text": text })
            }
            Step::NewSession { remote, state } => {
                let remote = both(remote);
                let text = format!("a session with {remote} would be made, in state {state}");
                json!({ "step": "new_session", "remote": remote, "state": state, "text": text })
            }
            _ => result(step),
        }
    }

    fn limit(&self, whose: LimitOwner, standing: Standing, permits: bool) -> Value {
        let used = standing.used;
        let of = standing.most.map_or("no limit".to_owned(), |most| format!("at most {most}"));
        let what = match standing.limit {
            Limit::NewMappings => "new mappings within a second",
            Limit::Mappings => "mappings",
            Limit::Sessions => "sessions",
            Limit::FurtherSessions => "sessions beyond the first of each mapping",
            Limit::Blocks => "blocks of ports",
            Limit::Subscribers => "subscribers",
        };
        let name = match whose {
            LimitOwner::Subscriber => "subscriber",
            LimitOwner::Class(_) => "class",
            LimitOwner::Mapping => "mapping",
            LimitOwner::Static => "static",
            LimitOwner::Gateway => "gateway",
        };
        let (owner, end) = (self.whose(whose), if permits { "" } else { ": no more" });
        json!({
            "step": "limit",
            "of": name,
            "limit": standing.limit.name(),
            "used": used,
            "most": standing.most,
            "permits": permits,
            "text": format!("{owner} has {used} {what}, {of}{end}"),
        })
    }

    pub(super) fn onward(&self, link: Link, onward: Onward) -> Value {
        let by = match link.side {
            Side::Inside if self.config.has_realms() => {
                format!("inside of realm {}", self.realm(link.realm))
            }
            _ => side(link.side).to_owned(),
        };
        let (hop, text) = match onward {
            Onward::NoRoute => {
                let text = format!(
                    "by the {by}: no route leads there, so it is dropped (no_route) and its sender \
                     gets ICMP 3/0"
                );
                (None, text)
            }
            Onward::Everybody => {
                let text = format!(
                    "by the {by}: its destination is a broadcast address, so it is dropped \
                     (no_route)"
                );
                (None, text)
            }
            Onward::Hop { address, mac, passes } => {
                let mac = mac.map(|mac| mac.to_string());
                let known = match &mac {
                    Some(mac) => format!("at {mac}"),
                    None => "with an unknown hardware address, which ARP would find".to_owned(),
                };
                let size = if passes { "" } else { "; the packet does not fit the link (too_big)" };
                let text = format!("by the {by}: next hop {address}, {known}{size}");
                (Some((address, mac, passes)), text)
            }
        };
        match hop {
            None => json!({ "step": "route", "next_hop": null, "neighbor": null, "text": text }),
            Some((address, mac, passes)) => json!({
                "step": "route",
                "next_hop": address.to_string(),
                "neighbor": mac,
                "fits": passes,
                "text": text,
            }),
        }
    }
}

/// A step about one address, with the name of the address's field.
fn at((step, field, address): (&str, &str, Ipv4Addr), text: String) -> Value {
    json!({ "step": step, field: address.to_string(), "text": text })
}

fn new_address(why: AddressChoice, address: Option<Ipv4Addr>) -> Value {
    let address = address.map(|address| address.to_string());
    let text = match (&address, why.name()) {
        (Some(address), "paired") => {
            format!("external address {address}, which the subscriber has already")
        }
        (Some(address), "share") => {
            format!("external address {address}, where the subscriber's own ports are")
        }
        (Some(address), why) => {
            format!("external address {address}, as the {why} says")
        }
        (None, _) => "the external address would be drawn".to_owned(),
    };
    json!({ "step": "address", "external": address, "why": why.name(), "text": text })
}

/// Steps about timers and answers.
fn result(step: &Step) -> Value {
    match *step {
        Step::Timer(nanos) => {
            let seconds = nanos as f64 / 1e9;
            let text = format!("its timer starts: {seconds} s");
            json!({ "step": "timer", "seconds": seconds, "text": text })
        }
        Step::NotRefreshed => said("not_refreshed", "its timer does not start again"),
        Step::Answer { kind, code, late } => {
            let when = match late {
                true => "six seconds later, unless the connection is made by then, ",
                false => "",
            };
            json!({
                "step": "answer",
                "icmp_type": kind,
                "icmp_code": code,
                "late": late,
                "text": format!(
                    "{when}its sender gets ICMP {kind}/{code}, if the rate of errors permits it"
                ),
            })
        }
        _ => json!({ "step": "other", "text": format!("{step:?}") }),
    }
}
