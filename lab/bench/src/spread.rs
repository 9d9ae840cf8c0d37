//! Repeated measurements: the median, and the distance of the other values.

use serde::Serialize;

/// Order statistics of repeated measurements of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Smallest value.
    pub min: f64,
    /// 10th percentile.
    pub p10: f64,
    /// Median; of an even number of values the mean of the middle two.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Largest value.
    pub max: f64,
    /// Number of measurements.
    pub runs: usize,
}

impl Spread {
    /// Order statistics of `values`, in any order; all zero if there are none.
    pub fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        let mut at = |share| percentile(&mut values, share);
        Self {
            min: at(0.0),
            p10: at(0.1),
            p90: at(0.9),
            max: at(1.0),
            median: median(&values),
            runs: values.len(),
        }
    }
}

/// Median of sorted values.
fn median(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(value), 0) => values[middle - 1].midpoint(*value),
        (Some(value), _) => *value,
        (None, _) => 0.0,
    }
}

/// Returns the percentile `share` of the values, 0 if there are none; sorts the values.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    if !values.is_sorted() {
        values.sort_by(f64::total_cmp);
    }
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_are_of_the_sorted_values() {
        let spread = Spread::of(&[3.0, 1.0, 2.0, 5.0, 4.0]);
        assert_eq!((spread.min, spread.median, spread.max, spread.runs), (1.0, 3.0, 5.0, 5));
        assert_eq!(Spread::of(&[]).median, 0.0);
        assert_eq!(Spread::of(&[9.0]).median, 9.0);
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }
}
