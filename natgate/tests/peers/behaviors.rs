//! A STUN client on a subscriber's machine finds the configured behaviors by the methods of RFC
//! 5780 and RFC 3489, for all nine combinations of mapping and filtering.
//!
//! The server is coturn, with two addresses and two ports. The clients are coturn's
//! `turnutils_natdiscovery` and the classic `stun`. Sockets of this test find the behaviors of TCP
//! (RFC 5382 REQ-1 and REQ-3).
//!
//! The gateway preserves ports, and another subscriber has taken the client's ports before the
//! client starts. Otherwise a preserved port could not be distinguished from a kept external port.
//! Each combination has a network of its own, and all run at once, because they mostly wait for
//! answers that must not come.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Duration;

use natgate_testnet::{
    Namespace, Network, ROUTER, SERVER1, SUBSCRIBER1, SUBSCRIBER2, Servers, Turn, config_with_pool,
    traffic, wait_for,
};

use crate::{gateway, turn};

/// Names of the three behaviors in the configuration.
const BEHAVIORS: [&str; 3] =
    ["endpoint-independent", "address-dependent", "address-and-port-dependent"];

/// The only external address, so that a preferred port is not free on another address.
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Second address of the server; the first is [`SERVER1`].
const SECOND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);

/// Ports of the server, on both addresses.
const STUN_PORTS: [u16; 2] = [3478, 3479];

/// Ports of the clients. Each program has its own, because the packets of one must not open the
/// filter for another. `stun` uses the next port, too.
const MAPPING_PORT: u16 = 5000;
const FILTERING_PORT: u16 = 5100;
const HAIRPIN_PORT: u16 = 5200;
const CLASSIC_PORT: u16 = 5300;
const TCP_PORT: u16 = 5400;

/// Duration of silence that proves the absence of an answer.
const SILENCE: Duration = Duration::from_secs(1);

//= test rfc4787#REQ-1
//= test rfc4787#REQ-3
//= test rfc4787#REQ-8
//= test rfc4787#REQ-8a
//= test rfc4787#REQ-9
//= test rfc5382#REQ-1
//= test rfc5382#REQ-3
//= test rfc5382#REQ-3a
//= test rfc5382#REQ-7
#[test]
fn stun_clients_find_the_configured_behaviors_with_contended_ports() {
    let turn = &turn();
    let mut wrong = String::new();
    thread::scope(|scope| {
        let mut cases = Vec::new();
        for mapping in BEHAVIORS {
            for filtering in BEHAVIORS {
                let name = format!("mapping {mapping}, filtering {filtering}");
                cases.push((name, scope.spawn(move || check(turn, mapping, filtering))));
            }
        }
        for (name, case) in cases {
            if case.join().is_err() {
                writeln!(wrong, "{name}: see above").unwrap();
            }
        }
    });
    assert_eq!(wrong, "");
}

/// Checks one combination.
fn check(turn: &Turn, mapping: &str, filtering: &str) {
    let network = turn.network();
    let _server = StunServer::start(&network);
    let pool = format!("addresses = [\"{EXTERNAL}\"]");
    let nat = format!(
        "[nat]\n\
         mapping = \"{mapping}\"\n\
         filtering = \"{filtering}\"\n\
         allocation = \"preserve\"\n"
    );
    let _gateway = gateway(&network, &config_with_pool(&pool, &nat));
    let _taken = take_ports(&network);
    let network = &network;
    thread::scope(|scope| {
        scope.spawn(move || finds_mapping(network, mapping));
        scope.spawn(move || finds_filtering(network, filtering));
        scope.spawn(move || finds_hairpinning(network, filtering));
        scope.spawn(move || classic_client_agrees(network, mapping, filtering));
        scope.spawn(move || tcp_agrees(network, mapping, filtering));
    });
}

/// Coturn's name of a behavior.
fn title(behavior: &str) -> &'static str {
    match behavior {
        "endpoint-independent" => "Endpoint Independent",
        "address-dependent" => "Address Dependent",
        _ => "Address and Port Dependent",
    }
}

/// Makes the second subscriber use all ports of the first one, to the same servers.
fn take_ports(network: &Network) -> Vec<UdpSocket> {
    let node = network.node("sub2");
    let ports = [MAPPING_PORT, FILTERING_PORT, HAIRPIN_PORT, CLASSIC_PORT, CLASSIC_PORT + 1];
    let take = |port| {
        let socket = node.enter(|| UdpSocket::bind((SUBSCRIBER2, port))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        // A Binding request of RFC 5389, without attributes.
        let request = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &port.to_be_bytes(), &[7; 10]];
        socket.send_to(&request.concat(), (SERVER1, STUN_PORTS[0])).unwrap();
        let mut answer = [0; 256];
        socket.recv_from(&mut answer).expect("an answer from the STUN server");
        socket
    };
    ports.map(take).into()
}

