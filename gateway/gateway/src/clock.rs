//! The time that the translator is told: nanoseconds since 1970, going forward steadily.

use natgate_engine::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How often two clocks are read to compare them.
const TRIES: usize = 3;

/// A clock that was right when it was made and never steps: later corrections of the system's clock
/// do not reach it, so that no timer fires early or twice.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begin: Instant,
    offset: u64,
}

impl Clock {
    /// A clock that starts at the system's time.
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        Self { begin: Instant::now(), offset }
    }

    /// A clock that tells this time now.
    pub(crate) fn at(time: Timestamp) -> Self {
        Self { begin: Instant::now(), offset: time.0 }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.offset).plus(self.begin.elapsed())
    }

    /// How far the system's clock is ahead of this one now, nanoseconds; negative: behind.
    pub fn ahead(&self) -> i64 {
        let read = |_| {
            let before = self.now();
            let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let system = u64::try_from(system.as_nanos()).unwrap_or(u64::MAX);
            let after = self.now();
            let middle = before.0 + after.since(before).as_nanos() as u64 / 2;
            let ahead = i128::from(system) - i128::from(middle);
            let ahead = ahead.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            (after.since(before), ahead)
        };
        // The thread may be interrupted between two readings; the shortest try was not.
        (0..TRIES).map(read).min().map_or(0, |(_, ahead)| ahead)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_1970_and_goes_forward() {
        let clock = Clock::new();
        let first = clock.now();
        // 2020-01-01: no machine that builds this has an earlier date.
        assert!(first.0 > 1_577_836_800_000_000_000);
        assert!(clock.now() >= first);
        // Nobody sets the clock by so much while a test runs.
        assert!(clock.ahead().abs() < 60_000_000_000);
        let late = Clock::at(Timestamp(first.0 - 3_600_000_000_000));
        assert!(late.ahead() > 3_500_000_000_000);
    }
}
