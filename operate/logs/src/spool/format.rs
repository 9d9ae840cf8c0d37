//! Byte formats of segments and frames. Numbers are little-endian.
//!
//! | bytes of a segment | mean |
//! |---|---|
//! | 0 | [`SEGMENT`] |
//! | 8, 16 | numbers of the run and of the segment in the run |
//! | 24 | bytes of the realms' names and of the configuration |
//! | 28 | CRC-32 of the 28 bytes before, the names and the configuration |
//! | 32 | the names, a JSON array; a newline and the configuration, if recorded; then frames |
//!
//! | bytes of a frame | mean |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 4 | how many entries, of 40 bytes each |
//! | 8 | bytes of the compressed entries |
//! | 12 | bytes of the filter |
//! | 16, 24 | times of the first and the last entry |
//! | 32 | number of the frame in its run; no number is left out |
//! | 40 | 1 if an entry is about everything (a start, a gap), else 0 |
//! | 44 | CRC-32 of the compressed entries |
//! | 48 | CRC-32 of the filter |
//! | 52 | CRC-32 of the 52 bytes before |
//! | 56 | the filter, then the compressed entries (Zstandard) |
//!
//! An entry about a host of NAT64 has another one behind it, with the host's address.
//!
//! Version 1 is read, too. Its segments have no numbers and no checksum; its frames have a header
//! of 44 bytes without a number, whose last checksum covers the header and the filter.

use super::filter::{self, Filter};
use crate::record::{ClockSet, Gap, Host, Record};
use natgate_engine::{BlockId, Change, Endpoint, MappingId, Timestamp};
use natgate_gateway::ipv6::HostName;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Beginning of a segment; the last byte is the version.
pub(crate) const SEGMENT: [u8; 8] = *b"NATGATE\x02";
const SEGMENT_1: [u8; 8] = *b"NATGATE\x01";

/// Beginning of a frame.
const MAGIC: u32 = 0x4d52_464e;

/// Bytes of a segment before its realms' names.
const SEGMENT_HEADER: usize = 32;
const SEGMENT_HEADER_1: usize = 12;

/// Bytes of a frame before its filter.
const HEADER: usize = 56;
const HEADER_1: usize = 44;

/// Most bytes of a header of a segment or a frame.
pub(crate) const MOST_HEADER: usize = 64;

/// Most bytes of the realms' names and the configuration in a segment's header.
const MOST_NAMES: usize = 4 << 20;

/// Most bytes of a configuration that is recorded.
pub(crate) const MOST_IN_FORCE: usize = 1 << 20;

/// Bytes of an entry.
const ENTRY: usize = 40;

/// First byte of the entry behind a holding of a host of NAT64.
const HOST: u8 = 10;

/// Most entries of a frame.
pub(crate) const MOST_ENTRIES: usize = 4096;

/// An entry about an external endpoint or about the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A subscriber has the holding from this time on.
    Begins(Timestamp, Holding),
    /// A subscriber has the holding no longer.
    Ends(Timestamp, Holding),
    /// The gateway started: no endpoint has a holder. The first entry of a run.
    Start(Timestamp),
    /// Events are missing.
    Gap(Gap),
    /// Existing mappings continue. The first entry of a run, which continues the run before if that
    /// was closed.
    Continues(Timestamp),
    /// Existing mappings continue, and the spool lacks the time before. The first entry of a run.
    Resumes(Timestamp),
    /// All until this time was written, and nothing follows. The last entry of a run.
    Closed(Timestamp),
    /// The clock was set. The first entry of a segment.
    ClockSet(ClockSet),
    /// The configuration that the segment's header has came into force. The first entry of a
    /// segment.
    InForce(CameIntoForce),
}

/// Change of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CameIntoForce {
    /// Time until which all earlier entries are written.
    pub(crate) time: Timestamp,
    /// The former configuration was in force until this time.
    pub(crate) from: Timestamp,
    /// The new configuration is in force from this time on.
    pub(crate) until: Timestamp,
}

