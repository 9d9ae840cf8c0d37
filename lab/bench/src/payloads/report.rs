//! The report of the experiment.

use super::Results;
use crate::instructions::gateway::PACKETS;
use crate::report::{Report, Table};

/// Writes the text and the tables.
pub(super) fn write(report: &mut Report, results: &Results) {
    report.text(format!(
        "Times are processor time of a whole gateway with devices in memory, medians over {} \
         rounds of {PACKETS} messages in batches of 64. How it is measured is in \
         lab/bench/src/payloads/README.md.",
        results.rounds,
    ));
    let mut messages =
        Table::new(["message of SIP", "us", "10 % to 90 %", "thousand a second and core"]);
    for one in &results.messages {
        let us = |ns: f64| format!("{:.2}", ns / 1000.0);
        messages.push([
            one.message.to_owned(),
            us(one.ns.median),
            format!("{} to {}", us(one.ns.p10), us(one.ns.p90)),
            format!("{:.0}", one.each_second / 1000.0),
        ]);
    }
    report.table(messages);
    report.text("Packets of protocols that no gateway reads:");
    let mut packets =
        Table::new(["way", "no gateway, ns", "all gateways, ns", "ratio", "10 % to 90 %"]);
    for one in &results.packets {
        packets.push([
            one.way.to_owned(),
            format!("{:.1}", one.off_ns.median),
            format!("{:.1}", one.on_ns.median),
            format!("{:.3}", one.ratio.median),
            format!("{:.3} to {:.3}", one.ratio.p10, one.ratio.p90),
        ]);
    }
    report.table(packets);
    let mut targets = Table::new(["target", "wanted", "found", ""]);
    for one in &results.targets {
        // Ratios are near one, and rates are not.
        let digits = if one.wanted < 10.0 { 3 } else { 0 };
        targets.push([
            one.what.clone(),
            format!("{:.digits$}", one.wanted),
            format!("{:.digits$}", one.found),
            if one.reached { "reached" } else { "missed" }.to_owned(),
        ]);
    }
    report.table(targets);
}
