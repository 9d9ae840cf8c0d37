//! Random configurations: small ones, in which everything runs out soon.

use crate::common::end;
use crate::policy::policy;
use crate::strategies::edge;
use crate::world::{FIXED, INSIDE, OWN, POOL, PORTS, REMOTE, START};
use natgate_engine::{
    AddressRange, Affinity, Allocation, Begun, Behavior, BlockConfig, Blocking, Config,
    DeterministicConfig, Engine, Limits, Match, Plan, PoolConfig, Pooling, Prefix, Refusal, Rule,
    RuleAction, Server, Service, SideConfig, StaticMapping, Timeouts,
};
use natgate_wire::protocol::{DCCP, GRE, TCP, UDP};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::time::Duration;

fn behavior() -> impl Strategy<Value = Behavior> {
    prop::sample::select(vec![
        Behavior::EndpointIndependent,
        Behavior::AddressDependent,
        Behavior::AddressAndPortDependent,
    ])
}

fn limits() -> impl Strategy<Value = Limits> {
    let few = || prop_oneof![8 => Just(2000u32), 4 => 1u32..5, 1 => Just(0)];
    let rate = || prop_oneof![3 => Just(500u32), 1 => 1u32..9, 1 => Just(40)];
    let held = prop_oneof![3 => Just(None), 1 => (0u32..4).prop_map(Some)];
    let sessions = prop_oneof![2 => Just(64u16), 1 => 1u16..4];
    let table = || prop_oneof![4 => Just(Some(1000u32)), 1 => (1u32..8).prop_map(Some)];
    let extra = prop_oneof![2 => Just(Some(1000u32)), 2 => (0u32..8).prop_map(Some)];
    let each = prop_oneof![2 => Just(Some(1000)), 1 => (0u32..4).prop_map(Some), 1 => Just(None)];
    let rates = (rate(), rate());
    let subscribers = prop_oneof![4 => Just(None), 1 => (1u32..4).prop_map(Some)];
    let twice = prop_oneof![4 => Just(None), 1 => (0u32..4).prop_map(Some)];
    let asked = prop_oneof![1 => Just((0u32, 4u32)), 3 => Just((64, 8)), 1 => (1u32..4, 1u32..3)];
    let gives_way = (
        prop::bool::weighted(0.9),
        prop::sample::select(vec![25, 100, 1]),
        prop_oneof![4 => Just(0_u32), 1 => 1_u32..5],
    );
    let table = (table(), subscribers, twice, asked, gives_way);
    (few(), few(), few(), (sessions, extra, each), rates, table, held).prop_map(
        |(tcp, udp, icmp, (sessions, extra, each), rates, table, held_ports)| {
            let (mapping_rate, error_rate) = rates;
            let (mappings, subscribers, twice_sessions, asked, gives_way) = table;
            let (unanswered_give_way, asking_share, unanswered_kept) = gives_way;
            let (explicit_mappings, explicit_per_subscriber) = asked;
            Limits {
                tcp_ports: tcp,
                udp_ports: udp,
                icmp_ports: icmp,
                sessions_per_mapping: sessions,
                new_mappings_per_second: mapping_rate,
                icmp_errors_per_second: error_rate,
                subscribers,
                mappings,
                extra_sessions: extra,
                extra_sessions_per_subscriber: each,
                twice_sessions,
                fragment_memory: 4096,
                held_ports,
                explicit_mappings,
                explicit_per_subscriber,
                unanswered_give_way,
                unanswered_kept,
                asking_share,
                ..Limits::default()
            }
        },
    )
}

fn timeouts() -> impl Strategy<Value = Timeouts> {
    let time = || {
        prop_oneof![
            Just(Duration::from_secs(4)),
            Just(Duration::from_millis(1300)),
            Just(Duration::from_secs(240)),
            (1_000_000_000u64..20_000_000_000).prop_map(Duration::from_nanos),
        ]
    };
    let hold = prop_oneof![Just(Duration::ZERO), time()];
    (time(), time(), time(), time(), time(), time(), hold).prop_map(
        |(udp, tcp_established, tcp_opening, tcp_closing, icmp, other, hold_down)| Timeouts {
            udp,
            tcp_established,
            tcp_opening,
            tcp_closing,
            icmp,
            other,
            hold_down,
            ..Timeouts::default()
        },
    )
}

