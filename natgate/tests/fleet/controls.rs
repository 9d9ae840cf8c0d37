//! A client of active FTP, and a server outside that opens the data connections. And a server
//! inside, whose clients open them.

use super::*;
use std::net::{IpAddr, Ipv6Addr, TcpListener};

/// The server's port.
const FTP: SocketAddrV4 = SocketAddrV4::new(*PAIR_SERVER.ip(), 21);

/// Starts a server of FTP. It runs in threads of its namespace, in which it opens connections.
fn serve_ftp(network: &PairNetwork) {
    let listen = || {
        let listener = TcpListener::bind(FTP)?;
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || serve_client(&stream));
            }
        });
        Ok::<_, io::Error>(())
    };
    network.node("srv").enter(listen).expect("a thread").expect("it listens");
}

/// Serves one client: PORT, RETR and NOOP.
fn serve_client(mut stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut to = None;
    write!(stream, "220 ready\r\n")?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if let Some(endpoint) = read_port(line) {
            to = Some(endpoint);
            write!(stream, "200 to {endpoint}\r\n")?;
        } else if let (Some(name), Some(to)) = (line.strip_prefix("RETR "), to) {
            write!(stream, "150 opening\r\n")?;
            match TcpStream::connect_timeout(&to.into(), PATIENCE) {
                Ok(mut data) => write!(data, "contents of {name}")?,
                Err(error) => {
                    write!(stream, "425 {error}\r\n")?;
                    continue;
                }
            }
            write!(stream, "226 done\r\n")?;
        } else if line == "NOOP" {
            write!(stream, "200 fine\r\n")?;
        } else {
            write!(stream, "500 what is {line:?}\r\n")?;
        }
    }
}

/// The endpoint of a PORT or of an EPRT (RFC 2428) with IPv4.
fn read_port(line: &str) -> Option<SocketAddrV4> {
    if let Some(numbers) = line.strip_prefix("PORT ") {
        let numbers: Result<Vec<u8>, _> = numbers.split(',').map(str::parse).collect();
        let [a, b, c, d, high, low] = numbers.ok()?[..] else { return None };
        return Some(SocketAddrV4::new([a, b, c, d].into(), u16::from_be_bytes([high, low])));
    }
    let ends = line.strip_prefix("EPRT |1|")?.strip_suffix('|')?;
    let (address, port) = ends.split_once('|')?;
    Some(SocketAddrV4::new(address.parse().ok()?, port.parse().ok()?))
}

/// A control connection of a client.
struct Control(BufReader<TcpStream>);

impl Control {
    /// The server greets the client.
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut control = Self(BufReader::new(stream));
        assert_eq!(control.reply(), "220 ready");
        control
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").expect("sent");
        self.reply()
    }
}

/// A client with its control connection.
struct Client<'n> {
    network: &'n PairNetwork,
    control: Control,
    own: IpAddr,
    files: u32,
}

impl<'n> Client<'n> {
    /// Connects to the server, by an address that the client knows.
    fn connect(network: &'n PairNetwork, server: SocketAddr) -> Self {
        let deadline = Instant::now() + PATIENCE;
        // With IPv6, a gateway has its address after its check for duplicates.
        let control = network.node("sub").enter(|| {
            loop {
                match TcpStream::connect_timeout(&server, Duration::from_secs(3)) {
                    Err(_) if Instant::now() < deadline => {}
                    other => return other,
                }
            }
        });
        let control = control.expect("a thread").expect("a connection");
        let own = control.local_addr().expect("an address").ip();
        Self { network, control: Control::new(control), own, files: 0 }
    }

    /// Names a port. Returns the endpoint that the server knows, and the listener.
    fn name_port(&mut self) -> (SocketAddrV4, TcpListener) {
        let own = self.own;
        let listener = self.network.node("sub").enter(|| TcpListener::bind((own, 0)));
        let listener = listener.expect("a thread").expect("it listens");
        listener.set_nonblocking(true).expect("it can");
        let port = listener.local_addr().expect("an address").port();
        let line = match own {
            IpAddr::V4(own) => {
                let own = own.to_string().replace('.', ",");
                format!("PORT {own},{},{}", port >> 8, port & 255)
            }
            IpAddr::V6(own) => format!("EPRT |2|{own}|{port}|"),
        };
        let reply = self.control.ask(&line);
        let endpoint = reply.strip_prefix("200 to ").and_then(|end| end.parse().ok());
        (endpoint.unwrap_or_else(|| panic!("{line}: {reply}")), listener)
    }

