//! Delay of a packet in one process. The gateway has devices in memory, and the processor's counter
//! is read at both ends. The delay is the gateway's alone, precise to some tens of cycles.

use super::Plan;
use crate::p4::{Running, Subject};
use crate::spread::{Spread, percentile};
use indicatif::ProgressBar;
use serde::Serialize;

/// Packets of a repetition. Half as many pass before, because other gateways have used the caches.
const PACKETS: usize = 20_000;
/// Packets in a batch while the mappings are made.
const ROUND: usize = 1 << 12;

/// Delay by a number of entries. Each [`Spread`] is of all repetitions, nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TransitRow {
    /// 0: without NAT.
    pub(super) entries: u32,
    /// Median and 99th percentile of the delay.
    pub(super) p50: Spread,
    pub(super) p99: Spread,
    /// Difference between the median and the median without NAT in the same repetition.
    pub(super) added: Spread,
}

/// Measures all numbers of entries in turns.
pub(super) fn measure(plan: &Plan, cycles_per_ns: f64, bar: &ProgressBar) -> Vec<TransitRow> {
    bar.set_message("delay in one process");
    let mut gateways: Vec<_> = plan
        .delay_entries
        .iter()
        .map(|&entries| match entries {
            0 => Running::new("without NAT", Subject::bypass(), 1, ROUND),
            _ => Running::new("natgate", Subject::natgate(entries), entries, ROUND),
        })
        .collect();
    let turn = |_| -> Vec<[f64; 2]> {
        gateways
            .iter_mut()
            .map(|gateway| {
                gateway.delays(PACKETS / 2);
                let cycles = gateway.delays(PACKETS);
                let mut ns: Vec<_> =
                    cycles.into_iter().map(|cycles| cycles as f64 / cycles_per_ns).collect();
                [0.5, 0.99].map(|share| percentile(&mut ns, share))
            })
            .collect()
    };
    let turns: Vec<_> = (0..plan.turns).map(turn).collect();
    bar.inc(1);
    rows(&plan.delay_entries, &turns)
}

/// The rows of all numbers of entries; `turns` has the median and the 99th percentile of each.
fn rows(entries: &[u32], turns: &[Vec<[f64; 2]>]) -> Vec<TransitRow> {
    let without = entries.iter().position(|entries| *entries == 0);
    let row = |(number, &entries): (usize, &u32)| {
        let of = |value: &dyn Fn(&Vec<[f64; 2]>) -> f64| {
            Spread::of(&turns.iter().map(value).collect::<Vec<_>>())
        };
        let base = |turn: &Vec<[f64; 2]>| without.map_or(0.0, |without| turn[without][0]);
        TransitRow {
            entries,
            p50: of(&|turn| turn[number][0]),
            p99: of(&|turn| turn[number][1]),
            added: of(&|turn| turn[number][0] - base(turn)),
        }
    };
    entries.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_translation_adds_is_told_within_a_repetition() {
        // The machine is slower in the second repetition.
        let turns = [vec![[100.0, 200.0], [150.0, 300.0]], vec![[400.0, 900.0], [460.0, 950.0]]];
        let rows = rows(&[0, 20], &turns);
        assert_eq!((rows[0].added.max, rows[1].added.min, rows[1].added.max), (0.0, 50.0, 60.0));
        assert_eq!((rows[1].p50.min, rows[1].p99.max, rows[1].p50.runs), (150.0, 950.0, 2));
    }
}
