//! Hosts of NAT64 and their numbers, with the engine that has their mappings.

#![allow(missing_docs)]

use natgate_engine::{
    AddressRange, Allocation, BlockConfig, Config, DropReason, Engine, Packet, PoolConfig, Prefix,
    RealmConfig, Side, Timestamp, Verdict,
};
use natgate_ipv6::{Hosts, Share, StaticHost};
use natgate_wire::Ipv4;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

const REALM: u16 = 1;
const SECOND: u64 = 1_000_000_000;
const HOME: u128 = 0x2001_0db8_0001_0000_u128 << 64;

fn config() -> Config {
    let pool =
        AddressRange { first: Ipv4Addr::new(203, 0, 113, 1), last: Ipv4Addr::new(203, 0, 113, 4) };
    Config {
        pools: vec![PoolConfig {
            name: String::from("default"),
            addresses: vec![pool],
            ..PoolConfig::default()
        }],
        realms: vec![RealmConfig {
            name: String::from("nat64"),
            subscribers: vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)],
            host_bits: Some(Hosts::host_bits(64)),
            ..RealmConfig::default()
        }],
        ..Config::default()
    }
}

struct World {
    engine: Engine,
    hosts: Hosts,
    now: u64,
}

impl World {
    fn new(config: &Config, subscribers: usize) -> Self {
        let engine = Engine::new(config, [3; 32], Timestamp(0)).unwrap();
        Self { engine, hosts: Hosts::new(64, subscribers, Share::default(), [7; 32]), now: 0 }
    }

    /// A host sends a UDP packet to the outside.
    fn send(&mut self, host: u128) -> Result<Ipv4Addr, DropReason> {
        let number = self.hosts.intern(host, self.now)?;
        let mut bytes = [0; 36];
        let mut packet = Ipv4::init(&mut bytes[..], 20);
        packet.set_total_len(36);
        packet.set_ttl(64);
        packet.set_protocol(17);
        packet.set_source(number.to_bits());
        packet.set_destination(Ipv4Addr::new(198, 51, 100, 7).to_bits());
        packet.fill_checksum();
        bytes[20..28].copy_from_slice(&[16, 0, 0, 53, 0, 16, 0, 0]);
        let mut packets = [Packet::new(&mut bytes, 0).in_realm(REALM)];
        let mut verdicts = [Verdict::Held];
        self.engine.process(Timestamp(self.now), Side::Inside, &mut packets, &mut verdicts);
        while self.engine.poll_event().is_some() {}
        match verdicts[0] {
            Verdict::Forward(Side::Outside) => Ok(number),
            Verdict::Drop(reason) => {
                self.hosts.forget_new(number);
                Err(reason)
            }
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += SECOND;
            while self.engine.advance(Timestamp(self.now)) {
                while self.engine.poll_event().is_some() {}
            }
            while self.engine.poll_event().is_some() {}
            self.hosts.sweep(&self.engine, REALM, self.now);
        }
    }
}

#[test]
fn a_host_keeps_its_number_while_it_has_a_mapping_and_not_much_longer() {
    let mut world = World::new(&config(), 16);
    let number = world.send(HOME + 1).unwrap();
    let other = world.send(HOME + 2).unwrap();
    assert_ne!(number, other);
    assert_eq!(world.hosts.address(number), Some(HOME + 1));
    assert_eq!(world.hosts.number(HOME + 2), Some(other));
    assert_eq!(world.hosts.subscriber(number), Some((HOME, 64)));
    for _ in 0..20 {
        world.wait(60);
        assert_eq!(world.send(HOME + 1), Ok(number));
    }
    assert_eq!(world.hosts.counts(), (1, 1), "the silent host's mapping has ended");
    assert_eq!(world.hosts.address(other), None);
    world.wait(299);
    assert_eq!(world.hosts.number(HOME + 1), Some(number), "the mapping lives five minutes");
    world.wait(140);
    assert_eq!(world.hosts.counts(), (0, 0));
}

#[test]
fn a_million_addresses_of_one_subscriber_take_no_room_of_others() {
    let mut config = config();
    config.limits.udp_ports = 100_000;
    config.limits.new_mappings_per_second = 1_000_000;
    let mut world = World::new(&config, 1000);
    let mut refused = BTreeMap::new();
    for host in 0..1_000_000 {
        if let Err(reason) = world.send(HOME + host) {
            *refused.entry(reason).or_insert(0) += 1;
        }
    }
    assert_eq!(refused, BTreeMap::from([(DropReason::PortQuota, 1_000_000 - 256)]));
    assert_eq!(world.hosts.counts(), (256, 1));
    for home in 1..1000 {
        world.send(HOME + (home << 64)).unwrap();
    }
    assert_eq!(world.send(HOME + (5000 << 64)), Err(DropReason::MappingTableFull));
}

