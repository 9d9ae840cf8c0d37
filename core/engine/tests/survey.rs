//! Surveys of the tables by parts. They find the same as a look at everything.

mod common;

use common::*;
use natgate_engine::{
    Affinity, Allocation, Begun, BlockConfig, BlockInfo, BlockKind, ByEndpoint, Change, Config,
    Cursor, DeterministicConfig, Endpoint, Engine, Filter, MappingInfo, MappingKind, Match,
    PoolConfig, Prefix, Rule, RuleAction, Server, Service, SessionInfo, Side, StaticMapping,
};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::time::Duration;

fn ip4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(ip4(address), len.parse().unwrap())
}

/// Static mappings, a service, shared ports, protocols without ports, many sessions.
fn lab() -> Lab {
    let fixed = |internal: &str, port, external: &str| StaticMapping {
        realm: 0,
        protocol: None,
        internal: (ip4(internal), port),
        external: (ip4(external), port),
        begun: Begun::Anywhere,
    };
    let server = |host: &str| {
        let internal = (ip4(host), 80);
        Server { internal, weight: 1, draining: false, backup: false }
    };
    let service = Service {
        realm: 0,
        protocol: Some(protocol::TCP),
        external: (ip4("203.0.113.1"), 8080),
        servers: vec![server("10.0.0.90"), server("10.0.0.91")],
        affinity: Affinity::default(),
    };
    let mut pool = pool("203.0.113.1", "203.0.113.1", (5000, 5050));
    pool.overloading = true;
    let statics =
        vec![fixed("10.0.0.80", Some(443), "203.0.113.1"), fixed("10.0.0.81", None, "203.0.113.9")];
    let config = Config { pools: vec![pool], statics, services: vec![service], ..config() };
    let mut lab = Lab::new(&config);
    for host in 2..60 {
        let source = format!("10.0.0.{host}:4000");
        for remote in 0..host % 5 + 1 {
            // Some flows find their remote endpoint taken at every port.
            lab.pass(Side::Inside, &udp(&source, &format!("198.51.100.{}:53", host + remote)));
        }
        if host < 20 {
            lab.out(&tcp(&source, REMOTE, "S", 1, 0));
            let tunnel = format!("198.51.100.{host}");
            lab.out(&ip(protocol::GRE, endpoint(&source).0, endpoint(&tunnel).0, &[0; 8]));
        }
    }
    lab.out(&udp("10.0.0.81:7", REMOTE));
    lab.inward(&tcp("198.51.100.20:9", "203.0.113.1:8080", "S", 1, 0));
    lab.inward(&udp("198.51.100.21:9", "203.0.113.1:443"));
    lab
}

/// Filters of every kind, with and without matches.
fn filters() -> Vec<Filter> {
    let mut filters = vec![Filter::default()];
    for (external, ports) in
        [("203.0.113.1", vec![0, 443, 5000, 5007, 5049, 8080, 60_000]), ("203.0.113.9", vec![7])]
    {
        for port in ports.into_iter().map(Some).chain([None]) {
            for protocol in [None, Some(protocol::UDP), Some(protocol::TCP), Some(protocol::GRE)] {
                let external = Some(ip4(external).into());
                filters.push(Filter {
                    external,
                    external_port: port,
                    protocol,
                    ..Filter::default()
                });
            }
        }
    }
    filters.push(Filter { external: Some(ip4("192.0.2.77").into()), ..Filter::default() });
    for subscriber in ["10.0.0.5", "10.0.0.80", "10.0.0.81", "10.0.0.90", "10.0.0.200"] {
        for realm in [None, Some(0), Some(3)] {
            let subscriber = Some(ip4(subscriber).into());
            filters.push(Filter { subscriber, realm, ..Filter::default() });
        }
    }
    for (subscriber, external) in [
        ("10.0.0.0/28", "203.0.113.0/29"),
        ("10.0.0.64/26", "0.0.0.0/0"),
        ("10.9.0.0/16", "198.51.100.0/24"),
    ] {
        let (subscriber, external) = (Some(prefix(subscriber)), Some(prefix(external)));
        filters.push(Filter { subscriber, ..Filter::default() });
        filters.push(Filter { external, ..Filter::default() });
        filters.push(Filter {
            subscriber,
            external,
            external_port: Some(5007),
            ..Filter::default()
        });
    }
    for (remote, port) in [
        ("198.51.100.20/32", None),
        ("198.51.100.20/32", Some(53)),
        ("198.51.100.20/32", Some(54)),
        ("198.51.100.16/29", None),
        ("198.51.100.0/24", Some(53)),
        ("192.0.2.0/24", None),
    ] {
        let filter =
            Filter { remote: Some(prefix(remote)), remote_port: port, ..Filter::default() };
        filters.push(filter);
        filters.push(Filter { subscriber: Some(prefix("10.0.0.0/28")), ..filter });
        filters.push(Filter { protocol: Some(protocol::GRE), ..filter });
    }
    filters
}

