//! Rules that drop, rules that name an address, priorities, and the replacement of rules while
//! packets flow.

mod common;

use common::*;
use natgate_engine::{
    Config, DropReason, Match, Pooling, Prefix, Rule, RuleAction, RuleSet, Side, StaticMapping,
    Verdict,
};
use natgate_wire::protocol;
use std::net::Ipv4Addr;

fn prefix(text: &str, len: u8) -> Prefix {
    Prefix::new(Ipv4Addr::from_bits(endpoint(text).0), len)
}

fn to(text: &str, len: u8, action: RuleAction) -> Rule {
    Rule::new(Match::Destination(prefix(text, len), 0), action)
}

fn by(text: &str, len: u8, action: RuleAction) -> Rule {
    Rule::new(Match::Source(prefix(text, len), 0), action)
}

fn lab(rules: Vec<Rule>) -> Lab {
    Lab::new(&Config { rules, ..config() })
}

fn replace(lab: &mut Lab, rules: &[Rule]) -> RuleSet {
    lab.wait_s(0.0);
    lab.engine.replace_rules(RuleSet::new(rules).unwrap()).unwrap()
}

#[test]
fn what_a_rule_drops_goes_neither_way_and_is_not_answered() {
    let mut lab = lab(vec![to("198.51.100.0", 24, RuleAction::Drop)]);
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:1", REMOTE)), DropReason::Rule);
    assert_eq!(lab.refused(Side::Inside, &ping("10.0.0.5", "198.51.100.9", 5)), DropReason::Rule);
    // A packet without translation, and a packet to a mapping that admits any remote endpoint.
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, "10.0.0.5:1")), DropReason::Rule);
    let external = lab.external_of(&udp("10.0.0.5:4000", "192.0.2.9:53"));
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, &external)), DropReason::Rule);
    lab.inward(&udp("192.0.2.10:7", &external));
    lab.wait_s(10.0);
    assert_eq!(lab.engine.counters().generated, 0);
    assert_eq!(lab.engine.counters().drops[DropReason::Rule as usize], 4);
}

#[test]
fn a_dropped_syn_from_outside_is_not_answered_after_six_seconds() {
    let mut lab = lab(vec![to("198.51.100.0", 24, RuleAction::Drop)]);
    let external = lab.external_of(&tcp("10.0.0.5:4000", "192.0.2.9:80", "S", 1, 0));
    let refused = lab.refused(Side::Outside, &tcp(REMOTE, &external, "S", 1, 0));
    assert_eq!(refused, DropReason::Rule);
    lab.wait_s(10.0);
    assert_eq!(lab.engine.counters().generated, 0);
}

#[test]
fn errors_about_what_is_dropped_are_dropped() {
    let mut lab = lab(vec![]);
    let sent = lab.out(&udp("10.0.0.5:4000", "192.0.2.9:53"));
    let external = ends(&sent).0;
    let about = error("192.0.2.200", address_of(&external), 3, 3, &sent);
    lab.inward(&about);
    // A rule by the session, by the host, and by the sender of the error.
    for rule in [
        to("192.0.2.9", 32, RuleAction::Drop),
        by("10.0.0.5", 32, RuleAction::Drop),
        to("192.0.2.200", 32, RuleAction::Drop),
    ] {
        replace(&mut lab, &[rule]);
        assert_eq!(lab.refused(Side::Outside, &about), DropReason::Rule);
    }
    let inside = error("10.0.0.7", "192.0.2.9", 3, 3, &udp("192.0.2.9:53", "10.0.0.5:4000"));
    replace(&mut lab, &[by("10.0.0.5", 32, RuleAction::Drop)]);
    assert_eq!(lab.refused(Side::Inside, &inside), DropReason::Rule);
}

#[test]
fn static_mappings_are_dropped_too_and_hairpins() {
    let whole = |internal: &str, external: &str| StaticMapping {
        protocol: None,
        internal: (internal.parse().unwrap(), None),
        external: (external.parse().unwrap(), None),
        ..StaticMapping::default()
    };
    let statics = vec![whole("10.0.0.80", "198.18.0.80")];
    let rules = vec![by("10.0.0.80", 32, RuleAction::Drop)];
    let mut lab = Lab::new(&Config { statics, rules, ..config() });
    let into = udp("192.0.2.9:5", "198.18.0.80:53");
    assert_eq!(lab.refused(Side::Outside, &into), DropReason::Rule);
    let turned = udp("10.0.0.5:4000", "198.18.0.80:53");
    assert_eq!(lab.refused(Side::Inside, &turned), DropReason::Rule);
}

