//! Copies of another engine's mappings in an engine that runs: single records, in any order of
//! keys, from any number of engines.
//!
//! The writer gives the record of one mapping at a time ([`Engine::copy_record`]). The reader
//! makes, renews or ends the copy of a mapping. Times are moved to the reader's scale by whole
//! ticks. A copy never displaces a mapping of the engine itself, and a copy that has ended
//! meanwhile leaves nothing that a later record could end in its place.

use super::{ABSENT, LEFT_OUT, MappingParts, Restoration, RestoreError};
use crate::Change;
use crate::endpoint::{AddressPort, External};
use crate::engine::Engine;
use crate::handover::record::{HEAD, Kind, MappingFields, Reader, Writer, fingerprint};
use crate::host::Host;
use crate::protocols::has_ports;
use crate::time::{TICK, nanos};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Copies of the mappings of one other engine.
#[derive(Debug)]
pub struct Copies {
    restoration: Restoration,
    /// For each key the copy that it has, so that another mapping in its slot is told apart.
    made: Vec<Option<Made>>,
    /// Difference between the scales of the two engines, nanoseconds: whole ticks.
    shift: i128,
    /// The origin without its times.
    origin: Vec<u8>,
}

/// Bytes of the times at the beginning of an origin.
const TIMES: usize = 24;

/// Identity of a copy: protocol, external endpoint, tick of its creation.
type Made = (u8, AddressPort, u32);

/// Ends of a mapping in a record, with which a caller finds the engine for the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnds {
    /// Protocol number.
    pub protocol: u8,
    /// Internal address and port. The realm is the caller's knowledge.
    pub internal: (Ipv4Addr, u16),
    /// External address and port.
    pub external: (Ipv4Addr, u16),
}

impl CopyEnds {
    /// Reads the ends from a record of [`Engine::copy_record`]. `None`: the record is damaged.
    pub fn read(record: &[u8]) -> Option<Self> {
        let fields = MappingFields::read(&mut Reader::new(record))?;
        let ends = |end: AddressPort| (Ipv4Addr::from_bits(end.address), end.port);
        let (internal, external) = (ends(fields.internal), ends(fields.external));
        Some(Self { protocol: fields.protocol, internal, external })
    }
}

impl Engine {
    /// Appends the origin of this engine's records: scale of time, realms, sets of timeouts. A
    /// reader needs it first, and again after a reload.
    pub fn copy_origin(&self, out: &mut Vec<u8>) {
        self.export_beginning(out);
    }

    /// All keys are smaller.
    pub fn copy_extent(&self) -> u32 {
        self.table.extent()
    }

    /// Appends the record of the mapping with a key, its slot. Returns the fingerprint of what
    /// matters: endpoints, states and requests with their ends, without counters, sequence numbers
    /// and other deadlines.
    /// `None`: there is no such mapping.
    pub fn copy_record(&self, key: u32, out: &mut Vec<u8>) -> Option<u64> {
        if key >= self.table.extent() || !self.table.is_live(key) {
            return None;
        }
        let start = out.len();
        self.write_mapping(key, out).end();
        // The frame of the hand-over is not needed.
        out.drain(start..start + HEAD);
        let mut parts = MappingParts::default();
        let fields = parts.read(&mut Reader::new(&out[start..])).ok()?;
        Some(essence(&fields, &parts))
    }

    /// Begins to copy another engine's mappings, from its origin. This engine runs.
    ///
    /// # Errors
    /// [`RestoreError`]: the origin is damaged, or the mapping behavior is another.
    pub fn begin_copies(&mut self, origin: &[u8]) -> Result<Copies, RestoreError> {
        let damaged = RestoreError::Damaged("the first record is wrong");
        let mut reader = Reader::new(origin);
        let (kind, fields) = reader.record().ok_or(damaged)?;
        if Kind::new(kind) != Some(Kind::Begin) || !reader.is_empty() {
            return Err(damaged);
        }
        let mut times = Reader::new(fields);
        let base = times.u64().ok_or(damaged)?;
        let now = times.u64().and_then(|_| times.u64()).ok_or(damaged)?;
        let origin = fields[TIMES..].to_vec();
        let mut restoration = Restoration::new(self);
        restoration.is_running = true;
        self.restore_beginning(&mut restoration, &mut Reader::new(fields))?;
        restoration.has_begun = true;
        // Ticks of both scales coincide after the move, so that equal times stay equal.
        let tick = i128::from(nanos(TICK));
        let between = i128::from(self.time_of(self.present_tick())) - i128::from(base);
        let passed = i128::from(now.saturating_sub(base)) / tick * tick;
        Ok(Copies { restoration, made: Vec::new(), shift: between - passed, origin })
    }

