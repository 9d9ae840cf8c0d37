//! Static mappings that one side begins, services of several servers, forwarded ports in blocks,
//! and hosts that reach themselves.

mod common;

use common::*;
use natgate_engine::{
    Affinity, Allocation, Begun, BlockConfig, Change, Config, DropReason, Engine, PoolConfig,
    Server, Service, Side, StaticMapping, Timestamp,
};
use natgate_wire::protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

const WEB: &str = "203.0.113.1:80";

fn end(text: &str) -> (Ipv4Addr, Option<u16>) {
    let (address, port) = endpoint(text);
    (Ipv4Addr::from_bits(address), text.contains(':').then_some(port))
}

fn fixed(internal: &str, external: &str, begun: Begun) -> StaticMapping {
    let (internal, external) = (end(internal), end(external));
    StaticMapping { internal, external, begun, ..StaticMapping::default() }
}

fn server(internal: &str, weight: u16) -> Server {
    let (address, port) = end(internal);
    Server { internal: (address, port.unwrap()), weight, draining: false, backup: false }
}

fn service(servers: Vec<Server>, affinity: Affinity) -> Config {
    let (address, port) = end(WEB);
    let external = (address, port.unwrap());
    let services = vec![Service { realm: 0, protocol: None, external, servers, affinity }];
    Config { services, ..config() }
}

#[test]
fn what_only_the_outside_begins_leaves_the_hosts_own_alone() {
    let statics = vec![
        fixed("10.0.0.80:5000", "203.0.113.1:80", Begun::Outside),
        fixed("10.0.0.80:5000", "203.0.113.1:81", Begun::Outside),
    ];
    let mut lab = Lab::new(&Config { statics, ..config() });
    for external in ["203.0.113.1:80", "203.0.113.1:81"] {
        let remote = format!("198.51.100.7:{}", external.len() + usize::from(external == WEB));
        let inward = lab.inward(&udp(&remote, external));
        assert_eq!(ends(&inward).1, "10.0.0.80:5000");
        assert_eq!(ends(&lab.out(&udp("10.0.0.80:5000", &remote))).0, external);
    }
    // A session that the host begins has a mapping of its own, which goes while the static ones
    // stay.
    let own = lab.external_of(&udp("10.0.0.80:5000", "198.51.100.9:53"));
    assert!(own != "203.0.113.1:80" && own != "203.0.113.1:81");
    assert_eq!(lab.engine.mappings().count(), 8 + 1);
    // A remote endpoint with a session cannot come in by another external endpoint: the reply would
    // leave by the first.
    assert_eq!(lab.refused(Side::Outside, &udp("198.51.100.9:53", WEB)), DropReason::Ambiguous);
    lab.wait_s(1000.0);
    assert_eq!((lab.engine.mappings().count(), lab.engine.sessions().count()), (8, 0));
}

#[test]
fn a_connection_from_outside_is_answered_by_where_it_came_in() {
    let statics = vec![fixed("10.0.0.80:5000", WEB, Begun::Outside)];
    let mut lab = Lab::new(&Config { statics, ..config() });
    lab.inward(&tcp(REMOTE, WEB, "S", 1, 0));
    assert_eq!(ends(&lab.out(&tcp("10.0.0.80:5000", REMOTE, "SA", 9, 2))).0, WEB);
    assert_eq!(lab.engine.sessions().next().unwrap().state, "established");
    let error =
        error("10.0.0.80", "198.51.100.7", 3, 3, &tcp(REMOTE, "10.0.0.80:5000", "A", 2, 10));
    let error = lab.out(&error);
    assert_eq!(ends(&error).0, "203.0.113.1");
}

#[test]
fn what_only_the_inside_begins_lets_in_answers_only() {
    for (internal, external) in [("10.0.0.80:5000", WEB), ("10.0.0.80", "198.18.0.80")] {
        let statics = vec![fixed(internal, external, Begun::Inside)];
        let mut lab = Lab::new(&Config { statics, ..config() });
        let door = if external == WEB { WEB.to_owned() } else { format!("{external}:5000") };
        assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, &door)), DropReason::Filtered);
        assert_eq!(lab.external_of(&udp("10.0.0.80:5000", REMOTE)), door);
        assert_eq!(ends(&lab.inward(&udp(REMOTE, &door))).1, "10.0.0.80:5000");
        let other = udp("198.51.100.8:80", &door);
        assert_eq!(lab.refused(Side::Outside, &other), DropReason::Filtered);
    }
}

/// The server that each of several remote endpoints reaches.
fn reached(lab: &mut Lab, addresses: u8, ports: u16) -> BTreeMap<(u8, u16), String> {
    let mut reached = BTreeMap::new();
    for address in 1..=addresses {
        for port in 1000..1000 + ports {
            let remote = format!("198.51.100.{address}:{port}");
            let inner = ends(&lab.inward(&udp(&remote, WEB))).1;
            // The reply has the service's endpoint as its source.
            assert_eq!(ends(&lab.out(&udp(&inner, &remote))), (WEB.into(), remote));
            reached.insert((address, port), inner);
        }
    }
    reached
}

