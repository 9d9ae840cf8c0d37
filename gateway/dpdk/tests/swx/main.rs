//! Random packets, entries and times through every construct that DPDK's SWX pipeline supports:
//! interpreter, Rust and the pipeline give the same results.
#![cfg(libdpdk)]

#[path = "../environment/mod.rs"]
mod environment;
#[path = "../../../../p4/examples/tests/same/steps.rs"]
#[allow(dead_code, reason = "shared with the tests of Rust, which use more of it")]
mod steps;
#[path = "../../../../p4/examples/tests/same/subject.rs"]
mod subject;

use natgate_dpdk::Swx;
use natgate_p4::rt::Execute;
use natgate_p4::{Program, compile};
use natgate_p4_examples::aligned;
use proptest::prelude::*;
use steps::{Exact, Subject, Ternary, compare, step};

const ALIGNED: Subject = Subject {
    make: |program, seed| {
        vec![("Rust", Box::new(aligned::Aligned::new(seed))), ("SWX", swx(program, seed))]
    },
    ..subject::ALIGNED
};

const SMALL: Subject = Subject {
    text: natgate_p4_examples::SMALL,
    make: |program, seed| vec![("SWX", swx(program, seed))],
    tables: &[("forward", &[Exact(48), Ternary(16)], &[("send", &[32]), ("NoAction", &[])])],
    counters: &["seen"],
    meters: &[],
};

fn swx(program: &Program, seed: u64) -> Box<dyn Execute> {
    let pipeline = program.swx().unwrap_or_else(|error| panic!("{}", error.rendered()));
    Box::new(Swx::new(&pipeline, seed).expect("DPDK makes the pipeline"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_construct_is_the_same(steps in prop::collection::vec(step(), 1..60)) {
        let _turn = environment::turn();
        compare(&ALIGNED, &steps);
    }

    #[test]
    fn a_small_program_is_the_same(steps in prop::collection::vec(step(), 1..20)) {
        let _turn = environment::turn();
        compare(&SMALL, &steps);
    }
}

#[test]
fn a_program_that_lacks_memory_says_so() {
    let _turn = environment::turn();
    let text = include_str!("../../../../p4/nat.p4");
    let more = "Register<bit<64>, bit<24>>(16777216, 0) more;";
    let many: String =
        (0..9).map(|number| more.replace("more", &format!("more_{number}"))).collect();
    let text = text.replace(
        "    InternetChecksum() header_sum;",
        &format!("{many} InternetChecksum() header_sum;"),
    );
    let program = compile("nat.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()));
    let pipeline = program.swx().unwrap_or_else(|error| panic!("{}", error.rendered()));
    let error = Swx::new(&pipeline, 0).map(|_| ()).expect_err("that is more than there is");
    assert!(error.to_string().contains("memory"), "{error}");
}
