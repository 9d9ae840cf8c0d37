//! Explanations in words and as JSON: one object a step, each with its name, a sentence and the
//! values in the sentence. Sentences are for people and may change; names and fields stay.

mod alg;
mod families;
mod softwires;
mod steps;

use natgate_engine::{
    Behavior, Config, DropReason, End, Endpoint, Explanation, LimitOwner, Match, Rule, RuleAction,
    Side, Timestamp, Verdict,
};
use natgate_gateway::ipv6::FamilyExplanation;
use natgate_gateway::{Link, WorkerTrace};
use serde_json::{Map, Value, json};

/// The explanation of a packet by a gateway's workers, as JSON; `config` is in force, and there are
/// so many `workers`.
pub fn object(
    (from, packet): (Link, &[u8]),
    traced: &[WorkerTrace],
    now: Timestamp,
    config: &Config,
    workers: usize,
) -> Value {
    let mut steps = Vec::new();
    for (place, part) in traced.iter().enumerate() {
        if workers > 1 {
            let worker = part.worker;
            let what = if place == 0 { "belongs to" } else { "takes the hairpin path to" };
            let text = format!("the packet {what} worker {worker} of {workers}");
            steps.push(json!({ "step": "worker", "text": text, "worker": worker }));
        }
        let names = Names { config, now, families: part.families.as_ref() };
        match &part.families {
            Some(families) => steps.extend(names.family_steps(families)),
            None => steps.extend(part.explanation.steps().iter().map(|step| names.step(step))),
        }
        steps.extend(part.alg.as_ref().map(alg::step));
        steps.extend(part.onward.map(|(link, onward)| names.onward(link, onward)));
        steps.extend(part.onward6.map(|(link, onward)| families::onward(link, onward)));
    }
    let Some(last) = traced.last() else { return json!({ "ok": false }) };
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("from", json!(side(from.side)));
    put("packet", json!(packet.iter().map(|byte| format!("{byte:02x}")).collect::<String>()));
    let (verdict, direction, is_certain) = match &last.families {
        Some(told) => (told.verdict, told.direction, told.is_certain),
        None => {
            let Explanation { verdict, direction, is_certain, .. } = last.explanation;
            (verdict, direction, is_certain)
        }
    };
    let (name, out, reason) = verdict_words(verdict);
    put("verdict", json!(name));
    put("by", json!(out.map(side)));
    put("reason", json!(reason.map(DropReason::name)));
    let text = last.families.as_ref().and_then(families::sentence);
    put("text", json!(text.unwrap_or_else(|| sentence(verdict))));
    put("direction", json!(direction.name()));
    put("certain", json!(is_certain));
    put("worker", json!(last.worker));
    put("becomes", Names { config, now, families: last.families.as_ref() }.becomes(last, out));
    put("steps", Value::Array(steps));
    Value::Object(object)
}

/// The explanation as text for people, from the object.
pub fn text(object: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut text = String::new();
    for (number, step) in object["steps"].as_array().into_iter().flatten().enumerate() {
        text += &format!("{:>3}  {}\n", number + 1, word(&step["text"]));
    }
    text += &format!("\n{}\n", word(&object["text"]));
    let becomes = &object["becomes"];
    if becomes.is_object() {
        let (source, destination) = (word(&becomes["source"]), word(&becomes["destination"]));
        text += &format!("it becomes {source} > {destination}");
        if let Some(realm) = becomes["realm"].as_str() {
            text += &format!(" in realm {realm}");
        }
        if becomes["tunnel"].is_object() {
            text += &format!(" in the tunnel to {}", word(&becomes["tunnel"]["customer"]));
        }
        text += "\n";
    }
    if object["certain"] == false {
        text += "random choices, or state that is made before, may change this\n";
    }
    text
}

fn verdict_words(verdict: Verdict) -> (&'static str, Option<Side>, Option<DropReason>) {
    match verdict {
        Verdict::Forward(side) => ("forward", Some(side), None),
        Verdict::Reply(side) => ("reply", Some(side), None),
        Verdict::Drop(reason) => ("drop", None, Some(reason)),
        Verdict::HandOver => ("hand_over", None, None),
        Verdict::Held => ("held", None, None),
    }
}

