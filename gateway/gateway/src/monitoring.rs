//! Settings of monitoring: the address of the metrics, and the SNMP agent.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Settings of monitoring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitoringSettings {
    /// Address of the metrics.
    pub metrics: MetricsPlace,
    /// Host names of the metrics' address, besides addresses and `localhost`.
    pub metrics_names: Vec<String>,
    /// SNMP agent; `None`: none.
    pub snmp: Option<SnmpSettings>,
}

/// Address of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsPlace {
    /// [`MetricsPlace::USUAL`], if it is free.
    #[default]
    Usual,
    /// This address; the gateway does not start without it.
    At(SocketAddr),
    /// None: no metrics are served.
    Nowhere,
}

impl MetricsPlace {
    /// The usual address.
    pub const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
}

/// Settings of the SNMP subagent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpSettings {
    /// Address of the master agent.
    pub master: Master,
    /// Percentage of the largest number of mappings whose reaching is notified; `None`: none.
    pub mappings_threshold: Option<u8>,
    /// Percentage of the largest number of subscribers whose reaching is notified; `None`: none.
    pub subscribers_threshold: Option<u8>,
    /// Percentage of any pool's ports; when use falls to it, that is notified; `None`: none.
    pub pools_low_threshold: Option<u8>,
    /// Shortest time between two notifications of one object, seconds.
    pub interval: u16,
    /// True if the agent shows subscribers and their mappings, and notifies when a subscriber has
    /// reached its quota.
    pub subscribers: bool,
}

/// Address of a master agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Master {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}
