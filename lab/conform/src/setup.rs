//! What the tester is told: where the hosts are, what to try, how long to wait.

use std::net::Ipv4Addr;
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
    /// The fewest hosts a side needs, so that tests that wait do not keep others from running.
    pub const FEWEST: usize = 150;

    /// The most that are used of a range.
    pub const MOST: usize = 4096;

    /// The addresses, at most [`Hosts::MOST`].
    pub fn iter(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first.to_bits()..=self.last.to_bits()).take(Self::MOST).map(Ipv4Addr::from_bits)
    }

    /// How many addresses there are.
    pub fn count(self) -> usize {
        self.iter().count()
    }

    /// Whether an address is one of them.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// The translator's surroundings, which the suite's hosts make up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The translator's own address on the inside, which hosts there send to.
    pub inside_gateway: Ipv4Addr,
    /// Hosts on the inside, directly connected, whose packets are translated.
    pub inside_hosts: Hosts,
    /// Hosts on the outside: directly connected, or behind `outside_gateway`.
    pub outside_hosts: Hosts,
    /// The router on the outside that the translator sends to, which the suite is, too.
    pub outside_gateway: Option<Ipv4Addr>,
    /// An address on the outside, directly connected, that nobody has.
    pub nobody: Option<Ipv4Addr>,
    /// An address on the outside that packets go to untranslated, as the translator is configured.
    pub untranslated: Option<Ipv4Addr>,
}

/// Idle timeouts that a translator was given for the test, where they are shorter than what the
/// RFCs ask for: tests of timers then wait for these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// UDP.
    pub udp: Option<Duration>,
    /// TCP, connection established.
    pub tcp_established: Option<Duration>,
    /// TCP, connection half open.
    pub tcp_opening: Option<Duration>,
    /// TCP, connection closed or reset.
    pub tcp_closing: Option<Duration>,
    /// ICMP queries.
    pub icmp: Option<Duration>,
}

/// What to do and how long to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a packet may take through the translator.
    pub transit: Duration,
    /// The longest that a test may wait for timers; tests that need longer are left out.
    pub patience: Duration,
    /// Shortened timeouts.
    pub timers: Timers,
    /// Mappings of one protocol that one subscriber may have, if that is known.
    pub quota: Option<u32>,
    /// Try only these requirements, by name or the beginning of it; empty: all.
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
    /// Whether a requirement is to be tried.
    pub fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || is_named(id, &self.only)
    }
}

/// Whether a requirement has one of these names, or one that begins so: `REQ-1` begins `REQ-1a`,
/// but not `REQ-12`.
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
