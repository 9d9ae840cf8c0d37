//! The name that a request asks for: an address, `localhost`, or a name that the operator lists.
//!
//! A browser lets scripts of a website read what comes from that website's own name. A website
//! whose name leads to this machine (DNS rebinding) could read every server here that answers any
//! name. Addresses cannot be rebound; other names are answered only if the configuration lists
//! them.

use axum::http::header::{self, HeaderMap};
use axum::http::uri::Authority;
use axum::http::{StatusCode, Uri};
use std::net::IpAddr;

/// Longest part of a name that a refusal repeats, characters.
const LONGEST_SHOWN: usize = 80;

/// The names under which a server answers, besides addresses and `localhost`.
#[derive(Clone, Debug)]
pub struct HostNames {
    /// Names in lower case, without a dot at the end.
    names: Vec<String>,
}

/// Reason why a request's host is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// There is no host, or it cannot be read, or there are several.
    Missing,
    /// The server does not answer under this name.
    Other(String),
}

impl HostNames {
    /// Host names from the configuration's list.
    pub fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| plain(name)).collect() }
    }

    /// Checks the host that a request asks for.
    ///
    /// # Errors
    /// [`HostError`] when it is to be refused.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HostError> {
        let host = host_of(uri, headers).ok_or(HostError::Missing)?;
        if self.is_own(&host) { Ok(()) } else { Err(HostError::Other(shown(&host))) }
    }

    /// True if the server answers under this name.
    fn is_own(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let name = plain(host);
        bare.parse::<IpAddr>().is_ok() || name == "localhost" || self.names.contains(&name)
    }
}

impl HostError {
    /// The status and the sentence of the refusal; `what` is refused, and `key` lists names for it.
    pub fn answer(&self, what: &str, key: &str) -> (StatusCode, String) {
        match self {
            Self::Missing => (
                StatusCode::BAD_REQUEST,
                "the request has no readable Host header; send one, such as 127.0.0.1:9465".into(),
            ),
            Self::Other(name) => (
                StatusCode::MISDIRECTED_REQUEST,
                format!(
                    "{name:?} is no name of {what}; ask for it by its address, or list the name \
                     as {key} in the configuration"
                ),
            ),
        }
    }
}

/// The host that was asked for, without its port; exactly one must be named.
fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let mut given = headers.get_all(header::HOST).iter();
    let (first, second) = (given.next(), given.next());
    let authority: Authority = match (uri.authority(), first, second) {
        (_, _, Some(_)) => return None,
        (_, Some(host), None) => host.to_str().ok()?.parse().ok()?,
        (Some(authority), None, None) => authority.clone(),
        (None, None, None) => return None,
    };
    let has_user = authority.as_str().contains('@');
    (!has_user && !authority.host().is_empty()).then(|| authority.host().to_owned())
}

/// A name in the form in which names are compared.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
