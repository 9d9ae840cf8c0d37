//! DNS: addresses of answers, inverse questions and their answers, and what passes as it is. Random
//! messages are read by a decoder of this file before and behind the framework.

mod common;

use common::host::{datagram, transport_is_valid};
use common::{Book, Link, Opening, Random, client_inside, server_inside};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{
    ControlPacket, Endpoints, Fate, Kind, Limits, NewFlow, Payloads, Reason, Room,
};
use std::net::Ipv4Addr;

const A: u16 = 1;
const CNAME: u16 = 5;
const PTR: u16 = 12;
const MX: u16 = 15;
const RRSIG: u16 = 46;
const HTTPS: u16 = 65;
const TSIG: u16 = 250;

const ANSWER: u16 = 0x8180;
const VALIDATED: u16 = 0x20;

/// A message that is written name by name.
#[derive(Clone, Default)]
struct Message {
    bytes: Vec<u8>,
    /// Names that are there, with their places.
    names: Vec<(String, usize)>,
}

impl Message {
    fn new(id: u16, flags: u16, counts: [u16; 4]) -> Self {
        let mut message = Self::default();
        for number in [id, flags].into_iter().chain(counts) {
            message.number(number);
        }
        message
    }

    fn number(&mut self, number: u16) {
        self.bytes.extend(number.to_be_bytes());
    }

    /// Writes a name, compressed as far as a name that ends like it is there, from its label `from`
    /// on.
    fn name(&mut self, name: &str, from: usize) {
        let labels: Vec<&str> = name.split('.').filter(|label| !label.is_empty()).collect();
        for (number, label) in labels.iter().enumerate() {
            let rest = labels[number..].join(".");
            let known = self.names.iter().find(|(name, _)| *name == rest).map(|(_, at)| *at);
            if let Some(at) = known.filter(|at| number >= from && *at < 0x4000) {
                return self.number(0xc000 | at as u16);
            }
            self.names.push((rest, self.bytes.len()));
            self.bytes.push(label.len() as u8);
            self.bytes.extend(label.bytes());
        }
        self.bytes.push(0);
    }

    fn question(mut self, name: &str, type_of: u16) -> Self {
        self.name(name, 0);
        self.number(type_of);
        self.number(1);
        self
    }

    fn record(mut self, owner: &str, type_of: u16, data: &[u8]) -> Self {
        self.head(owner, type_of);
        self.number(data.len() as u16);
        self.bytes.extend(data);
        self
    }

    /// A record whose data is a number if it is of MX, and a name.
    fn record_of_name(mut self, owner: &str, type_of: u16, name: &str) -> Self {
        self.head(owner, type_of);
        let length = self.bytes.len();
        self.number(0);
        if type_of == MX {
            self.number(10);
        }
        self.name(name, 0);
        let len = (self.bytes.len() - length - 2) as u16;
        self.bytes[length..length + 2].copy_from_slice(&len.to_be_bytes());
        self
    }

    fn head(&mut self, owner: &str, type_of: u16) {
        self.name(owner, 0);
        self.number(type_of);
        self.number(1);
        self.bytes.extend(300_u32.to_be_bytes());
    }

    /// OPT (RFC 6891), with the bit DO if signatures are wanted.
    fn options(mut self, wants_signatures: bool) -> Self {
        self.bytes.extend([0, 0, 41, 4, 208, 0, 0, u8::from(wants_signatures) << 7, 0, 0, 4]);
        self.bytes.extend([0, 3, 0, 0]);
        self
    }
}

/// A name, and the place behind it.
fn name_at(bytes: &[u8], mut at: usize) -> (String, usize) {
    let (mut name, mut end) = (String::new(), None);
    loop {
        match bytes[at] {
            0 => return (name, end.unwrap_or(at + 1)),
            len @ 1..=63 => {
                let label = &bytes[at + 1..][..usize::from(len)];
                name += &format!("{}.", String::from_utf8_lossy(label));
                at += 1 + usize::from(len);
            }
            _ => {
                end = end.or(Some(at + 2));
                at = usize::from(number_at(bytes, at) & 0x3fff);
            }
        }
    }
}

fn number_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A record in plain: owner, type, class and time, and data with names in full.
type Plain = (String, u16, Vec<u8>, String);

