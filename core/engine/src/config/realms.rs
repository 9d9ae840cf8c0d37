//! Checks of the realms of a configuration, and the configuration without rules.

use super::{AddressRange, Config, RealmConfig};
use crate::ConfigError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Checks the realms of a configuration.
pub(crate) fn validate(config: &Config) -> Result<(), ConfigError> {
    let fail = |message: String| Err(ConfigError { message });
    let (count, most) = (config.realms.len() + 1, Config::MOST_REALMS);
    if count > most {
        let late = if config.realms.iter().any(|realm| realm.gone) {
            ", those of late among them"
        } else {
            ""
        };
        return fail(format!("{count} realms{late}: at most {most} are possible"));
    }
    for RealmConfig { name, default_pool, .. } in &config.realms {
        if *default_pool >= config.pools.len() {
            return fail(format!("realm {name} uses a pool that does not exist"));
        }
    }
    let mut numbers = config.realms.iter().filter_map(|realm| Some((realm, realm.host_bits?)));
    if let Some((RealmConfig { name, .. }, bits)) = numbers.find(|(_, bits)| *bits > 31) {
        return fail(format!("realm {name} has {bits} bits of hosts: at most 31 are possible"));
    }
    let mut behind = config.realms.iter().skip_while(|realm| realm.host_bits.is_none());
    let (numbered, most) = (behind.clone().count(), Config::MOST_NUMBERED);
    if let Some(RealmConfig { name, .. }) = behind.find(|realm| realm.host_bits.is_none()) {
        return fail(format!(
            "realm {name} has addresses: it has to come before realms with numbers for addresses"
        ));
    }
    if numbered > most {
        return fail(format!("{numbered} realms have numbers for addresses: at most {most} may"));
    }
    for realm in config.all_numbers() {
        let ranges = config.inside_routes_of(realm);
        let apart = |pair: &[AddressRange]| pair[0].last < pair[1].first;
        if ranges.iter().any(|range| range.last < range.first) || !ranges.windows(2).all(apart) {
            return fail(format!("the inside routes of realm {realm} are not in order"));
        }
    }
    let reached = config.realms.iter().flat_map(|realm| &realm.hairpin_to);
    let of_statics = config.statics.iter().map(|fixed| &fixed.realm);
    let of_statics = of_statics.chain(config.services.iter().map(|service| &service.realm));
    let of_classes = config.classes.iter().filter_map(|class| class.realm.as_ref());
    let mut named = reached.chain(&config.hairpin_to).chain(of_statics).chain(of_classes);
    match named.find(|realm| !config.has_realm(**realm)) {
        Some(realm) => fail(format!("realm {realm} is named, but there are only {count}")),
        None => Ok(()),
    }
}

/// The configuration without rules, which the engine keeps in another form.
pub(crate) fn without_rules(config: &Config) -> Config {
    let mut config = config.clone();
    config.rules = Vec::new();
    for realm in &mut config.realms {
        realm.rules = Vec::new();
    }
    config
}
