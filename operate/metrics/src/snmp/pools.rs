//! Numbers of pools, and the time since which each pool is unchanged.
//!
//! A number belongs to a name for as long as natgate runs, whatever pools come and go with other
//! configurations, and a pool that comes back has the number that it had.

use natgate_engine::{Config, PoolConfig};
use std::time::{Duration, Instant};

/// Most names that are remembered; further pools have no number and are not shown.
const MOST: usize = 1 << 16;

/// All pools since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolNumbers {
    /// Pools in the order of their numbers, from 1.
    known: Vec<NumberedPool>,
}

#[derive(Clone, Debug)]
struct NumberedPool {
    name: String,
    /// Its configuration at the last check; `None`: there is no such pool now.
    as_it_was: Option<PoolConfig>,
    /// The time of its last change; `None`: unchanged since the start.
    since: Option<Instant>,
}

impl PoolNumbers {
    /// Numbers the pools of a configuration.
    //= rfc7659#section-4-pool-index
    //= rfc7659#section-4-pool-discontinuity
    pub(super) fn learn(&mut self, config: &Config, now: Instant) {
        let is_first = self.known.is_empty();
        for known in &mut self.known {
            if !config.pools.iter().any(|pool| pool.name == known.name) {
                known.as_it_was = None;
            }
        }
        for pool in &config.pools {
            let (since, has_room) = ((!is_first).then_some(now), self.known.len() < MOST);
            match self.known.iter_mut().find(|known| known.name == pool.name) {
                Some(known) if known.as_it_was.as_ref().is_some_and(|was| is_same(was, pool)) => {}
                Some(known) => {
                    known.since = since;
                    known.as_it_was = Some(pool.clone());
                }
                None if has_room => {
                    let (name, as_it_was) = (pool.name.clone(), Some(pool.clone()));
                    self.known.push(NumberedPool { name, as_it_was, since });
                }
                None => {}
            }
        }
    }

    /// The number of a pool.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let place = self.known.iter().position(|known| known.name == name)?;
        u32::try_from(place + 1).ok()
    }

    /// The age of the last change of a pool, if it has changed since the start.
    pub(super) fn age(&self, name: &str, now: Instant) -> Option<Duration> {
        let known = self.known.iter().find(|known| known.name == name)?;
        Some(now.duration_since(known.since?))
    }
}

/// True if a pool has the same addresses and ports.
fn is_same(was: &PoolConfig, pool: &PoolConfig) -> bool {
    (&was.addresses, was.ports) == (&pool.addresses, pool.ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pools: &[(&str, u16)]) -> Config {
        let pool = |(name, last): &(&str, u16)| PoolConfig {
            name: (*name).to_owned(),
            ports: (1024, *last),
            ..PoolConfig::default()
        };
        Config { pools: pools.iter().map(pool).collect(), ..Config::default() }
    }

    //= test rfc7659#section-4-pool-index
    //= test rfc7659#section-4-pool-discontinuity
    #[test]
    fn a_number_stays_a_pools_whatever_comes_and_goes() {
        let (mut pools, begin) = (PoolNumbers::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let numbers = |pools: &PoolNumbers| ["a", "b", "c"].map(|name| pools.number(name));
        let ages = |pools: &PoolNumbers| {
            let age = |name| pools.age(name, at(10)).map(|age| age.as_secs());
            ["a", "b", "c"].map(age)
        };
        pools.learn(&config(&[("a", 2000), ("b", 2000)]), at(0));
        assert_eq!(numbers(&pools), [Some(1), Some(2), None]);
        assert_eq!(ages(&pools), [None; 3]);
        pools.learn(&config(&[("c", 2000), ("b", 3000)]), at(4));
        assert_eq!(numbers(&pools), [Some(1), Some(2), Some(3)]);
        assert_eq!(ages(&pools), [None, Some(6), Some(6)]);
        pools.learn(&config(&[("b", 3000), ("a", 2000), ("c", 2000)]), at(7));
        assert_eq!(numbers(&pools), [Some(1), Some(2), Some(3)]);
        assert_eq!(ages(&pools), [Some(3), Some(6), Some(6)]);
    }
}
