//! Histogram of delays: counts by duration, precise to a 256th, in constant memory.

/// Buckets for each power of two.
const PARTS: usize = 256;
const PART_BITS: u32 = PARTS.ilog2();
const BUCKETS: usize = PARTS * (u64::BITS - PART_BITS + 1) as usize;

/// Counts by nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0, most: 0 }
    }
}

impl Histogram {
    /// Counts a duration, nanoseconds.
    pub fn add(&mut self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)] += 1;
        self.total += 1;
        self.most = self.most.max(nanoseconds);
    }

    /// Longest duration, nanoseconds.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Number of counted durations.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Buckets in ascending order without the empty ones: the upper bound, nanoseconds, and the
    /// number of durations up to it and above the bound before.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(index, &count)| (upper(index).min(self.most), count))
    }

    /// Smallest bound of the share `part` (0 to 1) of all durations, nanoseconds; 0 without
    /// durations.
    pub fn percentile(&self, part: f64) -> u64 {
        let rank = ((self.total as f64 * part).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(index).min(self.most);
            }
        }
        self.most
    }
}

fn bucket(value: u64) -> usize {
    let power = value.max(1).ilog2();
    if power < PART_BITS {
        return value as usize;
    }
    let shift = power - PART_BITS;
    (shift as usize + 1) * PARTS + (value >> shift) as usize - PARTS
}

/// Largest value of a bucket.
fn upper(index: usize) -> u64 {
    if index < PARTS {
        return index as u64;
    }
    let shift = index / PARTS - 1;
    let part = (index % PARTS + PARTS) as u64;
    (part << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_bucket() {
        let powers = (0..64).map(|power| 1u64 << power);
        let values = powers.flat_map(|value| [value - 1, value, value + value / 3]);
        for value in values.chain([u64::MAX]) {
            let index = bucket(value);
            assert!(upper(index) >= value, "{value}");
            assert!(upper(index) - value <= value / PARTS as u64, "{value}");
            assert!(index == 0 || upper(index - 1) < value, "{value}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), 0);
        (1..=1000).for_each(|value| histogram.add(value));
        for (part, value) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = histogram.percentile(part);
            assert!(found >= value && found <= value + value / PARTS as u64, "{part}: {found}");
        }
        assert_eq!((histogram.most(), histogram.count()), (1000, 1000));
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), 1000);
        assert_eq!(histogram.buckets().last().map(|(upper, _)| upper), Some(1000));
    }
}
