//! Unanswered subscribers: no remote endpoint has answered one of their packets yet, so their
//! source addresses may be forged (section 18 of the specification). There are two queues, the
//! oldest first: one of all unanswered subscribers, and one of subscribers that requested mappings.
//! Each subscriber has a list of its mappings. No change of a queue or of a list needs a search.
//!
//! A list has an entry for each mapping that an unanswered subscriber begins. The line of the
//! mapping has the number of the entry in place of the time at which the mapping was made, and the
//! entry has that time. So few unanswered mappings take little memory, and the entries lie close
//! together. An answer ends the list of the subscriber: its entries stay until their mappings are
//! removed.
//!
//! `reclaim.rs` decides when the oldest give way.

use crate::protocols::PROTOCOLS;
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

/// State of an unanswered subscriber. In a free entry, `links[0].after` is the next free entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    links: [Links; QUEUES],
    /// Place of the subscriber's record.
    record: u32,
    /// Time at which the subscriber's record was made, nanoseconds.
    made: u64,
    is_asking: bool,
    /// The sibling entry of the subscriber's latest mapping, and the number of its mappings.
    latest: u32,
    mappings: u32,
    /// The pool of the subscriber's first mapping, and the number of its mappings of that pool, by
    /// the place of their protocol.
    pool: u16,
    of_pool: [u32; PROTOCOLS.len() + 1],
}

impl Entry {
    const NONE: Self = Self {
        links: [Links::NONE; QUEUES],
        record: NONE,
        made: 0,
        is_asking: false,
        latest: NONE,
        mappings: 0,
        pool: 0,
        of_pool: [0; PROTOCOLS.len() + 1],
    };
}

/// A mapping that an unanswered subscriber began.
#[derive(Clone, Copy, Debug)]
struct Sibling {
    /// The entries of the subscriber's next older and next younger mapping, or [`NONE`]. They mean
    /// nothing once the subscriber is answered. In a free entry, `older` is the next free entry.
    older: u32,
    younger: u32,
    /// The slot of the mapping.
    slot: u32,
    /// Tick at which the mapping was made.
    created: u32,
    /// The pool of its external address, and the place of its protocol.
    pool: u16,
    place: u8,
}

/// All unanswered subscribers. Each is known by the number of its entry.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    entries: Vec<Entry>,
    queues: [Ends; QUEUES],
    siblings: Vec<Sibling>,
    /// The first free one of `entries` and of `siblings`, or [`NONE`].
    free_entry: u32,
    free_sibling: u32,
    /// Number of mappings of all unanswered subscribers.
    mappings: u32,
    /// These mappings by pool and by [`place_of`](crate::protocols::place_of).
    by_pool: Vec<[u32; PROTOCOLS.len() + 1]>,
}

impl Unanswered {
    /// Makes empty queues, with room for `records` records, `slots` slots of mappings, and the
    /// counts of `pools` pools.
    pub(crate) fn new(records: usize, slots: usize, pools: usize) -> Self {
        Self {
            entries: Vec::with_capacity(records),
            queues: [Ends::NONE; QUEUES],
            siblings: Vec::with_capacity(slots),
            free_entry: NONE,
            free_sibling: NONE,
            mappings: 0,
            by_pool: vec![[0; PROTOCOLS.len() + 1]; pools],
        }
    }

    /// Makes room for the counts of `pools` pools.
    pub(crate) fn set_pools(&mut self, pools: usize) {
        self.by_pool.resize(pools.max(self.by_pool.len()), [0; PROTOCOLS.len() + 1]);
    }

    /// Bytes that `records` records and `slots` slots take.
    pub(crate) fn memory(records: usize, slots: usize) -> u64 {
        (records * size_of::<Entry>() + slots * size_of::<Sibling>()) as u64
    }

    /// Number of subscribers in a queue.
    pub(crate) fn count(&self, queue: Queue) -> u32 {
        self.queues[queue as usize].count
    }

    /// Number of mappings of unanswered subscribers.
    pub(crate) fn mappings(&self) -> u32 {
        self.mappings
    }

    /// Number of mappings of a pool that unanswered subscribers have, by the place of their
    /// protocol.
    pub(crate) fn mappings_of(&self, pool: usize) -> [u32; PROTOCOLS.len() + 1] {
        self.by_pool.get(pool).copied().unwrap_or_default()
    }

