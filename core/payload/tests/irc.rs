//! IRC through the framework: offers of direct connections.

mod common;

use common::{Link, Opening, client_inside, client_inside_v6};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{Kind, Reason};

const OFFER: &str = "PRIVMSG b :\u{1}DCC SEND a 167772165 5000 1024\u{1}\r\n";

fn open() -> Link {
    Link::open(Opening::new(Kind::Irc, client_inside(6667), Inside))
}

fn welcome() -> Link {
    let mut link = open();
    link.say(Inside, "NICK a\r\nUSER a 0 * :a\r\n");
    link.say(Outside, ":server 001 a :Welcome\r\n");
    link
}

#[test]
fn an_offer_becomes_external() {
    let mut link = welcome();
    link.say(Inside, OFFER);
    let address = u32::from_be_bytes([203, 0, 113, 1]);
    let expected = format!("PRIVMSG b :\u{1}DCC SEND a {address} 60002 1024\u{1}\r\n");
    assert!(link.heard(Outside).ends_with(&expected), "{}", link.heard(Outside));
    assert_eq!(link.book.made.len(), 1);
    assert_eq!((link.book.made[0].remote, link.book.made[0].internal.port()), (None, 5000));
}

#[test]
fn an_offer_of_an_ipv6_host_becomes_a_number() {
    let mut link = Link::open(Opening::new(Kind::Irc, client_inside_v6(6667), Inside));
    link.say(Inside, "NICK a\r\nUSER a 0 * :a\r\n");
    link.say(Outside, ":server 001 a :Welcome\r\n");
    link.say(Inside, &OFFER.replace("167772165", "2001:db8:2::31"));
    link.say(Inside, &OFFER.replace("167772165", "2001:db8:2::32"));
    let address = u32::from_be_bytes([203, 0, 113, 1]);
    let expected = OFFER.replace("167772165 5000", &format!("{address} 60002"));
    let other = OFFER.replace("167772165", "2001:db8:2::32");
    assert!(link.heard(Outside).ends_with(&(expected + &other)), "{}", link.heard(Outside));
    assert_eq!(link.book.made[0].internal.to_string(), "[2001:db8:2::31]:5000");
    assert_eq!(link.book.made.len(), 1);
}

#[test]
fn offers_for_others_and_from_outside_open_nothing() {
    let mut link = welcome();
    link.say(Outside, &format!(":b {OFFER}"));
    link.say(Inside, &OFFER.replace("167772165", "167772166"));
    link.say(Inside, &OFFER.replace("5000", "22"));
    link.say(Inside, &OFFER.replace("5000", "0"));
    assert_eq!(link.book.made, []);
    // Without a port an offer keeps its address, too.
    link.book.is_empty = true;
    link.say(Inside, OFFER);
    let said = String::from_utf8_lossy(&link.hosts[Inside as usize].written).into_owned();
    assert_eq!(link.heard(Outside), said);
    let counters = link.payloads.counters(Kind::Irc);
    assert_eq!(counters.refused[Reason::ForeignAddress as usize], 1);
    assert_eq!(counters.refused[Reason::LowPort as usize], 1);
}

#[test]
fn without_a_registration_an_offer_opens_nothing() {
    for first in ["POST / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\r\n", OFFER, "\r\nPOST /\r\n"] {
        let mut link = open();
        link.say(Outside, ":server 001 a :Welcome\r\n");
        link.say(Inside, first);
        link.say(Outside, ":server 001 a :Welcome\r\n");
        link.say(Inside, &format!("NICK a\r\n{OFFER}"));
        assert_eq!(link.book.made, [], "{first}");
    }
    let mut link = open();
    link.say(Inside, &format!("NICK a\r\n{OFFER}"));
    assert_eq!(link.book.made, [], "the server has not welcomed the client");
}