fn pools() -> impl Strategy<Value = Vec<PoolConfig>> {
    let ports = prop_oneof![
        1 => Just((1024u16, 65535u16)),
        4 => Just((1000, 3000)),
        120 => prop::sample::select(vec![
            (1000, 1100), (1020, 1027), (5000, 5003), (1, 6), (2000, 2000), (4990, 5010),
            (65500, 65535),
        ]),
    ];
    let ports = prop_oneof![8 => ports, 2 => Just((1000, 1100)), 2 => Just((5000, 5040))];
    let allocations = || (shares(), shares(), prop::bool::weighted(0.3));
    (1u32..4, ports, any::<bool>(), allocations()).prop_map(|(addresses, ports, two, shares)| {
        let at = |off: u32| Ipv4Addr::from_bits(u32::from_be_bytes(POOL) + off);
        let overloading = shares.2;
        let pool = |name: &str, first, last, shares: Option<Allocation>| {
            let pool = PoolConfig {
                name: name.into(),
                addresses: vec![AddressRange { first: at(first), last: at(last) }],
                ports,
                overloading,
                ..PoolConfig::default()
            };
            let allocation = shares.filter(|shares| can_have(&pool, shares));
            PoolConfig { allocation, ..pool }
        };
        let mut pools = vec![pool("default", 0, addresses - 1, shares.0)];
        if two {
            pools.push(pool("other", 10, 11, shares.1));
        }
        pools
    })
}

/// Allocation that shares ports out, or none.
fn shares() -> impl Strategy<Value = Option<Allocation>> {
    let release = prop_oneof![
        1 => Just(Duration::ZERO),
        2 => (1_000_000_000u64..20_000_000_000).prop_map(Duration::from_nanos),
        1 => Just(Duration::from_secs(60)),
    ];
    let size = prop_oneof![8 => Just(16u16), 1 => Just(32), 1 => Just(64)];
    let blocks = (size, 1u16..4, release).prop_map(|(size, max_per_subscriber, release_after)| {
        Allocation::Block(BlockConfig { size, max_per_subscriber, release_after })
    });
    let prefix = |address, len| Prefix::new(end(address, 0).address, len);
    let subscribers = prop::sample::select(vec![
        vec![prefix([10, 0, 0, 0], 30)],
        vec![prefix([10, 0, 0, 2], 31), prefix([10, 0, 0, 80], 32), prefix([10, 0, 0, 0], 31)],
        vec![prefix([10, 0, 0, 2], 32), prefix([10, 0, 0, 1], 32)],
        vec![prefix([11, 0, 0, 0], 29), prefix([10, 0, 0, 0], 28)],
    ]);
    let each = prop::option::weighted(0.4, 1u16..6);
    let dynamic = prop_oneof![1 => Just(0u16), 1 => 1u16..4];
    let plan = (subscribers, each, dynamic).prop_map(
        |(subscribers, ports_per_subscriber, dynamic_ports)| {
            Allocation::Deterministic(DeterministicConfig {
                realm: 0,
                subscribers,
                ports_per_subscriber,
                dynamic_ports,
            })
        },
    );
    prop_oneof![
        3 => Just(None),
        3 => blocks.prop_map(Some),
        3 => plan.prop_map(Some),
        1 => Just(Some(Allocation::Preserve)),
    ]
}

fn can_have(pool: &PoolConfig, shares: &Allocation) -> bool {
    match shares {
        Allocation::Block(block) => Blocking::new(pool.ports, block.size).count() > 0,
        Allocation::Deterministic(plan) => Plan::new(plan, pool).is_ok(),
        Allocation::Random | Allocation::Preserve | Allocation::Address => true,
    }
}

