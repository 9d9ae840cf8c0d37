//! Durations of a worker's turns: histograms with few buckets, filled once a turn from the two
//! times that the loop reads anyway.
//!
//! No packet or mapping is timed alone. The duration of a turn is the wait of its last packet.
//! Divided by the turn's packets it is the cost of one packet. In a turn that made mappings, the
//! duration divided by them is an upper bound of the cost of making one. Buckets are powers of two,
//! so that finding one takes one instruction.

use crate::single_writer::add;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first bucket holds durations up to 2^4 = 16 ns, the last but one up to 2^24 ns = 17 ms, the
/// last all longer ones.
const FIRST: u32 = 4;
const LAST: u32 = 24;
const BUCKETS: usize = (LAST - FIRST) as usize + 2;

/// Durations, counted by length. One thread writes.
#[derive(Debug, Default)]
struct DurationHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl DurationHistogram {
    fn note(&self, ns: u64) {
        add(&self.buckets[bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }

    fn now(&self) -> Durations {
        Durations {
            counts: array::from_fn(|place| self.buckets[place].load(Ordering::Relaxed)),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

/// Bucket of a duration.
fn bucket(ns: u64) -> usize {
    let bits = u64::BITS - ns.saturating_sub(1).leading_zeros();
    (bits.clamp(FIRST, LAST + 1) - FIRST) as usize
}

/// Durations of a worker's turns.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    turn: DurationHistogram,
    packet: DurationHistogram,
    creation: DurationHistogram,
}

impl Timing {
    /// Counts a turn with at least one packet; `made` is the number of mappings made in it.
    pub(crate) fn note(&self, ns: u64, packets: u64, made: u64) {
        self.turn.note(ns);
        self.packet.note(ns / packets);
        if let Some(each) = ns.checked_div(made) {
            self.creation.note(each);
        }
    }

    pub(crate) fn now(&self) -> TimingNow {
        TimingNow {
            turn: self.turn.now(),
            packet: self.packet.now(),
            creation: self.creation.now(),
        }
    }
}

/// Durations of a worker's turns at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimingNow {
    /// Durations of turns in which packets came.
    pub turn: Durations,
    /// Durations of these turns, each divided by its packets.
    pub packet: Durations,
    /// Durations of turns that made mappings, each divided by the mappings.
    pub creation: Durations,
}

/// Durations, counted by length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Number of durations in each bucket.
    counts: [u64; BUCKETS],
    /// Sum of all durations, nanoseconds.
    pub sum_ns: u64,
}

impl Durations {
    /// For each bucket bound, ascending: the bound in nanoseconds, and the number of durations up
    /// to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut all = 0;
        (FIRST..=LAST).zip(&self.counts).map(move |(bits, count)| {
            all += count;
            (1 << bits, all)
        })
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_not_longer_than_its_bound() {
        for (ns, expected) in
            [(0, 0), (16, 0), (17, 1), (32, 1), (33, 2), (1 << 24, 20), ((1 << 24) + 1, 21)]
        {
            assert_eq!(bucket(ns), expected, "{ns} ns");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_turn_is_noted_whole_for_each_packet_and_for_each_mapping() {
        let timing = Timing::default();
        timing.note(6400, 64, 0);
        timing.note(6400, 1, 2);
        let now = timing.now();
        assert_eq!((now.turn.count(), now.turn.sum_ns), (2, 12_800));
        assert_eq!((now.packet.count(), now.packet.sum_ns), (2, 6500));
        assert_eq!((now.creation.count(), now.creation.sum_ns), (1, 3200));
        let within = |durations: &Durations, ns| {
            durations.cumulative().find(|(bound, _)| *bound == ns).map(|(_, count)| count)
        };
        assert_eq!(within(&now.packet, 64), Some(0));
        assert_eq!(within(&now.packet, 128), Some(1));
        assert_eq!(within(&now.packet, 8192), Some(2));
        assert_eq!(within(&now.turn, 4096), Some(0));
    }
}
