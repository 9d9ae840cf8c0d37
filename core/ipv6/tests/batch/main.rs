//! Runs of packets against single packets: the same random traffic goes through two translators.
//! One takes batches of random length, the other takes packet by packet. Packets, events with the
//! names of hosts, own packets, counters and hosts must be the same. The second translator explains
//! each packet before it takes it: the fate must be what was said, and the explanation must have
//! changed nothing.
//!
//! A port or an identifier belongs to one host, and the engine preserves it. So both engines choose
//! the same external endpoints, however many random numbers they have drawn.
//!
//! NATGATE_SEED sets the first case; a failing case prints its number.

#[path = "../common/explained.rs"]
mod explained;
#[path = "../common/header6.rs"]
mod header6;
#[path = "../common/prefixes.rs"]
mod prefixes;
#[path = "../common/rng.rs"]
mod rng;
mod traffic;
mod world;

use traffic::Traffic;
use world::{Own, Seen, World};

const CASES: u64 = 80;
const BATCHES: usize = 60;
const SECOND: u64 = 1_000_000_000;

/// Compares own packets.
fn same_packets(run: &[Own], single: &[Own], what: &str) {
    for (place, (run, single)) in run.iter().zip(single).enumerate() {
        // A host may be forgotten by the time of an error of the engine's.
        let is_lost = |one: &Own| one.2.is_empty();
        assert!(
            run == single || is_lost(single),
            "{what}: own packet {place}\nrun: {run:02x?}\nsingle: {single:02x?}"
        );
    }
    assert_eq!(run.len(), single.len(), "{what}: number of own packets");
}

/// Compares the two translators in one case. Returns whether there are NAT64 and DS-Lite, and the
/// number of runs and of packets.
fn compare(case: u64) -> (bool, usize, usize) {
    let mut traffic = Traffic::new(case);
    let (mut runs, mut singles) = (World::new(&traffic), World::new(&traffic));
    let (mut count, mut packets) = (0, 0);
    for number in 0..BATCHES {
        let (side, batch) = traffic.batch();
        let mut together = Seen::default();
        count += runs.take_runs(side, &batch, &mut together);
        let mut alone = Seen::default();
        singles.take_singles(side, &batch, &mut alone);
        packets += batch.len();
        assert_eq!(together.packets.len(), batch.len());
        for (place, came) in batch.iter().enumerate() {
            let (run, single) = (&together.packets[place], &alone.packets[place]);
            assert!(
                run == single,
                "case {case}, batch {number}, packet {place} from {side:?}: {came:02x?}\n\
                 run: {run:02x?}\nsingle: {single:02x?}"
            );
        }
        let what = format!("case {case}, batch {number} from {side:?}");
        assert_eq!(runs.counters(), singles.counters(), "{what}: counters");
        assert_eq!(together.events, alone.events, "{what}: events");
        same_packets(&together.of_engine, &alone.of_engine, &format!("{what}: of the engine"));
        same_packets(&together.own, &alone.own, &format!("{what}: of the translator"));
        assert_eq!(runs.sessions(), singles.sessions(), "{what}: sessions");
        traffic.learn(&together);
        let passed = traffic.pause();
        runs.pause(passed);
        singles.pause(passed);
        if !traffic.turns {
            assert_eq!(runs.hosts(), singles.hosts(), "{what}: hosts");
        }
    }
    for world in [&mut runs, &mut singles] {
        (0..200).for_each(|_| world.pause(120 * SECOND));
        let stay = world.hosts().into_iter().flatten().any(|hosts| hosts != (0, 0));
        assert!(!stay, "case {case}: hosts stay");
    }
    (traffic.has_both(), count, packets)
}

#[test]
fn runs_are_as_single_packets() {
    let first = std::env::var("NATGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut counts = [(0, 0); 2];
    for case in 0..CASES {
        let (has_both, more_runs, more_packets) = compare(first.unwrap_or(0) + case);
        let (runs, packets) = &mut counts[usize::from(has_both)];
        (*runs, *packets) = (*runs + more_runs, *packets + more_packets);
    }
    // A packet of the other kind ends a run.
    for ((runs, packets), least) in counts.into_iter().zip([5, 4]) {
        assert!(
            2 * packets > least * runs,
            "{packets} packets went in {runs} runs: they are too short"
        );
    }
}
