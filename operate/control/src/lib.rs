//! What stands around the data plane: the configuration file, what it means, what scripts read.
//!
//! [`config`] reads the file that an operator writes; [`meaning`] says in words and numbers what it
//! will do; [`who`] says whose an external endpoint is, [`past`] whose it was; [`json`] gives
//! events, counters, mappings and sessions the form that scripts rely on; [`socket`] is how
//! commands reach a running gateway (HTTP), [`interface`] which there are, and [`reload`] reads its
//! configuration anew. Nothing here touches a packet.

#![forbid(unsafe_code)]

pub mod config;
pub mod interface;
pub mod json;
pub mod meaning;
pub mod past;
pub mod reload;
pub mod routes;
pub mod who;

pub use natgate_http as socket;
