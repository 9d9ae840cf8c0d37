//! The time of a new session when few of the pool's ports are free.
//!
//! The measurement fills a pool of its own up to each level. At a level it measures the next
//! hundredth of the pool, half before and half after the level. Subscribers may have any external
//! address here, so all addresses are equally full. Everything else has its default, such as the
//! preservation of a port's parity.

use super::Plan;
use super::bench::{Bench, ROUND, config};
use crate::spread::Spread;
use natgate_engine::{Config, Pooling};
use serde::Serialize;

/// Ports of one address.
const PORTS: u64 = 64_512;

/// Measured levels, percent of the pool.
const LEVELS: [u64; 4] = [10, 50, 90, 99];

/// New sessions at one level.
#[derive(Clone, Debug, Serialize)]
pub struct Scarcity {
    /// Used part of the pool, percent.
    pub used_percent: u64,
    /// Nanoseconds of a new session.
    pub create_ns: f64,
    /// Spread of `create_ns` over the rounds.
    pub spread: Spread,
}

/// Measures with a pool of `addresses` addresses.
pub(super) fn measure(plan: &Plan, addresses: u64) -> Vec<Scarcity> {
    let ports = addresses * PORTS;
    let mut config = Config { pooling: Pooling::Arbitrary, ..config(ports) };
    let range = &mut config.pools[0].addresses[0];
    range.last = (range.first.to_bits() + addresses as u32 - 1).into();
    let plan = &Plan { sessions: ports, tcp: false, ..plan.clone() };
    let mut bench = Bench::with_config(plan, &config);
    let mut used = 0;
    let mut make = |until: u64, most: u64| {
        let mut times = Vec::new();
        while used < until {
            let end = until.min(used + most);
            times.push(bench.create(used..end).cpu);
            used = end;
        }
        times
    };
    let round = ROUND as u64;
    let measured = LEVELS.map(|used_percent| {
        let middle = ports * used_percent / 100;
        make(middle - ports / 200, round);
        let times = make(middle + ports / 200, (ports / 1000).min(round));
        let spread = Spread::of(&times);
        Scarcity { used_percent, create_ns: spread.median, spread }
    });
    measured.into()
}
