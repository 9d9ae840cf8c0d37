//! Packets that cannot be delivered, and the ICMPv6 errors about them.

use super::*;

/// An error: link, ends, type with code and second word, quoted packet.
type Error = (Link, [Ipv6Addr; 2], [u32; 3], Vec<u8>);

/// The errors that wait.
fn errors(router: &mut Router6) -> Vec<Error> {
    let mut all = Vec::new();
    while let Some((link, bytes)) = router.poll_error() {
        let header = Ipv6::new_checked(&bytes[..]).expect("a packet");
        let message = Icmpv6::new_checked(header.payload()).expect("a message");
        assert!(message.checksum_valid(header.source(), header.destination()));
        let ends = [header.source(), header.destination()].map(Ipv6Addr::from_bits);
        let kind = [message.kind().into(), message.code().into(), message.word()];
        all.push((link, ends, kind, message.body().to_vec()));
    }
    all
}

fn lost(router: &Router6, count: u64) -> [u64; 3] {
    let mut counters = Counters::default();
    (0..count).for_each(|_| counters.count(Direction::Outbound, Outcome::Forwarded, 48));
    let corrected = router.losses().correct(&counters);
    [DropReason::NoRoute, DropReason::NoNeighbor, DropReason::TooBig]
        .map(|reason| corrected.drops[reason as usize])
}

//= test rfc4443#section-3.1
#[test]
fn a_packet_without_a_route_is_reported() {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), IN, "2001:db8:99::1").0, Fate::Lost);
    let ends = [ip("2001:db8:99::1"), ip("2001:db8:1::5")];
    assert_eq!(errors(&mut router), [(IN, ends, [1, 0, 0], packet_of("2001:db8:99::1"))]);
    assert_eq!(lost(&router, 1), [1, 0, 0]);
}

//= test rfc4861#section-7.2.2-failure
//= test rfc4861#section-7.2.2-retransmit
#[test]
fn a_neighbour_that_does_not_answer_is_reported() {
    let mut router = router();
    assert_eq!(send(&mut router, at(0), OUT, "2001:db8:2::7").0, Fate::Kept);
    for millis in [1000, 2000] {
        take(&mut router);
        router.advance(at(millis));
        assert_eq!(take(&mut router), [question(OUT, "2001:db8:2::7")]);
        assert_eq!(errors(&mut router), []);
    }
    router.advance(at(3000));
    let ends = [ip("2001:db8:2::7"), ip("2001:db8:1::5")];
    assert_eq!(errors(&mut router), [(OUT, ends, [1, 3, 0], packet_of("2001:db8:2::7"))]);
    assert_eq!((take(&mut router), lost(&router, 1)), (vec![], [0, 1, 0]));
    assert_eq!((router.counters().neighbors_lost, router.next_deadline()), (1, None));
}

//= test rfc4861#section-7.2.2-overflow
#[test]
fn the_latest_packets_wait() {
    let mut router = router();
    for number in 0..40 {
        let to = format!("2001:db8:99::{number:x}");
        assert_eq!(send(&mut router, at(0), OUT, &to).0, Fate::Kept);
    }
    assert_eq!(router.neighbors(OUT)[0].held, crate::router::MOST_HELD);
    assert_eq!(lost(&router, 40), [0, 24, 0]);
    take(&mut router);
    hear(&mut router, at(1), OUT, said("fe80::54", UPSTREAM));
    let out = take(&mut router);
    assert_eq!(out.len(), crate::router::MOST_HELD);
    assert_eq!(out[15], Out::Packet(OUT, UPSTREAM, ip("2001:db8:99::27")));
}

//= test rfc4443#section-2.4-c
//= test rfc4443#section-3.2
#[test]
fn a_packet_larger_than_the_link_is_reported() {
    let mut router = acquainted();
    router.follow_mtu(OUT, 1300);
    let mut large = packet_of("2001:db8:99::1");
    large.resize(1301, 0);
    large[4..6].copy_from_slice(&1261_u16.to_be_bytes());
    assert_eq!(send_packet(&mut router, at(20), OUT, &large).0, Fate::Lost);
    let ends = [ip("2001:db8:99::1"), ip("2001:db8:1::5")];
    let quoted = large[..1280 - 48].to_vec();
    assert_eq!(errors(&mut router), [(OUT, ends, [2, 0, 1300], quoted)]);
    assert_eq!(lost(&router, 1), [0, 0, 1]);
}

