//! Cuts do not matter: each conversation is cut at every byte and at random places, its segments
//! are reordered, repeated and lost, and the same streams and the same expectations come out.

mod common;

use common::h323::{self, bytes, with};
use common::telephone::between_families;
use common::{Host, Link, Opening, Random, client_inside, client_inside_v6, pptp, server_inside};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{Expectation, Kind, Limits, Payloads, RestoreError};

/// A recorded conversation.
struct Conversation {
    name: &'static str,
    opening: Opening,
    messages: Vec<(Side, Vec<u8>)>,
}

/// What came out: both streams, and the expectations.
type Outcome = (Vec<u8>, Vec<u8>, Vec<Expectation>);

const FTP_CLIENT: &[(Side, &str)] = &[
    (Outside, "220-Welcome to\r\n 220 this\r\n220 server\r\n"),
    (Inside, "USER a\r\n"),
    (Outside, "331 Password\r\n"),
    (Inside, "PASS b\r\n"),
    (Outside, "230 in\r\n"),
    (Inside, "PORT 10,0,0,5,200,13\r\n"),
    (Outside, "200 PORT ok\r\n"),
    (Inside, "LIST\r\nEPRT |1|10.0.0.5|51214|\r\nRETR a\r\n"),
    (Outside, "150 Here\r\n226 Done\r\n200 ok\r\n"),
    (Inside, "PORT 10,0,0,5,4,0\r\nPASV\r\nPORT 10,0,0,5,255,255\r\n"),
    (Outside, "200 ok\r\n227 Entering Passive Mode (198,51,100,2,20,20)\r\n200 ok\r\n"),
    (Inside, "QUIT\r\n"),
    (Outside, "221 bye\r\n"),
];

const FTP_SERVER: &[(Side, &str)] = &[
    (Inside, "220 server\r\n"),
    (Outside, "USER a\r\nPASV\r\n"),
    (Inside, "230 in\r\n227 Entering Passive Mode (10,0,0,80,4,1).\r\n"),
    (Outside, "RETR a\r\nEPSV\r\n"),
    (Inside, "150 Here\r\n226 Done\r\n229 Entering Extended Passive Mode (|||1026|)\r\n"),
];

const FTP_FAMILIES: &[(Side, &str)] = &[
    (Outside, "220 server\r\n"),
    (Inside, "EPSV\r\n"),
    (Outside, "227 Entering Passive Mode (198,51,100,2,20,20)\r\n"),
    (Inside, "EPRT |2|2001:db8:2::31|5282|\r\nEPSV ALL\r\n"),
    (Outside, "200 ok\r\n200 ok\r\n"),
    (Inside, "ALGS DISABLE64\r\nEPSV\r\nALGS ENABLE64\r\nALGS\r\nEPSV 2\r\n"),
    (Outside, "200 ok\r\n229 go (|||99|)\r\n200-ok\r\n200 ok\r\n200 ok\r\n227 (1,2,3,4,5,6)\r\n"),
];

const RTSP_CLIENT: &[(Side, &str)] = &[
    (Inside, "OPTIONS rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\n\r\n"),
    (Outside, "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 9\r\n\r\nRTSP/1.0\n"),
    (
        Inside,
        "SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 2\r\n\
         Transport: RTP/AVP;unicast;destination=10.0.0.5;client_port=4588-4589\r\n\r\n",
    ),
    (
        Outside,
        "RTSP/1.0 200 OK\r\nCSeq: 2\r\n\
         Transport: RTP/AVP;destination=203.0.113.1;client_port=60002-60003;server_port=6256\r\n\
         \r\n",
    ),
    (
        Inside,
        "SETUP rtsp://a/c RTSP/2.0\r\nTransport: RTP/AVP;unicast;\r\n \
         dest_addr=\":4600\"/\":4601\", RTP/AVP;dest_addr=\"10.0.0.5:4602\"\r\n\r\n",
    ),
    (
        Outside,
        "$\u{1}\u{0}\u{5}SETUPRTSP/2.0 200 OK\r\n\
         Transport: RTP/AVP;dest_addr=\":60004\"/\"203.0.113.1:60005\"\r\n\r\n",
    ),
    (
        Inside,
        "\r\nPLAY rtsp://a/b RTSP/1.0\r\nContent-Length: 3\r\n\r\nabc\r\nPLAY a RTSP/1.0\r\n\r\n",
    ),
];

