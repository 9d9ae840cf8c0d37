//! A NAT router measured as Chugh measured one in 2003, live over cables: delay, throughput, memory
//! and processor time by the number of entries, how fast entries are made, and latency at shares of
//! the highest rate without loss.
//!
//! Without NAT is the same program with a rule that has everything pass. The bed and how processor
//! time is counted are `bed`'s. `README.md` beside this file says what the paper found.

mod page;
mod paper;

use crate::bed::{self, BackEnd, Bed, BedError, Stream, Subject, Translation};
use crate::report::{Report, progress};
use crate::search::{self, Tried};
use indicatif::ProgressBar;
use natgate_tester::{Histogram, Load, Mix, Way};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose `run` is natgate.
    pub program: PathBuf,
    /// How packets get in and out.
    pub back_end: BackEnd,
    /// Entries when delay is measured; 0: without NAT.
    pub delay_entries: Vec<u32>,
    /// Entries when throughput and latency are.
    pub entries: u32,
    /// Entries when processor time is.
    pub processor_entries: Vec<u32>,
    /// Entries of the table that is filled.
    pub fill: u32,
    /// Lengths of frames when throughput and processor time are measured.
    pub frames: Vec<Mix>,
    /// Packets a second when delay is measured.
    pub delay_rate: f64,
    /// How long a trial takes: one step of a search, or one measurement of delay.
    pub trial: Duration,
    /// Trials of a rate, of which most decide when throughput is searched for.
    pub trials: u32,
    /// Rest between trials.
    pub rest: Duration,
}

impl Plan {
    /// What takes a quarter of an hour.
    pub fn full(program: PathBuf) -> Self {
        let sizes = [64, 128, 512, 1024, 1518];
        let mut frames: Vec<Mix> = sizes.into_iter().filter_map(|len| Mix::of(len).ok()).collect();
        frames.push(Mix::chugh());
        Self {
            program,
            back_end: BackEnd::AfXdp,
            delay_entries: vec![0, 1, 200, 2_000, 20_000, 1_000_000],
            entries: 1000,
            processor_entries: vec![1_000, 3_000, 5_000, 10_000, 1_000_000],
            fill: 1_000_000,
            frames,
            delay_rate: 10e3,
            trial: Duration::from_secs(1),
            trials: 3,
            rest: Duration::from_millis(100),
        }
    }

    /// What takes a minute.
    pub fn quick(program: PathBuf) -> Self {
        Self {
            delay_entries: vec![0, 1, 2_000],
            processor_entries: vec![1_000],
            fill: 20_000,
            frames: Mix::of(64).into_iter().collect(),
            trial: Duration::from_millis(100),
            trials: 1,
            rest: Duration::ZERO,
            ..Self::full(program)
        }
    }

    fn laid(&self, translation: Translation, flows: u32) -> bed::Plan {
        bed::Plan {
            subject: Subject::Natgate(self.back_end, translation),
            program: self.program.clone(),
            flows,
            workers: 1,
        }
    }
}

/// How long packets were under way, microseconds.
#[derive(Clone, Debug, Default, Serialize)]
struct Delay {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    /// How many were measured, and how many were lost.
    packets: u64,
    lost: u64,
    /// Whether the tester sent as fast as it should have.
    kept_pace: bool,
    /// What was not exceeded, microseconds, and by what share.
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, Serialize)]
struct DelayRow {
    entries: u32,
    frames: String,
    delay: Delay,
}

/// Highest rates, packets a second, by what may be lost.
#[derive(Clone, Debug, Serialize)]
struct ThroughputRow {
    nat: bool,
    frames: String,
    none_lost: f64,
    lost_0_1_percent: f64,
    lost_0_5_percent: f64,
    /// Whether the tester could not send faster at one of them.
    tester_limited: bool,
}

#[derive(Clone, Debug, Serialize)]
struct MemoryRow {
    entries: u32,
    /// Bytes that the program has before there are entries, with room for them, and with them.
    before: u64,
    with: u64,
}

#[derive(Clone, Debug, Serialize)]
struct ProcessorRow {
    entries: u32,
    frames: String,
    /// Nanoseconds of processor time a packet at the highest rate at which 1 % is lost.
    ns_per_packet: f64,
    /// That rate.
    pps: f64,
}

