//! What clients do that needs sockets of a particular kind: one socket towards two servers, the
//! same port for calling and being called, a thousand connections at once.
//!
//! The servers must be running. Nothing waits longer than ten seconds for one answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::namespace::Namespace;
use crate::network::{Network, SERVER1, SERVER2};
use crate::servers::reflector;
use crate::wait_for_listener;

/// Patience for a connection or a line on it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who met whom when two subscribers talked by their external endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hairpin {
    /// The external endpoint that was called.
    pub called: SocketAddrV4,
    /// The caller's external endpoint, as a server saw it.
    pub caller: SocketAddrV4,
    /// The caller as the one called saw it.
    pub seen: SocketAddrV4,
}

/// Has iperf3 send from the first subscriber to the first server as fast as TCP will, for so many
/// seconds, with these arguments besides; returns the bits a second that arrived.
///
/// # Errors
/// What iperf3 said.
pub fn iperf3(network: &Network, seconds: u32, more: &[&str]) -> io::Result<f64> {
    let (server, log) = (network.node("server1"), network.file("iperf3.log"));
    let mut daemon = server.start("iperf3".as_ref(), &["--server", "--one-off"], &log)?;
    let result = wait_for_listener(server, 5201, Duration::from_secs(5)).and_then(|()| {
        let (address, time) = (SERVER1.to_string(), seconds.to_string());
        let usual = ["--client", &address, "--time", &time, "--json"];
        network.node("sub1").run(seconds + 15, "iperf3", &[&usual, more].concat())
    });
    // It has ended by itself unless something went wrong.
    let _ = daemon.kill();
    daemon.wait()?;
    let measured: serde_json::Value = serde_json::from_slice(&result?.stdout)?;
    Ok(measured["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default())
}

/// A UDP socket of a subscriber, on any port.
///
/// # Errors
/// The system's.
pub fn udp_socket(node: &Namespace) -> io::Result<UdpSocket> {
    let socket = node.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// Asks a server under which endpoint it sees this socket; three times before giving up.
///
/// # Errors
/// No answer, or one that is no endpoint.
pub fn ask_udp(socket: &UdpSocket, server: Ipv4Addr) -> io::Result<SocketAddrV4> {
    let ask = || ask_udp_once(socket, server, b"where am I");
    ask().or_else(|_| ask()).or_else(|_| ask())
}

/// Sends one datagram to a server and reads under which endpoint it was seen.
///
/// # Errors
/// No answer within the socket's timeout, or one that is no endpoint.
pub fn ask_udp_once(
    socket: &UdpSocket,
    server: Ipv4Addr,
    datagram: &[u8],
) -> io::Result<SocketAddrV4> {
    let server = reflector(server);
    socket.send_to(datagram, server)?;
    let mut buffer = [0; 64];
    let silent = |error| about(&format!("no answer from {server}"), error);
    let (length, from) = socket.recv_from(&mut buffer).map_err(silent)?;
    if from != server.into() {
        return Err(io::Error::other(format!("the answer came from {from}, not from {server}")));
    }
    parse(&buffer[..length])
}

/// Connects to any endpoint, from this local port, which may be in use elsewhere too, or from a
/// port of its own (0).
///
/// # Errors
/// The system's, or nobody answered.
pub fn connect(node: &Namespace, port: u16, to: SocketAddrV4) -> io::Result<TcpStream> {
    connect_from(node, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port), to, PATIENCE)
}

/// Connects as [`connect`] does, from one of the node's addresses and within this time.
///
/// # Errors
/// The system's, or nobody answered.
pub fn connect_from(
    node: &Namespace,
    from: SocketAddrV4,
    to: SocketAddrV4,
    limit: Duration,
) -> io::Result<TcpStream> {
    node.enter(|| {
        let socket = socket_on(from)?;
        socket.connect_timeout(&SockAddr::from(to), limit)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })?
}

/// Listens, also where a connection has its end; accepting waits so long for a connection.
///
/// # Errors
/// The system's.
pub fn listen(node: &Namespace, on: SocketAddrV4, limit: Duration) -> io::Result<TcpListener> {
    node.enter(|| {
        let socket = socket_on(on)?;
        socket.listen(128)?;
        // The receive timeout holds for accept as well.
        socket.set_read_timeout(Some(limit))?;
        Ok(socket.into())
    })?
}

/// Connects to a server's reflector.
///
/// # Errors
/// As for [`connect`].
pub fn connect_reflector(node: &Namespace, port: u16, server: Ipv4Addr) -> io::Result<TcpStream> {
    connect(node, port, reflector(server))
}

/// Reads the reflector's first line: the endpoint that it sees.
///
/// # Errors
/// The connection's, or no endpoint in the line.
pub fn read_endpoint(stream: &TcpStream) -> io::Result<SocketAddrV4> {
    let mut line = String::new();
    // Nothing follows the line before we send something, so the reader holds nothing back.
    BufReader::with_capacity(64, stream).read_line(&mut line)?;
    parse(line.trim_end().as_bytes())
}

/// Sends bytes to a reflector and expects the same back.
///
/// # Errors
/// The connection's, or other bytes.
pub fn echo(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back)?;
    if back == bytes {
        Ok(())
    } else {
        Err(io::Error::other("the echo differs from what was sent"))
    }
}

/// A datagram from the second subscriber to the first one's external endpoint, and an answer.
///
/// # Errors
/// What did not arrive, or arrived changed.
pub fn hairpin_udp(network: &Network) -> io::Result<Hairpin> {
    let (one, two) = (udp_socket(network.node("sub1"))?, udp_socket(network.node("sub2"))?);
    let called = ask_udp(&one, SERVER1)?;
    let caller = ask_udp(&two, SERVER1)?;
    let mut buffer = [0; 64];
    two.send_to(b"question", called)?;
    let lost = |error| about("the datagram did not arrive", error);
    let (length, seen) = one.recv_from(&mut buffer).map_err(lost)?;
    expect(&buffer[..length], b"question")?;
    one.send_to(b"answer", seen)?;
    let lost = |error| about("the answer did not arrive", error);
    let (length, from) = two.recv_from(&mut buffer).map_err(lost)?;
    expect(&buffer[..length], b"answer")?;
    if from != called.into() {
        return Err(io::Error::other(format!("{called} was called, but {from} answered")));
    }
    Ok(Hairpin { called, caller, seen: v4(seen)? })
}

/// A TCP connection from the second subscriber to the first one's external endpoint. Each has
/// called a server from the same port before: so both have a mapping.
///
/// # Errors
/// What did not connect, or what arrived changed.
pub fn hairpin_tcp(network: &Network, port: u16) -> io::Result<Hairpin> {
    let (one, two) = (network.node("sub1"), network.node("sub2"));
    let held = [connect_reflector(one, port, SERVER1)?, connect_reflector(two, port, SERVER1)?];
    let (called, caller) = (read_endpoint(&held[0])?, read_endpoint(&held[1])?);
    let listener = listen(one, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port), PATIENCE)?;
    let refused = |error| about(&format!("calling {called}"), error);
    let mut calling = connect(two, port, called).map_err(refused)?;
    let (mut answering, seen) = listener.accept()?;
    answering.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; 8];
    calling.write_all(b"question")?;
    answering.read_exact(&mut buffer)?;
    expect(&buffer, b"question")?;
    answering.write_all(b"answered")?;
    calling.read_exact(&mut buffer)?;
    expect(&buffer, b"answered")?;
    Ok(Hairpin { called, caller, seen: v4(seen)? })
}

