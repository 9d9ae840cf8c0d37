//! Realms that come and go with a configuration. A realm is told by its name, and mappings by its
//! number, which therefore stays the same: [`Config::in_numbers_of`] arranges new realms to the
//! numbers that there are. One that goes leaves its number behind, in nobody's use, until nothing
//! of it is left.

use super::Realms;
use crate::config::{Allocation, Config, RealmConfig, SideConfig};
use crate::engine::Engine;
use crate::respond::PENDING_SYN_NANOS;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

impl RealmConfig {
    /// One that is there no longer: nobody is in it, and nothing goes there.
    fn gone(name: &str) -> Self {
        Self {
            name: name.into(),
            gone: true,
            inside: SideConfig { silent: true, ..SideConfig::default() },
            ..Self::default()
        }
    }

    /// Whether a realm that is new may have its number.
    pub(crate) fn is_free(&self) -> bool {
        self.gone && self.name.is_empty()
    }
}

impl Config {
    /// The same with its realms in the numbering of a configuration in force
    /// ([`Engine::config`](crate::Engine::config)): a realm has the number of the one of its name,
    /// and a new one the first that nothing is left of. Numbers of which something is left are
    /// those of realms that are gone.
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

    /// Gives all that names a realm its new number.
    fn renumber(&mut self, numbers: &[u16]) {
        // One that does not exist is found when the configuration is looked at.
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

/// A realm that is gone, and until when things of it may be left that nobody counts, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    realm: u16,
    until: u64,
}

/// The realms of a configuration that are gone and have left something.
pub(super) fn closing(config: &Config) -> Vec<Closing> {
    let realms = (1..).zip(&config.realms);
    let left = realms.filter(|(_, realm)| realm.gone && !realm.is_free());
    left.map(|(realm, _)| Closing { realm, until: 0 }).collect()
}

impl Realms {
    /// Lets those that are gone have waited for as long as in others that were in force; those that
    /// were not gone then, until a time.
    pub(super) fn go_on(&mut self, before: &Self, until: u64) {
        for one in &mut self.closing {
            let known = before.closing.iter().find(|known| known.realm == one.realm);
            one.until = known.map_or(until, |known| known.until);
        }
    }
}

impl Engine {
    /// When nothing is left of the datagrams and connections that there are now.
    pub(super) fn last_of_today(&self) -> u64 {
        let last = self.fragments.last_deadline().map_or(0, |due| due.0);
        last.max(self.now.saturating_add(PENDING_SYN_NANOS))
    }

    /// Lets others have the numbers of realms of which nothing is left.
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
