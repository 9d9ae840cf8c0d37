//! The status page: what metrics say, by HTTP, for browsers and Prometheus inside.
//!
//! Packets come in and go out whole; TCP is smoltcp's. So many connections at once and no more,
//! each for one question, and whoever is slow is not waited for. What the page says is made when it
//! has been asked for.

use natgate_engine::Timestamp;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Connections at once; who comes then is asked to come again.
const CONNECTIONS: usize = 8;

/// Bytes of a question, and of an answer that are on their way.
const QUESTION: usize = 2048;
const WINDOW: usize = 16 << 10;

/// How long somebody may be silent, and how long a connection may last.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: std::time::Duration = std::time::Duration::from_secs(30);

/// Packets that wait to be sent.
const QUEUE: usize = 64;

/// The server.
pub struct Server {
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<Connection>,
    wire: Wire,
    port: u16,
}

/// One place for a client.
struct Connection {
    socket: SocketHandle,
    question: Vec<u8>,
    answer: Vec<u8>,
    /// How much of the answer has been sent; `None`: the question is not whole yet.
    sent: Option<usize>,
    /// When the client came.
    since: Option<Timestamp>,
}

/// Makes what the page says, and its type.
pub type Make<'a> = dyn FnMut() -> (String, &'static str) + 'a;

impl Server {
    /// A server at an address of a link with this MTU; the seed is for sequence numbers.
    pub fn new(address: Ipv4Addr, port: u16, mtu: usize, seed: u64, now: Timestamp) -> Self {
        let mut wire = Wire { mtu, incoming: VecDeque::new(), outgoing: VecDeque::new() };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, instant(now));
        // Who is where is the gateway's router's matter: for this end everybody is a neighbour.
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

    /// Takes a packet that has come in; who sends too many sends again what is lost.
    pub fn receive(&mut self, packet: Vec<u8>) {
        if self.wire.incoming.len() < QUEUE {
            self.wire.incoming.push_back(packet);
        }
    }

    /// Does what there is to do.
    pub fn turn(&mut self, now: Timestamp, make: &mut Make<'_>) {
        let Self { interface, sockets, connections, wire, port } = self;
        interface.poll(instant(now), wire, sockets);
        for connection in connections {
            let socket = sockets.get_mut::<Socket<'_>>(connection.socket);
            connection.turn(now, socket, *port, make);
        }
        interface.poll(instant(now), wire, sockets);
    }

    /// The next packet to be sent.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.wire.outgoing.pop_front()
    }
}

impl Connection {
    fn turn(&mut self, now: Timestamp, socket: &mut Socket<'_>, port: u16, make: &mut Make<'_>) {
        if !socket.is_open() {
            self.question.clear();
            (self.answer, self.sent, self.since) = (Vec::new(), None, None);
            // Only port 0 cannot be listened at.
            let _ = socket.listen(port);
            return;
        }
        if socket.state() != State::Listen {
            let since = *self.since.get_or_insert(now);
            // Both have said that they are done, or one never will.
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

    /// Reads on, until the question is whole.
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

/// The answer to a question.
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

/// Time as smoltcp has it.
fn instant(now: Timestamp) -> Instant {
    Instant::from_micros((now.0 / 1000) as i64)
}

/// Where packets wait on their way in and out.
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

/// A packet that has come in.
struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

/// Room for one to be sent.
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
