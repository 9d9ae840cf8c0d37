//! Mappings that are too young to be copied.

use natgate_engine::Timestamp;
use std::collections::{HashSet, VecDeque};

/// Keys of young mappings, each once, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Young {
    queue: VecDeque<(Timestamp, u32)>,
    waiting: HashSet<u32>,
}

impl Young {
    /// Adds a key whose mapping is old enough at a time.
    pub(super) fn add(&mut self, due: Timestamp, key: u32) {
        if self.waiting.insert(key) {
            self.queue.push_back((due, key));
        }
    }

    /// Takes the next key that is due.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<u32> {
        let (_, key) = self.queue.pop_front_if(|(due, _)| now >= *due)?;
        self.waiting.remove(&key);
        Some(key)
    }
}
