//! The translator as a whole: its parts, the passage of time, what it tells about itself. What it
//! does with a packet is in `translate.rs`.

mod due;

use crate::calendar::NONE;
use crate::class::Classes;
use crate::config::{Begun, Config, Rule, StaticMapping};
use crate::endpoint::{AddressPort, External, Internal};
use crate::event::Events;
use crate::explicit::Holds;
use crate::external::{ExternalPorts, OwnershipSource};
use crate::fragments::Fragments;
use crate::host::Host;
use crate::identification::Identifications;
use crate::packet::{Counters, Direction, Outcome, Side};
use crate::parse::has_ports;
use crate::random::{Generator, HashKey};
use crate::realms::{Realms, broadcasts_of};
use crate::reconfigure::{Sweep, static_hosts};
use crate::respond::{Connection, Envelope, Message, PENDING_SYN_NANOS, PendingSyns, Responder};
use crate::rules::{RuleBatch, RuleSet};
use crate::services::Services;
use crate::sizes::{Sizes, WHOLE_MAPPINGS, permanent, served, validate};
use crate::subscriber::Subscribers;
use crate::table::{
    Mapping, NewMapping, OUTBOUND_ONLY, SHARED_EXTERNAL, SHARED_INTERNAL, SessionRef, Table,
};
use crate::time::{TICK, nanos};
use crate::timeouts::{self, Timers};
use crate::translate::{Glances, PoolWatches, Rings};
use crate::twice::Twice;
use crate::{
    Change, ConfigError, DropReason, Endpoint, Event, MappingId, MappingInfo, MappingKind,
    PoolUsage, SessionId, SessionInfo, Timestamp,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use natgate_wire::protocol;

/// The latest time there is, nanoseconds.
const LATEST: u64 = i64::MAX as u64;
/// How often a subscriber's refusals, and a pool's exhaustion, are reported at most, nanoseconds.
pub(crate) const REPORT_INTERVAL: u64 = 1_000_000_000;

/// The translator. A clone goes on as the original would, but may allocate while it grows.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) timeouts: Timers,
    pub(crate) table: Table,
    pub(crate) external: ExternalPorts,
    pub(crate) subscribers: Subscribers,
    pub(crate) pool_watches: PoolWatches,
    pub(crate) rules: RuleSet,
    pub(crate) realms: Realms,
    /// What is asked of them for packets together.
    pub(crate) searches: RuleBatch,
    /// What the stages of a batch write down.
    pub(crate) glances: Glances,
    /// Whether hosts that are no subscribers may have records: others were in force when they got
    /// them.
    pub(crate) strangers: bool,
    /// Mappings that have not been asked yet whether they may stay.
    pub(crate) sweep: Sweep,
    /// Remote endpoints that are others as seen from inside.
    pub(crate) twice: Twice,
    pub(crate) statics: WholeStatics,
    pub(crate) services: Services,
    pub(crate) rings: Rings,
    /// Mappings that hosts have asked for.
    pub(crate) holds: Holds,
    /// Hosts that static mappings name, sorted.
    pub(crate) static_hosts: Vec<Host>,
    /// First and last addresses of the connected networks, but for external ones; else 0.
    pub(crate) broadcasts: [u32; 4],
    pub(crate) generator: Generator,
    /// Sessions that a subscriber may have beyond the first of each mapping.
    pub(crate) further_each: u32,
    pub(crate) responder: Responder,
    pub(crate) pending: PendingSyns,
    pub(crate) fragments: Fragments,
    pub(crate) identifications: Identifications,
    pub(crate) counters: Counters,
    /// Dynamic mappings made and gone, by [`quota_class`].
    pub(crate) made: [u64; 3],
    pub(crate) gone: [u64; 3],
    /// Of each pool, dynamic mappings by [`place_of`].
    pub(crate) used: Vec<[u64; 5]>,
    events: Events,
    /// Blocks assigned at the start, last first, of which nobody has been told yet.
    pub(crate) pinned: Vec<u32>,
    /// True if something was taken since unanswered subscribers last made room, so that it may be
    /// scarce.
    pub(crate) may_be_short: bool,
    /// Whether several engines share the work.
    pub(crate) is_divided: bool,
    /// Whether the packet that was handed out last turns round.
    pub(crate) turns: bool,
    /// When each pool's exhaustion was last reported, nanoseconds.
    pub(crate) pool_reported: Vec<Option<u64>>,
    started: Timestamp,
    /// Time of tick 0, nanoseconds.
    base: u64,
    /// Latest time seen, nanoseconds.
    pub(crate) now: u64,
    /// Latest tick whose things are done.
    pub(crate) tick: u32,
    leads: due::Leads,
}

