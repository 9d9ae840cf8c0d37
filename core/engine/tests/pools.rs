//! Changes of pools while packets flow (sections 5.39 to 5.52 of the specification): addresses and
//! ports that come, go, drain and are excluded.

mod common;

use common::*;
use natgate_engine::{
    AddressRange, Allocation, BlockConfig, Change, Config, DeterministicConfig, DropReason,
    Explanation, Packet, PoolChange, PoolConfig, Pooling, Prefix, Rule, RuleAction, RuleSet, Side,
    Verdict,
};
use natgate_wire::protocol::{ICMP, TCP, UDP};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() }
}

fn one(address: &str) -> AddressRange {
    range(address, address)
}

/// A configuration with one pool of these addresses.
fn with(addresses: &[AddressRange]) -> Config {
    let small = pool("203.0.113.1", "203.0.113.1", (2000, 2099));
    let mut config =
        Config { pools: vec![PoolConfig { addresses: addresses.to_vec(), ..small }], ..config() };
    config.limits.new_mappings_per_second = 100_000;
    config
}

impl Lab {
    fn change(&mut self, config: &Config) {
        let change = PoolChange::new(self.engine.config(), config).expect("a good configuration");
        self.engine.change_pools(change).expect("there is room");
    }

    fn drain_out(&mut self) -> Vec<(String, u32, bool)> {
        let shown = self.engine.draining();
        shown.map(|one| (one.address.to_string(), one.mappings, one.leaves)).collect()
    }

    /// The external addresses of new subscribers.
    fn addresses_of(&mut self, subscribers: std::ops::Range<u8>) -> BTreeSet<String> {
        let of = |host: u8| self.external_of(&udp(&format!("10.0.0.{host}:4000"), REMOTE));
        subscribers.map(of).map(|external| address_of(&external).to_owned()).collect()
    }
}

#[test]
fn a_pool_without_addresses_gives_no_mapping_until_one_comes() {
    let block = BlockConfig { size: 16, max_per_subscriber: 2, release_after: Duration::ZERO };
    let all = [Allocation::Random, Allocation::Preserve, Allocation::Block(block)];
    for (allocation, pooling) in
        all.into_iter().zip([Pooling::Paired, Pooling::SoftPaired, Pooling::Arbitrary])
    {
        let room = |addresses: &[AddressRange]| {
            let mut config = Config { allocation: allocation.clone(), pooling, ..with(addresses) };
            config.limits.mappings = Some(1000);
            config
        };
        let mut lab = Lab::new(&room(&[]));
        let packet = udp("10.0.0.5:4000", REMOTE);
        assert_eq!(lab.refused(Side::Inside, &packet), DropReason::PoolExhausted);
        assert_eq!(
            lab.refused(Side::Outside, &udp(REMOTE, "203.0.113.1:2000")),
            DropReason::NotForUs
        );
        lab.change(&room(&[one("203.0.113.1")]));
        assert_eq!(address_of(&lab.external_of(&packet)), "203.0.113.1");
    }
    // With the usual room, which follows from the ports: none.
    let mut lab = Lab::new(&Config { subscribers: Vec::new(), ..with(&[]) });
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.5:4000", REMOTE)), DropReason::NotSubscriber);
}

#[test]
fn remote_hosts_between_the_addresses_of_two_pools_cost_nothing_more() {
    let far = |address: &str| pool(address, address, (2000, 2099));
    let pools = vec![far("5.0.0.1"), far("203.0.113.1")];
    let mut lab = Lab::new(&Config { pools, ..config() });
    let [first, second] = ["93.184.216.34:80", "198.51.100.8:80"];
    // The complete way makes the subscriber.
    let external = lab.external_of(&udp("10.0.0.5:4000", first));
    lab.inward(&udp(first, &external));
    let before = lab.engine.complete_ways();
    for packet in [udp("10.0.0.5:4001", second), udp("10.0.0.5:4000", first)] {
        lab.out(&packet);
    }
    lab.inward(&udp(first, &external));
    assert_eq!(lab.engine.complete_ways(), before);
}

