//! Blocks of ports at an engine that is one of a pair, and shares the work of its node with other
//! engines: which subscriber has a block, and when it has it no more.

mod common;

use common::*;
use natgate_engine::{
    AddressRange, Allocation, BlockConfig, Config, Copies, CopyChange, Cursor, DropReason, Duty,
    Endpoint, Filter, NoNumbers, PairPort, PoolConfig, Side, StaticMapping,
};
use natgate_wire::protocol::{DCCP, UDP};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const RANGE: AddressRange = AddressRange { first: ADDRESS, last: ADDRESS };
/// An engine that gives out some words of ports. There are two blocks, words 32 and 33.
fn worker(words: Range<usize>, duty: Duty) -> Lab {
    worker_with(words, duty, None)
}

/// Such an engine with a limit of held ports.
fn worker_with(words: Range<usize>, duty: Duty, held_ports: Option<u32>) -> Lab {
    worker_of((64, (2048, 2175)), words, duty, held_ports)
}

/// Such an engine with blocks of some size among these ports.
fn worker_of(
    (size, ports): (u16, (u16, u16)),
    words: Range<usize>,
    duty: Duty,
    held_ports: Option<u32>,
) -> Lab {
    let release_after = Duration::from_secs(60);
    let block = BlockConfig { size, max_per_subscriber: 1, release_after };
    let of_pool = pool("203.0.113.1", "203.0.113.1", ports);
    let pools = vec![PoolConfig { allocation: Some(Allocation::Block(block)), ..of_pool }];
    let mut config = Config { pools, ..config() };
    config.timeouts.hold_down = Duration::from_secs(120);
    config.limits.held_ports = held_ports;
    let mut lab = Lab::new(&config);
    lab.engine.divide((0, 2), |_, _| true);
    lab.engine.own(ADDRESS, words);
    lab.engine.join_pair();
    lab.engine.set_duty(RANGE, duty);
    lab
}

fn datagram(host: u8) -> Vec<u8> {
    udp(&format!("10.0.0.{host}:4000"), REMOTE)
}

/// The port of a host's mapping.
fn mapped(lab: &mut Lab, host: u8) -> u16 {
    port_of(&lab.external_of(&datagram(host)))
}

fn port(port: u16) -> PairPort {
    let external = Endpoint { address: ADDRESS, port };
    PairPort { protocol: UDP, external, remote: Ipv4Addr::UNSPECIFIED, number: 0 }
}

/// Removes all mappings. Their ports rest.
fn clear(lab: &mut Lab) {
    let mut cursor = Cursor::default();
    while !lab.engine.clear_mappings(&mut cursor, 1000, &Filter::default()).1 {}
}

/// Removes all mappings, and lets the hold-down of their ports pass.
fn clear_and_wait(lab: &mut Lab, ports: &[u16]) {
    clear(lab);
    ports.iter().for_each(|number| lab.engine.end_rest(port(*number)));
    lab.wait_s(121.0);
}

/// Another port of the same block.
fn other(number: u16) -> u16 {
    number ^ 1
}

/// Ports that are taken at the address.
fn taken(lab: &Lab) -> Vec<u16> {
    let mut taken = [0_u64; 1024];
    assert_eq!(lab.engine.taken_ports(0, UDP, &mut taken), Some(ADDRESS));
    let is_taken = |port: &u16| taken[usize::from(*port) / 64] >> (port % 64) & 1 != 0;
    (0..=u16::MAX).filter(is_taken).collect()
}

/// Copies what has changed.
fn follow(from: &mut Lab, to: &mut Lab, copies: &mut Copies) {
    let mut changes = Vec::new();
    from.engine.take_changes(&mut changes);
    for change in changes {
        let (CopyChange::Changed(key) | CopyChange::Ended(key, _)) = change else {
            panic!("{change:?}: no mapping is static here");
        };
        let mut record = Vec::new();
        match from.engine.copy_record(key, &NoNumbers, &mut record) {
            Some(_) => {
                let copied = to.engine.copy(copies, &mut NoNumbers, (key, &record));
                copied.expect("a whole record");
            }
            None => to.engine.end_copy(copies, key),
        }
    }
}

#[test]
fn a_guard_ends_the_ownership_of_a_block_without_mappings() {
    let mut lab = worker(32..33, OWNER);
    let number = mapped(&mut lab, 5);
    clear_and_wait(&mut lab, &[number]);
    assert_eq!(told(&mut lab), (vec![5], vec![]), "the block stays for a minute");
    let stray = port(other(number));
    assert!(lab.engine.guard(stray));
    assert_eq!(told(&mut lab), (vec![], vec![5]));
    let refused = lab.refused(Side::Inside, &datagram(5));
    assert_eq!(refused, DropReason::PoolExhausted, "the block is nobody's");
    lab.engine.end_rest(stray);
    lab.wait_s(121.0);
    assert_eq!(mapped(&mut lab, 6) / 64, number / 64);
    assert_eq!(told(&mut lab), (vec![6], vec![]));
}