#[test]
fn a_refused_host_leaves_nothing() {
    let mut config = config();
    config.limits.udp_ports = 1;
    let mut world = World::new(&config, 4);
    world.send(HOME).unwrap();
    for host in 1..1000 {
        assert_eq!(world.send(HOME + host), Err(DropReason::PortQuota));
        assert_eq!(world.hosts.counts(), (1, 1));
    }
    // A host with a number keeps it when a further packet is refused.
    assert!(world.send(HOME).is_ok());
    assert_eq!(world.hosts.counts(), (1, 1));
}

#[test]
fn a_subscriber_with_blocks_is_known_until_they_are_released() {
    let mut config = config();
    config.allocation = Allocation::Block(BlockConfig {
        release_after: std::time::Duration::from_secs(1800),
        ..BlockConfig::default()
    });
    let mut world = World::new(&config, 4);
    let number = world.send(HOME + 1).unwrap();
    world.send(HOME + 2).unwrap();
    world.wait(900);
    assert_eq!(world.hosts.counts(), (1, 1), "only the last host stays");
    assert_eq!(world.hosts.subscriber(number), Some((HOME, 64)));
    world.wait(1700);
    assert_eq!(world.hosts.counts(), (0, 0));
}

#[test]
fn numbers_are_addresses_that_the_engine_takes() {
    for (length, bits) in [(48, 8), (64, 8), (120, 8), (121, 7), (127, 1), (128, 0)] {
        assert_eq!(Hosts::host_bits(length), bits);
        let mut hosts = Hosts::new(length, 500, Share::default(), [1; 32]);
        let mut seen = BTreeSet::new();
        let step = 1_u128 << (128 - u32::from(length));
        for subscriber in 0..500 {
            for host in 0..2_u128.min(1 << bits) {
                let number = hosts.intern(HOME + subscriber * step + host, 0).unwrap();
                assert!((1..127).contains(&number.octets()[0]), "{number}");
                assert!(seen.insert(number), "{number} twice");
                let mask = u32::MAX << bits;
                let first = Ipv4Addr::from_bits(number.to_bits() & mask);
                assert_eq!(hosts.subscriber(first), Some((HOME + subscriber * step, length)));
            }
        }
    }
}

#[test]
fn hosts_agree_with_an_ordinary_map() {
    let seed = 0x1234_5678_u32;
    println!("seed {seed:#x}");
    let mut world = World::new(&config(), 20);
    let mut plain: BTreeMap<u128, (Ipv4Addr, u64)> = BTreeMap::new();
    let mut state = seed;
    for _ in 0..20_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let host = HOME + (u128::from(state >> 27) << 64) + u128::from(state >> 20 & 15);
        if let Ok(number) = world.send(host) {
            let (before, seen) = plain.insert(host, (number, world.now)).unwrap_or((number, 0));
            if world.now - seen < 300 * SECOND {
                assert_eq!(before, number, "a host with a mapping has another number");
            }
        }
        if state >> 8 & 3 == 0 {
            world.wait(u64::from(state >> 10 & 31));
        }
        for (host, (number, seen)) in &plain {
            if world.now - seen < 300 * SECOND {
                assert_eq!(world.hosts.address(*number), Some(*host));
            }
        }
    }
}

#[test]
fn hosts_are_found_by_address_and_by_subscriber() {
    let mut hosts = Hosts::new(64, 500, Share::default(), [1; 32]);
    let prefix = HOME;
    let numbers: Vec<_> = [5, 6].map(|host| hosts.intern(prefix | host, 0)).into_iter().collect();
    let first = numbers[0].expect("there is room");
    let all = hosts.numbers(prefix, 64).expect("the subscriber has hosts");
    assert!(numbers.iter().flatten().all(|number| all.contains(number.to_bits())), "{all:?}");
    let other = hosts.intern(prefix + (1 << 64) + 5, 0).expect("there is room");
    assert!(!all.contains(other.to_bits()), "{all:?} has another subscriber's {other}");
    let one = hosts.numbers(prefix | 5, 128).expect("the host has a number");
    assert_eq!((one.first(), one.len()), (first.to_bits(), 32));
    for (unknown, len) in [(prefix | 7, 128), (prefix, 56), (prefix | 5, 64), (0, 64)] {
        assert_eq!(hosts.numbers(unknown, len), None, "{unknown:x}/{len}");
    }
}

fn statics(hosts: &[u128]) -> Vec<StaticHost> {
    let hosts: Vec<Ipv6Addr> = hosts.iter().copied().map(Ipv6Addr::from_bits).collect();
    StaticHost::first(&hosts, 64, 1)
}

