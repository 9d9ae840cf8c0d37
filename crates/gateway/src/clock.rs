//! The time that the translator is told: nanoseconds since 1970, going forward steadily.

use natgate_engine::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
    }
}
