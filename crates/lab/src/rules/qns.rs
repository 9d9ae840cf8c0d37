//! Quick NAT's search (QNS) as its paper describes it: for each kind of rule 32 hash tables, one a prefix
//! length, and a bit each that says whether the table holds anything. The search goes from /32 down to
//! /1; in each table that is not empty it asks first for the masked address with the exact port,
//! then with any port. The first hit wins.
//!
//! All rules here translate sources, so the tables of the other kind are empty and cost nothing. The tables
//! are the `hashbrown` crate's; the paper does not say which it had.

use super::workload::looks_at;
use super::{Finder, Source};
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

impl Finder for Qns {
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

    fn find(&self, (address, port): Source) -> Option<u32> {
        for len in (1..=32).rev() {
            if self.present >> (len - 1) & 1 == 0 {
                continue;
            }
            let table = &self.tables[len - 1];
            let masked = address & mask(len);
            let pool = table.get(&(masked, port)).or_else(|| table.get(&(masked, 0)));
            if pool.is_some() {
                return pool.copied();
            }
        }
        None
    }

    fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.allocation_size() as u64).sum()
    }
}
