//! Writes a plan as natgate's configuration, with comments.

use crate::address::{Ports, Range};
use crate::plan::{Grade, Kind, Origin, Plan, Pool, Rule, Side, Static, Way};
use crate::plan6::Plan6;
use crate::softwires::{Domain, End, Softwires};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Writing to a string does not fail.
macro_rules! line {
    ($text:expr, $($words:tt)*) => {{ let _ = writeln!($text, $($words)*); }};
}

/// Writes the configuration. `bindings` is the name of the file of bindings.
pub(crate) fn config(plan: &Plan, bindings: &str) -> String {
    let mut text = String::new();
    line!(
        text,
        "# Imported by natgate. Read it before you use it: what has no equivalent is listed at the \
         end,"
    );
    line!(text, "# and `natgate check` says what this means.");
    if plan.softwires.has_customers() && !plan.inside.has_ipv6() {
        line!(text, "#");
        line!(
            text,
            "# Add address6 to [inside]: customers of tunnels send by IPv6, and the file names no \
             address"
        );
        line!(text, "# of IPv6 there. Example: address6 = \"2001:db8:0:1::1/64\"");
    }
    side(&mut text, "inside", &plan.inside, "edit-inside");
    side(&mut text, "outside", &plan.outside, "edit-outside");
    for one in &plan.pools {
        pool(&mut text, one);
    }
    nat(&mut text, plan);
    for (table, keys) in [("limits", &plan.limits), ("timeouts", &plan.timeouts)] {
        if !keys.is_empty() {
            line!(text, "\n[{table}]");
            keys.iter().for_each(|(key, value)| line!(text, "{key} = {value}"));
        }
    }
    ipv6(&mut text, &plan.ipv6);
    softwires(&mut text, &plan.softwires, bindings);
    plan.statics.iter().for_each(|fixed| static_mapping(&mut text, fixed));
    plan.rules.iter().for_each(|one| rule(&mut text, one, &plan.pools));
    remarks(&mut text, plan);
    text
}

fn side(text: &mut String, name: &str, side: &Side, missing: &str) {
    line!(text, "\n[{name}]");
    match side.device.as_deref() {
        Some(device) if is_device(device) => {
            line!(text, "device = {}", quoted(device));
        }
        Some(device) => {
            line!(text, "# It was {}: write the kernel's name of the device.", comment(device));
            line!(text, "device = \"{missing}\"");
        }
        None => {
            line!(text, "# The file does not say which device it is: write its name.");
            line!(text, "device = \"{missing}\"");
        }
    }
    if let Some((address, len)) = side.address {
        line!(text, "address = \"{}/{len}\"", Ipv4Addr::from_bits(address));
    }
    if let Some(gateway) = side.gateway {
        line!(text, "gateway = \"{}\"", Ipv4Addr::from_bits(gateway));
    }
    if let Some((address, len)) = side.address6 {
        line!(text, "address6 = \"{}/{len}\"", Ipv6Addr::from_bits(address));
    }
    if let Some(gateway) = side.gateway6 {
        line!(text, "gateway6 = \"{}\"", Ipv6Addr::from_bits(gateway));
    }
    side.keys.iter().for_each(|(key, value)| line!(text, "{key} = {value}"));
}

/// True if the kernel may have a device of that name: 15 bytes at most, without space, `/` and `:`,
/// which the addresses of PCI devices have.
fn is_device(name: &str) -> bool {
    let is_wrong = |one: char| one.is_whitespace() || one.is_control() || matches!(one, '/' | ':');
    (1..=15).contains(&name.len()) && !name.contains(is_wrong) && !matches!(name, "." | "..")
}

fn pool(text: &mut String, pool: &Pool) {
    line!(text, "");
    origin(text, &pool.origin);
    line!(text, "[[pool]]");
    line!(text, "name = {}", quoted(&pool.name));
    line!(text, "addresses = {}", list(&pool.addresses));
    if let Some(ports) = pool.ports {
        line!(text, "ports = \"{ports}\"");
    }
    if !pool.subscribers.is_empty() {
        line!(text, "allocation = \"deterministic\"");
        line!(text, "subscribers = {}", list(&pool.subscribers));
    }
}

