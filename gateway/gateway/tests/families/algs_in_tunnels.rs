//! Clients behind B4s of DS-Lite: messages in tunnels are edited as those of IPv4 hosts.

use super::world::*;
use natgate_engine::{Allocation, Behavior, Change, Event, Prefix, Side};
use natgate_gateway::ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_gateway::{AlgKind, AlgSettings, Settings};

pub(crate) const AFTR: &str = "2001:db8:ffff::78";
pub(crate) const B4: &str = "2001:db8:b4::1";
pub(crate) const OTHER_B4: &str = "2001:db8:b4::2";
pub(crate) const INNER: &str = "10.0.0.9";
pub(crate) const SERVER: &str = "198.51.100.7";
pub(crate) const EXTERNAL: &str = "203.0.113.1";
pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;

fn settings() -> Settings {
    settings_of(AlgKind::Ftp)
}

pub(crate) fn settings_of(kind: AlgKind) -> Settings {
    let mut settings = super::world::settings();
    settings.ipv6.dslite = Some(DsliteSettings {
        subscriber_length: 128,
        b4_change_interval: std::time::Duration::ZERO,
        address: AFTR.parse().unwrap(),
        b4: vec![prefix6("2001:db8:b4::", 48)],
        softwire: SoftwireSettings { mtu: Some(1280), path_mtu: true },
        static_hosts: Vec::new(),
    });
    settings.engine.filtering = Behavior::AddressAndPortDependent;
    settings.engine.subscribers = vec![Prefix::new([10, 0, 0, 0].into(), 8)];
    settings.alg.set(kind, AlgSettings::usual_ports(kind).to_vec());
    settings.alg.reserve(&mut settings.engine.limits);
    settings
}

pub(crate) fn in_tunnel(b4: &str, segment: &[u8]) -> Vec<u8> {
    in_tunnel_by(TCP, b4, segment)
}

pub(crate) fn in_tunnel_by(protocol: u8, b4: &str, bytes: &[u8]) -> Vec<u8> {
    raw6(v6(b4), v6(AFTR), 4, &ip4(INNER, SERVER, protocol, bytes))
}

/// The data of an IPv4 packet's segment.
fn text(packet: &[u8]) -> String {
    let data = 20 + usize::from(packet[32] >> 4) * 4;
    String::from_utf8_lossy(&packet[data..]).into_owned()
}

/// A control connection that a client behind a B4 has opened: packets, and the external port.
fn connection(settings: &Settings, b4: &str) -> (Vec<Came>, u16) {
    let (mut packets, external) = connection_to(settings, b4, 21);
    let ready = segment((21, external), (5001, 1001), ACK, "220 ready\r\n");
    packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &ready)));
    (packets, external)
}

/// The same to a server that has said nothing.
fn connection_to(settings: &Settings, b4: &str, server: u16) -> (Vec<Came>, u16) {
    let syn = in_tunnel(b4, &segment((4000, server), (1000, 0), SYN, ""));
    let external = port(single(&one(settings, Side::Inside, &syn), Side::Outside), 0);
    let answer = segment((server, external), (5000, 1001), SYN | ACK, "");
    let packets = vec![
        (Side::Inside, 1.0, syn),
        (Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &answer)),
        (Side::Inside, 1.0, in_tunnel(b4, &segment((4000, server), (1001, 5001), ACK, ""))),
    ];
    (packets, external)
}

/// The external port of the mapping of an inner port.
fn made(events: &[Event], inner: u16) -> Option<u16> {
    events.iter().rev().find_map(|event| match event.change {
        Change::MappingCreated(id) if id.internal.port == inner => Some(id.external.port),
        _ => None,
    })
}

#[test]
fn a_client_behind_a_b4_fetches_in_active_mode() {
    let settings = settings();
    for b4 in [B4, OTHER_B4] {
        let (mut packets, external) = connection(&settings, b4);
        let command = "PORT 10,0,0,9,20,162\r\n";
        let bytes = segment((4000, 21), (1001, 5012), ACK, command);
        packets.push((Side::Inside, 1.0, in_tunnel(b4, &bytes)));
        let outcomes = run(&settings, &packets);
        let port_made = made(&outcomes.events, 5282).expect("a mapping");
        let [high, low] = port_made.to_be_bytes();
        let expected = format!("PORT 203,0,113,1,{high},{low}\r\n");
        let said = single(outcomes.sent.last().unwrap(), Side::Outside);
        assert_eq!((text(said), ends4(said)), (expected.clone(), ends(EXTERNAL, SERVER)));
        // The numbers of what follows fit the changed length.
        let longer = (expected.len() - command.len()) as u32;
        let numbers = (5012, 1001 + command.len() as u32 + longer);
        let bytes = segment((21, external), numbers, ACK, "200 ok\r\n");
        packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &bytes)));
        let told = run(&settings, &packets).sent.pop().unwrap();
        let told = single(&told, Side::Inside);
        assert_eq!(ends6(told), ends(AFTR, b4));
        assert_eq!(
            (text(&told[40..]), ends4(&told[40..])),
            ("200 ok\r\n".into(), ends(SERVER, INNER))
        );
        assert_eq!(told[68..72], (1001 + command.len() as u32).to_be_bytes(), "its own number");
        // The server connects, and nobody else.
        let knock = |from: &str| {
            let syn = ip4(from, EXTERNAL, TCP, &tcp(20, port_made, SYN));
            let all = [&packets[..], &[(Side::Outside, 1.0, syn)]].concat();
            run(&settings, &all).sent.pop().unwrap()
        };
        let came = knock(SERVER);
        let came = single(&came, Side::Inside);
        assert_eq!((ends6(came), ends4(&came[40..])), (ends(AFTR, b4), ends(SERVER, INNER)));
        assert_eq!(port(&came[40..], 2), 5282);
        assert!(knock("198.51.100.8").is_empty(), "another host outside");
    }
}

