//! TFTP through the framework: one request makes one expectation, for the client's own endpoint.

mod common;

use common::host::datagram;
use common::{Book, client_inside, endpoints};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{
    ControlPacket, Endpoints, Expectation, Fate, Kind, Limits, NewFlow, Payloads, Reason, Room,
    Uses, Wanted,
};

struct Server {
    payloads: Payloads,
    book: Book,
    endpoints: Endpoints,
}

impl Server {
    fn new(endpoints: Endpoints) -> Self {
        let payloads = Payloads::new(Limits { flows: 2, buffers: 1 }, [2; 32]);
        Self { payloads, book: Book::default(), endpoints }
    }

    /// Sends a datagram, which has to pass without a change.
    fn send(&mut self, from: Side, data: &[u8]) {
        let Endpoints { external, remote, .. } = self.endpoints;
        let (source, destination) =
            if from == Inside { (external, remote) } else { (remote, external) };
        let packet = datagram(source, destination, data);
        let mut buffer = packet.clone();
        let mut room = Room::new(&mut buffer, packet.len());
        let control = ControlPacket {
            kind: Kind::Tftp,
            from,
            endpoints: self.endpoints,
            new_flow: NewFlow::Read,
        };
        let fate = self.payloads.process(5, control, &mut room, &mut self.book);
        assert_eq!((fate, room.bytes()), (Fate::Pass, &packet[..]));
    }
}

#[test]
fn a_request_expects_the_servers_new_port() {
    for request in
        [&b"\0\x01boot.img\0octet\0"[..], b"\0\x02a\0octet\0blksize\x001432\0tsize\x000\0"]
    {
        let mut server = Server::new(client_inside(69));
        server.send(Inside, request);
        let expected = Expectation {
            protocol: 17,
            remote: Some("198.51.100.2".parse().unwrap()),
            remote_port: 0,
            internal: "10.0.0.5:40000".parse().unwrap(),
            wanted: Wanted::EndpointOfFlow,
            lifetime: 30,
            uses: Uses::Once,
        };
        assert_eq!(server.book.made, [expected]);
    }
}

#[test]
fn other_datagrams_expect_nothing_and_end_it() {
    let mut server = Server::new(client_inside(69));
    server.send(Inside, b"GET /a HTTP/1.1\r\n");
    server.send(Inside, b"\0\x01boot.img\0octet\0");
    assert_eq!(server.book.made, []);
    let counters = server.payloads.counters(Kind::Tftp);
    assert_eq!(counters.refused[Reason::NotProtocol as usize], 1);
}

#[test]
fn a_request_from_outside_expects_nothing() {
    let inside = endpoints("10.0.0.80:69", "203.0.113.9:69", "198.51.100.2:40000");
    let mut server = Server::new(inside);
    server.send(Outside, b"\0\x01boot.img\0octet\0");
    server.send(Inside, b"\0\x03\0\x01data");
    assert_eq!(server.book.made, []);
}

#[test]
fn a_client_at_a_port_below_1024_gets_its_answer() {
    let mut server = Server::new(endpoints("10.0.0.5:69", "203.0.113.1:69", "198.51.100.2:69"));
    server.send(Inside, b"\0\x01a\0octet\0");
    assert_eq!(server.book.made.len(), 1);
}
