//! PPTP between a small client and a small server: the control connection by the kernel's TCP, and
//! enhanced GRE by raw sockets. A peer is a few lines, so that a test may do what programs do not.

use super::*;
use natgate_testnet::{Namespace, config_with_pool};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};

const PPTP: u16 = 1723;
const GRE: i32 = 47;

/// One end of a control connection, with a socket for its tunnels.
struct Peer {
    control: TcpStream,
    tunnel: Socket,
}

fn message(kind: u16, len: u16, words: &[u16]) -> Vec<u8> {
    let mut bytes = [len, 1, 0x1a2b, 0x3c4d, kind, 0].map(u16::to_be_bytes).concat();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(len.into(), 0);
    bytes
}

fn gre(call: u16, text: &[u8]) -> Vec<u8> {
    let words = [0x3001, 0x880b, text.len() as u16, call, 0, 1];
    [&words.map(u16::to_be_bytes).concat(), text].concat()
}

/// A raw socket of a node, for all packets of GRE that come to it.
fn tunnel(node: &Namespace) -> Socket {
    let made = node.enter(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(GRE))));
    let socket = made.unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

impl Peer {
    fn of(control: TcpStream, node: &Namespace) -> Self {
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { control, tunnel: tunnel(node) }
    }

    fn tell(&mut self, bytes: &[u8]) {
        self.control.write_all(bytes).unwrap();
    }

    /// The next message.
    fn hear(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 2];
        self.control.read_exact(&mut bytes).unwrap();
        bytes.resize(u16::from_be_bytes([bytes[0], bytes[1]]).into(), 0);
        self.control.read_exact(&mut bytes[2..]).unwrap();
        bytes
    }

    fn send(&self, to: Ipv4Addr, call: u16, text: &[u8]) {
        let to = SockAddr::from(SocketAddrV4::new(to, 0));
        self.tunnel.send_to(&gre(call, text), &to).unwrap();
    }

    /// Source, Call ID and text of the next packet of a tunnel; `None`: none comes.
    fn receive(&self) -> Option<(Ipv4Addr, u16, Vec<u8>)> {
        let mut bytes = [0; 2000];
        let len = (&self.tunnel).read(&mut bytes).ok()?;
        let bytes = &bytes[..len];
        let source = Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]);
        Some((source, u16::from_be_bytes([bytes[26], bytes[27]]), bytes[32..].to_vec()))
    }
}

/// A control connection between two nodes: the client, and the server. Both name their calls.
/// Returns the client's number as the server knows it, and the server's as the client does.
fn connect(
    listener: &TcpListener,
    [client, server]: [&Namespace; 2],
    to: Ipv4Addr,
    [own, far]: [u16; 2],
) -> (Peer, Peer, [u16; 2]) {
    let control = client.enter(move || TcpStream::connect((to, PPTP))).unwrap().unwrap();
    let mut caller = Peer::of(control, client);
    let mut called = Peer::of(listener.accept().unwrap().0, server);
    caller.tell(&[message(1, 156, &[0x100]), message(7, 168, &[own, 1])].concat());
    assert_eq!(called.hear(), message(1, 156, &[0x100]));
    let request = called.hear();
    let seen = u16::from_be_bytes([request[12], request[13]]);
    assert_eq!(request, message(7, 168, &[seen, 1]));
    called.tell(&message(2, 156, &[0x100]));
    // A message in two parts.
    let reply = message(8, 32, &[far, seen, 0x100]);
    called.tell(&reply[..13]);
    thread::sleep(Duration::from_millis(50));
    called.tell(&reply[13..]);
    assert_eq!(caller.hear(), message(2, 156, &[0x100]));
    let reply = caller.hear();
    let far_seen = u16::from_be_bytes([reply[12], reply[13]]);
    assert_eq!(reply, message(8, 32, &[far_seen, own, 0x100]));
    (caller, called, [seen, far_seen])
}

fn listen(node: &Namespace) -> TcpListener {
    node.enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PPTP))).unwrap().unwrap()
}

