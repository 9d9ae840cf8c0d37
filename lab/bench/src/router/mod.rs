//! A NAT router, measured by the method of Chugh (2003), live over cables. The results are delay
//! (live, and in one process), throughput, memory and processor time by the number of entries; the
//! rate of new entries; and latency at shares of the highest rate without loss.
//!
//! The router without NAT is the same program with a rule that bypasses all packets. The module
//! `bed` has the test bed and the count of processor time. `transition` measures technologies of
//! IPv6 by RFC 8219 in memory. `README.md` beside this file has the results of the paper.

mod paper;
mod plan;
mod report;
mod transit;
pub mod transition;

pub use plan::{Part, Plan};

use crate::bed::{self, Bed, BedError, Stream, Translation};
use crate::report::{Report, progress};
use crate::search::{self, Tried};
use crate::spread::Spread;
use indicatif::ProgressBar;
use natgate_tester::{Histogram, Load, Mix, Tester, Way};
use serde::Serialize;
use std::time::Duration;
use transit::TransitRow;

/// Delay of packets, microseconds.
#[derive(Clone, Debug, Default, Serialize)]
struct Delay {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    /// Numbers of measured and of lost packets.
    packets: u64,
    lost: u64,
    /// True if the tester sent at the requested rate.
    kept_pace: bool,
    /// Delays, microseconds, and the share of the packets that exceeded each.
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, Serialize)]
struct DelayRow {
    entries: u32,
    frames: String,
    /// The repetition with the median of the medians.
    delay: Delay,
    /// Medians of all repetitions, microseconds.
    p50: Spread,
    /// Difference between the median and the median without NAT in the same repetition.
    added: Spread,
}

/// Highest rates, packets a second, by permitted loss: of all repetitions.
#[derive(Clone, Debug, Serialize)]
struct ThroughputRow {
    nat: bool,
    frames: String,
    none_lost: Spread,
    lost_0_1_percent: Spread,
    lost_0_5_percent: Spread,
    /// Rate with a loss of 0.1 %, divided by the rate without NAT in the same repetition.
    to_bypass: Spread,
    /// True if the tester could not send faster at one of the rates.
    tester_limited: bool,
}

#[derive(Clone, Debug, Serialize)]
struct MemoryRow {
    entries: u32,
    /// Bytes of the program without entries but with room for them, and with entries.
    before: u64,
    with: u64,
}

#[derive(Clone, Debug, Serialize)]
struct ProcessorRow {
    entries: u32,
    frames: String,
    /// Nanoseconds of processor time of one packet at the highest rate with a loss of 1 %.
    ns_per_packet: f64,
    /// Packets a second at that rate.
    pps: f64,
}

#[derive(Clone, Debug, Serialize)]
struct CreationRow {
    /// Number of entries before.
    entries: u32,
    /// Highest rate at which the packets of all new entries arrive, a second.
    rate: f64,
    /// True if the tester could not send faster.
    tester_limited: bool,
}

