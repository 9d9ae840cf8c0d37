use super::*;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Says back what it was asked.
struct Echo;

impl Service for Echo {
    fn answer(&self, request: &Request) -> Response {
        let body = String::from_utf8_lossy(&request.body);
        let body = json!({ "method": request.method, "path": request.path, "body": body });
        Response { status: 200, body }
    }
}

/// A socket of a test's own, in a folder that is not there yet.
fn socket(test: &str) -> PathBuf {
    let name = format!("natgate-socket-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&folder);
    folder.join("control.sock")
}

fn start(path: &std::path::Path) -> Server {
    Server::start(path, Arc::new(Echo)).expect("the socket can be made")
}

/// What comes back for these bytes.
fn raw(path: &std::path::Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).expect("the server listens");
    // The server may answer and close before it has read all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_asked_is_answered() {
    let path = socket("answers");
    let _server = start(&path);
    assert_eq!(fs::metadata(&path).expect("its file").permissions().mode() & 0o777, 0o660);
    let answer = ask(&path, "POST", "/v1/reload", &json!({"dry_run": true}), PATIENCE);
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200);
    let body = "{\"dry_run\":true}";
    assert_eq!(answer.body, json!({"method": "POST", "path": "/v1/reload", "body": body}));
    let answer = raw(&path, b"GET /v1/x?y=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\"path\":\"/v1/x\""), "{answer}");
}

#[test]
fn what_is_no_request_is_refused() {
    let path = socket("refuses");
    let _server = start(&path);
    let post = |headers: &str| format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n").into_bytes();
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(2 * MOST_HEAD));
    for (bytes, status) in [
        (b"rubbish\r\n\r\n".to_vec(), 400),
        (vec![0xff; 100], 400),
        (post("Content-Length: x"), 400),
        (post("Content-Length: -1"), 400),
        (post("Content-Length: 99999999999999999999999"), 400),
        (post("Content-Length: 1\r\nContent-Length: 2"), 400),
        (post("Transfer-Encoding: chunked"), 400),
        (post(&format!("Content-Length: {}", MOST_BODY + 1)), 413),
        (long.into_bytes(), 431),
    ] {
        let answer = raw(&path, &bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    // Who says nothing, or half, and goes: the server goes on.
    drop(UnixStream::connect(&path));
    let mut half = UnixStream::connect(&path).expect("the server listens");
    half.write_all(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc").expect("it is taken");
    drop(half);
    assert!(ask(&path, "GET", "/", &json!({}), PATIENCE).is_ok());
}

#[test]
fn silent_clients_keep_nobody_out_for_long() {
    let path = socket("silent");
    let _server = start(&path);
    let silent: Vec<UnixStream> = (0..2 * MOST_CONNECTIONS)
        .map(|_| UnixStream::connect(&path).expect("the server listens"))
        .collect();
    assert!(ask(&path, "GET", "/", &json!({}), Duration::from_secs(60)).is_ok());
    drop(silent);
}

#[test]
fn a_socket_is_one_gateway_s_and_goes_with_it() {
    let path = socket("one");
    let server = start(&path);
    assert!(matches!(Server::start(&path, Arc::new(Echo)), Err(BindError::InUse)));
    drop(server);
    assert!(!path.exists());
    let error = ask(&path, "GET", "/", &json!({}), PATIENCE).expect_err("nobody listens");
    assert!(matches!(error, AskError::Unreachable(..)), "{error}");
    // What a gateway left that could not clean up is no hindrance.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("it can be made"));
    let _server = start(&path);
    assert!(ask(&path, "GET", "/", &json!({}), PATIENCE).is_ok());
}
