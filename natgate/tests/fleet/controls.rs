//! A client of active FTP, and a server outside that opens the data connections.

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

/// A client with its control connection.
struct Client<'n> {
    network: &'n PairNetwork,
    control: BufReader<TcpStream>,
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
        control.set_read_timeout(Some(PATIENCE)).expect("a time");
        let own = control.local_addr().expect("an address").ip();
        let mut client = Self { network, control: BufReader::new(control), own, files: 0 };
        assert_eq!(client.reply(), "220 ready");
        client
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        write!(self.control.get_mut(), "{line}\r\n").expect("sent");
        self.reply()
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
        let reply = self.ask(&line);
        let endpoint = reply.strip_prefix("200 to ").and_then(|end| end.parse().ok());
        (endpoint.unwrap_or_else(|| panic!("{line}: {reply}")), listener)
    }

    fn fetch_at(&mut self, listener: &TcpListener) {
        self.files += 1;
        let name = format!("file{}", self.files);
        assert_eq!(self.ask(&format!("RETR {name}")), "150 opening");
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
        assert_eq!(self.reply(), "226 done");
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
    assert_eq!(client.ask("NOOP"), "200 fine");
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
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let more = "[alg]\nftp = true\n[nat64]\nsubscribers = [\"2001:db8::/32\"]\n";
    let nodes = hosts::pair6(&network, &[hosts::PREFIX64], more);
    let server = Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(FTP.ip().to_bits()));
    let start = |node: &str| hosts::start6(&network, node, more);
    let prefer = |node: &str| {
        network.prefer(node).expect("routes");
        network.prefer6(&[hosts::PREFIX64], node).expect("routes");
    };
    fetch_through(nodes, (&network, (server, FTP.port()).into()), start, prefer);
}
