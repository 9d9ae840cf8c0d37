//! Translations of IPv6 beside NAT44, in one run: NAT64 and DS-Lite with sessions; SIIT by a prefix
//! and by explicit maps, NPTv6, lw4o6 and MAP without.
//!
//! `translation` has the settings and ends of packets, `customers` those of softwires, `packet` the
//! packets, `rig` a translator with sessions and its turns, `memory` the bytes of sessions and
//! hosts, `report` the report. NAT44 is the engine's benchmark itself. `README.md` beside these
//! files explains the method.

mod customers;
mod memory;
mod packet;
mod report;
mod rig;
mod translation;

pub use memory::{Hosts64, Memory};

pub(crate) use packet::{Buffer, Ends};
pub(crate) use rig::Gateway;
pub(crate) use translation::{Session, Translation};

use crate::clock;
use crate::engine::{Bench, Mode, Plan as EnginePlan, ROUND, subscribers};
use crate::limit::Limit;
use crate::random::Random;
use crate::report::{Report, progress};
use crate::spread::Spread;
use indicatif::ProgressBar;
use report::Target;
use rig::{Rig, SWEEP_STEP};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Lowest number of rounds.
const ROUNDS: usize = 5;
/// Subscribers of NAT64 that the translator has room for by default.
const SUBSCRIBERS: u64 = 1 << 16;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of sessions, ascending.
    pub sessions: Vec<u64>,
    /// Packets in a batch, at most `Engine::MAX_BATCH`.
    pub batch: usize,
    /// Time of the measurement of one number of sessions.
    pub time: Duration,
    /// Subscribers of the table whose bytes a host are measured.
    pub subscribers: u64,
}

impl Plan {
    /// Most sessions: a host of each subscriber has at most a thousand.
    pub const MOST: u64 = SUBSCRIBERS * 1000;

    /// The full measurement.
    pub fn full() -> Self {
        Self {
            sessions: vec![1_000_000, 20_000_000],
            batch: 64,
            time: Duration::from_secs(20),
            subscribers: SUBSCRIBERS,
        }
    }

    /// A measurement of a few seconds.
    pub fn quick() -> Self {
        Self {
            sessions: vec![20_000],
            time: Duration::from_millis(200),
            subscribers: 2000,
            ..Self::full()
        }
    }

    /// Bytes of memory that the measurement takes: three engines and the lines for comparison.
    pub fn memory(&self) -> u64 {
        self.sessions.last().copied().unwrap_or(0) * 390 + (1 << 29)
    }
}

/// Time of one packet of a translation.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Translation.
    pub mode: &'static str,
    /// Direction: outbound, inbound, or batches alternately of both.
    pub way: &'static str,
    /// Nanoseconds.
    pub ns: Spread,
    /// The time divided by that of NAT44 in the same direction, round by round.
    pub to_nat44: Spread,
}

/// Figures with one number of sessions.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// Sessions of each translation.
    pub sessions: u64,
    /// Hosts inside, which have these sessions.
    pub hosts: u64,
    /// One random line of memory, read and written, of as many lines as sessions.
    pub limit_ns: Spread,
    /// Times of packets.
    pub rows: Vec<Row>,
    /// Nanoseconds of a new session of NAT44 and of NAT64.
    pub create_ns: [Spread; 2],
    /// Memory of sessions.
    pub memory: Memory,
    /// Nanoseconds of one call while the sweep of NAT64's hosts looks at mappings. Each packet of
    /// IPv6 makes a call.
    pub sweep_call_ns: f64,
    /// Calls of a sweep that look at mappings, at least.
    pub sweep_calls: u64,
}

/// Results of the experiment.
#[derive(Clone, Debug, Serialize)]
struct Results {
    batch: usize,
    sizes: Vec<Size>,
    hosts: Hosts64,
    targets: Vec<Target>,
}

/// Measures; the report has the name `ipv6`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let mut report = Report::new("ipv6", "Translations of IPv6 beside NAT44", command);
    let bar = progress(2 * plan.sessions.iter().sum::<u64>());
    let hosts = memory::hosts(plan.subscribers);
    let sizes: Vec<Size> =
        plan.sessions.iter().map(|sessions| measure_size(plan, *sessions, &bar)).collect();
    bar.finish_and_clear();
    let targets = report::targets(&sizes, &hosts);
    let results = Results { batch: plan.batch, sizes, hosts, targets };
    report::write(&mut report, &results);
    report
}

/// The subject of a round.
#[derive(Clone, Copy)]
enum Subject {
    Nat44,
    /// NAT44 with one packet in each call of the engine.
    Nat44Single,
    /// Place of the translation.
    Ipv6(usize),
    /// lw4o6 while bindings change.
    Changing,
}

/// Directions, each with its name.
const WAYS: [(Mode, &str); 3] =
    [(Mode::Outbound, "outbound"), (Mode::Inbound, "inbound"), (Mode::Mixed, "mixed")];