#[test]
fn a_remote_host_that_becomes_a_subscribers_address_is_reached_by_hairpin() {
    for by_reload in [false, true] {
        let mut lab = Lab::new(&with(&[one("203.0.113.1")]));
        let packet = udp("10.0.0.5:4000", "203.0.113.2:2000");
        for _ in 0..3 {
            assert_eq!(lab.pass(Side::Inside, &packet).0, Verdict::Forward(Side::Outside));
        }
        let both = with(&[range("203.0.113.1", "203.0.113.2")]);
        if by_reload {
            force(&mut lab.engine, lab.now, &both).expect("there is room");
        } else {
            lab.change(&both);
        }
        // No mapping has that endpoint yet.
        assert_eq!(lab.refused(Side::Inside, &packet), DropReason::NoMapping);
    }
}

#[test]
fn an_address_that_comes_is_used_and_others_stay() {
    let mut lab = Lab::new(&with(&[one("203.0.113.1")]));
    let first = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, "203.0.113.9:2000")), DropReason::NotForUs);
    lab.change(&with(&[one("203.0.113.9"), one("203.0.113.1"), one("198.51.100.200")]));
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), first);
    assert_eq!(lab.addresses_of(20..60).len(), 3);
    let unknown = udp(REMOTE, "198.51.100.200:2099");
    let fate = lab.pass(Side::Outside, &unknown).0;
    assert_ne!(fate, Verdict::Drop(DropReason::NotForUs));
    // No host inside may use the address as a source.
    let claimed = lab.refused(Side::Inside, &udp("198.51.100.200:2000", "192.0.2.9:53"));
    assert_eq!(claimed, DropReason::SpoofedSource);
}

#[test]
fn an_address_drains_while_its_mappings_live() {
    let both = [range("203.0.113.1", "203.0.113.2")];
    let mut lab = Lab::new(&with(&both));
    let mapped = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let address = address_of(&mapped).to_owned();
    let other = if address == "203.0.113.1" { "203.0.113.2" } else { "203.0.113.1" };
    let mut config = with(&both);
    config.pools[0].draining = vec![one(&address)];
    lab.change(&config);
    assert_eq!(lab.drain_out(), [(address.clone(), 1, false)]);
    // A subscriber of the drained address gets a new pair.
    let moved = lab.external_of(&udp("10.0.0.5:4001", REMOTE));
    assert_eq!(address_of(&moved), other);
    assert_eq!(address_of(&lab.external_of(&udp("10.0.0.5:4002", REMOTE))), other);
    assert_eq!(lab.addresses_of(20..60), BTreeSet::from([other.to_owned()]));
    // Present mappings continue, both ways.
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", "198.51.100.9:53")), mapped);
    assert!(lab.passes(Side::Outside, &udp(REMOTE, &mapped)));
    lab.wait_s(301.0);
    assert_eq!(lab.drain_out(), [(address.clone(), 0, false)]);
    // The address is removed, and then it is not external any more.
    lab.wait_s(121.0);
    lab.change(&with(&[one(other)]));
    assert_eq!(lab.drain_out(), []);
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, &mapped)), DropReason::NotForUs);
}

#[test]
fn a_drained_address_comes_back_with_all_that_was_free() {
    let both = [range("203.0.113.1", "203.0.113.2")];
    let mut lab = Lab::new(&with(&both));
    lab.addresses_of(20..60);
    let before = lab.engine.pool_usage(0, UDP);
    let mut config = with(&both);
    config.pools[0].draining = both.to_vec();
    lab.change(&config);
    let drained = lab.engine.pool_usage(0, UDP);
    assert_eq!((drained.free, drained.used), (0, before.used));
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.99:1", REMOTE)), DropReason::PoolExhausted);
    lab.change(&with(&both));
    assert_eq!(lab.engine.pool_usage(0, UDP), before);
    assert_eq!(lab.drain_out(), []);
    assert_eq!(lab.addresses_of(100..130).len(), 2);
}

