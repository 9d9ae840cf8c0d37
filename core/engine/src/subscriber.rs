//! Subscribers that have mappings: their numbers of mappings of each protocol, their rates, and the
//! external addresses that they are paired with. A record is removed with the subscriber's last
//! mapping. By then its rate has long recovered, because no mapping lives less than a second.
//!
//! Rules may send a subscriber to several pools. Then the subscriber is paired with one address of
//! each pool. Further records, which [`Subscribers::paired`] reads, contain the pairs beyond the
//! first.

mod answers;
mod removal;
mod unanswered;

use crate::DropReason;
use crate::class::{Classes, Holding, KINDS, Reached};
use crate::host::{Grouping, Host};
use crate::index::Index;
use crate::limits::Filled;
use crate::prefetch::prefetch_within;
use crate::random::HashKey;
use crate::threshold::Watch;
use alloc::vec;
use alloc::vec::Vec;
use unanswered::Unanswered;
pub(crate) use unanswered::{BLOCKS, Queue, Takes, Thing};

/// A subscriber's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber {
    pub(crate) host: Host,
    /// Pool of a further record; [`NONE`]: this is the subscriber's first record; [`FREE`]: the
    /// record is free.
    further: u32,
    /// Pool of the subscriber's first mapping, and index of the external address of the pair there.
    /// Index [`NONE`]: rules chose the addresses of all mappings so far.
    pool: u32,
    paired: u32,
    /// Use by the subscriber. In a further record, `mappings[0]` counts all mappings of the pool.
    pub(crate) has: Holding,
    /// Mappings of further pools, in the first record.
    elsewhere: u32,
    /// In a free record, the next free record; in an unanswered subscriber's record, its entry in
    /// [`Unanswered`].
    next: u32,
    pub(crate) class: u16,
    /// Equal to [`Subscribers::epoch`] if `class` is a present class.
    epoch: u8,
    /// True until a remote endpoint answers one of the subscriber's packets. In a further record,
    /// true if it has an entry in [`Unanswered`].
    is_unanswered: bool,
    /// Time of the latest report of a refusal, nanoseconds; all ones: never.
    pub(crate) reported: u64,
}

const _: () = assert!(size_of::<Subscriber>() <= 64);

impl Subscriber {
    const NEVER: u64 = u64::MAX;
    /// A record without a subscriber.
    const NEW: Self = Self {
        host: Host::new(0, 0),
        further: NONE,
        pool: NONE,
        paired: NONE,
        has: Holding::NONE,
        elsewhere: 0,
        next: NONE,
        class: 0,
        epoch: 0,
        is_unanswered: false,
        reported: Self::NEVER,
    };

    /// Returns true, and notes a report, if no refusal was reported within the interval
    /// (nanoseconds).
    pub(crate) fn may_report(&mut self, now: u64, interval: u64) -> bool {
        let may = self.reported == Self::NEVER || now - self.reported >= interval;
        self.reported = if may { now } else { self.reported };
        may
    }
}

const NONE: u32 = u32::MAX;
/// In place of a further record's pool. No pool has this number.
const FREE: u32 = NONE - 1;

/// The class of a host: numbers are in no class, because prefixes of classes mean addresses.
fn class_of(classes: &Classes, grouping: Grouping, host: Host) -> u16 {
    if grouping.has(host.realm()) { 0 } else { classes.of(host) }
}

/// All subscribers that have mappings.
#[derive(Clone, Debug)]
pub(crate) struct Subscribers {
    key: HashKey,
    grouping: Grouping,
    pub(crate) classes: Classes,
    /// Flips when the classes are replaced.
    epoch: u8,
    records: Vec<Subscriber>,
    /// Reports about each record's subscriber, as far as there were any.
    watches: Vec<Watch>,
    room: SubscriberRoom,
    index: Index,
    free: u32,
    /// Records in use.
    used: usize,
    /// Subscribers with records.
    present: usize,
    /// Number of times that a host without a record got one.
    made: u64,
    /// Number of subscribers in each bucket.
    by_bucket: Vec<u32>,
    /// Number of subscribers that are paired with each external address.
    tenants: Vec<u32>,
    pub(crate) unanswered: Unanswered,
}

/// Sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubscriberRoom {
    /// Subscribers.
    pub(crate) subscribers: usize,
    /// Records: one for each pool in which a subscriber has mappings.
    pub(crate) records: usize,
    /// Slots of mappings.
    pub(crate) slots: usize,
    /// Pools at the start.
    pub(crate) pools: usize,
}

impl Subscribers {
    /// Makes empty tables. Subscribers can be paired with `addresses` addresses.
    pub(crate) fn new(
        room: SubscriberRoom,
        addresses: usize,
        classes: Classes,
        grouping: Grouping,
        key: HashKey,
    ) -> Self {
        Self {
            key,
            grouping,
            classes,
            epoch: 0,
            watches: Vec::with_capacity(room.records),
            records: Vec::with_capacity(room.records),
            room,
            index: Index::new(room.records),
            free: NONE,
            used: 0,
            present: 0,
            made: 0,
            by_bucket: vec![0; 256],
            tenants: vec![0; addresses],
            unanswered: Unanswered::new(room.records, room.slots, room.pools),
        }
    }

    /// Bytes that the tables take.
    pub(crate) fn memory(room: SubscriberRoom) -> u64 {
        (room.records * (size_of::<Subscriber>() + size_of::<Watch>())) as u64
            + Index::memory(room.records)
            + Unanswered::memory(room.records, room.slots)
    }

    fn hash(&self, host: Host, further: u32) -> u64 {
        self.key.hash(host.bits(), 1 << 61 | u64::from(further))
    }

    fn find_record(&self, host: Host, further: u32) -> Option<u32> {
        self.index.find(self.hash(host, further), |at| {
            let record = &self.records[at as usize];
            (record.host, record.further) == (host, further)
        })
    }

    /// Prefetches the line that a search for a subscriber's record reads. Returns the hash for
    /// [`Subscribers::approach`].
    #[inline(always)]
    pub(crate) fn prefetch(&self, host: Host) -> u64 {
        let hash = self.hash(self.grouping.subscriber(host), NONE);
        self.index.prefetch(hash);
        hash
    }

    /// Number of subscribers that are paired with each external address, by its index.
    pub(crate) fn tenants(&self) -> &[u32] {
        &self.tenants
    }

    /// Prefetches the most likely record of a subscriber. [`Subscribers::prefetch`] gave the hash.
    /// Returns its place or [`NONE`].
    #[inline(always)]
    pub(crate) fn approach(&self, hash: u64) -> u32 {
        let Some(at) = self.index.candidate(hash) else { return NONE };
        prefetch_within(&self.records, at as usize);
        at
    }

    /// Finds the record of a subscriber. `at` is the likely place from [`Subscribers::approach`].
    #[inline(always)]
    pub(crate) fn find_from(&self, at: u32, host: Host) -> Option<u32> {
        match self.records.get(at as usize) {
            Some(record) if (record.host, record.further) == (host, NONE) => Some(at),
            _ => self.find(host),
        }
    }

    /// The index of the external address of a subscriber's pair in a pool. Inner `None`: the
    /// subscriber is not paired there. Outer `None`: the subscriber has no mappings of the pool.
    #[inline(always)]
    pub(crate) fn known_pair(&self, at: u32, pool: usize) -> Option<Option<u32>> {
        let record = self.get(at);
        let paired = match record.pool as usize == pool {
            // Most subscribers have mappings of one pool only.
            true => record.paired,
            false => self.get(self.record_of(at, pool)?).paired,
        };
        Some((paired != NONE).then_some(paired))
    }

    /// The subscriber of a host: its first possible host.
    pub(crate) fn subscriber_of(&self, host: Host) -> Host {
        self.grouping.subscriber(host)
    }

    /// Finds the record of a subscriber.
    pub(crate) fn find(&self, host: Host) -> Option<u32> {
        self.find_record(self.grouping.subscriber(host), NONE)
    }

