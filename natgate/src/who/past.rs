//! `natgate who --at`: finds who had an external endpoint, from the event log on disk. The gateway
//! searches the log, or, with a configuration, this program does.

use super::{Args, Whom, print};
use crate::Failure;
use crate::api::{Filters, refused};
use anyhow::anyhow;
use natgate_control::past::{Unknown, had, not_asked};
use natgate_control::socket::Response;
use natgate_control::who::Answer;
use natgate_engine::Timestamp;
use natgate_gateway::Settings;
use natgate_logs::Coverage;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Answers from the log.
pub(super) fn answer(args: &Args, settings: &Settings, at: Timestamp) -> Result<(), Failure> {
    let found = match had(settings, args.endpoint()?, args.protocol, at, &|| true) {
        Ok(found) => found,
        Err(error @ Unknown::NoLog) => {
            let file = args.config.as_deref().unwrap_or(std::path::Path::new("-")).display();
            return Err(Failure::Input(vec![format!("{file}: there is {error}")]));
        }
        Err(error @ Unknown::Future { .. }) => {
            return Err(Failure::Input(vec![format!("--at: {error}")]));
        }
        Err(error) => {
            let mut coverage = match &error {
                Unknown::Nobody { coverage, now, .. } => {
                    let mut about = json!(coverage);
                    if !now.is_empty() {
                        about["now"] = now.iter().map(Answer::object).collect();
                    }
                    about
                }
                _ => json!({}),
            };
            coverage["not_asked"] = json!(not_asked(settings));
            return Err(args.nobody(error.to_string(), &coverage)?);
        }
    };
    let holders = found.holders.iter().map(|holder| json!(holder));
    let lines: Vec<Value> = holders.chain(found.answers.iter().map(Answer::object)).collect();
    let mut coverage = json!(found.coverage);
    coverage["not_asked"] = json!(not_asked(settings));
    args.tell(&lines, &coverage)
}

impl Args {
    /// Asks the gateway which subscriber had the endpoint.
    pub(super) fn ask_the_gateway_of_then(&self, at: Timestamp) -> Result<(), Failure> {
        let (address, port) = self.endpoint()?;
        let external = Some(format!("{address}:{port}"));
        let at = ("at", (at.0 as f64 / 1e9).to_string());
        let filters = Filters { external, protocol: self.protocol, ..Filters::default() };
        let query = filters.query(&[at]);
        let answer =
            self.gateway.ask(&format!("/v1/who?{query}")).map_err(|failure| match failure {
                Failure::Runtime(error) => Failure::Runtime(anyhow!(
                    "{error}; with --config FILE the log is searched without a gateway"
                )),
                other => other,
            });
        let Response { status, body } = answer?;
        if status == 200 {
            let answers = body["answers"].as_array().map_or(&[][..], Vec::as_slice);
            return self.tell(answers, &body);
        }
        match refused(status, &body) {
            // Only status 404 says that nobody had the endpoint.
            Failure::Runtime(error) if status == 404 => Err(self.nobody(error.to_string(), &body)?),
            other => Err(other),
        }
    }

    /// The endpoint that is asked about.
    fn endpoint(&self) -> Result<(Ipv4Addr, u16), Failure> {
        let Whom::External(external, port) = self.whom else {
            let message = "--at needs an external endpoint with its port, such as \
                 203.0.113.1:2300: the log is not searched for all that a subscriber had";
            return Err(Failure::Input(vec![message.to_owned()]));
        };
        Ok((external, port))
    }

    fn tell(&self, holders: &[Value], about: &Value) -> Result<(), Failure> {
        for holder in holders {
            print(&match self.json {
                true => with_facts(holder, about).to_string(),
                false => format!("{}{}", sentence(holder), of_node(holder)),
            })?;
        }
        if !self.json && !holders.is_empty() {
            match about["nodes"].as_array() {
                Some(nodes) => tell_nodes(about, nodes)?,
                None if about["covered"].is_array() => print(&coverage(about)?)?,
                None => {}
            }
        }
        self.tell_doubts(about);
        Ok(())
    }

    /// Tells that no subscriber is known, and what else the answer says. Returns the failure.
    pub(super) fn nobody(&self, reason: String, coverage: &Value) -> Result<Failure, Failure> {
        if self.json {
            let answer = json!({"subscriber": null, "reason": reason});
            let mut answer = with_facts(&answer, coverage);
            if coverage["now"].is_array() {
                answer["now"] = coverage["now"].clone();
            }
            print(&answer.to_string())?;
        }
        self.tell_doubts(coverage);
        Ok(Failure::Runtime(anyhow!(reason)))
    }