/// Flags, questions and records of a message.
fn plain(bytes: &[u8]) -> (u16, Vec<Plain>) {
    let (mut at, mut all) = (12, vec![]);
    for _ in 0..number_at(bytes, 4) {
        let (name, end) = name_at(bytes, at);
        all.push((name, number_at(bytes, end), bytes[end + 2..end + 4].to_vec(), String::new()));
        at = end + 4;
    }
    let records: u16 = [6, 8, 10].map(|at| number_at(bytes, at)).iter().sum();
    for _ in 0..records {
        let (name, end) = name_at(bytes, at);
        let (type_of, len) = (number_at(bytes, end), usize::from(number_at(bytes, end + 8)));
        let data = end + 10;
        let text = match type_of {
            CNAME | PTR => name_at(bytes, data).0,
            MX => name_at(bytes, data + 2).0,
            _ => format!("{:?}", &bytes[data..data + len]),
        };
        all.push((name, type_of, bytes[end + 2..end + 8].to_vec(), text));
        at = data + len;
    }
    assert_eq!(at, bytes.len());
    (number_at(bytes, 2), all)
}

const WEB: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 80);
const WEB_OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 80);
const PORTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 81);
const PORTS_OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const WEB_NAME: &str = "80.0.0.10.in-addr.arpa";
const WEB_NAME_OUTSIDE: &str = "80.113.0.203.in-addr.arpa";

fn book() -> Book {
    let addresses = vec![(WEB, WEB_OUTSIDE, true), (PORTS, PORTS_OUTSIDE, false)];
    Book { addresses, ..Book::default() }
}

struct World {
    payloads: Payloads,
    book: Book,
    endpoints: Endpoints,
    now: u32,
}

impl World {
    fn new(endpoints: Endpoints) -> Self {
        let payloads = Payloads::new(Limits { flows: 2, buffers: 1 }, [2; 32]);
        Self { payloads, book: book(), endpoints, now: 5 }
    }

    /// The message that leaves for one.
    fn send(&mut self, from: Side, message: &[u8]) -> Vec<u8> {
        let Endpoints { external, remote, .. } = self.endpoints;
        let (source, destination) =
            if from == Inside { (external, remote) } else { (remote, external) };
        let packet = datagram(source, destination, message);
        let mut buffer = [&packet[..], &[0; 100]].concat();
        let mut room = Room::new(&mut buffer, packet.len());
        let control = ControlPacket {
            kind: Kind::Dns,
            from,
            endpoints: self.endpoints,
            new_flow: NewFlow::Read,
        };
        let told = self
            .payloads
            .explain(self.now, (control, from), &packet, &mut self.book.clone())
            .expect("a message");
        let fate = self.payloads.process(self.now, control, &mut room, &mut self.book);
        assert_eq!(fate, Fate::Pass);
        assert!(transport_is_valid(room.bytes()));
        let left = room.bytes()[28..].to_vec();
        assert!(self.book.made.is_empty(), "messages of DNS open no port");
        assert_eq!(told.edits.is_empty(), left == message, "{told:?}");
        left
    }

    /// Sends a message that has to pass as it is.
    fn passes(&mut self, from: Side, message: &[u8]) {
        assert_eq!(self.send(from, message), message);
    }

    fn refused(&self, reason: Reason) -> u64 {
        self.payloads.counters(Kind::Dns).refused[reason as usize]
    }
}

fn answer(id: u16, name: &str, records: u16) -> Message {
    Message::new(id, ANSWER, [1, records, 0, 0]).question(name, A)
}

#[test]
fn an_answer_has_the_addresses_that_the_asking_side_sees() {
    let message = |web: Ipv4Addr, ports: Ipv4Addr| {
        Message::new(7, ANSWER, [1, 2, 1, 2])
            .question("www.example.net", A)
            .record("www.example.net", A, &web.octets())
            .record("www.example.net", A, &[192, 0, 2, 9])
            .record_of_name("example.net", MX, "mail.example.net")
            .record("mail.example.net", A, &ports.octets())
            .options(true)
            .bytes
    };
    // A server inside answers.
    let mut world = World::new(server_inside(53));
    let left = world.send(Inside, &message(WEB, PORTS));
    assert_eq!(left, message(WEB_OUTSIDE, PORTS_OUTSIDE));
    // A client inside is answered. Ports of an address do not tell their host.
    let mut world = World::new(client_inside(53));
    let left = world.send(Outside, &message(WEB_OUTSIDE, PORTS_OUTSIDE));
    assert_eq!(left, message(WEB, PORTS_OUTSIDE));
    assert_eq!(world.payloads.flows(), 0, "nothing has to be remembered");
    assert_eq!(world.book.made, []);
}

