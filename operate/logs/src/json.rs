//! Records as JSON objects, and the names in them.
//!
//! Names and meanings of the fields are part of the external interface and stay. Times are seconds
//! since 1970, as numbers; endpoints are `address:port`.

use crate::damping::{Subject, Summary};
use crate::in_force::InForce;
use crate::record::{Host, Record, host_before};
use natgate_engine::{
    BlockId, Change, Config, Endpoint, Event, MappingId, PoolConfig, Resource, SessionId, Timestamp,
};
use natgate_gateway::fleet::{FleetSettings, Node};
use natgate_gateway::ipv6::HostRealms;
use natgate_gateway::{AlgExpectation, Settings};
use serde::Serialize;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Name of the realm that has none of its own.
pub const DEFAULT_REALM: &str = "default";

/// An event, ready to be one line of JSON.
#[derive(Debug, Default, Serialize)]
pub struct EventObject<'p> {
    time: f64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    realm: Option<&'p str>,
    #[serde(flatten)]
    mapping: Option<MappingObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(rename = "mapping", skip_serializing_if = "Option::is_none")]
    expected: Option<ExpectedObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<Subscriber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_inside: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slice: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<f64>,
}

/// Names that the configuration gives and events mention, in the configuration's order.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names of the pools.
    pub pools: Vec<String>,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Names of the realms, if there are several.
    pub realms: Vec<String>,
    /// The realms of hosts with numbers, if there are several: hosts of two may have one prefix.
    pub hosts: Option<HostRealms>,
    /// Names of the nodes of a pair, in their order.
    pub nodes: Option<[String; 2]>,
    /// Quotas of a subscriber: TCP, UDP, and other protocols.
    pub quotas: [u32; 3],
    /// Number of addresses of each pool, and number of ports of each address.
    pub sizes: Vec<(u32, u32)>,
    /// Records of the latest configurations in force, for the spool; the last one is in force.
    pub in_force: Vec<Arc<InForce>>,
}

impl Names {
    /// Names of a configuration.
    pub fn of(config: &Config) -> Self {
        let limits = &config.limits;
        let size = |pool: &PoolConfig| {
            let (first, last) = pool.ports;
            (pool.count() as u32, u32::from(last.saturating_sub(first)) + 1)
        };
        Self {
            pools: config.pools.iter().map(|pool| pool.name.clone()).collect(),
            classes: config.classes.iter().map(|class| class.name.clone()).collect(),
            realms: realms(config),
            hosts: None,
            quotas: [limits.tcp_ports, limits.udp_ports, limits.icmp_ports],
            nodes: None,
            sizes: config.pools.iter().map(size).collect(),
            in_force: Vec::new(),
        }
    }

    /// Names of settings. [`Names::of`] knows no realms of hosts with numbers.
    pub fn of_settings(settings: &Settings) -> Self {
        let realms = settings.ipv6.host_realms(settings.realms.len());
        let hosts = (realms.all().count() > 1).then_some(realms);
        Self { hosts, ..Self::of(&settings.engine) }
    }

    /// The same with the names of the nodes of a pair.
    #[must_use]
    pub fn of_pair(mut self, fleet: Option<&FleetSettings>) -> Self {
        self.nodes = fleet.map(|fleet| [Node::A, Node::B].map(|node| fleet.name(node).to_owned()));
        self
    }

    fn node(&self, node: Node) -> Option<&str> {
        let [a, b] = self.nodes.as_ref()?;
        Some(if node == Node::A { a } else { b })
    }

    /// Name of a realm, if there are several.
    pub fn realm(&self, number: u16) -> Option<&str> {
        if let Some(kind) = self.hosts.and_then(|realms| realms.kind(number)) {
            return Some(kind.realm_name());
        }
        self.realms.get(usize::from(number)).map(String::as_str)
    }

    /// Quota of a subscriber for a protocol.
    pub(crate) fn quota(&self, protocol: u8) -> u32 {
        match protocol {
            natgate_wire::protocol::TCP => self.quotas[0],
            natgate_wire::protocol::UDP => self.quotas[1],
            _ => self.quotas[2],
        }
    }

