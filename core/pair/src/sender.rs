//! The owner's side of a stream: which keys have changed, and what is on its way.
//!
//! No record waits here. The sender keeps a bit for each changed key, and asks its source for the
//! present record when it writes a packet. After a loss it sets the bits of the packet's keys
//! again, unless later packets have them. Memory: 12 bytes and some bits for each key, and the keys
//! of at most [`WINDOW`] packets.
//!
//! While packets change mappings all the time, something is always on its way. A checkpoint tells
//! that everything has arrived that had changed until a time.
//!
//! A port rests if the partner may have its mapping: a record was sent whose end is not confirmed,
//! or the partner may still have mappings without a key. It has none from
//! [`Confirmation::is_swept`](crate::Confirmation::is_swept) on.

mod lag;
mod long;
mod losses;
mod pace;
mod repairs;
mod settling;
mod writing;

use crate::awaited::Awaited;
use crate::digest::Digests;
use crate::keys::KeySet;
use crate::packet::{StreamId, WINDOW};
use crate::sent::Sent;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use losses::Losses;
use pace::{Ended, Pace};

/// Most keys that one call of [`Sender::write`] looks at.
const LOOKS: usize = 4096;

/// Most readers: a packet has a bit for each.
pub(crate) const MOST_READERS: usize = 64;

/// What a source says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// It has written a record. The fingerprint is not 0, and covers what matters.
    Record {
        /// The fingerprint.
        fingerprint: u64,
    },
    /// The key has no mapping.
    Absent,
    /// The mapping is too young, and the partner has no record of it. The source calls
    /// [`Sender::change`] again when it is due.
    NotYet,
}

/// Result of [`Sender::write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A packet to send.
    Packet(Vec<u8>),
    /// Nothing is to be sent now.
    Nothing,
    /// Many keys needed no record; there are more to look at.
    More,
    /// Too many packets are unconfirmed: all of the window, or as many as the partner is quick
    /// enough for.
    Full,
}

/// A packet on its way. A confirmed or lost packet has no keys.
#[derive(Debug)]
struct Flying {
    keys: Vec<u32>,
    sent: u64,
    /// Packets that had ended then.
    ended: Ended,
    /// None of its keys has been waiting for longer than since this time, but those of `again`.
    since: u64,
    /// Keys that an earlier packet has lost, with the times since which they have been waiting.
    again: Vec<(u32, u64)>,
    /// A bit for each reader that has confirmed the packet.
    confirmed: u64,
    is_settled: bool,
    /// True if it is lost because others have overtaken it. It may be late only.
    is_overtaken: bool,
    /// Of a long record the number of bytes, and the time at which it counts as lost.
    long: Option<(usize, u64)>,
}

/// A key whose next record waits for the end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// For that of its last record, in the packet with this number.
    By(u64),
    /// For that of any long record: there are too many.
    ByAny,
}

/// A time of the owner's table. It has arrived when all readers have confirmed the record of that
/// time, or a later one, of every key.
#[derive(Debug)]
struct Checkpoint {
    /// Number of the first packet after it. All earlier packets must arrive, or be lost.
    from: u64,
    /// Keys that must arrive in a packet from `from` on, unless they need none.
    owed: KeySet,
}

/// What the latest confirmation of a reader says of its part of the copy.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    latest: u64,
    /// The greatest packet that it has confirmed.
    greatest: u64,
    missing: u32,
    is_swept: bool,
}

