//! One lock-free table for all threads, as in Quick NAT, by the map of the `papaya` crate. Every
//! packet registers with the map's memory reclamation as a possible reader.

use super::Structure;
use super::record::{External, Key};
use hashbrown::DefaultHashBuilder;
use papaya::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

type Map = HashMap<Key, (External, AtomicU32), DefaultHashBuilder>;

/// A thread's reference to the table.
#[derive(Clone)]
pub(super) struct Shared(Arc<Map>);

impl Structure for Shared {
    fn with_capacity(sessions: usize) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self(Arc::new(HashMap::with_capacity_and_hasher(sessions, hasher)))
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let map = self.0.pin();
        let (external, time) = map.get_or_insert_with(key, || (make(), AtomicU32::new(now)));
        // Several threads may refresh one session, so the line is written only when the time
        // changes.
        if time.load(Ordering::Relaxed) != now {
            time.store(now, Ordering::Relaxed);
        }
        *external
    }
}