#[derive(Clone, Debug, Serialize)]
struct LatencyRow {
    nat: bool,
    /// Share of the highest rate without loss with translation.
    share: f64,
    pps: f64,
    /// Delay in the slice with the median 99th percentile.
    delay: Delay,
    /// The 99th percentile that a tenth of the slices stay below, microseconds. It describes slices
    /// with little disturbance by the machine.
    least_p99: f64,
    /// Difference between the `least_p99` of even and of odd turns, microseconds: the variation of
    /// a repeated measurement.
    spread: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Results {
    back_end: &'static str,
    trial_seconds: f64,
    /// Repetitions of delay; throughput has half as many.
    repetitions: u32,
    transit: Vec<TransitRow>,
    delay: Vec<DelayRow>,
    throughput: Vec<ThroughputRow>,
    memory: Vec<MemoryRow>,
    processor: Vec<ProcessorRow>,
    creation: Vec<CreationRow>,
    latency: Vec<LatencyRow>,
    /// Additional 99th percentile of the delay by translation at half the load, microseconds, in
    /// slices with little disturbance by the machine; and the precision of the number.
    added_p99_us: Option<Added>,
    failed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Added {
    added: f64,
    /// Greater spread of the two values whose difference `added` is.
    spread: f64,
}

/// Measures everything and reports the results; `command` is for the report.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let report = Report::new("router", "A NAT router", command);
    let mut results = Results {
        back_end: plan.back_end.name(),
        trial_seconds: plan.trial.as_secs_f64(),
        repetitions: plan.turns,
        ..Results::default()
    };
    let bar = progress(plan.steps());
    for part in &plan.parts {
        match part {
            Part::Transit => {
                let cycles_per_ns = report.machine().cycles_per_ns();
                results.transit = transit::measure(plan, cycles_per_ns, &bar);
            }
            Part::Delay => delays(plan, &mut results, &bar),
            Part::Throughput => {
                let found = throughput(plan, &bar);
                keep(&mut results, found, "throughput", |results, rows| {
                    results.throughput = rows;
                });
            }
            Part::Latency => {
                let found = latency(plan, &bar);
                keep(&mut results, found, "latency", |results, rows| results.latency = rows);
            }
            Part::Processor => {
                for &entries in &plan.processor_entries {
                    let found = processor(plan, entries, &bar);
                    keep(&mut results, found, "processor time", |results, rows| {
                        results.processor.extend(rows);
                    });
                }
            }
            Part::Creation => {
                let found = creation(plan, &bar);
                keep(&mut results, found, "creation", |results, rows| results.creation = rows);
            }
        }
    }
    bar.finish_and_clear();
    results.added_p99_us = added(&results.latency);
    report::write(report, &plan.parts, &results)
}

/// Puts results or an error into `results`. After an error the other measurements continue.
fn keep<T>(
    results: &mut Results,
    found: Result<T, BedError>,
    what: &str,
    put: impl FnOnce(&mut Results, T),
) {
    match found {
        Ok(found) => put(results, found),
        Err(error) => results.failed.push(format!("{what}: {error}")),
    }
}

/// Difference by translation in the 99th percentile at half the load.
fn added(rows: &[LatencyRow]) -> Option<Added> {
    let at_half = |nat: bool| {
        rows.iter().find(|row| row.nat == nat && row.share == 0.5 && row.delay.kept_pace)
    };
    let (with, without) = (at_half(true)?, at_half(false)?);
    let added = with.least_p99 - without.least_p99;
    Some(Added { added, spread: with.spread.max(without.spread) })
}

/// Measures delay and memory by entries. All numbers of entries have their turns in each
/// repetition. A number of entries that fails has no more turns and no row.
fn delays(plan: &Plan, results: &mut Results, bar: &ProgressBar) {
    let mut turns: Vec<Vec<[Delay; 3]>> = vec![Vec::new(); plan.delay_entries.len()];
    for turn in 0..plan.turns as usize {
        for (&entries, turns) in plan.delay_entries.iter().zip(&mut turns) {
            if turns.len() < turn {
                continue;
            }
            bar.set_message(format!("delay, {entries} entries, repetition {}", turn + 1));
            let what = format!("delay, {entries} entries");
            keep(results, delays_of(plan, entries), &what, |results, (delays, memory)| {
                turns.push(delays);
                results.memory.extend(memory.filter(|_| turn == 0));
            });
        }
        bar.inc(1);
    }
    let is_whole = |turns: &&Vec<_>| turns.len() == plan.turns as usize;
    let without = plan.delay_entries.iter().position(|entries| *entries == 0);
    let without = without.map(|place| &turns[place]).filter(is_whole);
    for (&entries, turns) in plan.delay_entries.iter().zip(&turns) {
        if !is_whole(&turns) {
            continue;
        }
        for (frame, frames) in mixes().iter().enumerate() {
            let pick = |turns: &Vec<[Delay; 3]>| -> Vec<Delay> {
                turns.iter().map(|delays| delays[frame].clone()).collect()
            };
            let row = DelayRow::of(entries, frames.name(), pick(turns), without.map(pick));
            results.delay.push(row);
        }
    }
}

/// Frames of the measurements of delay.
fn mixes() -> [Mix; 3] {
    let of = |len| Mix::of(len).expect("frames have such a length");
    [of(64), of(128), Mix::chugh()]
}

/// Delay of each mix of frames, and the memory of the entries.
fn delays_of(plan: &Plan, entries: u32) -> Result<([Delay; 3], Option<MemoryRow>), BedError> {
    let translation = if entries == 0 { Translation::Bypass } else { Translation::Pool };
    let flows = entries.max(1);
    bed::with(&plan.laid(translation, flows), |bed| {
        let before = (bed.resident)();
        bed.tester.establish(flows)?;
        let memory = before.zip((bed.resident)());
        let memory = memory.map(|(before, with)| MemoryRow { entries, before, with });
        let mut delays: [Delay; 3] = Default::default();
        for (frames, found) in mixes().iter().zip(&mut delays) {
            *found = delay(plan, &mut bed.tester, frames, plan.delay_rate)?;
        }
        Ok((delays, memory.filter(|_| entries > 0)))
    })
}

impl DelayRow {
    /// Creates a row of the repetitions, and of those without NAT.
    fn of(
        entries: u32,
        frames: String,
        mut delays: Vec<Delay>,
        without: Option<Vec<Delay>>,
    ) -> Self {
        let medians: Vec<f64> = delays.iter().map(|delay| delay.p50).collect();
        let without = without.into_iter().flatten().zip(&medians);
        let added: Vec<f64> = without.map(|(without, with)| with - without.p50).collect();
        delays.sort_by(|a, b| a.p50.total_cmp(&b.p50));
        let delay = delays.swap_remove(delays.len() / 2);
        Self { entries, frames, delay, p50: Spread::of(&medians), added: Spread::of(&added) }
    }
}

/// Measures the delay of packets at a rate.
fn delay(plan: &Plan, tester: &mut Tester<'_>, frames: &Mix, rate: f64) -> Result<Delay, BedError> {
    std::thread::sleep(plan.rest);
    let load = Load {
        frames: frames.clone(),
        way: Way::Up,
        rate: Some(rate),
        duration: plan.trial,
        check: false,
    };
    let report = tester.run(&load)?;
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let delay = &report.delay;
    Ok(Delay {
        p50: us(delay.percentile(0.5)),
        p99: us(delay.percentile(0.99)),
        p999: us(delay.percentile(0.999)),
        max: us(delay.most()),
        packets: report.received,
        lost: report.sent.saturating_sub(report.received),
        kept_pace: report.kept_pace(),
        curve: curve(delay),
    })
}

/// Delays, microseconds, and the share of packets with longer delays. A point is left out if its
/// share differs from that of the point before by less than a fiftieth.
fn curve(delays: &Histogram) -> Vec<(f64, f64)> {
    let (total, mut seen) = (delays.count(), 0);
    let mut curve: Vec<(f64, f64)> = Vec::new();
    for (upper, count) in delays.buckets() {
        seen += count;
        let share = 1.0 - seen as f64 / total as f64;
        let differs = |(_, last): &(f64, f64)| share < last * 0.98;
        if seen == total || curve.last().is_none_or(differs) {
            curve.push((upper as f64 / 1e3, share));
        }
    }
    curve
}

/// Highest rates of both translations. Both have their turns in each repetition.
fn throughput(plan: &Plan, bar: &ProgressBar) -> Result<Vec<ThroughputRow>, BedError> {
    let translations = [Translation::Bypass, Translation::Pool];
    let mut turns = Vec::new();
    for turn in 0..plan.turns.div_ceil(2) {
        let mut found = Vec::new();
        for translation in translations {
            bar.set_message(format!("throughput, {translation:?}, repetition {}", turn + 1));
            found.push(highest_rates(plan, translation)?);
        }
        turns.push(found);
        bar.inc(1);
    }
    let row = |nat: usize, frame: usize, frames: &Mix| {
        let of = |value: &dyn Fn(&Vec<Vec<Rates>>) -> f64| {
            Spread::of(&turns.iter().map(value).collect::<Vec<_>>())
        };
        let at = |loss: usize| of(&|turn| turn[nat][frame].rates[loss]);
        let thesis = |rates: &Rates| rates.rates[1];
        ThroughputRow {
            nat: nat == 1,
            frames: frames.name(),
            lost_0_5_percent: at(0),
            lost_0_1_percent: at(1),
            none_lost: at(2),
            to_bypass: of(&|turn| thesis(&turn[nat][frame]) / thesis(&turn[0][frame])),
            tester_limited: turns.iter().any(|turn| turn[nat][frame].tester_limited),
        }
    };
    let rows = (0..translations.len()).flat_map(|nat| {
        plan.frames.iter().enumerate().map(move |(frame, frames)| (nat, frame, frames))
    });
    Ok(rows.map(|(nat, frame, frames)| row(nat, frame, frames)).collect())
}

/// Highest rates with frames of one length, packets a second.
struct Rates {
    /// With a loss of 0.5 %, of 0.1 %, and without loss.
    rates: [f64; 3],
    tester_limited: bool,
}

/// Highest rates of each mix of frames.
fn highest_rates(plan: &Plan, translation: Translation) -> Result<Vec<Rates>, BedError> {
    bed::with(&plan.laid(translation, plan.entries), |bed| {
        bed.tester.establish(plan.entries)?;
        let mut found = Vec::new();
        for frames in &plan.frames {
            let stream = bed.stream(frames, Way::Up)?;
            let mut rates = Rates { rates: [0.0; 3], tester_limited: false };
            let mut from = search::FIRST;
            for (rate, loss) in rates.rates.iter_mut().zip([0.005, 0.001, 0.0]) {
                let try_rate = |rate| majority(plan, bed, &stream, rate, loss);
                let highest = search::capacity(from, try_rate)?;
                rates.tester_limited |= highest.tester_limited;
                (*rate, from) = (highest.rate, highest.rate);
            }
            found.push(rates);
        }
        Ok(found)
    })
}

/// Delays at shares of the highest rate without loss, with translation and without, in alternating
/// turns. The disturbance by the machine exceeds the effect of translation. So a turn is measured
/// in slices, some of which are not disturbed.
fn latency(plan: &Plan, bar: &ProgressBar) -> Result<Vec<LatencyRow>, BedError> {
    const SLICES: u32 = 12;
    const SHARES: [f64; 3] = [0.1, 0.5, 0.9];
    bar.set_message("latency");
    let Some(frames) = plan.frames.first() else { return Ok(Vec::new()) };
    let laid = |translation| plan.laid(translation, plan.entries);
    let load = bed::with(&laid(Translation::Pool), |bed| {
        bed.tester.establish(plan.entries)?;
        let stream = bed.stream(frames, Way::Up)?;
        let try_rate = |rate| majority(plan, bed, &stream, rate, 0.0);
        Ok(search::capacity(search::FIRST, try_rate)?.rate)
    })?;
    let rates = SHARES.map(|share| (load * share).max(100.0));
    let trial = (plan.trial / 5).max(Duration::from_millis(10));
    let slice = Plan { trial, rest: Duration::ZERO, ..plan.clone() };
    let ways = [Translation::Pool, Translation::Bypass];
    let mut turns = [const { [const { Vec::new() }; SHARES.len()] }; 2];
    for _ in 0..plan.turns {
        for (translation, turns) in ways.into_iter().zip(&mut turns) {
            bed::with(&laid(translation), |bed| {
                bed.tester.establish(plan.entries)?;
                for (pps, turns) in rates.into_iter().zip(turns) {
                    let slices = (0..SLICES).map(|_| delay(&slice, &mut bed.tester, frames, pps));
                    turns.push(slices.collect::<Result<Vec<_>, _>>()?);
                }
                Ok(())
            })?;
        }
    }
    bar.inc(1);
    let [with, without] = turns;
    let rows = SHARES.into_iter().zip(rates).zip(with.into_iter().zip(without));
    let row = |((share, pps), (with, without))| {
        [LatencyRow::of(true, share, pps, with), LatencyRow::of(false, share, pps, without)]
    };
    Ok(rows.flat_map(row).collect())
}

impl LatencyRow {
    /// Creates a row; `turns` are the slices of each turn.
    fn of(nat: bool, share: f64, pps: f64, turns: Vec<Vec<Delay>>) -> Self {
        let every_other = |first| least(turns.iter().skip(first).step_by(2).flatten());
        let spread = (every_other(0) - every_other(1)).abs();
        let least_p99 = least(turns.iter().flatten());
        let mut slices: Vec<_> = turns.into_iter().flatten().collect();
        slices.sort_by(|a, b| a.p99.total_cmp(&b.p99));
        Self { nat, share, pps, delay: slices.swap_remove(slices.len() / 2), least_p99, spread }
    }
}

/// The 99th percentile that a tenth of the slices stay below.
fn least<'d>(slices: impl Iterator<Item = &'d Delay>) -> f64 {
    let mut p99s: Vec<_> = slices.map(|slice| slice.p99).collect();
    p99s.sort_by(f64::total_cmp);
    p99s.get(p99s.len() / 10).copied().unwrap_or(f64::NAN)
}

