//! The mappings and sessions that packets go by: made and refreshed (sections 3.21 to 3.35, 4.8 to
//! 4.20 and 9 of the specification). A decision has found that they may be made.

use super::Engine;
use super::decide::Silent;
use super::watch::BLOCKS;
use crate::class::SESSIONS;
use crate::config::Begun;
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::{OwnershipSource, Wish};
use crate::host::Host;
use crate::parse::{Headers, Kind};
use crate::protocols::{has_ports, place_of, quota_class};
use crate::rules::Snat;
use crate::session::{Idle, Session, State, Way};
use crate::table::{NewMapping, SHARED_EXTERNAL, SHARED_INTERNAL, SessionRef};
use crate::whole::flags_of;
use crate::{Change, DropReason, Endpoint, MappingId, MappingKind};

/// A flow that a subscriber begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) protocol: u8,
    pub(super) internal: Internal,
    /// The pool that its external endpoint comes from.
    pub(super) pool: usize,
    /// True if a rule chose the external address.
    pub(super) fixed: bool,
    /// The rule's set of timeouts.
    pub(super) timeouts: u8,
    /// The subscriber's record, if it has one.
    pub(super) record: Option<u32>,
    /// The hash of its key.
    pub(super) hash: u64,
    /// True if the new mapping shares a port that is in use.
    pub(super) overloads: bool,
    /// The present tick.
    pub(super) tick: u32,
}

impl Flow {
    /// The pool, and the index of the address that the subscriber is paired with there, unless a
    /// rule chose it.
    #[inline(always)]
    pub(super) fn pair(&self, external: External) -> (usize, Option<u32>) {
        (self.pool, (!self.fixed).then_some(external.index))
    }
}

/// A mapping with a session, as a host asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) internal: Internal,
    pub(crate) remote: AddressPort,
    /// Index of the address, and port.
    pub(crate) external: External,
    pub(crate) snat: Snat,
}

/// A mapping of an address that is mapped as a whole, as a packet needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeMapping {
    pub(super) internal: Internal,
    pub(super) external: External,
    /// Side that begins its sessions.
    pub(super) begun: Begun,
}

impl WholeMapping {
    /// The mapping of a protocol, as the table takes it.
    pub(super) fn as_new(&self, protocol: u8) -> NewMapping {
        NewMapping {
            protocol,
            internal: self.internal,
            external: self.external,
            timeouts: 0,
            is_static: true,
            permanent: false,
            flags: flags_of(self.begun),
        }
    }
}

/// External and remote endpoint of an inbound packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) index: u32,
    pub(super) port: u16,
    pub(super) remote: AddressPort,
    /// Remote endpoint as seen from inside.
    pub(super) seen: AddressPort,
    /// The realm that it comes from, if it turns round.
    pub(super) from: Option<u16>,
}

impl Engine {
    /// Makes a mapping with the session that these headers would begin, whose ends are settled.
    #[cold]
    pub(crate) fn open(&mut self, opening: Opening, headers: &Headers) -> u32 {
        let Opening { internal, remote, external, snat } = opening;
        let Snat { pool, address, timeouts, .. } = snat;
        let protocol = headers.protocol;
        let hash = self.table.hash(self.table.key(protocol, internal, remote));
        let session = self.new_session(remote, Way::Out, headers, timeouts);
        let record = self.subscribers.find(internal.host);
        let (fixed, overloads, tick) = (address.is_some(), false, self.present_tick());
        let flow =
            Flow { protocol, internal, pool, fixed, timeouts, record, hash, overloads, tick };
        let slot = self.add_dynamic(&flow, external, session);
        let answers = self.first_answers(slot);
        self.set_answers(slot, answers);
        slot
    }

    /// Tells which thresholds a mapping has reached that was made without a packet.
    #[cold]
    pub(crate) fn watch_new(&mut self, record: u32, protocol: u8, index: u32) {
        if self.subscribers.is_watched(record) || !self.pool_watches.is_empty() {
            self.watch_mapping(record, protocol, index, false);
        }
    }

    /// Makes a mapping that the subscriber may have, with its first session and with an external
    /// endpoint that is free.
    #[inline(always)]
    pub(super) fn add_dynamic(&mut self, flow: &Flow, external: External, first: Session) -> u32 {
        let kind = quota_class(flow.protocol);
        let pair = flow.pair(external);
        let record = self.count_mapping(flow.record, flow.internal.host, pair, kind);
        self.add_counted(flow, record, external, first)
    }

