//! Attacks: what each attacker gets, as figures. The framework's own rules hold for every protocol,
//! so most tests take FTP, which opens ports by one line.

mod common;

use common::host::{ACK, SYN};
use common::{Link, Opening, Random, client_inside, client_inside_v6, server_inside};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{Kind, Limits, Payloads, Reason};

fn ftp() -> Opening {
    Opening::new(Kind::Ftp, client_inside(21), Inside)
}

fn greeted() -> Link {
    let mut link = Link::open(ftp());
    link.say(Outside, "220 ready\r\n");
    link
}

fn refused(link: &Link, reason: Reason) -> u64 {
    link.payloads.counters(Kind::Ftp).refused[reason as usize]
}

/// A form that a page makes a browser send. `lead` bytes precede the forged command, so that it can
/// stand at the start of a segment.
fn form(command: &str, lead: usize) -> String {
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5000\r\n\r\n";
    let filler = "x".repeat(lead.saturating_sub(head.len() + 2));
    format!("{head}{filler}\r\n{command}\r\n")
}

/// NAT slipstreaming: 0 ports, wherever the segments are cut, and whatever the server says before.
#[test]
fn a_form_opens_no_port_however_it_is_cut() {
    let text = form("PORT 10,0,0,5,200,13", 536);
    for greeting in [None, Some("220 ready\r\n"), Some("220-a\r\n220 b\r\n331 c\r\n")] {
        for cut in 1..text.len() {
            let mut link = Link::open(ftp());
            if let Some(greeting) = greeting {
                link.say(Outside, greeting);
            }
            let start = link.write(Inside, text.as_bytes());
            link.send(Inside, start, start + cut);
            link.send(Inside, start + cut, start + text.len());
            link.repeat_until_acknowledged(Inside);
            // Later lines are no commands either.
            link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
            assert_eq!(link.book.made, []);
            assert_eq!(refused(&link, Reason::NotProtocol), 1);
            assert_eq!(link.heard(Outside), format!("{text}PORT 10,0,0,5,200,13\r\n"));
        }
    }
}

/// The same for the other protocols over TCP: 0 ports.
#[test]
fn a_form_opens_no_port_of_another_protocol() {
    let register = "REGISTER sip:a SIP/2.0\r\nContact: <sip:u@10.0.0.5:40000>;expires=600\r\n\
                    Content-Length: 0\r\n";
    let setup = "SETUP rtsp://a/b RTSP/1.0\r\nTransport: RTP/AVP;client_port=4588-4589\r\n";
    let offer = "PRIVMSG a :\u{1}DCC SEND a 167772165 5000\u{1}";
    for (kind, message) in [(Kind::Sip, register), (Kind::Rtsp, setup), (Kind::Irc, offer)] {
        let text = form(message, 536);
        for cut in 1..text.len() {
            let mut link = Link::open(Opening::new(kind, client_inside(21), Inside));
            let start = link.write(Inside, text.as_bytes());
            link.send(Inside, start, start + cut);
            link.send(Inside, start + cut, start + text.len());
            link.repeat_until_acknowledged(Inside);
            link.say(Outside, ":s 001 a\r\n");
            link.say(Inside, &format!("{message}\r\n"));
            assert_eq!(link.book.made, [], "{kind:?}, cut at {cut}");
            let refused = link.payloads.counters(kind).refused[Reason::NotProtocol as usize];
            assert_eq!(refused, 1, "{kind:?}, cut at {cut}");
            assert_eq!(link.heard(Outside), format!("{text}{message}\r\n"));
        }
    }
}

