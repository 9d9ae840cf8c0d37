//! Engine against model on random operations.
//!
//! A case is a small configuration and a list of operations: packets made afresh, packets sent
//! again, answers to and ICMP errors about packets that came out, and time. After each operation
//! everything that can be seen of both is compared. A failing case is shrunk, and its seed is
//! printed and kept by proptest; PROPTEST_CASES sets how many cases are tried.

#[path = "../common/mod.rs"]
mod common;
mod strategies;
mod world;

use common::{Spec, end};
use natgate_engine::{Config, Direction, DropReason, Limits, Outcome, Side, Verdict};
use natgate_model::compare::{Divergence, Pair};
use natgate_wire::tcp::flags::{ACK, SYN};
use proptest::prelude::*;
use strategies::{config, operation};
use world::{INSIDE, Operation, PORTS, PROTOCOLS, REMOTE, START, World};

/// Cases that take about a minute in all, unless PROPTEST_CASES says otherwise.
fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(usual), ..ProptestConfig::default() }
}

fn run(config: &Config, seed: [u8; 32], operations: &[Operation]) -> Result<(), Divergence> {
    let pair = Pair::new(config, seed, START)?;
    let mut world = World { pair, config: config.clone(), now: START, seen: Vec::new() };
    operations.iter().try_for_each(|operation| world.apply(operation))
}

proptest! {
    #![proptest_config(cases(6000))]

    /// Whatever is done, engine and model agree.
    #[test]
    fn engine_agrees_with_model(
        config in config(),
        seed in any::<[u8; 32]>(),
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        run(&config, seed, &operations).map_err(TestCaseError::fail)?;
    }

    /// What answers a translated packet comes back to who sent it, as if there were no translator
    /// but for the time to live.
    #[test]
    fn answers_come_back(
        config in config(),
        seed in any::<[u8; 32]>(),
        near in (0usize..3, 0usize..7),
        far in (0usize..3, 0usize..3),
        protocol in 0usize..7,
        len in any::<u8>(),
    ) {
        let limits = Limits { fragment_memory: 4096, ..Limits::default() };
        let config = Config { rules: vec![], limits, ..config };
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
            // Only a pool that keeps ports on the other side of 1024, or all for others, refuses a first
            // mapping; or one of which the subscriber has ports, if a static mapping takes these.
            let counters = pair.engine.counters();
            let dropped = counters.packets[Direction::Outbound as usize][Outcome::Dropped as usize];
            prop_assert_eq!(dropped, 1);
            let reasons =
                [DropReason::PoolExhausted, DropReason::PortQuota, DropReason::Ambiguous];
            prop_assert!(reasons.map(Verdict::Drop).contains(&results[0].verdict));
        }
    }
}
