//! One natgate takes over from another between real kernels. Subscribers keep their mappings,
//! packets flow on, and if the new process dies during the take-over, the old one continues.
//!
//! The network is that of the demonstration (`natgate-testnet`); a datagram socket of the test
//! replaces the service manager. Needs root and the programs that `make test` installs, and fails
//! without them. One test runs at a time, because the tests share two cores with the gateways.

use natgate_testnet::{
    GATEWAY_INSIDE, POOL, REFLECTOR_PORT, SERVER1, SUBSCRIBER1, TestNetwork, config, traffic,
    wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngheir";
const PATIENCE: Duration = Duration::from_secs(20);
/// Version of the take-over.
const VERSION: u16 = natgate_engine::HANDOVER_VERSION;

/// A network with servers, in which one gateway takes over from another.
struct TakeoverNetwork(TestNetwork);

impl TakeoverNetwork {
    /// Creates a network and its configuration with `more`, for this back end.
    fn new(back_end: &str, more: &str) -> Self {
        let network = Self(TestNetwork::with_servers(TAG, 4));
        network.configure(back_end, more);
        network
    }

    fn configure(&self, back_end: &str, more: &str) {
        let [socket, ports] = ["control.sock", "ports"].map(|name| self.0.file(name));
        let text = config(&format!(
            "[control]\nsocket = {socket:?}\n[state]\nfile = {ports:?}\n\
             interval = \"100ms\"\n{more}"
        ));
        let text = text.replace("af-packet", back_end);
        fs::write(self.0.file("natgate.toml"), text).unwrap();
    }

    fn start(&self, name: &str, options: &[&str]) -> Natgate {
        self.start_as(name, options, &[])
    }

    /// Starts a natgate with a log of its own, and a common file of events.
    fn start_as(&self, name: &str, options: &[&str], environment: &[String]) -> Natgate {
        let [file, events, log, status] =
            ["natgate.toml", "events", &format!("{name}.log"), &format!("{name}.json")]
                .map(|name| self.0.file(name));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let arguments = [PROGRAM, "run", "-c", &text(&file), "--events", &text(&events)];
        let more = ["--status-file", &text(&status)];
        let environment = environment.iter().map(String::as_str);
        let arguments: Vec<&str> =
            environment.chain(arguments).chain(more).chain(options.iter().copied()).collect();
        let program = Path::new("/usr/bin/env");
        let child = self.0.node("nat").start(program, &arguments, &log).unwrap();
        Natgate { child, log, status }
    }

    /// Starts the first gateway.
    fn first(&self) -> Natgate {
        let old = self.start("old", &[]);
        old.says("natgate: running, ");
        old
    }

    fn sockets(&self, count: usize) -> Vec<(UdpSocket, SocketAddrV4)> {
        let node = self.0.node("sub1");
        let sockets = (0..count).map(|_| traffic::udp_socket(node).unwrap());
        sockets.map(|socket| (ask(&socket), socket)).map(|(seen, socket)| (socket, seen)).collect()
    }

    fn connection(&self) -> TcpStream {
        let anywhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let reflector = SocketAddrV4::new(SERVER1, REFLECTOR_PORT);
        let node = self.0.node("sub1");
        let connection = traffic::connect_from(node, anywhere, reflector, PATIENCE).unwrap();
        traffic::read_endpoint(&connection).unwrap();
        connection
    }

    /// Events that all gateways have written, in order.
    fn events(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.0.file("events")).unwrap();
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|event| event["event"] == name).collect()
    }

    fn take_over_socket(&self) -> PathBuf {
        self.0.file("control.sock.take-over")
    }
}

/// A natgate; killed when dropped.
struct Natgate {
    child: Child,
    log: PathBuf,
    status: PathBuf,
}

impl Drop for Natgate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Natgate {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn says(&self, words: &str) {
        self.says_times(words, 1);
    }

