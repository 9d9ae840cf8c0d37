//! Segments and frames in bytes. Numbers are little-endian.
//!
//! | bytes of a frame | mean |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 4 | how many entries |
//! | 8 | bytes of the compressed entries |
//! | 12 | bytes of the filter |
//! | 16, 24 | times of the first and the last entry |
//! | 32 | whether entries are among them that are about everything: [`WHOLE`] |
//! | 36 | CRC-32 of the compressed entries |
//! | 40 | CRC-32 of the 40 bytes before and the filter |
//! | 44 | the filter, then the compressed entries (Zstandard) |

use crate::record::{Gap, Record};
use natgate_engine::{BlockId, Change, Endpoint, MappingId, Timestamp};
use std::io;
use std::net::Ipv4Addr;

/// What a segment begins with; the last byte is the version.
pub(crate) const SEGMENT: [u8; 8] = *b"NATGATE\x01";

/// What a frame begins with.
const MAGIC: u32 = 0x4d52_464e;

/// Bytes of a frame before its filter.
pub(crate) const HEADER: usize = 44;

/// Bytes of an entry.
const ENTRY: usize = 40;

/// Most entries of a frame.
pub(crate) const MOST_ENTRIES: usize = 4096;

/// A filter's bits an entry, and how many of them each key sets.
const BITS_EACH: usize = 12;
const HASHES: u64 = 6;

/// Ports that share a key.
const PORTS: u16 = 64;

/// Keys that a block has at most; of a larger one, all its address' keys are taken to be there.
const MOST_KEYS: usize = 64;

/// What an entry says of an external endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Somebody has it from then on.
    Begins(Timestamp, Holding),
    /// Somebody has it no longer.
    Ends(Timestamp, Holding),
    /// The gateway began anew: nobody has anything.
    Start(Timestamp),
    /// Something is missing.
    Gap(Gap),
}

/// Who has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// IP protocol; `None`: all.
    pub(crate) protocol: Option<u8>,
    pub(crate) realm: u16,
    pub(crate) subscriber: Ipv4Addr,
    /// The internal port, if it is a mapping's or a session's.
    pub(crate) internal_port: Option<u16>,
    pub(crate) external: Ipv4Addr,
    /// First and last port.
    pub(crate) ports: (u16, u16),
    /// A session's remote endpoint; address 0: it is none, or it was not asked for.
    pub(crate) remote: Endpoint,
    /// Whether it is a session.
    pub(crate) is_session: bool,
}

impl Entry {
    /// What is kept of a record; limits that were reached are not.
    pub(crate) fn of(record: &Record, remotes: bool) -> Option<Self> {
        let event = match record {
            Record::Event(event) => event,
            Record::Gap(gap) => return Some(Self::Gap(*gap)),
        };
        let time = event.time;
        let session = |id: &natgate_engine::SessionId| Holding {
            remote: if remotes { id.remote } else { Endpoint::new(0, 0) },
            is_session: true,
            ..Holding::of_mapping(&id.mapping)
        };
        Some(match &event.change {
            Change::MappingCreated(id) => Self::Begins(time, Holding::of_mapping(id)),
            Change::MappingRemoved(id) => Self::Ends(time, Holding::of_mapping(id)),
            Change::SessionCreated(id) => Self::Begins(time, session(id)),
            Change::SessionRemoved(id) => Self::Ends(time, session(id)),
            Change::BlockAssigned(id) => Self::Begins(time, Holding::of_block(id)),
            Change::BlockReleased(id) => Self::Ends(time, Holding::of_block(id)),
            Change::QuotaReached { .. }
            | Change::ClassQuotaReached { .. }
            | Change::ThresholdReached { .. }
            | Change::ClassThresholdReached { .. }
            | Change::PoolThresholdReached { .. }
            | Change::PoolExhausted { .. } => return None,
        })
    }

