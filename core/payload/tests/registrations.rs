//! Registrations by SIP through the framework: how long which port of a host is kept.

mod common;

use common::Random;
use common::telephone::{Telephone, client, message};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::Wanted;

#[test]
fn the_last_registration_that_ends_keeps_nothing() {
    let mut telephone = client();
    let own = "<sip:u@10.0.0.5:40000>";
    let mut number = 0;
    let mut ask = |telephone: &mut Telephone, record: &str, contact: &str| {
        number += 1;
        let head = format!("t: <sip:{record}>\r\ni: c\r\nCSeq: {number} REGISTER\r\n");
        telephone.send(Inside, &message(REGISTER, &format!("{head}m: {contact}\r\n"), ""));
        let before = telephone.book.withdrawn.len();
        telephone.send(Outside, &message("SIP/2.0 200 OK", &head, ""));
        telephone.book.withdrawn.len() - before
    };
    ask(&mut telephone, "u@a", own);
    ask(&mut telephone, "v@a", &format!("{own};expires=60"));
    // The end of another host's registration, of another user's, and of one of two contacts.
    for (record, contact) in [
        ("u@a", "<sip:u@10.0.0.6:40000>;expires=0".to_owned()),
        ("w@a", format!("{own};expires=0")),
        ("u@a", format!("{own};expires=0, <sip:u@10.0.0.6>")),
        ("u@a", format!("{own};expires=0")),
    ] {
        assert_eq!(ask(&mut telephone, record, &contact), 0);
    }
    // Nobody outside asks for the end.
    let last = "t: <sip:v@a>\r\ni: c\r\nCSeq: 9 REGISTER\r\nm: *\r\nExpires: 0\r\n";
    telephone.send(Outside, &message(REGISTER, last, ""));
    telephone.send(Outside, &message("SIP/2.0 200 OK", last, ""));
    assert_eq!(telephone.book.withdrawn, []);
    assert_eq!(ask(&mut telephone, "v@a", "*\r\nExpires: 0"), 1);
    assert_eq!(ask(&mut telephone, "v@a", "*\r\nExpires: 0"), 0);
    let one = telephone.book.withdrawn[0];
    let remote = Some("198.51.100.2".parse().unwrap());
    assert_eq!((one.internal.port(), one.remote, one.wanted), (40000, remote, OWN));
}

const OWN: Wanted = Wanted::EndpointOfFlow;

/// Hosts behind two B4s have one internal endpoint, and one after the other the same external one.
#[test]
fn a_host_with_another_number_begins_a_flow_of_its_own() {
    let mut telephone = client();
    let text = |own: &str| message(REGISTER, &format!("m: <sip:u@{own}>;expires=900\r\n"), "");
    let (inside, outside) = (text("10.0.0.5:40000"), text("203.0.113.1:50000"));
    telephone.endpoints.number = Some([1, 0, 0, 0].into());
    telephone.send_at(1, Inside, "\0\0\0\0");
    assert_eq!(telephone.send_at(2, Inside, &inside), inside, "the flow has left its protocol");
    telephone.endpoints.number = Some([1, 0, 0, 1].into());
    assert_eq!(telephone.send_at(600, Inside, &inside), outside);
    assert_eq!(telephone.payloads.flows(), 1);
    let marked = |mark: Option<u16>| telephone.payloads.save(|_| mark).count();
    assert_eq!((marked(None), marked(Some(3))), (0, 1), "a realm without a mark stays");
}

/// RFC 3261 section 10.3: the registrar ends a contact if the request succeeds, and not before.
#[test]
fn a_refused_end_ends_nothing() {
    for ends in ["m: <sip:u@10.0.0.5:40000>;expires=0\r\n", "m: *\r\nExpires: 0\r\n"] {
        let mut telephone = client();
        let contact = "m: <sip:u@10.0.0.5:40000>;expires=900\r\n";
        telephone.send(Inside, &registration(REGISTER, 1, contact));
        telephone.send(Outside, &registration("SIP/2.0 200 OK", 1, ""));
        for (number, status) in [(2, "401 No"), (3, "403 No"), (4, "500 No")] {
            let now = 5 + number;
            telephone.send_at(now, Inside, &registration(REGISTER, number, ends));
            assert_eq!(telephone.book.left(40000), 900 - number);
            let refused = registration(&format!("SIP/2.0 {status}"), number, "");
            telephone.send_at(now + 1, Outside, &refused);
            assert_eq!(telephone.book.left(40000), 899 - number, "{status}");
        }
        telephone.send_at(20, Inside, &registration(REGISTER, 5, ends));
        telephone.send_at(20, Inside, &registration(REGISTER, 5, ends));
        assert_eq!(telephone.book.left(40000), 885);
        telephone.send_at(21, Outside, &registration("SIP/2.0 200 OK", 5, ""));
        assert_eq!(telephone.book.left(40000), 0);
    }
}

