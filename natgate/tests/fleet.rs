//! Two gateways as a pair, between a subscriber and a server in network namespaces.
//!
//! Needs root, and fails without it. The test steers: it changes the routes of the routers on
//! both sides, as they do by BFD.

#[path = "fleet/alone.rs"]
mod alone;
#[path = "fleet/controls.rs"]
mod controls;
#[path = "fleet/equal_cost.rs"]
mod equal_cost;
#[path = "fleet/hosts.rs"]
mod hosts;
#[path = "fleet/routes.rs"]
mod routes;
#[path = "fleet/steering.rs"]
mod steering;
#[path = "fleet/virtual_addresses.rs"]
mod virtual_addresses;
#[path = "fleet/who.rs"]
mod who;
#[path = "fleet/workers.rs"]
mod workers;

use natgate_testnet::traffic::{connect, listen, udp_socket};
use natgate_testnet::{
    PAIR_SERVER, PAIR_SUBSCRIBER, PairNetwork, PairNode, PairSide, Turn, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngfleet";
const PATIENCE: Duration = Duration::from_secs(15);

fn start(network: &PairNetwork, node: &str) -> PairNode {
    let config = network.config(node, "");
    network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
}

fn build(turn: &Turn) -> PairNetwork {
    PairNetwork::build(&turn.name()).expect("a network")
}

/// Waits until a condition holds for the state at a node.
fn wait_until(node: &PairNode, what: &str, is_so: impl Fn(&Value) -> bool) {
    node.wait_until(what, PATIENCE, is_so).expect(what);
}

fn succeeds(node: &PairNode, words: &[&str]) -> bool {
    node.fleet(words).expect("it runs").status.success()
}

/// Starts servers that tell a client its endpoint, and repeat what it says.
fn serve(network: &PairNetwork) {
    let socket = network.node("srv").enter(|| UdpSocket::bind(PAIR_SERVER)).expect("a thread");
    let socket = socket.expect("a socket");
    thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(from.to_string().as_bytes(), from);
        }
    });
    let listener =
        listen(network.node("srv"), PAIR_SERVER, Duration::from_secs(120)).expect("listens");
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
    seen_by(socket, PAIR_SERVER.into())
}

/// As [`seen`], with the server's address as the client knows it.
fn seen_by(socket: &UdpSocket, server: SocketAddr) -> String {
    let mut buffer = [0; 100];
    for _ in 0..20 {
        socket.send_to(b"?", server).expect("sent");
        if let Ok(len) = socket.recv(&mut buffer) {
            return String::from_utf8_lossy(&buffer[..len]).into_owned();
        }
    }
    panic!("no answer");
}

