//! The idle state of a connection. A connection is idle if no request of it is being answered and
//! no byte of an answer waits to be sent.
//!
//! A request is being answered from the end of its head until the last byte of the answer has
//! left for the system's buffers. A connection that sends the head of a request is idle.

use axum::body::{Body, Bytes};
use axum::response::Response as HttpResponse;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The state of one connection, shared by its task and by the admission of connections.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Requests of which the answer is not complete.
    answers: usize,
    /// Time since which the connection is idle, if it is.
    idle_since: Option<Instant>,
}

/// A request that is being answered; the answer is complete when this is dropped.
#[derive(Debug)]
pub(crate) struct Answering(Activity);

impl Activity {
    /// State of a connection that has just come in.
    pub(crate) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(State { answers: 0, idle_since: Some(now) })))
    }

    /// Time since which the connection is idle; `None`: it is not.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.state().idle_since
    }

    /// Notes that a request has come in.
    pub(crate) fn answer(&self) -> Answering {
        let mut state = self.state();
        state.answers += 1;
        state.idle_since = None;
        Answering(self.clone())
    }

    /// Notes that all written bytes have been sent.
    fn sent(&self, now: Instant) {
        let mut state = self.state();
        if state.answers == 0 && state.idle_since.is_none() {
            state.idle_since = Some(now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answering {
    /// The response, with a body that ends this answer when it goes.
    pub(crate) fn with(self, response: HttpResponse) -> HttpResponse {
        response.map(|body| Body::new(AnswerBody { body, _answering: self }))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.state().answers -= 1;
    }
}

/// The body of an answer.
struct AnswerBody {
    body: Body,
    _answering: Answering,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that notes when all written bytes have been sent. HTTP writes what it has before it
/// flushes the stream.
pub(crate) struct ObservedStream<S> {
    stream: S,
    activity: Activity,
}

impl<S> ObservedStream<S> {
    /// The stream of a connection with this state.
    pub(crate) fn new(stream: S, activity: Activity) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            self.activity.sent(Instant::now());
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
