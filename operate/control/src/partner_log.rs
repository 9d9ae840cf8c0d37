//! A question about an earlier time, as one node of a pair asks it of the other, and the reply:
//! what the other node's log, and its table, say about an external endpoint.
//!
//! A question has 17 bytes: the version 1; 1 and a protocol, or two zeros for all protocols; the
//! external address; its port and the time (nanoseconds since 1970), both in little-endian order.
//! A reply is a JSON object. Unknown fields are left out, so that later versions may add some.
//!
//! The partner is authenticated and nevertheless not trusted: a reply names holders of the endpoint
//! in question or is refused, has bounded lists, texts and numbers, and no control characters.

use natgate_engine::Timestamp;
use natgate_logs::{Coverage, InForceThen, LogGap, Span, protocol};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::Ipv4Addr;

/// Sends a question to the partner, and returns its reply. The function that is passed returns
/// false when the reply is needed no longer. An error is the reason, as a clause about the partner.
pub type AskPartner =
    dyn Fn(Vec<u8>, &dyn Fn() -> bool) -> Result<Vec<u8>, String> + Send + Sync + 'static;

/// First byte of a question.
const VERSION: u8 = 1;

/// Most holders in a reply.
pub(crate) const MOST_ANSWERS: usize = 1000;

/// Most spans and gaps in a reply.
const MOST_SPANS: usize = 64;

/// Longest text of a field, and of the reason, characters.
const LONGEST_TEXT: usize = 128;
pub(crate) const LONGEST_REASON: usize = 2000;

/// Seconds by which times of a holder may miss the time of the question: they are rounded, and the
/// clocks of the nodes differ.
const TOLERANCE: f64 = 1.0;

/// Latest time in a reply, seconds since 1970, and longest age.
const LATEST: f64 = 1e10;

/// Fields of a holder: texts, and numbers.
const TEXTS: [&str; 10] = [
    "subscriber",
    "realm",
    "protocol",
    "internal",
    "external",
    "ports",
    "remote",
    "pool",
    "kind",
    "by",
];
const TIMES: [&str; 3] = ["since", "until", "cut"];

/// A question about an external endpoint at an earlier time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastQuestion {
    /// External address and port.
    pub external: (Ipv4Addr, u16),
    /// IP protocol; `None`: all.
    pub protocol: Option<u8>,
    /// The time.
    pub at: Timestamp,
}

impl PastQuestion {
    /// The question as bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.protocol.is_some())];
        bytes.push(self.protocol.unwrap_or_default());
        bytes.extend(self.external.0.octets());
        bytes.extend(self.external.1.to_le_bytes());
        bytes.extend(self.at.0.to_le_bytes());
        bytes
    }

    /// Reads a question; `None` if the bytes are none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 17] = bytes.try_into().ok()?;
        let [VERSION, has_protocol @ 0..=1, protocol, a, b, c, d, low, high, time @ ..] = *bytes
        else {
            return None;
        };
        let protocol = match (has_protocol, protocol) {
            (0, 0) => None,
            (0, _) => return None,
            _ => Some(protocol),
        };
        let external = (Ipv4Addr::new(a, b, c, d), u16::from_le_bytes([low, high]));
        Some(Self { external, protocol, at: Timestamp(u64::from_le_bytes(time)) })
    }
}

