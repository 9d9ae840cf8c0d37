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
    format!("v=0\r\no=- 1 1 IN IP4 {address}\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\n{media}")
}
