//! Owners of external endpoints by the configuration: deterministic pools (RFC 7422), static
//! mappings and services. A spool records them, because no event has them: so a search knows the
//! configuration that was in force at a time, whatever the configuration is now.

use crate::json::Names;
use natgate_engine::{
    AddressRange, Allocation, Config, DeterministicConfig, Plan, PlanError, PoolConfig, Prefix,
    Timestamp,
};
use natgate_gateway::Settings;
use natgate_gateway::ipv6::{HostKind, StaticHost};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Most bytes of a record that is decompressed.
const MOST_UNPACKED: u64 = 64 << 20;

/// Owners of external endpoints by a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnersInForce {
    /// Names of the realms, if there are several.
    pub realms: Vec<String>,
    /// Pools, deterministic or not.
    pub pools: Vec<PoolInForce>,
    /// Static mappings.
    pub statics: Vec<StaticInForce>,
    /// Services of several servers.
    pub services: Vec<ServiceInForce>,
}

/// A pool of external addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInForce {
    /// Name.
    pub name: String,
    /// First and last address of each range.
    pub addresses: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// First and last port.
    pub ports: (u16, u16),
    /// Shares of the subscribers; `None`: the pool is not deterministic.
    pub shares: Option<SharesInForce>,
}

/// Shares of a deterministic pool's subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesInForce {
    /// Number of the subscribers' realm.
    pub realm: u16,
    /// Prefixes of the subscribers, in order: address and length.
    pub subscribers: Vec<(Ipv4Addr, u8)>,
    /// Ports of each subscriber, if the configuration sets the number.
    pub each: Option<u16>,
    /// Ports of each address that are given out on demand.
    pub dynamic: u16,
}

/// A static mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticInForce {
    /// Number of the realm.
    pub realm: u16,
    /// Protocol; `None`: all protocols.
    pub protocol: Option<u8>,
    /// Internal address and port; no port: the whole address.
    pub internal: (Ipv4Addr, Option<u16>),
    /// External address and port.
    pub external: (Ipv4Addr, Option<u16>),
    /// The host of NAT64 that the internal address stands for, and the length of its subscriber's
    /// prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<(Ipv6Addr, u8)>,
    /// The address behind its B4 of the host of DS-Lite that the internal address stands for;
    /// `host` has the B4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner: Option<Ipv4Addr>,
}

/// A service of several servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceInForce {
    /// Number of the servers' realm.
    pub realm: u16,
    /// Protocol; `None`: all protocols.
    pub protocol: Option<u8>,
    /// External endpoint.
    pub external: (Ipv4Addr, u16),
    /// Addresses of the servers.
    pub servers: Vec<Ipv4Addr>,
}

impl OwnersInForce {
    /// Owners by a configuration.
    pub fn of(config: &Config) -> Self {
        let pool = |pool: &PoolConfig| PoolInForce {
            name: pool.name.clone(),
            addresses: pool.addresses.iter().map(|range| (range.first, range.last)).collect(),
            ports: pool.ports,
            shares: match config.allocation_of(pool) {
                Allocation::Deterministic(shares) => Some(SharesInForce::of(shares)),
                _ => None,
            },
        };
        let fixed = config.statics.iter().map(|fixed| StaticInForce {
            realm: fixed.realm,
            protocol: fixed.protocol,
            internal: fixed.internal,
            external: fixed.external,
            host: None,
            inner: None,
        });
        let services = config.services.iter().map(|service| ServiceInForce {
            realm: service.realm,
            protocol: service.protocol,
            external: service.external,
            servers: service.servers.iter().map(|server| server.internal.0).collect(),
        });
        Self {
            realms: Names::of(config).realms,
            pools: config.pools.iter().map(pool).collect(),
            statics: fixed.collect(),
            services: services.collect(),
        }
    }

    /// Owners by settings, with the addresses of hosts of NAT64 and DS-Lite.
    pub fn of_settings(settings: &Settings) -> Self {
        let mut owners = Self::of(&settings.engine);
        let realms = settings.ipv6.host_realms(settings.realms.len());
        let hosts = settings.ipv6.static_hosts();
        let hosts: HashMap<(HostKind, Ipv4Addr), &StaticHost> =
            hosts.map(|host| ((host.kind(), host.number), host)).collect();
        for fixed in &mut owners.statics {
            let Some(kind) = realms.kind(fixed.realm) else { continue };
            let host = hosts.get(&(kind, fixed.internal.0));
            fixed.host = host.map(|host| host.address).zip(settings.ipv6.subscriber_length(kind));
            fixed.inner = host.and_then(|host| host.inner);
        }
        owners
    }

