//! Unanswered subscribers: no remote endpoint has answered one of their packets yet, so their
//! source addresses may be forged (section 18 of the specification). Such a subscriber has an entry
//! for each of its records: one for each pool of which it has mappings. There are queues of these
//! entries, the oldest first: one of all, one of each pool, and one of entries with requested
//! mappings. Each entry has a list of its mappings. No change of a queue or of a list needs a
//! search.
//!
//! A list has an element, its sibling entry, for each mapping that an unanswered subscriber begins.
//! The line of the mapping has the number of the element in place of the time at which the mapping
//! was made, and the element has that time. So few unanswered mappings take little memory, and the
//! elements lie close together. An answer ends the lists of the subscriber: their elements stay
//! until their mappings are removed.
//!
//! `reclaim.rs` decides when the oldest give way.

use crate::protocols::PROTOCOLS;
use alloc::vec;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// A queue of entries that have mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// All entries, by the time of their first mapping.
    All,
    /// Entries with requested mappings, by the time of the first request.
    Asking,
    /// Entries of a pool, by the time of their first mapping of it.
    Pool(usize),
}

/// Number of queues that an entry may be in.
const QUEUES: usize = 3;

impl Queue {
    /// The place of the queue's links in an entry.
    const fn links(self) -> usize {
        match self {
            Self::All => 0,
            Self::Asking => 1,
            Self::Pool(_) => 2,
        }
    }
}

/// Numbers of mappings by [`place_of`](crate::protocols::place_of).
pub(crate) type ByPlace = [u32; PROTOCOLS.len() + 1];

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

/// What unanswered subscribers have of a pool.
#[derive(Clone, Copy, Debug)]
struct OfPool {
    queue: Ends,
    mappings: ByPlace,
}

impl OfPool {
    const NONE: Self = Self { queue: Ends::NONE, mappings: [0; PROTOCOLS.len() + 1] };
}

/// An unanswered subscriber's mappings of a pool. In a free entry, `links[0].after` is the next
/// free entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    links: [Links; QUEUES],
    /// The neighbours among the entries of the subscriber; the entry of its first record has none
    /// before.
    others: Links,
    /// Place of the record.
    record: u32,
    /// The sibling entry of the latest mapping, or [`NONE`]. An entry without mappings is in no
    /// queue.
    latest: u32,
    /// Time at which the first mapping was made, nanoseconds.
    made: u64,
    mappings: ByPlace,
    pool: u16,
    is_asking: bool,
}

/// A mapping that an unanswered subscriber began.
#[derive(Clone, Copy, Debug)]
struct Sibling {
    /// The elements of the next older and the next younger mapping of the list, or [`NONE`]. They
    /// mean nothing once the subscriber is answered. In a free element, `older` is the next free
    /// one.
    older: u32,
    younger: u32,
    /// The slot of the mapping.
    slot: u32,
    /// Tick at which the mapping was made.
    created: u32,
}

// Four siblings take one cache line.
const _: () = assert!(size_of::<Sibling>() == 16);

/// All unanswered subscribers. Each of their records is known by the number of its entry.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    entries: Vec<Entry>,
    all: Ends,
    asking: Ends,
    pools: Vec<OfPool>,
    siblings: Vec<Sibling>,
    /// The first free one of `entries` and of `siblings`, or [`NONE`].
    free_entry: u32,
    free_sibling: u32,
    /// Number of unanswered subscribers, and of all their mappings.
    subscribers: u32,
    mappings: u32,
}

impl Unanswered {
    /// Makes empty queues, with room for `records` records, `slots` slots of mappings, and `pools`
    /// pools.
    pub(crate) fn new(records: usize, slots: usize, pools: usize) -> Self {
        Self {
            entries: Vec::with_capacity(records),
            all: Ends::NONE,
            asking: Ends::NONE,
            pools: vec![OfPool::NONE; pools],
            siblings: Vec::with_capacity(slots),
            free_entry: NONE,
            free_sibling: NONE,
            subscribers: 0,
            mappings: 0,
        }
    }

    /// Makes room for `pools` pools.
    pub(crate) fn set_pools(&mut self, pools: usize) {
        self.pools.resize(pools.max(self.pools.len()), OfPool::NONE);
    }

    /// Bytes that `records` records and `slots` slots take.
    pub(crate) fn memory(records: usize, slots: usize) -> u64 {
        (records * size_of::<Entry>() + slots * size_of::<Sibling>()) as u64
    }

    /// Number of unanswered subscribers.
    pub(crate) fn subscribers(&self) -> u32 {
        self.subscribers
    }

    /// Number of entries in a queue.
    pub(crate) fn count(&self, queue: Queue) -> u32 {
        self.ends(queue).count
    }

