//! Jool's settings, of NAT64 and of SIIT, as its files and its commands have them in common.
//!
//! Values are text here. A prefix waits until the end, because some files say only by their other
//! entries whether it is that of NAT64 or that of SIIT.

use crate::address::{Ports, Range};
use crate::plan::{Origin, Plan};
use crate::plan6::Prefix6;
use std::collections::BTreeMap;

/// Ports that Jool takes if an entry names none, or if there is no entry.
const PORTS: Ports = Ports { first: 61_001, last: 65_535 };

/// The variant of Jool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nat64,
    Siit,
}

/// An entry of external addresses. Jool has one for each protocol and for each range of ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool4<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) ports: Option<&'a str>,
    pub(crate) is_marked: bool,
    pub(crate) has_iterations: bool,
}

pub(crate) struct Jool<'p> {
    pub(crate) plan: &'p mut Plan,
    prefixes: Vec<(Option<Kind>, String, Origin)>,
    pools: BTreeMap<Range, (Ports, Origin)>,
    is_nat64: bool,
    is_siit: bool,
    /// True if UDP without checksum gets one.
    amends: bool,
    overrides_tos: bool,
    tos: Option<(u8, Origin)>,
}

impl<'p> Jool<'p> {
    pub(crate) fn new(plan: &'p mut Plan) -> Self {
        Self {
            plan,
            prefixes: Vec::new(),
            pools: BTreeMap::new(),
            is_nat64: false,
            is_siit: false,
            amends: false,
            overrides_tos: false,
            tos: None,
        }
    }

    /// Notes that an entry belongs to a variant.
    pub(crate) fn is(&mut self, kind: Kind) {
        match kind {
            Kind::Nat64 => self.is_nat64 = true,
            Kind::Siit => self.is_siit = true,
        }
    }

    pub(crate) fn pool6(&mut self, kind: Option<Kind>, text: &str, origin: &Origin) {
        if text != "null" {
            self.prefixes.push((kind, text.to_owned(), origin.clone()));
        }
    }

    pub(crate) fn framework(&mut self, name: &str, origin: &Origin) {
        if name == "iptables" {
            let message = "has rules of iptables choose the packets; natgate translates all \
                           packets that its prefixes, maps and pools name";
            self.plan.differs(origin, message);
        }
    }

    pub(crate) fn pool4(&mut self, entry: Pool4<'_>, origin: &Origin) {
        self.is(Kind::Nat64);
        let Some(range) = Range::parse(entry.prefix) else {
            return self.plan.lost(origin, "has no prefix of IPv4 addresses");
        };
        if !range.is_usable() {
            let message = format!("{range} are no addresses that hosts can have");
            return self.plan.lost(origin, message);
        }
        if entry.is_marked {
            let message = "is for marked packets only; natgate chooses pools by source or \
                           destination ([[rule]])";
            self.plan.differs(origin, message);
        }
        if entry.has_iterations {
            let message = "\"max iterations\" bounds a search that natgate does not make";
            self.plan.without(origin, message);
        }
        let ports = match entry.ports {
            Some(text) => match ports(text) {
                Some(ports) => ports,
                None => return self.plan.lost(origin, format!("{text:?} are no ports")),
            },
            None => PORTS,
        };
        match self.pools.get(&range) {
            Some((known, _)) if *known == ports => {}
            Some((known, _)) => {
                let message = format!(
                    "a pool's ports serve all protocols: {known} stays, of the line that came first"
                );
                self.plan.differs(origin, message);
            }
            None => drop(self.pools.insert(range, (ports, origin.clone()))),
        }
    }

    pub(crate) fn bib(&mut self, origin: &Origin) {
        self.is(Kind::Nat64);
        let message = "gives an IPv6 endpoint inside a fixed external one, and [[static]] takes \
                       IPv4 hosts: hosts outside no longer reach it first";
        self.plan.lost(origin, message);
    }

    pub(crate) fn eam(&mut self, ipv4: &str, ipv6: &str, origin: &Origin) {
        self.is(Kind::Siit);
        // Commands have the two in any order.
        let (ipv4, ipv6) = if ipv4.contains(':') { (ipv6, ipv4) } else { (ipv4, ipv6) };
        self.plan.map6(ipv4, ipv6, origin);
    }