    /// Goes on with the copies after one of the engines has other settings; `origin` is the present
    /// one. The copies stay.
    ///
    /// # Errors
    /// As [`Engine::begin_copies`]; nothing has changed.
    pub fn renew_copies(&mut self, copies: &mut Copies, origin: &[u8]) -> Result<(), RestoreError> {
        let Copies { restoration: new, origin, .. } = self.begin_copies(origin)?;
        let old = &mut copies.restoration;
        (old.realms, old.sets, old.permanent) = (new.realms, new.sets, new.permanent);
        copies.origin = origin;
        Ok(())
    }

    /// Makes or renews the copy of a mapping by the record of its key. Returns the record's
    /// fingerprint. `None`: the configuration has no place for it, or a mapping of this engine has
    /// its port; then the key has no copy.
    ///
    /// # Errors
    /// [`RestoreError::Damaged`]: nothing has changed.
    pub fn copy(
        &mut self,
        copies: &mut Copies,
        key: u32,
        record: &[u8],
    ) -> Result<Option<u64>, RestoreError> {
        let mut parts = MappingParts::default();
        let mut from = Reader::new(record);
        let mut fields = parts.read(&mut from).map_err(RestoreError::Damaged)?;
        if !from.is_empty() || !parts.are_valid() || fields.number != key {
            return Err(RestoreError::Damaged("a mapping that cannot be"));
        }
        let essence = essence(&fields, &parts);
        copies.move_times(&mut fields, &mut parts);
        self.forget_ended(copies, fields.number);
        self.forget_owner(copies, &fields);
        self.adopt(copies, &mut fields);
        copies.restoration.tick = self.tick;
        let restoration = &mut copies.restoration;
        if !self.place_restored(restoration, &fields, &parts)? {
            self.drop_restored(restoration, fields.number);
            return Ok(None);
        }
        let slot = restoration.slot(fields.number);
        if slot >= LEFT_OUT {
            restoration.put(fields.number, ABSENT);
            return Ok(None);
        }
        let created = self.created(self.table.mapping(slot));
        copies.note(fields.number, Some((fields.protocol, fields.external, created)));
        Ok(Some(essence))
    }

    /// Ends the copy of a mapping. Its port is held as in the other engine, which may give the
    /// address to this one.
    pub fn end_copy(&mut self, copies: &mut Copies, key: u32) {
        self.forget_ended(copies, key);
        copies.restoration.tick = self.tick;
        let slot = copies.restoration.slot(key);
        let ended = (slot < LEFT_OUT).then(|| self.table.mapping(slot));
        let ended =
            ended.map(|mapping| (mapping.protocol, mapping.external(), mapping.is_static()));
        self.drop_restored(&mut copies.restoration, key);
        if let Some((protocol, External { index, port }, false)) = ended
            && has_ports(protocol)
            && self.external.has_hold_down(protocol)
        {
            let until = self.deadline(self.now, self.timeouts.hold_down);
            self.external.hold(protocol, index, port, until);
        }
        if (key as usize) < copies.made.len() {
            copies.note(key, None);
        }
    }

    /// Gives the block of a copied port to its subscriber. Logs of both engines name the owners of
    /// blocks, so this raises events.
    pub(super) fn copy_block(&mut self, external: External, host: Host) {
        let [released, assigned] = self.external.copy_block(external, host, self.present_tick());
        if let Some(block) = released {
            self.raise(self.now, Change::BlockReleased(block));
        }
        if let Some(block) = assigned {
            self.raise(self.now, Change::BlockAssigned(block));
        }
    }

