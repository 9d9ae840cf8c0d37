//! What remote endpoints are seen as inside: `twice.rs` of the complete way, for reading alone.

use super::walk::Walk;
use crate::DropReason;
use crate::endpoint::Internal;
use crate::host::Host;
use crate::parse::{Embedded, Kind};
use crate::translate::mappings::Arrival;
use crate::translate::with_port;

impl Walk<'_> {
    pub(super) fn destination_outside(&self) -> (u32, u16) {
        let (engine, headers) = (self.engine, &self.headers);
        let destination = headers.destination;
        let remote = match headers.kind {
            Kind::IcmpError => {
                let message = &self.bytes[usize::from(headers.header_len)..];
                let Ok(about) = Embedded::read(message) else { return destination };
                let (address, port) = about.destination;
                let flow = (about.protocol, Internal::new(Host::new(headers.realm, address), port));
                return match engine.twice.remote(flow, about.remote_of_destination()) {
                    Some((remote, _)) if about.source.0 == destination.0 => (remote, 0),
                    _ => destination,
                };
            }
            Kind::IcmpOther | Kind::LaterFragment => return destination,
            _ => self.remote_outside(headers.remote_seen()),
        };
        match headers.kind {
            Kind::IcmpQuery { .. } => (remote.0, destination.1),
            _ => remote,
        }
    }

    fn remote_outside(&self, seen: (u32, u16)) -> (u32, u16) {
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

    fn sees_as_is(&self, internal: Internal, remote: (u32, u16)) -> bool {
        let engine = self.engine;
        engine.look_up_internal(self.headers.protocol, internal, remote).is_some_and(|slot| {
            engine.table.find_session(slot, remote).is_some() && engine.seen(slot, remote) == remote
        })
    }

    pub(super) fn source_inside(&self, arrival: Arrival) -> Result<(u32, u16), DropReason> {
        let Arrival { index, port, remote, .. } = arrival;
        let (engine, headers) = (self.engine, &self.headers);
        let seen = match headers.kind {
            Kind::IcmpError => self.sender_inside(),
            Kind::IcmpOther => None,
            _ => self.session_seen(headers.protocol, (index, port), remote),
        };
        let rules = engine.rules_of(self.realm_met(arrival));
        let by_rule = || rules.source(with_port(headers, remote));
        let seen = seen.or_else(by_rule).unwrap_or(remote);
        if engine.is_plain() && seen == remote && engine.is_inside(0, remote.0) {
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
                let index = engine.external.index(about.source.0)?;
                Some((about.protocol, (index, about.source.1), about.remote_of_source()))
            }),
            _ => Some((headers.protocol, (arrival.index, arrival.port), arrival.remote)),
        };
        let Some((protocol, external, remote)) = end else { return 0 };
        match engine.look_up_external(protocol, external, remote) {
            Some(slot) => engine.table.mapping(slot).host().realm(),
            None => {
                engine.statics.internal(external.0, protocol).map_or(0, |(host, _)| host.realm())
            }
        }
    }

    fn about(&self) -> Option<Embedded> {
        Embedded::read(&self.bytes[usize::from(self.headers.header_len)..]).ok()
    }

    fn sender_inside(&self) -> Option<(u32, u16)> {
        let about = self.about()?;
        let index = self.engine.external.index(about.source.0)?;
        let remote = about.remote_of_source();
        let seen = self.session_seen(about.protocol, (index, about.source.1), remote)?;
        (remote.0 == self.headers.source.0).then_some((seen.0, 0))
    }

    pub(super) fn seen_by_receiver(
        &self,
        protocol: u8,
        external: (u32, u16),
        remote: (u32, u16),
    ) -> (u32, u16) {
        match self.engine.twice.is_empty() {
            true => remote,
            false => self.session_seen(protocol, external, remote).unwrap_or(remote),
        }
    }

    fn session_seen(
        &self,
        protocol: u8,
        external: (u32, u16),
        remote: (u32, u16),
    ) -> Option<(u32, u16)> {
        let slot = self.engine.look_up_external(protocol, external, remote)?;
        self.engine.table.find_session(slot, remote)?;
        Some(self.engine.seen(slot, remote))
    }

    pub(super) fn check_unseen(
        &self,
        internal: Internal,
        remote: (u32, u16),
        seen: (u32, u16),
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
