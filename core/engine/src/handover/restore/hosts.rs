//! Hosts with numbers in copies: the hosts of NAT64, and those behind the tunnels of DS-Lite.
//!
//! A number means nothing to another engine. So a record has the host's identity, and each engine
//! has its own number for it.

use core::net::Ipv4Addr;

/// Identity of a host with a number, the same at both nodes of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostIdentity {
    /// IPv6 address; behind a tunnel, that of the tunnel's far end.
    pub address: u128,
    /// IPv4 address behind the tunnel; 0: there is no tunnel.
    pub inner: u32,
}

/// Why a host has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNumber {
    /// The table of hosts is full.
    Full,
    /// The host's subscriber has as many hosts as possible.
    Subscriber,
    /// Packets of the host are not translated here.
    Unfit,
}

/// Realm and number of a host.
pub type RealmNumber = (u16, Ipv4Addr);

/// The numbers of an engine's hosts. Hosts of two realms may have the same number.
pub trait HostNumbers {
    /// The host with a number. `None`: no host has it.
    fn identity(&self, number: RealmNumber) -> Option<HostIdentity>;

    /// The number of a host in a realm. A host without a number gets one.
    ///
    /// # Errors
    /// Why the host has no number.
    fn number(&mut self, realm: u16, host: HostIdentity) -> Result<Ipv4Addr, NoNumber>;

    /// The mapping for which the last number was asked has no place. A host that got its number by
    /// that call loses it.
    fn take_back(&mut self, number: RealmNumber);

    /// The place of the prefix by which the host with a number reaches a remote address. `None`:
    /// there is one prefix.
    fn path(&self, number: RealmNumber, remote: Ipv4Addr) -> Option<u8>;

    /// Notes the place of the prefix by which the host with a number reaches a remote address.
    fn note_path(&mut self, number: RealmNumber, remote: Ipv4Addr, path: u8);
}

/// No host has a number.
#[derive(Clone, Copy, Debug)]
pub struct NoNumbers;

impl HostNumbers for NoNumbers {
    fn identity(&self, _: RealmNumber) -> Option<HostIdentity> {
        None
    }

    fn number(&mut self, _: u16, _: HostIdentity) -> Result<Ipv4Addr, NoNumber> {
        Err(NoNumber::Unfit)
    }

    fn take_back(&mut self, _: RealmNumber) {}

    fn path(&self, _: RealmNumber, _: Ipv4Addr) -> Option<u8> {
        None
    }

    fn note_path(&mut self, _: RealmNumber, _: Ipv4Addr, _: u8) {}
}
