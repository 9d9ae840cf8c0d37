//! The owner of an external endpoint: at present from the workers' tables, then from the
//! configuration; at an earlier time from the event logs on disk. Also all that a subscriber has.
//! A node of a pair asks the other node, too.

mod now;
mod then;

use super::partner_table::{TableReply, read_question};
use super::query::TableQuery;
use super::{Answer, Interface, Of, lists, stopping};
use crate::json::{self, Names};
use crate::partner_log::PastQuestion;
use crate::socket::{ClientGroup, Response, blocking};
use crate::who::{self, Unanswered, beside, forward, reverse};
use axum::Extension;
use axum::extract::{RawQuery, State};
use natgate_engine::{BlockInfo, BlockKind, Filter, HeldPort, MappingInfo, MappingKind, Timestamp};
use natgate_gateway::List;
use natgate_gateway::ipv6::HostName;
use natgate_logs::OwnersInForce;
pub(super) use now::Asking;
use now::find_now;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};
pub use then::PairAsker;
use then::{answer_past, find_then, search_own};

/// Most mappings in an answer. A port has few.
const MOST: usize = 64;

pub(super) async fn who(
    State(interface): Of,
    Extension(group): Extension<ClientGroup>,
    RawQuery(query): RawQuery,
) -> Answer {
    let keys = ["external", "protocol", "at", "subscriber", "realm"];
    let asked = TableQuery::parse(query.as_deref(), &keys)?;
    let is_of_subscriber = asked.subscriber.is_some() || asked.subscriber6.is_some();
    let Some(at) = asked.at.filter(|_| !is_of_subscriber) else {
        return blocking(move || find_now(&interface, &asked, &query.unwrap_or_default())).await?;
    };
    let question = PastQuestion { external: endpoint(&asked)?, protocol: asked.protocol, at };
    let (own, pair) = (Arc::clone(&interface), Arc::clone(&interface));
    let search = move |go_on: &dyn Fn() -> bool| search_own(&own, &question, go_on);
    let rest = move |own, go_on: &dyn Fn() -> bool| find_then(&pair, &question, own, go_on);
    let found = interface.searches[group as usize].run_then(search, rest).await;
    found.map_err(|refused| Response::failure(503, refused.to_string()))?
}

/// Answers a question of the other node: the bytes of a reply. `None`: the question is malformed,
/// or the gateway is stopping.
pub(super) fn answer_partner(
    interface: &Weak<Interface>,
    question: &[u8],
    go_on: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let interface = interface.upgrade()?;
    if let Some(question) = PastQuestion::read(question) {
        return Some(answer_past(&interface, &question, go_on).write());
    }
    let asked = read_question(question)?;
    let reply = match look_up(&interface, &asked) {
        Ok(mut reply) => {
            // A host whose name is known no more would be one of IPv4 there.
            let is_named = |answer: &Value| {
                answer["subscriber"].as_str().is_some_and(|name| name.contains(':'))
            };
            reply.answers.retain(|answer| asked.subscriber6.is_none() || is_named(answer));
            reply
        }
        Err(Response { body, .. }) => {
            let reason = body["message"].as_str().map(str::to_owned);
            TableReply { reason, ..TableReply::default() }
        }
    };
    Some(reply.write())
}

/// Returns the endpoint of the question.
fn endpoint(asked: &TableQuery) -> Result<(Ipv4Addr, u16), Response> {
    let (Some(address), Some(port)) = (asked.external, asked.external_port) else {
        let message = "whose? Say external=ADDRESS:PORT, such as external=203.0.113.1:2300, or \
            subscriber=ADDRESS";
        return Err(Response::failure(400, message));
    };
    if address.len() != 32 {
        let message = "external is one address and a port here, such as external=203.0.113.1:2300";
        return Err(Response::failure(400, message));
    }
    Ok((Ipv4Addr::from_bits(address.first()), port))
}

/// Answers from a configuration, with their source.
fn by(answers: &[who::Answer]) -> Vec<Value> {
    answers.iter().map(who::Answer::object).collect()
}

/// Owners by the configuration in force.
fn in_force(interface: &Interface) -> OwnersInForce {
    OwnersInForce::of_settings(&interface.settings())
}

/// Finds what the tables and the configuration of this node say now.
fn look_up(interface: &Interface, asked: &TableQuery) -> Result<TableReply, Response> {
    match (asked.subscriber, asked.subscriber6) {
        (None, None) => find(interface, asked),
        (_, None) => find_all_of(interface, asked),
        (_, Some(_)) => find_all_of_host(interface, asked),
    }
}

/// The reply with answers, or the reason why there are none.
fn found(answers: Vec<Value>, more: bool, reason: impl FnOnce() -> String) -> TableReply {
    let reason = answers.is_empty().then(reason);
    TableReply { searched: true, answers, more, reason, ..TableReply::default() }
}

