//! The largest table in a given memory, with an entry in every place.

use crate::table::{Table, memory};
use crate::{Cost, ROOM};
use serde::{Deserialize, Serialize};

/// Most entries of a measurement: the first must not expire before the last is made.
const MOST: u32 = 1 << 24;

/// Packets that are forwarded through the full table.
const CALLS: usize = 20_000;

/// Results of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Bytes available to the table, and bytes of the table.
    pub memory: u64,
    /// See `memory`.
    pub table: u64,
    /// Number of simultaneous entries.
    pub entries: u32,
    /// The first packets of all UDP flows.
    pub add: Cost,
    /// An outbound packet of a flow with all entries present.
    pub forward: Cost,
}

impl Fill {
    /// Creates the largest table of at most `bytes`, fills it and forwards packets through it.
    /// Returns `None` if fewer than a hundred thousand entries fit.
    ///
    /// # Panics
    /// If an entry finds no place, or if the engine does not forward.
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

    /// The results as one line of JSON.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("numbers can be written")
    }

    /// Reads a line; `None` if it is something else.
    pub fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Number of entries of a table in `bytes`, together with the records of the measurement.
fn most_entries(bytes: u64) -> Option<u32> {
    // For each flow its external endpoint, and the cycles of its first packet.
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