/// Lengths that do not fit, or contradict each other, do not make a body a message: 0 ports.
#[test]
fn lengths_that_overflow_make_no_message_of_a_body() {
    let lengths = [
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "+5",
        "0x10",
        "",
        "5\r\nContent-Length: 0",
    ];
    let sip = "SIP/2.0\r\nContact: <sip:u@10.0.0.5:40000>;expires=600";
    let rtsp = "RTSP/1.0\r\nTransport: RTP/AVP;client_port=4588-4589";
    for (kind, first, hidden) in [
        (Kind::Sip, "MESSAGE sip:b@c SIP/2.0", format!("REGISTER sip:a {sip}")),
        (Kind::Rtsp, "PLAY rtsp://a/b RTSP/1.0", format!("SETUP rtsp://a/b {rtsp}")),
    ] {
        let made = |length: &str| {
            let mut link = Link::open(Opening::new(kind, client_inside(21), Inside));
            let head = format!("{first}\r\nContent-Length: {length}\r\n\r\n");
            link.say(Inside, &format!("{head}{hidden}\r\nContent-Length: 0\r\n\r\n"));
            link.book.made.len()
        };
        assert_eq!(made("0"), 1, "{kind:?}: a message of its own");
        for length in lengths {
            assert_eq!(made(length), 0, "{kind:?}, {length:?}");
        }
    }
}

/// The forged command alone, at the start of a stream, or behind a server's answer of HTTP.
#[test]
fn a_client_that_speaks_first_opens_no_port() {
    let mut link = Link::open(ftp());
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    link.say(Outside, "220 ready\r\n");
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    assert_eq!(link.book.made, []);
    for answer in ["HTTP/1.1 200 OK\r\n\r\n", "SSH-2.0-x\r\n", "230 in\r\n", "22", "\u{16}\u{3}"] {
        let mut link = Link::open(ftp());
        link.say(Outside, answer);
        link.say(Outside, "220 ready\r\n");
        link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
        let is_part = answer == "22";
        assert!(link.book.made.is_empty(), "{answer:?}");
        assert_eq!(refused(&link, Reason::NotProtocol), 1, "{answer:?} {is_part}");
    }
}

/// FTP bounce: addresses of others, and ports below 1024: 0 of all.
#[test]
fn addresses_of_others_and_low_ports_open_nothing() {
    let mut link = greeted();
    let text = "PORT 10,0,0,6,200,13\r\nPORT 203,0,113,1,200,13\r\nEPRT |1|10.0.0.6|51213|\r\n\
                EPRT |2|::1|51213|\r\nPORT 127,0,0,1,200,13\r\nPORT 0,0,0,0,200,13\r\n";
    link.say(Inside, text);
    assert_eq!(refused(&link, Reason::ForeignAddress), 6);
    let low = "PORT 10,0,0,5,0,22\r\nEPRT |1|10.0.0.5|1023|\r\nPORT 10,0,0,5,0,0\r\n";
    link.say(Inside, low);
    assert_eq!(refused(&link, Reason::LowPort), 3);
    assert_eq!(link.book.made, []);
    assert_eq!(link.heard(Outside), format!("{text}{low}"));
}

/// A host outside, client or server: 0 ports.
#[test]
fn what_comes_from_outside_opens_nothing() {
    let mut link = greeted();
    link.say(Inside, "PASV\r\n");
    link.say(Outside, "227 Entering Passive Mode (10,0,0,5,200,13)\r\n229 (|||51213|)\r\n");
    let mut server = Link::open(Opening::new(Kind::Ftp, server_inside(21), Outside));
    server.say(Inside, "220 ready\r\n");
    server.say(Outside, "PORT 10,0,0,80,200,13\r\nEPRT |1|10.0.0.80|51213|\r\n");
    assert!(link.book.made.is_empty() && server.book.made.is_empty());
    // A server inside that names another host.
    server.say(Inside, "227 (10,0,0,81,200,13)\r\n");
    assert_eq!(server.book.made, []);
    assert_eq!(refused(&server, Reason::ForeignAddress), 1);
}

