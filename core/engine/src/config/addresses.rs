//! The external addresses of a configuration, in the order of their indexes.

use super::Config;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// All external addresses of a configuration: the pools', then those that only static mappings
/// name.
pub(crate) fn external_addresses(config: &Config) -> Vec<u32> {
    let ranges = config.pools.iter().flat_map(|pool| &pool.addresses);
    let mut addresses: Vec<u32> =
        ranges.flat_map(|range| range.first.to_bits()..=range.last.to_bits()).collect();
    let mut known: BTreeSet<u32> = addresses.iter().copied().collect();
    let others = config.fixed_addresses().map(Ipv4Addr::to_bits);
    addresses.extend(others.filter(|&address| known.insert(address)));
    addresses
}