/// A holding: an external endpoint or block, and the subscriber that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    /// IP protocol; `None` for all protocols.
    pub(crate) protocol: Option<u8>,
    pub(crate) realm: u16,
    /// Address of the host, or number of a host of NAT64.
    pub(crate) subscriber: Ipv4Addr,
    /// The host of NAT64.
    pub(crate) host: Option<HostName>,
    /// Internal port, for a mapping or a session.
    pub(crate) internal_port: Option<u16>,
    pub(crate) external: Ipv4Addr,
    /// First and last port.
    pub(crate) ports: (u16, u16),
    /// Remote endpoint of a session; address 0 if there is none, or it was not wanted.
    pub(crate) remote: Endpoint,
    /// True if the holding is a session.
    pub(crate) is_session: bool,
}

impl Entry {
    /// Entry of a record; reached limits have none. `host` is the host of NAT64 that the record is
    /// about.
    pub(crate) fn of(record: &Record, host: Option<&Host>, remotes: bool) -> Option<Self> {
        let entry = Self::without_host(record, remotes)?;
        let host = host.map(Host::name);
        Some(match entry {
            Self::Begins(time, holding) => Self::Begins(time, Holding { host, ..holding }),
            Self::Ends(time, holding) => Self::Ends(time, Holding { host, ..holding }),
            other => other,
        })
    }

    /// Entries of [`ENTRY`] bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        1 + usize::from(self.holding().is_some_and(|holding| holding.host.is_some()))
    }

    fn without_host(record: &Record, remotes: bool) -> Option<Self> {
        let event = match record {
            Record::Event(event) => event,
            Record::Gap(gap) => return Some(Self::Gap(*gap)),
            Record::ClockSet(set) => return Some(Self::ClockSet(*set)),
            Record::Host(_) | Record::Summary(_) | Record::Expectation(_) | Record::Slice(_) => {
                return None;
            }
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
            Self::Begins(time, _)
            | Self::Ends(time, _)
            | Self::Start(time)
            | Self::Continues(time)
            | Self::Resumes(time)
            | Self::Closed(time) => *time,
            Self::Gap(gap) => gap.to,
            Self::ClockSet(set) => set.to,
            Self::InForce(change) => change.time,
        }
    }

    pub(super) fn holding(&self) -> Option<&Holding> {
        match self {
            Self::Begins(_, holding) | Self::Ends(_, holding) => Some(holding),
            _ => None,
        }
    }

    /// True if the entry is about all endpoints.
    pub(crate) fn is_whole(&self) -> bool {
        self.holding().is_none()
    }

    fn put(&self, into: &mut Vec<u8>) {
        let start = into.len();
        let tag = match self {
            Self::Begins(..) => 1,
            Self::Ends(..) => 2,
            Self::Start(_) => 3,
            Self::Gap(_) => 4,
            Self::Continues(_) => 5,
            Self::Resumes(_) => 6,
            Self::Closed(_) => 7,
            Self::ClockSet(_) => 8,
            Self::InForce(_) => 9,
        };
        into.push(tag);
        into.extend(self.time().0.to_le_bytes());
        match self {
            Self::Begins(_, holding) | Self::Ends(_, holding) => holding.put(into),
            Self::Start(_) | Self::Continues(_) | Self::Resumes(_) | Self::Closed(_) => {}
            Self::ClockSet(set) => into.extend(set.from.0.to_le_bytes()),
            Self::InForce(change) => {
                into.extend(change.from.0.to_le_bytes());
                into.extend(change.until.0.to_le_bytes());
            }
            Self::Gap(gap) => {
                into.extend(gap.from.0.to_le_bytes());
                into.extend(gap.lost.to_le_bytes());
            }
        }
        into.resize(start + ENTRY, 0);
        if let Some(host) = self.holding().and_then(|holding| holding.host) {
            put_host(&host, into);
        }
    }

    /// Reads entries; `None` if one is damaged.
    fn all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut entries = Vec::with_capacity(bytes.len() / ENTRY);
        let mut parts = bytes.chunks_exact(ENTRY);
        while let Some(part) = parts.next() {
            let mut entry = Self::get(part)?;
            if let Self::Begins(_, holding) | Self::Ends(_, holding) = &mut entry
                && part[9] & HAS_HOST != 0
            {
                holding.host = Some(get_host(parts.next()?)?);
            }
            entries.push(entry);
        }
        Some(entries)
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
            5 => Self::Continues(time),
            6 => Self::Resumes(time),
            7 => Self::Closed(time),
            8 => Self::ClockSet(ClockSet { from: Timestamp(u64_at(bytes, 9)?), to: time }),
            9 => {
                let (from, until) = (Timestamp(u64_at(bytes, 9)?), Timestamp(u64_at(bytes, 17)?));
                Self::InForce(CameIntoForce { time, from, until })
            }
            _ => return None,
        })
    }
}

