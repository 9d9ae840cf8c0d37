//! VPP's MAP: `map add domain`, `map add rule`, `map interface` and `map params`; and the tunnels
//! of its AFTR.
//!
//! A domain of VPP has customers by their EA bits, or by one rule for each port set of its address.
//! Domains of the second kind are Lightweight 4over6 (RFC 7596): they become bindings. If their end
//! of the tunnels is that of a domain of the first kind too, each rule becomes a domain of its own,
//! because natgate finds the table by that end. Domains whose end is a prefix are MAP-T.

use crate::address::Range;
use crate::plan::{MOST_ENTRIES, Origin, Plan};
use crate::plan6::Prefix6;
use crate::softwires::{Aftr, Binding, Division, Domain, End, is_host};
use std::collections::HashSet;

/// A domain as VPP has it.
struct VppDomain {
    ipv4: Range,
    ipv6: Prefix6,
    end: End,
    ea: u8,
    offset: u64,
    psid_len: u64,
    mtu: Option<u16>,
    rules: Vec<(u16, u128, Origin)>,
    origin: Origin,
}

/// The domains and interfaces of a file.
#[derive(Default)]
pub(crate) struct Maps {
    /// By VPP's index; `None`: a domain that was not understood.
    domains: Vec<Option<VppDomain>>,
    /// Interfaces, and the lines that name them.
    devices: Vec<(String, Origin)>,
}

impl Maps {
    /// Reads the words behind `map`.
    pub(crate) fn line(&mut self, words: &[&str], origin: &Origin, plan: &mut Plan) {
        match words {
            ["add", "domain", rest @ ..] => self.add(rest, origin, plan),
            ["add", "rule", rest @ ..] => self.rule(rest, origin, plan),
            ["interface", _, "del"] | ["interface", _, "map-t", "del"] | ["del", ..] => {
                plan.lost(origin, "takes something away: take out the line that adds it");
            }
            ["interface", device] | ["interface", device, "map-t"] => {
                if self.devices.len() < MOST_ENTRIES {
                    self.devices.push(((*device).to_owned(), origin.clone()));
                }
            }
            ["params", rest @ ..] => parameter(rest, origin, plan),
            _ => plan.without(origin, "has no counterpart in natgate"),
        }
    }

    fn add(&mut self, words: &[&str], origin: &Origin, plan: &mut Plan) {
        if self.domains.len() >= MOST_ENTRIES {
            let message = format!("is one more than the {MOST_ENTRIES} domains that are imported");
            return plan.lost(origin, message);
        }
        let domain = domain(words, origin, plan);
        if let Err(message) = &domain {
            plan.lost(origin, message.clone());
        }
        self.domains.push(domain.ok());
    }

    /// Reads `index 2 psid 1 ip6-dst 2001:db8::1`.
    fn rule(&mut self, words: &[&str], origin: &Origin, plan: &mut Plan) {
        let value = |key| words.chunks(2).find(|pair| pair[0] == key).and_then(|pair| pair.get(1));
        let index = value("index").and_then(|text| text.parse::<usize>().ok());
        let psid = value("psid").and_then(|text| text.parse::<u16>().ok());
        let host = value("ip6-dst").and_then(|text| Prefix6::parse(text));
        let (Some(index), Some(psid), Some(host)) = (index, psid, host) else {
            return plan.lost(origin, "has no index, psid and ip6-dst");
        };
        match self.domains.get_mut(index) {
            Some(Some(domain)) => domain.rules.push((psid, host.first, origin.clone())),
            Some(None) => plan.lost(origin, "is of a domain that is lost"),
            None => {
                let message = "is of a domain that is not in the file; VPP numbers them from 0";
                plan.lost(origin, message);
            }
        }
    }

    /// Brings all domains into the plan. The sides are told by the addresses of interfaces: the
    /// inside has IPv6, the outside IPv4.
    pub(crate) fn finish(self, has4: &HashSet<&str>, has6: &HashSet<&str>, plan: &mut Plan) {
        for (device, origin) in self.devices {
            let side = match (has4.contains(&*device), has6.contains(&*device)) {
                (true, false) => &mut plan.outside,
                (false, true) => &mut plan.inside,
                _ => {
                    let message = "is no side of natgate by its addresses: the inside has IPv6, \
                                   the outside IPv4; write inside.device and outside.device";
                    plan.differs(&origin, message);
                    continue;
                }
            };
            match &side.device {
                Some(known) if *known != device => {
                    let message = "is a further interface of that side, and natgate has one";
                    plan.lost(&origin, message);
                }
                _ => side.device = Some(device),
            }
        }
        let domains: Vec<VppDomain> = self.domains.into_iter().flatten().collect();
        let by_bits = domains.iter().filter(|one| !one.is_bound());
        let relays: Vec<End> = by_bits.map(|one| one.end).collect();
        for domain in domains {
            let is_shared = relays.contains(&domain.end);
            settle(domain, is_shared, plan);
        }
    }
}