#[test]
fn hints_of_services_are_addresses_too() {
    let message = |hint: Ipv4Addr| {
        let params = [&[0, 1, 0, 0, 1, 0, 3, 2, b'h', b'2', 0, 4, 0, 4][..], &hint.octets()];
        answer(1, "www.example.net", 1).record("www.example.net", HTTPS, &params.concat()).bytes
    };
    let mut world = World::new(server_inside(53));
    assert_eq!(world.send(Inside, &message(WEB)), message(WEB_OUTSIDE));
}

#[test]
fn an_edited_answer_is_not_validated_any_more() {
    let message = |flags, address: Ipv4Addr| {
        Message::new(1, ANSWER | flags, [1, 1, 0, 0])
            .question("www.example.net", A)
            .record("www.example.net", A, &address.octets())
            .bytes
    };
    let mut world = World::new(server_inside(53));
    let left = world.send(Inside, &message(VALIDATED, WEB));
    assert_eq!(left, message(0, WEB_OUTSIDE));
    world.passes(Inside, &message(VALIDATED, Ipv4Addr::new(192, 0, 2, 9)));
}

#[test]
fn signed_messages_pass_as_they_are() {
    let mut world = World::new(server_inside(53));
    for type_of in [RRSIG, TSIG] {
        let signed = answer(1, "a.example", 2).record("a.example", A, &WEB.octets());
        world.passes(Inside, &signed.record("a.example", type_of, &[1; 30]).bytes);
    }
    assert_eq!(world.refused(Reason::Signed), 2);
    // Nothing would have changed.
    let signed = answer(1, "a.example", 2).record("a.example", A, &[192, 0, 2, 9]);
    world.passes(Inside, &signed.record("a.example", RRSIG, &[1; 30]).bytes);
    assert_eq!(world.refused(Reason::Signed), 2);
    let question = |wants| {
        Message::new(2, 0x100, [1, 0, 0, 1]).question(WEB_NAME_OUTSIDE, PTR).options(wants).bytes
    };
    world.passes(Outside, &question(true));
    assert_eq!(world.refused(Reason::Signed), 3);
    assert_ne!(world.send(Outside, &question(false)), question(false));
}

/// An inverse question, and its answer.
fn inverse(id: u16, name: &str) -> (Vec<u8>, Vec<u8>) {
    let question = Message::new(id, 0x100, [1, 0, 0, 1]).question(name, PTR).options(false);
    let answer = Message::new(id, ANSWER, [1, 1, 1, 2])
        .question(name, PTR)
        .record_of_name(name, PTR, "www.example.net")
        .record_of_name("example.net", 2, "ns.example.net")
        .record("ns.example.net", A, &[192, 0, 2, 53])
        .options(false);
    (question.bytes, answer.bytes)
}

#[test]
fn an_inverse_question_and_its_answer_are_translated() {
    for (endpoints, asker, asked, sent) in [
        (client_inside(53), Inside, WEB_NAME, WEB_NAME_OUTSIDE),
        (server_inside(53), Outside, WEB_NAME_OUTSIDE, WEB_NAME),
    ] {
        let mut world = World::new(endpoints);
        let ((question, answer), (translated, answered)) = (inverse(9, asked), inverse(9, sent));
        assert_eq!(world.send(asker, &question), translated);
        assert_eq!(world.payloads.flows(), 1);
        // An answer to another question keeps its names.
        world.passes(asker.other(), &inverse(8, sent).1);
        assert_eq!(world.send(asker.other(), &answered), answer);
        assert_eq!(world.payloads.flows(), 0);
        world.passes(asker.other(), &answered);
    }
}