const SIP: &[(Side, &str)] = &[
    (
        Inside,
        "\r\nREGISTER sip:a.example SIP/2.0\r\n\
         Via: SIP/2.0/TCP 10.0.0.5:40000;branch=z9hG4bK1;rport\r\n\
         To: <sip:u@a.example>\r\nCall-ID: 1\r\nCSeq: 1 REGISTER\r\n\
         m: <sip:u@10.0.0.5:40000;transport=tcp>;expires=600\r\nl: 0\r\n\r\n",
    ),
    (
        Outside,
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/TCP 203.0.113.1:50000;branch=z9hG4bK1\r\n\
         To: <sip:u@a.example>;tag=1\r\nCall-ID: 1\r\nCSeq: 1 REGISTER\r\nExpires: 300\r\n\
         Contact:\r\n <sip:u@203.0.113.1:50000;transport=tcp>\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        Outside,
        "INVITE sip:u@203.0.113.1:50000 SIP/2.0\r\ni: 1\r\nc: application/sdp\r\nl: 55\r\n\r\n\
         v=0\r\nc=IN IP4 198.51.100.9\r\nm=audio 5000 RTP/AVP 0\r\nx=0\r\n",
    ),
    (
        Inside,
        "SIP/2.0 200 OK\r\ni: 1\r\nContent-Type: application/sdp\r\nContent-Length: 54\r\n\
         Contact: <sip:u@10.0.0.5>\r\n\r\n\
         v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4000 RTP/AVP 0\r\na=1234\r\n\
         BYE sip:a SIP/2.0\r\nContent-Length: 1\r\n\r\nx",
    ),
    (Outside, "\r\n\r\n"),
    (
        Inside,
        "INVITE sip:a SIP/2.0\r\ni: 2\r\nContent-Type: application/sdp\r\nl: 87\r\n\r\n\
         v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4002 RTP/AVP 0\r\n\
         m=x 500 RTP/AVP 0\r\nm=y 4004 RTP/AVP 0\r\n",
    ),
];

/// A call: early media, a reliable response, an update, a hold, and messages together.
const SIP_CALL: &[(Side, &str)] = &[
    (
        Inside,
        "INVITE sip:b@c SIP/2.0\r\nv: SIP/2.0/TCP 10.0.0.5:40000;branch=z9hG4bK1\r\n\
         m: <sip:u@10.0.0.5:5070>\r\ni: 1\r\nc: application/sdp\r\nl: 98\r\n\r\n\
         v=0\r\no=- 1 1 IN IP4 10.0.0.5\r\nc=IN IP4 10.0.0.5\r\nm=audio 4000 RTP/AVP 0\r\n\
         m=video 4002 RTP/AVP 31\r\n",
    ),
    (
        Outside,
        "SIP/2.0 100 Trying\r\nl: 0\r\n\r\nSIP/2.0 183 Progress\r\ni: 1\r\n\
         v: SIP/2.0/TCP 203.0.113.1:50000;branch=z9hG4bK1\r\nc: application/sdp\r\nl: 50\r\n\r\n\
         v=0\r\nc=IN IP4 198.51.100.9\r\nm=audio 5000 RTP/AVP 0",
    ),
    (
        Inside,
        "PRACK sip:b@c SIP/2.0\r\ni: 1\r\nl: 0\r\n\r\n\r\n\r\n\
         UPDATE sip:b@c SIP/2.0\r\ni: 1\r\nContent-Length: 00058\r\nContent-Type: application/sdp\
         \r\n\r\nv=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4010 RTP/AVP 0\r\na=inactive",
    ),
    (
        Outside,
        "UPDATE sip:u@203.0.113.1:60002 SIP/2.0\r\ni: 1\r\nl: 0\r\n\r\n\
         INVITE sip:u@203.0.113.1:50000 SIP/2.0\r\nl: 0\r\n\r\n",
    ),
    (Inside, "BYE sip:b@c SIP/2.0\r\nm: <sip:u@10.0.0.5:5070>\r\nl: 0\r\n\r\n"),
];