impl VppDomain {
    /// True if bindings say who the customers are: rules, or one address for one tunnel.
    fn is_bound(&self) -> bool {
        let is_one = self.ipv4.single().is_some() && self.ea == 0 && self.psid_len == 0;
        !self.rules.is_empty() || is_one && self.ipv6.len == 128
    }
}

/// Reads `ip4-pfx P ip6-pfx P ip6-src A ea-bits-len N psid-offset N psid-len N mtu N tag T`.
fn domain(words: &[&str], origin: &Origin, plan: &mut Plan) -> Result<VppDomain, String> {
    let (mut ipv4, mut ipv6, mut end, mut numbers) = (None, None, None, [0_u64; 4]);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "map-t" {
            continue;
        }
        let Some(value) = words.next() else { return Err(format!("has no value of {word}")) };
        let names = ["ea-bits-len", "psid-offset", "psid-len", "mtu"];
        match *word {
            "tag" => {}
            "ip4-pfx" => ipv4 = Range::parse(value).filter(|range| range.len().is_some()),
            "ip6-pfx" => ipv6 = Prefix6::parse(value),
            "ip6-src" => end = Prefix6::parse(value),
            word => match names.iter().position(|name| *name == word) {
                Some(place) => {
                    let number = value.parse::<u64>().ok().filter(|number| *number <= 65_535);
                    numbers[place] = number.ok_or(format!("{value} is no number of {word}"))?;
                }
                None => return Err(format!("`{word}` has no counterpart in natgate")),
            },
        }
    }
    let (Some(ipv4), Some(ipv6), Some(end)) = (ipv4, ipv6, end) else {
        return Err("has no prefixes ip4-pfx and ip6-pfx with an end ip6-src".to_owned());
    };
    let [ea, offset, psid_len, mtu] = numbers;
    if ea > 48 || offset > 15 || psid_len > 16 {
        return Err("has more bits than MAP: 48 of EA, 15 before a PSID, 16 of PSID".to_owned());
    }
    let mtu = match mtu {
        0 => None,
        1280.. => Some(mtu as u16),
        _ => {
            plan.without(origin, "has an MTU below 1280, that of every link of IPv6");
            None
        }
    };
    let end = if end.len == 128 { End::Relay(end.first) } else { End::Prefix(end) };
    let (ea, rules, origin) = (ea as u8, Vec::new(), origin.clone());
    Ok(VppDomain { ipv4, ipv6, end, ea, offset, psid_len, mtu, rules, origin })
}

/// Brings a domain into the plan. `is_shared`: its end is that of a domain with EA bits too.
fn settle(domain: VppDomain, is_shared: bool, plan: &mut Plan) {
    let VppDomain { ipv4, ipv6, end, ea, offset, psid_len, mtu, rules, origin } = domain;
    let rest = 32 - ipv4.len().unwrap_or_default();
    let psid_bits = u64::from(ea.saturating_sub(rest));
    if rules.is_empty() {
        if psid_bits != psid_len {
            let message = format!(
                "has {ea} EA bits, of which {psid_bits} are a PSID (RFC 7597 section 5.2), and \
                 psid-len {psid_len}: which port set a customer has is not said"
            );
            return plan.lost(&origin, message);
        }
        let whole = Division::new(0, 0);
        if let (Some(address), End::Relay(br), Some(division), 0, 128, false) =
            (ipv4.single(), end, whole, ea, ipv6.len, is_shared)
        {
            let (psid, b4) = (0, ipv6.first);
            mtu_of_all(mtu, &origin, plan);
            return plan.binding(Binding { ipv4: address, division, psid, b4, br, origin });
        }
        let (offset, psid) = (offset as u8, None);
        return plan.domain(Domain { ipv6, ipv4, ea, offset, psid, end, mtu, origin });
    }
    let (Some(address), Some(division), 0) = (ipv4.single(), Division::new(offset, psid_len), ea)
    else {
        let message = "has rules, and they need one address, ea-bits-len 0 and a PSID that fits";
        return plan.lost(&origin, message);
    };
    match end {
        End::Relay(_) if !is_shared => mtu_of_all(mtu, &origin, plan),
        _ => {}
    }
    for (psid, b4, origin) in rules {
        match end {
            End::Relay(br) if !is_shared => {
                plan.binding(Binding { ipv4: address, division, psid, b4, br, origin });
            }
            _ if u64::from(psid) >= 1 << division.len => {
                let message = format!("PSID {psid} does not fit into {} bits", division.len);
                plan.lost(&origin, message);
            }
            _ => {
                let ipv6 = Prefix6 { first: b4, len: 128 };
                let (offset, psid) = (division.offset, Some((division.len, psid)));
                plan.domain(Domain { ipv6, ipv4, ea: 0, offset, psid, end, mtu, origin });
            }
        }
    }
}

