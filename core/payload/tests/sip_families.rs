//! SIP between families: the client inside has IPv6, and its server outside IPv4.

mod common;

use common::telephone::{Telephone, message, typed_description};
use common::{Link, Opening, client_inside_v6, endpoints};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{Kind, Reason, Uses, Wanted};
use std::net::{Ipv4Addr, SocketAddr};

const HOST: &str = "IP6 2001:db8:2::31";
const EXTERNAL: &str = "IP4 203.0.113.1";

fn client() -> Telephone {
    Telephone::new(client_inside_v6(5060))
}

#[test]
fn a_registration_changes_family_and_comes_back() {
    let mut telephone = client();
    let headers = |own: &str, server: &str, seen: &str| {
        format!(
            "Via: SIP/2.0/UDP {own};branch=z9hG4bK1{seen}\r\nRoute: <sip:{server}:5070;lr>\r\n\
             From: \"[2001:db8:2::31]\" <sip:u@{server}>;tag=1\r\nTo: <sip:u@{server}>\r\n\
             Contact: <sip:u@{own};ob>;expires=600\r\nCall-ID: 1@[2001:db8:2::31]\r\n\
             CSeq: 1 REGISTER\r\n"
        )
    };
    let (own, server) = ("[2001:DB8:2:0::31]:40000", "[64:ff9b::198.51.100.2]");
    let line = |server: &str| format!("REGISTER sip:{server} SIP/2.0");
    let heard =
        telephone.send(Inside, &message(&line(server), &headers(own, server, ";rport"), ""));
    let outside = headers("203.0.113.1:50000", "198.51.100.2", ";rport");
    assert_eq!(heard, message(&line("198.51.100.2"), &outside, ""));
    let made = telephone.book.made[0];
    assert_eq!((made.wanted, made.lifetime, made.uses), (Wanted::EndpointOfFlow, 600, Uses::Many));
    assert_eq!(made.internal, telephone.endpoints.internal);
    // The registrar grants less time.
    let seen = ";received=203.0.113.1;rport=50000";
    let granted = headers("203.0.113.1:50000", "198.51.100.2", seen).replace("600", "300");
    let heard = telephone.send(Outside, &message("SIP/2.0 200 OK", &granted, ""));
    let seen = ";received=2001:db8:2::31;rport=40000";
    let back = headers("[2001:db8:2::31]:40000", "[64:ff9b::c633:6402]", seen);
    assert_eq!(heard, message("SIP/2.0 200 OK", &back.replace("600", "300"), ""));
    assert_eq!(telephone.book.left(40000), 300);
}

/// The host in the address of record may be of either family, and has two addresses then.
#[test]
fn an_answer_belongs_to_its_request_whatever_the_host_of_its_record() {
    for host in ["198.51.100.2", "[64:ff9b::198.51.100.2]", "[2001:db8:9::1]", "host.example"] {
        let mut telephone = client();
        let headers = |own: &str, seconds: u16| {
            format!(
                "t: <sip:u@{host}>\r\ni: 1\r\nCSeq: 1 REGISTER\r\n\
                 m: <sip:u@{own}>;expires={seconds}\r\n"
            )
        };
        let asked = headers("[2001:db8:2::31]:40000", 600);
        let heard = telephone.send(Inside, &message("REGISTER sip:a SIP/2.0", &asked, ""));
        let record = heard.lines().find(|line| line.starts_with("t: ")).unwrap();
        let granted = headers("203.0.113.1:50000", 300);
        let granted = granted.replace(&format!("t: <sip:u@{host}>"), record);
        telephone.send(Outside, &message("SIP/2.0 200 OK", &granted, ""));
        assert_eq!(telephone.book.left(40000), 300, "{host}");
    }
}

/// What one side has seen of the other: brackets, other hosts, and ports that no mapping has.
#[test]
fn received_and_rport_change_together_or_not_at_all() {
    let mut telephone = client();
    for (outside, inside) in [
        ("received=203.0.113.1", "received=2001:db8:2::31"),
        ("rport=50000;received=203.0.113.1", "rport=40000;received=2001:db8:2::31"),
        ("received=203.0.113.1;rport=50001", "received=203.0.113.1;rport=50001"),
        ("rport=50000", "rport=50000"),
        ("RECEIVED = 192.0.2.9 ;rport=50000", "RECEIVED = 64:ff9b::c000:209 ;rport=50000"),
        ("received=host.example;rport=50000", "received=host.example;rport=50000"),
    ] {
        let via = |end: &str, seen: &str| {
            message("SIP/2.0 200 OK", &format!("v: SIP/2.0/UDP {end};{seen}\r\n"), "")
        };
        let heard = telephone.send(Outside, &via("203.0.113.1:50000", outside));
        assert_eq!(heard, via("[2001:db8:2::31]:40000", inside));
    }
    // The host answers a request: what it has seen of its server.
    for seen in ["64:ff9b::c633:6402", "[64:ff9b::c633:6402]"] {
        let via = |end: &str, seen: &str| {
            let headers = format!("v: SIP/2.0/UDP {end}:5060;received={seen};rport=5060\r\n");
            message("SIP/2.0 200 OK", &headers, "")
        };
        let heard = telephone.send(Inside, &via("[64:ff9b::c000:209]", seen));
        assert_eq!(heard, via("192.0.2.9", "198.51.100.2"));
    }
}