/// A host outside that names the endpoints of the host inside, in other protocols of text: 0 ports.
/// The same from the host inside opens some.
#[test]
fn messages_of_text_from_outside_open_nothing() {
    let body = "v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4000 RTP/AVP 0\r\n";
    let invite = format!(
        "INVITE sip:u@a SIP/2.0\r\nContact: <sip:u@10.0.0.5:40001>\r\n\
         Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let contact = "CSeq: 1 REGISTER\r\nContact: <sip:u@10.0.0.5:40001>;expires=600\r\n\
                   Content-Length: 0\r\n\r\n";
    let register = format!("REGISTER sip:a SIP/2.0\r\n{contact}");
    let transport = "Transport: RTP/AVP;client_port=4588-4589\r\n\r\n";
    let setup = format!("SETUP rtsp://a/b RTSP/1.0\r\n{transport}");
    for (kind, said) in [(Kind::Sip, &invite), (Kind::Sip, &register), (Kind::Rtsp, &setup)] {
        let mut own = Link::open(Opening::new(kind, client_inside(21), Inside));
        own.say(Inside, said);
        assert!(!own.book.made.is_empty(), "{said}");
    }
    let granted = format!("SIP/2.0 200 OK\r\n{contact}");
    let reply = format!("RTSP/1.0 200 OK\r\n{transport}");
    let offer = ":s 001 a :x\r\nPRIVMSG b :\u{1}DCC SEND a 167772165 5000 9\u{1}\r\n".to_owned();
    for (kind, said) in [
        (Kind::Sip, invite),
        (Kind::Sip, register),
        (Kind::Sip, granted),
        (Kind::Rtsp, setup),
        (Kind::Rtsp, reply),
        (Kind::Irc, offer),
    ] {
        let client = Link::open(Opening::new(kind, client_inside(21), Inside));
        let server = Link::open(Opening::new(kind, server_inside(21), Outside));
        for mut link in [client, server] {
            link.say(Outside, &said);
            assert_eq!(link.book.made, [], "{said}");
        }
    }
}

/// A `maddr` opens no port: neither of another host, nor a second one of the host itself.
#[test]
fn a_foreign_maddr_opens_nothing() {
    for (contact, count) in [
        ("<sip:u@10.0.0.6:40001;maddr=10.0.0.5>", 0),
        ("<sip:u@name.example:40001;maddr=10.0.0.5>", 0),
        ("<sip:u@10.0.0.5:40001;maddr=10.0.0.6>", 1),
        ("<sip:u@10.0.0.5:40001;maddr=10.0.0.5>", 1),
    ] {
        let mut link = Link::open(Opening::new(Kind::Sip, client_inside(5060), Inside));
        let text =
            format!("REGISTER sip:a SIP/2.0\r\nContact: {contact}\r\nContent-Length: 0\r\n\r\n");
        link.say(Inside, &text);
        assert_eq!(link.book.made.len(), count, "{contact}");
        assert!(link.book.made.iter().all(|one| one.internal.to_string() == "10.0.0.5:40001"));
    }
}

/// FTP bounce by the server: replies that name the internal or external endpoints of other
/// subscribers, or of the client itself. 0 ports; between families the client learns a port of its
/// server alone, whatever address the reply has.
#[test]
fn a_server_that_names_other_subscribers_opens_nothing() {
    let mut link = greeted();
    link.say(Inside, "PASV\r\nEPSV\r\nLIST\r\n");
    let replies = "227 Entering Passive Mode (203,0,113,77,200,13)\r\n\
                   229 Entering Extended Passive Mode (|||51213|)\r\n\
                   150 PORT 10,0,0,6,200,13\r\n227 (10,0,0,6,200,13)\r\n\
                   227 (203,0,113,1,195,80)\r\n";
    link.say(Outside, replies);
    assert_eq!(link.heard(Inside), format!("220 ready\r\n{replies}"));
    let mut families = Link::open(Opening::new(Kind::Ftp, client_inside_v6(21), Inside));
    families.say(Outside, "220 ready\r\n");
    for other in ["203,0,113,77", "10,0,0,6", "203,0,113,1", "255,255,255,255"] {
        families.say(Inside, "EPSV\r\n");
        families.say(Outside, &format!("227 Entering Passive Mode ({other},4,1)\r\n"));
    }
    let told = "229 Entering Extended Passive Mode (|||1025|)\r\n".repeat(4);
    assert_eq!(families.heard(Inside), format!("220 ready\r\n{told}"));
    assert!(link.book.made.is_empty() && families.book.made.is_empty());
}

/// 64 expectations at once and 16 more a second, of 1,000 that one flow asks for in two seconds.
#[test]
fn a_flood_of_expectations_has_a_limit() {
    let mut link = greeted();
    for count in 0..1000 {
        link.now = 100 + count / 500;
        link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
        link.say(Outside, "200 ok\r\n");
    }
    assert_eq!(link.book.made.len(), 64 + 16);
    assert_eq!(refused(&link, Reason::Flood), 1000 - 64 - 16);
}

/// Lines and numbers without an end: the flow passes, with no more than one buffer.
#[test]
fn lines_and_numbers_without_an_end_pass() {
    for start in ["PORT 10,0,0,5,", "EPRT |1|10.0.0.5|", "USER ", "EPSV "] {
        let mut link = greeted();
        link.say(Inside, start);
        for _ in 0..20 {
            link.say(Inside, &"9".repeat(1000));
        }
        assert_eq!(refused(&link, Reason::TooLong), 1, "{start}");
        assert_eq!(link.heard(Outside), format!("{start}{}", "9".repeat(20_000)));
        assert_eq!((link.book.made.len(), link.payloads.free_buffers()), (0, 4));
    }
    let mut link = greeted();
    link.say(Inside, "PORT 10,0,0,5,200,99999999999999999999\r\nPORT 10,0,0,5,4294967496,13\r\n");
    link.say(Inside, "PORT 10,0,0,5,-1,13\r\nEPRT |1|10.0.0.5|65536|\r\nPORT 10,0,0,5,0x50,1\r\n");
    assert_eq!(link.book.made, []);
}

/// Messages without an end, in other protocols of text: 0 ports, one flow that is not read any
/// more, and no buffer that is lost.
#[test]
fn messages_without_an_end_pass_in_all_protocols_of_text() {
    for (kind, start) in [
        (Kind::Sip, "REGISTER sip:a SIP/2.0\r\nContact: <sip:u@10.0.0.5:40001>;x="),
        (Kind::Sip, "REGISTER sip:a SIP/2.0\r\nContent-Length: 99999\r\n\r\n"),
        (Kind::Rtsp, "SETUP rtsp://a/b RTSP/1.0\r\nTransport: RTP/AVP;client_port="),
        (Kind::Irc, "NICK "),
    ] {
        let mut link = Link::open(Opening::new(kind, client_inside(21), Inside));
        link.say(Inside, start);
        for _ in 0..20 {
            link.say(Inside, &"9".repeat(1000));
        }
        let refused = link.payloads.counters(kind).refused;
        assert_eq!(refused[Reason::TooLong as usize], 1, "{start}");
        assert_eq!(link.heard(Outside), format!("{start}{}", "9".repeat(20_000)));
        assert_eq!((link.book.made.len(), link.payloads.free_buffers()), (0, 4));
    }
}

/// Flows that hold bytes take all buffers. Others pass untouched, and then work again.
#[test]
fn without_a_buffer_a_flow_passes_untouched() {
    let payloads = Payloads::new(Limits { flows: 8, buffers: 1 }, [1; 32]);
    let mut link = Link::prepare(ftp(), payloads);
    link.shake_hands();
    link.say(Outside, "220 ready\r\n");
    link.say(Inside, "POR");
    // The other direction finds no buffer.
    link.say(Outside, "200 half a reply");
    assert_eq!(refused(&link, Reason::NoBuffer), 1);
    link.say(Inside, "T 10,0,0,5,200,13\r\n");
    assert_eq!(link.heard(Inside), "220 ready\r\n200 half a reply");
    assert_eq!(link.heard(Outside), "PORT 10,0,0,5,200,13\r\n");
    assert_eq!((link.book.made.len(), link.payloads.free_buffers()), (0, 1));
}

/// A forged SYN, RST or acknowledgment changes no stream.
#[test]
fn forged_segments_change_no_stream() {
    let mut link = greeted();
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    for number in [0, 1, 0x7fff_ffff, 0xffff_ffff] {
        for (from, flags) in [(Inside, SYN), (Outside, SYN), (Outside, SYN | ACK)] {
            let mut forger = link.hosts[from as usize].clone();
            forger.start = number;
            let packet = forger.syn(flags);
            link.process(from, &packet);
            let packet = forger.reset();
            link.process(from, &packet);
            let packet = forger.acknowledgment();
            link.process(from, &packet);
        }
    }
    link.say(Inside, "PORT 10,0,0,5,200,14\r\n");
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\nPORT 203,0,113,1,234,100\r\n");
}

/// A forged segment from far outside the window tells no window and no time of the other host.
#[test]
fn forged_segments_tell_no_window_and_no_time() {
    let mut link = greeted();
    let mut forger = link.hosts[1].clone();
    (forger.clock, forger.start) = (0x7000_0000, forger.start.wrapping_add(0x1000_0000));
    let packet = forger.acknowledgment();
    link.process(Outside, &packet);
    // The framework acknowledges half a command with what the server said last.
    let start = link.write(Inside, b"PORT 10,0,0,5,");
    link.send(Inside, start, start + 14);
    assert_eq!(link.hosts[0].acknowledged, start + 14);
    assert!(link.hosts[0].other_stamp < 0x7000_0000);
    link.say(Inside, "200,13\r\n");
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\n");
}

/// An answer to a SYN that does not acknowledge it starts no stream.
#[test]
fn a_forged_answer_starts_no_stream() {
    let payloads = Payloads::new(Limits { flows: 8, buffers: 4 }, [1; 32]);
    let mut link = Link::prepare(ftp(), payloads);
    let syn = link.hosts[0].syn(SYN);
    link.carry(Inside, syn);
    let mut forger = link.hosts[1].clone();
    (forger.start, forger.other_start) = (7, 9);
    let packet = forger.syn(SYN | ACK);
    link.process(Outside, &packet);
    link.shake_hands();
    link.say(Outside, "220 ready\r\n");
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\n");
}

/// A new connection of the same endpoints starts afresh behind a RST, and not before.
#[test]
fn a_connection_of_the_same_endpoints_starts_afresh() {
    let mut link = greeted();
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    let reset = link.hosts[0].reset();
    link.carry(Inside, reset);
    let payloads = std::mem::replace(&mut link.payloads, Payloads::new(Limits::default(), [0; 32]));
    let mut opening = ftp();
    opening.starts = [77, 88];
    let mut link = Link::prepare(opening, payloads);
    link.shake_hands();
    link.say(Outside, "220 ready\r\n");
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\n");
    assert_eq!(link.payloads.flows(), 1);
}

/// Flows have a limit: later ones pass untouched. Old flows go.
#[test]
fn flows_have_a_limit_and_an_end() {
    let payloads = Payloads::new(Limits { flows: 1, buffers: 1 }, [1; 32]);
    let mut link = Link::prepare(ftp(), payloads);
    link.shake_hands();
    let mut other = ftp();
    other.endpoints.external.set_port(50_001);
    let payloads = std::mem::replace(&mut link.payloads, Payloads::new(Limits::default(), [0; 32]));
    let mut second = Link::prepare(other, payloads);
    second.shake_hands();
    second.say(Outside, "220 ready\r\n");
    second.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    assert_eq!(second.heard(Outside), "PORT 10,0,0,5,200,13\r\n");
    assert!(refused(&second, Reason::NoFlow) >= 1);
    second.payloads.sweep(100 + 7_700, |_| false);
    assert_eq!(second.payloads.flows(), 0);
}

/// A framework with this number of places, after as many forged first packets to a server inside.
fn forged(flows: u32, packets: u16) -> Payloads {
    const EMPTY: Limits = Limits { flows: 1, buffers: 1 };
    let mut payloads = Payloads::new(Limits { flows, buffers: 1 }, [1; 32]);
    for port in 0..packets {
        let mut opening = Opening::new(Kind::Ftp, server_inside(21), Outside);
        opening.endpoints.remote.set_port(1000 + port);
        let mut link = Link::prepare(opening, payloads);
        let syn = link.hosts[1].syn(SYN);
        link.process(Outside, &syn);
        payloads = std::mem::replace(&mut link.payloads, Payloads::new(EMPTY, [0; 32]));
    }
    payloads
}

/// Forged first packets to a server inside: they fill half of the places, for 30 seconds. A flow
/// that begins inside is read all the time.
#[test]
fn forged_beginnings_take_half_of_the_places_for_a_short_time() {
    let payloads = forged(4, 10);
    assert_eq!(payloads.flows(), 2);
    assert_eq!(payloads.counters(Kind::Ftp).refused[Reason::NoFlow as usize], 8);
    let mut link = Link::prepare(ftp(), payloads);
    link.shake_hands();
    link.say(Outside, "220 ready\r\n");
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\n");
    link.payloads.sweep(100 + 30, |_| false);
    assert_eq!(link.payloads.flows(), 1);
}

/// However many places there are, those of forged beginnings are free again after a minute.
#[test]
fn many_forged_beginnings_are_swept_away_in_a_minute() {
    let mut payloads = forged(10_000, 5000);
    assert_eq!(payloads.flows(), 5000);
    (0..64).for_each(|_| payloads.sweep(100 + 30, |_| false));
    assert_eq!(payloads.flows(), 0);
}

/// Pure acknowledgments change no record of a pair.
#[test]
fn only_what_a_record_has_counts_as_a_change() {
    let mut link = Link::open(ftp());
    link.payloads.track();
    link.say(Outside, "220 ready\r\n");
    assert_eq!(link.payloads.take_changed().count(), 1);
    let last = link.hosts[0].acknowledgment();
    link.carry(Inside, last);
    assert_eq!(link.payloads.take_changed().count(), 0);
    link.say(Inside, "NOOP\r\n");
    assert_eq!(link.payloads.take_changed().count(), 1);
}

/// A copy with an edit that is acknowledged would compare far numbers with those of the edit.
#[test]
fn the_last_acknowledgment_of_a_flow_that_has_left_is_a_change() {
    let mut link = Link::open(ftp());
    link.payloads.track();
    link.say(Outside, "220 ready\r\n");
    let mut late = Vec::new();
    for text in ["PORT 10,0,0,5,8,1\r\n", "AUTH TLS\r\n"] {
        let start = link.write(Inside, text.as_bytes());
        let packet = link.hosts[0].segment(start, start + text.len(), false);
        late.extend(link.process(Inside, &packet));
    }
    let start = link.write(Outside, b"200 ok\r\n234 go\r\n");
    let packet = link.hosts[1].segment(start, start + 16, false);
    link.process(Outside, &packet);
    assert_eq!(refused(&link, Reason::Encrypted), 1);
    link.payloads.take_changed().for_each(drop);
    let mut changes = 0;
    for (_, packet) in late {
        let acknowledgment = link.hosts[1].receive(&packet).expect("an acknowledgment");
        link.process(Outside, &acknowledgment);
        changes += link.payloads.take_changed().count();
    }
    assert_eq!(changes, 1);
}

/// The flows of one mapping of a pair go over together, in a message with a limit. Those that the
/// host inside has not answered are none of the pair's.
#[test]
fn a_mapping_of_a_pair_has_a_limit_of_flows() {
    let mut payloads = Payloads::new(Limits::default(), [1; 32]);
    let mut begin = |external: u16, remote: u16, is_answered: bool| {
        payloads.track();
        let mut opening = Opening::new(Kind::Ftp, server_inside(21), Outside);
        opening.endpoints.external.set_port(external);
        opening.endpoints.remote.set_port(remote);
        let empty = Payloads::new(Limits::default(), [0; 32]);
        let mut link = Link::prepare(opening, std::mem::replace(&mut payloads, empty));
        let syn = link.hosts[1].syn(SYN);
        link.process(Outside, &syn);
        if is_answered {
            link.hosts[0].receive(&syn);
            let answer = link.hosts[0].syn(SYN | ACK);
            link.process(Inside, &answer);
        }
        payloads = std::mem::replace(&mut link.payloads, Payloads::new(Limits::default(), [0; 32]));
        payloads.flows()
    };
    for remote in 0..200 {
        assert_eq!(begin(21, 3000 + remote, false), usize::from(remote + 1));
    }
    for remote in 0..200 {
        assert_eq!(begin(21, 1000 + remote, true), 200 + usize::from(remote + 1).min(128));
    }
    assert_eq!(begin(2121, 1000, true), 329, "another mapping");
    let mut external = server_inside(21).external;
    external.set_port(21);
    let ports = |external| {
        payloads.flows_at(6, external).map(|ends| ends.remote.port()).collect::<Vec<_>>()
    };
    assert_eq!(ports(external), (1000..1128).collect::<Vec<_>>());
    external.set_port(2121);
    assert_eq!(ports(external), [1000]);
    assert_eq!(payloads.counters(Kind::Ftp).refused[Reason::NoFlow as usize], 72);
}

/// Random bytes from both sides pass as they are, or with edits of the own address only; nothing
/// panics and no buffer is lost.
#[test]
fn random_bytes_get_through() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut link = Link::open(ftp());
        link.loss = [0, 9][random.below(2)];
        link.random = Random(!seed);
        for _ in 0..12 {
            let from = [Inside, Outside][random.below(2)];
            let count = random.below(600);
            let words: [&[u8]; 6] = [b"220 ", b"PORT 1,2", b"\r\n", b"\xff\xf4", b"AUTH", b"-"];
            let mut bytes = vec![];
            while bytes.len() < count {
                match random.below(3) {
                    0 => bytes.push(random.next() as u8),
                    _ => bytes.extend(words[random.below(words.len())]),
                }
            }
            link.write(from, &bytes);
            link.repeat_until_acknowledged(from);
        }
        for (at, host) in link.hosts.iter().enumerate() {
            let other = &link.hosts[1 - at];
            let all = other.written.starts_with(&host.received);
            let held = other.written.len() - host.received.len();
            assert!(all && held <= 4200, "seed {seed}: {held} bytes are held");
        }
        let mut sweeps = 0..10;
        while sweeps.next().is_some() {
            link.payloads.sweep(u32::MAX, |_| false);
        }
        assert_eq!((link.payloads.flows(), link.payloads.free_buffers()), (0, 4), "seed {seed}");
    }
}

