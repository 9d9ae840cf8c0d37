//! What scripts read: events, counters, mappings and sessions as JSON objects.
//!
//! Names and meanings of the fields are part of the outside interface and stay. Times are seconds
//! since 1970, ages and expiries seconds, all as numbers; endpoints are `address:port`. Every
//! direction, outcome and drop reason is always there, so that no script need ask whether it is.

use crate::config::DEFAULT_REALM;
use natgate_engine::{
    BlockId, Change, Config, Counters, Direction, DropReason, Endpoint, Event, MappingId,
    MappingInfo, Outcome, Resource, SessionInfo, Timestamp,
};
use natgate_gateway::LoadNow;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::net::Ipv4Addr;

/// An event, ready to be one line of JSON.
#[derive(Debug, Serialize)]
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
    subscriber: Option<Ipv4Addr>,
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
}

/// Names that the configuration gives and events mention, in its order.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The pools'.
    pub pools: Vec<String>,
    /// The classes'.
    pub classes: Vec<String>,
    /// The realms', if there are more than one.
    pub realms: Vec<String>,
}

impl Names {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        Self {
            pools: config.pools.iter().map(|pool| pool.name.clone()).collect(),
            classes: config.classes.iter().map(|class| class.name.clone()).collect(),
            realms: realms(config),
        }
    }

    pub(crate) fn realm(&self, number: u16) -> Option<&str> {
        self.realms.get(usize::from(number)).map(String::as_str)
    }

    fn pool(&self, index: usize) -> Option<&str> {
        self.pools.get(index).map(String::as_str)
    }

    fn class(&self, index: usize) -> Option<&str> {
        self.classes.get(index).map(String::as_str)
    }
}

/// The names of all realms, unless there is only one.
fn realms(config: &Config) -> Vec<String> {
    let further = config.realms.iter().map(|realm| realm.name.clone());
    match config.realms.is_empty() {
        true => Vec::new(),
        false => std::iter::once(DEFAULT_REALM.to_owned()).chain(further).collect(),
    }
}

/// A mapping as events name it, without its protocol.
#[derive(Debug, Serialize)]
struct MappingObject {
    internal: String,
    external: String,
    subscriber: Ipv4Addr,
    kind: &'static str,
}

/// The event as an object.
pub fn event<'p>(event: &Event, names: &'p Names) -> EventObject<'p> {
    let time = seconds(event.time);
    let object = |event, protocol| EventObject {
        time,
        event,
        protocol,
        realm: None,
        mapping: None,
        subscriber: None,
        external: None,
        ports: None,
        pool: None,
        class: None,
        what: None,
        percent: None,
    };
    let refused = |event, number| object(event, Some(protocol(number)));
    let block = |event, id: &BlockId| EventObject {
        realm: names.realm(id.realm),
        subscriber: Some(id.subscriber),
        external: Some(id.external),
        ports: Some(format!("{}-{}", id.ports.0, id.ports.1)),
        ..object(event, None)
    };
    let about = |name, id: &MappingId| {
        let mapping = MappingObject {
            internal: endpoint(id.internal),
            external: endpoint(id.external),
            subscriber: id.internal.address,
            kind: id.kind.name(),
        };
        let realm = names.realm(id.realm);
        EventObject { realm, mapping: Some(mapping), ..refused(name, id.protocol) }
    };
    let threshold = |resource: &Resource, percent: &u8| EventObject {
        what: Some(resource.name()),
        percent: Some(*percent),
        ..object("threshold_reached", None)
    };
    match &event.change {
        Change::MappingCreated(id) => about("mapping_created", id),
        Change::MappingRemoved(id) => about("mapping_removed", id),
        Change::BlockAssigned(id) => block("block_assigned", id),
        Change::BlockReleased(id) => block("block_released", id),
        Change::QuotaReached { realm, subscriber, protocol } => EventObject {
            realm: names.realm(*realm),
            subscriber: Some(*subscriber),
            ..refused("quota_reached", *protocol)
        },
        Change::PoolExhausted { pool, protocol } => {
            EventObject { pool: names.pool(*pool), ..refused("pool_exhausted", *protocol) }
        }
        Change::ClassQuotaReached { class, protocol } => {
            EventObject { class: names.class(*class), ..refused("quota_reached", *protocol) }
        }
        Change::ThresholdReached { realm, subscriber, resource, percent } => EventObject {
            realm: names.realm(*realm),
            subscriber: Some(*subscriber),
            ..threshold(resource, percent)
        },
        Change::ClassThresholdReached { class, resource, percent } => {
            EventObject { class: names.class(*class), ..threshold(resource, percent) }
        }
        Change::PoolThresholdReached { pool, resource, percent } => {
            let of_ports = *resource != Resource::Blocks;
            let reached = EventObject { pool: names.pool(*pool), ..threshold(resource, percent) };
            match of_ports {
                true => EventObject {
                    protocol: Some(resource.name().to_owned()),
                    what: None,
                    ..reached
                },
                false => reached,
            }
        }
    }
}

/// The counters: packets and bytes by direction and verdict, drops by reason, and the rest.
pub fn counters(counters: &Counters) -> Value {
    let by_direction = |table: &[[u64; 3]; 4]| -> Map<String, Value> {
        let verdicts = |direction: Direction| -> Map<String, Value> {
            let row = table[direction as usize];
            Outcome::ALL.iter().map(|&o| (o.name().into(), row[o as usize].into())).collect()
        };
        Direction::ALL.iter().map(|&d| (d.name().into(), verdicts(d).into())).collect()
    };
    let drops: Map<String, Value> = DropReason::ALL
        .iter()
        .map(|&reason| (reason.name().into(), counters.drops[reason as usize].into()))
        .collect();
    json!({
        "packets": by_direction(&counters.packets),
        "bytes": by_direction(&counters.bytes),
        "drops": drops,
        "portless": counters.portless,
        "generated": counters.generated,
        "errors_suppressed": counters.errors_suppressed,
        "events_lost": counters.events_lost,
        "clock_backwards": counters.clock_backwards,
    })
}

