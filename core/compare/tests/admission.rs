//! Engine and model under pressure (specification, section 18): more hosts want something than
//! there is room for. There are many hosts, few of them answered, small tables, and little time
//! between packets. A failing case is shrunk, and proptest prints and keeps its seed.

mod common;

use common::{EXTERNAL, REMOTE, START, Spec};
use natgate_compare::{Divergence, Done, Pair};
use natgate_engine::{
    AddressRange, Allocation, BlockConfig, Config, Endpoint, Limits, MapRequest, MappingInfo,
    Match, PeerRequest, PoolConfig, Pooling, Prefix, Rule, RuleAction, Side, Timestamp, Verdict,
    WantedEndpoint,
};
use natgate_wire::protocol::{GRE, TCP, UDP};
use natgate_wire::tcp::flags::{ACK, SYN};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::time::Duration;

const HOSTS: u32 = 24;
/// A remote endpoint that rules know.
const OTHER_REMOTE: Endpoint = Endpoint { address: Ipv4Addr::new(198, 51, 100, 2), port: 80 };

#[derive(Clone, Debug)]
enum Operation {
    /// Hosts each begin a flow, in one batch: the protocol, the host and its port.
    Begin(Vec<(u8, u32, u16)>),
    /// The remote endpoint answers flows that were let out, in one batch.
    Answer(Vec<prop::sample::Index>),
    /// A host requests a mapping for all remote endpoints.
    Ask(u32, u16),
    /// A host requests a TCP mapping for all, and a stranger opens a connection to it. The number
    /// counts the packets: SYN, the host's SYN and ACK, the stranger's ACK.
    Serve(u32, u16, usize),
    /// A host requests a session.
    AskPeer(u32, u16),
    /// Time passes, milliseconds.
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let protocol = prop_oneof![6 => Just(UDP), 2 => Just(TCP), 1 => Just(GRE)];
    let flow = (protocol, 0..HOSTS, 5000_u16..5003);
    prop_oneof![
        6 => prop::collection::vec(flow, 1..12).prop_map(Operation::Begin),
        2 => prop::collection::vec(any::<prop::sample::Index>(), 1..4).prop_map(Operation::Answer),
        2 => (0..HOSTS, 5000_u16..5006).prop_map(|(host, port)| Operation::Ask(host, port)),
        1 => (0..HOSTS, 5000_u16..5006).prop_map(|(host, port)| Operation::AskPeer(host, port)),
        1 => (0..HOSTS, 5000_u16..5006, 1_usize..4)
            .prop_map(|(host, port, packets)| Operation::Serve(host, port, packets)),
        6 => prop::sample::select(vec![1, 50, 125, 249, 250, 300, 5000]).prop_map(Operation::Wait),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let limits = (
        prop_oneof![Just(None), (2_u32..20).prop_map(Some)],
        prop_oneof![Just(1000), 4_u32..40],
        1_u32..20,
        prop::sample::select(vec![1_u8, 25, 100]),
        prop_oneof![Just(None), (0_u32..4).prop_map(Some)],
    );
    let ports = prop::sample::select(vec![(4096, 4127), (4096, 4103), (4096, 5119)]);
    let pooling = prop::sample::select(vec![Pooling::Paired, Pooling::Arbitrary]);
    (limits, ports, 0_u32..3, any::<bool>(), pooling, any::<[bool; 4]>()).prop_map(
        |(limits, ports, more, in_blocks, pooling, bits)| {
            let [session_events, overloading, several, is_whole] = bits;
            let ports = if is_whole { Allocation::ALL_PORTS } else { ports };
            let (subscribers, mappings, explicit_mappings, asking_share, held_ports) = limits;
            let last = (EXTERNAL.address.to_bits() + more).into();
            let addresses = vec![AddressRange { first: EXTERNAL.address, last }];
            let base = common::config();
            let in_blocks = in_blocks && ports != (4096, 4103) && !is_whole;
            let block = BlockConfig {
                size: 16,
                max_per_subscriber: 2,
                release_after: Duration::from_secs(2),
            };
            let allocation = match (is_whole, in_blocks) {
                (true, _) => Allocation::Address,
                (false, true) => Allocation::Block(block),
                (false, false) => Allocation::Random,
            };
            let mut pools = vec![PoolConfig {
                addresses,
                ports,
                overloading: overloading && more == 2 && !in_blocks && !is_whole,
                ..base.pools[0].clone()
            }];
            let mut rules = Vec::new();
            if several {
                // Most hosts have a pool of their own: those of 10.0.1.0/28. For flows to one
                // remote host, the others have it too.
                let address = (EXTERNAL.address.to_bits() + 8).into();
                let addresses = vec![AddressRange { first: address, last: address }];
                let name = "other".into();
                pools.push(PoolConfig { name, addresses, ports, ..PoolConfig::default() });
                let hosts = Prefix::new(internal(0, 0).address, 28);
                rules.push(Rule::new(Match::Source(hosts, 0), RuleAction::Snat(1)));
                let far = Prefix::new(OTHER_REMOTE.address, 32);
                rules.push(Rule::new(Match::Destination(far, 0), RuleAction::Snat(1)));
            }
            Config {
                pools,
                rules,
                allocation,
                limits: Limits {
                    subscribers,
                    mappings: Some(mappings),
                    explicit_mappings,
                    asking_share,
                    held_ports,
                    unanswered_kept: more,
                    ..base.limits.clone()
                },
                pooling,
                session_events,
                ..base
            }
        },
    )
}

struct World {
    pair: Pair,
    now: Timestamp,
    /// Flows that were let out, by protocol, external and remote endpoint.
    out: Vec<(u8, Endpoint, Endpoint)>,
}

impl World {
    /// Requests a mapping for a day.
    fn ask(&mut self, protocol: u8, internal: Endpoint) -> Result<(), Divergence> {
        self.pair.map(
            self.now,
            &MapRequest {
                protocol,
                realm: 0,
                internal,
                wanted: WantedEndpoint::default(),
                lifetime: Duration::from_secs(86_400),
                nonce: [1; 12],
                replaces_filters: false,
                filters: &[],
            },
        )
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), Divergence> {
        match operation {
            Operation::Begin(flows) => {
                let specs = flows.iter().map(|&(protocol, host, port)| {
                    let (from, to) = (internal(host, port), remote_of(port));
                    Spec { flags: SYN, ..Spec::new(protocol, from, to) }
                });
                let packets: Vec<Vec<u8>> = specs.map(|spec| spec.bytes()).collect();
                let (done, _) = self.pair.process(self.now, Side::Inside, &packets)?;
                let is_out = |one: &&Done| one.verdict == Verdict::Forward(Side::Outside);
                let went = done.iter().filter(is_out);
                let flow = |bytes: &[u8]| (bytes[9], source(bytes), destination(bytes));
                self.out.extend(went.map(|one| flow(&one.bytes)));
            }
            Operation::Answer(which) if !self.out.is_empty() => {
                let packets: Vec<Vec<u8>> = which
                    .iter()
                    .map(|index| {
                        let (protocol, external, remote) = *index.get(&self.out);
                        let spec = Spec::new(protocol, remote, external);
                        Spec { flags: SYN | ACK, ..spec }.bytes()
                    })
                    .collect();
                self.pair.process(self.now, Side::Outside, &packets)?;
            }
            Operation::Answer(_) => {}
            Operation::Ask(host, port) => self.ask(UDP, internal(*host, *port))?,
            Operation::Serve(host, port, packets) => {
                let server = internal(*host, *port);
                self.ask(TCP, server)?;
                let own = |info: &MappingInfo| info.id.internal == server;
                let own = self.pair.engine.mappings().find(own);
                if let Some(external) = own.map(|info| info.id.external) {
                    let inside = (Side::Inside, server, REMOTE);
                    let outside = (Side::Outside, REMOTE, external);
                    let opening = [(outside, SYN), (inside, SYN | ACK), (outside, ACK)];
                    for ((side, from, to), flags) in opening.into_iter().take(*packets) {
                        let packet = Spec { flags, ..Spec::new(TCP, from, to) }.bytes();
                        self.pair.process(self.now, side, &[packet])?;
                    }
                }
            }
            Operation::AskPeer(host, port) => {
                self.pair.peer(
                    self.now,
                    &PeerRequest {
                        protocol: UDP,
                        realm: 0,
                        internal: internal(*host, *port),
                        remote: REMOTE,
                        wanted: WantedEndpoint::default(),
                        lifetime: Duration::from_secs(3600),
                        nonce: [1; 12],
                    },
                )?;
            }
            Operation::Wait(millis) => {
                self.now = self.now.plus(Duration::from_millis(*millis));
                self.pair.advance(self.now)?;
            }
        }
        self.pair.check_state()
    }
}

fn internal(host: u32, port: u16) -> Endpoint {
    Endpoint::new(u32::from_be_bytes([10, 0, 1, 1]) + host, port)
}

/// The remote endpoint of a host's flow from a port.
fn remote_of(port: u16) -> Endpoint {
    if port == 5002 { OTHER_REMOTE } else { REMOTE }
}

/// The source of a packet without options.
fn source(bytes: &[u8]) -> Endpoint {
    let address = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    Endpoint::new(address, u16::from_be_bytes([bytes[20], bytes[21]]))
}

/// The destination of a packet without options.
fn destination(bytes: &[u8]) -> Endpoint {
    let address = u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    Endpoint::new(address, u16::from_be_bytes([bytes[22], bytes[23]]))
}

/// Runs the operations. Returns the number of subscribers that gave way.
fn run(config: &Config, seed: [u8; 32], operations: &[Operation]) -> Result<u64, Divergence> {
    let mut world = World { pair: Pair::new(config, seed, START)?, now: START, out: Vec::new() };
    for (number, operation) in operations.iter().enumerate() {
        let result = world.apply(operation);
        result.map_err(|divergence| format!("operation {number}: {divergence}"))?;
    }
    Ok(world.pair.engine.counters().subscribers_reclaimed)
}

/// Number of cases that take some seconds, unless PROPTEST_CASES gives another number.
fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(300), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    /// Engine and model agree on the subscribers that give way, and on the time.
    #[test]
    fn engine_agrees_with_model_on_what_gives_way(
        config in config(),
        seed in any::<[u8; 32]>(),
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        run(&config, seed, &operations).map_err(TestCaseError::fail)?;
    }
}

/// The random operations make subscribers give way: of hosts that begin one after another and are
/// not answered, all except the last few give way.
#[test]
fn subscribers_give_way_in_both() -> Result<(), Divergence> {
    let base = common::config();
    let limits = Limits { subscribers: Some(4), unanswered_kept: 0, ..base.limits.clone() };
    let operations: Vec<Operation> = (0..HOSTS)
        .flat_map(|host| [Operation::Begin(vec![(UDP, host, 5000)]), Operation::Wait(250)])
        .collect();
    let gave_way = run(&Config { limits, ..base }, [0; 32], &operations)?;
    assert!(gave_way >= u64::from(HOSTS) - 4, "{gave_way}");
    Ok(())
}