    pub(crate) fn deny(&mut self, origin: &Origin) {
        self.is(Kind::Siit);
        let message = "keeps these addresses from being translated; natgate translates all but \
                       its own and those of pools: write prefixes and maps without them";
        self.plan.lost(origin, message);
    }

    /// Takes a key of `global`.
    pub(crate) fn global(&mut self, kind: Option<Kind>, key: &str, value: &str, origin: &Origin) {
        if let Some(kind) = variant(key) {
            self.is(kind);
        }
        match key {
            "comment" => {}
            "pool6" => self.pool6(kind, value, origin),
            "udp-timeout" => self.timeout(&["udp"], value, origin),
            "icmp-timeout" => self.timeout(&["icmp"], value, origin),
            "tcp-est-timeout" => self.timeout(&["tcp_established"], value, origin),
            "tcp-trans-timeout" => self.timeout(&["tcp_closing", "tcp_opening"], value, origin),
            "lowest-ipv6-mtu" => match value.parse::<u16>() {
                Ok(1280) => {}
                Ok(mtu @ 1281..) => set(&mut self.plan.ipv6.keys, "lowest_mtu", mtu.to_string()),
                _ => self.plan.without(origin, "is no length from 1280 to 65535"),
            },
            "rfc6791v4-prefix" | "rfc6791v6-prefix" => self.sources(value, origin),
            "tos" => match value.parse() {
                Ok(tos) => self.tos = Some((tos, origin.clone())),
                Err(_) => self.plan.without(origin, "is no value from 0 to 255"),
            },
            "eam-hairpin-mode" => self.hairpin(value, origin),
            _ => match boolean(value) {
                Some(value) => self.switch(key, value, origin),
                None => self.other(key, origin),
            },
        }
    }

    fn hairpin(&mut self, value: &str, origin: &Origin) {
        let keys = &mut self.plan.ipv6.stateless_keys;
        match value {
            "none" | "off" | "0" => set(keys, "hairpin", "\"off\"".to_owned()),
            "simple" | "1" => set(keys, "hairpin", "\"simple\"".to_owned()),
            "intrinsic" | "2" => drop(keys.remove("hairpin")),
            _ => self.plan.without(origin, "is none of none, simple and intrinsic"),
        }
    }

