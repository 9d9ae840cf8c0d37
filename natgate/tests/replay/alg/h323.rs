//! H.323 in a capture: a registration, fast connect, and a connection of H.245.

// The messages of the framework's own tests.
#[path = "../../../../core/payload/tests/common/h323.rs"]
#[allow(dead_code, reason = "the tests use a part")]
mod messages;

use super::*;
use messages::{CONNECT_H245, DETERMINATION, OPEN_ACK, REGISTRATION, SETUP_FAST, bytes, octets};

const H323: &str = "[alg]\nh323 = true\n";

/// The endpoint that stands where `old` stood in the message.
fn instead(message: &[u8], heard: &[u8], old: &str) -> End {
    let old = octets(old);
    let at = message.windows(6).position(|six| six == old).expect("an endpoint");
    let six: [u8; 6] = heard[at..at + 6].try_into().unwrap();
    let [a, b, c, d, high, low] = six;
    (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

#[test]
fn media_of_fast_connect_come_in() {
    let talk = Talk::new("alg-h323-fast", H323);
    let mut call = Connection::open(talk, INSIDE, CLIENT, server(1720));
    let setup = bytes(SETUP_FAST);
    let heard = call.say_bytes(INSIDE, &setup);
    let [media, control] =
        ["10.0.0.5:5000", "10.0.0.5:5001"].map(|old| instead(&setup, &heard, old));
    assert_eq!((media.0, media.1 % 2, control), (EXTERNAL, 0, (EXTERNAL, media.1 + 1)));
    assert_eq!(call.talk.reaches((STRANGER, 7000), media), Some((CLIENT.0, 5000)));
    assert_eq!(call.talk.reaches(server(7001), control), Some((CLIENT.0, 5001)));
    let stats = call.talk.stats();
    assert_eq!(stats["alg_refused"]["h323"]["unread"], 0);
    assert!(call.talk.expectations().iter().all(|event| event["kind"] == "h323"));
}

#[test]
fn a_connection_of_h245_is_read() {
    let talk = Talk::new("alg-h323-control", H323);
    let mut call = Connection::open(talk, INSIDE, CLIENT, server(1720));
    let connect = bytes(CONNECT_H245);
    let remote = messages::octets("198.51.100.2:30000");
    let (ip, port) = server(30_000);
    let named = [&ip.octets()[..], &port.to_be_bytes()].concat();
    let at = connect.windows(6).position(|six| six == remote).unwrap();
    let connect = [&connect[..at], &named, &connect[at + 6..]].concat();
    assert_eq!(call.say_bytes(OUTSIDE, &connect), connect);
    let mut control = Connection::open(call.talk, INSIDE, (CLIENT.0, 40_001), server(30_000));
    control.say_bytes(INSIDE, &bytes(DETERMINATION));
    let ack = bytes(OPEN_ACK);
    let heard = control.say_bytes(INSIDE, &ack);
    let media = instead(&ack, &heard, "10.0.0.5:5000");
    assert_eq!(media.0, EXTERNAL);
    assert_eq!(control.talk.reaches(server(6000), media), Some((CLIENT.0, 5000)));
}

#[test]
fn a_registered_host_is_called_by_its_gatekeeper() {
    let mut talk = Talk::new("alg-h323-ras", H323);
    let message = bytes(REGISTRATION);
    let left = talk.send(INSIDE, udp((CLIENT.0, 1719), server(1719), &message));
    let heard = &left[0].frame[28..];
    let calls = instead(&message, heard, "10.0.0.5:1720");
    assert_eq!(instead(&message, heard, "10.0.0.5:1719"), endpoints(&left[0].frame).0);
    assert_eq!(talk.opens((STRANGER, 40_000), calls), None);
    assert_eq!(talk.opens(server(40_000), calls), Some((CLIENT.0, 1720)));
}