#[test]
fn hosts_of_static_mappings_keep_their_numbers_without_packets() {
    let hosts = statics(&[HOME | 5, HOME + (1 << 64) + 1, HOME | 4]);
    let mut world = World::new(&config(), 4);
    let dynamic = world.send(HOME | 9).unwrap();
    let numbers = world.hosts.reserve(&hosts, (0, 600 * SECOND)).expect("there is room");
    let first = numbers[0].expect("the host is this translator's");
    assert_eq!(world.hosts.subscriber(first), world.hosts.subscriber(dynamic));
    world.wait(500);
    assert_eq!(world.hosts.counts(), (3, 2), "the silent host has gone, the others are reserved");
    world.hosts.keep(&hosts[..2]);
    world.wait(900);
    let found = |host: usize| world.hosts.number(hosts[host].address.to_bits());
    assert_eq!([found(0), found(1), found(2)], [numbers[0], numbers[1], None]);
    world.hosts.keep(&[]);
    world.wait(130);
    assert_eq!(world.hosts.counts(), (0, 0));
}

#[test]
fn a_reservation_ends_by_itself_and_names_the_host_without_room() {
    let hosts = statics(&[0, 1, 2].map(|prefix| HOME + (prefix << 64)));
    let mut world = World::new(&config(), 2);
    let refused = world.hosts.reserve(&hosts, (0, 60 * SECOND));
    assert_eq!(refused, Err((hosts[2].address, DropReason::MappingTableFull)));
    assert_eq!(world.hosts.counts(), (2, 2));
    world.wait(200);
    assert_eq!(world.hosts.counts(), (0, 0));
}

/// Hosts of a table, by address.
fn carried(hosts: &Hosts) -> BTreeSet<(u128, u32)> {
    hosts.carried().map(|host| (host.address, host.number)).collect()
}

#[test]
fn another_table_takes_the_hosts_with_their_numbers() {
    let mut world = World::new(&config(), 64);
    for (home, host) in (0..20_u128).flat_map(|home| (1..=5).map(move |host| (home, host))) {
        world.send(HOME + (home << 64) + host).unwrap();
    }
    // Some subscribers have gone, so that there are gaps.
    world.wait(200);
    for home in (0..20_u128).step_by(3) {
        world.send(HOME + (home << 64) + 2).unwrap();
    }
    world.wait(300);
    let before = carried(&world.hosts);
    assert_eq!(before.len(), 7);
    let mut other = Hosts::new(64, 64, Share::default(), [8; 32]);
    other.adopt(world.hosts.carried(), world.now).unwrap();
    assert_eq!((carried(&other), other.counts()), (before.clone(), world.hosts.counts()));
    for &(address, number) in &before {
        let number = Ipv4Addr::from_bits(number);
        assert_eq!(other.number(address), Some(number));
        assert_eq!(other.subscriber(number), world.hosts.subscriber(number));
    }
    // New hosts get free numbers: of known subscribers, and of new ones in the gaps and behind.
    let mut numbers: BTreeSet<u32> = before.iter().map(|(_, number)| *number).collect();
    for home in 0..64_u128 {
        let number = other.intern(HOME + (home << 64) + 9, world.now).unwrap();
        assert!(numbers.insert(number.to_bits()), "a number twice");
    }
    assert_eq!(other.counts(), (64 + 7, 64));
    let more = other.intern(HOME + (99 << 64), world.now);
    assert_eq!(more, Err(DropReason::MappingTableFull));
}

#[test]
fn hosts_that_do_not_fit_are_refused() {
    let mut world = World::new(&config(), 64);
    for home in 0..8_u128 {
        world.send(HOME + (home << 64) + 1).unwrap();
    }
    let adopted = |mut hosts: Hosts| {
        hosts.adopt(world.hosts.carried(), 0).map_err(|unfit| {
            let text = unfit.to_string();
            text.split_once(" has ").map(|(_, reason)| reason.to_owned()).unwrap_or(text)
        })
    };
    assert!(adopted(Hosts::new(64, 8, Share::default(), [8; 32])).is_ok());
    let no_room = adopted(Hosts::new(64, 7, Share::default(), [8; 32])).unwrap_err();
    assert!(no_room.starts_with("no room"), "{no_room}");
    // One subscriber would have the numbers of several.
    let wide = adopted(Hosts::new(48, 64, Share::default(), [8; 32])).unwrap_err();
    assert!(wide.starts_with("another number"), "{wide}");
    // The number is another host's.
    let mut taken = Hosts::new(64, 64, Share::default(), [8; 32]);
    taken.intern(HOME + (77 << 64) + 1, 0).unwrap();
    assert!(adopted(taken).unwrap_err().starts_with("another number"));
    // The numbers are those of another translator.
    let share = Share { place: 1, of: 2 };
    assert!(adopted(Hosts::new(64, 64, share, [8; 32])).is_err());
}