    pub(crate) fn pool(&self, index: usize) -> Option<&str> {
        self.pools.get(index).map(String::as_str)
    }

    pub(crate) fn class(&self, index: usize) -> Option<&str> {
        self.classes.get(index).map(String::as_str)
    }
}

/// Names of all realms, unless there is only one.
fn realms(config: &Config) -> Vec<String> {
    // The hosts of NAT64 have a realm of the engine, and none of the configuration.
    let further = config.realms.iter().filter(|realm| realm.host_bits.is_none());
    let further: Vec<String> = further.map(|realm| realm.name.clone()).collect();
    match further.is_empty() {
        true => Vec::new(),
        false => std::iter::once(DEFAULT_REALM.to_owned()).chain(further).collect(),
    }
}

/// Fields of a mapping, without its protocol.
#[derive(Debug, Serialize)]
struct MappingObject {
    internal: String,
    external: String,
    subscriber: Subscriber,
    kind: &'static str,
}

/// The mapping of an expectation.
#[derive(Debug, Serialize)]
struct ExpectedObject {
    protocol: String,
    internal: String,
    external: String,
}

/// Name of a subscriber: its IPv4 address, or the text of an IPv6 prefix or address.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Subscriber {
    Ipv4(Ipv4Addr),
    Text(String),
}

/// Hosts of IPv6 behind the numbers that stand for them in the engine.
pub trait Hosts {
    /// The address of the host with a number; `None`: the number is an IPv4 address.
    fn address(&self, realm: u16, number: Ipv4Addr) -> Option<Ipv6Addr>;

    /// The prefix of the subscriber with a number, and its length; `None`: as for the address.
    fn subscriber(&self, realm: u16, number: Ipv4Addr) -> Option<(Ipv6Addr, u8)>;
}

/// Name of a subscriber that is a prefix: a prefix of one address is the address.
pub fn prefix((prefix, len): (Ipv6Addr, u8)) -> String {
    match len {
        128 => prefix.to_string(),
        len => format!("{prefix}/{len}"),
    }
}

/// Realm and number of the subscriber that a change is about, and its port if it is about one.
fn about(change: &Change) -> Option<(u16, Ipv4Addr, Option<u16>)> {
    match change {
        Change::MappingCreated(id) | Change::MappingRemoved(id) => {
            Some((id.realm, id.internal.address, Some(id.internal.port)))
        }
        Change::SessionCreated(id) | Change::SessionRemoved(id) => {
            let id = id.mapping;
            Some((id.realm, id.internal.address, Some(id.internal.port)))
        }
        Change::BlockAssigned(id) | Change::BlockReleased(id) => {
            Some((id.realm, id.subscriber, None))
        }
        Change::QuotaReached { realm, subscriber, .. }
        | Change::ThresholdReached { realm, subscriber, .. } => Some((*realm, *subscriber, None)),
        _ => None,
    }
}

/// An event as an object, with all its fields.
pub fn event<'p>(event: &Event, names: &'p Names) -> EventObject<'p> {
    let object = EventObject { time: seconds(event.time), ..EventObject::default() };
    let refused = |event, number| object.of(event).and(|it| it.protocol = Some(protocol(number)));
    let subscriber = |object: EventObject<'p>, realm: u16, address: Ipv4Addr| {
        object.and(|it| {
            it.realm = names.realm(realm);
            it.subscriber = Some(Subscriber::Ipv4(address));
        })
    };
    let threshold = |resource: Resource, percent: u8| {
        object.of("threshold_reached").and(|it| {
            it.what = Some(resource.name());
            it.percent = Some(percent);
        })
    };
    match event.change {
        Change::MappingCreated(id) => object.of("mapping_created").about(&id, names),
        Change::MappingRemoved(id) => object.of("mapping_removed").about(&id, names),
        Change::SessionCreated(id) => object.of("session_created").with(&id, names),
        Change::SessionRemoved(id) => object.of("session_removed").with(&id, names),
        Change::BlockAssigned(id) => object.of("block_assigned").block(&id, names),
        Change::BlockReleased(id) => object.of("block_released").block(&id, names),
        Change::QuotaReached { realm, subscriber: address, protocol } => {
            subscriber(refused("quota_reached", protocol), realm, address)
        }
        Change::PoolExhausted { pool, protocol } => {
            refused("pool_exhausted", protocol).and(|it| it.pool = names.pool(pool))
        }
        Change::ClassQuotaReached { class, protocol } => {
            refused("quota_reached", protocol).and(|it| it.class = names.class(class))
        }
        Change::ThresholdReached { realm, subscriber: address, resource, percent } => {
            subscriber(threshold(resource, percent), realm, address)
        }
        Change::ClassThresholdReached { class, resource, percent } => {
            threshold(resource, percent).and(|it| it.class = names.class(class))
        }
        Change::PoolThresholdReached { pool, resource, percent } => threshold(resource, percent)
            .and(|it| {
                it.pool = names.pool(pool);
                if resource != Resource::Blocks {
                    it.protocol = it.what.take().map(str::to_owned);
                }
            }),
    }
}

