//! Messages of PPTP as RFC 2637 lays them out, and whole conversations.

use natgate_payload::Side;

/// Call IDs as their own host knows them.
pub(crate) const INSIDE_CALL: u16 = 0x0007;
pub(crate) const OUTSIDE_CALL: u16 = 0x8001;

/// The external Call ID of the book for the first one of the host inside.
pub(crate) const EXTERNAL_CALL: u16 = 60_002;

/// A control message of a type and a length, with words from the first number on.
pub(crate) fn message(kind: u16, len: u16, words: &[u16]) -> Vec<u8> {
    let mut bytes = [len, 1, 0x1a2b, 0x3c4d, kind, 0].map(u16::to_be_bytes).concat();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(len.into(), 0);
    bytes
}

pub(crate) fn start(is_request: bool) -> Vec<u8> {
    message(if is_request { 1 } else { 2 }, 156, &[0x0100])
}

pub(crate) fn outgoing_request(call: u16) -> Vec<u8> {
    message(7, 168, &[call, 1, 0, 300])
}

/// A result of 1 is success.
pub(crate) fn outgoing_reply(call: u16, peer: u16, result: u8) -> Vec<u8> {
    message(8, 32, &[call, peer, u16::from(result) << 8])
}

pub(crate) fn incoming_request(call: u16) -> Vec<u8> {
    message(9, 220, &[call, 2])
}

pub(crate) fn incoming_reply(call: u16, peer: u16, result: u8) -> Vec<u8> {
    message(10, 24, &[call, peer, u16::from(result) << 8])
}

pub(crate) fn connected(peer: u16) -> Vec<u8> {
    message(11, 28, &[peer])
}

pub(crate) fn clear(call: u16) -> Vec<u8> {
    message(12, 16, &[call])
}

pub(crate) fn disconnect(call: u16) -> Vec<u8> {
    message(13, 148, &[call, 0x0400])
}

pub(crate) fn wan_error(peer: u16) -> Vec<u8> {
    message(14, 40, &[peer])
}

pub(crate) fn link_info(peer: u16) -> Vec<u8> {
    message(15, 24, &[peer])
}

/// Number of a side's call, as the side itself knows it, or as the other one does.
pub(crate) fn call_of(side: Side, seen_by: Side) -> u16 {
    match (side, seen_by) {
        (Side::Inside, Side::Inside) => INSIDE_CALL,
        (Side::Inside, Side::Outside) => EXTERNAL_CALL,
        (Side::Outside, _) => OUTSIDE_CALL,
    }
}

/// Messages with their senders.
pub(crate) type Messages = Vec<(Side, Vec<u8>)>;

/// A client opens a connection and places a call, and clears it. Several messages go together.
pub(crate) fn outgoing(client: Side) -> Messages {
    let server = client.other();
    let [own, own_seen] = [client, server].map(|by| call_of(client, by));
    let [far, far_seen] = [server, client].map(|by| call_of(server, by));
    vec![
        (client, [start(true), outgoing_request(own)].concat()),
        (server, start(false)),
        (server, [outgoing_reply(far, own_seen, 1), link_info(own_seen)].concat()),
        (client, [link_info(far_seen), message(5, 16, &[0, 9])].concat()),
        (server, [message(6, 20, &[0, 9]), wan_error(own_seen)].concat()),
        (client, clear(own)),
        (server, disconnect(far)),
        (client, message(3, 16, &[0x0100])),
        (server, message(4, 16, &[0x0100])),
    ]
}

/// The client is the concentrator: it tells the server of a call that comes in.
pub(crate) fn incoming(client: Side) -> Messages {
    let server = client.other();
    let [own, own_seen] = [client, server].map(|by| call_of(client, by));
    let [far, far_seen] = [server, client].map(|by| call_of(server, by));
    vec![
        (client, start(true)),
        (server, start(false)),
        (client, incoming_request(own)),
        (server, [link_info(own_seen), incoming_reply(far, own_seen, 1)].concat()),
        (client, [connected(far_seen), wan_error(far_seen), disconnect(own)].concat()),
    ]
}
