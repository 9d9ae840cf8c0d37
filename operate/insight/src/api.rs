//! The routes POST /v1/trace and GET /v1/capture.

use crate::explanation;
use crate::filter::CaptureRequest;
use crate::packet::PacketDescription;
use crate::pcapng::CaptureWriter;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State, rejection::QueryRejection};
use axum::http::header;
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{get, post};
use axum::{Extension, Router};
use natgate_gateway::capture::{self, Capture};
use natgate_gateway::{Clock, CommandError, Commander, Settings};
use natgate_http::{ClientGroup, Places, Response, Role, blocking};
use serde::Deserialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pause between two reads of captured packets.
const INTERVAL: Duration = Duration::from_millis(20);

/// Interval of statistics while no packet comes; writing them fails if the client has gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Most captures of clients from other machines: one is left to operators at the Unix socket.
const MOST_REMOTE: usize = capture::MOST - 1;

/// Most pieces of a capture that wait for the client.
const WAITING: usize = 16;

/// The gateway that is asked: its workers, its clock and its configuration in force.
#[derive(Clone)]
struct TracedGateway {
    commander: Commander,
    clock: Clock,
    settings: Arc<dyn Fn() -> Arc<Settings> + Send + Sync>,
    /// Places for captures of clients that are no operators at the Unix socket.
    captures: Places,
}

/// The routes; `settings` gives the settings in force.
pub fn router(
    commander: Commander,
    clock: Clock,
    settings: impl Fn() -> Arc<Settings> + Send + Sync + 'static,
) -> Router {
    Router::new().route("/v1/trace", post(trace)).route("/v1/capture", get(capture)).with_state(
        TracedGateway {
            commander,
            clock,
            settings: Arc::new(settings),
            captures: Places::new(MOST_REMOTE),
        },
    )
}

/// The body of a request to `/v1/trace`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceRequest {
    packet: String,
}

async fn trace(State(of): State<TracedGateway>, body: Bytes) -> Result<Response, Response> {
    blocking(move || of.trace(&body).unwrap_or_else(|failure| failure)).await
}

impl TracedGateway {
    fn trace(&self, body: &[u8]) -> Result<Response, Response> {
        let wrong = |message| Response::failure(400, message);
        let TraceRequest { packet } = serde_json::from_slice(body)
            .map_err(|error| wrong(format!("the body is wrong: {error}")))?;
        let description: PacketDescription = packet.parse().map_err(wrong)?;
        let settings = (self.settings)();
        let config = &settings.engine;
        let probe = description.probe(config, &settings.ipv6).map_err(wrong)?;
        let asked = (probe.link, probe.packet.clone());
        let traced = self.commander.trace(probe).map_err(refused)?;
        let (now, workers) = (self.clock.now(), self.commander.workers());
        Ok(Response::done(explanation::object((asked.0, &asked.1), &traced, now, config, workers)))
    }
}

fn refused(error: CommandError) -> Response {
    Response::failure(503, error.to_string())
}

async fn capture(
    State(of): State<TracedGateway>,
    Extension(role): Extension<Role>,
    Extension(group): Extension<ClientGroup>,
    asked: Result<Query<CaptureRequest>, QueryRejection>,
) -> Result<HttpResponse, Response> {
    if role < Role::Operate {
        let message = "GET /v1/capture needs the role operate, for it shows what subscribers send; \
                       use the control socket";
        return Err(Response::failure(403, message));
    }
    let Query(asked) = asked.map_err(|error| Response::failure(400, error.body_text()))?;
    let wrong = |message| Response::failure(400, message);
    let (filter, duration) = (asked.filter().map_err(wrong)?, asked.duration().map_err(wrong)?);
    let place = match group {
        ClientGroup::Operators => None,
        _ => Some(of.captures.take(group).ok_or_else(|| refused(CommandError::Captures))?),
    };
    let capture =
        blocking(move || Capture::begin(&of.commander, filter)).await?.map_err(refused)?;
    let (pieces, body) = channel(WAITING);
    let most = asked.count.unwrap_or(u64::MAX);
    let work = move || {
        let _place = place;
        pump(capture, &pieces, Instant::now() + duration, most);
    };
    let thread = std::thread::Builder::new().name("capture".into()).spawn(work);
    thread.map_err(|error| Response::failure(503, format!("a thread cannot be made: {error}")))?;
    let body = Body::from_stream(BodyPieces(body));
    Ok(([(header::CONTENT_TYPE, "application/x-pcapng")], body).into_response())
}

/// The body of a response, made piece by piece by a thread.
pub(crate) struct BodyPieces(pub(crate) Receiver<Bytes>);

impl futures_util::Stream for BodyPieces {
    type Item = Result<Bytes, io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|piece| piece.map(Ok))
    }
}

/// The output of a capture: pieces for the client.
struct BodyWriter<'s> {
    pieces: &'s Sender<Bytes>,
    piece: Vec<u8>,
}

impl Write for BodyWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        if piece.is_empty() {
            return Ok(());
        }
        // While the client is slow the rings fill up, and packets without room are counted.
        self.pieces.blocking_send(piece.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Sends packets to the client until it has gone, has enough, or the time is up. The only failure
/// is a client that has gone.
fn pump(mut capture: Capture, pieces: &Sender<Bytes>, until: Instant, most: u64) {
    let mut write = || -> io::Result<()> {
        let mut stream = CaptureWriter::new(BodyWriter { pieces, piece: Vec::new() })?;
        stream.flush()?;
        let mut told = Instant::now();
        while !pieces.is_closed() && !capture.is_over() {
            let (over, mut failed) = (Instant::now() >= until, None);
            capture.read(|record| {
                if stream.written() < most && failed.is_none() {
                    failed = stream.put(&record).err();
                }
            });
            failed.map_or(Ok(()), Err)?;
            if told.elapsed() >= SIGN_OF_LIFE {
                stream.statistics()?;
                told = Instant::now();
            }
            stream.flush()?;
            if over || stream.written() >= most {
                return stream.finish().map(drop);
            }
            std::thread::sleep(INTERVAL);
        }
        stream.finish().map(drop)
    };
    let _ = write();
}
