//! Where logs are written to: what each kind makes of a record, and how it gets there.

pub(crate) mod connection;
pub(crate) mod file;
pub(crate) mod ipfix;
pub(crate) mod spool;
pub(crate) mod syslog;

use crate::drive::Sink;
use natgate_gateway::{Collector, LogSettings, LogTo, Transport};
use std::io;

/// What a log is called where the operator is told of it.
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

/// Makes a log's sink; what has to be there at the start is looked at. `continued`: the gateway
/// goes on with mappings that there were.
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
