//! The start of an engine: tables of the configured size, with the configured contents.
//!
//! Static mappings, services and pinned blocks are placed here once. `reconfigure` changes them
//! later.

use super::{Engine, LATEST, due};
use crate::calendar::NONE;
use crate::class::Classes;
use crate::config::realms::without_rules;
use crate::config::{Config, Rule};
use crate::controls::Controls;
use crate::endpoint::{AddressPort, External, Internal};
use crate::event::Events;
use crate::explicit::Holds;
use crate::external::{ExternalPorts, pins};
use crate::fragments::Fragments;
use crate::host::{Grouping, Host};
use crate::identification::Identifications;
use crate::near::Octets;
use crate::packet::Counters;
use crate::random::{Generator, HashKey};
use crate::realms::Realms;
use crate::realms::broadcasts;
use crate::reconfigure::Sweep;
use crate::respond::{PendingSyns, Responder};
use crate::rules::{RuleBatch, RuleSet};
use crate::services::Services;
use crate::session::Session;
use crate::sizes::{Sizes, validate};
use crate::statics::{permanent, served, static_hosts};
use crate::subscriber::{Subscribers, Takes};
use crate::table::{NewMapping, SHARED_EXTERNAL, SHARED_INTERNAL, Table};
use crate::time::{TICK, nanos};
use crate::timeouts::Timers;
use crate::translate::{PoolWatches, Rings, Workspace};
use crate::twice::Twice;
use crate::whole::{WholeStatics, flags_of};
use crate::{ConfigError, Event, Timestamp};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

impl Engine {
    /// Makes an empty engine that starts at time `now`. The seed decides every choice that must not
    /// be guessed: take it from the operating system, or from the user to repeat a run.
    ///
    /// # Errors
    /// [`ConfigError`] names the contradiction in the configuration.
    pub fn new(config: &Config, seed: [u8; 32], now: Timestamp) -> Result<Self, ConfigError> {
        validate(config)?;
        let now = Timestamp(now.0.min(LATEST));
        let (sizes, timeouts) = (Sizes::new(config), Timers::new(config));
        let mut generator = Generator::new(seed);
        let (key, room) = (HashKey::new(&mut generator), sizes.address_room);
        let identifications = Identifications::new(sizes.addresses, room, &mut generator);
        let external = ExternalPorts::new(config, room, timeouts.hold_ticks, key);
        let rules = RuleSet::new(&config.rules)?;
        let realms = Realms::new(config, &rules)?;
        check_rules(config, (&rules, &realms), &external)?;
        let (classes, groups) = (Classes::new(config), Grouping::new(config));
        let mut engine = Self {
            table: Table::new(sizes.room, config, key),
            subscribers: Subscribers::new(sizes.subscribers, room, classes, groups, key),
            pool_watches: PoolWatches::default(),
            rules,
            realms,
            searches: RuleBatch::new(),
            workspace: Workspace::new(),
            controls: Controls::none(),
            strangers: false,
            sweep: Sweep::default(),
            twice: Twice::new(sizes.twice, key),
            statics: WholeStatics::new(config, &external),
            services: Services::new(key),
            rings: Rings::new(config, sizes.room.dynamic + sizes.room.fixed),
            holds: Holds::new(config.limits.explicit_mappings as usize, Grouping::new(config), key),
            static_hosts: static_hosts(config),
            broadcasts: broadcasts(config, &external),
            near: Octets::near(config),
            external,
            responder: Responder::new(config),
            pending: PendingSyns::new(),
            fragments: Fragments::new(&config.limits, config.timeouts.fragment, key),
            identifications,
            counters: Counters::default(),
            complete_ways: 0,
            events: Events::new(),
            pinned: Vec::new(),
            is_divided: false,
            turns_in_steps: false,
            guards_newcomers: false,
            turns: false,
            pool_reported: vec![None; config.pools.len()],
            made: [0; 3],
            gone: [0; 3],
            used: vec![[0; 5]; config.pools.len()],
            may_be_short: true,
            started: now,
            base: now.0 - now.0 % nanos(TICK),
            now: now.0,
            tick: 0,
            leads: due::Leads::default(),
            pair: None,
            generator,
            further_each: sizes.further_each,
            timeouts,
            config: without_rules(config),
        };
        engine.subscribers.unanswered.set_pools(Takes::of(config));
        engine.make_statics()?;
        engine.make_services()?;
        engine.pin_blocks()?;
        engine.pool_watches = PoolWatches::new(config, &engine.external);
        Ok(engine)
    }

    /// Takes the memory of mappings and their first sessions from the operating system now, so that
    /// no packet waits for it later. Other memory is seldom used in full and is taken on use.
    pub fn populate(&mut self) {
        self.table.populate();
    }

