//! FTP through the framework: what each side hears, and what is expected.

mod common;

use common::{Link, Opening, client_inside, client_inside_v6, once, server_inside};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{Kind, Reason};

fn client() -> Link {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside(21), Inside));
    link.say(Outside, "220 ready\r\n");
    link
}

fn refused(link: &Link, reason: Reason) -> u64 {
    link.payloads.counters(Kind::Ftp).refused[reason as usize]
}

#[test]
fn port_and_extended_port_become_external() {
    let mut link = client();
    link.say(Inside, "USER a\r\nPORT 10,0,0,5,200,13\r\nEPRT |1|10.0.0.5|51214|\r\nNOOP\r\n");
    assert_eq!(
        link.heard(Outside),
        "USER a\r\nPORT 203,0,113,1,234,98\r\nEPRT |1|203.0.113.1|60004|\r\nNOOP\r\n"
    );
    let all =
        [once("10.0.0.5:51213", "198.51.100.2", 60), once("10.0.0.5:51214", "198.51.100.2", 60)];
    assert_eq!(link.book.made, all);
    assert_eq!(link.payloads.counters(Kind::Ftp).expectations, 2);
    let event = link.payloads.poll_event().expect("an event");
    assert_eq!(event.opened.external.to_string(), "203.0.113.1:60002");
}

/// Clients prepare transfers by PRET if the server lists it.
#[test]
fn commands_that_prepare_a_transfer_are_ftp() {
    let mut link = client();
    link.say(Inside, "PRET RETR a\r\nPORT 10,0,0,5,200,13\r\n");
    assert_eq!(link.heard(Outside), "PRET RETR a\r\nPORT 203,0,113,1,234,98\r\n");
    assert_eq!(refused(&link, Reason::NotProtocol), 0);
}

#[test]
fn passive_replies_of_a_server_outside_pass() {
    let mut link = client();
    link.say(Inside, "PASV\r\n");
    link.say(Outside, "227 Entering Passive Mode (198,51,100,2,20,20)\r\n");
    link.say(Inside, "EPSV\r\n");
    link.say(Outside, "229 Entering Extended Passive Mode (|||6446|)\r\n");
    assert_eq!(link.heard(Outside), "PASV\r\nEPSV\r\n");
    assert!(link.heard(Inside).contains("(198,51,100,2,20,20)\r\n229"));
    assert!(link.heard(Inside).contains("(|||6446|)"));
    assert!(link.book.made.is_empty());
}

#[test]
fn replies_of_a_server_inside_become_external() {
    let mut link = Link::open(Opening::new(Kind::Ftp, server_inside(21), Outside));
    link.say(Inside, "220-Welcome\r\n227 is (10,0,0,80,1,1) here\r\n220 ready\r\n");
    link.say(Outside, "PASV\r\n");
    link.say(Inside, "227 Entering Passive Mode. 10,0,0,80,4,1\r\n");
    link.say(Outside, "EPSV\r\n");
    link.say(Inside, "229 Entering Extended Passive Mode (|||1026|)\r\n");
    link.say(Outside, "PORT 198,51,100,2,4,9\r\n");
    assert_eq!(
        link.heard(Outside),
        "220-Welcome\r\n227 is (10,0,0,80,1,1) here\r\n220 ready\r\n\
         227 Entering Passive Mode. 203,0,113,9,234,98\r\n\
         229 Entering Extended Passive Mode (|||60004|)\r\n"
    );
    assert!(link.heard(Inside).ends_with("PORT 198,51,100,2,4,9\r\n"));
    let all =
        [once("10.0.0.80:1025", "198.51.100.2", 60), once("10.0.0.80:1026", "198.51.100.2", 60)];
    assert_eq!(link.book.made, all);
}

