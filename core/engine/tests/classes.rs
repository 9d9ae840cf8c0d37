//! Policies for some subscribers: classes, totals, thresholds, and timeouts by port and by rule.

mod common;

use common::*;
use natgate_engine::{
    Allocation, BlockConfig, Change, Class, ClassLimits, Config, DropReason, Limits, Match,
    PortTimeout, Prefix, Resource, Rule, RuleAction, Side, TimeoutSet, Totals,
};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Subscribers 10.0.1.x are in the class.
fn class(limits: ClassLimits, total: Totals) -> Class {
    let subscribers = vec![Prefix::new(Ipv4Addr::new(10, 0, 1, 0), 24)];
    Class { name: "class".into(), subscribers, realm: None, limits, total }
}

fn with_class(limits: ClassLimits, total: Totals) -> Config {
    Config { classes: vec![class(limits, total)], ..config() }
}

/// A flow of a subscriber to the remote endpoint.
fn flow(subscriber: &str, number: u32) -> Vec<u8> {
    udp(&format!("{subscriber}:{}", 1024 + number), REMOTE)
}

/// Number of a subscriber's new flows that get a mapping.
fn made(lab: &mut Lab, subscriber: &str, flows: std::ops::Range<u32>) -> usize {
    flows.filter(|&number| lab.passes(Side::Inside, &flow(subscriber, number))).count()
}

/// Events since the last call, without events of mappings.
fn told(lab: &mut Lab) -> Vec<Change> {
    let events = std::mem::take(&mut lab.events).into_iter().map(|event| event.change);
    let of_mapping =
        |change: &Change| matches!(change, Change::MappingCreated(_) | Change::MappingRemoved(_));
    events.filter(|change| !of_mapping(change)).collect()
}

fn threshold(subscriber: &str, resource: Resource, percent: u8) -> Change {
    let subscriber = subscriber.parse().unwrap();
    Change::ThresholdReached { realm: 0, subscriber, resource, percent }
}

// ---- limits ----

#[test]
fn a_class_says_what_its_subscribers_may_have() {
    let limits = ClassLimits { udp_ports: Some(7), ..ClassLimits::default() };
    let mut config = with_class(limits, Totals::default());
    let inner = ClassLimits { udp_ports: Some(9), ..ClassLimits::default() };
    config.classes.push(Class {
        name: "inner".into(),
        realm: None,
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 1, 128), 25)],
        limits: inner,
        total: Totals::default(),
    });
    config.limits.udp_ports = 5;
    let mut lab = Lab::new(&config);
    for (subscriber, quota) in [("10.0.0.5", 5), ("10.0.1.5", 7), ("10.0.1.127", 7)] {
        assert_eq!(made(&mut lab, subscriber, 0..20), quota, "{subscriber}");
    }
    for subscriber in ["10.0.1.128", "10.0.1.254"] {
        assert_eq!(made(&mut lab, subscriber, 0..20), 9, "{subscriber}");
    }
    assert_eq!(made(&mut lab, "10.0.2.0", 0..20), 5);
    // A limit that the class does not give is the common one.
    let tcp_flow = |number: u32| tcp(&format!("10.0.1.5:{}", 2000 + number), REMOTE, "S", 1, 0);
    let made = (0..400).filter(|&number| lab.passes(Side::Inside, &tcp_flow(number))).count();
    assert_eq!(made, 400);
}