    /// The oldest subscriber of a queue.
    pub(crate) fn oldest(&self, queue: Queue) -> Option<u32> {
        let oldest = self.queues[queue as usize].oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// The place of a subscriber's record.
    pub(crate) fn record(&self, at: u32) -> u32 {
        self.entries[at as usize].record
    }

    /// Time at which a subscriber's record was made, nanoseconds.
    pub(crate) fn made(&self, at: u32) -> u64 {
        self.entries[at as usize].made
    }

    /// The slot of a subscriber's latest mapping, if the subscriber has a mapping.
    pub(crate) fn latest_mapping(&self, at: u32) -> Option<u32> {
        let latest = self.siblings.get(self.entries[at as usize].latest as usize)?;
        Some(latest.slot)
    }

    /// Tick at which the mapping of a sibling entry was made.
    pub(crate) fn created(&self, sibling: u32) -> u32 {
        self.siblings[sibling as usize].created
    }

    // ---- changes of subscribers ----

    /// Enters the subscriber of a record as the latest. Returns its entry.
    pub(crate) fn enter(&mut self, record: u32, now: u64) -> u32 {
        let entry = Entry { record, made: now, ..Entry::NONE };
        let at = match self.entries.get_mut(self.free_entry as usize) {
            Some(freed) => {
                let next = core::mem::replace(freed, entry).links[0].after;
                core::mem::replace(&mut self.free_entry, next)
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.append(at, Queue::All);
        at
    }

    /// Notes that a subscriber requests mappings.
    pub(crate) fn ask(&mut self, at: u32) {
        if !self.entries[at as usize].is_asking {
            self.entries[at as usize].is_asking = true;
            self.append(at, Queue::Asking);
        }
    }

    /// Takes a subscriber out of all queues, and frees its entry: a remote endpoint has answered
    /// it, or its record is removed. If it has mappings of several pools, the time of the call
    /// grows with their number.
    pub(crate) fn leave(&mut self, at: u32) {
        let Entry { is_asking, mappings, pool, of_pool, mut latest, .. } =
            self.entries[at as usize];
        for (place, count) in (0..).zip(of_pool) {
            self.count_of_pool(pool, place, -(count as i32));
        }
        let has_others = mappings > of_pool.iter().sum::<u32>();
        while has_others && let Some(&sibling) = self.siblings.get(latest as usize) {
            if sibling.pool != pool {
                self.count_of_pool(sibling.pool, sibling.place, -1);
            }
            latest = sibling.older;
        }
        self.remove(at, Queue::All);
        if is_asking {
            self.remove(at, Queue::Asking);
        }
        self.mappings -= mappings;
        let free = core::mem::replace(&mut self.free_entry, at);
        self.entries[at as usize].links[0] = Links { before: NONE, after: free };
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

    /// Notes a new mapping of a subscriber, made at tick `created`, of this pool and with this
    /// place of its protocol. Returns the mapping's sibling entry.
    pub(crate) fn add_mapping(
        &mut self,
        at: u32,
        slot: u32,
        created: u32,
        (pool, place): (usize, usize),
    ) -> u32 {
        let (pool, place) = (pool as u16, place as u8);
        self.count_of_pool(pool, place, 1);
        let older = self.entries[at as usize].latest;
        let sibling = Sibling { older, younger: NONE, slot, created, pool, place };
        let number = match self.siblings.get_mut(self.free_sibling as usize) {
            Some(freed) => {
                let next = core::mem::replace(freed, sibling).older;
                core::mem::replace(&mut self.free_sibling, next)
            }
            None => {
                self.siblings.push(sibling);
                self.siblings.len() as u32 - 1
            }
        };
        if let Some(older) = self.siblings.get_mut(older as usize) {
            older.younger = number;
        }
        let entry = &mut self.entries[at as usize];
        if entry.mappings == 0 {
            entry.pool = pool;
        }
        if entry.pool == pool {
            entry.of_pool[usize::from(place)] += 1;
        }
        entry.latest = number;
        entry.mappings += 1;
        self.mappings += 1;
        number
    }

    /// Takes the mapping of a sibling entry out of the list of its subscriber, which is unanswered.
    pub(crate) fn remove_mapping(&mut self, at: u32, sibling: u32) {
        let Sibling { older, younger, pool, place, .. } = self.siblings[sibling as usize];
        self.count_of_pool(pool, place, -1);
        let entry = &mut self.entries[at as usize];
        if entry.pool == pool {
            entry.of_pool[usize::from(place)] -= 1;
        }
        entry.mappings -= 1;
        self.mappings -= 1;
        match self.siblings.get_mut(younger as usize) {
            None => entry.latest = older,
            Some(younger) => younger.older = older,
        }
        if let Some(older) = self.siblings.get_mut(older as usize) {
            older.younger = younger;
        }
    }

    fn count_of_pool(&mut self, pool: u16, place: u8, change: i32) {
        if let Some(of_pool) = self.by_pool.get_mut(usize::from(pool)) {
            let count = &mut of_pool[usize::from(place)];
            *count = count.strict_add_signed(change);
        }
    }

    /// Frees the sibling entry of a mapping that is removed.
    pub(crate) fn free_sibling(&mut self, sibling: u32) {
        self.siblings[sibling as usize].older = core::mem::replace(&mut self.free_sibling, sibling);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::{BTreeMap, VecDeque};
    use proptest::prelude::*;

    type ByNumber<T> = BTreeMap<u32, T>;

    const POOLS: usize = 3;

    /// The pool of the mapping in a slot, and the place of its protocol.
    fn pool_of(slot: u32) -> (usize, usize) {
        (slot as usize % POOLS, slot as usize % 2 * PROTOCOLS.len())
    }

    /// Compares a queue of subscribers, by the places of their records.
    fn check_queue(
        unanswered: &Unanswered,
        queue: Queue,
        expected: &VecDeque<u32>,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(unanswered.count(queue) as usize, expected.len());
        let oldest = unanswered.oldest(queue).map(|at| unanswered.record(at));
        prop_assert_eq!(oldest, expected.front().copied());
        Ok(())
    }

    /// Compares the lists of mappings, by subscriber, and the creation times, by slot.
    fn check_mappings(
        unanswered: &Unanswered,
        mappings: &ByNumber<Vec<u32>>,
        entries: &ByNumber<u32>,
        siblings: &ByNumber<(u32, u32)>,
    ) -> Result<(), TestCaseError> {
        let all: usize = mappings.values().map(Vec::len).sum();
        prop_assert_eq!(unanswered.mappings() as usize, all);
        for pool in 0..POOLS {
            let mut of_pool = [0; PROTOCOLS.len() + 1];
            for slot in mappings.values().flatten().filter(|slot| pool_of(**slot).0 == pool) {
                of_pool[pool_of(*slot).1] += 1;
            }
            prop_assert_eq!(unanswered.mappings_of(pool), of_pool);
        }
        for (at, own) in mappings {
            prop_assert_eq!(unanswered.latest_mapping(entries[at]), own.last().copied());
        }
        for &(sibling, created) in siblings.values() {
            prop_assert_eq!(unanswered.created(sibling), created);
        }
        Ok(())
    }

    proptest! {
        /// Compares with queues that are searched.
        #[test]
        fn behaves_as_queues_do(
            ops in prop::collection::vec((0_u8..5, 0_u32..8, 0_u32..4), 1..200),
        ) {
            let mut unanswered = Unanswered::new(8, 64, 1);
            unanswered.set_pools(POOLS);
            let mut order: VecDeque<u32> = VecDeque::new();
            let mut asking: VecDeque<u32> = VecDeque::new();
            let mut mappings: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            let mut entries: BTreeMap<u32, u32> = BTreeMap::new();
            // By slot, also those of answered subscribers.
            let mut siblings: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
            for (time, (what, at, which)) in ops.into_iter().enumerate() {
                let slot = at * 4 + which;
                match (what, mappings.contains_key(&at)) {
                    (_, false) => {
                        entries.insert(at, unanswered.enter(at, time as u64));
                        order.push_back(at);
                        mappings.insert(at, Vec::new());
                    }
                    (0, _) => {
                        unanswered.leave(entries.remove(&at).unwrap());
                        order.retain(|one| *one != at);
                        asking.retain(|one| *one != at);
                        mappings.remove(&at);
                        // The mappings with an even slot stay for some time.
                        for slot in (at * 4..at * 4 + 4).filter(|slot| slot % 2 == 1) {
                            if let Some((sibling, _)) = siblings.remove(&slot) {
                                unanswered.free_sibling(sibling);
                            }
                        }
                    }
                    (1, _) => {
                        unanswered.ask(entries[&at]);
                        if !asking.contains(&at) {
                            asking.push_back(at);
                        }
                    }
                    _ => {
                        let own = mappings.get_mut(&at).unwrap();
                        match own.iter().position(|one| *one == slot) {
                            Some(place) => {
                                own.remove(place);
                                let (sibling, _) = siblings.remove(&slot).unwrap();
                                unanswered.remove_mapping(entries[&at], sibling);
                                unanswered.free_sibling(sibling);
                            }
                            None => {
                                // The mapping of an earlier time of this subscriber ends.
                                if let Some((earlier, _)) = siblings.remove(&slot) {
                                    unanswered.free_sibling(earlier);
                                }
                                own.push(slot);
                                let created = time as u32;
                                let (entry, pool) = (entries[&at], pool_of(slot));
                                let sibling = unanswered.add_mapping(entry, slot, created, pool);
                                siblings.insert(slot, (sibling, created));
                            }
                        }
                    }
                }
                check_queue(&unanswered, Queue::All, &order)?;
                check_queue(&unanswered, Queue::Asking, &asking)?;
                check_mappings(&unanswered, &mappings, &entries, &siblings)?;
                prop_assert!(unanswered.siblings.len() <= 32 && unanswered.entries.len() <= 8);
            }
        }
    }
}
