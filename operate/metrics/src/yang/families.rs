//! Instances of translators that IPv6 has part in: NAT64, SIIT, CLAT, NPTv6, and the AFTR of
//! DS-Lite (RFC 8513).
//!
//! Each is an instance of its own behind those of the realms. Mappings of hosts with IPv6 addresses
//! are left out.

use super::{Network, object, policy, put_list, show_prefix};
use natgate_engine::Config;
use natgate_gateway::ipv6::softwire::DsliteSettings;
use natgate_gateway::ipv6::{
    ClatSettings, Nat64Settings, Nptv6Settings, Pref64, Prefix6, Settings, SiitSettings,
};
use serde_json::{Map, Value, json};

/// No realm has this number.
const NO_REALM: u16 = u16::MAX;

/// The instances, in the order of the tables in the reference of the configuration.
pub(super) fn instances(
    config: &Config,
    ipv6: &Settings,
    left_out: &mut Vec<String>,
) -> Vec<Map<String, Value>> {
    let mut all = Vec::new();
    all.extend(ipv6.nat64.as_ref().map(|one| nat64(config, one, left_out)));
    all.extend(ipv6.siit.as_ref().map(|one| siit(one, left_out)));
    all.extend(ipv6.clat.as_ref().map(clat));
    if !ipv6.nptv6.is_empty() {
        all.push(nptv6(&ipv6.nptv6));
    }
    all.extend(ipv6.dslite.as_ref().map(|one| dslite(config, one, left_out)));
    //= rfc8512#section-3-ids
    for (id, instance) in (config.realms.len() + 2..).zip(&mut all) {
        instance.insert("id".into(), id.into());
    }
    all
}

fn instance(kind: &str, name: &str, policies: Vec<Value>) -> Map<String, Value> {
    object(json!({
        "name": name,
        "enable": true,
        "type": format!("ietf-nat:{kind}"),
        "per-interface-binding": if name == "dslite" { "dslite" } else { "disabled" },
        "policy": policies,
    }))
}

/// The policy of the default pool, without subscribers.
fn policies(config: &Config, name: &str) -> Vec<Map<String, Value>> {
    let network = Network {
        realm: NO_REALM,
        name,
        subscribers: &[],
        default_pool: config.default_pool,
        rules: &[],
    };
    let all = policy::policies(config, &network, &mut Vec::new());
    all.into_iter().map(object).collect()
}

fn subnets(prefixes: &[Prefix6]) -> Vec<Value> {
    let entry =
        |(at, prefix): (usize, &Prefix6)| json!({ "match-id": at + 1, "subnet": shown(*prefix) });
    prefixes.iter().enumerate().map(entry).collect()
}

fn shown(prefix: Prefix6) -> String {
    prefix.to_string()
}

fn prefixes(all: &[Pref64], is_stateless: bool) -> Vec<Value> {
    let shown = all.iter().map(|one| shown(one.prefix()));
    let entry = |prefix| json!({ "nat64-prefix": prefix, "stateless-enable": is_stateless });
    shown.map(entry).collect()
}

fn nat64(config: &Config, nat64: &Nat64Settings, left_out: &mut Vec<String>) -> Map<String, Value> {
    if !nat64.static_hosts.is_empty() {
        left_out.push("static mappings of IPv6 hosts".to_owned());
    }
    let mut all = policies(config, "nat64");
    for policy in &mut all {
        put_list(policy, "nat64-prefixes", prefixes(&nat64.prefixes, false));
        put_list(policy, "subscriber-match", subnets(&nat64.subscribers));
        policy.insert("subscriber-mask-v6".into(), nat64.subscriber_length.into());
    }
    instance("nat64", "nat64", all.into_iter().map(Value::Object).collect())
}

fn siit(siit: &SiitSettings, left_out: &mut Vec<String>) -> Map<String, Value> {
    if !(siit.icmp_source_ipv4.is_empty() && siit.icmp_source_ipv6.is_empty()) {
        left_out.push("siit.icmp_source: sources of ICMP errors".to_owned());
    }
    let mut policy = object(json!({ "id": 1 }));
    put_list(&mut policy, "nat64-prefixes", prefixes(&siit.prefixes, true));
    let eam = siit
        .maps
        .iter()
        .map(|map| json!({ "ipv4-prefix": show_prefix(map.ipv4), "ipv6-prefix": shown(map.ipv6) }));
    put_list(&mut policy, "eam", eam.collect());
    let kind = if siit.prefixes.is_empty() { "eam" } else { "siit" };
    instance(kind, "siit", vec![policy.into()])
}

fn clat(clat: &ClatSettings) -> Map<String, Value> {
    let inside = clat.subscribers.iter().map(|prefix| show_prefix(*prefix));
    let inside: Vec<Value> = inside.map(|prefix| json!({ "ipv4-prefix": prefix })).collect();
    let policy = json!({
        "id": 1,
        "clat-parameters": {
            "clat-ipv6-prefixes": [{ "ipv6-prefix": shown(clat.source.prefix()) }],
            "ipv4-prefixes": inside,
        },
        "nat64-prefixes": prefixes(&[clat.prefix], true),
    });
    instance("clat", "clat", vec![policy])
}

fn nptv6(pairs: &[Nptv6Settings]) -> Map<String, Value> {
    let pairs = pairs.iter().map(|one| {
        json!({
            "internal-ipv6-prefix": shown(one.pair.internal()),
            "external-ipv6-prefix": shown(one.pair.external()),
        })
    });
    let policy = json!({ "id": 1, "nptv6-prefixes": pairs.collect::<Vec<_>>() });
    instance("nptv6", "nptv6", vec![policy])
}

fn dslite(
    config: &Config,
    dslite: &DsliteSettings,
    left_out: &mut Vec<String>,
) -> Map<String, Value> {
    left_out.push(format!(
        "the end {} of DS-Lite's tunnels: ietf-dslite has it for interfaces alone",
        dslite.address
    ));
    let mut all = policies(config, "dslite");
    for policy in &mut all {
        put_list(policy, "subscriber-match", subnets(&dslite.b4));
        //= rfc8513#section-3-defaults
        let length = dslite.subscriber_length;
        policy.insert("subscriber-mask-v6".into(), length.into());
        policy.insert("ietf-dslite:max-softwires-per-subscriber".into(), 1.into());
        policy.insert("ietf-dslite:state-migrate".into(), (length < 128).into());
        let interval = dslite.b4_change_interval.as_secs();
        policy.insert("ietf-dslite:b4-address-change-limit".into(), interval.into());
        let clamping = match config.tcp_mss {
            Some(size) => json!({ "enable": true, "mss-value": size }),
            None => json!({ "enable": false }),
        };
        policy.insert("ietf-dslite:mss-clamping".into(), clamping);
    }
    instance("napt44", "dslite", all.into_iter().map(Value::Object).collect())
}
