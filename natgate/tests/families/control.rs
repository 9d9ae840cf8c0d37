//! Control connections of FTP of hosts with numbers go on when another process takes over, and when
//! the gateway reloads its configuration.

use super::world::World;
use super::{dslite, nat64};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

const TABLES: &str = "[nat]\nfiltering = \"address-and-port-dependent\"\n[alg]\nftp = true\n";

/// A control connection: the node and the address of its client, and both ends.
struct Control {
    node: &'static str,
    own: IpAddr,
    client: TcpStream,
    server: TcpStream,
}

/// Reads a line.
fn line(stream: &TcpStream) -> String {
    let (mut line, mut stream) = (Vec::new(), stream);
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} behind {line:?}"));
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

/// The endpoint in a command PORT or EPRT.
fn endpoint(command: &str) -> SocketAddrV4 {
    if let Some(text) = command.trim_end().strip_prefix("EPRT |1|") {
        return text.trim_end_matches('|').replace('|', ":").parse().unwrap();
    }
    let numbers = command.trim_end().strip_prefix("PORT ").expect("a command").split(',');
    let numbers: Vec<u8> = numbers.map(|number| number.parse().unwrap()).collect();
    let [a, b, c, d, high, low] = numbers[..] else { panic!("{command}") };
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

impl Control {
    /// Opens a connection from a node to a server's address, as the client knows it.
    fn open(
        world: &World,
        listener: &TcpListener,
        (node, own, to): (&'static str, &str, &str),
    ) -> Self {
        let to = SocketAddr::new(to.parse().unwrap(), 21);
        let client = world.enter(node, || TcpStream::connect_timeout(&to, PATIENCE));
        let client = client.unwrap_or_else(|error| panic!("{node}: {error}"));
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let control = Self { node, own: own.parse().unwrap(), client, server };
        control.says(&control.server, &control.client, "220 Ready\r\n");
        control
    }

    /// Lets an end say a line, which the other one gets as it is.
    fn says(&self, mut from: &TcpStream, to: &TcpStream, text: &str) {
        from.write_all(text.as_bytes()).unwrap();
        assert_eq!(line(to), text, "{}", self.node);
    }

    /// The client offers a port. The server sees an external one, and connects to it.
    fn transfer(&self, world: &World, port: u16) {
        let own = SocketAddr::new(self.own, port);
        let listener = world.enter(self.node, || TcpListener::bind(own)).unwrap();
        let family = if own.is_ipv6() { 2 } else { 1 };
        let command = format!("EPRT |{family}|{}|{port}|\r\n", self.own);
        (&self.client).write_all(command.as_bytes()).unwrap();
        let seen = line(&self.server);
        let external = endpoint(&seen);
        assert!(*external.ip() == EXTERNAL && seen != command, "{seen}");
        let to = SocketAddr::V4(external);
        let data = world.enter("server", || TcpStream::connect_timeout(&to, PATIENCE));
        let mut data = data.unwrap_or_else(|error| panic!("{} at {seen}: {error}", self.node));
        data.write_all(b"data").unwrap();
        let (mut taken, _) = listener.accept().unwrap();
        taken.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; 4];
        taken.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"data");
        self.says(&self.server, &self.client, "200 Well\r\n");
    }
}

/// Connections of clients go on over two processes and a reload. `config` is that of a gateway with
/// these tables.
fn go_on(
    world: &World,
    server: &str,
    clients: &[(&'static str, &str, &str)],
    config: &dyn Fn(&str) -> String,
) {
    let at = SocketAddr::new(server.parse().unwrap(), 21);
    let listener = world.enter("server", || TcpListener::bind(at)).unwrap();
    let old = world.start("nat", &config(TABLES));
    let open = |client: &(&'static str, &str, &str)| Control::open(world, &listener, *client);
    let all: Vec<Control> = clients.iter().map(open).collect();
    all.iter().for_each(|one| one.transfer(world, 40_001));
    // A command that is not complete waits in the gateway.
    all.iter().for_each(|one| (&one.client).write_all(b"NO").unwrap());
    std::thread::sleep(Duration::from_millis(100));
    let heir = world.take_over("nat", &config(TABLES));
    assert_eq!(old.wait().unwrap().code(), Some(0));
    for one in &all {
        (&one.client).write_all(b"OP\r\n").unwrap();
        assert_eq!(line(&one.server), "NOOP\r\n", "{}", one.node);
        one.says(&one.server, &one.client, "200 Well\r\n");
        one.transfer(world, 40_002);
    }
    let file = world.file("natgate.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, before.replace("ftp = true\n", "ftp = true\nirc = true\n")).unwrap();
    let changed = world.ask("nat", &["reload"]);
    assert_eq!(changed["changed"], serde_json::json!(["alg"]), "{changed}");
    all.iter().for_each(|one| one.transfer(world, 40_003));
    // The protocol is off for new connections, and read for these.
    std::fs::write(&file, before.replace("ftp = true\n", "irc = true\n")).unwrap();
    world.ask("nat", &["reload"]);
    all.iter().for_each(|one| one.transfer(world, 40_004));
    let last = world.take_over("nat", &config(TABLES));
    assert_eq!(heir.wait().unwrap().code(), Some(0));
    all.iter().for_each(|one| one.transfer(world, 40_005));
    assert_eq!(last.stop().unwrap().code(), Some(0));
}

#[test]
fn control_connections_of_hosts_of_nat64_go_on() {
    let config = |more: &str| {
        format!(
            "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
             [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n\
             gateway = \"192.0.2.1\"\n[[pool]]\naddresses = [\"203.0.113.1\"]\n[nat64]\n{more}"
        )
    };
    let client = ("client", nat64::CLIENT, "64:ff9b::192.0.2.1");
    go_on(&nat64::world(), "192.0.2.1", &[client], &config);
}

/// Two customers have one inner address.
#[test]
fn control_connections_of_hosts_behind_b4s_go_on() {
    let clients = ["client", "home"].map(|node| (node, dslite::INNER, "192.0.2.1"));
    go_on(&dslite::world(), "192.0.2.1", &clients, &dslite::config);
}