//= test rfc6384#section-7.2-narrow
//= test rfc6384#section-12-lifetime
#[test]
fn between_families_commands_and_replies_change() {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside_v6(21), Inside));
    link.say(Outside, "220 ready\r\n");
    link.say(Inside, "EPSV\r\n");
    link.say(Outside, "227 Entering Passive Mode (192,0,2,31,237,19)\r\n");
    link.say(Inside, "EPRT |2|2001:db8:2::31|5282|\r\n");
    link.say(Outside, "200 ok\r\n");
    link.say(Inside, "EPSV ALL\r\n");
    link.say(Outside, "200 NOOP ok\r\n");
    link.say(Inside, "epsv 1\r\n");
    link.say(Outside, "200 NOOP ok\r\n");
    // A client that asks for PASV gets what the server says.
    link.say(Inside, "PASV\r\n");
    link.say(Outside, "227 Entering Passive Mode (192,0,2,31,237,20)\r\n");
    assert_eq!(link.heard(Outside), "PASV\r\nPORT 203,0,113,1,234,98\r\nNOOP\r\nNOOP\r\nPASV\r\n");
    assert_eq!(
        link.heard(Inside),
        "220 ready\r\n229 Entering Extended Passive Mode (|||60691|)\r\n200 ok\r\n\
         504 NOOP ok\r\n522 NOOP ok\r\n227 Entering Passive Mode (192,0,2,31,237,20)\r\n"
    );
    assert_eq!(link.book.made, [once("[2001:db8:2::31]:5282", "198.51.100.2", 60)]);
}

/// A client inside with IPv6, whose server has greeted.
fn client_v6() -> Link {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside_v6(21), Inside));
    link.say(Outside, "220 ready\r\n");
    link
}

/// Says a command and its reply; returns what the server and the client hear.
fn exchange(link: &mut Link, command: &str, reply: &str) -> (String, String) {
    let before = (link.heard(Outside).len(), link.heard(Inside).len());
    link.say(Inside, command);
    link.say(Outside, reply);
    (link.heard(Outside)[before.0..].to_owned(), link.heard(Inside)[before.1..].to_owned())
}

fn pair(one: &str, other: &str) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

//= test rfc6384#section-11-algs
//= test rfc6384#section-11-set
//= test rfc6384#section-11-216
//= test rfc6384#section-11-argument
//= test rfc6384#section-12-noop
#[test]
fn a_client_asks_about_the_translation_and_sets_it() {
    let mut link = client_v6();
    let asks = |link: &mut Link, command: &str, answer: &str| {
        let (server, client) = exchange(link, &format!("{command}\r\n"), "200 NOOP ok\r\n");
        assert_eq!((server.as_str(), client.as_str()), ("NOOP\r\n", answer), "{command}");
    };
    asks(&mut link, "ALGS STATUS64", "216 EPSVEPRT\r\n");
    asks(&mut link, "algs disable64", "216 NONE\r\n");
    // The commands pass as they are, and so do their replies.
    let reply = "229 Entering Extended Passive Mode (|||6446|)\r\n";
    assert_eq!(exchange(&mut link, "EPSV\r\n", reply), pair("EPSV\r\n", reply));
    let command = "EPRT |2|2001:db8:2::31|5282|\r\n";
    assert_eq!(exchange(&mut link, command, "522 no\r\n"), pair(command, "522 no\r\n"));
    assert!(link.book.made.is_empty());
    asks(&mut link, "ALGS STATUS64", "216 NONE\r\n");
    asks(&mut link, "ALGS ENABLE64", "216 EPSVEPRT\r\n");
    asks(&mut link, "ALGS", "504 NOOP ok\r\n");
    asks(&mut link, "ALGS STATUS66", "504 NOOP ok\r\n");
    let replies = pair("PASV\r\n", "229 Entering Extended Passive Mode (|||1026|)\r\n");
    let server = "227 Entering Passive Mode (10,9,8,7,4,2)\r\n";
    assert_eq!(exchange(&mut link, "EPSV 2\r\n", server), replies);
    // A reply of several lines.
    let several = "200-NOOP\r\n more\r\n200 ok\r\n";
    let told = "216-EPSVEPRT\r\n more\r\n216 EPSVEPRT\r\n";
    assert_eq!(exchange(&mut link, "ALGS STATUS64\r\n", several), pair("NOOP\r\n", told));
}

