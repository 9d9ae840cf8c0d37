//! Keys by which the table finds mappings, and their hashes.

use super::{Key, Mapping, Table};
use crate::config::Behavior;
use crate::endpoint::{AddressPort, Internal};
use crate::protocols::has_ports;

/// The two words that are hashed for a protocol, an internal endpoint and a remote endpoint.
#[inline(always)]
pub(super) fn words(protocol: u8, internal: Internal, remote: AddressPort) -> (u64, u64) {
    (internal.word(), with_protocol(remote.word(), protocol))
}

/// The word of a remote endpoint, and a protocol.
#[inline(always)]
fn with_protocol(remote: u64, protocol: u8) -> u64 {
    remote | u64::from(protocol) << 48
}

impl Table {
    /// The key under which a static mapping is filed: whatever the mapping behavior, it serves all
    /// remotes.
    pub(crate) fn static_key(&self, protocol: u8, internal: Internal, remote: AddressPort) -> Key {
        if has_ports(protocol) {
            return Key { protocol, internal, remote: AddressPort::new(0, 0) };
        }
        self.key(protocol, internal, remote)
    }

    #[inline]
    pub(crate) fn hash(&self, key: Key) -> u64 {
        let (internal, remote) = words(key.protocol, key.internal, key.remote);
        self.key.hash(internal, remote)
    }

    /// The hash by which an outbound packet of a protocol with ports finds its mapping; both
    /// endpoints as words.
    #[inline(always)]
    pub(crate) fn flow_hash(&self, protocol: u8, internal: u64, remote: u64) -> u64 {
        self.key.hash(internal, with_protocol(remote, protocol) & self.remote_mask)
    }

    /// The key of a mapping that is in the table.
    pub(super) fn key_of(&self, mapping: &Mapping) -> Key {
        let internal = mapping.internal();
        let remote = mapping.first.remote();
        match mapping.is_static() {
            true => self.static_key(mapping.protocol, internal, remote),
            false => self.key(mapping.protocol, internal, remote),
        }
    }

    /// The hash of the key of a mapping that is in the table.
    #[inline(always)]
    pub(super) fn hash_of(&self, mapping: &Mapping) -> u64 {
        if mapping.is_static() || !has_ports(mapping.protocol) {
            return self.hash(self.key_of(mapping));
        }
        let remote = mapping.first.remote().word();
        let hash = self.flow_hash(mapping.protocol, mapping.inside_word(), remote);
        debug_assert_eq!(hash, self.hash(self.key_of(mapping)));
        hash
    }

    /// True if a mapping's key names the remote of its first session. That place then keeps the
    /// remote when the session goes before others do.
    pub(super) fn is_keyed_by_remote(&self, mapping: &Mapping) -> bool {
        self.mapping_behavior != Behavior::EndpointIndependent && !mapping.is_static()
    }
}
