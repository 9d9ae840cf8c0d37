//! RFC 6888: duties of a carrier-grade NAT to its subscribers and its operator.

use crate::common::*;
use crate::exchange::*;
use natgate_engine::{
    AddressRange, Behavior, Change, Config, DropReason, Event, Match, Pooling, Prefix, Rule,
    RuleAction, Side, StaticMapping, Verdict,
};
use natgate_wire::protocol;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const GRE: u8 = 47;
/// The protocols with limits of their own on mappings.
const LIMITED: [u8; 3] = [protocol::UDP, protocol::TCP, protocol::ICMP];

/// A subscriber's first packet of a protocol, from a port (or with an identifier) of its own.
fn first(protocol: u8, host: &str, port: u16) -> Vec<u8> {
    match protocol {
        protocol::UDP => udp(&format!("{host}:{port}"), REMOTE),
        protocol::TCP => tcp(&format!("{host}:{port}"), REMOTE, "S", 1, 0),
        protocol::DCCP => dccp(&format!("{host}:{port}"), REMOTE, 0),
        protocol::ICMP => ping(host, REMOTE_HOST, port),
        _ => ip(protocol, endpoint(host).0, endpoint(REMOTE_HOST).0, b"tunnel"),
    }
}

fn is_out(verdict: Verdict) -> bool {
    verdict == Verdict::Forward(Side::Outside)
}

/// A pool of addresses that are not consecutive.
fn scattered() -> Config {
    let single = |text: &str| {
        let address = text.parse().unwrap();
        AddressRange { first: address, last: address }
    };
    let mut pool = pool("203.0.113.8", "203.0.113.15", (1024, 65535));
    pool.addresses.extend([single("198.18.7.1"), single("16.0.0.3"), single("203.0.113.1")]);
    Config { pools: vec![pool], ..config() }
}

// ---- addresses ----

//= test rfc6888#REQ-1
//= test rfc6888#REQ-1a
//= test rfc6888#REQ-1b
//= test rfc6888#REQ-1c
//= test rfc6888#REQ-1d
#[test]
fn req_1_each_transport_protocol_passes_by_its_own_requirements() {
    for protocol in PROTOCOLS {
        let exchange = Exchange::new(protocol);
        assert_eq!(source(&exchange.left), EXTERNAL);
        assert_eq!(exchange.received[16..20], exchange.sent[12..16]);
    }
}

//= test rfc6888#REQ-2
#[test]
fn req_2_all_of_a_subscribers_mappings_have_one_external_address_by_default() {
    assert_eq!(Config::default().pooling, Pooling::Paired);
    let mut lab = Lab::new(&scattered());
    let mut addresses = BTreeSet::new();
    for host in 5..65 {
        let host = format!("10.0.0.{host}");
        let mut of_host = BTreeSet::new();
        for protocol in [protocol::UDP, protocol::TCP, protocol::DCCP, protocol::ICMP, GRE] {
            for port in [2000, 3001, 4002] {
                of_host.insert(source(&lab.out(&first(protocol, &host, port))));
                // For portless protocols and one remote host, each address serves one subscriber.
                if protocol == GRE {
                    lab.wait_s(301.0);
                    break;
                }
            }
        }
        assert_eq!(of_host.len(), 1, "{host}: {of_host:?}");
        addresses.extend(of_host);
    }
    assert!(addresses.len() > 3, "subscribers are spread over the pool: {addresses:?}");
}

//= test rfc6888#REQ-3
#[test]
fn req_3_external_addresses_need_not_follow_each_other() {
    let mut lab = Lab::new(&Config { pooling: Pooling::Arbitrary, ..scattered() });
    let mut used = BTreeSet::new();
    for n in 0..400_u32 {
        let inner = format!("10.0.{}.{}", n / 200, 5 + n % 200);
        let left = lab.out(&first(protocol::UDP, &inner, 4000));
        let (external, remote) = ends(&left);
        let back = lab.inward(&udp(&remote, &external));
        assert_eq!(ends(&back).1, format!("{inner}:4000"));
        used.insert(source(&left));
    }
    let all = (8..=15).map(|host| format!("203.0.113.{host}"));
    let all: BTreeSet<String> =
        all.chain(["198.18.7.1", "16.0.0.3", "203.0.113.1"].map(String::from)).collect();
    assert_eq!(used, all);
}

