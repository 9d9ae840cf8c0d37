//! An ordered list, best rule first, searched until a rule matches: the search of a firewall, which
//! the paper measured in Netfilter.

use super::workload::looks_at;
use super::{Finder, Source};
use natgate_engine::Rule;
use std::cmp::Reverse;

struct Entry {
    first: u32,
    mask: u32,
    /// Port; 0 matches any port.
    port: u16,
    pool: u32,
}

pub(super) struct Linear(Vec<Entry>);

impl Finder for Linear {
    fn build(rules: &[Rule]) -> Self {
        let mut ordered: Vec<_> = rules.iter().map(looks_at).collect();
        ordered.sort_by_key(|(prefix, port, _)| (Reverse(prefix.len()), *port == 0));
        let entry = |(prefix, port, pool): (natgate_engine::Prefix, u16, u32)| Entry {
            first: prefix.first(),
            mask: !(prefix.first() ^ prefix.last()),
            port,
            pool,
        };
        Self(ordered.into_iter().map(entry).collect())
    }

    fn find(&self, (address, port): Source) -> Option<u32> {
        let matches = |entry: &&Entry| {
            address & entry.mask == entry.first && (entry.port == 0 || entry.port == port)
        };
        self.0.iter().find(matches).map(|entry| entry.pool)
    }

    fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Entry>()) as u64
    }
}