#[test]
fn other_messages_do_not_shorten_a_registration() {
    let mut telephone = client();
    let text = message("REGISTER a SIP/2.0", "m: <sip:u@10.0.0.5:5070>;expires=900\r\n", "");
    telephone.send(Inside, &text);
    let text = message("OPTIONS a SIP/2.0", "v: SIP/2.0/UDP 10.0.0.5:5070\r\n", "");
    for (now, left) in [(105, 800), (900, 180), (2000, 180)] {
        telephone.send_at(now, Inside, &text);
        assert_eq!(telephone.book.left(5070), left);
    }
}

/// The contacts alone are registered: the port of Via waits for the answer.
#[test]
fn a_port_of_via_is_kept_for_a_transaction() {
    let mut telephone = client();
    let headers = "v: SIP/2.0/UDP 10.0.0.5:5080\r\nm: <sip:u@10.0.0.5:5070>;expires=900\r\n";
    telephone.send(Inside, &message(REGISTER, headers, ""));
    assert_eq!((telephone.book.left(5070), telephone.book.left(5080)), (900, 180));
    // The end of the contact leaves time for a transaction.
    let headers = format!("i: c\r\nCSeq: 1 REGISTER\r\n{}", headers.replace("900", "0"));
    telephone.send(Inside, &message(REGISTER, &headers, ""));
    assert_eq!((telephone.book.left(5070), telephone.book.left(5080)), (900, 180));
    telephone.send(Outside, &message("SIP/2.0 200 OK", "i: c\r\nCSeq: 1 REGISTER\r\n", ""));
    assert_eq!((telephone.book.left(5070), telephone.book.left(5080)), (180, 180));
}

/// Sends a request of a user with contacts, each of a port of the host and a lifetime; the
/// registrar grants it.
fn register(telephone: &mut Telephone, now: u32, user: &str, contacts: &[(u16, u32)]) {
    let one = |(port, seconds): &(u16, u32)| {
        format!("m: \"{user}\" <sip:{user}@10.0.0.5:{port}>;q=0.5;expires={seconds}\r\n")
    };
    let contacts: String = contacts.iter().map(one).collect();
    let head = format!("t: <sip:{user}@a>\r\ni: c\r\nCSeq: {now} REGISTER\r\n");
    telephone.send_at(now, Inside, &message(REGISTER, &format!("{head}{contacts}"), ""));
    telephone.send_at(now, Outside, &message("SIP/2.0 200 OK", &head, ""));
}

/// Sends a request of a user to end all registrations.
fn end_all(telephone: &mut Telephone, now: u32, user: &str, others: &str) {
    let head = format!("t: <sip:{user}@a>\r\ni: c\r\nCSeq: {now} REGISTER\r\n");
    let text = format!("{head}Contact: *\r\n{others}Expires: 0\r\n");
    telephone.send_at(now, Inside, &message(REGISTER, &text, ""));
    telephone.send_at(now, Outside, &message("SIP/2.0 200 OK", &head, ""));
}

/// RFC 3261 section 10.2.2: the lifetime 0 is that of one contact.
#[test]
fn each_contact_ends_alone() {
    let mut telephone = client();
    let left = |telephone: &Telephone| [40000, 5070, 5072].map(|port| telephone.book.left(port));
    register(&mut telephone, 5, "u", &[(40000, 900), (5070, 900)]);
    assert_eq!(left(&telephone), [900, 900, 0]);
    // Another contact takes the place of one.
    register(&mut telephone, 6, "u", &[(5070, 0), (5072, 900)]);
    assert_eq!(left(&telephone), [899, 180, 900]);
    register(&mut telephone, 7, "u", &[(40000, 0), (5070, 900)]);
    assert_eq!(left(&telephone), [0, 900, 899]);
    // Two contacts of one port.
    register(&mut telephone, 8, "u", &[(5070, 0), (5070, 900), (5070, 0)]);
    assert_eq!(left(&telephone), [0, 900, 898]);
    // Others keep the port.
    register(&mut telephone, 9, "v", &[(5070, 600)]);
    register(&mut telephone, 9, "u", &[(5070, 0), (5072, 0)]);
    assert_eq!(left(&telephone), [0, 600, 180]);
}

