//! Servers behind one external endpoint: new connections go to the servers that answer health
//! checks, and to the backup while no other does. The gateway has two workers.

use natgate_testnet::{
    Gateway, POOL, ROUTER, SUBSCRIBER1, SUBSCRIBER2, TestNetwork, config, traffic, wait_for,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const BACKUP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const PORT: u16 = 8080;

/// A server of HTTP that writes its own address; it ends when dropped.
struct Server {
    status: Arc<AtomicU16>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(network: &TestNetwork, node: &str, address: Ipv4Addr) -> Self {
        let endpoint = SocketAddrV4::new(address, PORT);
        let listener = traffic::listen(network.node(node), endpoint, PATIENCE).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (status, ends) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicBool::new(false)));
        let (of_thread, ending) = (Arc::clone(&status), Arc::clone(&ends));
        let serve = move || serve(&listener, address, &of_thread, &ending);
        Self { status, ends, thread: Some(thread::spawn(serve)) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(
    listener: &TcpListener,
    address: Ipv4Addr,
    status: &Arc<AtomicU16>,
    ends: &Arc<AtomicBool>,
) {
    while !ends.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let status = Arc::clone(status);
        // A client may wait before it asks.
        thread::spawn(move || answer(stream, address, &status));
    }
}

fn answer(mut stream: TcpStream, address: Ipv4Addr, status: &AtomicU16) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = [0; 600];
    let len = stream.read(&mut request)?;
    assert!(request[..len].starts_with(b"GET /well HTTP/1."), "{len} bytes");
    let status = status.load(Ordering::Relaxed);
    stream.write_all(format!("HTTP/1.1 {status} So\r\n\r\n{address}").as_bytes())
}

/// A connection of a client outside to the external endpoint. Each has a port of its own: a port
/// that is used again belongs to the earlier session, unless its server takes no new ones.
fn connect(network: &TestNetwork) -> io::Result<TcpStream> {
    static PORT: AtomicU16 = AtomicU16::new(30_000);
    connect_from(network, PORT.fetch_add(1, Ordering::Relaxed))
}

/// A connection from a port of the client's.
fn connect_from(network: &TestNetwork, port: u16) -> io::Result<TcpStream> {
    let here = SocketAddrV4::new(ROUTER, port);
    let limit = Duration::from_secs(3);
    traffic::connect_from(network.node("router"), here, external(), limit)
}

fn external() -> SocketAddrV4 {
    SocketAddrV4::new(POOL[0], 80)
}

/// The server that answers on a connection.
fn ask(mut stream: TcpStream) -> Ipv4Addr {
    stream.write_all(b"GET /well HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.rsplit("\r\n").next().unwrap().parse().expect("the server's address")
}

/// The servers of 20 new connections.
fn servers(network: &TestNetwork) -> BTreeSet<Ipv4Addr> {
    (0..20).map(|_| ask(connect(network).unwrap())).collect()
}

/// Waits until `natgate show servers` has these states.
fn wait_until(network: &TestNetwork, expected: &[&str]) {
    let shown = || {
        let socket = network.file("control.sock");
        let arguments = ["show", "servers", "--json", "--socket", socket.to_str().unwrap()];
        let shown: Value = serde_json::from_str(&network.run("nat", super::PROGRAM, &arguments))?;
        let all = shown["servers"].as_array().expect("a list of servers");
        let states: Vec<_> = all.iter().map(|one| one["state"].as_str().unwrap_or("-")).collect();
        Ok((states == expected).then_some(()))
    };
    wait_for(&format!("servers {expected:?}"), PATIENCE, shown).unwrap();
}

fn gateway(network: &TestNetwork) -> Gateway {
    let socket = network.file("control.sock");
    let (external, socket) = (external(), socket.to_str().unwrap());
    let more = format!(
        r#"
[workers]
count = 2

[control]
socket = "{socket}"

[[static]]
external = "{external}"
protocol = "tcp"
affinity = "none"
servers = [
    {{ internal = "{SUBSCRIBER1}:{PORT}" }},
    {{ internal = "{SUBSCRIBER2}:{PORT}" }},
    {{ internal = "{BACKUP}:{PORT}", backup = true }},
]
[static.health]
kind = "http"
target = "/well"
interval = "500ms"
timeout = "500ms"
failures = 2
successes = 1

[[static]]
external = "{0}:81"
protocol = "udp"
servers = [{{ internal = "{SUBSCRIBER1}:81" }}]
[static.health]
kind = "icmp"
interval = "500ms"
timeout = "500ms"

[[static]]
external = "{0}:82"
protocol = "udp"
servers = [{{ internal = "{SUBSCRIBER1}:82" }}]
[static.health]
kind = "tcp"
port = {PORT}
interval = "500ms"
timeout = "500ms"
failures = 1
"#,
        external.ip()
    );
    network.start(super::PROGRAM, &config(&more))
}

#[test]
fn new_connections_go_to_servers_that_are_well() {
    let network = super::network();
    network.ip("sub2", &format!("address add {BACKUP}/24 dev eth0"));
    let [one, two] = [("sub1", SUBSCRIBER1), ("sub2", SUBSCRIBER2)];
    let start = |(node, address)| Server::start(&network, node, address);
    let (first, second, backup) = (start(one), start(two), start(("sub2", BACKUP)));
    let gateway = gateway(&network);
    wait_until(&network, &["up"; 5]);
    assert_eq!(servers(&network), [SUBSCRIBER1, SUBSCRIBER2].into());
    // A server that answers with an error gets no new connections, and keeps its old ones.
    let early: Vec<_> = (0..20).map(|_| connect(&network).unwrap()).collect();
    let from = |port| ask(connect_from(&network, port).unwrap());
    let port = (20_000..20_100).find(|port| from(*port) == SUBSCRIBER2);
    second.status.store(503, Ordering::Relaxed);
    wait_until(&network, &["up", "down", "up", "up", "up"]);
    assert_eq!(servers(&network), [SUBSCRIBER1].into());
    // Nor does it get the connection of a client that uses a port again.
    assert_eq!(from(port.expect("a connection to each server")), SUBSCRIBER1);
    let of_early: BTreeSet<_> = early.into_iter().map(ask).collect();
    assert_eq!(of_early, [SUBSCRIBER1, SUBSCRIBER2].into());
    // The backup stands in for both; the check by TCP sees the end of the server, too.
    drop(first);
    wait_until(&network, &["down", "down", "up", "up", "down"]);
    assert_eq!(servers(&network), [BACKUP].into());
    // Nobody is left.
    backup.status.store(500, Ordering::Relaxed);
    wait_until(&network, &["down", "down", "down", "up", "down"]);
    assert!(connect(&network).is_err());
    let log = gateway.log();
    let refused = "so new sessions are refused";
    assert!(log.contains(": status 503") && log.contains(": connection refused"), "{log}");
    assert!(log.contains(refused), "{log}");
    // All come back.
    backup.status.store(200, Ordering::Relaxed);
    let _first = start(one);
    wait_until(&network, &["up", "down", "up", "up", "up"]);
    assert_eq!(servers(&network), [SUBSCRIBER1].into());
    second.status.store(302, Ordering::Relaxed);
    wait_until(&network, &["up"; 5]);
    assert_eq!(servers(&network), [SUBSCRIBER1, SUBSCRIBER2].into());
    // No connection of a check stays open at a server.
    let open = network.run("sub1", "ss", &["-Htn", "state", "connected", "dst", "10.0.0.1"]);
    assert!(!open.contains("ESTAB") && !open.contains("WAIT"), "{open}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}