// ---- limits ----

/// Number of mappings of a protocol that a subscriber can make.
fn mappings_made(lab: &mut Lab, protocol: u8, host: &str) -> usize {
    (2000..2100)
        .filter(|port| is_out(lab.pass(Side::Inside, &first(protocol, host, *port)).0))
        .count()
}

fn limited(tcp: u32, udp: u32, icmp: u32) -> Config {
    let mut limited = config();
    limited.limits.tcp_ports = tcp;
    limited.limits.udp_ports = udp;
    limited.limits.icmp_ports = icmp;
    limited
}

//= test rfc6888#REQ-4
#[test]
fn req_4_a_subscriber_gets_so_many_external_ports_and_no_more() {
    let mut lab = Lab::new(&limited(20, 20, 20));
    for protocol in LIMITED {
        assert_eq!(mappings_made(&mut lab, protocol, HOST), 20);
        assert_eq!(lab.refused(Side::Inside, &first(protocol, HOST, 9)), DropReason::PortQuota);
        // The mappings of one subscriber do not reduce the limit of another subscriber.
        assert_eq!(mappings_made(&mut lab, protocol, "10.0.0.6"), 20);
    }
    // Removed mappings do not count.
    lab.wait_s(301.0);
    assert_eq!(mappings_made(&mut lab, protocol::UDP, HOST), 20);
}

//= test rfc6888#REQ-4a
//= test rfc6888#REQ-4b
#[test]
fn req_4b_the_number_of_ports_is_set_for_each_protocol() {
    let mut lab = Lab::new(&limited(7, 11, 13));
    for (protocol, ports) in [(protocol::TCP, 7), (protocol::UDP, 11), (protocol::ICMP, 13)] {
        assert_eq!(mappings_made(&mut lab, protocol, HOST), ports);
    }
}

//= test rfc6888#REQ-4c
//= test rfc6888#REQ-5b
#[test]
fn req_4c_the_rate_of_new_mappings_is_limited_for_each_subscriber() {
    for per_second in [10, 40] {
        let mut limited = config();
        limited.limits.new_mappings_per_second = per_second;
        let mut lab = Lab::new(&limited);
        let made = |lab: &mut Lab, host: &str| mappings_made(lab, protocol::UDP, host);
        assert_eq!(made(&mut lab, HOST), per_second as usize);
        let next = first(protocol::UDP, HOST, 5000);
        assert_eq!(lab.refused(Side::Inside, &next), DropReason::MappingRate);
        assert_eq!(made(&mut lab, "10.0.0.6"), per_second as usize);
        lab.wait_s(1.0);
        lab.out(&next);
    }
}

//= test rfc6888#REQ-5
//= test rfc6888#REQ-5a
#[test]
fn req_5_state_is_limited_for_each_mapping_and_each_subscriber() {
    for most in [3, 9] {
        let mut limited = limited(2, 2, 2);
        limited.limits.sessions_per_mapping = most;
        let mut lab = Lab::new(&limited);
        for mapping in 0..2 {
            let inner = format!("10.0.0.5:{}", 4000 + mapping);
            for remote in 0..most {
                lab.out(&udp(&inner, &format!("198.51.100.7:{}", 1000 + remote)));
            }
            let more = udp(&inner, "198.51.100.7:99");
            assert_eq!(lab.refused(Side::Inside, &more), DropReason::SessionLimit);
            // The limit applies from outside too: otherwise remote hosts could fill the table.
            let external = lab.external_of(&udp(&inner, "198.51.100.7:1000"));
            let more = udp("198.51.100.7:99", &external);
            assert_eq!(lab.refused(Side::Outside, &more), DropReason::SessionLimit);
        }
        let third = udp("10.0.0.5:4002", REMOTE);
        assert_eq!(lab.refused(Side::Inside, &third), DropReason::PortQuota);
        assert_eq!(lab.engine.sessions().count(), 2 * usize::from(most));
    }
}