fn datagrams(network: &PairNetwork) -> UdpSocket {
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

/// True for an endpoint of a node's slice.
fn is_of(endpoint: &str, node: &str) -> bool {
    let endpoint: SocketAddrV4 = endpoint.parse().expect("an endpoint");
    let [.., last] = endpoint.ip().octets();
    if node == "a" { last < 8 } else { (8..16).contains(&last) }
}

/// Says if the node owns and assigns the first slice.
fn has_first_slice(state: &Value) -> bool {
    state["slices"][0]["role"] == "owner" && state["slices"][0]["assigns"] == true
}

/// Two nodes that are a pair, with another key of the pool and further tables.
fn pair_with(network: &PairNetwork, key: &str, more: &str) -> [PairNode; 2] {
    let nodes = ["a", "b"].map(|node| {
        let config = network
            .config(node, more)
            .replace("[fleet]\n", "[fleet]\nhang = \"2s\"\n")
            .replace("[[pool]]\n", &format!("[[pool]]\n{key}\n"));
        network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
    });
    for node in &nodes {
        wait_until(node, "the pair is whole", is_whole);
    }
    nodes
}

fn pair(network: &PairNetwork, more: &str) -> [PairNode; 2] {
    pair_with(network, "", more)
}

/// A flow of UDP with its external endpoint, and one of TCP, both copied from the first node.
fn flows(network: &PairNetwork, owner: &PairNode) -> (UdpSocket, String, TcpStream) {
    serve(network);
    let udp = datagrams(network);
    let external = seen(&udp);
    assert!(is_of(&external, "a"), "{external}");
    let tcp = connect(network.node("sub"), 0, PAIR_SERVER).expect("a connection");
    assert!(is_of(&endpoint_of(&tcp), "a"));
    assert!(is_alive(&tcp));
    // Flows of UDP are copied after two seconds.
    thread::sleep(Duration::from_millis(2500));
    wait_until(owner, "the copy is complete", is_whole);
    (udp, external, tcp)
}

/// The guardian of a node: the process that it has started.
fn guardian(node: &PairNode) -> Pid {
    let pid = node.process();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let child = children.expect("the kernel tells children").trim().parse().expect("one child");
    Pid::from_raw(child).expect("a process")
}

fn has_ended(process: Pid) -> bool {
    rustix::process::test_kill_process(process).is_err()
}

#[test]
fn flows_continue_on_the_partner_after_a_kill_and_come_back() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let [a, b] = pair(&network, "[announce]\n");
    assert!(succeeds(&a, &["check"]));
    let (udp, external, tcp) = flows(&network, &a);
    let announced = || {
        let shown = network.node("a").run(5, "ip", &["route", "show", "proto", "78"]);
        String::from_utf8_lossy(&shown.expect("routes").stdout).contains("203.0.113.0/29")
    };
    assert!(announced());

    let guardian = guardian(&a);
    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    assert!(is_alive(&tcp), "the connection continues");
    assert_eq!(seen(&udp), external, "the flow keeps its endpoint");
    assert!(seen(&datagrams(&network)).starts_with("203.0.113."), "new flows have ports");
    // The guardian is the evidence that the process has ended.
    wait_until(&b, "b takes the slice", has_first_slice);
    assert_eq!(b.status().expect("a state")["partner_ended"], true);
    assert!(b.log().contains("node b owns slice 0 in epoch 2; it continues 2 mappings"));
    wait_for("the guardian's end", PATIENCE, || Ok(has_ended(guardian).then_some(()))).expect("it");
    assert!(!announced(), "the guardian has withdrawn the routes");
    wait_until(&b, "the link is gone", |state| state["link"]["connected"] == false);
    wait_until(&b, "the copies are old", |state| state["ok"] == false);
    assert!(!succeeds(&b, &["check"]));

    let a = start(&network, "a");
    wait_until(&a, "a has the copy", is_whole);
    assert!(is_alive(&tcp));
    let refused = a.fleet(&["move", "0", "a"]).expect("it runs");
    assert_eq!(refused.status.code(), Some(1), "a is not the owner");
    assert!(succeeds(&b, &["move", "0", "a"]));
    wait_until(&a, "the slice is back", has_first_slice);
    network.prefer("a").expect("routes");
    assert!(is_alive(&tcp), "the connection came back");
    assert_eq!(seen(&udp), external);
    assert!(is_of(&seen(&datagrams(&network)), "a"));
    wait_until(&b, "the pair is whole again", is_whole);
    for node in [a, b] {
        node.stop().expect("it ends");
    }
}

#[test]
fn a_subscribers_block_goes_on_after_a_kill() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let [a, b] = pair_with(&network, "allocation = \"block\"", "");
    let (udp, external, tcp) = flows(&network, &a);
    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    assert!(is_alive(&tcp));
    assert_eq!(seen(&udp), external);
    wait_until(&b, "b takes the slice", has_first_slice);
    let block = |endpoint: &str| {
        let endpoint: SocketAddrV4 = endpoint.parse().expect("an endpoint");
        (*endpoint.ip(), (endpoint.port() - 1024) / 512)
    };
    assert_eq!(block(&seen(&datagrams(&network))), block(&external));
}

