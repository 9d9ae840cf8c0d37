//! Packets that cannot be delivered, or not in one piece: receivers, content and rate of ICMP
//! errors.

use super::*;
use natgate_wire::{Icmp, Udp, icmp, protocol};

const REMOTE: &str = "8.8.8.8";
const EXTERNAL: &str = "203.0.113.20";

const REPLIED: Origin = Origin { direction: Direction::Local, outcome: Outcome::Replied, len: 40 };

/// A UDP packet of `len` bytes from an external endpoint, in the class of service 0x2e with a
/// congestion mark.
fn datagram(port: u16, to: &str, len: usize) -> Vec<u8> {
    let mut bytes = packet(to, len);
    bytes[1] = 0x2e << 2 | 1;
    let mut view = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    view.set_ttl(63);
    view.set_protocol(protocol::UDP);
    view.set_source(ip(EXTERNAL).to_bits());
    view.payload_mut()[..2].copy_from_slice(&port.to_be_bytes());
    view.fill_checksum();
    bytes
}

fn with_fragment_field(mut packet: Vec<u8>, field: u16) -> Vec<u8> {
    let mut view = Ipv4::new_checked(&mut packet[..]).expect("a packet");
    view.set_fragment_field(field);
    view.fill_checksum();
    packet
}

fn icmp_message(kind: u8) -> Vec<u8> {
    let mut bytes = datagram(0, REMOTE, 60);
    let mut view = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    view.set_protocol(protocol::ICMP);
    view.payload_mut()[0] = kind;
    view.fill_checksum();
    bytes
}

/// Sends a packet that is not ready to go at once.
fn hand_over(
    router: &mut Router,
    now: Timestamp,
    side: Side,
    packet: &[u8],
    origin: Option<Origin>,
) -> Fate {
    let mut buffer = [&[0; HEADROOM], packet].concat();
    let end = buffer.len();
    router.send(now, side, &mut Frame::of(&mut buffer, HEADROOM, end), origin)
}

/// A router without a gateway outside: destinations beyond its network have no route.
fn confined(errors_per_second: u32) -> Router {
    let mut settings = settings();
    settings.outside.gateway = None;
    settings.engine.limits.icmp_errors_per_second = errors_per_second;
    Router::new(&settings, &[INSIDE, OUTSIDE]).expect("the settings are right")
}

fn errors(router: &mut Router) -> Vec<(Side, Vec<u8>)> {
    let errors = std::iter::from_fn(|| router.poll_error());
    errors.map(|(link, error)| (link.side, error)).collect()
}

/// Code of an error, and the packet that it quotes.
fn read_error(error: &[u8]) -> (u8, &[u8]) {
    let packet = Ipv4::new_checked(error).expect("a packet");
    assert!(packet.checksum_valid());
    let message = Icmp::new_checked(&error[20..]).expect("an ICMP message");
    assert!(message.checksum_valid());
    assert_eq!(message.kind(), icmp::kind::UNREACHABLE);
    (message.code(), &error[28..])
}

/// Source ports of the packets that errors with this code quote.
fn ports(errors: &[(Side, Vec<u8>)], code: u8) -> Vec<u16> {
    let port = |(_, error): &(Side, Vec<u8>)| {
        let (found, quoted) = read_error(error);
        assert_eq!(found, code);
        Udp::new_checked(&quoted[20..]).expect("UDP").source_port()
    };
    errors.iter().map(port).collect()
}

//= test rfc1812#section-4.3.3.1-network
//= test rfc1812#section-4.3.2.5
#[test]
fn without_a_route_the_network_is_unreachable() {
    let mut router = confined(500);
    let sent = datagram(4000, REMOTE, 40);
    let fate = hand_over(&mut router, at(0), Side::Outside, &sent, Some(OUTBOUND));
    assert_eq!(fate, Fate::Lost);
    let errors = errors(&mut router);
    let [(Side::Outside, error)] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(read_error(error), (0, &sent[..]));
    let packet = Ipv4::new_checked(&error[..]).expect("a packet");
    assert_eq!(packet.source(), ip(REMOTE).to_bits());
    assert_eq!(packet.destination(), ip(EXTERNAL).to_bits());
    assert!(packet.dont_fragment());
    // The packet's class of service without its congestion mark.
    assert_eq!((sent[1], error[1]), (0xb9, 0xb8));
    assert_eq!(lost(&router, DropReason::NoRoute), 1);
}

//= test rfc1812#section-4.3.2.3
#[test]
fn as_much_is_quoted_as_fits() {
    let mut router = confined(500);
    let sent = datagram(4000, REMOTE, 1500);
    hand_over(&mut router, at(0), Side::Outside, &sent, Some(OUTBOUND));
    let (_, error) = router.poll_error().expect("an error");
    assert_eq!((error.len(), read_error(&error)), (576, (0, &sent[..548])));

    let mut narrow = settings();
    (narrow.outside.gateway, narrow.inside.mtu) = (None, 100);
    let mut router = Router::new(&narrow, &[INSIDE, OUTSIDE]).expect("the settings are right");
    hand_over(&mut router, at(0), Side::Outside, &sent, Some(OUTBOUND));
    assert_eq!(router.poll_error().map(|(_, error)| error.len()), Some(100));
}

