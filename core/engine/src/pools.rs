//! The engine while its pools change: `external` does the work, a step at a time between batches of
//! packets. A change has three parts: prepared, put in force, and carried through.

use crate::config::Config;
use crate::host::Host;
use crate::realms::broadcasts;
use crate::translate::PoolWatches;
use crate::{ConfigError, Draining, Engine, MappingId, MappingKind, PoolChange};

impl Engine {
    /// The configuration in force, with its pools in the engine's numbering and without its rules.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Begins to change the pools: until [`Engine::pools_prepared`], [`Engine::advance`] makes new
    /// addresses external and gives out no longer what the new pools do not have; then
    /// [`Engine::switch_pools`] may be called.
    ///
    /// # Errors
    /// [`ConfigError`] when there is no room for so many addresses or blocks, or another change is
    /// under way; nothing has changed then.
    pub fn prepare_pools(&mut self, change: PoolChange) -> Result<(), ConfigError> {
        self.external.prepare(change)
    }

    /// Whether a change of the pools is prepared and waits for [`Engine::switch_pools`].
    pub fn pools_prepared(&self) -> bool {
        self.external.is_prepared()
    }

    /// Puts prepared pools in force, between two batches of packets. [`Engine::advance`] then gives
    /// out what is new. Mappings stay as they are; an address that has changed its pool or is of
    /// none does so when it has no mapping any more.
    ///
    /// # Panics
    /// When none are prepared.
    pub fn switch_pools(&mut self) {
        let config = self.external.switch();
        self.pool_reported.resize(config.pools.len(), None);
        self.used.resize(config.pools.len(), [0; 5]);
        self.config.pools = config.pools;
        self.config.default_pool = config.default_pool;
        for (realm, new) in self.config.realms.iter_mut().zip(&config.realms) {
            realm.default_pool = new.default_pool;
        }
        self.config.allocation = config.allocation;
        self.may_be_short = true;
        self.broadcasts = broadcasts(&self.config, &self.external);
        self.pool_watches = PoolWatches::new(&self.config, &self.external);
    }

    /// Changes the pools without leaving time to packets in between.
    ///
    /// # Errors
    /// As [`Engine::prepare_pools`].
    pub fn change_pools(&mut self, change: PoolChange) -> Result<(), ConfigError> {
        self.prepare_pools(change)?;
        while !self.pools_prepared() {
            self.work_on_pools();
        }
        self.switch_pools();
        while self.work_on_pools() {}
        Ok(())
    }

    /// Whether nothing is left to do of a change of the pools but to wait until addresses that
    /// leave have no mapping any more.
    pub fn pools_settled(&self) -> bool {
        !self.external.has_work() && !self.external.is_changing()
    }

    /// The external addresses that give out no ports any more and have not left their pools: those
    /// that the operator has drained, and those of pools that have changed.
    pub fn draining(&self) -> impl Iterator<Item = Draining> + '_ {
        self.external.draining()
    }

    /// Whether the pools in force let a mapping stay that a subscriber has made: its address stays
    /// in its pool, which uses the port and does not say that it is another's. A static one they do
    /// not forbid.
    pub fn pools_allow(&self, mapping: &MappingId) -> bool {
        let MappingId { protocol, realm, internal, external, kind } = *mapping;
        let subscriber = Host::new(realm, internal.address.to_bits());
        let index = self.external.index(external.address.to_bits());
        kind == MappingKind::Static
            || index.is_some_and(|index| {
                self.external.allows(protocol, index, external.port, subscriber)
            })
    }

    /// Takes one step of a change of the pools; `false`: there is none to take.
    pub(crate) fn work_on_pools(&mut self) -> bool {
        if !self.external.step() {
            return false;
        }
        self.may_be_short = true;
        let addresses = self.external.count_addresses();
        self.identifications.grow(addresses, &mut self.generator);
        if self.pools_settled() {
            self.broadcasts = broadcasts(&self.config, &self.external);
            self.pool_watches.renew(&self.config, &self.external);
            for (number, pool) in self.config.pools.iter_mut().enumerate() {
                if pool.addresses.is_empty() && self.external.is_unused(number) {
                    // Its number is another's to have.
                    pool.name.clear();
                }
            }
        }
        true
    }
}
