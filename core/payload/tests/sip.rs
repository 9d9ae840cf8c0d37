//! SIP through the framework, by UDP.

mod common;

use common::host::{datagram, transport_is_valid};
use common::{Book, client_inside, client_inside_v6};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{
    ControlPacket, Endpoints, Kind, Limits, NewFlow, Payloads, Reason, Room, Uses, Wanted,
};

struct Telephone {
    payloads: Payloads,
    book: Book,
    endpoints: Endpoints,
}

impl Telephone {
    fn new(endpoints: Endpoints) -> Self {
        let payloads = Payloads::new(Limits { flows: 2, buffers: 1 }, [2; 32]);
        Self { payloads, book: Book::default(), endpoints }
    }

    /// The data of a datagram behind the framework.
    fn send(&mut self, from: Side, text: &str) -> String {
        self.send_at(5, from, text)
    }

    /// The same at a time in seconds.
    fn send_at(&mut self, now: u32, from: Side, text: &str) -> String {
        let Endpoints { external, remote, .. } = self.endpoints;
        let (source, destination) =
            if from == Inside { (external, remote) } else { (remote, external) };
        let packet = datagram(source, destination, text.as_bytes());
        let mut buffer = [0; 4096];
        buffer[..packet.len()].copy_from_slice(&packet);
        let mut room = Room::new(&mut buffer, packet.len());
        let control = ControlPacket {
            kind: Kind::Sip,
            from,
            endpoints: self.endpoints,
            new_flow: NewFlow::Read,
        };
        self.payloads.process(now, control, &mut room, &mut self.book);
        assert!(transport_is_valid(room.bytes()));
        let length = u16::from_be_bytes([room.bytes()[24], room.bytes()[25]]);
        assert_eq!(usize::from(length), room.bytes().len() - 20);
        String::from_utf8_lossy(&room.bytes()[28..]).into_owned()
    }

    fn refused(&self, reason: Reason) -> u64 {
        self.payloads.counters(Kind::Sip).refused[reason as usize]
    }
}

fn client() -> Telephone {
    Telephone::new(client_inside(5060))
}

/// A message of a start line, headers, and a description.
fn message(line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    format!("{line}\r\n{headers}{kind}Content-Length: {length}\r\n\r\n{body}")
}

fn description(address: &str, media: &str) -> String {
    format!("v=0\r\no=- 1 1 IN IP4 {address}\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\n{media}")
}

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

