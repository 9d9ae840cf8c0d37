//! The measurements: every finder, at every number of rules, with both sorts of rules.
//!
//! All finders must find the same rules; otherwise the experiment ends.

use super::linear::Linear;
use super::natgate::Natgate;
use super::qns::Qns;
use super::workload::{Sort, packets};
use super::{BATCH, Finder, MOST_LINEAR, Plan, Source};
use crate::clock;
use crate::random::Random;
use crate::spread::Spread;
use indicatif::ProgressBar;
use natgate_engine::{AddressRange, Config, Engine, PoolConfig, Rule, RuleSet, Timestamp};
use serde::Serialize;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

/// Packets of a few conversations, for a warm cache.
const FEW: usize = 256;
/// Packets of random rules.
const MANY: usize = 1 << 17;
/// Packets of random rules for the linear search, which is slow enough.
const MANY_LINEAR: usize = 1 << 10;
/// Number of batches with a cold cache.
const COLD_BATCHES: usize = 64;
const MOST_RUNS: usize = 64;
/// Size of the other memory between cold batches, in multiples of the second-level cache.
const OTHER_MEMORY: u64 = 8;

/// Results of one finder at one number of rules; nanoseconds a packet.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Size {
    /// Name of the finder.
    pub(super) finder: &'static str,
    /// True if the searches of a batch run together.
    pub(super) batched: bool,
    /// The sort of rules.
    pub(super) sort: Sort,
    /// Number of rules.
    pub(super) rules: u64,
    /// Packets of a few conversations, repeated.
    pub(super) warm_ns: Spread,
    /// Packets of random rules.
    pub(super) spread_ns: Spread,
    /// Packets of random rules, after other work has used the processor's caches.
    pub(super) cold_ns: Spread,
}

/// Cost of loading the rules.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Load {
    /// Name of the finder.
    pub(super) finder: &'static str,
    /// The sort of rules.
    pub(super) sort: Sort,
    /// Number of rules.
    pub(super) rules: u64,
    /// Time to load the rules, milliseconds.
    pub(super) load_ms: f64,
    /// Memory, divided by the number of rules.
    pub(super) bytes_per_rule: f64,
}

/// All results.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Results {
    /// Results by sort, then by number of rules, then by finder.
    pub(super) sizes: Vec<Size>,
    /// Costs of loading, in the same order.
    pub(super) loads: Vec<Load>,
    /// Time to replace the rules of a running engine by the largest set, microseconds.
    pub(super) replace_us: Option<Spread>,
}

/// Steps of the progress bar.
pub(super) fn steps(plan: &Plan) -> u64 {
    (plan.rules.len() * Sort::ALL.len()) as u64
}

/// Measures; `own_cache` is the size of the processor's second-level cache, bytes.
pub(super) fn measure(plan: &Plan, own_cache: u64, bar: &ProgressBar) -> Results {
    let mut bench = Bench {
        plan,
        other: vec![1; (own_cache * OTHER_MEMORY) as usize],
        random: Random::new(7),
        results: Results::default(),
    };
    for sort in Sort::ALL {
        for &count in &plan.rules {
            bar.set_message(format!("{count} rules, {}", sort.name()));
            let rules = sort.rules(count, &mut bench.random);
            bench.size(sort, &rules);
            bar.inc(1);
        }
    }
    bench.results
}

/// A set of rules, and the packets of its searches.
struct Case<'a> {
    sort: Sort,
    rules: &'a [Rule],
    few: Vec<Source>,
    many: Vec<Source>,
    /// Results of QNS for the first packets.
    expected: Vec<Option<u32>>,
}

struct Bench<'a> {
    plan: &'a Plan,
    /// Memory of other work of the processor.
    other: Vec<u8>,
    random: Random,
    results: Results,
}

