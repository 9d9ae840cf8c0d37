//! Monitoring of a running gateway.
//!
//! Everything here works on [`Figures`], a snapshot of the gateway that the program collects:
//! counters, pools, workers and devices, and nothing about single subscribers, so that the number
//! of series grows with the configuration and not with the traffic. From it come a page for
//! Prometheus ([`prometheus_text`], served by [`export`]), the tables of NATV2-MIB (RFC 7659) and
//! the data of the YANG module `ietf-nat` (RFC 8512). Nothing here speaks to a worker.

#![forbid(unsafe_code)]

mod exporter;
mod exposition;
mod figures;
pub mod snmp;
pub mod yang;

pub use exporter::{MOST_SCRAPERS, Source, export};
pub use exposition::prometheus_text;
pub use figures::{
    DeviceFigures, Figures, Filled, ListenerFigures, PoolFigures, PortFigures, Reloads,
    SinkFigures, WorkerFigures,
};
