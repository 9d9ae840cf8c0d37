//! H.323 through the framework: endpoints of the host inside become external ones. The cuts of
//! segments are the matter of `conversations.rs`.

mod common;

use common::h323::{self, with};
use common::host::{datagram, transport_is_valid};
use common::{Book, Link, Opening, Random, client_inside, client_inside_v6, server_inside};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{
    ControlPacket, Endpoints, FurtherFlow, Kind, Limits, NewFlow, Payloads, Reason, Room, Uses,
    Wanted,
};
use std::net::{Ipv4Addr, SocketAddr};

const EXTERNAL: &str = "203.0.113.1:50000";
const MEDIA: &str = "10.0.0.5:5000";
const MEDIA_CONTROL: &str = "10.0.0.5:5001";
const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

fn caller() -> Link {
    Link::open(Opening::new(Kind::H323, client_inside(1720), Inside))
}

/// A connection of H.245 after its first message.
fn control() -> Link {
    let mut link = Link::open(Opening::new(Kind::H323, client_inside(30_000), Inside));
    let first = h323::bytes(h323::DETERMINATION);
    assert_eq!(says(&mut link, Inside, &first), first);
    link
}

/// Has a side send bytes; returns what the other one receives.
fn says(link: &mut Link, from: Side, bytes: &[u8]) -> Vec<u8> {
    let heard = link.hosts[from.other() as usize].received.len();
    let start = link.write(from, bytes);
    link.send(from, start, start + bytes.len().min(1400));
    link.repeat_until_acknowledged(from);
    link.hosts[from.other() as usize].received[heard..].to_vec()
}

fn refused(link: &Link, reason: Reason) -> u64 {
    link.payloads.counters(Kind::H323).refused[reason as usize]
}

/// A message with lengths of its own, unlike those in which endpoints are replaced.
fn packet(content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16 + 4).to_be_bytes();
    [&[3, 0, high, low], content].concat()
}

#[test]
fn the_source_of_a_call_becomes_external() {
    let mut link = caller();
    let heard = says(&mut link, Inside, &h323::bytes(h323::SETUP));
    assert_eq!(heard, with(h323::SETUP, &[("10.0.0.5:40000", EXTERNAL)]));
    assert!(link.book.made.is_empty() && link.book.followed.is_empty());
    // The destination is the remote host's, and stays also if the host is named by mistake.
    let foreign = with(h323::SETUP, &[("10.0.0.5:40000", "10.0.0.6:40000")]);
    assert_eq!(says(&mut link, Inside, &foreign), foreign);
}

#[test]
fn a_source_with_another_port_is_expected() {
    let mut link = caller();
    let setup = with(h323::SETUP, &[("10.0.0.5:40000", "10.0.0.5:1720")]);
    let heard = says(&mut link, Inside, &setup);
    assert_eq!(heard, with(h323::SETUP, &[("10.0.0.5:40000", "203.0.113.1:60002")]));
    let made = link.book.made[0];
    assert_eq!((made.protocol, made.uses, made.remote), (6, Uses::Many, Some(REMOTE)));
    assert_eq!((made.wanted, made.lifetime), (Wanted::AddressOfFlow, 180));
    assert_eq!(link.book.followed.len(), 1);
}

