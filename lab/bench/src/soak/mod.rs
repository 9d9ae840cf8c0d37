//! The soak test: a table as large as memory permits, a random hour of virtual time over it, and a
//! check of the engine's invariants at every step.
//!
//! The program creates sessions until the table is full and beyond, then sends packets of all
//! kinds, while hours of virtual time pass in minutes. A [`Shadow`] keeps the content of the
//! engine's events in some bits for each mapping. Every packet that comes out is checked against
//! it. At intervals the whole table, the pools and the sessions are checked. The model's own tests
//! compare the engine with the model, packet by packet; a table of this size would not fit into the
//! model's maps.

mod shadow;
mod traffic;

use crate::clock;
use crate::report::{Report, Table, progress};
use natgate_engine::{
    AddressRange, Config, Engine, Limits, Packet, PoolConfig, Side, Timestamp, Verdict,
};
use serde::Serialize;
use shadow::Shadow;
use std::net::Ipv4Addr;
use traffic::{Kind, Traffic, Universe};

/// Duration of the test, virtual nanoseconds.
const HOUR: u64 = 3600 * 1_000_000_000;
/// Packets in a batch.
const BATCH: usize = 64;
/// Number of checks of the whole table.
const LOOKS: u64 = 6;
/// Mappings of an external address in a full table.
const MAPPINGS_PER_ADDRESS: u64 = 100_000;
const POOL: u32 = 0xc613_0000;
const PORTS: (u16, u16) = (1024, 65_535);

/// Parameters of the test.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Mappings in the table.
    pub mappings: u64,
    /// Packets of the hour.
    pub packets: u64,
    /// Seed of the traffic.
    pub seed: u64,
}

impl Plan {
    /// Bytes of memory that the test takes.
    pub fn memory(&self) -> u64 {
        self.mappings * 120 + (1 << 28)
    }

    /// Largest table in `memory` bytes, at most as large as S1's.
    pub fn mappings_in(memory: u64) -> u64 {
        (memory.saturating_sub(1 << 28) / 120).clamp(10_000, 65_500_000)
    }
}

/// Results of a test without a broken invariant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// Seed of the traffic.
    pub seed: u64,
    /// Room for mappings.
    pub room: u64,
    /// Highest number of mappings at a time.
    pub most: u64,
    /// Mappings at the end of the hour.
    pub left: u64,
    /// Number of created mappings.
    pub made: u64,
    /// Number of removed mappings.
    pub removed: u64,
    /// Packets given to the engine.
    pub packets: u64,
    /// Forwarded packets.
    pub forwarded: u64,
    /// Checks of the whole table; each covers every mapping, session and port.
    pub looks: u64,
    /// Seconds of processor time.
    pub seconds: f64,
}

/// Runs the test.
///
/// # Errors
/// The broken invariant, in a sentence with the seed.
pub fn run(plan: &Plan) -> Result<Results, String> {
    let (time, results) = clock::time(|| Soak::new(plan).run(plan));
    match results {
        Ok(results) => Ok(Results { seconds: time / 1e9, ..results }),
        Err(broken) => Err(format!("{broken} (seed {})", plan.seed)),
    }
}

/// Report of the results; `command` is the command of the test.
pub fn report(results: &Results, command: &str) -> Report {
    let mut report = Report::new("soak", "An hour over a big table", command);
    report.data(results);
    report.text("Every promise was kept.");
    let number = |number: u64| crate::engine::grouped(number);
    report.table(
        Table::new(["", ""])
            .row(["seed", &results.seed.to_string()])
            .row(["room for mappings", &number(results.room)])
            .row(["most at a time", &number(results.most)])
            .row(["at the end of the hour", &number(results.left)])
            .row(["made", &number(results.made)])
            .row(["removed", &number(results.removed)])
            .row(["packets", &number(results.packets)])
            .row(["forwarded", &number(results.forwarded)])
            .row(["looks at everything", &number(results.looks)])
            .row(["processor time, s", &format!("{:.0}", results.seconds)]),
    );
    report
}

struct Soak {
    engine: Engine,
    shadow: Shadow,
    traffic: Traffic,
    now: u64,
    /// Buffer for packets of the engine's own.
    buffer: Vec<u8>,
    results: Results,
}

