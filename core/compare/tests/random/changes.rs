//! Changes of a case's configuration: another configuration, or other pools.

use crate::configs::{fit, fits_blocks};
use crate::policy::give_timeouts;
use crate::world::POOL;
use natgate_engine::{
    AddressRange, Allocation, Begun, Behavior, Config, Limits, PoolConfig, Prefix, StaticMapping,
};

/// Another configuration, and the parts of it that are taken.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    pub(crate) config: Config,
    pub(crate) subscribers: Vec<Prefix>,
    pub(crate) parts: [bool; 8],
}

impl Other {
    /// The configuration that replaces one in force.
    pub(crate) fn in_place_of(&self, in_force: &Config) -> Config {
        let mut config = in_force.clone();
        let new = &self.config;
        let [rules, limits, timeouts, subscribers, switches, filters, statics, _] = self.parts;
        // No rule may name an address that its pool has lost.
        let sets: Vec<u8> = config.rules.iter().map(|rule| rule.timeouts).collect();
        config.rules = fit(&config.rules, &in_force.pools);
        for (rule, set) in config.rules.iter_mut().zip(sets) {
            rule.timeouts = set;
        }
        if rules {
            config.rules = fit(&new.rules, &in_force.pools);
            give_timeouts(&mut config.rules, in_force.timeout_sets.len());
        }
        if limits {
            take_limits(&mut config, new, in_force);
        }
        if timeouts {
            config.timeouts = new.timeouts.clone();
            config.port_timeouts.clone_from(&new.port_timeouts);
            config.timeout_sets.clone_from(&new.timeout_sets);
            give_timeouts(&mut config.rules, config.timeout_sets.len());
        }
        if subscribers {
            config.subscribers.clone_from(&self.subscribers);
        }
        crate::realms::change(&mut config, new, self.parts);
        if statics {
            take_statics(&mut config, new, in_force);
        }
        if switches {
            config = Config {
                pooling: new.pooling,
                port_parity: new.port_parity,
                hairpinning: new.hairpinning,
                inside_routes: new.inside_routes.clone(),
                inbound_refresh: new.inbound_refresh,
                tcp_pickup: new.tcp_pickup,
                session_events: new.session_events,
                tcp_mss: new.tcp_mss,
                answer_unsolicited_syn: new.answer_unsolicited_syn,
                refusal: new.refusal,
                ..config
            };
        }
        let by_address = |config: &Config| {
            [Some(config.filtering), config.filtering_tcp]
                .contains(&Some(Behavior::AddressDependent))
        };
        if filters && (by_address(in_force) || !by_address(new)) {
            config.filtering = new.filtering;
            config.filtering_tcp = new.filtering_tcp;
        }
        config
    }
}

/// A change of a pool, if it is possible.
#[derive(Clone, Debug)]
pub(crate) enum PoolEdit {
    /// These of its addresses drain, by place.
    Drain(usize, Vec<u8>),
    /// The pool gets one more address, at this distance from the first of all.
    Grow(usize, u8),
    /// The pool loses its last addresses, and keeps this number.
    Shrink(usize, u8),
    /// Two pools exchange their addresses.
    Exchange,
    /// These ports are excluded, counted from the first.
    Exclude(usize, Vec<(u16, u16)>),
    /// The pool's first and last port move by these distances.
    Ports(usize, i8, i8),
}

