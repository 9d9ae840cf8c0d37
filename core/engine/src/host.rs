//! Inside hosts: the identity of subscribers in mappings, quotas and blocks.
//!
//! A host is a realm and an IPv4 address in it. Realms (RFC 2663 section 2.1) may use the same
//! addresses. Realm 0 always exists.

use crate::config::Config;
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
    pub(crate) const REALMS: u16 = natgate_wire::REALMS;

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

/// Groups of hosts that are one subscriber each. In a realm of numbers
/// ([`RealmConfig::host_bits`](crate::RealmConfig::host_bits)), hosts with equal upper bits are one
/// subscriber. In every other realm, a host is a subscriber. Realms of numbers are behind all
/// others, so one comparison tells them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping {
    /// The first realm of numbers; [`Grouping::NO_REALM`]: there is none.
    first: u16,
    /// The bits of a number that tell the subscriber, in each realm of numbers.
    masks: [u32; Config::MOST_NUMBERED],
}

impl Grouping {
    const NO_REALM: u16 = u16::MAX;
    /// Every host is a subscriber.
    pub(crate) const NONE: Self =
        Self { first: Self::NO_REALM, masks: [u32::MAX; Config::MOST_NUMBERED] };

    /// The grouping of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let mut grouping = Self::NONE;
        let numbers = (1..).zip(&config.realms);
        let numbers = numbers.filter_map(|(number, realm)| Some((number, realm.host_bits?)));
        for ((number, bits), mask) in numbers.zip(&mut grouping.masks) {
            grouping.first = grouping.first.min(number);
            *mask = u32::MAX << bits;
        }
        grouping
    }

    /// The subscriber of a host: its first possible host.
    #[inline(always)]
    pub(crate) fn subscriber(self, host: Host) -> Host {
        match self.has(host.realm()) {
            true => {
                let mask = self.masks[usize::from(host.realm() != self.first)];
                Host::new(host.realm(), host.address() & mask)
            }
            false => host,
        }
    }

    /// True if the hosts of a realm are numbers.
    #[inline(always)]
    pub(crate) fn has(self, realm: u16) -> bool {
        realm >= self.first
    }
}
