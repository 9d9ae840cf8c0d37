//! Changes of pools in a running engine. `external` does the work, one step at a time between
//! batches of packets. A change has three parts: preparation, the switch, and completion.

use crate::config::Config;
use crate::host::Host;
use crate::realms::broadcasts;
use crate::subscriber::Takes;
use crate::translate::PoolWatches;
use crate::{Change, ConfigError, Draining, Engine, MappingId, MappingKind, PoolChange};
use core::net::Ipv4Addr;

impl Engine {
    /// The configuration in force, with its pools in the engine's numbering and without its rules.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Begins a change of the pools. Until [`Engine::pools_prepared`], [`Engine::advance`] makes
    /// new addresses external and stops giving out ports that the new pools lack. Then call
    /// [`Engine::switch_pools`].
    ///
    /// # Errors
    /// [`ConfigError`] when there is no room for the addresses or blocks, or when another change is
    /// under way. Nothing has changed then.
    pub fn prepare_pools(&mut self, change: PoolChange) -> Result<(), ConfigError> {
        self.external.prepare(change)
    }

    /// True if a change of the pools is prepared and waits for [`Engine::switch_pools`].
    pub fn pools_prepared(&self) -> bool {
        self.external.is_prepared()
    }

    /// Puts prepared pools in force, between two batches of packets. [`Engine::advance`] then gives
    /// out the new ports. Mappings stay as they are. An address that changes or leaves its pool
    /// does so after its last mapping. The time of the call grows with the number of mappings.
    ///
    /// # Panics
    /// When no pools are prepared.
    pub fn switch_pools(&mut self) {
        self.exchange_pools();
        // A remote endpoint may be external now: then packets to it are hairpinned.
        for slot in 0..self.table.extent() {
            if self.table.is_live(slot) && self.is_odd(slot) {
                self.table.set_answers(slot, false);
            }
        }
    }

    /// Puts prepared pools in force. The caller has every mapping checked.
    pub(crate) fn exchange_pools(&mut self) {
        let config = self.external.switch();
        self.pool_reported.resize(config.pools.len(), None);
        self.used.resize(config.pools.len(), [0; 5]);
        self.config.pools = config.pools;
        self.config.default_pool = config.default_pool;
        for (realm, new) in self.config.realms.iter_mut().zip(&config.realms) {
            realm.default_pool = new.default_pool;
        }
        self.config.allocation = config.allocation;
        self.subscribers.unanswered.set_pools(Takes::of(&self.config));
        self.may_be_short = true;
        self.broadcasts = broadcasts(&self.config, &self.external);
        self.pool_watches = PoolWatches::new(&self.config, &self.external);
    }

    /// Changes the pools without packets in between.
    ///
    /// # Errors
    /// [`ConfigError`], as for [`Engine::prepare_pools`].
    pub fn change_pools(&mut self, change: PoolChange) -> Result<(), ConfigError> {
        self.prepare_pools(change)?;
        while !self.pools_prepared() {
            self.work_on_pools();
        }
        self.switch_pools();
        while self.work_on_pools() {}
        Ok(())
    }

    /// True if no step of a change of the pools is left. Addresses that leave may still wait for
    /// the end of their mappings.
    pub fn pools_settled(&self) -> bool {
        !self.external.has_work() && !self.external.is_changing()
    }

    /// The external addresses that give out no more ports and have not left their pools: addresses
    /// that the operator drains, and addresses that change or leave their pool.
    pub fn draining(&self) -> impl Iterator<Item = Draining> + '_ {
        self.external.draining()
    }

    /// The external addresses that are in no pool any more, and of which a subscriber still has a
    /// block, or a mapping, or ports are held.
    pub fn left_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.external.left()
    }

    /// True if the pools in force allow a subscriber's mapping to stay: its address stays in its
    /// pool, the pool uses the port, and the port does not belong to another subscriber. Pools
    /// always allow a static mapping.
    pub fn pools_allow(&self, mapping: &MappingId) -> bool {
        let MappingId { protocol, realm, internal, external, kind } = *mapping;
        let subscriber = Host::new(realm, internal.address.to_bits());
        let index = self.external.index(external.address.to_bits());
        kind == MappingKind::Static
            || index.is_some_and(|index| {
                self.external.allows(protocol, index, external.port, subscriber)
            })
    }

    /// Takes one step of a change of the pools. Returns `false` if there is none.
    pub(crate) fn work_on_pools(&mut self) -> bool {
        if !self.external.step() {
            return false;
        }
        self.may_be_short = true;
        for block in self.external.take_pinned() {
            self.raise(self.now, Change::BlockAssigned(block));
        }
        let addresses = self.external.count_addresses();
        self.identifications.grow(addresses, &mut self.generator);
        if self.pools_settled() {
            self.broadcasts = broadcasts(&self.config, &self.external);
            self.pool_watches.renew(&self.config, &self.external);
            for (number, pool) in self.config.pools.iter_mut().enumerate() {
                if pool.addresses.is_empty() && self.external.is_unused(number) {
                    // The pool's number is free for another pool.
                    pool.name.clear();
                }
            }
        }
        true
    }
}
