//! Attacks on the translator in simulated time: the power of an attacker outside, or of a
//! subscriber, that sends any packets. Each test states the reach of the attack as a figure and
//! asserts it. docs/attacks.md lists them all. `bad_input` tests bad input without a plan.

extern crate alloc;

#[path = "../common/mod.rs"]
mod common;
/// Files of the engine that its index needs here; the index needs a part of each.
#[allow(missing_docs, dead_code, unreachable_pub)]
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
