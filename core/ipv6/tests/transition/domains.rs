//! Several rules of MAP-T with one default mapping rule, and several relays of lw4o6.

use crate::packets::*;
use crate::prefixes::prefix;
use crate::world::{OWN6, Went, World, customer, dmr, lw4o6, map, map_rule};
use natgate_engine::{DropReason as R, Packet, Prefix, Side};
use natgate_ipv6::softwire::{MapMode, MapParameters, MapRule};
use natgate_ipv6::{FamilyExplanation, FamilyStep, SoftwireTable};
use natgate_wire::Ipv6;

const REMOTE: &str = "198.51.100.7";
/// Customers of the two rules, and one of their ports.
const ONE: &str = "192.0.2.18";
const OTHER: &str = "192.0.3.18";
const PORT: u16 = 1232;

fn rules() -> [MapRule; 2] {
    let rule = |ipv6, ipv4| map_rule(ipv6, ipv4, 24, MapMode::Translation(dmr()));
    [rule("2001:db8::", "192.0.2.0"), rule("2001:db9::", "192.0.3.0")]
}

fn map_t() -> World {
    World::new(map(&rules().map(|rule| (rule, None))))
}

/// The addresses of the two customers.
fn hosts() -> [String; 2] {
    let [one, other] = rules();
    [customer(&one, ONE, 0x34), customer(&other, OTHER, 0x34)]
}

/// The address that stands for an IPv4 address.
fn seen(ipv4: &str) -> String {
    dmr().embed(ipv4.parse().expect("an address")).to_string()
}

#[test]
fn each_customer_has_its_own_rule_of_one_default_mapping_rule() {
    let mut world = map_t();
    for (host, ipv4) in hosts().iter().zip([ONE, OTHER]) {
        let packet = six((host, &seen(REMOTE)), UDP, &udp((PORT, 53), 20));
        let left = world.pass(Side::Inside, Side::Outside, &packet);
        check(&left);
        assert_eq!(ends(&left), pair((ipv4, REMOTE)));
        let packet = four((REMOTE, ipv4), UDP, &udp((53, PORT), 20));
        let entered = world.pass(Side::Outside, Side::Inside, &packet);
        check(&entered);
        assert_eq!(ends(&entered), pair((&seen(REMOTE), host)));
    }
    let counters = world.translator.domain_counters();
    for domain in &counters[1..3] {
        assert_eq!((domain.outbound.0, domain.inbound.0, domain.spoofed), (1, 1, 0));
    }
}

/// As in a tunnel. Another customer with the same address is somebody else.
#[test]
fn a_packet_to_its_own_source_goes_nowhere() {
    let mut world = map_t();
    let [host, _] = hosts();
    let to = |port| six((&host, &seen(ONE)), UDP, &udp((PORT, port), 20));
    for port in [PORT, PORT + 1] {
        assert_eq!(world.refuse(Side::Inside, &to(port)), R::Land);
        assert_eq!(world.own(), None);
    }
    let neighbour = customer(&rules()[0], ONE, 0x35);
    let turned = world.pass(Side::Inside, Side::Inside, &to(PORT + 4));
    assert_eq!(ends(&turned), pair((&seen(ONE), &neighbour)));
}

/// A source with the address of one rule's customer and the prefix of the other.
#[test]
fn no_customer_sends_as_one_of_the_other_rule() {
    let mut world = map_t();
    let mixed = |of: &MapRule, ipv4: &str| {
        let [right, identifier] = [of.address_of(0xc000_0212, 0x34), {
            let ipv4: std::net::Ipv4Addr = ipv4.parse().expect("an address");
            u128::from(ipv4.to_bits()) << 16 | 0x34
        }];
        std::net::Ipv6Addr::from_bits(right >> 64 << 64 | identifier).to_string()
    };
    let [one, other] = rules();
    for (number, forged) in [mixed(&one, OTHER), mixed(&other, ONE)].iter().enumerate() {
        let packet = six((forged, &seen(REMOTE)), UDP, &udp((PORT, 53), 20));
        assert_eq!(world.refuse(Side::Inside, &packet), R::SoftwireSource, "{forged}");
        let (side, error) = world.own().expect("an error");
        assert_eq!((side, ends(&error)), (Side::Inside, pair((OWN6, forged))));
        assert_eq!(error[40..42], [1, 5]);
        assert_eq!(world.translator.domain_counters()[1 + number].spoofed, 1);
    }
}