#[test]
fn sessions_of_a_subscriber_are_all_that_its_mappings_have() {
    let limits = ClassLimits {
        sessions_per_subscriber: Some(6),
        sessions_per_mapping: Some(4),
        ..ClassLimits::default()
    };
    let mut lab = Lab::new(&with_class(limits, Totals::default()));
    let to = |port: u16, remote: u16| {
        udp(&format!("10.0.1.5:{port}"), &format!("198.51.100.7:{remote}"))
    };
    for remote in 1..=4 {
        lab.out(&to(4000, remote));
    }
    // The mapping has its four sessions. Another mapping takes two more, up to the limit.
    assert_eq!(lab.refused(Side::Inside, &to(4000, 5)), DropReason::SessionLimit);
    lab.out(&to(4001, 1));
    lab.out(&to(4001, 2));
    assert_eq!(lab.refused(Side::Inside, &to(4001, 3)), DropReason::SessionLimit);
    assert!(lab.sent.is_empty(), "a session too many is not answered");
    assert_eq!(lab.refused(Side::Inside, &to(4002, 1)), DropReason::SessionLimit);
    assert_eq!(lab.sent.len(), 1, "a mapping too many is");
    let subscriber = Ipv4Addr::new(10, 0, 1, 5);
    let refused = Change::QuotaReached { realm: 0, subscriber, protocol: protocol::UDP };
    assert_eq!(told(&mut lab), [refused]);
    // After the end of these sessions there is room again.
    lab.wait_s(400.0);
    lab.out(&to(4002, 1));
}

#[test]
fn a_class_has_its_total_whoever_of_it_asks() {
    let total = Totals { udp_ports: Some(10), ..Totals::default() };
    let mut lab = Lab::new(&with_class(ClassLimits::default(), total));
    assert_eq!(made(&mut lab, "10.0.1.5", 0..7), 7);
    assert_eq!(made(&mut lab, "10.0.1.6", 0..7), 3);
    // A host without a record is refused for the same reason, and the event is about the class.
    assert_eq!(lab.refused(Side::Inside, &flow("10.0.1.7", 0)), DropReason::PortQuota);
    let full = Change::ClassQuotaReached { class: 0, protocol: protocol::UDP };
    assert_eq!(told(&mut lab), [full], "at most one a second");
    lab.wait_s(1.0);
    assert_eq!(lab.refused(Side::Inside, &flow("10.0.1.5", 9)), DropReason::PortQuota);
    assert_eq!(told(&mut lab), [full]);
    assert!(lab.passes(Side::Inside, &tcp("10.0.1.7:5000", REMOTE, "S", 1, 0)));
    assert_eq!(made(&mut lab, "10.0.0.5", 0..100), 100);
    lab.wait_s(400.0);
    assert_eq!(made(&mut lab, "10.0.1.7", 0..20), 10);
}

#[test]
fn a_class_has_its_rate_and_its_sessions() {
    let total =
        Totals { sessions: Some(30), new_mappings_per_second: Some(20), ..Totals::default() };
    let mut lab = Lab::new(&with_class(ClassLimits::default(), total));
    assert_eq!(made(&mut lab, "10.0.1.5", 0..15), 15);
    assert_eq!(made(&mut lab, "10.0.1.6", 0..15), 5);
    assert_eq!(lab.refused(Side::Inside, &flow("10.0.1.6", 90)), DropReason::MappingRate);
    lab.wait_s(0.5);
    assert_eq!(made(&mut lab, "10.0.1.6", 20..40), 10);
    lab.wait_s(1.0);
    assert_eq!(lab.refused(Side::Inside, &flow("10.0.1.6", 90)), DropReason::SessionLimit);
    let further = udp("10.0.1.5:1024", "192.0.2.77:5");
    assert_eq!(lab.refused(Side::Inside, &further), DropReason::SessionLimit);
    lab.out(&flow("10.0.1.5", 0));
}