/// A static mapping of a whole address: mappings for its ports are made when packets come.
#[derive(Clone, Debug)]
struct Whole {
    internal: Host,
    /// Index of the external address.
    index: u32,
    /// The one protocol that it is for; `None`: all.
    protocol: Option<u8>,
    begun: Begun,
    /// Mappings that there are.
    mappings: u32,
}

/// The static mappings of whole addresses.
#[derive(Clone, Debug)]
pub(crate) struct WholeStatics {
    /// Sorted by internal address.
    entries: Vec<Whole>,
    /// Places in `entries`, sorted by the external address.
    by_index: Vec<usize>,
}

impl WholeStatics {
    pub(crate) fn new(config: &Config, external: &ExternalPorts) -> Self {
        let whole = config.statics.iter().filter(|mapping| mapping.external.1.is_none());
        let mut entries: Vec<Whole> = whole
            .filter_map(|mapping| {
                let index = external.index(mapping.external.0.to_bits())?;
                let internal = Host::new(mapping.realm, mapping.internal.0.to_bits());
                let StaticMapping { protocol, begun, .. } = *mapping;
                Some(Whole { internal, index, protocol, begun, mappings: 0 })
            })
            .collect();
        entries.sort_by_key(|whole| whole.internal);
        let mut by_index: Vec<usize> = (0..entries.len()).collect();
        by_index.sort_by_key(|&at| entries[at].index);
        Self { entries, by_index }
    }

    /// Takes over how many mappings those have that stay the same.
    pub(crate) fn go_on(&mut self, others: &Self) {
        for one in &mut self.entries {
            let same = others.entries.iter().find(|other| {
                (other.internal, other.index, other.protocol)
                    == (one.internal, one.index, one.protocol)
            });
            one.mappings = same.map_or(0, |same| same.mappings);
        }
    }

    /// The index of the external address by which what a host begins goes out, for a protocol, and
    /// who begins sessions there.
    pub(crate) fn external(&self, internal: Host, protocol: u8) -> Option<(u32, Begun)> {
        let start = self.entries.partition_point(|whole| whole.internal < internal);
        let entries = self.entries[start..].iter().take_while(|whole| whole.internal == internal);
        let mut entries = entries.filter(|whole| whole.begun != Begun::Outside);
        entries
            .find(|whole| whole.protocol.is_none_or(|only| only == protocol))
            .map(|whole| (whole.index, whole.begun))
    }

    /// The place of the mapping of an external address, for a protocol.
    fn place(&self, index: u32, protocol: u8) -> Option<usize> {
        let start = self.by_index.partition_point(|&at| self.entries[at].index < index);
        let entries = self.by_index[start..].iter().copied();
        entries
            .take_while(|&at| self.entries[at].index == index)
            .find(|&at| self.entries[at].protocol.is_none_or(|only| only == protocol))
    }

    /// The host behind an external address, and who begins sessions there.
    pub(crate) fn internal(&self, index: u32, protocol: u8) -> Option<(Host, Begun)> {
        let whole = &self.entries[self.place(index, protocol)?];
        Some((whole.internal, whole.begun))
    }

    /// Counts a mapping more of an external address; `false`: it has too many.
    pub(crate) fn count(&mut self, index: u32, protocol: u8) -> bool {
        let place = self.place(index, protocol).expect("the address is mapped as a whole");
        let mappings = &mut self.entries[place].mappings;
        let room = *mappings < WHOLE_MAPPINGS;
        *mappings += u32::from(room);
        room
    }

    /// How many mappings there are of an external address that is mapped as a whole, and may be.
    pub(crate) fn standing(&self, index: u32, protocol: u8) -> (u32, u32) {
        let place = self.place(index, protocol);
        (place.map_or(0, |place| self.entries[place].mappings), WHOLE_MAPPINGS)
    }

    /// Counts one less; a mapping may be left from when the address was mapped otherwise.
    pub(crate) fn release(&mut self, index: u32, protocol: u8) {
        if let Some(place) = self.place(index, protocol) {
            let mappings = &mut self.entries[place].mappings;
            *mappings = mappings.saturating_sub(1);
        }
    }
}

/// What becomes of the port of a mapping that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It is held, if its protocol's ports are.
    HoldDown,
    /// It is free at once.
    Free,
}

