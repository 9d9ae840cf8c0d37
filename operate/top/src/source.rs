//! Snapshots of a gateway, by its control socket.

use crate::{Owners, Snapshot};
use natgate_http::{AskError, Response, ask, open};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// Time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Subscribers that are kept, the ones with the most mappings.
pub const MOST_SUBSCRIBERS: usize = 100;

/// Blocks of ports, or mappings of a subscriber, that are asked for.
const MOST_OWNED: usize = 100;

/// Longest line of a list, bytes.
const MOST_LINE: u64 = 1 << 16;

/// Lists, which may be long and are not asked for at every look.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'s> {
    /// The address or endpoint to find the owner of; empty: all blocks of ports.
    pub search: &'s str,
}

/// Takes a snapshot, with lists only if they are wanted.
///
/// # Errors
/// [`AskError`] when the gateway does not answer, or refuses.
pub fn look(socket: &Path, lists: Option<Lists<'_>>) -> Result<Snapshot, AskError> {
    let get = |path: &str| done(get(socket, path)?);
    let subscribers = lists.map(|_| most_of(socket)).transpose()?;
    let owners = lists.map(|lists| owners(socket, lists.search)).transpose()?;
    Ok(Snapshot {
        status: get("/v1/status")?,
        counters: get("/v1/counters")?,
        pools: get("/v1/pools")?["pools"].take(),
        workers: get("/v1/workers")?["workers"].take(),
        subscribers,
        owners,
    })
}

fn get(socket: &Path, path: &str) -> Result<Response, AskError> {
    ask(socket, "GET", path, &Value::Null, PATIENCE)
}

/// The body of an answer that is no refusal.
fn done(Response { status, body }: Response) -> Result<Value, AskError> {
    if status == 200 { Ok(body) } else { Err(refused(&body)) }
}

/// The owners that a search finds: of an endpoint by its mapping, its block or the configuration,
/// of an address by blocks and then by mappings.
fn owners(socket: &Path, search: &str) -> Result<Owners, AskError> {
    let answer = |entries, message| {
        let search = search.to_owned();
        Ok(Owners { search, entries, message })
    };
    let message = |message: String| answer(Vec::new(), Some(message));
    let is_plain = |letter: char| letter.is_ascii_digit() || ".:/".contains(letter);
    if !search.chars().all(is_plain) {
        let example =
            "type an address such as 10.0.0.5, or an external endpoint such as 203.0.113.1:40000";
        return message(format!("{search:?} is no address; {example}"));
    }
    if search.contains(':') {
        let Response { status, mut body } = get(socket, &format!("/v1/who?external={search}"))?;
        return match body["answers"].take() {
            Value::Array(entries) if status == 200 => answer(entries, None),
            _ => message(sentence(&body)),
        };
    }
    let filters: &[&str] = if search.is_empty() { &[""] } else { &["&subscriber=", "&external="] };
    for list in ["blocks", "mappings"] {
        for filter in filters {
            let path = format!("/v1/{list}?limit={MOST_OWNED}{filter}{search}");
            let Response { status, mut body } = get(socket, &path)?;
            if status != 200 {
                return message(sentence(&body));
            }
            if let Value::Array(entries) = body[list].take()
                && !entries.is_empty()
            {
                let entries = entries.into_iter().map(owned).collect();
                return answer(entries, None);
            }
        }
        if search.is_empty() {
            return message("no block of ports has an owner".to_owned());
        }
    }
    message(format!("no block of ports and no mapping is {search}'s, inside or outside"))
}

/// An entry of a list in the form of an owner: a mapping's external endpoint is an address and a
/// port.
fn owned(mut entry: Value) -> Value {
    let external = entry["external"].as_str().and_then(|external| external.split_once(':'));
    let external = external.map(|(address, port)| (address.to_owned(), port.to_owned()));
    if let Some((address, port)) = external {
        entry["external"] = address.into();
        entry["ports"] = port.into();
    }
    entry
}

fn sentence(body: &Value) -> String {
    body["message"].as_str().unwrap_or("the gateway failed without a word").to_owned()
}

fn refused(body: &Value) -> AskError {
    AskError::Odd(sentence(body))
}

/// The subscribers with the most mappings; all subscribers are read one after the other.
fn most_of(socket: &Path) -> Result<Vec<Value>, AskError> {
    let headers = [("Accept", "application/x-ndjson")];
    let reply = open(socket, "GET", "/v1/subscribers", &headers, &Value::Null, PATIENCE)?;
    if reply.status() != 200 {
        return Err(refused(&reply.object().unwrap_or_else(|_| json!({}))));
    }
    let odd = |error: &dyn std::fmt::Display| AskError::Odd(format!("subscribers: {error}"));
    let (mut most, mut lines) = (Vec::new(), BufReader::new(reply));
    loop {
        let mut line = String::new();
        lines.by_ref().take(MOST_LINE).read_line(&mut line).map_err(|error| odd(&error))?;
        if line.is_empty() {
            return Ok(most);
        }
        let one: Value = serde_json::from_str(&line).map_err(|error| odd(&error))?;
        if one["subscriber"].is_string() {
            keep(&mut most, one);
        }
    }
}

/// Mappings of all protocols.
pub(crate) fn mappings(subscriber: &Value) -> u64 {
    let all = subscriber["mappings"].as_object().into_iter().flatten();
    all.filter_map(|(_, count)| count.as_u64()).sum()
}

/// Keeps the list sorted and short.
fn keep(most: &mut Vec<Value>, one: Value) {
    let count = mappings(&one);
    let place = most.partition_point(|other| mappings(other) >= count);
    if place < MOST_SUBSCRIBERS {
        most.insert(place, one);
        most.truncate(MOST_SUBSCRIBERS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_most_are_kept_in_order() {
        let mut most = Vec::new();
        for number in 0..1000_u64 {
            let count = number * 7919 % 1000;
            keep(&mut most, json!({ "subscriber": "a", "mappings": { "tcp": count, "udp": 1 } }));
        }
        let counts: Vec<u64> = most.iter().map(mappings).collect();
        assert_eq!(counts, (901..=1000).rev().collect::<Vec<_>>());
    }
}
