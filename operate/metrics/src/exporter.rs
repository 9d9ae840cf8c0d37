//! The HTTP server of the page for Prometheus at `/metrics`. It answers every client under an
//! address, `localhost`, or a name that the configuration lists.
//!
//! Figures are asked for at a request and are then valid for a moment, so that the number of
//! requests to the gateway does not grow with the number of scrapers.

use crate::{Figures, prometheus_text};
use axum::Router;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::get;
use natgate_http::{
    BindError, ClientGroup, HostNames, Listen, Response, Server, blocking, fallbacks,
};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which figures are valid.
const FRESH: Duration = Duration::from_millis(500);

/// The source of figures. It may wait; its error says why there are none.
pub type Source = Arc<dyn Fn() -> Result<Figures, String> + Send + Sync>;

/// Connections of the server at a time ([`Listen::at_most`]).
pub const MOST_SCRAPERS: usize = 64;

/// Serves the page at a TCP port until the server that is returned is dropped.
///
/// `names` are host names, besides addresses and `localhost`, under which the page may be asked
/// for. `refused` counts the connections that are closed to keep to [`MOST_SCRAPERS`].
///
/// # Errors
/// [`BindError`].
pub fn export(
    address: SocketAddr,
    names: &[String],
    source: Source,
    refused: Arc<AtomicU64>,
) -> Result<Server, BindError> {
    let cache = Arc::new(PageCache { source, latest: Mutex::new(None) });
    let page = move || {
        let cache = Arc::clone(&cache);
        async move {
            match blocking(move || cache.page()).await {
                Ok(Ok((text, kind))) => ([(CONTENT_TYPE, kind)], text).into_response(),
                Ok(Err(message)) => Response::failure(503, message).into_response(),
                Err(failure) => failure.into_response(),
            }
        }
    };
    let home = async || -> HttpResponse { "natgate: metrics are at /metrics\n".into_response() };
    let router = Router::new().route("/metrics", get(page)).route("/", get(home));
    let names = Arc::new(HostNames::new(names));
    let check = move |request: Request, next: Next| {
        let checked = names.check(request.uri(), request.headers());
        async move {
            match checked {
                Ok(()) => next.run(request).await,
                Err(error) => {
                    let (status, message) = error.answer("these metrics", "metrics.names");
                    Response::failure(status.as_u16(), message).into_response()
                }
            }
        }
    };
    let router = fallbacks(router, "metrics are at /metrics").layer(from_fn(check));
    let listen = Listen::tcp(address).clients(ClientGroup::Metrics);
    Server::start(listen.at_most(MOST_SCRAPERS, refused), router)
}

/// A page and its type.
type Page = (String, &'static str);

/// The latest page.
struct PageCache {
    source: Source,
    latest: Mutex<Option<(Instant, Page)>>,
}

impl PageCache {
    /// The page now. Requests wait while another one makes it.
    fn page(&self) -> Result<Page, String> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, page)) = &*latest
            && made.elapsed() < FRESH
        {
            return Ok(page.clone());
        }
        let page = prometheus_text(&(self.source)()?);
        *latest = Some((Instant::now(), page.clone()));
        Ok(page)
    }
}