/// Packets of a call go both ways: from the caller, and to it.
fn exchange(caller: &Peer, called: &Peer, to: Ipv4Addr, [seen, far_seen]: [u16; 2], own: u16) {
    caller.send(to, far_seen, b"to the server");
    let (from, _, text) = called.receive().expect("a packet of the tunnel");
    assert_eq!(text, b"to the server");
    called.send(from, seen, b"to the client");
    let (from, call, text) = caller.receive().expect("a packet of the tunnel");
    assert_eq!((from, call, &text[..]), (to, own, &b"to the client"[..]));
}

#[test]
fn clients_of_pptp_with_the_same_number_have_tunnels() {
    let network = TestNetwork::new(TAG);
    for workers in [1, 2] {
        let more = format!("{STRICT}[workers]\ncount = {workers}\n[alg]\npptp = true\n");
        let gateway = network.start(PROGRAM, &config(&more));
        let server = network.node("server1");
        let listener = listen(server);
        let mut peers = Vec::new();
        for (node, far) in [("sub1", 900), ("sub2", 901)] {
            let nodes = [network.node(node), server];
            let (caller, called, numbers) = connect(&listener, nodes, SERVER1, [1, far]);
            assert_eq!(numbers[1], far, "the server's number stays");
            exchange(&caller, &called, SERVER1, numbers, 1);
            // The next tunnel's packets come to every raw socket of the server.
            peers.push((caller, called.control, numbers));
        }
        let called = tunnel(server);
        for (caller, control, numbers) in &peers {
            let called =
                Peer { control: control.try_clone().unwrap(), tunnel: called.try_clone().unwrap() };
            exchange(caller, &called, SERVER1, *numbers, 1);
        }
        assert_eq!(alg_counters(&gateway)["pptp"], 2);
        // The end of the control connection ends the call.
        let (caller, control, [seen, _]) = peers.remove(0);
        let external = control.peer_addr().unwrap().ip();
        let std::net::IpAddr::V4(external) = external else { panic!("{external}") };
        let Peer { control: own, tunnel: own_tunnel } = caller;
        drop((own, control));
        thread::sleep(Duration::from_millis(300));
        let to = SockAddr::from(SocketAddrV4::new(external, 0));
        called.send_to(&gre(seen, b"too late"), &to).unwrap();
        assert!((&own_tunnel).read(&mut [0; 100]).is_err(), "the call has ended");
        assert!(gateway.stop().unwrap().success());
    }
}

#[test]
fn a_server_of_pptp_inside_has_tunnels() {
    let network = TestNetwork::new(TAG);
    let external = POOL[0];
    let fixed = format!(
        "[[static]]\nprotocol = \"tcp\"\ninternal = \"{SUBSCRIBER1}:{PPTP}\"\n\
         external = \"{external}:{PPTP}\"\n"
    );
    for workers in [1, 2] {
        let more = format!("{STRICT}{fixed}[workers]\ncount = {workers}\n[alg]\npptp = true\n");
        let gateway = network.start(PROGRAM, &config(&more));
        let listener = listen(network.node("sub1"));
        let nodes = [network.node("server1"), network.node("sub1")];
        let (caller, called, numbers) = connect(&listener, nodes, external, [700, 5]);
        assert_eq!(numbers[0], 700, "the client's number stays");
        exchange(&caller, &called, external, numbers, 700);
        assert_eq!(alg_counters(&gateway)["pptp"], 1);
        assert!(gateway.stop().unwrap().success());
    }
}

