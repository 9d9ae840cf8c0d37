//! Static mappings and services of a configuration: their protocols, hosts and number.

use crate::config::{Config, Service, StaticMapping};
use crate::host::Host;
use crate::protocols::PROTOCOLS;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Most mappings at a time for the ports of one whole mapped address.
pub(crate) const WHOLE_MAPPINGS: u32 = 4096;

/// Largest number of mappings that static mappings need.
pub(crate) fn count_statics(statics: &[StaticMapping]) -> usize {
    let count = |one: &StaticMapping| match one.external.1 {
        Some(_) => permanent(one).count(),
        None => WHOLE_MAPPINGS as usize,
    };
    statics.iter().map(count).sum()
}

/// The protocols for which a static mapping is permanent. Only static mappings with ports are.
pub(crate) fn permanent(mapping: &StaticMapping) -> impl Iterator<Item = u8> {
    let StaticMapping { protocol, external: (_, port), .. } = *mapping;
    PROTOCOLS.into_iter().filter(move |&p| port.is_some() && protocol.is_none_or(|only| p == only))
}

/// The protocols that a service serves.
pub(crate) fn served(service: &Service) -> impl Iterator<Item = u8> {
    let only = service.protocol;
    PROTOCOLS.into_iter().filter(move |&p| only.is_none_or(|only| p == only))
}

/// Hosts that static mappings and services name, sorted.
pub(crate) fn static_hosts(config: &Config) -> Vec<Host> {
    let host = |mapping: &StaticMapping| Host::new(mapping.realm, mapping.internal.0.to_bits());
    let servers = config.services.iter().flat_map(|service| {
        let host = |address: Ipv4Addr| Host::new(service.realm, address.to_bits());
        service.servers.iter().map(move |server| host(server.internal.0))
    });
    let mut hosts: Vec<Host> = config.statics.iter().map(host).chain(servers).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}