    fn says_times(&self, words: &str, times: usize) {
        let said = || Ok((self.log().matches(words).count() >= times).then_some(()));
        let seen = wait_for(words, PATIENCE, said);
        assert!(seen.is_ok(), "{words:?} was not said: {}", self.log());
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn ends(&mut self) -> ExitStatus {
        wait_for("its end", PATIENCE, || self.child.try_wait()).unwrap()
    }

    fn ends_well(mut self) {
        assert!(self.ends().success(), "{}", self.log());
    }

    fn status(&self) -> Value {
        let _ = fs::remove_file(&self.status);
        self.signal(Signal::USR1);
        let read =
            || Ok(serde_json::from_str(&fs::read_to_string(&self.status).unwrap_or_default()).ok());
        wait_for("its status", PATIENCE, read).unwrap()
    }
}

/// A process whose parent is another program; killed when dropped.
struct Orphan(Pid);

impl Orphan {
    /// True if it has ended, even if its parent has not waited for it.
    fn is_gone(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.as_raw_nonzero()));
        status.map_or(true, |status| status.contains("State:\tZ"))
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if !self.is_gone() {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

/// Endpoint of a socket that a server sees.
fn ask(socket: &UdpSocket) -> SocketAddrV4 {
    traffic::ask_udp(socket, SERVER1).unwrap()
}

fn all_are_as_they_were(sockets: &[(UdpSocket, SocketAddrV4)]) {
    for (socket, seen) in sockets {
        assert_eq!(ask(socket), *seen);
    }
}

/// Mappings with their external endpoints and kinds.
fn mappings(status: &Value) -> BTreeSet<String> {
    let all = status["mappings"].as_array().unwrap().iter();
    let shown = |one: &Value| {
        format!("{} {} {} {}", one["protocol"], one["internal"], one["external"], one["kind"])
    };
    all.map(shown).collect()
}

fn packets(status: &Value) -> u64 {
    status["counters"]["packets"]["outbound"]["forwarded"].as_u64().unwrap()
}

/// Sends requests repeatedly and checks the endpoint of the socket; returns the longest time
/// without an answer.
fn keep_asking(socket: &UdpSocket, external: SocketAddrV4, stop: &AtomicBool) -> Duration {
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        if let Ok(seen) = traffic::ask_udp_once(socket, SERVER1, b"still me") {
            assert_eq!(seen, external);
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    longest.max(last.elapsed())
}

/// Stops a thread at its end, also if the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a new gateway take over while datagrams flow, and prints the longest time without an
/// answer.
fn take_over(network: &TakeoverNetwork, old: &Natgate, name: &str) -> Natgate {
    let (stop, mut busy) = (AtomicBool::new(false), network.sockets(1));
    let (busy, external) = busy.remove(0);
    let heir = thread::scope(|scope| {
        let asking = scope.spawn(|| keep_asking(&busy, external, &stop));
        let stops = Stops(&stop);
        let heir = network.start(name, &["--take-over"]);
        heir.says("natgate: took over ");
        old.says("another took over");
        drop(stops);
        let longest = asking.join().unwrap();
        let line = heir.log().lines().find(|line| line.contains("took over")).map(str::to_owned);
        println!("{}; longest time without an answer {longest:?}", line.unwrap_or_default());
        heir
    });
    assert_eq!(ask(&busy), external);
    heir
}

/// Requests a mapping by NAT-PMP; returns the external port.
fn map(socket: &UdpSocket, port: u16) -> u16 {
    let request = [&[0, 1, 0, 0][..], &port.to_be_bytes(), &[0, 0, 0, 0, 14, 16]].concat();
    for _ in 0..5 {
        let mut answer = [0; 64];
        socket.send_to(&request, (GATEWAY_INSIDE, 5351)).unwrap();
        if let Ok((16, _)) = socket.recv_from(&mut answer) {
            assert_eq!(answer[..4], [0, 129, 0, 0]);
            return u16::from_be_bytes([answer[10], answer[11]]);
        }
    }
    panic!("nobody answers")
}

#[test]
fn mappings_stay_while_one_natgate_takes_over_from_another() {
    let network = TakeoverNetwork::new("af-packet", "[pcp]\nenabled = true\n");
    who_cannot_take_over_says_why(&network);
    let old = network.first();
    let (sockets, connection) = (network.sockets(20), network.connection());
    let requests = traffic::udp_socket(network.0.node("sub2")).unwrap();
    let mapped = map(&requests, 7000);
    let before = old.status();
    whoever_dies_leaves_the_old_one_at_work(&network, &old, &sockets[0]);

    let heir = take_over(&network, &old, "heir");
    old.ends_well();
    // All mappings are there, and time continues from the same point.
    let after = heir.status();
    assert!(mappings(&after).is_superset(&mappings(&before)), "{before} {after}");
    assert!(packets(&after) >= packets(&before));
    all_are_as_they_were(&sockets);
    assert_eq!(map(&requests, 7000), mapped);
    assert_eq!(mappings(&heir.status()), mappings(&after), "nobody got another mapping");
    assert!(after["mappings"].as_array().unwrap().iter().any(|one| one["kind"] == "pcp"));
    traffic::echo(&connection, b"still connected").unwrap();

    // The new gateway answers requests and can be taken over, like the old one.
    let listens = || Ok(UnixStream::connect(network.take_over_socket()).ok());
    wait_for("its socket", PATIENCE, listens).unwrap();
    drop(UnixStream::connect(network.0.file("control.sock")).unwrap());
    let next = take_over(&network, &heir, "next");
    heir.ends_well();
    all_are_as_they_were(&sockets);
    next.signal(Signal::TERM);
    next.ends_well();
    // Every event is logged once, and no gap is reported.
    let created = network.events("mapping_created");
    let end = |one: &Value| format!("{} {}", one["protocol"], one["external"]);
    let ends: BTreeSet<String> = created.iter().map(end).collect();
    assert_eq!(ends.len(), created.len());
    assert!(ends.len() > 20 && network.events("gap").is_empty());
}

#[test]
fn locks_go_over_with_the_devices() {
    let network = TakeoverNetwork::new("af-packet", "");
    let old = network.first();
    let heir = take_over(&network, &old, "heir");
    old.ends_well();
    let held = || {
        let output = network.0.node("nat").run(20, "cat", &["/proc/net/unix"])?;
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = ["@natgate/device/inside", "@natgate/device/outside", "@natgate/addresses/"];
        Ok(all.iter().all(|name| names.contains(name)).then_some(()))
    };
    wait_for("the locks", PATIENCE, held).unwrap();
    let config = network.0.file("natgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    let socket = network.0.file("second.sock");
    let own =
        text.replace(network.0.file("control.sock").to_str().unwrap(), socket.to_str().unwrap());
    let ports = network.0.file("ports");
    let own = own.replace(&format!("{ports:?}"), &format!("{:?}", network.0.file("second-ports")));
    fs::write(&config, own).unwrap();
    let mut second = network.start("second", &[]);
    assert_eq!(second.ends().code(), Some(1));
    second.says(&format!("another natgate (process {}) has device inside", heir.child.id()));
    fs::write(&config, text).unwrap();
    // A killed gateway holds no locks.
    drop(heir);
    let next = network.start("next", &[]);
    next.says("natgate: running, ");
}

fn who_cannot_take_over_says_why(network: &TakeoverNetwork) {
    let mut lonely = network.start("lonely", &["--take-over"]);
    assert_eq!(lonely.ends().code(), Some(1));
    lonely.says("no natgate hands over at ");
    network.configure("tun", "");
    let mut other = network.start("other", &["--take-over"]);
    assert_eq!(other.ends().code(), Some(2));
    other.says("inside.backend is \"tun\"");
    network.configure("af-packet", "[pcp]\nenabled = true\n");
}

/// Dies before the answer, or half way, or has another version.
fn whoever_dies_leaves_the_old_one_at_work(
    network: &TakeoverNetwork,
    old: &Natgate,
    (socket, seen): &(UdpSocket, SocketAddrV4),
) {
    old.signal(Signal::STOP);
    let mut dead = network.start("dead", &["--take-over"]);
    thread::sleep(Duration::from_millis(200));
    dead.child.kill().unwrap();
    dead.ends();
    old.signal(Signal::CONT);
    assert_eq!(ask(socket), *seen);
    // Another version, and a process that ends when the old gateway has stopped and sent its state.
    let mut stranger = UnixStream::connect(network.take_over_socket()).unwrap();
    let hello = |version: u16| [&version.to_le_bytes()[..], &[1, 0, 0, 0, 0, 0, 0]].concat();
    send(&mut stranger, 1, &hello(99));
    let (tag, sentence) = receive(&mut stranger);
    assert_eq!(tag, 3);
    assert!(String::from_utf8(sentence).unwrap().contains("the new one reads version 99"));
    let mut half = UnixStream::connect(network.take_over_socket()).unwrap();
    send(&mut half, 1, &hello(VERSION));
    assert_eq!(receive(&mut half).0, 2);
    send(&mut half, 4, &[]);
    while receive(&mut half).0 != 8 {}
    send(&mut half, 5, &[]);
    assert_eq!(receive(&mut half).0, 6);
    while receive(&mut half).0 != 8 {}
    drop(half);
    assert_eq!(ask(socket), *seen);
    old.says_times("has not taken over; this one goes on", 2);
}

/// Sends a message in the format of the take-over.
fn send(stream: &mut UnixStream, tag: u8, body: &[u8]) {
    let head = [&[tag][..], &(body.len() as u32).to_le_bytes()].concat();
    let mut sum = !0_u32;
    for &byte in head.iter().chain(body) {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    stream.write_all(&[&head, body, &(!sum).to_le_bytes()].concat()).unwrap();
}

fn receive(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let len = u32::from_le_bytes(head[1..].try_into().unwrap()) as usize;
    let mut rest = vec![0; len + 4];
    stream.read_exact(&mut rest).unwrap();
    rest.truncate(len);
    (head[0], rest)
}

#[test]
fn several_workers_are_taken_over_by_as_many() {
    let network = TakeoverNetwork::new("af-packet", "[workers]\ncount = 2\n");
    let old = network.first();
    let (sockets, connection) = (network.sockets(20), network.connection());
    let far = traffic::udp_socket(network.0.node("sub2")).unwrap();
    let seen = ask(&far);
    let before = mappings(&old.status());
    network.configure("af-packet", "");
    let mut fewer = network.start("fewer", &["--take-over"]);
    assert_eq!(fewer.ends().code(), Some(1));
    fewer.says("it has workers.count = 2, the new one 1; take over with as many");
    network.configure("af-packet", "[workers]\ncount = 2\n");
    let heir = take_over(&network, &old, "heir");
    old.ends_well();
    assert!(mappings(&heir.status()).is_superset(&before));
    all_are_as_they_were(&sockets);
    assert_eq!(ask(&far), seen);
    traffic::echo(&connection, b"still connected").unwrap();
}

#[test]
fn queues_that_only_one_can_have_change_hands() {
    let network = TakeoverNetwork::new("af-xdp", "");
    let old = network.first();
    let (sockets, connection) = (network.sockets(5), network.connection());
    let heir = take_over(&network, &old, "heir");
    old.ends_well();
    all_are_as_they_were(&sockets);
    traffic::echo(&connection, b"still connected").unwrap();
    drop(heir);
}

#[test]
fn a_service_is_upgraded_in_its_place() {
    let network = TakeoverNetwork::new("af-packet", "");
    let place = network.0.file("notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = |what: &str| loop {
        let mut bytes = [0; 4096];
        let len = manager.recv(&mut bytes).unwrap();
        let told = String::from_utf8(bytes[..len].to_vec()).unwrap();
        if let Some(rest) = told.lines().find_map(|line| line.strip_prefix(what)) {
            return rest.to_owned();
        }
    };
    let environment = format!("NOTIFY_SOCKET={}", place.display());
    let old = network.start_as("old", &[], &[environment]);
    hears("READY=1");
    let sockets = network.sockets(3);
    // A new program that cannot run changes nothing.
    network.configure("af-packet", "[nonsense]\n");
    old.signal(Signal::USR2);
    old.says("cannot be started to take over: it has ended, exit status: 2");
    network.configure("af-packet", "");
    old.signal(Signal::USR2);
    let process: i32 = hears("MAINPID=").parse().unwrap();
    let heir = Orphan(Pid::from_raw(process).unwrap());
    hears("READY=1");
    old.says("natgate: took over ");
    all_are_as_they_were(&sockets);
    kill_process(heir.0, Signal::TERM).unwrap();
    wait_for("the new one's end", PATIENCE, || Ok(heir.is_gone().then_some(()))).unwrap();
    old.ends_well();
}

/// Reads a line of a control connection.
fn line(stream: &TcpStream) -> String {
    let mut line = Vec::new();
    let mut stream = stream;
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

/// The client offers a port by PORT; the server sees an external one, and connects to it.
fn transfer(network: &TakeoverNetwork, [client, server]: [&TcpStream; 2], port: u16) {
    let node = network.0.node("sub1");
    let own = SocketAddrV4::new(SUBSCRIBER1, port);
    let listener = traffic::listen(node, own, PATIENCE).unwrap();
    let [a, b, c, d] = SUBSCRIBER1.octets();
    let command = format!("PORT {a},{b},{c},{d},{},{}\r\n", port >> 8, port & 0xff);
    (&mut &*client).write_all(command.as_bytes()).unwrap();
    let seen = line(server);
    let numbers = seen.trim_end().strip_prefix("PORT ").expect("the command").split(',');
    let numbers: Vec<u8> = numbers.map(|number| number.parse().unwrap()).collect();
    let [a, b, c, d, high, low] = numbers[..] else { panic!("{seen}") };
    let external = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    assert!(POOL.contains(external.ip()) && seen.len() != command.len(), "{seen}");
    let from = SocketAddrV4::new(SERVER1, 0);
    let data = network.0.node("server1");
    let mut data = traffic::connect_from(data, from, external, PATIENCE).unwrap();
    data.write_all(b"data").unwrap();
    let (mut taken, _) = listener.accept().unwrap();
    let mut bytes = [0; 4];
    taken.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"data");
    (&mut &*server).write_all(b"226 Done\r\n").unwrap();
    assert_eq!(line(client), "226 Done\r\n");
}

#[test]
fn control_connections_are_read_on_after_a_take_over() {
    let strict = "[nat]\nfiltering = \"address-and-port-dependent\"\n[alg]\nftp = true\n";
    let network = TakeoverNetwork::new("af-packet", strict);
    let old = network.first();
    let service = SocketAddrV4::new(SERVER1, 21);
    let listener = traffic::listen(network.0.node("server1"), service, PATIENCE).unwrap();
    let anywhere = SocketAddrV4::new(SUBSCRIBER1, 0);
    let client = network.0.node("sub1");
    let client = traffic::connect_from(client, anywhere, service, PATIENCE).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (&mut &server).write_all(b"220 Ready\r\n").unwrap();
    assert_eq!(line(&client), "220 Ready\r\n");
    transfer(&network, [&client, &server], 40_001);
    // A command that is not complete waits in the gateway.
    (&mut &client).write_all(b"NO").unwrap();
    thread::sleep(Duration::from_millis(100));
    let heir = take_over(&network, &old, "heir");
    old.ends_well();
    (&mut &client).write_all(b"OP\r\n").unwrap();
    assert_eq!(line(&server), "NOOP\r\n");
    (&mut &server).write_all(b"200 Well\r\n").unwrap();
    assert_eq!(line(&client), "200 Well\r\n");
    transfer(&network, [&client, &server], 40_002);
    let next = take_over(&network, &heir, "next");
    heir.ends_well();
    transfer(&network, [&client, &server], 40_003);
    next.signal(Signal::TERM);
    next.ends_well();
}
