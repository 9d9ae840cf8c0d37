//! Transfers an engine's state to another engine, and checks that both do the same with the same
//! packets.

use super::*;
use crate::config::{AddressRange, Behavior, BlockConfig, PoolConfig, Prefix, Rule, RuleAction};
use crate::respond::PendingSyns;
use crate::{
    Affinity, Allocation, Config, Endpoint, Engine, MapRequest, Match, Packet, PeerRequest,
    Pooling, RemoteFilter, Server, Service, Side, StaticMapping, Timeouts, Timestamp, Verdict,
    WantedEndpoint,
};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;
use natgate_wire::{Ipv4, protocol};
use proptest::prelude::*;

const REMOTE: u32 = 0xc633_6400;
const EXTERNAL: u32 = 0xcb00_7100;
const HOSTS: u32 = 0x0a00_0000;
const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND + 77;

fn ip(address: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(address)
}

/// A whole packet of UDP, TCP with flags, or ICMP: a request, or a reply from outside.
fn packet(protocol: u8, from: (u32, u16), to: (u32, u16), flags: u8, is_reply: bool) -> Vec<u8> {
    let payload = match protocol {
        protocol::TCP => 20,
        _ => 8,
    };
    let mut bytes = vec![0; 20 + payload];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(20 + payload as u16);
    header.set_ttl(64);
    header.set_protocol(protocol);
    header.set_source(from.0);
    header.set_destination(to.0);
    header.fill_checksum();
    let body = &mut bytes[20..];
    body[..2].copy_from_slice(&from.1.to_be_bytes());
    body[2..4].copy_from_slice(&to.1.to_be_bytes());
    match protocol {
        protocol::TCP => {
            body[7] = from.1 as u8;
            (body[12], body[13]) = (0x50, flags);
            body[14..16].copy_from_slice(&4096_u16.to_be_bytes());
        }
        protocol::UDP => body[5] = 8,
        protocol::ICMP => {
            body[..2].copy_from_slice(&[if is_reply { 0 } else { 8 }, 0]);
            let id = if is_reply { to.1 } else { from.1 };
            body[4..6].copy_from_slice(&id.to_be_bytes());
            body[6..8].fill(0);
            let sum: u32 =
                body.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            body[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {}
    }
    bytes
}

/// Input of an engine.
#[derive(Clone, Debug)]
enum Step {
    /// Protocol, host, port, remote, remote port, flags.
    Out(u8, u32, u16, u32, u16, u8),
    /// Protocol, external address, number of the port among those in use, remote, remote port,
    /// flags.
    In(u8, u32, u16, u32, u16, u8),
    Wait(u64),
    /// Protocol, host, port, seconds, true for a wrong nonce. 0 seconds end the mapping.
    Map(u8, u32, u16, u64, bool),
    /// Protocol, host, port, remote, remote port, seconds.
    Peer(u8, u32, u16, u32, u16, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let protocol = prop::sample::select(vec![protocol::TCP, protocol::UDP, protocol::ICMP, 47]);
    let flags = prop::sample::select(vec![2_u8, 0x10, 0x12, 0x11, 4]);
    let mapped = prop::sample::select(vec![protocol::TCP, protocol::UDP, protocol::ICMP]);
    let lifetime = prop::sample::select(vec![0, 2, 30, 250, 4000]);
    let wait = prop::sample::select(vec![1, SECOND / 3, 3 * SECOND, 20 * SECOND, 200 * SECOND]);
    prop_oneof![
        8 => (protocol.clone(), 0..5_u32, 0..6_u16, 0..4_u32, 0..3_u16, flags.clone())
            .prop_map(|(protocol, host, port, remote, to, flags)| {
                Step::Out(protocol, host, port, remote, to, flags)
            }),
        5 => (protocol, 0..3_u32, any::<u16>(), 0..4_u32, 0..3_u16, flags)
            .prop_map(|(protocol, external, port, remote, to, flags)| {
                Step::In(protocol, external, port, remote, to, flags)
            }),
        2 => wait.prop_map(Step::Wait),
        2 => (mapped.clone(), 0..5_u32, 0..6_u16, lifetime.clone(), any::<bool>())
            .prop_map(|(protocol, host, port, time, other)| {
                Step::Map(protocol, host, port, time, other)
            }),
        1 => (mapped, 0..5_u32, 0..6_u16, 0..4_u32, 0..3_u16, lifetime)
            .prop_map(|(protocol, host, port, remote, to, time)| {
                Step::Peer(protocol, host, port, remote, to, time)
            }),
    ]
}

/// Result of a step: verdicts, packets, and events.
type Outcome = (Vec<Verdict>, Vec<Vec<u8>>, Vec<String>);

struct World {
    now: u64,
}

impl World {
    fn send(engine: &mut Engine, now: u64, from: Side, mut bytes: Vec<u8>) -> Outcome {
        let mut verdict = [Verdict::Held];
        let len = bytes.len();
        bytes.resize(len + 64, 0);
        let mut packets = [Packet::new(&mut bytes[..len], 0)];
        engine.process(Timestamp(now), from, &mut packets, &mut verdict);
        bytes.truncate(len);
        let mut outcome = (verdict.to_vec(), vec![bytes], Vec::new());
        Self::drain(engine, &mut outcome);
        outcome
    }

    fn end(address: u32, port: u16) -> Endpoint {
        Endpoint::new(address, port)
    }

    /// Result of a request.
    fn asked(engine: &mut Engine, done: String) -> Outcome {
        let mut outcome = (Vec::new(), vec![done.into_bytes()], Vec::new());
        Self::drain(engine, &mut outcome);
        outcome
    }

    fn drain(engine: &mut Engine, outcome: &mut Outcome) {
        let mut buffer = vec![0; 1 << 16];
        while let Some((_, _, len)) = engine.poll_transmit(&mut buffer) {
            outcome.1.push(buffer[..len].to_vec());
        }
        while let Some(event) = engine.poll_event() {
            outcome.2.push(alloc::format!("{event:?}"));
        }
        // The order of events at one tick is not defined.
        outcome.2.sort_unstable();
    }

    /// Does a step with an engine. Packets from outside go to a port that `guide` has in use, if
    /// there is one.
    fn take(&self, engine: &mut Engine, guide: &[(u8, u32, u16)], step: &Step) -> Outcome {
        let now = self.now;
        match *step {
            Step::Out(protocol, host, port, remote, to, flags) => {
                let ports = if protocol == 47 { (0, 0) } else { (4000 + port, 53 + to) };
                let (from, to) = ((HOSTS + 1 + host, ports.0), (REMOTE + 1 + remote, ports.1));
                Self::send(engine, now, Side::Inside, packet(protocol, from, to, flags, false))
            }
            Step::In(protocol, external, which, remote, port, flags) => {
                let known: Vec<_> = guide.iter().filter(|one| one.0 == protocol).collect();
                let fallback = (protocol, EXTERNAL + 1 + external, 1024 + which % 64);
                let place = usize::from(which) % known.len().max(1);
                let (_, address, to) = known.get(place).map_or(fallback, |known| **known);
                let port = if protocol == 47 { 0 } else { 53 + port };
                // A lone SYN is answered later, and pending SYNs are not transferred.
                let flags = if flags == 2 { 0x12 } else { flags };
                let from = (REMOTE + 1 + remote, port);
                let bytes = packet(protocol, from, (address, to), flags, true);
                Self::send(engine, now, Side::Outside, bytes)
            }
            Step::Map(protocol, host, port, time, other) => {
                let (internal, nonce) =
                    (Self::end(HOSTS + 1 + host, 4000 + port), [u8::from(other); 12]);
                let done = match time {
                    0 => {
                        format!("{:?}", engine.unmap(Timestamp(now), protocol, 0, internal, nonce))
                    }
                    _ => {
                        let filter =
                            RemoteFilter { address: REMOTE, prefix_len: 30, port: 53 + port % 2 };
                        let filters = &[filter][..usize::from(port % 2)];
                        let request = MapRequest {
                            protocol,
                            realm: 0,
                            internal,
                            wanted: WantedEndpoint::default(),
                            lifetime: Duration::from_secs(time),
                            nonce,
                            replaces_filters: false,
                            filters,
                        };
                        format!("{:?}", engine.map(Timestamp(now), &request))
                    }
                };
                Self::asked(engine, done)
            }
            Step::Peer(protocol, host, port, remote, to, time) => {
                let request = PeerRequest {
                    protocol,
                    realm: 0,
                    internal: Self::end(HOSTS + 1 + host, 4000 + port),
                    remote: Self::end(REMOTE + 1 + remote, 53 + to),
                    wanted: WantedEndpoint::default(),
                    lifetime: Duration::from_secs(time),
                    nonce: [0; 12],
                };
                let done = format!("{:?}", engine.peer(Timestamp(now), &request));
                Self::asked(engine, done)
            }
            Step::Wait(_) => {
                let mut outcome = (Vec::new(), Vec::new(), Vec::new());
                while engine.advance(Timestamp(now)) {
                    Self::drain(engine, &mut outcome);
                }
                Self::drain(engine, &mut outcome);
                outcome
            }
        }
    }

    fn pass(&mut self, step: &Step) {
        self.now += match step {
            Step::Wait(time) => *time,
            _ => 1_000_000,
        };
    }
}

/// The external endpoints in use, in order.
fn guide(engine: &Engine) -> Vec<(u8, u32, u16)> {
    let ends = engine.mappings().map(|mapping| {
        let external = mapping.id.external;
        (mapping.id.protocol, external.address.to_bits(), external.port)
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// All reports of an engine, in order.
fn told(engine: &Engine) -> (Vec<String>, Vec<String>, Vec<String>) {
    let sorted = |mut list: Vec<String>| {
        list.sort_unstable();
        list
    };
    let mappings = engine.mappings().map(|mapping| alloc::format!("{mapping:?}"));
    let sessions = engine.sessions().map(|session| alloc::format!("{session:?}"));
    let mut rest = vec![alloc::format!("{:?}", engine.counters())];
    rest.push(alloc::format!("{:?} {:?} {:?}", engine.made, engine.gone, engine.used));
    let held = (0..engine.config().pools.len()).map(|pool| engine.pool_held(pool));
    rest.push(alloc::format!("{:?}", held.collect::<Vec<_>>()));
    for protocol in [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP] {
        for pool in 0..engine.config().pools.len() {
            rest.push(alloc::format!("{:?}", engine.pool_usage(pool, protocol)));
        }
        for address in 0.. {
            let mut bits = [0; 1024];
            let Some(address) = engine.taken_ports(address, protocol, &mut bits) else { break };
            let taken = (0..1024).filter(|word| bits[*word] != 0).map(|word| (word, bits[word]));
            rest.push(alloc::format!("{address} {:x?}", taken.collect::<Vec<_>>()));
        }
    }
    (sorted(mappings.collect()), sorted(sessions.collect()), rest)
}

/// Completes the transfer of an engine. `records` were written before.
fn successor(
    config: &Config,
    engine: &Engine,
    export: &mut Export,
    mut records: Vec<Vec<u8>>,
) -> (Engine, Result<Restored, RestoreError>) {
    export.begin_pass(true);
    records.push(written(engine, export, u32::MAX));
    let mut new = Engine::new(config, [9; 32], Timestamp(START + 5)).unwrap();
    let mut restoration = Restoration::new(&new);
    for chunk in &records {
        if let Err(error) = new.restore(&mut restoration, chunk) {
            return (new, Err(error));
        }
    }
    let result = new.finish_restoration(&mut restoration);
    (new, result)
}

/// Records of a part of a pass within a budget. The rest of the pass is left.
fn written(engine: &Engine, export: &mut Export, budget: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(Export::ROOM);
    engine.export(export, &mut out, budget);
    out
}

fn server(address: u32) -> Server {
    Server { internal: (ip(address), 4000), weight: 1, draining: false, backup: false }
}

fn config(kind: usize) -> Config {
    let range = |first: u32, last: u32| AddressRange { first: ip(first), last: ip(last) };
    let pool = PoolConfig {
        addresses: vec![range(EXTERNAL + 1, EXTERNAL + 3)],
        ports: (1024, 1024 + 63),
        ..PoolConfig::default()
    };
    let mut config = Config {
        pools: vec![pool],
        timeouts: Timeouts { hold_down: Duration::from_secs(30), ..Timeouts::default() },
        ..Config::default()
    };
    config.limits.icmp_errors_per_second = 1_000_000;
    config.limits.extra_sessions = Some(400);
    config.limits.explicit_mappings = 200;
    match kind {
        0 => {}
        1 => config.mapping = Behavior::AddressAndPortDependent,
        2 => {
            config.mapping = Behavior::AddressDependent;
            config.filtering = Behavior::AddressDependent;
            config.pooling = Pooling::Arbitrary;
        }
        3 => {
            config.allocation = Allocation::Preserve;
            config.filtering = Behavior::AddressDependent;
            config.pools[0].ports = (1, 65_535);
        }
        4 => {
            config.allocation =
                Allocation::Block(BlockConfig { size: 16, ..BlockConfig::default() })
        }
        5 => {
            // With so few ports, several mappings share one.
            config.pools[0].ports = (1024, 1027);
            config.pools[0].addresses = vec![range(EXTERNAL + 1, EXTERNAL + 1)];
            config.pools[0].overloading = true;
        }
        6 => {
            let whole = StaticMapping {
                internal: (ip(HOSTS + 1), None),
                external: (ip(EXTERNAL + 80), None),
                ..StaticMapping::default()
            };
            let port = StaticMapping {
                internal: (ip(HOSTS + 2), Some(4000)),
                external: (ip(EXTERNAL + 1), Some(1030)),
                ..StaticMapping::default()
            };
            config.statics = vec![whole, port];
            config.services = vec![Service {
                realm: 0,
                protocol: Some(protocol::UDP),
                external: (ip(EXTERNAL + 2), 1040),
                servers: vec![server(HOSTS + 3), server(HOSTS + 4)],
                affinity: Affinity::Address,
            }];
        }
        _ => {
            // Packets to one remote network are answered from another.
            let matches = Match::Destination(Prefix::new(ip(REMOTE), 30), 0);
            let other = Prefix::new(ip(REMOTE + 128), 30);
            config.rules = vec![Rule::new(matches, RuleAction::DnatPrefix(other))];
        }
    }
    config
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The passes are broken off anywhere, and packets flow in between. The new engine has the same
    /// state and does the same as the first.
    #[test]
    fn another_engine_goes_on_as_the_first_would(
        kind in 0..8_usize,
        before in prop::collection::vec((step(), prop::option::weighted(0.2, 1..40_u32)), 0..160),
        after in prop::collection::vec(step(), 0..60),
    ) {
        let config = config(kind);
        let mut world = World { now: START };
        let mut first = Engine::new(&config, [3; 32], Timestamp(START)).unwrap();
        let (mut export, mut records) = (Export::new(&config), Vec::new());
        for (step, writes) in &before {
            world.pass(step);
            let known = guide(&first);
            world.take(&mut first, &known, step);
            if let Some(budget) = writes {
                let mut out = Vec::with_capacity(Export::ROOM);
                if first.export(&mut export, &mut out, *budget) == Exported::Done {
                    export.begin_pass(false);
                }
                records.push(out);
            }
        }
        // Due work that has not been done is done a tick later in the new engine.
        world.take(&mut first, &[], &Step::Wait(0));
        let (mut second, restored) = successor(&config, &first, &mut export, records);
        let restored = restored.unwrap();
        prop_assert_eq!(restored.left_out, [0; 4]);
        prop_assert_eq!(told(&first), told(&second));
        // State that is not transferred, and the random generator, are made equal for the
        // comparison.
        (first.pending, second.pending) = (PendingSyns::new(), PendingSyns::new());
        second.generator = first.generator.clone();
        second.responder = first.responder.clone();
        second.pool_reported.clone_from(&first.pool_reported);
        let draws_alike = kind != 4;
        for step in &after {
            world.pass(step);
            let known = guide(&first);
            let is_old = draws_alike || matches!(step, Step::In(..) | Step::Wait(_));
            if !is_old {
                continue;
            }
            let mut outcomes =
                [&mut first, &mut second].map(|engine| world.take(engine, &known, step));
            if !draws_alike {
                // An empty block is kept for the whole time again.
                for (_, _, events) in &mut outcomes {
                    events.retain(|event| !event.contains("BlockReleased"));
                }
            }
            prop_assert_eq!(&outcomes[0], &outcomes[1], "{:?}", step);
        }
        if draws_alike {
            prop_assert_eq!(told(&first), told(&second));
        }
    }

    /// Damaged records are refused, or give an engine that works.
    #[test]
    fn damaged_records_harm_nobody(
        kind in 0..8_usize,
        steps in prop::collection::vec(step(), 0..60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        after in prop::collection::vec(step(), 0..30),
    ) {
        let config = config(kind);
        let mut world = World { now: START };
        let mut first = Engine::new(&config, [3; 32], Timestamp(START)).unwrap();
        for step in &steps {
            world.pass(step);
            let known = guide(&first);
            world.take(&mut first, &known, step);
        }
        let mut export = Export::new(&config);
        export.begin_pass(true);
        let mut bytes = written(&first, &mut export, u32::MAX);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let mut second = Engine::new(&config, [9; 32], Timestamp(START)).unwrap();
        let mut restoration = Restoration::new(&second);
        let read = second.restore(&mut restoration, &bytes);
        if read.is_ok() && second.finish_restoration(&mut restoration).is_ok() {
            world.now = world.now.max(second.now);
            for step in &after {
                world.pass(step);
                let known = guide(&second);
                world.take(&mut second, &known, step);
            }
        }
    }
}

/// An engine after one datagram of one subscriber.
fn engine_with_one(config: &Config) -> Engine {
    let mut engine = Engine::new(config, [3; 32], Timestamp(START)).unwrap();
    World { now: START }.take(&mut engine, &[], &Step::Out(protocol::UDP, 0, 0, 0, 0, 0));
    assert_eq!(engine.mappings().count(), 1);
    engine
}

/// An engine that runs begins copies between two packets, with millions of mappings.
#[test]
fn a_restoration_into_an_engine_that_runs_lists_permanent_mappings_alone() {
    let permanent = |engine: &Engine| Restoration::new(engine).permanent.len();
    assert_eq!(permanent(&engine_with_one(&config(0))), 0);
    let config = config(6);
    let mut engine = Engine::new(&config, [3; 32], Timestamp(START)).unwrap();
    let fixed = engine.mappings().count();
    World { now: START }.take(&mut engine, &[], &Step::Out(protocol::UDP, 5, 0, 0, 0, 0));
    assert_eq!(engine.mappings().count(), fixed + 1);
    assert_eq!(permanent(&engine), fixed);
}

#[test]
fn what_another_configuration_has_no_place_for_is_left_out_and_counted() {
    let first = engine_with_one(&config(0));
    let mut other = config(0);
    other.pools[0].addresses =
        vec![AddressRange { first: ip(EXTERNAL + 9), last: ip(EXTERNAL + 9) }];
    let (second, restored) = successor(&other, &first, &mut Export::new(&config(0)), Vec::new());
    let restored = restored.unwrap();
    assert_eq!((restored.mappings, restored.left_out), (0, [0, 1, 0, 0]));
    assert_eq!(second.mappings().count(), 0);
    assert_eq!(second.subscribers.find(crate::host::Host::new(0, HOSTS + 1)), None);
}

#[test]
fn mappings_are_asked_whether_they_may_stay() {
    let first = engine_with_one(&config(0));
    let mut other = config(0);
    other.subscribers = vec![Prefix::new(ip(HOSTS + 2), 32)];
    let (mut second, restored) =
        successor(&other, &first, &mut Export::new(&config(0)), Vec::new());
    assert_eq!(restored.unwrap().mappings, 1);
    while second.advance(Timestamp(START + 10)) {}
    assert_eq!(second.mappings().count(), 0);
    assert_eq!(second.departed(), (0, [1, 0, 0, 0]));
}

#[test]
fn another_mapping_behavior_and_too_little_room_are_refused() {
    let first = engine_with_one(&config(0));
    let try_with = |other: &Config| {
        successor(other, &first, &mut Export::new(&config(0)), Vec::new()).1.unwrap_err()
    };
    assert_eq!(try_with(&config(1)), RestoreError::Behavior);
    let mut many = engine_with_one(&config(0));
    for port in 1..4 {
        World { now: START }.take(&mut many, &[], &Step::Out(protocol::UDP, 0, port, 0, 0, 0));
    }
    let mut small = config(0);
    small.limits.mappings = Some(1);
    let result = successor(&small, &many, &mut Export::new(&config(0)), Vec::new()).1;
    assert_eq!(result, Err(RestoreError::Room(3)));
}

/// Does steps with an engine, in order.
fn pass_all(world: &mut World, engine: &mut Engine, steps: &[Step]) {
    for step in steps {
        world.pass(step);
        world.take(engine, &guide(engine), step);
    }
}

/// The record of a mapping that overloads a port may come before the record of the port's owner.
#[test]
fn a_shared_port_stays_whose_it_was() {
    let config = config(5);
    let mut world = World { now: START };
    let mut first = Engine::new(&config, [3; 32], Timestamp(START)).unwrap();
    let mut steps = vec![Step::Out(protocol::ICMP, 0, 0, 0, 0, 0)];
    steps.extend((0..4).map(|port| Step::Out(protocol::UDP, 0, port, 0, 0, 0)));
    // The first mapping goes. Its slot is given to a mapping without a port of its own.
    steps.extend([Step::Wait(100 * SECOND), Step::Out(protocol::UDP, 1, 0, 1, 0, 0)]);
    pass_all(&mut world, &mut first, &steps);
    assert_eq!((first.mappings().count(), guide(&first).len()), (5, 4));
    let (mut second, restored) = successor(&config, &first, &mut Export::new(&config), Vec::new());
    assert_eq!(restored.unwrap().mappings, 5);
    let known = guide(&first);
    for which in 0..4 {
        let step = Step::In(protocol::UDP, 0, which, 3, 2, 0);
        world.pass(&step);
        let outcome = world.take(&mut first, &known, &step);
        assert_eq!(outcome.0, [Verdict::Forward(Side::Inside)]);
        assert_eq!(outcome, world.take(&mut second, &known, &step));
    }
}

/// A port that was exported as held has an owner again before its time, because too many ports were
/// held.
#[test]
fn a_held_port_has_an_owner_again() {
    let mut config = config(5);
    config.pools[0].overloading = false;
    config.limits.held_ports = Some(2);
    let mut world = World { now: START };
    let mut first = Engine::new(&config, [3; 32], Timestamp(START)).unwrap();
    let out = |port| Step::Out(protocol::UDP, 0, port, 0, 0, 0);
    let steps = [out(0), out(1), Step::Wait(20 * SECOND), out(2), out(3), Step::Wait(285 * SECOND)];
    pass_all(&mut world, &mut first, &steps);
    assert_eq!((first.mappings().count(), first.pool_held(0)), (2, [0, 2, 0, 0]));
    let mut export = Export::new(&config);
    let records = vec![written(&first, &mut export, u32::MAX)];
    pass_all(&mut world, &mut first, &[Step::Wait(17 * SECOND), out(0), out(1)]);
    assert_eq!((first.mappings().count(), first.pool_held(0)), (2, [0, 2, 0, 0]));
    let (second, restored) = successor(&config, &first, &mut export, records);
    assert_eq!(restored.map(|restored| restored.mappings), Ok(2));
    assert_eq!(told(&first), told(&second));
}

/// The former owner of a port may still be present when the record of an overloading mapping is
/// read.
#[test]
fn a_shared_port_had_another_owner_before() {
    let config = config(5);
    for key in 0..16 {
        let mut world = World { now: START };
        let mut first = Engine::new(&config, [key; 32], Timestamp(START)).unwrap();
        let (mut export, mut records) = (Export::new(&config), Vec::new());
        let opened = (0..4).map(|port| Step::Out(protocol::TCP, 0, port, 0, 0, 2));
        let mut steps = vec![Step::Out(protocol::ICMP, 0, 0, 0, 0, 0)];
        steps.extend(opened.clone());
        pass_all(&mut world, &mut first, &steps);
        records.push(written(&first, &mut export, u32::MAX));
        // All mappings go. Other mappings get the ports, and a mapping that overloads one of them
        // gets the slot of the first mapping.
        steps = vec![Step::Wait(200 * SECOND), Step::Wait(200 * SECOND)];
        steps.extend(opened);
        steps.push(Step::Out(protocol::TCP, 1, 0, 1, 0, 2));
        pass_all(&mut world, &mut first, &steps);
        assert_eq!((first.mappings().count(), guide(&first).len()), (5, 4));
        let (second, restored) = successor(&config, &first, &mut export, records);
        assert_eq!(restored.map(|restored| restored.mappings), Ok(5), "key {key}");
        assert_eq!(told(&first), told(&second));
    }
}

/// A mapping that has overloaded a port, and is alone there later, can be requested by PCP's PEER.
#[test]
fn what_overloaded_a_port_is_held_over_there() {
    let config = config(5);
    let mut world = World { now: START };
    let mut first = Engine::new(&config, [3; 32], Timestamp(START)).unwrap();
    let mut steps: Vec<_> = (0..4).map(|port| Step::Out(protocol::UDP, 1, port, 0, 0, 0)).collect();
    // The others go, because their sessions are 300 seconds old. Then a host requests the mapping
    // that stays.
    let (out, pause) = (Step::Out(protocol::UDP, 0, 0, 3, 0, 0), Step::Wait(200 * SECOND));
    steps.extend([pause.clone(), out, pause, Step::Peer(protocol::UDP, 0, 0, 3, 0, 4000)]);
    pass_all(&mut world, &mut first, &steps);
    let held = first.mappings().next().map(|mapping| mapping.id.kind);
    assert_eq!((first.mappings().count(), held), (1, Some(crate::MappingKind::Pcp)));
    let (second, restored) = successor(&config, &first, &mut Export::new(&config), Vec::new());
    assert_eq!(restored.unwrap().mappings, 1);
    assert_eq!(told(&first), told(&second));
}

#[test]
fn mappings_of_a_host_as_a_whole_can_be_damaged_anywhere() {
    damage_everywhere(&[0, 2, 6], [Step::Out(47, 0, 0, 1, 0, 0), Step::Out(47, 0, 0, 2, 0, 0)]);
    damage_everywhere(&[6], [protocol::UDP, protocol::TCP].map(|of| Step::Out(of, 0, 5, 1, 0, 2)));
}

/// Transfers an engine after two steps, with each byte in turn damaged. Then does the steps again.
fn damage_everywhere(kinds: &[usize], steps: [Step; 2]) {
    for &kind in kinds {
        let config = config(kind);
        let mut first = Engine::new(&config, [3; 32], Timestamp(START)).unwrap();
        pass_all(&mut World { now: START }, &mut first, &steps);
        let mut export = Export::new(&config);
        export.begin_pass(true);
        let bytes = written(&first, &mut export, u32::MAX);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let mut world = World { now: START };
            let mut second = Engine::new(&config, [9; 32], Timestamp(START)).unwrap();
            let mut restoration = Restoration::new(&second);
            let read = second.restore(&mut restoration, &damaged);
            if read.is_ok() && second.finish_restoration(&mut restoration).is_ok() {
                world.now = world.now.max(second.now);
                pass_all(&mut world, &mut second, &steps);
                let now = world.now.saturating_add(1000 * SECOND);
                while second.advance(Timestamp(now)) {}
            }
        }
    }
}

#[test]
fn a_session_state_has_the_number_that_the_form_says() {
    use crate::session::State::{self, *};
    let numbered: [State; 8] =
        [Open, OpeningOut, OpeningIn, Established, FinOut, FinIn, Closed, Transitory];
    for (number, state) in (1..).zip(numbered) {
        assert_eq!(state as u8, number);
    }
}

#[test]
fn what_hosts_have_asked_for_is_lost_only_with_its_address() {
    let mut first = Engine::new(&config(0), [3; 32], Timestamp(START)).unwrap();
    let asks = Step::Map(protocol::UDP, 0, 0, 250, false);
    World { now: START }.take(&mut first, &[], &asks);
    assert_eq!((first.mappings().count(), first.sessions().count()), (1, 0));
    let (mut second, restored) =
        successor(&config(0), &first, &mut Export::new(&config(0)), Vec::new());
    assert_eq!((restored.unwrap().mappings, second.explicit_lost()), (1, 0));
    // The mapping ends with its hold, and its event has its original kind.
    let mut world = World { now: START };
    world.now += 251 * SECOND;
    let outcome = world.take(&mut second, &[], &Step::Wait(0));
    assert!(outcome.2.len() == 1 && outcome.2[0].contains("Pcp"), "{outcome:?}");
    assert_eq!(second.mappings().count(), 0);
    let mut other = config(0);
    other.pools[0].addresses =
        vec![AddressRange { first: ip(EXTERNAL + 9), last: ip(EXTERNAL + 9) }];
    let (second, restored) = successor(&other, &first, &mut Export::new(&config(0)), Vec::new());
    assert_eq!((restored.unwrap().left_out, second.explicit_lost()), ([0, 1, 0, 0], 1));
    // The other engine has no room for holds.
    let mut other = config(0);
    other.limits.explicit_mappings = 0;
    let result = successor(&other, &first, &mut Export::new(&config(0)), Vec::new()).1;
    assert_eq!(result, Err(RestoreError::Room(1)));
}

#[test]
fn of_several_engines_each_has_the_ports_that_have_become_its_own() {
    let divided = || {
        let mut engine = Engine::new(&config(0), [3; 32], Timestamp(START)).unwrap();
        engine.divide((0, 2), |_, _| true);
        engine.own(ip(EXTERNAL + 1), 0..1024);
        engine
    };
    let mut first = divided();
    // Ports of another engine are gained, ports without an owner are given up.
    first.own(ip(EXTERNAL + 2), 16..17);
    assert!(first.cede(0, Some(ip(EXTERNAL + 1)), false, 1).is_some());
    for port in 0..6 {
        let step = Step::Out(protocol::UDP, 0, port, 0, 0, 0);
        World { now: START }.take(&mut first, &[], &step);
    }
    assert_eq!(first.mappings().count(), 6);
    let mut export = Export::new(&config(0));
    export.begin_pass(true);
    let records = written(&first, &mut export, u32::MAX);
    let mut second = divided();
    let mut restoration = Restoration::new(&second);
    second.restore(&mut restoration, &records).unwrap();
    // Only now the engine learns its own ports.
    second.own_only(ip(EXTERNAL + 1), &[0..16, 17..1024]);
    second.own_only(ip(EXTERNAL + 2), core::slice::from_ref(&(16..17)));
    second.finish_restoration(&mut restoration).unwrap();
    assert_eq!(told(&first), told(&second));
    let free =
        |engine: &Engine| [1, 2, 3].map(|last| engine.free_ports_of(ip(EXTERNAL + last), false));
    assert_eq!(free(&first), free(&second));
    assert_eq!(free(&second), [0, 58, 0]);
}
