//! Port blocks and deterministic mapping (sections 5.18 to 5.38 of the specification), scene by
//! scene.

mod common;

use common::*;
use natgate_engine::{
    Allocation, BlockConfig, BlockId, Change, Config, DeterministicConfig, DropReason, MappingKind,
    Plan, PoolConfig, Pooling, Prefix, Side, StaticMapping, Verdict,
};
use natgate_wire::protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

const MOST: u32 = 100_000;

/// Blocks of 16 ports on addresses from 203.0.113.1 on.
fn blocks(addresses: u8, ports: (u16, u16), max_per_subscriber: u16) -> Config {
    let release_after = Duration::from_secs(60);
    let block = BlockConfig { size: 16, max_per_subscriber, release_after };
    let last = format!("203.0.113.{addresses}");
    let mut config = Config {
        pools: vec![PoolConfig {
            allocation: Some(Allocation::Block(block)),
            ..pool("203.0.113.1", &last, ports)
        }],
        ..config()
    };
    config.limits.tcp_ports = MOST;
    config.limits.udp_ports = MOST;
    config.limits.new_mappings_per_second = MOST;
    config
}

fn deterministic(ports: (u16, u16), len: u8, dynamic_ports: u16) -> Config {
    let subscribers = vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), len)];
    let plan = DeterministicConfig { subscribers, dynamic_ports, ..DeterministicConfig::default() };
    let allocation = Some(Allocation::Deterministic(plan));
    let pools = vec![PoolConfig { allocation, ..pool("203.0.113.1", "203.0.113.1", ports) }];
    Config { pools, port_parity: false, ..config() }
}

/// The blocks that were assigned and released since the last call.
fn told(lab: &mut Lab) -> (Vec<BlockId>, Vec<BlockId>) {
    let mut told = (Vec::new(), Vec::new());
    for event in lab.events.drain(..) {
        match event.change {
            Change::BlockAssigned(id) => told.0.push(id),
            Change::BlockReleased(id) => told.1.push(id),
            other => panic!("{other:?}"),
        }
    }
    told
}

fn port_of(external: &str) -> u16 {
    endpoint(external).1
}

fn block_of(external: &str) -> u16 {
    port_of(external) / 16
}

//= test rfc6888#REQ-14
#[test]
fn one_line_of_log_tells_of_all_mappings_in_a_block() {
    let mut lab = Lab::new(&blocks(2, (2048, 4095), 4));
    let mut used = BTreeSet::new();
    for port in 5000..5016 {
        used.insert(lab.external_of(&udp(&format!("10.0.0.5:{port}"), REMOTE)));
    }
    // A block serves all protocols.
    let tcp = lab.external_of(&tcp("10.0.0.5:5000", REMOTE, "S", 1, 0));
    let (assigned, released) = told(&mut lab);
    let [block] = assigned[..] else { panic!("{assigned:?}") };
    assert_eq!(released, []);
    assert_eq!(block.subscriber, Ipv4Addr::new(10, 0, 0, 5));
    assert_eq!(block.ports.1 - block.ports.0, 15);
    assert_eq!(used.len(), 16);
    for external in used.iter().chain([&tcp]) {
        let (address, port) = endpoint(external);
        assert_eq!(address, block.external.to_bits());
        assert!((block.ports.0..=block.ports.1).contains(&port));
    }
    // The seventeenth mapping needs another block, on the same address.
    lab.out(&udp("10.0.0.5:6000", REMOTE));
    let (assigned, _) = told(&mut lab);
    assert_eq!(assigned.len(), 1);
    assert_eq!(assigned[0].external, block.external);
    assert_ne!(assigned[0].ports, block.ports);
}

