//! ICMP errors: the session that an error quotes, and the translation of the embedded packet
//! (section 6 of the specification).

use super::{Engine, RuleEnds};
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::packet::Side;
use crate::parse::{Embedded, Headers};
use crate::rewrite::{Rewrite, apply, apply_embedded};
use crate::rules::Ruling;
use natgate_wire::protocol;

/// The session that an ICMP error from inside quotes.
struct About {
    external: AddressPort,
    /// Remote endpoint as seen outside.
    remote: AddressPort,
    /// Remote endpoint as seen inside.
    seen: AddressPort,
    protocol: u8,
}

/// An internal endpoint, and a remote endpoint as seen from it.
type Seen = (Internal, AddressPort);

impl About {
    /// New remote endpoint in the embedded packet, if it has another name outside. An identifier is
    /// translated with the near endpoint.
    fn new_remote(&self) -> Option<AddressPort> {
        let query = self.protocol == protocol::ICMP;
        let port = if query { self.external.port } else { self.remote.port };
        (self.remote != self.seen).then_some(AddressPort::new(self.remote.address, port))
    }
}

impl Engine {
    pub(super) fn translate_error_outbound(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let about = self.error_external(headers.realm, &embedded)?;
        let external = about.external;
        let rewrite = Rewrite { source: about.new_remote(), destination: Some(external) };
        apply_embedded(message, &embedded, rewrite);
        //= rfc5508#REQ-5c
        let source = Some(AddressPort::new(external.address, 0));
        apply(bytes, headers, Rewrite { source, destination: headers.new_destination(0) });
        Ok(())
    }

    /// Finds the session that an error from inside quotes: the embedded packet went to the internal
    /// endpoint.
    fn error_external(&mut self, realm: u16, embedded: &Embedded) -> Result<About, DropReason> {
        let AddressPort { address, port } = embedded.destination;
        let (protocol, internal) =
            (embedded.protocol, Internal::new(Host::new(realm, address), port));
        let seen = embedded.remote_of_destination();
        let remote = self.remote_seen_as((protocol, internal), seen).unwrap_or(seen);
        let found = self.find_internal(protocol, internal, remote);
        let slot = self.with_session(found, remote)?;
        if self.seen(slot, remote) != seen {
            return Err(DropReason::IcmpNoSession);
        }
        Ok(About { external: self.external_of(slot), remote, seen, protocol })
    }

    /// Translates an error from outside. `sender` is its source as seen from inside.
    pub(super) fn translate_error_inbound(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        sender: AddressPort,
        from: Side,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        //= rfc4787#REQ-12a
        let remote = embedded.remote_of_source();
        let (internal, seen) = self.error_internal(&embedded, remote)?;
        if sender.address == headers.source.address {
            self.check_entry(internal.host.realm(), sender.address)?;
        }
        self.check_dropped_error(&embedded, internal, sender.address, seen)?;
        let mtu = self.inside_mtu(internal.host.realm());
        self.check_transit(bytes, headers, from, mtu)?;
        self.realms.leaving = internal.host.realm();
        let message = &mut bytes[usize::from(headers.header_len)..];
        let internal = AddressPort::new(internal.host.address(), internal.port);
        let destination = (seen != remote).then_some(seen);
        apply_embedded(message, &embedded, Rewrite { source: Some(internal), destination });
        //= rfc5508#REQ-4c
        let source = (sender.address != headers.source.address).then_some(sender);
        apply(
            bytes,
            headers,
            Rewrite { source, destination: Some(AddressPort::new(internal.address, 0)) },
        );
        Ok(())
    }

    /// Finds the session that an error from outside quotes: the embedded packet came from the
    /// external endpoint. Returns the internal endpoint, and the remote endpoint as seen from it.
    pub(super) fn error_internal(
        &mut self,
        embedded: &Embedded,
        remote: AddressPort,
    ) -> Result<Seen, DropReason> {
        let AddressPort { address, port } = embedded.source;
        let index = self.external.index(address).ok_or(DropReason::IcmpNoSession)?;
        let slot = self.find_external(embedded.protocol, External::new(index, port), remote);
        let slot = self.with_session(slot, remote)?;
        Ok((self.table.mapping(slot).internal(), self.seen(slot, remote)))
    }

    //= rfc4787#REQ-12
    //= rfc5382#REQ-10
    //= rfc7857#section-7.1
    //= rfc5597#REQ-10
    /// Returns a mapping if it has a session with this remote endpoint.
    fn with_session(&self, slot: Option<u32>, remote: AddressPort) -> Result<u32, DropReason> {
        //= rfc5508#REQ-4
        //= rfc5508#REQ-5
        //= rfc5508#REQ-6
        slot.filter(|&slot| self.table.find_session(slot, remote).is_some())
            .ok_or(DropReason::IcmpNoSession)
    }

    /// Checks that no rule drops an error from `sender` about the session between these endpoints,
    /// or packets of the session.
    pub(super) fn check_dropped_error(
        &self,
        about: &Embedded,
        Internal { host, port }: Internal,
        sender: u32,
        remote: AddressPort,
    ) -> Result<(), DropReason> {
        if !self.rules_of(host.realm()).drops() {
            return Ok(());
        }
        let ends = RuleEnds {
            inner: AddressPort::new(host.address(), 0),
            outer: AddressPort::new(sender, 0),
        };
        let about_ends = RuleEnds { inner: AddressPort::new(host.address(), port), outer: remote };
        match self.error_ruling(host.realm(), ends, about, about_ends) {
            Some(Ruling::Drop) => Err(DropReason::Rule),
            _ => Ok(()),
        }
    }

    //= rfc7857#section-12-error
    /// Translates an error from inside about a hairpinned packet: as outbound, then as inbound.
    pub(super) fn hairpin_error(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let about = self.error_external(headers.realm, &embedded)?;
        let external = about.external;
        let query = embedded.protocol == protocol::ICMP;
        let remote = if query { AddressPort::new(external.address, 0) } else { external };
        let mut seen_outside = embedded;
        seen_outside.source = about.remote;
        if query {
            seen_outside.source.port = external.port;
        }
        let (internal, seen) = self.error_internal(&seen_outside, remote)?;
        self.check_realms(headers.realm, internal.host.realm(), true)?;
        self.realms.leaving = internal.host.realm();
        self.check_dropped_error(&embedded, internal, seen.address, seen)?;
        let internal = AddressPort::new(internal.host.address(), internal.port);
        let destination = if seen == remote { external } else { seen };
        let rewrite = Rewrite { source: Some(internal), destination: Some(destination) };
        apply_embedded(message, &embedded, rewrite);
        //= rfc5508#REQ-7
        //= rfc5508#REQ-7a
        let outer = Rewrite {
            source: Some(AddressPort::new(seen.address, 0)),
            destination: Some(AddressPort::new(internal.address, 0)),
        };
        apply(bytes, headers, outer);
        Ok(())
    }
}
