//! Destinations that rules translate, and the names inside of remote endpoints (twice NAT).

mod common;

use common::*;
use natgate_engine::{
    Behavior, Config, DropReason, Endpoint, Limits, Match, Prefix, Rule, RuleAction, RuleSet, Side,
    StaticMapping, Verdict,
};
use std::net::Ipv4Addr;

fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').unwrap_or((text, "32"));
    Prefix::new(address.parse().unwrap(), len.parse().unwrap())
}

/// A rule for a destination, to an endpoint, or to a prefix if there is a slash.
fn dnat(destination: &str, port: u16, to: &str) -> Rule {
    let action = match to.split_once(':') {
        _ if to.contains('/') => RuleAction::DnatPrefix(prefix(to)),
        Some((address, port)) => {
            RuleAction::Dnat(address.parse().unwrap(), Some(port.parse().unwrap()))
        }
        None => RuleAction::Dnat(to.parse().unwrap(), None),
    };
    Rule::new(Match::Destination(prefix(destination), port), action)
}

fn lab(rules: Vec<Rule>) -> Lab {
    Lab::new(&Config { rules, ..config() })
}

fn end(text: &str) -> Endpoint {
    let (address, port) = endpoint(text);
    Endpoint::new(address, port)
}

/// A rule that sends all DNS to one resolver.
fn dns() -> Lab {
    lab(vec![dnat("0.0.0.0/0", 53, "192.0.2.53:5353")])
}

/// Two networks with the same numbers. The outside one is seen as 172.20.0.0/24.
fn overlapping() -> Lab {
    let server = StaticMapping {
        protocol: None,
        internal: (Ipv4Addr::new(10, 0, 0, 80), None),
        external: (Ipv4Addr::new(203, 0, 113, 80), None),
        ..StaticMapping::default()
    };
    let rules = vec![dnat("172.20.0.0/24", 0, "10.0.0.0/24")];
    Lab::new(&Config { rules, statics: vec![server], ..config() })
}

#[test]
fn answers_come_from_whom_was_asked() {
    let mut lab = dns();
    let out = lab.out(&udp("10.0.0.5:4000", "198.51.100.7:53"));
    let (external, to) = ends(&out);
    assert_eq!(to, "192.0.2.53:5353");
    let inward = lab.inward(&udp("192.0.2.53:5353", &external));
    assert_eq!(ends(&inward), ("198.51.100.7:53".into(), "10.0.0.5:4000".into()));
    let session = lab.engine.sessions().next().unwrap();
    assert_eq!(session.remote, end("192.0.2.53:5353"));
    assert_eq!(session.remote_inside, end("198.51.100.7:53"));
    // Other packets go to their destination, through the same mapping.
    assert_eq!(ends(&lab.out(&udp("10.0.0.5:4000", REMOTE))), (external.clone(), REMOTE.into()));
    // Another server's reply would come from the same endpoint.
    let other = udp("10.0.0.5:4000", "198.51.100.8:53");
    assert_eq!(lab.refused(Side::Inside, &other), DropReason::Ambiguous);
    assert_eq!(ends(&lab.out(&udp("10.0.0.5:4001", "198.51.100.8:53"))).1, "192.0.2.53:5353");
    // A resolver that is addressed directly answers as itself. Then it has this name and no other.
    let itself = udp("10.0.0.5:4002", "192.0.2.53:5353");
    assert_eq!(ends(&lab.out(&itself)).1, "192.0.2.53:5353");
    let fake = udp("10.0.0.5:4002", "198.51.100.8:53");
    assert_eq!(lab.refused(Side::Inside, &fake), DropReason::Ambiguous);
    lab.wait_s(400.0);
    assert_eq!(lab.engine.sessions().count(), 0);
    assert_eq!(ends(&lab.out(&fake)).1, "192.0.2.53:5353");
}

