//! The status page: the metrics by HTTP, for browsers and Prometheus on the inside.
//!
//! The server handles whole packets; smoltcp provides TCP. The number of connections is limited.
//! Each connection serves one request, and a slow client is not waited for. The page is created
//! when it is requested.

use natgate_engine::Timestamp;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Most simultaneous connections; further clients have to try again.
const CONNECTIONS: usize = 8;

/// Most bytes of a request, and most bytes of an answer in flight.
const QUESTION: usize = 2048;
const WINDOW: usize = 16 << 10;

/// Longest silence of a client, and longest duration of a connection.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: std::time::Duration = std::time::Duration::from_secs(30);

/// Most waiting packets.
const QUEUE: usize = 64;

/// The server.
pub struct Server {
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<Connection>,
    wire: Wire,
    port: u16,
}

/// Place for one client.
struct Connection {
    socket: SocketHandle,
    question: Vec<u8>,
    answer: Vec<u8>,
    /// Sent bytes of the answer; `None` while the request is incomplete.
    sent: Option<usize>,
    /// Time of the client's arrival.
    since: Option<Timestamp>,
}

/// Function that creates the page and its content type.
pub type Make<'a> = dyn FnMut() -> (String, &'static str) + 'a;

impl Server {
    /// Creates a server at an address of a link with this MTU; the seed is for sequence numbers.
    pub fn new(address: Ipv4Addr, port: u16, mtu: usize, seed: u64, now: Timestamp) -> Self {
        let mut wire = Wire { mtu, incoming: VecDeque::new(), outgoing: VecDeque::new() };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, instant(now));
        // The gateway's router finds the next hop, so for the server every address is a neighbor.
        interface.update_ip_addrs(|addresses| {
            let everywhere = IpCidr::new(IpAddress::Ipv4(address), 0);
            addresses.push(everywhere).expect("there is room for one");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let connections = (0..CONNECTIONS).map(|_| {
            let buffer = |len| SocketBuffer::new(vec![0; len]);
            let mut socket = Socket::new(buffer(QUESTION), buffer(WINDOW));
            socket.set_timeout(Some(PATIENCE));
            let socket = sockets.add(socket);
            Connection { socket, question: Vec::new(), answer: Vec::new(), sent: None, since: None }
        });
        let connections = connections.collect();
        Self { interface, sockets, connections, wire, port }
    }

    /// Takes a received packet. A client that sends too many packets has to send some of them
    /// again.
    pub fn receive(&mut self, packet: Vec<u8>) {
        if self.wire.incoming.len() < QUEUE {
            self.wire.incoming.push_back(packet);
        }
    }

    /// Runs the server once.
    pub fn turn(&mut self, now: Timestamp, make: &mut Make<'_>) {
        let Self { interface, sockets, connections, wire, port } = self;
        interface.poll(instant(now), wire, sockets);
        for connection in connections {
            let socket = sockets.get_mut::<Socket<'_>>(connection.socket);
            connection.turn(now, socket, *port, make);
        }
        interface.poll(instant(now), wire, sockets);
    }

    /// Next packet to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.wire.outgoing.pop_front()
    }
}

impl Connection {
    fn turn(&mut self, now: Timestamp, socket: &mut Socket<'_>, port: u16, make: &mut Make<'_>) {
        if !socket.is_open() {
            self.question.clear();
            (self.answer, self.sent, self.since) = (Vec::new(), None, None);
            // Listening fails only at port 0.
            let _ = socket.listen(port);
            return;
        }
        if socket.state() != State::Listen {
            let since = *self.since.get_or_insert(now);
            // Both ends have finished, or one end will never finish.
            if socket.state() == State::TimeWait || now.since(since) > LONGEST {
                return socket.abort();
            }
        }
        if self.sent.is_none() {
            self.read(socket, make);
        }
        let Some(sent) = &mut self.sent else { return };
        if socket.can_send() && *sent < self.answer.len() {
            *sent += socket.send_slice(&self.answer[*sent..]).unwrap_or(0);
        }
        if *sent == self.answer.len() {
            socket.close();
        }
    }

    /// Reads until the request is complete.
    fn read(&mut self, socket: &mut Socket<'_>, make: &mut Make<'_>) {
        let mut bytes = [0; QUESTION];
        let room = QUESTION - self.question.len();
        if socket.can_recv() {
            let came = socket.recv_slice(&mut bytes[..room]).unwrap_or(0);
            self.question.extend_from_slice(&bytes[..came]);
        }
        let is_whole = self.question.windows(4).any(|end| end == b"\r\n\r\n");
        if is_whole || self.question.len() == QUESTION {
            (self.answer, self.sent) = (answer(&self.question, is_whole, make), Some(0));
        } else if !socket.may_recv() && !self.question.is_empty() {
            socket.abort();
        } else if socket.state() == State::CloseWait {
            socket.close();
        }
    }
}

/// Answer to a request.
fn answer(question: &[u8], is_whole: bool, make: &mut Make<'_>) -> Vec<u8> {
    let mut words = question.split(|byte| byte.is_ascii_whitespace());
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let plain = "text/plain; charset=utf-8";
    let (status, (text, kind)) = match (is_whole, method, path) {
        (false, _, _) => ("431 Request Header Fields Too Large", (String::new(), plain)),
        (true, b"GET" | b"HEAD", b"/" | b"/metrics") => ("200 OK", make()),
        (true, b"GET" | b"HEAD", _) => {
            ("404 Not Found", ("here are / and /metrics\n".to_owned(), plain))
        }
        _ => ("405 Method Not Allowed", ("only GET is answered\n".to_owned(), plain)),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        text.len()
    )
    .into_bytes();
    if method != b"HEAD" {
        bytes.extend(text.into_bytes());
    }
    bytes
}

/// Time in smoltcp's format.
fn instant(now: Timestamp) -> Instant {
    Instant::from_micros((now.0 / 1000) as i64)
}

/// Queues of received packets and of packets to send.
struct Wire {
    mtu: usize,
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        if self.outgoing.len() >= QUEUE {
            return None;
        }
        let packet = self.incoming.pop_front()?;
        Some((Received(packet), Sending(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        (self.outgoing.len() < QUEUE).then_some(Sending(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

/// A received packet.
struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

/// Room for a packet to send.
struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}

#[cfg(test)]
mod tests;
