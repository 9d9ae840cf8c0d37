//! A connection: requests come in, by HTTP/1.1 whole and within a time and a size, and answers go
//! out.

use crate::activity::{Activity, ObservedStream};
use crate::listener::{NewConnection, Protocol, Stream};
use crate::tls::AuthenticatedClient;
use crate::work::{Client, answered_for};
use crate::{ClientGroup, Peer, Response, Role, role};
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::{Extension, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_io_timeout::TimeoutStream;

/// Longest head of a request, bytes.
pub const MOST_HEAD: usize = 16 << 10;
/// Longest body of a request, bytes.
pub const MOST_BODY: usize = 1 << 20;

/// Requests of one connection at a time, where they are streams.
const MOST_STREAMS: u32 = 64;

/// Time for a request's head to come in, and for its body; also the time for which a connection
/// that could carry another request is kept.
pub(crate) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// Longest time in which a client may read nothing of an answer.
const STALLED: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// A router for each role, with what holds for all requests.
#[derive(Clone)]
pub(crate) struct Routers {
    read: Router,
    operate: Router,
    /// Role of clients without a certificate.
    plain: Role,
    group: ClientGroup,
    protocol: Protocol,
}

impl Routers {
    pub(crate) fn new(router: Router, plain: Role, group: ClientGroup, protocol: Protocol) -> Self {
        let router = match protocol {
            Protocol::Whole => router.layer(from_fn(whole)),
            Protocol::Streams => router,
        };
        let router = router.layer(Extension(group));
        let (read, operate) = (allowed(router.clone(), Role::Read), allowed(router, Role::Operate));
        Self { read, operate, plain, group, protocol }
    }

    fn of(self, role: Role) -> Router {
        match role {
            Role::Read => self.read,
            Role::Operate => self.operate,
        }
    }
}

/// A router for clients that have a role.
fn allowed(router: Router, role: Role) -> Router {
    router.layer(from_fn(role::check)).layer(Extension(role))
}

/// Lets a request pass when it is there as a whole.
async fn whole(request: Request, next: Next) -> HttpResponse {
    let (head, body) = request.into_parts();
    let too_long =
        || Response::failure(413, format!("the body is too long: at most {MOST_BODY} bytes"));
    let announced = head.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > MOST_BODY as u64) {
        return too_long().into_response();
    }
    let bytes = tokio::time::timeout(PATIENCE, Limited::new(body, MOST_BODY).collect()).await;
    match bytes {
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes.to_bytes()))).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => too_long().into_response(),
        Ok(Err(_)) => Response::failure(400, "the body did not come whole").into_response(),
        Err(_) => {
            let message = format!("the body did not come within {} s", PATIENCE.as_secs());
            Response::failure(408, message).into_response()
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(
    arrived: NewConnection,
    activity: Activity,
    routers: Routers,
    watcher: Watcher,
) {
    let (group, protocol) = (routers.group, routers.protocol);
    match arrived {
        NewConnection::Plain(stream, peer) => {
            let role = routers.plain;
            let service = Named::new(routers.of(role), group, peer, activity);
            converse(stream, protocol, service, watcher).await;
        }
        NewConnection::Tls(stream, address, tls) => {
            // TLS itself tells a client that it has no trusted certificate.
            let greeted = tokio::time::timeout(PATIENCE, tls.greet(stream)).await;
            let Ok(Ok(greeted)) = greeted else { return };
            let AuthenticatedClient { stream, role, name, mut access } = greeted;
            let peer = Peer::Certificate(name, address);
            let service = Named::new(routers.of(role), group, peer, activity);
            let talk = converse(Box::new(stream), protocol, service, watcher);
            tokio::select! {
                () = talk => {}
                // Other files came into force, and they do not give this client the same rights.
                () = access.ended() => {}
            }
        }
    }
}

/// A router that tells each request its client, and the connection's state its answers.
#[derive(Clone)]
struct Named {
    router: TowerToHyperService<Router>,
    peer: Peer,
    client: Arc<Client>,
    activity: Activity,
}

impl Named {
    fn new(router: Router, group: ClientGroup, peer: Peer, activity: Activity) -> Self {
        let client = Arc::new(Client::of(group, &peer));
        Self { router: TowerToHyperService::new(router), peer, client, activity }
    }
}

impl Service<hyper::Request<Incoming>> for Named {
    type Response = HttpResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, Infallible>> + Send>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        let answering = self.activity.answer();
        request.extensions_mut().insert(self.peer.clone());
        let answer = answered_for(Arc::clone(&self.client), self.router.call(request));
        Box::pin(async move { Ok(answering.with(answer.await?)) })
    }
}

async fn converse(stream: Box<dyn Stream>, protocol: Protocol, service: Named, watcher: Watcher) {
    let mut stream = TimeoutStream::new(Box::into_pin(stream));
    stream.set_write_timeout(Some(STALLED));
    if protocol == Protocol::Streams {
        // A live client answers pings, so bytes come within this time.
        stream.set_read_timeout(Some(STALLED));
    }
    let stream = ObservedStream::new(Box::pin(stream), service.activity.clone());
    let stream = TokioIo::new(stream);
    // A client that sent rubbish has got an answer; a client that has gone needs none.
    match protocol {
        Protocol::Whole => {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(MOST_HEAD)
                .half_close(true);
            let _ = watcher.watch(http.serve_connection(stream, service)).await;
        }
        Protocol::Streams => {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new())
                .max_header_list_size(MOST_HEAD as u32)
                .max_concurrent_streams(MOST_STREAMS)
                .keep_alive_interval(Some(STALLED / 4))
                .keep_alive_timeout(STALLED / 2);
            let _ = watcher.watch(http.serve_connection(stream, service)).await;
        }
    }
}
