//! Every structure at every number of sessions: cycles a packet.
//!
//! The structures take turns, so that disturbances of the machine affect all of them. A structure
//! that is too slow or too large for the next size stops there, and the report says so.

use super::Plan;
use super::kind::{Kind, Variant};
use super::traffic::{Traffic, Tuple};
use crate::memory::resident;
use crate::random::Random;
use crate::spread::Spread;
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Highest number of repetitions.
const MOST_RUNS: usize = 64;
/// Approximate time of a run of the linear array with a thousand sessions. It prevents a first size
/// at which the array would take days.
const LINEAR: (u64, Duration, u64) = (1000, Duration::from_millis(2), 20_000);
/// Sessions from which the memory of a structure exceeds the noise.
const WEIGHED: u64 = 64_000;

/// A structure at one number of sessions; times are processor time, nanoseconds a packet.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Size {
    /// Name of the structure.
    pub(super) structure: String,
    /// Kind of the structure, and use of batches.
    #[serde(flatten)]
    pub(super) variant: Variant,
    /// Number of sessions.
    pub(super) sessions: u64,
    /// Figure of the paper: half of the time of an outbound packet and its answer.
    pub(super) paper_ns: Figure,
    /// A packet that creates a session.
    pub(super) create_ns: Figure,
    /// The answer to a first packet.
    pub(super) answer_ns: Figure,
    /// An outbound packet of a present session, with uniform distribution.
    pub(super) found_ns: Figure,
    /// An outbound packet of a present session, by Zipf's law.
    pub(super) zipf_ns: Figure,
    /// Memory, divided by the number of sessions; `None` if there are too few sessions.
    pub(super) bytes_per_session: Option<f64>,
}

/// Repeated measurements of one figure.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figure {
    /// Mean.
    pub(super) mean: f64,
    /// Standard deviation.
    pub(super) deviation: f64,
    /// Order statistics.
    #[serde(flatten)]
    pub(super) spread: Spread,
}

impl Figure {
    fn of(values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        Self { mean, deviation, spread: Spread::of(values) }
    }
}

/// A structure that was not measured at larger sizes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stop {
    /// Name of the structure.
    pub(super) structure: String,
    /// First number of sessions without a measurement.
    pub(super) sessions: u64,
    /// Reason.
    pub(super) reason: String,
}

/// All results.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sizes {
    /// Results by size, then by structure.
    pub(super) sizes: Vec<Size>,
    /// Structures that stopped early.
    pub(super) stopped: Vec<Stop>,
}

/// Steps of the progress bar.
pub(super) fn steps(plan: &Plan) -> u64 {
    (plan.sessions.len() * Variant::all().len()) as u64
}

/// Measures all structures.
pub(super) fn measure(plan: &Plan, bar: &ProgressBar) -> Sizes {
    let mut all = Sizes::default();
    let mut entrants: Vec<Entrant> = Variant::all().into_iter().map(Entrant::new).collect();
    let mut random = Random::new(5);
    for &sessions in &plan.sessions {
        let tuples = Tuple::random(sessions, &mut random);
        entrants.retain(|entrant| match entrant.obstacle(plan, sessions) {
            Some(reason) => {
                let structure = entrant.variant.name();
                all.stopped.push(Stop { structure, sessions, reason });
                false
            }
            None => true,
        });
        let wants = |entrant: &Entrant| entrant.wants_more(plan);
        while entrants.iter().any(wants) {
            for entrant in entrants.iter_mut().filter(|entrant| wants(entrant)) {
                bar.set_message(format!("{}, {sessions} sessions", entrant.variant.name()));
                entrant.run(&tuples);
                if !wants(entrant) {
                    bar.inc(1);
                }
            }
        }
        all.sizes.extend(entrants.iter_mut().map(|entrant| entrant.finish(sessions)));
    }
    all
}

/// A structure and its results so far.
struct Entrant {
    variant: Variant,
    /// Results at the present size: create, answer, found, Zipf, nanoseconds a packet.
    runs: [Vec<f64>; 4],
    used: Duration,
    bytes: u64,
    /// The previous size: sessions, time and bytes of a run.
    before: Option<(u64, Duration, u64)>,
}