fn fits(filter: &Filter, info: &MappingInfo) -> bool {
    let id = &info.id;
    let has = |prefix: Prefix, address: Ipv4Addr| prefix.contains(address.to_bits());
    filter.realm.is_none_or(|realm| realm == id.realm)
        && filter.subscriber.is_none_or(|prefix| has(prefix, id.internal.address))
        && filter.external.is_none_or(|prefix| has(prefix, id.external.address))
        && filter.external_port.is_none_or(|port| port == id.external.port)
        && filter.protocol.is_none_or(|protocol| protocol == id.protocol)
}

fn has_remote(filter: &Filter, session: &SessionInfo) -> bool {
    filter.remote.is_none_or(|prefix| prefix.contains(session.remote.address.to_bits()))
        && filter.remote_port.is_none_or(|port| port == session.remote.port)
}

/// All results of a scan in parts of `room`, with `most` slots a call.
fn scan<T>(
    (room, most): (usize, usize),
    mut part: impl FnMut(&mut Cursor, usize, &mut Vec<T>) -> bool,
) -> Vec<T> {
    let (mut cursor, mut all) = (Cursor::default(), Vec::new());
    for _ in 0..100_000 {
        let mut found = Vec::with_capacity(room);
        let room = found.capacity();
        let done = part(&mut cursor, most, &mut found);
        assert_eq!(found.capacity(), room, "the list is not made longer");
        all.extend(found);
        if done {
            return all;
        }
    }
    panic!("it comes to no end");
}

fn mappings(engine: &Engine, filter: &Filter, parts: (usize, usize)) -> Vec<MappingInfo> {
    scan(parts, |cursor, most, found| engine.scan_mappings(cursor, most, filter, found))
}

#[test]
fn a_scan_finds_what_is_there_once() {
    let lab = lab();
    let mut any = 0;
    for filter in filters() {
        for parts in [(1, 1), (3, 7), (1000, 100_000)] {
            let mut expected: Vec<_> = lab.engine.mappings().map(|info| info.id).collect();
            expected.retain({
                let all: Vec<_> = lab.engine.mappings().collect();
                let sessions: Vec<_> = lab.engine.sessions().collect();
                let has =
                    move |id| sessions.iter().any(|s| s.mapping == id && has_remote(&filter, s));
                let is_any = filter.remote.is_none() && filter.remote_port.is_none();
                move |id| {
                    all.iter().any(|info| info.id == *id && fits(&filter, info))
                        && (is_any || has(*id))
                }
            });
            let mut found: Vec<_> =
                mappings(&lab.engine, &filter, parts).iter().map(|info| info.id).collect();
            let order = |id: &natgate_engine::MappingId| {
                (id.protocol, id.internal, id.external, id.kind.name())
            };
            expected.sort_by_key(order);
            found.sort_by_key(order);
            assert_eq!(found, expected, "{filter:?} {parts:?}");
            any += found.len();
        }
    }
    assert!(any > 500, "{any}");
}

#[test]
fn so_are_sessions() {
    let lab = lab();
    let key = |info: &SessionInfo| (info.mapping.protocol, info.mapping.internal, info.remote);
    for filter in filters() {
        for parts in [(1, 1), (3, 7), (1000, 100_000)] {
            let found = scan(parts, |cursor, most, found| {
                lab.engine.scan_sessions(cursor, most, &filter, found)
            });
            assert!(found.iter().all(|(session, mapping)| session.mapping == mapping.id));
            let mut found: Vec<_> = found.iter().map(|(session, _)| key(session)).collect();
            let all: Vec<_> = lab.engine.mappings().collect();
            let is_of = |id| all.iter().any(|info| info.id == id && fits(&filter, info));
            let expected = lab.engine.sessions().filter(|info| is_of(info.mapping));
            let expected = expected.filter(|info| has_remote(&filter, info));
            let mut expected: Vec<_> = expected.map(|info| key(&info)).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "{filter:?} {parts:?}");
        }
    }
}

#[test]
fn an_endpoint_is_looked_up_and_not_searched_for() {
    let mut lab = Lab::new(&config());
    let mut last = String::new();
    for port in 1..400 {
        last = lab.external_of(&udp(&format!("10.0.0.5:{port}"), REMOTE));
    }
    let (address, port) = endpoint(&last);
    let filter = Filter {
        external: Some(Ipv4Addr::from_bits(address).into()),
        external_port: Some(port),
        ..Filter::default()
    };
    let (mut cursor, mut found) = (Cursor::default(), Vec::with_capacity(8));
    // One port for each of four protocols.
    assert!(lab.engine.scan_mappings(&mut cursor, 8, &filter, &mut found));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].id.internal.port, 399);
    let nobody = Filter { subscriber: Some(ip4("10.0.0.6").into()), ..Filter::default() };
    let mut cursor = Cursor::default();
    assert!(lab.engine.scan_mappings(&mut cursor, 1, &nobody, &mut found));
    assert_eq!(found.len(), 1);
}

