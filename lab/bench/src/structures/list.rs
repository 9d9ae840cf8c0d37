//! The paper's hash table with a linked list for each bucket.

use super::record::{External, Key, Record};
use super::{Structure, modulus};
use crate::memory::touched;
use natgate_hugepages::prefetch;

/// Number for no node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Node {
    record: Record,
    next: u32,
}

pub(super) struct List {
    /// First node of each bucket.
    heads: Vec<u32>,
    nodes: Vec<Node>,
}

impl List {
    fn bucket(&self, key: Key) -> usize {
        key.modulo(self.heads.len() as u64 - 1)
    }
}

impl Structure for List {
    const STAGES: usize = 2;

    fn with_capacity(sessions: usize) -> Self {
        let heads = vec![NONE; modulus(sessions)];
        Self { heads, nodes: touched(sessions, Node::default()) }
    }

    fn prefetch(&self, key: Key, stage: usize) {
        let bucket = self.bucket(key);
        match stage {
            0 => prefetch(&self.heads, bucket),
            _ => prefetch(&self.nodes, self.heads[bucket] as usize),
        }
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let bucket = self.bucket(key);
        let mut at = self.heads[bucket];
        while let Some(node) = self.nodes.get_mut(at as usize) {
            if let Some(external) = node.record.refresh(key, now) {
                return external;
            }
            at = node.next;
        }
        let external = make();
        let next = std::mem::replace(&mut self.heads[bucket], self.nodes.len() as u32);
        self.nodes.push(Node { record: Record::new(key, external, now), next });
        external
    }
}
