//! Explanations of packets: each state of a flow, and each kind of answer. The conversations
//! compare explanations with what comes of the packets.

mod common;

use common::host::datagram;
use common::{Book, Link, Opening, client_inside};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{
    ControlPacket, Explanation, FlowState, Kind, Limits, NewFlow, Payloads, Place, Reason,
};

const PORT: &str = "PORT 10,0,0,5,200,13\r\n";

fn greeted() -> Link {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside(21), Inside));
    link.say(Outside, "220 ready\r\n");
    link
}

/// The explanation of the bytes of the client's stream from `start` on.
fn told(link: &mut Link, start: usize, text: &str) -> Explanation {
    let host = &mut link.hosts[Inside as usize];
    let written = host.written.len();
    host.written.resize(start, b'x');
    host.written.extend(text.as_bytes());
    let packet = host.segment(start, start + text.len(), false);
    host.written.truncate(written);
    explain(&link.payloads, &packet).expect("a packet of FTP")
}

fn explain(payloads: &Payloads, packet: &[u8]) -> Option<Explanation> {
    let control = ControlPacket {
        kind: Kind::Ftp,
        from: Inside,
        endpoints: client_inside(21),
        new_flow: NewFlow::Read,
    };
    payloads.explain(100, (control, Inside), packet, &mut Book::default())
}

#[test]
fn edits_and_expectations_are_told() {
    let mut link = greeted();
    let explanation = told(&mut link, 0, PORT);
    assert_eq!((explanation.flow, explanation.place), (FlowState::Known, Some(Place::Next)));
    let [edit] = &explanation.edits[..] else { panic!("{explanation:?}") };
    assert_eq!(edit.old, b"10,0,0,5,200,13");
    assert!(edit.new.starts_with(b"203,0,113,1,"), "{explanation:?}");
    assert_eq!(explanation.opened[0].expectation.internal.port(), 51_213);
    assert_eq!((explanation.refused.len(), explanation.waiting), (0, 0));
    let explanation = told(&mut link, 0, "PORT 10,0,0,6,200,13\r\nPORT 10,0,0,5,0,80\r\nUS");
    assert_eq!(explanation.refused, [Reason::ForeignAddress, Reason::LowPort]);
    assert_eq!((explanation.edits.len(), explanation.waiting), (0, 2));
}

#[test]
fn bytes_that_wait_come_before_those_of_the_packet() {
    let mut link = greeted();
    link.say(Inside, "PORT 10,0,0");
    let explanation = told(&mut link, 11, ",5,200,13\r\n");
    assert_eq!(explanation.edits.len(), 1);
    assert_eq!(told(&mut link, 12, "x").place, Some(Place::Early));
    assert_eq!(told(&mut link, 3, "T").place, Some(Place::Repeated));
}

#[test]
fn a_flow_that_is_not_read_says_why() {
    let mut link = greeted();
    link.say(Inside, "GET / HTTP/1.1\r\n");
    let explanation = told(&mut link, 16, PORT);
    assert_eq!(explanation.flow, FlowState::Left(Reason::NotProtocol));
    assert!(explanation.edits.is_empty() && explanation.opened.is_empty());
    // Without its start, the flow is explained as if it had been read.
    let mut other = greeted();
    other.payloads = Payloads::new(Limits { flows: 1, buffers: 1 }, [1; 32]);
    let explanation = told(&mut other, 0, PORT);
    assert_eq!(explanation.flow, FlowState::Unknown);
    assert_eq!((explanation.edits.len(), &explanation.refused[..]), (1, &[Reason::NoStart][..]));
    let syn = other.hosts[Inside as usize].syn(2);
    let begins = explain(&other.payloads, &syn).expect("a packet of FTP");
    assert_eq!((begins.flow, begins.refused.len()), (FlowState::Begins, 0));
}

#[test]
fn what_cannot_be_read_says_why() {
    let payloads = Payloads::new(Limits { flows: 1, buffers: 1 }, [1; 32]);
    let ends = client_inside(21);
    let mut packet = datagram(ends.external, ends.remote, b"USER");
    packet[30] ^= 1;
    let refused = |packet: &[u8]| explain(&payloads, packet).map(|told| told.refused);
    assert_eq!(refused(&packet), Some(vec![Reason::BadChecksum]));
    packet[6] = 0x20;
    assert_eq!(refused(&packet), Some(vec![Reason::Fragment]));
    packet[6] = 0;
    packet[9] = 47;
    assert_eq!(refused(&packet), None);
    assert_eq!(refused(&packet[..10]), None);
}