#[test]
fn subscribers_are_told_with_what_they_have() {
    let lab = lab();
    let all = |filter: Filter| {
        scan((2, 3), |cursor, most, found| {
            lab.engine.scan_subscribers(cursor, most, &filter, found)
        })
    };
    let found = all(Filter::default());
    let totals = lab.engine.totals();
    assert_eq!(found.len() as u64, totals.subscribers);
    let mappings: u32 = found.iter().flat_map(|info| info.mappings).sum();
    assert_eq!(u64::from(mappings), totals.mappings);
    let one = all(Filter { subscriber: Some(ip4("10.0.0.9").into()), ..Filter::default() });
    assert_eq!(one.len(), 1);
    assert_eq!((one[0].mappings, one[0].sessions), ([1, 1, 1], 7));
    assert_eq!(one[0].external, Some(ip4("203.0.113.1")));
    assert!(
        all(Filter { subscriber: Some(ip4("10.0.0.99").into()), ..Filter::default() }).is_empty()
    );
    assert!(all(Filter { realm: Some(1), ..Filter::default() }).is_empty());
}

#[test]
fn addresses_tell_what_is_used_of_them() {
    let lab = lab();
    let filter = Filter::default();
    let found =
        scan((1, 1), |cursor, most, found| lab.engine.scan_addresses(cursor, most, &filter, found));
    // The other external address is in no pool.
    assert_eq!(found.len(), 1);
    let usage = found[0];
    assert_eq!((usage.address, usage.pool, usage.draining), (ip4("203.0.113.1"), 0, false));
    assert_eq!(u64::from(usage.mappings), lab.engine.totals().mappings);
    for (place, of) in [protocol::TCP, protocol::UDP].into_iter().enumerate() {
        assert_eq!(u64::from(usage.free[place]), lab.engine.pool_usage(0, of).free);
    }
    assert_eq!(lab.engine.pool_free(0), (usage.free, None));
}

#[test]
fn blocks_of_an_address_are_somebodys_or_to_be_had() {
    let release_after = Duration::from_secs(60);
    let block = BlockConfig { size: 16, max_per_subscriber: 1, release_after };
    let blocks = PoolConfig {
        allocation: Some(Allocation::Block(block)),
        ..pool("203.0.113.1", "203.0.113.2", (1024, 1183))
    };
    let mut plain = pool("203.0.113.9", "203.0.113.9", (1024, 1183));
    plain.name = "plain".into();
    let mut lab = Lab::new(&Config { pools: vec![blocks, plain], ..config() });
    for host in 2..9 {
        lab.out(&udp(&format!("10.0.0.{host}:4000"), REMOTE));
    }
    let filter = Filter::default();
    let found =
        scan((1, 1), |cursor, most, found| lab.engine.scan_addresses(cursor, most, &filter, found));
    let told: Vec<_> = found.iter().map(|usage| usage.blocks).collect();
    let [Some(one), Some(other), None] = told[..] else { panic!("{told:?}") };
    assert_eq!(one[0] + other[0], 7);
    assert_eq!((one[0] + one[1], other[0] + other[1]), (10, 10));
    assert_eq!(lab.engine.pool_free(0).1, Some(one[1] + other[1]));
}

#[test]
fn what_is_cleared_is_told_and_counted() {
    let mut lab = lab();
    let filter = Filter { subscriber: Some(ip4("10.0.0.9").into()), ..Filter::default() };
    let expected = mappings(&lab.engine, &filter, (100, 1000)).len() as u64;
    let (mut cursor, mut cleared, mut removed) = (Cursor::default(), 0, 0);
    loop {
        let (some, done) = lab.engine.clear_mappings(&mut cursor, 10, &filter);
        cleared += some;
        while let Some(event) = lab.engine.poll_event() {
            removed += u64::from(matches!(event.change, Change::MappingRemoved(_)));
        }
        if done {
            break;
        }
    }
    assert_eq!((cleared, removed), (expected, expected));
    assert_eq!(expected, 3);
    assert!(mappings(&lab.engine, &filter, (100, 1000)).is_empty());
    // The host begins again.
    lab.out(&udp("10.0.0.9:4000", REMOTE));
    assert_eq!(mappings(&lab.engine, &filter, (100, 1000)).len(), 1);
}

