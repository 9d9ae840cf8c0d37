//! Static mappings that one side begins, services of several servers, forwarded ports in blocks,
//! and hosts that reach themselves.

mod common;

use common::*;
use natgate_engine::{
    Affinity, Allocation, Begun, BlockConfig, Change, Config, DropReason, End, Engine, Explanation,
    Packet, PoolConfig, Server, Service, Side, StaticMapping, Step, Timestamp, Verdict,
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

/// The server that gets a client's SYN.
fn opened(lab: &mut Lab, client: &str, sequence: u32) -> String {
    ends(&lab.inward(&tcp(client, WEB, "S", sequence, 0))).1
}

/// The last state of a connection in a test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Last {
    Opening,
    Established,
    HalfClosed,
    Closed,
    Reset,
    Silent,
}

/// A client's connection up to a state. Returns its server.
fn connection(lab: &mut Lab, client: &str, last: Last) -> String {
    let server = opened(lab, client, 100);
    if last == Last::Opening {
        return server;
    }
    // The reply has the service's endpoint as its source.
    let answer = lab.out(&tcp(&server, client, "SA", 500, 101));
    assert_eq!(ends(&answer), (WEB.into(), client.into()));
    lab.inward(&tcp(client, WEB, "A", 101, 501));
    match last {
        Last::Closed | Last::HalfClosed => {
            lab.inward(&tcp(client, WEB, "FA", 101, 501));
            if last == Last::Closed {
                lab.out(&tcp(&server, client, "FA", 501, 102));
                lab.inward(&tcp(client, WEB, "A", 102, 502));
            }
        }
        Last::Reset => _ = lab.out(&tcp(&server, client, "RA", 501, 101)),
        // The established timeout.
        Last::Silent => lab.wait_s(7440.5),
        Last::Opening | Last::Established => {}
    }
    server
}

const PAIR: [&str; 2] = ["10.0.0.80:8080", "10.0.0.81:8080"];

/// A service of the two servers.
fn pair_of_servers(affinity: Affinity) -> Lab {
    let servers = PAIR.map(|one| server(one, 1)).to_vec();
    Lab::new(&Config { session_events: true, ..service(servers, affinity) })
}

fn place(server: &str) -> usize {
    PAIR.iter().position(|one| *one == server).expect("a server")
}

/// The ends of sessions, and the beginnings, by their servers.
fn session_events(lab: &mut Lab) -> Vec<(bool, String, Timestamp)> {
    let shown =
        |internal: natgate_engine::Endpoint| format!("{}:{}", internal.address, internal.port);
    let events = core::mem::take(&mut lab.events).into_iter();
    let events = events.filter_map(|event| match event.change {
        Change::SessionCreated(id) => Some((true, shown(id.mapping.internal), event.time)),
        Change::SessionRemoved(id) => Some((false, shown(id.mapping.internal), event.time)),
        _ => None,
    });
    events.collect()
}

#[test]
fn a_connection_in_place_of_a_closed_one_goes_to_a_server_that_is_well() {
    for affinity in [Affinity::Address, Affinity::None] {
        let mut lab = pair_of_servers(affinity);
        // Sessions of other clients are the first or further ones of the mappings.
        for port in 1..=8 {
            connection(&mut lab, &format!("198.51.100.9:{port}"), Last::Established);
        }
        let old = connection(&mut lab, REMOTE, Last::Closed);
        let other = PAIR[1 - place(&old)];
        lab.engine.mark_server(0, place(&old), false);
        let sessions = lab.engine.sessions().count();
        session_events(&mut lab);
        lab.wait_s(0.07);
        let now = lab.now;
        assert_eq!(opened(&mut lab, REMOTE, 90_000), other, "{affinity:?}");
        assert_eq!(lab.engine.sessions().count(), sessions);
        let events = [(false, old.clone(), now), (true, other.into(), now)];
        assert_eq!(session_events(&mut lab), events);
        // The SYN again, and the rest of the connection.
        assert_eq!(ends(&lab.inward(&tcp(REMOTE, WEB, "S", 90_000, 0))).1, other);
        let late = tcp(&old, REMOTE, "FA", 501, 102);
        assert_eq!(lab.refused(Side::Inside, &late), DropReason::TcpNotSyn);
        let answer = lab.out(&tcp(other, REMOTE, "SA", 7000, 90_001));
        assert_eq!(ends(&answer), (WEB.into(), REMOTE.into()));
        assert_eq!(ends(&lab.inward(&tcp(REMOTE, WEB, "A", 90_001, 7001))).1, other);
        // The server is well again: the connection stays where it is.
        lab.engine.mark_server(0, place(&old), true);
        assert_eq!(ends(&lab.inward(&tcp(REMOTE, WEB, "A", 90_001, 7001))).1, other);
        lab.wait_s(20_000.0);
        assert_eq!(lab.engine.sessions().count(), 0);
    }
}