    pub(crate) fn time(&self) -> Timestamp {
        match self {
            Self::Begins(time, _) | Self::Ends(time, _) | Self::Start(time) => *time,
            Self::Gap(gap) => gap.to,
        }
    }

    fn holding(&self) -> Option<&Holding> {
        match self {
            Self::Begins(_, holding) | Self::Ends(_, holding) => Some(holding),
            Self::Start(_) | Self::Gap(_) => None,
        }
    }

    fn put(&self, into: &mut Vec<u8>) {
        let start = into.len();
        let tag = match self {
            Self::Begins(..) => 1,
            Self::Ends(..) => 2,
            Self::Start(_) => 3,
            Self::Gap(_) => 4,
        };
        into.push(tag);
        into.extend(self.time().0.to_le_bytes());
        match self {
            Self::Begins(_, holding) | Self::Ends(_, holding) => holding.put(into),
            Self::Start(_) => {}
            Self::Gap(gap) => {
                into.extend(gap.from.0.to_le_bytes());
                into.extend(gap.lost.to_le_bytes());
            }
        }
        into.resize(start + ENTRY, 0);
    }

    fn get(bytes: &[u8]) -> Option<Self> {
        let time = Timestamp(u64_at(bytes, 1)?);
        Some(match bytes.first()? {
            1 => Self::Begins(time, Holding::get(bytes.get(9..)?)?),
            2 => Self::Ends(time, Holding::get(bytes.get(9..)?)?),
            3 => Self::Start(time),
            4 => {
                let (from, lost) = (Timestamp(u64_at(bytes, 9)?), u64_at(bytes, 17)?);
                Self::Gap(Gap { lost, from, to: time })
            }
            _ => return None,
        })
    }
}

impl Holding {
    fn of_mapping(id: &MappingId) -> Self {
        Self {
            protocol: Some(id.protocol),
            realm: id.realm,
            subscriber: id.internal.address,
            internal_port: Some(id.internal.port),
            external: id.external.address,
            ports: (id.external.port, id.external.port),
            remote: Endpoint::new(0, 0),
            is_session: false,
        }
    }

    fn of_block(id: &BlockId) -> Self {
        Self {
            protocol: None,
            realm: id.realm,
            subscriber: id.subscriber,
            internal_port: None,
            external: id.external,
            ports: id.ports,
            remote: Endpoint::new(0, 0),
            is_session: false,
        }
    }

    /// Whether it is of an external endpoint.
    pub(crate) fn is_of(&self, external: Ipv4Addr, port: u16, protocol: Option<u8>) -> bool {
        self.external == external
            && (self.ports.0..=self.ports.1).contains(&port)
            && (self.protocol.is_none() || protocol.is_none() || self.protocol == protocol)
    }

    fn put(&self, into: &mut Vec<u8>) {
        let flags = u8::from(self.protocol.is_some())
            | u8::from(self.internal_port.is_some()) << 1
            | u8::from(self.is_session) << 2;
        into.push(flags);
        into.push(self.protocol.unwrap_or(0));
        into.extend(self.realm.to_le_bytes());
        into.extend(self.subscriber.octets());
        into.extend(self.internal_port.unwrap_or(0).to_le_bytes());
        into.extend(self.external.octets());
        into.extend(self.ports.0.to_le_bytes());
        into.extend(self.ports.1.to_le_bytes());
        into.extend(self.remote.address.octets());
        into.extend(self.remote.port.to_le_bytes());
    }

    fn get(bytes: &[u8]) -> Option<Self> {
        let (flags, protocol) = (*bytes.first()?, *bytes.get(1)?);
        Some(Self {
            protocol: (flags & 1 != 0).then_some(protocol),
            realm: u16_at(bytes, 2)?,
            subscriber: address_at(bytes, 4)?,
            internal_port: (flags & 2 != 0).then_some(u16_at(bytes, 8)?),
            external: address_at(bytes, 10)?,
            ports: (u16_at(bytes, 14)?, u16_at(bytes, 16)?),
            remote: Endpoint { address: address_at(bytes, 18)?, port: u16_at(bytes, 22)? },
            is_session: flags & 4 != 0,
        })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn address_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    array::<4>(bytes, at).map(Ipv4Addr::from)
}

/// What a frame says before its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) count: u32,
    pub(crate) packed: u32,
    pub(crate) filter_len: u32,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    /// Whether entries are among them that are about everything: a start, a gap.
    pub(crate) whole: bool,
    crc: u32,
    head_crc: u32,
}

