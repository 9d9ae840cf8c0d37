//! The meaning of the settings around translation: event logs, requests for mappings, sockets and
//! listeners.

use super::text::{grouped, list};
use super::{Meaning, plural};
use crate::config::{show_duration, show_prefix};
use natgate_engine::Allocation;
use natgate_gateway::{
    Collector, ControlSettings, LogSettings, LogTo, LogWhat, Master, MetricsPlace, PagePlace,
    PcpSettings, Settings, SnmpSettings, Transport,
};
use natgate_http::DEFAULT_PATH;
use serde::Serialize;
use std::fmt::{self, Formatter};
use std::net::SocketAddr;
use std::path::Path;

/// The meaning of one event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogMeaning {
    /// `file`, `syslog`, `ipfix` or `spool`.
    pub kind: &'static str,
    /// File, folder, or address and port of the collector.
    pub to: String,
    /// `udp`, `tcp` or `tls` for a log with a collector.
    pub transport: Option<&'static str>,
    /// `mappings`, `blocks` or `sessions`.
    pub what: &'static str,
    /// True if the log has remote endpoints of sessions.
    pub remotes: bool,
    /// Most events in the queue.
    pub queue: u64,
    /// Largest size of a spool, bytes.
    pub max_size: Option<u64>,
    /// Longest age of a spool's events, seconds.
    pub max_age_seconds: Option<u64>,
}

/// The meaning of `[pcp]`, if enabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PcpMeaning {
    /// True if NAT-PMP is enabled.
    pub nat_pmp: bool,
    /// True if clients are notified of lost mappings.
    pub announce: bool,
    /// Shortest lifetime, seconds.
    pub min_lifetime: u64,
    /// Longest lifetime, seconds.
    pub max_lifetime: u64,
    /// Most requested mappings of all subscribers together.
    pub mappings: u64,
    /// Most requested mappings of one subscriber.
    pub mappings_per_subscriber: u64,
    /// Most ports of one request.
    pub port_set: u64,
    /// Hosts that may request mappings for other hosts.
    pub third_party: Vec<String>,
    /// Most requests per second of one client.
    pub client_requests_per_second: u64,
    /// Most requests per second of all clients.
    pub requests_per_second: u64,
}

/// The meaning of one entry of `[alg]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlgMeaning {
    /// Name of the protocol, as the key.
    pub protocol: &'static str,
    /// Ports of its servers.
    pub ports: Vec<u16>,
}

/// Sockets and listeners of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccessMeaning {
    /// Path of the control socket.
    pub control: String,
    /// Path of the read-only socket.
    pub read_socket: Option<String>,
    /// TLS listener for other machines.
    pub remote: Option<String>,
    /// Common names of certificates that may give commands from other machines.
    pub operators: Vec<String>,
    /// Listener of the page.
    pub page: Option<String>,
    /// Listener of the metrics.
    pub metrics: Option<String>,
    /// Listener of the SNMP agent.
    pub snmp: Option<String>,
}

