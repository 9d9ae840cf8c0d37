//! Identifications for IPv4 packets that come from IPv6 and may be fragmented later.
//!
//! RFC 6864 requires that identifications of one source, destination and protocol do not repeat
//! soon. RFC 7739 asks that an outsider cannot predict them. Each pair of addresses belongs to one
//! of [`COUNTERS`] counters, chosen by a keyed hash, and starts at an offset of its own. So the
//! identifications of a pair repeat after 65,536 packets at most of all pairs of one counter, and
//! a pair shows nothing about the traffic of most others.

use alloc::vec;
use alloc::vec::Vec;
use natgate_engine::HashKey;

/// Number of counters.
const COUNTERS: usize = 4096;

/// A source of identifications, keyed by a seed.
#[derive(Clone, Debug)]
pub struct Identifications {
    key: HashKey,
    counters: Vec<u16>,
}

impl Identifications {
    /// Makes a source. Equal seeds give equal identifications.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { key: HashKey::from_seed(seed, 0x6964_656e), counters: vec![0; COUNTERS] }
    }

    /// The next identification from `source` to `destination`.
    #[inline]
    pub fn next(&mut self, source: u32, destination: u32) -> u16 {
        let hash = self.key.hash(source.into(), destination.into());
        let counter = &mut self.counters[hash as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        counter.wrapping_add((hash >> 48) as u16)
    }
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
