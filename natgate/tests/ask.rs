//! `natgate show`, `who` and `clear` with a simulated gateway: their requests, their output, and
//! their failures.

use axum::Router;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use natgate_control::socket::{Listen, Response, Role, Server, fallbacks};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn mapping() -> Value {
    json!({
        "protocol": "udp", "internal": "10.0.0.5:4000", "external": "203.0.113.1:2300",
        "subscriber": "10.0.0.5", "kind": "dynamic", "sessions": 1, "age_s": 3.0,
        "expires_in_s": 297.0, "packets_out": 1, "packets_in": 0,
    })
}

/// A gateway with one mapping.
fn router() -> Router {
    let mappings = async |headers: HeaderMap, RawQuery(query): RawQuery| {
        let query = query.unwrap_or_default();
        let lines = headers["accept"].to_str().expect("a word").contains("ndjson");
        let found = !query.contains("10.9.9.9");
        match (lines, found) {
            (true, true) => format!("{}\n", mapping()),
            (true, false) => String::new(),
            (false, _) => format!("{}\n", json!({ "mappings": [mapping()], "more": false })),
        }
    };
    let clear = async |RawQuery(query): RawQuery| {
        let cleared = if query.unwrap_or_default().contains("subscriber=10.0.0.5") { 4 } else { 0 };
        Response::done(json!({ "ok": true, "what": "mappings", "cleared": cleared }))
    };
    let who = async |RawQuery(query): RawQuery| {
        let query = query.unwrap_or_default();
        match query.contains("2300") {
            true => Response::done(json!({ "answers": [{
            "subscriber": "10.0.0.5", "external": "203.0.113.1", "ports": "2300",
            "kind": "dynamic", "protocol": "udp", "internal": "10.0.0.5:4000", "age_s": 3.0,
        }] })),
            false if query.contains("subscriber=10.0.0.5") => Response::done(json!({
                "answers": [{
                    "subscriber": "10.0.0.5", "external": "203.0.113.1", "ports": "2048-2559",
                    "kind": "block", "pool": "default",
                }],
                "more": true,
            })),
            false => Response::failure(404, "203.0.113.1:9: nobody has that port"),
        }
    };
    let fleet = async || {
        Response::done(json!({
            "ok": true, "node": "a", "partner": "b",
            "link": { "connected": true, "round_trip_s": 0.001 }, "resting_ports": 0,
            "slices": [{
                "slice": 0, "owner": "b", "role": "partner", "assigns": false, "complete": true,
                "age_s": 0.5, "addresses": ["203.0.113.0/28"], "fault": null,
            }],
            "faults": [],
        }))
    };
    let pools = async || Response::failure(400, "there is no parameter \"subscriber\"");
    let router = Router::new()
        .route("/v1/mappings", get(mappings))
        .route("/v1/fleet", get(fleet).post(fleet))
        .route("/v1/pools", get(pools))
        .route("/v1/who", get(who))
        .route("/v1/clear", post(clear));
    fallbacks(router, "try /v1/mappings")
}

