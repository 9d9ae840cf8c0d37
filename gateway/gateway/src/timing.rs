//! How long a worker's turns take: histograms of few buckets, filled once a turn from the two times
//! that the loop takes anyway.
//!
//! Nothing is timed for a packet or a mapping alone. A turn's time is what its last packet has
//! waited; divided by its packets it is what one costs, and a turn in which mappings were made,
//! divided by them, is the most that making one has cost. Buckets are powers of two, so that
//! finding one takes one instruction.

use crate::single_writer::add;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first bucket holds what took 2^4 = 16 ns or less, the last but one 2^24 ns = 17 ms or less,
/// the last the rest.
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

/// The bucket of a duration.
fn bucket(ns: u64) -> usize {
    let bits = u64::BITS - ns.saturating_sub(1).leading_zeros();
    (bits.clamp(FIRST, LAST + 1) - FIRST) as usize
}

/// How long a worker's turns took.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    turn: DurationHistogram,
    packet: DurationHistogram,
    creation: DurationHistogram,
}

impl Timing {
    /// Notes a turn in which so many packets came, at least one, and so many mappings were made.
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

/// How long a worker's turns have taken at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimingNow {
    /// Turns in which packets came.
    pub turn: Durations,
    /// The same, each divided by its packets.
    pub packet: Durations,
    /// Those in which mappings were made, each divided by them.
    pub creation: Durations,
}

/// Durations, counted by length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many there were of each length.
    counts: [u64; BUCKETS],
    /// All together, nanoseconds.
    pub sum_ns: u64,
}

impl Durations {
    /// How many took so many nanoseconds or less, for each length that is told apart, ascending.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut all = 0;
        (FIRST..=LAST).zip(&self.counts).map(move |(bits, count)| {
            all += count;
            (1 << bits, all)
        })
    }

    /// How many there were.
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
