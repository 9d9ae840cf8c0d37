//! The reading of records into a new engine: progress, order of records, times and names.
//! `mappings` makes mappings, `sessions` their sessions and holds, `rest` everything else. `copies`
//! reads single records into an engine that runs.

mod copies;
mod hosts;
mod mappings;
mod rest;
mod sessions;

use super::record::{HoldFields, Kind, MappingFields, OVERLOADS, Reader, SessionFields, times_of};
use super::{KINDS, MOST_NUMBERS, number_of};
use crate::calendar::NONE;
use crate::config::RuleAction;
use crate::endpoint::{External, Internal};
use crate::engine::Engine;
use crate::explicit::is_mapped;
use crate::protocols::has_ports;
use crate::session::Session;
use crate::timeouts::SETS;
use crate::{Departure, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
pub use copies::{Copied, Copies, CopyEnds, RecordHost};
pub use hosts::{HostIdentity, HostNumbers, NoNumber, NoNumbers, RealmNumber};

/// Values in place of a slot. `ABSENT`: there is no such mapping. From `LEFT_OUT` on: the
/// configuration has no place for the mapping, for the reason [`Departure`] `value - LEFT_OUT`.
const ABSENT: u32 = NONE;
const LEFT_OUT: u32 = NONE - Departure::ALL.len() as u32;

/// In place of a realm: this engine has no such realm.
const NO_REALM: u16 = u16::MAX;

/// Reason why records cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// [`Engine::export`] does not write such records. The text names the fault.
    Damaged(&'static str),
    /// The mapping behavior is another. Mappings are filed by that behavior.
    Behavior,
    /// This number of mappings or sessions found no room.
    Room(u64),
}

/// Result of a restoration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of mappings now, static ones not included.
    pub mappings: u64,
    /// Number of mappings that the configuration has no place for, by [`Departure`]. The other
    /// mappings are checked later, as after [`Engine::reconfigure`].
    pub left_out: [u64; Departure::ALL.len()],
}

/// Progress of a restoration.
#[derive(Debug)]
pub struct Restoration {
    has_begun: bool,
    /// True if the engine has a time and state of its own, which it keeps.
    is_running: bool,
    /// For each number the slot in this engine, [`ABSENT`] or [`LEFT_OUT`]; and for each slot the
    /// number.
    slots: Vec<u32>,
    numbers: Vec<u32>,
    /// Number in this engine of each realm, and of each set of timeouts, of the other engine.
    realms: Vec<Option<u16>>,
    sets: [u8; SETS],
    /// Slots of permanent mappings by protocol, external and internal endpoint.
    pub(super) permanent: BTreeMap<Ends, u32>,
    /// Addresses that rules name.
    ruled: BTreeSet<u32>,
    /// The latest tick that the other engine has completed.
    tick: u32,
    /// Records of mappings without room so far, by number.
    deferred: BTreeMap<u32, Vec<u8>>,
    /// Blocks that subscribers had.
    blocks: BTreeSet<u32>,
    /// Requested mappings that were left out, by number. Their hosts rely on them.
    lost: BTreeSet<u32>,
    /// The sessions and holds of the mapping that is being read.
    parts: MappingParts,
    is_complete: bool,
}

/// Protocol, index of the external address and port, internal host and port.
pub(super) type Ends = (u8, External, Internal);

/// Sessions and holds of a mapping.
#[derive(Debug, Default)]
struct MappingParts {
    sessions: Vec<SessionFields>,
    holds: Vec<HoldFields>,
}

impl Restoration {
    /// Begins a restoration into a new engine.
    pub fn new(engine: &Engine) -> Self {
        let config = &engine.config;
        // An engine that runs may have millions of other mappings.
        let has_permanent = !config.statics.is_empty() || !config.services.is_empty();
        let slots = has_permanent.then(|| engine.table.slots());
        let permanent = slots.into_iter().flatten().filter_map(|slot| {
            let mapping = engine.table.mapping(slot);
            let ends = (mapping.protocol, mapping.external(), mapping.internal());
            mapping.is_fixed().then_some((ends, slot))
        });
        let rules = config.realms.iter().flat_map(|realm| &realm.rules).chain(&config.rules);
        let ruled = rules.filter_map(|rule| match rule.action {
            RuleAction::SnatTo(_, address) => Some(address.to_bits()),
            _ => None,
        });
        Self {
            has_begun: false,
            is_running: false,
            slots: Vec::new(),
            numbers: Vec::new(),
            realms: Vec::new(),
            sets: [0; SETS],
            permanent: permanent.collect(),
            ruled: ruled.collect(),
            tick: 0,
            deferred: BTreeMap::new(),
            blocks: BTreeSet::new(),
            lost: BTreeSet::new(),
            parts: MappingParts::default(),
            is_complete: false,
        }
    }

