//! Packets of a batch go through stages together. The result is the same as one by one.

mod common;

use common::*;
use natgate_engine::{
    Allocation, Behavior, BlockConfig, Config, ControlPorts, DeterministicConfig, Engine, Match,
    Packet, PoolConfig, Pooling, Prefix, Rule, RuleAction, Side, StaticMapping, Timestamp, Verdict,
};
use proptest::prelude::*;

/// A packet between few endpoints, so that flows begin, continue and collide within a batch.
fn packet() -> impl Strategy<Value = (Side, Vec<u8>)> {
    let inner = (5_u8..8, 4000_u16..4006);
    let remote = (7_u8..9, 80_u16..82);
    let kind = 0_u8..14;
    (inner, remote, kind, any::<bool>(), prop::sample::select(vec![64_u8, 64, 64, 1])).prop_map(
        |((host, port), (far, far_port), kind, inward, ttl)| {
            let near = format!("10.0.0.{host}:{port}");
            let outer = format!("203.0.113.{}:{port}", 1 + host % 2);
            let far = format!("198.51.100.{far}:{far_port}");
            let (source, destination) = if inward { (&far, &outer) } else { (&near, &far) };
            let mut bytes = match kind {
                0..=4 => udp(source, destination),
                5 => tcp(source, destination, "S", 1, 0),
                6 => tcp(source, destination, "SA", 1, 2),
                7 => tcp(source, destination, "A", 2, 2),
                8 => tcp(source, destination, "FA", 2, 2),
                9 => tcp(source, destination, "R", 2, 0),
                10 => ping(&source[..source.find(':').unwrap()], "198.51.100.7", port),
                11 => udp(source, &outer),
                _ => {
                    let bare = |end: &str| endpoint(end).0;
                    ip(47, bare(source), bare(destination), &[9; 7])
                }
            };
            set_ttl(&mut bytes, ttl);
            (if inward { Side::Outside } else { Side::Inside }, bytes)
        },
    )
}

fn address(text: &str) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::from_bits(endpoint(text).0)
}

/// Rules for some of the flows, often none.
fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let source = |text, len, port| Match::Source(Prefix::new(address(text), len), port);
    let destination = |text, len, port| Match::Destination(Prefix::new(address(text), len), port);
    let matches = vec![
        source("10.0.0.6", 32, 0),
        source("10.0.0.6", 31, 0),
        source("10.0.0.0", 8, 4002),
        source("10.0.0.5", 32, 4003),
        destination("198.51.100.8", 32, 0),
        destination("198.51.100.0", 24, 81),
        destination("0.0.0.0", 0, 80),
    ];
    let action = prop_oneof![
        1 => Just(RuleAction::Bypass),
        1 => Just(RuleAction::Drop),
        2 => (0_usize..2).prop_map(RuleAction::Snat),
        2 => (2_u8..4).prop_map(|host| RuleAction::SnatTo(1, [203, 0, 113, host].into())),
    ];
    let actions = prop::collection::vec(action, matches.len());
    let some = prop_oneof![1 => Just(vec![]), 3 => prop::sample::subsequence(matches, 1..7)];
    (some, actions).prop_map(|(matches, actions)| {
        matches.into_iter().zip(actions).map(|(it, action)| Rule::new(it, action)).collect()
    })
}

fn configuration() -> impl Strategy<Value = Config> {
    let behavior = || {
        prop::sample::select(vec![
            Behavior::EndpointIndependent,
            Behavior::EndpointIndependent,
            Behavior::AddressDependent,
            Behavior::AddressAndPortDependent,
        ])
    };
    let pooling = prop::sample::select(vec![Pooling::Paired, Pooling::Arbitrary]);
    let few = prop::sample::select(vec![2000_u32, 2000, 2]);
    let statics = prop::collection::vec(any::<bool>(), 2);
    (behavior(), behavior(), pooling, few, any::<bool>(), statics, rules()).prop_map(
        |(mapping, filtering, pooling, quota, refresh, with_static, rules)| {
            let web = StaticMapping {
                protocol: None,
                internal: (address("10.0.0.5"), Some(4001)),
                external: (address("203.0.113.1"), Some(4001)),
                ..StaticMapping::default()
            };
            let whole = StaticMapping {
                protocol: None,
                internal: (address("10.0.0.6"), None),
                external: (address("203.0.113.4"), None),
                ..StaticMapping::default()
            };
            let second = PoolConfig {
                name: "second".into(),
                ..pool("203.0.113.2", "203.0.113.3", (1024, 65535))
            };
            let mut config = Config {
                mapping,
                filtering,
                pooling,
                // No random choice is left: a batch would draw in another order.
                allocation: Allocation::Preserve,
                inbound_refresh: refresh,
                pools: vec![pool("203.0.113.1", "203.0.113.1", (1024, 65535)), second],
                statics: [web, whole]
                    .into_iter()
                    .zip(with_static)
                    .filter_map(|(it, there)| there.then_some(it))
                    .collect(),
                // Two hosts that have mappings by a rule are no subscribers.
                subscribers: vec![Prefix::new(address("10.0.0.4"), 31)],
                rules,
                ..config()
            };
            config.limits.udp_ports = quota;
            config.limits.extra_sessions = Some(8);
            config
        },
    )
}

