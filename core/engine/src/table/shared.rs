//! Sessions of mappings that share an endpoint with other mappings: one index, by endpoint and
//! remote endpoint, for both ends.
//!
//! Mappings of protocols without ports, of a service's servers and of overloaded ports share an
//! external endpoint. Static mappings that only the outside begins share their internal endpoint
//! with mappings that the host itself begins, and mappings of overloaded ports share theirs. Flags
//! of a mapping tell its shared ends. Sessions filed here at the internal end are not in the
//! table's own index: a search there continues here if it finds nothing. At neither end do two
//! mappings have a session with the same remote endpoint, so the answer is always unique.

use super::{Mapping, NewMapping, Table, words};
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::index::Index;
use crate::protocols::has_ports;
use crate::random::HashKey;
use crate::session::Way;

/// Flag of a mapping: others have its external endpoint, too.
pub(crate) const SHARED_EXTERNAL: u8 = 16;
/// Flag of a mapping: others may have its internal endpoint. Only its sessions lead to the mapping.
pub(crate) const SHARED_INTERNAL: u8 = 32;
/// Flag of a mapping: only the inside begins its sessions.
pub(crate) const OUTBOUND_ONLY: u8 = 64;

/// The two ends of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    External,
    Internal,
}

/// Key of a search: a protocol's session at an endpoint with a remote endpoint.
#[derive(Clone, Copy, Debug)]
struct At {
    end: End,
    protocol: u8,
    /// The endpoint. At the external end the host is the index of the address.
    endpoint: Internal,
    remote: AddressPort,
}

/// The index from such sessions to the slots of their mappings.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    index: Index,
    /// Number of sessions at the external end, of protocols with ports; and number at the internal
    /// end.
    external: u32,
    internal: u32,
}

impl Shared {
    pub(super) fn new(capacity: usize) -> Self {
        Self { index: Index::new(capacity), external: 0, internal: 0 }
    }
}

fn hash(key: HashKey, at: At) -> u64 {
    let end = if at.end == End::Internal { 1 << 61 } else { 1 << 62 };
    let (endpoint, remote) = words(at.protocol, at.endpoint, at.remote);
    key.hash(endpoint, remote | end)
}

impl Mapping {
    /// True if other mappings have the same external endpoint.
    #[inline(always)]
    pub(crate) fn shares_external(&self) -> bool {
        self.flags & SHARED_EXTERNAL != 0
    }

    /// True if, from inside, only its sessions lead to the mapping.
    #[inline(always)]
    pub(crate) fn shares_internal(&self) -> bool {
        self.flags & SHARED_INTERNAL != 0
    }

    /// True if only the inside begins the mapping's sessions.
    #[inline(always)]
    pub(crate) fn is_outbound_only(&self) -> bool {
        self.flags & OUTBOUND_ONLY != 0
    }

    /// Keys under which a session with a remote endpoint is filed.
    fn places(&self, remote: AddressPort) -> [Option<At>; 2] {
        let protocol = self.protocol;
        let External { index, port } = self.external();
        let endpoint = Internal::new(Host::new(0, index), port);
        let external = At { end: End::External, protocol, endpoint, remote };
        let internal = At { end: End::Internal, protocol, endpoint: self.internal(), remote };
        [self.shares_external().then_some(external), self.shares_internal().then_some(internal)]
    }
}

impl Table {
    /// True if any session is filed by its internal end.
    #[inline(always)]
    pub(crate) fn has_shared_internal(&self) -> bool {
        self.shared.internal != 0
    }

    /// True if any session of a protocol with ports is filed by its external end.
    #[inline(always)]
    pub(crate) fn has_shared_external(&self) -> bool {
        self.shared.external != 0
    }

    /// Finds the mapping that shares an external endpoint and has a session with a remote endpoint.
    pub(crate) fn find_shared_external(
        &self,
        protocol: u8,
        External { index, port }: External,
        remote: AddressPort,
    ) -> Option<u32> {
        let endpoint = Internal::new(Host::new(0, index), port);
        self.find_shared(At { end: End::External, protocol, endpoint, remote })
    }

    /// Finds the mapping of a protocol without ports that has an external address, by its index,
    /// for a remote endpoint with port 0.
    pub(crate) fn portless(&self, protocol: u8, index: u32, remote: AddressPort) -> Option<u32> {
        self.find_shared_external(protocol, External::new(index, 0), remote)
    }