#[test]
fn a_connection_of_h245_is_expected_and_read() {
    let mut link = caller();
    let heard = says(&mut link, Inside, &h323::bytes(h323::SETUP_H245));
    let ends = [("10.0.0.5:40000", EXTERNAL), ("10.0.0.5:41000", "203.0.113.1:60002")];
    assert_eq!(heard, with(h323::SETUP_H245, &ends));
    let made = link.book.made[0];
    assert_eq!((made.protocol, made.uses, made.remote), (6, Uses::Once, Some(REMOTE)));
    let end = "203.0.113.1:60002".parse().unwrap();
    let internal = "10.0.0.5:41000".parse().unwrap();
    let further = FurtherFlow { server: Inside, end, internal };
    assert_eq!(link.book.followed, [further]);
    // The remote host's own: read, but nothing is opened.
    for (message, port) in [(h323::CONNECT_H245, 30_000), (h323::ALERTING, 30_000)] {
        let message = h323::bytes(message);
        assert_eq!(says(&mut link, Outside, &message), message);
        let last = *link.book.followed.last().unwrap();
        assert_eq!((last.server, last.end.port(), *last.end.ip()), (Outside, port, REMOTE));
    }
    // A third host's is not followed.
    let third = with(h323::CONNECT_H245, &[("198.51.100.2:30000", "198.51.100.3:30000")]);
    assert_eq!(says(&mut link, Outside, &third), third);
    assert_eq!((link.book.followed.len(), link.book.made.len()), (3, 1));
}

#[test]
fn a_connection_of_h245_may_come_by_other_messages() {
    let mut link = caller();
    let heard = says(&mut link, Inside, &h323::bytes(h323::FACILITY));
    assert_eq!(heard, with(h323::FACILITY, &[("10.0.0.5:41000", "203.0.113.1:60002")]));
    let heard = says(&mut link, Inside, &h323::bytes(h323::FACILITY_ALTERNATIVE));
    let ends = [("10.0.0.5:41000", "203.0.113.1:60002"), ("10.0.0.5:1720", "203.0.113.1:60004")];
    assert_eq!(heard, with(h323::FACILITY_ALTERNATIVE, &ends));
    let heard = says(&mut link, Inside, &h323::bytes(h323::PROGRESS));
    let ends = [
        ("10.0.0.5:41000", "203.0.113.1:60002"),
        (MEDIA, "203.0.113.1:60006"),
        (MEDIA_CONTROL, "203.0.113.1:60007"),
    ];
    assert_eq!(heard, with(h323::PROGRESS, &ends));
    let release = h323::bytes(h323::RELEASE);
    assert_eq!(says(&mut link, Inside, &release), release);
    assert_eq!(refused(&link, Reason::Unread), 0);
}

#[test]
fn media_of_fast_connect_are_pairs_and_limited_by_the_answer() {
    let mut link = caller();
    let heard = says(&mut link, Inside, &h323::bytes(h323::SETUP_FAST));
    let ends = [
        ("10.0.0.5:1720", "203.0.113.1:60002"),
        (MEDIA, "203.0.113.1:60004"),
        (MEDIA_CONTROL, "203.0.113.1:60005"),
    ];
    assert_eq!(heard, with(h323::SETUP_FAST, &ends));
    let media: Vec<_> = link.book.made.iter().filter(|made| made.protocol == 17).collect();
    assert_eq!(media.len(), 2, "both channels have the same ports");
    for made in media {
        assert_eq!((made.wanted, made.uses, made.remote), (Wanted::Pair, Uses::Many, None));
        assert_eq!((made.internal.port(), made.lifetime), (5000, 180));
    }
    // The answer repeats the host's port, and names media of another host.
    let ends = [
        (MEDIA, "203.0.113.1:60004"),
        ("198.51.100.2:6000", "198.51.100.7:6000"),
        ("198.51.100.2:6001", "198.51.100.7:6001"),
    ];
    let said = with(h323::CONNECT_FAST, &ends);
    assert_eq!(says(&mut link, Outside, &said), with(h323::CONNECT_FAST, &ends[1..]));
    let limited = link.book.made.last().unwrap();
    assert_eq!(limited.remote, Some(Ipv4Addr::new(198, 51, 100, 7)));
    assert_eq!((limited.internal.port(), limited.wanted), (5000, Wanted::Pair));
    // Later media are for that host from the start.
    says(&mut link, Inside, &with(h323::SETUP_FAST, &[(MEDIA, "10.0.0.5:5002")]));
    assert!(link.book.made[4..].iter().all(|made| made.remote.is_some()), "{:?}", link.book.made);
}

