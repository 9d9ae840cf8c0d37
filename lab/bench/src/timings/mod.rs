//! Timings: cycles of the engine's calls by the processor's counter, in this program, in the image
//! without an operating system and in a Linux guest. Also the image as a gateway, compared with a
//! masquerading Linux guest, in emulators of the same kind, with the same cards and the same
//! traffic.
//!
//! `natgate-timings` measures the engine's calls and the largest table. `guests` and `linux` have
//! the guests, `traffic` the packets, `figures` the results and `report` the report. `README.md`
//! beside this file has the paper's results and the differences to its method.

mod figures;
mod guests;
mod linux;
mod paper;
mod report;
mod traffic;

use crate::report::{Machine, Report};
use guests::{Largest, Pair};
pub use natgate_timings::{Size, Timing};

use natgate_testnet::VIRTIO;
use serde::Serialize;
use std::path::PathBuf;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Path of this program, which runs in the Linux guest, too.
    pub program: PathBuf,
    /// Absolute path of the image; `None` to measure without emulators.
    pub image: Option<PathBuf>,
    /// Directory of Debian's packages; `None` to fetch them each time.
    pub packages: Option<PathBuf>,
    /// Size of the engine's measurement.
    pub size: Size,
    /// Number of rounds over both guests.
    pub rounds: usize,
    /// Time of each count of packets and of each measurement of throughput, seconds.
    pub seconds: u32,
    /// Pings of each size, and fetched pages, in a turn.
    pub questions: u32,
    /// Payload sizes of pings, bytes.
    pub sizes: Vec<u16>,
    /// Largest TCP segments in measurements of throughput, bytes.
    pub segments: Vec<u16>,
    /// Kinds of cards, measured one after the other.
    pub cards: Vec<Card>,
    /// Memory sizes of machines whose largest table is filled, mebibytes.
    pub memories: Vec<u32>,
}

/// A kind of network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Card {
    /// The card of virtual machines.
    VirtioNet,
    /// Intel's 82540EM of 2002.
    E1000,
    /// Intel's 82574L of 2008.
    E1000e,
}

impl Card {
    const ALL: [Self; 3] = [Self::VirtioNet, Self::E1000, Self::E1000e];

    /// Its name in the emulator.
    fn device(self) -> &'static str {
        match self {
            Self::VirtioNet => VIRTIO,
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
        }
    }
}

impl Plan {
    /// A measurement that takes half an hour.
    pub fn full(program: PathBuf) -> Self {
        Self {
            program,
            image: None,
            packages: None,
            size: Size::Full,
            rounds: 3,
            seconds: 3,
            questions: 300,
            sizes: vec![64, 256, 512, 1024, 1472],
            segments: vec![88, 256, 536, 1024, 1448],
            cards: Card::ALL.to_vec(),
            memories: vec![512, 1024, 2048],
        }
    }

    /// A measurement that takes three minutes; without the image, a second.
    pub fn quick(program: PathBuf) -> Self {
        Self {
            size: Size::Quick,
            rounds: 1,
            seconds: 1,
            questions: 10,
            sizes: vec![64],
            segments: vec![1448],
            memories: vec![256],
            ..Self::full(program)
        }
    }
}

/// Timings of the engine in one place.
#[derive(Clone, Debug, Serialize)]
struct Internal {
    place: &'static str,
    timings: Vec<Timing>,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
struct Results {
    rounds: usize,
    seconds: u32,
    internal: Vec<Internal>,
    largest: Vec<Largest>,
    /// Results of the guests; empty if no emulators ran.
    guests: Vec<Pair>,
    targets: Vec<report::Target>,
    failed: Vec<String>,
}

/// Measures the engine in this program, by numbers of entries.
pub fn internal(size: Size) -> Vec<Timing> {
    let cycles_per_ns = Machine::look().cycles_per_ns();
    let entries = size.entries().iter();
    entries.map(|&entries| Timing::measure(entries, size, cycles_per_ns)).collect()
}

/// Measures, and reports the results; `command` is for the report.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let report = Report::new("timings", "Timings", command);
    let timings = internal(plan.size);
    let mut results = Results {
        rounds: plan.rounds,
        seconds: plan.seconds,
        internal: vec![Internal { place: "Linux program", timings }],
        largest: Vec::new(),
        guests: Vec::new(),
        targets: Vec::new(),
        failed: Vec::new(),
    };
    if let Some(image) = &plan.image
        && let Err(error) = guests::measure(plan, image, &mut results)
    {
        results.failed.push(error.to_string());
    }
    results.targets = report::targets(&results);
    report::write(report, &results)
}
