//! A realm of numbers: hosts with equal upper bits are one subscriber, and a number is no address.
//! Two such realms have numbers of their own.

mod common;

use common::{Lab, config, ends, udp};
use natgate_engine::{
    Allocation, BlockConfig, Change, Class, ClassLimits, Config, DropReason, Engine, Packet,
    Prefix, RealmConfig, Side, Timestamp, Verdict,
};
use std::net::Ipv4Addr;

const NUMBERS: u16 = 1;
const SERVER: &str = "198.51.100.1:80";

fn numbers(host_bits: u8) -> RealmConfig {
    RealmConfig {
        name: String::from("numbers"),
        subscribers: vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)],
        host_bits: Some(host_bits),
        ..RealmConfig::default()
    }
}

fn with(config: Config) -> Lab {
    Lab::new(&Config { realms: vec![numbers(8)], ..config })
}

fn pass(lab: &mut Lab, from: Side, bytes: &[u8]) -> (Verdict, Vec<u8>) {
    let realm = if from == Side::Inside { NUMBERS } else { 0 };
    let (verdict, _, bytes) = pass_in(lab, (from, realm), bytes);
    (verdict, bytes)
}

/// Has the engine take a packet of a realm. Returns the realm that it goes to, too.
fn pass_in(lab: &mut Lab, (from, realm): (Side, u16), bytes: &[u8]) -> (Verdict, u16, Vec<u8>) {
    let mut buffer = bytes.to_vec();
    let mut packets = [Packet::new(&mut buffer, 0).in_realm(realm)];
    let mut verdicts = [Verdict::Held];
    lab.engine.process(lab.now, from, &mut packets, &mut verdicts);
    (verdicts[0], packets[0].realm(), packets[0].bytes().to_vec())
}

fn out(lab: &mut Lab, source: &str) -> Result<String, DropReason> {
    out_of(lab, NUMBERS, source)
}

fn out_of(lab: &mut Lab, realm: u16, source: &str) -> Result<String, DropReason> {
    match pass_in(lab, (Side::Inside, realm), &udp(source, SERVER)) {
        (Verdict::Forward(Side::Outside), _, bytes) => Ok(ends(&bytes).0),
        (Verdict::Drop(reason), ..) => Err(reason),
        (other, ..) => panic!("{other:?}"),
    }
}

/// A realm of addresses, and behind it two realms of numbers. Subscribers of the first have 16
/// hosts, those of the second 256. Hosts of each realm may reach those of all others.
fn with_two(config: Config) -> Lab {
    let red = RealmConfig {
        name: String::from("red"),
        subscribers: vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)],
        hairpin_to: vec![0, 2, 3],
        ..RealmConfig::default()
    };
    let second = RealmConfig { name: String::from("second"), ..numbers(8) };
    let realms = vec![
        red,
        RealmConfig { hairpin_to: vec![0, 1, 3], ..numbers(4) },
        RealmConfig { hairpin_to: vec![0, 1, 2], ..second },
    ];
    Lab::new(&Config { realms, hairpin_to: vec![1, 2, 3], ..config })
}

#[test]
fn hosts_of_two_realms_with_one_number_have_nothing_in_common() {
    let mut settings = config();
    settings.limits.udp_ports = 2;
    let mut lab = with_two(settings);
    let all = [1, 2, 3].map(|realm| out_of(&mut lab, realm, "1.0.1.1:4000").unwrap());
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    for (realm, external) in (1..).zip(&all) {
        let inward = udp(SERVER, external);
        let (verdict, to, bytes) = pass_in(&mut lab, (Side::Outside, 0), &inward);
        assert_eq!((verdict, to), (Verdict::Forward(Side::Inside), realm));
        assert_eq!(ends(&bytes).1, "1.0.1.1:4000");
    }
    // A subscriber has 16 numbers in the first realm of numbers, 256 in the second.
    for realm in [2, 3] {
        out_of(&mut lab, realm, "1.0.1.15:4000").unwrap();
        assert_eq!(out_of(&mut lab, realm, "1.0.1.2:4000"), Err(DropReason::PortQuota));
    }
    assert!(out_of(&mut lab, 2, "1.0.1.16:4000").is_ok());
    assert_eq!(out_of(&mut lab, 3, "1.0.1.16:4000"), Err(DropReason::PortQuota));
    assert!(out_of(&mut lab, 1, "1.0.1.15:4000").is_ok(), "an address is a subscriber");
    assert_eq!(lab.engine.totals().subscribers, 5);
}

#[test]
fn blocks_of_two_realms_of_numbers_are_of_their_subscribers() {
    let mut settings = config();
    settings.allocation = Allocation::Block(BlockConfig {
        size: 16,
        max_per_subscriber: 1,
        ..BlockConfig::default()
    });
    let mut lab = with_two(settings);
    for (realm, other) in [(2, "1.0.1.15:4000"), (3, "1.0.1.255:4000")] {
        for source in ["1.0.1.1:4000", other] {
            out_of(&mut lab, realm, source).unwrap();
        }
        assert!(lab.engine.has_blocks(realm, Ipv4Addr::new(1, 0, 1, 9)));
    }
    let mut blocks = Vec::new();
    while let Some(event) = lab.engine.poll_event() {
        if let Change::BlockAssigned(block) = event.change {
            blocks.push((block.realm, block.subscriber));
        }
    }
    let first = Ipv4Addr::new(1, 0, 1, 0);
    assert_eq!(blocks, [(2, first), (3, first)]);
    assert!(!lab.engine.has_blocks(2, Ipv4Addr::new(1, 0, 1, 16)));
    assert!(lab.engine.has_blocks(3, Ipv4Addr::new(1, 0, 1, 16)));
}

