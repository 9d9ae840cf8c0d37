//! ICMP errors: whom they are about and what they would become. `errors.rs` of the complete way,
//! for reading alone.

use super::walk::Walk;
use super::{Step, endpoint};
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::packet::{Side, Verdict};
use crate::parse::Embedded;
use crate::translate::Fate;
use natgate_wire::protocol;

/// Somebody inside, and a remote endpoint as seen from there.
type Seen = (Internal, AddressPort);

impl Walk<'_> {
    fn embedded(&mut self) -> Result<Embedded, DropReason> {
        let embedded = Embedded::read(&self.bytes[usize::from(self.headers.header_len)..])?;
        let Embedded { protocol, source, destination, .. } = embedded;
        let (source, destination) = (endpoint(source), endpoint(destination));
        self.note(Step::About { protocol, source, destination });
        Ok(embedded)
    }

    pub(super) fn translate_error_outbound(&mut self) -> Result<(), DropReason> {
        let embedded = self.embedded()?;
        let [external, _] = self.error_external(&embedded)?;
        self.source = AddressPort::new(external.address, 0);
        if let Some(destination) = self.headers.new_destination(0) {
            self.destination = destination;
        }
        Ok(())
    }

    /// The external endpoint of the session that an error from inside is about, and the remote one.
    fn error_external(&mut self, embedded: &Embedded) -> Result<[AddressPort; 2], DropReason> {
        let AddressPort { address, port } = embedded.destination;
        let (protocol, internal) =
            (embedded.protocol, Internal::new(Host::new(self.headers.realm, address), port));
        let seen = embedded.remote_of_destination();
        let remote = self.engine.twice.remote((protocol, internal), seen).unwrap_or(seen);
        let found = self.engine.look_up_internal(protocol, internal, remote);
        let slot = self.with_session(found, remote)?;
        if self.engine.seen(slot, remote) != seen {
            return Err(DropReason::IcmpNoSession);
        }
        Ok([self.engine.external_of(slot), remote])
    }

    pub(super) fn translate_error_inbound(
        &mut self,
        sender: AddressPort,
    ) -> Result<(), DropReason> {
        let embedded = self.embedded()?;
        let remote = embedded.remote_of_source();
        let (internal, seen) = self.error_internal(&embedded, remote)?;
        let (engine, realm) = (self.engine, internal.host.realm());
        if sender.address == self.headers.source.address {
            engine.check_entry(realm, sender.address)?;
        }
        engine.check_dropped_error(&embedded, internal, sender.address, seen)?;
        self.check_transit(engine.inside_mtu(realm))?;
        self.leaving = realm;
        self.source.address = sender.address;
        self.destination = AddressPort::new(internal.host.address(), 0);
        Ok(())
    }

    fn error_internal(
        &mut self,
        embedded: &Embedded,
        remote: AddressPort,
    ) -> Result<Seen, DropReason> {
        let AddressPort { address, port } = embedded.source;
        let index = self.engine.external.index(address).ok_or(DropReason::IcmpNoSession)?;
        let slot =
            self.engine.look_up_external(embedded.protocol, External::new(index, port), remote);
        let slot = self.with_session(slot, remote)?;
        Ok((self.engine.table.mapping(slot).internal(), self.engine.seen(slot, remote)))
    }

    fn with_session(&mut self, slot: Option<u32>, remote: AddressPort) -> Result<u32, DropReason> {
        let Some(slot) = slot else {
            self.note(Step::NoMapping);
            return Err(DropReason::IcmpNoSession);
        };
        self.note_mapping(slot);
        if self.engine.table.find_session(slot, remote).is_none() {
            self.note(Step::NoSession(endpoint(remote)));
            return Err(DropReason::IcmpNoSession);
        }
        Ok(slot)
    }

    pub(super) fn hairpin_error(&mut self) -> Result<(), DropReason> {
        let embedded = self.embedded()?;
        let [external, about_remote] = self.error_external(&embedded)?;
        let query = embedded.protocol == protocol::ICMP;
        let remote = if query { AddressPort::new(external.address, 0) } else { external };
        let mut seen_outside = embedded;
        seen_outside.source = about_remote;
        if query {
            seen_outside.source.port = external.port;
        }
        self.receive_error(&embedded, &seen_outside, remote)
    }

    pub(super) fn receive_turned_error(&mut self) -> Fate {
        let embedded = self.embedded()?;
        let remote = embedded.remote_of_source();
        self.receive_error(&embedded, &embedded, remote)?;
        Ok(Verdict::Forward(Side::Inside))
    }

    /// What an error that has turned round becomes for its receiver.
    fn receive_error(
        &mut self,
        embedded: &Embedded,
        seen_outside: &Embedded,
        remote: AddressPort,
    ) -> Result<(), DropReason> {
        let (internal, seen) = self.error_internal(seen_outside, remote)?;
        let realm = internal.host.realm();
        self.engine.check_realms(self.headers.realm, realm, true)?;
        self.leaving = realm;
        self.engine.check_dropped_error(embedded, internal, seen.address, seen)?;
        if !self.headers.turned || seen != remote {
            self.source = AddressPort::new(seen.address, 0);
        }
        self.destination = AddressPort::new(internal.host.address(), 0);
        Ok(())
    }
}
