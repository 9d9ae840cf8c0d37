//! The translator's clock: nanoseconds since 1970, without steps.

use natgate_engine::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Number of comparisons of two clocks.
const TRIES: usize = 3;

/// A clock that is right at its creation and never steps. Later corrections of the system's clock
/// do not affect it, so no timer fires early or twice.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begin: Instant,
    offset: u64,
}

impl Clock {
    /// Creates a clock that starts at the system's time.
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        Self { begin: Instant::now(), offset }
    }

    /// Creates a clock that shows `time` now.
    pub(crate) fn at(time: Timestamp) -> Self {
        Self { begin: Instant::now(), offset: time.0 }
    }

    /// Reads the clock.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.offset).plus(self.begin.elapsed())
    }

    /// Lead of the system's clock over this one, nanoseconds; negative if the system's clock is
    /// behind.
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
        // The thread may be interrupted between two readings. The shortest try was not interrupted.
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
        // A test may rely on this: the system's clock does not step by a minute while it runs.
        assert!(clock.ahead().abs() < 60_000_000_000);
        let late = Clock::at(Timestamp(first.0 - 3_600_000_000_000));
        assert!(late.ahead() > 3_500_000_000_000);
    }
}