    /// [`Engine::add_dynamic`] of a mapping that is counted for its subscriber, which has this
    /// record.
    #[inline(always)]
    pub(super) fn add_counted(
        &mut self,
        flow: &Flow,
        record: u32,
        external: External,
        first: Session,
    ) -> u32 {
        let Flow { protocol, internal, timeouts, hash, overloads, tick, .. } = *flow;
        let External { index, port } = external;
        let is_unanswered = self.subscribers.is_unanswered(record);
        let is_watched = self.subscribers.is_watched(record) || !self.pool_watches.is_empty();
        let address = self.external.address(index);
        let new = NewMapping {
            protocol,
            internal,
            external,
            timeouts,
            is_static: false,
            permanent: false,
            flags: if overloads { SHARED_EXTERNAL | SHARED_INTERNAL } else { 0 },
        };
        let slot = self.install(new, hash, tick, first);
        let of_address = self.external.count(index, place_of(protocol));
        self.note_made(protocol, of_address);
        self.note_change(slot);
        if is_unanswered {
            self.note_unanswered(record, slot, of_address);
        }
        if self.external.told(protocol, index, port) == OwnershipSource::Mapping {
            let external = Endpoint::new(address, port);
            let id = MappingId::new(protocol, internal, external, MappingKind::Dynamic);
            self.raise(self.now, Change::MappingCreated(id));
        }
        if is_watched {
            self.watch_mapping(record, protocol, index, overloads);
        }
        slot
    }

    /// Counts a mapping of a subscriber more; a host without a record gets one, and is unanswered.
    #[inline(always)]
    pub(crate) fn count_mapping(
        &mut self,
        record: Option<u32>,
        host: Host,
        pair: (usize, Option<u32>),
        kind: usize,
    ) -> u32 {
        let at = self.subscribers.count(record, host, pair, kind, self.now);
        if record.is_none() {
            self.subscribers.enter_unanswered(at);
        }
        at
    }

    /// Chooses an external endpoint for a mapping towards no remote endpoint yet, and assigns the
    /// block that it takes.
    pub(crate) fn take_external(
        &mut self,
        wish: Wish,
        subscriber: Host,
    ) -> Result<External, DropReason> {
        let (remote, mut generator) = (AddressPort::new(0, 0), self.generator.clone());
        let chosen = self.choose_external(wish, subscriber, remote, &mut generator, &mut Silent);
        self.generator = generator;
        let chosen = chosen?;
        self.take_block(chosen.block, subscriber, wish.pool);
        Ok(chosen.external)
    }

    /// Assigns a subscriber the block of a pool, if any, that its new mapping takes a port of.
    pub(super) fn take_block(&mut self, block: Option<u32>, subscriber: Host, pool: usize) {
        if let Some(block) = block {
            self.external.assign(block, subscriber);
            self.external.note_assigned(block, self.present_tick());
            self.raise(self.now, Change::BlockAssigned(self.external.block(block)));
            self.watch_pool(pool, BLOCKS, 1);
        }
    }

    /// Puts a new mapping with its first session into the table, which has room; `hash` is that of
    /// its key, `tick` the present one.
    #[inline(always)]
    fn install(&mut self, new: NewMapping, hash: u64, tick: u32, first: Session) -> u32 {
        let slot = self.table.add_timed(new, (first, tick), hash, self.tick);
        let slot = slot.expect("the table has room");
        if new.flags & SHARED_EXTERNAL != 0 {
            self.join_port(new.protocol, new.external, slot);
        } else if has_ports(new.protocol) {
            self.external.take(new.protocol, new.external.index, new.external.port, slot);
        } else if !new.is_static {
            self.external.begin_portless(new.external.index);
        }
        slot
    }

    /// Makes the mapping for one port of an address that is mapped as a whole, which a decision
    /// has found possible.
    pub(super) fn add_whole(
        &mut self,
        whole: &WholeMapping,
        remote: AddressPort,
        way: Way,
        headers: &Headers,
    ) -> u32 {
        let WholeMapping { internal, external, .. } = *whole;
        let protocol = headers.protocol;
        if has_ports(protocol) {
            self.clear_end(protocol, external);
        }
        let is_counted = self.statics.count(external.index, protocol);
        assert!(is_counted, "a decision found room for a mapping of a whole address");
        let session = self.new_session(remote, way, headers, 0);
        let hash = self.table.hash(self.table.static_key(protocol, internal, remote));
        let (new, tick) = (whole.as_new(protocol), self.present_tick());
        let slot = self.install(new, hash, tick, session);
        self.note_change(slot);
        self.note_answers(slot, way);
        slot
    }

    /// A session as its first packet makes it, of a mapping with this set of timeouts.
    pub(super) fn new_session(
        &self,
        remote: AddressPort,
        way: Way,
        headers: &Headers,
        timeouts: u8,
    ) -> Session {
        let mut session = Session::new(remote);
        let idle = begin(&mut session, way, headers);
        session.count(way);
        let timeout = self.timeouts.of(timeouts, idle, headers.protocol, remote.port);
        session.expires = self.deadline(self.now, timeout);
        session
    }