    /// Finds the mapping that shares an internal endpoint and has a session with a remote endpoint.
    pub(crate) fn find_shared_internal(
        &self,
        protocol: u8,
        endpoint: Internal,
        remote: AddressPort,
    ) -> Option<u32> {
        self.find_shared(At { end: End::Internal, protocol, endpoint, remote })
    }

    fn find_shared(&self, at: At) -> Option<u32> {
        self.shared.index.find(hash(self.key, at), |slot| {
            let mapping = self.mapping(slot);
            let is_there = match at.end {
                End::External => {
                    let External { index, port } = mapping.external();
                    mapping.shares_external()
                        && Internal::new(Host::new(0, index), port) == at.endpoint
                }
                End::Internal => mapping.shares_internal() && mapping.internal() == at.endpoint,
            };
            is_there
                && mapping.protocol == at.protocol
                && self.find_session(slot, at.remote).is_some()
        })
    }

    /// Files a new session of a mapping at each end that the mapping shares.
    pub(super) fn share(&mut self, slot: u32, remote: AddressPort) {
        self.change_shares(slot, remote, 1, |index, hash| index.insert(hash, slot));
    }

    /// Removes a session, which the mapping still has, from the index.
    pub(super) fn unshare(&mut self, slot: u32, remote: AddressPort) {
        self.change_shares(slot, remote, -1, |index, hash| index.remove(hash, slot));
    }

    fn change_shares(
        &mut self,
        slot: u32,
        remote: AddressPort,
        change: i32,
        file: impl Fn(&mut Index, u64),
    ) {
        let mapping = *self.mapping(slot);
        for at in mapping.places(remote).into_iter().flatten() {
            file(&mut self.shared.index, hash(self.key, at));
            match at.end {
                // These sessions are always searched for, so they need no count.
                End::External if !has_ports(at.protocol) => {}
                End::External => {
                    self.shared.external = self.shared.external.strict_add_signed(change);
                }
                End::Internal => {
                    self.shared.internal = self.shared.internal.strict_add_signed(change);
                }
            }
        }
    }

    /// True if a new mapping's session with this remote endpoint would be ambiguous: another
    /// mapping with the same internal or external endpoint has a session with that remote endpoint.
    pub(crate) fn clashes(&self, new: &NewMapping, remote: AddressPort) -> bool {
        let NewMapping { protocol, external, .. } = *new;
        self.has_shared_external()
            && has_ports(protocol)
            && self.find_shared_external(protocol, external, remote).is_some()
            || self.clashes_inside(new, remote)
    }

    /// The part of [`Table::clashes`] for the internal endpoint.
    fn clashes_inside(&self, new: &NewMapping, remote: AddressPort) -> bool {
        let NewMapping { protocol, internal, .. } = *new;
        if self.has_shared_internal()
            && self.find_shared_internal(protocol, internal, remote).is_some()
        {
            return true;
        }
        let has_session = |slot: &u32| self.find_session(*slot, remote).is_some();
        let ordinary = || {
            let keyed = self.find(self.key(protocol, internal, remote));
            let fixed = self.find(self.static_key(protocol, internal, remote));
            keyed.into_iter().chain(fixed).any(|slot| has_session(&slot))
        };
        new.flags & SHARED_INTERNAL != 0 && ordinary()
    }

    /// [`Table::clashes`] for an existing mapping, and a session that a packet going this way
    /// begins. The search for the mapping of a packet from outside has found no session at the
    /// external endpoint, or one that the packet replaces.
    pub(crate) fn is_ambiguous(&self, slot: u32, remote: AddressPort, way: Way) -> bool {
        let mapping = self.mapping(slot);
        if !self.has_shared_internal() && !self.has_shared_external() && !mapping.shares_internal()
        {
            return false;
        }
        let new = NewMapping {
            protocol: mapping.protocol,
            internal: mapping.internal(),
            external: mapping.external(),
            timeouts: 0,
            is_static: mapping.is_static(),
            permanent: mapping.is_permanent(),
            flags: mapping.flags,
        };
        match way {
            Way::Out => self.clashes(&new, remote),
            Way::In => self.clashes_inside(&new, remote),
        }
    }
}
