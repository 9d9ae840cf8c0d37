//! Realms of a case: networks with the addresses of realm 0, or with nearly the same.

use crate::common::end;
use crate::configs::{fit, fit_blocks, inside_routes, rules};
use crate::policy::give_timeouts;
use crate::world::{INSIDE, OWN};
use natgate_engine::{Allocation, Class, Config, PoolConfig, Prefix, RealmConfig, SideConfig};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The parts of a realm that are drawn before the pools are known.
fn realm() -> impl Strategy<Value = (RealmConfig, usize)> {
    let network = |[a, b, c, d]: [u8; 4], len| Prefix::new([a, b, c, d].into(), len);
    let own = prop_oneof![2 => Just(OWN[0]), 1 => Just(INSIDE[2])];
    let networks = vec![None, Some(network(OWN[0], 16)), Some(network([11, 0, 0, 0], 24))];
    let mtu = prop_oneof![4 => Just(None), 1 => Just(Some(600u16)), 1 => Just(Some(1200))];
    let subscribers =
        vec![network([10, 0, 0, 0], 8), network([10, 0, 0, 0], 30), network(INSIDE[4], 32)];
    let side =
        (prop::option::of(own), prop::sample::select(networks), mtu, prop::bool::weighted(0.1));
    let side = side.prop_map(|(own, network, mtu, silent)| SideConfig {
        address: own.map(|own| end(own, 0).address),
        network,
        mtu,
        silent,
    });
    let hairpin_to = prop::sample::subsequence(vec![0u16, 1, 2], 0..=2);
    let rest =
        (prop::sample::subsequence(subscribers, 1..=2), hairpin_to, rules(), inside_routes());
    let name = prop::sample::select(vec!["a", "b", "c", "d"]);
    (side, rest, name, any::<usize>()).prop_map(|(inside, rest, name, pool)| {
        let (subscribers, hairpin_to, rules, inside_routes) = rest;
        let realm = RealmConfig {
            name: name.to_owned(),
            inside,
            subscribers,
            hairpin_to,
            inside_routes,
            rules,
            ..RealmConfig::default()
        };
        (realm, pool)
    })
}

/// Most realms besides realm 0.
const MOST: usize = 3;

/// Removes realms that another configuration does not have, by name, and adds its new realms.
fn come_and_go(config: &mut Config, new: &Config) {
    // Settings that only a restart changes stay, and so does the realm.
    let plan = |pool: &PoolConfig| match config.allocation_of(pool) {
        Allocation::Deterministic(plan) => Some(plan.realm),
        _ => None,
    };
    let named: BTreeSet<u16> = (config.statics.iter().map(|fixed| fixed.realm))
        .chain(config.services.iter().map(|one| one.realm))
        .chain(config.pools.iter().filter_map(plan))
        .collect();
    let has = |config: &Config, name: &str| {
        config.realms.iter().any(|realm| !realm.gone && realm.name == name)
    };
    for (number, realm) in (1..).zip(&mut config.realms) {
        realm.gone |= !named.contains(&number) && !has(new, &realm.name);
    }
    for realm in &new.realms {
        let count = config.realm_numbers().count();
        if !has(config, &realm.name) && count <= MOST {
            config.realms.push(RealmConfig { default_pool: 0, ..realm.clone() });
        }
    }
}

