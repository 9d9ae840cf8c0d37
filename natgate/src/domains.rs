//! `natgate domains`: the domains of MAP and the relay of lw4o6 as the customers' equipment needs
//! them, as DHCPv6 options (RFC 7598) for Kea.

use crate::Failure;
use anyhow::Context;
use natgate_cli::NO_OUTPUT;
use natgate_control::config;
use natgate_gateway::Settings;
use natgate_gateway::ipv6::Prefix6;
use natgate_gateway::ipv6::softwire::{MapMode, MapRule};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// Default place of the configuration, as the service has it.
const CONFIG: &str = "/etc/natgate/natgate.toml";

const AFTER_HELP: &str = "\
With --kea, standard output has a piece of a configuration for Kea's DHCPv6 server: for each domain
of MAP a subnet that delegates the prefixes of customers, with the options of RFC 7598: the rule,
the port parameters, and the address of the border relay or the default mapping rule. With lw4o6,
its relay is an option for all clients. Each other relay of the file of bindings (br) is a class of
clients, lw4o6-ADDRESS, with that relay. Which binding, and which class, a client gets is a matter
of the server's reservations (option s46-v4v6bind, client-classes).

Customers send packets for other customers to the gateway, unless --mesh says that rules are
forwarding mapping rules, too.

Examples:
natgate domains -c natgate.toml
natgate domains --kea -c natgate.toml > softwires.json";

/// Print the domains of MAP for the customers' equipment
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Print DHCPv6 options for Kea (RFC 7598)
    #[arg(long)]
    kea: bool,
    /// Customers use the rules to reach each other directly
    #[arg(long, requires = "kea")]
    mesh: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let settings = config::load(&args.config).map_err(Failure::Input)?;
    if settings.ipv6.lw4o6.is_none() && settings.ipv6.map.is_empty() {
        let name = args.config.display();
        return Err(Failure::Input(vec![format!("{name}: has neither [[map]] nor [lw4o6]")]));
    }
    let text = match args.kea {
        true => serde_json::to_string_pretty(&kea(&settings, args.mesh)).context(NO_OUTPUT)?,
        false => list(&settings),
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).context(NO_OUTPUT)?;
    Ok(out.flush().context(NO_OUTPUT)?)
}

/// One line for each domain.
fn list(settings: &Settings) -> String {
    let relay =
        settings.ipv6.lw4o6.iter().map(|lw4o6| {
            format!("lw4o6 to {}: {} bindings\n", lw4o6.address, lw4o6.bindings.len())
        });
    let rules = settings.ipv6.map.iter().map(|map| {
        let parameters = map.rule.parameters();
        let (kind, end) = match parameters.mode {
            MapMode::Encapsulation(br) => ("MAP-E", br.to_string()),
            MapMode::Translation(dmr) => ("MAP-T", dmr.to_string()),
        };
        let (prefix, len) = (Ipv4Addr::from_bits(parameters.ipv4.first()), parameters.ipv4.len());
        let (ea, offset) = (parameters.ea_length, parameters.psid_offset);
        format!(
            "{kind} to {end}: {prefix}/{len} in {}, {ea} EA bits, offset {offset}\n",
            parameters.ipv6
        )
    });
    relay.chain(rules).collect()
}

/// A piece of Kea's configuration.
fn kea(settings: &Settings, mesh: bool) -> Value {
    let subnets = (1..).zip(&settings.ipv6.map);
    let subnets: Vec<Value> =
        subnets.map(|(number, map)| subnet(number, &map.rule, mesh)).collect();
    let mut object = json!({ "Dhcp6": {} });
    if !subnets.is_empty() {
        object["Dhcp6"]["subnet6"] = subnets.into();
    }
    if let Some(lw4o6) = &settings.ipv6.lw4o6 {
        object["Dhcp6"]["option-data"] = relay(lw4o6.address);
        let others = lw4o6.bindings.brs().iter().map(|br| Ipv6Addr::from_bits(*br));
        let others = others.filter(|br| *br != lw4o6.address);
        let classes: Vec<Value> = others
            .map(|br| json!({ "name": format!("lw4o6-{br}"), "option-data": relay(br) }))
            .collect();
        if !classes.is_empty() {
            object["Dhcp6"]["client-classes"] = classes.into();
        }
    }
    object
}

fn option(space: &str, name: &str, data: String) -> Value {
    json!({ "space": space, "name": name, "data": data })
}

