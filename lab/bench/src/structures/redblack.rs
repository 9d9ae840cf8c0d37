//! The red-black tree of the `intrusive-collections` crate. Its nodes come from a pool, like those
//! of the unbalanced tree.

use super::Structure;
use super::record::{External, Key};
use intrusive_collections::rbtree::Entry;
use intrusive_collections::{KeyAdapter, RBTree, RBTreeLink, UnsafeRef, intrusive_adapter};
use std::cell::Cell;

struct Node {
    link: RBTreeLink,
    key: Key,
    external: External,
    time: Cell<u32>,
}

intrusive_adapter!(Order = UnsafeRef<Node>: Node { link => RBTreeLink });

impl KeyAdapter<'_> for Order {
    type Key = Key;

    fn get_key(&self, node: &Node) -> Key {
        node.key
    }
}

/// The field of the tree comes before the pool, so the tree is dropped first.
pub(super) struct RedBlack {
    tree: RBTree<Order>,
    pool: Vec<Node>,
}

impl Structure for RedBlack {
    fn with_capacity(sessions: usize) -> Self {
        let node = || Node {
            link: RBTreeLink::new(),
            key: Key::NONE,
            external: External::default(),
            time: Cell::new(0),
        };
        // The pool is filled and emptied, so its memory has been touched.
        let mut pool: Vec<Node> = std::iter::repeat_with(node).take(sessions).collect();
        pool.clear();
        Self { tree: RBTree::new(Order::new()), pool }
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let Self { tree, pool } = self;
        let entry = tree.entry(&key);
        let place = match entry {
            Entry::Occupied(node) => {
                let node = node.get().expect("an occupied entry has a node");
                node.time.set(now);
                return node.external;
            }
            Entry::Vacant(place) => place,
        };
        assert!(pool.len() < pool.capacity(), "no more sessions than were announced");
        let external = make();
        let link = RBTreeLink::new();
        let at = pool.len();
        pool.push(Node { link, key, external, time: Cell::new(now) });
        // SAFETY: the node is in a pool that never grows beyond its capacity, so it does not move.
        // It is not removed, and only its cells are written to. The tree is dropped before the
        // pool.
        place.insert(unsafe { UnsafeRef::from_raw(pool.as_ptr().add(at)) });
        external
    }
}
