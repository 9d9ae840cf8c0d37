//! Claims to the address of a neighbour: forged claims, take-over, static neighbours.

use super::*;
use crate::StaticNeighbor;
use proptest::prelude::*;

const THIEF: Mac = Mac([2, 6, 6, 6, 6, 6]);
const UPSTREAM_ADDRESS: &str = "192.0.2.254";

/// Hardware address for packets to the outside's gateway.
fn next_hop(router: &mut Router, now: Timestamp) -> Option<Mac> {
    let (fate, frame) = send(router, now, Side::Outside, "8.8.8.8");
    (fate == Fate::Ready).then(|| arp::read_ethernet(&frame).expect("a frame").0)
}

/// A gratuitous ARP request: its sender claims an address.
fn gratuitous(mac: Mac) -> Vec<u8> {
    request((UPSTREAM_ADDRESS, mac), UPSTREAM_ADDRESS)
}

fn reply_of(mac: Mac) -> Vec<u8> {
    reply((UPSTREAM_ADDRESS, mac), ("192.0.2.1", OUTSIDE))
}

fn report(event: NeighborEvent, mac: Mac, other: Mac) -> Option<NeighborReport> {
    Some(NeighborReport { event, link: Link::OUTSIDE, address: ip(UPSTREAM_ADDRESS), mac, other })
}

#[test]
fn one_forged_request_does_not_take_over_the_next_hop() {
    let to_us = request((UPSTREAM_ADDRESS, THIEF), "192.0.2.1");
    let mut to_all = reply_of(THIEF);
    to_all[..6].copy_from_slice(&Mac::BROADCAST.0);
    for forged in [gratuitous(THIEF), to_us, reply_of(THIEF), to_all] {
        let mut router = acquainted();
        router.receive_arp(at(1000), Side::Outside, &forged);
        assert_eq!(next_hop(&mut router, at(1000)), Some(UPSTREAM));
        // The former owner is asked, by unicast, and answers.
        assert!(outputs(&mut router).contains(&question(UPSTREAM)));
        router.receive_arp(at(1001), Side::Outside, &reply_of(UPSTREAM));
        assert_eq!(next_hop(&mut router, at(1001)), Some(UPSTREAM));
        assert_eq!(router.poll_report(), report(NeighborEvent::Conflict, UPSTREAM, THIEF));
        assert_eq!(router.poll_report(), None);
        router.advance(at(60_000));
        assert_eq!(outputs(&mut router), [], "the answer counts from then on");
        assert_eq!(next_hop(&mut router, at(60_000)), Some(UPSTREAM));
        let counters = router.counters();
        assert_eq!((counters.neighbor_conflicts, counters.neighbor_changes), (1, 0));
    }
}

#[test]
fn a_forged_answer_to_the_question_for_a_known_neighbor_is_not_believed() {
    let mut router = acquainted();
    router.advance(at(60_000));
    assert_eq!(outputs(&mut router), [question(UPSTREAM)]);
    router.receive_arp(at(60_001), Side::Outside, &reply_of(THIEF));
    assert_eq!(next_hop(&mut router, at(60_001)), Some(UPSTREAM));
    router.receive_arp(at(60_002), Side::Outside, &reply_of(UPSTREAM));
    assert_eq!(next_hop(&mut router, at(60_002)), Some(UPSTREAM));
    assert_eq!(router.poll_report(), report(NeighborEvent::Conflict, UPSTREAM, THIEF));
}

#[test]
fn an_address_moves_to_other_hardware_when_the_old_one_is_silent() {
    let mut router = acquainted();
    let backup = Mac([2, 0, 0, 0, 2, 55]);
    router.receive_arp(at(1000), Side::Outside, &gratuitous(backup));
    assert_eq!(outputs(&mut router), [question(UPSTREAM)]);
    router.advance(at(1499));
    assert_eq!(outputs(&mut router), []);
    router.advance(at(1500));
    assert_eq!(outputs(&mut router), [question(UPSTREAM)]);
    router.advance(at(2000));
    assert_eq!(outputs(&mut router), [question(Mac::BROADCAST)]);
    assert_eq!(next_hop(&mut router, at(2000)), Some(UPSTREAM));
    router.receive_arp(at(2001), Side::Outside, &reply_of(backup));
    assert_eq!(next_hop(&mut router, at(2001)), Some(backup));
    assert_eq!(router.poll_report(), report(NeighborEvent::Changed, UPSTREAM, backup));
    assert_eq!(router.counters().neighbor_changes, 1);
    assert_eq!(router.counters().neighbor_conflicts, 0);
}