#[test]
fn tcp_connections_open_and_close_through_it() {
    let mut lab = lab(vec![dnat("198.51.100.0/24", 80, "192.0.2.80:8080")]);
    let (inner, seen, real) = ("10.0.0.5:4000", REMOTE, "192.0.2.80:8080");
    let out = lab.out(&tcp(inner, seen, "S", 1, 0));
    let external = ends(&out).0;
    assert_eq!(ends(&out).1, real);
    let answer = lab.inward(&tcp(real, &external, "SA", 100, 2));
    assert_eq!(ends(&answer), (seen.into(), inner.into()));
    let ack = lab.out(&tcp(inner, seen, "A", 2, 101));
    assert_eq!(ends(&ack).1, real);
    assert_eq!(lab.engine.sessions().next().unwrap().state, "established");
    lab.inward(&tcp(real, &external, "FA", 101, 2));
    lab.out(&tcp(inner, seen, "FA", 2, 102));
    assert_eq!(lab.engine.sessions().next().unwrap().state, "closed");
    // A remote endpoint without another name is filtered by its own.
    let mut filtering = Lab::new(&Config {
        filtering: Behavior::AddressAndPortDependent,
        rules: vec![dnat("198.51.100.0/24", 80, "192.0.2.80:8080")],
        ..config()
    });
    let external = ends(&filtering.out(&tcp(inner, seen, "S", 1, 0))).0;
    let stranger = tcp(seen, &external, "SA", 1, 2);
    assert_eq!(filtering.refused(Side::Outside, &stranger), DropReason::Filtered);
    assert!(filtering.passes(Side::Outside, &tcp(real, &external, "SA", 1, 2)));
}

#[test]
fn queries_and_protocols_without_ports_go_by_address() {
    let mut lab = lab(vec![dnat("198.51.100.0/24", 0, "192.0.2.80:8080")]);
    let out = lab.out(&ping("10.0.0.5", "198.51.100.7", 77));
    let (external, to) = ends(&out);
    assert_eq!(to, "192.0.2.80");
    let reply = icmp("192.0.2.80", &external, 0, 0, &out[24..]);
    let inward = lab.inward(&reply);
    assert_eq!(ends(&inward), ("198.51.100.7".into(), "10.0.0.5".into()));
    assert_eq!(inward[24..26], 77_u16.to_be_bytes());
    let gre = |from: &str, to: &str| ip(47, endpoint(from).0, endpoint(to).0, &[9; 24]);
    let (external, to) = ends(&lab.out(&gre("10.0.0.5", "198.51.100.7")));
    assert_eq!(to, "192.0.2.80");
    let inward = lab.inward(&gre("192.0.2.80", &external));
    assert_eq!(ends(&inward), ("198.51.100.7".into(), "10.0.0.5".into()));
    let second = gre("10.0.0.5", "198.51.100.8");
    assert_eq!(lab.refused(Side::Inside, &second), DropReason::Ambiguous);
}

#[test]
fn overlapping_networks_reach_each_other() {
    let mut lab = overlapping();
    // The addresses are equal on both sides.
    let out = lab.out(&udp("10.0.0.9:4000", "172.20.0.9:7"));
    let (external, to) = ends(&out);
    assert_eq!((address_of(&external), &to[..]), ("203.0.113.1", "10.0.0.9:7"));
    assert_eq!(ends(&lab.inward(&udp(&to, &external))).0, "172.20.0.9:7");
    // The outside begins: its source is a name that can be answered.
    let inward = lab.inward(&tcp("10.0.0.9:5000", "203.0.113.80:22", "S", 1, 0));
    assert_eq!(ends(&inward), ("172.20.0.9:5000".into(), "10.0.0.80:22".into()));
    let answer = lab.out(&tcp("10.0.0.80:22", "172.20.0.9:5000", "SA", 7, 2));
    assert_eq!(ends(&answer), ("203.0.113.80:22".into(), "10.0.0.9:5000".into()));
    // Without another name such a source is still refused.
    let mut plain = Lab::new(&config());
    let external = plain.external_of(&udp("10.0.0.9:4000", REMOTE));
    let lie = udp("10.0.0.9:7", &external);
    assert_eq!(plain.refused(Side::Outside, &lie), DropReason::SpoofedSource);
    // Packets within the inside network are not forwarded.
    let near = udp("10.0.0.9:4000", "10.0.0.8:7");
    assert_eq!(lab.refused(Side::Inside, &near), DropReason::SameSide);
}