/// RFC 3261 section 16: routes and targets of other hosts, in both directions.
#[test]
fn other_hosts_are_known_by_the_prefix() {
    let mut telephone = client();
    let text = |line: &str, other: &str, own: &str| {
        let headers = format!(
            "Record-Route: <sip:{other};lr>, <sip:proxy.example;lr>\r\n\
             Service-Route: <sip:{other}:5070;lr>\r\nPath: <sip:{other}>\r\n\
             Refer-To: <sip:x@{other}?Replaces=1%40192.0.2.9>\r\n\
             Contact: \"192.0.2.9\" <sip:192.0.2.9@{other}:5062>;x=192.0.2.9\r\n\
             To: <sip:u@{own}>;tag=192.0.2.9\r\n"
        );
        message(line, &headers, "")
    };
    let (outside, inside) = ("192.0.2.9", "[64:ff9b::c000:209]");
    let (external, own) = ("203.0.113.1:50000", "[2001:db8:2::31]:40000");
    for status in ["SIP/2.0 200 OK", "SIP/2.0 302 Moved"] {
        let heard = telephone.send(Outside, &text(status, outside, external));
        assert_eq!(heard, text(status, inside, own));
        let heard = telephone.send(Inside, &text(status, inside, own));
        assert_eq!(heard, text(status, outside, external));
    }
    // A host behind the same gateway, by its external endpoint.
    let line = |end: &str| message(&format!("OPTIONS sip:u@{end} SIP/2.0"), "", "");
    let heard = telephone.send(Outside, &line("203.0.113.1:50007"));
    assert_eq!(heard, line("[64:ff9b::cb00:7101]:50007"));
    assert_eq!(telephone.send(Inside, &heard), line("203.0.113.1:50007"));
    // Addresses of neither side's family stay.
    let other = line("[2001:db8:2::31]:40000");
    assert_eq!(telephone.send(Outside, &other), other);
    for other in ["10.0.0.5:40000", "198.51.100.2", "[2001:db8:2::32]", "[2001:db8:9::1]:5060"] {
        assert_eq!(telephone.send(Inside, &line(other)), line(other));
    }
    assert_eq!(telephone.book.made, []);
}

#[test]
fn a_port_besides_the_flows_own_is_expected_and_comes_back() {
    let mut telephone = client();
    let headers = "m: <sip:u@[2001:db8:2::31]>\r\nExpires: 90\r\n";
    let heard = telephone.send(Inside, &message("REGISTER a SIP/2.0", headers, ""));
    assert!(heard.contains("m: <sip:u@203.0.113.1:60002>"), "{heard}");
    let made = telephone.book.made[0];
    assert_eq!((made.internal.port(), made.lifetime, made.protocol), (5060, 180, 17));
    let line = "OPTIONS sip:u@203.0.113.1:60002 SIP/2.0";
    let back = telephone.send(Outside, &message(line, "", ""));
    assert!(back.starts_with("OPTIONS sip:u@[2001:db8:2::31] SIP/2.0\r\n"), "{back}");
}

fn invite(address: &str, media: &str) -> String {
    message("INVITE sip:b@c SIP/2.0", "Call-ID: 1\r\n", &typed_description(address, media))
}

