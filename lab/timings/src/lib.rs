//! Internal timings: the cost to add an entry, to look one up and to forward a packet, by the
//! processor's cycle counter, one call at a time.
//!
//! The code runs unchanged in the Linux program and in the image without an operating system, so
//! the figures are comparable. It needs only memory from the system; the caller gives the counter's
//! rate. The engine has every function of a gateway switched on. Its table has room for 100,000
//! mappings, of which a given number is in use; or as much room as memory permits, all of it in
//! use.
//!
//! ```
//! use natgate_timings::{Size, Timing};
//!
//! // The rate of the counter, cycles a nanosecond, is a property of the machine.
//! let timing = Timing::measure(100, Size::Quick, 2.5);
//! assert!(timing.forward.median_ns <= timing.forward.p99_ns);
//! let read = Timing::from_line(&timing.to_line()).expect("a line of results");
//! assert_eq!(read.entries, 100);
//! ```

mod counter;
mod fill;
pub mod frame;
mod table;

pub use counter::cycles;
pub use fill::Fill;

use serde::{Deserialize, Serialize};
use table::Table;

/// Mappings that the table has room for.
pub const ROOM: u32 = 100_000;

/// Size of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A small measurement for tests.
    Quick,
    /// The measurement for published figures.
    Full,
}

/// Results at one number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Mappings in use.
    pub entries: u32,
    /// First packet of a UDP flow: its translation and the new entry, while the table fills.
    pub add: Cost,
    /// Search and description of the mapping with an external endpoint.
    pub look_up: Cost,
    /// Outbound packet of a flow with an entry.
    pub forward: Cost,
    /// Rate of the counter, cycles a nanosecond.
    pub cycles_per_ns: f64,
}

/// Cost of one call, without the cost of reading the counter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Median, nanoseconds.
    pub median_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// Number of measured calls.
    pub calls: usize,
}

impl Size {
    /// Numbers of entries, ascending.
    pub fn entries(self) -> &'static [u32] {
        match self {
            Self::Quick => &[100, 2_000],
            Self::Full => &[100, 2_000, ROOM],
        }
    }

    /// Lowest number of calls of each kind.
    fn calls(self) -> usize {
        match self {
            Self::Quick => 200,
            Self::Full => 20_000,
        }
    }
}

impl Timing {
    /// Measures at a number of entries, 1 to [`ROOM`].
    ///
    /// # Panics
    /// If the number is larger, or if the engine does not forward.
    pub fn measure(entries: u32, size: Size, cycles_per_ns: f64) -> Self {
        assert!((1..=ROOM).contains(&entries), "there is room for {ROOM} entries");
        let mut table = Table::new(ROOM, entries);
        let mut add = Vec::new();
        while add.len() < size.calls() {
            // The entries of the last pass are removed first.
            table.expire();
            table.fill(&mut add);
        }
        let look_up = (0..size.calls()).map(|call| table.look_up(call)).collect();
        let forward = (0..size.calls()).map(|call| table.forward(call)).collect();
        let cost = |cycles| Cost::of(cycles, cycles_per_ns);
        Self {
            entries,
            add: cost(add),
            look_up: cost(look_up),
            forward: cost(forward),
            cycles_per_ns,
        }
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

impl Cost {
    fn of(mut cycles: Vec<u64>, cycles_per_ns: f64) -> Self {
        cycles.sort_unstable();
        let own = counter::own();
        let at = |hundredth: usize| {
            let place = (cycles.len().saturating_sub(1) * hundredth).div_ceil(100);
            let cycles = cycles.get(place).copied().unwrap_or(0);
            cycles.saturating_sub(own) as f64 / cycles_per_ns
        };
        Self { median_ns: at(50), p99_ns: at(99), calls: cycles.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_measured_and_takes_time() {
        for &entries in Size::Quick.entries() {
            let timing = Timing::measure(entries, Size::Quick, 1.0);
            for cost in [timing.add, timing.look_up, timing.forward] {
                assert!(cost.calls >= 200, "{timing:?}");
                assert!(0.0 < cost.median_ns && cost.median_ns <= cost.p99_ns, "{timing:?}");
            }
        }
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let timing = Timing::measure(1, Size::Quick, 2.5);
        let read = Timing::from_line(&timing.to_line()).expect("it was written so");
        let differ = |one: Cost, other: Cost| (one.p99_ns - other.p99_ns).abs() > 1e-6;
        assert!(read.entries == 1 && read.add.calls == timing.add.calls);
        assert!(!differ(read.add, timing.add) && !differ(read.forward, timing.forward));
        assert_eq!(Timing::from_line("natgate is running"), None);
    }

    #[test]
    fn percentiles_are_of_the_sorted_calls() {
        let own = counter::own();
        let cycles: Vec<u64> = (0..101).rev().map(|call| own + 10_000_000 + call).collect();
        let cost = Cost::of(cycles, 1.0);
        // The cost of reading the counter varies.
        assert!((cost.p99_ns - cost.median_ns - 49.0).abs() < 1e-6, "{cost:?}");
        assert_eq!(cost.calls, 101);
    }
}