/// The flags of a static mapping whose sessions are begun there.
pub(crate) fn flags_of(begun: Begun) -> u8 {
    match begun {
        Begun::Anywhere => 0,
        Begun::Outside => SHARED_INTERNAL,
        Begun::Inside => OUTBOUND_ONLY,
    }
}

impl Engine {
    /// Most packets that one call of [`Engine::process`] takes.
    pub const MAX_BATCH: usize = 256;

    /// An engine that starts empty at time `now`. The seed decides every choice that must not be
    /// guessed: take it from the operating system, or from the user to repeat a run.
    ///
    /// # Errors
    /// [`ConfigError`] names what the configuration contradicts.
    pub fn new(config: &Config, seed: [u8; 32], now: Timestamp) -> Result<Self, ConfigError> {
        validate(config)?;
        let now = Timestamp(now.0.min(LATEST));
        let sizes = Sizes::new(config);
        let timeouts = Timers::new(config);
        let mut generator = Generator::new(seed);
        let key = HashKey::new(&mut generator);
        let external = ExternalPorts::new(config, sizes.address_room, timeouts.hold_ticks(), key);
        let rules = RuleSet::new(&config.rules)?;
        let realms = Realms::new(config, &rules)?;
        for rules in core::iter::once(&rules).chain(realms.further_rules()) {
            rules.check(config, |pool, address| external.has(pool, address))?;
        }
        let mut engine = Self {
            table: Table::new(sizes.room, config, key),
            subscribers: Subscribers::new(
                sizes.subscribers,
                sizes.address_room,
                Classes::new(config),
                key,
            ),
            pool_watches: PoolWatches::default(),
            rules,
            realms,
            searches: RuleBatch::new(),
            glances: Glances::new(),
            strangers: false,
            sweep: Sweep::default(),
            twice: Twice::new(sizes.twice, key),
            statics: WholeStatics::new(config, &external),
            services: Services::new(key),
            rings: Rings::new(config, sizes.room.dynamic + sizes.room.fixed),
            holds: Holds::new(config.limits.explicit_mappings as usize, key),
            static_hosts: static_hosts(config),
            broadcasts: broadcasts(config, &external),
            external,
            responder: Responder::new(config),
            pending: PendingSyns::new(),
            fragments: Fragments::new(config.limits.fragment_memory, config.timeouts.fragment, key),
            identifications: Identifications::new(
                sizes.addresses,
                sizes.address_room,
                &mut generator,
            ),
            counters: Counters::default(),
            events: Events::new(),
            pinned: Vec::new(),
            is_divided: false,
            turns: false,
            pool_reported: vec![None; config.pools.len()],
            made: [0; 3],
            gone: [0; 3],
            used: vec![[0; 5]; config.pools.len()],
            may_be_short: true,
            started: now,
            base: now.0 - now.0 % nanos(TICK),
            now: now.0,
            tick: 0,
            leads: due::Leads::default(),
            generator,
            further_each: sizes.further_each,
            timeouts,
            config: without_rules(config),
        };
        engine.make_statics()?;
        engine.make_services()?;
        engine.pin_blocks()?;
        engine.pool_watches = PoolWatches::new(config, &engine.external);
        Ok(engine)
    }

    /// Takes from the operating system now what memory the mappings with their first sessions will
    /// take, that no packet has to wait for it later; what else is seldom used in full is taken as
    /// it is used.
    pub fn populate(&mut self) {
        self.table.populate();
    }

    /// Bytes that an engine of this configuration takes.
    pub fn memory(config: &Config) -> u64 {
        let sizes = Sizes::new(config);
        Table::memory(sizes.room)
            + Twice::memory(sizes.twice)
            + ExternalPorts::memory(config, sizes.addresses)
            + Subscribers::memory(sizes.subscribers)
            + Classes::memory(config)
            + Timers::memory(config)
            + Responder::memory()
            + Fragments::memory(config.limits.fragment_memory)
            + Identifications::memory(sizes.addresses)
            + Services::memory(config)
            + Rings::memory(config, sizes.room.dynamic + sizes.room.fixed)
            + Holds::memory(config.limits.explicit_mappings as usize)
            + (Events::ROOM * size_of::<Event>()) as u64
            + rules_of(config).map(memory_of_rules).sum::<u64>()
    }