#[derive(Clone, Debug, Serialize)]
struct CreationRow {
    /// Entries that there are already.
    entries: u32,
    /// Highest rate at which all new entries' packets arrive, a second.
    rate: f64,
    /// Whether the tester could not send faster.
    tester_limited: bool,
}

#[derive(Clone, Debug, Serialize)]
struct LatencyRow {
    nat: bool,
    /// Of the highest rate without loss with translation.
    share: f64,
    pps: f64,
    delay: Delay,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Results {
    back_end: &'static str,
    trial_seconds: f64,
    delay: Vec<DelayRow>,
    throughput: Vec<ThroughputRow>,
    memory: Vec<MemoryRow>,
    processor: Vec<ProcessorRow>,
    creation: Vec<CreationRow>,
    latency: Vec<LatencyRow>,
    /// 99 of 100 packets are delayed by translation at half the load by at most so much more,
    /// microseconds.
    added_p99_us: Option<f64>,
    failed: Vec<String>,
}

/// Measures everything and tells what came out; `command` is for the report.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let report = Report::new("router", "A NAT router", command);
    let mut results = Results {
        back_end: plan.back_end.name(),
        trial_seconds: plan.trial.as_secs_f64(),
        ..Results::default()
    };
    let steps = plan.delay_entries.len() + plan.processor_entries.len() + 3;
    let bar = progress(steps as u64);
    for &entries in &plan.delay_entries {
        let found = delays(plan, entries, &bar);
        keep(&mut results, found, "delay", |results, (rows, memory)| {
            results.delay.extend(rows);
            results.memory.extend(memory);
        });
    }
    let mut load = None;
    for translation in [Translation::Pool, Translation::Bypass] {
        let found = throughput(plan, translation, load, &bar);
        if let Ok((rows, _)) = &found {
            load = load.or(rows.first().map(|row| row.none_lost));
        }
        keep(&mut results, found, "throughput", |results, (rows, latency)| {
            results.throughput.extend(rows);
            results.latency.extend(latency);
        });
    }
    for &entries in &plan.processor_entries {
        let found = processor(plan, entries, &bar);
        keep(&mut results, found, "processor time", |results, rows| results.processor.extend(rows));
    }
    let found = creation(plan, &bar);
    keep(&mut results, found, "creation", |results, rows| results.creation = rows);
    bar.finish_and_clear();
    results.added_p99_us = added(&results.latency);
    page::page(report, &results)
}

/// Puts what was found into the results, or why nothing was: the rest goes on.
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

/// The difference that translation makes to the 99th percentile at half the load.
fn added(rows: &[LatencyRow]) -> Option<f64> {
    let at_half = |nat: bool| {
        let row = rows.iter().find(|row| row.nat == nat && row.share == 0.5 && row.delay.kept_pace);
        row.map(|row| row.delay.p99)
    };
    Some(at_half(true)? - at_half(false)?)
}

fn delays(
    plan: &Plan,
    entries: u32,
    bar: &ProgressBar,
) -> Result<(Vec<DelayRow>, Option<MemoryRow>), BedError> {
    bar.set_message(format!("delay, {entries} entries"));
    let translation = if entries == 0 { Translation::Bypass } else { Translation::Pool };
    let flows = entries.max(1);
    let found = bed::with(&plan.laid(translation, flows), |bed| {
        let before = (bed.resident)();
        bed.tester.establish(flows)?;
        let memory = before.zip((bed.resident)());
        let memory = memory.map(|(before, with)| MemoryRow { entries, before, with });
        let mut rows = Vec::new();
        for frames in Mix::of(64).into_iter().chain(Mix::of(128)).chain([Mix::chugh()]) {
            let delay = delay(plan, bed, &frames, plan.delay_rate)?;
            rows.push(DelayRow { entries, frames: frames.name(), delay });
        }
        Ok((rows, memory.filter(|_| entries > 0)))
    });
    bar.inc(1);
    found
}

/// Of several trials the one whose 99th percentile is the median.
fn median_delay(
    plan: &Plan,
    bed: &mut Bed<'_>,
    frames: &Mix,
    rate: f64,
) -> Result<Delay, BedError> {
    let trials = (0..plan.trials.max(1)).map(|_| delay(plan, bed, frames, rate));
    let mut trials = trials.collect::<Result<Vec<_>, _>>()?;
    trials.sort_by(|a, b| a.p99.total_cmp(&b.p99));
    Ok(trials.swap_remove(trials.len() / 2))
}

