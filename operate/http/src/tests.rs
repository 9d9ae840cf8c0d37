//! Tests of server and client over sockets of the machine itself.

mod exchange;
mod groups;
mod room;
mod streams;
mod tls;

use super::*;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::routing::{any, get};
use axum::{Extension, Router};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Says back what it was asked; has a stream without an end.
fn echo() -> Router {
    let say = |request: Request| async move {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = String::from_utf8_lossy(&body).into_owned();
        let (method, path) = (head.method.to_string(), head.uri.to_string());
        Response::done(json!({ "method": method, "path": path, "body": body }))
    };
    let (endless, wait) = (
        get(async || Body::new(Endless)),
        get(async || {
            let waited = blocking(|| std::thread::sleep(Duration::from_millis(300))).await;
            Response::done(json!(waited.is_ok()))
        }),
    );
    let router = Router::new().route("/v1/echo", any(say)).route("/v1/endless", endless);
    fallbacks(router.route("/v1/wait", wait), "try /v1/echo")
}

/// Lines for ever.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        let line = Bytes::from_static(b"a line of an answer that does not end\n");
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(line))))
    }
}

/// A socket of a test's own, in a folder that is not there yet.
fn socket(test: &str) -> PathBuf {
    let name = format!("natgate-http-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&folder);
    folder.join("control.sock")
}

fn start(path: &Path) -> Server {
    Server::start(Listen::unix(path), echo()).expect("the socket can be made")
}

fn get_echo(path: &Path) -> Result<Response, AskError> {
    ask(path, "GET", "/v1/echo", &json!(null), PATIENCE)
}

/// Answer to these bytes.
fn raw(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).expect("the server listens");
    // The server may answer and close before it has read all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A connection from one of the machine's own addresses, 127.0.0.x.
fn connect_from(host: u8, server: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let connect = async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0)))?;
        socket.connect(server).await?.into_std()
    };
    let stream = runtime.expect("a runtime").block_on(connect).expect("the server listens");
    stream.set_nonblocking(false).expect("it is a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    stream
}

/// Sends a request on an open connection.
fn request(stream: &mut TcpStream, path: &str) -> std::io::Result<()> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
}

/// Reads the first byte of an answer; false: the connection has ended.
fn is_answered(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0]).is_ok_and(|length| length == 1)
}

/// A server of a TCP port with at most this number of connections, and its counter of connections
/// that it closed for want of room.
fn crowded(most: usize) -> (Server, SocketAddr, Arc<AtomicU64>) {
    let refused = Arc::new(AtomicU64::new(0));
    let listen = Listen::tcp("127.0.0.1:0".parse().expect("an address"));
    let big = get(async || vec![b'a'; 64 << 20]);
    let router = echo().route("/v1/big", big);
    let server = Server::start(listen.at_most(most, Arc::clone(&refused)), router);
    let server = server.expect("a free port");
    let address = server.address().expect("it is TCP");
    (server, address, refused)
}
