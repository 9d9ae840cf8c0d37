//! What is shown, as the gateway tells it at its control socket.

use crate::Snapshot;
use natgate_http::{AskError, Response, ask, open};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Subscribers that are kept: those that have most.
pub const MOST_SUBSCRIBERS: usize = 100;

/// Longest line of a list, bytes.
const MOST_LINE: u64 = 1 << 16;

/// Asks once for everything; the subscribers, who may be many, only if they are wanted.
///
/// # Errors
/// [`AskError`] when the gateway does not answer, or refuses.
pub fn look(socket: &Path, subscribers: bool) -> Result<Snapshot, AskError> {
    let get = |path: &str| -> Result<Value, AskError> {
        let Response { status, body } = ask(socket, "GET", path, &Value::Null, PATIENCE)?;
        match status {
            200 => Ok(body),
            _ => Err(refused(&body)),
        }
    };
    let subscribers = if subscribers { Some(most_of(socket)?) } else { None };
    Ok(Snapshot {
        status: get("/v1/status")?,
        counters: get("/v1/counters")?,
        pools: get("/v1/pools")?["pools"].take(),
        workers: get("/v1/workers")?["workers"].take(),
        subscribers,
    })
}

fn refused(body: &Value) -> AskError {
    let message = body["message"].as_str().unwrap_or("the gateway failed without a word");
    AskError::Odd(message.to_owned())
}

/// The subscribers that have most mappings, of all, one after the other as they come.
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
