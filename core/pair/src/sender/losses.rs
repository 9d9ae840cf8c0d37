//! When a packet counts as lost: the rules of QUIC (RFC 9002, sections 5.3 and 6) for a stream of
//! records.
//!
//! A packet is lost if a later one is confirmed, and it is older than confirmations are on this
//! link. If no later one is confirmed, only time tells: then the oldest packets are repeated, and
//! the confirmation of the repetition tells what else was lost. So a partner that stands still gets
//! some packets again, not all of the window.

use super::{Flying, Sender};
use alloc::vec::Vec;

/// Packets after which an unconfirmed one counts as lost, if they are confirmed.
const REORDERED: u64 = 3;

/// Least difference between two times that are told apart, nanoseconds.
const GRANULARITY: u64 = 1_000_000;

/// Time for which an observation of disorder counts, and the longest disorder that counts beyond
/// two round trips, nanoseconds. One packet that was very late must not delay repetitions for long.
const REMEMBERED: u64 = 10_000_000_000;
const MOST_DISORDER: u64 = 10_000_000;

/// Packets that one look repeats because of their time.
const REPEATED: usize = 2;

/// Such repetitions without a confirmation before their time doubles, and its most doublings.
const PATIENT: u32 = 3;
const MOST_DOUBLINGS: u32 = 10;

/// Longest time after which the oldest packet is repeated, unless confirmations take longer.
const MOST: u64 = 2_000_000_000;

/// Longest time that counts as that of a link, nanoseconds: longer ones are those of a node that
/// stood still.
const MOST_MEASURED: u64 = 500_000_000;

/// How long confirmations take on this link; nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Measured {
    latest: u64,
    smoothed: u64,
    variation: u64,
}

/// What a sender knows of the times of confirmations.
#[derive(Debug, Default)]
pub(super) struct Losses {
    measured: Option<Measured>,
    /// The longest time after which a packet was confirmed that others had overtaken, and the time
    /// of that.
    disorder: u64,
    disordered_at: u64,
    /// Time of the last packet that arrived, or that was repeated because of its time; and the
    /// repetitions since one arrived.
    quiet_since: u64,
    repetitions: u32,
}

impl Losses {
    /// Time until a packet was confirmed, with no later one before it.
    pub(super) fn measure(&mut self, latest: u64) {
        let latest = latest.min(MOST_MEASURED);
        let measured = match self.measured {
            None => Measured { latest, smoothed: latest, variation: latest / 2 },
            Some(Measured { smoothed, variation, .. }) => Measured {
                latest,
                smoothed: smoothed - smoothed / 8 + latest / 8,
                variation: variation - variation / 4 + smoothed.abs_diff(latest) / 4,
            },
        };
        self.measured = Some(measured);
    }

    /// A packet was confirmed after this time although a later one was before it.
    pub(super) fn note_overtaken(&mut self, took: u64, now: u64) {
        let is_old = now.saturating_sub(self.disordered_at) > REMEMBERED;
        if is_old || took >= self.disorder {
            (self.disorder, self.disordered_at) = (took, now);
        }
    }

    pub(super) fn note_arrived(&mut self, now: u64) {
        (self.quiet_since, self.repetitions) = (now, 0);
    }

    /// Ages from which a packet is lost if [`REORDERED`] later ones are confirmed, and if any is.
    /// QUIC looks at no age in the first case. Here the packets of a busy stream are closer to each
    /// other than the times of some links are equal: those that others overtake would be repeated,
    /// and make the stream busier. So the longest time of such a packet counts, within bounds, and
    /// an eighth more: then the next one may take a little longer, and is noticed.
    fn overtaken(&self, now: u64) -> (u64, u64) {
        let Some(Measured { latest, smoothed, variation }) = self.measured else {
            return (0, u64::MAX);
        };
        let is_present = now.saturating_sub(self.disordered_at) <= REMEMBERED;
        let disorder = if is_present { self.disorder.saturating_add(self.disorder / 8) } else { 0 };
        let disorder = disorder.min(MOST_DISORDER.saturating_add(2 * smoothed));
        let long = smoothed.max(latest);
        let margin = (4 * variation).max(long / 8).max(GRANULARITY);
        (disorder.max(smoothed), disorder.max(long.saturating_add(margin)))
    }

    /// Time without a confirmation after which the oldest packets are repeated.
    fn timeout(&self, (round_trip, delay): (u64, u64)) -> u64 {
        let first =
            Measured { latest: round_trip, smoothed: round_trip, variation: round_trip / 2 };
        let Measured { smoothed, variation, .. } = self.measured.unwrap_or(first);
        let margin = (4 * variation).max(GRANULARITY);
        let time = smoothed.saturating_add(margin).saturating_add(delay);
        let doublings = self.repetitions.saturating_sub(PATIENT - 1).min(MOST_DOUBLINGS);
        time.saturating_mul(1 << doublings).min(MOST.max(time))
    }
}

impl Sender {
    /// Looks for packets that are lost, because of the time: to be called regularly. `round_trip`
    /// is that of the link, and counts until the first confirmation. A partner waits for `delay` at
    /// most before it confirms a packet. Nanoseconds.
    pub fn time_out(&mut self, now: u64, (round_trip, delay): (u64, u64)) {
        self.lose_overtaken(now);
        self.lose_all_long(now);
        let is_short = |flying: &Flying| !flying.is_settled && flying.long.is_none();
        if let Some(first) = self.flying.iter().position(is_short) {
            let since = self.losses.quiet_since.max(self.flying[first].sent);
            if now.saturating_sub(since) >= self.losses.timeout((round_trip, delay)) {
                self.losses.quiet_since = now;
                self.losses.repetitions = self.losses.repetitions.saturating_add(1);
                let all = self.flying.iter().enumerate().skip(first);
                let oldest = all.filter(|(_, flying)| is_short(flying)).take(REPEATED);
                let oldest: Vec<usize> = oldest.map(|(at, _)| at).collect();
                oldest.into_iter().for_each(|at| self.lose(at));
            }
        }
        self.advance();
    }

    /// Packets that later ones have overtaken count as lost, once they are old enough.
    pub(super) fn lose_overtaken(&mut self, now: u64) {
        let (of_some, of_any) = self.losses.overtaken(now);
        for at in 0..self.flying.len() {
            let flying = &self.flying[at];
            let age = now.saturating_sub(flying.sent);
            if age < of_some {
                break;
            }
            if flying.is_settled || flying.long.is_some() {
                continue;
            }
            let number = self.floor + at as u64;
            let waits = |bit: &usize| flying.confirmed & 1 << bit == 0;
            let readers = (0..self.readers.len()).filter(waits);
            let greatest = readers.map(|bit| self.readers[bit].greatest).max().unwrap_or(0);
            let later = greatest.saturating_sub(number);
            if later >= REORDERED || later > 0 && age >= of_any {
                self.lose(at);
            }
        }
    }
}
