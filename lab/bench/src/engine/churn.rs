//! New sessions at the rate at which old ones end: a state that can last for ever.
//!
//! All sessions are created. Then each is used once more, in another order, over nearly the idle
//! timeout. The measurement begins when the first sessions have ended and their ports are free
//! again. It creates each session again, in that order and at that rate. With every new session
//! another one ends, and a third one's port becomes free. So the slots of new sessions are as
//! scattered as after days of use.

use super::Plan;
use super::bench::{Bench, ROUND, config};
use crate::random::Shuffle;
use crate::spread::Spread;
use natgate_engine::Timeouts;
use serde::Serialize;

/// Ports of the pool for each port that it would need without hold-down.
const PORTS: u64 = 2;

/// Lowest number of sessions. With fewer sessions a batch would be longer than a tick of the
/// timers.
const LEAST: u64 = 1 << 18;

const SECOND: u64 = 1_000_000_000;

/// Results with sessions that begin and end.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    /// Mean number of present sessions.
    pub sessions: u64,
    /// Number of created sessions, and of ended ones.
    pub renewed: u64,
    /// Mean nanoseconds for a new session, the end of another, and a port's release. Only some of
    /// the rounds do the work of a tick.
    pub each_ns: f64,
    /// Spread of `each_ns` over the rounds.
    pub spread: Spread,
}

/// Measures with at least `plan.sessions` sessions, and creates at most `renewed` of them again.
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
    // The sessions that were used first have ended, and their ports are free again.
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
