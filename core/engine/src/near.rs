//! Addresses that may be near: other than those of remote hosts, for packets from realm 0. They are
//! known by their first octet, so that a packet which begins a flow asks about its destination by
//! one bit. Only a destination with such an octet is compared with every table.

use crate::config::Config;
use crate::parse::is_martian;

/// A set of first octets of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Octets([u64; 4]);

impl Octets {
    /// The first octets of addresses that may be near: martian ones, the gateway's own, the inside
    /// network, networks behind inside routers, and broadcast addresses. External addresses are
    /// left out, because they change with the pools.
    pub(crate) fn near(config: &Config) -> Self {
        const LINK_LOCAL: u32 = 169;
        let mut near = Self([0; 4]);
        let is_within = |octet: u32| octet == LINK_LOCAL || is_martian(octet << 24);
        let martian = (0..=255).filter(|&octet| is_within(octet)).map(|octet| octet << 24);
        let sides = [&config.inside, &config.outside];
        let own = sides.iter().filter_map(|side| side.address).map(|own| own.to_bits());
        let networks = sides.iter().filter_map(|side| side.network);
        let ends = networks.flat_map(|network| [network.first(), network.last()]);
        for address in martian.chain(own).chain(ends) {
            near.add(address, address);
        }
        if let Some(network) = config.inside.network {
            near.add(network.first(), network.last());
        }
        for range in config.inside_routes_of(0) {
            near.add(range.first.to_bits(), range.last.to_bits());
        }
        near
    }

    /// Adds the octets of the addresses from `first` to `last`.
    fn add(&mut self, first: u32, last: u32) {
        for octet in first >> 24..=last >> 24 {
            self.0[octet as usize / 64] |= 1 << (octet % 64);
        }
    }

    /// True if the set has the first octet of an address.
    #[inline(always)]
    pub(crate) fn has(&self, address: u32) -> bool {
        let octet = address >> 24;
        self.0[octet as usize / 64] >> (octet % 64) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AddressRange, Prefix, SideConfig};
    use crate::engine::Engine;
    use crate::{PoolConfig, Timestamp};
    use alloc::vec;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn side(address: u32, len: u8) -> SideConfig {
        let network = Some(Prefix::new(Ipv4Addr::from_bits(address), len));
        SideConfig { address: Some(Ipv4Addr::from_bits(address)), network, ..SideConfig::default() }
    }

    proptest! {
        /// Whatever is near by the tables has an octet of the set.
        #[test]
        fn no_near_address_is_missed(
            sides in prop::array::uniform2((0x0100_0000_u32..0xdf00_0000, 1_u8..=32)),
            route in (0x0100_0000_u32..0xdf00_0000, 0_u32..0x0300_0000),
            any in any::<u32>(),
        ) {
            let pool = Ipv4Addr::new(203, 0, 113, 1);
            let range = AddressRange { first: pool, last: pool };
            let [first, last] = [route.0, route.0 + route.1].map(Ipv4Addr::from_bits);
            let config = Config {
                inside: side(sides[0].0, sides[0].1),
                outside: side(sides[1].0, sides[1].1),
                inside_routes: vec![AddressRange { first, last }],
                pools: vec![PoolConfig { addresses: vec![range], ..PoolConfig::default() }],
                ..Config::default()
            };
            let Ok(engine) = Engine::new(&config, [0; 32], Timestamp(0)) else { return Ok(()) };
            let near = Octets::near(&config);
            let ends = [sides[0].0, sides[1].0, route.0, route.0 + route.1, any];
            for address in ends.into_iter().flat_map(|end| [end, end ^ 1, end | 0xff, any ^ end]) {
                prop_assert!(near.has(address) || engine.is_far(address), "{address:08x}");
            }
        }
    }
}
