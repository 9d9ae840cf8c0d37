//! Who may do what.

use crate::Response;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response as HttpResponse};

/// What a client may do. It is there as an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Ask: GET.
    Read,
    /// Everything.
    Operate,
}

impl Role {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

/// Refuses what changes something to those who may only ask.
pub(crate) async fn check(request: Request, next: Next) -> HttpResponse {
    let role = request.extensions().get::<Role>().copied().unwrap_or(Role::Read);
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if changes && role < Role::Operate {
        let message = format!(
            "{} {} needs the role operate, and who comes this way has the role {}; use the control \
             socket",
            request.method(),
            request.uri().path(),
            role.name()
        );
        return Response::failure(403, message).into_response();
    }
    next.run(request).await
}