    /// True if the last record has been read.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Number of mappings that the configuration has no place for, by reason.
    fn left_out(&self) -> [u64; Departure::ALL.len()] {
        let mut counts = [0; Departure::ALL.len()];
        for &slot in self.slots.iter().filter(|slot| (LEFT_OUT..ABSENT).contains(slot)) {
            counts[(slot - LEFT_OUT) as usize] += 1;
        }
        counts
    }

    /// Replaces the other engine's numbers of a mapping's realm and set of timeouts by this
    /// engine's.
    fn renumber(&self, fields: &mut MappingFields) {
        let realm = self.realms.get(usize::from(fields.realm)).copied().flatten();
        fields.realm = realm.unwrap_or(NO_REALM);
        fields.timeouts = self.sets[usize::from(fields.timeouts) % SETS];
    }

    fn slot(&self, number: u32) -> u32 {
        self.slots.get(number as usize).copied().unwrap_or(ABSENT)
    }

    /// Notes the slot of a mapping.
    fn put(&mut self, number: u32, slot: u32) {
        let (at, before) = (number as usize, self.slot(number));
        if self.slots.len() <= at {
            self.slots.resize(at + 1, ABSENT);
        }
        // The slot may have the mapping of another number, if this one's has ended by itself.
        if let Some(of_slot) = self.numbers.get_mut(before as usize)
            && *of_slot == number
        {
            *of_slot = ABSENT;
        }
        self.slots[at] = slot;
        if slot < LEFT_OUT {
            let at = slot as usize;
            if self.numbers.len() <= at {
                self.numbers.resize(at + 1, ABSENT);
            }
            self.numbers[at] = number;
        }
    }
}

/// Description of a fault in a record.
type Wrong = &'static str;

impl Engine {
    /// Reads whole records into this engine. The engine is new and has the configuration to come.
    ///
    /// # Errors
    /// [`RestoreError`]. The engine must not be used then.
    pub fn restore(
        &mut self,
        restoration: &mut Restoration,
        records: &[u8],
    ) -> Result<(), RestoreError> {
        let mut reader = Reader::new(records);
        while !reader.is_empty() {
            let (kind, fields) =
                reader.record().ok_or(RestoreError::Damaged("a record ends too early"))?;
            let kind = Kind::new(kind).ok_or(RestoreError::Damaged("a record of no known kind"))?;
            if restoration.has_begun == (kind == Kind::Begin) || restoration.is_complete {
                return Err(RestoreError::Damaged("a record out of order"));
            }
            self.restore_record(restoration, kind, fields)?;
        }
        Ok(())
    }

    /// Completes the restoration after the last record. Each mapping is checked against the
    /// configuration before its next packet.
    ///
    /// # Errors
    /// [`RestoreError`]. The engine must not be used then.
    pub fn finish_restoration(
        &mut self,
        restoration: &mut Restoration,
    ) -> Result<Restored, RestoreError> {
        if !restoration.is_complete {
            return Err(RestoreError::Damaged("the last record is missing"));
        }
        let no_room = self.restore_deferred(restoration)?;
        if no_room > 0 {
            return Err(RestoreError::Room(no_room));
        }
        let blocks = core::mem::take(&mut self.pinned);
        // The assignment of restored blocks was reported by the other engine.
        let is_new = |block: &u32| !restoration.blocks.contains(block);
        self.pinned = blocks.into_iter().filter(is_new).collect();
        self.holds.lost += restoration.lost.len() as u64;
        self.ask_anew();
        let mappings = self.table.count_dynamic_mappings() as u64;
        Ok(Restored { mappings, left_out: restoration.left_out() })
    }

    fn restore_record(
        &mut self,
        restoration: &mut Restoration,
        kind: Kind,
        fields: &[u8],
    ) -> Result<(), RestoreError> {
        let mut from = Reader::new(fields);
        let from = &mut from;
        let read = match kind {
            Kind::Begin => {
                restoration.has_begun = true;
                return self.restore_beginning(restoration, from);
            }
            Kind::Mapping => self.restore_mapping(restoration, from, fields)?,
            Kind::Pass => self.restore_time(restoration, from),
            Kind::Gone => from.u32().map(|number| self.drop_restored(restoration, number)),
            Kind::Held => self.restore_held(restoration, from),
            Kind::Pair => self.restore_pair(restoration, from),
            Kind::Block => self.restore_block(restoration, from),
            Kind::Sequence => self.restore_sequence(from),
            Kind::Rounds => {
                from.take(1024).and_then(|rounds| self.identifications.set_rounds(rounds))
            }
            Kind::Counter => self.restore_counter(from),
            Kind::End => {
                restoration.is_complete = true;
                let known = restoration.slots.iter().filter(|slot| **slot != ABSENT).count() as u64;
                let deferred = restoration.deferred.len() as u64;
                from.u64().filter(|&all| all == known + deferred).map(drop)
            }
        };
        read.filter(|()| from.is_empty()).ok_or(RestoreError::Damaged(match kind {
            Kind::Mapping => "a mapping that cannot be",
            Kind::End => "mappings are missing",
            _ => "a record with other fields",
        }))
    }

