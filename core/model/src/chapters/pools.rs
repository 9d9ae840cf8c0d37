//! Changes of pools while the translator runs (specification, 5.40 to 5.52).

use crate::Model;
use crate::allocation::addresses;
use crate::chapters::classes::LimitOwner;
use crate::chapters::shares;
use natgate_engine::{Config, Endpoint, PoolUsage};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

impl Model {
    /// 5.45: replaces the pools. The new pools must be in the order of the old ones.
    pub fn change_pools(&mut self, config: Config) {
        let old = self.config.pools.iter().flat_map(addresses).collect::<Vec<_>>();
        let known = old.into_iter().chain(self.chapters.left.keys().copied());
        let counted = known.map(|address| (address, self.pool_of(address.to_bits())));
        let counted: Vec<(Ipv4Addr, Option<usize>)> = counted.collect();
        self.chapters.left.clear();
        self.config = config;
        for (address, pool) in counted {
            if let Some(pool) = pool
                && self.pool_of(address.to_bits()) != Some(pool)
            {
                self.chapters.left.insert(address, pool);
            }
        }
        let pools = self.config.pools.iter();
        self.chapters.given = pools.map(|pool| shares::given(&self.config, pool)).collect();
        self.chapters.reported_thresholds.retain(|whose, _| !matches!(whose, LimitOwner::Pool(_)));
        self.settle_pools();
    }

    /// 5.47: forgets addresses that have left their pool and have nothing left. Until then they are
    /// counted with that pool.
    pub(crate) fn settle_pools(&mut self) {
        let used: Vec<Ipv4Addr> = self
            .dynamic()
            .map(|(_, mapping)| mapping.external.address)
            .chain(self.chapters.blocks.keys().map(|start| start.address))
            .collect();
        let before = self.chapters.left.len();
        self.chapters.left.retain(|address, _| used.contains(address));
        if self.chapters.left.len() < before {
            self.pin_blocks();
        }
    }

    /// The pool that counts an external address: its pool, or its former pool while the address
    /// still has mappings of it (5.45).
    pub(crate) fn pool_of(&self, address: u32) -> Option<usize> {
        let left = self.chapters.left.get(&Ipv4Addr::from_bits(address)).copied();
        left.or_else(|| self.config.pools.iter().position(|pool| pool.has(address.into())))
    }

    /// 5.41, 5.45: true if an address of a pool gives out ports.
    pub(crate) fn gives_out_ports(&self, address: Ipv4Addr, pool: usize) -> bool {
        let of_pool = &self.config.pools[pool];
        self.pool_of(address.to_bits()) == Some(pool)
            && of_pool.has(address)
            && !of_pool.is_draining(address)
    }

    /// The addresses that are counted with a pool.
    pub fn addresses_of(&self, pool: usize) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let own = addresses(&self.config.pools[pool]);
        let own = own.filter(move |address| self.pool_of(address.to_bits()) == Some(pool));
        let left = self.chapters.left.iter().filter(move |(_, of)| **of == pool);
        own.chain(
            left.map(|(address, _)| *address)
                .filter(move |address| !self.config.pools[pool].has(*address)),
        )
    }

    /// True if a port would be given out if it had no owner.
    pub(crate) fn gives_out(&self, pool: usize, protocol: u8, end: Endpoint) -> bool {
        self.gives_out_ports(end.address, pool)
            && self.config.pools[pool].uses_port(end.port)
            && self.chapters.given[pool].as_ref().is_none_or(|given| given.contains(&end))
            && self.static_internals(protocol, end).is_empty()
    }

    /// The use of a pool by a protocol.
    pub fn pool_usage(&self, pool: usize, protocol: u8) -> PoolUsage {
        let (first, last) = self.config.pools[pool].ports;
        let of_pool = |end: &Endpoint| {
            self.pool_of(end.address.to_bits()) == Some(pool) && (first..=last).contains(&end.port)
        };
        let used: BTreeSet<Endpoint> = self
            .dynamic()
            .filter(|(key, mapping)| key.protocol == protocol && of_pool(&mapping.external))
            .map(|(_, mapping)| mapping.external)
            .collect();
        let held = self.held.keys().filter(|(of, end)| *of == protocol && of_pool(end));
        let held: BTreeSet<Endpoint> = held.map(|(_, end)| *end).collect();
        let is_static = |address| self.chapters.fixed.iter().any(|one| one.external.0 == address);
        // Other addresses have no reserved ports, and too many ports to look at.
        let may_keep = |address: &Ipv4Addr| {
            is_static(*address)
                || self.chapters.given[pool].is_some()
                || !self.config.pools[pool].excluded_ports.is_empty()
                || !self.gives_out_ports(*address, pool)
        };
        let reserved = self
            .addresses_of(pool)
            .filter(may_keep)
            .flat_map(|address| (first..=last).map(move |port| Endpoint { address, port }))
            .filter(|end| !used.contains(end) && !held.contains(end))
            .filter(|end| !self.gives_out(pool, protocol, *end));
        let all = self.addresses_of(pool).count() * (usize::from(last - first) + 1);
        let (used, held, reserved) =
            (used.len() as u64, held.len() as u64, reserved.count() as u64);
        PoolUsage { free: all as u64 - used - held - reserved, used, held, reserved }
    }
}