/// The owner's side of a stream.
#[derive(Debug)]
pub struct Sender {
    id: StreamId,
    /// Number of the next packet, and of the first one in `flying`.
    next: u64,
    floor: u64,
    flying: VecDeque<Flying>,
    pace: Pace,
    losses: Losses,
    changed: KeySet,
    /// Keys that must be sent whatever was sent before: their last packet was lost, or the copy
    /// differs.
    lost: KeySet,
    /// Keys of which the partner may have a mapping: a record was sent, and no later end is
    /// confirmed.
    shared: KeySet,
    /// Buckets whose keys must be sent again.
    repairs: BTreeSet<u16>,
    /// For each key the fingerprint of the last record sent (0: its end, or nothing), and the lower
    /// half of the number of its packet.
    marks: Vec<u64>,
    last: Vec<u32>,
    digests: Digests,
    /// Ends that the partner has not confirmed: the key, the first packet that can confirm the end,
    /// and the port.
    resting: BTreeSet<(u32, u64, u128)>,
    /// Ports whose end is confirmed, before the partner has no mappings without a key.
    early: Vec<u128>,
    released: Vec<u128>,
    awaited: Awaited,
    /// Packets since the last one that began with a key for which no ticket waits.
    awaited_packets: u8,
    /// Keys whose last record has no room beside others and is on its way. The next record of such
    /// a key waits for that packet's end: a host could change it all the time. And keys for whose
    /// long record there is no place.
    long: BTreeMap<u32, Blocked>,
    /// Number of long records on their way, and their bytes.
    long_packets: usize,
    long_bytes: usize,
    /// Doublings of the time of a long record, because one has counted as lost by its time. They
    /// become as few as the next one needs that arrives.
    patience: u32,
    /// True if records leave out their keys.
    leaves_keys: bool,
    /// Memory for one record, and for the next packets.
    record: Vec<u8>,
    memory: Vec<Vec<u8>>,
    /// The workers of the partner. What counts is what all of them have confirmed.
    readers: Vec<Reader>,
    is_swept: bool,
    checkpoint: Option<Checkpoint>,
    /// Where the search for changed keys goes on.
    cursor: u32,
    /// Times of the first change that the present search may reach, and of the first one after the
    /// search began anew.
    oldest: Option<u64>,
    newer: Option<u64>,
    /// Changed keys that a packet has lost, with the times since which they have been waiting.
    again: BTreeMap<u32, u64>,
    counters: Sent,
}

impl Sender {
    /// Begins a stream to a partner with one worker. The partner has no copy. The caller reports
    /// every present key by [`Sender::change`].
    pub fn new(id: StreamId) -> Self {
        Self::to_readers(id, 1)
    }

    /// Begins a stream that `readers` workers of the partner read, 64 at most. Each has a part of
    /// the copy.
    pub fn to_readers(id: StreamId, readers: usize) -> Self {
        Self {
            id,
            next: 1,
            floor: 1,
            flying: VecDeque::new(),
            pace: Pace::default(),
            losses: Losses::default(),
            changed: KeySet::default(),
            lost: KeySet::default(),
            shared: KeySet::default(),
            repairs: BTreeSet::new(),
            marks: Vec::new(),
            last: Vec::new(),
            digests: Digests::default(),
            resting: BTreeSet::new(),
            early: Vec::new(),
            released: Vec::new(),
            awaited: Awaited::default(),
            awaited_packets: 0,
            long: BTreeMap::new(),
            long_packets: 0,
            long_bytes: 0,
            patience: 0,
            leaves_keys: false,
            record: Vec::new(),
            memory: Vec::new(),
            readers: vec![Reader::default(); readers.clamp(1, MOST_READERS)],
            is_swept: false,
            checkpoint: None,
            cursor: 0,
            oldest: None,
            newer: None,
            again: BTreeMap::new(),
            counters: Sent::default(),
        }
    }

    /// Sets whether a record that begins with its key leaves that out. A partner of an earlier
    /// version refuses such packets.
    pub fn leave_keys(&mut self, leaves: bool) {
        self.leaves_keys = leaves;
    }

    /// The stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// A key has changed, or has come. Returns `false` for a key that is too large.
    pub fn change(&mut self, key: u32, now: u64) -> bool {
        let is_new = self.changed.insert(key);
        if is_new {
            self.newer = Some(self.newer.map_or(now, |newer| newer.min(now)));
        }
        is_new || self.changed.contains(key)
    }

    /// The mapping of a key has ended and has left this port. Returns true if the port rests:
    /// [`Sender::released`] tells its end. Otherwise the partner never had the mapping.
    pub fn end(&mut self, key: u32, port: u128, now: u64) -> bool {
        // The last record may be of an earlier mapping of the key. Then the port rests needlessly.
        let rests = !self.is_swept || self.shared.contains(key);
        if rests {
            self.resting.insert((key, self.next, port));
            self.lost.insert(key);
        }
        self.change(key, now);
        rests
    }