/// Flag of a holding with the entry of a host behind it.
const HAS_HOST: u8 = 8;

fn put_host(host: &HostName, into: &mut Vec<u8>) {
    let start = into.len();
    into.extend([HOST, u8::from(host.address.is_some()), host.len]);
    into.extend(host.address.unwrap_or(host.prefix).octets());
    into.extend(host.prefix.octets());
    into.resize(start + ENTRY, 0);
}

fn get_host(bytes: &[u8]) -> Option<HostName> {
    let [HOST, is_host, len @ ..=128, ..] = bytes else { return None };
    let address = Ipv6Addr::from(array::<16>(bytes, 3)?);
    let prefix = Ipv6Addr::from(array::<16>(bytes, 19)?);
    Some(HostName { address: (*is_host != 0).then_some(address), prefix, len: *len })
}

impl Holding {
    fn of_mapping(id: &MappingId) -> Self {
        Self {
            protocol: Some(id.protocol),
            realm: id.realm,
            subscriber: id.internal.address,
            host: None,
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
            host: None,
            internal_port: None,
            external: id.external,
            ports: id.ports,
            remote: Endpoint::new(0, 0),
            is_session: false,
        }
    }

    /// True if the holding includes an external endpoint.
    pub(crate) fn is_of(&self, external: Ipv4Addr, port: u16, protocol: Option<u8>) -> bool {
        self.external == external
            && (self.ports.0..=self.ports.1).contains(&port)
            && (self.protocol.is_none() || protocol.is_none() || self.protocol == protocol)
    }

    fn put(&self, into: &mut Vec<u8>) {
        let flags = u8::from(self.protocol.is_some())
            | u8::from(self.internal_port.is_some()) << 1
            | u8::from(self.is_session) << 2
            | if self.host.is_some() { HAS_HOST } else { 0 };
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
            host: None,
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

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn address_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    array::<4>(bytes, at).map(Ipv4Addr::from)
}

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) version: Version,
    /// Bytes of the header before the realms' names.
    pub(crate) size: usize,
    /// Bytes of the realms' names and of the configuration.
    pub(crate) names: usize,
    crc: u32,
}

/// Version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Reason why bytes are no segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSegment {
    /// The header is cut off.
    Short,
    /// The file is no segment.
    Foreign,
}

impl SegmentHead {
    /// Reads the first bytes of a file, as many as it has up to [`MOST_HEADER`].
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, NoSegment> {
        let magic = &bytes[..bytes.len().min(SEGMENT.len())];
        let (version, size) = match () {
            () if magic == SEGMENT => (Version::Two, SEGMENT_HEADER),
            () if magic == SEGMENT_1 => (Version::One, SEGMENT_HEADER_1),
            // A crash may leave the beginning of a header.
            () if SEGMENT.starts_with(magic) => return Err(NoSegment::Short),
            () => return Err(NoSegment::Foreign),
        };
        let at = size - if version == Version::One { 4 } else { 8 };
        let (names, crc) = (u32_at(bytes, at), u32_at(bytes, size - 4));
        let (Some(names), Some(crc)) = (names, crc) else { return Err(NoSegment::Short) };
        if bytes.len() < size || names as usize > MOST_NAMES {
            return Err(NoSegment::Short);
        }
        Ok(Self { version, size, names: names as usize, crc })
    }

