//! A radix tree, the adaptive one of the `blart` crate. Chugh's thesis proposes such a descent in
//! place of a hash and a chain.

use super::Structure;
use super::record::{External, Key};
use blart::TreeMap;

pub(super) struct Radix(TreeMap<[u8; 8], (External, u32)>);

impl Structure for Radix {
    fn with_capacity(_sessions: usize) -> Self {
        Self(TreeMap::new())
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let (external, time) =
            self.0.entry(key.bits().to_be_bytes()).or_insert_with(|| (make(), now));
        *time = now;
        *external
    }
}
