//! Settings of health checks, and the text of an HTTP request.

use std::time::Duration;

/// Most servers of a gateway that are checked.
pub const MOST_CHECKED: usize = 1024;

/// Most bytes of a request of HTTP. It fits one segment of any host (RFC 9293 section 3.7.1).
pub const LONGEST_REQUEST: usize = 500;

/// A message that a server answers if it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A connection of TCP: the server accepts the SYN.
    Tcp,
    /// An echo request of ICMP: the server replies.
    Icmp,
    /// A GET of HTTP/1.0, to which no server sends interim responses (RFC 9110 section 15.2): the
    /// status of the response is 200 to 399.
    Http {
        /// Path, with a query if there is one.
        path: String,
        /// Host name in the request; `None`: the server's endpoint.
        host: Option<String>,
    },
}

impl CheckKind {
    /// Name of the kind in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Icmp => "icmp",
            Self::Http { .. } => "http",
        }
    }

    /// The request of a check of HTTP to a server; empty for other kinds.
    pub fn request(&self, server: std::net::SocketAddrV4) -> String {
        let Self::Http { path, host } = self else { return String::new() };
        let host = host.clone().unwrap_or_else(|| server.to_string());
        let end = "User-Agent: natgate\r\nConnection: close\r\n\r\n";
        format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{end}")
    }
}

/// Health checks of the servers of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// The message.
    pub kind: CheckKind,
    /// Port of the server that is asked; `None`: its port in the service.
    pub port: Option<u16>,
    /// Time from one check of a server to the next.
    pub interval: Duration,
    /// Time after which a check without an answer has failed, at most the interval.
    pub timeout: Duration,
    /// Failed checks in a row after which a server is down.
    pub failures: u8,
    /// Successful checks in a row after which a server is up again.
    pub successes: u8,
    /// True if the sessions of a server end when it goes down.
    pub ends_sessions: bool,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            kind: CheckKind::Tcp,
            port: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            failures: 3,
            successes: 2,
            ends_sessions: false,
        }
    }
}
