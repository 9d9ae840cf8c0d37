//! Hosts inside: subscribers as mappings, quotas and blocks know them.
//!
//! Today that is a realm and an IPv4 address in it. Realms (RFC 2663 section 2.1) may use the same
//! addresses; number 0 is the one that is always there.

use core::net::Ipv4Addr;

/// Hosts inside are told apart by 256 buckets, of which each engine has some where several share
/// the work.
pub const fn bucket(realm: u16, address: u32) -> usize {
    // Other realms' hosts are spread otherwise, for they often have the same addresses.
    ((address ^ (realm as u32) << 20).wrapping_mul(0x9e37_79b1) >> 24) as usize
}

/// A host inside: its realm and its address there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Host(u64);

impl Host {
    /// Most realms, number 0 among them: as many as VLAN identifiers can name.
    pub(crate) const REALMS: u16 = 1 << 12;

    /// The host that has an address, in host byte order, in a realm.
    ///
    /// # Panics
    /// When the realm is not below [`Host::REALMS`].
    #[inline(always)]
    pub(crate) const fn new(realm: u16, address: u32) -> Self {
        debug_assert!(realm < Self::REALMS);
        Self((realm as u64) << 32 | address as u64)
    }

    /// Its realm.
    #[inline(always)]
    pub(crate) const fn realm(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Its address, host byte order.
    #[inline(always)]
    pub(crate) const fn address(self) -> u32 {
        self.0 as u32
    }

    /// Its address.
    pub(crate) const fn ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address())
    }

    /// Its [`bucket`].
    pub(crate) const fn bucket(self) -> usize {
        bucket(self.realm(), self.address())
    }

    /// Realm and address as one number.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}
