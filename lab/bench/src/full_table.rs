//! The engine's configuration for experiments that fill its table.

use natgate_engine::{AddressRange, Config, Limits, PoolConfig};
use std::net::Ipv4Addr;

/// The default configuration with so many external addresses, from `first` on, and with room for so
/// many mappings. No subscriber reaches a limit of UDP ports or of new mappings.
pub(crate) fn config(first: u32, addresses: u32, mappings: u64) -> Config {
    let range = AddressRange {
        first: Ipv4Addr::from_bits(first),
        last: Ipv4Addr::from_bits(first + addresses - 1),
    };
    Config {
        pools: vec![PoolConfig {
            name: "default".into(),
            addresses: vec![range],
            ports: (1024, 65_535),
            ..PoolConfig::default()
        }],
        limits: Limits {
            udp_ports: u32::MAX,
            new_mappings_per_second: 1_000_000_000,
            mappings: Some(mappings as u32),
            // Nobody answers in these experiments, and the table is to be full.
            unanswered_give_way: false,
            ..Limits::default()
        },
        ..Config::default()
    }
}
