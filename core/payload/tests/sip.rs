//! SIP through the framework, by UDP.

mod common;

use common::telephone::{Telephone, client, description, message};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{Reason, Uses, Wanted};
use std::net::Ipv4Addr;

#[test]
fn a_registration_names_the_external_endpoint_and_keeps_it() {
    let mut telephone = client();
    let headers = |end: &str| {
        format!(
            "Via: SIP/2.0/UDP {end};branch=z9hG4bK1;rport\r\nFrom: <sip:u@{end}>;tag=1\r\n\
             Contact: \"10.0.0.55\" <sip:u@{end};ob>;expires=600\r\nCall-ID: 1@10.0.0.5\r\n"
        )
    };
    let heard = telephone
        .send(Inside, &message("REGISTER sip:a.example SIP/2.0", &headers("10.0.0.5:40000"), ""));
    assert_eq!(heard, message("REGISTER sip:a.example SIP/2.0", &headers("203.0.113.1:50000"), ""));
    let made = telephone.book.made[0];
    assert_eq!((made.wanted, made.lifetime, made.uses), (Wanted::EndpointOfFlow, 600, Uses::Many));
    let back = telephone.send(
        Outside,
        &message(
            "SIP/2.0 200 OK",
            "Via: SIP/2.0/UDP 203.0.113.1:50000;received=203.0.113.1;rport=50000\r\n\
             Contact: <sip:u@203.0.113.1:50000;ob>;expires=600\r\n",
            "",
        ),
    );
    assert!(back.contains("UDP 10.0.0.5:40000;received=203.0.113.1;rport=50000\r\n"), "{back}");
    assert!(back.contains("Contact: <sip:u@10.0.0.5:40000;ob>"), "{back}");
    // The end of a registration keeps nothing.
    telephone.send(
        Inside,
        &message("REGISTER a SIP/2.0", "m: <sip:u@10.0.0.5:40000>;expires=0\r\n", ""),
    );
    assert_eq!(telephone.book.made.len(), 1);
}

#[test]
fn a_port_besides_the_flows_own_is_expected_and_comes_back() {
    let mut telephone = client();
    let heard = telephone
        .send(Inside, &message("REGISTER a SIP/2.0", "m: <sip:u@10.0.0.5>\r\nExpires: 90\r\n", ""));
    assert!(heard.contains("m: <sip:u@203.0.113.1:60002>"), "{heard}");
    let made = telephone.book.made[0];
    assert_eq!((made.internal.port(), made.lifetime, made.protocol), (5060, 180, 17));
    let line = "OPTIONS sip:u@203.0.113.1:60002 SIP/2.0";
    let back = telephone.send(Outside, &message(line, "", ""));
    assert!(back.starts_with("OPTIONS sip:u@10.0.0.5 SIP/2.0\r\n"), "{back}");
}

#[test]
fn media_become_pairs_and_the_length_follows() {
    let mut telephone = client();
    let media = |audio: u16, video: u16, rtcp: u16| {
        format!(
            "m=audio {audio} RTP/AVP 0\r\na=candidate:1 1 UDP 1 10.0.0.5 4000 typ host\r\n\
             m=video {video} RTP/AVP 31\r\na=rtcp:{rtcp}\r\nm=text 0 RTP/AVP 1\r\n"
        )
    };
    let offer = |address: &str, media: &str| {
        message("INVITE sip:b@c SIP/2.0", "Call-ID: 1\r\n", &description(address, media))
    };
    let heard = telephone.send(Inside, &offer("10.0.0.5", &media(4000, 4002, 4003)));
    assert_eq!(heard, offer("203.0.113.1", &media(60002, 60004, 60005)));
    let all: Vec<_> = telephone.book.made.iter().map(|made| (made.wanted, made.remote)).collect();
    assert_eq!(all, [(Wanted::Pair, None), (Wanted::Pair, None)]);
    // A repeated offer, or one that holds, keeps its ports.
    let heard = telephone.send(Inside, &offer("10.0.0.5", &media(4000, 4002, 4003)));
    assert_eq!(heard, offer("203.0.113.1", &media(60002, 60004, 60005)));
}

