//! Attacks on H.323, PPTP and DNS, whose messages are binary: forms, numbers that overflow, and
//! what the other side makes a client open.

mod common;

use common::h323::{CONNECT_H245, OPEN, SETUP_H245, bytes, with};
use common::{Link, Opening, Random, client_inside, pptp, server_inside};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{Kind, Reason};

fn opening(kind: Kind, port: u16) -> Opening {
    Opening::new(kind, client_inside(port), Inside)
}

/// Bytes that the host says in two segments.
fn say(link: &mut Link, from: Side, text: &[u8], cut: usize) {
    let start = link.write(from, text);
    link.send(from, start, start + cut);
    link.send(from, start + cut, start + text.len());
    link.repeat_until_acknowledged(from);
}

/// A form that a page makes a browser send to a server of H.323 or PPTP, with a message that would
/// open a port at any place: 0 ports.
#[test]
fn a_form_opens_no_port_of_a_binary_protocol() {
    let head = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5000\r\n\r\n";
    for (kind, port, message) in [
        (Kind::H323, 1720, bytes(SETUP_H245)),
        (Kind::H323, 30_000, bytes(OPEN)),
        (Kind::Pptp, 1723, pptp::outgoing_request(pptp::INSIDE_CALL)),
    ] {
        let mut alone = Link::open(opening(kind, port));
        say(&mut alone, Inside, &message, 1);
        assert_eq!(alone.book.made.len(), 1, "{kind:?}: the message alone");
        let text = [&head[..], &message, &message].concat();
        for cut in 1..text.len() {
            let mut link = Link::open(opening(kind, port));
            say(&mut link, Inside, &text, cut);
            // Nor do later messages.
            say(&mut link, Inside, &message, 1);
            assert_eq!(link.book.made, [], "{kind:?}, cut at {cut}");
            let refused = link.payloads.counters(kind).refused[Reason::NotProtocol as usize];
            assert_eq!(refused, 1, "{kind:?}, cut at {cut}");
            assert_eq!(link.hosts[1].received, [&text[..], &message].concat());
        }
    }
}

/// Messages in which bytes are 0, 1, or the largest numbers with and without a sign: they open at
/// most a port for each of the two endpoints that a message has, and only of the host itself.
#[test]
fn lengths_that_overflow_open_nothing_more() {
    for (kind, port, message) in [
        (Kind::H323, 1720, bytes(SETUP_H245)),
        (Kind::H323, 30_000, bytes(OPEN)),
        (Kind::Pptp, 1723, pptp::outgoing_request(pptp::INSIDE_CALL)),
    ] {
        for at in 0..message.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                for len in [1, 2, 4] {
                    let mut text = message.clone();
                    let end = (at + len).min(text.len());
                    text[at..end].fill(value);
                    let mut link = Link::open(opening(kind, port));
                    link.write(Inside, &text);
                    link.repeat_until_acknowledged(Inside);
                    let made = &link.book.made;
                    assert!(made.len() <= 2, "{kind:?} {at} {value:x} {len}: {made:?}");
                    let own = made.iter().all(|one| one.internal.ip() == own_address());
                    assert!(own, "{kind:?} {at} {value:x} {len}: {made:?}");
                    let is_port = |port: u16| port >= 1024 || kind == Kind::Pptp;
                    assert!(made.iter().all(|one| is_port(one.internal.port())), "{made:?}");
                    let heard = &link.hosts[1].received;
                    assert!(heard.len() <= text.len() && text.len() - heard.len() < 6200);
                }
            }
        }
    }
}

fn own_address() -> std::net::IpAddr {
    client_inside(1).internal.ip()
}

/// Lengths of TPKT and PPTP that are too small, and the largest ones.
#[test]
fn a_length_without_a_message_ends_the_reading() {
    for (kind, port, start, reason) in [
        (Kind::H323, 1720, &[3, 0, 0, 0][..], Reason::NotProtocol),
        (Kind::H323, 1720, &[3, 0, 0, 3], Reason::NotProtocol),
        (Kind::H323, 1720, &[3, 0, 0xff, 0xff], Reason::TooLong),
        (Kind::Pptp, 1723, &[0, 0, 0, 1], Reason::NotProtocol),
        (Kind::Pptp, 1723, &[0, 11, 0, 1], Reason::NotProtocol),
        (Kind::Pptp, 1723, &[0xff, 0xff, 0, 1], Reason::NotProtocol),
        (Kind::Dns, 53, &[0xff, 0xff, 0, 1], Reason::TooLong),
        (Kind::Dns, 53, &[0, 0, 0, 1], Reason::NotProtocol),
    ] {
        let mut link = Link::open(opening(kind, port));
        say(&mut link, Inside, start, 1);
        say(&mut link, Inside, &bytes(SETUP_H245), 1);
        let refused = link.payloads.counters(kind).refused[reason as usize];
        assert_eq!((refused, link.book.made.len()), (1, 0), "{kind:?} {start:?}");
        assert_eq!(link.hosts[1].received, [start, &bytes(SETUP_H245)].concat());
    }
}

/// A caller or a server outside that names endpoints of other subscribers, or the host's own ones:
/// 0 ports. Connections that it names are read only between the two hosts of its own connection.
#[test]
fn what_comes_from_outside_opens_no_port() {
    for (named, own) in [("10.0.0.6:2000", "10.0.0.80:5000"), ("203.0.113.77:2000", "10.0.0.5:22")]
    {
        let mut server = Link::open(Opening::new(Kind::H323, server_inside(1720), Outside));
        let setup = with(SETUP_H245, &[("10.0.0.5:41000", named), ("198.51.100.2:1720", own)]);
        say(&mut server, Outside, &setup, 1);
        let mut client = Link::open(opening(Kind::H323, 1720));
        let connect = with(CONNECT_H245, &[("198.51.100.2:30000", named)]);
        say(&mut client, Outside, &connect, 1);
        for (link, said) in [(server, setup), (client, connect)] {
            assert!(link.book.made.is_empty() && link.book.followed.is_empty(), "{named}");
            assert_eq!(link.hosts[0].received, said);
        }
    }
}

/// Random bytes behind a right beginning, from both sides: no panic, no port of another host, and
/// all bytes get through.
#[test]
fn random_messages_get_through() {
    let seed = std::env::var("NATGATE_SEED").map_or(3, |seed| seed.parse().expect("a number"));
    println!("NATGATE_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..4000 {
        let (kind, port, whole) = [
            (Kind::H323, 1720, bytes(SETUP_H245)),
            (Kind::H323, 30_000, bytes(OPEN)),
            (Kind::Pptp, 1723, pptp::outgoing_reply(7, 9, 1)),
        ][random.below(3)]
        .clone();
        let mut link = Link::open(opening(kind, port));
        for _ in 0..4 {
            let from = [Inside, Outside][random.below(2)];
            let mut text = whole.clone();
            for _ in 0..random.below(6) {
                let at = random.below(text.len());
                match random.below(3) {
                    0 => text[at] = random.next() as u8,
                    1 => text.insert(at, random.next() as u8),
                    _ => drop(text.remove(at)),
                }
            }
            link.write(from, &text);
            link.repeat_until_acknowledged(from);
        }
        let is_own = |ip: std::net::IpAddr| ip == own_address();
        assert!(link.book.made.iter().all(|one| is_own(one.internal.ip())));
        for (at, host) in link.hosts.iter().enumerate() {
            let sent = link.hosts[1 - at].written.len();
            assert!(host.received.len() <= sent && sent - host.received.len() <= 8192);
        }
    }
}
