//! Changes of realms with a configuration. The configuration identifies a realm by its name,
//! mappings by its number. So a realm keeps its number: [`Config::in_numbers_of`] arranges new
//! realms by the present numbers. The number of a removed realm stays reserved until nothing of the
//! realm is left.

use super::Realms;
use crate::config::{Allocation, Config, RealmConfig, SideConfig};
use crate::engine::Engine;
use crate::respond::PENDING_SYN_NANOS;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

impl RealmConfig {
    /// A removed realm: it has no hosts, and no packets go there.
    fn gone(name: &str) -> Self {
        Self {
            name: name.into(),
            gone: true,
            inside: SideConfig { silent: true, ..SideConfig::default() },
            ..Self::default()
        }
    }

    /// True if a new realm may have this number.
    pub(crate) fn is_free(&self) -> bool {
        self.gone && self.name.is_empty()
    }
}

impl Config {
    /// The configuration with its realms in the numbering of a configuration in force
    /// ([`Engine::config`](crate::Engine::config)). A realm keeps the number of the realm with its
    /// name. A new realm has the first free number. Numbers that are not free belong to removed
    /// realms.
    #[must_use]
    pub fn in_numbers_of(&self, in_force: &Self) -> Self {
        let before = &in_force.realms;
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, realm) in before.iter().enumerate().filter(|(_, realm)| !realm.is_free()) {
            named.entry(&realm.name).or_insert(place);
        }
        let mut realms: Vec<Option<RealmConfig>> = vec![None; before.len()];
        let mut numbers: Vec<u16> = (0..=self.realms.len() as u16).collect();
        let mut new = Vec::new();
        for (order, number) in (1..).zip(self.realms_in_order().skip(1)) {
            let number = usize::from(number);
            let realm = RealmConfig { order, ..self.realms[number - 1].clone() };
            match named.remove(&realm.name[..]) {
                Some(place) => {
                    realms[place] = Some(realm);
                    numbers[number] = place as u16 + 1;
                }
                None => new.push((number, realm)),
            }
        }
        let mut free = (0..).filter(|&place| before.get(place).is_none_or(RealmConfig::is_free));
        for ((number, realm), place) in new.into_iter().zip(&mut free) {
            realms.resize(realms.len().max(place + 1), None);
            realms[place] = Some(realm);
            numbers[number] = place as u16 + 1;
        }
        let gone = |(place, realm): (usize, Option<RealmConfig>)| {
            realm.unwrap_or_else(|| RealmConfig::gone(&before[place].name))
        };
        let mut config =
            Self { realms: realms.into_iter().enumerate().map(gone).collect(), ..self.clone() };
        while config.realms.last().is_some_and(RealmConfig::is_free) {
            config.realms.pop();
        }
        config.renumber(&numbers);
        config
    }

    /// Replaces the numbers of realms in all parts of the configuration.
    fn renumber(&mut self, numbers: &[u16]) {
        // The check of the configuration finds a realm that does not exist.
        let now = |realm: &mut u16| {
            *realm = numbers.get(usize::from(*realm)).copied().unwrap_or(*realm);
        };
        let plan = |allocation: &mut Allocation| {
            if let Allocation::Deterministic(plan) = allocation {
                now(&mut plan.realm);
            }
        };
        self.hairpin_to.iter_mut().for_each(now);
        self.realms.iter_mut().flat_map(|realm| &mut realm.hairpin_to).for_each(now);
        self.statics.iter_mut().for_each(|one| now(&mut one.realm));
        self.services.iter_mut().for_each(|one| now(&mut one.realm));
        self.classes.iter_mut().filter_map(|class| class.realm.as_mut()).for_each(now);
        plan(&mut self.allocation);
        self.pools.iter_mut().filter_map(|pool| pool.allocation.as_mut()).for_each(plan);
    }
}

/// A removed realm, and the time, nanoseconds, until which uncounted things of it may be left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    realm: u16,
    until: u64,
}

/// The removed realms of a configuration that still have something left.
pub(super) fn closing(config: &Config) -> Vec<Closing> {
    let realms = (1..).zip(&config.realms);
    let left = realms.filter(|(_, realm)| realm.gone && !realm.is_free());
    left.map(|(realm, _)| Closing { realm, until: 0 }).collect()
}

impl Realms {
    /// Keeps the waiting times of realms that `before` also has as removed. Realms that were
    /// removed now wait until `until`.
    pub(super) fn go_on(&mut self, before: &Self, until: u64) {
        for one in &mut self.closing {
            let known = before.closing.iter().find(|known| known.realm == one.realm);
            one.until = known.map_or(until, |known| known.until);
        }
    }
}

impl Engine {
    /// The time at which nothing is left of the present datagrams and pending connections.
    pub(super) fn last_of_today(&self) -> u64 {
        let last = self.fragments.last_deadline().map_or(0, |due| due.0);
        last.max(self.now.saturating_add(PENDING_SYN_NANOS))
    }

    /// Frees the numbers of removed realms of which nothing is left.
    pub(crate) fn free_realms(&mut self) {
        if self.realms.closing.is_empty() || !self.is_settled() {
            return;
        }
        let (now, external, config) = (self.now, &self.external, &mut self.config);
        self.realms.closing.retain(|one| {
            let is_left = now <= one.until || external.has_blocks_of(one.realm);
            if !is_left && let Some(realm) = config.realms.get_mut(usize::from(one.realm) - 1) {
                realm.name.clear();
            }
            is_left
        });
    }
}
