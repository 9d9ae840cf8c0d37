//! Routes of one link and their look-up: the longest matching prefix wins.
//!
//! All routes are in a trie. Most gateways have a handful: these are also laid out as runs of
//! addresses with one target each, in which a look-up takes a few steps. The run of the latest
//! look-up is remembered, because the next packet often goes there, too. [Learnt
//! routes](super::LearntRoutes) are kept apart; if a configured and a learnt route have the same
//! prefix, the configured route counts.

use super::learnt::Table;
use natgate_engine::Prefix;
use prefix_trie::PrefixMap;
use std::cell::Cell;
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// Target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The destination is on the link.
    Connected,
    /// The next hop, which is on the link.
    Via(Ipv4Addr),
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// The packet goes to this address on the link.
    Neighbor(Ipv4Addr),
    /// No route leads to the destination.
    Nowhere,
    /// The destination is a broadcast address: such a packet is not forwarded (RFC 2644), nor
    /// answered (RFC 1812 section 4.3.2.7).
    Everybody,
}

/// Routes of one link.
#[derive(Debug)]
pub(super) struct Routes {
    connected: Prefix,
    table: PrefixMap<(u32, u8), Target>,
    /// Routes in the form of runs, if there are few.
    few: Option<Stretches>,
    /// Run of the latest look-up in `few`.
    latest: Cell<Run>,
    /// Next hops of all routes.
    hops: HashSet<Ipv4Addr>,
}

impl Routes {
    /// Creates the routes of a link with this network.
    pub(super) fn new(connected: Prefix) -> Self {
        let mut table = PrefixMap::new();
        table.insert(key(connected), Target::Connected);
        let few = Stretches::of(connected, &table);
        Self { connected, table, few, latest: Cell::new(Run::NONE), hops: HashSet::new() }
    }

    /// Adds a route; of two for the same prefix the earlier stays. Returns true if `via` is a valid
    /// next hop: an address of a station on the link.
    pub(super) fn add(&mut self, prefix: Prefix, via: Ipv4Addr) -> bool {
        self.table.entry(key(prefix)).or_insert(Target::Via(via));
        self.hops.insert(via);
        self.few = Stretches::of(self.connected, &self.table);
        self.latest.set(Run::NONE);
        is_neighbor(self.connected, via)
    }

    /// True if a single station of the connected network can have the address.
    pub(super) fn is_on_link(&self, address: Ipv4Addr) -> bool {
        is_neighbor(self.connected, address)
    }

    /// True if the address is a configured route's next hop.
    pub(super) fn is_next_hop(&self, address: Ipv4Addr) -> bool {
        self.hops.contains(&address)
    }

    /// Run of the latest look-up without learnt routes.
    #[inline]
    pub(super) fn latest(&self) -> Run {
        self.latest.get()
    }

    /// Finds the next hop for a destination, with these learnt routes besides the configured ones.
    #[inline]
    pub(super) fn next_hop(&self, destination: Ipv4Addr, learnt: Option<&Table>) -> Hop {
        let latest = self.latest.get();
        if learnt.is_none() && latest.contains(destination) {
            return latest.way.hop(destination);
        }
        self.look_up(destination, learnt)
    }

    /// Finds the next hop, and remembers the run of addresses with the same target.
    #[inline(never)]
    fn look_up(&self, destination: Ipv4Addr, learnt: Option<&Table>) -> Hop {
        let way = match (&self.few, learnt) {
            (Some(few), None) => {
                let run = few.find(destination);
                self.latest.set(run);
                run.way
            }
            _ => Way::of(self.connected, destination, self.search(destination, learnt)),
        };
        way.hop(destination)
    }

    /// Number of routes, and approximate memory, bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.table.len(), self.table.mem_size())
    }

    fn search(&self, destination: Ipv4Addr, learnt: Option<&Table>) -> Option<Target> {
        let host = (destination.to_bits(), 32);
        let own = self.table.get_lpm(&host);
        let other = learnt.and_then(|learnt| learnt.get_lpm(&host));
        match (own, other) {
            (Some(((_, own), _)), Some(((_, other), via))) if other > own => {
                Some(Target::Via(*via))
            }
            (None, Some((_, via))) => Some(Target::Via(*via)),
            (own, _) => own.map(|(_, target)| *target),
        }
    }
}

/// True if an address belongs to a single station of a network.
pub(super) fn is_neighbor(network: Prefix, address: Ipv4Addr) -> bool {
    let address = address.to_bits();
    // Networks of two addresses or one have no broadcast address (RFC 3021).
    let everybody = address == network.first() || address == network.last();
    network.contains(address) && (network.len() >= 31 || !everybody)
}

