//! Copies of another engine's mappings in an engine that runs: single records, in any order of
//! keys, from any number of engines.
//!
//! The writer gives the record of one mapping at a time ([`Engine::copy_record`]). The reader
//! makes, renews or ends the copy of a mapping. Times are moved to the reader's scale by whole
//! ticks. A copy never displaces a mapping of the engine itself, and a copy that has ended
//! meanwhile leaves nothing that a later record could end in its place.

mod ends;
mod prints;

use super::hosts::{HostIdentity, HostNumbers, NoNumber};
use super::{ABSENT, LEFT_OUT, MappingParts, NO_REALM, Restoration, RestoreError};
use crate::config::RealmConfig;
use crate::endpoint::{AddressPort, External, Internal};
use crate::engine::Engine;
use crate::handover::number_of;
use crate::handover::record::{MappingFields, Reader, STATIC, Writer};
use crate::host::Host;
use crate::protocols::has_ports;
use crate::time::{TICK, nanos};
use crate::{Change, CopyFacts, Endpoint, PairPort};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
pub use ends::CopyEnds;
use prints::{essence, essence_of_flow, print_of};

/// Copies of the mappings of one other engine.
#[derive(Debug)]
pub struct Copies {
    restoration: Restoration,
    /// For each key the copy that it has, so that another mapping in its slot is told apart.
    made: Vec<Option<Made>>,
    count: usize,
    /// Start of the other engine's scale.
    base: u64,
    /// Difference between the scales of the two engines, nanoseconds: whole ticks. The first is
    /// fixed, because the time of creation is a part of a copy's identity. The second is for ends,
    /// and follows the clocks.
    shift: i128,
    end_shift: i128,
    /// The difference between the clocks that was set last.
    difference: Option<i128>,
    /// The numbers that realms had in this engine when a record named them last.
    realms: BTreeMap<Vec<u8>, u16>,
}

/// Result of the copy of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The key has its mapping. The fingerprint of the record.
    Made(u64),
    /// There is no room for all sessions and requests of the mapping. The key has a copy with those
    /// that fit.
    Part,
    /// The configuration has no place for the mapping, or a mapping of this engine has its port.
    /// The key has no copy.
    NoPlace,
    /// This engine has no realm with the name that the record tells. The key has no copy.
    NoRealm,
    /// There is no number for the host that the record tells. The key has no copy.
    NoNumber(NoNumber),
}

/// Place of a copy in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    Whole,
    /// Some sessions or holds had no room.
    Part,
    Nowhere,
}

/// Realm of a record: realm 0; the one whose name follows; a realm of numbers whose name and the
/// identity of whose host follow.
const REALM_0: u8 = 0;
const NAMED: u8 = 1;
const NUMBERED: u8 = 2;

/// Bytes of a remote address and the place of a prefix.
const PATH: usize = 5;

/// In place of the number of a host whose identity follows.
const NO_ADDRESS: u32 = 1;

/// What a record tells besides the mapping's fields.
#[derive(Clone, Copy, Debug)]
struct Names<'a> {
    /// Fingerprint of the set of timeouts.
    set: u64,
    /// Name of the realm; `None`: realm 0.
    realm: Option<&'a [u8]>,
    /// The host, if the realm is one of numbers.
    host: Option<HostIdentity>,
    /// Remote addresses with the places of the prefixes by which the host reaches them, [`PATH`]
    /// bytes each.
    paths: &'a [u8],
    /// For each hold the filters that are for one session, 2 bytes each; empty if there is none.
    once: &'a [u8],
}

/// Identity of a copy: protocol, external endpoint, for a protocol without ports the remote
/// address, tick of its creation.
type Made = (u8, AddressPort, u32, u32);

/// The host that a record is of, with which a caller finds the engine for the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordHost {
    /// Number of its realm in this engine, and its address.
    Address(u16, Ipv4Addr),
    /// Identity of a host with a number.
    Identity(HostIdentity),
}

impl Engine {
    /// The fingerprint of a record of [`Engine::copy_record`], as its writer tells it. `None`: the
    /// record is damaged.
    pub fn copy_print(record: &[u8]) -> Option<u64> {
        let mut from = Reader::new(record);
        let mut parts = MappingParts::default();
        let fields = parts.read(&mut from).ok()?;
        Some(essence(&fields, &parts, from.rest()))
    }

