//! The paper's hash table with a binary tree for each bucket.

use super::binary::{NONE, Nodes};
use super::record::{External, Key};
use super::{Structure, modulus};
use natgate_hugepages::prefetch;

pub(super) struct Trees {
    roots: Vec<u32>,
    nodes: Nodes,
}

impl Trees {
    fn bucket(&self, key: Key) -> usize {
        key.modulo(self.roots.len() as u64 - 1)
    }
}

impl Structure for Trees {
    const STAGES: usize = 2;

    fn with_capacity(sessions: usize) -> Self {
        Self { roots: vec![NONE; modulus(sessions)], nodes: Nodes::with_capacity(sessions) }
    }

    fn prefetch(&self, key: Key, stage: usize) {
        let bucket = self.bucket(key);
        match stage {
            0 => prefetch(&self.roots, bucket),
            _ => self.nodes.prefetch(self.roots[bucket]),
        }
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let bucket = self.bucket(key);
        self.nodes.translate(&mut self.roots[bucket], key, now, make)
    }
}
