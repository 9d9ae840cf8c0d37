//! Hosts behind B4s that are reached from outside, between kernels: by mappings that they request
//! by PCP in their tunnels, and by static mappings.

use super::PROGRAM;
use super::dslite::{CLIENT, EXTERNAL, HOME, INNER, config, start_with, world};
use super::world::{PORT, World};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// The gateway's address in every tunnel.
const AFTR: (&str, u16) = ("192.0.0.1", 5351);
const PATIENCE: Duration = Duration::from_secs(10);

/// A request to map the host's port of a protocol.
fn map(protocol: u8, port: u16, lifetime: u32) -> Vec<u8> {
    let mut bytes = vec![2, 1, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(INNER.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets());
    bytes.extend([9; 12]);
    bytes.extend([protocol, 0, 0, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0; 18]);
    bytes
}

/// Sends a request from a node until there is an answer.
fn ask(world: &World, node: &str, request: &[u8]) -> Vec<u8> {
    let socket = world.enter(node, || UdpSocket::bind((INNER, 0)).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut answer = [0; 1200];
    for _ in 0..5 {
        socket.send_to(request, AFTR).unwrap();
        if let Ok((len, from)) = socket.recv_from(&mut answer) {
            assert_eq!(from.to_string(), "192.0.0.1:5351");
            return answer[..len].to_vec();
        }
    }
    panic!("no answer to {request:02x?}");
}

/// External endpoint in an answer that says success.
fn granted(answer: &[u8]) -> SocketAddr {
    assert_eq!((answer[0], answer[3]), (2, 0), "{answer:02x?}");
    SocketAddr::new(EXTERNAL.parse().unwrap(), u16::from_be_bytes([answer[42], answer[43]]))
}

#[test]
fn hosts_with_one_inner_address_serve_by_requested_mappings() {
    for workers in [1, 2] {
        serve_by_requested_mappings(workers);
    }
}

fn serve_by_requested_mappings(workers: u16) {
    let world = world();
    for node in ["client", "home", "server"] {
        world.run(node, "for one in /sys/class/net/*; do ethtool -K ${one##*/} tx off; done");
    }
    let pcp = "[pcp]\nenabled = true\nmappings_per_subscriber = 2\n";
    let running = start_with(&world, &format!("{pcp}[workers]\ncount = {workers}\n"));
    let nodes = [("client", CLIENT), ("home", HOME)];
    let ends = nodes.map(|(node, _)| granted(&ask(&world, node, &map(6, 7000, 600))));
    assert_ne!(ends[0], ends[1]);
    for ((node, b4), external) in nodes.into_iter().zip(ends) {
        let listener = world.enter(node, || TcpListener::bind("0.0.0.0:7000").unwrap());
        let connect = || TcpStream::connect_timeout(&external, PATIENCE).unwrap();
        let mut outside = world.enter("server", connect);
        let (mut inside, _) = listener.accept().unwrap();
        outside.write_all(b"hello").unwrap();
        let mut bytes = [0; 5];
        inside.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        // It is named as any mapping is.
        let is_it = |one: &Value| {
            one["internal"] == json!(format!("{INNER}:7000"))
                && one["kind"] == "pcp"
                && one["subscriber"] == b4
                && one["external"] == external.to_string()
        };
        let shown = world.ask("nat", &["show", "mappings", "--subscriber", b4]);
        assert!(shown["mappings"].as_array().unwrap().iter().any(is_it), "{shown}");
        let shown = world.ask("nat", &["who", &external.to_string(), "--protocol", "tcp"]);
        assert_eq!((&shown["subscriber"], &shown["kind"]), (&json!(b4), &json!("pcp")), "{shown}");
    }
    // The quota is that of the B4.
    granted(&ask(&world, "client", &map(17, 7001, 600)));
    assert_eq!(ask(&world, "client", &map(17, 7002, 600))[3], 10, "USER_EX_QUOTA");
    granted(&ask(&world, "home", &map(17, 7002, 600)));
    assert_eq!(ask(&world, "client", &map(17, 7001, 0))[3], 0);
    assert_eq!(running.stop().unwrap().code(), Some(0));
    let said = world.run("nat", &format!("{PROGRAM} check {}", world.file("natgate.toml")));
    assert!(said.contains("hosts behind B4s ask at 192.0.0.1"), "{said}");
}

/// Static mappings of the servers behind B4s: outside at 9000 and more.
fn static_ports(b4s: &[&str]) -> String {
    let one = |(number, b4): (usize, &&str)| {
        let external = format!("{EXTERNAL}:{}", 9000 + number);
        format!(
            "[[static]]\nsoftwire = \"{b4}\"\ninternal = \"{INNER}:{PORT}\"\n\
             external = \"{external}\"\nprotocol = \"tcp\"\n"
        )
    };
    b4s.iter().enumerate().map(one).collect()
}

#[test]
fn static_mappings_lead_into_tunnels_over_reloads_and_a_take_over() {
    let world = world();
    let old = start_with(&world, &static_ports(&[CLIENT]));
    for node in ["client", "home"] {
        world.serve(node, INNER.parse().unwrap());
    }
    let internal = json!(format!("{INNER}:{PORT}"));
    let is_owner = |external: &str, b4: &str| {
        let shown = world.ask("nat", &["who", external, "--protocol", "tcp"]);
        assert_eq!((&shown["subscriber"], &shown["internal"]), (&json!(b4), &internal), "{shown}");
    };
    // The host has not sent anything yet.
    let first = format!("{EXTERNAL}:9000");
    let seen = world.tcp_to("server", &first);
    assert_eq!(seen.ip().to_string(), "192.0.2.1");
    is_owner(&first, CLIENT);
    // Another B4 comes first in the new file, so the client has another place there.
    let file = world.file("natgate.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let b4s = ["2001:db8:b4::77", HOME, CLIENT];
    let after = before.replace(&static_ports(&[CLIENT]), &static_ports(&b4s));
    std::fs::write(&file, &after).unwrap();
    let changed = world.ask("nat", &["reload"]);
    assert_eq!(changed["changed"], json!(["static"]), "{changed}");
    for (port, b4) in [(9001, HOME), (9002, CLIENT)] {
        let external = format!("{EXTERNAL}:{port}");
        assert_eq!(world.tcp_to("server", &external).ip(), seen.ip());
        is_owner(&external, b4);
    }
    // A new process goes on, if its first numbers are those in force.
    assert_eq!(old.stop().unwrap().code(), Some(0));
    let after = config(&static_ports(&b4s));
    let old = world.start("nat", &after);
    let new = world.take_over("nat", &after);
    assert_eq!(old.wait().unwrap().code(), Some(0));
    assert_eq!(world.tcp_to("server", &format!("{EXTERNAL}:9001")).ip(), seen.ip());
    is_owner(&format!("{EXTERNAL}:9002"), CLIENT);
    assert_eq!(new.stop().unwrap().code(), Some(0));
}
