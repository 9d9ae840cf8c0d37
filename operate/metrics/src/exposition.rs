//! The page for Prometheus: text format 0.0.4, every name with the prefix `natgate_`, units seconds
//! and bytes, `_total` for counters.
//!
//! Values of labels come from the configuration or from closed lists: directions, verdicts, drop
//! reasons, pools, domains, protocols, devices, workers, logs, slices. No label names a subscriber.
//! Each drop reason has a series from the start, so that rate() sees the first drop.

mod fleet;
mod parts;
mod series;

use crate::Figures;
use fleet::fleet;
use parts::{
    algs, announced, devices, domains, engine, listeners, logs, pools, reloads, router, servers,
    workers,
};
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, TextEncoder};
use series::Page;

/// The prefix of all names.
const PREFIX: &str = "natgate_";

/// The page and its content type.
pub fn prometheus_text(figures: &Figures) -> (String, &'static str) {
    let mut page = Page::default();
    page.gauge("build_info", "What runs here; the value is always 1.", |series| {
        series.add(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    });
    engine(&mut page, figures);
    algs(&mut page, figures);
    servers(&mut page, figures);
    domains(&mut page, figures);
    pools(&mut page, &figures.pools);
    workers(&mut page, &figures.workers);
    devices(&mut page, &figures.devices);
    router(&mut page, figures);
    logs(&mut page, &figures.sinks);
    listeners(&mut page, &figures.listeners);
    reloads(&mut page, figures);
    announced(&mut page, figures);
    fleet(&mut page, figures.fleet.as_ref());
    let mut families = page.families();
    families.extend(process());
    let mut text = Vec::new();
    // The encoder refuses only families without a name or a value; there is none.
    let written = TextEncoder::new().encode(&families, &mut text);
    debug_assert!(written.is_ok(), "{written:?}");
    (String::from_utf8_lossy(&text).into_owned(), prometheus::TEXT_FORMAT)
}

/// Memory, processor time and files of this process, as far as the system tells them.
fn process() -> Vec<prometheus::proto::MetricFamily> {
    let mut families =
        ProcessCollector::new(std::process::id().cast_signed(), PREFIX.trim_end_matches('_'))
            .collect();
    families.retain(|family| !family.get_metric().is_empty());
    families
}
