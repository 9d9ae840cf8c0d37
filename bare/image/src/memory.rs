//! Free memory of the machine.
//!
//! It consists of whole pages, in a list of ranges with a fixed length. Memory is allocated from
//! this list, so the list itself must not allocate.

/// Unit and alignment of allocations, bytes.
pub const PAGE: u64 = 4096;

/// Most ranges in the list. A range without room is lost until the next boot.
const MOST: usize = 512;

/// Free memory.
#[derive(Debug)]
pub struct Memory {
    /// Begin and end of each range, ascending, never adjacent; the first `count` are in use.
    stretches: [(u64, u64); MOST],
    count: usize,
}

impl Memory {
    /// No free memory.
    pub const fn new() -> Self {
        Self { stretches: [(0, 0); MOST], count: 0 }
    }

    /// Number of free bytes.
    pub fn free_bytes(&self) -> u64 {
        self.stretches[..self.count].iter().map(|(start, end)| end - start).sum()
    }

    /// Adds the whole pages of a range. None of them may be free already.
    pub fn give(&mut self, start: u64, len: u64) {
        let Some(end) = start.checked_add(len) else { return };
        let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if start >= end {
            return;
        }
        let place = self.stretches[..self.count].partition_point(|(known, _)| *known < start);
        let joins_before = place > 0 && self.stretches[place - 1].1 == start;
        let joins_after = place < self.count && self.stretches[place].0 == end;
        match (joins_before, joins_after) {
            (true, true) => {
                self.stretches[place - 1].1 = self.stretches[place].1;
                self.remove(place);
            }
            (true, false) => self.stretches[place - 1].1 = end,
            (false, true) => self.stretches[place].0 = start,
            (false, false) => self.insert(place, (start, end)),
        }
    }

    /// Removes the free parts of a range that has another owner.
    pub fn withhold(&mut self, start: u64, len: u64) {
        let (start, end) = (start / PAGE * PAGE, start.saturating_add(len));
        let mut place = 0;
        while place < self.count {
            let (from, to) = self.stretches[place];
            if to <= start || from >= end {
                place += 1;
                continue;
            }
            self.remove(place);
            if from < start {
                self.insert(place, (from, start));
                place += 1;
            }
            let after = end.next_multiple_of(PAGE);
            if after < to {
                self.insert(place, (after, to));
                place += 1;
            }
        }
    }

    /// Allocates `len` bytes, rounded up to pages, from the first range with enough room.
    pub fn take(&mut self, len: u64) -> Option<u64> {
        let len = len.max(1).checked_next_multiple_of(PAGE)?;
        let place =
            self.stretches[..self.count].iter().position(|(start, end)| end - start >= len)?;
        let start = self.stretches[place].0;
        self.stretches[place].0 += len;
        if self.stretches[place].0 == self.stretches[place].1 {
            self.remove(place);
        }
        Some(start)
    }

    fn insert(&mut self, place: usize, stretch: (u64, u64)) {
        if self.count == MOST {
            return;
        }
        self.stretches.copy_within(place..self.count, place + 1);
        self.stretches[place] = stretch;
        self.count += 1;
    }

    fn remove(&mut self, place: usize) {
        self.stretches.copy_within(place + 1..self.count, place);
        self.count -= 1;
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_are_given_out_once_and_join_again() {
        let mut memory = Memory::new();
        memory.give(100, 3 * PAGE);
        assert_eq!(memory.free_bytes(), 2 * PAGE);
        assert_eq!((memory.take(1), memory.take(PAGE)), (Some(PAGE), Some(2 * PAGE)));
        assert_eq!(memory.take(1), None);
        memory.give(2 * PAGE, PAGE);
        memory.give(PAGE, PAGE);
        assert_eq!(memory.take(2 * PAGE), Some(PAGE));
        assert_eq!(memory.take(u64::MAX), None);
    }

    #[test]
    fn what_somebody_has_is_withheld() {
        let mut memory = Memory::new();
        memory.give(0, 10 * PAGE);
        memory.withhold(3 * PAGE + 5, PAGE);
        assert_eq!(memory.free_bytes(), 8 * PAGE);
        assert_eq!(memory.take(5 * PAGE), Some(5 * PAGE));
        assert_eq!(memory.take(3 * PAGE), Some(0));
        memory.withhold(0, u64::MAX);
        assert_eq!(memory.free_bytes(), 0);
    }

    proptest! {
        /// The list behaves like a map of pages.
        #[test]
        fn no_page_has_two_owners(
            steps in proptest::collection::vec((0..3_u8, 0..40_u64, 1..6_u64), 1..200),
        ) {
            let mut memory = Memory::new();
            let mut free = [false; 64];
            for (kind, page, len) in steps {
                match kind {
                    0 if !free[page as usize..][..len as usize].contains(&true) => {
                        memory.give(page * PAGE, len * PAGE);
                        free[page as usize..][..len as usize].fill(true);
                    }
                    0 => {}
                    1 => {
                        memory.withhold(page * PAGE, len * PAGE);
                        free[page as usize..][..len as usize].fill(false);
                    }
                    _ => if let Some(start) = memory.take(len * PAGE) {
                        let taken = &mut free[(start / PAGE) as usize..][..len as usize];
                        prop_assert!(taken.iter().all(|page| *page));
                        taken.fill(false);
                    } else {
                        let mut runs = free.windows(len as usize);
                        prop_assert!(!runs.any(|run| run.iter().all(|page| *page)));
                    }
                }
                let count = free.iter().filter(|page| **page).count() as u64;
                prop_assert_eq!(memory.free_bytes(), count * PAGE);
            }
        }
    }
}
