//! The answers of two nodes as one: agreement, disagreement, gaps, and a node that is away.

use super::*;
use natgate_logs::Span;

const NODES: [&str; 2] = ["a", "b"];
const AT: Timestamp = Timestamp(5_000_000_000);

fn reply(subscribers: &[&str], covered: (f64, f64)) -> NodeReply {
    let holder = |subscriber: &&str| {
        json!({
            "subscriber": subscriber, "protocol": "udp", "external": "203.0.113.1",
            "ports": "2300", "since": 2.0, "until": 9.0,
        })
    };
    NodeReply {
        searched: true,
        answers: subscribers.iter().map(holder).collect(),
        covered: vec![Span { from: covered.0, until: covered.1 }],
        reason: subscribers.is_empty().then(|| "nobody had it".to_owned()),
        ..NodeReply::default()
    }
}

/// Subscribers of the answers, each with the node that names it.
fn subscribers(body: &Value) -> Vec<(&str, &str)> {
    let answers = body["answers"].as_array().expect("a list");
    answers
        .iter()
        .map(|answer| {
            let word = |key: &str| answer[key].as_str().expect("a text");
            (word("subscriber"), word("node"))
        })
        .collect()
}

#[test]
fn each_answer_has_its_node_and_the_log_that_covers_the_time() {
    let epoch = SliceOwner {
        slice: 1,
        since: Timestamp(1_000_000_000),
        epoch: 3,
        owner: "b".into(),
        continued: None,
    };
    let own = reply(&[], (1.0, 9.0));
    let other = reply(&["10.0.0.5"], (1.0, 9.0));
    let Response { status, body } = merged(NODES, AT, own, Ok(other), Some(&epoch));
    assert_eq!((status, subscribers(&body)), (200, vec![("10.0.0.5", "b")]));
    assert_eq!(body["doubts"], json!([]));
    assert_eq!(body["not_asked"], Value::Null);
    assert_eq!(body["slice"], json!({"slice": 1, "owner": "b", "epoch": 3, "since": 1.0}));
    assert_eq!(body["nodes"][0]["reason"], "nobody had it");
    assert_eq!(body["nodes"][1]["node"], "b");
}

#[test]
fn one_answer_of_both_nodes_is_given_once() {
    let both = reply(&["10.0.0.5"], (1.0, 9.0));
    let Response { body, .. } = merged(NODES, AT, both.clone(), Ok(both), None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "a")]);
    assert_eq!((&body["doubts"], &body["slice"]), (&json!([]), &Value::Null));
}

#[test]
fn a_mapping_of_the_table_counts_if_no_log_has_it() {
    let mut own = reply(&["10.0.0.5"], (1.0, 9.0));
    own.answers[0]["by"] = "mapping".into();
    own.answers[0]["until"] = Value::Null;
    let other = reply(&["10.0.0.5"], (1.0, 9.0));
    let Response { body, .. } = merged(NODES, AT, own.clone(), Ok(other), None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "b")]);
    let Response { body, .. } = merged(NODES, AT, own, Ok(reply(&[], (1.0, 9.0))), None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "a")]);
    assert_eq!(body["answers"][0]["by"], "mapping");
}

#[test]
fn different_subscribers_are_a_doubt() {
    let (own, other) = (reply(&["10.0.0.5"], (1.0, 9.0)), reply(&["10.0.0.6"], (1.0, 9.0)));
    let Response { body, .. } = merged(NODES, AT, own.clone(), Ok(other.clone()), None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "a"), ("10.0.0.6", "b")]);
    assert_eq!(body["doubts"], json!(["the nodes name different subscribers"]));
    // Another protocol is another endpoint.
    let mut other = other;
    other.answers[0]["protocol"] = "tcp".into();
    let Response { body, .. } = merged(NODES, AT, own, Ok(other), None);
    assert_eq!(body["doubts"], json!([]));
}

#[test]
fn a_log_that_does_not_cover_the_time_is_a_doubt() {
    let (own, other) = (reply(&["10.0.0.5"], (1.0, 9.0)), reply(&[], (6.0, 9.0)));
    let Response { status, body } = merged(NODES, AT, own, Ok(other), None);
    assert_eq!(status, 200);
    assert_eq!(body["doubts"], json!(["the log of node b does not cover that time"]));
}

#[test]
fn a_node_that_cannot_be_asked_is_named_with_the_reason() {
    for (own, status) in [(reply(&["10.0.0.5"], (1.0, 9.0)), 200), (reply(&[], (1.0, 9.0)), 404)] {
        let other = Err("it is not connected".to_owned());
        let response = merged(NODES, AT, own, other, None);
        let body = response.body;
        assert_eq!((response.status, &body["not_asked"]), (status, &json!(["b"])));
        assert_eq!(body["nodes"][1]["reason"], "it is not connected");
        assert_eq!(body["nodes"][1]["searched"], false);
    }
}

#[test]
fn a_gateway_that_is_alone_answers_as_ever() {
    let Response { status, body } = alone(reply(&["10.0.0.5"], (1.0, 9.0)), 200);
    assert_eq!((status, &body["nodes"], &body["doubts"]), (200, &Value::Null, &Value::Null));
    let Response { status, body } = alone(reply(&[], (1.0, 9.0)), 404);
    assert_eq!((status, &body["message"]), (404, &json!("nobody had it")));
    assert_eq!(body["covered"][0]["from"], 1.0);
}
