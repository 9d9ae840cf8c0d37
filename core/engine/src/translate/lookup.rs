//! The search for mappings by internal and by external endpoint.
//!
//! A search that may change state checks the mapping against the configuration in force. `look_up`
//! only reads.

use super::Engine;
use crate::config::Behavior;
use crate::endpoint::{AddressPort, External, Internal};
use crate::protocols::has_ports;
use crate::table::Key;

impl Engine {
    /// The internal endpoint of a mapping, in the form of packets.
    #[inline(always)]
    pub(super) fn internal_of(&self, slot: u32) -> AddressPort {
        let Internal { host, port } = self.table.mapping(slot).internal();
        AddressPort::new(host.address(), port)
    }

    /// The external endpoint of a mapping, in the form of packets.
    #[inline(always)]
    pub(super) fn external_of(&self, slot: u32) -> AddressPort {
        let External { index, port } = self.table.mapping(slot).external();
        AddressPort::new(self.external.address(index), port)
    }

    /// Finds the mapping of an internal endpoint towards a remote endpoint, if the configuration in
    /// force allows the mapping.
    #[inline]
    pub(crate) fn find_internal(
        &mut self,
        protocol: u8,
        internal: Internal,
        remote: AddressPort,
    ) -> Option<u32> {
        loop {
            let slot = self.look_up_internal(protocol, internal, remote)?;
            if self.table.is_asked(slot) || self.ask(slot) {
                return Some(slot);
            }
        }
    }

    /// Finds the mapping of an internal endpoint towards a remote endpoint. A static mapping serves
    /// all remote endpoints, even if the mapping behavior files others by remote endpoint.
    #[inline]
    pub(super) fn look_up_internal(
        &self,
        protocol: u8,
        internal: Internal,
        remote: AddressPort,
    ) -> Option<u32> {
        //= rfc4787#REQ-11
        let mut found = self.table.find(self.table.key(protocol, internal, remote));
        if found.is_none()
            && self.config.mapping != Behavior::EndpointIndependent
            && (!self.config.statics.is_empty() || self.holds.has_room())
            && has_ports(protocol)
        {
            let key = Key { protocol, internal, remote: AddressPort::new(0, 0) };
            found = self.table.find(key).filter(|&slot| {
                let mapping = self.table.mapping(slot);
                mapping.is_static()
                    || mapping.is_explicit()
                    || self.table.find_session(slot, remote).is_some()
            });
        }
        if self.table.has_shared_internal() {
            return self.or_shared(found, remote, || {
                self.table.find_shared_internal(protocol, internal, remote)
            });
        }
        found
    }

    /// Finds the mapping of an endpoint. If several mappings share the endpoint, the one with a
    /// session to `remote` wins; otherwise the `named` one.
    #[cold]
    pub(super) fn or_shared(
        &self,
        named: Option<u32>,
        remote: AddressPort,
        shared: impl FnOnce() -> Option<u32>,
    ) -> Option<u32> {
        let known = |slot: &u32| self.table.find_session(*slot, remote).is_some();
        if named.as_ref().is_some_and(known) { named } else { shared().or(named) }
    }

    /// Finds the mapping of an external endpoint, if the configuration in force allows the mapping.
    /// For protocols without ports, `remote` decides.
    #[inline]
    pub(crate) fn find_external(
        &mut self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> Option<u32> {
        let slot = self.look_up_external(protocol, external, remote)?;
        (self.table.is_asked(slot) || self.ask(slot)).then_some(slot)
    }

    /// Finds the mapping of an external endpoint. For protocols without ports, `remote` decides.
    #[inline]
    pub(crate) fn look_up_external(
        &self,
        protocol: u8,
        External { index, port }: External,
        remote: AddressPort,
    ) -> Option<u32> {
        let shared =
            || self.table.find_shared_external(protocol, External::new(index, port), remote);
        if !has_ports(protocol) {
            return shared();
        }
        let owner = self.external.owner(protocol, index, port);
        if self.table.has_shared_external() { self.or_shared(owner, remote, shared) } else { owner }
    }
}