//= test rfc1812#section-4.3.2.7-error
//= test rfc1812#section-4.3.2.7-fragment
//= test rfc1812#section-4.3.2.7-broadcast
#[test]
fn packets_that_get_no_error() {
    let mut router = confined(500);
    let later = with_fragment_field(datagram(4000, REMOTE, 40), 0x2000 | 5);
    let error = icmp_message(icmp::kind::TIME_EXCEEDED);
    let redirect = icmp_message(icmp::kind::REDIRECT);
    // An unknown type: it may be an error.
    let unknown = icmp_message(200);
    let everybody = datagram(4000, "192.0.2.255", 40);
    for silent in [&later, &error, &redirect, &unknown, &everybody] {
        hand_over(&mut router, at(0), Side::Outside, silent, Some(OUTBOUND));
    }
    let answered = [
        with_fragment_field(datagram(4000, REMOTE, 44), 0x2000),
        icmp_message(icmp::kind::ECHO_REQUEST),
    ];
    for own in [None, Some(REPLIED)] {
        hand_over(&mut router, at(0), Side::Outside, &answered[0], own);
    }
    assert_eq!(errors(&mut router), []);
    assert_eq!(router.counters().errors_suppressed, 0);
    for packet in &answered {
        hand_over(&mut router, at(0), Side::Outside, packet, Some(OUTBOUND));
        let (_, error) = router.poll_error().expect("an error");
        assert_eq!(read_error(&error), (0, &packet[..]));
    }
}

//= test rfc1812#section-4.3.3.1-host
#[test]
fn a_silent_neighbor_makes_the_host_unreachable_once_a_conversation() {
    let mut router = router();
    for port in [4000, 4001, 4000, 4001, 4000] {
        let packet = datagram(port, REMOTE, 40);
        let fate = hand_over(&mut router, at(0), Side::Outside, &packet, Some(OUTBOUND));
        assert_eq!(fate, Fate::Kept);
    }
    hand_over(&mut router, at(0), Side::Outside, &datagram(9, REMOTE, 40), None);
    router.advance(at(1000));
    router.advance(at(2000));
    assert_eq!(errors(&mut router), []);
    router.advance(at(3000));
    let errors = errors(&mut router);
    assert!(errors.iter().all(|(side, _)| *side == Side::Outside));
    assert_eq!(ports(&errors, 1), [4000, 4001]);
    assert_eq!(lost(&router, DropReason::NoNeighbor), 5);
}

#[test]
fn pings_of_one_kind_are_one_conversation() {
    let mut router = router();
    for (identifier, sequence) in [(7, 1), (7, 2), (8, 1)] {
        let mut ping = icmp_message(icmp::kind::ECHO_REQUEST);
        ping[22] = sequence;
        (ping[25], ping[27]) = (identifier, sequence);
        hand_over(&mut router, at(0), Side::Outside, &ping, Some(OUTBOUND));
    }
    (1..=3).for_each(|second| router.advance(at(second * 1000)));
    let identifiers: Vec<_> = errors(&mut router).iter().map(|(_, error)| error[53]).collect();
    assert_eq!(identifiers, [7, 8]);
}

#[test]
fn nobody_is_told_before_it_is_known() {
    let mut router = small();
    // Too many packets wait, then the link changes: nothing is known about the neighbour.
    for port in 0..MOST_HELD as u16 + 5 {
        let packet = datagram(port, REMOTE, 40);
        hand_over(&mut router, at(0), Side::Outside, &packet, Some(OUTBOUND));
    }
    router.relink(Side::Outside, OUTSIDE);
    // The first neighbour makes room for all the others.
    for number in 0..=FEWEST_NEIGHBORS {
        let now = at(number as u64 * 2);
        let packet = datagram(4000, &nth(number + 1), 40);
        hand_over(&mut router, now, Side::Inside, &packet, Some(OUTBOUND));
        outputs(&mut router);
    }
    assert_eq!(lost(&router, DropReason::NoNeighbor), 5 + 16 + 1 + (4096 - 1024));
    assert_eq!(errors(&mut router), []);
}

/// True if an error to this address goes out, or waits for its neighbour.
fn passes(router: &mut Router, millis: u64, side: Side, to: &str) -> bool {
    let error = datagram(0, to, 56);
    let mut buffer = [&[0; HEADROOM], &error[..]].concat();
    let end = buffer.len();
    let mut frame = Frame::of(&mut buffer, HEADROOM, end);
    let (made, suppressed) = (router.counters().errors_made, router.counters().errors_suppressed);
    router.send_error(at(millis), side, &mut frame);
    let made = router.counters().errors_made - made;
    assert_eq!(made + router.counters().errors_suppressed - suppressed, 1);
    made == 1
}

