//! Changes while engine and model run: a restart, other rules, another configuration, other pools.

use crate::same::{by_time, legal, same};
use crate::{Divergence, Pair, invariants};
use natgate_engine::{
    Config, ConfigError, Endpoint, Engine, MappingId, PoolChange, PoolConfig, Reconfiguration,
    ReconfigureError, Review, Rule, RuleAction, RuleSet,
};
use natgate_model::{Effects, Model, StillHeld};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::collections::HashMap;
use std::fmt::Debug;
use std::net::Ipv4Addr;

impl Pair {
    /// Replaces the engine by a new one that holds the ports that the old one had taken, and the
    /// model likewise.
    ///
    /// # Errors
    /// When the engine refuses the configuration, or its choice was not open.
    pub fn restart(&mut self, seed: [u8; 32]) -> Result<(), Divergence> {
        let old = &self.engine;
        let mut engine = Engine::new(&self.config, seed, self.model.now())
            .map_err(|error| format!("the engine refused the configuration: {}", error.message))?;
        for protocol in [TCP, UDP, ICMP, DCCP] {
            for (address, ports) in taken(old, protocol) {
                engine.hold_ports(address, protocol, &ports);
            }
        }
        self.engine = engine;
        self.changed = invariants::Changed {
            addresses: self.changed.addresses,
            ..invariants::Changed::default()
        };
        let engine = &self.engine;
        let still_held = |protocol, end| is_taken(engine, protocol, end);
        self.model = self.model.restarted(Some(&still_held));
        legal("ports held", self.model.effects())
    }

    /// Marks a server of a service as up or down, by their places in the configuration.
    pub fn mark_server(&mut self, service: usize, server: usize, is_up: bool) {
        self.engine.mark_server(service, server, is_up);
        self.model.mark_server(service, server, is_up);
    }

    /// Replaces the rules of both.
    ///
    /// # Errors
    /// When the engine refuses the rules, or when the results differ.
    pub fn replace_rules(&mut self, rules: &[Rule]) -> Result<(), Divergence> {
        self.replace_rules_of(0, rules)
    }

    /// [`Pair::replace_rules`] for a realm.
    ///
    /// # Errors
    /// When the engine refuses the rules.
    pub fn replace_rules_of(&mut self, realm: u16, rules: &[Rule]) -> Result<(), Divergence> {
        // Everything that is due by now happens before the change.
        self.advance(self.model.now())?;
        RuleSet::new(rules)
            .and_then(|set| self.engine.replace_rules_of(realm, set))
            .map_err(|error| format!("the engine refused the rules: {}", error.message))?;
        self.reconfigured(|model, still_held| {
            model.replace_rules_of(realm, rules, Some(still_held))
        })
    }

    /// Puts another configuration in force, with both. The engine's review of departures before the
    /// change must be correct. Returns false if both refuse the configuration because a host cannot
    /// have the block of a forwarded port (14.24).
    ///
    /// # Errors
    /// When the engine refuses the configuration for another reason, or when the results differ.
    pub fn reconfigure(&mut self, config: &Config) -> Result<bool, Divergence> {
        // Everything that is due by now happens before the change.
        self.advance(self.model.now())?;
        let config = &config.in_numbers_of(self.engine.config());
        self.model.check_numbers(config)?;
        let refused =
            |error: &dyn Debug| format!("the engine refused the configuration: {error:?}");
        let mut new =
            Reconfiguration::new(self.engine.config(), config).map_err(|error| refused(&error))?;
        let exact = self.engine.draining().all(|one| !one.leaves);
        let mut review = Review::new(usize::MAX);
        while self.engine.review(&new, &mut review) {}
        let mut expected = self.mapping_ids();
        let has_conflict = self.model.refuses_blocks(config);
        match self.engine.prepare_configuration(&mut new) {
            Err(ReconfigureError::Block(_)) if has_conflict => return Ok(false),
            Ok(()) if has_conflict => return Err("the engine gives a block that is taken".into()),
            result => result.map_err(|error| refused(&error))?,
        }
        while !self.engine.is_prepared() {
            self.engine.advance(self.model.now());
        }
        self.engine.reconfigure(new);
        self.reconfigured(|model, still_held| model.reconfigure(config, Some(still_held)))?;
        if !exact {
            return Ok(true);
        }
        same("mappings that stay and go", &self.engine.departed(), &(review.stay, review.go))?;
        // Mappings that share an external port may differ in the remote endpoint alone, so ids are
        // counted.
        for leaving in &review.named {
            *expected.entry(leaving.mapping).or_default() -= 1;
        }
        let there = self.mapping_ids();
        let left = |id| there.get(id).copied().unwrap_or_default();
        match review.named.iter().find(|one| left(&one.mapping) > expected[&one.mapping]) {
            Some(leaving) => Err(format!("{:?} was to go and is there", leaving.mapping)),
            None => Ok(true),
        }
    }

