//! Percentiles as RFC 2330 section 11.3 defines them, and their summaries over repetitions
//! (RFC 8219 section 12).

use serde::Serialize;

/// A figure's median and variation over the repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Median; of an even number of values the mean of the middle two.
    pub median: f64,
    /// 1st percentile.
    pub p1: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Number of repetitions.
    pub runs: usize,
}

impl Summary {
    /// Summarizes values in any order; all zero if there are none.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        Self {
            median: median(&values),
            p1: percentile(&values, 0.01),
            p99: percentile(&values, 0.99),
            runs: values.len(),
        }
    }
}

/// The smallest of the sorted values that a share of them does not exceed; 0 if there are none.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    // The product of a share and a number may exceed a whole number by a rounding error.
    let rank = (sorted.len() as f64 * share - 1e-9).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Median of sorted values; 0 if there are none.
pub(super) fn median(sorted: &[f64]) -> f64 {
    match (sorted.len() / 2, sorted.len() % 2) {
        (0, 0) => 0.0,
        (middle, 0) => sorted[middle - 1].midpoint(sorted[middle]),
        (middle, _) => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(
            [0.0, 0.01, 0.5, 0.999, 1.0].map(|share| percentile(&values, share)),
            [1.0, 10.0, 500.0, 999.0, 1000.0]
        );
        let few = [-5.0, -2.0, 4.0, 7.0, 7.0, 18.0];
        assert_eq!([0.25, 0.5, 0.6].map(|share| percentile(&few, share)), [-2.0, 4.0, 7.0]);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn twenty_repetitions_have_their_least_and_largest_value_as_percentiles() {
        let values: Vec<f64> = (0..20).rev().map(f64::from).collect();
        let Summary { median, p1, p99, runs } = Summary::of(&values);
        assert_eq!((median, p1, p99, runs), (9.5, 0.0, 19.0, 20));
        assert_eq!(Summary::of(&[]), Summary::default());
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).median, 2.0);
    }
}
