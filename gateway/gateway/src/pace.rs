//! Limits on events in time: at most so many in a second.

use natgate_engine::Timestamp;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A limit on events in each second.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    began: Timestamp,
    count: u32,
}

impl Rate {
    /// Counts one event; returns false if there were `most` in this second.
    pub(crate) fn take(&mut self, now: Timestamp, most: u32) -> bool {
        if now.since(self.began) >= SECOND {
            *self = Self { began: now, count: 0 };
        }
        let is_left = self.count < most;
        self.count += u32::from(is_left);
        is_left
    }
}

/// Evenly spaced events, a second's worth of which may come at once (GCRA).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    spacing: Duration,
    /// Time at which the events so far would be due with even spacing.
    due: Timestamp,
}

impl Pace {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { spacing: SECOND / per_second.max(1), due: Timestamp::default() }
    }

    /// Sets another rate; events so far count.
    pub(crate) fn renew(&mut self, per_second: u32) {
        self.spacing = Self::new(per_second).spacing;
    }

    /// True if one more event may be now.
    pub(crate) fn permits(&self, now: Timestamp) -> bool {
        self.due.plus(self.spacing) <= now.plus(SECOND)
    }

    /// Counts an event.
    pub(crate) fn count(&mut self, now: Timestamp) {
        self.due = self.due.max(now).plus(self.spacing);
    }
}