#[test]
fn excluded_ports_are_given_to_nobody() {
    let mut config = with(&[one("203.0.113.1")]);
    config.pools[0].excluded_ports = vec![(2010, 2089), (2095, 2095)];
    let mut lab = Lab::new(&config);
    let take = |lab: &mut Lab| {
        let port = |host: u8| {
            let (verdict, bytes) =
                lab.pass(Side::Inside, &udp(&format!("10.0.0.{host}:4000"), REMOTE));
            matches!(verdict, Verdict::Forward(_)).then(|| port_of(&ends(&bytes).0))
        };
        (10..110).filter_map(port).collect::<BTreeSet<u16>>()
    };
    let used = take(&mut lab);
    assert_eq!(used, (2000..2010).chain(2090..2095).chain(2096..2100).collect());
    // One more port is excluded. Mappings keep their ports, and no mapping gets the port after
    // them.
    config.pools[0].excluded_ports.push((2000, 2004));
    lab.change(&config);
    assert_eq!(lab.engine.mappings().count(), 19);
    let allowed = |lab: &Lab| {
        let mut mappings = lab.engine.mappings();
        mappings
            .all(|mapping| lab.engine.pools_allow(&mapping.id) == (mapping.id.external.port > 2004))
    };
    assert!(allowed(&lab));
    lab.wait_s(301.0);
    lab.wait_s(121.0);
    assert_eq!(lab.engine.pool_usage(0, UDP).free, 14);
    assert_eq!(take(&mut lab).first(), Some(&2005));
    config.pools[0].excluded_ports.clear();
    lab.change(&config);
    assert_eq!(lab.engine.pool_usage(0, UDP).free, 100 - 14);
}

#[test]
fn an_address_changes_its_pool_when_it_has_no_mapping() {
    let named = |name: &str, address: &str| PoolConfig {
        name: name.into(),
        ..pool(address, address, (2000, 2099))
    };
    let mut config = with(&[one("203.0.113.1")]);
    config.pools.push(named("second", "203.0.113.2"));
    let mut lab = Lab::new(&config);
    let mapped = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    // The two pools exchange their addresses.
    config.pools[0].addresses = vec![one("203.0.113.2")];
    config.pools[1].addresses = vec![one("203.0.113.1")];
    lab.change(&config);
    assert_eq!(lab.drain_out(), [("203.0.113.1".to_owned(), 1, true)]);
    assert_eq!(lab.engine.mappings().filter(|one| lab.engine.pools_allow(&one.id)).count(), 0);
    // A new mapping uses the pool's new address. The old mapping lives on.
    let moved = lab.external_of(&udp("10.0.0.5:4001", REMOTE));
    assert_eq!(address_of(&moved), "203.0.113.2");
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), mapped);
    assert_eq!(lab.engine.pool_usage(1, UDP).free, 0);
    lab.wait_s(301.0);
    assert_eq!(lab.drain_out(), []);
    let usage = lab.engine.pool_usage(1, UDP);
    assert_eq!((usage.free, usage.held), (99, 1));
    lab.wait_s(121.0);
    assert_eq!(lab.engine.pool_usage(1, UDP).free, 100);
}

#[test]
fn a_pool_that_is_renamed_keeps_its_mappings_and_rules_follow() {
    let mut config = with(&[one("203.0.113.1")]);
    let second =
        PoolConfig { name: "second".into(), ..pool("203.0.113.2", "203.0.113.2", (1, 99)) };
    config.pools.push(second);
    let mut lab = Lab::new(&config);
    let mapped = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    // The first pool has another name now, and comes after the other.
    config.pools.swap(0, 1);
    config.pools[1].name = "renamed".into();
    config.default_pool = 1;
    let host = Prefix::new(Ipv4Addr::new(10, 0, 0, 7), 32);
    config.rules = vec![Rule::new(natgate_engine::Match::Source(host, 0), RuleAction::Snat(0))];
    let change = PoolChange::new(lab.engine.config(), &config).unwrap();
    assert_eq!(
        (change.config().pools[0].name.as_str(), change.config().default_pool),
        ("renamed", 0)
    );
    let rules = RuleSet::new(&change.config().rules).unwrap();
    lab.engine.change_pools(change).unwrap();
    lab.engine.replace_rules(rules).unwrap();
    assert!(lab.engine.mappings().all(|one| lab.engine.pools_allow(&one.id)));
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), mapped);
    assert!(lab.external_of(&udp("10.0.0.7:40", REMOTE)).starts_with("203.0.113.2:"));
    assert!(lab.external_of(&udp("10.0.0.8:4000", REMOTE)).starts_with("203.0.113.1:"));
}