/// Has the pools give out whole addresses, with what that needs of the rest.
fn with_whole_addresses(config: Config, all: bool) -> Config {
    let whole = |(number, pool): (usize, PoolConfig)| match all || number == 0 {
        true => PoolConfig {
            ports: Allocation::ALL_PORTS,
            overloading: false,
            excluded_ports: Vec::new(),
            allocation: Some(Allocation::Address),
            ..pool
        },
        false => pool,
    };
    let pools: Vec<PoolConfig> = config.pools.into_iter().enumerate().map(whole).collect();
    let is_fit = |one: &StaticMapping| one.external.1.is_none() && one.protocol.is_none();
    let rules = fit(&config.rules, &pools);
    Config {
        pools,
        rules,
        mapping: Behavior::EndpointIndependent,
        statics: config.statics.into_iter().filter(is_fit).collect(),
        services: Vec::new(),
        ..config
    }
}

/// Static mappings and services. Their hosts are also subscribers, so that their own sessions meet
/// sessions towards them.
fn fixed() -> BoxedStrategy<(Vec<StaticMapping>, Vec<Service>)> {
    prop_oneof![
        6 => (statics(), Just(vec![])),
        2 => (one_way(), Just(vec![])),
        2 => (Just(vec![]), services()),
        1 => (one_way(), services()).prop_map(|(statics, mut services)| {
            // A whole mapped address has all its ports.
            services.retain(|service| {
                let address = service.external.0;
                statics.iter().all(|one| one.external != (address, None))
            });
            (statics, services)
        }),
    ]
    .boxed()
}

fn static_at(
    protocol: Option<u8>,
    inside: [u8; 4],
    external: [u8; 4],
    ports: Option<(u16, u16)>,
) -> StaticMapping {
    StaticMapping {
        protocol,
        internal: (end(inside, 0).address, ports.map(|ports| ports.0)),
        external: (end(external, 0).address, ports.map(|ports| ports.1)),
        ..StaticMapping::default()
    }
}

/// Static mappings that only one side begins. Several from outside may have one internal endpoint.
fn one_way() -> impl Strategy<Value = Vec<StaticMapping>> {
    let begun = || prop::sample::select(vec![Begun::Outside, Begun::Outside, Begun::Inside]);
    let host = prop::sample::select(vec![INSIDE[0], INSIDE[3]]);
    let protocol = prop::sample::select(vec![None, None, Some(TCP), Some(UDP), Some(GRE)]);
    (host, protocol, begun(), any::<bool>(), 0usize..3).prop_map(
        |(host, protocol, begun, whole, more)| {
            let [first, second] = FIXED;
            let has_ports = protocol != Some(GRE);
            let ports = (has_ports && !whole).then_some((5000, 2000));
            let mut all = vec![StaticMapping { begun, ..static_at(protocol, host, first, ports) }];
            // Further mappings from outside. The first may serve sessions of the host itself.
            if more > 0 {
                let ports = has_ports.then_some((5000, 5001));
                let begun = Begun::Outside;
                all.push(StaticMapping { begun, ..static_at(protocol, host, second, ports) });
            }
            if more > 1 && begun == Begun::Outside && has_ports {
                all.push(static_at(protocol, host, second, Some((5000, 1024))));
            }
            all
        },
    )
}

/// A service of one to three servers. Two servers may be ports of one host.
fn services() -> impl Strategy<Value = Vec<Service>> {
    let servers = [(INSIDE[3], 5000), (INSIDE[0], 5000), (INSIDE[3], 5001), (INSIDE[1], 80)];
    let server = (prop::sample::select(servers.to_vec()), 0u16..3, prop::bool::weighted(0.2));
    let server = (server, prop::bool::weighted(0.3));
    let affinity = prop::sample::select(vec![Affinity::Address, Affinity::None]);
    let protocol = prop::sample::select(vec![None, Some(TCP), Some(UDP)]);
    let place = prop_oneof![3 => Just((FIXED[0], 80)), 2 => Just((FIXED[1], 2001))];
    (prop::collection::vec(server, 1..4), affinity, protocol, place).prop_map(
        |(servers, affinity, protocol, (address, port))| {
            let mut members: Vec<Server> = Vec::new();
            for (((host, port), weight, draining), backup) in servers {
                let internal = (end(host, 0).address, port);
                if members.iter().all(|other| other.internal != internal) {
                    members.push(Server { internal, weight, draining, backup });
                }
            }
            let external = (end(address, 0).address, port);
            vec![Service { realm: 0, protocol, external, servers: members, affinity }]
        },
    )
}

