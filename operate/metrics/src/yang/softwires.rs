//! The relay of lw4o6 and the rules of MAP as data of the module `ietf-softwire-br` (RFC 8676).
//!
//! The module has either bindings or rules. Bindings go first; then the rules are left out. An
//! entry of the table is found by the customer's tunnel, so a second binding of one tunnel is left
//! out, and so are bindings beyond 100,000.

use super::state::{counter, date};
use super::{object, show_prefix};
use crate::{DomainFigures, Figures};
use natgate_gateway::ipv6::Settings;
use natgate_gateway::ipv6::softwire::{Lw4o6Settings, MapMode, MapSettings};
use natgate_wire::ipv6::HEADER_LEN;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Most bindings that are exported.
const MOST_BINDINGS: usize = 100_000;
/// Longest identifier of a port set that the module has, bits.
const LONGEST_PSID: u8 = 15;

/// The module's one container; `None`: there is neither lw4o6 nor MAP. With figures, the counters
/// are in it.
pub(super) fn relay(
    ipv6: &Settings,
    figures: Option<&Figures>,
    left_out: &mut Vec<String>,
) -> Option<Value> {
    if let Some(lw4o6) = &ipv6.lw4o6 {
        if !ipv6.map.is_empty() {
            let rules = ipv6.map.len();
            left_out.push(format!("{rules} of [[map]]: br-instances has bindings or rules"));
        }
        let instance = bindings(ipv6, lw4o6, figures, left_out);
        return Some(json!({ "binding": { "bind-instance": [instance] } }));
    }
    let rules: Vec<Value> =
        ipv6.map.iter().filter_map(|map| rule(map, figures, left_out)).collect();
    (!rules.is_empty()).then(|| json!({ "algorithm": { "algo-instance": rules } }))
}

fn bindings(
    ipv6: &Settings,
    lw4o6: &Lw4o6Settings,
    figures: Option<&Figures>,
    left_out: &mut Vec<String>,
) -> Map<String, Value> {
    let mtu = lw4o6.softwire.mtu.map_or(ipv6.inside.mtu, |mtu| mtu.min(ipv6.inside.mtu));
    let mut instance = object(json!({
        "name": "lw4o6",
        "softwire-num-max": lw4o6.bindings.len().clamp(1, u32::MAX as usize),
        "softwire-payload-mtu": mtu.saturating_sub(HEADER_LEN as u16),
        "softwire-path-mru": ipv6.inside.mtu,
        "enable-hairpinning": lw4o6.hairpinning,
        "binding-table": { "binding-entry": entries(lw4o6, left_out) },
        "icmp-policy": {
            "icmpv4-errors": {
                "allow-incoming-icmpv4": lw4o6.inbound_icmp,
                "generate-icmpv4-errors": lw4o6.icmp_errors,
            },
            "icmpv6-errors": { "generate-icmpv6-errors": lw4o6.icmp_errors },
        },
    }));
    put_counters(&mut instance, "lw4o6", figures);
    instance
}

fn entries(lw4o6: &Lw4o6Settings, left_out: &mut Vec<String>) -> Vec<Value> {
    let (mut all, mut without) = (Vec::new(), 0);
    let mut seen = HashSet::new();
    for one in lw4o6.bindings.iter() {
        let fits = one.sets.bits() <= LONGEST_PSID && all.len() < MOST_BINDINGS;
        if !fits || !seen.insert(one.b4) {
            without += 1;
            continue;
        }
        //= rfc8676#section-7-unique
        all.push(json!({
            "binding-ipv6info": one.b4.to_string(),
            "binding-ipv4-addr": one.ipv4.to_string(),
            "port-set": {
                "psid-offset": one.sets.offset(),
                "psid-len": one.sets.bits(),
                "psid": one.psid,
            },
            "br-ipv6-addr": one.br.to_string(),
        }));
    }
    if without > 0 {
        left_out.push(format!(
            "{without} bindings: of a tunnel that has one already, of a PSID of 16 bits, or beyond \
             {MOST_BINDINGS}"
        ));
    }
    all
}

fn rule(map: &MapSettings, figures: Option<&Figures>, left_out: &mut Vec<String>) -> Option<Value> {
    let parameters = map.rule.parameters();
    let sets = map.rule.sets();
    let name = parameters.ipv6.to_string();
    if sets.bits() > LONGEST_PSID {
        left_out.push(format!("the rule {name} of [[map]], which has PSIDs of 16 bits"));
        return None;
    }
    let mut instance = object(json!({
        "name": name,
        "enable": true,
        "ea-len": parameters.ea_length,
        "rule-ipv6-prefix": name,
        "rule-ipv4-prefix": show_prefix(parameters.ipv4),
        "forwarding": true,
        // The module wants a PSID, though that of most rules is in the EA bits.
        "port-set": {
            "psid-offset": sets.offset(),
            "psid-len": sets.bits(),
            "psid": map.rule.own_psid().unwrap_or(0),
        },
    }));
    let (key, end) = match parameters.mode {
        MapMode::Encapsulation(br) => ("br-ipv6-addr", br.to_string()),
        MapMode::Translation(dmr) => ("dmr-ipv6-prefix", dmr.prefix().to_string()),
    };
    instance.insert(key.into(), end.into());
    put_counters(&mut instance, &name, figures);
    Some(instance.into())
}

/// Adds the counters of the domain with a name.
fn put_counters(instance: &mut Map<String, Value>, name: &str, figures: Option<&Figures>) {
    let Some(figures) = figures else { return };
    //= rfc8676#section-7-discontinuity
    let mut counters = object(json!({ "discontinuity-time": date(figures.began) }));
    let domain = figures.domains.iter().find(|domain| domain.name == name);
    if let Some(DomainFigures { counters: of, .. }) = domain {
        for (key, value) in [
            ("sent-ipv4-packets", of.outbound.0),
            ("sent-ipv4-bytes", of.outbound.1),
            ("sent-ipv6-packets", of.inbound.0),
            ("sent-ipv6-bytes", of.inbound.1),
        ] {
            counters.insert(key.into(), counter(value));
        }
    }
    instance.insert("traffic-stat".into(), counters.into());
}
