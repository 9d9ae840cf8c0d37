//! New subscribers beside floods of packets to absent neighbours, and of forged ARP.

use super::*;

/// Hardware address of subscriber number `n`.
fn mac(n: u32) -> Mac {
    let [a, b, c, d] = n.to_be_bytes();
    Mac([2, 1, a, b, c, d])
}

/// A repeatable sequence of pseudo-random numbers (xorshift).
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// Settings whose inside network has a prefix of `len` bits.
fn with_inside(len: u8) -> Settings {
    let mut settings = settings();
    settings.inside.address = Some((ip("10.0.0.1"), len));
    settings
}

fn new_router(settings: &Settings) -> Router {
    Router::new(settings, &[INSIDE, OUTSIDE]).expect("the settings are right")
}

/// Runs a flood of answers to forged sources, `forged` a millisecond, for some seconds, beside 20
/// new subscribers a second. Returns the number of new subscribers, and the number that got their
/// first answer within a second.
fn flood(settings: &Settings, forged: u32, seconds: u64) -> (u32, u32) {
    let mut router = new_router(settings);
    let network = settings.inside.address.map(|(own, len)| Prefix::new(own, len));
    let network = network.expect("the inside has an address");
    let stations = network.last() - network.first();
    let mut numbers = Numbers(0x9e37_79b9);
    let (mut came, mut served) = (0, 0);
    let mut waiting: Vec<(u64, String)> = Vec::new();
    for millis in 0..seconds * 1000 {
        for _ in 0..forged {
            let to = network.first() + numbers.next() % stations;
            let to = Ipv4Addr::from_bits(to).to_string();
            send(&mut router, at(millis), Side::Inside, &to);
        }
        if millis % 50 == 0 {
            // A subscriber asks for its gateway; its first answer comes 20 ms later.
            came += 1;
            let subscriber = network.first() + 2 + came * 37 % (stations - 2);
            let address = Ipv4Addr::from_bits(subscriber).to_string();
            let asks = request((&address, mac(came)), "10.0.0.1");
            router.receive_arp(at(millis), Side::Inside, &asks);
            waiting.push((millis + 20, address));
        }
        router.advance(at(millis));
        waiting.retain(|(due, address)| {
            let is_due = millis >= *due;
            let ready =
                is_due && send(&mut router, at(millis), Side::Inside, address).0 == Fate::Ready;
            served += u32::from(ready);
            !ready && millis < *due + 1000
        });
        outputs(&mut router);
    }
    (came - waiting.len() as u32, served)
}

#[test]
fn new_subscribers_get_their_answers_beside_answers_to_forged_sources() {
    for len in [8, 16, 20] {
        let (came, served) = flood(&with_inside(len), 2, 10);
        assert!(came > 190 && served * 100 >= came * 99, "/{len}: {served} of {came}");
    }
}

#[test]
fn new_subscribers_get_their_answers_beside_a_hundred_thousand_forged_sources_a_second() {
    let (came, served) = flood(&with_inside(16), 100, 3);
    assert!(came > 50 && served * 100 >= came * 99, "{served} of {came}");
    let small = Settings { neighbors_limit: Some(64), ..with_inside(16) };
    let (came, served) = flood(&small, 100, 3);
    assert!(came > 50 && served * 100 >= came * 99, "{served} of {came} in a small table");
}

#[test]
fn a_known_subscriber_that_was_forgotten_comes_first_among_those_asked_for() {
    let mut router = new_router(&with_inside(16));
    let subscriber = "10.0.9.9";
    assert_eq!(send(&mut router, at(0), Side::Inside, subscriber).0, Fate::Kept);
    router.receive_arp(at(1), Side::Inside, &reply((subscriber, HOST), ("10.0.0.1", INSIDE)));
    (1..4).for_each(|minute| router.advance(at(minute * 60_001)));
    (1..4).for_each(|second| router.advance(at(180_003 + second * 1001)));
    assert!(router.neighbors(Side::Inside).is_empty());
    let mut numbers = Numbers(7);
    for _ in 0..20_000 {
        let to = Ipv4Addr::from_bits(0x0a00_0000 + numbers.next() % 0xffff).to_string();
        if to != subscriber {
            send(&mut router, at(200_000), Side::Inside, &to);
        }
    }
    outputs(&mut router);
    assert_eq!(send(&mut router, at(200_001), Side::Inside, subscriber).0, Fate::Kept);
    assert_eq!(outputs(&mut router).len(), 1, "it is asked for at once");
}

#[test]
fn every_subscriber_of_a_connected_network_of_sixteen_bits_has_a_place() {
    let mut router = new_router(&with_inside(16));
    let all: Vec<u32> = (0x0a00_0002..0x0a00_ffff).collect();
    for (number, address) in all.iter().enumerate() {
        let address = Ipv4Addr::from_bits(*address).to_string();
        let now = at(number as u64 / 4);
        router.receive_arp(now, Side::Inside, &request((&address, mac(number as u32)), "10.0.0.1"));
    }
    outputs(&mut router);
    for address in &all {
        let address = Ipv4Addr::from_bits(*address).to_string();
        assert_eq!(send(&mut router, at(20_000), Side::Inside, &address).0, Fate::Ready);
    }
    assert_eq!(router.neighbors(Side::Inside).len(), all.len());
    assert_eq!(router.counters().arp_asked, 0);
}