    /// Number of the engine's mappings with each id.
    fn mapping_ids(&self) -> HashMap<MappingId, isize> {
        let mut ids = HashMap::new();
        for mapping in self.engine.mappings() {
            *ids.entry(mapping.id).or_default() += 1;
        }
        ids
    }

    /// Lets both remove the mappings that may not stay.
    fn reconfigured(
        &mut self,
        in_model: impl FnOnce(&mut Model, StillHeld<'_>) -> Effects,
    ) -> Result<(), Divergence> {
        let mut made = Effects::default();
        while self.engine.advance(self.model.now()) {
            self.drain(&mut made)?;
        }
        self.drain(&mut made)?;
        if !self.engine.is_settled() {
            return Err("mappings have not been asked, and nothing is left to do".into());
        }
        let engine = &self.engine;
        let still_held = |protocol, end| is_taken(engine, protocol, end);
        let expected = in_model(&mut self.model, &still_held);
        legal("ports held", &expected)?;
        same("events of a reconfiguration", &by_time(&made.events), &by_time(&expected.events))?;
        same("packets of it", &made.transmits, &expected.transmits)?;
        let config = self.model.config().clone();
        self.changed.addresses |= chooses(&config) || config.pooling != self.config.pooling;
        self.changed.pools |= config.pools != self.config.pools;
        self.changed.limits |=
            (&config.limits, &config.classes) != (&self.config.limits, &self.config.classes);
        self.config = config;
        Ok(())
    }

    /// Replaces the pools of both. The new pools must have the names of the old ones.
    ///
    /// # Errors
    /// When the engine refuses the pools, or gives them other numbers.
    pub fn change_pools(&mut self, pools: &[PoolConfig]) -> Result<(), Divergence> {
        let config = Config { pools: pools.to_vec(), ..self.config.clone() };
        let refused =
            |error: ConfigError| format!("the engine refused the pools: {}", error.message);
        let change = PoolChange::new(self.engine.config(), &config).map_err(refused)?;
        let arranged = change.config().clone();
        let names = |config: &Config| -> Vec<String> {
            config.pools.iter().map(|pool| pool.name.clone()).collect()
        };
        same("pools", &names(&arranged), &names(&config))?;
        self.engine.change_pools(change).map_err(refused)?;
        self.model.change_pools(arranged);
        self.config = config;
        self.changed.pools = true;
        Ok(())
    }
}

/// True if a rule chooses the external address of mappings.
pub(crate) fn chooses(config: &Config) -> bool {
    choose(&config.rules) || config.realms.iter().any(|realm| choose(&realm.rules))
}

fn choose(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| matches!(rule.action, RuleAction::SnatTo(..)))
}

/// The ports that the engine would give to no mapping now, a bit each, by external address.
fn taken(engine: &Engine, protocol: u8) -> impl Iterator<Item = (Ipv4Addr, [u64; 1024])> {
    (0..).map_while(move |index| {
        let mut ports = [0; 1024];
        let address = engine.taken_ports(index, protocol, &mut ports)?;
        Some((address, ports))
    })
}

/// True if the engine would give a port to no mapping now.
pub(crate) fn is_taken(engine: &Engine, protocol: u8, end: Endpoint) -> bool {
    let bit = |ports: [u64; 1024]| ports[usize::from(end.port) / 64] >> (end.port % 64) & 1 != 0;
    taken(engine, protocol).any(|(address, ports)| address == end.address && bit(ports))
}
