//! A world so small that everything that can happen in it is tried: two subscribers, two external
//! addresses with two ports each, two remotes, three timers, and every sequence of a dozen
//! operations up to a depth, engine against model after each step.
//!
//! Sequences that lead to the same state (as the model tells states apart) are followed once. Depth
//! and time grow together; TINY_WORLD_DEPTH sets the depth.

mod common;

use common::{Spec, end};
use natgate_engine::{
    AddressRange, Allocation, Behavior, Config, Endpoint, Limits, MappingInfo, PoolConfig, Pooling,
    Side, TICK, Timeouts, Timestamp,
};
use natgate_model::compare::{Divergence, Pair};
use natgate_wire::protocol::{TCP, UDP};
use natgate_wire::tcp::flags::{ACK, RST, SYN};
use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

const A: Endpoint = end([10, 0, 0, 1], 5000);
const B: Endpoint = end([10, 0, 0, 2], 5001);
const REMOTE: Endpoint = end([198, 51, 100, 1], 80);
const STRANGER: Endpoint = end([198, 51, 100, 2], 80);
const EXTERNAL: Endpoint = end([203, 0, 113, 1], 2000);

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A UDP datagram to the remote.
    Udp(Endpoint),
    /// A TCP segment to the remote.
    Tcp(Endpoint, u8),
    /// A UDP datagram from a remote to an endpoint's external one.
    UdpTo(Endpoint, Endpoint),
    /// A TCP segment from the remote to an endpoint's external one.
    TcpTo(Endpoint, u8),
    /// A UDP datagram from one subscriber to the other's external endpoint.
    Hairpin(Endpoint, Endpoint),
    /// One tick.
    Tick,
    /// Until the next thing is due.
    Next,
}

const OPERATIONS: [Operation; 12] = [
    Operation::Udp(A),
    Operation::Udp(Endpoint { port: 5002, ..A }),
    Operation::Udp(B),
    Operation::Tcp(A, SYN),
    Operation::Tcp(A, ACK),
    Operation::UdpTo(REMOTE, A),
    Operation::UdpTo(STRANGER, B),
    Operation::TcpTo(A, SYN),
    Operation::TcpTo(A, RST),
    Operation::Hairpin(A, B),
    Operation::Tick,
    Operation::Next,
];

fn config() -> Config {
    let last = Endpoint::new(EXTERNAL.address.to_bits() + 1, 0).address;
    let timers = |tcp, udp, hold_down| Timeouts {
        udp: Duration::from_millis(udp),
        tcp_opening: Duration::from_millis(tcp),
        tcp_established: Duration::from_millis(tcp),
        tcp_closing: Duration::from_millis(tcp),
        hold_down: Duration::from_millis(hold_down),
        ..Timeouts::default()
    };
    Config {
        pools: vec![PoolConfig {
            name: "tiny".into(),
            addresses: vec![AddressRange { first: EXTERNAL.address, last }],
            ports: (2000, 2001),
        }],
        limits: Limits { sessions_per_mapping: 2, fragment_memory: 1024, ..Limits::default() },
        timeouts: timers(1250, 1000, 500),
        ..Config::default()
    }
}

/// The external endpoint of an internal one, or that of nobody.
fn external_of(pair: &Pair, protocol: u8, internal: Endpoint) -> Endpoint {
    let is_it = |one: &MappingInfo| one.id.protocol == protocol && one.id.internal == internal;
    pair.model.mappings().iter().find(|one| is_it(one)).map_or(EXTERNAL, |one| one.id.external)
}

fn apply(pair: &mut Pair, operation: Operation) -> Result<(), Divergence> {
    let now = pair.model.now();
    let tcp = |from, to, flags| {
        let spec = Spec::new(TCP, from, to);
        let sequence = if flags & SYN != 0 { 1000 } else { 1001 };
        Spec { flags, sequence, acknowledgment: 1001, ..spec }
    };
    let (from, spec) = match operation {
        Operation::Tick => return pair.advance(now.plus(TICK)).map(drop),
        Operation::Next => {
            let next = pair.model.next_tick().unwrap_or(now);
            return pair.advance(next.max(now)).map(drop);
        }
        Operation::Udp(source) => (Side::Inside, Spec::new(UDP, source, REMOTE)),
        Operation::Tcp(source, flags) => (Side::Inside, tcp(source, REMOTE, flags)),
        Operation::UdpTo(remote, to) => {
            (Side::Outside, Spec::new(UDP, remote, external_of(pair, UDP, to)))
        }
        Operation::TcpTo(to, flags) => {
            (Side::Outside, tcp(REMOTE, external_of(pair, TCP, to), flags))
        }
        Operation::Hairpin(source, to) => {
            (Side::Inside, Spec::new(UDP, source, external_of(pair, UDP, to)))
        }
    };
    pair.process(now, from, &[spec.bytes()]).map(drop)
}

/// The state that a sequence of operations leads to.
fn replay(config: &Config, path: &[Operation]) -> Pair {
    let start = Timestamp(1_000_000_000_000_000_000);
    let mut pair = Pair::new(config, [7; 32], start).expect("a good configuration");
    let agreed = path.iter().try_for_each(|operation| apply(&mut pair, *operation));
    agreed.expect("they agreed before");
    pair
}

/// Tries everything; returns how many states and how many steps there were.
fn explore(config: &Config, depth: usize) -> (usize, usize) {
    let mut seen = HashSet::from([replay(config, &[]).model.digest()]);
    let mut steps = 0;
    let mut level: Vec<Vec<Operation>> = vec![Vec::new()];
    for left in (0..depth).rev() {
        let mut next = Vec::new();
        for path in &level {
            for operation in OPERATIONS {
                let mut pair = replay(config, path);
                let agreed = apply(&mut pair, operation).and_then(|()| pair.check_state());
                let path: Vec<Operation> = path.iter().copied().chain([operation]).collect();
                agreed.unwrap_or_else(|divergence| panic!("{divergence}\nafter {path:?}"));
                steps += 1;
                if seen.insert(pair.model.digest()) && left > 0 {
                    next.push(path);
                }
            }
        }
        level = next;
    }
    (seen.len(), steps)
}

fn depth(usual: usize) -> usize {
    let depth = std::env::var("TINY_WORLD_DEPTH").ok().and_then(|depth| depth.parse().ok());
    depth.unwrap_or(usual)
}

#[test]
fn everything_that_can_happen_in_a_tiny_world() {
    for (mapping, filtering, pooling, allocation) in [
        (
            Behavior::EndpointIndependent,
            Behavior::EndpointIndependent,
            Pooling::Paired,
            Allocation::Random,
        ),
        (
            Behavior::AddressAndPortDependent,
            Behavior::AddressDependent,
            Pooling::Arbitrary,
            Allocation::Preserve,
        ),
    ] {
        let config = Config { mapping, filtering, pooling, allocation, ..config() };
        let depth = depth(6);
        let begun = std::time::Instant::now();
        let (states, steps) = explore(&config, depth);
        // Past the test runner, which would keep it to itself.
        let _ = writeln!(
            std::io::stderr(),
            "{mapping:?}, {pooling:?}: {states} states, {steps} steps to depth {depth}, {:?}",
            begun.elapsed()
        );
        assert!(states > 1000 || depth < 5, "the world is smaller than it should be");
    }
}
