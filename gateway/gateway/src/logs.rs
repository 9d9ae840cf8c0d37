//! Event logs: content, destination and transport.

use std::path::PathBuf;
use std::time::Duration;

/// Content of a log. Every log has blocks of ports and reached limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogWhat {
    /// Mappings that are created and removed.
    #[default]
    Mappings,
    /// Nothing more.
    Blocks,
    /// Sessions that begin and end, instead of mappings.
    Sessions,
}

/// Settings of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Content of the log.
    pub what: LogWhat,
    /// True if the log names the remote endpoints of sessions.
    pub remotes: bool,
    /// Most events that wait for the log.
    pub queue: usize,
    /// Destination of the log.
    pub to: LogTo,
}

impl LogSettings {
    /// Default number of events that may wait for a log.
    pub const QUEUE: usize = 65_536;

    /// Default settings of a log to a file of JSON lines.
    pub fn file(path: PathBuf) -> Self {
        let (what, queue) = (LogWhat::default(), Self::QUEUE);
        Self { what, remotes: false, queue, to: LogTo::File(path) }
    }
}

/// Destination of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// JSON lines at the end of this file.
    File(PathBuf),
    /// A syslog collector (RFC 5424).
    Syslog(SyslogSettings),
    /// An IPFIX collector (RFC 7011).
    Ipfix(IpfixSettings),
    /// A folder of compressed files that can be searched.
    Spool(SpoolSettings),
}

/// A collector, and the transport to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Address or name, and port.
    pub address: String,
    /// Transport of the records.
    pub transport: Transport,
}

/// Transport of records to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP datagrams.
    Udp,
    /// A TCP connection.
    Tcp,
    /// A TLS connection.
    Tls(TlsSettings),
}

/// Certificates for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificates of the authorities that may sign the collector's certificate, PEM.
    pub authorities: PathBuf,
    /// Name that the collector's certificate must have; `None`: the name in the collector's
    /// address.
    pub name: Option<String>,
    /// The gateway's own certificate chain and key, PEM.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Settings of syslog messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogSettings {
    /// Destination of the messages.
    pub collector: Collector,
    /// Number of the facility.
    pub facility: u8,
    /// HOSTNAME; `None`: the machine's name.
    pub host_name: Option<String>,
    /// APP-NAME.
    pub app_name: String,
    /// Enterprise number in the name of the structured data.
    pub enterprise: u32,
}

/// Settings of IPFIX messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpfixSettings {
    /// Destination of the messages.
    pub collector: Collector,
    /// Number of the observation domain.
    pub domain: u32,
    /// Interval at which templates are sent again by UDP.
    pub template_interval: Duration,
    /// Number of messages after which templates are sent again by UDP.
    pub template_messages: u32,
}

/// Limits of the event log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Folder of the files.
    pub folder: PathBuf,
    /// Most bytes of all files together.
    pub max_size: u64,
    /// Time for which events are kept.
    pub max_age: Duration,
}
