//! What the operator maps: endpoints to endpoints, and services to several servers.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Who may begin sessions of a static mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Begun {
    /// Either side.
    #[default]
    Anywhere,
    /// The outside only: what the inside begins is translated as if there were no such mapping.
    Outside,
    /// The inside only: nobody else gets in.
    Inside,
}

/// A mapping that the operator made. Both ports, or neither, are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticMapping {
    /// Number of the realm that the internal endpoint is in.
    pub realm: u16,
    /// Protocol number (TCP, UDP or ICMP); `None`: all three, and with whole addresses every other.
    pub protocol: Option<u8>,
    /// Internal address and, unless the whole address is mapped, port.
    pub internal: (Ipv4Addr, Option<u16>),
    /// External address and, unless the whole address is mapped, port.
    pub external: (Ipv4Addr, Option<u16>),
    /// The side that may begin the mapping's sessions. Of the mappings of one internal endpoint at
    /// most one may be begun from inside.
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

/// Several servers behind one external endpoint (RFC 2391). What a server begins itself is
/// translated as if there were no such service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Number of the realm that its servers are in.
    pub realm: u16,
    /// Protocol number (TCP, UDP, ICMP or DCCP); `None`: all four.
    pub protocol: Option<u8>,
    /// External endpoint.
    pub external: (Ipv4Addr, u16),
    /// Who serves it: at least one, all different.
    pub servers: Vec<Server>,
    /// Which remote endpoints are served by one server.
    pub affinity: Affinity,
}

/// One of the servers of a [`Service`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Internal endpoint.
    pub internal: (Ipv4Addr, u16),
    /// Its share of new sessions: its weight out of the sum of all.
    pub weight: u16,
    /// Whether it gets no new sessions, and only keeps those that it has.
    pub draining: bool,
}

impl Server {
    /// Most servers of one service.
    pub const MOST: usize = 64;

    /// Its weight in the choice of who gets a new session.
    pub const fn share(&self) -> u16 {
        if self.draining { 0 } else { self.weight }
    }
}

/// Which sessions of a [`Service`] go to one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Those of one remote address.
    #[default]
    Address,
    /// Each is a choice of its own.
    None,
}
