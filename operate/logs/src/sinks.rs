//! Destinations of logs: the format of each kind, and its transport.

pub(crate) mod connection;
pub(crate) mod file;
pub(crate) mod ipfix;
pub(crate) mod spool;
pub(crate) mod syslog;

use crate::drive::Sink;
use natgate_gateway::{Collector, LogSettings, LogTo, Transport, check_make_folder, check_open};
use std::io;

/// Name of a log in reports to the operator.
pub(crate) fn name(settings: &LogSettings) -> String {
    let of = |kind: &str, collector: &Collector| {
        let transport = match collector.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls(_) => "tls",
        };
        format!("{kind} {transport} {}", collector.address)
    };
    match &settings.to {
        LogTo::File(path) => format!("file {}", path.display()),
        LogTo::Syslog(syslog) => of("syslog", &syslog.collector),
        LogTo::Ipfix(ipfix) => of("ipfix", &ipfix.collector),
        LogTo::Spool(spool) => format!("spool {}", spool.folder.display()),
    }
}

/// Creates the sink of a log; checks what must exist at the start. `continued` says that the
/// gateway continues with existing mappings.
pub(crate) fn open(settings: &LogSettings, continued: bool) -> io::Result<Box<dyn Sink>> {
    let remotes = settings.remotes;
    Ok(match &settings.to {
        LogTo::File(path) => Box::new(file::FileSink::open(path, remotes)?),
        LogTo::Syslog(syslog) => Box::new(syslog::SyslogSink::new(syslog, remotes)?),
        LogTo::Ipfix(ipfix) => Box::new(ipfix::IpfixSink::new(ipfix, remotes)?),
        LogTo::Spool(spool) => {
            let sink = spool::SpoolSink::open(spool, remotes)?;
            Box::new(if continued { sink.continued()? } else { sink })
        }
    })
}

/// Checks what [`open`] would find. Opens no log and makes no file and no folder.
pub(crate) fn check(settings: &LogSettings) -> io::Result<()> {
    match &settings.to {
        LogTo::File(path) => check_open(path),
        LogTo::Spool(spool) => check_make_folder(&spool.folder),
        // Only certificates are read; the connection is made later.
        LogTo::Syslog(_) | LogTo::Ipfix(_) => open(settings, true).map(drop),
    }
}