    fn restore_beginning(
        &mut self,
        restoration: &mut Restoration,
        from: &mut Reader<'_>,
    ) -> Result<(), RestoreError> {
        let read = |from: &mut Reader<'_>| {
            let times = [from.u64()?, from.u64()?, from.u64()?];
            Some((times, from.u8()?, [from.u64()?, from.u64()?, from.u64()?], from.u16()?))
        };
        let damaged = RestoreError::Damaged("the first record is wrong");
        let ([base, started, now], behavior, key, realms) = read(from).ok_or(damaged)?;
        if behavior != number_of(self.config.mapping) {
            return Err(RestoreError::Behavior);
        }
        self.go_on_from(base, started, now);
        self.services.set_key(key);
        restoration.realms.push(Some(0));
        for _ in 0..realms {
            let len = from.u8().ok_or(damaged)?;
            let name = from.take(usize::from(len)).ok_or(damaged)?;
            let same =
                self.config.realms.iter().position(|realm| {
                    !realm.gone && !name.is_empty() && realm.name.as_bytes() == name
                });
            restoration.realms.push(same.map(|place| place as u16 + 1));
        }
        let sets = from.u8().filter(|sets| usize::from(*sets) < SETS).ok_or(damaged)?;
        for number in 1..=usize::from(sets) {
            let mut times = [0; 6];
            for time in &mut times {
                *time = from.u64().ok_or(damaged)?;
            }
            let same = self.config.timeout_sets.iter().position(|set| times_of(set) == times);
            restoration.sets[number] = same.map_or(0, |place| place as u8 + 1);
        }
        if from.is_empty() { Ok(()) } else { Err(damaged) }
    }

    fn restore_time(&mut self, restoration: &mut Restoration, from: &mut Reader<'_>) -> Option<()> {
        let (now, done) = (from.u64()?, from.u64()?);
        self.observe(Timestamp(now));
        restoration.tick = self.restored_tick(done).max(self.tick);
        // Ports that are free again in the other engine become free here. Other timers continue
        // with the time of this engine.
        self.external.release_until(self.tick, restoration.tick);
        Some(())
    }

    /// The tick of a time in a record.
    fn restored_tick(&self, time: u64) -> u32 {
        u32::try_from(self.tick_of(time)).unwrap_or(u32::MAX >> 1).min(u32::MAX >> 1)
    }
}

impl MappingParts {
    /// True if all sessions are in states that there are.
    fn are_valid(&self) -> bool {
        self.sessions
            .iter()
            .all(|session| Session::new(session.remote).set_parts(session.parts()).is_some())
    }

    /// Reads the fields of a mapping, and replaces the earlier parts by the mapping's sessions and
    /// holds.
    fn read(&mut self, from: &mut Reader<'_>) -> Result<MappingFields, Wrong> {
        let fields = MappingFields::read(from).ok_or("a mapping's fields end too early")?;
        if fields.number >= MOST_NUMBERS || fields.internal.address == 0 {
            return Err("a mapping with a number or an address that cannot be");
        }
        let cannot_be_held = Err("a mapping held that cannot be");
        if fields.holds > 0 && !is_mapped(fields.protocol) {
            return cannot_be_held;
        }
        if fields.sessions == 0 && fields.holds == 0 && !fields.is_fixed() {
            return Err("a mapping without sessions");
        }
        let Self { sessions, holds } = self;
        sessions.clear();
        for _ in 0..fields.sessions {
            sessions.push(SessionFields::read(from).ok_or("a mapping's sessions end too early")?);
        }
        // A mapping without ports is filed by the remote address of its sessions.
        let is_stray = |session: &SessionFields| session.remote.address != fields.remote.address;
        if !has_ports(fields.protocol) && !fields.is_fixed() && sessions.iter().any(is_stray) {
            return Err("a session that cannot be its mapping's");
        }
        holds.clear();
        for _ in 0..fields.holds {
            holds.push(HoldFields::read(from).ok_or("a mapping's holds end too early")?);
        }
        // A mapping that overloads a port may have holds only towards single remote endpoints.
        if fields.flags & OVERLOADS != 0 && holds.iter().any(|hold| hold.remote.is_none()) {
            return cannot_be_held;
        }
        Ok(fields)
    }
}