/// RFC 3605: a host that has sent from both ports before has two external ones that do not follow
/// each other.
#[test]
fn media_without_a_pair_name_the_port_of_rtcp() {
    let one = Wanted::AddressOfFlow;
    for (media, heard, asked) in [
        (
            "m=audio 4000 RTP/AVP 0\r\na=sendrecv\r\na=x\r\n",
            "m=audio 60002 RTP/AVP 0\r\na=rtcp:60004\r\na=sendrecv\r\na=x\r\n",
            &[4000, 4001][..],
        ),
        (
            "m=audio 4000 RTP/AVP 0\r\n",
            "m=audio 60002 RTP/AVP 0\r\na=rtcp:60004\r\n",
            &[4000, 4001],
        ),
        (
            "m=audio 4000 RTP/AVP 0\nb=AS:64\n",
            "m=audio 60002 RTP/AVP 0\nb=AS:64\na=rtcp:60004\n",
            &[4000, 4001],
        ),
        (
            "m=audio 4000 RTP/AVP 0\r\na=rtcp:4001\r\n",
            "m=audio 60002 RTP/AVP 0\r\na=rtcp:60004\r\n",
            &[4000, 4001],
        ),
        // No place for the line.
        ("m=audio 4000 RTP/AVP 0", "m=audio 60002 RTP/AVP 0", &[4000]),
        (
            "m=audio 4000 RTP/AVP 0\r\nm=video 4002 RTP/AVP 31\r\nc=IN IP4 10.0.0.5\r\n",
            "m=audio 60002 RTP/AVP 0\r\nm=video 60004 RTP/AVP 31\r\nc=IN IP4 203.0.113.1\r\n\
             a=rtcp:60006\r\n",
            &[4000, 4002, 4003],
        ),
        ("m=audio 4001 RTP/AVP 0\r\n", "m=audio 60002 RTP/AVP 0\r\n", &[4001]),
        (
            "m=audio 4000 UDP/TLS/RTP/SAVPF 0\r\na=x\r\n",
            "m=audio 60002 UDP/TLS/RTP/SAVPF 0\r\na=rtcp:60004\r\na=x\r\n",
            &[4000, 4001],
        ),
        // No port of RTCP.
        (
            "m=audio 4000 RTP/AVP 0\r\na=x\r\na=rtcp-mux\r\n",
            "m=audio 60002 RTP/AVP 0\r\na=x\r\na=rtcp-mux\r\n",
            &[4000],
        ),
        (
            "m=audio 4000 RTP/AVP 0\r\na=rtcp-mux-only\r\n",
            "m=audio 60002 RTP/AVP 0\r\na=rtcp-mux-only\r\n",
            &[4000],
        ),
        (
            "m=image 4000 udptl t38\r\na=T38FaxVersion:0\r\n",
            "m=image 60002 udptl t38\r\na=T38FaxVersion:0\r\n",
            &[4000],
        ),
    ] {
        let mut telephone = client();
        telephone.book.has_no_pair = true;
        let answer = |address: &str, media: &str| {
            message("SIP/2.0 200 OK", "Call-ID: 1\r\n", &description(address, media))
        };
        // A repeated answer has the same ports.
        for _ in 0..2 {
            let said = telephone.send(Inside, &answer("10.0.0.5", media));
            assert_eq!(said, answer("203.0.113.1", heard), "{media}");
        }
        let made = telephone.book.made.iter().map(|made| (made.internal.port(), made.wanted));
        let expected = asked.iter().chain(asked).map(|port| (*port, one));
        assert!(made.eq(expected), "{media}");
        assert_eq!(telephone.refused(Reason::NoPort), 0);
    }
}

