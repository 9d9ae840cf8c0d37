//! Answers: JSON with a status, and failures for paths and methods that do not exist.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response as HttpResponse};
use serde_json::{Value, json};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// HTTP's status code.
    pub status: u16,
    /// The body.
    pub body: Value,
}

impl Response {
    /// A success, with the requested body.
    pub fn done(body: Value) -> Self {
        Self { status: 200, body }
    }

    /// A failure, told in one sentence.
    pub fn failure(status: u16, message: impl Into<String>) -> Self {
        Self { status, body: json!({ "ok": false, "message": message.into() }) }
    }
}

/// The sentence of a failure, as an extension of the HTTP response: for layers that look at
/// answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(pub String);

impl IntoResponse for Response {
    fn into_response(self) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = HeaderValue::from_static("application/json");
        let message = self.body["message"].as_str().map(|message| Message(message.to_owned()));
        let text = format!("{}\n", self.body);
        let mut response = (status, [(header::CONTENT_TYPE, json)], text).into_response();
        message.and_then(|message| response.extensions_mut().insert(message));
        response
    }
}

/// Has a router say in a sentence that there is no such path, with a hint where to look, or that it
/// does not take this method.
pub fn fallbacks(router: Router, hint: &'static str) -> Router {
    let missing = move |request: Request| async move {
        Response::failure(404, format!("there is no {}; {hint}", request.uri().path()))
    };
    let other_method = |request: Request| async move {
        let (method, path) = (request.method(), request.uri().path());
        Response::failure(405, format!("{path} does not take {method}"))
    };
    router.fallback(missing).method_not_allowed_fallback(other_method)
}
