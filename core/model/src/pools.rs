//! Pools that change while the translator runs (specification, 5.16 to 5.20).

use crate::allocation::addresses;
use crate::classes::LimitOwner;
use crate::{Model, shares};
use natgate_engine::{Config, Endpoint};
use std::net::Ipv4Addr;

impl Model {
    /// 5.19: puts other pools in the place of those in force; their order is that of the old.
    pub fn change_pools(&mut self, config: Config) {
        let old = self.config.pools.iter().flat_map(addresses).collect::<Vec<_>>();
        let known = old.into_iter().chain(self.left.keys().copied());
        let counted = known.map(|address| (address, self.pool_of(address.to_bits())));
        let counted: Vec<(Ipv4Addr, Option<usize>)> = counted.collect();
        self.left.clear();
        self.config = config;
        for (address, pool) in counted {
            if let Some(pool) = pool
                && self.pool_of(address.to_bits()) != Some(pool)
            {
                self.left.insert(address, pool);
            }
        }
        let pools = self.config.pools.iter();
        self.given = pools.map(|pool| shares::given(&self.config, pool)).collect();
        self.told_of.retain(|whose, _| !matches!(whose, LimitOwner::Pool(_)));
        self.settle_pools();
    }

    /// 5.19: an address that has left its pool is counted with it while anything of it is there.
    pub(crate) fn settle_pools(&mut self) {
        let used: Vec<Ipv4Addr> = self
            .dynamic()
            .map(|(_, mapping)| mapping.external.address)
            .chain(self.blocks.keys().map(|start| start.address))
            .collect();
        self.left.retain(|address, _| used.contains(address));
    }

    /// 5.17, 5.19: whether an address of a pool gives out ports.
    pub(crate) fn is_open(&self, address: Ipv4Addr, pool: usize) -> bool {
        let of_pool = &self.config.pools[pool];
        self.pool_of(address.to_bits()) == Some(pool)
            && of_pool.has(address)
            && !of_pool.is_draining(address)
    }

    /// The addresses of a pool that give out ports.
    pub(crate) fn open_addresses(&self, pool: usize) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let all = addresses(&self.config.pools[pool]);
        all.filter(move |address| self.is_open(*address, pool))
    }

    /// The addresses that are counted with a pool.
    pub fn addresses_of(&self, pool: usize) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let own = addresses(&self.config.pools[pool]);
        let own = own.filter(move |address| self.pool_of(address.to_bits()) == Some(pool));
        let left = self.left.iter().filter(move |(_, of)| **of == pool);
        own.chain(
            left.map(|(address, _)| *address)
                .filter(move |address| !self.config.pools[pool].has(*address)),
        )
    }

    /// Whether a port may be given to somebody when nobody has it.
    pub(crate) fn gives_out(&self, pool: usize, protocol: u8, end: Endpoint) -> bool {
        self.is_open(end.address, pool)
            && self.config.pools[pool].uses_port(end.port)
            && self.given[pool].as_ref().is_none_or(|given| given.contains(&end))
            && self.static_internals(protocol, end).is_empty()
    }
}
