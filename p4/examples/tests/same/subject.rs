//! The program that the interpreter, Rust and DPDK's SWX pipeline all execute.

use super::steps::{Exact, Lpm, Subject, Ternary};

pub(crate) const ALIGNED: Subject = Subject {
    text: natgate_p4_examples::ALIGNED,
    make: |_, _| Vec::new(),
    tables: &[
        ("learning", &[Exact(16), Exact(8)], &[("known", &[32, 1])]),
        ("prefixes", &[Lpm(16), Exact(1)], &[("set", &[32]), ("leave", &[]), ("NoAction", &[])]),
        (
            "masks",
            &[Ternary(16), Lpm(16), Exact(8)],
            &[("set", &[32]), ("to", &[32]), ("NoAction", &[])],
        ),
        (
            "long",
            &[Exact(64), Exact(48), Exact(32)],
            &[("set", &[32]), ("five", &[8, 16, 24, 32, 64])],
        ),
    ],
    counters: &["seen", "wide"],
    meters: &["rate", "packets"],
};
