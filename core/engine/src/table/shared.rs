//! Sessions of mappings whose endpoint does not tell which mapping it is: one index, by endpoint
//! and remote, for both ends.
//!
//! The external endpoint is shared by mappings of protocols without ports, of a service's servers
//! and of overloaded ports; the internal one by static mappings that only the outside begins, which
//! stand beside what the host itself begins, and by mappings of overloaded ports. A mapping says by
//! its flags at which ends it is such. What is filed at the internal end here is not filed in the
//! table's own index: whoever looks there asks here if nothing was found. At no end do two mappings
//! have a session with the same remote endpoint, so an answer is never in doubt.

use super::{Mapping, NewMapping, Table, words};
use crate::endpoint::{AddressPort, External, Internal};
use crate::host::Host;
use crate::index::Index;
use crate::protocols::has_ports;
use crate::random::HashKey;

/// Flag of a mapping: others have its external endpoint, too.
pub(crate) const SHARED_EXTERNAL: u8 = 16;
/// Flag of a mapping: others may have its internal endpoint, and it is found by its sessions alone.
pub(crate) const SHARED_INTERNAL: u8 = 32;
/// Flag of a mapping: only the inside begins its sessions.
pub(crate) const OUTBOUND_ONLY: u8 = 64;

/// The two ends of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    External,
    Internal,
}

/// What is looked for: a protocol's session at an endpoint with a remote one.
#[derive(Clone, Copy, Debug)]
struct At {
    end: End,
    protocol: u8,
    /// Of the external end the host is the index of the address.
    endpoint: Internal,
    remote: AddressPort,
}

/// The index of such sessions, to their mappings' slots.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    index: Index,
    /// Sessions at the external end of protocols with ports, and all at the internal one.
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
    /// Whether others have its external endpoint, too.
    #[inline(always)]
    pub(crate) fn shares_external(&self) -> bool {
        self.flags & SHARED_EXTERNAL != 0
    }

    /// Whether it is found by its sessions alone from the inside.
    #[inline(always)]
    pub(crate) fn shares_internal(&self) -> bool {
        self.flags & SHARED_INTERNAL != 0
    }

    /// Whether only the inside begins its sessions.
    #[inline(always)]
    pub(crate) fn is_outbound_only(&self) -> bool {
        self.flags & OUTBOUND_ONLY != 0
    }

    /// Where its session with a remote endpoint is filed, if anywhere.
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
    /// Whether any session is filed by its internal end.
    #[inline(always)]
    pub(crate) fn has_shared_internal(&self) -> bool {
        self.shared.internal != 0
    }

    /// Whether any session of a protocol with ports is filed by its external end.
    #[inline(always)]
    pub(crate) fn has_shared_external(&self) -> bool {
        self.shared.external != 0
    }

    /// The mapping that shares an external endpoint, given by its address's index, and has a
    /// session with a remote one.
    pub(crate) fn find_shared_external(
        &self,
        protocol: u8,
        External { index, port }: External,
        remote: AddressPort,
    ) -> Option<u32> {
        let endpoint = Internal::new(Host::new(0, index), port);
        self.find_shared(At { end: End::External, protocol, endpoint, remote })
    }

    /// The mapping that shares an internal endpoint and has a session with a remote one.
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

    /// Files a session that a mapping has got wherever the mapping shares an end.
    pub(super) fn share(&mut self, slot: u32, remote: AddressPort) {
        self.change_shares(slot, remote, 1, |index, hash| index.insert(hash, slot));
    }

    /// Takes a session, which the mapping still has, out of where it is filed.
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
                // These are always looked for.
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

    /// Whether an answer could not be told from another mapping's, were there a session with this
    /// remote endpoint of a mapping like `new`, which has none.
    pub(crate) fn clashes(&self, new: &NewMapping, remote: AddressPort) -> bool {
        let NewMapping { protocol, internal, external, .. } = *new;
        if self.has_shared_external()
            && has_ports(protocol)
            && self.find_shared_external(protocol, external, remote).is_some()
            || self.has_shared_internal()
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

    /// [`Table::clashes`] for a mapping that there is.
    pub(crate) fn is_ambiguous(&self, slot: u32, remote: AddressPort) -> bool {
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
        self.clashes(&new, remote)
    }
}
