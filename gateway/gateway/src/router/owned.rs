//! Addresses for which the router answers ARP requests on one side: the gateway's own address there
//! and, outside, every external address.
//!
//! The addresses are kept as ranges, because a pool may have tens of thousands: a search costs a
//! few comparisons. The same list shows whether another station uses one of the addresses, and
//! which addresses are announced on a new link.

use crate::settings::SideSettings;
use natgate_engine::Config;
use std::net::Ipv4Addr;

/// Addresses of the gateway: ranges in order, none touching another.
#[derive(Debug)]
pub(super) struct OwnedAddresses(Vec<(u32, u32)>);

impl OwnedAddresses {
    /// An empty list.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// The side's own address and, outside, the external addresses.
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

    /// All addresses, in order.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last).map(Ipv4Addr::from_bits)
    }

    /// True if the list has an address.
    pub(super) fn contains(&self, address: Ipv4Addr) -> bool {
        let address = address.to_bits();
        let after = self.0.partition_point(|(first, _)| *first <= address);
        after > 0 && address <= self.0[after - 1].1
    }
}
