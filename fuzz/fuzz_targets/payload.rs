//! Random bytes as conversations of two hosts through the payload framework.
//!
//! The first byte chooses the protocol, the client's side, and one of three kinds of input. A
//! conversation over TCP is held twice, once in whole messages and once cut at random places: both
//! streams and all expectations are the same. Datagrams leave whole. Segments with any numbers and
//! flags do not panic. An expectation always is the internal host's own.
//!
//! Messages are separated by the byte 255. The sides speak in turns.

#![no_main]

// The hosts of the crate's own tests.
#[path = "../../core/payload/tests/common/mod.rs"]
mod common;

use common::host::{datagram, transport_is_valid, wrap};
use common::{Book, Link, Opening, Random, client_inside, client_inside_v6, server_inside};
use libfuzzer_sys::fuzz_target;
use natgate_payload::{ControlPacket, Endpoints, Kind, Limits, NewFlow, Payloads, Room, Side};
use natgate_wire::{Ipv4, protocol};

/// Longest message, bytes: one segment.
const LONGEST: usize = 1200;
/// Most messages of a conversation.
const MOST: usize = 24;

fn payloads() -> Payloads {
    Payloads::new(Limits { flows: 4, buffers: 4 }, [1; 32])
}

/// Every expectation is for a port of the internal host itself, from 1024 on or the flow's own. The
/// numbers of calls of PPTP are any.
fn check(book: &Book, endpoints: &Endpoints) {
    for made in &book.made {
        assert_eq!(made.internal.ip(), endpoints.internal.ip());
        let port = made.internal.port();
        let is_call = made.protocol == protocol::GRE;
        assert!(port >= 1024 || port == endpoints.internal.port() || is_call);
    }
}

/// Holds a conversation: both streams, and the expectations.
fn hold(opening: Opening, messages: &[(Side, &[u8])], mut cut: impl FnMut(usize) -> usize) -> Link {
    let mut link = Link::prepare(opening, payloads());
    link.shake_hands();
    for (from, message) in messages {
        let made = link.book.made.len();
        let start = link.write(*from, message);
        let mut at = 0;
        while at < message.len() {
            let end = (at + cut(message.len())).min(message.len());
            link.send(*from, start + at, start + end);
            at = end;
        }
        link.repeat_until_acknowledged(*from);
        assert!(*from == Side::Inside || link.book.made.len() == made, "opened from outside");
    }
    check(&link.book, &opening.endpoints);
    link
}

fn converse(opening: Opening, seed: u8, messages: &[(Side, &[u8])]) {
    let whole = hold(opening, messages, |len| len);
    let mut random = Random(u64::from(seed));
    let cut = hold(opening, messages, |len| 1 + random.below(len.min(40)));
    for side in [Side::Inside, Side::Outside] {
        assert_eq!(whole.hosts[side as usize].received, cut.hosts[side as usize].received);
    }
    assert_eq!(whole.book.made, cut.book.made);
}

/// Gives datagrams to the framework.
fn exchange(kind: Kind, endpoints: Endpoints, messages: &[(Side, &[u8])]) {
    let mut payloads = payloads();
    let addresses = vec![([10, 0, 0, 80].into(), [203, 0, 113, 80].into(), true)];
    let mut book = Book { addresses, ..Book::default() };
    for (from, message) in messages {
        let ends = match from {
            Side::Inside => (endpoints.external, endpoints.remote),
            Side::Outside => (endpoints.remote, endpoints.external),
        };
        let bytes = datagram(ends.0, ends.1, message);
        give(&mut payloads, &mut book, (kind, *from, endpoints), &bytes);
    }
    check(&book, &endpoints);
}

/// Gives segments with any header to a connection.
fn confuse(opening: Opening, messages: &[(Side, &[u8])]) {
    let mut link = Link::prepare(opening, payloads());
    link.shake_hands();
    let Opening { kind, endpoints, .. } = opening;
    for (from, message) in messages {
        let Some((header, data)) = message.split_first_chunk::<8>() else { continue };
        let (own, other) = (&link.hosts[*from as usize], &link.hosts[from.other() as usize]);
        let near = |start: u32, off: [u8; 2]| {
            start.wrapping_add(i16::from_be_bytes(off) as u32).to_be_bytes()
        };
        let mut tcp = [own.own.port().to_be_bytes(), own.other.port().to_be_bytes()].concat();
        tcp.extend(near(own.start, [header[0], header[1]]));
        tcp.extend(near(other.start, [header[2], header[3]]));
        tcp.extend([0x50 | header[4] & 0x30, header[5] & 0x3f, header[6], header[7], 0, 0, 0, 0]);
        tcp.extend(data);
        let bytes = wrap(own.own, own.other, protocol::TCP, tcp, 16);
        give(&mut link.payloads, &mut link.book, (kind, *from, endpoints), &bytes);
    }
    check(&link.book, &endpoints);
}

/// Gives a packet to the framework. What leaves is whole.
fn give(
    payloads: &mut Payloads,
    book: &mut Book,
    (kind, from, endpoints): (Kind, Side, Endpoints),
    bytes: &[u8],
) {
    let made = book.made.len();
    let mut buffer = [0; 2048];
    buffer[..bytes.len()].copy_from_slice(bytes);
    let mut room = Room::new(&mut buffer, bytes.len());
    let control = ControlPacket { kind, from, endpoints, new_flow: NewFlow::Read };
    payloads.process(100, control, &mut room, book);
    assert!(from == Side::Inside || book.made.len() == made, "opened from outside");
    whole(room.bytes());
    let mut own = [0; Payloads::BUFFER];
    while let Some((_, len)) = payloads.poll_transmit(&mut own) {
        whole(&own[..len]);
    }
    while payloads.poll_event().is_some() {}
}

fn whole(packet: &[u8]) {
    let header = Ipv4::new_checked(packet).expect("a packet");
    assert_eq!(usize::from(header.total_len()), packet.len());
    assert!(header.checksum_valid() && transport_is_valid(packet));
}

fuzz_target!(|data: &[u8]| {
    let [head, seed, rest @ ..] = data else { return };
    let kind = Kind::ALL[usize::from(head & 7) % Kind::ALL.len()];
    let (is_server_inside, speaks_first) = (head & 16 != 0, head & 32 != 0);
    let endpoints = match (is_server_inside, head & 8 != 0) {
        (true, _) => server_inside(21),
        (false, true) => client_inside_v6(21),
        (false, false) => client_inside(21),
    };
    let opener = if is_server_inside { Side::Outside } else { Side::Inside };
    let mut side = if speaks_first { opener } else { opener.other() };
    let parts = rest.split(|byte| *byte == 255).take(MOST);
    let messages: Vec<(Side, &[u8])> = parts
        .map(|part| {
            let message = (side, &part[..part.len().min(LONGEST)]);
            side = side.other();
            message
        })
        .collect();
    let opening = Opening::new(kind, endpoints, opener);
    match head >> 6 {
        0 | 1 if kind != Kind::Tftp => converse(opening, *seed, &messages),
        2 => confuse(opening, &messages),
        _ => exchange(kind, endpoints, &messages),
    }
});
