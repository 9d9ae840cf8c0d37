//! Tests of server and client over sockets of the machine itself.

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

/// What comes back for these bytes.
fn raw(path: &Path, bytes: &[u8]) -> String {
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
    // Who says nothing, or half, and goes: the server goes on.
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

#[test]
fn idle_connections_of_one_address_keep_out_no_other_address() {
    let (_server, address, refused) = crowded(8);
    let idle: Vec<TcpStream> = (0..20).map(|_| connect_from(1, address)).collect();
    let mut other = connect_from(2, address);
    let asked = request(&mut other, "/v1/echo");
    assert!(asked.is_ok() && is_answered(&mut other), "the other address is served");
    let closed = refused.load(Ordering::Relaxed);
    assert!((1..=20 - 8 / 4).contains(&closed), "{closed}");
    drop(idle);
}

#[test]
fn busy_connections_of_one_address_keep_out_no_other_address() {
    let (_server, address, refused) = crowded(8);
    let mut busy: Vec<TcpStream> = (0..8).map(|_| connect_from(1, address)).collect();
    let began = busy.iter_mut().map(|stream| {
        let asked = request(stream, "/v1/endless");
        asked.is_ok() && is_answered(stream)
    });
    let began: Vec<bool> = began.collect();
    let mut other = connect_from(2, address);
    let asked = request(&mut other, "/v1/echo");
    assert!(asked.is_ok() && is_answered(&mut other), "the other address is served");
    assert_eq!(began.iter().filter(|began| **began).count(), 8 / 4, "an address has a quarter");
    assert_eq!(refused.load(Ordering::Relaxed), 8 - 8 / 4);
}

#[test]
fn an_idle_connection_gives_way_and_one_that_is_answered_never() {
    let (_server, address, refused) = crowded(8);
    let mut busy: Vec<TcpStream> = (1..=4)
        .flat_map(|host| [host, host])
        .map(|host| {
            let mut stream = connect_from(host, address);
            request(&mut stream, "/v1/endless").expect("it is taken");
            assert!(is_answered(&mut stream), "127.0.0.{host} is answered");
            stream
        })
        .collect();
    let mut late = connect_from(5, address);
    assert!(request(&mut late, "/v1/echo").is_err() || !is_answered(&mut late), "no room is left");
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    // One ends; its place goes to a silent connection, which gives way to the next that comes.
    busy.pop();
    let silent = wait_for_room(5, address, &refused);
    let mut next = connect_from(6, address);
    request(&mut next, "/v1/endless").expect("it is taken");
    assert!(is_answered(&mut next), "the silent connection gave way");
    assert!(!is_answered(&mut { silent }), "the silent connection is closed");
    for mut stream in busy {
        stream.read_exact(&mut vec![0; 16 << 20]).expect("the answer goes on");
    }
}

/// An idle connection that has got a place: tried until the server has noticed that one is free.
fn wait_for_room(host: u8, address: SocketAddr, refused: &AtomicU64) -> TcpStream {
    for _ in 0..1000 {
        let before = refused.load(Ordering::Relaxed);
        let stream = connect_from(host, address);
        std::thread::sleep(Duration::from_millis(10));
        if refused.load(Ordering::Relaxed) == before {
            return stream;
        }
    }
    panic!("no place became free");
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
fn connections_beyond_a_limit_are_counted_and_end() {
    let (most, more) = (8, 7);
    let (_server, address, refused) = crowded(most);
    let share = most / 4;
    let mut connections: Vec<TcpStream> =
        (0..share + more).map(|_| connect_from(1, address)).collect();
    // The longest idle connections give way at once; the latest are closed as silent after a time.
    for surplus in &mut connections {
        assert!(!is_answered(surplus));
    }
    let closed = refused.load(Ordering::Relaxed);
    assert!((1..=more as u64).contains(&closed), "{closed}");
    let mut asking = connect_from(1, address);
    request(&mut asking, "/v1/echo").expect("it is taken");
    assert!(is_answered(&mut asking));
}

#[test]
fn who_does_not_read_is_given_up() {
    let path = socket("stalls");
    let _server = start(&path);
    let mut stalled = UnixStream::connect(&path).expect("the server listens");
    stalled.write_all(b"GET /v1/endless HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    std::thread::sleep(Duration::from_secs(4));
    // What lies in the socket's buffers comes, and then the end.
    let read = stalled.read_to_end(&mut Vec::new());
    assert!(
        read.is_ok()
            || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    );
}

#[test]
fn a_thousand_are_answered_at_once() {
    let path = socket("thousand");
    let _server = start(&path);
    // All have asked before any reads.
    let asked: Vec<UnixStream> = (0..1000)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).expect("the server listens");
            let request = b"GET /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("it is taken");
            stream
        })
        .collect();
    for mut stream in asked {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
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
    // What a gateway left that could not clean up is no hindrance.
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

/// Certificates of a test's own, as files: of an authority, of a server and of clients.
struct Papers {
    folder: PathBuf,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Papers {
    fn new(test: &str) -> Self {
        let folder = socket(test).parent().expect("a folder").to_owned();
        fs::create_dir(&folder).expect("it can be made");
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.key_usages =
            vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = authority.self_signed(&key).unwrap();
        fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: rcgen::Issuer::new(authority, key) }
    }

    /// Writes a certificate and a key for a name.
    fn write(&self, name: &str) -> [PathBuf; 2] {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = ["pem", "key"].map(|kind| self.folder.join(format!("{name}.{kind}")));
        fs::write(&files[0], certificate.pem()).unwrap();
        fs::write(&files[1], key.serialize_pem()).unwrap();
        files
    }

    /// The files of a server that lets these names do everything.
    fn files(&self, operators: &[&str]) -> TlsFiles {
        let [certificate, key] = self.write("server");
        let clients = self.folder.join("ca.pem");
        let operators = operators.iter().map(|&name| name.to_owned()).collect();
        TlsFiles { certificate, key, clients, revoked: None, operators }
    }

    fn load(&self) -> Tls {
        Tls::load(&self.files(&["alice"])).expect("all is there")
    }

    /// Writes the authority's list of revoked certificates: those that files have.
    fn revoke(&self, certificates: &[&Path]) -> PathBuf {
        use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};
        let number = |path: &&Path| {
            let (_, pem) = parse_x509_pem(&fs::read(path).unwrap()).unwrap();
            let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
            rcgen::RevokedCertParams {
                serial_number: rcgen::SerialNumber::from_slice(certificate.raw_serial()),
                revocation_time: rcgen::date_time_ymd(2026, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }
        };
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2099, 1, 1),
            crl_number: rcgen::SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: certificates.iter().map(number).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let path = self.folder.join("crl.pem");
        fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }
}

type TlsStream =
    tokio_rustls::rustls::StreamOwned<tokio_rustls::rustls::ClientConnection, std::net::TcpStream>;

/// A connection by TLS, with the certificate of a name if one is given.
fn connect_by_tls(papers: &Papers, address: std::net::SocketAddr, name: Option<&str>) -> TlsStream {
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(papers.folder.join("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match name {
        None => config.with_no_client_auth(),
        Some(name) => {
            let file = |kind: &str| papers.folder.join(format!("{name}.{kind}"));
            let chain = vec![CertificateDer::from_pem_file(file("pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let tcp = std::net::TcpStream::connect(address).expect("the server listens");
    StreamOwned::new(connection, tcp)
}

/// What comes back for a request by TLS, with the certificate of a name if one is given.
fn by_tls(
    papers: &Papers,
    address: std::net::SocketAddr,
    name: Option<&str>,
    method: &str,
) -> String {
    let mut stream = connect_by_tls(papers, address, name);
    let request = format!("{method} /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn who_has_a_certificate_may_read_and_who_is_listed_may_operate() {
    let papers = Papers::new("tls");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), papers.load());
    let server = Server::start(listen, echo()).expect("a port is free");
    let address = server.address().expect("it is TCP");
    papers.write("alice");
    papers.write("bob");
    for (name, method, status) in [
        (Some("alice"), "GET", "HTTP/1.1 200 "),
        (Some("alice"), "POST", "HTTP/1.1 200 "),
        (Some("bob"), "GET", "HTTP/1.1 200 "),
        (Some("bob"), "POST", "HTTP/1.1 403 "),
    ] {
        let answer = by_tls(&papers, address, name, method);
        assert!(answer.starts_with(status), "{name:?} {method}: {answer}");
    }
    assert_eq!(by_tls(&papers, address, None, "GET"), "");
    let stranger = Papers::new("tls-stranger");
    let [certificate, key] = stranger.write("alice");
    for (from, to) in [(certificate, "mallory.pem"), (key, "mallory.key")] {
        fs::copy(from, papers.folder.join(to)).unwrap();
    }
    assert_eq!(by_tls(&papers, address, Some("mallory"), "GET"), "");
    // Rubbish in the place of TLS ends the connection and nothing else.
    let mut plain = std::net::TcpStream::connect(address).expect("the server listens");
    plain.write_all(b"GET /v1/echo HTTP/1.1\r\n\r\n").expect("it is taken");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(by_tls(&papers, address, Some("bob"), "GET").starts_with("HTTP/1.1 200 "));
}

/// As `openssl x509 -req` makes it when no extension is asked for: of version 1.
const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBFTCBuwIUThasobCCZAo+Mu9V8k8Y3kKWrNAwCgYIKoZIzj0EAwIwDDEKMAgG\n\
A1UEAwwBYTAgFw0yNjExMjIxOTE2MzJaGA8yMTI2MTAyOTE5MTYzMlowDDEKMAgG\n\
A1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABLilE7msfM9Isbr2xnDY\n\
MuXsVsjcWte5gb5yVPCAVJqWScvSz6gkpS6XPk2Cc3zlXzx72x1NsCZFz5Tg/knQ\n\
v2AwCgYIKoZIzj0EAwIDSQAwRgIhAKmMXF55/0BEaq3N8Myfbp8frPlH7NkuCw+1\n\
ATpYWWHjAiEAvBXwXshO9jqYxgwtqcWYs6PnlElFNcPW1LobnVFAMcU=\n\
-----END CERTIFICATE-----\n\
";

#[test]
fn papers_that_are_wrong_are_named() {
    let papers = Papers::new("tls-wrong");
    let [certificate, key] = papers.write("server");
    let [_, other] = papers.write("other");
    let clients = papers.folder.join("ca.pem");
    let missing = papers.folder.join("missing.pem");
    let old = papers.folder.join("old.pem");
    fs::write(&old, OF_VERSION_1).expect("it is ours");
    let load = |certificate: &Path, key: &Path, clients: &Path| {
        let files = TlsFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            clients: clients.to_owned(),
            revoked: None,
            operators: Vec::new(),
        };
        Tls::load(&files).expect_err("it is wrong").to_string()
    };
    for (error, said) in [
        (load(&missing, &key, &clients), "missing.pem cannot be read: No such file"),
        (load(&certificate, &missing, &clients), "missing.pem cannot be read: No such file"),
        (load(&certificate, &certificate, &clients), "server.pem has no private key"),
        (load(&certificate, &key, &missing), "missing.pem cannot be read: No such file"),
        (load(&certificate, &other, &clients), "cannot be used: they do not belong together"),
        (load(&key, &key, &clients), "the file has no such section"),
        (load(&old, &key, &clients), "old.pem is of X.509 version 1, and only version 3 is used"),
    ] {
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_certificate_that_has_lapsed_is_known() {
    let papers = Papers::new("tls-lapsed");
    let [certificate, _] = papers.write("server");
    assert_eq!(Tls::validity(&certificate).expect("it is there"), Validity::Now);
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    for (from, to, expected) in [
        (2020, 2021, Validity::Until("Jan  1 00:00:00 2021 +00:00".into())),
        (2090, 2091, Validity::From("Jan  1 00:00:00 2090 +00:00".into())),
    ] {
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let signed = params.signed_by(&key, &papers.issuer).unwrap();
        fs::write(&certificate, signed.pem()).unwrap();
        assert_eq!(Tls::validity(&certificate).expect("it is there"), expected);
    }
}

/// Serves back what comes in, as a stream.
fn streams() -> (Server, std::net::SocketAddr) {
    let back = any(async |request: Request| Body::new(request.into_body()));
    let listen = Listen::tcp("127.0.0.1:0".parse().unwrap()).role(Role::Operate).streams();
    let server = Server::start(listen, Router::new().route("/back", back)).unwrap();
    let address = server.address().unwrap();
    (server, address)
}

#[test]
fn streams_are_answered_while_they_come_in() {
    use http_body_util::BodyExt;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let (_server, address) = streams();
    let talk = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let shake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut client, connection) = shake.await.unwrap();
        tokio::spawn(connection);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let pieces = futures_util::stream::poll_fn(move |context| {
            receiver.poll_recv(context).map(|piece| piece.map(Ok::<_, std::io::Error>))
        });
        let request = hyper::Request::post(format!("http://{address}/back"));
        let request = request.body(Body::from_stream(pieces)).unwrap();
        sender.send(Bytes::from_static(b"one")).unwrap();
        let mut body = client.send_request(request).await.unwrap().into_body();
        let one = body.frame().await.unwrap().unwrap().into_data().unwrap();
        // In silence pings keep it for longer than who says nothing may stay.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        sender.send(Bytes::from_static(b"two")).unwrap();
        let two = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(sender);
        (one, two, body.collect().await.unwrap().to_bytes())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(talk), (Bytes::from("one"), Bytes::from("two"), Bytes::new()));
}

#[test]
fn who_says_nothing_where_streams_are_is_given_up() {
    let (_server, address) = streams();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = Vec::new();
    // It ends, or is cut; a timeout would be another error.
    let ended = stream.read_to_end(&mut said);
    assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
}

/// What comes back for GET by TLS with the certificate of a name.
fn get_by_tls(papers: &Papers, address: std::net::SocketAddr, name: &str) -> String {
    by_tls(papers, address, Some(name), "GET")
}

#[test]
fn a_revoked_certificate_is_refused() {
    let papers = Papers::new("tls-revoked");
    let [alice, _] = papers.write("alice");
    papers.write("bob");
    let revoked = Some(papers.revoke(&[&alice]));
    let files = TlsFiles { revoked, ..papers.files(&["alice"]) };
    let tls = Tls::load(&files).expect("all is there");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), tls.clone());
    let server = Server::start(listen, echo()).expect("a port is free");
    let address = server.address().expect("it is TCP");
    assert_eq!(get_by_tls(&papers, address, "alice"), "");
    assert!(get_by_tls(&papers, address, "bob").starts_with("HTTP/1.1 200 "));

    // An authority that the file has no list of lets nobody in.
    let stranger = Papers::new("tls-revoked-elsewhere");
    let other = TlsFiles { revoked: Some(stranger.revoke(&[])), ..files.clone() };
    tls.replace(LoadedTls::read(&other).expect("it is a list"));
    assert_eq!(get_by_tls(&papers, address, "bob"), "");
    // An empty list revokes nothing.
    papers.revoke(&[]);
    tls.replace(LoadedTls::read(&files).expect("it is a list"));
    assert!(get_by_tls(&papers, address, "alice").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_file_that_is_no_list_of_revoked_certificates_is_refused() {
    let papers = Papers::new("tls-no-list");
    let files = papers.files(&[]);
    let odd = papers.folder.join("odd.pem");
    for (text, said) in [
        ("", "has no list of revoked certificates in PEM form"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "no usable list of revoked"),
    ] {
        fs::write(&odd, text).unwrap();
        let files = TlsFiles { revoked: Some(odd.clone()), ..files.clone() };
        let error = LoadedTls::read(&files).expect_err("it is no list").to_string();
        assert!(error.contains(said) && error.contains("odd.pem"), "{error}");
    }
    let missing = TlsFiles { revoked: Some(papers.folder.join("none")), ..files };
    let error = LoadedTls::read(&missing).expect_err("there is none").to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn other_files_end_the_connections_that_they_do_not_allow() {
    let papers = Papers::new("tls-replaced");
    let files = papers.files(&["alice"]);
    let tls = Tls::load(&files).expect("all is there");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), tls.clone());
    let server = Server::start(listen, echo()).expect("a port is free");
    let address = server.address().expect("it is TCP");
    let [alice, _] = papers.write("alice");
    papers.write("bob");
    let endless = |name: &str| {
        let mut stream = connect_by_tls(&papers, address, Some(name));
        let request = b"GET /v1/endless HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).expect("it is taken");
        stream.read_exact(&mut [0; 100]).expect("it begins");
        stream
    };
    let (mut of_alice, mut of_bob) = (endless("alice"), endless("bob"));
    let revoked = TlsFiles { revoked: Some(papers.revoke(&[&alice])), ..files.clone() };
    tls.replace(LoadedTls::read(&revoked).expect("all is there"));
    // The rest that lies in the sockets' buffers comes, then the end.
    let _ = of_alice.read_to_end(&mut Vec::new());
    of_bob.read_exact(&mut vec![0; 16 << 20]).expect("another client goes on");
    // Another list of operators is another role.
    let operators = TlsFiles { operators: vec!["bob".into()], ..files };
    tls.replace(LoadedTls::read(&operators).expect("all is there"));
    let _ = of_bob.read_to_end(&mut Vec::new());
    assert!(by_tls(&papers, address, Some("bob"), "POST").starts_with("HTTP/1.1 200 "));
}

#[test]
fn clients_of_one_group_delay_no_other_group() {
    let path = socket("groups");
    let slow = async || {
        let _ = blocking(|| std::thread::sleep(Duration::from_secs(3))).await;
        Response::done(json!(null))
    };
    let router = echo().route("/v1/slow", get(slow));
    let _server = Server::start(Listen::unix(&path), router.clone()).expect("a socket");
    let page = Server::start(Listen::tcp("127.0.0.1:0".parse().unwrap()), router);
    let page = page.expect("a port is free");
    let address = page.address().expect("it is TCP");
    let hostile: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(address).expect("the server listens");
            stream.write_all(b"GET /v1/slow HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    let answer = ask(&path, "GET", "/v1/wait", &json!(null), Duration::from_secs(20));
    assert_eq!(answer.expect("an answer").status, 200);
    // The others' requests take minutes one after the other.
    let took = began.elapsed();
    println!("an answer beside {} hostile clients took {took:?}", hostile.len());
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_client_with_many_requests_delays_another_by_few() {
    let (server, address, _) = crowded(1024);
    let busy: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut stream = connect_from(1, address);
            request(&mut stream, "/v1/wait").expect("it is taken");
            stream
        })
        .collect();
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    let reading = std::thread::spawn(move || {
        for mut stream in busy {
            count.fetch_add(u64::from(is_answered(&mut stream)), Ordering::Relaxed);
        }
    });
    let mut other = connect_from(2, address);
    request(&mut other, "/v1/wait").expect("it is taken");
    assert!(is_answered(&mut other));
    // Four are done at a time; those that had begun, and perhaps as many again, were before it.
    let before = answered.load(Ordering::Relaxed);
    assert!(before < 30, "{before} of 60 requests of another client were answered before");
    reading.join().expect("all are answered");
    assert_eq!(answered.load(Ordering::Relaxed), 60);
    drop(server);
}

#[test]
fn a_request_knows_its_client() {
    let path = socket("peers");
    let tell = async |Extension(peer): Extension<Peer>,
                      Extension(group): Extension<ClientGroup>| {
        Response::done(json!([peer.to_string(), format!("{group:?}")]))
    };
    let router = Router::new().route("/", get(tell));
    let _server = Server::start(Listen::unix(&path), router.clone()).expect("a socket");
    let answer = ask(&path, "GET", "/", &json!(null), PATIENCE).expect("an answer");
    // The effective user is whose files this process makes.
    let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&path).expect("it is there"));
    let own = format!("uid {uid}, pid {}", std::process::id());
    assert_eq!(answer.body, json!([own, "Operators"]));
    let read = path.with_file_name("read.sock");
    let listen = Listen::unix(&read).role(Role::Read);
    let _read = Server::start(listen, router.clone()).expect("a socket");
    let answer = ask(&read, "GET", "/", &json!(null), PATIENCE).expect("an answer");
    assert_eq!(answer.body[1], "Readers");

    let papers = Papers::new("peers-tls");
    papers.write("alice");
    let listen = Listen::tls("127.0.0.1:0".parse().unwrap(), papers.load());
    let server = Server::start(listen, router).expect("a port is free");
    let mut stream = connect_by_tls(&papers, server.address().unwrap(), Some("alice"));
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it is taken");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.contains("certificate \\\"alice\\\" from 127.0.0.1:"), "{answer}");
    assert!(answer.contains("Remote"), "{answer}");
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

/// Two clients that connect, send these bytes and go, again and again, until this is dropped.
struct Reconnecting {
    is_over: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Reconnecting {
    fn start(path: &Path, sends: &'static str) -> Self {
        let (is_over, connections) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let client = |_| {
            let (path, is_over, connections) =
                (path.to_owned(), is_over.clone(), connections.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = UnixStream::connect(&path) {
                        let _ = stream.write_all(sends.as_bytes());
                        connections.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let threads = (0..2).map(client).collect();
        Self { is_over, connections, threads }
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Reconnecting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn clients_that_reconnect_without_a_pause_keep_nobody_waiting() {
    let path = socket("reconnects");
    let _server = start(&path);
    for sends in ["", "GET /v1/echo HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let clients = Reconnecting::start(&path, sends);
        let ask = |_| {
            let began = std::time::Instant::now();
            assert_eq!(get_echo(&path).expect("an answer").status, 200);
            let took = began.elapsed();
            std::thread::sleep(Duration::from_millis(5));
            took
        };
        let mut took: Vec<Duration> = (0..100).map(ask).collect();
        took.sort_unstable();
        let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
        let count = clients.connections();
        println!(
            "beside {count} connections that send {sends:?}: median {median:?}, worst {worst:?}"
        );
        assert!(worst < Duration::from_secs(10), "{worst:?}");
    }
}
