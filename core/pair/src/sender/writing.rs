//! A packet that is being written: what it has room for, and what follows from its records.

use super::{Blocked, Flying, Sender};
use crate::packet::{self, RECORD_HEAD};
use alloc::vec::Vec;

/// Most long records on their way.
const MOST_LONG: usize = 8;

/// Packets of awaited keys after which one begins with other changes.
const AWAITED_PACKETS: u8 = 3;

/// Packets whose memory is used again, and the longest of them.
const MOST_REUSED: usize = 16;
const LONGEST_REUSED: usize = 1 << 12;

/// Keys of most packets.
const FEW_KEYS: usize = 16;

/// A packet that is being written.
#[derive(Debug)]
pub(super) struct Begun {
    bytes: Vec<u8>,
    room: usize,
    keys: Vec<u32>,
    /// None of its other keys has been waiting for longer than since this time.
    since: Option<u64>,
    /// Keys that an earlier packet has lost, with the times since which they have been waiting.
    again: Vec<(u32, u64)>,
    /// True if it begins with changes that no ticket waits for.
    pub(super) is_for_others: bool,
    /// True if a ticket waits for one of its keys.
    is_awaited: bool,
    /// Of a long record the number of bytes, and the time at which it counts as lost.
    long: Option<(usize, u64)>,
}

impl Begun {
    /// True if there is room for another record, perhaps.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() + RECORD_HEAD <= self.room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Sender {
    /// Begins the next packet.
    pub(super) fn begin(&mut self, now: u64, room: usize) -> Begun {
        let memory = self.memory.pop().unwrap_or_default();
        Begun {
            bytes: packet::begin_packet(memory, self.id, (self.next, self.floor), now, room),
            room,
            keys: Vec::with_capacity(FEW_KEYS),
            since: self.oldest.into_iter().chain(self.newer).min(),
            again: Vec::new(),
            is_for_others: self.awaited_packets >= AWAITED_PACKETS,
            is_awaited: false,
            long: None,
        }
    }

    /// Ends a packet without records.
    pub(super) fn drop_begun(&mut self, begun: Begun) {
        self.reuse(begun.bytes);
    }

    /// Takes back the memory of a packet, for a later one.
    pub fn reuse(&mut self, packet: Vec<u8>) {
        if self.memory.len() < MOST_REUSED && packet.capacity() <= LONGEST_REUSED {
            self.memory.push(packet);
        }
    }

    /// Adds the present record of a key, unless the partner knows it. Returns false if there is no
    /// room for it.
    pub(super) fn add(
        &mut self,
        begun: &mut Begun,
        key: u32,
        (record, fingerprint): (&[u8], u64),
        now: u64,
    ) -> bool {
        let is_known = self.mark(key) == fingerprint && !self.lost.contains(key);
        let short = packet::without_key(key, record).filter(|_| self.leaves_keys);
        let len = short.map_or(record.len(), <[u8]>::len);
        let fits = begun.bytes.len() + RECORD_HEAD + len <= begun.room;
        if !is_known && !fits && !begun.is_empty() {
            return false;
        }
        if !is_known && !fits && self.long_packets >= MOST_LONG {
            self.long.insert(key, Blocked::ByAny);
            return true;
        }
        self.changed.remove(key);
        let since = if self.again.is_empty() { None } else { self.again.remove(&key) };
        if self.awaited.note_sent(key) {
            begun.is_awaited = true;
        } else {
            self.cursor = key + 1;
        }
        if is_known {
            self.note_known(key);
            return true;
        }
        match short {
            Some(short) => packet::put_short_record(&mut begun.bytes, key, short),
            None => packet::put_record(&mut begun.bytes, key, record),
        }
        begun.keys.push(key);
        begun.again.extend(since.map(|since| (key, since)));
        self.note_sent(key, fingerprint);
        if !fits {
            self.long.insert(key, Blocked::By(self.next));
            begun.long = Some(self.begin_long(begun.bytes.len(), now));
        }
        true
    }

    /// Ends a packet with records, which goes now. Returns its bytes.
    pub(super) fn finish(&mut self, begun: Begun, now: u64) -> Vec<u8> {
        let Begun { bytes, keys, since, again, is_for_others, is_awaited, long, .. } = begun;
        let is_one_more = is_awaited && !is_for_others;
        self.awaited_packets = if is_one_more { self.awaited_packets + 1 } else { 0 };
        self.counters.note_packet(keys.len(), bytes.len());
        let since = since.map_or(now, |since| since.min(now));
        let flying = Flying {
            keys,
            sent: now,
            ended: self.pace.note_sent(),
            since,
            again,
            confirmed: 0,
            is_settled: false,
            is_overtaken: false,
            long,
        };
        self.flying.push_back(flying);
        self.next += 1;
        bytes
    }
}