/// The subnet of a domain: the prefixes of its customers, and the options.
//= rfc7598#section-5.1-map-e
//= rfc7598#section-5.2-map-t
fn subnet(number: usize, rule: &MapRule, mesh: bool) -> Value {
    let parameters = rule.parameters();
    let (container, end) = match parameters.mode {
        MapMode::Encapsulation(br) => ("s46-cont-mape", ("s46-br", br.to_string())),
        MapMode::Translation(dmr) => ("s46-cont-mapt", ("s46-dmr", dmr.to_string())),
    };
    let space = format!("{container}-options");
    let ipv4 = Ipv4Addr::from_bits(parameters.ipv4.first());
    let (ea, len) = (parameters.ea_length, parameters.ipv4.len());
    // The last bit says that the rule is for forwarding, too.
    let flags = u8::from(mesh);
    //= rfc7598#section-4.1-rule
    let data = format!("{flags}, {ea}, {len}, {ipv4}, {}", parameters.ipv6);
    //= rfc7598#section-4.5-parameters
    let ports = match rule.own_psid() {
        Some(psid) => format!("{}, {psid}/{}", parameters.psid_offset, rule.sets().bits()),
        None => format!("{}, 0/0", parameters.psid_offset),
    };
    let Prefix6 { len: rule_len, .. } = parameters.ipv6;
    let delegated = rule_len + ea;
    let mut object = json!({
        "id": number,
        "subnet": parameters.ipv6.to_string(),
        "option-data": [
            { "name": container, "space": "dhcp6" },
            option(&space, "s46-rule", data),
            option("s46-rule-options", "s46-portparams", ports),
            option(&space, end.0, end.1),
        ],
    });
    object["pd-pools"] = json!([{
        "prefix": parameters.ipv6.first(),
        "prefix-len": rule_len,
        "delegated-len": delegated,
    }]);
    object
}

/// The options of clients of lw4o6 with this relay.
//= rfc7598#section-5.3-lw4o6
fn relay(address: Ipv6Addr) -> Value {
    json!([
        { "name": "s46-cont-lw", "space": "dhcp6" },
        option("s46-cont-lw-options", "s46-br", address.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_gateway::ipv6::softwire::{Binding, BindingTable, PortSets};
    use std::sync::Arc;

    /// Two sides, and lw4o6.
    const LW4O6: &str = r#"
[inside]
device = "a"
address6 = "2001:db8:ff::1/64"
[outside]
device = "b"
address = "198.51.100.1/24"
[lw4o6]
address = "2001:db8:ffff::2"
bindings = "bindings.csv"
"#;

    //= test rfc7598#section-4.1-rule
    //= test rfc7598#section-4.5-parameters
    //= test rfc7598#section-5.1-map-e
    //= test rfc7598#section-5.2-map-t
    //= test rfc7598#section-5.3-lw4o6
    #[test]
    fn kea_gets_the_options_of_each_domain() {
        let maps = r#"
[[map]]
mode = "encapsulation"
ipv6 = "2001:db8::/40"
ipv4 = "192.0.2.0/24"
ea_length = 16
br = "2001:db8:ffff::1"
[[map]]
mode = "translation"
ipv6 = "2001:db8:100::/56"
ipv4 = "192.0.3.18"
ea_length = 0
psid_length = 8
psid = 52
dmr = "64:ff9b::/96"
"#;
        let text = format!("{LW4O6}{maps}");
        let settings = config::parse(&text, "t").expect("a good text");
        let all = kea(&settings, false);
        let subnets = &all["Dhcp6"]["subnet6"];
        let data = |subnet: usize, option: usize| &subnets[subnet]["option-data"][option]["data"];
        assert_eq!(data(0, 1), "0, 16, 24, 192.0.2.0, 2001:db8::/40");
        assert_eq!(data(0, 2), "6, 0/0");
        assert_eq!(data(0, 3), "2001:db8:ffff::1");
        assert_eq!(subnets[0]["pd-pools"][0]["delegated-len"], 56);
        assert_eq!(subnets[1]["option-data"][0]["name"], "s46-cont-mapt");
        assert_eq!(data(1, 2), "6, 52/8");
        assert_eq!(data(1, 3), "64:ff9b::/96");
        assert_eq!(all["Dhcp6"]["option-data"][1]["data"], "2001:db8:ffff::2");
        let meshed = kea(&settings, true);
        let rule = &meshed["Dhcp6"]["subnet6"][0]["option-data"][1]["data"];
        assert_eq!(rule, "1, 16, 24, 192.0.2.0, 2001:db8::/40");
        assert_eq!(list(&settings).lines().count(), 3);
    }

    //= test rfc7598#section-5.3-lw4o6
    #[test]
    fn each_further_relay_is_a_class_of_clients() {
        let mut settings = config::parse(LW4O6, "t").expect("a good text");
        assert_eq!(kea(&settings, false)["Dhcp6"]["client-classes"], Value::Null);
        let lw4o6 = settings.ipv6.lw4o6.as_mut().expect("lw4o6");
        let binding = |last, br: &str| Binding {
            ipv4: Ipv4Addr::new(192, 0, 2, last),
            sets: PortSets::WHOLE,
            psid: 0,
            b4: "2001:db8:b4::1".parse().expect("an address"),
            br: br.parse().expect("an address"),
        };
        let bindings = [binding(1, "2001:db8:ffff::2"), binding(2, "2001:db8:ffff::3")];
        let table = BindingTable::new(&bindings, lw4o6.address, 1).expect("good bindings");
        lw4o6.bindings = Arc::new(table);
        let all = kea(&settings, false);
        let classes = all["Dhcp6"]["client-classes"].as_array().expect("classes");
        assert_eq!((classes.len(), &classes[0]["name"]), (1, &json!("lw4o6-2001:db8:ffff::3")));
        assert_eq!(classes[0]["option-data"][1]["data"], "2001:db8:ffff::3");
        assert_eq!(all["Dhcp6"]["option-data"][1]["data"], "2001:db8:ffff::2");
    }
}