#[test]
fn a_guard_leaves_the_block_of_a_mapping() {
    let mut lab = worker(32..33, OWNER);
    let number = mapped(&mut lab, 5);
    assert!(lab.engine.guard(port(other(number))));
    assert!(!lab.engine.guard(port(number)));
    assert_eq!(told(&mut lab), (vec![5], vec![]));
    assert_eq!(mapped(&mut lab, 5), number);
}

/// The owner may give the block to another subscriber, whose mappings another worker has.
#[test]
fn the_block_of_a_copy_ends_with_its_last_copy() {
    // A worker without the block's words, and one with them.
    for words in [0..1, 32..34] {
        let (mut a, mut b) = (worker(32..34, OWNER), worker(words, PARTNER));
        let number = mapped(&mut a, 5);
        let second = port_of(&a.external_of(&udp("10.0.0.5:4001", REMOTE)));
        assert_eq!(number / 64, second / 64);
        let mut copies = begin(&a, &mut b);
        follow(&mut a, &mut b, &mut copies);
        assert_eq!(told(&mut b), (vec![5], vec![]));
        let mut keys = (0..a.engine.copy_extent()).filter(|key| copies.external(*key).is_some());
        let [first, last] = [keys.next(), keys.next()].map(|key| key.expect("two copies"));
        b.engine.end_copy(&mut copies, first);
        assert_eq!(told(&mut b), (vec![], vec![]), "there is another copy");
        b.engine.end_copy(&mut copies, last);
        assert_eq!(told(&mut b), (vec![], vec![5]));
        assert_eq!(taken(&b).len(), 2, "the ports are held");
        b.wait_s(200.0);
        assert_eq!(told(&mut b), (vec![], vec![]));
    }
}

#[test]
fn the_block_of_a_copy_that_ends_by_itself_ends_as_well() {
    let (mut a, mut b) = (worker(32..34, OWNER), worker(0..1, PARTNER));
    mapped(&mut a, 5);
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    clear(&mut b);
    assert_eq!(told(&mut b), (vec![5], vec![5]));
    assert_eq!(b.engine.resting(), 1);
    // After a take-over, too: another worker gives the block out.
    let mut a = worker(32..34, OWNER);
    mapped(&mut a, 6);
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    b.engine.set_duty(RANGE, OWNER);
    assert_eq!(told(&mut b), (vec![6], vec![]));
    clear(&mut b);
    assert_eq!(told(&mut b), (vec![], vec![6]));
}

#[test]
fn blocks_without_mappings_end_when_an_engine_ceases_to_give_them_out() {
    let mut lab = worker(32..34, OWNER);
    let number = mapped(&mut lab, 5);
    clear_and_wait(&mut lab, &[number]);
    mapped(&mut lab, 6);
    assert_eq!(told(&mut lab), (vec![5, 6], vec![]));
    assert_eq!(lab.engine.leave_blocks(ADDRESS), Some(64));
    assert_eq!(told(&mut lab), (vec![], vec![]), "it gives them out");
    lab.engine.set_duty(RANGE, PARTNER);
    // The empty block needs no look at its ports.
    assert_eq!(lab.engine.leave_blocks(ADDRESS), Some(64));
    assert_eq!(told(&mut lab), (vec![], vec![5]));
    assert_eq!(lab.engine.leave_blocks(ADDRESS), Some(64));
    assert_eq!(told(&mut lab), (vec![], vec![]));
}

/// Until the other engine has heard of the block, a list of held ports has those of the block from
/// this one.
#[test]
fn a_block_that_goes_to_another_engine_leaves_its_ports_held() {
    let mut lab = worker(32..34, OWNER);
    let number = mapped(&mut lab, 5);
    let word = usize::from(number) / 64;
    assert!(lab.engine.cede_block(ADDRESS, word..word + 1).is_none(), "a mapping has a port");
    clear(&mut lab);
    assert!(lab.engine.cede_block(ADDRESS, word..word + 1).is_none(), "a port rests");
    lab.engine.end_rest(port(number));
    let held = lab.engine.cede_block(ADDRESS, word..word + 1);
    assert_eq!(held, Some(vec![(UDP, number)]));
    assert_eq!(told(&mut lab), (vec![5], vec![5]));
    assert_eq!(taken(&lab), [number]);
    assert!(lab.engine.cede_block(ADDRESS, word..word + 1).is_none(), "it has gone");
    let mut heir = worker(0..1, OWNER);
    heir.engine.own_block(ADDRESS, word..word + 1, &held.unwrap_or_default());
    assert_eq!(taken(&heir), [number]);
    for host in 5..70 {
        let (_, bytes) = heir.pass(Side::Inside, &datagram(host));
        assert_ne!(port_of(&ends(&bytes).0), number);
    }
    // No port of the block is given out here, also after the hold-down.
    lab.wait_s(121.0);
    assert!(taken(&lab).is_empty());
    assert_ne!(usize::from(mapped(&mut lab, 6)) / 64, word);
}