fn nat(text: &mut String, plan: &Plan) {
    if plan.nat.is_empty() && plan.subscribers.is_empty() {
        return;
    }
    line!(text, "\n[nat]");
    if !plan.subscribers.is_empty() {
        line!(text, "subscribers = {}", list(prefixes(&plan.subscribers)));
    }
    plan.nat.iter().for_each(|(key, value)| line!(text, "{key} = {value}"));
}

/// Writes the tables of IPv6.
fn ipv6(text: &mut String, ipv6: &Plan6) {
    let keys = |text: &mut String, keys: &BTreeMap<&'static str, String>| {
        keys.iter().for_each(|(key, value)| line!(text, "{key} = {value}"));
    };
    if !ipv6.keys.is_empty() {
        line!(text, "\n[ipv6]");
        keys(text, &ipv6.keys);
    }
    for (name, prefixes, more) in [
        ("nat64", &ipv6.stateful, &ipv6.stateful_keys),
        ("siit", &ipv6.stateless, &ipv6.stateless_keys),
    ] {
        let is_siit = name == "siit";
        if prefixes.is_empty() && !(is_siit && ipv6.has_siit()) {
            continue;
        }
        line!(text, "");
        prefixes.iter().for_each(|(_, from)| origin(text, from));
        line!(text, "[{name}]");
        if !prefixes.is_empty() {
            line!(text, "prefixes = {}", list(prefixes.iter().map(|(prefix, _)| prefix)));
        }
        if is_siit && !ipv6.sources.is_empty() {
            line!(text, "icmp_source = {}", list(&ipv6.sources));
        }
        keys(text, more);
    }
    for map in &ipv6.maps {
        line!(text, "");
        origin(text, &map.origin);
        line!(text, "[[siit.map]]\nipv6 = \"{}\"\nipv4 = \"{}\"", map.ipv6, map.ipv4);
    }
}

/// Writes the tables of softwires.
fn softwires(text: &mut String, softwires: &Softwires, bindings: &str) {
    let address = |bits: u128| Ipv6Addr::from_bits(bits);
    if let Some(aftr) = &softwires.aftr {
        line!(text, "");
        origin(text, &aftr.origin);
        line!(text, "[dslite]\naddress = \"{}\"", address(aftr.address));
        line!(text, "b4 = {}", list(&aftr.b4));
    }
    if let Some(own) = softwires.address {
        let count = softwires.bindings.len();
        let what = if count == 1 { "binding" } else { "bindings" };
        line!(text, "\n# Its file has {count} {what}.");
        line!(text, "[lw4o6]\naddress = \"{}\"\nbindings = {}", address(own), quoted(bindings));
        softwires.keys.iter().for_each(|(key, value)| line!(text, "{key} = {value}"));
    }
    softwires.domains.iter().for_each(|one| domain(text, one));
}

fn domain(text: &mut String, domain: &Domain) {
    line!(text, "");
    origin(text, &domain.origin);
    let (mode, end) = match domain.end {
        End::Relay(br) => ("encapsulation", format!("br = \"{}\"", Ipv6Addr::from_bits(br))),
        End::Prefix(prefix) => ("translation", format!("dmr = \"{prefix}\"")),
    };
    line!(text, "[[map]]\nmode = \"{mode}\"");
    line!(text, "ipv6 = \"{}\"\nipv4 = \"{}\"", domain.ipv6, domain.ipv4);
    line!(text, "ea_length = {}\npsid_offset = {}", domain.ea, domain.offset);
    if let Some((len, psid)) = domain.psid {
        line!(text, "psid_length = {len}\npsid = {psid}");
    }
    line!(text, "{end}");
    if let Some(mtu) = domain.mtu {
        line!(text, "mtu = {mtu}");
    }
}

