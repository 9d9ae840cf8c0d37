//! Hosts of IPv6 that request mappings of NAT64 by PCP.

use super::PROGRAM;
use super::nat64::{CLIENT, SERVER, world};
use super::world::World;
use natgate_testnet::Gateway;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const OWN: &str = "2001:db8:1::1";
const SERVER6: &str = "2001:db8:64::198.51.100.10";
const EXTERNAL: &str = "203.0.113.1";
const PCP: u16 = 5351;
const PATIENCE: Duration = Duration::from_secs(10);

fn config(more: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"{OWN}/64\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\ngateway = \"192.0.2.1\"\n\
         [[pool]]\naddresses = [\"{EXTERNAL}\"]\n\
         [nat64]\nprefixes = [\"2001:db8:64::/96\", \"2001:db8:6400::/40\"]\n\
         [pcp]\nenabled = true\n{more}"
    )
}

fn address<A: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> A {
    text.parse().unwrap()
}

/// A socket of a node with a timeout.
fn socket(world: &World, node: &str, endpoint: &str) -> UdpSocket {
    let socket = world.enter(node, || UdpSocket::bind(endpoint).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Sends a request to an endpoint of the gateway until there is an answer.
fn ask(socket: &UdpSocket, to: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut answer = [0; 1200];
    for _ in 0..5 {
        socket.send_to(request, to).unwrap();
        if let Ok((len, from)) = socket.recv_from(&mut answer) {
            assert_eq!((from.ip(), from.port()), (to.ip(), PCP));
            return answer[..len].to_vec();
        }
    }
    panic!("no answer to {request:02x?}");
}

fn gateway() -> SocketAddr {
    SocketAddr::new(address(OWN), PCP)
}

fn request(opcode: u8, lifetime: u32) -> Vec<u8> {
    let mut bytes = vec![2, opcode, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(address::<Ipv6Addr>(CLIENT).octets());
    bytes
}

fn map(protocol: u8, port: u16, lifetime: u32) -> Vec<u8> {
    let mut bytes = request(1, lifetime);
    bytes.extend([9; 12]);
    bytes.extend([protocol, 0, 0, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0; 18]);
    bytes
}

/// The question for prefixes, and the answer to it.
fn prefix64() -> (Vec<u8>, Vec<u8>) {
    let option =
        |len: u8, octets: [u8; 16]| [&[129, 0, 0, 14, 0, len][..], &octets[..12], &[0; 2]].concat();
    let of = |text: &str, len| option(len, address::<Ipv6Addr>(text).octets());
    let both = [of("2001:db8:64::", 12), of("2001:db8:6400::", 5)].concat();
    (option(12, [0; 16]), both)
}

/// External endpoint in an answer that says success.
fn granted(answer: &[u8]) -> SocketAddr {
    assert_eq!((answer[0], answer[3]), (2, 0), "{answer:02x?}");
    assert_eq!(answer[44..60], address::<Ipv4Addr>(EXTERNAL).to_ipv6_mapped().octets());
    SocketAddr::new(address(EXTERNAL), u16::from_be_bytes([answer[42], answer[43]]))
}

fn stop(gateway: Gateway) {
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn an_ipv6_host_serves_ipv4_hosts_by_a_requested_mapping() {
    let world = world();
    let events = world.file("events.jsonl");
    let log = format!("[[log]]\nkind = \"file\"\npath = {events:?}\n");
    let running = world.start("nat", &config(&log));
    let client = socket(&world, "client", "[::]:0");
    // TCP: a server on the host is reached from outside.
    let external = granted(&ask(&client, gateway(), &map(6, 7000, 600)));
    let listener = world.enter("client", || TcpListener::bind("[::]:7000").unwrap());
    let connect = || TcpStream::connect_timeout(&external, PATIENCE).unwrap();
    let mut outside = world.enter("server", connect);
    let (mut inside, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), address::<IpAddr>("2001:db8:64::192.0.2.1"));
    outside.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    inside.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    // UDP: the mapping is that of the host's own packets, too.
    let own = socket(&world, "client", "[::]:7001");
    let external = granted(&ask(&own, gateway(), &map(17, 7001, 600)));
    world.serve("server", address(SERVER));
    own.send_to(b"who", SocketAddr::new(address(SERVER6), 7000)).unwrap();
    let mut bytes = [0; 64];
    let (len, _) = own.recv_from(&mut bytes).unwrap();
    assert_eq!(bytes[..len], *external.to_string().as_bytes());
    // It is named as any mapping is.
    let host = format!("[{CLIENT}]:7001");
    let is_it = |one: &Value| {
        one["internal"] == json!(host)
            && one["kind"] == "pcp"
            && one["subscriber"] == "2001:db8:1::/64"
            && one["external"] == external.to_string()
    };
    let shown = world.ask("nat", &["show", "mappings", "--subscriber", CLIENT]);
    assert!(shown["mappings"].as_array().unwrap().iter().any(is_it), "{shown}");
    let shown = world.ask("nat", &["who", &external.to_string(), "--protocol", "udp"]);
    assert_eq!(shown["internal"], json!(host), "{shown}");
    let gone = ask(&own, gateway(), &map(17, 7001, 0));
    assert_eq!(gone[3], 0);
    let status = running.status().unwrap();
    assert!(status["pcp"]["results"]["success"].as_u64() >= Some(3), "{}", status["pcp"]);
    stop(running);
    let lines = std::fs::read_to_string(&events).unwrap();
    let mut found = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(found.any(|line| line["event"] == "mapping_created" && is_it(&line)), "{lines}");
}

#[test]
fn hosts_learn_of_the_gateway_its_prefixes_and_its_restarts() {
    let world = world();
    let heard = socket(&world, "client", "[::]:5350");
    let running = world.start("nat", &config(""));
    let (question, prefixes) = prefix64();
    // The announcement of the start comes from each address that may be asked.
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut sources = Vec::new();
    let mut bytes = [0; 1200];
    while sources.len() < 2 {
        let (len, from) = heard.recv_from(&mut bytes).unwrap();
        assert_eq!((bytes[..4].to_vec(), from.port()), (vec![2, 0x80, 0, 0], PCP));
        assert_eq!(bytes[24..len], prefixes);
        if !sources.iter().any(|one: &SocketAddr| one.ip() == from.ip()) {
            sources.push(from);
        }
    }
    assert!(sources.iter().any(|from| from.ip() == address::<IpAddr>(OWN)), "{sources:?}");
    let client = socket(&world, "client", &format!("[{CLIENT}]:0"));
    let answer = ask(&client, gateway(), &[request(0, 0), question.clone()].concat());
    assert_eq!(answer[24..], prefixes);
    let answer = ask(&client, gateway(), &[map(17, 7000, 600), question].concat());
    granted(&answer);
    assert_eq!(answer[60..], prefixes);
    // The default router is asked by its link-local address.
    let router = sources.into_iter().find(|from| from.ip() != address::<IpAddr>(OWN)).unwrap();
    granted(&ask(&client, router, &map(17, 7001, 600)));
    stop(running);
}

#[test]
fn what_a_host_may_not_have_is_refused() {
    let world = world();
    let more = "mappings_per_subscriber = 2\nthird_party = [\"2001:db8:1::99/128\"]\n";
    let running = world.start("nat", &config(more));
    // A second answer to a repeated request must not count for the next one.
    let code = |request: Vec<u8>| ask(&socket(&world, "client", "[::]:0"), gateway(), &request)[3];
    let mut mismatch = map(17, 7000, 600);
    mismatch[23] ^= 1;
    assert_eq!(code(mismatch), 12, "ADDRESS_MISMATCH");
    let other = address::<Ipv6Addr>("2001:db8:1::77").octets();
    let third = [map(17, 7000, 600), [&[1, 0, 0, 16][..], &other].concat()].concat();
    assert_eq!(code(third), 5, "UNSUPP_OPTION");
    assert_eq!((code(map(17, 7000, 600)), code(map(17, 7001, 600))), (0, 0));
    assert_eq!(code(map(17, 7002, 600)), 10, "USER_EX_QUOTA");
    assert_eq!(code(vec![0, 0]), 1, "NAT-PMP is of IPv4");
    // Nothing answers outside.
    let outside = socket(&world, "server", "0.0.0.0:0");
    outside.send_to(&map(17, 7000, 600), ("192.0.2.2", PCP)).unwrap();
    assert!(outside.recv_from(&mut [0; 100]).is_err());
    stop(running);
    let said = world.run("nat", &format!("{PROGRAM} check {}", world.file("natgate.toml")));
    assert!(said.contains("hosts of IPv6 ask by PCP"), "{said}");
}
