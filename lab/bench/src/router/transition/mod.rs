//! Technologies of the transition to IPv6, measured by RFC 8219's procedures: throughput, latency,
//! variation of delay, and loss, by sizes of frames and by the share of native IPv6 beside.
//!
//! `technology` has the settings of the gateways and the ends of flows, `packet` the frames,
//! `tester` the traffic and its checks, `device` the memory for links, `chain` one gateway or two
//! in virtual time, `delays` the figures of a stream, `summary` percentiles, `report` the report.
//! `README.md` in the folder above lists the differences from the RFC.

mod chain;
mod delays;
mod device;
mod packet;
mod report;
mod summary;
mod technology;
mod tester;

pub use summary::Summary;
pub use technology::Technology;

use crate::report::{Report, progress};
use crate::search;
use chain::{Chain, Outcome, Stream, Until};
use delays::Delays;
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::Duration;
use technology::MOST_FLOWS;
use tester::{LEAST, Tester};

/// Name of the report.
pub const NAME: &str = "router-transition";

/// Sizes of frames, RFC 8219 section 5.1.1, bytes. Where IPv6 is translated, 84 stands for 64.
const SIZES: [u16; 13] = [64, 128, 256, 512, 768, 1024, 1280, 1518, 1522, 2048, 4096, 8192, 9216];
const SMALLEST_IPV6: u16 = 84;
/// Foreground shares, RFC 8219 section 5.3, percent.
const SHARES: [u8; 4] = [100, 90, 50, 10];
/// Line rate of the virtual links, bits a second: 10 Gigabit Ethernet.
const LINE: f64 = 10e9;
/// Preamble and gap between two frames, bytes.
const BETWEEN: u16 = 20;
/// Frames of a side in the trial that finds where the search begins.
const SATURATING: u64 = 20_000;
/// Tagged frames of each side in a stream whose latency is measured.
const TAGGED: u64 = 500;
/// Factor between the saturating rate and the first rate of a search.
const MARGIN: f64 = 1.4;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Measured technologies.
    pub technologies: Vec<Technology>,
    /// Sizes of frames with foreground traffic alone, bytes, ascending. The first has all shares of
    /// foreground traffic.
    pub sizes: Vec<u16>,
    /// Flows of a technology, and of native IPv6.
    pub flows: u32,
    /// Virtual time of a stream.
    pub trial: Duration,
    /// Repetitions of each measurement except for loss.
    pub repetitions: u32,
    /// Precision of binary searches, as a share of the first rate.
    pub precision: f64,
}

impl Plan {
    /// A measurement that takes ten minutes.
    pub fn full() -> Self {
        Self {
            technologies: Technology::ALL.to_vec(),
            sizes: SIZES.to_vec(),
            flows: MOST_FLOWS,
            trial: Duration::from_millis(20),
            repetitions: 20,
            precision: 0.01,
        }
    }

    /// A measurement that takes seconds.
    pub fn quick() -> Self {
        Self {
            sizes: vec![64, 1518],
            flows: 200,
            trial: Duration::from_millis(1),
            repetitions: 2,
            precision: 0.05,
            ..Self::full()
        }
    }

    /// Bytes of memory that the measurement takes: gateways, and the delays of all frames of the
    /// longest stream.
    pub fn memory(&self) -> u64 {
        const EACH: f64 = 64.0;
        let line = 2.0 * LINE / (8.0 * f64::from(SIZES[0] + BETWEEN));
        (1 << 30) + (self.trial.as_secs_f64() * line * EACH) as u64
    }

    /// Sizes and shares of the rows of a technology.
    fn cases(&self, technology: Technology) -> Vec<(u16, u8)> {
        let size =
            |size: u16| if technology.counts_ipv6() { size.max(SMALLEST_IPV6) } else { size };
        let first =
            self.sizes.first().map(|first| SHARES[1..].iter().map(|share| (*first, *share)));
        let alone = self.sizes.iter().map(|size| (*size, SHARES[0]));
        let cases = alone.chain(first.into_iter().flatten());
        cases.map(|(bytes, share)| (size(bytes), share)).collect()
    }
}

