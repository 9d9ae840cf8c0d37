//! The external addresses of a configuration, in the order of their indexes; and the addresses of
//! IPv4 hosts inside.

use super::{AddressRange, Allocation, Config, Match, RealmConfig, Rule, RuleAction};
use crate::ranges::Ranges;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

impl Allocation {
    /// The ports of a pool that gives out whole addresses, first to last.
    pub const ALL_PORTS: (u16, u16) = (1, u16::MAX);
}

impl Config {
    /// The external addresses of static mappings and services, once for each mention.
    pub fn fixed_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let statics = self.statics.iter().map(|mapping| mapping.external.0);
        statics.chain(self.services.iter().map(|service| service.external.0))
    }

    /// All external addresses in as few ranges as possible, ascending.
    pub fn external_ranges(&self) -> Vec<AddressRange> {
        let pools = self.pools.iter().flat_map(|pool| &pool.addresses);
        let pools = pools.map(|range| (range.first.to_bits(), range.last.to_bits()));
        let single = self.fixed_addresses().map(|address| (address.to_bits(), address.to_bits()));
        merged(pools.chain(single).collect())
    }

    /// The addresses of IPv4 hosts inside, of all realms, in as few ranges as possible, ascending:
    /// connected networks, destinations behind routers, and sources of bypass rules.
    pub fn inside_ranges(&self) -> Vec<AddressRange> {
        let own = core::iter::once((&self.inside, &self.inside_routes));
        let others = self.realms.iter().map(|realm| (&realm.inside, &realm.inside_routes));
        let mut ranges = Vec::new();
        for (side, routes) in own.chain(others) {
            ranges.extend(side.network.map(|network| (network.first(), network.last())));
            ranges.extend(routes.iter().map(|route| (route.first.to_bits(), route.last.to_bits())));
        }
        ranges.extend(self.bypasses().filter_map(|one| match one {
            Match::Source(prefix, _) if !prefix.is_empty() => Some((prefix.first(), prefix.last())),
            _ => None,
        }));
        merged(ranges)
    }

    /// The addresses outside from which packets reach subscribers by bypass rules, in as few ranges
    /// as possible, ascending. A rule for all sources names all addresses outside.
    pub fn bypassed_ranges(&self) -> Vec<AddressRange> {
        let ranges = self.bypasses().filter_map(|one| match one {
            Match::Destination(prefix, _) => Some((prefix.first(), prefix.last())),
            Match::Source(prefix, _) => prefix.is_empty().then_some((0, u32::MAX)),
        });
        merged(ranges.collect())
    }

    /// The addresses of subscribers of all realms, in as few ranges as possible, ascending. Numbers
    /// are none.
    pub fn subscriber_ranges(&self) -> Vec<AddressRange> {
        let others = self.addressed_realms().flat_map(|realm| &realm.subscribers);
        let all = self.subscribers.iter().chain(others);
        merged(all.map(|prefix| (prefix.first(), prefix.last())).collect())
    }

    /// The realms whose hosts have addresses, not numbers.
    fn addressed_realms(&self) -> impl Iterator<Item = &RealmConfig> {
        self.realms.iter().filter(|realm| !realm.gone && realm.host_bits.is_none())
    }

    /// What the bypass rules of these realms match.
    fn bypasses(&self) -> impl Iterator<Item = Match> {
        let others = self.addressed_realms().flat_map(|realm| &realm.rules);
        let bypasses = |rule: &&Rule| rule.action == RuleAction::Bypass;
        self.rules.iter().chain(others).filter(bypasses).map(|rule| rule.matches)
    }

    /// Number of external addresses of pools, static mappings and services.
    pub fn count_addresses(&self) -> usize {
        external_addresses(self).len()
    }
}

/// Ranges of addresses, joined where they overlap or touch each other.
fn merged(ranges: Vec<(u32, u32)>) -> Vec<AddressRange> {
    let range = |(first, last)| {
        let [first, last] = [first, last].map(Ipv4Addr::from_bits);
        AddressRange { first, last }
    };
    Ranges::new(ranges).iter().map(range).collect()
}

/// All external addresses of a configuration: first the addresses of pools, then addresses that
/// only static mappings and services name.
pub(crate) fn external_addresses(config: &Config) -> Vec<u32> {
    let ranges = config.pools.iter().flat_map(|pool| &pool.addresses);
    let mut addresses: Vec<u32> =
        ranges.flat_map(|range| range.first.to_bits()..=range.last.to_bits()).collect();
    let mut known: BTreeSet<u32> = addresses.iter().copied().collect();
    let others = config.fixed_addresses().map(Ipv4Addr::to_bits);
    addresses.extend(others.filter(|&address| known.insert(address)));
    addresses
}
