//! Limits and timeouts that differ between subscribers: classes of subscribers with limits of their
//! own, thresholds below limits, idle timeouts by port and by rule. Plain data with its checks.

#[cfg(doc)]
use super::Limits;
use super::{Config, Prefix};
use crate::ConfigError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use natgate_wire::protocol;

/// Subscribers that have limits of their own. If prefixes of several classes contain a subscriber,
/// the longest prefix decides; of two prefixes of one length, the prefix of the class that names
/// the realm. A subscriber in no class has the limits in [`Limits`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// The class's name in events.
    pub name: String,
    /// The members. No prefix is in two classes of one realm, or in two classes of all realms.
    pub subscribers: Vec<Prefix>,
    /// The members' realm; `None`: every realm.
    pub realm: Option<u16>,
    /// Limits of each member that differ from [`Limits`].
    pub limits: ClassLimits,
    /// Limits of all members together.
    pub total: Totals,
}

impl Class {
    /// Most classes of a configuration.
    pub const MOST: usize = 1 << 12;
}

/// Limits of each subscriber of a class; `None`: the limit in [`Limits`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassLimits {
    /// TCP mappings.
    pub tcp_ports: Option<u32>,
    /// UDP mappings.
    pub udp_ports: Option<u32>,
    /// Mappings of all other protocols.
    pub icmp_ports: Option<u32>,
    /// Sessions.
    pub sessions_per_subscriber: Option<u32>,
    /// Sessions a mapping.
    pub sessions_per_mapping: Option<u16>,
    /// New mappings a second; one second's worth may come at once.
    pub new_mappings_per_second: Option<u32>,
    /// Thresholds of these limits, percent.
    pub thresholds: Option<Vec<u8>>,
}

/// Limits of all subscribers of a class together; `None`: no limit except the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// TCP mappings.
    pub tcp_ports: Option<u32>,
    /// UDP mappings.
    pub udp_ports: Option<u32>,
    /// Mappings of all other protocols.
    pub icmp_ports: Option<u32>,
    /// Sessions.
    pub sessions: Option<u32>,
    /// New mappings a second; one second's worth may come at once.
    pub new_mappings_per_second: Option<u32>,
    /// Thresholds of these limits, percent.
    pub thresholds: Vec<u8>,
}

/// Idle timeout of sessions with some remote ports: of UDP, or of established TCP and DCCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortTimeout {
    /// TCP, UDP or DCCP.
    pub protocol: u8,
    /// First and last remote port. No port of a protocol is in two ranges.
    pub ports: (u16, u16),
    /// The timeout.
    pub idle: Duration,
}

impl PortTimeout {
    /// Most timeouts of ports in one configuration.
    pub const MOST: usize = 255;
}

/// Idle timeouts of mappings that a rule makes; `None`: the timeout of the remote port or in
/// [`super::Timeouts`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeoutSet {
    /// UDP.
    pub udp: Option<Duration>,
    /// TCP, connection established.
    pub tcp_established: Option<Duration>,
    /// TCP, connection half open.
    pub tcp_opening: Option<Duration>,
    /// TCP, connection closed or reset.
    pub tcp_closing: Option<Duration>,
    /// ICMP queries.
    pub icmp: Option<Duration>,
    /// Protocols that are translated by address alone.
    pub other: Option<Duration>,
}

impl TimeoutSet {
    /// Most sets in one configuration.
    pub const MOST: usize = 15;

    /// The times that the set gives.
    pub fn times(&self) -> impl Iterator<Item = Duration> {
        let Self { udp, tcp_established, tcp_opening, tcp_closing, icmp, other } = *self;
        [udp, tcp_established, tcp_opening, tcp_closing, icmp, other].into_iter().flatten()
    }
}

/// Bounds of thresholds.
#[derive(Clone, Copy, Debug)]
pub enum Thresholds {}

impl Thresholds {
    /// Most thresholds of a limit.
    pub const MOST: usize = 4;
    /// Distance, in percentage points, that use must fall below a threshold before the threshold is
    /// reported again.
    pub const DAMPING: u8 = 10;
    /// Possible values of a threshold, percent.
    pub const BOUNDS: core::ops::RangeInclusive<u8> = Self::DAMPING..=100;
}