/// Finds all that a subscriber has: static mappings, ranges and blocks, then dynamic mappings.
fn find_all_of(interface: &Interface, asked: &TableQuery) -> Result<TableReply, Response> {
    let refused = |message: &str| Err(Response::failure(400, message));
    let Some(subscriber) = asked.subscriber.filter(|prefix| prefix.len() == 32) else {
        return refused("subscriber is one address here, such as subscriber=10.0.0.5");
    };
    let address = Ipv4Addr::from_bits(subscriber.first());
    if asked.external.is_some() {
        return refused("say external=ADDRESS:PORT or subscriber=ADDRESS, not both");
    }
    if asked.at.is_some() {
        return refused(
            "at needs external=ADDRESS:PORT: the log is searched for an external endpoint, not for \
             a subscriber",
        );
    }
    let filter = interface.filter(asked)?;
    let (protocol, names) = (asked.protocol.map(json::protocol), interface.names());
    let mut fixed = forward(&in_force(interface), address).unwrap_or_default();
    fixed.retain(|answer| {
        let is_of = |own: &Option<String>, asked: &Option<String>| match (own, asked) {
            (Some(own), Some(asked)) => own == asked,
            _ => true,
        };
        is_of(&answer.protocol, &protocol) && is_of(&answer.realm, &asked.realm)
    });
    let mut answers = by(&fixed);
    answers.extend(owners(interface, Filter { protocol: None, ..filter })?);
    let mut has_more = answers.len() > MOST;
    answers.truncate(MOST);
    let most = answers.len() + MOST;
    let mut list: List<MappingInfo> = interface.commander().list(filter, MOST);
    while let Some((part, now)) = list.next_part().map_err(stopping)? {
        // The configuration has named the static mappings.
        let dynamic = part.iter().filter(|info| info.id.kind != MappingKind::Static);
        answers.extend(dynamic.map(|info| answer(info, None, now, &names)));
        if answers.len() > most {
            has_more = true;
            break;
        }
    }
    answers.truncate(most);
    Ok(found(answers, has_more, || {
        format!(
            "{address}: has no mapping, no block and no port by the configuration; for an external \
             address say its port, too"
        )
    }))
}

/// Finds all that hosts of NAT64 or DS-Lite have: a host, or a subscriber.
fn find_all_of_host(interface: &Interface, asked: &TableQuery) -> Result<TableReply, Response> {
    if asked.external.is_some() || asked.at.is_some() {
        let message = "say external=ADDRESS:PORT or subscriber=ADDRESS, not both, and no time";
        return Err(Response::failure(400, message));
    }
    let filter = interface.with_subscriber6(asked, interface.filter(asked)?)?;
    let mut answers = owners(interface, Filter { protocol: None, ..filter })?;
    let most = answers.len().min(MOST) + MOST;
    answers.extend(mappings(interface, filter, most)?);
    let has_more = answers.len() > most;
    answers.truncate(most);
    Ok(found(answers, has_more, || "no host in this prefix has a mapping".to_owned()))
}

/// Answers from the mappings that match a filter, about as many as `most`.
fn mappings(interface: &Interface, filter: Filter, most: usize) -> Result<Vec<Value>, Response> {
    let names = interface.names();
    let mut list: List<MappingInfo> = interface.commander().list(filter, MOST);
    let mut answers: Vec<Value> = Vec::new();
    while answers.len() < most {
        let Some((part, now)) = list.next_part().map_err(stopping)? else { break };
        let host = |info: &MappingInfo| (info.id.realm, info.id.internal.address);
        let hosts = interface.host_names(part.iter().map(host)).map_err(stopping)?;
        let one = |info: &MappingInfo| {
            let (realm, number) = host(info);
            answer(info, hosts.of(realm, number), now, &names)
        };
        answers.extend(part.iter().map(one));
    }
    Ok(answers)
}

fn nobody(message: String) -> Response {
    Response { status: 404, body: json!({ "ok": false, "message": message, "answers": [] }) }
}

/// Finds the owner of an endpoint: by its mappings, by the block of its port, by the configuration.
fn find(interface: &Interface, asked: &TableQuery) -> Result<TableReply, Response> {
    let (address, port) = endpoint(asked)?;
    let filter = interface.filter(asked)?;
    let of_table = |mut answers: Vec<Value>| {
        add_statics(&mut answers, interface, asked, (address, port));
        Ok(found(answers, false, String::new))
    };
    let answers = mappings(interface, filter, MOST)?;
    if !answers.is_empty() {
        return of_table(answers);
    }
    let resting = resting(interface, filter)?;
    let mut owners = owners(interface, filter)?;
    if !owners.is_empty() {
        if !resting.is_empty() {
            owners.iter_mut().for_each(|owner| owner["resting"] = resting.clone().into());
        }
        return of_table(owners);
    }
    let reply = match reverse(&in_force(interface), address, port, asked.protocol) {
        Ok(configured) => found(by(&configured), false, String::new),
        Err(Unanswered(sentence)) => {
            found(Vec::new(), false, || format!("{sentence}; no mapping has it now"))
        }
    };
    Ok(TableReply { resting, ..reply })
}