/// A subscriber, or a class, beyond its limits does not change the service of others, whatever it
/// sends.
#[test]
fn who_is_at_a_limit_costs_others_nothing() {
    let limits = ClassLimits {
        udp_ports: Some(20),
        sessions_per_subscriber: Some(60),
        new_mappings_per_second: Some(30),
        ..ClassLimits::default()
    };
    let total = Totals {
        udp_ports: Some(70),
        sessions: Some(190),
        new_mappings_per_second: Some(100),
        ..Totals::default()
    };
    // Mappings of a neighbour in the class, and of one outside, from 40 flows a second each.
    let neighbours = |flood: bool| {
        let mut lab = Lab::new(&with_class(limits.clone(), total.clone()));
        let mut got = Vec::new();
        for second in 0..30 {
            if flood {
                for number in 0..300 {
                    let inner = format!("10.0.1.5:{}", 1024 + number % 50);
                    let remote = format!("198.51.100.9:{}", 1 + number);
                    lab.pass(Side::Inside, &udp(&inner, &remote));
                }
            }
            for number in 0..40 {
                let one = lab.passes(Side::Inside, &flow("10.0.1.6", second * 100 + number));
                let other = lab.passes(Side::Inside, &flow("10.0.0.7", second * 100 + number));
                got.push((one, other));
            }
            lab.wait_s(1.0);
        }
        got
    };
    let alone = neighbours(false);
    assert_eq!(alone.iter().filter(|(one, _)| *one).count(), 20, "its own quota");
    assert_eq!(alone.iter().filter(|(_, other)| *other).count(), 1200);
    assert_eq!(neighbours(true), alone);
    // A class with an exhausted total does not affect subscribers in no class.
    let mut lab = Lab::new(&with_class(limits, total));
    for subscriber in 1..=10 {
        made(&mut lab, &format!("10.0.1.{subscriber}"), 0..30);
        lab.wait_s(1.0);
    }
    let mappings = lab.engine.mappings();
    let of_class = mappings.filter(|one| one.id.internal.address.octets()[2] == 1).count();
    assert_eq!(of_class, 70);
    assert_eq!(made(&mut lab, "10.0.0.7", 0..40), 40);
}

// ---- thresholds ----

//= test rfc7422#section-2.2-alarms
#[test]
fn thresholds_are_told_before_the_limit() {
    let limits = Limits {
        udp_ports: 100,
        sessions_per_subscriber: Some(1000),
        thresholds: vec![80, 95],
        ..Limits::default()
    };
    let mut lab = Lab::new(&Config { limits, ..config() });
    assert_eq!(made(&mut lab, "10.0.0.5", 0..79), 79);
    assert_eq!(told(&mut lab), []);
    made(&mut lab, "10.0.0.5", 79..94);
    assert_eq!(told(&mut lab), [threshold("10.0.0.5", Resource::Udp, 80)]);
    // The next threshold is reached within the minute and reported after it.
    made(&mut lab, "10.0.0.5", 94..98);
    assert_eq!(told(&mut lab), []);
    lab.wait_s(60.0);
    made(&mut lab, "10.0.0.5", 98..99);
    assert_eq!(told(&mut lab), [threshold("10.0.0.5", Resource::Udp, 95)]);
    // Sessions have thresholds of their own.
    lab.wait_s(60.0);
    for number in 0..701 {
        let (inner, remote) = (1024 + number % 99, 1000 + number / 99);
        let packet = udp(&format!("10.0.0.5:{inner}"), &format!("192.0.2.77:{remote}"));
        lab.out(&packet);
    }
    assert_eq!(lab.engine.sessions().count(), 800);
    assert_eq!(told(&mut lab), [threshold("10.0.0.5", Resource::Sessions, 80)]);
    // The minute of another subscriber is separate.
    made(&mut lab, "10.0.0.6", 0..80);
    assert_eq!(told(&mut lab), [threshold("10.0.0.6", Resource::Udp, 80)]);
}

/// A subscriber whose use goes up and down around a threshold, a little or a lot, every few seconds
/// for an hour.
#[test]
fn oscillation_round_a_threshold_is_damped() {
    // Mappings live for two seconds: some stay, and `more` come and go.
    let oscillate = |stay: u32, more: u32, every: u64| {
        let mut config = config();
        config.limits = Limits { udp_ports: 100, thresholds: vec![80], ..Limits::default() };
        config.timeouts.udp = Duration::from_secs(2);
        let mut lab = Lab::new(&config);
        let mut events = Vec::new();
        for second in 0..3600_u32 {
            for number in 0..stay {
                lab.out(&flow("10.0.0.5", number));
            }
            if u64::from(second) % every == 0 {
                for number in 0..more {
                    lab.out(&flow("10.0.0.5", 1000 + number));
                }
            }
            let seen = lab.now;
            lab.wait_s(1.0);
            events.extend(told(&mut lab).into_iter().map(|change| (seen, change)));
        }
        let expected = threshold("10.0.0.5", Resource::Udp, 80);
        assert!(events.iter().all(|(_, change)| *change == expected), "{events:?}");
        events.into_iter().map(|(time, _)| time).collect::<Vec<_>>()
    };
    // Between 75 and 85 of 100: use never falls by ten points.
    assert_eq!(oscillate(75, 10, 5).len(), 1);
    // Between 60 and 85 every five seconds: reports at the largest rate, once a minute.
    let times = oscillate(60, 25, 5);
    assert_eq!(times.len(), 60);
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= Duration::from_secs(60)));
    // Between 60 and 85 every other minute: a report each time.
    assert_eq!(oscillate(60, 25, 120).len(), 30);
}

