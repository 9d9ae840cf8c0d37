//! Translation of destinations by rules, and remote endpoints that have another name inside: twice
//! NAT (section 13 of the specification).
//!
//! Everywhere else a remote endpoint has its name outside. Here it gets and loses its name inside.
//! A packet from inside is aimed before anything but its source is checked. For a packet from
//! outside, the name of its source is found before the checks from inside. A session keeps the name
//! that it began with, even if rules change.

use super::mappings::Arrival;
use super::{Engine, Fate, with_port};
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::packet::{Direction, Side};
use crate::parse::{Embedded, Headers, Kind, is_martian};
use crate::rules::Ruling;

impl Headers {
    /// True if the packet's destination has another name outside.
    #[inline]
    pub(super) fn is_aimed(&self) -> bool {
        self.outside != self.destination
    }

    /// The new destination of a packet from inside, if it differs. Both endpoints share a query's
    /// identifier, so it is translated to `identifier` with the source's.
    #[inline]
    pub(super) fn new_destination(&self, identifier: u16) -> Option<AddressPort> {
        let port = match self.kind {
            Kind::IcmpQuery { .. } => identifier,
            _ => self.outside.port,
        };
        self.is_aimed().then_some(AddressPort::new(self.outside.address, port))
    }
}

impl Arrival {
    /// The new source of the packet, if the source has another name inside.
    #[inline]
    pub(super) fn new_source(&self) -> Option<AddressPort> {
        (self.seen != self.remote).then_some(self.seen)
    }
}

impl Engine {
    /// True if any remote endpoint has another name inside, or may get one.
    #[inline]
    pub(super) fn has_twice(&self) -> bool {
        self.realms.any_destinations() || !self.twice.is_empty()
    }

    // ---- from the inside ----

    /// Decides about a packet from inside where destinations are translated. The destination of a
    /// fragment depends on the first fragment of its datagram.
    pub(super) fn take_inside_twice(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
    ) -> Fate {
        if !headers.fragment {
            return self.inside_aimed(bytes, headers, direction);
        }
        self.check_later(bytes, headers, Side::Inside)?;
        let way = |engine: &mut Self, bytes: &mut [u8], direction: &mut Direction| {
            engine.inside_aimed(bytes, headers, direction)
        };
        self.by_fragment(bytes, headers, Side::Inside, direction, way)
    }

    fn inside_aimed(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
    ) -> Fate {
        let headers = &Headers { outside: self.destination_outside(bytes, headers), ..*headers };
        let destination = headers.destination.address;
        if self.is_own(headers.realm, destination) && self.external.index(destination).is_none() {
            let untranslated = || {
                let ruling = self.ruling(bytes, headers, Side::Inside, headers.realm);
                matches!(ruling, Some(Ruling::Bypass | Ruling::Drop))
            };
            if !headers.is_aimed() || untranslated() {
                *direction = Direction::Local;
                return self.local(bytes, headers, Side::Inside);
            }
        }
        self.inside(bytes, headers, direction)
    }

    /// The destination of a packet from inside, as seen outside.
    fn destination_outside(&mut self, bytes: &[u8], headers: &Headers) -> AddressPort {
        let destination = headers.destination;
        let seen = headers.remote_seen();
        let remote = match headers.kind {
            Kind::IcmpError => {
                let message = &bytes[usize::from(headers.header_len)..];
                return match Embedded::read(message) {
                    Ok(about) => self.error_outside(headers, &about),
                    Err(_) => destination,
                };
            }
            Kind::IcmpOther | Kind::LaterFragment => return destination,
            _ => self.remote_outside(headers, seen),
        };
        match headers.kind {
            Kind::IcmpQuery { .. } => AddressPort::new(remote.address, destination.port),
            _ => remote,
        }
    }

