//! Hosts that request mappings of the whole program, by PCP and with Debian's NAT-PMP client.
//!
//! Needs root and the programs that `make test` installs, and fails without them. One test runs at
//! a time, because the tests share two cores with the gateway.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, Gateway, POOL, SERVER1, SERVER2, TestNetwork, config, wait_for,
};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngpcp";
const PORT: u16 = 5351;
const SUB1: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 11);
const SUB2: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 12);
const PATIENCE: Duration = Duration::from_secs(10);

/// A network with hosts that request mappings.
struct PcpNetwork(TestNetwork);

impl PcpNetwork {
    fn new() -> Self {
        Self(TestNetwork::new(TAG))
    }

    fn start(&self, more: &str) -> Gateway {
        let file = config(&format!("[pcp]\nenabled = true\n{more}"));
        self.0.start(PROGRAM, &file)
    }

    fn socket(&self, node: &str, port: u16) -> UdpSocket {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
        let socket = self.0.node(node).enter(bind).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket
    }

    /// Sends a request to the gateway and returns the answer.
    fn ask(&self, socket: &UdpSocket, request: &[u8]) -> Vec<u8> {
        let mut answer = [0; 2000];
        for _ in 0..5 {
            socket.send_to(request, (GATEWAY_INSIDE, PORT)).unwrap();
            if let Ok((len, from)) = socket.recv_from(&mut answer) {
                assert_eq!(from, SocketAddrV4::new(GATEWAY_INSIDE, PORT).into());
                return answer[..len].to_vec();
            }
        }
        panic!("no answer to {request:02x?}");
    }

    /// Returns true if a packet of an outside host to an external endpoint arrives at this socket.
    fn reaches(&self, server: &str, external: SocketAddrV4, inside: &UdpSocket) -> bool {
        let outside = self.socket(server, 0);
        outside.send_to(b"knock", external).unwrap();
        let mut bytes = [0; 16];
        matches!(inside.recv_from(&mut bytes), Ok((5, _)))
    }

