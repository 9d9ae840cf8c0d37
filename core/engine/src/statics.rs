//! Static mappings and services of a configuration: their protocols, hosts and number.

use crate::config::{Config, Service, StaticMapping};
use crate::host::Host;
use crate::protocols::{PROTOCOLS, protocol_index};
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

/// External ports of static mappings and services: address, place of the protocol, and port,
/// sorted.
pub(crate) struct FixedPorts(Vec<(u32, usize, u16)>);

impl FixedPorts {
    pub(crate) fn new(config: &Config) -> Self {
        let end = |(address, port): (Ipv4Addr, u16), protocol| {
            (address.to_bits(), protocol_index(protocol), port)
        };
        let statics = config.statics.iter().flat_map(|one| {
            let (address, port) = one.external;
            permanent(one).map(move |protocol| end((address, port.unwrap_or(0)), protocol))
        });
        let services = config.services.iter().flat_map(|service| {
            let external = service.external;
            served(service).map(move |protocol| end(external, protocol))
        });
        let mut ports: Vec<(u32, usize, u16)> = statics.chain(services).collect();
        ports.sort_unstable();
        Self(ports)
    }

    /// The ports of an external address; `protocol` is the place of the protocol.
    pub(crate) fn of(&self, address: u32, protocol: usize) -> impl Iterator<Item = u16> {
        let start = self.0.partition_point(|(one, of, _)| (*one, *of) < (address, protocol));
        let its = move |(one, of, _): &&(u32, usize, u16)| (*one, *of) == (address, protocol);
        self.0[start..].iter().take_while(its).map(|(.., port)| *port)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
    use proptest::prelude::*;

    proptest! {
        /// Compares with a look at each static mapping.
        #[test]
        fn the_ports_of_an_address_are_found(
            all in prop::collection::vec(
                (0_u32..4, prop::option::of(1_u16..6), prop::sample::select(vec![
                    None, Some(TCP), Some(UDP), Some(ICMP), Some(47),
                ])),
                0..20,
            ),
        ) {
            let own = |&(address, port, protocol): &(u32, Option<u16>, Option<u8>)| {
                let external = (Ipv4Addr::from_bits(address), port);
                StaticMapping { external, protocol, ..StaticMapping::default() }
            };
            let statics: Vec<StaticMapping> = all.iter().map(own).collect();
            let fixed = FixedPorts::new(&Config { statics, ..Config::default() });
            for address in 0..5 {
                for (place, protocol) in [TCP, UDP, ICMP, DCCP].into_iter().enumerate() {
                    let mut expected: Vec<u16> = all
                        .iter()
                        .filter(|(one, _, only)| {
                            *one == address && only.is_none_or(|only| only == protocol)
                        })
                        .filter_map(|(_, port, _)| *port)
                        .collect();
                    expected.sort_unstable();
                    prop_assert_eq!(fixed.of(address, place).collect::<Vec<u16>>(), expected);
                }
            }
        }
    }
}
