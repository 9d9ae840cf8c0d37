//! Packets that are larger than a link arrive nevertheless: in fragments, or after their sender has
//! learned the permitted size.
//!
//! The kernels at the ends fragment datagrams and reassemble them. Routers on the path report
//! packets that may not be fragmented (RFC 1191). This must work from inside and from outside, and
//! with the small link at any place: natgate's own, or one that only a router knows.
//! not be cut (RFC 1191). All of it must work from inside and from outside, and wherever the small
//! link is: natgate's own, or one that only a router knows of.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use natgate_testnet::{Gateway, Network, SERVER1, SUBSCRIBER2, config, traffic};

use crate::{HOME_CONFIG, HOME_EXTERNAL, add_home, drops, gateway, run, turn};

/// Port of the transfers.
const PORT: u16 = 9000;

/// Length of a transfer, bytes: thousands of full segments.
const BULK: usize = 4_000_000;

/// The second subscriber has an external address of its own.
const SUBSCRIBER_STATIC: &str = "[[static]]\n\
     internal = \"10.0.0.12\"\n\
     external = \"203.0.113.8\"\n";
const SUBSCRIBER_EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);

//= test rfc4787#REQ-14
#[test]
fn large_pings_pass_both_ways() {
    let turn = turn();
    let network = turn.network();
    let gateway = gateway(&network, &config(SUBSCRIBER_STATIC));
    for (node, address) in [("sub1", SERVER1), ("sub2", SERVER1), ("server1", SUBSCRIBER_EXTERNAL)]
    {
        for size in [1472, 1473, 8000, 65_000] {
            let said = run(
                network.node(node),
                "ping",
                &format!("-n -c 3 -i 0.05 -W 2 -s {size} {address}"),
            );
            assert!(said.contains(" 3 received, "), "{node} {size}: {said}");
        }
    }
    assert_eq!(drops(&gateway, "fragment_unmatched"), 0);
}

//= test rfc4787#REQ-14
#[test]
fn datagrams_of_60000_bytes_pass_both_ways() {
    let turn = turn();
    let network = turn.network();
    let gateway = gateway(&network, &config(SUBSCRIBER_STATIC));
    // Forty fragments are more than can wait for an answer to ARP.
    for node in ["sub1", "sub2"] {
        run(network.node(node), "ping", &format!("-n -c 1 -W 2 {SERVER1}"));
    }
    let socket = |node: &str, address, port| bound(&network, node, address, port);
    let server = socket("server1", SERVER1, PORT);
    let dynamic = socket("sub1", Ipv4Addr::UNSPECIFIED, 0);
    let fixed = socket("sub2", SUBSCRIBER2, PORT);
    for round in 0..10 {
        let seen = deliver(&dynamic, SocketAddrV4::new(SERVER1, PORT), &server, round);
        deliver(&server, seen, &dynamic, round + 1);
        let seen = deliver(&server, SocketAddrV4::new(SUBSCRIBER_EXTERNAL, PORT), &fixed, round);
        assert_eq!(seen, SocketAddrV4::new(SERVER1, PORT));
        deliver(&fixed, seen, &server, round + 1);
    }
    assert_eq!(drops(&gateway, "fragment_unmatched"), 0);
}

//= test rfc4787#REQ-13
//= test rfc4787#REQ-13a
//= test rfc5508#section-7.1.1-honour
//= test rfc5508#section-7.1.1-fragment
#[test]
fn path_mtu_discovery_stops_at_the_gateways_own_outside() {
    let turn = turn();
    let network = turn.network();
    mtu(&network, [("nat", "outside"), ("router", "nat")], 1400);
    let small = config(SUBSCRIBER_STATIC).replace("[outside]\n", "[outside]\nmtu = 1400\n");
    let gateway = gateway(&network, &small);
    assert_eq!(transfer(&network, "sub1", "server1", SERVER1), 1400);
    assert!(drops(&gateway, "too_big") > 0, "the gateway said so itself");
    // In the other direction the router reports it.
    assert_eq!(transfer(&network, "server1", "sub2", SUBSCRIBER_EXTERNAL), 1400);
    ping_in_pieces(&network, &gateway, "sub1", SERVER1);
}