    /// True if the checksum of the header and the realms' names is right.
    pub(crate) fn is_whole(&self, header: &[u8], names: &[u8]) -> bool {
        let Some(before) = header.get(..self.size - 4) else { return false };
        let mut crc = crc32fast::Hasher::new();
        crc.update(before);
        crc.update(names);
        self.version == Version::One || crc.finalize() == self.crc
    }
}

/// Header of a new segment. `in_force` is the configuration in force, or nothing.
pub(crate) fn segment_header(run: u64, number: u64, realms: &[u8], in_force: &[u8]) -> Vec<u8> {
    let names = match in_force {
        [] => realms.to_vec(),
        packed => [realms, b"\n", packed].concat(),
    };
    let mut bytes = SEGMENT.to_vec();
    bytes.extend(run.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend((names.len() as u32).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes);
    crc.update(&names);
    bytes.extend(crc.finalize().to_le_bytes());
    bytes.extend(names);
    bytes
}

/// Header of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    version: Version,
    pub(crate) count: u32,
    pub(crate) packed: u32,
    pub(crate) filter_len: u32,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    /// Number of the frame in the run; version 1 has none.
    pub(crate) number: Option<u64>,
    /// True if an entry is about all endpoints.
    pub(crate) whole: bool,
    crc: u32,
    /// Checksum of the filter; in version 1 of the header and the filter.
    filter_crc: u32,
    /// Checksum of the bytes before the filter in version 1.
    before: u32,
}

impl Head {
    /// Bytes of a frame before its filter.
    pub(crate) fn size(version: Version) -> usize {
        match version {
            Version::One => HEADER_1,
            Version::Two => HEADER,
        }
    }

    /// Reads the header of a frame; `None` if it is none.
    pub(crate) fn read(version: Version, bytes: &[u8]) -> Option<Self> {
        if u32_at(bytes, 0)? != MAGIC {
            return None;
        }
        let (number, flags) = match version {
            Version::One => (None, 32),
            Version::Two => (Some(u64_at(bytes, 32)?), 40),
        };
        let end = Self::size(version) - 4;
        let before = crc32fast::hash(bytes.get(..end)?);
        let last_crc = u32_at(bytes, end)?;
        let filter_crc = match version {
            Version::One => last_crc,
            Version::Two if before != last_crc => return None,
            Version::Two => u32_at(bytes, 48)?,
        };
        let head = Self {
            version,
            count: u32_at(bytes, 4)?,
            packed: u32_at(bytes, 8)?,
            filter_len: u32_at(bytes, 12)?,
            first: Timestamp(u64_at(bytes, 16)?),
            last: Timestamp(u64_at(bytes, 24)?),
            number,
            whole: u32_at(bytes, flags)? != 0,
            crc: u32_at(bytes, flags + 4)?,
            filter_crc,
            before,
        };
        // natgate never writes larger numbers.
        let sane = head.count as usize <= MOST_ENTRIES
            && head.packed as usize <= 2 * MOST_ENTRIES * ENTRY
            && head.filter_len as usize <= MOST_ENTRIES * filter::MOST_BITS;
        sane.then_some(head)
    }

    /// True if the filter's checksum is right; in version 1 it covers the header, too.
    pub(crate) fn is_whole(&self, filter: &[u8]) -> bool {
        let mut crc = match self.version {
            Version::One => crc32fast::Hasher::new_with_initial(self.before),
            Version::Two => crc32fast::Hasher::new(),
        };
        crc.update(filter);
        filter.len() == self.filter_len as usize && crc.finalize() == self.filter_crc
    }

