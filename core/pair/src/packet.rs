//! Messages of a stream as bytes: packets with records, confirmations, digests, requests for
//! repair. Numbers are in little-endian order.
//!
//! The channel authenticates the partner. The reader nevertheless believes nothing: a message with
//! any wrong length is refused as a whole, before the first record is used.

use crate::digest::{BUCKETS, Digests};
use crate::ownership::Stream;
use alloc::vec::Vec;

/// Numbers that may be unconfirmed at a time.
pub const WINDOW: u64 = 4096;

/// Bytes of a packet before its records.
pub const PACKET_HEAD: usize = STREAM + 24;

/// Bytes of a record beside its own.
pub const RECORD_HEAD: usize = 6;

const STREAM: usize = 29;

/// Bytes of a short message, such as most confirmations.
const SHORT: usize = 64;

/// The length that stands for "to the end of the packet".
const REST: u16 = u16::MAX;

/// A bit beside the key: the record begins with its key, which is left out. Keys are smaller.
const LEAVES_KEY: u32 = 1 << 31;

/// Identity of the stream of one worker of the owner, and of one reader of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// Number of the slice in the configuration.
    pub slice: u16,
    /// Number of the worker of the owner.
    pub worker: u8,
    /// Number of the worker of the partner that a message to the owner comes from. 0 in a message
    /// to the partner: all its workers read it.
    pub reader: u8,
    /// The two starts, and the epoch.
    pub stream: Stream,
}

impl StreamId {
    /// The identity that all readers of the stream have in common.
    pub fn common(self) -> Self {
        Self { reader: 0, ..self }
    }
}

/// A message of one stream. Packets and digests go to the partner, the others to the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Records.
    Packet(Packet<'a>),
    /// Numbers that have arrived.
    Confirmation(Confirmation),
    /// Digests of everything that the packets up to `number` have said.
    Digests {
        /// The last packet that they include.
        number: u64,
        /// Packets from this one on may have been lost without the sender's knowledge.
        floor: u64,
        /// The digests.
        digests: Digests,
        /// Buckets with keys whose packet was lost: their digests do not count.
        unsettled: Vec<u16>,
    },
    /// Buckets whose digests differ. The owner sends all their keys again. No buckets: packets were
    /// lost, so the digests could not be compared. The owner sends them again after a second.
    Repair(Vec<u16>),
    /// The owner's state of the stream, sent every second, or sooner after news: whether the copy
    /// is complete, and the origin that the records refer to. The origin is the caller's matter.
    State {
        /// The partner has a place for all, and has confirmed all that had changed until a moment
        /// of the last second.
        is_complete: bool,
        /// The origin.
        origin: &'a [u8],
    },
    /// The partner's answer to a state: what it refuses to copy. It is the caller's matter.
    Opinion(&'a [u8]),
    /// The owner asks which keys the partner refuses. Earlier versions of the partner do not read
    /// this message, and do not answer.
    AskRefused,
    /// Keys that the partner refuses. They are the caller's matter.
    Refused(&'a [u8]),
}

/// A packet of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number within the stream, from 1 on.
    pub number: u64,
    /// Packets with smaller numbers are not valid any more.
    pub floor: u64,
    /// Time of sending, nanoseconds of the sender's monotonic scale.
    pub sent: u64,
    records: &'a [u8],
}

/// Numbers that have arrived, and the state of the copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmation {
    /// Number of the confirmation. The state of an earlier one does not count.
    pub number: u64,
    /// Keys whose mapping the copy lacks.
    pub missing: u32,
    /// The partner has no mapping of the slice without a key: it has ended all others.
    pub is_swept: bool,
    /// All packets below have arrived or are not valid any more.
    pub below: u64,
    /// A bit for each number from `below` on, lowest first: it has arrived.
    pub bits: Vec<u64>,
}

impl Confirmation {
    /// True if the packet has arrived, or is not valid any more.
    pub fn contains(&self, number: u64) -> bool {
        let Some(at) = number.checked_sub(self.below) else { return true };
        let word = usize::try_from(at / 64).ok().and_then(|at| self.bits.get(at));
        word.is_some_and(|word| word & 1 << (at % 64) != 0)
    }

    /// The greatest number that has arrived, if it is known.
    pub fn greatest(&self) -> u64 {
        let last = self.bits.iter().rposition(|word| *word != 0);
        let of_word = |at: usize| at as u64 * 64 + u64::from(self.bits[at].ilog2());
        match last {
            Some(at) => self.below.saturating_add(of_word(at)),
            None => self.below.saturating_sub(1),
        }
    }
}