#[test]
fn errors_of_both_sides_have_both_names_put_right() {
    let mut lab = overlapping();
    let asked = udp("10.0.0.9:4000", "172.20.0.9:7");
    let sent = lab.out(&asked);
    let external = ends(&sent).0;
    // An error from the host that was addressed, and from a router of its network on the way.
    for (sender, seen) in [("10.0.0.9", "172.20.0.9"), ("10.0.0.254", "172.20.0.254")] {
        let inward = lab.inward(&error(sender, "203.0.113.1", 3, 3, &sent));
        assert_eq!(ends(&inward).0, seen);
        assert_eq!(ends(&inward[28..]), ("10.0.0.9:4000".into(), "172.20.0.9:7".into()));
    }
    // An error from a router elsewhere, which keeps its own name.
    let inward = lab.inward(&error("198.51.100.1", "203.0.113.1", 11, 0, &sent));
    assert_eq!(ends(&inward).0, "198.51.100.1");
    // An error from inside about a reply.
    let answer = lab.inward(&udp("10.0.0.9:7", &external));
    let out = lab.out(&error("10.0.0.9", "172.20.0.9", 3, 3, &answer));
    assert_eq!(ends(&out).0, "203.0.113.1");
    assert_eq!(ends(&out).1, "10.0.0.9");
    assert_eq!(ends(&out[28..]), ("10.0.0.9:7".into(), external.clone()));
    // An error about a packet that was never sent.
    let forged = udp("172.20.0.8:7", "10.0.0.9:4000");
    let reason = lab.refused(Side::Inside, &error("10.0.0.9", "172.20.0.8", 3, 3, &forged));
    assert_eq!(reason, DropReason::IcmpNoSession);
    let by_its_real_name = udp("10.0.0.9:7", "10.0.0.5:4000");
    let reason =
        lab.refused(Side::Inside, &error("10.0.0.5", "172.20.0.9", 3, 3, &by_its_real_name));
    assert_eq!(reason, DropReason::IcmpNoSession);
}

/// Errors that the gateway makes quote the packet as it came.
#[test]
fn errors_of_our_own_quote_what_was_sent() {
    let mut lab = dns();
    let mut last = udp("10.0.0.5:4000", "198.51.100.7:53");
    set_ttl(&mut last, 1);
    assert_eq!(lab.refused(Side::Inside, &last), DropReason::TtlExceeded);
    let (_, side, bytes) = lab.sent.pop().unwrap();
    assert_eq!(side, Side::Inside);
    assert_eq!(ends(&bytes[28..]).1, "198.51.100.7:53");
}

#[test]
fn fragments_follow_their_first() {
    let mut lab = overlapping();
    let datagram = udp_with("10.0.0.9:4000", "172.20.0.9:7", &[7; 3000]);
    let parts = cut(&datagram, 99, 1400);
    let mut out = Vec::new();
    for n in [1, 0, 2] {
        if let (Verdict::Forward(side), bytes) = lab.pass(Side::Inside, &parts[n]) {
            assert_eq!(side, Side::Outside);
            out.push(bytes);
        }
        out.extend(lab.sent.drain(..).map(|(_, _, bytes)| bytes));
    }
    let whole = join(&out);
    let (external, to) = ends(&whole);
    assert_eq!((out.len(), &to[..]), (3, "10.0.0.9:7"));
    // The reply, from addresses that the inside network has as well.
    let parts = cut(&udp_with("10.0.0.9:7", &external, &[8; 3000]), 7, 1400);
    let mut inward = Vec::new();
    for n in [2, 0, 1] {
        if let (Verdict::Forward(side), bytes) = lab.pass(Side::Outside, &parts[n]) {
            assert_eq!(side, Side::Inside);
            inward.push(bytes);
        }
        inward.extend(lab.sent.drain(..).map(|(_, _, bytes)| bytes));
    }
    let whole = join(&inward);
    assert_eq!(ends(&whole), ("172.20.0.9:7".into(), "10.0.0.9:4000".into()));
    assert_eq!(inward.len(), 3);
}

