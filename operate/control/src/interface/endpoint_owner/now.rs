//! The present owner of an external endpoint, or all that a subscriber has, at a node of a pair:
//! what its own tables say, and what the other node's say. The table of a node has copies of the
//! other node's mappings, but not of those of the last seconds.
//!
//! The reply of the owner of the endpoint's slice comes first. An answer that both nodes give
//! appears once.

use super::{Answer, Interface, look_up, respond};
use crate::interface::partner_table::{TableReply, question};
use crate::interface::query::TableQuery;
use crate::socket::Response;
use natgate_gateway::fleet::SliceStatus;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Time for the other node's reply, in addition to the time that this node's tables took.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most clients for which the other node is asked at a time: they keep other requests waiting.
const MOST_ASKING: usize = 2;

/// Clients for which the other node is asked now.
#[derive(Debug)]
pub(in crate::interface) struct Asking(Semaphore);

impl Default for Asking {
    fn default() -> Self {
        Self(Semaphore::new(MOST_ASKING))
    }
}

/// Finds what the tables of the gateway say, and those of the other node of a pair. `query`: that
/// of the client, which the other node gets.
pub(super) fn find_now(interface: &Interface, asked: &TableQuery, query: &str) -> Answer {
    let began = Instant::now();
    let own = look_up(interface, asked)?;
    let settings = interface.settings();
    let Some(fleet) = &settings.fleet else { return Ok(respond(asked, own)) };
    let latest = Instant::now() + began.elapsed() + PATIENCE;
    let other = ask_partner(interface, asked, query, latest);
    let names = [&fleet.node[..], &fleet.partner.node];
    let owner = owner(interface, asked);
    Ok(joined(names, asked, own, other, owner.as_deref()))
}

/// The other node's reply, or why there is none, a clause about the node.
fn ask_partner(
    interface: &Interface,
    asked: &TableQuery,
    query: &str,
    latest: Instant,
) -> Result<TableReply, String> {
    let pair = interface.pair.as_ref().ok_or("it cannot be asked")?;
    let _permit = interface.asking.0.try_acquire();
    let _permit = _permit.map_err(|_| "others are asking it; ask again in a moment")?;
    let is_late = || Instant::now() >= latest;
    let bytes = (pair.ask)(question(query), &|| !is_late());
    let bytes = bytes.map_err(|reason| match is_late() {
        true => "its answer took too long".to_owned(),
        false => reason,
    })?;
    let reply = TableReply::read(&bytes, asked).ok_or("its answer is malformed")?;
    match reply.searched {
        true => Ok(reply),
        false => Err(reply.reason.unwrap_or_else(|| "it does not answer".to_owned())),
    }
}

/// The owner of the slice of the endpoint in question, if this node knows it.
fn owner(interface: &Interface, asked: &TableQuery) -> Option<String> {
    let address = Ipv4Addr::from_bits(asked.external?.first());
    let state = (interface.pair.as_ref()?.state)()?;
    let has = |slice: &SliceStatus| slice.addresses.iter().any(|range| range.contains(address));
    state.slices.into_iter().find(has)?.owner
}