const IRC: &[(Side, &str)] = &[
    (Inside, "CAP LS 302\r\nNICK a\r\nUSER a 0 * :a\r\n"),
    (Outside, ":server CAP * LS :a\r\n:server 001 a :Welcome\r\nPING :1\r\n"),
    (Inside, "PONG :1\r\nPRIVMSG b :\u{1}DCC SEND \"a b\" 167772165 5000 1024\u{1}\r\n"),
    (Outside, ":b PRIVMSG a :hello\r\n"),
    (Inside, "@x=y PRIVMSG b :\u{1}DCC CHAT chat 167772165 5001\u{1}\r\nQUIT\r\n"),
];

fn conversations() -> Vec<Conversation> {
    let ftp = |name, opening, texts: &[(Side, &str)]| {
        let messages = texts.iter().map(|(from, text)| (*from, text.as_bytes().to_vec()));
        Conversation { name, opening, messages: messages.collect() }
    };
    let pptp = |name, endpoints, opener, messages| Conversation {
        name,
        opening: Opening::new(Kind::Pptp, endpoints, opener),
        messages,
    };
    vec![
        ftp("client", Opening::new(Kind::Ftp, client_inside(21), Inside), FTP_CLIENT),
        ftp("server", Opening::new(Kind::Ftp, server_inside(21), Outside), FTP_SERVER),
        ftp("families", Opening::new(Kind::Ftp, client_inside_v6(21), Inside), FTP_FAMILIES),
        ftp("rtsp", Opening::new(Kind::Rtsp, client_inside(554), Inside), RTSP_CLIENT),
        ftp("sip", Opening::new(Kind::Sip, client_inside(5060), Inside), SIP),
        ftp("sip call", Opening::new(Kind::Sip, client_inside(5060), Inside), SIP_CALL),
        Conversation {
            name: "sip families",
            opening: Opening::new(Kind::Sip, client_inside_v6(5060), Inside),
            messages: between_families(),
        },
        ftp("irc", Opening::new(Kind::Irc, client_inside(6667), Inside), IRC),
        pptp("pptp client", client_inside(1723), Inside, pptp::outgoing(Inside)),
        pptp("pptp server", server_inside(1723), Outside, pptp::outgoing(Outside)),
        pptp("pptp incoming", client_inside(1723), Inside, pptp::incoming(Inside)),
        pptp("pptp concentrator", server_inside(1723), Outside, pptp::incoming(Outside)),
        Conversation {
            name: "h323 signalling",
            opening: Opening::new(Kind::H323, client_inside(1720), Inside),
            messages: signalling(),
        },
        Conversation {
            name: "h323 control",
            opening: Opening::new(Kind::H323, client_inside(30_000), Inside),
            messages: control(),
        },
    ]
}

/// Call signalling of H.323 with fast connect, a tunnel, and an empty packet.
fn signalling() -> Vec<(Side, Vec<u8>)> {
    let answer = with(h323::CONNECT_FAST, &[("10.0.0.5:5000", "203.0.113.1:60004")]);
    vec![
        (Inside, bytes(h323::SETUP_FAST)),
        (Outside, [&[3, 0, 0, 4][..], &bytes(h323::ALERTING)].concat()),
        (Outside, answer),
        (Inside, [bytes(h323::FACILITY), bytes(h323::EMPTY_TUNNEL)].concat()),
        (Inside, bytes(h323::RELEASE)),
    ]
}

