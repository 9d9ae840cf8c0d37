//! Changes of forwarded ports in a pool with blocks while the translator runs (14.24 to 14.26 of
//! the specification): the blocks that change hands, and the changes that are refused.

mod common;

use common::*;
use natgate_engine::{
    Allocation, BlockConfig, Change, Config, ConflictReason, PoolConfig, Pooling, ReconfigureError,
    StaticMapping,
};
use std::net::Ipv4Addr;
use std::time::Duration;

/// A pool of two addresses with the blocks 5000-5015, 5016-5031, 5032-5047 and 5048-5063 each, and
/// the ports 5064 to 5070, which are in no block.
fn blocks(statics: &[StaticMapping]) -> Config {
    let block = BlockConfig { size: 16, max_per_subscriber: 2, release_after: RELEASE };
    let allocation = Some(Allocation::Block(block));
    let pool = PoolConfig { allocation, ..pool("203.0.113.1", "203.0.113.2", (5000, 5070)) };
    Config { pools: vec![pool], statics: statics.to_vec(), ..config() }
}

const RELEASE: Duration = Duration::from_secs(10);

/// A static mapping of 203.0.113.1, of a port of a host 10.0.0.x.
fn forwarded(host: u8, external: u16) -> StaticMapping {
    of_address(host, 1, external)
}

fn of_address(host: u8, address: u8, external: u16) -> StaticMapping {
    StaticMapping {
        internal: (Ipv4Addr::new(10, 0, 0, host), Some(80)),
        external: (Ipv4Addr::new(203, 0, 113, address), Some(external)),
        ..StaticMapping::default()
    }
}

/// The events about blocks since the last call: assigned or released, last byte of the host, first
/// port.
fn block_events(lab: &mut Lab) -> Vec<(bool, u8, u16)> {
    let events = std::mem::take(&mut lab.events);
    let of = |change: &Change| match change {
        Change::BlockAssigned(block) => Some((true, block.subscriber.octets()[3], block.ports.0)),
        Change::BlockReleased(block) => Some((false, block.subscriber.octets()[3], block.ports.0)),
        _ => None,
    };
    events.iter().filter_map(|event| of(&event.change)).collect()
}

/// True if a packet to the port arrives at the host.
fn arrives(lab: &mut Lab, external: u16, host: u8) -> bool {
    let inward = lab.inward(&udp(REMOTE, &format!("203.0.113.1:{external}")));
    ends(&inward).1 == format!("10.0.0.{host}:80")
}

#[test]
fn a_port_in_no_block_needs_no_block() {
    let mut lab = Lab::new(&blocks(&[]));
    reload(&mut lab, &blocks(&[forwarded(80, 5064)]));
    assert!(arrives(&mut lab, 5064, 80));
    reload(&mut lab, &blocks(&[forwarded(81, 5064)]));
    assert!(arrives(&mut lab, 5064, 81));
    assert_eq!(block_events(&mut lab), []);
}

#[test]
fn a_block_of_nobody_is_assigned_and_released() {
    let mut lab = Lab::new(&blocks(&[]));
    reload(&mut lab, &blocks(&[forwarded(80, 5020)]));
    assert_eq!(block_events(&mut lab), [(true, 80, 5016)]);
    assert!(arrives(&mut lab, 5020, 80));
    // Other ports of the block for the host, and none for others.
    let own = lab.external_of(&udp("10.0.0.80:4000", REMOTE));
    assert!(("203.0.113.1:5016".."203.0.113.1:5032").contains(&&own[..]), "{own}");
    lab.wait_s(10_000.0);
    assert_eq!(block_events(&mut lab), []);
    // A second port of the block changes nothing, and neither does the end of the first.
    reload(&mut lab, &blocks(&[forwarded(80, 5020), forwarded(80, 5021)]));
    reload(&mut lab, &blocks(&[forwarded(80, 5021)]));
    assert_eq!(block_events(&mut lab), []);
    reload(&mut lab, &blocks(&[]));
    assert_eq!(block_events(&mut lab), [(false, 80, 5016)]);
}

#[test]
fn a_block_goes_from_host_to_host_while_it_is_empty() {
    let mut lab = Lab::new(&blocks(&[forwarded(80, 5020)]));
    lab.wait_s(0.0);
    block_events(&mut lab);
    reload(&mut lab, &blocks(&[forwarded(81, 5020)]));
    assert_eq!(block_events(&mut lab), [(false, 80, 5016), (true, 81, 5016)]);
    assert!(arrives(&mut lab, 5020, 81));
    lab.out(&udp("10.0.0.81:4000", REMOTE));
    let refused = try_reload(&mut lab, &blocks(&[forwarded(80, 5020)])).unwrap_err();
    let ReconfigureError::Block(conflict) = refused else { panic!("{refused:?}") };
    assert_eq!(conflict.why, ConflictReason::Owned(0, Ipv4Addr::new(10, 0, 0, 81)));
    assert_eq!(conflict.external, (Ipv4Addr::new(203, 0, 113, 1), 5020));
    assert_eq!((conflict.host.1, conflict.ports), (Ipv4Addr::new(10, 0, 0, 80), (5016, 5031)));
    assert!(arrives(&mut lab, 5020, 81));
}

