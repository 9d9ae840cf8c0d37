//! Fingerprints of what a record tells, of which both engines have the same.

use super::super::MappingParts;
use crate::TimeoutSet;
use crate::handover::record::{Kind, MappingFields, Writer, fingerprint, times_of};
use alloc::vec::Vec;

/// Bytes of what matters of a mapping with a few sessions, about.
const ROOM: usize = 128;

/// Fingerprint of a set of timeouts.
pub(super) fn print_of(set: &TimeoutSet) -> u64 {
    let mut bytes = [0; 48];
    let (words, _) = bytes.as_chunks_mut();
    words.iter_mut().zip(times_of(set)).for_each(|(word, time)| *word = time.to_le_bytes());
    fingerprint(&bytes)
}

/// Fingerprint of what matters of a mapping, the ends of requests included. `names` has its set of
/// timeouts and its realm.
pub(super) fn essence(fields: &MappingFields, parts: &MappingParts, names: &[u8]) -> u64 {
    // Room for most mappings, so that the memory does not grow by and by.
    let mut bytes = Vec::with_capacity(ROOM);
    let mut to = Writer::begin(&mut bytes, Kind::Mapping);
    to.u8(fields.protocol).u8(fields.flags);
    to.endpoint(fields.internal).endpoint(fields.external);
    for session in &parts.sessions {
        to.endpoint(session.remote).endpoint(session.seen).u8(session.state).u8(session.inbound);
    }
    for hold in &parts.holds {
        to.u8(u8::from(hold.remote.is_some())).endpoint(hold.remote.unwrap_or_default());
        to.put(&hold.nonce).u64(hold.until);
        for filter in hold.filters.as_slice() {
            to.u32(filter.address).u8(filter.prefix_len).u16(filter.port);
        }
    }
    fingerprint(to.put(names).end())
}
