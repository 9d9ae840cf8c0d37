//! What a sender has sent.

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Records, ends included.
    pub records: u64,
    /// Bytes of all packets.
    pub bytes: u64,
    /// Packets that were lost, or confirmed too late.
    pub lost: u64,
    /// Keys that the partner has asked for again.
    pub repaired: u64,
    /// Times that changes have waited for their copy.
    pub waits: Waits,
}

/// Times from changes to their confirmation by all readers: the number of changes in each of some
/// ranges of times, which are at most a quarter of their beginning long. Now and then all numbers
/// are halved: changes of long ago count little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    ranges: [u64; RANGES],
    /// The sum of all.
    all: u64,
}

/// The numbers are halved when this many changes are counted.
const HALVED: u64 = 1 << 20;

/// Ranges of times: four of one [`UNIT`], and four for each doubling after that. The last one has
/// all longer times.
const RANGES: usize = 64;

/// Length of the first ranges, as a power of two, nanoseconds: a quarter of a millisecond.
const UNIT: u32 = 18;

impl Default for Waits {
    fn default() -> Self {
        Self { ranges: [0; RANGES], all: 0 }
    }
}

impl Waits {
    /// Counts the changes of a packet that is confirmed now: some of them have waited since times
    /// of their own, and all others since one time.
    pub(crate) fn note(&mut self, now: u64, (since, all): (u64, usize), own: &[(u32, u64)]) {
        self.add(now.saturating_sub(since), all.saturating_sub(own.len()));
        own.iter().for_each(|(_, since)| self.add(now.saturating_sub(*since), 1));
    }

    /// Counts changes that have waited for a time, nanoseconds.
    fn add(&mut self, time: u64, changes: usize) {
        let units = time >> UNIT;
        let range = match units {
            0..4 => units as usize,
            _ => {
                let doublings = units.ilog2() - 2;
                4 * (doublings as usize + 1) + (units >> doublings & 3) as usize
            }
        };
        self.ranges[range.min(RANGES - 1)] += changes as u64;
        self.all += changes as u64;
        if self.all >= HALVED {
            self.ranges.iter_mut().for_each(|changes| *changes /= 2);
            self.all = self.ranges.iter().sum();
        }
    }

    /// The time, nanoseconds, within which 99 of 100 changes were confirmed. It is rounded up to
    /// the end of a range. `None`: there was none.
    pub fn of_99_percent(&self) -> Option<u64> {
        let wanted = self.all - self.all / 100;
        let mut sum = 0;
        let range = self.ranges.iter().position(|changes| {
            sum += changes;
            sum >= wanted
        });
        range.filter(|_| self.all > 0).map(|range| {
            let (doublings, part) = ((range as u64 / 4).saturating_sub(1), range as u64 % 4);
            let end = if range < 4 { part + 1 } else { (part + 5) << doublings };
            end << UNIT
        })
    }

    fn plus(self, other: Self) -> Self {
        let sums = core::array::from_fn(|range| self.ranges[range] + other.ranges[range]);
        Self { ranges: sums, all: self.all + other.all }
    }
}

impl Sent {
    /// Counts a packet.
    pub(crate) fn note_packet(&mut self, records: usize, bytes: usize) {
        self.packets += 1;
        self.records += records as u64;
        self.bytes += bytes as u64;
    }

    /// The sum of two senders' counters.
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            lost: self.lost + other.lost,
            repaired: self.repaired + other.repaired,
            waits: self.waits.plus(other.waits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn times_are_rounded_up_by_a_quarter_at_most() {
        let of_one = |time| {
            let mut waits = Waits::default();
            waits.add(time, 1);
            waits.of_99_percent().expect("one")
        };
        for time in (0..34).flat_map(|power| [1 << power, (1 << power) * 3 / 2 + 1]) {
            let end = of_one(time);
            assert!(end > time && end <= time + time / 4 + (1 << UNIT), "{time}: {end}");
        }
        assert!(of_one(u64::MAX) < u64::MAX);
    }

    #[test]
    fn changes_of_long_ago_count_little() {
        let mut waits = Waits::default();
        waits.add(900 * MILLISECOND, 1 << 19);
        (0..64).for_each(|_| waits.add(10 * MILLISECOND, 1 << 17));
        let time = waits.of_99_percent().expect("some");
        assert!((10 * MILLISECOND..13 * MILLISECOND).contains(&time), "{time}");
    }

    #[test]
    fn the_longest_of_a_hundred_does_not_count() {
        let mut waits = Waits::default();
        assert_eq!(waits.of_99_percent(), None);
        waits.add(10 * MILLISECOND, 99);
        waits.add(900 * MILLISECOND, 1);
        let time = waits.of_99_percent().expect("some");
        assert!((10 * MILLISECOND..13 * MILLISECOND).contains(&time), "{time}");
        let both = waits.plus(waits).of_99_percent();
        assert_eq!(both, Some(time));
        waits.add(900 * MILLISECOND, 1);
        assert!(waits.of_99_percent().expect("some") > 900 * MILLISECOND);
    }
}
