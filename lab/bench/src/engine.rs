//! The engine's speed: established sessions both ways, new sessions, and the memory of a session.
//! One run measures them all, interleaved with the cost of memory alone.
//!
//! Every function of a gateway is switched on: validation, filtering, states, timers, counters,
//! limits, checksums. Every run has the figures of [`measure`]. Further measurements: several
//! threads (`threads`), the longest pause while very many mappings expire (`pause`), new sessions
//! when ports are scarce (`scarcity`), sessions that begin as fast as others end (`churn`).
//! `report` writes the report. `README.md` beside these files explains the method.

mod bench;
mod churn;
mod pause;
mod peers;
mod report;
mod scarcity;
mod threads;

pub use churn::Churn;
pub use pause::Pause;
pub use report::Comparison;
pub(crate) use report::grouped;
pub use scarcity::Scarcity;
pub use threads::Threads;

pub(crate) use bench::{Bench, Mode, ROUND, config, subscribers};

use crate::clock;
use crate::limit::Limit;
use crate::report::progress;
use crate::spread::Spread;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Sessions of the table for comparison with larger tables.
const REFERENCE: u64 = 1_000_000;

/// Kinds of rounds with packets of established sessions.
const KINDS: usize = 3;

/// Lowest number of rounds.
const ROUNDS: usize = 5;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Established sessions.
    pub sessions: u64,
    /// Packets in one call of the engine, at most `Engine::MAX_BATCH`.
    pub batch: usize,
    /// Time of the measurement of established sessions.
    pub time: Duration,
    /// True if the sessions are TCP connections instead of UDP.
    pub tcp: bool,
}

impl Plan {
    /// Bytes of memory that the measurement takes. Most of them belong to the engine and to the
    /// lines for comparison.
    pub fn memory(&self) -> u64 {
        self.sessions * 180 + (1 << 28)
    }
}

/// Results of a measurement; times are nanoseconds a packet, medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Established sessions.
    pub sessions: u64,
    /// Packets of a batch.
    pub batch: usize,
    /// The sessions' protocol.
    pub protocol: &'static str,
    /// One outbound packet of an established session.
    pub outbound_ns: f64,
    /// One inbound packet of an established session.
    pub inbound_ns: f64,
    /// Batches alternately outbound and inbound.
    pub mixed_ns: f64,
    /// One new session, with allocation, limits, timer and event.
    pub create_ns: f64,
    /// One random line of memory, read and written.
    pub limit_ns: f64,
    /// Packets of established sessions that did not take the engine's quick way, percent. Such a
    /// packet costs several times what the others cost.
    pub complete_percent: f64,
    /// Resident memory of the engine, divided by the number of sessions.
    pub bytes_per_session: f64,
    /// `mixed_ns` with a million sessions, measured alternately; `None` if there are at most a
    /// million.
    pub mixed_at_million_ns: Option<f64>,
    /// Spreads of the figures.
    pub spreads: Spreads,
}

/// The spreads of the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Spreads {
    /// Spread of `outbound_ns`.
    pub outbound_ns: Spread,
    /// Spread of `inbound_ns`.
    pub inbound_ns: Spread,
    /// Spread of `mixed_ns`.
    pub mixed_ns: Spread,
    /// Spread of `create_ns`.
    pub create_ns: Spread,
    /// Spread of `limit_ns`.
    pub limit_ns: Spread,
}