#[test]
fn a_client_gets_no_port_for_another_host() {
    let settings = settings();
    // Another inner host, and the number of a host in the engine.
    for command in ["PORT 10,0,0,5,20,162\r\n", "PORT 1,0,0,0,20,162\r\n"] {
        let (mut packets, _) = connection(&settings, B4);
        let bytes = segment((4000, 21), (1001, 5012), ACK, command);
        packets.push((Side::Inside, 1.0, in_tunnel(B4, &bytes)));
        let outcomes = run(&settings, &packets);
        assert_eq!(text(single(outcomes.sent.last().unwrap(), Side::Outside)), command);
        assert_eq!(made(&outcomes.events, 5282), None);
    }
}

#[test]
fn a_forged_tunnel_makes_nothing() {
    let settings = settings();
    let (mut packets, _) = connection(&settings, B4);
    let bytes = segment((4000, 21), (1001, 5012), ACK, "PORT 10,0,0,9,20,162\r\n");
    packets.push((Side::Inside, 1.0, in_tunnel("2001:db8:b5::1", &bytes)));
    let outcomes = run(&settings, &packets);
    assert!(outcomes.sent.last().unwrap().is_empty());
    assert_eq!(made(&outcomes.events, 5282), None);
    // The same from another B4, which has no connection.
    packets.pop();
    packets.push((Side::Inside, 1.0, in_tunnel(OTHER_B4, &bytes)));
    let outcomes = run(&settings, &packets);
    assert!(outcomes.sent.last().unwrap().is_empty(), "no mapping without a SYN");
    assert_eq!(made(&outcomes.events, 5282), None);
}

#[test]
fn a_long_message_to_a_client_is_cut_outside_its_tunnel() {
    let settings = settings();
    let (mut packets, external) = connection(&settings, B4);
    let long = format!("230-{}\r\n", "x".repeat(1300));
    let bytes = segment((21, external), (5012, 1001), ACK, &long);
    packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &bytes)));
    let pieces = run(&settings, &packets).sent.pop().unwrap();
    assert_eq!(pieces.len(), 2);
    assert!(pieces.iter().all(|(_, bytes)| bytes.len() <= 1280 && bytes[6] == 44));
    let inner = [&pieces[0].1[48..], &pieces[1].1[48..]].concat();
    assert_eq!((text(&inner), ends4(&inner)), (long, ends(SERVER, INNER)));
}

/// Headers between the outer and the inner packet change nothing, and neither do fragments.
#[test]
fn messages_in_tunnel_packets_that_come_in_pieces_are_read() {
    let settings = settings();
    let (packets, _) = connection(&settings, B4);
    let command = "PORT 10,0,0,9,20,162\r\n";
    let whole = in_tunnel(B4, &segment((4000, 21), (1001, 5012), ACK, command));
    let mut pieces = fragments6(&whole, 7, 32);
    assert_eq!(pieces.len(), 2);
    pieces.reverse();
    // A tunnel encapsulation limit (RFC 2473 section 4.1.1), and padding.
    let options: [u8; 8] = [4, 0, 4, 1, 4, 1, 1, 0];
    let behind = raw6(v6(B4), v6(AFTR), 60, &[&options[..], &whole[40..]].concat());
    for came in [pieces, vec![behind]] {
        let mut all = packets.clone();
        all.extend(came.into_iter().map(|packet| (Side::Inside, 1.0, packet)));
        let number = all.len() as u64;
        let outcomes = run(&settings, &all);
        let port_made = made(&outcomes.events, 5282).expect("a mapping");
        let [high, low] = port_made.to_be_bytes();
        let said = single(outcomes.sent.last().unwrap(), Side::Outside);
        assert_eq!(text(said), format!("PORT 203,0,113,1,{high},{low}\r\n"));
        assert_eq!(outcomes.counters.packets.iter().flatten().sum::<u64>(), number);
    }
}

/// What leaves for a further packet.
fn then(settings: &Settings, packets: &[Came], side: Side, packet: Vec<u8>) -> Vec<Sent> {
    let all = [packets, &[(side, 1.0, packet)]].concat();
    run(settings, &all).sent.pop().unwrap()
}

