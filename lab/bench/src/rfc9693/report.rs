//! The report: a table for each rate, a plot over the sizes, and S1's targets.

use super::{Plan, Results, Size};
use crate::engine::grouped;
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use crate::spread::Spread;
use crate::thesis::{TARGET_MPPS, TARGET_NEW_SESSIONS};

pub(super) fn write(mut report: Report, plan: &Plan, results: &Results) -> Report {
    report.data(results);
    report.text(format!(
        "{} on one core, batches of {}, behind virtual links in memory with receive rings \
         of {} frames a side, in virtual time that goes on as the processor time of its turns: \
         what network cards and drivers cost is not in these figures. UDP, {}, pseudo-random \
         unique endpoints; every frame that comes out is checked. Rates are medians over the \
         repetitions, each of which searches anew, to {:.0} % (5 % above 20 M sessions).",
        if results.nat64 { "NAT64" } else { "The engine" },
        results.batch,
        grouped(results.ring),
        if results.nat64 {
            "frames of 84 bytes inside (IPv6) and of 64 bytes outside (IPv4)"
        } else {
            "frames of 64 bytes"
        },
        plan.precision * 100.0,
    ));
    report.text(
        "## Connections\n\nThe table is empty before each step of a search. A rate passes when \
         every connection is made and one frame comes back over each, at the same rate, in \
         another order, in one of three trials. Tear-down: all of them expire at once, or the \
         gateway is dropped.",
    );
    report.table(connections(results));
    report.text(
        "## Throughput\n\nBoth ways at once over established sessions at random; the rates are \
         those of both ways together. The delay is from a frame's arrival to its departure.",
    );
    report.table(throughput(results));
    let capacity = &results.capacity;
    let found = capacity.found.map_or_else(
        || format!("the search found none: {} did not pass", grouped(plan.first_capacity)),
        |found| format!("found: {}", grouped(found)),
    );
    report.text(format!(
        "## Table capacity\n\nDoubled from {} until connections cannot be made and validated at a \
         fifth of the smallest table's rate, then halved to {:.0} %. The gateway was configured \
         for {} sessions; {found}. When the table is full a new session is refused and those \
         that are in it stay.",
        grouped(plan.first_capacity),
        capacity.error * 100.0,
        grouped(capacity.configured),
    ));
    report.plot(plot(results));
    report
}

fn millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}

/// Median, smallest and largest value. With at most twenty repetitions the latter are the 1st and
/// 99th percentile.
fn spread(rates: &Spread) -> [String; 2] {
    [millions(rates.median), format!("{} to {}", millions(rates.min), millions(rates.max))]
}

/// Adds the target of the thesis, which is about NAT44.
fn push_target(table: &mut Table, results: &Results, target: f64) {
    if !results.nat64 {
        table.push(["target of Plotnikov 2015: 65,500,000".into(), format!("{target:.2}")]);
    }
}

fn connections(results: &Results) -> Table {
    let mut table = Table::new([
        "sessions",
        "establishment, M/s",
        "1 % to 99 %",
        "repetitions",
        "tear-down by expiry, M/s",
        "1 % to 99 %",
        "dropped, M/s",
    ]);
    for size in &results.sizes {
        let [rate, range] = spread(&size.establishment);
        let [tear_down, tear_down_range] = spread(&size.tear_down);
        table.push([
            grouped(size.sessions),
            rate,
            range,
            size.establishment.runs.to_string(),
            tear_down,
            tear_down_range,
            millions(size.dropped),
        ]);
    }
    push_target(&mut table, results, TARGET_NEW_SESSIONS);
    table
}

fn throughput(results: &Results) -> Table {
    let mut table = Table::new([
        "sessions",
        "Mpps",
        "1 % to 99 %",
        "delay, us: median",
        "99.9 %",
        "at half the rate: median",
        "99.9 %",
    ]);
    for size in &results.sizes {
        let [rate, range] = spread(&size.throughput);
        let us = |time: f64| format!("{time:.1}");
        let ([median, most], [half_median, half_most]) = (size.delay_us, size.delay_at_half_us);
        let delays = [median, most, half_median, half_most].map(us);
        table.push([grouped(size.sessions), rate, range].into_iter().chain(delays));
    }
    push_target(&mut table, results, TARGET_MPPS);
    table
}

fn plot(results: &Results) -> Plot {
    let sizes = &results.sizes;
    let series = |name: &str, rate: fn(&Size) -> f64| {
        let points = sizes.iter().map(|size| (size.sessions as f64, rate(size) / 1e6)).collect();
        Series::new(name, Style::Line, points)
    };
    let target = |name: &str, rate: f64| Series::new(name, Style::Points, vec![(65.5e6, rate)]);
    let mut all = vec![
        series("throughput, both ways", |size| size.throughput.median),
        series("establishment", |size| size.establishment.median),
        series("tear-down by expiry", |size| size.tear_down.median),
    ];
    if !results.nat64 {
        all.push(target("S1's target: packets", TARGET_MPPS));
        all.push(target("S1's target: new sessions", TARGET_NEW_SESSIONS));
    }
    Plot {
        name: String::new(),
        title: "Rates by sessions, one core".into(),
        x: Axis::log("sessions"),
        y: Axis::linear("millions a second"),
        series: all,
    }
}