pub(super) fn key(prefix: Prefix) -> (u32, u8) {
    (prefix.first(), prefix.len())
}

/// Way of the packets to the addresses of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The destination itself is the neighbour.
    Itself,
    /// The next hop is the neighbour.
    Via(Ipv4Addr),
    /// The destination is a broadcast address.
    Everybody,
    /// No route leads there.
    Nowhere,
}

impl Way {
    /// Way to a destination with this target, on a link with this network.
    fn of(connected: Prefix, destination: Ipv4Addr, target: Option<Target>) -> Self {
        match target {
            Some(Target::Via(via)) => Self::Via(via),
            Some(Target::Connected) if is_neighbor(connected, destination) => Self::Itself,
            //= rfc1812#section-4.2.3.1
            Some(Target::Connected) => Self::Everybody,
            None => Self::Nowhere,
        }
    }

    #[inline]
    fn hop(self, destination: Ipv4Addr) -> Hop {
        match self {
            Self::Itself => Hop::Neighbor(destination),
            Self::Via(via) => Hop::Neighbor(via),
            Self::Everybody => Hop::Everybody,
            Self::Nowhere => Hop::Nowhere,
        }
    }
}

/// Addresses in a row with the same way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// First address.
    first: u32,
    /// Number of addresses.
    len: u64,
    way: Way,
}

impl Run {
    /// No address.
    pub(super) const NONE: Self = Self { first: 0, len: 0, way: Way::Nowhere };

    /// True if an address is one of the run.
    #[inline]
    pub(super) fn contains(&self, address: Ipv4Addr) -> bool {
        u64::from(address.to_bits().wrapping_sub(self.first)) < self.len
    }

    /// True if each address of the run is a neighbour of its own.
    #[inline]
    pub(super) fn is_on_link(&self) -> bool {
        self.way == Way::Itself
    }

    /// The next hop of the run's addresses, if they have one.
    #[inline]
    pub(super) fn via(&self) -> Option<Ipv4Addr> {
        match self.way {
            Way::Via(via) => Some(via),
            _ => None,
        }
    }
}

/// All addresses, cut into runs with one way each.
#[derive(Debug)]
struct Stretches {
    /// First address of each run, in order; the first is 0. Unused entries are [`u32::MAX`].
    first: [u32; Self::MOST],
    /// Way of each run. Unused entries repeat the last run's way.
    ways: [Way; Self::MOST],
}

impl Stretches {
    const MOST: usize = 32;

    /// Lays out a few routes as runs; `None` if there are too many routes. The broadcast addresses
    /// of the connected network are runs of their own.
    fn of(connected: Prefix, table: &PrefixMap<(u32, u8), Target>) -> Option<Self> {
        if table.len() > Self::MOST {
            return None;
        }
        let mut cuts = vec![0, connected.last()];
        cuts.extend(connected.first().checked_add(1));
        for (first, len) in table.keys() {
            let prefix = Prefix::new(Ipv4Addr::from_bits(first), len);
            cuts.push(prefix.first());
            cuts.extend(prefix.last().checked_add(1));
        }
        cuts.sort_unstable();
        cuts.dedup();
        if cuts.len() > Self::MOST {
            return None;
        }
        let way = |first: u32| {
            let target = table.get_lpm(&(first, 32)).map(|(_, target)| *target);
            Way::of(connected, Ipv4Addr::from_bits(first), target)
        };
        let last = way(u32::MAX);
        let mut stretches = Self { first: [u32::MAX; Self::MOST], ways: [last; Self::MOST] };
        for (place, first) in cuts.into_iter().enumerate() {
            (stretches.first[place], stretches.ways[place]) = (first, way(first));
        }
        Some(stretches)
    }

    /// Run of an address.
    fn find(&self, destination: Ipv4Addr) -> Run {
        let destination = destination.to_bits();
        let mut place = 0;
        let mut step = Self::MOST / 2;
        while step > 0 {
            // Invariant: the run at `place` begins at the destination or before.
            place += step * usize::from(self.first[place + step] <= destination);
            step /= 2;
        }
        let first = self.first[place];
        // Unused entries begin at the last address, so the last run ends before it there. That
        // address is then a run of its own.
        let after = self.first.get(place + 1).map_or(1 << 32, |after| u64::from(*after));
        let len = (after - u64::from(first)).max(1);
        Run { first, len, way: self.ways[place] }
    }
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
        match routes.next_hop(address(destination), None) {
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
        assert_eq!(routes.next_hop(address("10.0.1.0"), None), Hop::Nowhere);
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
        assert_eq!(routes.next_hop(address("10.0.0.0"), None), Hop::Everybody);
        assert_eq!(routes.next_hop(address("10.0.0.255"), None), Hop::Everybody);
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