/// The response of a pair whose nodes have names: this one, and the other. `owner`: the node that
/// owns the slice, if it is known.
fn joined(
    [this, partner]: [&str; 2],
    asked: &TableQuery,
    own: TableReply,
    other: Result<TableReply, String>,
    owner: Option<&str>,
) -> Response {
    let mut nodes = vec![json!({ "node": this, "searched": true })];
    let (other, not_asked) = match other {
        Ok(reply) => {
            nodes.push(json!({ "node": partner, "searched": true }));
            (reply, None)
        }
        Err(reason) => {
            nodes.push(json!({ "node": partner, "searched": false, "reason": reason }));
            (TableReply::default(), Some(partner))
        }
    };
    let is_of_endpoint = asked.external.is_some();
    let mut doubts = Vec::new();
    if is_of_endpoint && differ(&own.answers, &other.answers) {
        doubts.push("the nodes name different subscribers".to_owned());
    }
    let is_of_partner = owner == Some(partner);
    let (first, second) = if is_of_partner { (&other, &own) } else { (&own, &other) };
    if let Some(owner) = owner.filter(|_| is_of_endpoint && first.searched)
        && lacks_mapping(&first.answers, &second.answers)
    {
        doubts.push(format!("node {owner}, which owns the slice, has no such mapping"));
    }
    // Both nodes have one configuration, so one reason is enough.
    let reason = own.reason.clone();
    let mut replies = [(this, own), (partner, other)];
    if is_of_partner {
        replies.reverse();
    }
    let mut response = respond(asked, TableReply { reason, ..merged(asked, replies) });
    response.body["nodes"] = nodes.into();
    response.body["doubts"] = doubts.into();
    if let Some(name) = not_asked {
        response.body["not_asked"] = json!([name]);
    }
    response
}

/// The replies of nodes with names as one; the first reply leads.
fn merged(asked: &TableQuery, replies: [(&str, TableReply); 2]) -> TableReply {
    let mut all = TableReply::default();
    for (node, reply) in replies {
        for mut answer in reply.answers {
            if !all.answers.iter().any(|known| is_same(known, &answer)) {
                answer["node"] = node.into();
                all.answers.push(answer);
            }
        }
        for rest in reply.resting {
            if all.resting.iter().all(|known| known["protocol"] != rest["protocol"]) {
                all.resting.push(rest);
            }
        }
        all.more |= reply.more;
    }
    if asked.external.is_none() {
        return TableReply { resting: Vec::new(), ..all };
    }
    drop_general(&mut all.answers);
    // A port that a mapping has is not in hold-down.
    let has = |answer: &Value, rest: &Value| {
        answer["by"] == "mapping" && answer["protocol"] == rest["protocol"]
    };
    all.resting.retain(|rest| !all.answers.iter().any(|answer| has(answer, rest)));
    all
}

/// True for one answer of both nodes: ages differ, because the nodes learned of it at different
/// times.
fn is_same(known: &Value, answer: &Value) -> bool {
    let keys = ["subscriber", "realm", "protocol", "internal", "external", "ports", "kind"];
    keys.iter().all(|key| known[key] == answer[key])
}

/// True if two answers name one subscriber.
fn is_one(one: &Value, other: &Value) -> bool {
    ["subscriber", "realm"].iter().all(|key| one[key] == other[key])
}

/// Drops answers if another one of the same subscriber says more: a mapping says more than a block,
/// and a block more than the configuration.
fn drop_general(answers: &mut Vec<Value>) {
    let rank = |answer: &Value| match answer["by"].as_str() {
        Some("mapping") => 0,
        Some("block") => 1,
        _ => 2,
    };
    let all = answers.clone();
    answers.retain(|answer| {
        let is_better = |other: &&Value| {
            let has_protocol =
                answer["protocol"].is_null() || answer["protocol"] == other["protocol"];
            rank(other) < rank(answer) && has_protocol && is_one(other, answer)
        };
        !all.iter().any(|other| is_better(&other))
    });
}

/// True if the second node has a mapping of a protocol for which the owner of the slice has none.
/// The mapping may be a copy of one that has just ended.
fn lacks_mapping(owner: &[Value], second: &[Value]) -> bool {
    let is_mapping = |answer: &&Value| answer["by"] == "mapping";
    second
        .iter()
        .filter(is_mapping)
        .any(|copy| !owner.iter().filter(is_mapping).any(|own| own["protocol"] == copy["protocol"]))
}

