//! Costs of each way to choose ports: log lines, ports set aside, refused sessions, and ports to
//! guess among. Each way gets half a simulated hour of the same subscribers. docs/allocation.md
//! must have the results; NATGATE_WRITE_DOCS=1 writes them.

mod common;

use common::*;
use natgate_engine::{
    Allocation, BlockConfig, Change, Config, DeterministicConfig, Plan, PoolConfig, Prefix, Side,
    Verdict,
};
use natgate_wire::protocol;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/allocation.md");
const SUBSCRIBERS: u32 = 1024;
/// Connections of a subscriber in a day, on average.
const A_DAY: u64 = 10_000;
/// One in this many subscribers is present at a time, for `PRESENCE`.
const ABSENCE: u32 = 4;
const PRESENCE: Duration = Duration::from_secs(900);
/// Simulated time, and the part of it before counting begins.
const ALL: Duration = Duration::from_secs(3600);
const BEFORE: Duration = Duration::from_secs(1800);
const PORTS: (u16, u16) = (1024, 65_535);

/// Results of half an hour.
#[derive(Default)]
struct Figures {
    sessions: u64,
    refused: u64,
    lines: u64,
    /// Ports set aside, and the idle ones among them, summed over samples.
    set_aside: u64,
    idle: u64,
    candidates: u64,
}

/// A generator of always the same numbers.
struct Dice(u64);

impl Dice {
    /// A number from 0 to below 1.
    fn roll(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A Pareto-distributed number: at least 1, with a heavy tail.
    fn heavy(&mut self, shape: f64) -> f64 {
        (1.0 - self.roll()).powf(-1.0 / shape)
    }
}

fn with(allocation: Allocation) -> Config {
    let pool = pool("203.0.113.1", "203.0.113.8", PORTS);
    Config { pools: vec![PoolConfig { allocation: Some(allocation), ..pool }], ..config() }
}

fn blocks(size: u16, max_per_subscriber: u16) -> Allocation {
    Allocation::Block(BlockConfig { size, max_per_subscriber, ..BlockConfig::default() })
}

fn deterministic(dynamic_ports: u16) -> Allocation {
    Allocation::Deterministic(DeterministicConfig {
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 22)],
        dynamic_ports,
        ..DeterministicConfig::default()
    })
}

/// Ports that are set aside, used ones included, with `blocks` assigned blocks.
fn set_aside(config: &Config, blocks: u64, busy: u64) -> (u64, u64) {
    match config.allocation_of(&config.pools[0]) {
        Allocation::Random | Allocation::Preserve => (busy, u64::from(PORTS.1 - PORTS.0) + 1),
        Allocation::Block(block) => (blocks * u64::from(block.size), block.size.into()),
        // An attacker knows the internal port as well as the host does.
        Allocation::Address => (blocks * u64::from(u16::MAX), 1),
        Allocation::Deterministic(shares) => {
            let plan = Plan::new(shares, &config.pools[0]).unwrap();
            let each = u64::from(plan.ports_per_subscriber());
            (u64::from(SUBSCRIBERS) * each, each)
        }
    }
}

