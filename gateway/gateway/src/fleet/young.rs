//! Mappings that are too young to be copied.

use super::slice::YOUNG;
use natgate_engine::{TICK, Timestamp};
use std::collections::VecDeque;

/// Keys of young mappings, each once, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Young {
    queue: VecDeque<(Timestamp, u32)>,
    /// A bit for each key: set if it is in the queue.
    waiting: Vec<u64>,
}

impl Young {
    /// Adds the key of a mapping that began at a time, by ticks. A copy may have begun in this
    /// node's future. No key waits longer than a mapping of now: keys behind it wait with it.
    pub(super) fn add(&mut self, (created, now): (Timestamp, Timestamp), key: u32) {
        // It may have begun at any time of the tick. All mappings of a tick would be due at once.
        let is_of_now = now.since(created) < TICK;
        let due = if is_of_now { now } else { created.min(now) }.plus(YOUNG);
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
    use std::time::Duration;

    /// A time of so many seconds.
    fn at(seconds: u64) -> Timestamp {
        Timestamp(0).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn each_key_comes_once_when_it_is_due() {
        let mut young = Young::default();
        let times = [(10, 700), (10, 3), (20, 700), (30, 64)];
        times.into_iter().for_each(|(created, key)| young.add((at(created), at(30)), key));
        assert_eq!([due(&mut young, at(9)), due(&mut young, at(20))], [vec![], vec![700, 3]]);
        assert_eq!(due(&mut young, at(30)), [64]);
        young.add((at(40), at(40)), 700);
        assert_eq!(due(&mut young, at(40)), [700], "it may come again");
    }

    #[test]
    fn mappings_of_one_tick_are_due_one_after_the_other() {
        let mut young = Young::default();
        let moments = [0, 1, 2].map(|part| at(10).plus(part * TICK / 4));
        let keys = [1, 2, 3];
        moments.iter().zip(keys).for_each(|(now, key)| young.add((at(10), *now), key));
        assert_eq!(moments.map(|now| due(&mut young, now)), keys.map(|key| vec![key]));
    }

    #[test]
    fn a_mapping_of_the_future_holds_no_other_one_up() {
        let mut young = Young::default();
        let times = [(at(u64::MAX / 4_000_000_000), 1), (at(600), 2), (at(10), 3)];
        times.into_iter().for_each(|(created, key)| young.add((created, at(10)), key));
        assert_eq!([due(&mut young, at(9)), due(&mut young, at(10))], [vec![], vec![1, 2, 3]]);
    }

    /// The keys that are due [`YOUNG`] after a time.
    fn due(young: &mut Young, after: Timestamp) -> Vec<u32> {
        std::iter::from_fn(|| young.next(after.plus(YOUNG))).collect()
    }
}