/// Clears in small parts until the end. Returns the number removed.
fn clear_all(lab: &mut Lab, filter: &Filter, most: usize, sessions: bool) -> u64 {
    let (mut cursor, mut cleared) = (Cursor::default(), 0);
    for _ in 0..1_000_000 {
        let (some, done) = match sessions {
            true => lab.engine.clear_sessions(&mut cursor, most, filter),
            false => lab.engine.clear_mappings(&mut cursor, most, filter),
        };
        cleared += some;
        while lab.engine.poll_event().is_some() {}
        if done {
            return cleared;
        }
    }
    panic!("it comes to no end: {filter:?}");
}

#[test]
fn what_a_filter_means_is_cleared_and_nothing_else() {
    for filter in filters() {
        for most in [1, 7, 100_000] {
            let mut lab = lab();
            let all: Vec<_> = lab.engine.mappings().collect();
            let is_sought = |session: &SessionInfo| {
                all.iter().any(|info| info.id == session.mapping && fits(&filter, info))
                    && has_remote(&filter, session)
            };
            let sought = lab.engine.sessions().filter(|s| is_sought(s)).count() as u64;
            let others = lab.engine.sessions().count() as u64 - sought;
            assert_eq!(clear_all(&mut lab, &filter, most, true), sought, "{filter:?} {most}");
            assert_eq!(lab.engine.sessions().count() as u64, others, "{filter:?} {most}");
            assert_eq!(lab.engine.sessions().filter(|s| is_sought(s)).count(), 0);
        }
        let mut lab = lab();
        let dynamic = |lab: &Lab| {
            let found = mappings(&lab.engine, &filter, (100, 1000));
            found.iter().filter(|info| info.id.kind == MappingKind::Dynamic).count() as u64
        };
        let (expected, before) = (dynamic(&lab), lab.engine.totals().mappings);
        assert_eq!(clear_all(&mut lab, &filter, 7, false), expected, "{filter:?}");
        assert_eq!(dynamic(&lab), 0);
        assert_eq!(lab.engine.totals().mappings, before - expected, "{filter:?}");
    }
}

#[test]
fn a_scan_by_remote_endpoint_looks_at_no_more_than_it_is_told() {
    let mut lab = Lab::new(&config());
    for port in 1..=300 {
        lab.out(&udp(&format!("10.0.0.5:{port}"), "198.51.100.7:53"));
    }
    let filter = Filter { remote: Some(prefix("192.0.2.0/24")), ..Filter::default() };
    let (mut cursor, mut found, mut calls) = (Cursor::default(), Vec::with_capacity(8), 1);
    // A mapping counts one, and its session one.
    while !lab.engine.scan_sessions(&mut cursor, 20, &filter, &mut found) {
        calls += 1;
    }
    assert!(found.is_empty());
    assert!((300 / 20..=2 * 300 / 20 + 2).contains(&calls), "{calls}");
}

/// A mapping with many sessions is visited in steps. No session is passed over that is there all
/// the time, whatever begins and ends meanwhile.
#[test]
fn remotes_are_visited_in_steps_and_none_is_missed() {
    const STEP: usize = 16;
    for seed in 1..=50_u64 {
        println!("seed {seed}");
        let mut random = seed;
        let mut below = |bound: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % bound
        };
        let mut config = config();
        config.limits.sessions_per_mapping = 2000;
        config.limits.sessions_per_subscriber = Some(2000);
        let mut lab = Lab::new(&config);
        let remote = |number: usize| Ipv4Addr::new(198, 51, (number / 250) as u8, number as u8);
        let mut begun = 0;
        let mut begin = |lab: &mut Lab| {
            // Two mappings take turns.
            let port = 4000 + begun / 300 % 2;
            lab.out(&udp(&format!("10.0.0.2:{port}"), &format!("{}:53", remote(begun))));
            begun += 1;
            remote(begun - 1)
        };
        let mut stay: Vec<Ipv4Addr> = (0..700).map(|_| begin(&mut lab)).collect();
        let (mut cursor, mut visited, mut calls) = (Cursor::default(), Vec::new(), 0);
        loop {
            let before = visited.len();
            let filter = Filter::default();
            let is_done = lab.engine.scan_remotes(&mut cursor, STEP, &filter, |host, remote| {
                assert_eq!(host, ip4("10.0.0.2"));
                visited.push(remote);
            });
            assert!(visited.len() - before <= STEP + 1, "{}", visited.len() - before);
            calls += 1;
            if is_done {
                break;
            }
            for _ in 0..below(4) {
                let gone = stay.swap_remove(below(stay.len()));
                let filter = Filter { remote: Some(gone.into()), ..Filter::default() };
                assert_eq!(clear_all(&mut lab, &filter, 1 << 20, true), 1);
            }
            (0..below(3)).for_each(|_| _ = begin(&mut lab));
        }
        assert!((30..400).contains(&calls), "{calls}");
        visited.sort_unstable();
        let missed = stay.iter().filter(|one| visited.binary_search(one).is_err());
        assert_eq!(missed.count(), 0);
    }
}