/// Measures the figures that every run has.
pub fn measure(plan: &Plan) -> Figures {
    let bar = progress(plan.sessions);
    bar.set_message("making sessions");
    let mut bench = Bench::new(plan);
    let create = Spread::of(&bench.fill(|count| bar.inc(count)));
    let bytes_per_session = bench.resident();
    bench.answer();
    let mut reference = (plan.sessions > REFERENCE).then(|| {
        let mut bench = Bench::new(&Plan { sessions: REFERENCE, ..plan.clone() });
        bench.fill(|_| ());
        bench.answer();
        bench
    });
    let mut limit = Limit::new(plan.sessions as usize, ROUND);
    bar.set_message("established sessions");
    let [mut limits, mut outbound, mut inbound, mut mixed, mut million] = [const { Vec::new() }; 5];
    let complete_before = bench.complete_ways();
    let begun = Instant::now();
    while begun.elapsed() < plan.time || limits.len() < ROUNDS {
        limit.prepare(&mut bench.random);
        let (time, ()) = clock::time(|| limit.run(plan.batch));
        limits.push(time / ROUND as f64);
        outbound.push(bench.round(Mode::Outbound).cpu);
        inbound.push(bench.round(Mode::Inbound).cpu);
        mixed.push(bench.round(Mode::Mixed).cpu);
        million.extend(reference.as_mut().map(|bench| bench.round(Mode::Mixed).cpu));
    }
    bar.finish_and_clear();
    let complete = bench.complete_ways() - complete_before;
    let packets = (limits.len() * KINDS * ROUND) as f64;
    let [limit, outbound, inbound, mixed] =
        [limits, outbound, inbound, mixed].map(|times| Spread::of(&times));
    Figures {
        sessions: plan.sessions,
        batch: plan.batch,
        protocol: if plan.tcp { "tcp" } else { "udp" },
        outbound_ns: outbound.median,
        inbound_ns: inbound.median,
        mixed_ns: mixed.median,
        create_ns: create.median,
        limit_ns: limit.median,
        complete_percent: complete as f64 / packets * 100.0,
        bytes_per_session,
        mixed_at_million_ns: reference.map(|_| Spread::of(&million).median),
        spreads: Spreads {
            outbound_ns: outbound,
            inbound_ns: inbound,
            mixed_ns: mixed,
            create_ns: create,
            limit_ns: limit,
        },
    }
}

/// All results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Figures of every run.
    #[serde(flatten)]
    pub figures: Figures,
    /// Each figure over `limit_ns`.
    pub ratios_to_limit: Ratios,
    /// `mixed_ns` divided by its value with a million sessions.
    pub mixed_to_million: Option<f64>,
    /// Cycles of the time-stamp counter a nanosecond.
    pub cycles_per_ns: f64,
    /// Several threads compared with one.
    pub threads: Option<Threads>,
    /// Batches while very many mappings expire.
    pub pause: Pause,
    /// New sessions when few ports are free.
    pub scarcity: Vec<Scarcity>,
    /// New sessions as fast as old ones end.
    pub churn: Churn,
}

/// Figures relative to the cost of memory alone.
#[derive(Clone, Debug, Serialize)]
pub struct Ratios {
    /// Ratio of `outbound_ns`.
    pub outbound: f64,
    /// Ratio of `inbound_ns`.
    pub inbound: f64,
    /// Ratio of `mixed_ns`.
    pub mixed: f64,
    /// Ratio of `create_ns`.
    pub create: f64,
}

/// Runs all measurements; `quick` makes the measurements outside the plan small.
pub fn run(plan: &Plan, threads: usize, quick: bool, cycles_per_ns: f64) -> Results {
    let figures = measure(plan);
    let threads = (threads > 1).then(|| threads::measure(plan, threads));
    let pause = pause::measure(plan, if quick { 20_000 } else { 1_000_000 });
    let scarcity = scarcity::measure(plan, if quick { 1 } else { 64 });
    let churn = churn::measure(plan, if quick { 100_000 } else { 4_000_000 });
    let ratio = |figure: f64| figure / figures.limit_ns;
    Results {
        ratios_to_limit: Ratios {
            outbound: ratio(figures.outbound_ns),
            inbound: ratio(figures.inbound_ns),
            mixed: ratio(figures.mixed_ns),
            create: ratio(figures.create_ns),
        },
        mixed_to_million: figures.mixed_at_million_ns.map(|million| figures.mixed_ns / million),
        cycles_per_ns,
        threads,
        pause,
        scarcity,
        churn,
        figures,
    }
}