pub(crate) fn validate(config: &Config) -> Result<(), ConfigError> {
    check_thresholds("limits.thresholds", &config.limits.thresholds)?;
    for pool in &config.pools {
        check_thresholds(&format!("thresholds of pool {}", pool.name), &pool.thresholds)?;
    }
    if config.classes.len() > Class::MOST {
        let (has, most) = (config.classes.len(), Class::MOST);
        return fail(format!("{has} classes of subscribers: at most {most} are possible"));
    }
    for class in &config.classes {
        let Class { name, limits, total, .. } = class;
        if class.subscribers.is_empty() {
            return fail(format!("class {name} has no subscribers: give at least one prefix"));
        }
        if limits.new_mappings_per_second == Some(0) || total.new_mappings_per_second == Some(0) {
            return fail(format!("a rate of class {name} is 0: give at least 1 a second"));
        }
        check_thresholds(
            &format!("thresholds of class {name}"),
            limits.thresholds.as_deref().unwrap_or_default(),
        )?;
        check_thresholds(&format!("thresholds of the total of class {name}"), &total.thresholds)?;
    }
    check_timeouts(config)?;
    no_prefix_twice(config)
}

fn check_timeouts(config: &Config) -> Result<(), ConfigError> {
    let (ports, sets) = (&config.port_timeouts, &config.timeout_sets);
    if ports.len() > PortTimeout::MOST || sets.len() > TimeoutSet::MOST {
        let (ports, sets) = (ports.len(), sets.len());
        let (most_ports, most_sets) = (PortTimeout::MOST, TimeoutSet::MOST);
        return fail(format!(
            "{ports} timeouts of ports and {sets} sets of rules: at most {most_ports} and \
             {most_sets} are possible"
        ));
    }
    let times = sets.iter().flat_map(TimeoutSet::times).chain(ports.iter().map(|one| one.idle));
    let bounds = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
    if times.into_iter().any(|time| !bounds.contains(&time)) {
        return fail("a timeout of a port or a rule is below one second or over 30 days".into());
    }
    let mut sorted = ports.clone();
    sorted.sort_unstable_by_key(|one| (one.protocol, one.ports));
    let clash = sorted
        .windows(2)
        .find(|pair| pair[0].protocol == pair[1].protocol && pair[1].ports.0 <= pair[0].ports.1);
    if let Some([_, PortTimeout { protocol, ports: (port, _), .. }]) = clash {
        return fail(format!("port {port} of protocol {protocol} has two timeouts"));
    }
    let known = [protocol::TCP, protocol::UDP, protocol::DCCP];
    let odd = |one: &PortTimeout| !known.contains(&one.protocol) || one.ports.0 > one.ports.1;
    if ports.iter().any(odd) {
        return fail("a timeout of ports: give TCP, UDP or DCCP, and ports first to last".into());
    }
    Ok(())
}

fn fail(message: String) -> Result<(), ConfigError> {
    Err(ConfigError { message })
}

fn check_thresholds(what: &str, thresholds: &[u8]) -> Result<(), ConfigError> {
    let (least, most) = (Thresholds::BOUNDS.start(), Thresholds::BOUNDS.end());
    let ascending = thresholds.windows(2).all(|pair| pair[0] < pair[1]);
    let fit = thresholds.iter().all(|percent| Thresholds::BOUNDS.contains(percent));
    if !ascending || !fit || thresholds.len() > Thresholds::MOST {
        let many = Thresholds::MOST;
        return fail(format!("{what}: give at most {many}, ascending, from {least} to {most}"));
    }
    Ok(())
}

fn no_prefix_twice(config: &Config) -> Result<(), ConfigError> {
    let of = |class: &Class| {
        let realm = class.realm;
        class.subscribers.clone().into_iter().map(move |prefix| (realm, prefix))
    };
    let mut all: Vec<(Option<u16>, Prefix)> = config.classes.iter().flat_map(of).collect();
    all.sort_unstable_by_key(|(realm, prefix)| (*realm, prefix.first(), prefix.len()));
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let prefix = pair[0].1;
            let (address, len) = (core::net::Ipv4Addr::from_bits(prefix.first()), prefix.len());
            fail(format!("{address}/{len} is in two classes, or twice in one"))
        }
        None => Ok(()),
    }
}