//= test rfc1812#section-4.3.2.8
//= test rfc1812#section-4.3.2.8-configurable
#[test]
fn errors_are_limited_to_a_rate() {
    let mut router = confined(10);
    let mut sent = |millis, hosts| {
        (0..hosts).filter(|n| passes(&mut router, millis, Side::Inside, &nth(*n))).count()
    };
    assert_eq!(sent(0, 100), 10);
    assert_eq!(sent(99, 1), 0);
    assert_eq!(sent(100, 100), 1);
    assert_eq!(sent(5000, 100), 10);
}

#[test]
fn one_requester_gets_a_quarter_of_the_errors() {
    let mut router = confined(100);
    let mut sent =
        |millis, to| (0..100).filter(|_| passes(&mut router, millis, Side::Inside, to)).count();
    assert_eq!(sent(0, "10.0.0.5"), 25);
    assert_eq!(sent(0, "10.0.0.6"), 25);
    assert_eq!(sent(40, "10.0.0.5"), 1);
    assert_eq!(sent(1040, "10.0.0.5"), 25);
}

#[test]
fn a_side_may_get_no_errors_at_all() {
    let mut settings = settings();
    settings.engine.inside.silent = true;
    let mut router = Router::new(&settings, &[INSIDE, OUTSIDE]).expect("the settings are right");
    assert!(!passes(&mut router, 0, Side::Inside, "10.0.0.5"));
    assert!(passes(&mut router, 0, Side::Outside, "192.0.2.9"));
}

#[test]
fn errors_that_nobody_fetches_are_bounded() {
    let mut router = confined(1_000_000);
    for port in 0..1000 {
        let packet = datagram(port, REMOTE, 40);
        hand_over(&mut router, at(0), Side::Outside, &packet, Some(OUTBOUND));
    }
    assert_eq!(router.counters().errors_suppressed, 1000 - 64);
    assert_eq!(ports(&errors(&mut router), 0), (0..64).collect::<Vec<_>>());
}

//= test rfc1812#section-4.3.2.4
#[test]
fn a_translated_error_leaves_with_the_routers_own_address() {
    let mut router = confined(500);
    let error = datagram(0, "10.0.0.5", 56);
    let mut buffer = [&[0; HEADROOM], &error[..]].concat();
    let end = buffer.len();
    let mut frame = Frame::of(&mut buffer, HEADROOM, end);
    assert_eq!(router.send_error(at(0), Side::Inside, &mut frame), Fate::Kept);
    let packet = Ipv4::new_checked(frame.bytes()).expect("a packet");
    assert!(packet.checksum_valid());
    assert_eq!(packet.source(), ip("10.0.0.1").to_bits());
}

//= test rfc4787#REQ-13a
#[test]
fn packets_longer_than_the_link_leave_in_fragments() {
    let mut router = acquainted();
    let long = packet(REMOTE, 2000);
    assert_eq!(hand_over(&mut router, at(1), Side::Outside, &long, Some(OUTBOUND)), Fate::Kept);
    let frames: Vec<_> = std::iter::from_fn(|| router.poll_transmit()).collect();
    let lens: Vec<_> = frames.iter().map(|(_, frame, _)| frame.len() - 14).collect();
    assert_eq!(lens, [1500, 520]);
    assert_eq!(frames.iter().filter(|(_, _, origin)| origin.is_some()).count(), 1);
    for (_, frame, _) in &frames {
        let header = arp::read_ethernet(frame);
        assert_eq!(header, Some((UPSTREAM, OUTSIDE, ethertype::IPV4)));
    }
    let mut whole = packet(REMOTE, 2000);
    whole[6] = 0x40;
    assert_eq!(hand_over(&mut router, at(1), Side::Outside, &whole, Some(OUTBOUND)), Fate::Lost);
    assert_eq!(lost(&router, DropReason::TooBig), 1);
    assert_eq!(errors(&mut router), []);
}

#[test]
fn a_long_packet_waits_whole_and_is_quoted_whole() {
    let mut router = router();
    let long = datagram(4000, REMOTE, 60_000);
    assert_eq!(hand_over(&mut router, at(0), Side::Outside, &long, Some(OUTBOUND)), Fate::Kept);
    assert_eq!(router.neighbors(Side::Outside)[0].held, 1);
    outputs(&mut router);
    router.receive_arp(at(1), Side::Outside, &upstream_reply());
    let packets = outputs(&mut router);
    assert_eq!(packets.len(), 60_000 / 1480 + 1);
    let expected = Out::Packet(Side::Outside, UPSTREAM, ip(REMOTE));
    assert!(packets.iter().all(|out| *out == expected));

    router.relink(Side::Outside, OUTSIDE);
    hand_over(&mut router, at(0), Side::Outside, &long, Some(OUTBOUND));
    (1..=3).for_each(|second| router.advance(at(second * 1000)));
    let (_, error) = router.poll_error().expect("an error");
    assert_eq!(read_error(&error), (1, &long[..548]));
}
