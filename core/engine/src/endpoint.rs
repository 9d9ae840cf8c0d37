//! Endpoints in tables and stages. Each kind is a type of its own, so that a function cannot take
//! one kind for another.
//!
//! All are small values that are passed in registers; none has a layout of its own in a table.

use crate::host::Host;

/// An internal endpoint: a host and its port, or ICMP query identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Internal {
    /// Realm and address.
    pub(crate) host: Host,
    /// Port; 0 for a protocol without ports.
    pub(crate) port: u16,
}

impl Internal {
    /// The endpoint of a host at a port.
    #[inline(always)]
    pub(crate) const fn new(host: Host, port: u16) -> Self {
        Self { host, port }
    }

    /// The endpoint that [`Internal::word`] made a word of.
    #[inline(always)]
    pub(crate) const fn from_word(word: u64) -> Self {
        let realm = (word >> 32) as u16 % Host::REALMS;
        Self { host: Host::new(realm, word as u32), port: (word >> 48) as u16 }
    }

    /// The endpoint as one word: address in bits 0 to 31, realm in bits 32 to 43, port in bits 48
    /// to 63.
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.host.bits() | (self.port as u64) << 48
    }
}

/// An external endpoint: the index of an external address, and a port of that address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct External {
    /// Index of the address among all external addresses.
    pub(crate) index: u32,
    /// Port, or ICMP query identifier; 0 for a protocol without ports.
    pub(crate) port: u16,
}

impl External {
    /// The endpoint of an external address, given by index, at a port.
    #[inline(always)]
    pub(crate) const fn new(index: u32, port: u16) -> Self {
        Self { index, port }
    }
}

/// An IPv4 address and a port as the headers of a packet have them, both in host byte order.
///
/// The port is 0 where a protocol has none, and the identifier of an ICMP query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressPort {
    /// Address, host byte order.
    pub address: u32,
    /// Port, host byte order.
    pub port: u16,
}

impl AddressPort {
    /// An address, host byte order, with a port.
    #[inline(always)]
    pub const fn new(address: u32, port: u16) -> Self {
        Self { address, port }
    }

    /// The endpoint that [`AddressPort::word`] made a word of.
    #[inline(always)]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self { address: word as u32, port: (word >> 32) as u16 }
    }

    /// The endpoint as one word: address in bits 0 to 31, port in bits 32 to 47.
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.address as u64 | (self.port as u64) << 32
    }
}
