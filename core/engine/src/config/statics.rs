//! Mappings that the operator makes: endpoint to endpoint, and services of several servers.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Side that may begin sessions of a static mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Begun {
    /// Either side.
    #[default]
    Anywhere,
    /// The outside only. Sessions that begin inside are translated as if the mapping did not exist.
    Outside,
    /// The inside only. No remote endpoint gets in otherwise.
    Inside,
}

/// A mapping that the operator made. Both ports, or neither, are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticMapping {
    /// Number of the realm that the internal endpoint is in.
    pub realm: u16,
    /// Protocol number (TCP, UDP or ICMP). `None`: all three; with whole addresses, every other
    /// protocol too.
    pub protocol: Option<u8>,
    /// Internal address and, unless the whole address is mapped, port.
    pub internal: (Ipv4Addr, Option<u16>),
    /// External address and, unless the whole address is mapped, port.
    pub external: (Ipv4Addr, Option<u16>),
    /// The side that may begin the mapping's sessions. At most one mapping of an internal endpoint
    /// may have sessions that begin inside.
    pub begun: Begun,
}

impl Default for StaticMapping {
    fn default() -> Self {
        let nowhere = (Ipv4Addr::UNSPECIFIED, None);
        Self {
            realm: 0,
            protocol: None,
            internal: nowhere,
            external: nowhere,
            begun: Begun::Anywhere,
        }
    }
}

/// Several servers behind one external endpoint (RFC 2391). Sessions that a server begins are
/// translated as if the service did not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Number of the servers' realm.
    pub realm: u16,
    /// Protocol number (TCP, UDP, ICMP or DCCP); `None`: all four.
    pub protocol: Option<u8>,
    /// External endpoint.
    pub external: (Ipv4Addr, u16),
    /// The servers: at least one, all different.
    pub servers: Vec<Server>,
    /// Sessions that go to one server.
    pub affinity: Affinity,
}

/// A server of a [`Service`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Internal endpoint.
    pub internal: (Ipv4Addr, u16),
    /// The server's weight. Its share of new sessions is its weight divided by the sum of all
    /// weights.
    pub weight: u16,
    /// True if the server gets no new sessions, and only keeps its present ones.
    pub draining: bool,
    /// True if the server gets new sessions only while no other server takes any.
    pub backup: bool,
}

impl Server {
    /// Most servers of one service.
    pub const MOST: usize = 64;

    /// The server's weight in the choice of a server for a new session.
    pub const fn share(&self) -> u16 {
        if self.draining { 0 } else { self.weight }
    }
}

/// Sessions of a [`Service`] that go to one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Sessions of one remote address.
    #[default]
    Address,
    /// Each session is a choice of its own.
    None,
}
