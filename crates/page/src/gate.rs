//! Who gets an answer: the method, the name that was asked for, and who had the browser ask.
//!
//! A browser lets scripts of a website read what comes from that website's own name. So a website
//! whose name is made to lead to this machine (DNS rebinding) could read the page, if the page
//! answered under any name. Addresses cannot be rebound; names are answered only if listed.

use axum::http::header::{self, HeaderMap};
use axum::http::uri::Authority;
use axum::http::{HeaderName, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// What browsers say about who makes them ask (Fetch Metadata Request Headers).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Names that are shown to whom they did not help are cut off here.
const LONGEST_SHOWN: usize = 80;

pub(crate) struct Gate {
    /// In lower case, without a dot at the end.
    names: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The method would change something.
    Method(String),
    /// There is no host, or it cannot be read.
    NoHost,
    /// This is no name of the page.
    Name(String),
    /// Another website had the browser ask.
    Foreign,
}

impl Gate {
    pub(crate) fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| plain(name)).collect() }
    }

    /// Whether a request may be answered.
    pub(crate) fn admit(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        if *method != Method::GET && *method != Method::HEAD {
            return Err(Refusal::Method(shown(method.as_str())));
        }
        let host = host_of(uri, headers).ok_or(Refusal::NoHost)?;
        if !self.is_own(&host) {
            return Err(Refusal::Name(shown(&host)));
        }
        // A link from elsewhere may lead to the page; its files and figures are the page's alone.
        match headers.get(FETCH_SITE).map(|site| site.as_bytes()) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) if uri.path() == "/" => Ok(()),
            Some(_) => Err(Refusal::Foreign),
        }
    }

    /// Whether the page may be asked for under this name.
    fn is_own(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let name = plain(host);
        bare.parse::<IpAddr>().is_ok() || name == "localhost" || self.names.contains(&name)
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

/// A name as it is compared.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, message) = match self {
            Self::Method(method) => (
                StatusCode::METHOD_NOT_ALLOWED,
                format!(
                    "the page only reads, so {method} is refused; use GET, or the control socket"
                ),
            ),
            Self::NoHost => (
                StatusCode::BAD_REQUEST,
                "the request has no readable Host header; send one, such as 127.0.0.1:9465".into(),
            ),
            Self::Name(name) => (
                StatusCode::MISDIRECTED_REQUEST,
                format!(
                    "{name:?} is no name of this page; ask for it by its address, or list the name \
                     as page.names in the configuration"
                ),
            ),
            Self::Foreign => (
                StatusCode::FORBIDDEN,
                "another website had the browser ask for this; open the page itself".into(),
            ),
        };
        let allow =
            (status == StatusCode::METHOD_NOT_ALLOWED).then_some([(header::ALLOW, "GET, HEAD")]);
        match allow {
            Some(allow) => (status, allow, message + "\n").into_response(),
            None => (status, message + "\n").into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(host: &[&str], site: Option<&str>, path: &str) -> Result<(), Refusal> {
        let gate = Gate::new(&["NAT1.example.net".to_owned()]);
        let mut headers = HeaderMap::new();
        for host in host {
            headers.append(header::HOST, host.parse().unwrap());
        }
        if let Some(site) = site {
            headers.insert(FETCH_SITE, site.parse().unwrap());
        }
        gate.admit(&Method::GET, &path.parse().unwrap(), &headers)
    }

    #[test]
    fn addresses_and_listed_names_are_answered() {
        for host in [
            "127.0.0.1:9465",
            "127.0.0.1",
            "[::1]:9465",
            "192.0.2.7:80",
            "localhost:9465",
            "LOCALHOST",
            "nat1.example.net",
            "NAT1.example.NET.:9465",
        ] {
            assert_eq!(ask(&[host], None, "/v1/counters"), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_rebound_name_is_refused() {
        for host in [
            "evil.example",
            "evil.example:9465",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "nat1.example.net.evil.example",
            "0x7f000001",
            "127.1",
        ] {
            let name = host.split(':').next().unwrap().to_owned();
            assert_eq!(ask(&[host], None, "/"), Err(Refusal::Name(name)), "{host}");
        }
    }

    #[test]
    fn a_host_must_be_there_once_and_be_one() {
        let cases: [&[&str]; 5] =
            [&[], &["127.0.0.1", "127.0.0.1"], &["a@127.0.0.1"], &["not a host"], &[":9465"]];
        for hosts in cases {
            assert_eq!(ask(hosts, None, "/"), Err(Refusal::NoHost), "{hosts:?}");
        }
    }

    #[test]
    fn other_websites_may_link_to_the_page_and_read_nothing() {
        let host = ["127.0.0.1:9465"];
        assert_eq!(ask(&host, Some("same-origin"), "/v1/who"), Ok(()));
        assert_eq!(ask(&host, Some("none"), "/v1/who"), Ok(()));
        assert_eq!(ask(&host, Some("cross-site"), "/"), Ok(()));
        for site in ["cross-site", "same-site", "nonsense"] {
            assert_eq!(ask(&host, Some(site), "/v1/who"), Err(Refusal::Foreign));
        }
    }

    #[test]
    fn only_reading_passes() {
        let gate = Gate::new(&[]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "127.0.0.1".parse().unwrap());
        let try_it = |method: &Method| gate.admit(method, &"/v1/clear".parse().unwrap(), &headers);
        assert_eq!(try_it(&Method::HEAD), Ok(()));
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE] {
            assert_eq!(try_it(&method), Err(Refusal::Method(method.to_string())));
        }
        let long = Method::from_bytes(&[b'X'; 300]).unwrap();
        assert!(matches!(try_it(&long), Err(Refusal::Method(name)) if name.len() == 83));
    }
}
