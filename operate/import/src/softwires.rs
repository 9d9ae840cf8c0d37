//! The softwire part of the future configuration: bindings of Lightweight 4over6, domains of MAP,
//! and the AFTR of DS-Lite.
//!
//! [`Plan::settle_softwires`] leaves out what natgate would refuse: port sets that do not fit,
//! addresses that no host has, customers that share a port set, tunnels whose end is that of two
//! tables. Each omission is told as lost.

use crate::address::Range;
use crate::plan::{MOST_ENTRIES, Origin, Plan};
use crate::plan6::Prefix6;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most bindings of one file.
const MOST_BINDINGS: usize = 4_000_000;
/// Most ends of tunnels that natgate's bindings may have besides `lw4o6.address`.
const MOST_ENDS: usize = 255;

/// A division of the ports of an address (RFC 7597 section 5.1), bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) offset: u8,
    pub(crate) len: u8,
}

impl Division {
    /// The division, if a port has as many bits. Without sharing the offset does not count.
    pub(crate) fn new(offset: u64, len: u64) -> Option<Self> {
        let fits = len == 0 && offset <= 16 || len <= 16 && offset <= 15 && offset + len <= 16;
        let offset = if len == 0 { 0 } else { offset };
        fits.then_some(Self { offset: offset as u8, len: len as u8 })
    }
}

/// A customer of Lightweight 4over6 (RFC 7596).
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) ipv4: u32,
    pub(crate) division: Division,
    pub(crate) psid: u16,
    pub(crate) b4: u128,
    pub(crate) br: u128,
    pub(crate) origin: Origin,
}

/// The gateway's side of a domain of MAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// MAP-E (RFC 7597): the address of the border relay.
    Relay(u128),
    /// MAP-T (RFC 7599): the prefix of the default mapping rule.
    Prefix(Prefix6),
}

/// A domain of MAP.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) ipv6: Prefix6,
    pub(crate) ipv4: Range,
    pub(crate) ea: u8,
    pub(crate) offset: u8,
    /// Length and value of the only customer's PSID.
    pub(crate) psid: Option<(u8, u16)>,
    pub(crate) end: End,
    pub(crate) mtu: Option<u16>,
    pub(crate) origin: Origin,
}

/// The AFTR of DS-Lite (RFC 6333).
#[derive(Clone, Debug)]
pub(crate) struct Aftr {
    pub(crate) address: u128,
    pub(crate) b4: Vec<Prefix6>,
    pub(crate) origin: Origin,
}

/// All entries about softwires.
#[derive(Debug, Default)]
pub(crate) struct Softwires {
    pub(crate) bindings: Vec<Binding>,
    /// `lw4o6.address`, once settled.
    pub(crate) address: Option<u128>,
    /// Keys of `[lw4o6]` with values in TOML.
    pub(crate) keys: BTreeMap<&'static str, String>,
    pub(crate) domains: Vec<Domain>,
    pub(crate) aftr: Option<Aftr>,
}

impl Softwires {
    /// True if something is translated that needs no pool.
    pub(crate) fn needs_no_pool(&self) -> bool {
        self.aftr.is_none() && !(self.bindings.is_empty() && self.domains.is_empty())
    }

    /// True if there are customers of tunnels, or of MAP-T.
    pub(crate) fn has_customers(&self) -> bool {
        self.aftr.is_some() || self.address.is_some() || !self.domains.is_empty()
    }

    /// The file of bindings: one binding a line.
    pub(crate) fn csv(&self) -> Option<String> {
        let own = self.address?;
        let mut text = "ipv4,psid_offset,psid_length,psid,b4,br\n".to_owned();
        for one in &self.bindings {
            let Division { offset, len } = one.division;
            let (ipv4, b4) = (Ipv4Addr::from_bits(one.ipv4), Ipv6Addr::from_bits(one.b4));
            // Writing to a string does not fail.
            let _ = write!(text, "{ipv4},{offset},{len},{},{b4}", one.psid);
            let _ = match one.br == own {
                true => writeln!(text),
                false => writeln!(text, ",{}", Ipv6Addr::from_bits(one.br)),
            };
        }
        Some(text)
    }
}

/// True if a host can have an IPv6 address, and other networks reach it.
pub(crate) fn is_host(address: u128) -> bool {
    is_usable(Prefix6 { first: address, len: 128 })
}

/// True if hosts can have all addresses of an IPv6 prefix.
pub(crate) fn is_usable(prefix: Prefix6) -> bool {
    let classes = [(0, 128), (1, 128), (0xffff << 32, 96), (0xff << 120, 8), (0xfe80 << 112, 10)];
    classes.iter().all(|&(first, len)| !prefix.overlaps(Prefix6 { first, len }))
}

