//! p4/nat.p4 in DPDK's SWX pipeline: the cases of the interpreter and of Rust, with the same
//! results.
#![cfg(libdpdk)]

#[path = "../../../../p4/compiler/tests/nat/cases.rs"]
mod cases;
#[path = "../environment/mod.rs"]
mod environment;
mod executors;
#[path = "../../../../natgate/tests/vectors/read.rs"]
#[allow(dead_code, reason = "shared with the vectors' own test, which uses more of it")]
mod read;
#[path = "../../../../p4/compiler/tests/common/together.rs"]
mod together;
#[path = "../../../../natgate/tests/vectors/words.rs"]
#[allow(dead_code, reason = "shared with the vectors' own test, which uses more of it")]
mod words;
#[path = "../../../../natgate/tests/vectors/write.rs"]
mod write;