/// Frames that were lost at a share of the line rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Loss {
    /// Share of the line rate, percent.
    pub offered_percent: u32,
    /// Share of the frames, percent.
    pub lost_percent: f64,
}

/// Figures of a technology with frames of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The technology's key.
    pub technology: &'static str,
    /// Size of a frame, bytes.
    pub frame: u16,
    /// Size of that frame inside, and outside.
    pub frame_at: [u16; 2],
    /// Share of foreground traffic, percent; the rest is native IPv6.
    pub foreground_percent: u8,
    /// Line rate of both sides together, frames a second.
    pub line_rate: f64,
    /// Highest rate without loss of both sides together, frames a second.
    pub throughput: Summary,
    /// True if the median is the line rate.
    pub line_limited: bool,
    /// Typical latency at the throughput, microseconds.
    pub typical_latency_us: Summary,
    /// Worst-case latency at the throughput, microseconds.
    pub worst_latency_us: Summary,
    /// Variation of delay, microseconds.
    pub pdv_us: Summary,
    /// Least, median and largest variation between consecutive frames, microseconds: medians of the
    /// repetitions.
    pub ipdv_us: [f64; 3],
    /// Frames that were lost in the streams of these delays, in all repetitions.
    pub lost: u64,
    /// Loss by offered rate.
    pub loss: Vec<Loss>,
}

#[derive(Clone, Debug, Serialize)]
struct Results {
    trial_seconds: f64,
    repetitions: u32,
    flows: u32,
    ring: usize,
    line_bits_per_second: f64,
    rows: Vec<Row>,
    /// Technologies that could not be measured, and why.
    failed: Vec<String>,
}

/// Measures all technologies in turns, and reports the results of `command`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let title = "Technologies of the transition to IPv6";
    let report = Report::new(NAME, title, command);
    let mut failed = Vec::new();
    let mut subjects: Vec<Subject> = Vec::new();
    for technology in &plan.technologies {
        match Subject::new(*technology, plan) {
            Ok(subject) => subjects.push(subject),
            Err(error) => failed.push(format!("{}: {error}", technology.name())),
        }
    }
    let bar = progress(u64::from(plan.repetitions) * subjects.len() as u64);
    for repetition in 0..plan.repetitions {
        for subject in &mut subjects {
            let name = subject.technology.name();
            bar.set_message(format!("{name}, repetition {}", repetition + 1));
            subject.repeat(plan);
            bar.inc(1);
        }
    }
    measure_loss(plan, &mut subjects, &bar);
    bar.finish_and_clear();
    let results = Results {
        trial_seconds: plan.trial.as_secs_f64(),
        repetitions: plan.repetitions,
        flows: plan.flows,
        ring: chain::RING,
        line_bits_per_second: LINE,
        rows: subjects.iter().flat_map(Subject::rows).collect(),
        failed,
    };
    report::write(report, &results)
}

fn measure_loss(plan: &Plan, subjects: &mut [Subject], bar: &ProgressBar) {
    for subject in subjects {
        bar.set_message(format!("{}, loss", subject.technology.name()));
        subject.measure_loss(plan);
    }
}

/// A technology under test, and its figures so far.
struct Subject {
    technology: Technology,
    chain: Chain,
    tester: Tester,
    cases: Vec<Case>,
}

/// A row that is not finished.
struct Case {
    frame: u16,
    share: u8,
    payload: u16,
    /// Line rate of a side, frames a second.
    line: f64,
    throughput: Vec<f64>,
    delays: Vec<Delays>,
    loss: Vec<Loss>,
}

