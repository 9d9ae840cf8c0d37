//! Two gateways as a pair, between a subscriber and a server in network namespaces.
//!
//! Needs root, and fails without it. The test steers: it changes the routes of the subscriber and
//! of the server, as routers do by BFD.

use natgate_testnet::traffic::{connect, listen, udp_socket};
use natgate_testnet::{Network, Turn, terminate, wait_for};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Output};
use std::thread;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngfleet";
const PATIENCE: Duration = Duration::from_secs(15);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 10), 7000);

/// A running node; killed when dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes the authority's certificate and those of the nodes.
fn make_certificates(folder: &Path) {
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("written");
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "fleet authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("a key");
    write("ca.pem", authority.self_signed(&key).expect("a certificate").pem());
    let issuer = Issuer::new(authority, key);
    for node in ["a", "b"] {
        let mut params = CertificateParams::new(vec![node.to_owned()]).expect("a name");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        write(&format!("{node}.pem"), params.signed_by(&key, &issuer).expect("signed").pem());
        write(&format!("{node}.key"), key.serialize_pem());
    }
}

/// A subscriber and a server, each with a link to both gateways, and a link between the gateways.
fn build(turn: &Turn) -> Network {
    let mut network = Network::empty(&turn.name()).expect("a network");
    ["sub", "srv", "a", "b"].iter().for_each(|node| network.add(node).expect("a node"));
    for cable in [
        ["sub", "toa", "a", "inside"],
        ["sub", "tob", "b", "inside"],
        ["srv", "toa", "a", "outside"],
        ["srv", "tob", "b", "outside"],
        ["a", "pair", "b", "pair"],
    ] {
        network.cable(cable).expect("a cable");
    }
    let addresses = [
        (
            "sub",
            "address add 10.0.0.11/32 dev lo\nlink set lo up\n\
                 address add 10.1.0.2/24 dev toa\naddress add 10.2.0.2/24 dev tob\n\
                 route add 198.51.100.0/24 via 10.1.0.1 src 10.0.0.11\n",
        ),
        (
            "srv",
            "address add 198.51.100.10/32 dev lo\nlink set lo up\n\
                 address add 192.0.2.1/24 dev toa\naddress add 192.0.3.1/24 dev tob\n\
                 route add 203.0.113.0/24 via 192.0.2.2\n",
        ),
        ("a", "link set lo up\naddress add 10.99.0.1/24 dev pair\n"),
        ("b", "link set lo up\naddress add 10.99.0.2/24 dev pair\n"),
    ];
    for (node, lines) in addresses {
        network.node(node).ip_batch(lines).expect("addresses");
    }
    make_certificates(&network.directory());
    network
}

/// Sends packets of subscriber and server through a gateway.
fn steer(network: &Network, node: &str) {
    let (inside, outside) = if node == "a" { (1, 2) } else { (2, 3) };
    let inside = format!("route replace 198.51.100.0/24 via 10.{inside}.0.1 src 10.0.0.11\n");
    let outside = format!("route replace 203.0.113.0/24 via 192.0.{outside}.2\n");
    network.node("sub").ip_batch(&inside).expect("a route");
    network.node("srv").ip_batch(&outside).expect("a route");
}

fn configuration(network: &Network, node: &str) -> String {
    let (number, outside, other) = if node == "a" { (1, 2, "b") } else { (2, 3, "a") };
    let folder = network.directory();
    let folder = folder.display();
    format!(
        r#"
[inside]
device = "inside"
address = "10.{number}.0.1/24"
[outside]
device = "outside"
address = "192.0.{outside}.2/24"
gateway = "192.0.{outside}.1"
[[route]]
prefix = "10.0.0.0/24"
via = "10.{number}.0.2"
side = "inside"
[nat]
subscribers = ["10.0.0.0/8"]
[timeouts]
hold_down = "1s"
[[pool]]
addresses = ["203.0.113.1", "203.0.113.2"]
[state]
file = "{folder}/{node}.ports"
[control]
socket = "{folder}/{node}.sock"
[page]
listen = "off"
[metrics]
listen = "off"
[fleet]
node = "{node}"
listen = "10.99.0.{number}:7600"
certificate = "{folder}/{node}.pem"
key = "{folder}/{node}.key"
authorities = "{folder}/ca.pem"
partner = {{ node = "{other}", address = "10.99.0.{}:7600" }}
[[slice]]
addresses = ["203.0.113.1"]
owner = "a"
[[slice]]
addresses = ["203.0.113.2"]
owner = "b"
"#,
        3 - number
    )
}

fn start(network: &Network, node: &str) -> Node {
    let (file, log) = (network.file(&format!("{node}.toml")), network.file(&format!("{node}.log")));
    fs::write(&file, configuration(network, node)).expect("written");
    let arguments = ["run", "-c", file.to_str().expect("a path")];
    let child = network.node(node).start(PROGRAM.as_ref(), &arguments, &log).expect("started");
    let mut running = Node(child);
    let begun = wait_for("the start", PATIENCE, || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if let Some(status) = running.0.try_wait()? {
            return Err(io::Error::other(format!("natgate ended with {status}: {text}")));
        }
        Ok(text.contains("natgate: running, ").then_some(()))
    });
    begun.expect("natgate runs");
    running
}

/// Runs `natgate fleet` at a node.
fn fleet(network: &Network, node: &str, words: &[&str]) -> Output {
    let socket = network.file(&format!("{node}.sock"));
    std::process::Command::new(PROGRAM)
        .arg("fleet")
        .args(["--socket", socket.to_str().expect("a path")])
        .args(words)
        .output()
        .expect("it runs")
}

