//! Connection to a collector: datagrams, TCP, or TLS.
//!
//! Writing waits here, in the sink's own thread. A slow collector takes its time; a dead one has
//! not taken a byte for [`STALL`], or has closed the connection. If a connection breaks, data that
//! the kernel has taken and the collector has not read is lost silently; TCP cannot avoid that. So
//! the connection is checked before each write.

use natgate_gateway::{Collector, TlsSettings, Transport};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::SockRef;
use std::fmt::{self, Debug, Formatter};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for which a collector may take nothing.
const STALL: Duration = Duration::from_secs(10);

/// Longest such time after the last record.
const HURRY: Duration = Duration::from_secs(1);

/// Longest time for making a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// Longest wait of one call.
const STEP: Duration = Duration::from_millis(200);

/// Address of a collector, and the connection if there is one.
pub(crate) struct Connection {
    address: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    is_datagram: bool,
    stall: Duration,
    state: Option<State>,
}

enum State {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Debug for Connection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Connection to {}", self.address)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(State::Tls(stream)) = &mut self.state {
            // A failure is ignored; the other end sees the end of the connection anyhow.
            stream.conn.send_close_notify();
            let _ = stream.conn.write_tls(&mut stream.sock);
        }
    }
}

impl Connection {
    /// Prepares a connection; reads the certificates.
    pub(crate) fn new(collector: &Collector) -> io::Result<Self> {
        let tls = match &collector.transport {
            Transport::Tls(settings) => Some(read_tls(settings, &collector.address)?),
            Transport::Udp | Transport::Tcp => None,
        };
        Ok(Self {
            address: collector.address.clone(),
            tls,
            is_datagram: collector.transport == Transport::Udp,
            stall: STALL,
            state: None,
        })
    }

    /// True if each message is a datagram.
    pub(crate) fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Shortens all waits.
    pub(crate) fn hurry(&mut self) {
        self.stall = HURRY;
    }

    /// Opens the connection again.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        self.state = None;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in self.address.to_socket_addrs()? {
            match self.connect(address) {
                Ok(state) => {
                    self.state = Some(state);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect(&self, address: SocketAddr) -> io::Result<State> {
        if self.is_datagram {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            socket.set_write_timeout(Some(STEP))?;
            return Ok(State::Udp(socket));
        }
        let stream = TcpStream::connect_timeout(&address, CONNECT.min(self.stall))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(STEP))?;
        stream.set_read_timeout(Some(STEP))?;
        // Keepalive detects a vanished host even if nothing is written.
        let socket = SockRef::from(&stream);
        socket.set_keepalive(true)?;
        socket.set_tcp_user_timeout(Some(3 * STALL))?;
        let Some((config, name)) = &self.tls else { return Ok(State::Tcp(stream)) };
        let client = ClientConnection::new(Arc::clone(config), name.clone()).map_err(wrong)?;
        let mut stream = StreamOwned::new(client, stream);
        let began = Instant::now();
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Ok(_) => {}
                Err(error) if is_pause(&error) && began.elapsed() < CONNECT => {}
                Err(error) if is_pause(&error) => return Err(slow("answers no TLS handshake")),
                Err(error) => return Err(error),
            }
        }
        Ok(State::Tls(Box::new(stream)))
    }

    /// Sends one message as a datagram, or bytes; returns the number of bytes that were surely
    /// sent.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let stall = self.stall;
        let Some(state) = &mut self.state else {
            return (0, Err(io::ErrorKind::NotConnected.into()));
        };
        if let Err(error) = state.look() {
            return (0, Err(error));
        }
        let result = match state {
            State::Udp(socket) => match socket.send(bytes) {
                Ok(_) => (bytes.len(), Ok(())),
                Err(error) => (0, Err(error)),
            },
            State::Tcp(stream) => send_all(bytes, stall, |rest| stream.write(rest)),
            State::Tls(stream) => {
                let (_, result) = send_all(bytes, stall, |rest| stream.write(rest));
                let result = result.and_then(|()| flush(stream, stall));
                // If not everything was sent, the part that has left is unknown.
                (if result.is_ok() { bytes.len() } else { 0 }, result)
            }
        };
        if result.1.is_err() {
            self.state = None;
        }
        result
    }

    /// Checks whether the other end still exists.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        self.state.as_mut().map_or(Ok(()), State::look)
    }
}

