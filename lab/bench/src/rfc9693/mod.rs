//! RFC 9693, benchmarking of stateful NAT gateways: the rate of new connections, each of them
//! validated; the rate of packets over them, both ways; the rate of their removal; and the capacity
//! of the table.
//!
//! The gateway is the engine behind virtual links (`gateway`), with the translator of IPv6 before
//! it if NAT64 is measured (`nat64`). The tester makes and checks every frame (`tester`).
//! `README.md` beside this file lists the differences to the RFC.

mod gateway;
mod nat64;
mod report;
mod tester;

use crate::report::{Report, progress};
use crate::spread::{Spread, percentile};
use gateway::{Gateway, Stream};
use indicatif::ProgressBar;
use natgate_engine::Side;
use serde::Serialize;
use std::time::Instant;
use tester::{Phase, Tester};

/// Sessions of all repetitions of a search together, approximately. So large tables have fewer
/// repetitions.
const SESSIONS_IN_ALL: u64 = 50_000_000;

/// Rate of the trials of table capacity, divided by the rate of the smallest table: RFC 9693's
/// beta.
const BETA: f64 = 0.2;

/// Most trials of a rate. A rate passes if one of its trials does: when the hypervisor interrupts
/// the processor for milliseconds, that time counts as the gateway's and only makes a trial fail.
const TRIALS: u32 = 3;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of the table, sessions.
    pub sessions: Vec<u64>,
    /// True if subscribers have IPv6 alone and the gateway is NAT64.
    pub nat64: bool,
    /// Packets in a batch.
    pub batch: usize,
    /// Highest number of repetitions of a search.
    pub repetitions: u64,
    /// Precision of binary searches, as a share of the highest rate.
    pub precision: f64,
    /// Frames of a throughput trial, both ways together.
    pub frames: u64,
    /// Room for sessions in the gateway while its capacity is searched.
    pub capacity: u64,
    /// First number of sessions in the search for the capacity.
    pub first_capacity: u64,
}

impl Plan {
    /// A measurement that takes most of an hour.
    pub fn full() -> Self {
        Self {
            sessions: vec![1_000_000, 10_000_000, 65_500_000],
            nat64: false,
            batch: 64,
            repetitions: 20,
            precision: 0.02,
            frames: 4_000_000,
            capacity: 10_000_000,
            first_capacity: 1_000_000,
        }
    }

    /// A measurement that takes seconds.
    pub fn quick() -> Self {
        Self {
            sessions: vec![5_000, 20_000],
            repetitions: 2,
            precision: 0.1,
            frames: 50_000,
            capacity: 30_000,
            first_capacity: 5_000,
            ..Self::full()
        }
    }

    /// Highest number of sessions.
    pub const MOST: u64 = Gateway::most();

    /// Name of the report.
    pub fn name(&self) -> &'static str {
        if self.nat64 { "rfc9693-nat64" } else { "rfc9693" }
    }

    /// Bytes of memory that the measurement takes.
    pub fn memory(&self) -> u64 {
        let most = self.sessions.iter().copied().chain([self.capacity]).max().unwrap_or(0);
        most * if self.nat64 { 130 } else { 110 } + (1 << 28)
    }
}

/// Results at one size.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// Number of connections.
    pub sessions: u64,
    /// Highest rate at which all connections are made and then validated, a second.
    pub establishment: Spread,
    /// Highest rate of frames over the connections without loss, both ways together, a second.
    pub throughput: Spread,
    /// Delay of frames at that rate, microseconds: median, 99.9th percentile.
    pub delay_us: [f64; 2],
    /// Delay of frames at half of the rate, microseconds: median, 99.9th percentile.
    pub delay_at_half_us: [f64; 2],
    /// Expired connections a second.
    pub tear_down: Spread,
    /// Removed connections a second of wall time when the whole gateway is dropped.
    pub dropped: f64,
}