/// Two contacts of one user may have one port and differ by their user (RFC 3261 section 10.3). The
/// answer lists the contact that stays.
#[test]
fn the_end_of_a_contact_leaves_another_of_its_port() {
    let mut telephone = client();
    let mut ask = |now: u32, contact: &str, seconds: u32, listed: &str| {
        let head = format!("t: <sip:u@a>\r\ni: c\r\nCSeq: {now} REGISTER\r\n");
        let contact = format!("m: <sip:{contact}@10.0.0.5:40000>;expires={seconds}\r\n");
        telephone.send_at(now, Inside, &message(REGISTER, &format!("{head}{contact}"), ""));
        telephone.send_at(now, Outside, &message("SIP/2.0 200 OK", &format!("{head}{listed}"), ""));
        telephone.book.left(40000)
    };
    let at = "203.0.113.1:50000";
    assert_eq!(ask(5, "a", 900, &format!("m: <sip:a@{at}>;expires=900\r\n")), 900);
    // A shorter time of another contact.
    let both = format!("m: <sip:a@{at}>;expires=800, <sip:b@{at}>;expires=60\r\n");
    assert_eq!(ask(105, "b", 60, &both), 800);
    assert_eq!(ask(105, "b", 0, &format!("m: <sip:a@{at}>;expires=800\r\n")), 800);
    // A registrar that lists more than it had granted prolongs nothing.
    assert_eq!(ask(205, "b", 0, &format!("m: <sip:a@{at}>;expires=3000\r\n")), 700);
    assert_eq!(ask(205, "a", 0, ""), 0);
}

/// RFC 3261 section 10.2.2: `*` ends all contacts of the user, of whichever port.
#[test]
fn the_end_of_all_contacts_ends_all_ports_of_the_user() {
    let mut telephone = client();
    let left = |telephone: &Telephone| [40000, 5070, 5072].map(|port| telephone.book.left(port));
    register(&mut telephone, 5, "u", &[(40000, 900), (5070, 900)]);
    register(&mut telephone, 5, "v", &[(5072, 900)]);
    // An error, which changes nothing (section 10.3).
    end_all(&mut telephone, 5, "u", "Contact: <sip:x@192.0.2.1>\r\n");
    assert_eq!(left(&telephone), [900, 900, 900]);
    end_all(&mut telephone, 5, "u", "");
    assert_eq!(left(&telephone), [0, 180, 900]);
}

/// Registrations for which there is no place keep all ports until they have ended, and no longer.
#[test]
fn further_registrations_are_forgotten_at_their_end() {
    let mut telephone = client();
    for user in ["a", "b", "c", "d", "e"] {
        register(&mut telephone, 5, user, &[(40000, 600)]);
    }
    for user in ["a", "b", "c", "d", "e"] {
        register(&mut telephone, 105, user, &[(40000, 0)]);
        assert_eq!(telephone.book.left(40000), 500, "the fifth is not known");
    }
    register(&mut telephone, 606, "a", &[(40000, 600)]);
    assert_eq!(telephone.book.left(40000), 600);
    register(&mut telephone, 607, "a", &[(40000, 0)]);
    assert_eq!(telephone.book.left(40000), 0);
}

/// Of times the low bits are kept: 65,536 seconds later they must not count again.
#[test]
fn registrations_of_yesterday_do_not_count() {
    let seed = 6;
    println!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..400 {
        let mut telephone = client();
        for user in &["u", "v", "w", "x", "y"][..1 + random.below(5)] {
            register(&mut telephone, 5, user, &[(40000, 600)]);
        }
        let later = 5 + 600 + 65_536 - random.below(3600) as u32;
        // Messages between may see that the time has passed; other datagrams keep the flow.
        let mut now = 606;
        for _ in 0..random.below(3) {
            now += random.below((later - now) as usize) as u32;
            let text = ["", "\r\n\r\n", "OPTIONS a SIP/2.0\r\n\r\n"][random.below(3)];
            telephone.send_at(now, Inside, text);
        }
        register(&mut telephone, later, "z", &[(40000, 600)]);
        register(&mut telephone, later, "z", &[(40000, 0)]);
        assert_eq!(telephone.book.left(40000), 0, "at {later}");
    }
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
    // The answer was final: others for the same request are not read.
    telephone.send_at(105, Outside, &granted(700));
    telephone.send_at(105, Outside, &granted(0));
    telephone.send_at(105, Outside, &registration("SIP/2.0 403 Forbidden", 1, ""));
    assert_eq!(telephone.book.left(40000), 500);
    // A request again. What was granted before is kept until the answer.
    telephone.send_at(
        105,
        Inside,
        &registration(REGISTER, 2, &format!("{contact}Expires: 60\r\n")),
    );
    telephone.send_at(105, Outside, &registration("SIP/2.0 200 OK", 2, "Expires: 60\r\n"));
    let shortened: Vec<_> =
        telephone.book.shortened.iter().map(|one| (one.wanted, one.lifetime)).collect();
    let own = Wanted::EndpointOfFlow;
    assert_eq!(shortened, [(own, 600), (own, 180)]);
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
    assert_eq!(telephone.book.left(40000), 3600);
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
    assert_eq!(telephone.book.left(5070), 1900);
}