    /// Forgets the slot of a copy that has ended by itself.
    fn forget_ended(&self, copies: &mut Copies, key: u32) {
        let slot = copies.restoration.slot(key);
        if slot < LEFT_OUT && !self.is_copy(copies, key, slot) {
            copies.restoration.put(key, ABSENT);
        }
    }

    /// The slot that has the port of a record.
    fn owner_of(&self, fields: &MappingFields) -> Option<u32> {
        let AddressPort { address, port } = fields.external;
        let index = self.external.index(address).filter(|_| has_ports(fields.protocol))?;
        self.external.owner(fields.protocol, index, port)
    }

    /// Forgets the key of the slot that has the port of a record, if the slot has another mapping
    /// now.
    fn forget_owner(&self, copies: &mut Copies, fields: &MappingFields) {
        let numbers = &copies.restoration.numbers;
        let key = self.owner_of(fields).and_then(|slot| numbers.get(slot as usize).copied());
        if let Some(key) = key.filter(|key| *key != ABSENT) {
            self.forget_ended(copies, key);
        }
    }

    /// Takes a mapping that this engine has already for the copy: it was the owner before, and the
    /// other engine has copied the mapping from it. The time of creation stays, because times that
    /// were moved twice may differ by a tick.
    fn adopt(&mut self, copies: &mut Copies, fields: &mut MappingFields) {
        let AddressPort { address, port } = fields.external;
        let Some(index) = self.external.index(address).filter(|_| has_ports(fields.protocol))
        else {
            return;
        };
        let Some(slot) = self.external.owner(fields.protocol, index, port) else { return };
        let mapping = self.table.mapping(slot);
        let of_internal = AddressPort::new(mapping.host().address(), mapping.internal().port);
        let realm = copies.restoration.realms.get(usize::from(fields.realm)).copied().flatten();
        if mapping.is_static()
            || fields.is_fixed()
            || of_internal != fields.internal
            || realm != Some(mapping.host().realm())
        {
            return;
        }
        fields.created = self.time_of(self.created(mapping));
        let number = copies.restoration.numbers.get(slot as usize).copied().unwrap_or(ABSENT);
        if number == ABSENT {
            self.drop_restored(&mut copies.restoration, fields.number);
            copies.restoration.put(fields.number, slot);
        }
    }

    fn is_copy(&self, copies: &Copies, key: u32, slot: u32) -> bool {
        let Some(made) = copies.made.get(key as usize).copied().flatten() else { return false };
        if !self.table.is_live(slot) {
            return false;
        }
        let mapping = self.table.mapping(slot);
        let external = mapping.external();
        let address = self.external.address(external.index);
        made == (mapping.protocol, AddressPort::new(address, external.port), self.created(mapping))
    }
}

impl Copies {
    /// True if an origin differs from that of the copies in its times only.
    pub fn refer_to(&self, origin: &[u8]) -> bool {
        origin.get(HEAD + TIMES..) == Some(&self.origin[..])
    }

    /// The key of the copy in a slot.
    pub fn key(&self, slot: u32) -> Option<u32> {
        self.restoration.numbers.get(slot as usize).copied().filter(|key| *key != ABSENT)
    }

    /// Number of mappings that have copies, ones that have ended by themselves included. Looks at
    /// every key.
    pub fn count(&self) -> usize {
        self.made.iter().flatten().count()
    }

    fn note(&mut self, key: u32, made: Option<Made>) {
        let at = key as usize;
        if self.made.len() <= at {
            self.made.resize(at + 1, None);
        }
        self.made[at] = made;
    }

    fn move_times(&self, fields: &mut MappingFields, parts: &mut MappingParts) {
        let moved = |time: &mut u64| {
            *time = (i128::from(*time) + self.shift).clamp(0, i128::from(u64::MAX)) as u64;
        };
        moved(&mut fields.created);
        parts.sessions.iter_mut().for_each(|session| moved(&mut session.expires));
        parts.holds.iter_mut().for_each(|hold| moved(&mut hold.until));
    }
}

/// Fingerprint of what matters of a mapping, the ends of requests included. Realms and sets of
/// timeouts have numbers of their own in each engine.
fn essence(fields: &MappingFields, parts: &MappingParts) -> u64 {
    let mut bytes = Vec::new();
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
    fingerprint(to.end())
}
