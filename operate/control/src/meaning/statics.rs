//! Static mappings and services as text. Consecutive ports are shown as ranges.

use super::text::{endpoint, plural};
use crate::config::show_duration;
use natgate_engine::{Affinity, Begun, Server, Service, StaticMapping};
use natgate_gateway::{CheckKind, HealthSettings};
use natgate_ipv6::StaticHost;
use std::fmt::{self, Formatter};
use std::iter;

/// Most lines about static mappings, and about services.
const MOST: usize = 20;

/// Static mappings with consecutive ports.
struct Run {
    first: StaticMapping,
    count: u32,
}

impl Run {
    /// True if a mapping continues the run.
    fn goes_on_with(&self, next: &StaticMapping) -> bool {
        let follows = |first: Option<u16>, next: Option<u16>| {
            first
                .zip(next)
                .is_some_and(|(first, next)| u32::from(first) + self.count == u32::from(next))
        };
        let first = &self.first;
        (first.realm, first.protocol, first.begun) == (next.realm, next.protocol, next.begun)
            && (first.internal.0, first.external.0) == (next.internal.0, next.external.0)
            && follows(first.internal.1, next.internal.1)
            && follows(first.external.1, next.external.1)
    }

    /// Writes the run; `host` is the host that the internal address stands for.
    fn show(&self, f: &mut Formatter<'_>, of: &str, host: Option<&StaticHost>) -> fmt::Result {
        let last = |port: u16| match self.count {
            1 => String::new(),
            count => format!("-{}", u32::from(port) + count - 1),
        };
        let StaticMapping { protocol, internal, external, begun, .. } = self.first;
        let last = |port: Option<u16>| port.map(last).unwrap_or_default();
        let (port, range) = (internal.1, last(internal.1));
        let inner = match (host, host.and_then(|host| host.inner), port) {
            (Some(host), Some(inner), _) => {
                format!("{}{range} behind {}", endpoint((inner, port)), host.address)
            }
            (Some(host), None, Some(port)) => format!("[{}]:{port}{range}", host.address),
            (Some(host), None, None) => host.address.to_string(),
            (None, ..) => endpoint(internal) + &range,
        };
        let outer = endpoint(external) + &last(external.1);
        let way = match begun {
            Begun::Anywhere => "",
            Begun::Outside => ", begun from outside only",
            Begun::Inside => ", begun from inside only",
        };
        writeln!(f, "  static: {inner}{of} is {outer}, {}{way}", name(protocol))
    }
}

fn name(protocol: Option<u8>) -> &'static str {
    match protocol {
        Some(6) => "TCP",
        Some(17) => "UDP",
        Some(1) => "ICMP",
        Some(33) => "DCCP",
        _ => "all protocols",
    }
}

/// Writes a line for each run and service.
pub(super) fn explain<'s>(
    f: &mut Formatter<'_>,
    statics: &[StaticMapping],
    (services, health): (&[Service], &[Option<HealthSettings>]),
    of_realm: impl Fn(u16) -> String,
    host: impl Fn(&StaticMapping) -> Option<&'s StaticHost>,
) -> fmt::Result {
    let mut runs: Vec<Run> = Vec::new();
    for mapping in statics {
        match runs.last_mut().filter(|run| run.goes_on_with(mapping)) {
            Some(run) => run.count += 1,
            None => runs.push(Run { first: *mapping, count: 1 }),
        }
    }
    for run in runs.iter().take(MOST) {
        let host = host(&run.first);
        let of = if host.is_some() { String::new() } else { of_realm(run.first.realm) };
        run.show(f, &of, host)?;
    }
    if let Some(more) = runs.len().checked_sub(MOST).filter(|more| *more > 0) {
        writeln!(f, "  and {} more", plural(more as u64, "static mapping", "static mappings"))?;
    }
    let none = iter::repeat(&None);
    for (service, health) in services.iter().zip(health.iter().chain(none)).take(MOST) {
        show_service(f, service, &of_realm(service.realm))?;
        if let Some(health) = health {
            show_health(f, health)?;
        }
    }
    match services.len().checked_sub(MOST).filter(|more| *more > 0) {
        Some(more) => writeln!(f, "  and {} more", plural(more as u64, "service", "services")),
        None => Ok(()),
    }
}

fn show_service(f: &mut Formatter<'_>, service: &Service, of: &str) -> fmt::Result {
    let Service { protocol, external: (address, port), servers, affinity, .. } = service;
    let is_usual = |server: &&Server| !server.backup && server.share() > 0;
    let has_usual = servers.iter().any(|server| is_usual(&server));
    let all = servers.iter().filter(|server| server.backup != has_usual);
    let all: u32 = all.map(|server| u32::from(server.share())).sum();
    let affinity = match affinity {
        Affinity::Address => "a remote address keeps its server",
        Affinity::None => "session by session",
    };
    let count = plural(servers.len() as u64, "server", "servers");
    writeln!(f, "  service: {address}:{port}, {}, has {count}{of}, {affinity}", name(*protocol))?;
    for server in servers {
        let Server { internal: (address, port), weight, draining, backup } = *server;
        let is_spare = backup && has_usual;
        let share = match (draining, u32::from(weight) * 100) {
            (true, _) => "drains: gets no new sessions".to_owned(),
            (false, 0) => "gets no new sessions".to_owned(),
            (false, _) if is_spare => {
                "backup: gets new sessions while no other server takes any".to_owned()
            }
            (false, parts) => format!("{} % of new sessions", (parts + all / 2) / all.max(1)),
        };
        writeln!(f, "    {address}:{port}, weight {weight}, {share}")?;
    }
    Ok(())
}

/// Writes how servers are checked.
fn show_health(f: &mut Formatter<'_>, health: &HealthSettings) -> fmt::Result {
    let HealthSettings { interval, timeout, failures, successes, ends_sessions, .. } = health;
    let what = match &health.kind {
        CheckKind::Tcp => "a connection of TCP".to_owned(),
        CheckKind::Icmp => "an echo request".to_owned(),
        CheckKind::Http { path, .. } => format!("GET {path}"),
    };
    let port = health.port.map(|port| format!(" to port {port}")).unwrap_or_default();
    let [every, within] = [interval, timeout].map(|time| show_duration(*time));
    let down = plural(u64::from(*failures), "failed check", "failed checks in a row");
    let up = plural(u64::from(*successes), "successful one", "successful ones in a row");
    let sessions = if *ends_sessions { "end" } else { "stay" };
    writeln!(f, "    checked by {what}{port} every {every}, answered within {within}")?;
    writeln!(
        f,
        "    down after {down}, up after {up}; sessions of a server that is down {sessions}"
    )
}