/// The remote end that an expectation is for: an endpoint, an address if any port may begin the
/// flow, or nothing if any host may.
pub fn remote(made: &AlgExpectation) -> Option<String> {
    made.remote.map(|address| match made.remote_port {
        0 => address.to_string(),
        port => endpoint(Endpoint { address, port }),
    })
}

/// An expectation of an application-level gateway as an object.
pub fn expectation<'p>(made: &AlgExpectation, names: &'p Names) -> EventObject<'p> {
    EventObject {
        time: seconds(made.time),
        event: "alg_expectation",
        realm: names.realm(made.realm),
        kind: Some(made.kind.name()),
        expected: Some(ExpectedObject {
            protocol: protocol(made.protocol),
            internal: endpoint(made.internal),
            external: endpoint(made.external),
        }),
        subscriber: Some(Subscriber::Ipv4(made.internal.address)),
        remote: remote(made),
        ..EventObject::default()
    }
}

/// The record at a place as an object; it has remote endpoints only if `remotes` is set. `None`:
/// the record belongs to the next one.
pub fn record<'p>(
    records: &[Record],
    place: usize,
    names: &'p Names,
    remotes: bool,
) -> Option<EventObject<'p>> {
    let record = records.get(place)?;
    Some(match record {
        Record::Host(_) => return None,
        Record::Event(happened) => {
            let mut object = event(happened, names);
            if !remotes {
                (object.remote, object.remote_inside) = (None, None);
            }
            match host_before(records, place) {
                Some(host) => object.with_hosts(happened, host),
                None => object,
            }
        }
        Record::Gap(gap) => EventObject {
            time: seconds(gap.to),
            event: "gap",
            lost: Some(gap.lost),
            from: Some(seconds(gap.from)),
            to: Some(seconds(gap.to)),
            ..EventObject::default()
        },
        Record::Expectation(made) => {
            let object = expectation(made, names);
            let object = match host_before(records, place) {
                Some(host) => object.with_host_of(made, host),
                None => object,
            };
            object.and(|it| it.remote = it.remote.take().filter(|_| remotes))
        }
        Record::Slice(change) => EventObject {
            time: seconds(change.time),
            event: "slice_owner",
            slice: Some(change.slice),
            node: names.node(change.owner),
            epoch: Some(change.epoch),
            continued: change.continued,
            ..EventObject::default()
        },
        Record::Summary(summary) => EventObject {
            count: Some(summary.count),
            from: Some(seconds(summary.from())),
            to: Some(seconds(summary.to())),
            ..summed_up(summary, names)
        },
        Record::ClockSet(set) => EventObject {
            time: seconds(set.to),
            event: "clock_set",
            from: Some(seconds(set.from)),
            to: Some(seconds(set.to)),
            ..EventObject::default()
        },
    })
}

/// An endpoint of a host that has a number. A host behind a tunnel has an IPv4 address, which its
/// name has as an IPv4-mapped one.
pub fn host_endpoint(address: Ipv6Addr, port: impl Display) -> String {
    match address.to_ipv4_mapped() {
        Some(inner) => format!("{inner}:{port}"),
        None => format!("[{address}]:{port}"),
    }
}