/// What one node says about an external endpoint at an earlier time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReply {
    /// True if the node has searched its log.
    pub searched: bool,
    /// Holders: objects with texts and times, as `GET /v1/who` has them.
    #[serde(default)]
    pub answers: Vec<Value>,
    /// Holders by the configuration in force now, if the one of that time is not known.
    #[serde(default)]
    pub now: Vec<Value>,
    /// Holders that had the endpoint when the node stopped before the time, which has `cut`. They
    /// are no answers: the other node may have continued them.
    #[serde(default)]
    pub cut: Vec<Value>,
    /// The latest holders that ended before the time, and holders that the node continued after the
    /// time, with their ends.
    #[serde(default)]
    pub ended: Vec<Value>,
    /// Spans that the log covers.
    #[serde(default)]
    pub covered: Vec<Span>,
    /// Gaps of the log.
    #[serde(default)]
    pub gaps: Vec<LogGap>,
    /// Why no holder is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl NodeReply {
    /// The reply as bytes.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the reply to a question; `None` if it is damaged or answers another question.
    pub fn read(bytes: &[u8], question: &PastQuestion) -> Option<Self> {
        let mut reply: Self = serde_json::from_slice(bytes).ok()?;
        reply.answers = holders(&reply.answers, question)?;
        if !reply.answers.iter().all(|answer| had_then(answer, question)) {
            return None;
        }
        reply.now = holders(&reply.now, question)?;
        reply.cut = holders(&reply.cut, question)?;
        reply.ended = holders(&reply.ended, question)?;
        let is_cut = |holder: &Value| had_then(holder, question) && holder["cut"].is_number();
        let has_ended = |holder: &Value| is_of(holder, question) && holder["until"].is_number();
        if !(reply.cut.iter().all(is_cut) && reply.ended.iter().all(has_ended)) {
            return None;
        }
        reply.covered.truncate(MOST_SPANS);
        reply.gaps.truncate(MOST_SPANS);
        let spans = reply.covered.iter_mut().flat_map(|span| [&mut span.from, &mut span.until]);
        let gaps = reply.gaps.iter_mut().flat_map(|gap| [&mut gap.from, &mut gap.until]);
        spans.chain(gaps).for_each(|time| *time = time.clamp(0.0, LATEST));
        reply.reason = reply.reason.map(|reason| printable(&reason, LONGEST_REASON));
        Some(reply)
    }

    /// The part of the time that the log covers.
    pub fn coverage(&self) -> Coverage {
        let (covered, gaps) = (self.covered.clone(), self.gaps.clone());
        Coverage { covered, gaps, in_force: InForceThen::Uncovered }
    }

    /// True if the log covers a time.
    pub fn covers(&self, at: Timestamp) -> bool {
        let seconds = at.0 as f64 / 1e9;
        self.covered.iter().any(|span| span.from <= seconds && seconds <= span.until)
    }
}

/// The holders of a reply with their known fields; `None` if one is not about the endpoint.
fn holders(answers: &[Value], question: &PastQuestion) -> Option<Vec<Value>> {
    let holder = |answer: &Value| {
        let answer = answer.as_object()?;
        let mut holder = known(answer, &TIMES)?;
        if let Some(missing) = answer.get("missing") {
            holder.insert("missing".to_owned(), missing.as_u64()?.into());
        }
        let text = |key: &str| holder.get(key).and_then(Value::as_str);
        let has_port = text("ports").is_none_or(|ports| includes(ports, question.external.1));
        let is_of = text("external")? == question.external.0.to_string() && has_port;
        (is_of && text("subscriber").is_some()).then_some(Value::Object(holder))
    };
    answers.iter().take(MOST_ANSWERS).map(holder).collect()
}

/// The known texts of an answer, and its `times`; `None` if one has another type.
pub(crate) fn known(answer: &Map<String, Value>, times: &[&str]) -> Option<Map<String, Value>> {
    let mut known = Map::new();
    for key in TEXTS {
        if let Some(value) = answer.get(key).filter(|value| !value.is_null()) {
            known.insert(key.to_owned(), printable(value.as_str()?, LONGEST_TEXT).into());
        }
    }
    for key in times {
        match answer.get(*key) {
            Some(Value::Null) => drop(known.insert((*key).to_owned(), Value::Null)),
            Some(time) => {
                let time = time.as_f64()?.clamp(0.0, LATEST);
                known.insert((*key).to_owned(), time.into());
            }
            None => {}
        }
    }
    Some(known)
}

/// True if a holder had the protocol of the question.
fn is_of(answer: &Value, question: &PastQuestion) -> bool {
    let name = answer["protocol"].as_str();
    question.protocol.is_none_or(|number| name.is_none_or(|name| name == protocol(number)))
}

/// True if a holder had the endpoint at the time of the question, and for its protocol.
fn had_then(answer: &Value, question: &PastQuestion) -> bool {
    let at = question.at.0 as f64 / 1e9;
    is_of(answer, question)
        && answer["since"].as_f64().is_none_or(|since| since <= at + TOLERANCE)
        && answer["until"].as_f64().is_none_or(|until| at <= until + TOLERANCE)
}