    /// Reserves what static mappings take and makes those with ports, which are always there.
    fn make_statics(&mut self) -> Result<(), ConfigError> {
        for mapping in self.config.statics.clone() {
            let index = self.external.index(mapping.external.0.to_bits()).unwrap_or(NONE);
            let (Some(internal_port), Some(external_port)) =
                (mapping.internal.1, mapping.external.1)
            else {
                self.external.reserve_address(index, mapping.protocol);
                continue;
            };
            let internal = mapping.internal.0.to_bits();
            for protocol in permanent(&mapping) {
                let new = NewMapping {
                    protocol,
                    internal: Internal::new(Host::new(mapping.realm, internal), internal_port),
                    external: External::new(index, external_port),
                    timeouts: 0,
                    is_static: true,
                    permanent: true,
                    flags: flags_of(mapping.begun),
                };
                self.take_fixed(protocol, External::new(index, external_port))?;
                let slot = self.add_fixed(new);
                self.external.take(protocol, index, external_port, slot);
            }
        }
        Ok(())
    }

    /// Makes the mappings of services, one for each server.
    fn make_services(&mut self) -> Result<(), ConfigError> {
        for service in self.config.services.clone() {
            let (address, port) = service.external;
            let index = self.external.index(address.to_bits()).unwrap_or(NONE);
            for protocol in served(&service) {
                self.take_fixed(protocol, External::new(index, port))?;
                self.services.add(protocol, External::new(index, port), service.affinity);
                for (number, server) in service.servers.iter().enumerate() {
                    let (address, internal_port) = server.internal;
                    let new = NewMapping {
                        protocol,
                        internal: Internal::new(
                            Host::new(service.realm, address.to_bits()),
                            internal_port,
                        ),
                        external: External::new(index, port),
                        timeouts: 0,
                        is_static: true,
                        permanent: true,
                        flags: SHARED_EXTERNAL | SHARED_INTERNAL,
                    };
                    let slot = self.add_fixed(new);
                    if number == 0 {
                        self.external.take(protocol, index, port, slot);
                    }
                    let endpoint = AddressPort::new(address.to_bits(), internal_port);
                    self.services.add_server(slot, endpoint, server.share());
                }
            }
        }
        self.services.settle();
        Ok(())
    }

    /// Gives blocks that forwarded ports are in to the hosts behind these.
    fn pin_blocks(&mut self) -> Result<(), ConfigError> {
        let statics = self.config.statics.iter().filter_map(|mapping| {
            let (address, port) = mapping.external;
            Some(((address, port?), mapping.realm, mapping.internal.0))
        });
        // One that several hosts serve has no owner; then its block is as others are.
        let services = self.config.services.iter().filter_map(|service| {
            let (host, _) = service.servers.first()?.internal;
            let alone = service.servers.iter().all(|server| server.internal.0 == host);
            alone.then_some((service.external, service.realm, host))
        });
        for ((address, port), realm, host) in statics.chain(services) {
            let Some(index) = self.external.index(address.to_bits()) else { continue };
            let host = Host::new(realm, host.to_bits());
            let pinned = self.external.pin(External::new(index, port), host);
            self.pinned.extend(pinned.map_err(|message| ConfigError { message })?);
        }
        self.pinned.reverse();
        Ok(())
    }

    /// Keeps an external endpoint from dynamic use, which no static mapping has yet.
    pub(crate) fn take_fixed(
        &mut self,
        protocol: u8,
        External { index, port }: External,
    ) -> Result<(), ConfigError> {
        if self.external.owner(protocol, index, port).is_some() {
            let address = Ipv4Addr::from_bits(self.external.address(index));
            let message = format!("{address}:{port} has two static mappings");
            return Err(ConfigError { message });
        }
        self.external.reserve(protocol, index, port);
        Ok(())
    }

    /// Makes a mapping that is always there.
    pub(crate) fn add_fixed(&mut self, new: NewMapping) -> u32 {
        let hash = self.table.hash(self.table.static_key(
            new.protocol,
            new.internal,
            AddressPort::new(0, 0),
        ));
        self.table.add(new, |_| (), 0, hash).expect("statics have room")
    }

    // ---- time ----

    /// The present time, nanoseconds since that of tick 0.
    pub(crate) fn since_base(&self) -> u64 {
        self.now.saturating_sub(self.base)
    }

    /// The time of tick 0, nanoseconds.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// When it was made, or the first of those whose state it goes on with.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// Counts ticks as another engine does whose state this one, which is new, goes on with. A time
    /// that cannot be is left out of account.
    pub(crate) fn go_on_from(&mut self, base: u64, started: u64, now: u64) {
        let since = now.saturating_sub(base) / nanos(TICK);
        if base.is_multiple_of(nanos(TICK)) && since < u64::from(u32::MAX >> 2) {
            self.base = base;
        }
        self.started = Timestamp(started.min(now));
        self.observe(Timestamp(now));
        self.tick = self.tick_of(self.now) as u32;
    }

