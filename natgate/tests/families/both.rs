//! NAT64 beside DS-Lite in one gateway: a host with IPv6 alone, and a customer with a tunnel and
//! two inner hosts. The network is that of `dslite`.

use super::dslite::{EXTERNAL, HOME, INNER, config, world};
use super::world::{PORT, World};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// The second inner host of the home.
const OTHER: &str = "192.168.1.3";
const SERVER: &str = "192.0.2.1";
/// The server, and the external address, as a host of NAT64 knows them.
const SERVER6: &str = "64:ff9b::192.0.2.1";
const EXTERNAL6: &str = "64:ff9b::203.0.113.1";
/// An address of the home behind no tunnel, and the prefix that it has in common with the B4.
const HOME6: &str = "2001:db8:b4:1::9";
const HOME_NETWORK: &str = "2001:db8:b4:1::/64";
/// The network of the client.
const NETWORK: &str = "2001:db8:2::/64";

fn open(world: &World, node: &str, local: &str) -> UdpSocket {
    let socket = world.enter(node, || UdpSocket::bind(local).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut buffer = [0; 64];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    (String::from_utf8(buffer[..len].to_vec()).unwrap(), from)
}

/// The external endpoint of a socket, as the server sees it.
fn external(socket: &UdpSocket, server: &str) -> SocketAddr {
    socket.send_to(b"who am I?", (server.parse::<IpAddr>().unwrap(), PORT)).unwrap();
    let (seen, _) = receive(socket);
    seen.parse().unwrap()
}

/// One field of all mappings.
fn all_of<'v>(shown: &'v Value, field: &str) -> Vec<&'v str> {
    let all = shown["mappings"].as_array().unwrap();
    all.iter().filter_map(|one| one[field].as_str()).collect()
}

fn subscribers(shown: &Value) -> Vec<&str> {
    all_of(shown, "subscriber")
}

/// Mappings of one prefix with hosts of both kinds are told apart by the realm.
fn names_both(world: &World) {
    let question = ["show", "mappings", "--subscriber", HOME_NETWORK];
    let program = env!("CARGO_BIN_EXE_natgate");
    let (command, socket) = (question.join(" "), world.socket("nat"));
    let said = world.run("nat", &format!("{program} {command} --socket {socket}"));
    assert!(said.contains("say realm=nat64 or realm=dslite"), "{said}");
    for (realm, hosts) in [("nat64", &[HOME6][..]), ("dslite", &[INNER, OTHER])] {
        let shown = world.ask("nat", &[&question[..], &["--realm", realm]].concat());
        assert!(all_of(&shown, "realm").iter().all(|one| *one == realm), "{shown}");
        let internal = all_of(&shown, "internal");
        assert!(hosts.iter().all(|host| internal.iter().any(|one| one.contains(host))), "{shown}");
        let is_one = |one: &&str| hosts.iter().any(|host| one.contains(host));
        assert!(internal.iter().all(is_one), "{shown}");
    }
}

/// Hosts of both kinds use one server, reach each other, and are named. Another process takes over.
fn serves_both(more: &str) {
    let world = world();
    let addresses = [format!("{OTHER}/32 dev lo"), format!("{HOME6}/128 dev lo nodad")];
    world.host("home", &addresses.map(|address| format!("address add {address}\n")).concat());
    let config = config(more);
    let gateway = world.start("nat", &config);
    world.ping("client", SERVER6, "-s 1300");
    world.ping("home", SERVER, "-s 1300");
    let seen =
        [world.tcp("client", SERVER6.parse().unwrap()), world.tcp("home", SERVER.parse().unwrap())];
    assert!(seen.iter().all(|seen| seen.ip().to_string() == EXTERNAL), "{seen:?}");
    let six = open(&world, "client", "[::]:5555");
    let inner = [INNER, OTHER].map(|host| open(&world, "home", &format!("{host}:5555")));
    let of_six = external(&six, SERVER6);
    let of_inner = [0, 1].map(|host| external(&inner[host], SERVER));
    assert!(of_six != of_inner[0] && of_inner[0] != of_inner[1] && of_six != of_inner[1]);
    // From the host of NAT64 into the tunnel, and back.
    let external6 = |port: u16| SocketAddr::new(EXTERNAL6.parse().unwrap(), port);
    let exchange = || {
        for host in [0, 1] {
            six.send_to(b"a question", external6(of_inner[host].port())).unwrap();
            assert_eq!(receive(&inner[host]), ("a question".to_owned(), of_six));
            inner[host].send_to(b"an answer", of_six).unwrap();
            let from = external6(of_inner[host].port());
            assert_eq!(receive(&six), ("an answer".to_owned(), from));
        }
    };
    exchange();
    let shown = world.ask("nat", &["show", "mappings", "--subscriber", HOME]);
    assert!(subscribers(&shown).len() >= 2, "{shown}");
    let shown = world.ask("nat", &["show", "mappings", "--subscriber", NETWORK]);
    assert!(!subscribers(&shown).is_empty(), "{shown}");
    assert!(subscribers(&shown).iter().all(|one| *one == NETWORK), "{shown}");
    let of_home = external(&open(&world, "home", &format!("[{HOME6}]:5555")), SERVER6);
    let who = |seen: SocketAddr| world.ask("nat", &["who", &seen.to_string(), "--protocol", "udp"]);
    assert_eq!(who(of_six)["subscriber"], NETWORK);
    assert_eq!(who(of_home)["subscriber"], HOME_NETWORK);
    if more.contains("subscriber_length") {
        names_both(&world);
    }
    for (seen, host) in of_inner.iter().zip([INNER, OTHER]) {
        let shown = who(*seen);
        assert_eq!(shown["internal"], format!("{host}:5555"), "{shown}");
    }
    let traced = world.ask("nat", &["trace", &format!("udp {SERVER}:{PORT} > {}", of_inner[1])]);
    assert!(traced.to_string().contains(&format!("{OTHER}:5555")), "{traced:#}");
    let heir = world.take_over("nat", &config);
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
    exchange();
    assert_eq!(external(&six, SERVER6), of_six);
    assert_eq!([0, 1].map(|host| external(&inner[host], SERVER)), of_inner);
    assert_eq!(heir.stop().unwrap().code(), Some(0));
}

#[test]
fn a_gateway_has_nat64_beside_dslite() {
    serves_both("[nat64]\nnon_global = \"translate\"\n");
}

#[test]
fn several_workers_have_nat64_beside_dslite() {
    serves_both(
        "subscriber_length = 64\n[nat64]\nnon_global = \"translate\"\n[workers]\ncount = 2\n",
    );
}