impl Soak {
    fn new(plan: &Plan) -> Self {
        let universe = Universe::new(plan.mappings + plan.mappings / 8);
        let config = config(plan.mappings, universe);
        let engine = Engine::new(&config, [60; 32], Timestamp(0))
            .expect("the laboratory's configuration can be run");
        let results = Results { seed: plan.seed, room: plan.mappings, ..Results::default() };
        Self {
            engine,
            shadow: Shadow::new(config, universe),
            traffic: Traffic::new(universe, plan.seed),
            now: 0,
            buffer: vec![0; 65_535],
            results,
        }
    }

    fn run(mut self, plan: &Plan) -> Result<Results, String> {
        let rounds = plan.packets.div_ceil(BATCH as u64);
        let fill = self.traffic.universe().sessions().div_ceil(BATCH as u64);
        let bar = progress(rounds + fill);
        bar.set_message("filling the table");
        // The table fills within seconds, so that no mapping has expired when the hour begins.
        for round in 0..fill {
            self.now += 1_000;
            let first = round * BATCH as u64;
            self.turn(Kind::Create(first))?;
            bar.inc(1);
        }
        self.look()?;
        bar.set_message("an hour passes");
        let start = self.now;
        for round in 0..rounds {
            let passed = (u128::from(HOUR) * u128::from(round) / u128::from(rounds)) as u64;
            self.now = self.now.max(start + self.traffic.jitter(passed));
            let kind = self.traffic.kind();
            self.turn(kind)?;
            if (round + 1) % rounds.div_ceil(LOOKS) == 0 {
                self.look()?;
            }
            bar.inc(1);
        }
        self.results.left = self.shadow.live();
        // At the end all mappings must expire, and every port must be free again.
        self.now += 3 * HOUR;
        self.advance()?;
        self.look()?;
        bar.finish_and_clear();
        if self.shadow.live() > 0 {
            return Err(format!("{} mappings never expired", self.shadow.live()));
        }
        Ok(self.results)
    }

    fn advance(&mut self) -> Result<(), String> {
        while self.engine.advance(Timestamp(self.now)) {
            self.drain()?;
        }
        self.drain()
    }

    /// Sends a batch of one kind, and checks the packets that come out.
    fn turn(&mut self, kind: Kind) -> Result<(), String> {
        self.advance()?;
        let now = Timestamp(self.now);
        self.traffic.write(kind, &self.shadow, BATCH);
        let mut verdicts = [Verdict::Held; BATCH];
        let mut packets: Vec<Packet<'_>> =
            self.traffic.buffers().map(|buffer| Packet::new(buffer, 0)).collect();
        self.engine.process(now, kind.from(), &mut packets, &mut verdicts);
        drop(packets);
        self.drain()?;
        self.results.packets += BATCH as u64;
        for (sent, verdict) in self.traffic.sent().zip(verdicts) {
            self.results.forwarded += u64::from(matches!(verdict, Verdict::Forward(_)));
            self.shadow.check(&sent, verdict)?;
        }
        Ok(())
    }

    /// Takes events and packets.
    fn drain(&mut self) -> Result<(), String> {
        while let Some(event) = self.engine.poll_event() {
            if event.time > Timestamp(self.now) {
                return Err(format!("{event:?} lies in the future"));
            }
            self.shadow.note(&event.change)?;
        }
        while self.engine.poll_transmit(&mut self.buffer).is_some() {}
        self.results.most = self.results.most.max(self.shadow.live());
        (self.results.made, self.results.removed) = self.shadow.changes();
        Ok(())
    }

    fn look(&mut self) -> Result<(), String> {
        self.results.looks += 1;
        self.shadow.look(&self.engine, Timestamp(self.now))
    }
}

fn config(mappings: u64, universe: Universe) -> Config {
    let addresses = mappings.div_ceil(MAPPINGS_PER_ADDRESS).max(2) as u32;
    let range = AddressRange {
        first: Ipv4Addr::from_bits(POOL),
        last: Ipv4Addr::from_bits(POOL + addresses - 1),
    };
    // A little less than a subscriber's mappings if all sessions existed.
    let quota = (universe.sessions() / 2 / universe.subscribers() * 15 / 16) as u32;
    Config {
        pools: vec![PoolConfig {
            name: "default".into(),
            addresses: vec![range],
            ports: PORTS,
            ..PoolConfig::default()
        }],
        limits: Limits {
            new_mappings_per_second: 1_000_000,
            mappings: Some(mappings as u32),
            // Every mapping must last for its timeout, answered or not.
            unanswered_give_way: false,
            tcp_ports: quota,
            udp_ports: quota,
            ..Limits::default()
        },
        ..Config::default()
    }
}

/// Verdict of a packet that is forwarded.
fn out_of(from: Side) -> Verdict {
    Verdict::Forward(from.other())
}