    pub(crate) fn tick_of(&self, time: u64) -> u64 {
        time.saturating_sub(self.base) / nanos(TICK)
    }

    /// The latest tick that is not after the present time.
    pub(crate) fn present_tick(&self) -> u32 {
        self.tick_of(self.now) as u32
    }

    pub(crate) fn time_of(&self, tick: u32) -> u64 {
        self.base + u64::from(tick) * nanos(TICK)
    }

    /// The first tick that is not before a time plus a duration, both in nanoseconds.
    pub(crate) fn deadline(&self, time: u64, duration: u64) -> u32 {
        timeouts::deadline(time.saturating_sub(self.base), duration)
    }

    /// Takes note of the time, which does not go back, nor beyond the year 2262.
    pub(crate) fn observe(&mut self, now: Timestamp) {
        self.now = self.now.max(now.0.min(LATEST));
    }

    pub(crate) fn remove_session(&mut self, session: SessionRef, tick: u32) {
        let slot = self.table.mapping_of(session);
        self.tell_ended(session, slot, self.time_of(tick));
        self.end_session(session, slot, tick);
        let mapping = self.table.mapping(slot);
        if mapping.sessions == 0 && !mapping.is_permanent() {
            self.remove_mapping(slot, self.time_of(tick));
        } else if session == SessionRef::First(slot) {
            let answers = self.first_answers(slot);
            self.table.set_answers(slot, answers);
        }
    }

    /// Tells that a session ends, if that is asked for.
    pub(crate) fn tell_ended(&mut self, session: SessionRef, slot: u32, time: u64) {
        if !self.config.session_events {
            return;
        }
        let session = self.table.session(session);
        let remote = session.remote();
        let id = self.name_of_session(slot, remote, self.seen(slot, remote));
        self.raise(time, Change::SessionRemoved(id));
    }

    /// A session as events name it.
    pub(crate) fn name_of_session(
        &self,
        slot: u32,
        remote: AddressPort,
        seen: AddressPort,
    ) -> SessionId {
        SessionId {
            mapping: self.name_of(self.table.mapping(slot)),
            remote: Endpoint::new(remote.address, remote.port),
            remote_inside: Endpoint::new(seen.address, seen.port),
        }
    }

    /// Removes a session from its mapping.
    pub(crate) fn end_session(&mut self, session: SessionRef, slot: u32, tick: u32) {
        if self.table.mapping(slot).is_explicit() {
            let session = self.table.session(session);
            self.end_session_hold(slot, session.remote());
        }
        self.drop_session(session, slot, tick);
    }

    /// The same, but that a hold on the session stays.
    pub(crate) fn drop_session(&mut self, session: SessionRef, slot: u32, tick: u32) {
        if self.table.mapping(slot).is_twice() {
            let session = self.table.session(session);
            self.twice.remove(slot, session.remote());
        }
        let one_further_less = self.table.remove_session(session, tick);
        let mapping = self.table.mapping(slot);
        if one_further_less && !mapping.is_static() {
            let record = self.subscribers.find(mapping.host());
            let record = record.expect("a mapping's subscriber has a record");
            self.subscribers.count_further(record, -1);
        }
    }

    /// Counts a dynamic mapping that is made.
    #[inline(always)]
    pub(crate) fn note_made(&mut self, protocol: u8, index: u32) {
        self.made[quota_class(protocol)] += 1;
        self.may_be_short = true;
        if let Some(used) = self.used.get_mut(self.external.pool_of(index)) {
            used[place_of(protocol)] += 1;
        }
    }

    /// Removes a mapping that has no session left.
    pub(crate) fn remove_mapping(&mut self, slot: u32, time: u64) {
        self.remove_mapping_to(slot, time, Rest::HoldDown);
    }

