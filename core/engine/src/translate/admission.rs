//! Packets from outside: filtering (RFC 4787 section 5), the choice of a server, admission.

use super::Engine;
use super::mappings::{Arrival, InboundMatch, WholeMapping};
use crate::DropReason;
use crate::config::{Begun, Behavior, Config};
use crate::endpoint::{External, Internal};
use crate::parse::{Headers, Kind};
use crate::session::Way;

impl Engine {
    /// Finds the mapping of an inbound packet and applies the filter. It changes nothing, except
    /// that it removes a mapping that the configuration in force does not allow.
    pub(super) fn admit(
        &mut self,
        headers: &Headers,
        arrival: Arrival,
    ) -> Result<InboundMatch, DropReason> {
        let Arrival { index, port, remote, seen, .. } = arrival;
        let protocol = headers.protocol;
        //= rfc7857#section-6
        //= rfc7857#section-6-default
        let owner = self.find_external(protocol, External::new(index, port), remote);
        let Some(slot) = owner else {
            let (internal, begun) =
                self.statics.internal(index, protocol).ok_or(DropReason::NoMapping)?;
            self.check_entrance(arrival, internal.realm(), false)?;
            self.check_dropped(headers, Internal::new(internal, port), seen)?;
            if begun == Begun::Inside {
                return Err(DropReason::Filtered);
            }
            self.may_open(headers)?;
            self.check_unseen(protocol, Internal::new(internal, port), remote, seen)?;
            return Ok(InboundMatch::Whole(internal, begun));
        };
        let session = self.table.find_session(slot, remote);
        let slot = match session {
            Some(_) => slot,
            None => self.server_for(slot, arrival)?,
        };
        let mapping = self.table.mapping(slot);
        let internal = mapping.internal();
        // A mapping that overloads a port serves one remote endpoint only. For other remote
        // endpoints the port's receiver is not known any more.
        if session.is_none() && !mapping.is_static() && mapping.shares_external() {
            return Err(DropReason::Filtered);
        }
        self.check_entrance(arrival, internal.host.realm(), session.is_some())?;
        self.check_dropped(headers, internal, seen)?;
        if session.is_none() {
            //= rfc4787#REQ-8
            //= rfc5382#REQ-3
            //= rfc5597#REQ-3
            let admitted = match self.filtering(headers.kind) {
                _ if mapping.is_static() => !mapping.is_outbound_only(),
                _ if mapping.is_explicit()
                    && let Some(admitted) = self.admits_held(slot, arrival.seen) =>
                {
                    admitted
                }
                Behavior::EndpointIndependent => true,
                Behavior::AddressDependent => self.table.knows_address(slot, remote.address),
                Behavior::AddressAndPortDependent => false,
            };
            if !admitted {
                return Err(DropReason::Filtered);
            }
            self.may_open(headers)?;
            self.check_unseen(headers.protocol, internal, remote, seen)?;
        }
        Ok(InboundMatch::Mapping(slot, session))
    }

    /// The mapping for a new session from outside: the mapping of the chosen server for a service,
    /// otherwise the mapping of the endpoint.
    pub(super) fn server_for(&mut self, named: u32, arrival: Arrival) -> Result<u32, DropReason> {
        let mapping = self.table.mapping(named);
        let is_server = mapping.is_static() && mapping.is_permanent() && mapping.shares_external();
        if !is_server {
            return Ok(named);
        }
        let (protocol, remote) = (mapping.protocol, arrival.remote.address);
        let external = External::new(arrival.index, arrival.port);
        let chosen = self.services.choose(protocol, external, remote, &mut self.generator);
        chosen.ok_or(DropReason::Filtered)
    }

    /// Checks that a packet may enter the realm of its receiver.
    pub(super) fn check_entrance(
        &self,
        arrival: Arrival,
        realm: u16,
        in_session: bool,
    ) -> Result<(), DropReason> {
        match arrival.from {
            Some(from) => self.check_realms(from, realm, in_session),
            None if arrival.seen == arrival.remote => {
                self.check_entry(realm, arrival.remote.address)
            }
            None => Ok(()),
        }
    }

    /// The realm that an inbound packet goes to.
    pub(super) fn realm_of(&self, found: InboundMatch) -> u16 {
        match found {
            InboundMatch::Mapping(slot, _) => self.table.mapping(slot).host().realm(),
            InboundMatch::Whole(host, _) => host.realm(),
        }
    }

    /// The filtering behavior for packets of a kind.
    pub(super) fn filtering(&self, kind: Kind) -> Behavior {
        let Config { filtering, filtering_tcp, .. } = self.config;
        match kind {
            //= rfc5382#REQ-3b
            //= rfc5597#REQ-3-independent
            Kind::Tcp | Kind::Dccp => filtering_tcp.unwrap_or(filtering),
            _ => filtering,
        }
    }

    /// Lets an admitted packet in: refreshes its session or makes one.
    pub(super) fn enter(
        &mut self,
        headers: &Headers,
        arrival: Arrival,
        found: InboundMatch,
    ) -> Result<u32, DropReason> {
        match found {
            InboundMatch::Mapping(slot, Some(session)) => {
                self.refresh(session, Way::In, headers);
                Ok(slot)
            }
            InboundMatch::Mapping(slot, None) => {
                self.add_session(slot, arrival.remote, Way::In, headers)?;
                self.begun(slot, arrival.remote, arrival.seen);
                Ok(slot)
            }
            InboundMatch::Whole(internal, begun) => {
                let external = External::new(arrival.index, arrival.port);
                let internal = Internal::new(internal, arrival.port);
                let whole = WholeMapping { internal, external, begun };
                let slot = self.add_whole(whole, arrival.remote, Way::In, headers)?;
                self.begun(slot, arrival.remote, arrival.seen);
                Ok(slot)
            }
        }
    }
}
