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
use chain::{Chain, Outcome, RING, Stream, Until};
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
    /// A measurement that takes an hour.
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
        const EACH: u64 = 64;
        let line = LINE / (8.0 * f64::from(SIZES[0] + BETWEEN));
        (1 << 30) + 2 * self.stream(line).count * EACH
    }

    /// A stream at a rate of each side.
    fn stream(&self, rate: f64) -> Stream {
        Stream::new(rate, self.trial.as_secs_f64(), self.least_frames())
    }

    /// Least number of frames of each side in a stream. At a rate above the capacity by a share `e`
    /// of the rate, a stream of `n` frames leaves a backlog of `n * e` frames. A ring hides up to
    /// [`RING`] of them, so with `n = 2 * RING / precision` the hidden share is at most half the
    /// precision. Half of the frames come late enough to be tagged.
    fn least_frames(&self) -> u64 {
        ((2 * RING) as f64 / self.precision).ceil().max(2.0 * TAGGED as f64) as u64
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
    /// Frames with a wrong translation, in all streams of the row. Each counts as lost, too.
    pub wrong: u64,
    /// Loss by offered rate.
    pub loss: Vec<Loss>,
}

#[derive(Clone, Debug, Serialize)]
struct Results {
    trial_seconds: f64,
    repetitions: u32,
    flows: u32,
    ring: usize,
    least_frames: u64,
    line_bits_per_second: f64,
    rows: Vec<Row>,
    /// Technologies and rows that could not be measured, and why.
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
    failed.extend(subjects.iter().flat_map(Subject::failures));
    let results = Results {
        trial_seconds: plan.trial.as_secs_f64(),
        repetitions: plan.repetitions,
        flows: plan.flows,
        ring: RING,
        least_frames: plan.least_frames(),
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
    wrong: u64,
    /// Reason why it cannot be measured.
    failure: Option<String>,
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
            wrong: 0,
            failure: None,
        };
        let cases = plan.cases(technology).into_iter().map(case).collect();
        Ok(Self { technology, chain, tester, cases })
    }

    /// Measures throughput, and delays at this rate, with all frames.
    fn repeat(&mut self, plan: &Plan) {
        let Self { chain, tester, cases, .. } = self;
        for case in cases.iter_mut().filter(|case| case.failure.is_none()) {
            tester.prepare(case.payload, case.share);
            case.repeat(plan, |stream, until| chain.trial(tester, stream, until));
        }
    }

    /// Measures loss: from the line rate down by a tenth of it, until two rates lose nothing.
    fn measure_loss(&mut self, plan: &Plan) {
        let Self { chain, tester, cases, .. } = self;
        for case in cases.iter_mut().filter(|case| case.failure.is_none()) {
            tester.prepare(case.payload, case.share);
            for offered_percent in (10..=100).rev().step_by(10) {
                let rate = case.line * f64::from(offered_percent) / 100.0;
                let outcome = chain.trial(tester, plan.stream(rate), Until::End);
                case.wrong += outcome.wrong;
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

    /// Sentences about the rows that could not be measured.
    fn failures(&self) -> impl Iterator<Item = String> {
        let name = self.technology.name();
        self.cases.iter().filter_map(move |case| {
            let (frame, share, why) = (case.frame, case.share, case.failure.as_ref()?);
            Some(format!("{name}, {frame} bytes, {share} % foreground: {why}"))
        })
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        let measured = self.cases.iter().filter(|case| case.failure.is_none());
        measured.map(|case| case.row(self.technology, &self.tester))
    }
}

impl Case {
    /// Measures throughput and delays once, with streams that `trial` sends.
    fn repeat(&mut self, plan: &Plan, mut trial: impl FnMut(Stream, Until) -> Outcome) {
        let mut wrong = 0;
        let mut send = |stream, until| {
            let outcome = trial(stream, until);
            wrong += outcome.wrong;
            outcome
        };
        let count = SATURATING.min(plan.stream(self.line).count);
        let Outcome { received, time, .. } = send(Stream { count, gap: 0 }, Until::End);
        if received == 0 {
            self.wrong += wrong;
            self.failure = Some("no frame arrives as it should".into());
            return;
        }
        let fastest = received as f64 / 2.0 / time as f64 * 1e9;
        let mut passes = |rate| send(plan.stream(rate), Until::Loss).lost() == 0;
        let rate = highest(self.line, MARGIN * fastest, plan.precision, &mut passes);
        self.throughput.push(2.0 * rate);
        if rate > 0.0 {
            let stream = plan.stream(rate);
            let outcome = send(stream, Until::End);
            self.delays.push(Delays::of(&outcome, stream.count, TAGGED));
        }
        self.wrong += wrong;
    }

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
            wrong: self.wrong,
            loss: self.loss.clone(),
        }
    }
}

