//! SIP through the framework: bodies of several parts, `maddr`, and many changes on one connection.

mod common;

use common::telephone::{client, description, message};
use common::{Link, Opening, client_inside};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{Kind, Limits, Payloads, Reason};

/// A message with a body of several parts.
fn with_parts(line: &str, parts: &[&str]) -> String {
    let parts = parts.iter().fold(String::new(), |all, part| all + "--x1\r\n" + part + "\r\n");
    let body = format!("{parts}--x1--\r\n");
    let kind = "Content-Type: multipart/mixed;boundary=\"x1\"\r\n";
    format!("{line}\r\ni: 1\r\n{kind}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn part(description: &str) -> String {
    format!("Content-Type: application/sdp\r\n\r\n{description}")
}

#[test]
fn the_only_description_of_several_parts_is_read() {
    let mut telephone = client();
    let isup = "Content-Type: application/isup;version=itu\r\n\r\nc=IN IP4 10.0.0.5";
    let offer = |address: &str, port: u16| {
        let media = format!("m=audio {port} RTP/AVP 0");
        let own = part(&description(address, &media));
        with_parts("INVITE sip:b@c SIP/2.0", &[isup, &own])
    };
    let heard = telephone.send(Inside, &offer("10.0.0.5", 4000));
    assert_eq!(heard, offer("203.0.113.1", 60002));
    assert_eq!(telephone.book.made.len(), 1);
    // The answer limits the media to its address.
    let answer = part(&description("198.51.100.9", "m=audio 5000 RTP/AVP 0"));
    let answer = with_parts("SIP/2.0 200 OK", &[&answer]);
    assert_eq!(telephone.send(Outside, &answer), answer);
    let remote = telephone.book.made[1].remote.map(|remote| remote.to_string());
    assert_eq!(remote.as_deref(), Some("198.51.100.9"));
}

/// A receiver chooses one of several descriptions; a part of another type is no description. Such
/// bodies open nothing, and pass as they are.
#[test]
fn several_descriptions_open_nothing() {
    let own = part(&description("10.0.0.5", "m=audio 4000 RTP/AVP 0\r\n"));
    let coded = format!("Content-Transfer-Encoding: base64\r\n{own}");
    let nested = format!("Content-Type: multipart/mixed;boundary=y\r\n\r\n--y\r\n{own}\r\n--y--");
    let hidden = own.replace("application/sdp", "text/plain");
    let parts = [[&own[..], &own[..]], [&coded[..], ""], [&nested[..], ""], [&hidden[..], ""]];
    for parts in &parts {
        let mut telephone = client();
        let text = with_parts("INVITE sip:b@c SIP/2.0", parts);
        assert_eq!(telephone.send(Inside, &text), text);
        assert_eq!(telephone.book.made, []);
    }
}

/// Messages go to `maddr` and to the port of the URI or of Via: both change, or none.
#[test]
fn an_own_maddr_changes_with_its_endpoint() {
    let mut telephone = client();
    let text = |end: &str, address: &str, other: &str| {
        let headers = format!(
            "Via: SIP/2.0/UDP {end};maddr={address};branch=z9hG4bK1\r\n\
             Contact: <sip:u@{end};maddr={address}>;expires=60, <sip:u@{other};maddr=192.0.2.1>\r\n\
             Record-Route: <sip:a.example;maddr=10.0.0.5;lr>, <sip:192.0.2.1;maddr=10.0.0.5>\r\n"
        );
        message("REGISTER sip:a SIP/2.0", &headers, "")
    };
    let inside = text("10.0.0.5:40000", "10.0.0.5", "10.0.0.5:40000");
    let outside = text("203.0.113.1:50000", "203.0.113.1", "203.0.113.1:50000");
    assert_eq!(telephone.send(Inside, &inside), outside);
    // `maddr` itself opens nothing: the only expectation is that of the contact's endpoint.
    assert!(telephone.book.made.iter().all(|made| made.internal.port() == 40_000));
    let line = |end: &str, address: &str| {
        message(&format!("OPTIONS sip:u@{end};maddr={address} SIP/2.0"), "i: 1\r\n", "")
    };
    let said = telephone.send(Outside, &line("203.0.113.1:50000", "203.0.113.1"));
    assert_eq!(said, line("10.0.0.5:40000", "10.0.0.5"));
    let other = line("203.0.113.1:50001", "203.0.113.1");
    assert_eq!(telephone.send(Outside, &other), other, "an endpoint of another host");
}

/// An invitation with forty changes: a route of a host that has met it often.
fn invitation(own: &str, number: usize) -> String {
    let route = [own; 40].join(",");
    format!("INVITE sip:b@c SIP/2.0\r\ni: {number}\r\nRoute: {route}\r\nl: 0\r\n\r\n")
}

const INSIDE: &str = "10.0.0.5:40000";
const OUTSIDE: &str = "203.0.113.1:50000";

fn refused(link: &Link, reason: Reason) -> u64 {
    link.payloads.counters(Kind::Sip).refused[reason as usize]
}

/// Two messages with more than 64 changes together, in one segment.
#[test]
fn many_changes_in_one_segment_end_nothing() {
    let mut link = Link::open(Opening::new(Kind::Sip, client_inside(5060), Inside));
    let text = |own: &str| invitation(own, 0) + &invitation(own, 1);
    let said = text(INSIDE);
    let start = link.write(Inside, said.as_bytes());
    link.send(Inside, start, start + said.len());
    assert_eq!(link.heard(Outside), text(OUTSIDE));
    assert_eq!(refused(&link, Reason::NoBuffer) + refused(&link, Reason::Dropped), 0);
    assert_eq!(link.payloads.free_buffers(), 4);
}

/// A receiver that acknowledges nothing: what has no room waits at the sender, and nothing is lost.
#[test]
fn changes_without_an_acknowledgment_slow_a_connection_down() {
    let mut link = Link::open(Opening::new(Kind::Sip, client_inside(5060), Inside));
    let count = 100;
    let mut left = String::new();
    for number in 0..count {
        let text = invitation(INSIDE, number);
        let start = link.write(Inside, text.as_bytes());
        let packet = link.hosts[0].segment(start, start + text.len(), false);
        for (to, packet) in link.process(Inside, &packet) {
            if to == Outside {
                let data = 20 + usize::from(packet[32] >> 4) * 4;
                left += &String::from_utf8_lossy(&packet[data..]);
            }
        }
        let passed = left.matches("INVITE").count();
        assert!(passed == number + 1 || passed == 25, "{passed} of {number} have left");
    }
    assert!(refused(&link, Reason::Dropped) > 0);
    // The receiver has got nothing, and the sender repeats all of it.
    link.repeat_until_acknowledged(Inside);
    let expected: String = (0..count).map(|number| invitation(OUTSIDE, number)).collect();
    assert_eq!(link.heard(Outside), expected);
    assert!(expected.starts_with(&left) && left.len() < expected.len());
    assert_eq!((refused(&link, Reason::NoBuffer), link.payloads.free_buffers()), (0, 4));
}

/// Connections that hold all further room do not end the reading of others: these have room for one
/// message at a time.
#[test]
fn connections_without_further_room_go_on() {
    let mut payloads = Payloads::new(Limits { flows: 256, buffers: 512 }, [3; 32]);
    let ends = |number: u16| [format!("10.0.0.5:{number}"), format!("203.0.113.1:{number}")];
    let opening = |number: u16| {
        let mut opening = Opening::new(Kind::Sip, client_inside(5060), Inside);
        opening.endpoints.internal.set_port(number);
        opening.endpoints.external.set_port(number);
        opening
    };
    for number in 20_000..20_140 {
        let mut link = Link::prepare(opening(number), payloads);
        link.shake_hands();
        let [inside, _] = ends(number);
        let text = invitation(&inside, 0) + &invitation(&inside, 1);
        let start = link.write(Inside, text.as_bytes());
        let packet = link.hosts[0].segment(start, start + text.len(), false);
        // Nobody acknowledges what leaves.
        link.pass(Inside, &packet);
        let none = Payloads::new(Limits { flows: 1, buffers: 1 }, [0; 32]);
        payloads = std::mem::replace(&mut link.payloads, none);
    }
    let mut link = Link::prepare(opening(30_000), payloads);
    link.shake_hands();
    let [inside, outside] = ends(30_000);
    let text = invitation(&inside, 0) + &invitation(&inside, 1);
    let start = link.write(Inside, text.as_bytes());
    link.send(Inside, start, start + text.len());
    assert_eq!(link.heard(Outside), invitation(&outside, 0));
    link.repeat_until_acknowledged(Inside);
    assert_eq!(link.heard(Outside), invitation(&outside, 0) + &invitation(&outside, 1));
    assert_eq!(refused(&link, Reason::NoBuffer), 0);
}
