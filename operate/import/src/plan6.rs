//! The IPv6 part of the future configuration: prefixes, explicit maps, sources of errors.
//!
//! [`Plan::settle6`] leaves out what natgate would refuse: prefixes that embed no IPv4 address,
//! prefixes that overlap, and maps that share a prefix or lie in one of NAT64. Each omission is
//! told as lost.

use crate::address::Range;
use crate::plan::{MOST_ENTRIES, Origin, Plan};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display, Formatter};
use std::net::Ipv6Addr;

/// Lengths of prefixes that embed IPv4 addresses, bits (RFC 6052 section 2.2).
const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// Bits 64 to 71 of an address, which are zero in such a prefix.
const RESERVED: u128 = 0xff << 56;
/// Most sources of errors that are written out of one prefix.
const MOST_SOURCES: u64 = 64;

/// An IPv6 prefix, without bits behind its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prefix6 {
    pub(crate) first: u128,
    pub(crate) len: u8,
}

impl Prefix6 {
    /// Reads an address, or a prefix.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, len) = text.trim().split_once('/').unwrap_or((text.trim(), "128"));
        let address = address.parse::<Ipv6Addr>().ok()?.to_bits();
        let len = len.parse::<u8>().ok().filter(|len| *len <= 128)?;
        Some(Self { first: address & Self::mask(len), len })
    }

    fn mask(len: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        (self.first ^ other.first) & Self::mask(self.len.min(other.len)) == 0
    }

    /// True if the prefix can embed IPv4 addresses.
    pub(crate) fn embeds(self) -> bool {
        LENGTHS.contains(&self.len) && self.first & RESERVED == 0
    }
}

impl Display for Prefix6 {
    /// Writes the prefix in the notation of natgate's configuration.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.first);
        match self.len {
            128 => write!(f, "{address}"),
            len => write!(f, "{address}/{len}"),
        }
    }
}

/// An explicit map (RFC 7757).
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) ipv6: Prefix6,
    pub(crate) ipv4: Range,
    pub(crate) origin: Origin,
}

/// Entries about IPv6.
#[derive(Debug, Default)]
pub(crate) struct Plan6 {
    /// Prefixes of `[nat64]`.
    pub(crate) stateful: Vec<(Prefix6, Origin)>,
    /// Prefixes of `[siit]`.
    pub(crate) stateless: Vec<(Prefix6, Origin)>,
    pub(crate) maps: Vec<Map>,
    /// Addresses of `siit.icmp_source`.
    pub(crate) sources: Vec<String>,
    /// Keys of `[ipv6]`, `[nat64]` and `[siit]` with values in TOML.
    pub(crate) keys: BTreeMap<&'static str, String>,
    pub(crate) stateful_keys: BTreeMap<&'static str, String>,
    pub(crate) stateless_keys: BTreeMap<&'static str, String>,
}

impl Plan6 {
    /// True if something is translated, and nothing needs a pool.
    pub(crate) fn needs_no_pool(&self) -> bool {
        self.stateful.is_empty() && self.has_siit()
    }

    pub(crate) fn has_siit(&self) -> bool {
        !(self.stateless.is_empty() && self.maps.is_empty())
    }
}

impl Plan {
    /// Adds a prefix that embeds IPv4 addresses.
    pub(crate) fn prefix6(&mut self, is_stateful: bool, text: &str, origin: &Origin) {
        let Some(prefix) = Prefix6::parse(text).filter(|prefix| prefix.embeds()) else {
            let message = "is no prefix that embeds IPv4 addresses: it has 32, 40, 48, 56, 64 or \
                           96 bits, and bits 64 to 71 are zero";
            return self.lost(origin, message);
        };
        let known = self.ipv6.stateful.iter().chain(&self.ipv6.stateless);
        let rival = known.map(|(known, _)| *known).find(|known| known.overlaps(prefix));
        let list = match is_stateful {
            true => &mut self.ipv6.stateful,
            false => &mut self.ipv6.stateless,
        };
        match rival {
            None => list.push((prefix, origin.clone())),
            Some(same) if same == prefix && list.iter().any(|(known, _)| *known == same) => {}
            Some(other) => {
                let message = format!("overlaps {other}, and an address has one translation");
                self.lost(origin, message);
            }
        }
    }