impl Plan {
    /// Adds a customer of Lightweight 4over6.
    pub(crate) fn binding(&mut self, binding: Binding) {
        if self.softwires.bindings.len() < MOST_BINDINGS {
            return self.softwires.bindings.push(binding);
        }
        let message = format!("is one more than the {MOST_BINDINGS} bindings that are imported");
        self.lost(&binding.origin, message);
    }

    /// Adds a domain of MAP.
    pub(crate) fn domain(&mut self, domain: Domain) {
        if self.softwires.domains.len() < MOST_ENTRIES {
            return self.softwires.domains.push(domain);
        }
        let message = format!("is one more than the {MOST_ENTRIES} domains that are imported");
        self.lost(&domain.origin, message);
    }

    /// Leaves out what natgate would refuse.
    pub(crate) fn settle_softwires(&mut self) {
        self.settle_domains();
        self.settle_bindings();
        let address = self.softwires.aftr.as_ref().map(|aftr| aftr.address);
        let Some(address) = address.filter(|address| self.has_end(*address)) else { return };
        let aftr = self.softwires.aftr.take().map(|aftr| aftr.origin).unwrap_or_default();
        let shown = Ipv6Addr::from_bits(address);
        let message = format!("{shown} is an end of other tunnels too, and packets need one table");
        self.lost(&aftr, message);
    }

    /// True if an address is the gateway's end of tunnels of bindings or domains.
    fn has_end(&self, address: u128) -> bool {
        self.softwires.address == Some(address)
            || self.softwires.bindings.iter().any(|one| one.br == address)
            || self.softwires.domains.iter().any(|one| one.end == End::Relay(address))
    }

    /// True if an address of a prefix is a pool's or a static mapping's.
    fn has_external(&self, range: Range) -> bool {
        let mut pools = self.pools.iter().flat_map(|pool| &pool.addresses);
        let mut fixed = self.statics.iter().filter_map(|fixed| fixed.external.0);
        pools.any(|pool| pool.overlaps(range))
            || fixed.any(|address| range.contains(Range::of(address)))
    }

    fn settle_domains(&mut self) {
        let others = self.ipv6.stateful.iter().chain(&self.ipv6.stateless);
        let mut kept =
            Kept { prefixes: others.map(|(prefix, _)| *prefix).collect(), ..Kept::default() };
        for domain in std::mem::take(&mut self.softwires.domains) {
            let taken = || {
                let message = "has addresses that a pool or a static mapping has too";
                self.has_external(domain.ipv4).then(|| message.to_owned())
            };
            let fault = fault(&domain).map(str::to_owned);
            match fault.or_else(|| kept.rival(&domain)).or_else(taken) {
                Some(message) => self.lost(&domain.origin, message),
                None => kept.add(domain),
            }
        }
        self.softwires.domains = kept.domains;
    }

    fn settle_bindings(&mut self) {
        let mut bindings = std::mem::take(&mut self.softwires.bindings);
        let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
        bindings.iter().for_each(|one| *counts.entry(one.br).or_default() += 1);
        let relays: HashSet<u128> = self.relays().collect();
        let usable = |br: u128| is_host(br) && !relays.contains(&br);
        let own = counts.into_iter().filter(|(br, _)| usable(*br));
        let own = own.max_by_key(|(_, count)| *count).map(|(br, _)| br);
        let mut customers = Customers { own, relays, ..Customers::default() };
        bindings.retain(|one| {
            let fault = customers.fault(one, self);
            match fault {
                Some(message) => self.lost(&one.origin, message),
                None => {
                    customers.add(one);
                    return true;
                }
            }
            false
        });
        self.softwires.address = own.filter(|_| !bindings.is_empty());
        self.softwires.bindings = bindings;
    }

    /// Border relays of MAP-E.
    fn relays(&self) -> impl Iterator<Item = u128> {
        self.softwires.domains.iter().filter_map(|domain| match domain.end {
            End::Relay(br) => Some(br),
            End::Prefix(_) => None,
        })
    }
}

/// Bindings that natgate accepts together.
#[derive(Default)]
struct Customers {
    /// `lw4o6.address`.
    own: Option<u128>,
    /// Border relays of MAP-E.
    relays: HashSet<u128>,
    /// Other ends of tunnels.
    ends: HashSet<u128>,
    /// The division of an address, and the line that made it.
    divisions: HashMap<u32, (Division, usize)>,
    /// Lines of port sets.
    sets: HashMap<(u32, u16), usize>,
    /// Whether an address is of another table too.
    external: HashMap<u32, bool>,
}

