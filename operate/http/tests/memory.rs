//! Memory of a server of many short connections. The test is in a process of its own, because it
//! looks at the memory of the whole process.

use axum::Router;
use axum::routing::get;
use natgate_http::{Listen, Response, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// Connections that each client keeps, so that the server serves them before they go.
const KEPT: usize = 3000;

/// The memory of this process, KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn connections_that_have_ended_leave_no_memory() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).expect("it is within the limit");
    let folder = std::env::temp_dir().join(format!("natgate-http-memory-{}", std::process::id()));
    let path = folder.join("control.sock");
    let router = Router::new().route("/", get(async || Response::done(().into())));
    let server = Server::start(Listen::unix(&path), router).expect("the socket can be made");
    // The clients are faster than the server: somebody always waits for it.
    let client = |count: usize| {
        let mut kept = VecDeque::new();
        for _ in 0..count {
            let mut stream = UnixStream::connect(&path).expect("the server listens");
            stream.write_all(b"rubbish\r\n\r\n").expect("it is taken");
            kept.push_back(stream);
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
    };
    let clients = |count| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| client(count));
            }
        });
    };
    clients(10_000);
    let before = resident();
    clients(50_000);
    let more = resident().saturating_sub(before);
    println!("{more} KiB more after 100,000 connections");
    drop(server);
    let _ = fs::remove_dir_all(folder);
    assert!(more < 8 << 10, "{more} KiB more for 100,000 connections that have ended");
}
