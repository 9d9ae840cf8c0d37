//! The mappings and sessions that packets go by: found, made within the subscriber's limits,
//! entered, refreshed (sections 3.21 to 3.35, 4.8 to 4.20 and 9 of the specification).

use super::Engine;
use super::watch::BLOCKS;
use crate::class::SESSIONS;
use crate::config::Begun;
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::{Chosen, OwnershipSource, Wish};
use crate::host::Host;
use crate::parse::{Headers, Kind};
use crate::protocols::{has_ports, place_of, quota_class};
use crate::rules::Snat;
use crate::session::{Idle, Session, State, Way};
use crate::table::{NewMapping, SHARED_EXTERNAL, SHARED_INTERNAL, SessionRef};
use crate::whole::flags_of;
use crate::{Change, DropReason, MappingKind};
use natgate_wire::tcp::flags::RST;

/// Where an inbound packet goes: the mapping, and the session if there is one already.
#[derive(Clone, Copy, Debug)]
pub(super) enum InboundMatch {
    Mapping(u32, Option<SessionRef>),
    /// A whole address is mapped; the mapping for this port is yet to be made: its host, and who
    /// begins its sessions.
    Whole(Host, Begun),
}

/// A flow that a subscriber begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) protocol: u8,
    pub(super) internal: Internal,
    /// The pool that its external endpoint comes from.
    pub(super) pool: usize,
    /// Whether a rule chose its external address.
    pub(super) fixed: bool,
    /// The rule's set of timeouts.
    pub(super) timeouts: u8,
    /// The subscriber's record, if it has one.
    pub(super) record: Option<u32>,
    /// The hash of its key.
    pub(super) hash: u64,
    /// Whether it shares a port that is in use.
    pub(super) overloads: bool,
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
    /// The mapping that a packet from inside goes out by, made if need be, its session refreshed.
    pub(super) fn outbound(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        snat: Snat,
    ) -> Result<u32, DropReason> {
        let remote = headers.remote_outbound();
        let Some(slot) = self.find_internal(headers.protocol, headers.internal(), remote) else {
            let slot = self.outbound_new(bytes, headers, snat, remote)?;
            self.begun(slot, remote, headers.remote_seen());
            return Ok(slot);
        };
        match self.table.find_session(slot, remote) {
            Some(session) => {
                self.check_seen(slot, remote, headers.remote_seen())?;
                self.refresh(session, Way::Out, headers);
            }
            None => {
                self.may_open(headers)?;
                self.check_room_to_see(remote, headers.remote_seen())?;
                self.add_session(slot, remote, Way::Out, headers)?;
                self.begun(slot, remote, headers.remote_seen());
            }
        }
        Ok(slot)
    }

    #[cold]
    fn outbound_new(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        snat: Snat,
        remote: AddressPort,
    ) -> Result<u32, DropReason> {
        self.may_open(headers)?;
        self.check_room_to_see(remote, headers.remote_seen())?;
        if let Some((index, begun)) = self.statics.external(headers.host(), headers.protocol) {
            let external = External::new(index, headers.source.port);
            let whole = WholeMapping { internal: headers.internal(), external, begun };
            let added = self.add_whole(whole, remote, Way::Out, headers);
            if added == Err(DropReason::MappingTableFull) {
                self.refuse(bytes, headers);
            }
            return added;
        }
        if headers.kind == (Kind::IcmpQuery { request: false }) {
            return Err(DropReason::NoMapping);
        }
        let made = self.make_mapping(headers, snat, remote);
        if let Err(reason) = made {
            self.report_refusal(reason, headers.host(), snat.pool, headers.protocol);
            //= rfc5508#REQ-8
            //= rfc6888#REQ-11b
            if reason != DropReason::Ambiguous {
                self.refuse(bytes, headers);
            }
        }
        made
    }

    /// Makes a mapping within the subscriber's limits.
    fn make_mapping(
        &mut self,
        headers: &Headers,
        snat: Snat,
        remote: AddressPort,
    ) -> Result<u32, DropReason> {
        let (protocol, internal, pool) = (headers.protocol, headers.internal(), snat.pool);
        let record = self.subscribers.find(internal.host);
        if let Some(at) = record {
            self.subscribers.settle(at);
        }
        let known = record.is_some_and(|at| self.subscribers.has(at, pool));
        self.check_limits(record, internal.host, known, protocol)?;
        let last = record.and_then(|at| self.subscribers.paired(at, pool));
        let paired = last.filter(|&index| self.external.is_open(index, pool));
        let wish = Wish {
            pool,
            protocol,
            internal_port: internal.port,
            paired: self.external.pairing(pool, internal.host, paired),
            fixed: match snat.address {
                // An address that is not of its pool, or not yet, has no port.
                Some(address) => {
                    let index = self.external.index(address.to_bits());
                    let index = index.filter(|&index| self.external.pool_of(index) == pool);
                    Some(index.ok_or(DropReason::PoolExhausted)?)
                }
                None => None,
            },
        };
        let (external, overloads) = match self.choose_external(wish, internal.host, remote) {
            Ok(external) => (external, false),
            Err(reason) => (self.overload(wish, internal.host, remote).ok_or(reason)?, true),
        };
        let hash = self.table.hash(self.table.key(protocol, internal, remote));
        let session = self.new_session(remote, Way::Out, headers, snat.timeouts);
        let fixed = snat.address.is_some();
        if let Some(at) = record.filter(|_| paired != last && !fixed) {
            // Paired anew, with the address of this mapping.
            self.subscribers.part(at, pool);
        }
        let timeouts = snat.timeouts;
        let flow = Flow { protocol, internal, pool, fixed, timeouts, record, hash, overloads };
        Ok(self.add_dynamic(&flow, external, |first| *first = session))
    }

    /// Makes a mapping with the session that these headers would begin, whose ends are settled.
    #[cold]
    pub(crate) fn open(&mut self, opening: Opening, headers: &Headers) -> u32 {
        let Opening { internal, remote, external, snat } = opening;
        let Snat { pool, address, timeouts } = snat;
        let protocol = headers.protocol;
        let hash = self.table.hash(self.table.key(protocol, internal, remote));
        let session = self.new_session(remote, Way::Out, headers, timeouts);
        let record = self.subscribers.find(internal.host);
        let (fixed, overloads) = (address.is_some(), false);
        let flow = Flow { protocol, internal, pool, fixed, timeouts, record, hash, overloads };
        let slot = self.add_dynamic(&flow, external, |first| *first = session);
        let answers = self.first_answers(slot);
        self.table.set_answers(slot, answers);
        slot
    }

    /// Tells which thresholds a mapping has reached that was made without a packet.
    #[cold]
    pub(crate) fn watch_new(&mut self, record: u32, protocol: u8, index: u32) {
        if self.subscribers.is_watched(record) || !self.pool_watches.is_empty() {
            self.watch_mapping(record, protocol, index, false);
        }
    }

    /// Whether a subscriber with this record, if it has one, may have one more mapping of a
    /// protocol now; `known`: it has mappings of the pool already.
    pub(crate) fn check_limits(
        &self,
        record: Option<u32>,
        subscriber: Host,
        known: bool,
        protocol: u8,
    ) -> Result<(), DropReason> {
        self.subscribers.check(record, subscriber, quota_class(protocol), self.now)?;
        //= rfc6888#REQ-11a
        if self.table.is_full(protocol) || !known && self.subscribers.is_full(record.is_none()) {
            return Err(DropReason::MappingTableFull);
        }
        Ok(())
    }

    /// Makes a mapping that the subscriber may have, with an external endpoint that is free; `open`
    /// makes its first session.
    #[inline(always)]
    pub(super) fn add_dynamic(
        &mut self,
        flow: &Flow,
        External { index, port }: External,
        open: impl FnOnce(&mut Session),
    ) -> u32 {
        let Flow { protocol, internal, pool, fixed, timeouts, record, hash, overloads } = *flow;
        self.external.count(index, place_of(protocol));
        let pair = (pool, (!fixed).then_some(index));
        let kind = quota_class(protocol);
        self.note_made(protocol, index);
        let record = self.count_mapping(record, internal.host, pair, kind);
        let new = NewMapping {
            protocol,
            internal,
            external: External::new(index, port),
            timeouts,
            is_static: false,
            permanent: false,
            flags: if overloads { SHARED_EXTERNAL | SHARED_INTERNAL } else { 0 },
        };
        let slot = self.install(new, hash, open);
        if self.subscribers.is_unanswered(record) {
            self.note_unanswered(record, slot);
        }
        if self.external.told(protocol, index, port) == OwnershipSource::Mapping {
            let id =
                self.id_of(protocol, internal, External::new(index, port), MappingKind::Dynamic);
            self.raise(self.now, Change::MappingCreated(id));
        }
        if self.subscribers.is_watched(record) || !self.pool_watches.is_empty() {
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
            self.subscribers.enter_unanswered(at, self.now);
        }
        at
    }

    pub(crate) fn choose_external(
        &mut self,
        wish: Wish,
        subscriber: Host,
        remote: AddressPort,
    ) -> Result<External, DropReason> {
        let protocol = wish.protocol;
        if has_ports(protocol) {
            if !self.external.is_shared(wish.pool) {
                return self.choose_share(wish, subscriber);
            }
            let chosen =
                self.external.choose(wish, self.subscribers.tenants(), &mut self.generator);
            return chosen.ok_or(DropReason::PoolExhausted);
        }
        let (table, external) = (&self.table, &self.external);
        let is_free = |index| {
            table
                .find_shared_external(
                    protocol,
                    External::new(index, 0),
                    AddressPort::new(remote.address, 0),
                )
                .is_none()
        };
        let index = external.choose_portless(&wish, &mut self.generator, is_free);
        Ok(External::new(index.ok_or(DropReason::Ambiguous)?, 0))
    }

    /// An external endpoint of those that a subscriber alone may have.
    fn choose_share(&mut self, wish: Wish, subscriber: Host) -> Result<External, DropReason> {
        let Chosen { external, assigned } =
            self.external.choose_share(wish, subscriber, &mut self.generator)?;
        if let Some(block) = assigned {
            self.external.note_assigned(block, self.present_tick());
            self.raise(self.now, Change::BlockAssigned(self.external.block(block)));
            self.watch_pool(wish.pool, BLOCKS, 1);
        }
        Ok(external)
    }

    /// Puts a new mapping with its first session into the table, which has room; `hash` is that of
    /// its key.
    #[inline(always)]
    fn install(&mut self, new: NewMapping, hash: u64, open: impl FnOnce(&mut Session)) -> u32 {
        let created = self.present_tick();
        let slot = self.table.add(new, open, created, hash).expect("the table has room");
        self.table.start(slot, self.tick);
        if new.flags & SHARED_EXTERNAL != 0 {
            self.join_port(new.protocol, new.external, slot);
        } else if has_ports(new.protocol) {
            self.external.take(new.protocol, new.external.index, new.external.port, slot);
        }
        slot
    }

    /// Makes the mapping for one port of an address that is mapped as a whole.
    pub(super) fn add_whole(
        &mut self,
        WholeMapping { internal, external, begun }: WholeMapping,
        remote: AddressPort,
        way: Way,
        headers: &Headers,
    ) -> Result<u32, DropReason> {
        let protocol = headers.protocol;
        let new = NewMapping {
            protocol,
            internal,
            external,
            timeouts: 0,
            is_static: true,
            permanent: false,
            flags: flags_of(begun),
        };
        if has_ports(protocol) {
            self.clear_end(protocol, external);
        }
        if self.table.clashes(&new, remote) {
            return Err(DropReason::Ambiguous);
        }
        if !self.statics.count(external.index, protocol) {
            return Err(DropReason::MappingTableFull);
        }
        let session = self.new_session(remote, way, headers, 0);
        let hash = self.table.hash(self.table.static_key(protocol, internal, remote));
        let slot = self.install(new, hash, |first| *first = session);
        let answers = way == Way::Out || self.first_answers(slot);
        self.table.set_answers(slot, answers);
        Ok(slot)
    }

    /// Whether a packet may start a session: of TCP only a SYN, unless flows are picked up.
    pub(super) fn may_open(&self, headers: &Headers) -> Result<(), DropReason> {
        let segment = headers.segment;
        let picked_up = self.config.tcp_pickup && segment.flags & RST == 0;
        let connects = matches!(headers.kind, Kind::Tcp | Kind::Dccp);
        if !connects || segment.opens() || picked_up { Ok(()) } else { Err(DropReason::TcpNotSyn) }
    }

    /// A session as its first packet makes it, of a mapping with this set of timeouts.
    fn new_session(
        &self,
        remote: AddressPort,
        way: Way,
        headers: &Headers,
        timeouts: u8,
    ) -> Session {
        let mut session = Session::new(remote);
        let idle = match headers.kind {
            Kind::Tcp => session.take_segment(way, headers.segment),
            Kind::Dccp => session.take_dccp(way, headers.segment),
            _ => {
                session.set_state(State::Open);
                Idle::Established
            }
        };
        session.count(way);
        let timeout = self.timeouts.of(timeouts, idle, headers.protocol, remote.port);
        session.expires = self.deadline(self.now, timeout);
        session
    }

    pub(crate) fn add_session(
        &mut self,
        slot: u32,
        remote: AddressPort,
        way: Way,
        headers: &Headers,
    ) -> Result<(), DropReason> {
        if self.table.is_ambiguous(slot, remote) {
            return Err(DropReason::Ambiguous);
        }
        //= rfc7857#section-7
        //= rfc7857#section-7-tcp
        let mapping = self.table.mapping(slot);
        let (is_static, internal) = (mapping.is_static(), mapping.host());
        let timeouts = mapping.timeouts();
        let subscriber = match is_static {
            true => None,
            false => self.subscribers.find(internal),
        };
        if let Some(at) = subscriber {
            self.subscribers.settle(at);
        }
        //= rfc6888#REQ-5
        let permitted = match subscriber {
            Some(at) => self.subscribers.permits_session(at, mapping.sessions, self.further_each),
            // Who runs a server has asked for its clients.
            None => mapping.sessions < u16::MAX,
        };
        if !permitted {
            return Err(DropReason::SessionLimit);
        }
        let mut session = self.new_session(remote, way, headers, timeouts);
        if way == Way::In && !self.config.inbound_refresh && !is_static {
            // Else strangers would keep the mapping by ever new sessions.
            if session.state() == State::Established {
                session.set_state(State::Transitory);
            }
            let sessions = self.table.sessions(slot).map(|at| self.table.session(at).expires);
            let latest = sessions.chain(self.held_at_most(slot)).max();
            session.expires = session.expires.min(latest.unwrap_or(u32::MAX));
        }
        let session =
            self.table.add_session(slot, session, way).ok_or(DropReason::SessionTableFull)?;
        if let (SessionRef::Further(_), Some(at)) = (session, subscriber) {
            self.subscribers.count_further(at, 1);
            if self.subscribers.is_watched(at) {
                self.watch_subscriber(at, SESSIONS);
            }
        }
        self.table.schedule(session, self.tick);
        if way == Way::Out && subscriber.is_some_and(|at| self.subscribers.is_unanswered(at)) {
            self.table.session_mut(session).mark_unanswered();
        }
        if session == SessionRef::First(slot) {
            let answers = way == Way::Out || self.first_answers(slot);
            self.table.set_answers(slot, answers);
        }
        Ok(())
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
        let idle = match headers.kind {
            Kind::Tcp => session.take_segment(way, headers.segment),
            Kind::Dccp => session.take_dccp(way, headers.segment),
            _ => Idle::Established,
        };
        if was_unanswered {
            self.note_answer(at, way);
        } else if before == State::OpeningIn && way == Way::Out {
            self.note_service(at);
        }
        //= rfc4787#REQ-6
        //= rfc4787#REQ-6a
        let refreshes = way == Way::Out || self.config.inbound_refresh || idle == Idle::Closing;
        if idle == Idle::Keep || !refreshes {
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
