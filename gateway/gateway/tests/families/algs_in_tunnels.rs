//! FTP for clients behind B4s of DS-Lite: messages in tunnels are edited as those of IPv4 hosts.

use super::world::*;
use natgate_engine::{Behavior, Change, Event, Prefix, Side};
use natgate_gateway::ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_gateway::{AlgKind, AlgSettings, Settings};

const AFTR: &str = "2001:db8:ffff::78";
const B4: &str = "2001:db8:b4::1";
const OTHER_B4: &str = "2001:db8:b4::2";
const INNER: &str = "10.0.0.9";
const SERVER: &str = "198.51.100.7";
const EXTERNAL: &str = "203.0.113.1";
const SYN: u8 = 2;
const ACK: u8 = 16;

fn settings() -> Settings {
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
    settings.alg.set(AlgKind::Ftp, AlgSettings::usual_ports(AlgKind::Ftp).to_vec());
    settings.alg.reserve(&mut settings.engine.limits);
    settings
}

fn in_tunnel(b4: &str, segment: &[u8]) -> Vec<u8> {
    raw6(v6(b4), v6(AFTR), 4, &ip4(INNER, SERVER, TCP, segment))
}

/// The data of an IPv4 packet's segment.
fn text(packet: &[u8]) -> String {
    let data = 20 + usize::from(packet[32] >> 4) * 4;
    String::from_utf8_lossy(&packet[data..]).into_owned()
}

/// A control connection that a client behind a B4 has opened: packets, and the external port.
fn connection(settings: &Settings, b4: &str) -> (Vec<Came>, u16) {
    let syn = in_tunnel(b4, &segment((4000, 21), (1000, 0), SYN, ""));
    let external = port(single(&one(settings, Side::Inside, &syn), Side::Outside), 0);
    let answer = segment((21, external), (5000, 1001), SYN | ACK, "");
    let ready = segment((21, external), (5001, 1001), ACK, "220 ready\r\n");
    let from_server = |bytes: &[u8]| ip4(SERVER, EXTERNAL, TCP, bytes);
    let packets = vec![
        (Side::Inside, 1.0, syn),
        (Side::Outside, 1.0, from_server(&answer)),
        (Side::Inside, 1.0, in_tunnel(b4, &segment((4000, 21), (1001, 5001), ACK, ""))),
        (Side::Outside, 1.0, from_server(&ready)),
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