impl Entrant {
    fn new(variant: Variant) -> Self {
        Self {
            variant,
            runs: Default::default(),
            used: Duration::ZERO,
            bytes: 0,
            before: (variant.kind == Kind::Linear).then_some(LINEAR),
        }
    }

    /// Reason why the structure cannot be measured at this size.
    fn obstacle(&self, plan: &Plan, sessions: u64) -> Option<String> {
        let (before, time, bytes) = self.before?;
        let factor = sessions as f64 / before as f64;
        let slower = if self.variant.kind == Kind::Linear { factor * factor } else { factor * 1.3 };
        let seconds = time.as_secs_f64() * slower;
        let bytes = bytes as f64 * factor;
        if seconds > plan.patience.as_secs_f64() {
            return Some(format!("a run would take about {seconds:.0} s"));
        }
        let gibibytes = bytes / f64::from(1 << 30);
        (bytes > plan.memory as f64).then(|| format!("it would need about {gibibytes:.1} GiB"))
    }

    fn wants_more(&self, plan: &Plan) -> bool {
        let runs = self.runs[0].len();
        runs < plan.runs || (runs < MOST_RUNS && self.used < plan.time)
    }

    fn run(&mut self, tuples: &[Tuple]) {
        let (before, begun) = (self.runs[0].is_empty().then(resident), Instant::now());
        let mut nat = self.variant.build(tuples.len());
        let mut traffic = Traffic::new();
        let (created, externals) = traffic.create(&mut *nat, tuples);
        if let Some(before) = before {
            let own = size_of_val(&externals[..]) as u64;
            self.bytes = resident().saturating_sub(before).saturating_sub(own);
        }
        let answered = traffic.answer(&mut *nat, tuples, &externals);
        let found = traffic.find(&mut *nat, tuples, &externals);
        let zipf = traffic.find_zipf(&mut *nat, tuples, &externals);
        for (times, elapsed) in self.runs.iter_mut().zip([created, answered, found, zipf]) {
            times.push(elapsed.each());
        }
        drop(nat);
        self.used += begun.elapsed();
    }

    fn finish(&mut self, sessions: u64) -> Size {
        let [create, answer, found, zipf] = std::mem::take(&mut self.runs);
        let paper: Vec<f64> =
            create.iter().zip(&answer).map(|(out, back)| (out + back) / 2.0).collect();
        let run = std::mem::take(&mut self.used) / create.len().max(1) as u32;
        let bytes = std::mem::take(&mut self.bytes);
        self.before = Some((sessions, run, bytes));
        Size {
            structure: self.variant.name(),
            variant: self.variant,
            sessions,
            paper_ns: Figure::of(&paper),
            create_ns: Figure::of(&create),
            answer_ns: Figure::of(&answer),
            found_ns: Figure::of(&found),
            zipf_ns: Figure::of(&zipf),
            bytes_per_session: (sessions >= WEIGHED).then(|| bytes as f64 / sessions as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TARGET_SESSIONS;
    use super::*;

    #[test]
    fn mean_and_deviation_are_the_textbook_ones() {
        let figure = Figure::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(figure.mean, 5.0);
        assert!((figure.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Figure::of(&[3.0]).deviation, 0.0);
    }

    #[test]
    fn what_is_too_slow_or_too_large_stops() {
        let plan = Plan { patience: Duration::from_secs(10), memory: 1 << 20, ..Plan::quick() };
        let variant = Variant { kind: Kind::Linear, batched: false };
        let second = Duration::from_secs(1);
        let entrant =
            |bytes| Entrant { before: Some((100, second, bytes)), ..Entrant::new(variant) };
        assert_eq!(entrant(0).obstacle(&plan, 200), None);
        assert!(Entrant::new(variant).obstacle(&plan, TARGET_SESSIONS).is_some());
        assert!(entrant(0).obstacle(&plan, 400).unwrap().contains("16 s"));
        assert!(entrant(1 << 19).obstacle(&plan, 201).unwrap().contains("GiB"));
    }
}