    fn timeout(&mut self, names: &[&'static str], value: &str, origin: &Origin) {
        match seconds(value) {
            Some(time) if (1..=30 * 86_400).contains(&time) => {
                let shown = format!("\"{time}s\"");
                let all = names.iter().map(|name| (*name, shown.clone()));
                self.plan.timeouts.extend(all);
            }
            _ => self.plan.without(origin, "is no time between a second and 30 days"),
        }
    }

    fn sources(&mut self, value: &str, origin: &Origin) {
        match (value, Range::parse(value), Prefix6::parse(value)) {
            ("null", ..) => {}
            (_, Some(range), _) => self.plan.sources4(range, origin),
            (_, _, Some(prefix)) => self.plan.sources6(prefix, origin),
            _ => self.plan.without(origin, "is no prefix"),
        }
    }

    /// Takes a key that is on or off.
    fn switch(&mut self, key: &str, is_on: bool, origin: &Origin) {
        match (key, is_on) {
            ("manually-enabled", true)
            | ("address-dependent-filtering" | "drop-externally-initiated-tcp", false)
            | ("drop-icmpv6-info" | "logging-bib" | "logging-session" | "logging-debug", false)
            | ("zeroize-traffic-class" | "ss-enabled", false)
            | ("source-icmpv6-errors-better", true) => {}
            ("manually-enabled", false) => {
                self.plan.differs(origin, "keeps Jool from translating; natgate translates");
            }
            ("address-dependent-filtering", true) => {
                set(&mut self.plan.nat, "filtering", "\"address-dependent\"".to_owned());
            }
            ("drop-externally-initiated-tcp", true) => {
                let filtering = "\"address-and-port-dependent\"".to_owned();
                set(&mut self.plan.nat, "filtering_tcp", filtering);
            }
            ("drop-icmpv6-info", true) => {
                let message = "drops pings of hosts inside; natgate translates them";
                self.plan.lost(origin, message);
            }
            ("zeroize-traffic-class", true) => {
                set(&mut self.plan.ipv6.keys, "traffic_class", "\"zero\"".to_owned());
            }
            ("override-tos", is_on) => self.overrides_tos = is_on,
            ("amend-udp-checksum-zero", is_on) => self.amends = is_on,
            ("source-icmpv6-errors-better", false) => {
                let message = "has errors come from the remote host; natgate names the router";
                self.plan.differs(origin, message);
            }
            ("logging-bib" | "logging-session", true) => {
                let message = format!("`{key}` has no counterpart here; write [[log]]");
                self.plan.without(origin, message);
            }
            _ => self.other(key, origin),
        }
    }

    fn other(&mut self, key: &str, origin: &Origin) {
        match key {
            "maximum-simultaneous-opens"
            | "ss-max-queued-packets"
            | "f-args"
            | "handle-rst-during-fin-rcv"
            | "mtu-plateaus"
            | "randomize-rfc6791-addresses" => {
                self.plan.without(origin, "is settled in natgate (SPECIFICATION.md says how)");
            }
            _ => self.plan.without(origin, format!("`{key}` has no counterpart in natgate")),
        }
    }

    /// Brings all entries into the plan.
    pub(crate) fn finish(mut self) {
        self.settle_prefixes();
        let mut by_ports: BTreeMap<Ports, (Vec<Range>, Origin)> = BTreeMap::new();
        for (range, (ports, origin)) in std::mem::take(&mut self.pools) {
            by_ports.entry(ports).or_insert_with(|| (Vec::new(), origin)).0.push(range);
        }
        if let (true, Some((_, origin))) = (by_ports.is_empty(), self.plan.ipv6.stateful.first()) {
            let origin = origin.clone();
            let addresses = self.plan.own_addresses(&origin);
            by_ports.insert(PORTS, (addresses, origin));
        }
        for (ports, (ranges, origin)) in by_ports {
            self.plan.pool(&ranges, Some(ports), &origin);
        }
        let keys = &mut self.plan.ipv6.keys;
        if let (true, tos) = (self.overrides_tos, &self.tos) {
            set(keys, "tos", tos.as_ref().map_or(0, |(tos, _)| *tos).to_string());
        }
        if !self.amends && self.plan.ipv6.needs_no_pool() {
            set(&mut self.plan.ipv6.keys, "udp_checksum_zero", "\"drop\"".to_owned());
        }
    }

    fn settle_prefixes(&mut self) {
        for (kind, text, origin) in std::mem::take(&mut self.prefixes) {
            let is_stateful = match (kind, self.is_nat64, self.is_siit) {
                (Some(kind), ..) => kind == Kind::Nat64,
                (None, true, _) => true,
                (None, false, true) => false,
                (None, false, false) => {
                    let message = "is taken for NAT64's: nothing else in the file says whether it \
                                   is of jool or of jool_siit";
                    self.plan.differs(&origin, message);
                    true
                }
            };
            self.plan.prefix6(is_stateful, &text, &origin);
        }
    }
}

fn set(keys: &mut BTreeMap<&'static str, String>, key: &'static str, value: String) {
    keys.insert(key, value);
}

/// The variant of Jool that alone has a key.
fn variant(key: &str) -> Option<Kind> {
    match key {
        "amend-udp-checksum-zero"
        | "eam-hairpin-mode"
        | "randomize-rfc6791-addresses"
        | "rfc6791v4-prefix"
        | "rfc6791v6-prefix" => Some(Kind::Siit),
        "address-dependent-filtering"
        | "drop-icmpv6-info"
        | "drop-externally-initiated-tcp"
        | "udp-timeout"
        | "icmp-timeout"
        | "tcp-est-timeout"
        | "tcp-trans-timeout"
        | "maximum-simultaneous-opens"
        | "source-icmpv6-errors-better"
        | "logging-bib"
        | "logging-session"
        | "f-args"
        | "handle-rst-during-fin-rcv" => Some(Kind::Nat64),
        key if key.starts_with("ss-") => Some(Kind::Nat64),
        _ => None,
    }
}

pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Reads a range of ports. ICMP identifiers begin at 0, which natgate does not assign.
fn ports(text: &str) -> Option<Ports> {
    let from_zero = usize::from(text.starts_with("0-"));
    Ports::parse(&text.replacen("0-", "1-", from_zero), '-')
}

/// Reads seconds, or `H:MM:SS` with a fraction.
fn seconds(text: &str) -> Option<u64> {
    let whole = text.split('.').next()?;
    whole
        .split(':')
        .try_fold(0_u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))
}
