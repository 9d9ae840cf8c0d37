//! Parts and duration of the measurement.

use crate::bed::{self, BackEnd, Subject, Translation};
use natgate_tester::Mix;
use std::path::PathBuf;
use std::time::Duration;

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Delay in one process, by entries.
    Transit,
    /// Delay over cables, and memory, by entries.
    Delay,
    /// Highest rates.
    Throughput,
    /// Delay under load.
    Latency,
    /// Processor time.
    Processor,
    /// Rate of new entries.
    Creation,
}

impl Part {
    /// All parts, in the order of their measurement.
    pub const ALL: [Self; 6] = [
        Self::Transit,
        Self::Delay,
        Self::Throughput,
        Self::Latency,
        Self::Processor,
        Self::Creation,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transit => "transit",
            Self::Delay => "delay",
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Processor => "processor",
            Self::Creation => "creation",
        }
    }
}

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Measured parts.
    pub parts: Vec<Part>,
    /// Path of the program whose `run` is natgate.
    pub program: PathBuf,
    /// Packet I/O of the gateway.
    pub back_end: BackEnd,
    /// Numbers of entries in measurements of delay; 0 stands for a router without NAT.
    pub delay_entries: Vec<u32>,
    /// Number of entries in measurements of throughput and latency.
    pub entries: u32,
    /// Numbers of entries in measurements of processor time.
    pub processor_entries: Vec<u32>,
    /// Number of entries in the table that is filled.
    pub fill: u32,
    /// Lengths of frames in measurements of throughput and processor time.
    pub frames: Vec<Mix>,
    /// Packets a second in measurements of delay.
    pub delay_rate: f64,
    /// Time of a trial: one step of a search, or one measurement of delay.
    pub trial: Duration,
    /// Repetitions of measurements of delay and latency; throughput has half as many.
    pub turns: u32,
    /// Trials of one rate in the search for throughput; the majority decides.
    pub trials: u32,
    /// Rest between trials.
    pub rest: Duration,
}

impl Plan {
    /// A measurement that takes three quarters of an hour.
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
            trial: Duration::from_millis(200),
            turns: 20,
            trials: 1,
            rest: Duration::from_millis(50),
        }
    }

    /// A measurement that takes a minute.
    pub fn quick(program: PathBuf) -> Self {
        Self {
            delay_entries: vec![0, 1, 2_000],
            processor_entries: vec![1_000],
            fill: 20_000,
            frames: Mix::of(64).into_iter().collect(),
            trial: Duration::from_millis(100),
            turns: 2,
            rest: Duration::ZERO,
            ..Self::full(program)
        }
    }

    /// Number of steps of the progress bar.
    pub(super) fn steps(&self) -> u64 {
        let of = |part: &Part| match part {
            Part::Delay => self.turns as usize,
            Part::Throughput => self.turns.div_ceil(2) as usize,
            Part::Processor => self.processor_entries.len(),
            Part::Transit | Part::Latency | Part::Creation => 1,
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
