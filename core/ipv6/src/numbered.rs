//! Hosts that have numbers in the engine: those of NAT64, or those behind the tunnels of DS-Lite.

use crate::Hosts;
use crate::convert::DIFFERENCE;
use crate::translator::{LEAST_MTU, Translator};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::Prefix;

/// Name of a host of NAT64 or DS-Lite that has a number in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostName {
    /// Address of the host; `None`: no host has the number any more. A host behind a tunnel of
    /// DS-Lite has its inner IPv4 address, as an IPv4-mapped one (RFC 4291 section 2.5.5.2).
    pub address: Option<Ipv6Addr>,
    /// Prefix that is the subscriber.
    pub prefix: Ipv6Addr,
    /// Length of the prefix, bits.
    pub len: u8,
}

impl HostName {
    /// Inner address of a host behind a tunnel of DS-Lite.
    pub fn inner(&self) -> Option<Ipv4Addr> {
        self.address?.to_ipv4_mapped()
    }
}

impl Translator {
    /// Number of the realm of hosts with numbers in the engine; `None`: there is neither NAT64 nor
    /// DS-Lite.
    pub fn realm(&self) -> Option<u16> {
        self.hosts().map(|_| self.realm)
    }

    /// The hosts of NAT64, or those behind the tunnels of DS-Lite.
    pub fn hosts(&self) -> Option<&Hosts> {
        let of_nat64 = self.nat64.as_ref().map(|nat64| &nat64.hosts);
        of_nat64.or_else(|| self.tunneled_hosts())
    }

    /// Largest IPv4 packet to a host with a number on a link, bytes. For DS-Lite, tunnel packets
    /// are cut, so any fits.
    pub fn mtu_of_hosts(&self, link: u16) -> u16 {
        match self.nat64 {
            Some(_) => link.max(LEAST_MTU) - DIFFERENCE as u16,
            None => u16::MAX,
        }
    }

    /// The host with a number, and its subscriber; `None`: the realm is another one.
    pub fn host(&self, realm: u16, number: Ipv4Addr) -> Option<HostName> {
        let hosts = self.hosts().filter(|_| self.realm == realm)?;
        let (prefix, len) = hosts.subscriber(number)?;
        let address = match self.inner_address(number) {
            Some(inner) => Some(inner.to_ipv6_mapped()),
            None => hosts.address(number).map(Ipv6Addr::from_bits),
        };
        Some(HostName { address, prefix: Ipv6Addr::from_bits(prefix), len })
    }

    /// Realm and numbers of the hosts in a prefix, which is one address or a subscriber.
    /// `None`: there are no such hosts.
    pub fn numbers(&self, prefix: Ipv6Addr, len: u8) -> Option<(u16, Prefix)> {
        Some((self.realm()?, self.hosts()?.numbers(prefix.to_bits(), len)?))
    }
}
