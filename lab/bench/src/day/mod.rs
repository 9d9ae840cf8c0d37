//! A simulated day of an ISP's subscribers through the translator, in virtual time, for every way
//! of choosing external ports: how full pools, blocks and addresses get, who is refused, how long
//! the log becomes.
//!
//! `population` is the traffic model, `scheme` what is compared, `wheel` what is to happen later,
//! `simulation` a day of one scheme, `page` the report. `README.md` beside them says what the model
//! assumes and why.

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

/// What is simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Internal addresses that subscribers have, at most [`Plan::MOST`].
    pub subscribers: u32,
    /// Hours that are counted, from five in the morning.
    pub hours: u32,
    /// Sessions that an address opens on average if somebody has it all day.
    pub sessions: u32,
    /// What everything follows from.
    pub seed: u64,
}

impl Plan {
    /// Most subscribers.
    pub const MOST: u32 = 1_000_000;

    /// Everything.
    pub fn full() -> Self {
        Self { subscribers: 100_000, hours: 24, sessions: 600, seed: 1 }
    }

    /// A few seconds of it.
    pub fn quick() -> Self {
        Self { subscribers: 1000, hours: 2, ..Self::full() }
    }

    /// Bytes that it takes at most: the largest engine's tables, and the sessions that go on.
    pub fn memory(&self) -> u64 {
        let schemes = scheme::all(self);
        let engines = schemes.iter().map(|scheme| Engine::memory(&scheme.config()));
        engines.max().unwrap_or(0)
            + u64::from(self.subscribers) * u64::from(1000 + self.sessions)
            + (1 << 26)
    }
}

/// What one scheme came to.
#[derive(Debug, Serialize)]
struct Outcome {
    scheme: String,
    /// Subscribers to an external address, and how many addresses that makes.
    sharing: u32,
    addresses: u32,
    #[serde(flatten)]
    day: Day,
    /// Seconds of processor time that it took.
    seconds: f64,
}

/// Simulates a day for every scheme, and reports as `day`. `line` tells how long an event is as a
/// line of the log, bytes.
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
