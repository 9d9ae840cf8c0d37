//! A realm of numbers: hosts with equal upper bits are one subscriber, and a number is no address.

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
    let mut buffer = bytes.to_vec();
    let mut packets = [Packet::new(&mut buffer, 0).in_realm(realm)];
    let mut verdicts = [Verdict::Held];
    lab.engine.process(lab.now, from, &mut packets, &mut verdicts);
    (verdicts[0], packets[0].bytes().to_vec())
}

fn out(lab: &mut Lab, source: &str) -> Result<String, DropReason> {
    match pass(lab, Side::Inside, &udp(source, SERVER)) {
        (Verdict::Forward(Side::Outside), bytes) => Ok(ends(&bytes).0),
        (Verdict::Drop(reason), _) => Err(reason),
        (other, _) => panic!("{other:?}"),
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
    let other = RealmConfig { name: String::from("more"), ..numbers(0) };
    assert!(refused(vec![numbers(8), other]).contains("several realms"));
}
