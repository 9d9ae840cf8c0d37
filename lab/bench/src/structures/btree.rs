//! The standard library's B-tree, whose nodes are adapted to cache lines. The paper does not
//! measure it.

use super::Structure;
use super::record::{External, Key};
use std::collections::BTreeMap;

pub(super) struct BTree(BTreeMap<Key, (External, u32)>);

impl Structure for BTree {
    fn with_capacity(_sessions: usize) -> Self {
        Self(BTreeMap::new())
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let (external, time) = self.0.entry(key).or_insert_with(|| (make(), now));
        *time = now;
        *external
    }
}