/// A rule that leads to an external endpoint of the gateway: the packet is hairpinned.
#[test]
fn a_server_inside_is_reached_by_another_name() {
    let server = StaticMapping {
        protocol: None,
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(53)),
        external: (Ipv4Addr::new(203, 0, 113, 1), Some(1053)),
        ..StaticMapping::default()
    };
    let rules = vec![dnat("0.0.0.0/0", 53, "203.0.113.1:1053")];
    let mut lab = Lab::new(&Config { statics: vec![server], rules, ..config() });
    let asked = udp("10.0.0.5:4000", "198.51.100.7:53");
    let turned = lab.hairpin(&asked);
    let (sender, receiver) = ends(&turned);
    assert_eq!((address_of(&sender), &receiver[..]), ("203.0.113.1", "10.0.0.80:53"));
    let answer = lab.hairpin(&udp(&receiver, &sender));
    assert_eq!(ends(&answer), ("198.51.100.7:53".into(), "10.0.0.5:4000".into()));
    // Errors: from the server about the request, and from the host about the reply.
    let error_of_server = lab.hairpin(&error("10.0.0.80", "203.0.113.1", 3, 3, &turned));
    assert_eq!(ends(&error_of_server).0, "198.51.100.7");
    assert_eq!(ends(&error_of_server[28..]), ends(&asked));
    let error_of_host = lab.hairpin(&error("10.0.0.5", "198.51.100.7", 3, 3, &answer));
    assert_eq!(ends(&error_of_host).1, "10.0.0.80");
    assert_eq!(ends(&error_of_host[28..]), ("10.0.0.80:53".into(), sender));
    // The server itself addresses a name, which is its own.
    let own = lab.hairpin(&udp("10.0.0.80:53", "198.51.100.9:53"));
    assert_eq!(ends(&own), ("198.51.100.9:53".into(), "10.0.0.80:53".into()));
}

#[test]
fn an_own_address_may_be_translated() {
    let mut lab = dns();
    let own = "10.0.0.1:53";
    let external = ends(&lab.out(&udp("10.0.0.5:4000", own))).0;
    let answer = lab.inward(&udp("192.0.2.53:5353", &external));
    assert_eq!(ends(&answer).0, own);
    // The host refuses the packet, and tells the name that it knows.
    let out = lab.out(&error("10.0.0.5", "10.0.0.1", 3, 3, &answer));
    assert_eq!(ends(&out).1, "192.0.2.53");
    // All other packets to this address are for the gateway.
    let (verdict, _) = lab.pass(Side::Inside, &ping("10.0.0.5", "10.0.0.1", 1));
    assert_eq!(verdict, Verdict::Reply(Side::Inside));
    let other = udp("10.0.0.5:4000", "10.0.0.1:54");
    assert_eq!(lab.refused(Side::Inside, &other), DropReason::LocalUnsupported);
    // No redirection where a rule lets the packet pass untranslated.
    let bypass = Rule::new(Match::Source(prefix("10.0.0.5"), 0), RuleAction::Bypass);
    let rules = vec![dnat("0.0.0.0/0", 53, "192.0.2.53:5353"), bypass];
    let mut lab = Lab::new(&Config { rules, ..config() });
    let (verdict, bytes) = lab.pass(Side::Inside, &udp("10.0.0.5:4000", "198.51.100.7:53"));
    assert_eq!(verdict, Verdict::Forward(Side::Outside));
    assert_eq!(ends(&bytes), ("10.0.0.5:4000".into(), "198.51.100.7:53".into()));
    let own = udp("10.0.0.5:4000", own);
    assert_eq!(lab.refused(Side::Inside, &own), DropReason::LocalUnsupported);
}