impl Hosts for Host {
    fn address(&self, _: u16, _: Ipv4Addr) -> Option<Ipv6Addr> {
        Self::address(self)
    }

    fn subscriber(&self, _: u16, _: Ipv4Addr) -> Option<(Ipv6Addr, u8)> {
        Some(Self::subscriber(self))
    }
}

/// Object of the event that a summary is about, at the summary's time.
fn summed_up<'p>(summary: &Summary, names: &'p Names) -> EventObject<'p> {
    let time = summary.time;
    let name = match (summary.subject.change(), summary.subject) {
        (Some(change), _) => return event(&Event { time, change }, names),
        (None, Subject::OtherQuotas) => "quota_reached",
        (None, _) => "threshold_reached",
    };
    EventObject { time: seconds(time), event: name, ..EventObject::default() }
}

impl<'p> EventObject<'p> {
    /// The object of an event, with the names of hosts in place of their numbers.
    pub fn with_hosts(mut self, event: &Event, hosts: &impl Hosts) -> Self {
        let Some((realm, number, port)) = about(&event.change) else { return self };
        let Some(subscriber) = hosts.subscriber(realm, number) else { return self };
        let name = Subscriber::Text(prefix(subscriber));
        match (&mut self.mapping, port, hosts.address(realm, number)) {
            (Some(mapping), Some(port), Some(address)) => {
                mapping.internal = host_endpoint(address, port);
                mapping.subscriber = name;
            }
            (Some(mapping), ..) => mapping.subscriber = name,
            (None, ..) => self.subscriber = Some(name),
        }
        self
    }

    /// The object of an expectation, with the name of a host of NAT64 in place of its number.
    pub fn with_host_of(mut self, made: &AlgExpectation, hosts: &impl Hosts) -> Self {
        let (realm, number, port) = (made.realm, made.internal.address, made.internal.port);
        let Some(subscriber) = hosts.subscriber(realm, number) else { return self };
        self.subscriber = Some(Subscriber::Text(prefix(subscriber)));
        if let (Some(expected), Some(address)) = (&mut self.expected, hosts.address(realm, number))
        {
            expected.internal = host_endpoint(address, port);
        }
        self
    }

    /// An object of another name with the same time.
    fn of(&self, event: &'static str) -> Self {
        Self { event, time: self.time, ..Self::default() }
    }

    fn and(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn about(self, id: &MappingId, names: &'p Names) -> Self {
        let mapping = MappingObject {
            internal: endpoint(id.internal),
            external: endpoint(id.external),
            subscriber: Subscriber::Ipv4(id.internal.address),
            kind: id.kind.name(),
        };
        let (protocol, realm) = (Some(protocol(id.protocol)), names.realm(id.realm));
        Self { protocol, realm, mapping: Some(mapping), ..self }
    }

    fn with(self, id: &SessionId, names: &'p Names) -> Self {
        let inside = (id.remote_inside != id.remote).then(|| endpoint(id.remote_inside));
        let remote = Some(endpoint(id.remote));
        Self { remote, remote_inside: inside, ..self.about(&id.mapping, names) }
    }

    fn block(self, id: &BlockId, names: &'p Names) -> Self {
        Self {
            realm: names.realm(id.realm),
            subscriber: Some(Subscriber::Ipv4(id.subscriber)),
            external: Some(id.external),
            ports: Some(format!("{}-{}", id.ports.0, id.ports.1)),
            ..self
        }
    }
}

/// Name of a protocol, or its number in digits.
pub fn protocol(number: u8) -> String {
    natgate_wire::protocol::named(number).to_string()
}

/// An endpoint as `address:port`.
pub fn endpoint(endpoint: Endpoint) -> String {
    format!("{}:{}", endpoint.address, endpoint.port)
}

/// Seconds since 1970.
pub fn seconds(time: Timestamp) -> f64 {
    time.since(Timestamp(0)).as_secs_f64()
}

/// A time for people: UTC, to the millisecond.
pub fn shown(time: Timestamp) -> String {
    let millis = i64::try_from(time.0 / 1_000_000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis)
        .map_or_else(|_| format!("{:.3}", seconds(time)), |time| format!("{time:.3}"))
}

/// Reads a time: seconds since 1970, or a date and a time with its offset from UTC.
///
/// # Errors
/// A sentence that names what the text lacks, or what may be written.
pub fn time(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        let shown: String = text.chars().take(LONGEST_SHOWN).collect();
        format!("{shown:?} is no time; write {RIGHT_TIMES}")
    };
    if let Some(ago) = ago(text) {
        let now = natgate_gateway::Clock::default().now();
        return now.0.checked_sub(ago).map(Timestamp).ok_or_else(wrong);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        let duration = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
        return Ok(Timestamp(0).plus(duration));
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| fitting(text).unwrap_or_else(wrong))?;
    u64::try_from(time.as_nanosecond()).map(Timestamp).map_err(|_| wrong())
}

