//! Packet I/O: the packets a second that natgate forwards by each back end, by wall time and by
//! processor time. The comparison has the kernel's forwarding, the kernel's masquerade, forwarders
//! that do not translate, and a prototype that translates in the driver (XDP). All run over the
//! same cables in one run.
//!
//! The module `bed` has the test bed and the count of processor time. `README.md` beside this file
//! has the results.

pub(crate) mod feed;
mod report;
mod workers;

use crate::bed::{self, BackEnd, Bed, BedError, Path, Price, Subject, Translation};
use crate::report::{Report, progress};
use crate::spread::Spread;
use natgate_tester::{Mix, Way};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Allowed loss at the highest rate of a subject, as a share of the packets.
const LOSS: f64 = 0.01;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Path of the program whose `run` is natgate.
    pub program: PathBuf,
    /// Measured back ends.
    pub back_ends: Vec<BackEnd>,
    /// True if the kernel, the driver's programs and the forwarder that does not translate are
    /// measured, too.
    pub others: bool,
    /// Lengths of frames.
    pub frames: Vec<Mix>,
    /// Directions of the packets.
    pub ways: Vec<Way>,
    /// Numbers of mappings.
    pub mappings: Vec<u32>,
    /// Numbers of workers.
    pub workers: Vec<u16>,
    /// Numbers of workers that are compared with one worker without a network.
    pub together: Vec<u16>,
    /// Time of each measurement.
    pub time: Duration,
    /// Number of rounds over all measurements.
    pub rounds: usize,
}

impl Plan {
    /// A measurement that takes most of an hour.
    pub fn full(program: PathBuf) -> Self {
        let sizes = [64, 128, 256, 512, 1024, 1280, 1518];
        let mut frames: Vec<Mix> = sizes.into_iter().filter_map(|len| Mix::of(len).ok()).collect();
        frames.push(Mix::imix());
        let mut back_ends = vec![BackEnd::AfPacket, BackEnd::AfXdp];
        if cfg!(feature = "dpdk") {
            back_ends.push(BackEnd::Dpdk);
        }
        Self {
            program,
            back_ends,
            others: true,
            frames,
            ways: vec![Way::Up, Way::Down, Way::Both],
            mappings: vec![100, 10_000, 1_000_000],
            workers: vec![1],
            together: vec![2],
            time: Duration::from_secs(1),
            rounds: 3,
        }
    }

    /// A measurement that takes a minute.
    pub fn quick(program: PathBuf) -> Self {
        Self {
            frames: Mix::of(64).into_iter().chain([Mix::imix()]).collect(),
            ways: vec![Way::Up],
            mappings: vec![100, 10_000],
            time: Duration::from_millis(300),
            rounds: 1,
            ..Self::full(program)
        }
    }

    fn subjects(&self) -> Vec<(Subject, u16)> {
        let mut subjects = Vec::new();
        if self.others {
            let others = [Subject::Kernel, Subject::Masquerade];
            let driver = [Path::Forward, Path::Translate].map(Subject::Driver);
            subjects.extend(others.into_iter().chain(driver).map(|subject| (subject, 1)));
        }
        for &back_end in &self.back_ends {
            if self.others {
                subjects.push((Subject::Forwarder(back_end), 1));
            }
            let natgate = Subject::Natgate(back_end, Translation::Pool);
            subjects.extend(self.workers.iter().map(|&workers| (natgate, workers)));
        }
        subjects
    }
}

/// A measured combination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Case {
    mappings: u32,
    /// Index of the subject, the way and the frames, for sorting.
    #[serde(skip)]
    order: (usize, usize, usize),
    subject: String,
    workers: u16,
    way: &'static str,
    frames: String,
}

/// Results of one combination.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    /// Packets that arrived, a second of wall time.
    wall_pps: Spread,
    /// Packets that arrived, a second of the subject's processor time.
    cpu_pps: Spread,
    /// Share of the wall time in which the subject used its processor.
    busy: f64,
    /// Lost share of the packets.
    loss: f64,
    /// Number of packets that arrived with wrong content.
    wrong: f64,
}