/// Both customers, and both directions, use one identification with one remote host.
/// A rule with a longer prefix has the address of a customer: answers go to that rule's customer.
#[test]
fn an_explanation_names_the_longer_rule_that_has_the_address() {
    let [one, _] = rules();
    let long = MapRule::new(MapParameters {
        ipv6: prefix("2001:dba::", 40),
        ipv4: Prefix::new([192, 0, 2, 16].into(), 28),
        ea_length: 12,
        psid_offset: 6,
        psid: None,
        mode: MapMode::Translation(dmr()),
    });
    let long = long.expect("a rule");
    let mut world = World::new(map(&[(one, None), (long, None)]));
    let bytes = six((&customer(&one, ONE, 0x34), &seen(REMOTE)), UDP, &udp((PORT, 53), 20));
    assert_eq!(world.refuse(Side::Inside, &bytes), R::SoftwireSource);
    let mut buffer = bytes.clone();
    let packet = Packet::new(&mut buffer, 0);
    let mut explained = FamilyExplanation::new();
    let World { translator, engine, now } = &mut world;
    translator.explain(engine, *now, Side::Inside, &packet, &mut explained);
    let named = explained.steps().iter().find_map(|step| match step {
        FamilyStep::Longer { table: SoftwireTable::Rule { place, .. }, ipv4, customer } => {
            Some((*place, ipv4.to_string(), customer.expect("a customer").to_string()))
        }
        _ => None,
    });
    let expected = (1, ONE.to_owned(), customer(&long, ONE, 0x34));
    assert_eq!(named, Some(expected), "{:?}", explained.steps());
    // The longer rule's customer is its own.
    let bytes = six((&customer(&long, ONE, 0x34), &seen(REMOTE)), UDP, &udp((PORT, 53), 20));
    world.pass(Side::Inside, Side::Outside, &bytes);
}

#[test]
fn later_fragments_of_two_rules_follow_the_first_of_their_own_datagram() {
    let mut world = map_t();
    let hosts = hosts();
    let whole = [53, 80].map(|remote| udp((PORT, remote), 100));
    let part = |number: usize, range| {
        let packet = six((&hosts[number], &seen(REMOTE)), UDP, &whole[number]);
        part6(&packet, 7, range)
    };
    for number in [0, 1] {
        assert_eq!(world.take(Side::Inside, &part(number, (48, 108))), Went::Held);
    }
    for (number, ipv4) in [(1, OTHER), (0, ONE)] {
        let first = world.pass(Side::Inside, Side::Outside, &part(number, (0, 48)));
        assert_eq!((ends(&first), port(&first, 2)), (pair((ipv4, REMOTE)), [53, 80][number]));
        let (side, released) = world.own().expect("the fragment that waited");
        assert_eq!((side, ends(&released)), (Side::Outside, pair((ipv4, REMOTE))));
        assert_eq!((released[6..8].to_vec(), released[4..6].to_vec()), (vec![0, 6], vec![0, 7]));
        assert_eq!(world.own(), None, "the other customer's fragment still waits");
    }
    // A later fragment whose first one had another customer's port goes nowhere.
    let forged = six((&hosts[0], &seen(REMOTE)), UDP, &udp((PORT + 4, 53), 100));
    assert_eq!(world.take(Side::Inside, &part6(&forged, 9, (48, 108))), Went::Held);
    assert_eq!(world.refuse(Side::Inside, &part6(&forged, 9, (0, 48))), R::SoftwireSource);
    while let Some((side, _)) = world.own() {
        assert_eq!(side, Side::Inside, "only errors leave");
    }
    // From outside, the address tells the rule, and the datagram the port.
    let datagram = |ipv4| four((REMOTE, ipv4), UDP, &udp((53, PORT), 100));
    let field = |bytes: &[u8], (from, to): (usize, usize), field: u16| {
        let mut part = bytes[..20].to_vec();
        part.extend(&bytes[20 + from..20 + to]);
        let len = (part.len() as u16).to_be_bytes();
        part[2..4].copy_from_slice(&len);
        with_field(part, 7, field)
    };
    for ipv4 in [ONE, OTHER] {
        let later = field(&datagram(ipv4), (48, 108), 6);
        assert_eq!(world.take(Side::Outside, &later), Went::Held);
    }
    for (host, ipv4) in hosts.iter().zip([ONE, OTHER]) {
        let first = field(&datagram(ipv4), (0, 48), 0x2000);
        let entered = world.pass(Side::Outside, Side::Inside, &first);
        assert_eq!(ends(&entered), pair((&seen(REMOTE), host)));
        let (side, released) = world.own().expect("the fragment that waited");
        assert_eq!((side, ends(&released)), (Side::Inside, pair((&seen(REMOTE), host))));
        assert_eq!((world.own(), released[48..].len()), (None, 60));
    }
}