impl Head {
    /// Reads the bytes before a filter; `None`: it is no frame.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if u32_at(bytes, 0)? != MAGIC {
            return None;
        }
        let head = Self {
            count: u32_at(bytes, 4)?,
            packed: u32_at(bytes, 8)?,
            filter_len: u32_at(bytes, 12)?,
            first: Timestamp(u64_at(bytes, 16)?),
            last: Timestamp(u64_at(bytes, 24)?),
            whole: u32_at(bytes, 32)? != 0,
            crc: u32_at(bytes, 36)?,
            head_crc: u32_at(bytes, 40)?,
        };
        // What is larger was not written by us.
        let sane = head.count as usize <= MOST_ENTRIES
            && head.packed as usize <= 2 * MOST_ENTRIES * ENTRY
            && head.filter_len as usize <= MOST_ENTRIES * MOST_KEYS * BITS_EACH;
        sane.then_some(head)
    }

    /// Whether it and the filter are as they were written.
    pub(crate) fn is_whole(&self, header: &[u8], filter: &[u8]) -> bool {
        let Some(before) = header.get(..40) else { return false };
        let mut crc = crc32fast::Hasher::new();
        crc.update(before);
        crc.update(filter);
        filter.len() == self.filter_len as usize && crc.finalize() == self.head_crc
    }

    /// The entries, from their compressed form; `None`: it is damaged.
    pub(crate) fn entries(&self, packed: &[u8]) -> Option<Vec<Entry>> {
        if packed.len() != self.packed as usize || crc32fast::hash(packed) != self.crc {
            return None;
        }
        let size = self.count as usize * ENTRY;
        let bytes = zstd::bulk::decompress(packed, size).ok()?;
        bytes.chunks_exact(ENTRY).map(Entry::get).collect()
    }
}

/// A frame of these entries, in bytes.
pub(crate) fn frame(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY);
    entries.iter().for_each(|entry| entry.put(&mut bytes));
    let packed = zstd::bulk::compress(&bytes, 3)?;
    let filter = Filter::of(entries).0;
    let times = entries.iter().map(|entry| entry.time().0);
    let whole = entries.iter().any(|entry| entry.holding().is_none());
    let mut frame = Vec::with_capacity(HEADER + filter.len() + packed.len());
    frame.extend(MAGIC.to_le_bytes());
    frame.extend((entries.len() as u32).to_le_bytes());
    frame.extend((packed.len() as u32).to_le_bytes());
    frame.extend((filter.len() as u32).to_le_bytes());
    frame.extend(times.clone().min().unwrap_or(0).to_le_bytes());
    frame.extend(times.max().unwrap_or(0).to_le_bytes());
    frame.extend(u32::from(whole).to_le_bytes());
    frame.extend(crc32fast::hash(&packed).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&frame);
    crc.update(&filter);
    frame.extend(crc.finalize().to_le_bytes());
    frame.extend(filter);
    frame.extend(packed);
    Ok(frame)
}

/// Tells which external endpoints entries are about: all that they are, and few others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter(pub(crate) Vec<u8>);