    /// The host that a record is of. `None`: the record is damaged, or this engine has no such
    /// realm.
    pub fn copy_host(&self, record: &[u8]) -> Option<RecordHost> {
        let mut from = Reader::new(record);
        let fields = MappingParts::default().read(&mut from).ok()?;
        let names = names_in(&mut from)?;
        let is_its = |realm: &RealmConfig| {
            !realm.gone
                && Some(realm.name.as_bytes()) == names.realm
                && is_of_numbers(realm) == names.host.is_some()
        };
        let realm = match names.realm {
            None => 0,
            Some(_) => self.config.realms.iter().position(is_its)? as u16 + 1,
        };
        let address = Ipv4Addr::from_bits(fields.internal.address);
        Some(names.host.map_or(RecordHost::Address(realm, address), RecordHost::Identity))
    }

    /// Appends the origin of this engine's records: scale of time, mapping behavior. A reader needs
    /// it first.
    pub fn copy_origin(&self, out: &mut Vec<u8>) {
        out.extend(self.base().to_le_bytes());
        out.extend(self.now.to_le_bytes());
        out.push(number_of(self.config.mapping));
    }

    /// All keys are smaller.
    pub fn copy_extent(&self) -> u32 {
        self.table.extent()
    }

    /// Appends the record of the mapping with a key, its slot. Returns the fingerprint of what
    /// matters: realm, endpoints, states and requests with their ends, without counters, sequence
    /// numbers and other deadlines. `None`: there is no such mapping.
    ///
    /// The record refers to nothing outside it but the scale of time: it has the name of the
    /// mapping's realm, a fingerprint of its set of timeouts, and in place of a host's number the
    /// host's identity. So a reload of either engine changes nothing in its meaning.
    pub fn copy_record(&self, key: u32, hosts: &dyn HostNumbers, out: &mut Vec<u8>) -> Option<u64> {
        if key >= self.table.extent() || !self.table.is_live(key) {
            return None;
        }
        let start = out.len();
        let numbers = self.mapping_fields(key);
        // Numbers of realms and of sets mean nothing to another engine.
        let mut fields = MappingFields { realm: 0, timeouts: 0, ..numbers };
        let realms = &self.config.realms;
        let realm = usize::from(numbers.realm).checked_sub(1).and_then(|at| realms.get(at));
        let mut host = None;
        if realm.is_some_and(is_of_numbers) {
            let number = Ipv4Addr::from_bits(numbers.internal.address);
            host = Some(hosts.identity((numbers.realm, number))?);
            fields.internal.address = NO_ADDRESS;
        }
        let mut record = Writer::unframed(out);
        self.write_mapping(key, &fields, &mut record);
        let set = usize::from(numbers.timeouts).checked_sub(1);
        let set = set.and_then(|at| self.config.timeout_sets.get(at)).map_or(0, print_of);
        record.u64(set);
        if numbers.realm == 0 {
            record.u8(REALM_0);
        } else {
            let name = realm.map_or("", |realm| &realm.name).as_bytes();
            let name = &name[..name.len().min(u16::MAX.into())];
            let kind = if host.is_some() { NUMBERED } else { NAMED };
            record.u8(kind).u16(name.len() as u16).put(name);
        }
        if let Some(HostIdentity { address, inner }) = host {
            record.put(&address.to_be_bytes()).u32(inner);
            let paths = self.paths_of(key, hosts);
            record.u16(paths.len() as u16);
            paths.iter().for_each(|(remote, path)| _ = record.u32(*remote).u8(*path));
        }
        let once = || self.holds_of(key).map(|hold| hold.filters.once());
        if fields.holds > 0 && once().any(|bits| bits != 0) {
            once().for_each(|bits| _ = record.u16(bits));
        }
        let record = &out[start..];
        essence_of_flow(&fields, record).or_else(|| Self::copy_print(record))
    }

