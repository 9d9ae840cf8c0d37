//! The laboratory: measures natgate's speed and memory, in one run with the limits of the machine
//! itself.
//!
//! Each module has one measurement: a `Plan` of its size, a function that measures, and `Figures`.
//!
//! ```
//! use natgate_lab::engine::{Plan, measure};
//! use std::time::Duration;
//!
//! let plan = Plan { sessions: 2000, batch: 64, time: Duration::from_millis(1), tcp: false };
//! let figures = measure(&plan);
//! assert_eq!(figures.sessions, 2000);
//! assert!(figures.outbound_ns > 0.0);
//! ```

pub mod bed;
mod clock;
pub mod copies;
pub mod day;
pub mod engine;
mod full_table;
pub mod instructions;
pub mod io;
pub mod ipv6;
mod lane;
mod limit;
mod memory;
pub mod p4;
pub mod payloads;
pub mod prices;
mod program;
mod random;
pub mod report;
pub mod rfc9693;
pub mod router;
pub mod rules;
mod search;
pub mod sharing;
pub mod soak;
pub mod spread;
pub mod structures;
mod thesis;
pub mod timings;

pub(crate) use natgate_timings::frame;
