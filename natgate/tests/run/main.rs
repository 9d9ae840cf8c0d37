//! `natgate run` as its operator meets it: how it starts and what it refuses, as a service, with
//! another configuration while it runs, and what it says of every mistake.
//!
//! Each test has a network namespace of its own, which goes with the process in it. Needs root,
//! iproute2, util-linux and systemd, and fails without. What packets undergo is tested in
//! `namespaces.rs`.

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
mod start;
mod unit;
