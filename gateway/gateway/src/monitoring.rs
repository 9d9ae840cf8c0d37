//! What a gateway is told of those who watch it: where metrics are served, and which SNMP agent has
//! its tables.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Who watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitoringSettings {
    /// Where metrics are served.
    pub metrics: MetricsPlace,
    /// Host names, besides addresses and `localhost`, under which metrics may be asked for.
    pub metrics_names: Vec<String>,
    /// The SNMP agent; `None`: none.
    pub snmp: Option<SnmpSettings>,
}

/// Where metrics are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsPlace {
    /// At [`MetricsPlace::USUAL`], if that can be had.
    #[default]
    Usual,
    /// There, or the gateway does not start.
    At(SocketAddr),
    /// Nowhere.
    Nowhere,
}

impl MetricsPlace {
    /// The usual place.
    pub const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
}

/// What an SNMP subagent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpSettings {
    /// Where the master agent listens.
    pub master: Master,
    /// The percentage of the mappings that there may be whose use is told; `None`: none.
    pub mappings_threshold: Option<u8>,
    /// The percentage of the subscribers that there may be whose use is told; `None`: none.
    pub subscribers_threshold: Option<u8>,
    /// The percentage of a pool's ports, of any pool, down to which use is told; `None`: none.
    pub pools_low_threshold: Option<u8>,
    /// The shortest time between two notifications of one thing, seconds.
    pub interval: u16,
    /// Whether subscribers and their mappings are shown, and told of when they have as many as they
    /// may.
    pub subscribers: bool,
}

/// Where a master agent listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Master {
    /// At a Unix socket.
    Unix(PathBuf),
    /// At a TCP port.
    Tcp(SocketAddr),
}
