//! PPTP in a capture: control connections, and enhanced GRE in both directions.

use super::*;
use std::collections::BTreeSet;

const PPTP: &str = "[alg]\npptp = true\n";
const STATIC: &str = "[[static]]\nprotocol = \"tcp\"\ninternal = \"10.0.0.80:1723\"\n\
                      external = \"203.0.113.9:1723\"\n";

fn message(kind: u16, len: u16, words: &[u16]) -> Vec<u8> {
    let mut bytes = [len, 1, 0x1a2b, 0x3c4d, kind, 0].map(u16::to_be_bytes).concat();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(len.into(), 0);
    bytes
}

/// Enhanced GRE with a sequence number.
fn gre(from: Ipv4Addr, to: Ipv4Addr, call: u16) -> Vec<u8> {
    let payload = [0x3001, 0x880b, 4, call, 0, 5, 0xff03, 0xc021].map(u16::to_be_bytes).concat();
    let mut packet = ipv4(protocol::GRE, from, to, &payload, 12);
    packet[32..34].copy_from_slice(&[0xff, 3]);
    packet
}

/// Addresses and Call ID of the only packet, which leaves by the other interface.
fn carried(left: &[Packet], by: usize) -> Option<(Ipv4Addr, Ipv4Addr, u16)> {
    let left: Vec<_> = left.iter().filter(|packet| packet.frame[9] == protocol::GRE).collect();
    let [Packet { interface, frame, .. }] = left[..] else { return None };
    let ip = Ipv4::new_checked(&frame[..]).unwrap();
    assert!(*interface == 1 - by && ip.checksum_valid() && ip.ttl() == 63);
    let sent = gre(ip.source().into(), ip.destination().into(), 0);
    assert_eq!((&frame[20..26], &frame[28..]), (&sent[20..26], &sent[28..]));
    let call = u16::from_be_bytes([frame[26], frame[27]]);
    Some((ip.source().into(), ip.destination().into(), call))
}

/// A client has placed a call with number 7; the server has number 9000. Also the external number.
fn called(test: &str) -> (Connection, u16) {
    let mut connection = Connection::open(Talk::new(test, PPTP), INSIDE, CLIENT, server(1723));
    connection.say_bytes(INSIDE, &message(1, 156, &[0x100]));
    connection.say_bytes(OUTSIDE, &message(2, 156, &[0x100]));
    let heard = connection.say_bytes(INSIDE, &message(7, 168, &[7, 1]));
    let outer = u16::from_be_bytes([heard[12], heard[13]]);
    assert_eq!(heard, message(7, 168, &[outer, 1]));
    let reply = connection.say_bytes(OUTSIDE, &message(8, 32, &[9000, outer, 0x100]));
    assert_eq!(reply, message(8, 32, &[9000, 7, 0x100]));
    (connection, outer)
}

#[test]
fn a_client_has_a_tunnel_until_its_call_ends() {
    let (mut connection, outer) = called("alg-pptp-client");
    let mut events = connection.talk.expectations();
    let expected = events.remove(0);
    assert_eq!(
        expected,
        json!({
            "time": 1_700_000_005.0, "event": "alg_expectation", "kind": "pptp",
            "subscriber": "10.0.0.5", "remote": "198.51.100.7",
            "mapping": {
                "protocol": "gre", "internal": "10.0.0.5:7",
                "external": format!("203.0.113.1:{outer}"),
            },
        })
    );
    assert_eq!(events, [Value::Null; 0]);
    let left = connection.talk.send(INSIDE, gre(CLIENT.0, SERVER.0, 9000));
    assert_eq!(carried(&left, INSIDE), Some((EXTERNAL, SERVER.0, 9000)));
    let back = gre(SERVER.0, EXTERNAL, outer);
    let left = connection.talk.send(OUTSIDE, back.clone());
    assert_eq!(carried(&left, OUTSIDE), Some((SERVER.0, CLIENT.0, 7)));
    // A stranger, and another number.
    for packet in [gre(STRANGER, EXTERNAL, outer), gre(SERVER.0, EXTERNAL, outer ^ 1)] {
        assert_eq!(connection.talk.send(OUTSIDE, packet), []);
    }
    let stats = connection.talk.stats();
    assert_eq!(stats["alg_expectations"]["pptp"], 1);
    let all: u64 = stats["packets"].as_object().unwrap().values().fold(0, |sum, way| {
        sum + way.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>()
    });
    assert_eq!(all as usize, connection.talk.packets.len(), "every packet is counted once");
    assert_eq!(stats["packets"]["inbound"]["dropped"], 2);
    connection.say_bytes(INSIDE, &message(12, 16, &[7]));
    connection.say_bytes(OUTSIDE, &message(13, 148, &[9000]));
    assert_eq!(carried(&connection.talk.send(OUTSIDE, back), OUTSIDE), None);
}

