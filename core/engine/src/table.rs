//! Mappings and sessions: the slots they live in, the indexes that find them, their timers.
//!
//! A mapping is one cache line and carries its first session; further sessions have lines of their
//! own and are linked to it. A mapping without sessions exists only if it is permanent. The
//! external way to a mapping of a protocol with ports is a plain array and lives with the ports
//! (`external.rs`). If an endpoint alone does not identify the mapping, `shared` does.

mod entry;
mod epoch;
mod free;
mod keys;
mod sessions;
mod shared;
mod slots;
mod timers;

use crate::calendar::{Calendar, Link, Links, NONE};
use crate::config::{Behavior, Config, Limits};
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::index::Index;
use crate::limits::Filled;
use crate::prefetch::prefetch;
use crate::random::HashKey;
use crate::session::{Session, Way};
use keys::words;
use shared::Shared;
pub(crate) use shared::{OUTBOUND_ONLY, SHARED_EXTERNAL, SHARED_INTERNAL};
use slots::Slots;

/// Reach of session timers, ticks. The timer of a session with a later deadline is entered again.
pub(crate) const REACH: u32 = 4095;

const PERMANENT: u8 = 1;
const STATIC: u8 = 2;
/// The first session is not enough to judge packets: each takes the complete way.
const DOUBTED: u8 = 4;
/// Equal to the table's bit if the present configuration has judged the mapping.
const EPOCH: u8 = 8;
const TWICE: u8 = 128;

/// The bits of an internal endpoint's word that are always 0.
const TIMEOUTS: u64 = 0xf << 44;

/// In [`Mapping::created`]: the rest is the number of an entry. A tick has this bit after eight
/// years only; the bit is left out then.
const LISTED: u32 = 1 << 31;

/// A mapping and its first session; one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Mapping {
    internal_address: u32,
    /// Low 12 bits: the realm of the internal address; the others: the set of timeouts.
    realm_and_timeouts: u16,
    internal_port: u16,
    /// Index of the external address.
    external: u16,
    external_port: u16,
    pub(crate) protocol: u8,
    flags: u8,
    pub(crate) sessions: u16,
    /// Tick at which it was made; with [`LISTED`]: the number of its entry in the list of an
    /// unanswered subscriber's mappings, which has the tick.
    created: u32,
    /// First of the further sessions.
    more: u32,
    timer: Link,
    pub(crate) first: Session,
}

const _: () = assert!(size_of::<Mapping>() == 64);

impl Mapping {
    /// Number of its set of timeouts.
    #[inline(always)]
    pub(crate) fn timeouts(&self) -> u8 {
        (self.realm_and_timeouts / Host::REALMS) as u8
    }

    /// Made by the operator: admits anybody, counts against no quota, raises no events.
    pub(crate) fn is_static(&self) -> bool {
        self.flags & STATIC != 0
    }

    /// Stays without sessions.
    pub(crate) fn is_permanent(&self) -> bool {
        self.flags & PERMANENT != 0
    }

    /// Stays without sessions because a subscriber's host has asked for it.
    #[inline(always)]
    pub(crate) fn is_explicit(&self) -> bool {
        self.flags & (PERMANENT | STATIC) == PERMANENT
    }

    /// A static mapping of a port or of an address.
    pub(crate) fn is_any_static(&self) -> bool {
        self.is_static() || self.is_fixed()
    }

    /// A static mapping of a port: always there.
    pub(crate) fn is_fixed(&self) -> bool {
        self.flags & (PERMANENT | STATIC) == PERMANENT | STATIC
    }

    fn is_live(&self) -> bool {
        self.sessions > 0 || self.is_permanent()
    }

    /// A word that is 0 if the internal endpoint is the one with this word.
    #[inline(always)]
    pub(crate) fn differs_inside(&self, internal: u64) -> u64 {
        (self.inside_and_timeouts() ^ internal) & !TIMEOUTS
    }

    /// The word of the internal endpoint.
    #[inline(always)]
    fn inside_word(&self) -> u64 {
        self.inside_and_timeouts() & !TIMEOUTS
    }

    /// The word of the internal endpoint, with the set of timeouts in the bits of [`TIMEOUTS`].
    #[inline(always)]
    fn inside_and_timeouts(&self) -> u64 {
        u64::from(self.internal_address)
            | u64::from(self.realm_and_timeouts) << 32
            | u64::from(self.internal_port) << 48
    }