#[test]
fn ports_are_shared_out_otherwise_when_what_was_has_gone() {
    let block =
        BlockConfig { size: 16, release_after: Duration::from_secs(10), ..BlockConfig::default() };
    let shared = |allocation: Option<Allocation>| {
        let mut config = with(&[range("203.0.113.1", "203.0.113.2")]);
        config.pools[0].allocation = allocation;
        config
    };
    let plan = DeterministicConfig {
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 26)],
        ..DeterministicConfig::default()
    };
    let kinds = [
        None,
        Some(Allocation::Block(block.clone())),
        Some(Allocation::Deterministic(plan)),
        Some(Allocation::Block(BlockConfig { size: 32, ..block })),
        None,
    ];
    let mut lab = Lab::new(&shared(None));
    for kind in kinds {
        lab.change(&shared(kind.clone()));
        assert!(lab.engine.config().pools.len() <= 3, "numbers are used again");
        for host in 5..9 {
            lab.external_of(&tcp(&format!("10.0.0.{host}:4000"), REMOTE, "S", 1, 0));
            lab.external_of(&udp(&format!("10.0.0.{host}:4000"), REMOTE));
        }
        let mut mappings = lab.engine.mappings();
        assert!(mappings.all(|one| lab.engine.pools_allow(&one.id)), "{kind:?}");
        drop(mappings);
        // Only mappings of an hour ago stood in the way.
        lab.wait_s(400.0);
        lab.wait_s(400.0);
        assert_eq!(lab.drain_out(), []);
    }
}

#[test]
fn a_block_on_an_address_that_drains_counts_for_nothing() {
    let block =
        BlockConfig { size: 16, max_per_subscriber: 1, release_after: Duration::from_secs(10) };
    let both = [range("203.0.113.1", "203.0.113.2")];
    let mut config = with(&both);
    config.pools[0].allocation = Some(Allocation::Block(block));
    let mut lab = Lab::new(&config);
    let mapped = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    config.pools[0].draining = vec![one(address_of(&mapped))];
    lab.change(&config);
    let moved = lab.external_of(&udp("10.0.0.5:4001", REMOTE));
    assert_ne!(address_of(&moved), address_of(&mapped));
    let assigned = lab.events.iter().filter(|e| matches!(e.change, Change::BlockAssigned(_)));
    assert_eq!(assigned.count(), 2);
    lab.wait_s(500.0);
    let released = lab.events.iter().filter(|e| matches!(e.change, Change::BlockReleased(_)));
    assert_eq!(released.count(), 2);
}

#[test]
fn growing_a_deterministic_pool_leaves_subscribers_their_ports() {
    let plan = |len| DeterministicConfig {
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), len)],
        ports_per_subscriber: Some(10),
        dynamic_ports: 10,
        ..DeterministicConfig::default()
    };
    let with_plan = |len, last: &str| {
        let mut config = with(&[range("203.0.113.1", last)]);
        config.pools[0].allocation = Some(Allocation::Deterministic(plan(len)));
        config
    };
    let mut lab = Lab::new(&with_plan(29, "203.0.113.1"));
    let mapped = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    lab.change(&with_plan(27, "203.0.113.4"));
    assert!(lab.engine.mappings().all(|one| lab.engine.pools_allow(&one.id)));
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), mapped);
    let far = lab.external_of(&udp("10.0.0.30:4000", REMOTE));
    assert_eq!((address_of(&far), port_of(&far) / 10), ("203.0.113.4", 203));
    let usage = lab.engine.pool_usage(0, UDP);
    // 32 subscribers, and the dynamic ports of 4 addresses.
    assert_eq!((usage.free, usage.used), (32 * 10 + 4 * 10 - 2, 2));
}