    //= rfc7857#section-11
    /// Removes a mapping that has no session left, and says what becomes of its port.
    pub(crate) fn remove_mapping_to(&mut self, slot: u32, time: u64, rest: Rest) {
        let mapping = self.table.remove(slot);
        if mapping.is_explicit() {
            self.holds.remove_all(mapping.host(), slot);
        }
        let (protocol, External { index, port }) = (mapping.protocol, mapping.external());
        if mapping.is_static() {
            if has_ports(protocol) {
                self.external.disown(protocol, index, port);
                self.external.unreserve(protocol, index, port, self.tick);
            }
            if !mapping.is_permanent() {
                self.statics.release(index, protocol);
            }
            return;
        }
        // With fewer mappings of answered subscribers, more of a pool's are surely of unanswered
        // ones.
        self.may_be_short = true;
        if let Some(heir) = self.rings.leave(slot) {
            // The port is free when the last that has it goes.
            if self.external.owner(protocol, index, port) == Some(slot) {
                self.external.hand_over(protocol, index, port, heir);
            }
        } else if has_ports(protocol) {
            match rest {
                Rest::HoldDown => {
                    let release = self.deadline(time, self.timeouts.hold_down);
                    self.external.give(protocol, index, port, release, self.tick);
                }
                Rest::Free => self.external.give_at_once(protocol, index, port, self.tick),
            }
        }
        self.external.uncount(index, place_of(protocol));
        let pool = self.external.pool_of(index);
        let kind = quota_class(protocol);
        self.gone[kind] += 1;
        if let Some(used) = self.used.get_mut(pool) {
            used[place_of(protocol)] -= 1;
        }
        self.subscribers.release(mapping.host(), slot, pool, kind);
        if self.external.told(protocol, index, port) == OwnershipSource::Mapping {
            let is_explicit = mapping.is_explicit();
            let kind = if is_explicit { MappingKind::Pcp } else { MappingKind::Dynamic };
            let id = self.id_of(protocol, mapping.internal(), External::new(index, port), kind);
            self.raise(time, Change::MappingRemoved(id));
        }
    }

    /// A mapping as events name it.
    pub(crate) fn name_of(&self, mapping: &Mapping) -> MappingId {
        let External { index, port } = mapping.external();
        let told = || self.external.told(mapping.protocol, index, port);
        let kind = match mapping.is_static() {
            true => MappingKind::Static,
            false if mapping.is_explicit() => MappingKind::Pcp,
            false if told() == OwnershipSource::Plan => MappingKind::Deterministic,
            false => MappingKind::Dynamic,
        };
        self.id_of(mapping.protocol, mapping.internal(), External::new(index, port), kind)
    }

    /// The name of a mapping between these endpoints, the external one given by its address's
    /// index.
    #[inline(always)]
    pub(crate) fn id_of(
        &self,
        protocol: u8,
        Internal { host, port }: Internal,
        external: External,
        kind: MappingKind,
    ) -> MappingId {
        MappingId {
            protocol,
            realm: host.realm(),
            internal: Endpoint::new(host.address(), port),
            external: Endpoint::new(self.external.address(external.index), external.port),
            kind,
        }
    }

    /// Remembers a SYN that nobody takes, to answer it six seconds later unless its connection has
    /// come about by then.
    pub(crate) fn remember_syn(
        &mut self,
        envelope: Envelope,
        connection: Connection,
        packet: &[u8],
    ) {
        //= rfc5382#REQ-4
        //= rfc5597#REQ-4
        let due = self.now + PENDING_SYN_NANOS;
        if !self.pending.add(due, envelope, connection, packet) {
            self.counters.errors_suppressed += 1;
        }
    }

    fn answer_syn(&mut self) {
        let Some(syn) = self.pending.pop() else { return };
        let (protocol, AddressPort { address, port }, remote) = syn.connection;
        let index = self.external.index(address);
        let owner = index
            .and_then(|index| self.find_external(protocol, External::new(index, port), remote));
        //= rfc5382#REQ-4-outbound
        //= rfc5597#REQ-4-outbound
        if owner.is_some_and(|slot| self.table.find_session(slot, remote).is_some()) {
            return;
        }
        //= rfc5382#REQ-4-answer
        //= rfc5597#REQ-4-answer
        let message = Message::PORT_UNREACHABLE;
        if !self.responder.send(syn.due, message, syn.envelope, syn.quoted()) {
            self.counters.errors_suppressed += 1;
        }
    }

    /// Recounts a packet of `len` bytes to the gateway itself, which [`Engine::process`] had
    /// dropped as [`DropReason::LocalUnsupported`]: the gateway answers it, or drops it for another
    /// reason.
    pub fn count_local(&mut self, other: Option<DropReason>, len: usize) {
        self.counters.recount_local(other, len);
    }

    // ---- restarts ----