//= test rfc6384#section-4-epsv
//= test rfc6384#section-5.1-ascii
//= test rfc6384#section-6-epsv
//= test rfc6384#section-6-address
//= test rfc6384#section-6-family
//= test rfc6384#section-6-all
//= test rfc6384#section-7.2-own
//= test rfc6384#section-10-other
#[test]
fn between_families_the_rest_passes() {
    let mut link = client_v6();
    for (command, server, reply, client) in [
        ("EPSV", "PASV", "227 go (1,2,3,4,5,6)", "229 Entering Extended Passive Mode (|||1286|)"),
        ("EPSV", "PASV", "530 log in", "530 log in"),
        ("EPSV 3", "NOOP", "200 ok", "522 ok"),
        ("EPSV all", "NOOP", "200 ok", "504 ok"),
        ("PASV", "PASV", "227 go (1,2,3,4,5,6)", "227 go (1,2,3,4,5,6)"),
        ("LANG fr", "LANG fr", "200 Je parle fran\u{e7}ais", "200 Je parle fran\u{e7}ais"),
        ("RETR \u{e4}", "RETR \u{e4}", "150 go\r\n226 done", "150 go\r\n226 done"),
        ("EPRT |2|2001:db8:2::32|5282|", "EPRT |2|2001:db8:2::32|5282|", "522 no", "522 no"),
        ("EPRT |1|10.0.0.5|5282|", "EPRT |1|10.0.0.5|5282|", "200 ok", "200 ok"),
        ("PORT 10,0,0,5,4,9", "PORT 10,0,0,5,4,9", "200 ok", "200 ok"),
    ] {
        let said = exchange(&mut link, &format!("{command}\r\n"), &format!("{reply}\r\n"));
        assert_eq!(said, pair(&format!("{server}\r\n"), &format!("{client}\r\n")), "{command}");
    }
    assert!(link.book.made.is_empty());
    assert_eq!(refused(&link, Reason::ForeignAddress), 3);
}

//= test rfc6384#section-5-auth
//= test rfc6384#section-5-auth-refused
//= test rfc6384#section-5-sequence
#[test]
fn between_families_tls_is_left_alone() {
    let mut link = client_v6();
    exchange(&mut link, "AUTH TLS\r\n", "502 no\r\n");
    exchange(&mut link, "EPRT |2|2001:db8:2::31|5282|\r\n", "200 ok\r\n");
    exchange(&mut link, "AUTH TLS\r\n", "234 go\r\n");
    // The lengths differ already, and the bytes still arrive in their places.
    let plain = pair("EPSV\r\n", "227 x (1,2,3,4,5,6)\r\n");
    assert_eq!(exchange(&mut link, &plain.0, &plain.1), plain);
    assert_eq!(link.book.made.len(), 1);
}

#[test]
fn tls_is_seen_and_left_alone() {
    let mut link = client();
    link.say(Inside, "AUTH GSSAPI\r\n");
    link.say(Outside, "502 no\r\n");
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    link.say(Outside, "200 ok\r\n");
    link.say(Inside, "AUTH TLS\r\n");
    link.say(Outside, "234 go\r\n");
    assert_eq!(refused(&link, Reason::Encrypted), 1);
    link.say(Inside, "PORT 10,0,0,5,200,14\r\n");
    assert_eq!(
        link.heard(Outside),
        "AUTH GSSAPI\r\nPORT 203,0,113,1,234,98\r\nAUTH TLS\r\nPORT 10,0,0,5,200,14\r\n"
    );
    assert_eq!(link.book.made.len(), 1);
}

#[test]
fn without_a_port_the_command_passes_as_it_is() {
    let mut link = client();
    link.book.is_empty = true;
    link.say(Inside, "PORT 10,0,0,5,200,13\r\n");
    assert_eq!(link.heard(Outside), "PORT 10,0,0,5,200,13\r\n");
    assert_eq!(refused(&link, Reason::NoPort), 1);
    let mut link = Link::open(Opening::new(Kind::Ftp, server_inside(21), Outside));
    link.book.is_empty = true;
    let text = "220 ready\r\n227 Entering Passive Mode (10,0,0,80,4,1)\r\n229 (|||1026|)\r\n";
    link.say(Inside, text);
    assert_eq!(link.heard(Outside), text);
    assert_eq!(refused(&link, Reason::NoPort), 2);
}

/// A client may send many commands before the first reply.
#[test]
fn commands_without_a_reply_have_no_limit() {
    let mut link = client();
    let many = "NOOP\r\n".repeat(200);
    link.say(Inside, &many);
    link.say(Inside, "PORT 10,0,0,5,200,13\r\nAUTH TLS\r\n");
    assert_eq!(link.heard(Outside), format!("{many}PORT 203,0,113,1,234,98\r\nAUTH TLS\r\n"));
    assert_eq!(refused(&link, Reason::TooLong), 0);
    // The reply to AUTH is the one behind all others.
    for count in [100, 101] {
        link.say(Outside, &"200 ok\r\n".repeat(count));
    }
    assert_eq!(refused(&link, Reason::Encrypted), 0);
    link.say(Outside, "234 go\r\n");
    assert_eq!(refused(&link, Reason::Encrypted), 1);
}

