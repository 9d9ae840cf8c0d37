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

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// To this address on the link.
    Neighbor(Ipv4Addr),
    /// No route leads to its destination.
    Nowhere,
    /// To everybody on the link: such a packet is not forwarded (RFC 2644), nor answered (RFC 1812
    /// section 4.3.2.7).
    Everybody,
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

    /// Where a packet to a destination goes next.
    pub(super) fn next_hop(&self, destination: Ipv4Addr) -> Hop {
        match self.table.get_lpm(&(destination.to_bits(), 32)).map(|(_, target)| *target) {
            Some(Target::Via(via)) => Hop::Neighbor(via),
            Some(Target::Connected) if self.on_link(destination.to_bits()) => {
                Hop::Neighbor(destination)
            }
            //= rfc1812#section-4.2.3.1
            Some(Target::Connected) => Hop::Everybody,
            None => Hop::Nowhere,
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
        match routes.next_hop(address(destination)) {
            Hop::Neighbor(hop) => Some(hop.to_string()),
            Hop::Nowhere | Hop::Everybody => None,
        }
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
        assert_eq!(routes.next_hop(address("10.0.1.0")), Hop::Nowhere);
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

    //= test rfc1812#section-4.2.3.1
    #[test]
    fn nobody_sends_to_everybody() {
        let routes = Routes::new(prefix("10.0.0.0/24"));
        assert_eq!(routes.next_hop(address("10.0.0.0")), Hop::Everybody);
        assert_eq!(routes.next_hop(address("10.0.0.255")), Hop::Everybody);
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
