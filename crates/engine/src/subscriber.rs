//! Subscribers that have mappings: how many of each protocol, how fast they make them, and the
//! external address that they are paired with. A record goes with the subscriber's last mapping; by
//! then its rate has long recovered, for no mapping lives less than a second.

use crate::index::Index;
use crate::random::HashKey;
use alloc::vec::Vec;

/// A subscriber's record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Subscriber {
    pub(crate) address: u32,
    /// Index of its external address.
    pub(crate) paired: u32,
    /// Mappings: TCP, UDP, ICMP and all others.
    pub(crate) mappings: [u32; 3],
    /// In a free record, the next free one.
    next: u32,
    /// When its next mapping would be due at the permitted rate, nanoseconds.
    pub(crate) rate: Rate,
    /// When a refusal was last reported, nanoseconds.
    pub(crate) reported: Option<u64>,
}

/// The generic cell rate algorithm: evenly spaced events, a second's worth of which may come at
/// once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    due: u64,
}

impl Rate {
    const SECOND: u64 = 1_000_000_000;

    /// Whether one more event is within the rate of `per_second`.
    pub(crate) fn permits(self, now: u64, per_second: u32) -> bool {
        let spacing = Self::spacing(per_second);
        self.due <= now.saturating_add(Self::SECOND - spacing)
    }

    /// Counts an event.
    pub(crate) fn count(&mut self, now: u64, per_second: u32) {
        self.due = self.due.max(now) + Self::spacing(per_second);
    }

    fn spacing(per_second: u32) -> u64 {
        Self::SECOND / u64::from(per_second.max(1))
    }
}

const NONE: u32 = u32::MAX;

/// All subscribers that have mappings.
#[derive(Clone, Debug)]
pub(crate) struct Subscribers {
    key: HashKey,
    records: Vec<Subscriber>,
    index: Index,
    free: u32,
}

impl Subscribers {
    /// Room for as many as there can be mappings.
    pub(crate) fn new(capacity: usize, key: HashKey) -> Self {
        Self { key, records: Vec::with_capacity(capacity), index: Index::new(capacity), free: NONE }
    }

    /// Bytes that room for this many takes.
    pub(crate) fn memory(capacity: usize) -> u64 {
        (capacity * size_of::<Subscriber>()) as u64 + Index::memory(capacity)
    }

    fn hash(&self, address: u32) -> u64 {
        self.key.hash(u64::from(address), 1 << 61)
    }

    /// The record of a subscriber.
    pub(crate) fn find(&self, address: u32) -> Option<u32> {
        self.index.find(self.hash(address), |at| self.records[at as usize].address == address)
    }

    pub(crate) fn get(&self, at: u32) -> &Subscriber {
        &self.records[at as usize]
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> &mut Subscriber {
        &mut self.records[at as usize]
    }

    /// A new record, which is to get a mapping.
    ///
    /// # Panics
    /// When there are more than mappings.
    pub(crate) fn add(&mut self, address: u32, paired: u32) -> u32 {
        let record = Subscriber { address, paired, ..Subscriber::default() };
        let at = if self.free != NONE {
            let at = self.free;
            let freed = core::mem::replace(&mut self.records[at as usize], record);
            self.free = freed.next;
            at
        } else {
            assert!(self.records.len() < self.records.capacity(), "more subscribers than mappings");
            self.records.push(record);
            self.records.len() as u32 - 1
        };
        self.index.insert(self.hash(address), at);
        at
    }

    /// Notes that a subscriber has a mapping less; forgets it when that was the last.
    pub(crate) fn release(&mut self, address: u32, class: usize) {
        let at = self.find(address).expect("a mapping's subscriber has a record");
        let record = &mut self.records[at as usize];
        record.mappings[class] -= 1;
        if record.mappings == [0; 3] {
            record.next = core::mem::replace(&mut self.free, at);
            self.index.remove(self.hash(address), at);
        }
    }
}
