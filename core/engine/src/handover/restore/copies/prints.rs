//! Fingerprints of what a record tells, of which both engines have the same.

use super::super::MappingParts;
use crate::TimeoutSet;
use crate::handover::MOST_NUMBERS;
use crate::handover::record::{
    Kind, MAPPING, MappingFields, SESSION, SESSION_ENDS, SESSION_INBOUND, SESSION_STATE, Writer,
    fingerprint, times_of,
};
use crate::protocols::has_ports;
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

/// [`essence`] of a record whose fields are known, without its parts: of a mapping with ports and
/// sessions alone, and not too many. `None`: it is another.
pub(super) fn essence_of_flow(fields: &MappingFields, record: &[u8]) -> Option<u64> {
    let is_sound = fields.number < MOST_NUMBERS && fields.internal.address != 0;
    let is_flow = fields.sessions > 0 && fields.holds == 0 && has_ports(fields.protocol);
    let sessions = usize::from(fields.sessions);
    let (sessions, names) = record.get(MAPPING..)?.split_at_checked(SESSION * sessions)?;
    let mut matter = Matter { bytes: [0; ROOM], len: 0 };
    matter.put(&[fields.protocol, fields.flags])?;
    for end in [fields.internal, fields.external] {
        matter.put(&end.address.to_le_bytes())?;
        matter.put(&end.port.to_le_bytes())?;
    }
    for session in sessions.as_chunks::<SESSION>().0 {
        matter.put(&session[..SESSION_ENDS])?;
        matter.put(&[session[SESSION_STATE], session[SESSION_INBOUND]])?;
    }
    matter.put(names)?;
    (is_sound && is_flow).then(|| fingerprint(&matter.bytes[..matter.len]))
}

/// What matters of a mapping, in few bytes.
struct Matter {
    bytes: [u8; ROOM],
    len: usize,
}

impl Matter {
    /// `None`: there is no room.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }
}
