//! Mappings that are too young to be copied.

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
    /// Adds a key whose mapping is old enough at a time.
    pub(super) fn add(&mut self, due: Timestamp, key: u32) {
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
        let times = [(10, 700), (10, 3), (20, 700), (30, 64)];
        times.into_iter().for_each(|(due, key)| young.add(Timestamp(due), key));
        let mut due =
            |now| -> Vec<u32> { std::iter::from_fn(|| young.next(Timestamp(now))).collect() };
        assert_eq!([due(9), due(20), due(30)], [vec![], vec![700, 3], vec![64]]);
        young.add(Timestamp(40), 700);
        assert_eq!(young.next(Timestamp(40)), Some(700), "it may come again");
    }
}