/// A mapping by its name alone.
pub fn mapping_id(id: &MappingId) -> Value {
    json!({
        "protocol": protocol(id.protocol),
        "internal": endpoint(id.internal),
        "external": endpoint(id.external),
        "subscriber": id.internal.address,
        "kind": id.kind.name(),
    })
}

/// A mapping as it is at `now`.
pub fn mapping(info: &MappingInfo, now: Timestamp, names: &Names) -> Value {
    let mut object = json!({
        "protocol": protocol(info.id.protocol),
        "internal": endpoint(info.id.internal),
        "external": endpoint(info.id.external),
        "subscriber": info.id.internal.address,
        "kind": info.id.kind.name(),
        "sessions": info.sessions,
        "age_s": now.since(info.created).as_secs_f64(),
        "expires_in_s": info.expires.map(|expires| expires.since(now).as_secs_f64()),
        "packets_out": info.packets_out,
        "packets_in": info.packets_in,
    });
    if let Some(realm) = names.realm(info.id.realm) {
        object["realm"] = realm.into();
    }
    object
}

/// A session as it is at `now`: what its mapping says, with its own expiry and packets, and its
/// remote endpoint and state; and what the remote is seen as inside, if that is another.
pub fn session(info: &SessionInfo, of: &MappingInfo, now: Timestamp, names: &Names) -> Value {
    let expires = Some(info.expires);
    let (packets_out, packets_in) = (info.packets_out, info.packets_in);
    let mut object = mapping(&MappingInfo { expires, packets_out, packets_in, ..*of }, now, names);
    object["remote"] = endpoint(info.remote).into();
    if info.remote_inside != info.remote {
        object["remote_inside"] = endpoint(info.remote_inside).into();
    }
    object["state"] = info.state.into();
    object
}

/// A protocol's name, or its number in digits.
pub fn protocol(number: u8) -> String {
    use natgate_wire::protocol as number_of;
    let name = match number {
        number_of::ICMP => "icmp",
        number_of::TCP => "tcp",
        number_of::UDP => "udp",
        number_of::DCCP => "dccp",
        number_of::GRE => "gre",
        number_of::ESP => "esp",
        number_of::SCTP => "sctp",
        other => return other.to_string(),
    };
    name.into()
}

fn endpoint(endpoint: Endpoint) -> String {
    format!("{}:{}", endpoint.address, endpoint.port)
}

fn seconds(time: Timestamp) -> f64 {
    time.since(Timestamp(0)).as_secs_f64()
}

/// What a worker has done.
pub fn load(number: usize, load: &LoadNow) -> Value {
    let counts = load.each().map(|(name, value)| (name.to_owned(), Value::from(value)));
    let number = ("worker".to_owned(), Value::from(number));
    Value::Object(std::iter::once(number).chain(counts).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::MappingKind;
    use std::time::Duration;

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
        let names = Names { pools, classes, realms: Vec::new() };
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
    fn counters_are_complete() {
        let mut input = Counters::default();
        input.count(Direction::Hairpin, Outcome::Forwarded, 100);
        input.count_drop(Direction::Inbound, DropReason::NoMapping, 40);
        input.clock_backwards = 3;
        let object = counters(&input);
        assert_eq!(object["packets"]["hairpin"]["forwarded"], 1);
        assert_eq!(object["bytes"]["hairpin"]["forwarded"], 100);
        assert_eq!(object["packets"]["inbound"]["dropped"], 1);
        assert_eq!(object["packets"]["local"]["replied"], 0);
        assert_eq!(object["drops"]["no_mapping"], 1);
        assert_eq!(object["drops"].as_object().unwrap().len(), DropReason::ALL.len());
        assert_eq!(object["clock_backwards"], 3);
    }

    #[test]
    fn mappings_and_sessions() {
        let at = |seconds| Timestamp(0).plus(Duration::from_secs(seconds));
        let info = MappingInfo {
            id: MappingId { protocol: 99, kind: MappingKind::Static, ..id() },
            sessions: 2,
            created: at(10),
            expires: None,
            packets_out: 7,
            packets_in: 8,
        };
        let object = mapping(&info, at(12), &Names::default());
        assert_eq!(
            object,
            json!({
                "protocol": "99", "internal": "10.0.0.5:4000", "external": "203.0.113.1:5000",
                "subscriber": "10.0.0.5", "kind": "static", "sessions": 2, "age_s": 2.0,
                "expires_in_s": null, "packets_out": 7, "packets_in": 8,
            })
        );
        let session_info = SessionInfo {
            mapping: info.id,
            remote: Endpoint::new(0xc000_0201, 53),
            remote_inside: Endpoint::new(0xc000_0202, 53),
            state: "established",
            expires: at(15),
            packets_out: 1,
            packets_in: 0,
        };
        let object = session(&session_info, &info, at(12), &Names::default());
        assert_eq!(object["remote"], "192.0.2.1:53");
        assert_eq!(object["remote_inside"], "192.0.2.2:53");
        assert_eq!(object["state"], "established");
        assert_eq!(object["expires_in_s"], 3.0);
        assert_eq!((&object["packets_out"], &object["packets_in"]), (&json!(1), &json!(0)));
        assert_eq!(object["sessions"], 2);
    }
}
