//! Random bytes at the control interface: as what stands after the `?` of a request, or as a whole
//! connection to a socket that is served. Whatever comes, the reader of queries keeps its promises
//! and the server goes on.

#![no_main]

use axum::Router;
use axum::extract::RawQuery;
use axum::routing::{get, post};
use libfuzzer_sys::fuzz_target;
use natgate_control::interface::query::TableQuery;
use natgate_control::socket::{Listen, Response, Server, fallbacks};
use natgate_wire::protocol;
use serde_json::json;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

const KEYS: [&str; 6] = ["what", "subscriber", "realm", "external", "protocol", "limit"];

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 4 {
        0 => connection(bytes),
        _ => query(&String::from_utf8_lossy(bytes)),
    }
});

/// A query is refused with a sentence, or what it says is what was read.
fn query(text: &str) {
    let _ = protocol::number(text);
    match TableQuery::parse(Some(text), &KEYS) {
        Ok(asked) => {
            assert!(asked.limit != Some(0));
            assert!(asked.external_port.is_none() || asked.external.is_some());
        }
        Err(refused) => {
            assert_eq!(refused.status, 400);
            assert!(refused.body["message"].as_str().is_some_and(|message| !message.is_empty()));
        }
    }
}

/// Sends the bytes, then a request that is in order.
fn connection(bytes: &[u8]) {
    static SERVED: OnceLock<PathBuf> = OnceLock::new();
    let path = SERVED.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("natgate-fuzz-api-{}", std::process::id()));
        let path = folder.join("control.sock");
        let list = async |RawQuery(query): RawQuery| {
            TableQuery::parse(query.as_deref(), &KEYS)
                .map(|asked| Response::done(json!(asked.limit)))
        };
        let change = async |body: String| Response::done(json!(body.len()));
        let router = Router::new().route("/v1/list", get(list)).route("/v1/change", post(change));
        let server = Server::start(Listen::unix(&path), fallbacks(router, "try /v1/list"));
        // It serves as long as there are inputs.
        std::mem::forget(server.expect("a socket can be made"));
        path
    });
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
    // The server may answer and close before it has read all.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.take(1 << 20).read_to_end(&mut Vec::new());
    let mut stream = UnixStream::connect(path).expect("the server listens");
    let request = b"GET /v1/list?limit=7 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("7\n"), "{answer}");
}