#[test]
fn packets_turn_from_one_realm_of_numbers_to_the_other() {
    let mut lab = with_two(config());
    let first = out_of(&mut lab, 2, "1.0.1.1:4000").unwrap();
    let second = out_of(&mut lab, 3, "1.0.1.1:4000").unwrap();
    for (from, own, to, external) in [(2, &first, 3, &second), (3, &second, 2, &first)] {
        let (verdict, realm, bytes) =
            pass_in(&mut lab, (Side::Inside, from), &udp("1.0.1.1:4000", external));
        assert_eq!((verdict, realm), (Verdict::Forward(Side::Inside), to));
        assert_eq!(ends(&bytes), (own.clone(), String::from("1.0.1.1:4000")));
    }
}

#[test]
fn hosts_of_one_subscriber_share_its_quota_and_keep_their_mappings_apart() {
    let mut settings = config();
    settings.limits.udp_ports = 3;
    let mut lab = with(settings);
    let first = out(&mut lab, "1.0.1.1:4000").unwrap();
    let second = out(&mut lab, "1.0.1.2:4000").unwrap();
    assert_ne!(first, second);
    assert_eq!(out(&mut lab, "1.0.1.1:4000").unwrap(), first);
    out(&mut lab, "1.0.1.255:4000").unwrap();
    assert_eq!(out(&mut lab, "1.0.1.4:4000"), Err(DropReason::PortQuota));
    out(&mut lab, "1.0.2.4:4000").unwrap();
    assert_eq!(lab.engine.totals().subscribers, 2);

    let (verdict, bytes) = pass(&mut lab, Side::Outside, &udp(SERVER, &second));
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    assert_eq!(ends(&bytes).1, "1.0.1.2:4000");
}

#[test]
fn a_record_goes_with_the_last_mapping_of_any_host() {
    let mut lab = with(config());
    out(&mut lab, "1.0.1.1:4000").unwrap();
    out(&mut lab, "1.0.1.2:4000").unwrap();
    assert!(lab.engine.knows(NUMBERS, Ipv4Addr::new(1, 0, 1, 77)));
    assert!(!lab.engine.knows(NUMBERS, Ipv4Addr::new(1, 0, 2, 1)));
    while lab.engine.advance(Timestamp(lab.now.0 + 3600 * 1_000_000_000)) {}
    assert_eq!(lab.engine.totals().subscribers, 0);
    assert!(!lab.engine.knows(NUMBERS, Ipv4Addr::new(1, 0, 1, 1)));
}

#[test]
fn hosts_of_one_subscriber_share_its_blocks_and_its_rate() {
    let mut settings = config();
    settings.allocation = Allocation::Block(BlockConfig {
        size: 16,
        max_per_subscriber: 1,
        ..BlockConfig::default()
    });
    settings.limits.new_mappings_per_second = 20;
    let mut lab = with(settings);
    for host in 0..16 {
        out(&mut lab, &format!("1.0.1.{host}:4000")).unwrap();
    }
    assert_eq!(out(&mut lab, "1.0.1.16:4000"), Err(DropReason::PortQuota));
    let mut blocks = Vec::new();
    while let Some(event) = lab.engine.poll_event() {
        if let Change::BlockAssigned(block) = event.change {
            blocks.push(block.subscriber);
        }
    }
    assert_eq!(blocks, [Ipv4Addr::new(1, 0, 1, 0)]);
    out(&mut lab, "1.0.2.1:4000").unwrap();

    let mut settings = config();
    settings.limits.new_mappings_per_second = 4;
    let mut lab = with(settings);
    for host in 0..4 {
        out(&mut lab, &format!("1.0.1.{host}:4000")).unwrap();
    }
    assert_eq!(out(&mut lab, "1.0.1.5:4000"), Err(DropReason::MappingRate));
}

#[test]
fn a_number_is_no_address() {
    let mut lab = with(config());
    let external = lab.engine.config().pools[0].addresses[0].first;
    for source in [String::from("198.51.100.1:80"), format!("{external}:9000")] {
        for _ in 0..2 {
            out(&mut lab, &source).unwrap();
        }
    }
    // A host of realm 0 may have neither.
    assert_eq!(lab.pass(Side::Inside, &udp(SERVER, SERVER)).0, Verdict::Drop(DropReason::Land));
}

#[test]
fn classes_and_limits_of_realms_of_numbers() {
    let mut settings = config();
    settings.classes = vec![Class {
        name: String::from("all"),
        subscribers: vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)],
        limits: ClassLimits { udp_ports: Some(1), ..ClassLimits::default() },
        ..Class::default()
    }];
    let mut lab = with(settings);
    out(&mut lab, "1.0.1.1:4000").unwrap();
    out(&mut lab, "1.0.1.1:4001").unwrap();

    let refused = |realms| {
        let config = Config { realms, ..config() };
        Engine::new(&config, [0; 32], Timestamp(0)).unwrap_err().message
    };
    assert!(refused(vec![numbers(32)]).contains("at most 31"));
    let named = |name: &str, host_bits| RealmConfig {
        name: String::from(name),
        host_bits,
        ..RealmConfig::default()
    };
    let all = ["b", "c"].map(|name| named(name, Some(0)));
    assert!(refused([&[numbers(8)], &all[..]].concat()).contains("at most 2"));
    assert!(refused(vec![numbers(8), named("a", None)]).contains("realm a has addresses"));
}
