//! Scans, forged messages and random bytes: tables stay bounded, and known neighbours stay known.

use super::*;
use crate::router::{MOST_HELD_IN_ALL, MOST_NEW_PER_SECOND};
use proptest::prelude::*;

/// An address of the inside network.
fn host(number: u64) -> String {
    ip("2001:db8:1:0:1::").to_bits().wrapping_add(number.into()).to_address()
}

trait ToAddress {
    fn to_address(self) -> String;
}

impl ToAddress for u128 {
    fn to_address(self) -> String {
        Ipv6Addr::from_bits(self).to_string()
    }
}

#[test]
fn a_scan_ends_its_own_questions_and_no_neighbour() {
    let mut router = router();
    solicit(&mut router, at(0), IN, ("2001:db8:1::5", HOST), "2001:db8:1::1");
    take(&mut router);
    let mut asked = 0;
    for number in 0..20_000 {
        let now = at(number / 5);
        send(&mut router, now, IN, &host(number));
        router.advance(now);
        asked += take(&mut router).len();
        while router.poll_error().is_some() {}
    }
    // Four seconds of new questions, each at most three times.
    assert!(asked <= 3 * 5 * MOST_NEW_PER_SECOND as usize, "{asked}");
    assert!(router.neighbors(IN).len() <= MOST_INCOMPLETE + 1);
    let held: usize = router.neighbors(IN).iter().map(|one| one.held).sum();
    assert!(held <= MOST_HELD_IN_ALL && held == router.outbox.held, "{held}");
    assert!(router.counters().neighbors_refused > 10_000);
    assert_eq!(send(&mut router, at(4000), IN, "2001:db8:1::5").0, Fate::Ready);
    // A neighbour that was not known before gets its packet, too, when the second is over.
    assert_eq!(send(&mut router, at(6000), IN, "2001:db8:1::6").0, Fate::Kept);
    hear(&mut router, at(6001), IN, said("2001:db8:1::6", HOST));
    let out = take(&mut router);
    assert_eq!(out.last(), Some(&Out::Packet(IN, HOST, ip("2001:db8:1::6"))));
}

#[test]
fn neighbours_that_were_known_have_questions_of_their_own() {
    let mut router = router();
    send(&mut router, at(0), IN, "2001:db8:1::5");
    hear(&mut router, at(1), IN, said("2001:db8:1::5", HOST));
    // It is forgotten after a long silence.
    router.advance(at(30_001));
    router.advance(at(640_000));
    assert_eq!(router.neighbors(IN), []);
    for number in 0..3000 {
        send(&mut router, at(700_000), IN, &host(number));
    }
    assert_eq!(send(&mut router, at(700_001), IN, &host(9999)).0, Fate::Lost);
    assert_eq!(send(&mut router, at(700_001), IN, "2001:db8:1::5").0, Fate::Kept);
}

#[test]
fn forged_solicitations_displace_themselves_only() {
    let mut settings = settings();
    settings.neighbors_limit = Some(1000);
    let mut router = router_of(&settings);
    send(&mut router, at(0), IN, "2001:db8:1::5");
    hear(&mut router, at(1), IN, said("2001:db8:1::5", HOST));
    take(&mut router);
    // One station may state 256 addresses.
    for number in 0..5000 {
        let source = host(number);
        solicit(&mut router, at(2), IN, (&source, OTHER), "2001:db8:1::1");
    }
    assert_eq!(router.neighbors(IN).len(), 257);
    assert_eq!(router.counters().neighbors_refused, 5000 - 256);
    // Many hardware addresses fill the table, and the oldest make room.
    for number in 5000..20_000_u64 {
        let [.., a, b] = number.to_be_bytes();
        let source = host(number);
        solicit(&mut router, at(3), IN, (&source, Mac([2, 0, 0, 9, a, b])), "2001:db8:1::1");
    }
    assert_eq!(router.neighbors(IN).len(), 1000);
    assert_eq!(state(&router, IN, "2001:db8:1::5"), Some(NeighborState6::Reachable));
    assert_eq!(state(&router, IN, &host(19_999)), Some(NeighborState6::Stale));
    // Every solicitation is answered as long as there is room to send.
    assert_eq!(router.counters().solicitations_answered, 4096);
    take(&mut router);
    // A question finds room, too.
    assert_eq!(send(&mut router, at(4), IN, "2001:db8:1::6").0, Fate::Kept);
    assert_eq!(router.neighbors(IN).len(), 1000);
}