/// Where a packet of the server, from any port, goes in the tunnel.
fn reaches(sent: &[Sent]) -> u16 {
    let came = single(sent, Side::Inside);
    assert_eq!((ends6(came), ends4(&came[40..])), (ends(AFTR, B4), ends(SERVER, INNER)));
    port(&came[40..], 2)
}

#[test]
fn a_server_of_tftp_answers_a_client_behind_a_b4() {
    let settings = settings_of(AlgKind::Tftp);
    let request = in_tunnel_by(UDP, B4, &udp(4000, 69, b"\0\x01boot.img\0octet\0"));
    let external = port(single(&one(&settings, Side::Inside, &request), Side::Outside), 0);
    let answer = |from: u16| ip4(SERVER, EXTERNAL, UDP, &udp(from, external, b"\0\x03\0\x01data"));
    let mut packets: Vec<Came> = vec![(Side::Inside, 1.0, request)];
    assert_eq!(reaches(&then(&settings, &packets, Side::Outside, answer(50_000))), 4000);
    packets.push((Side::Outside, 1.0, answer(50_000)));
    assert!(then(&settings, &packets, Side::Outside, answer(50_001)).is_empty());
}

#[test]
fn media_of_rtsp_reach_a_client_behind_a_b4() {
    let settings = settings_of(AlgKind::Rtsp);
    let (mut packets, _) = connection_to(&settings, B4, 554);
    let setup = |first: u16| {
        let ports = format!("{first}-{}", first + 1);
        format!("SETUP rtsp://a/b RTSP/1.0\r\nTransport: RTP/AVP;client_port={ports}\r\n\r\n")
    };
    let bytes = segment((4000, 554), (1001, 5001), ACK, &setup(4588));
    packets.push((Side::Inside, 1.0, in_tunnel(B4, &bytes)));
    let outcomes = run(&settings, &packets);
    let first = made(&outcomes.events, 4588).expect("a mapping");
    assert_eq!(text(single(outcomes.sent.last().unwrap(), Side::Outside)), setup(first));
    for further in [0, 1] {
        let media = ip4(SERVER, EXTERNAL, UDP, &udp(6000, first + further, b"rtp"));
        assert_eq!(reaches(&then(&settings, &packets, Side::Outside, media)), 4588 + further);
    }
}

#[test]
fn an_offer_of_irc_names_the_external_endpoint_of_a_client_behind_a_b4() {
    let settings = settings_of(AlgKind::Irc);
    let (mut packets, external) = connection_to(&settings, B4, 6667);
    let (nick, welcome) = ("NICK a\r\nUSER a 0 * :a\r\n", ":s 001 a :x\r\n");
    let bytes = segment((4000, 6667), (1001, 5001), ACK, nick);
    packets.push((Side::Inside, 1.0, in_tunnel(B4, &bytes)));
    let number = 1001 + nick.len() as u32;
    let bytes = segment((6667, external), (5001, number), ACK, welcome);
    packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &bytes)));
    let offer =
        |address: u32, port: u16| format!("PRIVMSG b :\u{1}DCC SEND f {address} {port} 9\u{1}\r\n");
    let numbers = (number, 5001 + welcome.len() as u32);
    let bytes = segment((4000, 6667), numbers, ACK, &offer(v4(INNER), 5000));
    packets.push((Side::Inside, 1.0, in_tunnel(B4, &bytes)));
    let outcomes = run(&settings, &packets);
    let port = made(&outcomes.events, 5000).expect("a mapping");
    let said = single(outcomes.sent.last().unwrap(), Side::Outside);
    assert_eq!(text(said), offer(v4(EXTERNAL), port));
}

/// Hosts behind two B4s have one internal endpoint, and one after the other the same external one.
#[test]
fn a_host_of_another_b4_begins_a_flow_of_its_own() {
    let mut settings = settings_of(AlgKind::Sip);
    settings.engine.allocation = Allocation::Preserve;
    let register = |end: &str| {
        let headers = format!("m: <sip:u@{end}>\r\nExpires: 90\r\nContent-Length: 0\r\n\r\n");
        udp(5060, 5060, format!("REGISTER sip:a SIP/2.0\r\n{headers}").as_bytes())
    };
    let (inner, external) = (format!("{INNER}:5060"), format!("{EXTERNAL}:5060"));
    let packets = [
        (Side::Inside, 1.0, in_tunnel_by(UDP, B4, &udp(5060, 5060, &[0; 4]))),
        (Side::Inside, 700.0, in_tunnel_by(UDP, OTHER_B4, &register(&inner))),
        (Side::Outside, 701.0, ip4(SERVER, EXTERNAL, UDP, &register(&external))),
    ];
    let outcomes = run(&settings, &packets);
    assert_eq!(port(single(&outcomes.sent[0], Side::Outside), 0), 5060);
    let said = single(&outcomes.sent[1], Side::Outside);
    assert_eq!((port(said, 0), &said[28..]), (5060, &register(&external)[8..]));
    let told = single(&outcomes.sent[2], Side::Inside);
    assert_eq!(ends6(told), ends(AFTR, OTHER_B4));
    assert_eq!(told[68..], register(&inner)[8..]);
}
