//! The log line of each request that may change something: client, request, result.
//!
//! A layer around all paths writes the line, so a new path gets one without further code. Requests
//! that only read have no line. Requests that the client's role does not allow are refused before
//! this layer.

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use axum::response::Response as HttpResponse;
use natgate_http::{Message, Peer};
use std::sync::Arc;

/// Most characters of a request's path and query in the line.
const LONGEST: usize = 200;

/// Requests with a body that only ask.
const QUESTIONS: [&str; 1] = ["/v1/trace"];

/// Writes a line for the operator.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// The change that a request made, as an extension of the response.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The request changes nothing.
    Nothing,
    /// A change, in one sentence.
    Done(String),
}

/// Wraps a router so that each change is logged.
pub fn logged(router: Router, tell: &Tell) -> Router {
    let tell = Arc::clone(tell);
    router.layer(from_fn(move |request: Request, next: Next| {
        let tell = Arc::clone(&tell);
        async move { log(&tell, request, next).await }
    }))
}

/// Formats the line of a change.
pub fn line(who: &str, request: &str, result: &str) -> String {
    format!("change by {who}: {request}: {result}")
}

async fn log(tell: &Tell, request: Request, next: Next) -> HttpResponse {
    if matches!(*request.method(), Method::GET | Method::HEAD)
        || QUESTIONS.contains(&request.uri().path())
    {
        return next.run(request).await;
    }
    let who = request.extensions().get::<Peer>().cloned().unwrap_or(Peer::Unknown).to_string();
    let path = request.uri().path_and_query().map_or("", |all| all.as_str());
    let path: String = path.chars().take(LONGEST).collect();
    let what = format!("{} {path}", request.method());
    let response = next.run(request).await;
    let result = match (response.extensions().get(), response.extensions().get::<Message>()) {
        (Some(Change::Nothing), _) => return response,
        (Some(Change::Done(text)), _) => text.clone(),
        (None, Some(Message(message))) => format!("refused: {message}"),
        (None, None) => format!("status {}", response.status().as_u16()),
    };
    tell(line(&who, &what, &result));
    response
}
