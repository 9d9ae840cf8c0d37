//! The unbalanced binary tree. The order of insertion determines its shape. Nodes come from a pool
//! and refer to each other by number. The table of trees (`trees`) has the same nodes.

use super::Structure;
use super::record::{External, Key, Record};
use crate::memory::touched;
use natgate_hugepages::prefetch;

/// Number for no node.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Node {
    record: Record,
    /// Subtrees of smaller and of larger keys.
    below: [u32; 2],
}

/// Nodes of any number of trees.
pub(super) struct Nodes(Vec<Node>);

impl Nodes {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self(touched(count, Node::default()))
    }

    pub(super) fn prefetch(&self, node: u32) {
        prefetch(&self.0, node as usize);
    }

    /// Finds the key in the tree with this root, or adds it.
    #[inline(always)]
    pub(super) fn translate(
        &mut self,
        root: &mut u32,
        key: Key,
        now: u32,
        make: impl FnOnce() -> External,
    ) -> External {
        let mut parent = None;
        let mut at = *root;
        while let Some(node) = self.0.get_mut(at as usize) {
            if let Some(external) = node.record.refresh(key, now) {
                return external;
            }
            let side = usize::from(key > node.record.key());
            parent = Some((at, side));
            at = node.below[side];
        }
        let new = self.0.len() as u32;
        let external = make();
        self.0.push(Node { record: Record::new(key, external, now), below: [NONE; 2] });
        match parent {
            Some((node, side)) => self.0[node as usize].below[side] = new,
            None => *root = new,
        }
        external
    }
}

pub(super) struct Binary {
    nodes: Nodes,
    root: u32,
}

impl Structure for Binary {
    fn with_capacity(sessions: usize) -> Self {
        Self { nodes: Nodes::with_capacity(sessions), root: NONE }
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        self.nodes.translate(&mut self.root, key, now, make)
    }
}
