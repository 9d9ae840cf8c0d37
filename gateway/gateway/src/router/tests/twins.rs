//! Fast structures against simple twins: routes against a linear search, and neighbours against a
//! table that forgets its recent entries at every step.

use super::super::claims::Assertion;
use super::super::neighbors::{Action, Neighbors, WaitingPacket};
use super::super::routes::{Hop, Routes};
use super::*;
use proptest::prelude::*;

/// Prefixes of every length, close together so that many lie within others.
fn prefixes() -> impl Strategy<Value = Prefix> {
    let address = prop_oneof![any::<u32>(), (0..=0x3f_u32).prop_map(|low| 0xc000_0200 | low << 2)];
    (address, 0..=32_u8).prop_map(|(address, len)| Prefix::new(Ipv4Addr::from_bits(address), len))
}

/// Destinations at the edges of prefixes, and anywhere.
fn destinations(prefixes: &[Prefix]) -> Vec<u32> {
    let edges = prefixes.iter().flat_map(|prefix| {
        let (first, last) = (prefix.first(), prefix.last());
        [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
    });
    edges.chain([0, u32::MAX, 0xc000_0201, 0xc000_02ff]).collect()
}

/// A next hop on 192.0.2.0/24 that identifies its route.
fn via(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1 + (number % 250) as u8)
}

/// Finds the longest prefix by linear search; the first among equals wins.
fn search(
    connected: Prefix,
    own: &[Prefix],
    learnt: &[Prefix],
    destination: u32,
) -> Option<(u8, Option<Ipv4Addr>)> {
    let own = own.iter().enumerate().map(|(number, prefix)| (prefix, Some(via(number))));
    let learnt = learnt.iter().enumerate().map(|(number, prefix)| (prefix, Some(via(99 + number))));
    let all = [(&connected, None)].into_iter().chain(own).chain(learnt);
    let mut best: Option<(u8, Option<Ipv4Addr>)> = None;
    for (prefix, via) in all.filter(|(prefix, _)| prefix.contains(destination)) {
        if best.is_none_or(|(len, _)| prefix.len() > len) {
            best = Some((prefix.len(), via));
        }
    }
    best
}

/// The next hop by that search, on a connected network of 24 bits.
fn hop(connected: Prefix, own: &[Prefix], learnt: &[Prefix], destination: u32) -> Hop {
    let address = Ipv4Addr::from_bits(destination);
    match search(connected, own, learnt, destination) {
        Some((_, Some(via))) => Hop::Neighbor(via),
        Some((_, None)) if [0, 255].contains(&address.octets()[3]) => Hop::Everybody,
        Some((_, None)) => Hop::Neighbor(address),
        None => Hop::Nowhere,
    }
}

fn check(own: &[Prefix], learnt: &[Prefix], more: &[u32]) {
    let connected = prefix("192.0.2.0", 24);
    let mut routes = Routes::new(connected);
    for (number, prefix) in own.iter().enumerate() {
        assert!(routes.add(*prefix, via(number)));
    }
    routes.settle();
    let given = learnt.iter().enumerate();
    let given = given.map(|(number, prefix)| Route {
        prefix: *prefix,
        via: via(99 + number),
        side: Side::Outside,
    });
    let (table, _) = LearntRoutes::new([None, Some(connected)], given);
    let all: Vec<Prefix> = own.iter().chain(learnt).copied().collect();
    for destination in destinations(&all).into_iter().chain(more.iter().copied()) {
        let address = Ipv4Addr::from_bits(destination);
        // The learnt routes come and go. What was remembered with others is not right then.
        for (learnt, of_table) in [(learnt, table.of(1)), (&[], None)] {
            let expected = hop(connected, own, learnt, destination);
            assert_eq!(routes.next_hop(address, of_table), expected, "{address}");
            assert!(routes.latest(of_table).contains(address), "{address} is remembered");
            assert_eq!(routes.next_hop(address, of_table), expected, "{address} again");
        }
        assert_eq!(table.of(0).map(|table| table.len()), None);
    }
    // A run answers for all of its addresses.
    for destination in destinations(&all) {
        let address = Ipv4Addr::from_bits(destination);
        let expected = hop(connected, own, learnt, destination);
        assert_eq!(routes.next_hop(address, table.of(1)), expected, "{address}");
    }
}

