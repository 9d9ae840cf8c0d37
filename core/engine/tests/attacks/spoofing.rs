//! Forged addresses: possible senders, and the effects. A sender outside cannot use an address of
//! the inside or of the gateway. A sender inside can use another subscriber's address, because
//! nothing in a packet contradicts it (the access network must apply BCP 38).

use crate::common::*;
use crate::world::*;
use natgate_engine::{
    AddressRange, Config, DropReason, PoolConfig, Prefix, Rule, RuleAction, Side, StaticMapping,
    Verdict,
};
use natgate_wire::protocol;
use std::net::Ipv4Addr;

/// Two pools of two addresses each, and a static port on an address of its own. Both sides' own
/// addresses are 10.0.0.1 and 192.0.2.254.
fn two_pools() -> Config {
    let range = |first: &str, last: &str| AddressRange {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
    };
    let second = PoolConfig {
        name: "second".into(),
        addresses: vec![range("203.0.113.20", "203.0.113.21")],
        ports: (1024, 65_535),
        ..PoolConfig::default()
    };
    Config {
        pools: vec![pool("203.0.113.1", "203.0.113.2", (1024, 65_535)), second],
        rules: vec![Rule::new(
            natgate_engine::Match::Source(Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 16), 0),
            RuleAction::Snat(1),
        )],
        statics: vec![StaticMapping {
            protocol: Some(protocol::TCP),
            internal: (Ipv4Addr::new(10, 0, 0, 80), Some(8080)),
            external: (Ipv4Addr::new(203, 0, 113, 9), Some(80)),
            ..StaticMapping::default()
        }],
        ..config()
    }
}

const OURS: [&str; 7] = [
    "10.0.0.1",
    "192.0.2.254",
    "203.0.113.1",
    "203.0.113.2",
    "203.0.113.9",
    "203.0.113.20",
    "203.0.113.21",
];

/// From either side, by any protocol and to any destination: no packet may have one of our
/// addresses as its source, in use or not, of any pool, on any side.
#[test]
fn nobody_sends_from_our_addresses() {
    let (mut lab, external) = established(&two_pools());
    let other = lab.external_of(&udp("10.1.0.6:4000", REMOTE));
    let bystander = lab.external_of(&udp("10.0.0.6:4000", REMOTE));
    lab.events.clear();
    let before = picture(&lab);
    let targets = [REMOTE, VICTIM, &external, &other, &bystander, "203.0.113.9:80"];
    let mut refused = 0;
    for from in [Side::Inside, Side::Outside] {
        for address in OURS {
            for port in [80, 1024, endpoint(&external).1, endpoint(&other).1, 65_535] {
                let source = format!("{address}:{port}");
                for to in targets.iter().filter(|to| endpoint(to).0 != endpoint(address).0) {
                    let host = to.split(':').next().unwrap();
                    for packet in [
                        udp(&source, to),
                        tcp(&source, to, "S", 1, 0),
                        tcp(&source, to, "R", 501, 0),
                        ping(address, host, port),
                        error(address, host, 3, 1, &udp(to, &source)),
                    ] {
                        assert_eq!(lab.refused(from, &packet), DropReason::SpoofedSource);
                        refused += 1;
                    }
                }
            }
        }
    }
    assert_eq!(picture(&lab), before, "{refused} forgeries");
    assert!(refused > 1500);
    lab.wait_s(7.0);
    assert!(lab.sent.is_empty() && lab.events.is_empty(), "and nobody is told");
}