impl Bench<'_> {
    fn size(&mut self, sort: Sort, rules: &[Rule]) {
        let few = packets(rules, FEW, &mut self.random);
        let many = packets(rules, MANY, &mut self.random);
        let qns = Qns::build(rules);
        let expected = many[..MANY_LINEAR].iter().map(|&source| qns.find(source)).collect();
        drop(qns);
        let mut case = Case { sort, rules, few, many, expected };
        self.finder::<Qns>("QNS", &case);
        self.finder::<Natgate>("natgate", &case);
        let set = RuleSet::new(rules).expect("no two rules match the same");
        self.results.replace_us = Some(replace(&set, self.plan.runs));
        case.many.truncate(MANY_LINEAR);
        if rules.len() as u64 <= MOST_LINEAR {
            self.finder::<Linear>("linear", &case);
        }
    }

    fn finder<F: Finder>(&mut self, name: &'static str, case: &Case<'_>) {
        let (load_ns, finder) = clock::time(|| F::build(case.rules));
        let rules = case.rules.len() as u64;
        self.results.loads.push(Load {
            finder: name,
            sort: case.sort,
            rules,
            load_ms: load_ns / 1e6,
            bytes_per_rule: finder.bytes() as f64 / rules as f64,
        });
        check(&finder, name, case);
        let ways = [Some(false), F::BATCHED.then_some(true)];
        for batched in ways.into_iter().flatten() {
            let spread = |packets: &[Source]| match batched {
                false => self.repeat(packets, |packets| one_by_one(&finder, packets)),
                true => self.repeat(packets, |packets| in_batches(&finder, packets)),
            };
            let (warm_ns, spread_ns) = (spread(&case.few), spread(&case.many));
            let cold_ns = match batched {
                false => self.cold(&case.many, |packets| one_by_one(&finder, packets)),
                true => self.cold(&case.many, |packets| in_batches(&finder, packets)),
            };
            let sort = case.sort;
            let size = Size { finder: name, batched, sort, rules, warm_ns, spread_ns, cold_ns };
            self.results.sizes.push(size);
        }
    }

    /// Nanoseconds of processor time of one packet, over passes of some thousand packets.
    fn repeat(&self, packets: &[Source], search: impl Fn(&[Source])) -> Spread {
        let passes = (MANY_LINEAR / packets.len()).max(1);
        let begun = Instant::now();
        let mut figures = Vec::new();
        search(packets);
        while figures.len() < self.plan.runs
            || figures.len() < MOST_RUNS && begun.elapsed() < self.plan.time
        {
            let (nanoseconds, ()) = clock::time(|| (0..passes).for_each(|_| search(packets)));
            figures.push(nanoseconds / (passes * packets.len()) as f64);
        }
        Spread::of(&figures)
    }

    /// Nanoseconds a packet of single batches, each after a pass over other memory.
    fn cold(&mut self, packets: &[Source], search: impl Fn(&[Source])) -> Spread {
        let mut figures = Vec::new();
        for packets in packets.chunks_exact(BATCH).take(COLD_BATCHES) {
            for line in self.other.chunks_mut(64) {
                line[0] = line[0].wrapping_add(1);
            }
            black_box(&mut self.other);
            // Reading the thread's clock takes as long as the batch.
            let begun = Instant::now();
            search(packets);
            figures.push(begun.elapsed().as_nanos() as f64 / packets.len() as f64);
        }
        Spread::of(&figures)
    }
}

fn one_by_one<F: Finder>(finder: &F, packets: &[Source]) {
    let mut sum = 0_u32;
    for &source in packets {
        sum = sum.wrapping_add(finder.find(source).unwrap_or(0));
    }
    black_box(sum);
}

fn in_batches<F: Finder>(finder: &F, packets: &[Source]) {
    for sources in packets.chunks(BATCH) {
        let mut pools = [None; BATCH];
        finder.find_batch(sources, &mut pools);
        black_box(&mut pools);
    }
}

fn check<F: Finder>(finder: &F, name: &str, case: &Case<'_>) {
    for (sources, expected) in case.many.chunks(BATCH).zip(case.expected.chunks(BATCH)) {
        let mut pools = [None; BATCH];
        finder.find_batch(sources, &mut pools);
        assert_eq!(&pools[..expected.len()], expected, "{name} finds other rules than QNS");
    }
}

/// Microseconds to replace the rules of an engine.
fn replace(rules: &RuleSet, runs: usize) -> Spread {
    let host = |last| Ipv4Addr::new(203, 0, 113, last);
    let pool = |number: u8| PoolConfig {
        name: number.to_string(),
        addresses: vec![AddressRange { first: host(number), last: host(number) }],
        ports: (1024, 1087),
        ..PoolConfig::default()
    };
    let config = Config { pools: (0..64).map(pool).collect(), ..Config::default() };
    let mut engine = Engine::new(&config, [1; 32], Timestamp(0)).expect("it can be run");
    let mut figures = Vec::new();
    for _ in 0..runs.max(3) {
        let set = rules.clone();
        let begun = Instant::now();
        let old = engine.replace_rules(set).expect("the pools are there");
        figures.push(begun.elapsed().as_nanos() as f64 / 1e3);
        drop(old);
    }
    Spread::of(&figures)
}
