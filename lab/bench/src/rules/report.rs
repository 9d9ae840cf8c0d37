//! The report: S2's table with further sizes, the effect of caches, and the cost of loading.

use super::experiment::{Results, Size};
use super::workload::Sort;
use super::{BATCH, paper};
use crate::report::{Axis, Plot, Report, Series, Style, Table};
use serde::Serialize;

const INTRODUCTION: &str = "\
Nanoseconds a lookup, medians; `batched`: searches of 32 packets take their steps together. The \
paper
searches for one packet at a time: compare its figures with rows that are not batched. How it is \
measured, and where that differs from the paper, is in
lab/bench/src/rules/README.md.

## The paper's table, continued

A carrier's rules, packets drawn over all of them.";

const CACHES: &str = "\
## What is in the caches

Warm: packets of 256 conversations, again and again. Spread: packets drawn over all rules. Cold: \
so, and
before each batch of 32 other memory has been gone through, eight times as much as the processor's
second-level cache holds.";

const LOADING: &str = "\
## Loading

Taking the rules in, in one thread, and the memory that they take.";

/// Writes the whole report.
pub(super) fn write(report: &mut Report, results: &Results) {
    #[derive(Serialize)]
    struct Data<'a> {
        batch: usize,
        paper: Vec<Published>,
        #[serde(flatten)]
        results: &'a Results,
    }
    #[derive(Serialize)]
    struct Published {
        rules: u64,
        qns_ns: f64,
        linear_ns: f64,
    }
    report.text(INTRODUCTION);
    report.table(papers_table(results));
    report.plot(plot(results, Sort::Carrier, "", "ns a lookup, a carrier's rules", |size| {
        size.spread_ns.median
    }));
    report.text(CACHES);
    for sort in Sort::ALL {
        report.text(format!("Rules: {}.", sort.name()));
        report.table(caches_table(results, sort));
    }
    let title = "ns a lookup, scattered rules";
    let scattered = |size: &Size| size.spread_ns.median;
    report.plot(plot(results, Sort::Scattered, "scattered", title, scattered));
    report.plot(plot(results, Sort::Carrier, "cold", "ns a lookup, cold caches", |size| {
        size.cold_ns.median
    }));
    report.text(LOADING);
    report.table(loading_table(results));
    if let Some(replace) = &results.replace_us {
        let median = replace.median;
        report.text(format!(
            "Putting the largest set into a running engine: {median:.1} microseconds."
        ));
    }
    let published =
        |&(rules, qns_ns, linear_ns): &(u64, f64, f64)| Published { rules, qns_ns, linear_ns };
    let paper = paper::TABLE.iter().map(published).collect();
    report.data(&Data { batch: BATCH, paper, results });
}

fn name(size: &Size) -> String {
    format!("{}{}", size.finder, if size.batched { ", batched" } else { "" })
}

/// Names of the measured finders, in order.
fn names(results: &Results) -> Vec<String> {
    let mut names = Vec::new();
    for size in &results.sizes {
        if !names.contains(&name(size)) {
            names.push(name(size));
        }
    }
    names
}

fn counts(results: &Results) -> Vec<u64> {
    let mut counts: Vec<u64> = results.sizes.iter().map(|size| size.rules).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn find<'a>(results: &'a Results, sort: Sort, way: &str, rules: u64) -> Option<&'a Size> {
    let mut sizes = results.sizes.iter();
    sizes.find(|size| size.sort == sort && size.rules == rules && name(size) == way)
}

fn papers_table(results: &Results) -> Table {
    let counts = counts(results);
    let header = counts.iter().map(u64::to_string);
    let mut table = Table::new(std::iter::once("rules".to_string()).chain(header));
    let published = |figure: fn(&(u64, f64, f64)) -> f64| {
        let cell = move |rules: &u64| {
            let row = paper::TABLE.iter().find(|row| row.0 == *rules);
            row.map_or(String::new(), |row| format!("{:.0}", figure(row)))
        };
        counts.iter().map(cell)
    };
    table.push(std::iter::once("paper: QNS".into()).chain(published(|row| row.1)));
    table.push(std::iter::once("paper: linear".into()).chain(published(|row| row.2)));
    for way in names(results) {
        let cell = |rules: &u64| {
            let size = find(results, Sort::Carrier, &way, *rules);
            size.map_or(String::new(), |size| format!("{:.1}", size.spread_ns.median))
        };
        table.push(std::iter::once(way.clone()).chain(counts.iter().map(cell)));
    }
    table
}

fn caches_table(results: &Results, sort: Sort) -> Table {
    let mut table = Table::new(["way", "rules", "warm", "spread", "cold"]);
    for way in names(results) {
        for rules in counts(results) {
            let Some(size) = find(results, sort, &way, rules) else { continue };
            let figures = [size.warm_ns, size.spread_ns, size.cold_ns];
            let cells = figures.map(|figure| format!("{:.1}", figure.median));
            table.push([way.clone(), rules.to_string()].into_iter().chain(cells));
        }
    }
    table
}

fn loading_table(results: &Results) -> Table {
    let mut table = Table::new(["way", "rules", "number", "milliseconds", "bytes a rule"]);
    for load in &results.loads {
        table.push([
            load.finder.to_string(),
            load.sort.name().to_string(),
            load.rules.to_string(),
            format!("{:.2}", load.load_ms),
            format!("{:.0}", load.bytes_per_rule),
        ]);
    }
    table
}

fn plot(
    results: &Results,
    sort: Sort,
    file: &str,
    title: &str,
    figure: impl Fn(&Size) -> f64,
) -> Plot {
    let line = |way: String| {
        let sizes =
            counts(results).into_iter().filter_map(|rules| find(results, sort, &way, rules));
        let points = sizes.map(|size| (size.rules as f64, figure(size))).collect();
        Series::new(&way, Style::Line, points)
    };
    let mut series: Vec<Series> = names(results).into_iter().map(line).collect();
    series.push(Series::new("paper: QNS", Style::Points, paper::qns()));
    series.push(Series::new("paper: linear", Style::Points, paper::linear()));
    Plot {
        name: file.into(),
        title: title.into(),
        x: Axis::log("rules"),
        y: Axis::log("nanoseconds"),
        series,
    }
}