/// True if a text as "2300" or "2048-2559" includes a port.
pub(crate) fn includes(ports: &str, port: u16) -> bool {
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) => (first..=last).contains(&port),
        _ => false,
    }
}

/// A text of the partner: short, and without control characters.
pub(crate) fn printable(text: &str, most: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_logs::Reason;
    use proptest::prelude::*;
    use serde_json::json;

    const QUESTION: PastQuestion = PastQuestion {
        external: (Ipv4Addr::new(203, 0, 113, 1), 2300),
        protocol: Some(17),
        at: Timestamp(5_000_000_000),
    };

    fn reply() -> NodeReply {
        NodeReply {
            searched: true,
            answers: vec![json!({
                "subscriber": "10.0.0.5", "protocol": "udp", "internal": "10.0.0.5:4000",
                "external": "203.0.113.1", "ports": "2048-2559", "since": 4.5, "until": null,
                "missing": 3,
            })],
            now: Vec::new(),
            cut: vec![json!({
                "subscriber": "10.0.0.6", "protocol": "udp", "internal": "10.0.0.6:4000",
                "external": "203.0.113.1", "ports": "2300", "since": 1.5, "until": null,
                "cut": 3.5,
            })],
            ended: vec![json!({
                "subscriber": "10.0.0.7", "protocol": "udp", "internal": "10.0.0.7:4000",
                "external": "203.0.113.1", "ports": "2300", "since": null, "until": 2.5,
            })],
            covered: vec![Span { from: 1.0, until: 9.5 }],
            gaps: vec![LogGap { from: 2.0, until: 3.0, reason: Reason::EventsLost, lost: Some(3) }],
            reason: None,
        }
    }

    proptest! {
        #[test]
        fn a_question_is_read_as_it_was_written_and_bytes_have_one_meaning(
            address in any::<u32>(), port in any::<u16>(), protocol in any::<Option<u8>>(),
            at in any::<u64>(), place in 0..17_usize, value in any::<u8>(),
        ) {
            let external = (Ipv4Addr::from_bits(address), port);
            let question = PastQuestion { external, protocol, at: Timestamp(at) };
            let mut bytes = question.write();
            prop_assert_eq!(PastQuestion::read(&bytes), Some(question));
            prop_assert_eq!(PastQuestion::read(&bytes[..16]), None);
            prop_assert_eq!(PastQuestion::read(&[&bytes[..], &[0]].concat()), None);
            bytes[place] = value;
            if let Some(other) = PastQuestion::read(&bytes) {
                prop_assert_eq!(other.write(), bytes);
            }
        }

        /// A reply with changed, removed and added bytes is refused, or keeps the bounds.
        #[test]
        fn a_damaged_reply_is_refused_or_keeps_the_bounds(
            changes in prop::collection::vec((any::<u16>(), any::<u8>(), 0..3_u8), 1..6),
        ) {
            let mut bytes = reply().write();
            for (place, value, what) in changes {
                let place = usize::from(place) % bytes.len().max(1);
                match what {
                    0 => bytes.insert(place.min(bytes.len()), value),
                    1 => drop(bytes.drain(place..bytes.len().min(place + 1))),
                    _ => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte = value),
                }
            }
            check(NodeReply::read(&bytes, &QUESTION));
        }

        #[test]
        fn texts_that_are_no_replies_are_refused(text in "\\PC{0,200}") {
            check(NodeReply::read(text.as_bytes(), &QUESTION));
        }
    }

    /// Checks the bounds of a reply, and that it is about the question.
    fn check(reply: Option<NodeReply>) {
        let Some(reply) = reply else { return };
        let _ = reply.coverage().sentence();
        assert!(reply.answers.len() <= MOST_ANSWERS && reply.covered.len() <= MOST_SPANS);
        for list in [&reply.cut, &reply.ended] {
            assert!(list.len() <= MOST_ANSWERS);
        }
        assert!(reply.cut.iter().all(|holder| holder["cut"].is_number()));
        assert!(reply.ended.iter().all(|holder| holder["until"].is_number()));
        for answer in reply.answers.iter().chain(&reply.cut).chain(&reply.ended) {
            assert_eq!(answer["external"], "203.0.113.1");
            for (key, value) in answer.as_object().expect("an object") {
                assert!([&TEXTS[..], &TIMES, &["missing"]].concat().contains(&&key[..]));
                let text = value.as_str().unwrap_or_default();
                assert!(text.chars().count() <= LONGEST_TEXT && !text.contains(char::is_control));
            }
        }
    }

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        assert_eq!(NodeReply::read(&reply().write(), &QUESTION), Some(reply()));
        assert!(reply().covers(QUESTION.at) && !reply().covers(Timestamp(10_000_000_000)));
    }

    #[test]
    fn an_answer_about_another_endpoint_is_refused() {
        for (key, value) in [
            ("external", json!("203.0.113.2")),
            ("external", json!(7)),
            ("ports", json!("2301")),
            ("ports", json!("2301-2400")),
            ("ports", json!("all")),
            ("subscriber", Value::Null),
            ("protocol", json!("tcp")),
            ("since", json!(6.5)),
            ("until", json!(3.5)),
        ] {
            let mut other = reply();
            other.answers[0][key] = value;
            assert_eq!(NodeReply::read(&other.write(), &QUESTION), None, "{key}");
        }
        for (key, value) in [
            ("external", json!("203.0.113.2")),
            ("protocol", json!("tcp")),
            ("subscriber", Value::Null),
            ("cut", Value::Null),
            ("since", json!(6.5)),
            ("until", json!(3.5)),
        ] {
            let mut other = reply();
            other.cut[0][key] = value;
            assert_eq!(NodeReply::read(&other.write(), &QUESTION), None, "cut: {key}");
        }
        for (key, value) in [
            ("ports", json!("2301")),
            ("protocol", json!("tcp")),
            ("subscriber", Value::Null),
            ("until", Value::Null),
        ] {
            let mut other = reply();
            other.ended[0][key] = value;
            assert_eq!(NodeReply::read(&other.write(), &QUESTION), None, "ended: {key}");
        }
        let no_object = NodeReply { answers: vec![json!(1)], ..reply() };
        assert_eq!(NodeReply::read(&no_object.write(), &QUESTION), None);
    }

    #[test]
    fn a_reply_of_an_earlier_version_is_read() {
        let read = NodeReply::read(br#"{"searched":true}"#, &QUESTION).expect("a reply");
        assert_eq!(read, NodeReply { searched: true, ..NodeReply::default() });
    }

    #[test]
    fn what_a_hostile_partner_writes_has_bounds() {
        let mut hostile = reply();
        hostile.answers[0]["kind"] = "\u{1b}[2J\n".repeat(1000).into();
        hostile.answers[0]["until"] = json!(1e300);
        hostile.answers[0]["more"] = json!([[[[]]]]);
        hostile.answers = vec![hostile.answers[0].clone(); 2 * MOST_ANSWERS];
        hostile.cut = vec![hostile.cut[0].clone(); 2 * MOST_ANSWERS];
        hostile.ended = vec![hostile.ended[0].clone(); 2 * MOST_ANSWERS];
        hostile.covered = vec![Span { from: -1e300, until: 1e300 }; 1000];
        hostile.reason = Some("\r\n".repeat(10_000));
        let read = NodeReply::read(&hostile.write(), &QUESTION).expect("a reply");
        assert_eq!((read.answers.len(), read.covered.len()), (MOST_ANSWERS, MOST_SPANS));
        assert_eq!(read.covered[0], Span { from: 0.0, until: LATEST });
        assert_eq!(read.answers[0]["until"], LATEST);
        assert_eq!(read.answers[0]["more"], Value::Null);
        assert_eq!(read.reason.as_deref().map(str::len), Some(LONGEST_REASON));
        check(Some(read));
        let deep = format!("{{\"searched\":true,\"x\":{}", "[".repeat(500_000));
        assert_eq!(NodeReply::read(deep.as_bytes(), &QUESTION), None);
    }
}