#[test]
fn media_become_pairs_and_the_answer_limits_them() {
    let mut telephone = client();
    let media = |audio: u16, video: u16, rtcp: &str| {
        format!(
            "m=audio {audio} RTP/AVP 0\r\na=candidate:1 1 UDP 1 2001:db8:2::31 4000 typ host\r\n\
             m=video {video} RTP/AVP 31\r\na=rtcp:{rtcp}\r\nm=text 0 RTP/AVP 1\r\n"
        )
    };
    let heard =
        telephone.send(Inside, &invite(HOST, &media(4000, 4002, "4003 IN IP6 2001:db8:2::31")));
    assert_eq!(heard, invite(EXTERNAL, &media(60002, 60004, "60005 IN IP4 203.0.113.1")));
    let all: Vec<_> = telephone.book.made.iter().map(|made| (made.wanted, made.remote)).collect();
    assert_eq!(all, [(Wanted::Pair, None), (Wanted::Pair, None)]);
    let answer = |first: &str, second: &str| {
        let media = format!(
            "m=audio 9000 RTP/AVP 0\r\nm=video 9002 RTP/AVP 31\r\nc=IN {second}\r\n\
             a=rtcp:9009 IN {second}\r\n"
        );
        message("SIP/2.0 200 OK", "i: 1\r\n", &typed_description(first, &media))
    };
    let heard = telephone.send(Outside, &answer("IP4 198.51.100.61", "IP4 198.51.100.62"));
    let inside = answer("IP6 64:ff9b::c633:643d", "IP6 64:ff9b::c633:643e");
    assert_eq!(heard, inside);
    let limits = telephone.book.made[2..].iter().map(|made| (made.internal, made.remote));
    let end = |port: u16| SocketAddr::new("2001:db8:2::31".parse().unwrap(), port);
    let from = |last: u8| Some(Ipv4Addr::new(198, 51, 100, last));
    assert_eq!(limits.collect::<Vec<_>>(), [(end(4000), from(61)), (end(4002), from(62))]);
}

/// RFC 3264 section 8.4: held media without an address, and descriptions that name other hosts.
#[test]
fn descriptions_of_other_hosts_change_and_open_nothing() {
    let mut telephone = client();
    let audio = "m=audio 4000 RTP/AVP 0\r\n";
    for (inside, outside) in [
        ("IP6 ::", "IP4 0.0.0.0"),
        ("IP6 64:ff9b::c000:209", "IP4 192.0.2.9"),
        ("IP6 64:ff9b::cb00:7101", "IP4 203.0.113.1"),
    ] {
        assert_eq!(telephone.send(Inside, &invite(inside, audio)), invite(outside, audio));
        assert_eq!(telephone.send(Outside, &invite(outside, audio)), invite(inside, audio));
    }
    assert_eq!(telephone.refused(Reason::ForeignAddress), 0);
    for other in ["IP6 2001:db8:2::32", "IP4 10.0.0.5", "IP6 ff15::101/3", "IP6 2001:db8:2::31 "] {
        assert_eq!(telephone.send(Inside, &invite(other, audio)), invite(other, audio));
    }
    for other in ["IP6 2001:db8:2::31", "IP4 224.2.1.1/127", "IP4 1.2.3.4 5"] {
        assert_eq!(telephone.send(Outside, &invite(other, audio)), invite(other, audio));
    }
    assert_eq!(telephone.book.made, []);
    assert_eq!(telephone.refused(Reason::ForeignAddress), 1);
}

/// A medium without a port keeps the address of the host, the others get lines of their own.
#[test]
fn address_and_port_of_a_medium_change_together_or_not_at_all() {
    let mut telephone = client();
    let media = "m=audio 7000 RTP/AVP 0\r\na=rtcp:500\r\nm=video 500 RTP/AVP 31\r\n";
    let heard = telephone.send(Inside, &invite(HOST, media));
    let expected = "m=audio 60002 RTP/AVP 0\r\nc=IN IP4 203.0.113.1\r\n\
                    a=rtcp:500 IN IP6 2001:db8:2::31\r\nm=video 500 RTP/AVP 31\r\n";
    let body = typed_description(HOST, expected).replacen(HOST, EXTERNAL, 1);
    assert_eq!(heard, message("INVITE sip:b@c SIP/2.0", "Call-ID: 1\r\n", &body));
    assert_eq!(telephone.refused(Reason::LowPort), 2);
}

/// A description may change its length by more than a digit, in both directions.
#[test]
fn the_length_follows_in_both_directions() {
    for filler in [0, 1, 2, 3, 800, 880] {
        let mut telephone = client();
        let media = |port: u16| format!("m=audio {port} RTP/AVP 0\r\na={}\r\n", "x".repeat(filler));
        let heard = telephone.send(Inside, &invite(HOST, &media(4000)));
        assert_eq!(heard, invite(EXTERNAL, &media(60002)));
        let heard = telephone.send(Outside, &invite("IP4 198.51.100.9", &media(4000)));
        assert_eq!(heard, invite("IP6 64:ff9b::c633:6409", &media(4000)));
    }
}

