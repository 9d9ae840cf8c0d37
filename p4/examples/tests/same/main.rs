//! The interpreter and the generated Rust give the same results: random packets, entries and times.

mod halves;
mod steps;
mod subject;
#[path = "../../../compiler/tests/common/together.rs"]
mod together;

use halves::InHalves;
use natgate_p4::Machine;
use natgate_p4_examples::{aligned, every, halved, small};
use proptest::prelude::*;
use std::time::Duration;
use steps::{Exact, Lpm, Subject, Ternary, compare, compiled, seen, step, taken};
use together::together;

const EVERY: Subject = Subject {
    text: natgate_p4_examples::EVERY,
    make: |_, seed| {
        vec![
            ("Rust", Box::new(every::Every::new(seed))),
            ("Rust in halves", Box::new(InHalves(every::Every::new(seed)))),
        ]
    },
    tables: &[
        ("learning", &[Exact(16), Exact(4)], &[("known", &[32, 1])]),
        ("prefixes", &[Lpm(16), Exact(1)], &[("set", &[32]), ("leave", &[]), ("NoAction", &[])]),
        (
            "masks",
            &[Ternary(16), Lpm(16), Exact(1)],
            &[("set", &[32]), ("to", &[32]), ("NoAction", &[])],
        ),
        ("long", &[Exact(128), Exact(48)], &[("set", &[32]), ("to", &[32]), ("NoAction", &[])]),
    ],
    counters: &["seen"],
    meters: &["rate", "packets"],
};

const SMALL: Subject = Subject {
    text: natgate_p4_examples::SMALL,
    make: |_, seed| vec![("Rust", Box::new(small::Small::new(seed)))],
    tables: &[("forward", &[Exact(48), Ternary(16)], &[("send", &[32]), ("NoAction", &[])])],
    counters: &["seen"],
    meters: &[],
};

const HALVED: Subject = Subject {
    text: natgate_p4_examples::HALVED,
    make: |_, seed| {
        vec![
            ("Rust", Box::new(halved::Halved::new(seed))),
            ("Rust in halves", Box::new(InHalves(halved::Halved::new(seed)))),
        ]
    },
    tables: &[
        ("small", &[Exact(16)], &[("set", &[32]), ("mark", &[16]), ("NoAction", &[])]),
        ("learning", &[Exact(16), Exact(8)], &[("known", &[32])]),
        ("large", &[Exact(32), Exact(16)], &[("take", &[32]), ("leave", &[]), ("NoAction", &[])]),
    ],
    counters: &["counted"],
    meters: &[],
};

/// The program that DPDK's SWX pipeline executes as well.
const ALIGNED: Subject = Subject {
    make: |_, seed| vec![("Rust", Box::new(aligned::Aligned::new(seed)))],
    ..subject::ALIGNED
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_construct_is_the_same(steps in prop::collection::vec(step(), 1..60)) {
        compare(&EVERY, &steps);
    }

    #[test]
    fn a_program_in_halves_is_the_same(steps in prop::collection::vec(step(), 1..60)) {
        compare(&HALVED, &steps);
    }

    /// All packets of a group run through the first half before any runs through the second.
    #[test]
    fn what_goes_together_through_halves_is_the_same(
        steps in prop::collection::vec(step(), 1..20),
        packets in prop::collection::vec(steps::packet(), 1..50),
    ) {
        for subject in [&HALVED, &EVERY] {
            let program = compiled(subject);
            let mut made = (subject.make)(&program, 5).into_iter().map(|(_, execute)| {
                let mut machine = Machine::with(&program, execute);
                let mut now = 0;
                steps.iter().for_each(|step| drop(taken(subject, &mut machine, &mut now, step)));
                machine
            });
            let (mut alone, mut group) = (made.next().expect("one"), made.next().expect("two"));
            let now = Duration::from_secs(1000);
            let outcomes = together(&mut group, now, 1, &packets);
            for (packet, outcome) in packets.iter().zip(outcomes) {
                prop_assert_eq!(outcome, alone.process(now, 1, packet));
            }
            prop_assert_eq!(seen(subject, &mut group), seen(subject, &mut alone));
        }
    }

    #[test]
    fn whole_bytes_are_the_same(steps in prop::collection::vec(step(), 1..60)) {
        compare(&ALIGNED, &steps);
    }

    #[test]
    fn a_small_program_is_the_same(steps in prop::collection::vec(step(), 1..20)) {
        compare(&SMALL, &steps);
    }
}

/// Checks the power of the comparison: each of these events must have happened.
#[test]
fn random_steps_reach_what_is_compared() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let program = compiled(&EVERY);
    let mut runner = TestRunner::deterministic();
    let (mut sent, mut dropped, mut learnt, mut full) = (0, 0, 0, 0);
    for _ in 0..100 {
        let steps = prop::collection::vec(step(), 40).new_tree(&mut runner).expect("steps");
        let mut machine = Machine::with(&program, Box::new(every::Every::new(5)));
        let mut now = 0;
        for step in steps.current() {
            let what = taken(&EVERY, &mut machine, &mut now, &step);
            sent += usize::from(what.starts_with("Sent"));
            dropped += usize::from(what == "Dropped");
            full += usize::from(what.contains("Full"));
        }
        learnt += seen(&EVERY, &mut machine).matches("Main.stations").count();
    }
    assert!(
        sent > 100 && dropped > 0 && learnt > 20 && full > 5,
        "{sent} {dropped} {learnt} {full}"
    );
}
