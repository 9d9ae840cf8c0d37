//! The format of records: a kind, a length, and consecutive fields.

use crate::endpoint::AddressPort;
use crate::explicit::{Filters, Nonce};
use crate::host::Host;
use crate::time::nanos;
use crate::{RemoteFilter, TimeoutSet};
use alloc::vec::Vec;

/// Version of the format, and of what the gateway hands over beside the records. A reader refuses
/// every other version.
pub const VERSION: u16 = 5;

/// Subject of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Origin of the records that follow: times, names of realms, sets of timeouts, a key. It is
    /// the first record.
    Begin = 1,
    /// Start of a pass: the present time, and the time until which all due work has been done.
    Pass,
    /// A mapping with all its sessions and holds.
    Mapping,
    /// Removal of the mapping with a number.
    Gone,
    /// A port in hold-down, and the time of its release.
    Held,
    /// The external address that a subscriber is paired with.
    Pair,
    /// A block of ports that a subscriber has.
    Block,
    /// State of an external address's sequence of identifications.
    Sequence,
    /// The tables that all sequences use.
    Rounds,
    /// A counter.
    Counter,
    /// End of the records.
    End,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Begin,
        Self::Pass,
        Self::Mapping,
        Self::Gone,
        Self::Held,
        Self::Pair,
        Self::Block,
        Self::Sequence,
        Self::Rounds,
        Self::Counter,
        Self::End,
    ];

    pub(super) fn new(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Bytes before a record's fields: its kind, and the number of bytes that follow.
pub(super) const HEAD: usize = 5;

/// Bytes of a mapping's own fields, bytes of each session, and most bytes of each hold.
pub(super) const MAPPING: usize = 39;
pub(super) const SESSION: usize = 44;
pub(super) const HOLD: usize = 28 + 7 * RemoteFilter::MOST;

/// Bytes of a session's two remote endpoints, which come first, and the places of its state and its
/// direction.
pub(super) const SESSION_ENDS: usize = 12;
pub(super) const SESSION_STATE: usize = 41;
pub(super) const SESSION_INBOUND: usize = 43;

/// Most bytes of one record: a mapping with the largest number of sessions and holds.
pub(super) const LONGEST: usize = HEAD + MAPPING + (SESSION + HOLD) * u16::MAX as usize;

/// Writes a record behind others. The length is filled in at the end.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(out: &'a mut Vec<u8>, kind: Kind) -> Self {
        let start = out.len();
        out.extend_from_slice(&[kind as u8, 0, 0, 0, 0]);
        Self { out, start }
    }

    /// Writes fields alone, without a kind and a length. [`Writer::end`] is not for these.
    pub(super) fn unframed(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn host(&mut self, host: Host) -> &mut Self {
        self.u16(host.realm()).u32(host.address())
    }

    pub(super) fn endpoint(&mut self, AddressPort { address, port }: AddressPort) -> &mut Self {
        self.u32(address).u16(port)
    }

    /// Ends the record and returns its fields.
    pub(super) fn end(&mut self) -> &[u8] {
        let fields = self.start + HEAD;
        let len = (self.out.len() - fields) as u32;
        self.out[self.start + 1..fields].copy_from_slice(&len.to_le_bytes());
        &self.out[fields..]
    }
}

/// Reads the fields of a record. `None`: the record ends too early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that are left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next of several records: the number of its kind, and its fields.
    pub(super) fn record(&mut self) -> Option<(u8, &'a [u8])> {
        let kind = self.u8()?;
        let len = self.u32()?;
        Some((kind, self.take(len as usize)?))
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn endpoint(&mut self) -> Option<AddressPort> {
        Some(AddressPort::new(self.u32()?, self.u16()?))
    }
}

/// A mapping's own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappingFields {
    /// Identifies the mapping within its engine as long as the mapping lives.
    pub(super) number: u32,
    pub(super) protocol: u8,
    /// [`STATIC`], [`PERMANENT`], [`OVERLOADS`].
    pub(super) flags: u8,
    /// The number of the mapping's realm, by the order of names in the first record.
    pub(super) realm: u16,
    pub(super) internal: AddressPort,
    pub(super) external: AddressPort,
    /// The number of the mapping's set of timeouts, by the order in the first record.
    pub(super) timeouts: u8,
    pub(super) created: u64,
    /// The remote endpoint that is part of the mapping's key, as far as the key has one.
    pub(super) remote: AddressPort,
    pub(super) sessions: u16,
    pub(super) holds: u16,
}

pub(super) const STATIC: u8 = 1;
pub(super) const PERMANENT: u8 = 2;
pub(super) const OVERLOADS: u8 = 4;