/// Most characters of a text that is shown as no time.
const LONGEST_SHOWN: usize = 40;

/// Times that [`time`] reads, as part of a sentence.
const RIGHT_TIMES: &str = "a date and a time with an offset such as 2026-03-01T12:30:00Z or \
    2026-03-01T14:30:00+02:00, seconds since 1970 such as 1772368200.5, now, or a time before now \
    such as -10m (s, m, h, d)";

/// Sentence about a text that lacks only a part of a time.
fn fitting(text: &str) -> Option<String> {
    if let Ok(time) = text.parse::<jiff::civil::DateTime>() {
        let has_time = text.contains(':');
        let lacks = if has_time { "no offset from UTC" } else { "no time of day and no offset" };
        let utc = time.strftime("%Y-%m-%dT%H:%M:%S");
        let offset = if has_time { " or +02:00" } else { "" };
        return Some(format!("{text:?} has {lacks}; write {utc}Z for UTC{offset}"));
    }
    if let Some(later) = text.strip_prefix('+')
        && ago(&format!("-{later}")).is_some()
    {
        return Some(format!("{text:?} is in the future; write -{later} for a time before now"));
    }
    let before = format!("-{text}");
    ago(&before).map(|_| format!("{text:?} has no sign; write {before} for a time before now"))
}