// ---- bypass, filtering ----

//= test rfc6888#REQ-6
#[test]
fn req_6_translation_can_be_turned_off_by_destination() {
    let prefix = Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24);
    for (port, untranslated, translated) in [
        (0, ["198.51.100.7:80", "198.51.100.200:443"], "198.51.101.7:80"),
        (80, ["198.51.100.7:80", "198.51.100.200:80"], "198.51.100.7:81"),
    ] {
        let matches = Match::Destination(prefix, port);
        let rules = vec![Rule::new(matches, RuleAction::Bypass)];
        let mut lab = Lab::new(&Config { rules, ..config() });
        for to in untranslated {
            for (out, back) in [
                (udp("10.0.0.5:4000", to), udp(to, "10.0.0.5:4000")),
                (tcp("10.0.0.5:4000", to, "S", 1, 0), tcp(to, "10.0.0.5:4000", "SA", 1, 2)),
            ] {
                // As with any router, only the TTL decreases.
                assert_eq!(lab.out(&out), with_ttl(&out, 63));
                assert_eq!(lab.inward(&back), with_ttl(&back, 63));
            }
        }
        assert_eq!(lab.engine.mappings().count(), 0);
        assert!(lab.external_of(&udp("10.0.0.5:4000", translated)).starts_with(EXTERNAL));
    }
}

//= test rfc6888#REQ-7
#[test]
fn req_7_anybody_may_send_to_a_mapping_by_default() {
    assert_eq!(Config::default().filtering, Behavior::EndpointIndependent);
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    for remote in ["198.51.100.7:81", "192.0.2.77:4000"] {
        assert_eq!(ends(&lab.inward(&udp(remote, &external))).1, "10.0.0.5:4000");
    }
    let external = lab.external_of(&tcp("10.0.0.5:4000", REMOTE, "S", 1, 0));
    lab.inward(&tcp("192.0.2.77:9", &external, "S", 1, 0));
}

// ---- freed ports ----

/// A pool of one port. Its mapping was removed after `lifetime` seconds.
fn given_back(protocol: u8, hold_down: u64, lifetime: f64) -> Lab {
    let mut single = Config {
        pools: vec![pool(EXTERNAL, EXTERNAL, (4000, 4000))],
        port_parity: false,
        ..config()
    };
    single.timeouts.hold_down = std::time::Duration::from_secs(hold_down);
    let mut lab = Lab::new(&single);
    lab.out(&first(protocol, HOST, 4000));
    lab.wait_s(lifetime);
    assert_eq!(lab.removed().len(), 1);
    lab
}

//= test rfc6888#REQ-8
//= test rfc6888#REQ-8-configurable
#[test]
fn req_8_a_port_rests_before_another_gets_it() {
    for hold_down in [120, 200] {
        for (protocol, lifetime) in [(protocol::UDP, 300.0), (protocol::ICMP, 60.0)] {
            let mut lab = given_back(protocol, hold_down, lifetime);
            let next = first(protocol, "10.0.0.6", 4000);
            assert_eq!(lab.refused(Side::Inside, &next), DropReason::PoolExhausted);
            lab.wait_s(hold_down as f64 - 0.2);
            assert_eq!(lab.refused(Side::Inside, &next), DropReason::PoolExhausted);
            // The former owner does not get the port sooner: its remote hosts may still send to the
            // old mapping.
            assert_eq!(
                lab.refused(Side::Inside, &first(protocol, HOST, 4000)),
                DropReason::PoolExhausted
            );
            lab.wait_s(0.4);
            lab.out(&next);
        }
    }
}

