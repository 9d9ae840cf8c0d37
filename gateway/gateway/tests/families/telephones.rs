//! SIP of hosts with numbers: a telephone of NAT64, and one behind a B4 of DS-Lite, talk to a
//! server with IPv4.

use super::algs::{self, Connection};
use super::world::*;
use natgate_engine::{Behavior, Change, Event, Side};
use natgate_gateway::ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_gateway::{AlgKind, AlgSettings, Settings};
use natgate_wire::Ipv4;
use std::net::Ipv4Addr;

const SERVER: &str = "198.51.100.7";
const EXTERNAL: &str = "203.0.113.1";
const AFTR: &str = "2001:db8:ffff::78";
const SIP: u16 = 5060;

/// A telephone, and how its packets travel inside.
struct Telephone {
    /// Its address in a URI, and in a description.
    own: (&'static str, &'static str),
    /// The address of another host outside in a description, as the telephone knows it.
    other: &'static str,
    settings: fn() -> Settings,
    /// A packet from it of a transport protocol.
    packet: fn(u8, &[u8]) -> Vec<u8>,
    /// Length of the headers before the transport header of a packet to it.
    headers: usize,
}

const NAT64: Telephone = Telephone {
    own: ("[2001:db8:1::5]", "IP6 2001:db8:1::5"),
    other: "IP6 64:ff9b::c633:6409",
    settings: || on(with_nat64(&["64:ff9b::/96"])),
    packet: |protocol, bytes| ip6("2001:db8:1::5", "64:ff9b::c633:6407", protocol, bytes),
    headers: 40,
};

const DSLITE: Telephone = Telephone {
    own: ("10.0.0.9", "IP4 10.0.0.9"),
    other: "IP4 198.51.100.9",
    settings: || on(with_dslite()),
    packet: |protocol, bytes| behind("2001:db8:b4::1", protocol, bytes),
    headers: 60,
};

/// The inner address that all telephones behind B4s have.
fn behind(b4: &str, protocol: u8, bytes: &[u8]) -> Vec<u8> {
    raw6(v6(b4), v6(AFTR), 4, &ip4("10.0.0.9", SERVER, protocol, bytes))
}

fn with_dslite() -> Settings {
    let mut settings = settings();
    settings.ipv6.dslite = Some(DsliteSettings {
        subscriber_length: 128,
        b4_change_interval: std::time::Duration::ZERO,
        address: AFTR.parse().unwrap(),
        b4: vec![prefix6("2001:db8:b4::", 48)],
        softwire: SoftwireSettings { mtu: Some(1500), path_mtu: true },
        static_hosts: Vec::new(),
    });
    settings
}

fn on(mut settings: Settings) -> Settings {
    settings.engine.filtering = Behavior::AddressAndPortDependent;
    settings.alg.set(AlgKind::Sip, AlgSettings::usual_ports(AlgKind::Sip).to_vec());
    settings.alg.reserve(&mut settings.engine.limits);
    settings
}