/// True if two nodes name different subscribers for a protocol. An answer without a protocol is for
/// all protocols that no other answer of its node has.
fn differ(one: &[Value], other: &[Value]) -> bool {
    let of = |answers: &[Value], protocol: &Value| -> Vec<Value> {
        let with = |protocol: &Value| -> Vec<Value> {
            answers.iter().filter(|answer| answer["protocol"] == *protocol).cloned().collect()
        };
        let named = with(protocol);
        if named.is_empty() { with(&Value::Null) } else { named }
    };
    one.iter().chain(other).any(|answer| {
        let [one, other] = [one, other].map(|answers| of(answers, &answer["protocol"]));
        let lacks = |some: &[Value], one: &Value| !some.iter().any(|known| is_one(known, one));
        let is_known = !one.is_empty() && !other.is_empty();
        is_known
            && (one.iter().any(|it| lacks(&other, it)) || other.iter().any(|it| lacks(&one, it)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [&str; 2] = ["a", "b"];

    fn asked(query: &str) -> TableQuery {
        TableQuery::parse(Some(query), &["external", "protocol", "subscriber"]).expect("a query")
    }

    fn endpoint() -> TableQuery {
        asked("external=203.0.113.1:2300")
    }

    fn mapping(subscriber: &str, protocol: &str, age: f64) -> Value {
        json!({
            "subscriber": subscriber, "external": "203.0.113.1", "ports": "2300",
            "kind": "dynamic", "by": "mapping", "protocol": protocol, "age_s": age,
            "internal": format!("{subscriber}:4000"),
        })
    }

    /// A block, or a static mapping of TCP.
    fn other(by: &str, subscriber: &str) -> Value {
        let mut answer = json!({
            "subscriber": subscriber, "external": "203.0.113.1", "kind": by, "by": by,
            "ports": "2048-2559",
        });
        if by == "static" {
            (answer["protocol"], answer["ports"]) = ("tcp".into(), "2300".into());
        }
        answer
    }

    fn reply(answers: &[Value]) -> TableReply {
        let reason = answers.is_empty().then(|| "nobody has it".to_owned());
        let answers = answers.to_vec();
        TableReply { searched: true, answers, reason, ..TableReply::default() }
    }

    /// The answers: source, subscriber and node of each.
    fn named(body: &Value) -> Vec<[&str; 3]> {
        let answers = body["answers"].as_array().expect("a list");
        let of = |answer| ["by", "subscriber", "node"].map(|key| text(answer, key));
        answers.iter().map(of).collect()
    }

    fn text<'v>(answer: &'v Value, key: &str) -> &'v str {
        answer[key].as_str().expect("a text")
    }

    fn join(own: &[Value], other: &[Value]) -> Value {
        let Response { status, body } =
            joined(NODES, &endpoint(), reply(own), Ok(reply(other)), None);
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["not_asked"], Value::Null);
        body
    }

    #[test]
    fn a_mapping_of_both_nodes_appears_once_and_the_owner_of_the_slice_leads() {
        let replies = || {
            let copy = mapping("10.0.0.5", "udp", 3.0);
            (reply(&[mapping("10.0.0.5", "udp", 5.0)]), Ok(reply(&[copy])))
        };
        for (node, age) in [("a", 5.0), ("b", 3.0)] {
            let (own, other) = replies();
            let Response { status, body } = joined(NODES, &endpoint(), own, other, Some(node));
            assert_eq!((status, named(&body)), (200, vec![["mapping", "10.0.0.5", node]]));
            assert_eq!((&body["answers"][0]["age_s"], &body["doubts"]), (&json!(age), &json!([])));
        }
    }

    #[test]
    fn a_mapping_that_only_the_other_node_has_is_named() {
        let body = join(&[], &[mapping("10.0.0.5", "udp", 0.1)]);
        assert_eq!(named(&body), [["mapping", "10.0.0.5", "b"]]);
        // It says more than the block of the same subscriber does.
        let body = join(&[other("block", "10.0.0.5")], &[mapping("10.0.0.5", "udp", 0.1)]);
        assert_eq!(named(&body), [["mapping", "10.0.0.5", "b"]]);
        assert_eq!(body["doubts"], json!([]));
    }

    /// The owner's mapping may have ended a moment ago.
    #[test]
    fn a_copy_that_the_owner_of_the_slice_does_not_have_is_a_doubt() {
        let copy = || reply(&[mapping("10.0.0.5", "udp", 9.0)]);
        for (owner, is_doubtful) in [(Some("a"), true), (Some("b"), false), (None, false)] {
            let own = reply(&[other("static", "10.0.0.6")]);
            let Response { body, .. } = joined(NODES, &endpoint(), own, Ok(copy()), owner);
            let doubts = body["doubts"].as_array().expect("a list");
            assert_eq!(doubts.len(), usize::from(is_doubtful), "{owner:?}");
        }
    }

    #[test]
    fn different_subscribers_of_one_protocol_are_a_doubt() {
        let (udp, tcp) = (mapping("10.0.0.5", "udp", 1.0), mapping("10.0.0.6", "tcp", 1.0));
        let (block, fixed) = (other("block", "10.0.0.5"), other("static", "10.0.0.6"));
        let of_another = mapping("10.0.0.7", "udp", 1.0);
        for (own, partner, is_doubtful) in [
            (vec![udp.clone()], vec![of_another.clone()], true),
            (vec![block.clone()], vec![of_another], true),
            (vec![udp.clone()], vec![tcp.clone()], false),
            (vec![block.clone()], vec![tcp], true),
            // The block has all other protocols.
            (vec![fixed.clone()], vec![block.clone(), fixed.clone()], false),
            (vec![block, fixed.clone()], vec![udp, fixed], false),
        ] {
            let body = join(&own, &partner);
            let doubts = body["doubts"].as_array().expect("a list");
            assert_eq!(doubts.len(), usize::from(is_doubtful), "{body}");
            if is_doubtful {
                assert_eq!(named(&body).len(), 2, "{body}");
            }
        }
    }

    #[test]
    fn a_node_that_is_not_asked_is_named_with_the_reason() {
        for (own, status) in [(vec![mapping("10.0.0.5", "udp", 1.0)], 200), (vec![], 404)] {
            let other = Err("it is not connected".to_owned());
            let response = joined(NODES, &endpoint(), reply(&own), other, None);
            let body = response.body;
            assert_eq!((response.status, &body["not_asked"]), (status, &json!(["b"])));
            assert_eq!(body["nodes"][1]["reason"], "it is not connected");
        }
    }

    #[test]
    fn a_port_that_rests_at_the_other_node_is_told() {
        let rest = |protocol: &str| json!({ "protocol": protocol, "until": 9.0, "for_s": 7.0 });
        let resting = TableReply { resting: vec![rest("udp"), rest("tcp")], ..reply(&[]) };
        let Response { status, body } =
            joined(NODES, &endpoint(), reply(&[]), Ok(resting.clone()), None);
        assert_eq!(status, 404);
        assert!(text(&body, "message").contains("hold-down for udp, 7 s more, tcp"), "{body}");
        let own = reply(&[mapping("10.0.0.5", "udp", 1.0)]);
        let Response { body, .. } = joined(NODES, &endpoint(), own, Ok(resting), None);
        assert_eq!(body["resting"], json!([rest("tcp")]));
    }

    #[test]
    fn all_that_a_subscriber_has_at_either_node_is_named() {
        let (asked, block) = (asked("subscriber=10.0.0.5"), other("block", "10.0.0.5"));
        let own = reply(&[block.clone(), mapping("10.0.0.5", "udp", 5.0)]);
        let (tcp, udp) = (mapping("10.0.0.5", "tcp", 0.1), mapping("10.0.0.5", "udp", 3.0));
        let other = TableReply { more: true, ..reply(&[block, tcp, udp]) };
        let Response { status, body } = joined(NODES, &asked, own, Ok(other), None);
        let expected = [
            ["block", "10.0.0.5", "a"],
            ["mapping", "10.0.0.5", "a"],
            ["mapping", "10.0.0.5", "b"],
        ];
        assert_eq!((status, named(&body)), (200, expected.to_vec()));
        assert_eq!((&body["more"], &body["doubts"]), (&json!(true), &json!([])));
    }
}