#[test]
fn a_subscribers_computed_ports_go_on_after_a_kill() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let keys = "allocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/24\"]";
    let [a, b] = pair_with(&network, keys, "");
    // 256 subscribers, 16 addresses, 4,032 ports for each: those of the twelfth.
    let own = 1024 + 11 * 4032..1024 + 12 * 4032;
    let is_own = |endpoint: &str| {
        let endpoint: SocketAddrV4 = endpoint.parse().expect("an endpoint");
        *endpoint.ip() == Ipv4Addr::new(203, 0, 113, 0) && own.contains(&endpoint.port())
    };
    let (udp, external, tcp) = flows(&network, &a);
    assert!(is_own(&external), "{external}");
    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    assert!(is_alive(&tcp));
    assert_eq!(seen(&udp), external);
    wait_until(&b, "b takes the slice", has_first_slice);
    let new = seen(&datagrams(&network));
    assert!(is_own(&new) && new != external, "{new}");
}

/// Port of PCP.
const PCP: u16 = 5351;

/// A granted request: the external endpoint, the lifetime and the epoch, seconds.
type Granted = (SocketAddrV4, u32, u32);

/// Asks a node for the mapping of a UDP port of the subscriber. An error is the result code.
fn request(
    network: &PairNetwork,
    node: &str,
    (port, lifetime): (u16, u32),
    nonce: u8,
) -> Result<Granted, u8> {
    let mut bytes = vec![2, 1, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(PAIR_SUBSCRIBER.to_ipv6_mapped().octets());
    bytes.extend([nonce; 12]);
    bytes.extend([17, 0, 0, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
    let socket = datagrams(network);
    let mut answer = [0; 1100];
    for _ in 0..20 {
        socket.send_to(&bytes, (PairSide::Access.gateway(node), PCP)).expect("sent");
        let Ok(len) = socket.recv(&mut answer) else { continue };
        let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().expect("4 bytes"));
        if answer[3] != 0 {
            return Err(answer[3]);
        }
        assert_eq!(len, 60);
        let port = u16::from_be_bytes([answer[42], answer[43]]);
        return Ok((SocketAddrV4::new(word(56).into(), port), word(4), word(8)));
    }
    panic!("node {node} does not answer");
}

#[test]
fn a_requested_mapping_goes_on_after_a_kill() {
    const NOT_AUTHORIZED: u8 = 2;
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let service = "[pcp]\nenabled = true\n";
    let [a, b] = pair(&network, service);
    let bind = || UdpSocket::bind((PAIR_SUBSCRIBER, 7000));
    let port = network.node("sub").enter(bind).expect("a thread").expect("a socket");
    port.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
    let outside = udp_socket(network.node("srv")).expect("a socket");
    let is_reached = |external: SocketAddrV4| {
        (0..10).any(|_| {
            outside.send_to(b"knock", external).expect("sent");
            matches!(port.recv(&mut [0; 10]), Ok(5))
        })
    };
    let (external, lifetime, epoch) = request(&network, "a", (7000, 600), 7).expect("granted");
    assert!(is_of(&external.to_string(), "a") && lifetime == 600, "{external}, {lifetime} s");
    let (other, _, epoch_of_b) = request(&network, "b", (7001, 600), 7).expect("granted");
    assert!(is_of(&other.to_string(), "b"), "a node grants ports of its own slices");
    assert!(epoch.abs_diff(epoch_of_b) <= 1, "one epoch: {epoch} and {epoch_of_b}");
    assert!(is_reached(external));
    wait_until(&a, "the copy is complete", is_whole);

    let killed = Instant::now();
    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    assert!(is_reached(external), "the partner forwards at once");
    wait_until(&b, "b takes the slice", has_first_slice);
    assert_eq!(request(&network, "b", (7000, 600), 8), Err(NOT_AUTHORIZED), "another's nonce");
    let (again, lifetime, later) = request(&network, "b", (7000, 500), 7).expect("renewed");
    assert_eq!((again, lifetime), (external, 500));
    let passed = killed.elapsed().as_secs();
    assert!(u64::from(later) <= passed, "a new epoch: {later} s, {passed} s after the kill");
    assert!(is_reached(external));

    let config = network.config("a", service);
    let a = network.start(PROGRAM.as_ref(), "a", &config).expect("it starts");
    wait_until(&a, "a has the copy", is_whole);
    assert!(succeeds(&b, &["move", "0", "a"]));
    wait_until(&a, "the slice is back", has_first_slice);
    network.prefer("a").expect("routes");
    let (again, _, epoch_of_a) = request(&network, "a", (7000, 600), 7).expect("renewed");
    assert_eq!(again, external);
    let (_, _, epoch_of_b) = request(&network, "b", (7001, 600), 7).expect("renewed");
    assert!(epoch_of_a.abs_diff(epoch_of_b) <= 1, "{epoch_of_a} and {epoch_of_b}");
    assert!(request(&network, "a", (7000, 0), 7).is_ok(), "given up");
}

/// Realms of a node, in this order. Their subscribers and the gateway's address are those of the
/// realm without a name.
fn realms(node: &str, names: &[&str]) -> String {
    let (own, via) = (PairSide::Access.gateway(node), PairSide::Access.gateway(node).to_bits() + 1);
    let via = Ipv4Addr::from_bits(via);
    let realm = |name: &&str| {
        format!(
            "[[realm]]\nname = \"{name}\"\ndevice = \"{name}\"\naddress = \"{own}/24\"\n\
             [[route]]\nrealm = \"{name}\"\nprefix = \"10.0.0.0/12\"\nvia = \"{via}\"\n"
        )
    };
    names.iter().map(realm).collect()
}

#[test]
fn two_realms_with_one_address_keep_their_own_flows_after_a_kill() {
    let turn = Turn::take(TAG);
    let mut network = build(&turn);
    for name in ["red", "blue"] {
        network.add_realm(name).expect("links");
    }
    let network = network;
    // The nodes number the realms in other orders, and b has only one of them at first.
    let config = network.config("a", &realms("a", &["red", "blue"]));
    let a = network.start(PROGRAM.as_ref(), "a", &config).expect("it starts");
    let config = network.config("b", &realms("b", &["blue"]));
    let b = network.start(PROGRAM.as_ref(), "b", &config).expect("it starts");
    wait_until(&b, "the pair is whole", is_whole);
    serve(&network);
    let sockets = ["sub", "red", "blue"].map(|node| {
        let bind = || UdpSocket::bind((PAIR_SUBSCRIBER, 6000));
        let socket = network.node(node).enter(bind).expect("a thread").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        socket
    });
    let externals = sockets.each_ref().map(seen);
    assert!(externals.iter().all(|external| is_of(external, "a")), "{externals:?}");
    for node in [&a, &b] {
        wait_until(node, "the realm is missing", |state| {
            let fault = state["slices"][0]["fault"].as_str().unwrap_or_default();
            fault.starts_with("1 mappings have no copy") && fault.ends_with("no realm red")
        });
    }
    fs::write(network.file("b.toml"), network.config("b", &realms("b", &["blue", "red"])))
        .expect("written");
    let socket = network.file("b.sock");
    let reload = Command::new(PROGRAM).args(["reload", "--socket"]).arg(&socket).output();
    assert!(reload.expect("it runs").status.success());
    wait_until(&a, "the pair is whole", is_whole);

    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    ["red", "blue"].iter().for_each(|name| network.prefer_in(name, "b").expect("routes"));
    assert_eq!(sockets.each_ref().map(seen), externals, "each keeps its endpoint");
    wait_until(&b, "b takes the slice", has_first_slice);
    let outside = udp_socket(network.node("srv")).expect("a socket");
    for (number, external) in externals.iter().enumerate() {
        outside.send_to(&[number as u8], external).expect("sent");
        let mut byte = [9];
        let got = sockets[number].recv(&mut byte);
        assert_eq!((got.ok(), byte[0]), (Some(1), number as u8), "{external}");
    }
    assert_eq!(sockets.each_ref().map(seen), externals);
}

#[test]
fn silence_without_a_guardian_is_no_evidence() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let [a, b] = pair(&network, "");
    let (udp, external, tcp) = flows(&network, &a);
    kill_process(guardian(&a), Signal::KILL).expect("a signal");
    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    assert!(is_alive(&tcp), "the connection continues");
    assert_eq!(seen(&udp), external, "the flow keeps its endpoint");
    assert!(is_of(&seen(&datagrams(&network)), "b"), "new flows have the partner's addresses");
    wait_until(&b, "the link is gone", |state| state["link"]["connected"] == false);
    assert_eq!(b.status().expect("a state")["slices"][0]["role"], "partner");
    // The restart is the evidence that the process of before has ended.
    let _a = start(&network, "a");
    wait_until(&b, "b takes the slice", has_first_slice);
}

#[test]
fn the_guardian_ends_a_gateway_that_stands_still() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let [a, b] = pair(&network, "");
    let (udp, external, _tcp) = flows(&network, &a);
    let process = Pid::from_raw(a.process().cast_signed()).expect("a process");
    kill_process(process, Signal::STOP).expect("a signal");
    network.prefer("b").expect("routes");
    assert_eq!(seen(&udp), external, "the copy serves");
    wait_until(&b, "b takes the slice", has_first_slice);
    assert!(a.log().contains("no progress for 2s"), "{}", a.log());
    assert_eq!(seen(&udp), external);
}

