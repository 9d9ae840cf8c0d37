//! The network of a test, its servers, and clients of both families.

use super::{PROGRAM, TAG};
use natgate_testnet::{Gateway, Network, Turn, terminate, wait_for, wait_for_listener};
use serde_json::Value;
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Port of the servers, on TCP and UDP.
pub(crate) const PORT: u16 = 7000;

/// Bytes of a TCP connection, each way.
const AMOUNT: usize = 300_000;

const PATIENCE: Duration = Duration::from_secs(10);

/// Nodes and cables, without a gateway.
pub(crate) struct World {
    // The network is dropped before the right to have one.
    network: Network,
    stop: Arc<AtomicBool>,
    /// Servers that run.
    children: RefCell<Vec<Child>>,
    _turn: Turn,
}

impl World {
    /// The network of the drawing, or one with more nodes in a row: `client`, `nat`, ..., `server`.
    pub(crate) fn new(nodes: &[&str]) -> Self {
        let turn = Turn::take(TAG);
        let mut network = Network::empty(&turn.name()).unwrap();
        for node in nodes {
            network.add(node).unwrap();
        }
        for pair in nodes.windows(2) {
            let device = |node: &str, gateway: &'static str| match node {
                "client" | "server" => "eth0",
                _ => gateway,
            };
            let (near, far) = (device(pair[0], "outside"), device(pair[1], "inside"));
            network.cable([pair[0], near, pair[1], far]).unwrap();
        }
        Self { network, stop: Arc::default(), children: RefCell::default(), _turn: turn }
    }

    /// Gives a host addresses and routes: lines for `ip`. Its kernel has IPv6.
    pub(crate) fn host(&self, node: &str, lines: &str) {
        let node = self.network.node(node);
        for scope in ["all", "default", "lo", "eth0"] {
            node.set(&format!("ipv6/conf/{scope}/disable_ipv6"), "0").unwrap();
        }
        node.ip_batch(&format!("link set lo up\n{lines}")).unwrap();
    }

    /// Starts a gateway in a node, and waits until it uses its addresses.
    pub(crate) fn start(&self, node: &str, config: &str) -> Gateway {
        self.start_with(node, config, &[])
    }

    /// Starts a gateway that takes over from the one in the node.
    pub(crate) fn take_over(&self, node: &str, config: &str) -> Gateway {
        self.start_with(node, config, &["--take-over"])
    }

    /// What a gateway says that cannot take over from the one in the node.
    pub(crate) fn refused_take_over(&self, node: &str, config: &str) -> String {
        let started = self.try_to_start(node, config, &["--take-over"]);
        started.expect_err("it does not take over").to_string()
    }

    fn try_to_start(&self, node: &str, config: &str, options: &[&str]) -> io::Result<Gateway> {
        let config = format!("{config}[control]\nsocket = {:?}\n", self.socket(node));
        Gateway::start_with(&self.network, node, Path::new(PROGRAM), &config, options)
    }

    fn start_with(&self, node: &str, config: &str, options: &[&str]) -> Gateway {
        let gateway = self.try_to_start(node, config, options);
        let gateway = gateway.unwrap_or_else(|error| panic!("{error}"));
        let assigned = |status: &Value| {
            let of_side = |side: &str| status["ipv6"][side]["addresses"].as_array().cloned();
            let all: Vec<Value> =
                ["inside", "outside"].into_iter().filter_map(of_side).flatten().collect();
            !all.is_empty() && all.iter().all(|one| one["state"] == "assigned")
        };
        wait_for("duplicate address detection", PATIENCE, || {
            Ok(assigned(&gateway.status()?).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {}", gateway.log()));
        gateway
    }

    /// Serves TCP and UDP in a node: the answer is the client's endpoint, as the server sees it. A
    /// connection then gets back what it sends.
    pub(crate) fn serve(&self, node: &str, address: IpAddr) {
        let endpoint = SocketAddr::new(address, PORT);
        let bind = || (TcpListener::bind(endpoint), UdpSocket::bind(endpoint));
        let (listener, socket) = self.enter(node, bind);
        let (listener, socket) = (listener.unwrap(), socket.unwrap());
        listener.set_nonblocking(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let stop = Arc::clone(&self.stop);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, client)) => {
                        thread::spawn(move || reflect(stream, client));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}"),
                }
                if let Ok((_, client)) = socket.recv_from(&mut buffer) {
                    socket.send_to(client.to_string().as_bytes(), client).unwrap();
                }
            }
        });
    }

    /// Starts a server in a node, which runs until the end of the test, and waits until it listens
    /// at a TCP port.
    pub(crate) fn spawn(&self, node: &str, program: &str, arguments: &[&str], port: u16) {
        self.background(node, program, arguments);
        wait_for_listener(self.network.node(node), port, PATIENCE).unwrap();
    }

    /// Starts a program in a node, which runs until the end of the test.
    fn background(&self, node: &str, program: &str, arguments: &[&str]) {
        let name = Path::new(program).file_name().expect("a program").to_string_lossy();
        let log = self.network.file(&format!("{name}.log"));
        let child = self.network.node(node).start(program.as_ref(), arguments, &log).unwrap();
        self.children.borrow_mut().push(child);
    }

    /// Makes a node a router of the kernel with both families, by lines for `ip`.
    pub(crate) fn router(&self, node: &str, lines: &str) {
        let node = self.network.node(node);
        for scope in ["all", "default", "lo", "inside", "outside"] {
            node.set(&format!("ipv6/conf/{scope}/disable_ipv6"), "0").unwrap();
        }
        node.set("ipv6/conf/all/forwarding", "1").unwrap();
        node.set("ipv4/ip_forward", "1").unwrap();
        // Otherwise fast requests of traceroute get no answer.
        node.set("ipv4/icmp_ratelimit", "0").unwrap();
        node.set("ipv6/icmp/ratelimit", "0").unwrap();
        node.ip_batch(&format!("link set lo up\n{lines}")).unwrap();
    }

    /// Starts tayga in a router, which translates what is routed to its device `tayga`: by maps of
    /// an IPv4 to an IPv6 address each, and by a prefix.
    pub(crate) fn tayga(&self, node: &str, prefix: &str, maps: &[(&str, &str)]) {
        let maps: String = maps.iter().map(|(four, six)| format!("map {four} {six}\n")).collect();
        let config = format!(
            "tun-device tayga\nipv4-addr 192.0.0.1\nipv6-addr 2001:db8:aaaa::1\n\
             prefix {prefix}\n{maps}"
        );
        let file = self.file("tayga.conf");
        std::fs::write(&file, config).unwrap();
        let made = self.network.node(node).run(20, "tayga", &["--config", &file, "--mktun"]);
        made.expect("tayga is there (Debian package tayga)");
        self.background(node, "tayga", &["--config", &file, "--nodetach"]);
        self.network.node(node).ip_batch("link set tayga up\n").unwrap();
        let is_attached =
            || Ok(self.run(node, "ip link show tayga").contains("LOWER_UP").then_some(()));
        wait_for("tayga", PATIENCE, is_attached).unwrap();
    }

    /// The routers that traceroute sees on the path from a node to an address, then the address.
    pub(crate) fn traceroute(&self, node: &str, kind: &str, to: &str) -> Vec<String> {
        let said = self.run(node, &format!("traceroute {kind} -n -q 1 -w 2 -m 8 {to}"));
        let hops = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        hops.map(str::to_owned).collect()
    }

    /// Connects from a node to a server, sends and receives; returns the client's endpoint as the
    /// server sees it.
    pub(crate) fn tcp(&self, node: &str, address: IpAddr) -> SocketAddr {
        self.tcp_to(node, &SocketAddr::new(address, PORT).to_string())
    }

    /// As [`World::tcp`], to an endpoint.
    pub(crate) fn tcp_to(&self, node: &str, to: &str) -> SocketAddr {
        let (mut stream, seen) = self.connect_to(node, to.parse().unwrap());
        let sent: Vec<u8> = (0..AMOUNT).map(|at| (at * 7 + at / 251) as u8).collect();
        let (mut writer, bytes) = (stream.try_clone().unwrap(), sent.clone());
        let writing = thread::spawn(move || writer.write_all(&bytes).unwrap());
        let mut received = vec![0; AMOUNT];
        stream.read_exact(&mut received).unwrap();
        writing.join().unwrap();
        assert!(received == sent, "the bytes differ");
        seen
    }

    /// Connects from a node to a server; returns the connection, and the client's endpoint as the
    /// server sees it.
    pub(crate) fn connect(&self, node: &str, address: IpAddr) -> (TcpStream, SocketAddr) {
        self.connect_to(node, SocketAddr::new(address, PORT))
    }

    fn connect_to(&self, node: &str, to: SocketAddr) -> (TcpStream, SocketAddr) {
        let stream = self.enter(node, || TcpStream::connect_timeout(&to, PATIENCE));
        let mut stream = stream.unwrap_or_else(|error| panic!("{node} to {to}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = [0; 64];
        stream.read_exact(&mut line).unwrap();
        (stream, String::from_utf8_lossy(&line).trim().parse().unwrap())
    }

    /// Sends a datagram of `len` bytes from a node to a server; returns the client's endpoint as
    /// the server sees it.
    pub(crate) fn udp(&self, node: &str, address: IpAddr, len: usize) -> SocketAddr {
        let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        self.udp_from(node, any.parse().unwrap(), address, len)
    }

    /// As [`World::udp`], from an endpoint.
    pub(crate) fn udp_from(
        &self,
        node: &str,
        from: SocketAddr,
        address: IpAddr,
        len: usize,
    ) -> SocketAddr {
        let socket = self.enter(node, || UdpSocket::bind(from).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut buffer = [0; 256];
        for _ in 0..5 {
            socket.send_to(&vec![7; len], SocketAddr::new(address, PORT)).unwrap();
            if let Ok((len, _)) = socket.recv_from(&mut buffer) {
                return String::from_utf8_lossy(&buffer[..len]).parse().unwrap();
            }
        }
        panic!("{node} gets no answer from {address}");
    }

    /// The nodes and cables.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Does work in a node. Sockets that are made there stay in the node.
    pub(crate) fn enter<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        self.network.node(node).enter(work).unwrap()
    }

    /// Runs a program in a node to its end, whatever its exit code; returns what it says.
    pub(crate) fn run(&self, node: &str, command: &str) -> String {
        let command = format!("{command} 2>&1; true");
        let output = self.network.node(node).run(20, "sh", &["-c", &command]).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends three echo requests from a node; each must be answered.
    pub(crate) fn ping(&self, node: &str, address: &str, more: &str) {
        let said = self.run(node, &format!("ping -n -c 3 -i 0.1 -W 3 {more} {address}"));
        assert!(said.contains(" 3 received, "), "{node}: {said}");
    }

    /// Asks the gateway of a node by its control socket: `natgate` with these arguments. Returns
    /// JSON.
    pub(crate) fn ask(&self, node: &str, arguments: &[&str]) -> Value {
        let socket = self.socket(node);
        let arguments = [arguments, &["--json", "--socket", &socket]].concat();
        let output = Command::new(PROGRAM).args(&arguments).output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {wrong}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Path of a file of this network.
    pub(crate) fn file(&self, name: &str) -> String {
        self.network.file(name).display().to_string()
    }

    /// Control socket of the gateway of a node.
    pub(crate) fn socket(&self, node: &str) -> String {
        self.file(&format!("{node}.sock"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for child in self.children.get_mut() {
            let _ = terminate(child).and_then(|()| child.wait());
        }
    }
}

/// Tells a client its endpoint in 64 bytes, and returns what it sends.
fn reflect(mut stream: TcpStream, client: SocketAddr) {
    stream.set_nonblocking(false).unwrap();
    let line = format!("{:<64}", client.to_string());
    let mut buffer = [0; 16_384];
    if stream.write_all(line.as_bytes()).is_err() {
        return;
    }
    while let Ok(len) = stream.read(&mut buffer) {
        if len == 0 || stream.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}
