//! A question about the present, as one node of a pair asks it of the other, and the reply: what
//! the other node's tables, and its configuration, say about an external endpoint or a subscriber.
//!
//! A question is the byte 2 and a query as that of `GET /v1/who`, without `at`. A node of an
//! earlier version does not answer it. A reply is a JSON object; unknown fields are left out.
//!
//! The reply is read with the suspicion of [`partner_log`](crate::partner_log): an answer about
//! anything else makes the whole reply void, and lists, texts and numbers have bounds.

use super::query::{TableQuery, prefix6};
use crate::partner_log::{LONGEST_REASON, MOST_ANSWERS, includes, known, printable};
use natgate_ipv6::Prefix6;
use natgate_logs::protocol;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::Ipv4Addr;

/// First byte of a question.
const VERSION: u8 = 2;

/// Parameters of a query.
const KEYS: [&str; 4] = ["external", "protocol", "subscriber", "realm"];

/// Most protocols in hold-down.
const MOST_RESTING: usize = 256;

/// Times of an answer, seconds: of a mapping or a block, and of a port in hold-down.
const TIMES: [&str; 2] = ["age_s", "released_in_s"];
const TIMES_OF_REST: [&str; 2] = ["until", "for_s"];

/// Numbers of a block's ports, each by protocol.
const PORTS: [&str; 2] = ["used", "held"];
const PROTOCOLS: [&str; 4] = ["tcp", "udp", "icmp", "dccp"];

/// The question of a query, as bytes.
pub(super) fn question(query: &str) -> Vec<u8> {
    [&[VERSION], query.as_bytes()].concat()
}

/// Reads a question; `None` if the bytes are none.
pub(super) fn read_question(bytes: &[u8]) -> Option<TableQuery> {
    let (VERSION, query) = bytes.split_first().map(|(first, rest)| (*first, rest))? else {
        return None;
    };
    TableQuery::parse(Some(std::str::from_utf8(query).ok()?), &KEYS).ok()
}

/// What the tables and the configuration of one node say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TableReply {
    /// True if the node has looked.
    pub(super) searched: bool,
    /// Owners: objects as `GET /v1/who` has them.
    #[serde(default)]
    pub(super) answers: Vec<Value>,
    /// True if a subscriber has more.
    #[serde(default)]
    pub(super) more: bool,
    /// Protocols for which an endpoint without a mapping is in hold-down.
    #[serde(default)]
    pub(super) resting: Vec<Value>,
    /// Why no owner is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl TableReply {
    /// The reply as bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the reply to a question; `None` if it is damaged or answers another question.
    pub(super) fn read(bytes: &[u8], asked: &TableQuery) -> Option<Self> {
        let mut reply: Self = serde_json::from_slice(bytes).ok()?;
        let answers = reply.answers.iter().take(MOST_ANSWERS);
        reply.answers = answers.map(|one| answer(one, asked)).collect::<Option<_>>()?;
        reply.resting = resting(&reply.resting)?;
        reply.reason = reply.reason.map(|reason| printable(&reason, LONGEST_REASON));
        Some(reply)
    }
}

/// An answer with its known fields; `None` if it answers another question.
fn answer(answer: &Value, asked: &TableQuery) -> Option<Value> {
    let answer = answer.as_object()?;
    let mut read = known(answer, &TIMES)?;
    for key in PORTS {
        if let Some(counts) = answer.get(key) {
            read.insert(key.to_owned(), by_protocol(counts.as_object()?)?);
        }
    }
    if let Some(rests) = answer.get("resting") {
        read.insert("resting".to_owned(), resting(rests.as_array()?)?.into());
    }
    let read = Value::Object(read);
    is_about(&read, asked)?.then_some(read)
}

fn by_protocol(counts: &Map<String, Value>) -> Option<Value> {
    let mut read = Map::new();
    for key in PROTOCOLS {
        if let Some(count) = counts.get(key) {
            read.insert(key.to_owned(), count.as_u64()?.into());
        }
    }
    Some(Value::Object(read))
}

