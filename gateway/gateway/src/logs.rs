//! What event logs are kept, where, and of what.

use std::path::PathBuf;
use std::time::Duration;

/// What happened that a log tells. Blocks of ports, and limits that are reached, are in every log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogWhat {
    /// Mappings that are made and go.
    #[default]
    Mappings,
    /// Nothing more.
    Blocks,
    /// Sessions that begin and end, and no mappings.
    Sessions,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// What it tells.
    pub what: LogWhat,
    /// Whether it tells sessions' remote endpoints.
    pub remotes: bool,
    /// How many events wait for it at most.
    pub queue: usize,
    /// Where it is written to.
    pub to: LogTo,
}

impl LogSettings {
    /// How many events wait for a log at most, if nothing else is said.
    pub const QUEUE: usize = 65_536;

    /// A file of JSON lines, as usual.
    pub fn file(path: PathBuf) -> Self {
        let (what, queue) = (LogWhat::default(), Self::QUEUE);
        Self { what, remotes: false, queue, to: LogTo::File(path) }
    }
}

/// Where a log is written to.
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

/// A collector, and how to get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Its address or name, and port.
    pub address: String,
    /// How records get there.
    pub transport: Transport,
}

/// How records get to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
    /// A connection that nobody can read or change.
    Tls(TlsSettings),
}

/// Who is trusted, and who one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificates of the authorities that the collector's must be by, PEM.
    pub authorities: PathBuf,
    /// The name that the collector's certificate must be for; `None`: as in its address.
    pub name: Option<String>,
    /// One's own certificate chain and key, PEM.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// What syslog messages say besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogSettings {
    /// Where they go.
    pub collector: Collector,
    /// The facility's number.
    pub facility: u8,
    /// HOSTNAME; `None`: the machine's.
    pub host_name: Option<String>,
    /// APP-NAME.
    pub app_name: String,
    /// The enterprise number in the name of the structured data.
    pub enterprise: u32,
}

/// What IPFIX messages say besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpfixSettings {
    /// Where they go.
    pub collector: Collector,
    /// The observation domain.
    pub domain: u32,
    /// How often templates are sent anew by UDP.
    pub template_interval: Duration,
    /// After how many messages templates are sent anew by UDP.
    pub template_messages: u32,
}

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes that the files may have together.
    pub max_size: u64,
    /// How long events are kept.
    pub max_age: Duration,
}