    /// Begins to copy another engine's mappings, from its origin. This engine runs.
    ///
    /// # Errors
    /// [`RestoreError`]: the origin is damaged, or the mapping behavior is another.
    pub fn begin_copies(&self, origin: &[u8]) -> Result<Copies, RestoreError> {
        let mut from = Reader::new(origin);
        let read = |from: &mut Reader<'_>| Some((from.u64()?, from.u64()?, from.u8()?));
        let (base, now, behavior) = read(&mut from)
            .filter(|_| from.is_empty())
            .ok_or(RestoreError::Damaged("the origin is wrong"))?;
        if behavior != number_of(self.config.mapping) {
            return Err(RestoreError::Behavior);
        }
        let mut restoration = Restoration::new(self);
        restoration.is_running = true;
        restoration.has_begun = true;
        // Ticks of both scales coincide after the move, so that equal times stay equal.
        let tick = i128::from(nanos(TICK));
        let between = i128::from(self.time_of(self.present_tick())) - i128::from(base);
        let shift = between - i128::from(now.saturating_sub(base)) / tick * tick;
        Ok(Copies {
            restoration,
            made: Vec::new(),
            count: 0,
            base,
            shift,
            end_shift: shift,
            difference: None,
            realms: BTreeMap::new(),
        })
    }

    /// Goes on with the copies after this engine has got other settings. The copies stay.
    pub fn renew_copies(&self, copies: &mut Copies) {
        let Restoration { permanent, ruled, .. } = Restoration::new(self);
        (copies.restoration.permanent, copies.restoration.ruled) = (permanent, ruled);
        copies.realms.clear();
    }

    /// Sets the difference between the clocks of the two machines, which changes in the course of
    /// time: this engine's time less the other one's, nanoseconds, as far as it is known now. Ends
    /// in later records are moved by it, to the next tick that is not earlier.
    pub fn set_clock_difference(&self, copies: &mut Copies, difference: i128) {
        if copies.difference.replace(difference) == Some(difference) {
            return;
        }
        let tick = i128::from(nanos(TICK));
        let (other, own) = (i128::from(copies.base), i128::from(self.base()));
        let ticks = -(own - other - difference).div_euclid(tick);
        copies.end_shift = own - other + ticks * tick;
    }

    /// Fetches the memory that the copy of a record will need. Copies of many mappings are at
    /// random places: without this each waits for its own. The engine stays as it is.
    pub fn fetch_for_copy(&self, record: &[u8]) {
        let Some(fields) = MappingFields::read(&mut Reader::new(record)) else { return };
        let AddressPort { address, port } = fields.external;
        if let Some(index) = self.external.index(address) {
            self.external.fetch_to_restore(fields.protocol, External::new(index, port));
        }
        // Most records are of realm 0. For others this is in vain.
        let host = Host::new(0, fields.internal.address);
        let internal = Internal::new(host, fields.internal.port);
        let key = self.table.key(fields.protocol, internal, fields.remote);
        self.table.prefetch_index(self.table.hash(key));
        self.subscribers.prefetch(host);
    }

    /// Makes or renews the copy of a mapping by the record of its key. `hosts` gives numbers to
    /// hosts of a realm of numbers.
    ///
    /// # Errors
    /// [`RestoreError::Damaged`]: nothing has changed.
    pub fn copy(
        &mut self,
        copies: &mut Copies,
        hosts: &mut dyn HostNumbers,
        record: (u32, &[u8]),
    ) -> Result<Copied, RestoreError> {
        // Their memory serves the next record, too.
        let mut parts = core::mem::take(&mut copies.restoration.parts);
        let copied = self.copy_parts(copies, hosts, record, &mut parts);
        copies.restoration.parts = parts;
        copied
    }

