//! Schedule of announcements that mappings may have been lost: ten announcements, each interval
//! twice the one before (RFC 6887 section 14.1.3, RFC 6886 section 3.2.1).

use natgate_engine::Timestamp;
use std::time::Duration;

const TIMES: u32 = 10;
const FIRST: Duration = Duration::from_millis(250);

/// Schedule of the announcements that are due.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    next: Option<Timestamp>,
    sent: u32,
}

impl Announcer {
    /// Begins, or begins again.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        (self.next, self.sent) = (Some(now), 0);
    }

    /// Stops the announcements.
    pub(crate) fn stop(&mut self) {
        self.next = None;
    }

    /// Returns true if an announcement is to be sent now.
    //= rfc6887#section-14.1.3-interval
    //= rfc6886#section-3.2.1-repeat
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        self.sent += 1;
        let interval = FIRST * 2u32.pow(self.sent - 1);
        self.next = (self.sent < TIMES).then(|| now.plus(interval));
        true
    }

    /// Time of the next announcement.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= test rfc6887#section-14.1.3-interval
    //= test rfc6886#section-3.2.1-repeat
    #[test]
    fn ten_times_and_ever_more_seldom() {
        let mut announcer = Announcer::default();
        assert!(!announcer.is_due(Timestamp(0)) && announcer.next().is_none());
        announcer.begin(Timestamp(0));
        let mut times = Vec::new();
        while let Some(next) = announcer.next() {
            assert!(announcer.is_due(next) && !announcer.is_due(next));
            times.push(next.0 / 1_000_000);
        }
        assert_eq!(times, [0, 250, 750, 1750, 3750, 7750, 15_750, 31_750, 63_750, 127_750]);
        announcer.begin(Timestamp(5));
        announcer.stop();
        assert!(!announcer.is_due(Timestamp(9)));
    }
}