impl PoolEdit {
    /// The pools with this change, if it is possible.
    pub(crate) fn apply(&self, config: &Config) -> Vec<PoolConfig> {
        let mut pools = config.pools.clone();
        let place = |pool: usize| pool % config.pools.len();
        let computed =
            |pool: &PoolConfig| matches!(config.allocation_of(pool), Allocation::Deterministic(_));
        let shared = |pool: &PoolConfig| {
            let allocation = config.allocation_of(pool);
            computed(pool) || matches!(allocation, Allocation::Block(_) | Allocation::Address)
        };
        let whole = |pool: &PoolConfig| *config.allocation_of(pool) == Allocation::Address;
        match self {
            Self::Drain(pool, places) if !computed(&pools[place(*pool)]) => {
                let pool = &mut pools[place(*pool)];
                let all: Vec<_> = pool.each_address().collect();
                let of = |at: &u8| all[usize::from(*at) % all.len()];
                pool.draining = places.iter().map(of).map(one_address).collect();
            }
            Self::Grow(pool, off) if !computed(&pools[place(*pool)]) => {
                let first = u32::from_be_bytes(POOL) + u32::from(*off);
                let address = std::net::Ipv4Addr::from_bits(first);
                if !pools.iter().any(|pool| pool.has(address)) {
                    pools[place(*pool)].addresses.push(one_address(address));
                }
            }
            Self::Shrink(pool, left) if !computed(&pools[place(*pool)]) => {
                let pool = &mut pools[place(*pool)];
                let left = pool.each_address().take(usize::from(*left).max(1));
                pool.addresses = left.map(one_address).collect();
                let PoolConfig { addresses, draining, .. } = pool;
                draining.retain(|one| addresses.iter().any(|range| range.contains(one.first)));
            }
            Self::Exchange if pools.len() == 2 && !pools.iter().any(computed) => {
                let [one, other] = &mut pools[..] else { return pools };
                std::mem::swap(&mut one.addresses, &mut other.addresses);
                std::mem::swap(&mut one.draining, &mut other.draining);
            }
            Self::Exclude(pool, ranges) if !whole(&pools[place(*pool)]) => {
                let pool = &mut pools[place(*pool)];
                let before = pool.excluded_ports.clone();
                let at = |off: u16| pool.ports.0.saturating_add(off);
                pool.excluded_ports =
                    ranges.iter().map(|(off, len)| (at(*off), at(off + len))).collect();
                if pool.ports_used() == 0 {
                    pool.excluded_ports = before;
                }
            }
            Self::Ports(pool, first, last) if !shared(&pools[place(*pool)]) => {
                let pool = &mut pools[place(*pool)];
                let before = pool.ports;
                let moved = |port: u16, by: i8| port.saturating_add_signed(by.into()).max(1);
                pool.ports = (moved(before.0, *first), moved(before.1, *last));
                if pool.ports.0 > pool.ports.1 || pool.ports_used() == 0 {
                    pool.ports = before;
                }
            }
            _ => {}
        }
        pools
    }
}

/// Takes the limits of another configuration. The sizes of tables stay, except that room for holds
/// can be made.
fn take_limits(config: &mut Config, new: &Config, in_force: &Config) {
    config.classes.clone_from(&new.classes);
    let sizes = in_force.limits.clone();
    config.limits = Limits {
        subscribers: sizes.subscribers,
        mappings: sizes.mappings,
        extra_sessions: sizes.extra_sessions,
        twice_sessions: sizes.twice_sessions,
        fragment_memory: sizes.fragment_memory,
        external_addresses: sizes.external_addresses,
        held_ports: sizes.held_ports,
        explicit_mappings: match sizes.explicit_mappings {
            0 => new.limits.explicit_mappings,
            room => room,
        },
        ..new.limits.clone()
    };
}

/// Takes the static mappings of another configuration, if the model can follow both. It does not
/// follow held ports of whole addresses, and one-way mappings. No two hosts may have one block.
fn take_statics(config: &mut Config, new: &Config, in_force: &Config) {
    let plain = |config: &Config| {
        let is_plain = |one: &StaticMapping| {
            let pooled = in_force.pools.iter().any(|pool| pool.has(one.external.0));
            one.begun == Begun::Anywhere && (one.external.1.is_some() || !pooled)
        };
        let mut pools = in_force.pools.iter();
        let computed = |pool| matches!(in_force.allocation_of(pool), Allocation::Deterministic(_));
        config.statics.iter().all(is_plain) && !pools.any(computed)
    };
    if !in_force.services.is_empty() || !plain(in_force) || !plain(new) {
        return;
    }
    let before = config.statics.clone();
    config.statics.clone_from(&new.statics);
    let live: Vec<u16> = config.realm_numbers().collect();
    for fixed in &mut config.statics {
        fixed.realm = live[usize::from(fixed.realm) % live.len()];
    }
    if !fits_blocks(config) {
        config.statics = before;
    }
}

fn one_address(address: std::net::Ipv4Addr) -> AddressRange {
    AddressRange { first: address, last: address }
}