#[test]
fn a_question_for_an_address_that_others_share_is_not_translated() {
    let mut world = World::new(client_inside(53));
    world.passes(Inside, &inverse(1, "81.0.0.10.in-addr.arpa").0);
    for name in [
        "www.example.net",
        "080.0.0.10.in-addr.arpa",
        "0.0.10.in-addr.arpa",
        "x.80.0.0.10.in-addr.arpa",
        "80.0.0.10.in-addr.example",
    ] {
        world.passes(Inside, &inverse(1, name).0);
    }
    let lower = inverse(2, "80.0.0.10.IN-Addr.ARPA");
    assert_eq!(world.send(Inside, &lower.0), inverse(2, "80.113.0.203.IN-Addr.ARPA").0);
}

#[test]
fn questions_are_remembered_for_some_time_and_not_too_many() {
    let mut world = World::new(client_inside(53));
    for id in 0..4 {
        assert_ne!(world.send(Inside, &inverse(id, WEB_NAME).0), inverse(id, WEB_NAME).0);
    }
    // The same question again needs no room.
    assert_ne!(world.send(Inside, &inverse(3, WEB_NAME).0), inverse(3, WEB_NAME).0);
    world.passes(Inside, &inverse(4, WEB_NAME).0);
    assert_eq!(world.refused(Reason::Flood), 1);
    world.now += 11;
    assert_ne!(world.send(Inside, &inverse(4, WEB_NAME).0), inverse(4, WEB_NAME).0);
    world.now += 11;
    world.payloads.sweep(world.now, |_| false);
    assert_eq!(world.payloads.flows(), 0);
}

#[test]
fn names_that_share_bytes_with_a_translated_one_stay() {
    let mut world = World::new(client_inside(53));
    world.send(Inside, &inverse(1, WEB_NAME).0);
    let mut message = Message::new(1, ANSWER, [1, 1, 0, 0]).question(WEB_NAME_OUTSIDE, PTR);
    message.name("81.113.0.203.in-addr.arpa", 0);
    message.bytes.extend([0, 12, 0, 1, 0, 0, 0, 1, 0, 3, 1, b'a', 0]);
    world.passes(Outside, &message.bytes);
    assert_eq!(world.refused(Reason::Ambiguous), 1);
    // The zone of an inverse name moves with it.
    world.send(Inside, &inverse(2, WEB_NAME).0);
    let message = |name: &str, zone: &str| {
        Message::new(2, ANSWER, [1, 0, 1, 0])
            .question(name, PTR)
            .record_of_name(zone, 2, "ns.example.net")
            .bytes
    };
    let left = world.send(Outside, &message(WEB_NAME_OUTSIDE, "113.0.203.in-addr.arpa"));
    assert_eq!(left, message(WEB_NAME, "0.0.10.in-addr.arpa"));
}