/// Beyond the limit, the ports that were held longest are free, and not those of the block.
#[test]
fn held_ports_of_a_block_take_the_places_of_those_that_were_held_longest() {
    let held = [(UDP, 33 * 64), (UDP, 33 * 64 + 1)];
    for (limit, left) in [(3, 1), (2, 0), (1, 0), (0, 0)] {
        let mut lab = worker_with(32..33, OWNER, Some(limit));
        let number = mapped(&mut lab, 5);
        clear(&mut lab);
        lab.engine.end_rest(port(number));
        lab.wait_s(1.0);
        lab.engine.own_block(ADDRESS, 33..34, &held);
        let taken = taken(&lab);
        let of_block = taken.iter().filter(|port| held.contains(&(UDP, **port))).count();
        assert_eq!(of_block, held.len().min(limit as usize), "{limit}: {taken:?}");
        assert_eq!(taken.len() - of_block, left, "{limit}: {taken:?}");
    }
}

/// A reload gives a port of a block to a static mapping, and takes it back. The engine has half of
/// the block, so it gives the block to nobody. The port may be held at that time.
#[test]
fn a_block_that_an_engine_has_in_part_is_nobodys_after_a_static_mapping() {
    for is_held in [false, true] {
        let mut lab = worker_of((256, (2048, 2559)), 32..38, OWNER, None);
        let external = 37 * 64 + 5;
        if is_held {
            let mut ports = [0; 1024];
            ports[37] = 1 << 5;
            assert!(lab.engine.hold_ports(ADDRESS, UDP, &ports));
        }
        let without = lab.engine.config().clone();
        let statics = vec![StaticMapping {
            external: (ADDRESS, Some(external)),
            internal: ("10.0.0.9".parse().unwrap(), Some(80)),
            protocol: Some(UDP),
            ..StaticMapping::default()
        }];
        reload(&mut lab, &Config { statics, ..without.clone() });
        assert_eq!(ends(&lab.inward(&udp(REMOTE, "203.0.113.1:2373"))).1, "10.0.0.9:80");
        reload(&mut lab, &without);
        lab.wait_s(200.0);
        assert!(lab.engine.mappings().next().is_none(), "{is_held}");
        assert_eq!(mapped(&mut lab, 5) / 256, 2048 / 256, "{is_held}: the whole block");
        let refused = lab.refused(Side::Inside, &datagram(6));
        assert_eq!(refused, DropReason::PoolExhausted, "{is_held}: the other block");
    }
}

/// The first of two engines that divide a pool with blocks of a size. It has no words yet.
fn lab_of_two(of_pool: PoolConfig, size: u16) -> Lab {
    let release_after = Duration::from_secs(60);
    let block = BlockConfig { size, max_per_subscriber: 1, release_after };
    let pools = vec![PoolConfig { allocation: Some(Allocation::Block(block)), ..of_pool }];
    let mut lab = Lab::new(&Config { pools, ..config() });
    lab.engine.divide((0, 2), |_, _| true);
    lab
}

/// The address with the most free ports may have no block for another engine.
#[test]
fn an_engine_gives_up_blocks_of_the_address_with_the_most_of_them() {
    let second = Ipv4Addr::new(203, 0, 113, 2);
    let of_pool = pool("203.0.113.1", "203.0.113.2", (2048, 2559));
    let mut lab = lab_of_two(of_pool, 256);
    for address in [ADDRESS, second] {
        lab.engine.own(address, 32..40);
    }
    assert_eq!(lab.engine.free_ports(0, false), 4 * 256);
    let addresses: Vec<String> = (5..8)
        .map(|host| {
            let external = lab.external_of(&tcp(&format!("10.0.0.{host}:4000"), REMOTE, "S", 1, 0));
            external.split(':').next().unwrap().to_owned()
        })
        .collect();
    // One address has one block left. Its subscriber uses many ports.
    let is_alone = |one: &&String| addresses.iter().filter(|other| other == one).count() == 1;
    let alone = addresses.iter().position(|one| is_alone(&one)).expect("three of four blocks");
    for port in 5000..5100 {
        lab.out(&tcp(&format!("10.0.0.{}:{port}", 5 + alone), REMOTE, "S", 1, 0));
    }
    let address: Ipv4Addr = addresses[alone].parse().unwrap();
    assert_eq!(lab.engine.free_ports(0, false), 256);
    assert_eq!(lab.engine.free_ports_of(address, false), 256);
    let given = lab.engine.cede(0, None, false, 4).expect("the block without an owner");
    assert_eq!((given.0, given.1.len(), given.1.start % 4), (address, 4, 0));
    assert_eq!(lab.engine.free_ports(0, false), 0);
    assert_eq!(lab.engine.cede(0, None, false, 4), None);
}

