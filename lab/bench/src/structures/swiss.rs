//! The map of the `hashbrown` crate, which the standard library uses: an open table with one byte
//! of the hash for each place, and comparisons of sixteen bytes at once.

use super::Structure;
use super::record::{External, Key};
use hashbrown::HashMap;

pub(super) struct Swiss(HashMap<Key, (External, u32)>);

impl Structure for Swiss {
    fn with_capacity(sessions: usize) -> Self {
        Self(HashMap::with_capacity(sessions))
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let (external, time) = self.0.entry(key).or_insert_with(|| (make(), now));
        *time = now;
        *external
    }
}
