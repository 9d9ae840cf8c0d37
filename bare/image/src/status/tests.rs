//! Tests of the server with clients on the same TCP implementation. Queues connect them.

use super::*;
use proptest::prelude::*;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 9464;
const MILLISECOND: u64 = 1_000_000;

/// A client.
struct Client {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    wire: Wire,
    said: Vec<u8>,
}

impl Client {
    fn new(number: u8) -> Self {
        let address = Ipv4Addr::new(10, 0, 0, 10 + number);
        let mut wire = Wire { mtu: 1500, incoming: VecDeque::new(), outgoing: VecDeque::new() };
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv4(address), 24)).expect("there is room");
        });
        let buffer = || SocketBuffer::new(vec![0; 4096]);
        let mut socket = Socket::new(buffer(), buffer());
        let remote = (IpAddress::Ipv4(SERVER), PORT);
        socket.connect(interface.context(), remote, 40_000 + u16::from(number)).expect("it can");
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self { interface, sockets, socket, wire, said: Vec::new() }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

/// A server with a clock of its own.
struct TimedServer {
    inner: Server,
    now: Timestamp,
    /// Number of created pages.
    made: u32,
    text: String,
}

impl TimedServer {
    fn new(text: &str) -> Self {
        let now = Timestamp(1_700_000_000_000 * MILLISECOND);
        let inner = Server::new(SERVER, PORT, 1500, 7, now);
        let mut server = Self { inner, now, made: 0, text: text.to_owned() };
        // The server listens from the first turn on.
        server.turn(&mut []);
        server
    }

    /// Lets a millisecond pass.
    fn turn(&mut self, clients: &mut [Client]) {
        self.now = Timestamp(self.now.0 + MILLISECOND);
        for client in &mut *clients {
            client.interface.poll(instant(self.now), &mut client.wire, &mut client.sockets);
            let mut bytes = [0; 4096];
            let came = client.socket().recv_slice(&mut bytes).unwrap_or(0);
            client.said.extend_from_slice(&bytes[..came]);
            client.wire.outgoing.drain(..).for_each(|packet| self.inner.receive(packet));
        }
        let (made, text) = (&mut self.made, &self.text);
        self.inner.turn(self.now, &mut || {
            *made += 1;
            (text.clone(), "text/plain")
        });
        while let Some(packet) = self.inner.poll_transmit() {
            for client in &mut *clients {
                client.wire.incoming.push_back(packet.clone());
            }
        }
    }

    /// Answer to a client that sends this request.
    fn ask(&mut self, question: &str) -> String {
        let mut clients = [Client::new(0)];
        let mut left = question.as_bytes();
        for _ in 0..1000 {
            if clients[0].socket().can_send() {
                let sent = clients[0].socket().send_slice(left).expect("it is open");
                left = &left[sent..];
            }
            if clients[0].socket().state() == State::CloseWait {
                clients[0].socket().close();
            }
            self.turn(&mut clients);
        }
        String::from_utf8(std::mem::take(&mut clients[0].said)).expect("it is text")
    }
}

#[test]
fn a_question_is_answered_and_the_next_one_too() {
    let long = "natgate_packets_total 1\n".repeat(4000);
    let mut server = TimedServer::new(&long);
    for turn in 1..=20 {
        let said = server.ask("GET /metrics HTTP/1.1\r\nHost: 10.0.0.1:9464\r\n\r\n");
        let (head, body) = said.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", long.len())), "{head}");
        assert_eq!((body.len(), body == long, server.made), (long.len(), true, turn));
    }
}

#[test]
fn only_the_page_can_be_had() {
    let mut server = TimedServer::new("page\n");
    for (question, begin) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 "),
        ("GET /secret HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        ("\r\n\r\n\r\n", "HTTP/1.1 405 "),
    ] {
        let said = server.ask(question);
        assert!(said.starts_with(begin), "{question:?}: {said}");
    }
    let head = server.ask("HEAD / HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(QUESTION));
    assert!(server.ask(&long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn who_says_nothing_makes_room_after_a_while() {
    let mut server = TimedServer::new("page\n");
    let mut silent: Vec<Client> = (1..=CONNECTIONS as u8).map(Client::new).collect();
    for _ in 0..100 {
        server.turn(&mut silent);
    }
    assert!(silent.iter_mut().all(|client| client.socket().may_send()), "all are connected");
    drop(silent);
    assert_eq!(server.ask("GET / HTTP/1.1\r\n\r\n"), "", "all places are taken");
    server.now = server.now.plus(std::time::Duration::from_secs(60));
    for _ in 0..100 {
        server.turn(&mut []);
    }
    assert!(server.ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

proptest! {
    #[test]
    fn no_packet_does_harm(packets in proptest::collection::vec(packet(), 0..40)) {
        let mut server = TimedServer::new("page\n");
        for packet in packets {
            server.inner.receive(packet);
            server.turn(&mut []);
        }
        prop_assert!(server.inner.wire.outgoing.len() <= QUEUE);
    }
}

/// Any packet that may reach the server, and others.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    (proptest::collection::vec(any::<u8>(), 0..100), any::<bool>(), any::<bool>()).prop_map(
        |(mut bytes, is_packet, is_for_us)| {
            if is_packet && bytes.len() >= 20 {
                bytes[..2].copy_from_slice(&[0x45, 0]);
                let len = bytes.len() as u16;
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
                bytes[6..10].copy_from_slice(&[0x40, 0, 64, 6]);
                bytes[16..20].copy_from_slice(&SERVER.octets());
                if is_for_us && bytes.len() >= 24 {
                    bytes[22..24].copy_from_slice(&PORT.to_be_bytes());
                }
                natgate_wire::Ipv4::new_checked(&mut bytes[..])
                    .into_iter()
                    .for_each(|mut ip| ip.fill_checksum());
            }
            bytes
        },
    )
}
