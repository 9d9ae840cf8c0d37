//! Clients that need sockets of a particular kind: one socket towards two servers, one port for
//! outgoing and incoming connections, a thousand connections at once.
//!
//! The servers must be running. No wait for an answer is longer than ten seconds.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::namespace::Namespace;
use crate::network::{Network, SERVER1, SERVER2};
use crate::servers::reflector;
use crate::wait_for_listener;

/// Longest wait for a connection or a line on it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Endpoints of two subscribers that communicated by their external endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hairpin {
    /// External endpoint of the called subscriber.
    pub called: SocketAddrV4,
    /// External endpoint of the caller, as seen by a server.
    pub caller: SocketAddrV4,
    /// Caller's endpoint, as seen by the called subscriber.
    pub seen: SocketAddrV4,
}

/// Runs iperf3 from the first subscriber to the first server as fast as TCP permits, for `seconds`,
/// with these further arguments. Returns the received bits a second.
///
/// # Errors
/// The error of iperf3.
pub fn iperf3(network: &Network, seconds: u32, more: &[&str]) -> io::Result<f64> {
    let ends = [network.node("sub1"), network.node("server1")];
    let measured = iperf3_between(ends, SERVER1, &network.file("iperf3.log"), seconds, more)?;
    Ok(measured["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default())
}

/// Runs iperf3 between a client and a server with this address, as [`iperf3`] does. Returns its
/// report.
///
/// # Errors
/// The error of iperf3.
pub fn iperf3_between(
    [client, server]: [&Namespace; 2],
    address: Ipv4Addr,
    log: &Path,
    seconds: u32,
    more: &[&str],
) -> io::Result<Value> {
    let mut daemon = server.start("iperf3".as_ref(), &["--server", "--one-off"], log)?;
    let result = wait_for_listener(server, 5201, Duration::from_secs(5)).and_then(|()| {
        let (address, time) = (address.to_string(), seconds.to_string());
        let usual = ["--client", &address, "--time", &time, "--json"];
        client.run(seconds + 15, "iperf3", &[&usual, more].concat())
    });
    // The server has ended by itself, unless an error occurred.
    let _ = daemon.kill();
    daemon.wait()?;
    Ok(serde_json::from_slice(&result?.stdout)?)
}

/// A UDP socket of a subscriber, on any port.
///
/// # Errors
/// The system's.
pub fn udp_socket(node: &Namespace) -> io::Result<UdpSocket> {
    udp_socket_at(node, 0)
}

/// A UDP socket of a subscriber on a port.
///
/// # Errors
/// The system's.
pub fn udp_socket_at(node: &Namespace, port: u16) -> io::Result<UdpSocket> {
    let socket = node.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))??;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// Asks a server for the endpoint of this socket that it sees; at most three times.
///
/// # Errors
/// If there is no answer, or if it is no endpoint.
pub fn ask_udp(socket: &UdpSocket, server: Ipv4Addr) -> io::Result<SocketAddrV4> {
    let ask = || ask_udp_once(socket, server, b"where am I");
    ask().or_else(|_| ask()).or_else(|_| ask())
}

/// Sends one datagram to a server and returns the endpoint that it has seen.
///
/// # Errors
/// If no answer comes within the socket's timeout, or if it is no endpoint.
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

/// Connects to an endpoint from this local port, which other sockets may share, or from a port of
/// its own (0).
///
/// # Errors
/// The system's error, or the lack of an answer.
pub fn connect(node: &Namespace, port: u16, to: SocketAddrV4) -> io::Result<TcpStream> {
    connect_from(node, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port), to, PATIENCE)
}

/// Connects like [`connect`], from one of the node's addresses and within this time.
///
/// # Errors
/// The system's error, or the lack of an answer.
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

/// Listens, also on the endpoint of a connection; an accept waits at most `limit`.
///
/// # Errors
/// The system's.
pub fn listen(node: &Namespace, on: SocketAddrV4, limit: Duration) -> io::Result<TcpListener> {
    node.enter(|| {
        let socket = socket_on(on)?;
        socket.listen(128)?;
        // The receive timeout also applies to accept.
        socket.set_read_timeout(Some(limit))?;
        Ok(socket.into())
    })?
}

/// Connects to a server's reflector.
///
/// # Errors
/// The errors of [`connect`].
pub fn connect_reflector(node: &Namespace, port: u16, server: Ipv4Addr) -> io::Result<TcpStream> {
    connect(node, port, reflector(server))
}

/// Reads the reflector's first line: the endpoint that it sees.
///
/// # Errors
/// The error of the connection, or a line without an endpoint.
pub fn read_endpoint(stream: &TcpStream) -> io::Result<SocketAddrV4> {
    let mut line = String::new();
    // The reflector sends nothing more before the next packet, so the reader keeps no bytes.
    BufReader::with_capacity(64, stream).read_line(&mut line)?;
    parse(line.trim_end().as_bytes())
}

/// Sends bytes to a reflector, which must return them.
///
/// # Errors
/// The error of the connection, or different bytes.
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

/// Sends a datagram from the second subscriber to the first one's external endpoint, and an answer.
///
/// # Errors
/// The missing or changed packet.
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

/// Connects from the second subscriber to the first one's external endpoint by TCP. Each has
/// connected to a server from this port before, so both have a mapping.
///
/// # Errors
/// The failed connection, or the changed bytes.
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

/// Opens `each` connections from either subscriber to the reflectors, half of them to each server.
/// Holds them all open, then echoes 1,000 bytes over each. Returns the external endpoints, in no
/// order.
///
/// # Errors
/// The first connection that failed.
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

/// A TCP socket on an endpoint whose port other sockets may share, or on a port of its own (0).
/// Without this binding the kernel would use one port for two servers, and so for one mapping.
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
