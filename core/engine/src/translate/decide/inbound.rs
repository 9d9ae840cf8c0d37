//! Packets from outside: filtering (RFC 4787 section 5), the choice of a server, the entry.

use super::{Decided, Decision, Recorder, Step};
use crate::DropReason;
use crate::config::{Begun, Behavior, Config};
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::packet::{Side, Verdict};
use crate::parse::Kind;
use crate::protocols::has_ports;
use crate::session::{State, Way};
use crate::table::{Mapping, SessionRef};
use crate::translate::Engine;
use crate::translate::mappings::{Arrival, WholeMapping};
use crate::translate::plan::{Act, Unsettled};
use crate::translate::transit::is_echo_request;
use crate::translate::with_port;
use core::net::Ipv4Addr;

/// The match of an inbound packet: the mapping, and the session if there is one already.
#[derive(Clone, Copy, Debug)]
pub(super) enum InboundMatch {
    Mapping(u32, Option<SessionRef>),
    /// A whole address is mapped; the mapping for this port is yet to be made: its host, and who
    /// begins its sessions.
    Whole(Host, Begun),
    /// A host has the whole address while it has mappings. The mapping for this port is yet to be
    /// made.
    Owner(Host),
}

impl<R: Recorder> Decision<'_, R> {
    pub(super) fn inbound(&mut self, index: u32) -> Decided<Verdict> {
        let (remote, port) = (self.headers.remote_inbound(), self.headers.destination.port);
        let mut arrival = Arrival { index, port, remote, seen: remote, from: None };
        if self.engine.has_twice() {
            arrival.seen = self.source_inside(arrival)?;
        }
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported.into()),
            Kind::IcmpError => {
                self.error_inbound(arrival.seen)?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let found = self.admit(arrival)?;
        let realm = match found {
            InboundMatch::Mapping(slot, _) => self.engine.table.mapping(slot).host().realm(),
            InboundMatch::Whole(host, _) | InboundMatch::Owner(host) => host.realm(),
        };
        self.check_transit(self.engine.inside_mtu(realm))?;
        self.let_in(arrival, found, None)?;
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Finds the mapping that a packet comes in by and asks the filter.
    pub(super) fn admit(&mut self, arrival: Arrival) -> Decided<InboundMatch> {
        let Arrival { index, port, remote, seen, .. } = arrival;
        let (engine, protocol) = (self.engine, self.headers.protocol);
        //= rfc7857#section-6
        //= rfc7857#section-6-default
        let Some(slot) = self.find_external(protocol, External::new(index, port), remote)? else {
            return self.admit_whole(arrival);
        };
        let session = self.session_of(slot, remote)?;
        if R::KEEPS && session.is_none() && engine.table.find_session(slot, remote).is_some() {
            self.note_mapping(slot);
            self.note(Step::Reopened);
        }
        let slot = match session {
            Some(_) => slot,
            None => self.server_for(slot, arrival)?,
        };
        self.note_mapping(slot);
        let mapping = engine.table.mapping(slot);
        let internal = mapping.internal();
        if session.is_none() {
            self.note_no_session(remote);
            // A mapping that overloads a port is for one remote endpoint only. For other remote
            // endpoints the port has no known owner any more.
            if !mapping.is_static() && mapping.shares_external() {
                self.note_filter((false, false), false);
                return Err(DropReason::Filtered.into());
            }
        }
        self.check_entrance(arrival, internal.host.realm(), session.is_some())?;
        self.check_dropped(internal, seen)?;
        if session.is_none() {
            //= rfc4787#REQ-8
            //= rfc5382#REQ-3
            //= rfc5597#REQ-3
            //= rfc6146#section-3.5.1-filtering
            let asked = mapping.is_explicit().then(|| engine.admits_held(slot, seen)).flatten();
            let admitted = match self.filtering() {
                _ if mapping.is_static() => !mapping.is_outbound_only(),
                _ if let Some(admitted) = asked => admitted,
                Behavior::EndpointIndependent => true,
                Behavior::AddressDependent => engine.table.knows_address(slot, remote.address),
                Behavior::AddressAndPortDependent => false,
            };
            self.note_filter((mapping.is_static(), asked.is_some()), admitted);
            if !admitted {
                return Err(DropReason::Filtered.into());
            }
            self.may_open()?;
            self.check_unseen(internal, remote, seen)?;
        }
        Ok(InboundMatch::Mapping(slot, session))
    }

    /// Admits a packet without a mapping: its whole external address may be mapped.
    fn admit_whole(&mut self, arrival: Arrival) -> Decided<InboundMatch> {
        let Arrival { index, port, remote, seen, .. } = arrival;
        let engine = self.engine;
        let Some((host, begun)) = engine.statics.internal(index, self.headers.protocol) else {
            if let Some(host) = engine.external.host_of_whole(index) {
                return self.admit_to_owner(arrival, host);
            }
            //= rfc6146#section-3.5.1-unknown
            self.note(Step::NoMapping);
            return Err(DropReason::NoMapping.into());
        };
        self.note(Step::Whole(Ipv4Addr::from_bits(engine.external.address(index))));
        let internal = Internal::new(host, port);
        self.check_entrance(arrival, host.realm(), false)?;
        self.check_dropped(internal, seen)?;
        self.note_filter((true, false), begun != Begun::Inside);
        if begun == Begun::Inside {
            return Err(DropReason::Filtered.into());
        }
        self.may_open()?;
        self.check_unseen(internal, remote, seen)?;
        Ok(InboundMatch::Whole(host, begun))
    }

    /// Admits a packet to a port without a mapping, at the address that a host has.
    #[cold]
    fn admit_to_owner(&mut self, arrival: Arrival, host: Host) -> Decided<InboundMatch> {
        let Arrival { index, port, remote, seen, .. } = arrival;
        let (engine, protocol) = (self.engine, self.headers.protocol);
        let is_own = match arrival.from {
            Some(_) => self.is_ping_of_own(),
            None => {
                engine.is_outside_own(engine.external.address(index))
                    && is_echo_request(self.bytes, self.headers)
            }
        };
        if is_own || self.headers.kind == (Kind::IcmpQuery { request: false }) {
            return Err(DropReason::NoMapping.into());
        }
        self.note(Step::Owner(Ipv4Addr::from_bits(engine.external.address(index))));
        let internal = Internal::new(host, port);
        self.check_entrance(arrival, host.realm(), false)?;
        self.check_dropped(internal, seen)?;
        // The host may use the port at an address that it had before, or at one that a static
        // mapping gives it.
        let is_free = engine.external.is_free_whole(protocol, index, port)
            && (has_ports(protocol) || engine.may_begin_portless())
            && engine.statics.external(host, protocol).is_none()
            && self.find_internal(protocol, internal, remote)?.is_none();
        let admitted = is_free
            && engine.config.inbound_refresh
            && self.filtering() == Behavior::EndpointIndependent;
        self.note_filter((false, false), admitted);
        if !admitted {
            return Err(DropReason::Filtered.into());
        }
        self.may_open()?;
        self.check_unseen(internal, remote, seen)?;
        Ok(InboundMatch::Owner(host))
    }

    fn note_filter(&mut self, (is_static, is_asked_for): (bool, bool), admitted: bool) {
        let behavior = self.filtering();
        self.note(Step::Filter { behavior, is_static, is_asked_for, admitted });
    }

    /// The filtering behavior for packets of this kind.
    fn filtering(&self) -> Behavior {
        let Config { filtering, filtering_tcp, .. } = self.engine.config;
        match self.headers.kind {
            //= rfc5382#REQ-3b
            //= rfc5597#REQ-3-independent
            Kind::Tcp | Kind::Dccp => filtering_tcp.unwrap_or(filtering),
            _ => filtering,
        }
    }

    /// The session of a mapping with a remote endpoint. A session in whose place the packet opens a
    /// connection with another server has to end first; an explanation goes on as if it had.
    #[inline]
    pub(super) fn session_of(&self, slot: u32, remote: AddressPort) -> Decided<Option<SessionRef>> {
        match self.engine.table.find_session(slot, remote) {
            Some(session) if self.headers.segment.opens() && self.reopens(slot, session) => {
                if R::KEEPS {
                    Ok(None)
                } else {
                    Err(Unsettled::Reopened(session).into())
                }
            }
            session => Ok(session),
        }
    }

    /// True if a packet from outside that opens a connection goes to another server than that of
    /// this session: the session's connection is over, and its server takes no new sessions. A
    /// server that takes new ones keeps its session, because the server tells segments of the
    /// earlier connection from later ones.
    #[cold]
    fn reopens(&self, slot: u32, session: SessionRef) -> bool {
        let Engine { table, services, .. } = self.engine;
        let mapping = table.mapping(slot);
        table.session(session).state() == State::Closed
            && is_server(mapping)
            && services.is_closed(mapping.protocol, mapping.external(), slot)
    }

    /// The mapping for a new session from outside: for a service, the mapping of the chosen server;
    /// otherwise the mapping that the endpoint named.
    fn server_for(&mut self, named: u32, arrival: Arrival) -> Decided<u32> {
        let engine = self.engine;
        let mapping = engine.table.mapping(named);
        if !is_server(mapping) {
            return Ok(named);
        }
        self.note(Step::Service);
        // A random draw may choose the server.
        self.recorder.doubt();
        let (protocol, remote) = (mapping.protocol, arrival.remote.address);
        let external = External::new(arrival.index, arrival.port);
        self.begin_to_draw();
        let generator = self.draws.as_mut().expect("it was just made");
        let chosen = engine.services.choose(protocol, external, remote, generator);
        Ok(chosen.ok_or(DropReason::Filtered)?)
    }

    /// Checks that a packet may enter the realm of its mapping.
    #[inline]
    fn check_entrance(&self, arrival: Arrival, realm: u16, in_session: bool) -> Decided<()> {
        match arrival.from {
            Some(from) => self.engine.check_realms(from, realm, in_session)?,
            None if arrival.seen == arrival.remote => {
                self.engine.check_entry(realm, arrival.remote.address)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Checks that no rule drops packets that come in, or turn round, to an internal endpoint from
    /// a remote endpoint.
    #[inline]
    fn check_dropped(&mut self, internal: Internal, remote: AddressPort) -> Decided<()> {
        let fate = self.engine.check_dropped(self.headers, internal, remote);
        if R::KEEPS && fate.is_err() {
            let Internal { host, port } = internal;
            let inner = with_port(self.headers, AddressPort::new(host.address(), port));
            let outer = with_port(self.headers, remote);
            let ruling = self.engine.rules_of(host.realm()).find(inner, outer);
            self.note_rule(host.realm(), (inner, outer), ruling);
        }
        Ok(fate?)
    }

    /// Lets an admitted packet in, by its session or a new one. It gets `source` unless its
    /// receiver sees another.
    pub(super) fn let_in(
        &mut self,
        arrival: Arrival,
        found: InboundMatch,
        source: Option<AddressPort>,
    ) -> Decided<()> {
        let (by, host) = match found {
            InboundMatch::Mapping(slot, session) => {
                let by = match session {
                    Some(session) => self.refresh(slot, session, Way::In),
                    None => self.begin_session(slot, arrival.remote, Way::In)?,
                };
                (by, self.engine.table.mapping(slot).host())
            }
            InboundMatch::Whole(host, begun) => {
                let external = External::new(arrival.index, arrival.port);
                let internal = Internal::new(host, arrival.port);
                let whole = WholeMapping { internal, external, begun };
                (self.map_whole(whole, arrival.remote, Way::In)?, host)
            }
            InboundMatch::Owner(host) => (self.map_to_owner(arrival, host)?, host),
        };
        self.plan.leaving = host.realm();
        let source = arrival.new_source().or(source);
        self.plan.act = Act::Receive { by, arrival, source };
        Ok(())
    }
}

/// True for the mapping of a service's server.
fn is_server(mapping: &Mapping) -> bool {
    mapping.is_fixed() && mapping.shares_external()
}