//= test rfc6888#REQ-8a
#[test]
fn req_8a_a_tcp_port_is_free_when_its_connections_have_ended() {
    let mut lab = given_back(protocol::TCP, 120, 240.2);
    lab.out(&first(protocol::TCP, "10.0.0.6", 4000));
}

//= test rfc6888#REQ-8b
#[test]
fn req_8b_a_static_port_never_rests() {
    let mapping = StaticMapping {
        protocol: Some(protocol::UDP),
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(53)),
        external: (Ipv4Addr::new(203, 0, 113, 1), Some(5353)),
        ..StaticMapping::default()
    };
    let mut lab = Lab::new(&Config { statics: vec![mapping], ..config() });
    for _ in 0..3 {
        let received = lab.inward(&udp(REMOTE, "203.0.113.1:5353"));
        assert_eq!(ends(&received).1, "10.0.0.80:53");
        lab.wait_s(301.0);
    }
}

// ---- refusal ----

/// Each reason without a mapping: a gateway, and a packet that the gateway must drop.
fn refusals() -> Vec<(&'static str, Lab, Vec<u8>, DropReason)> {
    let filled = |config: &Config, packets: &[Vec<u8>]| {
        let mut lab = Lab::new(config);
        packets.iter().for_each(|packet| drop(lab.out(packet)));
        lab
    };
    let two = [first(protocol::UDP, HOST, 2000), first(protocol::UDP, HOST, 2002)];
    let next = first(protocol::UDP, HOST, 2004);
    let mut rate = config();
    rate.limits.new_mappings_per_second = 2;
    let mut table = config();
    table.limits.mappings = Some(2);
    let few = Config {
        pools: vec![pool(EXTERNAL, EXTERNAL, (4000, 4001))],
        port_parity: false,
        ..config()
    };
    vec![
        ("quota", filled(&limited(2, 2, 2), &two), next.clone(), DropReason::PortQuota),
        ("rate", filled(&rate, &two), next.clone(), DropReason::MappingRate),
        ("table", filled(&table, &two), next.clone(), DropReason::MappingTableFull),
        ("ports", filled(&few, &two), next, DropReason::PoolExhausted),
    ]
}

//= test rfc6888#REQ-11a
#[test]
fn req_11a_what_can_have_no_mapping_is_dropped() {
    for (name, mut lab, packet, reason) in refusals() {
        assert_eq!(lab.refused(Side::Inside, &packet), reason, "{name}");
    }
}

//= test rfc5508#REQ-8
//= test rfc6888#REQ-11b
#[test]
fn req_11b_its_sender_is_told_that_the_host_is_unreachable() {
    for (name, mut lab, packet, _) in refusals() {
        lab.pass(Side::Inside, &packet);
        let (_, side, told) = lab.sent.pop().expect(name);
        assert_eq!((side, told[20], told[21]), (Side::Inside, 3, 1), "{name}");
        assert_eq!(ends(&told), (INSIDE.to_string(), HOST.into()));
        assert_eq!(told[28..], packet);
    }
}

//= test rfc6888#REQ-11c
#[test]
fn req_11c_the_operator_is_told_when_ports_run_out() {
    for (name, mut lab, packet, reason) in refusals() {
        lab.events.clear();
        for _ in 0..10 {
            lab.pass(Side::Inside, &packet);
        }
        let told: Vec<Change> = lab.events.iter().map(|event: &Event| event.change).collect();
        let subscriber = Ipv4Addr::new(10, 0, 0, 5);
        let expected = match reason {
            DropReason::PortQuota | DropReason::MappingRate => {
                vec![Change::QuotaReached { realm: 0, subscriber, protocol: protocol::UDP }]
            }
            DropReason::PoolExhausted => {
                vec![Change::PoolExhausted { pool: 0, protocol: protocol::UDP }]
            }
            // A counter shows the size of the table.
            _ => vec![],
        };
        assert_eq!(told, expected, "{name}: once, however often it happens in a second");
    }
}