/// Returns the highest rate that passes, at most `line`. Doubles `first` while it passes, then
/// searches to a share `precision` of the first rate that fails.
fn highest(line: f64, first: f64, precision: f64, mut passes: impl FnMut(f64) -> bool) -> f64 {
    let mut high = first.min(line);
    loop {
        let rate = search::highest(high, precision, &mut passes);
        if rate < high || high >= line {
            return rate;
        }
        high = (2.0 * high).min(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_rate_that_passes_is_no_limit() {
        for (capacity, wanted) in [(1e6, 1e6), (7e6, 7e6), (2e7, 1e7), (1e3, 1e3)] {
            let found = highest(1e7, 2e3, 0.01, |rate| rate <= capacity);
            assert!((0.97..=1.0).contains(&(found / wanted)), "{capacity}: {found}");
        }
        assert_eq!(highest(1e7, 2e3, 0.01, |_| false), 0.0);
    }

    #[test]
    fn a_ring_hides_half_the_precision_at_most() {
        for plan in [Plan::full(), Plan::quick()] {
            let capacity = 1e6;
            for excess in [0.6 * plan.precision, plan.precision] {
                let rate = capacity / (1.0 - excess);
                let backlog = plan.stream(rate).count as f64 * excess;
                assert!(backlog > RING as f64, "{backlog} frames at {rate}");
            }
        }
    }

    #[test]
    fn a_row_without_arrivals_fails_and_is_skipped() {
        let plan = Plan { sizes: vec![64], flows: 10, repetitions: 1, ..Plan::quick() };
        let mut subject = Subject::new(Technology::Siit, &plan).expect("it translates");
        // Frames from outside have no mapping, and those from inside no source that may be.
        subject.chain = Chain::new(Technology::Nat64);
        subject.repeat(&plan);
        subject.measure_loss(&plan);
        let failures: Vec<_> = subject.failures().collect();
        let wanted = ", 84 bytes, 100 % foreground: no frame arrives as it should";
        assert!(failures.len() == 1 && failures[0].ends_with(wanted), "{failures:?}");
        let rows: Vec<_> = subject.rows().collect();
        assert!(rows.iter().all(|row| row.foreground_percent < 100), "{rows:?}");
        assert!(rows.len() == 3 && rows.iter().all(|row| row.throughput.median == 0.0));
        assert!(rows.iter().all(|row| row.typical_latency_us.runs == 0));

        // Every frame is wrong but one, so none of the rates passes.
        let case = &mut subject.cases[1];
        case.wrong = 0;
        let mut trials = 0;
        case.repeat(&plan, |stream, _| {
            trials += 1;
            let sent = 2 * stream.count;
            Outcome { sent, received: 1, wrong: sent - 1, time: 1000, ..Outcome::default() }
        });
        assert!(trials > 1 && case.wrong > trials, "{trials} trials, {}", case.wrong);
        assert_eq!(case.throughput.last(), Some(&0.0));
    }
}
