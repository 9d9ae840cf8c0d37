//! Admission of requests: by the method, the host name, and the website that made the browser ask.
//!
//! Names are checked as every server here checks them ([`HostNames`]), against DNS rebinding.

use axum::http::header::{self, HeaderMap};
use axum::http::{HeaderName, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use natgate_http::{HostError, HostNames};

/// The header in which browsers name the origin of a request (Fetch Metadata Request Headers).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Longest part of a method that an error message shows, characters.
const LONGEST_SHOWN: usize = 80;

pub(crate) struct AccessCheck {
    names: HostNames,
}

/// The reason why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The method would change something.
    Method(String),
    /// The host is no name of the page.
    Host(HostError),
    /// Another website made the browser ask.
    Foreign,
}

impl AccessCheck {
    pub(crate) fn new(names: &[String]) -> Self {
        Self { names: HostNames::new(names) }
    }

    /// Admits or refuses a request.
    pub(crate) fn admit(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        if *method != Method::GET && *method != Method::HEAD {
            return Err(Refusal::Method(shown(method.as_str())));
        }
        self.names.check(uri, headers).map_err(Refusal::Host)?;
        // Other websites may link to the page, and may not read its files and figures.
        match headers.get(FETCH_SITE).map(|site| site.as_bytes()) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) if uri.path() == "/" => Ok(()),
            Some(_) => Err(Refusal::Foreign),
        }
    }
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
            Self::Host(error) => error.answer("this page", "page.names"),
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
        let gate = AccessCheck::new(&["NAT1.example.net".to_owned()]);
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
            assert_eq!(
                ask(&[host], None, "/"),
                Err(Refusal::Host(HostError::Other(name))),
                "{host}"
            );
        }
    }

    #[test]
    fn a_host_must_be_there_once_and_be_one() {
        let cases: [&[&str]; 5] =
            [&[], &["127.0.0.1", "127.0.0.1"], &["a@127.0.0.1"], &["not a host"], &[":9465"]];
        for hosts in cases {
            assert_eq!(ask(hosts, None, "/"), Err(Refusal::Host(HostError::Missing)), "{hosts:?}");
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
        let gate = AccessCheck::new(&[]);
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
