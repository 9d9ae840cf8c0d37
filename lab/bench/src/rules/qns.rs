//! Quick NAT's search (QNS) as its paper describes it. Each kind of rule has 32 hash tables, one
//! for each prefix length, and a bit for each table that is not empty. The search goes from /32
//! down to /1. In each table that is not empty it looks up the masked address first with the exact
//! port, then with any port. The first hit wins.
//!
//! All rules here translate sources, so the tables of the other kind are empty and cost nothing.
//! The tables are those of the `hashbrown` crate; the paper does not name its tables.
//!
//! The paper searches for one packet after the other. A batch here goes through the tables
//! together, one prefix length at a time. So look-ups of different packets wait for memory at the
//! same time. natgate's batches are compared with these batches.

use super::workload::looks_at;
use super::{BATCH, Finder, Source};
use hashbrown::HashMap;
use natgate_engine::Rule;

/// Bits of an address within the prefix, and the port; 0 stands for any port.
type Key = (u32, u16);

pub(super) struct Qns {
    /// Tables by prefix length, beginning with /1.
    tables: [HashMap<Key, u32>; 32],
    /// One bit for each table that is not empty; the lowest bit is the table of /1.
    present: u32,
}

fn mask(len: usize) -> u32 {
    u32::MAX << (32 - len)
}

impl Qns {
    /// Prefix lengths of the tables that are not empty, longest first.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        (1..=32).rev().filter(|len| self.present >> (len - 1) & 1 != 0)
    }

    /// Pool of the rule with exactly this prefix length: first by the exact port, then by any port.
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
