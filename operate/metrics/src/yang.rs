//! A gateway's configuration and state as data of the YANG modules `ietf-nat` (RFC 8512),
//! `ietf-dslite` (RFC 8513) and `ietf-softwire-br` (RFC 8676), in JSON as RFC 7951 has it. The
//! folder `yang` has the modules' text and its origin.
//!
//! The gateway is instance 1; each realm after the first is an instance of its own, with the next
//! number, and has its subscribers, rules and static mappings. Each pool is a policy. Translators
//! that IPv6 has part in are further instances, and softwires without sessions have a container of
//! their own. Parts of a configuration without a place in the modules are left out, and named in
//! [`Export::left_out`].

mod families;
mod mappings;
mod policy;
mod softwires;
mod state;

use natgate_engine::{Config, Match, Prefix, RealmConfig, Rule, RuleAction};
use natgate_gateway::ipv6::Settings;
use serde_json::{Map, Value, json};
pub use state::{MappingState, state};
use std::net::Ipv4Addr;

/// Data of the module, and sentences about the parts of the configuration that are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// Data that yanglint accepts.
    pub data: Value,
    /// Parts without a place in the module.
    pub left_out: Vec<String>,
}

/// The configuration as data of the modules: that of the engine, and that of IPv6.
pub fn configuration(config: &Config, ipv6: &Settings) -> Export {
    let mut left_out = Vec::new();
    let mut all = instances(config, &mut left_out);
    further(config, &mut left_out);
    all.extend(families::instances(config, ipv6, &mut left_out));
    let relay = softwires::relay(ipv6, None, &mut left_out);
    Export { data: module(all.into_iter().map(Value::Object).collect(), relay), left_out }
}

//= rfc8512#section-3-valid
/// The modules' containers.
fn module(instances: Vec<Value>, relay: Option<Value>) -> Value {
    let mut data = json!({ "ietf-nat:nat": { "instances": { "instance": instances } } });
    //= rfc8676#section-7-valid
    if let Some(relay) = relay {
        data["ietf-softwire-br:br-instances"] = relay;
    }
    data
}

/// The instances' configuration, that of the gateway first.
fn instances(config: &Config, left_out: &mut Vec<String>) -> Vec<Map<String, Value>> {
    let realms = config.realms.iter().enumerate().filter(|(_, realm)| !realm.gone);
    let realms = realms.map(|(place, realm)| (place + 1, Network::of_realm(place + 1, realm)));
    std::iter::once((0, Network::of_gateway(config)))
        .chain(realms)
        .map(|(number, network)| instance(config, number, &network, left_out))
        .collect()
}

/// The configuration of one realm.
struct Network<'a> {
    realm: u16,
    name: &'a str,
    subscribers: &'a [Prefix],
    default_pool: usize,
    rules: &'a [Rule],
}

impl<'a> Network<'a> {
    fn of_gateway(config: &'a Config) -> Self {
        let Config { subscribers, default_pool, rules, .. } = config;
        Self { realm: 0, name: "natgate", subscribers, default_pool: *default_pool, rules }
    }

    fn of_realm(number: usize, realm: &'a RealmConfig) -> Self {
        let RealmConfig { name, subscribers, default_pool, rules, .. } = realm;
        // There are fewer realms than a u16 counts.
        Self { realm: number as u16, name, subscribers, default_pool: *default_pool, rules }
    }

    /// The realm in messages.
    fn shown(&self) -> String {
        if self.realm == 0 { String::new() } else { format!(" of realm {:?}", self.name) }
    }
}

fn instance(
    config: &Config,
    number: usize,
    network: &Network<'_>,
    left_out: &mut Vec<String>,
) -> Map<String, Value> {
    let mut instance = object(json!({
        //= rfc8512#section-3-ids
        "id": number + 1,
        "name": network.name,
        "enable": true,
        "type": "ietf-nat:napt44",
        "per-interface-binding": "disabled",
        "policy": policy::policies(config, network, left_out),
    }));
    put_list(&mut instance, "nat-pass-through", pass_through(network, left_out));
    let limits = &config.limits;
    let mut mapping_limits = Map::new();
    let limited =
        [("limit-subscribers", limits.subscribers), ("limit-port-mappings", limits.mappings)];
    for (name, limit) in limited {
        if let Some(limit) = limit {
            mapping_limits.insert(name.into(), limit.into());
        }
    }
    if !mapping_limits.is_empty() {
        instance.insert("mapping-limits".into(), mapping_limits.into());
    }
    let fixed = mappings::configured(config, network.realm);
    if !fixed.is_empty() {
        instance.insert("mapping-table".into(), json!({ "mapping-entry": fixed }));
    }
    instance
}

/// Destinations that are not translated (RFC 6888 REQ-6).
fn pass_through(network: &Network<'_>, left_out: &mut Vec<String>) -> Vec<Value> {
    let mut all = Vec::new();
    for rule in network.rules.iter().filter(|rule| rule.action == RuleAction::Bypass) {
        match rule.matches {
            Match::Destination(prefix, port) => {
                let mut one = object(json!({ "id": all.len() + 1, "prefix": show_prefix(prefix) }));
                if port > 0 {
                    one.insert("port".into(), port.into());
                }
                all.push(one.into());
            }
            Match::Source(prefix, _) => left_out.push(format!(
                "the bypass rule{} for the source {}: nat-pass-through is about destinations",
                network.shown(),
                show_prefix(prefix)
            )),
        }
    }
    all
}

/// Names the parts that concern the whole gateway and have no place.
fn further(config: &Config, left_out: &mut Vec<String>) {
    let mut say = |is_there: bool, what: &str| {
        if is_there {
            left_out.push(what.to_owned());
        }
    };
    say(!config.classes.is_empty(), "classes of subscribers: quotas are the same for all");
    say(
        !config.services.is_empty(),
        "static mappings to several servers: one internal end is meant",
    );
    say(config.filtering_tcp.is_some(), "nat.filtering_tcp: one filtering behavior is for all");
    say(!config.timeout_sets.is_empty(), "timeouts of rules: timers are the policy's");
    let rules = || config.rules.iter().chain(config.realms.iter().flat_map(|realm| &realm.rules));
    say(rules().any(|rule| rule.action == RuleAction::Drop), "rules that drop");
    say(rules().any(|rule| rule.priority != 0), "priorities of rules: the longest prefix wins");
}

/// The members of a JSON object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// A list that is left out when it is empty.
fn put_list(object: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        object.insert(name.into(), list.into());
    }
}

fn show_prefix(prefix: Prefix) -> String {
    format!("{}/{}", Ipv4Addr::from_bits(prefix.first()), prefix.len())
}
