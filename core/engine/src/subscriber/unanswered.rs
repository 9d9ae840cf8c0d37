//! Unanswered subscribers: no remote endpoint has answered one of their packets yet, so their
//! source addresses may be forged (section 18 of the specification). There are two queues, the
//! oldest first: one of all unanswered subscribers, and one of subscribers that requested mappings.
//! Each subscriber has a list of its mappings. No change of a queue or of a list needs a search.
//!
//! `reclaim.rs` decides when the oldest give way.

use alloc::vec;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// A queue of unanswered subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// All unanswered subscribers, by the time of their records.
    All,
    /// Unanswered subscribers that requested mappings, by the time of the first request.
    Asking,
}

/// Number of queues.
const QUEUES: usize = 2;

/// The neighbours of an element of a queue.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

impl Links {
    const NONE: Self = Self { before: NONE, after: NONE };
}

/// The ends of a queue.
#[derive(Clone, Copy, Debug)]
struct Ends {
    oldest: u32,
    latest: u32,
    count: u32,
}

impl Ends {
    const NONE: Self = Self { oldest: NONE, latest: NONE, count: 0 };
}

/// State of an unanswered subscriber, by the place of its record.
#[derive(Clone, Copy, Debug)]
struct Entry {
    links: [Links; QUEUES],
    /// Time at which the subscriber's record was made, nanoseconds.
    made: u64,
    is_asking: bool,
    /// The slot of the subscriber's latest mapping, and the number of its mappings.
    latest: u32,
    mappings: u32,
}

impl Entry {
    const NONE: Self =
        Self { links: [Links::NONE; QUEUES], made: 0, is_asking: false, latest: NONE, mappings: 0 };
}

/// All unanswered subscribers.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    entries: Vec<Entry>,
    queues: [Ends; QUEUES],
    /// For the slot of each mapping of an unanswered subscriber, the next older and the next
    /// younger mapping of the subscriber; 0: none, otherwise the slot plus one.
    siblings: Vec<[u32; 2]>,
    /// Number of mappings of all unanswered subscribers.
    mappings: u32,
}

impl Unanswered {
    /// Makes empty queues, with room for `records` records and `slots` slots of mappings.
    pub(crate) fn new(records: usize, slots: usize) -> Self {
        Self {
            entries: Vec::with_capacity(records),
            queues: [Ends::NONE; QUEUES],
            siblings: vec![[0; 2]; slots],
            mappings: 0,
        }
    }

    /// Bytes that `records` records and `slots` slots take.
    pub(crate) fn memory(records: usize, slots: usize) -> u64 {
        (records * size_of::<Entry>() + slots * size_of::<[u32; 2]>()) as u64
    }

    /// Number of subscribers in a queue.
    pub(crate) fn count(&self, queue: Queue) -> u32 {
        self.queues[queue as usize].count
    }

    /// Number of mappings of unanswered subscribers.
    pub(crate) fn mappings(&self) -> u32 {
        self.mappings
    }