fn resting(list: &[Value]) -> Option<Vec<Value>> {
    let one = |rest: &Value| {
        let rest = known(rest.as_object()?, &TIMES_OF_REST)?;
        rest.contains_key("protocol").then_some(Value::Object(rest))
    };
    list.iter().take(MOST_RESTING).map(one).collect()
}

/// True if an answer is about the endpoint or the subscriber in question; `None` if it names none.
fn is_about(answer: &Value, asked: &TableQuery) -> Option<bool> {
    let text = |key: &str| answer[key].as_str();
    let (subscriber, external) = (text("subscriber")?, text("external")?);
    let external: Ipv4Addr = external.parse().ok()?;
    let name = asked.protocol.map(protocol);
    let is_of_protocol =
        name.is_none_or(|name| text("protocol").is_none_or(|protocol| protocol == name));
    if let Some(addresses) = asked.external {
        let has_port = asked
            .external_port
            .is_none_or(|port| text("ports").is_none_or(|ports| includes(ports, port)));
        return Some(is_of_protocol && has_port && addresses.contains(external.to_bits()));
    }
    // The realm is a part of the subscriber's name.
    let realm = asked.realm.as_deref();
    let has_realm = text("realm").is_none_or(|named| realm.is_none_or(|realm| realm == named));
    let is_of = match (asked.subscriber, asked.subscriber6) {
        (Some(addresses), _) => addresses.contains(subscriber.parse::<Ipv4Addr>().ok()?.to_bits()),
        (None, Some((address, len))) => {
            let (named, length) = prefix6(subscriber)?;
            Prefix6 { address, len }.overlaps(Prefix6 { address: named, len: length })
        }
        (None, None) => false,
    };
    Some(is_of_protocol && has_realm && is_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn asked(query: &str) -> TableQuery {
        read_question(&question(query)).expect("a question")
    }

    fn mapping() -> Value {
        json!({
            "subscriber": "10.0.0.5", "external": "203.0.113.1", "ports": "2300",
            "kind": "dynamic", "by": "mapping", "protocol": "udp", "internal": "10.0.0.5:4000",
            "age_s": 1.5,
        })
    }

    fn block() -> Value {
        let counts = json!({ "tcp": 1, "udp": 2, "icmp": 0, "dccp": 0 });
        let rest = json!({ "protocol": "udp", "until": 9.5, "for_s": null });
        json!({
            "subscriber": "10.0.0.5", "external": "203.0.113.1", "ports": "2048-2559",
            "kind": "block", "by": "block", "used": counts, "held": counts, "age_s": null,
            "released_in_s": 7.0, "resting": [rest],
        })
    }

    fn reply(answers: Vec<Value>) -> TableReply {
        let resting = vec![json!({ "protocol": "tcp", "until": null, "for_s": 3.0 })];
        TableReply { searched: true, answers, resting, ..TableReply::default() }
    }

    #[test]
    fn questions_are_queries_of_the_present() {
        let query = "external=203.0.113.1:2300&protocol=udp";
        assert_eq!(asked(query).external_port, Some(2300));
        for bytes in [&b""[..], b"\x01external=203.0.113.1:2300", b"\x02at=5.0", b"\x02\xff"] {
            assert_eq!(read_question(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let written = reply(vec![mapping(), block()]);
        for query in ["external=203.0.113.1:2300&protocol=udp", "subscriber=10.0.0.5"] {
            let read = TableReply::read(&written.write(), &asked(query));
            assert_eq!(read, Some(written.clone()), "{query}");
        }
    }

    #[test]
    fn an_answer_about_anything_else_is_refused() {
        let endpoint = "external=203.0.113.1:2300&protocol=udp";
        let subscriber = "subscriber=10.0.0.5&protocol=udp&realm=homes";
        for (query, key, value) in [
            (endpoint, "external", json!("203.0.113.2")),
            (endpoint, "external", json!(7)),
            (endpoint, "external", Value::Null),
            (endpoint, "ports", json!("2301-2400")),
            (endpoint, "protocol", json!("tcp")),
            (endpoint, "subscriber", Value::Null),
            (endpoint, "age_s", json!("old")),
            (endpoint, "used", json!({ "tcp": -1 })),
            (endpoint, "resting", json!([{ "until": 5.0 }])),
            (subscriber, "subscriber", json!("10.0.0.6")),
            (subscriber, "subscriber", json!("2001:db8::5")),
            (subscriber, "external", json!("nowhere")),
            (subscriber, "protocol", json!("tcp")),
            (subscriber, "realm", json!("offices")),
        ] {
            let asked = asked(query);
            let read = |one: Value| TableReply::read(&reply(vec![one]).write(), &asked);
            assert!(read(mapping()).is_some());
            let mut other = mapping();
            other[key] = value;
            assert_eq!(read(other), None, "{query}, {key}");
        }
        let no_object = reply(vec![json!(1)]).write();
        assert_eq!(TableReply::read(&no_object, &asked(endpoint)), None);
    }

    #[test]
    fn a_subscriber_of_ipv6_is_named_by_a_host_or_a_prefix_of_it() {
        let asked = asked("subscriber=2001:db8:1::5");
        for (named, is_taken) in [
            ("2001:db8:1::5", true),
            ("2001:db8:1::/64", true),
            ("2001:db8:1::6", false),
            ("2001:db8:2::/64", false),
            ("10.0.0.5", false),
        ] {
            let mut answer = mapping();
            answer["subscriber"] = named.into();
            let read = TableReply::read(&reply(vec![answer]).write(), &asked);
            assert_eq!(read.is_some(), is_taken, "{named}");
        }
    }

    proptest! {
        /// A reply with changed, removed and added bytes is refused, or keeps the bounds.
        #[test]
        fn a_damaged_reply_is_refused_or_keeps_the_bounds(
            changes in prop::collection::vec((any::<u16>(), any::<u8>(), 0..3_u8), 1..6),
        ) {
            let mut bytes = reply(vec![mapping(), block()]).write();
            for (place, value, what) in changes {
                let place = usize::from(place) % bytes.len().max(1);
                match what {
                    0 => bytes.insert(place.min(bytes.len()), value),
                    1 => drop(bytes.drain(place..bytes.len().min(place + 1))),
                    _ => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte = value),
                }
            }
            check(TableReply::read(&bytes, &asked("external=203.0.113.1:2300")));
        }

        #[test]
        fn bytes_that_are_no_questions_are_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Some(asked) = read_question(&bytes) {
                prop_assert_eq!((bytes[0], asked.at), (VERSION, None));
            }
        }
    }

    /// Checks the bounds of a reply about an endpoint.
    fn check(reply: Option<TableReply>) {
        let Some(reply) = reply else { return };
        assert!(reply.answers.len() <= MOST_ANSWERS && reply.resting.len() <= MOST_RESTING);
        for answer in &reply.answers {
            assert_eq!(answer["external"], "203.0.113.1");
            for value in answer.as_object().expect("an object").values() {
                let text = value.as_str().unwrap_or_default();
                assert!(text.chars().count() <= 128 && !text.contains(char::is_control));
            }
        }
    }

    #[test]
    fn what_a_hostile_partner_writes_has_bounds() {
        let mut hostile = mapping();
        hostile["kind"] = "\u{1b}[2J\n".repeat(1000).into();
        hostile["age_s"] = json!(1e300);
        hostile["more"] = json!([[[[]]]]);
        let mut all = reply(vec![hostile; 2 * MOST_ANSWERS]);
        all.resting = vec![all.resting[0].clone(); 2 * MOST_RESTING];
        all.reason = Some("\r\n".repeat(10_000));
        let asked = asked("external=203.0.113.1:2300");
        let read = TableReply::read(&all.write(), &asked).expect("a reply");
        assert_eq!((read.answers.len(), read.resting.len()), (MOST_ANSWERS, MOST_RESTING));
        assert_eq!(read.answers[0]["more"], Value::Null);
        assert_eq!(read.reason.as_deref().map(str::len), Some(LONGEST_REASON));
        check(Some(read));
    }
}
