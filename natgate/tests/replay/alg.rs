//! Application-level gateways in a capture. A conversation grows packet by packet; its start is
//! replayed each time, and an equal seed chooses equal ports.

mod h323;
mod pptp;

use super::bench::*;
use natgate_io::pcap::LinkType;
use natgate_wire::{Ipv4, protocol};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

type End = (Ipv4Addr, u16);

const INSIDE: usize = 0;
const OUTSIDE: usize = 1;
const CLIENT: End = (Ipv4Addr::new(10, 0, 0, 5), 40_000);
const STRANGER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 99);
const ALL: &str = "[alg]\nftp = true\ntftp = true\nsip = true\nrtsp = true\nirc = true\n";
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A conversation, and what has become of it.
struct Talk {
    directory: Directory,
    packets: Vec<Packet>,
    left: usize,
}

impl Talk {
    fn new(test: &str, tables: &str) -> Self {
        let directory = Directory::new(test);
        directory.write("natgate.toml", format!("{CONFIG}{tables}").as_bytes());
        Self { directory, packets: Vec::new(), left: 0 }
    }

    /// Sends a packet, one second after the last; returns the packets that leave for it.
    fn send(&mut self, interface: usize, frame: Vec<u8>) -> Vec<Packet> {
        let after = self.packets.len() as u64 * SECOND;
        self.packets.push(packet(interface, after, frame));
        let sent = capture(&[LinkType::RAW; 2], &self.packets);
        let left = self.directory.packets(&sent);
        let new = left[self.left..].to_vec();
        self.left = left.len();
        new
    }

    /// Sends a datagram; returns the ends and the text of the only one that leaves.
    fn tell(&mut self, interface: usize, from: End, to: End, text: &str) -> (End, End, String) {
        let mut left = self.send(interface, udp(from, to, text.as_bytes()));
        assert_eq!(left.len(), 1, "{text}");
        let Packet { interface: by, frame, .. } = left.remove(0);
        assert_eq!(by, 1 - interface);
        let (source, destination) = endpoints(&frame);
        (source, destination, String::from_utf8_lossy(&frame[28..]).into_owned())
    }

    /// The destination that a datagram from outside reaches.
    fn reaches(&mut self, from: End, to: End) -> Option<End> {
        let left = self.send(OUTSIDE, udp(from, to, b"media"));
        left.first().map(|packet| endpoints(&packet.frame).1)
    }

    /// The destination that a SYN from outside reaches.
    fn opens(&mut self, from: End, to: End) -> Option<End> {
        let left = self.send(OUTSIDE, syn(from, to));
        let inbound = left.iter().find(|packet| packet.interface == INSIDE);
        inbound.map(|packet| endpoints(&packet.frame).1)
    }

    /// Events with the name, and what they are about.
    fn expectations(&self) -> Vec<Value> {
        let mut events = self.directory.events("events");
        events.retain(|event| event["event"] == "alg_expectation");
        events
    }

    fn stats(&self) -> Value {
        self.directory.json("stats")
    }
}

/// A TCP connection in a conversation. Each host has its own numbers.
struct Connection {
    talk: Talk,
    /// Ends as the host inside and the host outside see them: their own, and the other's.
    ends: [(End, End); 2],
    /// Next number of each host, and the next one that it expects.
    sent: [u32; 2],
    got: [u32; 2],
}

impl Connection {
    /// Opens a connection from one interface to an end.
    fn open(talk: Talk, by: usize, from: End, to: End) -> Self {
        let mut connection =
            Self { talk, ends: [(from, to); 2], sent: [1000, 5000], got: [5000, 1000] };
        let left = connection.segment(by, SYN, b"");
        let (source, destination) = endpoints(&left[0].frame);
        connection.ends[by] = (from, to);
        connection.ends[1 - by] = (destination, source);
        for side in [INSIDE, OUTSIDE] {
            (connection.sent[side], connection.got[side]) =
                (connection.sent[side] + 1, connection.got[side] + 1);
        }
        connection.sent[1 - by] -= 1;
        connection.segment(1 - by, SYN | ACK, b"");
        connection.sent[1 - by] += 1;
        connection.segment(by, ACK, b"");
        connection
    }

