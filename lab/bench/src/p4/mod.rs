//! The NAT in P4, as Rust, interpreted and by DPDK's SWX, compared with natgate. Each gets equal
//! Ethernet frames, in memory and by every driver for packet I/O.
//!
//! Each is a complete forwarder between two devices: it parses, looks up, translates and routes
//! packets, and writes the next hop's hardware address. `README.md` beside this file explains the
//! method.

mod live;
mod memory;
mod report;
mod stock;
mod subject;

pub(crate) use memory::Running;
pub(crate) use subject::Subject;

use crate::bed::BackEnd;
use crate::io::Sample;
use crate::program::{With, prepare};
use crate::report::{Report, progress};
use crate::spread::Spread;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Most entries of the program's tables and of the pool here.
pub const MOST_ENTRIES: u32 = 1_000_000;

/// Most entries in measurements of the interpreter, which has ordered maps.
const MOST_INTERPRETED: u32 = 10_000;

/// Returns true if this executor is measured with `entries` entries.
fn is_fit(with: With, entries: u32) -> bool {
    with != With::Interpreter || entries <= MOST_INTERPRETED
}

/// Packet I/O of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Devices in memory, without a network.
    Memory,
    /// Cables between network namespaces, or for DPDK shared memory.
    Live(BackEnd),
}

impl Driver {
    /// All drivers of this program.
    pub fn all() -> Vec<Self> {
        let dpdk = cfg!(feature = "dpdk").then_some(BackEnd::Dpdk);
        let back_ends = [BackEnd::AfPacket, BackEnd::AfXdp].into_iter().chain(dpdk);
        std::iter::once(Self::Memory).chain(back_ends.map(Self::Live)).collect()
    }
}

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Drivers; all except memory need root.
    pub drivers: Vec<Driver>,
    /// Lengths of frames with their checksum, bytes, at least 64.
    pub frames: Vec<u16>,
    /// Numbers of flows, each with its entries; at most [`MOST_ENTRIES`].
    pub entries: Vec<u32>,
    /// Numbers of cores for measurements in memory.
    pub cores: Vec<u16>,
    /// Numbers of workers for measurements with cables.
    pub workers: Vec<u16>,
    /// Time of the measurement of each combination.
    pub time: Duration,
    /// Number of measurements of each combination with cables.
    pub rounds: u16,
    /// Path of the program whose `run` is natgate, for measurements with cables.
    pub program: PathBuf,
}

impl Plan {
    /// All sizes, in memory.
    pub fn full() -> Self {
        Self {
            drivers: vec![Driver::Memory],
            frames: vec![64, 128, 256, 512, 1024, 1280, 1518],
            entries: vec![100, 10_000, MOST_ENTRIES],
            cores: vec![1, 2],
            workers: vec![1],
            time: Duration::from_secs(1),
            rounds: 3,
            program: PathBuf::new(),
        }
    }

    /// A measurement of a few seconds.
    pub fn quick() -> Self {
        Self {
            frames: vec![64, 1518],
            entries: vec![100, 10_000],
            cores: vec![1],
            time: Duration::from_millis(50),
            rounds: 1,
            ..Self::full()
        }
    }

    fn steps(&self) -> u64 {
        let of = |driver: &Driver| match driver {
            Driver::Memory => self.cores.len() * self.entries.len() * self.frames.len() * 2,
            Driver::Live(back_end) => {
                self.workers.len() * self.entries.len() * live::subjects(*back_end).len()
            }
        };
        self.drivers.iter().map(of).sum::<usize>() as u64
    }
}

/// Direction of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Upload,
    Download,
}

/// Name of the driver without a network.
const MEMORY: &str = "memory";

// Names of subjects in the report.
const DEVICES: &str = "the devices alone";
const ENGINE: &str = "natgate's translator alone";
const NATGATE: &str = "natgate";

/// A measured combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Place {
    driver: &'static str,
    /// Number of cores in memory, of workers with cables.
    cores: u16,
    subject: &'static str,
    way: Way,
    entries: u32,
    frame: u16,
}

