//! Routers inside (specification, section 3.9): packets to a network behind a router inside stay
//! inside, untranslated.

use crate::bytes::{check_error, ip, is_icmp_error};
use crate::{Model, Packet};
use std::net::Ipv4Addr;

impl Model {
    /// True if a packet from inside stays inside.
    pub(crate) fn stays_inside(&self, packet: &Packet) -> bool {
        let (_, destination) = packet.addresses();
        !packet.aimed
            && !self.is_external(destination)
            && self.is_routed_inside(packet.realm, destination)
            || self.is_error_that_stays(packet, packet.realm)
    }

    /// True if a router inside leads to an address (3.9).
    pub(crate) fn is_routed_inside(&self, realm: u16, address: u32) -> bool {
        let routes = self.config.inside_routes_of(realm);
        routes.iter().any(|range| range.contains(Ipv4Addr::from_bits(address)))
    }

    /// True if a packet is an ICMP error to a host of the connected network about a packet that
    /// stayed inside (3.9).
    fn is_error_that_stays(&self, packet: &Packet, realm: u16) -> bool {
        let bytes = &packet.bytes;
        if packet.aimed || !is_icmp_error(bytes) || check_error(bytes).is_err() {
            return false;
        }
        let (outer, about) = (ip(bytes), ip(&bytes[ip(bytes).header_len() + 8..]));
        let network = self.config.inside_of(realm).network;
        network.is_some_and(|network| network.contains(outer.destination()))
            && about.source() == outer.destination()
            && self.is_routed_inside(realm, about.destination())
            && !self.is_external(about.destination())
    }
}