#[test]
fn a_change_without_room_is_refused_as_a_whole() {
    let mut config = with(&[one("203.0.113.1")]);
    config.limits.external_addresses = Some(2);
    let mut lab = Lab::new(&config);
    lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let more = with(&[range("203.0.113.1", "203.0.113.3")]);
    let change = PoolChange::new(lab.engine.config(), &more).unwrap();
    let error = lab.engine.change_pools(change).unwrap_err();
    assert!(error.message.contains("1 + 2 external addresses are more than the 2"), "{error:?}");
    assert_eq!(lab.addresses_of(20..40).len(), 1);
    // If there is room, indexes are used again.
    for turn in 2..40 {
        let address = format!("203.0.113.{turn}");
        lab.change(&with(&[one(&address)]));
        lab.wait_s(301.0);
        lab.wait_s(121.0);
        assert_eq!(lab.addresses_of(20..25), BTreeSet::from([address]));
    }
    let wrong = |message: &str, change: &dyn Fn(&mut Config)| {
        let mut config = with(&[one("203.0.113.1")]);
        change(&mut config);
        let error = PoolChange::new(lab.engine.config(), &config).unwrap_err();
        assert!(error.message.contains(message), "{error:?}");
    };
    wrong("203.0.113.2 drains, but is not of the pool", &|config| {
        config.pools[0].draining = vec![one("203.0.113.2")];
    });
    wrong("all of its ports are excluded", &|config| {
        config.pools[0].excluded_ports = vec![(1, 2050), (2051, 65_535)];
    });
    wrong("limits.external_addresses is 0", &|config| {
        config.limits.external_addresses = Some(0);
    });
}

/// Packets between the steps of a change are translated by the ports that old and new pools share.
#[test]
fn packets_flow_while_a_change_is_prepared() {
    let mut lab = Lab::new(&with(&[range("203.0.113.1", "203.0.113.4")]));
    let mut config = with(&[range("203.0.113.3", "203.0.113.8")]);
    config.pools[0].excluded_ports = vec![(2050, 2099)];
    let old: BTreeSet<String> = (1..5).map(|host| format!("203.0.113.{host}")).collect();
    lab.engine.prepare_pools(PoolChange::new(lab.engine.config(), &config).unwrap()).unwrap();
    let change = PoolChange::new(lab.engine.config(), &config).unwrap();
    assert!(lab.engine.prepare_pools(change).unwrap_err().message.contains("under way"));
    let mut host = 10;
    while !lab.engine.pools_prepared() {
        lab.engine.advance(lab.now);
        let external = lab.external_of(&udp(&format!("10.0.0.{host}:4000"), REMOTE));
        assert!(old.contains(address_of(&external)));
        host += 1;
    }
    assert!(host > 14, "it takes some steps");
    for host in host..host + 20 {
        let external = lab.external_of(&udp(&format!("10.0.0.{host}:4000"), REMOTE));
        assert!(address_of(&external) > "203.0.113.2" && port_of(&external) < 2050);
    }
    lab.engine.switch_pools();
    assert!(!lab.engine.pools_settled());
    while lab.engine.advance(lab.now) {}
    assert!(lab.engine.pools_settled());
    assert!(lab.addresses_of(100..160).contains("203.0.113.8"));
}

// ---- nothing leaks ----

/// Pools of every kind, by name.
fn kinds() -> Vec<(&'static str, Config)> {
    let plan = |dynamic_ports| {
        Allocation::Deterministic(DeterministicConfig {
            subscribers: vec![Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 28)],
            ports_per_subscriber: None,
            dynamic_ports,
            ..DeterministicConfig::default()
        })
    };
    let release_after = Duration::from_secs(5);
    let block = BlockConfig { size: 64, max_per_subscriber: 4, release_after };
    let allocations = [
        ("random", Allocation::Random),
        ("preserve", Allocation::Preserve),
        ("block", Allocation::Block(block)),
        ("deterministic", plan(0)),
        ("deterministic with dynamic ports", plan(128)),
    ];
    let config = |allocation| {
        let mut config = with(&[range("203.0.113.1", "203.0.113.4")]);
        config.pools[0].ports = (1024, 2047);
        config.pools[0].allocation = Some(allocation);
        config.pooling = Pooling::SoftPaired;
        config.port_parity = false;
        config.limits.held_ports = None;
        config.limits.icmp_ports = 2000;
        config
    };
    allocations.into_iter().map(|(name, allocation)| (name, config(allocation))).collect()
}