    /// Ports whose rest has ended since the last call.
    pub fn released(&mut self) -> impl Iterator<Item = u128> + '_ {
        self.released.drain(..)
    }

    /// A ticket waits until all readers have confirmed the present record of a key, or a later one.
    /// [`Sender::arrived`] tells so, for each call once. The record is sent before others.
    pub fn wait_for(&mut self, key: u32, ticket: u64, now: u64) {
        let has_place = self.change(key, now);
        if has_place {
            self.lost.insert(key);
        }
        if !has_place || !self.awaited.add(key, self.next, ticket) {
            self.awaited.add_arrived(ticket);
        }
    }

    /// Tickets that need not wait any more, since the last call. One that waits for several keys is
    /// told for each.
    pub fn arrived(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.awaited.arrived()
    }

    /// True if tickets wait.
    pub fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Tickets that wait: the stream is about to end.
    pub fn give_up(&mut self) -> Vec<u64> {
        self.awaited.give_up()
    }

    /// Ends the stream: the partner's process has ended, and with it all its copies. Returns the
    /// ports whose rest ends with it.
    pub fn abandon(self) -> impl Iterator<Item = u128> {
        let resting = self.resting.into_iter().map(|(_, _, port)| port);
        self.released.into_iter().chain(self.early).chain(resting)
    }

    /// Number of ports that rest.
    pub fn resting(&self) -> usize {
        self.resting.len() + self.early.len()
    }

    /// Writes a packet of at most `room` bytes, unless a single record is longer. `source` appends
    /// the present record of a key. All its keys are smaller than `extent`. If a mapping is
    /// [`Present::NotYet`] and a record of it was sent, the source is asked once more, with true:
    /// the partner keeps its copy only if it gets a record, however young the mapping is.
    pub fn write(
        &mut self,
        now: u64,
        (room, extent): (usize, u32),
        mut source: impl FnMut((u32, bool), &mut Vec<u8>) -> Present,
    ) -> Written {
        if self.is_full() {
            return Written::Full;
        }
        self.repair_some(extent, now);
        if self.changed.len() == 0 {
            (self.oldest, self.newer) = (None, None);
            return if self.repairs.is_empty() { Written::Nothing } else { Written::More };
        }
        let mut begun = self.begin(now, room);
        let (mut record, mut looks) = (core::mem::take(&mut self.record), 0);
        while looks < LOOKS
            && begun.has_room()
            && let Some(key) = self.next_key(begun.is_for_others)
        {
            looks += 1;
            record.clear();
            let mut present = source((key, false), &mut record);
            if present == Present::NotYet && self.has_sent(key) {
                record.clear();
                present = source((key, true), &mut record);
            }
            let fingerprint = match present {
                Present::Record { fingerprint } => fingerprint.max(1),
                // The end of an earlier mapping of the key may be due.
                Present::Absent | Present::NotYet => {
                    record.clear();
                    0
                }
            };
            if !self.add(&mut begun, key, (&record, fingerprint), now) {
                break;
            }
        }
        if record.capacity() <= room {
            self.record = record;
        }
        if self.changed.len() == 0 {
            (self.oldest, self.newer) = (None, None);
        }
        if begun.is_empty() {
            self.drop_begun(begun);
            let is_more = looks == LOOKS || !self.repairs.is_empty();
            return if is_more { Written::More } else { Written::Nothing };
        }
        Written::Packet(self.finish(begun, now))
    }

    /// True if no further packet may be sent now.
    fn is_full(&self) -> bool {
        self.next - self.floor >= WINDOW || self.pace.is_full()
    }

    /// The next key to look at: one for which tickets wait, unless the packet is for others.
    fn next_key(&mut self, is_for_others: bool) -> Option<u32> {
        let awaited = self.awaited.next_urgent(|key| !self.long.contains_key(&key));
        match awaited {
            Some(_) if !is_for_others => awaited,
            _ => self.next_changed().or(awaited),
        }
    }

    fn next_changed(&mut self) -> Option<u32> {
        let next = self.changed_from(self.cursor);
        if next.is_some() {
            return next;
        }
        self.oldest = self.newer.take();
        self.cursor = 0;
        self.changed_from(0)
    }

    /// The next changed key for which no ticket waits, and whose last record is not on its way.
    fn changed_from(&self, mut from: u32) -> Option<u32> {
        while let Some(key) = self.changed.next(from) {
            if !self.awaited.is_urgent(key) && !self.long.contains_key(&key) {
                return Some(key);
            }
            from = key + 1;
        }
        None
    }

    /// True if the last packet with a key has a record of its present mapping.
    fn has_sent(&self, key: u32) -> bool {
        let later = (key, self.last_packet(key) + 1, 0)..=(key, u64::MAX, u128::MAX);
        self.mark(key) != 0 && self.resting.range(later).next().is_none()
    }

    fn mark(&self, key: u32) -> u64 {
        self.marks.get(key as usize).copied().unwrap_or(0)
    }

    fn note_sent(&mut self, key: u32, fingerprint: u64) {
        let at = key as usize;
        if self.marks.len() <= at {
            self.marks.resize(at + 1, 0);
            self.last.resize(at + 1, 0);
        }
        if fingerprint != 0 {
            self.shared.insert(key);
        }
        self.last[at] = self.next as u32;
        let former = core::mem::replace(&mut self.marks[at], fingerprint);
        self.digests.replace(key, former, fingerprint);
        self.lost.remove(key);
    }

    /// A key needs no record. What a packet after the checkpoint told still has to arrive.
    fn note_known(&mut self, key: u32) {
        let last = self.last_packet(key);
        if let Some(checkpoint) = &mut self.checkpoint
            && last < checkpoint.from
        {
            checkpoint.owed.remove(key);
        }
    }

    /// Number of the last packet with a key; 0: none.
    fn last_packet(&self, key: u32) -> u64 {
        match self.last.get(key as usize) {
            None | Some(0) => 0,
            Some(last) => {
                self.next.saturating_sub(u64::from((self.next as u32).wrapping_sub(*last)))
            }
        }
    }

    /// Number of changed keys that are to be sent now, at least: those of long records that wait
    /// are not counted.
    pub fn changed(&self) -> usize {
        self.changed.len().saturating_sub(self.long.len())
    }

    /// True if the partner has confirmed everything, and has a place for it. Mappings that are
    /// [`Present::NotYet`] are not included: before a planned move the source has none.
    pub fn is_complete(&self) -> bool {
        let nothing_waits = self.changed.len() == 0 && self.repairs.is_empty();
        nothing_waits && self.settled() == self.flying.len() && self.missing() == 0
    }

    /// Begins a checkpoint in place of the former one. Returns `false` if keys are to be sent again
    /// because the copy differs: then there is none.
    pub fn begin_checkpoint(&mut self) -> bool {
        self.checkpoint = None;
        if self.repairs.is_empty() {
            let none = self.changed.len() == 0;
            let owed = if none { KeySet::default() } else { self.changed.clone() };
            self.checkpoint = Some(Checkpoint { from: self.next, owed });
        }
        self.checkpoint.is_some()
    }

    /// True if the checkpoint has arrived: the partner has confirmed all that had changed when it
    /// began. `None`: there is no checkpoint, or the copy has differed since.
    pub fn has_arrived(&self) -> Option<bool> {
        let Checkpoint { from, owed } = self.checkpoint.as_ref()?;
        Some(owed.len() == 0 && self.floor + self.settled() as u64 >= *from)
    }

    /// Number of the first packets on the list that have arrived or are lost. The floor is below
    /// them while it waits for a lost one.
    fn settled(&self) -> usize {
        self.flying.iter().take_while(|flying| flying.is_settled).count()
    }

    /// True if the partner has said that it has no mapping of the slice without a key.
    pub fn is_swept(&self) -> bool {
        self.is_swept
    }

    /// Keys whose mapping the partner has no place for, as far as this node knows.
    pub fn missing(&self) -> u32 {
        self.readers.iter().fold(0, |sum, reader| sum.saturating_add(reader.missing))
    }

    /// Counters.
    pub fn counters(&self) -> Sent {
        self.counters
    }
}