/// Writes until everything is written, or nothing was taken for too long.
fn send_all(
    bytes: &[u8],
    stall: Duration,
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
) -> (usize, io::Result<()>) {
    let (mut sent, mut last) = (0, Instant::now());
    while sent < bytes.len() {
        match write(&bytes[sent..]) {
            Ok(0) => return (sent, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                sent += count;
                last = Instant::now();
            }
            Err(error) if is_pause(&error) && last.elapsed() < stall => {}
            Err(error) if is_pause(&error) => return (sent, Err(slow("takes nothing"))),
            Err(error) => return (sent, Err(error)),
        }
    }
    (sent, Ok(()))
}

fn flush(stream: &mut StreamOwned<ClientConnection, TcpStream>, stall: Duration) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match stream.flush() {
            Ok(()) => return Ok(()),
            Err(error) if is_pause(&error) && began.elapsed() < stall => {}
            Err(error) if is_pause(&error) => return Err(slow("takes nothing")),
            Err(error) => return Err(error),
        }
    }
}

impl State {
    /// Checks whether the other end still exists, as far as that is visible; received data is
    /// ignored.
    fn look(&mut self) -> io::Result<()> {
        let gone = || Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it has hung up"));
        match self {
            Self::Udp(socket) => socket.take_error()?.map_or(Ok(()), Err),
            Self::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                let mut bytes = [0; 512];
                let read = loop {
                    match stream.read(&mut bytes) {
                        Ok(count) if count > 0 => {}
                        read => break read,
                    }
                };
                stream.set_nonblocking(false)?;
                match read {
                    Ok(_) => gone(),
                    Err(error) if is_pause(&error) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Self::Tls(stream) => {
                let StreamOwned { conn, sock } = &mut **stream;
                sock.set_nonblocking(true)?;
                let read = loop {
                    match conn.read_tls(sock) {
                        Ok(0) => break gone(),
                        Ok(_) => match conn.process_new_packets() {
                            Ok(state) if state.peer_has_closed() => break gone(),
                            Ok(_) => {}
                            Err(error) => break Err(wrong(error)),
                        },
                        Err(error) if is_pause(&error) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                };
                sock.set_nonblocking(false)?;
                // Received data is discarded.
                let _ = io::copy(&mut conn.reader(), &mut io::sink());
                read
            }
        }
    }
}

/// True if the error only means that the call must be repeated.
fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the collector {what}"))
}

fn wrong(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads certificates and keys.
fn read_tls(
    settings: &TlsSettings,
    address: &str,
) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&settings.authorities)? {
        roots.add(certificate).map_err(|error| unfit(&settings.authorities, &error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_root_certificates(roots);
    let config = match &settings.own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let own = PrivateKeyDer::from_pem_file(key).map_err(|error| unfit(key, &error))?;
            let own = builder.with_client_auth_cert(certificates(chain)?, own);
            own.map_err(|error| unfit(chain, &error))?
        }
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = settings.name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
    let name = ServerName::try_from(name.to_owned()).map_err(|_| {
        let message = format!("{name:?} is no name that a certificate could be for");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    Ok((Arc::new(config), name))
}

/// Certificates in a file; an error if there is none.
fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unfit(path, &error));
    match all? {
        none if none.is_empty() => {
            let message = format!("{} has no certificate in PEM", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
        all => Ok(all),
    }
}

fn unfit(path: &Path, error: &dyn std::error::Error) -> io::Error {
    let message = format!("{} cannot be used: {error}", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