/// A combination whose measurement failed.
#[derive(Clone, Debug, Serialize)]
struct Failed {
    subject: String,
    workers: u16,
    mappings: u32,
    why: String,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
struct Results {
    seconds: f64,
    rounds: usize,
    rows: Vec<Row>,
    /// Several workers compared with one, without a network.
    workers: Vec<workers::Row>,
    /// Cost of the fast path's table, by the number of flows.
    fast_path: Vec<Price>,
    failed: Vec<Failed>,
    targets: Vec<report::Target>,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Packets that arrived, a second of wall time.
    pub(crate) wall: f64,
    /// Packets that arrived, a second of the subject's processor time.
    pub(crate) cpu: f64,
    /// Share of the wall time in which the subject used its processor.
    pub(crate) busy: f64,
    /// Lost share of the packets.
    pub(crate) loss: f64,
    /// Number of packets that arrived with wrong content.
    pub(crate) wrong: f64,
}

/// Measures all combinations and reports the results; `command` is for the report.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let report = Report::new("io", "Packet I/O", command);
    let subjects = plan.subjects();
    let bar = progress((plan.rounds * plan.mappings.len() * subjects.len()) as u64);
    let mut samples: BTreeMap<Case, Vec<Sample>> = BTreeMap::new();
    let mut failed = Vec::new();
    for round in 0..plan.rounds {
        for &mappings in &plan.mappings {
            for (place, &(subject, workers)) in subjects.iter().enumerate() {
                bar.set_message(format!("{}, {mappings} mappings", subject.name()));
                let laid =
                    bed::Plan { subject, program: plan.program.clone(), flows: mappings, workers };
                let found = bed::with(&laid, |bed| {
                    one(plan, bed, mappings, &mut |case, sample| {
                        let case =
                            Case { workers, order: (case.order.0, case.order.1, place), ..case };
                        let case = Case { subject: subject.name(), ..case };
                        samples.entry(case).or_default().push(sample);
                    })
                });
                if let Err(error) = found {
                    let why = format!("round {}: {error}", round + 1);
                    failed.push(Failed { subject: subject.name(), workers, mappings, why });
                }
                bar.inc(1);
            }
        }
    }
    let mut fast_path = Vec::new();
    for &mappings in plan.mappings.iter().filter(|_| plan.others) {
        match Price::of(mappings) {
            Ok(price) => fast_path.push(price),
            Err(error) => {
                let (subject, why) = ("XDP fast path's table".into(), error.to_string());
                failed.push(Failed { subject, workers: 1, mappings, why });
            }
        }
    }
    bar.set_message("workers without a network");
    let workers = together(plan, &mut failed);
    bar.finish_and_clear();
    let rows: Vec<Row> = samples.into_iter().map(|(case, samples)| row(case, &samples)).collect();
    let targets = report::targets(&rows, &workers);
    let (seconds, rounds) = (plan.time.as_secs_f64(), plan.rounds);
    report::write(report, &Results { seconds, rounds, rows, workers, fast_path, failed, targets })
}

/// Measures several workers without a network, up to the number of processors.
fn together(plan: &Plan, failed: &mut Vec<Failed>) -> Vec<workers::Row> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mappings = plan.mappings.iter().copied().max().unwrap_or(100);
    let time = plan.time * plan.rounds as u32;
    let mut rows = Vec::new();
    for &workers in &plan.together {
        if usize::from(workers) > processors {
            let why = format!("there are {processors} processors");
            failed.push(Failed { subject: "without a network".into(), workers, mappings, why });
            continue;
        }
        rows.extend(
            [true, false].map(|steered| workers::measure(workers, mappings, steered, time)),
        );
    }
    rows
}

/// Measures a running subject with all lengths and ways.
fn one(
    plan: &Plan,
    bed: &mut Bed<'_>,
    mappings: u32,
    found: &mut (dyn FnMut(Case, Sample) + Send),
) -> Result<(), BedError> {
    bed.tester.establish(mappings)?;
    for (frames_at, frames) in plan.frames.iter().enumerate() {
        for (way_at, &way) in plan.ways.iter().enumerate() {
            let case = Case {
                mappings,
                order: (way_at, frames_at, 0),
                subject: String::new(),
                workers: 1,
                way: way_name(way),
                frames: frames.name(),
            };
            found(case, sample(bed, plan.time, frames, way)?);
        }
    }
    Ok(())
}

/// Measures once, at the highest rate that the subject can take.
pub(crate) fn sample(
    bed: &mut Bed<'_>,
    duration: Duration,
    frames: &Mix,
    way: Way,
) -> Result<Sample, BedError> {
    let stream = bed.stream(frames, way)?;
    let rate = match bed.interfaces {
        Some(_) => Some(bed.capacity(&stream, LOSS)?.rate),
        // This subject does no work for packets that it then loses.
        None => None,
    };
    let found = bed.send(&stream, rate, duration)?;
    let time = found.spent.as_secs_f64();
    Ok(Sample {
        wall: found.rate(),
        cpu: found.delivered as f64 / time.max(1e-9),
        busy: time / found.elapsed.as_secs_f64(),
        loss: found.loss(),
        wrong: found.wrong as f64,
    })
}

fn row(case: Case, samples: &[Sample]) -> Row {
    let spread = |of: fn(&Sample) -> f64| Spread::of(&samples.iter().map(of).collect::<Vec<_>>());
    Row {
        case,
        wall_pps: spread(|sample| sample.wall),
        cpu_pps: spread(|sample| sample.cpu),
        busy: spread(|sample| sample.busy).median,
        loss: spread(|sample| sample.loss).median,
        wrong: spread(|sample| sample.wrong).max,
    }
}

fn way_name(way: Way) -> &'static str {
    match way {
        Way::Up => "up",
        Way::Down => "down",
        Way::Both => "both",
    }
}
