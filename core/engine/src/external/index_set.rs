//! Sets of external addresses by their indexes, and the search for the next address of a pool that
//! a set has. A search looks at one word for 64 indexes, so it costs little however few addresses
//! the set has.

use alloc::vec;
use alloc::vec::Vec;

/// A set of indexes of addresses.
#[derive(Clone, Debug)]
pub(super) struct IndexSet(Vec<u64>);

impl IndexSet {
    /// An empty set, for indexes below `room`.
    pub(super) fn new(room: usize) -> Self {
        Self(vec![0; room.div_ceil(64)])
    }

    /// Puts an index into the set, or takes it out.
    pub(super) fn set(&mut self, index: u32, is_in: bool) {
        let (word, bit) = (&mut self.0[index as usize / 64], 1 << (index % 64));
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// The indexes from 64 * `word` on, a bit each.
    pub(super) fn word(&self, word: u32) -> u64 {
        self.0[word as usize]
    }
}

/// The indexes of a pool's addresses: numbers of words, in order, and the words' bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(Vec<(u32, u64)>);

impl Members {
    pub(super) fn of(indexes: &[u32]) -> Self {
        let mut sorted = indexes.to_vec();
        sorted.sort_unstable();
        let mut words: Vec<(u32, u64)> = Vec::new();
        for index in sorted {
            let (word, bit) = (index / 64, 1 << (index % 64));
            match words.last_mut() {
                Some((last, bits)) if *last == word => *bits |= bit,
                _ => words.push((word, bit)),
            }
        }
        Self(words)
    }

    /// True if an index is one of them.
    pub(super) fn has(&self, index: u32) -> bool {
        let at = self.0.binary_search_by_key(&(index / 64), |(word, _)| *word);
        at.is_ok_and(|at| self.0[at].1 >> (index % 64) & 1 != 0)
    }

    /// The first index from `from` on, in a circle, of which `bits` has the bit in its word.
    pub(super) fn next(&self, from: u32, bits: impl Fn(u32) -> u64) -> Option<u32> {
        let start = self.0.partition_point(|(word, _)| *word < from / 64);
        let (before, after) = self.0.split_at(start);
        // The word of `from` comes first with its upper bits, and last with all of its bits.
        let first = after.first().filter(|(word, _)| *word == from / 64);
        let upper = first.map(|(word, own)| (*word, own & u64::MAX << (from % 64)));
        let others = after.iter().skip(first.iter().len()).chain(before).chain(first).copied();
        let found = |(word, own): (u32, u64)| match own & bits(word) {
            0 => None,
            found => Some(word * 64 + found.trailing_zeros()),
        };
        upper.into_iter().chain(others).find_map(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use core::cell::Cell;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a search through lists.
        #[test]
        fn the_next_member_is_the_next_in_the_circle(
            members in prop::collection::btree_set(0_u32..400, 0..80),
            has in prop::collection::btree_set(0_u32..400, 0..20),
            from in 0_u32..400,
        ) {
            let mut set = IndexSet::new(400);
            (0..400).for_each(|index| set.set(index, true));
            (0..400).for_each(|index| set.set(index, has.contains(&index)));
            let both: BTreeSet<u32> = members.intersection(&has).copied().collect();
            let next = both.range(from..).next().or(both.first()).copied();
            let is_member = members.contains(&from);
            let members = Members::of(&members.into_iter().rev().collect::<Vec<u32>>());
            prop_assert_eq!(members.has(from), is_member);
            let looks = Cell::new(0);
            let word = |word: u32| {
                looks.set(looks.get() + 1);
                set.word(word)
            };
            prop_assert_eq!(members.next(from, word), next);
            prop_assert!(looks.get() <= 400_usize.div_ceil(64) + 1, "{} words", looks.get());
        }
    }
}
