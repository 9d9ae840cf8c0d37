//! The target of a change of pools: the number of each pool among the pools in force, and the new
//! place of every address. This is computed apart from the engine.

use super::super::{MAX_POOLS, NO_POOL};
use super::{Definition, plan};
use crate::ConfigError;
use crate::config::{Allocation, Config, PoolConfig, RuleAction};
use crate::sizes::validate;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Target of an external address.
#[derive(Clone, Copy, Debug)]
pub(in crate::external) struct Wanted {
    pub(super) address: u32,
    pub(in crate::external) pool: u16,
    pub(super) is_draining: bool,
    pub(super) is_static: bool,
}

/// Pools to come, prepared apart from the engine that will use them.
#[derive(Clone, Debug)]
pub struct PoolChange {
    pub(super) config: Config,
    /// Definitions by number; `None`: the pool is gone.
    pub(super) definitions: Vec<Option<Definition>>,
    /// Targets, sorted by address.
    pub(super) wanted: Vec<Wanted>,
}

impl PoolChange {
    /// Prepares the pools, and the addresses of static mappings, of a new configuration. The
    /// engine's present configuration is `in_force` ([`Engine::config`](crate::Engine::config)).
    ///
    /// # Errors
    /// [`ConfigError`] names the contradiction in the new configuration.
    pub fn new(in_force: &Config, new: &Config) -> Result<Self, ConfigError> {
        validate(new)?;
        let config = arrange(in_force, new)?;
        let define = |pool: &PoolConfig| {
            (!pool.addresses.is_empty()).then(|| Definition::new(&config, pool))
        };
        let definitions = config.pools.iter().map(define).collect();
        let of_pool = |(number, pool): (usize, &PoolConfig)| -> Vec<Wanted> {
            let wanted = |address: Ipv4Addr| Wanted {
                address: address.to_bits(),
                pool: number as u16,
                is_draining: pool.is_draining(address),
                is_static: false,
            };
            pool.each_address().map(wanted).collect()
        };
        let mut wanted: Vec<Wanted> = config.pools.iter().enumerate().flat_map(of_pool).collect();
        wanted.sort_unstable_by_key(|wanted| wanted.address);
        let mut statics: Vec<u32> = config.fixed_addresses().map(Ipv4Addr::to_bits).collect();
        statics.sort_unstable();
        statics.dedup();
        let of_pools = wanted.len();
        for address in statics {
            match wanted[..of_pools].binary_search_by_key(&address, |wanted| wanted.address) {
                Ok(at) => wanted[at].is_static = true,
                Err(_) => wanted.push(Wanted {
                    address,
                    pool: NO_POOL,
                    is_draining: false,
                    is_static: true,
                }),
            }
        }
        wanted.sort_unstable_by_key(|wanted| wanted.address);
        Ok(Self { config, definitions, wanted })
    }

    /// The new configuration with its pools in the engine's numbering. Its rules use that
    /// numbering. Removed pools that may still have something left are listed without addresses.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(in crate::external) fn find(&self, address: u32) -> Option<&Wanted> {
        let at = self.wanted.binary_search_by_key(&address, |wanted| wanted.address).ok()?;
        Some(&self.wanted[at])
    }
}

/// Gives the pools of the new configuration their numbers of the configuration in force.
fn arrange(in_force: &Config, new: &Config) -> Result<Config, ConfigError> {
    let mut pools: Vec<Option<PoolConfig>> = vec![None; in_force.pools.len()];
    let mut numbers: Vec<usize> = Vec::with_capacity(new.pools.len());
    for pool in &new.pools {
        let is_open = |number: &usize| pools.get(*number).is_none_or(Option::is_none);
        let number = number_of(in_force, new, pool, is_open);
        if number == pools.len() {
            pools.push(None);
        }
        pools[number] =
            Some(PoolConfig { allocation: Some(new.allocation_of(pool).clone()), ..pool.clone() });
        numbers.push(number);
    }
    if pools.len() > MAX_POOLS {
        return Err(ConfigError {
            message: format!(
                "{} pools, those of late among them: at most {MAX_POOLS}",
                pools.len()
            ),
        });
    }
    let gone = |(number, pool): (usize, Option<PoolConfig>)| {
        pool.unwrap_or_else(|| {
            let old = &in_force.pools[number];
            PoolConfig {
                name: old.name.clone(),
                allocation: Some(in_force.allocation_of(old).clone()),
                addresses: Vec::new(),
                draining: Vec::new(),
                ..old.clone()
            }
        })
    };
    let mut config = Config {
        pools: pools.into_iter().enumerate().map(gone).collect(),
        default_pool: numbers[new.default_pool],
        ..new.clone()
    };
    for realm in &mut config.realms {
        realm.default_pool = numbers[realm.default_pool];
    }
    let of_realms = config.realms.iter_mut().flat_map(|realm| &mut realm.rules);
    for rule in config.rules.iter_mut().chain(of_realms) {
        if let RuleAction::Snat(pool) | RuleAction::SnatTo(pool, _) = &mut rule.action {
            // The check of rules finds a pool that does not exist.
            *pool = numbers.get(*pool).copied().unwrap_or(usize::MAX);
        }
    }
    Ok(config)
}

/// The number of a new pool among the open numbers: the number of the pool with its name; or, if
/// the pool was renamed, of a pool with some of its addresses; or a number without anything left;
/// or the next number.
fn number_of(
    in_force: &Config,
    new: &Config,
    pool: &PoolConfig,
    is_open: impl Fn(&usize) -> bool,
) -> usize {
    let open = || (0..in_force.pools.len()).filter(&is_open);
    let old = |number: usize| &in_force.pools[number];
    let goes_on = |&number: &usize| is_continued(in_force, old(number), new, pool);
    let is_renamed = |number: &usize| {
        let old = old(*number);
        let shares = |range: &crate::AddressRange| {
            old.addresses.iter().any(|other| range.first <= other.last && other.first <= range.last)
        };
        !new.pools.iter().any(|other| other.name == old.name) && pool.addresses.iter().any(shares)
    };
    let named = open().filter(|&number| old(number).name == pool.name).find(goes_on);
    let renamed = || open().filter(is_renamed).find(goes_on);
    let unused = || open().find(|&number| old(number).name.is_empty());
    let next = || (in_force.pools.len()..).find(&is_open).expect("numbers do not end");
    named.or_else(renamed).or_else(unused).unwrap_or_else(next)
}

/// True if a new pool shares out its ports as an old pool does. Then its mappings can stay.
fn is_continued(in_force: &Config, old: &PoolConfig, new: &Config, pool: &PoolConfig) -> bool {
    use Allocation::{Address, Block, Deterministic, Preserve, Random};
    match (in_force.allocation_of(old), new.allocation_of(pool)) {
        (Random | Preserve, Random | Preserve) => true,
        (Block(before), Block(after)) => {
            (before.size, old.ports.0.max(1), old.ports.1)
                == (after.size, pool.ports.0.max(1), pool.ports.1)
        }
        (Address, Address) => true,
        (Deterministic(_), Deterministic(_)) => {
            let plans = plan(in_force, old).zip(plan(new, pool));
            plans.is_some_and(|(before, after)| before.agrees(&after))
        }
        _ => false,
    }
}