/// Changes realms, or gives them rules, subscribers, relations and an inside of another
/// configuration, as far as possible. `parts` are the parts of `Other`.
pub(crate) fn change(config: &mut Config, new: &Config, parts: [bool; 8]) {
    let [rules, _, _, subscribers, switches, _, _, realms] = parts;
    if realms {
        come_and_go(config, new);
    }
    let live: Vec<u16> = config.realm_numbers().collect();
    settle(&mut config.classes, &live);
    let there = |all: &[u16]| all.iter().copied().filter(|one| live.contains(one)).collect();
    config.hairpin_to = there(if switches { &new.hairpin_to } else { &config.hairpin_to });
    for (number, realm) in (1..).zip(&mut config.realms) {
        realm.hairpin_to = there(&realm.hairpin_to);
        realm.hairpin_to.retain(|other| *other != number);
    }
    let in_force = config.realms.iter_mut().filter(|realm| !realm.gone);
    for (realm, new) in in_force.zip(&new.realms) {
        if rules {
            realm.rules = fit(&new.rules, &config.pools);
        }
        if subscribers {
            realm.subscribers.clone_from(&new.subscribers);
            realm.default_pool = new.default_pool % config.pools.len();
        }
        if switches {
            realm.hairpin_to = there(&new.hairpin_to);
            realm.inside = new.inside.clone();
            realm.inside_routes.clone_from(&new.inside_routes);
        }
    }
    for realm in &mut config.realms {
        // No rule may name an address that its pool has lost.
        realm.rules = fit(&realm.rules, &config.pools);
        give_timeouts(&mut realm.rules, config.timeout_sets.len());
    }
}

/// Gives classes existing realms, and removes prefixes that are then in two classes.
fn settle(classes: &mut Vec<Class>, live: &[u16]) {
    let mut seen = BTreeSet::new();
    for Class { realm, subscribers, .. } in &mut *classes {
        *realm = realm.map(|pick| live[usize::from(pick) % live.len()]);
        subscribers.retain(|prefix| seen.insert((*realm, prefix.first(), prefix.len())));
    }
    classes.retain(|class| !class.subscribers.is_empty());
}

/// Additions of realms to a configuration: the realms, with the number for their pools; the realms
/// that realm 0 reaches; the owners of the static mappings and of the plan.
pub(crate) type Drawn = (Vec<(RealmConfig, usize)>, Vec<u16>, [u16; 2]);

fn drawn(realms: impl Strategy<Value = Vec<(RealmConfig, usize)>>) -> impl Strategy<Value = Drawn> {
    (realms, prop::sample::subsequence(vec![1u16, 2], 0..=2), any::<[u16; 2]>())
}

/// No realms, or some.
pub(crate) fn some_realms() -> impl Strategy<Value = Drawn> {
    drawn(prop::collection::vec(realm(), 0..=2))
}

/// Up to two more realms for a configuration. Its static mapping or its plan may belong to one.
pub(crate) fn with_realms(config: Config) -> impl Strategy<Value = Config> {
    let realms = prop_oneof![
        5 => Just(vec![]),
        4 => prop::collection::vec(realm(), 1..3),
    ];
    (Just(config), drawn(realms)).prop_map(|(config, drawn)| fit_blocks(add(config, drawn)))
}

/// The configuration with realms.
pub(crate) fn add(mut config: Config, (realms, hairpin_to, owners): Drawn) -> Config {
    let count = realms.len() as u16 + 1;
    let there = |all: Vec<u16>| all.into_iter().filter(|realm| *realm < count).collect();
    config.hairpin_to = there(hairpin_to);
    for (number, (mut realm, pool)) in (1..).zip(realms) {
        if config.realms.iter().any(|other| other.name == realm.name) {
            realm.name.push('2');
        }
        realm.default_pool = pool % config.pools.len();
        realm.rules = fit(&realm.rules, &config.pools);
        give_timeouts(&mut realm.rules, config.timeout_sets.len());
        realm.hairpin_to = there(realm.hairpin_to);
        realm.hairpin_to.retain(|other| *other != number);
        config.realms.push(realm);
    }
    for fixed in &mut config.statics {
        fixed.realm = owners[0] % count;
    }
    settle(&mut config.classes, &(0..count).collect::<Vec<_>>());
    for service in &mut config.services {
        service.realm = owners[0] % count;
    }
    for pool in &mut config.pools {
        if let Some(Allocation::Deterministic(plan)) = &mut pool.allocation {
            plan.realm = owners[1] % count;
        }
    }
    config
}