fn status(network: &Network, node: &str) -> Value {
    let output = fleet(network, node, &["status", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Waits until a condition holds for the state at a node.
fn wait_until(network: &Network, node: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
    let mut last = Value::Null;
    let waited = wait_for(what, PATIENCE, || {
        last = status(network, node);
        Ok(is_so(&last).then_some(()))
    });
    assert!(waited.is_ok(), "{what}: {last:#}");
}

/// Starts servers that tell a client its endpoint, and repeat what it says.
fn serve(network: &Network) {
    let socket = network.node("srv").enter(|| UdpSocket::bind(SERVER)).expect("a thread");
    let socket = socket.expect("a socket");
    thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(from.to_string().as_bytes(), from);
        }
    });
    let listener = listen(network.node("srv"), SERVER, Duration::from_secs(120)).expect("listens");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || repeat(stream));
        }
    });
}

fn repeat(mut stream: TcpStream) -> io::Result<()> {
    let from = stream.peer_addr()?;
    writeln!(stream, "{from}")?;
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// The endpoint that the server sees. Datagrams that are lost are sent again.
fn seen(socket: &UdpSocket) -> String {
    let mut buffer = [0; 100];
    for _ in 0..20 {
        socket.send_to(b"?", SERVER).expect("sent");
        if let Ok(len) = socket.recv(&mut buffer) {
            return String::from_utf8_lossy(&buffer[..len]).into_owned();
        }
    }
    panic!("no answer");
}

fn datagrams(network: &Network) -> UdpSocket {
    let socket = udp_socket(network.node("sub")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
    socket
}

/// Sends a byte and waits for it.
fn is_alive(mut stream: &TcpStream) -> bool {
    let mut byte = [0];
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut byte).is_ok() && byte == *b"x"
}

/// The first line of a connection: the endpoint that the server sees.
fn endpoint_of(stream: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::with_capacity(64, stream).read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

fn is_whole(state: &Value) -> bool {
    state["ok"] == true
}

#[test]
fn flows_continue_on_the_partner_after_a_kill_and_come_back() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let a = start(&network, "a");
    let b = start(&network, "b");
    wait_until(&network, "a", "the pair is whole at a", is_whole);
    wait_until(&network, "b", "the pair is whole at b", is_whole);
    assert!(fleet(&network, "a", &["check"]).status.success());
    serve(&network);

    let udp = datagrams(&network);
    let external = seen(&udp);
    assert!(external.starts_with("203.0.113.1:"), "a has this address: {external}");
    let tcp = connect(network.node("sub"), 0, SERVER).expect("a connection");
    assert!(endpoint_of(&tcp).starts_with("203.0.113.1:"));
    assert!(is_alive(&tcp));
    // Flows of UDP are copied after two seconds.
    thread::sleep(Duration::from_millis(2500));
    wait_until(&network, "a", "the copy is complete", is_whole);

    drop(a);
    steer(&network, "b");
    assert!(is_alive(&tcp), "the connection continues");
    assert_eq!(seen(&udp), external, "the flow keeps its endpoint");
    let young = datagrams(&network);
    assert!(seen(&young).starts_with("203.0.113.2:"), "new flows have the partner's addresses");
    assert_eq!(status(&network, "b")["slices"][0]["role"], "partner");
    wait_until(&network, "b", "the link is gone", |state| state["link"]["connected"] == false);
    wait_until(&network, "b", "the copies are old", |state| state["ok"] == false);
    assert!(!fleet(&network, "b", &["check"]).status.success());

    // The restart is the evidence that the process of before has ended.
    let a = start(&network, "a");
    wait_until(&network, "b", "b takes the slice", |state| {
        state["slices"][0]["role"] == "owner" && state["slices"][0]["assigns"] == true
    });
    wait_until(&network, "a", "a has the copy", is_whole);
    assert!(is_alive(&tcp));

    let refused = fleet(&network, "a", &["move", "0", "a"]);
    assert_eq!(refused.status.code(), Some(1), "a is not the owner");
    assert!(fleet(&network, "b", &["move", "0", "a"]).status.success());
    wait_until(&network, "a", "the slice is back", |state| {
        state["slices"][0]["role"] == "owner" && state["slices"][0]["assigns"] == true
    });
    steer(&network, "a");
    assert!(is_alive(&tcp), "the connection came back");
    assert_eq!(seen(&udp), external);
    assert!(seen(&datagrams(&network)).starts_with("203.0.113.1:"));
    wait_until(&network, "b", "the pair is whole again", is_whole);
    for mut node in [a, b] {
        terminate(&node.0).expect("a signal");
        assert!(node.0.wait().expect("it ends").success());
    }
}

#[test]
fn an_operator_must_confirm_that_a_node_has_ended() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let b = start(&network, "b");
    let unsure = fleet(&network, "b", &["forget", "a"]);
    assert_eq!(unsure.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unsure.stderr).contains("--yes-it-has-ended"));
    assert!(!fleet(&network, "b", &["check"]).status.success(), "nobody knows an owner");
    serve(&network);
    steer(&network, "b");
    let socket = datagrams(&network);
    socket.send_to(b"?", SERVER).expect("sent");
    assert!(socket.recv(&mut [0; 100]).is_err(), "a node that knows no owner assigns no port");
    assert!(fleet(&network, "b", &["forget", "a", "--yes-it-has-ended"]).status.success());
    wait_until(&network, "b", "b has both slices", |state| {
        state["slices"].as_array().is_some_and(|all| all.iter().all(|one| one["assigns"] == true))
    });
    assert!(seen(&socket).starts_with("203.0.113."));
    drop(b);
}