impl Customers {
    /// The reason why a binding cannot be, or contradicts those before it.
    fn fault(&mut self, one: &Binding, plan: &Plan) -> Option<String> {
        let Binding { ipv4, division, psid, br, .. } = *one;
        let address = Range::of(ipv4);
        if !address.is_usable() {
            return Some(format!("{address} is no address of a host"));
        }
        if !(is_host(one.b4) && is_host(br)) {
            return Some("has an end of the tunnel that no host can have".to_owned());
        }
        if self.relays.contains(&br) {
            let br = Ipv6Addr::from_bits(br);
            return Some(format!("{br} is the end of MAP's tunnels, and packets need one table"));
        }
        if u32::from(psid) >= 1 << division.len {
            return Some(format!("PSID {psid} does not fit into {} bits", division.len));
        }
        if let Some((other, line)) = self.divisions.get(&ipv4)
            && *other != division
        {
            return Some(format!("divides the ports of {address} in another way than line {line}"));
        }
        if let Some(line) = self.sets.get(&(ipv4, psid)) {
            return Some(format!("gives the port set of line {line} to a second customer"));
        }
        let domains = || plan.softwires.domains.iter();
        let is_taken = self.external.entry(ipv4).or_insert_with(|| {
            plan.has_external(address) || domains().any(|one| one.ipv4.contains(address))
        });
        if *is_taken {
            return Some(format!("{address} is a pool's, a static mapping's or a domain's too"));
        }
        let is_further = self.own != Some(br) && !self.ends.contains(&br);
        (is_further && self.ends.len() >= MOST_ENDS)
            .then(|| format!("has one more end of tunnels than the {} of natgate", MOST_ENDS + 1))
    }

    fn add(&mut self, one: &Binding) {
        if self.own != Some(one.br) {
            self.ends.insert(one.br);
        }
        self.divisions.entry(one.ipv4).or_insert((one.division, one.origin.line));
        self.sets.insert((one.ipv4, one.psid), one.origin.line);
    }
}

/// Domains that natgate accepts together.
#[derive(Default)]
struct Kept {
    domains: Vec<Domain>,
    by_ipv4: HashMap<Range, usize>,
    by_ipv6: HashMap<Prefix6, usize>,
    sets: HashSet<(Range, u16)>,
    /// Prefixes that embed IPv4 addresses, of other tables and of default mapping rules.
    prefixes: Vec<Prefix6>,
    rules: HashSet<Prefix6>,
}

impl Kept {
    /// The reason why a domain contradicts those that are kept.
    fn rival(&self, domain: &Domain) -> Option<String> {
        if let Some(place) = self.by_ipv6.get(&domain.ipv6) {
            let line = self.domains[*place].origin.line;
            return Some(format!(
                "has the IPv6 prefix of line {line}, and a prefix has one domain"
            ));
        }
        if let Some(place) = self.by_ipv4.get(&domain.ipv4) {
            let other = &self.domains[*place];
            let line = other.origin.line;
            return match (other.psid, domain.psid) {
                (Some((len, _)), Some((own, _))) if (len, other.offset) != (own, domain.offset) => {
                    Some(format!(
                        "divides the ports of the address in another way than line {line}"
                    ))
                }
                (Some(_), Some((_, psid))) => self
                    .sets
                    .contains(&(domain.ipv4, psid))
                    .then(|| "gives a port set to a second customer".to_owned()),
                _ => Some(format!("has the IPv4 prefix of line {line}")),
            };
        }
        let End::Prefix(prefix) = domain.end else { return None };
        let other = self.prefixes.iter().find(|other| other.overlaps(prefix));
        other
            .filter(|_| !self.rules.contains(&prefix))
            .map(|other| format!("{prefix} overlaps {other}, and an address has one translation"))
    }

    fn add(&mut self, domain: Domain) {
        self.by_ipv4.entry(domain.ipv4).or_insert(self.domains.len());
        self.by_ipv6.insert(domain.ipv6, self.domains.len());
        self.sets.extend(domain.psid.map(|(_, psid)| (domain.ipv4, psid)));
        if let End::Prefix(prefix) = domain.end
            && self.rules.insert(prefix)
        {
            self.prefixes.push(prefix);
        }
        self.domains.push(domain);
    }
}

/// The reason why a domain cannot be.
fn fault(domain: &Domain) -> Option<&'static str> {
    let rest = 32 - domain.ipv4.len()?;
    let bits = domain.ea.saturating_sub(rest);
    let has_end = match domain.end {
        End::Relay(br) => is_host(br),
        End::Prefix(prefix) => prefix.embeds() && is_usable(prefix),
    };
    match () {
        () if !domain.ipv4.is_usable() => Some("has IPv4 addresses that no host can have"),
        () if !is_usable(domain.ipv6) => Some("has IPv6 addresses that no host can have"),
        () if !has_end => Some(
            "has no end for natgate: MAP-E has an IPv6 address, and MAP-T a prefix of 32, 40, 48, \
             56, 64 or 96 bits",
        ),
        () if domain.ea > 48 || domain.ipv6.len + domain.ea > 128 => {
            Some("has more EA bits than its IPv6 prefix leaves")
        }
        () if Division::new(domain.offset.into(), bits.into()).is_none() || domain.offset > 15 => {
            Some("has more bits of PSID than a port leaves")
        }
        () => None,
    }
}
