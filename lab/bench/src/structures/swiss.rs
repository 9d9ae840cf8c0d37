//! The `hashbrown` crate's map, which is the standard library's: an open table with a byte of hash
//! for each place, sixteen compared at once.

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