#[test]
fn a_take_over_right_after_an_attack_waits_for_its_turn_and_works() {
    let mut router = acquainted();
    router.receive_arp(at(1000), Side::Outside, &gratuitous(THIEF));
    router.receive_arp(at(1001), Side::Outside, &reply_of(UPSTREAM));
    let backup = Mac([2, 0, 0, 0, 2, 55]);
    router.receive_arp(at(1002), Side::Outside, &gratuitous(backup));
    outputs(&mut router);
    let mut moved = None;
    for millis in 1003..4000 {
        router.advance(at(millis));
        for out in outputs(&mut router) {
            if out == question(Mac::BROADCAST) {
                router.receive_arp(at(millis), Side::Outside, &reply_of(backup));
            }
        }
        if next_hop(&mut router, at(millis)) == Some(backup) {
            moved = Some(millis);
            break;
        }
    }
    assert_eq!(moved, Some(3000), "a second of quiet, and one for the old hardware to answer");
}

#[test]
fn a_flood_of_claims_costs_one_question_a_second() {
    let mut router = acquainted();
    let mut questions = 0;
    for millis in 0..5000_u64 {
        let [.., high, low] = millis.to_be_bytes();
        let forged = Mac([2, 6, 0, 0, high, low]);
        for _ in 0..10 {
            router.receive_arp(at(millis), Side::Outside, &gratuitous(forged));
        }
        router.advance(at(millis));
        for out in outputs(&mut router) {
            assert_eq!(out, question(UPSTREAM));
            questions += 1;
            router.receive_arp(at(millis), Side::Outside, &reply_of(UPSTREAM));
        }
        assert_eq!(next_hop(&mut router, at(millis)), Some(UPSTREAM), "{millis}");
    }
    assert!((4..=6).contains(&questions), "{questions}");
    assert_eq!(router.counters().neighbor_conflicts, questions);
}

#[test]
fn claims_of_many_neighbors_are_looked_into_at_a_bounded_rate() {
    let mut router = router();
    let most = MOST_VERIFIED_PER_SECOND as usize;
    for number in 0..2 * most {
        let mac = Mac([2, 0, 0, 1, (number >> 8) as u8, number as u8]);
        router.receive_arp(at(0), Side::Inside, &request((&nth(number + 1), mac), "10.0.0.1"));
    }
    outputs(&mut router);
    for number in 0..2 * most {
        router.receive_arp(at(1), Side::Inside, &request((&nth(number + 1), THIEF), "10.0.0.1"));
    }
    let asked = router.counters().arp_asked as usize;
    assert_eq!(asked, most);
}

#[test]
fn a_static_neighbor_is_neither_asked_nor_changed() {
    let fixed =
        StaticNeighbor { side: Side::Outside, address: ip(UPSTREAM_ADDRESS), mac: UPSTREAM };
    let settings = Settings { neighbors: vec![fixed], ..settings() };
    let mut router = Router::new(&settings, &[INSIDE, OUTSIDE]).expect("the settings are right");
    assert_eq!(next_hop(&mut router, at(0)), Some(UPSTREAM));
    router.receive_arp(at(1), Side::Outside, &gratuitous(THIEF));
    router.receive_arp(at(1), Side::Outside, &reply_of(THIEF));
    router.receive_arp(at(1), Side::Outside, &gratuitous(UPSTREAM));
    assert_eq!(router.poll_report(), report(NeighborEvent::Conflict, UPSTREAM, THIEF));
    assert_eq!(router.counters().neighbor_conflicts, 2);
    for second in 1..200 {
        router.advance(at(second * 1000));
        assert_eq!(next_hop(&mut router, at(second * 1000)), Some(UPSTREAM));
    }
    router.relink(Side::Outside, OUTSIDE);
    assert_eq!(next_hop(&mut router, at(200_000)), Some(UPSTREAM));
    let neighbors = router.neighbors(Side::Outside);
    assert_eq!(neighbors[0].state, NeighborState::Static);
    let asked = outputs(&mut router);
    assert!(!asked.contains(&question(UPSTREAM)) && !asked.contains(&question(Mac::BROADCAST)));
}