/// A record of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord<'a> {
    /// The key.
    pub key: u32,
    /// True if the record begins with its key, which is left out.
    leaves_key: bool,
    bytes: &'a [u8],
}

impl<'a> PacketRecord<'a> {
    /// The whole record; no bytes: the mapping has ended. `memory` is for a record without its key.
    pub fn whole<'b>(&self, memory: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.leaves_key {
            return self.bytes;
        }
        memory.clear();
        memory.extend_from_slice(&self.key.to_le_bytes());
        memory.extend_from_slice(self.bytes);
        memory
    }
}

impl<'a> Packet<'a> {
    /// The records.
    pub fn records(&self) -> impl Iterator<Item = PacketRecord<'a>> + use<'a> {
        let mut rest = self.records;
        core::iter::from_fn(move || take_record(&mut rest))
    }

    fn is_whole(&self) -> bool {
        let mut rest = self.records;
        while take_record(&mut rest).is_some() {}
        rest.is_empty()
    }
}

/// Takes the next record. On a wrong length nothing is taken.
fn take_record<'a>(rest: &mut &'a [u8]) -> Option<PacketRecord<'a>> {
    let (key, after) = rest.split_first_chunk()?;
    let (len, after) = after.split_first_chunk()?;
    let len = match u16::from_le_bytes(*len) {
        REST => after.len(),
        len => usize::from(len),
    };
    let (bytes, after) = after.split_at_checked(len)?;
    *rest = after;
    let key = u32::from_le_bytes(*key);
    Some(PacketRecord { key: key & !LEAVES_KEY, leaves_key: key & LEAVES_KEY != 0, bytes })
}

fn begin(kind: u8, id: StreamId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SHORT);
    put_head(&mut bytes, kind, id);
    bytes
}

fn put_head(bytes: &mut Vec<u8>, kind: u8, id: StreamId) {
    let StreamId { slice, worker, reader, stream: Stream { from, to, epoch } } = id;
    bytes.push(kind);
    bytes.extend(slice.to_le_bytes());
    bytes.extend([worker, reader]);
    [from, to, epoch].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
}

/// Begins a packet that has memory for `room` bytes, in the memory of an earlier one.
/// [`put_record`] adds records.
pub(crate) fn begin_packet(
    mut bytes: Vec<u8>,
    id: StreamId,
    (number, floor): (u64, u64),
    sent: u64,
    room: usize,
) -> Vec<u8> {
    bytes.clear();
    bytes.reserve_exact(room);
    put_head(&mut bytes, 1, id);
    [number, floor, sent].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

/// The record without its key, if it begins with that.
pub(crate) fn without_key(key: u32, record: &[u8]) -> Option<&[u8]> {
    record.strip_prefix(&key.to_le_bytes())
}

/// Adds a record without its key ([`without_key`]) to a packet.
pub(crate) fn put_short_record(packet: &mut Vec<u8>, key: u32, record: &[u8]) {
    put_record(packet, key | LEAVES_KEY, record);
}

/// Adds a record to a packet. After a record of 65,535 bytes or more there is no other.
pub(crate) fn put_record(packet: &mut Vec<u8>, key: u32, record: &[u8]) {
    packet.extend(key.to_le_bytes());
    packet.extend(u16::try_from(record.len()).unwrap_or(REST).to_le_bytes());
    packet.extend(record);
}

/// Writes a confirmation.
pub(crate) fn write_confirmation(id: StreamId, confirmation: &Confirmation) -> Vec<u8> {
    let mut bytes = begin(2, id);
    bytes.extend(confirmation.number.to_le_bytes());
    bytes.extend(confirmation.missing.to_le_bytes());
    bytes.push(u8::from(confirmation.is_swept));
    bytes.extend(confirmation.below.to_le_bytes());
    confirmation.bits.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes
}

/// Writes digests.
pub(crate) fn write_digests(
    id: StreamId,
    (number, floor): (u64, u64),
    digests: &Digests,
    unsettled: &[u16],
) -> Vec<u8> {
    let mut bytes = begin(3, id);
    [number, floor].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    digests.words().for_each(|word| bytes.extend(word.to_le_bytes()));
    unsettled.iter().for_each(|bucket| bytes.extend(bucket.to_le_bytes()));
    bytes
}

/// Writes a request for repair.
pub(crate) fn write_repair(id: StreamId, buckets: &[u16]) -> Vec<u8> {
    let mut bytes = begin(4, id);
    buckets.iter().for_each(|bucket| bytes.extend(bucket.to_le_bytes()));
    bytes
}

/// Writes the owner's state of a stream.
pub fn write_state(id: StreamId, is_complete: bool, origin: &[u8]) -> Vec<u8> {
    let mut bytes = begin(5, id);
    bytes.push(u8::from(is_complete));
    bytes.extend(origin);
    bytes
}

/// Writes the partner's answer to a state.
pub fn write_opinion(id: StreamId, opinion: &[u8]) -> Vec<u8> {
    let mut bytes = begin(6, id);
    bytes.extend(opinion);
    bytes
}

/// Writes the owner's question about keys that the partner refuses.
pub fn write_ask_refused(id: StreamId) -> Vec<u8> {
    begin(7, id)
}

/// Writes the keys that the partner refuses.
pub fn write_refused(id: StreamId, keys: &[u8]) -> Vec<u8> {
    let mut bytes = begin(8, id);
    bytes.extend(keys);
    bytes
}

/// Workers that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The worker of the owner with this number.
    Owner(u8),
    /// All workers of the partner.
    Partner,
}

