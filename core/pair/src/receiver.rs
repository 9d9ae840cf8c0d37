//! The partner's side of a stream: which packets have arrived, and what the copy has for each key.
//!
//! Packets are applied in any order. For each key the record of the packet with the greatest number
//! is valid. Everything that does not belong to the stream is refused and counted. Memory: 16 bytes
//! for each key.

use crate::digest::{BUCKETS, Digests};
use crate::keys::KeySet;
use crate::packet::{self, Confirmation, Message, Packet, StreamId, WINDOW};
use crate::time::Translation;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Numbers of packets are smaller.
const MOST_NUMBERS: u64 = 1 << 62;

const WORDS: usize = WINDOW as usize / 64;

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedCounters {
    /// Packets that were applied.
    pub packets: u64,
    /// Records that were applied.
    pub records: u64,
    /// Packets that came twice, or after they had become invalid.
    pub repeated: u64,
    /// Packets of another stream: forged, or of an earlier epoch or start.
    pub foreign: u64,
    /// Messages that no sender writes.
    pub damaged: u64,
    /// Packets that never came. Their keys came again.
    pub gaps: u64,
    /// Records without room in the copy.
    pub without_room: u64,
    /// Digests that could not be compared, because packets were lost meanwhile.
    pub void: u64,
    /// Buckets whose digest was compared.
    pub compared: u64,
    /// Buckets that differed.
    pub divergent: u64,
}

impl ReceivedCounters {
    /// The sum of two receivers' counters.
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            records: self.records + other.records,
            repeated: self.repeated + other.repeated,
            foreign: self.foreign + other.foreign,
            damaged: self.damaged + other.damaged,
            gaps: self.gaps + other.gaps,
            without_room: self.without_room + other.without_room,
            void: self.void + other.void,
            compared: self.compared + other.compared,
            divergent: self.divergent + other.divergent,
        }
    }
}

/// The last record of a key: the number of its packet, and its fingerprint; 0: no mapping.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    number: u64,
    fingerprint: u64,
}

/// Digests that wait for packets on their way.
#[derive(Debug)]
struct Comparison {
    number: u64,
    digests: Digests,
    unsettled: Vec<u16>,
    floor: u64,
}

/// The partner's side of a stream.
#[derive(Debug)]
pub struct Receiver {
    id: StreamId,
    /// All numbers below have arrived or are not valid any more. The bits of the window follow, in
    /// a ring: the bit of a number is at `number % WINDOW`.
    below: u64,
    bits: Box<[u64; WORDS]>,
    /// The greatest number that has arrived.
    greatest: u64,
    /// The greatest number that is not valid any more and has not arrived.
    last_gap: u64,
    entries: Vec<Entry>,
    digests: Digests,
    /// For each bucket the greatest number that changed it.
    touched: Box<[u64]>,
    waiting: Option<Comparison>,
    translation: Translation,
    counters: ReceivedCounters,
    /// All keys are smaller.
    most: u32,
    /// Keys whose mapping the copy lacks: it had no place, or has ended here.
    missing: KeySet,
    is_swept: bool,
    confirmations: u64,
    /// True if packets or digests have come since the last confirmation.
    is_confirmation_due: bool,
}

impl Receiver {
    /// Begins to receive a stream, as the reader that `id` names. The copy is empty. A packet with
    /// a key from `most` on is refused.
    pub fn new(id: StreamId, most: u32) -> Self {
        Self {
            id,
            below: 1,
            bits: Box::new([0; WORDS]),
            greatest: 0,
            last_gap: 0,
            entries: Vec::new(),
            digests: Digests::default(),
            touched: vec![0; BUCKETS].into(),
            waiting: None,
            translation: Translation::default(),
            counters: ReceivedCounters::default(),
            most: most.min(KeySet::MOST),
            missing: KeySet::default(),
            is_swept: false,
            confirmations: 0,
            is_confirmation_due: false,
        }
    }