fn sentence(verdict: Verdict) -> String {
    match verdict {
        Verdict::Forward(by) => format!("it would be sent on by the {}", side(by)),
        Verdict::Reply(by) => format!("it would be answered by the {}", side(by)),
        Verdict::Drop(reason) => {
            format!("it would be dropped ({}): {}", reason.name(), reason.text())
        }
        Verdict::HandOver => {
            "it takes the hairpin path; its form for the receiver depends on the port that \
             would be drawn"
                .to_owned()
        }
        Verdict::Held => "it would wait for the first fragment of its datagram".to_owned(),
    }
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Inside => "inside",
        Side::Outside => "outside",
    }
}

fn end(End { address, port }: End) -> String {
    let address = address.map_or_else(|| "DRAWN".to_owned(), |address| address.to_string());
    match port {
        Some(port) => format!("{address}:{port}"),
        None => address,
    }
}

fn both(Endpoint { address, port }: Endpoint) -> String {
    format!("{address}:{port}")
}

fn behavior(behavior: Behavior) -> &'static str {
    match behavior {
        Behavior::EndpointIndependent => "endpoint-independent",
        Behavior::AddressDependent => "address-dependent",
        Behavior::AddressAndPortDependent => "address-and-port-dependent",
    }
}

/// Names of realms, pools and rules for the sentences of steps.
struct Names<'c> {
    config: &'c Config,
    now: Timestamp,
    /// Names of hosts that have numbers in the engine.
    families: Option<&'c FamilyExplanation>,
}

impl Names<'_> {
    /// The packet that would leave by a side.
    fn becomes(&self, traced: &WorkerTrace, by: Option<Side>) -> Value {
        let (mut ends, realm) = match &traced.families {
            Some(told) => match &told.becomes {
                Some(becomes) => (families::ends(becomes), becomes.realm),
                None => return Value::Null,
            },
            None => match traced.explanation.becomes {
                Some(becomes) => {
                    let (from, to) = (end(becomes.source), end(becomes.destination));
                    (json!({ "source": from, "destination": to }), becomes.realm)
                }
                None => return Value::Null,
            },
        };
        if self.config.has_realms() && by == Some(Side::Inside) {
            ends["realm"] = json!(self.realm(realm));
        }
        ends
    }

    fn realm(&self, number: u16) -> String {
        if let Some(kind) = self.families.and_then(|told| told.realms.kind(number)) {
            return kind.realm_name().to_owned();
        }
        match usize::from(number).checked_sub(1) {
            None => "default".to_owned(),
            Some(place) => {
                self.config.realms.get(place).map_or(number.to_string(), |realm| realm.name.clone())
            }
        }
    }

    fn pool(&self, number: usize) -> String {
        self.config.pools.get(number).map_or(number.to_string(), |pool| pool.name.clone())
    }

    fn whose(&self, whose: LimitOwner) -> String {
        match whose {
            LimitOwner::Subscriber => "the subscriber".to_owned(),
            LimitOwner::Class(place) => {
                let class = self.config.classes.get(place);
                format!(
                    "class {}",
                    class.map_or_else(|| place.to_string(), |class| class.name.clone())
                )
            }
            LimitOwner::Mapping => "the mapping".to_owned(),
            LimitOwner::Static => "the static mapping of the address".to_owned(),
            LimitOwner::Gateway => "the gateway".to_owned(),
        }
    }

    fn seconds(&self, until: Timestamp) -> f64 {
        until.since(self.now).as_secs_f64()
    }

    /// The rule that is the best for a packet between these endpoints, as an operator knows it.
    fn rule(&self, realm: u16, inner: Endpoint, outer: Endpoint) -> Option<(usize, String)> {
        let rules = match usize::from(realm).checked_sub(1) {
            None => &self.config.rules,
            Some(place) => &self.config.realms.get(place)?.rules,
        };
        let best = rules
            .iter()
            .enumerate()
            .filter_map(|(number, rule)| Some((rank(rule, inner, outer)?, number)));
        // The first of equals.
        let (_, number) = best.max_by_key(|(rank, number)| (*rank, usize::MAX - number))?;
        let (end, prefix, port) = match rules[number].matches {
            Match::Source(prefix, port) => ("source", prefix, port),
            Match::Destination(prefix, port) => ("destination", prefix, port),
        };
        let address = std::net::Ipv4Addr::from_bits(prefix.first());
        let port = if port == 0 { String::new() } else { format!(":{port}") };
        Some((number + 1, format!("{end} {address}/{}{port}", prefix.len())))
    }
}