/// H.245: channels of both hosts.
fn control() -> Vec<(Side, Vec<u8>)> {
    let ends = [("10.0.0.5:5000", "198.51.100.2:6000"), ("10.0.0.5:5001", "198.51.100.2:6001")];
    vec![
        (Outside, bytes(h323::DETERMINATION)),
        (Inside, [bytes(h323::DETERMINATION), bytes(h323::OPEN)].concat()),
        (Outside, with(h323::OPEN_ACK, &ends)),
        (Inside, [bytes(h323::OPEN_ACK), bytes(h323::OPEN_VIDEO)].concat()),
    ]
}

/// Holds a conversation; `cuts` says how a message is cut into segments and in which order they
/// go, as ranges.
fn hold(
    conversation: &Conversation,
    opening: Opening,
    setting: impl FnOnce(&mut Link),
    mut cuts: impl FnMut(usize, usize) -> Vec<(usize, usize)>,
) -> Outcome {
    let mut link = Link::open(opening);
    setting(&mut link);
    for (number, (from, text)) in conversation.messages.iter().enumerate() {
        let start = link.write(*from, text);
        for (first, last) in cuts(number, text.len()) {
            link.send(*from, start + first, start + last);
        }
        link.repeat_until_acknowledged(*from);
    }
    assert_eq!(link.payloads.free_buffers(), 4, "{}: an idle flow has a buffer", conversation.name);
    outcome(link)
}

/// What both hosts got, and the expectations that were made and shortened.
fn outcome(link: Link) -> Outcome {
    let [inside, outside] = link.hosts;
    (inside.received, outside.received, [link.book.made, link.book.shortened].concat())
}

fn whole(conversation: &Conversation) -> Outcome {
    let out = hold(conversation, conversation.opening, |_| {}, |_, len| vec![(0, len)]);
    assert!(!out.2.is_empty(), "{}: nothing is expected", conversation.name);
    out
}

#[test]
fn a_cut_at_every_byte_changes_nothing() {
    for conversation in conversations() {
        let expected = whole(&conversation);
        for (number, (_, text)) in conversation.messages.iter().enumerate() {
            for cut in 1..text.len() {
                let cuts = |at, len| match at == number {
                    true => vec![(0, cut), (cut, len)],
                    false => vec![(0, len)],
                };
                let out = hold(&conversation, conversation.opening, |_| {}, cuts);
                assert!(out == expected, "{} message {number} cut at {cut}", conversation.name);
                // The same two segments in the other order.
                let cuts = |at, len| match at == number {
                    true => vec![(cut, len), (0, cut)],
                    false => vec![(0, len)],
                };
                let out = hold(&conversation, conversation.opening, |_| {}, cuts);
                assert!(out == expected, "{} message {number} turned at {cut}", conversation.name);
            }
        }
    }
}

#[test]
fn single_bytes_change_nothing() {
    for conversation in conversations() {
        let expected = whole(&conversation);
        let bytes = |_, len| (0..len).map(|at| (at, at + 1)).collect();
        let out = hold(&conversation, conversation.opening, |_| {}, bytes);
        assert!(out == expected, "{}", conversation.name);
    }
}

/// Random ranges that cover a message, in a random order, some of them twice.
fn random_cuts(random: &mut Random, len: usize) -> Vec<(usize, usize)> {
    let mut places: Vec<usize> = (0..random.below(5)).map(|_| random.below(len + 1)).collect();
    places.extend([0, len]);
    places.sort_unstable();
    let mut cuts: Vec<_> = places.windows(2).map(|two| (two[0], two[1])).collect();
    cuts.retain(|(first, last)| first < last);
    for _ in 0..random.below(4) {
        let first = random.below(len);
        cuts.push((first, first + 1 + random.below(len - first)));
    }
    for at in (1..cuts.len()).rev() {
        cuts.swap(at, random.below(at + 1));
    }
    cuts
}

