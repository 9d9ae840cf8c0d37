//! The cost of memory alone: one random cache line, read and written. A batch of lines is fetched
//! together, like the lines of a batch of packets. A table that must touch a cold line for each
//! packet cannot be faster.

use crate::random::Random;
use natgate_hugepages::prefetch;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Lines that together are as large as the compared table.
pub(crate) struct Limit {
    lines: Vec<Line>,
    order: Vec<u32>,
}

impl Limit {
    /// Creates and touches `count` lines; a round accesses `accesses` of them.
    pub(crate) fn new(count: usize, accesses: usize) -> Self {
        let mut lines = vec![Line::default(); count];
        for line in &mut lines {
            line.0[0] = 1;
        }
        Self { lines, order: vec![0; accesses] }
    }

    /// Chooses the lines of the next round.
    pub(crate) fn prepare(&mut self, random: &mut Random) {
        for place in &mut self.order {
            *place = random.below(self.lines.len() as u64) as u32;
        }
    }

    /// Touches the chosen lines, `batch` at a time.
    pub(crate) fn run(&mut self, batch: usize) {
        for places in self.order.chunks(batch) {
            for &place in places {
                prefetch(&self.lines, place as usize);
            }
            for &place in places {
                let line = &mut self.lines[place as usize];
                line.0[0] = line.0[0].wrapping_add(line.0[7] | 1);
            }
        }
    }
}
