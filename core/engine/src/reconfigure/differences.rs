//! Differences between two configurations: settings that only a restart changes, and things that
//! are the same under another number.

use super::statics::needs_restart;
use crate::config::{Behavior, Class, Config, TimeoutSet};
use crate::timeouts::SETS;
use alloc::vec::Vec;

/// Keys of different settings that only a restart changes: settings that are built into the tables,
/// and sizes of tables.
pub fn restart_keys(in_force: &Config, new: &Config) -> Vec<&'static str> {
    different_keys(in_force, &new.in_numbers_of(in_force))
}

/// [`restart_keys`] for a configuration with realms in the numbering of the other.
pub(super) fn different_keys(in_force: &Config, new: &Config) -> Vec<&'static str> {
    let (old_limits, new_limits) = (&in_force.limits, &new.limits);
    let by_address = |config: &Config| {
        let filters = [Some(config.filtering), config.filtering_tcp];
        filters.contains(&Some(Behavior::AddressDependent))
    };
    // The table in force cannot find a session by its remote address.
    let filter = !by_address(in_force) && by_address(new);
    let filters_tcp = new.filtering_tcp == Some(Behavior::AddressDependent);
    let overloads = |config: &Config| config.pools.iter().any(|pool| pool.overloading);
    let differs = [
        (in_force.inside != new.inside, "inside"),
        (in_force.outside != new.outside, "outside"),
        (needs_restart(in_force, new), "static"),
        (overloads(new) && !overloads(in_force), "pool.overloading"),
        (in_force.mapping != new.mapping, "nat.mapping"),
        (filter && new.filtering == Behavior::AddressDependent, "nat.filtering"),
        (filter && filters_tcp, "nat.filtering_tcp"),
        (old_limits.subscribers != new_limits.subscribers, "limits.subscribers"),
        (old_limits.mappings != new_limits.mappings, "limits.mappings"),
        ((1..new_limits.explicit_mappings).contains(&old_limits.explicit_mappings), "pcp.mappings"),
        (old_limits.extra_sessions != new_limits.extra_sessions, "limits.extra_sessions"),
        (old_limits.fragment_memory != new_limits.fragment_memory, "limits.fragment_memory"),
        (old_limits.held_ports != new_limits.held_ports, "limits.held_ports"),
        (old_limits.twice_sessions != new_limits.twice_sessions, "limits.twice_sessions"),
        (
            old_limits.external_addresses != new_limits.external_addresses,
            "limits.external_addresses",
        ),
    ];
    differs.into_iter().filter_map(|(differs, key)| differs.then_some(key)).collect()
}

/// For each new class the old number of the class with the same name. Class 0, subscribers in no
/// class, comes first.
pub(super) fn before(old: &[Class], new: &[Class]) -> impl Iterator<Item = Option<usize>> {
    let mut names: Vec<(&str, usize)> =
        old.iter().enumerate().map(|(number, class)| (&class.name[..], number + 1)).collect();
    names.sort_unstable();
    let of = move |class: &Class| {
        let place = names.binary_search_by_key(&&class.name[..], |(name, _)| name).ok()?;
        Some(names[place].1)
    };
    core::iter::once(Some(0)).chain(new.iter().map(of))
}

/// For each old set of timeouts, by its number, the new number of an equal set; 0: there is none.
pub(super) fn same_sets(old: &[TimeoutSet], new: &[TimeoutSet]) -> [u8; SETS] {
    let mut sets = [0; SETS];
    for (number, set) in old.iter().enumerate() {
        let same = new.iter().position(|other| other == set);
        sets[number + 1] = same.map_or(0, |place| place as u8 + 1);
    }
    sets
}
