//! Unanswered subscribers: no remote endpoint has answered one of their packets yet, so their
//! source addresses may be forged (section 18 of the specification). Such a subscriber has an entry
//! for each of its records: one for each pool of which it has mappings. There are queues of these
//! entries, the oldest first: one of all, one of entries with requested mappings, and one for each
//! thing of a pool that may be scarce: the ports of a protocol, or blocks. Each entry has a list of
//! its mappings of each protocol. No change of a queue or of a list needs a search.
//!
//! A list has an element, its sibling entry, for each mapping that an unanswered subscriber begins.
//! The line of the mapping has the number of the element in place of the time at which the mapping
//! was made, and the element has that time. So few unanswered mappings take little memory, and the
//! elements lie close together. An answer ends the lists of the subscriber: their elements stay
//! until their mappings are removed.
//!
//! `reclaim.rs` decides when the oldest give way.

use crate::config::{Allocation, Config};
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
    /// Entries with mappings that take this thing of a pool, by the time of the first such mapping.
    Of(usize, Thing),
}

/// A thing of a pool that may be scarce: the place of a protocol, whose ports are meant, or
/// [`BLOCKS`].
pub(crate) type Thing = usize;

/// The blocks of a pool, among its [things](Thing).
pub(crate) const BLOCKS: Thing = PROTOCOLS.len();

const THINGS: usize = BLOCKS + 1;

/// Number of queues that an entry may be in.
const QUEUES: usize = 2 + THINGS;

impl Queue {
    /// The place of the queue's links in an entry.
    const fn links(self) -> usize {
        match self {
            Self::All => 0,
            Self::Asking => 1,
            Self::Of(_, thing) => 2 + thing,
        }
    }
}

/// Number of places of protocols ([`place_of`](crate::protocols::place_of)).
const PLACES: usize = PROTOCOLS.len() + 1;

/// Numbers of mappings by the place of their protocol.
pub(crate) type ByPlace = [u32; PLACES];

/// Things that the mappings of a pool take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Ports.
    Ports,
    /// Blocks, by their ports.
    Blocks,
    /// Whole addresses, each of which is a block. A mapping without a port takes one, too.
    Addresses,
}

impl Takes {
    /// What the mappings of each pool take.
    pub(crate) fn of(config: &Config) -> impl ExactSizeIterator<Item = Self> {
        config.pools.iter().map(|pool| match config.allocation_of(pool) {
            Allocation::Block(_) => Self::Blocks,
            Allocation::Address => Self::Addresses,
            _ => Self::Ports,
        })
    }

    /// The thing that a mapping takes; `place` is the place of its protocol.
    #[inline(always)]
    const fn thing(self, place: usize) -> Option<Thing> {
        match self {
            Self::Ports if place < PROTOCOLS.len() => Some(place),
            Self::Blocks if place < PROTOCOLS.len() => Some(BLOCKS),
            Self::Addresses => Some(BLOCKS),
            _ => None,
        }
    }

    /// The places of protocols whose mappings take a thing.
    fn places(self, thing: Thing) -> impl DoubleEndedIterator<Item = usize> {
        (0..PLACES).filter(move |place| self.thing(*place) == Some(thing))
    }
}

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
    queues: [Ends; THINGS],
    mappings: ByPlace,
    takes: Takes,
}

impl OfPool {
    const NONE: Self =
        Self { queues: [Ends::NONE; THINGS], mappings: [0; PLACES], takes: Takes::Ports };
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
    /// The sibling entry of the latest mapping with each place of the protocol, or [`NONE`]. An
    /// entry without mappings is in no queue.
    latest: [u32; PLACES],
    mappings: ByPlace,
    /// Time at which the first mapping was made, and the first that takes each thing, nanoseconds.
    made: u64,
    made_of: [u64; THINGS],
    pool: u16,
    is_asking: bool,
    /// What its mappings take, if it has any.
    takes: Takes,
}

impl Entry {
    /// Number of mappings.
    #[inline(always)]
    fn count(&self) -> u32 {
        self.mappings.iter().sum()
    }

    /// Number of mappings that take a thing.
    #[inline(always)]
    fn count_of(&self, thing: Thing) -> u32 {
        match self.takes {
            Takes::Ports if thing != BLOCKS => self.mappings[thing],
            _ => self.takes.places(thing).map(|place| self.mappings[place]).sum(),
        }
    }

    /// The latest mapping of the last of these places that has one.
    fn last(&self, places: impl DoubleEndedIterator<Item = usize>) -> u32 {
        let mut latest = places.rev().map(|place| self.latest[place]);
        latest.find(|latest| *latest != NONE).unwrap_or(NONE)
    }
}

