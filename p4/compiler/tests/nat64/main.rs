//! p4/nat64.p4, interpreted and as Rust. The crate of DPDK's back end runs the same cases with
//! DPDK's SWX pipeline, too.

mod cases;
#[path = "../nat/executors.rs"]
mod executors;
mod packets;
mod same;