/// Results of packets in an engine: verdicts and bytes, then all reports of the engine.
fn outcome(engine: &mut Engine, taken: Vec<(Verdict, Vec<u8>)>) -> String {
    let events: Vec<_> = std::iter::from_fn(|| engine.poll_event()).collect();
    let mut buffer = vec![0; 65_535];
    let mut made = Vec::new();
    while let Some((time, side, len)) = engine.poll_transmit(&mut buffer) {
        made.push((time, side, buffer[..len].to_vec()));
    }
    let mut sessions: Vec<_> = engine.sessions().map(|session| format!("{session:?}")).collect();
    sessions.sort();
    format!("{taken:?}\n{events:?}\n{made:?}\n{sessions:?}\n{:?}", engine.counters())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_batch_comes_to_the_same_as_its_packets_one_by_one(
        config in configuration(),
        batches in prop::collection::vec(
            (prop::collection::vec(packet(), 1..250), 0_u64..200),
            1..6,
        ),
    ) {
        let mut now = Timestamp(1_700_000_000_000_000_000);
        let mut whole = Engine::new(&config, [1; 32], now).unwrap();
        let mut single = Engine::new(&config, [1; 32], now).unwrap();
        for (packets, seconds) in batches {
            now = now.plus(std::time::Duration::from_secs(seconds));
            while whole.advance(now) {}
            while single.advance(now) {}
            for side in [Side::Inside, Side::Outside] {
                let of_side = packets.iter().filter(|(from, _)| *from == side);
                let batch: Vec<Vec<u8>> = of_side.map(|(_, bytes)| bytes.clone()).collect();
                let together = process(&mut whole, now, side, batch.clone());
                let apart = batch
                    .into_iter()
                    .flat_map(|bytes| process(&mut single, now, side, vec![bytes]))
                    .collect();
                prop_assert_eq!(outcome(&mut whole, together), outcome(&mut single, apart));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Packets with a port of control flows take the complete way, whichever way their session has
    /// begun. A change of the ports counts from the next packet on.
    #[test]
    fn an_engine_stops_at_each_packet_with_a_port_of_control_flows(
        config in configuration(),
        batches in prop::collection::vec(
            (
                prop::collection::vec(packet(), 1..250),
                0_u64..200,
                prop::option::weighted(0.4, prop::sample::subsequence(PORTS.to_vec(), 0..5)),
            ),
            1..6,
        ),
    ) {
        let mut now = Timestamp(1_700_000_000_000_000_000);
        let mut stopping = Engine::new(&config, [1; 32], now).unwrap();
        let mut single = Engine::new(&config, [1; 32], now).unwrap();
        let mut ports = ControlPorts::none();
        for (packets, seconds, change) in batches {
            now = now.plus(std::time::Duration::from_secs(seconds));
            while stopping.advance(now) {}
            while single.advance(now) {}
            if let Some(change) = change {
                force(&mut stopping, now, &config).unwrap();
                force(&mut single, now, &config).unwrap();
                ports.set(change.into_iter(), true);
                stopping.set_control_ports(&ports, &ports);
            }
            for side in [Side::Inside, Side::Outside] {
                let of_side = packets.iter().filter(|(from, _)| *from == side);
                let batch: Vec<Vec<u8>> = of_side.map(|(_, bytes)| bytes.clone()).collect();
                let (together, stops) = process_to_controls(&mut stopping, now, side, &batch);
                let with_port = |number: &usize| ports.may_have(&batch[*number]);
                prop_assert_eq!(stops, (0..batch.len()).filter(with_port).collect::<Vec<_>>());
                let apart = batch
                    .into_iter()
                    .flat_map(|bytes| process(&mut single, now, side, vec![bytes]))
                    .collect();
                prop_assert_eq!(outcome(&mut stopping, together), outcome(&mut single, apart));
            }
        }
    }
}

/// Ports of packets, some of which are ports of control flows.
const PORTS: [u16; 8] = [80, 81, 4000, 4001, 4002, 4003, 4004, 4005];

/// Takes a batch, and each packet at which the engine stops alone. Returns these packets' numbers,
/// too.
fn process_to_controls(
    engine: &mut Engine,
    now: Timestamp,
    side: Side,
    batch: &[Vec<u8>],
) -> (Vec<(Verdict, Vec<u8>)>, Vec<usize>) {
    let mut batch = batch.to_vec();
    let mut packets: Vec<Packet<'_>> =
        batch.iter_mut().map(|bytes| Packet::new(bytes, 0)).collect();
    let mut verdicts = vec![Verdict::Held; packets.len()];
    let (mut next, mut stops) = (0, Vec::new());
    loop {
        let (rest, verdicts_of) = (&mut packets[next..], &mut verdicts[next..]);
        next += engine.process_to_control(now, side, rest, verdicts_of, &|_| true);
        if next == packets.len() {
            break;
        }
        verdicts[next] = engine.process_control(now, side, &mut packets[next]);
        stops.push(next);
        next += 1;
    }
    let bytes: Vec<Vec<u8>> = packets.iter().map(|packet| packet.bytes().to_vec()).collect();
    (verdicts.into_iter().zip(bytes).collect(), stops)
}

/// Allocation with a random choice of ports.
fn by_chance() -> impl Strategy<Value = Allocation> {
    let block = (prop::sample::select(vec![16_u16, 64]), 1_u16..4).prop_map(|(size, max)| {
        Allocation::Block(BlockConfig {
            size,
            max_per_subscriber: max,
            release_after: std::time::Duration::from_secs(60),
        })
    });
    let deterministic = (prop::sample::select(vec![1_u16, 5, 64]), any::<bool>());
    let deterministic = deterministic.prop_map(|(ports, dynamic)| {
        Allocation::Deterministic(DeterministicConfig {
            subscribers: vec![Prefix::new(address("10.0.0.0"), 28)],
            ports_per_subscriber: Some(ports),
            dynamic_ports: if dynamic { 64 } else { 0 },
            ..DeterministicConfig::default()
        })
    });
    prop_oneof![1 => Just(Allocation::Random), 2 => block, 2 => deterministic]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The ports that flows get are random, but not their number: quotas, shares and rules decide
    /// about flows from inside.
    #[test]
    fn in_a_batch_as_many_flows_begin_as_one_by_one(
        config in configuration(),
        default in by_chance(),
        second in by_chance(),
        packets in prop::collection::vec(packet(), 1..250),
    ) {
        let mut config = config;
        // A rule names no address of a pool that shares ports out.
        let is_shared = matches!(second, Allocation::Random);
        let takes = |rule: &Rule| matches!(rule.action, RuleAction::SnatTo(..));
        config.rules.retain(|rule| is_shared || !takes(rule));
        config.statics.clear();
        config.pooling = Pooling::Paired;
        for (pool, allocation) in config.pools.iter_mut().zip([default, second]) {
            pool.allocation = Some(allocation);
        }
        let now = Timestamp(1_700_000_000_000_000_000);
        let mut whole = Engine::new(&config, [1; 32], now).unwrap();
        let mut single = Engine::new(&config, [1; 32], now).unwrap();
        // Packets to an external address may be hairpinned, and packets without ports may be
        // ambiguous. A random address decides about both, so they are left out.
        let is_other = |bytes: &[u8]| bytes[16..19] == [203, 0, 113] || bytes[9] == 47;
        let inside = packets.into_iter().filter(|(from, b)| *from == Side::Inside && !is_other(b));
        let batch: Vec<Vec<u8>> = inside.map(|(_, bytes)| bytes).collect();
        let together = process(&mut whole, now, Side::Inside, batch.clone());
        let apart: Vec<_> = batch
            .into_iter()
            .flat_map(|bytes| process(&mut single, now, Side::Inside, vec![bytes]))
            .collect();
        let verdicts = |taken: &[(Verdict, Vec<u8>)]| -> Vec<Verdict> {
            taken.iter().map(|(verdict, _)| *verdict).collect()
        };
        prop_assert_eq!(verdicts(&together), verdicts(&apart));
        prop_assert_eq!(whole.counters(), single.counters());
        prop_assert_eq!(whole.sessions().count(), single.sessions().count());
    }
}

fn process(
    engine: &mut Engine,
    now: Timestamp,
    side: Side,
    mut batch: Vec<Vec<u8>>,
) -> Vec<(Verdict, Vec<u8>)> {
    let mut packets: Vec<Packet<'_>> =
        batch.iter_mut().map(|bytes| Packet::new(bytes, 0)).collect();
    let mut verdicts = vec![Verdict::Held; packets.len()];
    engine.process(now, side, &mut packets, &mut verdicts);
    let bytes: Vec<Vec<u8>> = packets.iter().map(|packet| packet.bytes().to_vec()).collect();
    verdicts.into_iter().zip(bytes).collect()
}
