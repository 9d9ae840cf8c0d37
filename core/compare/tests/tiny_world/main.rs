//! A world so small that all its sequences of operations can be tried: two subscribers, two
//! external addresses with two ports each, two remotes, three timers. Every sequence of a dozen or
//! so operations up to a depth is tried, and engine and model are compared after each step. One set
//! of operations is about mappings, another about connections, errors and restarts, a third about
//! packets of strangers. `nat64` has a world of hosts with IPv6.
//!
//! Sequences that lead to the same state (by the model's digest) are followed once. Depth and time
//! grow together; TINY_WORLD_DEPTH sets the depth.

#[path = "../common/mod.rs"]
mod common;
mod nat64;

use common::{A, EXTERNAL, REMOTE, Spec, end};
use natgate_compare::{Divergence, Pair};
use natgate_engine::{
    AddressRange, Allocation, Behavior, Config, Endpoint, Limits, MappingInfo, PoolConfig, Pooling,
    Refusal, Side, TICK, Timeouts, Timestamp,
};
use natgate_wire::dccp::kind::{DATA, LISTEN, REQUEST, RESET, RESPONSE};
use natgate_wire::protocol::{DCCP, TCP, UDP};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

const B: Endpoint = end([10, 0, 0, 2], 5001);
const STRANGER: Endpoint = end([198, 51, 100, 2], 80);
const THIRD: Endpoint = end([198, 51, 100, 3], 80);
const FOURTH: Endpoint = end([198, 51, 100, 4], 80);

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A UDP datagram to the remote.
    Udp(Endpoint),
    /// A TCP segment to the remote.
    Tcp(Endpoint, u8),
    /// A UDP datagram to a stranger.
    UdpOff(Endpoint),
    /// A UDP datagram from a remote to an endpoint's external one.
    UdpTo(Endpoint, Endpoint),
    /// A TCP segment from the remote to an endpoint's external one.
    TcpTo(Endpoint, u8),
    /// A UDP datagram from one subscriber to the other's external endpoint.
    Hairpin(Endpoint, Endpoint),
    /// A DCCP packet of a type to the remote.
    Dccp(Endpoint, u8),
    /// A DCCP packet of a type from the remote to an endpoint's external one.
    DccpTo(Endpoint, u8),
    /// Both ends open a TCP connection to the remote.
    Open(Endpoint),
    /// A right FIN to the remote.
    Fin(Endpoint),
    /// A FIN in the remote's name to an endpoint's external one, at this distance from the right
    /// one.
    FinTo(Endpoint, i32),
    /// A SYN in the remote's name, and a RST that follows it, to an endpoint's external one.
    Forged(Endpoint),
    /// A UDP datagram with its last hop here.
    Last(Endpoint),
    /// Another engine takes over.
    Restart,
    /// One tick.
    Tick,
    /// Time until the next thing is due.
    Next,
}

const MAPPINGS: &[Operation] = &[
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

const CONNECTIONS: &[Operation] = &[
    Operation::Dccp(A, REQUEST),
    Operation::Dccp(B, LISTEN),
    Operation::Dccp(A, DATA),
    Operation::DccpTo(A, RESPONSE),
    Operation::DccpTo(A, REQUEST),
    Operation::DccpTo(A, RESET),
    Operation::Tcp(A, SYN),
    Operation::TcpTo(A, SYN | ACK),
    Operation::Forged(A),
    Operation::Last(A),
    Operation::Last(B),
    Operation::Restart,
    Operation::Tick,
    Operation::Next,
];

const STRANGERS: &[Operation] = &[
    Operation::Udp(A),
    Operation::UdpOff(A),
    Operation::UdpTo(THIRD, A),
    Operation::UdpTo(FOURTH, A),
    Operation::Udp(B),
    Operation::UdpOff(B),
    Operation::Tick,
    Operation::Next,
];

const FORGERS: &[Operation] = &[
    Operation::Open(A),
    Operation::Tcp(A, SYN),
    Operation::Tcp(A, ACK),
    Operation::Fin(A),
    Operation::FinTo(A, 0),
    Operation::FinTo(A, 0xffff << 2),
    Operation::FinTo(A, -(0xffff << 2)),
    Operation::FinTo(A, -(0xffff << 2) - 1),
    Operation::TcpTo(A, ACK),
    Operation::TcpTo(A, RST),
    Operation::Forged(A),
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
            ..PoolConfig::default()
        }],
        limits: Limits { sessions_per_mapping: 2, fragment_memory: 1024, ..Limits::default() },
        timeouts: timers(1250, 1000, 500),
        ..Config::default()
    }
}