    /// Sends a segment; returns the packets that leave.
    fn segment(&mut self, by: usize, flags: u8, data: &[u8]) -> Vec<Packet> {
        let (own, other) = self.ends[by];
        let acknowledged = if flags & ACK != 0 { self.got[by] } else { 0 };
        self.talk.send(by, tcp(own, other, (self.sent[by], acknowledged), flags, data))
    }

    /// Has a host send a text; returns what the other one receives. Its numbers have to be right.
    fn say(&mut self, by: usize, text: &str) -> String {
        String::from_utf8_lossy(&self.say_bytes(by, text.as_bytes())).into_owned()
    }

    /// [`Connection::say`] for bytes.
    fn say_bytes(&mut self, by: usize, bytes: &[u8]) -> Vec<u8> {
        let left = self.segment(by, ACK, bytes);
        self.sent[by] += bytes.len() as u32;
        let mut heard = Vec::new();
        // Errors about strangers' SYNs leave seconds later.
        let is_heard =
            |packet: &&Packet| packet.interface != by && packet.frame[9] == protocol::TCP;
        for Packet { frame, .. } in left.iter().filter(is_heard) {
            endpoints(frame);
            let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
            let data = &frame[20 + usize::from(frame[32] >> 4) * 4..];
            assert_eq!((number(24), number(28)), (self.got[1 - by], self.sent[1 - by]));
            self.got[1 - by] += data.len() as u32;
            heard.extend(data);
        }
        heard
    }
}

fn tcp(from: End, to: End, (number, acknowledged): (u32, u32), flags: u8, data: &[u8]) -> Vec<u8> {
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    let numbers = [number.to_be_bytes(), acknowledged.to_be_bytes()].concat();
    let rest = [0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    let transport = [&ports[..], &numbers, &rest, data].concat();
    ipv4(protocol::TCP, from.0, to.0, &transport, 16)
}

/// The end in a text of six numbers with commas.
fn six(text: &str) -> End {
    let digits = text.trim_matches(|c: char| !c.is_ascii_digit());
    let numbers: Vec<u16> = digits.split(',').map(|part| part.parse().unwrap()).collect();
    let [a, b, c, d, high, low] = numbers[..] else { panic!("{text}") };
    (Ipv4Addr::new(a as u8, b as u8, c as u8, d as u8), high << 8 | low)
}

fn server(port: u16) -> End {
    (SERVER.0, port)
}

#[test]
fn without_a_gateway_every_byte_passes() {
    let talk = Talk::new("alg-off", "");
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(21));
    connection.say(OUTSIDE, "220 ready\r\n");
    let text = "PORT 10,0,0,5,200,13\r\n";
    assert_eq!(connection.say(INSIDE, text), text);
    assert_eq!(connection.talk.expectations(), [Value::Null; 0]);
    assert_eq!(connection.talk.stats()["alg_refused"], Value::Null);
}

#[test]
fn an_active_client_of_ftp_is_reached_by_its_server() {
    let talk = Talk::new("alg-ftp-active", ALL);
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(21));
    connection.say(OUTSIDE, "220 ready\r\n");
    for (round, port) in [(0, 51_213_u16), (1, 51_214), (2, 51_215)] {
        let (high, low) = (port >> 8, port & 0xff);
        let text = match round {
            1 => format!("EPRT |1|10.0.0.5|{port}|\r\n"),
            _ => format!("PORT 10,0,0,5,{high},{low}\r\n"),
        };
        let heard = connection.say(INSIDE, &text);
        let data = match round {
            1 => {
                let parts: Vec<&str> = heard.trim_end().split('|').collect();
                (parts[2].parse().unwrap(), parts[3].parse().unwrap())
            }
            _ => six(&heard),
        };
        assert!(data.0 == EXTERNAL && heard.len() != text.len(), "{heard}");
        connection.say(OUTSIDE, "200 ok\r\n");
        assert_eq!(connection.talk.opens((STRANGER, 20), data), None);
        assert_eq!(connection.talk.opens(server(20), data), Some((CLIENT.0, port)));
    }
    let expected = connection.talk.expectations();
    assert_eq!(expected.len(), 3);
    let Value::String(external) = &expected[0]["mapping"]["external"] else { panic!() };
    assert!(external.starts_with("203.0.113.1:"), "{external}");
    assert_eq!(
        expected[0],
        json!({
            "time": 1_700_000_004.0, "event": "alg_expectation", "kind": "ftp",
            "subscriber": "10.0.0.5", "remote": "198.51.100.7",
            "mapping": {
                "protocol": "tcp", "internal": "10.0.0.5:51213", "external": external,
            },
        })
    );
    let stats = connection.talk.stats();
    assert_eq!(stats["alg_expectations"]["ftp"], 3);
    let all: u64 = stats["packets"].as_object().unwrap().values().fold(0, |sum, way| {
        sum + way.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>()
    });
    assert_eq!(all as usize, connection.talk.packets.len(), "every packet is counted once");
}