fn statics() -> impl Strategy<Value = Vec<StaticMapping>> {
    let fixed = |protocol, inside, index: usize, ports: Option<(u16, u16)>| {
        static_at(protocol, inside, FIXED[index], ports)
    };
    prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![fixed(None, INSIDE[3], 0, Some((5000, 2000)))]),
        1 => Just(vec![
            fixed(Some(UDP), INSIDE[3], 1, Some((5000, 5001))),
            fixed(Some(TCP), INSIDE[3], 1, Some((2000, 1024))),
        ]),
        1 => Just(vec![fixed(Some(UDP), INSIDE[0], 1, Some((5000, 5001)))]),
        1 => Just(vec![fixed(None, INSIDE[3], 0, None)]),
        1 => Just(vec![fixed(None, INSIDE[3], 1, None)]),
        1 => prop::sample::select(vec![TCP, UDP, DCCP, GRE])
            .prop_map(move |protocol| vec![fixed(Some(protocol), INSIDE[3], 1, None)]),
    ]
}

/// A rule about hosts that occur, often with a wider prefix.
fn rule() -> impl Strategy<Value = Rule> {
    let all = [INSIDE[0], INSIDE[1], INSIDE[2], INSIDE[4], REMOTE[0], REMOTE[1], POOL, FIXED[0]];
    let len =
        prop_oneof![4 => Just(32u8), 3 => 28u8..32, 1 => Just(24), 1 => Just(8), 1 => Just(0)];
    let port = prop_oneof![3 => Just(0u16), 2 => prop::sample::select(PORTS.to_vec())];
    let priority = prop_oneof![3 => Just(0i16), 1 => -1i16..2];
    let action = prop_oneof![
        3 => Just(RuleAction::Bypass),
        2 => Just(RuleAction::Drop),
        3 => (0usize..2).prop_map(RuleAction::Snat),
        4 => (0usize..2, 0u8..3).prop_map(|(pool, host)| {
            RuleAction::SnatTo(pool, Ipv4Addr::from([0, 0, 0, host]))
        }),
    ];
    (any::<bool>(), prop::sample::select(all.to_vec()), len, port, priority, action).prop_map(
        |(by_source, address, len, port, priority, action)| {
            let matches = if by_source { Match::Source } else { Match::Destination };
            let prefix = Prefix::new(address.into(), len);
            Rule { priority, ..Rule::new(matches(prefix, port), action) }
        },
    )
}

/// A rule that translates destinations that occur, to remote hosts that occur, or to destinations
/// that are not permitted.
fn dnat() -> impl Strategy<Value = Rule> {
    const ELSEWHERE: [u8; 4] = [172, 20, 0, 1];
    let from = [REMOTE[0], REMOTE[1], REMOTE[2], ELSEWHERE, POOL, FIXED[0], OWN[0], OWN[1]];
    let to = [
        REMOTE[0],
        REMOTE[1],
        REMOTE[2],
        REMOTE[0],
        REMOTE[1],
        POOL,
        FIXED[0],
        FIXED[1],
        INSIDE[0],
        INSIDE[1],
        [10, 0, 9, 9],
        OWN[1],
        [224, 0, 0, 1],
        [203, 0, 113, 3],
    ];
    let len =
        prop_oneof![4 => Just(32u8), 3 => 28u8..32, 1 => Just(24), 1 => Just(8), 1 => Just(0)];
    let port = prop_oneof![2 => Just(0u16), 1 => prop::sample::select(PORTS.to_vec())];
    let to_port = prop::option::of(prop::sample::select(PORTS[..7].to_vec()));
    let priority = prop_oneof![5 => Just(0i16), 1 => -1i16..2];
    let ends = (prop::sample::select(from.to_vec()), prop::sample::select(to.to_vec()));
    (ends, len, port, to_port, priority, any::<bool>()).prop_map(
        |((from, to), len, port, to_port, priority, whole)| {
            let action = match whole {
                true => RuleAction::DnatPrefix(Prefix::new(to.into(), len)),
                false => RuleAction::Dnat(to.into(), to_port),
            };
            let matches = Match::Destination(Prefix::new(from.into(), len), port);
            Rule { priority, ..Rule::new(matches, action) }
        },
    )
}