    /// Adds an explicit map.
    pub(crate) fn map6(&mut self, ipv4: &str, ipv6: &str, origin: &Origin) {
        let ipv4 = Range::parse(ipv4).filter(|range| range.len().is_some());
        let (Some(ipv4), Some(ipv6)) = (ipv4, Prefix6::parse(ipv6)) else {
            return self.lost(origin, "maps no IPv4 prefix to an IPv6 prefix");
        };
        if self.ipv6.maps.len() >= MOST_ENTRIES {
            let message = format!("is one more than the {MOST_ENTRIES} maps that are imported");
            return self.lost(origin, message);
        }
        let len = ipv4.len().unwrap_or_default();
        if 32 - len > 128 - ipv6.len {
            let message = format!(
                "leaves {} bits of IPv4 and only {} of IPv6: several addresses would share one",
                32 - len,
                128 - ipv6.len
            );
            return self.lost(origin, message);
        }
        self.ipv6.maps.push(Map { ipv6, ipv4, origin: origin.clone() });
    }

    /// Adds the addresses of a prefix as sources of ICMP errors.
    pub(crate) fn sources4(&mut self, range: Range, origin: &Origin) {
        if !range.is_usable() {
            return self.without(origin, format!("{range} are no addresses that hosts can have"));
        }
        if range.count() > MOST_SOURCES {
            let message = format!("has the first {MOST_SOURCES} addresses in siit.icmp_source");
            self.differs(origin, message);
        }
        let count = range.count().min(MOST_SOURCES) as u32;
        let addresses = (0..count).map(|number| Range::of(range.first + number).to_string());
        self.ipv6.sources.extend(addresses);
    }

    /// Adds the addresses of an IPv6 prefix as sources of ICMP errors.
    pub(crate) fn sources6(&mut self, prefix: Prefix6, origin: &Origin) {
        // The first address of a network is that of all its routers.
        let (first, most) = match prefix.len {
            128 => (prefix.first, 1),
            127 => (prefix.first, 2),
            len => (prefix.first + 1, (1_u64 << (128 - u32::from(len)).min(32)) - 1),
        };
        if most > MOST_SOURCES {
            let message = format!("has {MOST_SOURCES} addresses in siit.icmp_source");
            self.differs(origin, message);
        }
        let addresses = (0..most.min(MOST_SOURCES))
            .map(|number| Ipv6Addr::from_bits(first + u128::from(number)).to_string());
        self.ipv6.sources.extend(addresses);
    }

    /// Leaves out maps that natgate would refuse.
    pub(crate) fn settle6(&mut self) {
        let mut kept: Vec<Map> = Vec::new();
        let mut by_ipv4: HashMap<Range, usize> = HashMap::new();
        let mut by_ipv6: HashMap<Prefix6, usize> = HashMap::new();
        for map in std::mem::take(&mut self.ipv6.maps) {
            let rival = by_ipv4.get(&map.ipv4).or_else(|| by_ipv6.get(&map.ipv6)).copied();
            if let Some(rival) = rival {
                let known = &kept[rival];
                if (known.ipv4, known.ipv6) != (map.ipv4, map.ipv6) {
                    let line = known.origin.line;
                    let message = format!("shares a prefix with the map of line {line}");
                    self.lost(&map.origin, message);
                }
                continue;
            }
            let mut stateful = self.ipv6.stateful.iter().map(|(prefix, _)| *prefix);
            if let Some(prefix) = stateful.find(|prefix| prefix.overlaps(map.ipv6)) {
                let message = format!("is in {prefix} of NAT64, which goes first");
                self.lost(&map.origin, message);
                continue;
            }
            by_ipv4.insert(map.ipv4, kept.len());
            by_ipv6.insert(map.ipv6, kept.len());
            kept.push(map);
        }
        self.ipv6.maps = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_and_written() {
        let shown = |text: &str| Prefix6::parse(text).map(|prefix| prefix.to_string());
        for (text, expected) in [
            ("64:ff9b::/96", "64:ff9b::/96"),
            ("2001:db8::5/32", "2001:db8::/32"),
            (" 2001:db8::5 ", "2001:db8::5"),
            ("2001:db8::5/128", "2001:db8::5"),
            ("2001:db8::5/0", "::/0"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "192.0.2.1", "2001:db8::/129", "2001:db8::/", "/64", "null"] {
            assert_eq!(shown(text), None, "{text}");
        }
        let prefix = |text| Prefix6::parse(text).expect("a prefix");
        assert!(prefix("2001:db8::/32").overlaps(prefix("2001:db8:1::/48")));
        assert!(!prefix("2001:db8::/48").overlaps(prefix("2001:db8:1::/48")));
        assert!(prefix("64:ff9b::/96").embeds() && !prefix("64:ff9b::/95").embeds());
        assert!(!prefix("2001:db8:0:0:100::/96").embeds());
    }
}