#[test]
fn a_class_tells_of_its_own_thresholds_and_of_its_totals() {
    let limits =
        ClassLimits { udp_ports: Some(10), thresholds: Some(vec![50]), ..ClassLimits::default() };
    let total = Totals { udp_ports: Some(16), thresholds: vec![75], ..Totals::default() };
    let mut config = with_class(limits, total);
    config.limits.thresholds = vec![90];
    let mut lab = Lab::new(&config);
    made(&mut lab, "10.0.1.5", 0..8);
    assert_eq!(told(&mut lab), [threshold("10.0.1.5", Resource::Udp, 50)]);
    made(&mut lab, "10.0.1.6", 0..4);
    let of_class = Change::ClassThresholdReached { class: 0, resource: Resource::Udp, percent: 75 };
    assert_eq!(told(&mut lab), [of_class]);
}

//= test rfc8158#section-4.6.5-rate
#[test]
fn a_pool_tells_how_far_it_is_used() {
    let mut config = config();
    config.pools = vec![pool("203.0.113.1", "203.0.113.1", (5000, 5099))];
    config.pools[0].thresholds = vec![80, 100];
    config.timeouts.udp = Duration::from_secs(10);
    let mut lab = Lab::new(&config);
    let reached = |resource, percent| Change::PoolThresholdReached { pool: 0, resource, percent };
    for subscriber in 0..79 {
        lab.out(&flow(&format!("10.0.0.{}", 5 + subscriber), 0));
    }
    assert_eq!(told(&mut lab), []);
    lab.out(&flow("10.0.0.200", 0));
    assert_eq!(told(&mut lab), [reached(Resource::Udp, 80)]);
    // Ports in hold-down are not available either: 80 of them and 20 used ones.
    lab.wait_s(70.0);
    assert_eq!(lab.engine.mappings().count(), 0);
    made(&mut lab, "10.0.0.5", 0..30);
    let exhausted = Change::PoolExhausted { pool: 0, protocol: protocol::UDP };
    assert_eq!(told(&mut lab), [reached(Resource::Udp, 100), exhausted]);
    // TCP has thresholds of its own.
    lab.wait_s(60.0);
    for number in 0..80 {
        lab.out(&tcp(&format!("10.0.0.5:{}", 1024 + number), REMOTE, "S", 1, 0));
    }
    assert_eq!(told(&mut lab), [reached(Resource::Tcp, 80)]);
}

#[test]
fn a_pool_of_blocks_tells_of_its_blocks() {
    let mut config = config();
    let mut pool = pool("203.0.113.1", "203.0.113.1", (5000, 5000 + 10 * 16 - 1));
    pool.allocation = Some(Allocation::Block(BlockConfig {
        size: 16,
        max_per_subscriber: 1,
        ..BlockConfig::default()
    }));
    pool.thresholds = vec![50];
    config.pools = vec![pool];
    let mut lab = Lab::new(&config);
    for subscriber in 0..4 {
        lab.out(&flow(&format!("10.0.0.{}", 5 + subscriber), 0));
    }
    told(&mut lab);
    let named = |change: &Change| matches!(change, Change::BlockAssigned(_));
    lab.out(&flow("10.0.0.100", 0));
    let events = told(&mut lab);
    let reached = Change::PoolThresholdReached { pool: 0, resource: Resource::Blocks, percent: 50 };
    assert!(events.len() == 2 && named(&events[0]) && events[1] == reached, "{events:?}");
}

