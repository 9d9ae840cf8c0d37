//! The mappings and sessions that a packet would go by: `mappings.rs` for reading alone.

use super::walk::Walk;
use super::{AddressChoice, Step, endpoint};
use crate::config::{Behavior, Config, Refusal};
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::Wish;
use crate::host::Host;
use crate::limits::{Limit, LimitOwner, Standing};
use crate::parse::Kind;
use crate::protocols::{has_ports, quota_class};
use crate::respond::Message;
use crate::rules::Snat;
use crate::session::{Idle, Session, State, Way};
use crate::table::{NewMapping, SessionRef};
use crate::translate::mappings::{Arrival, InboundMatch, WholeMapping};
use crate::translate::overload::find_shared;
use crate::translate::with_port;
use crate::whole::flags_of;
use crate::{Begun, DropReason, Pooling, Timestamp};
use core::net::Ipv4Addr;

/// How a packet from inside would go out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The external endpoint that it would have, drawn with a copy of the generator if it is new.
    pub(super) source: AddressPort,
    /// Whether a mapping or a session would be made.
    pub(super) is_new: bool,
}

/// A new mapping that was found possible.
struct Chosen {
    external: External,
    why: AddressChoice,
    /// Its port, if that is known.
    port: Option<u16>,
}

impl Walk<'_> {
    pub(super) fn note_mapping(&mut self, slot: u32) {
        let info = self.engine.describe(slot);
        self.note(Step::Mapping { id: info.id, sessions: info.sessions, expires: info.expires });
    }

    fn note_standing(&mut self, whose: LimitOwner, limit: Limit, used: u64, most: u64) {
        let standing = Standing { limit, used, most: Some(most) };
        self.note(Step::Standing { whose, standing, permits: used < most });
    }

    // ---- out ----

    pub(super) fn outbound(&mut self, snat: Snat) -> Result<Sent, DropReason> {
        let (engine, headers) = (self.engine, self.headers);
        let remote = headers.remote_outbound();
        let found = engine.look_up_internal(headers.protocol, headers.internal(), remote);
        let Some(slot) = found else {
            self.note(Step::NoMapping);
            let source = self.outbound_new(snat, remote)?;
            return Ok(Sent { source, is_new: true });
        };
        self.note_mapping(slot);
        let source = engine.external_of(slot);
        match engine.table.find_session(slot, remote) {
            Some(session) => {
                engine.check_seen(slot, remote, headers.remote_seen())?;
                self.refresh(session, Way::Out);
                Ok(Sent { source, is_new: false })
            }
            None => {
                self.note(Step::NoSession(endpoint(remote)));
                self.may_open()?;
                engine.check_room_to_see(remote, headers.remote_seen())?;
                self.add_session(slot, remote, Way::Out)?;
                Ok(Sent { source, is_new: true })
            }
        }
    }

    fn outbound_new(&mut self, snat: Snat, remote: AddressPort) -> Result<AddressPort, DropReason> {
        let (engine, headers) = (self.engine, self.headers);
        self.may_open()?;
        engine.check_room_to_see(remote, headers.remote_seen())?;
        if let Some((index, begun)) = engine.statics.external(headers.host(), headers.protocol) {
            let address = engine.external.address(index);
            self.note(Step::Whole(Ipv4Addr::from_bits(address)));
            let external = External::new(index, headers.source.port);
            let whole = WholeMapping { internal: headers.internal(), external, begun };
            let added = self.add_whole(whole, remote, Way::Out);
            if added == Err(DropReason::MappingTableFull) {
                self.refuse();
            }
            return added.map(|()| AddressPort::new(address, headers.source.port));
        }
        if headers.kind == (Kind::IcmpQuery { request: false }) {
            return Err(DropReason::NoMapping);
        }
        let made = self.make_mapping(snat, remote);
        if made.is_err_and(|reason| reason != DropReason::Ambiguous) {
            self.refuse();
        }
        made
    }

    fn refuse(&mut self) {
        match self.engine.config.refusal {
            Refusal::HostUnreachable => self.answer(Message::HOST_UNREACHABLE),
            Refusal::Prohibited => self.answer(Message::PROHIBITED),
            Refusal::Silent => {}
        }
    }

    fn make_mapping(&mut self, snat: Snat, remote: AddressPort) -> Result<AddressPort, DropReason> {
        let (engine, headers) = (self.engine, self.headers);
        let (protocol, internal, pool) = (headers.protocol, headers.internal(), snat.pool);
        let record = engine.subscribers.find(internal.host);
        let known = record.is_some_and(|at| engine.subscribers.has(at, pool));
        self.check_limits(record, internal.host, known)?;
        let has_ports = has_ports(protocol);
        let place = || crate::protocols::protocol_index(protocol);
        let free = has_ports.then(|| engine.external.free_of(pool, place()));
        self.note(Step::Pool { pool, free });
        let last = record.and_then(|at| engine.subscribers.paired(at, pool));
        let paired = last.filter(|&index| engine.external.is_open(index, pool));
        let fixed = match snat.address {
            Some(address) => {
                let index = engine.external.index(address.to_bits());
                let index = index.filter(|&index| engine.external.pool_of(index) == pool);
                Some(index.ok_or(DropReason::PoolExhausted)?)
            }
            None => None,
        };
        let paired = engine.external.pairing(pool, internal.host, paired);
        let wish = Wish { pool, protocol, internal_port: internal.port, paired, fixed };
        let chosen = match self.choose_external(wish, internal.host, remote) {
            Ok(chosen) => chosen,
            Err(reason) => self.overload(wish, internal.host, remote).ok_or(reason)?,
        };
        let address = engine.external.address(chosen.external.index);
        let is_drawn = chosen.why == AddressChoice::Drawn;
        let told = (!is_drawn).then_some(Ipv4Addr::from_bits(address));
        self.note(Step::Address { why: chosen.why, address: told });
        if has_ports {
            self.note(Step::Port(chosen.port));
        }
        self.drawn = (is_drawn, has_ports && chosen.port.is_none());
        self.new_session(remote, Way::Out, snat.timeouts);
        Ok(AddressPort::new(address, chosen.external.port))
    }

    fn check_limits(
        &mut self,
        record: Option<u32>,
        subscriber: Host,
        known: bool,
    ) -> Result<(), DropReason> {
        let (engine, protocol) = (self.engine, self.headers.protocol);
        let (kind, now) = (quota_class(protocol), self.now);
        let (class, has) = engine.subscribers.class_and_holding(record, subscriber);
        let verdict = engine.subscribers.check(record, subscriber, kind, now);
        let whose =
            [LimitOwner::Subscriber, LimitOwner::Class(usize::from(class).saturating_sub(1))];
        let all = engine.subscribers.classes.standings(class, &has, kind, now);
        for (whose, standings) in whose.into_iter().zip(all) {
            for standing in standings.into_iter().flatten() {
                let permits = standing.most.is_none_or(|most| standing.used < most);
                self.note(Step::Standing { whose, standing, permits });
            }
        }
        verdict?;
        let (count, room) =
            (engine.table.count_dynamic_mappings(), engine.table.room_for_dynamic());
        self.note_standing(LimitOwner::Gateway, Limit::Mappings, count as u64, room as u64);
        let (present, room) = engine.subscribers.counts();
        if record.is_none() {
            self.note_standing(
                LimitOwner::Gateway,
                Limit::Subscribers,
                present as u64,
                room as u64,
            );
        }
        if engine.table.is_full(protocol) || !known && engine.subscribers.is_full(record.is_none())
        {
            return Err(DropReason::MappingTableFull);
        }
        Ok(())
    }

    fn choose_external(
        &mut self,
        wish: Wish,
        subscriber: Host,
        remote: AddressPort,
    ) -> Result<Chosen, DropReason> {
        let (engine, generator) = (self.engine, &mut self.generator);
        let protocol = wish.protocol;
        // Else it may be the same by chance.
        let is_paired = engine.config.pooling != Pooling::Arbitrary;
        let why = |index: u32, is_share: bool| match wish {
            Wish { fixed: Some(_), .. } => AddressChoice::Rule,
            _ if is_share => AddressChoice::Share,
            Wish { paired: Some(paired), .. } if is_paired && paired == index => {
                AddressChoice::Paired
            }
            _ => AddressChoice::Drawn,
        };
        if !has_ports(protocol) {
            let is_free = |index| {
                engine
                    .table
                    .find_shared_external(
                        protocol,
                        External::new(index, 0),
                        AddressPort::new(remote.address, 0),
                    )
                    .is_none()
            };
            let index = engine.external.choose_portless(&wish, generator, is_free);
            let index = index.ok_or(DropReason::Ambiguous)?;
            return Ok(Chosen {
                external: External::new(index, 0),
                why: why(index, false),
                port: None,
            });
        }
        if engine.external.is_shared(wish.pool) {
            let tenants = engine.subscribers.tenants();
            let external = engine.external.choose(wish, tenants, generator);
            let external = external.ok_or(DropReason::PoolExhausted)?;
            let (why, kept) = (why(external.index, false), engine.external.keeps(&wish));
            // Where the port is kept if it is free, it was if it is the same.
            let port = (kept && why != AddressChoice::Drawn && external.port == wish.internal_port)
                .then_some(external.port);
            return Ok(Chosen { external, why, port });
        }
        if engine.external.has_blocks(wish.pool) {
            let (used, most) = engine.external.blocks_of(wish.pool, subscriber);
            self.note_standing(LimitOwner::Subscriber, Limit::Blocks, used.into(), most.into());
        }
        let chosen = engine.external.try_share(wish, subscriber, &mut self.generator)?;
        let (External { index, port }, block) = chosen;
        if block.is_some() {
            self.note(Step::Block);
        }
        let is_own = block.is_none() && engine.external.is_alone(wish, subscriber, index);
        let why = match block {
            Some(_) => why(index, false),
            None => why(index, is_own),
        };
        Ok(Chosen { external: External::new(index, port), why, port: None })
    }

    fn overload(&mut self, wish: Wish, subscriber: Host, remote: AddressPort) -> Option<Chosen> {
        let engine = self.engine;
        let parts = (&engine.table, &engine.external);
        let generator = &mut self.generator;
        if engine.config.pools[wish.pool].overloading {
            // Only so many ports are looked at, from a random one on.
            self.told.is_certain = false;
        }
        let external = find_shared(&engine.config, parts, (wish, subscriber), remote, generator)?;
        self.note(Step::Overload);
        Some(Chosen { external, why: AddressChoice::Drawn, port: None })
    }

    fn add_whole(
        &mut self,
        WholeMapping { internal, external, begun }: WholeMapping,
        remote: AddressPort,
        way: Way,
    ) -> Result<(), DropReason> {
        let (engine, protocol) = (self.engine, self.headers.protocol);
        let new = NewMapping {
            protocol,
            internal,
            external,
            timeouts: 0,
            is_static: true,
            permanent: false,
            flags: flags_of(begun),
        };
        if engine.table.clashes(&new, remote) {
            return Err(DropReason::Ambiguous);
        }
        let (used, most) = engine.statics.standing(external.index, protocol);
        self.note_standing(LimitOwner::Static, Limit::Mappings, used.into(), most.into());
        if used >= most {
            return Err(DropReason::MappingTableFull);
        }
        self.new_session(remote, way, 0);
        Ok(())
    }

    // ---- in ----

    pub(super) fn admit(&mut self, arrival: Arrival) -> Result<InboundMatch, DropReason> {
        let Arrival { index, port, remote, seen, .. } = arrival;
        let (engine, headers) = (self.engine, self.headers);
        let protocol = headers.protocol;
        let Some(slot) = engine.look_up_external(protocol, External::new(index, port), remote)
        else {
            let whole = engine.statics.internal(index, protocol);
            let Some((internal, begun)) = whole else {
                self.note(Step::NoMapping);
                return Err(DropReason::NoMapping);
            };
            self.note(Step::Whole(Ipv4Addr::from_bits(engine.external.address(index))));
            engine.check_entrance(arrival, internal.realm(), false)?;
            self.check_dropped(Internal::new(internal, port), seen)?;
            self.note_filter((true, false), begun != Begun::Inside);
            if begun == Begun::Inside {
                return Err(DropReason::Filtered);
            }
            self.may_open()?;
            self.check_unseen(Internal::new(internal, port), remote, seen)?;
            return Ok(InboundMatch::Whole(internal, begun));
        };
        let session = engine.table.find_session(slot, remote);
        let slot = match session {
            Some(_) => slot,
            None => self.server_for(slot, arrival)?,
        };
        self.note_mapping(slot);
        let mapping = engine.table.mapping(slot);
        let internal = mapping.internal();
        if session.is_none() {
            self.note(Step::NoSession(endpoint(remote)));
            if !mapping.is_static() && mapping.shares_external() {
                self.note_filter((false, false), false);
                return Err(DropReason::Filtered);
            }
        }
        engine.check_entrance(arrival, internal.host.realm(), session.is_some())?;
        self.check_dropped(internal, seen)?;
        if session.is_none() {
            let asked = mapping.is_explicit().then(|| engine.admits_held(slot, seen)).flatten();
            let admitted = match self.behavior() {
                _ if mapping.is_static() => !mapping.is_outbound_only(),
                _ if let Some(admitted) = asked => admitted,
                Behavior::EndpointIndependent => true,
                Behavior::AddressDependent => engine.table.knows_address(slot, remote.address),
                Behavior::AddressAndPortDependent => false,
            };
            self.note_filter((mapping.is_static(), asked.is_some()), admitted);
            if !admitted {
                return Err(DropReason::Filtered);
            }
            self.may_open()?;
            self.check_unseen(internal, remote, seen)?;
        }
        Ok(InboundMatch::Mapping(slot, session))
    }

    fn behavior(&self) -> Behavior {
        let Config { filtering, filtering_tcp, .. } = self.engine.config;
        match self.headers.kind {
            Kind::Tcp | Kind::Dccp => filtering_tcp.unwrap_or(filtering),
            _ => filtering,
        }
    }

    fn note_filter(&mut self, (is_static, is_asked_for): (bool, bool), admitted: bool) {
        let behavior = self.behavior();
        self.note(Step::Filter { behavior, is_static, is_asked_for, admitted });
    }

    fn server_for(&mut self, named: u32, arrival: Arrival) -> Result<u32, DropReason> {
        let mapping = self.engine.table.mapping(named);
        let is_server = mapping.is_static() && mapping.is_permanent() && mapping.shares_external();
        if !is_server {
            return Ok(named);
        }
        self.note(Step::Service);
        // Which of the servers, a draw may tell.
        self.told.is_certain = false;
        let (protocol, remote) = (mapping.protocol, arrival.remote.address);
        let external = External::new(arrival.index, arrival.port);
        let services = &self.engine.services;
        let chosen = services.choose(protocol, external, remote, &mut self.generator);
        chosen.ok_or(DropReason::Filtered)
    }

    /// Whether a rule drops what comes in to an internal endpoint.
    fn check_dropped(
        &mut self,
        Internal { host, port }: Internal,
        remote: AddressPort,
    ) -> Result<(), DropReason> {
        let (engine, headers) = (self.engine, self.headers);
        let fate = engine.check_dropped(&headers, Internal::new(host, port), remote);
        if fate.is_err() {
            let realm = host.realm();
            let inner = with_port(&headers, AddressPort::new(host.address(), port));
            let outer = with_port(&headers, remote);
            let ruling = engine.rules_of(realm).find(inner, outer);
            let (inner, outer) = (endpoint(inner), endpoint(outer));
            self.note(Step::Rule { realm, inner, outer, ruling });
        }
        fate
    }

    /// Lets an admitted packet in: to which internal endpoint.
    pub(super) fn enter(
        &mut self,
        arrival: Arrival,
        found: InboundMatch,
    ) -> Result<Internal, DropReason> {
        match found {
            InboundMatch::Mapping(slot, Some(session)) => {
                self.refresh(session, Way::In);
                Ok(self.engine.table.mapping(slot).internal())
            }
            InboundMatch::Mapping(slot, None) => {
                self.add_session(slot, arrival.remote, Way::In)?;
                Ok(self.engine.table.mapping(slot).internal())
            }
            InboundMatch::Whole(internal, begun) => {
                let external = External::new(arrival.index, arrival.port);
                let end = Internal::new(internal, arrival.port);
                let whole = WholeMapping { internal: end, external, begun };
                self.add_whole(whole, arrival.remote, Way::In)?;
                Ok(Internal::new(internal, arrival.port))
            }
        }
    }

    // ---- sessions ----

    fn may_open(&mut self) -> Result<(), DropReason> {
        let opened = self.engine.may_open(&self.headers);
        if matches!(self.headers.kind, Kind::Tcp | Kind::Dccp) {
            self.note(Step::Opens(opened.is_ok()));
        }
        opened
    }

    /// The timer that a packet starts, and the session's state after it.
    fn moved(&self, session: &mut Session, way: Way) -> Idle {
        match self.headers.kind {
            Kind::Tcp => session.take_segment(way, self.headers.segment),
            Kind::Dccp => session.take_dccp(way, self.headers.segment),
            _ => {
                if session.state() == State::None {
                    session.set_state(State::Open);
                }
                Idle::Established
            }
        }
    }

    fn new_session(&mut self, remote: AddressPort, way: Way, timeouts: u8) {
        let mut session = Session::new(remote);
        let idle = self.moved(&mut session, way);
        let protocol = self.headers.protocol;
        let timeout = self.engine.timeouts.of(timeouts, idle, protocol, remote.port);
        self.note(Step::NewSession { remote: endpoint(remote), state: session.state().name() });
        self.note(Step::Timer(timeout));
    }

    fn add_session(&mut self, slot: u32, remote: AddressPort, way: Way) -> Result<(), DropReason> {
        let engine = self.engine;
        if engine.table.is_ambiguous(slot, remote) {
            return Err(DropReason::Ambiguous);
        }
        let mapping = engine.table.mapping(slot);
        let subscriber = match mapping.is_static() {
            true => None,
            false => engine.subscribers.find(mapping.host()),
        };
        let permitted = match subscriber {
            Some(at) => {
                self.note_sessions(at, mapping.host(), mapping.sessions);
                engine.subscribers.permits_session(at, mapping.sessions, engine.further_each)
            }
            None => mapping.sessions < u16::MAX,
        };
        if !permitted {
            return Err(DropReason::SessionLimit);
        }
        if !engine.table.has_room_for_session(slot, remote, way) {
            let room = engine.table.room_for_further(way) as u64;
            self.note_standing(LimitOwner::Gateway, Limit::FurtherSessions, room, room);
            return Err(DropReason::SessionTableFull);
        }
        self.new_session(remote, way, mapping.timeouts());
        Ok(())
    }

    /// Notes what limits one more session of a subscriber's mapping.
    fn note_sessions(&mut self, record: u32, host: Host, of_mapping: u16) {
        let subscribers = &self.engine.subscribers;
        let (class, has) = subscribers.class_and_holding(Some(record), host);
        let most = subscribers.classes.sessions_per_mapping(class);
        let further = (has.further_sessions.into(), self.engine.further_each.into());
        let kind = quota_class(self.headers.protocol);
        let all = subscribers.classes.standings(class, &has, kind, self.now);
        self.note_standing(LimitOwner::Mapping, Limit::Sessions, of_mapping.into(), most.into());
        self.note_standing(LimitOwner::Subscriber, Limit::FurtherSessions, further.0, further.1);
        let whose =
            [LimitOwner::Subscriber, LimitOwner::Class(usize::from(class).saturating_sub(1))];
        for (whose, standings) in whose.into_iter().zip(all) {
            let sessions = standings.into_iter().flatten().find(|it| it.limit == Limit::Sessions);
            let Some(standing) = sessions.filter(|it| it.most.is_some()) else { continue };
            let permits = standing.most.is_none_or(|most| standing.used < most);
            self.note(Step::Standing { whose, standing, permits });
        }
    }

    fn refresh(&mut self, at: SessionRef, way: Way) {
        let engine = self.engine;
        let before = *engine.table.session(at);
        let mut session = before;
        let idle = self.moved(&mut session, way);
        let refreshes = way == Way::Out || engine.config.inbound_refresh || idle == Idle::Closing;
        let keeps = idle == Idle::Keep || !refreshes;
        if keeps && before.state() == State::Transitory {
            session.set_state(State::Transitory);
        }
        self.note(Step::Session {
            remote: endpoint(before.remote()),
            state: before.state().name(),
            next: session.state().name(),
            expires: Timestamp(engine.time_of(before.expires)),
        });
        if keeps {
            self.note(Step::NotRefreshed);
            return;
        }
        let set = engine.table.mapping(engine.table.mapping_of(at)).timeouts();
        let protocol = self.headers.protocol;
        self.note(Step::Timer(engine.timeouts.of(set, idle, protocol, before.remote().port)));
    }
}