/// Opens `each` connections from either subscriber to the reflectors, half of them to each server,
/// holds them all open, then has each echo 1,000 bytes. Returns the external endpoints, in no
/// order.
///
/// # Errors
/// The first connection that failed in any way.
pub fn many_connections(network: &Network, each: usize) -> io::Result<Vec<SocketAddrV4>> {
    const THREADS: usize = 4;
    let mut open = Vec::new();
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for node in ["sub1", "sub2"] {
            for worker in 0..THREADS {
                let share = (each + worker) / THREADS;
                workers.push(scope.spawn(move || open_connections(network.node(node), share)));
            }
        }
        for worker in workers {
            open.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<_, io::Error>(())
    })?;
    let mut endpoints = Vec::new();
    for (number, stream) in open.iter().enumerate() {
        let context = |error| about(&format!("connection {number} of {}", open.len()), error);
        endpoints.push(read_endpoint(stream).map_err(context)?);
        let bytes: Vec<u8> = (0..1000).map(|n| (number * 31 + n) as u8).collect();
        echo(stream, &bytes).map_err(context)?;
    }
    Ok(endpoints)
}

fn open_connections(node: &Namespace, count: usize) -> io::Result<Vec<TcpStream>> {
    (0..count)
        .map(|number| {
            let server = if number % 2 == 0 { SERVER1 } else { SERVER2 };
            connect_reflector(node, 0, server)
                .map_err(|error| about(&format!("connection {number} of {count}"), error))
        })
        .collect()
}

/// A TCP socket on an endpoint whose port others may use as well, or on a port of its own (0): left
/// to connect, the kernel would take one port for two servers, and so for one mapping.
fn socket_on(local: SocketAddrV4) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(local.port() != 0)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

fn parse(bytes: &[u8]) -> io::Result<SocketAddrV4> {
    let text = String::from_utf8_lossy(bytes);
    text.parse().map_err(|_| io::Error::other(format!("{text:?} is no endpoint")))
}

fn v4(address: std::net::SocketAddr) -> io::Result<SocketAddrV4> {
    parse(address.to_string().as_bytes())
}

fn expect(got: &[u8], wanted: &[u8]) -> io::Result<()> {
    if got == wanted {
        return Ok(());
    }
    let (got, wanted) = (String::from_utf8_lossy(got), String::from_utf8_lossy(wanted));
    Err(io::Error::other(format!("{wanted:?} was sent, {got:?} arrived")))
}

fn about(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
