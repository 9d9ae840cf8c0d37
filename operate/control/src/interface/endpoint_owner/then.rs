//! The owner of an external endpoint at an earlier time. A node of a pair searches its own log and
//! asks the other node; the other node answers by this file, too.
//!
//! Mappings that a node continues after a take-over have no begin in its log. If the log names no
//! holder, the node's table may: a mapping that was made before the time and has not ended had the
//! endpoint at the time.

mod cut;

use super::{Answer, Interface, MOST, answer, by, nobody};
use crate::partner_log::{AskPartner, NodeReply, PastQuestion};
use crate::past::{self, Unknown};
use crate::socket::Response;
use natgate_engine::{Filter, MappingInfo, MappingKind, Prefix, Timestamp};
use natgate_gateway::fleet::{FleetStatus, SliceOwner};
use natgate_gateway::{Clock, List, Settings};
use natgate_logs::{Holder, Tenure, Traces};
use serde_json::{Value, json};
use std::sync::Arc;

/// The means of a node of a pair to ask about slices, and to ask the other node.
pub struct PairAsker {
    /// Returns the state of the pair. `None`: the gateway stops.
    pub state: Arc<dyn Fn() -> Option<FleetStatus> + Send + Sync>,
    /// Asks the other node.
    pub ask: Arc<AskPartner>,
}

/// What this node says about a question.
pub(super) struct OwnReply {
    /// As the other node gets it.
    reply: NodeReply,
    /// Status of the answer of a gateway that is alone.
    status: u16,
    /// Why the log cannot be read, for clients of this node. It may name files.
    unreadable: Option<String>,
    /// Owner of the endpoint's slice at the time.
    owner: Option<SliceOwner>,
    /// Says if the nodes' clocks differ now, a clause.
    clock_fault: Option<String>,
}

/// Finds the holders at an earlier time, after this node has searched its log. The other node is
/// asked whatever this node found.
pub(super) fn find_then(
    interface: &Interface,
    question: &PastQuestion,
    own: Result<OwnReply, Response>,
    go_on: &dyn Fn() -> bool,
) -> Answer {
    let OwnReply { reply: mut own, status, unreadable, owner, clock_fault } = own?;
    let settings = interface.settings();
    let Some(fleet) = &settings.fleet else { return Ok(alone(own, status)) };
    let is_unreadable = unreadable.is_some();
    own.reason = unreadable.or(own.reason);
    let asked = match &interface.pair {
        Some(pair) => (pair.ask)(question.write(), go_on),
        None => Err("it cannot be asked".to_owned()),
    };
    let other = asked.and_then(|bytes| {
        NodeReply::read(&bytes, question).ok_or_else(|| "its answer is malformed".to_owned())
    });
    let names = [&fleet.node[..], &fleet.partner.node];
    // The clocks of the time of the question are not known.
    let clocks = clock_fault.map(|clause| format!("{clause} now"));
    let mut response = merged(names, question.at, own, other, owner.as_ref(), clocks);
    // A log that cannot be read does not say that nobody had the endpoint.
    if is_unreadable && response.status == 404 {
        response.status = 500;
    }
    Ok(response)
}

/// The reply to a question of the other node.
pub(super) fn answer_past(
    interface: &Interface,
    question: &PastQuestion,
    go_on: &dyn Fn() -> bool,
) -> NodeReply {
    match search_own(interface, question, go_on) {
        Ok(own) => own.reply,
        Err(Response { body, .. }) => {
            let reason = body["message"].as_str().map(str::to_owned);
            NodeReply { reason, ..NodeReply::default() }
        }
    }
}