#[test]
fn without_the_gateway_a_second_client_has_no_tunnel() {
    let network = TestNetwork::new(TAG);
    let pool = format!("addresses = [\"{}\"]", POOL[0]);
    let gateway = network.start(PROGRAM, &config_with_pool(&pool, STRICT));
    let server = network.node("server1");
    let listener = listen(server);
    let (first, called, numbers) =
        connect(&listener, [network.node("sub1"), server], SERVER1, [1, 900]);
    assert_eq!(numbers, [1, 900]);
    exchange(&first, &called, SERVER1, numbers, 1);
    drop(called);
    let (second, called, numbers) =
        connect(&listener, [network.node("sub2"), server], SERVER1, [1, 901]);
    assert_eq!(numbers, [1, 901]);
    second.send(SERVER1, 901, b"to the server");
    assert_eq!(called.receive(), None);
    let counters = gateway.status().unwrap()["counters"].clone();
    assert_eq!(counters["drops"]["ambiguous"], 1, "{counters}");
    exchange(&first, &called, SERVER1, [1, 900], 1);
    assert_eq!(alg_counters(&gateway), Value::Null);
    assert!(gateway.stop().unwrap().success());
}

/// An IPv4 packet of a tunnel, in hexadecimal.
fn packet(from: Ipv4Addr, to: Ipv4Addr, call: u16) -> String {
    let payload = gre(call, b"traced");
    let mut bytes = vec![0; 20 + payload.len()];
    let len = bytes.len() as u16;
    let mut ip = natgate_wire::Ipv4::init(&mut bytes[..], 20);
    ip.set_total_len(len);
    ip.set_ttl(64);
    ip.set_protocol(natgate_wire::protocol::GRE);
    ip.set_source(from.to_bits());
    ip.set_destination(to.to_bits());
    ip.payload_mut().copy_from_slice(&payload);
    ip.fill_checksum();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn calls_of_pptp_are_shown_and_their_packets_explained() {
    let network = TestNetwork::new(TAG);
    let socket = network.file("control.sock");
    for workers in [1, 2] {
        let more = format!(
            "[control]\nsocket = \"{}\"\n[workers]\ncount = {workers}\n[alg]\npptp = true\n",
            socket.display()
        );
        let gateway = network.start(PROGRAM, &config(&more));
        let ask = |arguments: &[&str]| -> Value {
            let mut program = std::process::Command::new(PROGRAM);
            let output = program.args(arguments).arg("--json").arg("--socket").arg(&socket);
            let output = output.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let server = network.node("server1");
        let listener = listen(server);
        let nodes = [network.node("sub1"), server];
        let (caller, called, numbers) = connect(&listener, nodes, SERVER1, [7, 900]);
        let std::net::IpAddr::V4(external) = called.control.peer_addr().unwrap().ip() else {
            panic!("an IPv4 address");
        };
        let shown = ask(&["show", "expectations"]);
        let shown = shown.as_array().or_else(|| shown["expectations"].as_array()).unwrap();
        let [expected] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!((&expected["kind"], &expected["protocol"]), (&"pptp".into(), &"gre".into()));
        assert_eq!(expected["internal"], format!("{SUBSCRIBER1}:7"));
        assert_eq!(expected["external"], format!("{external}:{}", numbers[0]));
        let told = ask(&["trace", &packet(SERVER1, external, numbers[0])]);
        assert_eq!((&told["verdict"], &told["by"]), (&"forward".into(), &"inside".into()));
        assert_eq!(told["becomes"]["destination"], SUBSCRIBER1.to_string());
        let steps = told["steps"].as_array().unwrap();
        let step = steps.iter().find(|step| step["step"] == "alg").unwrap();
        assert_eq!((&step["alg"], &step["flow"]), (&"pptp".into(), &"call".into()));
        let edit = serde_json::json!([{ "old": numbers[0].to_string(), "new": "7" }]);
        assert_eq!(step["edits"], edit);
        let told = ask(&["trace", &packet(SUBSCRIBER1, SERVER1, 900)]);
        assert_eq!(told["becomes"]["source"], external.to_string());
        exchange(&caller, &called, SERVER1, numbers, 7);
        let shown = ask(&["show", "expectations"]);
        assert_eq!(shown.as_array().or_else(|| shown["expectations"].as_array()), Some(&vec![]));
        assert!(gateway.stop().unwrap().success());
    }
}