#[test]
fn an_expectation_for_one_flow_is_used_up() {
    let strict = "[nat]\nfiltering = \"address-and-port-dependent\"\n";
    let talk = Talk::new("alg-once", &format!("{strict}{ALL}"));
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(21));
    connection.say(OUTSIDE, "220 ready\r\n");
    let data = six(&connection.say(INSIDE, "PORT 10,0,0,5,200,13\r\n"));
    let inside = Some((CLIENT.0, 51_213));
    assert_eq!(connection.talk.opens(server(20), data), inside);
    assert_eq!(connection.talk.opens(server(20), data), inside, "the same flow");
    assert_eq!(connection.talk.opens(server(2000), data), None, "another flow");
}

#[test]
fn a_passive_client_of_ftp_needs_nothing() {
    let talk = Talk::new("alg-ftp-passive", ALL);
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(21));
    connection.say(OUTSIDE, "220 ready\r\n");
    for (command, reply) in [
        ("PASV\r\n", "227 Entering Passive Mode (198,51,100,7,200,13)\r\n"),
        ("EPSV\r\n", "229 Entering Extended Passive Mode (|||51213|)\r\n"),
    ] {
        assert_eq!(connection.say(INSIDE, command), command);
        assert_eq!(connection.say(OUTSIDE, reply), reply);
    }
    assert_eq!(connection.talk.expectations(), [Value::Null; 0]);
}

const FORWARDED: &str = "[[static]]\nprotocol = \"tcp\"\ninternal = \"10.0.0.80:21\"\n\
                         external = \"203.0.113.1:21\"\n";

#[test]
fn a_server_of_ftp_inside_serves_active_and_passive_clients() {
    let talk = Talk::new("alg-ftp-server", &format!("{FORWARDED}{ALL}"));
    let client = (SERVER.0, 40_000);
    let mut connection = Connection::open(talk, OUTSIDE, client, (EXTERNAL, 21));
    connection.say(INSIDE, "220 ready\r\n");
    connection.say(OUTSIDE, "PASV\r\n");
    let reply = "227 Entering Passive Mode (10,0,0,80,200,13).\r\n";
    let heard = connection.say(INSIDE, reply);
    let data = six(&heard[heard.find('(').unwrap()..]);
    assert_eq!(data.0, EXTERNAL, "{heard}");
    let inside = |port| Some((Ipv4Addr::new(10, 0, 0, 80), port));
    assert_eq!(connection.talk.opens((client.0, 4444), data), inside(51_213));
    connection.say(OUTSIDE, "EPSV\r\n");
    let heard = connection.say(INSIDE, "229 Extended Passive Mode (|||51214|)\r\n");
    let port = heard.split('|').nth(3).unwrap().parse().unwrap();
    assert_eq!(connection.talk.opens((STRANGER, 4445), (EXTERNAL, port)), None);
    assert_eq!(connection.talk.opens((client.0, 4445), (EXTERNAL, port)), inside(51_214));
    // An active client outside names its own address.
    let active = "PORT 198,51,100,7,200,13\r\n";
    assert_eq!(connection.say(OUTSIDE, active), active);
}

