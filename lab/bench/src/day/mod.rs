//! A simulated day of an ISP's subscribers through the translator, in virtual time, for every way
//! to choose external ports. It shows the use of pools, blocks and addresses, the refusals, and the
//! size of the log.
//!
//! `population` is the traffic model, `scheme` has the compared ways, `wheel` schedules events,
//! `simulation` runs a day of one scheme, `report` writes the report. `README.md` beside these
//! files states the assumptions of the model and their reasons.

mod population;
mod report;
mod scheme;
mod simulation;
mod wheel;

use crate::clock;
use crate::report::{Report, progress};
use natgate_engine::{Engine, Event};
use serde::Serialize;
use simulation::{Day, HOURS_BEFORE, Simulation};

/// Parameters of the simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Internal addresses of subscribers, at most [`Plan::MOST`].
    pub subscribers: u32,
    /// Counted hours, from five in the morning.
    pub hours: u32,
    /// Sessions that an address opens on average if it is in use all day.
    pub sessions: u32,
    /// Seed of the simulation.
    pub seed: u64,
}

impl Plan {
    /// Highest number of subscribers.
    pub const MOST: u32 = 1_000_000;

    /// The full simulation.
    pub fn full() -> Self {
        Self { subscribers: 100_000, hours: 24, sessions: 600, seed: 1 }
    }

    /// A simulation of a few seconds.
    pub fn quick() -> Self {
        Self { subscribers: 1000, hours: 2, ..Self::full() }
    }

    /// Most bytes of memory: the largest engine's tables, and the long sessions.
    pub fn memory(&self) -> u64 {
        let schemes = scheme::all(self);
        let engines = schemes.iter().map(|scheme| Engine::memory(&scheme.config()));
        engines.max().unwrap_or(0)
            + u64::from(self.subscribers) * u64::from(1000 + self.sessions)
            + (1 << 26)
    }
}

/// Results of one scheme.
#[derive(Debug, Serialize)]
struct Outcome {
    scheme: String,
    /// Subscribers of an external address, and the number of addresses.
    sharing: u32,
    addresses: u32,
    #[serde(flatten)]
    day: Day,
    /// Processor time of the simulation, seconds.
    seconds: f64,
}

/// Simulates a day for every scheme. `line` returns the length of an event as a line of the log,
/// bytes. The report has the name `day`.
pub fn measure(plan: &Plan, line: &dyn Fn(&Event) -> usize, command: &str) -> Report {
    let schemes = scheme::all(plan);
    let bar = progress(schemes.len() as u64 * u64::from(HOURS_BEFORE + plan.hours));
    let mut outcomes = Vec::new();
    for scheme in &schemes {
        bar.set_message(scheme.name.clone());
        let run = || Simulation::new(plan, scheme, line).run(plan.hours, || bar.inc(1));
        let (time, day) = clock::time(run);
        outcomes.push(Outcome {
            scheme: scheme.name.clone(),
            sharing: scheme.sharing,
            addresses: scheme.addresses(),
            day,
            seconds: time / 1e9,
        });
    }
    bar.finish_and_clear();
    let mut report = Report::new("day", "A day of an ISP's subscribers", command);
    report::write(&mut report, plan, &outcomes);
    report
}
