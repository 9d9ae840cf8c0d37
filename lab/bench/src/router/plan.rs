//! What is measured, and for how long.

use crate::bed::{self, BackEnd, Subject, Translation};
use natgate_tester::Mix;
use std::path::PathBuf;
use std::time::Duration;

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Delay and memory, by entries.
    Delay,
    /// Highest rates.
    Throughput,
    /// Delay under load.
    Latency,
    /// Processor time.
    Processor,
    /// How fast entries are made.
    Creation,
}

impl Part {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 5] =
        [Self::Delay, Self::Throughput, Self::Latency, Self::Processor, Self::Creation];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Processor => "processor",
            Self::Creation => "creation",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts that are measured.
    pub parts: Vec<Part>,
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
            parts: Part::ALL.to_vec(),
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

    /// How many gateways are measured, or pairs of them.
    pub(super) fn steps(&self) -> u64 {
        let of = |part: &Part| match part {
            Part::Delay => self.delay_entries.len(),
            Part::Throughput => 2,
            Part::Processor => self.processor_entries.len(),
            Part::Latency | Part::Creation => 1,
        };
        self.parts.iter().map(of).sum::<usize>() as u64
    }

    pub(super) fn laid(&self, translation: Translation, flows: u32) -> bed::Plan {
        bed::Plan {
            subject: Subject::Natgate(self.back_end, translation),
            program: self.program.clone(),
            flows,
            workers: 1,
        }
    }
}