#[test]
fn a_rule_with_an_address_decides_whatever_the_pooling() {
    for pooling in [Pooling::Paired, Pooling::SoftPaired, Pooling::Arbitrary] {
        let mine: Ipv4Addr = "203.0.113.9".parse().unwrap();
        let mut lab = Lab::new(&Config {
            pooling,
            pools: vec![pool("203.0.113.1", "203.0.113.20", (1024, 1099))],
            rules: vec![to("198.51.100.0", 24, RuleAction::SnatTo(0, mine))],
            ..config()
        });
        // The rule makes the first mappings. Mappings by the rule do not pair the subscriber with
        // the address.
        let mut others = std::collections::BTreeSet::new();
        for port in 0..30 {
            let external = lab.external_of(&udp(&format!("10.0.0.5:{}", 2000 + port), REMOTE));
            assert_eq!(address_of(&external), "203.0.113.9");
            let inner = format!("10.0.0.5:{}", 3000 + port);
            let external = lab.external_of(&udp(&inner, "192.0.2.9:53"));
            others.insert(address_of(&external).to_string());
        }
        match pooling {
            Pooling::Arbitrary => assert!(others.len() > 3, "{others:?}"),
            _ => assert_eq!(others.len(), 1),
        }
        let esp = ip(50, endpoint("10.0.0.5").0, endpoint("198.51.100.8").0, &[9; 40]);
        assert_eq!(ends(&lab.out(&esp)).0, "203.0.113.9");
        let esp = ip(50, endpoint("10.0.0.6").0, endpoint("198.51.100.8").0, &[9; 40]);
        assert_eq!(lab.refused(Side::Inside, &esp), DropReason::Ambiguous);
        // The address is full before the pool is.
        let more = (0..80).map(|port| udp(&format!("10.0.0.7:{}", 2000 + port), REMOTE));
        let passed = more.filter(|packet| lab.passes(Side::Inside, packet)).count();
        let used: u64 = 76 - 30 - u64::from(others.contains("203.0.113.9")) * 30;
        match pooling {
            Pooling::Arbitrary => assert!(passed <= 46),
            _ => assert_eq!(passed as u64, used),
        }
        lab.wait_s(600.0);
        assert_eq!(lab.engine.mappings().count(), 0);
    }
}

#[test]
fn priority_comes_before_the_longest_prefix() {
    let high = Rule { priority: 5, ..to("198.51.0.0", 16, RuleAction::Drop) };
    let low = Rule { priority: -5, ..to("0.0.0.0", 0, RuleAction::Bypass) };
    let mut lab = lab(vec![low, to("198.51.100.7", 32, RuleAction::Bypass), high]);
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:1", REMOTE)), DropReason::Rule);
    assert_eq!(ends(&lab.out(&udp("10.0.0.5:1", "192.0.2.9:5"))).0, "10.0.0.5:1");
}

#[test]
fn rules_are_replaced_and_mappings_stay() {
    let second = natgate_engine::PoolConfig {
        name: "second".into(),
        ..pool("203.0.113.64", "203.0.113.65", (1024, 65535))
    };
    let pools = vec![pool("203.0.113.1", "203.0.113.1", (1024, 65535)), second];
    let rules =
        vec![by("10.0.0.0", 8, RuleAction::Snat(1)), by("11.0.0.0", 8, RuleAction::Snat(1))];
    let mut lab = Lab::new(&Config { pools, rules, ..config() });
    let (old, stranger) = (udp("10.0.0.5:1", REMOTE), udp("11.0.0.5:1", REMOTE));
    let external = lab.external_of(&old);
    assert!(address_of(&external) >= "203.0.113.64");
    lab.out(&stranger);
    assert_eq!(replace(&mut lab, &[]).len(), 2);
    // The mapping keeps its address, and a new one has another. A host that is no subscriber any
    // more has lost its mapping.
    assert_eq!(lab.external_of(&old), external);
    assert_eq!(address_of(&lab.external_of(&udp("10.0.0.6:1", REMOTE))), "203.0.113.1");
    assert_eq!(lab.refused(Side::Inside, &stranger), DropReason::NotSubscriber);
    assert_eq!(ends(&lab.inward(&udp(REMOTE, &external))).1, "10.0.0.5:1");
    replace(&mut lab, &[to("198.51.100.0", 24, RuleAction::Bypass)]);
    assert_eq!(ends(&lab.out(&old)).0, "10.0.0.5:1");
    assert_eq!(lab.engine.mappings().filter(|one| one.id.protocol == protocol::UDP).count(), 2);
}

#[test]
fn rules_that_name_what_is_not_there_are_refused_and_change_nothing() {
    let mut lab = lab(vec![to("198.51.100.0", 24, RuleAction::Drop)]);
    let address = |text: &str| RuleAction::SnatTo(0, text.parse().unwrap());
    for (action, wanted) in [
        (RuleAction::Snat(1), "a rule names a pool that does not exist"),
        (RuleAction::SnatTo(1, Ipv4Addr::LOCALHOST), "a rule names a pool that does not exist"),
        (
            address("198.18.0.1"),
            "a rule takes 198.18.0.1 from pool default, which does not have it",
        ),
    ] {
        let rules = vec![by("10.0.0.0", 8, action)];
        let set = RuleSet::new(&rules).unwrap();
        assert_eq!(lab.engine.replace_rules(set).unwrap_err().message, wanted);
        let engine = natgate_engine::Engine::new(
            &Config { rules, ..config() },
            [0; 32],
            natgate_engine::Timestamp(0),
        );
        assert_eq!(engine.unwrap_err().message, wanted);
    }
    assert_eq!(
        lab.pass(Side::Inside, &udp("10.0.0.5:1", REMOTE)).0,
        Verdict::Drop(DropReason::Rule)
    );
}