#[test]
fn a_server_of_tftp_answers_from_another_port() {
    let mut talk = Talk::new("alg-tftp", ALL);
    let (external, _, _) = talk.tell(INSIDE, CLIENT, server(69), "\0\u{1}boot.img\0octet\0");
    assert_eq!(talk.reaches((STRANGER, 2000), external), None);
    assert_eq!(talk.reaches(server(2000), external), Some(CLIENT));
    let expected = talk.expectations();
    assert_eq!(
        (&expected[0]["kind"], &expected[0]["remote"]),
        (&json!("tftp"), &json!("198.51.100.7"))
    );
    assert_eq!(expected[0]["mapping"]["internal"], "10.0.0.5:40000");
}

#[test]
fn media_of_a_call_by_sip_come_in() {
    let mut talk = Talk::new("alg-sip", ALL);
    let body = "v=0\r\no=- 1 1 IN IP4 10.0.0.5\r\ns=-\r\nc=IN IP4 10.0.0.5\r\nt=0 0\r\n\
                m=audio 41000 RTP/AVP 0\r\n";
    let invite = format!(
        "INVITE sip:b@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.5:40000;branch=z9hG4bK1\r\n\
         From: <sip:a@10.0.0.5>;tag=1\r\nTo: <sip:b@example.org>\r\nCall-ID: 1\r\n\
         CSeq: 1 INVITE\r\nContact: <sip:a@10.0.0.5:40000>\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (external, _, heard) = talk.tell(INSIDE, CLIENT, server(5060), &invite);
    assert!(heard.contains(&format!("Contact: <sip:a@203.0.113.1:{}>", external.1)), "{heard}");
    assert!(heard.contains("c=IN IP4 203.0.113.1\r\n"), "{heard}");
    let (headers, body) = heard.split_once("\r\n\r\n").unwrap();
    assert!(headers.ends_with(&format!("Content-Length: {}", body.len())), "{heard}");
    let media = body.split("m=audio ").nth(1).unwrap().split(' ').next().unwrap();
    let media: u16 = media.parse().unwrap();
    assert_eq!(media % 2, 0);
    for (port, inside) in [(media, 41_000), (media + 1, 41_001)] {
        assert_eq!(talk.reaches((STRANGER, 7000), (EXTERNAL, port)), Some((CLIENT.0, inside)));
    }
    let internal: Vec<Value> =
        talk.expectations().iter().map(|event| event["mapping"]["internal"].clone()).collect();
    assert!(internal.contains(&json!("10.0.0.5:41001")), "{internal:?}");
}

#[test]
fn streams_of_rtsp_come_in() {
    let talk = Talk::new("alg-rtsp", ALL);
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(554));
    let setup = "SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\n\
                 Transport: RTP/AVP;unicast;client_port=4588-4589\r\n\r\n";
    let heard = connection.say(INSIDE, setup);
    let ports = heard.split("client_port=").nth(1).unwrap().split('\r').next().unwrap();
    let first: u16 = ports.split('-').next().unwrap().parse().unwrap();
    let talk = &mut connection.talk;
    assert_eq!(talk.reaches(server(6256), (EXTERNAL, first)), Some((CLIENT.0, 4588)));
    assert_eq!(talk.reaches(server(6257), (EXTERNAL, first + 1)), Some((CLIENT.0, 4589)));
    assert_eq!(talk.reaches((STRANGER, 6256), (EXTERNAL, first)), None);
}

#[test]
fn an_offer_by_irc_is_taken() {
    let talk = Talk::new("alg-irc", ALL);
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(6667));
    connection.say(INSIDE, "NICK a\r\nUSER a 0 * :a\r\n");
    connection.say(OUTSIDE, ":server 001 a :Welcome\r\n");
    let own = CLIENT.0.to_bits();
    let heard =
        connection.say(INSIDE, &format!("PRIVMSG b :\u{1}DCC SEND a {own} 5000 9\u{1}\r\n"));
    let words: Vec<&str> = heard.split(' ').collect();
    assert_eq!(words[5], EXTERNAL.to_bits().to_string(), "{heard}");
    let port = words[6].parse().unwrap();
    assert_eq!(connection.talk.opens((STRANGER, 999), (EXTERNAL, port)), Some((CLIENT.0, 5000)));
}