//= test rfc4443#section-2.4-e
#[test]
fn errors_groups_and_own_packets_are_not_reported() {
    let mut router = router();
    let to = "2001:db8:99::1";
    for kind in [1, 2, 3, 4, 127, 133, 137] {
        let mut message = echo("2001:db8:1::5", to);
        message[40] = kind;
        assert_eq!(send_packet(&mut router, at(0), IN, &message).0, Fate::Lost);
        assert_eq!(errors(&mut router), [], "type {kind}");
    }
    assert_eq!(send_packet(&mut router, at(0), IN, &packet("ff02::1", to)).0, Fate::Lost);
    assert_eq!(send_packet(&mut router, at(0), IN, &packet("::", to)).0, Fate::Lost);
    assert_eq!(send(&mut router, at(0), IN, "ff0e::1").0, Fate::Lost);
    let mut buffer = [&[0; HEADROOM][..], &packet_of(to)].concat();
    let end = buffer.len();
    let mut frame = Frame::of(&mut buffer, HEADROOM, end);
    assert_eq!(router.send(at(0), IN, &mut frame, None), Fate::Lost);
    assert_eq!(errors(&mut router), []);
    assert_eq!(send_packet(&mut router, at(0), IN, &echo("2001:db8:1::5", to)).0, Fate::Lost);
    assert_eq!(errors(&mut router).len(), 1, "a query is reported");
}

/// Sends an error about a packet from 2001:db8:1::5 to its sender.
fn send_error(router: &mut Router6, now: Timestamp, link: Link) -> (Fate, Vec<u8>) {
    assert_eq!(send(router, now, IN, "2001:db8:99::1").0, Fate::Lost);
    let (_, error) = router.poll_error().expect("an error");
    let mut buffer = [&[0; HEADROOM][..], &error].concat();
    let end = buffer.len();
    let mut frame = Frame::of(&mut buffer, HEADROOM, end);
    let fate = router.send_error(now, link, &mut frame);
    (fate, frame.bytes().to_vec())
}

#[test]
fn an_error_leaves_with_the_routers_own_address() {
    let mut router = router();
    solicit(&mut router, at(0), IN, ("2001:db8:1::5", HOST), "2001:db8:1::1");
    let (fate, frame) = send_error(&mut router, at(0), IN);
    assert_eq!(fate, Fate::Ready);
    let error = Ipv6::new_checked(&frame[ETHERNET_LEN..]).expect("a packet");
    let ends = [error.source(), error.destination()].map(Ipv6Addr::from_bits);
    assert_eq!(ends, [ip("2001:db8:1::1"), ip("2001:db8:1::5")]);
    let message = Icmpv6::new_checked(error.payload()).expect("a message");
    assert!(message.checksum_valid(error.source(), error.destination()));
    assert_eq!(router.counters().errors_made, 1);
}

//= test rfc4443#section-2.4-f
#[test]
fn errors_are_limited_and_a_silent_link_gets_none() {
    let mut settings = settings();
    settings.engine.limits.icmp_errors_per_second = 40;
    let mut router = router_of(&settings);
    solicit(&mut router, at(0), IN, ("2001:db8:1::5", HOST), "2001:db8:1::1");
    let sent = (0..100).filter(|_| send_error(&mut router, at(0), IN).0 == Fate::Ready).count();
    assert_eq!(sent, 10, "a quarter for one network");
    assert_eq!(router.counters().errors_suppressed, 90);
    settings.ipv6.inside.icmp_errors = false;
    let mut silent = router_of(&settings);
    assert_eq!(send_error(&mut silent, at(0), IN).0, Fate::Lost);
    assert_eq!(silent.counters().errors_suppressed, 1);
}

#[test]
fn an_error_that_is_no_error_is_not_sent() {
    let mut router = router();
    for bytes in [vec![], vec![0x60; 20], packet_of("2001:db8:99::1")] {
        let mut buffer = [&[0; HEADROOM][..], &bytes].concat();
        let end = buffer.len();
        let mut frame = Frame::of(&mut buffer, HEADROOM, end);
        assert_eq!(router.send_error(at(0), OUT, &mut frame), Fate::Lost);
    }
}