#[test]
fn who_asks_for_the_gateway_is_learnt_and_nobody_else() {
    let mut router = router();
    let learnt = |router: &Router, side| router.neighbors(side).len();
    // Not for the gateway; not of the link's network; no address; no request; a wrong source.
    router.receive_arp(at(0), Side::Inside, &request(("10.0.0.5", HOST), "10.0.0.9"));
    router.receive_arp(at(0), Side::Inside, &request(("11.0.0.5", HOST), "10.0.0.1"));
    router.receive_arp(at(0), Side::Inside, &request(("0.0.0.0", HOST), "10.0.0.1"));
    router.receive_arp(at(0), Side::Inside, &reply(("10.0.0.5", HOST), ("10.0.0.1", INSIDE)));
    let mut other = request(("10.0.0.5", HOST), "10.0.0.1");
    other[6..12].copy_from_slice(&UPSTREAM.0);
    router.receive_arp(at(0), Side::Inside, &other);
    assert_eq!(learnt(&router, Side::Inside), 0);

    router.receive_arp(at(0), Side::Inside, &request(("10.0.0.5", HOST), "10.0.0.1"));
    let neighbors = router.neighbors(Side::Inside);
    assert_eq!((neighbors[0].mac, neighbors[0].state), (Some(HOST), NeighborState::Learnt));
    assert_eq!(router.known(Link::inside(0), ip("10.0.0.5")), Some(HOST));
    outputs(&mut router);
    assert_eq!(send(&mut router, at(1), Side::Inside, "10.0.0.5").0, Fate::Ready);
    assert_eq!(outputs(&mut router), []);
    // A used neighbour is asked after a minute, and is known then.
    router.advance(at(60_000));
    assert_eq!(outputs(&mut router).len(), 1);
    router.receive_arp(at(60_001), Side::Inside, &reply(("10.0.0.5", HOST), ("10.0.0.1", INSIDE)));
    assert_eq!(router.neighbors(Side::Inside)[0].state, NeighborState::Known);
    // A router outside that asks for an external address is learnt too.
    router.receive_arp(at(0), Side::Outside, &request(("192.0.2.254", UPSTREAM), "203.0.113.16"));
    assert_eq!(learnt(&router, Side::Outside), 1);
}

#[test]
fn learnt_neighbors_push_out_nobody_who_answered_or_is_used() {
    let mut router = new_router(&Settings { neighbors_limit: Some(512), ..with_inside(16) });
    for number in 1..=200 {
        let address = nth_of_sixteen(number);
        send(&mut router, at(0), Side::Inside, &address);
        router.receive_arp(at(0), Side::Inside, &reply((&address, HOST), ("10.0.0.1", INSIDE)));
    }
    for number in 1..=20_000_u32 {
        let address = nth_of_sixteen(1000 + number);
        let forged = request((&address, mac(number)), "10.0.0.1");
        router.receive_arp(at(1), Side::Inside, &forged);
    }
    let neighbors = router.neighbors(Side::Inside);
    assert_eq!(neighbors.len(), 512);
    let known = |one: &&NeighborInfo| one.state == NeighborState::Known;
    assert_eq!(neighbors.iter().filter(known).count(), 200);
    // If all neighbours are known, a request teaches nothing, and that is counted.
    let mut router = new_router(&Settings { neighbors_limit: Some(10), ..with_inside(16) });
    for number in 1..=10 {
        let address = nth_of_sixteen(number);
        send(&mut router, at(0), Side::Inside, &address);
        router.receive_arp(at(0), Side::Inside, &reply((&address, HOST), ("10.0.0.1", INSIDE)));
    }
    router.receive_arp(at(1), Side::Inside, &request(("10.0.77.7", HOST), "10.0.0.1"));
    assert_eq!(router.known(Link::inside(0), ip("10.0.77.7")), None);
    assert_eq!(router.counters().neighbors_refused, 1);
}

/// Address number `n` of 10.0.0.0/16.
fn nth_of_sixteen(n: u32) -> String {
    Ipv4Addr::from_bits(0x0a00_0001 + n).to_string()
}

#[test]
fn one_station_learns_itself_into_no_more_than_its_share_of_the_table() {
    let mut router = new_router(&with_inside(16));
    for number in 1..=60_000 {
        let forged = request((&nth_of_sixteen(number), HOST), "10.0.0.1");
        router.receive_arp(at(number.into()), Side::Inside, &forged);
    }
    assert_eq!(router.neighbors(Side::Inside).len(), MOST_NEIGHBORS / 16);
}

#[test]
fn a_subscriber_whose_address_somebody_forged_before_is_asked_at_once() {
    let mut router = router();
    let thief = Mac([2, 6, 6, 6, 6, 6]);
    router.receive_arp(at(0), Side::Inside, &request(("10.0.0.5", thief), "10.0.0.1"));
    outputs(&mut router);
    router.receive_arp(at(1), Side::Inside, &request(("10.0.0.5", HOST), "10.0.0.1"));
    let asks_all = |out: &Out| matches!(out, Out::Arp(Side::Inside, Mac::BROADCAST, _));
    assert!(outputs(&mut router).iter().any(asks_all));
    router.receive_arp(at(2), Side::Inside, &reply(("10.0.0.5", HOST), ("10.0.0.1", INSIDE)));
    assert_eq!(router.known(Link::inside(0), ip("10.0.0.5")), Some(HOST));
}
