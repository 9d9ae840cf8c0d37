//! Inside hosts: the identity of subscribers in mappings, quotas and blocks.
//!
//! A host is a realm and an IPv4 address in it. Realms (RFC 2663 section 2.1) may use the same
//! addresses. Realm 0 always exists.

use core::net::Ipv4Addr;

/// The bucket of a host, 0 to 255. If several engines share the work, each has some of the buckets.
pub const fn bucket(realm: u16, address: u32) -> usize {
    // Hosts of other realms are spread in another way, because they often have the same addresses.
    ((address ^ (realm as u32) << 20).wrapping_mul(0x9e37_79b1) >> 24) as usize
}

/// An inside host: its realm and its address there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Host(u64);

impl Host {
    /// Most realms, realm 0 included: the number of VLAN identifiers.
    pub(crate) const REALMS: u16 = 1 << 12;

    /// Makes the host with an address, in host byte order, in a realm.
    ///
    /// # Panics
    /// When the realm is not below [`Host::REALMS`].
    #[inline(always)]
    pub(crate) const fn new(realm: u16, address: u32) -> Self {
        debug_assert!(realm < Self::REALMS);
        Self((realm as u64) << 32 | address as u64)
    }

    /// The host's realm.
    #[inline(always)]
    pub(crate) const fn realm(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The host's address, host byte order.
    #[inline(always)]
    pub(crate) const fn address(self) -> u32 {
        self.0 as u32
    }

    /// The host's address.
    pub(crate) const fn ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address())
    }

    /// The host's [`bucket`].
    pub(crate) const fn bucket(self) -> usize {
        bucket(self.realm(), self.address())
    }

    /// Realm and address as one number.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}