#[test]
fn tunnelled_messages_are_read() {
    let mut link = caller();
    let heard = says(&mut link, Inside, &h323::bytes(h323::SETUP_TUNNEL));
    let ends = [("10.0.0.5:40000", EXTERNAL), (MEDIA_CONTROL, "203.0.113.1:60003")];
    assert_eq!(heard, with(h323::SETUP_TUNNEL, &ends));
    let heard = says(&mut link, Inside, &h323::bytes(h323::EMPTY_TUNNEL));
    let ends = [(MEDIA, "203.0.113.1:60002"), (MEDIA_CONTROL, "203.0.113.1:60003")];
    assert_eq!(heard, with(h323::EMPTY_TUNNEL, &ends));
}

#[test]
fn logical_channels_become_external() {
    let mut link = control();
    let heard = says(&mut link, Inside, &h323::bytes(h323::OPEN));
    assert_eq!(heard, with(h323::OPEN, &[(MEDIA_CONTROL, "203.0.113.1:60003")]));
    let pair = [(MEDIA, "203.0.113.1:60002"), (MEDIA_CONTROL, "203.0.113.1:60003")];
    for ack in [h323::OPEN_ACK, h323::OPEN_ACK_TYPE] {
        assert_eq!(says(&mut link, Inside, &h323::bytes(ack)), with(ack, &pair));
    }
    let heard = says(&mut link, Inside, &h323::bytes(h323::OPEN_VIDEO));
    let video = [("10.0.0.5:5002", "203.0.113.1:60004"), ("10.0.0.5:5003", "203.0.113.1:60005")];
    assert_eq!(heard, with(h323::OPEN_VIDEO, &video));
    // The other side's: its media are limited to its address.
    let ends = [(MEDIA, "198.51.100.2:6000"), (MEDIA_CONTROL, "198.51.100.2:6001")];
    let made = link.book.made.len();
    says(&mut link, Outside, &with(h323::OPEN_ACK, &ends));
    let limited = &link.book.made[made..];
    assert!(limited.iter().all(|one| one.remote == Some(REMOTE)) && limited.len() == 2);
    assert_eq!(refused(&link, Reason::Unread), 0);
}

/// Messages of H.245 that share a packet of TPKT.
#[test]
fn all_messages_of_a_packet_are_read() {
    let contents = |all: &[Vec<u8>]| {
        let content: Vec<u8> = all.iter().flat_map(|one| one[4..].to_vec()).collect();
        packet(&content)
    };
    let [determination, open, video] =
        [h323::DETERMINATION, h323::OPEN, h323::OPEN_VIDEO].map(h323::bytes);
    // The acknowledgments of a determination and of capabilities.
    let acks = ["0300000020a0", "030000002180012080"].map(h323::bytes);
    let ends = [("10.0.0.5:5002", "203.0.113.1:60004"), ("10.0.0.5:5003", "203.0.113.1:60005")];
    let external =
        [with(h323::OPEN, &[(MEDIA_CONTROL, "203.0.113.1:60003")]), with(h323::OPEN_VIDEO, &ends)];
    for before in [&[][..], &[determination], &acks] {
        let mut link = control();
        let all = |last: &[Vec<u8>; 2]| contents(&[before, &last[..], before].concat());
        let said = all(&[open.clone(), video.clone()]);
        assert_eq!(says(&mut link, Inside, &said), all(&external), "{before:x?}");
        assert_eq!((refused(&link, Reason::Unread), link.book.made.len()), (0, 2));
        // Behind the first one, each has to be read.
        let request = [&[0; 4][..], &[0x02, 0x70, 1]].concat();
        let said = contents(&[before, &[open.clone(), request]].concat());
        assert_eq!(says(&mut link, Inside, &said), said);
        assert_eq!((refused(&link, Reason::Unread), link.book.made.len()), (1, 2));
    }
}

