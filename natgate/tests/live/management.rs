//! The machine itself stays reachable on natgate's devices. Its own addresses there answer, and it
//! can connect to other hosts, while subscribers are translated.

use natgate_testnet::{GATEWAY_INSIDE, POOL, ROUTER, SERVER1, SUBSCRIBER1, TestNetwork, traffic};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The kernel's own addresses, beside natgate's.
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// Opens a connection like that of a person at a terminal: both ends send in turn.
fn converse(network: &TestNetwork, from: &str, to: &str, address: Ipv4Addr, port: u16) {
    let endpoint = SocketAddrV4::new(address, port);
    let listener = network.node(to).enter(|| TcpListener::bind(endpoint).unwrap()).unwrap();
    let listening = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = [0; 6];
        stream.write_all(b"login:").unwrap();
        stream.read_exact(&mut line).unwrap();
        stream.write_all(&line).unwrap();
    });
    let patience = Duration::from_secs(5);
    let connect = || TcpStream::connect_timeout(&endpoint.into(), patience);
    let stream = network.node(from).enter(connect).unwrap();
    let mut stream = stream.unwrap_or_else(|error| panic!("{from} calls {endpoint}: {error}"));
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut line = [0; 6];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"login:");
    stream.write_all(b"root\r\n").unwrap();
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"root\r\n");
    listening.join().unwrap();
}

/// Configures IPv6 of the kernel between natgate's machine and the router.
fn give_ipv6(network: &TestNetwork) {
    for (node, device, address) in
        [("nat", "outside", "2001:db8::2"), ("router", "nat", "2001:db8::1")]
    {
        network.node(node).set(&format!("ipv6/conf/{device}/disable_ipv6"), "0").unwrap();
        network.ip(node, &format!("address add {address}/64 dev {device} nodad"));
    }
}

/// Remote endpoints of all sessions.
fn remotes(status: &Value) -> Vec<String> {
    let sessions = status["sessions"].as_array().expect("the status has sessions");
    sessions
        .iter()
        .map(|session| session["remote"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn stays_reachable(backend: &str, configured: bool) -> Value {
    let network = super::network();
    network.ip("nat", &format!("address add {INSIDE}/24 dev inside"));
    network.ip("nat", &format!("address add {OUTSIDE}/24 dev outside"));
    give_ipv6(&network);
    let text = natgate_testnet::config("").replace("af-packet", backend);
    let text = match configured {
        true => text
            .replace("[outside]", &format!("management = [\"{INSIDE}\"]\n[outside]\n"))
            .replace("[[pool]]", &format!("management = [\"{OUTSIDE}\"]\n[[pool]]\n")),
        false => text,
    };
    let program = std::path::Path::new(super::PROGRAM);
    let gateway = natgate_testnet::Gateway::start(&network, program, &text).unwrap();
    let log = gateway.log();
    assert!(log.contains(&format!("on inside the kernel keeps {INSIDE}")), "{log}");
    assert!(log.contains(&format!("on outside the kernel keeps {OUTSIDE}")), "{log}");
    assert!(!log.contains("warning"), "{log}");
    // Subscribers are translated before, between and after the connections.
    let socket = network.udp_socket("sub1");
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    assert!(POOL.contains(external.ip()), "{external}");
    converse(&network, "sub1", "nat", INSIDE, 22);
    converse(&network, "sub2", "nat", INSIDE, 22);
    converse(&network, "router", "nat", OUTSIDE, 22);
    // The kernel connects to other hosts, and has to resolve them by ARP.
    network.ip("nat", "neighbor flush all");
    converse(&network, "nat", "router", ROUTER, 8022);
    converse(&network, "nat", "sub1", SUBSCRIBER1, 8022);
    for (node, address) in [
        ("sub1", INSIDE.to_string()),
        ("router", OUTSIDE.to_string()),
        ("router", "2001:db8::2".to_owned()),
        ("sub1", GATEWAY_INSIDE.to_string()),
        ("sub1", SERVER1.to_string()),
    ] {
        let said = network.run(node, "ping", &["-n", "-c", "2", "-i", "0.1", "-W", "2", &address]);
        assert!(said.contains(" 2 received, "), "{node}: {said}");
    }
    assert_eq!(traffic::ask_udp(&socket, SERVER1).unwrap(), external);
    let status = gateway.status().unwrap();
    let leaked =
        |remote: &String| remote.starts_with("10.0.0.2:") || remote.starts_with("192.0.2.3:");
    assert!(!remotes(&status).iter().any(leaked), "{status}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    status
}

#[test]
fn the_machine_stays_reachable_with_packet_sockets() {
    let status = stays_reachable("af-packet", false);
    assert!(status["router"]["left_to_the_kernel"].as_u64() > Some(10), "{}", status["router"]);
}

#[test]
fn the_machine_stays_reachable_with_af_xdp() {
    for configured in [false, true] {
        let status = stays_reachable("af-xdp", configured);
        assert_eq!(status["router"]["left_to_the_kernel"], 0, "{}", status["router"]);
        for side in ["inside", "outside"] {
            assert_eq!(status["devices"][side]["receive_overrun"], 0);
        }
    }
}
