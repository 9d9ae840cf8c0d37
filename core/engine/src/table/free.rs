//! A set of numbers with a bit for each. Levels of summaries above the bits, with a bit for each
//! word of the level below that is not 0, lead to a member without a search.

use crate::index::PAGE;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;

const BITS: usize = u64::BITS as usize;

/// Levels: enough for all numbers of 32 bits.
const LEVELS: usize = 6;

/// A set of numbers below a bound.
#[derive(Clone, Debug)]
pub(super) struct FreeBits {
    /// The bits, then the summaries. The last level has one word.
    levels: [Vec<u64>; LEVELS],
}

/// Words of each level, for numbers below `bound`.
fn words(bound: usize) -> [usize; LEVELS] {
    let mut words = bound;
    [(); LEVELS].map(|()| {
        words = words.div_ceil(BITS).max(1);
        words
    })
}

impl FreeBits {
    /// An empty set of numbers below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        Self { levels: words(bound).map(|words| vec![0; words]) }
    }

    /// Bytes that a set of numbers below `bound` takes.
    pub(super) fn memory(bound: usize) -> usize {
        words(bound).iter().sum::<usize>() * size_of::<u64>()
    }

    /// Touches every page of it.
    pub(super) fn populate(&mut self) {
        for word in self.levels[0].iter_mut().step_by(PAGE / size_of::<u64>()) {
            *word = black_box(*word);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels[LEVELS - 1][0] == 0
    }

    /// Adds a number.
    #[inline]
    pub(super) fn add(&mut self, number: u32) {
        let mut at = number as usize;
        for level in &mut self.levels {
            let word = &mut level[at / BITS];
            let before = *word;
            *word |= 1 << (at % BITS);
            if before != 0 {
                return;
            }
            at /= BITS;
        }
    }

    /// Takes all numbers of the first word that has any: the number of the word's first bit, and
    /// the word.
    pub(super) fn take_word(&mut self) -> Option<(u32, u64)> {
        if self.is_empty() {
            return None;
        }
        let mut at = 0;
        for level in self.levels[1..].iter().rev() {
            at = at * BITS + level[at].trailing_zeros() as usize;
        }
        let word = core::mem::take(&mut self.levels[0][at]);
        let first = (at * BITS) as u32;
        for level in &mut self.levels[1..] {
            let summary = &mut level[at / BITS];
            *summary ^= 1 << (at % BITS);
            if *summary != 0 {
                break;
            }
            at /= BITS;
        }
        Some((first, word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_set(
            bound in 1_u32..300_000,
            ops in proptest::collection::vec((0_u32..4, any::<u32>()), 1..300),
        ) {
            let mut bits = FreeBits::new(bound as usize);
            let mut set = BTreeSet::new();
            for (op, number) in ops {
                if op == 0 {
                    let Some((first, word)) = bits.take_word() else {
                        prop_assert!(set.is_empty());
                        continue;
                    };
                    prop_assert_ne!(word, 0);
                    for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
                        prop_assert_eq!(set.pop_first(), Some(first + bit));
                    }
                } else {
                    bits.add(number % bound);
                    set.insert(number % bound);
                }
                prop_assert_eq!(bits.is_empty(), set.is_empty());
            }
        }
    }
}