fn blocks(engine: &Engine, filter: &Filter, parts: (usize, usize)) -> Vec<BlockInfo> {
    scan(parts, |cursor, most, found| engine.scan_blocks(cursor, most, filter, found))
}

/// Two pools of blocks, a deterministic pool for a realm's subscribers, a static port in a block.
fn block_lab() -> Lab {
    let release_after = Duration::from_secs(60);
    let block = BlockConfig { size: 16, max_per_subscriber: 2, release_after };
    let in_blocks = PoolConfig {
        allocation: Some(Allocation::Block(block)),
        ..pool("203.0.113.1", "203.0.113.2", (1024, 1183))
    };
    let shares = DeterministicConfig {
        subscribers: vec![prefix("10.7.0.0/28")],
        ..DeterministicConfig::default()
    };
    let by_arithmetic = PoolConfig {
        name: "arithmetic".into(),
        allocation: Some(Allocation::Deterministic(shares)),
        ..pool("203.0.113.9", "203.0.113.9", (1024, 1183))
    };
    let statics = vec![StaticMapping {
        realm: 0,
        protocol: Some(protocol::TCP),
        internal: (ip4("10.0.0.80"), Some(443)),
        external: (ip4("203.0.113.1"), Some(1030)),
        begun: Begun::Anywhere,
    }];
    let members = Match::Source(prefix("10.7.0.0/28"), 0);
    let rules = vec![Rule::new(members, RuleAction::Snat(1))];
    let mut config = Config { pools: vec![in_blocks, by_arithmetic], statics, rules, ..config() };
    config.timeouts.hold_down = Duration::from_secs(120);
    Lab::new(&config)
}

#[test]
fn a_block_has_an_owner_when_none_of_its_ports_has_a_mapping() {
    let mut lab = block_lab();
    let made = lab.now;
    let external = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let (address, port) = endpoint(&external);
    let ports = (port - (port - 1024) % 16, port - (port - 1024) % 16 + 15);
    // Any port of the block leads to the owner, for any protocol.
    for asked in [ports.0, port, ports.1] {
        let filter = Filter {
            external: Some(Ipv4Addr::from_bits(address).into()),
            external_port: Some(asked),
            ..Filter::default()
        };
        let found = blocks(&lab.engine, &filter, (1, 1));
        assert_eq!(found.len(), 1, "{asked}");
        let info = found[0];
        assert_eq!((info.subscriber, info.ports), (ip4("10.0.0.5"), ports));
        assert_eq!((info.pool, info.kind), (0, BlockKind::Assigned));
        assert_eq!((info.used, info.held, info.expires), ([0, 1, 0, 0], [0; 4], None));
        let since = info.since.expect("it is known");
        assert!(since <= made && made.since(since) < Duration::from_millis(250));
    }
    // The mapping goes, the port rests, and the block stays with the subscriber. Then it is
    // released.
    let all = Filter::default();
    assert_eq!(clear_all(&mut lab, &all, 1 << 20, false), 1);
    let filter = Filter { subscriber: Some(ip4("10.0.0.5").into()), ..all };
    let rests = blocks(&lab.engine, &filter, (9, 1000));
    assert_eq!((rests[0].used, rests[0].held, rests[0].expires), ([0; 4], [0, 1, 0, 0], None));
    lab.wait_s(121.0);
    let empty = blocks(&lab.engine, &filter, (9, 1000));
    assert_eq!((empty[0].used, empty[0].held), ([0; 4], [0; 4]));
    let left = empty[0].expires.expect("an empty block is released").since(lab.now);
    assert!(left > Duration::from_secs(58) && left <= Duration::from_secs(60), "{left:?}");
    lab.wait_s(61.0);
    assert!(blocks(&lab.engine, &filter, (9, 1000)).is_empty());
}