/// The external endpoint of an internal one, or an endpoint without a mapping.
fn external_of(pair: &Pair, protocol: u8, internal: Endpoint) -> Endpoint {
    let is_it = |one: &MappingInfo| one.id.protocol == protocol && one.id.internal == internal;
    pair.model.mappings().iter().find(|one| is_it(one)).map_or(EXTERNAL, |one| one.id.external)
}

/// Configuration of the world of connections.
fn connections() -> Config {
    let config = config();
    Config {
        filtering_tcp: Some(Behavior::AddressAndPortDependent),
        tcp_mss: Some(1000),
        refusal: Refusal::Prohibited,
        limits: Limits { held_ports: Some(1), icmp_errors_per_second: 4, ..config.limits },
        ..config
    }
}

/// Configuration of the world of strangers.
fn strangers() -> Config {
    let config = config();
    let limits = Limits {
        sessions_per_mapping: 4,
        extra_sessions: Some(2),
        extra_sessions_per_subscriber: Some(2),
        ..config.limits
    };
    Config { inbound_refresh: false, limits, ..config }
}

/// Engine and model in lock-step.
trait World: Sized {
    type Operation: Copy + std::fmt::Debug;

    /// Gives an operation to both, and compares the results.
    fn apply(&mut self, operation: Self::Operation) -> Result<(), Divergence>;

    /// Compares the states.
    fn check(&self) -> Result<(), Divergence>;

    /// A hash of the state.
    fn digest(&self) -> u64;
}

impl World for Pair {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation) -> Result<(), Divergence> {
        apply(self, operation)
    }

    fn check(&self) -> Result<(), Divergence> {
        self.check_state()
    }

    fn digest(&self) -> u64 {
        self.model.digest()
    }
}