/// Rules with pools and addresses that [`fit`] still has to adapt.
pub(crate) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let prefix = |[a, b, c, d]: [u8; 4], len| Prefix::new(Ipv4Addr::new(a, b, c, d), len);
    let bypass = |matches| Rule::new(matches, RuleAction::Bypass);
    let snat = |matches| Rule::new(matches, RuleAction::Snat(1));
    let drop = |matches| Rule::new(matches, RuleAction::Drop);
    prop_oneof![
        8 => Just(vec![]),
        1 => Just(vec![bypass(Match::Source(prefix(INSIDE[1], 32), 0))]),
        1 => Just(vec![bypass(Match::Destination(prefix(REMOTE[1], 31), 0))]),
        1 => Just(vec![drop(Match::Destination(prefix(REMOTE[1], 32), 0))]),
        1 => Just(vec![drop(Match::Source(prefix(INSIDE[1], 32), 5000))]),
        1 => Just(vec![
            snat(Match::Source(prefix(INSIDE[4], 24), 0)),
            snat(Match::Source(prefix(INSIDE[2], 32), 0)),
        ]),
        1 => Just(vec![
            bypass(Match::Source(prefix(INSIDE[0], 30), 5000)),
            snat(Match::Source(prefix(INSIDE[0], 30), 0)),
            bypass(Match::Destination(prefix(REMOTE[0], 30), 5000)),
        ]),
        1 => Just(vec![snat(Match::Destination(prefix(REMOTE[1], 32), 0))]),
        1 => Just(vec![
            bypass(Match::Source(prefix(INSIDE[0], 8), 0)),
            snat(Match::Source(prefix(INSIDE[0], 31), 0)),
        ]),
        4 => prop::collection::vec(rule(), 1..6),
        // A packet from there could be seen as either of two.
        1 => Just([REMOTE[0], [172, 20, 0, 1]].map(|seen| {
            let to = RuleAction::DnatPrefix(prefix([10, 0, 9, 9], 31));
            Rule::new(Match::Destination(prefix(seen, 31), 0), to)
        }).to_vec()),
        3 => prop::collection::vec(dnat(), 1..6),
        3 => prop::collection::vec(prop_oneof![rule().boxed(), dnat().boxed()], 1..8),
    ]
}

/// The rules with existing pools and addresses, without repetitions.
pub(crate) fn fit(rules: &[Rule], pools: &[PoolConfig]) -> Vec<Rule> {
    let mut fitting: Vec<Rule> = Vec::new();
    for rule in rules {
        let action = match rule.action {
            RuleAction::Snat(pool) => RuleAction::Snat(pool % pools.len()),
            // No rule chooses an address where subscribers have ports of their own.
            RuleAction::SnatTo(pool, _) if pools[pool % pools.len()].allocation.is_some() => {
                RuleAction::Snat(pool % pools.len())
            }
            RuleAction::SnatTo(pool, host) => {
                let pool = pool % pools.len();
                let range = pools[pool].addresses[0];
                let address = range.first.to_bits() + host.to_bits() % range.count() as u32;
                RuleAction::SnatTo(pool, Ipv4Addr::from_bits(address))
            }
            ref other => other.clone(),
        };
        let looks_at = |rule: &Rule| {
            let dnat = matches!(rule.action, RuleAction::Dnat(..) | RuleAction::DnatPrefix(_));
            (dnat, rule.matches, rule.priority)
        };
        let same = |other: &Rule| looks_at(other) == looks_at(rule);
        if !fitting.iter().any(same) {
            fitting.push(Rule { action, ..rule.clone() });
        }
    }
    fitting
}

/// `tcp_mss`, `answer_unsolicited_syn` and `refusal`.
fn late() -> impl Strategy<Value = (Option<u16>, bool, Refusal)> {
    let mss = prop_oneof![2 => Just(None), 2 => Just(Some(1220u16)), 1 => edge().prop_map(Some)];
    let refusal = prop_oneof![
        4 => Just(Refusal::HostUnreachable),
        1 => Just(Refusal::Prohibited),
        1 => Just(Refusal::Silent),
    ];
    (mss, prop::bool::weighted(0.9), refusal)
}

