//! Connections to the servers of a service, while servers come and go. Clients use few ports, so
//! most SYNs meet a session of an earlier connection.

use super::cases;
use super::common::{EXTERNAL, REMOTE, START, Spec, config, end};
use natgate_compare::{Divergence, Pair};
use natgate_engine::{Affinity, Config, Endpoint, Server, Service, Side, Timestamp};
use natgate_wire::dccp::kind;
use natgate_wire::protocol::{DCCP, TCP};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Operation {
    /// A client sends: its place, and the place of the packet's kind.
    Client(usize, usize),
    /// The server of a client's session sends.
    Server(usize, usize),
    /// A server is marked as up or down.
    Mark(usize, bool),
    /// Time passes, milliseconds.
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let kind = prop_oneof![4 => Just(0_usize), 1 => Just(1), 3 => Just(2), 2 => Just(3)];
    let wait = prop::sample::select(vec![10_u64, 125, 6000, 100_000, 240_000, 7_440_000]);
    prop_oneof![
        6 => (0_usize..3, kind.clone()).prop_map(|(client, kind)| Operation::Client(client, kind)),
        6 => (0_usize..3, kind).prop_map(|(client, kind)| Operation::Server(client, kind)),
        2 => (0_usize..3, any::<bool>()).prop_map(|(server, up)| Operation::Mark(server, up)),
        2 => wait.prop_map(Operation::Wait),
    ]
}

/// Clients outside, and one inside that reaches the service by a hairpin.
const CLIENTS: [Endpoint; 3] = [REMOTE, Endpoint { port: 81, ..REMOTE }, end([10, 0, 0, 7], 4000)];
const FRONT: Endpoint = Endpoint { port: 80, ..EXTERNAL };

fn service(weights: [u16; 3], draining: usize, affinity: Affinity) -> Config {
    let servers = weights.into_iter().enumerate().map(|(number, weight)| Server {
        internal: (end([10, 0, 1, number as u8], 0).address, 8080),
        weight,
        draining: number == draining,
        backup: number == 2,
    });
    let (servers, external) = (servers.collect(), (FRONT.address, FRONT.port));
    let services = vec![Service { realm: 0, protocol: None, external, servers, affinity }];
    Config { services, session_events: true, ..config() }
}

/// A packet of a connection. Sequence numbers do not advance, so that a reset is often valid.
fn packet(protocol: u8, kind: usize, [source, destination]: [Endpoint; 2], opens: bool) -> Vec<u8> {
    let first = if opens { SYN } else { SYN | ACK };
    let flags = [first, ACK, FIN | ACK, RST | ACK][kind];
    let first = if opens { kind::REQUEST } else { kind::RESPONSE };
    let dccp = ([first, kind::ACK, kind::CLOSE, kind::RESET][kind], true);
    let sequence = if kind == 0 { 1000 } else { 1001 };
    let acknowledgment = if kind == 0 && opens { 0 } else { 1001 };
    let spec = Spec::new(protocol, source, destination);
    Spec { flags, dccp, sequence, acknowledgment, ..spec }.bytes()
}

fn run(config: &Config, seed: [u8; 32], protocol: u8, all: &[Operation]) -> Result<(), Divergence> {
    let (mut pair, mut now): (Pair, Timestamp) = (Pair::new(config, seed, START)?, START);
    for operation in all {
        match *operation {
            Operation::Client(client, kind) => {
                let client = CLIENTS[client];
                let from = if client == CLIENTS[2] { Side::Inside } else { Side::Outside };
                let packet = packet(protocol, kind, [client, FRONT], true);
                pair.process(now, from, &[packet])?;
            }
            Operation::Server(client, kind) => {
                let remote = match client {
                    2 => pair.engine.mappings().find(|one| one.id.internal == CLIENTS[2]),
                    _ => None,
                };
                let remote = remote.map_or(CLIENTS[client], |mapping| mapping.id.external);
                let session = pair.engine.sessions().find(|one| {
                    one.mapping.external == FRONT
                        && one.mapping.protocol == protocol
                        && one.remote == remote
                });
                if let Some(session) = session {
                    let ends = [session.mapping.internal, remote];
                    let packet = packet(protocol, kind, ends, false);
                    pair.process(now, Side::Inside, &[packet])?;
                }
            }
            Operation::Mark(server, is_up) => pair.mark_server(0, server, is_up),
            Operation::Wait(time) => {
                now = now.plus(Duration::from_millis(time));
                pair.advance(now)?;
            }
        }
        pair.check_state()?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(600))]

    /// Engine and model agree about the servers that connections go to.
    #[test]
    fn engine_agrees_with_model_about_servers(
        seed in any::<[u8; 32]>(),
        (weights, draining) in (any::<[bool; 3]>(), 0_usize..9),
        affinity in prop::sample::select(vec![Affinity::Address, Affinity::None]),
        protocol in prop::sample::select(vec![TCP, DCCP]),
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let config = service(weights.map(|one| 2 - u16::from(one)), draining, affinity);
        run(&config, seed, protocol, &operations).map_err(TestCaseError::fail)?;
    }
}
