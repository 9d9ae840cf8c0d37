//! GET /v1/events: events from now on, one JSON object a line, for as long as the client listens.
//!
//! Each listener has a queue of its own, of bounded length: a slow client reads how many events are
//! missing.

use crate::api::BodyPieces;
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

/// Most listeners of one group of clients.
const MOST_LISTENERS: usize = 16;

/// Most events that wait for a listener, and most events of one piece.
const WAITING: usize = 4096;
const PIECE: usize = 256;

/// Most pieces that wait for the client.
const PIECES: usize = 4;

/// Longest sleep of the thread without events. After [`SIGN_OF_LIFE`] an empty line is sent, which
/// fails if the client has gone.
const PATIENCE: Duration = Duration::from_millis(250);
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct EventSource {
    subscribers: Subscribers,
    settings: Arc<dyn Fn() -> Arc<Settings> + Send + Sync>,
    listeners: Places,
}

/// The route; `settings` gives the settings in force.
pub fn router(
    subscribers: Subscribers,
    settings: impl Fn() -> Arc<Settings> + Send + Sync + 'static,
) -> Router {
    let source = EventSource {
        subscribers,
        settings: Arc::new(settings),
        listeners: Places::new(MOST_LISTENERS),
    };
    Router::new().route("/v1/events", get(events)).with_state(source)
}

/// The query of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    what: Option<EventScope>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EventScope {
    Mappings,
    Blocks,
    Sessions,
}

async fn events(
    State(source): State<EventSource>,
    Extension(group): Extension<ClientGroup>,
    asked: Result<Query<EventQuery>, QueryRejection>,
) -> Result<HttpResponse, Response> {
    let Query(asked) = asked.map_err(|error| Response::failure(400, error.body_text()))?;
    let what = match asked.what {
        None | Some(EventScope::Mappings) => LogWhat::Mappings,
        Some(EventScope::Blocks) => LogWhat::Blocks,
        Some(EventScope::Sessions) => LogWhat::Sessions,
    };
    let place = source.listeners.take(group).ok_or_else(|| {
        let message = format!("{MOST_LISTENERS} listen already, as many as may; end one");
        Response::failure(503, message)
    })?;
    let subscription = source.subscribers.listen(WAITING, what);
    let (pieces, body) = channel(PIECES);
    let work = move || {
        let _place = place;
        send_events(&subscription, &pieces, &|| names(&(source.settings)()));
    };
    let thread = std::thread::Builder::new().name("events".into()).spawn(work);
    thread.map_err(|error| Response::failure(503, format!("a thread cannot be made: {error}")))?;
    let body = Body::from_stream(BodyPieces(body));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Sends events to a client until it has gone.
fn send_events(subscription: &Subscription, pieces: &Sender<Bytes>, names: &dyn Fn() -> Names) {
    let (mut records, mut sent) = (Vec::with_capacity(PIECE), Instant::now());
    while !pieces.is_closed() {
        subscription.take(PIECE, PATIENCE, &mut records);
        if records.is_empty() && sent.elapsed() < SIGN_OF_LIFE {
            continue;
        }
        let (names, mut piece) = (names(), Vec::new());
        for place in 0..records.len() {
            let Some(object) = record(&records, place, &names, false) else { continue };
            // Writing to memory does not fail.
            let _ = serde_json::to_writer(&mut piece, &object);
            piece.push(b'\n');
        }
        records.clear();
        if piece.is_empty() {
            piece.push(b'\n');
        }
        if pieces.blocking_send(piece.into()).is_err() {
            return;
        }
        sent = Instant::now();
    }
}

/// Names of a configuration.
fn names(settings: &Settings) -> Names {
    Names::of_settings(settings).of_pair(settings.fleet.as_ref())
}
