//! Roles of clients: some may only ask, others may do everything.

use crate::Response;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response as HttpResponse};

/// Rights of a client. Each request has its client's role as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The client may ask: GET.
    Read,
    /// The client may do everything.
    Operate,
}

impl Role {
    /// Name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

/// Refuses a request that changes something if its client may only ask.
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