    pub(crate) fn get(&self, at: u32) -> &Subscriber {
        &self.records[at as usize]
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> &mut Subscriber {
        &mut self.records[at as usize]
    }

    /// The index of the external address of a pool that a subscriber is paired with.
    pub(crate) fn paired(&self, at: u32, pool: usize) -> Option<u32> {
        let record = self.get(self.record_of(at, pool)?);
        Some(record.paired).filter(|&paired| paired != NONE)
    }

    /// Ends the pair of a subscriber with an external address of a pool. The subscriber's next
    /// mapping of the pool makes a new pair.
    pub(crate) fn part(&mut self, at: u32, pool: usize) {
        let Some(at) = self.record_of(at, pool) else { return };
        let paired = core::mem::replace(&mut self.records[at as usize].paired, NONE);
        if let Some(tenants) = self.tenants.get_mut(paired as usize) {
            *tenants -= 1;
        }
    }

    /// True if a subscriber has mappings of a pool.
    pub(crate) fn has(&self, at: u32, pool: usize) -> bool {
        self.record_of(at, pool).is_some()
    }

    /// The subscriber of the record at a place, and the index of the external address of its pair.
    /// Inner `None`: no pair. Outer `None`: there is no such record.
    pub(crate) fn pair_at(&self, at: u32) -> Option<Option<(Host, u32)>> {
        let Subscriber { host, paired, has, .. } = self.records.get(at as usize)?;
        let is_used = has.mappings != [0; KINDS];
        Some((is_used && *paired != NONE).then_some((*host, *paired)))
    }

    /// Pairs a subscriber with mappings of a pool with an external address of that pool.
    pub(crate) fn pair(&mut self, host: Host, pool: usize, index: u32) {
        let Some(at) = self.find(host) else { return };
        self.part(at, pool);
        let Some(at) = self.record_of(at, pool) else { return };
        self.records[at as usize].paired = index;
        self.tenants[index as usize] += 1;
    }

    /// The record, first or further, with a subscriber's pair of a pool.
    fn record_of(&self, at: u32, pool: usize) -> Option<u32> {
        let record = self.get(at);
        match record.pool as usize == pool {
            true => Some(at),
            false => self.find_record(record.host, pool as u32),
        }
    }

    /// Replaces the classes, and returns the old ones. Each subscriber joins a new class when its
    /// record is [`Subscribers::settle`]d.
    pub(crate) fn replace_classes(&mut self, classes: Classes) -> Classes {
        self.epoch ^= 1;
        core::mem::replace(&mut self.classes, classes)
    }

    /// Makes sure that the subscriber of a record is in one of the present classes.
    #[inline(always)]
    pub(crate) fn settle(&mut self, at: u32) {
        if !self.is_settled(at) {
            self.join_class(at);
        }
    }

    /// True if the subscriber of a record is in one of the present classes.
    #[inline(always)]
    pub(crate) fn is_settled(&self, at: u32) -> bool {
        self.records[at as usize].epoch == self.epoch
    }

    #[cold]
    fn join_class(&mut self, at: u32) {
        let record = &mut self.records[at as usize];
        record.epoch = self.epoch;
        record.class = class_of(&self.classes, self.grouping, record.host);
        self.classes.add(record.class, &record.has);
        if let Some(watch) = self.watches.get_mut(at as usize) {
            watch.forget();
        }
    }

    fn class_of(&self, host: Host) -> u16 {
        class_of(&self.classes, self.grouping, host)
    }

    /// Checks that the subscriber of a record may have one more mapping of a kind now, by its own
    /// limits and by the limits of its class.
    #[inline(always)]
    pub(crate) fn check_record(&self, at: u32, kind: usize, now: u64) -> Result<(), DropReason> {
        let record = &self.records[at as usize];
        self.classes.check(record.class, &record.has, kind, now)
    }

    /// Counts a new mapping of the subscriber of a record, as [`Subscribers::count`] does, if
    /// [`Subscribers::check_record`] permits it. Returns false if it does not.
    #[inline(always)]
    pub(crate) fn count_if_permitted(
        &mut self,
        (at, host): (u32, Host),
        pair: (usize, Option<u32>),
        kind: usize,
        now: u64,
    ) -> bool {
        let is_permitted = self.check_record(at, kind, now).is_ok();
        if is_permitted {
            self.count(Some(at), host, pair, kind, now);
        }
        is_permitted
    }

    /// [`Subscribers::check_record`] for a subscriber that may have no record.
    pub(crate) fn check(
        &self,
        record: Option<u32>,
        host: Host,
        kind: usize,
        now: u64,
    ) -> Result<(), DropReason> {
        match record {
            Some(at) => self.check_record(at, kind, now),
            None => {
                let class = self.class_of(host);
                self.classes.check(class, &Holding::NONE, kind, now)
            }
        }
    }

    /// Checks that remote endpoints may make one more mapping of a kind: less than half of the
    /// subscriber's quota and of its rate is in use.
    pub(crate) fn permits_inbound(&self, at: u32, kind: usize, now: u64) -> Result<(), DropReason> {
        let Subscriber { has, class, .. } = &self.records[at as usize];
        self.classes.permits_inbound(*class, has, kind, now)
    }

    /// The class of a subscriber, and its use. `record` is its record, if it has one.
    pub(crate) fn class_and_holding(&self, record: Option<u32>, host: Host) -> (u16, Holding) {
        match record {
            Some(at) => (self.get(at).class, self.get(at).has),
            None => (self.class_of(host), Holding::NONE),
        }
    }

    /// The class of a subscriber whose request for a mapping of a kind is refused now. `None`: the
    /// subscriber itself is at a limit.
    pub(crate) fn full_class(&self, host: Host, kind: usize, now: u64) -> Option<u16> {
        let (class, has) = self.class_and_holding(self.find(host), host);
        self.classes.is_full(class, &has, kind, now).then_some(class)
    }

    /// True if a subscriber may have one more session of a mapping with `of_mapping` sessions.
    /// `further_each` is the limit of further sessions.
    pub(crate) fn permits_session(&self, at: u32, of_mapping: u16, further_each: u32) -> bool {
        let Subscriber { has, class, .. } = &self.records[at as usize];
        of_mapping < self.classes.sessions_per_mapping(*class)
            && has.further_sessions < further_each
            && self.classes.permits_session(*class, has)
    }

    /// Counts sessions of a subscriber beyond the first of each mapping: one more or one less.
    pub(crate) fn count_further(&mut self, at: u32, change: i32) {
        self.settle(at);
        let Subscriber { has, class, .. } = &mut self.records[at as usize];
        self.classes.count_further(*class, has, change);
    }

    /// The subscriber of a record.
    pub(crate) fn host(&self, at: u32) -> Host {
        self.records[at as usize].host
    }

    /// True if a subscriber or its class has thresholds.
    #[inline(always)]
    pub(crate) fn is_watched(&self, at: u32) -> bool {
        self.classes.watched && self.classes.is_watched(self.records[at as usize].class)
    }

    /// Notes that a subscriber has one more of a thing. Returns the percentages to report.
    pub(crate) fn rise(&mut self, at: u32, thing: usize, now: u64) -> Reached {
        if self.watches.len() <= at as usize {
            self.watches.resize(at as usize + 1, Watch::default());
        }
        let Subscriber { has, class, .. } = &self.records[at as usize];
        self.classes.rise(*class, (has, &mut self.watches[at as usize]), thing, now)
    }

    /// Counts a new mapping of a subscriber, with external address `index` of a pool. The first
    /// mapping of a pool pairs the subscriber with its address; `index` is `None` if a rule chose
    /// the address. `record` is the subscriber's record, if it has one. Returns its record.
    ///
    /// # Panics
    /// When there is no room: call [`Subscribers::is_full`] first.
    #[inline(always)]
    pub(crate) fn count(
        &mut self,
        record: Option<u32>,
        host: Host,
        (pool, index): (usize, Option<u32>),
        kind: usize,
        now: u64,
    ) -> u32 {
        // Most subscribers have mappings of one pool only, and are paired there.
        if let Some(at) = record
            && let Some(record) = self.records.get_mut(at as usize)
            && record.epoch == self.epoch
            && record.pool as usize == pool
            && (record.paired != NONE || index.is_none())
        {
            self.classes.count(record.class, &mut record.has, kind, now);
            return at;
        }
        self.count_any(record, host, (pool, index), kind, now)
    }

    /// [`Subscribers::count`] of any subscriber.
    #[inline(never)]
    fn count_any(
        &mut self,
        record: Option<u32>,
        host: Host,
        (pool, index): (usize, Option<u32>),
        kind: usize,
        now: u64,
    ) -> u32 {
        let host = self.grouping.subscriber(host);
        let pool = pool as u32;
        let index = index.unwrap_or(NONE);
        let at = match record {
            Some(at) => {
                self.settle(at);
                at
            }
            None => {
                let class = self.class_of(host);
                let epoch = self.epoch;
                self.add(Subscriber { host, pool, paired: index, class, epoch, ..Subscriber::NEW })
            }
        };
        let Subscriber { has, class, .. } = &mut self.records[at as usize];
        self.classes.count(*class, has, kind, now);
        let mut paired = at;
        if self.records[at as usize].pool != pool {
            let further = match self.find_record(host, pool) {
                Some(further) => further,
                None => {
                    let record = Subscriber { host, further: pool, ..Subscriber::NEW };
                    self.add(Subscriber { pool, paired: index, ..record })
                }
            };
            self.records[further as usize].has.mappings[0] += 1;
            self.records[at as usize].elsewhere += 1;
            paired = further;
        }
        let record = &mut self.records[paired as usize];
        if record.paired == NONE && index != NONE {
            record.paired = index;
            self.tenants[index as usize] += 1;
        }
        at
    }

    /// Number of subscribers, and largest number.
    #[inline]
    pub(crate) fn filled(&self) -> Filled<usize> {
        Filled { used: self.present, most: self.room.subscribers }
    }

    /// Number of records, and largest number. A subscriber has one for each pool of which it has
    /// mappings.
    #[inline]
    pub(crate) fn records_filled(&self) -> Filled<usize> {
        Filled { used: self.used, most: self.room.records }
    }

    /// Number of times that a host without a record got one.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Number of records that have ever been used.
    pub(crate) fn extent(&self) -> u32 {
        self.records.len() as u32
    }

    /// The subscriber of a record, its use, and the index of the external address of its pair.
    /// `None`: the record is free or a further one.
    pub(crate) fn present(&self, at: u32) -> Option<(Host, Holding, Option<u32>)> {
        let Subscriber { host, further, has, paired, .. } = self.records[at as usize];
        let is_present = further == NONE && has.mappings != [0; KINDS];
        is_present.then_some((host, has, (paired != NONE).then_some(paired)))
    }

    /// Number of subscribers of a bucket that have mappings.
    pub(crate) fn count_of(&self, bucket: usize) -> u32 {
        self.by_bucket[bucket]
    }

    /// True if there is no room for one more record. `newcomer`: of a subscriber without a record.
    pub(crate) fn is_full(&self, newcomer: bool) -> bool {
        self.used >= self.room.records || newcomer && self.present >= self.room.subscribers
    }

    fn add(&mut self, record: Subscriber) -> u32 {
        self.used += 1;
        if record.further == NONE {
            self.present += 1;
            self.made += 1;
            self.by_bucket[record.host.bucket()] += 1;
        }
        if let Some(tenants) = self.tenants.get_mut(record.paired as usize) {
            *tenants += 1;
        }
        let at = if self.free != NONE {
            let at = self.free;
            let freed = core::mem::replace(&mut self.records[at as usize], record);
            self.free = freed.next;
            at
        } else {
            let room = self.records.len() < self.room.records;
            assert!(room, "more subscribers than there is room for");
            self.records.push(record);
            self.records.len() as u32 - 1
        };
        if let Some(watch) = self.watches.get_mut(at as usize) {
            *watch = Watch::default();
        }
        self.index.insert(self.hash(record.host, record.further), at);
        at
    }
}