#[test]
fn what_is_no_whole_message_passes_and_is_counted() {
    let mut world = World::new(server_inside(53));
    let whole = answer(1, "a.example", 1).record("a.example", A, &WEB.octets()).bytes;
    for cut in 1..whole.len() {
        world.passes(Inside, &whole[..cut]);
    }
    assert_eq!(world.refused(Reason::Truncated), whole.len() as u64 - 1);
    // A name that points to itself, and an unknown kind of label.
    for label in [[0xc0, 12], [0xc0, 40], [0x80, 1]] {
        let mut bad = Message::new(1, ANSWER, [1, 0, 0, 0]).bytes;
        bad.extend(label);
        bad.extend([0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        world.passes(Inside, &bad);
    }
    assert_eq!(world.refused(Reason::NotProtocol), 3);
    // An update is no query (RFC 2136).
    world.passes(Inside, &Message::new(1, 0x2800, [1, 0, 0, 0]).bytes);
    world.passes(Inside, &[0; 8100]);
    assert_eq!(world.refused(Reason::TooLong), 1);
}

/// A message in a stream (RFC 1035 section 4.2.2).
fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

#[test]
fn messages_of_a_stream_are_translated_wherever_they_are_cut() {
    let (question, answer) = inverse(9, WEB_NAME_OUTSIDE);
    let (asked, answered) = inverse(9, WEB_NAME);
    let other = answer_of(WEB);
    let sent = [framed(&answered), framed(&other)].concat();
    let expected = [framed(&answer), framed(&answer_of(WEB_OUTSIDE))].concat();
    for cut in 0..sent.len() {
        let mut link = Link::open(Opening::new(Kind::Dns, server_inside(53), Outside));
        link.book.addresses = book().addresses;
        let ask = framed(&question);
        let start = link.write(Outside, &ask);
        link.send(Outside, start, start + ask.len());
        link.repeat_until_acknowledged(Outside);
        assert_eq!(link.hosts[Inside as usize].received, framed(&asked));
        let start = link.write(Inside, &sent);
        for (first, last) in [(0, cut), (cut, sent.len())] {
            link.send(Inside, start + first, start + last);
        }
        link.repeat_until_acknowledged(Inside);
        assert_eq!(link.hosts[Outside as usize].received, expected, "cut at {cut}");
    }
}

fn answer_of(address: Ipv4Addr) -> Vec<u8> {
    answer(3, "www.example.net", 1).record("www.example.net", A, &address.octets()).bytes
}

#[test]
fn a_stream_of_something_else_is_not_read_any_more() {
    let mut link = Link::open(Opening::new(Kind::Dns, client_inside(53), Inside));
    link.say(Inside, "\0\x05hello");
    let reasons = link.payloads.counters(Kind::Dns).refused;
    assert_eq!(reasons[Reason::NotProtocol as usize], 1);
}

/// A name of a random message. Inverse names share no labels of numbers.
fn random_name(random: &mut Random) -> &'static str {
    const NAMES: [&str; 6] = [
        WEB_NAME_OUTSIDE,
        "9.2.0.192.in-addr.arpa",
        "www.example.net",
        "example.net",
        "mail.example.net",
        "arpa",
    ];
    NAMES[random.below(NAMES.len())]
}

#[test]
fn random_answers_differ_only_where_they_have_to() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    println!("SEED={seed}");
    let mut random = Random(seed);
    let mut edited = 0;
    for _ in 0..3000 {
        let counts = [1, random.below(9) as u16, random.below(5) as u16, random.below(5) as u16];
        let mut message = Message::new(7, ANSWER, counts).question(WEB_NAME_OUTSIDE, PTR);
        for _ in 0..counts[1..].iter().sum() {
            let owner = random_name(&mut random);
            let address = [WEB_OUTSIDE, PORTS_OUTSIDE, WEB][random.below(3)];
            message = match random.below(6) {
                0 | 1 => message.record(owner, A, &address.octets()),
                2 => message.record_of_name(owner, PTR, "www.example.net"),
                3 => message.record_of_name(owner, MX, "mail.example.net"),
                4 => message.record_of_name(owner, CNAME, "example.net"),
                _ => message.record(owner, 16, &[3, b'a', 0xc0, 12]),
            };
        }
        let mut world = World::new(client_inside(53));
        world.send(Inside, &inverse(7, WEB_NAME).0);
        let left = world.send(Outside, &message.bytes);
        let (flags, mut expected) = plain(&message.bytes);
        let (old, new) = (format!("{:?}", WEB_OUTSIDE.octets()), format!("{:?}", WEB.octets()));
        for (owner, type_of, _, data) in &mut expected {
            *owner = owner.replace(WEB_NAME_OUTSIDE, WEB_NAME);
            if *type_of == A {
                *data = data.replace(&old, &new);
            }
        }
        assert_eq!(plain(&left), (flags, expected), "{:?}", message.bytes);
        edited += u32::from(left != message.bytes);
    }
    assert_eq!(edited, 3000);
}

#[test]
fn random_bytes_change_nothing_but_addresses() {
    let mut random = Random(5);
    let whole = inverse(7, WEB_NAME_OUTSIDE).1;
    for _ in 0..20_000 {
        let mut world = World::new(client_inside(53));
        if random.below(2) == 0 {
            world.send(Inside, &inverse(7, WEB_NAME).0);
        }
        let mut bytes = whole.clone();
        for _ in 0..=random.below(6) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(random.below(bytes.len() + 20));
        if !bytes.is_empty() {
            let left = world.send([Inside, Outside][random.below(2)], &bytes);
            assert!(left.len() + 40 > bytes.len() && left.len() < bytes.len() + 40);
        }
    }
}
