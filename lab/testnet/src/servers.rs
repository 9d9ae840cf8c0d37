//! Servers for the clients: threads of this process with sockets in the servers' namespaces.
//!
//! Server 1 has a web server on port 80 that answers every request with one body. Both servers have
//! a reflector on [`REFLECTOR_PORT`]. It returns the address and port of the client that it sees:
//! on UDP in the answer to any datagram, on TCP in the first line of a connection, which it then
//! echoes. All servers stop when dropped.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::network::{Network, SERVER1, SERVER2};

/// Port of both servers' reflectors, on UDP and TCP.
pub const REFLECTOR_PORT: u16 = 7000;

/// Interval at which a waiting thread checks `stop`.
const GLANCE: Duration = Duration::from_millis(100);

/// Small stacks, because connections are many and their threads do little.
const STACK: usize = 256 * 1024;

/// Handler of a TCP connection.
type Handler = Arc<dyn Fn(TcpStream) -> io::Result<()> + Send + Sync>;

/// Threads of the servers.
#[derive(Debug)]
pub struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    /// Starts all servers; they listen when this returns.
    ///
    /// # Errors
    /// The system's error if a socket or a thread cannot be created.
    pub fn start(network: &Network, body: Arc<[u8]>) -> io::Result<Self> {
        let mut servers = Self { stop: Arc::default(), threads: Vec::new() };
        let web: Handler = Arc::new(move |stream| answer_http(stream, &body));
        servers.serve_tcp(network, "server1", SocketAddrV4::new(SERVER1, 80), web)?;
        for (node, address) in [("server1", SERVER1), ("server2", SERVER2)] {
            let endpoint = SocketAddrV4::new(address, REFLECTOR_PORT);
            let stop = Arc::clone(&servers.stop);
            let reflect: Handler = Arc::new(move |stream| reflect_tcp(stream, &stop));
            servers.serve_tcp(network, node, endpoint, reflect)?;
            servers.serve_udp(network, node, endpoint)?;
        }
        Ok(servers)
    }

    fn serve_tcp(
        &mut self,
        network: &Network,
        node: &str,
        endpoint: SocketAddrV4,
        handler: Handler,
    ) -> io::Result<()> {
        let listener = network.node(node).enter(|| TcpListener::bind(endpoint))??;
        // The receive timeout also applies to accept.
        socket2::SockRef::from(&listener).set_read_timeout(Some(GLANCE))?;
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::Builder::new().name("accept".into()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else { continue };
                let handler = Arc::clone(&handler);
                let builder = thread::Builder::new().stack_size(STACK);
                // If the client ends early or no thread can start, the client notices.
                let _ = builder.spawn(move || handler(stream));
            }
        })?);
        Ok(())
    }

    fn serve_udp(
        &mut self,
        network: &Network,
        node: &str,
        endpoint: SocketAddrV4,
    ) -> io::Result<()> {
        let socket = network.node(node).enter(|| UdpSocket::bind(endpoint))??;
        socket.set_read_timeout(Some(GLANCE))?;
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::Builder::new().name("reflect".into()).spawn(move || {
            let mut buffer = [0; 65_535];
            while !stop.load(Ordering::Relaxed) {
                let Ok((_, from)) = socket.recv_from(&mut buffer) else { continue };
                // UDP may lose packets, and the client asks again.
                let _ = socket.send_to(from.to_string().as_bytes(), from);
            }
        })?);
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread has printed the reason on standard error.
            let _ = thread.join();
        }
    }
}

/// Answers one request.
fn answer_http(mut stream: TcpStream, body: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut request = BufReader::new(stream.try_clone()?).take(16 * 1024);
    let mut line = String::new();
    while request.read_line(&mut line)? > 0 && line != "\r\n" {
        line.clear();
    }
    let length = body.len();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(body)
}

/// Sends the client's endpoint, then echoes until the client closes.
fn reflect_tcp(mut stream: TcpStream, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GLANCE))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    writeln!(stream, "{}", stream.peer_addr()?)?;
    let mut buffer = [0; 16 * 1024];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => stream.write_all(&buffer[..length])?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Endpoint of a server's reflector.
pub(crate) fn reflector(server: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(server, REFLECTOR_PORT)
}
