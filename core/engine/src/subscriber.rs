//! Subscribers that have mappings: how many of each protocol, how fast they make them, and the
//! external address that they are paired with. A record goes with the subscriber's last mapping; by
//! then its rate has long recovered, for no mapping lives less than a second.
//!
//! A subscriber whom rules send to several pools is paired with one address of each: further
//! records of the kind [`Subscribers::paired`] asks for hold the pairs beyond the first.

mod unanswered;

use crate::DropReason;
use crate::class::{Classes, Holding, KINDS};
use crate::host::Host;
use crate::index::Index;
use crate::prefetch::prefetch;
use crate::random::HashKey;
use crate::threshold::Watch;
use alloc::vec;
use alloc::vec::Vec;
pub(crate) use unanswered::Queue;
use unanswered::Unanswered;

/// A subscriber's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber {
    host: Host,
    /// In a further record, its pool; else [`NONE`].
    further: u32,
    /// The pool of its first mapping, and the index of the external address there that it is paired
    /// with; [`NONE`]: a rule chose the addresses of all its mappings so far.
    pool: u32,
    paired: u32,
    /// In a further record, its mappings are the first of these.
    pub(crate) has: Holding,
    /// In a record that is not a further one, the mappings of other pools than its own.
    elsewhere: u32,
    /// In a free record, the next free one.
    next: u32,
    pub(crate) class: u16,
    /// The same as all records' if its class is one of those there are.
    epoch: u8,
    /// True until somebody answers one of its packets; never in a further record.
    is_unanswered: bool,
    /// When a refusal was last reported, nanoseconds; all ones: never.
    pub(crate) reported: u64,
}

const _: () = assert!(size_of::<Subscriber>() <= 64);

impl Subscriber {
    const NEVER: u64 = u64::MAX;
    /// In nobody's name.
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

    /// Whether no refusal was reported within an interval, nanoseconds; if so, takes note of one.
    pub(crate) fn may_report(&mut self, now: u64, interval: u64) -> bool {
        let may = self.reported == Self::NEVER || now - self.reported >= interval;
        self.reported = if may { now } else { self.reported };
        may
    }
}

const NONE: u32 = u32::MAX;

/// All subscribers that have mappings.
#[derive(Clone, Debug)]
pub(crate) struct Subscribers {
    key: HashKey,
    pub(crate) classes: Classes,
    /// Changes when classes do.
    epoch: u8,
    records: Vec<Subscriber>,
    /// What was told of each record's subscriber, as far as anything ever was.
    watches: Vec<Watch>,
    room: SubscriberRoom,
    index: Index,
    free: u32,
    /// Records in use.
    used: usize,
    /// Subscribers that have some.
    present: usize,
    /// How often one who had none got one.
    made: u64,
    /// How many of them are of each bucket.
    by_bucket: Vec<u32>,
    /// How many are paired with each external address.
    tenants: Vec<u32>,
    pub(crate) unanswered: Unanswered,
}

/// How many there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubscriberRoom {
    /// Subscribers.
    pub(crate) subscribers: usize,
    /// Their records, one a pool that they have mappings of.
    pub(crate) records: usize,
    /// Slots of mappings.
    pub(crate) slots: usize,
}

impl Subscribers {
    /// Room for subscribers paired with so many addresses.
    pub(crate) fn new(
        room: SubscriberRoom,
        addresses: usize,
        classes: Classes,
        key: HashKey,
    ) -> Self {
        Self {
            key,
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
            unanswered: Unanswered::new(room.records, room.slots),
        }
    }

    /// Bytes that this room takes.
    pub(crate) fn memory(room: SubscriberRoom) -> u64 {
        (room.records * (size_of::<Subscriber>() + size_of::<Watch>())) as u64
            + Index::memory(room.records)
            + Unanswered::memory(room.records, room.slots)
    }

    /// True if nobody has answered a subscriber yet.
    #[inline(always)]
    pub(crate) fn is_unanswered(&self, at: u32) -> bool {
        self.records[at as usize].is_unanswered
    }

    /// Takes note that somebody has answered a subscriber.
    pub(crate) fn answer(&mut self, at: u32) {
        if core::mem::take(&mut self.records[at as usize].is_unanswered) {
            self.unanswered.leave(at);
        }
    }