/// Searches this node's log, then its table.
pub(super) fn search_own(
    interface: &Interface,
    question: &PastQuestion,
    go_on: &dyn Fn() -> bool,
) -> Result<OwnReply, Response> {
    let settings = &interface.settings();
    let PastQuestion { external, protocol, at } = *question;
    // The log gets the events of the last second.
    if let Some(catch_up) = &interface.catch_up
        && at <= Clock::default().now()
    {
        catch_up.wait(at, go_on);
    }
    let state = interface.pair.as_ref().and_then(|pair| (pair.state)());
    let clock_fault = state.as_ref().and_then(|state| state.link.clock_fault());
    let mut owners = owners(state, settings, question);
    let node = settings.fleet.as_ref().map(|fleet| &fleet.node[..]);
    let tenure = node.map_or_else(Tenure::default, |node| tenure(&owners, node, at));
    owners.retain(|owner| owner.since <= at);
    let owner = owners.pop();
    let mut reply = NodeReply { searched: true, ..NodeReply::default() };
    let (mut status, mut unreadable) = (404, None);
    match past::had_in(settings, external, protocol, at, tenure, go_on) {
        Ok(found) => {
            reply.answers = found.holders.iter().map(|holder| json!(holder)).collect();
            reply.answers.extend(by(&found.answers));
            (reply.cut, reply.ended) = told(&found.traces);
            (reply.covered, reply.gaps) = (found.coverage.covered, found.coverage.gaps);
            status = 200;
        }
        Err(Unknown::Unreadable(error)) => {
            if node.is_none() {
                return Err(Response::failure(500, error));
            }
            reply.searched = false;
            reply.reason = Some("its log cannot be read".to_owned());
            unreadable = Some(error);
        }
        Err(error @ Unknown::Future { .. }) => {
            return Err(Response::failure(400, error.to_string()));
        }
        Err(error @ Unknown::Cancelled) => {
            return Err(Response::failure(503, error.to_string()));
        }
        Err(error @ Unknown::NoLog) => {
            reply.searched = false;
            reply.reason = Some(format!("the configuration names {error}"));
        }
        Err(error) => {
            reply.reason = Some(error.to_string());
            if let Unknown::Nobody { coverage, now, traces, .. } = error {
                reply.now = by(&now);
                (reply.cut, reply.ended) = told(&traces);
                (reply.covered, reply.gaps) = (coverage.covered, coverage.gaps);
            }
        }
    }
    if node.is_some() && is_open(&reply.answers, protocol) {
        let found = in_table(interface, question)?;
        let further = beside_log(found, &reply.answers);
        reply.answers.extend(further);
    }
    Ok(OwnReply { reply, status, unreadable, owner, clock_fault })
}

/// Holders that a start has cut, and holders that have ended, as objects.
fn told(traces: &Traces) -> (Vec<Value>, Vec<Value>) {
    let objects = |holders: &[Holder]| holders.iter().map(|holder| json!(holder)).collect();
    (objects(&traces.cut), objects(&traces.ended))
}

/// True if the log may lack holders: it names none, or the question is about all protocols and no
/// holder has them all.
fn is_open(holders: &[Value], protocol: Option<u8>) -> bool {
    let is_of_one = |holder: &Value| holder["protocol"].is_string();
    holders.is_empty() || protocol.is_none() && holders.iter().all(is_of_one)
}

/// Mappings of a table, of protocols for which a log names no holder.
fn beside_log(table: Vec<Value>, log: &[Value]) -> Vec<Value> {
    let is_named = |one: &Value| log.iter().any(|known| known["protocol"] == one["protocol"]);
    table.into_iter().filter(|one| !is_named(one)).collect()
}

/// Mappings of the table that were made before the time.
fn in_table(interface: &Interface, question: &PastQuestion) -> Result<Vec<Value>, Response> {
    let PastQuestion { external: (address, port), protocol, at } = *question;
    let filter = Filter {
        external: Some(Prefix::new(address, 32)),
        external_port: Some(port),
        protocol,
        ..Filter::default()
    };
    let (names, mut answers) = (interface.names(), Vec::new());
    let mut list: List<MappingInfo> = interface.commander().list(filter, MOST);
    while answers.len() < MOST {
        let Some((part, now)) = list.next_part().map_err(super::stopping)? else { break };
        let is_older =
            |info: &&MappingInfo| info.created <= at && info.id.kind != MappingKind::Static;
        let older: Vec<&MappingInfo> = part.iter().filter(is_older).collect();
        let hosts = older.iter().map(|info| (info.id.realm, info.id.internal.address));
        let hosts = interface.host_names(hosts).map_err(super::stopping)?;
        for info in older {
            let host = hosts.of(info.id.realm, info.id.internal.address);
            let mut object = answer(info, host, now, &names);
            if let Some(object) = object.as_object_mut() {
                object.remove("age_s");
                object.insert("since".to_owned(), (info.created.0 as f64 / 1e9).into());
                object.insert("until".to_owned(), Value::Null);
            }
            answers.push(object);
        }
    }
    Ok(answers)
}

/// Number of the slice that has an address.
fn slice_of(settings: &Settings, question: &PastQuestion) -> Option<usize> {
    let address = question.external.0;
    let has = |slice: &natgate_gateway::fleet::SliceSettings| {
        slice.addresses.iter().any(|range| range.contains(address))
    };
    settings.fleet.as_ref()?.slices.iter().position(has)
}

/// Owners of the endpoint's slice that this node knows of, the latest last.
fn owners(
    state: Option<FleetStatus>,
    settings: &Settings,
    question: &PastQuestion,
) -> Vec<SliceOwner> {
    let (Some(state), Some(slice)) = (state, slice_of(settings, question)) else {
        return Vec::new();
    };
    let mut owners = state.owners;
    owners.retain(|owner| owner.slice == slice);
    owners
}