/// A hairpinned packet shows the sender's real external endpoint to the receiver: the translator
/// writes the source.
#[test]
fn a_hairpinned_packet_shows_its_senders_own_endpoint() {
    let mut lab = Lab::new(&config());
    let victim = lab.external_of(&udp(VICTIM, REMOTE));
    let bystander = lab.external_of(&udp("10.0.0.6:4000", REMOTE));
    let sender = lab.external_of(&udp("10.0.0.66:6666", REMOTE));
    let (verdict, bytes) = lab.pass(Side::Inside, &udp("10.0.0.66:6666", &victim));
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    assert_eq!(ends(&bytes), (sender, VICTIM.into()));
    // The bystander, whose external address is the victim's too, cannot appear as the victim.
    assert_eq!(lab.refused(Side::Inside, &udp(&bystander, &victim)), DropReason::Land);
    // The bystander cannot reach the victim directly either.
    let direct = udp("10.0.0.66:6666", VICTIM);
    assert_eq!(lab.refused(Side::Inside, &direct), DropReason::SameSide);
}

/// A subscriber that sends with its neighbour's internal address can use up the neighbour's quota,
/// and nothing else: present mappings continue, other subscribers are not affected, and replies go
/// to the neighbour.
#[test]
fn a_subscriber_that_sends_as_another_uses_up_only_the_others_quota() {
    let mut config = config();
    config.limits.new_mappings_per_second = 1_000_000;
    let (mut lab, external) = established(&config);
    let mut made = 0;
    for port in 5000..15_000 {
        made +=
            u32::from(passes(&mut lab, Side::Inside, &udp(&format!("10.0.0.5:{port}"), REMOTE)));
    }
    assert_eq!(made, 2000, "of 10,000 forged flows the neighbour's quota passes");
    lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501));
    let back = lab.inward(&tcp(REMOTE, &external, "A", 501, 101));
    assert_eq!(ends(&back).1, VICTIM);
    lab.out(&tcp("10.0.0.5:4001", REMOTE, "S", 1, 0));
    let mut others = 0;
    for host in 6..=205 {
        others +=
            u32::from(passes(&mut lab, Side::Inside, &udp(&format!("10.0.0.{host}:1"), REMOTE)));
    }
    assert_eq!(others, 200);
}

/// Sources that are no subscribers: 200,000 of them take nothing.
#[test]
fn sources_that_are_no_subscribers_take_nothing() {
    let (mut lab, _) = established(&config());
    let before = picture(&lab);
    let mut packet = udp("9.0.0.1:4000", REMOTE);
    let mut dice = Dice(7);
    let mut refused = 0;
    for _ in 0..200_000 {
        let address = dice.word();
        let [a, b, ..] = address.to_be_bytes();
        let subscriber = a == 10
            || (a, b & 0xf0) == (172, 16)
            || (a, b) == (192, 168)
            || (a, b & 0xc0) == (100, 64);
        if subscriber {
            continue;
        }
        packet[12..16].copy_from_slice(&address.to_be_bytes());
        fill_header_checksum(&mut packet);
        refused += u32::from(matches!(lab.pass(Side::Inside, &packet).0, Verdict::Drop(_)));
    }
    assert!(refused > 190_000);
    assert_eq!(
        dropped(&lab, DropReason::NotSubscriber)
            + dropped(&lab, DropReason::MartianSource)
            + dropped(&lab, DropReason::SpoofedSource),
        u64::from(refused)
    );
    assert_eq!(picture(&lab), before);
    assert!(lab.sent.is_empty() && lab.events.is_empty());
}

/// No packet from outside reaches an internal address by naming it.
#[test]
fn internal_addresses_are_not_reached_from_outside() {
    let (mut lab, _) = established(&config());
    let before = picture(&lab);
    for source in [REMOTE, ATTACKER, "10.0.0.6:4000"] {
        for packet in [
            tcp(source, VICTIM, "A", 501, 101),
            tcp(source, VICTIM, "S", 1, 0),
            udp(source, VICTIM),
            ping(source.split(':').next().unwrap(), "10.0.0.5", 7),
        ] {
            assert_eq!(lab.refused(Side::Outside, &packet), DropReason::NotForUs);
        }
    }
    lab.wait_s(7.0);
    assert!(lab.sent.is_empty());
    assert_eq!(picture(&lab).sessions, before.sessions);
}