#[test]
fn rules_that_drop_look_at_what_is_seen() {
    let drop =
        |destination| Rule::new(Match::Destination(prefix(destination), 0), RuleAction::Drop);
    let company = dnat("172.20.0.0/24", 0, "10.0.0.0/24");
    let mut lab = lab(vec![company.clone(), drop("172.20.0.9")]);
    let asked = udp("10.0.0.5:4000", "172.20.0.9:7");
    assert_eq!(lab.refused(Side::Inside, &asked), DropReason::Rule);
    let external = ends(&lab.out(&udp("10.0.0.5:4000", "172.20.0.8:7"))).0;
    assert_eq!(lab.refused(Side::Outside, &udp("10.0.0.9:7", &external)), DropReason::Rule);
    assert!(lab.passes(Side::Outside, &udp("10.0.0.8:7", &external)));
    let about = udp(&external, "10.0.0.8:7");
    let from = |sender| error(sender, "203.0.113.1", 3, 3, &about);
    assert_eq!(lab.refused(Side::Outside, &from("10.0.0.9")), DropReason::Rule);
    assert!(lab.passes(Side::Outside, &from("10.0.0.8")));
}

#[test]
fn sessions_keep_their_destination_when_rules_change() {
    let mut lab = dns();
    let asked = udp("10.0.0.5:4000", "198.51.100.7:53");
    let external = ends(&lab.out(&asked)).0;
    let plain = udp("10.0.0.6:4000", "198.51.100.7:53");
    let rules = RuleSet::new(&[dnat("0.0.0.0/0", 53, "192.0.2.54")]).unwrap();
    lab.engine.replace_rules(rules).unwrap();
    assert_eq!(ends(&lab.out(&asked)).1, "192.0.2.53:5353");
    assert_eq!(ends(&lab.out(&plain)).1, "192.0.2.54:53");
    // The wait leaves time for the check of all mappings.
    lab.wait_s(1.0);
    lab.engine.replace_rules(RuleSet::new(&[]).unwrap()).unwrap();
    assert_eq!(ends(&lab.out(&asked)).1, "192.0.2.53:5353");
    let answer = udp("192.0.2.53:5353", &external);
    assert_eq!(ends(&lab.inward(&answer)).0, "198.51.100.7:53");
    // New sessions follow the new rules. A session without another name stays so.
    let fresh = udp("10.0.0.5:4001", "198.51.100.7:53");
    assert_eq!(ends(&lab.out(&fresh)).1, "198.51.100.7:53");
    let rules = RuleSet::new(&[dnat("0.0.0.0/0", 53, "192.0.2.53")]).unwrap();
    lab.wait_s(1.0);
    lab.engine.replace_rules(rules).unwrap();
    assert_eq!(ends(&lab.out(&fresh)).1, "198.51.100.7:53");
}

#[test]
fn there_is_room_for_so_many() {
    let limits = Limits { twice_sessions: Some(2), ..Limits::default() };
    let rules = vec![dnat("198.51.100.0/24", 0, "192.0.2.0/24")];
    let mut lab = Lab::new(&Config { limits, rules, ..config() });
    let to = |host| udp("10.0.0.5:4000", &format!("198.51.100.{host}:7"));
    let external = ends(&lab.out(&to(1))).0;
    lab.out(&to(2));
    assert_eq!(lab.refused(Side::Inside, &to(3)), DropReason::SessionTableFull);
    let begun_outside = udp("192.0.2.4:9", &external);
    assert_eq!(lab.refused(Side::Outside, &begun_outside), DropReason::SessionTableFull);
    assert!(lab.passes(Side::Inside, &to(2)));
    assert!(lab.passes(Side::Outside, &udp("198.18.0.1:9", &external)));
    lab.wait_s(400.0);
    for host in [3, 4] {
        lab.out(&to(host));
    }
    assert_eq!(lab.refused(Side::Inside, &to(5)), DropReason::SessionTableFull);
}

#[test]
fn where_nothing_may_go_nothing_is_sent() {
    for (to, reason) in [
        ("224.0.0.1", DropReason::MartianDestination),
        ("192.0.2.255", DropReason::MartianDestination),
        ("192.0.2.254", DropReason::LocalUnsupported),
    ] {
        let mut lab = lab(vec![dnat("198.51.100.7", 0, to)]);
        assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:4000", REMOTE)), reason, "{to}");
        assert_eq!(lab.refused(Side::Inside, &ping("10.0.0.5", "198.51.100.7", 1)), reason);
        // A packet of a host that is no subscriber gets no redirection.
        let stranger = udp("8.8.8.8:4000", REMOTE);
        assert_eq!(lab.refused(Side::Inside, &stranger), DropReason::NotSubscriber);
    }
}