    /// The stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Receives a message of the owner at time `now`, nanoseconds. Returns the answer to send: a
    /// confirmation or a request for repair.
    ///
    /// `sink` replaces the mapping of a key by a record; no bytes: it ends the mapping. It returns
    /// the record's fingerprint, or `None` if the record has no place. Then the key has no mapping.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now: u64,
        sink: impl FnMut(u32, &[u8], &Translation) -> Option<u64>,
    ) -> Option<Vec<u8>> {
        let Some(message) = packet::read(bytes) else {
            self.counters.damaged += 1;
            return None;
        };
        let repair = self.take(message, now, sink);
        // A request for repair is as good as a confirmation: the next packet is confirmed with all.
        repair.or_else(|| self.confirm_taken())
    }

    /// Receives a message as [`Receiver::receive`], but confirms nothing:
    /// [`Receiver::confirm_taken`] does that for many packets at once. Returns a request for
    /// repair.
    pub fn take(
        &mut self,
        (id, message): (StreamId, Message<'_>),
        now: u64,
        sink: impl FnMut(u32, &[u8], &Translation) -> Option<u64>,
    ) -> Option<Vec<u8>> {
        if id != self.id.common() {
            self.counters.foreign += 1;
            return None;
        }
        match message {
            Message::Packet(packet) => self.receive_packet(packet, now, sink),
            Message::Digests { number, floor, digests, unsettled } => {
                // On a quiet stream no packet says that an earlier one is not valid any more.
                if floor <= number.saturating_add(1) && number < MOST_NUMBERS {
                    self.raise_floor(floor);
                }
                self.waiting = Some(Comparison { number, floor, digests, unsettled });
                // The last confirmation may be lost, and with it what it told beside its packets.
                self.is_confirmation_due = true;
                self.compare()
            }
            Message::Confirmation(_)
            | Message::Repair(_)
            | Message::Opinion(_)
            | Message::AskRefused
            | Message::Refused(_)
            | Message::State { .. } => {
                self.counters.damaged += 1;
                None
            }
        }
    }

    fn receive_packet(
        &mut self,
        packet: Packet<'_>,
        now: u64,
        mut sink: impl FnMut(u32, &[u8], &Translation) -> Option<u64>,
    ) -> Option<Vec<u8>> {
        let Packet { number, floor, sent, .. } = packet;
        let is_within = number.checked_sub(floor).is_some_and(|distance| distance < WINDOW);
        let fits = packet.records().all(|record| record.key < self.most);
        if !is_within || number >= MOST_NUMBERS || !fits {
            self.counters.damaged += 1;
            return None;
        }
        self.translation.observe(sent, now);
        self.raise_floor(floor);
        if number < self.below || self.has(number) {
            self.counters.repeated += 1;
            self.is_confirmation_due = true;
            return None;
        }
        self.bits[word(number)] |= bit(number);
        self.greatest = self.greatest.max(number);
        self.counters.packets += 1;
        let mut memory = Vec::new();
        for record in packet.records() {
            self.apply(number, record.key, record.whole(&mut memory), &mut sink);
        }
        self.advance();
        self.is_confirmation_due = true;
        self.compare()
    }

    /// The confirmation of everything that has arrived, if packets or digests have come since the
    /// last one.
    pub fn confirm_taken(&mut self) -> Option<Vec<u8>> {
        self.is_confirmation_due.then(|| self.confirmation())
    }

    fn apply(
        &mut self,
        number: u64,
        key: u32,
        record: &[u8],
        sink: &mut impl FnMut(u32, &[u8], &Translation) -> Option<u64>,
    ) {
        let at = key as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, Entry::default());
        }
        if self.entries[at].number >= number {
            return;
        }
        let mut fingerprint = sink(key, record, &self.translation);
        if record.is_empty() {
            fingerprint = Some(0);
        }
        if fingerprint.is_some() {
            self.missing.remove(key);
        } else {
            self.missing.insert(key);
            self.counters.without_room += 1;
        }
        self.put(number, key, fingerprint.unwrap_or(0));
        self.counters.records += 1;
    }

    /// The copy of a key has ended by itself. Returns a request for its record.
    pub fn lose(&mut self, key: u32) -> Option<Vec<u8>> {
        let Entry { number, fingerprint } = *self.entries.get(key as usize)?;
        if fingerprint == 0 {
            return None;
        }
        self.put(number, key, 0);
        self.missing.insert(key);
        Some(packet::write_repair(self.id, &[Digests::bucket(key) as u16]))
    }

    /// A request for the records of all keys that the copy lacks: there may be a place for them
    /// now. A request that is lost is repeated by the comparison of digests.
    pub fn ask_again(&self) -> Option<Vec<u8>> {
        let mut buckets = Vec::new();
        let mut from = 0;
        while let Some(key) = self.missing.next(from) {
            buckets.push(Digests::bucket(key) as u16);
            from = key + 1;
        }
        buckets.sort_unstable();
        buckets.dedup();
        (!buckets.is_empty()).then(|| packet::write_repair(self.id, &buckets))
    }

    /// Notes the time at which another message than a packet was sent, of the owner's scale.
    pub fn observe(&mut self, sent: u64, now: u64) {
        self.translation.observe(sent, now);
    }

    /// True if the copy has every mapping that it was told.
    pub fn has_all(&self) -> bool {
        self.missing.len() == 0
    }

    /// The caller has ended every mapping of the slice that has no key. Returns the confirmation.
    pub fn swept(&mut self) -> Vec<u8> {
        self.is_swept = true;
        self.confirmation()
    }

    /// True after [`Receiver::swept`].
    pub fn is_swept(&self) -> bool {
        self.is_swept
    }

    fn put(&mut self, number: u64, key: u32, fingerprint: u64) {
        let now = Entry { number, fingerprint };
        let former = core::mem::replace(&mut self.entries[key as usize], now);
        self.digests.replace(key, former.fingerprint, fingerprint);
        let touched = &mut self.touched[Digests::bucket(key)];
        *touched = number.max(*touched);
    }

    fn has(&self, number: u64) -> bool {
        number < self.below || self.bits[word(number)] & bit(number) != 0
    }

    fn raise_floor(&mut self, floor: u64) {
        if floor.saturating_sub(self.below) > WINDOW {
            let arrived: u32 = self.bits.iter().map(|word| word.count_ones()).sum();
            self.counters.gaps += floor - self.below - u64::from(arrived);
            self.last_gap = floor - 1;
            self.bits.fill(0);
            self.below = floor;
        }
        while self.below < floor {
            if !self.has(self.below) {
                self.counters.gaps += 1;
                self.last_gap = self.below;
            }
            self.leave_lowest();
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.bits[word(self.below)] & bit(self.below) != 0 {
            self.leave_lowest();
        }
    }

    fn leave_lowest(&mut self) {
        self.bits[word(self.below)] &= !bit(self.below);
        self.below += 1;
    }

    /// The confirmation of everything that has arrived.
    pub fn confirmation(&mut self) -> Vec<u8> {
        self.is_confirmation_due = false;
        self.confirmations += 1;
        let mut bits = Vec::new();
        for number in self.below..=self.greatest {
            let at = number - self.below;
            if at.is_multiple_of(64) {
                bits.push(0);
            }
            if self.has(number)
                && let Some(last) = bits.last_mut()
            {
                *last |= 1_u64 << (at % 64);
            }
        }
        let confirmation = Confirmation {
            number: self.confirmations,
            missing: self.missing.len() as u32,
            is_swept: self.is_swept,
            below: self.below,
            bits,
        };
        packet::write_confirmation(self.id, &confirmation)
    }

    /// Compares digests, once every packet that they include has arrived or is not valid any more.
    fn compare(&mut self) -> Option<Vec<u8>> {
        let Comparison { number, floor, digests, unsettled } =
            self.waiting.take_if(|waiting| waiting.number < self.below)?;
        // The keys of such a packet may have been sent again after the digests were.
        if self.last_gap >= floor {
            self.counters.void += 1;
            return Some(packet::write_repair(self.id, &[]));
        }
        let mut differing = Vec::new();
        for bucket in 0..BUCKETS {
            let is_later = self.touched[bucket] > number;
            if is_later || unsettled.binary_search(&(bucket as u16)).is_ok() {
                continue;
            }
            self.counters.compared += 1;
            if self.digests.of(bucket) != digests.of(bucket) {
                differing.push(bucket as u16);
            }
        }
        self.counters.divergent += differing.len() as u64;
        (!differing.is_empty()).then(|| packet::write_repair(self.id, &differing))
    }

    /// Translation of the sender's times.
    pub fn translation(&self) -> &Translation {
        &self.translation
    }

    /// Counters.
    pub fn counters(&self) -> ReceivedCounters {
        self.counters
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}
