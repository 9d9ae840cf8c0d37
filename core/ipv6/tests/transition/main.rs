//! Transition to IPv6 on whole paths: two translators that face each other, routers that are
//! narrower than the gateway's links, atomic fragments, domains of MAP and lw4o6 with several rules
//! and relays, and several tables in one gateway.

mod atomic;
#[path = "../common/mod.rs"]
mod common;
mod domains;
#[path = "../common/explained.rs"]
mod explained;
#[path = "../common/header6.rs"]
mod header6;
mod loops;
mod mixes;
mod packets;
#[path = "../common/prefixes.rs"]
mod prefixes;
mod segments;
mod widths;
mod world;
