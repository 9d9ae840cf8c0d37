//! The engine's time, and the ticks of its timers.

use core::time::Duration;

/// Nanoseconds since an epoch of the caller's choosing (captures: 1970).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This time plus a duration.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The duration since an earlier time; zero if it is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in nanoseconds, at most 584 years.
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// Length of a timer tick. A timed action happens at the first tick that is not before its time: at
/// most an eighth of a second late, never early.
pub const TICK: Duration = Duration::from_millis(125);