impl MappingFields {
    pub(super) fn write(&self, to: &mut Writer<'_>) {
        let mut bytes = [0; MAPPING];
        let mut at = Fields(&mut bytes);
        at.put(self.number.to_le_bytes());
        at.put([self.protocol, self.flags]);
        at.put(self.realm.to_le_bytes());
        at.endpoint(self.internal);
        at.endpoint(self.external);
        at.put([self.timeouts]);
        at.put(self.created.to_le_bytes());
        at.endpoint(self.remote);
        at.put(self.sessions.to_le_bytes());
        at.put(self.holds.to_le_bytes());
        debug_assert!(at.0.is_empty());
        to.put(&bytes);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            number: from.u32()?,
            protocol: from.u8()?,
            flags: from.u8()?,
            realm: from.u16()?,
            internal: from.endpoint()?,
            external: from.endpoint()?,
            timeouts: from.u8()?,
            created: from.u64()?,
            remote: from.endpoint()?,
            sessions: from.u16()?,
            holds: from.u16()?,
        })
    }

    /// True for a static mapping of a port, which is permanent.
    pub(super) fn is_fixed(&self) -> bool {
        self.flags & (PERMANENT | STATIC) == PERMANENT | STATIC
    }
}

/// A session's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionFields {
    pub(super) remote: AddressPort,
    /// The remote endpoint as seen from inside.
    pub(super) seen: AddressPort,
    pub(super) expires: u64,
    pub(super) packets_out: u32,
    pub(super) packets_in: u32,
    /// State of a TCP connection: the next sequence numbers that inside and outside expect, their
    /// windows, and the shifts of the windows (low half: inside; 15: unknown).
    pub(super) expects: [u32; 2],
    pub(super) window: [u16; 2],
    pub(super) scales: u8,
    /// 1 open, 2 opening from inside, 3 opening from outside, 4 established, 5 FIN from inside, 6
    /// FIN from outside, 7 closed, 8 transitory.
    pub(super) state: u8,
    /// A bit each: the sequence number that inside expects is known; that outside expects; the
    /// window of inside is not scaled; of outside.
    pub(super) known: u8,
    /// 1: a packet from outside made it.
    pub(super) inbound: u8,
}

impl SessionFields {
    pub(super) fn write(&self, to: &mut Writer<'_>) {
        let mut bytes = [0; SESSION];
        let mut at = Fields(&mut bytes);
        at.endpoint(self.remote);
        at.endpoint(self.seen);
        at.put(self.expires.to_le_bytes());
        at.put(self.packets_out.to_le_bytes());
        at.put(self.packets_in.to_le_bytes());
        self.expects.iter().for_each(|expects| at.put(expects.to_le_bytes()));
        self.window.iter().for_each(|window| at.put(window.to_le_bytes()));
        at.put([self.scales, self.state, self.known, self.inbound]);
        debug_assert!(at.0.is_empty());
        to.put(&bytes);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            remote: from.endpoint()?,
            seen: from.endpoint()?,
            expires: from.u64()?,
            packets_out: from.u32()?,
            packets_in: from.u32()?,
            expects: [from.u32()?, from.u32()?],
            window: [from.u16()?, from.u16()?],
            scales: from.u8()?,
            state: from.u8()?,
            known: from.u8()?,
            inbound: from.u8()?,
        })
    }
}

/// A hold's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldFields {
    /// The session that the hold keeps; `None`: the mapping, for all remote endpoints.
    pub(super) remote: Option<AddressPort>,
    pub(super) nonce: Nonce,
    pub(super) until: u64,
    pub(super) filters: Filters,
}

impl HoldFields {
    pub(super) fn write(&self, to: &mut Writer<'_>) {
        to.u8(u8::from(self.remote.is_some())).endpoint(self.remote.unwrap_or_default());
        let filters = self.filters.as_slice();
        to.put(&self.nonce).u64(self.until).u8(filters.len() as u8);
        for filter in filters {
            to.u32(filter.address).u8(filter.prefix_len).u16(filter.port);
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (has_remote, remote) = (from.u8()? != 0, from.endpoint()?);
        let (nonce, until, count) = (from.array()?, from.u64()?, from.u8()?);
        let mut filters = Filters::default();
        for _ in 0..count {
            let (address, prefix_len, port) = (from.u32()?, from.u8()?, from.u16()?);
            filters.add(RemoteFilter { address, prefix_len, port }).then_some(())?;
        }
        Some(Self { remote: has_remote.then_some(remote), nonce, until, filters })
    }
}

/// Bytes for fields of a fixed length.
struct Fields<'a>(&'a mut [u8]);

impl Fields<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let (field, rest) = core::mem::take(&mut self.0).split_at_mut(N);
        field.copy_from_slice(&bytes);
        self.0 = rest;
    }

    fn endpoint(&mut self, AddressPort { address, port }: AddressPort) {
        self.put(address.to_le_bytes());
        self.put(port.to_le_bytes());
    }
}

/// A hash of a record that is never 0. Two different records share it with a probability of 2^-64.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |sum: u64, word: u64| {
        let product = u128::from(sum ^ word ^ SPREAD) * u128::from(SPREAD | 1 << 63);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let (words, rest) = bytes.as_chunks();
    let sum =
        words.iter().fold(bytes.len() as u64, |sum, word| fold(sum, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(sum, u64::from_le_bytes(last)).max(1)
}

/// The times of a set of timeouts in order, nanoseconds. All ones: the set does not give this time.
pub(super) fn times_of(set: &TimeoutSet) -> [u64; 6] {
    let TimeoutSet { udp, tcp_established, tcp_opening, tcp_closing, icmp, other } = *set;
    [udp, tcp_established, tcp_opening, tcp_closing, icmp, other]
        .map(|time| time.map_or(u64::MAX, nanos))
}
