//! Access of the subcommands to the running gateway: shared options, requests, and how a refusal
//! becomes a failure.

use crate::Failure;
use anyhow::anyhow;
use natgate_control::interface::query;
use natgate_control::socket::{self, AskError, Reply, Response, ask, open};
use natgate_wire::protocol;
use serde_json::Value;
use std::fmt::Write;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for an answer, or for the next piece of one.
const PATIENCE: Duration = Duration::from_secs(60);

/// The gateway to ask.
#[derive(clap::Args)]
pub(crate) struct Gateway {
    /// The gateway's control socket
    #[arg(long, global = true, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    pub(crate) socket: PathBuf,
}

/// Selects mappings, sessions or subscribers.
#[derive(clap::Args, Default)]
pub(crate) struct Filters {
    /// Only those of this subscriber, or of subscribers in this prefix
    #[arg(long, value_name = "ADDRESS[/LEN]", value_parser = subscriber)]
    pub(crate) subscriber: Option<String>,
    /// Only those of this realm's subscribers
    #[arg(long, value_name = "NAME")]
    pub(crate) realm: Option<String>,
    /// Only those with this external address or prefix, and this port if one is given
    #[arg(long, value_name = "ADDRESS[/LEN][:PORT]", value_parser = external)]
    pub(crate) external: Option<String>,
    /// Only those with a session to this remote address or prefix, and this port if one is given
    #[arg(long, value_name = "ADDRESS[/LEN][:PORT]", value_parser = remote)]
    pub(crate) remote: Option<String>,
    /// Only those of this protocol: tcp, udp, icmp, dccp, gre, esp, sctp or a number
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    pub(crate) protocol: Option<u8>,
}

fn subscriber(text: &str) -> Result<String, String> {
    let wrong = || "must be an address, or a prefix such as 10.1.0.0/16".to_owned();
    let is_right = query::prefix(text).is_some() || query::prefix6(text).is_some();
    is_right.then(|| text.to_owned()).ok_or_else(wrong)
}

fn external(text: &str) -> Result<String, String> {
    end(text, "203.0.113.1:2300", "203.0.113.0/28")
}

fn remote(text: &str) -> Result<String, String> {
    end(text, "198.51.100.7:443", "198.51.100.0/24")
}

/// Checks an address or a prefix, with or without a port.
fn end(text: &str, endpoint: &str, prefix: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "must be an address, or one with a port, such as {endpoint}, or a prefix, such as \
             {prefix}"
        )
    };
    query::end(text).map(|_| text.to_owned()).ok_or_else(wrong)
}

pub(crate) fn protocol(text: &str) -> Result<u8, String> {
    protocol::number(text).ok_or_else(|| format!("must be {}", protocol::CHOICES))
}

impl Filters {
    /// Returns the filters and other keys as the query of a request.
    pub(crate) fn query(&self, others: &[(&str, String)]) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let own = [
            ("subscriber", self.subscriber.clone()),
            ("realm", self.realm.clone()),
            ("external", self.external.clone()),
            ("remote", self.remote.clone()),
            ("protocol", self.protocol.map(|number| protocol::named(number).to_string())),
        ];
        for (key, value) in own {
            if let Some(value) = value {
                query.append_pair(key, &value);
            }
        }
        query.extend_pairs(others);
        query.finish()
    }

    /// Returns the filters as words of a sentence, such as ` of 10.0.0.5`.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        // Writing to a string does not fail.
        if let Some(subscriber) = &self.subscriber {
            let _ = write!(words, " of {subscriber}");
        }
        if let Some(realm) = &self.realm {
            let _ = write!(words, " in realm {realm}");
        }
        if let Some(external) = &self.external {
            let _ = write!(words, " with {external}");
        }
        if let Some(remote) = &self.remote {
            let _ = write!(words, " to {remote}");
        }
        if let Some(number) = self.protocol {
            let _ = write!(words, " of {}", protocol::named(number));
        }
        words
    }
}

impl Gateway {
    /// Asks for an object.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call("GET", path)
    }

    /// Asks for an object. A refusal is returned as a response too, because it may have an object.
    pub(crate) fn ask(&self, path: &str) -> Result<Response, Failure> {
        ask(&self.socket, "GET", path, &Value::Null, PATIENCE).map_err(unreachable)
    }

    /// Sends a request: asks for an object, or gives a command.
    pub(crate) fn call(&self, method: &str, path: &str) -> Result<Value, Failure> {
        let Response { status, body } =
            ask(&self.socket, method, path, &Value::Null, PATIENCE).map_err(unreachable)?;
        match status {
            200 => Ok(body),
            _ => Err(refused(status, &body)),
        }
    }

    /// Asks for an answer that is read while it arrives: one object, or one object a line.
    pub(crate) fn stream(&self, path: &str, lines: bool) -> Result<BufReader<Reply>, Failure> {
        let accepted = if lines { "application/x-ndjson" } else { "application/json" };
        let headers = [("Accept", accepted)];
        let reply = open(&self.socket, "GET", path, &headers, &Value::Null, PATIENCE);
        let reply = reply.map_err(unreachable)?;
        match reply.status() {
            200 => Ok(BufReader::new(reply)),
            status => Err(refused(status, &reply.object().map_err(unreachable)?)),
        }
    }
}

pub(crate) fn unreachable(error: AskError) -> Failure {
    // The message of `error` names the cause already.
    Failure::Runtime(anyhow!("{error}"))
}

/// Converts a refusal to a failure: with status 400 the user's input is wrong; otherwise the
/// gateway cannot answer now.
pub(crate) fn refused(status: u16, body: &Value) -> Failure {
    let message =
        body["message"].as_str().unwrap_or("the gateway failed without a word").to_owned();
    match status {
        400 => Failure::Input(vec![message]),
        _ => Failure::Runtime(anyhow!("{message}")),
    }
}