/// A flow remembers as many media without pairs as media with pairs.
#[test]
fn an_answer_limits_all_media_without_pairs() {
    let mut telephone = client();
    telephone.book.has_no_pair = true;
    let media = |first: u16| -> String {
        let line = |at: u16| format!("m=x {} RTP/AVP {at}\r\na=x\r\n", first + 2 * at);
        (0..5).map(line).collect()
    };
    let text = |line: &str, address: &str, first: u16| {
        message(line, "Call-ID: 1\r\n", &description(address, &media(first)))
    };
    let ports: Vec<u16> = (4000..4010).collect();
    telephone.send(Inside, &text("INVITE sip:b@c SIP/2.0", "10.0.0.5", 4000));
    telephone.send(Outside, &text("SIP/2.0 200 OK", "198.51.100.61", 5000));
    let of = |remote: Option<Ipv4Addr>| -> Vec<u16> {
        let all = telephone.book.made.iter().filter(|one| one.remote == remote);
        all.map(|one| one.internal.port()).collect()
    };
    let limited = of(Some(Ipv4Addr::new(198, 51, 100, 61)));
    assert_eq!((of(None), limited), (ports.clone(), ports));
}

#[test]
fn media_of_an_answer_come_from_the_offers_address() {
    let mut telephone = client();
    let audio = "m=audio 5000 RTP/AVP 0\r\n";
    let offer = message(
        "INVITE sip:u@203.0.113.1:50000 SIP/2.0",
        "Call-ID: 7\r\n",
        &description("198.51.100.99", audio),
    );
    telephone.send(Outside, &offer);
    assert_eq!(telephone.book.made, []);
    for (call, remote) in [("7", Some("198.51.100.99".parse().unwrap())), ("8", None)] {
        let answer = message(
            "SIP/2.0 183 Session Progress",
            &format!("i: {call}\r\n"),
            &description("10.0.0.5", "m=audio 4001 RTP/AVP 0\r\n"),
        );
        let heard = telephone.send(Inside, &answer);
        assert!(heard.contains("m=audio 60002 RTP/AVP 0\r\n"), "{heard}");
        let made = telephone.book.made.last().expect("one");
        assert_eq!((made.wanted, made.remote), (Wanted::AddressOfFlow, remote));
    }
}

#[test]
fn descriptions_of_others_and_low_ports_open_nothing() {
    let mut telephone = client();
    for (address, media) in [
        ("10.0.0.6", "m=audio 4000 RTP/AVP 0\r\n"),
        ("203.0.113.1", "m=audio 4000 RTP/AVP 0\r\n"),
        ("10.0.0.5", "m=audio 22 RTP/AVP 0\r\n"),
        ("10.0.0.5", "m=audio 99999 RTP/AVP 0\r\n"),
        ("0.0.0.0", "m=audio 4000 RTP/AVP 0\r\n"),
    ] {
        let text = message("INVITE sip:b@c SIP/2.0", "", &description(address, media));
        let heard = telephone.send(Inside, &text);
        assert!(heard.ends_with(media), "{heard}");
        let (head, body) = heard.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{heard}");
    }
    assert_eq!(telephone.book.made, []);
    assert_eq!(telephone.refused(Reason::ForeignAddress), 2);
    assert_eq!(telephone.refused(Reason::LowPort), 1);
}

/// Telephones keep their mappings alive with empty datagrams, empty lines, or a zero.
#[test]
fn datagrams_that_keep_a_mapping_alive_do_not_end_it() {
    let mut telephone = client();
    for text in ["", "\r\n\r\n", "\0"] {
        assert_eq!(telephone.send(Inside, text), text);
        assert_eq!(telephone.send(Outside, text), text);
    }
    let headers = "Via: SIP/2.0/UDP 10.0.0.5:40000\r\n";
    let heard = telephone.send(Inside, &message("OPTIONS sip:b@c SIP/2.0", headers, ""));
    assert!(heard.contains("203.0.113.1:50000"), "{heard}");
}