fn said(step: &str, text: &str) -> Value {
    json!({ "step": step, "text": text })
}

/// The rank of a rule for a packet between these endpoints, if the rule matches it and translates
/// no destination.
fn rank(rule: &Rule, inner: Endpoint, outer: Endpoint) -> Option<(i16, u8, bool, bool)> {
    if matches!(rule.action, RuleAction::Dnat(..) | RuleAction::DnatPrefix(_)) {
        return None;
    }
    let (prefix, port, by_source) = match rule.matches {
        Match::Source(prefix, port) => (prefix, port, true),
        Match::Destination(prefix, port) => (prefix, port, false),
    };
    let own = if by_source { inner } else { outer };
    let holds = prefix.contains(own.address.to_bits()) && (port == 0 || port == own.port);
    holds.then_some((rule.priority, prefix.len(), port != 0, by_source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketDescription;
    use natgate_engine::{AddressRange, Engine, Packet, PoolConfig, Prefix};
    use natgate_gateway::ipv6::Settings;
    use std::net::Ipv4Addr;

    fn config() -> Config {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let pool = PoolConfig {
            name: "first".into(),
            addresses: vec![AddressRange { first: address, last: address }],
            ..PoolConfig::default()
        };
        let prefix = |c, len| Prefix::new(Ipv4Addr::new(10, c, 0, 0), len);
        let rules = vec![
            Rule::new(Match::Source(prefix(1, 16), 0), RuleAction::Bypass),
            Rule::new(Match::Source(prefix(1, 24), 0), RuleAction::Drop),
        ];
        Config { pools: vec![pool], rules, ..Config::default() }
    }

    fn trace(text: &str) -> Value {
        let config = config();
        let engine = Engine::new(&config, [1; 32], Timestamp(0)).unwrap();
        let probe = text.parse::<PacketDescription>().unwrap().probe(&config, &Settings::default());
        let probe = probe.unwrap();
        let mut packet = probe.packet.clone();
        let mut explanation = Explanation::new();
        let view = Packet::new(&mut packet, 0);
        engine.explain(Timestamp(0), probe.link.side, &view, &mut explanation);
        let traced = WorkerTrace { explanation, ..WorkerTrace::default() };
        object((probe.link, &probe.packet), &[traced], Timestamp(0), &config, 1)
    }

    fn names(object: &Value) -> Vec<&str> {
        object["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|step| step["step"].as_str())
            .collect()
    }

    #[test]
    fn a_new_flow_is_told_step_by_step() {
        let object = trace("udp 10.0.0.5:4000 > 192.0.2.1:53");
        assert_eq!((&object["verdict"], &object["by"]), (&json!("forward"), &json!("outside")));
        let names = names(&object);
        let wanted = [
            "read",
            "subscriber",
            "transit",
            "no_mapping",
            "limit",
            "pool",
            "address",
            "port",
            "new_session",
            "timer",
        ];
        let mut rest = names.iter();
        assert!(wanted.iter().all(|step| rest.any(|name| name == step)), "{names:?}");
        let text = text(&object);
        for part in [
            "pool first, 64512 ports free",
            "its timer starts: 300 s",
            "the port would be drawn",
            "sent on by the outside",
            "it becomes DRAWN > 192.0.2.1:53",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_rule_that_decides_is_named() {
        let dropped = trace("udp 10.1.0.5:4000 > 192.0.2.1:53");
        assert_eq!((&dropped["verdict"], &dropped["reason"]), (&json!("drop"), &json!("rule")));
        assert!(text(&dropped).contains("rule 2 (source 10.1.0.0/24) says: drop"));
        let passed = trace("udp 10.1.1.5:4000 > 192.0.2.1:53");
        assert!(text(&passed).contains("rule 1 (source 10.1.0.0/16) says: bypass"));
        let refused = trace("udp 192.0.2.1:53 > 203.0.113.1:2000");
        assert_eq!(refused["reason"], "no_mapping");
    }
}
