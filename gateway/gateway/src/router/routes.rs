//! Routes of one link and their look-up: the longest matching prefix wins.
//!
//! All routes are in a trie. Unless there are very many, they are also laid out as runs of
//! addresses with one target each. The run of the latest look-up is remembered, because the next
//! packet often goes there, too. [Learnt routes](super::LearntRoutes) are kept apart, and the
//! remembered run names the generation of the learnt routes that it is right for. If a configured
//! and a learnt route have the same prefix, the configured route counts.

use super::learnt::Table;
use super::runs::{Best, Runs};
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
    /// The routes as runs, unless there are very many, or some were added since.
    runs: Option<Runs<Target>>,
    /// The run of the latest look-up, and the generation of the learnt routes at that time.
    latest: Cell<(u64, Run)>,
    /// Next hops of all routes.
    hops: HashSet<Ipv4Addr>,
}

impl Routes {
    /// Creates the routes of a link with this network.
    pub(super) fn new(connected: Prefix) -> Self {
        let mut table = PrefixMap::new();
        table.insert(key(connected), Target::Connected);
        let (runs, latest) = (None, Cell::new((0, Run::NONE)));
        let mut routes = Self { connected, table, runs, latest, hops: HashSet::new() };
        routes.settle();
        routes
    }

    /// Adds a route; of two for the same prefix the earlier stays. Returns true if `via` is a valid
    /// next hop: an address of a station on the link. Call [`Routes::settle`] after the last route.
    pub(super) fn add(&mut self, prefix: Prefix, via: Ipv4Addr) -> bool {
        self.table.entry(key(prefix)).or_insert(Target::Via(via));
        self.hops.insert(via);
        self.runs = None;
        self.latest.set((0, Run::NONE));
        is_neighbor(self.connected, via)
    }

    /// Lays out the routes as runs. The broadcast addresses of the connected network are runs of
    /// their own.
    pub(super) fn settle(&mut self) {
        self.runs = Runs::of(&self.table);
        let (first, last) = (self.connected.first(), self.connected.last());
        let after = [first, last].into_iter().filter_map(|address| address.checked_add(1));
        if let Some(runs) = &mut self.runs {
            [first, last].into_iter().chain(after).for_each(|address| runs.cut(address));
        }
    }

    /// True if a single station of the connected network can have the address.
    pub(super) fn is_on_link(&self, address: Ipv4Addr) -> bool {
        is_neighbor(self.connected, address)
    }

    /// True if the address is a configured route's next hop.
    pub(super) fn is_next_hop(&self, address: Ipv4Addr) -> bool {
        self.hops.contains(&address)
    }

    /// Next hops of the configured routes.
    pub(super) fn hops(&self) -> impl Iterator<Item = Ipv4Addr> + Clone + '_ {
        self.hops.iter().copied()
    }

    /// Run of the latest look-up, if it is right with these learnt routes.
    #[inline]
    pub(super) fn latest(&self, learnt: Option<&Table>) -> Run {
        match self.latest.get() {
            (generation, run) if generation == generation_of(learnt) => run,
            _ => Run::NONE,
        }
    }

    /// Finds the next hop for a destination, with these learnt routes besides the configured ones.
    #[inline]
    pub(super) fn next_hop(&self, destination: Ipv4Addr, learnt: Option<&Table>) -> Hop {
        let latest = self.latest(learnt);
        if latest.contains(destination) {
            return latest.way.hop(destination);
        }
        self.look_up(destination, learnt)
    }

    /// Finds the next hop, and remembers the run of addresses with the same target.
    #[inline(never)]
    fn look_up(&self, destination: Ipv4Addr, learnt: Option<&Table>) -> Hop {
        let way = |target| Way::of(self.connected, destination, target);
        match self.run_of(destination.to_bits(), learnt) {
            Some((first, last, target)) => {
                let way = way(target);
                let len = u64::from(last - first) + 1;
                self.latest.set((generation_of(learnt), Run { first, len, way }));
                way.hop(destination)
            }
            None => way(self.search(destination, learnt)).hop(destination),
        }
    }

    /// The first and the last of the addresses around one that have the same target, and the
    /// target; `None`: the routes are not laid out as runs.
    fn run_of(&self, address: u32, learnt: Option<&Table>) -> Option<(u32, u32, Option<Target>)> {
        let (first, last, own) = self.runs.as_ref()?.find(address);
        let Some(learnt) = learnt else { return Some((first, last, prefer(own, None))) };
        let (other_first, other_last, other) = learnt.runs()?.find(address);
        Some((first.max(other_first), last.min(other_last), prefer(own, other)))
    }

    /// Number of routes, and approximate memory, bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.table.len(), self.table.mem_size())
    }

    fn search(&self, destination: Ipv4Addr, learnt: Option<&Table>) -> Option<Target> {
        let host = (destination.to_bits(), 32);
        let own = self.table.get_lpm(&host).map(|((_, len), target)| (len, *target));
        prefer(own, learnt.and_then(|learnt| learnt.search(host)))
    }
}

/// The target of the longer one of a configured and a learnt prefix.
fn prefer(own: Best<Target>, learnt: Best<Ipv4Addr>) -> Option<Target> {
    match (own, learnt) {
        (Some((own, _)), Some((other, via))) if other > own => Some(Target::Via(via)),
        (None, Some((_, via))) => Some(Target::Via(via)),
        (own, _) => own.map(|(_, target)| target),
    }
}

/// Generation of learnt routes; 0: there are none.
#[inline]
fn generation_of(learnt: Option<&Table>) -> u64 {
    learnt.map_or(0, Table::generation)
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
        routes.settle();
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