//= test rfc6888#REQ-11d
#[test]
fn req_11d_nobody_loses_a_mapping_to_make_room() {
    for (name, mut lab, packet, _) in refusals() {
        let mut before: Vec<_> = lab.engine.mappings().collect();
        for _ in 0..1000 {
            assert!(!is_out(lab.pass(Side::Inside, &packet).0));
        }
        let mut after: Vec<_> = lab.engine.mappings().collect();
        before.sort_by_key(|mapping| mapping.id.internal);
        after.sort_by_key(|mapping| mapping.id.internal);
        assert_eq!(before, after, "{name}");
        for port in [2000, 2002] {
            lab.out(&first(protocol::UDP, HOST, port));
        }
    }
}

// ---- log and ports ----

//= test rfc6888#REQ-12
#[test]
fn req_12_events_do_not_name_the_remote() {
    let mut lab = Lab::new(&config());
    let mut other = Lab::new(&config());
    for (lab, remote) in [(&mut lab, "198.51.100.7:80"), (&mut other, "192.0.2.77:9999")] {
        for protocol in LIMITED {
            let address = endpoint_address(remote);
            match protocol {
                protocol::UDP => lab.out(&udp("10.0.0.5:4000", remote)),
                protocol::TCP => lab.out(&tcp("10.0.0.5:4000", remote, "S", 1, 0)),
                _ => lab.out(&ping(HOST, &address, 77)),
            };
        }
        lab.wait_s(1000.0);
    }
    assert_eq!(lab.events.len(), 6);
    assert_eq!(lab.events, other.events, "whoever the remote was");
}

fn endpoint_address(text: &str) -> String {
    text.split(':').next().unwrap().to_string()
}

//= test rfc6888#REQ-13
#[test]
fn req_13_every_port_of_the_pool_can_be_used() {
    for pooling in [Pooling::Paired, Pooling::SoftPaired, Pooling::Arbitrary] {
        for protocol in LIMITED {
            let pools = vec![pool("203.0.113.1", "203.0.113.2", (60_000, 60_099))];
            let mut lab = Lab::new(&Config { pools, pooling, port_parity: false, ..config() });
            let mut used = BTreeSet::new();
            for n in 0..200 {
                let host = format!("10.0.{}.{}", n / 100, 5 + n % 100);
                let left = lab.out(&first(protocol, &host, 4000));
                let at = if protocol == protocol::ICMP { 24 } else { 20 };
                assert!(used.insert((source(&left), left[at], left[at + 1])));
            }
            let more = first(protocol, "10.0.9.9", 4000);
            assert_eq!(lab.refused(Side::Inside, &more), DropReason::PoolExhausted);
        }
    }
}

//= test rfc6888#REQ-15
#[test]
fn req_15_a_port_tells_nothing_of_the_next() {
    let guesses = |seed| {
        let mut lab = Lab::seeded(&config(), seed);
        let ports: Vec<u16> = (0..500)
            .map(|n| {
                let left = lab.out(&first(protocol::TCP, HOST, 2000 + n));
                u16::from_be_bytes([left[20], left[21]])
            })
            .collect();
        ports
    };
    let (one, other) = (guesses(1), guesses(2));
    let near = |pairs: &mut dyn Iterator<Item = (u16, u16)>| {
        pairs.filter(|(one, other)| one.abs_diff(*other) < 64).count()
    };
    // One in five hundred pairs is that near by chance.
    assert!(near(&mut one.windows(2).map(|pair| (pair[0], pair[1]))) <= 5);
    assert!(near(&mut one.iter().copied().zip(other.iter().copied())) <= 5);
    assert!(near(&mut one.iter().copied().zip(2000..)) <= 5);
}