impl Subject {
    fn new(technology: Technology, plan: &Plan) -> Result<Self, String> {
        let mut chain = Chain::new(technology);
        let flows = plan.flows.min(MOST_FLOWS);
        let tester = Tester::new(technology, flows, |from, head| chain.pass(from, head))?;
        // Sizes are those of IPv6 inside or outside, or of IPv4 at an end without a tunnel.
        let least = tester.lengths(LEAST).unwrap_or_default();
        let of = |lengths: [u16; 2]| match technology.counts_ipv6() {
            true => lengths[0].max(lengths[1]),
            false => lengths[0].min(lengths[1]),
        };
        let case = |(frame, share): (u16, u8)| Case {
            frame,
            share,
            payload: (LEAST + frame).saturating_sub(of(least)).max(LEAST),
            line: LINE / (8.0 * f64::from(frame + technology.more() + BETWEEN)),
            throughput: Vec::new(),
            delays: Vec::new(),
            loss: Vec::new(),
        };
        let cases = plan.cases(technology).into_iter().map(case).collect();
        Ok(Self { technology, chain, tester, cases })
    }

    /// Measures throughput, and delays at this rate, with all frames.
    fn repeat(&mut self, plan: &Plan) {
        let Self { chain, tester, cases, .. } = self;
        for case in cases {
            tester.prepare(case.payload, case.share);
            let seconds = plan.trial.as_secs_f64();
            // Half of the frames come late enough to be tagged.
            let stream = |rate| Stream::new(rate, seconds, 2 * TAGGED);
            let saturating = Stream { count: SATURATING.min(stream(case.line).count), gap: 0 };
            let Outcome { received, time, .. } = chain.trial(tester, saturating, Until::End);
            let fastest = received as f64 / 2.0 / time as f64 * 1e9;
            let first = case.line.min(MARGIN * fastest);
            let rate = search::highest(first, plan.precision, |rate| {
                chain.trial(tester, stream(rate), Until::Loss).lost() == 0
            });
            case.throughput.push(2.0 * rate);
            if rate > 0.0 {
                let outcome = chain.trial(tester, stream(rate), Until::End);
                case.delays.push(Delays::of(&outcome, stream(rate).count, TAGGED));
            }
        }
    }

    /// Measures loss: from the line rate down by a tenth of it, until two rates lose nothing.
    fn measure_loss(&mut self, plan: &Plan) {
        let Self { chain, tester, cases, .. } = self;
        for case in cases {
            tester.prepare(case.payload, case.share);
            for offered_percent in (10..=100).rev().step_by(10) {
                let rate = case.line * f64::from(offered_percent) / 100.0;
                let stream = Stream::new(rate, plan.trial.as_secs_f64(), 2 * TAGGED);
                let outcome = chain.trial(tester, stream, Until::End);
                let lost_percent = outcome.lost() as f64 * 100.0 / outcome.sent as f64;
                case.loss.push(Loss { offered_percent, lost_percent });
                if case.loss.iter().rev().take(2).filter(|loss| loss.lost_percent == 0.0).count()
                    == 2
                {
                    break;
                }
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.cases.iter().map(|case| case.row(self.technology, &self.tester))
    }
}

impl Case {
    fn row(&self, technology: Technology, tester: &Tester) -> Row {
        let of = |value: fn(&Delays) -> f64| -> Summary {
            Summary::of(&self.delays.iter().map(value).collect::<Vec<_>>())
        };
        let throughput = Summary::of(&self.throughput);
        let line_rate = 2.0 * self.line;
        Row {
            technology: technology.key(),
            frame: self.frame,
            frame_at: tester.lengths(self.payload).unwrap_or_default(),
            foreground_percent: self.share,
            line_rate,
            throughput,
            line_limited: throughput.median >= line_rate * 0.999,
            typical_latency_us: of(|delays| delays.typical),
            worst_latency_us: of(|delays| delays.worst),
            pdv_us: of(|delays| delays.pdv),
            ipdv_us: [of(|it| it.ipdv[0]), of(|it| it.ipdv[1]), of(|it| it.ipdv[2])]
                .map(|summary| summary.median),
            lost: self.delays.iter().map(|delays| delays.lost).sum(),
            loss: self.loss.clone(),
        }
    }
}
