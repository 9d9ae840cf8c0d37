//! Identifications for IPv4 packets that come from IPv6 and may be fragmented later.
//!
//! RFC 6864 requires that identifications of one source, destination and protocol do not repeat
//! soon. RFC 7739 asks that an outsider cannot predict them. Each pair of addresses belongs to one
//! of [`COUNTERS`] counters, chosen by a keyed hash, and starts at an offset of its own. So the
//! identifications of a pair repeat after 65,536 packets at most of all pairs of one counter, and
//! a pair shows nothing about the traffic of most others.

use alloc::vec;
use alloc::vec::Vec;

/// Number of counters.
const COUNTERS: usize = 4096;

/// A source of identifications, keyed by a seed.
#[derive(Clone, Debug)]
pub struct Identifications {
    key: [u64; 4],
    counters: Vec<u16>,
}

impl Identifications {
    /// Makes a source. Equal seeds give equal identifications.
    pub fn new(seed: [u8; 32]) -> Self {
        let (words, _) = seed.as_chunks::<8>();
        let mut key = [0; 4];
        let mut state = 0;
        for (key, &word) in key.iter_mut().zip(words) {
            state = mix(state ^ u64::from_le_bytes(word));
            // Odd numbers: a factor of zero would forget everything.
            *key = state | 1;
        }
        Self { key, counters: vec![0; COUNTERS] }
    }

    /// The next identification from `source` to `destination`.
    pub fn next(&mut self, source: u32, destination: u32) -> u16 {
        let [first, second, third, fourth] = self.key;
        let pair = u64::from(source) << 32 | u64::from(destination);
        let hash = fold(fold(pair ^ first, second) ^ third, fourth);
        let counter = &mut self.counters[hash as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        counter.wrapping_add((hash >> 48) as u16)
    }
}

/// Spreads every bit of a seed over a word (the finalizer of SplitMix64).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The two halves of a 128-bit product, combined.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn take(from: &mut Identifications, destination: u32, n: usize) -> Vec<u16> {
        (0..n).map(|_| from.next(0xc000_0201, destination)).collect()
    }

    #[test]
    fn a_pair_of_addresses_repeats_no_value_within_the_whole_range() {
        let mut from = Identifications::new([3; 32]);
        let values: BTreeSet<u16> = take(&mut from, 7, 0x1_0000).into_iter().collect();
        assert_eq!(values.len(), 0x1_0000);
    }

    #[test]
    fn pairs_start_at_different_offsets_and_do_not_move_each_other() {
        let mut from = Identifications::new([4; 32]);
        let firsts: BTreeSet<u16> = (0..1000).map(|to| take(&mut from, to, 1)[0]).collect();
        assert!(firsts.len() > 950, "{} different of 1000", firsts.len());
        let mut alone = Identifications::new([4; 32]);
        let mut beside = Identifications::new([4; 32]);
        take(&mut beside, 1, 9);
        assert_eq!(take(&mut beside, 0, 9), take(&mut alone, 0, 9));
    }

    #[test]
    fn the_seed_decides() {
        let values = |seed| take(&mut Identifications::new([seed; 32]), 1, 4);
        assert_eq!(values(5), values(5));
        assert_ne!(values(5), values(6));
        // A seed of zeros works too.
        assert_ne!(take(&mut Identifications::new([0; 32]), 1, 1), [0]);
    }
}
