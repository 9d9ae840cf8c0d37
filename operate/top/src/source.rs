//! Snapshots of a gateway, by its control socket.

use crate::{Owners, Snapshot};
use natgate_http::{AskError, Response, ask, open};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

/// Time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Subscribers that are kept, the ones with the most mappings.
pub const MOST_SUBSCRIBERS: usize = 100;

/// Blocks of ports that are kept, the ones with the most ports in use; and mappings of a subscriber
/// that are asked for.
const MOST_OWNED: usize = 100;

/// Blocks of ports that are read, in the gateway's order. The busiest of these are kept.
const MOST_READ: usize = 100_000;

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

/// True if a search is for an address or a prefix of IPv6, which is never external.
fn is_ipv6(search: &str) -> bool {
    let address = search.split_once('/').map_or(search, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
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
    let is_ipv6 = is_ipv6(search);
    if !is_ipv6 && !search.chars().all(is_plain) {
        let example = "type an address such as 10.0.0.5 or 2001:db8::5, or an external endpoint \
                       such as 203.0.113.1:40000";
        return message(format!("{search:?} is no address; {example}"));
    }
    if search.contains(':') && !is_ipv6 {
        let Response { status, mut body } = get(socket, &format!("/v1/who?external={search}"))?;
        return match body["answers"].take() {
            Value::Array(entries) if status == 200 => answer(entries, None),
            _ => message(sentence(&body)),
        };
    }
    let filters: &[&str] = match search {
        "" => &[""],
        _ if is_ipv6 => &["&subscriber="],
        _ => &["&subscriber=", "&external="],
    };
    for list in ["blocks", "mappings"] {
        for filter in filters {
            let limit = if list == "blocks" { MOST_READ } else { MOST_OWNED };
            match read(socket, &format!("/v1/{list}?limit={limit}{filter}{search}"))? {
                Err(refusal) => return message(refusal),
                Ok(entries) if entries.is_empty() => {}
                Ok(entries) => return answer(entries, None),
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

/// The entries of a list that have the most ports in use, or a sentence in place of entries.
fn read(socket: &Path, path: &str) -> Result<Result<Vec<Value>, String>, AskError> {
    let mut most = Vec::new();
    let refusal = each(socket, path, |one| {
        most.push(owned(one));
        if most.len() == 2 * MOST_OWNED {
            keep_busiest(&mut most);
        }
    })?;
    keep_busiest(&mut most);
    Ok(refusal.map_or(Ok(most), |body| Err(sentence(&body))))
}

fn keep_busiest(most: &mut Vec<Value>) {
    most.sort_by_cached_key(busiest_first);
    most.truncate(MOST_OWNED);
}

/// Key of an order of owners: the most ports in use first, equal ones by realm, address and port.
pub(crate) fn busiest_first(one: &Value) -> impl Ord + use<> {
    let used = one["used"].as_object().into_iter().flatten();
    let used: u64 = used.filter_map(|(_, count)| count.as_u64()).sum();
    (Reverse(used), by_address(one))
}

/// Key of the order of owners by realm, address and port.
pub(crate) fn by_address(one: &Value) -> impl Ord + use<> {
    let address: Option<Ipv4Addr> = one["external"].as_str().and_then(|text| text.parse().ok());
    let first = one["ports"].as_str().and_then(|text| text.split('-').next()?.parse::<u16>().ok());
    (one["realm"].as_str().map(str::to_owned), address, first)
}

/// The subscribers with the most mappings; all subscribers are read one after the other.
fn most_of(socket: &Path) -> Result<Vec<Value>, AskError> {
    let mut most = Vec::new();
    match each(socket, "/v1/subscribers", |one| keep(&mut most, one))? {
        None => Ok(most),
        Some(body) => Err(refused(&body)),
    }
}

/// Calls `take` for each entry of a list. Returns the body of a refusal.
fn each(socket: &Path, path: &str, mut take: impl FnMut(Value)) -> Result<Option<Value>, AskError> {
    let headers = [("Accept", "application/x-ndjson")];
    let reply = open(socket, "GET", path, &headers, &Value::Null, PATIENCE)?;
    if reply.status() != 200 {
        return Ok(Some(reply.object().unwrap_or_else(|_| json!({}))));
    }
    let odd = |error: &dyn std::fmt::Display| AskError::Odd(format!("{path}: {error}"));
    let mut lines = BufReader::new(reply);
    loop {
        let mut line = String::new();
        lines.by_ref().take(MOST_LINE).read_line(&mut line).map_err(|error| odd(&error))?;
        if line.is_empty() {
            return Ok(None);
        }
        let one: Value = serde_json::from_str(&line).map_err(|error| odd(&error))?;
        if one["subscriber"].is_string() || one["external"].is_string() {
            take(one);
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
    fn addresses_of_ipv6_are_no_endpoints() {
        for search in ["2001:db8::5", "2001:db8:1::/64", "::", "64:ff9b::192.0.2.1"] {
            assert!(is_ipv6(search), "{search}");
        }
        for search in ["", "10.0.0.5", "10.0.0.0/8", "203.0.113.1:40000", "[2001:db8::5]:80"] {
            assert!(!is_ipv6(search), "{search}");
        }
    }

    #[test]
    fn blocks_with_the_most_ports_in_use_are_kept() {
        let block = |number: u64| {
            let external = format!("203.0.113.{}", number % 16);
            let used = json!({ "tcp": number * 7919 % 500, "udp": 0 });
            let ports = format!("{}-{}", 1024 + number, 1024 + number);
            json!({ "subscriber": "10.0.0.9", "external": external, "ports": ports, "used": used })
        };
        let mut most: Vec<Value> = (0..1000).map(block).collect();
        keep_busiest(&mut most);
        let of = |one: &Value| one["used"]["tcp"].as_u64().unwrap();
        let used: Vec<u64> = most.iter().map(of).collect();
        let expected: Vec<u64> = (450..500).rev().flat_map(|used| [used, used]).collect();
        assert_eq!(used, expected);
        // Equal blocks are in the order of their addresses, as numbers.
        let address =
            |one: &Value| -> Ipv4Addr { one["external"].as_str().unwrap().parse().unwrap() };
        let is_ordered = |pair: &[Value]| address(&pair[0]) <= address(&pair[1]);
        assert!(most.chunks(2).all(is_ordered), "{most:?}");
    }

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
