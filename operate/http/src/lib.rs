//! HTTP/1.1 as the gateway serves and asks it: on Unix sockets and TCP, by hyper and axum; and
//! HTTP/2 where requests are streams ([`Listen::streams`]).
//!
//! A [`Server`] serves an [`axum::Router`] at an address ([`Listen`]). Servers of one
//! [`ClientGroup`] share one thread, which never blocks. A few helper threads do long work
//! ([`blocking`]); clients take turns there. No group waits for another. Each part of the program
//! that serves something makes a router of its own, and routers are merged. [`Response`] is JSON
//! with a status. [`ask`] and [`open`] are the client's end.
//!
//! Always true: what a client sends is bounded in size and in time, what it does not read is given
//! up, so many are served at a time and the others wait or are closed, and nothing that a client
//! sends ends a server. Who has the role [`Role::Read`] cannot change anything: requests by other
//! methods than GET are refused before a router sees them.

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
pub use server::{MOST_CONNECTIONS, Server};
pub use tls::{LoadedTls, Tls, TlsError, TlsFiles, Validity};
pub use work::{blocking, pieces};

/// Where the control socket is unless the configuration says otherwise.
pub const DEFAULT_PATH: &str = "/run/natgate/control.sock";
