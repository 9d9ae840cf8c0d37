//! Rates: limits for events and for reports.

/// Shortest time between two reports of a subscriber's refusals, and of a pool's exhaustion,
/// nanoseconds.
pub(crate) const REPORT_INTERVAL: u64 = 1_000_000_000;

/// The generic cell rate algorithm: evenly spaced events, and a burst of one second's worth.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    due: u64,
}

impl Rate {
    pub(crate) const SECOND: u64 = 1_000_000_000;

    /// A rate without events so far.
    pub(crate) const NEW: Self = Self { due: 0 };

    /// True if one more event is within the rate of `per_second`.
    pub(crate) fn permits(self, now: u64, per_second: u32) -> bool {
        self.permits_spaced(now, Self::spacing(per_second), Self::SECOND)
    }

    /// True if one more event is within a rate. `spacing` is the time between events, and `burst`
    /// the part of it that may come at once, both nanoseconds.
    pub(crate) fn permits_spaced(self, now: u64, spacing: u64, burst: u64) -> bool {
        self.is_due(Self::latest_due(now, spacing, burst))
    }

    /// The latest `due` that permits an event now.
    pub(crate) fn latest_due(now: u64, spacing: u64, burst: u64) -> u64 {
        now.saturating_add(burst - spacing)
    }

    /// True if the next event is due by `latest`.
    #[inline(always)]
    pub(crate) fn is_due(self, latest: u64) -> bool {
        self.due <= latest
    }

    /// Number of recent events that still count, by the time between events, nanoseconds.
    pub(crate) fn of_late(self, now: u64, spacing: u64) -> u64 {
        self.due.saturating_sub(now).div_ceil(spacing)
    }

    /// True if no recent event counts any more.
    pub(crate) fn is_fresh(self, now: u64) -> bool {
        self.due <= now
    }

    /// Counts an event.
    pub(crate) fn count(&mut self, now: u64, per_second: u32) {
        self.count_spaced(now, Self::spacing(per_second));
    }

    /// Counts an event; `spacing` is the time between events, nanoseconds.
    pub(crate) fn count_spaced(&mut self, now: u64, spacing: u64) {
        self.due = self.due.max(now) + spacing;
    }

    /// The time between events at a rate, nanoseconds.
    pub(crate) fn spacing(per_second: u32) -> u64 {
        Self::SECOND / u64::from(per_second.max(1))
    }
}