#[test]
fn what_is_refused_is_counted_and_opens_nothing() {
    let talk = Talk::new("alg-refused", ALL);
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(21));
    connection.say(OUTSIDE, "220 ready\r\n");
    for text in ["PORT 10,0,0,6,200,13\r\n", "PORT 10,0,0,5,0,22\r\n"] {
        assert_eq!(connection.say(INSIDE, text), text);
        connection.say(OUTSIDE, "500 no\r\n");
    }
    let stats = connection.talk.stats();
    let refused = &stats["alg_refused"]["ftp"];
    assert_eq!((&refused["foreign_address"], &refused["low_port"]), (&json!(1), &json!(1)));
    assert_eq!(stats["alg_expectations"]["ftp"], 0);
    assert_eq!(connection.talk.expectations(), [Value::Null; 0]);
}

#[test]
fn ipv6_beside_ipv4_changes_nothing() {
    let tables = format!("[ipv6]\n{ALL}");
    let talk = Talk::new("alg-ipv6", &tables);
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(21));
    connection.say(OUTSIDE, "220 ready\r\n");
    let data = six(&connection.say(INSIDE, "PORT 10,0,0,5,200,13\r\n"));
    assert_eq!(data.0, EXTERNAL);
    assert_eq!(connection.talk.opens(server(20), data), Some((CLIENT.0, 51_213)));
}

#[test]
fn a_fragmented_message_is_not_read() {
    let mut talk = Talk::new("alg-fragment", ALL);
    let whole = udp(CLIENT, server(69), b"\0\x01boot.img\0octet\0and more of it");
    for fragment in fragments(&whole, 24) {
        let left = talk.send(INSIDE, fragment);
        assert!(left.iter().all(|packet| Ipv4::new_header_checked(&packet.frame[..]).is_ok()));
    }
    assert_eq!(talk.stats()["alg_refused"]["tftp"]["fragment"], 1);
    assert_eq!(talk.expectations(), [Value::Null; 0]);
}

/// The step of an explanation about its payload.
fn alg_step(explained: &Value) -> Option<&Value> {
    explained["steps"].as_array()?.iter().find(|step| step["step"] == "alg")
}

