//! Random numbers for experiments: fast, repeatable, and not secret.

/// A generator (xorshift64*, Vigna 2016).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A fixed pseudo-random order of the numbers below `count`: each number occurs once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    count: u64,
    mask: u64,
}

impl Shuffle {
    pub(crate) fn new(count: u64) -> Self {
        Self { count, mask: count.next_power_of_two() - 1 }
    }

    /// Number at a place of the order.
    pub(crate) fn at(self, place: u64) -> u64 {
        let mut value = place;
        loop {
            // Each step is invertible within the mask, so no two places have the same number.
            let half = self.mask.count_ones().div_ceil(2);
            for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
                value = value.wrapping_mul(factor) & self.mask;
                value ^= value >> half.max(1);
            }
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for count in [1, 2, 3, 1000, 1024, 1025, 70_000] {
            let mut seen = vec![false; count as usize];
            for place in 0..count {
                let value = Shuffle::new(count).at(place) as usize;
                assert!(!std::mem::replace(&mut seen[value], true), "{value} of {count}");
            }
        }
    }
}