    /// Bytes that an engine of this configuration takes.
    pub fn memory(config: &Config) -> u64 {
        let sizes = Sizes::new(config);
        Table::memory(sizes.room)
            + Twice::memory(sizes.twice)
            + ExternalPorts::memory(config, sizes.addresses)
            + Subscribers::memory(sizes.subscribers)
            + Classes::memory(config)
            + Timers::memory(config)
            + Controls::MEMORY
            + Responder::memory()
            + Fragments::memory(config.limits.fragment_memory)
            + Identifications::memory(sizes.addresses)
            + Services::memory(config)
            + Rings::memory(config, sizes.room.dynamic + sizes.room.fixed)
            + Holds::memory(config.limits.explicit_mappings as usize)
            + (Events::ROOM * size_of::<Event>()) as u64
            + rules_of(config).map(memory_of_rules).sum::<u64>()
    }

    /// Reserves the ports and addresses of static mappings, and makes the permanent mappings of
    /// ports.
    pub(super) fn make_statics(&mut self) -> Result<(), ConfigError> {
        for mapping in self.config.statics.clone() {
            let index = self.external.index(mapping.external.0.to_bits()).unwrap_or(NONE);
            let (Some(internal_port), Some(external_port)) =
                (mapping.internal.1, mapping.external.1)
            else {
                self.external.reserve_address(index, mapping.protocol);
                continue;
            };
            let internal = mapping.internal.0.to_bits();
            for protocol in permanent(&mapping) {
                let new = NewMapping {
                    protocol,
                    internal: Internal::new(Host::new(mapping.realm, internal), internal_port),
                    external: External::new(index, external_port),
                    timeouts: 0,
                    is_static: true,
                    permanent: true,
                    flags: flags_of(mapping.begun),
                };
                self.take_fixed(protocol, External::new(index, external_port))?;
                let slot = self.add_fixed(new);
                self.external.take(protocol, index, external_port, slot);
            }
        }
        Ok(())
    }

    /// Makes the mappings of services, one for each server.
    pub(super) fn make_services(&mut self) -> Result<(), ConfigError> {
        for (place, service) in self.config.services.clone().into_iter().enumerate() {
            let (address, port) = service.external;
            let index = self.external.index(address.to_bits()).unwrap_or(NONE);
            for protocol in served(&service) {
                self.take_fixed(protocol, External::new(index, port))?;
                self.services.add(place, protocol, External::new(index, port), service.affinity);
                for (number, server) in service.servers.iter().enumerate() {
                    let (address, internal_port) = server.internal;
                    let new = NewMapping {
                        protocol,
                        internal: Internal::new(
                            Host::new(service.realm, address.to_bits()),
                            internal_port,
                        ),
                        external: External::new(index, port),
                        timeouts: 0,
                        is_static: true,
                        permanent: true,
                        flags: SHARED_EXTERNAL | SHARED_INTERNAL,
                    };
                    let slot = self.add_fixed(new);
                    if number == 0 {
                        self.external.take(protocol, index, port, slot);
                    }
                    self.services.add_server(slot, server);
                }
            }
        }
        self.services.settle();
        Ok(())
    }

    /// Assigns blocks that contain forwarded ports to the hosts behind these ports.
    pub(super) fn pin_blocks(&mut self) -> Result<(), ConfigError> {
        self.pinned = self.external.pin_first(pins(&self.config)?);
        self.pinned.reverse();
        Ok(())
    }

    /// Reserves an external endpoint for a static mapping. No other static mapping may have it.
    pub(crate) fn take_fixed(
        &mut self,
        protocol: u8,
        External { index, port }: External,
    ) -> Result<(), ConfigError> {
        if self.external.owner(protocol, index, port).is_some() {
            let address = Ipv4Addr::from_bits(self.external.address(index));
            let message = format!("{address}:{port} has two static mappings");
            return Err(ConfigError { message });
        }
        self.external.reserve(protocol, index, port);
        Ok(())
    }

    /// Makes a mapping that is always present.
    pub(crate) fn add_fixed(&mut self, new: NewMapping) -> u32 {
        let hash = self.table.hash(self.table.static_key(
            new.protocol,
            new.internal,
            AddressPort::new(0, 0),
        ));
        self.table.add(new, (Session::NONE, 0), hash).expect("statics have room")
    }
}

/// The rules of every realm.
pub(super) fn rules_of(config: &Config) -> impl Iterator<Item = &[Rule]> {
    let further = config.realms.iter().map(|realm| &realm.rules[..]);
    core::iter::once(&config.rules[..]).chain(further)
}

pub(super) fn memory_of_rules(rules: &[Rule]) -> u64 {
    RuleSet::new(rules).map_or(0, |rules| rules.memory())
}

/// Checks the rules of every realm.
fn check_rules(
    config: &Config,
    (rules, realms): (&RuleSet, &Realms),
    external: &ExternalPorts,
) -> Result<(), ConfigError> {
    for rules in core::iter::once(rules).chain(realms.further_rules()) {
        rules.check(config, |pool, address| external.has(pool, address))?;
    }
    Ok(())
}
