//! Repeated measurements: the middle, and how far the others lie from it.

use serde::Serialize;

/// Order statistics of repeated measurements of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// A tenth are at most this.
    pub p10: f64,
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// Nine tenths are.
    pub p90: f64,
    /// Largest.
    pub max: f64,
    /// How many there were.
    pub runs: usize,
}

impl Spread {
    /// The order statistics of `values`, in any order; all zero when there are none.
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

/// The middle of what is sorted.
fn median(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(value), 0) => values[middle - 1].midpoint(*value),
        (Some(value), _) => *value,
        (None, _) => 0.0,
    }
}

/// The value that this share of all is not above, 0 when there are none; sorts them.
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