    fn fetch_at(&mut self, listener: &TcpListener) {
        self.files += 1;
        let name = format!("file{}", self.files);
        assert_eq!(self.control.ask(&format!("RETR {name}")), "150 opening");
        let accept = || match listener.accept() {
            Ok((data, _)) => Ok(Some(data)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        };
        let mut data = wait_for("a data connection", PATIENCE, accept).expect("it comes");
        data.set_nonblocking(false).expect("it can");
        data.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut contents = String::new();
        data.read_to_string(&mut contents).expect("contents");
        assert_eq!(contents, format!("contents of {name}"));
        assert_eq!(self.control.reply(), "226 done");
    }

    /// Fetches a file by a port of a's slice.
    fn fetch(&mut self) {
        let (endpoint, listener) = self.name_port();
        assert!(is_of(&endpoint.to_string(), "a"), "{endpoint}");
        self.fetch_at(&listener);
    }
}

/// A client fetches files while the owner is killed and comes back. `start` starts a node, and
/// `prefer` leads packets to one.
fn fetch_through(
    [a, b]: [PairNode; 2],
    (network, server): (&PairNetwork, SocketAddr),
    start: impl Fn(&str) -> PairNode,
    prefer: impl Fn(&str),
) {
    serve_ftp(network);
    wait_until(&a, "a assigns ports", has_first_slice);
    let mut client = Client::connect(network, server);
    (0..3).for_each(|_| client.fetch());
    // The server has heard of a port: nothing may be lost from here on.
    let (_, listener) = client.name_port();
    a.kill().expect("killed");
    prefer("b");
    client.fetch_at(&listener);
    assert_eq!(client.control.ask("NOOP"), "200 fine");
    wait_until(&b, "b takes the slice", has_first_slice);
    (0..3).for_each(|_| client.fetch());

    let a = start("a");
    wait_until(&a, "a has the copy", is_whole);
    client.fetch();
    assert!(succeeds(&b, &["move", "0", "a"]));
    wait_until(&a, "the slice is back", has_first_slice);
    prefer("a");
    (0..3).for_each(|_| client.fetch());
    wait_until(&b, "the pair is whole again", is_whole);
    for node in [a, b] {
        node.stop().expect("it ends");
    }
}

fn fetch_with(more: &str) {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let nodes = pair(&network, more);
    let start = |node: &str| {
        let config = network.config(node, more);
        network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
    };
    let prefer = |node: &str| network.prefer(node).expect("routes");
    fetch_through(nodes, (&network, FTP.into()), start, prefer);
}

#[test]
fn a_client_of_ftp_fetches_more_files_after_a_kill_and_after_a_move() {
    fetch_with("[alg]\nftp = true\n");
}

#[test]
fn a_client_of_ftp_at_one_of_several_workers_fetches_more_files() {
    fetch_with("[alg]\nftp = true\n[workers]\ncount = 2\n");
}

#[test]
fn an_ipv6_only_client_of_ftp_fetches_more_files_after_a_kill() {
    let more = "[nat64]\nsubscribers = [\"2001:db8::/32\"]\n";
    let server = Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(FTP.ip().to_bits()));
    fetch_by_ipv6(hosts::PREFIX64, more, (server, FTP.port()).into(), |_| ());
}

#[test]
fn a_client_of_ftp_behind_a_tunnel_fetches_more_files_after_a_kill() {
    fetch_by_ipv6(hosts::TUNNELS, hosts::DSLITE, FTP.into(), hosts::add_tunnel);
}

/// The client's packets go to a prefix of IPv6, which `prepare` may need.
fn fetch_by_ipv6(prefix: &str, more: &str, server: SocketAddr, prepare: impl Fn(&PairNetwork)) {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let more = &format!("[alg]\nftp = true\n{more}");
    let nodes = hosts::pair6(&network, &[prefix], more);
    prepare(&network);
    let start = |node: &str| hosts::start6(&network, node, more);
    let prefer = |node: &str| {
        network.prefer(node).expect("routes");
        network.prefer6(&[prefix], node).expect("routes");
    };
    fetch_through(nodes, (&network, server), start, prefer);
}

/// Each direction of the control connection and of the data connections comes to a node, which may
/// be the wrong one.
#[test]
fn a_client_of_ftp_fetches_files_whichever_node_packets_come_to() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let [a, b] = pair(&network, "[alg]\nftp = true\n");
    serve_ftp(&network);
    wait_until(&a, "a assigns ports", has_first_slice);
    let mut client = Client::connect(&network, FTP.into());
    client.fetch();
    for (outbound, inbound) in [("b", "a"), ("a", "b"), ("b", "b"), ("a", "a")] {
        network.lead(PairSide::Access, outbound).expect("routes");
        network.lead(PairSide::Border, inbound).expect("routes");
        (0..3).for_each(|_| client.fetch());
    }
    PairSide::BOTH.into_iter().try_for_each(|side| network.balance(side)).expect("routes");
    (0..5).for_each(|_| client.fetch());
    a.kill().expect("killed");
    PairSide::BOTH.into_iter().try_for_each(|side| network.lead(side, "b")).expect("routes");
    assert_eq!(client.control.ask("NOOP"), "200 fine");
    wait_until(&b, "b takes the slice", has_first_slice);
    client.fetch();
    b.stop().expect("it ends");
}