#[test]
fn between_families_it_is_left_alone() {
    let mut telephone = Telephone::new(client_inside_v6(5060));
    let register = message("REGISTER a SIP/2.0", "m: <sip:u@[2001:db8:2::31]>\r\n", "");
    assert_eq!(telephone.send(Inside, &register), register);
    assert_eq!(telephone.refused(Reason::Families), 1);
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

#[test]
fn the_last_registration_that_ends_keeps_nothing() {
    let mut telephone = client();
    let register = |record: &str, contact: &str| {
        message("REGISTER a SIP/2.0", &format!("t: <sip:{record}>\r\nm: {contact}\r\n"), "")
    };
    let own = "<sip:u@10.0.0.5:40000>";
    telephone.send(Inside, &register("u@a", own));
    telephone.send(Inside, &register("v@a", &format!("{own};expires=60")));
    // The end of another host's registration, of another user's, and of one of two contacts.
    for (record, contact) in [
        ("u@a", "<sip:u@10.0.0.6:40000>;expires=0".to_owned()),
        ("w@a", format!("{own};expires=0")),
        ("u@a", format!("{own};expires=0, <sip:u@10.0.0.6>")),
        ("u@a", format!("{own};expires=0")),
    ] {
        telephone.send(Inside, &register(record, &contact));
        assert_eq!(telephone.book.withdrawn, []);
    }
    let last = register("v@a", "*\r\nExpires: 0");
    // Nobody outside ends it.
    telephone.send(Outside, &last);
    assert_eq!(telephone.book.withdrawn, []);
    telephone.send(Inside, &last);
    telephone.send(Inside, &last);
    let withdrawn: Vec<_> =
        telephone.book.withdrawn.iter().map(|one| (one.internal, one.remote, one.wanted)).collect();
    let remote = Some("198.51.100.2".parse().unwrap());
    let internal = "10.0.0.5:40000".parse().unwrap();
    assert_eq!(withdrawn, [(internal, remote, Wanted::EndpointOfFlow)]);
}

#[test]
fn other_messages_do_not_shorten_a_registration() {
    let mut telephone = client();
    let text = message("REGISTER a SIP/2.0", "m: <sip:u@10.0.0.5:5070>;expires=900\r\n", "");
    telephone.send(Inside, &text);
    let text = message("OPTIONS a SIP/2.0", "v: SIP/2.0/UDP 10.0.0.5:5070\r\n", "");
    telephone.send_at(105, Inside, &text);
    telephone.send_at(900, Inside, &text);
    telephone.send_at(2000, Inside, &text);
    let text = message("REGISTER a SIP/2.0", "m: <sip:u@10.0.0.5:5070>;expires=0\r\n", "");
    telephone.send_at(2001, Inside, &text);
    let lifetimes: Vec<_> = telephone.book.made.iter().map(|made| made.lifetime).collect();
    assert_eq!(lifetimes, [900, 800, 180, 180, 180]);
}

/// A request to register, or its answer, with the number of the request.
fn registration(line: &str, number: u32, contacts: &str) -> String {
    let to = if line.starts_with("SIP") { "<sip:u@a.example>;tag=9" } else { "<sip:u@a.example>" };
    let head = format!("t: {to}\r\ni: c@1\r\nCSeq: {number} REGISTER\r\n");
    message(line, &format!("{head}{contacts}"), "")
}

const REGISTER: &str = "REGISTER sip:a.example SIP/2.0";

#[test]
fn the_registrar_grants_less_time_and_never_more() {
    let mut telephone = client();
    let contact = "m: <sip:u@10.0.0.5:40000>\r\n";
    telephone.send(Inside, &registration(REGISTER, 1, &format!("{contact}Expires: 1800\r\n")));
    let other = "Contact: \"x, 203.0.113.1:50000\" <sip:u@192.0.2.8>;expires=3000,";
    let own = "<sip:u@203.0.113.1:50000;expires=7>;q=1;Expires=";
    let granted = |time: u32| {
        registration("SIP/2.0 200 OK", 1, &format!("{other} {own}{time}\r\nExpires: 1000\r\n"))
    };
    telephone.send(Outside, &registration("SIP/2.0 100 Trying", 1, ""));
    telephone.send(Outside, &registration("SIP/2.0 200 OK", 2, &format!("{other} {own}9\r\n")));
    telephone.send(Inside, &granted(9));
    assert_eq!(telephone.book.shortened, []);
    telephone.send(Outside, &granted(600));
    // The answer again, and one that grants more.
    telephone.send_at(105, Outside, &granted(700));
    // A request again, which asks for the whole time.
    telephone.send_at(
        105,
        Inside,
        &registration(REGISTER, 2, &format!("{contact}Expires: 60\r\n")),
    );
    telephone.send_at(105, Outside, &registration("SIP/2.0 200 OK", 2, "Expires: 60\r\n"));
    let shortened: Vec<_> =
        telephone.book.shortened.iter().map(|one| (one.wanted, one.lifetime)).collect();
    let own = Wanted::EndpointOfFlow;
    assert_eq!(shortened, [(own, 600), (own, 500), (own, 180)]);
    // What was granted before is kept until the answer.
    let made: Vec<_> = telephone.book.made.iter().map(|one| one.lifetime).collect();
    assert_eq!(made, [1800, 500]);
    let one = telephone.book.shortened[0];
    assert_eq!((one.internal.port(), one.remote), (40000, Some("198.51.100.2".parse().unwrap())));
}

#[test]
fn a_refused_registration_keeps_only_what_was_granted_before() {
    let mut telephone = client();
    let asked = |number| registration(REGISTER, number, "m: <sip:u@10.0.0.5:40000>\r\n");
    let refused = |status, number| registration(&format!("SIP/2.0 {status} No"), number, "");
    telephone.send(Inside, &asked(1));
    telephone.send(Outside, &refused(401, 1));
    telephone.send(Inside, &asked(2));
    // The refusal of the first request comes again.
    telephone.send(Outside, &refused(401, 1));
    let granted = "Contact: <sip:u@203.0.113.1:50000>;expires=900\r\n";
    telephone.send(Outside, &registration("SIP/2.0 200 OK", 2, granted));
    telephone.send_at(105, Inside, &asked(3));
    telephone.send_at(105, Outside, &refused(407, 3));
    let shortened: Vec<_> = telephone.book.shortened.iter().map(|one| one.lifetime).collect();
    assert_eq!(shortened, [180, 900, 800]);
}

#[test]
fn a_port_is_kept_for_the_longest_of_its_registrations() {
    let mut telephone = client();
    let of = |line: &str, user: &str, contact: &str| {
        let head = format!("To: sip:{user}@a;x=1\r\nCall-ID: c@1\r\nCSeq: 1 REGISTER\r\n");
        message(line, &format!("{head}Contact: {contact}\r\n"), "")
    };
    for user in ["u", "v"] {
        telephone.send(Inside, &of(REGISTER, user, "<sip:x@10.0.0.5:5070>;expires=3000"));
    }
    let granted = |time| format!("<sip:x@203.0.113.1:60002>;expires={time}");
    for (user, time) in [("u", 2000), ("v", 100), ("w", 5)] {
        telephone.send(Outside, &of("SIP/2.0 200 OK", user, &granted(time)));
    }
    let shortened: Vec<_> = telephone
        .book
        .shortened
        .iter()
        .map(|one| (one.wanted, one.internal.port(), one.lifetime))
        .collect();
    let other = Wanted::AddressOfFlow;
    assert_eq!(shortened, [(other, 5070, 3000), (other, 5070, 2000)]);
    // Other messages from that port keep the rest of the time.
    let text = message("OPTIONS a SIP/2.0", "v: SIP/2.0/UDP 10.0.0.5:5070\r\n", "");
    telephone.send_at(105, Inside, &text);
    assert_eq!(telephone.book.made.last().unwrap().lifetime, 1900);
}