/// A datagram in fragments from a customer of one rule to a customer of another with a shared
/// address. The sender's address is shared too, or its own.
#[test]
fn fragments_between_customers_of_two_rules_arrive() {
    let [one, other] = rules();
    let whole = map_rule("2001:dba::", "198.18.0.0", 16, MapMode::Translation(dmr()));
    let to = customer(&other, OTHER, 0x34);
    for (rule, ipv4, psid) in [(one, ONE, 0x34), (whole, "198.18.7.7", 0)] {
        for order in [[0, 1], [1, 0]] {
            let mut world = World::new(map(&[(rule, None), (other, None)]));
            let from = customer(&rule, ipv4, psid);
            let datagram = six((&from, &seen(OTHER)), UDP, &udp((PORT, PORT + 1), 100));
            let parts = [(0, 48), (48, 108)].map(|range| part6(&datagram, 7, range));
            let mut arrived = Vec::new();
            for number in order {
                match world.take(Side::Inside, &parts[number]) {
                    Went::To(Side::Inside, bytes, None) => arrived.push(bytes),
                    Went::Held => assert_eq!((number, arrived.len()), (1, 0)),
                    other => panic!("{ipv4} {order:?}: {other:?}"),
                }
                arrived.extend(std::iter::from_fn(|| world.own()).map(|(side, bytes)| {
                    assert_eq!(side, Side::Inside);
                    bytes
                }));
            }
            let [first, later] = &arrived[..] else { panic!("{} of two parts", arrived.len()) };
            for bytes in [first, later] {
                assert_eq!(ends(bytes), pair((&seen(ipv4), &to)));
                Ipv6::new_checked(&bytes[..]).expect("a packet of IPv6");
            }
            let payload = [&first[48..], &later[48..]].concat();
            let joined = six((&seen(ipv4), &to), UDP, &payload);
            assert_eq!(joined[40..], payload[..], "the checksum of the whole is right");
        }
    }
}

const SHARED: &str = "203.0.113.7";
/// B4s and relays of the identifiers 1, 2 and 3.
const B4S: [&str; 3] = ["2001:db8:b4::1", "2001:db8:b4::2", "2001:db8:b4::3"];
const RELAYS: [&str; 3] = ["2001:db8:fffe::1", "2001:db8:fffe::2", "2001:db8:fffe::2"];

fn relays() -> World {
    let bindings: Vec<(u16, &str, &str)> =
        (1..).zip(B4S).zip(RELAYS).map(|((psid, b4), br)| (psid, b4, br)).collect();
    World::new(lw4o6(SHARED, None, &bindings))
}

