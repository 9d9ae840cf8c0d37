//! A cuckoo hash table with buckets of one cache line, which the paper names as future work. A key
//! lies in one of two lines. For a new key other keys may move to their second line.

use super::Structure;
use super::record::{External, Key, Record};
use natgate_hugepages::prefetch;

/// Records in a line.
const ITEMS: usize = 3;
/// Load of the table, percent: with three records in a line up to about 90 is possible.
const LOAD: usize = 80;
/// Most moves before a key goes to the list `aside`.
const MOVES: usize = 500;
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];

#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([Record; ITEMS]);

pub(super) struct Cuckoo {
    lines: Vec<Line>,
    /// Records without a place in a line: none or almost none.
    aside: Vec<Record>,
    /// Chooses the record that a new record displaces.
    turn: usize,
}

impl Cuckoo {
    fn homes(&self, key: Key) -> [usize; 2] {
        FACTORS.map(|factor| key.scaled(factor, self.lines.len()))
    }

    #[cold]
    fn make_room(&mut self, mut record: Record) {
        let mut at = self.homes(record.key())[0];
        for _ in 0..MOVES {
            self.turn = (self.turn + 1) % ITEMS;
            std::mem::swap(&mut record, &mut self.lines[at].0[self.turn]);
            let [first, second] = self.homes(record.key());
            at = if at == first { second } else { first };
            if let Some(free) = free(&mut self.lines[at]) {
                *free = record;
                return;
            }
        }
        self.aside.push(record);
    }
}

fn free(line: &mut Line) -> Option<&mut Record> {
    line.0.iter_mut().find(|record| record.key() == Key::NONE)
}

impl Structure for Cuckoo {
    const STAGES: usize = 1;

    fn with_capacity(sessions: usize) -> Self {
        let lines = (sessions * 100).div_ceil(ITEMS * LOAD).max(2);
        Self { lines: vec![Line::default(); lines], aside: Vec::new(), turn: 0 }
    }

    fn prefetch(&self, key: Key, _stage: usize) {
        for home in self.homes(key) {
            prefetch(&self.lines, home);
        }
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let homes = self.homes(key);
        for home in homes {
            for record in &mut self.lines[home].0 {
                if let Some(external) = record.refresh(key, now) {
                    return external;
                }
            }
        }
        if let Some(external) = self.aside.iter_mut().find_map(|record| record.refresh(key, now)) {
            return external;
        }
        let external = make();
        let record = Record::new(key, external, now);
        for home in homes {
            if let Some(free) = free(&mut self.lines[home]) {
                *free = record;
                return external;
            }
        }
        self.make_room(record);
        external
    }
}