#[test]
fn static_neighbors_come_and_go_while_the_router_works() {
    let fixed = |mac| StaticNeighbor { side: Side::Outside, address: ip(UPSTREAM_ADDRESS), mac };
    let before = settings();
    let with = |neighbors| Settings { neighbors, ..settings() };
    let mut router = router();
    assert_eq!(send(&mut router, at(0), Side::Outside, "8.8.8.8").0, Fate::Kept);
    outputs(&mut router);
    let renew = |router: &mut Router, from: &Settings, to: &Settings| {
        router.renew(Renewal::new(from, to).expect("the settings are right"), |_| OUTSIDE);
    };
    let one = with(vec![fixed(UPSTREAM)]);
    renew(&mut router, &before, &one);
    let packet = Out::Packet(Side::Outside, UPSTREAM, ip("8.8.8.8"));
    assert_eq!(outputs(&mut router), [packet], "what waited goes");
    let other = with(vec![fixed(HOST)]);
    renew(&mut router, &one, &other);
    assert_eq!(next_hop(&mut router, at(1)), Some(HOST));
    renew(&mut router, &other, &before);
    assert_eq!(next_hop(&mut router, at(2)), None);
    assert_eq!(outputs(&mut router), [question(Mac::BROADCAST)]);
}

#[test]
fn one_that_overhears_a_claim_leaves_the_question_and_the_report_to_the_other() {
    let mut router = acquainted();
    router.overhear_arp(at(1000), Side::Outside, &gratuitous(THIEF));
    assert_eq!(outputs(&mut router), []);
    router.overhear_arp(at(1001), Side::Outside, &reply_of(UPSTREAM));
    assert_eq!((router.poll_report(), router.counters().neighbor_conflicts), (None, 0));
    // If no answer comes, this router asks.
    router.overhear_arp(at(3000), Side::Outside, &gratuitous(THIEF));
    router.advance(at(3500));
    assert_eq!(outputs(&mut router), [question(UPSTREAM)]);
}

/// One event on the outside's link.
#[derive(Clone, Debug)]
enum Step {
    Forge { reply: bool, broadcast: bool, mac: u8 },
    Wait(u16),
    Send,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let forge = (any::<bool>(), any::<bool>(), 0..4_u8);
    let forge = forge.prop_map(|(reply, broadcast, mac)| Step::Forge { reply, broadcast, mac });
    let step =
        prop_oneof![4 => forge, 3 => (0..1500_u16).prop_map(Step::Wait), 2 => Just(Step::Send)];
    proptest::collection::vec(step, 1..150)
}

proptest! {
    /// As long as the next hop answers requests, no forged message changes its hardware address.
    #[test]
    fn a_next_hop_that_answers_stays_where_it_is(steps in steps()) {
        let mut router = acquainted();
        let mut now = 0;
        for step in &steps {
            match step {
                Step::Forge { reply, broadcast, mac } => {
                    let mac = Mac([2, 6, 6, 6, 6, *mac]);
                    let mut frame = if *reply { reply_of(mac) } else { gratuitous(mac) };
                    let to = if *broadcast { Mac::BROADCAST } else { OUTSIDE };
                    frame[..6].copy_from_slice(&to.0);
                    router.receive_arp(at(now), Side::Outside, &frame);
                }
                Step::Wait(millis) => {
                    let end = now + u64::from(*millis);
                    while let Some(due) = router.next_deadline().filter(|due| *due <= at(end)) {
                        router.advance(due);
                        answer(&mut router, due);
                    }
                    now = end;
                }
                Step::Send => {
                    let hop = next_hop(&mut router, at(now));
                    answer(&mut router, at(now));
                    prop_assert!(hop.is_none_or(|hop| hop == UPSTREAM), "{:?}", hop);
                }
            }
            answer(&mut router, at(now));
            let neighbors = router.neighbors(Side::Outside);
            prop_assert!(neighbors.iter().all(|one| one.mac.is_none_or(|mac| mac == UPSTREAM)));
        }
    }
}

/// Answers as the outside's gateway.
fn answer(router: &mut Router, now: Timestamp) {
    for out in outputs(router) {
        if let Out::Arp(Side::Outside, to, message) = out
            && (to == UPSTREAM || to == Mac::BROADCAST)
            && message.target == ip(UPSTREAM_ADDRESS)
        {
            router.receive_arp(now, Side::Outside, &reply_of(UPSTREAM));
        }
    }
}
