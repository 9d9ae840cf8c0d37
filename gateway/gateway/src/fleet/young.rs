//! Mappings that are too young to be copied.

use super::slice::YOUNG;
use natgate_engine::Timestamp;
use std::collections::VecDeque;

/// Keys of young mappings, each once, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Young {
    queue: VecDeque<(Timestamp, u32)>,
    /// A bit for each key: set if it is in the queue.
    waiting: Vec<u64>,
}

impl Young {
    /// Adds the key of a mapping that began at a time. A copy may have begun in this node's future.
    /// No key waits longer than a mapping of now: keys behind it wait with it.
    pub(super) fn add(&mut self, (created, now): (Timestamp, Timestamp), key: u32) {
        let due = created.min(now).plus(YOUNG);
        let (word, bit) = place(key);
        if self.waiting.len() <= word {
            self.waiting.resize(word + 1, 0);
        }
        if self.waiting[word] & bit == 0 {
            self.waiting[word] |= bit;
            self.queue.push_back((due, key));
        }
    }

    /// Takes the next key that is due.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<u32> {
        let (_, key) = self.queue.pop_front_if(|(due, _)| now >= *due)?;
        let (word, bit) = place(key);
        self.waiting[word] &= !bit;
        Some(key)
    }
}

/// Word and bit of a key.
fn place(key: u32) -> (usize, u64) {
    (key as usize / 64, 1 << (key % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_comes_once_when_it_is_due() {
        let mut young = Young::default();
        let now = Timestamp(30);
        let times = [(10, 700), (10, 3), (20, 700), (30, 64)];
        times.into_iter().for_each(|(created, key)| young.add((Timestamp(created), now), key));
        assert_eq!([due(&mut young, 9), due(&mut young, 20)], [vec![], vec![700, 3]]);
        assert_eq!(due(&mut young, 30), [64]);
        young.add((Timestamp(40), Timestamp(40)), 700);
        assert_eq!(due(&mut young, 40), [700], "it may come again");
    }

    #[test]
    fn a_mapping_of_the_future_holds_no_other_one_up() {
        let mut young = Young::default();
        let now = Timestamp(10);
        let times = [(u64::MAX, 1), (600_000_000_000, 2), (10, 3)];
        times.into_iter().for_each(|(created, key)| young.add((Timestamp(created), now), key));
        assert_eq!([due(&mut young, 9), due(&mut young, 10)], [vec![], vec![1, 2, 3]]);
    }

    /// The keys that are due [`YOUNG`] after a time.
    fn due(young: &mut Young, after: u64) -> Vec<u32> {
        let now = Timestamp(after).plus(YOUNG);
        std::iter::from_fn(|| young.next(now)).collect()
    }
}
