//! tayga's configuration, tayga.conf.
//!
//! tayga translates without state. Its prefix and its maps become `[siit]`. Hosts without a map
//! get addresses of a dynamic pool, one each. natgate has no such pool. Without maps, the dynamic
//! pool becomes one of NAT64, whose hosts share its addresses; beside maps it is lost, because
//! `[nat64]` and `[siit]` cannot have one prefix.

use crate::ImportError;
use crate::address::{Range, address};
use crate::jool::boolean;
use crate::plan::{Origin, Plan};
use crate::plan6::Prefix6;

/// Words that begin the lines by which a file is known as tayga's.
const KEYS: [&str; 8] = [
    "tun-device",
    "ipv4-addr",
    "ipv6-addr",
    "prefix",
    "dynamic-pool",
    "map",
    "offlink-mtu",
    "udp-cksum-mode",
];

/// True if a line is one of tayga's.
pub(crate) fn has_line(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let key = words.next().unwrap_or_default();
    let value = words.next().unwrap_or_default();
    match key {
        "tun-device" | "ipv4-addr" | "ipv6-addr" | "dynamic-pool" => !value.is_empty(),
        "prefix" => Prefix6::parse(value).is_some(),
        _ => false,
    }
}

#[derive(Default)]
struct Tayga {
    prefix: Option<(String, Origin)>,
    pool: Option<(Range, Origin)>,
    maps: Vec<(String, String, Origin)>,
    /// Own addresses.
    ipv4: Option<(u32, Origin)>,
    ipv6: Option<(Prefix6, Origin)>,
    is_lax: bool,
    /// Treatment of UDP without checksum, as natgate names it.
    zero: Option<&'static str>,
}

pub(crate) fn read(text: &str, plan: &mut Plan) -> Result<(), ImportError> {
    let mut tayga = Tayga::default();
    let mut any = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let origin = Origin::new(number + 1, line);
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [key, values @ ..] = &words[..] {
            any |= KEYS.contains(key);
            tayga.line(key, values, &origin, plan);
        }
    }
    if !any || tayga.prefix.is_none() && tayga.maps.is_empty() {
        return Err(ImportError::Nothing(
            "tayga.conf has lines such as prefix 64:ff9b::/96 or map",
        ));
    }
    tayga.finish(plan);
    Ok(())
}

impl Tayga {
    fn line(&mut self, key: &str, values: &[&str], origin: &Origin, plan: &mut Plan) {
        match (key, values) {
            ("tun-device", [_]) => {
                let message = "is tayga's device for both families; natgate stands between two: \
                               the inside's has IPv6, the outside's IPv4";
                plan.differs(origin, message);
            }
            ("ipv4-addr", [text]) => match address(text) {
                Some(address) => self.ipv4 = Some((address, origin.clone())),
                None => plan.without(origin, "is no IPv4 address"),
            },
            ("ipv6-addr", [text]) => match Prefix6::parse(text).filter(|one| one.len == 128) {
                Some(address) => self.ipv6 = Some((address, origin.clone())),
                None => plan.without(origin, "is no IPv6 address"),
            },
            ("prefix", [text]) => self.prefix = Some(((*text).to_owned(), origin.clone())),
            ("dynamic-pool", [text]) => match Range::parse(text) {
                Some(range) => self.pool = Some((range, origin.clone())),
                None => plan.lost(origin, "has no prefix of IPv4 addresses"),
            },
            ("map", [ipv4, ipv6]) => {
                self.maps.push(((*ipv4).to_owned(), (*ipv6).to_owned(), origin.clone()));
            }
            ("map-file", _) => {
                let message = "has further maps: append that file to this one and convert again";
                plan.lost(origin, message);
            }
            ("offlink-mtu", [text]) => match text.parse::<u16>() {
                Ok(1280) => {}
                Ok(mtu @ 1281..) => {
                    plan.ipv6.keys.insert("lowest_mtu", mtu.to_string());
                }
                _ => plan.without(origin, "is no length from 1280 to 65535"),
            },
            ("udp-cksum-mode", [mode]) => match *mode {
                "drop" => self.zero = Some("drop"),
                "calc" => self.zero = Some("compute"),
                "fwd" => self.zero = Some("forward"),
                _ => plan.without(origin, "is none of drop, calc and fwd"),
            },
            ("wkpf-strict", [text]) if boolean(text).is_some() => {
                self.is_lax = boolean(text) == Some(false);
            }
            ("log", _) => plan.without(origin, "has no counterpart here; write [[log]]"),
            ("tun-ip" | "tun-route" | "tun-up", _) => {
                let message = "is about tayga's own device, which natgate does not need";
                plan.unneeded(origin, message);
            }
            ("map" | "prefix" | "dynamic-pool", _) => {
                plan.lost(origin, "has not the values that tayga's line has");
            }
            _ => plan.without(origin, "has no counterpart in natgate"),
        }
    }