/// Takes the MTU of a domain for `[lw4o6]`, which has one: the smallest.
fn mtu_of_all(mtu: Option<u16>, origin: &Origin, plan: &mut Plan) {
    let Some(mtu) = mtu else { return };
    let known = plan.softwires.keys.get("mtu").and_then(|known| known.parse::<u16>().ok());
    if known.is_some_and(|known| known != mtu) {
        plan.differs(origin, "has an MTU of its own: lw4o6.mtu is the smallest of all");
    }
    let mtu = known.map_or(mtu, |known| known.min(mtu));
    plan.softwires.keys.insert("mtu", mtu.to_string());
}

/// Reads the words behind `map params`.
fn parameter(words: &[&str], origin: &Origin, plan: &mut Plan) {
    match words {
        ["fragment", "outer", "honor-df"] | ["traffic-class", "copy"] => {}
        ["fragment", "inner", ..] | ["fragment", _, "ignore-df"] => {
            let message = "cuts inner packets, or packets that must not be cut; natgate cuts the \
                           outer ones, and answers packets that must not be cut";
            plan.differs(origin, message);
        }
        ["traffic-class", _] => {
            let message = "is one traffic class of all packets; natgate copies that of the packet";
            plan.differs(origin, message);
        }
        ["security-check", rest @ ..] => {
            if rest.iter().any(|word| matches!(*word, "off" | "disable")) {
                let message = "leaves sources unchecked; natgate checks the customer's address and \
                               port set, of fragments too";
                plan.differs(origin, message);
            }
        }
        ["icmp6", "unreachables", "on"] => {}
        ["icmp6", "unreachables", "off"] | ["icmp6-unreachables", "off"] => {
            plan.softwires.keys.insert("icmp_errors", "false".to_owned());
            let message = "is lw4o6.icmp_errors; natgate answers what matches no domain of [[map]]";
            plan.differs(origin, message);
        }
        ["icmp", "source-address", _] | ["icmp-source-address", _] => {
            plan.differs(origin, "is outside.address, from which natgate sends ICMP errors");
        }
        ["tcp-mss", size] => match size.parse::<u16>() {
            Ok(size @ 536..=65_495) => {
                plan.nat.insert("tcp_mss", size.to_string());
            }
            _ => plan.without(origin, "is no size from 536 to 65495"),
        },
        ["pre-resolve", ..] => {
            let message = "is a next hop without a route: write gateway, gateway6 or [[route]]";
            plan.without(origin, message);
        }
        ["reassembly", ..] => {
            plan.unneeded(origin, "bounds reassembly; see limits.fragment_memory");
        }
        _ => plan.without(origin, "has no counterpart in natgate"),
    }
}

/// Reads the words behind `dslite`, of all but the pool.
pub(crate) fn aftr(words: &[&str], origin: &Origin, plan: &mut Plan) {
    match words {
        ["set", "aftr-tunnel-endpoint-address", text] => {
            let end = Prefix6::parse(text).filter(|end| end.len == 128 && is_host(end.first));
            let Some(end) = end else {
                return plan.lost(origin, "is no IPv6 address of a host");
            };
            // All addresses that hosts beyond the link can have.
            let b4 = [Prefix6 { first: 1 << 125, len: 3 }, Prefix6 { first: 0xfc << 120, len: 7 }];
            let message = "takes tunnels from everywhere, and so does dslite.b4: write the \
                           prefixes of your customers";
            plan.differs(origin, message);
            let (address, b4, origin) = (end.first, b4.to_vec(), origin.clone());
            plan.softwires.aftr = Some(Aftr { address, b4, origin });
        }
        ["set", "b4-tunnel-endpoint-address", ..] => {
            let message = "makes VPP the customer's end (B4), and natgate is the other one";
            plan.lost(origin, message);
        }
        _ => plan.without(origin, "has no counterpart in natgate"),
    }
}
