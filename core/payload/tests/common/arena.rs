//! What holds for each input, whatever its bytes are.
//!
//! A conversation over TCP is held twice, once in whole messages and once cut at random places:
//! both streams and all expectations are the same. Datagrams leave whole. Segments with any numbers
//! and flags do not panic. An expectation always is the internal host's own.

use super::host::{datagram, transport_is_valid, wrap};
use super::{Book, Link, Opening, Random};
use natgate_payload::{ControlPacket, Endpoints, Kind, Limits, NewFlow, Payloads, Room, Side};
use natgate_wire::{Ipv4, protocol};
use std::net::SocketAddr;

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

/// A message from outside opens nothing: at most it names the remote end of what the internal host
/// has opened before. `known`: the internal endpoints before the message.
fn opens_nothing(book: &Book, made: usize, known: &[SocketAddr], endpoints: &Endpoints) -> bool {
    let is_known = |internal| known.contains(&internal) || internal == endpoints.internal;
    book.made[made..].iter().all(|made| is_known(made.internal))
}

/// The internal endpoints of what was opened.
fn known(book: &Book) -> Vec<SocketAddr> {
    book.ends.keys().copied().collect()
}

/// Holds a conversation: both streams, and the expectations.
fn hold(opening: Opening, messages: &[(Side, &[u8])], mut cut: impl FnMut(usize) -> usize) -> Link {
    let mut link = Link::prepare(opening, payloads());
    link.shake_hands();
    for (from, message) in messages {
        let (made, known) = (link.book.made.len(), known(&link.book));
        let start = link.write(*from, message);
        let mut at = 0;
        while at < message.len() {
            let end = (at + cut(message.len())).min(message.len());
            link.send(*from, start + at, start + end);
            at = end;
        }
        link.repeat_until_acknowledged(*from);
        let is_closed = opens_nothing(&link.book, made, &known, &opening.endpoints);
        assert!(*from == Side::Inside || is_closed, "{:?}: opened from outside", opening.kind);
    }
    check(&link.book, &opening.endpoints);
    link
}

pub(crate) fn converse(opening: Opening, seed: u8, messages: &[(Side, &[u8])]) {
    let whole = hold(opening, messages, |len| len);
    let mut random = Random(u64::from(seed));
    let cut = hold(opening, messages, |len| 1 + random.below(len.min(40)));
    for side in [Side::Inside, Side::Outside] {
        assert_eq!(whole.hosts[side as usize].received, cut.hosts[side as usize].received);
    }
    assert_eq!(whole.book.made, cut.book.made);
}

/// Gives datagrams to the framework.
pub(crate) fn exchange(kind: Kind, endpoints: Endpoints, messages: &[(Side, &[u8])]) {
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
pub(crate) fn confuse(opening: Opening, messages: &[(Side, &[u8])]) {
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
    let (made, known) = (book.made.len(), known(book));
    let mut buffer = [0; 2048];
    buffer[..bytes.len()].copy_from_slice(bytes);
    let mut room = Room::new(&mut buffer, bytes.len());
    let control = ControlPacket { kind, from, endpoints, new_flow: NewFlow::Read };
    payloads.process(100, control, &mut room, book);
    let is_closed = opens_nothing(book, made, &known, &endpoints);
    assert!(from == Side::Inside || is_closed, "{kind:?}: opened from outside");
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