/// The last take-over of a slice by a node until a time, if the node continued mappings and owned
/// the slice at the time; the time since which the other node owned it, otherwise; the next
/// take-over after the time by which the node continued mappings; and the next loss after the time.
fn tenure(owners: &[SliceOwner], node: &str, at: Timestamp) -> Tenure {
    let (until, after): (Vec<_>, Vec<_>) = owners.iter().partition(|owner| owner.since <= at);
    let mut own = until.iter().rev().take_while(|owner| owner.owner == node);
    let has_continued = |owner: &SliceOwner| owner.continued.is_some_and(|count| count > 0);
    let taken = own.find(|owner| has_continued(owner)).copied();
    let away = until.iter().rev().take_while(|owner| owner.owner != node).last().copied();
    let takes = after.iter().find(|owner| owner.owner == node && has_continued(owner)).copied();
    let lost = after.iter().find(|owner| owner.owner != node).copied();
    let [inherited, away, inherits, lost] =
        [taken, away, takes, lost].map(|owner: Option<&SliceOwner>| owner.map(|owner| owner.since));
    Tenure { is_of_pair: true, inherited, away, inherits, lost }
}

/// The response of a gateway that is none of a pair.
fn alone(own: NodeReply, status: u16) -> Response {
    let NodeReply { searched, answers, now, covered, gaps, reason, .. } = own;
    if status == 200 {
        return Response::done(json!({ "answers": answers, "covered": covered, "gaps": gaps }));
    }
    let mut response = nobody(reason.unwrap_or_default());
    if searched {
        if !now.is_empty() {
            response.body["now"] = now.into();
        }
        response.body["covered"] = json!(covered);
        response.body["gaps"] = json!(gaps);
    }
    response
}

/// The response of a pair whose nodes have names: this one, and the other. `other`: the other
/// node's reply, or why there is none. `clocks`: a doubt about both nodes' clocks.
fn merged(
    [this, partner]: [&str; 2],
    at: Timestamp,
    own: NodeReply,
    other: Result<NodeReply, String>,
    owner: Option<&SliceOwner>,
    clocks: Option<String>,
) -> Response {
    let other =
        other.unwrap_or_else(|reason| NodeReply { reason: Some(reason), ..NodeReply::default() });
    let replies = [(this, &own), (partner, &other)];
    let mut answers = answers_of(replies);
    let stops = cut::settle(&mut answers, replies, at);
    let (mut nodes, mut doubts) = (Vec::new(), Vec::from_iter(clocks));
    let (mut not_asked, mut reasons): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for (node, reply) in replies {
        let mut about = json!({
            "node": node, "searched": reply.searched, "covered": reply.covered, "gaps": reply.gaps,
        });
        if let Some(reason) = &reply.reason {
            about["reason"] = reason.clone().into();
            reasons.push(format!("node {node}: {reason}"));
        }
        nodes.push(about);
        match reply.searched {
            false => not_asked.push(node),
            true if !reply.covers(at) => {
                doubts.push(format!("the log of node {node} does not cover that time"));
            }
            true => {}
        }
    }
    reasons.extend(stops.iter().cloned());
    doubts.extend(stops);
    doubts.extend(disagreement(&answers));
    let owner_name = owner.map(|owner| &owner.owner[..]);
    doubts.extend(unconfirmed(&answers, replies, owner_name, at));
    let mut response = match answers.is_empty() {
        false => Response::done(json!({ "answers": answers })),
        true => nobody(reasons.join("; ")),
    };
    let body = &mut response.body;
    if answers.is_empty() && !own.now.is_empty() {
        body["now"] = own.now.into();
    }
    body["covered"] = json!(own.covered);
    body["gaps"] = json!(own.gaps);
    body["nodes"] = nodes.into();
    body["doubts"] = doubts.into();
    if !not_asked.is_empty() {
        body["not_asked"] = json!(not_asked);
    }
    if let Some(SliceOwner { slice, since, epoch, owner, .. }) = owner {
        let since = since.0 as f64 / 1e9;
        body["slice"] = json!({ "slice": slice, "owner": owner, "epoch": epoch, "since": since });
    }
    response
}

/// The answers of both nodes, each with its node. One of both appears once.
fn answers_of(replies: [(&str, &NodeReply); 2]) -> Vec<Value> {
    let mut answers: Vec<Value> = Vec::new();
    for (node, reply) in replies {
        for answer in &reply.answers {
            // Both nodes have one configuration, and know of a block that is copied.
            match answers.iter_mut().find(|known| is_same(known, answer)) {
                Some(known) => join(known, answer),
                None => {
                    let mut answer = answer.clone();
                    answer["node"] = node.into();
                    answers.push(answer);
                }
            }
        }
    }
    drop_repeated(&mut answers);
    answers
}