/// A message from inside that is no SIP, such as one of TURN or HTTP, ends it; one from outside,
/// which anybody can forge, does not.
#[test]
fn other_datagrams_end_it_only_from_inside() {
    let register = message("REGISTER a SIP/2.0", "m: <sip:u@10.0.0.5:40000>\r\n", "");
    let mut telephone = client();
    for forged in
        ["\0\u{1}\0\u{8}", "POST / HTTP/1.1\r\n\r\n", "REGISTER a SIP/2.0\r\nl: 9\r\n\r\n"]
    {
        assert_eq!(telephone.send(Outside, forged), forged);
        telephone.send(Inside, "\r\n\r\n");
    }
    assert!(telephone.send(Inside, &register).contains("203.0.113.1:50000"));
    for other in ["\0\u{1}\0\u{8}!\u{12}\u{a4}B", "POST / HTTP/1.1\r\n\r\n", "REGISTER a SIP"] {
        let mut telephone = client();
        telephone.send(Inside, other);
        assert_eq!(telephone.send(Inside, &register), register);
        assert_eq!(telephone.book.made, []);
    }
}

/// The description of a message that the other side gets, and the offer it came from.
fn heard_of(telephone: &mut Telephone, body: &str) -> String {
    let heard = telephone.send(Inside, &message("INVITE sip:b@c SIP/2.0", "Call-ID: 1\r\n", body));
    let (head, body) = heard.split_once("\r\n\r\n").expect("a head");
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{heard}");
    body.to_owned()
}

/// A description whose origin alone names the external address.
fn origin_only(media: &str) -> String {
    description("10.0.0.5", media).replacen("10.0.0.5", "203.0.113.1", 1)
}

#[test]
fn address_and_port_of_a_medium_change_together_or_not_at_all() {
    for (media, reason) in [
        ("m=audio 7020/2 RTP/AVP 0\r\n", Reason::NoPort),
        ("m=audio 99999 RTP/AVP 0\r\n", Reason::NoPort),
        ("m=audio 7000", Reason::NoPort),
        ("m=audio 500 RTP/AVP 0\r\n", Reason::LowPort),
        ("m=audio 7000 RTP/AVP 0\r\na=rtcp:1\r\na=rtcp:2\r\n", Reason::NoPort),
        ("m=audio 500 RTP/AVP 0\r\na=rtcp:7001 IN IP4 10.0.0.5\r\n", Reason::LowPort),
    ] {
        let mut telephone = client();
        let heard = heard_of(&mut telephone, &description("10.0.0.5", media));
        assert_eq!(heard, origin_only(media));
        assert_eq!(telephone.refused(reason), 1, "{media}");
        assert_eq!(telephone.book.made, []);
    }
    let mut telephone = client();
    telephone.book.is_empty = true;
    let media = "m=audio 7000 RTP/AVP 0\r\n";
    let heard = heard_of(&mut telephone, &description("10.0.0.5", media));
    assert_eq!(heard, origin_only(media));
    assert_eq!(telephone.refused(Reason::NoPort), 1);
    // The same with the address at the medium.
    let media = "m=audio 7000 RTP/AVP 0\r\nc=IN IP4 10.0.0.5\r\n";
    let heard = heard_of(&mut telephone, &description("192.0.2.1", media));
    assert_eq!(heard, description("192.0.2.1", media));
}

