//! JSON for scripts: events, counters, mappings and sessions.
//!
//! Names and meanings of the fields are part of the external interface and stay. Times are seconds
//! since 1970, ages and expiries are seconds, all as numbers; endpoints are `address:port`. Every
//! direction, outcome and drop reason is always present, so that a script need not test for it.

use natgate_engine::{
    Counters, Direction, DropReason, MappingId, MappingInfo, Outcome, SessionInfo, Timestamp,
};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{AlgCounters, AlgKind, AlgReason, LoadNow};
use natgate_logs::endpoint;
pub use natgate_logs::{
    EventObject, Hosts, Names, event, expectation, host_endpoint, prefix, protocol, remote,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

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
        "subscribers_reclaimed": counters.subscribers_reclaimed,
        "mappings_reclaimed": counters.mappings_reclaimed,
    })
}

/// Adds the counters of application-level gateways to those of packets, if any gateway is on.
pub fn add_algs(to: &mut Value, algs: &[(AlgKind, AlgCounters)]) {
    if algs.is_empty() {
        return;
    }
    let each = |value: &dyn Fn(&AlgCounters) -> Value| -> Map<String, Value> {
        algs.iter().map(|(kind, of)| (kind.name().to_owned(), value(of))).collect()
    };
    to["alg_expectations"] = each(&|of| of.expectations.into()).into();
    to["alg_refused"] = each(&|of| {
        let reasons = AlgReason::ALL.iter().zip(of.refused);
        let reasons = reasons.map(|(reason, count)| (reason.name().to_owned(), count.into()));
        reasons.collect::<Map<String, Value>>().into()
    })
    .into();
}

/// A mapping, identified by protocol and endpoints. A `host` with a number has its name in place of
/// the number.
pub fn mapping_id(id: &MappingId, host: Option<&HostName>) -> Value {
    let (internal, subscriber) =
        named(host, endpoint(id.internal), id.internal.address.to_string());
    json!({
        "protocol": protocol(id.protocol),
        "internal": internal,
        "external": endpoint(id.external),
        "subscriber": subscriber,
        "kind": id.kind.name(),
    })
}

/// Internal endpoint and subscriber, with the name of a host in place of its number.
fn named(host: Option<&HostName>, internal: String, subscriber: String) -> (String, String) {
    let Some(HostName { address, prefix: prefix_of, len }) = host else {
        return (internal, subscriber);
    };
    let port = internal.rsplit(':').next().unwrap_or_default();
    let internal = match address {
        Some(address) => host_endpoint(*address, port),
        None => internal,
    };
    (internal, prefix((*prefix_of, *len)))
}

/// A mapping or a session, ready for serialization.
#[derive(Debug, Serialize)]
pub struct MappingLine<'n> {
    protocol: String,
    internal: String,
    external: String,
    subscriber: String,
    kind: &'static str,
    sessions: u32,
    age_s: f64,
    expires_in_s: Option<f64>,
    packets_out: u64,
    packets_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    realm: Option<&'n str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_inside: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<bool>,
}

impl<'n> MappingLine<'n> {
    /// The mapping as it is at `now`.
    pub fn of_mapping(info: &MappingInfo, now: Timestamp, names: &'n Names) -> Self {
        Self {
            protocol: protocol(info.id.protocol),
            internal: endpoint(info.id.internal),
            external: endpoint(info.id.external),
            subscriber: info.id.internal.address.to_string(),
            kind: info.id.kind.name(),
            sessions: info.sessions,
            age_s: now.since(info.created).as_secs_f64(),
            expires_in_s: info.expires.map(|expires| expires.since(now).as_secs_f64()),
            packets_out: info.packets_out,
            packets_in: info.packets_in,
            realm: names.realm(info.id.realm),
            remote: None,
            remote_inside: None,
            state: None,
            copy: None,
        }
    }

    /// The line of a node of a pair: true if another node than this one owns the mapping's slice.
    #[must_use]
    pub fn in_pair(self, copy: Option<bool>) -> Self {
        Self { copy, ..self }
    }

    /// The line with the name of a host of NAT64, if the mapping or session is one's.
    #[must_use]
    pub fn of_host(self, host: Option<&HostName>) -> Self {
        let (internal, subscriber) = named(host, self.internal, self.subscriber);
        Self { internal, subscriber, ..self }
    }

    /// The session as it is at `now`: the fields of its mapping with the session's own expiry and
    /// packets, the remote endpoint and the state. `seen` is the remote as internal hosts see it,
    /// if that differs.
    pub fn of_session(
        info: &SessionInfo,
        of: &MappingInfo,
        now: Timestamp,
        names: &'n Names,
    ) -> Self {
        let expires = Some(info.expires);
        let (packets_out, packets_in) = (info.packets_out, info.packets_in);
        let mapping = MappingInfo { expires, packets_out, packets_in, ..*of };
        Self {
            remote: Some(endpoint(info.remote)),
            remote_inside: (info.remote_inside != info.remote)
                .then(|| endpoint(info.remote_inside)),
            state: Some(info.state),
            ..Self::of_mapping(&mapping, now, names)
        }
    }
}

/// The object of a mapping at `now`.
pub fn mapping(info: &MappingInfo, now: Timestamp, names: &Names) -> Value {
    json!(MappingLine::of_mapping(info, now, names))
}

/// The object of a session at `now`; see [`MappingLine::of_session`].
pub fn session(info: &SessionInfo, of: &MappingInfo, now: Timestamp, names: &Names) -> Value {
    json!(MappingLine::of_session(info, of, now, names))
}

/// The load of a worker.
pub fn load(number: usize, load: &LoadNow) -> Value {
    let counts = load.each().map(|(name, value)| (name.to_owned(), Value::from(value)));
    let number = ("worker".to_owned(), Value::from(number));
    Value::Object(std::iter::once(number).chain(counts).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{Endpoint, MappingKind};
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
