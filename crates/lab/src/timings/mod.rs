//! Timings: what the engine takes by the processor's counter, in this program, in the image without
//! an operating system and in a Linux guest; and the image as a gateway beside a Linux guest that
//! masquerades, in emulators of the same kind, with the same cards and the same traffic.
//!
//! The engine's calls are measured by `natgate-timings`. Here are the guests (`guests`, `linux`),
//! what is sent through them (`traffic`) and what is told of it (`page`). `README.md` beside this
//! file says what the paper found and where ours differs.

mod guests;
mod linux;
mod page;
mod paper;
mod traffic;

use crate::report::{Machine, Report};
use crate::spread::Spread;
pub use natgate_timings::{Size, Timing};

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
}

impl Plan {
    /// What takes some minutes.
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
        }
    }

    /// What takes a minute; without the image, a second.
    pub fn quick(program: PathBuf) -> Self {
        Self {
            size: Size::Quick,
            rounds: 1,
            seconds: 1,
            questions: 10,
            sizes: vec![64],
            segments: vec![1448],
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

/// A guest as a gateway.
#[derive(Clone, Debug, Serialize)]
struct Row {
    guest: &'static str,
    /// From the emulator's start to the first packet that arrived beyond the gateway, seconds.
    first_packet_s: Spread,
    /// Packets forwarded a second, both directions together: 16 TCP connections.
    tcp_pps: Spread,
    /// The same with UDP beside it.
    mixed_pps: Spread,
    /// Which part of those was UDP.
    udp_share: f64,
    round_trips: Vec<RoundTrip>,
    /// From SYN to SYN with ACK, microseconds.
    connection_us: Spread,
    /// From the request to the answer's first byte, microseconds.
    response_us: Spread,
    throughput: Vec<Throughput>,
}

#[derive(Clone, Debug, Serialize)]
struct RoundTrip {
    /// Bytes that the ping carries.
    bytes: u16,
    us: Spread,
}

#[derive(Clone, Debug, Serialize)]
struct Throughput {
    /// Largest segment, bytes.
    segment: u16,
    mbit_s: Spread,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
struct Results {
    rounds: usize,
    seconds: u32,
    internal: Vec<Internal>,
    guests: Vec<Row>,
    /// What the Linux guest runs; empty: nothing was measured in emulators.
    kernel: String,
    targets: Vec<page::Target>,
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
        guests: Vec::new(),
        kernel: String::new(),
        targets: Vec::new(),
        failed: Vec::new(),
    };
    if let Some(image) = &plan.image
        && let Err(error) = guests::measure(plan, image, &mut results)
    {
        results.failed.push(error.to_string());
    }
    results.targets = page::targets(&results.guests);
    page::page(report, &results)
}