/// Tries a rate until the majority of the trials agrees.
fn majority(
    plan: &Plan,
    bed: &mut Bed<'_>,
    stream: &Stream,
    rate: f64,
    loss: f64,
) -> Result<Tried, BedError> {
    let mut counts = [0; 2];
    loop {
        std::thread::sleep(plan.rest);
        let tried = bed.send(stream, Some(rate), plan.trial)?.tried(loss);
        let same = &mut counts[usize::from(tried.passed)];
        *same += 1;
        if *same * 2 > plan.trials {
            return Ok(tried);
        }
    }
}

fn processor(plan: &Plan, entries: u32, bar: &ProgressBar) -> Result<Vec<ProcessorRow>, BedError> {
    bar.set_message(format!("processor time, {entries} entries"));
    let found = bed::with(&plan.laid(Translation::Pool, entries), |bed| {
        bed.tester.establish(entries)?;
        let mut rows = Vec::new();
        for frames in &plan.frames {
            let stream = bed.stream(frames, Way::Up)?;
            let pps = bed.capacity(&stream, 0.01)?.rate;
            let sent = bed.send(&stream, Some(pps), plan.trial)?;
            let ns_per_packet = sent.spent.as_nanos() as f64 / sent.delivered.max(1) as f64;
            rows.push(ProcessorRow { entries, frames: frames.name(), ns_per_packet, pps });
        }
        Ok(rows)
    });
    bar.inc(1);
    found
}

