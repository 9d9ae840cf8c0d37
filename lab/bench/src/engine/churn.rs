//! New sessions at the rate at which old ones end: what can go on for ever.
//!
//! All sessions are made and then used once more, in another order, over nearly the time that an
//! idle one stays. From when the first of them have ended and their ports are free again, each is
//! made anew, in that order and at that rate: with every new session another one ends, and a third
//! one's port becomes free. So the slots that new ones get lie as far apart as after days of use.

use super::Plan;
use super::bench::{Bench, ROUND, config};
use crate::random::Shuffle;
use crate::spread::Spread;
use natgate_engine::Timeouts;
use serde::Serialize;

/// Ports for each that the pool would need if none were held.
const PORTS: u64 = 2;

/// With fewer sessions a batch would be longer than a tick of the timers.
const LEAST: u64 = 1 << 18;

const SECOND: u64 = 1_000_000_000;

/// Sessions that come and go.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    /// Those that were there, in the mean.
    pub sessions: u64,
    /// Those that were made, and as many ended.
    pub renewed: u64,
    /// Nanoseconds for a new session, the end of another, and a port's release, in the mean: what
    /// is due at a tick is done in some of the rounds.
    pub each_ns: f64,
    /// Its spread over the rounds.
    pub spread: Spread,
}

/// Measures with that many sessions, of which so many are made anew.
pub(super) fn measure(plan: &Plan, renewed: u64) -> Churn {
    let plan = &Plan { sessions: plan.sessions.max(LEAST), tcp: false, ..plan.clone() };
    let Timeouts { udp, hold_down, .. } = Timeouts::default();
    let (idle, held) = (udp.as_nanos() as u64, hold_down.as_nanos() as u64);
    let mut config = config(plan.sessions * PORTS);
    config.limits.mappings = Some(plan.sessions as u32);
    let mut bench = Bench::with_config(plan, &config);
    let order = Shuffle::new(plan.sessions);
    let order = |place| order.at(order.at(place));
    bench.spacing = SECOND / plan.sessions;
    bench.fill(|_| ());

    let spacing = (idle - 20 * SECOND) / plan.sessions;
    let used = 2 * SECOND;
    (bench.now, bench.spacing) = (used, spacing);
    for first in (0..plan.sessions).step_by(ROUND) {
        bench.send((first..plan.sessions.min(first + ROUND as u64)).map(order));
    }
    assert_eq!(bench.removed, 0, "no session is idle for so long");
    // Those that were used first have ended, and their ports are free again.
    let begun = used + idle + held + SECOND;
    bench.now = begun;
    bench.settle();

    let rounds = renewed.min((idle - held - 30 * SECOND) / spacing) / ROUND as u64;
    let before = bench.removed;
    let times = (0..rounds).map(|round| {
        let first = round * ROUND as u64;
        bench.send((first..first + ROUND as u64).map(order)).cpu
    });
    let times: Vec<f64> = times.collect();
    let each_ns = times.iter().sum::<f64>() / rounds as f64;
    let renewed = rounds * ROUND as u64;
    let late = renewed.saturating_sub(bench.removed - before);
    assert!(late * spacing < 4 * SECOND, "{late} sessions are there although their time is up");
    Churn { sessions: plan.sessions - before, renewed, each_ns, spread: Spread::of(&times) }
}