#[test]
fn forged_neighbours_that_packets_use_displace_themselves_only() {
    let mut settings = settings();
    settings.neighbors_limit = Some(1000);
    let mut router = router_of(&settings);
    let is_known = |router: &mut Router6, number| {
        solicit(router, at(2), IN, (&host(number), OTHER), "2001:db8:1::1");
        send(router, at(2), IN, &host(number)).0 == Fate::Ready
    };
    // One station may state 256 addresses, whatever is sent to them.
    let known = (0..256).filter(|number| is_known(&mut router, *number)).count();
    assert_eq!((known, router.neighbors(IN).len()), (256, 256));
    solicit(&mut router, at(2), IN, (&host(256), OTHER), "2001:db8:1::1");
    assert_eq!((router.neighbors(IN).len(), router.counters().neighbors_refused), (256, 1));
    // Many hardware addresses fill the table, and none of them keeps its place.
    for number in 1000..3000_u64 {
        let [.., a, b] = number.to_be_bytes();
        let source = host(number);
        solicit(&mut router, at(3), IN, (&source, Mac([2, 0, 0, 9, a, b])), "2001:db8:1::1");
        send(&mut router, at(3), IN, &source);
    }
    assert_eq!(router.neighbors(IN).len(), 1000);
    assert_eq!(state(&router, IN, &host(2999)), Some(NeighborState6::Delay));
    assert_eq!(send(&mut router, at(4), IN, "2001:db8:1::6").0, Fate::Kept);
    hear(&mut router, at(5), IN, said("2001:db8:1::6", HOST));
    assert_eq!(state(&router, IN, "2001:db8:1::6"), Some(NeighborState6::Reachable));
}

#[test]
fn neighbours_in_use_do_not_make_room() {
    let mut settings = settings();
    settings.neighbors_limit = Some(16);
    let mut router = router_of(&settings);
    for number in 0..16 {
        send(&mut router, at(0), IN, &host(number));
        hear(&mut router, at(0), IN, said(&host(number), HOST));
    }
    assert_eq!(send(&mut router, at(1), IN, &host(16)).0, Fate::Lost);
    solicit(&mut router, at(1), IN, (&host(17), OTHER), "2001:db8:1::1");
    assert_eq!((router.neighbors(IN).len(), router.counters().neighbors_refused), (16, 2));
    // A stale one does.
    router.advance(at(30_000));
    assert_eq!(send(&mut router, at(30_001), IN, &host(16)).0, Fate::Kept);
    assert_eq!(router.neighbors(IN).len(), 16);
}

/// Any message or packet, often nearly right.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![133_u8..138, any::<u8>()];
    let ends = prop::sample::select(vec![
        "::",
        "::1",
        "fe80::5",
        "fe80::ff:fe00:1",
        "2001:db8:1::1",
        "2001:db8:1::5",
        "ff02::1",
        "ff02::2",
        "ff02::1:ff00:1",
    ]);
    let body = prop::collection::vec(prop_oneof![0_u8..6, any::<u8>()], 4..80);
    let target = (ends.clone(), any::<bool>());
    (kind, ends.clone(), ends, body, target, any::<bool>()).prop_map(
        |(kind, source, destination, body, (target, is_set), is_far)| {
            let mut bytes = vec![0; 44 + body.len()];
            bytes[44..].copy_from_slice(&body);
            if is_set && bytes.len() >= 64 {
                bytes[48..64].copy_from_slice(&ip(target).octets());
            }
            nd::finish(&mut bytes, kind, (ip(source), ip(destination)));
            if is_far {
                bytes[7] = 64;
            }
            bytes
        },
    )
}

proptest! {
    #[test]
    fn no_packet_makes_the_router_panic_or_grow(
        packets in prop::collection::vec((any_packet(), any::<bool>(), 0_u64..5000), 1..60),
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut router = new(&settings());
        let mut now = at(0);
        for (packet, inside, millis) in packets {
            let link = if inside { IN } else { OUT };
            router.receive(now, link, OTHER, &packet);
            router.receive(now, link, OTHER, &noise);
            send_packet(&mut router, now, link, &packet);
            send_packet(&mut router, now, link, &noise);
            now = now.plus(Duration::from_millis(millis));
            router.advance(now);
            prop_assert!(router.next_deadline().is_none_or(|deadline| deadline > now));
            while router.poll_error().is_some() {}
            take(&mut router);
        }
        let held: usize =
            [IN, OUT].iter().flat_map(|link| router.neighbors(*link)).map(|one| one.held).sum();
        prop_assert_eq!(held, router.outbox.held);
    }
}