#[test]
fn ports_of_a_channel_that_are_no_pair_are_expected_one_by_one() {
    let mut link = control();
    for (media, control) in [("10.0.0.5:5000", "10.0.0.5:5003"), ("10.0.0.5:5005", "10.0.0.5:5006")]
    {
        let message = with(h323::OPEN_ACK, &[(MEDIA, media), (MEDIA_CONTROL, control)]);
        assert_ne!(says(&mut link, Inside, &message), message);
    }
    // The host has used both ports before, and their external ones do not follow each other.
    link.book.has_no_pair = true;
    let ends = |media, control| with(h323::OPEN_ACK, &[(MEDIA, media), (MEDIA_CONTROL, control)]);
    let heard = says(&mut link, Inside, &ends("10.0.0.5:5008", "10.0.0.5:5009"));
    assert_eq!(heard, ends("203.0.113.1:60010", "203.0.113.1:60012"));
    let wanted: Vec<_> = link.book.made.iter().map(|made| made.wanted).collect();
    assert_eq!(wanted, [Wanted::AddressOfFlow; 6]);
    assert_eq!(refused(&link, Reason::NoPort), 0);
}

#[test]
fn an_answer_limits_six_channels_without_pairs() {
    let mut link = control();
    link.book.has_no_pair = true;
    for port in (5000..5012).step_by(2) {
        let (media, control) = (format!("10.0.0.5:{port}"), format!("10.0.0.5:{}", port + 1));
        let ends = [(MEDIA, &media[..]), (MEDIA_CONTROL, &control[..])];
        says(&mut link, Inside, &with(h323::OPEN_ACK, &ends));
    }
    let ends = [(MEDIA, "198.51.100.2:6000"), (MEDIA_CONTROL, "198.51.100.2:6001")];
    says(&mut link, Outside, &with(h323::OPEN_ACK, &ends));
    let (open, limited) = link.book.made.split_at(12);
    assert!(open.iter().all(|one| one.remote.is_none()));
    assert!(limited.iter().all(|one| one.remote == Some(REMOTE)));
    let ports = limited.iter().map(|one| one.internal.port());
    assert!(ports.eq(5000..5012), "{limited:?}");
}

#[test]
fn other_addresses_and_low_ports_stay() {
    let mut link = control();
    let foreign = with(h323::OPEN, &[(MEDIA_CONTROL, "10.0.0.6:5001")]);
    assert_eq!(says(&mut link, Inside, &foreign), foreign);
    assert_eq!(refused(&link, Reason::ForeignAddress), 1);
    let low = with(h323::OPEN_ACK, &[(MEDIA, "10.0.0.5:1000"), (MEDIA_CONTROL, "10.0.0.5:1001")]);
    assert_eq!(says(&mut link, Inside, &low), low);
    assert_eq!(refused(&link, Reason::LowPort), 1);
    // One of two is refused: both stay.
    let half = with(h323::OPEN_ACK, &[(MEDIA, "10.0.0.5:5000"), (MEDIA_CONTROL, "10.0.0.5:999")]);
    assert_eq!(says(&mut link, Inside, &half), half);
    // What comes from outside opens nothing, whatever it names.
    let made = link.book.made.len();
    let own = h323::bytes(h323::OPEN_ACK);
    assert_eq!(says(&mut link, Outside, &own), own);
    assert_eq!(link.book.made.len(), made + 1, "a known medium is limited, and no more");
}

#[test]
fn a_host_that_is_called_is_reached_and_named() {
    let mut link = Link::open(Opening::new(Kind::H323, server_inside(1720), Outside));
    let said = with(
        h323::SETUP,
        &[("10.0.0.5:40000", "198.51.100.2:40000"), ("198.51.100.2:1720", "203.0.113.9:1720")],
    );
    let heard = with(
        h323::SETUP,
        &[("10.0.0.5:40000", "198.51.100.2:40000"), ("198.51.100.2:1720", "10.0.0.80:1720")],
    );
    assert_eq!(says(&mut link, Outside, &said), heard);
    let said = with(h323::CONNECT_H245, &[("198.51.100.2:30000", "10.0.0.80:30000")]);
    let heard = with(h323::CONNECT_H245, &[("198.51.100.2:30000", "203.0.113.9:60002")]);
    assert_eq!(says(&mut link, Inside, &said), heard);
    assert_eq!(link.book.followed[0].server, Inside);
}