#[test]
fn payloads_of_a_capture_are_explained() {
    let directory = Directory::new("alg-trace");
    directory.write("natgate.toml", format!("{CONFIG}{ALL}").as_bytes());
    let server = |port| (SERVER.0, port);
    let request = b"\0\x01boot.img\0octet\0";
    let packets = [
        packet(INSIDE, 0, udp(CLIENT, server(69), request)),
        packet(INSIDE, 0, udp(CLIENT, server(69), b"GET / HTTP/1.1")),
        packet(INSIDE, 0, udp(CLIENT, server(53), request)),
        packet(OUTSIDE, 0, udp(server(69), CLIENT, request)),
    ];
    directory.write("in", &capture(&[LinkType::RAW; 2], &packets));
    let trace = |more: &[&str]| {
        let arguments = [&["trace", "-c", "natgate.toml", "--read", "in"], more].concat();
        let output = directory.natgate(&arguments).output().unwrap();
        assert_succeeded(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    let explained: Vec<Value> =
        trace(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(explained.len(), 4);
    assert_eq!((&explained[3]["number"], &explained[3]["from"]), (&json!(4), &json!("outside")));
    let first = alg_step(&explained[0]).unwrap();
    assert_eq!((&first["alg"], &first["flow"]), (&json!("tftp"), &json!("begins")));
    assert_eq!(
        first["expectations"],
        json!([{
            "protocol": "udp", "internal": "10.0.0.5:40000", "external": "DRAWN",
            "remote": SERVER.0.to_string(), "lifetime_s": 30, "once": true,
        }])
    );
    assert_eq!(alg_step(&explained[1]).unwrap()["refused"], json!(["not_protocol"]));
    assert_eq!((alg_step(&explained[2]), alg_step(&explained[3])), (None, None));
    let text = trace(&[]);
    assert!(text.contains("it would begin a control flow of tftp; it would expect udp from "));
    assert!(text.contains("packet 4\n"), "{text}");
}

#[test]
fn a_rule_leaves_a_protocol_out() {
    let rule = "[[rule]]\nkind = \"snat\"\npool = \"default\"\nmatch = { source = \"10.0.0.5\" }\n";
    let tables = format!("{ALL}{rule}alg = [\"tftp\"]\n");
    let talk = Talk::new("alg-rule", &tables);
    let mut connection = Connection::open(talk, INSIDE, CLIENT, server(21));
    connection.say(OUTSIDE, "220 ready\r\n");
    let text = "PORT 10,0,0,5,200,13\r\n";
    assert_eq!(connection.say(INSIDE, text), text);
    assert_eq!(connection.talk.stats()["alg_refused"]["ftp"]["rule"], 1);
    assert_eq!(connection.talk.expectations(), [Value::Null; 0]);
    let mut talk = connection.talk;
    talk.tell(INSIDE, CLIENT, server(69), "\0\x01boot.img\0octet\0");
    assert_eq!(talk.expectations().len(), 1);
    talk.directory.write("in", &capture(&[LinkType::RAW; 2], &talk.packets[..1]));
    let output =
        talk.directory.natgate(&["trace", "-c", "natgate.toml", "--read", "in"]).output().unwrap();
    assert_succeeded(&output);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("it looks like ftp, but its rule leaves ftp out, so it passes unread"));
}

const DNS: &str = "[alg]\ndns = true\n\
    [[static]]\ninternal = \"10.0.0.80\"\nexternal = \"203.0.113.80\"\n\
    [[static]]\ninternal = \"10.0.0.53:53\"\nexternal = \"203.0.113.53:5353\"\n\
    [[rule]]\nkind = \"dnat\"\nmatch = { destination = \"172.20.0.0/16\" }\nto = \"10.5.0.0/16\"\n";

/// A message of DNS: a question, and a record if there is data. An answer has the flag 128.
fn dns(flags: u8, name: &str, type_of: u8, data: &[u8]) -> Vec<u8> {
    let count = u8::from(!data.is_empty());
    let mut message = vec![0, 9, flags, 0, 0, 1, 0, count, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.extend([0, 0, type_of, 0, 1]);
    if count == 1 {
        message.extend([0xc0, 12, 0, type_of, 0, 1, 0, 0, 1, 44, 0, data.len() as u8]);
        message.extend(data);
    }
    message
}

impl Talk {
    /// Sends a datagram; returns the ends and the data of the only one that leaves.
    fn exchange(&mut self, by: usize, from: End, to: End, data: &[u8]) -> (End, End, Vec<u8>) {
        let mut left = self.send(by, udp(from, to, data));
        assert_eq!(left.len(), 1, "{data:?}");
        let Packet { interface, frame, .. } = left.remove(0);
        assert_eq!(interface, 1 - by);
        let (source, destination) = endpoints(&frame);
        (source, destination, frame[28..].to_vec())
    }
}

const WEB: [u8; 4] = [10, 0, 0, 80];
const WEB_OUTSIDE: [u8; 4] = [203, 0, 113, 80];

#[test]
fn a_client_of_dns_gets_the_addresses_that_it_sees() {
    let mut talk = Talk::new("alg-dns-client", DNS);
    let question = dns(1, "www.example.net", 1, &[]);
    let (external, _, heard) = talk.exchange(INSIDE, CLIENT, server(53), &question);
    assert_eq!(heard, question);
    for (outside, inside) in [
        (WEB_OUTSIDE, WEB),
        ([10, 5, 0, 7], [172, 20, 0, 7]),
        ([203, 0, 113, 53], [203, 0, 113, 53]),
        ([192, 0, 2, 9], [192, 0, 2, 9]),
    ] {
        let answer = dns(128, "www.example.net", 1, &outside);
        let (_, to, heard) = talk.exchange(OUTSIDE, server(53), external, &answer);
        assert_eq!((to, heard), (CLIENT, dns(128, "www.example.net", 1, &inside)));
    }
    let (inside, outside) = ("80.0.0.10.in-addr.arpa", "80.113.0.203.in-addr.arpa");
    let (_, _, heard) = talk.exchange(INSIDE, CLIENT, server(53), &dns(1, inside, 12, &[]));
    assert_eq!(heard, dns(1, outside, 12, &[]));
    let answer = dns(128, outside, 12, &[1, b'w', 0]);
    let (_, _, heard) = talk.exchange(OUTSIDE, server(53), external, &answer);
    assert_eq!(heard, dns(128, inside, 12, &[1, b'w', 0]));
    let (_, _, heard) = talk.exchange(OUTSIDE, server(53), external, &answer[..40]);
    assert_eq!(heard, &answer[..40]);
    assert_eq!(talk.stats()["alg_refused"]["dns"]["truncated"], 1);
    assert_eq!(talk.expectations(), [Value::Null; 0]);
    assert_eq!(talk.stats()["alg_expectations"]["dns"], 0);
}

#[test]
fn a_server_of_dns_inside_tells_the_outside_what_it_reaches() {
    let mut talk = Talk::new("alg-dns-server", DNS);
    let (own, external) =
        ((Ipv4Addr::new(10, 0, 0, 53), 53), (Ipv4Addr::new(203, 0, 113, 53), 5353));
    let question = dns(1, "80.113.0.203.in-addr.arpa", 12, &[]);
    let (_, to, heard) = talk.exchange(OUTSIDE, server(4000), external, &question);
    assert_eq!((to, heard), (own, dns(1, "80.0.0.10.in-addr.arpa", 12, &[])));
    let answer = dns(128, "80.0.0.10.in-addr.arpa", 12, &[1, b'w', 0]);
    let (from, _, heard) = talk.exchange(INSIDE, own, server(4000), &answer);
    assert_eq!(from, external);
    assert_eq!(heard, dns(128, "80.113.0.203.in-addr.arpa", 12, &[1, b'w', 0]));
    for (inside, outside) in [
        (WEB, WEB_OUTSIDE),
        ([10, 0, 0, 53], [203, 0, 113, 53]),
        ([172, 20, 0, 7], [10, 5, 0, 7]),
        ([10, 0, 0, 99], [10, 0, 0, 99]),
    ] {
        let answer = dns(128, "www.example.net", 1, &inside);
        let (_, _, heard) = talk.exchange(INSIDE, own, server(4000), &answer);
        assert_eq!(heard, dns(128, "www.example.net", 1, &outside));
    }
}

#[test]
fn dns_is_read_if_a_rule_translates_its_destination_unless_a_rule_leaves_it_out() {
    let redirected = "[[rule]]\nkind = \"dnat\"\nmatch = { destination = \"0.0.0.0/0\", \
                      port = 53 }\nto = \"198.51.100.7:5353\"\n";
    let without = "[[rule]]\nkind = \"snat\"\npool = \"default\"\nalg = []\n\
                   match = { destination = \"8.8.8.8\", port = 53 }\n";
    for (more, told) in [("", WEB), (without, WEB_OUTSIDE)] {
        let mut talk = Talk::new("alg-dns-twice", &format!("{DNS}{redirected}{more}"));
        let asked = (Ipv4Addr::new(8, 8, 8, 8), 53);
        let question = dns(1, "www.example.net", 1, &[]);
        let (external, to, _) = talk.exchange(INSIDE, CLIENT, asked, &question);
        assert_eq!(to, server(5353));
        let answer = dns(128, "www.example.net", 1, &WEB_OUTSIDE);
        let (from, _, heard) = talk.exchange(OUTSIDE, to, external, &answer);
        assert_eq!((from, heard), (asked, dns(128, "www.example.net", 1, &told)));
    }
}

#[test]
fn answers_of_dns_are_explained() {
    let directory = Directory::new("alg-dns-trace");
    directory.write("natgate.toml", format!("{CONFIG}{DNS}").as_bytes());
    let own = (Ipv4Addr::new(10, 0, 0, 53), 53);
    let answer = dns(128, "www.example.net", 1, &WEB);
    let packets = [packet(INSIDE, 0, udp(own, server(4000), &answer))];
    directory.write("in", &capture(&[LinkType::RAW; 2], &packets));
    let arguments = ["trace", "-c", "natgate.toml", "--read", "in", "--json"];
    let output = directory.natgate(&arguments).output().unwrap();
    assert_succeeded(&output);
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    let step = alg_step(&explained).unwrap();
    assert_eq!(step["alg"], "dns");
    assert_eq!(step["edits"].as_array().unwrap().len(), 1);
}
