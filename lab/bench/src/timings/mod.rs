//! Timings: what the engine takes by the processor's counter, in this program, in the image without
//! an operating system and in a Linux guest; and the image as a gateway beside a Linux guest that
//! masquerades, in emulators of the same kind, with the same cards and the same traffic.
//!
//! The engine's calls, and the largest table, are measured by `natgate-timings`. Here are the
//! guests (`guests`, `linux`), what is sent through them (`traffic`), what both come to (`figures`)
//! and what is told of it (`page`). `README.md` beside this file says what the paper found and
//! where ours differs.

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

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// This program, which is run in the Linux guest, too.
    pub program: PathBuf,
    /// The image's whole path; `None`: nothing is measured in emulators.
    pub image: Option<PathBuf>,
    /// Where Debian's packages are kept; `None`: they are fetched each time.
    pub packages: Option<PathBuf>,
    /// How much is measured of the engine.
    pub size: Size,
    /// How often both guests have their turn.
    pub rounds: usize,
    /// How long packets are counted, and each throughput is measured, seconds.
    pub seconds: u32,
    /// Pings of each size, and pages that are fetched, in a turn.
    pub questions: u32,
    /// Bytes that pings carry.
    pub sizes: Vec<u16>,
    /// TCP segments, bytes, when throughput is measured.
    pub segments: Vec<u16>,
    /// The guests' cards, one kind after the other.
    pub cards: Vec<Card>,
    /// Mebibytes of machines whose largest table is filled.
    pub memories: Vec<u32>,
}

/// A kind of network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Card {
    /// That of virtual machines.
    VirtioNet,
    /// Intel's 82540EM, of 2002.
    E1000,
    /// Intel's 82574L, of 2008.
    E1000e,
}

impl Card {
    const ALL: [Self; 3] = [Self::VirtioNet, Self::E1000, Self::E1000e];

    /// What the emulator calls it.
    fn device(self) -> &'static str {
        match self {
            Self::VirtioNet => VIRTIO,
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
        }
    }
}

impl Plan {
    /// What takes half an hour.
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

    /// What takes three minutes; without the image, a second.
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

/// What the engine takes somewhere.
#[derive(Clone, Debug, Serialize)]
struct Internal {
    place: &'static str,
    timings: Vec<Timing>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
struct Results {
    rounds: usize,
    seconds: u32,
    internal: Vec<Internal>,
    largest: Vec<Largest>,
    /// Empty: nothing was measured in emulators.
    guests: Vec<Pair>,
    targets: Vec<report::Target>,
    failed: Vec<String>,
}

/// Measures what the engine takes here, by numbers of entries.
pub fn internal(size: Size) -> Vec<Timing> {
    let cycles_per_ns = Machine::look().cycles_per_ns();
    let entries = size.entries().iter();
    entries.map(|&entries| Timing::measure(entries, size, cycles_per_ns)).collect()
}

/// Measures, and tells what came out; `command` is for the report.
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