/// The response of what tables say.
fn respond(asked: &TableQuery, reply: TableReply) -> Response {
    let TableReply { answers, more, resting, mut reason, .. } = reply;
    if let (Ok((address, port)), false) = (endpoint(asked), resting.is_empty()) {
        let each: Vec<String> = resting.iter().map(rest).collect();
        reason = Some(format!(
            "{address}:{port}: nobody has it now; it is in hold-down for {}; the log of events \
             tells who had it",
            each.join(", ")
        ));
    }
    let mut response = match answers.is_empty() {
        true => nobody(reason.unwrap_or_default()),
        false => Response::done(json!({ "answers": answers })),
    };
    if !answers.is_empty() && asked.external.is_none() {
        response.body["more"] = more.into();
    }
    if !resting.is_empty() {
        response.body["resting"] = resting.into();
    }
    response
}

/// Adds static mappings of protocols without an answer, if the question is about all protocols.
fn add_statics(
    answers: &mut Vec<Value>,
    interface: &Interface,
    asked: &TableQuery,
    external: (Ipv4Addr, u16),
) {
    if asked.protocol.is_some() {
        return;
    }
    let answered: Vec<String> =
        answers.iter().filter_map(|answer| Some(answer["protocol"].as_str()?.to_owned())).collect();
    let answered: Vec<&str> = answered.iter().map(String::as_str).collect();
    answers.extend(by(&beside(&in_force(interface), external, &answered)));
}

/// The owners of the block that contains a port without a mapping, or some blocks of subscribers:
/// if there are more than [`MOST`], not all of them.
fn owners(interface: &Interface, filter: Filter) -> Result<Vec<Value>, Response> {
    let (names, settings) = (interface.names(), interface.settings());
    let mut list: List<BlockInfo> = interface.commander().list(filter, MOST);
    let mut owners = Vec::new();
    while let Some((part, now)) = list.next_part().map_err(stopping)? {
        // The configuration names the owner of a deterministic range, with its pool.
        let blocks = part.iter().filter(|block| block.kind != BlockKind::Deterministic);
        let hosts = blocks.clone().map(|block| (block.realm, block.subscriber));
        let hosts = interface.host_names(hosts).map_err(stopping)?;
        owners.extend(blocks.map(|info| {
            let host = hosts.of(info.realm, info.subscriber);
            let mut object = lists::block(info, host, now, &names, &settings);
            object["by"] = "block".into();
            object
        }));
        if owners.len() > MOST {
            break;
        }
    }
    Ok(owners)
}

/// The protocols for which a port is in hold-down, each once, with the time of its release if it
/// is known. Several workers may hold a port back after a restart; the latest release counts.
fn resting(interface: &Interface, filter: Filter) -> Result<Vec<Value>, Response> {
    let mut list: List<HeldPort> = interface.commander().list(filter, MOST);
    let mut latest: BTreeMap<u8, (Option<Timestamp>, Timestamp)> = BTreeMap::new();
    while let Some((part, now)) = list.next_part().map_err(stopping)? {
        for port in part {
            let release = latest.entry(port.protocol).or_insert((port.until, now));
            *release = (release.0.max(port.until), now);
        }
    }
    let object = |(protocol, (until, now)): (u8, (Option<Timestamp>, Timestamp))| {
        json!({
            "protocol": json::protocol(protocol),
            "until": until.map(|until| until.0 as f64 / 1e9),
            "for_s": until.map(|until| until.since(now).as_secs_f64()),
        })
    };
    Ok(latest.into_iter().map(object).collect())
}

/// A protocol, and the time for which its port is not assigned.
fn rest(resting: &Value) -> String {
    let protocol = resting["protocol"].as_str().unwrap_or_default();
    match resting["for_s"].as_f64() {
        Some(seconds) => format!("{protocol}, {seconds:.0} s more"),
        None => protocol.to_owned(),
    }
}

/// The answer from a mapping, in the form of the configuration's answers.
fn answer(info: &MappingInfo, host: Option<&HostName>, now: Timestamp, names: &Names) -> Value {
    let mut object = json!({
        "subscriber": info.id.internal.address,
        "external": info.id.external.address,
        "ports": info.id.external.port.to_string(),
        "kind": info.id.kind.name(),
        "by": "mapping",
        "protocol": json::protocol(info.id.protocol),
        "internal": format!("{}:{}", info.id.internal.address, info.id.internal.port),
        "age_s": now.since(info.created).as_secs_f64(),
    });
    if let Some(realm) = names.realm(info.id.realm) {
        object["realm"] = realm.into();
    }
    if let Some(host) = host {
        object["subscriber"] = json::prefix((host.prefix, host.len)).into();
        if let Some(address) = host.address {
            object["internal"] = json::host_endpoint(address, info.id.internal.port).into();
        }
    }
    object
}