/// Addresses behind routers inside: some are remote elsewhere, some are on the link.
pub(crate) fn inside_routes() -> impl Strategy<Value = Vec<AddressRange>> {
    let range = |first: [u8; 4], last: [u8; 4]| AddressRange {
        first: end(first, 0).address,
        last: end(last, 0).address,
    };
    let all = vec![
        range(INSIDE[2], INSIDE[2]),
        range(INSIDE[4], [11, 0, 0, 255]),
        range([198, 51, 100, 0], REMOTE[0]),
        range(POOL, FIXED[1]),
    ];
    prop_oneof![
        3 => Just(vec![]),
        1 => prop::sample::subsequence(all, 1..=4),
    ]
}

pub(crate) fn config() -> impl Strategy<Value = Config> {
    let side = |own: [u8; 4], networks: Vec<Option<Prefix>>| {
        let address = prop_oneof![3 => Just(Some(end(own, 0).address)), 1 => Just(None)];
        let mtu = prop_oneof![6 => Just(None), 2 => Just(Some(600u16)), 1 => Just(Some(68))];
        (address, prop::sample::select(networks), mtu, prop::bool::weighted(0.1)).prop_map(
            |(address, network, mtu, silent)| SideConfig { address, network, mtu, silent },
        )
    };
    let inside = side(OWN[0], vec![Some(Prefix::new(end([10, 0, 0, 0], 0).address, 16))]);
    // The pool may be in the outside network, and its last address may be that network's last.
    let near_pool = |len| Some(Prefix::new(end(POOL, 0).address, len));
    let networks = vec![None, None, near_pool(30), near_pool(31), near_pool(24)];
    let outside = prop_oneof![3 => side(OWN[1], networks.clone()), 1 => side(POOL, networks)];
    let behaviors = (
        behavior(),
        (behavior(), prop::option::weighted(0.3, behavior())),
        prop::sample::select(vec![Pooling::Paired, Pooling::SoftPaired, Pooling::Arbitrary]),
        prop::sample::select(vec![Allocation::Random, Allocation::Preserve]),
        prop::array::uniform5(any::<bool>()),
        late(),
    );
    let rest = (pools(), rules(), inside_routes());
    let whole = prop::option::weighted(0.15, any::<bool>());
    let statics = (fixed(), policy(), whole);
    (inside, outside, behaviors, limits(), timeouts(), rest, statics).prop_map(
        |(inside, outside, behaviors, limits, timeouts, rest, (fixed, policy, whole))| {
            let (pools, rules, inside_routes) = rest;
            let (statics, services) = fixed;
            let (mapping, (filtering, filtering_tcp), pooling, allocation, switches, late) =
                behaviors;
            let (tcp_mss, answer_unsolicited_syn, refusal) = late;
            let [port_parity, hairpinning, inbound_refresh, tcp_pickup, session_events] = switches;
            let rules = fit(&rules, &pools);
            let config = policy.add_to(Config {
                inside,
                inside_routes,
                outside,
                pools,
                mapping,
                filtering,
                filtering_tcp,
                pooling,
                allocation,
                port_parity,
                hairpinning: hairpinning || port_parity,
                inbound_refresh,
                tcp_pickup,
                session_events,
                tcp_mss,
                answer_unsolicited_syn,
                refusal,
                limits,
                timeouts,
                statics,
                services,
                rules,
                ..Config::default()
            });
            match whole {
                Some(all) => with_whole_addresses(config, all),
                None => fit_blocks(config),
            }
        },
    )
}

/// Removes static mappings and services whose hosts cannot have the blocks of their forwarded
/// ports.
pub(crate) fn fit_blocks(config: Config) -> Config {
    match fits_blocks(&config) {
        true => config,
        false => Config { statics: vec![], services: vec![], ..config },
    }
}

/// True if the hosts of forwarded ports can have the blocks of these ports.
pub(crate) fn fits_blocks(config: &Config) -> bool {
    // Classes may name realms that are added later.
    let config = Config { classes: vec![], ..config.clone() };
    match Engine::new(&config, [0; 32], START) {
        Ok(_) => true,
        Err(refused) => !["block", "a part of"].iter().any(|why| refused.message.contains(why)),
    }
}