    fn finish(mut self, plan: &mut Plan) {
        let is_stateful = self.pool.is_some() && self.maps.is_empty() && self.prefix.is_some();
        if let Some((prefix, origin)) = &self.prefix {
            plan.prefix6(is_stateful, prefix, origin);
        }
        for (ipv4, ipv6, origin) in &self.maps {
            plan.map6(ipv4, ipv6, origin);
        }
        if let Some((range, origin)) = self.pool.take() {
            match is_stateful {
                true => self.share(range, &origin, plan),
                false => {
                    let message = "gives hosts without a map an address each; beside maps natgate \
                                   does not: map these hosts, or give them [nat64] with another \
                                   prefix";
                    plan.lost(&origin, message);
                }
            }
        }
        let ipv6 = &mut plan.ipv6;
        let keys = if is_stateful { &mut ipv6.stateful_keys } else { &mut ipv6.stateless_keys };
        if self.is_lax {
            keys.insert("non_global", "\"translate\"".to_owned());
        }
        let zero = self.zero.unwrap_or("drop");
        if zero != "compute" {
            ipv6.keys.insert("udp_checksum_zero", format!("\"{zero}\""));
        }
        self.sources(is_stateful, plan);
    }

    /// Has hosts share the addresses of the dynamic pool.
    fn share(&self, range: Range, origin: &Origin, plan: &mut Plan) {
        let message = "gives each host an address of its own; with [nat64] hosts share the \
                       addresses, and hosts outside do not reach them first";
        plan.differs(origin, message);
        let taken = [Some(range.first), self.ipv4.as_ref().map(|(address, _)| *address)];
        let mut left = vec![range];
        for address in taken.into_iter().flatten().map(Range::of) {
            left = left.into_iter().flat_map(|part: Range| part.without(address)).collect();
        }
        if left.is_empty() || !range.is_usable() {
            let message = format!("{range} has no addresses that hosts can have");
            return plan.lost(origin, message);
        }
        plan.pool(&left, None, origin);
    }

    /// Has errors come from tayga's own addresses.
    fn sources(&self, is_stateful: bool, plan: &mut Plan) {
        let ipv4 = self.ipv4.as_ref().map(|(address, origin)| (origin, Range::of(*address), None));
        let ipv6 = self.ipv6.as_ref();
        let ipv6 = ipv6.map(|(address, origin)| (origin, Range::ALL, Some(*address)));
        for (origin, range, address) in ipv4.into_iter().chain(ipv6) {
            if is_stateful {
                let message = "answers pings and sends errors; natgate does so from the addresses \
                               of its sides: write [outside] address and [inside] address6";
                plan.without(origin, message);
                continue;
            }
            let message = "sends errors from now on, and answers no ping: the addresses of \
                           [inside] and [outside] do";
            plan.differs(origin, message);
            match address {
                Some(address) => plan.sources6(address, origin),
                None => plan.sources4(range, origin),
            }
        }
    }
}