#[test]
fn media_with_a_port_get_an_address_of_their_own_beside_others() {
    let mut telephone = client();
    let media = "m=audio 7000 RTP/AVP 0\r\ni=a\r\nb=AS:64\r\na=rtcp:7003\r\n\
                 m=video 500 RTP/AVP 31\r\n\
                 m=text 7004 RTP/AVP 1\r\nc=IN IP4 10.0.0.5\r\nm=x 0 RTP/AVP 1\r\n\
                 m=y 7006 RTP/AVP 1\nm=z 7008 RTP/AVP 1";
    let heard = heard_of(&mut telephone, &description("10.0.0.5", media));
    let expected = "m=audio 60002 RTP/AVP 0\r\ni=a\r\nc=IN IP4 203.0.113.1\r\nb=AS:64\r\n\
                    a=rtcp:60004\r\nm=video 500 RTP/AVP 31\r\n\
                    m=text 60006 RTP/AVP 1\r\nc=IN IP4 203.0.113.1\r\nm=x 0 RTP/AVP 1\r\n\
                    m=y 60008 RTP/AVP 1\nc=IN IP4 203.0.113.1\n\
                    m=z 60010 RTP/AVP 1\r\nc=IN IP4 203.0.113.1";
    assert_eq!(heard, origin_only(expected));
    assert_eq!(telephone.refused(Reason::LowPort), 1);
}

#[test]
fn media_beyond_the_eighth_keep_their_address() {
    let mut telephone = client();
    let media = |address: &str, port: &dyn Fn(u16) -> u16| {
        let line = |number| {
            let own = if number < 8 { address } else { "" };
            format!("m=audio {} RTP/AVP 0\r\n{own}", port(number))
        };
        (0..10).map(line).collect::<String>()
    };
    let offer = description("10.0.0.5", &media("", &|number| 7000 + 10 * number));
    let heard = heard_of(&mut telephone, &offer);
    let port = |number| if number < 8 { 60_002 + 2 * number } else { 7000 + 10 * number };
    assert_eq!(heard, origin_only(&media("c=IN IP4 203.0.113.1\r\n", &port)));
    assert_eq!(telephone.refused(Reason::Flood), 2);
}

/// A port of RTCP that is refused, or of another host, keeps its address too.
#[test]
fn the_port_of_rtcp_keeps_its_address() {
    let media = |port: u16, rtcp: &str| format!("m=audio {port} RTP/AVP 0\r\na=rtcp:{rtcp}\r\n");
    for (rtcp, expected) in [
        ("500", "500 IN IP4 10.0.0.5"),
        ("500 IN IP4 10.0.0.5", "500 IN IP4 10.0.0.5"),
        ("7001 IN IP4 10.0.0.5", "60003 IN IP4 203.0.113.1"),
        ("7001 IN IP4 10.0.0.9", "7001 IN IP4 10.0.0.9"),
        ("7001 IN IP6 2001:db8::1", "7001 IN IP6 2001:db8::1"),
    ] {
        let heard = heard_of(&mut client(), &description("10.0.0.5", &media(7000, rtcp)));
        assert_eq!(heard, description("203.0.113.1", &media(60002, expected)));
    }
}

#[test]
fn media_of_another_family_or_of_a_group_stay() {
    let mut telephone = client();
    for own in ["c=IN IP6 2001:db8::1", "c=IN IP4 224.2.1.1/127", "c=IN IP4 10.0.0.5\r\nc=x"] {
        let media =
            |port: u16| format!("m=audio {port} RTP/AVP 0\r\nm=video 7002 RTP/AVP 0\r\n{own}\r\n");
        let heard = heard_of(&mut telephone, &description("10.0.0.5", &media(7000)));
        assert_eq!(heard, description("203.0.113.1", &media(60002)));
    }
}

fn answer(status: &str, call: &str, body: &str) -> String {
    message(&format!("SIP/2.0 {status}"), &format!("i: {call}\r\n"), body)
}

