//! The control socket: how commands reach a running gateway, as JSON over HTTP/1.1 on a Unix socket.
//!
//! A [`Server`] has a thread of its own and one for each connection, of which there are few at a
//! time. A connection carries one request and its answer; what a request means is a [`Service`]'s
//! affair, and [`ask`] is the other end. Paths begin with the version of the interface, `/v1/`.
//!
//! Always true: requests, connections and the time that a request takes to come in are bounded, and
//! nothing that a client sends ends the server. Who may write to the socket may do anything:
//! its file belongs to the gateway's user and group (mode 0660).

mod client;
mod http;
mod server;
#[cfg(test)]
mod tests;

pub use client::{AskError, ask};
pub use http::{MOST_BODY, MOST_HEAD};
pub use server::{BindError, MOST_CONNECTIONS, Server};

use serde_json::{Value, json};

/// Where the socket is unless the configuration says otherwise.
pub const DEFAULT_PATH: &str = "/run/natgate/control.sock";

/// A request that has come in whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` or another.
    pub method: String,
    /// The path, such as `/v1/reload`, without a query.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// HTTP's status code.
    pub status: u16,
    /// The body.
    pub body: Value,
}

impl Response {
    /// A failure, told in one sentence.
    pub fn failure(status: u16, message: impl Into<String>) -> Self {
        Self { status, body: json!({ "ok": false, "message": message.into() }) }
    }
}

/// What answers requests; called from several threads.
pub trait Service: Send + Sync {
    /// Answers a request.
    fn answer(&self, request: &Request) -> Response;
}
