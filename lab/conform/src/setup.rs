//! Settings of the suite: addresses of hosts, selected requirements, waiting times.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Addresses from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The first address.
    pub first: Ipv4Addr,
    /// The last address.
    pub last: Ipv4Addr,
}

impl Hosts {
    /// Fewest hosts of a side, so that waiting tests leave hosts to the others.
    pub const FEWEST: usize = 150;

    /// Most used addresses of a range.
    pub const MOST: usize = 4096;

    /// Addresses, at most [`Hosts::MOST`].
    pub fn iter(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first.to_bits()..=self.last.to_bits()).take(Self::MOST).map(Ipv4Addr::from_bits)
    }

    /// Number of addresses.
    pub fn count(self) -> usize {
        self.iter().count()
    }

    /// Returns true if the range contains an address.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// Surroundings of the translator, which consist of the suite's hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The translator's own address on the inside, to which hosts there send.
    pub inside_gateway: Ipv4Addr,
    /// Hosts on the inside, directly connected, with translated packets.
    pub inside_hosts: Hosts,
    /// Hosts on the outside: directly connected, or behind `outside_gateway`.
    pub outside_hosts: Hosts,
    /// Next router of the translator on the outside; the suite plays it, too.
    pub outside_gateway: Option<Ipv4Addr>,
    /// An unused, directly connected address on the outside.
    pub nobody: Option<Ipv4Addr>,
    /// Outside address with a bypass in the translator's configuration.
    pub untranslated: Option<Ipv4Addr>,
    /// IPv6 on the inside, if the translator translates between the families.
    pub families: Option<Families>,
}

/// IPv6 on the inside of a translator between the families. All prefixes have 96 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// The translator's own IPv6 address on the inside, directly connected.
    pub gateway: Ipv6Addr,
    /// Prefix of the inside hosts, directly connected. A host's IPv4 address follows it.
    pub prefix: Ipv6Addr,
    /// Prefix of NAT64, in which inside hosts have the outside hosts.
    pub nat64: Option<Ipv6Addr>,
    /// Stateless translation.
    pub siit: Option<Siit>,
}

impl Families {
    /// IPv6 address of an inside host.
    pub fn host(&self, address: Ipv4Addr) -> Ipv6Addr {
        embed(self.prefix, address)
    }
}

/// Stateless translation, with one explicit mapping of all inside hosts (RFC 7757).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siit {
    /// Prefix of 96 bits, in which inside hosts have the outside hosts.
    pub prefix: Ipv6Addr,
    /// First IPv6 address of the mapping.
    pub ipv6: Ipv6Addr,
    /// First IPv4 address of the mapping.
    pub ipv4: Ipv4Addr,
}

impl Siit {
    /// IPv4 address of an inside host.
    pub fn external(&self, host: Ipv6Addr) -> Ipv4Addr {
        let suffix = host.to_bits().wrapping_sub(self.ipv6.to_bits()) as u32;
        Ipv4Addr::from_bits(self.ipv4.to_bits().wrapping_add(suffix))
    }
}

/// An IPv4 address behind a prefix of 96 bits (RFC 6052 section 2.2).
pub(crate) fn embed(prefix: Ipv6Addr, address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(prefix.to_bits() | u128::from(address.to_bits()))
}

/// Idle timeouts of the translator during the test, if they are shorter than the RFCs require.
/// Tests of timers then wait for these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// Timeout of UDP.
    pub udp: Option<Duration>,
    /// Timeout of an established TCP connection.
    pub tcp_established: Option<Duration>,
    /// Timeout of a half-open TCP connection.
    pub tcp_opening: Option<Duration>,
    /// Timeout of a closed or reset TCP connection.
    pub tcp_closing: Option<Duration>,
    /// Timeout of ICMP queries.
    pub icmp: Option<Duration>,
}

/// Selection of tests, and waiting times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest time of a packet through the translator.
    pub transit: Duration,
    /// Longest wait of a test for timers; longer tests are left out.
    pub patience: Duration,
    /// Shortened timeouts.
    pub timers: Timers,
    /// Most mappings of one protocol for one subscriber, if known.
    pub quota: Option<u32>,
    /// Names of the selected requirements, or beginnings of names; empty to select all.
    pub only: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transit: Duration::from_millis(300),
            patience: Duration::MAX,
            timers: Timers::default(),
            quota: None,
            only: Vec::new(),
        }
    }
}

impl Options {
    /// Returns true if a requirement is selected.
    pub fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || is_named(id, &self.only)
    }
}

/// Returns true if a requirement has one of these names, or one that begins with it: `REQ-1` is a
/// beginning of `REQ-1a`, but not of `REQ-12`.
pub(crate) fn is_named(id: &str, names: &[String]) -> bool {
    let begins = |name: &String| {
        let rest = id.strip_prefix(name.as_str());
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    names.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_beginnings_choose_requirements() {
        let only = |name: &str| Options { only: vec![name.into()], ..Options::default() };
        assert!(Options::default().wants("rfc4787#REQ-1"));
        assert!(only("rfc4787").wants("rfc4787#REQ-1"));
        assert!(only("rfc4787#REQ-1").wants("rfc4787#REQ-1"));
        assert!(only("rfc4787#REQ-12").wants("rfc4787#REQ-12a"));
        assert!(!only("rfc4787#REQ-1").wants("rfc4787#REQ-12"));
        assert!(!only("rfc5382").wants("rfc4787#REQ-1"));
    }
}
