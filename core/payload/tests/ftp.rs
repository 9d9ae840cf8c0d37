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