    /// Adds a session to a mapping, of a subscriber with this record if it is a dynamic one, which
    /// [`Engine::check_session`] permits.
    pub(crate) fn add_session(
        &mut self,
        (slot, record): (u32, Option<u32>),
        remote: AddressPort,
        way: Way,
        headers: &Headers,
    ) {
        let mapping = self.table.mapping(slot);
        let (is_static, timeouts) = (mapping.is_static(), mapping.timeouts());
        let mut session = self.new_session(remote, way, headers, timeouts);
        if way == Way::In && !self.config.inbound_refresh && !is_static {
            // Otherwise, remote endpoints could keep the mapping by ever new sessions.
            if session.state() == State::Established {
                session.set_state(State::Transitory);
            }
            let sessions = self.table.sessions(slot).map(|at| self.table.session(at).expires);
            let latest = sessions.chain(self.held_at_most(slot)).max();
            session.expires = session.expires.min(latest.unwrap_or(u32::MAX));
        }
        let session = self.table.add_session(slot, session, way);
        let session = session.expect("a decision found room for a session");
        self.note_change(slot);
        if let (SessionRef::Further(_), Some(at)) = (session, record) {
            self.subscribers.count_further(at, 1);
            if self.subscribers.is_watched(at) {
                self.watch_subscriber(at, SESSIONS);
            }
        }
        self.table.schedule(session, self.tick);
        if way == Way::Out && record.is_some_and(|at| self.subscribers.is_unanswered(at)) {
            self.table.session_mut(session).mark_unanswered();
        }
        if session == SessionRef::First(slot) {
            self.note_answers(slot, way);
        }
    }

    /// A session is there now whose remote endpoint is seen as this.
    #[inline]
    pub(crate) fn begun(&mut self, slot: u32, remote: AddressPort, seen: AddressPort) {
        self.note_seen(slot, remote, seen);
        if self.config.session_events {
            self.tell_begun(slot, remote, seen);
        }
    }

    #[cold]
    pub(super) fn tell_begun(&mut self, slot: u32, remote: AddressPort, seen: AddressPort) {
        let id = self.name_of_session(slot, remote, seen);
        self.raise(self.now, Change::SessionCreated(id));
    }

    /// Counts a packet of a session, moves its state and restarts its timer as it is due.
    #[inline]
    pub(super) fn refresh(&mut self, at: SessionRef, way: Way, headers: &Headers) {
        let session = self.table.session_mut(at);
        session.count(way);
        let before = session.state();
        let was_unanswered = session.is_unanswered();
        let idle = step(session, way, headers);
        let is_other = session.state() != before;
        if is_other && self.pair.is_some() {
            self.note_change(self.table.mapping_of(at));
        }
        if was_unanswered {
            self.note_answer(at, way);
        } else if before == State::OpeningIn && way == Way::Out {
            self.note_service(at);
        }
        if !is_refreshed(idle, way, self.config.inbound_refresh) {
            if before == State::Transitory {
                // Only the inside brings back what is about to go.
                self.table.session_mut(at).set_state(before);
            }
            return;
        }
        let remote_port = self.table.session(at).remote().port;
        let timeouts = self.table.mapping(self.table.mapping_of(at)).timeouts();
        let timeout = self.timeouts.of(timeouts, idle, headers.protocol, remote_port);
        let expires = self.deadline(self.now, timeout);
        let session = self.table.session_mut(at);
        let sooner = expires < session.expires;
        session.expires = expires;
        if sooner {
            // A timer that fires too early only looks again; one too late would be wrong.
            self.table.schedule(at, self.tick);
        }
    }
}

/// Moves the state of a session as its first packet does; says which timer starts.
#[inline]
pub(super) fn begin(session: &mut Session, way: Way, headers: &Headers) -> Idle {
    if !matches!(headers.kind, Kind::Tcp | Kind::Dccp) {
        session.set_state(State::Open);
    }
    step(session, way, headers)
}

/// Moves the state of a session as a packet does; says which timer starts.
#[inline]
pub(super) fn step(session: &mut Session, way: Way, headers: &Headers) -> Idle {
    match headers.kind {
        Kind::Tcp => session.take_segment(way, headers.segment),
        Kind::Dccp => session.take_dccp(way, headers.segment),
        _ => Idle::Established,
    }
}

/// True if the timer of an existing session starts anew.
#[inline]
pub(super) fn is_refreshed(idle: Idle, way: Way, inbound_refresh: bool) -> bool {
    //= rfc4787#REQ-6
    //= rfc4787#REQ-6a
    let refreshes = way == Way::Out || inbound_refresh || idle == Idle::Closing;
    idle != Idle::Keep && refreshes
}