    /// Takes note that a host without a record has one now, and that nobody has answered it.
    pub(crate) fn enter_unanswered(&mut self, at: u32, now: u64) {
        self.records[at as usize].is_unanswered = true;
        self.unanswered.enter(at, now);
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

    /// Fetches the line by which a subscriber's record will be found.
    #[inline]
    pub(crate) fn prefetch(&self, host: Host) {
        self.index.prefetch(self.hash(host, NONE));
    }

    /// How many subscribers are paired with each external address, by its index.
    pub(crate) fn tenants(&self) -> &[u32] {
        &self.tenants
    }

    /// Fetches the record of a subscriber, most likely; returns its place or [`NONE`].
    #[inline(always)]
    pub(crate) fn approach(&self, host: Host) -> u32 {
        let Some(at) = self.index.candidate(self.hash(host, NONE)) else { return NONE };
        prefetch(&self.records, at as usize);
        at
    }

    /// The record of a subscriber, which most likely is the one that [`Subscribers::approach`]
    /// told.
    #[inline(always)]
    pub(crate) fn find_from(&self, at: u32, host: Host) -> Option<u32> {
        match self.records.get(at as usize) {
            Some(record) if (record.host, record.further) == (host, NONE) => Some(at),
            _ => self.find(host),
        }
    }

    /// The index of the external address that a subscriber is paired with in a pool that it has
    /// mappings of, if it is with any; `None`: it has none of that pool.
    #[inline(always)]
    pub(crate) fn known_pair(&self, at: u32, pool: usize) -> Option<Option<u32>> {
        let record = self.get(at);
        let paired = match record.pool as usize == pool {
            // Most have mappings of one pool only.
            true => record.paired,
            false => self.get(self.record_of(at, pool)?).paired,
        };
        Some((paired != NONE).then_some(paired))
    }

    /// The record of a subscriber.
    pub(crate) fn find(&self, host: Host) -> Option<u32> {
        self.find_record(host, NONE)
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

    /// Parts a subscriber from the external address of a pool that it is paired with: its next
    /// mapping there says which it is.
    pub(crate) fn part(&mut self, at: u32, pool: usize) {
        let Some(at) = self.record_of(at, pool) else { return };
        let paired = core::mem::replace(&mut self.records[at as usize].paired, NONE);
        if let Some(tenants) = self.tenants.get_mut(paired as usize) {
            *tenants -= 1;
        }
    }

    /// Whether a subscriber has mappings of a pool.
    pub(crate) fn has(&self, at: u32, pool: usize) -> bool {
        self.record_of(at, pool).is_some()
    }

    /// Of the record at a place, if there are so many, whose it is and the index of the external
    /// address that its subscriber is paired with, if it is with any.
    pub(crate) fn pair_at(&self, at: u32) -> Option<Option<(Host, u32)>> {
        let Subscriber { host, paired, has, .. } = self.records.get(at as usize)?;
        let is_used = has.mappings != [0; KINDS];
        Some((is_used && *paired != NONE).then_some((*host, *paired)))
    }

    /// Pairs a subscriber that has mappings of a pool with an external address of it.
    pub(crate) fn pair(&mut self, host: Host, pool: usize, index: u32) {
        let Some(at) = self.find(host) else { return };
        self.part(at, pool);
        let Some(at) = self.record_of(at, pool) else { return };
        self.records[at as usize].paired = index;
        self.tenants[index as usize] += 1;
    }

    /// The record, the first or a further one, that has a subscriber's pair of a pool.
    fn record_of(&self, at: u32, pool: usize) -> Option<u32> {
        let record = self.get(at);
        match record.pool as usize == pool {
            true => Some(at),
            false => self.find_record(record.host, pool as u32),
        }
    }

    /// Puts other classes in the place of those there are, which it returns. Each subscriber is of
    /// one of them from when its record is [`Subscribers::settle`]d.
    pub(crate) fn replace_classes(&mut self, classes: Classes) -> Classes {
        self.epoch ^= 1;
        core::mem::replace(&mut self.classes, classes)
    }

    /// Makes sure that a subscriber, whose record this is, is of a class that there is.
    #[inline(always)]
    pub(crate) fn settle(&mut self, at: u32) {
        if self.records[at as usize].epoch != self.epoch {
            self.join_class(at);
        }
    }

    #[cold]
    fn join_class(&mut self, at: u32) {
        let record = &mut self.records[at as usize];
        record.epoch = self.epoch;
        record.class = self.classes.of(record.host);
        self.classes.add(record.class, &record.has);
        if let Some(watch) = self.watches.get_mut(at as usize) {
            watch.forget();
        }
    }

    /// Whether a subscriber with this record may have one more mapping of a kind now, by its own
    /// limits and those of its class.
    #[inline(always)]
    pub(crate) fn check_record(&self, at: u32, kind: usize, now: u64) -> Result<(), DropReason> {
        let record = &self.records[at as usize];
        self.classes.check(record.class, &record.has, kind, now)
    }

    /// The same of a subscriber whose record this is, if it has one.
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
                let class = self.classes.of(host);
                self.classes.check(class, &Holding::NONE, kind, now)
            }
        }
    }

    /// The class of a subscriber whose record this is, if it has one, and what it has.
    pub(crate) fn class_and_holding(&self, record: Option<u32>, host: Host) -> (u16, Holding) {
        match record {
            Some(at) => (self.get(at).class, self.get(at).has),
            None => (self.classes.of(host), Holding::NONE),
        }
    }

    /// The class of a subscriber that is refused a mapping of a kind now, if it alone is at a
    /// limit.
    pub(crate) fn full_class(&self, host: Host, kind: usize, now: u64) -> Option<u16> {
        let (class, has) = self.class_and_holding(self.find(host), host);
        self.classes.is_full(class, &has, kind, now).then_some(class)
    }

    /// Whether a subscriber may have one more session of a mapping that has so many, and further
    /// ones up to `further_each`.
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

    /// The subscriber that has a record.
    pub(crate) fn host(&self, at: u32) -> Host {
        self.records[at as usize].host
    }

    /// Whether somebody wants to know how much a subscriber, or its class, has.
    #[inline(always)]
    pub(crate) fn is_watched(&self, at: u32) -> bool {
        self.classes.is_watched(self.records[at as usize].class)
    }

    /// Takes note that a subscriber has one more of a thing: the percentages to be told of it and
    /// of its class.
    pub(crate) fn rise(&mut self, at: u32, thing: usize, now: u64) -> (Option<u8>, Option<u8>) {
        if self.watches.len() <= at as usize {
            self.watches.resize(at as usize + 1, Watch::default());
        }
        let Subscriber { has, class, .. } = &self.records[at as usize];
        self.classes.rise(*class, (has, &mut self.watches[at as usize]), thing, now)
    }

    /// Notes that a subscriber, whose record is this if it has one, has a mapping more, with this
    /// external address of a pool; the address of its first there is what it is paired with, those
    /// left out that a rule chose: they have index `None`. Returns its record.
    ///
    /// # Panics
    /// When there is no room: ask [`Subscribers::is_full`] first.
    pub(crate) fn count(
        &mut self,
        record: Option<u32>,
        host: Host,
        (pool, index): (usize, Option<u32>),
        kind: usize,
        now: u64,
    ) -> u32 {
        let pool = pool as u32;
        let index = index.unwrap_or(NONE);
        let at = match record {
            Some(at) => {
                self.settle(at);
                at
            }
            None => {
                let class = self.classes.of(host);
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

    /// How many subscribers there are, and may be.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.present, self.room.subscribers)
    }

    /// How often one who had no record got one.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// How many records have ever been used.
    pub(crate) fn extent(&self) -> u32 {
        self.records.len() as u32
    }

    /// The subscriber that a record is of, with what it has and the index of the external address
    /// that it is paired with; none, if the record is free or a further one.
    pub(crate) fn present(&self, at: u32) -> Option<(Host, Holding, Option<u32>)> {
        let Subscriber { host, further, has, paired, .. } = self.records[at as usize];
        let is_present = further == NONE && has.mappings != [0; KINDS];
        is_present.then_some((host, has, (paired != NONE).then_some(paired)))
    }

    /// How many subscribers of a bucket have mappings.
    pub(crate) fn count_of(&self, bucket: usize) -> u32 {
        self.by_bucket[bucket]
    }

    /// Whether there is no room for one more record, of one who has none yet or of another.
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

    /// Notes that a subscriber has a mapping of a pool less, which was in a slot; forgets it when
    /// that was the last.
    pub(crate) fn release(&mut self, host: Host, slot: u32, pool: usize, kind: usize) {
        let at = self.find(host).expect("a mapping's subscriber has a record");
        if self.records[at as usize].is_unanswered {
            self.unanswered.remove_mapping(at, slot);
        }
        self.settle(at);
        let class = self.records[at as usize].class;
        self.classes.release(class, kind);
        if self.records[at as usize].pool as usize != pool {
            let further = self.find_record(host, pool as u32);
            self.release_from(further.expect("a further pool has a record"), 0);
            self.records[at as usize].elsewhere -= 1;
        }
        self.release_from(at, kind);
        let Subscriber { pool, has, elsewhere, .. } = self.records[at as usize];
        let all: u32 = has.mappings.iter().sum();
        if all > 0 && all == elsewhere {
            // None of the first pool is left: its next there may have another address.
            self.part(at, pool as usize);
        }
    }

    fn release_from(&mut self, at: u32, kind: usize) {
        let record = &mut self.records[at as usize];
        record.has.mappings[kind] -= 1;
        if record.has.mappings == [0; KINDS] {
            let (host, further) = (record.host, record.further);
            if core::mem::take(&mut record.is_unanswered) {
                self.unanswered.leave(at);
            }
            record.next = core::mem::replace(&mut self.free, at);
            self.used -= 1;
            if further == NONE {
                self.present -= 1;
                self.by_bucket[host.bucket()] -= 1;
            }
            if let Some(tenants) = self.tenants.get_mut(record.paired as usize) {
                *tenants -= 1;
            }
            self.index.remove(self.hash(host, further), at);
        }
    }
}