fn natdiscovery(network: &Network, question: &str, port: u16) -> String {
    let (address, port, server) = (SUBSCRIBER1.to_string(), port.to_string(), SERVER1.to_string());
    let arguments = [question, "-L", &address, "-l", &port, &server];
    let output = network.node("sub1").run(30, "turnutils_natdiscovery", &arguments).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let reflexive = format!("UDP reflexive addr: {EXTERNAL}:");
    assert!(said.contains(&reflexive), "{said}");
    assert!(!said.contains(&format!("{reflexive}{port}\n")), "the port was contended: {said}");
    said
}

fn finds_mapping(network: &Network, mapping: &str) {
    let said = natdiscovery(network, "-m", MAPPING_PORT);
    assert!(said.contains(&format!("NAT with {} Mapping!", title(mapping))), "{said}");
}

fn finds_filtering(network: &Network, filtering: &str) {
    let said = natdiscovery(network, "-f", FILTERING_PORT);
    assert!(said.contains(&format!("NAT with {} Filtering!", title(filtering))), "{said}");
}

/// The client sends to itself from a second socket, uninvited. Only endpoint-independent filtering
/// admits that.
fn finds_hairpinning(network: &Network, filtering: &str) {
    let said = natdiscovery(network, "-H", HAIRPIN_PORT);
    let found = said.contains("maybe a successful hairpinning");
    assert_eq!(found, filtering == BEHAVIORS[0], "{said}");
}

fn classic_client_agrees(network: &Network, mapping: &str, filtering: &str) {
    let (server, port) = (SERVER1.to_string(), CLASSIC_PORT.to_string());
    let arguments = [server.as_str(), "-p", &port];
    // The client's exit code is its finding.
    let said = match network.node("sub1").run(30, "stun", &arguments) {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => error.to_string(),
    };
    let kind = match (mapping == BEHAVIORS[0], title(filtering)) {
        (false, _) => "Dependent Mapping, ",
        (true, "Endpoint Independent") => "Independent Mapping, Independent Filter, ",
        (true, "Address Dependent") => "Independent Mapping, Address Dependent Filter, ",
        (true, _) => "Independent Mapping, Port Dependent Filter, ",
    };
    assert!(said.contains(&format!("Primary: {kind}random port, ")), "{said}");
    // The client sends to itself from one socket. With endpoint-independent mapping every filter
    // knows the sender.
    let admitted = mapping == BEHAVIORS[0] || filtering == BEHAVIORS[0];
    let hairpin = if admitted { "will hairpin" } else { "no hairpin" };
    assert!(said.contains(hairpin), "{said}");
}

/// Checks the behaviors of TCP: one port calls three endpoints, and three endpoints may call it
/// back.
fn tcp_agrees(network: &Network, mapping: &str, filtering: &str) {
    let server = network.node("server1");
    let [first, second] = STUN_PORTS.map(|port| port + 1000);
    let others = [(SERVER1, first), (SERVER1, second), (SECOND, second)]
        .map(|(address, port)| (listen(server, port, address), SocketAddrV4::new(address, port)));
    let _taken = call(network, "sub2", &others[0]);
    let mut open = Vec::new();
    let seen = others.each_ref().map(|other| {
        let (stream, seen) = call(network, "sub1", other);
        open.push(stream);
        seen
    });
    assert!(seen.iter().all(|seen| seen.port() != TCP_PORT), "the port was contended: {seen:?}");
    let same = [seen[1] == seen[0], seen[2] == seen[0], seen[2] == seen[1]];
    let expected = match title(mapping) {
        "Endpoint Independent" => [true; 3],
        // The third endpoint has another address.
        "Address Dependent" => [true, false, false],
        _ => [false; 3],
    };
    assert_eq!(same, expected, "{seen:?}");

    let listener = listen(network.node("sub1"), TCP_PORT, SUBSCRIBER1);
    let admitted = |node: &str, address| {
        let answered = call_from(network.node(node), address, seen[2]);
        assert_eq!(answered, listener.accept().is_ok());
        answered
    };
    // The called mapping knows the second address by one port. The caller's mapping answers the
    // admitted packets, so it must be the same mapping.
    let acquaintance = admitted("server1", SECOND);
    assert_eq!(acquaintance, filtering != BEHAVIORS[2] && mapping != BEHAVIORS[2]);
    let stranger = admitted("router", ROUTER);
    assert_eq!(stranger, filtering == BEHAVIORS[0] && mapping == BEHAVIORS[0]);
}

