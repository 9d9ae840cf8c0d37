//! What remote endpoints are seen as inside: `twice.rs` of the complete way, for reading alone.

use super::walk::Walk;
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::parse::{Embedded, Kind};
use crate::translate::mappings::Arrival;
use crate::translate::with_port;

impl Walk<'_> {
    pub(super) fn destination_outside(&self) -> AddressPort {
        let (engine, headers) = (self.engine, &self.headers);
        let destination = headers.destination;
        let remote = match headers.kind {
            Kind::IcmpError => {
                let message = &self.bytes[usize::from(headers.header_len)..];
                let Ok(about) = Embedded::read(message) else { return destination };
                let AddressPort { address, port } = about.destination;
                let flow = (about.protocol, Internal::new(Host::new(headers.realm, address), port));
                return match engine.twice.remote(flow, about.remote_of_destination()) {
                    Some(AddressPort { address: remote, .. })
                        if about.source.address == destination.address =>
                    {
                        AddressPort::new(remote, 0)
                    }
                    _ => destination,
                };
            }
            Kind::IcmpOther | Kind::LaterFragment => return destination,
            _ => self.remote_outside(headers.remote_seen()),
        };
        match headers.kind {
            Kind::IcmpQuery { .. } => AddressPort::new(remote.address, destination.port),
            _ => remote,
        }
    }

    fn remote_outside(&self, seen: AddressPort) -> AddressPort {
        let (engine, headers) = (self.engine, &self.headers);
        let flow = (headers.protocol, headers.internal());
        if let Some(remote) = engine.twice.remote(flow, seen) {
            return remote;
        }
        let ports = matches!(headers.kind, Kind::Tcp | Kind::Udp | Kind::Dccp);
        let rules = engine.rules_of(headers.realm);
        match rules.destination(with_port(headers, seen), ports) {
            Some(remote) if remote != seen && !self.sees_as_is(flow.1, seen) => remote,
            _ => seen,
        }
    }

    fn sees_as_is(&self, internal: Internal, remote: AddressPort) -> bool {
        let engine = self.engine;
        engine.look_up_internal(self.headers.protocol, internal, remote).is_some_and(|slot| {
            engine.table.find_session(slot, remote).is_some() && engine.seen(slot, remote) == remote
        })
    }

    pub(super) fn source_inside(&self, arrival: Arrival) -> Result<AddressPort, DropReason> {
        let Arrival { index, port, remote, .. } = arrival;
        let (engine, headers) = (self.engine, &self.headers);
        let seen = match headers.kind {
            Kind::IcmpError => self.sender_inside(),
            Kind::IcmpOther => None,
            _ => self.session_seen(headers.protocol, External::new(index, port), remote),
        };
        let rules = engine.rules_of(self.realm_met(arrival));
        let by_rule = || rules.source(with_port(headers, remote));
        let seen = seen.or_else(by_rule).unwrap_or(remote);
        if engine.is_plain() && seen == remote && engine.is_inside(0, remote.address) {
            return Err(DropReason::SpoofedSource);
        }
        Ok(seen)
    }

    fn realm_met(&self, arrival: Arrival) -> u16 {
        let (engine, headers) = (self.engine, &self.headers);
        if engine.is_plain() {
            return 0;
        }
        let end = match headers.kind {
            Kind::IcmpError => self.about().and_then(|about| {
                let index = engine.external.index(about.source.address)?;
                Some((
                    about.protocol,
                    External::new(index, about.source.port),
                    about.remote_of_source(),
                ))
            }),
            _ => {
                Some((headers.protocol, External::new(arrival.index, arrival.port), arrival.remote))
            }
        };
        let Some((protocol, external, remote)) = end else { return 0 };
        match engine.look_up_external(protocol, external, remote) {
            Some(slot) => engine.table.mapping(slot).host().realm(),
            None => engine
                .statics
                .internal(external.index, protocol)
                .map_or(0, |(host, _)| host.realm()),
        }
    }

    fn about(&self) -> Option<Embedded> {
        Embedded::read(&self.bytes[usize::from(self.headers.header_len)..]).ok()
    }

    fn sender_inside(&self) -> Option<AddressPort> {
        let about = self.about()?;
        let index = self.engine.external.index(about.source.address)?;
        let remote = about.remote_of_source();
        let seen =
            self.session_seen(about.protocol, External::new(index, about.source.port), remote)?;
        (remote.address == self.headers.source.address).then_some(AddressPort::new(seen.address, 0))
    }

    pub(super) fn seen_by_receiver(
        &self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> AddressPort {
        match self.engine.twice.is_empty() {
            true => remote,
            false => self.session_seen(protocol, external, remote).unwrap_or(remote),
        }
    }

    fn session_seen(
        &self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> Option<AddressPort> {
        let slot = self.engine.look_up_external(protocol, external, remote)?;
        self.engine.table.find_session(slot, remote)?;
        Some(self.engine.seen(slot, remote))
    }

    pub(super) fn check_unseen(
        &self,
        internal: Internal,
        remote: AddressPort,
        seen: AddressPort,
    ) -> Result<(), DropReason> {
        let engine = self.engine;
        if !engine.has_twice() {
            return Ok(());
        }
        let flow = (self.headers.protocol, internal);
        let another = engine.twice.remote(flow, seen).is_some_and(|it| it != remote);
        if another || remote != seen && self.sees_as_is(internal, seen) {
            return Err(DropReason::Ambiguous);
        }
        engine.check_room_to_see(remote, seen)
    }
}
