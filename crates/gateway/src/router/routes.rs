//! Where packets go next: one side's routes, of which the longest matching prefix wins.

use natgate_engine::Prefix;
use prefix_trie::PrefixMap;
use std::net::Ipv4Addr;

/// What a route says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The destination is on the link.
    Connected,
    /// The next hop is.
    Via(Ipv4Addr),
}

/// One side's routes.
#[derive(Debug)]
pub(super) struct Routes {
    connected: Prefix,
    table: PrefixMap<(u32, u8), Target>,
}

impl Routes {
    /// The routes of a side with this network on its link.
    pub(super) fn new(connected: Prefix) -> Self {
        let mut table = PrefixMap::new();
        table.insert(key(connected), Target::Connected);
        Self { connected, table }
    }

    /// Adds a route; of two for the same prefix the earlier stays. Returns whether `via` is an
    /// address that can be on the link, as it must be.
    pub(super) fn add(&mut self, prefix: Prefix, via: Ipv4Addr) -> bool {
        self.table.entry(key(prefix)).or_insert(Target::Via(via));
        self.on_link(via.to_bits())
    }

    /// The address to send to on the link, on the way to a destination; `None` without a route.
    pub(super) fn next_hop(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        match self.table.get_lpm(&(destination.to_bits(), 32))?.1 {
            Target::Via(via) => Some(*via),
            // A packet to everybody on the link is not forwarded (RFC 2644).
            Target::Connected => self.on_link(destination.to_bits()).then_some(destination),
        }
    }

    /// Whether an address belongs to a single station of the link.
    fn on_link(&self, address: u32) -> bool {
        let network = self.connected;
        // Networks of two addresses or one have no broadcast address (RFC 3021).
        let everybody = address == network.first() || address == network.last();
        network.contains(address) && (network.len() >= 31 || !everybody)
    }
}

fn key(prefix: Prefix) -> (u32, u8) {
    (prefix.first(), prefix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, len) = text.split_once('/').expect("a prefix");
        Prefix::new(address.parse().expect("an address"), len.parse().expect("a length"))
    }

    fn address(text: &str) -> Ipv4Addr {
        text.parse().expect("an address")
    }

    fn next_hop(routes: &Routes, destination: &str) -> Option<String> {
        routes.next_hop(address(destination)).map(|hop| hop.to_string())
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut routes = Routes::new(prefix("10.0.0.0/24"));
        assert!(routes.add(prefix("0.0.0.0/0"), address("10.0.0.254")));
        assert!(routes.add(prefix("10.0.0.0/8"), address("10.0.0.2")));
        assert!(routes.add(prefix("10.9.0.0/16"), address("10.0.0.3")));
        assert!(routes.add(prefix("10.0.0.128/25"), address("10.0.0.4")));
        assert_eq!(next_hop(&routes, "10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(next_hop(&routes, "10.0.0.129").as_deref(), Some("10.0.0.4"));
        assert_eq!(next_hop(&routes, "10.1.2.3").as_deref(), Some("10.0.0.2"));
        assert_eq!(next_hop(&routes, "10.9.2.3").as_deref(), Some("10.0.0.3"));
        assert_eq!(next_hop(&routes, "192.0.2.1").as_deref(), Some("10.0.0.254"));
    }

    #[test]
    fn without_a_route_there_is_no_next_hop() {
        let routes = Routes::new(prefix("10.0.0.0/24"));
        assert_eq!(next_hop(&routes, "10.0.1.0"), None);
    }

    #[test]
    fn connected_networks_come_first_among_equals_and_then_the_earlier_route() {
        let mut routes = Routes::new(prefix("10.0.0.0/24"));
        assert!(routes.add(prefix("10.0.0.0/24"), address("10.0.0.2")));
        assert_eq!(next_hop(&routes, "10.0.0.9").as_deref(), Some("10.0.0.9"));
        assert!(routes.add(prefix("10.1.0.0/24"), address("10.0.0.2")));
        assert!(routes.add(prefix("10.1.0.0/24"), address("10.0.0.3")));
        assert_eq!(next_hop(&routes, "10.1.0.9").as_deref(), Some("10.0.0.2"));
    }

    #[test]
    fn nobody_sends_to_everybody() {
        let routes = Routes::new(prefix("10.0.0.0/24"));
        assert_eq!(next_hop(&routes, "10.0.0.0"), None);
        assert_eq!(next_hop(&routes, "10.0.0.255"), None);
        let pair = Routes::new(prefix("10.0.0.0/31"));
        assert_eq!(next_hop(&pair, "10.0.0.0").as_deref(), Some("10.0.0.0"));
        assert_eq!(next_hop(&pair, "10.0.0.1").as_deref(), Some("10.0.0.1"));
    }

    #[test]
    fn a_next_hop_must_be_on_the_link() {
        let mut routes = Routes::new(prefix("10.0.0.0/24"));
        for via in ["10.0.1.1", "10.0.0.255", "10.0.0.0"] {
            assert!(!routes.add(prefix("192.0.2.0/24"), address(via)), "{via}");
        }
    }
}