fn apply(pair: &mut Pair, operation: Operation) -> Result<(), Divergence> {
    let now = pair.model.now();
    let tcp = |from, to, flags| {
        let spec = Spec::new(TCP, from, to);
        let sequence = if flags & SYN != 0 { 1000 } else { 1001 };
        let (mss, scale) = (Some((1460, 1)), Some(2));
        Spec { flags, sequence, acknowledgment: 1001, mss, scale, ..spec }
    };
    let dccp = |from, to, kind| Spec { dccp: (kind, true), ..Spec::new(DCCP, from, to) };
    let (from, spec) = match operation {
        Operation::Tick => return pair.advance(now.plus(TICK)).map(drop),
        Operation::Next => {
            let next = pair.model.next_tick().unwrap_or(now);
            return pair.advance(next.max(now)).map(drop);
        }
        Operation::Restart => return pair.restart([9; 32]),
        Operation::Open(source) => {
            let syn = [tcp(source, REMOTE, SYN).bytes()];
            pair.process(now, Side::Inside, &syn)?;
            let to = external_of(pair, TCP, source);
            pair.process(now, Side::Outside, &[tcp(REMOTE, to, SYN | ACK).bytes()])?;
            (Side::Inside, tcp(source, REMOTE, ACK))
        }
        Operation::Fin(source) => (Side::Inside, tcp(source, REMOTE, FIN | ACK)),
        Operation::FinTo(to, off) => {
            let fin = tcp(REMOTE, external_of(pair, TCP, to), FIN);
            (Side::Outside, Spec { sequence: fin.sequence.wrapping_add_signed(off), ..fin })
        }
        Operation::Forged(to) => {
            let to = external_of(pair, TCP, to);
            let syn = Spec { sequence: 5000, ..tcp(REMOTE, to, SYN) };
            let reset = Spec { sequence: 5001, ..tcp(REMOTE, to, RST) };
            let packets = [syn.bytes(), reset.bytes()];
            return pair.process(now, Side::Outside, &packets).map(drop);
        }
        Operation::Last(source) => {
            (Side::Inside, Spec { ttl: 1, service: 3, ..Spec::new(UDP, source, REMOTE) })
        }
        Operation::Dccp(source, kind) => (Side::Inside, dccp(source, REMOTE, kind)),
        Operation::DccpTo(to, kind) => {
            (Side::Outside, dccp(REMOTE, external_of(pair, DCCP, to), kind))
        }
        Operation::Udp(source) => (Side::Inside, Spec::new(UDP, source, REMOTE)),
        Operation::UdpOff(source) => (Side::Inside, Spec::new(UDP, source, STRANGER)),
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
fn replay<W: World>(new: &dyn Fn() -> W, path: &[W::Operation]) -> W {
    let mut world = new();
    let agreed = path.iter().try_for_each(|operation| world.apply(*operation));
    agreed.expect("they agreed before");
    world
}

/// Tries everything. Returns the number of states and of steps.
fn explore<W: World>(
    new: &dyn Fn() -> W,
    operations: &[W::Operation],
    depth: usize,
) -> (usize, usize) {
    let mut seen = HashSet::from([new().digest()]);
    let mut steps = 0;
    let mut level: Vec<Vec<W::Operation>> = vec![Vec::new()];
    for left in (0..depth).rev() {
        let mut next = Vec::new();
        for path in &level {
            for operation in operations {
                let mut world = replay(new, path);
                let agreed = world.apply(*operation).and_then(|()| world.check());
                let path: Vec<_> = path.iter().copied().chain([*operation]).collect();
                agreed.unwrap_or_else(|divergence| panic!("{divergence}\nafter {path:?}"));
                steps += 1;
                if seen.insert(world.digest()) && left > 0 {
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

/// Start of every world.
const BEGIN: Timestamp = Timestamp(1_000_000_000_000_000_000);

/// Explores a world of IPv4.
fn try_everything(config: &Config, operations: &[Operation], depth: usize) {
    let name = format!("{:?}, {:?}", config.mapping, config.pooling);
    let new = || Pair::new(config, [7; 32], BEGIN).expect("a good configuration");
    explore_and_tell(&name, &new, operations, depth);
}

/// Explores a world and prints its size.
fn explore_and_tell<W: World>(
    name: &str,
    new: &dyn Fn() -> W,
    operations: &[W::Operation],
    depth: usize,
) {
    let begun = std::time::Instant::now();
    let (states, steps) = explore(new, operations, depth);
    // Written directly to standard error, because the test runner would capture it.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {states} states, {steps} steps to depth {depth}, {:?}",
        begun.elapsed()
    );
    assert!(states > 1000 || depth < 5, "the world is smaller than it should be");
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
        try_everything(&config, MAPPINGS, depth(6));
    }
}

#[test]
fn everything_that_can_happen_to_tiny_connections() {
    try_everything(&connections(), CONNECTIONS, depth(5));
}

#[test]
fn everything_that_strangers_can_do_to_a_tiny_world() {
    try_everything(&strangers(), STRANGERS, depth(7));
}

#[test]
fn everything_that_can_be_forged_of_a_tiny_connection() {
    for inbound_refresh in [true, false] {
        let mut config = Config { inbound_refresh, ..config() };
        // Each timeout is different, to identify the one that applied.
        config.timeouts.tcp_opening = Duration::from_millis(1000);
        config.timeouts.tcp_closing = Duration::from_millis(1500);
        try_everything(&config, FORGERS, depth(7));
    }
}