/// Subjects in the order of their rounds, each with the number of its direction.
fn subjects() -> Vec<(Subject, usize)> {
    let ways = |subject| (0..WAYS.len()).map(move |way| (subject, way));
    let mut subjects: Vec<(Subject, usize)> = ways(Subject::Nat44).collect();
    subjects.extend([(Subject::Nat44Single, 0), (Subject::Nat44Single, 1)]);
    subjects.extend((0..Translation::ALL.len()).flat_map(|place| ways(Subject::Ipv6(place))));
    subjects.extend(ways(Subject::Changing));
    subjects
}

fn name(subject: Subject) -> &'static str {
    match subject {
        Subject::Nat44 => "NAT44",
        Subject::Nat44Single => "NAT44, one packet a call",
        Subject::Ipv6(place) => Translation::ALL[place].name(),
        Subject::Changing => "lw4o6, 10,000 changes a second",
    }
}

/// The place of lw4o6 among the translations.
fn lw4o6() -> usize {
    let mut all = Translation::ALL.iter();
    all.position(|one| *one == Translation::Lw4o6).expect("lw4o6 is among the translations")
}

/// The rigs of all subjects.
struct Rigs {
    nat44: Bench,
    ipv6: Vec<Rig>,
    batch: usize,
}

impl Rigs {
    /// Runs a round; returns nanoseconds of processor time a packet.
    fn round(&mut self, subject: Subject, mode: Mode) -> f64 {
        self.nat44.set_batch(match subject {
            Subject::Nat44Single => 1,
            Subject::Nat44 | Subject::Ipv6(_) | Subject::Changing => self.batch,
        });
        match subject {
            Subject::Nat44 | Subject::Nat44Single => self.nat44.round(mode).cpu,
            Subject::Ipv6(place) => self.ipv6[place].round(mode),
            Subject::Changing => self.ipv6[lw4o6()].changing_round(mode),
        }
    }
}

fn measure_size(plan: &Plan, sessions: u64, bar: &ProgressBar) -> Size {
    let batch = plan.batch;
    bar.set_message(format!("making {sessions} sessions"));
    let hosts = subscribers(sessions);
    let table = memory::table(SUBSCRIBERS, hosts, 1);
    let engine = EnginePlan { sessions, batch, time: plan.time, tcp: false };
    let mut nat44 = Bench::new(&engine);
    let create44 = Spread::of(&nat44.fill(|count| bar.inc(count)));
    let nat44_bytes = nat44.resident();
    nat44.answer();
    let mut nat64 = Rig::new(Translation::Nat64, sessions, batch);
    let create64 = Spread::of(&nat64.fill(|count| bar.inc(count)));
    let nat64_bytes = nat64.resident() as f64 / sessions as f64;
    nat64.answer();
    let mut ipv6 = vec![nat64];
    for translation in &Translation::ALL[1..] {
        let mut rig = Rig::new(*translation, sessions, batch);
        if translation.is_stateful() {
            rig.fill(|_| ());
            rig.answer();
        }
        ipv6.push(rig);
    }
    let mut rigs = Rigs { nat44, ipv6, batch };
    bar.set_message("established sessions");
    let subjects = subjects();
    let mut times = vec![Vec::new(); subjects.len()];
    let mut limit = Limit::new(sessions as usize, ROUND);
    let (mut limits, mut random, begun) = (Vec::new(), Random::new(11), Instant::now());
    while begun.elapsed() < plan.time || limits.len() < ROUNDS {
        limit.prepare(&mut random);
        limits.push(clock::time(|| limit.run(batch)).0 / ROUND as f64);
        for ((subject, way), times) in subjects.iter().zip(&mut times) {
            if *way == 0 {
                // Code and branch predictors become warm.
                rigs.round(*subject, Mode::Mixed);
            }
            times.push(rigs.round(*subject, WAYS[*way].0));
        }
    }
    Size {
        sessions,
        hosts,
        limit_ns: Spread::of(&limits),
        rows: rows(&subjects, &times),
        create_ns: [create44, create64],
        memory: Memory {
            nat44_bytes_per_session: nat44_bytes,
            nat64_bytes_per_session: nat64_bytes,
            more_bytes_per_session: nat64_bytes - nat44_bytes - table as f64 / sessions as f64,
        },
        sweep_call_ns: rigs.ipv6[0].sweep(),
        sweep_calls: sessions.div_ceil(SWEEP_STEP),
    }
}

/// Rows of all subjects. The first have the times of NAT44, in each direction.
fn rows(subjects: &[(Subject, usize)], times: &[Vec<f64>]) -> Vec<Row> {
    let row = |((subject, way), all): (&(Subject, usize), &Vec<f64>)| {
        let ratios: Vec<f64> = all.iter().zip(&times[*way]).map(|(ns, base)| ns / base).collect();
        Row {
            mode: name(*subject),
            way: WAYS[*way].1,
            ns: Spread::of(all),
            to_nat44: Spread::of(&ratios),
        }
    };
    subjects.iter().zip(times).map(row).collect()
}