//= test rfc5508#section-7.1.1-honour
//= test rfc5508#section-7.1.1-fragment
#[test]
fn path_mtu_discovery_stops_at_the_gateways_own_inside() {
    let turn = turn();
    let network = turn.network();
    let small = config(SUBSCRIBER_STATIC).replace("[inside]\n", "[inside]\nmtu = 1300\n");
    let gateway = gateway(&network, &small);
    assert_eq!(transfer(&network, "server1", "sub2", SUBSCRIBER_EXTERNAL), 1300);
    assert!(drops(&gateway, "too_big") > 0, "the gateway said so itself");
    ping_in_pieces(&network, &gateway, "server1", SUBSCRIBER_EXTERNAL);
}

//= test rfc5382#REQ-9
//= test rfc5508#section-7.1.2
#[test]
fn path_mtu_discovery_hears_routers_beyond() {
    let turn = turn();
    let mut network = turn.network();
    add_home(&mut network);
    let gateway = gateway(&network, &config(HOME_CONFIG));
    mtu(&network, [("router", "server1"), ("server1", "eth0")], 1300);
    mtu(&network, [("sub1", "home"), ("home", "eth0")], 1200);
    // Both ends continue to announce their former segment size. Otherwise TCP would never send
    // packets that are too large.
    for (node, route) in [
        ("server1", "route change default via 198.51.100.1 advmss 1460\n"),
        ("home", "route change default via 10.1.0.1 advmss 1460\n"),
    ] {
        network.node(node).ip_batch(route).unwrap();
    }
    assert_eq!(transfer(&network, "sub2", "server1", SERVER1), 1300);
    let external: Ipv4Addr = HOME_EXTERNAL.parse().unwrap();
    assert_eq!(transfer(&network, "server1", "home", external), 1200);
    assert_eq!(drops(&gateway, "too_big"), 0, "only the routers said so");
    assert_eq!(drops(&gateway, "icmp_no_session"), 0);
}

fn bound(network: &Network, node: &str, address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = network.node(node).enter(|| UdpSocket::bind((address, port))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Sends 60,000 bytes; returns the endpoint that the receiver saw.
fn deliver(from: &UdpSocket, to: SocketAddrV4, at: &UdpSocket, round: usize) -> SocketAddrV4 {
    let bytes = bytes(60_000, round);
    assert_eq!(from.send_to(&bytes, to).unwrap(), bytes.len());
    let mut buffer = vec![0; 65_535];
    let (length, seen) = at.recv_from(&mut buffer).unwrap();
    assert!(buffer[..length] == bytes, "round {round}: {length} bytes came that differ");
    seen.to_string().parse().unwrap()
}

/// The gateway fragments a packet at its own small link: 4,000 bytes whose fragments are too large
/// for it.
fn ping_in_pieces(network: &Network, gateway: &Gateway, node: &str, to: Ipv4Addr) {
    let refused = drops(gateway, "too_big");
    let said =
        run(network.node(node), "ping", &format!("-n -c 3 -i 0.05 -W 2 -M dont -s 4000 {to}"));
    assert!(said.contains(" 3 received, "), "{said}");
    assert_eq!(drops(gateway, "too_big"), refused);
}

/// Sends megabytes over TCP and compares the received bytes; returns the path MTU that the sender's
/// kernel has found.
fn transfer(network: &Network, from: &str, to: &str, address: Ipv4Addr) -> u32 {
    let listener =
        network.node(to).enter(|| TcpListener::bind(("0.0.0.0", PORT))).unwrap().unwrap();
    let endpoint = SocketAddrV4::new(address, PORT);
    let sent = bytes(BULK, 7);
    let received = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&listener));
        let mut stream = traffic::connect(network.node(from), 0, endpoint).unwrap();
        stream.write_all(&sent).unwrap();
        drop(stream);
        receiver.join().unwrap().unwrap()
    });
    assert!(received == sent, "{} bytes came that differ", received.len());
    let route = run(network.node(from), "ip", &format!("route get {address}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu").skip(1);
    words.next().unwrap_or_else(|| panic!("no path MTU known: {route}")).parse().unwrap()
}

/// Accepts one connection and reads all bytes.
fn receive(listener: &TcpListener) -> io::Result<Vec<u8>> {
    let (mut stream, _): (TcpStream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut received = Vec::with_capacity(BULK);
    stream.read_to_end(&mut received)?;
    Ok(received)
}

fn bytes(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|n| ((n + salt).wrapping_mul(0x9e37_79b9) >> 16) as u8).collect()
}

/// Reduces the MTU of a link at both of its ends.
fn mtu(network: &Network, ends: [(&str, &str); 2], bytes: u32) {
    for (node, device) in ends {
        network.node(node).ip_batch(&format!("link set {device} mtu {bytes}\n")).unwrap();
    }
}