fn socket(test: &str) -> PathBuf {
    let name = format!("natgate-ask-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder.join("control.sock")
}

fn natgate(socket: &Path, args: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_natgate"))
        .args(args.split(' '))
        .arg("--socket")
        .arg(socket)
        .output()
        .expect("natgate runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn what_is_asked_is_printed() {
    let path = socket("prints");
    let _server = Server::start(Listen::unix(&path), router()).expect("a socket can be made");
    for (args, code, said) in [
        ("show mappings", 0, "10.0.0.5:4000          203.0.113.1:2300"),
        (
            "show mappings --subscriber 10.9.9.9",
            0,
            "no mappings of 10.9.9.9; if it should have some, `natgate trace",
        ),
        ("show mappings --json", 0, "\"more\":false"),
        ("who 203.0.113.1:2300", 0, "10.0.0.5 has port 2300 of 203.0.113.1 (dynamic, udp of"),
        ("who 203.0.113.1:2300 --json", 0, "\"internal\":\"10.0.0.5:4000\""),
        ("who 203.0.113.1:9", 1, "nobody has that port"),
        ("who 203.0.113.1:9 --json", 1, "{\"reason\":"),
        ("who 10.0.0.5", 0, "10.0.0.5 has ports 2048-2559 of 203.0.113.1 (block, pool default)\n"),
        ("who 10.0.0.5", 0, "there are more; `natgate show mappings --subscriber 10.0.0.5` lists"),
        ("who 10.0.0.5 --json", 0, "\"kind\":\"block\""),
        ("who 10.0.0.5 --at now", 2, "--at needs an external endpoint with its port"),
        ("who 203.0.113.1:2300 --at 2026-03-01T12:30:00", 2, "has no offset from UTC"),
        ("clear mappings --subscriber 10.0.0.5", 0, "4 mappings of 10.0.0.5 cleared\n"),
        ("clear mappings --realm blue", 0, "no mappings in realm blue to clear\n"),
        ("clear mappings --json", 0, "\"cleared\":0"),
        ("show pools --subscriber 10.0.0.5", 2, "there is no parameter"),
        ("show sessions", 1, "there is no /v1/sessions"),
        ("show mappings --external 203.0.113.1:x", 2, "such as 203.0.113.1:2300"),
        ("show mappings --protocol tpc", 2, "must be tcp, udp"),
        ("show mappings --limit 0", 2, "0 is not in 1.."),
        ("fleet status", 0, "node a, partner b: connected"),
        ("fleet --json check", 0, "\"node\":\"a\""),
        ("fleet drain a", 0, "node a owns no slice: nothing to do\n"),
        ("fleet drain a --json", 0, "\"node\":\"a\""),
        ("show everything", 2, "mappings, sessions, subscribers"),
    ] {
        let (got, stdout, stderr) = natgate(&path, args);
        let all = format!("{stdout}{stderr}");
        assert!(got == Some(code) && all.contains(said), "natgate {args}: {got:?}\n{all}");
    }
}

#[test]
fn the_socket_stands_before_or_behind_a_subcommand() {
    let path = socket("place");
    let _server = Server::start(Listen::unix(&path), router()).expect("a socket can be made");
    for words in [["--socket", "PATH", "status"], ["status", "--socket", "PATH"]] {
        let words = words.map(|word| if word == "PATH" { path.as_os_str() } else { word.as_ref() });
        let mut command = Command::new(env!("CARGO_BIN_EXE_natgate"));
        let output = command.arg("fleet").args(words).output().expect("natgate runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn who_cannot_be_asked_is_told_with_the_remedy() {
    let path = socket("absent");
    for args in [
        "show counters",
        "who 203.0.113.1:2300",
        "clear sessions",
        "reload",
        "export yang",
        "top --once",
        "capture -w /nonexistent/a.pcapng",
        "trace udp 10.0.0.5:4000 > 192.0.2.1:53",
    ] {
        let (code, stdout, stderr) = natgate(&path, args);
        assert_eq!((code, &stdout[..]), (Some(1), ""), "natgate {args}");
        assert!(stderr.contains("is `natgate run` running"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(stderr.matches("No such file").count(), 1, "{stderr}");
    }
    // A socket of another program.
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
    let other = UnixListener::bind(&path).expect("nobody listens there");
    let rubbish = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("somebody asks");
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"hello\r\n\r\n");
    });
    let (code, _, stderr) = natgate(&path, "show counters");
    rubbish.join().expect("it has answered");
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is this another program's socket?"), "{stderr}");
    std::fs::remove_file(&path).expect("it is there");
    let listen = Listen::unix(&path).role(Role::Read);
    let _server = Server::start(listen, router()).expect("a socket can be made");
    assert_eq!(natgate(&path, "show mappings").0, Some(0));
    let (code, _, stderr) = natgate(&path, "clear mappings");
    assert_eq!(code, Some(1));
    assert!(stderr.contains("needs the role operate"), "{stderr}");
}