    /// Success and output of Debian's client.
    fn natpmpc(&self, node: &str, arguments: &[&str]) -> (bool, String) {
        let all = [&["-g", "10.0.0.1"], arguments].concat();
        let output = self.0.node(node).run(60, "natpmpc", &all).unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn request(client: Ipv4Addr, opcode: u8, lifetime: u32) -> Vec<u8> {
    let mut bytes = vec![2, opcode, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(client.to_ipv6_mapped().octets());
    bytes
}

fn map(client: Ipv4Addr, port: u16, external: (Ipv4Addr, u16), lifetime: u32) -> Vec<u8> {
    let mut bytes = request(client, 1, lifetime);
    bytes.extend([9; 12]);
    bytes.extend([17, 0, 0, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend(external.1.to_be_bytes());
    bytes.extend(external.0.to_ipv6_mapped().octets());
    bytes
}

fn any() -> (Ipv4Addr, u16) {
    (Ipv4Addr::UNSPECIFIED, 0)
}

fn third_party(host: Ipv4Addr) -> Vec<u8> {
    [&[1, 0, 0, 16][..], &host.to_ipv6_mapped().octets()].concat()
}

/// External endpoint in an answer, and its lifetime in seconds.
fn granted(answer: &[u8]) -> (SocketAddrV4, u32) {
    assert_eq!((answer[0], answer[1], answer[3]), (2, 0x81, 0), "{answer:02x?}");
    let port = u16::from_be_bytes([answer[42], answer[43]]);
    let address = Ipv4Addr::new(answer[56], answer[57], answer[58], answer[59]);
    let lifetime = u32::from_be_bytes([answer[4], answer[5], answer[6], answer[7]]);
    (SocketAddrV4::new(address, port), lifetime)
}

fn epoch(answer: &[u8]) -> u32 {
    u32::from_be_bytes([answer[8], answer[9], answer[10], answer[11]])
}

/// Number behind a word in the client's output.
fn number_after(said: &str, word: &str) -> u16 {
    let rest = said.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {said}")).1;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after {word:?} in {said}"))
}

fn mappings(gateway: &Gateway) -> Vec<Value> {
    gateway.status().unwrap()["mappings"].as_array().unwrap().clone()
}

//= test rfc6888#REQ-9
//= test rfc6887#section-8.2-interface
#[test]
fn debians_client_opens_a_port_and_closes_it() {
    let network = PcpNetwork::new();
    let gateway = network.start("");
    let (done, said) = network.natpmpc("sub1", &[]);
    assert!(done, "{said}");
    let address: Ipv4Addr = said
        .lines()
        .find_map(|line| line.strip_prefix("Public IP address : "))
        .and_then(|address| address.trim().parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    assert!(POOL.contains(&address), "{said}");

    let inside = network.socket("sub1", 7000);
    let (done, said) = network.natpmpc("sub1", &["-a", "7000", "7000", "udp", "600"]);
    assert!(done, "{said}");
    let port = number_after(&said, "Mapped public port");
    assert_eq!(port, 7000, "{said}");
    assert!(said.contains("liftime 600"), "{said}");
    let external = SocketAddrV4::new(address, port);
    assert!(network.reaches("server1", external, &inside));
    assert!(network.reaches("server2", external, &inside));
    // The command from docs/pcp.md.
    let document = include_str!("../../docs/pcp.md");
    let command = document.lines().find_map(|line| line.strip_prefix("natpmpc -g 10.0.0.1 "));
    let arguments: Vec<&str> = command.expect("docs/pcp.md has a command").split(' ').collect();
    let (done, said) = network.natpmpc("sub2", &arguments);
    assert!(done && said.contains("Mapped public port 8080"), "{said}");
    // Another subscriber that prefers the same port gets another one.
    let (done, said) = network.natpmpc("sub2", &["-a", "7000", "7000", "tcp", "600"]);
    assert!(done, "{said}");
    let of_pcp = |mapping: &&Value| mapping["kind"] == "pcp";
    let told: Vec<_> = mappings(&gateway).iter().filter(of_pcp).cloned().collect();
    let of_first = told.iter().find(|one| one["internal"] == "10.0.0.11:7000").unwrap();
    assert_eq!(of_first["external"], external.to_string());

    // Requests from outside get no answer, whatever their destination.
    let outside = network.socket("server1", 0);
    outside.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for to in [GATEWAY_OUTSIDE, address] {
        for request in [vec![0, 0], map(SERVER1, 80, any(), 600)] {
            outside.send_to(&request, (to, PORT)).unwrap();
            assert!(outside.recv_from(&mut [0; 100]).is_err());
        }
    }
    // Requests from inside to the outside address get no answer either.
    let inside_socket = network.socket("sub1", 0);
    inside_socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    inside_socket.send_to(&[0, 0], (GATEWAY_OUTSIDE, PORT)).unwrap();
    assert!(inside_socket.recv_from(&mut [0; 100]).is_err());

    let (done, said) = network.natpmpc("sub2", &["-a", "7000", "7000", "tcp", "0"]);
    assert!(done, "{said}");
    assert!(mappings(&gateway).iter().all(|one| one["internal"] != "10.0.0.12:7000"));
    let counted = &gateway.status().unwrap()["pcp"]["results"];
    assert!(counted["success"].as_u64() >= Some(5), "{counted}");
    assert!(gateway.stop().unwrap().success());
}

//= test rfc7753#section-4.2-fewer
//= test rfc6887#section-13.1-permitted
#[test]
fn pcp_with_several_workers_and_for_others() {
    let network = PcpNetwork::new();
    let gateway = network.start("third_party = [\"10.0.0.11/32\"]\n[workers]\ncount = 2\n");
    let asking = network.socket("sub1", 0);
    let alive = network.ask(&asking, &request(SUB1, 0, 0));
    assert_eq!((&alive[..4], alive.len()), (&[2, 0x80, 0, 0][..], 24));

    // Requests for the host itself, for sixteen other hosts of both workers, and for sub2, which
    // exists.
    let (external, lifetime) = granted(&network.ask(&asking, &map(SUB1, 7000, any(), 600)));
    assert_eq!(lifetime, 600);
    let own = network.socket("sub1", 7000);
    assert!(network.reaches("server1", external, &own));
    for host in 100..116 {
        let host = Ipv4Addr::new(10, 0, 0, host);
        let request = [map(SUB1, 7000, any(), 600), third_party(host)].concat();
        let answer = network.ask(&asking, &request);
        granted(&answer);
        assert_eq!(answer[60..], third_party(host));
    }
    let request = [map(SUB1, 7001, any(), 600), third_party(SUB2)].concat();
    let (external, _) = granted(&network.ask(&asking, &request));
    let other = network.socket("sub2", 7001);
    assert!(network.reaches("server2", external, &other));
    // Not every host may request mappings for others.
    let request = [map(SUB2, 7001, any(), 600), third_party(SUB1)].concat();
    assert_eq!(network.ask(&network.socket("sub2", 0), &request)[3], 5);

    // A mapping with a filter that admits only one server.
    let mut filter = vec![3, 0, 0, 20, 0, 128, 0, 0];
    filter.extend(SERVER2.to_ipv6_mapped().octets());
    let filtered = [map(SUB1, 7002, any(), 600), filter].concat();
    let (external, _) = granted(&network.ask(&asking, &filtered));
    let inside = network.socket("sub1", 7002);
    inside.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(!network.reaches("server1", external, &inside));
    inside.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert!(network.reaches("server2", external, &inside));

    // A request for exactly one external endpoint, which is taken.
    let strict =
        [map(SUB1, 7003, (*external.ip(), external.port()), 600), vec![2, 0, 0, 0]].concat();
    assert_eq!(network.ask(&asking, &strict)[3], 11);
    // A set of consecutive ports.
    let set =
        [map(SUB1, 8000, any(), 600), vec![130, 0, 0, 5, 0, 8, 0x1f, 0x40, 0, 0, 0, 0]].concat();
    let answer = network.ask(&asking, &set);
    let (first, _) = granted(&answer);
    let ports = if answer.len() > 60 { u16::from_be_bytes([answer[64], answer[65]]) } else { 1 };
    assert!((1..=8).contains(&ports));
    for more in 0..ports {
        let inside = network.socket("sub1", 8000 + more);
        let external = SocketAddrV4::new(*first.ip(), first.port() + more);
        assert!(network.reaches("server1", external, &inside));
    }
    // After the deletion no packet gets in.
    granted(&network.ask(&asking, &map(SUB1, 7004, any(), 600)));
    let gone = network.ask(&asking, &map(SUB1, 7004, any(), 0));
    assert_eq!((gone[3], &gone[4..8]), (0, &[0; 4][..]));
    let left = mappings(&gateway);
    assert!(left.iter().all(|one| one["internal"] != "10.0.0.11:7004"), "{left:?}");
    let others = left.iter().filter(|one| one["internal"].as_str().unwrap().ends_with(":7000"));
    assert_eq!(others.count(), 17);
    assert!(gateway.stop().unwrap().success());
}

//= test rfc6887#section-8.2-overload
//= test rfc6887#section-14.1.3-inform
//= test rfc6887#section-14.1.3-source
//= test rfc6887#section-8.5-reset
//= test rfc6887#section-14-either
//= test rfc6886#section-3.6
#[test]
fn a_flood_is_dropped_and_a_restart_is_announced() {
    let network = PcpNetwork::new();
    let hearing = network.socket("sub1", 5350);
    let gateway = network.start("client_requests_per_second = 5\nrequests_per_second = 50\n");
    let mut bytes = [0; 100];
    let heard = wait_for("an announcement", PATIENCE, || {
        let Ok((len, from)) = hearing.recv_from(&mut bytes) else { return Ok(None) };
        assert_eq!(from, SocketAddrV4::new(GATEWAY_INSIDE, PORT).into());
        Ok(Some(bytes[..len].to_vec()))
    });
    let heard = heard.unwrap();
    assert_eq!((&heard[..4], heard.len()), (&[2, 0x80, 0, 0][..], 24));

    let flooding = network.socket("sub2", 0);
    for port in 1..2000 {
        flooding.send_to(&map(SUB2, port, any(), 600), (GATEWAY_INSIDE, PORT)).unwrap();
    }
    // Another client is served meanwhile, and packets still pass.
    let asking = network.socket("sub1", 0);
    let before = network.ask(&asking, &map(SUB1, 7000, any(), 600));
    let (external, _) = granted(&before);
    let inside = network.socket("sub1", 7000);
    assert!(network.reaches("server1", external, &inside));
    let state = wait_for("requests that are dropped", PATIENCE, || {
        let state = gateway.status()?;
        let dropped = state["counters"]["drops"]["request_limit"].as_u64();
        Ok((dropped > Some(0)).then_some(state))
    });
    let state = state.unwrap();
    assert!(state["pcp"]["dropped"].as_u64() > Some(0), "{state}");
    assert!(mappings(&gateway).len() <= 200);

    // After a restart the epoch begins again, and the former external endpoint is available.
    assert!(gateway.stop().unwrap().success());
    let gateway = network.start("");
    let wanted = (*external.ip(), external.port());
    let after = network.ask(&asking, &map(SUB1, 7000, wanted, 600));
    assert_eq!(granted(&after).0, external);
    assert!(epoch(&after) <= epoch(&before) + 5, "{} {}", epoch(&before), epoch(&after));
    assert!(gateway.stop().unwrap().success());
}

#[test]
fn who_may_not_ask_gets_no_answer() {
    let network = PcpNetwork::new();
    let file = config("");
    let gateway = network.0.start(PROGRAM, &file);
    let socket = network.socket("sub1", 0);
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket.send_to(&request(SUB1, 0, 0), (GATEWAY_INSIDE, PORT)).unwrap();
    assert!(socket.recv_from(&mut [0; 100]).is_err());
    let state = gateway.status().unwrap();
    assert_eq!(state["counters"]["drops"]["local_unsupported"].as_u64(), Some(1), "{state}");
    assert!(gateway.stop().unwrap().success());
}
