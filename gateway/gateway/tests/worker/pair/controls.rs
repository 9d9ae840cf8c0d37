//! Control connections whose packets come to either node: the owner alone reads them.

// The messages of the framework's own tests.
#[path = "../../../../../core/payload/tests/common/h323.rs"]
#[allow(dead_code, reason = "the tests use a part")]
mod messages;

use super::*;
use natgate_gateway::{AlgKind, Settings};

/// The client's control connection, and its server.
const CLIENT: End = (Ipv4Addr::new(10, 0, 1, 1), 4000);
const SERVER_END: End = (REMOTE, 21);
const COMMAND: &[u8] = b"PORT 10,0,1,1,31,64\r\n";

fn settings_with_ftp() -> Settings {
    settings_with(AlgKind::Ftp, 21)
}

fn settings_with(kind: AlgKind, port: u16) -> Settings {
    let mut settings = pair_settings();
    settings.alg.set(kind, vec![port]);
    settings.alg.reserve(&mut settings.engine.limits);
    settings
}

/// The data of a segment without options.
fn data(packet: &[u8]) -> &[u8] {
    &packet[40..]
}

/// A word of a segment's header.
fn word(packet: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(packet[20 + at..24 + at].try_into().expect("a header"))
}

/// The first fragment of a packet.
fn fragment(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let mut header = Ipv4::new_checked(&mut packet[..]).expect("a packet");
    header.set_fragment_field(0x2000);
    header.fill_checksum();
    packet
}

/// A packet comes to a node. What comes out may wait for the other node first.
fn send(pair: &mut Pair, node: usize, from_inside: bool, packet: &[u8]) -> (usize, bool, Vec<u8>) {
    let mut out = pair.send(node, from_inside, packet);
    if out.is_empty() {
        pair.run(200);
        out = std::mem::take(&mut pair.out);
    }
    one(&out).expect("it leaves").clone()
}

/// The client opens a connection to a server, whose packets come to the nodes in turn. Returns its
/// external endpoint.
fn open(pair: &mut Pair, server: End) -> End {
    let (by, external) = pair.begin(A, &tcp(CLIENT, server, [999, 0], SYN, b""));
    assert_eq!((by, external.0), (A, OF_A));
    let answer = tcp(server, external, [4999, 1000], SYN | ACK, b"");
    assert_eq!(pair.inbound(B, &answer), Some((A, CLIENT)));
    let last = tcp(CLIENT, server, [1000, 5000], ACK, b"");
    assert_eq!(pair.outbound(A, &last), Some((A, external)));
    pair.run(1000);
    external
}

/// A connection whose client has named a port. Returns its external endpoint, and the length of the
/// command outside.
fn connection(pair: &mut Pair) -> (End, u32) {
    let external = open(pair, SERVER_END);
    let ready = tcp(SERVER_END, external, [5000, 1000], ACK, b"220 ready\r\n");
    let (by, is_inside, packet) = send(pair, B, false, &ready);
    assert_eq!((by, is_inside, destination(&packet)), (A, true, CLIENT));
    let command = tcp(CLIENT, SERVER_END, [1000, 5011], ACK, COMMAND);
    let (by, is_inside, packet) = send(pair, B, true, &command);
    assert_eq!((by, is_inside, source(&packet)), (A, false, external));
    assert!(data(&packet).starts_with(b"PORT 203,0,113,1,"), "{packet:?}");
    let len = data(&packet).len() as u32;
    assert_ne!(len as usize, COMMAND.len());
    (external, len)
}

/// The server answers a command of this length outside by way of a node, and the client gets it.
fn answers(pair: &mut Pair, [to, by]: [usize; 2], external: End, len: u32) {
    let answer = tcp(SERVER_END, external, [5011, 1000 + len], ACK, b"200 ok\r\n");
    let (left_by, is_inside, packet) = send(pair, to, false, &answer);
    assert_eq!((left_by, is_inside, destination(&packet)), (by, true, CLIENT));
    assert_eq!(data(&packet), b"200 ok\r\n");
    assert_eq!(word(&packet, 8), 1000 + COMMAND.len() as u32);
}

#[test]
fn the_owner_reads_connections_whichever_node_their_packets_come_to() {
    for counts in COUNTS {
        let mut pair = Pair::with(settings_with_ftp(), counts, ["a", "b"]);
        let (external, len) = connection(&mut pair);
        answers(&mut pair, [B, A], external, len);
        pair.run(100);
        pair.end(A, true);
        pair.run(100);
        let next = tcp(CLIENT, SERVER_END, [1000 + COMMAND.len() as u32, 5019], ACK, b"NOOP\r\n");
        let (by, _, packet) = send(&mut pair, B, true, &next);
        assert_eq!((by, source(&packet), word(&packet, 4)), (B, external, 1000 + len));
        assert_eq!(data(&packet), b"NOOP\r\n");
    }
}

