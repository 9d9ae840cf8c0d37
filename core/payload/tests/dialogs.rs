//! Dialogs of SIP through the framework, by UDP: all requests with descriptions, holds, early
//! media, compact headers, and lengths.

mod common;

use common::telephone::{Telephone, client, description, message};
use natgate_payload::Reason;
use natgate_payload::Side::{Inside, Outside};
use std::net::Ipv4Addr;

const OWN: &str = "10.0.0.5";
const EXTERNAL: &str = "203.0.113.1";

/// Sends a message of a call with a description from inside, and expects it with an endpoint for
/// the host and a port for its medium.
fn offer(telephone: &mut Telephone, line: &str, ports: (u16, u16), lines: &str) {
    let text = |address: &str, port: u16| {
        let media = format!("m=audio {port} RTP/AVP 0\r\n{lines}");
        message(line, "Call-ID: 1\r\n", &description(address, &media))
    };
    assert_eq!(telephone.send(Inside, &text(OWN, ports.0)), text(EXTERNAL, ports.1), "{line}");
}

fn last_remote(telephone: &Telephone) -> Option<Ipv4Addr> {
    telephone.book.made.last().expect("an expectation").remote
}

/// A message of the other side with the address of its media.
fn hear(telephone: &mut Telephone, line: &str, address: &str) {
    let body = description(address, "m=audio 5000 RTP/AVP 0\r\n");
    let text = message(line, "Call-ID: 1\r\n", &body);
    assert_eq!(telephone.send(Outside, &text), text, "{line}");
}

/// RFC 3262 (PRACK), RFC 3311 (UPDATE), RFC 3261 section 14 (a further INVITE): an offer may be in
/// each of them, and its answer in the response.
#[test]
fn offers_of_all_requests_become_external() {
    let mut telephone = client();
    offer(&mut telephone, "INVITE sip:b@c SIP/2.0", (4000, 60002), "");
    assert_eq!(last_remote(&telephone), None);
    // Early media limit the expectation.
    hear(&mut telephone, "SIP/2.0 183 Session Progress", "198.51.100.61");
    assert_eq!(last_remote(&telephone), Some(Ipv4Addr::new(198, 51, 100, 61)));
    for (number, method) in ["PRACK", "UPDATE", "INVITE", "ACK"].into_iter().enumerate() {
        let line = format!("{method} sip:b@c SIP/2.0");
        let own = 4002 + 2 * number as u16;
        offer(&mut telephone, &line, (own, own + 56_002), "");
        let last = 61 + number as u8;
        assert_eq!(last_remote(&telephone), Some(Ipv4Addr::new(198, 51, 100, last)));
        hear(&mut telephone, "SIP/2.0 200 OK", &format!("198.51.100.{}", last + 1));
    }
    // Offers of the other side, and answers of the host.
    for (number, method) in ["PRACK", "UPDATE", "INVITE"].into_iter().enumerate() {
        let address = format!("198.51.100.{}", 80 + number);
        hear(&mut telephone, &format!("{method} sip:u@{OWN} SIP/2.0"), &address);
        offer(&mut telephone, "SIP/2.0 200 OK", (4000, 60002), "");
        assert_eq!(last_remote(&telephone), Some(address.parse().unwrap()));
    }
}

/// RFC 3264 section 8.4: held media keep their ports. RFC 2543 held them by an address of zeros,
/// and a medium with port 0 is not used.
#[test]
fn held_media_keep_their_ports() {
    let mut telephone = client();
    for lines in ["", "a=inactive\r\n", "a=sendonly\r\n", "a=sendrecv\r\n"] {
        offer(&mut telephone, "INVITE sip:b@c SIP/2.0", (4000, 60002), lines);
    }
    let count = telephone.book.made.len();
    let held = |origin: &str| {
        let body = description("0.0.0.0", "m=audio 4000 RTP/AVP 0\r\n");
        let body = body.replacen("0.0.0.0", origin, 1);
        message("INVITE sip:b@c SIP/2.0", "Call-ID: 1\r\n", &body)
    };
    assert_eq!(telephone.send(Inside, &held(OWN)), held(EXTERNAL));
    let none = |address: &str| {
        let body = description(address, "m=audio 0 RTP/AVP 0\r\nm=video 0 RTP/AVP 31\r\n");
        message("INVITE sip:b@c SIP/2.0", "Call-ID: 1\r\n", &body)
    };
    assert_eq!(telephone.send(Inside, &none(OWN)), none(EXTERNAL));
    assert_eq!(telephone.book.made.len(), count, "nothing is expected");
    offer(&mut telephone, "INVITE sip:b@c SIP/2.0", (4000, 60002), "");
}

