//! Times at which something arrived, and the gaps between them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Times closer together are one.
const RESOLUTION: Duration = Duration::from_millis(1);

/// Times of arrivals, in order. Clones have the same times.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals(Arc<Mutex<Vec<Instant>>>);

impl Arrivals {
    /// Notes an arrival now.
    pub(super) fn note(&self) {
        let now = Instant::now();
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if times.last().is_none_or(|last| now.duration_since(*last) >= RESOLUTION) {
            times.push(now);
        }
    }

    /// The longest time without an arrival between two instants.
    pub(super) fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = times.iter().copied().filter(|time| (from..=to).contains(time));
        let mut last = from;
        let mut longest = Duration::ZERO;
        for time in inside.chain([to]) {
            longest = longest.max(time.duration_since(last));
            last = time;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_includes_both_ends() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let arrivals = Arrivals(Arc::new(Mutex::new([10, 30, 90, 100].map(at).to_vec())));
        let gap = |from, to| arrivals.longest_gap(at(from), at(to)).as_millis();
        assert_eq!(gap(0, 100), 60);
        assert_eq!(gap(0, 300), 200);
        assert_eq!(gap(95, 99), 4, "nothing arrived");
        assert_eq!(gap(30, 95), 60);
    }
}