    /// The oldest subscriber of a queue.
    pub(crate) fn oldest(&self, queue: Queue) -> Option<u32> {
        let oldest = self.queues[queue as usize].oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// Time at which a subscriber's record was made, nanoseconds.
    pub(crate) fn made(&self, at: u32) -> u64 {
        self.entries[at as usize].made
    }

    /// The slot of a subscriber's latest mapping.
    pub(crate) fn latest_mapping(&self, at: u32) -> u32 {
        self.entries[at as usize].latest
    }

    // ---- changes of subscribers ----

    /// Enters a subscriber as the latest.
    pub(crate) fn enter(&mut self, at: u32, now: u64) {
        if self.entries.len() <= at as usize {
            self.entries.resize(at as usize + 1, Entry::NONE);
        }
        self.entries[at as usize] = Entry { made: now, ..Entry::NONE };
        self.append(at, Queue::All);
    }

    /// Notes that a subscriber requests mappings.
    pub(crate) fn ask(&mut self, at: u32) {
        if !self.entries[at as usize].is_asking {
            self.entries[at as usize].is_asking = true;
            self.append(at, Queue::Asking);
        }
    }

    /// Takes a subscriber out of all queues: a remote endpoint has answered it, or its record is
    /// removed.
    pub(crate) fn leave(&mut self, at: u32) {
        let Entry { is_asking, mappings, .. } = self.entries[at as usize];
        self.remove(at, Queue::All);
        if is_asking {
            self.remove(at, Queue::Asking);
        }
        self.mappings -= mappings;
    }

    fn append(&mut self, at: u32, queue: Queue) {
        let ends = &mut self.queues[queue as usize];
        let before = core::mem::replace(&mut ends.latest, at);
        ends.count += 1;
        if before == NONE {
            ends.oldest = at;
        } else {
            self.entries[before as usize].links[queue as usize].after = at;
        }
        self.entries[at as usize].links[queue as usize] = Links { before, after: NONE };
    }

    fn remove(&mut self, at: u32, queue: Queue) {
        let Links { before, after } = self.entries[at as usize].links[queue as usize];
        let ends = &mut self.queues[queue as usize];
        ends.count -= 1;
        if before == NONE {
            ends.oldest = after;
        }
        if after == NONE {
            ends.latest = before;
        }
        if before != NONE {
            self.entries[before as usize].links[queue as usize].after = after;
        }
        if after != NONE {
            self.entries[after as usize].links[queue as usize].before = before;
        }
    }

    // ---- changes of their mappings ----

    /// Notes a new mapping of a subscriber.
    pub(crate) fn add_mapping(&mut self, at: u32, slot: u32) {
        let entry = &mut self.entries[at as usize];
        let older = core::mem::replace(&mut entry.latest, slot);
        entry.mappings += 1;
        self.mappings += 1;
        // `NONE` plus one is 0.
        self.siblings[slot as usize] = [older.wrapping_add(1), 0];
        if older != NONE {
            self.siblings[older as usize][1] = slot + 1;
        }
    }

    /// Notes the removal of a mapping of a subscriber.
    pub(crate) fn remove_mapping(&mut self, at: u32, slot: u32) {
        let [older, younger] = self.siblings[slot as usize];
        let entry = &mut self.entries[at as usize];
        entry.mappings -= 1;
        self.mappings -= 1;
        match younger.checked_sub(1) {
            None => entry.latest = older.wrapping_sub(1),
            Some(younger) => self.siblings[younger as usize][0] = older,
        }
        if let Some(older) = older.checked_sub(1) {
            self.siblings[older as usize][1] = younger;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::{BTreeMap, VecDeque};
    use proptest::prelude::*;

    proptest! {
        /// Compares with queues that are searched.
        #[test]
        fn behaves_as_queues_do(
            ops in prop::collection::vec((0_u8..5, 0_u32..8, 0_u32..4), 1..200),
        ) {
            let mut unanswered = Unanswered::new(8, 64);
            let mut order: VecDeque<u32> = VecDeque::new();
            let mut asking: VecDeque<u32> = VecDeque::new();
            let mut mappings: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (time, (what, at, which)) in ops.into_iter().enumerate() {
                let slot = at * 4 + which;
                match (what, mappings.contains_key(&at)) {
                    (_, false) => {
                        unanswered.enter(at, time as u64);
                        order.push_back(at);
                        mappings.insert(at, Vec::new());
                    }
                    (0, _) => {
                        unanswered.leave(at);
                        order.retain(|one| *one != at);
                        asking.retain(|one| *one != at);
                        mappings.remove(&at);
                    }
                    (1, _) => {
                        unanswered.ask(at);
                        if !asking.contains(&at) {
                            asking.push_back(at);
                        }
                    }
                    _ => {
                        let own = mappings.get_mut(&at).unwrap();
                        match own.iter().position(|one| *one == slot) {
                            Some(place) => {
                                own.remove(place);
                                unanswered.remove_mapping(at, slot);
                            }
                            None => {
                                own.push(slot);
                                unanswered.add_mapping(at, slot);
                            }
                        }
                    }
                }
                for (queue, expected) in [(Queue::All, &order), (Queue::Asking, &asking)] {
                    prop_assert_eq!(unanswered.count(queue) as usize, expected.len());
                    prop_assert_eq!(unanswered.oldest(queue), expected.front().copied());
                }
                let all: usize = mappings.values().map(Vec::len).sum();
                prop_assert_eq!(unanswered.mappings() as usize, all);
                for (&at, own) in &mappings {
                    let latest = own.last().copied().unwrap_or(NONE);
                    prop_assert_eq!(unanswered.latest_mapping(at), latest);
                }
            }
        }
    }
}
