//! Quick NAT's search (QNS) as its paper describes it: for each kind of rule 32 hash tables, one a
//! prefix length, and a bit each that says whether the table holds anything. The search goes from
//! /32 down to /1; in each table that is not empty it asks first for the masked address with the
//! exact port, then with any port. The first hit wins.
//!
//! All rules here translate sources, so the tables of the other kind are empty and cost nothing.
//! The tables are the `hashbrown` crate's; the paper does not say which it had.
//!
//! The paper searches for one packet after the other. A batch here goes through the tables
//! together, one prefix length at a time, so that look-ups of different packets wait for memory at
//! the same time: natgate's batches are compared with these.

use super::workload::looks_at;
use super::{BATCH, Finder, Source};
use hashbrown::HashMap;
use natgate_engine::Rule;

/// The bits of an address that a prefix looks at, and the port; 0: any.
type Key = (u32, u16);

pub(super) struct Qns {
    /// The table of /1 first.
    tables: [HashMap<Key, u32>; 32],
    /// A bit a table that is not empty, that of /1 lowest.
    present: u32,
}

fn mask(len: usize) -> u32 {
    u32::MAX << (32 - len)
}

impl Qns {
    /// The prefix lengths of tables that hold something, longest first.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        (1..=32).rev().filter(|len| self.present >> (len - 1) & 1 != 0)
    }

    /// The pool of the rule with exactly this prefix length: the exact port first, then any port.
    fn find_at(&self, len: usize, (address, port): Source) -> Option<u32> {
        let table = &self.tables[len - 1];
        let masked = address & mask(len);
        table.get(&(masked, port)).or_else(|| table.get(&(masked, 0))).copied()
    }
}

impl Finder for Qns {
    const BATCHED: bool = true;

    fn build(rules: &[Rule]) -> Self {
        let mut tables: [HashMap<Key, u32>; 32] = Default::default();
        let mut present = 0;
        for (prefix, port, pool) in rules.iter().map(looks_at) {
            let table = usize::from(prefix.len()) - 1;
            tables[table].insert((prefix.first(), port), pool);
            present |= 1 << table;
        }
        Self { tables, present }
    }

    fn find(&self, source: Source) -> Option<u32> {
        self.lengths().find_map(|len| self.find_at(len, source))
    }

    fn find_batch(&self, sources: &[Source], pools: &mut [Option<u32>]) {
        let mut open: arrayvec::ArrayVec<usize, BATCH> = (0..sources.len()).collect();
        for len in self.lengths() {
            open.retain(|&mut at| {
                pools[at] = self.find_at(len, sources[at]);
                pools[at].is_none()
            });
            if open.is_empty() {
                return;
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.allocation_size() as u64).sum()
    }
}