#[test]
fn connections_that_the_other_side_names_have_a_limit() {
    let mut link = caller();
    let setup = h323::bytes(h323::SETUP);
    says(&mut link, Inside, &setup);
    for port in 0..100 {
        let end = format!("198.51.100.2:{}", 30_000 + port);
        says(&mut link, Outside, &with(h323::CONNECT_H245, &[("198.51.100.2:30000", &end)]));
    }
    assert_eq!(link.book.followed.len(), 32);
}

#[test]
fn other_protocols_leave_and_odd_messages_pass() {
    for text in ["POST / HTTP/1.1\r\n", "\u{16}\u{3}\u{1}", "\u{3}\u{1}\u{0}", "\u{3}\0\0\u{3}"] {
        let mut link = caller();
        assert_eq!(says(&mut link, Inside, text.as_bytes()), text.as_bytes());
        assert_eq!(refused(&link, Reason::NotProtocol), 1, "{text:?}");
        let setup = h323::bytes(h323::SETUP_H245);
        assert_eq!(says(&mut link, Inside, &setup), setup);
    }
    let mut link = caller();
    // An empty packet keeps the connection alive.
    assert_eq!(says(&mut link, Inside, &[3, 0, 0, 4]), [3, 0, 0, 4]);
    // A message without the element, and elements that are too long.
    let status = packet(&[8, 2, 0, 1, 0x75]);
    assert_eq!(says(&mut link, Inside, &status), status);
    assert_eq!(refused(&link, Reason::Unread), 0);
    for content in [&[8][..], &[8, 2, 0, 1], &[8, 2, 0, 1, 5, 0x7e, 0, 9, 5], &[8, 0, 5, 0x28]] {
        let message = packet(content);
        assert_eq!(says(&mut link, Inside, &message), message);
    }
    assert_eq!(refused(&link, Reason::Unread), 4);
    // A later message still is read.
    let setup = h323::bytes(h323::SETUP);
    assert_ne!(says(&mut link, Inside, &setup), setup);
    let long = packet(&[8; 7000]);
    assert_eq!(says(&mut link, Inside, &long), long);
    assert_eq!(refused(&link, Reason::TooLong), 1);
    let mut link = Link::open(Opening::new(Kind::H323, client_inside_v6(1720), Inside));
    let setup = h323::bytes(h323::SETUP);
    assert_eq!(says(&mut link, Inside, &setup), setup);
    assert_eq!(refused(&link, Reason::Families), 1);
}

/// A message that is shorter or longer than its parts say passes as it is.
#[test]
fn a_message_is_read_to_its_exact_end_or_not_at_all() {
    let tail = |message: &[u8]| [message, &[0]].concat();
    let open = h323::bytes(h323::OPEN)[4..].to_vec();
    let mut link = control();
    for content in [&tail(&open)[..], &open[..open.len() - 1], &open[..9]] {
        let message = packet(content);
        assert_eq!(says(&mut link, Inside, &message), message);
    }
    assert_eq!((refused(&link, Reason::Unread), link.book.made.len()), (3, 0));
}

/// A host that registers, by UDP.
struct Station {
    payloads: Payloads,
    book: Book,
    endpoints: Endpoints,
    now: u32,
}

impl Station {
    fn new() -> Self {
        let payloads = Payloads::new(Limits { flows: 2, buffers: 1 }, [2; 32]);
        let mut endpoints = client_inside(1719);
        endpoints.internal = "10.0.0.5:1719".parse().unwrap();
        Self { payloads, book: Book::default(), endpoints, now: 5 }
    }