fn message(line: &str, headers: &str, address: &str, port: u16) -> String {
    let body = format!("v=0\r\nc=IN {address}\r\nm=audio {port} RTP/AVP 0\r\n");
    let body = if port == 0 { "" } else { &body };
    let kind = if port == 0 { "" } else { "Content-Type: application/sdp\r\n" };
    format!("{line}\r\n{headers}{kind}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Headers of a telephone at an endpoint.
fn headers(end: &str) -> String {
    format!("Via: SIP/2.0/UDP {end};branch=z9hG4bK1\r\nContact: <sip:u@{end}>\r\nCall-ID: 1\r\n")
}

fn from_server(source: &str, to: u16, text: &str) -> Vec<u8> {
    ip4(source, EXTERNAL, UDP, &udp(SIP, to, text.as_bytes()))
}

impl Telephone {
    fn says(&self, text: &str) -> Vec<u8> {
        (self.packet)(UDP, &udp(SIP, SIP, text.as_bytes()))
    }

    /// The text of the only datagram to the telephone.
    fn hears(&self, sent: &[Sent]) -> String {
        let packet = single(sent, Side::Inside);
        String::from_utf8_lossy(&packet[self.headers + 8..]).into_owned()
    }

    /// The source of the only packet to the telephone, and its destination port.
    fn gets(&self, sent: &[Sent]) -> (String, u16) {
        let packet = single(sent, Side::Inside);
        let port = u16::from_be_bytes([packet[self.headers + 2], packet[self.headers + 3]]);
        let ends = if self.headers == 40 { ends6(packet) } else { ends4(&packet[40..]) };
        (ends.0, port)
    }
}

/// The text of the only datagram to the server, and its source port.
fn told(sent: &[Sent]) -> (String, u16) {
    let packet = single(sent, Side::Outside);
    assert_eq!(ends4(packet), ends(EXTERNAL, SERVER));
    (String::from_utf8_lossy(&packet[28..]).into_owned(), port(packet, 0))
}

/// External ports of the last mappings of an internal port, one for each host.
fn made(events: &[Event], internal: u16) -> Vec<u16> {
    let mut last: Vec<(Ipv4Addr, u16)> = Vec::new();
    for event in events {
        let Change::MappingCreated(id) = event.change else { continue };
        if id.internal.port == internal {
            last.retain(|(host, _)| *host != id.internal.address);
            last.push((id.internal.address, id.external.port));
        }
    }
    last.into_iter().map(|(_, port)| port).collect()
}

/// What leaves for a further packet.
fn then(
    settings: &Settings,
    packets: &[Came],
    side: Side,
    time: f64,
    packet: Vec<u8>,
) -> Vec<Sent> {
    let all = [packets, &[(side, time, packet)]].concat();
    run(settings, &all).sent.pop().unwrap()
}

#[test]
fn a_telephone_calls_and_hears_the_other() {
    for telephone in [NAT64, DSLITE] {
        let settings = (telephone.settings)();
        let own = format!("{}:{SIP}", telephone.own.0);
        let call = message("INVITE sip:b@c SIP/2.0", &headers(&own), telephone.own.1, 4000);
        let mut packets: Vec<Came> = vec![(Side::Inside, 1.0, telephone.says(&call))];
        let outcomes = run(&settings, &packets);
        let (heard, external) = told(outcomes.sent.last().unwrap());
        let ports = [4000, 4001].map(|port| made(&outcomes.events, port)[0]);
        assert!(ports[0] % 2 == 0 && ports[1] == ports[0] + 1, "{ports:?}");
        let outside = headers(&format!("{EXTERNAL}:{external}"));
        let (line, address) = ("INVITE sip:b@c SIP/2.0", format!("IP4 {EXTERNAL}"));
        assert_eq!(heard, message(line, &outside, &address, ports[0]));
        let media = |from: &str, to: u16| ip4(from, EXTERNAL, UDP, &udp(6000, to, b"rtp"));
        // Until the answer, the media may come from anywhere.
        let early = media("198.51.100.10", ports[0]);
        assert_eq!(then(&settings, &packets, Side::Outside, 2.0, early.clone()).len(), 1);
        // The answer names another host, which the telephone can reach, and nobody else.
        let (line, own) = ("SIP/2.0 200 OK", headers(&own));
        let answer = message(line, &outside, "IP4 198.51.100.9", 6000);
        packets.push((Side::Outside, 2.0, from_server(SERVER, external, &answer)));
        let heard = run(&settings, &packets).sent.pop().unwrap();
        assert_eq!(telephone.hears(&heard), message(line, &own, telephone.other, 6000));
        assert!(then(&settings, &packets, Side::Outside, 3.0, early).is_empty(), "another host");
        for (port, internal) in ports.into_iter().zip([4000, 4001]) {
            let came = media("198.51.100.9", port);
            let came = then(&settings, &packets, Side::Outside, 3.0, came);
            let source = telephone.other.split_once(' ').unwrap().1.to_owned();
            assert_eq!(telephone.gets(&came), (source, internal));
        }
    }
}

/// The registrar's refusal comes from outside, and ends what the telephone has asked for.
#[test]
fn a_refused_registration_ends() {
    for telephone in [NAT64, DSLITE] {
        let settings = (telephone.settings)();
        let register = |end: &str| {
            let headers = format!(
                "Contact: <sip:u@{end}>;expires=3600\r\nTo: <sip:u@a>\r\nCall-ID: 2\r\n\
                 CSeq: 1 REGISTER\r\n"
            );
            message("REGISTER sip:a SIP/2.0", &headers, "", 0)
        };
        let asked = register(&format!("{}:5070", telephone.own.0));
        let mut packets: Vec<Came> = vec![(Side::Inside, 1.0, telephone.says(&asked))];
        let outcomes = run(&settings, &packets);
        let (heard, external) = told(outcomes.sent.last().unwrap());
        let port = made(&outcomes.events, 5070)[0];
        assert_eq!(heard, register(&format!("{EXTERNAL}:{port}")));
        let invited = from_server(SERVER, port, "INVITE x SIP/2.0\r\n\r\n");
        let came = then(&settings, &packets, Side::Outside, 300.0, invited.clone());
        assert_eq!(telephone.gets(&came).1, 5070);
        let headers = "To: <sip:u@a>\r\nCall-ID: 2\r\nCSeq: 1 REGISTER\r\n";
        let refused = message("SIP/2.0 403 Forbidden", headers, "", 0);
        packets.push((Side::Outside, 2.0, from_server(SERVER, external, &refused)));
        let came = then(&settings, &packets, Side::Outside, 100.0, invited.clone());
        assert_eq!(telephone.gets(&came).1, 5070, "a transaction may last");
        assert!(then(&settings, &packets, Side::Outside, 300.0, invited).is_empty());
    }
}

/// Two telephones behind two B4s have the same inner address and the same ports.
#[test]
fn an_answer_limits_the_media_of_its_own_telephone() {
    let settings = on(with_dslite());
    let call = message("INVITE sip:b@c SIP/2.0", &headers("10.0.0.9:5060"), DSLITE.own.1, 4000);
    let call = udp(SIP, SIP, call.as_bytes());
    let mut packets: Vec<Came> = ["2001:db8:b4::1", "2001:db8:b4::2"]
        .map(|b4| (Side::Inside, 1.0, behind(b4, UDP, &call)))
        .to_vec();
    let outcomes = run(&settings, &packets);
    let external = outcomes.sent.iter().map(|sent| told(sent).1).collect::<Vec<_>>();
    let ports = made(&outcomes.events, 4000);
    assert_eq!((external.len(), ports.len()), (2, 2));
    let outside = headers(&format!("{EXTERNAL}:{}", external[0]));
    let answer = message("SIP/2.0 200 OK", &outside, "IP4 198.51.100.9", 6000);
    packets.push((Side::Outside, 2.0, from_server(SERVER, external[0], &answer)));
    let media = |to: u16| ip4("198.51.100.10", EXTERNAL, UDP, &udp(6000, to, b"rtp"));
    assert!(then(&settings, &packets, Side::Outside, 3.0, media(ports[0])).is_empty());
    let came = then(&settings, &packets, Side::Outside, 3.0, media(ports[1]));
    assert_eq!(ends6(single(&came, Side::Inside)), ends(AFTR, "2001:db8:b4::2"));
}

/// Hosts behind two B4s share a port, towards different servers. The answer from outside is for the
/// host that has the connection with its sender.
#[test]
fn an_answer_limits_the_media_of_a_telephone_that_shares_its_port() {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let mut settings = on(with_dslite());
    let pool = &mut settings.engine.pools[0];
    (pool.ports, pool.overloading) = ((5000, 5003), true);
    let [first, second] = ["2001:db8:b4::1", "2001:db8:b4::2"];
    // Connections of the first host have all ports of TCP.
    let syn = |b4, own, server| behind(b4, TCP, &segment((own, server), (1000, 0), SYN, ""));
    let mut packets: Vec<Came> =
        (3000..3004).map(|port| (Side::Inside, 1.0, syn(first, port, 80))).collect();
    packets.push((Side::Inside, 1.0, syn(second, 4000, SIP)));
    let outcomes = run(&settings, &packets);
    let ports: Vec<u16> =
        outcomes.sent.iter().map(|sent| port(single(sent, Side::Outside), 0)).collect();
    let external = ports[4];
    assert!(ports[..4].contains(&external), "{ports:?}");
    let answer = segment((SIP, external), (5000, 1001), SYN | ACK, "");
    packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &answer)));
    let call = message("INVITE sip:b@c SIP/2.0", &headers("10.0.0.9:4000"), DSLITE.own.1, 6000);
    let call = segment((4000, SIP), (1001, 5001), ACK, &call);
    packets.push((Side::Inside, 1.0, behind(second, TCP, &call)));
    let outcomes = run(&settings, &packets);
    let heard = algs::text(single(outcomes.sent.last().unwrap(), Side::Outside));
    let (media_port, outside) =
        (made(&outcomes.events, 6000)[0], headers(&format!("{EXTERNAL}:{external}")));
    let line = "INVITE sip:b@c SIP/2.0";
    assert_eq!(heard, message(line, &outside, &format!("IP4 {EXTERNAL}"), media_port));
    let media = |from: &str| ip4(from, EXTERNAL, UDP, &udp(6000, media_port, b"rtp"));
    let reaches = |packets: &[Came], from: &str| {
        let came = then(&settings, packets, Side::Outside, 2.0, media(from));
        came.first().map(|(_, bytes)| ends6(bytes))
    };
    assert_eq!(reaches(&packets, "198.51.100.10"), Some(ends(AFTR, second)), "no answer so far");
    let answer = message("SIP/2.0 200 OK", &outside, "IP4 198.51.100.9", 6000);
    let numbers = (5001, 1001 + heard.len() as u32);
    let answer = segment((SIP, external), numbers, ACK, &answer);
    packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &answer)));
    assert_eq!(reaches(&packets, "198.51.100.10"), None);
    assert_eq!(reaches(&packets, "198.51.100.9"), Some(ends(AFTR, second)));
}