#[test]
fn a_connection_that_goes_on_stays_with_its_server() {
    // A reset may be forged, and a silent connection may live.
    let all = [Last::Opening, Last::Established, Last::HalfClosed, Last::Reset, Last::Silent];
    for last in all {
        let mut lab = pair_of_servers(Affinity::None);
        let old = connection(&mut lab, REMOTE, last);
        lab.engine.mark_server(0, place(&old), false);
        for flags in ["S", "A"] {
            assert_eq!(ends(&lab.inward(&tcp(REMOTE, WEB, flags, 101, 501))).1, old, "{last:?}");
        }
    }
    // Only a SYN opens a connection in place of one that is over.
    let mut lab = pair_of_servers(Affinity::None);
    let old = connection(&mut lab, REMOTE, Last::Closed);
    lab.engine.mark_server(0, place(&old), false);
    for flags in ["A", "SA", "FA", "SF"] {
        assert_eq!(ends(&lab.inward(&tcp(REMOTE, WEB, flags, 101, 501))).1, old, "{flags}");
    }
}

/// A server that is well tells segments of the earlier connection from later ones.
#[test]
fn a_connection_in_place_of_a_closed_one_stays_with_a_server_that_is_well() {
    for last in [Last::Closed, Last::Reset] {
        for port in 1..=16 {
            let mut lab = pair_of_servers(Affinity::None);
            let client = format!("198.51.100.7:{port}");
            let old = connection(&mut lab, &client, last);
            lab.engine.mark_server(0, 1 - place(&old), false);
            lab.engine.mark_server(0, 1 - place(&old), true);
            session_events(&mut lab);
            assert_eq!(ends(&lab.inward(&tcp(&client, WEB, "S", 90_000, 0))).1, old);
            assert_eq!(session_events(&mut lab), []);
        }
    }
}

#[test]
fn a_connection_in_place_of_a_closed_one_is_refused_if_no_server_is_well() {
    let mut lab = pair_of_servers(Affinity::Address);
    connection(&mut lab, REMOTE, Last::Closed);
    for server in [0, 1] {
        lab.engine.mark_server(0, server, false);
    }
    let syn = tcp(REMOTE, WEB, "S", 90_000, 0);
    assert_eq!(lab.refused(Side::Outside, &syn), DropReason::Filtered);
    assert_eq!(lab.engine.sessions().count(), 0);
    lab.wait_s(7.0);
    let sent: Vec<_> = lab.sent.iter().map(|(_, side, bytes)| (*side, ends(bytes))).collect();
    assert_eq!(sent, [(Side::Outside, ("203.0.113.1".into(), "198.51.100.7".into()))]);
}

#[test]
fn a_backup_gives_closed_connections_back() {
    let backup = Server { backup: true, ..server(PAIR[1], 1) };
    let config = service(vec![server(PAIR[0], 1), backup], Affinity::Address);
    let mut lab = Lab::new(&config);
    lab.engine.mark_server(0, 0, false);
    assert_eq!(connection(&mut lab, REMOTE, Last::Closed), PAIR[1]);
    assert_eq!(connection(&mut lab, "198.51.100.7:81", Last::Established), PAIR[1]);
    lab.engine.mark_server(0, 0, true);
    assert_eq!(opened(&mut lab, REMOTE, 90_000), PAIR[0]);
    assert_eq!(ends(&lab.inward(&tcp("198.51.100.7:81", WEB, "A", 101, 501))).1, PAIR[1]);
}

#[test]
fn a_connection_in_place_of_a_closed_one_is_explained() {
    let mut lab = pair_of_servers(Affinity::Address);
    let old = connection(&mut lab, REMOTE, Last::Closed);
    let other = PAIR[1 - place(&old)];
    lab.engine.mark_server(0, place(&old), false);
    let explained = |flags: &str| {
        let mut told = Explanation::new();
        let mut syn = tcp(REMOTE, WEB, flags, 90_000, 0);
        let view = Packet::new(&mut syn, 0);
        lab.engine.explain(lab.now, Side::Outside, &view, &mut told);
        assert_eq!(told.verdict, Verdict::Forward(Side::Inside));
        let End { address, port } = told.becomes.expect("it goes on").destination;
        let reopens = told.steps().contains(&Step::Reopened);
        (reopens, format!("{}:{}", address.unwrap(), port.unwrap()))
    };
    assert_eq!(explained("A"), (false, old.clone()));
    assert_eq!(explained("S"), (true, other.into()));
    assert_eq!(explained("S"), (true, other.into()));
    assert_eq!(lab.engine.sessions().next().unwrap().state, "closed");
}

/// A mapping of a service that turns round, too: the client is a subscriber.
#[test]
fn a_subscribers_connection_in_place_of_a_closed_one_goes_to_a_server_that_is_well() {
    let mut lab = pair_of_servers(Affinity::Address);
    let (client, flow) =
        ("10.0.0.5:4000", |flags, sequence, ack| tcp("10.0.0.5:4000", WEB, flags, sequence, ack));
    let (source, old) = ends(&lab.hairpin(&flow("S", 100, 0)));
    let back = ends(&lab.hairpin(&tcp(&old, &source, "SA", 500, 101)));
    assert_eq!(back, (WEB.into(), client.into()));
    lab.hairpin(&flow("FA", 101, 501));
    lab.hairpin(&tcp(&old, &source, "FA", 501, 102));
    lab.engine.mark_server(0, place(&old), false);
    let other = PAIR[1 - place(&old)];
    assert_eq!(ends(&lab.hairpin(&flow("S", 90_000, 0))), (source, other.into()));
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