fn static_mapping(text: &mut String, fixed: &Static) {
    line!(text, "");
    origin(text, &fixed.origin);
    line!(text, "[[static]]");
    let endpoint = |address: u32, ports: Option<Ports>| {
        let address = Ipv4Addr::from_bits(address);
        ports.map_or_else(|| format!("\"{address}\""), |ports| format!("\"{address}:{ports}\""))
    };
    if fixed.servers.is_empty() {
        line!(text, "internal = {}", endpoint(fixed.internal.0, fixed.internal.1));
    } else {
        line!(text, "servers = [");
        for (address, port, weight) in &fixed.servers {
            let address = Ipv4Addr::from_bits(*address);
            line!(text, "    {{ internal = \"{address}:{port}\", weight = {weight} }},");
        }
        line!(text, "]");
    }
    line!(text, "external = {}", endpoint(fixed.external.0.unwrap_or_default(), fixed.external.1));
    if let Some(protocol) = fixed.protocol {
        line!(text, "protocol = \"{protocol}\"");
    }
    match fixed.way {
        _ if !fixed.servers.is_empty() => {}
        Way::Both => {}
        Way::Inbound => line!(text, "direction = \"inbound\""),
        Way::Outbound => line!(text, "direction = \"outbound\""),
    }
}

fn rule(text: &mut String, rule: &Rule, pools: &[Pool]) {
    line!(text, "");
    origin(text, &rule.origin);
    line!(text, "[[rule]]");
    let what = if rule.is_source { "source" } else { "destination" };
    let port = if rule.port == 0 { String::new() } else { format!(", port = {}", rule.port) };
    let matches = format!("match = {{ {what} = \"{}\"{port} }}", rule.prefix);
    match &rule.kind {
        Kind::Snat(number) => {
            let name = pools.get(*number).map_or("default", |pool| &pool.name);
            line!(text, "kind = \"snat\"\n{matches}\npool = {}", quoted(name));
        }
        Kind::Address(address) => {
            let address = Ipv4Addr::from_bits(*address);
            line!(text, "kind = \"snat\"\n{matches}\naddress = \"{address}\"");
        }
        Kind::Bypass => line!(text, "kind = \"bypass\"\n{matches}"),
        Kind::Drop => line!(text, "kind = \"drop\"\n{matches}"),
        Kind::Dnat(address, port) => {
            let address = Ipv4Addr::from_bits(*address);
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            line!(text, "kind = \"dnat\"\n{matches}\nto = \"{address}{port}\"");
        }
    }
    if rule.priority != 0 {
        line!(text, "priority = {}", rule.priority);
    }
}

fn remarks(text: &mut String, plan: &Plan) {
    if plan.remarks.is_empty() {
        return;
    }
    let mut remarks: Vec<_> = plan.remarks.iter().collect();
    remarks.sort_by_key(|remark| remark.line);
    line!(text, "\n# What is different now, or has no equivalent:");
    for remark in remarks {
        let what = match remark.grade {
            Grade::Differs => "differs",
            Grade::Without => "no equivalent",
            Grade::Lost => "lost",
        };
        line!(text, "#\n# line {}, {what}: {}", remark.line, comment(&remark.text));
        line!(text, "#     {}", comment(&remark.message));
    }
}

/// Writes the origin of an entry.
fn origin(text: &mut String, origin: &Origin) {
    if origin.line > 0 {
        line!(text, "# line {}: {}", origin.line, comment(&origin.text));
    }
}

/// Replaces characters that a comment may not have.
fn comment(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// A string in TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for one in text.chars() {
        match one {
            '"' | '\\' => quoted.extend(['\\', one]),
            one if one.is_control() => quoted.push(' '),
            one => quoted.push(one),
        }
    }
    quoted + "\""
}

fn list(values: impl IntoIterator<Item: Display>) -> String {
    let shown: Vec<String> = values.into_iter().map(|value| format!("\"{value}\"")).collect();
    match shown.len() {
        0..=6 => format!("[{}]", shown.join(", ")),
        _ => format!("[\n    {},\n]", shown.join(",\n    ")),
    }
}

/// The ranges as prefixes; some keys accept nothing else.
fn prefixes(ranges: &[Range]) -> Vec<Range> {
    ranges.iter().flat_map(|range| range.prefixes()).collect()
}
