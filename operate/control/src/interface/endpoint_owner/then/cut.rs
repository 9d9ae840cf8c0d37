//! Holders that a node had when it stopped. The other node may have continued them without a word
//! in either log: neither has a begin of a mapping that is continued.
//!
//! Such a holder is an answer if the first event of the other node's log after the time is its
//! end. It is none if that log has another holder of the endpoint at the time, or an end of one
//! since the holder began. Otherwise it is a doubt. An end in a later run of its own node makes it
//! an answer, but the doubt remains: the other node may have ended the mapping, and made it again.

use super::{is_one, join_since, overlap};
use crate::partner_log::NodeReply;
use natgate_engine::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// Most doubts that are told.
const MOST_DOUBTS: usize = 8;

/// A node, and what it says.
type Node<'n> = (&'n str, &'n NodeReply);

/// Finds the ends of answers that a stop has cut, and adds holders that were cut before the time
/// and continued. Returns doubts about the others.
pub(super) fn settle(answers: &mut Vec<Value>, nodes: [Node<'_>; 2], at: Timestamp) -> Vec<String> {
    let [one, other] = nodes;
    let seconds = at.0 as f64 / 1e9;
    let mut doubts = Vec::new();
    for [node, other] in [[one, other], [other, one]] {
        let own = answers.iter_mut().filter(|answer| answer["node"] == node.0);
        doubts.extend(own.filter_map(|answer| find_end(answer, node, other, seconds)));
    }
    for [node, other] in [[one, other], [other, one]] {
        let cut = node.1.cut.iter();
        doubts.extend(cut.filter_map(|holder| place(answers, holder, node, other, seconds)));
    }
    for answer in answers.iter_mut().filter_map(Value::as_object_mut) {
        answer.remove("cut");
    }
    doubts.sort_unstable();
    doubts.dedup();
    doubts.truncate(MOST_DOUBTS);
    doubts
}

/// Finds the end of an answer if its node stopped after the time. Returns a doubt if the other
/// node's log does not have it, and that node does not name the holder.
fn find_end(answer: &mut Value, node: Node<'_>, other: Node<'_>, at: f64) -> Option<String> {
    let cut = answer["cut"].as_f64()?;
    let end = end_after(at, answer, other.1);
    if let Some(end) = end {
        answer["until"] = end.into();
    }
    let is_named = other.1.answers.iter().any(|named| is_one(named, answer));
    (end.is_none() && !is_named).then(|| doubt(answer, cut, node, other))
}

/// Adds a holder that was cut before the time to the answers, if a log has its end. Returns a doubt
/// if that is not sure.
fn place(
    answers: &mut Vec<Value>,
    holder: &Value,
    node: Node<'_>,
    other: Node<'_>,
    at: f64,
) -> Option<String> {
    let cut = holder["cut"].as_f64()?;
    if let Some(known) = answers.iter_mut().find(|known| is_one(known, holder)) {
        if known["since"].as_f64().is_none_or(|since| since <= cut) {
            join_since(known, holder);
        }
        return None;
    }
    // The other node may have taken the slice long before the stop.
    let began = holder["since"].as_f64().unwrap_or(cut);
    let has_ended = other.1.ended.iter().any(|ended| {
        let end = ended["until"].as_f64();
        overlap(ended, holder) && end.is_some_and(|end| (began..=at).contains(&end))
    });
    if has_ended || answers.iter().any(|answer| overlap(answer, holder)) {
        return None;
    }
    let theirs = end_after(at, holder, other.1);
    let own = holder["until"].as_f64().filter(|end| *end >= at);
    if let Some(end) = theirs.or(own) {
        let mut answer = holder.clone();
        (answer["until"], answer["node"]) = (end.into(), node.0.into());
        answers.push(answer);
    }
    theirs.is_none().then(|| doubt(holder, cut, node, other))
}

/// The end of a holder after a time, by the other node's log.
fn end_after(time: f64, holder: &Value, other: &NodeReply) -> Option<f64> {
    let theirs = other.ended.iter().filter(|ended| is_one(ended, holder));
    theirs.filter_map(|one| one["until"].as_f64()).filter(|end| *end >= time).reduce(f64::min)
}

fn doubt(holder: &Value, cut: f64, (node, _): Node<'_>, (other, _): Node<'_>) -> String {
    let subscriber = holder["subscriber"].as_str().unwrap_or_default();
    let cut = natgate_logs::shown(Timestamp(0).plus(Duration::from_secs_f64(cut.max(0.0))));
    format!(
        "by the log of node {node}, {subscriber} had it when the node stopped at {cut}, and node \
         {other} may have continued it"
    )
}

#[cfg(test)]
mod tests {
    use super::super::merged;
    use super::*;
    use crate::socket::Response;
    use natgate_logs::Span;
    use serde_json::json;

    const STOPPED: &str = "by the log of node a, 10.0.0.5 had it when the node stopped at \
        1970-01-01T00:00:03.000Z, and node b may have continued it";

    fn holder(subscriber: &str, since: Option<f64>, until: Option<f64>) -> Value {
        json!({
            "subscriber": subscriber, "protocol": "udp", "external": "203.0.113.1",
            "ports": "2300", "since": since, "until": until,
        })
    }

    /// A holder since 1 s that was cut at 3 s.
    fn cut(until: Option<f64>) -> Value {
        let mut holder = holder("10.0.0.5", Some(1.0), until);
        holder["cut"] = 3.0.into();
        holder
    }

    fn reply() -> NodeReply {
        NodeReply {
            searched: true,
            covered: vec![Span { from: 0.0, until: 90.0 }],
            ..NodeReply::default()
        }
    }

    /// The response at node a, at a time.
    fn ask(own: NodeReply, other: NodeReply, seconds: u64) -> Response {
        merged(["a", "b"], Timestamp(seconds * 1_000_000_000), own, Ok(other), None, None)
    }

    /// Subscriber, begin, end and node of each answer.
    fn named(response: &Response) -> Vec<(&str, Option<f64>, Option<f64>, &str)> {
        let answers = response.body["answers"].as_array().expect("a list");
        let mut all = Vec::new();
        for answer in answers {
            assert_eq!(answer["cut"], Value::Null);
            let [since, until] = ["since", "until"].map(|key| answer[key].as_f64());
            all.push((text(answer, "subscriber"), since, until, text(answer, "node")));
        }
        all
    }

    fn text<'v>(answer: &'v Value, key: &str) -> &'v str {
        answer[key].as_str().expect("a text")
    }

    /// Node a stopped, started again, and ended the holding after the slice had come home.
    #[test]
    fn a_cut_holder_whose_end_a_log_has_is_named() {
        let own = NodeReply { cut: vec![cut(Some(9.0))], ..reply() };
        let response = ask(own, reply(), 5);
        assert_eq!(named(&response), [("10.0.0.5", Some(1.0), Some(9.0), "a")]);
        assert_eq!(response.body["doubts"], json!([STOPPED]), "b may have made it again");
        // The other node has ended it, and tells so.
        let other = NodeReply { ended: vec![holder("10.0.0.5", None, Some(7.0))], ..reply() };
        let own = NodeReply { cut: vec![cut(None)], ..reply() };
        let response = ask(own.clone(), other, 5);
        assert_eq!(named(&response), [("10.0.0.5", Some(1.0), Some(7.0), "a")]);
        assert_eq!(response.body["doubts"], json!([]), "both logs have it");
        // The other node names it, too.
        let answers = vec![holder("10.0.0.5", None, Some(7.0))];
        let response = ask(own, NodeReply { answers, ..reply() }, 5);
        assert_eq!(named(&response), [("10.0.0.5", Some(1.0), Some(7.0), "b")]);
        assert_eq!(response.body["doubts"], json!([]));
    }

    #[test]
    fn a_cut_holder_that_may_have_been_continued_is_a_doubt() {
        let own = NodeReply { cut: vec![cut(None)], ..reply() };
        let response = ask(own.clone(), reply(), 5);
        assert_eq!((response.status, named(&response)), (404, vec![]));
        assert_eq!(response.body["doubts"], json!([STOPPED]));
        assert!(text(&response.body, "message").contains(STOPPED), "{}", response.body);
        // An end of another holder after the time says nothing.
        let ended = vec![holder("10.0.0.6", None, Some(7.0))];
        let response = ask(own.clone(), NodeReply { ended, ..reply() }, 5);
        assert_eq!(response.body["doubts"], json!([STOPPED]));
        // Nor does a holder of another protocol.
        let mut of_tcp = holder("10.0.0.6", Some(4.0), None);
        of_tcp["protocol"] = "tcp".into();
        let response = ask(own, NodeReply { answers: vec![of_tcp], ..reply() }, 5);
        let doubts = response.body["doubts"].as_array().expect("a list");
        assert!(named(&response).len() == 1 && doubts.contains(&json!(STOPPED)), "{doubts:?}");
    }

    #[test]
    fn a_cut_holder_that_has_ended_before_the_time_is_none() {
        let own = NodeReply { cut: vec![cut(Some(9.0))], ..reply() };
        for subscriber in ["10.0.0.5", "10.0.0.6"] {
            let ended = vec![holder(subscriber, None, Some(4.0))];
            let response = ask(own.clone(), NodeReply { ended, ..reply() }, 5);
            assert_eq!((response.status, &response.body["doubts"]), (404, &json!([])));
        }
        let answers = vec![holder("10.0.0.6", Some(4.0), Some(8.0))];
        let response = ask(own.clone(), NodeReply { answers, ..reply() }, 5);
        assert_eq!(named(&response), [("10.0.0.6", Some(4.0), Some(8.0), "b")]);
        // Node b took the slice before the stop: the end of any holder since the begin counts.
        let ended = vec![holder("10.0.0.6", None, Some(2.0))];
        let response = ask(own.clone(), NodeReply { ended, ..reply() }, 5);
        assert_eq!((response.status, &response.body["doubts"]), (404, &json!([])));
        let answers = vec![holder("10.0.0.6", Some(2.5), Some(8.0))];
        let response = ask(own.clone(), NodeReply { answers, ..reply() }, 5);
        assert_eq!(named(&response), [("10.0.0.6", Some(2.5), Some(8.0), "b")]);
        assert_eq!(response.body["doubts"], json!([]));
        // An end before the begin does not.
        let ended = vec![holder("10.0.0.6", None, Some(0.5))];
        let response = ask(own, NodeReply { ended, ..reply() }, 5);
        assert_eq!(named(&response).len(), 1);
    }

    /// The question is about a time before the stop.
    #[test]
    fn the_end_of_a_holder_that_a_stop_cut_is_not_the_stop() {
        let own = NodeReply { answers: vec![cut(None)], ..reply() };
        let response = ask(own.clone(), reply(), 2);
        assert_eq!(named(&response), [("10.0.0.5", Some(1.0), None, "a")]);
        let doubts = response.body["doubts"].as_array().expect("a list");
        assert!(doubts.contains(&json!(STOPPED)), "{doubts:?}");
        let ended = vec![holder("10.0.0.5", None, Some(7.0))];
        let response = ask(own.clone(), NodeReply { ended, ..reply() }, 2);
        assert_eq!(named(&response), [("10.0.0.5", Some(1.0), Some(7.0), "a")]);
        assert_eq!(response.body["doubts"], json!([]));
        // It lives: the table of the other node has it.
        let mut mapping = holder("10.0.0.5", Some(1.0), None);
        mapping["by"] = "mapping".into();
        let response = ask(own, NodeReply { answers: vec![mapping], ..reply() }, 2);
        assert_eq!(named(&response), [("10.0.0.5", Some(1.0), None, "a")]);
        assert_eq!(response.body["doubts"], json!([]));
    }

    /// Both nodes tell an end: the earlier one is that of the holding.
    #[test]
    fn the_first_end_after_a_stop_counts() {
        let own = NodeReply { answers: vec![cut(Some(9.0))], ..reply() };
        let answers = vec![holder("10.0.0.5", None, Some(7.0))];
        let response = ask(own, NodeReply { answers, ..reply() }, 2);
        assert_eq!(named(&response), [("10.0.0.5", Some(1.0), Some(7.0), "a")]);
    }
}