/// Results of a combination.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    place: Place,
    /// Nanoseconds of processor time of one packet.
    ns: Spread,
    /// Cycles of the time-stamp counter of one packet.
    cycles: f64,
    /// Packets a second of all cores' processor time, millions.
    mpps: f64,
    /// Further results of measurements with cables.
    #[serde(flatten)]
    live: Option<Live>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Live {
    /// Packets that arrived, a second of wall time.
    wall_pps: f64,
    /// Share of the wall time in which the subject used its processor.
    busy: f64,
    /// Lost share of the packets.
    loss: f64,
    /// Number of packets that arrived with wrong content.
    wrong: f64,
}

impl From<Sample> for Live {
    fn from(Sample { wall, busy, loss, wrong, .. }: Sample) -> Self {
        Self { wall_pps: wall, busy, loss, wrong }
    }
}

/// A combination whose measurement failed.
#[derive(Clone, Debug, Serialize)]
struct Failed {
    driver: &'static str,
    cores: u16,
    subject: &'static str,
    entries: u32,
    why: String,
}

/// Results, and failed measurements.
#[derive(Debug)]
struct Results {
    rows: Vec<Row>,
    failed: Vec<Failed>,
    cycles_per_ns: f64,
}

impl Results {
    fn add(&mut self, place: Place, ns: &[f64], live: Option<Live>) {
        let ns = Spread::of(ns);
        let (cycles, mpps) =
            (ns.median * self.cycles_per_ns, f64::from(place.cores) * 1e3 / ns.median);
        self.rows.push(Row { place, ns, cycles, mpps, live });
    }

    fn fail(
        &mut self,
        driver: &'static str,
        cores: u16,
        subject: &'static str,
        entries: u32,
        why: String,
    ) {
        self.failed.push(Failed { driver, cores, subject, entries, why });
    }
}

/// Measures; the report has the name `p4`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let report = Report::new("p4", "The NAT in P4 (S4)", command);
    let cycles_per_ns = report.machine().cycles_per_ns();
    prepare(plan.cores.iter().copied().max().unwrap_or(1));
    let mut results = Results { rows: Vec::new(), failed: Vec::new(), cycles_per_ns };
    let bar = progress(plan.steps());
    for driver in &plan.drivers {
        for &entries in &plan.entries {
            match driver {
                Driver::Memory => plan.cores.iter().for_each(|cores| {
                    memory::measure(plan, entries, *cores, &mut results, &bar);
                }),
                Driver::Live(back_end) => plan.workers.iter().for_each(|workers| {
                    live::measure(plan, (*back_end, *workers), entries, &mut results, &bar);
                }),
            }
        }
    }
    bar.finish_and_clear();
    report::write(report, &results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_forwards_both_ways() {
        let plan = Plan {
            frames: vec![64, 200],
            entries: vec![100],
            cores: vec![1, 2],
            time: Duration::ZERO,
            ..Plan::full()
        };
        let report = measure(&plan, "a test");
        let (json, page) = (report.json(), report.markdown());
        let of = |cores: u64| {
            let rows = json["rows"].as_array().expect("rows").iter();
            rows.filter(|row| row["cores"] == cores).count()
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // Two ways of two lengths: natgate, its translator, the devices, and the program.
        let all = 4 * (3 + With::all().count());
        let (rows, failed) = if processors > 1 { (all, 0) } else { (0, 1) };
        assert_eq!((of(1), of(2)), (all, rows));
        assert_eq!(json["failed"].as_array().map(Vec::len), Some(failed));
        for wanted in ["## In memory, 100 entries, upload", "download", "| P4 as Rust |"] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
    }

    #[test]
    fn more_cores_than_there_are_is_said() {
        let plan = Plan { entries: vec![100], cores: vec![4096], ..Plan::quick() };
        let json = measure(&plan, "a test").json();
        let why = json["failed"][0]["why"].as_str().expect("a reason");
        assert!(why.starts_with("there are ") && json["rows"] == serde_json::json!([]), "{why}");
    }
}