#[test]
fn random_segments_and_losses_change_nothing() {
    let conversations = conversations();
    let expected: Vec<Outcome> = conversations.iter().map(whole).collect();
    let first = std::env::var("NATGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in first..first + 3000 {
        let at = seed as usize % conversations.len();
        let (conversation, expected) = (&conversations[at], &expected[at]);
        let mut random = Random(seed);
        let mut opening = conversation.opening;
        // Numbers that wrap around in the conversation.
        opening.starts = [0, 0].map(|_| (random.below(400) as u32).wrapping_sub(200));
        opening.has_stamps = random.below(2) == 0;
        let loss = [0, 0, 12, 4][random.below(4)];
        let setting = |link: &mut Link| (link.loss, link.random) = (loss, Random(seed ^ 0xabcd));
        let out = hold(conversation, opening, setting, |_, len| random_cuts(&mut random, len));
        let (heard, wanted) =
            (String::from_utf8_lossy(&out.1), String::from_utf8_lossy(&expected.1));
        assert_eq!(heard, wanted, "{} with NATGATE_SEED={seed}", conversation.name);
        assert!(out == *expected, "{} with NATGATE_SEED={seed}", conversation.name);
    }
}

/// A sender with Nagle's algorithm waits for the acknowledgment of each part.
#[test]
fn a_sender_that_waits_for_acknowledgments_goes_on() {
    for conversation in conversations() {
        let expected = whole(&conversation);
        let mut link = Link::open(conversation.opening);
        for (from, text) in &conversation.messages {
            let start = link.write(*from, text);
            for at in start..start + text.len() {
                assert_eq!(link.hosts[*from as usize].acknowledged, at, "{}", conversation.name);
                link.send(*from, at, at + 1);
            }
        }
        assert!(outcome(link) == expected, "{}", conversation.name);
    }
}

#[test]
fn lengths_may_change_many_times_and_the_end_gets_through() {
    let mut opening = Opening::new(Kind::Ftp, client_inside(21), Inside);
    opening.starts = [u32::MAX - 1500, 7];
    let mut link = Link::open(opening);
    link.say(Outside, "220 ready\r\n");
    let mut expected = String::new();
    for round in 0..200_u32 {
        link.now += 10;
        let text = format!("PORT 10,0,0,5,{},{}\r\n", 4 + round % 200, round % 256);
        link.say(Inside, &text);
        let port = 60_000 + 2 * (round + 1);
        expected += &format!("PORT 203,0,113,1,{},{}\r\n", port / 256, port % 256);
        link.say(Outside, "200 ok\r\n");
    }
    link.say(Inside, "QUIT\r\n");
    assert_eq!(link.heard(Outside), expected + "QUIT\r\n");
    for side in [Inside, Outside] {
        link.end(side);
        assert!(link.hosts[side.other() as usize].has_received_end);
        let len = link.hosts[side as usize].written.len();
        assert_eq!(link.hosts[side as usize].acknowledged, len + 1);
    }
}

#[test]
fn a_message_that_grows_beyond_the_mss_is_split() {
    let mut opening = Opening::new(Kind::Ftp, client_inside(21), Inside);
    opening.mss = 536;
    let mut link = Link::open(opening);
    link.say(Outside, "220 ready\r\n");
    let text = "PORT 10,0,0,5,4,1\r\n".repeat(15) + "NOOP\r\n" + &"\r\n".repeat(110);
    assert!(text.len() < 524);
    let start = link.write(Inside, text.as_bytes());
    link.send(Inside, start, start + text.len());
    // The hosts check that no segment exceeds the MSS; nothing had to be repeated.
    let heard = link.heard(Outside);
    assert!(heard.len() > 536 && heard.matches("PORT 203,0,113,1,").count() == 15, "{heard}");
    assert_eq!(link.payloads.counters(Kind::Ftp).expectations, 15);
}

