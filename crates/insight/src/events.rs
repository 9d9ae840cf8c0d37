//! GET /v1/events: what happens from now on, one JSON object a line, for as long as the client listens.
//!
//! Each listener has a queue of its own, of bounded length: who is slow is told how much is missing.

use crate::paths::Pieces;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State, rejection::QueryRejection};
use axum::http::header;
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::get;
use axum::{Extension, Router};
use natgate_gateway::{LogWhat, Settings};
use natgate_http::{ClientGroup, Places, Response};
use natgate_logs::{Names, Subscribers, Subscription, record};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Sender, channel};

/// Clients of one group that may listen at a time.
const MOST_LISTENERS: usize = 16;

/// Events that wait for a listener, and how many make one piece.
const WAITING: usize = 4096;
const PIECE: usize = 256;

/// Pieces that wait for the client.
const PIECES: usize = 4;

/// How long the thread sleeps when nothing happens; after [`SIGN_OF_LIFE`] an empty line goes out, else
/// nobody would notice that the client has gone.
const PATIENCE: Duration = Duration::from_millis(250);
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Of {
    subscribers: Subscribers,
    settings: Arc<dyn Fn() -> Arc<Settings> + Send + Sync>,
    listeners: Places,
}

/// The path, for a gateway whose settings in force `settings` tells.
pub fn router(
    subscribers: Subscribers,
    settings: impl Fn() -> Arc<Settings> + Send + Sync + 'static,
) -> Router {
    let of =
        Of { subscribers, settings: Arc::new(settings), listeners: Places::new(MOST_LISTENERS) };
    Router::new().route("/v1/events", get(events)).with_state(of)
}

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    what: Option<What>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Mappings,
    Blocks,
    Sessions,
}

async fn events(
    State(of): State<Of>,
    Extension(group): Extension<ClientGroup>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<HttpResponse, Response> {
    let Query(asked) = asked.map_err(|error| Response::failure(400, error.body_text()))?;
    let what = match asked.what {
        None | Some(What::Mappings) => LogWhat::Mappings,
        Some(What::Blocks) => LogWhat::Blocks,
        Some(What::Sessions) => LogWhat::Sessions,
    };
    let place = of.listeners.take(group).ok_or_else(|| {
        let message = format!("{MOST_LISTENERS} listen already, as many as may; end one");
        Response::failure(503, message)
    })?;
    let subscription = of.subscribers.listen(WAITING, what);
    let (pieces, body) = channel(PIECES);
    let work = move || {
        let _place = place;
        tell(&subscription, &pieces, &|| Names::of(&(of.settings)().engine));
    };
    let thread = std::thread::Builder::new().name("events".into()).spawn(work);
    thread.map_err(|error| Response::failure(503, format!("a thread cannot be made: {error}")))?;
    let body = Body::from_stream(Pieces(body));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Tells a client what happens until it has gone.
fn tell(subscription: &Subscription, pieces: &Sender<Bytes>, names: &dyn Fn() -> Names) {
    let (mut records, mut told) = (Vec::with_capacity(PIECE), Instant::now());
    while !pieces.is_closed() {
        subscription.take(PIECE, PATIENCE, &mut records);
        if records.is_empty() && told.elapsed() < SIGN_OF_LIFE {
            continue;
        }
        let (names, mut piece) = (names(), Vec::new());
        for one in records.drain(..) {
            // What is written to memory can only fail for want of it.
            let _ = serde_json::to_writer(&mut piece, &record(&one, &names, false));
            piece.push(b'\n');
        }
        if piece.is_empty() {
            piece.push(b'\n');
        }
        if pieces.blocking_send(piece.into()).is_err() {
            return;
        }
        told = Instant::now();
    }
}
