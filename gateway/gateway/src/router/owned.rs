//! The addresses that a side's ARP requests are answered for: the gateway's own there and, outside,
//! every external one.
//!
//! They are kept as ranges, because a pool may have tens of thousands of them: a search costs a few
//! comparisons. The same list tells when somebody else uses one of them, and which are announced on
//! a new link.

use crate::settings::SideSettings;
use natgate_engine::Config;
use std::net::Ipv4Addr;

/// Addresses that are answered for: ranges in order, none touching another.
#[derive(Debug)]
pub(super) struct OwnedAddresses(Vec<(u32, u32)>);

impl OwnedAddresses {
    /// No address.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// A side's own address and, outside, the external addresses.
    pub(super) fn new(side: &SideSettings, external: Option<&Config>) -> Self {
        let own = side.address.iter().map(|(address, _)| (address.to_bits(), address.to_bits()));
        let pools = external.into_iter().flat_map(|config| &config.pools);
        let pools = pools.flat_map(|pool| &pool.addresses);
        let pools = pools.map(|range| (range.first.to_bits(), range.last.to_bits()));
        let statics = external.into_iter().flat_map(|config| &config.statics);
        let statics = statics.map(|fixed| (fixed.external.0.to_bits(), fixed.external.0.to_bits()));
        let mut ranges: Vec<_> = own.chain(pools).chain(statics).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|later, earlier| {
            let touching = later.0 <= earlier.1.saturating_add(1);
            if touching {
                earlier.1 = earlier.1.max(later.1);
            }
            touching
        });
        Self(ranges)
    }

    /// Every address, in order.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last).map(Ipv4Addr::from_bits)
    }

    /// Whether an address is one of them.
    pub(super) fn contains(&self, address: Ipv4Addr) -> bool {
        let address = address.to_bits();
        let after = self.0.partition_point(|(first, _)| *first <= address);
        after > 0 && address <= self.0[after - 1].1
    }
}