    /// True if a session's remote endpoint is or was known inside by another endpoint.
    #[inline(always)]
    pub(crate) fn is_twice(&self) -> bool {
        self.flags & TWICE != 0
    }

    pub(crate) fn set_twice(&mut self) {
        self.flags |= TWICE;
    }

    /// Tick at which it was made; or the number of its entry in the list of an unanswered
    /// subscriber's mappings, which has the tick.
    #[inline(always)]
    pub(crate) fn created(&self) -> Result<u32, u32> {
        match self.created & LISTED {
            0 => Ok(self.created),
            _ => Err(self.created & !LISTED),
        }
    }

    /// Internal host.
    #[inline(always)]
    pub(crate) fn host(&self) -> Host {
        Host::new(self.realm_and_timeouts % Host::REALMS, self.internal_address)
    }

    /// Internal endpoint.
    #[inline(always)]
    pub(crate) fn internal(&self) -> Internal {
        Internal::new(self.host(), self.internal_port)
    }

    /// External endpoint: the index of its address, and its port.
    #[inline(always)]
    pub(crate) fn external(&self) -> External {
        External::new(u32::from(self.external), self.external_port)
    }
}

/// A session beyond its mapping's first.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Further {
    session: Session,
    mapping: u32,
    /// True if a packet from outside made the session.
    inbound: bool,
    /// Neighbours among the mapping's further sessions.
    next: u32,
    prev: u32,
    /// Neighbours among those with the same remote address, if the filter asks for it.
    next_alike: u32,
    prev_alike: u32,
    timer: Link,
}

const _: () = assert!(size_of::<Further>() == 64);

impl Further {
    const UNLINKED: Self = Self {
        session: Session::NONE,
        mapping: NONE,
        inbound: false,
        next: NONE,
        prev: NONE,
        next_alike: NONE,
        prev_alike: NONE,
        timer: Link::OUT,
    };
}

/// Reference to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRef {
    /// The first of this mapping.
    First(u32),
    /// A further one.
    Further(u32),
}

/// The period between two reconfigurations, by a bit that alternates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u8);

/// Fields of a new mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewMapping {
    pub(crate) protocol: u8,
    pub(crate) internal: Internal,
    /// Index of the address, and port.
    pub(crate) external: External,
    /// Number of its set of timeouts, below 16.
    pub(crate) timeouts: u8,
    pub(crate) is_static: bool,
    pub(crate) permanent: bool,
    /// [`SHARED_EXTERNAL`], [`SHARED_INTERNAL`], [`OUTBOUND_ONLY`].
    pub(crate) flags: u8,
}

/// Key of the search for outbound packets. Parts of `remote` that the mapping behavior ignores are
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) protocol: u8,
    pub(crate) internal: Internal,
    pub(crate) remote: AddressPort,
}

impl Links for Slots<Mapping> {
    fn link(&mut self, element: u32) -> &mut Link {
        &mut self.slots[element as usize].timer
    }
}

impl Links for Slots<Further> {
    fn link(&mut self, element: u32) -> &mut Link {
        &mut self.slots[element as usize].timer
    }
}

/// Capacity of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Mappings that subscribers make.
    pub(crate) dynamic: usize,
    /// Mappings of the operator's.
    pub(crate) fixed: usize,
    /// Sessions beyond the first of each mapping.
    pub(crate) further: usize,
    /// Sessions at shared ends, those of protocols without ports left out.
    pub(crate) shared: usize,
}

impl Room {
    /// Largest number of dynamic mappings of protocols without ports.
    fn portless(self) -> usize {
        self.dynamic / 16 + 64
    }
}

/// Sessions that a subscriber may have beyond the first of each mapping, in a table of this size.
pub(crate) fn further_each(further: usize, limits: &Limits) -> u32 {
    limits.extra_sessions_per_subscriber.unwrap_or((further as u32 / 16).max(64))
}

/// All mappings and sessions.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    key: HashKey,
    mapping_behavior: Behavior,
    /// The bits of the second of [`words`] that the mapping behavior depends on.
    remote_mask: u64,
    room: Room,
    mappings: Slots<Mapping>,
    further: Slots<Further>,
    /// Further sessions that there are, and those of them that packets from outside made.
    further_used: usize,
    inbound: usize,
    by_internal: Index,
    by_remote: Index,
    /// The first of each list of further sessions of a mapping that have one remote address, for
    /// the filter that asks for the address alone; without that filter `None`.
    by_address: Option<Index>,
    shared: Shared,
    dynamic: usize,
    dynamic_portless: usize,
    epoch: Epoch,
    timers: Calendar,
    further_timers: Calendar,
}