// ---- timeouts ----

fn port_timeout(protocol: u8, ports: (u16, u16), seconds: u64) -> PortTimeout {
    PortTimeout { protocol, ports, idle: Duration::from_secs(seconds) }
}

//= test rfc4787#REQ-5a
#[test]
fn a_remote_port_has_a_timeout_of_its_own() {
    let port_timeouts = vec![
        port_timeout(protocol::UDP, (53, 53), 10),
        port_timeout(protocol::UDP, (5000, 5010), 500),
        port_timeout(protocol::TCP, (443, 443), 600),
    ];
    let mut lab = Lab::new(&Config { port_timeouts, ..config() });
    for (port, seconds) in
        [(53, 10.0), (54, 300.0), (443, 300.0), (4999, 300.0), (5000, 500.0), (5010, 500.0)]
    {
        let remote = format!("198.51.100.7:{port}");
        let packet = udp("10.0.0.5:4000", &remote);
        lab.out(&packet);
        assert_eq!(lab.lives_on(), seconds, "port {port}");
        // A packet of the session from either side restarts the time.
        for from in [Side::Inside, Side::Outside] {
            let external = lab.external_of(&packet);
            lab.wait_s(5.0);
            match from {
                Side::Inside => lab.out(&packet),
                Side::Outside => lab.inward(&udp(&remote, &external)),
            };
            assert_eq!(lab.lives_on(), seconds, "port {port}, refreshed from {from:?}");
        }
    }
}

#[test]
fn established_connections_go_by_the_port_and_others_do_not() {
    let port_timeouts = vec![port_timeout(protocol::TCP, (443, 443), 600)];
    let mut lab = Lab::new(&Config { port_timeouts, ..config() });
    for (port, seconds) in [(443, 600.0), (80, 7440.0)] {
        let (inner, remote) = ("10.0.0.5:4000", format!("198.51.100.7:{port}"));
        lab.out(&tcp(inner, &remote, "S", 1, 0));
        assert_eq!(lab.lives_on(), 240.0, "half open, to port {port}");
        let external = lab.external_of(&tcp(inner, &remote, "S", 1, 0));
        lab.inward(&tcp(&remote, &external, "SA", 1, 2));
        for _ in 0..3 {
            lab.out(&tcp(inner, &remote, "A", 2, 2));
            lab.wait_s(1.0);
        }
        // The established timeout, plus RFC 7857's closing timeout. One second has passed.
        assert_eq!(lab.lives_on(), seconds + 240.0 - 1.0, "to port {port}");
    }
}