    /// Name of a realm, if there are several.
    pub fn realm(&self, number: u16) -> Option<&str> {
        self.realms.get(usize::from(number)).map(String::as_str)
    }

    /// Bytes of a record.
    ///
    /// # Errors
    /// The error of the compression.
    pub fn pack(&self) -> io::Result<Vec<u8>> {
        zstd::bulk::compress(&serde_json::to_vec(self)?, 3)
    }

    /// Reads a record; `None` if it is damaged or of a later version.
    pub fn unpack(packed: &[u8]) -> Option<Self> {
        let reader = zstd::stream::read::Decoder::new(packed).ok()?;
        let owners: Self = serde_json::from_reader(reader.take(MOST_UNPACKED)).ok()?;
        let shares = owners.pools.iter().filter_map(|pool| pool.shares.as_ref());
        let mut prefixes = shares.flat_map(|shares| &shares.subscribers);
        prefixes.all(|(_, len)| *len <= 32).then_some(owners)
    }
}

impl SharesInForce {
    fn of(shares: &DeterministicConfig) -> Self {
        let prefix = |prefix: &Prefix| (Ipv4Addr::from_bits(prefix.first()), prefix.len());
        Self {
            realm: shares.realm,
            subscribers: shares.subscribers.iter().map(prefix).collect(),
            each: shares.ports_per_subscriber,
            dynamic: shares.dynamic_ports,
        }
    }
}

impl PoolInForce {
    /// True if the pool has an external address.
    pub fn has(&self, external: Ipv4Addr) -> bool {
        self.addresses.iter().any(|(first, last)| (first..=last).contains(&&external))
    }

    /// Assignment of ports to subscribers; `None` if the pool is not deterministic.
    pub fn plan(&self) -> Option<Result<Plan, PlanError>> {
        let shares = self.shares.as_ref()?;
        let range = |&(first, last): &(Ipv4Addr, Ipv4Addr)| AddressRange { first, last };
        let prefix = |&(address, len): &(Ipv4Addr, u8)| Prefix::new(address, len);
        let config = DeterministicConfig {
            realm: shares.realm,
            subscribers: shares.subscribers.iter().map(prefix).collect(),
            ports_per_subscriber: shares.each,
            dynamic_ports: shares.dynamic,
        };
        let pool = PoolConfig {
            addresses: self.addresses.iter().map(range).collect(),
            ports: self.ports,
            ..PoolConfig::default()
        };
        Some(Plan::new(&config, &pool))
    }
}

/// Record of a configuration for the spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// The owners, packed; nothing if they are not known.
    pub packed: Vec<u8>,
    /// Times between which the configuration came into force, by the translator's clock.
    pub from: Timestamp,
    /// The second of these times.
    pub until: Timestamp,
}

impl InForce {
    /// Record of a configuration that is in force since a time.
    pub fn since(config: &Config, time: Timestamp) -> Arc<Self> {
        // Compression into memory does not fail; without a record, answers say that there is none.
        let packed = OwnersInForce::of(config).pack().unwrap_or_default();
        Arc::new(Self { packed, from: time, until: time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::StaticMapping;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let address = |last| Ipv4Addr::new(203, 0, 113, last);
        let shares = DeterministicConfig {
            realm: 1,
            subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 24)],
            ports_per_subscriber: None,
            dynamic_ports: 1024,
        };
        let pool = PoolConfig {
            name: "homes".to_owned(),
            addresses: vec![AddressRange { first: address(1), last: address(2) }],
            allocation: Some(Allocation::Deterministic(shares.clone())),
            ..PoolConfig::default()
        };
        let fixed = StaticMapping {
            protocol: Some(6),
            internal: (Ipv4Addr::new(10, 0, 0, 5), Some(80)),
            external: (address(1), Some(80)),
            ..StaticMapping::default()
        };
        let plan = Plan::new(&shares, &pool).unwrap();
        let config = Config { pools: vec![pool], statics: vec![fixed; 1000], ..Config::default() };
        let owners = OwnersInForce::of(&config);
        let packed = owners.pack().unwrap();
        assert!(packed.len() < 4096, "{} bytes", packed.len());
        let read = OwnersInForce::unpack(&packed).expect("it is whole");
        assert_eq!(read, owners);
        assert_eq!(read.pools[0].plan(), Some(Ok(plan)));
        assert!(read.pools[0].has(address(2)) && !read.pools[0].has(address(3)));
        assert_eq!(OwnersInForce::unpack(&packed[..packed.len() - 1]), None);
        assert_eq!(OwnersInForce::unpack(b""), None);
    }
}