/// Nobody reads fragments, and their numbers would be wrong.
#[test]
fn no_fragment_of_a_changed_connection_passes_at_either_node() {
    let mut pair = Pair::with(settings_with_ftp(), [1, 1], ["a", "b"]);
    let (external, len) = connection(&mut pair);
    answers(&mut pair, [A, A], external, len);
    let numbers = [1000 + COMMAND.len() as u32, 5019];
    let out = fragment(&tcp(CLIENT, SERVER_END, numbers, ACK, b"NOOPNOOPNOOP"));
    let back = fragment(&tcp(SERVER_END, external, [5019, 1000 + len], ACK, b"200 200 200 "));
    let passes = |pair: &mut Pair, node| {
        !pair.send(node, true, &out).is_empty() || !pair.send(node, false, &back).is_empty()
    };
    assert!(!passes(&mut pair, A) && !passes(&mut pair, B));
    // Without the link, the copy is no better.
    pair.cable().is_cut = true;
    pair.run(200);
    assert!(!passes(&mut pair, B));
    let whole = tcp(CLIENT, SERVER_END, numbers, ACK, b"NOOP\r\n");
    assert!(pair.send(B, true, &whole).is_empty(), "the owner alone reads");
    pair.cable().is_cut = false;
    pair.run(2000);
    let (by, _, packet) = send(&mut pair, B, true, &whole);
    assert_eq!((by, data(&packet)), (A, &b"NOOP\r\n"[..]));
}

/// The endpoint in six octets of a message.
fn endpoint(octets: &[u8]) -> End {
    let [a, b, c, d, high, low] = octets.try_into().expect("six octets");
    (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

/// The hosts of a call of H.323 name where they wait for H.245. The connection there begins at one
/// node, and goes on at the other one.
#[test]
fn the_owner_reads_connections_that_messages_name() {
    let text = |(address, port): End| format!("{address}:{port}");
    let (server, other) = ((REMOTE, 1720), (REMOTE, 40_001));
    let [own, rtp, rtcp] = [41_000, 5000, 5001].map(|port| (CLIENT.0, port));
    let names = [CLIENT, server, own, rtp, rtcp].map(text);
    let [client_name, server_name, own_name, rtp_name, rtcp_name] = names.each_ref();
    let setup = messages::with(
        messages::SETUP_H245,
        &[
            ("10.0.0.5:40000", client_name),
            ("10.0.0.5:41000", own_name),
            ("198.51.100.2:1720", server_name),
        ],
    );
    let first = messages::bytes(messages::DETERMINATION);
    let ends = [("10.0.0.5:5000", &rtp_name[..]), ("10.0.0.5:5001", rtcp_name)];
    let channel = messages::with(messages::OPEN_ACK, &ends);
    for counts in COUNTS {
        let mut pair = Pair::with(settings_with(AlgKind::H323, 1720), counts, ["a", "b"]);
        open(&mut pair, server);
        let said = tcp(CLIENT, server, [1000, 5000], ACK, &setup);
        let (by, _, packet) = send(&mut pair, B, true, &said);
        assert_eq!((by, data(&packet).len()), (A, setup.len()));
        let place = setup.windows(6).position(|six| six == messages::octets(own_name));
        let place = place.expect("an endpoint");
        let waits = endpoint(&data(&packet)[place..place + 6]);
        assert_eq!(waits.0, OF_A);
        let syn = tcp(other, waits, [6999, 0], SYN, b"");
        assert_eq!(pair.inbound(B, &syn), Some((A, own)));
        let answer = tcp(own, other, [2999, 7000], SYN | ACK, b"");
        assert_eq!(pair.outbound(B, &answer), Some((A, waits)));
        let last = tcp(other, waits, [7000, 3000], ACK, b"");
        assert_eq!(pair.inbound(A, &last), Some((A, own)));
        pair.run(1000);
        let (by, _, packet) = send(&mut pair, B, true, &tcp(own, other, [3000, 7000], ACK, &first));
        assert_eq!((by, source(&packet), data(&packet)), (A, waits, &first[..]));
        let opens = |pair: &mut Pair, sent: usize| {
            let said = tcp(own, other, [3000 + sent as u32, 7000], ACK, &channel);
            let (by, _, packet) = send(pair, B, true, &said);
            assert_eq!((source(&packet), data(&packet).len()), (waits, channel.len()));
            let heard = data(&packet);
            (by, endpoint(&heard[heard.len() - 6..]))
        };
        let (by, media) = opens(&mut pair, first.len());
        assert_eq!((by, media.0), (A, OF_A));
        let report = udp((REMOTE, 6001), media, b"rtcp");
        assert_eq!(pair.inbound(B, &report), Some((A, rtcp)));
        pair.run(100);
        pair.end(A, true);
        pair.run(100);
        assert_eq!(pair.inbound(B, &report), Some((B, rtcp)));
        assert_eq!(opens(&mut pair, first.len() + channel.len()), (B, media));
    }
}