/// The first port of a customer's set.
fn first_port(customer: usize) -> u16 {
    1024 * (customer as u16 + 1)
}

#[test]
fn a_customer_reaches_its_own_relay_and_no_other() {
    let mut world = relays();
    for (number, b4) in B4S.into_iter().enumerate() {
        let (port, own) = (first_port(number), RELAYS[number]);
        let inner = four((SHARED, REMOTE), UDP, &udp((port, 53), 20));
        let left = world.pass(Side::Inside, Side::Outside, &tunneled((b4, own), &inner));
        assert_eq!(left, with_hops(inner.clone(), 63));
        let answer = four((REMOTE, SHARED), UDP, &udp((53, port), 20));
        let entered = world.pass(Side::Outside, Side::Inside, &answer);
        assert_eq!(ends(&entered), pair((own, b4)));
        let wrong = if own == RELAYS[0] { RELAYS[1] } else { RELAYS[0] };
        let refused = world.refuse(Side::Inside, &tunneled((b4, wrong), &inner));
        assert_eq!(refused, R::SoftwireSource);
        let (_, error) = world.own().expect("an error");
        assert_eq!((ends(&error), &error[40..42]), (pair((wrong, b4)), &[1, 5][..]));
        // A whole packet in fragments has the same check.
        let parts = |end| {
            let outer = tunneled((b4, end), &inner);
            [(0, 24), (24, 48)].map(|range| part6(&outer, 7, range))
        };
        let [first, last] = parts(own);
        assert_eq!(world.take(Side::Inside, &last), Went::Held);
        assert_eq!(world.take(Side::Inside, &first), Went::Held);
        assert_eq!(world.own(), Some((Side::Outside, with_hops(inner.clone(), 63))));
        for part in parts(wrong) {
            let went = world.take(Side::Inside, &part);
            assert!(!matches!(went, Went::To(..)), "{went:?}");
        }
        while let Some((side, _)) = world.own() {
            assert_eq!(side, Side::Inside, "only errors leave");
        }
    }
    // Both relays answer an echo request.
    for relay in [RELAYS[0], RELAYS[1]] {
        let request = six((B4S[0], relay), ICMPV6, &echo(128, 7));
        let reply = world.pass(Side::Inside, Side::Inside, &request);
        assert_eq!((ends(&reply), reply[40]), (pair((relay, B4S[0])), 129));
    }
    let nobody = six((B4S[0], "2001:db8:fffe::3"), 4, &[0x45; 20]);
    assert!(!matches!(world.take(Side::Inside, &nobody), Went::To(Side::Inside, ..)));
}

#[test]
fn customers_of_two_relays_reach_each_other_and_hear_of_their_own_path() {
    let mut world = relays();
    let inner = four((SHARED, SHARED), UDP, &udp((first_port(0), first_port(1)), 20));
    let turned = world.pass(Side::Inside, Side::Inside, &tunneled((B4S[0], RELAYS[0]), &inner));
    assert_eq!(ends(&turned), pair((RELAYS[1], B4S[1])));
    assert_eq!(turned[40..], with_hops(inner, 63)[..]);
    // A report counts at the relay that sent the packet alone.
    let long = four((REMOTE, SHARED), UDP, &udp((53, first_port(1)), 1400));
    let sent = world.pass(Side::Outside, Side::Inside, &long);
    let report = |relay| {
        let router = ("2001:db8:5::1", relay);
        six(router, ICMPV6, &error(2, 0, 1300, &sent[..200]))
    };
    assert_eq!(world.refuse(Side::Inside, &report(RELAYS[0])), R::IcmpNoSession);
    assert_eq!(world.pass(Side::Outside, Side::Inside, &long), sent);
    assert_eq!(world.take(Side::Inside, &report(RELAYS[1])), Went::Held);
    let Went::To(Side::Inside, _, Some(cut)) = world.take(Side::Outside, &long) else {
        panic!("the packet is cut")
    };
    assert_eq!(cut.limit, 1300);
}
