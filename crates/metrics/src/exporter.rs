//! Serves the page for Prometheus at `/metrics`, by HTTP and to whoever may connect, under an
//! address, `localhost`, or a name that the configuration lists.
//!
//! Figures are asked for when somebody comes and then hold for a moment, so that however many scrape, the
//! gateway is asked so often and no more.

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

/// How long figures hold.
const FRESH: Duration = Duration::from_millis(500);

/// Where figures come from; it may wait for them, and says why there are none.
pub type Source = Arc<dyn Fn() -> Result<Figures, String> + Send + Sync>;

/// Connections of the server at a time; further ones are closed at once.
pub const MOST_SCRAPERS: usize = 64;

/// Serves the page at a TCP port from now on, until what is returned goes.
///
/// `names` are host names, besides addresses and `localhost`, under which the page may be asked
/// for. `refused` counts the connections beyond [`MOST_SCRAPERS`].
///
/// # Errors
/// [`BindError`].
pub fn export(
    address: SocketAddr,
    names: &[String],
    source: Source,
    refused: Arc<AtomicU64>,
) -> Result<Server, BindError> {
    let pages = Arc::new(Pages { source, latest: Mutex::new(None) });
    let page = move || {
        let pages = Arc::clone(&pages);
        async move {
            match blocking(move || pages.page()).await {
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

/// The page as it was last made.
struct Pages {
    source: Source,
    latest: Mutex<Option<(Instant, Page)>>,
}

impl Pages {
    /// The page now; who comes while it is made waits for it.
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