#[test]
fn who_has_as_many_blocks_as_may_be_is_refused_and_costs_nobody() {
    let mut lab = Lab::new(&blocks(1, (2048, 2111), 2));
    for port in 5000..5032 {
        lab.out(&udp(&format!("10.0.0.5:{port}"), REMOTE));
    }
    let (assigned, _) = told(&mut lab);
    assert_eq!(assigned.len(), 2);
    let more = udp("10.0.0.5:6000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &more), DropReason::PortQuota);
    let quota = lab.events.pop().map(|event| event.change);
    assert!(matches!(quota, Some(Change::QuotaReached { .. })), "{quota:?}");
    // Two more subscribers find room, a third does not.
    lab.out(&udp("10.0.0.6:5000", REMOTE));
    lab.out(&udp("10.0.0.7:5000", REMOTE));
    let last = udp("10.0.0.8:5000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &last), DropReason::PoolExhausted);
}

#[test]
fn a_block_is_released_a_while_after_its_last_hold_down() {
    let mut lab = Lab::new(&blocks(1, (2048, 2063), 1));
    lab.out(&udp("10.0.0.5:5000", REMOTE));
    let (assigned, _) = told(&mut lab);
    // 5 minutes of silence, 2 of hold-down, and 1 until the block's release.
    lab.wait_s(479.8);
    assert_eq!(told(&mut lab), (vec![], vec![]));
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.6:5000", REMOTE)), DropReason::PoolExhausted);
    lab.events.clear();
    lab.wait_s(0.4);
    assert_eq!(told(&mut lab), (vec![], assigned));
    lab.out(&udp("10.0.0.6:5000", REMOTE));
    // A subscriber that uses the block meanwhile keeps it.
    lab.wait_s(300.0 + 120.0 + 30.0);
    lab.out(&udp("10.0.0.6:5001", REMOTE));
    lab.wait_s(200.0);
    let (assigned, released) = told(&mut lab);
    assert_eq!((assigned.len(), released), (1, vec![]));
}

#[test]
fn a_paired_subscriber_comes_back_to_the_address_of_its_blocks() {
    let mut lab = Lab::new(&blocks(8, (2048, 4095), 4));
    for host in 5..60 {
        let host = format!("10.0.0.{host}");
        let first = lab.external_of(&tcp(&format!("{host}:5000"), REMOTE, "S", 1, 0));
        // The mapping is gone, the block is not.
        lab.wait_s(241.0);
        assert_eq!(lab.engine.mappings().count(), 0);
        let second = lab.external_of(&tcp(&format!("{host}:5001"), REMOTE, "S", 1, 0));
        assert_eq!(endpoint(&first).0, endpoint(&second).0);
        assert_eq!(block_of(&first), block_of(&second));
        let tunnel = lab.out(&ip(47, endpoint(&host).0, endpoint("198.51.100.7").0, b"gre"));
        assert_eq!(tunnel[12..16], endpoint(&first).0.to_be_bytes());
        lab.wait_s(500.0);
    }
}

#[test]
fn soft_paired_takes_a_block_elsewhere_when_the_address_has_none() {
    for (pooling, refused) in [(Pooling::Paired, true), (Pooling::SoftPaired, false)] {
        let config = Config { pooling, ..blocks(2, (2048, 2063), 4) };
        let mut lab = Lab::new(&config);
        for port in 5000..5016 {
            lab.out(&udp(&format!("10.0.0.5:{port}"), REMOTE));
        }
        let more = udp("10.0.0.5:6000", REMOTE);
        if refused {
            assert_eq!(lab.refused(Side::Inside, &more), DropReason::PoolExhausted);
        } else {
            let first = lab.external_of(&udp("10.0.0.5:5000", REMOTE));
            assert_ne!(endpoint(&lab.external_of(&more)).0, endpoint(&first).0);
        }
    }
}

#[test]
fn a_port_in_a_block_that_is_forwarded_stays_out_of_it() {
    let forwarded = StaticMapping {
        protocol: None,
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(80)),
        external: (Ipv4Addr::new(203, 0, 113, 1), Some(2050)),
        ..StaticMapping::default()
    };
    let mut lab = Lab::new(&Config { statics: vec![forwarded], ..blocks(1, (2048, 2063), 1) });
    let other = udp("10.0.0.5:5000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &other), DropReason::PoolExhausted);
    let used: BTreeSet<u16> = (5000..5015)
        .map(|port| port_of(&lab.external_of(&udp(&format!("10.0.0.80:{port}"), REMOTE))))
        .collect();
    assert_eq!(used.len(), 15);
    assert!(!used.contains(&2050));
    let more = udp("10.0.0.80:6000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &more), DropReason::PortQuota);
    assert_eq!(ends(&lab.inward(&udp(REMOTE, "203.0.113.1:2050"))).1, "10.0.0.80:80");
    lab.wait_s(481.0);
    assert_eq!(told_released(&lab), 0);
}

fn told_released(lab: &Lab) -> usize {
    let is_released = |change: &Change| matches!(change, Change::BlockReleased(_));
    lab.events.iter().filter(|event| is_released(&event.change)).count()
}

#[test]
fn blocks_with_ports_held_since_before_a_restart_are_given_to_nobody() {
    let config = blocks(1, (2048, 2079), 1);
    let mut lab = Lab::new(&config);
    let old = lab.external_of(&udp("10.0.0.5:5000", REMOTE));
    let mut ports = [0; 1024];
    let address = lab.engine.taken_ports(0, protocol::UDP, &mut ports).expect("an address");
    let mut lab = Lab::new(&config);
    lab.engine.hold_ports(address, protocol::UDP, &ports);
    let new = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
    assert_ne!(block_of(&old), block_of(&new));
    let third = udp("10.0.0.7:5000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &third), DropReason::PoolExhausted);
    lab.wait_s(120.2);
    assert_eq!(block_of(&lab.external_of(&third)), block_of(&old));
}

/// A port whose hold-down ends early, because too many are held, leaves its block empty then.
#[test]
fn a_block_may_become_empty_because_too_many_ports_are_held() {
    let mut config = blocks(1, (2048, 2079), 1);
    config.limits.held_ports = Some(1);
    let mut lab = Lab::new(&config);
    lab.out(&udp("10.0.0.5:5000", REMOTE));
    lab.wait_s(10.0);
    lab.out(&udp("10.0.0.6:5000", REMOTE));
    told(&mut lab);
    // The first port is held at 300 s and free at 310 s. Its block goes 60 s later.
    lab.wait_s(290.0 + 10.0 + 59.8);
    assert_eq!(told(&mut lab), (vec![], vec![]));
    lab.wait_s(0.4);
    let (_, released) = told(&mut lab);
    assert_eq!(released.len(), 1);
    assert_eq!(released[0].subscriber, Ipv4Addr::new(10, 0, 0, 5));
}

#[test]
fn blocks_keep_ports_on_their_side_of_1024_and_their_parity() {
    let mut lab = Lab::new(&blocks(1, (512, 2047), 4));
    for port in 0..8 {
        let low = lab.external_of(&udp(&format!("10.0.0.5:{}", 500 + port * 2), REMOTE));
        let high = lab.external_of(&udp(&format!("10.0.0.5:{}", 5001 + port * 2), REMOTE));
        assert!(port_of(&low) < 1024 && port_of(&low).is_multiple_of(2));
        assert!(port_of(&high) >= 1024 && port_of(&high) % 2 == 1);
    }
    assert_eq!(told(&mut lab).0.len(), 2);
    // Parity gives way before another block is taken.
    let odd = lab.external_of(&udp("10.0.0.5:501", REMOTE));
    let other = lab.external_of(&udp("10.0.0.5:600", REMOTE));
    assert!(port_of(&odd) % 2 == 1 && port_of(&other) % 2 == 1);
    assert_eq!(told(&mut lab).0, []);
}

//= test rfc6888#REQ-13
/// A pool of blocks is used to the last block, and every free port comes back.
#[test]
fn a_pool_of_blocks_leaks_nothing() {
    let config = blocks(4, (1024, 2047), 1);
    let mut lab = Lab::new(&config);
    let all = 4 * 64;
    for round in 0..4 {
        let host = |n: u32| format!("10.{}.{}.{}", 1 + round, n / 200, 5 + n % 200);
        let mut seen = BTreeSet::new();
        for n in 0..all {
            let external = lab.external_of(&tcp(&format!("{}:5000", host(n)), REMOTE, "S", 1, 0));
            let (address, port) = endpoint(&external);
            assert!(seen.insert((address, port / 16)), "{external}: a block has one subscriber");
        }
        let more = tcp(&format!("{}:5000", host(all)), REMOTE, "S", 1, 0);
        assert_eq!(lab.refused(Side::Inside, &more), DropReason::PoolExhausted);
        lab.wait_s(301.0);
        let released = told_released(&lab);
        assert_eq!(released, all as usize);
        lab.events.clear();
        assert_eq!(lab.engine.pool_usage(0, protocol::TCP).free, 4 * 1024);
    }
}

//= test rfc6888#REQ-15
//= test rfc6056#section-4-obfuscate
/// The choice of a block, and of a port in it, is random.
#[test]
fn blocks_and_ports_in_them_are_drawn_evenly() {
    let mut config = blocks(1, (1024, 2047), 1);
    config.port_parity = false;
    config.timeouts.hold_down = Duration::ZERO;
    let Some(Allocation::Block(block)) = &mut config.pools[0].allocation else { panic!() };
    block.release_after = Duration::ZERO;
    let mut lab = Lab::new(&config);
    let (mut drawn, mut within) = (BTreeMap::new(), BTreeMap::new());
    for n in 0..6400 {
        let external =
            lab.external_of(&udp(&format!("10.0.{}.{}:5000", n / 200, 5 + n % 200), REMOTE));
        *drawn.entry(block_of(&external)).or_insert(0) += 1;
        *within.entry(port_of(&external) % 16).or_insert(0) += 1;
        lab.wait_s(301.0);
        lab.events.clear();
    }
    // A hundred draws of each of 64 blocks, 400 of each of 16 ports: four standard deviations.
    assert_eq!((drawn.len(), within.len()), (64, 16));
    assert!(drawn.values().all(|n| (60..140).contains(n)), "{drawn:?}");
    assert!(within.values().all(|n| (320..480).contains(n)), "{within:?}");
}

// ---- deterministic ----

//= test rfc7422#section-2-own
//= test rfc7422#section-2-log
//= test rfc7422#section-2-icmp
#[test]
fn a_subscribers_ports_follow_from_its_address_and_nothing_is_logged() {
    let config = deterministic((1024, 65_535), 24, 0);
    let Some(Allocation::Deterministic(shares)) = &config.pools[0].allocation else { panic!() };
    let plan = Plan::new(shares, &config.pools[0]).unwrap();
    let mut lab = Lab::new(&config);
    for host in [0, 5, 77, 255] {
        let subscriber = Ipv4Addr::new(10, 0, 0, host);
        if host == 0 || host == 255 {
            continue; // These addresses mean the whole network of this laboratory.
        }
        let (external, (first, last)) = plan.forward(subscriber).unwrap();
        assert_eq!((first, last), (1024 + u16::from(host) * 252, 1275 + u16::from(host) * 252));
        let packets = [
            udp(&format!("{subscriber}:4000"), REMOTE),
            tcp(&format!("{subscriber}:4000"), REMOTE, "S", 1, 0),
        ];
        for packet in packets {
            let (address, port) = endpoint(&lab.external_of(&packet));
            assert_eq!(address, external.to_bits());
            assert!((first..=last).contains(&port));
        }
        let left = lab.out(&ping(&subscriber.to_string(), "198.51.100.7", 7));
        assert!((first..=last).contains(&u16::from_be_bytes([left[24], left[25]])));
    }
    assert!(lab.engine.mappings().all(|mapping| mapping.id.kind == MappingKind::Deterministic));
    lab.wait_s(1000.0);
    assert_eq!(lab.events, [], "arithmetic tells whose a port is");
}

//= test rfc7422#section-2-random
#[test]
fn ports_are_random_within_a_subscribers_own() {
    let mut lab = Lab::new(&deterministic((1024, 1024 + 4 * 64 - 1), 30, 0));
    let mut order = Vec::new();
    for port in 0..64 {
        let left = lab.external_of(&tcp(&format!("10.0.0.2:{}", 4000 + port), REMOTE, "S", 1, 0));
        order.push(port_of(&left));
    }
    let used: BTreeSet<u16> = order.iter().copied().collect();
    assert_eq!(used, (1152..1216).collect::<BTreeSet<u16>>());
    assert!(!order.is_sorted());
    let steps = order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!(steps < 8, "{order:?}");
    let more = tcp("10.0.0.2:5000", REMOTE, "S", 1, 0);
    assert_eq!(lab.refused(Side::Inside, &more), DropReason::PortQuota);
    // The refusal has cost other subscribers nothing.
    lab.out(&tcp("10.0.0.3:5000", REMOTE, "S", 1, 0));
}

//= test rfc7422#section-2-log
//= test rfc7422#section-2-dynamic
#[test]
fn who_needs_more_gets_dynamic_ports_which_are_logged() {
    let mut lab = Lab::new(&deterministic((2000, 2019), 30, 8));
    // 12 ports for four subscribers are three each. Ports 2012 to 2019 are dynamic.
    for port in 0..3 {
        lab.out(&tcp(&format!("10.0.0.2:{}", 4000 + port), REMOTE, "S", 1, 0));
    }
    assert_eq!(lab.events, []);
    let dynamic = lab.external_of(&tcp("10.0.0.2:5000", REMOTE, "S", 1, 0));
    assert!((2012..=2019).contains(&port_of(&dynamic)));
    let created = lab.created();
    assert_eq!((created.len(), created[0].kind), (1, MappingKind::Dynamic));
    // A host without ports of its own gets only dynamic ones.
    for port in 0..7 {
        let left = lab.external_of(&tcp(&format!("10.0.0.9:{}", 4000 + port), REMOTE, "S", 1, 0));
        assert!((2012..=2019).contains(&port_of(&left)));
    }
    for host in ["10.0.0.2:6000", "10.0.0.9:6000"] {
        let more = tcp(host, REMOTE, "S", 1, 0);
        assert_eq!(lab.refused(Side::Inside, &more), DropReason::PoolExhausted);
    }
    let kinds = |kind| lab.engine.mappings().filter(|mapping| mapping.id.kind == kind).count();
    assert_eq!((kinds(MappingKind::Deterministic), kinds(MappingKind::Dynamic)), (3, 8));
    lab.wait_s(241.0);
    assert_eq!(lab.removed().len(), 8);
    assert_eq!(lab.engine.pool_usage(0, protocol::TCP).free, 20);
}

//= test rfc7422#section-2-system
#[test]
fn what_cannot_be_shared_out_is_refused() {
    let refused = |config: &Config| {
        let error = natgate_engine::Engine::new(config, [0; 32], natgate_engine::Timestamp(0));
        error.map(drop).unwrap_err().message
    };
    assert!(refused(&deterministic((2000, 2002), 30, 0)).contains("4 subscribers are more than"));
    assert!(refused(&deterministic((1, 65_535), 30, 0)).contains("both sides of 1024"));
    assert!(refused(&blocks(1, (2000, 2014), 1)).contains("hold no block of 16"));
    assert!(refused(&blocks(1, (2000, 2015), 0)).contains("0 blocks a subscriber"));
}

/// With blocks and with deterministic ports, the quick way and the complete way translate a packet
/// alike. The second packet of a flow goes the quick way.
#[test]
fn answers_come_back_to_who_has_the_share() {
    for config in [blocks(2, (2048, 4095), 4), deterministic((2000, 5000), 24, 100)] {
        let mut lab = Lab::new(&config);
        for host in 5..100 {
            let source = format!("10.0.0.{host}:4000");
            let external = lab.external_of(&udp(&source, REMOTE));
            assert_eq!(lab.external_of(&udp(&source, REMOTE)), external);
            assert_eq!(ends(&lab.inward(&udp(REMOTE, &external))).1, source);
        }
        let (verdict, _) = lab.pass(Side::Outside, &udp(REMOTE, "203.0.113.1:2047"));
        assert_ne!(verdict, Verdict::Forward(Side::Outside));
    }
}

/// Every block is found, up to the last. `natgate bench engine` measures the cost when few are
/// left.
#[test]
fn every_block_is_found_when_few_are_left() {
    let mut config = blocks(16, (1024, 65_535), 1);
    config.limits.mappings = Some(200_000);
    config.limits.subscribers = Some(200_000);
    let mut lab = Lab::new(&config);
    let mut ask = |subscriber: u32| {
        let subscriber = Ipv4Addr::from_bits((10 << 24 | 1 << 20) + subscriber);
        let mut bytes = udp(&format!("{subscriber}:5000"), REMOTE);
        let mut batch = [natgate_engine::Packet::new(&mut bytes, 0)];
        let mut verdicts = [Verdict::Held];
        lab.engine.process(lab.now, Side::Inside, &mut batch, &mut verdicts);
        while lab.engine.poll_event().is_some() {}
        verdicts[0] == Verdict::Forward(Side::Outside)
    };
    let all = 16 * 4032;
    assert_eq!((0..all).position(|subscriber| !ask(subscriber)), None);
    assert!((all..all + 500).all(|subscriber| !ask(subscriber)));
    assert_eq!(lab.engine.mappings().count(), all as usize);
}