/// Carries out the commands for certificates in docs/pair.md.
fn make_certificates_as_documented(network: &PairNetwork) {
    let text = include_str!("../../docs/pair.md");
    let (_, block) = text.split_once("```sh\n").expect("a block of commands");
    let (commands, _) = block.split_once("```").expect("its end");
    assert!(commands.contains("openssl req -x509"));
    for file in ["ca.pem", "ca.key", "a.pem", "a.key", "b.pem", "b.key"] {
        fs::remove_file(network.file(file))
            .or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
            .expect("removed");
    }
    let mut shell = Command::new("sh");
    let output = shell.args(["-e", "-c", commands]).current_dir(network.directory()).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The examples are the configurations of every test here.
#[test]
fn the_set_up_works_as_written() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    make_certificates_as_documented(&network);
    for node in ["a", "b"] {
        let file = network.file(&format!("{node}.toml"));
        fs::write(&file, network.config(node, "")).expect("written");
        let checked = Command::new(PROGRAM).arg("check").arg(&file).output().expect("it runs");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
    let [a, b] = pair(&network, "");
    for node in [&a, &b] {
        assert!(succeeds(node, &["status"]) && succeeds(node, &["check"]));
        wait_until(node, "the clocks are compared", |state| state["link"]["clock_lead_s"].is_f64());
        assert_eq!(node.status().expect("a state")["link"]["clock_fault"], Value::Null);
    }
    serve(&network);
    assert!(is_of(&seen(&datagrams(&network)), "a"));
    network.prefer("b").expect("routes");
    assert!(is_of(&seen(&datagrams(&network)), "b"), "both are active");
}

#[test]
fn an_operator_must_confirm_that_a_node_has_ended() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let b = start(&network, "b");
    let unsure = b.fleet(&["forget", "a"]).expect("it runs");
    assert_eq!(unsure.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unsure.stderr).contains("--yes-it-has-ended"));
    assert!(!succeeds(&b, &["check"]), "nobody knows an owner");
    serve(&network);
    network.prefer("b").expect("routes");
    let socket = datagrams(&network);
    socket.send_to(b"?", PAIR_SERVER).expect("sent");
    assert!(socket.recv(&mut [0; 100]).is_err(), "a node that knows no owner assigns no port");
    assert!(succeeds(&b, &["forget", "a", "--yes-it-has-ended"]));
    wait_until(&b, "b has both slices", |state| {
        state["slices"].as_array().is_some_and(|all| all.iter().all(|one| one["assigns"] == true))
    });
    assert!(seen(&socket).starts_with("203.0.113."));
    drop(b);
}