#[test]
fn blocks_of_statics_and_all_deterministic_ranges_are_told() {
    let mut lab = block_lab();
    for host in ["10.0.0.3", "10.0.0.4", "10.7.0.2", "10.7.0.5"] {
        lab.out(&udp(&format!("{host}:4000"), REMOTE));
        lab.out(&tcp(&format!("{host}:4000"), REMOTE, "S", 1, 0));
    }
    let all = Filter::default();
    for parts in [(1, 1), (2, 3), (100, 10_000)] {
        let found = blocks(&lab.engine, &all, parts);
        let brief = |info: &BlockInfo| (info.subscriber, info.kind.name(), info.pool, info.used);
        let mut found: Vec<_> = found.iter().map(brief).collect();
        found.sort_unstable();
        let mut expected = vec![
            (ip4("10.0.0.3"), "block", 0, [1, 1, 0, 0]),
            (ip4("10.0.0.4"), "block", 0, [1, 1, 0, 0]),
            (ip4("10.0.0.80"), "static", 0, [1, 0, 0, 0]),
        ];
        // Subscribers without a mapping have their ranges, too.
        expected.extend((0..16).map(|host: u8| {
            let used = u32::from(host == 2 || host == 5);
            (ip4(&format!("10.7.0.{host}")), "deterministic", 1, [used, used, 0, 0])
        }));
        assert_eq!(found, expected, "{parts:?}");
    }
    let with = |external: &str, port| Filter {
        external: Some(ip4(external).into()),
        external_port: Some(port),
        ..all
    };
    let fixed = blocks(&lab.engine, &with("203.0.113.1", 1039), (5, 5));
    assert_eq!((fixed[0].subscriber, fixed[0].kind), (ip4("10.0.0.80"), BlockKind::Static));
    // 160 ports for 16 subscribers: ten each.
    let range = blocks(&lab.engine, &with("203.0.113.9", 1024 + 57), (5, 5));
    assert_eq!((range[0].subscriber, range[0].ports), (ip4("10.7.0.5"), (1074, 1083)));
    assert_eq!(range[0].used, [1, 1, 0, 0]);
    let unused = blocks(&lab.engine, &with("203.0.113.9", 1024), (5, 5));
    assert_eq!((unused[0].subscriber, unused[0].ports), (ip4("10.7.0.0"), (1024, 1033)));
    assert_eq!((unused[0].used, unused[0].held), ([0; 4], [0; 4]));
    let prefix_of = |text| Filter { external: Some(prefix(text)), ..all };
    assert_eq!(blocks(&lab.engine, &prefix_of("203.0.113.8/29"), (5, 5)).len(), 16);
    assert!(blocks(&lab.engine, &prefix_of("192.0.2.0/24"), (5, 5)).is_empty());
    let of = |text| Filter { subscriber: Some(prefix(text)), ..all };
    let some = blocks(&lab.engine, &of("10.7.0.4/30"), (1, 1));
    let hosts: Vec<_> = some.iter().map(|info| info.subscriber).collect();
    assert_eq!(hosts, ["10.7.0.4", "10.7.0.5", "10.7.0.6", "10.7.0.7"].map(ip4));
    let realm = Filter { realm: Some(3), ..all };
    assert!(blocks(&lab.engine, &realm, (5, 5)).is_empty());
}

#[test]
fn one_of_a_million_deterministic_ranges_is_found_at_once() {
    let shares = DeterministicConfig {
        subscribers: vec![prefix("10.16.0.0/12")],
        ports_per_subscriber: Some(63),
        ..DeterministicConfig::default()
    };
    let pools = vec![PoolConfig {
        allocation: Some(Allocation::Deterministic(shares)),
        ..pool("203.0.0.0", "203.0.3.255", (1024, 65_535))
    }];
    let lab = Lab::new(&Config { pools, ..config() });
    let all = Filter::default();
    let subscriber = Filter { subscriber: Some(prefix("10.31.255.255/32")), ..all };
    let external = Filter { external: Some(prefix("203.0.3.255/32")), ..all };
    for (filter, expected) in [(subscriber, 1), (external, 1024)] {
        let mut cursor = Cursor::default();
        let mut found = Vec::with_capacity(2000);
        let is_all = lab.engine.scan_blocks(&mut cursor, 2048, &filter, &mut found);
        assert!(is_all, "one turn of a worker does");
        assert_eq!(found.len(), expected);
        assert_eq!(found[expected - 1].subscriber, ip4("10.31.255.255"));
    }
}