/// Fills a table, and measures the rate of new entries at several sizes.
fn creation(plan: &Plan, bar: &ProgressBar) -> Result<Vec<CreationRow>, BedError> {
    /// Highest number of steps in a search.
    const STEPS: u32 = 16;
    bar.set_message("entries made");
    let burst = (plan.fill / 100).clamp(100, 10_000);
    let room = plan.fill + STEPS * burst * 6;
    let found = bed::with(&plan.laid(Translation::Pool, room), |bed| {
        let mut rows = Vec::new();
        for share in [0.0, 0.25, 0.5, 0.75, 0.9, 1.0] {
            let entries = (f64::from(plan.fill) * share) as u32;
            bed.tester.establish(entries.max(bed.tester.external().len() as u32).max(1))?;
            let entries = bed.tester.external().len() as u32;
            let (mut rate, mut best, mut limited) = (10e3, 0.0, true);
            for _ in 0..STEPS {
                let report = bed.tester.create(burst, rate)?;
                if !report.kept_pace() {
                    break;
                }
                if report.received < report.sent {
                    limited = false;
                    break;
                }
                best = rate;
                rate *= 1.4;
            }
            rows.push(CreationRow { entries, rate: best, tester_limited: limited });
        }
        Ok(rows)
    });
    bar.inc(1);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_translation_adds_is_the_difference_at_half_the_load() {
        let row = |nat, share, p99s: [f64; 3], kept_pace| {
            let turn = |p99| vec![Delay { p99, kept_pace, ..Delay::default() }];
            LatencyRow::of(nat, share, 0.0, p99s.map(turn).to_vec())
        };
        let (without, with) = ([900.0, 12.0, 10.0], [12.5, 15.5, 100.0]);
        assert_eq!(row(true, 0.5, with, true).delay.p99, 15.5);
        let rows = [row(false, 0.5, without, true), row(true, 0.1, with, true)];
        assert_eq!(added(&rows), None);
        let rows = [row(false, 0.5, without, true), row(true, 0.5, with, true)];
        assert_eq!(added(&rows), Some(Added { added: 2.5, spread: 3.0 }));
        let rows = [row(false, 0.5, without, true), row(true, 0.5, with, false)];
        assert_eq!(added(&rows), None);
    }

    #[test]
    fn a_tenth_of_the_slices_stay_below() {
        let slices: Vec<_> =
            (0..20).rev().map(|p99| Delay { p99: p99.into(), ..Delay::default() }).collect();
        assert_eq!(least(slices.iter()), 2.0);
    }

    #[test]
    fn a_curve_falls_from_all_to_none() {
        let mut delays = Histogram::default();
        (1..=100).for_each(|us| delays.add(us * 1000));
        let curve = curve(&delays);
        assert!(curve.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 > two[1].1));
        assert_eq!(curve.last().map(|(us, share)| (*us, share.abs() < 1e-9)), Some((100.0, true)));
    }
}