    /// Number of mappings of unanswered subscribers.
    pub(crate) fn mappings(&self) -> u32 {
        self.mappings
    }

    /// Number of mappings of a pool that unanswered subscribers have, by the place of their
    /// protocol.
    pub(crate) fn mappings_of(&self, pool: usize) -> ByPlace {
        self.pools.get(pool).map_or([0; PROTOCOLS.len() + 1], |of_pool| of_pool.mappings)
    }

    /// The oldest entry of a queue.
    pub(crate) fn oldest(&self, queue: Queue) -> Option<u32> {
        let oldest = self.ends(queue).oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// The place of an entry's record.
    pub(crate) fn record(&self, at: u32) -> u32 {
        self.entries[at as usize].record
    }

    /// Time at which the first mapping of an entry in a queue was made, nanoseconds.
    pub(crate) fn made(&self, at: u32) -> u64 {
        self.entries[at as usize].made
    }

    /// The slot of the latest mapping of an entry, if it has one.
    pub(crate) fn latest_mapping(&self, at: u32) -> Option<u32> {
        let latest = self.siblings.get(self.entries[at as usize].latest as usize)?;
        Some(latest.slot)
    }

    /// Tick at which the mapping of a sibling entry was made.
    pub(crate) fn created(&self, sibling: u32) -> u32 {
        self.siblings[sibling as usize].created
    }

    /// The next entry of the same subscriber.
    pub(crate) fn other(&self, at: u32) -> Option<u32> {
        let after = self.entries[at as usize].others.after;
        (after != NONE).then_some(after)
    }

    /// Of the other entries of the same subscriber that have mappings, the one of the last pool.
    pub(crate) fn last_further(&self, at: u32) -> Option<u32> {
        let chain = |at: u32, next: fn(&Links) -> u32| {
            let entry = |at: u32| self.entries.get(at as usize);
            let next = move |at: &u32| entry(*at).map(|entry| next(&entry.others));
            core::iter::successors(next(&at), next).filter(|at| *at != NONE)
        };
        let others = chain(at, |links| links.before).chain(chain(at, |links| links.after));
        let with_mappings = others.filter(|at| self.entries[*at as usize].latest != NONE);
        with_mappings.max_by_key(|at| self.entries[*at as usize].pool)
    }

    fn ends(&self, queue: Queue) -> &Ends {
        match queue {
            Queue::All => &self.all,
            Queue::Asking => &self.asking,
            Queue::Pool(pool) => self.pools.get(pool).map_or(&Ends::NONE, |of_pool| &of_pool.queue),
        }
    }

    #[inline(always)]
    fn ends_mut(&mut self, queue: Queue) -> &mut Ends {
        match queue {
            Queue::All => &mut self.all,
            Queue::Asking => &mut self.asking,
            Queue::Pool(pool) => &mut self.pools[pool].queue,
        }
    }

    // ---- changes of subscribers ----

    /// Enters a record of a pool. `first` is the entry of the subscriber's first record, if this
    /// is a further one. Returns the record's entry.
    pub(crate) fn enter(&mut self, record: u32, pool: usize, first: Option<u32>) -> u32 {
        let mut entry = Entry {
            links: [Links::NONE; QUEUES],
            others: Links::NONE,
            record,
            latest: NONE,
            made: 0,
            mappings: [0; PROTOCOLS.len() + 1],
            pool: pool as u16,
            is_asking: false,
        };
        let first = match first {
            Some(first) => first,
            None => {
                self.subscribers += 1;
                NONE
            }
        };
        if let Some(first) = self.entries.get(first as usize) {
            entry.others.after = first.others.after;
        }
        entry.others.before = first;
        let after = entry.others.after;
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
        if let Some(first) = self.entries.get_mut(first as usize) {
            first.others.after = at;
        }
        if let Some(after) = self.entries.get_mut(after as usize) {
            after.others.before = at;
        }
        at
    }

    /// Notes that a subscriber requests mappings of a pool. It has one.
    pub(crate) fn ask(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        if !core::mem::replace(&mut entry.is_asking, true) {
            self.append(at, Queue::Asking);
        }
    }

    /// Takes an entry out of all queues, and frees it: a remote endpoint has answered the
    /// subscriber, or the record is removed. The entry of the subscriber's first record is the last
    /// to leave.
    pub(crate) fn leave(&mut self, at: u32) {
        let Entry { latest, mappings, pool, others, .. } = self.entries[at as usize];
        if latest != NONE {
            let of_pool = &mut self.pools[usize::from(pool)].mappings;
            for (all, count) in of_pool.iter_mut().zip(mappings) {
                *all -= count;
                self.mappings -= count;
            }
            self.remove_from_queues(at);
        }
        self.subscribers -= u32::from(others.before == NONE);
        if let Some(before) = self.entries.get_mut(others.before as usize) {
            before.others.after = others.after;
        }
        if let Some(after) = self.entries.get_mut(others.after as usize) {
            after.others.before = others.before;
        }
        let free = core::mem::replace(&mut self.free_entry, at);
        self.entries[at as usize].links[0].after = free;
    }

    fn remove_from_queues(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        let pool = usize::from(entry.pool);
        if core::mem::take(&mut entry.is_asking) {
            self.remove(at, Queue::Asking);
        }
        self.remove(at, Queue::All);
        self.remove(at, Queue::Pool(pool));
    }

    #[inline(always)]
    fn append(&mut self, at: u32, queue: Queue) {
        let ends = self.ends_mut(queue);
        let before = core::mem::replace(&mut ends.latest, at);
        ends.count += 1;
        if before == NONE {
            ends.oldest = at;
        } else {
            self.entries[before as usize].links[queue.links()].after = at;
        }
        self.entries[at as usize].links[queue.links()] = Links { before, after: NONE };
    }

    #[inline(always)]
    fn remove(&mut self, at: u32, queue: Queue) {
        let Links { before, after } = self.entries[at as usize].links[queue.links()];
        let ends = self.ends_mut(queue);
        ends.count -= 1;
        if before == NONE {
            ends.oldest = after;
        }
        if after == NONE {
            ends.latest = before;
        }
        if before != NONE {
            self.entries[before as usize].links[queue.links()].after = after;
        }
        if after != NONE {
            self.entries[after as usize].links[queue.links()].before = before;
        }
    }

    // ---- changes of their mappings ----

    /// Notes a new mapping of an entry, made at tick `created` and at time `now` (nanoseconds),
    /// with this place of its protocol. Returns the mapping's sibling entry.
    pub(crate) fn add_mapping(
        &mut self,
        at: u32,
        (slot, place): (u32, usize),
        created: u32,
        now: u64,
    ) -> u32 {
        let entry = &mut self.entries[at as usize];
        let (older, pool) = (entry.latest, usize::from(entry.pool));
        let sibling = Sibling { older, younger: NONE, slot, created };
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
        entry.latest = number;
        entry.mappings[place] += 1;
        self.pools[pool].mappings[place] += 1;
        self.mappings += 1;
        match self.siblings.get_mut(older as usize) {
            Some(older) => older.younger = number,
            None => {
                entry.made = now;
                self.append(at, Queue::All);
                self.append(at, Queue::Pool(pool));
            }
        }
        number
    }

    /// Takes the mapping of a sibling entry, with this place of its protocol, out of the list of an
    /// entry.
    pub(crate) fn remove_mapping(&mut self, at: u32, sibling: u32, place: usize) {
        let Sibling { older, younger, .. } = self.siblings[sibling as usize];
        let entry = &mut self.entries[at as usize];
        entry.mappings[place] -= 1;
        self.pools[usize::from(entry.pool)].mappings[place] -= 1;
        self.mappings -= 1;
        match self.siblings.get_mut(younger as usize) {
            None => entry.latest = older,
            Some(younger) => younger.older = older,
        }
        match self.siblings.get_mut(older as usize) {
            Some(older) => older.younger = younger,
            None if younger == NONE => self.remove_from_queues(at),
            None => {}
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
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const POOLS: usize = 3;

    /// A record of the reference, by subscriber and pool; pool 0 has the first records.
    #[derive(Debug, Default)]
    struct Record {
        entry: u32,
        /// When its first mapping was made, and the first request, by the number of the operation.
        made: u32,
        asked: Option<u32>,
        /// Sibling entries and slots, the latest last.
        mappings: Vec<(u32, u32)>,
    }

    type Records = BTreeMap<(u32, usize), Record>;

    /// Place of the protocol of the mapping in a slot.
    fn place_of(slot: u32) -> usize {
        slot as usize % 2 * PROTOCOLS.len()
    }

    fn number((subscriber, pool): (u32, usize)) -> u32 {
        subscriber * POOLS as u32 + pool as u32
    }

    /// Compares a queue with records that are searched.
    fn check_queue(
        unanswered: &Unanswered,
        queue: Queue,
        records: &Records,
    ) -> Result<(), TestCaseError> {
        let of_queue = |(at, record): (&(u32, usize), &Record)| {
            let time = match queue {
                Queue::All => Some(record.made),
                Queue::Asking => record.asked,
                Queue::Pool(pool) => (at.1 == pool).then_some(record.made),
            };
            time.filter(|_| !record.mappings.is_empty()).map(|time| (time, number(*at)))
        };
        let mut all: Vec<(u32, u32)> = records.iter().filter_map(of_queue).collect();
        all.sort_unstable();
        prop_assert_eq!(unanswered.count(queue) as usize, all.len());
        let oldest = unanswered.oldest(queue).map(|at| unanswered.record(at));
        prop_assert_eq!(oldest, all.first().map(|(_, number)| *number));
        Ok(())
    }

    fn check(unanswered: &Unanswered, records: &Records) -> Result<(), TestCaseError> {
        let subscribers = records.keys().filter(|(_, pool)| *pool == 0).count();
        prop_assert_eq!(unanswered.subscribers() as usize, subscribers);
        let all: usize = records.values().map(|record| record.mappings.len()).sum();
        prop_assert_eq!(unanswered.mappings() as usize, all);
        check_queue(unanswered, Queue::All, records)?;
        check_queue(unanswered, Queue::Asking, records)?;
        for pool in 0..POOLS {
            check_queue(unanswered, Queue::Pool(pool), records)?;
            let mut of_pool = [0; PROTOCOLS.len() + 1];
            let records = records.iter().filter(|(at, _)| at.1 == pool);
            for (_, slot) in records.flat_map(|(_, record)| &record.mappings) {
                of_pool[place_of(*slot)] += 1;
            }
            prop_assert_eq!(unanswered.mappings_of(pool), of_pool);
        }
        for (at, record) in records {
            let is_further = |(other, record): &(&(u32, usize), &Record)| {
                other.0 == at.0 && *other != at && !record.mappings.is_empty()
            };
            let further = records.iter().rfind(is_further).map(|(_, other)| other.entry);
            prop_assert_eq!(unanswered.last_further(record.entry), further);
            let latest = record.mappings.last().map(|(_, slot)| *slot);
            prop_assert_eq!(unanswered.latest_mapping(record.entry), latest);
            if latest.is_some() {
                prop_assert_eq!(unanswered.made(record.entry), u64::from(record.made));
            }
            for &(sibling, slot) in &record.mappings {
                prop_assert_eq!(unanswered.created(sibling), slot * 7);
            }
        }
        Ok(())
    }

    proptest! {
        /// Compares with records that are searched.
        #[test]
        fn behaves_as_queues_do(
            ops in prop::collection::vec((0_u8..8, 0_u32..5, 0..POOLS, 0_u32..4), 1..300),
        ) {
            let mut unanswered = Unanswered::new(16, 64, 1);
            unanswered.set_pools(POOLS);
            let mut records = Records::new();
            // Elements of answered subscribers' mappings.
            let mut left = Vec::new();
            for (time, (what, subscriber, pool, which)) in (0_u32..).zip(ops) {
                let at = (subscriber, pool);
                let first = records.get(&(subscriber, 0)).map(|first: &Record| first.entry);
                if pool > 0 && first.is_none() {
                    continue;
                }
                let record = records.entry(at).or_insert_with(|| {
                    let first = first.filter(|_| pool > 0);
                    let entry = unanswered.enter(number(at), pool, first);
                    Record { entry, ..Record::default() }
                });
                match what {
                    0 => {
                        // An answer: the first record is the last to leave.
                        let mut entries = vec![first.unwrap_or(record.entry)];
                        while let Some(other) = unanswered.other(*entries.last().unwrap()) {
                            entries.push(other);
                        }
                        let own = records.keys().filter(|at| at.0 == subscriber).count();
                        prop_assert_eq!(entries.len(), own);
                        entries.into_iter().rev().for_each(|entry| unanswered.leave(entry));
                        for (_, record) in records.extract_if(.., |at, _| at.0 == subscriber) {
                            left.extend(record.mappings);
                        }
                    }
                    1 if !record.mappings.is_empty() => {
                        unanswered.ask(record.entry);
                        record.asked.get_or_insert(time);
                    }
                    2 => left.drain(..).for_each(|(one, _)| unanswered.free_sibling(one)),
                    3 if pool > 0 && record.mappings.is_empty() => {
                        unanswered.leave(record.entry);
                        records.remove(&at);
                    }
                    4 | 5 if !record.mappings.is_empty() => {
                        let which = which as usize % record.mappings.len();
                        let (sibling, slot) = record.mappings.remove(which);
                        unanswered.remove_mapping(record.entry, sibling, place_of(slot));
                        unanswered.free_sibling(sibling);
                        record.asked = record.asked.filter(|_| !record.mappings.is_empty());
                    }
                    _ if record.mappings.len() < 4 => {
                        let mapping = (time, place_of(time));
                        let now = u64::from(time);
                        let sibling = unanswered.add_mapping(record.entry, mapping, time * 7, now);
                        if record.mappings.is_empty() {
                            record.made = time;
                        }
                        record.mappings.push((sibling, time));
                    }
                    _ => {}
                }
                check(&unanswered, &records)?;
                prop_assert!(unanswered.entries.len() <= 5 * POOLS);
            }
        }
    }
}