/// A host whose numbers jump around the whole circle, while bytes of its connection wait or are not
/// acknowledged, and after the flow is not read any more.
#[test]
fn numbers_that_jump_around_the_circle_change_nothing() {
    let seed = std::env::var("NATGATE_SEED").map_or(5, |seed| seed.parse().expect("a number"));
    println!("NATGATE_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..20_000 {
        let mut link = greeted();
        let start = link.write(Inside, b"PORT 10,0,0,5,200,13\r\nPORT 10,0,0,5,200,14\r\nNOOP\r\n");
        for _ in 0..random.below(3) {
            let first = start + random.below(50);
            let end = first + random.below(start + 51 - first);
            let packet = link.hosts[0].segment(first, end, false);
            link.pass(Inside, &packet);
        }
        if random.below(2) == 0 {
            // The server's answer ends the reading, too: TLS begins.
            link.say(Outside, "\u{16}\u{3}\u{1}\r\n");
        }
        let begins = link.hosts.clone().map(|host| (host.start, host.other_start));
        for _ in 0..12 {
            let from = [Inside, Inside, Outside][random.below(3)];
            let host = &mut link.hosts[from as usize];
            let step = [1 << 29, 1 << 30, (1 << 31) - 9, 1 << 13][random.below(4)];
            let jump = step + random.below(70) as u32;
            match random.below(3) {
                0 => host.start = host.start.wrapping_add(jump),
                1 => host.other_start = host.other_start.wrapping_add(jump),
                _ => (host.start, host.other_start) = begins[from as usize],
            }
            let end = random.below(host.written.len() + 1);
            let first = random.below(end + 1);
            let packet = host.segment(first, end, random.below(20) == 0);
            link.pass(from, &packet);
        }
        assert!(link.book.made.len() <= 3);
    }
}