/// Between families the replies to some commands change, so the framework counts to them.
#[test]
fn between_families_changed_commands_without_a_reply_have_a_limit() {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside_v6(21), Inside));
    link.say(Outside, "220 ready\r\n");
    link.say(Inside, &"NOOP\r\nEPSV\r\n".repeat(8));
    link.say(Inside, &"NOOP\r\n".repeat(100));
    let sent = "NOOP\r\nPASV\r\n".repeat(8) + &"NOOP\r\n".repeat(100);
    assert_eq!(link.heard(Outside), sent);
    for _ in 0..8 {
        link.say(Outside, "200 ok\r\n227 Entering Passive Mode (192,0,2,31,237,19)\r\n");
    }
    link.say(Outside, "200 ok\r\n");
    let extended = "200 ok\r\n229 Entering Extended Passive Mode (|||60691|)\r\n";
    assert_eq!(link.heard(Inside), format!("220 ready\r\n{}200 ok\r\n", extended.repeat(8)));
    link.say(Inside, &"EPSV\r\n".repeat(9));
    assert_eq!(link.heard(Outside), format!("{sent}{}EPSV\r\n", "PASV\r\n".repeat(8)));
    assert_eq!(refused(&link, Reason::TooLong), 1);
}

#[test]
fn numbers_may_have_zeros_before_them() {
    let mut link = client();
    link.say(Inside, "PORT 010,000,000,005,015,167\r\nPORT 10,0,0,5,0015,167\r\n");
    assert_eq!(link.heard(Outside), "PORT 203,0,113,1,234,98\r\nPORT 10,0,0,5,0015,167\r\n");
    assert_eq!(link.book.made, [once("10.0.0.5:4007", "198.51.100.2", 60)]);
}

//= test rfc6384#section-5-urgent
#[test]
fn the_urgent_pointer_stays_where_it_fits_and_goes_where_it_does_not() {
    const URGENT: u8 = 0x20;
    let mut link = client_v6();
    for (command, is_kept) in [("NOOP\r\n", true), ("EPSV\r\n", true), ("EPSV 2\r\n", false)] {
        let start = link.write(Inside, command.as_bytes());
        let host = &mut link.hosts[Inside as usize];
        let (own, other) = (host.own, host.other);
        let mut transport = host.segment(start, start + command.len(), false)[20..].to_vec();
        transport[13] |= URGENT;
        transport[16..20].copy_from_slice(&[0, 0, 0, 4]);
        let packet = common::host::wrap(own, other, 6, transport, 16);
        let out = link.process(Inside, &packet);
        let flags = out[0].1[20 + 13];
        assert_eq!(flags & URGENT != 0, is_kept, "{command}");
        link.repeat_until_acknowledged(Inside);
    }
}

/// The bytes of a fragment are not read, and would come to another place of a changed stream.
#[test]
fn fragments_pass_only_where_nothing_is_read_or_changed() {
    let cases: [(&[&str], usize); 4] = [
        (&["NOOP\r\n"], 0),
        (&["PORT 10,0,0,5,200,13\r\n"], 0),
        (&["GET / HTTP/1.1\r\n"], 1),
        (&["PORT 10,0,0,5,200,13\r\n", "AUTH TLS\r\n"], 0),
    ];
    for (commands, expected) in cases {
        let mut link = client();
        for command in commands {
            link.say(Inside, command);
            let reply = if command.starts_with("AUTH") { "234 go\r\n" } else { "200 ok\r\n" };
            link.say(Outside, reply);
        }
        assert_eq!(refused(&link, Reason::Encrypted), commands.len() as u64 - 1);
        let host = &mut link.hosts[Inside as usize];
        let len = host.written.len();
        let mut fragment = host.segment(len - 2, len, false);
        fragment[6] = 0x20;
        assert_eq!(link.process(Inside, &fragment).len(), expected, "{commands:?}");
        assert_eq!(refused(&link, Reason::Fragment), 1);
    }
}
