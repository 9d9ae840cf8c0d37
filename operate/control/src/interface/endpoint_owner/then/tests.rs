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
    let Response { status, body } = merged(NODES, AT, own, Ok(other), Some(&epoch), None);
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
    let Response { body, .. } = merged(NODES, AT, both.clone(), Ok(both), None, None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "a")]);
    assert_eq!((&body["doubts"], &body["slice"]), (&json!([]), &Value::Null));
}

#[test]
fn a_mapping_of_the_table_counts_if_no_log_has_it() {
    let mut own = reply(&["10.0.0.5"], (1.0, 9.0));
    own.answers[0]["by"] = "mapping".into();
    own.answers[0]["until"] = Value::Null;
    let other = reply(&["10.0.0.5"], (1.0, 9.0));
    let Response { body, .. } = merged(NODES, AT, own.clone(), Ok(other), None, None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "b")]);
    let Response { body, .. } = merged(NODES, AT, own, Ok(reply(&[], (1.0, 9.0))), None, None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "a")]);
    assert_eq!(body["answers"][0]["by"], "mapping");
}

#[test]
fn different_subscribers_are_a_doubt() {
    let (own, other) = (reply(&["10.0.0.5"], (1.0, 9.0)), reply(&["10.0.0.6"], (1.0, 9.0)));
    let Response { body, .. } = merged(NODES, AT, own.clone(), Ok(other.clone()), None, None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "a"), ("10.0.0.6", "b")]);
    assert_eq!(body["doubts"], json!(["the nodes name different subscribers"]));
    // Another protocol is another endpoint.
    let mut other = other;
    other.answers[0]["protocol"] = "tcp".into();
    let Response { body, .. } = merged(NODES, AT, own, Ok(other), None, None);
    assert_eq!(body["doubts"], json!([]));
}

#[test]
fn clocks_that_differ_are_a_doubt() {
    let both = reply(&["10.0.0.5"], (1.0, 9.0));
    let clocks = Some("the clocks of the nodes differ by 3.2 s now".to_owned());
    let Response { body, .. } = merged(NODES, AT, both.clone(), Ok(both), None, clocks);
    assert_eq!(body["doubts"], json!(["the clocks of the nodes differ by 3.2 s now"]));
}

#[test]
fn a_log_that_does_not_cover_the_time_is_a_doubt() {
    let (own, other) = (reply(&["10.0.0.5"], (1.0, 9.0)), reply(&[], (6.0, 9.0)));
    let Response { status, body } = merged(NODES, AT, own, Ok(other), None, None);
    assert_eq!(status, 200);
    assert_eq!(body["doubts"], json!(["the log of node b does not cover that time"]));
}

#[test]
fn a_node_that_cannot_be_asked_is_named_with_the_reason() {
    for (own, status) in [(reply(&["10.0.0.5"], (1.0, 9.0)), 200), (reply(&[], (1.0, 9.0)), 404)] {
        let other = Err("it is not connected".to_owned());
        let response = merged(NODES, AT, own, other, None, None);
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

/// After a planned move the former owner's log has begins of mappings whose ends the new owner
/// logs.
#[test]
fn a_holder_that_only_the_former_owner_names_is_a_doubt() {
    let owner = |name: &str| SliceOwner {
        slice: 0,
        since: Timestamp(3_000_000_000),
        epoch: 2,
        owner: name.into(),
        continued: None,
    };
    let mut open = reply(&["10.0.0.5"], (1.0, 9.0));
    open.answers[0]["until"] = Value::Null;
    let nobody = reply(&[], (1.0, 9.0));
    let closed = reply(&["10.0.0.5"], (1.0, 9.0));
    let doubts = |own: &NodeReply, other: &NodeReply, owner: Option<SliceOwner>| {
        let merged = merged(NODES, AT, own.clone(), Ok(other.clone()), owner.as_ref(), None);
        merged.body["doubts"].as_array().expect("a list").len()
    };
    assert_eq!(doubts(&open, &nobody, Some(owner("b"))), 1);
    assert_eq!(doubts(&nobody, &open, Some(owner("a"))), 1);
    assert_eq!(doubts(&open, &nobody, Some(owner("a"))), 0);
    assert_eq!(doubts(&closed, &nobody, Some(owner("b"))), 1, "the end may be another's");
    assert_eq!(doubts(&closed, &nobody, Some(owner("a"))), 0);
    assert_eq!(doubts(&closed, &nobody, None), 0);
    assert_eq!(doubts(&open, &nobody, None), 1, "the owner is not known");
    assert_eq!(doubts(&open, &open, Some(owner("b"))), 0, "both name it");
    let mut in_table = open.clone();
    in_table.answers[0]["by"] = "mapping".into();
    assert_eq!(doubts(&open, &in_table, Some(owner("b"))), 0, "the owner's table has it");
}

#[test]
fn a_holding_of_both_nodes_has_the_times_of_both() {
    let (mut own, mut other) = (reply(&["10.0.0.5"], (1.0, 9.0)), reply(&["10.0.0.5"], (1.0, 9.0)));
    own.answers[0]["until"] = Value::Null;
    other.answers[0]["since"] = json!(2.5);
    let Response { body, .. } = merged(NODES, AT, own, Ok(other), None, None);
    assert_eq!(subscribers(&body), [("10.0.0.5", "a")]);
    assert_eq!(
        (&body["answers"][0]["since"], &body["answers"][0]["until"]),
        (&json!(2.0), &json!(9.0))
    );
}

/// What a node has continued counts while it owns the slice, and not what it continued before it
/// had lost the slice.
#[test]
fn only_the_owner_at_the_time_has_continued_mappings() {
    let owner = |since, name: &str, continued| SliceOwner {
        slice: 0,
        since: Timestamp(since),
        epoch: 1,
        owner: name.into(),
        continued,
    };
    let all = [
        owner(10, "a", Some(5)),
        owner(15, "a", Some(0)),
        owner(20, "b", None),
        owner(40, "a", Some(1)),
    ];
    for (at, inherited, away, inherits, lost) in [
        (5, None, None, Some(10), Some(20)),
        (15, Some(10), None, Some(40), Some(20)),
        (20, None, Some(20), Some(40), None),
        (30, None, Some(20), Some(40), None),
        (50, Some(40), None, None, None),
    ] {
        let [inherited, away, inherits, lost] =
            [inherited, away, inherits, lost].map(|time: Option<u64>| time.map(Timestamp));
        let expected = Tenure { is_of_pair: true, inherited, away, inherits, lost };
        assert_eq!(tenure(&all, "a", Timestamp(at)), expected, "at {at}");
    }
    let unknown = Tenure { is_of_pair: true, ..Tenure::default() };
    assert_eq!(tenure(&[], "a", Timestamp(9)), unknown);
}

#[test]
fn a_log_that_names_one_protocol_leaves_the_others_to_the_table() {
    let of = |protocol: &str| json!({"subscriber": "10.0.0.5", "protocol": protocol});
    let log = [of("tcp")];
    assert!(is_open(&[], Some(17)) && is_open(&[], None));
    assert!(!is_open(&log, Some(6)), "the question is about its protocol");
    assert!(is_open(&log, None));
    assert!(!is_open(&[json!({"subscriber": "10.0.0.5"})], None), "a block has all protocols");
    assert_eq!(beside_log(vec![of("tcp"), of("udp")], &log), [of("udp")]);
    assert_eq!(beside_log(vec![of("udp")], &[]), [of("udp")]);
}