/// Connects from the contended port; returns the connection and the endpoint that the server saw.
fn call(
    network: &Network,
    node: &str,
    (listener, endpoint): &(TcpListener, SocketAddrV4),
) -> (TcpStream, SocketAddrV4) {
    let stream = traffic::connect(network.node(node), TCP_PORT, *endpoint).unwrap();
    let (_, from) = listener.accept().unwrap();
    (stream, from.to_string().parse().unwrap())
}

/// Tries to connect from a port of this address that has sent no packet; returns true if the
/// connection came in time.
fn call_from(node: &Namespace, from: Ipv4Addr, to: SocketAddrV4) -> bool {
    traffic::connect_from(node, SocketAddrV4::new(from, 0), to, SILENCE).is_ok()
}

/// Listens, also on a port that connects itself; an accept waits only for a moment.
fn listen(node: &Namespace, port: u16, address: Ipv4Addr) -> TcpListener {
    traffic::listen(node, SocketAddrV4::new(address, port), SILENCE).unwrap()
}

/// coturn; it ends with its network.
struct StunServer(Child);

impl StunServer {
    fn start(network: &Network) -> Self {
        let node = network.node("server1");
        node.ip_batch(&format!("address add {SECOND}/25 dev eth0\n")).unwrap();
        let (log, pid) = (network.file("turnserver.log"), network.file("turnserver.pid"));
        let database = network.file("turnserver.db");
        let arguments = format!(
            "-n -L {SERVER1} -L {SECOND} --listening-port {} --alt-listening-port {} --stun-only \
             --no-tls --no-dtls --no-cli --log-file stdout --pidfile {} --userdb {}",
            STUN_PORTS[0],
            STUN_PORTS[1],
            pid.display(),
            database.display()
        );
        let arguments: Vec<_> = arguments.split(' ').collect();
        let child = node.start(Path::new("turnserver"), &arguments, &log).unwrap();
        let server = Self(child);
        wait_for("the STUN server's start", Duration::from_secs(10), || {
            let sockets = node.enter(|| std::fs::read_to_string("/proc/thread-self/net/udp"))??;
            let ready = [SERVER1, SECOND].iter().all(|address| {
                let hex = format!("{:08X}", address.to_bits().swap_bytes());
                STUN_PORTS.iter().all(|port| sockets.contains(&format!(" {hex}:{port:04X} ")))
            });
            Ok(ready.then_some(()))
        })
        .unwrap();
        server
    }
}

impl Drop for StunServer {
    fn drop(&mut self) {
        // Both calls fail only if the server has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// With address-dependent filtering, two subscribers connect by sending to each other's external
/// endpoints at once (RFC 4787 REQ-9, RFC 5128).
//= test rfc4787#REQ-9
//= test rfc4787#REQ-9a
#[test]
fn subscribers_meet_through_every_filter() {
    let turn = turn();
    for filtering in BEHAVIORS {
        let network = turn.network();
        let servers = Servers::start(&network, [].into()).unwrap();
        let pool = format!("addresses = [\"{EXTERNAL}\"]");
        let nat = format!("[nat]\nfiltering = \"{filtering}\"\n");
        let _gateway = gateway(&network, &config_with_pool(&pool, &nat));
        let sockets = ["sub1", "sub2"].map(|node| traffic::udp_socket(network.node(node)).unwrap());
        let [one, two] =
            sockets.each_ref().map(|socket| traffic::ask_udp(socket, SERVER1).unwrap());
        let mut buffer = [0; 16];
        let mut call = |from: usize, to, at: usize, seen| {
            sockets[from].send_to(b"hello", to).unwrap();
            let by = sockets[at].recv_from(&mut buffer).ok()?.1;
            assert_eq!(by, std::net::SocketAddr::from(seen));
            Some(())
        };
        // The first packet is uninvited, and opens the filter for the other direction.
        assert_eq!(call(0, two, 1, one).is_some(), filtering == BEHAVIORS[0], "{filtering}");
        call(1, one, 0, two).expect("an answer is let in");
        call(0, two, 1, one).expect("who was called is let in");
        drop(servers);
    }
}
