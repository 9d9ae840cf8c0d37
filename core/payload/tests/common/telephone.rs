//! A host inside that speaks SIP by UDP, with the framework between it and the other side.

use super::host::{datagram, transport_is_valid};
use super::{Book, client_inside};
use natgate_payload::Side::{self, Inside};
use natgate_payload::{ControlPacket, Endpoints, Kind, Limits, NewFlow, Payloads, Reason, Room};

/// The host, its flow, and the ports that it was given.
pub(crate) struct Telephone {
    pub(crate) payloads: Payloads,
    pub(crate) book: Book,
    pub(crate) endpoints: Endpoints,
}

impl Telephone {
    pub(crate) fn new(endpoints: Endpoints) -> Self {
        let payloads = Payloads::new(Limits { flows: 2, buffers: 1 }, [2; 32]);
        Self { payloads, book: Book::default(), endpoints }
    }

    /// The data of a datagram behind the framework.
    pub(crate) fn send(&mut self, from: Side, text: &str) -> String {
        self.send_at(5, from, text)
    }

    /// The same at a time in seconds.
    pub(crate) fn send_at(&mut self, now: u32, from: Side, text: &str) -> String {
        let Endpoints { external, remote, .. } = self.endpoints;
        let (source, destination) =
            if from == Inside { (external, remote) } else { (remote, external) };
        let packet = datagram(source, destination, text.as_bytes());
        let mut buffer = [0; 4096];
        buffer[..packet.len()].copy_from_slice(&packet);
        let mut room = Room::new(&mut buffer, packet.len());
        let control = ControlPacket {
            kind: Kind::Sip,
            from,
            endpoints: self.endpoints,
            new_flow: NewFlow::Read,
        };
        self.book.now = now;
        self.payloads.process(now, control, &mut room, &mut self.book);
        assert!(transport_is_valid(room.bytes()));
        let length = u16::from_be_bytes([room.bytes()[24], room.bytes()[25]]);
        assert_eq!(usize::from(length), room.bytes().len() - 20);
        String::from_utf8_lossy(&room.bytes()[28..]).into_owned()
    }

    pub(crate) fn refused(&self, reason: Reason) -> u64 {
        self.payloads.counters(Kind::Sip).refused[reason as usize]
    }
}

pub(crate) fn client() -> Telephone {
    Telephone::new(client_inside(5060))
}

/// A message of a start line, headers, and a description.
pub(crate) fn message(line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    format!("{line}\r\n{headers}{kind}Content-Length: {length}\r\n\r\n{body}")
}

pub(crate) fn description(address: &str, media: &str) -> String {
    typed_description(&format!("IP4 {address}"), media)
}

/// A conversation by TCP of a client with IPv6: registration, a call in each direction, a hold.
pub(crate) fn between_families() -> Vec<(Side, Vec<u8>)> {
    let register = |own: &str, other: &str, line: &str, seen: &str| {
        let headers = format!(
            "Via: SIP/2.0/TCP {own};branch=z9hG4bK1{seen}\r\nTo: <sip:u@{other}>\r\n\
             Call-ID: 1@[2001:db8:2::31]\r\nCSeq: 1 REGISTER\r\n\
             m: <sip:u@{own};transport=tcp>;expires=600\r\n"
        );
        message(line, &headers, "")
    };
    let asked = register(HOST6, SERVER6, &format!("REGISTER sip:{SERVER6} SIP/2.0"), ";rport");
    let seen = ";received=203.0.113.1;rport=50000";
    let granted = register("203.0.113.1:50000", "198.51.100.2", "SIP/2.0 200 OK", seen);
    let offer = |line: &str, address: &str, port: u16| {
        let media = format!("m=audio {port} RTP/AVP 0\r\na=rtcp:{}\r\n", port + 1);
        message(line, "i: 2\r\n", &typed_description(address, &media))
    };
    let called = offer("INVITE sip:u@203.0.113.1:50000 SIP/2.0", "IP4 198.51.100.9", 6000);
    let answered = offer("SIP/2.0 200 OK", "IP6 2001:db8:2::31", 4000);
    let lines = "m=audio 4002 RTP/AVP 0\r\nm=x 500 RTP/AVP 0\r\nm=y 4004 RTP/AVP 0\r\n";
    let calls = typed_description("IP6 2001:db8:2::31", lines);
    let calls = message(&format!("INVITE sip:b@{SERVER6} SIP/2.0"), "i: 3\r\n", &calls);
    let held = offer("INVITE sip:u@203.0.113.1:50000 SIP/2.0", "IP4 0.0.0.0", 6000);
    let messages = [
        (Side::Inside, format!("\r\n{asked}")),
        (Side::Outside, granted + &called),
        (Side::Inside, answered),
        (Side::Inside, calls),
        (Side::Outside, held),
    ];
    messages.into_iter().map(|(from, text)| (from, text.into_bytes())).collect()
}

/// The client with IPv6, and its server as the client knows it.
const HOST6: &str = "[2001:db8:2::31]:40000";
const SERVER6: &str = "[64:ff9b::c633:6402]";

/// A description whose address has its type.
pub(crate) fn typed_description(address: &str, media: &str) -> String {
    format!("v=0\r\no=- 1 1 IN {address}\r\ns=-\r\nc=IN {address}\r\nt=0 0\r\n{media}")
}
