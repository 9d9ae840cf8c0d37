//! Targets of the project for a pair, with the measured values.

use super::{PRICED, Results, Run, median, part_of_a_worker};
use natgate_lab::report::Table;
use serde::Serialize;

/// Longest silences of the call, milliseconds: routers are told, or make requests.
const TOLD_MS: f64 = 200.0;
pub(super) const ASKED_MS: f64 = 300.0;

/// Longest lag, milliseconds.
pub(super) const LAG_MS: f64 = 50.0;

/// Least share of mappings that keep their endpoint, percent.
const KEPT: f64 = 99.99;

/// Most bytes of a record, and the largest part of a worker that the copy takes, percent.
const BYTES: f64 = 100.0;
const PRICE: f64 = 5.0;

/// Numbers of mappings that join, and the longest time of that, milliseconds.
const JOINS: [(u32, f64); 2] = [(1_000_000, 1_000.0), (10_000_000, 10_000.0)];

/// A target and its result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Target {
    what: String,
    /// Highest value, or with `at_least` the lowest.
    wanted: f64,
    at_least: bool,
    /// Measured value; `None` if it was not measured.
    found: Option<f64>,
    reached: Option<bool>,
}

/// The targets. Of several losses on the link, the one with the worst median counts.
pub(super) fn targets(results: &Results) -> Vec<Target> {
    let target = |what: &str, wanted, found: Option<f64>| Target {
        what: what.to_owned(),
        wanted,
        at_least: false,
        found,
        reached: found.map(|found| found <= wanted),
    };
    let worst = |is_its: fn(&Run) -> bool, read: fn(&Run) -> f64| {
        let losses = results.runs.iter().map(|run| run.loss_percent);
        let of_loss = |loss| {
            let runs = results.runs.iter().filter(|run| run.loss_percent == loss && is_its(run));
            median(runs.map(read))
        };
        losses.filter_map(of_loss).reduce(f64::max)
    };
    let share = |run: &Run| run.kept as f64 / f64::from(results.mappings) * 100.0;
    let kept = results.runs.iter().map(share).reduce(f64::min);
    let lost = results.runs.iter().map(|run| run.lost_on_return).reduce(|sum, one| sum + one);
    let price = part_of_a_worker(&results.prices, results.rate);
    let joined = median(results.joins.iter().map(|join| join.copied_ms));
    let join = JOINS.iter().find(|(mappings, _)| *mappings == results.mappings);
    let mut targets = vec![
        Target {
            at_least: true,
            reached: kept.map(|kept| kept >= KEPT),
            ..target("mappings that keep their endpoint, percent, least of all runs", KEPT, kept)
        },
        target("call silent, ms, routers told", TOLD_MS, worst(|run| run.told, |run| run.call_ms)),
        target(
            "call silent, ms, routers by requests",
            ASKED_MS,
            worst(|run| !run.told, |run| run.call_ms),
        ),
        target("packets lost on return, all runs", 0.0, lost.map(|lost| lost as f64)),
        target("lag of 99 of 100 changes, ms", LAG_MS, worst(|_| true, |run| run.lag_p99_ms)),
        target("bytes a record", BYTES, worst(|_| true, |run| run.bytes_a_record)),
    ];
    if results.rate == PRICED.0 {
        targets.push(target("part of a worker that the copy takes, percent", PRICE, price));
    }
    targets.extend(join.map(|(_, wanted)| target("join, ms", *wanted, joined)));
    targets
}

pub(super) fn table(targets: &[Target]) -> Table {
    let mut table = Table::new(["target", "wanted", "found", ""]);
    for Target { what, wanted, at_least, found, reached } in targets {
        let bound = if *at_least { "at least" } else { "at most" };
        let word = match reached {
            Some(true) => "reached",
            Some(false) => "not reached",
            None => "not measured",
        };
        table.push([
            what.clone(),
            format!("{bound} {wanted}"),
            found.map_or("-".into(), |found| format!("{found:.2}")),
            word.to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_lab::copies::{Join, Price};

    #[test]
    fn the_worst_loss_counts_and_a_miss_is_told() {
        let run = |loss_percent, told, call_ms| Run {
            loss_percent,
            told,
            noticed_ms: 100.0,
            call_ms,
            call_lost: 3,
            download_ms: 200.0,
            kept: 999_950,
            other: 0,
            silent: 50,
            bytes_a_record: 98.0,
            lag_p99_ms: 10.0 + f64::from(loss_percent),
            oldest_p99_ms: 20.0,
            copied_ms: 500.0,
            lost_on_return: 0,
        };
        let price = Price { alone_ns: 800.0, active_ns: 1400.0, partner_ns: 1500.0 };
        let join = |copied_ms| Join {
            mappings: 1_000_000,
            copied_ms,
            owner_ns: 400.0,
            partner_ns: 700.0,
            links_ns: 600.0,
            packets: 70_000,
            lost: 0,
        };
        let mut results = Results {
            mappings: 1_000_000,
            runs: vec![run(0, false, 250.0), run(20, false, 310.0), run(0, true, 150.0)],
            rate: PRICED.0,
            prices: vec![price],
            joins: vec![join(900.0), join(1300.0), join(990.0)],
            failed: vec![],
            targets: vec![],
        };
        let found = |results: &Results| -> Vec<_> {
            targets(results).iter().map(|target| (target.found, target.reached)).collect()
        };
        let [yes, no] = [Some(true), Some(false)];
        let expected = [
            (Some(99.995), yes),
            (Some(150.0), yes),
            (Some(310.0), no),
            (Some(0.0), yes),
            (Some(30.0), yes),
            (Some(98.0), yes),
            (Some(6.0), no),
            (Some(990.0), yes),
        ];
        assert_eq!(found(&results), expected);
        (results.runs, results.prices, results.joins) = (vec![], vec![], vec![]);
        assert_eq!(found(&results), [(None, None); 8]);
        (results.rate, results.mappings) = (10_000, 100_000);
        assert_eq!(targets(&results).len(), 6, "these targets are of other numbers");
    }
}
