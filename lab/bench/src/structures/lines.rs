//! The fastest structure of the paper: a hash table whose chains consist of cache lines with two or
//! three records each. The first line of a chain is the bucket itself, so most sessions cost one
//! line.

use super::record::{External, Key, Record};
use super::{Structure, modulus};
use crate::memory::touched;
use natgate_hugepages::prefetch;

/// Number for no line.
const NONE: u32 = u32::MAX;

/// A cache line of records; the used records come first.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line<const ITEMS: usize> {
    records: [Record; ITEMS],
    next: u32,
}

const _: () = assert!(size_of::<Line<2>>() == 64 && size_of::<Line<3>>() == 64);

impl<const ITEMS: usize> Line<ITEMS> {
    fn empty() -> Self {
        Self { records: [Record::default(); ITEMS], next: NONE }
    }

    /// Place of the key, or the first free place; `None` if the line is full of other keys.
    #[inline(always)]
    fn place(&mut self, key: Key) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.key() == key || record.key() == Key::NONE)
    }
}

pub(super) struct Lines<const ITEMS: usize> {
    buckets: Vec<Line<ITEMS>>,
    more: Vec<Line<ITEMS>>,
}

impl<const ITEMS: usize> Lines<ITEMS> {
    /// Line that has the key, or has a place for it.
    #[inline(always)]
    fn line(&mut self, key: Key) -> &mut Line<ITEMS> {
        let bucket = key.modulo(self.buckets.len() as u64 - 1);
        if self.buckets[bucket].place(key).is_some() {
            return &mut self.buckets[bucket];
        }
        let mut next = self.buckets[bucket].next;
        let mut before = None;
        while next != NONE {
            if self.more[next as usize].place(key).is_some() {
                return &mut self.more[next as usize];
            }
            before = Some(next);
            next = self.more[next as usize].next;
        }
        let new = self.more.len();
        self.more.push(Line::empty());
        match before {
            Some(line) => self.more[line as usize].next = new as u32,
            None => self.buckets[bucket].next = new as u32,
        }
        &mut self.more[new]
    }
}

impl<const ITEMS: usize> Structure for Lines<ITEMS> {
    const STAGES: usize = 1;

    fn with_capacity(sessions: usize) -> Self {
        let buckets = modulus(sessions);
        // With random keys the overflow is smaller than this number. Otherwise the vector grows.
        let more = sessions.saturating_sub(buckets) / ITEMS + sessions / 8;
        Self { buckets: vec![Line::empty(); buckets], more: touched(more, Line::empty()) }
    }

    fn prefetch(&self, key: Key, _stage: usize) {
        prefetch(&self.buckets, key.modulo(self.buckets.len() as u64 - 1));
    }

    fn translate(&mut self, key: Key, now: u32, make: impl FnOnce() -> External) -> External {
        let record = self.line(key).place(key).expect("the line has a place for the key");
        if let Some(external) = record.refresh(key, now) {
            return external;
        }
        let external = make();
        *record = Record::new(key, external, now);
        external
    }
}