/// Fields that tell holdings apart at one time.
const HOLDING: [&str; 7] =
    ["subscriber", "realm", "protocol", "internal", "external", "ports", "remote"];

/// True for one holding, by whichever node it is told: with one end, as far as the nodes know it. A
/// mapping of a table is not one of a log.
fn is_same(known: &Value, answer: &Value) -> bool {
    let [first, second] = [&known["until"], &answer["until"]];
    // After a stop of a node, the mapping may have ended at one node and been made again.
    let is_cut = known["cut"].is_number() || answer["cut"].is_number();
    let has_one_end = is_cut || first.is_null() || second.is_null() || first == second;
    has_one_end && known["by"] == answer["by"] && is_one(known, answer)
}

/// True for one holding, with whichever times.
fn is_one(one: &Value, other: &Value) -> bool {
    HOLDING.iter().all(|key| one[key] == other[key])
}

/// True if one endpoint may be of one of the two only: they have a protocol and a remote endpoint
/// in common.
fn overlap(one: &Value, other: &Value) -> bool {
    let is_either = |key: &&str| one[*key].is_null() || other[*key].is_null();
    ["protocol", "remote"].iter().all(|key| is_either(key) || one[key] == other[key])
}

/// Joins the times of one holding: the nodes learned at different times of its begin, and one of
/// them may not know its end.
fn join(known: &mut Value, answer: &Value) {
    join_since(known, answer);
    let ends = [&*known, answer].map(|one| one["until"].as_f64());
    if let Some(until) = ends.into_iter().flatten().reduce(f64::min) {
        known["until"] = until.into();
    }
}

/// Gives a holding the earlier begin of two.
fn join_since(known: &mut Value, answer: &Value) {
    let begins = [&*known, answer].map(|one| one["since"].as_f64());
    if let Some(since) = begins.into_iter().flatten().reduce(f64::min) {
        known["since"] = since.into();
    }
}

/// A sentence if one node alone names a holder whose end it may not know: while the other node owns
/// a slice, a node logs no ends of the mappings that it has made before. An end that it logs later
/// may be one of the same mapping that the owner made again.
fn unconfirmed(
    answers: &[Value],
    nodes: [(&str, &NodeReply); 2],
    owner: Option<&str>,
    at: Timestamp,
) -> Option<String> {
    let at = Some(at.0 as f64 / 1e9);
    let doubtful = answers.iter().find(|answer| {
        let node = answer["node"].as_str().unwrap_or_default();
        let mut others = nodes.iter().filter(|(name, _)| *name != node).map(|(_, reply)| reply);
        let is_confirmed = |reply: &NodeReply| {
            let ended_later = reply.ended.iter().filter(|ended| ended["until"].as_f64() > at);
            reply.answers.iter().chain(ended_later).any(|other| is_one(other, answer))
        };
        let is_of_owner = match owner {
            Some(owner) => owner == node,
            None => others.clone().any(|reply| !reply.searched),
        };
        // A mapping of a table has not ended.
        let is_of_log = answer["by"].is_null();
        let may_end = owner.is_some() || answer["until"].is_null();
        is_of_log && may_end && !is_of_owner && !others.any(|reply| is_confirmed(reply))
    })?;
    let word = |key: &str| doubtful[key].as_str().unwrap_or_default().to_owned();
    Some(format!(
        "only node {} names {}, and may not know its end",
        word("node"),
        word("subscriber")
    ))
}

/// Removes mappings of a table that a log has, too: the log knows when they began and ended.
fn drop_repeated(answers: &mut Vec<Value>) {
    let (of_table, of_log): (Vec<Value>, Vec<Value>) =
        std::mem::take(answers).into_iter().partition(|answer| answer["by"] == "mapping");
    let is_known = |answer: &Value| of_log.iter().any(|known| is_one(known, answer));
    let new: Vec<Value> = of_table.into_iter().filter(|answer| !is_known(answer)).collect();
    *answers = of_log.into_iter().chain(new).collect();
}

/// A sentence if answers of two nodes name other subscribers for one protocol and remote endpoint.
fn disagreement(answers: &[Value]) -> Option<String> {
    let differ = |one: &Value, other: &Value| {
        one["node"] != other["node"]
            && overlap(one, other)
            && ["subscriber", "realm"].iter().any(|key| one[key] != other[key])
    };
    let is_doubtful = answers.iter().any(|one| answers.iter().any(|other| differ(one, other)));
    is_doubtful.then(|| "the nodes name different subscribers".to_owned())
}

#[cfg(test)]
mod tests;
