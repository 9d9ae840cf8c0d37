//! The web page of a running gateway.
//!
//! The files of the page are in `assets/`. They are compiled in, so the page needs no network and
//! no other file. They are served as written: there is no build step. The page reads its figures
//! from the paths under `/v1/`, which the control crate serves. [`router`] puts both on one origin
//! and admits or refuses requests.
//!
//! Always true: only GET and HEAD pass, so the page changes nothing. A request is answered only
//! under an address, or a name that the operator has listed, so a foreign website cannot become the
//! page's origin by DNS rebinding. Requests that a foreign website made a browser send are refused.
//! The browser loads and runs only these files.
//!
//! ```no_run
//! use axum::Router;
//! use natgate_http::{Listen, Server};
//!
//! let api = Router::new();
//! let page = natgate_web::router(api, &["gateway.example.org".to_owned()]);
//! let server = Server::start(Listen::tcp(([127, 0, 0, 1], 8080).into()), page)?;
//! println!("http://{}", server.address().expect("a TCP port"));
//! # Ok::<(), natgate_http::BindError>(())
//! ```

#![forbid(unsafe_code)]

mod access;
mod assets;

use access::AccessCheck;
use axum::Router;
use axum::extract::Request;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::any_service;
use std::sync::Arc;

/// Connections of the page at a time ([`natgate_http::Listen::at_most`]).
pub const MOST_BROWSERS: usize = 64;

/// The content security policy: these files and the interface, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Headers that every answer has.
const HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The page and the interface it reads, on one origin.
///
/// `api` answers the paths under `/v1/`, for clients with the role `read`. `names` are host names,
/// besides addresses and `localhost`, under which the page may be asked for.
pub fn router(api: Router, names: &[String]) -> Router {
    let access = Arc::new(AccessCheck::new(names));
    let pass = move |request: Request, next: Next| {
        let access = Arc::clone(&access);
        async move { guarded(&access, request, next).await }
    };
    assets::routes()
        .route("/v1/{*path}", any_service(api))
        .fallback(unknown)
        .layer(middleware::from_fn(pass))
}

/// Answers an admitted request or says why it is refused; both with the page's headers.
async fn guarded(access: &AccessCheck, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/v1/");
    let mut response = match access.admit(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    protect(response.headers_mut());
    // Figures are of the moment and never come from a cache.
    if is_api {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn protect(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

async fn unknown(uri: Uri) -> Response {
    let message = format!("there is no {} here; the page is at /\n", uri.path());
    (StatusCode::NOT_FOUND, message).into_response()
}