proptest! {
    #[test]
    fn routes_lead_where_a_list_says(
        own in proptest::collection::vec(prefixes(), 0..24),
        learnt in proptest::collection::vec(prefixes(), 0..24),
        more in proptest::collection::vec(any::<u32>(), 16),
    ) {
        check(&own, &learnt, &more);
        check(&own, &[], &more);
        check(&own[..own.len().min(5)], &[], &more);
        check(&own[..own.len().min(5)], &learnt[..learnt.len().min(3)], &more);
        check(&[], &learnt, &more);
    }
}

/// One operation on neighbours.
#[derive(Clone, Debug)]
enum Step {
    Send(u8),
    Answered(u8, u8),
    Heard(u8, u8),
    Wait(u32),
    Clear,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..40_u8).prop_map(Step::Send),
        4 => (0..40_u8, 0..3_u8).prop_map(|(who, mac)| Step::Answered(who, mac)),
        2 => (0..40_u8, 0..3_u8).prop_map(|(who, mac)| Step::Heard(who, mac)),
        3 => prop_oneof![0..3000_u32, Just(30_000), Just(61_000)].prop_map(Step::Wait),
        1 => Just(Step::Clear),
    ]
}

/// Does one step; returns all observable results.
fn step(neighbors: &mut Neighbors, now: &mut Timestamp, one: &Step) -> String {
    let address = |who: &u8| Ipv4Addr::new(10, 0, 0, *who);
    let mut said = String::new();
    let mut act = |action: Action| said += &format!("{action:?};");
    match one {
        Step::Send(who) => {
            let mac = neighbors.resolve(address(who));
            act(Action::Ask(address(who), mac));
            if mac.is_none() && neighbors.ask(*now, address(who), &mut act) {
                let held = WaitingPacket { frame: vec![*who], origin: None };
                said += &format!("{:?}", neighbors.hold(address(who), held));
            }
        }
        Step::Answered(who, mac) | Step::Heard(who, mac) => {
            let assertion = Assertion {
                address: address(who),
                mac: Mac([2, *mac, 0, 0, 0, 0]),
                is_reply: matches!(one, Step::Answered(..)),
                teaches: matches!(one, Step::Heard(..)) && who % 2 == 0,
                overheard: who % 3 == 0,
                is_next_hop: false,
            };
            let reaction = neighbors.told(*now, &assertion, &mut act);
            said += &format!("{reaction:?}");
        }
        Step::Wait(millis) => {
            *now = now.plus(Duration::from_millis((*millis).into()));
            neighbors.advance(*now, &mut act);
        }
        // The order in which packets come back does not matter.
        Step::Clear => said = neighbors.clear().len().to_string(),
    }
    format!("{said} {:?} {:?}", neighbors.list(), neighbors.next_deadline())
}

proptest! {
    #[test]
    fn who_was_used_last_is_remembered_rightly(
        steps in proptest::collection::vec(steps(), 1..200),
    ) {
        let (mut quick, mut simple) = (Neighbors::default(), Neighbors::default());
        let (mut now, mut later) = (at(0), at(0));
        for one in &steps {
            simple.forget_recent();
            prop_assert_eq!(step(&mut quick, &mut now, one), step(&mut simple, &mut later, one));
        }
    }
}

/// A hundred thousand routes: each is found, and their memory is bounded.
#[test]
fn a_hundred_thousand_routes_fit() {
    let mut settings = settings();
    let count = 100_000_usize;
    let prefix = |number: usize| {
        let first = Ipv4Addr::from_bits(0x0b00_0000 + ((number as u32) << 10));
        Prefix::new(first, 22 + (number % 3) as u8)
    };
    settings.routes = (0..count)
        .map(|number| Route { prefix: prefix(number), via: via(number), side: Side::Outside })
        .collect();
    let router = Router::new(&settings, &[INSIDE, OUTSIDE]).expect("the settings are right");
    let routes = &router.ports[1].routes;
    let (number, bytes) = routes.size();
    assert_eq!(number, count + 2, "with that of the link, and the default route");
    assert!(bytes / number < 64, "{} bytes a route", bytes / number);
    for number in (0..count).step_by(97) {
        let to = Ipv4Addr::from_bits(prefix(number).first());
        assert_eq!(routes.next_hop(to, None), Hop::Neighbor(via(number)), "{to}");
    }
}