/// The server inside, and its external endpoint.
const INSIDE: SocketAddrV4 = SocketAddrV4::new(PAIR_SUBSCRIBER, 21);
const OUTSIDE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), 21);

/// Starts a server of passive FTP inside.
fn serve_inside(network: &PairNetwork) {
    let listener = network.node("sub").enter(|| TcpListener::bind(INSIDE));
    let listener = listener.expect("a thread").expect("it listens");
    // Its threads bind sockets of the same namespace.
    let serve = move || {
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || serve_passive(&stream));
            }
        });
    };
    network.node("sub").enter(serve).expect("a thread");
}

/// Serves one client: PASV, RETR and NOOP.
fn serve_passive(mut stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut data: Option<TcpListener> = None;
    write!(stream, "220 ready\r\n")?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match (line.trim_end().split_once(' '), data.take()) {
            (Some(("RETR", name)), Some(listener)) => {
                write!(stream, "150 opening\r\n")?;
                let (mut to, _) = listener.accept()?;
                write!(to, "contents of {name}")?;
                drop(to);
                write!(stream, "226 done\r\n")?;
            }
            _ if line == "PASV\r\n" => {
                let listener = TcpListener::bind((*INSIDE.ip(), 0))?;
                let port = listener.local_addr()?.port();
                let own = INSIDE.ip().to_string().replace('.', ",");
                write!(stream, "227 here ({own},{},{})\r\n", port >> 8, port & 255)?;
                data = Some(listener);
            }
            _ if line == "NOOP\r\n" => write!(stream, "200 fine\r\n")?,
            _ => write!(stream, "500 what is {line:?}\r\n")?,
        }
    }
}

/// A client outside, with its control connection.
struct Visitor<'n> {
    network: &'n PairNetwork,
    control: Control,
    files: u32,
}

impl<'n> Visitor<'n> {
    fn connect(network: &'n PairNetwork) -> Self {
        let control =
            network.node("srv").enter(|| TcpStream::connect_timeout(&OUTSIDE.into(), PATIENCE));
        let control = control.expect("a thread").expect("a connection");
        Self { network, control: Control::new(control), files: 0 }
    }

    fn fetch(&mut self) {
        let reply = self.control.ask("PASV");
        let numbers = reply.strip_prefix("227 here (").and_then(|end| end.strip_suffix(')'));
        let to = numbers.and_then(|numbers| read_port(&format!("PORT {numbers}")));
        let to = to.unwrap_or_else(|| panic!("{reply}"));
        assert!(is_of(&to.to_string(), "a"), "{reply}");
        self.files += 1;
        let name = format!("file{}", self.files);
        let connect = || TcpStream::connect_timeout(&to.into(), PATIENCE);
        let data = self.network.node("srv").enter(connect);
        let mut data = data.expect("a thread").expect("a connection");
        data.set_read_timeout(Some(PATIENCE)).expect("a time");
        assert_eq!(self.control.ask(&format!("RETR {name}")), "150 opening");
        let mut contents = String::new();
        data.read_to_string(&mut contents).expect("contents");
        assert_eq!(contents, format!("contents of {name}"));
        assert_eq!(self.control.reply(), "226 done");
    }
}

/// The static mapping stands at both nodes, whatever a node knows of the connection.
#[test]
fn clients_of_a_server_inside_go_on_across_restarts_of_either_node() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let more = format!(
        "[alg]\nftp = true\n[[static]]\nprotocol = \"tcp\"\ninternal = \"{INSIDE}\"\n\
         external = \"{OUTSIDE}\"\n"
    );
    let [a, b] = pair(&network, &more);
    serve_inside(&network);
    wait_until(&a, "a assigns ports", has_first_slice);
    let mut visitor = Visitor::connect(&network);
    (0..2).for_each(|_| visitor.fetch());
    let start = |node: &str| {
        let config = network.config(node, &more);
        network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
    };
    // The partner restarts, and packets come to it at once.
    b.kill().expect("killed");
    let b = start("b");
    network.prefer("b").expect("routes");
    (0..2).for_each(|_| visitor.fetch());
    wait_until(&b, "b has the copy", is_whole);
    assert_eq!(visitor.control.ask("NOOP"), "200 fine");
    a.kill().expect("killed");
    assert_eq!(visitor.control.ask("NOOP"), "200 fine");
    wait_until(&b, "b takes the slice", has_first_slice);
    visitor.fetch();
    let a = start("a");
    wait_until(&a, "a has the copy", is_whole);
    visitor.fetch();
    for node in [a, b] {
        node.stop().expect("it ends");
    }
}
