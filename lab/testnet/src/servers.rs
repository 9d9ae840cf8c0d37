//! What the clients talk to: threads of this process behind sockets of the servers' namespaces.
//!
//! Server 1 has a web server on port 80 that answers every request with one and the same body. Both
//! servers have a reflector on [`REFLECTOR_PORT`]: it tells whoever asks under which address and
//! port it is seen, on UDP by the answer to any datagram, on TCP by the first line of a connection
//! that echoes from then on. All stop when dropped.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::network::{Network, SERVER1, SERVER2};

/// Where both servers reflect, on UDP and TCP.
pub const REFLECTOR_PORT: u16 = 7000;

/// How often a thread that waits looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(100);

/// Connections are many and their threads do little.
const STACK: usize = 256 * 1024;

/// What is done with a TCP connection.
type Handler = Arc<dyn Fn(TcpStream) -> io::Result<()> + Send + Sync>;

/// The servers' threads.
#[derive(Debug)]
pub struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    /// Starts them all; they listen when this returns.
    ///
    /// # Errors
    /// The system's, when a socket or a thread cannot be had.
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
        // The receive timeout holds for accept as well.
        socket2::SockRef::from(&listener).set_read_timeout(Some(GLANCE))?;
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::Builder::new().name("accept".into()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else { continue };
                let handler = Arc::clone(&handler);
                let builder = thread::Builder::new().stack_size(STACK);
                // A client that goes away early, or no thread: the client notices.
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
                // UDP promises nothing: who asked asks again.
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
            // It has said why on standard error.
            let _ = thread.join();
        }
    }
}

/// One request, one answer.
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

/// Says who is seen, then echoes until the other side has no more.
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

/// Where a server's reflector is.
pub(crate) fn reflector(server: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(server, REFLECTOR_PORT)
}