/// Pools of all kinds are filled to 99 % and freed again, many times. At any time the free, used,
/// held and reserved ports are all ports, and in the end all are free.
#[test]
fn a_pool_that_is_filled_and_freed_again_leaks_nothing() {
    const ALL: u64 = 4 * 1024;
    for (name, config) in kinds() {
        let mut lab = Lab::new(&config);
        let empty = [TCP, UDP, ICMP].map(|protocol| lab.engine.pool_usage(0, protocol));
        assert!(
            empty.iter().all(|usage| (usage.free, usage.used) == (ALL, 0)),
            "{name}: {empty:?}"
        );
        for turn in 0..12_u16 {
            let mut taken = [0; 3];
            'hosts: for port in 0..300 {
                for host in 0..16 {
                    let from = format!("10.1.0.{host}:{}", 5000 + turn * 300 + port);
                    let packets = [
                        tcp(&from, REMOTE, "S", 1, 0),
                        udp(&from, REMOTE),
                        ping(
                            from.split(':').next().unwrap(),
                            "198.51.100.7",
                            6000 + turn * 300 + port,
                        ),
                    ];
                    for (packet, taken) in packets.iter().zip(&mut taken) {
                        let (verdict, _) = lab.pass(Side::Inside, packet);
                        *taken += u64::from(matches!(verdict, Verdict::Forward(_)));
                    }
                    if taken.iter().all(|&taken| taken >= ALL * 99 / 100) {
                        break 'hosts;
                    }
                }
            }
            assert!(taken.iter().all(|&taken| taken >= ALL * 99 / 100), "{name}: {taken:?}");
            for (protocol, taken) in [TCP, UDP, ICMP].into_iter().zip(taken) {
                let usage = lab.engine.pool_usage(0, protocol);
                assert_eq!((usage.used, usage.held, usage.reserved), (taken, 0, 0), "{name}");
                assert_eq!(usage.free + taken, ALL, "{name}");
            }
            lab.wait_s(301.0);
            let held = lab.engine.pool_usage(0, UDP).held;
            assert!(held > ALL * 98 / 100 && lab.engine.mappings().next().is_none(), "{name}");
            lab.wait_s(130.0);
            let again = [TCP, UDP, ICMP].map(|protocol| lab.engine.pool_usage(0, protocol));
            assert_eq!(again, empty, "{name}, turn {turn}");
        }
        let assigned = |change: &Change| match change {
            Change::BlockAssigned(_) => 1,
            Change::BlockReleased(_) => -1,
            _ => 0,
        };
        let left: i64 = lab.events.iter().map(|event| assigned(&event.change)).sum();
        assert_eq!(left, 0, "{name}: blocks that were assigned were released");
    }
}

/// If a subscriber may have any address, the address of its next mapping is not predicted, even if
/// it has mappings: it is drawn anew.
#[test]
fn what_will_be_drawn_is_not_foretold() {
    let mut config = with(&[range("203.0.113.1", "203.0.113.4")]);
    config.pooling = Pooling::Arbitrary;
    let mut lab = Lab::new(&config);
    let mut addresses = BTreeSet::new();
    for number in 0..50 {
        let flow = udp(&format!("10.0.0.5:{}", 4000 + number), REMOTE);
        let (source, destination) = (endpoint("10.0.0.5").0, endpoint("198.51.100.1").0);
        let portless = ip(47, source, destination + number, &[0; 8]);
        for mut packet in [flow, portless] {
            let mut told = Explanation::new();
            let view = Packet::new(&mut packet, 0);
            lab.engine.explain(lab.now, Side::Inside, &view, &mut told);
            assert!(told.is_certain && told.verdict == Verdict::Forward(Side::Outside), "{told:?}");
            let becomes = told.becomes.expect("it lives");
            assert_eq!((becomes.source.address, becomes.source.port), (None, None), "{told:?}");
            lab.out(&packet);
        }
        addresses.extend(lab.created().iter().map(|mapping| mapping.external.address));
    }
    assert_eq!(addresses.len(), 4);
}
