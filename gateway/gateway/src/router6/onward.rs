//! The next hop of a packet, for explanations: nothing changes.

use super::neighbors::NeighborState6;
use super::{Router6, index};
use crate::link::Link;
use natgate_wire::arp::Mac;
use std::net::Ipv6Addr;

/// Next hop of an IPv6 packet that leaves by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward6 {
    /// No route leads to the destination, or the link carries no IPv6.
    NoRoute,
    /// A neighbour gets the packet.
    Hop {
        /// Address of the neighbour.
        address: Ipv6Addr,
        /// Hardware address of the neighbour; `None` if a solicitation would be needed first.
        mac: Option<Mac>,
        /// State of the neighbour; `None`: it is not known.
        state: Option<NeighborState6>,
        /// Longest packet that the link carries, bytes.
        mtu: usize,
        /// True if the packet fits the link.
        passes: bool,
    },
}

impl Router6 {
    /// Finds the next hop of a packet of `len` bytes that leaves by a link; changes nothing.
    pub fn onward(&self, link: Link, destination: Ipv6Addr, len: usize) -> Onward6 {
        let port = index(link).map(|place| &self.ports[place]);
        let Some(port) = port.filter(|port| port.described.is_used()) else {
            return Onward6::NoRoute;
        };
        let Some(address) = port.routes.next_hop(destination) else { return Onward6::NoRoute };
        let (state, mac) = port.neighbors.look_up(address).unzip();
        let passes = len <= port.mtu;
        Onward6::Hop { address, mac: mac.flatten(), state, mtu: port.mtu, passes }
    }
}