/// RFC 3261 section 19.1.4: a URI with the usual port differs from one without.
#[test]
fn endpoints_come_back_as_the_host_wrote_them() {
    let ends = endpoints("[2001:db8:2::31]:5060", "203.0.113.1:50000", "198.51.100.2:5060");
    let mut telephone = Telephone::new(ends);
    let headers = |contact: &str, via: &str| {
        format!("Via: SIP/2.0/UDP {via};branch=z9hG4bK1\r\nContact: <sip:u@{contact}>\r\n")
    };
    let (short, long, out) = ("[2001:db8:2::31]", "[2001:db8:2::31]:5060", "203.0.113.1:50000");
    let text = |contact: &str, via: &str| message("SIP/2.0 200 OK", &headers(contact, via), "");
    assert_eq!(telephone.send(Inside, &text(short, long)), text(out, out));
    assert_eq!(telephone.send(Outside, &text(out, out)), text(short, long));
}

/// A proxy says much before the client acknowledges anything.
#[test]
fn many_messages_on_the_way_are_read() {
    let mut link = Link::open(Opening::new(Kind::Sip, client_inside_v6(5060), Inside));
    let text = |own: &str, other: &str, seen: &str, media: &str| {
        let headers = format!(
            "Via: SIP/2.0/TCP {own};branch=z9hG4bK1234567;{seen}\r\n\
             Record-Route: <sip:{other};lr>\r\nTo: <sip:u@{other}>\r\nCall-ID: 1\r\n\
             Contact: <sip:b@{other}:5062>\r\n"
        );
        let media = typed_description(media, "m=audio 6000 RTP/AVP 0\r\n");
        message("SIP/2.0 183 Progress", &headers, &media)
    };
    let told = text(
        "203.0.113.1:50000",
        "192.0.2.9",
        "received=203.0.113.1;rport=50000",
        "IP4 198.51.100.9",
    );
    let heard = text(
        "[2001:db8:2::31]:40000",
        "[64:ff9b::c000:209]",
        "received=2001:db8:2::31;rport=40000",
        "IP6 64:ff9b::c633:6409",
    );
    for number in 0..8 {
        let start = link.write(Outside, told.as_bytes());
        let packet = link.hosts[1].segment(start, start + told.len(), false);
        let out = link.process(Outside, &packet);
        let [(Inside, packet)] = &out[..] else { panic!("{} packets", out.len()) };
        let text = String::from_utf8_lossy(packet);
        assert!(text.ends_with(&heard), "{number}: {text}");
    }
}

/// A description with more media than one message has room for edits passes as it is, and the
/// messages after it are read.
#[test]
fn a_message_with_too_many_edits_ends_no_reading() {
    let mut link = Link::open(Opening::new(Kind::Sip, client_inside_v6(5060), Inside));
    let text =
        |other: &str| message("OPTIONS sip:u@a SIP/2.0", &format!("m: <sip:{other}>\r\n"), "");
    let media = "m=a 9 x\r\nc=IN IP4 192.0.2.9\r\n".repeat(110);
    let body = typed_description("IP4 192.0.2.9", &media);
    let many = message("INVITE sip:u@203.0.113.1:50000 SIP/2.0", "i: 1\r\n", &body);
    let start = link.write(Outside, many.as_bytes());
    for first in (0..many.len()).step_by(1000) {
        link.send(Outside, start + first, start + many.len().min(first + 1000));
    }
    link.repeat_until_acknowledged(Outside);
    assert_eq!(link.heard(Inside), many);
    let refused = link.payloads.counters(Kind::Sip).refused[Reason::NoBuffer as usize];
    assert_eq!(refused, 1);
    link.say(Outside, &text("192.0.2.9"));
    assert_eq!(link.heard(Inside), many + &text("[64:ff9b::c000:209]"));
}

/// A form that a browser sends opens no port, wherever the forged message begins in a segment.
#[test]
fn a_forged_registration_in_a_form_opens_no_port() {
    let message = "REGISTER sip:a SIP/2.0\r\nContact: <sip:u@[2001:db8:2::31]:40000>\r\n\
                   Content-Length: 0\r\n\r\n";
    let text = format!("POST / HTTP/1.1\r\nContent-Length: 999\r\n\r\n{message}");
    for cut in 1..text.len() {
        let mut link = Link::open(Opening::new(Kind::Sip, client_inside_v6(5060), Inside));
        let start = link.write(Inside, text.as_bytes());
        link.send(Inside, start, start + cut);
        link.send(Inside, start + cut, start + text.len());
        link.repeat_until_acknowledged(Inside);
        link.say(Inside, message);
        assert_eq!(link.book.made, [], "cut at {cut}");
        assert_eq!(link.heard(Outside), format!("{text}{message}"));
    }
    // The message itself, from outside.
    let mut telephone = client();
    telephone.send(Outside, message);
    assert_eq!(telephone.book.made, []);
}
