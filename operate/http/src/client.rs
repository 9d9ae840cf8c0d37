//! The client's end: one request, and its answer at once or as it comes.

use crate::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io::{self, Read};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens, or the caller may not connect.
    #[error("{} cannot be reached: {}; {}", .0.display(), .1, hint(.1))]
    Unreachable(PathBuf, io::Error),
    /// The connection ended before the answer.
    #[error("{} did not answer: {}; {}", .0.display(), .1, silence(.1))]
    Unanswered(PathBuf, io::Error),
    /// The reply is no valid answer.
    #[error("{0}")]
    Odd(String),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "only its user and group may ask: join the group, or use sudo"
        }
        _ => "is `natgate run` running, and is this its control.socket?",
    }
}

fn silence(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::TimedOut => "the gateway is there and hangs: its log may say why",
        _ => "has the gateway just ended, or is this another program's socket?",
    }
}

/// Sends a request to a running gateway and waits for the answer, at most `patience`.
///
/// # Errors
/// [`AskError`] when there is no answer.
pub fn ask(
    socket: &Path,
    method: &str,
    path: &str,
    body: &Value,
    patience: Duration,
) -> Result<Response, AskError> {
    let mut reply = open(socket, method, path, &[], body, patience)?;
    let status = reply.status();
    let mut body = Vec::new();
    let unanswered = |error| AskError::Unanswered(socket.to_owned(), error);
    reply.read_to_end(&mut body).map_err(unanswered)?;
    let odd = |error| AskError::Odd(format!("the answer ({status}) is no JSON: {error}"));
    Ok(Response { status, body: serde_json::from_slice(&body).map_err(odd)? })
}

/// The process that listens at a Unix socket, as far as the system tells.
pub fn listener(socket: &Path) -> Option<i32> {
    owner(socket).ok()?.process
}

/// The process that listens at a Unix socket, and its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The number of the user.
    pub user: u32,
    /// The number of the process, if this process may know it.
    pub process: Option<i32>,
}

/// Finds out which process listens at a Unix socket. A path that begins with a zero byte is an
/// abstract name.
///
/// # Errors
/// An error if the socket cannot be connected to.
pub fn owner(socket: &Path) -> io::Result<Owner> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let peer = runtime.block_on(async { UnixStream::connect(socket).await?.peer_cred() })?;
    Ok(Owner { user: peer.uid(), process: peer.pid().filter(|process| *process > 0) })
}

/// Sends a request, with further header lines, and waits for the head of the answer, whose body is
/// then read as it comes. Each piece may take as long as `patience`.
///
/// # Errors
/// [`AskError`] when there is no answer.
pub fn open(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
    patience: Duration,
) -> Result<Reply, AskError> {
    let unanswered = |error| AskError::Unanswered(socket.to_owned(), error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(unanswered)?;
    let body = match body {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "natgate")
        .header("Content-Type", "application/json")
        .header("Connection", "close");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body));
    let request = request.map_err(|error| AskError::Odd(format!("{path}: {error}")))?;
    let until = Instant::now() + patience;
    let response = runtime.block_on(async {
        let stream = timeout_at(until, connect(socket)).await;
        let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(|error| AskError::Unreachable(socket.to_owned(), error))?;
        let exchange = async {
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(io::Error::other)
        };
        let answered = timeout_at(until, exchange).await;
        answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(unanswered)
    })?;
    let (status, body) = (response.status().as_u16(), response.into_body());
    Ok(Reply { runtime, status, body, piece: Bytes::new(), patience })
}

/// Connects to a socket. If its backlog is full, this waits for a place there: the system gives
/// places to blocking calls in turn, and refuses calls that do not block.
async fn connect(socket: &Path) -> io::Result<UnixStream> {
    match UnixStream::connect(socket).await {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        connected => return connected,
    }
    let (sender, connected) = oneshot::channel();
    let path = socket.to_owned();
    let wait = move || {
        // If nobody waits for it any more, the connection ends here.
        let _ = sender.send(StdUnixStream::connect(path));
    };
    Builder::new().name("connect".into()).spawn(wait)?;
    let stream = connected.await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// An answer whose body is read as it comes.
#[derive(Debug)]
pub struct Reply {
    runtime: Runtime,
    status: u16,
    body: Incoming,
    piece: Bytes,
    patience: Duration,
}

impl Reply {
    /// HTTP's status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The rest of the body as an object, such as the sentence of a failure.
    ///
    /// # Errors
    /// [`AskError`] when the body does not come, or is no object.
    pub fn object(mut self) -> Result<Value, AskError> {
        let mut body = Vec::new();
        let status = self.status;
        let odd = |error: &dyn std::fmt::Display| {
            AskError::Odd(format!("the answer ({status}) is no JSON: {error}"))
        };
        self.read_to_end(&mut body).map_err(|error| odd(&error))?;
        serde_json::from_slice(&body).map_err(|error| odd(&error))
    }
}

impl Read for Reply {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let until = Instant::now() + self.patience;
            let frame = self.runtime.block_on(async { timeout_at(until, self.body.frame()).await });
            match frame {
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(None) => return Ok(0),
                Ok(Some(Err(error))) => return Err(io::Error::other(error)),
                Ok(Some(Ok(frame))) => self.piece = frame.into_data().unwrap_or_default(),
            }
        }
        let length = buffer.len().min(self.piece.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}
