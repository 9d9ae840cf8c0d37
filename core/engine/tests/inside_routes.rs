//! Packets from inside to networks behind routers inside. They stay inside, untranslated.

mod common;

use common::*;
use natgate_engine::{
    AddressRange, Config, Direction, DropReason, Match, Outcome, Prefix, RealmConfig, Rule,
    RuleAction, Side, SideConfig, Verdict,
};
use std::net::Ipv4Addr;

const BRANCH: &str = "172.20.5.5:80";
const SENDER: &str = "10.0.0.5:4000";

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() }
}

fn prefix(address: &str, len: u8) -> Prefix {
    Prefix::new(address.parse().unwrap(), len)
}

/// Two networks behind routers inside. One of them is within a prefix that is remote elsewhere.
fn routed() -> Config {
    let ranges =
        vec![range("172.20.0.0", "172.20.255.255"), range("198.51.100.64", "198.51.100.127")];
    Config { inside_routes: ranges, ..config() }
}

/// Checks that a packet stays inside: its header's checksum is right, and only the TTL has changed.
fn stays(lab: &mut Lab, packet: &[u8]) {
    let (verdict, out) = lab.pass(Side::Inside, packet);
    assert_eq!(verdict, Verdict::Forward(Side::Inside), "{:?}", ends(packet));
    let mut expected = packet.to_vec();
    set_ttl(&mut expected, packet[8] - 1);
    assert_eq!(out, expected);
}

#[test]
fn a_packet_to_a_routed_network_stays_inside() {
    let mut lab = Lab::new(&routed());
    stays(&mut lab, &udp(SENDER, BRANCH));
    stays(&mut lab, &tcp(SENDER, BRANCH, "A", 7, 7));
    stays(&mut lab, &ping("10.0.0.5", "172.20.5.5", 9));
    stays(&mut lab, &icmp("10.0.0.5", "172.20.5.5", 5, 0, &[0; 4]));
    stays(&mut lab, &udp(SENDER, "198.51.100.64:1"));
    stays(&mut lab, &udp(SENDER, "198.51.100.127:1"));
    // From one routed network to another, and from a host that is no subscriber.
    stays(&mut lab, &udp("172.20.5.5:80", "198.51.100.100:4000"));
    stays(&mut lab, &udp("9.9.9.9:80", BRANCH));
    for fragment in cut(&udp_with(SENDER, BRANCH, &[7; 3000]), 99, 1480) {
        stays(&mut lab, &fragment);
    }
    // The packets make no mapping.
    assert_eq!(lab.engine.totals().mappings, 0);
    assert!(lab.created().is_empty());
    let counted = lab.engine.counters().packets[Direction::Hairpin as usize];
    assert_eq!(counted[Outcome::Forwarded as usize], 11);
    // Packets to other destinations go out.
    for remote in ["198.51.100.63:1", "198.51.100.128:1", "172.19.255.255:1", "172.21.0.0:1"] {
        lab.out(&udp(SENDER, remote));
    }
}

#[test]
fn it_is_forwarded_as_any_router_does() {
    let mut config = routed();
    config.inside.mtu = Some(1000);
    let mut lab = Lab::new(&config);
    let packet = udp_with(SENDER, BRANCH, &[7; 1200]);
    stays(&mut lab, &packet);
    let whole = with_fragment_field(&packet, 1, DONT_FRAGMENT);
    assert_eq!(lab.refused(Side::Inside, &whole), DropReason::TooBig);
    assert_eq!(lab.refused(Side::Inside, &with_ttl(&packet, 1)), DropReason::TtlExceeded);
    // The connected network and the gateway are treated as before.
    assert_eq!(lab.refused(Side::Inside, &udp(SENDER, "10.0.0.1:9")), DropReason::LocalUnsupported);
}

#[test]
fn rules_that_bypass_drop_or_translate_the_destination_come_first() {
    let rule = |port, action| Rule::new(Match::Destination(prefix("172.20.0.0", 16), port), action);
    let to = Ipv4Addr::new(198, 51, 100, 9);
    let rules = vec![
        rule(1, RuleAction::Bypass),
        rule(2, RuleAction::Drop),
        rule(3, RuleAction::Dnat(to, None)),
        rule(4, RuleAction::Snat(0)),
    ];
    let mut lab = Lab::new(&Config { rules, ..routed() });
    let to_port = |port: u16| udp(SENDER, &format!("172.20.5.5:{port}"));
    assert_eq!(lab.out(&to_port(1))[..8], to_port(1)[..8], "it goes out untranslated");
    assert_eq!(lab.refused(Side::Inside, &to_port(2)), DropReason::Rule);
    assert_eq!(ends(&lab.out(&to_port(3))).1, "198.51.100.9:3");
    stays(&mut lab, &to_port(4));
    stays(&mut lab, &to_port(5));
    for fragment in cut(&udp_with(SENDER, BRANCH, &[7; 3000]), 99, 1480) {
        stays(&mut lab, &fragment);
    }
}

#[test]
fn a_route_is_for_its_own_realm() {
    let other = RealmConfig {
        name: "b".into(),
        inside: SideConfig::default(),
        subscribers: vec![prefix("10.0.0.0", 8)],
        inside_routes: vec![range("198.51.100.0", "198.51.100.255")],
        ..RealmConfig::default()
    };
    let mut lab = Lab::new(&Config { realms: vec![other], ..routed() });
    stays(&mut lab, &udp(SENDER, BRANCH));
    lab.out(&udp(SENDER, "198.51.100.9:80"));
    let mut packet = udp(SENDER, "198.51.100.9:80");
    let mut views = [natgate_engine::Packet::new(&mut packet, 0).in_realm(1)];
    let mut verdicts = [Verdict::Held];
    let now = lab.now;
    lab.engine.process(now, Side::Inside, &mut views, &mut verdicts);
    assert_eq!((verdicts[0], views[0].realm()), (Verdict::Forward(Side::Inside), 1));
}

#[test]
fn ranges_that_are_not_in_order_are_refused() {
    for ranges in [
        vec![range("172.20.0.9", "172.20.0.1")],
        vec![range("172.20.0.0", "172.20.0.9"), range("172.20.0.9", "172.20.0.10")],
        vec![range("172.20.1.0", "172.20.1.9"), range("172.20.0.0", "172.20.0.9")],
    ] {
        let config = Config { inside_routes: ranges, ..config() };
        let refused = natgate_engine::Engine::new(&config, [1; 32], natgate_engine::Timestamp(0));
        assert!(refused.is_err_and(|error| error.message.contains("inside routes")));
    }
}

#[test]
fn an_error_about_a_packet_that_stayed_inside_reaches_its_sender() {
    let mut lab = Lab::new(&routed());
    let sent = udp(SENDER, BRANCH);
    stays(&mut lab, &sent);
    let about = |packet: &[u8], to: &str| error("172.20.0.1", to, 3, 1, packet);
    stays(&mut lab, &about(&sent, "10.0.0.5"));
    // Errors pass only to the sender, and only about packets that stayed inside.
    assert_eq!(lab.refused(Side::Inside, &about(&sent, "10.0.0.6")), DropReason::SameSide);
    let elsewhere = about(&udp(SENDER, "198.51.100.9:80"), "10.0.0.5");
    assert_eq!(lab.refused(Side::Inside, &elsewhere), DropReason::SameSide);
    let no_error = ping("10.0.0.9", "10.0.0.5", 7);
    assert_eq!(lab.refused(Side::Inside, &no_error), DropReason::SameSide);
    assert_eq!(lab.engine.totals().mappings, 0);
}
