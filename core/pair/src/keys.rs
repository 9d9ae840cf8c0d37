//! A set of small numbers with a fast search for the next one: three levels of bitmaps.

use alloc::vec::Vec;

/// Numbers below [`KeySet::MOST`].
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySet {
    /// A bit for each number; a bit for each word of the level below that is not 0.
    levels: [Vec<u64>; 3],
    len: usize,
}

impl KeySet {
    /// All numbers are smaller than this one.
    pub(crate) const MOST: u32 = 1 << 27;

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, key: u32) -> bool {
        let word = self.levels[0].get(key as usize / 64).copied().unwrap_or(0);
        word & 1 << (key % 64) != 0
    }

    /// Adds a number. Returns `false` if it is too large, or a member already.
    pub(crate) fn insert(&mut self, key: u32) -> bool {
        if key >= Self::MOST || self.contains(key) {
            return false;
        }
        let mut at = key as usize;
        for level in &mut self.levels {
            let (word, bit) = (at / 64, at % 64);
            if level.len() <= word {
                level.resize(word + 1, 0);
            }
            let others = level[word];
            level[word] |= 1 << bit;
            if others != 0 {
                // The levels above have their bits.
                break;
            }
            at = word;
        }
        self.len += 1;
        true
    }

    /// Removes a number. Returns `false` if it is no member.
    pub(crate) fn remove(&mut self, key: u32) -> bool {
        if !self.contains(key) {
            return false;
        }
        let mut at = key as usize;
        for level in &mut self.levels {
            let (word, bit) = (at / 64, at % 64);
            level[word] &= !(1 << bit);
            if level[word] != 0 {
                break;
            }
            at = word;
        }
        self.len -= 1;
        true
    }

    /// The smallest member from a number on.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        self.next_at(0, from as usize).map(|key| key as u32)
    }

    fn next_at(&self, level: usize, from: usize) -> Option<usize> {
        let words = self.levels.get(level)?;
        let word = *words.get(from / 64)? & (!0 << (from % 64));
        if word != 0 {
            return Some(from / 64 * 64 + word.trailing_zeros() as usize);
        }
        let after = from / 64 + 1;
        let at = match level {
            2 => (after..words.len()).find(|&at| words[at] != 0)?,
            _ => self.next_at(level + 1, after)?,
        };
        Some(at * 64 + words[at].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_of_keys_is_a_set(
            steps in proptest::collection::vec((any::<bool>(), 0_u32..70, 0_u32..3), 0..200),
        ) {
            let (mut set, mut model) = (KeySet::default(), BTreeSet::new());
            for (adds, low, high) in steps {
                let key = low + high * 300_000;
                match adds {
                    true => prop_assert_eq!(set.insert(key), model.insert(key)),
                    false => prop_assert_eq!(set.remove(key), model.remove(&key)),
                }
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(set.next(low), model.range(low..).next().copied());
                prop_assert_eq!(set.next(key + 1), model.range(key + 1..).next().copied());
            }
        }
    }

    #[test]
    fn numbers_beyond_the_bound_are_refused() {
        let mut set = KeySet::default();
        assert!(!set.insert(KeySet::MOST) && set.insert(KeySet::MOST - 1));
        assert_eq!(set.next(0), Some(KeySet::MOST - 1));
    }
}