/// Rules with sets of timeouts, by number.
fn with_sets(rules: &[(Match, u8)], sets: Vec<TimeoutSet>) -> Config {
    let rule = |&(matches, timeouts): &(Match, u8)| Rule {
        timeouts,
        ..Rule::new(matches, RuleAction::Snat(0))
    };
    Config { rules: rules.iter().map(rule).collect(), timeout_sets: sets, ..config() }
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn a_rule_gives_its_mappings_timeouts() {
    let by = |last, len| Match::Source(Prefix::new(Ipv4Addr::new(10, 0, 0, last), len), 0);
    let first = TimeoutSet { udp: seconds(20), ..TimeoutSet::default() };
    let second = TimeoutSet { icmp: seconds(30), tcp_closing: seconds(7), ..TimeoutSet::default() };
    let mut config = with_sets(&[(by(0, 25), 1), (by(128, 25), 2)], vec![first, second]);
    config.port_timeouts = vec![port_timeout(protocol::UDP, (53, 53), 10)];
    let mut lab = Lab::new(&config);
    // The rule goes before the port, and the port before the common timeout.
    for (inner, remote, lives) in [
        ("10.0.0.5:4000", "198.51.100.7:80", 20.0),
        ("10.0.0.5:4000", "198.51.100.7:53", 20.0),
        ("10.0.0.200:4000", "198.51.100.7:80", 300.0),
        ("10.0.0.200:4000", "198.51.100.7:53", 10.0),
    ] {
        lab.out(&udp(inner, remote));
        assert_eq!(lab.lives_on(), lives, "{inner} to {remote}");
        lab.out(&udp(inner, remote));
        lab.wait_s(4.0);
        lab.out(&udp(inner, remote));
        assert_eq!(lab.lives_on(), lives, "{inner} to {remote}, refreshed");
    }
    lab.out(&ping("10.0.0.5", "198.51.100.7", 9));
    assert_eq!(lab.lives_on(), 60.0);
    lab.out(&ping("10.0.0.200", "198.51.100.7", 9));
    assert_eq!(lab.lives_on(), 30.0);
    // A connection with a timeout of two hours has seven seconds after the change.
    let (inner, remote) = ("10.0.0.200:4000", "198.51.100.7:80");
    let external = lab.external_of(&tcp(inner, remote, "S", 1, 0));
    lab.inward(&tcp(remote, &external, "SA", 1, 2));
    assert_eq!(lab.lives_on(), 7440.0 + 7.0);
}

#[test]
fn the_first_packet_of_a_mapping_says_for_all_its_sessions() {
    let to = |last| Match::Destination(Prefix::new(Ipv4Addr::new(198, 51, 100, last), 32), 0);
    let sets = [20, 600].map(|time| TimeoutSet { udp: seconds(time), ..TimeoutSet::default() });
    let config = with_sets(&[(to(1), 1), (to(2), 2)], sets.to_vec());
    let (one, other) = ("198.51.100.1:80", "198.51.100.2:80");
    for (first, second, lives) in [(one, other, 20.0), (other, one, 600.0)] {
        let mut lab = Lab::new(&config);
        lab.out(&udp("10.0.0.5:4000", first));
        lab.wait_s(1.0);
        lab.out(&udp("10.0.0.5:4000", second));
        assert_eq!(lab.lives_on(), lives, "{first} first");
    }
    // Other rules, or none, do not change the mapping's timeouts.
    let mut lab = Lab::new(&config);
    lab.out(&udp("10.0.0.5:4000", one));
    let none = natgate_engine::RuleSet::new(&[]).unwrap();
    lab.engine.replace_rules(none).unwrap();
    lab.out(&udp("10.0.0.5:4000", one));
    assert_eq!(lab.lives_on(), 20.0);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let new = |config: &Config| {
        let engine = natgate_engine::Engine::new(config, [0; 32], natgate_engine::Timestamp(0));
        engine.map(drop).map_err(|error| error.message)
    };
    let refused = |config: Config, expected: &str| {
        let message = new(&config).expect_err(expected);
        assert!(message.contains(expected), "{message}");
    };
    let ports = |list: &[(u16, u16)]| Config {
        port_timeouts: list.iter().map(|&p| port_timeout(protocol::UDP, p, 10)).collect(),
        ..config()
    };
    assert_eq!(new(&ports(&[(1, 2), (3, 3)])), Ok(()));
    refused(ports(&[(3, 3), (1, 3)]), "port 3 of protocol 17 has two timeouts");
    let any = Match::Source(Prefix::new(Ipv4Addr::UNSPECIFIED, 0), 0);
    refused(with_sets(&[(any, 1)], vec![]), "set 1 of timeouts, which is not there");
    refused(
        with_sets(&[], vec![TimeoutSet::default(); 16]),
        "16 sets of rules: at most 255 and 15",
    );
    let short = TimeoutSet { udp: Some(Duration::from_millis(999)), ..TimeoutSet::default() };
    refused(with_sets(&[], vec![short]), "below one second");
    let one = class(ClassLimits::default(), Totals::default());
    refused(
        Config { classes: vec![one.clone(), one.clone()], ..config() },
        "10.0.1.0/24 is in two",
    );
    let nobody = Class { subscribers: vec![], ..one };
    refused(Config { classes: vec![nobody], ..config() }, "class class has no subscribers");
    for thresholds in [vec![9], vec![101], vec![80, 80], vec![95, 80], vec![10, 20, 30, 40, 50]] {
        let limits = Limits { thresholds, ..Limits::default() };
        refused(Config { limits, ..config() }, "limits.thresholds: give at most 4, ascending");
    }
}
