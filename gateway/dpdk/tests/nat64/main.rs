//! p4/nat64.p4 in DPDK's SWX pipeline: the cases of the interpreter and of Rust, with the same
//! results.
#![cfg(libdpdk)]

#[path = "../../../../p4/compiler/tests/nat64/cases.rs"]
mod cases;
#[path = "../environment/mod.rs"]
mod environment;
#[path = "../nat/executors.rs"]
mod executors;
#[path = "../../../../p4/compiler/tests/nat64/packets.rs"]
mod packets;
#[path = "../../../../p4/compiler/tests/nat64/same.rs"]
mod same;
