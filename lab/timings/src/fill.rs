//! The largest table that some memory holds, with an entry in every place.

use crate::table::{Table, memory};
use crate::{Cost, ROOM};
use serde::{Deserialize, Serialize};

/// Most entries that are tried: the first is still there when the last comes.
const MOST: u32 = 1 << 24;

/// Packets that are forwarded through the full table.
const CALLS: usize = 20_000;

/// What was found of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Bytes that the table could have, and that it takes.
    pub memory: u64,
    /// See `memory`.
    pub table: u64,
    /// Entries that were in it at once.
    pub entries: u32,
    /// The first packet of a UDP flow, all of them.
    pub add: Cost,
    /// A packet out of a flow when all were there.
    pub forward: Cost,
}

impl Fill {
    /// Makes the largest table that takes so many bytes at most, fills it and forwards packets
    /// through it. `None`: not even a hundred thousand entries fit.
    ///
    /// # Panics
    /// When an entry finds no place, or the engine does not forward.
    pub fn measure(bytes: u64, cycles_per_ns: f64) -> Option<Self> {
        let entries = most_entries(bytes)?;
        let mut table = Table::new(entries, entries);
        let mut add = Vec::with_capacity(entries as usize);
        table.fill(&mut add);
        assert_eq!(table.count(), u64::from(entries), "each flow has an entry");
        let forward = (0..CALLS).map(|call| table.forward(call)).collect();
        Some(Self {
            memory: bytes,
            table: memory(entries),
            entries,
            add: Cost::of(add, cycles_per_ns),
            forward: Cost::of(forward, cycles_per_ns),
        })
    }

    /// As one line of JSON.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("numbers can be written")
    }

    /// From such a line; `None`: it is another.
    pub fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// How many entries a table has that takes so many bytes, with what is written down of each.
fn most_entries(bytes: u64) -> Option<u32> {
    // Of each flow its external endpoint, and what its first packet took.
    let beside = |entries: u32| u64::from(entries) * 16;
    let fits = |entries: u32| memory(entries) + beside(entries) <= bytes;
    if !fits(ROOM) {
        return None;
    }
    let (mut enough, mut too_many) = (ROOM, MOST + 1);
    while too_many - enough > 1 {
        let middle = enough + (too_many - enough) / 2;
        if fits(middle) { enough = middle } else { too_many = middle }
    }
    Some(enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_table_is_full_and_forwards() {
        let bytes = memory(ROOM) * 3 / 2;
        let fill = Fill::measure(bytes, 1.0).expect("more than enough");
        assert!(fill.entries > ROOM && fill.table <= bytes, "{fill:?}");
        assert!(memory(fill.entries + ROOM / 2) > bytes, "{fill:?}");
        assert_eq!(fill.add.calls, fill.entries as usize);
        assert!(fill.forward.median_ns > 0.0);
        let read = Fill::from_line(&fill.to_line()).expect("it was written so");
        assert_eq!((read.entries, read.table), (fill.entries, fill.table));
        assert_eq!(Fill::measure(1 << 20, 1.0), None);
    }
}