/// Tells the workers that a message is for, without reading it whole. `None`: it is too short.
pub fn recipient(bytes: &[u8]) -> Option<Recipient> {
    let [kind, _, _, worker] = bytes.first_chunk()?;
    Some(match kind {
        2 | 4 | 6 | 8 => Recipient::Owner(*worker),
        _ => Recipient::Partner,
    })
}

/// Reads a message. `None`: it is damaged, or of a later version.
pub fn read(bytes: &[u8]) -> Option<(StreamId, Message<'_>)> {
    let (kind, rest) = bytes.split_first()?;
    let (slice, rest) = rest.split_first_chunk()?;
    let ([worker, reader], rest) = rest.split_first_chunk()?;
    let ([from, to, epoch], rest) = (numbers(rest)?, &rest[24..]);
    let id = StreamId {
        slice: u16::from_le_bytes(*slice),
        worker: *worker,
        reader: *reader,
        stream: Stream { from, to, epoch },
    };
    let message = match kind {
        1 => {
            let [number, floor, sent] = numbers(rest)?;
            let packet = Packet { number, floor, sent, records: &rest[24..] };
            let is_valid = packet.is_whole() && floor <= number && floor > 0;
            Message::Packet(is_valid.then_some(packet)?)
        }
        2 => {
            let ([number], rest) = (numbers(rest)?, &rest[8..]);
            let (missing, rest) = rest.split_first_chunk()?;
            let (is_swept, rest) = rest.split_first()?;
            let ([below], rest) = (numbers(rest)?, &rest[8..]);
            let (words, odd) = rest.as_chunks();
            let is_valid =
                odd.is_empty() && *is_swept <= 1 && words.len() as u64 <= WINDOW / 64 + 1;
            let bits = is_valid.then(|| words.iter().map(|word| u64::from_le_bytes(*word)))?;
            Message::Confirmation(Confirmation {
                number,
                missing: u32::from_le_bytes(*missing),
                is_swept: *is_swept == 1,
                below,
                bits: bits.collect(),
            })
        }
        3 => {
            let [number, floor] = numbers(rest)?;
            let (digests, unsettled) = rest[16..].split_at_checked(8 * BUCKETS)?;
            let (digests, unsettled) = (Digests::read(digests)?, buckets(unsettled)?);
            Message::Digests { number, floor, digests, unsettled }
        }
        4 => Message::Repair(buckets(rest)?),
        5 => {
            let (is_complete, origin) = rest.split_first()?;
            (*is_complete <= 1).then_some(())?;
            Message::State { is_complete: *is_complete == 1, origin }
        }
        6 => Message::Opinion(rest),
        7 => rest.is_empty().then_some(Message::AskRefused)?,
        8 => Message::Refused(rest),
        _ => return None,
    };
    Some((id, message))
}

/// Reads some numbers at the beginning.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let words = bytes.get(..8 * N)?.as_chunks().0;
    let mut numbers = [0; N];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = u64::from_le_bytes(*word);
    }
    Some(numbers)
}

fn buckets(bytes: &[u8]) -> Option<Vec<u16>> {
    let (words, odd) = bytes.as_chunks();
    let buckets: Vec<u16> = words.iter().map(|word| u16::from_le_bytes(*word)).collect();
    let is_valid = odd.is_empty()
        && buckets.len() <= BUCKETS
        && buckets.iter().all(|bucket| usize::from(*bucket) < BUCKETS);
    is_valid.then_some(buckets)
}
