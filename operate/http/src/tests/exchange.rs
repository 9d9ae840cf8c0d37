//! Tests of requests and answers: their limits, their clients, and the sockets that they come by.

use super::*;

#[test]
fn what_is_asked_is_answered() {
    let path = socket("answers");
    let _server = start(&path);
    assert_eq!(fs::metadata(&path).expect("its file").permissions().mode() & 0o777, 0o660);
    let answer = ask(&path, "POST", "/v1/echo?x=1", &json!({"dry_run": true}), PATIENCE);
    let body = "{\"dry_run\":true}";
    let expected = json!({"method": "POST", "path": "/v1/echo?x=1", "body": body});
    assert_eq!(answer.expect("an answer"), Response::done(expected));
    let missing = ask(&path, "GET", "/v1/nothing", &json!(null), PATIENCE).expect("an answer");
    let message = "there is no /v1/nothing; try /v1/echo";
    assert_eq!(missing, Response::failure(404, message));
    let other = ask(&path, "DELETE", "/v1/wait", &json!(null), PATIENCE).expect("an answer");
    assert_eq!(other, Response::failure(405, "/v1/wait does not take DELETE"));
}

#[test]
fn what_is_no_request_is_refused() {
    let path = socket("refuses");
    let _server = start(&path);
    let post = |headers: &str, body: &str| {
        format!("POST /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n\r\n{body}")
            .into_bytes()
    };
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(2 * MOST_HEAD));
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", MOST_BODY + 1, "a".repeat(MOST_BODY + 1));
    for (bytes, status) in [
        (b"rubbish\r\n\r\n".to_vec(), 400),
        (vec![0xff; 100], 400),
        (post("Content-Length: x", ""), 400),
        (post("Content-Length: -1", ""), 400),
        (post("Content-Length: 99999999999999999999999", ""), 400),
        (post("Content-Length: 1\r\nContent-Length: 2", ""), 400),
        (post("Transfer-Encoding: chunked", "zz\r\n"), 400),
        (post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"), 200),
        (post("Transfer-Encoding: chunked", &chunk), 413),
        (post(&format!("Content-Length: {}", MOST_BODY + 1), ""), 413),
        (post("Content-Length: 10", "abc"), 408),
        (long.into_bytes(), 431),
    ] {
        let answer = raw(&path, &bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    // Clients that say nothing, or half a request, and go: the server goes on.
    drop(UnixStream::connect(&path));
    let mut half = UnixStream::connect(&path).expect("the server listens");
    half.write_all(b"POST /v1/echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
        .expect("it is taken");
    drop(half);
    assert!(get_echo(&path).is_ok());
}

#[test]
fn silent_clients_keep_nobody_out_for_long() {
    let path = socket("silent");
    let _server = start(&path);
    let silent: Vec<UnixStream> = (0..MOST_CONNECTIONS + 10)
        .map(|_| UnixStream::connect(&path).expect("the server listens"))
        .collect();
    assert!(get_echo(&path).is_ok());
    drop(silent);
}

#[test]
fn an_answer_that_waits_for_its_reader_is_whole() {
    let (_server, address, refused) = crowded(4);
    let mut slow = connect_from(1, address);
    request(&mut slow, "/v1/big").expect("it is taken");
    assert!(is_answered(&mut slow), "the answer begins");
    // The server has handed over the body; most of it waits in the server for the reader.
    let crowd: Vec<TcpStream> = (0..8).map(|host| connect_from(1 + host, address)).collect();
    let crowded = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        refused.load(Ordering::Relaxed) > 0
    });
    assert!(crowded, "there were too many connections");
    let mut read = 1;
    let mut piece = vec![0; 1 << 20];
    while read < 64 << 20 {
        match slow.read(&mut piece) {
            Ok(length) if length > 0 => read += length,
            end => panic!("it ended after {read} bytes: {end:?}"),
        }
    }
    drop(crowd);
}

#[test]
fn who_does_not_read_is_given_up() {
    let path = socket("stalls");
    let _server = start(&path);
    let mut stalled = UnixStream::connect(&path).expect("the server listens");
    stalled.write_all(b"GET /v1/endless HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    std::thread::sleep(Duration::from_secs(4));
    // The bytes in the socket's buffers come, and then the end.
    let read = stalled.read_to_end(&mut Vec::new());
    assert!(
        read.is_ok()
            || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    );
}

#[test]
fn a_socket_is_one_gateway_s_and_goes_with_it() {
    let path = socket("one");
    let server = start(&path);
    assert!(matches!(Server::start(Listen::unix(&path), echo()), Err(BindError::InUse)));
    drop(server);
    assert!(!path.exists());
    let error = get_echo(&path).expect_err("nobody listens");
    assert!(matches!(error, AskError::Unreachable(..)), "{error}");
    assert!(error.to_string().contains("is `natgate run` running"), "{error}");
    // The file of a gateway that could not clean up is no hindrance.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("it can be made"));
    let _server = start(&path);
    assert!(get_echo(&path).is_ok());
}

#[test]
fn what_is_under_way_when_a_server_ends_is_answered() {
    let path = socket("ends");
    let server = start(&path);
    let mut waiting = UnixStream::connect(&path).expect("the server listens");
    waiting.write_all(b"GET /v1/wait HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    let mut endless = UnixStream::connect(&path).expect("the server listens");
    endless.write_all(b"GET /v1/endless HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    let mut first = [0];
    endless.read_exact(&mut first).expect("it begins");
    let end = std::thread::spawn(move || drop(server));
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("true\n"), "{answer}");
    // The other is read until it ends, too.
    let _ = endless.read_to_end(&mut Vec::new());
    end.join().expect("it ends");
}

#[test]
fn answers_are_read_as_they_come() {
    let path = socket("streams");
    let _server = start(&path);
    let reply = open(&path, "GET", "/v1/endless", &[], &json!(null), PATIENCE).expect("it begins");
    assert_eq!(reply.status(), 200);
    let mut lines = BufReader::new(reply).lines();
    for _ in 0..10_000 {
        let line = lines.next().expect("a line").expect("it comes");
        assert_eq!(line, "a line of an answer that does not end");
    }
}

#[test]
fn who_may_read_changes_nothing() {
    let path = socket("reads");
    let listen = Listen::unix(&path).role(Role::Read);
    let _server = Server::start(listen, echo()).expect("the socket can be made");
    assert_eq!(get_echo(&path).expect("an answer").status, 200);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let refused = ask(&path, method, "/v1/echo", &json!(null), PATIENCE).expect("an answer");
        assert_eq!(refused.status, 403);
        let message = refused.body["message"].as_str().unwrap_or_default();
        assert!(message.contains("needs the role operate"), "{message}");
    }
}

#[test]
fn a_port_is_one_program_s() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = port.local_addr().expect("it has an address");
    let error = Server::start(Listen::tcp(taken), echo()).expect_err("it is taken");
    assert!(error.to_string().contains("is in use by another program"), "{error}");
    let server = Server::start(Listen::tcp("127.0.0.1:0".parse().unwrap()), echo());
    let server = server.expect("a port is free");
    let address = server.address().expect("it is TCP");
    let mut stream = std::net::TcpStream::connect(address).expect("the server listens");
    let request = b"GET /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let elsewhere = Server::start(Listen::tcp("192.0.2.1:80".parse().unwrap()), echo());
    let error = elsewhere.expect_err("the address is another's");
    assert!(error.to_string().contains("choose an address of this machine"), "{error}");
}

#[test]
fn a_client_that_has_sent_all_and_reads_on_is_answered() {
    let path = socket("half");
    let _server = start(&path);
    let mut stream = UnixStream::connect(&path).expect("the server listens");
    stream.write_all(b"GET /v1/wait HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("true\n"), "{answer}");
}
