//! Engine and model on requested mappings: small cases of former differences, and cases that the
//! random comparison seldom reaches.

mod common;

use common::{A, EXTERNAL, REMOTE, START, Spec, end};
use natgate_compare::{Divergence, Pair};
use natgate_engine::{
    AddressRange, Allocation, Behavior, BlockConfig, Config, Endpoint, Limits, MapRequest, Match,
    PeerRequest, PoolConfig, Pooling, Prefix, RemoteFilter, Rule, RuleAction, Side, Timestamp,
    WantedEndpoint,
};
use natgate_wire::protocol::{TCP, UDP};
use std::net::Ipv4Addr;
use std::time::Duration;

const B: Endpoint = end([10, 0, 0, 2], 5000);
const OTHER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const MINUTE: Duration = Duration::from_secs(60);

/// Hosts may make requests. Without requests no stranger is admitted.
fn config() -> Config {
    let base = common::config();
    Config {
        limits: Limits { explicit_mappings: 16, explicit_per_subscriber: 8, ..base.limits.clone() },
        filtering: Behavior::AddressAndPortDependent,
        ..base
    }
}

/// One pool of two addresses.
fn pool(ports: (u16, u16)) -> Vec<PoolConfig> {
    let addresses = vec![AddressRange { first: EXTERNAL.address, last: OTHER }];
    vec![PoolConfig { addresses, ports, ..common::config().pools[0].clone() }]
}

fn map(protocol: u8, internal: Endpoint, wanted: WantedEndpoint) -> MapRequest<'static> {
    MapRequest {
        protocol,
        realm: 0,
        internal,
        wanted,
        lifetime: MINUTE,
        nonce: [1; 12],
        replaces_filters: false,
        filters: &[],
    }
}

fn peer(protocol: u8, internal: Endpoint, wanted: WantedEndpoint) -> PeerRequest {
    let (realm, remote, lifetime, nonce) = (0, REMOTE, MINUTE, [1; 12]);
    PeerRequest { protocol, realm, internal, remote, wanted, lifetime, nonce }
}

fn wish(address: Ipv4Addr) -> WantedEndpoint {
    WantedEndpoint { address: Some(address), port: 0, strict: false }
}

fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

/// 5.8, 16.20: if a rule gives the address, a suggestion of the same address does not lead to
/// another.
#[test]
fn a_rules_address_is_the_only_one() -> Result<(), Divergence> {
    let all = Match::Source(Prefix::new(Ipv4Addr::UNSPECIFIED, 0), 0);
    let rules = vec![Rule::new(all, RuleAction::SnatTo(0, EXTERNAL.address))];
    let mut pair =
        Pair::new(&Config { rules, pools: pool((2000, 2000)), ..config() }, [0; 32], START)?;
    for internal in [A, B] {
        for strict in [false, true] {
            let wanted = WantedEndpoint { strict, ..wish(EXTERNAL.address) };
            pair.map(START, &map(UDP, internal, wanted))?;
            pair.check_state()?;
        }
    }
    assert_eq!(pair.model.mappings().len(), 1);
    Ok(())
}

/// 16.24: a suggestion of an address without free ports fails no request, unless it is strict, and
/// raises no event.
#[test]
fn a_wish_for_a_full_address_harms_nobody() -> Result<(), Divergence> {
    for pooling in [Pooling::Paired, Pooling::SoftPaired, Pooling::Arbitrary] {
        let config = Config { pools: pool((2000, 2000)), pooling, ..config() };
        let mut pair = Pair::new(&config, [0; 32], START)?;
        pair.map(START, &map(TCP, A, wish(OTHER)))?;
        pair.peer(START, &peer(TCP, B, wish(OTHER)))?;
        pair.map(START, &map(TCP, B, wish(OTHER)))?;
        pair.map(START, &map(TCP, end([10, 0, 0, 3], 1), wish(OTHER)))?;
        pair.check_state()?;
        assert_eq!(pair.model.mappings().len(), 2);
    }
    Ok(())
}