#[test]
fn a_server_inside_takes_calls() {
    let talk = Talk::new("alg-pptp-server", &format!("{PPTP}{STATIC}"));
    let (own, external) =
        ((Ipv4Addr::new(10, 0, 0, 80), 1723), (Ipv4Addr::new(203, 0, 113, 9), 1723));
    let mut connection = Connection::open(talk, OUTSIDE, server(5000), external);
    let request = message(7, 168, &[9000, 1]);
    assert_eq!(connection.say_bytes(OUTSIDE, &request), request);
    let heard = connection.say_bytes(INSIDE, &message(8, 32, &[1, 9000, 0x100]));
    let outer = u16::from_be_bytes([heard[12], heard[13]]);
    assert_eq!(heard, message(8, 32, &[outer, 9000, 0x100]));
    let info = connection.say_bytes(OUTSIDE, &message(15, 24, &[outer, 0]));
    assert_eq!(info, message(15, 24, &[1, 0]));
    let left = connection.talk.send(OUTSIDE, gre(SERVER.0, external.0, outer));
    assert_eq!(carried(&left, OUTSIDE), Some((SERVER.0, own.0, 1)));
    let left = connection.talk.send(INSIDE, gre(own.0, SERVER.0, 9000));
    assert_eq!(carried(&left, INSIDE), Some((external.0, SERVER.0, 9000)));
    assert_eq!(connection.talk.expectations().len(), 1);
}

/// All packets of one replay. The seed draws the same numbers again, so the second replay has the
/// answers and the tunnels.
#[test]
fn a_thousand_subscribers_with_the_same_number_call_one_server() {
    let directory = Directory::new("alg-pptp-thousand");
    directory.write("natgate.toml", format!("{CONFIG}{PPTP}").as_bytes());
    let host = |number: u16| Ipv4Addr::new(10, 1, (number >> 8) as u8, number as u8);
    let (server, mut packets) = (server(1723), Vec::new());
    for number in 0..1000 {
        packets.push(packet(INSIDE, 0, tcp((host(number), 4000), server, (1, 0), SYN, &[])));
    }
    let left = directory.packets(&raw(&packets));
    assert_eq!(left.len(), 1000);
    let clients: Vec<End> = left.iter().map(|packet| endpoints(&packet.frame).0).collect();
    for (number, client) in (0..).zip(&clients) {
        packets.push(packet(OUTSIDE, 0, tcp(server, *client, (1, 2), SYN | ACK, &[])));
        let request = message(7, 168, &[1, 1]);
        packets.push(packet(INSIDE, 0, tcp((host(number), 4000), server, (2, 2), ACK, &request)));
    }
    let left = directory.packets(&raw(&packets));
    let requests = left.iter().filter(|packet| packet.frame.len() == 40 + 168);
    let outers: Vec<u16> =
        requests.map(|packet| u16::from_be_bytes([packet.frame[52], packet.frame[53]])).collect();
    assert_eq!(outers.iter().collect::<BTreeSet<_>>().len(), 1000);
    for ((number, client), outer) in (0..).zip(&clients).zip(&outers) {
        let reply = message(8, 32, &[5000 + number, *outer, 0x100]);
        packets.push(packet(OUTSIDE, SECOND, tcp(server, *client, (2, 170), ACK, &reply)));
    }
    for (number, outer) in (0..).zip(&outers) {
        packets.push(packet(INSIDE, 2 * SECOND, gre(host(number), SERVER.0, 5000 + number)));
        packets.push(packet(OUTSIDE, 2 * SECOND, gre(SERVER.0, EXTERNAL, *outer)));
    }
    let left = directory.packets(&raw(&packets));
    let tunnels: Vec<_> =
        left.iter().filter(|packet| packet.frame[9] == protocol::GRE).cloned().collect();
    assert_eq!(tunnels.len(), 2000);
    for (number, both) in (0..).zip(tunnels.chunks(2)) {
        let out = carried(&both[..1], INSIDE);
        assert_eq!(out, Some((EXTERNAL, SERVER.0, 5000 + number)));
        assert_eq!(carried(&both[1..], OUTSIDE), Some((SERVER.0, host(number), 1)));
    }
    let replies = left.iter().filter(|packet| packet.frame.len() == 40 + 32);
    assert!(replies.clone().count() == 1000);
    replies.for_each(|packet| assert_eq!(packet.frame[54..56], [0, 1]));
    let refused = &directory.json("stats")["alg_refused"]["pptp"];
    assert!(refused.as_object().unwrap().values().all(|count| *count == 0), "{refused}");
}