    /// Writes the ports of an external address that somebody has: used, held, or, in a pool, of
    /// static mappings. `address` counts from 0; `None`: there are not so many. A bit a port, 1,024
    /// words. The protocol is TCP, UDP, ICMP or DCCP.
    ///
    /// # Panics
    /// When the protocol is another or `into` has another length.
    pub fn taken_ports(&self, address: usize, protocol: u8, into: &mut [u64]) -> Option<Ipv4Addr> {
        assert_eq!(into.len(), 1024, "a bit a port");
        self.external.taken(address as u32, protocol, into).map(Ipv4Addr::from_bits)
    }

    /// Holds the ports of an external address that an earlier engine had taken, as
    /// [`Engine::taken_ports`] told, for the hold-down from now: of every protocol, for nobody
    /// knows their connections any more. Ports that somebody has, or in no pool, stay as they are.
    ///
    /// # Panics
    /// As [`Engine::taken_ports`].
    pub fn hold_ports(&mut self, address: Ipv4Addr, protocol: u8, ports: &[u64]) {
        assert_eq!(ports.len(), 1024, "a bit a port");
        let Some(index) = self.external.index(address.to_bits()) else { return };
        //= rfc6888#REQ-8-restart
        let release = self.deadline(self.now, self.timeouts.hold_down);
        if release <= self.tick {
            return;
        }
        for (word, &bits) in ports.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let port = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.external.hold(protocol, index, port as u16, release);
            }
        }
    }

    // ---- events ----

    #[inline(always)]
    pub(crate) fn raise(&mut self, time: u64, change: Change) {
        if !self.events.push(Timestamp(time), change) {
            self.counters.events_lost += 1;
        }
    }

    /// Whether what a few removals raise has room.
    pub(crate) fn has_room_for_events(&self) -> bool {
        self.events.len() <= Events::ROOM / 2
    }

    //= rfc8158#section-4.6.5-rate
    /// Reports that a pool has no port, unless that was done within the last second.
    pub(crate) fn report_exhausted(&mut self, pool: usize, protocol: u8) {
        let reported = &mut self.pool_reported[pool];
        if reported.is_none_or(|at| self.now - at >= REPORT_INTERVAL) {
            *reported = Some(self.now);
            self.raise(self.now, Change::PoolExhausted { pool, protocol });
        }
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(block) = self.pinned.pop() {
            let change = Change::BlockAssigned(self.external.block(block));
            return Some(Event { time: self.started, change });
        }
        self.events.pop()
    }

    /// The next packet of the engine's own making, or fragment that had waited, oldest first:
    /// written to the front of `buffer`, with the time it was made, the side to send it by and its
    /// length.
    ///
    /// # Panics
    /// When the buffer is shorter than the packet; 65,535 bytes hold any.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<(Timestamp, Side, usize)> {
        loop {
            let (time, side, len) = self.next_transmit(buffer)?;
            if side == Side::Outside || self.has_realm(self.realms.handed_out) {
                return Some((time, side, len));
            }
            // The realm that it was for has gone since.
        }
    }

    fn next_transmit(&mut self, buffer: &mut [u8]) -> Option<(Timestamp, Side, usize)> {
        let own = self.responder.next_time();
        let released = self.fragments.next_released();
        if released.is_some_and(|released| own.is_none_or(|own| released.0 <= own)) {
            let released = self.fragments.poll_released(buffer)?;
            self.turns = released.hands_over();
            if !self.turns {
                self.counters.count(released.direction, Outcome::Forwarded, released.len);
            }
            self.realms.handed_out = released.realm;
            return Some((released.time, released.out, released.len));
        }
        let (time, side, realm, bytes) = self.responder.poll()?;
        self.realms.handed_out = realm;
        self.turns = false;
        buffer[..bytes.len()].copy_from_slice(bytes);
        self.counters.generated += 1;
        Some((Timestamp(time), side, bytes.len()))
    }

    // ---- what it tells ----

    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a frame that came in on `from` and cannot be given to [`Engine::process`] because it
    /// does not carry IPv4.
    pub fn count_foreign(&mut self, from: Side, len: usize) {
        self.counters.count_drop(direction_from(from), DropReason::NotIpv4, len);
    }

    /// Counts a frame from inside that cannot be given to [`Engine::process`] because it is of no
    /// realm.
    pub fn count_unknown_realm(&mut self, len: usize) {
        self.counters.count_drop(Direction::Outbound, DropReason::UnknownRealm, len);
    }

    /// Gives up the fragments that wait for the first of their datagram, and counts them: at the
    /// end of a capture, or of a gateway's life.
    pub fn drop_held(&mut self) {
        self.fragments.advance(Timestamp(u64::MAX), &mut self.counters);
    }

    /// Recounts as dropped a packet of `len` bytes that [`Engine::process`] had forwarded, and that
    /// the gateway could not deliver.
    pub fn count_undelivered(&mut self, direction: Direction, reason: DropReason, len: usize) {
        self.counters.recount_drop(direction, reason, len);
    }

    /// Every mapping, in no order that means anything.
    pub fn mappings(&self) -> impl Iterator<Item = MappingInfo> + '_ {
        self.table.slots().map(|slot| self.describe(slot))
    }

    pub(crate) fn describe(&self, slot: u32) -> MappingInfo {
        let mapping = self.table.mapping(slot);
        let mut info = MappingInfo {
            id: self.name_of(mapping),
            sessions: u32::from(mapping.sessions),
            created: match mapping.is_permanent() && mapping.is_static() {
                true => self.started,
                false => Timestamp(self.time_of(mapping.created)),
            },
            expires: None,
            packets_out: 0,
            packets_in: 0,
        };
        for session in self.table.sessions(slot) {
            let session = self.table.session(session);
            info.packets_out += u64::from(session.packets_out);
            info.packets_in += u64::from(session.packets_in);
            if !(mapping.is_permanent() && mapping.is_static()) {
                info.expires = info.expires.max(Some(Timestamp(self.time_of(session.expires))));
            }
        }
        if mapping.is_explicit() {
            let held = self.holds.latest(mapping.host(), slot);
            info.expires = info.expires.max(held.map(|tick| Timestamp(self.time_of(tick))));
        }
        info
    }

    /// Every session, in no order that means anything.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        self.table.slots().flat_map(move |slot| {
            let mapping = self.name_of(self.table.mapping(slot));
            self.table
                .sessions(slot)
                .map(move |session| self.describe_session(slot, mapping, session))
        })
    }

    pub(crate) fn describe_session(
        &self,
        slot: u32,
        mapping: MappingId,
        session: SessionRef,
    ) -> SessionInfo {
        let session = self.table.session(session);
        let remote = session.remote();
        let seen = self.seen(slot, remote);
        SessionInfo {
            mapping,
            remote: Endpoint::new(remote.address, remote.port),
            remote_inside: Endpoint::new(seen.address, seen.port),
            state: session.state().name(),
            expires: Timestamp(self.time_of(session.expires)),
            packets_out: u64::from(session.packets_out),
            packets_in: u64::from(session.packets_in),
        }
    }

    /// What a pool holds for a protocol (TCP, UDP, ICMP or DCCP); it goes by the engine's
    /// numbering.
    ///
    /// # Panics
    /// When there is no such pool or the protocol is another.
    pub fn pool_usage(&self, pool: usize, protocol: u8) -> PoolUsage {
        self.external.usage(pool, protocol, |slot| self.table.mapping(slot).is_static())
    }
}