#[test]
fn a_telephone_with_ipv6_speaks_by_tcp() {
    let settings = on(with_nat64(&["64:ff9b::/96"]));
    let mut tcp = Connection::open(&settings, SIP);
    let external = tcp.ports.2;
    let inside = message("REGISTER sip:a SIP/2.0", &headers("[2001:db8:1::5]:4000"), "", 0);
    let end = format!("{EXTERNAL}:{external}");
    let outside = message("REGISTER sip:a SIP/2.0", &headers(&end), "", 0);
    tcp.host(&inside, outside.len() as i32 - inside.len() as i32);
    assert_eq!(algs::text(single(&tcp.last(&settings), Side::Outside)), outside);
    let told = message("SIP/2.0 200 OK", &headers(&end), "IP4 198.51.100.9", 6000);
    let own = headers("[2001:db8:1::5]:4000");
    let heard = message("SIP/2.0 200 OK", &own, NAT64.other, 6000);
    tcp.server(&told, heard.len() as i32 - told.len() as i32);
    let last = tcp.last(&settings);
    let packet = single(&last, Side::Inside);
    assert_eq!(algs::text(packet), heard);
    assert_eq!(packet[40 + 8..40 + 12], tcp.numbers.0.to_be_bytes(), "the client's own number");
}

/// A datagram that its sender forbids to cut, and that does not fit any more.
#[test]
fn a_datagram_that_grows_past_the_mtu_is_cut() {
    let settings = on(with_nat64(&["64:ff9b::/96"]));
    let call = message("OPTIONS sip:b@c SIP/2.0", &headers("[2001:db8:1::5]:5060"), "", 0);
    let mut packets: Vec<Came> = vec![(Side::Inside, 1.0, NAT64.says(&call))];
    let (_, external) = told(&run(&settings, &packets).sent[0]);
    let filler = |end: &str| format!("{}Subject: {}\r\n", headers(end), "x".repeat(1215));
    let text = |end: &str, address: &str| message("INVITE a SIP/2.0", &filler(end), address, 6000);
    let told = text(&format!("{EXTERNAL}:{external}"), "IP4 198.51.100.9");
    let mut packet = from_server(SERVER, external, &told);
    assert!((1470..=1480).contains(&packet.len()), "{}", packet.len());
    let mut header = Ipv4::new_checked(&mut packet[..]).unwrap();
    header.set_fragment_field(0x4000);
    header.fill_checksum();
    packets.push((Side::Outside, 2.0, packet));
    let pieces = run(&settings, &packets).sent.pop().unwrap();
    assert_eq!(pieces.len(), 2);
    assert!(pieces.iter().all(|(_, bytes)| bytes.len() <= 1500 && bytes[6] == 44));
    let all = [&pieces[0].1[48..], &pieces[1].1[48..]].concat();
    let heard = text("[2001:db8:1::5]:5060", NAT64.other);
    assert_eq!(String::from_utf8_lossy(&all[8..]), heard);
}