impl Table {
    pub(crate) fn new(room: Room, config: &Config, key: HashKey) -> Self {
        let Room { dynamic, fixed, further, .. } = room;
        let filters = [Some(config.filtering), config.filtering_tcp];
        let by_address = filters.contains(&Some(Behavior::AddressDependent));
        Self {
            key,
            mapping_behavior: config.mapping,
            remote_mask: match config.mapping {
                Behavior::EndpointIndependent => !0 << 48,
                Behavior::AddressDependent => !(0xffff << 32),
                Behavior::AddressAndPortDependent => !0,
            },
            room,
            mappings: Slots::new(dynamic + fixed),
            further: Slots::new(further),
            further_used: 0,
            inbound: 0,
            by_internal: Index::new(dynamic + fixed),
            by_remote: Index::new(further),
            by_address: by_address.then(|| Index::new(further)),
            shared: Shared::new(room.portless() + fixed + room.shared),
            dynamic: 0,
            dynamic_portless: 0,
            epoch: Epoch(0),
            timers: Calendar::new(REACH),
            further_timers: Calendar::new(REACH),
        }
    }

    /// Largest number of static mappings.
    pub(crate) fn room_for_statics(&self) -> usize {
        self.room.fixed
    }

    /// Sessions that a subscriber may have beyond the first of each mapping.
    pub(crate) fn further_each(&self, limits: &Limits) -> u32 {
        further_each(self.room.further, limits)
    }

    /// Bytes that a table of this size takes.
    pub(crate) fn memory(room: Room) -> u64 {
        let mappings = room.dynamic + room.fixed;
        (Slots::<Mapping>::memory(mappings) + Slots::<Further>::memory(room.further)) as u64
            + Index::memory(mappings)
            + 2 * Index::memory(room.further)
            + Index::memory(room.portless() + room.fixed + room.shared)
    }

    /// Touches the memory that the mappings will take.
    pub(crate) fn populate(&mut self) {
        self.mappings.populate();
        self.by_internal.populate();
    }

    pub(crate) fn mapping(&self, slot: u32) -> &Mapping {
        &self.mappings.slots[slot as usize]
    }

    #[inline(always)]
    pub(crate) fn mapping_mut(&mut self, slot: u32) -> &mut Mapping {
        &mut self.mappings.slots[slot as usize]
    }

    /// The mapping of a slot, if the slot has ever been used.
    #[inline(always)]
    pub(crate) fn mapping_at(&mut self, slot: u32) -> Option<&mut Mapping> {
        self.mappings.slots.get_mut(slot as usize)
    }

    pub(crate) fn session(&self, session: SessionRef) -> &Session {
        match session {
            SessionRef::First(slot) => &self.mappings.slots[slot as usize].first,
            SessionRef::Further(slot) => &self.further.slots[slot as usize].session,
        }
    }

    pub(crate) fn session_mut(&mut self, session: SessionRef) -> &mut Session {
        match session {
            SessionRef::First(slot) => &mut self.mappings.slots[slot as usize].first,
            SessionRef::Further(slot) => &mut self.further.slots[slot as usize].session,
        }
    }

    /// Number of dynamic mappings, and largest number.
    #[inline]
    pub(crate) fn filled(&self) -> Filled<usize> {
        Filled { used: self.dynamic, most: self.room.dynamic }
    }

    /// Number of further sessions, and largest number.
    pub(crate) fn further_filled(&self) -> Filled<usize> {
        Filled { used: self.further_used, most: self.room.further }
    }

    /// Number of dynamic mappings.
    pub(crate) fn count_dynamic_mappings(&self) -> usize {
        self.dynamic
    }

    /// Sessions beyond the first of each mapping that there may be which a packet going this way
    /// begins.
    pub(crate) fn room_for_further(&self, way: Way) -> usize {
        match way {
            Way::In => self.room.further.div_ceil(2),
            Way::Out => self.room.further,
        }
    }