/// The table's capacity.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// Configured room.
    pub configured: u64,
    /// Number of connections that could be made and validated; `None` if the first number of the
    /// search failed.
    pub found: Option<u64>,
    /// Highest error of the number, as a share.
    pub error: f64,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// True if the gateway is NAT64.
    pub nat64: bool,
    /// Packets in a batch.
    pub batch: usize,
    /// Frames in one side's receive ring.
    pub ring: u64,
    /// Results by size of the table.
    pub sizes: Vec<Size>,
    /// The table's capacity.
    pub capacity: Capacity,
}

/// Measures, and reports the results of `command`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let title = if plan.nat64 {
        "RFC 9693: rates and capacity of NAT64"
    } else {
        "RFC 9693: a stateful NAT's rates and capacity"
    };
    let report = Report::new(plan.name(), title, command);
    let repetitions: u64 = plan.sessions.iter().map(|&sessions| plan.repetitions(sessions)).sum();
    let bar = progress(repetitions + 1);
    let sizes: Vec<Size> =
        plan.sessions.iter().map(|&sessions| size(plan, sessions, &bar)).collect();
    bar.set_message("table capacity");
    let capacity = capacity(plan, sizes.first().map_or(1e6, |size| size.establishment.median));
    bar.finish_and_clear();
    let results =
        Results { nat64: plan.nat64, batch: plan.batch, ring: gateway::RING, sizes, capacity };
    report::write(report, plan, &results)
}

impl Plan {
    fn repetitions(&self, sessions: u64) -> u64 {
        (SESSIONS_IN_ALL / sessions).clamp(1, self.repetitions)
    }

    /// Precision of the searches at a size. Large tables have a lower precision, because each step
    /// fills them again.
    fn precision(&self, sessions: u64) -> f64 {
        if sessions > 20_000_000 { self.precision.max(0.05) } else { self.precision }
    }
}

/// Measures one size of the table. Each repetition searches the highest rates again.
fn size(plan: &Plan, sessions: u64, bar: &ProgressBar) -> Size {
    let mut gateway = Gateway::new(sessions, sessions, plan);
    let mut tester = Tester::new(sessions);
    let precision = plan.precision(sessions);
    let [mut establishment, mut throughput, mut tear_down] = [const { Vec::new() }; 3];

    bar.set_message(format!("{sessions} sessions, warming up"));
    // This touches the memory, and returns the rate of a gateway that always has waiting frames.
    let fastest = saturate(&mut gateway, &mut tester);
    let [mut delay_us, mut delay_at_half_us] = [[0.0; 2]; 2];
    for repetition in 0..plan.repetitions(sessions) {
        bar.set_message(format!("{sessions} sessions, establishment"));
        tear_down.extend(empty(&mut gateway, sessions));
        establishment.push(crate::search::highest(1.1 * fastest, precision, |rate| {
            passes(|| {
                let passed = establish(&mut gateway, &mut tester, rate);
                tear_down.extend(empty(&mut gateway, sessions));
                passed
            })
        }));

        bar.set_message(format!("{sessions} sessions, throughput"));
        saturate(&mut gateway, &mut tester);
        let top = 1.1 * both_ways(&mut gateway, &mut tester, plan.frames, None).1;
        let highest = crate::search::highest(top, precision, |rate| {
            passes(|| both_ways(&mut gateway, &mut tester, plan.frames, Some(rate)).0)
        });
        throughput.push(highest);
        if repetition == 0 {
            delay_us = delays(&mut gateway, &mut tester, plan.frames, highest);
            delay_at_half_us = delays(&mut gateway, &mut tester, plan.frames, highest / 2.0);
        }
        bar.inc(1);
    }
    let start = Instant::now();
    drop(gateway);
    let dropped = sessions as f64 / start.elapsed().as_secs_f64();
    let [establishment, throughput, tear_down] =
        [establishment, throughput, tear_down].map(|rates| Spread::of(&rates));
    Size { sessions, establishment, throughput, delay_us, delay_at_half_us, tear_down, dropped }
}