/// An offer is for anybody until the other side has said where its media come from.
#[test]
fn the_answer_limits_the_media_of_an_offer() {
    let mut telephone = client();
    let media = "m=audio 7000 RTP/AVP 0\r\nm=video 7003 RTP/AVP 0\r\n\
                 m=text 7006 RTP/AVP 0\r\na=rtcp:7009\r\n";
    let offer = message("INVITE b SIP/2.0", "i: 7\r\n", &description("10.0.0.5", media));
    telephone.send(Inside, &offer);
    assert!(telephone.book.made.iter().all(|made| made.remote.is_none()));
    assert_eq!(telephone.book.made.drain(..).len(), 4);
    let answered = |telephone: &mut Telephone, now: u32, text: &str| {
        let before = telephone.book.made.len();
        assert_eq!(telephone.send_at(now, Outside, text), text);
        let of = telephone.book.made[before..].iter();
        let of = of.map(|made| (made.internal.port(), made.wanted, made.remote, made.lifetime));
        of.collect::<Vec<_>>()
    };
    // Answers of other calls, without media, or without addresses limit nothing.
    let audio = "m=audio 9000 RTP/AVP 0\r\n";
    for text in [
        answer("200 OK", "8", &description("198.51.100.61", audio)),
        answer("200 OK", "7", &description("0.0.0.0", audio)),
        answer("200 OK", "7", &description("198.51.100.61", "m=audio 0 RTP/AVP 0\r\n")),
        answer("180 Ringing", "7", ""),
    ] {
        assert_eq!(answered(&mut telephone, 9, &text), []);
    }
    let from = |last: u8| Some([198, 51, 100, last].into());
    let media = "m=audio 9000 RTP/AVP 0\r\nm=video 0 RTP/AVP 0\r\n\
                 m=text 9002 RTP/AVP 0\r\nc=IN IP4 198.51.100.62\r\n";
    let progress = answer("183 Progress", "7", &description("198.51.100.61", media));
    let expected = [
        (7000, Wanted::Pair, from(61), 170),
        (7006, Wanted::Pair, from(62), 170),
        (7009, Wanted::AddressOfFlow, from(62), 170),
    ];
    assert_eq!(answered(&mut telephone, 15, &progress), expected);
    assert_eq!(answered(&mut telephone, 16, &progress), []);
    // A call that was forked: another telephone answers. The answer prolongs nothing.
    let text = answer("200 OK", "7", &description("198.51.100.63", audio));
    assert_eq!(answered(&mut telephone, 184, &text), [(7000, Wanted::Pair, from(63), 1)]);
    let text = answer("200 OK", "7", &description("198.51.100.64", audio));
    assert_eq!(answered(&mut telephone, 185, &text), []);
    // Now the other side is known.
    telephone.send(Inside, &offer);
    assert_eq!(telephone.book.made.last().map(|made| made.remote), Some(from(64)));
}

/// RFC 3261 section 19.1.4: a URI with the usual port differs from one without.
#[test]
fn endpoints_come_back_as_the_host_wrote_them() {
    let endpoints = common::endpoints("10.0.0.5:5060", "203.0.113.1:50000", "198.51.100.2:5060");
    let headers = |contact: &str, from: &str, via: &str| {
        format!(
            "Via: SIP/2.0/UDP {via};branch=z9hG4bK1\r\nFrom: \"10.0.0.5\" <sip:u@{from}>;tag=1\r\n\
             Contact: <sip:u@{contact};transport=udp>\r\n"
        )
    };
    let (short, long, out) = ("10.0.0.5", "10.0.0.5:5060", "203.0.113.1:50000");
    for (contact, from, via) in [(short, short, long), (long, short, short), (short, long, short)] {
        let mut telephone = Telephone::new(endpoints);
        // The last message says how.
        telephone.send(Inside, &message("REGISTER a SIP/2.0", &headers(via, via, via), ""));
        let text = message("REGISTER a SIP/2.0", &headers(contact, from, via), "");
        let heard = telephone.send(Inside, &text);
        assert_eq!(heard, message("REGISTER a SIP/2.0", &headers(out, out, out), ""));
        let back = telephone.send(Outside, &message("SIP/2.0 200 OK", &headers(out, out, out), ""));
        assert_eq!(back, message("SIP/2.0 200 OK", &headers(contact, from, via), ""));
        let line = |end: &str| message(&format!("OPTIONS sip:u@{end} SIP/2.0"), "", "");
        assert_eq!(telephone.send(Outside, &line(out)), line(contact));
    }
}
