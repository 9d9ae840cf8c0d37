//! Steps of an explanation about tunnels and their customers.

use natgate_gateway::ipv6::softwire::{PortSets, Tunnel};
use natgate_gateway::ipv6::{FamilyStep, SoftwireTable};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};

fn address(bits: u128) -> String {
    Ipv6Addr::from_bits(bits).to_string()
}

/// The ends of a tunnel.
pub(super) fn tunnel_ends(Tunnel { br, customer }: Tunnel) -> Value {
    json!({ "gateway": address(br), "customer": address(customer) })
}

/// Steps about tunnels and their customers.
pub(super) fn of_softwires(step: &FamilyStep) -> Value {
    match *step {
        FamilyStep::Tunnel(tunnel) => json!({
            "step": "tunnel",
            "tunnel": tunnel_ends(tunnel),
            "text": format!(
                "it is in the tunnel from {} to {}",
                address(tunnel.customer),
                address(tunnel.br)
            ),
        }),
        FamilyStep::Customer { table, ipv4, port, sets, psid, tunnel, is_sender } => {
            customer(table, (ipv4, port), (sets, psid), tunnel, is_sender)
        }
        FamilyStep::Unbound { ipv4, port } => {
            let end = port.map_or(ipv4.to_string(), |port| format!("{ipv4}:{port}"));
            let text = format!("no binding of [lw4o6] and no rule of [[map]] has {end}");
            json!({ "step": "unbound", "address": ipv4.to_string(), "port": port, "text": text })
        }
        FamilyStep::Origin(expected, is_right) => {
            let text = match is_right {
                true => "it came in the tunnel of this customer".to_owned(),
                false => format!(
                    "it came in another tunnel: expected was the one from {} to {}",
                    address(expected.customer),
                    address(expected.br)
                ),
            };
            let expected = tunnel_ends(expected);
            json!({ "step": "origin", "expected": expected, "matches": is_right, "text": text })
        }
        FamilyStep::PortSet { own, port, set } => {
            let found = match (port, set) {
                (None, _) => "it has no port".to_owned(),
                (Some(port), Some(set)) => format!("port {port} is in set {set}"),
                (Some(port), None) => format!("port {port} is in no set"),
            };
            json!({
                "step": "port_set",
                "expected": own,
                "set": set,
                "port": port,
                "text": format!("its source address has port set {own}, and {found}"),
            })
        }
        FamilyStep::Longer { table, ipv4, customer } => {
            let (_, rule, entry) = named(table);
            let customer = customer.map(|customer| customer.to_string());
            let owner = match &customer {
                Some(customer) => format!("belongs to its customer {customer}"),
                None => "is no customer's with this port".to_owned(),
            };
            json!({
                "step": "longer_rule",
                "rule": rule,
                "address": ipv4.to_string(),
                "customer": customer,
                "text": format!("{entry} has a longer prefix: {ipv4} {owner}"),
            })
        }
        FamilyStep::Report(understood) => {
            let text = match understood {
                true => "it reports on a packet that the gateway sent into the tunnel",
                false => "it reports on no packet that the gateway sent into a tunnel",
            };
            json!({ "step": "report", "understood": understood, "text": text })
        }
        _ => json!({ "step": "other", "text": format!("{step:?}") }),
    }
}

/// The name of a table, its rule, and both in words.
fn named(table: SoftwireTable) -> (&'static str, Option<Value>, String) {
    match table {
        SoftwireTable::Bindings => ("lw4o6", None, "a binding of [lw4o6]".to_owned()),
        SoftwireTable::Rule { place, ipv6, ipv4 } => {
            let first = Ipv4Addr::from_bits(ipv4.first());
            let prefixes = format!("{ipv6} = {first}/{}", ipv4.len());
            let entry = format!("rule {} of [[map]] ({prefixes})", place + 1);
            ("map", Some(json!({ "number": place + 1, "prefixes": prefixes })), entry)
        }
    }
}

fn customer(
    table: SoftwireTable,
    (ipv4, port): (Ipv4Addr, Option<u16>),
    (sets, psid): (PortSets, u16),
    tunnel: Tunnel,
    is_sender: bool,
) -> Value {
    let (name, rule, entry) = named(table);
    let set = match sets.is_whole() {
        true => String::new(),
        false => format!(", port set {psid} of {}", sets.count()),
    };
    let end = port.map_or(ipv4.to_string(), |port| format!("{ipv4}:{port}"));
    let which = if is_sender { "source" } else { "destination" };
    let customer = address(tunnel.customer);
    json!({
        "step": "customer",
        "of": which,
        "table": name,
        "rule": rule,
        "address": ipv4.to_string(),
        "port": port,
        "psid": (!sets.is_whole()).then_some(psid),
        "customer": customer,
        "gateway": (tunnel.br != 0).then(|| address(tunnel.br)),
        "text": format!("{entry} has its {which} {end}{set}: customer {customer}"),
    })
}