    /// As [`Engine::copy`]; `parts` are memory for those of the record.
    fn copy_parts(
        &mut self,
        copies: &mut Copies,
        hosts: &mut dyn HostNumbers,
        (key, record): (u32, &[u8]),
        parts: &mut MappingParts,
    ) -> Result<Copied, RestoreError> {
        const WRONG: RestoreError = RestoreError::Damaged("a mapping that cannot be");
        let mut from = Reader::new(record);
        let mut fields = parts.read(&mut from).map_err(RestoreError::Damaged)?;
        let essence = essence_of_flow(&fields, record)
            .unwrap_or_else(|| essence(&fields, parts, from.rest()));
        let names = names_in(&mut from).ok_or(WRONG)?;
        let has_once = names.once.is_empty() || names.once.len() == 2 * parts.holds.len();
        if !parts.are_valid() || fields.number != key || !has_once {
            return Err(WRONG);
        }
        for (hold, [low, high]) in parts.holds.iter_mut().zip(names.once.as_chunks().0) {
            hold.filters.set_once(u16::from_le_bytes([*low, *high]));
        }
        let realm = names.realm.map_or(Some(0), |name| self.realm_named(copies, name, names.host));
        fields.realm = realm.unwrap_or(NO_REALM);
        fields.timeouts = self.set_with(names.set);
        copies.move_times(&mut fields, parts);
        self.forget_ended(copies, fields.number);
        if let Some((host, realm)) = names.host.zip(realm) {
            match hosts.number(realm, host) {
                Ok(number) => fields.internal.address = number.to_bits(),
                Err(why) => {
                    copies.restoration.tick = self.tick;
                    self.drop_restored(&mut copies.restoration, fields.number);
                    return Ok(Copied::NoNumber(why));
                }
            }
        }
        let number = (fields.realm, Ipv4Addr::from_bits(fields.internal.address));
        let placed = self.place_copy(copies, &mut fields, parts);
        let has_copy = matches!(placed, Ok(Placed::Whole | Placed::Part));
        if names.host.is_some() && realm.is_some() && !has_copy {
            hosts.take_back(number);
        }
        let placed = placed?;
        if !has_copy {
            return Ok(if realm.is_some() { Copied::NoPlace } else { Copied::NoRealm });
        }
        if names.host.is_some() {
            for [a, b, c, d, path] in names.paths.as_chunks::<PATH>().0 {
                let remote = u32::from_le_bytes([*a, *b, *c, *d]);
                hosts.note_path(number, Ipv4Addr::from_bits(remote), *path);
            }
        }
        Ok(if placed == Placed::Whole { Copied::Made(essence) } else { Copied::Part })
    }

    /// Puts a copy in its place. Without a place, the key has no copy.
    fn place_copy(
        &mut self,
        copies: &mut Copies,
        fields: &mut MappingFields,
        parts: &MappingParts,
    ) -> Result<Placed, RestoreError> {
        self.forget_owner(copies, fields);
        self.adopt(copies, fields);
        copies.restoration.tick = self.tick;
        let restoration = &mut copies.restoration;
        let is_whole = self.place_restored(restoration, fields, parts)?;
        let slot = restoration.slot(fields.number);
        if slot >= LEFT_OUT || !is_whole && !self.has_any_part(slot) {
            self.drop_restored(restoration, fields.number);
            return Ok(Placed::Nowhere);
        }
        copies.note(fields.number, Some(self.identity_of(slot)));
        Ok(if is_whole { Placed::Whole } else { Placed::Part })
    }

    /// True if a mapping stands without further sessions and holds.
    fn has_any_part(&self, slot: u32) -> bool {
        let mapping = self.table.mapping(slot);
        mapping.is_fixed() || mapping.sessions > 0 || mapping.is_explicit()
    }

    /// The remote addresses of a mapping's sessions, as its host sees them, with the places of the
    /// prefixes by which the host reaches them.
    fn paths_of(&self, key: u32, hosts: &dyn HostNumbers) -> Vec<(u32, u8)> {
        let host = self.table.mapping(key).host();
        let number = (host.realm(), host.ip());
        let path = |session| {
            let AddressPort { address, .. } = self.seen(key, self.table.session(session).remote());
            Some((address, hosts.path(number, Ipv4Addr::from_bits(address))?))
        };
        self.table.sessions(key).filter_map(path).collect()
    }

    /// The number of a realm, by its name in the present configuration. A host with an identity has
    /// a realm of numbers. `None`: there is none.
    fn realm_named(
        &self,
        copies: &mut Copies,
        name: &[u8],
        host: Option<HostIdentity>,
    ) -> Option<u16> {
        let is_its = |realm: &RealmConfig| {
            !realm.gone
                && !name.is_empty()
                && realm.name.as_bytes() == name
                && is_of_numbers(realm) == host.is_some()
        };
        let realms = &self.config.realms;
        let known = copies.realms.get(name).copied();
        if known.is_some_and(|number| realms.get(usize::from(number) - 1).is_some_and(is_its)) {
            return known;
        }
        let number = realms.iter().position(is_its)? as u16 + 1;
        copies.realms.insert(name.to_vec(), number);
        Some(number)
    }