/// How long packets that come at a rate are under way.
fn delay(plan: &Plan, bed: &mut Bed<'_>, frames: &Mix, rate: f64) -> Result<Delay, BedError> {
    std::thread::sleep(plan.rest);
    let load = Load {
        frames: frames.clone(),
        way: Way::Up,
        rate: Some(rate),
        duration: plan.trial,
        check: false,
    };
    let report = bed.tester.run(&load)?;
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

/// Delays, microseconds, and which share of the packets took longer.
fn curve(delays: &Histogram) -> Vec<(f64, f64)> {
    let (total, mut seen) = (delays.count() as f64, 0);
    let point = |(upper, count): (u64, u64)| {
        seen += count;
        (upper as f64 / 1e3, 1.0 - seen as f64 / total)
    };
    delays.buckets().map(point).collect()
}

type Rates = (Vec<ThroughputRow>, Vec<LatencyRow>);

/// Highest rates, and delays at shares of a load: of the highest rate without loss, or of `load`, so
/// that delays with translation and without can be compared at the same rates.
fn throughput(
    plan: &Plan,
    translation: Translation,
    load: Option<f64>,
    bar: &ProgressBar,
) -> Result<Rates, BedError> {
    let nat = translation == Translation::Pool;
    let found = bed::with(&plan.laid(translation, plan.entries), |bed| {
        bed.tester.establish(plan.entries)?;
        let mut rows = Vec::new();
        for frames in &plan.frames {
            bar.set_message(format!("throughput, {} bytes, NAT {nat}", frames.name()));
            let stream = bed.stream(frames, Way::Up)?;
            let mut limited = false;
            let mut highest = |from: f64, loss: f64| -> Result<f64, BedError> {
                let found =
                    search::capacity(from, |rate| majority(plan, bed, &stream, rate, loss))?;
                limited |= found.tester_limited;
                Ok(found.rate)
            };
            let lost_0_5_percent = highest(search::FIRST, 0.005)?;
            let lost_0_1_percent = highest(lost_0_5_percent, 0.001)?;
            let none_lost = highest(lost_0_1_percent, 0.0)?;
            rows.push(ThroughputRow {
                nat,
                frames: frames.name(),
                none_lost,
                lost_0_1_percent,
                lost_0_5_percent,
                tester_limited: limited,
            });
        }
        let mut latency = Vec::new();
        for share in [0.1, 0.5, 0.9] {
            bar.set_message(format!("latency at {share} of the load, NAT {nat}"));
            let Some(frames) = plan.frames.first() else { break };
            let load = load.or(rows.first().map(|row| row.none_lost)).unwrap_or(0.0);
            let pps = (load * share).max(100.0);
            let delay = median_delay(plan, bed, frames, pps)?;
            latency.push(LatencyRow { nat, share, pps, delay });
        }
        Ok((rows, latency))
    });
    bar.inc(1);
    found
}

/// Tries a rate until most of the trials say the same.
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
            let pps = bed.capacity(&stream, 0.01, plan.trial / 4)?.rate;
            let sent = bed.send(&stream, Some(pps), plan.trial)?;
            let ns_per_packet = sent.spent.as_nanos() as f64 / sent.delivered.max(1) as f64;
            rows.push(ProcessorRow { entries, frames: frames.name(), ns_per_packet, pps });
        }
        Ok(rows)
    });
    bar.inc(1);
    found
}

/// Fills a table, and measures now and then how fast entries are made.
fn creation(plan: &Plan, bar: &ProgressBar) -> Result<Vec<CreationRow>, BedError> {
    /// Steps of a search at most.
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
        let row = |nat, share, p99, kept_pace| LatencyRow {
            nat,
            share,
            pps: 0.0,
            delay: Delay { p99, kept_pace, ..Delay::default() },
        };
        let rows = [row(false, 0.5, 10.0, true), row(true, 0.1, 90.0, true)];
        assert_eq!(added(&rows), None);
        let rows = [row(false, 0.5, 10.0, true), row(true, 0.5, 12.5, true)];
        assert_eq!(added(&rows), Some(2.5));
        let rows = [row(false, 0.5, 10.0, true), row(true, 0.5, 12.5, false)];
        assert_eq!(added(&rows), None);
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