    /// The data of a datagram behind the framework.
    fn send(&mut self, from: Side, data: &[u8]) -> Vec<u8> {
        let Endpoints { external, remote, .. } = self.endpoints;
        let (source, destination) =
            if from == Inside { (external, remote) } else { (remote, external) };
        let packet = datagram(source, destination, data);
        let mut buffer = [0; 2048];
        buffer[..packet.len()].copy_from_slice(&packet);
        let mut room = Room::new(&mut buffer, packet.len());
        let (kind, endpoints) = (Kind::H323, self.endpoints);
        let control = ControlPacket { kind, from, endpoints, new_flow: NewFlow::Read };
        self.payloads.process(self.now, control, &mut room, &mut self.book);
        assert!(transport_is_valid(room.bytes()));
        room.bytes()[28..].to_vec()
    }

    fn says(&mut self, from: Side, hex: &str) -> Vec<u8> {
        self.send(from, &h323::bytes(hex))
    }
}

const OWN: (&str, &str) = ("10.0.0.5:1719", EXTERNAL);
const CALLS: (&str, &str) = ("10.0.0.5:1720", "203.0.113.1:60002");

#[test]
fn a_registration_keeps_its_endpoints() {
    let mut station = Station::new();
    let heard = station.says(Inside, h323::GATEKEEPER_REQUEST);
    assert_eq!(heard, with(h323::GATEKEEPER_REQUEST, &[OWN]));
    assert!(station.book.made.is_empty());
    let heard = station.says(Inside, h323::REGISTRATION);
    assert_eq!(heard, with(h323::REGISTRATION, &[OWN, CALLS]));
    let made = &station.book.made;
    assert_eq!((made[0].protocol, made[0].wanted), (6, Wanted::AddressOfFlow));
    assert_eq!((made[1].protocol, made[1].wanted), (17, Wanted::EndpointOfFlow));
    assert!(made.iter().all(|made| made.lifetime == 300 && made.remote == Some(REMOTE)));
    assert_eq!(station.book.followed.len(), 1, "calls are read");
    // The gatekeeper grants less.
    assert_eq!(
        station.says(Outside, h323::REGISTRATION_CONFIRM),
        h323::bytes(h323::REGISTRATION_CONFIRM)
    );
    let shortened: Vec<_> = station.book.shortened.iter().map(|one| one.lifetime).collect();
    assert_eq!(shortened, [180, 180]);
    // A new registration, and its end.
    station.now += 100;
    station.says(Inside, h323::REGISTRATION_WITHOUT_TIME);
    assert!(station.book.made[2..].iter().all(|made| made.lifetime == 3600));
    let heard = station.says(Inside, h323::UNREGISTRATION);
    assert_eq!(heard, with(h323::UNREGISTRATION, &[CALLS]));
    let protocols: Vec<_> = station.book.withdrawn.iter().map(|one| one.protocol).collect();
    assert_eq!(protocols, [6, 17]);
}

/// The low bits of a time mean another time after 18 hours.
#[test]
fn a_port_of_yesterday_is_not_named() {
    let mut station = Station::new();
    station.says(Inside, h323::REGISTRATION);
    let admission = h323::bytes(h323::ADMISSION);
    for _ in 0..(1 << 16) / 3000 {
        station.now += 3000;
        assert_eq!(station.send(Inside, &admission), admission, "{}", station.now);
    }
}

#[test]
fn an_answer_to_another_request_shortens_nothing() {
    let mut station = Station::new();
    station.says(Outside, h323::REGISTRATION_REJECT);
    station.says(Inside, h323::REGISTRATION);
    let mut other = h323::bytes(h323::REGISTRATION_REJECT);
    other[2] ^= 4;
    station.send(Outside, &other);
    assert!(station.book.shortened.is_empty());
    station.says(Outside, h323::REGISTRATION_REJECT);
    let shortened: Vec<_> = station.book.shortened.iter().map(|one| one.lifetime).collect();
    assert_eq!(shortened, [180, 180]);
}