#[test]
fn a_port_in_hold_down_is_told_with_the_time_of_its_release() {
    let mut config = config();
    config.pools = vec![pool("203.0.113.1", "203.0.113.1", (1024, 2047))];
    config.timeouts.hold_down = Duration::from_secs(60);
    let mut lab = Lab::new(&config);
    let mut ends = Vec::new();
    for host in 2..40 {
        ends.push(endpoint(&lab.external_of(&udp(&format!("10.0.0.{host}:4000"), REMOTE))));
    }
    let held = |lab: &Lab, (address, port): (u32, u16), most| {
        let filter = Filter {
            external: Some(Ipv4Addr::from_bits(address).into()),
            external_port: Some(port),
            ..Filter::default()
        };
        scan((4, most), |cursor, most, found| lab.engine.scan_held(cursor, most, &filter, found))
    };
    assert!(held(&lab, ends[0], 1).is_empty());
    // All mappings go at one tick, some of them later.
    let later = Filter { subscriber: Some(prefix("10.0.0.0/28")), ..Filter::default() };
    clear_all(&mut lab, &Filter { subscriber: Some(prefix("10.0.0.16/28")), ..later }, 9999, false);
    clear_all(&mut lab, &Filter { subscriber: Some(prefix("10.0.0.32/28")), ..later }, 9999, false);
    lab.wait_s(10.0);
    clear_all(&mut lab, &later, 9999, false);
    for (place, end) in ends.iter().enumerate() {
        let seconds = if place < 14 { 60.0 } else { 50.0 };
        for most in [1, 3, 10_000] {
            let found = held(&lab, *end, most);
            assert_eq!(found.len(), 1, "{place}");
            assert_eq!((found[0].protocol, found[0].external.port), (protocol::UDP, end.1));
            let left = found[0].until.expect("it is known").since(lab.now).as_secs_f64();
            assert!((left - seconds).abs() < 0.5, "{place}: {left}");
        }
    }
    lab.wait_s(70.0);
    assert!(ends.iter().all(|end| held(&lab, *end, 7).is_empty()));
    assert!(
        scan((4, 4), |cursor, most, found| {
            lab.engine.scan_held(cursor, most, &Filter::default(), found)
        })
        .is_empty()
    );
}

#[test]
fn static_mappings_stay_whatever_is_cleared() {
    let mut lab = lab();
    let statics = |engine: &Engine| {
        engine.mappings().filter(|info| info.id.kind == MappingKind::Static).count()
    };
    let before = statics(&lab.engine);
    let clear = |lab: &mut Lab, sessions: bool| {
        let mut cursor = Cursor::default();
        loop {
            let all = Filter::default();
            let (_, done) = match sessions {
                true => lab.engine.clear_sessions(&mut cursor, 5, &all),
                false => lab.engine.clear_mappings(&mut cursor, 5, &all),
            };
            while lab.engine.poll_event().is_some() {}
            if done {
                break;
            }
        }
    };
    clear(&mut lab, false);
    assert_eq!(statics(&lab.engine), before);
    assert_eq!(lab.engine.totals().mappings, 0);
    assert_eq!(lab.engine.totals().subscribers, 0);
    assert!(lab.engine.sessions().count() > 0);
    clear(&mut lab, true);
    assert_eq!(lab.engine.sessions().count(), 0);
    // A packet made the mapping of the whole mapped address.
    assert_eq!(statics(&lab.engine), before - 1);
    assert_eq!(lab.engine.totals().further_sessions, 0);
    // Everything works as before, after the hold-down.
    lab.wait_s(200.0);
    lab.inward(&udp("198.51.100.21:9", "203.0.113.1:443"));
    lab.external_of(&udp("10.0.0.9:4000", REMOTE));
}

#[test]
fn what_was_made_less_what_has_gone_is_there() {
    let mut lab = lab();
    let dynamic = |engine: &Engine, of: Option<u8>| {
        let all = engine.mappings().filter(|info| info.id.kind == MappingKind::Dynamic);
        all.filter(|info| of.is_none_or(|of| info.id.protocol == of)).count() as u64
    };
    for _ in 0..2 {
        let engine = &lab.engine;
        let totals = engine.totals();
        assert_eq!(totals.made.iter().sum::<u64>(), engine.mappings_made());
        let left = engine.mappings_made() - totals.gone.iter().sum::<u64>();
        assert_eq!(left, dynamic(engine, None));
        let expected = [
            dynamic(engine, Some(protocol::TCP)),
            dynamic(engine, Some(protocol::UDP)),
            dynamic(engine, Some(protocol::ICMP)),
            dynamic(engine, Some(protocol::DCCP)),
            dynamic(engine, Some(protocol::GRE)),
        ];
        assert!(left == 0 || expected[0] > 0 && expected[1] > 0 && expected[4] > 0);
        assert_eq!(engine.pool_used(0), expected);
        lab.wait_s(86_400.0);
    }
    assert_eq!(dynamic(&lab.engine, None), 0);
}

/// Protocol number, address and port.
fn place(info: &MappingInfo) -> (u8, Ipv4Addr, u16) {
    (info.id.protocol, info.id.external.address, info.id.external.port)
}

/// All results of a scan in order from a place on, with some ports a call.
fn in_order(
    engine: &Engine,
    from: Option<(u8, Endpoint)>,
    filter: &Filter,
    (room, most): (usize, usize),
) -> Vec<MappingInfo> {
    let mut from = from;
    let found = scan((room, most), |cursor, most, found| {
        if let Some((protocol, endpoint)) = from.take() {
            *cursor = Cursor::at_endpoint(protocol, endpoint);
        }
        engine.scan_endpoints(cursor, most, filter, found)
    });
    found.into_iter().map(|ByEndpoint(info)| info).collect()
}

