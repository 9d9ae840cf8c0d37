//! The gateway's servers and clients of HTTP/1.1, on Unix sockets and TCP, by hyper and axum; and
//! of HTTP/2 where requests are streams ([`Listen::streams`]).
//!
//! A [`Server`] serves an [`axum::Router`] at an address ([`Listen`]). Servers of one
//! [`ClientGroup`] share one thread, which never blocks. A few helper threads do long work
//! ([`blocking`]); clients take turns there. No group waits for another. Each part of the program
//! that serves something makes a router of its own, and routers are merged. [`Response`] is JSON
//! with a status. A client calls [`ask`] for a whole answer or [`open`] for a stream.
//!
//! Always true: requests are bounded in size and in time; a connection is closed if the client does
//! not read its answers; the number of connections is bounded, and further ones wait or are closed;
//! no request ends a server. A client with the role [`Role::Read`] cannot change anything: requests
//! by other methods than GET are refused before a router sees them.
//!
//! ```
//! use axum::{Router, routing::get};
//! use natgate_http::{Listen, Response, Server, ask, fallbacks};
//! use serde_json::json;
//! use std::time::Duration;
//!
//! let folder = std::env::temp_dir().join(format!("natgate-example-{}", std::process::id()));
//! let path = folder.join("control.sock");
//! let status = Router::new().route("/v1/status", get(async || Response::done(json!("running"))));
//! let server = Server::start(Listen::unix(&path), fallbacks(status, "try /v1/status"))?;
//! let answer = ask(&path, "GET", "/v1/status", &json!(null), Duration::from_secs(60))?;
//! assert_eq!((answer.status, answer.body), (200, json!("running")));
//! drop(server);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod activity;
mod answer;
mod client;
mod clients;
mod connection;
mod host;
mod listener;
mod role;
mod room;
mod server;
#[cfg(test)]
mod tests;
mod tls;
mod work;

pub use answer::{Message, Response, fallbacks};
pub use client::{AskError, Owner, Reply, ask, listener, open, owner};
pub use clients::{ClientGroup, Peer, Place, Places};
pub use connection::{MOST_BODY, MOST_HEAD};
pub use host::{HostError, HostNames};
pub use listener::{BindError, Listen};
pub use role::Role;
pub use room::MOST_CONNECTIONS;
pub use server::Server;
pub use tls::{LoadedTls, Tls, TlsError, TlsFiles, Validity};
pub use work::{blocking, pieces};

/// Path of the control socket unless the configuration says otherwise.
pub const DEFAULT_PATH: &str = "/run/natgate/control.sock";