impl Filter {
    fn of(entries: &[Entry]) -> Self {
        let mut keys = Vec::with_capacity(entries.len());
        for holding in entries.iter().filter_map(Entry::holding) {
            let (first, last) = (holding.ports.0 / PORTS, holding.ports.1 / PORTS);
            let of_ports = (first..=last).map(|part| key(holding.external, Some(part)));
            match usize::from(last.saturating_sub(first)) < MOST_KEYS {
                true => keys.extend(of_ports),
                false => keys.push(key(holding.external, None)),
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let len = (keys.len() * BITS_EACH).div_ceil(8).next_power_of_two().max(8);
        let mut filter = Self(vec![0; len]);
        for key in keys {
            for bit in filter.bits(key) {
                filter.0[bit / 8] |= 1 << (bit % 8);
            }
        }
        filter
    }

    /// Where a key's bits are.
    fn bits(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let (one, two, len) = (key, key >> 32 | 1, self.0.len() as u64 * 8);
        (0..HASHES).map(move |at| (one.wrapping_add(two.wrapping_mul(at)) % len) as usize)
    }

    /// Whether there may be something about an external endpoint.
    pub(crate) fn may_have(&self, external: Ipv4Addr, port: u16) -> bool {
        let has = |key| self.bits(key).all(|bit| self.0[bit / 8] & 1 << (bit % 8) != 0);
        !self.0.is_empty() && (has(key(external, Some(port / PORTS))) || has(key(external, None)))
    }
}

/// A number for a part of an address' ports, or for all.
fn key(external: Ipv4Addr, part: Option<u16>) -> u64 {
    let part = part.map_or(u64::from(u16::MAX), u64::from);
    let mut key = u64::from(external.to_bits()) << 16 | part;
    // So that numbers that differ in one bit have nothing in common (the finish of SplitMix64).
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::created;
    use natgate_engine::Event;
    use proptest::prelude::*;

    fn entries(count: u64) -> Vec<Entry> {
        (1..=count).filter_map(|time| Entry::of(&created(time), false)).collect()
    }

    fn read(frame: &[u8]) -> Option<(Head, Filter, Vec<Entry>)> {
        let head = Head::read(frame)?;
        let filter = frame.get(HEADER..HEADER + head.filter_len as usize)?;
        if !head.is_whole(frame, filter) {
            return None;
        }
        let packed = &frame[HEADER + filter.len()..];
        Some((head.clone(), Filter(filter.to_vec()), head.entries(packed)?))
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let mut all = entries(300);
        let subscriber = Ipv4Addr::new(10, 0, 0, 9);
        let external = Ipv4Addr::new(203, 0, 113, 9);
        for ports in [(2048, 2559), (0, 65_535)] {
            let block = BlockId { realm: 3, subscriber, external, ports };
            let event = Event { time: Timestamp(500), change: Change::BlockReleased(block) };
            all.extend(Entry::of(&Record::Event(event), false));
        }
        all.push(Entry::Start(Timestamp(501)));
        let gap = Gap { lost: u64::MAX, from: Timestamp(502), to: Timestamp(503) };
        all.push(Entry::Gap(gap));
        let (head, filter, read) = read(&frame(&all).unwrap()).expect("it is a frame");
        assert_eq!(read, all);
        assert_eq!((head.first, head.last, head.whole), (Timestamp(1), Timestamp(503), true));
        assert!(filter.may_have(external, 2300) && filter.may_have(external, 60_000));
        let others = (0..10_000_u32).filter(|at| filter.may_have(Ipv4Addr::from(*at), 1));
        assert!(others.count() < 300, "the filter tells little");
    }

    proptest! {
        #[test]
        fn damage_is_seen(at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<bool>()) {
            let whole = frame(&entries(40)).unwrap();
            let mut damaged = whole.clone();
            let at = at.index(whole.len());
            if cut {
                damaged.truncate(at);
            } else {
                damaged[at] ^= flip;
            }
            prop_assert!(read(&damaged).is_none());
        }

        #[test]
        fn nothing_that_comes_as_a_frame_breaks_anything(bytes: Vec<u8>, count: u32) {
            let mut bytes = [&MAGIC.to_le_bytes()[..], &count.to_le_bytes(), &bytes].concat();
            let _ = read(&bytes);
            bytes.resize(HEADER, 0);
            let _ = read(&bytes);
        }
    }
}