const _: () = assert!(size_of::<Entry>() == 160);

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

    /// Says what the mappings of each pool take from now on.
    pub(crate) fn set_pools(&mut self, pools: impl ExactSizeIterator<Item = Takes>) {
        self.pools.resize(pools.len().max(self.pools.len()), OfPool::NONE);
        self.pools.iter_mut().zip(pools).for_each(|(pool, takes)| pool.takes = takes);
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
        self.pools.get(pool).map_or([0; PLACES], |of_pool| of_pool.mappings)
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

    /// Time at which the first mapping that counts for a queue was made, of an entry in it,
    /// nanoseconds.
    pub(crate) fn made(&self, at: u32, queue: Queue) -> u64 {
        let entry = &self.entries[at as usize];
        match queue {
            Queue::All | Queue::Asking => entry.made,
            Queue::Of(_, thing) => entry.made_of[thing],
        }
    }

    /// The slot of the mapping of an entry that ends first for a queue: of the last protocol of
    /// which the entry has mappings that count for the queue, the latest mapping.
    pub(crate) fn latest_mapping(&self, at: u32, queue: Queue) -> Option<u32> {
        let entry = &self.entries[at as usize];
        let latest = match queue {
            Queue::All | Queue::Asking => entry.last(0..PLACES),
            Queue::Of(_, thing) => entry.last(entry.takes.places(thing)),
        };
        Some(self.siblings.get(latest as usize)?.slot)
    }

    /// True if an entry has mappings.
    pub(crate) fn has_mappings(&self, at: u32) -> bool {
        self.entries[at as usize].count() > 0
    }

    /// The pool of an entry.
    pub(crate) fn pool(&self, at: u32) -> usize {
        self.entries[at as usize].pool.into()
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
        let with_mappings = others.filter(|at| self.has_mappings(*at));
        with_mappings.max_by_key(|at| self.entries[*at as usize].pool)
    }

    fn ends(&self, queue: Queue) -> &Ends {
        match queue {
            Queue::All => &self.all,
            Queue::Asking => &self.asking,
            Queue::Of(pool, thing) => {
                self.pools.get(pool).map_or(&Ends::NONE, |of_pool| &of_pool.queues[thing])
            }
        }
    }

    #[inline(always)]
    fn ends_mut(&mut self, queue: Queue) -> &mut Ends {
        match queue {
            Queue::All => &mut self.all,
            Queue::Asking => &mut self.asking,
            Queue::Of(pool, thing) => &mut self.pools[pool].queues[thing],
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
            latest: [NONE; PLACES],
            mappings: [0; PLACES],
            made: 0,
            made_of: [0; THINGS],
            pool: pool as u16,
            is_asking: false,
            takes: Takes::Ports,
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
        let Entry { mappings, pool, others, .. } = self.entries[at as usize];
        if self.has_mappings(at) {
            for thing in 0..THINGS {
                if self.entries[at as usize].count_of(thing) > 0 {
                    self.remove(at, Queue::Of(pool.into(), thing));
                }
            }
            let of_pool = &mut self.pools[usize::from(pool)].mappings;
            for (all, count) in of_pool.iter_mut().zip(mappings) {
                *all -= count;
                self.mappings -= count;
            }
            self.remove_from_all(at);
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

    /// Takes an entry out of the queues that are not of a thing.
    fn remove_from_all(&mut self, at: u32) {
        if core::mem::take(&mut self.entries[at as usize].is_asking) {
            self.remove(at, Queue::Asking);
        }
        self.remove(at, Queue::All);
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
        let (older, pool) = (entry.latest[place], usize::from(entry.pool));
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
        entry.latest[place] = number;
        entry.mappings[place] += 1;
        let of_pool = &mut self.pools[pool];
        of_pool.mappings[place] += 1;
        self.mappings += 1;
        if let Some(older) = self.siblings.get_mut(older as usize) {
            older.younger = number;
            return number;
        }
        let is_first = entry.count() == 1;
        if is_first {
            (entry.made, entry.takes) = (now, of_pool.takes);
        }
        let thing = entry.takes.thing(place).filter(|thing| entry.count_of(*thing) == 1);
        if let Some(thing) = thing {
            entry.made_of[thing] = now;
            self.append(at, Queue::Of(pool, thing));
        }
        if is_first {
            self.append(at, Queue::All);
        }
        number
    }

    /// Takes the mapping of a sibling entry, with this place of its protocol, out of the list of an
    /// entry.
    pub(crate) fn remove_mapping(&mut self, at: u32, sibling: u32, place: usize) {
        let Sibling { older, younger, .. } = self.siblings[sibling as usize];
        let entry = &mut self.entries[at as usize];
        let pool = usize::from(entry.pool);
        entry.mappings[place] -= 1;
        self.pools[pool].mappings[place] -= 1;
        self.mappings -= 1;
        match self.siblings.get_mut(younger as usize) {
            None => entry.latest[place] = older,
            Some(younger) => younger.older = older,
        }
        match self.siblings.get_mut(older as usize) {
            Some(older) => older.younger = younger,
            None if younger == NONE => {
                let is_empty = entry.count() == 0;
                let thing = entry.takes.thing(place).filter(|thing| entry.count_of(*thing) == 0);
                if let Some(thing) = thing {
                    self.remove(at, Queue::Of(pool, thing));
                }
                if is_empty {
                    self.remove_from_all(at);
                }
            }
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
    const TAKES: [Takes; POOLS] = [Takes::Ports, Takes::Blocks, Takes::Addresses];

    /// A record of the reference, by subscriber and pool; pool 0 has the first records.
    #[derive(Debug, Default)]
    struct Record {
        entry: u32,
        /// When its first mapping was made, the first that takes each thing, and the first request,
        /// by the number of the operation.
        made: u32,
        made_of: BTreeMap<Thing, u32>,
        asked: Option<u32>,
        /// Sibling entries and slots, the latest last.
        mappings: Vec<(u32, u32)>,
    }

    impl Record {
        /// The latest mapping of the last of some places that has one.
        fn last(&self, counts: impl Fn(usize) -> bool) -> Option<u32> {
            let slots = self.mappings.iter().map(|(_, slot)| *slot);
            let all = slots.enumerate().filter(|(_, slot)| counts(place_of(*slot)));
            all.max_by_key(|(at, slot)| (place_of(*slot), *at)).map(|(_, slot)| slot)
        }

        /// Adds the mapping of a slot of a pool, made at the time that is the slot's number.
        fn add(&mut self, sibling: u32, slot: u32, pool: usize) {
            if self.mappings.is_empty() {
                self.made = slot;
            }
            self.mappings.push((sibling, slot));
            if let Some(thing) = TAKES[pool].thing(place_of(slot)) {
                self.made_of.entry(thing).or_insert(slot);
            }
        }

        /// Removes a mapping. Returns its sibling entry and its slot.
        fn remove(&mut self, which: u32, pool: usize) -> (u32, u32) {
            let which = which as usize % self.mappings.len();
            let removed = self.mappings.remove(which);
            self.asked = self.asked.filter(|_| !self.mappings.is_empty());
            let left: Vec<u32> = self.mappings.iter().map(|(_, slot)| *slot).collect();
            let takes = |slot: &u32, thing| TAKES[pool].thing(place_of(*slot)) == Some(thing);
            self.made_of.retain(|thing, _| left.iter().any(|slot| takes(slot, *thing)));
            removed
        }
    }

    type Records = BTreeMap<(u32, usize), Record>;

    /// Place of the protocol of the mapping in a slot.
    fn place_of(slot: u32) -> usize {
        [0, 1, PLACES - 1][slot as usize % 3]
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
                Queue::Of(pool, thing) => {
                    record.made_of.get(&thing).copied().filter(|_| at.1 == pool)
                }
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
            for thing in 0..THINGS {
                check_queue(unanswered, Queue::Of(pool, thing), records)?;
            }
            let mut of_pool = [0; PLACES];
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
            let entry = record.entry;
            let latest = record.last(|_| true);
            prop_assert_eq!(unanswered.latest_mapping(entry, Queue::All), latest);
            prop_assert_eq!(unanswered.has_mappings(entry), latest.is_some());
            prop_assert_eq!(unanswered.pool(entry), at.1);
            if latest.is_some() {
                prop_assert_eq!(unanswered.made(entry, Queue::All), u64::from(record.made));
            }
            for (thing, made) in &record.made_of {
                let queue = Queue::Of(at.1, *thing);
                let latest = record.last(|place| TAKES[at.1].thing(place) == Some(*thing));
                prop_assert_eq!(unanswered.latest_mapping(entry, queue), latest);
                prop_assert_eq!(unanswered.made(entry, queue), u64::from(*made));
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
            unanswered.set_pools(TAKES.into_iter());
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
                        let (sibling, slot) = record.remove(which, pool);
                        unanswered.remove_mapping(record.entry, sibling, place_of(slot));
                        unanswered.free_sibling(sibling);
                    }
                    _ if record.mappings.len() < 4 => {
                        let mapping = (time, place_of(time));
                        let now = u64::from(time);
                        let sibling = unanswered.add_mapping(record.entry, mapping, time * 7, now);
                        record.add(sibling, time, pool);
                    }
                    _ => {}
                }
                check(&unanswered, &records)?;
                prop_assert!(unanswered.entries.len() <= 5 * POOLS);
            }
        }
    }
}