#[test]
fn without_the_gateway_gre_goes_by_address() {
    for tables in ["", "[alg]\nftp = true\n"] {
        let talk = Talk::new("alg-pptp-off", tables);
        let mut connection = Connection::open(talk, INSIDE, CLIENT, server(1723));
        let request = message(7, 168, &[7, 1]);
        assert_eq!(connection.say_bytes(INSIDE, &request), request);
        let left = connection.talk.send(INSIDE, gre(CLIENT.0, SERVER.0, 9000));
        assert_eq!(carried(&left, INSIDE), Some((EXTERNAL, SERVER.0, 9000)));
        let left = connection.talk.send(OUTSIDE, gre(SERVER.0, EXTERNAL, 7));
        assert_eq!(carried(&left, OUTSIDE), Some((SERVER.0, CLIENT.0, 7)));
        assert_eq!(connection.talk.expectations(), [Value::Null; 0]);
    }
}

#[test]
fn gre_without_a_call_goes_by_address_although_the_gateway_is_on() {
    let (mut connection, _) = called("alg-pptp-plain");
    let other = Ipv4Addr::new(198, 51, 100, 8);
    let left = connection.talk.send(INSIDE, gre(CLIENT.0, other, 5));
    assert_eq!(carried(&left, INSIDE), Some((EXTERNAL, other, 5)));
    let left = connection.talk.send(OUTSIDE, gre(other, EXTERNAL, 77));
    assert_eq!(carried(&left, OUTSIDE), Some((other, CLIENT.0, 77)));
}

#[test]
fn a_request_for_a_call_is_explained() {
    let directory = Directory::new("alg-pptp-trace");
    let pickup = "[nat]\ntcp_pickup = true\n";
    directory.write("natgate.toml", format!("{CONFIG}{PPTP}{pickup}").as_bytes());
    let request = [message(7, 168, &[7, 1]), message(12, 16, &[7])].concat();
    let packets = [packet(INSIDE, 0, tcp(CLIENT, server(1723), (2, 2), ACK, &request))];
    directory.write("in", &capture(&[LinkType::RAW; 2], &packets));
    let trace = |more: &[&str]| {
        let toml = ["trace", "-c", "natgate.toml", "--read", "in"];
        let arguments = [&toml[..], more].concat();
        String::from_utf8(directory.natgate(&arguments).output().unwrap().stdout).unwrap()
    };
    let explained: Value = serde_json::from_str(&trace(&["--json"])).unwrap();
    let Some(step) = alg_step(&explained) else { panic!("{explained}") };
    assert_eq!((&step["alg"], &step["flow"]), (&json!("pptp"), &json!("unknown")));
    assert_eq!(step["edits"], json!([{ "old": "7", "new": "DRAWN" }]));
    assert_eq!(step["expectations"][0]["protocol"], "gre");
    assert_eq!(step["expectations"][0]["internal"], "10.0.0.5:7");
    let text = trace(&[]);
    assert!(text.contains("\"7\" would become \"DRAWN\"; it would expect gre from "), "{text}");
}
