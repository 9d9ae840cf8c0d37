//! The lead of the partner's clock, and the question for it, whose answer has the partner's time:
//! nanoseconds since 1970 in little-endian order.

use crate::limits::COMPARE;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reads this node's clock.
pub(crate) type ReadClock = fn() -> SystemTime;

/// The question.
pub(crate) const QUESTION: &[u8] = b"\x02clock";

/// Periods after which a difference is not known any more.
const PERIODS: u32 = 3;

/// A difference that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    /// Lead of the partner's clock, nanoseconds.
    nanoseconds: i64,
    found: Instant,
}

impl Lead {
    /// A lead that has been found now.
    pub(crate) fn found(nanoseconds: i64) -> Self {
        Self { nanoseconds, found: Instant::now() }
    }

    /// The lead, if it is not too old.
    pub(crate) fn present(self) -> Option<i64> {
        (self.found.elapsed() < PERIODS * COMPARE).then_some(self.nanoseconds)
    }
}

/// The answer to the question.
pub(crate) fn answer(read: ReadClock) -> Vec<u8> {
    u64::try_from(since_1970(read())).unwrap_or(u64::MAX).to_le_bytes().to_vec()
}

/// Nanoseconds since 1970.
pub(crate) fn since_1970(time: SystemTime) -> i128 {
    time.duration_since(UNIX_EPOCH).map_or(0, nanoseconds)
}

/// The nanoseconds of a duration.
pub(crate) fn nanoseconds(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}
