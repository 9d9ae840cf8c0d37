//! Monitoring of a running gateway.
//!
//! Everything here works on [`Figures`], a snapshot of the gateway that the program collects:
//! counters, pools, workers and devices, and nothing about single subscribers, so that the number
//! of series grows with the configuration and not with the traffic. A snapshot becomes a page for
//! Prometheus ([`prometheus_text`], served by [`export`]), the tables of NATV2-MIB (RFC 7659,
//! [`snmp`]) or the data of the YANG module `ietf-nat` (RFC 8512, [`yang`]). Nothing here speaks to
//! a worker.
//!
//! ```
//! use natgate_metrics::{Figures, prometheus_text};
//!
//! /// The number of mappings, as a monitoring system reads it.
//! fn mappings(figures: &Figures) -> Option<u64> {
//!     let (text, _content_type) = prometheus_text(figures);
//!     text.lines().find_map(|line| line.strip_prefix("natgate_mappings ")?.parse().ok())
//! }
//! ```

#![forbid(unsafe_code)]

mod exporter;
mod exposition;
mod figures;
pub mod snmp;
pub mod yang;

pub use exporter::{MOST_SCRAPERS, Source, export};
pub use exposition::prometheus_text;
pub use figures::{
    DeviceFigures, DomainFigures, Figures, Filled, ListenerFigures, PoolFigures, PortFigures,
    Reloads, ServerFigures, SinkFigures, WorkerFigures,
};