#[test]
fn calls_through_a_gatekeeper_name_external_endpoints() {
    let mut station = Station::new();
    station.says(Inside, h323::REGISTRATION);
    for message in [h323::ADMISSION, h323::ADMISSION_OF_CALLED] {
        assert_eq!(station.says(Inside, message), with(message, &[CALLS]));
    }
    let last = station.book.made.last().unwrap();
    assert_eq!(last.lifetime, 300, "an admission does not shorten the registration");
    assert_eq!(station.says(Inside, h323::INFO_RESPONSE), with(h323::INFO_RESPONSE, &[OWN, CALLS]));
    assert_eq!(station.says(Inside, h323::LOCATION), with(h323::LOCATION, &[OWN]));
    // The host's own call signalling, as the gatekeeper knows it.
    let admitted = with(h323::ADMISSION_CONFIRM, &[("198.51.100.2:1720", CALLS.1)]);
    let heard = with(h323::ADMISSION_CONFIRM, &[("198.51.100.2:1720", CALLS.0)]);
    assert_eq!(station.send(Outside, &admitted), heard);
    // The gatekeeper's, which is read at whatever port.
    let port = with(h323::ADMISSION_CONFIRM, &[("198.51.100.2:1720", "198.51.100.2:1721")]);
    assert_eq!(station.send(Outside, &port), port);
    assert_eq!(station.book.followed.last().unwrap().end.port(), 1721);
    let made = station.book.made.len();
    for text in [&b"\x7f"[..], b"GET / HTTP/1.1\r\n", &[0x0e; 40]] {
        assert_eq!(station.send(Inside, text), text);
    }
    assert_eq!(station.book.made.len(), made);
}

/// Packets of QUIC and of TURN, in which a server outside chooses identifiers and texts, look like
/// messages of RAS.
#[test]
fn messages_of_other_protocols_open_nothing() {
    let own = [10, 0, 0, 5, 0x23, 0x28];
    let other = [198, 51, 100, 2, 6, 0xb8];
    // LocationConfirm: the spin bit is 0, and the identifier of the connection has the rest.
    let mut quic = vec![0x4e, 0, 1, 0];
    quic.extend(own);
    quic.push(0);
    quic.extend(other);
    quic.extend([1, 0x80, 0, 0x40]);
    let len = quic.len() + 100;
    let extension = len - 20;
    quic.truncate(18);
    quic.extend([0x80 | (extension >> 8) as u8, extension as u8]);
    quic.resize(len, 0x5a);
    // GatekeeperRequest: the cookie of STUN is where the identifier of the protocol is.
    let mut turn = vec![0, 3, 0, 0x60, 0x21, 0x12, 0xa4, 0x42];
    turn.resize(36, 7);
    turn.extend([0, 0xc0, 0]);
    turn.extend(own);
    turn.extend([0x80, 0, 0x80, 0x80, 0x40]);
    turn.resize(116, 0x5a);
    for text in [quic, turn] {
        let mut station = Station::new();
        for _ in 0..2 {
            assert_eq!(station.send(Inside, &text), text);
        }
        assert!(station.book.made.is_empty(), "{:?}", station.book.made);
        assert!(station.book.followed.is_empty());
    }
    // Without a registration, no message but two expects anything.
    for message in [h323::ADMISSION, h323::LOCATION, h323::INFO_RESPONSE] {
        let mut station = Station::new();
        station.says(Inside, message);
        assert!(station.book.made.is_empty(), "{message}");
    }
}