    /// True if there is no room for one more dynamic mapping of a protocol.
    pub(crate) fn is_full(&self, protocol: u8) -> bool {
        self.dynamic >= self.room.dynamic
            || !crate::protocols::has_ports(protocol)
                && self.dynamic_portless >= self.room.portless()
    }

    /// The key under which the mapping behavior files an outbound packet.
    #[inline]
    pub(crate) fn key(&self, protocol: u8, internal: Internal, remote: AddressPort) -> Key {
        let remote = match self.mapping_behavior {
            _ if !crate::protocols::has_ports(protocol) => AddressPort::new(remote.address, 0),
            //= rfc4787#REQ-1
            //= rfc5382#REQ-1
            //= rfc5597#REQ-1
            //= rfc5508#REQ-1a
            //= rfc6146#section-5.2-mapping
            Behavior::EndpointIndependent => AddressPort::default(),
            Behavior::AddressDependent => AddressPort::new(remote.address, 0),
            Behavior::AddressAndPortDependent => remote,
        };
        //= rfc7857#section-5
        //= rfc7857#section-5-default
        Key { protocol, internal, remote }
    }

    /// Fetches the line of the index that a lookup of this hash begins with.
    #[inline(always)]
    pub(crate) fn prefetch_index(&self, hash: u64) {
        self.by_internal.prefetch(hash);
    }

    /// Fetches the slot that the next mapping will have.
    #[inline]
    pub(crate) fn prefetch_free(&self) {
        self.mappings.prefetch_free();
    }

    /// The slot of the mapping with this hash, most likely, or [`NONE`].
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: u64) -> u32 {
        self.by_internal.candidate(hash).unwrap_or(NONE)
    }

    /// Fetches the line of a mapping, if there is such a slot.
    #[inline(always)]
    pub(crate) fn prefetch_mapping(&self, slot: u32) {
        prefetch(&self.mappings.slots, slot as usize);
    }

    /// The mapping with this key.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        self.find_hashed(self.hash(key), key)
    }

    /// The mapping with this key, whose hash is known.
    #[inline]
    fn find_hashed(&self, hash: u64, key: Key) -> Option<u32> {
        self.by_internal.find(hash, |slot| self.key_of(self.mapping(slot)) == key)
    }

    /// The mapping of a flow of a protocol with ports, the hash of whose key is known.
    #[inline(always)]
    pub(crate) fn find_flow(
        &self,
        hash: u64,
        protocol: u8,
        internal: Internal,
        remote: AddressPort,
    ) -> Option<u32> {
        // A new flow has no mapping, as a rule.
        self.by_internal.candidate(hash)?;
        self.find_hashed(hash, self.key(protocol, internal, remote))
    }

    /// Has a mapping stay without sessions, or not.
    pub(crate) fn set_permanent(&mut self, slot: u32, permanent: bool) {
        let mapping = self.mapping_mut(slot);
        mapping.flags = mapping.flags & !PERMANENT | if permanent { PERMANENT } else { 0 };
    }

    /// Notes the number of a mapping's entry in the list of an unanswered subscriber's mappings.
    pub(crate) fn set_listed(&mut self, slot: u32, number: u32) {
        self.mapping_mut(slot).created = LISTED | number;
    }

    /// Gives a mapping another set of timeouts.
    pub(crate) fn set_timeouts(&mut self, slot: u32, number: u8) {
        let mapping = self.mapping_mut(slot);
        mapping.realm_and_timeouts =
            mapping.realm_and_timeouts % Host::REALMS + u16::from(number) * Host::REALMS;
    }

    /// True if a mapping's first session does not answer for its packets.
    pub(crate) fn is_doubted(&self, slot: u32) -> bool {
        self.mapping(slot).flags & DOUBTED != 0
    }

    /// Notes whether a mapping's first session answers for its packets.
    #[inline]
    pub(crate) fn set_answers(&mut self, slot: u32, answers: bool) {
        let mapping = self.mapping_mut(slot);
        mapping.flags = mapping.flags & !DOUBTED | if answers { 0 } else { DOUBTED };
    }

    /// Number of slots that have ever been used.
    pub(crate) fn extent(&self) -> u32 {
        self.mappings.slots.len() as u32
    }

    /// True if a slot has a mapping.
    pub(crate) fn is_live(&self, slot: u32) -> bool {
        self.mapping(slot).is_live()
    }

    /// Every mapping's slot.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.mappings.slots.len() as u32).filter(|&slot| self.mapping(slot).is_live())
    }
}
