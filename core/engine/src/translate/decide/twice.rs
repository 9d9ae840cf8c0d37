//! Destinations that rules translate, and remote endpoints that are others as seen from inside:
//! twice NAT (section 13 of the specification).
//!
//! Everywhere else a remote endpoint is its outside endpoint. Here it gets and loses the name that
//! inside hosts see. A packet from inside gets its outside destination before anything but its
//! source is looked at. A packet from outside gets the inside name of its source before the packet
//! is looked at as from inside. A session keeps the name that it began with, whatever the rules say
//! later.

use super::{Decided, Decision, Recorder, Step};
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::packet::{Side, Verdict};
use crate::parse::{Embedded, Kind};
use crate::rules::Ruling;
use crate::translate::explain::endpoint;
use crate::translate::mappings::Arrival;
use crate::translate::with_port;

impl<R: Recorder> Decision<'_, R> {
    // ---- from the inside ----

    /// Decides about a packet from inside if rules translate destinations. The destination of a
    /// fragment follows from the first fragment of its datagram.
    pub(super) fn take_inside_twice(&mut self) -> Decided<Verdict> {
        // A decision that begins anew asks anew.
        self.headers.outside = self.headers.destination;
        if !self.headers.fragment {
            return self.inside_aimed();
        }
        self.check_later()?;
        self.by_fragment(Self::inside_aimed)
    }

    fn inside_aimed(&mut self) -> Decided<Verdict> {
        self.headers.outside = self.destination_outside()?;
        if self.headers.is_aimed() {
            self.note(Step::Aimed(endpoint(self.headers.outside)));
        }
        if self.is_local() {
            let realm = self.headers.realm;
            let untranslated = || {
                let ruling = self.engine.ruling(self.bytes, self.headers, Side::Inside, realm);
                matches!(ruling, Some(Ruling::Bypass | Ruling::Drop))
            };
            if !self.headers.is_aimed() || untranslated() {
                return self.local();
            }
        }
        self.inside()
    }

    /// Destination of a packet from inside, as seen outside.
    fn destination_outside(&self) -> Decided<AddressPort> {
        let headers = &*self.headers;
        let destination = headers.destination;
        let remote = match headers.kind {
            Kind::IcmpError => {
                return match self.about() {
                    Some(about) => self.error_outside(&about),
                    None => Ok(destination),
                };
            }
            Kind::IcmpOther | Kind::LaterFragment => return Ok(destination),
            _ => self.remote_outside(headers.remote_seen())?,
        };
        Ok(match headers.kind {
            Kind::IcmpQuery { .. } => AddressPort::new(remote.address, destination.port),
            _ => remote,
        })
    }

    /// The packet that an ICMP error embeds, if it can be read.
    fn about(&self) -> Option<Embedded> {
        Embedded::read(&self.bytes[usize::from(self.headers.header_len)..]).ok()
    }

    /// The remote endpoint, outside, of a packet from inside.
    fn remote_outside(&self, seen: AddressPort) -> Decided<AddressPort> {
        let headers = &*self.headers;
        let (protocol, internal) = (headers.protocol, headers.internal());
        if let Some(remote) = self.remote_seen_as((protocol, internal), seen)? {
            return Ok(remote);
        }
        let ports = matches!(headers.kind, Kind::Tcp | Kind::Udp | Kind::Dccp);
        let rules = self.engine.rules_of(headers.realm);
        match rules.destination(with_port(headers, seen), ports) {
            Some(remote) if remote != seen && !self.sees_as_is(protocol, internal, seen)? => {
                Ok(remote)
            }
            _ => Ok(seen),
        }
    }

    /// Destination, as seen outside, of an ICMP error from inside: the sender of the packet that
    /// the error is about.
    fn error_outside(&self, about: &Embedded) -> Decided<AddressPort> {
        let destination = self.headers.destination;
        let AddressPort { address, port } = about.destination;
        let flow = (about.protocol, Internal::new(Host::new(self.headers.realm, address), port));
        Ok(match self.remote_seen_as(flow, about.remote_of_destination())? {
            Some(AddressPort { address: remote, .. })
                if about.source.address == destination.address =>
            {
                AddressPort::new(remote, 0)
            }
            _ => destination,
        })
    }

    /// The remote endpoint of the flow's session that inside hosts see as `seen`, if the
    /// configuration in force lets its mapping stay.
    pub(super) fn remote_seen_as(
        &self,
        flow: (u8, Internal),
        seen: AddressPort,
    ) -> Decided<Option<AddressPort>> {
        let Some(remote) = self.engine.twice.remote(flow, seen) else { return Ok(None) };
        let stays =
            self.engine.sweep.is_done() || self.find_internal(flow.0, flow.1, remote)?.is_some();
        Ok(stays.then_some(remote))
    }

    /// True if an internal endpoint has a session with a remote endpoint and sees it under no other
    /// name.
    fn sees_as_is(&self, protocol: u8, internal: Internal, remote: AddressPort) -> Decided<bool> {
        let engine = self.engine;
        let found = self.find_internal(protocol, internal, remote)?;
        Ok(found.is_some_and(|slot| {
            engine.table.find_session(slot, remote).is_some() && engine.seen(slot, remote) == remote
        }))
    }

    // ---- from the outside ----

    /// The source of a packet from outside, as inside hosts see it. A source that has an address of
    /// the inside network must have another one there.
    pub(super) fn source_inside(&self, arrival: Arrival) -> Decided<AddressPort> {
        let Arrival { index, port, remote, .. } = arrival;
        let (engine, headers) = (self.engine, &*self.headers);
        let seen = match headers.kind {
            Kind::IcmpError => self.sender_inside()?,
            Kind::IcmpOther => None,
            _ => self.session_seen(headers.protocol, External::new(index, port), remote)?,
        };
        let rules = engine.rules_of(self.realm_met(arrival)?);
        let by_rule = || rules.source(with_port(headers, remote));
        let seen = seen.or_else(by_rule).unwrap_or(remote);
        if engine.is_plain() && seen == remote && engine.is_inside(0, remote.address) {
            return Err(DropReason::SpoofedSource.into());
        }
        Ok(seen)
    }

    /// The realm that a packet from outside is for, as far as that can be told.
    fn realm_met(&self, arrival: Arrival) -> Decided<u16> {
        let (engine, headers) = (self.engine, &*self.headers);
        if engine.is_plain() {
            return Ok(0);
        }
        let end = match headers.kind {
            Kind::IcmpError => self.about().and_then(|about| {
                let index = engine.external.index(about.source.address)?;
                let external = External::new(index, about.source.port);
                Some((about.protocol, external, about.remote_of_source()))
            }),
            _ => {
                Some((headers.protocol, External::new(arrival.index, arrival.port), arrival.remote))
            }
        };
        let Some((protocol, external, remote)) = end else { return Ok(0) };
        Ok(match self.find_external(protocol, external, remote)? {
            Some(slot) => engine.table.mapping(slot).host().realm(),
            None => {
                let whole = engine.statics.internal(external.index, protocol);
                whole.map_or(0, |(host, _)| host.realm())
            }
        })
    }

    /// The sender of an ICMP error as inside hosts see it, if it is the receiver of the embedded
    /// packet.
    fn sender_inside(&self) -> Decided<Option<AddressPort>> {
        let Some(about) = self.about() else { return Ok(None) };
        let Some(index) = self.engine.external.index(about.source.address) else {
            return Ok(None);
        };
        let remote = about.remote_of_source();
        let external = External::new(index, about.source.port);
        let seen = self.session_seen(about.protocol, external, remote)?;
        let is_sender = remote.address == self.headers.source.address;
        Ok(seen.filter(|_| is_sender).map(|seen| AddressPort::new(seen.address, 0)))
    }

    /// The sender of a hairpinned packet, as its receiver sees it.
    pub(super) fn seen_by_receiver(
        &self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> Decided<AddressPort> {
        match self.engine.twice.is_empty() {
            true => Ok(remote),
            false => Ok(self.session_seen(protocol, external, remote)?.unwrap_or(remote)),
        }
    }

    /// The remote endpoint of a session as inside hosts see it, if these endpoints have a session.
    fn session_seen(
        &self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> Decided<Option<AddressPort>> {
        let engine = self.engine;
        let Some(slot) = self.find_external(protocol, external, remote)? else { return Ok(None) };
        let session = self.session_of(slot, remote)?;
        Ok(session.map(|_| engine.seen(slot, remote)))
    }

    // ---- sessions ----

    /// Checks that a packet from outside may begin a session whose remote endpoint is seen as
    /// `seen`: the internal endpoint sees no other remote endpoint so, and there is room.
    pub(super) fn check_unseen(
        &self,
        internal: Internal,
        remote: AddressPort,
        seen: AddressPort,
    ) -> Decided<()> {
        if !self.engine.has_twice() {
            return Ok(());
        }
        let protocol = self.headers.protocol;
        let other = self.remote_seen_as((protocol, internal), seen)?;
        if other.is_some_and(|it| it != remote)
            || remote != seen && self.sees_as_is(protocol, internal, seen)?
        {
            return Err(DropReason::Ambiguous.into());
        }
        Ok(self.engine.check_room_to_see(remote, seen)?)
    }
}