    /// Says which nodes of a pair were not asked, and what else is doubtful.
    pub(super) fn tell_doubts(&self, about: &Value) {
        let nodes = about["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        for node in about["not_asked"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let reason = nodes.iter().find(|one| one["node"] == node);
            let reason = reason.and_then(|one| one["reason"].as_str());
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            match self.at {
                Some(_) => eprintln!(
                    "natgate: the log of node {node} was not searched{reason}. It names the \
                     subscriber if {node} had the endpoint's slice at that time; ask it, too"
                ),
                None => eprintln!(
                    "natgate: node {node} was not asked{reason}. Its table may have mappings \
                     without a copy here; ask it, too"
                ),
            }
        }
        for doubt in about["doubts"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            eprintln!("natgate: {doubt}, so the answer is doubtful");
        }
    }
}

/// An answer with the spans that the log covers, its gaps, and the facts about a pair.
pub(super) fn with_facts(answer: &Value, about: &Value) -> Value {
    let mut answer = answer.clone();
    for key in ["covered", "gaps", "nodes"] {
        if about[key].is_array() {
            answer[key] = about[key].clone();
        }
    }
    for key in ["not_asked", "doubts"] {
        if about[key].as_array().is_some_and(|list| !list.is_empty()) {
            answer[key] = about[key].clone();
        }
    }
    if about["slice"].is_object() {
        answer["slice"] = about["slice"].clone();
    }
    answer
}

/// The node of a pair that names the subscriber, behind a sentence.
pub(super) fn of_node(answer: &Value) -> String {
    answer["node"].as_str().map(|node| format!(" (node {node})")).unwrap_or_default()
}

/// Says which node owned the slice, and what the log of each node covers.
fn tell_nodes(about: &Value, nodes: &[Value]) -> Result<(), Failure> {
    let slice = &about["slice"];
    if let (Some(owner), Some(epoch)) = (slice["owner"].as_str(), slice["epoch"].as_u64()) {
        let since = shown(slice["since"].as_f64().unwrap_or_default());
        let slice = slice["slice"].as_u64().unwrap_or_default();
        print(&format!("node {owner} owned slice {slice} then, in epoch {epoch} since {since}"))?;
    }
    for node in nodes.iter().filter(|node| node["searched"] == true) {
        let name = node["node"].as_str().unwrap_or_default();
        print(&format!("node {name}: {}", coverage(node)?))?;
    }
    Ok(())
}

/// The part of the time that a log covers, in a sentence.
fn coverage(about: &Value) -> Result<String, Failure> {
    let coverage = json!({"covered": about["covered"], "gaps": about["gaps"]});
    let coverage: Coverage =
        serde_json::from_value(coverage).map_err(|error| Failure::Runtime(anyhow!(error)))?;
    Ok(coverage.sentence())
}

fn sentence(holder: &Value) -> String {
    if holder.get("since").is_none() {
        let sentence = super::sentence(holder, "had");
        return format!("{sentence}, by the configuration of that time");
    }
    let word = |key: &str| holder[key].as_str().unwrap_or_default();
    let part = |before: &str, key: &str, after: &str| match word(key) {
        "" => String::new(),
        word => format!("{before}{word}{after}"),
    };
    let (subscriber, external, ports) = (word("subscriber"), word("external"), word("ports"));
    let of = part(" of realm ", "realm", "");
    let (protocol, by) = (part("", "protocol", " "), part(" by ", "internal", ""));
    let to = part(", to ", "remote", "");
    let plural = if ports.contains('-') { "ports" } else { "port" };
    let since = match holder["since"].as_f64() {
        Some(since) => format!("since {}", shown(since)),
        None => "since before the log begins".to_owned(),
    };
    let until = holder["until"].as_f64().map(|until| format!(" until {}", shown(until)));
    let until = until.unwrap_or_default();
    let doubt = match holder["missing"].as_u64() {
        None | Some(0) => String::new(),
        Some(missing) => {
            format!("; {missing} events are missing in the log since, so this may be wrong")
        }
    };
    format!(
        "{subscriber}{of} had {protocol}{plural} {ports} of {external}{by}{to} \
         {since}{until}{doubt}"
    )
}

/// A time as text for people.
fn shown(seconds: f64) -> String {
    natgate_logs::shown(Timestamp(0).plus(Duration::from_secs_f64(seconds.max(0.0))))
}