/// Every six octets that changed were an endpoint of the host, and each expectation is for one.
fn check(sent: &[u8], heard: &[u8], from: Side, made: &[natgate_payload::Expectation]) {
    assert_eq!(sent.len(), heard.len());
    let (own, external) = ([10, 0, 0, 5], [203, 0, 113, 1]);
    let (old, new) = if from == Inside { (own, external) } else { (external, own) };
    let mut at = 0;
    while at < sent.len() {
        if sent[at] == heard[at] {
            at += 1;
            continue;
        }
        assert_eq!((&sent[at..at + 4], &heard[at..at + 4]), (&old[..], &new[..]), "{sent:x?}");
        at += 6;
    }
    let is_named =
        |port: u16| sent.windows(6).any(|six| six == [&own[..], &port.to_be_bytes()].concat());
    for made in made.iter().filter(|_| from == Inside) {
        let SocketAddr::V4(end) = made.internal else { panic!("{made:?}") };
        assert!(end.ip().octets() == own && end.port() >= 1024, "{made:?}");
        let is_pair = made.wanted == Wanted::Pair;
        assert!(is_named(end.port()) || is_pair && is_named(end.port() + 1), "{made:?}");
    }
    if from == Outside {
        assert!(made.iter().all(|made| made.remote.is_some()), "opened from outside: {made:?}");
    }
}

/// Messages with random changes: nothing panics, nothing of others changes or is opened.
#[test]
fn changed_messages_open_nothing_of_others() {
    let calls = [h323::SETUP_H245, h323::SETUP_FAST, h323::SETUP_TUNNEL, h323::CONNECT_FAST];
    let more = [h323::FACILITY_ALTERNATIVE, h323::PROGRESS, h323::EMPTY_TUNNEL, h323::PROCEEDING];
    let channels = [h323::OPEN, h323::OPEN_VIDEO, h323::OPEN_ACK, h323::OPEN_ACK_TYPE];
    let of_ras = [
        h323::GATEKEEPER_REQUEST,
        h323::REGISTRATION,
        h323::ADMISSION_OF_CALLED,
        h323::INFO_RESPONSE,
        h323::UNREGISTRATION,
        h323::REGISTRATION_CONFIRM,
    ];
    let start = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in start..start + 4000_u64 {
        println!("SEED={seed}");
        let mut random = Random(seed);
        let pick = |random: &mut Random, all: &[&str]| h323::bytes(all[random.below(all.len())]);
        let kind = random.below(4);
        let mut message = match kind {
            0 => pick(&mut random, &calls),
            1 => pick(&mut random, &more),
            2 => pick(&mut random, &channels),
            _ => pick(&mut random, &of_ras),
        };
        let header = if kind == 3 { 0 } else { 5 };
        for _ in 0..=random.below(4) {
            let at = header + random.below(message.len() - header);
            match random.below(6) {
                0 => message.insert(at, random.next() as u8),
                1 if message.len() > header + 8 => drop(message.remove(at)),
                2 => message[at] ^= 1 << random.below(8),
                3 => message[at] = random.next() as u8,
                // Another host's address, and an external endpoint.
                4 => {
                    message =
                        replace(&message, &[10, 0, 0, 5], &[10, 0, 0, 6 + random.below(2) as u8])
                }
                _ => message = replace(&message, &[10, 0, 0, 5], &[203, 0, 113, 1]),
            }
        }
        let from = [Inside, Outside][random.below(2)];
        if kind == 3 {
            let mut station = Station::new();
            station.says(Inside, h323::REGISTRATION);
            let made = station.book.made.len();
            let heard = station.send(from, &message);
            check(&message, &heard, from, &station.book.made[made..]);
            continue;
        }
        let [high, low] = (message.len() as u16).to_be_bytes();
        (message[2], message[3]) = (high, low);
        let mut link = if kind == 2 { control() } else { caller() };
        if kind < 2 {
            says(&mut link, Inside, &h323::bytes(h323::SETUP_FAST));
        }
        let made = link.book.made.len();
        let heard = says(&mut link, from, &message);
        check(&message, &heard, from, &link.book.made[made..]);
    }
}

/// The last occurrence of bytes replaced by others of the same length.
fn replace(message: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    if let Some(at) = message.windows(old.len()).rposition(|part| part == old) {
        message[at..at + new.len()].copy_from_slice(new);
    }
    message
}