/// An error assigns no block, whatever block the random draw gives.
#[test]
fn a_block_elsewhere_is_not_assigned_in_vain() -> Result<(), Divergence> {
    let block = BlockConfig { size: 16, max_per_subscriber: 2, ..BlockConfig::default() };
    let allocation = Allocation::Block(block);
    for seed in 0..8 {
        let pooling = Pooling::Arbitrary;
        let (allocation, pools) = (allocation.clone(), pool((2000, 2031)));
        let config = Config { allocation, pooling, pools, ..config() };
        let mut pair = Pair::new(&config, [seed; 32], START)?;
        for internal in [A, B, Endpoint { port: 1, ..A }, Endpoint { port: 1, ..B }] {
            pair.peer(START, &peer(TCP, internal, wish(OTHER)))?;
            pair.check_state()?;
        }
    }
    Ok(())
}

/// 16.23: no request gets a port of the protocols themselves. If only these ports have the right
/// parity, a port of the other parity is given.
#[test]
fn ports_of_the_protocols_themselves_are_left_out() -> Result<(), Divergence> {
    for allocation in [Allocation::Random, Allocation::Preserve] {
        for ports in [(5349, 5352), (5350, 5351), (5350, 5352), (5351, 5353)] {
            let mut pools = pool(ports);
            pools[0].addresses[0].last = EXTERNAL.address;
            let allocation = allocation.clone();
            let config = Config { pools, allocation, ..config() };
            let mut pair = Pair::new(&config, [0; 32], START)?;
            for port in [5350, 5351, 5352, 5353, 65_535] {
                for internal in [A, B] {
                    let internal = Endpoint { port, ..internal };
                    pair.map(START, &map(UDP, internal, WantedEndpoint::default()))?;
                    pair.map(START, &map(TCP, internal, WantedEndpoint::default()))?;
                }
                pair.check_state()?;
            }
        }
    }
    Ok(())
}

/// 16.13, with explanations of such packets: remote endpoints that a host's filters name are
/// admitted, although the filtering behavior admits no others.
#[test]
fn strangers_come_in_as_the_host_has_said() -> Result<(), Divergence> {
    for (mapping, inbound_refresh) in
        [(Behavior::EndpointIndependent, true), (Behavior::AddressAndPortDependent, false)]
    {
        let config = Config { mapping, inbound_refresh, ..config() };
        let mut pair = Pair::new(&config, [0; 32], START)?;
        let filter =
            RemoteFilter { address: REMOTE.address.to_bits(), prefix_len: 24, port: REMOTE.port };
        pair.map(
            START,
            &MapRequest { filters: &[filter], ..map(UDP, A, WantedEndpoint::default()) },
        )?;
        let external = pair.model.mappings()[0].id.external;
        for (at, remote) in [REMOTE, Endpoint { port: 81, ..REMOTE }, end([192, 0, 2, 200], 80)]
            .into_iter()
            .enumerate()
        {
            let into = Spec::new(UDP, remote, external).bytes();
            pair.process(after(at as u64), Side::Outside, &[into])?;
            let out = Spec::new(UDP, A, remote).bytes();
            pair.process(after(at as u64), Side::Inside, &[out])?;
            pair.check_state()?;
        }
        for seconds in [59, 61, 299, 310, 700] {
            pair.advance(after(seconds))?;
            pair.check_state()?;
            let into = Spec::new(UDP, Endpoint { port: 82, ..REMOTE }, external).bytes();
            pair.process(after(seconds), Side::Outside, &[into])?;
        }
        assert_eq!(pair.model.mappings().len(), 0);
    }
    Ok(())
}

/// 16.4: if a mapping goes with its sessions, one of which was requested, all events name that
/// mapping, in any order.
#[test]
fn sessions_that_go_together_are_told_alike() -> Result<(), Divergence> {
    for (first, for_all) in [(0, false), (1, false), (2, false), (1, true)] {
        let config = Config { session_events: true, ..config() };
        let mut pair = Pair::new(&config, [0; 32], START)?;
        for port in [80, 81, 82] {
            let remote = Endpoint { port, ..REMOTE };
            pair.process(START, Side::Inside, &[Spec::new(UDP, A, remote).bytes()])?;
        }
        let remote = Endpoint { port: 80 + first, ..REMOTE };
        pair.peer(START, &PeerRequest { remote, ..peer(UDP, A, WantedEndpoint::default()) })?;
        if for_all {
            pair.map(START, &map(UDP, A, WantedEndpoint::default()))?;
        }
        pair.advance(after(1))?;
        let subscribers = vec![Prefix::new(B.address, 32)];
        pair.reconfigure(&Config { subscribers, ..config })?;
        assert_eq!(pair.model.mappings().len(), 0);
        pair.check_state()?;
    }
    Ok(())
}