#[test]
fn sessions_are_spread_over_servers_and_addresses_keep_theirs() {
    let servers = || vec![server("10.0.0.80:8080", 1), server("10.0.0.81:8080", 3)];
    let mut lab = Lab::new(&service(servers(), Affinity::Address));
    let by_address = reached(&mut lab, 200, 3);
    let of = |address, port| &by_address[&(address, port)];
    assert!((1..=200).all(|address| of(address, 1000) == of(address, 1002)));
    let first = by_address.values().filter(|inner| *inner == "10.0.0.80:8080").count() / 3;
    assert!((25..=80).contains(&first), "{first} of 200");

    let mut lab = Lab::new(&service(servers(), Affinity::None));
    let by_session = reached(&mut lab, 20, 20);
    let both = |address| {
        let of_address = by_session.iter().filter(|((one, _), _)| *one == address);
        of_address.map(|(_, inner)| inner).collect::<BTreeSet<_>>().len() == 2
    };
    assert!((1..=20).filter(|&address| both(address)).count() > 10);
}

#[test]
fn a_draining_server_keeps_what_it_has_and_gets_nothing_new() {
    let mut servers = vec![server("10.0.0.80:8080", 1), server("10.0.0.81:8080", 1)];
    servers[0].draining = true;
    let mut lab = Lab::new(&service(servers.clone(), Affinity::Address));
    assert!(reached(&mut lab, 50, 1).values().all(|inner| inner == "10.0.0.81:8080"));
    servers[1].weight = 0;
    let mut lab = Lab::new(&service(servers, Affinity::Address));
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, WEB)), DropReason::Filtered);
}

#[test]
fn a_server_that_is_down_keeps_its_sessions_and_a_backup_stands_in() {
    let usual = [server("10.0.0.80:8080", 1), server("10.0.0.81:8080", 1)];
    let backup = Server { backup: true, ..server("10.0.0.82:8080", 9) };
    let mut lab = Lab::new(&service([&usual[..], &[backup]].concat(), Affinity::Address));
    let before = reached(&mut lab, 30, 1);
    let of = |server: &str| before.iter().filter(|(_, inner)| *inner == server).count();
    assert!(of("10.0.0.80:8080") > 0 && of("10.0.0.81:8080") > 0);
    assert_eq!(of("10.0.0.82:8080"), 0);
    lab.engine.mark_server(0, 0, false);
    assert_eq!(reached(&mut lab, 30, 1), before, "sessions stay");
    let new = |lab: &mut Lab| -> BTreeSet<String> {
        lab.wait_s(600.0);
        reached(lab, 30, 1).into_values().collect()
    };
    assert_eq!(new(&mut lab), ["10.0.0.81:8080".to_owned()].into());
    lab.engine.mark_server(0, 1, false);
    assert_eq!(new(&mut lab), ["10.0.0.82:8080".to_owned()].into());
    lab.engine.mark_server(0, 2, false);
    lab.wait_s(600.0);
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, WEB)), DropReason::Filtered);
    lab.engine.mark_server(0, 0, true);
    lab.engine.mark_server(0, 1, true);
    lab.wait_s(600.0);
    assert_eq!(reached(&mut lab, 30, 1), before, "all clients are back");
    // Places that do not exist.
    lab.engine.mark_server(0, 3, false);
    lab.engine.mark_server(9, 0, false);
}

#[test]
fn what_a_server_begins_is_translated_as_any_other_hosts() {
    let servers = vec![server("10.0.0.80:8080", 1), server("10.0.0.81:8080", 1)];
    let mut lab = Lab::new(&service(servers, Affinity::Address));
    assert_ne!(lab.external_of(&udp("10.0.0.80:8080", REMOTE)), WEB);
}

/// Both endpoints are translated: a host that reaches itself sees its external endpoint.
#[test]
fn a_host_reaches_itself_and_its_own_servers_from_outside() {
    let statics = vec![fixed("10.0.0.80:8080", WEB, Begun::Anywhere)];
    let mut lab = Lab::new(&Config { statics, ..config() });
    for client in ["10.0.0.80:4000", "10.0.0.5:4000"] {
        let (source, destination) = ends(&lab.hairpin(&tcp(client, WEB, "S", 1, 0)));
        assert_eq!(destination, "10.0.0.80:8080");
        assert!(source.starts_with("203.0.113.1:"), "{source} is an external endpoint");
        let back = ends(&lab.hairpin(&tcp("10.0.0.80:8080", &source, "SA", 7, 2)));
        assert_eq!(back, (WEB.into(), client.into()));
    }
}