/// The prefix is that of the flow, and addresses that NAT64 does not translate stay.
#[test]
fn addresses_get_the_prefix_by_which_the_telephone_knows_its_server() {
    let well_known = "64:ff9b::/96";
    for (prefix, server) in [
        (well_known, "64:ff9b::c633:6407"),
        ("2001:db8:64::/96", "2001:db8:64::c633:6407"),
        ("2001:db8:6400::/40", "2001:db8:64c6:3364:7::"),
    ] {
        let settings = on(with_nat64(&[well_known, "2001:db8:64::/96", "2001:db8:6400::/40"]));
        let call = message("OPTIONS sip:b@c SIP/2.0", &headers("[2001:db8:1::5]:5060"), "", 0);
        let call = ip6("2001:db8:1::5", server, UDP, &udp(SIP, SIP, call.as_bytes()));
        let mut packets: Vec<Came> = vec![(Side::Inside, 1.0, call)];
        let (_, external) = told(&run(&settings, &packets).sent[0]);
        for (address, is_translated) in [("198.51.100.9", true), ("10.0.0.5", false)] {
            let outside = headers(&format!("{EXTERNAL}:{external}"));
            let offer = message("INVITE a SIP/2.0", &outside, &format!("IP4 {address}"), 6000);
            packets.push((Side::Outside, 2.0, from_server(SERVER, external, &offer)));
            let heard = NAT64.hears(&run(&settings, &packets).sent.pop().unwrap());
            let inside = match is_translated || prefix != well_known {
                true => format!("IP6 {}", embedded(prefix, address)),
                false => format!("IP4 {address}"),
            };
            let own = headers("[2001:db8:1::5]:5060");
            assert_eq!(heard, message("INVITE a SIP/2.0", &own, &inside, 6000), "{prefix}");
        }
    }
}
