//! `natgate run` from the operator's view: its start and its refusals, as a service, with another
//! configuration at run time, and its report of every mistake.
//!
//! Each test has a network namespace of its own, which ends with its process. Needs root, iproute2,
//! util-linux and systemd, and fails without them. `namespaces.rs` tests the translation of
//! packets.

mod changes;
mod gateway;
mod health;
mod locks;
#[path = "../machine/mod.rs"]
mod machine;
mod mistakes;
mod owners;
mod past;
mod reload;
mod service;
mod siege;
mod start;
mod unit;