/// RFC 3261 section 7.3: names in any case and in compact form, blanks, lists, folded lines.
#[test]
fn headers_may_have_any_form() {
    let mut telephone = client();
    let text = |end: &str, address: &str, port: u16| {
        let body = description(address, &format!("m=audio {port} RTP/AVP 0\r\n"));
        format!(
            "INVITE sip:b@c SIP/2.0\r\n\
             v: SIP/2.0/UDP {end};branch=z9hG4bK1, SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK2\r\n\
             f : \"{end}\" <sip:u@{end}>;tag=1\r\nT: <sip:b@c>\r\nI:1\r\nCSeq: 1\r\n INVITE\r\n\
             ROUTE: <sip:{end};lr>,\r\n\t<sip:192.0.2.9;lr>\r\n\
             M:\t<sip:u@{end};transport=udp>;+sip.instance=\"<urn:uuid:1>\"\r\n\
             Referred-By: <sip:u@{end}>\r\n\
             C: Application/SDP;charset=\"utf-8\"\r\nL:   {}\r\n\r\n{body}",
            body.len()
        )
    };
    let heard = telephone.send(Inside, &text("10.0.0.5:40000", OWN, 4000));
    // A name in quotes is no endpoint.
    let expected = text("203.0.113.1:50000", EXTERNAL, 60002);
    assert_eq!(heard, expected.replace("\"203.0.113.1:50000\"", "\"10.0.0.5:40000\""));
}

/// RFC 3261 section 20.14: a length is any number of digits, and its own length may change.
#[test]
fn lengths_may_have_any_number_of_digits() {
    for digits in [1, 2, 3, 4, 9] {
        for filler in [0, 1, 2, 3, 900] {
            let mut telephone = client();
            let text = |address: &str, port: u16, length: Option<usize>| {
                let media = format!("m=audio {port} RTP/AVP 0\r\na={}\r\n", "x".repeat(filler));
                let body = format!("v=0\r\nc=IN IP4 {address}\r\n{media}");
                let length = length
                    .map_or(format!("{:0digits$}", body.len()), |_| format!("{}", body.len()));
                format!(
                    "INVITE sip:b@c SIP/2.0\r\nCall-ID: 1\r\nc: application/sdp\r\n\
                     Content-Length: {length}\r\n\r\n{body}"
                )
            };
            let heard = telephone.send(Inside, &text(OWN, 4000, None));
            assert_eq!(heard, text(EXTERNAL, 60002, Some(0)), "{digits} digits");
            assert_eq!(telephone.refused(Reason::NotProtocol), 0);
        }
    }
}

/// Zeros before a number of seconds do not change it.
#[test]
fn lifetimes_may_begin_with_zeros() {
    for (contact, seconds) in [(";expires=0060", 60), (";expires=000", 0), ("", 600)] {
        let mut telephone = client();
        let register = |end: &str| {
            let headers = format!("m: <sip:u@10.0.0.5:40000>{end}\r\nExpires: 00600\r\n");
            message("REGISTER a SIP/2.0", &headers, "")
        };
        telephone.send(Inside, &register(";expires=300"));
        let before = telephone.book.made.len();
        telephone.send(Inside, &register(contact));
        let made: Vec<_> = telephone.book.made[before..].iter().map(|one| one.lifetime).collect();
        assert_eq!(made, if seconds > 0 { vec![seconds] } else { vec![] }, "{contact}");
    }
}