/// Reads `now`, or a text such as `-10m`, as nanoseconds before now.
fn ago(text: &str) -> Option<u64> {
    if text == "now" {
        return Some(0);
    }
    let text = text.strip_prefix('-')?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    if !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(seconds)?.checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Gap;
    use natgate_engine::MappingKind;
    use natgate_gateway::fleet::SliceChange;
    use natgate_gateway::ipv6::HostName;
    use serde_json::{Value, json};

    fn id() -> MappingId {
        MappingId {
            realm: 0,
            protocol: 17,
            internal: Endpoint::new(0x0a00_0005, 4000),
            external: Endpoint::new(0xcb00_7101, 5000),
            kind: MappingKind::Dynamic,
        }
    }

    fn line(change: Change) -> Value {
        let time = Timestamp(1_700_000_000_123_456_000);
        let (pools, classes) = (vec!["default".into(), "second".into()], vec!["business".into()]);
        let names = Names { pools, classes, ..Names::default() };
        serde_json::to_value(event(&Event { time, change }, &names)).unwrap()
    }

    #[test]
    fn events_name_what_they_are_about() {
        for (change, name) in [
            (Change::MappingCreated(id()), "mapping_created"),
            (Change::MappingRemoved(id()), "mapping_removed"),
        ] {
            let expected = json!({
                "time": 1_700_000_000.123_456, "event": name, "protocol": "udp",
                "internal": "10.0.0.5:4000", "external": "203.0.113.1:5000",
                "subscriber": "10.0.0.5", "kind": "dynamic",
            });
            assert_eq!(line(change), expected);
        }
        let subscriber = Ipv4Addr::new(10, 0, 0, 5);
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let block = BlockId { realm: 0, subscriber, external, ports: (2048, 2559) };
        for (change, name) in [
            (Change::BlockAssigned(block), "block_assigned"),
            (Change::BlockReleased(block), "block_released"),
        ] {
            let expected = json!({
                "time": 1_700_000_000.123_456, "event": name, "subscriber": "10.0.0.5",
                "external": "203.0.113.1", "ports": "2048-2559",
            });
            assert_eq!(line(change), expected);
        }
        assert_eq!(
            line(Change::QuotaReached { realm: 0, subscriber, protocol: 1 }),
            json!({
                "time": 1_700_000_000.123_456, "event": "quota_reached", "protocol": "icmp",
                "subscriber": "10.0.0.5",
            })
        );
        assert_eq!(
            line(Change::ClassQuotaReached { class: 0, protocol: 6 }),
            json!({
                "time": 1_700_000_000.123_456, "event": "quota_reached", "protocol": "tcp",
                "class": "business",
            })
        );
        let reached = |mut about: Value| {
            about["time"] = 1_700_000_000.123_456.into();
            about["event"] = "threshold_reached".into();
            about
        };
        let (resource, percent) = (Resource::Sessions, 80);
        assert_eq!(
            line(Change::ThresholdReached { realm: 0, subscriber, resource, percent }),
            reached(json!({ "subscriber": "10.0.0.5", "what": "sessions", "percent": 80 }))
        );
        let (resource, percent) = (Resource::Udp, 95);
        assert_eq!(
            line(Change::ClassThresholdReached { class: 0, resource, percent }),
            reached(json!({ "class": "business", "what": "udp", "percent": 95 }))
        );
        assert_eq!(
            line(Change::PoolThresholdReached { pool: 1, resource, percent }),
            reached(json!({ "pool": "second", "protocol": "udp", "percent": 95 }))
        );
        let resource = Resource::Blocks;
        assert_eq!(
            line(Change::PoolThresholdReached { pool: 1, resource, percent }),
            reached(json!({ "pool": "second", "what": "blocks", "percent": 95 }))
        );
        assert_eq!(
            line(Change::PoolExhausted { pool: 1, protocol: 6 }),
            json!({
                "time": 1_700_000_000.123_456, "event": "pool_exhausted", "protocol": "tcp",
                "pool": "second",
            })
        );
    }

    #[test]
    fn sessions_tell_their_remotes_only_if_asked() {
        let remote = Endpoint::new(0xc000_0201, 53);
        let mut session = SessionId { mapping: id(), remote, remote_inside: remote };
        let time = Timestamp(2_500_000_000);
        let line = |session, remotes| {
            let happened = Event { time, change: Change::SessionCreated(session) };
            serde_json::to_value(record(&[Record::Event(happened)], 0, &Names::default(), remotes))
                .unwrap()
        };
        let mut expected = json!({
            "time": 2.5, "event": "session_created", "protocol": "udp", "internal": "10.0.0.5:4000",
            "external": "203.0.113.1:5000", "subscriber": "10.0.0.5", "kind": "dynamic",
        });
        assert_eq!(line(session, false), expected);
        expected["remote"] = "192.0.2.1:53".into();
        assert_eq!(line(session, true), expected);
        session.remote_inside = Endpoint::new(0xc000_0202, 54);
        expected["remote_inside"] = "192.0.2.2:54".into();
        assert_eq!(line(session, true), expected);
    }

    #[test]
    fn owners_of_slices_are_named_with_epoch_and_what_they_continue() {
        let change = SliceChange {
            time: Timestamp(2_500_000_000),
            slice: 1,
            epoch: 4,
            owner: Node::B,
            continued: Some(100_000),
        };
        let names = Names { nodes: Some(["left".into(), "right".into()]), ..Names::default() };
        let line = serde_json::to_value(record(&[Record::Slice(change)], 0, &names, false));
        let expected = json!({
            "time": 2.5, "event": "slice_owner", "slice": 1, "node": "right", "epoch": 4,
            "continued": 100_000,
        });
        assert_eq!(line.unwrap(), expected);
    }

    #[test]
    fn expectations_name_their_protocol_their_mapping_and_the_remote_end() {
        let mut made = AlgExpectation {
            time: Timestamp(2_500_000_000),
            kind: natgate_gateway::AlgKind::Ftp,
            protocol: 6,
            realm: 0,
            internal: Endpoint::new(0x0a00_0005, 4000),
            external: Endpoint::new(0xcb00_7101, 5000),
            remote: Some(Ipv4Addr::new(192, 0, 2, 1)),
            remote_port: 0,
        };
        let line = |made, remotes| {
            let records = [Record::Expectation(made)];
            serde_json::to_value(record(&records, 0, &Names::default(), remotes)).unwrap()
        };
        let mut expected = json!({
            "time": 2.5, "event": "alg_expectation", "kind": "ftp", "subscriber": "10.0.0.5",
            "mapping": {
                "protocol": "tcp", "internal": "10.0.0.5:4000", "external": "203.0.113.1:5000",
            },
        });
        assert_eq!(line(made, false), expected);
        expected["remote"] = "192.0.2.1".into();
        assert_eq!(line(made, true), expected);
        made.remote_port = 20;
        expected["remote"] = "192.0.2.1:20".into();
        assert_eq!(line(made, true), expected);
        made.remote = None;
        assert_eq!(line(made, true), line(made, false));
        // A host of NAT64 has its name in the record before.
        let (address, prefix) = ("2001:db8::5".parse().unwrap(), "2001:db8::".parse().unwrap());
        let name = HostName { address: Some(address), prefix, len: 64 };
        let host = Record::Host(Host::new(made.time, &name));
        let records = [host, Record::Expectation(made)];
        let line = serde_json::to_value(record(&records, 1, &Names::default(), false)).unwrap();
        assert_eq!(line["mapping"]["internal"], "[2001:db8::5]:4000");
        assert_eq!(line["subscriber"], "2001:db8::/64");
    }

    #[test]
    fn a_gap_says_how_many_are_missing_and_from_when_to_when() {
        let gap = Gap { lost: 7, from: Timestamp(1_000_000_000), to: Timestamp(2_500_000_000) };
        let names = Names::default();
        let object = record(&[Record::Gap(gap)], 0, &names, false);
        let expected = json!({ "time": 2.5, "event": "gap", "lost": 7, "from": 1.0, "to": 2.5 });
        assert_eq!(serde_json::to_value(object).unwrap(), expected);
    }

    #[test]
    fn a_text_that_is_no_time_is_told_what_it_lacks() {
        for (text, said) in [
            (
                "2026-03-01T12:30:00",
                "has no offset from UTC; write 2026-03-01T12:30:00Z for UTC or",
            ),
            ("2026-03-01 12:30", "has no offset from UTC; write 2026-03-01T12:30:00Z for UTC or"),
            ("2026-03-01", "has no time of day and no offset; write 2026-03-01T00:00:00Z for UTC"),
            ("+1m", "is in the future; write -1m for a time before now"),
            ("10m", "has no sign; write -10m for a time before now"),
            ("tomorrow", "now, or a time before now such as -10m"),
            ("", "2026-03-01T14:30:00+02:00, seconds since 1970"),
        ] {
            let error = time(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn times_before_now_are_read() {
        let now = time("now").unwrap();
        let before = time("-10m").unwrap();
        assert!(before < now && now.0 - before.0 <= 600_000_000_000);
        for text in ["-m", "-10", "-+1m", "-10w", "-9999999999999d", "-", "-1\u{e9}"] {
            time(text).unwrap_err();
        }
    }

    #[test]
    fn times_are_read_as_people_and_logs_write_them() {
        let at = Timestamp(1_700_000_000_500_000_000);
        for text in ["1700000000.5", "2023-11-14T22:13:20.5Z", "2023-11-14T23:13:20.5+01:00"] {
            assert_eq!(time(text), Ok(at), "{text}");
        }
        for text in
            ["", "yesterday", "-1", "NaN", "inf", "1e300", "2023-11-14", "1969-01-01T00:00:00Z"]
        {
            let error = time(text).unwrap_err();
            assert!(error.contains("; write "), "{error}");
        }
    }
}