#[test]
fn sack_blocks_name_the_senders_own_bytes() {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside(21), Inside));
    link.say(Outside, "220 ready\r\n");
    let port = link.write(Inside, b"PORT 10,0,0,5,200,13\r\n");
    let noop = link.write(Inside, b"NOOP\r\nQUIT\r\n");
    let lost = link.hosts[0].segment(port, noop, false);
    assert_eq!(link.process(Inside, &lost).len(), 1);
    link.send(Inside, noop, noop + 6);
    assert_eq!((link.hosts[0].sacked, link.hosts[0].acknowledged), (Some((noop, noop + 6)), 0));
    link.repeat_until_acknowledged(Inside);
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\nNOOP\r\nQUIT\r\n");
}

/// Numbers wrap around many times on a connection that is not read any more.
#[test]
fn a_connection_of_many_gigabytes_is_acknowledged() {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside(21), Inside));
    link.say(Inside, "GET / HTTP/1.1\r\n\r\n");
    for round in 0..9 {
        // A gigabyte that the test does not send.
        let [inside, outside] = &mut link.hosts;
        inside.start = inside.start.wrapping_add(1 << 30);
        outside.other_start = outside.other_start.wrapping_add(1 << 30);
        let start = link.write(Inside, b"x");
        link.send(Inside, start, start + 1);
        assert_eq!(link.hosts[0].acknowledged, start + 1, "in round {round}");
    }
}

const LIMITS: Limits = Limits { flows: 8, buffers: 4 };

/// Another process goes on with the flows.
fn succeed(link: &mut Link) {
    let mut heir = Payloads::new(LIMITS, [9; 32]);
    for flow in link.payloads.save() {
        for len in 0..flow.len() {
            let cut = heir.restore(&flow[..len], |_, _, _| true);
            assert_eq!(cut, Err(RestoreError::Damaged), "{len} bytes are a flow");
        }
        let longer = [&flow[..], &[0]].concat();
        let longer = heir.restore(&longer, |_, _, _| true);
        assert_eq!(longer, Err(RestoreError::Damaged), "a byte too much is a flow");
        assert_eq!(heir.restore(&flow, |_, _, _| false), Err(RestoreError::Unwanted));
        assert_eq!((heir.flows(), heir.free_buffers()), (0, 4));
        assert_eq!(heir.restore(&flow, |_, _, _| true), Ok(()));
        assert_eq!(heir.restore(&flow, |_, _, _| true), Err(RestoreError::Known));
    }
    assert_eq!(heir.flows(), link.payloads.flows());
    assert_eq!(heir.free_buffers(), link.payloads.free_buffers());
    link.payloads = heir;
}

#[test]
fn another_process_goes_on_between_any_two_segments() {
    let is_saved = |one: &Conversation| {
        one.opening.endpoints.internal.is_ipv4() && one.opening.kind != Kind::Pptp
    };
    for conversation in conversations().iter().filter(|one| is_saved(one)) {
        let expected = whole(conversation);
        for size in [1, 13, usize::MAX] {
            let mut link = Link::open(conversation.opening);
            for (from, text) in &conversation.messages {
                let start = link.write(*from, text);
                for at in (0..text.len()).step_by(size.min(text.len())) {
                    succeed(&mut link);
                    let end = at.saturating_add(size).min(text.len());
                    link.send(*from, start + at, start + end);
                    succeed(&mut link);
                }
                link.repeat_until_acknowledged(*from);
            }
            assert!(outcome(link) == expected, "{} by {size}", conversation.name);
        }
    }
}

/// A difference of two numbers that matters: to the next byte, past a window, or past half of all.
fn difference(random: &mut Random) -> u32 {
    let size = [0, 1 << 8, 1 << 13, 1 << 16, 1 << 30, 1 << 31][random.below(6)];
    let bound = [1, 4, 100][random.below(3)];
    let near = size + random.below(bound) as u32;
    if random.below(2) == 0 { near } else { near.wrapping_neg() }
}