    /// The name outside of the endpoint that a packet from inside goes to.
    fn remote_outside(&mut self, headers: &Headers, seen: AddressPort) -> AddressPort {
        let (protocol, internal) = (headers.protocol, headers.internal());
        if let Some(remote) = self.remote_seen_as((protocol, internal), seen) {
            return remote;
        }
        let ports = matches!(headers.kind, Kind::Tcp | Kind::Udp | Kind::Dccp);
        match self.rules_of(headers.realm).destination(with_port(headers, seen), ports) {
            Some(remote) if remote != seen && !self.sees_as_is(protocol, internal, seen) => remote,
            _ => seen,
        }
    }

    /// The destination of an ICMP error from inside: the sender of the packet that the error
    /// quotes.
    fn error_outside(&mut self, headers: &Headers, about: &Embedded) -> AddressPort {
        let AddressPort { address, port } = about.destination;
        let flow = (about.protocol, Internal::new(Host::new(headers.realm, address), port));
        match self.remote_seen_as(flow, about.remote_of_destination()) {
            Some(AddressPort { address: remote, .. })
                if about.source.address == headers.destination.address =>
            {
                AddressPort::new(remote, 0)
            }
            _ => headers.destination,
        }
    }

    /// The remote endpoint of the inside flow's session that is seen inside as `seen`, if the
    /// configuration in force allows its mapping.
    pub(super) fn remote_seen_as(
        &mut self,
        flow: (u8, Internal),
        seen: AddressPort,
    ) -> Option<AddressPort> {
        let remote = self.twice.remote(flow, seen)?;
        let stays = self.sweep.is_done() || self.find_internal(flow.0, flow.1, remote).is_some();
        stays.then_some(remote)
    }

    /// True if an internal endpoint has a session with a remote endpoint that has the same name
    /// inside and outside.
    fn sees_as_is(&mut self, protocol: u8, internal: Internal, remote: AddressPort) -> bool {
        self.find_internal(protocol, internal, remote).is_some_and(|slot| {
            self.table.find_session(slot, remote).is_some() && self.seen(slot, remote) == remote
        })
    }

    /// Checks that a packet may go where a rule sends it.
    pub(super) fn check_outside(&self, headers: &Headers) -> Result<(), DropReason> {
        let AddressPort { address: destination, .. } = headers.outside;
        if !headers.is_aimed() {
            Ok(())
        } else if is_martian(destination) || self.is_broadcast(Some(headers.realm), destination) {
            Err(DropReason::MartianDestination)
        } else if self.is_own(headers.realm, destination)
            && self.external.index(destination).is_none()
        {
            Err(DropReason::LocalUnsupported)
        } else {
            Ok(())
        }
    }

    // ---- from the outside ----

    /// The name inside of the source of a packet from outside. A source that the inside network
    /// would contain must have another name there.
    pub(super) fn source_inside(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        arrival: Arrival,
    ) -> Result<AddressPort, DropReason> {
        let Arrival { index, port, remote, .. } = arrival;
        let seen = match headers.kind {
            Kind::IcmpError => self.sender_inside(bytes, headers),
            Kind::IcmpOther => None,
            _ => self.session_seen(headers.protocol, External::new(index, port), remote),
        };
        let realm = self.realm_met(bytes, headers, arrival);
        let rules = self.rules_of(realm);
        let by_rule = || rules.source(with_port(headers, remote));
        let seen = seen.or_else(by_rule).unwrap_or(remote);
        if self.is_plain() && seen == remote && self.is_inside(0, remote.address) {
            return Err(DropReason::SpoofedSource);
        }
        Ok(seen)
    }

    /// The realm of a packet from outside, as far as it is known.
    fn realm_met(&mut self, bytes: &[u8], headers: &Headers, arrival: Arrival) -> u16 {
        if self.is_plain() {
            return 0;
        }
        let end = match headers.kind {
            Kind::IcmpError => {
                let about = Embedded::read(&bytes[usize::from(headers.header_len)..]).ok();
                about.and_then(|about| {
                    let index = self.external.index(about.source.address)?;
                    Some((
                        about.protocol,
                        External::new(index, about.source.port),
                        about.remote_of_source(),
                    ))
                })
            }
            _ => {
                Some((headers.protocol, External::new(arrival.index, arrival.port), arrival.remote))
            }
        };
        let Some((protocol, external, remote)) = end else { return 0 };
        match self.find_external(protocol, external, remote) {
            Some(slot) => self.table.mapping(slot).host().realm(),
            None => {
                self.statics.internal(external.index, protocol).map_or(0, |(host, _)| host.realm())
            }
        }
    }

