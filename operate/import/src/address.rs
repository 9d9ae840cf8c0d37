//! IPv4 addresses in the notation of other programs: prefixes with lengths or masks, ranges, ports.

use std::fmt::{self, Display, Formatter};
use std::net::Ipv4Addr;

/// Range of addresses, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Range {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Range {
    pub(crate) const ALL: Self = Self { first: 0, last: u32::MAX };

    pub(crate) fn of(address: u32) -> Self {
        Self { first: address, last: address }
    }

    pub(crate) fn prefix(address: u32, len: u8) -> Self {
        let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
        Self { first: address & !hosts, last: address | hosts }
    }

    /// Reads an address, a prefix (with a length or a mask), or a range.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some((first, last)) = text.split_once('-') {
            let range = Self { first: address(first)?, last: address(last)? };
            return (range.first <= range.last).then_some(range);
        }
        let Some((start, len)) = text.split_once('/') else { return address(text).map(Self::of) };
        let len = match len.parse::<u8>() {
            Ok(len) => len,
            Err(_) => {
                let mask = address(len)?;
                (mask.leading_ones() + mask.trailing_zeros() >= 32)
                    .then_some(mask.leading_ones() as u8)?
            }
        };
        (len <= 32).then_some(())?;
        Some(Self::prefix(address(start)?, len))
    }

    pub(crate) fn single(self) -> Option<u32> {
        (self.first == self.last).then_some(self.first)
    }

    pub(crate) fn count(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Length of the range as a prefix, if it is one.
    pub(crate) fn len(self) -> Option<u8> {
        let hosts = self.first ^ self.last;
        let whole = hosts.wrapping_add(1).is_power_of_two() || hosts == u32::MAX;
        (whole && self.first & hosts == 0).then_some(hosts.leading_zeros() as u8)
    }

    /// The fewest prefixes that cover exactly this range.
    pub(crate) fn prefixes(self) -> Vec<Self> {
        let (mut first, mut prefixes) = (u64::from(self.first), Vec::new());
        while first <= u64::from(self.last) {
            let aligned = if first == 0 { 32 } else { first.trailing_zeros() };
            let bits = aligned.min((u64::from(self.last) - first + 1).ilog2()).min(32);
            prefixes.push(Self::prefix(first as u32, 32 - bits as u8));
            first += 1 << bits;
        }
        prefixes
    }

    /// Parts of the range outside another.
    pub(crate) fn without(self, other: Self) -> Vec<Self> {
        if !self.overlaps(other) {
            return vec![self];
        }
        let before =
            (self.first < other.first).then(|| Self { first: self.first, last: other.first - 1 });
        let after =
            (self.last > other.last).then(|| Self { first: other.last + 1, last: self.last });
        before.into_iter().chain(after).collect()
    }

    /// True if hosts of the Internet or of a private network can have all addresses of the range.
    pub(crate) fn is_usable(self) -> bool {
        let zero = Self::prefix(0, 8);
        let loopback = Self::prefix(127 << 24, 8);
        let upper = Self::prefix(224 << 24, 3);
        ![zero, loopback, upper].iter().any(|class| class.overlaps(self))
    }
}

impl Display for Range {
    /// Writes the range in the notation of natgate's configuration.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (first, last) = (Ipv4Addr::from_bits(self.first), Ipv4Addr::from_bits(self.last));
        match (self.single(), self.len()) {
            (Some(_), _) => write!(f, "{first}"),
            (_, Some(len)) => write!(f, "{first}/{len}"),
            _ => write!(f, "{first}-{last}"),
        }
    }
}

pub(crate) fn address(text: &str) -> Option<u32> {
    text.trim().parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits)
}

/// Range of ports, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ports {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl Ports {
    /// Reads one port, or a range with the separator `between`.
    pub(crate) fn parse(text: &str, between: char) -> Option<Self> {
        let (first, last) = text.split_once(between).unwrap_or((text, text));
        let ports = Self { first: port(first)?, last: port(last)? };
        (0 < ports.first && ports.first <= ports.last).then_some(ports)
    }

    pub(crate) fn count(self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl Display for Ports {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Reads a number, or one of the commonest names in rules.
fn port(text: &str) -> Option<u16> {
    let text = text.trim();
    const NAMES: [(&str, u16); 12] = [
        ("ftp", 21),
        ("ssh", 22),
        ("smtp", 25),
        ("domain", 53),
        ("http", 80),
        ("pop3", 110),
        ("ntp", 123),
        ("imap", 143),
        ("imap2", 143),
        ("snmp", 161),
        ("https", 443),
        ("imaps", 993),
    ];
    let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
    text.parse().ok().or(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_others_write_them() {
        let shown = |text: &str| Range::parse(text).map(|range| range.to_string());
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.0.0.0/255.255.0.0", "10.0.0.0/16"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("192.0.2.1-192.0.2.9", "192.0.2.1-192.0.2.9"),
            ("192.0.2.0-192.0.2.255", "192.0.2.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0.0/255.0.255.0", "192.0.2.9-192.0.2.1", "::/0", "-"]
        {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn a_range_is_the_fewest_prefixes() {
        let shown = |text: &str| -> Vec<String> {
            let range = Range::parse(text).expect("a range");
            range.prefixes().iter().map(Range::to_string).collect()
        };
        assert_eq!(shown("192.0.2.1-192.0.2.4"), ["192.0.2.1", "192.0.2.2/31", "192.0.2.4"]);
        assert_eq!(shown("0.0.0.0/0"), ["0.0.0.0/0"]);
        assert_eq!(shown("255.255.255.255"), ["255.255.255.255"]);
    }

    #[test]
    fn what_is_left_without_another() {
        let range = |text| Range::parse(text).expect("a range");
        let left = range("192.0.2.0/29").without(range("192.0.2.3"));
        assert_eq!(left, [range("192.0.2.0-192.0.2.2"), range("192.0.2.4-192.0.2.7")]);
        assert_eq!(range("192.0.2.3").without(range("192.0.2.0/24")), []);
    }
}
