//! Other tables of the configuration that claim what a binding of lw4o6 has, for bindings that come
//! while the gateway runs. The check of a whole file names lines; this check names addresses.

use super::softwires::ROUTED;
use super::values::show_prefix;
use natgate_engine::{AddressRange, Prefix};
use natgate_gateway::Settings;
use natgate_ipv6::softwire::{Binding, Domains, MapMode, MapRule};
use std::net::Ipv6Addr;

/// What the settings claim besides bindings.
pub struct Rivals {
    external: Vec<AddressRange>,
    domains: Option<Domains>,
    /// Ends of tunnels of other mechanisms.
    ends: Vec<Ipv6Addr>,
    /// The network of the outside, where the gateway answers no ARP for customers.
    outside: Option<Prefix>,
}

impl Rivals {
    /// The claims of settings.
    pub fn of(settings: &Settings) -> Self {
        let rules: Vec<MapRule> = settings.ipv6.map.iter().map(|map| map.rule).collect();
        let relays = rules.iter().filter_map(|rule| match rule.parameters().mode {
            MapMode::Encapsulation(br) => Some(br),
            MapMode::Translation(_) => None,
        });
        let aftr = settings.ipv6.dslite.iter().map(|dslite| dslite.address);
        Self {
            external: settings.engine.external_ranges(),
            ends: relays.chain(aftr).collect(),
            domains: Domains::new(&rules, [0; 32]).ok(),
            outside: settings.outside.address.map(|(own, len)| Prefix::new(own, len)),
        }
    }

    /// The claim that a binding contradicts, as a sentence.
    pub fn fault(&self, binding: &Binding) -> Option<String> {
        let Binding { ipv4, br, .. } = binding;
        let remedy = "take it out of one of them";
        if self.external.iter().any(|range| (range.first..=range.last).contains(ipv4)) {
            return Some(format!("{ipv4} is an external address too; {remedy}"));
        }
        let of_map = |domains: &Domains| domains.find(ipv4.to_bits()).is_some();
        if self.domains.as_ref().is_some_and(of_map) {
            return Some(format!("{ipv4} is in the ipv4 of a [[map]] too; {remedy}"));
        }
        if let Some(network) = self.outside.filter(|network| network.contains(ipv4.to_bits())) {
            let network = show_prefix(network);
            return Some(format!(
                "{ipv4} is in {network}, the network of outside.address; {ROUTED}"
            ));
        }
        let is_other = self.ends.contains(br);
        is_other.then(|| format!("{br} is the br of a [[map]] or dslite.address too; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const TEXT: &str = "[inside]\ndevice = \"a\"\naddress6 = \"2001:db8::1/64\"\n\
        [outside]\ndevice = \"b\"\naddress = \"198.51.100.1/24\"\n\
        [[pool]]\naddresses = [\"203.0.113.1\"]\n\
        [dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\n\
        [[map]]\nmode = \"encapsulation\"\nipv6 = \"2001:db8:8000::/40\"\nipv4 = \"192.0.2.0/24\"\n\
        ea_length = 16\npsid_offset = 6\nbr = \"2001:db8:ffff::3\"\n";

    #[test]
    fn a_binding_has_nothing_of_other_tables() {
        let settings = config::parse(TEXT, "natgate.toml").expect("a good file");
        let rivals = Rivals::of(&settings);
        let fault = |line: &str| {
            let own = "2001:db8:ffff::2".parse().expect("an address");
            rivals.fault(&config::parse_binding(line, own).expect("a binding")).unwrap_or_default()
        };
        assert_eq!(fault("203.0.113.7,0,6,1,2001:db8:b4::1"), "");
        for (line, said) in [
            ("203.0.113.1,0,6,1,2001:db8:b4::1", "203.0.113.1 is an external address"),
            ("192.0.2.7,0,6,1,2001:db8:b4::1", "192.0.2.7 is in the ipv4 of a [[map]]"),
            (
                "198.51.100.9,0,6,1,2001:db8:b4::1",
                "198.51.100.9 is in 198.51.100.0/24, the network of outside.address",
            ),
            ("198.51.100.1,0,0,0,2001:db8:b4::1", "198.51.100.1 is in 198.51.100.0/24"),
            ("203.0.113.7,0,6,1,2001:db8:b4::1,2001:db8:ffff::1", "2001:db8:ffff::1 is the br"),
            ("203.0.113.7,0,6,1,2001:db8:b4::1,2001:db8:ffff::3", "2001:db8:ffff::3 is the br"),
        ] {
            assert!(fault(line).starts_with(said), "{line}: {}", fault(line));
        }
    }
}
