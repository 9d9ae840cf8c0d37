//! Engine and model on random operations.
//!
//! A case is a small configuration and a list of operations: fresh packets, repeated packets,
//! answers to and ICMP errors about packets that came out, and time. After each operation all
//! visible state of both is compared. A failing case is shrunk, and proptest prints and keeps its
//! seed. PROPTEST_CASES sets the number of cases.

mod changes;
#[path = "../common/mod.rs"]
mod common;
mod configs;
mod operations;
mod policy;
mod realms;
mod servers;
mod strategies;
mod world;

use common::{Spec, end};
use configs::config;
use natgate_compare::{Divergence, First, Pair};
use natgate_engine::{
    AddressRange, Allocation, Behavior, Config, Direction, DropReason, Endpoint, Limits, Outcome,
    PoolConfig, Service, Side, StaticMapping, Verdict,
};
use natgate_wire::protocol::UDP;
use natgate_wire::tcp::flags::{ACK, SYN};
use operations::Operation;
use proptest::prelude::*;
use realms::with_realms;
use std::time::Duration;
use strategies::operation;
use world::{INSIDE, POOL, PORTS, PROTOCOLS, REMOTE, START, World};

/// Number of cases that take about a minute in all, unless PROPTEST_CASES gives another number.
fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(usual), ..ProptestConfig::default() }
}

fn run(config: &Config, seed: [u8; 32], operations: &[Operation]) -> Result<(), Divergence> {
    let pair = Pair::new(config, seed, START)?;
    let mut world = World { pair, config: config.clone(), now: START, seen: Vec::new() };
    for (number, operation) in operations.iter().enumerate() {
        let result = world.apply(operation).and_then(|()| world.pair.check_state());
        result.map_err(|divergence| format!("operation {number}: {divergence}"))?;
    }
    Ok(())
}

/// Number of mappings in the large table; NATGATE_MAPPINGS sets it.
fn mappings() -> u32 {
    let mappings = std::env::var("NATGATE_MAPPINGS").ok();
    mappings.and_then(|mappings| mappings.parse().ok()).unwrap_or(20_000)
}

/// Sixteen mappings a subscriber. The operations are about other subscribers.
fn firsts(count: u32) -> impl Iterator<Item = First> {
    (0..count).map(|number| {
        let subscriber = u32::from_be_bytes([10, 1, 0, 1]) + number / 16;
        let internal = Endpoint::new(subscriber, 5000 + (number % 16) as u16);
        let remote = end(REMOTE[0], 53);
        First { internal, remote, bytes: Spec::new(UDP, internal, remote).bytes() }
    })
}

/// [`run`] over a large table. Its state is compared now and then.
fn run_large(config: &Config, seed: [u8; 32], operations: &[Operation]) -> Result<(), Divergence> {
    let count = mappings();
    let first = Endpoint::new(u32::from_be_bytes(POOL), 0).address;
    let last = (first.to_bits() + count / 50_000 + 1).into();
    let pool = PoolConfig {
        addresses: vec![AddressRange { first, last }],
        ports: (1024, 65_535),
        allocation: None,
        thresholds: vec![],
        ..config.pools[config.default_pool].clone()
    };
    let config = Config {
        pools: vec![pool],
        default_pool: 0,
        mapping: Behavior::EndpointIndependent,
        allocation: Allocation::Random,
        rules: vec![],
        realms: vec![],
        hairpin_to: vec![],
        statics: config.statics.iter().map(|fixed| StaticMapping { realm: 0, ..*fixed }).collect(),
        services: config.services.iter().map(|one| Service { realm: 0, ..one.clone() }).collect(),
        // With a few more mappings than this, mappings are scarce for unanswered subscribers
        // (18.4).
        limits: Limits { mappings: Some(count + count / 15 + 5), ..Limits::default() },
        classes: vec![],
        ..config.clone()
    };
    let mut pair = Pair::new(&config, seed, START)?;
    pair.fill(START, firsts(count))?;
    let now = START.plus(Duration::from_millis(1500));
    pair.advance(now)?;
    let mut world = World { pair, config, now, seen: Vec::new() };
    for operations in operations.chunks(10) {
        operations.iter().try_for_each(|operation| world.apply(operation))?;
        world.pair.check_state()?;
    }
    Ok(())
}

/// A configuration without routes inside: every remote host is outside.
fn all_outside(mut config: Config) -> Config {
    config.inside_routes.clear();
    config.realms.iter_mut().for_each(|realm| realm.inside_routes.clear());
    config
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20, ..cases(3) })]

    /// Engine and model agree over a large table.
    #[test]
    fn engine_agrees_with_model_over_a_large_table(
        config in config().prop_flat_map(with_realms).prop_map(all_outside),
        seed in any::<[u8; 32]>(),
        operations in prop::collection::vec(operation(), 20),
    ) {
        run_large(&config, seed, &operations).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    /// Engine and model agree after any operations.
    #[test]
    fn engine_agrees_with_model(
        config in config().prop_flat_map(with_realms),
        seed in any::<[u8; 32]>(),
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        run(&config, seed, &operations).map_err(TestCaseError::fail)?;
    }

    /// The answer to a translated packet comes back to the sender as if there were no translator,
    /// except for the time to live.
    #[test]
    fn answers_come_back(
        config in config().prop_map(all_outside),
        seed in any::<[u8; 32]>(),
        near in (0usize..3, 0usize..7),
        far in (0usize..3, 0usize..3),
        protocol in 0usize..7,
        len in any::<u8>(),
    ) {
        let limits = Limits { fragment_memory: 4096, ..Limits::default() };
        let config = Config { rules: vec![], limits, classes: vec![], ..config };
        let mut pair = Pair::new(&config, seed, START).map_err(TestCaseError::fail)?;
        let source = end(INSIDE[near.0], PORTS[near.1]);
        let mut spec = Spec::new(PROTOCOLS[protocol], source, end(REMOTE[far.0], PORTS[far.1]));
        spec.payload = (0..len).collect();
        let sent = spec.bytes();
        let (results, _) =
            pair.process(START, Side::Inside, std::slice::from_ref(&sent))
                .map_err(TestCaseError::fail)?;
        if results[0].verdict == Verdict::Forward(Side::Outside) {
            let mut answer = Spec::answer(&results[0].bytes);
            answer.flags = SYN | ACK;
            let (results, _) =
                pair.process(START, Side::Outside, &[answer.bytes()]).map_err(TestCaseError::fail)?;
            prop_assert_eq!(results[0].verdict, Verdict::Forward(Side::Inside));
            let mut wanted = Spec::answer(&sent);
            (wanted.flags, wanted.ttl) = (SYN | ACK, 63);
            prop_assert_eq!(&results[0].bytes, &wanted.bytes());
        } else {
            // A first mapping is refused in two cases only: the pool keeps ports on the other side
            // of 1024, or for others; or the subscriber's own ports are taken by a static mapping.
            let counters = pair.engine.counters();
            let dropped = counters.packets[Direction::Outbound as usize][Outcome::Dropped as usize];
            prop_assert_eq!(dropped, 1);
            let reasons =
                [DropReason::PoolExhausted, DropReason::PortQuota, DropReason::Ambiguous];
            prop_assert!(reasons.map(Verdict::Drop).contains(&results[0].verdict));
        }
    }
}