    /// The name inside of the sender of an ICMP error, if the sender is the remote endpoint of the
    /// quoted session.
    fn sender_inside(&mut self, bytes: &[u8], headers: &Headers) -> Option<AddressPort> {
        let about = Embedded::read(&bytes[usize::from(headers.header_len)..]).ok()?;
        let index = self.external.index(about.source.address)?;
        let remote = about.remote_of_source();
        let seen =
            self.session_seen(about.protocol, External::new(index, about.source.port), remote)?;
        (remote.address == headers.source.address).then_some(AddressPort::new(seen.address, 0))
    }

    /// The name of a hairpinned packet's sender that its receiver sees.
    pub(super) fn seen_by_receiver(
        &mut self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> AddressPort {
        match self.twice.is_empty() {
            true => remote,
            false => self.session_seen(protocol, external, remote).unwrap_or(remote),
        }
    }

    /// The name inside of the remote endpoint of a session, if there is a session between these
    /// endpoints.
    fn session_seen(
        &mut self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> Option<AddressPort> {
        let slot = self.find_external(protocol, external, remote)?;
        self.table.find_session(slot, remote)?;
        Some(self.seen(slot, remote))
    }

    // ---- sessions ----

    /// The name inside of a remote endpoint of a mapping's session.
    #[inline]
    pub(crate) fn seen(&self, slot: u32, remote: AddressPort) -> AddressPort {
        match self.table.mapping(slot).is_twice() {
            true => self.twice.seen(slot, remote).unwrap_or(remote),
            false => remote,
        }
    }

    /// Checks that the remote endpoint of a session has the name to which a packet from inside
    /// goes. With two names, replies would be ambiguous.
    #[inline]
    pub(super) fn check_seen(
        &self,
        slot: u32,
        remote: AddressPort,
        seen: AddressPort,
    ) -> Result<(), DropReason> {
        if self.seen(slot, remote) == seen { Ok(()) } else { Err(DropReason::Ambiguous) }
    }

    /// Checks that there is room for a session whose remote endpoint is seen as `seen`.
    #[inline]
    pub(super) fn check_room_to_see(
        &self,
        remote: AddressPort,
        seen: AddressPort,
    ) -> Result<(), DropReason> {
        match remote != seen && self.twice.is_full() {
            true => Err(DropReason::SessionTableFull),
            false => Ok(()),
        }
    }

    /// Checks that a session from outside may have its remote endpoint seen as `seen`: no other
    /// session of the internal endpoint may have a remote endpoint with that name.
    #[inline]
    pub(super) fn check_unseen(
        &mut self,
        protocol: u8,
        internal: Internal,
        remote: AddressPort,
        seen: AddressPort,
    ) -> Result<(), DropReason> {
        if !self.has_twice() {
            return Ok(());
        }
        let another =
            self.remote_seen_as((protocol, internal), seen).is_some_and(|it| it != remote);
        if another || remote != seen && self.sees_as_is(protocol, internal, seen) {
            return Err(DropReason::Ambiguous);
        }
        self.check_room_to_see(remote, seen)
    }

    /// Notes the name inside of the remote endpoint of a new session.
    #[inline]
    pub(super) fn note_seen(&mut self, slot: u32, remote: AddressPort, seen: AddressPort) {
        if remote != seen {
            let mapping = self.table.mapping_mut(slot);
            mapping.set_twice();
            let flow = (mapping.protocol, mapping.internal());
            self.twice.add(slot, flow, remote, seen);
        }
    }
}