    /// The number of the set of timeouts with a fingerprint; 0, the general timeouts, if there is
    /// none.
    fn set_with(&self, print: u64) -> u8 {
        if print == 0 {
            return 0;
        }
        let place = self.config.timeout_sets.iter().position(|set| print_of(set) == print);
        place.map_or(0, |place| place as u8 + 1)
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
            && self.external.has_hold_down(protocol, index)
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

    /// Facts about the copy of a key. `None`: the key has none.
    pub fn copied_facts(&self, copies: &Copies, key: u32) -> Option<CopyFacts> {
        let slot = copies.restoration.slot(key);
        let is_copy = slot < LEFT_OUT && self.is_copy(copies, key, slot);
        is_copy.then(|| self.copy_facts(slot)).flatten()
    }

    /// True if the copy of a key is of a static mapping, which each engine of a node has.
    pub fn is_static_copy(&self, copies: &Copies, key: u32) -> bool {
        let slot = copies.restoration.slot(key);
        let is_copy = slot < LEFT_OUT && self.is_copy(copies, key, slot);
        is_copy && self.table.mapping(slot).is_any_static()
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
        let external = External::new(self.external.index(address)?, port);
        self.owner_at(fields.protocol, external, fields.remote)
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
        let Some(slot) = self.owner_of(fields) else { return };
        let mapping = self.table.mapping(slot);
        let of_internal = AddressPort::new(mapping.host().address(), mapping.internal().port);
        // Either engine makes the mappings of a static mapping of a whole address.
        if mapping.is_fixed()
            || fields.is_fixed()
            || mapping.is_static() != (fields.flags & STATIC != 0)
            || of_internal != fields.internal
            || fields.realm != mapping.host().realm()
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
        made == self.identity_of(slot)
    }

    fn identity_of(&self, slot: u32) -> Made {
        let mapping = self.table.mapping(slot);
        let External { index, port } = mapping.external();
        let external = AddressPort::new(self.external.address(index), port);
        let remote = if has_ports(mapping.protocol) { 0 } else { mapping.first.remote().address };
        (mapping.protocol, external, remote, self.created(mapping))
    }
}

impl Copies {
    /// The key of the copy in a slot.
    pub fn key(&self, slot: u32) -> Option<u32> {
        self.restoration.numbers.get(slot as usize).copied().filter(|key| *key != ABSENT)
    }

    /// The external port of a key's copy. `None`: the key has none.
    pub fn external(&self, key: u32) -> Option<PairPort> {
        let is_there = self.restoration.slot(key) < LEFT_OUT;
        let made = self.made.get(key as usize).copied().flatten().filter(|_| is_there);
        let (protocol, external, remote, _) = made?;
        let external = Endpoint::new(external.address, external.port);
        Some(PairPort { protocol, external, remote: Ipv4Addr::from_bits(remote), number: 0 })
    }

    /// Number of mappings that have copies, ones that have ended by themselves included.
    pub fn count(&self) -> usize {
        self.count
    }

    fn note(&mut self, key: u32, made: Option<Made>) {
        let at = key as usize;
        if self.made.len() <= at {
            self.made.resize(at + 1, None);
        }
        self.count += usize::from(made.is_some());
        self.count -= usize::from(core::mem::replace(&mut self.made[at], made).is_some());
    }

    fn move_times(&self, fields: &mut MappingFields, parts: &mut MappingParts) {
        let move_by = |shift: i128, time: &mut u64| {
            *time = (i128::from(*time) + shift).clamp(0, i128::from(u64::MAX)) as u64;
        };
        move_by(self.shift, &mut fields.created);
        let ends = parts.sessions.iter_mut().map(|session| &mut session.expires);
        let ends = ends.chain(parts.holds.iter_mut().map(|hold| &mut hold.until));
        ends.for_each(|end| move_by(self.end_shift, end));
    }
}

/// Reads what a record tells behind the mapping's fields.
fn names_in<'a>(from: &mut Reader<'a>) -> Option<Names<'a>> {
    let (set, kind) = (from.u64()?, from.u8()?);
    let (mut realm, mut host) = (None, None);
    if kind != REALM_0 {
        let len = from.u16()?;
        realm = Some(from.take(usize::from(len))?);
    }
    match kind {
        REALM_0 | NAMED => {}
        NUMBERED => {
            let address = u128::from_be_bytes(from.array()?);
            host = Some(HostIdentity { address, inner: from.u32()? });
        }
        _ => return None,
    }
    let paths = if host.is_some() { usize::from(from.u16()?) } else { 0 };
    let paths = from.take(PATH * paths)?;
    Some(Names { set, realm, host, paths, once: from.rest() })
}

/// True if the hosts of a realm have numbers in place of their addresses.
fn is_of_numbers(realm: &RealmConfig) -> bool {
    realm.host_bits.is_some()
}
