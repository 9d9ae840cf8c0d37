//! The exporter, asked as Prometheus asks.

mod sample;

use natgate_metrics::{Source, export};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn ask(address: SocketAddr, request: &str) -> String {
    ask_under("127.0.0.1:9464", address, request)
}

fn ask_under(host: &str, address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn start(source: Source) -> (natgate_http::Server, SocketAddr) {
    let names = ["nat1.example.net".to_owned()];
    let place = "127.0.0.1:0".parse().expect("an address");
    let server = export(place, &names, source, Arc::default()).expect("a free port");
    let address = server.address().expect("it is TCP");
    (server, address)
}

#[test]
fn the_page_is_served_and_a_gateway_is_not_asked_by_each_who_comes() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let (_server, address) = start(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(sample::figures())
    }));
    let all: Vec<_> = (0..50)
        .map(|_| std::thread::spawn(move || ask(address, "GET /metrics")))
        .map(|thread| thread.join().expect("it is answered"))
        .collect();
    for answer in &all {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nnatgate_mappings 41\n"), "{answer}");
    }
    // However slow this machine is, not each of them has come half a second after the last.
    assert!(asked.load(Ordering::Relaxed) < 50);
}

#[test]
fn what_cannot_be_answered_is_said_in_a_sentence() {
    let (_server, address) = start(Arc::new(|| Err("the gateway is stopping".to_owned())));
    for (request, status, sentence) in [
        ("GET /metrics", 503, "the gateway is stopping"),
        ("GET /metric", 404, "there is no /metric; metrics are at /metrics"),
        ("POST /metrics", 403, "POST /metrics needs the role operate"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(sentence), "{answer}");
    }
    assert!(ask(address, "GET /").contains("metrics are at /metrics"));
}

#[test]
fn a_rebound_name_is_refused() {
    let (_server, address) = start(Arc::new(|| Ok(sample::figures())));
    for host in ["127.0.0.1", "192.0.2.7:9464", "[::1]:9464", "localhost", "nat1.example.net:1"] {
        let answer = ask_under(host, address, "GET /metrics");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example:9464"] {
        for path in ["/metrics", "/", "/other"] {
            let answer = ask_under(host, address, &format!("GET {path}"));
            assert!(answer.starts_with("HTTP/1.1 421 "), "{host}: {answer}");
            assert!(answer.contains("metrics.names") && !answer.contains("natgate_"), "{answer}");
        }
    }
    assert!(ask_under("a@b", address, "GET /metrics").starts_with("HTTP/1.1 400 "));
}