/// Changes bytes of a saved flow, or its numbers: most of them sequence numbers of the hosts.
fn change(random: &mut Random, hosts: &[Host; 2], flow: &mut [u8]) {
    let number = |flow: &[u8], at: usize| u32::from_le_bytes(flow[at..at + 4].try_into().unwrap());
    let is_sequence = |number: u32| {
        hosts.iter().any(|host| number.wrapping_sub(host.start).wrapping_add(9) < 1 << 11)
    };
    let places = 0..flow.len() - 4;
    let sequences: Vec<usize> =
        places.clone().filter(|at| is_sequence(number(flow, *at))).collect();
    for _ in 0..=random.below(3) {
        let any = random.below(places.len());
        match random.below(6) {
            0 => flow[any] = random.next() as u8,
            1 => flow[any..any + 2].copy_from_slice(&random.next().to_le_bytes()[..2]),
            _ => {
                let at = sequences.get(random.below(sequences.len() + 1)).map_or(any, |at| *at);
                let number = number(flow, at).wrapping_add(difference(random));
                flow[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        }
    }
}

/// A conversation up to some message, of which some segments have come.
fn part_of(random: &mut Random, conversation: &Conversation) -> Link {
    let mut link = Link::open(conversation.opening);
    let last = random.below(conversation.messages.len());
    for (number, (from, text)) in conversation.messages[..=last].iter().enumerate() {
        let start = link.write(*from, text);
        if number < last {
            link.send(*from, start, start + text.len());
            link.repeat_until_acknowledged(*from);
            continue;
        }
        let mut cuts = random_cuts(random, text.len());
        cuts.truncate(1 + random.below(cuts.len()));
        for (first, end) in cuts {
            let packet = link.hosts[*from as usize].segment(start + first, start + end, false);
            // The other host may lack what has left.
            for (to, packet) in link.process(*from, &packet) {
                if random.below(2) == 0 {
                    link.hosts[to as usize].receive(&packet);
                }
            }
        }
    }
    link
}

/// Damaged records give no flow, or one that passes whatever comes.
#[test]
fn flows_that_mean_something_else_are_taken_or_not() {
    let seed = std::env::var("NATGATE_SEED").map_or(11, |seed| seed.parse().expect("a number"));
    println!("NATGATE_SEED={seed}");
    let mut random = Random(seed);
    let conversations = conversations();
    let (mut taken, mut refused) = (0, 0);
    for round in 0..60_000 {
        let conversation = &conversations[round % conversations.len()];
        let mut link = part_of(&mut random, conversation);
        let Some(mut flow) = link.payloads.save().next() else { continue };
        let mut heir = Payloads::new(LIMITS, [9; 32]);
        assert_eq!(heir.restore(&flow, |_, _, _| true), Ok(()), "a flow as it was saved");
        change(&mut random, &link.hosts, &mut flow);
        let mut heir = Payloads::new(LIMITS, [9; 32]);
        if heir.restore(&flow, |_, _, _| true).is_err() {
            assert_eq!(heir.free_buffers(), 4, "a refused flow gives its buffers back");
            refused += 1;
            continue;
        }
        taken += 1;
        link.payloads = heir;
        for _ in 0..12 {
            let from = [Inside, Outside][random.below(2)];
            let host = &mut link.hosts[from as usize];
            let (start, other_start) = (host.start, host.other_start);
            if random.below(2) == 0 {
                host.start = start.wrapping_add(difference(&mut random));
            }
            if random.below(2) == 0 {
                host.other_start = other_start.wrapping_add(difference(&mut random));
            }
            let end = random.below(host.written.len() + 1);
            let packet = match random.below(8) {
                0 => host.acknowledgment(),
                1 => host.reset(),
                _ => host.segment(random.below(end + 1), end, random.below(8) == 0),
            };
            (host.start, host.other_start) = (start, other_start);
            link.pass(from, &packet);
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}
