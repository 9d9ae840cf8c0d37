//! Routes of one link: the next hop of each destination, by the longest prefix.

use natgate_ipv6::Prefix6;
use prefix_trie::PrefixMap;
use std::net::Ipv6Addr;

/// Next hop of the destinations of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hop {
    /// The destination itself is a neighbour.
    Connected,
    /// A router.
    Router(Ipv6Addr),
}

/// Routes of one link.
#[derive(Debug)]
pub(super) struct Routes {
    table: PrefixMap<(u128, u8), Hop>,
    network: Option<Prefix6>,
}

impl Routes {
    /// Routes to the connected network, if the link has one.
    pub(super) fn new(network: Option<Prefix6>) -> Self {
        let mut table = PrefixMap::new();
        if let Some(network) = network {
            table.insert(key(network), Hop::Connected);
        }
        Self { table, network }
    }

    /// Adds a route; returns false if its next hop is not directly connected. Of routes with equal
    /// prefixes the first stays.
    pub(super) fn add(&mut self, prefix: Prefix6, via: Ipv6Addr) -> bool {
        let reachable = self.is_on_link(via);
        if reachable {
            self.table.entry(key(prefix)).or_insert(Hop::Router(via));
        }
        reachable
    }

    /// True if an address is directly connected.
    pub(super) fn is_on_link(&self, address: Ipv6Addr) -> bool {
        address.is_unicast_link_local()
            || self.network.is_some_and(|network| network.contains(address))
    }

    /// The neighbour that a packet goes to next.
    pub(super) fn next_hop(&self, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        if destination.is_unicast_link_local() {
            return Some(destination);
        }
        match self.table.get_lpm(&(destination.to_bits(), 128))? {
            (_, Hop::Connected) => Some(destination),
            (_, Hop::Router(via)) => Some(*via),
        }
    }
}

/// Key of a prefix in the table.
fn key(prefix: Prefix6) -> (u128, u8) {
    (prefix.first().to_bits(), prefix.len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    fn prefix(text: &str, len: u8) -> Prefix6 {
        Prefix6 { address: ip(text), len }
    }

    #[test]
    fn the_longest_prefix_wins_and_the_connected_network_comes_first() {
        let mut routes = Routes::new(Some(prefix("2001:db8:1::1", 64)));
        assert!(routes.add(prefix("::", 0), ip("fe80::1")));
        assert!(routes.add(prefix("2001:db8:2::", 48), ip("2001:db8:1::2")));
        assert!(routes.add(prefix("2001:db8:2:5::", 64), ip("2001:db8:1::3")));
        assert!(routes.add(prefix("2001:db8:1::", 64), ip("2001:db8:1::9")));
        for (to, expected) in [
            ("2001:db8:1::77", "2001:db8:1::77"),
            ("2001:db8:2:4::1", "2001:db8:1::2"),
            ("2001:db8:2:5::1", "2001:db8:1::3"),
            ("2001:db8:3::1", "fe80::1"),
            ("fe80::7", "fe80::7"),
        ] {
            assert_eq!(routes.next_hop(ip(to)), Some(ip(expected)), "{to}");
        }
    }

    #[test]
    fn a_next_hop_is_directly_connected() {
        let mut routes = Routes::new(Some(prefix("2001:db8:1::1", 64)));
        assert!(!routes.add(prefix("::", 0), ip("2001:db8:2::1")));
        assert_eq!(routes.next_hop(ip("2001:db8:2::1")), None);
        let mut alone = Routes::new(None);
        assert!(!alone.add(prefix("::", 0), ip("2001:db8:1::2")));
        assert!(alone.add(prefix("::", 0), ip("fe80::1")));
    }
}
