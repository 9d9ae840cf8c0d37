//! Attacks on the translator, in simulated time: what somebody outside, or a subscriber, can do who
//! sends what he likes. Each test states how far the attack goes as a figure and asserts it;
//! docs/attacks.md lists them all. Bad input without a plan is in `bad_input`.

extern crate alloc;

#[path = "../common/mod.rs"]
mod common;
/// Of the engine: what its index needs at this place.
#[allow(missing_docs)]
#[path = "../../src/prefetch.rs"]
mod prefetch;

mod collisions;
mod exhaustion;
mod fragments;
mod icmp;
mod loops;
mod prediction;
mod spoofing;
mod statistics;
mod tcp;
mod world;