/// Half an hour of subscribers, after half an hour that is not counted.
fn simulate(config: &Config) -> Figures {
    let mut dice = Dice(1);
    let appetite: Vec<f64> = (0..SUBSCRIBERS).map(|_| dice.heavy(1.3)).collect();
    let mut below = Vec::new();
    let all = appetite.iter().fold(0.0, |sum, weight| {
        below.push(sum + weight);
        sum + weight
    });
    let mut lab = Lab::new(config);
    let (mut figures, mut assigned, mut minute, mut port) = (Figures::default(), 0_u64, 0, 0_u32);
    let mut elapsed = Duration::ZERO;
    let between = Duration::from_nanos(86_400_000_000_000 / (A_DAY * u64::from(SUBSCRIBERS)));
    while elapsed < ALL {
        let who = dice.roll() * all;
        let who = below.partition_point(|sum| *sum <= who) as u32;
        // Subscribers come and go at different times.
        let phase = PRESENCE * who / SUBSCRIBERS;
        let period = ((elapsed + phase).as_secs() / PRESENCE.as_secs()) as u32;
        let turn = (who.wrapping_mul(2_654_435_761) >> 16).wrapping_add(period);
        if !turn.is_multiple_of(ABSENCE) {
            continue;
        }
        let counted = elapsed >= BEFORE;
        let burst = dice.heavy(1.1).min(60.0) as u32;
        for _ in 0..burst {
            // Each session has a port of its own, in turn.
            port = (port + 1) % 60_000;
            let source = Ipv4Addr::from_bits((10 << 24 | 1 << 16) + who);
            let packet = udp(&format!("{source}:{}", 2000 + port), REMOTE);
            let out = lab.pass(Side::Inside, &packet).0 == Verdict::Forward(Side::Outside);
            figures.sessions += u64::from(counted);
            figures.refused += u64::from(counted && !out);
        }
        lab.wait(between * burst);
        elapsed += between * burst;
        for event in lab.events.drain(..) {
            figures.lines += match event.change {
                Change::BlockAssigned(_) => {
                    assigned += 1;
                    u64::from(counted)
                }
                Change::BlockReleased(_) => {
                    assigned -= 1;
                    u64::from(counted)
                }
                Change::MappingCreated(_) | Change::MappingRemoved(_) => u64::from(counted),
                _ => 0,
            };
        }
        if counted && elapsed.as_secs() / 60 != minute {
            minute = elapsed.as_secs() / 60;
            let usage = lab.engine.pool_usage(0, protocol::UDP);
            let busy = usage.used + usage.held;
            let (aside, candidates) = set_aside(config, assigned, busy);
            figures.set_aside += aside;
            figures.idle += aside.saturating_sub(busy);
            figures.candidates = candidates;
        }
    }
    figures
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let cut = digits.len() % 3;
    let (head, tail) = digits.split_at(cut);
    let tail = tail.as_bytes().chunks(3).map(|three| std::str::from_utf8(three).unwrap());
    Some(head).filter(|head| !head.is_empty()).into_iter().chain(tail).collect::<Vec<_>>().join(",")
}

//= test rfc6888#REQ-13
//= test rfc6888#REQ-14
//= test rfc6888#REQ-15
#[test]
fn the_document_says_what_each_scheme_costs() {
    let schemes = [
        ("`random`", Allocation::Random),
        ("`block`, 16 of 64", blocks(64, 16)),
        ("`block`, 4 of 512", blocks(512, 4)),
        ("`block`, 1 of 512", blocks(512, 1)),
        ("`deterministic`", deterministic(0)),
        ("`deterministic`, 8,064 dynamic", deterministic(8064)),
    ];
    let mut table = String::from(
        "| allocation | log lines | idle ports | refused | candidates |\n|---|---|---|---|---|\n",
    );
    let mut lines = Vec::new();
    for (name, allocation) in schemes {
        let figures = simulate(&with(allocation));
        let per_million = figures.lines * 1_000_000 / figures.sessions;
        lines.push(per_million);
        let percent = |part: u64, all: u64| 100.0 * part as f64 / all as f64;
        writeln!(
            table,
            "| {name} | {} | {:.0} % | {:.2} % | {} |",
            grouped(per_million),
            percent(figures.idle, figures.set_aside),
            percent(figures.refused, figures.sessions),
            grouped(figures.candidates),
        )
        .unwrap();
    }
    println!("{table}");
    assert!(lines[2] * 20 < lines[0], "a block stands for many mappings");
    assert_eq!(lines[4], 0, "what is computed is not logged");
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = document.split_once("<!-- figures -->\n").unwrap();
    let (found, after) = rest.split_once("<!-- end -->").unwrap();
    if std::env::var_os("NATGATE_WRITE_DOCS").is_some() {
        let text = format!("{before}<!-- figures -->\n{table}<!-- end -->{after}");
        std::fs::write(DOCUMENT, text).unwrap();
    } else {
        assert_eq!(found, table, "set NATGATE_WRITE_DOCS=1 to write docs/allocation.md");
    }
}