#[test]
fn a_server_reaches_its_own_service() {
    let servers = vec![server("10.0.0.80:8080", 1), server("10.0.0.81:8080", 1)];
    let mut lab = Lab::new(&service(servers, Affinity::Address));
    let (source, server) = ends(&lab.hairpin(&udp("10.0.0.80:8080", WEB)));
    assert!(source.starts_with("203.0.113.1:"));
    let back = ends(&lab.hairpin(&udp(&server, &source)));
    assert_eq!(back, (WEB.into(), "10.0.0.80:8080".into()));
}

fn blocks(statics: Vec<StaticMapping>) -> Config {
    let allocation = Some(Allocation::Block(BlockConfig {
        size: 16,
        max_per_subscriber: 2,
        ..BlockConfig::default()
    }));
    let pool = PoolConfig { allocation, ..pool("203.0.113.1", "203.0.113.1", (5000, 5063)) };
    Config { pools: vec![pool], statics, ..config() }
}

#[test]
fn the_block_of_a_forwarded_port_is_its_hosts_for_good() {
    let statics = vec![fixed("10.0.0.80:80", "203.0.113.1:5020", Begun::Anywhere)];
    let mut lab = Lab::new(&blocks(statics));
    lab.wait_s(1.0);
    let assigned = |lab: &Lab| {
        let blocks = lab.events.iter().filter_map(|event| match event.change {
            Change::BlockAssigned(block) => Some((block.subscriber, block.ports)),
            _ => None,
        });
        blocks.collect::<Vec<_>>()
    };
    assert_eq!(assigned(&lab), [(Ipv4Addr::new(10, 0, 0, 80), (5016, 5031))]);
    // The host's own mappings use the address, mappings of others do not.
    for port in 1..=15 {
        let external = lab.external_of(&udp(&format!("10.0.0.80:{port}"), REMOTE));
        let port: u16 = external.split_once(':').unwrap().1.parse().unwrap();
        assert!((5016..=5031).contains(&port) && port != 5020);
        let other = lab.external_of(&udp(&format!("10.0.0.5:{port}"), REMOTE));
        let port: u16 = other.split_once(':').unwrap().1.parse().unwrap();
        assert!(!(5016..=5031).contains(&port));
    }
    lab.wait_s(10_000.0);
    let released = lab.events.iter().filter(|e| matches!(e.change, Change::BlockReleased(_)));
    assert_eq!((released.count(), assigned(&lab).len()), (1, 2));
}

#[test]
fn hosts_do_not_share_a_block_nor_have_too_many() {
    let refused = |statics: Vec<StaticMapping>| {
        Engine::new(&blocks(statics), [0; 32], Timestamp(0)).err().map(|error| error.message)
    };
    let port = |host: u8, port: u16| {
        fixed(&format!("10.0.0.{host}:80"), &format!("203.0.113.1:{port}"), Begun::Outside)
    };
    let shared = refused(vec![port(80, 5000), port(81, 5001)]).unwrap();
    assert_eq!(shared, "203.0.113.1:5001 is in a block of 10.0.0.80, not of 10.0.0.81");
    let many = refused(vec![port(80, 5000), port(80, 5016), port(80, 5032)]).unwrap();
    assert_eq!(many, "203.0.113.1:5032 gives 10.0.0.80 3 blocks, more than the 2 it may have");
    assert_eq!(refused(vec![port(80, 5000), port(80, 5001), port(81, 5016)]), None);
}

/// All ports of a block may be forwarded.
#[test]
fn a_block_may_be_forwarded_as_a_whole() {
    let port = |port: u16| {
        fixed(&format!("10.0.0.80:{port}"), &format!("203.0.113.1:{port}"), Begun::Anywhere)
    };
    let mut lab = Lab::new(&blocks((5000..5016).map(port).collect()));
    lab.wait_s(1.0);
    assert_eq!(lab.events.len(), 1);
    assert_eq!(lab.engine.pool_usage(0, protocol::TCP).reserved, 16);
    assert_eq!(ends(&lab.inward(&udp(REMOTE, "203.0.113.1:5015"))).1, "10.0.0.80:5015");
}

/// Ports of a range, a million static mappings, take time at the start but no searches.
#[test]
fn many_static_mappings_of_few_addresses_are_made() {
    let ports = (1..=65_535).map(|port: u16| StaticMapping {
        protocol: Some(protocol::UDP),
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(port)),
        external: (Ipv4Addr::new(198, 18, 0, 80), Some(port)),
        ..StaticMapping::default()
    });
    let mut lab = Lab::new(&Config { statics: ports.collect(), ..config() });
    assert_eq!(lab.engine.mappings().count(), 65_535);
    assert_eq!(ends(&lab.inward(&udp(REMOTE, "198.18.0.80:65535"))).1, "10.0.0.80:65535");
}