#[test]
fn mappings_are_found_in_the_order_of_their_external_endpoints() {
    let lab = lab();
    let filter = Filter::default();
    let mut all = mappings(&lab.engine, &filter, (100, 1000));
    all.retain(|info| info.id.protocol != protocol::GRE);
    all.sort_by_key(place);
    // Of mappings that share a port one is found.
    let mut places: Vec<_> = all.iter().map(place).collect();
    let shared = places.len();
    places.dedup();
    assert!(places.len() > 60 && places.len() < shared);
    for parts in [(1, 1 << 16), (7, 999), (1000, 65_536)] {
        let found = in_order(&lab.engine, None, &filter, parts);
        assert_eq!(found.iter().map(place).collect::<Vec<_>>(), places);
        assert!(found.iter().all(|info| all.contains(info)));
    }
    // From each place on, from just behind it, and from protocols and addresses that do not exist.
    for (number, &(protocol, address, port)) in places.iter().enumerate().step_by(7) {
        let first = |protocol, address, port| {
            let from = Some((protocol, Endpoint { address, port }));
            in_order(&lab.engine, from, &filter, (1, 1 << 16)).first().map(place)
        };
        assert_eq!(first(protocol, address, port), Some(places[number]));
        let next = places.get(number + 1).copied();
        assert_eq!(first(protocol, address, port + 1), next);
        let of_next_protocol = places.iter().copied().find(|place| place.0 > protocol);
        assert_eq!(first(protocol, ip4("255.255.255.255"), 65_535), of_next_protocol);
        assert_eq!(first(protocol + 1, ip4("0.0.0.0"), 0), of_next_protocol);
    }
    let beyond = Some((200, Endpoint { address: ip4("0.0.0.0"), port: 0 }));
    assert!(in_order(&lab.engine, beyond, &filter, (1, 1)).is_empty());
    let one = Filter { subscriber: Some(ip4("10.0.0.9").into()), ..filter };
    assert_eq!(in_order(&lab.engine, None, &one, (5, 1 << 16)).len(), 2);
    let nobody = Filter { external: Some(ip4("192.0.2.77").into()), ..filter };
    assert!(in_order(&lab.engine, None, &nobody, (5, 5)).is_empty());
}

#[test]
fn a_scan_in_order_looks_at_no_more_ports_than_it_is_told() {
    let lab = lab();
    let mut cursor = Cursor::default();
    let (mut calls, mut found) = (0, Vec::with_capacity(1000));
    while !lab.engine.scan_endpoints(&mut cursor, 1000, &Filter::default(), &mut found) {
        calls += 1;
    }
    // Two addresses, four protocols; results cost extra.
    assert!((8 * 65..8 * 67).contains(&calls), "{calls}");
    // Ports of an address without mappings are not looked at.
    let engine = Lab::new(&config()).engine;
    let (mut cursor, mut found) = (Cursor::default(), Vec::<ByEndpoint>::with_capacity(1));
    let addresses: usize = config().pools.iter().map(PoolConfig::count).sum();
    assert!(engine.scan_endpoints(&mut cursor, 4 * addresses + 1, &Filter::default(), &mut found));
    assert!(found.is_empty());
}

#[test]
fn ports_in_hold_down_are_counted_while_they_are_held() {
    let mut config = config();
    config.pools = vec![pool("203.0.113.1", "203.0.113.2", (1024, 2047))];
    config.timeouts.hold_down = Duration::from_secs(60);
    let mut lab = Lab::new(&config);
    for port in 1..=9 {
        lab.out(&udp(&format!("10.0.0.5:{port}"), REMOTE));
    }
    assert_eq!(lab.engine.pool_held(0), [0; 4]);
    assert_eq!(lab.engine.totals().subscribers_made, 1);
    lab.engine.clear_mappings(&mut Cursor::default(), 1 << 20, &Filter::default());
    let held = |lab: &Lab| {
        let usage = scan((5, 5), |cursor, most, found| {
            lab.engine.scan_addresses(cursor, most, &Filter::default(), found)
        });
        let addresses: u32 = usage.iter().map(|usage| usage.held[1]).sum();
        assert_eq!(lab.engine.pool_held(0), [0, addresses, 0, 0]);
        assert_eq!(u64::from(addresses), lab.engine.pool_usage(0, protocol::UDP).held);
        addresses
    };
    assert_eq!(held(&lab), 9);
    lab.out(&udp("10.0.0.5:1", REMOTE));
    assert_eq!(lab.engine.totals().subscribers_made, 2);
    lab.wait(Duration::from_secs(61));
    assert_eq!(held(&lab), 0);
}