#[test]
fn a_block_that_the_host_has_becomes_its_own_for_good_and_back() {
    let mut lab = Lab::new(&blocks(&[]));
    let own = lab.external_of(&udp("10.0.0.80:4000", REMOTE));
    let (address, port) = own.split_once(':').unwrap();
    let (last, port): (u8, u16) = (address[10..].parse().unwrap(), port.parse().unwrap());
    let first = port - (port - 5000) % 16;
    let other = if port == first { first + 1 } else { first };
    assert_eq!(block_events(&mut lab), [(true, 80, first)]);
    // Another host gets no port of this block.
    let stranger = try_reload(&mut lab, &blocks(&[of_address(9, last, other)])).unwrap_err();
    assert!(matches!(stranger, ReconfigureError::Block(_)), "{stranger:?}");
    reload(&mut lab, &blocks(&[of_address(80, last, other)]));
    assert_eq!(lab.external_of(&udp("10.0.0.80:4000", REMOTE)), own);
    lab.wait_s(10_000.0);
    assert_eq!(block_events(&mut lab), []);
    lab.out(&udp("10.0.0.80:4000", REMOTE));
    reload(&mut lab, &blocks(&[]));
    assert_eq!(block_events(&mut lab), []);
    lab.wait_s(10_000.0);
    assert_eq!(block_events(&mut lab), [(false, 80, first)]);
}

#[test]
fn a_host_gets_no_more_blocks_than_it_may_have_and_of_one_address() {
    let mut lab = Lab::new(&blocks(&[forwarded(80, 5000), forwarded(80, 5016)]));
    for port in 1..=20 {
        lab.out(&udp(&format!("10.0.0.80:{port}"), REMOTE));
    }
    // Both blocks are in use, so neither can be exchanged for a third.
    let refused = try_reload(&mut lab, &blocks(&[forwarded(80, 5000), forwarded(80, 5032)]));
    let Err(ReconfigureError::Block(conflict)) = refused else { panic!("{refused:?}") };
    assert_eq!(conflict.why, ConflictReason::Count(3, 2));
    let paired = |statics: &[StaticMapping]| Config { pooling: Pooling::Paired, ..blocks(statics) };
    let mut lab = Lab::new(&paired(&[forwarded(80, 5000)]));
    lab.out(&udp("10.0.0.80:1", REMOTE));
    let refused = try_reload(&mut lab, &paired(&[of_address(80, 2, 5000)]));
    let Err(ReconfigureError::Block(conflict)) = refused else { panic!("{refused:?}") };
    assert_eq!(conflict.why, ConflictReason::Address(Ipv4Addr::new(203, 0, 113, 1)));
    // An empty block is exchanged for a block of another address.
    let mut lab = Lab::new(&paired(&[forwarded(80, 5000)]));
    reload(&mut lab, &paired(&[of_address(80, 2, 5016)]));
    let own = lab.external_of(&udp("10.0.0.80:1", REMOTE));
    assert!(own.starts_with("203.0.113.2:50"), "{own}");
}

#[test]
fn hosts_exchange_the_blocks_of_their_ports() {
    let own = |first: u8, second: u8| {
        let of = |host, ports: [u16; 2]| ports.map(|port| forwarded(host, port));
        blocks(&[of(first, [5000, 5016]), of(second, [5032, 5048])].concat())
    };
    let mut lab = Lab::new(&own(80, 81));
    reload(&mut lab, &own(81, 80));
    assert!(arrives(&mut lab, 5000, 81) && arrives(&mut lab, 5048, 80));
    let paired = |first, second| Config {
        pooling: Pooling::Paired,
        ..blocks(&[of_address(first, 1, 5000), of_address(second, 2, 5000)])
    };
    let mut lab = Lab::new(&paired(80, 81));
    reload(&mut lab, &paired(81, 80));
    assert!(arrives(&mut lab, 5000, 81));
}

#[test]
fn a_block_that_goes_to_another_pool_with_its_address_counts_no_longer() {
    let paired = |statics: &[StaticMapping]| Config { pooling: Pooling::Paired, ..blocks(statics) };
    let mut lab = Lab::new(&paired(&[forwarded(80, 5000)]));
    let mut new = paired(&[forwarded(80, 5000), of_address(80, 2, 5000)]);
    let of = |address: &str| PoolConfig {
        allocation: new.pools[0].allocation.clone(),
        ..pool(address, address, (5000, 5070))
    };
    new.pools = vec![of("203.0.113.2"), of("203.0.113.1")];
    reload(&mut lab, &new);
    lab.wait_s(10_000.0);
    assert!(arrives(&mut lab, 5000, 80));
    let own = lab.external_of(&udp("10.0.0.80:4000", REMOTE));
    assert!(own.starts_with("203.0.113.2:50"), "{own}");
}

/// Blocks of another size are another division of the address, which waits for the last mapping of
/// the old one.
#[test]
fn a_forwarded_port_gets_its_block_of_another_size_too() {
    let statics = [forwarded(80, 5020)];
    let mut lab = Lab::new(&blocks(&statics));
    lab.wait_s(0.0);
    lab.out(&udp("10.0.0.80:4000", REMOTE));
    assert_eq!(block_events(&mut lab), [(true, 80, 5016)]);
    let mut larger = blocks(&statics);
    let block = BlockConfig { size: 32, max_per_subscriber: 2, release_after: RELEASE };
    larger.pools[0].allocation = Some(Allocation::Block(block));
    reload(&mut lab, &larger);
    assert!(arrives(&mut lab, 5020, 80));
    lab.wait_s(10_000.0);
    assert_eq!(block_events(&mut lab), [(false, 80, 5016), (true, 80, 5000)]);
    assert_eq!(lab.engine.draining().count(), 0);
    let own = lab.external_of(&udp("10.0.0.80:4000", REMOTE));
    assert!(("203.0.113.1:5000".."203.0.113.1:5032").contains(&&own[..]), "{own}");
}