/// A search in one pool does not move that in another one, and neither does one on the other side
/// of port 1024.
#[test]
fn searches_for_blocks_to_give_up_do_not_disturb_each_other() {
    let address = |last| Ipv4Addr::new(203, 0, 113, last);
    let block = BlockConfig { size: 16, max_per_subscriber: 1, release_after: Duration::ZERO };
    let allocation = Some(Allocation::Block(block));
    let of = |first: &str, last: &str, name: &str| {
        let one = pool(&format!("203.0.113.{first}"), &format!("203.0.113.{last}"), (896, 1151));
        PoolConfig { allocation: allocation.clone(), name: name.into(), ..one }
    };
    let pools = vec![of("1", "14", "many"), of("21", "24", "few")];
    let mut lab = Lab::new(&Config { pools, ..config() });
    lab.engine.divide((0, 2), |_, _| true);
    for last in (1..=14).chain(21..=24) {
        lab.engine.own(address(last), 14..18);
        let mut held = [0; 1024];
        for word in [14, 16] {
            // Of one address, the second word of each side has no port that is held.
            (held[word], held[word + 1]) = match last {
                12 => (1 | 1 << 16 | 1 << 32, 0),
                _ => (1, 1),
            };
        }
        assert!(lab.engine.hold_ports(address(last), UDP, &held));
    }
    let mut given = Vec::new();
    for _ in 0..5 {
        for is_low in [true, false] {
            assert_eq!(lab.engine.cede(1, None, is_low, 1), None);
            given.extend(lab.engine.cede(0, None, is_low, 1));
        }
    }
    assert_eq!(given, [(address(12), 15..16), (address(12), 17..18)]);
}

/// All engines know the static mapping, and none gives out its ports.
#[test]
fn a_static_mapping_of_an_address_for_one_protocol_keeps_no_block_from_other_engines() {
    let release_after = Duration::from_secs(60);
    let block = BlockConfig { size: 256, max_per_subscriber: 1, release_after };
    for allocation in [Allocation::Block(block), Allocation::Random] {
        let of_pool = pool("203.0.113.1", "203.0.113.1", (2048, 2559));
        let pools = vec![PoolConfig { allocation: Some(allocation), ..of_pool }];
        let statics = vec![StaticMapping {
            protocol: Some(DCCP),
            internal: (Ipv4Addr::new(10, 0, 0, 9), None),
            external: (ADDRESS, None),
            ..StaticMapping::default()
        }];
        let config = Config { pools, statics, ..config() };
        let mut labs = [Lab::new(&config), Lab::new(&config)];
        labs.iter_mut().for_each(|lab| lab.engine.divide((0, 2), |_, _| true));
        let [giver, taker] = &mut labs;
        giver.engine.own(ADDRESS, 32..40);
        let given = giver.engine.cede(0, None, false, 4);
        assert_eq!(given, Some((ADDRESS, 32..36)));
        taker.engine.own(ADDRESS, 32..36);
        let free = [giver, taker].map(|lab| lab.engine.free_ports(0, false));
        assert_eq!(free, [256, 256]);
        let number = mapped(&mut labs[1], 5);
        assert!((2048..2304).contains(&number), "{number}");
    }
}

/// The addresses with the most free blocks have no word whose blocks are all free.
#[test]
fn an_engine_finds_blocks_to_give_up_behind_addresses_that_have_none() {
    let address = |last| Ipv4Addr::new(203, 0, 113, last);
    let of_pool = pool("203.0.113.1", "203.0.113.9", (2048, 2175));
    let mut lab = lab_of_two(of_pool, 16);
    for last in 1..=9 {
        lab.engine.own(address(last), 32..34);
        let mut held = [0; 1024];
        (held[32], held[33]) = match last {
            // Three of the four blocks of the first word.
            7 => (1 | 1 << 16 | 1 << 32, 0),
            _ => (1, 1),
        };
        assert!(lab.engine.hold_ports(address(last), UDP, &held));
    }
    assert_eq!([1, 7].map(|last| lab.engine.free_ports_of(address(last), false)), [96, 80]);
    let mut calls = (0..4).map(|_| lab.engine.cede(0, None, false, 1));
    assert_eq!(calls.find_map(|given| given), Some((address(7), 33..34)));
    assert!((0..4).all(|_| lab.engine.cede(0, None, false, 1).is_none()));
}