    /// Decompresses the entries; `None` if they are damaged.
    pub(crate) fn entries(&self, packed: &[u8]) -> Option<Vec<Entry>> {
        if packed.len() != self.packed as usize || crc32fast::hash(packed) != self.crc {
            return None;
        }
        let size = self.count as usize * ENTRY;
        let bytes = zstd::bulk::decompress(packed, size).ok()?;
        Entry::all(&bytes)
    }
}

/// Encodes a frame of these entries; `number` is its number in the run.
pub(crate) fn frame(entries: &[Entry], number: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY);
    entries.iter().for_each(|entry| entry.put(&mut bytes));
    let packed = zstd::bulk::compress(&bytes, 3)?;
    let filter = Filter::of(entries).0;
    let times = entries.iter().map(|entry| entry.time().0);
    let whole = entries.iter().any(Entry::is_whole);
    let mut frame = Vec::with_capacity(HEADER + filter.len() + packed.len());
    frame.extend(MAGIC.to_le_bytes());
    frame.extend(((bytes.len() / ENTRY) as u32).to_le_bytes());
    frame.extend((packed.len() as u32).to_le_bytes());
    frame.extend((filter.len() as u32).to_le_bytes());
    frame.extend(times.clone().min().unwrap_or(0).to_le_bytes());
    frame.extend(times.max().unwrap_or(0).to_le_bytes());
    frame.extend(number.to_le_bytes());
    frame.extend(u32::from(whole).to_le_bytes());
    frame.extend(crc32fast::hash(&packed).to_le_bytes());
    frame.extend(crc32fast::hash(&filter).to_le_bytes());
    frame.extend(crc32fast::hash(&frame).to_le_bytes());
    frame.extend(filter);
    frame.extend(packed);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::created;
    use natgate_engine::Event;
    use proptest::prelude::*;

    fn entries(count: u64) -> Vec<Entry> {
        (1..=count).filter_map(|time| Entry::of(&created(time), None, false)).collect()
    }

    fn read(frame: &[u8]) -> Option<(Head, Filter, Vec<Entry>)> {
        let head = Head::read(Version::Two, frame)?;
        let filter = frame.get(HEADER..HEADER + head.filter_len as usize)?;
        if !head.is_whole(filter) {
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
            all.extend(Entry::of(&Record::Event(event), None, false));
        }
        for address in [Some("2001:db8:1:2::3"), None] {
            let address = address.map(|text| text.parse().unwrap());
            let name = HostName { address, prefix: "2001:db8:1::".parse().unwrap(), len: 48 };
            let host = Host::new(Timestamp(500), &name);
            let entry = Entry::of(&created(500), Some(&host), true).expect("a mapping");
            assert_eq!(entry.holding().and_then(|holding| holding.host), Some(name));
            all.push(entry);
        }
        all.push(Entry::Start(Timestamp(501)));
        let gap = Gap { lost: u64::MAX, from: Timestamp(502), to: Timestamp(503) };
        all.push(Entry::Gap(gap));
        let (from, to) = (Timestamp(500), Timestamp(505));
        all.push(Entry::ClockSet(ClockSet { from, to }));
        all.extend([Entry::Continues(to), Entry::Resumes(to), Entry::Closed(to)]);
        let until = Timestamp(504);
        all.push(Entry::InForce(CameIntoForce { time: to, from, until }));
        let (head, filter, read) = read(&frame(&all, 7).unwrap()).expect("it is a frame");
        assert_eq!(read, all);
        assert_eq!((head.first, head.last, head.whole), (Timestamp(1), Timestamp(505), true));
        assert_eq!(head.number, Some(7));
        assert!(filter.may_have(external, 2300) && filter.may_have(external, 60_000));
        let others = (0..10_000_u32).filter(|at| filter.may_have(Ipv4Addr::from(*at), 1));
        assert!(others.count() < 300, "the filter tells little");
    }

    proptest! {
        #[test]
        fn damage_is_seen(
            at in any::<prop::sample::Index>(),
            flip in 1..=255_u8,
            cut in any::<bool>(),
        ) {
            let whole = frame(&entries(40), 0).unwrap();
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
