//! ICMP errors: the session that an error is about, and what the error and the packet that it
//! embeds become (section 6 of the specification).

use super::{Decided, Decision, Recorder, Step};
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::packet::{Side, Verdict};
use crate::parse::Embedded;
use crate::rewrite::Rewrite;
use crate::translate::explain::endpoint;
use crate::translate::plan::Act;
use natgate_wire::protocol;

/// The session that an ICMP error from inside is about.
struct About {
    external: AddressPort,
    /// Remote endpoint as seen outside.
    remote: AddressPort,
    /// Remote endpoint as seen inside.
    seen: AddressPort,
    protocol: u8,
}

/// An internal endpoint, and a remote one as seen from there.
type Ends = (Internal, AddressPort);

impl About {
    /// The remote endpoint for the embedded packet, if it is different outside. An identifier is
    /// translated with the near end.
    fn new_remote(&self) -> Option<AddressPort> {
        let query = self.protocol == protocol::ICMP;
        let port = if query { self.external.port } else { self.remote.port };
        (self.remote != self.seen).then_some(AddressPort::new(self.remote.address, port))
    }
}

impl<R: Recorder> Decision<'_, R> {
    fn embedded(&mut self) -> Decided<Embedded> {
        let embedded = Embedded::read(&self.bytes[usize::from(self.headers.header_len)..])?;
        let Embedded { protocol, source, destination, .. } = embedded;
        let (source, destination) = (endpoint(source), endpoint(destination));
        self.note(Step::About { protocol, source, destination });
        Ok(embedded)
    }

    pub(super) fn error_outbound(&mut self) -> Decided<()> {
        let embedded = self.embedded()?;
        let about = self.error_external(&embedded)?;
        let external = about.external;
        let inner = Rewrite { source: about.new_remote(), destination: Some(external) };
        //= rfc5508#REQ-5c
        let source = Some(AddressPort::new(external.address, 0));
        let outer = Rewrite { source, destination: self.headers.new_destination(0) };
        self.plan.act = Act::Error { embedded, inner, outer };
        Ok(())
    }

    /// The session that an error from inside is about: the embedded packet went to its internal
    /// endpoint.
    fn error_external(&mut self, embedded: &Embedded) -> Decided<About> {
        let AddressPort { address, port } = embedded.destination;
        let (protocol, internal) =
            (embedded.protocol, Internal::new(Host::new(self.headers.realm, address), port));
        let seen = embedded.remote_of_destination();
        let remote = self.remote_seen_as((protocol, internal), seen)?.unwrap_or(seen);
        let found = self.find_internal(protocol, internal, remote)?;
        let slot = self.with_session(found, remote)?;
        if self.engine.seen(slot, remote) != seen {
            return Err(DropReason::IcmpNoSession.into());
        }
        Ok(About { external: self.engine.external_of(slot), remote, seen, protocol })
    }

    /// An error from outside; `sender` is its source as seen from inside.
    pub(super) fn error_inbound(&mut self, sender: AddressPort) -> Decided<()> {
        let embedded = self.embedded()?;
        //= rfc4787#REQ-12a
        let remote = embedded.remote_of_source();
        let (internal, seen) = self.error_internal(&embedded, remote)?;
        let (engine, realm) = (self.engine, internal.host.realm());
        let is_other = sender.address != self.headers.source.address;
        if !is_other {
            engine.check_entry(realm, sender.address)?;
        }
        engine.check_dropped_error(&embedded, internal, sender.address, seen)?;
        self.check_transit(engine.inside_mtu(realm))?;
        let destination = (seen != remote).then_some(seen);
        //= rfc5508#REQ-4c
        self.enter_error(&embedded, internal, destination, is_other.then_some(sender));
        Ok(())
    }

    /// The internal endpoint of the session that an error from outside is about, and its remote one
    /// as seen from there: the embedded packet came from its external endpoint.
    fn error_internal(&mut self, embedded: &Embedded, remote: AddressPort) -> Decided<Ends> {
        let AddressPort { address, port } = embedded.source;
        let index = self.engine.external.index(address).ok_or(DropReason::IcmpNoSession)?;
        let found = self.find_external(embedded.protocol, External::new(index, port), remote)?;
        let slot = self.with_session(found, remote)?;
        Ok((self.engine.table.mapping(slot).internal(), self.engine.seen(slot, remote)))
    }

    //= rfc4787#REQ-12
    //= rfc5382#REQ-10
    //= rfc7857#section-7.1
    //= rfc5597#REQ-10
    /// A mapping that was found, if it has a session with this remote endpoint.
    fn with_session(&mut self, slot: Option<u32>, remote: AddressPort) -> Decided<u32> {
        //= rfc5508#REQ-4
        //= rfc5508#REQ-5
        //= rfc5508#REQ-6
        let Some(slot) = slot else {
            self.note(Step::NoMapping);
            return Err(DropReason::IcmpNoSession.into());
        };
        self.note_mapping(slot);
        if self.engine.table.find_session(slot, remote).is_none() {
            self.note_no_session(remote);
            return Err(DropReason::IcmpNoSession.into());
        }
        Ok(slot)
    }

    //= rfc7857#section-12-error
    /// An error from inside about a hairpinned packet: translated as outbound, then as inbound.
    pub(super) fn hairpin_error(&mut self) -> Decided<()> {
        let embedded = self.embedded()?;
        let about = self.error_external(&embedded)?;
        let external = about.external;
        let query = embedded.protocol == protocol::ICMP;
        let remote = if query { AddressPort::new(external.address, 0) } else { external };
        let mut seen_outside = embedded;
        seen_outside.source = about.remote;
        if query {
            seen_outside.source.port = external.port;
        }
        let (internal, seen) = self.receive_error(&embedded, &seen_outside, remote)?;
        let destination = if seen == remote { external } else { seen };
        //= rfc5508#REQ-7
        //= rfc5508#REQ-7a
        let source = Some(AddressPort::new(seen.address, 0));
        self.enter_error(&embedded, internal, Some(destination), source);
        Ok(())
    }

    /// The second half of [`Decision::hairpin_error`].
    pub(super) fn receive_turned_error(&mut self) -> Decided<Verdict> {
        let embedded = self.embedded()?;
        let remote = embedded.remote_of_source();
        let (internal, seen) = self.receive_error(&embedded, &embedded, remote)?;
        let destination = (seen != remote).then_some(seen);
        //= rfc5508#REQ-7
        //= rfc5508#REQ-7a
        let source = (seen != remote).then_some(AddressPort::new(seen.address, 0));
        self.enter_error(&embedded, internal, destination, source);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// The receiver of an error that has turned round, if the error may enter its realm.
    fn receive_error(
        &mut self,
        embedded: &Embedded,
        seen_outside: &Embedded,
        remote: AddressPort,
    ) -> Decided<Ends> {
        let (internal, seen) = self.error_internal(seen_outside, remote)?;
        self.engine.check_realms(self.headers.realm, internal.host.realm(), true)?;
        self.engine.check_dropped_error(embedded, internal, seen.address, seen)?;
        Ok((internal, seen))
    }

    /// Plans an error for an internal endpoint: the embedded packet gets `destination` and the
    /// error `source`, if these are others.
    fn enter_error(
        &mut self,
        embedded: &Embedded,
        Internal { host, port }: Internal,
        destination: Option<AddressPort>,
        source: Option<AddressPort>,
    ) {
        self.plan.leaving = host.realm();
        let internal = AddressPort::new(host.address(), port);
        let inner = Rewrite { source: Some(internal), destination };
        let receiver = AddressPort::new(host.address(), 0);
        let outer = Rewrite { source, destination: Some(receiver) };
        self.plan.act = Act::Error { embedded: *embedded, inner, outer };
    }
}