/// A configuration without what the engine has in another form.
pub(crate) fn without_rules(config: &Config) -> Config {
    let mut config = config.clone();
    config.rules = Vec::new();
    for realm in &mut config.realms {
        realm.rules = Vec::new();
    }
    config
}

/// The rules of every realm.
fn rules_of(config: &Config) -> impl Iterator<Item = &[Rule]> {
    let further = config.realms.iter().map(|realm| &realm.rules[..]);
    core::iter::once(&config.rules[..]).chain(further)
}

fn memory_of_rules(rules: &[Rule]) -> u64 {
    RuleSet::new(rules).map_or(0, |rules| rules.memory())
}

/// The addresses that mean every host of a connected network (the last; the first of old), unless
/// the operator has made them external.
pub(crate) fn broadcasts(config: &Config, external: &ExternalPorts) -> [u32; 4] {
    let ends = [&config.inside, &config.outside]
        .map(|side| side.network.and_then(broadcasts_of).unwrap_or_default());
    let [[a, b], [c, d]] = ends;
    [a, b, c, d].map(|address| if external.index(address).is_some() { 0 } else { address })
}

/// The direction of a packet of which only the side it came from is known.
pub(crate) fn direction_from(side: Side) -> Direction {
    match side {
        Side::Inside => Direction::Outbound,
        Side::Outside => Direction::Inbound,
    }
}

/// Where mappings of a protocol are counted: TCP, UDP, ICMP, DCCP, all others.
pub(crate) fn place_of(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP => 2,
        protocol::DCCP => 3,
        _ => 4,
    }
}

/// The quota that a protocol's mappings count against.
pub(crate) fn quota_class(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        _ => 2,
    }
}
