//! p4/nat.p4, interpreted and as Rust. The crate of DPDK's back end runs the same cases with DPDK's
//! SWX pipeline, too.

#[path = "cases.rs"]
mod cases;
mod executors;
#[path = "../../../../natgate/tests/vectors/read.rs"]
#[allow(dead_code, reason = "shared with the vectors' own test, which uses more of it")]
mod read;
#[path = "../common/together.rs"]
mod together;
#[path = "../../../../natgate/tests/vectors/words.rs"]
#[allow(dead_code, reason = "shared with the vectors' own test, which uses more of it")]
mod words;
#[path = "../../../../natgate/tests/vectors/write.rs"]
mod write;
