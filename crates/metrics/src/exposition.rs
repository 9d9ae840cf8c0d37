//! The page that Prometheus reads: text format 0.0.4, every name with the prefix `natgate_`, units seconds
//! and bytes, `_total` where something only grows.
//!
//! What labels can be is known from the configuration or closed: directions, verdicts, reasons of drops,
//! pools, protocols, devices, workers, logs. A subscriber is never among them. Of each reason there is a
//! series from the start, so that the first drop is seen to be one.

mod parts;
mod series;

use crate::Figures;
use parts::{devices, engine, listeners, logs, pools, reloads, router, workers};
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, TextEncoder};
use series::Page;

/// What all names begin with.
const PREFIX: &str = "natgate_";

/// The page as it is sent, and the type to send it as.
pub fn prometheus_text(figures: &Figures) -> (String, &'static str) {
    let mut page = Page::default();
    page.gauge("build_info", "What runs here; the value is always 1.", |series| {
        series.add(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    });
    engine(&mut page, figures);
    pools(&mut page, &figures.pools);
    workers(&mut page, &figures.workers);
    devices(&mut page, &figures.devices);
    router(&mut page, figures);
    logs(&mut page, &figures.sinks);
    listeners(&mut page, &figures.listeners);
    reloads(&mut page, figures);
    let mut families = page.families();
    families.extend(process());
    let mut text = Vec::new();
    // Only a family without a name or without a value is refused; there is none.
    let written = TextEncoder::new().encode(&families, &mut text);
    debug_assert!(written.is_ok(), "{written:?}");
    (String::from_utf8_lossy(&text).into_owned(), prometheus::TEXT_FORMAT)
}

/// Memory, processor time and files of this process, as the system tells; nothing where it does not.
fn process() -> Vec<prometheus::proto::MetricFamily> {
    let mut families =
        ProcessCollector::new(std::process::id().cast_signed(), PREFIX.trim_end_matches('_'))
            .collect();
    families.retain(|family| !family.get_metric().is_empty());
    families
}