/// True if one of at most [`TRIALS`] trials passes.
fn passes(mut trial: impl FnMut() -> bool) -> bool {
    (0..TRIALS).any(|_| trial())
}

/// Empties the table; returns connections a second if it was full.
fn empty(gateway: &mut Gateway, full: u64) -> Option<f64> {
    if gateway.mappings() == 0 {
        return None;
    }
    let (removed, time) = gateway.tear_down();
    (removed == full).then(|| removed as f64 / time * 1e9)
}

/// Makes every connection as fast as the gateway takes frames; returns connections a second.
///
/// # Panics
/// If a connection is refused although there is room for it.
fn saturate(gateway: &mut Gateway, tester: &mut Tester) -> f64 {
    let sessions = tester.connections();
    let mut stream = [Stream::saturating(Side::Inside, sessions)];
    let outcome = gateway.trial(tester, Phase::Establish, &mut stream, false);
    assert!(outcome.passed && gateway.mappings() == sessions, "every connection is made");
    sessions as f64 / outcome.time * 1e9
}

/// Makes every connection at `rate` a second, then sends one frame back over each at the same rate.
/// Returns true if all frames arrived.
fn establish(gateway: &mut Gateway, tester: &mut Tester, rate: f64) -> bool {
    let sessions = tester.connections();
    let mut trial = |phase, from| {
        let mut stream = [Stream::new(from, sessions, rate)];
        gateway.trial(tester, phase, &mut stream, false).passed
    };
    trial(Phase::Establish, Side::Inside) && trial(Phase::Validate, Side::Outside)
}

/// Sends `frames` frames over random connections, half of them each way, at `rate` a second or as
/// fast as the gateway takes them. Returns true if all arrived, and the frames a second.
fn both_ways(
    gateway: &mut Gateway,
    tester: &mut Tester,
    frames: u64,
    rate: Option<f64>,
) -> (bool, f64) {
    let mut streams = [Side::Inside, Side::Outside].map(|from| match rate {
        Some(rate) => Stream::new(from, frames / 2, rate / 2.0),
        None => Stream::saturating(from, frames / 2),
    });
    let outcome = gateway.trial(tester, Phase::Both, &mut streams, false);
    (outcome.passed, frames as f64 / outcome.time * 1e9)
}

/// Delay of frames at a rate, microseconds: median and 99.9th percentile.
fn delays(gateway: &mut Gateway, tester: &mut Tester, frames: u64, rate: f64) -> [f64; 2] {
    if rate == 0.0 {
        return [0.0; 2];
    }
    let mut streams =
        [Side::Inside, Side::Outside].map(|from| Stream::new(from, frames / 2, rate / 2.0));
    let mut delays = gateway.trial(tester, Phase::Both, &mut streams, true).delays;
    [0.5, 0.999].map(|share| percentile(&mut delays, share) / 1e3)
}

/// Number of connections that can be made at [`BETA`] of the rate of the smallest table.
///
/// The gateway is filled and emptied once before the search. Otherwise the first trial measures the
/// kernel, which clears each page of memory at its first use, and the search ends before it begins.
fn capacity(plan: &Plan, rate: f64) -> Capacity {
    let (configured, error) = (plan.capacity, 0.01);
    let mut gateway = Gateway::new(configured, 2 * configured + plan.first_capacity, plan);
    saturate(&mut gateway, &mut Tester::new(configured));
    empty(&mut gateway, configured);
    let found = crate::search::largest(plan.first_capacity, error, |sessions| {
        let mut tester = Tester::new(sessions);
        passes(|| {
            let passed = establish(&mut gateway, &mut tester, BETA * rate);
            empty(&mut gateway, sessions);
            passed
        })
    });
    Capacity { configured, found: (found > 0).then_some(found), error }
}
