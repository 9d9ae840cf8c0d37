//! ICMP errors: whom they are about, and the packet they embed put right (section 6 of the
//! specification).

use super::Engine;
use crate::DropReason;
use crate::host::Host;
use crate::packet::Side;
use crate::parse::{Embedded, Headers};
use crate::rewrite::{Rewrite, apply, apply_embedded};
use crate::rules::Ruling;
use natgate_wire::protocol;

impl Engine {
    pub(super) fn translate_error_outbound(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let external = self.error_external(headers.realm, &embedded)?;
        let rewrite = Rewrite { source: None, destination: Some(external) };
        apply_embedded(message, &embedded, rewrite);
        //= rfc5508#REQ-5c
        let outer = Rewrite { source: Some((external.0, 0)), destination: None };
        apply(bytes, headers, outer);
        Ok(())
    }

    /// The external endpoint of the session that an error from inside is about: the embedded packet
    /// went to its internal endpoint.
    fn error_external(&self, realm: u16, embedded: &Embedded) -> Result<(u32, u16), DropReason> {
        let (address, port) = embedded.destination;
        let internal = (Host::new(realm, address), port);
        let remote = embedded.remote_of_destination();
        let slot = self.find_internal(embedded.protocol, internal, remote);
        Ok(self.external_of(self.with_session(slot, remote)?))
    }

    pub(super) fn translate_error_inbound(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        from: Side,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        //= rfc4787#REQ-12a
        let remote = embedded.remote_of_source();
        let internal = self.error_internal(&embedded, remote)?;
        self.check_entry(internal.0.realm(), headers.source.0)?;
        self.check_dropped_error(&embedded, internal, headers.source.0, remote)?;
        let mtu = self.inside_mtu(internal.0.realm());
        self.check_transit(bytes, headers, from, mtu)?;
        self.realms.leaving = internal.0.realm();
        let message = &mut bytes[usize::from(headers.header_len)..];
        let internal = (internal.0.address(), internal.1);
        apply_embedded(message, &embedded, Rewrite { source: Some(internal), destination: None });
        //= rfc5508#REQ-4c
        apply(bytes, headers, Rewrite { source: None, destination: Some((internal.0, 0)) });
        Ok(())
    }

    /// The internal endpoint of the session that an error from outside is about: the embedded packet
    /// came from its external endpoint.
    fn error_internal(
        &self,
        embedded: &Embedded,
        remote: (u32, u16),
    ) -> Result<(Host, u16), DropReason> {
        let (address, port) = embedded.source;
        let index = self.external.index(address).ok_or(DropReason::IcmpNoSession)?;
        let slot = self.find_external(embedded.protocol, (index, port), remote);
        Ok(self.table.mapping(self.with_session(slot, remote)?).internal())
    }

    //= rfc4787#REQ-12
    //= rfc5382#REQ-10
    //= rfc7857#section-7.1
    //= rfc5597#REQ-10
    /// A mapping that was found, if it has a session with this remote endpoint.
    fn with_session(&self, slot: Option<u32>, remote: (u32, u16)) -> Result<u32, DropReason> {
        //= rfc5508#REQ-4
        //= rfc5508#REQ-5
        //= rfc5508#REQ-6
        slot.filter(|&slot| self.table.find_session(slot, remote).is_some())
            .ok_or(DropReason::IcmpNoSession)
    }

    /// Whether a rule drops an error from `sender` about the session between these endpoints, or what
    /// the session sends.
    fn check_dropped_error(
        &self,
        about: &Embedded,
        (host, port): (Host, u16),
        sender: u32,
        remote: (u32, u16),
    ) -> Result<(), DropReason> {
        if !self.rules_of(host.realm()).drops() {
            return Ok(());
        }
        let ends = ((host.address(), 0), (sender, 0));
        match self.error_ruling(host.realm(), ends, about, ((host.address(), port), remote)) {
            Some(Ruling::Drop) => Err(DropReason::Rule),
            _ => Ok(()),
        }
    }

    //= rfc7857#section-12-error
    /// An error from inside about a hairpinned packet: translated as outbound, then as inbound.
    pub(super) fn hairpin_error(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let external = self.error_external(headers.realm, &embedded)?;
        let query = embedded.protocol == protocol::ICMP;
        let remote = if query { (external.0, 0) } else { external };
        let mut seen_outside = embedded;
        if query {
            seen_outside.source.1 = external.1;
        }
        let internal = self.error_internal(&seen_outside, remote)?;
        self.check_realms(headers.realm, internal.0.realm(), true)?;
        self.realms.leaving = internal.0.realm();
        self.check_dropped_error(&embedded, internal, external.0, remote)?;
        let internal = (internal.0.address(), internal.1);
        let rewrite = Rewrite { source: Some(internal), destination: Some(external) };
        apply_embedded(message, &embedded, rewrite);
        //= rfc5508#REQ-7
        //= rfc5508#REQ-7a
        let outer = Rewrite { source: Some((external.0, 0)), destination: Some((internal.0, 0)) };
        apply(bytes, headers, outer);
        Ok(())
    }
}