impl LogMeaning {
    fn new(log: &LogSettings) -> Self {
        let (kind, to, transport) = match &log.to {
            LogTo::File(path) => ("file", shown(path), None),
            LogTo::Spool(spool) => ("spool", shown(&spool.folder), None),
            LogTo::Syslog(syslog) => collector("syslog", &syslog.collector),
            LogTo::Ipfix(ipfix) => collector("ipfix", &ipfix.collector),
        };
        let spool = match &log.to {
            LogTo::Spool(spool) => Some(spool),
            _ => None,
        };
        Self {
            kind,
            to,
            transport,
            what: match log.what {
                LogWhat::Mappings => "mappings",
                LogWhat::Blocks => "blocks",
                LogWhat::Sessions => "sessions",
            },
            remotes: log.remotes,
            queue: log.queue as u64,
            max_size: spool.map(|spool| spool.max_size),
            max_age_seconds: spool.map(|spool| spool.max_age.as_secs()),
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn collector(kind: &'static str, to: &Collector) -> (&'static str, String, Option<&'static str>) {
    let transport = match to.transport {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
        Transport::Tls(_) => "tls",
    };
    (kind, to.address.clone(), Some(transport))
}

/// The meanings of the event logs, in the order of the file.
pub(super) fn logs(settings: &Settings) -> Vec<LogMeaning> {
    settings.logs.iter().map(LogMeaning::new).collect()
}

/// Prefixes of the hosts that may request mappings for other hosts, of both families.
fn trusted(pcp: &PcpSettings) -> Vec<String> {
    let of_ipv6 = pcp.third_party_ipv6.iter().map(ToString::to_string);
    pcp.third_party.iter().map(|prefix| show_prefix(*prefix)).chain(of_ipv6).collect()
}

/// The meaning of `[pcp]`.
pub(super) fn pcp(settings: &Settings) -> Option<PcpMeaning> {
    let (pcp, limits) = (&settings.pcp, &settings.engine.limits);
    pcp.enabled.then(|| PcpMeaning {
        nat_pmp: pcp.nat_pmp,
        announce: pcp.announce,
        min_lifetime: pcp.lifetime.0.as_secs(),
        max_lifetime: pcp.lifetime.1.as_secs(),
        mappings: limits.explicit_mappings.into(),
        mappings_per_subscriber: limits.explicit_per_subscriber.into(),
        port_set: pcp.port_set.into(),
        third_party: trusted(pcp),
        client_requests_per_second: pcp.requests_per_second.0.into(),
        requests_per_second: pcp.requests_per_second.1.into(),
    })
}

/// The application-level gateways that are on.
pub(super) fn algs(settings: &Settings) -> Vec<AlgMeaning> {
    let all = settings.alg.iter();
    all.map(|(kind, ports)| AlgMeaning { protocol: kind.name(), ports: ports.to_vec() }).collect()
}

/// The sockets and listeners.
pub(super) fn access(settings: &Settings) -> AccessMeaning {
    let ControlSettings { socket, read_socket, remote, .. } = &settings.control;
    AccessMeaning {
        control: socket.as_deref().map_or_else(|| DEFAULT_PATH.to_owned(), shown),
        read_socket: read_socket.as_deref().map(shown),
        remote: remote.as_ref().map(|remote| remote.listen.to_string()),
        operators: remote.as_ref().map_or_else(Vec::new, |remote| remote.operators.clone()),
        page: page(settings).map(|address| address.to_string()),
        metrics: metrics(settings).map(|address| address.to_string()),
        snmp: settings.monitoring.snmp.as_ref().map(|snmp| master(&snmp.master)),
    }
}

fn page(settings: &Settings) -> Option<SocketAddr> {
    match settings.page.place {
        PagePlace::Usual => Some(PagePlace::USUAL),
        PagePlace::At(address) => Some(address),
        PagePlace::Nowhere => None,
    }
}

fn metrics(settings: &Settings) -> Option<SocketAddr> {
    match settings.monitoring.metrics {
        MetricsPlace::Usual => Some(MetricsPlace::USUAL),
        MetricsPlace::At(address) => Some(address),
        MetricsPlace::Nowhere => None,
    }
}

fn master(master: &Master) -> String {
    match master {
        Master::Unix(path) => shown(path),
        Master::Tcp(address) => address.to_string(),
    }
}

/// True for an address that only local programs reach.
fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl Meaning {
    /// Writes the event logs.
    pub(super) fn event_logs(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.logs.is_empty() {
            writeln!(f, "  none: nothing says later which subscriber had which port")?;
        }
        for (log, settings) in self.logs.iter().zip(&self.settings.logs) {
            write!(f, "  {} {}", log.kind, log.to)?;
            if let Some(transport) = log.transport {
                write!(f, " by {}", transport.to_uppercase())?;
            }
            writeln!(f, ": {}", self.events(settings))?;
            write!(f, "    {} events wait at most", grouped(log.queue))?;
            match &settings.to {
                LogTo::File(_) => {
                    writeln!(f, "; a file that is moved away is begun anew, natgate deletes none")?;
                }
                LogTo::Spool(spool) => {
                    let size = bytesize::ByteSize(spool.max_size).display().iec();
                    let age = show_duration(spool.max_age);
                    writeln!(f, "; kept for {age} and up to {size}, the oldest go first")?;
                }
                LogTo::Syslog(syslog) => {
                    let (name, number) = (&syslog.app_name, syslog.enterprise);
                    let facility = syslog.facility;
                    writeln!(f, "; {name}, facility {facility}, data {name}@{number}")?;
                }
                LogTo::Ipfix(ipfix) => match ipfix.collector.transport {
                    Transport::Udp => {
                        let interval = show_duration(ipfix.template_interval);
                        let messages = grouped(ipfix.template_messages.into());
                        let domain = ipfix.domain;
                        write!(f, "; domain {domain}, templates every {interval}")?;
                        writeln!(f, " and every {messages} messages")?;
                    }
                    Transport::Tcp | Transport::Tls(_) => {
                        writeln!(f, "; domain {}", ipfix.domain)?;
                    }
                },
            }
        }
        let has_spool = self.settings.logs.iter().any(|log| matches!(log.to, LogTo::Spool(_)));
        match has_spool {
            true => writeln!(f, "  `natgate who --at` searches the spool"),
            false => writeln!(f, "  `natgate who --at` has nothing to search: it needs a spool"),
        }
    }

    /// Names the events of a log.
    fn events(&self, log: &LogSettings) -> String {
        let more = match (log.what, log.remotes) {
            // In blocks the translator reports no mappings.
            (LogWhat::Mappings, _) if self.all_in_blocks() => "",
            (LogWhat::Mappings, _) => "mappings, ",
            (LogWhat::Blocks, _) => "",
            (LogWhat::Sessions, false) => "sessions without their remote endpoints, ",
            (LogWhat::Sessions, true) => "sessions with their remote endpoints, ",
        };
        // A spool answers which subscriber had a port, and nothing else.
        let limits = match log.to {
            LogTo::Spool(_) => "",
            _ => ", limits that are reached",
        };
        format!("{more}blocks of ports{limits}")
    }

    /// True if all external addresses are of pools that give out ports in blocks.
    fn all_in_blocks(&self) -> bool {
        let engine = &self.settings.engine;
        let in_blocks =
            |pool| matches!(engine.allocation_of(pool), Allocation::Block(_) | Allocation::Address);
        let of_a_pool = |address| engine.pools.iter().any(|pool| pool.has(address));
        !engine.pools.is_empty()
            && engine.pools.iter().all(in_blocks)
            && engine.statics.iter().all(|one| of_a_pool(one.external.0))
    }

    /// Writes the limits of requests for mappings.
    pub(super) fn requests(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(pcp) = &self.pcp else {
            return writeln!(f, "  off: no host can ask for a mapping by PCP or NAT-PMP");
        };
        let protocols = if pcp.nat_pmp { "PCP and NAT-PMP" } else { "PCP" };
        let port = natgate_gateway::PCP_PORT;
        writeln!(f, "  {protocols} at UDP port {port} of the gateway's inside addresses")?;
        write!(f, "  every subscriber may ask for itself")?;
        let hosts: Vec<&String> = pcp.third_party.iter().collect();
        match &hosts[..] {
            [] => writeln!(f, ", and nobody for others")?,
            hosts => writeln!(f, ", and {} for others", list(hosts, String::clone))?,
        }
        if self.settings.ipv6.nat64.is_some() && self.settings.ipv6.inside.address.is_some() {
            writeln!(f, "  hosts of IPv6 ask by PCP at the gateway's IPv6 addresses inside")?;
        }
        if self.settings.ipv6.dslite.is_some() {
            writeln!(f, "  hosts behind B4s ask at 192.0.0.1 in their tunnels")?;
        }
        let (least, most) = self.settings.pcp.lifetime;
        let (least, most) = (show_duration(least), show_duration(most));
        writeln!(f, "  lifetimes from {least} to {most}")?;
        let ports = plural(pcp.port_set, "port", "ports");
        let (all, each) = (grouped(pcp.mappings), grouped(pcp.mappings_per_subscriber));
        writeln!(f, "  {all} mappings in all, {each} a subscriber, up to {ports} a request")?;
        let one = grouped(pcp.client_requests_per_second);
        let all = grouped(pcp.requests_per_second);
        writeln!(f, "  served a second: {one} requests of a client, {all} in all")?;
        match pcp.announce {
            true => writeln!(f, "  clients are told when mappings may have been lost"),
            false => writeln!(f, "  clients are not told when mappings may have been lost"),
        }
    }

    /// Writes the application-level gateways.
    pub(super) fn gateways(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.algs.is_empty() {
            return writeln!(f, "  off: nothing that packets carry is read or changed");
        }
        for AlgMeaning { protocol, ports } in &self.algs {
            let word = if ports.len() == 1 { "port" } else { "ports" };
            writeln!(
                f,
                "  {protocol}: servers at {word} {}",
                list(ports, |port: u16| port.to_string())
            )?;
        }
        writeln!(f, "  an expected flow counts for its subscriber, as any mapping does")
    }

    /// Writes the sockets and listeners, and their clients.
    pub(super) fn access(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ControlSettings { group, read_group, read_socket, remote, .. } = &self.settings.control;
        let members = |group: &Option<String>| match group {
            Some(group) => format!("root and group {group}"),
            None => "root and the process's group".to_owned(),
        };
        let control = &self.access.control;
        writeln!(f, "  control socket {control}: {} give commands", members(group))?;
        if let Some(socket) = read_socket {
            let (socket, members) = (socket.display(), members(read_group));
            writeln!(f, "  read socket {socket}: {members} ask, and change nothing")?;
        }
        match remote {
            None => writeln!(f, "  control from other machines: off")?,
            Some(remote) => {
                let (listen, clients) = (remote.listen, remote.clients.display());
                write!(f, "  control from other machines: TLS at {listen}, ")?;
                writeln!(f, "certificates by {clients}")?;
                let operators: Vec<&str> = remote.operators.iter().map(String::as_str).collect();
                match &operators[..] {
                    [] => writeln!(f, "    all ask, nobody gives commands")?,
                    names => {
                        let names = list(names, str::to_owned);
                        writeln!(f, "    all ask; {names} give commands, too")?;
                    }
                }
            }
        }
        listener("page", page(&self.settings), "sees subscribers without a login", f)?;
        if self.access.page.is_some() && !self.settings.page.names.is_empty() {
            let names: Vec<&str> = self.settings.page.names.iter().map(String::as_str).collect();
            writeln!(f, "    host names: {}", list(&names, str::to_owned))?;
        }
        listener("metrics", metrics(&self.settings), "reads counters without a login", f)?;
        match &self.settings.monitoring.snmp {
            None => writeln!(f, "  SNMP: off"),
            Some(snmp) => explain_snmp(snmp, f),
        }
    }
}

fn listener(
    name: &str,
    address: Option<SocketAddr>,
    allows: &str,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    let Some(address) = address else { return writeln!(f, "  {name}: off") };
    let who = match is_local(address) {
        true => "every program of this machine",
        false => "everybody who reaches that address",
    };
    writeln!(f, "  {name} at http://{address}/: {who} {allows}")
}

fn explain_snmp(snmp: &SnmpSettings, f: &mut Formatter<'_>) -> fmt::Result {
    let subscribers = if snmp.subscribers { "with" } else { "without" };
    let master = master(&snmp.master);
    writeln!(f, "  SNMP by the agent at {master} (AgentX), {subscribers} subscribers")?;
    let percent = |name: &str, percent: Option<u8>| Some(format!("{name} {}%", percent?));
    let thresholds = [
        percent("mappings at", snmp.mappings_threshold),
        percent("subscribers at", snmp.subscribers_threshold),
        percent("a pool down to", snmp.pools_low_threshold),
    ];
    let told: Vec<String> = thresholds.into_iter().flatten().collect();
    match &told[..] {
        [] => writeln!(f, "    no thresholds are notified"),
        told => {
            let (told, interval) = (told.join(", "), snmp.interval);
            writeln!(f, "    notified: {told}; one thing at most every {interval}s")
        }
    }
}
